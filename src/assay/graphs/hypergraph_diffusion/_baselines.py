"""What the method is compared with: linear and non-linear rivals on the same hypergraph, and a primal-dual solver."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import cg

from . import _kernels as kernels
from ._hypergraph import Hypergraph
from ._solve import Diffusion, _note, _Problem, relative

Array = NDArray[np.float64]


def clique_pagerank(H: Hypergraph, s: Array, lam: float) -> Array:
    """((1 + lam) D_A - A) x = s on the clique expansion, D_A its degrees."""
    A = H.clique_adjacency()
    d = np.asarray(A.sum(axis=1)).ravel()
    M = sp.csr_array(sp.diags_array((1 + lam) * np.where(d > 0, d, 1.0)) - A)
    return np.column_stack([cg(M, column, rtol=1e-8, maxiter=1000)[0] for column in s.T])


def zhou(H: Hypergraph, s: Array, lam: float) -> Array:
    """Zhou's normalised hypergraph Laplacian: ((1 + lam) I - D^-1/2 B^T W De^-1 B D^-1/2) x = s."""
    B = H._pattern()
    d = np.asarray(B.T @ H.edge_weight)
    root = np.divide(1.0, np.sqrt(d), out=np.zeros_like(d), where=d > 0)
    half, weight = sp.csr_array(B @ sp.diags_array(root)), H.edge_weight / H.sizes
    n = H.n_nodes

    def product(x: Array) -> Array:
        return (1 + lam) * x - half.T @ (weight * (half @ x))

    M = sp.linalg.LinearOperator((n, n), matvec=product, dtype=np.float64)
    return np.column_stack([cg(M, column, rtol=1e-8, maxiter=1000)[0] for column in s.T])


def hypernd(
    H: Hypergraph, codes: NDArray[np.int64], n_classes: int, alpha: float = 0.5, p: float = 10.0, steps: int = 100
) -> Array:
    """Non-linear diffusion by p-means over hyperedges, iterated to its fixed point (Tudisco, Benson, Prokopchik 2021).

    Scores stay positive; each class column starts from its indicator plus a small constant.
    """
    B = H._pattern()
    d = np.asarray(B.T @ H.edge_weight)
    root = np.divide(1.0, np.sqrt(d), out=np.zeros_like(d), where=d > 0)[:, None]
    u = np.full((H.n_nodes, n_classes), 1e-4)
    labelled = codes >= 0
    u[np.flatnonzero(labelled), codes[labelled]] = 1.0

    def spread(x: Array) -> Array:
        z = root * x
        top = z.max(axis=0, keepdims=True)
        mean = (np.asarray(B @ (z / top) ** p) / H.sizes[:, None]) ** (1.0 / p) * top  # scaled: powers would underflow
        return root * np.asarray(B.T @ (H.edge_weight[:, None] * mean))

    u = u / np.linalg.norm(spread(u), axis=0)
    x = u.copy()
    for _ in range(steps):
        moved = spread(x)
        new = alpha * moved / np.maximum(np.linalg.norm(moved, axis=0), 1e-300) + (1 - alpha) * u
        if np.abs(new - x).max() < 1e-9:
            return new
        x = new
    return x


def pdhg(
    H: Hypergraph, s: Array, lam: float, *, max_iter: int = 1000, tol: float | None = 1e-2, every: int = 1
) -> Diffusion:
    """Primal-dual hybrid gradient on the same problem with the exact prox of every hyperedge, column by column.

    The steps are tau = sigma = 1 / sqrt(most hyperedges of a vertex), the inverse norm of the map from vertices to
    incidences. The prox is the block problem of the dual solver with one vertex per incidence.
    """
    p = _Problem(H, s, lam, "standard")
    B, n, nnz = H.incidence, H.n_nodes, H.incidence.nnz
    t = 1.0 / np.sqrt(np.bincount(B.indices, minlength=n).max())
    own, ones, order = np.arange(nnz, dtype=np.int32), np.ones(nnz), np.arange(H.n_edges)
    x = np.zeros(s.shape)
    f, lower = np.zeros(s.shape[1]), np.full(s.shape[1], -np.inf)
    history: dict[str, list[Any]] = {"n_iter": [], "objective": [], "gap": [], "seconds": []}
    began = time.perf_counter()
    done = 0
    for k in range(s.shape[1]):
        one = object.__new__(_Problem)
        one.__dict__.update(p.__dict__)
        one.s, one.target = p.s[:, k : k + 1], p.target[:, k : k + 1]
        v, ahead, y = np.zeros(n), np.zeros(n), np.zeros(nnz)
        gamma = np.zeros(H.n_edges)
        for it in range(1, max_iter + 1):
            b = y / t + ahead[B.indices]
            y = np.zeros(nnz)
            kernels.dual_sweep(order, B.indptr, own, H.edge_weight, ones, t, b, y, gamma)
            total = np.bincount(B.indices, weights=y, minlength=n)
            new = (v + t * (one.s[:, 0] - total)) / (1.0 + t * lam * H.degree)
            ahead = 2 * new - v
            v = new
            if it % every == 0 or it == max_iter:
                f[k] = one.objective(v[:, None])[0]
                lower[k] = max(lower[k], one.bound(total[:, None] * p.inverse, gamma[:, None])[0])
                gap = np.maximum(f - lower, 0.0)
                _note(history, it, f.copy(), gap, began)
                if tol is not None and relative(gap[k : k + 1], f[k : k + 1])[0] <= tol:
                    break
        done = max(done, it)
        x[:, k] = v
    return Diffusion(x, f, lower, done, history)
