"""The relaxation: feasibility, convergence, certificate."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from assay.graphs.semirandom_cut import _sdp, adversary, make_semirandom_cut
from assay.graphs.semirandom_cut._rounding import enumerate_cuts
from assay.graphs.semirandom_cut._sdp import certified_lower_bound, solve_lowrank


def _graph(n, seed, eta=3.0):
    return make_semirandom_cut(n, eta=eta, adversary=[adversary.random(6)], random_state=seed)[0]


def test_point_is_feasible_and_value_recomputes():
    W = _graph(200, 0)
    point = solve_lowrank(W, balance=0.45, rng=np.random.default_rng(0))
    assert np.allclose(np.linalg.norm(point.V, axis=1), 1.0)
    assert point.spread == pytest.approx(0.1, abs=0.002)  # |S|/n = 1 - 2a, to the solver's 2 %
    i, j = W.nonzero()
    recount = (W.data * ((point.V[i] - point.V[j]) ** 2).sum(axis=1)).sum() / 8
    assert point.value == pytest.approx(recount)


def test_scaling_the_graph_scales_value_and_bound():
    W = _graph(80, 1)
    a = solve_lowrank(W, balance=0.4, rng=np.random.default_rng(0))
    b = solve_lowrank(W * 4.0, balance=0.4, rng=np.random.default_rng(0))
    assert b.value == pytest.approx(4 * a.value)
    bounds = [
        certified_lower_bound(G, p, balance=0.4, rng=np.random.default_rng(1))[0] for G, p in ((W, a), (W * 4.0, b))
    ]
    assert bounds[1] == pytest.approx(4 * bounds[0], rel=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_bound_never_exceeds_the_optimum(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(6, 14))
    A = np.triu((rng.random((n, n)) < 0.5) * rng.random((n, n)), 1)
    W = sp.csr_array(A + A.T)
    weights = rng.integers(1, 4, n).astype(float) if seed % 2 else np.ones(n)
    low = min(np.ceil(0.3 * weights.sum()), np.floor(weights.sum() / 2))
    _, optimum = enumerate_cuts(W, weights, low, weights.sum() - low, mass=weights, objective="cut")
    share = low / weights.sum()
    # few sweeps: the certificate must hold for any point, a converged one or not
    for sweeps in (1, 5, 300):
        point = solve_lowrank(W, balance=share, weights=weights, n_iter=sweeps, rng=np.random.default_rng(0))
        bound, kind = certified_lower_bound(W, point, balance=share, rng=np.random.default_rng(0))
        assert kind == "cholesky"
        assert 0 <= bound <= optimum + 1e-9


def test_integer_bound_is_rounded_up():
    W = _graph(60, 3)
    point = solve_lowrank(W, balance=0.45, rng=np.random.default_rng(0))
    real = certified_lower_bound(W, point, balance=0.45, rng=np.random.default_rng(0))[0]
    whole = certified_lower_bound(W, point, balance=0.45, rng=np.random.default_rng(0), integer=True)[0]
    assert whole == np.ceil(whole)
    assert whole >= real - 1e-6


def test_lanczos_agrees_with_dense_eigenvalue():
    A = np.random.default_rng(0).standard_normal((150, 150))
    A = A + A.T
    theta, residual = _sdp._smallest_eigenvalue(lambda x: A @ x, 150, np.random.default_rng(1), 1e-8)
    assert theta - residual <= np.linalg.eigvalsh(A)[0] + 1e-9
    assert theta == pytest.approx(np.linalg.eigvalsh(A)[0], abs=1e-6)


def test_plain_recurrence_and_its_second_pass_agree_with_full_orthogonality(monkeypatch):
    W = _graph(150, 3)
    L = sp.diags_array(np.asarray(W.sum(axis=1)).ravel()) - W
    expected = np.linalg.eigvalsh(L.toarray())[0]
    for kept in (10**9, 150 * 20):  # all vectors kept; vectors beyond the twentieth computed twice
        monkeypatch.setattr(_sdp, "CHOLESKY_LIMIT", 10)
        monkeypatch.setattr(_sdp, "BASIS_NUMBERS", kept)
        theta, residual = _sdp._smallest_eigenvalue(lambda x: L @ x, 150, np.random.default_rng(1), 1e-6)
        assert residual <= 1e-6
        assert theta == pytest.approx(expected, abs=1e-6)


def test_equal_sides_have_a_vector_multiplier():
    W = _graph(101, 4)
    for balance in (0.5, 50 / 101):  # an even window, and the window of an odd number of vertices
        point = solve_lowrank(W, balance=balance, rng=np.random.default_rng(0))
        assert point.spread < 1e-3
        bound, _ = certified_lower_bound(W, point, balance=balance, rng=np.random.default_rng(0))
        assert 0.99 * point.value <= bound <= point.value * (1 + 1e-4)


def test_large_graphs_get_the_lanczos_certificate(monkeypatch):
    monkeypatch.setattr(_sdp, "CHOLESKY_LIMIT", 10)
    W = _graph(100, 2)
    point = solve_lowrank(W, balance=0.45, rng=np.random.default_rng(0))
    bound, kind = certified_lower_bound(W, point, balance=0.45, rng=np.random.default_rng(0))
    assert kind == "lanczos"
    assert 0.97 * point.value <= bound <= point.value


def test_plain_and_compiled_sweeps_agree(monkeypatch):
    W = _graph(60, 5)
    fast = solve_lowrank(W, balance=0.45, n_iter=40, rng=np.random.default_rng(0))
    monkeypatch.setenv("ASSAY_NO_NUMBA", "1")
    plain = solve_lowrank(W, balance=0.45, n_iter=40, rng=np.random.default_rng(0))
    assert np.allclose(fast.V, plain.V, atol=1e-8)


def test_float32_and_torch_sweeps_agree_with_float64():
    W = _graph(100, 6)
    settings = {"balance": 0.45, "n_iter": 60}
    exact = solve_lowrank(W, rng=np.random.default_rng(0), **settings)
    single = solve_lowrank(W, rng=np.random.default_rng(0), dtype=np.float32, **settings)
    # the torch path is the one that runs on an accelerator; "cpu:0" takes it without one
    torch_path = solve_lowrank(W, rng=np.random.default_rng(0), device="cpu:0", **settings)
    assert single.value == pytest.approx(exact.value, rel=1e-3)
    assert torch_path.value == pytest.approx(exact.value, rel=1e-6)


def test_isolated_vertices_and_no_edges():
    W = sp.csr_array((10, 10))
    point = solve_lowrank(W, balance=0.45, rng=np.random.default_rng(0))
    assert point.value == 0
    assert certified_lower_bound(W, point, balance=0.45, rng=np.random.default_rng(0))[0] == 0
