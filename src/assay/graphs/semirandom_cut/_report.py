"""Pictures and plain words for the report of a cut, a partition or a hierarchy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from assay._core.style import MUTED, OURS, PALETTE, figure

if TYPE_CHECKING:
    import pandas as pd
    import scipy.sparse as sp
    from matplotlib.figure import Figure

SIDES = (PALETTE[0], PALETTE[1])
_DARK = "#2B2F36"
# More lines than this only blacken the picture; the caption says how many of how many are drawn.
MAX_EDGES = 3000


# ---------------------------------------------------------------------------------------------------------------------
# pictures


def principal_plane(embedding: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First two principal components of the rows, and the share of variance of each."""
    X = embedding - embedding.mean(axis=0)
    # k x k covariance instead of an SVD of n x k: the embedding has a handful of columns and maybe millions of rows
    values, vectors = np.linalg.eigh(X.T @ X)
    order = np.argsort(values)[::-1][:2]
    plane = X @ vectors[:, order]
    if plane.shape[1] < 2:
        plane = np.column_stack((plane, np.zeros(len(plane))))
    share = np.maximum(values[order], 0) / max(float(np.maximum(values, 0).sum()), 1e-300)
    return plane, np.append(share, 0.0)[:2]


def cut_edges(W: sp.csr_array, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the edges between different parts, each once."""
    row = np.repeat(np.arange(W.shape[0]), np.diff(W.indptr))
    across = (labels[row] != labels[W.indices]) & (row < W.indices)
    return row[across], W.indices[across]


def plot_embedding(embedding: np.ndarray, labels: np.ndarray, W: sp.csr_array) -> tuple[Figure, str]:
    """Vertices in the plane of the first two principal components, cut edges drawn thin; the figure and a remark."""
    from matplotlib.collections import LineCollection

    plane, share = principal_plane(embedding)
    i, j = cut_edges(W, labels)
    n, total = len(labels), len(i)
    shown = np.arange(total)
    if total > MAX_EDGES:
        shown = np.linspace(0, total - 1, MAX_EDGES).astype(np.int64)
    fig, ax = figure(7.0, 4.6)
    lines = LineCollection(
        list(np.stack((plane[i[shown]], plane[j[shown]]), axis=1)),
        colors=_DARK,
        linewidths=0.4,
        alpha=float(np.clip(60 / max(len(shown), 1), 0.08, 0.5)),
        zorder=1,
        rasterized=len(shown) > 500,
    )
    ax.add_collection(lines)
    size = float(np.clip(9000 / n, 2.0, 40.0))
    # drawn in mixed order: otherwise the second side would hide the first where they overlap
    order = np.random.default_rng(0).permutation(n)
    ax.scatter(
        plane[order, 0],
        plane[order, 1],
        s=size,
        c=np.asarray(SIDES)[labels[order]],
        alpha=0.75,
        linewidths=0,
        zorder=2,
        rasterized=n > 2000,
    )
    for side in (0, 1):
        ax.scatter([], [], s=30, color=SIDES[side], label=f"side {side}: {int((labels == side).sum()):,} vertices")
    ax.plot([], [], color=_DARK, linewidth=0.8, label=f"{total:,} cut edges")
    ax.set_xlabel(f"first principal component ({share[0]:.0%} of variance)")
    ax.set_ylabel(f"second ({share[1]:.0%})")
    ax.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.12), ncols=3, handletextpad=0.4)
    ax.margins(0.04)
    drawn = f" {len(shown):,} of {total:,} cut edges are drawn." if len(shown) < total else ""
    return fig, drawn


def plot_sweep(
    share: np.ndarray, cuts: np.ndarray, *, balance: float, cut: float, cut_share: float, lower_bound: float, unit: str
) -> Figure:
    """Cut against the share of the vertices on one side along the best direction, with window and lower bound."""
    fig, ax = figure(7.0, 3.6)
    ax.axvspan(balance, 1 - balance, color=OURS, alpha=0.08, linewidth=0)
    if len(share) > 4000:  # a screen has fewer columns than that: keep the least cut of each of 2000 groups
        groups = np.array_split(np.arange(len(share)), 2000)
        keep = np.array([g[np.argmin(cuts[g])] for g in groups])
        share, cuts = share[keep], cuts[keep]
    ax.plot(share, cuts, color=MUTED, linewidth=1.4, label="prefixes of the best direction")
    inside = (share >= balance - 1e-12) & (share <= 1 - balance + 1e-12)
    if inside.any():
        ax.plot(np.where(inside, share, np.nan), cuts, color=OURS, linewidth=2.0, label="within the balance")
    ax.plot([cut_share], [cut], "o", color=PALETTE[1], markersize=7, zorder=5, label=f"final cut {cut:,.6g}")
    if lower_bound > 0:
        ax.plot(
            [balance, 1 - balance],
            [lower_bound, lower_bound],
            color=_DARK,
            linewidth=1.5,
            linestyle=(0, (4, 2)),
            label=f"certified lower bound {lower_bound:,.6g}",
        )
    # what matters is the valley: the hill of a random order would press it to the floor
    top = float(np.max(cuts[inside])) if inside.any() else float(np.max(cuts))
    ax.set_ylim(0, 1.12 * max(top, cut, lower_bound))
    ax.set_xlim(0, 1)
    ax.set_xlabel("share of the vertex weight on side 0")
    ax.set_ylabel(f"cut ({unit})")
    ax.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.24), ncols=2)
    return fig


def plot_candidates(rows: pd.DataFrame, *, lower_bound: float, unit: str, label: str = "cut") -> Figure:
    """Bars of what was tried (``method``, ``cut``, ``ours``, ``within_balance``), best first."""
    rows = rows[np.isfinite(rows["cut"].to_numpy(dtype=float))].sort_values("cut", kind="stable")
    names, cuts = rows["method"].tolist(), rows["cut"].to_numpy(dtype=float)
    ours, legal = rows["ours"].to_numpy(dtype=bool), rows["within_balance"].to_numpy(dtype=bool)
    fig, ax = figure(7.0, 1.1 + 0.3 * len(rows))
    # one method may be far off; the axis ends at three times the best, and longer bars carry their number
    limit = (
        3.0 * max(float(cuts.min()), lower_bound, 1e-12) if cuts.max() > 3 * cuts.min() else 1.12 * float(cuts.max())
    )
    for k, (value, mine, fits) in enumerate(zip(cuts, ours, legal, strict=True)):
        ax.barh(
            k,
            min(value, limit),
            color=OURS if mine else MUTED,
            alpha=0.9 if fits else 0.45,
            hatch=None if fits else "////",
            edgecolor="white",
            linewidth=0,
        )
        text = f"{value:,.6g}" + ("" if fits else "  outside the balance")
        long = value > 0.75 * limit
        ax.text(
            min(value, limit) + (-0.01 if long else 0.01) * limit,
            k,
            text,
            va="center",
            ha="right" if long else "left",
            fontsize=8.5,
            color="white" if long and fits else _DARK,
        )
    if lower_bound > 0:
        ax.axvline(lower_bound, color=_DARK, linestyle=(0, (4, 2)), linewidth=1.3)
        left = lower_bound < 0.5 * limit
        ax.text(
            lower_bound + (0.01 if left else -0.01) * limit,
            -0.65,
            f"no balanced cut can be left of this line ({lower_bound:,.6g})",
            fontsize=8.5,
            va="bottom",
            ha="left" if left else "right",
            color=_DARK,
        )
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -1.1 if lower_bound > 0 else -0.6)
    ax.set_xlim(0, limit)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"{label} ({unit})")
    return fig


def plot_parts(part_weights: np.ndarray, capacity: float, between: np.ndarray, unit: str) -> Figure:
    """Weight of every part with the limit, and the edge weight between each two parts."""
    from matplotlib.colors import LinearSegmentedColormap

    k = len(part_weights)
    fig, (left, right) = figure(8.2, 3.6, ncols=2, width_ratios=(1.0, 1.15))
    left.bar(range(k), part_weights, color=OURS, width=0.8)
    left.axhline(capacity, color=PALETTE[1], linestyle=(0, (4, 2)), label=f"limit {capacity:,.6g}")
    left.axhline(part_weights.sum() / k, color=_DARK, linewidth=1, label="average")
    left.set_ylim(0, 1.25 * max(capacity, float(part_weights.max())))
    left.set_xlabel("part")
    left.set_ylabel("vertex weight")
    left.legend(frameon=False, loc="upper right", ncols=2)
    shown = between.astype(float).copy()
    np.fill_diagonal(shown, np.nan)
    colours = LinearSegmentedColormap.from_list("assay", ["#FFFFFF", OURS])
    top = float(np.nanmax(shown)) if np.isfinite(shown).any() else 1.0
    image = right.imshow(shown, cmap=colours, vmin=0, vmax=max(top, 1e-12))
    right.grid(visible=False)
    right.set_xlabel("part")
    right.set_ylabel("part")
    if k <= 12:
        left.set_xticks(range(k))
        right.set_xticks(range(k))
        right.set_yticks(range(k))
        for a in range(k):
            for b in range(k):
                if a != b:
                    dark = shown[a, b] > 0.6 * top
                    right.text(
                        b,
                        a,
                        f"{shown[a, b]:,.4g}",
                        ha="center",
                        va="center",
                        fontsize=7.5,
                        color="white" if dark else _DARK,
                    )
    fig.colorbar(image, ax=right, label=f"cut between the parts ({unit})", shrink=0.85)
    return fig


def plot_dendrogram(linkage: np.ndarray, labels: np.ndarray, names: np.ndarray, *, most_leaves: int = 80) -> Figure:
    """The tree with one colour per flat cluster; above ``most_leaves`` vertices its top only, with the sizes as leaves."""
    from scipy.cluster.hierarchy import dendrogram, leaves_list

    n = len(labels)
    n_clusters = int(labels.max()) + 1
    Z = linkage.copy()
    Z[:, 2] = np.log2(Z[:, 2])  # heights are leaf counts: halving is one step on this scale
    # cluster of each node, or -1 above the clusters
    node = np.concatenate((labels, np.full(n - 1, -1)))
    for t, (a, b) in enumerate(Z[:, :2].astype(np.int64)):
        node[n + t] = node[a] if node[a] == node[b] else -1

    # colours go round in the order of the drawing, so that neighbouring clusters never share one
    along = labels[leaves_list(Z)]
    place = np.unique(along, return_index=True)[1].argsort().argsort()

    def colour(k: int) -> str:
        return MUTED if node[k] < 0 else PALETTE[int(place[node[k]]) % len(PALETTE)]

    truncated = n > most_leaves
    fig, ax = figure(8.2, 4.2)
    drawn = dendrogram(
        Z,
        ax=ax,
        truncate_mode="lastp" if truncated else None,
        p=most_leaves,
        link_color_func=colour,
        labels=[str(name) if len(str(name)) <= 22 else f"{str(name)[:20]}…" for name in names],
        leaf_rotation=90,
        leaf_font_size=8 if min(n, most_leaves) <= 50 else 6,
        show_leaf_counts=True,
    )
    for tick, leaf in zip(ax.get_xticklabels(), drawn["leaves"], strict=True):
        tick.set_color(colour(leaf))
    steps = np.arange(0, int(np.ceil(np.log2(n))) + 1)
    steps = steps[:: max(1, len(steps) // 8)]
    ax.set_yticks(steps, [f"{2**s:,}" for s in steps.tolist()])
    ax.set_ylim(0, np.log2(n) * 1.04)
    ax.grid(axis="x", visible=False)
    ax.set_ylabel("vertices below the merge")
    what = f"the top {most_leaves} branches, with their sizes" if truncated else "vertices"
    ax.set_xlabel(f"{what}; one colour per cluster ({n_clusters})")
    return fig


# ---------------------------------------------------------------------------------------------------------------------
# words


def percent(x: float, digits: int = 3) -> str:
    """A share as a percentage with significant digits: 49.2 %, 0.298 %."""
    return f"{100 * x:.{digits}g} %"


def gap_sentence(cut: float, lower_bound: float, balance: float, kind: str, relaxation: float = float("inf")) -> str:
    """What the lower bound says, in a few sentences; `relaxation` is the value of the relaxation, a ceiling for it."""
    if cut <= lower_bound + 1e-9 * max(abs(cut), 1.0):
        return f"This cut is optimal: no cut with both sides >= {percent(balance)} can be below {lower_bound:,.6g}."
    if lower_bound <= 0:
        ceiling = (
            f" The relaxation itself is worth at most {relaxation:,.3g} on this graph, so not even its exact solution could "
            "certify much: that is usual for meshes and road networks, where vectors turn slowly from one side to the other."
            if relaxation < 0.9 * cut
            else ""
        )
        return (
            f"The relaxation gives no bound above 0 here, so nothing can be said about how far {cut:,.6g} is from optimal."
            f"{ceiling}"
        )
    sure = (
        ""
        if kind.startswith(("rigorous", "cholesky", "exact"))
        else " (checked numerically by an eigenvalue iteration)"
    )
    return (
        f"No cut with both sides >= {percent(balance)} can be below {lower_bound:,.6g}{sure}, so this cut is within "
        f"{percent(cut / lower_bound - 1)} of optimal. The gap bounds how much anyone could gain; the true optimum lies "
        "between the two, and the bound of a semidefinite relaxation is often the looser end."
    )
