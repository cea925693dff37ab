"""The command line on tables, points and hypergraphs; every bad input exits 2 with one sentence."""

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


@pytest.fixture
def mushrooms(tmp_path):
    frame = read_table(sample_path(SLUG, "agaricus-lepiota.data.gz")).iloc[::8].reset_index(drop=True)
    truth = frame["edibility"].copy()
    frame.loc[frame.index % 12 != 0, "edibility"] = None
    path = tmp_path / "mushrooms.csv"
    frame.to_csv(path, index=False)
    return path, truth.to_numpy()


def test_predict_table(mushrooms, tmp_path):
    path, truth = mushrooms
    out = tmp_path / "out"
    done = run("predict", path, "--label", "edibility", out=out)
    assert done.code == 0, done.err
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


def test_the_same_seed_gives_the_same_file(mushrooms, tmp_path):
    for name in ("a", "b"):
        assert run("predict", mushrooms[0], "--label", "edibility", "--seed", 4, out=tmp_path / name).code == 0
    first, second = ((tmp_path / n / "artefacts" / "predictions.csv").read_bytes() for n in "ab")
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


HMETIS = "5 7\n1 2 3\n1 2\n3 4\n4 5 6\n5 6\n"
LABELS = "tea coffee\n0\n-1\n-1\n-1\n-1\n1\n-1\n"


@pytest.fixture
def hypergraph(tmp_path):
    (tmp_path / "g.hmetis").write_text(HMETIS)
    (tmp_path / "g.labels").write_text(LABELS)
    return tmp_path / "g.hmetis", tmp_path / "g.labels"


def test_predict_hypergraph_with_an_unreached_vertex(hypergraph, tmp_path):
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


def test_good_table_with_byte_order_mark_and_windows_lines(tmp_path):
    path = write(tmp_path / "t.csv", b"\xef\xbb\xbfa;label\r\nx;1\r\ny;2\r\nx;\r\ny;\r\n")
    assert run("predict", path, out=tmp_path / "out").code == 0
    assert pd.read_csv(tmp_path / "out" / "artefacts" / "predictions.csv")["label"].tolist() == [1, 2, 1, 2]


def test_all_labelled_table(tmp_path):
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
        (["analyse", "GRAPH", "--lam", "-1"], "lam must be"),
        (["analyse", "THREE"], "expected two columns"),
    ],
)
def test_bad_combinations_exit_2(words, message, hypergraph, tmp_path):
    files = {
        "TABLE": write(tmp_path / "table.csv", "a,label\nx,1\nx,2\ny,1\ny,2\n"),
        "THREE": write(tmp_path / "three.csv", "a,b,c\n1,2,3\n"),
        "GRAPH": hypergraph[0],
        "LABELS": hypergraph[1],
    }
    done = run(*(files.get(word, word) for word in words), out=tmp_path / "out")
    assert (done.code, len(done.err.strip().splitlines())) == (2, 1), done.err
    assert message in done.err
