"""The estimator: exactness, guarantees, constraints, determinism."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from assay._core.errors import InputError
from assay.graphs.semirandom_cut import SemiRandomBisection, adversary, make_semirandom_cut
from assay.graphs.semirandom_cut._bisection import _bisect
from assay.graphs.semirandom_cut._connected import is_connected_split

FAST = {"n_iter": 100, "n_directions": 10, "random_state": 0}


def _graph(n=300, seed=0, **kwargs):
    moves = [adversary.random(6), adversary.tendrils(0.2, 6), adversary.cliques(1, 15)]
    return make_semirandom_cut(n, adversary=moves, random_state=seed, **kwargs)


@pytest.fixture(scope="module")
def fitted():
    W, _y, info = _graph()
    return SemiRandomBisection(**FAST).fit(W), W, info


def _random_weights(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 15))
    A = np.triu((rng.random((n, n)) < rng.random()) * rng.integers(1, 6, (n, n)), 1).astype(float)
    return A + A.T


def _brute_force(A, balance):
    n = len(A)
    low = max(1, min(int(np.ceil(balance * n - 1e-9)), n // 2))
    codes = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    codes = codes[(codes.sum(axis=1) >= low) & (codes.sum(axis=1) <= n - low)]
    return np.einsum("si,ij,sj->s", codes, A, 1 - codes, optimize=True).min()


@pytest.mark.parametrize("balance", [0.2, 0.45, 0.5])
def test_small_graphs_are_solved_exactly(balance):
    for seed in range(6):  # a hundred per balance in the slow test below
        A = _random_weights(seed)
        model = SemiRandomBisection(balance=balance, n_iter=30, random_state=0).fit(A)
        assert model.cut_ == _brute_force(A, balance) == model.lower_bound_
        assert model.lower_bound_kind_ == "exact"


@pytest.mark.slow
@pytest.mark.parametrize("balance", [0.2, 0.45, 0.5])
def test_hundred_small_graphs_per_balance(balance):
    for seed in range(100):
        A = _random_weights(1000 + seed)
        assert SemiRandomBisection(balance=balance, n_iter=30, random_state=0).fit(A).cut_ == _brute_force(A, balance)


def test_portfolio_alone_is_near_the_optimum(monkeypatch):
    from assay.graphs.semirandom_cut import _bisection

    monkeypatch.setattr(_bisection, "EXACT_LIMIT", 0)
    for seed in range(5):
        A = _random_weights(seed)
        model = SemiRandomBisection(balance=0.3, random_state=0, n_iter=60, n_directions=10).fit(A)
        optimum = _brute_force(A, 0.3)
        assert model.lower_bound_ <= optimum <= model.cut_ <= 1.1 * optimum


def test_cut_is_an_exact_recount(fitted):
    model, W, _ = fitted
    x = model.labels_.astype(float)
    assert model.cut_ == x @ (W @ (1 - x))
    assert model.balance_ == min(x.sum(), (1 - x).sum()) / x.size >= 0.45
    degree = np.asarray(W.sum(axis=1)).ravel()
    assert model.conductance_ == pytest.approx(model.cut_ / min(degree @ x, degree @ (1 - x)))


def test_cut_is_certified_and_within_the_planted_one(fitted):
    model, _, info = fitted
    assert 0 < model.lower_bound_ <= model.cut_ <= 1.05 * info["planted_cut"]
    assert model.lower_bound_kind_ == "cholesky"
    assert model.lower_bound_ == np.ceil(model.lower_bound_)


def test_attributes(fitted):
    model, W, _ = fitted
    assert set(np.unique(model.labels_)) == {0, 1}
    assert model.embedding_.shape == (300, 8)
    assert list(model.candidates_.columns) == ["name", "cut", "balance", "seconds"]
    assert model.candidates_["cut"].iloc[0] == model.cut_
    assert (model.candidates_["balance"] >= 0.45 - 1e-12).all()
    assert model.candidates_["cut"].is_monotonic_increasing
    assert len(model.sweep_profile_) <= 500
    assert model.sweep_profile_["share"].between(0, 1).all()
    assert model.n_graph_components_ == sp.csgraph.connected_components(W)[0]


@pytest.mark.slow  # the contract suite asks the same of every container
def test_csr_dense_and_networkx_agree(fitted):
    model, W, _ = fitted
    for other in (W.toarray(), W.tocoo(), nx.from_scipy_sparse_array(W)):
        assert np.array_equal(SemiRandomBisection(**FAST).fit(other).labels_, model.labels_)


def test_threads_do_not_change_labels():
    W, _, _ = _graph(2000)
    settings = {"certify": False, "n_iter": 10, "n_directions": 16, "heavy": False, "refine": False, "random_state": 3}
    runs = [SemiRandomBisection(n_jobs=j, **settings).fit(W).labels_ for j in (1, 2)]
    assert np.array_equal(runs[0], runs[1])


def test_scaling_weights_scales_cut_and_bound(fitted):
    model, W, _ = fitted
    scaled = SemiRandomBisection(**FAST).fit(W * 8.0)
    assert np.array_equal(scaled.labels_, model.labels_)
    assert scaled.cut_ == 8 * model.cut_
    # the bound of whole weights is rounded up to a whole number
    assert 8 * model.lower_bound_ - 8 <= scaled.lower_bound_ <= 8 * model.lower_bound_ + 1


@pytest.mark.parametrize("balance", [0.1, 0.3, 0.5])
def test_balance_is_hard(balance):
    W, _, _ = _graph(201, seed=2)
    model = SemiRandomBisection(balance=balance, **FAST).fit(W)
    low = min(np.ceil(balance * 201), 100)
    assert low <= model.labels_.sum() <= 201 - low


def test_bisection_differs_by_at_most_one():
    W, _, _ = _graph(201, seed=3)
    model = SemiRandomBisection(objective="bisection", **FAST).fit(W)
    assert abs(2 * int(model.labels_.sum()) - 201) == 1
    assert model.lower_bound_ <= model.cut_


@pytest.mark.parametrize("objective", ["sparsest", "conductance"])
def test_ratio_objectives_find_the_bottleneck(objective):
    a = make_semirandom_cut(120, eta=20.0, random_state=0)[0]
    b = make_semirandom_cut(60, eta=20.0, random_state=1)[0]
    W = sp.lil_array(sp.block_diag([a, b]))
    for i in range(3):
        W[i, 120 + i] = W[120 + i, i] = 1
    model = SemiRandomBisection(balance=0.1, objective=objective, **FAST).fit(W.tocsr())
    # a vertex without edges may change sides, nothing else
    sides = np.bincount(model.labels_)
    assert model.cut_ <= 3
    assert sides.min() >= 60
    assert model.lower_bound_ <= 3


def test_vertex_weights_define_the_balance():
    W, _, _ = _graph(200, seed=4)
    w = np.random.default_rng(0).integers(1, 9, 200)
    model = SemiRandomBisection(**FAST).fit(W, sample_weight=w)
    share = w[model.labels_ == 1].sum() / w.sum()
    assert model.balance_ == pytest.approx(min(share, 1 - share))
    assert model.balance_ >= 0.45
    assert model.lower_bound_ <= model.cut_
    real = SemiRandomBisection(**FAST).fit(W, sample_weight=w * 0.31)
    assert real.balance_ >= 0.45 - 1e-9


def test_disconnected_graph_and_vertex_weights():
    blocks = [make_semirandom_cut(n, eta=12.0, random_state=n)[0] for n in (60, 50, 30)]
    W = sp.block_diag([*blocks, sp.csr_array((4, 4))]).tocsr()
    model = SemiRandomBisection(balance=0.44, **FAST).fit(W)
    assert model.cut_ == 0
    # sides of 60 + 4 ... against 80: the weight of one block makes the zero cut impossible
    w = np.ones(144)
    w[:60] = 4
    heavy = SemiRandomBisection(balance=0.45, **FAST).fit(W, sample_weight=w)
    assert heavy.cut_ > 0
    assert heavy.balance_ >= 0.45


def test_fixed_and_must_link():
    W, _, _ = _graph(250, seed=5)
    fixed = {0: 1, 1: 0, 2: 0, 3: 1}
    links = [(4, 5), (6, 7, 8), (9, 0)]
    model = SemiRandomBisection(**FAST).fit(W, fixed=fixed, must_link=links)
    assert model.labels_[[0, 1, 2, 3]].tolist() == [1, 0, 0, 1]
    assert all(len(set(model.labels_[list(group)])) == 1 for group in links)
    assert model.labels_[9] == 1
    assert model.balance_ >= 0.45
    x = model.labels_.astype(float)
    assert model.cut_ == x @ (W @ (1 - x))
    assert 0 < model.lower_bound_ <= model.cut_
    assert model.embedding_.shape == (250, 8)
    one = SemiRandomBisection(**FAST).fit(W, fixed={7: 1})
    assert one.labels_[7] == 1


@pytest.mark.parametrize("seed", range(4))
def test_pinned_bound_holds_on_small_graphs(seed, monkeypatch):
    from assay.graphs.semirandom_cut import _bisection

    monkeypatch.setattr(_bisection, "EXACT_LIMIT", 0)
    A = np.triu(np.random.default_rng(seed).integers(0, 4, (11, 11)), 1).astype(float)
    A = A + A.T
    model = SemiRandomBisection(balance=0.3, **FAST).fit(A, fixed={0: 0, 10: 1}, must_link=[(1, 2)])
    best = np.inf
    for code in itertools.product([0, 1], repeat=11):
        x = np.array(code)
        if x[0] == 0 and x[10] == 1 and x[1] == x[2] and 4 <= x.sum() <= 7:
            best = min(best, x @ A @ (1 - x))
    assert model.lower_bound_ <= best <= model.cut_


def test_names_of_networkx_nodes():
    G = nx.karate_club_graph()
    model = SemiRandomBisection(**FAST).fit(nx.relabel_nodes(G, {i: f"m{i}" for i in G}), fixed={"m0": 0, "m33": 1})
    assert model.labels_[0] == 0
    assert model.labels_[33] == 1


@pytest.mark.parametrize(
    ("fixed", "links"),
    [
        ({0: 0, 1: 1}, [(0, 1)]),
        ({999: 0}, None),
        ({0: 2}, None),
        (None, [(0, "x")]),
        (None, [range(300)]),
    ],
)
def test_bad_constraints(fixed, links):
    with pytest.raises(InputError):
        SemiRandomBisection(**FAST).fit(_graph()[0], fixed=fixed, must_link=links)


def test_connected_sides():
    G = nx.grid_2d_graph(9, 14)
    model = SemiRandomBisection(connected=True, **FAST).fit(G)
    W = nx.to_scipy_sparse_array(G, dtype=float).tocsr()
    assert is_connected_split(W, model.labels_)
    assert model.cut_ == 9
    assert model.balance_ >= 0.45
    W, _, _ = _graph(160, seed=6)
    label = sp.csgraph.connected_components(W)[1]
    keep = np.flatnonzero(label == np.bincount(label).argmax())
    inner = W[keep][:, keep]
    model = SemiRandomBisection(connected=True, **FAST).fit(inner)
    assert is_connected_split(inner, model.labels_)
    assert model.balance_ >= 0.45


def test_connected_sides_of_a_star_do_not_exist():
    with pytest.raises(InputError, match="connected"):
        SemiRandomBisection(connected=True, **FAST).fit(nx.star_graph(9))


def test_connected_needs_a_connected_graph():
    with pytest.raises(InputError, match="components"):
        SemiRandomBisection(connected=True, **FAST).fit(np.zeros((5, 5)))


def test_no_edges_give_a_balanced_zero_cut():
    model = SemiRandomBisection(**FAST).fit(np.zeros((7, 7)))
    assert model.cut_ == 0
    assert sorted(np.bincount(model.labels_).tolist()) == [3, 4]


@pytest.mark.parametrize(("init", "dtype"), [("spectral", "float64"), ("random", "float32")])
def test_other_starts_and_precisions(init, dtype):
    W, _, info = _graph(200, seed=7)
    model = SemiRandomBisection(init=init, dtype=dtype, **FAST).fit(W)
    assert model.lower_bound_ <= model.cut_ <= 1.05 * info["planted_cut"]


def test_without_numba(monkeypatch):
    W, _, _ = _graph(60, seed=8)
    settings = {"n_iter": 30, "n_directions": 3, "random_state": 0}
    fast = SemiRandomBisection(**settings).fit(W)
    monkeypatch.setenv("ASSAY_NO_NUMBA", "1")
    assert SemiRandomBisection(**settings).fit(W).cut_ == fast.cut_


def test_stability_finds_the_borderline_vertices():
    # two cliques and a path between them: the middle of the path is borderline, the cliques are not
    G = nx.barbell_graph(20, 5)
    model = SemiRandomBisection(balance=0.4, **FAST).fit(G)
    agreement = model.stability(n=4)
    assert agreement.shape == (45,)
    assert agreement.min() >= 0
    assert agreement.max() <= 1
    assert agreement[:19].mean() > 0.9
    assert np.array_equal(agreement, model.stability(n=4))
    with pytest.raises(InputError):
        model.stability(n=0)


def test_explain_adversary_counts_what_was_planted():
    moves = [adversary.random(6), adversary.tendrils(0.2, 10), adversary.cliques(2, 20), adversary.hubs(1, 150)]
    W, _, info = make_semirandom_cut(600, adversary=moves, random_state=1)
    table = SemiRandomBisection(**FAST).fit(W).explain_adversary(min_clique=10).set_index("structure")
    assert table.loc["cliques", "count"] == 4
    assert table.loc["hubs", "count"] == 2
    assert table.loc["pendant trees", "vertices"] >= (~info["core"]).sum()
    assert table.loc["pendant trees", "fiedler_mass"] > 0.5
    assert table["fiedler_mass"].between(0, 1).all()
    assert table["cut_edges"].between(0, 1).all()


def test_methods_need_a_fit():
    with pytest.raises(NotFittedError):
        SemiRandomBisection().stability()


@pytest.mark.parametrize(
    "params",
    [
        {"balance": 0},
        {"balance": 0.6},
        {"balance": "x"},
        {"objective": "x"},
        {"solver": "x"},
        {"init": "x"},
        {"n_components": 0},
        {"n_iter": 0},
        {"n_directions": 2.5},
        {"dtype": "int8"},
    ],
)
def test_bad_parameters(params):
    with pytest.raises(InputError, match=next(iter(params))):
        SemiRandomBisection(**params).fit(np.ones((4, 4)) - np.eye(4))


@pytest.mark.parametrize("weights", [[1, 1, 1], [1, 1, 1, 0], [1, 1, 1, np.nan], [1, 1, 1, 9]])
def test_bad_vertex_weights(weights):
    with pytest.raises(InputError, match="weigh"):
        SemiRandomBisection().fit(np.ones((4, 4)) - np.eye(4), sample_weight=weights)


def test_scikit_learn_conventions():
    model = SemiRandomBisection(balance=0.3, n_iter=20)
    assert clone(model).get_params() == model.get_params()
    W, _, _ = _graph(60)
    assert np.array_equal(
        clone(model).set_params(random_state=1).fit_predict(W), model.set_params(random_state=1).fit(W).labels_
    )
    copy = W.copy()
    model.fit(W)
    assert (copy != W).nnz == 0


@pytest.mark.parametrize(("low", "high"), [(0.3, 0.36), (0.5, 0.5), (0.2, 0.25)])
def test_bisect_for_recursive_partitioning(low, high):
    W, _, _ = _graph(240, seed=9)
    labels = _bisect(W, low=low, high=high, n_iter=60, n_directions=8, rng=np.random.default_rng(0))
    assert low - 0.5 / 240 <= labels.mean() <= high + 0.5 / 240


@pytest.mark.slow
def test_large_graph_in_time_and_memory():
    import resource
    import time

    moves = [adversary.tendrils(0.3, 20), adversary.random(8), adversary.cliques(40, 40)]
    W, _, info = make_semirandom_cut(128_000, eta=6.0, adversary=moves, random_state=0)
    began = time.process_time()
    model = SemiRandomBisection(random_state=0).fit(W)
    assert time.process_time() - began < 60
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2 * 2**20  # KiB: the whole process below 2 GiB
    assert model.lower_bound_ <= model.cut_ <= 1.05 * info["planted_cut"]


def test_it_says_whether_the_relaxation_had_settled():
    grid = SemiRandomBisection(random_state=0).fit(nx.grid_2d_graph(24, 24))
    W, _, _ = make_semirandom_cut(300, adversary=[adversary.random(8)], random_state=0)
    planted = SemiRandomBisection(random_state=0).fit(W)
    assert planted.converged_
    assert not grid.converged_
    # what the flag is about: the value is near the optimum, or not
    assert planted.sdp_value_ <= 1.05 * planted.lower_bound_
    assert not SemiRandomBisection(n_iter=5, random_state=0).fit(W).converged_
    longer = SemiRandomBisection(n_iter=5000, random_state=0).fit(nx.grid_2d_graph(24, 24))
    assert longer.sdp_value_ < 0.95 * grid.sdp_value_
