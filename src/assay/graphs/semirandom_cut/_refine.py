"""Fiduccia-Mattheyses refinement inside a hard weight window."""

from __future__ import annotations

import heapq

import numpy as np
import scipy.sparse as sp

from assay._core.errors import InputError
from assay._shared.accel import njit

__all__ = ["fm_refine"]

OBJECTIVES = {"cut": 0, "bisection": 0, "sparsest": 1, "conductance": 2}


def index_arrays(W: sp.csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Row pointers and columns in one integer type, so that every kernel compiles once."""
    kind = np.int32 if W.nnz < 2**31 else np.int64
    return np.asarray(W.indptr, dtype=kind), np.asarray(W.indices, dtype=kind)


@njit
def _fm(indptr, indices, data, side, vw, mass, locked, low, high, max_passes, objective, levels, patience):
    """Passes of single-vertex moves with rollback to the best prefix, in place; returns the number of passes.

    levels > 0: gains are integers of at most that size and sit in buckets; 0: gains are reals and sit in heaps.
    objective: 0 cut, 1 cut / (m0 m1), 2 cut / min(m0, m1) with m the side's sum of `mass`.
    """
    n = side.size
    gain = np.empty(n)
    free = np.empty(n, dtype=np.bool_)
    moved = np.empty(n, dtype=np.int64)
    width = 2 * levels + 1
    head = np.empty((2, width), dtype=np.int64)
    after = np.empty(n, dtype=np.int64)
    before = np.empty(n, dtype=np.int64)
    top = np.empty(2, dtype=np.int64)
    heap0 = [(0.0, 0)]
    heap1 = [(0.0, 0)]
    total_mass = mass.sum()
    heaviest = vw.max()
    mean_weight = vw.mean()
    # A window narrower than two vertices would forbid every single move: let the pass leave it by one vertex.
    slack = heaviest if high - low < 2 * heaviest else 0.0
    passes = 0
    eps = 1e-9
    for _ in range(max_passes):
        passes += 1
        cut = 0.0
        w1 = 0.0
        m1 = 0.0
        for v in range(n):
            g = 0.0
            for p in range(indptr[v], indptr[v + 1]):
                if side[indices[p]] == side[v]:
                    g -= data[p]
                else:
                    g += data[p]
                    cut += data[p]
            gain[v] = g
            free[v] = not locked[v]
            if side[v] == 1:
                w1 += vw[v]
                m1 += mass[v]
        cut /= 2.0
        if levels > 0:
            for s in range(2):
                top[s] = -1
                for j in range(width):
                    head[s, j] = -1
            for v in range(n):
                if free[v]:
                    s = side[v]
                    j = int(gain[v]) + levels
                    after[v] = head[s, j]
                    before[v] = -1
                    if head[s, j] >= 0:
                        before[head[s, j]] = v
                    head[s, j] = v
                    if j > top[s]:
                        top[s] = j
        else:
            heap0.clear()
            heap1.clear()
            for v in range(n):
                if free[v]:
                    if side[v] == 0:
                        heap0.append((-gain[v], v))
                    else:
                        heap1.append((-gain[v], v))
            heapq.heapify(heap0)
            heapq.heapify(heap1)
        best_excess = max(0.0, low - w1, w1 - high)
        start_excess = best_excess
        if objective == 0:
            best = cut
        elif objective == 1:
            best = cut / max(m1 * (total_mass - m1), 1e-300)
        else:
            best = cut / max(min(m1, total_mass - m1), 1e-300)
        start = best
        tol = eps * max(1.0, abs(best)) if objective == 0 else eps * best
        count = 0
        best_count = 0
        while count - best_count <= patience:
            excess = max(0.0, low - w1, w1 - high)
            chosen = -1
            chosen_gain = 0.0
            for s in range(2):
                while True:
                    v = -1
                    if levels > 0:
                        while top[s] >= 0 and head[s, top[s]] < 0:
                            top[s] -= 1
                        if top[s] >= 0:
                            v = head[s, top[s]]
                    elif s == 0:
                        while len(heap0) > 0:
                            if free[heap0[0][1]] and -heap0[0][0] == gain[heap0[0][1]]:
                                v = heap0[0][1]
                                break
                            heapq.heappop(heap0)
                    else:
                        while len(heap1) > 0:
                            if free[heap1[0][1]] and -heap1[0][0] == gain[heap1[0][1]]:
                                v = heap1[0][1]
                                break
                            heapq.heappop(heap1)
                    if v < 0:
                        break
                    w = w1 + vw[v] if s == 0 else w1 - vw[v]
                    if max(0.0, low - w, w - high) <= max(slack, excess - eps):
                        heavier = (w1 > 0.5 * (low + high)) == (s == 1)
                        if chosen < 0 or gain[v] > chosen_gain or (gain[v] == chosen_gain and heavier):
                            chosen = v
                            chosen_gain = gain[v]
                        break
                    if vw[v] <= 2.0 * mean_weight:
                        break  # the side is full for ordinary vertices: it may open again later
                    # one heavy vertex at the top must not block the light ones below it
                    free[v] = False
                    if levels > 0:
                        head[s, top[s]] = after[v]
                        if after[v] >= 0:
                            before[after[v]] = -1
            if chosen < 0:
                break
            v = chosen
            s = side[v]
            free[v] = False
            if levels > 0:
                j = int(gain[v]) + levels
                if before[v] >= 0:
                    after[before[v]] = after[v]
                else:
                    head[s, j] = after[v]
                if after[v] >= 0:
                    before[after[v]] = before[v]
            side[v] = 1 - s
            cut -= gain[v]
            if s == 0:
                w1 += vw[v]
                m1 += mass[v]
            else:
                w1 -= vw[v]
                m1 -= mass[v]
            moved[count] = v
            count += 1
            for p in range(indptr[v], indptr[v + 1]):
                u = np.int64(indices[p])
                change = -2.0 * data[p] if side[u] == side[v] else 2.0 * data[p]
                if free[u]:
                    r = side[u]
                    if levels > 0:
                        j = int(gain[u]) + levels
                        if before[u] >= 0:
                            after[before[u]] = after[u]
                        else:
                            head[r, j] = after[u]
                        if after[u] >= 0:
                            before[after[u]] = before[u]
                        gain[u] += change
                        j = int(gain[u]) + levels
                        after[u] = head[r, j]
                        before[u] = -1
                        if head[r, j] >= 0:
                            before[head[r, j]] = u
                        head[r, j] = u
                        if j > top[r]:
                            top[r] = j
                    else:
                        gain[u] += change
                        if r == 0:
                            heapq.heappush(heap0, (-gain[u], u))
                        else:
                            heapq.heappush(heap1, (-gain[u], u))
                else:
                    gain[u] += change
            if objective == 0:
                value = cut
            elif objective == 1:
                value = cut / max(m1 * (total_mass - m1), 1e-300)
            else:
                value = cut / max(min(m1, total_mass - m1), 1e-300)
            excess = max(0.0, low - w1, w1 - high)
            if excess < best_excess - eps or (excess <= best_excess + eps and value < best - tol):
                best_excess = excess
                best = value
                best_count = count
        for q in range(best_count, count):
            side[moved[q]] = 1 - side[moved[q]]
        if best_count == 0 or (start_excess - best_excess <= eps and start - best <= tol):
            break
    return passes


def fm_refine(
    W: sp.csr_array,
    labels: np.ndarray,
    low: float,
    high: float,
    sample_weight: np.ndarray | None = None,
    max_passes: int = 10,
    *,
    mass: np.ndarray | None = None,
    locked: np.ndarray | None = None,
    objective: str = "cut",
) -> np.ndarray:
    """Move single vertices while the objective falls and side 1 weighs between `low` and `high`.

    Parameters
    ----------
    W : csr_array of shape (n, n)
        Symmetric, non-negative, without self-loops.
    labels : ndarray of shape (n,)
        Sides 0/1 at the start. A start outside the window is first brought nearer to it.
    low, high : float
        Window for the weight of side 1, in units of `sample_weight`.
    sample_weight : ndarray, default None
        Vertex weights, ones by default.
    max_passes : int, default 10
        Most passes; a pass that gains nothing ends the refinement.
    mass : ndarray, default None
        Vertex masses of the ratio objectives (`sample_weight` by default; degrees for the conductance).
    locked : ndarray of bool, default None
        Vertices that stay.
    objective : {"cut", "bisection", "sparsest", "conductance"}
        What a prefix of moves is judged by.

    Returns
    -------
    ndarray of shape (n,), int64
        New sides; never worse than the start where the start is inside the window.

    Notes
    -----
    1. Integer weights use gain buckets, others a heap with lazy deletion.
    2. A pass ends after max(200, n / 20) moves without a new best: later prefixes practically never win.
    """
    n = W.shape[0]
    side = np.ascontiguousarray(labels, dtype=np.int64).copy()
    if side.shape != (n,):
        raise InputError(f"fm_refine: labels has shape {side.shape}, the graph has {n} vertices.")
    vw = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    m = vw if mass is None else np.asarray(mass, dtype=np.float64)
    fixed = np.zeros(n, dtype=np.bool_) if locked is None else np.asarray(locked, dtype=np.bool_)
    data = np.asarray(W.data, dtype=np.float64)
    peak = float(np.asarray(W.sum(axis=1)).max()) if n else 0.0
    # Buckets cost one scan of their range per pass; beyond a few n the heap is cheaper.
    integer = bool(np.all(data == np.rint(data))) and peak <= 4 * n + 1000
    levels = max(1, int(peak)) if integer else 0
    patience = max(200, n // 20)
    _fm(
        *index_arrays(W),
        data,
        side,
        vw,
        m,
        fixed,
        float(low),
        float(high),
        int(max_passes),
        OBJECTIVES[objective],
        levels,
        patience,
    )
    return side
