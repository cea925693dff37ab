"""Five ways to hold out a part of a screen, each the question of one kind of user."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from assay._core.errors import InputError
from assay._core.seeds import as_rng

from ._data import DoseResponseData

Masks = tuple[np.ndarray, np.ndarray]


def smoothing(data: DoseResponseData, n_splits: int = 5, random_state: Any = None) -> Iterator[Masks]:
    """Hold out one random dose of every curve: is a single measured point predicted from the rest?

    Each curve's doses are permuted once; fold k tests the k-th of them (a curve with fewer doses is only trained on).

    Parameters
    ----------
    data : DoseResponseData
    n_splits : int, default 5, range 1 to the largest number of doses of a curve
    random_state : None, int, Generator or RandomState

    Yields
    ------
    train_mask, test_mask : ndarray of bool, shape of ``data.mask``
        Disjoint; together the measured points.

    Examples
    --------
    >>> from assay.bio.dose_response import datasets, splits
    >>> data = datasets.load_sarcoma(n_drugs=3)
    >>> train, test = next(splits.smoothing(data, 5, random_state=0))
    >>> bool((test.sum(1) == 1).all())
    True
    """
    rng = as_rng(random_state)
    largest = int(data.mask.sum(1).max())
    if not 1 <= n_splits <= largest:
        raise InputError(f"smoothing needs 1 <= n_splits <= {largest} (the largest number of doses), got {n_splits}.")
    keys = np.where(data.mask, rng.random(data.mask.shape), 2.0)  # padding sorts last
    rank = keys.argsort(1).argsort(1)
    for k in range(n_splits):
        test = data.mask & (rank == k)
        # A curve of a single point keeps it for training: nothing could be learned about the curve otherwise.
        test &= data.mask.sum(1, keepdims=True) > 1
        yield data.mask & ~test, test


def interpolation(data: DoseResponseData, n_splits: int = 5, random_state: Any = None) -> Iterator[Masks]:
    """Hold out one inner dose of every drug on all its curves: is an unmeasured dose level predicted?

    The dose is never the smallest or largest of the drug; the folds of a drug take its inner doses without replacement.

    Parameters
    ----------
    data : DoseResponseData
    n_splits : int, default 5, range 1 to the smallest number of inner doses of a drug
    random_state : None, int, Generator or RandomState

    Yields
    ------
    train_mask, test_mask : ndarray of bool, shape of ``data.mask``

    Notes
    -----
    1. Where the held-out dose is the first or last of a curve (ragged grids) predicting it would be extrapolation:
       that point is in neither mask.
    """
    rng = as_rng(random_state)
    inner: list[np.ndarray] = []
    for d, name in enumerate(data.drugs):
        rows = data.drug_index == d
        levels = np.unique(data.dose[rows][data.mask[rows]])[1:-1]
        if len(levels) < n_splits or n_splits < 1:
            raise InputError(
                f"interpolation needs 1 <= n_splits <= the number of inner doses; drug {name} has {len(levels)}, "
                f"got n_splits={n_splits}."
            )
        inner.append(rng.permutation(levels))
    measured = np.where(data.mask, data.dose, np.nan)
    lowest, highest = np.nanmin(measured, 1, keepdims=True), np.nanmax(measured, 1, keepdims=True)
    for k in range(n_splits):
        level = np.array([doses[k] for doses in inner])[data.drug_index]
        held = data.mask & (data.dose == level[:, None])
        yield data.mask & ~held, held & (data.dose > lowest) & (data.dose < highest)


def extrapolation(data: DoseResponseData, n_groups: int = 10, random_state: Any = None) -> Iterator[Masks]:
    """Hold out the highest dose of a tenth of the drugs: is the effect above the tested range predicted?

    Parameters
    ----------
    data : DoseResponseData
    n_groups : int, default 10, range 2 to the number of drugs
    random_state : None, int, Generator or RandomState

    Yields
    ------
    train_mask, test_mask : ndarray of bool, shape of ``data.mask``
        The test points are the highest dose of each drug of the fold; every drug is in one fold.
    """
    top = np.array(
        [np.nanmax(np.where(data.mask, data.dose, np.nan)[data.drug_index == d]) for d in range(len(data.drugs))]
    )
    at_top = data.mask & (data.dose == top[data.drug_index][:, None])
    for group in _groups(len(data.drugs), n_groups, random_state, "extrapolation", "drugs"):
        test = at_top & np.isin(data.drug_index, group)[:, None]
        yield data.mask & ~test, test


def new_cells(data: DoseResponseData, n_splits: int = 10, random_state: Any = None) -> Iterator[Masks]:
    """Hold out all curves of a tenth of the lines: precision oncology.

    Parameters
    ----------
    data : DoseResponseData
    n_splits : int, default 10, range 2 to the number of lines
    random_state : None, int, Generator or RandomState

    Yields
    ------
    train_mask, test_mask : ndarray of bool, shape of ``data.mask``
    """
    for group in _groups(len(data.cells), n_splits, random_state, "new_cells", "lines"):
        test = data.mask & np.isin(data.cell_index, group)[:, None]
        yield data.mask & ~test, test


def new_drugs(data: DoseResponseData, n_splits: int = 10, random_state: Any = None) -> Iterator[Masks]:
    """Hold out all curves of a tenth of the drugs: drug discovery. ``n_splits = n_drugs`` leaves one out.

    Parameters
    ----------
    data : DoseResponseData
    n_splits : int, default 10, range 2 to the number of drugs
    random_state : None, int, Generator or RandomState

    Yields
    ------
    train_mask, test_mask : ndarray of bool, shape of ``data.mask``
    """
    for group in _groups(len(data.drugs), n_splits, random_state, "new_drugs", "drugs"):
        test = data.mask & np.isin(data.drug_index, group)[:, None]
        yield data.mask & ~test, test


def _groups(n: int, k: int, random_state: Any, what: str, unit: str) -> list[np.ndarray]:
    if not 2 <= k <= n:
        raise InputError(f"{what} needs between 2 and {n} folds ({n} {unit}), got {k}.")
    return np.array_split(as_rng(random_state).permutation(n), k)


SPLITTERS: dict[str, Callable[..., Iterator[Masks]]] = {
    "smoothing": smoothing,
    "interpolation": interpolation,
    "extrapolation": extrapolation,
    "new_cells": new_cells,
    "new_drugs": new_drugs,
}
