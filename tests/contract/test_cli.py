"""The command line: what it costs to start, what it says, how it ends."""

import pytest

from assay._core.registry import cards
from assay.testing import run_cli

# CPU seconds. The limits are the design's; the best of five runs is taken, because a shared machine only ever adds.
IMPORT_BUDGET = 0.150
LIST_BUDGET = 0.400
# `assay claims list` imports pydantic and every claims.py; 0.4 s on an idle core, half as much again on a busy machine,
# where shared caches and hyper-threads slow even CPU time (0.43 s was measured at a load of five per core).
CLAIMS_BUDGET = 0.400 * 1.5
RUNS = 5


def _best(child, run):
    results = [run() for _ in range(RUNS)]
    assert all(r.code == 0 for r in results), results[0].err
    return min(r.cpu for r in results)


def test_import_is_cheap(child):
    import sys

    cpu = _best(child, lambda: child([sys.executable, "-c", "import assay"]))
    assert cpu < IMPORT_BUDGET, f"import assay takes {cpu * 1000:.0f} ms CPU"


def test_list_is_cheap(child):
    cpu = _best(child, lambda: child.assay("list"))
    assert cpu < LIST_BUDGET, f"assay list takes {cpu * 1000:.0f} ms CPU"


def test_claims_list_is_cheap(child):
    cpu = _best(child, lambda: child.assay("claims", "list"))
    assert cpu < CLAIMS_BUDGET, f"assay claims list takes {cpu * 1000:.0f} ms CPU"


COMMANDS = [("--help",), ("list",), ("show", "{slug}"), ("claims", "list"), ("claims", "--help"), ("data", "list")]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_global_commands_import_nothing_heavy(child, words):
    import sys

    slug = next(iter(cards()))
    words = [w.format(slug=slug) for w in words]
    code = (
        "import sys\nfrom assay.cli import main\ncode = 1\n"
        "try:\n    code = main(sys.argv[1:])\n"
        "except SystemExit as stop:\n    code = stop.code or 0\n"
        "print('HEAVY', *[m for m in ('torch', 'sklearn', 'pandas', 'matplotlib.pyplot') if m in sys.modules])\n"
        "sys.exit(code)"
    )
    result = child([sys.executable, "-c", code, *words])
    assert result.code == 0, result.err
    heavy = result.out.rsplit("HEAVY", 1)[1].split()
    assert not heavy, f"assay {' '.join(words)} imports {heavy}"


def test_list_names_every_method():
    result = run_cli("list")
    assert result.code == 0
    for card in cards().values():
        line = next((line for line in result.out.splitlines() if line.startswith(f"{card.slug} ")), None)
        assert line is not None, f"assay list does not show {card.slug}"
        assert card.field in line
        assert card.kind in line


def test_list_filters():
    for card in cards().values():
        by_field = run_cli("list", "--field", card.field).out
        assert card.slug in by_field
        for other in cards().values():
            if other.field != card.field:
                assert f"\n{other.slug} " not in by_field
    assert run_cli("list", "--field", "alchemy").code == 2


def test_show(card):
    result = run_cli("show", card.slug)
    assert result.code == 0
    for text in (card.title, card.slug, card.paper.title.split()[0], *card.commands):
        assert text in result.out
    for alias in card.aliases:
        assert run_cli("show", alias).out == result.out


def test_claims_list(card):
    result = run_cli("claims", "list", card.slug)
    assert result.code == 0
    assert f"{card.slug}/" in result.out


def test_group_help(card):
    result = run_cli(card.slug, "--help")
    assert result.code == 0, result.err
    for verb in card.commands:
        assert verb in result.out


def test_verb_help(card):
    """Help of a verb shows its own parameters with their text, and the options that every verb has; never `run`."""
    import inspect
    import re

    from assay.cli._verbs import load

    for verb, target in card.commands.items():
        result = run_cli(card.slug, verb, "--help")
        assert result.code == 0, result.err
        for option in ("--out", "--seed", "--device", "--config", "--resume", "--force", "--track"):
            assert option in result.out, f"assay {card.slug} {verb} --help does not show {option}"
        for name in inspect.signature(load(target)).parameters:
            shown = re.search(rf"--{name.replace('_', '-')}\b|\b{name.upper().replace('_', '[-_]')}\b", result.out)
            assert (shown is not None) == (name != "run"), f"assay {card.slug} {verb} --help: {name}"


@pytest.mark.parametrize("words", [["no-such-method"], ["show", "no-such-method"], ["list", "--no-such-option"]])
def test_mistakes_end_with_one_sentence(words):
    result = run_cli(*words)
    assert result.code == 2
    assert len(result.err.strip().splitlines()) == 1
    assert "Traceback" not in result.err


def test_unknown_verb_and_option(card):
    for words in ([card.slug, "no-such-verb"], [card.slug, next(iter(card.commands)), "--no-such-option", "1"]):
        result = run_cli(*words)
        assert result.code == 2, (words, result)
        assert len(result.err.strip().splitlines()) == 1, result.err


def test_misspelt_method_is_answered_with_the_closest(card):
    result = run_cli("show", card.slug[:-1] + "x")
    assert result.code == 2
    assert card.slug in result.err
