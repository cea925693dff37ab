"""Random walk of scale-invariant neurons under a real update rule: the experiment that the closed forms predict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from assay._core.errors import InputError
from assay._core.seeds import as_rng

from ._equilibrium import canonical_optimizer, equilibrium

__all__ = ["simulate_equilibrium"]


def _chord_angle(new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """Angle per row from the chord of the unit vectors (the cosine of a small angle carries no digits)."""
    u = new / np.linalg.norm(new, axis=1, keepdims=True)
    v = old / np.linalg.norm(old, axis=1, keepdims=True)
    return 2 * np.arcsin(np.minimum(np.linalg.norm(u - v, axis=1) / 2, 1.0))


def simulate_equilibrium(
    optimizer: str = "adamw",
    dim: int = 256,
    steps: int = 2000,
    lr: float = 1e-3,
    weight_decay: float = 0.1,
    seed: Any = 0,
    *,
    betas: Sequence[float] | None = None,
    momentum: float = 0.9,
    nesterov: bool = False,
    neurons: int = 16,
    start: float | None = None,
    grad_rms: float | None = None,
    lags: Sequence[int] = (1,),
    measure: int | None = None,
) -> dict[str, Any]:
    r"""Let independent neurons walk at random under the update rule and measure rotation and norm.

    .. math:: g_t = P_{w_t}^\perp \tilde g_t / |w_t|, \qquad \tilde g_t \sim N(0, I)\cdot\text{const}

    Parameters
    ----------
    optimizer : {"adamw", "sgdm", "lion", "adam_l2"}, default "adamw"
        Update rule.
    dim : int, default 256, >= 2
        Weights per neuron.
    steps : int, default 2000, >= 1
        Steps in all.
    lr, weight_decay : float
        As the optimizer takes them.
    seed : int, Generator or None, default 0
        Random state.
    betas, momentum, nesterov
        As in :func:`equilibrium`.
    neurons : int, default 16
        Independent neurons, walked as one array.
    start : float, optional
        Norm at the start; default is the predicted equilibrium norm.
    grad_rms : float, optional
        Root mean square of the norm of the projected gradient at norm 1; default ``sqrt(dim - 1)``.
    lags : sequence of int, default (1,)
        Angles over so many steps are measured (non-overlapping windows).
    measure : int, optional
        Last steps that count for the averages; default the last half.

    Returns
    -------
    dict
        ``rotation`` and ``norm`` (root mean squares over the measured steps and the neurons), ``angles`` (dict from lag
        to angle), ``norm_series`` and ``rotation_series`` (over all steps, root mean square over neurons), and
        ``predicted`` (:class:`Equilibrium`).

    Notes
    -----
    1. Root mean squares, because the closed forms are statements about squared lengths.
    2. Weights and moments are float64; only the random numbers are drawn in float32, which is twice as fast.
    3. SGDM, AdamW and Lion write their state as torch does (first momentum buffer = first gradient, bias correction).

    References
    ----------
    arXiv:2305.17212, section 3.

    Examples
    --------
    >>> out = simulate_equilibrium("sgdm", dim=64, steps=400, lr=0.1, weight_decay=1e-2, seed=0)
    >>> bool(abs(out["rotation"] / out["predicted"].rotation - 1) < 0.05)
    True
    """
    rule = canonical_optimizer(optimizer)
    if dim < 2 or steps < 1 or neurons < 1:
        raise InputError(f"need dim >= 2, steps >= 1 and neurons >= 1, got {dim}, {steps} and {neurons}.")
    rms = math.sqrt(dim - 1) if grad_rms is None else float(grad_rms)
    predicted = equilibrium(
        rule,
        lr=lr,
        weight_decay=weight_decay,
        betas=betas,
        momentum=momentum,
        nesterov=nesterov,
        dim=dim,
        grad_rms=rms,
    )
    norm0 = predicted.norm if start is None else float(start)
    if not (math.isfinite(norm0) and norm0 > 0):
        raise InputError(
            "start must be a positive norm; without weight decay or lr there is no equilibrium to start at."
        )
    b1, b2 = betas if betas is not None else ((0.9, 0.99) if rule == "lion" else (0.9, 0.999))
    rng = as_rng(seed)
    w = rng.standard_normal((neurons, dim))
    w *= norm0 / np.linalg.norm(w, axis=1, keepdims=True)
    m, v = np.zeros_like(w), np.zeros_like(w)
    scale = rms / math.sqrt(dim - 1)
    first = steps - (steps // 2 if measure is None else min(measure, steps))
    held = {int(k): w.copy() for k in lags if k > 1}
    sums = dict.fromkeys((int(k) for k in lags if k > 1), 0.0)
    counts = dict.fromkeys(sums, 0)
    norm_series, rotation_series = np.empty(steps), np.empty(steps)
    n2 = np.einsum("kc,kc->k", w, w)
    noise = np.empty(w.shape, dtype=np.float32)
    for t in range(1, steps + 1):
        if t - 1 == first:
            for old in held.values():
                old[:] = w
        rng.standard_normal(out=noise, dtype=np.float32)
        g = noise.astype(np.float64)
        g -= (np.einsum("kc,kc->k", g, w) / n2)[:, None] * w
        g *= (scale / np.sqrt(n2))[:, None]
        if rule in ("sgdm", "adam_l2"):
            g += weight_decay * w
        if rule == "sgdm":
            m = g if t == 1 else momentum * m + g
            new = w - lr * (g + momentum * m if nesterov else m)
        elif rule == "lion":
            direction = np.sign(b1 * m + (1 - b1) * g)
            new = w * (1 - lr * weight_decay) - lr * direction
            m *= b2
            m += (1 - b2) * g
        else:
            m *= b1
            m += (1 - b1) * g
            v *= b2
            np.multiply(g, g, out=g)
            v += (1 - b2) * g
            np.sqrt(v, out=g)
            # torch's eps is left out: it is there for zero gradients, and the closed form has none.
            np.divide(m, g, out=g)
            g *= lr * math.sqrt(1 - b2**t) / (1 - b1**t)
            new = w * (1 - lr * weight_decay) - g if rule == "adamw" else w - g
        new2 = np.einsum("kc,kc->k", new, new)
        step = new - w
        # |u-v|^2 = (|d|^2 - (difference of norms)^2) / (n n'): the chord without forming unit vectors.
        chord2 = (np.einsum("kc,kc->k", step, step) - (np.sqrt(new2) - np.sqrt(n2)) ** 2) / np.sqrt(new2 * n2)
        rotation_series[t - 1] = math.sqrt(np.mean((2 * np.arcsin(np.sqrt(np.clip(chord2, 0, 4)) / 2)) ** 2))
        w, n2 = new, new2
        norm_series[t - 1] = math.sqrt(n2.mean())
        for k, old in held.items():
            if t - 1 >= first and (t - first) % k == 0:
                sums[k] += float(np.mean(_chord_angle(w, old) ** 2))
                counts[k] += 1
                old[:] = w
    rotation = math.sqrt(np.mean(rotation_series[first:] ** 2))
    angles = {k: math.sqrt(sums[k] / counts[k]) if counts[k] else math.nan for k in sums}
    if 1 in lags:
        angles[1] = rotation
    return {
        "rotation": rotation,
        "norm": math.sqrt(np.mean(norm_series[first:] ** 2)),
        "angles": dict(sorted(angles.items())),
        "rotation_series": rotation_series,
        "norm_series": norm_series,
        "predicted": predicted,
    }
