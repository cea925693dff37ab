"""Matrix multiplicative weights: the exponential, and vectors that solve the relaxation."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp

from assay.graphs.semirandom_cut import SemiRandomBisection, adversary, make_semirandom_cut
from assay.graphs.semirandom_cut._mmw import chebyshev_exponential
from assay.graphs.semirandom_cut._sdp import solve_lowrank


@pytest.mark.parametrize("lmax", [4.0, 40.0, 400.0])
def test_chebyshev_is_the_matrix_exponential(lmax):
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((60, 60)))[0]
    values = rng.uniform(0, lmax, 60)
    values[0] = 0.0
    M = Q @ np.diag(values) @ Q.T
    G = rng.standard_normal((60, 3))
    truth = scipy.linalg.expm(-M / 2) @ G
    found = chebyshev_exponential(lambda X: M @ X, G, lmax * (1 + 1e-9))
    assert np.abs(found - truth).max() < 1e-3 * np.abs(truth).max()


def test_spectrum_beyond_lmax_is_noticed():
    M = np.diag([0.0, 1.0, 9.0])
    with pytest.raises(FloatingPointError, match="lmax"):
        chebyshev_exponential(lambda X: M @ X, np.ones((3, 2)), 4.0)


@pytest.mark.parametrize("seed", [2, pytest.param(7, marks=pytest.mark.slow)])
def test_cost_is_near_the_relaxation(seed):
    W = make_semirandom_cut(100, eta=8.0, adversary=[adversary.random(8)], random_state=seed)[0]
    model = SemiRandomBisection(solver="mmw", random_state=0).fit(W)
    point = solve_lowrank(W, balance=0.45, rng=np.random.default_rng(0))
    assert model.sdp_value_ == pytest.approx(point.value, rel=0.15)
    assert model.embedding_.shape == (100, 24)
    assert model.lower_bound_ <= model.cut_
    assert model.lower_bound_ >= 0.99 * point.value


@pytest.mark.slow
def test_isolated_vertices():
    W = sp.block_diag(
        [make_semirandom_cut(40, adversary=[adversary.random(6)], random_state=0)[0], sp.csr_array((4, 4))]
    )
    model = SemiRandomBisection(solver="mmw", certify=False, random_state=0).fit(W.tocsr())
    assert model.balance_ >= 0.45


@pytest.mark.parametrize(
    ("seed", "moves"),
    [
        (0, [adversary.random(6)]),
        (1, [adversary.random(8)]),  # here a colder gamma loses the unit lengths: the warmer result must stand
        pytest.param(2, [adversary.random(8), adversary.cliques(1, 10)], marks=pytest.mark.slow),
        pytest.param(3, [adversary.random(6), adversary.hubs(1, 10)], marks=pytest.mark.slow),
        pytest.param(4, [adversary.random(10)], marks=pytest.mark.slow),
    ],
)
def test_cost_is_within_fifteen_per_cent_of_the_relaxation(seed, moves):
    W, _, _ = make_semirandom_cut(100, eta=6.0, adversary=moves, random_state=seed)
    value = {
        solver: SemiRandomBisection(solver=solver, certify=False, random_state=0).fit(W).sdp_value_
        for solver in ("lowrank", "mmw")
    }
    assert value["mmw"] == pytest.approx(value["lowrank"], rel=0.15)


@pytest.mark.parametrize(("objective", "shares"), [("cut", [0.1]), ("conductance", [0.1, 0.25, 0.45])])
def test_ratio_objectives_are_solved_for_every_share(objective, shares, monkeypatch):
    from assay.graphs.semirandom_cut import _bisection
    from assay.graphs.semirandom_cut._mmw import MMWResult

    W, _, _ = make_semirandom_cut(60, adversary=[adversary.random(6)], random_state=0)
    seen = []

    def solve(graph, *, balance, rng, n_components, n_iter, best_cut):
        V = rng.standard_normal((graph.shape[0], n_components))
        seen.append((balance, V))
        assert best_cut(V) < np.inf
        return MMWResult(V, 10.0 * len(seen), 0.0, 7 * len(seen), [8.0])

    monkeypatch.setattr(_bisection, "solve_mmw", solve)
    model = SemiRandomBisection(0.1, objective, "mmw", certify=False, random_state=0).fit(W)
    np.testing.assert_allclose([balance for balance, _ in seen], shares)
    # what is kept is the solution for the balance that was asked for
    np.testing.assert_array_equal(model.embedding_, seen[0][1])
    assert (model.sdp_value_, model.n_iter_, model.converged_) == (10.0, 7, False)
