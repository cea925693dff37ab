"""Every demo runs in smoke size and leaves what a run promises."""

import json
import re
import tomllib

import pytest

from assay._core.registry import cards

# CPU seconds of a demo under ASSAY_SMOKE=1, with the interpreter and all imports; factor 2 for slow machines.
DEMO_BUDGET = 10.0
SLACK = 2.0


@pytest.fixture(scope="module")
def demos(tmp_path_factory, run_child):
    """Slug -> (finished child, output folder); each demo runs once for all tests of this file."""
    import sys

    done = {}

    def get(slug):
        if slug not in done:
            folder = tmp_path_factory.mktemp(slug)
            out = folder / "out"
            args = [sys.executable, "-c", "import sys; from assay.cli import main; sys.exit(main())"]
            child = run_child(
                [*args, "demo", slug, "--out", str(out)], folder, ASSAY_SMOKE="1", OMP_NUM_THREADS="1", MPLBACKEND="Agg"
            )
            done[slug] = child, out
        return done[slug]

    return get


def test_demo_ends_well_and_says_where_the_report_is(card, demos):
    child, out = demos(card.slug)
    assert child.code == 0, child.err[-2000:]
    assert str((out / "report.html").resolve()) in child.out.splitlines()[-1]


def test_demo_is_quick(card, demos):
    child, _ = demos(card.slug)
    assert child.cpu < DEMO_BUDGET * SLACK, f"{child.cpu:.1f} s CPU in smoke size; the budget is {DEMO_BUDGET:.0f} s"


def test_demo_leaves_the_promised_files(card, demos):
    _, out = demos(card.slug)
    for name in ("config.toml", "result.json", "history.jsonl", "env.json", "log.txt", "report.html"):
        assert (out / name).is_file(), f"{name} is missing"
    assert [p for p in (out / "artefacts").rglob("*") if p.is_file()], "no artefact"
    figures = list((out / "figures").iterdir())
    assert figures, "no figure"
    assert {p.suffix for p in figures} <= {".svg", ".png"}


def test_demo_leaves_nothing_else(card, demos):
    _, out = demos(card.slug)
    known = {
        "config.toml",
        "result.json",
        "history.jsonl",
        "env.json",
        "log.txt",
        "report.html",
        "artefacts",
        "figures",
    }
    assert {p.name for p in out.iterdir()} <= known
    temporary = [p.name for p in out.rglob("*") if p.name.startswith(".") or p.suffix in (".tmp", ".part", ".pkl")]
    assert not temporary
    empty = [
        str(p.relative_to(out))
        for p in out.rglob("*")
        if p.is_file() and not p.stat().st_size and p.name != "history.jsonl"
    ]
    assert not empty, f"empty files: {empty}"


def test_demo_numbers(card, demos):
    _, out = demos(card.slug)
    stored = json.loads((out / "result.json").read_text(encoding="utf-8"))
    assert stored["command"] == f"demo {card.slug}"
    assert stored["seed"] == 0
    assert stored["result"], "the demo reports no number"
    assert any(isinstance(v, (int, float)) for v in stored["result"].values())
    for line in (out / "history.jsonl").read_text(encoding="utf-8").splitlines():
        assert "step" in json.loads(line)
    config = tomllib.loads((out / "config.toml").read_text(encoding="utf-8"))
    assert config["command"] == f"demo {card.slug}"
    assert json.loads((out / "env.json").read_text(encoding="utf-8"))["packages"]["numpy"]


def test_demo_says_how_to_get_the_same_numbers_with_a_command_that_exists(card, demos):
    _, out = demos(card.slug)
    line = f"assay demo {card.slug} --seed 0 --device cpu --out NEW_FOLDER"
    assert line in (out / "report.html").read_text(encoding="utf-8")
    assert line in (out / "config.toml").read_text(encoding="utf-8")


def test_demo_report_is_one_readable_file(card, demos):
    _, out = demos(card.slug)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert len(page) < 10 * 2**20, "the page is too large to mail"
    loaded = re.findall(r"<(?:img|script|link|iframe|image)\b[^>]*?(?:src|href)=[\"'](?!data:|#)([^\"']+)", page)
    assert not loaded, f"the page loads {loaded[:3]}"
    assert "<svg" in page or "data:image/" in page, "no figure is in the page"
    assert "<table" in page, "no table is in the page"
    assert not re.search(r"\{\{|\{%", page), "a piece of template was left in the page"
    for text in ("NaN", "&lt;Figure", "object at 0x"):
        assert text not in re.sub(r"<svg.*?</svg>|data:[^\"']+", "", page, flags=re.DOTALL), f"the page shows {text!r}"


def test_every_method_was_seen(demos):
    assert set(cards())
