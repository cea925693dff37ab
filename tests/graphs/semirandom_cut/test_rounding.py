"""Sweeps, spectral vectors, flow rounding and enumeration."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

from assay._core.errors import InputError
from assay.graphs.semirandom_cut import adversary, cut_value, make_semirandom_cut, sweep_cut
from assay.graphs.semirandom_cut._rounding import (
    boundary_score,
    enumerate_cuts,
    fiedler_vectors,
    flow_round,
    sweep_profile,
    sweep_profiles,
    window,
)


def _random_graph(n, seed, weighted=True):
    rng = np.random.default_rng(seed)
    A = np.triu((rng.random((n, n)) < 0.4) * (rng.random((n, n)) if weighted else 1.0), 1)
    return sp.csr_array(A + A.T)


def _grid(rows, columns):
    return sp.csr_array(nx.to_scipy_sparse_array(nx.grid_2d_graph(rows, columns), dtype=float))


def test_cut_value_counts_each_edge_once():
    W = _random_graph(30, 0)
    x = np.random.default_rng(1).integers(0, 2, 30)
    assert cut_value(W, x) == pytest.approx(x @ (W @ (1 - x)))
    parts = np.random.default_rng(1).integers(0, 5, 30)
    dense = W.toarray()
    assert cut_value(W, parts) == pytest.approx((dense * (parts[:, None] != parts[None, :])).sum() / 2)
    assert cut_value(W, parts.astype(str)) == cut_value(W, parts)


def test_profile_is_the_cut_of_every_prefix(monkeypatch):
    W = _random_graph(25, 2)
    orders = np.stack([np.random.default_rng(s).permutation(25) for s in range(3)])
    profiles = sweep_profiles(W, orders)
    for order, profile in zip(orders, profiles, strict=True):
        for i in range(24):
            x = np.zeros(25)
            x[order[: i + 1]] = 1
            assert profile[i] == pytest.approx(x @ (W @ (1 - x)))
    monkeypatch.setenv("ASSAY_NO_NUMBA", "1")
    assert np.allclose(sweep_profile(W, orders[0]), profiles[0])


@pytest.mark.parametrize("objective", ["cut", "sparsest", "conductance"])
def test_sweep_is_the_best_prefix(objective):
    W = _random_graph(20, 3)
    score = np.random.default_rng(0).standard_normal(20)
    w = np.random.default_rng(1).integers(1, 5, 20).astype(float)
    labels, value = sweep_cut(W, score, balance=0.3, objective=objective, sample_weight=w)
    degree = np.asarray(W.sum(axis=1)).ravel()
    best = np.inf
    order = np.argsort(score)
    for i in range(1, 20):
        side = np.zeros(20, dtype=int)
        side[order[i:]] = 1
        share = w[side == 1].sum() / w.sum()
        if min(share, 1 - share) >= 0.3:
            volume = degree[side == 1].sum()
            scale = {
                "cut": 1.0,
                "sparsest": w[side == 1].sum() * w[side == 0].sum(),
                "conductance": min(volume, degree.sum() - volume),
            }[objective]
            best = min(best, cut_value(W, side) / scale)
    assert value == pytest.approx(best)
    assert score[labels == 1].min() > score[labels == 0].max()
    share = w[labels == 1].sum() / w.sum()
    assert min(share, 1 - share) >= 0.3


def test_sweep_is_invariant_to_monotone_scores():
    W = _random_graph(20, 4)
    score = np.random.default_rng(0).standard_normal(20)
    assert np.array_equal(sweep_cut(W, score, 0.25)[0], sweep_cut(W, np.exp(score), 0.25)[0])


@pytest.mark.parametrize(
    "call",
    [
        lambda: sweep_cut(np.ones((3, 3)) - np.eye(3), [0, 1]),
        lambda: sweep_cut(np.ones((3, 3)) - np.eye(3), [0, 1, np.nan]),
        lambda: sweep_cut(np.ones((3, 3)) - np.eye(3), [0, 1, 2], balance=0.7),
        lambda: sweep_cut(np.ones((3, 3)) - np.eye(3), [0, 1, 2], objective="x"),
        lambda: sweep_cut(np.ones((3, 3)) - np.eye(3), [0, 1, 2], sample_weight=[1, -1, 1]),
        lambda: sweep_cut(np.ones((3, 3)) - np.eye(3), [0, 1, 2], balance=0.4, sample_weight=[1.0, 9.0, 1.0]),
        lambda: cut_value(np.ones((3, 3)) - np.eye(3), [0, 1]),
    ],
)
def test_bad_input(call):
    with pytest.raises(InputError):
        call()


def test_window_rounds_up_and_halves_odd_totals():
    assert window(np.ones(20), 0.45) == (9, 11)
    assert window(np.ones(7), 0.45) == (3, 4)
    assert window(np.ones(9), 0.5) == (4, 5)
    assert window(np.ones(9), 0.2, "bisection") == (4, 5)


@pytest.mark.parametrize("n", [12, 300])
def test_fiedler_vector_is_the_second_eigenvector(n):
    W = sp.csr_array(nx.to_scipy_sparse_array(nx.path_graph(n), dtype=float))
    vector = fiedler_vectors(W, np.random.default_rng(0))[:, 0]
    # along a path the second eigenvector is monotone
    steps = np.sign(np.diff(vector))
    assert abs(steps.sum()) == n - 1


def test_fiedler_on_an_expander_needs_no_factorisation():
    W = make_semirandom_cut(2500, eta=8.0, adversary=[adversary.random(10)], random_state=0)[0]
    label = sp.csgraph.connected_components(W)[1]
    members = np.flatnonzero(label == 0)
    inner = sp.csr_array(W[members][:, members])
    vectors = fiedler_vectors(inner, np.random.default_rng(0), max_products=400)
    assert vectors.shape[1] == 1
    degree = np.asarray(inner.sum(axis=1)).ravel()
    assert abs(degree @ vectors[:, 0]) < 1e-3 * np.linalg.norm(degree) * np.linalg.norm(vectors)


def test_flow_is_the_minimum_cut_between_the_ends():
    W = _random_graph(30, 5)
    order = np.random.default_rng(0).permutation(30)
    found = flow_round(W, order, np.ones(30), 10, 20, 1.0)
    graph = nx.from_scipy_sparse_array(W)
    nx.set_edge_attributes(graph, {e: graph.edges[e]["weight"] for e in graph.edges}, "capacity")
    source, sink = order[:10], order[20:]
    graph.add_edges_from([("s", int(v), {"capacity": 1e9}) for v in source])
    graph.add_edges_from([("t", int(v), {"capacity": 1e9}) for v in sink])
    truth = nx.minimum_cut_value(graph, "s", "t")
    for labels in found:
        assert (labels[source] == 0).all()
        assert (labels[sink] == 1).all()
        assert cut_value(W, labels) == pytest.approx(truth, rel=1e-6)  # capacities are scaled to 2^30 steps


def test_boundary_score_is_signed_distance():
    W = _grid(5, 6)
    labels = (np.arange(30) % 6 >= 3).astype(int)
    score = boundary_score(W, labels).reshape(5, 6)
    assert np.array_equal(score, np.tile([-3, -2, -1, 1, 2, 3], (5, 1)))


def test_enumeration_against_itertools():
    W = _random_graph(9, 6)
    w = np.array([1, 2, 1, 3, 1, 1, 2, 1, 1], dtype=float)
    low, high = 5.0, 8.0
    best = min(
        cut_value(W, np.isin(np.arange(9), s))
        for k in range(1, 9)
        for s in itertools.combinations(range(9), k)
        if low <= w[list(s)].sum() <= high
    )
    labels, value = enumerate_cuts(W, w, low, high, mass=w, objective="cut")
    assert value == pytest.approx(best) == pytest.approx(cut_value(W, labels))
    pinned = np.full(9, -1)
    pinned[[0, 3]] = [1, 0]
    labels, pinned_value = enumerate_cuts(W, w, low, high, mass=w, objective="cut", pinned=pinned)
    assert labels[0] == 1
    assert labels[3] == 0
    assert pinned_value >= value
