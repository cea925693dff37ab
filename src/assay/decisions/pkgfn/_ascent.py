"""Projected L-BFGS on many independent small problems at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

_MEMORY = 8
_ARMIJO = 1e-4
_BACKTRACKS = 8


def ascend(
    function: Callable[[Tensor], Tensor],
    start: Tensor,
    low: Tensor,
    high: Tensor,
    max_iter: int = 60,
    *,
    separable: bool = True,
    tolerance: float = 1e-9,
) -> tuple[Tensor, Tensor]:
    """Maximise a batched function from every row of `start`; no row ends below its start.

    Every row keeps its own curvature, step and end, which one scipy call on the sum of rows cannot; the rows still share
    each call of `function`.

    Parameters
    ----------
    function : callable
        Maps rows (b, d) to values (b,); differentiable.
    start, low, high : Tensor of shape (b, d), or broadcastable
        Starts and boxes; equal ends hold a coordinate.
    max_iter : int, default 60
        Iterations.
    separable : bool, default True
        Whether rows may be left out of a call once they are done.
    tolerance : float, default 1e-9
        Relative rise below which a row is done.

    Returns
    -------
    Tensor, Tensor
        Points (b, d) and values (b,).
    """
    lo, hi = low.expand_as(start).numpy(), high.expand_as(start).numpy()
    width = np.where(hi > lo, hi - lo, 1.0)
    base = np.clip(start.detach().numpy(), lo, hi)
    free = hi > lo
    u = (base - lo) / width

    def call(u: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        X = torch.from_numpy(lo[rows] + u * width[rows]).requires_grad_(True)
        value = function(X)
        (grad,) = torch.autograd.grad(value.sum(), X)
        f, g = -value.detach().numpy(), -grad.numpy() * width[rows]
        bad = ~(np.isfinite(f) & np.isfinite(g).all(-1))
        return np.where(bad, np.inf, f), np.where(bad[:, None] | ~free[rows], 0.0, g)

    if not free.any() or max_iter < 1:
        with torch.no_grad():
            point = torch.from_numpy(lo + u * width)
            return point, function(point)
    u, f = minimise(call, u, free, max_iter, separable=separable, tolerance=tolerance)
    return torch.from_numpy(lo + u * width), torch.from_numpy(-f)


def minimise(
    call: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
    u: np.ndarray,
    free: np.ndarray,
    max_iter: int,
    *,
    separable: bool = True,
    tolerance: float = 1e-9,
) -> tuple[np.ndarray, np.ndarray]:
    """Minimise rows over the unit box: ``call(rows of u, their numbers)`` gives values (b,) and gradients (b, d).

    An infinite value turns a step back. Returns points and values.
    """
    b = len(u)
    every = np.arange(b)
    f, g = call(u, every)
    S = np.zeros((0, *u.shape))
    Y = np.zeros((0, *u.shape))
    rho = np.zeros((0, b))
    live = np.isfinite(f)
    for _ in range(max_iter):
        held = ((u <= 0) & (g > 0)) | ((u >= 1) & (g < 0)) | ~free
        pg = np.where(held, 0.0, g)
        live &= np.abs(pg).max(-1) > 1e-9
        if not live.any():
            break
        q = pg.copy()
        coefficients = []
        for s, y, r in zip(S[::-1], Y[::-1], rho[::-1]):
            a = r * (s * q).sum(-1)
            q -= a[:, None] * y
            coefficients.append(a)
        if len(S):
            curvature = (Y[-1] ** 2).sum(-1)
            scale = np.where(rho[-1] > 0, 1.0 / np.maximum(rho[-1] * curvature, 1e-300), 1.0)
        else:
            # a first step of at most a tenth of the box
            scale = 0.1 / np.maximum(np.abs(pg).max(-1), 1e-300)
        q *= scale[:, None]
        for s, y, r, a in zip(S, Y, rho, coefficients[::-1]):
            q += (a - r * (y * q).sum(-1))[:, None] * s
        direction = np.where(held, 0.0, -q)
        slope = (direction * g).sum(-1)
        uphill = slope >= 0
        if uphill.any():
            steepest = -pg * (0.1 / np.maximum(np.abs(pg).max(-1), 1e-300))[:, None]
            direction[uphill] = steepest[uphill]
        t = np.ones(b)
        new_u, new_f, new_g = u.copy(), f.copy(), g.copy()
        waiting = live.copy()
        for _ in range(_BACKTRACKS):
            rows = np.flatnonzero(waiting) if separable else every
            trial = np.clip(u[rows] + t[rows, None] * direction[rows], 0.0, 1.0)
            if not separable:
                trial = np.where(waiting[:, None], trial, new_u)
            ft, gt = call(trial, rows)
            good = ft <= f[rows] + _ARMIJO * (g[rows] * (trial - u[rows])).sum(-1)
            good &= waiting[rows]
            at = rows[good]
            new_u[at], new_f[at], new_g[at] = trial[good], ft[good], gt[good]
            waiting[at] = False
            if not waiting.any():
                break
            t[waiting] *= 0.3
        live &= ~waiting  # no step helps: rounding, or a kink
        s, y = new_u - u, new_g - g
        sy = (s * y).sum(-1)
        # only pairs of positive curvature keep the direction one of descent
        r = np.where(sy > 1e-10 * np.maximum((y * y).sum(-1), 1e-300), 1.0 / np.where(sy > 0, sy, 1.0), 0.0)
        keep = slice(-(_MEMORY - 1), None)
        S = np.concatenate([S[keep], s[None]])
        Y = np.concatenate([Y[keep], y[None]])
        rho = np.concatenate([rho[keep], r[None]])
        live &= f - new_f > tolerance * np.maximum(np.abs(f), 1e-3)
        u, f, g = new_u, new_f, new_g
    return u, f
