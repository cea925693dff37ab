"""Hierarchies for Dasgupta's cost: recursive sparsest cuts, and the cost of any binary tree."""

from __future__ import annotations

import heapq
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from scipy.cluster.hierarchy import linkage
from scipy.sparse.csgraph import connected_components
from sklearn.base import BaseEstimator, ClusterMixin

from assay._core.errors import InputError
from assay._core.seeds import as_rng
from assay._shared.graphs import as_csr

__all__ = ["DasguptaHierarchy", "dasgupta_cost"]


def dasgupta_cost(tree: Any, W: Any) -> float:
    r"""Dasgupta's cost of a binary tree over the vertices of a graph.

    .. math:: \mathrm{cost}(T) = \sum_{\{i,j\} \in E} w_{ij}\,|\mathrm{leaves}(\mathrm{lca}_T(i, j))|

    Parameters
    ----------
    tree : array of shape (n - 1, 2) or (n - 1, 4)
        Row t merges two nodes into node ``n + t``; vertices are 0..n-1 (the convention of ``children_`` in
        scikit-learn, of linkage matrices in scipy and of dendrograms in scikit-network; only the first two columns are
        used). Rows must come after the rows of the nodes that they merge.
    W : sparse matrix, array or networkx graph
        Symmetric non-negative weights, as `SemiRandomBisection` takes them.

    Returns
    -------
    float
        The cost; each edge counts once.

    Raises
    ------
    InputError
        A tree of the wrong shape, or one that does not merge every node exactly once.

    Notes
    -----
    1. In the order in which the tree draws its leaves, the lowest common ancestor of two vertices is the highest merge
       between them. One pass over the n-1 rows finds that order; a sparse table of range maxima then answers all edges
       at once: O(n log n + m), no loop over edges.
    2. scikit-network divides this cost by the total edge weight; karate is 865 here and 865/78 = 11.0897 there.

    References
    ----------
    S. Dasgupta, "A cost function for similarity-based hierarchical clustering", STOC 2016 (arXiv 1510.05043).

    Examples
    --------
    >>> path = [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    >>> dasgupta_cost([[0, 1], [3, 2]], path)  # edge 0-1 is separated among 2 leaves, edge 1-2 among 3
    5.0
    """
    A, _ = as_csr(W)
    n = A.shape[0]
    left, right = _tree_columns(tree, n)
    order, joins, size = _leaf_order(left, right, n)
    position = np.empty(n, dtype=np.int64)
    position[order] = np.arange(n)
    upper = sp.triu(A, k=1).tocoo()
    if upper.nnz == 0:
        return 0.0
    a, b = position[upper.row], position[upper.col]
    lo, hi = np.minimum(a, b), np.maximum(a, b)
    return float(np.dot(upper.data, size[_range_max(joins, lo, hi)]))


def _tree_columns(tree: Any, n: int) -> tuple[np.ndarray, np.ndarray]:
    children = np.asarray(tree)
    if children.ndim != 2 or children.shape[0] != n - 1 or children.shape[1] not in (2, 4):
        raise InputError(
            f"A tree over {n} vertices has shape ({n - 1}, 2) or ({n - 1}, 4), but this one has shape {children.shape}."
        )
    pair = children[:, :2]
    if not np.issubdtype(pair.dtype, np.number) or not np.isfinite(pair).all() or (pair != np.floor(pair)).any():
        raise InputError("The first two columns of a tree must be whole numbers: the nodes that each row merges.")
    pair = pair.astype(np.int64)
    late = np.flatnonzero((pair >= n + np.arange(n - 1)[:, None]).any(axis=1) | (pair < 0).any(axis=1))
    if len(late):
        row = int(late[0])
        raise InputError(
            f"Row {row} of the tree merges {pair[row].tolist()}, but only nodes 0..{n + row - 1} exist then."
        )
    if len(np.unique(pair)) != 2 * (n - 1):
        values, counts = np.unique(pair, return_counts=True)
        raise InputError(f"Node {values[counts > 1][0]} is merged twice; in a binary tree each node has one parent.")
    return pair[:, 0], pair[:, 1]


def _leaf_order(left: np.ndarray, right: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Leaves from left to right, the merge that joins each to the next, and the leaves below each merge."""
    l, r = left.tolist(), right.tolist()
    size = [1] * (2 * n - 1)
    for t in range(n - 1):
        size[n + t] = size[l[t]] + size[r[t]]
    start = [0] * (2 * n - 1)
    joins = [0] * (n - 1)
    for t in range(n - 2, -1, -1):
        middle = start[n + t] + size[l[t]]
        start[l[t]], start[r[t]] = start[n + t], middle
        joins[middle - 1] = t
    order = np.empty(n, dtype=np.int64)
    order[np.asarray(start[:n])] = np.arange(n)
    return order, np.asarray(joins, dtype=np.int64), np.asarray(size[n:], dtype=np.float64)


def _range_max(values: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    """``values[lo:hi].max()`` for many ranges (lo < hi) by a sparse table."""
    table = [values]
    width = 1
    while 2 * width <= len(values):
        table.append(np.maximum(table[-1][:-width], table[-1][width:]))
        width *= 2
    length = hi - lo
    level = np.frexp(length.astype(np.float64))[1] - 1  # floor(log2), exact for whole numbers below 2^53
    out = np.empty(len(lo), dtype=values.dtype)
    for k, row in enumerate(table):
        here = np.flatnonzero(level == k)
        out[here] = np.maximum(row[lo[here]], row[hi[here] - (1 << k)])
    return out


class DasguptaHierarchy(ClusterMixin, BaseEstimator):
    r"""Hierarchical clustering of a graph by recursive balanced sparsest cuts.

    Minimises Dasgupta's cost

    .. math:: \sum_{\{i,j\} \in E} w_{ij}\,|\mathrm{leaves}(\mathrm{lca}(i, j))|

    top-down: every part is split by the cut that minimises :math:`w(S, \bar S)/(|S||\bar S|)` with both sides at least a
    third of it, until parts are small; there average linkage finishes.

    Parameters
    ----------
    n_clusters : int, default 2
        Number of clusters in ``labels_``, 1..n: the ``n_clusters - 1`` largest merges are undone.
    leaf_size : int or None, default None
        Parts of at most this many vertices are finished by average linkage on the similarities; >= 1. None is 32, or a
        hundredth of the vertices if that is more (at most 1000), see note 4.
    n_iter : int, default 150
        Sweeps of the low-rank solver per split; >= 1.
    n_directions : int, default 20
        Random directions that each embedding is rounded with; >= 1.
    n_components : int, default 8
        Dimension of the embedding.
    refine : bool, default True
        Improve every split by single-vertex moves (Fiduccia-Mattheyses) that lower the sparsest-cut ratio.
    random_state : int, Generator, RandomState or None, default None
        Seed.
    n_jobs : int, default 1
        Threads per split; the result does not depend on it.
    directed : {"error", "symmetrize"}, default "error"
        A directed networkx graph or an asymmetric matrix is refused, or both directions of an edge are added up.

    Attributes
    ----------
    children_ : ndarray of shape (n - 1, 2)
        Row t merges two nodes into node n + t, smallest merges first.
    linkage_ : ndarray of shape (n - 1, 4)
        The same as a scipy linkage matrix; the height of a merge is the number of leaves below it.
    cost_ : float
        Dasgupta's cost of the tree.
    labels_ : ndarray of shape (n,)
        Clusters 0..n_clusters-1, in order of first appearance.
    names_ : ndarray of shape (n,)
        Vertex names in row order.
    n_splits_ : int
        Number of balanced cuts that were computed.

    Raises
    ------
    InputError
        As `SemiRandomBisection`; ``n_clusters`` outside [1, n].

    Notes
    -----
    1. Heights are leaf counts because the cost is then ``sum(w_ij * cophenetic distance)``, heights are strictly
       monotone along every path, and ``fcluster(linkage_, t, "distance")`` gives the largest subtrees of at most t leaves.
    2. Connected components are separated before anything is cut, whatever their sizes: an edge never pays for vertices
       that it cannot reach. Component trees are joined smallest first.
    3. The third as least side is what the O(1) approximation of recursive sparsest cuts needs (Charikar and Chatziafratis,
       2017), and it bounds the depth by log_{1.5} n.
    4. An edge inside a part of n/100 vertices pays at most a hundredth of what an edge across the root pays, so cutting
       such parts further hardly changes the cost; leaving them to average linkage keeps the number of cuts below 300
       whatever n is.

    References
    ----------
    V. Cohen-Addad, T. d'Orsi, A. Mousavifar, ICML 2024 (arXiv 2406.04857). S. Dasgupta, STOC 2016 (arXiv 1510.05043).
    M. Charikar, V. Chatziafratis, SODA 2017 (arXiv 1609.09548).

    Examples
    --------
    >>> import networkx as nx
    >>> hierarchy = DasguptaHierarchy(random_state=0).fit(nx.barbell_graph(5, 0))
    >>> hierarchy.labels_.tolist(), hierarchy.cost_
    ([0, 0, 0, 0, 0, 1, 1, 1, 1, 1], 90.0)
    """

    def __init__(
        self,
        n_clusters: int = 2,
        *,
        leaf_size: int | None = None,
        n_iter: int = 150,
        n_directions: int = 20,
        n_components: int = 8,
        refine: bool = True,
        random_state: Any = None,
        n_jobs: int = 1,
        directed: Literal["error", "symmetrize"] = "error",
    ) -> None:
        self.n_clusters = n_clusters
        self.leaf_size = leaf_size
        self.n_iter = n_iter
        self.n_directions = n_directions
        self.n_components = n_components
        self.refine = refine
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.directed = directed

    def fit(self, W: Any, y: Any = None) -> DasguptaHierarchy:
        """Build the tree.

        Parameters
        ----------
        W : sparse matrix or array of shape (n, n), or networkx graph
            Symmetric non-negative weights (similarities, not distances; see `directed`).
        y : ignored

        Returns
        -------
        self
        """
        A, names = as_csr(W, directed=self.directed)
        n = A.shape[0]
        if not 1 <= self.n_clusters <= n:
            raise InputError(f"n_clusters must lie in [1, {n}] for {n} vertices, but it is {self.n_clusters}.")
        leaf_size = min(max(32, n // 100), 1000) if self.leaf_size is None else self.leaf_size
        for name, value in (
            ("leaf_size", leaf_size),
            ("n_iter", self.n_iter),
            ("n_directions", self.n_directions),
            ("n_components", self.n_components),
        ):
            if value < 1:
                raise InputError(f"{name} must be at least 1, but it is {value}.")
        rng = as_rng(self.random_state)
        builder = _Tree(n)
        self.n_splits_ = 0
        # Parts wait on a stack, parents are known by their index: no recursion, so no limit on the depth.
        stack: list[tuple[np.ndarray, int, int]] = [(np.arange(n), -1, 0)]
        while stack:
            vertices, parent, side = stack.pop()
            part = A if len(vertices) == n else A[vertices][:, vertices].tocsr()
            n_parts, component = connected_components(part, directed=False)
            if n_parts > 1:
                groups = np.split(np.argsort(component, kind="stable"), np.cumsum(np.bincount(component))[:-1])
                for group, (at, hand) in zip(groups, builder.join([len(g) for g in groups], parent, side), strict=True):
                    stack.append((vertices[group], at, hand))
                continue
            if len(vertices) <= leaf_size or len(vertices) < 3:
                builder.finish(vertices, _average_linkage(part), parent, side)
                continue
            labels = self._split(part, rng)
            self.n_splits_ += 1
            node = builder.add(parent, side)
            for hand in (0, 1):
                stack.append((vertices[labels == hand], node, hand))
        self.children_, sizes = builder.rows()
        self.linkage_ = np.column_stack((self.children_, sizes, sizes)).astype(np.float64)
        self.cost_ = dasgupta_cost(self.children_, A)
        self.names_ = names
        self.labels_ = self.cut_tree(self.n_clusters)
        return self

    def cut_tree(self, n_clusters: int) -> np.ndarray:
        """Flat clusters: undo the largest merges.

        Parameters
        ----------
        n_clusters : int
            Number of clusters, 1..n.

        Returns
        -------
        ndarray of shape (n,)
            Labels 0..n_clusters-1 in order of first appearance.
        """
        n = len(self.children_) + 1
        if not 1 <= n_clusters <= n:
            raise InputError(f"n_clusters must lie in [1, {n}] for {n} vertices, but it is {n_clusters}.")
        kept = self.children_[: n - n_clusters]
        parents = n + np.arange(len(kept))
        row, column = np.concatenate((parents, parents)), np.concatenate((kept[:, 0], kept[:, 1]))
        forest = sp.coo_array((np.ones(len(row)), (row, column)), shape=(2 * n - 1, 2 * n - 1))
        cluster = connected_components(forest, directed=False)[1][:n]
        _, first, inverse = np.unique(cluster, return_index=True, return_inverse=True)
        rank = np.empty(len(first), dtype=np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        return rank[inverse]

    def _split(self, part: sp.csr_array, rng: np.random.Generator) -> np.ndarray:
        from ._bisection import _Options, _Problem, _search

        n = part.shape[0]
        least = -(-n // 3)
        ones = np.ones(n)
        problem = _Problem(
            W=part,
            vw=ones,
            mass=ones,
            low=float(least),
            high=float(n - least),
            pinned=np.full(n, -1, dtype=np.int64),
            objective="sparsest",
            integer=bool((part.data == np.rint(part.data)).all()),
        )
        options = _Options(
            n_components=self.n_components,
            n_iter=self.n_iter,
            n_directions=self.n_directions,
            refine=self.refine,
            certify=False,
            n_jobs=self.n_jobs,
            # Both add candidates for one hard cut. A hierarchy makes hundreds of easy ones: on planted hierarchies,
            # polblogs and a path they tripled the time, and the cost stayed the same within .1 %.
            heavy=False,
            flow=False,
        )
        return np.asarray(_search(problem, options, rng).labels, dtype=np.int64)


def _average_linkage(W: sp.csr_array) -> np.ndarray:
    """Children of average linkage on similarities; at most ``leaf_size`` vertices, so dense is fine."""
    n = W.shape[0]
    if n == 1:
        return np.empty((0, 2), dtype=np.int64)
    similarity = W.toarray()[np.triu_indices(n, k=1)]
    top = float(similarity.max()) or 1.0
    # averages commute with the affine map from similarity to distance, so scipy's average linkage is the one wanted
    return linkage(1.0 - similarity / top, method="average")[:, :2].astype(np.int64)


class _Tree:
    """A binary tree under construction: inner nodes know their two children, and are renumbered by size at the end."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.nodes: list[list[int]] = []  # [left, right]: a vertex as its number, an inner node as n + its index

    def add(self, parent: int, side: int) -> int:
        self.nodes.append([-1, -1])
        node = len(self.nodes) - 1
        self._hang(self.n + node, parent, side)
        return node

    def _hang(self, what: int, parent: int, side: int) -> None:
        if parent >= 0:
            self.nodes[parent][side] = what

    def join(self, sizes: list[int], parent: int, side: int) -> list[tuple[int, int]]:
        """Nodes that join several parts, smallest first; the place where each part hangs."""
        heap: list[tuple[int, int, Any]] = [(size, k, k) for k, size in enumerate(sizes)]
        heapq.heapify(heap)
        count = len(sizes)
        while len(heap) > 1:
            (size_a, _, a), (size_b, _, b) = heapq.heappop(heap), heapq.heappop(heap)
            heapq.heappush(heap, (size_a + size_b, count, (a, b)))
            count += 1
        places: list[tuple[int, int]] = [(-1, 0)] * len(sizes)
        stack = [(heap[0][2], parent, side)]
        while stack:
            what, at, hand = stack.pop()
            if isinstance(what, int):
                places[what] = (at, hand)
                continue
            node = self.add(at, hand)
            stack.extend((child, node, k) for k, child in enumerate(what))
        return places

    def finish(self, vertices: np.ndarray, children: np.ndarray, parent: int, side: int) -> None:
        k = len(vertices)
        if k == 1:
            self._hang(int(vertices[0]), parent, side)
            return
        base = len(self.nodes)
        ids = [*vertices.tolist(), *range(self.n + base, self.n + base + k - 1)]
        self.nodes.extend([ids[a], ids[b]] for a, b in children.tolist())
        self._hang(ids[-1], parent, side)

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """The children matrix with small merges first, and the leaves below each merge."""
        n, nodes = self.n, self.nodes
        size = np.zeros(len(nodes), dtype=np.int64)
        stack = [next(iter(self._roots()))] if nodes else []
        visit = []
        while stack:
            node = stack.pop()
            visit.append(node)
            stack.extend(child - n for child in nodes[node] if child >= n)
        for node in reversed(visit):
            size[node] = sum(1 if child < n else size[child - n] for child in nodes[node])
        order = np.argsort(size, kind="stable")
        rank = np.empty(len(nodes), dtype=np.int64)
        rank[order] = np.arange(len(nodes))
        children = np.asarray(nodes, dtype=np.int64)[order]
        inner = children >= n
        children[inner] = n + rank[children[inner] - n]
        return np.sort(children, axis=1), size[order]

    def _roots(self) -> set[int]:
        below = {child - self.n for pair in self.nodes for child in pair if child >= self.n}
        return set(range(len(self.nodes))) - below


def to_newick(linkage_matrix: np.ndarray, names: np.ndarray) -> str:
    """The tree in Newick format; a branch is as long as the difference of the two heights.

    Parameters
    ----------
    linkage_matrix : array of shape (n - 1, 4)
        As in ``linkage_``.
    names : array of shape (n,)
        Leaf names; quoted where Newick needs it.

    Returns
    -------
    str
        One line that ends in a semicolon.

    Examples
    --------
    >>> to_newick(np.array([[0, 1, 2, 2], [2, 3, 3, 3]]), np.array(["a", "b", "c d"]))
    "('c d':3,(a:2,b:2):1);"
    """
    n = len(linkage_matrix) + 1
    height = np.concatenate((np.zeros(n), linkage_matrix[:, 2]))
    pieces: list[str | None] = [_newick_name(str(name)) for name in names]
    for t, (a, b) in enumerate(linkage_matrix[:, :2].astype(np.int64).tolist()):
        pieces.append(f"({pieces[a]}:{height[n + t] - height[a]:g},{pieces[b]}:{height[n + t] - height[b]:g})")
        pieces[a] = pieces[b] = None  # the text lives on in the parent only
    return f"{pieces[-1]};"


def _newick_name(name: str) -> str:
    if name and not any(c.isspace() or c in "()[]{}:;,'\"" for c in name):
        return name
    return "'" + name.replace("'", "''") + "'"
