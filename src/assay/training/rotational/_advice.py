"""Turn a table of measured and predicted rotation into sentences that a practitioner can act on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ._equilibrium import canonical_optimizer, equilibrium

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["advise", "what_if"]

#: The band of the reports: a layer within 15 % of the prediction needs no advice.
BAND = 0.15
#: Neurons of one layer that differ by more than this (std/mean) learn at visibly different speeds; random walks of
#: usual width and averaging stay below .1.
UNEVEN = 0.25
#: From so many steps between checkpoints on, layers are compared with the network's median (see analyse_checkpoints, note 5).
CANCELS_FROM = 30
#: Band of that comparison: normalised layers of one ResNet differ by up to 12 % at 100 steps, twice that is a finding.
RELATIVE_BAND = 0.25
#: A median below this is less than any real network showed whose settings were right: the settings are then in doubt.
DOUBTFUL = 0.4
#: Squared angle over two intervals over the sum of both below which steps count as undoing each other (1 is a free walk).
CIRCLING = 0.8
#: Below this fan-in a few weights carry the direction, and the random-walk model is rough (measured: 1x1 shortcuts .7).
SMALL_FAN_IN = 32


def _times(ratio: float) -> str:
    """`3.1x faster`, `18 % slower`."""
    faster = ratio > 1
    if 1 / 1.5 < ratio < 1.5:
        return f"{abs(ratio - 1) * 100:.0f} % {'faster' if faster else 'slower'}"
    return f"{ratio if faster else 1 / ratio:.1f}x {'faster' if faster else 'slower'}"


def _steps_left(norm: float, target: float, half_life: float, power: int) -> float:
    """Steps until the norm is within the band of its equilibrium, at the given half-life of ``norm**power``."""
    excess = (norm / target) ** power - 1
    allowed = (1 + BAND) ** power - 1 if excess > 0 else 1 - (1 - BAND) ** power
    return half_life * max(0.0, math.log2(abs(excess) / allowed)) if excess else 0.0


def advise(report: pd.DataFrame) -> list[str]:
    """Say in plain words which layers learn too fast or too slowly, why, and what to change.

    Parameters
    ----------
    report : pandas.DataFrame
        From :meth:`RotationMonitor.report` or :func:`analyse_checkpoints`; needs ``layer, ratio, angle_predicted, norm,
        norm_predicted, spread, half_life_steps, dim`` and, if there, ``radial``, ``radial_rms`` and ``invariance``.

    Returns
    -------
    list of str
        One sentence per finding; the first says how many layers are as predicted.

    Notes
    -----
    1. Order of causes: norm still on its way, gradient not orthogonal to the weight, steps that undo each other (``wander``
       far below 1), tiny fan-in, otherwise correlated gradients.

    Examples
    --------
    >>> import pandas as pd
    >>> row = dict(layer="fc.weight", dim=64, ratio=0.5, angle_predicted=0.01, norm=8.0, norm_predicted=4.0,
    ...            spread=0.05, half_life_steps=100.0, radial=0.0, invariance="neuron")
    >>> advise(pd.DataFrame([row]))[1].partition(";")[0]
    'fc.weight rotates 2.0x slower than predicted: its norm is 2.0x the equilibrium norm and still falling'
    """
    known = report[np.isfinite(report["ratio"]) & (report["ratio"] > 0)]
    still = report[report["ratio"] == 0]
    if known.empty and len(still):
        return ["No layer moved: are the weights frozen, the lr 0, or gradients missing?"]
    if known.empty:
        return [
            "No layer has a prediction: weight decay is 0, or the optimizer's equilibrium is not known (give its rate)."
        ]
    reference = float(report.attrs.get("reference", 1.0))
    every = report.attrs.get("every")
    band = BAND if reference == 1.0 else RELATIVE_BAND
    relative = known["ratio"] / reference
    good = (relative - 1).abs() <= band
    # A layer at c times its equilibrium norm turns less by about that factor: no setting needs to be wrong.
    off = float((known["norm"] / known["norm_predicted"]).median()) if "norm_predicted" in known else math.nan
    if reference == 1.0:
        out = [f"{int(good.sum())} of {len(known)} layers rotate within {band:.0%} of the predicted speed."]
        compared = "predicted"
    else:
        out = [
            f"Over {every:,} steps the median layer turned {reference:.2f} of what a free random walk would. "
            + (
                "That far apart .5 to 1 is usual, because the gradients of a real network partly cancel; so layers are compared "
                "with the median."
                if reference >= DOUBTFUL
                else f"The norms are the reason: the median is {off:.1f}x what the lr by then would lead to. Layers are compared "
                "with the median."
                if off > 1 + BAND
                else "That is little even so far apart: check lr, weight decay, betas and --every, or training has fitted its "
                "data and hardly moves. Layers are compared with the median."
            ),
            f"{int(good.sum())} of {len(known)} layers rotate within {band:.0%} of the median.",
        ]
        compared = "the median layer"
    if len(known) > 1:
        disparity = float(relative.std(ddof=0) / relative.mean())
        if disparity > UNEVEN:
            slow, fast = relative.idxmin(), relative.idxmax()
            out.append(
                f"Layers learn at different speeds (std/mean {disparity:.2f}): {known['layer'][slow]} is the slowest "
                f"({relative[slow]:.2f} of {'the prediction' if reference == 1.0 else compared}), {known['layer'][fast]} the "
                f"fastest ({relative[fast]:.2f})."
            )
        elif abs(float(relative.median()) - 1) > band and abs(off - 1) > BAND and (off > 1) == (relative.median() < 1):
            out.append(
                f"The layers rotate alike, {_times(float(relative.median()))} than {compared}, because their norms are not in "
                f"equilibrium yet (median {off:.1f}x)."
            )
        elif abs(float(relative.median()) - 1) > band:
            out.append(
                f"All layers rotate alike but {_times(float(relative.median()))} than {compared}; check that lr, weight decay, "
                "betas and the number of steps between checkpoints are those of the run."
            )
    total = report.attrs.get("total_steps")
    for row in known.assign(relative=relative)[~good].to_dict("records"):
        out.append(f"{row['layer']} rotates {_times(row['relative'])} than {compared}: {_cause(row, total)}.")
    if len(still):
        out.append(f"{_some(still['layer'])} did not move: frozen, or without gradient.")
    for row in known.to_dict("records"):
        if row.get("spread", 0.0) > UNEVEN:
            out.append(
                f"{row['layer']}: its neurons rotate unevenly (std/mean {row['spread']:.2f}); weight standardisation or a "
                "rotational optimizer with per_neuron=True evens them."
            )
    unknown = report[~np.isfinite(report["ratio"])]
    if len(unknown):
        out.append(
            f"No prediction for {len(unknown)} layers without weight decay or movement ({_some(unknown['layer'])})."
        )
    return out + _run_advice(report.attrs)


def _some(names: pd.Series) -> str:
    return ", ".join(names.head(4)) + (" ..." if len(names) > 4 else "")


def _cause(row: dict[str, Any], total: int | None = None) -> str:
    norm, target, half_life = row["norm"], row.get("norm_predicted", math.nan), row.get("half_life_steps", math.nan)
    invariance = row.get("invariance", "unknown")
    along = f"{row.get('radial', math.nan):+.2f}"
    if math.isfinite(row.get("radial_rms", math.nan)):
        # The mean of the shares is small at equilibrium whatever the layer is; the usual share of one step tells.
        along = f"{row['radial_rms']:.2f} of it lies along"
    power = int(row.get("norm_power", 2))
    speed = row["relative"]
    slow = speed < 1
    off = norm / target if target and math.isfinite(target) and target > 0 else math.nan
    # A large norm explains slow rotation and a small norm fast rotation; the other two combinations do not.
    if math.isfinite(off) and half_life > 0 and (off > 1 + BAND) == slow and abs(off - 1) > BAND:
        left = _steps_left(norm, target, half_life, power)
        # Two digits are more than an estimate of this kind holds.
        about = f"about {float(f'{left:.2g}'):,.0f} more steps at these settings"
        if total is not None and left > total:
            about = "at the present lr that takes longer than the whole run"
        if invariance == "none":
            return f"its gradient is not orthogonal to the weight ({along}), not scale-invariant; norm {off:.1f}x"
        trend = "still falling" if off > 1 else "still growing"
        return f"its norm is {off:.1f}x the equilibrium norm and {trend}; {about}"
    if invariance == "none":
        return (
            f"gradient not orthogonal to the weight ({along}), not scale-invariant; normalise its output or treat the "
            "prediction as a rough guide"
        )
    if invariance == "layer":
        return "only the layer as a whole is scale-invariant, not each neuron; weight standardisation makes every neuron so"
    wander = row.get("wander", math.nan)
    if slow and wander < CIRCLING:
        return (
            f"its steps undo each other (two intervals turn {2 * wander:.1f}x as far as one in squared angle, a free walk 2x): "
            "the weights circle around a solution, as in training that has fitted its data"
        )
    if not slow and wander > 2 - CIRCLING:
        return "it still drifts in one direction (two intervals turn further than a random walk): training is not stationary"
    if row["dim"] <= SMALL_FAN_IN and 0.5 < speed < 2:
        return f"a fan-in of {int(row['dim'])} is too small for the random-walk model, no action needed"
    if slow and invariance == "unknown":
        return (
            "its gradients are small or repeat for many steps, or nothing normalises its output (a last layer, say) and the "
            "prediction is only rough; RotationMonitor on a live run tells which"
        )
    if slow:
        return "its gradients are small or repeat for many steps (correlated), or it receives no gradient on most steps"
    return "its gradients vary more than the optimizer's memory expects (rare large gradients); consider clipping"


def _run_advice(attrs: dict[str, Any]) -> list[str]:
    out = []
    share = attrs.get("share_before_equilibrium")
    if share:
        worst = max(share, key=lambda k: share[k])
        median = float(np.median(list(share.values())))
        if share[worst] >= 0.999:
            late = sum(s >= 0.999 for s in share.values())
            out.append(
                f"{late} of {len(share)} layers never came within {BAND:.0%} of their equilibrium norm in this run: a rotational "
                "optimizer starts there, or raise lr x weight decay early on."
            )
        elif median > 0.2:
            out.append(
                f"Half of the layers spent more than {median:.0%} of the run before equilibrium (longest: {worst}, "
                f"{share[worst]:.0%})."
            )
    if attrs.get("outpaced_from") is not None and attrs.get("total_steps"):
        at, total = int(attrs["outpaced_from"]), int(attrs["total_steps"])
        out.append(
            f"lr falls faster than the equilibrium can follow from step {at:,} on (the last {1 - at / total:.0%} of the run): "
            "norms stay too large for the new lr, so layers turn less than the prediction says; a rotational optimizer follows "
            "the schedule at once."
        )
    if attrs.get("half_lives") is not None and attrs["half_lives"] < 2:
        out.append(
            f"The run covers only {attrs['half_lives']:.1f} half-lives of the norm: where it ends depends on how the weights "
            "were initialised. Longer training or a larger lr x weight decay would forget that."
        )
    return out


def what_if(
    optimizer: str,
    *,
    lr: float,
    weight_decay: float,
    betas: Sequence[float] | None = None,
    momentum: float | None = None,
    nesterov: bool = False,
    total_steps: int | None = None,
) -> pd.DataFrame:
    """Predict what doubling lr, weight decay or both does to rotation, norm and half-life.

    Parameters
    ----------
    optimizer, lr, weight_decay, betas, momentum, nesterov
        As in :func:`equilibrium` (not ``adam_l2``).
    total_steps : int, optional
        Length of the run, for the number of half-lives in it.

    Returns
    -------
    pandas.DataFrame
        ``setting, lr, weight_decay, rotation_mrad, rotation_factor, norm_factor, half_life_steps`` and ``half_lives``.

    Examples
    --------
    >>> what_if("adamw", lr=1e-3, weight_decay=0.1)["rotation_factor"].round(2).tolist()
    [1.0, 1.41, 1.41, 2.0, 1.0]
    """
    import pandas as pd

    rule = canonical_optimizer(optimizer)
    fixed = str(optimizer).lower().startswith("rv")
    rows = []
    for name, a, b in [
        ("now", 1, 1),
        ("lr x2", 2, 1),
        ("weight decay x2", 1, 2),
        ("both x2", 2, 2),
        ("lr x2, weight decay /2", 2, 0.5),
    ]:
        found = equilibrium(
            rule, lr=lr * a, weight_decay=weight_decay * b, betas=betas, momentum=momentum, nesterov=nesterov
        )
        row = {
            "setting": name,
            "lr": lr * a,
            "weight_decay": weight_decay * b,
            "rotation_mrad": None if found.rotation is None else 1e3 * found.rotation,
            "rotation_factor": math.sqrt(a * b) if rule != "adam_l2" else None,
            # SGDM: n^4 ~ lr/wd; AdamW and Lion: n^2 ~ lr/wd; rotational optimizers hold the norm.
            "norm_factor": 1.0
            if fixed
            else {"sgdm": (a / b) ** 0.25, "adam_l2": (a / b) ** (1 / 3)}.get(rule, (a / b) ** 0.5),
            "half_life_steps": 0.0 if fixed else found.half_life_steps,
        }
        if total_steps is not None and not fixed and found.half_life_steps:
            row["half_lives"] = total_steps / found.half_life_steps
        rows.append(row)
    return pd.DataFrame(rows)
