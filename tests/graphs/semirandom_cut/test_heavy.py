"""Heavy vertices: balls, contraction, packing."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from assay._core.errors import InputError
from assay.graphs.semirandom_cut import SemiRandomBisection, adversary, cut_value, make_semirandom_cut, remove_heavy
from assay.graphs.semirandom_cut._heavy import contract, pack_clusters


def test_two_tight_balls_are_two_clusters():
    rng = np.random.default_rng(0)
    centres = np.repeat(np.eye(8)[:2], 50, axis=0)
    V = centres + 0.01 * rng.standard_normal(centres.shape)
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    cluster = remove_heavy(V, make_semirandom_cut(100, random_state=0)[0], 0.25, random_state=0)
    assert set(cluster[:50]) != set(cluster[50:])
    assert len(set(cluster[:50])) == len(set(cluster[50:])) == 1
    assert cluster.min() == 0


def test_spread_vectors_have_no_heavy_vertex():
    V = np.eye(64)
    assert (remove_heavy(V, sp.csr_array((64, 64)), 0.5, random_state=0) == -1).all()


def test_every_removed_ball_was_heavy():
    W, _, _ = make_semirandom_cut(400, adversary=[adversary.random(8)], random_state=1)
    V = SemiRandomBisection(random_state=0, certify=False).fit(W).embedding_
    delta = 0.25
    cluster = remove_heavy(V, W, delta, random_state=0)
    sizes = np.bincount(cluster[cluster >= 0]) if (cluster >= 0).any() else np.array([])
    assert (sizes >= delta**2 * 400).all()


def _lightest_ball(V, W, u, rest, delta):
    """The ball around u inside the rest with the lightest boundary, by counting each of the 16."""
    distance = ((V[rest] - V[u]) ** 2).sum(axis=1)
    best, weight = None, np.inf
    for radius in np.linspace(delta, 2 * delta, 16):
        ball, outside = rest[distance <= radius], rest[distance > radius]
        boundary = W[np.ix_(ball, outside)].sum()
        if boundary < weight:
            best, weight = set(ball.tolist()), boundary
    return best


def test_every_ball_has_the_lightest_boundary_of_its_radii():
    """Each cluster is the lightest of the 16 balls around some vertex that was heavy when it was cut off."""
    delta, found = 0.3, 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        V = rng.standard_normal((60, 3))
        V /= np.linalg.norm(V, axis=1, keepdims=True)
        A = np.triu((rng.random((60, 60)) < 0.2) * rng.integers(1, 5, (60, 60)), 1).astype(float)
        A = A + A.T
        cluster = remove_heavy(V, A, delta, random_state=0)
        rest = np.arange(60)
        for c in range(cluster.max() + 1):
            got = set(np.flatnonzero(cluster == c).tolist())
            heavy = [u for u in rest if (((V[rest] - V[u]) ** 2).sum(axis=1) <= delta).sum() >= delta**2 * 60]
            assert any(_lightest_ball(V, A, u, rest, delta) == got for u in heavy)
            rest = np.array([v for v in rest if v not in got])
            found += 1
    assert found >= 10  # the sphere is full of heavy vertices: at least one ball for each seed


def test_contract_keeps_cuts():
    rng = np.random.default_rng(0)
    W = make_semirandom_cut(60, adversary=[adversary.random(5)], random_state=0)[0]
    group = rng.integers(0, 7, 60)
    small, weight = contract(W, group, np.ones(60))
    side = rng.integers(0, 2, 7)
    assert cut_value(small, side) == cut_value(W, side[group])
    assert weight.sum() == 60


def test_packing_meets_the_window():
    W = sp.csr_array(np.ones((12, 12)) - np.eye(12))
    cluster = np.array([0] * 5 + [1] * 4 + [2] * 3)
    labels = pack_clusters(W, cluster, np.ones(12), 5, 7)
    assert 5 <= labels.sum() <= 7
    assert pack_clusters(W, np.zeros(12, dtype=int), np.ones(12), 5, 7) is None


def test_heavy_only_adds_candidates():
    W, _, _ = make_semirandom_cut(600, adversary=[adversary.random(8), adversary.cliques(1, 120)], random_state=3)
    settings = {"refine": False, "certify": False, "random_state": 0}
    on = SemiRandomBisection(heavy=True, **settings).fit(W)
    off = SemiRandomBisection(heavy=False, **settings).fit(W)
    assert on.cut_ <= off.cut_
    assert on.candidates_["name"].str.startswith("heavy").any()
    assert not off.candidates_["name"].str.startswith("heavy").any()


@pytest.mark.parametrize(("V", "delta"), [(np.ones((5, 2)), 0.2), (np.ones((4, 2)), 0.0), (np.ones((4, 2)), 2.0)])
def test_bad_input(V, delta):
    with pytest.raises(InputError):
        remove_heavy(V, np.ones((4, 4)) - np.eye(4), delta)
