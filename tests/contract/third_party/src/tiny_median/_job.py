"""What the command line does with a user's files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay._core.run import Run


def fit(table: Path, *, shift: float = 0.0, run: Run) -> None:
    """Take the median of each column.

    Parameters
    ----------
    table : Path
        A table with numbers.
    shift : float
        Added to every prediction.
    """
    from assay._core.errors import InputError
    from assay._core.files import read_table
    from assay._core.style import figure

    from ._median import MedianModel

    frame = read_table(table)
    numbers = frame.select_dtypes("number")
    if numbers.empty:
        raise InputError(f"{table}: no column holds numbers; give a table with at least one.")
    model = MedianModel(shift=shift).fit(numbers.to_numpy())
    run.table("medians", numbers.median().rename("median").rename_axis("column").reset_index())
    fig, ax = figure()
    ax.bar(list(numbers.columns), model.median_)
    ax.set_ylabel("median")
    run.figure("medians", fig)
    run.metric(0, median=float(model.median_[0]))
    run.result(columns=numbers.shape[1], median=float(model.median_[0]))


def demo(*, run: Run) -> None:
    """Run on the shipped numbers."""
    fit(Path(__file__).parent / "data" / "numbers.csv", run=run)
