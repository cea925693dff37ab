"""The process in which cells run: ``python -m assay.claims._cell FD``, started and watched by `_execute`.

One process serves the cells of one worker, one after another, so that imports are paid once; it is killed when a cell
exceeds its limit, and its death is that cell's error and nobody else's.
"""

from __future__ import annotations

import importlib
import os
import random
import resource
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

IDLE_S = (
    20.0  # an idle process ends: workers of a pool live on for minutes, and this one may hold a gigabyte of imports
)
TRACE = 6000  # characters of a traceback that are kept: enough for the frames that matter, small enough for a page


def _die_with_parent() -> None:
    """Ask Linux to kill this process when the watchdog dies, however it dies; elsewhere a closed pipe ends it."""
    if sys.platform == "linux":
        import ctypes
        import signal

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def driver_lives(driver: tuple[str, int]) -> bool:
    """Whether the run's own process (host, id) is still there; one on another host is taken to be."""
    host, pid = driver
    if host != socket.gethostname() or pid == os.getpid():
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # alive, but somebody else's
    return True


def _cpu_seconds() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _reset_peak() -> None:
    try:
        with open("/proc/self/clear_refs", "w") as handle:
            handle.write("5")  # resets the high-water mark of resident memory
    except OSError:
        return  # not Linux, or a sandbox forbids it: the peak is then that of the process so far, an upper bound


def _peak_mb() -> float:
    try:
        with open("/proc/self/status") as handle:
            for line in handle:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) / 1024
    except OSError:
        pass  # not Linux: ask the kernel's other counter below
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024


def _seed(seed: int, threads: int, torch: bool) -> None:
    """Seed every ambient generator from the seed alone, so that the arms of a pair start from the same state."""
    import numpy as np

    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - a peer package may still use the legacy state
    if torch:
        import torch as t

        t.manual_seed(seed)
        t.set_num_threads(threads)
        # A cell that changed the default would change the results of the next one in this process.
        t.set_default_dtype(t.float32)


def _picture(array: Any) -> bytes:
    import io

    import numpy as np
    from PIL import Image

    image = np.asarray(array.detach().cpu() if hasattr(array, "detach") else array)
    if image.dtype != np.uint8:
        image = (np.clip(image.astype(float), 0, 1) * 255).round().astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, format="PNG", optimize=True)
    return stream.getvalue()


class _Server:
    def __init__(self) -> None:
        self.source_key: Any = None
        self.source: Any = None

    def data(self, module: Any, job: Mapping[str, Any]) -> Any:
        """The cell's Source; the last one is kept because neighbouring cells share it."""
        from ._models import Source

        kind, payload = job["source"]
        key = (job["module"], job["data"])
        if self.source_key != key:
            if kind == "none":
                self.source = Source("none", fingerprint="none")
            elif kind == "named":
                self.source = module.SOURCES[payload]()
            elif kind == "path":
                from ._sources import read_user_data

                own = getattr(module, "SOURCES", {}).get("user")
                self.source = (own or read_user_data)(**payload)
            else:
                self.source = payload
            self.source_key = key
        return self.source

    def run(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Run one cell; whatever happens becomes a record."""
        from assay._core.errors import MissingData, MissingExtra
        from assay._core.files import plain

        record: dict[str, Any] = {"status": "ok", "reason": "", "metrics": {}, "pictures": {}}
        wall, cpu = time.perf_counter(), _cpu_seconds()
        try:
            # Imports are startup, not the experiment: their time is not in `seconds` (but is in `cpu_seconds`).
            module = importlib.import_module(f"{job['module']}.claims")
            source = self.data(module, job)
            device = job["device"]
            if device == "auto":
                from assay._core.devices import resolve_device

                device = str(resolve_device(device))
            _seed(job["seed"], job["threads"], job["torch"])
            _reset_peak()
            wall = time.perf_counter()
            result = getattr(module, job["experiment"])(job["arm"], job["seed"], source, dict(job["size"]), device)
            record["seconds"] = time.perf_counter() - wall
            if not isinstance(result, Mapping):
                raise TypeError(f"the experiment {job['experiment']!r} must return a dict, not {type(result).__name__}")
            metrics = dict(result)
            pictures = metrics.pop("pictures", {})
            record["metrics"] = plain(metrics)
            record["pictures"] = {str(name): _picture(array) for name, array in pictures.items()}
        except (MissingExtra, MissingData) as error:
            record.update(status="skipped", reason=str(error))
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package in ("", "assay", job["module"].partition(".")[0]):
                record.update(status="error", reason=_last(error), traceback=traceback.format_exc()[-TRACE:])
            else:
                record.update(status="skipped", reason=f"the package {package} is not installed: pip install {package}")
        except BaseException as error:
            record.update(status="error", reason=_last(error), traceback=traceback.format_exc()[-TRACE:])
        record.setdefault("seconds", time.perf_counter() - wall)
        record["cpu_seconds"] = _cpu_seconds() - cpu
        record["peak_mb"] = _peak_mb()
        return record


def _last(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def main() -> None:
    """Serve jobs from the pipe until it closes."""
    _die_with_parent()
    connection = Connection(int(sys.argv[1]))
    server = _Server()
    ready = False
    driver: tuple[str, int] | None = None
    while True:
        try:
            idle = 0.0
            while not connection.poll(1.0):
                idle += 1.0
                if idle >= IDLE_S or (driver is not None and not driver_lives(driver)):
                    return
            job = connection.recv()
            driver = job["driver"]
        except EOFError:
            return
        if not ready:
            # The heavy imports happen before the clock of the first cell starts.
            sys.path[:] = [*sys.path, *(p for p in job["sys_path"] if p not in sys.path)]
            if job["torch"]:
                importlib.import_module("torch")
            ready = True
        connection.send("started")
        connection.send(server.run(job))


if __name__ == "__main__":
    main()
