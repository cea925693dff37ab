"""Graphs from matrices, networkx and files: what comes in is what comes out, and what is wrong is named with its line."""

import gzip
import time

import networkx as nx
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from assay._core.errors import InputError
from assay._shared.graphs import as_csr, read_graph, read_metis, write_metis


def random_graph(n=60, m=150, seed=0, high=5):
    rng = np.random.default_rng(seed)
    i, j = rng.integers(0, n, (2, m))
    A = sp.csr_matrix((rng.integers(1, high, m).astype(float), (i, j)), shape=(n, n))
    A = (A + A.T).tocsr()
    A.setdiag(0)
    A.eliminate_zeros()
    A.sort_indices()
    return A


def same(A, B):
    return A.shape == B.shape and (A != B).nnz == 0


# --- as_csr ----------------------------------------------------------------------------------------------------------


def test_containers_give_the_same_matrix():
    A = random_graph()
    for other in (
        A,
        A.tocoo(),
        A.tolil(),
        A.tocsc(),
        A.toarray(),
        sp.csr_array(A),
        A.astype(np.int32),
        A.toarray().tolist(),
    ):
        B, names = as_csr(other)
        assert same(A, B)
        assert B.dtype == np.float64
        assert B.has_sorted_indices
        assert B.indices.dtype == np.int32
        np.testing.assert_array_equal(names, np.arange(60))


def test_networkx_rows_follow_the_order_of_nodes():
    G = nx.Graph()
    G.add_nodes_from(["c", "a", "b"])
    G.add_edge("a", "c", weight=2.5)
    G.add_edge("a", "b")
    A, names = as_csr(G)
    assert names.tolist() == ["c", "a", "b"]
    np.testing.assert_array_equal(A.toarray(), [[0, 2.5, 0], [2.5, 0, 1], [0, 1, 0]])
    np.testing.assert_array_equal(as_csr(G, weight=None)[0].toarray(), [[0, 1, 0], [1, 0, 1], [0, 1, 0]])


def test_input_is_not_changed():
    A = random_graph().tolil()
    A[3, 3] = 2.0
    A = A.tocsr()
    before = A.copy()
    with pytest.warns(UserWarning, match=r"dropped 1 self-loop\(s\), the first at vertex 3"):
        B, _ = as_csr(A)
    assert same(A, before)
    assert B[3, 3] == 0


def test_duplicates_are_summed_and_zeros_dropped():
    A = sp.coo_matrix(([1.0, 2.0, 3.0, 0.0, 0.0], ([0, 0, 1, 2, 0], [1, 1, 0, 0, 2])), shape=(3, 3))
    B, _ = as_csr(A)
    assert B.nnz == 2
    assert B[0, 1] == B[1, 0] == 3.0


def test_rounding_asymmetry_is_averaged_and_more_is_refused():
    A = np.array([[0, 1.0], [1.0 + 1e-10, 0]])
    B, _ = as_csr(A)
    assert B[0, 1] == B[1, 0]
    with pytest.raises(InputError, match=r"not symmetric: 0 -> 1 weighs 1 but 1 -> 0 weighs 1\.001.*symmetrise"):
        as_csr([[0, 1.0], [1.001, 0]])


def test_symmetrize_adds_both_directions():
    B, _ = as_csr([[0, 1, 0], [2, 0, 0], [0, 3, 0]], directed="symmetrize")
    np.testing.assert_array_equal(B.toarray(), [[0, 3, 0], [3, 0, 3], [0, 3, 0]])
    G = nx.DiGraph([(0, 1), (1, 0), (1, 2)])
    np.testing.assert_array_equal(as_csr(G, directed="symmetrize")[0].toarray(), [[0, 2, 0], [2, 0, 1], [0, 1, 0]])


@pytest.mark.parametrize(
    ("W", "message"),
    [
        (np.ones((2, 3)), "square matrix, but its shape is 2 x 3"),
        (np.ones(4), "1 dimension"),
        ([[0.0]], "at least 2"),
        (np.zeros((0, 0)), "at least 2"),
        ([[0, -1], [-1, 0]], "edge 0 - 1 is negative"),
        ([[0, np.nan], [np.nan, 0]], "not a finite number"),
        ([[0, np.inf], [np.inf, 0]], "not a finite number"),
        ([["a", "b"], ["c", "d"]], "is not a graph"),
        ([[0, 1j], [1j, 0]], "complex"),
        (nx.DiGraph([(0, 1)]), "directed.*symmetrize"),
        (nx.Graph(), "0 vertices"),
        (nx.Graph([(0, 1, {"weight": "heavy"})]), "attribute 'weight' is not a number"),
    ],
)
def test_bad_matrices(W, message):
    with pytest.raises(InputError, match=message):
        as_csr(W)


# --- METIS -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".graph", ".graph.gz"])
@pytest.mark.parametrize("weighted", [False, True])
def test_metis_round_trip(tmp_path, ending, weighted):
    A = random_graph()
    A = A if weighted else (A != 0).astype(float)
    path = tmp_path / f"g{ending}"
    write_metis(path, A)
    assert same(A, read_metis(path))
    W, names = read_graph(path)
    assert same(A, W)
    np.testing.assert_array_equal(names, np.arange(1, 61))


def test_metis_vertex_weights_round_trip(tmp_path):
    A = random_graph()
    weights = np.arange(60) % 7 + 1
    write_metis(tmp_path / "g.graph", A, vertex_weights=weights)
    B, back = read_metis(tmp_path / "g.graph", return_weights=True)
    assert same(A, B)
    np.testing.assert_array_equal(back, weights)
    assert read_metis(tmp_path / "g.graph").nnz == A.nnz


def test_metis_layouts(tmp_path):
    path = tmp_path / "g.graph"
    # comments, CRLF, a byte order mark, an isolated vertex, trailing blank lines
    path.write_bytes(b"\xef\xbb\xbf% made by hand\r\n4 2\r\n2\r\n1 3\r\n% between\r\n2\r\n\r\n\r\n\r\n")
    assert read_metis(path).nnz == 4
    # sizes, two weights per vertex, edge weights
    path.write_text("2 1 111 2\n9 5 6 2 7\n9 3 4 1 7\n")
    A, weights = read_metis(path, return_weights=True)
    assert A[0, 1] == 7
    assert weights.tolist() == [[5, 6], [3, 4]]
    with pytest.warns(UserWarning, match=r"self-loop\(s\), the first in line 2"):
        path.write_text("2 1\n1 2\n1\n")
        assert read_metis(path).nnz == 2


BAD_METIS = {
    "0-based": ("3 2\n1\n0 2\n1\n", "line 3: neighbour 0 is out of range; METIS counts vertices from 1"),
    "id too large": ("3 2\n2\n1 4\n2\n", "line 3: neighbour 4 is out of range; the header announces 3"),
    "fewer edges": (
        "3 3\n2\n1 3\n2\n",
        "line 1: the header announces 3 edges, but the lists hold 4 entries, that is 2",
    ),
    "edges counted twice": ("3 4\n2\n1 3\n2\n", "m counts each edge once"),
    "too few lines": ("4 2\n2\n1 3\n2", "line 1: the header announces 4 vertices, but only 3 lines follow"),
    "too many lines": ("2 1\n2\n1\n1\n", "line 4: the header .line 1. announces 2 vertices, but more lines follow"),
    "odd fmt": ("2 1 7\n2\n1\n", "line 1: fmt is 7"),
    "long header": ("2 1 1 1 1\n2\n1\n", "header must hold 2 to 4 numbers"),
    "short header": ("2\n2\n1\n", "header must hold 2 to 4 numbers"),
    "one vertex": ("1 0\n\n", "at least 2"),
    "asymmetric": ("3 1\n2 3\n\n\n", "line 2: vertex 1 lists 2, but line 3 .vertex 2. does not list 1"),
    "twice": ("3 2\n2 2\n1 1\n\n", "line 2: vertex 1 lists neighbour 2 twice"),
    "weights differ": ("2 1 1\n2 5\n1 6\n", "line 2: the edge 1 - 2 weighs 5 here but 6 in line 3"),
    "odd pairs": ("2 1 1\n2 5\n1\n", "line 3: fmt 001 announces pairs"),
    "zero weight": ("2 1 1\n2 0\n1 0\n", "line 2: an edge of vertex 1 has weight 0"),
    "real weight": ("2 1 1\n2 0.5\n1 0.5\n", "line 2: '0.5' is not a non-negative whole number .*use .mtx or .npz"),
    "text": ("2 1\n2\nx1\n", "line 3: 'x1' is not"),
    "negative": ("2 1\n2\n-1\n", "line 3: '-1' is not"),
    "missing vertex weight": ("2 1 10\n4 2\n\n", "line 3: vertex 2 needs 1 leading"),
    "huge": ("2 1\n99999999999999999999\n1\n", "line 2: a number has more than 18 digits"),
    "only comments": ("% nothing\n", "holds no graph"),
    "blank header": ("\n2 1\n2\n1\n", "line 1: the first line must be"),
}


@pytest.mark.parametrize("name", BAD_METIS)
def test_bad_metis_names_the_line(tmp_path, name):
    text, message = BAD_METIS[name]
    path = tmp_path / "bad.graph"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as error:
        read_metis(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_empty_truncated_and_binary_files(tmp_path):
    path = tmp_path / "g.graph.gz"
    write_metis(path, random_graph(400, 1500))
    raw = path.read_bytes()
    for content, message in (
        (b"", "empty"),
        (raw[: len(raw) // 2], "truncated|cut-off"),
        (b"\x00\x01\x02" * 50, "binary"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_graph(path)
    text = gzip.decompress(raw)
    (tmp_path / "g.graph").write_bytes(text[: len(text) // 2])
    with pytest.raises(InputError, match="announces 400 vertices, but only"):
        read_graph(tmp_path / "g.graph")
    with pytest.raises(InputError, match=r"missing\.graph"):
        read_graph(tmp_path / "missing.graph")
    with pytest.raises(InputError, match="folder"):
        read_graph(_folder(tmp_path))


def _folder(tmp_path):
    path = tmp_path / "folder.graph"
    path.mkdir()
    return path


def test_write_metis_refuses_real_weights_and_leaves_nothing(tmp_path):
    with pytest.raises(InputError, match="whole weights only"):
        write_metis(tmp_path / "g.graph", [[0, 0.5], [0.5, 0]])
    with pytest.raises(InputError, match="2 whole non-negative"):
        write_metis(tmp_path / "g.graph", [[0, 1], [1, 0]], vertex_weights=[1.5, 1])
    assert list(tmp_path.iterdir()) == []


def test_metis_is_parsed_without_a_loop_over_edges(tmp_path):
    n, m = 100_000, 400_000
    rng = np.random.default_rng(0)
    A = sp.csr_matrix((np.ones(m), rng.integers(0, n, (2, m))), shape=(n, n))
    A = ((A + A.T) != 0).astype(float)
    A = (A - sp.diags(A.diagonal())).tocsr()
    A.eliminate_zeros()
    path = tmp_path / "big.graph"
    write_metis(path, A)
    start = time.process_time()
    B = read_metis(path)
    seconds = time.process_time() - start
    assert same(A, B)
    # measured .15 s on one core; a Python loop over the 800,000 entries would need several seconds
    assert seconds < 1.0


# --- edge lists ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "names", "total"),
    [
        ("g.edgelist", "# networkx\n10 2\n2 7\n", [2, 7, 10], 2),
        ("g.edgelist", "1 2 {'weight': 2.5}\n2 3 {}\n", [1, 2, 3], 3.5),
        ("g.txt", "10\t2\t3.5\n2\t7\t1\n", [2, 7, 10], 4.5),
        ("g.csv", "source,target,weight\nAT,DE,3\nDE,FR,2\n", ["AT", "DE", "FR"], 5),
        ("g.csv", "Weight;To;From\n3;b;a\n2;c;b\n", ["a", "b", "c"], 5),
        ("g.csv", "person,friend,score\na,b,2\nb,c,2\n", ["a", "b", "c"], 4),
        ("g.csv", '\ufeff"New York, NY",Paris\r\nParis,"Rio"\r\n', ["New York, NY", "Paris", "Rio"], 2),
        ("g.csv", "007,7\n7,8\n", ["007", "7", "8"], 2),
        ("g.tsv", "a\tb\nb\ta\nb\tc\n", ["a", "b", "c"], 2),
        ("g.edges", "% KONECT\n3 -1\n-1 5\n", [-1, 3, 5], 2),
        ("g.edgelist", "u v\nv w\n", ["u", "v", "w"], 2),
        ("g.csv", "u,v\n1,2\n", [1, 2], 1),
        ("g.csv", "nan,NA\nNA,null\n", ["nan", "NA", "null"], 2),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_edge_lists(tmp_path, name, text, names, total, packed):
    path = tmp_path / (name + ".gz" * packed)
    raw = text.encode("utf-8")
    path.write_bytes(gzip.compress(raw) if packed else raw)
    W, found = read_graph(path)
    assert found.tolist() == names
    assert W.sum() / 2 == total


def test_edge_list_equals_the_matrix(tmp_path):
    A = random_graph(high=9)
    upper = sp.triu(A).tocoo()
    used = np.flatnonzero(np.diff(A.indptr))
    np.savetxt(tmp_path / "g.edgelist", np.c_[upper.row, upper.col, upper.data], fmt="%d")
    W, names = read_graph(tmp_path / "g.edgelist")
    np.testing.assert_array_equal(names, used)
    assert same(W, A[used][:, used])
    assert read_graph(tmp_path / "g.edgelist", weight=None)[0].sum() == A.nnz


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("g.edgelist", "1 2\n# c\n3\n", "line 3: an edge needs two vertices"),
        ("g.edgelist", "1 2\n\n1 2 3 4\n", "line 3: 4 columns, but the lines before have 2"),
        ("g.edgelist", "1 2 3 4\n", "4 columns without a header"),
        ("g.csv", "source,target,weight\na,b,1\na,c,heavy\n", "line 3: the weight is 'heavy'"),
        ("g.csv", "source,target,weight\na,b,1\na,c,\n", "line 3: the weight is missing"),
        ("g.csv", "a,b,-2\n", "line 1: the weight is '-2'"),
        ("g.csv", "a,b,nan\n", "line 1: the weight is 'nan'"),
        (
            "g.csv",
            "a,b,2\nb,a,3\n",
            "line 2: the edge b - a weighs 3 here but 2 in line 1|line 2: the edge a - b weighs 3",
        ),
        ("g.csv", "a\nb\n", "one column"),
        ("g.csv", "source,target\n", "header but no edges"),
        ("g.csv", "# nothing\n\n", "holds no edges"),
        ("g.csv", "a,b\n,c\n", "line 2: an edge needs two vertices"),
        ("g.csv", "", "empty"),
        ("g.csv", "a,a\n", "1 vertices"),
        ("g.xyz", "a b\n", "format '.xyz' is not known"),
        ("g", "a b\n", "'no ending' is not known"),
    ],
)
def test_bad_edge_lists(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        read_graph(tmp_path / name)


def test_symmetrize_adds_the_two_directions_of_an_edge_list(tmp_path):
    (tmp_path / "g.csv").write_text("a,b,2\nb,a,3\n")
    assert read_graph(tmp_path / "g.csv", directed="symmetrize")[0][0, 1] == 5


def test_named_weight_column(tmp_path):
    (tmp_path / "g.csv").write_text("source,target,km,trips\na,b,2,9\n")
    assert read_graph(tmp_path / "g.csv", weight="trips")[0][0, 1] == 9
    assert read_graph(tmp_path / "g.csv", weight="km")[0][0, 1] == 2
    with pytest.raises(InputError, match="no column 'miles'; the columns are source, target, km, trips"):
        read_graph(tmp_path / "g.csv", weight="miles")


# --- other formats ---------------------------------------------------------------------------------------------------


def test_matrix_market_and_npz(tmp_path):
    A = random_graph()
    scipy.io.mmwrite(tmp_path / "g.mtx", A, symmetry="symmetric")
    (tmp_path / "g.mtx.gz").write_bytes(gzip.compress((tmp_path / "g.mtx").read_bytes()))
    sp.save_npz(tmp_path / "g.npz", A)
    np.savez(tmp_path / "dense.npz", A.toarray())
    for name, first in (("g.mtx", 1), ("g.mtx.gz", 1), ("g.npz", 0), ("dense.npz", 0)):
        W, names = read_graph(tmp_path / name)
        assert same(A, W), name
        assert names[0] == first


def test_bad_matrix_market_and_npz(tmp_path):
    scipy.io.mmwrite(tmp_path / "g.mtx", sp.triu(random_graph()), symmetry="general")
    with pytest.raises(InputError, match="not symmetric"):
        read_graph(tmp_path / "g.mtx")
    assert same(read_graph(tmp_path / "g.mtx", directed="symmetrize")[0], random_graph())
    (tmp_path / "t.mtx").write_text("%%MatrixMarket matrix coordinate real general\n3 3 5\n1 2 1.0\n")
    with pytest.raises(InputError, match="not a valid MatrixMarket file"):
        read_graph(tmp_path / "t.mtx")
    (tmp_path / "r.mtx").write_text("%%MatrixMarket matrix coordinate real general\n2 3 1\n1 2 1.0\n")
    with pytest.raises(InputError, match="2 x 3"):
        read_graph(tmp_path / "r.mtx")
    (tmp_path / "b.npz").write_bytes(b"PK\x03\x04 not an archive")
    with pytest.raises(InputError, match="not a graph archive"):
        read_graph(tmp_path / "b.npz")
    np.savez(tmp_path / "o.npz", np.array([{}], dtype=object))  # would need pickle: never loaded
    with pytest.raises(InputError, match="not a graph archive"):
        read_graph(tmp_path / "o.npz")


def test_gml(tmp_path):
    G = nx.karate_club_graph()
    nx.write_gml(nx.relabel_nodes(G, lambda v: f"member {v}"), tmp_path / "g.gml")
    W, names = read_graph(tmp_path / "g.gml")
    assert names[:2].tolist() == ["member 0", "member 1"]
    assert same(W, as_csr(G)[0])
    # labels that repeat are no names: the ids are
    (tmp_path / "r.gml").write_text(
        'graph [ node [ id 4 label "x" ] node [ id 6 label "x" ] edge [ source 4 target 6 weight 3 ] ]'
    )
    W, names = read_graph(tmp_path / "r.gml")
    assert names.tolist() == [4, 6]
    assert W[0, 1] == 3
    (tmp_path / "d.gml").write_text("graph [ directed 1 node [ id 0 ] node [ id 1 ] edge [ source 0 target 1 ] ]")
    with pytest.raises(InputError, match="directed"):
        read_graph(tmp_path / "d.gml")
    (tmp_path / "b.gml").write_text("graph [ node [ id 0 ")
    with pytest.raises(InputError, match="not a valid GML graph"):
        read_graph(tmp_path / "b.gml")


def test_a_weight_column_is_never_guessed_among_several(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text("a,b,cap,cnt\nx,y,3,1\ny,z,2,5\n")
    with pytest.raises(InputError, match="cap, cnt"):
        read_graph(path)
    assert read_graph(path, weight="cap")[0].sum() == 2 * (3 + 2)
    assert read_graph(path, weight=None)[0].sum() == 2 * 2
