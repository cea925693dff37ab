"""The house style of figures: colour-blind safe, legible when printed, the same in every report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette (Color Universal Design, 2008): distinguishable with every common colour deficiency.
PALETTE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F5539", "#000000"]
OURS = PALETTE[0]
MUTED = "#8A8F98"

RC: dict[str, Any] = {
    "figure.dpi": 110,
    "savefig.dpi": 160,
    "font.size": 10,
    "font.family": "DejaVu Sans",  # ships with matplotlib, so that figures are the same on every machine
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E8EB",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "svg.fonttype": "path",  # the page must look the same where the font is missing
    "svg.hashsalt": "assay",  # identifiers in the SVG do not change between runs
}


def figure(width: float = 7.0, height: float = 4.0, **subplots: Any) -> tuple[Figure, Any]:
    """Create a figure in the house style without touching matplotlib's global state or a display.

    Parameters
    ----------
    width, height : float
        Size in inches.
    **subplots
        Passed to ``Figure.subplots`` (``nrows``, ``ncols``, ``sharex`` ...).

    Returns
    -------
    figure, axes
        As ``matplotlib.pyplot.subplots`` gives them.
    """
    import matplotlib as mpl
    from cycler import cycler
    from matplotlib.figure import Figure

    settings: Any = {**RC, "axes.prop_cycle": cycler(color=PALETTE)}
    with mpl.rc_context(settings):
        fig = Figure(figsize=(width, height), layout="constrained")
        axes = fig.subplots(**subplots)
    return fig, axes
