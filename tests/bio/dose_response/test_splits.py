"""Splits: nothing in both masks, everything covered, the same seed gives the same split."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay._core.errors import InputError
from assay.bio.dose_response import DoseResponseData, splits


def screen(seed, n_drugs=4, n_cells=5):
    """Random ragged screen with five to nine doses per curve on per-drug grids."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    rows = []
    for d in range(n_drugs):
        grid = np.sort(10 ** rng.uniform(-3, 1, 9))
        for c in range(n_cells):
            for z in rng.choice(grid, rng.integers(5, 10), replace=False):
                rows.append((f"d{d}", f"c{c}", z, rng.normal()))
    table = pd.DataFrame(rows, columns=["drug", "cell_line", "dose_uM", "inhibition"])
    return DoseResponseData.from_long(table, response="inhibition", response_type="inhibition")


MAKERS = {
    "smoothing": lambda data, seed: splits.smoothing(data, 4, random_state=seed),
    "interpolation": lambda data, seed: splits.interpolation(data, 3, random_state=seed),
    "extrapolation": lambda data, seed: splits.extrapolation(data, 4, random_state=seed),
    "new_cells": lambda data, seed: splits.new_cells(data, 5, random_state=seed),
    "new_drugs": lambda data, seed: splits.new_drugs(data, 3, random_state=seed),
}


@pytest.mark.parametrize("name", MAKERS)
@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10_000))
def test_no_point_is_in_both_masks_and_tests_do_not_overlap(name, seed):
    data = screen(seed)
    seen = np.zeros(data.mask.shape, int)
    for train, test in MAKERS[name](data, seed):
        assert not (train & test).any()
        assert not ((train | test) & ~data.mask).any()
        assert test.any()
        if name != "interpolation":  # it leaves out points that would be extrapolation, by design
            assert np.array_equal(train | test, data.mask)
        seen += test
    assert seen.max() <= 1


@pytest.mark.parametrize("name", MAKERS)
def test_same_seed_same_split_other_seed_other_split(name):
    data = screen(0, n_drugs=6, n_cells=8)
    a, b, c = (np.stack([t for _, t in MAKERS[name](data, seed)]) for seed in (1, 1, 2))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


def test_smoothing_with_all_folds_tests_every_point_once():
    data = screen(3)
    m = int(data.mask.sum(1).max())
    seen = sum(test.astype(int) for _, test in splits.smoothing(data, m, random_state=0))
    assert np.array_equal(seen, data.mask.astype(int))


def test_interpolation_never_tests_an_end_of_a_curve_nor_trains_on_the_dose():
    data = screen(4)
    for train, test in splits.interpolation(data, 3, random_state=0):
        for j, k in np.argwhere(test):
            measured = data.dose[j, data.mask[j]]
            assert measured.min() < data.dose[j, k] < measured.max()
            same_drug = data.drug_index == data.drug_index[j]
            assert not (train[same_drug] & (data.dose[same_drug] == data.dose[j, k])).any()


def test_extrapolation_covers_the_top_dose_of_every_drug_once():
    data = screen(5)
    seen = sum(test.astype(int) for _, test in splits.extrapolation(data, 4, random_state=0))
    top = np.array([np.nanmax(data.dose[data.drug_index == d]) for d in range(4)])[data.drug_index]
    assert np.array_equal(seen, (data.mask & (data.dose == top[:, None])).astype(int))


@pytest.mark.parametrize(("name", "index"), [("new_cells", "cell_index"), ("new_drugs", "drug_index")])
def test_new_sides_are_whole_and_covered_once(name, index):
    data = screen(6)
    seen = np.zeros(data.mask.shape, int)
    for train, test in MAKERS[name](data, 0):
        ids = getattr(data, index)
        assert not set(ids[test.any(1)]) & set(ids[train.any(1)])
        seen += test
    assert np.array_equal(seen, data.mask.astype(int))


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda d: splits.smoothing(d, 99), "smoothing"),
        (lambda d: splits.interpolation(d, 99), "drug d0"),
        (lambda d: splits.extrapolation(d, 99), "drugs"),
        (lambda d: splits.new_cells(d, 1), "lines"),
        (lambda d: splits.new_drugs(d, 99), "drugs"),
    ],
)
def test_impossible_numbers_of_folds_are_refused(call, word):
    with pytest.raises(InputError, match=word):
        next(iter(call(screen(0))))
