"""The meta-test: every method has every room, and each room is in order."""

from pathlib import Path

import pytest

from assay._core.registry import KINDS as CARD_KINDS
from assay._core.registry import cards
from assay.testing import KINDS, checks_for_method
from assay.testing._method import CHECKS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("room", [check.__name__ for check in CHECKS])
def test_room(card, room, repository_of):
    dict(checks_for_method(card, repository_of(card)))[room]()


def test_there_are_methods():
    assert len(cards()) >= 3, "the registry finds fewer methods than the repository holds"


def test_every_folder_with_an_algorithm_has_a_card():
    """A method whose card.toml was forgotten would be invisible to all other tests."""
    fields = [p for p in (ROOT / "src" / "assay").iterdir() if p.is_dir() and not p.name.startswith("_")]
    known = {card.folder for card in cards().values()}
    methods = [
        p for field in fields for p in field.iterdir()
        if p.is_dir() and not p.name.startswith("_") and ((p / "_job.py").exists() or (p / "claims.py").exists())
    ]  # fmt: skip
    assert set(methods) <= known


def test_kinds_of_cards_and_checks_are_the_same_words():
    assert set(KINDS) <= set(CARD_KINDS)


def test_every_kind_has_its_test_file():
    """One file per kind lets xdist split them; a kind without a file would not be checked."""
    for kind in KINDS:
        path = ROOT / "tests" / "contract" / f"test_kind_{kind.replace(' ', '_')}.py"
        assert path.is_file(), f"tests/contract/{path.name} is missing"
        assert f'KIND = "{kind}"' in path.read_text(encoding="utf-8")
