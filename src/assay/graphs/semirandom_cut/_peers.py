"""What others would cut on the same graph: spectral methods, Kernighan-Lin, chance; METIS and KaHIP where installed."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import eigsh

__all__ = ["KERNIGHAN_LIN_UP_TO", "PEER_PACKAGES", "RANDOM", "peer_partitions"]

# module: the name that a report shows, and the package that brings it
PEER_PACKAGES = {"pymetis": ("METIS", "pymetis"), "kahip": ("KaHIP", "kahip")}

# METIS and KaHIP take 32-bit whole weights. 2^31 divided by the total keeps every sum that they form representable.
_INT32 = 2**31 - 1
# kaffpa "strong" needs about 1 ms per vertex; beyond this "eco" keeps a comparison within a minute.
_STRONG_UP_TO = 50_000
# scikit-learn's SpectralClustering needs minutes beyond this (its ARPACK shift-invert factorises the graph).
_SKLEARN_UP_TO = 20_000
# networkx moves vertices in Python loops: half a second at 5,000 vertices, six at 20,000, growing with their square.
KERNIGHAN_LIN_UP_TO = 5_000
RANDOM = "random cut"


def peer_partitions(
    W: sp.csr_array,
    parts: int,
    *,
    balance: float,
    imbalance: float,
    vertex_weight: np.ndarray,
    rng: np.random.Generator,
    progress: Callable[..., Any] = lambda items, **_: items,
) -> list[dict[str, Any]]:
    """Run every available peer.

    Parameters
    ----------
    W : csr_array of shape (n, n)
        Validated adjacency.
    parts : int
        Number of parts.
    balance : float
        Two parts: least share of the smaller side.
    imbalance : float
        More parts: how far the heaviest may exceed the average.
    vertex_weight : ndarray of shape (n,)
        Positive vertex weights.
    rng : Generator
        Seeds of the peers.
    progress : callable
        Wraps the list of peers, as ``run.progress``.

    Returns
    -------
    list of dict
        ``method``, ``labels`` (None if it failed), ``seconds``, ``note``.
    """
    slack = 2 * (1 - balance) - 1 if parts == 2 else imbalance
    seed = int(rng.integers(2**31 - 1))
    methods: list[tuple[str, Callable[[], np.ndarray]]] = []
    if parts == 2:
        score = _Lazy(lambda: _spectral_score(W, np.random.default_rng(seed)))
        methods.append(("spectral, sweep", lambda: _sweep(W, score(), balance, vertex_weight)))
        methods.append(("spectral, median", lambda: _median(score(), vertex_weight)))
        methods.append((RANDOM, lambda: _random(vertex_weight, seed)))
        # it halves the number of vertices, whatever they weigh
        if W.shape[0] <= KERNIGHAN_LIN_UP_TO and (vertex_weight == vertex_weight[0]).all():
            methods.append(("Kernighan-Lin (networkx)", lambda: _kernighan_lin(W, seed)))
    if W.shape[0] <= _SKLEARN_UP_TO and W.nnz:
        methods.append(("SpectralClustering (scikit-learn)", lambda: _sklearn(W, parts, seed)))
    if _installed("pymetis"):
        methods.append(("METIS, ncuts 10", lambda: _metis(W, parts, slack, vertex_weight, seed)))
    if _installed("kahip"):
        mode = "strong" if W.shape[0] <= _STRONG_UP_TO else "eco"
        methods.append((f"KaHIP {mode}", lambda: _kahip(W, parts, slack, vertex_weight, seed, mode)))
    rows = []
    for name, method in progress(methods, desc="peers"):
        start = time.perf_counter()
        try:
            labels, note = np.asarray(method()).astype(np.int64), ""
        # a peer that fails on a graph is a result of the comparison, so it gets a row that says so
        except Exception as error:
            labels, note = (
                None,
                f"failed: {str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}",
            )
        rows.append({"method": name, "labels": labels, "seconds": time.perf_counter() - start, "note": note})
    return rows


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


class _Lazy:
    """A value computed at its first call, so that its time counts for the first method that needs it."""

    def __init__(self, make: Callable[[], np.ndarray]) -> None:
        self.make = make
        self.value: np.ndarray | None = None

    def __call__(self) -> np.ndarray:
        if self.value is None:
            self.value = self.make()
        return self.value


def _spectral_score(W: sp.csr_array, rng: np.random.Generator) -> np.ndarray:
    """Fiedler vector of the largest component; vertices outside it stand in the middle."""
    component = connected_components(W, directed=False)[1]
    inside = np.flatnonzero(component == np.argmax(np.bincount(component)))
    score = np.zeros(W.shape[0])
    if len(inside) < 3:
        return score
    part = W[inside][:, inside].tocsr()
    root = 1 / np.sqrt(np.asarray(part.sum(axis=1)).ravel())
    N = sp.csr_array(part.multiply(root[:, None]).multiply(root[None, :]))
    if len(inside) <= 200:  # Lanczos is for large graphs; here all eigenvectors take milliseconds
        vector = np.linalg.eigh(N.toarray())[1][:, -2]
    else:
        # largest of the normalised adjacency instead of smallest of the Laplacian: no factorisation, no inverse
        values, vectors = eigsh(N, k=2, which="LA", tol=1e-4, v0=rng.standard_normal(len(inside)), ncv=40)
        vector = vectors[:, np.argsort(values)[0]]
    vector = vector * root
    score[inside] = vector - np.median(vector)
    return score


def _sweep(W: sp.csr_array, score: np.ndarray, balance: float, weight: np.ndarray) -> np.ndarray:
    from ._rounding import sweep_cut

    return sweep_cut(W, score, balance=balance, sample_weight=weight)[0]


def _median(score: np.ndarray, weight: np.ndarray) -> np.ndarray:
    order = np.argsort(score, kind="stable")
    labels = np.empty(len(score), dtype=np.int64)
    labels[order] = np.cumsum(weight[order]) > weight.sum() / 2
    return labels


def _random(weight: np.ndarray, seed: int) -> np.ndarray:
    """Vertices in random order, halved by weight: what no method may be worse than."""
    return _median(np.random.default_rng([seed, 1]).permutation(len(weight)), weight)


def _kernighan_lin(W: sp.csr_array, seed: int) -> np.ndarray:
    import networkx as nx

    sides = nx.algorithms.community.kernighan_lin_bisection(nx.from_scipy_sparse_array(W), seed=seed)
    labels = np.zeros(W.shape[0], dtype=np.int64)
    labels[list(sides[1])] = 1
    return labels


def _sklearn(W: sp.csr_array, parts: int, seed: int) -> np.ndarray:
    import warnings

    from sklearn.cluster import SpectralClustering

    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # it warns of every disconnected graph; the table shows what came out
        return SpectralClustering(parts, affinity="precomputed", random_state=seed).fit_predict(sp.csr_matrix(W))


def _whole(values: np.ndarray) -> np.ndarray | None:
    """Whole 32-bit weights; None if all are equal."""
    if len(values) == 0 or (values == values[0]).all():
        return None
    if (values == np.round(values)).all() and values.sum() < _INT32:
        return values.astype(np.int64)
    return np.maximum(np.round(values * (0.5 * _INT32 / values.sum())), 1).astype(np.int64)


def _metis(W: sp.csr_array, parts: int, slack: float, weight: np.ndarray, seed: int) -> np.ndarray:
    import pymetis

    # ufactor is the allowed imbalance in thousandths; METIS wants at least 1
    options = pymetis.Options(ncuts=10, ufactor=max(1, round(1000 * slack)), seed=seed % 2**30)
    edge, vertex = _whole(W.data), _whole(weight)
    found = pymetis.part_graph(
        parts,
        pymetis.CSRAdjacency(W.indptr.tolist(), W.indices.tolist()),
        eweights=None if edge is None else edge.tolist(),
        vweights=None if vertex is None else vertex.tolist(),
        options=options,
    )
    return np.asarray(found.vertex_part if hasattr(found, "vertex_part") else found[1])


def _kahip(W: sp.csr_array, parts: int, slack: float, weight: np.ndarray, seed: int, mode: str) -> np.ndarray:
    import kahip

    edge, vertex = _whole(W.data), _whole(weight)
    level = kahip.STRONG if mode == "strong" else kahip.ECO
    _, labels = kahip.kaffpa(
        (np.ones(W.shape[0], dtype=np.int64) if vertex is None else vertex).tolist(),
        W.indptr.tolist(),
        (np.ones(W.nnz, dtype=np.int64) if edge is None else edge).tolist(),
        W.indices.tolist(),
        parts,
        slack,
        True,
        seed % 2**30,
        level,
    )
    return np.asarray(labels)
