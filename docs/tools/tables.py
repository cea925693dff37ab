"""Tables of methods, claims and results, made from the cards and from results/*.csv: the only source of both.

Used by the documentation (docs/conf.py) and by the README (readme_tables.py).
"""

from __future__ import annotations

import csv
import importlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from assay._core.registry import Card, cards

ROOT = Path(__file__).parents[2]
# What is shown where a claim was run at several tiers: the tier that decides first.
TIERS = ("full", "standard", "quick")
MARKS = {"supported": "✓ supported", "not supported": "✗ not supported", "inconclusive": "~ inconclusive"}


def markdown(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A pipe table; pipes and line ends inside cells are escaped."""

    def line(cells: Iterable[object]) -> str:
        return "| " + " | ".join(" ".join(str(c).split()).replace("|", "\\|") for c in cells) + " |"

    header = list(header)
    return "\n".join([line(header), "|" + " --- |" * len(header), *(line(row) for row in rows)])


def own_cards() -> list[Card]:
    """Cards of this repository: what a reader's environment has besides must not get into its pages."""
    return [c for c in cards().values() if c.folder.is_relative_to(ROOT / "src")]


def paper_link(card: Card) -> str:
    """The paper's title, linked to arXiv or its page."""
    url = f"https://arxiv.org/abs/{card.paper.arxiv}" if card.paper.arxiv else card.paper.url
    return f"[{card.paper.title}]({url})" if url else card.paper.title


def methods_table(link: Callable[[Card], str]) -> str:
    """One row per method; `link` gives the address of its guide page."""
    rows = [
        (f"[{c.slug}]({link(c)})", c.field, c.kind, c.summary, f"{paper_link(c)}, {c.paper.venue}", c.status)
        for c in own_cards()
    ]
    return markdown(("method", "field", "kind", "what it does", "paper", "status"), rows)


def read_results(folder: Path) -> dict[str, list[dict[str, str]]]:
    """Claim -> its rows (one per comparator) from the deciding tier, the newest file of that tier first."""
    found: dict[str, tuple[tuple[int, str], list[dict[str, str]]]] = {}
    for path in sorted(folder.glob("claims-*.csv")):
        with path.open(newline="", encoding="utf-8") as handle:
            rows = list(csv.DictReader(handle))
        for claim in dict.fromkeys(row["claim"] for row in rows):
            mine = [row for row in rows if row["claim"] == claim]
            tier = mine[0]["tier"]
            rank = (len(TIERS) - TIERS.index(tier), mine[0].get("date", ""))
            if claim not in found or rank > found[claim][0]:
                found[claim] = rank, mine
    return {claim: rows for claim, (_, rows) in found.items()}


def claims_of(card: Card) -> list[Any]:
    """The claims that a method declares; importing them imports no experiment."""
    return list(importlib.import_module(f"{card.module}.claims").CLAIMS)


def _effect(row: Mapping[str, str], claim: Any) -> str:
    if not row["effect"]:
        return "no figure"
    unit = f" {row['unit']}" if row["unit"] not in ("", "1") else ""
    interval = f" [{_short(row['low'])}, {_short(row['high'])}]" if row["low"] and row["high"] else ""
    against = f"against {row['comparator']}: " if row["comparator"] else ""
    return f"{against}{_short(row['effect'])}{interval}{unit}"


def _short(text: str) -> str:
    return f"{float(text):.3g}"


def _verdict(rows: list[dict[str, str]], claim: Any) -> str:
    verdict = rows[0].get("claim_verdict") or rows[0]["verdict"]
    text = MARKS.get(verdict, verdict)
    if verdict == claim.expect and claim.expect_reason:
        text += f": {claim.expect_reason}"
    return text


def claims_table(card: Card, results: Path = ROOT / "results") -> str:
    """One row per claim of a method: sentence, the paper's number, rule, what was measured, verdict, caveat."""
    stored = read_results(results)
    rows = []
    for claim in claims_of(card):
        mine = stored.get(claim.id)
        if mine is None:
            measured, verdict = "not run yet", ""
        else:
            pairs = mine[0]["n_pairs"]
            count = f" ({mine[0]['tier']}{', ' + pairs + ' pairs' if pairs else ''})"
            measured = "; ".join(_effect(row, claim) for row in mine) + count
            verdict = _verdict(mine, claim)
        name = claim.id.partition("/")[2]
        rows.append(
            (f"**{name}**: {claim.says}", claim.paper or "–", f"`{claim.test}`", measured, verdict, claim.caveat)
        )
    return markdown(
        (
            "claim",
            "the paper's number",
            "rule, fixed before running",
            "measured here",
            "verdict",
            "what this size cannot show",
        ),
        rows,
    )


def results_summary(link: Callable[[Card], str], results: Path = ROOT / "results") -> str:
    """One row per method: how many claims have which verdict, at which tier, on what."""
    stored = read_results(results)
    rows = []
    for card in own_cards():
        ids = [claim.id for claim in claims_of(card)]
        mine = [stored[i] for i in ids if i in stored]
        count = {name: sum((r[0].get("claim_verdict") or r[0]["verdict"]) == name for r in mine) for name in MARKS}
        tiers = sorted({r[0]["tier"] for r in mine}, key=TIERS.index)
        cores = sorted({r[0]["cores"] for r in mine})
        seconds = sum(float(r[0]["seconds"] or 0) for r in mine)
        machine = f"{' and '.join(tiers)}, {'/'.join(cores)} cores, {seconds / 60:.0f} min" if mine else "not run yet"
        rows.append(
            (f"[{card.slug}]({link(card)})", len(ids), *count.values(), len(mine) - sum(count.values()), machine)
        )
    return markdown(("method", "claims", "supported", "not supported", "inconclusive", "other", "run"), rows)
