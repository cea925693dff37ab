"""Pendant trees, cliques and hubs: what an adversary may have added, and what it does to a spectral cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
import scipy.sparse.csgraph as csgraph

from ._rounding import best_prefixes, fiedler_vectors, prefix_labels, window

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["core_numbers", "explain", "find_cliques", "find_hubs", "find_pendant_trees"]


def core_numbers(W: sp.csr_array) -> np.ndarray:
    """Core number of every vertex (unweighted), by removing rounds of vertices of least degree."""
    degree = np.diff(W.indptr).astype(np.int64)
    core = np.zeros(degree.size, dtype=np.int64)
    alive = np.ones(degree.size, dtype=bool)
    level = 0
    while alive.any():
        level = max(level, int(degree[alive].min()))
        while True:
            peel = np.flatnonzero(alive & (degree <= level))
            if peel.size == 0:
                break
            core[peel] = level
            alive[peel] = False
            np.subtract.at(degree, W[peel].indices, 1)
    return core


def find_pendant_trees(W: sp.csr_array) -> np.ndarray:
    """Mask of vertices outside the 2-core that hang on it (or form trees of their own)."""
    return core_numbers(W) < 2


def find_cliques(W: sp.csr_array, least: int) -> list[np.ndarray]:
    """Disjoint cliques of at least `least` vertices, greedily from the densest core downwards."""
    core = core_numbers(W)
    taken = np.zeros(core.size, dtype=bool)
    cliques = []
    neighbours: dict[int, frozenset[int]] = {}

    def around(v: int) -> frozenset[int]:
        if v not in neighbours:
            neighbours[v] = frozenset(W.indices[W.indptr[v] : W.indptr[v + 1]].tolist())
        return neighbours[v]

    for v in np.argsort(-core, kind="stable"):
        # a clique of s vertices lies in the (s - 1)-core
        if core[v] < least - 1:
            break
        if taken[v]:
            continue
        pool = {u for u in around(int(v)) if not taken[u] and core[u] >= least - 1}
        members = [int(v)]
        while pool:
            # the candidate with most ties inside the pool; the number breaks ties for determinism
            u = max(pool, key=lambda x: (len(pool & around(x)), -x))
            members.append(u)
            pool &= around(u)
        if len(members) >= least:
            clique = np.array(sorted(members))
            taken[clique] = True
            cliques.append(clique)
    return cliques


def find_hubs(W: sp.csr_array) -> np.ndarray:
    """Vertices whose degree lies beyond the upper quartile by ten interquartile ranges (at least ten edges)."""
    degree = np.diff(W.indptr)
    low, high = np.percentile(degree, [25, 75])
    return np.flatnonzero(degree > high + 10 * max(high - low, 1.0))


def _spectral_cut(W: sp.csr_array, balance: float, rng: np.random.Generator) -> tuple[float, np.ndarray, np.ndarray]:
    """(balanced Fiedler sweep cut, labels, Fiedler vector) on the largest component."""
    label = csgraph.connected_components(sp.csr_matrix(W), directed=False)[1]
    members = np.flatnonzero(label == np.bincount(label).argmax())
    inner = sp.csr_array(W[members][:, members])
    vector, labels = np.zeros(W.shape[0]), np.zeros(W.shape[0], dtype=np.int64)
    if members.size < 2:
        return 0.0, labels, vector
    score = fiedler_vectors(inner, rng)[:, 0]
    vector[members] = score
    ones = np.ones(members.size)
    low, high = window(ones, balance)
    size, value, suffix, order, _ = best_prefixes(inner, score[None, :], ones, low, high, mass=ones)[0]
    labels[members] = prefix_labels(order, size, suffix)
    return float(value), labels, vector


def explain(W: sp.csr_array, balance: float, rng: np.random.Generator, least: int) -> pd.DataFrame:
    """Table of structures and of their share in the spectral cut; see `SemiRandomBisection.explain_adversary`."""
    import pandas as pd

    n = W.shape[0]
    streams = rng.spawn(5)
    trees = find_pendant_trees(W)
    roots = csgraph.connected_components(sp.csr_matrix(W[np.flatnonzero(trees)][:, np.flatnonzero(trees)]))[0]
    cliques = find_cliques(W, least)
    in_clique = np.zeros(n, dtype=bool)
    for clique in cliques:
        in_clique[clique] = True
    hubs = find_hubs(W)
    is_hub = np.zeros(n, dtype=bool)
    is_hub[hubs] = True
    cut, labels, vector = _spectral_cut(W, balance, streams[0])
    degree = np.asarray(W.sum(axis=1)).ravel()
    energy = degree * vector**2  # squared entries of the eigenvector of the normalised Laplacian
    ones = labels == 1
    # the side that the sharp end of the vector singles out: a tenth of the vertices with the largest entries
    sharp = np.argsort(-np.abs(vector), kind="stable")[: max(1, n // 10)]
    rows = []
    masks = [
        ("pendant trees", trees, int(roots) if trees.any() else 0),
        ("cliques", in_clique, len(cliques)),
        ("hubs", is_hub, hubs.size),
        ("all three", trees | in_clique | is_hub, 0),
    ]
    masks[-1] = (*masks[-1][:2], sum(m[2] for m in masks[:-1]))
    upper = sp.coo_array(sp.triu(W, k=1))
    crossing = ones[upper.row] != ones[upper.col]
    for (name, mask, count), stream in zip(masks, streams[1:], strict=True):
        touched = mask[upper.row] | mask[upper.col]
        rest = np.flatnonzero(~mask)
        without = _spectral_cut(sp.csr_array(W[rest][:, rest]), balance, stream)[0] if rest.size > 2 else np.nan
        rows.append(
            {
                "structure": name,
                "count": count,
                "vertices": int(mask.sum()),
                "edges": int(touched.sum()),
                "fiedler_mass": float(energy[mask].sum() / max(energy.sum(), 1e-300)),
                "fiedler_peak": float(mask[sharp].mean()),
                "cut_edges": float(touched[crossing].mean()) if crossing.any() else 0.0,
                "spectral_cut_without": without,
            }
        )
    table = pd.DataFrame(rows)
    table.attrs["spectral_cut"] = cut
    return table
