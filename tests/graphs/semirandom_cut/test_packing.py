"""Subset sums against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from assay.graphs.semirandom_cut import SemiRandomBisection
from assay.graphs.semirandom_cut._packing import reachable_sums, subset_sum


def _sums(weights):
    return {sum(c) for k in range(len(weights) + 1) for c in itertools.combinations(weights, k)}


@pytest.mark.parametrize("seed", range(20))
def test_integers_are_exact(seed):
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 20, rng.integers(1, 9))
    truth = _sums(weights.tolist())
    assert set(np.flatnonzero(reachable_sums(weights)).tolist()) == truth
    for low in range(int(weights.sum()) + 1):
        chosen = subset_sum(weights, low, low + 1)
        assert (chosen is not None) == bool(truth & {low, low + 1})
        if chosen is not None:
            assert low <= weights[chosen].sum() <= low + 1


@pytest.mark.parametrize("seed", range(10))
def test_few_reals_are_exact(seed):
    rng = np.random.default_rng(seed)
    weights = rng.random(rng.integers(1, 9))
    truth = np.array(sorted(_sums(weights.tolist())))
    for low in np.linspace(0, weights.sum(), 9):
        chosen = subset_sum(weights, low, low + 0.05)
        assert (chosen is not None) == bool(((truth >= low - 1e-9) & (truth <= low + 0.05 + 1e-9)).any())


def test_many_reals():
    weights = np.random.default_rng(0).random(500)
    total = weights.sum()
    chosen = subset_sum(weights, 0.499 * total, 0.501 * total)
    assert 0.499 * total <= weights[chosen].sum() <= 0.501 * total


def test_impossible_windows():
    assert subset_sum(np.array([5, 5]), 6, 9) is None
    assert subset_sum(np.array([5.5]), 1.0, 2.0) is None
    assert subset_sum(np.array([1, 2]), 5, 9) is None


def test_zero_cut_is_found_when_it_exists():
    # components of 7, 5, 4, 3, 2, 2 paths: 23 vertices, sides of 11 and 12 exist
    sizes = [7, 5, 4, 3, 2, 2]
    n = sum(sizes)
    W = np.zeros((n, n))
    start = 0
    for size in sizes:
        for i in range(start, start + size - 1):
            W[i, i + 1] = W[i + 1, i] = 1
        start += size
    model = SemiRandomBisection(balance=0.47, random_state=0).fit(W)
    assert model.cut_ == 0 == model.lower_bound_
    assert model.n_graph_components_ == 6
    assert model.balance_ >= 11 / 23
