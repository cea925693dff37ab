"""The semi-random model: what an adversary may and may not do."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from assay._core.errors import InputError
from assay.graphs.semirandom_cut import adversary, cut_value, dasgupta_cost, make_semirandom_cut, make_semirandom_hsbm


def _cut_edges(W, y):
    upper = sp.coo_array(sp.triu(W, k=1))
    across = y[upper.row] != y[upper.col]
    return set(zip(upper.row[across].tolist(), upper.col[across].tolist(), strict=True))


MOVES = [
    [adversary.random(6)],
    [adversary.random(6), adversary.tendrils(0.3, 5)],
    [adversary.cliques(2, 10), adversary.hubs(2, 30)],
    [adversary.ring(4), adversary.delete(0.5)],
]


@pytest.mark.parametrize("moves", MOVES)
def test_adversary_is_monotone(moves):
    plain, y0, info0 = make_semirandom_cut(300, adversary=[], random_state=5)
    W, y, info = make_semirandom_cut(300, adversary=moves, random_state=5)
    assert np.array_equal(y, y0)
    assert _cut_edges(W, y) <= _cut_edges(plain, y0)
    assert info["alpha"] == info0["alpha"] == cut_value(plain, y0)
    assert info["planted_cut"] == cut_value(W, y) <= info["alpha"]


@pytest.mark.parametrize("moves", MOVES)
def test_graph_is_simple_and_symmetric(moves):
    W, y, _ = make_semirandom_cut(301, balance=0.3, adversary=moves, random_state=1)
    assert abs(W - W.T).nnz == 0
    assert W.diagonal().sum() == 0
    assert set(np.unique(W.data)) == {1.0}
    assert y.sum() == np.ceil(0.3 * 301)


def test_same_seed_same_graph():
    a, b = (make_semirandom_cut(200, adversary=MOVES[1], random_state=3)[0] for _ in range(2))
    assert (a != b).nnz == 0


def test_number_of_cut_edges_is_binomial():
    # mean eta |A||B| / n, standard deviation below its root; five of them over the mean of 20 draws
    alphas = [make_semirandom_cut(400, balance=0.25, eta=4.0, random_state=s)[2]["alpha"] for s in range(20)]
    mean = 4.0 * 100 * 300 / 400
    assert abs(np.mean(alphas) - mean) < 5 * np.sqrt(mean / 20)


def test_random_has_the_asked_degree():
    W, _, info = make_semirandom_cut(4000, eta=0.0, adversary=[adversary.random(8)], random_state=0)
    assert W.sum() / 4000 == pytest.approx(8, rel=0.05)  # 16,000 edges: the relative deviation is .8 %
    assert info["planted_cut"] == 0


def test_tendrils_are_pendant_paths():
    W, _, info = make_semirandom_cut(
        400, adversary=[adversary.random(8), adversary.tendrils(0.3, 10), adversary.cliques(1, 20)], random_state=2
    )
    path = np.flatnonzero(~info["core"])
    degree = np.diff(W.indptr)
    assert path.size == 2 * int(0.3 * 200)
    assert set(np.unique(degree[path])) == {1, 2}
    assert (degree[path] == 1).sum() == path.size // 10
    # the paths alone have no cycle, and none of them crosses
    inner = W[path][:, path]
    assert inner.nnz // 2 == path.size - connected_components(inner)[0]


def test_cliques_are_complete():
    W, _, _ = make_semirandom_cut(100, eta=0.0, adversary=[adversary.cliques(1, 12)], random_state=0)
    assert W.nnz == 2 * 12 * 11
    assert sorted(np.unique(np.diff(W.indptr)).tolist()) == [0, 11]


@pytest.mark.parametrize(
    "call",
    [
        lambda: make_semirandom_cut(1),
        lambda: make_semirandom_cut(10, balance=0.6),
        lambda: make_semirandom_cut(10, eta=-1),
        lambda: make_semirandom_cut(10, adversary=[adversary.cliques(1, 8)]),
        lambda: adversary.tendrils(1.5, 3),
        lambda: adversary.delete(2),
        lambda: adversary.random(0),
        lambda: make_semirandom_hsbm(2, 5, (0.1, 0.2)),
        lambda: make_semirandom_hsbm(1, 5, (0.1, 0.2), [adversary.delete(0.1)]),
    ],
)
def test_bad_parameters(call):
    with pytest.raises(InputError):
        call()


def test_hsbm_extra_edges_stay_in_bottom_clusters():
    probs = (0.05, 0.2, 0.5)
    plain, y0, _ = make_semirandom_hsbm(2, 20, probs, random_state=4)
    W, y, info = make_semirandom_hsbm(2, 20, probs, [adversary.cliques(1, 12)], random_state=4)
    assert np.array_equal(y, y0)
    extra = sp.coo_array(W - plain)
    assert (y[extra.row] == y[extra.col]).all()
    assert extra.nnz > 0
    children = info["children"]
    assert children.shape == (79, 2)
    assert np.array_equal(np.sort(children.ravel()), np.arange(158))
    # the last merge joins the two halves of the hierarchy
    assert dasgupta_cost(children, W) >= 80 * cut_value(W, y >= 2)
