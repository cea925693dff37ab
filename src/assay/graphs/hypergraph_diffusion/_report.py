"""Pictures of a diffusion: convergence, confusion, the hyperedges behind it, points, conductance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from assay._core.style import MUTED, OURS, PALETTE, figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

# A bar chart with more rows than this is a table.
_PER_CLASS = 6
CLASSES = 6


def short(text: Any, width: int = 38) -> str:
    """A label that fits beside an axis."""
    text = str(text)
    return text if len(text) <= width else text[: width - 1] + "…"


def plot_convergence(history: dict[str, list[Any]], tol: float | None) -> Figure:
    """Objective and certified gap against steps."""
    fig, (left, right) = figure(8.0, 3.2, ncols=2)
    steps = history["n_iter"]
    scale = abs(history["objective"][-1]) or 1.0
    left.plot(steps, history["objective"], marker="o", markersize=3)
    left.set_xlabel("step or sweep")
    left.set_ylabel("objective f (score units squared)")
    gap = np.maximum(np.array(history["gap"]) / scale, 1e-16)
    for ax in (left, right):
        ax.xaxis.get_major_locator().set_params(integer=True)  # there is no half step
    right.semilogy(steps, gap, marker="o", markersize=3, color=PALETTE[1], label="certified")
    if tol is not None:
        right.axhline(tol, color=MUTED, linestyle="--", label=f"asked: {tol:g}")
    right.set_xlabel("step or sweep")
    right.set_ylabel("gap / |f|")
    right.legend()
    return fig


def plot_confusion(matrix: NDArray[np.int64], classes: list[Any], what: str) -> Figure:
    """True class by row, predicted by column; the colour is the share of the row."""
    c = len(classes)
    fig, ax = figure(max(4.2, 1.6 + 0.62 * c), max(3.2, 1.2 + 0.5 * c))
    total = np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    share = matrix / total
    ax.imshow(share, cmap="Blues", vmin=0, vmax=1)
    for i in range(c):
        for j in range(c):
            if matrix[i, j]:
                colour = "white" if share[i, j] > 0.55 else "black"
                ax.text(j, i, f"{matrix[i, j]:,}", ha="center", va="center", color=colour, fontsize=9)
    names = [short(v, 14) for v in classes]
    crowded = c > 4 and max(map(len, names)) > 3
    ax.set_xticks(range(c), names, rotation=30 if crowded else 0, ha="right" if crowded else "center")
    ax.set_yticks(range(c), names)
    ax.set_xlabel(f"predicted class ({what})")
    ax.set_ylabel("true class")
    ax.grid(False)
    return fig


def plot_categories(edges: pd.DataFrame, classes: list[Any]) -> Figure:
    """Per class the hyperedges with the largest pull."""
    shown = list(classes)[:CLASSES]
    columns = 2 if len(shown) > 1 else 1
    rows = -(-len(shown) // columns)
    fig, axes = figure(9.0, 0.9 + 2.2 * rows, nrows=rows, ncols=columns, squeeze=False)
    for k, name in enumerate(shown):
        ax = axes[k // columns][k % columns]
        best = edges.nlargest(_PER_CLASS, f"pull_{name}").iloc[::-1]
        best = best[best[f"pull_{name}"] > 0]
        ax.barh([short(v) for v in best["hyperedge"]], best[f"pull_{name}"], color=PALETTE[k % len(PALETTE)])
        ax.set_title(f"towards {short(name, 24)}")
        if not len(best):
            ax.text(
                0.5, 0.5, "no hyperedge leads towards it", ha="center", va="center", transform=ax.transAxes, color=MUTED
            )
            ax.set_xticks([])
            ax.set_yticks([])
            continue
        ax.tick_params(axis="y", labelsize=8)
        ax.set_xlabel("weight x size x lead of the mean score", fontsize=8)
    for k in range(len(shown), rows * columns):
        axes[k // columns][k % columns].axis("off")
    return fig


def plot_points(
    points: NDArray[np.float64],
    codes: NDArray[np.int64],
    seeds: NDArray[np.bool_],
    classes: list[Any],
    names: list[str],
) -> Figure:
    """Two-dimensional points in the colour of their predicted class, seeds ringed."""
    fig, ax = figure(6.0, 4.6)
    for k, name in enumerate(classes):
        mine = codes == k
        ax.scatter(
            *points[mine].T,
            s=14,
            color=PALETTE[k % len(PALETTE)],
            linewidths=0,
            label=short(name, 24),
            rasterized=len(points) > 5000,
        )
    ax.scatter(*points[seeds].T, s=46, facecolors="none", edgecolors="black", linewidths=1.2, label="labelled")
    ax.set_xlabel(names[0])
    ax.set_ylabel(names[1])
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return fig


def plot_errors(errors: pd.DataFrame) -> Figure:
    """Error on hidden labels: one dot per repeat, a bar at the mean."""
    methods = list(dict.fromkeys(errors["method"]))
    fig, ax = figure(7.0, 1.2 + 0.42 * len(methods))
    for row, name in enumerate(methods[::-1]):
        values = errors.loc[errors["method"] == name, "error_percent"].to_numpy()
        colour = OURS if name.startswith("this method") else MUTED
        ax.scatter(values, np.full(len(values), row), s=22, color=colour, alpha=0.6, linewidths=0)
        ax.plot([values.mean()] * 2, [row - 0.3, row + 0.3], color=colour, linewidth=2.5)
    ax.set_yticks(range(len(methods)), methods[::-1])
    ax.set_xlabel("error on hidden labels (%); dots: repeats, bar: mean")
    ax.set_xlim(left=0)
    return fig


def plot_conductance(profile: pd.DataFrame, size: int, value: float) -> Figure:
    """Conductance of the prefixes of the sweep."""
    fig, ax = figure(7.0, 3.4)
    ax.plot(profile["size"], profile["conductance"], color=MUTED, marker="o" if len(profile) < 60 else "", markersize=3)
    ax.scatter([size], [value], color=PALETTE[1], zorder=3, label=f"cluster: {size:,} vertices, {value:.3g}")
    if len(profile) > 1 and profile["size"].max() > 50:
        ax.set_xscale("log")
    ax.set_xlabel("vertices in the set, highest score first")
    ax.set_ylabel("conductance")
    ax.set_ylim(bottom=0)
    ax.legend()
    return fig
