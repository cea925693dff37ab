"""Cut functions of a hyperedge: the potential, its subgradient, and the objects that users pass as ``cut=``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay._core.errors import InputError

from . import _kernels as kernels
from ._hypergraph import Hypergraph, said

Array = NDArray[np.float64]
CUTS = ("standard", "node_weighted", "linear", "star")


class CardinalityCut:
    """Cut function that looks only at how many of the m members lie inside: ``F_h(S) = fn(#S, m)``.

    Parameters
    ----------
    fn : callable
        ``fn(k, m)`` for k = 0..m, concave in k with fn(0, m) = fn(m, m) = 0, for instance
        ``lambda k, m: min(k, m - k, 3)``.

    Examples
    --------
    >>> from assay.graphs.hypergraph_diffusion import CardinalityCut, Hypergraph, potential
    >>> H = Hypergraph.from_edges([[0, 1, 2, 3]])
    >>> x = [3.0, 2.0, 1.0, -1.0]
    >>> potential(H, x, CardinalityCut(lambda k, m: min(k, m - k, 1))) == potential(H, x)
    True
    """

    def __init__(self, fn: Callable[[int, int], float]) -> None:
        self.fn = fn

    def table(self, sizes: NDArray[np.int64]) -> tuple[Array, NDArray[np.int64]]:
        """Values for every size that occurs, end to end, and where each size begins; checks concavity."""
        offset = np.zeros(int(sizes.max()) + 1, dtype=np.int64)
        parts, at = [], 0
        for m in np.unique(sizes).tolist():
            F = np.array([float(self.fn(k, m)) for k in range(m + 1)])
            if not np.isfinite(F).all() or F[0] != 0 or F[-1] != 0:
                raise InputError(f"CardinalityCut: fn(0, {m}) and fn({m}, {m}) must be 0 and all values finite.")
            if (np.diff(F, 2) > 1e-9 * max(1.0, float(np.abs(F).max()))).any():
                raise InputError(f"CardinalityCut: fn(k, {m}) is not concave in k, so it is no submodular cut.")
            offset[m] = at
            parts.append(F)
            at += m + 1
        return np.concatenate(parts), offset


class SubmodularCut:
    """Cut function given by a set function on the members of a hyperedge.

    Parameters
    ----------
    fn : callable
        ``fn(members, inside)``: the vertices of a hyperedge and a boolean mask over them; a submodular function that is
        0 for none and for all. A hyperedge of m members costs m - 1 calls per evaluation.

    Notes
    -----
    1. Among equal scores the mean of two greedy vertices is taken (members as stored, and reversed), so that the first
       step from zero does not depend on a single order.

    Examples
    --------
    >>> from assay.graphs.hypergraph_diffusion import Hypergraph, SubmodularCut, potential
    >>> H = Hypergraph.from_edges([[0, 1, 2]])
    >>> split = SubmodularCut(lambda members, inside: float(inside.any() and not inside.all()))
    >>> potential(H, [2.0, 1.0, 0.0], split)
    2.0
    """

    def __init__(self, fn: Callable[[NDArray[np.int32], NDArray[np.bool_]], float]) -> None:
        self.fn = fn

    def prefixes(self, members: NDArray[np.int32], order: NDArray[np.intp]) -> Array:
        """F of the prefixes of ``members[order]``, from none to all."""
        inside = np.zeros(len(members), dtype=bool)
        F = np.zeros(len(members) + 1)
        for j, p in enumerate(order[:-1], 1):
            inside[p] = True
            F[j] = float(self.fn(members, inside))
        return F


class GaussianMICut(SubmodularCut):
    """Mutual information of a Gaussian process over the members: 1/2 [logdet K_S + logdet K_(h-S) - logdet K_h].

    Splitting a hyperedge between points that predict each other is dear, between distant groups cheap.

    Parameters
    ----------
    points : array-like of shape (n_nodes, n_features)
        Coordinates of the vertices.
    scale : float, default 1.0
        Length scale of ``K_ij = exp(-|p_i - p_j|^2 / (2 scale^2))``.
    noise : float, default 0.1
        Added to the diagonal of K; above 0.

    Examples
    --------
    >>> from assay.graphs.hypergraph_diffusion import GaussianMICut, Hypergraph, potential
    >>> H = Hypergraph.from_edges([[0, 1, 2]])
    >>> cut = GaussianMICut([[0.0], [0.1], [3.0]])
    >>> potential(H, [1.0, 0.0, 0.0], cut) > potential(H, [0.0, 0.0, 1.0], cut)
    True
    """

    def __init__(self, points: ArrayLike, scale: float = 1.0, noise: float = 0.1) -> None:
        self.points = np.asarray(points, dtype=np.float64)
        if self.points.ndim == 1:
            self.points = self.points[:, None]
        if not np.isfinite(self.points).all() or not scale > 0 or not noise > 0:
            raise InputError("GaussianMICut needs finite points, and scale and noise above 0.")
        self.scale = scale
        self.noise = noise

    def prefixes(self, members: NDArray[np.int32], order: NDArray[np.intp]) -> Array:
        """F of all prefixes from two Cholesky factors: leading minors forwards and backwards."""
        p = self.points[members[order]]
        squared = ((p[:, None] - p[None]) ** 2).sum(axis=2)
        K = np.exp(-squared / (2 * self.scale**2)) + self.noise * np.eye(len(p))
        ahead = np.concatenate(([0.0], np.cumsum(np.log(np.diag(np.linalg.cholesky(K))))))
        behind = np.concatenate(([0.0], np.cumsum(np.log(np.diag(np.linalg.cholesky(K[::-1, ::-1]))))))[::-1]
        F = ahead + behind - ahead[-1]
        F[0] = F[-1] = 0.0
        return F


Cut = str | CardinalityCut | SubmodularCut


class Evaluator(Protocol):
    """delta and D^-1 g of one hypergraph under one cut; `out` and `delta` are written in place."""

    def __call__(self, x: Array, out: Array, delta: Array) -> None: ...


def inverse_degree(H: Hypergraph) -> Array:
    """1 / d, and 0 where d = 0 (isolated vertices, whose score stays 0)."""
    d = H.degree
    return np.divide(1.0, d, out=np.zeros_like(d), where=d > 0)


def evaluator(H: Hypergraph, cut: Cut) -> Evaluator:
    """The function that computes subgradient and deltas for a cut."""
    B = H.incidence
    if isinstance(cut, str):
        if cut == "standard":
            return lambda x, out, delta: kernels.standard(x, B.indptr, B.indices, H.edge_weight, H.degree, out, delta)
        if cut == "node_weighted":
            return lambda x, out, delta: kernels.weighted(
                x, B.indptr, B.indices, B.data, H.edge_weight, H.degree, out, delta
            )
        if cut == "linear":
            # the sum of distances to the median is the Lovasz extension of min(k, m - k)
            return evaluator(H, CardinalityCut(lambda k, m: min(k, m - k)))
        if cut == "star":
            return _Star(H)
    if isinstance(cut, CardinalityCut):
        table, offset = cut.table(H.sizes)
        return lambda x, out, delta: kernels.cardinality(
            x, B.indptr, B.indices, table, offset, H.edge_weight, H.degree, out, delta
        )
    if isinstance(cut, SubmodularCut):
        if isinstance(cut, GaussianMICut) and len(cut.points) != H.n_nodes:
            raise InputError(f"GaussianMICut holds {len(cut.points)} points for {H.n_nodes} vertices.")
        return _Greedy(H, cut)
    raise InputError(f"cut must be one of {', '.join(CUTS)}, a CardinalityCut or a SubmodularCut, got {cut!r}.")


class _Star:
    """delta_h^2 = sum (x_i - mean_h)^2: the quadratic potential of the star expansion."""

    def __init__(self, H: Hypergraph) -> None:
        self.B = H._pattern()
        self.w, self.sizes, self.inverse = H.edge_weight[:, None], H.sizes[:, None], inverse_degree(H)[:, None]
        self.plain = (self.B.T @ H.edge_weight)[:, None]

    def laplacian(self, x: Array) -> Array:
        return self.plain * x - self.B.T @ (self.w * (self.B @ x) / self.sizes)

    def __call__(self, x: Array, out: Array, delta: Array) -> None:
        mean = (self.B @ x) / self.sizes
        # around the mean: the textbook difference of squares would cancel where scores are large and close
        edge = np.repeat(np.arange(len(self.sizes)), self.sizes[:, 0])
        deviation = x[self.B.indices] - mean[edge]
        start = self.B.indptr[:-1].astype(np.intp)
        np.sqrt(np.add.reduceat(deviation**2, start, axis=0), out=delta)
        out[:] = self.inverse * self.laplacian(x)


class _Greedy:
    """Greedy subgradient of any submodular cut, one hyperedge after the other in Python."""

    def __init__(self, H: Hypergraph, cut: SubmodularCut) -> None:
        self.H, self.cut, self.inverse = H, cut, inverse_degree(H)

    def __call__(self, x: Array, out: Array, delta: Array) -> None:
        H = self.H
        out[:] = 0.0
        for h in range(H.n_edges):
            members = H.members(h)
            for k in range(x.shape[1]):
                v = x[members, k]
                y = np.zeros(len(members))
                forward = np.argsort(-v, kind="stable")
                backward = (len(v) - 1 - np.argsort(-v[::-1], kind="stable")).astype(np.intp)
                orders = [forward] if np.array_equal(forward, backward) else [forward, backward]
                for order in orders:
                    y[order] += np.diff(self.cut.prefixes(members, order)) / len(orders)
                value = max(float(v @ y), 0.0)
                delta[h, k] = value
                out[members, k] += H.edge_weight[h] * value * y * self.inverse[members]


def columns(H: Hypergraph, x: ArrayLike, what: str) -> tuple[Array, bool]:
    """A finite float64 copy of shape (n, c), row-major, and whether it was one-dimensional."""
    try:
        a = np.array(x, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} must be an array of numbers.") from error
    flat = a.ndim == 1
    if a.ndim not in (1, 2) or len(a) != H.n_nodes or a.size == 0:
        raise InputError(f"{what} must have one row per vertex ({H.n_nodes}), got shape {a.shape}.")
    if not np.isfinite(a).all():
        row = int(np.argwhere(~np.isfinite(a.reshape(len(a), -1)))[0][0])
        raise InputError(f"{what} of vertex {said(H.node_names[row])} is not a finite number.")
    return (a[:, None] if flat else a), flat


def deltas(H: Hypergraph, x: Array, evaluate: Evaluator, cut: Cut, buffer: Array | None = None) -> Array:
    """delta_h of every column, in `buffer` if given; the max - min cut needs no subgradient for it."""
    delta = np.empty((H.n_edges, x.shape[1])) if buffer is None else buffer
    if isinstance(cut, str) and cut == "standard":
        kernels.extent(x, H.incidence.indptr, H.incidence.indices, delta)
    else:
        evaluate(x, np.empty_like(x), delta)
    return delta


def potential(H: Hypergraph, x: ArrayLike, cut: Cut = "standard") -> Any:
    """Energy of scores: U(x) = 1/2 sum_h w_h delta_h(x)^2.

    Parameters
    ----------
    H : Hypergraph
        The hypergraph.
    x : array-like of shape (n_nodes,) or (n_nodes, c)
        Scores.
    cut : str, CardinalityCut or SubmodularCut, default "standard"
        ``"standard"``: max - min; ``"node_weighted"``: ``2 min_u max_i r_hi |x_i - u|``; ``"linear"``: sum of distances to
        the median; ``"star"``: root of the sum of squares about the mean (the linear Laplacian).

    Returns
    -------
    float or ndarray of shape (c,)
        One value per column.

    Raises
    ------
    InputError
        Wrong shape, NaN, unknown cut.

    Examples
    --------
    >>> from assay.graphs.hypergraph_diffusion import Hypergraph, potential
    >>> potential(Hypergraph.from_edges([[0, 1, 2]]), [3.0, 1.0, 0.0])
    4.5
    """
    a, flat = columns(H, x, "x")
    U = 0.5 * (H.edge_weight[:, None] * deltas(H, a, evaluator(H, cut), cut) ** 2).sum(axis=0)
    return float(U[0]) if flat else U


def subgradient(H: Hypergraph, x: ArrayLike, cut: Cut = "standard") -> Array:
    """One subgradient of the potential at x; ties share by degree.

    Parameters
    ----------
    H : Hypergraph
        The hypergraph.
    x : array-like of shape (n_nodes,) or (n_nodes, c)
        Scores.
    cut : str, CardinalityCut or SubmodularCut, default "standard"
        As for `potential`.

    Returns
    -------
    ndarray of the shape of x
        g with U(z) >= U(x) + g^T (z - x) for all z; it sums to zero, and g^T x = 2 U(x).

    Raises
    ------
    InputError
        Wrong shape, NaN, unknown cut.

    Examples
    --------
    >>> from assay.graphs.hypergraph_diffusion import Hypergraph, subgradient
    >>> subgradient(Hypergraph.from_edges([[0, 1, 2]]), [3.0, 0.0, 0.0]).tolist()
    [3.0, -1.5, -1.5]
    """
    a, flat = columns(H, x, "x")
    out = np.empty_like(a)
    evaluator(H, cut)(a, out, np.empty((H.n_edges, a.shape[1])))
    g = H.degree[:, None] * out
    return g[:, 0] if flat else g
