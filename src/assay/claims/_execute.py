"""Running cells: one joblib call for laptop and cluster, and a watchdog around a process for every worker's cells."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any, Literal

from assay._core.errors import AssayError, InputError
from assay._core.progress import track

from ._cell import driver_lives
from ._models import TIERS, Source
from ._plan import Cell, Plan, fingerprint_of, load, plan
from ._store import ClaimsRun, environment, load_run, locked, now, read_cells, start, sweep, write_cell

Backend = Literal["loky", "ray", "dask"]

STARTUP_S = 180.0  # importing torch on a cold disk takes half a minute; ten times that is a broken installation
POLL_S = 0.25  # how often the watchdog looks; far below any limit, far above its own cost
OUTPUT = 4000  # characters of a failed cell's printed output that are kept
RESTARTS = 3  # of the pool, if a worker itself (not its cell) is killed

_local = threading.local()


class _Child:
    """A watched process that runs cells; see `_cell`."""

    def __init__(self, slug: str, threads: int):
        self.slug = slug
        ours, theirs = Pipe()
        # Read by the libraries at import, so it cannot wait until the cell: inner threads would fight the workers.
        names = (
            "OMP_NUM_THREADS",
            "OPENBLAS_NUM_THREADS",
            "MKL_NUM_THREADS",
            "NUMEXPR_NUM_THREADS",
            "NUMBA_NUM_THREADS",
        )
        env = {**os.environ, **dict.fromkeys(names, str(threads)), "PYTHONHASHSEED": "0"}
        # The child must find what the driver found, also what is only on the driver's sys.path.
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self.process = subprocess.Popen(
            [sys.executable, "-m", "assay.claims._cell", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=self.output,
            env={
                **env,
                "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]),
            },
            # Its own group: Ctrl-C reaches the driver, which decides; and a kill takes what the cell itself started.
            start_new_session=True,
        )
        theirs.close()
        self.connection = ours

    def printed(self) -> str:
        self.output.seek(0, os.SEEK_END)
        self.output.seek(max(0, self.output.tell() - OUTPUT))
        return self.output.read().decode(errors="replace")

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # it may be gone already
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.connection.close()
        self.output.close()

    def wait(self, seconds: float, driver: tuple[str, int]) -> Any:
        """The next message; TimeoutError after `seconds`, EOFError if the process died."""
        end = time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            if self.connection.poll(min(left, POLL_S)):
                return self.connection.recv()
            _check_driver(driver)


def _check_driver(driver: tuple[str, int]) -> None:
    """An orphaned worker stops: nobody would write down what it finds."""
    if not driver_lives(driver):
        raise SystemExit("the run that started this worker is gone")


def _stop_child() -> None:
    child = getattr(_local, "child", None)
    if child is not None:
        _local.child = None
        child.kill()


def run_cell(job: Mapping[str, Any]) -> dict[str, Any]:
    """Run one cell in this worker's watched process and return its record; never raises for what a cell does.

    This is the unit that joblib distributes; `submitit` on SLURM maps the same function over the same jobs.
    """
    began = time.monotonic()
    limit, stage = STARTUP_S, "starting"
    try:
        _check_driver(job["driver"])
        child = _start_cell(job)
        limit, stage, began = job["limit_s"], "running", time.monotonic()
        found: dict[str, Any] = child.wait(limit, job["driver"])
        if found["status"] == "error":
            found["output"] = child.printed()
    except TimeoutError:
        found = {"status": "timeout", "reason": f"stopped by the watchdog: {stage} took more than {limit:g} s"}
        found["output"] = _local.child.printed()
        _stop_child()
    except (EOFError, ConnectionError):
        child = _local.child
        code = child.process.wait()
        if code < 0:
            name = signal.Signals(-code).name
            why = f"was killed by {name}" + (", perhaps out of memory" if code == -signal.SIGKILL else "")
        else:
            why = f"ended with exit code {code}"
        found = {"status": "error", "reason": f"the cell's process {why}", "output": child.printed()}
        _stop_child()
    except BaseException:
        _stop_child()  # Ctrl-C or the end of the run: leave nothing behind
        raise
    found.setdefault("seconds", time.monotonic() - began)
    found.setdefault("metrics", {})
    return {**{k: job[k] for k in RECORDED}, **found}


def _start_cell(job: Mapping[str, Any]) -> _Child:
    """Hand the job to this worker's process, started if need be, and return when the cell has begun."""
    child: _Child | None = getattr(_local, "child", None)
    if child is not None and child.slug == job["slug"] and child.process.poll() is None:
        try:
            child.connection.send(dict(job))
            child.wait(STARTUP_S, job["driver"])
            return child
        except (EOFError, ConnectionError):
            pass  # it ended for being idle just now, before the cell began: start another
    _stop_child()
    child = _local.child = _Child(job["slug"], job["threads"])
    child.connection.send(dict(job))
    child.wait(STARTUP_S, job["driver"])
    return child


RECORDED = (
    "key",
    "slug",
    "experiment",
    "arm",
    "seed",
    "data",
    "size",
    "device",
    "threads",
    "limit_s",
    "exclusive",
    "user_data",
)


def run_and_write(job: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Run one cell and write its file, if this worker sees the run's folder (this machine, a shared disk).

    Parameters
    ----------
    job : mapping
        One of what `prepare` returns.
    folder : str
        The run's folder.

    Returns
    -------
    dict
        The cell's record, as it is written.
    """
    record = run_cell(job)
    if (Path(folder) / "plan.json").is_file():
        write_cell(Path(folder), record)
    return record


def _jobs(cells: Sequence[Cell], sources: Mapping[tuple[str, str], tuple[str, Any]]) -> list[dict[str, Any]]:
    driver = (socket.gethostname(), os.getpid())
    return [
        {
            **{name: getattr(cell, name) for name in (*RECORDED, "module", "torch")},
            "size": dict(cell.size),
            "source": sources[cell.slug, cell.data],
            "sys_path": [p for p in sys.path if p],
            "driver": driver,
        }
        for cell in cells
    ]


def _parallel(jobs: list[dict[str, Any]], n_jobs: int, backend: str, folder: Path) -> Iterator[dict[str, Any]]:
    """The records of the jobs as they finish. The only place that knows about back-ends."""
    import joblib

    options: dict[str, Any] = {"backend": backend, "n_jobs": n_jobs}
    client = None
    if backend == "ray":
        from assay._core.errors import require

        require("ray", "cluster")
        import ray
        from ray.util.joblib import register_ray

        if not ray.is_initialized():
            # Joins the cluster that RAY_ADDRESS names, or starts one on this machine.
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        register_ray()
    elif backend == "dask":
        from assay._core.errors import require

        require("distributed", "cluster")
        client = _dask_client(n_jobs)
    # Threads are limited in the cell's own process, for every back-end alike (ray has no inner_max_num_threads).
    with joblib.parallel_config(**options):
        # Ray's back-end returns nothing before everything is done; its workers then write down cells themselves, so that
        # an interruption loses as little as elsewhere.
        streams = joblib.parallel.get_active_backend()[0].supports_return_generator
        call = joblib.delayed(run_cell if streams else run_and_write)
        extra = () if streams else (str(folder.resolve()),)
        # batch_size=1: cells last seconds, and a batch would hold finished ones back from the disk.
        parallel = joblib.Parallel(return_as="generator_unordered" if streams else "list", batch_size=1)
        try:
            yield from parallel(call(job, *extra) for job in jobs)
        finally:
            if client is not None:
                client.close()


def _dask_client(n_jobs: int) -> Any:
    """Join the scheduler that DASK_SCHEDULER_ADDRESS names, or start one on this machine; None if a client is there."""
    from distributed import Client, default_client

    with contextlib.suppress(ValueError):  # "no client found"
        default_client()
        return None
    address = os.environ.get("DASK_SCHEDULER_ADDRESS")
    if address:
        return Client(address)
    # Each cell is a process of its own, so a worker needs but one thread; loopback only, and no dashboard.
    return Client(n_workers=n_jobs, threads_per_worker=1, host="127.0.0.1", dashboard_address=None)


def execute(
    work: Plan, folder: Path, *, jobs: int, backend: str = "loky", fresh: bool = False, verbose: bool | None = None
) -> dict[str, dict[str, Any]]:
    """Run the cells that are not there yet and return all of them by key.

    A cell that ran is never rerun; one that failed, timed out or was skipped is tried again.
    """
    there = {} if fresh else read_cells(folder, (cell.key for cell in work.cells))
    done = {key: record for key, record in there.items() if record["status"] == "ok"}
    bar = track(total=len(work.cells), desc="cells", verbose=verbose)
    bar.update(len(done))
    try:
        for alone in (False, True):
            todo = [c for c in work.cells if c.key not in done and c.exclusive is alone]
            for attempt in range(RESTARTS + 1):
                if not todo:
                    break
                try:
                    for record in _parallel(
                        _jobs(todo, work.sources), 1 if alone else min(jobs, len(todo)), backend, folder
                    ):
                        done[record["key"]] = write_cell(folder, record)
                        bar.update()
                except Exception as error:
                    # Cells cannot raise; this is the pool itself, for instance a worker killed by the kernel.
                    if attempt == RESTARTS or isinstance(error, AssayError) or not _pool_died(error):
                        raise
                todo = [c for c in todo if c.key not in done]
    finally:
        bar.close()
        _stop_child()  # the sequential back-end runs cells of this very process
    return done


def _pool_died(error: BaseException) -> bool:
    from joblib.externals.loky.process_executor import BrokenProcessPool

    return isinstance(error, BrokenProcessPool) or "died" in str(error).lower()


def default_jobs() -> int:
    """Return the number of physical cores: two jobs of one thread beat one job of two threads for small problems."""
    import joblib

    return int(joblib.cpu_count(only_physical_cores=True))


def run(
    selectors: str | Sequence[str] = "*",
    *,
    tier: str = "standard",
    seeds: int | None = None,
    data: Any = None,
    target: str | None = None,
    split: str | None = None,
    group: str | None = None,
    jobs: int | None = None,
    threads: int = 1,
    backend: str = "loky",
    out: str | Path | None = None,
    resume: bool = False,
    fresh: bool = False,
    device: str = "cpu",
    limit_s: float | None = None,
    verbose: bool | None = None,
    command: str | None = None,
) -> ClaimsRun:
    """Run claims and return their verdicts.

    For each comparator the paired differences d_i = ours - theirs give an interval, which the rule compares with its
    margin.

    Parameters
    ----------
    selectors : str or sequence of str
        A method's slug, a claim's id, or patterns such as ``"slug/*"``.
    tier : {"quick", "standard", "full"}
        Size of the experiments.
    seeds : int, optional
        Number of seeds instead of the tier's; counted up from the claim's first
    data : str, path, (X, y), Source or list of str, optional
        Names of the claims' own sources, or the user's data: a file, a folder, arrays or a `Source`.
    target : str, optional
        Column to predict in a user's table.
    split : str, optional
        ``"random:0.8"`` (fraction that trains), ``"file"`` (a column named split), ``"column:NAME"`` or ``"file:PATH"``
        (a line "train" or "test" per row).
    group : str, optional
        Column whose values a split must not cut.
    jobs : int, optional
        Workers; default the physical cores, 1 on a GPU.
    threads : int, default 1
        Of each worker.
    backend : {"loky", "ray", "dask"}
        Where workers live.
    out : path, optional
        Folder of the run; default ``runs/<date>-<id>``. An existing run is continued.
    resume : bool
        Without `out`: continue the newest run of the same request under ``runs/``.
    fresh : bool
        Rerun cells whose results are there.
    device : str, default "cpu"
        "cpu", "cuda", "cuda:0" or "auto".
    limit_s : float, optional
        Limit of a cell in seconds instead of the tier's.
    verbose : bool, optional
        Show progress also where there is no terminal.
    command : str, optional
        The command line, for the report.

    Returns
    -------
    ClaimsRun
        With ``verdicts``, ``to_frame()``, ``cells()`` and ``report()``.

    Raises
    ------
    InputError
        If a selector names nothing, the data do not suit any claim, or the folder holds something else.

    Notes
    -----
    1. Ctrl-C or a kill loses only the cells that were running: the same call continues.
    """
    if tier not in TIERS:
        raise InputError(f"There is no tier {tier!r}: use {', '.join(TIERS)}.")
    if backend not in ("loky", "ray", "dask"):
        raise InputError(f"There is no backend {backend!r}: use loky, ray or dask.")
    for name, value in (("seeds", seeds), ("jobs", jobs), ("threads", threads)):
        if value is not None and value < 1:
            raise InputError(f"{name} must be at least 1, got {value}.")
    methods = load(selectors)
    names, user = _data(data, target=target, split=split, group=group, methods=methods)
    work = plan(methods, tier=tier, seeds=seeds, data=names, user=user, device=device, threads=threads, limit_s=limit_s)
    request = {
        "selectors": [selectors] if isinstance(selectors, str) else list(selectors),
        "tier": tier,
        "seeds": seeds,
        "data": names if user is None else [user[2].name, user[2].fingerprint],
        "device": device,
        "threads": threads,
    }
    request["command"] = command or _command(request, data, target)
    folder = Path(out) if out is not None else _folder(request, resume)
    if jobs is None:
        jobs = 1 if device.startswith("cuda") else default_jobs()
    _check_folder(folder)
    with locked(folder):
        sweep(folder)
        start(folder, work, environment(threads, jobs, backend), request)
        try:
            execute(work, folder, jobs=jobs, backend=backend, fresh=fresh, verbose=verbose)
        except KeyboardInterrupt:
            # What is done is on the disk; leave verdicts that say what is missing.
            load_run(folder).save()
            raise
        finished = load_run(folder)
        finished.save()
    return finished


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder} is a file; name a folder.")
    if folder.is_dir() and any(p.name != ".lock" for p in folder.iterdir()) and not (folder / "plan.json").is_file():
        raise InputError(f"{folder} holds something other than a claims run; choose another --out.")


def prepare(
    selectors: str | Sequence[str],
    *,
    out: str | Path,
    tier: str = "standard",
    seeds: int | None = None,
    data: list[str] | None = None,
    device: str = "cpu",
    threads: int = 1,
) -> list[dict[str, Any]]:
    """Plan a run without running it: the jobs of its missing cells, for a scheduler that joblib does not know.

    Each job goes to ``run_and_write(job, out)`` on any machine that sees `out`; ``run(selectors, out=out, ...)`` with the
    same arguments then runs what is still missing and judges.

    Parameters
    ----------
    selectors, out, tier, seeds, data, device, threads
        As for `run`.

    Returns
    -------
    list of dict
        One per missing cell; picklable.
    """
    work = plan(load(selectors), tier=tier, seeds=seeds, data=data, device=device, threads=threads)
    request = {
        "selectors": [selectors] if isinstance(selectors, str) else list(selectors),
        "tier": tier,
        "seeds": seeds,
        "data": data,
        "device": device,
        "threads": threads,
    }
    request["command"] = _command(request, data, None)
    folder = Path(out)
    _check_folder(folder)
    with locked(folder):
        start(folder, work, environment(threads, 1, "external"), request)
    done = {key for key, record in read_cells(folder, (c.key for c in work.cells)).items() if record["status"] == "ok"}
    todo = [cell for cell in work.cells if cell.key not in done]
    # No driver to watch: the scheduler ends what it wants ended.
    return [{**job, "driver": ("", 0)} for job in _jobs(todo, work.sources)]


def _command(request: Mapping[str, Any], data: Any, target: str | None) -> str:
    """The command line that does the same, as far as a Python call has one."""
    words = ["assay", "claims", "run", *request["selectors"], "--tier", request["tier"]]
    if request["seeds"] is not None:
        words += ["--seeds", str(request["seeds"])]
    if isinstance(data, (str, Path)):
        words += ["--data", str(data)]
    elif isinstance(data, list) and all(isinstance(d, str) for d in data):
        words += [w for d in data for w in ("--data", d)]
    elif data is not None:
        words += ["--data", "(arrays passed from Python)"]
    if target is not None:
        words += ["--target", target]
    return shlex.join(words)


def _folder(request: Mapping[str, Any], resume: bool) -> Path:
    from assay._core.files import read_json

    base = Path("runs")
    if resume:
        same = []
        for path in base.glob("*/plan.json"):
            stored = read_json(path)
            if {**stored.get("request", {}), "command": ""} == {**request, "command": ""}:
                same.append((stored["date"], path.parent))
        if not same:
            raise InputError(f"There is no earlier run of this request under {base}/ to resume; name it with --out.")
        return max(same)[1]
    return base / f"{now()[:10]}-{uuid.uuid4().hex[:6]}"


def _data(
    data: Any, *, target: str | None, split: str | None, group: str | None, methods: Sequence[Any]
) -> tuple[list[str] | None, tuple[str, Any, Source] | None]:
    """Tell names of sources from the user's data; return (names, None) or (None, how a cell gets the data)."""
    from dataclasses import replace

    from ._sources import from_arrays, read_user_data

    if (
        data is None
        or isinstance(data, (str, Path))
        or (isinstance(data, list) and all(isinstance(d, str) for d in data))
    ):
        asked = [] if data is None else [str(d) for d in (data if isinstance(data, list) else [data])]
        known = {name for m in methods for name in m.sources} | {"none", "all"}
        if all(name in known for name in asked):
            if target or split or group:
                raise InputError("--target, --split and --group are for your own data: name its file with --data.")
            return asked or None, None
        if len(asked) > 1:
            unknown = next(name for name in asked if name not in known)
            raise InputError(
                f"There is no source {unknown!r} (there is: {', '.join(sorted(known))}); own data is one file."
            )
        if not Path(asked[0]).exists():
            raise InputError(
                f"--data {asked[0]}: no such file or folder, and no such source (there is: {', '.join(sorted(known))})."
            )
        tasks = sorted({t for m in methods for c in m.claims if c.accepts for t in c.accepts.tasks})
        options: dict[str, Any] = {
            "path": str(Path(asked[0]).resolve()),
            "target": target,
            "split": split,
            "group": group,
            "tasks": tasks,
        }
        readers = {m.slug: m.sources["user"] for m in methods if "user" in m.sources}
        if readers and len(methods) > 1:
            raise InputError(
                "Own data with several methods at once: name one method, since each may read it differently."
            )
        source = next(iter(readers.values()))(**options) if readers else read_user_data(**options)
        source = replace(source, name="user", fingerprint=fingerprint_of(source))
        return None, ("path", options, source)
    if isinstance(data, Source):
        source = replace(data, name="user", fingerprint=fingerprint_of(data))
    elif isinstance(data, (tuple, list)) and len(data) == 2:
        source = from_arrays(*data)
    else:
        raise InputError("data must be the name of a source, a path, a pair (X, y) or a Source.")
    return None, ("memory", source, source)
