"""Runs a program that nobody has read, such as one that a model wrote, where it can do no harm.

Linux, without root and without containers: the program is a process of its own with an empty environment, its own folder,
resource limits, Landlock (only the interpreter and that folder can be touched) and a seccomp filter (no network, no other
processes, no signals, no change of limits). That it passed is proven by a random token which arrives after its last line,
not by an exit code, which ``os._exit(0)`` gives as well.

The proof holds against programs that go wrong or take short cuts. It is no defence against one that searches its own
process for the token: that program still cannot leave the sandbox, but it can call itself passed.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import json
import os
import platform
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .._core.errors import AssayError, InputError
from ._sandbox_child import ARCHITECTURES

__all__ = ["SandboxReport", "SandboxResult", "run_sandboxed", "sandbox_report"]

Status = Literal["ok", "assertion", "exception", "syntax", "exited", "timeout", "killed", "output_limit"]
Level = Literal["full", "partial", "none"]

_CHILD = Path(__file__).with_name("_sandbox_child.py")
_OUTPUT_LIMIT = 64 * 1024  # bytes of each stream; a test that prints more is broken
_FILE_LIMIT = 2**20  # bytes of one file that the program writes


@dataclass(frozen=True)
class SandboxResult:
    """How a program ended.

    Attributes
    ----------
    status : str
        "ok" (ran to its last line), "assertion", "exception", "syntax", "exited" (ended itself before its last line),
        "timeout" (wall clock or CPU), "killed" (by a signal, such as a crash), "output_limit".
    stdout, stderr : str
        At most 64 KiB each; bytes that are no UTF-8 are replaced.
    seconds : float
        Wall clock, with the start of the interpreter.
    level : str
        How well it was locked in: "full" or "partial".
    """

    status: Status
    stdout: str
    stderr: str
    seconds: float
    level: Level


@dataclass(frozen=True)
class SandboxReport:
    """What locks programs in on this machine.

    Attributes
    ----------
    level : str
        "full": Landlock and seccomp hold, which a probe has shown. "partial": one is missing; a network namespace and the
        resource limits stand in, and files can be read. "none": nothing holds, programs are refused.
    landlock_abi : int
        Version of Landlock, 0 without it.
    seccomp, unshare : bool
        Whether system calls are filtered; whether a network namespace can be made.
    reason : str
        What is missing, empty at level "full".
    """

    level: Level
    landlock_abi: int
    seccomp: bool
    unshare: bool
    reason: str = ""

    def __str__(self) -> str:
        layers = [
            *([f"Landlock (ABI {self.landlock_abi})"] if self.landlock_abi else []),
            *(["seccomp"] if self.seccomp else []),
            *(["network namespace"] if self.level == "partial" and self.unshare else []),
            *(["resource limits"] if self.level != "none" else []),
        ]
        return f"{self.level}: {', '.join(layers) or 'no layer'}{'; ' + self.reason if self.reason else ''}"


def sandbox_report() -> SandboxReport:
    """Say which layers hold on this machine; the first call runs a probe program (about 0.1 s).

    Returns
    -------
    SandboxReport

    Examples
    --------
    >>> from assay._shared.sandbox import sandbox_report
    >>> sandbox_report().level in ("full", "partial", "none")
    True
    """
    return _report(*_layers())


def run_sandboxed(
    code: str,
    *,
    timeout: float = 10.0,
    cpu: int = 5,
    memory_mb: int = 1024,
    allow_execution: bool = False,
    require: Literal["full", "partial"] = "partial",
) -> SandboxResult:
    """Run a Python program that may be anything, and say how it ended.

    Parameters
    ----------
    code : str
        The whole program, with the tests that it must pass.
    timeout : float, default 10
        Seconds of wall clock.
    cpu : int, default 5
        Seconds of CPU.
    memory_mb : int, default 1024
        MiB of address space; numpy needs about 300.
    allow_execution : bool, default False
        Must be True: whoever runs programs of unknown origin says so.
    require : {"partial", "full"}, default "partial"
        The least level at which the program may run.

    Returns
    -------
    SandboxResult

    Raises
    ------
    PermissionError
        If `allow_execution` is not True.
    InputError
        If a limit is not positive.
    AssayError
        If this machine cannot lock the program in (see `sandbox_report`), or a layer failed; it was then not run.

    Examples
    --------
    >>> from assay._shared.sandbox import run_sandboxed, sandbox_report
    >>> if sandbox_report().level != "none":
    ...     assert run_sandboxed("assert 1 + 1 == 3", allow_execution=True).status == "assertion"
    """
    if allow_execution is not True:
        raise PermissionError("this would run a program that nobody has read; pass allow_execution=True to do so.")
    for name, value in (("timeout", timeout), ("cpu", cpu), ("memory_mb", memory_mb)):
        if not value > 0:
            raise InputError(f"{name} must be above 0, got {value!r}.")
    report = sandbox_report()
    if report.level == "none" or (require == "full" and report.level != "full"):
        raise AssayError(f"The program was not run: the sandbox of this machine is {report}.")
    return _run(code, report, timeout=timeout, cpu=cpu, memory_mb=memory_mb)


# --- what this machine has ---


def _layers() -> tuple[int, bool, bool]:
    """ABI of Landlock (0: none), seccomp, a network namespace without root; each asked of the kernel."""
    if sys.platform != "linux" or platform.machine() not in ARCHITECTURES:
        return 0, False, False
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    landlock = max(0, libc.syscall(444, None, 0, 1))  # LANDLOCK_CREATE_RULESET_VERSION
    # PR_SET_SECCOMP with a null filter: EFAULT where filters exist, EINVAL where they do not
    seccomp = libc.prctl(22, 2, None, 0, 0) == -1 and ctypes.get_errno() == 14
    return landlock, seccomp, _can_unshare()


@functools.cache
def _can_unshare() -> bool:
    if not shutil.which("unshare"):
        return False
    return subprocess.run(["unshare", "-rn", "true"], capture_output=True, stdin=subprocess.DEVNULL).returncode == 0


_PROBE = """
import socket
try:
    open({outside!r})
    raise SystemExit
except PermissionError:
    pass
try:
    socket.socket()
    raise SystemExit
except PermissionError:
    pass
"""


@functools.cache
def _report(landlock: int, seccomp: bool, unshare: bool) -> SandboxReport:
    if sys.platform != "linux":
        return SandboxReport("none", 0, False, False, "Landlock and seccomp are Linux's")
    if landlock and seccomp:
        full = SandboxReport("full", landlock, True, unshare)
        with tempfile.NamedTemporaryFile() as outside:
            try:
                status = _run(_PROBE.format(outside=outside.name), full, timeout=20, cpu=5, memory_mb=1024).status
            except AssayError as error:
                return SandboxReport("none", landlock, True, unshare, f"the probe failed ({error})")
        if status == "ok":
            return full
        return SandboxReport("none", landlock, True, unshare, f"the probe got out or failed ({status})")
    missing = " and ".join(name for name, there in (("Landlock", landlock), ("seccomp", seccomp)) if not there)
    if unshare:
        return SandboxReport("partial", landlock, seccomp, True, f"{missing} is missing")
    return SandboxReport("none", landlock, seccomp, False, f"{missing} is missing, and unshare -rn is refused")


def _readable() -> list[str]:
    """The interpreter, its libraries and the system's: what a program needs to start, and nothing of a user's."""
    paths = {sys.prefix, sys.base_prefix, sys.exec_prefix, *sysconfig.get_paths().values()}
    paths |= {"/usr", "/lib", "/lib64", str(Path(sys.executable).resolve().parent)}
    return sorted(path for path in paths if os.path.isdir(path) and path != "/")


# --- running ---


def _run(code: str, report: SandboxReport, *, timeout: float, cpu: int, memory_mb: int) -> SandboxResult:
    token = secrets.token_hex(16)
    namespace = report.level == "partial" and report.unshare
    settings = {
        "code": code,
        "token": token,
        "cpu": int(cpu),
        "memory": int(memory_mb * 2**20),
        "file_size": _FILE_LIMIT,
        "landlock": report.landlock_abi,
        "seccomp": report.seccomp,
        "readable": _readable(),
        # behind unshare the parent is the same process, since unshare replaces itself
        "parent": os.getpid(),
    }
    folder = tempfile.mkdtemp(prefix="assay-sandbox-")
    code_read, code_write = os.pipe()
    proof_read, proof_write = os.pipe()
    writer = os.fdopen(code_write, "wb", buffering=0)
    process = None
    begin = time.monotonic()
    try:
        command = [sys.executable, "-I", str(_CHILD), str(code_read), str(proof_write)]
        process = subprocess.Popen(
            ["unshare", "-rn", *command] if namespace else command,
            cwd=folder,
            env={
                "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
                **({"PATH": os.defpath} if namespace else {}),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(code_read, proof_write),
            start_new_session=True,
        )  # fmt: skip
        for fd in (code_read, proof_write):
            os.close(fd)
        code_read = proof_write = -1
        ended, streams = _attend(process, writer, proof_read, json.dumps(settings).encode(), begin + timeout)
    finally:
        if process is not None:
            _kill(process)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        writer.close()
        for fd in (code_read, proof_read, proof_write):
            if fd >= 0:
                os.close(fd)
        shutil.rmtree(folder, ignore_errors=True)
    seconds = time.monotonic() - begin
    stdout, stderr, proof = (bytes(s).decode("utf-8", "replace") for s in streams)
    status = ended or _status(proof, token, process.returncode)
    return SandboxResult(status, stdout, stderr, seconds, report.level)


def _attend(
    process: subprocess.Popen[bytes], writer: io.FileIO, proof_read: int, settings: bytes, deadline: float
) -> tuple[Status | None, tuple[bytearray, bytearray, bytearray]]:
    """Feed the program, read what it says, and stop it at the first limit; returns that limit, if any."""
    assert process.stdout is not None
    assert process.stderr is not None
    out, err, proof = bytearray(), bytearray(), bytearray()
    kept = {process.stdout.fileno(): out, process.stderr.fileno(): err, proof_read: proof}
    sent = 0
    os.set_blocking(writer.fileno(), False)
    with selectors.DefaultSelector() as selector:
        for fd in kept:
            selector.register(fd, selectors.EVENT_READ)
        selector.register(writer, selectors.EVENT_WRITE)
        while kept:
            left = deadline - time.monotonic()
            if left <= 0:
                return "timeout", (out, err, proof)
            for key, _ in selector.select(min(left, 0.5)):
                if key.fileobj is writer:
                    try:
                        sent += writer.write(settings[sent : sent + 65536]) or 0
                    except BrokenPipeError:
                        sent = len(settings)  # the child is gone; its end says why
                    if sent >= len(settings):
                        selector.unregister(writer)
                        writer.close()
                    continue
                data = os.read(key.fd, 65536)
                kept[key.fd] += data
                if len(kept[key.fd]) > _OUTPUT_LIMIT:
                    del kept[key.fd][_OUTPUT_LIMIT:]
                    return "output_limit", (out, err, proof)
                if not data:
                    selector.unregister(key.fd)
                    del kept[key.fd]
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return "timeout", (out, err, proof)  # it closed its streams and runs on
    return None, (out, err, proof)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            process.kill()
        process.wait()


def _status(proof: str, token: str, returncode: int) -> Status:
    """What the child said under its token, or what its end tells."""
    said = {}
    for line in proof.splitlines():
        with contextlib.suppress(ValueError):  # the program may have written to the pipe as well
            entry = json.loads(line)
            if isinstance(entry, dict) and entry.get("token") == token:
                said[entry["status"]] = entry["detail"]
    if "setup" in said:
        raise AssayError(f"The program was not run: a layer of the sandbox failed ({said['setup']}).")
    if "locked" not in said:
        raise AssayError(
            f"The program was not run: its interpreter ended with code {returncode} before it was locked in."
        )
    for status in said:
        if status != "locked":
            return status
    if returncode == -signal.SIGXCPU:
        return "timeout"
    return "killed" if returncode < 0 else "exited"
