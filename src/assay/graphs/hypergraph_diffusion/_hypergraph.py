"""The hypergraph: checked incidence, weights, names; constructors from what people have, and the way back."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.sparse as sp

from assay._core.errors import InputError, require

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike, NDArray

# scipy's Cuthill-McKee sorts the neighbours of a node by insertion, in quadratic time (a hyperedge of a million members
# took minutes); and what joins thousands says nothing about who is near whom.
_CROWD = 1000
# Weights and values beyond this, or below its inverse, over- or underflow in squares and sums.
_LARGEST = 1e100
_NODES, _EDGES = "% nodes: ", "% hyperedges: "


class Hypergraph:
    """Vertices and weighted hyperedges as one sparse incidence matrix, with the names that the user gave them.

    ``degree[i]`` is the sum of the weights of the hyperedges that hold vertex i, the diagonal of D.

    Parameters
    ----------
    incidence : sparse matrix or array of shape (n_edges, n_nodes)
        Entry (h, i) > 0 where vertex i belongs to hyperedge h; its value is r_hi, which only the cut
        ``"node_weighted"`` looks at. A repeated entry counts once (the largest value is kept).
    edge_weight : array-like of shape (n_edges,), default None
        Positive weights of the hyperedges; None is 1 each.
    node_weight : array-like of shape (n_nodes,), default None
        Positive weights that take the place of the degrees in D; zero is allowed for a vertex without hyperedges.
    edge_names, node_names : sequence, default None
        Names; None numbers them from 0.
    drop_small : {"warn", "quiet"}, default "warn"
        Hyperedges with fewer than two members say nothing and are dropped, with one warning or silently.

    Attributes
    ----------
    n_nodes, n_edges : int
        Sizes after dropping.
    incidence : scipy.sparse.csr_array of shape (n_edges, n_nodes)
        float64, sorted indices of 32 bits.
    edge_weight, degree, node_weight : ndarray
        `node_weight` is None where none was given.
    edge_names, node_names : ndarray
        Names in the order of rows and columns.
    kept : ndarray of shape (n_edges,)
        Which of the given hyperedges each row is.
    n_given : int
        Number of hyperedges before dropping.

    Raises
    ------
    InputError
        Nothing left (no vertex, or no hyperedge with two members), weights or entries that are not positive and finite,
        wrong lengths, names that repeat.

    Examples
    --------
    >>> from assay.graphs.hypergraph_diffusion import Hypergraph
    >>> H = Hypergraph.from_edges([["ann", "bob", "cid"], ["cid", "dan"]], edge_weight=[1.0, 2.0])
    >>> H.n_nodes, H.n_edges, H.degree.tolist()
    (4, 2, [1.0, 1.0, 3.0, 2.0])
    """

    def __init__(
        self,
        incidence: Any,
        edge_weight: ArrayLike | None = None,
        node_weight: ArrayLike | None = None,
        *,
        edge_names: Sequence[Any] | NDArray[Any] | None = None,
        node_names: Sequence[Any] | NDArray[Any] | None = None,
        drop_small: Literal["warn", "quiet"] = "warn",
    ) -> None:
        B = _checked_incidence(incidence)
        m, n = B.shape
        w = _weights(edge_weight, m, "edge_weight", "hyperedge", edge_names)
        self.kept: NDArray[np.int64] = np.arange(m, dtype=np.int64)
        self.n_given = m
        names = _names(edge_names, m, "edge_names")
        if drop_small not in ("warn", "quiet"):
            raise InputError(f"drop_small must be 'warn' or 'quiet', got {drop_small!r}.")
        small = np.diff(B.indptr) < 2
        if small.any():
            if drop_small == "warn":
                first = int(np.argmax(small))
                warnings.warn(
                    f"dropped {int(small.sum())} hyperedge(s) with fewer than two members, the first "
                    f"{said(names[first])}: they connect nothing.",
                    UserWarning,
                    stacklevel=2,
                )
            self.kept = np.flatnonzero(~small).astype(np.int64)
            B, w, names = B[self.kept], w[self.kept], names[self.kept]
        if n == 0 or not len(w):
            raise InputError("the hypergraph is empty: it has no hyperedge with at least two different members.")
        if B.nnz >= np.iinfo(np.int32).max:
            raise InputError(
                f"the hypergraph has {B.nnz:,} incidences; at most {np.iinfo(np.int32).max:,} are supported."
            )
        B.indices = B.indices.astype(np.int32, copy=False)
        B.indptr = B.indptr.astype(np.int32, copy=False)
        self.incidence: sp.csr_array = B
        self.edge_weight: NDArray[np.float64] = w
        self.edge_names: NDArray[Any] = names
        self.node_names: NDArray[Any] = _names(node_names, n, "node_names")
        weights = np.repeat(w, np.diff(B.indptr))
        plain: NDArray[np.float64] = np.bincount(B.indices, weights=weights, minlength=n).astype(np.float64)
        self.node_weight: NDArray[np.float64] | None = None
        if node_weight is not None:
            given = np.asarray(node_weight, dtype=np.float64)
            if given.shape != (n,):
                raise InputError(f"node_weight must have one value per vertex ({n}), got shape {given.shape}.")
            bad = ~np.isfinite(given) | (given < 0) | ((given == 0) & (plain > 0))
            if bad.any():
                i = int(np.argmax(bad))
                raise InputError(
                    f"node_weight of vertex {said(self.node_names[i])} is {given[i]:g}; weights must be positive and finite."
                )
            _in_range(given, "node_weight")
            self.node_weight = given
        self.degree: NDArray[np.float64] = plain if self.node_weight is None else self.node_weight.copy()

    # ------------------------------------------------------------------------------------------------------- sizes

    @property
    def n_nodes(self) -> int:
        """Number of vertices."""
        return int(self.incidence.shape[1])

    @property
    def n_edges(self) -> int:
        """Number of hyperedges."""
        return int(self.incidence.shape[0])

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of members of each hyperedge."""
        return self._sizes

    @property
    def components(self) -> NDArray[np.int64]:
        """Number of the connected component of each vertex."""
        return self._components

    @property
    def by_node(self) -> sp.csr_array:
        """The transposed incidence: hyperedges of each vertex."""
        return self._by_node

    @property
    def in_locality_order(self) -> tuple[Hypergraph, NDArray[np.int64]]:
        """`reordered()`, kept: solvers work on it where the scores do not fit the cache."""
        return self._in_locality_order

    # what is derived is kept under private names: it is no part of what the object holds

    @cached_property
    def _sizes(self) -> NDArray[np.int64]:
        return np.diff(self.incidence.indptr).astype(np.int64)

    @cached_property
    def _components(self) -> NDArray[np.int64]:
        B = self.incidence
        pattern = sp.csr_array((np.ones(B.nnz, dtype=np.int8), B.indices, B.indptr), shape=B.shape)
        both = sp.block_array([[None, pattern], [pattern.T, None]], format="csr")
        label = sp.csgraph.connected_components(both, directed=False)[1][self.n_edges :]
        return np.unique(label, return_inverse=True)[1].astype(np.int64)

    @cached_property
    def _by_node(self) -> sp.csr_array:
        return sp.csr_array(self.incidence.T.tocsr())

    @cached_property
    def _in_locality_order(self) -> tuple[Hypergraph, NDArray[np.int64]]:
        return self.reordered()

    @property
    def isolated(self) -> NDArray[np.bool_]:
        """Vertices without a hyperedge."""
        return np.bincount(self.incidence.indices, minlength=self.n_nodes) == 0

    def __repr__(self) -> str:
        return f"Hypergraph({self.n_nodes:,} vertices, {self.n_edges:,} hyperedges, {self.incidence.nnz:,} incidences)"

    # ------------------------------------------------------------------------------------------------ constructors

    @classmethod
    def from_edges(
        cls,
        edges: Iterable[Iterable[Any]],
        n_nodes: int | None = None,
        edge_weight: ArrayLike | None = None,
        **options: Any,
    ) -> Hypergraph:
        """Build from lists of members.

        Parameters
        ----------
        edges : iterable of iterables
            Members of each hyperedge: whole numbers from 0, or any names.
        n_nodes : int, default None
            Number of vertices where members are whole numbers; None is the largest plus one.
        edge_weight : array-like, default None
            Weights of the hyperedges.
        **options
            Passed to `Hypergraph`.

        Returns
        -------
        Hypergraph
            Vertices in the order of their numbers, or of their first appearance if they are names.
        """
        lists = [list(edge) for edge in edges]
        flat = [v for edge in lists for v in edge]
        row = np.repeat(np.arange(len(lists)), [len(edge) for edge in lists])
        names = options.pop("node_names", None)
        if all(isinstance(v, (int, np.integer)) and not isinstance(v, bool) for v in flat) and names is None:
            column = np.array(flat, dtype=np.int64)
            n = int(column.max(initial=-1)) + 1 if n_nodes is None else int(n_nodes)
            bad = (column < 0) | (column >= n)
            if bad.any():
                at = int(np.argmax(bad))
                raise InputError(
                    f"hyperedge {row[at]}: vertex {column[at]} is out of range; vertices are numbered 0 to {n - 1}."
                )
        else:
            known = {} if names is None else {v: i for i, v in enumerate(names)}
            if names is not None:
                unknown = next((v for v in flat if v not in known), None)
                if unknown is not None:
                    raise InputError(f"a hyperedge holds {unknown!r}, which is not among node_names.")
            column = np.array([known.setdefault(v, len(known)) for v in flat], dtype=np.int64)
            names, n = list(known), len(known)
        B = sp.coo_array((np.ones(len(row)), (row, column)), shape=(len(lists), n))
        return cls(B, edge_weight, node_names=names, **options)

    @classmethod
    def from_bipartite(cls, nodes: Sequence[Any], edges: Sequence[Any], **options: Any) -> Hypergraph:
        """Build from two columns of equal length: a vertex, and a hyperedge that holds it.

        Parameters
        ----------
        nodes, edges : sequence
            Row k says that vertex ``nodes[k]`` belongs to hyperedge ``edges[k]``.
        **options
            Passed to `Hypergraph`.

        Returns
        -------
        Hypergraph
            Vertices and hyperedges in the order of their first appearance.
        """
        if len(nodes) != len(edges):
            raise InputError(f"nodes and edges must have the same length, got {len(nodes)} and {len(edges)}.")
        import pandas as pd

        i, node_names = pd.factorize(pd.Series(list(nodes), dtype=object))
        h, edge_names = pd.factorize(pd.Series(list(edges), dtype=object))
        if (i < 0).any() or (h < 0).any():
            raise InputError(f"row {int(np.argmax((i < 0) | (h < 0)))}: a vertex or hyperedge is missing.")
        B = sp.coo_array((np.ones(len(i)), (h, i)), shape=(len(edge_names), len(node_names)))
        return cls(B, edge_names=list(edge_names), node_names=list(node_names), **options)

    @classmethod
    def from_categorical(
        cls, df: pd.DataFrame, n_bins: int = 10, missing: Literal["drop_column", "ignore_rows"] = "drop_column"
    ) -> Hypergraph:
        """One hyperedge per (column, value) of a table; see `CategoricalEncoder`.

        Parameters
        ----------
        df : DataFrame or array of shape (n_rows, n_columns)
            Rows become vertices. The column of labels must not be among the columns.
        n_bins : int, default 10
            Numeric columns with more distinct values are cut into as many quantile bins, half open, the last closed.
        missing : {"drop_column", "ignore_rows"}, default "drop_column"
            Leave out a column with missing values, or leave those rows out of the column's hyperedges.

        Returns
        -------
        Hypergraph
            Hyperedges named ``"column=value"``.
        """
        from ._tables import CategoricalEncoder

        return CategoricalEncoder(n_bins=n_bins, missing=missing).fit(df).hypergraph_

    @classmethod
    def from_knn(
        cls, X: ArrayLike, k: int = 5, weights: Literal["centroid", "centre"] | None = None, scale: float | None = None
    ) -> Hypergraph:
        """One hyperedge per point: the point and its k nearest neighbours.

        Parameters
        ----------
        X : array-like of shape (n_points, n_features)
            Finite coordinates.
        k : int, default 5
            Neighbours of a point besides itself, below the number of points.
        weights : {"centroid", "centre"} or None, default None
            ``r_hi = exp(-|x_i - c_h|^2 / scale)``, with c_h the mean of the members or the point itself; None is 1 each.
        scale : float, default None
            In squared units of X; None is the median of ``|x_i - c_h|^2``.

        Returns
        -------
        Hypergraph
        """
        from sklearn.neighbors import NearestNeighbors

        points = np.asarray(X, dtype=np.float64)
        if points.ndim == 1:
            points = points[:, None]
        if points.ndim != 2 or not np.isfinite(points).all():
            raise InputError("from_knn needs a finite array of shape (n_points, n_features).")
        check_coordinates(points)
        n = len(points)
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 1 <= k < n:
            raise InputError(f"k must be a whole number from 1 to {n - 1} (points minus one), got {k!r}.")
        # kneighbors without a query leaves the point itself out, duplicates of it in
        near = NearestNeighbors(n_neighbors=int(k)).fit(points).kneighbors(return_distance=False)
        member = np.concatenate((np.arange(n)[:, None], near), axis=1)
        value = np.ones(member.shape)
        if weights is not None:
            if weights not in ("centroid", "centre"):
                raise InputError(f"weights must be 'centroid', 'centre' or None, got {weights!r}.")
            centre = points[member].mean(axis=1) if weights == "centroid" else points
            squared = ((points[member] - centre[:, None, :]) ** 2).sum(axis=2)
            unit = float(np.median(squared[squared > 0])) if scale is None and (squared > 0).any() else scale or 1.0
            if not unit > 0:
                raise InputError(f"scale must be positive, got {scale!r}.")
            # below 1e-6 a vertex would hardly be held by its hyperedge, and 1/r would drown the rest in rounding
            value = np.maximum(np.exp(-squared / unit), 1e-6)
        row = np.repeat(np.arange(n), k + 1)
        return cls(sp.coo_array((value.ravel(), (row, member.ravel())), shape=(n, n)))

    @classmethod
    def from_hmetis(cls, path_or_text: str | Path) -> Hypergraph:
        """Read hMETIS text; see `read_hmetis`.

        Parameters
        ----------
        path_or_text : path or str
            A file (plain or gzip), or the text itself (a string with a line break).

        Returns
        -------
        Hypergraph
        """
        from ._formats import parse_hmetis, read_hmetis

        if isinstance(path_or_text, str) and "\n" in path_or_text:
            return parse_hmetis(path_or_text, "the text")
        return read_hmetis(path_or_text)

    @classmethod
    def from_xgi(cls, H: Any) -> Hypergraph:
        """Take over an `xgi.Hypergraph`; the edge attribute ``weight`` is the weight, 1 where absent.

        Parameters
        ----------
        H : xgi.Hypergraph
            Node and edge ids become names.

        Returns
        -------
        Hypergraph
        """
        nodes, ids = list(H.nodes), list(H.edges)
        members = H.edges.members(dtype=dict)
        attributes = H.edges.attrs.asdict()
        weight = [float(attributes[e].get("weight", 1.0)) for e in ids]
        return cls._from_members([members[e] for e in ids], weight, ids, nodes)

    @classmethod
    def from_hypergraphx(cls, H: Any) -> Hypergraph:
        """Take over a `hypergraphx.Hypergraph` with its weights.

        Parameters
        ----------
        H : hypergraphx.Hypergraph
            Nodes become names; hyperedges have none and are numbered.

        Returns
        -------
        Hypergraph
        """
        edges = list(H.get_edges())
        weight = [float(H.get_weight(e)) for e in edges]
        return cls._from_members(edges, weight, None, list(H.get_nodes()))

    @classmethod
    def from_hypernetx(cls, H: Any) -> Hypergraph:
        """Take over a `hypernetx.Hypergraph`; the edge property ``weight`` is the weight, 1 where absent.

        Parameters
        ----------
        H : hypernetx.Hypergraph
            Node and edge ids become names.

        Returns
        -------
        Hypergraph
        """
        nodes, ids = list(H.nodes), list(H.edges)
        weight = []
        for e in ids:
            value = getattr(H.edges[e], "weight", 1.0)  # an attribute view raises AttributeError where there is none
            weight.append(1.0 if value is None else float(value))
        return cls._from_members([list(H.edges[e]) for e in ids], weight, ids, nodes)

    @classmethod
    def from_networkx(cls, G: Any) -> Hypergraph:
        """Take over a bipartite networkx graph: nodes with ``bipartite=0`` are vertices, with ``bipartite=1`` hyperedges.

        Parameters
        ----------
        G : networkx.Graph
            The node attribute ``weight`` of a hyperedge is its weight, 1 where absent; the edge attribute ``weight`` is
            r_hi, 1 where absent.

        Returns
        -------
        Hypergraph
        """
        side = {v: data.get("bipartite") for v, data in G.nodes(data=True)}
        lost = next((v for v, s in side.items() if s not in (0, 1)), None)
        if lost is not None:
            raise InputError(f"node {lost!r} needs the attribute bipartite: 0 for a vertex, 1 for a hyperedge.")
        nodes, edges = ([v for v, s in side.items() if s == want] for want in (0, 1))
        at = {v: i for part in (nodes, edges) for i, v in enumerate(part)}
        row, column, value = [], [], []
        for a, b, data in G.edges(data=True):
            if side[a] == side[b]:
                raise InputError(f"the edge {a!r} - {b!r} joins two nodes of one side; the graph is not bipartite.")
            h, v = (a, b) if side[a] == 1 else (b, a)
            row.append(at[h])
            column.append(at[v])
            value.append(float(data.get("weight", 1.0)))
        B = sp.coo_array((value, (row, column)), shape=(len(edges), len(nodes)))
        weight = [float(G.nodes[e].get("weight", 1.0)) for e in edges]
        return cls(B, weight, edge_names=edges, node_names=nodes)

    @classmethod
    def _from_members(
        cls, members: Iterable[Iterable[Any]], weight: list[float], edge_names: list[Any] | None, nodes: list[Any]
    ) -> Hypergraph:
        at = {v: i for i, v in enumerate(nodes)}
        column = [sorted(at[v] for v in edge) for edge in members]
        row = np.repeat(np.arange(len(column)), [len(edge) for edge in column])
        flat = np.array([v for edge in column for v in edge], dtype=np.int64)
        B = sp.coo_array((np.ones(len(row)), (row, flat)), shape=(len(column), len(nodes)))
        return cls(B, weight, edge_names=edge_names, node_names=nodes)

    # ---------------------------------------------------------------------------------------------------- exports

    def members(self, h: int) -> NDArray[np.int32]:
        """Vertices of hyperedge h (row number).

        Parameters
        ----------
        h : int
            Row of the incidence.

        Returns
        -------
        ndarray
            Column numbers, increasing.
        """
        return self.incidence.indices[self.incidence.indptr[h] : self.incidence.indptr[h + 1]]

    def to_hmetis(self) -> str:
        """Text in hMETIS format: ``m n fmt``, one line per hyperedge (weight first where they differ), vertex weights.

        Returns
        -------
        str
            Vertices counted from 1. Names that are not the default stand in comment lines that `read_hmetis` reads.
        """
        B = self.incidence
        weighted, valued = bool((self.edge_weight != 1).any()), bool((B.data != 1).any())
        fmt = 100 * valued + 10 * (self.node_weight is not None) + weighted
        lines = [f"{self.n_edges} {self.n_nodes} {fmt}" if fmt else f"{self.n_edges} {self.n_nodes}"]
        # a file without names is read with vertices 1..n and hyperedges 0..m-1: those need not be written
        for tag, names, base in ((_NODES, self.node_names, 1), (_EDGES, self.edge_names, 0)):
            if not _numbered(names, base):
                lines.append(tag + json.dumps([_jsonable(v) for v in names.tolist()], ensure_ascii=False))
        ids = (B.indices + 1).tolist()
        for h in range(self.n_edges):
            a, b = B.indptr[h], B.indptr[h + 1]
            words = [_number(self.edge_weight[h])] if weighted else []
            if valued:
                words += [f"{i} {_number(v)}" for i, v in zip(ids[a:b], B.data[a:b], strict=True)]
            else:
                words += map(str, ids[a:b])
            lines.append(" ".join(words))
        if self.node_weight is not None:
            lines += [_number(v) for v in self.node_weight]
        return "\n".join(lines) + "\n"

    def to_xgi(self) -> Any:
        """As an `xgi.Hypergraph` with ids as named here and the edge attribute ``weight``.

        Returns
        -------
        xgi.Hypergraph
        """
        out = require("xgi", "pip:xgi").Hypergraph()
        out.add_nodes_from(self.node_names.tolist())
        names = self.node_names
        for h, name in enumerate(self.edge_names.tolist()):
            out.add_edge(names[self.members(h)].tolist(), idx=name, weight=float(self.edge_weight[h]))
        return out

    def to_hypernetx(self) -> Any:
        """As a `hypernetx.Hypergraph` with ids as named here and the edge property ``weight``; isolated vertices are lost.

        Returns
        -------
        hypernetx.Hypergraph
        """
        hnx = require("hypernetx", "pip:hypernetx")
        names = self.node_names
        members = {e: names[self.members(h)].tolist() for h, e in enumerate(self.edge_names.tolist())}
        weight = {e: {"weight": float(w)} for e, w in zip(self.edge_names.tolist(), self.edge_weight, strict=True)}
        return hnx.Hypergraph(members, edge_properties=weight)

    def star_laplacian(self) -> sp.csr_array:
        """L = D - B^T W De^{-1} B of the star expansion (B the 0/1 incidence, De the sizes): the linear model.

        Returns
        -------
        csr_array of shape (n_nodes, n_nodes)
            Rows sum to zero (plain degrees, whatever `node_weight` is). A hyperedge with m members gives m^2 entries: for
            very large hyperedges apply the three factors instead.
        """
        B = self._pattern()
        w = self.edge_weight
        half = sp.csr_array(sp.diags_array(w / self.sizes) @ B)
        return sp.csr_array(sp.diags_array(B.T @ w) - B.T @ half)

    def clique_adjacency(self) -> sp.csr_array:
        """Adjacency of the clique expansion: A_ij = sum of w_h over the hyperedges that hold both i and j.

        Returns
        -------
        csr_array of shape (n_nodes, n_nodes)
            Symmetric, empty diagonal.
        """
        B = self._pattern()
        A = sp.csr_array(B.T @ sp.csr_array(sp.diags_array(self.edge_weight) @ B))
        A.setdiag(0.0)
        A.eliminate_zeros()
        return A

    def _pattern(self) -> sp.csr_array:
        B = self.incidence
        return sp.csr_array((np.ones(B.nnz), B.indices, B.indptr), shape=B.shape)

    def reordered(self) -> tuple[Hypergraph, NDArray[np.int64]]:
        """The same hypergraph with vertices and hyperedges renumbered so that neighbours lie near in memory.

        Returns
        -------
        H : Hypergraph
            Vertices in breadth-first order over shared hyperedges, hyperedges by their first member.
        order : ndarray of shape (n_nodes,)
            Old number of each new vertex: ``x_new = x[order]``, ``x[order] = x_new``.
        """
        order, edges = locality_order(self)
        B = self.incidence[edges][:, order]
        B.sort_indices()
        node = None if self.node_weight is None else self.node_weight[order]
        made = Hypergraph(
            B, self.edge_weight[edges], node, edge_names=self.edge_names[edges], node_names=self.node_names[order]
        )
        return made, order


def locality_order(H: Hypergraph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Order of vertices (reverse Cuthill-McKee on the bipartite graph) and of hyperedges (by first vertex)."""
    B = H.incidence
    pattern = sp.csr_array((np.ones(B.nnz, dtype=np.int8), B.indices, B.indptr), shape=B.shape)
    if max(H.sizes.max(), np.bincount(B.indices).max()) > _CROWD:
        row = np.repeat(np.arange(H.n_edges), H.sizes)
        narrow = (H.sizes[row] <= _CROWD) & (np.bincount(B.indices, minlength=H.n_nodes)[B.indices] <= _CROWD)
        kept = (np.ones(int(narrow.sum()), dtype=np.int8), (row[narrow], B.indices[narrow]))
        pattern = sp.csr_array(sp.coo_array(kept, shape=B.shape))
    both = sp.csr_matrix(sp.block_array([[None, pattern], [pattern.T, None]], format="csr"))
    walk = sp.csgraph.reverse_cuthill_mckee(both, symmetric_mode=True).astype(np.int64)
    order = walk[walk >= H.n_edges] - H.n_edges
    place = np.empty(H.n_nodes, dtype=np.int64)
    place[order] = np.arange(H.n_nodes)
    first = np.minimum.reduceat(place[B.indices], B.indptr[:-1].astype(np.intp))
    # small hyperedges of one size after another: the compiled loop then meets no change of its path
    return order, np.lexsort((first, np.minimum(H.sizes, 9)))


def _checked_incidence(incidence: Any) -> sp.csr_array:
    if not sp.issparse(incidence):
        try:
            dense = np.asarray(incidence, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(
                "the incidence must be a sparse matrix or an array of numbers (hyperedges x vertices)."
            ) from error
        if dense.ndim != 2:
            raise InputError(f"the incidence must be a matrix (hyperedges x vertices), got {dense.ndim} dimension(s).")
        incidence = sp.coo_array(dense)
    coo = sp.coo_array(incidence)
    if np.iscomplexobj(coo.data):
        raise InputError("the incidence holds complex entries; they must be positive real numbers.")
    value = coo.data.astype(np.float64)
    row, column = coo.coords
    bad = ~np.isfinite(value) | (value < 0)
    if bad.any():
        at = int(np.argmax(bad))
        raise InputError(
            f"the incidence of hyperedge {row[at]} and vertex {column[at]} is {value[at]:g}; entries must be positive and finite."
        )
    _in_range(value, "the incidence")
    present = value > 0
    if not present.all():
        row, column, value = row[present], column[present], value[present]
    m, n = coo.shape
    order = np.lexsort((column, row))
    row, column, value = row[order], column[order], value[order]
    new = np.ones(len(row), dtype=bool)
    new[1:] = (row[1:] != row[:-1]) | (column[1:] != column[:-1])
    if not new.all():  # a vertex named twice in one hyperedge belongs to it once
        value = np.maximum.reduceat(value, np.flatnonzero(new))
        row, column = row[new], column[new]
    indptr = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=m))))
    return sp.csr_array((value, column.astype(np.int32), indptr), shape=(m, n))


def _weights(given: Any, m: int, what: str, of: str, names: Sequence[Any] | NDArray[Any] | None) -> NDArray[np.float64]:
    if given is None:
        return np.ones(m)
    w = np.array(given, dtype=np.float64)
    if w.shape != (m,):
        raise InputError(f"{what} must have one value per {of} ({m}), got shape {w.shape}.")
    bad = ~np.isfinite(w) | (w <= 0)
    if bad.any():
        h = int(np.argmax(bad))
        name = names[h] if names is not None else h
        raise InputError(f"{what} of {of} {name!r} is {w[h]:g}; weights must be positive and finite.")
    _in_range(w, what)
    return w


def _in_range(value: NDArray[np.float64], what: str) -> None:
    """Refuse magnitudes whose squares and inverses leave the range of doubles: the certificate would be 0 or NaN."""
    strange = (value > 0) & ((value < 1 / _LARGEST) | (value > _LARGEST))
    if strange.any():
        raise InputError(
            f"{what} holds {value[int(np.argmax(strange))]:g}; between 1e-100 and 1e100 numbers do not over- or underflow: "
            "scale them."
        )


def _names(given: Sequence[Any] | NDArray[Any] | None, size: int, what: str) -> NDArray[Any]:
    if given is None:
        return np.arange(size)
    names = np.empty(len(given), dtype=object)
    names[:] = list(given)
    if len(names) != size:
        raise InputError(f"{what} must have {size} entries, got {len(names)}.")
    if len(set(names.tolist())) != size:
        raise InputError(f"{what} repeat; every vertex and every hyperedge needs a name of its own.")
    return names


def check_coordinates(points: NDArray[np.float64]) -> None:
    """Refuse coordinates whose squares overflow: distances between them would be infinite."""
    if points.size and np.abs(points).max() > 1e150:
        i, j = (int(v) for v in np.argwhere(np.abs(points) > 1e150)[0])
        raise InputError(f"the coordinate {points[i, j]:g} (point {i}, column {j}) is beyond 1e150; use other units.")


def said(name: Any) -> str:
    """A name as a message shows it."""
    return repr(name.item() if isinstance(name, np.generic) else name)


def _numbered(names: NDArray[Any], base: int) -> bool:
    return names.tolist() == list(range(base, base + len(names)))


def _jsonable(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return value if isinstance(value, (str, int, float)) or value is None else str(value)


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))
