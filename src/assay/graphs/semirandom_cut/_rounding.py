"""From vectors to sides: sweeps, the Fiedler vector, flow rounding, exact enumeration."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.csgraph as csgraph
import scipy.sparse.linalg as sla

from assay._core.errors import InputError
from assay._shared.accel import njit

from ._refine import index_arrays

__all__ = ["cut_value", "enumerate_cuts", "fiedler_vector", "flow_round", "sweep_cut", "sweep_profile"]


def cut_value(W: Any, labels: np.ndarray) -> float:
    r"""Weight of the edges whose ends have different labels, each edge once.

    .. math:: \tfrac12 \sum_{ij} w_{ij} [y_i \ne y_j]

    Parameters
    ----------
    W : sparse matrix, array or networkx Graph of n vertices
        Symmetric, non-negative.
    labels : array-like of shape (n,)
        Sides or parts, any number of them.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from assay.graphs.semirandom_cut import cut_value
    >>> cut_value(np.array([[0, 2, 0], [2, 0, 1], [0, 1, 0]]), [0, 0, 1])
    1.0
    """
    W = _as_csr(W)
    y = np.asarray(labels)
    if y.shape != (W.shape[0],):
        raise InputError(f"cut_value: labels has shape {y.shape}, the graph has {W.shape[0]} vertices.")
    return _cut(W, y)


def _as_csr(W: Any) -> sp.csr_array:
    from assay._shared.graphs import as_csr

    return as_csr(W)[0]


def _cut(W: sp.csr_array, y: np.ndarray) -> float:
    rows = np.repeat(y, np.diff(W.indptr))
    return float(W.data[rows != y[W.indices]].sum() / 2)


def _profile_numpy(indptr, indices, data, rank, difference):
    rows = np.repeat(rank, np.diff(indptr))
    columns = rank[indices]
    upper = rows < columns
    a, b, w = rows[upper], columns[upper], data[upper]
    difference += np.bincount(a, w, difference.size) - np.bincount(b, w, difference.size)


@njit(fallback=_profile_numpy)
def _profile(indptr, indices, data, rank, difference):
    for i in range(rank.size):
        r = rank[i]
        change = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            if rank[indices[p]] > r:
                change += data[p]
            else:
                change -= data[p]
        difference[r] = change


def sweep_profile(W: sp.csr_array, order: np.ndarray) -> np.ndarray:
    """Cut of every prefix of `order`: entry i is the cut between the first i + 1 vertices and the rest."""
    n = order.size
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    difference = np.zeros(n)
    _profile(*index_arrays(W), W.data, rank, difference)
    return np.cumsum(difference)


def _objective(cuts: np.ndarray, mass: np.ndarray, total: float, objective: str) -> np.ndarray:
    """Objective of cuts whose first side has `mass` (sample weights, or degrees for the conductance)."""
    if objective in ("cut", "bisection"):
        return cuts
    other = total - mass
    scale = mass * other if objective == "sparsest" else np.minimum(mass, other)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(scale > 0, cuts / scale, np.where(cuts > 0, np.inf, 0.0))


def best_prefix(
    W: sp.csr_array,
    score: np.ndarray,
    vw: np.ndarray,
    low: float,
    high: float,
    *,
    mass: np.ndarray,
    objective: str = "cut",
    both_ends: bool = True,
    stable: bool = True,
) -> tuple[int, float, bool, np.ndarray, np.ndarray]:
    """Best cut among all prefixes of a score.

    Returns
    -------
    size : int
        Vertices of the prefix; 0 when no prefix fits the window.
    value : float
    suffix : bool
        True: the rest, not the prefix, is the side whose weight lies in the window.
    order, cuts : ndarray
        Vertices by score and the cut of every prefix.
    """
    # ties keep the input order for a user's score; a projected embedding has none, and the vectorised sort is faster
    order = np.argsort(score, kind="stable" if stable else "quicksort")
    cuts = sweep_profile(W, order)[:-1]
    weight = np.cumsum(vw[order])
    total = weight[-1]
    weight = weight[:-1]
    slack = 1e-9 * total
    as_prefix = (weight >= low - slack) & (weight <= high + slack)
    as_suffix = (total - weight >= low - slack) & (total - weight <= high + slack)
    allowed = as_prefix | as_suffix if both_ends else as_suffix
    if not allowed.any():
        return 0, np.inf, False, order, cuts
    m = np.cumsum(mass[order])
    values = np.where(allowed, _objective(np.maximum(cuts, 0.0), m[:-1], m[-1], objective), np.inf)
    at = int(values.argmin())
    suffix = bool(as_suffix[at])
    return at + 1, float(values[at]), suffix, order, cuts


def prefix_labels(order: np.ndarray, size: int, suffix: bool) -> np.ndarray:
    """Labels with side 1 = the prefix, or the rest when `suffix`."""
    labels = np.full(order.size, int(suffix), dtype=np.int64)
    labels[order[:size]] = int(not suffix)
    return labels


def sweep_cut(
    W: Any, score: np.ndarray, balance: float = 0.0, objective: str = "cut", sample_weight: np.ndarray | None = None
) -> tuple[np.ndarray, float]:
    """Sort the vertices by a score and take the best prefix as one side.

    Parameters
    ----------
    W : sparse matrix, array or networkx Graph of n vertices
        Symmetric, non-negative.
    score : array-like of shape (n,)
        Any real score, e.g. an eigenvector or one column of an embedding.
    balance : float, default 0.0
        Least share of the smaller side, in [0, 0.5]; 0 only asks for two non-empty sides.
    objective : {"cut", "bisection", "sparsest", "conductance"}
        "cut": weight across; "bisection": the same with sides as equal as the weights allow; "sparsest": cut / (w(S)
        w(S^c)); "conductance": cut / smaller volume.
    sample_weight : array-like of shape (n,), default None
        Positive vertex weights, ones by default.

    Returns
    -------
    labels : ndarray of shape (n,), int64
        1 for the vertices with high scores.
    value : float
        The objective.

    Raises
    ------
    InputError
        If a score is not finite, or no prefix has the balance.

    Examples
    --------
    >>> import numpy as np
    >>> from assay.graphs.semirandom_cut import sweep_cut
    >>> path = np.diag([1.0, 1.0, 1.0], 1)
    >>> sweep_cut(path + path.T, np.arange(4), balance=0.5)
    (array([0, 0, 1, 1]), 1.0)
    """
    W = _as_csr(W)
    n = W.shape[0]
    score = np.asarray(score, dtype=np.float64)
    if score.shape != (n,) or not np.isfinite(score).all():
        raise InputError(f"sweep_cut: score must hold {n} finite numbers, got shape {score.shape}.")
    if not 0 <= balance <= 0.5:
        raise InputError(f"sweep_cut: balance must lie in [0, 0.5], got {balance}.")
    if objective not in ("cut", "bisection", "sparsest", "conductance"):
        raise InputError(f"sweep_cut: unknown objective {objective!r}.")
    vw = check_weights(sample_weight, n)
    low, high = window(vw, balance, objective)
    mass = np.asarray(W.sum(axis=1)).ravel() if objective == "conductance" else vw
    size, value, _, order, _ = best_prefix(W, score, vw, low, high, mass=mass, objective=objective)
    if size == 0:
        raise InputError(f"sweep_cut: no prefix of this score has both sides at a share of at least {balance}.")
    return prefix_labels(order, size, True), value


def check_weights(sample_weight: Any, n: int) -> np.ndarray:
    """Vertex weights as float64, or an InputError that names the fault."""
    if sample_weight is None:
        return np.ones(n)
    vw = np.asarray(sample_weight, dtype=np.float64)
    if vw.shape != (n,):
        raise InputError(f"sample_weight must have one entry per vertex ({n}), got shape {vw.shape}.")
    if not (np.isfinite(vw).all() and (vw > 0).all()):
        raise InputError("sample_weight must be positive and finite.")
    return vw


def window(vw: np.ndarray, balance: float, objective: str = "cut") -> tuple[float, float]:
    """Weights that a side may have."""
    total = float(vw.sum())
    if objective == "bisection":
        low = (total - float(vw.max())) / 2
        low = float(np.ceil(low - 1e-9)) if np.all(vw == np.rint(vw)) else low
    else:
        low = balance * total
        # integer weights: the share is met from the next integer on (1e-9: 0.45 * 20 is 9.000000000000002)
        low = float(np.ceil(low - 1e-9 * total)) if np.all(vw == np.rint(vw)) else low
        low = min(max(low, float(vw.min())), total / 2) if balance < 0.5 else low
        if low > total / 2:  # an odd total cannot be halved: the nearest split is meant
            low = float(np.floor(total / 2))
    return low, total - low


def fiedler_vector(
    W: sp.csr_array, rng: np.random.Generator, max_products: int = 2000, guess: np.ndarray | None = None
) -> np.ndarray | None:
    """Second eigenvector of the normalised Laplacian of a connected graph, scaled by D^{-1/2}.

    Parameters
    ----------
    W : csr_array
        Connected, every degree positive.
    rng : Generator
        Start vector.
    max_products : int
        Budget of matrix-vector products, a deterministic stand-in for a time limit; None is returned beyond twice it.
    guess : ndarray of shape (n, k), default None
        Start of the LOBPCG fallback.
    """
    n = W.shape[0]
    if n < 3:
        return np.arange(n, dtype=np.float64)
    degree = np.asarray(W.sum(axis=1)).ravel()
    root = 1 / np.sqrt(degree)
    N = sp.csr_array(W.multiply(root[:, None]).multiply(root[None, :]))
    first = np.sqrt(degree)
    first /= np.linalg.norm(first)

    def product(x: np.ndarray) -> np.ndarray:
        x = x.ravel()
        # the known eigenvector is moved from 1 to 0 and the spectrum to [0, 1], so that the wanted one is largest
        return 0.5 * (N @ x + x) - first * (first @ x)

    if n <= 200:
        values, vectors = np.linalg.eigh(N.toarray() - 2 * np.outer(first, first))
        return vectors[:, -1] * root
    ncv = 20
    operator = sla.LinearOperator((n, n), matvec=product, dtype=np.float64)
    start = rng.standard_normal(n)
    start -= first * (first @ start)
    try:
        _, vectors = sla.eigsh(
            operator, k=1, which="LA", ncv=ncv, tol=1e-3, v0=start, maxiter=max(2, max_products // ncv)
        )
    except sla.ArpackNoConvergence:
        block = rng.standard_normal((n, 3)) if guess is None else guess[:, :3].copy()
        block -= first[:, None] * (first @ block)[None, :]
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an unconverged vector is still a good score to sweep
            _, vectors = sla.lobpcg(
                sla.LinearOperator(
                    (n, n),
                    matvec=product,
                    matmat=lambda X: 0.5 * (N @ X + X) - np.outer(first, first @ X),
                    dtype=np.float64,
                ),
                block,
                tol=1e-3,
                maxiter=max(10, max_products // 6),
                largest=True,
            )
    vector = vectors[:, 0]
    return vector * root if np.isfinite(vector).all() else None


def flow_round(
    W: sp.csr_array, order: np.ndarray, vw: np.ndarray, low: float, high: float, fraction: float
) -> list[np.ndarray]:
    """Contract the ends of an order into source and sink and cut between them exactly.

    Parameters
    ----------
    W : csr_array
        Symmetric graph.
    order : ndarray
        Vertices by score; the last ones become the sink side, label 1.
    vw : ndarray
        Vertex weights.
    low, high : float
        Window of the weight of side 1: the sink starts with `fraction` of `low`, the source with `fraction` of
        the least weight of side 0.

    Returns
    -------
    list of ndarray
        The minimum cuts with the smallest and with the largest source side.
    """
    n = order.size
    weight = np.cumsum(vw[order])
    total = weight[-1]
    head = int(np.searchsorted(weight, fraction * (total - high) - 1e-9 * total)) + 1
    tail = int(np.searchsorted(np.cumsum(vw[order[::-1]]), fraction * low - 1e-9 * total)) + 1
    head, tail = max(head, 1), max(tail, 1)
    if head + tail >= n:
        return []
    place = np.full(n, -1, dtype=np.int64)
    middle = order[head : n - tail]
    k = middle.size
    place[order[:head]] = k
    place[order[n - tail :]] = k + 1
    place[middle] = np.arange(k)
    rows_all = np.repeat(place, np.diff(W.indptr))
    columns_all = place[W.indices]
    # an edge between source and sink is always cut; edges inside either end never
    keep = (rows_all != columns_all) & ~((rows_all >= k) & (columns_all >= k))
    keep &= (rows_all != k + 1) & (columns_all != k)
    i, j, w = rows_all[keep], columns_all[keep], W.data[keep]
    if w.size == 0:
        return []
    graph = sp.coo_array((w, (i, j)), shape=(k + 2, k + 2)).tocsr()
    graph.sum_duplicates()
    # int32 capacities whose sum stays below 2^31; integers keep their value
    scale = 1.0
    if not np.all(graph.data == np.rint(graph.data)) or graph.data.sum() >= 2**30:
        scale = 2**30 / float(graph.data.sum())
    capacity = np.maximum(np.rint(graph.data * scale), 0).astype(np.int32)
    network = sp.csr_array((capacity, graph.indices.astype(np.int32), graph.indptr.astype(np.int32)), graph.shape)
    flow = csgraph.maximum_flow(sp.csr_matrix(network), k, k + 1, method="dinic").flow
    residual = sp.csr_array(network - flow)
    residual.data[residual.data < 0] = 0
    residual.eliminate_zeros()
    from_source = np.zeros(k + 2, dtype=bool)
    from_source[csgraph.breadth_first_order(residual, k, return_predecessors=False)] = True
    to_sink = np.zeros(k + 2, dtype=bool)
    to_sink[csgraph.breadth_first_order(residual.T.tocsr(), k + 1, return_predecessors=False)] = True
    small = (~from_source)[place].astype(np.int64)
    large = to_sink[place].astype(np.int64)
    return [small] if np.array_equal(small, large) else [small, large]


def boundary_score(W: sp.csr_array, labels: np.ndarray) -> np.ndarray:
    """Signed hop distance from the cut: negative inside side 0, positive inside side 1."""
    n = labels.size
    rows = np.repeat(labels, np.diff(W.indptr))
    crossing = rows != labels[W.indices]
    ends = np.unique(np.repeat(np.arange(n), np.diff(W.indptr))[crossing])
    distance = np.full(n, -1, dtype=np.int64)
    distance[ends] = 1
    frontier, step = ends, 1
    while frontier.size:
        step += 1
        neighbours = np.unique(W[frontier].indices)
        frontier = neighbours[distance[neighbours] < 0]
        distance[frontier] = step
    distance[distance < 0] = step + 1
    return np.where(labels == 1, distance, -distance).astype(np.float64)


def enumerate_cuts(
    W: sp.csr_array,
    vw: np.ndarray,
    low: float,
    high: float,
    *,
    mass: np.ndarray,
    objective: str,
    pinned: np.ndarray | None = None,
) -> tuple[np.ndarray | None, float]:
    """Best split of a graph of at most about 18 vertices, by looking at all of them.

    Returns
    -------
    labels : ndarray or None
        None when no split fits the window.
    value : float
    """
    n = W.shape[0]
    dense = W.toarray()
    cuts, weight, masses = np.zeros(1), np.zeros(1), np.zeros(1)
    for i in range(n):
        inside = np.zeros(1)  # weight of edges from i into each subset of the first i vertices
        for j in range(i):
            inside = np.concatenate([inside, inside + dense[i, j]])
        # adding i to a subset cuts its edges to later vertices and to earlier ones outside, and heals those inside
        cuts = np.concatenate([cuts, cuts + dense[i].sum() - 2 * inside])
        weight = np.concatenate([weight, weight + vw[i]])
        masses = np.concatenate([masses, masses + mass[i]])
    slack = 1e-9 * float(vw.sum())
    allowed = (weight >= low - slack) & (weight <= high + slack)
    allowed[0] = allowed[-1] = False
    if pinned is not None:
        codes = np.arange(allowed.size)
        for vertex in np.flatnonzero(pinned >= 0):
            allowed &= ((codes >> vertex) & 1) == pinned[vertex]
    if not allowed.any():
        return None, np.inf
    values = np.where(allowed, _objective(np.maximum(cuts, 0.0), masses, float(mass.sum()), objective), np.inf)
    best = int(values.argmin())
    return ((best >> np.arange(n)) & 1).astype(np.int64), float(values[best])
