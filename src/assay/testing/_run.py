"""A run without the command line, the command line without a shell, and data outside the repository."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._core.run import Run


class FakeRun(Run):
    """A real run for tests of jobs: open from the start, silent, without a lock, in a folder that may hold inputs.

    Parameters
    ----------
    path : path
        The output folder, usually ``tmp_path``.
    seed : int, default 0
        What the job sees as ``run.seed``.
    resume : bool, default False
        Keep the checkpoints of an earlier FakeRun in the same folder.
    **options
        Further arguments of `assay._core.run.Run`.

    Notes
    -----
    1. Files of artefacts, tables and figures are there as soon as the job wrote them; ``result.json`` and
       ``report.html`` are written when the run ends: use it as a context manager, or call ``finish()``.

    Examples
    --------
    >>> import tempfile
    >>> from assay.testing import FakeRun
    >>> run = FakeRun(tempfile.mkdtemp(), seed=3)
    >>> run.result(answer=run.seed)
    >>> run.results
    {'answer': 3}
    >>> run.finish()
    >>> (run.out / "report.html").exists()
    True
    """

    def __init__(self, path: str | Path, seed: int = 0, *, resume: bool = False, **options: Any) -> None:
        options = {"command": "test", "verbose": False, **options}
        super().__init__(path, seed=seed, resume=resume, force=not resume, **options)
        self.open()

    def __enter__(self) -> FakeRun:
        return self

    def finish(self) -> None:
        """End the run well: writes ``result.json`` and ``report.html``."""
        self.close(None)

    def _take_lock(self) -> None:
        """No lock: a test may look at one folder with two runs."""


@dataclass(frozen=True)
class Result:
    """What a command did.

    Attributes
    ----------
    code : int
        Exit code.
    out, err : str
        Standard output and standard error.
    """

    code: int
    out: str
    err: str


def run_cli(*args: object, subprocess_: bool = False, cwd: str | Path | None = None, **env: str) -> Result:
    """Run ``assay ARGS...`` and return its exit code and output.

    Parameters
    ----------
    *args : object
        The words after ``assay``, turned into text.
    subprocess_ : bool, default False
        True starts a fresh interpreter (seconds, since torch is imported anew); False calls the entry point here.
    cwd : path, optional
        Working folder. Default: the present one.
    **env : str
        Environment variables for the command, restored afterwards.

    Returns
    -------
    Result
        ``code``, ``out``, ``err``.

    Examples
    --------
    >>> from assay.testing import run_cli
    >>> run_cli("show", "no-such-method").code
    2
    """
    words = [str(a) for a in args]
    if subprocess_:
        code = "import sys; from assay.cli import main; sys.exit(main())"
        done = subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=cwd, env={**os.environ, **env}
        )
        return Result(done.returncode, done.stdout, done.stderr)
    from ..cli import main

    out, err = io.StringIO(), io.StringIO()
    before = {name: os.environ.get(name) for name in env}
    os.environ.update(env)
    try:
        with (
            contextlib.chdir(cwd or "."),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                exit_code = main(words)
            except SystemExit as stop:
                exit_code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
    return Result(exit_code, out.getvalue(), err.getvalue())


def data_dir(slug: str) -> Path:
    """Return the folder of a method's data outside the repository, or skip the test.

    Parameters
    ----------
    slug : str
        The method, or another folder below ``$ASSAY_DATA_DIR``.

    Returns
    -------
    Path
        ``$ASSAY_DATA_DIR/<slug>``.

    Examples
    --------
    >>> import os, tempfile
    >>> from assay.testing import data_dir
    >>> root = tempfile.mkdtemp()
    >>> os.mkdir(f"{root}/dose-response")
    >>> old = os.environ.get("ASSAY_DATA_DIR", "")
    >>> os.environ["ASSAY_DATA_DIR"] = root
    >>> data_dir("dose-response").name
    'dose-response'
    >>> os.environ["ASSAY_DATA_DIR"] = old
    """
    import pytest

    root = os.environ.get("ASSAY_DATA_DIR")
    if not root:
        pytest.skip(f"ASSAY_DATA_DIR is not set: the data of {slug} are not in the repository")
    folder = Path(root) / slug
    if not folder.is_dir():
        pytest.skip(f"ASSAY_DATA_DIR holds no folder {slug}: its data are not in the repository")
    return folder
