"""Interior-point method for small hypergraphs, and larger ones with local structure: an independent third solver, to ten digits.

min 1/2 sum_h w_h (u_h - l_h)^2 + lam/2 x^T D x - s^T x  subject to  l_h <= x_i <= u_h for every member i of h.
"""

# ruff: noqa: B023 - `direction` is used inside the iteration whose variables it reads, twice with one factorisation

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.linalg import splu

from ._hypergraph import Hypergraph

Array = NDArray[np.float64]
# The dense matrix has this side at most (32 MB).
DENSE_NODES = 2000


def interior_point(H: Hypergraph, s: Array, lam: float) -> tuple[Array, Array, Array, int]:
    """Solution, D^-1 g, w delta (a dual pair), and the largest number of iterations, column by column."""
    x, a = np.empty_like(s), np.empty_like(s)
    phi = np.empty((H.n_edges, s.shape[1]))
    most = 0
    for k in range(s.shape[1]):
        x[:, k], a[:, k], phi[:, k], n_iter = _one(H, s[:, k], lam)
        most = max(most, n_iter)
    return x, a, phi, most


def _one(H: Hypergraph, s: Array, lam: float) -> tuple[Array, Array, Array, int]:
    B = H.incidence
    n, m, nnz = H.n_nodes, H.n_edges, B.nnz
    d = np.where(H.degree > 0, H.degree, 1.0)
    w, i = H.edge_weight, B.indices
    h = np.repeat(np.arange(m), np.diff(B.indptr))
    unit = float(np.abs(s / d).max()) / max(lam, 1e-3)
    if unit == 0.0:
        return np.zeros(n), np.zeros(n), np.zeros(m), 0
    # the problem is homogeneous in s: solved with scores of order one
    s = s / unit
    x, u, l = np.zeros(n), np.ones(m), -np.ones(m)
    upper = w[h] / np.diff(B.indptr)[h]  # multipliers of x <= u and of l <= x: sums of the size of w
    lower = upper.copy()
    p, q = u[h] - x[i], x[i] - l[h]
    best = np.inf
    kept = (x, upper, lower)
    stalled = n_iter = 0
    while n_iter < 200:
        n_iter += 1
        # residuals of stationarity and of the slacks
        rx = lam * d * x - s + np.bincount(i, upper - lower, n)
        ru = w * (u - l) - np.bincount(h, upper, m)
        rl = -w * (u - l) + np.bincount(h, lower, m)
        rp, rq = u[h] - x[i] - p, x[i] - l[h] - q
        mu = float(p @ upper + q @ lower) / (2 * nnz)
        worst = max(float(np.abs(r).max()) for r in (rx / d, ru / w, rl / w, rp, rq)) + mu
        if worst < best:
            best, kept, stalled = worst, (x.copy(), upper.copy(), lower.copy()), 0
        else:
            stalled += 1
        if best < 1e-14 or stalled >= 5:  # rounding ends the progress; the best point is kept
            break
        # slacks are allowed to give by 1e-10 of the change of their multiplier: it bounds the weights by 1e10, which the
        # factorisation survives, and leaves the point that is converged to as it is
        pp, qq = p + 1e-10 * upper, q + 1e-10 * lower
        sp_, sq = upper / pp, lower / qq
        sum_p, sum_q = np.bincount(h, sp_, m), np.bincount(h, sq, m)
        # 2 x 2 blocks of (u, l), inverted in closed form, eliminated from the x equations
        A, C, off = w + sum_p, w + sum_q, -w
        det = A * C - off * off
        inv_uu, inv_ll, inv_ul = C / det, A / det, -off / det
        P, Q = (sp.csr_array((-v, i, B.indptr), shape=(m, n)) for v in (sp_, sq))
        UU, UL, LL = (sp.diags_array(v) for v in (inv_uu, inv_ul, inv_ll))
        own = lam * d + np.bincount(i, sp_ + sq, n)
        invert = _factor(-(P.T @ (UU @ P + UL @ Q) + Q.T @ (UL @ P + LL @ Q)), own)

        def direction(cp: Array, cq: Array) -> Any:
            # complementarity: upper dp + p dupper = cp, likewise for the lower side
            ep, eq = (cp - upper * rp) / pp, (cq - lower * rq) / qq
            bx = -rx - np.bincount(i, ep - eq, n)
            bu, bl = -ru + np.bincount(h, ep, m), -rl - np.bincount(h, eq, m)
            vu, vl = inv_uu * bu + inv_ul * bl, inv_ul * bu + inv_ll * bl
            dx = invert(bx - P.T @ vu - Q.T @ vl)
            bu, bl = bu - P @ dx, bl - Q @ dx
            du, dl = inv_uu * bu + inv_ul * bl, inv_ul * bu + inv_ll * bl
            dp, dq = du[h] - dx[i] + rp, dx[i] - dl[h] + rq
            more, less = (cp - upper * dp) / pp, (cq - lower * dq) / qq
            return dx, du, dl, dp + 1e-10 * more, dq + 1e-10 * less, more, less

        affine = direction(-p * upper, -q * lower)
        t = min(_reach(v, dv) for v, dv in ((p, affine[3]), (q, affine[4]), (upper, affine[5]), (lower, affine[6])))
        after = float((p + t * affine[3]) @ (upper + t * affine[5]) + (q + t * affine[4]) @ (lower + t * affine[6])) / (
            2 * nnz
        )
        centre = mu * (max(after, 0.0) / mu) ** 3
        move = direction(centre - p * upper - affine[3] * affine[5], centre - q * lower - affine[4] * affine[6])
        t = min(_reach(v, dv) for v, dv in ((p, move[3]), (q, move[4]), (upper, move[5]), (lower, move[6])))
        t *= 0.99
        x, u, l = x + t * move[0], u + t * move[1], l + t * move[2]
        p, q = p + t * move[3], q + t * move[4]
        upper, lower = upper + t * move[5], lower + t * move[6]
    x, upper, lower = kept
    # a feasible dual pair from the multipliers: both sides of a hyperedge scaled to one total
    top, bottom = np.bincount(h, upper, m), np.bincount(h, lower, m)
    phi = 0.5 * (top + bottom)
    up, down = upper * (phi / top)[h], lower * (phi / bottom)[h]
    a = np.where(H.degree > 0, np.bincount(i, up - down, n) / d, 0.0)
    return x * unit, np.asarray(a * unit), np.asarray(phi * unit), n_iter


def _factor(S: Any, own: Array) -> Callable[[Array], Array]:
    """Solver of (S + diag(own)) x = b: dense Cholesky, or sparse elimination where a dense matrix would not pay."""
    n = len(own)
    if n <= DENSE_NODES:
        A = S.toarray()
        A[np.arange(n), np.arange(n)] += own
        factor = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
        return lambda b: np.asarray(cho_solve(factor, b, check_finite=False))
    # symmetric and positive definite: no pivoting, and an ordering for symmetric patterns
    lu = splu(
        sp.csc_array(S + sp.diags_array(own)), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )  # fmt: skip
    return lambda b: np.asarray(lu.solve(b))


def _reach(v: Array, dv: Array) -> float:
    """Largest step in (0, 1] that keeps v positive."""
    falling = dv < 0
    return min(1.0, float((-v[falling] / dv[falling]).min())) if falling.any() else 1.0
