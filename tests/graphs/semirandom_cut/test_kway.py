"""Every partition has k non-empty parts within the imbalance, whatever the graph and the weights."""

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

from assay._core.errors import InputError
from assay.graphs.semirandom_cut import SemiRandomBisection, SemiRandomKWay
from assay.graphs.semirandom_cut._kway import _refine_pairs, _repair, _targets


def grid(rows, columns):
    return nx.to_scipy_sparse_array(nx.grid_2d_graph(rows, columns), dtype=float)


def recount(W, labels):
    coo = sp.triu(W).tocoo()
    return sum(w for i, j, w in zip(coo.row, coo.col, coo.data, strict=True) if labels[i] != labels[j])


def assert_partition(model, W, k, imbalance, weight=None):
    weight = np.ones(W.shape[0]) if weight is None else weight
    assert sorted(np.unique(model.labels_)) == list(range(k))
    load = np.bincount(model.labels_, weights=weight, minlength=k)
    np.testing.assert_allclose(model.part_weights_, load)
    assert load.max() <= (1 + imbalance) * np.ceil(weight.sum() / k) + 1e-9
    assert model.imbalance_ <= imbalance + 1e-9
    assert model.edge_cut_ == recount(W, model.labels_)


@pytest.mark.parametrize(
    ("k", "imbalance"),
    [
        (2, 0.1),
        (5, 0.0),
        (5, 0.1),
        pytest.param(16, 0.0, marks=pytest.mark.slow),
        pytest.param(16, 0.1, marks=pytest.mark.slow),
    ],
)
def test_parts_keep_the_imbalance(k, imbalance):
    W = grid(9, 11)
    assert_partition(SemiRandomKWay(k, imbalance, n_iter=20, n_directions=5, random_state=0).fit(W), W, k, imbalance)


def test_targets_are_proportional():
    # three parts: side 1 takes two of them
    low, high = _targets(np.ones(300), 3, 100.0, unit=True)
    assert low < 2 / 3 < high
    assert high - low < 0.001
    labels = SemiRandomKWay(3, 0.0, n_iter=50, random_state=0).fit(grid(6, 5)).labels_
    assert np.bincount(labels).tolist() == [10, 10, 10]


def test_as_many_parts_as_vertices():
    W = grid(3, 3)
    model = SemiRandomKWay(9, random_state=0).fit(W)
    assert_partition(model, W, 9, 0.1)
    assert model.edge_cut_ == 12
    assert_partition(SemiRandomKWay(8, 1.0, random_state=0).fit(W), W, 8, 1.0)


def test_finds_planted_cliques():
    W = nx.to_scipy_sparse_array(nx.ring_of_cliques(6, 8), dtype=float)
    model = SemiRandomKWay(6, random_state=0).fit(W)
    assert model.edge_cut_ == 6
    assert all(len(set(model.labels_[8 * c : 8 * c + 8])) == 1 for c in range(6))


def test_disconnected_graphs_with_isolated_vertices():
    W = sp.block_diag([np.ones((7, 7)) - np.eye(7)] * 4 + [np.zeros((2, 2))] * 2, format="csr")
    model = SemiRandomKWay(4, 0.15, random_state=0).fit(W)
    assert_partition(model, W, 4, 0.15)
    assert model.edge_cut_ == 0
    empty = SemiRandomKWay(5, 0.0, random_state=0).fit(np.zeros((20, 20)))
    assert np.bincount(empty.labels_).tolist() == [4] * 5


@pytest.mark.parametrize("whole", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_vertex_weights(whole):
    rng = np.random.default_rng(3)
    W = grid(12, 10)
    weight = rng.integers(1, 6, 120).astype(float) if whole else rng.random(120) + 0.2
    for k in (2, 5):
        model = SemiRandomKWay(k, 0.1, n_iter=20, n_directions=5, random_state=0).fit(W, sample_weight=weight)
        assert sorted(np.unique(model.labels_)) == list(range(k))
        average = np.ceil(weight.sum() / k) if whole else weight.sum() / k
        assert model.part_weights_.max() <= 1.1 * average + 1e-9
        assert model.edge_cut_ == recount(W, model.labels_)


def test_heavy_vertices_that_only_packing_can_place():
    # weights 5,5,4,4,3,3 into three parts of 8: every part must be {5,3} or {4,4}
    weight = np.array([5.0, 4.0, 3.0, 5.0, 4.0, 3.0])
    model = SemiRandomKWay(3, 0.0, random_state=0).fit(nx.to_scipy_sparse_array(nx.path_graph(6)), sample_weight=weight)
    assert model.part_weights_.tolist() == [8.0, 8.0, 8.0]
    with pytest.raises(InputError, match=r"raise imbalance"):
        SemiRandomKWay(2, 0.0).fit(np.ones((3, 3)) - np.eye(3), sample_weight=[2.0, 2.0, 2.0])


def test_refinement_never_raises_the_cut_and_keeps_the_capacity():
    rng = np.random.default_rng(0)
    W = grid(12, 12)
    labels = rng.permutation(np.repeat(np.arange(4), 36))
    better = _refine_pairs(W, labels, np.ones(144), 4, 38.0, 3)
    # from a random start (cut about 198) moves alone must find most of the gain
    assert recount(W, better) < 0.5 * recount(W, labels)
    assert np.bincount(better).max() <= 38
    assert np.bincount(better).min() >= 1


def test_repair_moves_only_what_it_must():
    W = grid(1, 10)
    repaired = _repair(sp.csr_array(W), np.array([0] * 8 + [1] * 2), np.ones(10), 2, 6.0)
    assert np.bincount(repaired).tolist() == [6, 4]
    assert recount(W, repaired) == 1


@pytest.mark.slow
def test_no_worse_than_plain_recursion():
    W = grid(16, 16)
    plain = SemiRandomKWay(4, 0.05, refine=False, n_iter=50, random_state=1).fit(W).edge_cut_
    refined = SemiRandomKWay(4, 0.05, n_iter=50, random_state=1).fit(W).edge_cut_
    assert refined <= plain
    assert refined <= 36  # four 8 x 8 squares cut 32


def test_deterministic_and_two_parts_agree_with_the_bisection():
    W = nx.to_scipy_sparse_array(nx.karate_club_graph(), weight=None, dtype=float)
    a, b = (SemiRandomKWay(4, random_state=5).fit(X).labels_ for X in (W, W.toarray()))
    np.testing.assert_array_equal(a, b)
    two = SemiRandomKWay(2, 0.1, random_state=0).fit(W)
    # imbalance .1 of 17 is 18.7, that is sides of at least 16: balance 16/34
    assert two.edge_cut_ == SemiRandomBisection(balance=16 / 34, random_state=0).fit(W).cut_


@pytest.mark.parametrize(
    ("params", "weight", "message"),
    [
        ({"n_clusters": 1}, None, r"n_clusters must be a whole number in \[2, 4\]"),
        ({"n_clusters": 5}, None, "n_clusters"),
        ({"n_clusters": 2.5}, None, "n_clusters"),
        ({"n_clusters": 2, "imbalance": -0.1}, None, "imbalance"),
        ({"n_clusters": 2, "imbalance": float("nan")}, None, "imbalance"),
        ({"n_clusters": 2}, [1, 1, 1], "sample_weight must hold 4 numbers"),
        ({"n_clusters": 2}, [1, 1, 0, 1], "entry 2 is 0"),
        ({"n_clusters": 2}, [1, 1, 9, 1], "Vertex 2 weighs 9"),
    ],
)
def test_bad_input(params, weight, message):
    with pytest.raises(InputError, match=message):
        SemiRandomKWay(**params).fit(nx.cycle_graph(4), sample_weight=weight)
