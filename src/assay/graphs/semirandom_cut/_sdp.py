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
# Most Lanczos steps before a restart; the error falls with their square.
LANCZOS_STEPS = 600
# Numbers in the Lanczos vectors that are kept: 64 MB.
BASIS_NUMBERS = 8_000_000
# Below this |sum|^2 / n^2 (a balance above .495) the sides are held equal by a vector multiplier: a finite multiplier of
# |sum|^2 would have to grow without end, and the sweeps slow down with it.
EQUAL_SIDES = 1e-4
# Step of the vector multiplier in units of the mean degree. Measured at n = 60 to 1000: .03 swings for hundreds of
# sweeps, .1 to .3 settle in 150.
PULL_STEP = 0.3
# Change of the value over ten sweeps below which a point passes for settled. Planted graphs end their 300 sweeps at 2e-5 to
# 4e-5 and a few per cent above the certified bound; a grid at 5e-3 and the mesh 4elt at 3e-2, many times above the optimum.
SETTLED = 1e-3


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
    settled: bool = False  # the value had all but ceased to change and the balance held
    pull: np.ndarray | None = None  # equal sides only: vector multiplier of sum b_i v_i = 0, in the units of W


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
            # element by element: an assignment of rows takes numba seconds longer to compile
            for c in range(8):
                out[i, c] = V[i, c]
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
    2. For equal sides the multiplier stays at 1 and a vector multiplier of sum b_i v_i = 0 is added: value within .01 %
       and bound at .996 of the optimum (n = 100, 300 sweeps), against .13 % below and .983 with the scalar alone.
    3. The shift keeps the Jacobi update from oscillating when the multiplier grows; a vertex of weight b_i needs b_i
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
    m, converged, t, value, error = 1.0, False, 0, math.inf, math.inf
    history: list[float] = []
    equal = target < EQUAL_SIDES
    pull: Any = 0.0 * (b_ @ V)
    for t in range(1, n_iter + 1):
        total = b_ @ V
        mu = m * mean_degree / scale
        if equal:
            pull = pull + PULL_STEP * total  # in units of mu, as `total`
        factor = np.maximum(m * np.abs(b) - 1.0, 0.0) * mean_degree
        if on_device:
            V, inner = sweep(degree_, move(factor), b_, total + pull, mu, V)
        else:
            inner = kernel(*index, data, degree_, factor.astype(kind), b_, total + pull, kind.type(mu), V, out)
            V, out = out, V
        value = (float(degree.sum()) - inner) / 4
        history.append(value)
        error = (float(total @ total) / scale**2 - target) / max(target, 0.01)
        if t >= 20 and t % 5 == 0 and not equal:
            m = min(max(m * math.exp(min(max(10 * error / (20 + t / 10), -0.2), 0.2)), 1e-3), 64.0)
        seen = on_snapshot if t in snapshot_at else None
        if seen is not None and seen(t, _to_numpy(V) if on_device else np.asarray(V, dtype=np.float64)):
            break
        # 40: the multiplier has had at least four steps
        settled = abs(error) < (1e-4 if equal else 0.02)  # 1e-4: |sum| / n below .001
        if t > 40 and settled and abs(history[-11] - value) <= tol * max(abs(value), 1e-12):
            converged = True
            break
    V = _to_numpy(V) if on_device else np.asarray(V, dtype=np.float64)
    V /= np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-300)
    value = max(0.0, (float(degree.sum()) - float(np.einsum("ij,ij->", V, W @ V))) / 4)
    spread = float(np.linalg.norm(b @ V)) / scale
    mu = m * mean_degree / scale
    held = mu * (_to_numpy(pull) if on_device else np.asarray(pull, dtype=np.float64)) if equal else None
    slow = len(history) > 10 and abs(history[-11] - history[-1]) <= SETTLED * max(abs(history[-1]), 1e-12)
    balanced = abs(error) < (1e-4 if equal else 0.02)
    return Relaxation(V, value, mu, spread, t, converged, scale, b, slow and balanced, held)


def _to_numpy(V) -> np.ndarray:
    return V.detach().to("cpu").numpy().astype(np.float64)


def _smallest_eigenvalue(matvec: Callable, n: int, rng: np.random.Generator, tol: float) -> tuple[float, float]:
    """Smallest eigenvalue of a symmetric operator by Lanczos; (Rayleigh quotient, its residual norm).

    Large graphs take the plain three-term recurrence: reorthogonalisation would cost five times the products with the
    operator, and its absence only brings copies of eigenvalues that have converged. The residual is computed from the
    vector itself.
    """
    # The vectors are kept up to 64 MiB; the later ones are computed a second time for the Ritz vector.
    small = n <= CHOLESKY_LIMIT
    steps = int(min(n, 300 if small else LANCZOS_STEPS))
    kept = int(min(steps, max(2, BASIS_NUMBERS // n)))
    Q = np.empty((kept, n))
    alpha, beta = np.empty(steps), np.empty(steps)
    start = rng.standard_normal(n)
    best = (math.inf, math.inf)
    for _ in range(3):
        q, before = start / np.linalg.norm(start), np.zeros(n)
        for j in range(steps):
            if j < kept:
                Q[j] = q
            r = matvec(q)
            if j:
                r -= beta[j - 1] * before
            alpha[j] = q @ r
            r -= alpha[j] * q
            if small:  # cheap here; twice is enough (Kahan and Parlett)
                r -= Q[: j + 1].T @ (Q[: j + 1] @ r)
                r -= Q[: j + 1].T @ (Q[: j + 1] @ r)
            beta[j] = np.linalg.norm(r)
            if j + 1 == steps or beta[j] < 1e-12 or (j >= 20 and j % 20 == 0):
                _, S = scipy.linalg.eigh_tridiagonal(alpha[: j + 1], beta[:j], select="i", select_range=(0, 0))
                if beta[j] * abs(S[-1, 0]) <= 0.5 * tol or beta[j] < 1e-12:
                    break
            before, q = q, r / beta[j]
        count = j + 1
        ritz = Q[: min(count, kept)].T @ S[:kept, 0]
        if count > kept:
            before, q = Q[kept - 2], Q[kept - 1]
            for i in range(kept - 1, count - 1):
                r = matvec(q) - beta[i - 1] * before - alpha[i] * q
                before, q = q, r / beta[i]
                ritz += S[i + 1, 0] * q
        ritz /= np.linalg.norm(ritz)
        image = matvec(ritz)
        theta = float(ritz @ image)
        residual = float(np.linalg.norm(image - theta * ritz))
        best = (theta, residual)  # a restart from the Ritz vector only lowers the quotient
        if residual <= tol or beta[j] < 1e-12:
            break
        start = ritz
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
    if point.pull is not None:
        MV += np.outer(b, point.pull) / 4
        # Any multiplier of |sum|^2 is valid. The one of the optimum pulls as the vector does at the largest allowed sum;
        # where that is 0, larger is better without end, and a thousand times loses nothing visible.
        allowed = (1 - 2 * balance) * point.total
        strength = float(np.linalg.norm(point.pull)) / 4
        mu = min(1000 * mu, mu + strength / allowed) if allowed > 0 else 1000 * mu
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
