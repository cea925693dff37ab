"""Classification: seeds, readouts, components, new rows, explanations, scikit-learn's tools, bad labels."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, make_moons
from sklearn.model_selection import GridSearchCV

from assay import InputError
from assay._core.data import sample_path
from assay._core.files import read_table
from assay.graphs.hypergraph_diffusion import Hypergraph, HypergraphLabelPropagation, explain
from assay.graphs.hypergraph_diffusion._propagation import readout, seed_matrix


def mushrooms():
    frame = read_table(sample_path("hypergraph-diffusion", "agaricus-lepiota.data.gz"))
    return frame.drop(columns="edibility"), frame["edibility"].to_numpy().astype(object)


def visible(y, n, seed, blank=""):
    shown = np.random.default_rng(seed).choice(len(y), n, replace=False)
    out = np.full(len(y), blank, dtype=object)
    out[shown] = y[shown]
    return out, np.setdiff1d(np.arange(len(y)), shown)


def test_sizes_of_the_shipped_sample():
    X, y = mushrooms()
    H = Hypergraph.from_categorical(X)
    assert (H.n_nodes, H.n_edges, H.incidence.nnz) == (8124, 112, 170604)
    assert sorted(set(y)) == ["e", "p"]


def test_mushrooms_from_200_labels():
    X, y = mushrooms()
    labels, hidden = visible(y, 200, 0)
    model = HypergraphLabelPropagation(hypergraph="categorical").fit(X, labels)
    assert (model.transduction_[hidden] != y[hidden]).mean() < 0.05
    assert np.all(model.transduction_[labels != ""] == labels[labels != ""])
    assert model.relative_gap_ <= 1e-2
    assert model.gap_ == pytest.approx(model.history_["gap"][-1])
    assert model.n_iter_ == model.history_["n_iter"][-1]
    # a new row is placed against the others as they are, so that rows on a plateau may go another way
    again = model.predict(X.iloc[hidden])
    assert (again == model.transduction_[hidden]).mean() > 0.9
    assert (again != y[hidden]).mean() < 0.1


def test_digits_by_neighbours_beat_chance_by_far():
    X, y = load_digits(return_X_y=True)
    labels = np.full(len(y), -1)
    shown = np.random.default_rng(1).choice(len(y), 60, replace=False)
    labels[shown] = y[shown]
    model = HypergraphLabelPropagation(hypergraph="knn").fit(X, labels)
    hidden = labels < 0
    assert model.lam_ == 0.1
    assert (model.transduction_[hidden] != y[hidden]).mean() < 0.12


def test_seeds_balanced_columns_sum_to_zero():
    codes = np.array([0, 0, 1, 2, -1, -1])
    plain, balanced = (seed_matrix(codes, 3, 0.5, how) for how in ("plain", "balanced"))
    assert plain[:, 0].tolist() == [0.5, 0.5, -0.5, -0.5, 0, 0]
    np.testing.assert_allclose(balanced.sum(axis=0), 0, atol=1e-15)
    assert balanced[:, 1].tolist() == pytest.approx([-1 / 3, -1 / 3, 1.0, -1 / 3, 0, 0])


def test_readouts_average_over_hyperedges():
    H = Hypergraph.from_edges([[0, 1], [1, 2]], edge_weight=[1.0, 3.0], n_nodes=4)
    x = np.array([[1.0], [0.0], [4.0], [9.0]])
    assert readout(H, x, "vertex") is x
    assert readout(H, x, "edge").ravel().tolist() == [0.5, (0.5 + 3 * 2) / 4, 2.0, 0.0]
    np.testing.assert_allclose(readout(H, x, "edge2"), readout(H, readout(H, x, "edge"), "edge"))


def test_two_classes_are_mirrored_exactly():
    X, y = mushrooms()
    labels, _ = visible(y, 40, 2)
    H = Hypergraph.from_categorical(X)
    model = HypergraphLabelPropagation(solver="subgradient", tol=None, max_iter=30, readout="vertex").fit(H, labels)
    from assay.graphs.hypergraph_diffusion import hypergraph_pagerank

    codes = np.where(labels == "", -1, labels == "p").astype(int)
    both = hypergraph_pagerank(H, seed_matrix(codes, 2, 1.0, "balanced"), solver="subgradient", tol=None, max_iter=30)
    np.testing.assert_allclose(model.diffusion_, both, atol=1e-12)


def test_components_without_seeds_are_flagged():
    H = Hypergraph.from_edges([[0, 1, 2], [2, 3], [4, 5]], n_nodes=7)
    model = HypergraphLabelPropagation().fit(H, ["a", "", "a", "b", "", "", ""])
    assert model.unreached_.tolist() == [False] * 4 + [True] * 3
    assert model.transduction_[4:].tolist() == ["a"] * 3  # the commonest class
    assert np.all(model.scores_[4:] == 0)
    np.testing.assert_allclose(model.label_distributions_[4], [2 / 3, 1 / 3])


def test_all_labelled_returns_the_labels():
    H = Hypergraph.from_edges([[0, 1], [1, 2]])
    model = HypergraphLabelPropagation().fit(H, ["a", "b", "a"])
    assert model.transduction_.tolist() == ["a", "b", "a"]
    assert not model.unreached_.any()


@pytest.mark.parametrize(
    ("marked", "kind"),
    [
        (np.array([0, 1, -1, -1]), "iu"),
        (np.array([0.0, 1.0, np.nan, np.nan]), "f"),
        (["x", "y", None, ""], "OU"),
        (np.array(["x", "y", "", " "]), "U"),
        (pd.Series(["x", "y", None, np.nan]), "O"),
        ([0, 1, None, None], "Oif"),
    ],
)
def test_every_mark_of_unlabelled(marked, kind):
    H = Hypergraph.from_edges([[0, 2], [1, 3], [0, 1, 2, 3]])
    model = HypergraphLabelPropagation().fit(H, marked)
    first, second = np.asarray(marked, dtype=object)[:2]
    assert model.transduction_.tolist() == [first, second, first, second]


@pytest.mark.parametrize(
    ("y", "words"),
    [
        ([-1, -1, -1], "no labelled vertex"),
        ([1, 1, -1], r"one class, '1' \(-1 means unlabelled"),
        (["a", "a", ""], "one class, 'a'"),
        ([-1.0, 1.0, np.nan], "both -1 and empty"),
        ([0.5, 1.0, np.nan], "fractional"),
        (["a", 1, None], "mixes text and numbers"),
        ([0, 1], "2 labels for 3 vertices"),
        ([[0, 1], [1, 0], [0, 0]], "one-dimensional"),
        (pd.Categorical(["a", "b", None], categories=["a", "b", "c"]), r"declared class\(es\) c"),
        (None, "requires y"),
    ],
)
def test_bad_labels(y, words):
    H = Hypergraph.from_edges([[0, 1, 2]])
    with pytest.raises(InputError, match=words):
        HypergraphLabelPropagation().fit(H, y)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lam": 0.0}, "lam"),
        ({"lam": "best"}, "lam must be 'auto'"),
        ({"seeds": "even"}, "seeds must be"),
        ({"readout": "mean"}, "readout must be"),
        ({"hypergraph": "graph"}, "hypergraph must be"),
        ({"hypergraph": "knn", "n_neighbors": 0}, "n_neighbors"),
        ({"cut": "other"}, "cut must be"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(InputError, match=words):
        HypergraphLabelPropagation(**options).fit(np.eye(4)[:, [0, 1, 2, 3]] + 1, [0, 1, -1, -1])


def test_incidence_matrix_has_a_row_per_vertex():
    M = np.array([[1, 0, 1], [1, 0, 0], [0, 1, 0], [0, 1, 0]])  # the last column has one member and is dropped
    model = HypergraphLabelPropagation(readout="vertex").fit(M, [0, -1, 1, -1])
    assert model.transduction_.tolist() == [0, 0, 1, 1]
    assert model.predict([[1, 0, 0], [0, 1, 0], [0, 0, 1]]).tolist() == [0, 1, 0]
    with pytest.raises(InputError, match=r"hyperedge of the fit \(3\), got shape \(1, 1\)"):
        model.predict([[1.0]])


def test_new_rows_of_an_incidence_matrix_are_checked():
    M = np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    model = HypergraphLabelPropagation().fit(M, [0, -1, 1, -1])
    for rows, words in (
        ([[1.0, 0, 0]], "hyperedge of the fit"),
        ([[np.nan, 1.0]], "negative, NaN"),
        ([[-1.0, 1.0]], "negative, NaN"),
        ([["a", "b"]], "matrix of numbers"),
    ):
        with pytest.raises(InputError, match=words):
            model.predict(rows)


def test_more_neighbours_than_points_is_said():
    X = np.arange(8.0).reshape(4, 2)
    with pytest.warns(UserWarning, match="only 3 neighbours each"):
        HypergraphLabelPropagation(hypergraph="knn", n_neighbors=9).fit(X, [0, 1, -1, -1])


def test_new_row_minimises_its_own_problem():
    """Against a fine grid of positions."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.where(rng.random(60) < 0.3, (X[:, 0] > 0).astype(int), -1)
    model = HypergraphLabelPropagation(hypergraph="knn", readout="vertex").fit(X, y)
    new = rng.normal(size=(5, 2))
    J = model._join(new)
    scores, nothing = model._new_scores(J)
    assert not nothing.any()
    x, H = model.diffusion_[:, 0], model.hypergraph_
    grid = np.linspace(x.min(), x.max(), 40_001)
    for i in range(5):
        value = np.zeros_like(grid)
        for h in J.indices[J.indptr[i] : J.indptr[i + 1]]:
            v, w = x[H.members(h)], H.edge_weight[h]
            value += (
                0.5 * w * (np.maximum(v.max(), grid) - np.minimum(v.min(), grid)) ** 2 + 0.5 * model.lam_ * w * grid**2
            )
        assert scores[i, 0] == pytest.approx(grid[value.argmin()], abs=2 * (grid[1] - grid[0]))


@pytest.mark.parametrize("how", ["edge", "edge2", "vertex"])
@pytest.mark.parametrize("cut", ["standard", "star"])
def test_predict_agrees_with_transduction_on_moons(how, cut):
    X, y = make_moons(300, noise=0.08, random_state=0)
    labels = np.where(np.arange(300) < 12, y, -1)
    model = HypergraphLabelPropagation(hypergraph="knn", readout=how, cut=cut).fit(X, labels)
    assert (model.predict(X) == model.transduction_).mean() > 0.95
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)


def test_grid_search_over_lam():
    X, y = make_moons(120, noise=0.1, random_state=0)
    search = GridSearchCV(HypergraphLabelPropagation(hypergraph="knn"), {"lam": [0.1, 1.0]}, cv=3).fit(X, y)
    assert search.best_score_ > 0.9
    assert search.best_params_["lam"] in (0.1, 1.0)


def test_deterministic_and_cloneable():
    X, y = mushrooms()
    X, y = X.iloc[::4], y[::4]
    labels, _ = visible(y, 30, 4)
    a = HypergraphLabelPropagation(hypergraph="categorical", random_state=3).fit(X, labels)
    b = clone(a).fit(X, labels)
    np.testing.assert_array_equal(a.scores_, b.scores_)
    assert a.readout_ == b.readout_


def test_labels_in_batches_continue():
    X, y = mushrooms()
    H = Hypergraph.from_categorical(X)
    labels, _ = visible(y, 60, 5)
    more = labels.copy()
    more[np.flatnonzero(labels == "")[:10]] = y[np.flatnonzero(labels == "")[:10]]
    warm = HypergraphLabelPropagation(warm_start=True, readout="vertex", tol=1e-6).fit(H, labels)
    warm.fit(H, more)
    cold = HypergraphLabelPropagation(readout="vertex", tol=1e-6).fit(H, more)
    assert warm.n_iter_ <= cold.n_iter_
    assert warm.objective_ == pytest.approx(cold.objective_, rel=1e-5)


@pytest.fixture(scope="module")
def fitted():
    X, y = mushrooms()
    labels, _ = visible(y, 60, 7)
    return X, labels, HypergraphLabelPropagation(hypergraph="categorical").fit(X, labels)


def test_explain_names_the_groups(fitted):
    X, _, model = fitted
    table = model.explain(17)
    row = X.iloc[17]
    assert set(table["hyperedge"]) <= {f"{c}={row[c]}" for c in X.columns}
    assert np.all(table["min"] <= table["mean"]) and np.all(table["mean"] <= table["max"])  # noqa: PT018
    assert table["size"].min() >= 2
    with pytest.raises(InputError, match="row number"):
        explain(model.hypergraph_, model.diffusion_[:, 0], 8124)
    for row in (8124, -1, "17"):
        with pytest.raises(InputError, match="row number"):
            model.explain(row)


def test_suggestions_are_unlabelled_uncertain_and_spread(fitted):
    _, labels, model = fitted
    rows = model.suggest(5)
    assert len(rows) == 5
    assert np.all(labels[rows] == "")
    assert model.margin_[rows[0]] == model.margin_[labels == ""].min()
    H, T = model.hypergraph_, model.hypergraph_.by_node
    of = [[h for h in T.indices[T.indptr[i] : T.indptr[i + 1]] if 2 * H.sizes[h] <= H.n_nodes] for i in rows]
    largest = [max(edges, key=lambda h: (H.sizes[h], -h)) for edges in of]
    assert len(set(largest)) == len(rows)
    with pytest.raises(InputError, match="k must be"):
        model.suggest(0)


def test_a_component_nobody_labelled_is_suggested_first():
    H = Hypergraph.from_edges([[0, 1, 2], [2, 3], [4, 5]])
    model = HypergraphLabelPropagation().fit(H, ["a", "", "a", "b", "", ""])
    assert model.suggest(1)[0] in (4, 5)
