"""The command line's work: ids as in the input, artefacts that can be read back, a report in plain words."""

import warnings

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.cluster.hierarchy import is_valid_linkage

from assay.graphs.semirandom_cut import _job, _report, cut_value, dasgupta_cost, read_graph, write_metis
from assay.testing import FakeRun, data_dir, run_cli


@pytest.fixture
def karate(tmp_path):
    path = tmp_path / "karate.csv"
    G = nx.karate_club_graph()
    path.write_text("source,target\n" + "".join(f"m{a},m{b}\n" for a, b in G.edges))
    return path


@pytest.fixture
def no_pictures(monkeypatch):
    """Drawing is two thirds of a report's time, and other tests look at it."""
    import matplotlib.pyplot as plt

    monkeypatch.setattr(FakeRun, "figure", lambda self, name, fig, **_: plt.close(fig))


def text_of(run):
    return " ".join(p for s in run.sections if s["kind"] == "text" for p in s["paragraphs"])


def test_fit_two_sides(karate, tmp_path):
    run = FakeRun(tmp_path / "out", seed=0)
    _job.fit(karate, stability=2, run=run)
    run.finish()
    W, names = read_graph(karate)
    labels = pd.read_csv(run.out / "artefacts/labels.csv")
    assert list(labels.columns) == ["id", "part"]
    assert labels["id"].tolist() == names.tolist()
    assert cut_value(W, labels["part"].to_numpy()) == run.results["cut"] == 10  # the optimum at this balance
    assert run.results["lower_bound"] <= 10
    assert run.results["at_most_times_optimum"] == pytest.approx(10 / run.results["lower_bound"])
    assert np.load(run.out / "artefacts/embedding.npy").shape[0] == 34
    candidates = pd.read_csv(run.out / "artefacts/candidates.csv")
    assert candidates["cut"].min() == 10
    assert (candidates["balance"] >= 0.45 - 1e-9).all()
    for name in ("embedding", "sweep", "candidates"):
        assert list((run.out / "figures").glob(f"{name}.*"))
    words = text_of(run)
    assert "No cut with both sides >= 45 % can be below" in words or "This cut is optimal" in words
    assert "kept their side" in words
    page = (run.out / "report.html").read_text()
    assert "The cut in words" in page


def test_compare_lists_the_peers(karate, tmp_path, no_pictures):
    run = FakeRun(tmp_path / "out")
    _job.compare(karate, run=run)
    table = pd.read_csv(run.out / "artefacts/compare.csv")
    assert table["method"][0] == "semirandom-cut"
    assert {"spectral, sweep", "spectral, median", "random cut", "Kernighan-Lin (networkx)"} <= set(table["method"])
    legal = table[table["within_balance"].astype(bool)]
    assert (legal["balance"] >= 0.45 - 1e-9).all()
    assert legal["cut"].min() >= run.results["lower_bound"]
    assert "Against other methods" in [s.get("heading") for s in run.sections]


def test_fit_several_parts(karate, tmp_path):
    run = FakeRun(tmp_path / "out")
    _job.fit(karate, parts=4, compare=True, run=run)
    labels = pd.read_csv(run.out / "artefacts/labels.csv")["part"]
    assert sorted(labels.unique()) == [0, 1, 2, 3]
    assert labels.value_counts().max() <= 1.1 * 9
    parts = pd.read_csv(run.out / "artefacts/parts.csv")
    assert parts["vertices"].sum() == 34
    assert parts["edge_weight_leaving"].sum() / 2 == run.results["edge_cut"]
    assert parts["edge_weight_inside"].sum() + run.results["edge_cut"] == 78


def test_vertex_weights_of_a_metis_file_are_balanced(tmp_path, no_pictures):
    weight = np.ones(20, dtype=int)
    weight[0] = 18
    write_metis(tmp_path / "g.graph", nx.to_scipy_sparse_array(nx.path_graph(20), dtype=float), vertex_weights=weight)
    run = FakeRun(tmp_path / "out")
    _job.fit(tmp_path / "g.graph", stability=0, run=run)
    labels = pd.read_csv(run.out / "artefacts/labels.csv")
    assert labels["id"].tolist() == list(range(1, 21))
    share = weight[labels["part"].to_numpy() == 1].sum() / weight.sum()
    assert 0.45 <= share <= 0.55
    assert run.results["cut"] == 1


def test_analyse_leaves_a_tree(karate, tmp_path):
    run = FakeRun(tmp_path / "out")
    _job.analyse(karate, clusters=3, leaf_size=8, run=run)
    W, names = read_graph(karate)
    Z = np.load(run.out / "artefacts/linkage.npy")
    assert is_valid_linkage(Z)
    assert dasgupta_cost(Z, W) == run.results["hierarchy_cost"]
    newick = (run.out / "artefacts/tree.newick").read_text().strip()
    assert newick.endswith(";")
    assert newick.count(",") == 33
    assert all(f"{name}:" in newick for name in names)
    costs = pd.read_csv(run.out / "artefacts/hierarchy_costs.csv")
    assert "average linkage" in set(costs["method"])
    assert costs["cost"][0] == run.results["hierarchy_cost"]
    clusters = pd.read_csv(run.out / "artefacts/clusters.csv")["cluster"]
    assert clusters.nunique() == 3


@pytest.mark.slow  # two whole reports; the estimators' own determinism is in the default tests
def test_same_seed_same_result(karate, tmp_path):
    tables = []
    for k in range(2):
        run = FakeRun(tmp_path / f"out{k}", seed=4)
        _job.fit(karate, stability=1, run=run)
        tables.append(
            (run.out / "artefacts/labels.csv").read_bytes() + (run.out / "artefacts/borderline.csv").read_bytes()
        )
    assert tables[0] == tables[1]


@pytest.mark.parametrize(
    "graph",
    [
        np.zeros((6, 6)),
        sp.block_diag([np.ones((4, 4)) - np.eye(4)] * 2).toarray(),
        pytest.param([[0, 1], [1, 0]], marks=pytest.mark.slow),
        pytest.param(np.ones((5, 5)) - np.eye(5), marks=pytest.mark.slow),
        pytest.param(0.5 * (np.ones((30, 30)) - np.eye(30)), marks=pytest.mark.slow),
    ],
    ids=["no edges", "two components", "one edge", "clique", "real weights"],
)
def test_odd_graphs_go_through_every_picture(graph, tmp_path):
    np.savez(tmp_path / "g.npz", np.asarray(graph, dtype=float))
    run = FakeRun(tmp_path / "out")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _job.fit(tmp_path / "g.npz", stability=1, compare=True, run=run)
        _job.analyse(tmp_path / "g.npz", clusters=2, run=run)
    run.finish()
    assert (run.out / "report.html").exists()


def test_an_interrupted_run_keeps_its_finished_cut(karate, tmp_path, monkeypatch):
    from assay.graphs.semirandom_cut import SemiRandomBisection

    fits, cuts = [], []
    fit = SemiRandomBisection.fit
    monkeypatch.setattr(SemiRandomBisection, "fit", lambda self, *a, **k: fits.append(1) or fit(self, *a, **k))
    monkeypatch.setattr(_job, "_report_cut", lambda data, cut, *rest: cuts.append(cut))
    _job.fit(karate, run=FakeRun(tmp_path / "out", seed=0))  # as far as an interrupted run came
    _job.fit(karate, run=FakeRun(tmp_path / "out", seed=0, resume=True))
    assert len(fits) == 1
    whole, resumed = cuts
    for name in ("labels_", "embedding_"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(resumed, name))
    for name in ("candidates_", "sweep_profile_"):
        pd.testing.assert_frame_equal(getattr(whole, name), getattr(resumed, name))
    numbers = [{k: v for k, v in vars(cut).items() if k.endswith("_") and np.isscalar(v)} for cut in cuts]
    assert numbers[0] == numbers[1]
    np.testing.assert_array_equal(whole.stability(1), resumed.stability(1))
    pd.testing.assert_frame_equal(whole.explain_adversary(), resumed.explain_adversary())
    # another balance is another cut: nothing is taken over
    _job.fit(karate, balance=0.3, run=FakeRun(tmp_path / "out", seed=0, resume=True))
    assert len(fits) == 2


@pytest.mark.parametrize(
    ("kind", "options"),
    [("SemiRandomKWay", {"parts": 3}), ("DasguptaHierarchy", {"clusters": 3, "leaf_size": 8})],
)
def test_an_interrupted_run_keeps_its_finished_parts_and_tree(
    karate, tmp_path, monkeypatch, no_pictures, kind, options
):
    import assay.graphs.semirandom_cut as method

    fits = []
    cls = getattr(method, kind)
    fit = cls.fit
    monkeypatch.setattr(cls, "fit", lambda self, *a, **k: fits.append(1) or fit(self, *a, **k))
    verb = _job.fit if "parts" in options else _job.analyse
    runs = [FakeRun(tmp_path / "out", seed=0), FakeRun(tmp_path / "out", seed=0, resume=True)]
    for run in runs:
        verb(karate, **options, run=run)
    assert len(fits) == 1
    assert runs[0].results == runs[1].results
    other = {name: value + 1 for name, value in options.items()}  # other settings are other work
    verb(karate, **other, run=FakeRun(tmp_path / "out", seed=0, resume=True))
    assert len(fits) == 2


def test_self_loops_become_a_note(tmp_path, no_pictures):
    (tmp_path / "g.csv").write_text("a,b\nb,c\nc,d\nd,d\n")
    run = FakeRun(tmp_path / "out")
    _job.fit(tmp_path / "g.csv", stability=0, run=run)
    assert any("dropped 1 self-loop" in note for note in run.warnings)


def test_gap_sentences():
    assert "optimal: no cut" in _report.gap_sentence(10, 10, 0.45, "exact")
    middle = _report.gap_sentence(137, 100, 0.45, "lanczos")
    assert "both sides >= 45 % can be below 100" in middle
    assert "within 37 % of optimal" in middle
    assert "checked numerically" in middle
    assert "checked numerically" not in _report.gap_sentence(137, 100, 0.45, "cholesky")
    assert "no bound above 0" in _report.gap_sentence(5, 0, 0.45, "lanczos")
    assert "worth" not in _report.gap_sentence(5, 0, 0.45, "lanczos", 4.9)
    assert "worth at most 77.2" in _report.gap_sentence(137, 0, 0.45, "lanczos", 77.19)


def test_principal_plane_is_the_svd():
    X = np.random.default_rng(0).standard_normal((50, 8)) * np.arange(1, 9)
    plane, share = _report.principal_plane(X)
    U, S, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(np.abs(plane), np.abs(U[:, :2] * S[:2]), atol=1e-9)
    np.testing.assert_allclose(share, S[:2] ** 2 / (S**2).sum())


def test_command_line(karate, tmp_path):
    result = run_cli("semirandom-cut", "analyse", karate, "--clusters", 3, "--out", tmp_path / "out")
    assert result.code == 0, result.err
    assert (tmp_path / "out" / "artefacts" / "clusters.csv").exists()
    assert (tmp_path / "out" / "result.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4elt.graph.gz", "delaunay_n15.graph.gz", "rgg_n_2_15_s0.graph.gz"])
def test_meshes(name, tmp_path):
    path = data_dir("semirandom-cut") / name
    result = run_cli("semirandom-cut", "compare", path, "--out", tmp_path / "out")
    assert result.code == 0, result.err
    table = pd.read_csv(tmp_path / "out" / "artefacts" / "compare.csv").set_index("method")
    for peer in [p for p in table.index if p.startswith("METIS")]:
        assert table.loc["semirandom-cut", "cut"] <= table.loc[peer, "cut"]


@pytest.mark.slow
def test_polblogs(tmp_path):
    path = data_dir("private-sbm") / "polblogs.gml"
    for verb in ("fit", "analyse"):
        result = run_cli("semirandom-cut", verb, path, "--out", tmp_path / verb)
        assert result.code == 0, result.err
    labels = pd.read_csv(tmp_path / "fit" / "artefacts" / "labels.csv")
    G = nx.read_gml(path, label="id")
    truth = {data["label"]: data["value"] for _, data in G.nodes(data=True)}
    agree = np.mean([truth[name] == part for name, part in zip(labels["id"], labels["part"], strict=True)])
    # the two political camps: measured .95
    assert max(agree, 1 - agree) > 0.9
