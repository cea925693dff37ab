"""A package outside this repository adds a method through the entry point group `assay.methods`, and gets everything."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGE = HERE / "third_party"


def _environment(folder):
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "ASSAY_SMOKE": "1", "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder as an installer leaves it: the package and its .dist-info. No network, and no build tools needed."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(
        PACKAGE / "src" / "tiny_median", folder / "tiny_median", ignore=shutil.ignore_patterns("__pycache__")
    )
    info = folder / "tiny_median-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-median\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[assay.methods]\ntiny-median = tiny_median\n")
    return folder


def _assay(installed, *words, cwd=None):
    code = "import sys; from assay.cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        env=_environment(installed),
        cwd=cwd,
        capture_output=True,
        text=True,
    )


def test_not_there_before():
    from assay._core.registry import cards

    assert "tiny-median" not in cards()


def test_list_and_show(installed):
    done = _assay(installed, "list")
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("tiny-median "))
    assert "elsewhere" in line
    assert "Median of a column" in _assay(installed, "show", "tiny-median").stdout


def test_its_command_group_works(installed, tmp_path):
    assert "--shift" in _assay(installed, "tiny-median", "fit", "--help").stdout
    table = tmp_path / "mine.csv"
    table.write_text("a,b\n3,1\n5,2\n4,9\n")
    done = _assay(installed, "tiny-median", "fit", table, "--shift", "1", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "artefacts" / "medians.csv").read_text() == "column,median\na,4.0\nb,2.0\n"
    assert (tmp_path / "out" / "report.html").is_file()


def test_its_claims_are_found(installed):
    done = _assay(installed, "claims", "list", "tiny-median")
    assert done.returncode == 0, done.stderr
    assert "tiny-median/is-the-middle" in done.stdout


def test_the_contract_suite_runs_for_it(installed, tmp_path):
    """The files of the suite, unchanged, pick the method up: rooms, kind, command line, demo, bad input."""
    files = (
        "test_rooms.py",
        "test_kind_estimator.py",
        "test_cli.py",
        "test_demo.py",
        "test_bad_input.py",
        "test_examples.py",
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *(str(HERE / f) for f in files), "-k", "tiny-median", "-v", "-p", "no:cacheprovider",
         "-p", "no:xdist", "--basetemp", str(tmp_path / "inner")],
        env=_environment(installed), cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    passed = set(re.findall(r"(test_\w+\.py)::(?:\S+).* PASSED", done.stdout))
    assert passed == set(files) - {"test_examples.py"}  # its examples are at home with it: skipped here
    for name in ("check_claims", "check_doctests", "tiny-median-MedianModel-check_refit_forgets", "test_bad_file"):
        assert re.search(rf"{name}.* PASSED", done.stdout), f"{name} did not run for the third-party method"


def test_a_broken_third_party_method_is_caught(installed, tmp_path):
    """The same suite fails for a method with a fault, so that passing above means something."""
    broken = tmp_path / "site"
    shutil.copytree(installed, broken)
    path = broken / "tiny_median" / "_median.py"
    text = path.read_text()
    assert "return self" in text
    path.write_text(text.replace("        return self\n", "        return None\n", 1))
    code = (  # the suite's own path from card to checks, without collecting every other method again
        "from assay import card\nfrom assay.testing import cases_of, check_case\n"
        "for case in cases_of(card('tiny-median')): check_case(case)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=_environment(broken), cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stdout[-2000:]
    assert "check_fit_returns_self" in done.stderr


@pytest.mark.slow
def test_pip_installs_it(tmp_path):
    """The real installer: pip builds the package with the setuptools that is here and writes the entry point."""
    pytest.importorskip("setuptools", minversion="77", reason="pip without build isolation needs setuptools here")
    source = tmp_path / "source"
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    target = tmp_path / "target"
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-index",
         "--target", str(target), str(source)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (target / "tiny_median" / "card.toml").is_file()
    assert any(line.startswith("tiny-median ") for line in _assay(target, "list").stdout.splitlines())
