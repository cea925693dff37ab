"""README and documentation sources: generated tables are current, and every page is reachable."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _tool(*words, cwd=ROOT):
    tool = ROOT / "docs" / "tools" / "readme_tables.py"
    return subprocess.run([sys.executable, str(tool), *words], capture_output=True, text=True, cwd=cwd)


def test_readme_tables_are_current():
    done = _tool("--check")
    assert done.returncode == 0, done.stderr


def test_readme_names_every_method():
    from assay._core.registry import cards

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for card in cards().values():
        if card.folder.is_relative_to(ROOT / "src"):
            assert f"[{card.slug}](docs/guide/{card.field}/{card.folder.name}.md)" in text


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/index.md", "docs/guide/index.md"])
def test_links_lead_somewhere(page):
    """Relative links and pictures exist; pages that the documentation generates are known by their folder."""
    path = ROOT / page
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if re.match(r"[a-z]+://|mailto:", target) or target.split("/")[0] in ("_generated", "gallery"):
            continue
        assert (path.parent / target).exists(), f"{page} links to {target}"


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "tools"))
    import tables

    return tables


HEADER = (
    "claim,says,data,metric,unit,ours,comparator,verdict,claim_verdict,expect,effect,low,high,ratio,n_pairs,p,holm_p,"
    "rule,margin,seconds,tier,cores,date"
)


def _row(claim, comparator, verdict, tier):
    return (
        f'{claim},"a | b",none,m,ratio,ours,{comparator},{verdict},{verdict},supported,1.5,1.2,1.8,,5,,,'
        f"Ratio(),1,60,{tier},2,2025-01-01"
    )


def test_results_prefer_the_longer_tier(tables, tmp_path):
    for tier, verdict in (("quick", "supported"), ("standard", "not supported")):
        (tmp_path / f"claims-{tier}-cpu2.csv").write_text(f"{HEADER}\n{_row('x/y', 'z', verdict, tier)}\n")
    (row,) = tables.read_results(tmp_path)["x/y"]
    assert row["tier"] == "standard"
    assert row["claim_verdict"] == "not supported"


def test_claims_table_shows_what_goes_against_the_paper(tables, tmp_path):
    card = tables.own_cards()[0]
    first, *rest = tables.claims_of(card)
    text = f"{HEADER}\n{_row(first.id, 'peer', 'not supported', 'standard')}\n"
    (tmp_path / "claims-standard-cpu2.csv").write_text(text)
    table = tables.claims_table(card, tmp_path)
    lines = table.splitlines()
    assert len(lines) == 2 + 1 + len(rest)
    assert "✗ not supported" in lines[2]
    assert "against peer: 1.5 [1.2, 1.8] ratio (standard, 5 pairs)" in lines[2]
    assert all("not run yet" in line for line in lines[3:])
    columns = lines[0].count("|")
    assert all(len(re.findall(r"(?<!\\)\|", line)) == columns for line in lines), "a cell broke the table"
    summary = tables.results_summary(lambda c: c.slug, tmp_path)
    row = next(line for line in summary.splitlines() if line.startswith(f"| [{card.slug}]"))
    assert f"| {1 + len(rest)} | 0 | 1 | 0 | 0 | standard, 2 cores, 1 min |" in row


def test_old_tables_are_noticed(tables, tmp_path, monkeypatch):
    import readme_tables

    (tmp_path / "README.md").write_text(
        "<!-- methods:begin -->\nold\n<!-- methods:end -->\n<!-- results:begin -->\n<!-- results:end -->\n"
    )
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    monkeypatch.setattr(tables, "own_cards", list)
    assert readme_tables.main(["--check"]) == 1
    assert readme_tables.main([]) == 0
    assert readme_tables.main(["--check"]) == 0
    assert "old" not in (tmp_path / "README.md").read_text()
    (tmp_path / "README.md").write_text("no markers")
    with pytest.raises(SystemExit, match="exactly once"):
        readme_tables.main([])
