"""Heavy vertices: balls of the embedding that hold many vertices are cut off as clusters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from assay._core.errors import InputError
from assay._core.seeds import as_rng

from ._packing import subset_sum
from ._rounding import _as_csr, sweep_profile

__all__ = ["contract", "pack_clusters", "remove_heavy"]

RADII = 16  # radii tried in [delta, 2 delta], as in the analysis of region growing


def _squared_distances(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return np.maximum((A * A).sum(1)[:, None] + (B * B).sum(1)[None, :] - 2 * A @ B.T, 0.0)


def remove_heavy(V: np.ndarray, W: Any, delta: float, random_state: Any = None) -> np.ndarray:
    r"""Cut off the balls around heavy vertices.

    A vertex u is heavy if :math:`|\{j : |v_u - v_j|^2 \le \delta\}| \ge \delta^2 n`.

    Parameters
    ----------
    V : ndarray of shape (n, k)
        Embedding; the rows of the relaxation have length 1.
    W : sparse matrix, array or networkx Graph of n vertices
        Symmetric, non-negative.
    delta : float
        Squared radius, in (0, 1].
    random_state : None, int, Generator or RandomState
        Seed of the samples that estimate ball sizes.

    Returns
    -------
    ndarray of shape (n,), int64
        Cluster of each vertex, -1 for the rest; clusters are numbered in the order in which they were removed.

    Notes
    -----
    1. Ball sizes are estimated with min(2000, ceil(8 ln n / delta^2)) candidates against a second sample of that
       size; a candidate is confirmed by an exact count before its ball is removed.
    2. Among 16 radii in [delta, 2 delta] the ball with the lightest boundary inside the rest is taken.

    References
    ----------
    arXiv 2406.04857, section 4 (removal of heavy vertices).

    Examples
    --------
    >>> import numpy as np
    >>> from assay.graphs.semirandom_cut import remove_heavy
    >>> V = np.repeat(np.eye(2), 3, axis=0)
    >>> remove_heavy(V, np.ones((6, 6)) - np.eye(6), 0.5, random_state=0).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    W = W if isinstance(W, sp.csr_array) else sp.csr_array(_as_csr(W))
    V = np.asarray(V, dtype=np.float64)
    n = W.shape[0]
    if V.ndim != 2 or V.shape[0] != n:
        raise InputError(f"remove_heavy: V must have one row per vertex ({n}), got shape {V.shape}.")
    if not 0 < delta <= 1:
        raise InputError(f"remove_heavy: delta must lie in (0, 1], got {delta}.")
    rng = as_rng(random_state)
    size = min(2000, math.ceil(8 * math.log(max(n, 2)) / delta**2))
    candidates = np.arange(n) if size >= n else rng.choice(n, size, replace=False)
    others = np.arange(n) if size >= n else rng.choice(n, size, replace=False)
    near = (_squared_distances(V[candidates], V[others]) <= delta).mean(axis=1)
    order = np.argsort(-near, kind="stable")
    cluster = np.full(n, -1, dtype=np.int64)
    count = 0
    threshold = delta**2 * n
    # half the threshold: an estimate may be low by chance, the exact count decides
    for u in candidates[order[near[order] >= 0.5 * delta**2]]:
        if cluster[u] >= 0:
            continue
        rest = np.flatnonzero(cluster < 0)
        if rest.size < threshold:
            break
        distance = np.maximum(((V[rest] - V[u]) ** 2).sum(axis=1), 0.0)
        if np.count_nonzero(distance <= delta) < threshold:
            continue
        inside = W if rest.size == n else W[rest][:, rest]
        by_distance = np.argsort(distance, kind="stable")
        boundary = sweep_profile(inside, by_distance)
        ends = np.searchsorted(distance[by_distance], np.linspace(delta, 2 * delta, RADII), side="right")
        best = int(ends[boundary[ends - 1].argmin()])
        cluster[rest[by_distance[:best]]] = count
        count += 1
    return cluster


def contract(W: sp.csr_array, group: np.ndarray, vw: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
    """Merge the vertices of each group 0..g-1; returns the graph without self-loops and the summed weights."""
    g = int(group.max()) + 1
    S = sp.csr_array((np.ones(group.size), (np.arange(group.size), group)), shape=(group.size, g))
    merged = sp.csr_array(S.T @ W @ S)
    merged.setdiag(0)
    merged.eliminate_zeros()
    merged.sort_indices()
    return merged, np.bincount(group, vw, g)


def pack_clusters(W: sp.csr_array, cluster: np.ndarray, vw: np.ndarray, low: float, high: float) -> np.ndarray | None:
    """Put whole clusters on two sides: largest first on the lighter side, then swaps that lower the cut.

    Parameters
    ----------
    W : csr_array
        The graph.
    cluster : ndarray of shape (n,)
        Cluster 0..c-1 of each vertex.
    vw : ndarray of shape (n,)
        Vertex weights.
    low, high : float
        Window of the weight of side 1.

    Returns
    -------
    ndarray of shape (n,), or None when no packing fits the window
    """
    merged, weight = contract(W, cluster, vw)
    c = weight.size
    target = (low + high) / 2
    side = np.zeros(c, dtype=np.int64)
    w0 = w1 = 0.0
    for i in np.argsort(-weight, kind="stable"):
        if target - w1 >= (weight.sum() - target) - w0:  # side 1 lacks more of its target
            side[i], w1 = 1, w1 + weight[i]
        else:
            w0 += weight[i]
    if not low <= w1 <= high:
        chosen = subset_sum(weight, low, high)
        if chosen is None:
            return None
        side = chosen.astype(np.int64)
        w1 = float(weight[chosen].sum())
    for _ in range(20):  # swaps converge in a few rounds; few clusters, so a dense scan is cheap
        gain = _gains(merged, side)
        best, pair = 1e-9, None
        ones, zeros = np.flatnonzero(side == 1), np.flatnonzero(side == 0)
        ones, zeros = ones[np.argsort(-gain[ones])[:40]], zeros[np.argsort(-gain[zeros])[:40]]
        for i in ones:
            for j in zeros:
                after = w1 - weight[i] + weight[j]
                improvement = gain[i] + gain[j] - 2 * merged[i, j]
                if low <= after <= high and improvement > best:
                    best, pair = improvement, (i, j)
        if pair is None:
            break
        w1 += weight[pair[1]] - weight[pair[0]]
        side[pair[0]], side[pair[1]] = 0, 1
    return side[cluster]


def _gains(W: sp.csr_array, side: np.ndarray) -> np.ndarray:
    """Fall of the cut when a vertex changes its side."""
    sign = 1.0 - 2.0 * side
    return -sign * (W @ sign)
