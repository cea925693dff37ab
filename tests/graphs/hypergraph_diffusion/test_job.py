"""The command line on tables, points and hypergraphs; every bad input exits 2 with one sentence."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_moons

from assay._core.data import sample_path
from assay._core.files import read_table
from assay.testing import data_dir, run_cli

SLUG = "hypergraph-diffusion"


def run(*words, out):
    return run_cli(SLUG, *words, "--out", out, "--quiet")


@pytest.fixture(scope="module")
def mushrooms(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("mushrooms")
    frame = read_table(sample_path(SLUG, "agaricus-lepiota.data.gz")).iloc[::8].reset_index(drop=True)
    truth = frame["edibility"].copy()
    frame.loc[frame.index % 12 != 0, "edibility"] = None
    path = tmp_path / "mushrooms.csv"
    frame.to_csv(path, index=False)
    return path, truth.to_numpy()


@pytest.fixture(scope="module")
def predicted(mushrooms, tmp_path_factory):
    """One run that several tests read."""
    out = tmp_path_factory.mktemp("predicted") / "out"
    done = run("predict", mushrooms[0], "--label", "edibility", "--seed", 4, out=out)
    assert done.code == 0, done.err
    return out


@pytest.fixture
def no_figures(monkeypatch):
    """For tests of numbers: drawing takes two thirds of a small run, and others look at the figures."""
    from assay._core.run import Run

    monkeypatch.setattr(Run, "figure", lambda *args, **options: None)


def test_predict_table(mushrooms, predicted):
    truth, out = mushrooms[1], predicted
    table = pd.read_csv(out / "artefacts" / "predictions.csv")
    assert table.columns.tolist() == ["row", "label", "score", "margin", "unreached", "given"]
    open_ = ~table["given"].to_numpy()
    assert (table["label"].to_numpy()[open_] == truth[open_]).mean() > 0.85
    result = json.loads((out / "result.json").read_text())["result"]
    assert result["relative_gap"] <= 1e-3
    assert np.load(out / "artefacts" / "scores.npy").shape == (len(truth), 2)
    edges = pd.read_csv(out / "artefacts" / "edges.csv")
    assert {"hyperedge", "size", "weight", "towards", "pull", "mean_e", "mean_p", "pull_e", "pull_p"} == set(
        edges.columns
    )
    assert edges["pull"].is_monotonic_decreasing
    foul = edges.set_index("hyperedge").loc["odor=f"]  # every mushroom that smells foul is poisonous
    assert foul["towards"] == "p"
    assert (out / "figures" / "convergence.svg").exists()
    assert (out / "figures" / "categories.svg").exists()
    assert len(pd.read_csv(out / "artefacts" / "suggestions.csv")) >= 1


def test_the_same_seed_gives_the_same_file(mushrooms, predicted, tmp_path, no_figures):
    assert run("predict", mushrooms[0], "--label", "edibility", "--seed", 4, out=tmp_path / "b").code == 0
    first, second = ((out / "artefacts" / "predictions.csv").read_bytes() for out in (predicted, tmp_path / "b"))
    assert first == second


def test_evaluate_table(tmp_path):
    out = tmp_path / "out"
    done = run(
        "evaluate",
        sample_path(SLUG, "zoo.csv"),
        "--label",
        "type",
        "--drop",
        "animal_name",
        "--labelled",
        40,
        "--repeats",
        2,
        out=out,
    )
    assert done.code == 0, done.err
    errors = pd.read_csv(out / "artefacts" / "errors.csv")
    assert errors.groupby("method").size().tolist() == [2, 2, 2]
    assert errors["error_percent"].max() < 50
    for name in ("errors", "confusion", "categories", "convergence"):
        assert (out / "figures" / f"{name}.svg").exists()


def test_predict_points(tmp_path):
    X, y = make_moons(200, noise=0.08, random_state=0)
    frame = pd.DataFrame(X, columns=["a", "b"])
    frame["y"] = [str(v) if i < 10 else "" for i, v in enumerate(y)]
    path = tmp_path / "points.tsv"
    frame.to_csv(path, sep="\t", index=False)
    out = tmp_path / "out"
    done = run("predict", "--knn", path, "-k", 5, "--label", "y", out=out)
    assert done.code == 0, done.err
    table = pd.read_csv(out / "artefacts" / "predictions.csv")
    assert (table["label"].to_numpy() == y).mean() > 0.9
    assert list((out / "figures").glob("scores.*"))
    edges = pd.read_csv(out / "artefacts" / "edges.csv")
    # the strongest hyperedge of a class is named after a row of that class, counted as in predictions.csv
    centre = edges["hyperedge"].str.removeprefix("around row ").astype(int)
    assert (table.set_index("row").loc[centre, "label"].to_numpy() == edges["towards"].to_numpy()).mean() > 0.95


HMETIS = "5 7\n1 2 3\n1 2\n3 4\n4 5 6\n5 6\n"
LABELS = "tea coffee\n0\n-1\n-1\n-1\n-1\n1\n-1\n"


@pytest.fixture
def hypergraph(tmp_path):
    (tmp_path / "g.hmetis").write_text(HMETIS)
    (tmp_path / "g.labels").write_text(LABELS)
    return tmp_path / "g.hmetis", tmp_path / "g.labels"


def test_predict_hypergraph_with_an_unreached_vertex(hypergraph, tmp_path, no_figures):
    out = tmp_path / "out"
    done = run("predict", "--hmetis", hypergraph[0], "--labels", hypergraph[1], out=out)
    assert done.code == 0, done.err
    table = pd.read_csv(out / "artefacts" / "predictions.csv")
    assert table["label"].tolist()[:6] == ["tea"] * 3 + ["coffee"] * 3
    assert table["unreached"].tolist() == [False] * 6 + [True]
    report = json.loads((out / "result.json").read_text())
    assert any("no chain of hyperedges" in note for note in report["warnings"])


def test_analyse(hypergraph, tmp_path):
    out = tmp_path / "out"
    done = run("analyse", hypergraph[0], "--around", "5,6", out=out)
    assert done.code == 0, done.err
    table = pd.read_csv(out / "artefacts" / "cluster.csv")
    assert sorted(table.loc[table["inside"], "vertex"]) == [4, 5, 6]
    assert (out / "figures" / "conductance.svg").exists()
    pairs = tmp_path / "clubs.csv"
    pairs.write_text("who,club\nann,tea\nbob,tea\nbob,golf\ncid,golf\ncid,chess\nann,chess\ndan,tea\n")
    assert run("analyse", pairs, "--around", "ann", out=tmp_path / "pairs").code == 0


def test_a_seed_outside_the_cluster_is_said(tmp_path, no_figures):
    """One seed in a clique, one on a long band that hangs on it."""
    clique = [list(edge) for edge in itertools.combinations(range(1, 6), 3)]
    edges = [*clique, [5, 6], *([i, i + 1, i + 2] for i in range(6, 40))]
    path = write(tmp_path / "g.hm", f"{len(edges)} 41\n" + "".join(" ".join(map(str, e)) + "\n" for e in edges))
    out = tmp_path / "out"
    assert run("analyse", path, "--around", "1,25", "--lam", "0.02", out=out).code == 0
    table = pd.read_csv(out / "artefacts" / "cluster.csv")
    assert set(table.loc[table["inside"], "vertex"]) == {1, 2, 3, 4, 5, 6}
    assert "outside the cluster lie 1 of the given vertices (25)" in notes(out)
    assert notes(out).count("outside") == 1


@pytest.mark.slow  # reads four megabytes of text
def test_dblp(tmp_path):
    folder = data_dir(SLUG)
    out = tmp_path / "out"
    assert run("analyse", folder / "dblp.hmetis.gz", "--around", "12,40", out=out).code == 0
    result = json.loads((out / "result.json").read_text())["result"]
    assert result["relative_gap"] <= 1e-2


def write(path, content):
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content)
    return path


TABLES = {
    "missing label column": ("a,b\nx,1\ny,2\n", [], "no column 'label'"),
    "no rows": ("a,label\n", [], "no rows"),
    "empty file": ("", [], "is empty"),
    "one class": ("a,label\nx,1\nx,1\nx,\n", [], "one class, '1'"),
    "no label": ("a,label\nx,\nx,\n", [], "no labelled vertex"),
    "only the label": ("label\n1\n2\n", [], "no column is left"),
    "wrong delimiter": ("a:label\nx:1\nx:2\n", [], "no column 'label'"),
    "ragged": ("a,label\nx,1\nx,2,3,4\n", [], "could not be read"),
    "all different": ("a,label\nx,1\ny,2\nz,\n", [], "is empty"),
    "all missing": ("a,label\nx,1\n?,2\nx,\n", [], "missing values"),
    "infinite": ("a,label\ninf,1\n1,2\n1,\n", [], "infinite"),
    "column to drop": ("a,label\nx,1\nx,2\n", ["--drop", "b"], "no column 'b'"),
    "lam": ("a,label\nx,1\nx,2\n", ["--lam", "0"], "--lam must be a positive"),
    "tol": ("a,label\nx,1\nx,2\n", ["--tol", "nan"], "--tol must be a positive"),
    "suggest": ("a,label\nx,1\nx,2\n", ["--suggest", "-1"], "--suggest"),
    "bins": ("a,label\nx,1\nx,2\n", ["--n-bins", "1"], "--n-bins"),
    "not text": (bytes([0x93, 0, 0xFF]), [], "not a text file"),
}


@pytest.mark.parametrize("name", TABLES)
def test_bad_table_exits_2(name, tmp_path):
    content, options, words = TABLES[name]
    path = write(tmp_path / "table.csv", content)
    done = run("predict", path, *options, out=tmp_path / "out")
    assert (done.code, len(done.err.strip().splitlines())) == (2, 1), done.err
    assert words in done.err
    assert not (tmp_path / "out").exists()


def test_good_table_with_byte_order_mark_and_windows_lines(tmp_path, no_figures):
    path = write(tmp_path / "t.csv", b"\xef\xbb\xbfa;label\r\nx;1\r\ny;2\r\nx;\r\ny;\r\n")
    assert run("predict", path, out=tmp_path / "out").code == 0
    assert pd.read_csv(tmp_path / "out" / "artefacts" / "predictions.csv")["label"].tolist() == [1, 2, 1, 2]


def notes(out):
    return " ".join(json.loads((out / "result.json").read_text())["warnings"])


def test_marks_of_labels_and_identifiers(tmp_path, no_figures):
    """A question mark is unknown, -1 is a class and said to be, a code in every row is an identifier, a length is none."""
    rows = [f"{'xy'[i % 2]},{i / 7},c{i:03d},{'?' if i > 9 else (-1, 1, 2)[i % 3]}" for i in range(30)]
    path = write(tmp_path / "t.csv", "a,length,code,label\n" + "\n".join(rows) + "\n")
    assert run("predict", path, out=tmp_path / "out").code == 0
    table = pd.read_csv(tmp_path / "out" / "artefacts" / "predictions.csv")
    assert table["given"].sum() == 10
    assert set(table["label"]) <= {-1, 1, 2}
    assert "the label -1 is taken for a class" in notes(tmp_path / "out")
    assert "'code'" in notes(tmp_path / "out")
    assert "'length'" not in notes(tmp_path / "out")


def test_names_with_commas_are_found(tmp_path, no_figures):
    path = write(tmp_path / "g.tsv", 'who\twhere\n"a,b"\t1\nc\t1\nc\t2\nd\t2\n')
    assert run("analyse", path, "--around", "a,b", out=tmp_path / "out").code == 0
    cluster = pd.read_csv(tmp_path / "out" / "artefacts" / "cluster.csv")
    assert cluster.loc[cluster["seed"], "vertex"].tolist() == ["a,b"]


def test_all_labelled_table(tmp_path, no_figures):
    path = write(tmp_path / "t.csv", "a,label\nx,1\nx,2\ny,1\ny,2\n")
    assert run("predict", path, out=tmp_path / "out").code == 0
    assert pd.read_csv(tmp_path / "out" / "artefacts" / "predictions.csv")["label"].tolist() == [1, 2, 1, 2]


GRAPHS = {
    "counts": ("6 7\n1 2 3\n1 2\n", LABELS, "announces 6 hyperedges"),
    "range": ("2 3\n1 2\n2 9\n", LABELS, "vertex 9 is out of range"),
    "empty": ("", LABELS, "is empty"),
    "nan": ("1 2 1\nnan 1 2\n", LABELS, "the weight is nan"),
    "labels short": (HMETIS, "tea coffee\n0\n1\n", "2 labels for 7 vertices"),
    "labels beyond": (HMETIS, LABELS.replace("0\n", "5\n"), "line 2: class 5"),
    "one class": (HMETIS, LABELS.replace("\n1\n", "\n0\n"), "one class"),
    "singletons": ("2 3\n1\n2\n", "a b\n0\n1\n-1\n", "is empty"),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_bad_hypergraph_exits_2(name, tmp_path):
    graph, labels, words = GRAPHS[name]
    g, y = write(tmp_path / "g.hmetis", graph), write(tmp_path / "g.labels", labels)
    done = run("predict", "--hmetis", g, "--labels", y, out=tmp_path / "out")
    assert (done.code, len(done.err.strip().splitlines())) == (2, 1), done.err
    assert words in done.err
    assert "g." in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["predict"], "exactly one of"),
        (["predict", "TABLE", "--knn", "TABLE"], "exactly one of"),
        (["predict", "--hmetis", "GRAPH"], "needs --labels"),
        (["predict", "TABLE", "--labels", "LABELS"], "belongs to --hmetis"),
        (["predict", "--knn", "TABLE"], "not a finite number"),
        (["evaluate", "TABLE", "--labelled", "1"], "--labelled must lie between 2 and 3"),
        (["evaluate", "TABLE", "--labelled", "4"], "--labelled must lie"),
        (["evaluate", "TABLE", "--repeats", "0"], "--repeats"),
        (["analyse", "GRAPH", "--around", "12"], "no vertex '12'"),
        (["analyse", "GRAPH", "--lam", "-1"], "--lam must be"),
        (["analyse", "GRAPH", "--tol", "nan"], "--tol must be"),
        (["analyse", "GRAPH", "--device", "cuda"], "runs on the CPU only"),
        (["predict", "--knn", "POINTS", "-k", "3"], "at most 2 neighbours"),
        (["predict", "--knn", "FAR", "-k", "1"], "beyond 1e150"),
        (["analyse", "THREE"], "expected two columns"),
    ],
)
def test_bad_combinations_exit_2(words, message, hypergraph, tmp_path):
    files = {
        "TABLE": write(tmp_path / "table.csv", "a,label\nx,1\nx,2\ny,1\ny,2\n"),
        "THREE": write(tmp_path / "three.csv", "a,b,c\n1,2,3\n"),
        "POINTS": write(tmp_path / "points.csv", "a,label\n1,u\n2,v\n3,\n"),
        "FAR": write(tmp_path / "far.csv", "a,label\n1e200,u\n2,v\n3,\n"),
        "GRAPH": hypergraph[0],
        "LABELS": hypergraph[1],
    }
    done = run(*(files.get(word, word) for word in words), out=tmp_path / "out")
    assert (done.code, len(done.err.strip().splitlines())) == (2, 1), done.err
    assert message in done.err
