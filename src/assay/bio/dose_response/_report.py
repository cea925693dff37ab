"""Pictures of a dose-response report; every function takes plain arrays and returns a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from assay._core.style import MUTED, OURS, PALETTE, figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_INK = "#3A3F47"
# Colours by model, the same in every picture.
COLOURS = {"ARCANet": OURS, "Hill 4P": PALETTE[1], "Hill 3P": PALETTE[4], "Hill 2P": PALETTE[2]}


def _log_axis(ax: Any, low: float, high: float) -> None:
    """Whole decades as plain numbers: a pharmacologist reads 0.01, not 10^-2; every second one where they are many."""
    from matplotlib.ticker import NullLocator

    ax.set_xscale("log")
    first, last = int(np.ceil(np.log10(low) - 1e-6)), int(np.floor(np.log10(high) + 1e-6))
    stride = 2 if last - first > 3 else 1
    decades = list(range(first, last + 1))[::-1][::stride][::-1]
    ax.set_xticks([10.0**d for d in decades], [f"{10.0**d:g}" for d in decades])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlim(low / 1.5, high * 1.5)


def plot_curves(panels: Sequence[dict[str, Any]], row_labels: Sequence[str] = (), n_columns: int = 4) -> Figure:
    """Small multiples of curves.

    Each panel: title, subtitle, dose, effect, sd (or NaN), held_out (points); grid, curves {label: values}, band (low, high).
    """
    n_rows = -(-len(panels) // n_columns)
    fig, axes = figure(2.75 * n_columns, 2.35 * n_rows + 0.5, nrows=n_rows, ncols=n_columns, squeeze=False, sharey=True)
    handles: dict[str, Any] = {}
    every = np.concatenate([np.r_[p["effect"], p["curves"][next(iter(p["curves"]))]] for p in panels])
    low, high = min(-15.0, 100 * np.nanmin(every) - 8), max(110.0, 100 * np.nanmax(every) + 8)
    for ax, panel in zip(axes.flat, panels, strict=False):
        grid = panel["grid"]
        ax.axhline(0, color=MUTED, linewidth=0.8, zorder=1)
        ax.axhline(50, color=MUTED, linewidth=0.8, linestyle=(0, (1, 3)), zorder=1)
        if panel.get("band") is not None:
            band = ax.fill_between(
                grid, 100 * panel["band"][0], 100 * panel["band"][1], color=OURS, alpha=0.16, linewidth=0, zorder=2
            )
            handles["ARCANet, 95 % interval of a new measurement"] = band
        for label, values in panel["curves"].items():
            ours = label.startswith("ARCANet")
            (line,) = ax.plot(
                grid,
                100 * values,
                color=COLOURS.get(label, MUTED),
                linestyle="-" if ours else (0, (4, 2)),
                linewidth=2.0 if ours else 1.5,
                zorder=4 if ours else 3,
            )
            handles[label] = line
        held = panel["held_out"]
        ax.errorbar(
            panel["dose"],
            100 * panel["effect"],
            yerr=np.nan_to_num(100 * panel["sd"]),
            fmt="none",
            ecolor=_INK,
            elinewidth=0.9,
            alpha=0.7,
            zorder=5,
        )
        if (~held).any():
            handles["used for the fit (bar: s.d. of replicates)"] = ax.scatter(
                panel["dose"][~held], 100 * panel["effect"][~held], s=16, color=_INK, zorder=6
            )
        if held.any():
            handles["held out"] = ax.scatter(
                panel["dose"][held],
                100 * panel["effect"][held],
                s=52,
                marker="D",
                facecolor="white",
                edgecolor="#C00000",
                linewidth=1.6,
                zorder=7,
            )
        ax.set_title(panel["title"], fontsize=9, fontweight="bold", loc="left", pad=15)
        ax.text(0, 1.02, panel.get("subtitle", ""), transform=ax.transAxes, fontsize=7.5, color="#5B6068", va="bottom")
        _log_axis(ax, grid[0], grid[-1])
        ax.set_ylim(low, high)
        ax.tick_params(labelsize=8)
    for ax in list(axes.flat)[len(panels) :]:
        ax.set_visible(False)
    for r in range(n_rows):
        label = f"{row_labels[r]}\n" if r < len(row_labels) else ""
        axes[r, 0].set_ylabel(f"{label}inhibition (%)", fontsize=9)
    for ax in axes[-1]:
        ax.set_xlabel("dose (µM)", fontsize=9)
    columns = min(3, len(handles))
    fig.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, fontsize=8.5, frameon=False)
    return fig


def plot_heatmap(aac: pd.DataFrame, label: str = "AAC (mean inhibition over the tested log doses)") -> Figure:
    """Drugs x lines, both ordered by average-linkage clustering; empty pairs grey."""
    from scipy.cluster.hierarchy import leaves_list, linkage

    values = aac.to_numpy(float)
    filled = np.where(np.isfinite(values), values, np.nanmean(values, 1, keepdims=True))

    def order(rows: np.ndarray) -> np.ndarray:
        # Optimal ordering is cubic: beyond a few hundred rows the plain order is as legible.
        return (
            leaves_list(linkage(rows, "average", optimal_ordering=len(rows) <= 300))
            if len(rows) > 2
            else np.arange(len(rows))
        )

    rows, columns = order(filled), order(filled.T)
    values, drugs, cells = values[np.ix_(rows, columns)], aac.index[rows], aac.columns[columns]
    many_lines = len(cells) > 60
    width = min(11.0, 3.2 + (0.012 if many_lines else 0.3) * len(cells))
    fig, ax = figure(max(width, 6.0), max(2.6, 1.7 + 0.155 * len(drugs)))
    top = max(0.3, float(np.nanquantile(values, 0.99)))
    image = ax.imshow(
        np.ma.masked_invalid(100 * values),
        aspect="auto",
        cmap="YlGnBu",
        vmin=0,
        vmax=100 * top,
        interpolation="nearest",
    )
    ax.set_facecolor("#D5D8DC")
    ax.grid(False)
    ax.set_yticks(range(len(drugs)), list(drugs), fontsize=7.5)
    if many_lines:
        ax.set_xticks([])
        ax.set_xlabel(f"{len(cells)} cell lines, clustered")
    else:
        ax.set_xticks(range(len(cells)), list(cells), rotation=60, ha="right", rotation_mode="anchor", fontsize=8)
    for side in ax.spines.values():
        side.set_visible(False)
    bar = fig.colorbar(image, ax=ax, location="top", shrink=0.75, aspect=40, pad=0.01)
    bar.set_label(label + ", %", fontsize=8.5)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    return fig


def plot_waterfall(frame: pd.DataFrame, drug: str) -> Figure:
    """AAC of one drug on every line with 95 % intervals; columns cell_line, aac, aac_low, aac_high, ic50_status."""
    table = frame.sort_values("aac", ascending=False).reset_index(drop=True)
    labelled = len(table) <= 60
    fig, ax = figure(max(6.0, min(11.0, 1.6 + 0.32 * len(table))) if labelled else 9.0, 3.8)
    x = np.arange(len(table))
    status = table["ic50_status"].to_numpy()
    names = {
        "reached": ("IC50 within the tested doses", OURS),
        "below_range": ("IC50 below the lowest dose", PALETTE[2]),
        "not_reached": ("IC50 not reached", MUTED),
    }
    for key, (label, colour) in names.items():
        at = status == key
        if at.any():
            ax.bar(x[at], 100 * table["aac"][at], width=0.78, color=colour, label=label, zorder=2)
    low = 100 * np.maximum(table["aac"] - table["aac_low"], 0)
    high = 100 * np.maximum(table["aac_high"] - table["aac"], 0)
    ax.errorbar(
        x,
        100 * table["aac"],
        yerr=[low, high],
        fmt="none",
        ecolor=_INK,
        elinewidth=1.1,
        capsize=2 if labelled else 0,
        zorder=3,
    )
    if labelled:
        ax.set_xticks(x, table["cell_line"], rotation=60, ha="right", rotation_mode="anchor", fontsize=8.5)
    else:
        ax.set_xticks([])
        ax.set_xlabel(f"{len(table)} cell lines, most sensitive first")
    ax.set_ylabel("AAC (% inhibition)")
    known = bool((high + low > 0).any())
    title = f"{drug}: response of every line" + (", 95 % intervals" if known else "")
    ax.set_title(title, loc="left", fontweight="bold", fontsize=10.5)
    ax.set_xlim(-0.8, len(table) - 0.2)
    ax.grid(axis="x", visible=False)
    ax.legend(loc="upper right", frameon=False)
    return fig


def plot_errors(metrics: pd.DataFrame, floor: float) -> Figure:
    """Held-out error by model with intervals; the replicate noise floor as a line. Columns model, mse, mse_low, mse_high."""
    table = metrics.sort_values("mse", ascending=False).reset_index(drop=True)
    fig, ax = figure(7.2, 1.5 + 0.36 * len(table))
    y = np.arange(len(table))
    colours = [OURS if name.startswith("ARCANet") else _INK for name in table["model"]]
    for i, colour in enumerate(colours):
        ax.plot(
            [table["mse_low"][i], table["mse_high"][i]], [i, i], color=colour, linewidth=2.4, solid_capstyle="round"
        )
        ax.plot(table["mse"][i], i, "o", color=colour, markersize=6.5)
        ax.annotate(
            f"{table['mse'][i]:.3g}",
            (table["mse_high"][i], i),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=colour,
        )
    ax.set_yticks(y, table["model"])
    ax.set_xscale("log")
    low, high = table["mse_low"].min(), table["mse_high"].max()
    if np.isfinite(floor) and floor > 0:
        low = min(low, floor)
        ax.axvline(floor, color="#C00000", linewidth=1.4, linestyle=(0, (4, 2)))
        ax.annotate(
            f"noise floor {floor:.2g}",
            (floor, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(4, 3),
            textcoords="offset points",
            color="#C00000",
            fontsize=8.5,
        )
    ax.set_xlim(low / 1.25, high * 1.6)
    ticks = _nice_ticks(low / 1.25, high * 1.6)
    ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
    ax.minorticks_off()
    ax.set_ylim(-0.7, len(table) - 0.3)
    ax.set_xlabel("mean squared error of held-out points (inhibition², log scale)")
    ax.grid(axis="y", visible=False)
    return fig


def _nice_ticks(low: float, high: float) -> list[float]:
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    steps = (1, 2, 5) if np.log10(high / low) < 2.2 else (1,)
    return [s * 10.0**d for d in decades for s in steps if low <= s * 10.0**d <= high]


def plot_calibration(coverage: dict[str, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """Share of held-out points inside the interval against the nominal level; {label: (nominal, observed)}."""
    fig, ax = figure(5.2, 4.4)
    ax.plot([0, 100], [0, 100], color=MUTED, linewidth=1.2, linestyle=(0, (1, 2)))
    ax.text(88, 83, "ideal", color="#5B6068", fontsize=8.5, rotation=45, rotation_mode="anchor", va="top")
    others = iter([PALETTE[1], PALETTE[2], PALETTE[3], PALETTE[4], PALETTE[6]])
    for label, (nominal, observed) in coverage.items():
        ours = label.startswith("ARCANet")
        ax.plot(
            100 * nominal,
            100 * observed,
            "o-",
            markersize=3.5,
            color=OURS if ours else next(others),
            label=label,
            zorder=3 if ours else 2,
        )
    ax.set_xlabel("nominal level of the interval (%)")
    ax.set_ylabel("held-out points inside (%)")
    ax.set_xlim(0, 100)
    ax.set_ylim(0, 100)
    ax.set_aspect("equal")
    ax.legend(loc="upper left", frameon=False)
    return fig
