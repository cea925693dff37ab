"""A run: the only thing a job gets from the core.

A run owns one output folder. It writes every file to a temporary name and renames it, keeps checkpoints until it is
done, and ends with one self-contained page. A job never opens a file of its own below the folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._version import __version__
from .errors import AssayError, InputError
from .files import atomic_path, load_tensors, plain, save_tensors, sha256_file, write_json, write_text
from .progress import track as progress_bar

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.figure import Figure

    from .tracking import Tracker

# All that a run may write; --force removes exactly these and nothing that a user put beside them.
_FILES = ("config.toml", "result.json", "history.jsonl", "env.json", "log.txt", "report.html")
_FOLDERS = ("artefacts", "figures", "checkpoints")
_LOCK = ".lock"
# An SVG above this is slower to open than a bitmap of the same figure (tens of thousands of drawn marks).
_SVG_LIMIT = 600_000


class Run:
    """One execution of a job in one output folder.

    Parameters
    ----------
    out : path
        The output folder; made if absent.
    command : str
        What is being run, e.g. ``"dose-response fit"``.
    arguments : mapping, optional
        The job's arguments, written to ``config.toml`` so that the run can be replayed.
    seed : int
        The seed that the job passes on.
    device : str
        Device name that the job passes on.
    resume, force : bool
        Go on with an interrupted run; start over in a folder that is not empty.
    tracker : Tracker, optional
        Receives numbers as they come (see `assay._core.tracking`).
    verbose : bool
        Whether messages and progress also go to standard error.

    Examples
    --------
    >>> import tempfile
    >>> with Run(tempfile.mkdtemp(), command="example", verbose=False) as run:
    ...     run.result(answer=42)
    >>> (run.out / "report.html").exists()
    True
    """

    def __init__(
        self,
        out: str | Path,
        *,
        command: str = "",
        arguments: Mapping[str, Any] | None = None,
        seed: int = 0,
        device: str = "cpu",
        resume: bool = False,
        force: bool = False,
        tracker: Tracker | None = None,
        verbose: bool = True,
    ) -> None:
        self.out = Path(out)
        self.command = command
        self.arguments = dict(arguments or {})
        self.seed = seed
        self.device = device
        self.resume = resume
        self.force = force
        self.verbose = verbose
        self.title = command or "Run"
        self.subtitle = ""
        self.warnings: list[str] = []
        self.results: dict[str, Any] = {}
        self.sections: list[dict[str, Any]] = []
        self.already_done = False
        self._tracker = tracker
        self._lock: int | None = None
        self._history: list[dict[str, Any]] = []
        self._started = 0.0
        self._made_folder = False

    # --- opening and closing ---

    def __enter__(self) -> Run:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.close(error)

    def open(self) -> None:
        """Claim the folder, and write what is known before the work starts.

        Raises
        ------
        InputError
            If the folder cannot be written, is in use by another run, or holds something else.
        """
        self._started = time.perf_counter()
        self._made_folder = not self.out.exists()
        if self.resume and not (self.out / "config.toml").exists():
            raise InputError(f"--resume: {self.out} holds no run to go on with; check the path, or leave --resume out.")
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            self._take_lock()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise InputError(f"--out {self.out} cannot be written ({reason}); choose another folder.") from error
        try:
            self._prepare()
        except BaseException:
            self._release_lock()
            raise
        if self._tracker is not None and not self.already_done:
            self._tracker.start(self.command, {"seed": self.seed, "device": self.device, **self.arguments})

    def _prepare(self) -> None:
        config = self.out / "config.toml"
        if config.exists() and not self.force:
            self._check_same(config)
        elif any(p.name != _LOCK for p in self.out.iterdir()) and not self.force:
            raise InputError(
                f"--out {self.out} is not empty and not an Assay run; choose another, or --force to write into it."
            )
        elif self.force:
            self._clear()
        for stale in self.out.rglob(".partial-*"):  # left by a process that was killed while writing
            stale.unlink()
        if self.already_done:
            return
        write_text(config, self.config_toml())
        write_json(self.out / "env.json", environment())
        history = self.out / "history.jsonl"
        if history.exists():
            self._history = _complete_lines(history)
        self._write_history()
        self.log(f"{self.command}: {'resumed' if self.resume else 'started'}, seed {self.seed}", screen=False)

    def _check_same(self, config: Path) -> None:
        done = (self.out / "result.json").exists()
        if not self.resume:
            state = "a finished run" if done else "an interrupted run (--resume goes on with it)"
            raise InputError(f"--out {self.out} holds {state}; choose another folder, or --force to start over.")
        try:
            old = tomllib.loads(config.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{config} is damaged ({error}); --force starts over.") from error
        new = tomllib.loads(self.config_toml())
        for key in ("command", "seed", "device"):
            if old.get(key) != new.get(key):
                raise InputError(
                    f"--resume: {self.out} was made with {key} = {old.get(key)!r}, not {new.get(key)!r}; "
                    "give the same, or choose another --out."
                )
        for table in ("arguments", "inputs"):
            was, now = old.get(table, {}), new.get(table, {})
            for key in sorted(was.keys() | now.keys()):
                if was.get(key) != now.get(key):
                    what = (
                        f"{key} = {was.get(key)!r}, not {now.get(key)!r}" if table == "arguments" else f"another {key}"
                    )
                    raise InputError(
                        f"--resume: {self.out} was made with {what}; give the same, or choose another --out."
                    )
        self.already_done = done

    def _clear(self) -> None:
        for name in _FILES:
            (self.out / name).unlink(missing_ok=True)
        for name in _FOLDERS:
            shutil.rmtree(self.out / name, ignore_errors=True)

    def _take_lock(self) -> None:
        path = self.out / _LOCK
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                raise InputError(
                    f"--out {self.out} is in use by another run; wait for it or choose another folder."
                ) from None
            # The run before us may have removed the file between our open and our lock.
            if path.exists() and os.fstat(handle).st_ino == path.stat().st_ino:
                self._lock = handle
                return
            os.close(handle)

    def _release_lock(self) -> None:
        if self._lock is not None:
            (self.out / _LOCK).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def close(self, error: BaseException | None = None) -> None:
        """Write results and report if the work succeeded; keep checkpoints if it did not; free the folder."""
        try:
            if error is None and not self.already_done:
                self._finish()
            elif error is not None:
                name = "interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}"
                try:
                    self.log(f"stopped: {name}", screen=False)
                except OSError:
                    # The disk that failed the work fails its log too; the error itself is on its way to the user.
                    print(f"(log.txt in {self.out} could not be written)", file=sys.stderr)
        finally:
            if self._tracker is not None and not self.already_done:
                self._tracker.finish(failed=error is not None)
            self._release_lock()
            if isinstance(error, InputError) and not self.resume:
                self._withdraw()

    def _withdraw(self) -> None:
        """Take back the traces of a run that bad input ended before it kept anything: the corrected command may follow."""
        if any((self.out / name).exists() for name in _FOLDERS):
            return
        self._clear()
        if self._made_folder and not any(self.out.iterdir()):
            self.out.rmdir()

    def _finish(self) -> None:
        from .report import run_page

        seconds = round(time.perf_counter() - self._started, 2)
        if not (self.out / "log.txt").exists():
            write_text(self.out / "log.txt", "")
        write_text(self.out / "report.html", run_page(self, seconds))
        if self._tracker is not None:
            self._tracker.results(self.results, self.out / "report.html")
        self.log(f"done in {seconds:.1f} s", screen=False)
        # Last, because its presence is what says that the run is complete.
        write_json(
            self.out / "result.json",
            {
                "command": self.command,
                "seed": self.seed,
                "version": __version__,
                "seconds": seconds,
                "warnings": self.warnings,
                "result": self.results,
            },
        )
        shutil.rmtree(self.out / "checkpoints", ignore_errors=True)

    def config_toml(self) -> str:
        """Return the text of ``config.toml``: everything that is needed to get the same numbers again."""
        import tomli_w

        arguments = {k: _toml(v) for k, v in self.arguments.items() if v is not None}
        inputs = {}
        for name, value in self.arguments.items():
            if name == "state":  # a job's own memory, which it changes: not what the run was made from
                continue
            for item in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(item, Path) and item.is_file():
                    inputs[str(item.resolve())] = sha256_file(item)
        body = {"command": self.command, "version": __version__, "seed": self.seed, "device": self.device}
        head = f"# Replay: {self.replay_line()}\n"
        return head + tomli_w.dumps(body | {"arguments": arguments, "inputs": inputs})

    def replay_line(self) -> str:
        """Return the command that gives the same numbers again."""
        # A demo has no arguments but these two, so it needs no file to be replayed.
        demo = self.command.startswith("demo ")
        options = f"--seed {self.seed} --device {self.device}" if demo else "--config config.toml"
        return f"assay {self.command} {options} --out NEW_FOLDER"

    # --- what a job calls ---

    def progress(self, iterable: Iterable[Any] | None = None, *, total: int | None = None, desc: str = "") -> Any:
        """Wrap an iterable in a progress bar that is silent where there is no terminal."""
        return progress_bar(iterable, total=total, desc=desc, verbose=None if self.verbose else False)

    def log(self, message: str, *, screen: bool = True) -> None:
        """Write one line to ``log.txt`` and, unless `screen` is False, to standard error."""
        with (self.out / "log.txt").open("a", encoding="utf-8") as handle:
            handle.write(f"{datetime.now().isoformat(timespec='seconds')} {message}\n")
        if screen and self.verbose:
            from tqdm import tqdm

            tqdm.write(message, file=sys.stderr)  # goes above a running bar instead of through it

    def warn(self, message: str) -> None:
        """Tell the user something they should know when they read the result; listed at the top of the report."""
        if message not in self.warnings:
            self.warnings.append(message)
            self.log(f"note: {message}")

    def metric(self, step: int, **numbers: float) -> None:
        """Append one line to ``history.jsonl``.

        A resumed job that repeats a step replaces the line of the first time.
        """
        entry = {"step": int(step), **plain(numbers)}
        keys = entry.keys()
        if any(e["step"] >= step and e.keys() == keys for e in self._history):
            self._history = [e for e in self._history if not (e["step"] >= step and e.keys() == keys)]
            self._history.append(entry)
            self._write_history()
        else:
            self._history.append(entry)
            with (self.out / "history.jsonl").open("a", encoding="utf-8") as handle:
                handle.write(json.dumps(entry) + "\n")
        if self._tracker is not None:
            self._tracker.metric(step, numbers)

    def _write_history(self) -> None:
        write_text(self.out / "history.jsonl", "".join(json.dumps(e) + "\n" for e in self._history))

    def table(
        self,
        name: str,
        frame: pd.DataFrame,
        *,
        caption: str = "",
        columns: Sequence[str] | None = None,
        rows: int = 20,
        show: bool = True,
    ) -> Path:
        """Write a table to ``artefacts/NAME.csv`` and show its head in the report.

        Parameters
        ----------
        name : str
            File name without ending.
        frame : pandas.DataFrame
            Written whole, with full precision.
        caption : str
            One sentence above the table.
        columns : sequence of str, optional
            The columns that the report shows; default all.
        rows : int
            How many rows the report shows at most.
        show : bool
            False keeps it out of the report.
        """
        path = self.out / "artefacts" / f"{name}.csv"
        with atomic_path(path) as temporary:
            frame.to_csv(temporary, index=False, lineterminator="\n")
        if show:
            shown = frame[list(columns)] if columns is not None else frame
            self.sections.append(
                {
                    "kind": "table",
                    "name": f"artefacts/{name}.csv",
                    "caption": caption,
                    "columns": [str(c).replace("_", " ") for c in shown.columns],
                    "rows": [[cell(v) for v in row] for row in shown.head(rows).itertuples(index=False, name=None)],
                    "numeric": [kind in "iuf" for kind in (getattr(t, "kind", "O") for t in shown.dtypes)],
                    "more": max(0, len(frame) - rows),
                }
            )
        return path

    def figure(self, name: str, fig: Figure, *, caption: str = "") -> Path:
        """Write ``figures/NAME.svg`` (``.png`` where the SVG would be too large) and show it in the report."""
        path = self.out / "figures" / f"{name}.svg"
        with atomic_path(path) as temporary:
            # No date: the same run gives the same bytes.
            fig.savefig(temporary, format="svg", metadata={"Date": None})
        if path.stat().st_size > _SVG_LIMIT:
            path.unlink()
            path = path.with_suffix(".png")
            with atomic_path(path) as temporary:
                fig.savefig(temporary, format="png", dpi=160)
        fig.clear()
        self.sections.append({"kind": "figure", "path": path, "caption": caption, "name": name})
        return path

    def text(self, heading: str, body: str) -> None:
        """Add a heading and paragraphs (separated by blank lines) to the report; plain text, no mark-up."""
        self.sections.append({"kind": "text", "heading": heading, "paragraphs": body.strip().split("\n\n")})

    def result(self, **numbers: Any) -> None:
        """Add numbers to ``result.json`` and to the top of the report."""
        self.results |= {k: plain(v) for k, v in numbers.items()}

    @contextmanager
    def artefact(self, name: str) -> Iterator[Path]:
        """Yield a temporary path that becomes ``artefacts/NAME`` when the block ends well."""
        with atomic_path(self.out / "artefacts" / name) as temporary:
            yield temporary

    def artefact_folder(self, name: str) -> Path:
        """Return the folder ``artefacts/NAME``, made if absent, for models saved by their own ``save_pretrained``."""
        path = self.out / "artefacts" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def save_checkpoint(self, name: str, arrays: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
        """Keep arrays and JSON values under a name until the run is done; atomic, the newest wins."""
        save_tensors(self.out / "checkpoints" / f"{name}.safetensors", arrays, meta)

    def load_checkpoint(self, name: str) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """Return what `save_checkpoint` kept, or None if there is nothing or the run was not resumed."""
        path = self.out / "checkpoints" / f"{name}.safetensors"
        if not self.resume or not path.exists():
            return None
        return load_tensors(path)


def _toml(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value.resolve())
    if isinstance(value, (list, tuple)):
        return [_toml(v) for v in value]
    return plain(value)


def _complete_lines(path: Path) -> list[dict[str, Any]]:
    """Return a history's entries; a last line that a kill cut short is dropped, since its step will be run again."""
    entries = []
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            entries.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number < len(lines):
                raise AssayError(f"{path}, line {number}: damaged; --force starts the run over.") from error
    return entries


def cell(value: Any) -> str:
    """Format one value for a report: three significant digits, no false precision, blanks for missing values."""
    if value is None:
        return ""
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return "yes" if value else "no"
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        if value != value:
            return "–"
        if value in (float("inf"), float("-inf")):
            return "∞" if value > 0 else "−∞"
        if value == int(value) and abs(value) < 1e6:
            return f"{int(value):,}"
        if 1e-4 <= abs(value) < 1e5:
            text = f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
        else:
            text = f"{value:.2e}"
        return text
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def environment() -> dict[str, Any]:
    """Return what a reader needs to judge numbers from this machine: Python, packages, processor, memory, devices."""
    from importlib.metadata import PackageNotFoundError, version

    packages = {}
    for name in ("numpy", "scipy", "scikit-learn", "torch", "pandas", "numba", "rdkit", "networkx"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    gpus: list[str] = []
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "assay": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(pages / 2**30, 1),
        "gpus": gpus,
        "threads": {k: os.environ[k] for k in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if k in os.environ},
        "packages": packages,
    }


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        return platform.processor() or platform.machine()  # no /proc on macOS
    return platform.processor() or platform.machine()
