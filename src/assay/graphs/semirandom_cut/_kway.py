"""Partitions into k parts: recursive semi-random bisection with proportional targets, then pairwise refinement."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClusterMixin

from assay._core.errors import InputError
from assay._core.seeds import as_rng
from assay._shared.graphs import as_csr

__all__ = ["SemiRandomKWay"]


class SemiRandomKWay(ClusterMixin, BaseEstimator):
    r"""Partition of a graph into k non-empty parts of bounded weight with few edges between them.

    .. math:: \min_{P_1, \dots, P_k} \sum_{a < b} w(P_a, P_b) \quad\text{s.t.}\quad
              0 < w(P_a) \le L = (1 + \epsilon)\lceil w(V)/k \rceil

    Parameters
    ----------
    n_clusters : int
        Number of parts k, 2..n.
    imbalance : float, default 0.1
        :math:`\epsilon`: how far the heaviest part may exceed the average; >= 0 (the convention of METIS and KaHIP).
    n_components : int, default 8
        Dimension of the embeddings.
    n_iter : int, default 150
        Sweeps of the low-rank solver per split; >= 1.
    n_directions : int, default 20
        Random directions per rounding; >= 1.
    refine : bool, default True
        Fiduccia-Mattheyses inside every split and, at the end, between every pair of neighbouring parts.
    max_rounds : int, default 3
        Most rounds over the neighbouring pairs; a round without gain ends them earlier.
    random_state : int, Generator, RandomState or None, default None
        Seed.
    directed : {"error", "symmetrize"}, default "error"
        A directed networkx graph or an asymmetric matrix is refused, or both directions of an edge are added up.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        Part of each vertex, 0..n_clusters-1, none empty.
    edge_cut_ : float
        Weight of the edges between different parts, each once.
    part_weights_ : ndarray of shape (n_clusters,)
        Vertex weight of each part.
    imbalance_ : float
        Heaviest part divided by the average (rounded up for whole weights), minus 1; never above ``imbalance``.
    capacity_ : float
        L, the most that a part may weigh.
    names_ : ndarray of shape (n,)
        Vertex names in row order.

    Raises
    ------
    InputError
        ``n_clusters`` outside [2, n], negative ``imbalance``, ``sample_weight`` of wrong length or not positive, a
        vertex heavier than L, or vertex weights for which no packing within ``imbalance`` was found.

    Notes
    -----
    1. A split of k parts gives floor(k/2) and ceil(k/2) parts to its sides, with targets in that proportion. The room
       :math:`Lk/w` that is left is spread over the remaining levels: each may use its :math:`\lceil\log_2 k\rceil`-th root.
    2. With unit weights every bound is met by construction. With vertex weights the bounds form a bin-packing problem:
       parts that come out too heavy give vertices away where that costs the cut least.
    3. Refinement works on pairs of parts. Edges to third parts do not change when a vertex moves inside a pair, so the
       two-way kernel is exact there, and every single move is a move inside some pair.

    References
    ----------
    V. Cohen-Addad, T. d'Orsi, A. Mousavifar, ICML 2024 (arXiv 2406.04857). C. Fiduccia, R. Mattheyses, DAC 1982.

    Examples
    --------
    >>> import networkx as nx
    >>> ring = nx.ring_of_cliques(4, 6)
    >>> parts = SemiRandomKWay(4, random_state=0).fit(ring)
    >>> parts.edge_cut_, parts.part_weights_.tolist()
    (4.0, [6.0, 6.0, 6.0, 6.0])
    """

    def __init__(
        self,
        n_clusters: int,
        imbalance: float = 0.1,
        *,
        n_components: int = 8,
        n_iter: int = 150,
        n_directions: int = 20,
        refine: bool = True,
        max_rounds: int = 3,
        random_state: Any = None,
        directed: Literal["error", "symmetrize"] = "error",
    ) -> None:
        self.n_clusters = n_clusters
        self.imbalance = imbalance
        self.n_components = n_components
        self.n_iter = n_iter
        self.n_directions = n_directions
        self.refine = refine
        self.max_rounds = max_rounds
        self.random_state = random_state
        self.directed = directed

    def fit(self, W: Any, y: Any = None, sample_weight: Any = None) -> SemiRandomKWay:
        """Partition the graph.

        Parameters
        ----------
        W : sparse matrix or array of shape (n, n), or networkx graph
            Symmetric non-negative weights (see `directed`).
        y : ignored
        sample_weight : array of shape (n,), optional
            Positive vertex weights; default 1 each.

        Returns
        -------
        self
        """
        A, names = as_csr(W, directed=self.directed)
        n, k = A.shape[0], self.n_clusters
        if isinstance(k, bool) or int(k) != k or not 2 <= k <= n:
            raise InputError(f"n_clusters must be a whole number in [2, {n}] for {n} vertices, but it is {k}.")
        if not (np.isfinite(self.imbalance) and self.imbalance >= 0):
            raise InputError(f"imbalance must be a number >= 0, but it is {self.imbalance}.")
        weight = _vertex_weights(sample_weight, n)
        whole = bool((weight == np.round(weight)).all())
        average = float(weight.sum()) / k
        average = math.ceil(average - 1e-9) if whole else average  # 1e-9: a sum of whole numbers divided by k
        capacity = (1 + self.imbalance) * average * (1 + 1e-12)  # 1e-12: (1 + .1) * 10 must not fall below 11
        capacity = float(math.floor(capacity)) if whole else capacity
        if float(weight.max()) > capacity:
            at = int(np.argmax(weight))
            raise InputError(
                f"Vertex {names[at]} weighs {weight[at]:g}, more than a part may ({capacity:g}); "
                "raise imbalance or lower n_clusters."
            )
        unit = bool((weight == 1).all())
        rng = as_rng(self.random_state)
        labels = self._recurse(A, weight, int(k), capacity, unit, rng)
        labels = _repair(A, labels, weight, int(k), capacity)
        if self.refine:
            labels = _refine_pairs(A, labels, weight, int(k), capacity, self.max_rounds)
        self.labels_ = labels
        self.part_weights_ = np.bincount(labels, weights=weight, minlength=k)
        self.capacity_ = capacity
        self.imbalance_ = float(self.part_weights_.max() / average - 1)
        self.edge_cut_ = _edge_cut(A, labels)
        self.names_ = names
        return self

    def _recurse(
        self, A: sp.csr_array, weight: np.ndarray, k: int, capacity: float, unit: bool, rng: np.random.Generator
    ) -> np.ndarray:
        from ._bisection import _bisect

        labels = np.zeros(A.shape[0], dtype=np.int64)
        stack = [(np.arange(A.shape[0]), k, 0)]
        while stack:
            vertices, parts, first = stack.pop()
            if parts == 1:
                labels[vertices] = first
                continue
            if parts == len(vertices):
                labels[vertices] = first + np.arange(parts)
                continue
            sub = A if len(vertices) == A.shape[0] else A[vertices][:, vertices].tocsr()
            w = weight[vertices]
            low, high = _targets(w, parts, capacity, unit)
            side = _bisect(
                sub,
                low=low,
                high=high,
                sample_weight=None if unit else w,
                n_iter=self.n_iter,
                n_directions=self.n_directions,
                rng=rng,
                refine=self.refine,
            )
            side = _enough_vertices(np.asarray(side).astype(bool), w, parts // 2, parts - parts // 2)
            stack.append((vertices[~side], parts // 2, first))
            stack.append((vertices[side], parts - parts // 2, first + parts // 2))
        return labels


def _vertex_weights(sample_weight: Any, n: int) -> np.ndarray:
    if sample_weight is None:
        return np.ones(n)
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n,):
        raise InputError(f"sample_weight must hold {n} numbers, one per vertex, but its shape is {weight.shape}.")
    if not (np.isfinite(weight).all() and (weight > 0).all()):
        at = int(np.argmax(~(np.isfinite(weight) & (weight > 0))))
        raise InputError(f"sample_weight must be positive and finite, but entry {at} is {weight[at]:g}.")
    return weight


def _targets(weight: np.ndarray, parts: int, capacity: float, unit: bool) -> tuple[float, float]:
    """Least and largest share of side 1, which will be split into ceil(parts/2) parts."""
    k0, k1 = parts // 2, parts - parts // 2
    total = float(weight.sum())
    room = max(capacity * parts / total, 1.0) ** (1 / math.ceil(math.log2(parts)))
    if not unit:
        return max(1 - room * k0 / parts, 0.0), min(room * k1 / parts, 1.0)
    n, each = len(weight), int(capacity)
    # the rounded proportional split always lies within all bounds, so that the window is never empty
    most0 = min(n - k1, k0 * each, max(math.floor(room * k0 * n / parts), math.floor(k0 * n / parts)))
    most1 = min(n - k0, k1 * each, max(math.floor(room * k1 * n / parts), math.ceil(k1 * n / parts)))
    # a hundredth of a vertex keeps the whole-number bounds safe from the rounding of the division
    return (n - most0 - 0.01) / n, (most1 + 0.01) / n


def _enough_vertices(side: np.ndarray, weight: np.ndarray, need0: int, need1: int) -> np.ndarray:
    """Give each side at least as many vertices as parts (only vertex weights can make that necessary): the lightest move."""
    side = side.copy()
    for hand, need in ((False, need0), (True, need1)):
        short = need - int((side == hand).sum())
        if short > 0:
            other = np.flatnonzero(side != hand)
            side[other[np.argsort(weight[other], kind="stable")[:short]]] = hand
    return side


def _edge_cut(A: sp.csr_array, labels: np.ndarray) -> float:
    row = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    return float(A.data[labels[row] != labels[A.indices]].sum() / 2)


def _repair(A: sp.csr_array, labels: np.ndarray, weight: np.ndarray, k: int, capacity: float) -> np.ndarray:
    """Bring every part within the capacity: overfull parts give vertices away where the cut grows least."""
    labels = labels.copy()
    load = np.bincount(labels, weights=weight, minlength=k).astype(np.float64)
    count = np.bincount(labels, minlength=k)
    tolerance = 1e-9 * capacity  # rounding of sums of real weights
    # each step moves weight out of an overfull part into a part that stays within the capacity: no step is undone
    while (load > capacity + tolerance).any():
        over = int(np.argmax(load))
        members = np.flatnonzero(labels == over)
        membership = sp.csr_array((np.ones(len(labels)), (np.arange(len(labels)), labels)), shape=(len(labels), k))
        link = (A[members] @ membership).toarray()  # members x k: the weight of each member's edges to each part
        loss = link[:, [over]] - link
        loss[weight[members][:, None] + load[None, :] > capacity + tolerance] = np.inf
        loss[:, over] = np.inf
        if count[over] == 1 or not np.isfinite(loss).any():
            break
        i, target = divmod(int(np.argmin(loss / weight[members][:, None])), k)
        v = members[i]
        labels[v] = target
        load[over] -= weight[v]
        load[target] += weight[v]
        count[over] -= 1
        count[target] += 1
    if (load <= capacity + tolerance).all():
        return labels
    # heaviest first into the lightest part: the best simple packing when single moves are stuck
    load[:] = 0.0
    for v in np.argsort(-weight, kind="stable"):
        target = int(np.argmin(load))
        labels[v] = target
        load[target] += weight[v]
    if (load > capacity + tolerance).any():
        raise InputError(
            f"No partition of these vertex weights into {k} parts of at most {capacity:g} was found "
            f"(the best packing needs {load.max():g}); raise imbalance."
        )
    return labels


def _refine_pairs(
    A: sp.csr_array, labels: np.ndarray, weight: np.ndarray, k: int, capacity: float, max_rounds: int
) -> np.ndarray:
    """Two-way refinement of every pair of parts that share edges, heaviest border first, while that gains."""
    from ._refine import fm_refine

    labels = labels.copy()
    unit = bool((weight == 1).all())
    fresh = np.ones(k, dtype=bool)  # parts that changed since their pairs were last refined
    for _ in range(max_rounds):
        row = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
        a, b = labels[row], labels[A.indices]
        border = sp.coo_array((A.data[a < b], (a[a < b], b[a < b])), shape=(k, k)).tocsr().tocoo()
        order = np.argsort(-border.data, kind="stable")
        changed = np.zeros(k, dtype=bool)
        for p, q in zip(border.row[order].tolist(), border.col[order].tolist(), strict=True):
            if not (fresh[p] or fresh[q]):
                continue
            vertices = np.flatnonzero((labels == p) | (labels == q))
            w = weight[vertices]
            total = float(w.sum())
            side = (labels[vertices] == q).astype(np.int64)
            # at least the lightest vertex stays on each side: no part becomes empty
            least = max(total - capacity, float(w.min()))
            slack = 0.01 if unit else 1e-9 * capacity  # rounding of sums of real weights
            sub = A[vertices][:, vertices].tocsr()
            new = np.asarray(
                fm_refine(sub, side, least - slack, total - least + slack, sample_weight=None if unit else w)
            ).astype(np.int64)
            gained = _edge_cut(sub, side) - _edge_cut(sub, new)
            load = float(w[new == 1].sum())
            legal = max(load, total - load) <= capacity + slack and 0 < int(new.sum()) < len(new)
            if gained > 0 and legal:
                labels[vertices] = np.where(new == 1, q, p)
                changed[[p, q]] = True
        if not changed.any():
            break
        fresh = changed
    return labels
