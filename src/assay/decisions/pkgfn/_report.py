"""Pictures of an optimisation; every function takes plain data and returns a figure."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from assay._core.style import MUTED, OURS, PALETTE, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ._model import FunctionNetworkModel
    from ._network import FunctionNetwork

LABELS = {
    "pkgfn": "p-KGFN",
    "fast_pkgfn": "fast p-KGFN",
    "eifn": "EIFN",
    "kgfn": "KGFN",
    "tsfn": "TSFN",
    "ei": "EI",
    "kg": "KG",
    "random": "random",
}
_INK = "#3A3F47"


def _colour(method: str, index: int) -> str:
    return OURS if method == "pkgfn" else PALETTE[1 + index % (len(PALETTE) - 1)]


def step_values(costs: np.ndarray, values: np.ndarray, grid: np.ndarray, before: float) -> np.ndarray:
    """Value that held at each cost of a grid: that of the last row at or below it, `before` where there is none."""
    place = np.searchsorted(np.asarray(costs, dtype=float), grid * (1 + 1e-12), side="right") - 1
    table = np.r_[before, np.asarray(values, dtype=float)]
    return table[place + 1]


def plot_curves(
    curves: Mapping[str, Sequence[tuple[np.ndarray, np.ndarray]]],
    *,
    label: str,
    optimum: float | None = None,
    starts: Mapping[str, Sequence[float]] | None = None,
) -> Figure:
    """Value at the recommendation against cumulative cost; median and interquartile band where seeds are several."""
    fig, ax = figure(7.2, 4.0)
    for i, (method, runs) in enumerate(curves.items()):
        end = min(float(c[-1]) for c, _ in runs)
        grid = np.unique(np.concatenate([np.r_[0.0, c[c <= end]] for c, _ in runs]))
        before = list(starts[method]) if starts else [float("nan")] * len(runs)
        values = np.stack([step_values(c, v, grid, b) for (c, v), b in zip(runs, before)])
        seen = np.isfinite(values).any(axis=0)  # before the first recommendation there is nothing to draw
        grid, values = grid[seen], values[:, seen]
        if not len(grid):
            continue
        colour = _colour(method, i)
        if len(runs) > 1:
            low, middle, high = np.nanquantile(values, [0.25, 0.5, 0.75], axis=0)
            ax.fill_between(grid, low, high, step="post", color=colour, alpha=0.15, linewidth=0)
        else:
            middle = values[0]
        name = LABELS.get(method, method)
        ax.step(grid, middle, where="post", color=colour, linewidth=2.2 if method == "pkgfn" else 1.6, label=name)
        ax.plot(grid[-1], middle[-1], "o", color=colour, markersize=4)
    if optimum is not None:
        ax.axhline(optimum, color=_INK, linestyle=(0, (1, 2)), linewidth=1.2, label="optimum")
    ax.set_xlabel("cumulative cost")
    ax.set_ylabel(label)
    fig.legend(loc="outside upper center", ncols=min(6, len(curves) + (optimum is not None)))
    return fig


def plot_queries(nodes: Sequence[str], costs: Sequence[float], names: Sequence[str]) -> Figure:
    """Which node was run when; a bar is as long as its cost."""
    fig, ax = figure(7.2, 1.3 + 0.42 * len(names))
    start = np.r_[0.0, np.cumsum(costs)[:-1]]
    for k, name in enumerate(names):
        mine = [i for i, n in enumerate(nodes) if n == name]
        bars = [(float(start[i]), float(costs[i])) for i in mine]
        ax.broken_barh(bars, (k - 0.36, 0.72), facecolor=PALETTE[k % len(PALETTE)], edgecolor="white", linewidth=0.4)
        total = sum(costs[i] for i in mine)
        ax.text(
            1.01,
            k,
            f"{len(mine)} run{'s' * (len(mine) != 1)}, cost {total:.4g}",
            transform=ax.get_yaxis_transform(),
            va="center",
            fontsize=8.5,
        )
    ax.set_yticks(range(len(names)), list(names))
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlim(0, float(np.sum(costs)) * 1.001 if len(costs) else 1.0)
    ax.set_xlabel("cumulative cost")
    ax.grid(axis="y", visible=False)
    return fig


def plot_network(network: FunctionNetwork, counts: Mapping[str, int], spend: Mapping[str, float]) -> Figure:
    """The graph: inputs on the left, nodes by depth, with counts and spending."""
    depth: dict[int, int] = {}
    for k in network.order:
        depth[k] = 1 + max((depth[p] for p in network.parents[k]), default=0)
    levels: dict[int, list[int]] = {}
    for k in network.order:
        levels.setdefault(depth[k], []).append(k)
    tallest = max([network.d, *[len(v) for v in levels.values()]])
    fig, ax = figure(2.0 + 2.5 * max(levels), max(2.2, 0.45 + 0.62 * min(tallest, 10)))
    place: dict[Any, tuple[float, float]] = {}
    for i, name in enumerate(network.input_names):
        place[name] = (0.0, 1 - (i + 0.5) / network.d)
    for level, members in levels.items():
        for i, k in enumerate(members):
            place[k] = (float(level), 1 - (i + 0.5) / len(members))
    most = max([*spend.values(), 1e-12])
    ax.set_xlim(-0.25, max(levels) + 0.45)
    ax.set_ylim(-0.12, 1.12)
    ax.axis("off")
    drawn: dict[Any, Any] = {}
    for name in network.input_names:
        x, y = place[name]
        drawn[name] = ax.text(x, y, name, ha="center", va="center", fontsize=9, color=_INK)
    for k in network.order:
        x, y = place[k]
        name = network.node_names[k]
        share = spend.get(name, 0.0) / most
        count = counts.get(name, 0)
        text = f"{textwrap.fill(name, 22)}\n{count} run{'s' * (count != 1)}\ncost {spend.get(name, 0.0):.4g}"
        strength = 0.08 + 0.42 * share
        face = [
            1 - strength * (1 - c) for c in (0.0, 0.447, 0.698)
        ]  # opaque: arrows to later nodes pass behind the box
        box = {"boxstyle": "round,pad=0.45", "facecolor": face, "edgecolor": OURS}
        drawn[k] = ax.text(x, y, text, ha="center", va="center", fontsize=8.5, bbox=box, linespacing=1.25)
    fig.draw_without_rendering()  # only now is it known how wide a name is, and arrows end at the edge of its box
    edges = {}
    for key, words in drawn.items():
        patch = words.get_bbox_patch()
        extent = (patch if patch is not None else words).get_window_extent().transformed(ax.transData.inverted())
        edges[key] = (
            extent.x0 - (0.0 if patch is not None else 0.03),
            extent.x1 + (0.0 if patch is not None else 0.03),
        )
    links: list[tuple[Any, int, str]] = [
        (network.input_names[i], k, "#B9BEC6") for k in network.order for i in network.active[k]
    ]
    links += [(p, k, _INK) for k in network.order for p in network.parents[k]]
    for a, b, colour in links:
        # An arrow that skips a level is bent away from the middle: straight, it would run behind a box it does not enter.
        skips = place[b][0] - place[a][0] > 1.5
        bend = 0.0 if not skips else -0.25 if place[a][1] >= place[b][1] else 0.25
        ax.annotate(
            "", xy=(edges[b][0], place[b][1]), xytext=(edges[a][1], place[a][1]), zorder=1,
            arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1.1, "shrinkA": 0, "shrinkB": 0,
                        "connectionstyle": f"arc3,rad={bend}"},
        )  # fmt: skip
    return fig


def plot_slices(network: FunctionNetwork, model: FunctionNetworkModel, x: Any, unit: str = "") -> Figure:
    """Posterior of every node along each of its inputs through the recommended design, with its data."""
    import torch

    nodes = [k for k in network.order if k in network.relevant]
    tail = f" ({unit})" if unit else ""
    width = min(6, max(network.input_dim(k) for k in nodes))  # more than six panels in a row are too small to read
    fig, axes = figure(2.35 * width + 0.5, 2.15 * len(nodes) + 0.4, nrows=len(nodes), ncols=width, squeeze=False)
    values = torch.zeros(network.n_nodes, dtype=torch.float64)
    for k in network.order:
        z = network.gather(k, x, values)
        values[k] = model.nodes[k].mean(z[None])[0].detach()
    for row, k in enumerate(nodes):
        gp = model.nodes[k]
        z = network.gather(k, x, values)
        for column in range(width):
            ax = axes[row, column]
            if column >= network.input_dim(k):
                ax.set_visible(False)
                continue
            is_input = column < len(network.active[k])
            if is_input:
                low, high = (float(v) for v in network.bounds[:, network.active[k][column]])
            else:
                seen = torch.cat([gp.Z[:, column], z[column : column + 1]])
                low, high = float(seen.min()), float(seen.max())
                margin = 0.08 * (high - low) or 0.5
                low, high = low - margin, high + margin
            grid = torch.linspace(low, high, 120, dtype=torch.float64)
            Z = z.repeat(120, 1)
            Z[:, column] = grid
            with torch.no_grad():
                mean, var = gp.mean_var(Z)
            sd = var.sqrt()
            ax.fill_between(grid, mean - 2 * sd, mean + 2 * sd, color=OURS, alpha=0.16, linewidth=0)
            ax.plot(grid, mean, color=OURS)
            single = network.input_dim(k) == 1
            ax.scatter(
                gp.Z[:, column], gp.y, s=9, color=_INK if single else MUTED, alpha=0.9 if single else 0.5, zorder=3
            )
            ax.axvline(float(z[column]), color=PALETTE[1], linewidth=1.1, linestyle=(0, (4, 2)))
            ax.set_xlabel(network.columns(k)[column] + ("" if is_input else tail), fontsize=8.5)
            ax.tick_params(labelsize=7.5)
            if column == 0:
                ax.set_ylabel(network.node_names[k] + tail, fontsize=9)
    return fig
