"""Pictures of rotation: over time, per layer, per neuron, and the norm on its way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assay._core.style import MUTED, OURS, PALETTE, figure

from ._advice import BAND, RELATIVE_BAND

if TYPE_CHECKING:
    import pandas as pd

    from ._checkpoints import SeriesAnalysis
    from ._monitor import RotationMonitor

#: Lines that an eye can tell apart by colour; more layers are drawn grey with the outermost named.
MOST_NAMED = 7
_BAND_COLOUR = "#DCEBF5"


def _short(name: str) -> str:
    """Layer names without the `.weight` that all of them end in."""
    short = name.removesuffix(".weight")
    # The layers of a plain nn.Sequential would be bare numbers, which read as an axis.
    name = name if short.isdigit() else short
    return name if len(name) <= 34 else "…" + name[-33:]


def _band(axes: Any, *, vertical: bool = False, reference: float = 1.0) -> None:
    draw, line = (axes.axvspan, axes.axvline) if vertical else (axes.axhspan, axes.axhline)
    if reference != 1.0:
        line(reference, color=MUTED, linewidth=1.2, linestyle=":", zorder=1, label="median layer")
    draw(1 - BAND, 1 + BAND, color=_BAND_COLOUR, zorder=0, label=f"within {BAND:.0%}", linewidth=0)
    line(1.0, color=MUTED, linewidth=1, zorder=1)


def _ratio_axis(axis: Any, low: float, high: float) -> None:
    """Log axis of ratios with the ticks that people think in."""
    ticks = [t for t in (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20) if low <= t <= high]
    axis.set_ticks(ticks, [f"{t:g}" for t in ticks])
    axis.set_ticks([], minor=True)


def _limits(values: np.ndarray) -> tuple[float, float]:
    values = values[np.isfinite(values) & (values > 0)]
    if not values.size:
        return 0.5, 2.0
    low, high = float(values.min()), float(values.max())
    return max(0.05, min(0.66, low * 0.85)), min(25.0, max(1.5, high * 1.18))


def _choose(frame: pd.DataFrame, count: int) -> list[str]:
    """Layers worth naming: the first, the last and those furthest from the prediction, in the model's order."""
    names = list(frame["layer"])
    if len(names) <= count:
        return names
    distance = np.abs(np.log(frame["ratio"].to_numpy(dtype=float)))
    order = np.argsort(-np.nan_to_num(distance, nan=-1.0))
    keep = {0, len(names) - 1}
    for i in order:
        if len(keep) >= count:
            break
        keep.add(int(i))
    return [names[i] for i in sorted(keep)]


def draw_rotation(series: pd.DataFrame, layers: pd.DataFrame, *, step: str = "step", title: str = "") -> Any:
    """Measured over predicted rotation of every layer over time, with the band of 15 %."""
    height = 4.0 if len(layers) <= MOST_NAMED else 4.4
    fig, axes = figure(8.2, height)
    named = _choose(layers, MOST_NAMED)
    _band(axes, reference=float(layers.attrs.get("reference", 1.0)))
    for name, part in series.groupby("layer", sort=False):
        if not np.isfinite(part["ratio"]).any():
            continue
        if name in named:
            colour = PALETTE[named.index(name) % len(PALETTE)]
            marker = "o" if len(part) <= 30 else None
            axes.plot(
                part[step], part["ratio"], color=colour, marker=marker, markersize=4, label=_short(str(name)), zorder=3
            )
        else:
            axes.plot(part[step], part["ratio"], color=MUTED, linewidth=0.8, alpha=0.6, zorder=2)
    axes.set_yscale("log")
    low, high = _limits(series["ratio"].to_numpy(dtype=float))
    axes.set_ylim(low, high)
    _ratio_axis(axes.yaxis, low, high)
    axes.set(xlabel="optimizer step", ylabel="rotation / prediction")
    axes.set_title(title or "Rotation against the equilibrium prediction")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return fig


def draw_layers(layers: pd.DataFrame, ratios: dict[str, np.ndarray], *, title: str = "") -> Any:
    """One dot per layer with the middle 80 % of its neurons."""
    shown = layers[np.isfinite(layers["ratio"])]
    # A quarter inch per line stays legible; beyond 60 layers the 60 furthest from the prediction are drawn.
    if len(shown) > 60:
        furthest = np.argsort(-np.abs(np.log(shown["ratio"].to_numpy(dtype=float))))[:60]
        shown = shown.iloc[np.sort(furthest)]
    fig, axes = figure(7.0, 1.5 + 0.25 * max(3, len(shown)))
    reference = float(layers.attrs.get("reference", 1.0))
    _band(axes, vertical=True, reference=reference)
    everything = [shown["ratio"].to_numpy(dtype=float)]
    for place, row in enumerate(shown.to_dict("records")):
        inside = abs(row["ratio"] / reference - 1) <= (BAND if reference == 1.0 else RELATIVE_BAND)
        colour = OURS if inside else PALETTE[1]
        neurons = ratios.get(row["layer"])
        if neurons is not None and len(neurons) > 1:
            low, high = np.percentile(neurons, [10, 90])
            axes.plot([low, high], [place, place], color=colour, linewidth=4, alpha=0.3, solid_capstyle="butt")
            everything.append(np.array([low, high]))
        axes.plot(row["ratio"], place, "o", color=colour, markersize=6)
    axes.set_yticks(range(len(shown)), [_short(n) for n in shown["layer"]])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xscale("log")
    low, high = _limits(np.concatenate(everything))
    axes.set_xlim(low, high)
    _ratio_axis(axes.xaxis, low, high)
    axes.set(xlabel="rotation / prediction, last third of the run  (bar: middle 80 % of the neurons)")
    axes.set_title(title or "Which layers turn too fast or too slowly")
    axes.grid(axis="y", visible=False)
    return fig


def draw_norms(norms: pd.DataFrame, layers: pd.DataFrame, *, note: str = "") -> Any:
    """Measured norm and predicted transient of up to six layers."""
    names = _choose(layers, 6)
    columns = 2 if len(names) in (2, 4) else min(3, len(names))
    lines = -(-len(names) // columns)
    fig, grid = figure(
        (2.9 if columns > 2 else 3.5) * columns + 0.3, 2.2 * lines + 0.7, nrows=lines, ncols=columns, squeeze=False
    )
    flat = list(np.ravel(grid))
    for axes, name in zip(flat, names, strict=False):
        part = norms[norms["layer"] == name]
        axes.plot(part["step"], part["norm"], "o-", color=OURS, markersize=4, label="measured")
        predicted = part["norm_predicted"].to_numpy(dtype=float)
        if np.isfinite(predicted).any():
            axes.plot(part["step"], predicted, "--", color=PALETTE[1], label="predicted")
            target = layers.loc[layers["layer"] == name, "norm_predicted"].iloc[0]
            if np.isfinite(target):
                axes.axhline(target, color=MUTED, linewidth=1, linestyle=":", label="equilibrium at the last lr")
        top = np.nanmax(np.r_[part["norm"], predicted[np.isfinite(predicted)]])
        axes.set_ylim(0, 1.12 * top)
        axes.set_title(_short(name), fontsize=9)
    for axes in flat[len(names) :]:
        axes.set_visible(False)
    for row in grid:
        row[0].set_ylabel("norm (rms over neurons)", fontsize=8)
    for axes in grid[-1]:
        axes.set_xlabel("optimizer step", fontsize=9)
    handles, labels = flat[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    if note:
        fig.suptitle(note, fontsize=9, color=MUTED, x=0.01, ha="left")
    return fig


def draw_neurons(ratios: dict[str, np.ndarray], *, title: str = "") -> Any:
    """Histogram of the ratio of all neurons."""
    fig, axes = figure(7.0, 3.2)
    values = np.concatenate([v[np.isfinite(v) & (v > 0)] for v in ratios.values()]) if ratios else np.array([])
    _band(axes, vertical=True)
    if values.size:
        low, high = np.percentile(values, [0.2, 99.8])
        low, high = min(0.66, low * 0.95), max(1.5, high * 1.05)
        # Square-root rule for the number of bins, kept between what shows a shape and what shows noise.
        bins = np.geomspace(low, high, int(np.clip(np.sqrt(values.size) * 1.5, 12, 60)))
        axes.hist(np.clip(values, low, high), bins=bins, color=OURS, alpha=0.85)
        axes.axvline(np.median(values), color=PALETTE[1], label=f"median {np.median(values):.2f}")
        axes.set_xscale("log")
        axes.set_xlim(low, high)
        _ratio_axis(axes.xaxis, low, high)
    inside = float(np.mean(np.abs(values - 1) <= BAND)) if values.size else 0.0
    axes.set(xlabel="rotation / prediction of one neuron", ylabel="neurons")
    axes.set_title(title or f"{values.size:,} neurons, {inside:.0%} within {BAND:.0%} of the prediction")
    axes.legend()
    return fig


def draw_prediction(lags: Sequence[int], angles: np.ndarray, naive: np.ndarray, every: int | None = None) -> Any:
    """Predicted angle between two weights against the steps between them."""
    fig, axes = figure(7.0, 3.6)
    axes.plot(lags, np.degrees(angles), color=OURS, label="prediction")
    axes.plot(lags, np.degrees(naive), "--", color=MUTED, label="one step × √steps (no memory)")
    axes.set_xscale("log")
    axes.set_yscale("log")
    # Degrees are read off directly; powers of ten in an exponent are not.
    ticks = [t for t in (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 90) if t <= 100 and t >= np.degrees(angles.min()) * 0.5]
    axes.set_yticks(ticks, [f"{t:g}°" for t in ticks])
    axes.set_yticks([], minor=True)
    axes.set(xlabel="steps between the two weights", ylabel="angle")
    axes.set_title("How far a neuron turns in equilibrium")
    axes.legend()
    return fig


def draw_monitor(monitor: RotationMonitor, path: Path) -> Path:
    """Rotation over prediction and norm over its equilibrium, over time, of a live monitor."""
    from assay._core.files import atomic_path

    series, report = monitor.series(), monitor.report()
    fig, (upper, lower) = figure(8.2, 6.4, nrows=2, sharex=True)
    named = _choose(report, MOST_NAMED)
    _band(upper)
    for name, part in series.groupby("layer", sort=False):
        # Single steps scatter by tens of percent: a running mean over a twentieth of the run shows where they go.
        width = max(1, len(part) // 20)
        ratio = np.sqrt((part["ratio"] ** 2).rolling(width, min_periods=1).mean())
        strong = name in named
        colour = PALETTE[named.index(name) % len(PALETTE)] if strong else MUTED
        style = {"color": colour, "linewidth": 1.6 if strong else 0.8, "alpha": 1.0 if strong else 0.6}
        label = _short(str(name)) if strong else None
        if np.isfinite(ratio).any():
            upper.plot(part["step"], ratio, label=label, **style)
        lower.plot(part["step"], part["norm"], label=label, **style)
        if strong and np.isfinite(part["norm_equilibrium"]).any():
            equilibrium = part["norm_equilibrium"].rolling(width, min_periods=1).mean()
            lower.plot(part["step"], equilibrium, color=colour, linestyle=":", linewidth=1)
    upper.set_yscale("log")
    low, high = _limits(series["ratio"].rolling(5, min_periods=1).mean().to_numpy(dtype=float))
    upper.set_ylim(low, high)
    _ratio_axis(upper.yaxis, low, high)
    lower.set_yscale("log")
    upper.set_ylabel("rotation / prediction")
    lower.set(xlabel="optimizer step", ylabel="norm (dotted: equilibrium)")
    upper.set_title("Rotation against the equilibrium prediction")
    lower.set_title("Norm of the neurons")
    upper.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    with atomic_path(path) as temporary:
        fig.savefig(temporary, format=path.suffix.lstrip(".") or "svg")
    return path


def pictures(found: SeriesAnalysis, *, fixed: bool, implied: bool) -> list[tuple[str, Any, str]]:
    """All pictures of a checkpoint series: (name, figure, caption)."""
    out = []
    if np.isfinite(found.layers["ratio"]).any():
        out.append(
            (
                "layers",
                draw_layers(found.layers, found.neuron_ratios),
                "The band is the prediction of a free random walk for the run's settings. Dots to its left turn less than that, "
                "which is usual when checkpoints are many steps apart (gradients of a real network partly cancel): then orange "
                "marks layers that differ by more than 25 % from the median layer (dotted).",
            )
        )
        series = found.series.assign(step=found.series["step_to"])
        out.append(
            (
                "rotation",
                draw_rotation(series, found.layers),
                "Rotation between successive checkpoints over what theory predicts for the run's settings; the band is 15 %.",
            )
        )
        out.append(
            (
                "neurons",
                draw_neurons(found.neuron_ratios),
                "Every neuron of every layer, last third of the run. A wide histogram means that neurons of one network learn at "
                "different speeds.",
            )
        )
    if fixed:
        caption = "A rotational optimizer holds the norm: the dots should lie on the dashed line."
    elif implied:
        caption = (
            "Dashed: the predicted way to equilibrium (dotted). For SGD its goal depends on the size of the gradients, which "
            "checkpoints do not hold: one size per layer is fitted to the dots, the speed of the way is predicted."
        )
    else:
        caption = (
            "Dashed: the predicted way from the first checkpoint's norm to equilibrium (dotted) at the run's settings."
        )
    out.append(("norms", draw_norms(found.norms, found.layers), caption))
    return out
