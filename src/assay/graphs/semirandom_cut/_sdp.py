"""The balanced-cut relaxation: a low-rank solver and a certified lower bound."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from assay._shared.accel import njit

from ._refine import index_arrays

__all__ = ["Relaxation", "certified_lower_bound", "solve_lowrank"]

# Up to this size the smallest eigenvalue is confirmed by a dense Cholesky factorisation (72 MB, half a second).
CHOLESKY_LIMIT = 3000
NARROW_FLOOR = 3e-4


@dataclass
class Relaxation:
    """A point of the relaxation and the multipliers that certify it."""

    V: np.ndarray  # n x k, unit rows
    value: float  # C(V)
    mu: float  # multiplier of the balance constraint, in units of w w^T / 4
    spread: float  # |sum w_i v_i| / sum w_i
    n_iter: int
    converged: bool
    total: float  # sum of the vertex weights in the units of `weights`
    weights: np.ndarray  # vertex weights of mean 1 in absolute value; signed where two pinned sides are one vertex


def _sweep_numpy(indptr, indices, data, diagonal, shift, weights, total, mu, V, out):
    """One Jacobi sweep; returns <V, W V>."""
    WV = sp.csr_array((data, indices, indptr), shape=(V.shape[0], V.shape[0])) @ V
    inner = float(np.einsum("ij,ij->", V, WV, dtype=np.float64))
    G = WV + (diagonal + shift)[:, None] * V - (mu * weights)[:, None] * total
    norm = np.sqrt(np.einsum("ij,ij->i", G, G))
    moving = norm > 0
    out[moving] = G[moving] / norm[moving, None]
    out[~moving] = V[~moving]
    return inner


@njit(fallback=_sweep_numpy, fastmath=False)
def _sweep(indptr, indices, data, diagonal, shift, weights, total, mu, V, out):
    n, k = V.shape
    row = np.empty(k, dtype=V.dtype)
    inner = 0.0
    for i in range(n):
        for c in range(k):
            row[c] = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            w = data[p]
            for c in range(k):
                row[c] += w * V[j, c]
        own = diagonal[i] + shift[i]
        pull = mu * weights[i]
        dot = 0.0
        square = 0.0
        for c in range(k):
            dot += row[c] * V[i, c]
            g = row[c] + own * V[i, c] - pull * total[c]
            row[c] = g
            square += g * g
        inner += dot
        if square > 0.0:
            scale = 1.0 / math.sqrt(square)
            for c in range(k):
                out[i, c] = row[c] * scale
        else:
            for c in range(k):
                out[i, c] = V[i, c]
    return inner


@njit(fallback=_sweep_numpy)
def _sweep8(indptr, indices, data, diagonal, shift, weights, total, mu, V, out):
    # `_sweep` for eight columns, held in registers: a quarter faster, and eight is the default
    inner = 0.0
    zero = V[0, 0] - V[0, 0]  # of the precision of V
    for i in range(V.shape[0]):
        a0 = zero
        a1 = zero
        a2 = zero
        a3 = zero
        a4 = zero
        a5 = zero
        a6 = zero
        a7 = zero
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            w = data[p]
            a0 += w * V[j, 0]
            a1 += w * V[j, 1]
            a2 += w * V[j, 2]
            a3 += w * V[j, 3]
            a4 += w * V[j, 4]
            a5 += w * V[j, 5]
            a6 += w * V[j, 6]
            a7 += w * V[j, 7]
        dot = (
            a0 * V[i, 0]
            + a1 * V[i, 1]
            + a2 * V[i, 2]
            + a3 * V[i, 3]
            + a4 * V[i, 4]
            + a5 * V[i, 5]
            + a6 * V[i, 6]
            + a7 * V[i, 7]
        )
        inner += dot
        own = diagonal[i] + shift[i]
        pull = mu * weights[i]
        a0 += own * V[i, 0] - pull * total[0]
        a1 += own * V[i, 1] - pull * total[1]
        a2 += own * V[i, 2] - pull * total[2]
        a3 += own * V[i, 3] - pull * total[3]
        a4 += own * V[i, 4] - pull * total[4]
        a5 += own * V[i, 5] - pull * total[5]
        a6 += own * V[i, 6] - pull * total[6]
        a7 += own * V[i, 7] - pull * total[7]
        square = a0 * a0 + a1 * a1 + a2 * a2 + a3 * a3 + a4 * a4 + a5 * a5 + a6 * a6 + a7 * a7
        if square > 0.0:
            scale = 1.0 / math.sqrt(square)
            out[i, 0] = a0 * scale
            out[i, 1] = a1 * scale
            out[i, 2] = a2 * scale
            out[i, 3] = a3 * scale
            out[i, 4] = a4 * scale
            out[i, 5] = a5 * scale
            out[i, 6] = a6 * scale
            out[i, 7] = a7 * scale
        else:
            out[i] = V[i]
    return inner


def _torch_csr(torch: Any, W: sp.csr_array, kind: Any, device: str) -> Any:
    return torch.sparse_csr_tensor(
        torch.from_numpy(W.indptr.astype(np.int64)),
        torch.from_numpy(W.indices.astype(np.int64)),
        torch.from_numpy(W.data),
        size=W.shape,
        dtype=kind,
        device=device,
        check_invariants=True,
    )


def _torch_sweeper(W: sp.csr_array, device: str, dtype: np.dtype) -> tuple[Callable, Callable]:
    """The same sweep with a torch CSR matrix, for graphs that live on an accelerator."""
    import torch

    kind = torch.float32 if dtype == np.float32 else torch.float64
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Sparse CSR tensor support is in beta"
        )  # torch says so once a process
        matrix = _torch_csr(torch, W, kind, device)

    def move(x: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(x)).to(device=device, dtype=kind)

    def sweep(diagonal, shift, weights, total, mu, V):
        WV = matrix @ V
        inner = float((V * WV).sum(dtype=torch.float64))
        G = WV + (diagonal + shift)[:, None] * V - (mu * weights)[:, None] * total
        norm = torch.linalg.vector_norm(G, dim=1, keepdim=True)
        return torch.where(norm > 0, G / norm.clamp_min(torch.finfo(kind).tiny), V), inner

    return sweep, move


def solve_lowrank(
    W: sp.csr_array,
    *,
    balance: float,
    diagonal: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    total_weight: float | None = None,
    n_components: int = 8,
    n_iter: int = 300,
    V0: np.ndarray | None = None,
    rng: np.random.Generator,
    snapshot_at: tuple[int, ...] = (),
    on_snapshot: Callable[[int, np.ndarray], bool] | None = None,
    dtype: type = np.float64,
    device: str = "cpu",
    tol: float = 1e-5,
) -> Relaxation:
    r"""Minimise :math:`\sum_{ij\in E} w_{ij}|v_i-v_j|^2/4` over unit vectors with :math:`|\sum_i b_i v_i|^2\le B`.

    Parameters
    ----------
    W : csr_array
        Off-diagonal weights. Negative entries occur only where two pinned sides are one signed vertex.
    balance : float
        Smaller side's share a; B = ((1 - 2a) sum |b|)^2.
    diagonal : ndarray, default None
        Diagonal of the Laplacian; the row sums of `W` by default.
    weights : ndarray, default None
        Vertex weights b, ones by default.
    total_weight : float, default None
        Sum of the vertex weights; needed where a signed vertex hides some of them, else the sum of |b|.
    n_components : int, default 8
        Columns of V.
    n_iter : int, default 300
        Most sweeps.
    V0 : ndarray, default None
        Start; random unit rows by default.
    rng : Generator
        Source of the random start.
    snapshot_at : tuple of int
        Sweeps after which `on_snapshot` sees the iterate.
    on_snapshot : callable (sweep, V) -> bool, default None
        Called for rounding; a true answer stops the solver.
    dtype : float32 or float64
        Precision of the sweeps.
    device : str, default "cpu"
        Anything else runs the sweeps as torch CSR products there.
    tol : float, default 1e-5
        Relative change of the objective over ten sweeps at which the solver stops, the balance holding to 2 %.

    Returns
    -------
    Relaxation

    Notes
    -----
    1. The dual step on the multiplier is what makes this an SDP solver; with a constant multiplier the point is
       infeasible and its value far below the optimum.
    2. The shift keeps the Jacobi update from oscillating when the multiplier grows; a vertex of weight b_i needs b_i
       times the shift of a unit vertex.
    """
    n = W.shape[0]
    kind = np.dtype(dtype)
    degree = np.asarray(W.sum(axis=1)).ravel() if diagonal is None else np.asarray(diagonal, dtype=np.float64)
    b = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    unit = float(np.abs(b).mean()) or 1.0
    # two pinned sides of equal weight are a signed vertex of weight zero, yet they count in the balance
    scale = (float(np.abs(b).sum()) if total_weight is None else total_weight) / unit
    b = b / unit
    mean_degree = float(degree.mean()) or 1.0  # without edges only the balance moves the vectors
    target = (1 - 2 * balance) ** 2
    # the error of |S|^2/n^2 is judged against the target; nearer to equal sides than .45 the floor keeps the dual step
    # from dividing by nothing (measured at .5, n = 100: with .01 the multiplier stops far too low, value .9987, bound .983)
    floor = 0.01 if target > 0.0099 else NARROW_FLOOR
    start = rng.standard_normal((n, n_components)) if V0 is None else np.array(V0, dtype=np.float64)
    start /= np.maximum(np.linalg.norm(start, axis=1, keepdims=True), 1e-300)
    # arrays of numpy, or tensors where the sweeps run on a device
    V: Any = np.ascontiguousarray(start, dtype=kind)
    b_: Any = b.astype(kind)
    degree_: Any = degree.astype(kind)
    data, index = W.data.astype(kind), index_arrays(W)
    kernel = _sweep8 if V.shape[1] == 8 and n else _sweep
    on_device = device != "cpu"
    if on_device:
        sweep, move = _torch_sweeper(W, device, kind)
        V, b_, degree_ = move(V), move(b_), move(degree_)
    out: Any = None if on_device else np.empty_like(V)
    m, converged, t, value = 1.0, False, 0, math.inf
    history: list[float] = []
    for t in range(1, n_iter + 1):
        total = b_ @ V
        mu = m * mean_degree / scale
        factor = np.maximum(m * np.abs(b) - 1.0, 0.0) * mean_degree
        if on_device:
            V, inner = sweep(degree_, move(factor), b_, total, mu, V)
        else:
            inner = kernel(*index, data, degree_, factor.astype(kind), b_, total, kind.type(mu), V, out)
            V, out = out, V
        value = (float(degree.sum()) - inner) / 4
        history.append(value)
        error = (float(total @ total) / scale**2 - target) / max(target, floor)
        if t >= 20 and t % 5 == 0:
            m = min(max(m * math.exp(min(max(10 * error / (20 + t / 10), -0.2), 0.2)), 1e-3), 64.0)
        seen = on_snapshot if t in snapshot_at else None
        if seen is not None and seen(t, _to_numpy(V) if on_device else np.asarray(V, dtype=np.float64)):
            break
        # 40: the multiplier has had at least four steps
        if t > 40 and abs(history[-11] - value) <= tol * max(abs(value), 1e-12) and abs(error) < 0.02:
            converged = True
            break
    V = _to_numpy(V) if on_device else np.asarray(V, dtype=np.float64)
    V /= np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-300)
    value = max(0.0, (float(degree.sum()) - float(np.einsum("ij,ij->", V, W @ V))) / 4)
    spread = float(np.linalg.norm(b @ V)) / scale
    return Relaxation(V, value, m * mean_degree / scale, spread, t, converged, scale, b)


def _to_numpy(V) -> np.ndarray:
    return V.detach().to("cpu").numpy().astype(np.float64)


def _smallest_eigenvalue(matvec: Callable, n: int, rng: np.random.Generator, tol: float) -> tuple[float, float]:
    """Smallest eigenvalue of a symmetric operator by Lanczos with full reorthogonalisation; (value, residual)."""
    # 64 MiB of basis vectors at most; the error falls with the square of the number of steps.
    steps = int(min(n, 300, max(40, 8_000_000 // n)))
    Q = np.empty((steps, n))
    alpha, beta = np.empty(steps), np.empty(steps)
    q = rng.standard_normal(n)
    best = (math.inf, math.inf)
    restarts = 3
    for _ in range(restarts):
        q /= np.linalg.norm(q)
        done = False
        for j in range(steps):
            Q[j] = q
            r = matvec(q)
            alpha[j] = q @ r
            r -= Q[: j + 1].T @ (Q[: j + 1] @ r)
            r -= Q[: j + 1].T @ (Q[: j + 1] @ r)  # twice is enough (Kahan and Parlett)
            beta[j] = np.linalg.norm(r)
            if j + 1 == steps or beta[j] < 1e-12 or (j >= 20 and j % 20 == 0):
                theta, S = scipy.linalg.eigh_tridiagonal(alpha[: j + 1], beta[:j], select="i", select_range=(0, 0))
                residual = float(beta[j] * abs(S[-1, 0]))
                best = (float(theta[0]), residual)
                if residual <= tol or beta[j] < 1e-12:
                    done = True
                    break
            q = r / beta[j]
        ritz = Q[: j + 1].T @ S[:, 0]
        if done:
            break
        q = ritz
    return best


def certified_lower_bound(
    W: sp.csr_array,
    point: Relaxation,
    *,
    balance: float,
    diagonal: np.ndarray | None = None,
    rng: np.random.Generator,
    integer: bool = False,
) -> tuple[float, str]:
    r"""Lower bound on every cut whose sides both weigh at least the share `balance`, by weak duality.

    With :math:`M = L/4 + \mu' b b^T - diag(y)` every such cut weighs at least
    :math:`\sum_i y_i + min(0, \lambda_{min}(D^{-1/2} M D^{-1/2})) \sum_i D_i - \mu' B`.

    Parameters
    ----------
    W, balance, diagonal
        As in `solve_lowrank`.
    point : Relaxation
        Its vectors and multiplier give y and mu'; any point gives a valid bound, a converged one a tight bound.
    rng : Generator
        Start vector of the Lanczos process.
    integer : bool, default False
        Round the bound up: all weights are integers.

    Returns
    -------
    bound : float
        Never negative.
    kind : {"cholesky", "lanczos"}
        "cholesky": the eigenvalue has been confirmed by a factorisation. "lanczos": the Ritz value minus its
        residual norm, which is a bound once the process has found the bottom of the spectrum.

    References
    ----------
    arXiv 2406.04857, section 3 (relaxation); the certificate is a decision of this library.
    """
    n = W.shape[0]
    degree = np.asarray(W.sum(axis=1)).ravel() if diagonal is None else np.asarray(diagonal, dtype=np.float64)
    b, V = point.weights, point.V
    mu = point.mu / 4
    MV = (degree[:, None] * V - W @ V) / 4 + mu * np.outer(b, b @ V)
    y = np.einsum("ij,ij->i", V, MV)
    # Any positive vector may stand for the diagonal; 1 keeps isolated vertices in.
    D = np.maximum(degree, 1.0 if integer else float(degree.mean()) * 1e-3 or 1.0)
    root = 1 / np.sqrt(D)

    def matvec(x: np.ndarray) -> np.ndarray:
        z = root * x
        return root * ((degree * z - W @ z) / 4 + (mu * (b @ z)) * b - y * z)

    constant = float(y.sum()) - mu * ((1 - 2 * balance) * point.total) ** 2
    scale = float(D.sum())
    # an error of the eigenvalue costs its multiple by the sum of D: ask for .02 % of the bound
    tol = max(2e-4 * abs(constant) / scale, 1e-12)
    theta, residual = _smallest_eigenvalue(matvec, n, rng, tol)
    lowest, kind = theta - residual, "lanczos"
    if n <= CHOLESKY_LIMIT:
        M = -(W.toarray() / 4)
        M[np.diag_indices(n)] += degree / 4 - y
        M += mu * np.outer(b, b)
        M *= root[:, None] * root[None, :]
        slack = max(residual, 1e-9 * max(1.0, abs(theta)))
        for _ in range(40):
            try:
                scipy.linalg.cholesky(M - (min(lowest, 0.0) - slack) * np.eye(n), check_finite=False)
            except np.linalg.LinAlgError:
                slack *= 4  # the Lanczos value was too optimistic: step down until the factorisation exists
                continue
            lowest, kind = min(lowest, 0.0) - slack, "cholesky"
            break
    bound = constant + min(0.0, lowest) * scale
    # rounding error of the sums above, relative to the terms that were added
    bound -= 1e-12 * (float(np.abs(y).sum()) + scale)
    if integer:
        bound = math.ceil(bound - 1e-9 * max(1.0, abs(bound)))
    return max(0.0, float(bound)), kind
