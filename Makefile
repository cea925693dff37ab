# Everything installs what it needs: each target works from a fresh clone on a machine with python3 and its venv module.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One thread per process: two processes of one thread beat one of two on small problems, and results do not depend on it.
THREADS := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1
# Larger real data sets are used where they lie; every target also works without them.
export ASSAY_DATA_DIR ?= $(abspath $(wildcard ../shared/data))
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help run test test-slow lint claims claims-standard bench docs constraints tables clean

help:
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

$(VENV)/base: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "python3 with its venv module is needed (Debian: apt-get install python3-venv)"; exit 1; }
	@echo "Installing Assay into $(VENV) ..."
	@$(PIP_INSTALL) -e '.[all]'
	@touch $@

$(VENV)/dev: $(VENV)/base
	@echo "Installing the test and lint tools ..."
	@$(PIP_INSTALL) $$($(BIN)/python tools/group.py test lint)
	@touch $@

$(VENV)/docs: $(VENV)/dev
	@$(PIP_INSTALL) $$($(BIN)/python tools/group.py docs)
	@touch $@

$(VENV)/peers: $(VENV)/dev
	@$(PIP_INSTALL) $$($(BIN)/python tools/group.py bench)
	@$(PIP_INSTALL) -e '.[all,cluster,track]'
	@touch $@

run: $(VENV)/base  ## the main job: dose-response curves of the real sample, with a report
	@$(BIN)/assay dose-response fit src/assay/bio/dose_response/data/sarcoma_viability.csv.gz --replicates median

test: $(VENV)/dev  ## every default test, under ten minutes on two cores
	@$(THREADS) $(BIN)/python -m pytest -n 2 --dist loadfile

test-slow: $(VENV)/peers $(VENV)/docs  ## the long tests; METHOD=rotational for one method's
	@$(THREADS) $(BIN)/python -m pytest -n 2 --dist loadfile -m slow --timeout 1800 $(if $(METHOD),$(wildcard tests/*/$(METHOD) tests/parity/$(METHOD)))

lint: $(VENV)/dev  ## ruff, mypy on the public surface, import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

claims: $(VENV)/dev  ## the quick tier of every claim
	@$(THREADS) $(BIN)/python -m pytest -m claim -n 2 --dist load --timeout 900 tests/claims

claims-standard: $(VENV)/peers  ## the standard tier of every claim, with the peers; writes results/
	@$(THREADS) $(BIN)/assay claims run '*' --tier standard --commit-results

bench: $(VENV)/peers  ## ours against the peers (whose own warnings are not ours to fail on)
	@$(THREADS) $(BIN)/python -m pytest bench -m "" -W ignore --benchmark-enable --benchmark-group-by=group --benchmark-columns=median,iqr,rounds

docs: $(VENV)/docs  ## the documentation, with warnings as errors
	@$(THREADS) ASSAY_SMOKE=1 $(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

tables: $(VENV)/dev  ## rewrite the generated tables of the README
	@$(BIN)/python docs/tools/readme_tables.py

constraints:  ## write constraints.txt anew from the newest releases that pass; run the tests before committing it
	@$(PYTHON) tools/constraints.py

clean:
	rm -rf $(VENV) docs/_build docs/_generated docs/gallery docs/api/_generated .pytest_cache .mypy_cache .ruff_cache
