"""Both sides connected: stray pieces change sides, then leaves of a spanning tree restore the balance."""

from __future__ import annotations

import heapq

import numpy as np
import scipy.sparse as sp
import scipy.sparse.csgraph as csgraph

__all__ = ["connect", "is_connected_split"]


def _pieces(W: sp.csr_array, members: np.ndarray) -> np.ndarray:
    return csgraph.connected_components(sp.csr_matrix(W[members][:, members]), directed=False)[1]


def is_connected_split(W: sp.csr_array, labels: np.ndarray) -> bool:
    """Say whether both sides are non-empty connected subgraphs."""
    for side in (0, 1):
        members = np.flatnonzero(labels == side)
        if members.size == 0 or _pieces(W, members).max() > 0:
            return False
    return True


def _absorb_strays(W: sp.csr_array, labels: np.ndarray, vw: np.ndarray, pinned: np.ndarray) -> bool:
    """Give every piece but the heaviest (or the pinned one) of a side to the other side, in place."""
    for _ in range(20):  # pieces merge with every round; two or three rounds are the rule
        changed = False
        for side in (0, 1):
            members = np.flatnonzero(labels == side)
            if members.size == 0:
                return False
            piece = _pieces(W, members)
            if piece.max() == 0:
                continue
            held = np.unique(piece[pinned[members] == side])
            if held.size > 1:
                return False
            main = int(held[0]) if held.size else int(np.bincount(piece, vw[members]).argmax())
            labels[members[piece != main]] = 1 - side
            changed = True
        if not changed:
            return True
    return False


def _shrink(
    W: sp.csr_array, labels: np.ndarray, vw: np.ndarray, side: int, least: float, most: float, pinned: np.ndarray
) -> bool:
    """Move vertices off `side` until it weighs at most `most` (never below `least`), keeping both sides connected.

    A leaf of a spanning tree of the side that touches the other side can always go; the cheapest goes first.
    """
    indptr, indices, data = W.indptr, W.indices, W.data
    weight = float(vw[labels == side].sum())
    for _ in range(8):  # another root opens other leaves
        if weight <= most:
            return True
        members = np.flatnonzero(labels == side)
        place = np.full(labels.size, -1, dtype=np.int64)
        place[members] = np.arange(members.size)
        inner = sp.csr_matrix(W[members][:, members])
        kept = np.flatnonzero(pinned[members] == side)
        touching = np.asarray(W[members] @ (labels != side).astype(np.float64)).ravel()
        # the root is never a leaf: a pinned vertex, or the one deepest inside
        root = int(kept[0]) if kept.size else int(touching.argmin())
        if not kept.size:
            order = csgraph.breadth_first_order(inner, int(touching.argmax()), return_predecessors=False)
            root = int(order[-1])
        _, parent = csgraph.breadth_first_order(inner, root)
        children = np.bincount(parent[parent >= 0], minlength=members.size)
        external = touching.copy()
        internal = np.asarray(inner.sum(axis=1)).ravel()
        gone = np.zeros(members.size, dtype=bool)
        heap = [(internal[i] - external[i], i) for i in range(members.size) if children[i] == 0 and external[i] > 0]
        heapq.heapify(heap)
        moved = False
        while heap and weight > most:
            cost, i = heapq.heappop(heap)
            v = members[i]
            if gone[i] or cost != internal[i] - external[i] or i == root or weight - vw[v] < least:
                continue
            gone[i] = moved = True
            labels[v] = 1 - side
            weight -= float(vw[v])
            up = int(parent[i])
            for p in range(indptr[v], indptr[v + 1]):
                j = int(place[indices[p]])
                if j >= 0 and not gone[j]:
                    internal[j] -= data[p]
                    external[j] += data[p]
                    if children[j] == 0:
                        heapq.heappush(heap, (internal[j] - external[j], j))
            children[up] -= 1
            if children[up] == 0 and external[up] > 0:
                heapq.heappush(heap, (internal[up] - external[up], up))
        if not moved:
            return weight <= most
    return weight <= most


def connect(
    W: sp.csr_array, labels: np.ndarray, vw: np.ndarray, low: float, high: float, pinned: np.ndarray
) -> np.ndarray | None:
    """Turn a split into one with two connected sides inside the weight window.

    Parameters
    ----------
    W : csr_array
        Symmetric graph.
    labels : ndarray
        Sides 0/1.
    vw : ndarray
        Vertex weights.
    low, high : float
        Window of the weight of side 1.
    pinned : ndarray
        -1 free, else the side that a vertex must have.

    Returns
    -------
    ndarray, or None when the repair finds no such split
    """
    labels = labels.copy()
    held = pinned >= 0
    labels[held] = pinned[held]
    if not _absorb_strays(W, labels, vw, pinned):
        return None
    total = float(vw.sum())
    w1 = float(vw[labels == 1].sum())
    slack = 1e-9 * total
    if w1 > high + slack:
        _shrink(W, labels, vw, 1, low - slack, high + slack, pinned)
    elif w1 < low - slack:
        _shrink(W, labels, vw, 0, total - high - slack, total - low + slack, pinned)
    w1 = float(vw[labels == 1].sum())
    if not low - slack <= w1 <= high + slack or not is_connected_split(W, labels):
        return None
    return labels
