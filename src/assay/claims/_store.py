"""What a run leaves on disk, and reading it back: one small JSON file per cell, so no locks and no database."""

from __future__ import annotations

import csv
import datetime
import io
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay._core.errors import AssayError, InputError
from assay._core.files import atomic_path, plain, read_json, write_json, write_text

from ._models import Claim
from ._plan import Plan, version
from ._rules import ERROR, SKIPPED, Comparison, Verdict, adjust, judge

if TYPE_CHECKING:
    import pandas as pd

# Thirty columns, in the order of the committed table.
COLUMNS = (
    *("claim", "says", "data", "metric", "unit", "ours", "comparator", "verdict", "claim_verdict", "expect"),
    *("effect", "low", "high", "ratio", "n_pairs", "p", "holm_p", "rule", "margin", "seconds", "tier"),
    *("commit", "assay", "python", "torch", "numpy", "scipy", "cpu", "cores", "date"),
)


def decode(value: Any) -> Any:
    """Undo the text that stands for NaN and infinities in JSON."""
    if isinstance(value, dict):
        return {k: decode(v) for k, v in value.items()}
    if isinstance(value, list):
        return [decode(v) for v in value]
    return float(value) if value in ("nan", "inf", "-inf") else value


# -------------------------------------------------------------------------------------------------------- environment


@cache
def cpu_model() -> str:
    """Return the processor's name."""
    try:
        with open("/proc/cpuinfo") as handle:
            for line in handle:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux: what the platform module knows has to do
    return platform.processor() or platform.machine()


@cache
def _gpu() -> str:
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""  # no driver, no GPU
    return done.stdout.strip().splitlines()[0] if done.stdout.strip() else ""


@cache
def git_state() -> tuple[str, bool]:
    """Return (commit, dirty) of the checkout that this package runs from, ("", False) for an installed one."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=here, capture_output=True, text=True, timeout=30, check=True
        ).stdout

    try:
        return git("rev-parse", "--short=12", "HEAD").strip(), bool(git("status", "--porcelain", "--", "..").strip())
    except (OSError, subprocess.SubprocessError):
        return "", False


def environment(threads: int, jobs: int, backend: str) -> dict[str, Any]:
    """Return what env.json holds."""
    commit, dirty = git_state()
    names = ["assay-ml", "numpy", "scipy", "scikit-learn", "torch", "pandas", "joblib", "pydantic", "ray", "numba"]
    return {
        "python": platform.python_version(),
        "packages": {name: version(name) for name in names if version(name)},
        "cpu": cpu_model(),
        "cores": os.cpu_count() or 1,
        "threads": threads,
        "jobs": jobs,
        "backend": backend,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpu": _gpu(),
        "os": platform.platform(),
        "commit": commit,
        "dirty": dirty,
    }


# ---------------------------------------------------------------------------------------------------------- the folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the run's folder; a second run into it is refused. The lock dies with the process, however it dies."""
    try:
        import fcntl
    except ImportError:  # not POSIX: two runs at once are then only safe, not refused, since every file is atomic
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ".lock"
    try:
        handle = path.open("a+")
    except OSError as error:
        raise AssayError(f"Cannot write into {folder}: {(error.strerror or str(error)).lower()}.") from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(f"Another run is writing into {folder}; wait for it or choose another --out.") from error
        yield


def cell_path(folder: Path, key: str) -> Path:
    return folder / "cells" / f"{key}.json"


def write_cell(folder: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    """Write a finished cell atomically, its pictures beside it; return it as a later read would."""
    kept = {k: v for k, v in record.items() if k != "pictures"}
    names = []
    for name, png in (record.get("pictures") or {}).items():
        safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).lstrip(".") or "picture"
        path = folder / "artefacts" / record["key"] / f"{safe}.png"
        with atomic_path(path) as temporary:
            temporary.write_bytes(png)
        names.append(path.name)
    kept["pictures"] = names
    write_json(cell_path(folder, record["key"]), kept)
    return decode(plain(kept))


def sweep(folder: Path) -> None:
    """Remove what a killed run left half-written; only under the lock, when nobody else is writing."""
    for path in (*folder.glob(".partial-*"), *folder.glob("*/.partial-*"), *folder.glob("artefacts/*/.partial-*")):
        path.unlink(missing_ok=True)


def read_cells(folder: Path, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the cells of these keys that are there."""
    return {key: decode(read_json(path)) for key in keys if (path := cell_path(folder, key)).is_file()}


# ------------------------------------------------------------------------------------------------------------- results


class ClaimsRun:
    """A run of claims: what was planned, what came out, and the verdicts.

    Parameters
    ----------
    folder : Path
        Where it is.
    plan : mapping
        The content of plan.json.
    records : mapping of str to dict
        The cells by key.
    env : mapping
        The content of env.json.
    """

    def __init__(
        self, folder: Path, plan: Mapping[str, Any], records: Mapping[str, dict[str, Any]], env: Mapping[str, Any]
    ):
        self.folder, self.plan, self.records, self.env = folder, plan, dict(records), env
        self.claims = [Claim.model_validate(p["claim"]) for p in plan["claims"]]
        self.verdicts = [self._judge(claim, p) for claim, p in zip(self.claims, plan["claims"], strict=True)]
        adjust(self.verdicts)

    def _judge(self, claim: Claim, planned: Mapping[str, Any]) -> Verdict:
        if planned["skipped"]:
            return Verdict(claim.id, planned["tier"], SKIPPED, planned["skipped"], claim.expect, list(planned["data"]))
        return judge(claim, planned["tier"], self.cells_of(claim.id), smoke=planned["smoke"])

    def cells_of(self, claim_id: str) -> list[dict[str, Any]]:
        """Return the cells of a claim; one that has not been run has the status "missing"."""
        keys = next(p["keys"] for p in self.plan["claims"] if p["claim"]["id"] == claim_id)
        planned = {c["key"]: c for c in self.plan["cells"]}
        return [
            self.records.get(key)
            or {
                **{k: planned[key][k] for k in ("key", "arm", "seed", "data", "user_data")},
                "status": "missing",
                "metrics": {},
            }
            for key in keys
        ]

    @property
    def tier(self) -> str:
        return str(self.plan["tier"])

    def verdict(self, claim_id: str) -> Verdict:
        """Return the verdict of one claim."""
        for verdict in self.verdicts:
            if verdict.claim == claim_id:
                return verdict
        raise InputError(f"This run has no claim {claim_id!r} (it has: {', '.join(v.claim for v in self.verdicts)}).")

    def seconds(self, claim_id: str) -> float:
        """Return the wall seconds of a claim's cells; cells that claims share count for each of them."""
        return float(sum(r.get("seconds", 0.0) for r in self.cells_of(claim_id)))

    @property
    def failed(self) -> list[Verdict]:
        """The claims that could not be judged because something in them failed."""
        return [v for v in self.verdicts if v.verdict == ERROR]

    def cells(self) -> pd.DataFrame:
        """Return every cell that was run as a table: its arguments, status, scalar metrics, time and memory."""
        import pandas as pd

        columns = ("slug", "experiment", "arm", "seed", "data", "status", "reason", "seconds", "cpu_seconds", "peak_mb")
        return pd.DataFrame(
            [
                {
                    **{c: r.get(c) for c in columns},
                    **{k: v for k, v in r["metrics"].items() if not isinstance(v, (list, dict))},
                }
                for c in self.plan["cells"]
                if (r := self.records.get(c["key"]))
            ]
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per claim and comparator, with the columns of the committed table."""
        packages = self.env["packages"]
        rows = []
        for claim, verdict in zip(self.claims, self.verdicts, strict=True):
            shared = {
                "claim": claim.id,
                "says": claim.says,
                "data": "+".join(verdict.data),
                "metric": claim.metric,
                "unit": claim.unit,
                "ours": claim.ours,
                "claim_verdict": verdict.verdict,
                "expect": claim.expect,
                "rule": str(claim.test),
                "seconds": self.seconds(claim.id),
                "tier": verdict.tier,
                "commit": self.env["commit"] + ("+" if self.env["dirty"] else ""),
                "assay": packages.get("assay-ml", ""),
                "python": self.env["python"],
                **{name: packages.get(name, "") for name in ("torch", "numpy", "scipy")},
                "cpu": self.env["cpu"],
                "cores": self.env["cores"],
                "date": self.plan["date"][:10],
            }
            blank = [Comparison(c, verdict.verdict, margin=claim.test.margin) for c in claim.against or [""]]
            for c in verdict.comparisons or blank:
                own = {k: getattr(c, k) for k in ("effect", "low", "high", "ratio", "n_pairs", "p", "holm_p", "margin")}
                rows.append({**shared, "comparator": c.comparator, "verdict": c.verdict, **own})
        return [{column: row[column] for column in COLUMNS} for row in rows]

    def to_frame(self) -> pd.DataFrame:
        """Return the verdicts as a table, one row per claim and comparator."""
        import pandas as pd

        return pd.DataFrame(self.rows(), columns=list(COLUMNS))

    def save(self) -> None:
        """Write verdicts.json (statistics only: the same cells give the same bytes) and verdicts.csv (with times)."""
        write_json(self.folder / "verdicts.json", {"tier": self.tier, "verdicts": [v.to_dict() for v in self.verdicts]})
        write_text(self.folder / "verdicts.csv", _csv(self.rows()))

    def report(self, path: str | Path | None = None) -> Path:
        """Write the report, one self-contained HTML file (default: report.html in the folder), and return its path."""
        from ._report import write_report

        return write_report(self, Path(path) if path is not None else self.folder / "report.html")

    def export(self, folder: str | Path = "results", hardware: str | None = None) -> Path:
        """Merge this run's rows into the committed table and return its path.

        Parameters
        ----------
        folder : path, default "results"
            Where ``claims-<tier>-<hardware>.csv`` is.
        hardware : str, optional
            Default: ``cpu<cores>``, or the GPU's name for a run on one.
        """
        if any(c["user_data"] for c in self.plan["cells"]):
            raise InputError(
                "Verdicts on your own data stay with their run; they do not belong in the committed table."
            )
        path = Path(folder) / f"claims-{self.tier}-{hardware or self.hardware()}.csv"
        mine = self.rows()
        fresh = {row["claim"] for row in mine}
        kept = [row for row in (read_rows(path) if path.is_file() else []) if row["claim"] not in fresh]
        write_text(path, _csv(sorted([*kept, *mine], key=lambda r: (r["claim"], r["comparator"]))))
        return path

    def hardware(self) -> str:
        """Return a slug for this machine: ``cpu2``, or the GPU's name where cells ran on one."""
        if any(str(c["device"]).startswith("cuda") for c in self.plan["cells"]) and self.env["gpu"]:
            return "-".join("".join(c if c.isalnum() else " " for c in self.env["gpu"].lower()).split())
        return f"cpu{self.env['cores']}"

    def __repr__(self) -> str:
        counts: dict[str, int] = {}
        for verdict in self.verdicts:
            counts[verdict.verdict] = counts.get(verdict.verdict, 0) + 1
        inside = ", ".join(f"{n} {name}" for name, n in sorted(counts.items()))
        return f"ClaimsRun({str(self.folder)!r}, {self.tier}: {inside})"


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    def text(value: Any) -> str:
        if value is None:
            return ""
        # Six digits: more would make the diff of two equal runs unreadable, and no interval is that precise.
        return f"{value:.6g}" if isinstance(value, float) else str(value)

    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([[text(row.get(column)) for column in COLUMNS] for row in rows])
    return stream.getvalue()


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read a committed table or a run's verdicts.csv."""
    from assay._core.files import open_text

    rows = list(csv.DictReader(open_text(path)))
    if not rows or not {"claim", "verdict", "comparator"} <= set(rows[0]):
        raise InputError(f"{path} is not a table of claims: it needs the columns claim, comparator and verdict.")
    return rows


def load_run(folder: str | Path) -> ClaimsRun:
    """Read a run back from its folder.

    Parameters
    ----------
    folder : path
        What ``--out`` named.

    Returns
    -------
    ClaimsRun
        With verdicts and cells as they are there, whether the run was finished or interrupted.

    Raises
    ------
    InputError
        If it is not the folder of a claims run.
    """
    folder = Path(folder)
    if not (folder / "plan.json").is_file():
        raise InputError(f"{folder} is not the folder of a claims run: it has no plan.json.")
    stored = read_json(folder / "plan.json")
    return ClaimsRun(
        folder, stored, read_cells(folder, (c["key"] for c in stored["cells"])), read_json(folder / "env.json")
    )


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def start(folder: Path, plan: Plan, env: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Write plan.json and env.json; return the plan as stored.

    Raises
    ------
    InputError
        If the folder holds something that is not a claims run.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder} is a file; name a folder.")
    described = {
        **plan.describe(),
        "date": now(),
        "command": request["command"],
        "request": dict(request),
        "commit": env["commit"],
        "dirty": env["dirty"],
        "executable": Path(sys.executable).name,
    }
    write_json(folder / "plan.json", described)
    write_json(folder / "env.json", env)
    return json.loads(json.dumps(plain(described)))
