"""Conductance, sweep cuts, and clusters around seeds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from assay._core.errors import InputError

from ._hypergraph import Hypergraph, said
from ._solve import _checked, check_options, resolve_lam, solve


def conductance(H: Hypergraph, mask: ArrayLike) -> float:
    """Weight of the hyperedges that a set splits, over the smaller volume: cut(S) / min(vol S, vol V-S).

    Parameters
    ----------
    H : Hypergraph
        The hypergraph; the volume of a set is the sum of its degrees.
    mask : array-like of bool of shape (n_nodes,)
        The set S.

    Returns
    -------
    float
        In [0, 1] for plain degrees; infinite if one side has no volume.

    Raises
    ------
    InputError
        Wrong shape, or a set that is empty or everything.

    Examples
    --------
    >>> from assay.graphs.hypergraph_diffusion import Hypergraph, conductance
    >>> round(conductance(Hypergraph.from_edges([[0, 1, 2], [2, 3]]), [True, True, True, False]), 3)
    1.0
    """
    _checked(H)
    inside = np.asarray(mask)
    if inside.shape != (H.n_nodes,) or inside.dtype != np.bool_:
        raise InputError(f"mask must hold one boolean per vertex ({H.n_nodes}), got {inside.dtype} {inside.shape}.")
    if inside.all() or not inside.any():
        raise InputError("mask must be neither empty nor everything.")
    start = H.incidence.indptr[:-1].astype(np.intp)
    count = np.add.reduceat(inside[H.incidence.indices].astype(np.int64), start)
    split = (count > 0) & (count < H.sizes)
    volume = min(float(H.degree[inside].sum()), float(H.degree[~inside].sum()))
    return float(H.edge_weight[split].sum()) / volume if volume > 0 else float("inf")


def sweep_profile(
    H: Hypergraph, x: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Vertices by decreasing score; sizes of the prefixes that end between different scores; their conductance.

    A hyperedge is split from the entry of its first member to that of its last: two sorts and two running sums give
    the cut of every prefix.
    """
    order = np.argsort(-x, kind="stable")
    place = np.empty(len(x), dtype=np.int64)
    place[order] = np.arange(len(x))
    at = place[H.incidence.indices]
    start = H.incidence.indptr[:-1].astype(np.intp)
    opened = np.bincount(np.minimum.reduceat(at, start), H.edge_weight, len(x))
    closed = np.bincount(np.maximum.reduceat(at, start), H.edge_weight, len(x))
    cut = np.cumsum(opened - closed)[:-1]
    volume = np.cumsum(H.degree[order])
    smaller = np.minimum(volume[:-1], volume[-1] - volume[:-1])
    phi = np.full(len(cut), np.inf)
    np.divide(np.maximum(cut, 0.0), smaller, out=phi, where=smaller > 1e-12 * volume[-1])
    ends = np.flatnonzero(x[order][1:] != x[order][:-1])
    return order, ends + 1, phi[ends]


def sweep_cut(H: Hypergraph, x: ArrayLike) -> tuple[NDArray[np.bool_], float]:
    """Set of the highest scores with the least conductance.

    Parameters
    ----------
    H : Hypergraph
        The hypergraph.
    x : array-like of shape (n_nodes,)
        Scores; vertices with equal scores are not separated.

    Returns
    -------
    mask : ndarray of bool of shape (n_nodes,)
        The set.
    conductance : float
        Its conductance.

    Raises
    ------
    InputError
        Wrong shape, NaN, or scores that are all equal.

    Examples
    --------
    >>> from assay.graphs.hypergraph_diffusion import Hypergraph, sweep_cut
    >>> H = Hypergraph.from_edges([[0, 1, 2], [0, 1], [2, 3], [3, 4, 5], [4, 5]])
    >>> mask, phi = sweep_cut(H, [3.0, 2.5, 2.0, 1.0, 0.5, 0.4])
    >>> mask.tolist(), round(phi, 3)
    ([True, True, True, False, False, False], 0.167)
    """
    _checked(H)
    scores = np.asarray(x, dtype=np.float64)
    if scores.shape != (H.n_nodes,) or not np.isfinite(scores).all():
        raise InputError(f"x must hold one finite number per vertex ({H.n_nodes}), got shape {scores.shape}.")
    order, ends, phi = sweep_profile(H, scores)
    if not len(ends):
        raise InputError("all scores are equal: there is no set to cut off.")
    best = int(np.argmin(phi))
    mask = np.zeros(H.n_nodes, dtype=bool)
    mask[order[: ends[best]]] = True
    return mask, float(phi[best])


class HypergraphLocalClustering(BaseEstimator):
    """Cluster around seed vertices: PageRank from the seeds, then the sweep cut of least conductance.

    Sets of at most half of the volume are looked at, and whole components; larger ones only if there is no other.

    Parameters
    ----------
    seeds : iterable of int
        Row numbers of the seed vertices.
    lam : float, default 0.1
        Weight of the teleport; smaller looks further.
    cut : str, CardinalityCut or SubmodularCut, default "standard"
        As for `potential`.
    solver : str, default "auto"
        As for `hypergraph_pagerank`.
    max_iter : int, default 300
        Steps at most.
    tol : float, default 1e-2
        Relative certified gap.
    random_state : int or Generator, default 0
        Order of the blocks of the dual solver.

    Attributes
    ----------
    labels_ : ndarray of shape (n_nodes,)
        1 inside the cluster, 0 outside.
    conductance_ : float
        Of the cluster.
    scores_ : ndarray of shape (n_nodes,)
        PageRank over degree; 0 in components without seeds.
    profile_ : DataFrame
        size and conductance of the prefixes of the sweep.
    gap_, objective_, n_iter_ : float, float, int
        Certificate and number of steps.

    Examples
    --------
    >>> from assay.graphs.hypergraph_diffusion import Hypergraph, HypergraphLocalClustering
    >>> H = Hypergraph.from_edges([[0, 1, 2], [0, 1], [2, 3], [3, 4, 5], [4, 5]])
    >>> HypergraphLocalClustering([0]).fit(H).labels_.tolist()
    [1, 1, 1, 0, 0, 0]
    """

    def __init__(
        self,
        seeds: Iterable[int] = (0,),
        lam: float = 0.1,
        cut: Any = "standard",
        solver: str = "auto",
        max_iter: int = 300,
        tol: float = 1e-2,
        random_state: Any = 0,
    ) -> None:
        self.seeds = seeds
        self.lam = lam
        self.cut = cut
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: Hypergraph, y: Any = None) -> HypergraphLocalClustering:
        """Find the cluster.

        Parameters
        ----------
        X : Hypergraph
            The hypergraph.
        y : ignored

        Returns
        -------
        self
        """
        import pandas as pd

        H = _checked(X)
        lam = resolve_lam(self.lam, None)
        check_options(self.cut, self.solver, "strong", 0.5, self.max_iter, True, self.tol)
        try:
            given = np.array(list(self.seeds))
            seeds = np.unique(given)
        except (TypeError, ValueError) as error:
            raise InputError(f"seeds must be a list of row numbers, got {self.seeds!r}.") from error
        if not len(seeds) or seeds.dtype.kind not in "iu" or seeds.min() < 0 or seeds.max() >= H.n_nodes:
            raise InputError(f"seeds must be row numbers from 0 to {H.n_nodes - 1}, got {given[:5].tolist()}.")
        lone = H.isolated[seeds]
        if lone.all():
            raise InputError(f"the seed {said(H.node_names[seeds[0]])} is in no hyperedge: it has no cluster.")
        s = np.zeros((H.n_nodes, 1))
        s[seeds, 0] = lam * H.degree[seeds] / H.degree[seeds].sum()
        found = solve(
            H, s, lam, cut=self.cut, solver=self.solver, max_iter=self.max_iter, tol=self.tol,
            random_state=self.random_state,
        )  # fmt: skip
        self.scores_ = np.maximum(found.x[:, 0], 0.0)
        self.scores_[~np.isin(H.components, H.components[seeds])] = 0.0
        order, ends, phi = sweep_profile(H, self.scores_)
        reached = self.scores_[order[ends - 1]] > 0  # beyond the support every order is as good as another
        self.profile_ = pd.DataFrame({"size": ends[reached], "conductance": phi[reached]})
        self.labels_ = np.zeros(H.n_nodes, dtype=np.int64)
        if len(self.profile_):
            value = self.profile_["conductance"].to_numpy()
            # beyond half of the volume it is the rest that is cut off well, far from the seeds; a whole component may be
            volume = np.cumsum(H.degree[order])[self.profile_["size"].to_numpy() - 1]
            near = (volume <= (0.5 + 1e-12) * H.degree.sum()) | (value == 0)
            best = int(np.where(near, value, np.inf).argmin()) if near.any() else int(value.argmin())
            self.labels_[order[: int(self.profile_["size"].iloc[best])]] = 1
            self.conductance_ = float(self.profile_["conductance"].iloc[best])
        else:  # the whole hypergraph is one plateau: the cluster is everything
            self.labels_[:] = 1
            self.conductance_ = float("inf")
        self.objective_, self.gap_, self.n_iter_ = float(found.objective[0]), float(found.gap[0]), found.n_iter
        return self
