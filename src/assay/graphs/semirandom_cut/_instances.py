"""Planted cuts under a monotone adversary, and hierarchies with extra edges in the bottom clusters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from assay._core.errors import InputError
from assay._core.seeds import as_rng

__all__ = ["adversary", "make_semirandom_cut", "make_semirandom_hsbm"]


@dataclass
class _State:
    """What an adversary may touch: its own inside edges (rewritten freely) and the deletion of cut edges."""

    side: np.ndarray
    cut: np.ndarray  # (c, 2) edges across
    core: np.ndarray  # vertices that later adversaries may use; pendant paths leave it
    inside: list[np.ndarray] = field(default_factory=list)  # (m, 2) arrays of edges within a side

    def groups(self) -> list[np.ndarray]:
        return [np.flatnonzero((self.side == s) & self.core) for s in range(int(self.side.max()) + 1)]


def _distinct_pairs(rows: int, columns: int, prob: float, rng: np.random.Generator) -> np.ndarray:
    """Draw each of rows x columns pairs with probability `prob`; returns sorted flat indices, O(expected count)."""
    total = rows * columns
    count = int(rng.binomial(total, min(prob, 1.0))) if total else 0
    if count > total // 3:  # dense: rejection would repeat itself too often
        return np.sort(rng.permutation(total)[:count])
    found = np.unique(rng.integers(0, total, size=count)) if count else np.empty(0, dtype=np.int64)
    while found.size < count:
        found = np.unique(np.concatenate([found, rng.integers(0, total, size=count - found.size)]))
    return found


def _gnp(vertices: np.ndarray, prob: float, rng: np.random.Generator) -> np.ndarray:
    """Edges of G(k, p) on `vertices`."""
    k = vertices.size
    flat = _distinct_pairs(k, k, prob, rng)
    i, j = np.divmod(flat, max(k, 1))
    keep = i < j  # each unordered pair is one cell of the upper triangle
    return np.stack([vertices[i[keep]], vertices[j[keep]]], axis=1)


@dataclass(frozen=True)
class _Random:
    degree: float

    def apply(self, state: _State, rng: np.random.Generator) -> None:
        for group in state.groups():
            if group.size > 1:
                state.inside.append(_gnp(group, self.degree / (group.size - 1), rng))


@dataclass(frozen=True)
class _Tendrils:
    fraction: float
    length: int

    def apply(self, state: _State, rng: np.random.Generator) -> None:
        taken = np.zeros(state.side.size, dtype=bool)
        paths = []
        for group in state.groups():
            count = min(int(self.fraction * group.size), group.size - 1)
            if count <= 0:
                continue
            order = rng.permutation(group)
            path, anchors = order[:count], order[count:]
            taken[path] = True
            position = np.arange(count)
            parent = np.where(
                position % self.length == 0, anchors[rng.integers(anchors.size, size=count)], np.roll(path, 1)
            )
            paths.append(np.stack([path, parent], axis=1))
        # A pendant path has no other edges: the adversary takes back its own and deletes the cut edges.
        state.cut = state.cut[~taken[state.cut].any(axis=1)]
        state.inside = [edges[~taken[edges].any(axis=1)] for edges in state.inside] + paths
        state.core &= ~taken


@dataclass(frozen=True)
class _Cliques:
    count: int
    size: int

    def apply(self, state: _State, rng: np.random.Generator) -> None:
        i, j = np.triu_indices(self.size, 1)
        for group in state.groups():
            if group.size < self.size:
                raise InputError(
                    f"adversary.cliques: size {self.size} exceeds the {group.size} free vertices of a side."
                )
            for _ in range(self.count):
                members = rng.choice(group, self.size, replace=False)
                state.inside.append(np.stack([members[i], members[j]], axis=1))


@dataclass(frozen=True)
class _Hubs:
    count: int
    degree: int

    def apply(self, state: _State, rng: np.random.Generator) -> None:
        for group in state.groups():
            for hub in rng.choice(group, min(self.count, group.size), replace=False):
                ends = rng.choice(group, min(self.degree, group.size), replace=False)
                ends = ends[ends != hub]
                state.inside.append(np.stack([np.full(ends.size, hub), ends], axis=1))


@dataclass(frozen=True)
class _Delete:
    prob: float

    def apply(self, state: _State, rng: np.random.Generator) -> None:
        state.cut = state.cut[rng.random(len(state.cut)) >= self.prob]


@dataclass(frozen=True)
class _Ring:
    blobs: int

    def apply(self, state: _State, rng: np.random.Generator) -> None:
        # Dense blobs joined in a ring by single edges: the inside itself has cuts of weight 2.
        for group in state.groups():
            parts = np.array_split(rng.permutation(group), self.blobs)
            for index, part in enumerate(parts):
                if part.size > 1:
                    # log(size) + 4 neighbours keep a blob connected with high probability
                    state.inside.append(_gnp(part, (np.log(part.size) + 4) / max(part.size - 1, 1), rng))
                after = parts[(index + 1) % len(parts)]
                if part.size and after.size and len(parts) > 1:
                    state.inside.append(np.array([[part[0], after[-1]]]))


class adversary:
    """Moves of a monotone adversary, applied by `make_semirandom_cut` in list order.

    Each move adds edges within a side or deletes edges of the cut; moves after `tendrils` act on the remaining core.

    Examples
    --------
    >>> from assay.graphs.semirandom_cut import adversary
    >>> moves = [adversary.random(8), adversary.tendrils(0.3, 20), adversary.cliques(2, 40)]
    """

    @staticmethod
    def random(degree: float) -> _Random:
        """Add a random graph of mean degree `degree` inside each side."""
        return _Random(_positive("random", "degree", degree))

    @staticmethod
    def tendrils(fraction: float, length: int) -> _Tendrils:
        """Turn `fraction` of each side into pendant paths of `length` vertices, without any other edge."""
        if not 0 <= fraction < 1:
            raise InputError(f"adversary.tendrils: fraction must lie in [0, 1), got {fraction}.")
        return _Tendrils(fraction, int(_positive("tendrils", "length", length)))

    @staticmethod
    def cliques(count: int, size: int) -> _Cliques:
        """Add `count` cliques of `size` vertices to each side."""
        return _Cliques(int(count), int(_positive("cliques", "size", size)))

    @staticmethod
    def hubs(count: int, degree: int) -> _Hubs:
        """Join `count` vertices of each side to `degree` random vertices of the same side."""
        return _Hubs(int(count), int(_positive("hubs", "degree", degree)))

    @staticmethod
    def delete(prob: float) -> _Delete:
        """Delete each edge of the cut with probability `prob`."""
        if not 0 <= prob <= 1:
            raise InputError(f"adversary.delete: prob must lie in [0, 1], got {prob}.")
        return _Delete(prob)

    @staticmethod
    def ring(blobs: int) -> _Ring:
        """Split each side into `blobs` dense blobs joined in a ring by single edges."""
        return _Ring(int(_positive("ring", "blobs", blobs)))


def _positive(move: str, name: str, value: float) -> float:
    if not value > 0:
        raise InputError(f"adversary.{move}: {name} must be positive, got {value}.")
    return value


def _to_csr(edges: Sequence[np.ndarray], n: int) -> sp.csr_array:
    """A simple graph: parallel edges count once, self-loops vanish."""
    stacked = np.concatenate([e for e in edges if len(e)] or [np.empty((0, 2), dtype=np.int64)])
    lo, hi = stacked.min(axis=1), stacked.max(axis=1)
    flat = np.unique((lo * n + hi)[lo != hi])
    i, j = np.divmod(flat, n)
    half = sp.coo_array((np.ones(flat.size), (i, j)), shape=(n, n))
    W = (half + half.T).tocsr()
    W.sort_indices()
    return W


def make_semirandom_cut(
    n: int,
    *,
    balance: float = 0.5,
    eta: float = 3.0,
    adversary: Iterable[Any] = (),
    random_state: Any = None,
) -> tuple[sp.csr_array, np.ndarray, dict[str, Any]]:
    r"""Draw a graph with a planted balanced cut whose inside a monotone adversary has rebuilt.

    Each pair across the planted sides A, B is an edge with probability :math:`\eta/n`; :math:`\alpha` counts these
    edges. The adversary then adds edges inside A or B and deletes edges across.

    Parameters
    ----------
    n : int
        Number of vertices, at least 2.
    balance : float, default 0.5
        Share of the smaller planted side, in (0, 0.5].
    eta : float, default 3.0
        Density of the cut; the expected number of cut edges is ``eta * |A| * |B| / n``.
    adversary : iterable of moves, default ()
        Moves made by `adversary`, applied in order.
    random_state : None, int, Generator or RandomState
        Seed. The cut edges have a stream of their own: with the same seed the cut edges of any adversary are a
        subset of those without one.

    Returns
    -------
    W : csr_array of shape (n, n), float64
        Symmetric 0/1 adjacency matrix.
    y : ndarray of shape (n,), int64
        Planted sides; vertices are shuffled.
    info : dict
        ``alpha`` (edges drawn across), ``planted_cut`` (those that the adversary left), ``core`` (mask of vertices
        outside pendant paths).

    Raises
    ------
    InputError
        If `n`, `balance` or `eta` is out of range, or a move does not fit the sides.

    References
    ----------
    arXiv 2406.04857, section 1 (model).

    Examples
    --------
    >>> from assay.graphs.semirandom_cut import make_semirandom_cut
    >>> W, y, info = make_semirandom_cut(200, random_state=0)
    >>> W.shape, int(y.sum()), info["alpha"] == info["planted_cut"]
    ((200, 200), 100, True)
    """
    n = int(n)
    if n < 2:
        raise InputError(f"make_semirandom_cut: n must be at least 2, got {n}.")
    if not 0 < balance <= 0.5:
        raise InputError(f"make_semirandom_cut: balance must lie in (0, 0.5], got {balance}.")
    if not eta >= 0:
        raise InputError(f"make_semirandom_cut: eta must be non-negative, got {eta}.")
    cut_rng, order_rng, moves_rng = as_rng(random_state).spawn(3)
    size = max(1, int(np.ceil(balance * n - 1e-9)))  # 1e-9: 0.3 * 10 is 3.0000000000000004 in floats
    permutation = order_rng.permutation(n)
    members = permutation[:size], permutation[size:]
    side = np.zeros(n, dtype=np.int64)
    side[members[0]] = 1
    i, j = np.divmod(_distinct_pairs(size, n - size, eta / n, cut_rng), max(n - size, 1))
    cut = np.stack([members[0][i], members[1][j]], axis=1)
    alpha = len(cut)
    state = _State(side=side, cut=cut, core=np.ones(n, dtype=bool))
    moves = list(adversary)
    for move, rng in zip(moves, moves_rng.spawn(len(moves)) if moves else [], strict=True):
        move.apply(state, rng)
    W = _to_csr([state.cut, *state.inside], n)
    return W, side, {"alpha": alpha, "planted_cut": len(state.cut), "core": state.core}


def make_semirandom_hsbm(
    depth: int = 3,
    leaf_size: int = 60,
    probs: Sequence[float] = (0.02, 0.05, 0.12, 0.3),
    adversary: Iterable[Any] = (),
    random_state: Any = None,
) -> tuple[sp.csr_array, np.ndarray, dict[str, Any]]:
    """Draw a binary hierarchical block model whose bottom clusters an adversary has made denser.

    Two vertices whose bottom clusters part at level l (0 = root) are joined with probability ``probs[l]``; within a
    bottom cluster with ``probs[depth]``. The adversary adds edges inside bottom clusters only.

    Parameters
    ----------
    depth : int, default 3
        Levels of splits; there are ``2**depth`` bottom clusters.
    leaf_size : int, default 60
        Vertices of a bottom cluster.
    probs : sequence of float, default (0.02, 0.05, 0.12, 0.3)
        ``depth + 1`` probabilities in [0, 1], from the root down.
    adversary : iterable of moves, default ()
        Moves made by `adversary`; moves that delete edges or make pendant paths are refused.
    random_state : None, int, Generator or RandomState
        Seed.

    Returns
    -------
    W : csr_array of shape (n, n), float64
        Symmetric 0/1 adjacency matrix, ``n = leaf_size * 2**depth``.
    y : ndarray of shape (n,), int64
        Bottom cluster of each vertex; the binary digits of the number, highest first, are the path from the root.
    info : dict
        ``children``: planted tree, array of shape (n - 1, 2) as in scikit-learn (vertices of a bottom cluster
        are merged one after another); ``depth``.

    Raises
    ------
    InputError
        If `probs` has the wrong length or range, or a move is not allowed.

    Examples
    --------
    >>> from assay.graphs.semirandom_cut import make_semirandom_hsbm
    >>> W, y, info = make_semirandom_hsbm(2, 10, (0.1, 0.3, 0.8), random_state=0)
    >>> W.shape, int(y.max()), info["children"].shape
    ((40, 40), 3, (39, 2))
    """
    if depth < 1 or leaf_size < 1:
        raise InputError(f"make_semirandom_hsbm: depth and leaf_size must be positive, got {depth} and {leaf_size}.")
    if len(probs) != depth + 1 or not all(0 <= p <= 1 for p in probs):
        raise InputError(f"make_semirandom_hsbm: probs needs {depth + 1} values in [0, 1], got {tuple(probs)}.")
    moves = list(adversary)
    for move in moves:
        if isinstance(move, _Tendrils | _Delete):
            raise InputError("make_semirandom_hsbm: only moves that add edges inside bottom clusters are allowed.")
    rng, order_rng, moves_rng = as_rng(random_state).spawn(3)
    leaves = 2**depth
    n = leaves * leaf_size
    permutation = order_rng.permutation(n)
    blocks = permutation.reshape(leaves, leaf_size)
    y = np.empty(n, dtype=np.int64)
    y[permutation] = np.repeat(np.arange(leaves), leaf_size)
    edges = []
    for level in range(depth):
        half = leaf_size * 2 ** (depth - level - 1)
        for start in range(0, n, 2 * half):
            left, right = permutation[start : start + half], permutation[start + half : start + 2 * half]
            i, j = np.divmod(_distinct_pairs(half, half, probs[level], rng), half)
            edges.append(np.stack([left[i], right[j]], axis=1))
    edges += [_gnp(block, probs[depth], rng) for block in blocks]
    state = _State(side=y, cut=np.empty((0, 2), dtype=np.int64), core=np.ones(n, dtype=bool))
    for move, stream in zip(moves, moves_rng.spawn(len(moves)) if moves else [], strict=True):
        move.apply(state, stream)
    children: list[tuple[int, int]] = []

    def join(a: int, b: int) -> int:
        children.append((a, b))
        return n + len(children) - 1

    def planted(low: int, high: int) -> int:
        if high - low == 1:
            node = int(blocks[low, 0])
            for vertex in blocks[low, 1:]:
                node = join(node, int(vertex))
            return node
        middle = (low + high) // 2
        left = planted(low, middle)
        return join(left, planted(middle, high))

    planted(0, leaves)
    info = {"children": np.array(children, dtype=np.int64).reshape(-1, 2), "depth": depth}
    return _to_csr([*edges, *state.inside], n), y, info
