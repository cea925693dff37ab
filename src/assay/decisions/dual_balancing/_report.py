"""Figures of replays and logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from assay._core.style import MUTED, OURS, PALETTE, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from ._log import BidLog
    from ._replay import Benchmark, ReplayResult

# Points of a line: more than a page is wide shows nothing more.
_POINTS = 1500


def _thin(n: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, n - 1, min(n, _POINTS)).round().astype(np.int64))


def _axis(log: BidLog, at: NDArray[np.int64]) -> tuple[NDArray[np.float64], str]:
    if log.hour is not None and log.hour[-1] > 0:
        return log.hour[at], "hours since the first auction"
    return (at + 1).astype(float), "auctions"


def _colours(names: list[str]) -> dict[str, str]:
    others = iter([*PALETTE[1:], *PALETTE[1:]])
    return {name: OURS if name == names[0] else next(others) for name in names}


def plot_pacing(log: BidLog, results: list[ReplayResult], budget: float, target: NDArray[np.float64]) -> Figure:
    """Cumulative spending of every method against the pace; below, spending per interval of the first method."""
    fig, (top, bottom) = figure(7.0, 5.6, nrows=2, sharex=True, height_ratios=[3, 2])
    at = _thin(len(log))
    x, label = _axis(log, at)
    colours = _colours([r.method for r in results])
    for r in results[::-1]:
        width = 2.2 if r is results[0] else 1.2
        top.plot(x, np.cumsum(r.paid)[at], color=colours[r.method], linewidth=width, label=r.method)
    top.plot(x, target[at], color="#2B2F36", linestyle=(0, (4, 2)), linewidth=1.2, label="pace")
    top.axhline(budget, color=MUTED, linewidth=1.0)
    top.annotate("budget", (x[0], budget), xytext=(2, 3), textcoords="offset points", color=MUTED, fontsize=9)
    top.set_ylim(0, 1.12 * budget)
    top.set_ylabel("spent (currency)")
    top.legend(loc="lower right", ncols=2)
    bins = max(4, min(80, len(log) // 50))
    place = np.arange(len(log)) if log.hour is None or log.hour[-1] <= 0 else log.hour
    edges = np.linspace(place[0], place[-1] + (1 if log.hour is None or log.hour[-1] <= 0 else 1e-9), bins + 1)
    spent = np.histogram(place, edges, weights=results[0].paid)[0]
    paced = np.histogram(place, edges, weights=np.diff(target, prepend=0.0))[0]
    bottom.stairs(spent, edges, fill=True, color=OURS, alpha=0.35, label=f"{results[0].method}")
    bottom.stairs(paced, edges, color="#2B2F36", linestyle=(0, (4, 2)), linewidth=1.2, label="pace")
    bottom.set_ylim(0, None)
    bottom.set_xlim(x[0], x[-1])
    bottom.set_ylabel("spent per interval")
    bottom.set_xlabel(label)
    return fig


def plot_roi(log: BidLog, results: list[ReplayResult], roi_target: float | None) -> Figure:
    """Reward over cost so far, and the target."""
    fig, ax = figure(7.0, 3.4)
    at = _thin(len(log))
    x, label = _axis(log, at)
    colours = _colours([r.method for r in results])
    settled = []
    for r in results[::-1]:
        spend = np.cumsum(r.paid)
        roi = np.divide(np.cumsum(r.gained), spend, out=np.full(len(spend), np.nan), where=spend > 0)
        ax.plot(x, roi[at], color=colours[r.method], linewidth=2.0 if r is results[0] else 1.2, label=r.method)
        settled.append(roi[len(roi) // 50 :])
    if roi_target is not None:
        ax.axhline(roi_target, color="#2B2F36", linestyle=(0, (4, 2)), linewidth=1.2, label=f"target {roi_target:g}")
    values = np.concatenate(settled)
    values = values[np.isfinite(values)]
    if len(values):
        # the first few auctions swing widely and would press the rest flat
        low, high = np.quantile(values, [0.0, 1.0])
        low, high = (min(low, roi_target), max(high, roi_target)) if roi_target is not None else (low, high)
        room = 0.08 * (high - low) + 0.02 * abs(high)
        ax.set_ylim(max(0.0, low - room), high + room)
    ax.set_xlim(x[0], x[-1])
    ax.set_xlabel(label)
    ax.set_ylabel("reward / cost so far")
    fig.legend(loc="outside upper center", ncols=4)  # beside the lines, which fill the axes
    return fig


def plot_multipliers(log: BidLog, result: ReplayResult) -> Figure:
    """lambda and mu over time."""
    fig, ax = figure(7.0, 3.0)
    at = _thin(len(log))
    x, label = _axis(log, at)
    names = ("λ, price of the budget", "μ, price of the ROI target")
    for column, name in enumerate(names):
        y = result.multipliers[at, column]
        if np.isfinite(y).any():
            ax.plot(x, y, color=PALETTE[column], linewidth=1.3, label=name)
    ax.set_xlim(x[0], x[-1])
    ax.set_ylim(0, None)
    ax.set_xlabel(label)
    ax.set_ylabel("multiplier")
    fig.legend(loc="outside upper center", ncols=2)
    return fig


def plot_landscape(log: BidLog, result: ReplayResult, cap: float) -> Figure:
    """Densities of values and prices, and the multiplier of the value that was bid over time."""
    fig, (left, right) = figure(8.6, 3.4, ncols=2)
    plot_densities(left, log, cap)
    chosen = np.clip(result.chosen, 0, 2.5)
    width = max(1, len(log) // 120)
    rows = len(log) // width
    block = chosen[: rows * width].reshape(rows, width)
    edges = np.linspace(0, 2.5, 26)
    share = np.stack([np.histogram(b, edges)[0] / width for b in block], axis=1)
    # equally many auctions a column: on an axis of hours busy times are narrow
    x, label = _axis(log, np.minimum(np.arange(rows + 1) * width, len(log) - 1))
    if x[-1] <= x[-2]:  # the log ends with its last column
        x[-1] = x[-2] + (x[-2] - x[0]) / max(1, rows - 1)
    shown = right.pcolormesh(
        x, edges, share, cmap="viridis", vmin=0, vmax=max(0.05, float(np.quantile(share, 0.995))), rasterized=True
    )
    right.grid(False)
    right.locator_params(axis="x", nbins=4)
    left.locator_params(axis="x", nbins=6)
    right.set_xlabel(label)
    right.set_ylabel("bid / value")
    fig.colorbar(shown, ax=right, label="share of the auctions")
    return fig


def plot_densities(ax: Any, log: BidLog, cap: float) -> None:
    """Histograms of values and prices on one axis."""
    price = log.competing[:, 0]
    # a single absurd price must not make one bin of the rest
    top = float(max(np.quantile(log.value, 0.995), np.quantile(price, 0.99), 1e-12))
    edges = np.linspace(0, top, 50)
    ax.hist(np.minimum(log.value, top), edges, density=True, color=OURS, alpha=0.5, label="value")
    ax.hist(
        np.minimum(price, top),
        edges,
        density=True,
        histtype="step",
        color=PALETTE[1],
        linewidth=1.6,
        label="price to beat",
    )
    ax.set_xlim(0, top)
    ax.set_xlabel("currency per auction (the last bin holds all above)")
    ax.set_ylabel("density")
    ax.legend(loc="upper right")


def plot_hours(hours: NDArray[np.float64], budget: NDArray[np.float64], roi: NDArray[np.float64], unit: str) -> Figure:
    """Marginal value of budget and of the ROI target in every interval: the constraint with a bar binds there."""
    fig, ax = figure(7.0, 3.2)
    width = float(np.diff(hours).min()) if len(hours) > 1 else 1.0
    ax.bar(hours, budget, width=0.9 * width, align="edge", color=OURS, label="reward per unit of budget")
    top = 1.05 * max(float(budget.max()), 1e-12)
    binds = roi == 1
    if binds.any():
        ax.bar(
            hours[binds],
            top,
            width=width,
            align="edge",
            color=PALETTE[1],
            alpha=0.18,
            label="the ROI target binds",
            zorder=0,
        )
    ax.set_ylim(0, top)
    ax.set_xlim(hours[0], hours[-1] + width)
    ax.set_xlabel(unit)
    ax.set_ylabel("marginal reward")
    fig.legend(loc="outside upper center", ncols=2)
    return fig


def plot_budget_grid(
    factors: NDArray[np.float64], best: NDArray[np.float64], ours: NDArray[np.float64] | None
) -> Figure:
    """Reward against the budget: the benchmark, and the replay where there is one."""
    fig, ax = figure(6.0, 3.2)
    base = best[np.argmin(np.abs(factors - 1))]
    base = base if base > 0 else 1.0
    ax.plot(
        100 * factors, 100 * best / base, color=MUTED, marker="s", markersize=4, label="best fixed mixture in hindsight"
    )
    if ours is not None:
        ax.plot(100 * factors, 100 * ours / base, color=OURS, marker="o", markersize=5, label="this method")
    ax.axvline(100, color="#2B2F36", linewidth=0.8, linestyle=(0, (2, 2)))
    ax.set_ylim(0, None)
    ax.set_xlabel("budget (% of the one given)")
    ax.set_ylabel("reward (% of the benchmark)")
    ax.legend(loc="lower right")
    return fig


def plot_analysis(log: BidLog, known: Benchmark, grid: NDArray[np.float64], cap: float) -> Figure:
    """Densities, and mean reward and cost of every fixed multiplier."""
    fig, (left, right) = figure(8.6, 3.4, ncols=2)
    plot_densities(left, log, cap)
    right.plot(grid, known.mean_reward, color=OURS, label="mean reward")
    right.plot(grid, known.mean_cost, color=PALETTE[1], label="mean cost")
    right.set_xlim(grid[0], grid[-1])
    right.set_ylim(0, None)
    right.set_xlabel("multiplier of the value")
    right.set_ylabel("currency per auction")
    right.legend(loc="best")
    return fig
