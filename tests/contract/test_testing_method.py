"""Each check of a method's rooms passes for a complete method and fails for one with exactly that room missing."""
# ruff: noqa: E501 - one fault per line reads better than wrapped lambdas

import re
import shutil
import sys
import unittest
from pathlib import Path

import pytest

from assay._core.registry import read_card
from assay.testing import check_method, checks_for_method
from assay.testing._method import CHECKS

SOURCE = Path(__file__).parent / "third_party" / "src" / "tiny_median"
TEMPLATE = Path(__file__).parents[2] / "docs" / "guide" / "_template.md"


class House:
    """A copy of the tiny method under a name of its own, with a repository around it, to break things in."""

    def __init__(self, root, number):
        self.name = f"tiny_copy_{number}"
        self.slug = self.name.replace("_", "-")
        self.root = root
        self.folder = root / "src" / self.name
        shutil.copytree(SOURCE, self.folder, ignore=shutil.ignore_patterns("__pycache__"))
        for path in self.folder.rglob("*.*"):
            text = path.read_text()
            path.write_text(text.replace("tiny_median", self.name).replace("tiny-median", self.slug))
        for path in (
            f"tests/elsewhere/{self.name}/test_it.py",
            f"tests/parity/{self.name}/test_it.py",
            f"tests/parity/{self.name}/values.json",
            f"bench/elsewhere/bench_{self.name}.py",
            f"examples/elsewhere/plot_{self.name}.py",
            f"docs/guide/elsewhere/{self.name}.md",
        ):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text("")
        self.guide.write_text(TEMPLATE.read_text().replace("SLUG", self.slug))

    @property
    def guide(self):
        return self.root / "docs" / "guide" / "elsewhere" / f"{self.name}.md"

    def edit(self, name, old, new, count=1):
        path = self.folder / name
        text = path.read_text()
        assert old in text, f"{name} does not hold {old!r}"
        path.write_text(text.replace(old, new, count))

    def check(self, name):
        card = read_card(self.folder / "card.toml", self.name)
        dict(checks_for_method(card, self.root))[name]()


numbers = iter(range(1000))


@pytest.fixture
def house(tmp_path, monkeypatch):
    made = House(tmp_path, next(numbers))
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "src"))  # for checks that start an interpreter
    yield made
    for name in [m for m in sys.modules if m.split(".")[0] == made.name]:
        del sys.modules[name]


def _unlink(path):
    path.unlink()


FAULTS = [
    ("check_card", "no limitation", lambda h: h.edit("card.toml", '["It is a test of the plug-in mechanism, not a model."]', "[]")),
    ("check_card", "no paper address", lambda h: h.edit("card.toml", 'url = "https://example.org"\n', "")),
    ("check_card", "empty brings", lambda h: h.edit("card.toml", '"a table with numbers"', '" "')),
    ("check_card", "summary too long", lambda h: h.edit("card.toml", 'summary = "', 'summary = "' + "long " * 30)),
    ("check_commands", "job that is not there", lambda h: h.edit("card.toml", "_job:fit", "_job:fits")),
    ("check_commands", "undocumented parameter", lambda h: h.edit("_job.py", "    shift : float\n", "")),
    ("check_commands", "no run", lambda h: h.edit("_job.py", "shift: float = 0.0, run: Run", "shift: float = 0.0")),
    ("check_commands", "positional run", lambda h: h.edit("_job.py", "table: Path, *, shift: float = 0.0, run: Run", "table: Path, run: Run, shift: float = 0.0")),
    ("check_commands", "no common verb", lambda h: h.edit("card.toml", "\nfit = ", "\nfrobnicate = ")),
    ("check_commands", "job elsewhere", lambda h: h.edit("card.toml", "._job:fit", "._median:fit")),
    ("check_cheap_imports", "heavy job", lambda h: h.edit("_job.py", "from pathlib", "import pandas\nfrom pathlib")),
    ("check_cheap_imports", "heavy claims", lambda h: h.edit("claims.py", "from typing", "import sklearn\nfrom typing")),
    ("check_public_names", "no docstring", lambda h: h.edit("_median.py", '"""Predict the median of each column.', '""" ')),
    ("check_public_names", "undocumented parameter", lambda h: h.edit("_median.py", "    shift : float, default 0.0\n", "    other : float\n")),
    ("check_public_names", "no example", lambda h: h.edit("_median.py", ">>> ", "", 3)),
    ("check_public_names", "name that is not there", lambda h: h.edit("__init__.pyi", '["MedianModel"]', '["MedianModel", "Mode"]')),
    ("check_public_names", "import of what is not there", lambda h: h.edit("__init__.pyi", "MedianModel as MedianModel\n\n__all__ = [", "MedianModel as MedianModel\nfrom ._median import Mode as Mode\n\n__all__ = ['Mode', ")),
    ("check_doctests", "wrong output", lambda h: h.edit("_median.py", "array([2.])", "array([3.])")),
    ("check_claims", "no such experiment", lambda h: h.edit("claims.py", 'experiment="sides"', 'experiment="slides"')),
    ("check_claims", "id of another method", lambda h: h.edit("claims.py", f'id="{h.slug}/', 'id="other/')),
    ("check_claims", "no reason", lambda h: h.edit("claims.py", "one point, the median itself, can lie on neither side", "")),
    ("check_claims", "no standard tier", lambda h: h.edit("claims.py", '"standard": Tier', '"full": Tier')),
    ("check_claims", "unknown source", lambda h: h.edit("claims.py", 'caveat="', 'data=["moon"], caveat="')),
    ("check_claims", "no claims", lambda h: h.edit("claims.py", "\n    )\n]", "\n    )\n][:0]")),
    ("check_claims", "signature", lambda h: h.edit("claims.py", "arm: str, seed: int", "seed: int, arm: str")),
    ("check_contract_cases", "no case of the kind", lambda h: h.edit("card.toml", 'kind = "estimator"', 'kind = "optimizer"')),
    ("check_contract_cases", "no cases", lambda h: h.edit("_contract.py", "(6, 2),))]", "(6, 2),))][:0]")),
    ("check_package_rooms", "no provenance", lambda h: _unlink(h.folder / "data" / "PROVENANCE.md")),
    ("check_package_rooms", "no licence", lambda h: h.edit("data/PROVENANCE.md", "Licence: CC0", "Free")),
    ("check_package_rooms", "unmentioned file", lambda h: (h.folder / "data" / "more.csv").write_text("a\n1\n")),
    ("check_package_rooms", "pickle", lambda h: (h.folder / "data" / "numbers.csv").write_bytes(b"\x80\x04K\x01.")),
    ("check_package_rooms", "too large", lambda h: (h.folder / "data" / "numbers.csv").write_bytes(b"1" * (2**20 + 1))),
    ("check_package_rooms", "no stub", lambda h: _unlink(h.folder / "__init__.pyi")),
    ("check_repository_rooms", "no tests", lambda h: shutil.rmtree(h.root / "tests" / "elsewhere")),
    ("check_repository_rooms", "no parity values", lambda h: _unlink(h.root / "tests" / "parity" / h.name / "values.json")),
    ("check_repository_rooms", "no bench", lambda h: shutil.rmtree(h.root / "bench")),
    ("check_repository_rooms", "no example", lambda h: shutil.rmtree(h.root / "examples")),
    ("check_guide_page", "no page", lambda h: _unlink(h.guide)),
    ("check_guide_page", "no limitations", lambda h: h.guide.write_text(h.guide.read_text().replace("## When not to use it", "## When"))),
    ("check_guide_page", "table by hand", lambda h: h.guide.write_text(re.sub("<!-- claims: .*", "| a | b |", h.guide.read_text()))),
]  # fmt: skip


def test_a_complete_method_passes(house):
    card = read_card(house.folder / "card.toml", house.name)
    for name, check in checks_for_method(card, house.root):
        try:
            check()
        except unittest.SkipTest as skip:
            pytest.fail(f"{name} was skipped: {skip}")


@pytest.mark.parametrize(("name", "fault", "damage"), FAULTS, ids=[f"{n}-{f}" for n, f, _ in FAULTS])
def test_check_catches_its_fault(house, name, fault, damage):
    damage(house)
    with pytest.raises((AssertionError, AttributeError, ValueError)):
        house.check(name)


def test_every_check_has_a_fault():
    assert {name for name, _, _ in FAULTS} == {check.__name__ for check in CHECKS}


def test_check_method_names_every_missing_room(house):
    shutil.rmtree(house.root / "bench")
    house.guide.unlink()
    card = read_card(house.folder / "card.toml", house.name)
    with pytest.raises(AssertionError) as caught:
        check_method(card, house.root)
    assert f"bench_{house.name}.py" in str(caught.value)
    assert "check_guide_page" in str(caught.value)
