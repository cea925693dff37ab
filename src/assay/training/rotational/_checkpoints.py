"""Measure rotation between saved checkpoints of a run, any number of steps apart, beside what theory predicts."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from assay._core.errors import InputError

from ._advice import BAND, CANCELS_FROM, RELATIVE_BAND, SMALL_FAN_IN, advise, what_if
from ._equilibrium import (
    canonical_optimizer,
    equilibrium,
    lag_factor,
    predicted_norms,
    rotation_over_steps,
    steps_where_lr_outpaces,
)
from ._names import clean_name

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SeriesAnalysis", "analyse_checkpoints"]

#: Beyond this predicted angle (cosine .3) two checkpoints share so little that the ratio measures mostly noise.
TOO_FAR = 1.27
#: A cosine is taken no smaller than this: its logarithm must exist, and in any usual dimension it is noise there.
LEAST_COSINE = 0.02


@dataclass(frozen=True)
class SeriesAnalysis:
    """What a series of checkpoints says.

    Attributes
    ----------
    layers : pandas.DataFrame
        One row per layer, over the last third of the series: the columns of :meth:`RotationMonitor.report` that weights
        alone can tell, ``angle`` between checkpoints in radians and ``rotation`` per step.
    series : pandas.DataFrame
        One row per layer and pair of checkpoints.
    norms : pandas.DataFrame
        One row per layer and checkpoint: measured and predicted norm.
    neuron_ratios : dict
        Layer -> measured over predicted rotation of every neuron (last third).
    advice : list of str
        Sentences.
    what_if : pandas.DataFrame
        Predicted effect of doubling lr and weight decay.
    notes : list of str
        What was left out and why.
    """

    layers: pd.DataFrame
    series: pd.DataFrame
    norms: pd.DataFrame
    neuron_ratios: dict[str, np.ndarray]
    advice: list[str]
    what_if: pd.DataFrame
    notes: list[str]


def _as_numpy(value: Any) -> np.ndarray | None:
    """Return a float array of a tensor or array, None if it is not floating."""
    if hasattr(value, "detach"):
        tensor = value.detach().cpu()
        return tensor.double().numpy() if tensor.is_floating_point() else None
    array = np.asarray(value)
    return array.astype(np.float64) if np.issubdtype(array.dtype, np.floating) else None


def _rows(array: np.ndarray, neuron_dim: int) -> np.ndarray:
    return np.moveaxis(array, neuron_dim, 0).reshape(array.shape[neuron_dim], -1)


def _pick(state: Mapping[str, Any], layers: Sequence[str] | None, label: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    seen: set[tuple[int, tuple[int, ...]]] = set()
    for raw, value in state.items():
        name = clean_name(raw)
        if getattr(value, "ndim", 0) < 2 or not math.prod(value.shape):
            continue
        if layers and not any(fnmatch.fnmatchcase(name, p) for p in layers):
            continue
        # Tied weights come as views of one storage: counted once.
        if hasattr(value, "data_ptr"):
            key = (value.data_ptr(), tuple(value.shape))
            if key in seen:
                continue
            seen.add(key)
        out[name] = value
    if not out:
        chosen = f" matching {', '.join(layers)}" if layers else ""
        raise InputError(f"{label} has no weight of two or more dimensions{chosen}.")
    return out


class _Layer:
    """Running record of one layer over the series."""

    def __init__(self, name: str, rows: np.ndarray) -> None:
        self.name, self.neurons, self.dim = name, rows.shape[0], rows.shape[1]
        self.norms = [self._norm(rows)]
        self.chord2: list[np.ndarray] = []
        self.double_chord2: list[float] = []
        self.before_last: np.ndarray | None = None

    @staticmethod
    def _norm(rows: np.ndarray) -> float:
        return float(np.sqrt(np.mean(np.sum(rows**2, axis=1))))

    def add(self, old: np.ndarray, new: np.ndarray) -> None:
        n0, n1 = np.linalg.norm(old, axis=1), np.linalg.norm(new, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            # Chord of the unit vectors; a zero neuron has no direction and stays NaN.
            self.chord2.append(np.sum((new / n1[:, None] - old / n0[:, None]) ** 2, axis=1))
            unit = new / n1[:, None]
            if self.before_last is not None:
                self.double_chord2.append(float(np.nanmean(np.sum((unit - self.before_last) ** 2, axis=1))))
            self.before_last = (old / n0[:, None]).astype(np.float32)
        self.norms.append(self._norm(new))


def _squared_rotation(chord2: Any) -> Any:
    """``D = -2 log cos(angle)`` from squared chords, the inverse of ``angle = acos(exp(-D/2))``."""
    return -2 * np.log(np.maximum(1 - np.asarray(chord2) / 2, LEAST_COSINE))


def analyse_checkpoints(
    states: Iterable[Mapping[str, Any]],
    every: int,
    optimizer: str = "adamw",
    *,
    lr: Any,
    weight_decay: float,
    betas: Sequence[float] | None = None,
    momentum: float | None = None,
    nesterov: bool = False,
    layers: Sequence[str] | None = None,
    no_decay: Sequence[str] = (),
    transposed: Sequence[str] = (),
    labels: Sequence[str] | None = None,
) -> SeriesAnalysis:
    r"""Compare the rotation between successive checkpoints with the equilibrium of the run's settings.

    .. math:: \text{ratio} = \sqrt{\frac{-2\ln \overline{\cos\angle(w_t, w_{t+k})}}{D_k}}, \qquad
        D_k = \overline{\eta_r^2}\,[k + 2\textstyle\sum_j (k-j)\rho_j]

    Parameters
    ----------
    states : iterable of mappings
        State dicts in step order (name -> tensor or array); only three are held at a time.
    every : int, >= 1
        Optimizer steps between successive checkpoints.
    optimizer : str, default "adamw"
        ``adamw, sgdm, lion, adam_l2`` or an RV twin (``rvadamw`` ...), whose norm is held.
    lr : float or array
        Learning rate, or one per step from the first checkpoint on.
    weight_decay : float, >= 0
        Weight decay.
    betas, momentum, nesterov
        As in :func:`equilibrium`.
    layers : sequence of str, optional
        Patterns of the weights to analyse. Default: all of two or more dimensions.
    no_decay : sequence of str
        Patterns of weights trained without decay: measured, not predicted.
    transposed : sequence of str
        Patterns of transposed convolutions, whose neurons lie along dimension 1.
    labels : sequence of str, optional
        What the checkpoints are called in messages (file names).

    Returns
    -------
    SeriesAnalysis

    Raises
    ------
    InputError
        Fewer than two checkpoints, no common weights, changed shapes, NaN or infinite weights, lr too short.

    Notes
    -----
    1. Angles between checkpoints saturate at 90 degrees; the ratio therefore compares ``-2 log cos``, which does not.
       Where the prediction itself is beyond 73 degrees the checkpoints are too far apart and a note says so.
    2. ``adam_l2`` and the norm of SGDM need the gradient's size, which checkpoints do not hold. For SGDM one size per layer is
       fitted to the norms of the series (``n**4`` is linear in its square); the rate of the way to equilibrium is then a
       prediction, its goal is not. For ``adam_l2`` there is no prediction.
    3. Under a schedule the squared rotation is averaged over each interval.
    4. ``wander`` compares two intervals with one: the squared rotation over both, over the sum of the two. A free random walk
       has 1, a weight that circles around a solution tends to .5, steady drift to 2. It tells a layer whose steps are small
       from one whose steps undo each other, which a single angle between checkpoints cannot.
    5. Gradients of a real network are not independent: they partly cancel over tens of steps. Where every single step of
       a ResNet was as predicted, the angle over 10, 30 and 100 steps was .90, .76 and .63 of the prediction, alike in all
       normalised layers. From 30 steps on layers are therefore judged against the median layer (``relative``), never above
       1, and the advice says so.

    References
    ----------
    arXiv:2305.17212.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> walk = np.cumsum(rng.normal(size=(4, 8, 100)), axis=0)
    >>> found = analyse_checkpoints([{"w": w} for w in walk], 10, lr=1e-3, weight_decay=0.1)
    >>> found.layers["layer"].tolist()
    ['w']
    """
    import pandas as pd

    rule = canonical_optimizer(optimizer)
    fixed = str(optimizer).lower().startswith("rv")
    if every < 1 or int(every) != every:
        raise InputError(f"every must be a whole number of steps >= 1, got {every!r}.")
    if weight_decay < 0 or not math.isfinite(weight_decay):
        raise InputError(f"weight_decay must be a finite number >= 0, got {weight_decay!r}.")
    records, notes, count = _read_series(states, layers, transposed, labels)
    intervals, total = count - 1, (count - 1) * every
    rates = np.asarray(lr, dtype=np.float64)
    if rates.ndim == 0:
        rates = np.full(total, float(rates))
    if len(rates) < total:
        raise InputError(f"lr covers {len(rates)} steps, but {count} checkpoints every {every} steps need {total}.")
    rates = rates[:total]
    if not bool(np.all(np.isfinite(rates) & (rates >= 0))):
        raise InputError("lr must be finite and >= 0 at every step.")

    # adam_l2's angle depends on the gradient's size: the lag shape is known, the height is not.
    squared = np.full(intervals, math.nan)
    if rule != "adam_l2" and weight_decay > 0:
        eta_r = equilibrium(
            rule,
            lr=rates,
            weight_decay=weight_decay,
            betas=betas,
            momentum=momentum,
            nesterov=nesterov and not fixed,
        ).rotation
        squared = np.mean((eta_r**2).reshape(intervals, every), axis=1)
    factor = lag_factor(rule, every, betas=betas, momentum=momentum, nesterov=nesterov and not fixed)
    last = slice(intervals - max(1, math.ceil(intervals / 3)), intervals)
    at = [i * every for i in range(count)]
    rows, series, norms, ratios, share = [], [], [], {}, {}
    for record in records:
        decayed = not any(fnmatch.fnmatchcase(record.name, p) for p in no_decay)
        goal = squared if decayed else np.full(intervals, math.nan)
        chord2 = np.stack(record.chord2)
        alive = np.isfinite(chord2).all(axis=0)
        if not alive.all():
            notes.append(f"{record.name}: {int((~alive).sum())} neurons of zero norm were left out.")
        if not alive.any():
            continue
        chord2 = chord2[:, alive]
        mean_chord2 = chord2.mean(axis=1)
        rotation = np.sqrt(_squared_rotation(mean_chord2) / factor)
        angle = 2 * np.arcsin(np.minimum(np.sqrt(mean_chord2) / 2, 1.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = rotation / np.sqrt(goal)
        predicted_angle = rotation_over_steps(np.sqrt(goal), factor)
        norm_predicted, final = _norm_prediction(
            rule, fixed, record, rates, weight_decay if decayed else 0.0, at, betas, momentum
        )
        pooled = (
            float(np.sqrt(np.mean(rotation[last] ** 2) / np.mean(goal[last]))) if np.mean(goal[last]) > 0 else math.nan
        )
        per_neuron = np.sqrt(_squared_rotation(chord2[last].mean(axis=0)) / factor)
        half_life = math.nan
        if decayed and weight_decay > 0 and rates[-every:].mean() > 0 and rule != "adam_l2":
            half_life = (
                0.0
                if fixed
                else equilibrium(
                    rule, lr=float(rates[-every:].mean()), weight_decay=weight_decay, betas=betas, momentum=momentum
                ).half_life_steps
            )
        for i in range(intervals):
            series.append(
                {
                    "layer": record.name,
                    "step_from": at[i],
                    "step_to": at[i + 1],
                    "lr": float(rates[at[i] : at[i + 1]].mean()),
                    "angle": float(angle[i]),
                    "angle_predicted": float(predicted_angle[i]),
                    "rotation": float(rotation[i]),
                    "rotation_predicted": float(np.sqrt(goal[i])),
                    "ratio": float(ratio[i]),
                }
            )
        for i in range(count):
            norms.append(
                {
                    "layer": record.name,
                    "step": at[i],
                    "norm": record.norms[i],
                    "norm_predicted": float(norm_predicted[i]),
                }
            )
        wander = math.nan
        if record.double_chord2:
            singles = _squared_rotation(mean_chord2)
            pairs = (singles[:-1] + singles[1:])[-len(rotation[last]) :]
            doubles = _squared_rotation(np.array(record.double_chord2))[-len(pairs) :]
            wander = float(np.sum(doubles) / np.sum(pairs)) if np.sum(pairs) > 0 else math.nan
        mean_goal = float(np.mean(goal[last]))
        if mean_goal > 0:
            ratios[record.name] = per_neuron / math.sqrt(mean_goal)
        target = final
        if math.isfinite(target) and not fixed:
            share[record.name] = _share_before(record, rule, rates, weight_decay, at, betas, momentum, target)
        rows.append(
            {
                "layer": record.name,
                "dim": record.dim,
                "neurons": record.neurons,
                "norm": record.norms[-1],
                "norm_predicted": float(target),
                "angle": float(np.sqrt(np.mean(angle[last] ** 2))),
                "angle_predicted": float(np.sqrt(np.mean(predicted_angle[last] ** 2))),
                "rotation": float(np.sqrt(np.mean(rotation[last] ** 2))),
                "rotation_predicted": math.sqrt(mean_goal) if mean_goal > 0 else math.nan,
                "ratio": pooled,
                "spread": float(per_neuron.std() / per_neuron.mean()) if per_neuron.mean() > 0 else 0.0,
                "wander": wander,
                "half_life_steps": float(half_life),
                "share_before_equilibrium": share.get(record.name, math.nan),
                "norm_power": 4 if rule == "sgdm" else 2,
            }
        )
    if not rows:
        raise InputError("no weight moved between the checkpoints; are they from one run, in step order?")
    frame = pd.DataFrame(rows)
    reference = _reference(frame, every)
    frame.insert(frame.columns.get_loc("ratio") + 1, "relative", frame["ratio"] / reference)
    band = BAND if reference == 1.0 else RELATIVE_BAND
    settled = ((frame["norm"] / frame["norm_predicted"]).fillna(1.0) - 1).abs() <= BAND
    frame["at_equilibrium"] = ((frame["relative"] - 1).abs() <= band) & settled
    if np.isfinite(squared).any() and rotation_over_steps(math.sqrt(float(np.nanmax(squared))), factor) > TOO_FAR:
        notes.append(
            f"Checkpoints {every:,} steps apart are predicted to have turned by more than 73 degrees: ratios are mostly noise; "
            "save more often."
        )
    if rule == "adam_l2":
        notes.append(
            "Adam with L2 decay has no rotation of its own: it depends on each layer's gradient size, which checkpoints do not "
            "hold; watch the live run with RotationMonitor."
        )
    attrs: dict[str, Any] = {
        "total_steps": total,
        "share_before_equilibrium": share,
        "every": every,
        "reference": reference,
    }
    if not fixed and rule != "adam_l2" and weight_decay > 0:
        marked = np.flatnonzero(steps_where_lr_outpaces(rule, rates, weight_decay=weight_decay, momentum=momentum))
        attrs["outpaced_from"] = int(marked[0]) if len(marked) else None
        with np.errstate(divide="ignore"):
            lives = equilibrium(
                rule, lr=rates, weight_decay=weight_decay, betas=betas, momentum=momentum
            ).half_life_steps
        attrs["half_lives"] = float(np.sum(1 / lives))
    frame.attrs.update(attrs)
    table = what_if(
        optimizer,
        lr=float(rates.max()),
        weight_decay=weight_decay,
        betas=betas,
        momentum=momentum,
        nesterov=nesterov,
        total_steps=total,
    )
    return SeriesAnalysis(
        layers=frame,
        series=pd.DataFrame(series),
        norms=pd.DataFrame(norms),
        neuron_ratios=ratios,
        advice=advise(frame),
        what_if=table,
        notes=notes,
    )


def _reference(frame: pd.DataFrame, every: int) -> float:
    """Ratio that an ordinary layer of this network has: 1, or the median where gradients had the time to cancel."""
    if every < CANCELS_FROM:
        return 1.0
    # Tiny fan-ins and the last layer have causes of their own; the median is of the layers that have none.
    usual = frame.loc[frame["dim"] > SMALL_FAN_IN, "ratio"].dropna()
    usual = usual if len(usual) else frame["ratio"].dropna()
    return min(1.0, float(usual.median())) if len(usual) else 1.0


def _read_series(
    states: Iterable[Mapping[str, Any]],
    layers: Sequence[str] | None,
    transposed: Sequence[str],
    labels: Sequence[str] | None,
) -> tuple[list[_Layer], list[str], int]:
    """Walk the checkpoints once, two in memory."""
    records: dict[str, _Layer] = {}
    previous: dict[str, np.ndarray] = {}
    notes: list[str] = []
    count = 0
    for index, state in enumerate(states):
        label = labels[index] if labels is not None else f"checkpoint {index + 1}"
        current: dict[str, np.ndarray] = {}
        for name, value in _pick(state, layers, label).items():
            if index and name not in previous:
                continue
            array = _as_numpy(value)
            if array is None:
                continue
            if not np.isfinite(array).all():
                raise InputError(f"{label}: weight {name} has NaN or infinite values; leave this checkpoint out.")
            current[name] = _rows(array, 1 if any(fnmatch.fnmatchcase(name, p) for p in transposed) else 0)
        if index == 0:
            records = {name: _Layer(name, rows) for name, rows in current.items()}
        else:
            for name in list(records):
                if name not in current:
                    notes.append(f"{name} is missing in {label} and was left out.")
                    del records[name]
                    continue
                if current[name].shape != previous[name].shape:
                    raise InputError(
                        f"{label}: weight {name} has {current[name].shape} (neurons, dim), before it had {previous[name].shape}; "
                        "are the checkpoints of one model?"
                    )
                records[name].add(previous[name], current[name])
            if not records:
                raise InputError(f"{label} shares no weight names with the checkpoints before it.")
        previous = {name: current[name] for name in records if name in current}
        count += 1
    if count < 2:
        raise InputError(f"need at least two checkpoints to measure rotation, got {count}.")
    still = [r.name for r in records.values() if not np.any(np.nan_to_num(np.stack(r.chord2)))]
    if still:
        names = ", ".join(still[:4]) + (" ..." if len(still) > 4 else "")
        notes.append(f"{len(still)} weights never moved (frozen or unused) and were left out: {names}.")
    kept = [r for r in records.values() if r.name not in still]
    if not kept:
        raise InputError("no weight moved between the checkpoints; are they different steps of one run?")
    return kept, notes, count


def _norm_prediction(
    rule: str,
    fixed: bool,
    record: _Layer,
    rates: np.ndarray,
    weight_decay: float,
    at: Sequence[int],
    betas: Sequence[float] | None,
    momentum: float | None,
) -> tuple[np.ndarray, float]:
    """Predicted norm at each checkpoint, and the equilibrium norm at the last settings."""
    nothing = np.full(len(at), math.nan)
    if fixed:
        return np.full(len(at), record.norms[0]), record.norms[0]
    if weight_decay <= 0 or rule == "adam_l2" or rates.max() == 0:
        return nothing, math.nan
    current = float(rates[at[-2] :].mean())
    if current == 0:
        return nothing, math.nan
    grad_rms = None
    if rule == "sgdm":
        common: dict[str, Any] = {"weight_decay": weight_decay, "at": at, "momentum": momentum}
        # n^4 = (what is left of the start) + (gradient size)^2 * (what a size of one would have built up).
        left = predicted_norms(rule, record.norms[0], rates, grad_rms=0.0, **common) ** 4
        built = predicted_norms(rule, 0.0, rates, grad_rms=1.0, **common) ** 4
        measured = np.asarray(record.norms) ** 4
        # Relative residuals, because n^4 spans orders of magnitude along a transient.
        x, y = built / measured, (measured - left) / measured
        grad_rms = math.sqrt(max(0.0, float(x @ y) / float(x @ x)))
        if grad_rms == 0.0:
            return nothing, math.nan
    norms = predicted_norms(
        rule,
        record.norms[0],
        rates,
        weight_decay=weight_decay,
        at=at,
        dim=record.dim,
        grad_rms=grad_rms,
        betas=betas,
        momentum=momentum,
    )
    goal = equilibrium(
        rule,
        lr=current,
        weight_decay=weight_decay,
        betas=betas,
        momentum=momentum,
        dim=record.dim,
        grad_rms=grad_rms,
    ).norm
    return norms, float(goal)


def _share_before(
    record: _Layer,
    rule: str,
    rates: np.ndarray,
    weight_decay: float,
    at: Sequence[int],
    betas: Sequence[float] | None,
    momentum: float | None,
    final: float,
) -> float:
    """Share of the run until the norm first came within the band of its (moving) equilibrium."""
    power = 0.25 if rule == "sgdm" else 0.5
    last_rate = float(rates[at[-2] :].mean())
    for i, norm in enumerate(record.norms):
        here = float(rates[min(at[i], len(rates) - 1)])
        # n_eq moves with lr as lr^(1/4) (SGDM) or lr^(1/2) at unchanged gradient size.
        goal = final * (here / last_rate) ** power
        if goal > 0 and abs(norm / goal - 1) <= BAND:
            return at[i] / at[-1]
    return 1.0
