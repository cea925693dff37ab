"""Whatever is wrong with a file or an option: exit code 2, one sentence that names it, nothing half-written."""

import gzip
import re

import pytest

from assay.testing import run_cli

EDGES = "a,b\nb,c\nc,d\nd,a\n"

FILES = {
    "empty.graph": (b"", "empty"),
    "empty.csv": (b"", "empty"),
    "cut.graph.gz": (gzip.compress(b"3 2\n2\n1 3\n2\n" * 50)[:30], "truncated"),
    "short.graph": (b"4 3\n2\n1 3\n2", "line 1: the header announces 4 vertices, but only 3 lines follow"),
    "zero.graph": (b"3 2\n1\n0 2\n1\n", "line 3: neighbour 0 is out of range"),
    "count.graph": (b"3 5\n2\n1 3\n2\n", "line 1: the header announces 5 edges"),
    "fmt.graph": (b"2 1 5\n2\n1\n", "line 1: fmt is 5"),
    "oneway.graph": (b"3 1\n2 3\n\n\n", "line 2: vertex 1 lists 2, but line 3"),
    "weightless.graph": (b"2 1 10\n0 2\n1 1\n", "vertex 1 has weight 0"),
    "twoweights.graph": (b"2 1 10 2\n1 1 2\n1 1 1\n", "2 weights per vertex"),
    "binary.graph": (b"\x00\x01\x02\x03" * 10, "binary"),
    "negative.csv": (b"a,b,1\nb,c,-2\n", "line 2: the weight is '-2'"),
    "nan.csv": (b"a,b,1\nb,c,nan\n", "line 2: the weight is 'nan'"),
    "infinite.csv": (b"a,b,inf\n", "line 1: the weight is 'inf'"),
    "ragged.csv": (b"a,b\nb,c,4,5\n", "line 2: 4 columns"),
    "halfway.csv": (b"a,b\nb,\n", "line 2: an edge needs two vertices"),
    "conflict.csv": (b"a,b,1\nb,a,2\n", "weighs 2 here but 1 in line 1"),
    "latin.csv": ("Zürich,Bern\n".encode("latin-1"), "not UTF-8"),
    "one.csv": (b"a,a\n", "at least 2"),
    "asymmetric.mtx": (b"%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 3\n", "not symmetric"),
    "broken.mtx": (b"%%MatrixMarket matrix coordinate real general\n2 2 4\n1 2 3\n", "MatrixMarket"),
    "oblong.mtx": (b"%%MatrixMarket matrix coordinate real general\n2 3 1\n1 2 3\n", "2 x 3"),
    "broken.gml": (b"graph [ node [ id 1 ", "GML"),
    "directed.gml": (b"graph [ directed 1 node [ id 1 ] node [ id 2 ] edge [ source 1 target 2 ] ]", "directed"),
    "broken.npz": (b"PK\x03\x04 nothing", "graph archive"),
    "graph.docx": (b"words", "format '.docx' is not known"),
}

OPTIONS = [
    (("fit", "{graph}", "--balance", "0"), "balance"),
    (("fit", "{graph}", "--balance", "0.7"), "balance"),
    (("fit", "{graph}", "--balance", "half"), "half"),
    (("fit", "{graph}", "--parts", "1"), "n_clusters|parts"),
    (("fit", "{graph}", "--parts", "9"), r"\[2, 4\]"),
    (("fit", "{graph}", "--parts", "3", "--imbalance", "-1"), "imbalance"),
    (("fit", "{graph}", "--objective", "best"), "objective|best"),
    (("fit", "{graph}", "--stability", "-1"), "stability"),
    (("fit", "{graph}", "--jobs", "0"), "jobs"),
    (
        (
            "fit",
            "{graph}.missing.csv",
        ),
        "no file|does not exist",
    ),
    (("fit",), "(?i)graph"),
    (("analyse", "{graph}", "--clusters", "9"), "--clusters"),
    (("analyse", "{graph}", "--clusters", "0"), "--clusters"),
    (("analyse", "{graph}", "--leaf-size", "0"), "leaf_size"),
    (("compare", "{graph}", "--balance", "-1"), "balance"),
    (("fit", "{graph}", "--weight", "toll"), "no column 'toll'"),
]


def assert_one_sentence(result, message, out):
    assert result.code == 2, (result.code, result.out, result.err)
    said = result.err.strip()
    assert re.search(message, said), said
    assert "Traceback" not in said
    assert not list(out.rglob("*.csv"))
    assert not (out / "result.json").exists()
    assert not list(out.rglob(".partial-*"))


@pytest.mark.parametrize("name", FILES)
def test_bad_files(name, tmp_path):
    content, message = FILES[name]
    path = tmp_path / name
    path.write_bytes(content)
    result = run_cli("semirandom-cut", "fit", path, "--out", tmp_path / "out", "--quiet")
    assert_one_sentence(result, message, tmp_path / "out")
    assert name in result.err
    assert len(result.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"), OPTIONS, ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_bad_options(words, message, tmp_path):
    path = tmp_path / "g.csv"
    path.write_text("source,target\n" + EDGES)
    args = [word.format(graph=path) for word in words]
    result = run_cli("semirandom-cut", *args, "--out", tmp_path / "out", "--quiet")
    assert_one_sentence(result, message, tmp_path / "out")


def test_a_vertex_too_heavy_for_the_balance(tmp_path):
    path = tmp_path / "g.graph"
    path.write_text("3 2 010\n8 2\n1 1 3\n1 2\n")
    result = run_cli("semirandom-cut", "fit", path, "--out", tmp_path / "out", "--quiet")
    assert_one_sentence(result, "vertex 1 weighs 0.8 of the total", tmp_path / "out")


def test_a_weight_column_that_is_not_there(tmp_path):
    path = tmp_path / "g.csv"
    path.write_text("source,target,km\na,b,3\n")
    result = run_cli("semirandom-cut", "analyse", path, "--weight", "toll", "--out", tmp_path / "out", "--quiet")
    assert_one_sentence(result, "no column 'toll'; the columns are source, target, km", tmp_path / "out")
