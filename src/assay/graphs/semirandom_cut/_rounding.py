"""From vectors to sides: sweeps, the Fiedler vector, flow rounding, exact enumeration."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.csgraph as csgraph
import scipy.sparse.linalg as sla

from assay._core.errors import InputError
from assay._shared.accel import njit

from ._refine import index_arrays

__all__ = ["cut_value", "enumerate_cuts", "fiedler_vectors", "flow_round", "sweep_cut", "sweep_profile"]


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


def _cut_numpy(indptr, indices, data, y):
    rows = np.repeat(y, np.diff(indptr))
    return float(data[rows != y[indices]].sum() / 2)


@njit(fallback=_cut_numpy)
def _cut_kernel(indptr, indices, data, y):
    total = 0.0
    for i in range(y.size):
        for p in range(indptr[i], indptr[i + 1]):
            if y[indices[p]] != y[i]:
                total += data[p]
    return total / 2


def _cut(W: sp.csr_array, y: np.ndarray) -> float:
    codes = y if y.dtype == np.int64 else np.unique(y, return_inverse=True)[1].astype(np.int64)
    return float(_cut_kernel(*index_arrays(W), W.data, codes))


def _profile_numpy(indptr, indices, data, rank, difference):
    for c in range(rank.shape[1]):
        own = rank[:, c]
        rows, columns = np.repeat(own, np.diff(indptr)), own[indices]
        signed = np.where(columns > rows, data, -data)
        difference[:, c] = np.bincount(rows, signed, own.size)


@njit(fallback=_profile_numpy)
def _profile(indptr, indices, data, rank, difference):
    # one pass over the edges serves all orders: the ranks of a vertex lie side by side
    n, k = rank.shape
    change = np.empty(k)
    for i in range(n):
        for c in range(k):
            change[c] = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            w = data[p]
            for c in range(k):
                change[c] += w if rank[j, c] > rank[i, c] else -w
        for c in range(k):
            difference[rank[i, c], c] = change[c]


def sweep_profiles(W: sp.csr_array, orders: np.ndarray) -> np.ndarray:
    """Cuts of all prefixes of several orders.

    Parameters
    ----------
    W : csr_array of shape (n, n)
    orders : ndarray of shape (k, n)
        Permutations of the vertices.

    Returns
    -------
    ndarray of shape (k, n)
        Entry (c, i) is the cut between the first i + 1 vertices of order c and the rest.
    """
    k, n = orders.shape
    rank = np.empty((n, k), dtype=np.int32)
    places = np.arange(n, dtype=np.int32)
    for c in range(k):
        rank[orders[c], c] = places
    difference = np.zeros((n, k))
    _profile(*index_arrays(W), W.data, rank, difference)
    return np.cumsum(difference, axis=0).T


def sweep_profile(W: sp.csr_array, order: np.ndarray) -> np.ndarray:
    """Cut of every prefix of `order`: entry i is the cut between the first i + 1 vertices and the rest."""
    return sweep_profiles(W, order[None, :])[0]


def _objective(cuts: np.ndarray, mass: np.ndarray, total: float, objective: str) -> np.ndarray:
    """Objective of cuts whose first side has `mass` (sample weights, or degrees for the conductance)."""
    if objective in ("cut", "bisection"):
        return cuts
    other = total - mass
    scale = mass * other if objective == "sparsest" else np.minimum(mass, other)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(scale > 0, cuts / scale, np.where(cuts > 0, np.inf, 0.0))


def best_prefixes(
    W: sp.csr_array,
    scores: np.ndarray,
    vw: np.ndarray,
    low: float,
    high: float,
    *,
    mass: np.ndarray,
    objective: str = "cut",
    both_ends: bool = True,
    stable: bool = True,
) -> list[tuple[int, float, bool, np.ndarray, np.ndarray]]:
    """Best cut among all prefixes, for each of several scores.

    Parameters
    ----------
    scores : ndarray of shape (k, n)

    Returns
    -------
    list of (size, value, suffix, order, cuts)
        size: vertices of the prefix, 0 when no prefix fits the window; suffix: the rest, not the prefix, is the side
        whose weight lies in the window; order, cuts: vertices by score and the cut of every proper prefix.
    """
    # ties keep the input order for a user's score; a projected embedding has none, and the vectorised sort is faster
    orders = np.argsort(scores, axis=1, kind="stable" if stable else "quicksort")
    profiles = sweep_profiles(W, orders)
    total, mass_total = float(vw.sum()), float(mass.sum())
    slack = 1e-9 * total
    results = []
    for order, profile in zip(orders, profiles, strict=True):
        cuts = np.ascontiguousarray(profile[:-1])
        weight = np.cumsum(vw[order])[:-1]
        allowed = as_suffix = (weight >= total - high - slack) & (weight <= total - low + slack)
        if both_ends:
            allowed = as_suffix | ((weight >= low - slack) & (weight <= high + slack))
        places = np.flatnonzero(allowed)
        if places.size == 0:
            results.append((0, np.inf, False, order, cuts))
            continue
        values = np.maximum(cuts[places], 0.0)
        if objective in ("sparsest", "conductance"):
            values = _objective(values, np.cumsum(mass[order])[places], mass_total, objective)
        best = int(values.argmin())
        at = int(places[best])
        results.append((at + 1, float(values[best]), bool(as_suffix[at]), order, cuts))
    return results


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
    size, value, _, order, _ = best_prefixes(W, score[None, :], vw, low, high, mass=mass, objective=objective)[0]
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
        if np.all(vw == np.rint(vw)):
            # whole weights: the share is met from the next integer on (1e-9: 0.45 * 20 is 9.000000000000002), but an
            # odd total cannot be halved, and the nearest split is meant
            low = min(float(np.ceil(low - 1e-9 * total)), float(np.floor(total / 2)))
        low = max(low, float(vw.min()))
    return low, total - low


def _bandwidth(W: sp.csr_array) -> float:
    """Mean row width of the reverse Cuthill-McKee profile: bounds the fill of a factorisation per row."""
    order = csgraph.reverse_cuthill_mckee(sp.csr_matrix(W), symmetric_mode=True)
    place = np.empty(order.size, dtype=np.int64)
    place[order] = np.arange(order.size)
    first = np.minimum.reduceat(place[W.indices], W.indptr[:-1])
    return float(np.maximum(place - first, 0).mean())


def fiedler_vectors(
    W: sp.csr_array, rng: np.random.Generator, max_products: int = 2000, guess: np.ndarray | None = None
) -> np.ndarray:
    """Smoothest eigenvectors of the normalised Laplacian of a connected graph, scaled by D^{-1/2}.

    Parameters
    ----------
    W : csr_array
        Connected, at least two vertices.
    rng : Generator
        Start vector.
    max_products : int
        Budget of matrix-vector products, a deterministic stand-in for a time limit.
    guess : ndarray of shape (n, k), default None
        Start of the LOBPCG fallback.

    Returns
    -------
    ndarray of shape (n, r)
        Fiedler vector first; r = 3 where a sparse factorisation is cheap (mesh-like graphs), else 1.
    """
    n = W.shape[0]
    degree = np.asarray(W.sum(axis=1)).ravel()
    root = 1 / np.sqrt(degree)
    first = np.sqrt(degree)
    first /= np.linalg.norm(first)
    if n <= 200:
        N = (root[:, None] * W.toarray()) * root[None, :]
        vectors = np.linalg.eigh(N - 2 * np.outer(first, first))[1]
        return vectors[:, ::-1][:, : min(3, n - 1)] * root[:, None]
    start = rng.standard_normal(n)
    start -= first * (first @ start)
    # Rows as wide as a few square roots of n: the graph has small separators and its factor stays near-linear.
    # On expanders the factor would be dense.
    if n <= 2000 or _bandwidth(W) <= 4 * np.sqrt(n) + 50:
        # 1e-6: the Laplacian is singular; the shift is far below any eigenvalue that could be told apart
        shifted = sp.csc_array(sp.diags_array(degree * (1 + 1e-6)) - W)
        factor = sla.splu(shifted, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
        scale = np.sqrt(degree)

        def inverse(x: np.ndarray) -> np.ndarray:
            x = x.ravel()
            z = scale * factor.solve(scale * (x - first * (first @ x)))
            return z - first * (first @ z)

        operator = sla.LinearOperator((n, n), matvec=inverse, dtype=np.float64)
        try:
            _, vectors = sla.eigsh(operator, k=3, which="LA", tol=1e-4, v0=start, maxiter=50)
            return vectors[:, ::-1] * root[:, None]
        except sla.ArpackNoConvergence as error:
            if error.eigenvectors.size:
                return error.eigenvectors[:, -1:] * root[:, None]
    N = sp.csr_array(W.multiply(root[:, None]).multiply(root[None, :]))

    def product(x: np.ndarray) -> np.ndarray:
        x = x.ravel()
        # the known eigenvector is moved from 1 to 0 and the spectrum to [0, 1], so that the wanted one is largest
        return 0.5 * (N @ x + x) - first * (first @ x)

    operator = sla.LinearOperator((n, n), matvec=product, dtype=np.float64)
    ncv = 20
    try:
        _, vectors = sla.eigsh(
            operator, k=1, which="LA", ncv=ncv, tol=1e-3, v0=start, maxiter=max(2, max_products // ncv)
        )
    except sla.ArpackNoConvergence:
        block = rng.standard_normal((n, 3)) if guess is None else guess[:, :3].copy()
        block -= first[:, None] * (first @ block)[None, :]
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
    vector = vectors[:, :1] * root[:, None]
    # a block that has collapsed gives no number; a random score then loses to every other candidate
    return vector if np.isfinite(vector).all() else start[:, None]


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
    # Edges inside either end are never cut and edges between the ends always: only rows of the middle matter.
    band = W[middle]
    i = np.repeat(np.arange(k), np.diff(band.indptr))
    j, w = place[band.indices], band.data
    from_head, to_tail = j == k, j == k + 1
    i, j = np.where(from_head, k, i), np.where(from_head, i, j)
    if not (from_head.any() or to_tail.any()):
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
    rows = np.repeat(np.arange(n), np.diff(W.indptr))
    distance = np.zeros(n, dtype=np.int64)
    distance[rows[labels[rows] != labels[W.indices]]] = 1
    frontier, step = np.flatnonzero(distance), 1
    while frontier.size:
        step += 1
        reached = np.zeros(n, dtype=bool)
        reached[W[frontier].indices] = True
        frontier = np.flatnonzero(reached & (distance == 0))
        distance[frontier] = step
    distance[distance == 0] = step + 1
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
    accept: Callable[[np.ndarray], bool] | None = None,
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
    if accept is not None:
        for code in np.argsort(values, kind="stable")[: np.count_nonzero(allowed)]:
            labels = ((int(code) >> np.arange(n)) & 1).astype(np.int64)
            if accept(labels):
                return labels, float(values[code])
        return None, np.inf
    best = int(values.argmin())
    return ((best >> np.arange(n)) & 1).astype(np.int64), float(values[best])
