"""The commands under ``assay claims``: ordinary functions whose signature and docstring are the command line."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console

    from ._rules import Comparison, Verdict
    from ._store import ClaimsRun

MARKS = {
    "supported": ("✓", "green"),
    "direction holds": ("✓", "green"),
    "not supported": ("✗", "red"),
    "direction does not hold": ("✗", "red"),
    "error": ("!", "bold red"),
    "skipped": ("–", "dim"),
    "ran (smoke)": ("·", "cyan"),
}


def list_(method: str = "*") -> None:
    """List the claims: id, rule, tiers and the sentence.

    Parameters
    ----------
    method : str
        Only of this method (slug or pattern).
    """
    from ._plan import load

    methods = load(method)
    if not methods:
        print("No method declares a claim.")
        return
    claims = [claim for found in methods for claim in found.claims]
    width = max(len(claim.id) for claim in claims)
    for claim in claims:
        tiers = "".join(name[0] if name in claim.tiers else "-" for name in ("quick", "standard", "full"))
        print(f"{claim.id:<{width}}  {tiers}  {claim.says}")
    counts = f"{len(claims)} claim{'s'[: len(claims) != 1]} of {len(methods)} method{'s'[: len(methods) != 1]}"
    print(f"\n{counts}; q quick, s standard, f full; `assay claims show ID` tells more.")


def show(claim: str) -> None:
    """Show a claim: the sentence, how it is tested, and with what.

    Parameters
    ----------
    claim : str
        Its id, or a pattern.
    """
    from ._plan import load

    for method in load(claim):
        for found in method.claims:
            rows: list[tuple[str, str]] = [
                ("says", found.says),
                ("where", found.where),
                ("paper", found.paper),
                (
                    "metric",
                    f"{found.metric} [{found.unit or '1'}], {found.better} is better".replace(
                        "equal is better", "equal"
                    ),
                ),
                ("ours", found.ours),
                (
                    "against",
                    f"{', '.join(found.against)} ({found.mode})" if found.against else "nothing: our arm alone",
                ),
                ("rule", f"{found.test}"),
                ("margin because", found.margin_reason),
                ("pairs", ", ".join(found.pairs)),
                ("data", ", ".join(found.data)),
                (
                    "own data",
                    f"{' or '.join(found.accepts.tasks)}, from {found.accepts.min_rows} rows" if found.accepts else "",
                ),
                ("needs", ", ".join(found.needs)),
                ("caveat", found.caveat),
                ("expected", f"{found.expect}: {found.expect_reason}" if found.expect_reason else ""),
            ]
            for level, tier in found.tiers.items():
                size = ", ".join(f"{k}={v}" for k, v in tier.size.items())
                count = f"{tier.seeds} seed{'s'[: tier.seeds != 1]} from {found.first_seed}"
                rows.append((level, f"{count}, {tier.limit_s:g} s per cell{', ' + size if size else ''}"))
            print(found.id)
            for name, text in rows:
                if text:
                    print(f"  {name:<15} {text}")
            print()


def run(
    claims: list[str],
    /,
    *,
    tier: Literal["quick", "standard", "full"] = "standard",
    seeds: int | None = None,
    data: list[str] | None = None,
    target: str | None = None,
    split: str | None = None,
    group: str | None = None,
    jobs: int | None = None,
    threads: int = 1,
    backend: Literal["loky", "ray", "dask"] = "loky",
    out: Path | None = None,
    resume: bool = False,
    fresh: bool = False,
    device: str = "cpu",
    limit: float | None = None,
    report: bool = True,
    commit_results: bool = False,
    results: Path = Path("results"),
) -> None:
    """Run claims and print the verdicts.

    Parameters
    ----------
    claims : list of str
        Methods, claim ids or patterns such as 'semirandom-cut/*'.
    tier : str
        Size of the experiments.
    seeds : int
        Number of seeds instead of the tier's (counted up from the claim's first, mostly 1000).
    data : list of str
        Names of the claims' own sources ('all': every one), or your own file or folder.
    target : str
        Column to predict in your table.
    split : str
        'random:0.8', 'file' (a column named split), 'column:NAME' or 'file:PATH'.
    group : str
        Column of your table whose values a split must not cut.
    jobs : int
        Workers (default: physical cores).
    threads : int
        Threads of each worker.
    backend : str
        Where workers live.
    out : Path
        Folder of the run (default: runs/DATE-ID); an existing run is continued.
    resume : bool
        Without --out: continue the newest run of the same request under runs/.
    fresh : bool
        Rerun cells whose results are there.
    device : str
        cpu, cuda, cuda:0 or auto.
    limit : float
        Seconds after which a cell is stopped, instead of the tier's.
    report : bool
        Write report.html.
    commit_results : bool
        Merge the verdicts into the committed table under --results.
    results : Path
        Folder of the committed tables.
    """
    from . import _execute

    # Only our own command line is shown in the report; what runs us from Python gets the equivalent one.
    ours = Path(sys.argv[0]).name in ("assay", "__main__.py")
    command = shlex.join(["assay", *sys.argv[1:]]) if ours else None
    try:
        done = _execute.run(
            claims,
            tier=tier,
            seeds=seeds,
            data=data[0] if data and len(data) == 1 else data,
            target=target,
            split=split,
            group=group,
            jobs=jobs,
            threads=threads,
            backend=backend,
            out=out,
            resume=resume,
            fresh=fresh,
            device=device,
            limit_s=limit,
            command=command,
        )
    except KeyboardInterrupt:
        where = f"--out {out}" if out else "--resume"
        print(f"\nInterrupted; the finished cells are kept. The same command with {where} goes on.", file=sys.stderr)
        raise
    print_verdicts(done)
    if report:
        print(f"report: {done.report()}")
    else:
        print(f"run: {done.folder}")
    if commit_results:
        print(f"table: {done.export(results)}")
    if done.failed:
        raise SystemExit(1)


def report(run: Path, /, *, out: Path | None = None) -> None:
    """Write the report of a run again and print its verdicts.

    Parameters
    ----------
    run : Path
        Folder of the run.
    out : Path
        The HTML file (default: report.html in the folder).
    """
    from ._store import load_run

    done = load_run(run)
    done.save()
    print_verdicts(done)
    print(f"report: {done.report(out)}")


def export(run: Path, /, *, results: Path = Path("results"), hardware: str | None = None) -> None:
    """Merge the verdicts of a run into the committed table of its tier and hardware.

    Parameters
    ----------
    run : Path
        Folder of the run.
    results : Path
        Folder of the committed tables.
    hardware : str
        Name of the machine in the file's name (default: cpu and the number of cores).
    """
    from ._store import load_run

    print(f"table: {load_run(run).export(results, hardware)}")


def diff(a: Path, b: Path, /) -> None:
    """Compare two runs, or a run with a committed table: which verdicts changed, and which effects moved.

    Parameters
    ----------
    a : Path
        The older run's folder, or a CSV table.
    b : Path
        The newer.
    """
    from rich.table import Table

    rows = compare(a, b)
    changed = [row for row in rows if row["change"]]
    if not changed:
        print(f"No difference in {len(rows)} comparisons.")
        return
    table = Table(box=None, pad_edge=False)
    for name in ("claim", "against", "before", "after", "effect before", "effect after", "change"):
        table.add_column(name, overflow="fold")
    for row in changed:
        style = "bold" if row["change"] == "verdict" else None
        table.add_row(
            *(str(row[k]) for k in ("claim", "comparator", "before", "after", "from", "to", "change")), style=style
        )
    _console().print(table)
    print(f"{len(changed)} of {len(rows)} comparisons differ.")


def compare(a: Path, b: Path) -> list[dict[str, str]]:
    """Return one row per claim and comparator of either side, `change` saying what differs ("" where nothing does)."""
    from ._store import load_run, read_rows

    sides = []
    for path in (a, b):
        rows = load_run(path).rows() if path.is_dir() else read_rows(path)
        sides.append({(row["claim"], row["comparator"]): row for row in rows})
    found = []
    for key in sorted(set(sides[0]) | set(sides[1])):
        before, after = sides[0].get(key), sides[1].get(key)
        row = {"claim": key[0], "comparator": key[1], "change": ""}
        for side, (verdict, effect) in ((before, ("before", "from")), (after, ("after", "to"))):
            row[verdict] = "" if side is None else str(side["verdict"])
            row[effect] = "" if side is None else _effect(side)
        if before is None or after is None:
            row["change"] = "new" if before is None else "gone"
        elif row["before"] != row["after"]:
            row["change"] = "verdict"
        elif row["from"] != row["to"]:
            row["change"] = "effect" if _outside(before, after) else ""
        found.append(row)
    return found


def _number(value: object) -> float | None:
    return None if value in (None, "") else float(value)  # type: ignore[arg-type]


def _effect(row: dict[str, object]) -> str:
    effect, low, high = (_number(row.get(k)) for k in ("effect", "low", "high"))
    if effect is None:
        return ""
    return f"{effect:.3g}" + (f" [{low:.3g}, {high:.3g}]" if low is not None and high is not None else "")


def _outside(before: dict[str, object], after: dict[str, object]) -> bool:
    """Whether the new effect lies outside the old interval: less is noise between machines."""
    effect, low, high = _number(after.get("effect")), _number(before.get("low")), _number(before.get("high"))
    if effect is None or low is None or high is None:
        return _effect(before) != _effect(after)
    slack = 1e-5 * max(abs(low), abs(high))  # a CSV keeps six digits
    return not low - slack <= effect <= high + slack


def print_verdicts(done: ClaimsRun) -> None:
    """Print one row per claim: mark, id, effect with unit and interval, pairs, seconds, verdict."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name, justify in (
        ("", "left"),
        ("claim", "left"),
        ("against", "left"),
        ("effect [95 %]", "left"),
        ("n", "right"),
    ):
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    table.add_column("s", justify="right")
    table.add_column("verdict", overflow="fold")
    for claim, verdict in zip(done.claims, done.verdicts, strict=True):
        mark, style = MARKS.get(verdict.verdict, ("?", "yellow"))
        rows: list[Comparison | None] = list(verdict.comparisons) or [None]
        for i, c in enumerate(rows):
            first = i == 0
            effect = "" if c is None else _effect(vars(c))
            unit = (
                "x" if claim.test.name == "Ratio" else "" if claim.test.name in ("Slope", "Calibrated") else claim.unit
            )
            table.add_row(
                f"[{style}]{mark}[/]" if first else "",
                claim.id if first else "",
                "" if c is None else c.comparator,
                escape(f"{effect} {unit}".strip()) if effect else "",
                "" if c is None else str(c.n_pairs),
                f"{done.seconds(claim.id):.1f}" if first else "",
                _words(verdict) if first else f"[dim]{c.verdict if c else ''}[/]",
            )
    _console().print(table)
    for claim, verdict in zip(done.claims, done.verdicts, strict=True):
        if verdict.reason and verdict.verdict not in ("supported", "direction holds"):
            print(f"{claim.id}: {verdict.reason}")


def _console() -> Console:
    from rich.console import Console

    # In a file or a pipe there is no width to fit into: do not break what somebody will grep.
    return Console(width=None if sys.stdout.isatty() else 180)


def _words(verdict: Verdict) -> str:
    text = f"{verdict.verdict} {verdict.scope}".strip()
    expected = verdict.as_expected
    return text + ("" if expected is not False else f" (expected: {verdict.expect})")
