"""Resolvents against exact solutions; certificates; columns; Laplacian systems and heat."""

import numpy as np
import pytest

from assay import InputError
from assay.graphs.hypergraph_diffusion import (
    CardinalityCut,
    Hypergraph,
    heat_diffusion,
    hypergraph_pagerank,
    lam_path,
    laplacian_solve,
    potential,
)
from assay.graphs.hypergraph_diffusion._baselines import clique_pagerank, hypernd, pdhg, zhou
from assay.graphs.hypergraph_diffusion._experiments import random_hypergraph, sparse_hypergraph
from assay.graphs.hypergraph_diffusion._solve import solve


def instance(seed, n=30):
    rng = np.random.default_rng(seed)
    H = random_hypergraph(n, int(1.4 * n), rng)
    return H, rng.normal(size=(H.n_nodes, 2))


def objective(H, x, s, lam, cut="standard"):
    return potential(H, x, cut) + lam / 2 * (H.degree[:, None] * x**2).sum(axis=0) - (s * x).sum(axis=0)


@pytest.mark.parametrize("lam", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("seed", range(3))
def test_three_solvers_agree(seed, lam):
    H, s = instance(seed, 20 + 20 * seed)
    best = solve(H, s, lam, solver="qp")
    unit = np.abs(best.objective)
    assert np.all(best.gap <= 1e-8 * unit)
    dual = solve(H, s, lam, solver="dual", tol=1e-10, max_iter=5000)
    assert np.all(np.abs(dual.objective - best.objective) <= 1e-8 * unit)
    strong = solve(H, s, lam, max_iter=5000, tol=None)
    assert np.all(strong.objective - best.objective <= 1e-3 * unit)
    np.testing.assert_allclose(dual.x, best.x, atol=1e-4 * np.abs(best.x).max())


@pytest.mark.parametrize("solver", ["subgradient", "dual", "qp"])
def test_pairs_are_graph_pagerank(solver):
    rng = np.random.default_rng(0)
    edges = [[i, (i + 1) % 12] for i in range(12)] + [[i, (i + 5) % 12] for i in range(12)]
    w = rng.uniform(0.5, 2, len(edges))
    H = Hypergraph.from_edges(edges, edge_weight=w)
    A = H.clique_adjacency().toarray()
    s = rng.normal(size=12)
    for lam in (0.5, 2.0):
        exact = np.linalg.solve((1 + lam) * np.diag(A.sum(axis=1)) - A, s)
        options = {"max_iter": 20_000, "tol": None} if solver == "subgradient" else {"max_iter": 5000, "tol": 1e-13}
        x = hypergraph_pagerank(H, s, lam, solver=solver, **options)
        np.testing.assert_allclose(x, exact, atol=1e-6)


def test_alpha_is_the_lazy_teleport():
    H, s = instance(1)
    np.testing.assert_array_equal(hypergraph_pagerank(H, s, alpha=0.5), hypergraph_pagerank(H, s, lam=2.0))


@pytest.mark.parametrize(
    "cut", ["standard", "node_weighted", "linear", "star", CardinalityCut(lambda k, m: min(k, m - k, 2))]
)
@pytest.mark.parametrize("average", [True, False, "best"])
def test_history_belongs_to_the_returned_point(cut, average):
    H, s = instance(2)
    x, history = hypergraph_pagerank(H, s, cut=cut, average=average, max_iter=35, tol=None, return_history=True)
    np.testing.assert_allclose(history["objective"][-1], objective(H, x, s, 1.0, cut), rtol=1e-12)
    assert history["n_iter"][-1] <= 35
    assert history["seconds"] == sorted(history["seconds"])
    exact = solve(H, s, 1.0, cut=cut, max_iter=2000, tol=1e-3)
    for f, gap in zip(history["objective"], history["gap"], strict=True):
        assert np.all(f - gap <= exact.objective + 1e-12)  # the lower bound holds
        assert np.all(f >= exact.lower_bound - 1e-12)


@pytest.mark.parametrize("solver", ["subgradient", "dual"])
def test_stopping_at_tol_is_honest(solver):
    for seed in range(5):
        H, s = instance(seed)
        best = solve(H, s, 0.5, solver="qp").objective
        found = solve(H, s, 0.5, solver=solver, tol=1e-2, max_iter=20_000)
        assert np.all(found.objective - best <= 1e-2 * np.abs(best))
        assert np.all(found.objective >= best - 1e-10)


@pytest.mark.parametrize("solver", ["subgradient", "dual"])
def test_columns_are_solved_as_if_alone(solver):
    H, s = instance(3)
    together = hypergraph_pagerank(H, s, solver=solver, tol=None, max_iter=50)
    for k in range(2):
        np.testing.assert_allclose(
            hypergraph_pagerank(H, s[:, k], solver=solver, tol=None, max_iter=50), together[:, k], atol=1e-12
        )


def test_same_seed_same_bits_and_scaling():
    H, s = instance(4)
    a = hypergraph_pagerank(H, s, tol=1e-6, max_iter=500)
    np.testing.assert_array_equal(a, hypergraph_pagerank(H, s, tol=1e-6, max_iter=500))
    np.testing.assert_allclose(
        hypergraph_pagerank(H, 4 * s, tol=None, max_iter=40), 4 * hypergraph_pagerank(H, s, tol=None, max_iter=40)
    )


def test_renumbering_renumbers_the_result():
    H, s = instance(5)
    R, order = H.reordered()
    x, z = (hypergraph_pagerank(G, v, solver="qp") for G, v in ((H, s), (R, s[order])))
    np.testing.assert_allclose(z, x[order], atol=1e-7)


def test_large_hypergraphs_are_reordered_inside(monkeypatch):
    from assay.graphs.hypergraph_diffusion import _solve

    monkeypatch.setattr(_solve, "_REORDER_NODES", 3000)
    rng = np.random.default_rng(6)
    H = sparse_hypergraph(5000, 3, rng)
    s = rng.normal(size=(H.n_nodes, 1)) * (rng.random((H.n_nodes, 1)) < 0.01)
    b, a = (solve(H, s, 1.0, tol=1e-8, reorder=flag) for flag in (False, True))
    assert "_in_locality_order" in vars(H)
    np.testing.assert_allclose(a.x, b.x, atol=1e-3 * np.abs(b.x).max())
    assert a.objective[0] == pytest.approx(b.objective[0], rel=1e-7)
    np.testing.assert_allclose(objective(H, a.x, s, 1.0), a.objective, rtol=1e-12)


def test_strong_steps_reach_one_per_cent_soon():
    H = sparse_hypergraph(3000, 5, np.random.default_rng(7))
    s = np.random.default_rng(8).normal(size=(3000, 1))
    assert solve(H, s, 1.0, solver="subgradient", tol=1e-2, max_iter=100).n_iter <= 50


def test_no_seed_no_score():
    H = Hypergraph.from_edges([[0, 1, 2], [3, 4]], n_nodes=6)
    s = np.zeros(6)
    s[0] = 1.0
    for solver in ("subgradient", "dual", "qp"):
        x = hypergraph_pagerank(H, s, solver=solver)
        assert np.all(x[3:] == 0)
        assert np.all(hypergraph_pagerank(H, np.zeros(6), solver=solver) == 0)


def test_node_weights_replace_degrees():
    H = Hypergraph.from_edges([[0, 1]], node_weight=[2.0, 3.0])
    x = hypergraph_pagerank(H, [1.0, 0.0], tol=1e-12, max_iter=1000)
    # x0 - x1 + 2 x0 = 1, x1 - x0 + 3 x1 = 0
    np.testing.assert_allclose(x, [4 / 11, 1 / 11], atol=1e-8)


def test_star_is_the_linear_system():
    H, s = instance(9)
    exact = np.linalg.solve(H.star_laplacian().toarray() + 0.7 * np.diag(H.degree), s)
    np.testing.assert_allclose(hypergraph_pagerank(H, s, 0.7, cut="star", tol=1e-12, max_iter=500), exact, atol=1e-6)


def test_path_equals_single_solutions():
    H, s = instance(10)
    for solver in ("subgradient", "dual"):
        path = lam_path(H, s, [0.5, 1.0, 2.0], solver=solver, tol=1e-3, max_iter=5000)
        for lam, x in zip([0.5, 1.0, 2.0], path, strict=True):
            best = solve(H, s, lam, solver="qp").objective
            assert np.all(objective(H, x, s, lam) - best <= 1e-3 * np.abs(best))


def test_warm_start_of_the_dual_saves_sweeps():
    H, s = instance(11, 60)
    cold = solve(H, s, 0.3, solver="dual", tol=1e-8, max_iter=5000)
    warm = solve(H, 1.01 * s, 0.3, solver="dual", tol=1e-8, max_iter=5000, warm=cold.state)
    again = solve(H, s, 0.3, solver="dual", tol=1e-8, max_iter=5000, warm=cold.state)
    assert again.n_iter == 1
    assert warm.n_iter <= cold.n_iter


def test_laplacian_system():
    edges = [[i, i + 1] for i in range(9)] + [[0, 5], [2, 8]]
    H = Hypergraph.from_edges(edges)
    A = H.clique_adjacency().toarray()
    L = np.diag(A.sum(axis=1)) - A
    s = np.random.default_rng(0).normal(size=10)
    s -= s.mean()
    exact = np.linalg.pinv(L) @ s
    exact -= (H.degree @ exact) / H.degree.sum()
    np.testing.assert_allclose(laplacian_solve(H, s), exact, atol=1e-4)
    x = laplacian_solve(H, s, solver="dual", tol=1e-5, max_iter=100_000)
    best = potential(H, exact) - s @ exact
    assert potential(H, x) - s @ x <= best + 1e-4 * abs(best)  # flat directions: the objective, not the point


def test_laplacian_needs_zero_sums_per_component():
    H = Hypergraph.from_edges([["a", "b"], ["c", "d"]])
    with pytest.raises(InputError, match=r"sums to 1 on that of vertex 'a'"):
        laplacian_solve(H, [1.0, 0.0, -1.0, 0.0])


@pytest.mark.parametrize("dense", [True, False])
def test_large_laplacian_systems_with_local_structure_are_solved_by_a_sparse_factor(dense, monkeypatch):
    """A band of 300 vertices that sweeps cross too slowly; dense and sparse factors agree with it and certify."""
    from assay.graphs.hypergraph_diffusion import _qp, _solve

    rng = np.random.default_rng(0)
    H = Hypergraph.from_edges([[i, i + 1, i + 2] for i in range(298)], edge_weight=rng.uniform(0.5, 2, 298))
    s = rng.normal(size=300)
    s -= s.mean()
    exact, expected = laplacian_solve(H, s, return_history=True)
    if not dense:
        for module, name in ((_solve, "_QP_NODES"), (_qp, "DENSE_NODES")):
            monkeypatch.setattr(module, name, 100)
    x, history = laplacian_solve(H, s, return_history=True)
    assert history["gap"][-1] <= 1e-6 * abs(history["objective"][-1])
    assert history["objective"][-1] == pytest.approx(expected["objective"][-1], rel=1e-8)
    assert potential(H, x) - s @ x == pytest.approx(potential(H, exact) - s @ exact, rel=1e-7)


def test_wide_hypergraphs_are_left_to_sweeps(monkeypatch):
    from assay.graphs.hypergraph_diffusion import _solve

    H = sparse_hypergraph(400, 4, np.random.default_rng(0))
    monkeypatch.setattr(_solve, "_QP_NODES", 100)
    monkeypatch.setattr(_solve, "_SPARSE_ENTRIES", 1000)
    s = np.random.default_rng(1).normal(size=400)
    s[H.isolated] = 0
    for part in np.unique(H.components):
        s[H.components == part] -= s[H.components == part].mean()
    _, history = laplacian_solve(H, s, tol=1e-2, return_history=True)
    assert len(history["n_iter"]) > 1 or history["n_iter"][-1] > 30  # rounds of sweeps, no interior point
    assert history["gap"][-1] <= 1e-2 * abs(history["objective"][-1])


@pytest.mark.parametrize("solver", ["subgradient", "dual", "qp"])
@pytest.mark.parametrize(("size", "lam"), [(1e200, 1.0), (1e-200, 1.0), (1.0, 1e-300), (1.0, 1e300)])
def test_numbers_that_leave_the_range_of_doubles_are_refused_instead_of_certified(solver, size, lam):
    """f underflows to 0 at s = 1e-200: a gap of 0 would be a wrong certificate."""
    H, s = instance(0)
    with pytest.raises(InputError, match="over- or underflows"):
        hypergraph_pagerank(H, size * s, lam, solver=solver)


@pytest.mark.parametrize("size", [1e-90, 1e90])
def test_the_solution_scales_with_s_over_many_decades(size):
    H, s = instance(0)
    # rounding may send a tie another way, hence not bit for bit
    np.testing.assert_allclose(
        hypergraph_pagerank(H, size * s, tol=1e-8, max_iter=2000) / size,
        hypergraph_pagerank(H, s, tol=1e-8, max_iter=2000),
        atol=1e-3,
    )


def test_a_system_that_cannot_be_factored_is_a_sentence():
    H = Hypergraph.from_edges([[0, 1, 2], [2, 3], [0, 3]])
    with pytest.raises(InputError, match="cannot factor"):
        hypergraph_pagerank(H, [1.0, 0, 0, 0], 1e-12, solver="qp")


def test_heat_conserves_mass_and_flattens():
    H, s = instance(12)
    x = heat_diffusion(H, s, 400, step=0.25)
    np.testing.assert_allclose(H.degree @ x, H.degree @ s, rtol=1e-12, atol=1e-10)
    assert np.all(potential(H, x) < 0.01 * potential(H, s))
    np.testing.assert_array_equal(heat_diffusion(H, s, 0), s)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lam": 0.0}, "lam must be a positive"),
        ({"lam": -1.0}, "lam must be a positive"),
        ({"lam": float("nan")}, "lam must be a positive"),
        ({"alpha": 1.0}, "alpha must lie"),
        ({"alpha": 0.5, "lam": 2.0}, "not both"),
        ({"solver": "newton"}, "solver must be"),
        ({"solver": "dual", "cut": "star"}, "standard' only"),
        ({"solver": "cg"}, "star' only"),
        ({"schedule": "fast"}, "schedule must be"),
        ({"step": 0.0}, "step must lie"),
        ({"max_iter": 0}, "max_iter"),
        ({"average": "median"}, "average"),
        ({"tol": -1.0}, "tol must be"),
        ({"cut": "clique"}, "cut must be"),
    ],
)
def test_bad_options_are_refused(options, words):
    H, s = instance(0)
    with pytest.raises(InputError, match=words):
        hypergraph_pagerank(H, s, **options)


def test_bad_arrays_are_refused():
    H, s = instance(0)
    with pytest.raises(InputError, match="one row per vertex"):
        hypergraph_pagerank(H, s[:-1])
    s[3, 1] = np.nan
    with pytest.raises(InputError, match="vertex 3 is not a finite"):
        hypergraph_pagerank(H, s)
    with pytest.raises(InputError, match="must be a Hypergraph"):
        hypergraph_pagerank(np.eye(3), [1, 0, 0])
    with pytest.raises(InputError, match="up to 2000"):
        hypergraph_pagerank(sparse_hypergraph(2001, 3, np.random.default_rng(0)), np.ones(2001), solver="qp")
    with pytest.raises(InputError, match="n_steps"):
        heat_diffusion(H, np.ones(H.n_nodes), -1)
    with pytest.raises(InputError, match="takes no option"):
        lam_path(H, np.ones(H.n_nodes), [1.0], alpha=0.5)


def test_peer_solver_reaches_the_same_optimum():
    H, s = instance(13)
    best = solve(H, s, 1.0, solver="qp").objective
    found = pdhg(H, s, 1.0, max_iter=3000, tol=1e-4)
    assert np.all(np.abs(found.objective - best) <= 1e-4 * np.abs(best))
    assert np.all(found.lower_bound <= best + 1e-10)


def test_linear_baselines():
    H, s = instance(14)
    A = H.clique_adjacency().toarray()
    D = np.diag(A.sum(axis=1))
    np.testing.assert_allclose(clique_pagerank(H, s, 1.0), np.linalg.solve(2 * D - A, s), atol=1e-6)
    root = np.diag(H.degree**-0.5)
    B = (H.incidence.toarray() > 0).astype(float)
    theta = root @ B.T @ np.diag(H.edge_weight / H.sizes) @ B @ root
    np.testing.assert_allclose(zhou(H, s, 1.0), np.linalg.solve(2 * np.eye(len(s)) - theta, s), atol=1e-6)
    codes = np.full(H.n_nodes, -1)
    codes[:2] = [0, 1]
    x = hypernd(H, codes, 2)
    assert np.all(x > 0)
    assert np.all(x[[0, 1]].argmax(axis=1) == [0, 1])


@pytest.mark.parametrize(("schedule", "average"), [("strong", True), ("paper", False), ("sqrt", True)])
def test_torch_loop_equals_the_compiled_one(schedule, average):
    """The loop for accelerators, run on torch's CPU device: the same steps up to the order of sums."""
    from assay.graphs.hypergraph_diffusion._torch import subgradient_on_device

    H, s = instance(15)
    options = {"schedule": schedule, "step": 0.4, "max_iter": 20, "average": average, "tol": None}
    ours = solve(H, s, 0.7, solver="subgradient", **options)
    theirs = subgradient_on_device(H, s, 0.7, "standard", "auto", device="cpu", **options)
    # a tie broken by rounding may move a vertex by a step: generic scores have none in 20 steps
    np.testing.assert_allclose(theirs.x, ours.x, atol=1e-10)
    np.testing.assert_allclose(theirs.objective, ours.objective, rtol=1e-10)
    np.testing.assert_allclose(theirs.lower_bound, ours.lower_bound, rtol=1e-8)


def test_devices_refuse_what_they_cannot_run():
    H, s = instance(0)
    with pytest.raises(InputError, match="use device='cpu'"):
        hypergraph_pagerank(H, s, cut="star", device="meta")


def test_auto_takes_the_solver_that_is_fast_here(monkeypatch):
    H = sparse_hypergraph(6000, 4, np.random.default_rng(0))
    s = np.random.default_rng(1).normal(size=(6000, 1))
    assert "y" in solve(H, s, 1.0).state  # block ascent keeps its duals
    assert "y" not in solve(H, s, 1.0, tol=None, max_iter=5).state
    monkeypatch.setenv("ASSAY_NO_NUMBA", "1")
    plain = solve(H, s, 1.0)
    assert "y" not in plain.state
    assert plain.relative_gap[0] <= 1e-2
