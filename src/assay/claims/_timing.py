"""Helpers for experiments: timing two things fairly, and what keeps arms paired."""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


def _synchronise() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()  # kernels are asynchronous: without it only the launch would be timed


def _block(call: Callable[[], Any], number: int) -> float:
    _synchronise()
    began = time.perf_counter()
    for _ in range(number):
        call()
    _synchronise()
    return (time.perf_counter() - began) / number


def interleaved(
    ours: Callable[[], Any], theirs: Callable[[], Any], repeats: int = 5, *, warmup: int = 1, block_s: float = 0.02
) -> dict[str, Any]:
    """Time two calls in one process in the order A B B A, so that drift of the machine hits both alike.

    Parameters
    ----------
    ours, theirs : callable
        Without arguments; each must do its whole work when called.
    repeats : int, default 5
        Rounds of A B B A.
    warmup : int, default 1
        Untimed calls of each before (compilation, caches).
    block_s : float, default 0.02 s
        A call shorter than this is repeated inside a block, so that the clock's resolution does not matter.

    Returns
    -------
    dict
        ``ours_seconds``, ``theirs_seconds`` (medians per call), ``ratio`` (theirs/ours, the median over rounds: above 1
        when ours is faster) and ``ratios`` (per round). Only ratios are worth claiming.

    Examples
    --------
    >>> found = interleaved(lambda: sum(range(100)), lambda: sum(range(100_000)), repeats=3)
    >>> found["ratio"] > 10
    True
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}")
    for _ in range(warmup):
        ours()
        theirs()
    numbers = [max(1, int(block_s / max(_block(call, 1), 1e-9))) for call in (ours, theirs)]
    mine: list[float] = []
    others: list[float] = []
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()  # a collection would fall into one side's block by chance
    try:
        for _ in range(repeats):
            first = _block(ours, numbers[0])
            others += [_block(theirs, numbers[1]), _block(theirs, numbers[1])]
            mine += [first, _block(ours, numbers[0])]
    finally:
        if enabled:
            gc.enable()
    ratios = [(others[2 * i] + others[2 * i + 1]) / (mine[2 * i] + mine[2 * i + 1]) for i in range(repeats)]
    return {
        "ours_seconds": statistics.median(mine),
        "theirs_seconds": statistics.median(others),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
    }


def stream(seed: int, arm: str = "") -> np.random.Generator:
    """Return a generator for one arm of a cell, or (without `arm`) the one that all arms of a pair share.

    Data splits and initial weights come from the shared one, so that arms are paired; what an arm draws on its own
    (noise, exploration) comes from its own, so that one arm's consumption cannot shift another's.

    Parameters
    ----------
    seed : int
        The cell's seed.
    arm : str, optional
        The arm's name; empty for the shared stream.

    Returns
    -------
    numpy.random.Generator
        The same numbers for the same seed and arm, in every process.
    """
    import numpy as np

    # Keyed by the bytes of the name: stable between processes, unlike hash().
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=tuple(arm.encode())))


def fingerprint(*arrays: Any) -> str:
    """Return a hash of arrays, tensors or sparse matrices, for the ``same_<name>`` keys that arms of a pair must share.

    Parameters
    ----------
    *arrays : array-like
        What must be equal, in a fixed order.

    Returns
    -------
    str
        Equal for equal values, types and shapes.

    Examples
    --------
    >>> fingerprint([1.0, 2.0]) == fingerprint([1.0, 2.0]), fingerprint([1.0, 2.0]) == fingerprint([2.0, 1.0])
    (True, False)
    """
    import hashlib

    import numpy as np

    digest = hashlib.sha256()
    for array in arrays:
        if hasattr(array, "indptr"):
            parts = [array.data, array.indices, array.indptr, array.shape]
        else:
            parts = [array.detach().cpu() if hasattr(array, "detach") else array]
        for part in parts:
            plain = np.ascontiguousarray(part)
            digest.update(f"{plain.dtype} {plain.shape} ".encode() + plain.tobytes())
    return digest.hexdigest()[:16]
