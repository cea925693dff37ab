"""Fiduccia-Mattheyses moves."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from assay._core.errors import InputError
from assay.graphs.semirandom_cut import adversary, cut_value, make_semirandom_cut
from assay.graphs.semirandom_cut._refine import fm_refine


def _graph(seed, scale=1.0):
    W = make_semirandom_cut(120, adversary=[adversary.random(6)], random_state=seed)[0]
    return W * scale


@pytest.mark.parametrize("scale", [1.0, 0.37])  # buckets, heap
@pytest.mark.parametrize("seed", range(3))
def test_never_worse_and_inside_the_window(scale, seed):
    W = _graph(seed, scale)
    labels = np.random.default_rng(seed).permutation(np.repeat([0, 1], 60))
    found = fm_refine(W, labels, 54, 66)
    assert 54 <= found.sum() <= 66
    assert cut_value(W, found) < 0.7 * cut_value(W, labels)  # random sides cut half of all edges


def test_local_optimum_has_no_gaining_move():
    W = _graph(0)
    found = fm_refine(W, np.repeat([0, 1], 60), 40, 80, max_passes=50)
    sign = 1 - 2 * found
    gain = -sign * (W @ sign)
    movable = np.where(found == 1, found.sum() > 40, found.sum() < 80)
    assert gain[movable].max() <= 0


def test_exact_balance_is_kept():
    W = _graph(1)
    assert fm_refine(W, np.repeat([0, 1], 60), 60, 60).sum() == 60


def test_start_outside_the_window_is_brought_in():
    W = _graph(2)
    labels = np.zeros(120, dtype=int)
    labels[:20] = 1
    assert 50 <= fm_refine(W, labels, 50, 70).sum() <= 70


def test_vertex_weights_and_locks():
    W = _graph(3)
    rng = np.random.default_rng(0)
    w = rng.integers(1, 9, 120).astype(float)
    labels = rng.integers(0, 2, 120)
    locked = rng.random(120) < 0.3
    total = w.sum()
    found = fm_refine(W, labels, 0.4 * total, 0.6 * total, w, locked=locked)
    assert (found[locked] == labels[locked]).all()
    assert 0.4 * total <= w[found == 1].sum() <= 0.6 * total


@pytest.mark.parametrize("objective", ["sparsest", "conductance"])
def test_ratio_objectives_fall(objective):
    W = _graph(4)
    degree = np.asarray(W.sum(axis=1)).ravel()
    mass = degree if objective == "conductance" else np.ones(120)

    def value(x):
        m = mass[x == 1].sum()
        other = mass.sum() - m
        return cut_value(W, x) / (min(m, other) if objective == "conductance" else m * other)

    start = np.repeat([0, 1], 60)
    assert value(fm_refine(W, start, 20, 100, mass=mass, objective=objective)) < value(start)


@pytest.mark.parametrize("scale", [1.0, 0.37])
def test_plain_and_compiled_agree(monkeypatch, scale):
    W = _graph(5, scale)[:60][:, :60]
    start = np.repeat([0, 1], 30)
    fast = fm_refine(W, start, 25, 35)
    monkeypatch.setenv("ASSAY_NO_NUMBA", "1")
    assert np.array_equal(fast, fm_refine(W, start, 25, 35))


def test_bad_shape():
    with pytest.raises(InputError):
        fm_refine(sp.csr_array((4, 4)), np.zeros(3), 1, 3)
