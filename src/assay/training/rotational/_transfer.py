"""Move hyperparameters between settings while rotation or the number of half-lives stays what it was."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from assay._core.errors import InputError

from ._equilibrium import canonical_optimizer, equilibrium

__all__ = ["Transfer", "transfer"]

_CHANGES = ("lr", "weight_decay", "batch", "steps")


@dataclass(frozen=True)
class Transfer:
    """New settings, and what they keep.

    Attributes
    ----------
    lr, weight_decay : float
        New settings.
    steps_factor : float
        Steps of the new run over steps of the old one.
    rotation, rotation_before : float
        One-step equilibrium rotation, radians, new and old.
    half_life_steps, half_life_before : float
        Half-life of the excess norm in steps, new and old.
    """

    lr: float
    weight_decay: float
    steps_factor: float
    rotation: float
    rotation_before: float
    half_life_steps: float
    half_life_before: float


def transfer(
    lr: float,
    weight_decay: float,
    *,
    optimizer: str = "adamw",
    betas: Sequence[float] | None = None,
    momentum: float | None = None,
    keep: Literal["rotation", "half_lives"] = "rotation",
    adjust: Literal["weight_decay", "lr", "both"] | None = None,
    change: Mapping[str, float] | None = None,
    to_optimizer: str | None = None,
    to_betas: Sequence[float] | None = None,
    to_momentum: float | None = None,
) -> Transfer:
    r"""Return the learning rate and weight decay that keep the rotation when something else changes.

    .. math:: \eta_r^2 \propto \eta\lambda, \qquad \text{half-lives in a run} \propto \eta\lambda \cdot \text{steps}

    Parameters
    ----------
    lr, weight_decay : float, > 0
        Settings that worked.
    optimizer, betas, momentum
        As in :func:`equilibrium`; of the run that worked. ``adam_l2`` is refused: its rotation depends on the gradient.
    keep : {"rotation", "half_lives"}, default "rotation"
        ``rotation``: the angle per step. ``half_lives``: how often the norm's excess halves in the whole run, which
        is also the angle that the run covers in total.
    adjust : {"weight_decay", "lr", "both"}, optional
        What is free to move. Default: the one of lr and weight_decay that is not in ``change``; weight_decay if neither.
        ``both`` moves both by the same factor (square-root scaling with the batch for Adam).
    change : mapping, optional
        Factors by which things change: ``{"lr": 2, "weight_decay": .5, "batch": 4, "steps": .5}``. A batch change
        without ``steps`` keeps the number of epochs, so the steps change by ``1/batch``.
    to_optimizer, to_betas, to_momentum
        The new optimizer, where it changes.

    Returns
    -------
    Transfer

    Raises
    ------
    InputError
        Unknown or non-positive factors, or lr and weight_decay both fixed by ``change``.

    Examples
    --------
    >>> transfer(1e-3, 0.1, change={"lr": 2}).weight_decay
    0.05
    >>> new = transfer(1e-3, 0.1, keep="half_lives", adjust="both", change={"batch": 4})
    >>> new.lr, new.weight_decay
    (0.002, 0.2)
    """
    change = dict(change or {})
    unknown = sorted(set(change) - set(_CHANGES))
    if unknown:
        raise InputError(f"change has unknown keys {', '.join(unknown)}; known are {', '.join(_CHANGES)}.")
    for key, value in {
        "lr": lr,
        "weight_decay": weight_decay,
        **{f"change[{k!r}]": v for k, v in change.items()},
    }.items():
        if not (isinstance(value, (int, float)) and math.isfinite(value) and value > 0):
            raise InputError(f"{key} must be a positive finite number, got {value!r}.")
    if keep not in ("rotation", "half_lives"):
        raise InputError(f"keep must be 'rotation' or 'half_lives', got {keep!r}.")
    if adjust is None:
        adjust = "lr" if "weight_decay" in change and "lr" not in change else "weight_decay"
    fixed = {"weight_decay": ["weight_decay"], "lr": ["lr"], "both": ["lr", "weight_decay"]}.get(adjust)
    if fixed is None:
        raise InputError(f"adjust must be 'weight_decay', 'lr' or 'both', got {adjust!r}.")
    if set(fixed) & set(change):
        raise InputError(f"{' and '.join(fixed)} cannot be both changed by you and adjusted; drop it from change.")
    rule = canonical_optimizer(optimizer)
    new_rule = rule if to_optimizer is None else canonical_optimizer(to_optimizer)
    if "adam_l2" in (rule, new_rule):
        raise InputError("adam_l2 has no rotation to keep (it depends on the gradient's size); use adamw.")
    if to_optimizer is None:
        to_betas = betas if to_betas is None else to_betas
        to_momentum = momentum if to_momentum is None else to_momentum
    steps = change.get("steps", 1.0 / change.get("batch", 1.0))
    before = equilibrium(rule, lr=lr, weight_decay=weight_decay, betas=betas, momentum=momentum)
    lr0, wd0 = lr * change.get("lr", 1.0), weight_decay * change.get("weight_decay", 1.0)
    trial = equilibrium(new_rule, lr=lr0, weight_decay=wd0, betas=to_betas, momentum=to_momentum)
    if keep == "rotation":
        factor = (before.rotation / trial.rotation) ** 2
    else:
        factor = (trial.half_life_steps / before.half_life_steps) / steps
    # The factor is a ratio of float64 roots; twelve digits keep 0.05 from printing as 0.05000000000000001.
    factor = float(f"{factor:.12g}")
    if adjust == "weight_decay":
        wd0 *= factor
    elif adjust == "lr":
        lr0 *= factor
    else:
        lr0, wd0 = lr0 * math.sqrt(factor), wd0 * math.sqrt(factor)
    after = equilibrium(new_rule, lr=lr0, weight_decay=wd0, betas=to_betas, momentum=to_momentum)
    return Transfer(
        lr=lr0,
        weight_decay=wd0,
        steps_factor=steps,
        rotation=after.rotation,
        rotation_before=before.rotation,
        half_life_steps=after.half_life_steps,
        half_life_before=before.half_life_steps,
    )
