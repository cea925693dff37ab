"""Closed forms of rotational equilibrium: rotation, norm, half-life, angles over many steps and the transient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay._core.errors import InputError

__all__ = [
    "Equilibrium",
    "canonical_optimizer",
    "equilibrium",
    "lag_factor",
    "predicted_norms",
    "rotation_over_steps",
    "steps_where_lr_outpaces",
]

#: Names a user may write, and the update rule whose closed form applies. RV optimizers hold the same rotation.
_RULES = {
    "adamw": "adamw",
    "rvadamw": "adamw",
    "sgd": "sgdm",
    "sgdm": "sgdm",
    "rvsgd": "sgdm",
    "lion": "lion",
    "rvlion": "lion",
    "adam_l2": "adam_l2",
    "adam": "adam_l2",
}

#: Default betas of the torch (AdamW) and lion-pytorch (Lion) classes, so that a prediction needs no more than a run does.
_DEFAULT_BETAS = {"adamw": (0.9, 0.999), "adam_l2": (0.9, 0.999), "lion": (0.9, 0.99)}


@dataclass(frozen=True)
class Equilibrium:
    """Predicted equilibrium of one neuron (scalars) or of many settings (arrays of one broadcast shape).

    Attributes
    ----------
    rotation : float or ndarray or None
        Root mean square angle between the weight now and ``lag`` steps later, radians.
    norm : float or ndarray or None
        Equilibrium norm of the weight vector.
    update_size : float or ndarray or None
        Root mean square length of the part of one step that the gradients drive.
    half_life_steps : float or ndarray or None
        Steps in which a small excess of the norm halves (of ``n**2``; for SGDM of ``n**4``).

    Notes
    -----
    1. A field is None where an input that it needs (``dim``, ``grad_rms``) was not given.
    """

    rotation: Any
    norm: Any
    update_size: Any
    half_life_steps: Any


def canonical_optimizer(name: str) -> str:
    """Return the update rule (``adamw``, ``sgdm``, ``lion``, ``adam_l2``) behind an optimizer's name.

    Parameters
    ----------
    name : str
        One of adamw, sgdm (sgd), lion, adam_l2 (adam), rvadamw, rvsgd, rvlion; case and ``-`` do not matter.

    Returns
    -------
    str

    Raises
    ------
    InputError
        For any other name.

    Examples
    --------
    >>> canonical_optimizer("RVAdamW")
    'adamw'
    """
    key = str(name).lower().replace("-", "_")
    if key not in _RULES:
        raise InputError(f"optimizer {name!r} has no known equilibrium; use one of {', '.join(sorted(_RULES))}.")
    return _RULES[key]


def _array(value: Any, name: str, *, low: float = 0.0, below: float = math.inf) -> np.ndarray:
    try:
        out = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number, got {value!r}.") from None
    if out.size and not bool(np.all((out >= low) & (out < below))):
        wanted = f"in [{low:g}, {below:g})" if below < math.inf else f"a finite number >= {low:g}"
        raise InputError(f"{name} must be {wanted}, got {value!r}.")
    return out


def _memory(rule: str, betas: Sequence[Any] | None, momentum: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Return (b1, b2), or (momentum, None) for SGDM, checked."""
    if rule == "sgdm":
        return _array(0.9 if momentum is None else momentum, "momentum", below=1.0), None
    pair = _DEFAULT_BETAS[rule] if betas is None else betas
    if len(pair) != 2:
        raise InputError(f"betas must be two numbers, got {betas!r}.")
    return _array(pair[0], "betas[0]", below=1.0), _array(pair[1], "betas[1]", below=1.0)


def _lion_scale(b1: np.ndarray, b2: np.ndarray) -> np.ndarray:
    """Variance of Lion's interpolated gradient ``b1*m + (1-b1)*g`` per unit gradient variance."""
    return (1 - b1) ** 2 + b1**2 * (1 - b2) / (1 + b2)


def _nesterov_gain(a: np.ndarray) -> np.ndarray:
    """Squared length of a Nesterov update over that of heavy ball: coefficients (1+a), a^2, a^3, ... against 1, a, ..."""
    return 1 + 2 * a - 2 * a**3


def _lion_factor(lag: float, b1: float, b2: float) -> float:
    s = float(_lion_scale(np.asarray(b1), np.asarray(b2)))
    if lag <= 1 or s == 0.0:
        return float(lag)
    # Correlations below exp(-46) ~ 1e-20 no longer change a float64 sum.
    longest = int(lag) - 1 if b2 >= 1 else min(int(lag) - 1, int(46 / -math.log(b2)) + 2 if b2 > 0 else 1)
    j = np.arange(1, longest + 1, dtype=np.float64)
    r = (b1 * (1 - b1) * (1 - b2) * b2 ** (j - 1) + b1**2 * b2**j * (1 - b2) / (1 + b2)) / s
    # Two Gaussians of correlation r have signs of correlation (2/pi) asin r.
    rho = 2 / math.pi * np.arcsin(np.clip(r, -1.0, 1.0))
    return float(lag + 2 * np.sum((lag - j) * rho))


def _geometric_factor(lag: float, b: float, kappa: float) -> float:
    """``lag + 2 sum_j (lag-j) kappa b^j`` without cancellation."""
    # The closed form loses digits as 2 / (lag (1-b)); below 64 lags the plain sum is exact and as quick.
    if lag <= 64:
        j = np.arange(1, int(lag), dtype=np.float64)
        return float(lag + 2 * kappa * np.sum((lag - j) * b**j))
    return lag + kappa * (lag * 2 * b / (1 - b) - 2 * b * (1 - b**lag) / (1 - b) ** 2)


def lag_factor(
    optimizer: str,
    lag: Any,
    *,
    betas: Sequence[Any] | None = None,
    momentum: Any = None,
    nesterov: bool = False,
) -> Any:
    r"""Mean squared rotation over ``lag`` steps in units of that over one step.

    .. math:: D_k / \eta_r^2 = k + 2 \sum_{j=1}^{k-1} (k-j)\,\rho_j

    with the correlation of updates ``j`` steps apart: ``b1**j`` (AdamW, Adam), ``momentum**j`` (SGDM) and
    ``(2/pi) asin(r_j)`` for Lion, whose updates are signs.

    Parameters
    ----------
    optimizer : str
        See :func:`canonical_optimizer`.
    lag : int or array, >= 1
        Steps between the two weights.
    betas, momentum, nesterov
        As in :func:`equilibrium`.

    Returns
    -------
    float or ndarray

    Examples
    --------
    >>> round(lag_factor("adamw", 10), 3)
    72.762
    """
    rule = canonical_optimizer(optimizer)
    k = _array(lag, "lag", low=1.0)
    if not bool(np.all(k == np.round(k))):
        raise InputError(f"lag must be a whole number of steps, got {lag!r}.")
    b1, b2 = _memory(rule, betas, momentum)
    if b2 is not None and rule == "lion":
        out = np.vectorize(_lion_factor, otypes=[np.float64])(k, b1, b2)
    else:
        kappa = np.ones_like(b1)
        if nesterov and rule == "sgdm":
            # Autocovariance of a Nesterov update is kappa * a^j for j >= 1: its first coefficient is 1+a instead of a.
            kappa = (b1 * (1 + b1) * (1 - b1**2) + b1**4) / _nesterov_gain(b1)
        out = np.vectorize(_geometric_factor, otypes=[np.float64])(k, b1, kappa)
    return float(out) if out.ndim == 0 else out


def rotation_over_steps(rotation: Any, factor: Any) -> Any:
    """Angle after many steps from the one-step rotation and :func:`lag_factor`: ``acos(exp(-rotation**2*factor/2))``.

    Parameters
    ----------
    rotation : float or array
        Root mean square one-step rotation, radians.
    factor : float or array
        ``D_k / rotation**2``.

    Returns
    -------
    float or ndarray
        Radians, in [0, pi/2).

    Examples
    --------
    >>> round(float(rotation_over_steps(0.01, 1.0)), 8)
    0.00999992
    """
    # acos(exp(-D/2)) written through the half angle, because the cosine of a small angle has no digits left.
    return 2 * np.arcsin(np.sqrt(-np.expm1(-(np.asarray(rotation) ** 2) * np.asarray(factor) / 2) / 2))


def equilibrium(
    optimizer: str = "adamw",
    *,
    lr: Any,
    weight_decay: Any,
    betas: Sequence[Any] | None = None,
    momentum: Any = None,
    nesterov: bool = False,
    dim: Any = None,
    grad_rms: Any = None,
    lag: Any = 1,
) -> Equilibrium:
    r"""Predict how far a scale-invariant neuron rotates per step, and its norm, once weight decay balances the updates.

    .. math::
        \eta_r^{SGDM} = \sqrt{\frac{2\eta\lambda}{1+a}}, \quad
        \eta_r^{AdamW} = \sqrt{2\eta\lambda\,\frac{1-\beta_1}{1+\beta_1}}, \quad
        \eta_r^{Lion} = \sqrt{\pi\eta\lambda s}

    Parameters
    ----------
    optimizer : {"adamw", "sgdm", "lion", "adam_l2"}, default "adamw"
        Update rule with torch's meaning of its options (``rvadamw``, ``rvsgd``, ``rvlion`` are the same rates).
    lr : float or array, >= 0
        Learning rate.
    weight_decay : float or array, >= 0
        Weight decay; L2 in the gradient for ``sgdm`` and ``adam_l2``, decoupled for the others.
    betas : pair, default (0.9, 0.999), for lion (0.9, 0.99)
        In [0, 1). Ignored by ``sgdm``.
    momentum : float or array, default 0.9
        In [0, 1). Only ``sgdm``.
    nesterov : bool, default False
        Only ``sgdm``.
    dim : int or array, optional
        Weights per neuron (fan-in times kernel size).
    grad_rms : float or array, optional
        Root mean square over steps of the gradient norm that the neuron would have at norm 1 (``|g| * |w|``).
    lag : int or array, default 1
        Steps between the two weights whose angle is predicted.

    Returns
    -------
    Equilibrium
        Python floats if every input is a scalar, else arrays of the broadcast shape.

    Raises
    ------
    InputError
        Negative or non-finite inputs, betas or momentum outside [0, 1), an unknown optimizer.

    Notes
    -----
    1. The random-walk model: independent zero-mean gradients, orthogonal to the weight and proportional to 1/norm.
    2. Updates within the optimizer's memory are correlated, so the angle over ``lag`` steps is not ``sqrt(lag)`` times
       the one-step angle; see :func:`lag_factor`. At ``lag=1`` the closed form itself is returned.
    3. Nesterov momentum leaves norm and long-run rotation alone; a single step is longer by
       ``sqrt(1 + 2a - 2a^3)`` (derived here; the paper has heavy ball only).
    4. The half-life of ``adam_l2`` is that of a small excess (its relaxation is not exponential).

    References
    ----------
    Kosson, Messmer, Jaggi, "Rotational Equilibrium", ICML 2024, arXiv:2305.17212.

    Examples
    --------
    >>> eq = equilibrium("sgdm", lr=0.1, momentum=0.9, weight_decay=5e-4)
    >>> round(eq.rotation, 6), round(eq.half_life_steps)
    (0.007255, 347)
    >>> equilibrium("adamw", lr=1e-3, weight_decay=0.1, dim=512).norm.__round__(12)
    1.6
    """
    rule = canonical_optimizer(optimizer)
    eta, lam = _array(lr, "lr"), _array(weight_decay, "weight_decay")
    b1, b2 = _memory(rule, betas, momentum)
    size = None if dim is None else _array(dim, "dim", low=1.0)
    rms = None if grad_rms is None else _array(grad_rms, "grad_rms")
    memory = (1 - b1) / (1 + b1)
    norm = update = rotation = half_life = None
    with np.errstate(divide="ignore", invalid="ignore"):
        if rule == "sgdm":
            gain = _nesterov_gain(b1) if nesterov else np.ones_like(b1)
            rotation = np.sqrt(2 * eta * lam / (1 + b1) * gain)
            half_life = math.log(2) * (1 - b1) / (4 * eta * lam)
            if rms is not None:
                norm = (eta * rms**2 / (2 * lam * (1 - b1))) ** 0.25
                update = eta * rms / norm * np.sqrt(gain / (1 - b1**2))
        elif rule == "lion":
            assert b2 is not None
            s = _lion_scale(b1, b2)
            rotation = np.sqrt(math.pi * eta * lam * s)
            half_life = math.log(2) / (2 * eta * lam)
            if size is not None:
                norm = np.sqrt(eta * size / (math.pi * lam * s))
                update = eta * np.sqrt(size)
        elif rule == "adamw":
            rotation = np.sqrt(2 * eta * lam * memory)
            half_life = math.log(2) / (2 * eta * lam)
            if size is not None:
                norm = np.sqrt(eta * size / (2 * lam))
                update = eta * np.sqrt(size * memory)
        else:
            if size is not None:
                update = eta * np.sqrt(size * memory)
            if size is not None and rms is not None:
                norm = (eta * np.sqrt(size) * rms / (2 * lam)) ** (1 / 3)
                rotation = update / norm
                # d(n^2)/dt = eta^2 C - 2 eta lam sqrt(C) n^3 / rms; its slope at the fixed point gives the rate.
                half_life = math.log(2) * rms / (3 * eta * lam * norm * np.sqrt(size))
    if rotation is not None and not (np.ndim(lag) == 0 and lag == 1):
        factor = np.asarray(lag_factor(rule, lag, betas=betas, momentum=momentum, nesterov=nesterov))
        rotation = np.where(np.asarray(lag) == 1, rotation, rotation_over_steps(rotation, factor))
    given = [np.asarray(lag), eta, lam, b1] + [a for a in (b2, size, rms) if a is not None]
    shape = np.broadcast_shapes(*(a.shape for a in given))

    def finish(value: np.ndarray | None) -> Any:
        if value is None:
            return None
        return float(value) if shape == () else np.array(np.broadcast_to(value, shape))

    return Equilibrium(finish(rotation), finish(norm), finish(update), finish(half_life))


def predicted_norms(
    optimizer: str,
    start: Any,
    lr: Any,
    *,
    weight_decay: Any,
    at: Sequence[int],
    dim: Any = None,
    grad_rms: Any = None,
    betas: Sequence[float] | None = None,
    momentum: float | None = None,
) -> np.ndarray:
    r"""Predict the norm of a neuron along a run: the transient from ``start`` towards a moving equilibrium.

    .. math:: n_{t+1}^2 = q_t n_t^2 + (1-q_t)\,n_{eq,t}^2, \qquad q_t=(1-\eta_t\lambda)^2

    and the same in ``n**4`` with rate ``4 lr wd / (1 - momentum)`` for SGDM.

    Parameters
    ----------
    optimizer : {"adamw", "lion", "sgdm"} or an RV name
        RV optimizers hold the norm, so ``start`` is returned.
    start : float or array (L,)
        Norm before the first step.
    lr : float or array (T,)
        Learning rate of every step (a scalar holds for all).
    weight_decay : float
        Weight decay.
    at : sequence of int
        Steps (0 = before the first) at which the norm is wanted, increasing.
    dim, grad_rms, betas, momentum
        As in :func:`equilibrium`; scalars or arrays (L,). SGDM needs ``grad_rms``, the others ``dim``.

    Returns
    -------
    ndarray
        Shape (len(at),) or (len(at), L).

    Raises
    ------
    InputError
        When the rule has no transient in closed form (``adam_l2``) or an input is missing.

    Examples
    --------
    >>> float(predicted_norms("adamw", 4.0, 1e-3, weight_decay=0.1, dim=200, at=[0, 6931])[1].round(3))
    2.179
    """
    rule = canonical_optimizer(optimizer)
    start = _array(start, "start")
    if str(optimizer).lower().startswith("rv"):
        return np.repeat(start[None], len(at), axis=0)
    if rule == "adam_l2" or (rule == "sgdm" and grad_rms is None) or (rule != "sgdm" and dim is None):
        missing = "a rule with decoupled decay" if rule == "adam_l2" else ("grad_rms" if rule == "sgdm" else "dim")
        raise InputError(f"the norm of {optimizer} over time cannot be predicted without {missing}.")
    power = 4 if rule == "sgdm" else 2
    rates = np.asarray(lr, dtype=np.float64)
    b1, _ = _memory(rule, betas, momentum)
    y = start**power
    out, now = [], 0
    for target in at:
        if target > now:
            span = np.full(target - now, float(rates)) if rates.ndim == 0 else rates[now:target]
            if len(span) < target - now:
                raise InputError(f"lr has {len(rates)} steps but step {target} was asked for.")
            # 64 pieces of constant lr per interval follow any usual schedule to well below the +-15 % of the report.
            for piece in np.array_split(span, min(64, len(span))):
                eta = float(piece.mean())
                if eta == 0.0:
                    continue
                goal = equilibrium(
                    rule, lr=eta, weight_decay=weight_decay, betas=betas, momentum=momentum, dim=dim, grad_rms=grad_rms
                ).norm
                lam = np.asarray(weight_decay, dtype=np.float64)
                if rule == "sgdm":
                    q = np.exp(-4 * eta * lam / (1 - b1) * len(piece))
                else:
                    q = (1 - eta * lam) ** (2 * len(piece))
                y = q * y + (1 - q) * np.asarray(goal) ** power
            now = target
        out.append(y)
    return np.array(np.broadcast_arrays(*out)) ** (1 / power)


def steps_where_lr_outpaces(
    optimizer: str, lr: Any, *, weight_decay: float, momentum: float | None = None
) -> np.ndarray:
    """Mark the steps after which the learning rate changes by more than half within one half-life.

    There the norm cannot follow: the weight is larger than its equilibrium for the new rate, and rotates less.

    Parameters
    ----------
    optimizer : str
        ``adamw``, ``lion`` or ``sgdm``.
    lr : array (T,)
        Learning rate of every step.
    weight_decay, momentum
        As in :func:`equilibrium`.

    Returns
    -------
    ndarray of bool, shape (T,)
        False at steps whose half-life reaches beyond the end while the rate has not yet fallen by half.

    Examples
    --------
    >>> import numpy as np
    >>> lr = np.r_[np.full(50, 0.1), np.full(50, 0.01)]
    >>> marked = steps_where_lr_outpaces("sgdm", lr, weight_decay=5e-3)
    >>> int(marked.argmax()), int(marked.sum())
    (15, 35)
    """
    rates = np.atleast_1d(_array(lr, "lr"))
    rule = canonical_optimizer(optimizer)
    a = float(_memory(rule, None, momentum)[0]) if rule == "sgdm" else 0.0
    per_lr = math.log(2) * (1 - a) / 4 if rule == "sgdm" else math.log(2) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        half_life = per_lr / (rates * weight_decay)
    steps = np.arange(len(rates))
    last = np.minimum(steps + np.minimum(np.ceil(half_life), len(rates)), len(rates) - 1).astype(int)
    # Warmup towards a higher rate only shortens the half-life, so falling rates alone are marked.
    return (rates > 0) & (rates[last] < 0.5 * rates)
