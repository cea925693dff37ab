"""A toy method in a package of its own, so that runs can be interrupted, killed and replayed without waiting for a real one."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

# A background job of a shell ignores SIGINT and hands that on to its children: a test of Ctrl-C must undo it.
LISTENING = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from assay.cli import main; sys.exit(main())"
)

CARD = """
slug = "toy"
title = "Toy"
summary = "Counts slowly."
kind = "calculator"
field = "learning"
brings = "a table"
yields = "a count"
limitations = ["It is a toy."]
demo = "assay_toy._job:demo"
aliases = ["old-toy"]
[paper]
title = "On toys"
authors = ["A. Uthor"]
[commands]
fit = "assay_toy._job:fit"
merge = "assay_toy._job:merge"
"""

JOB = '''
from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from assay._core.run import Run


def demo(*, run: Run) -> None:
    """Demo."""
    run.result(answer=42)


def fit(table: Path, *, steps: int = 5, pause: float = 0.0, mode: Literal["sum", "mean"] = "sum",
        fail: str | None = None, run: Run) -> None:
    """Count.

    Parameters
    ----------
    table
        The table.
    steps
        Number of steps.
    pause
        Seconds between steps.
    mode
        What to do.
    fail
        Kind of failure to provoke.
    """
    import numpy as np
    from assay._core.files import read_table
    from assay._core.seeds import as_rng

    frame = read_table(table, required=["x", "y"], what="toy table")
    rng = as_rng(run.seed)
    noise = rng.normal(size=steps)
    kept = run.load_checkpoint("state")
    total, start = (float(kept[0]["total"]), kept[1]["step"]) if kept else (0.0, 0)
    run.log(f"from step {start}")
    for step in run.progress(range(start, steps)):
        total += float(noise[step]) * float(frame["x"].sum())
        run.metric(step, total=total)
        run.save_checkpoint("state", {"total": np.array(total)}, {"step": step + 1})
        if fail == "die" and step == 2 and not kept:
            os.kill(os.getpid(), 9)
        if fail == "raise" and step == 1:
            raise RuntimeError("something broke")
        if fail == "interrupt" and step == 2 and not kept:
            raise KeyboardInterrupt
        if fail == "half" and step == 1:
            with run.artefact("half.bin") as path:
                path.write_bytes(b"half")
                raise RuntimeError("died while writing")
        if fail == "full":
            with run.artefact("big.bin") as path:
                path.write_bytes(bytes(64 << 20))
        time.sleep(pause)
    run.table("out", frame, caption="<b>the table</b>")
    run.warn("a <script>alert(1)</script> note")
    run.result(total=total, mode=mode)


def merge(*files: Path, every: int = 1, run: Run) -> None:
    """Merge several files.

    Parameters
    ----------
    files
        The files.
    every
        A number.
    """
    run.result(count=len(files), every=every)
'''


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    """Return a function that runs the command line in a process that also sees the toy method."""
    site = tmp_path_factory.mktemp("site")
    package = site / "assay_toy"
    package.mkdir()
    (package / "__init__.py").write_text('"""Toy."""\n')
    (package / "card.toml").write_text(CARD)
    (package / "_job.py").write_text(textwrap.dedent(JOB))
    info = site / "assay_toy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: assay-toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[assay.methods]\ntoy = assay_toy\n")
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}

    def run(*args, cwd=None, wait=True, **extra):
        command = [sys.executable, "-c", LISTENING, *map(str, args)]
        env = environment | {k: str(v) for k, v in extra.items()}
        if not wait:
            return subprocess.Popen(
                command, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=120)

    run.site = site
    return run


@pytest.fixture
def table(tmp_path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text("x,y\n1,2\n3,4\n")
    return path
