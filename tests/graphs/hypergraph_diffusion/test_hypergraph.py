"""Constructors, names, round trips, bad input."""

import gzip
import time

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from assay import InputError
from assay.graphs.hypergraph_diffusion import CategoricalEncoder, Hypergraph, read_hmetis, read_labels
from assay.graphs.hypergraph_diffusion._hypergraph import locality_order


def same(A, B, names=True):
    np.testing.assert_array_equal(A.incidence.toarray(), B.incidence.toarray())
    np.testing.assert_array_equal(A.edge_weight, B.edge_weight)
    np.testing.assert_array_equal(A.degree, B.degree)
    assert (A.node_weight is None) == (B.node_weight is None)
    if names:
        assert A.node_names.tolist() == B.node_names.tolist()
        assert A.edge_names.tolist() == B.edge_names.tolist()


def club():
    return Hypergraph.from_edges(
        [["ann", "bob", "cid"], ["cid", "dan"], ["ann", "dan"]],
        edge_weight=[1.0, 2.5, 0.25],
        edge_names=["tea", "chess", "golf"],
        node_names=["ann", "bob", "cid", "dan", "eve"],
    )


def test_degrees_sizes_components():
    H = club()
    assert H.degree.tolist() == [1.25, 1.0, 3.5, 2.75, 0.0]
    assert H.sizes.tolist() == [3, 2, 2]
    assert H.components.tolist() == [0, 0, 0, 0, 1]
    assert H.isolated.tolist() == [False] * 4 + [True]


@pytest.mark.parametrize("extra", ["plain", "node weights", "values", "numbered from 0"])
def test_hmetis_round_trip_keeps_everything(extra, tmp_path):
    H = club()
    if extra == "node weights":
        H = Hypergraph(H.incidence, H.edge_weight, [1.0, 2.0, 3.0, 4.5, 0.0], node_names=H.node_names)
    if extra == "values":
        H.incidence.data[:] = [0.1, 0.2, 0.3, 1, 2, 3, 1 / 3]
    if extra == "numbered from 0":
        H = Hypergraph(H.incidence)
    text = H.to_hmetis()
    same(H, Hypergraph.from_hmetis(text))
    path = tmp_path / "club.hmetis.gz"
    path.write_bytes(gzip.compress(text.encode()))
    same(H, read_hmetis(path))
    assert Hypergraph.from_hmetis(text).to_hmetis() == text


def test_hmetis_with_byte_order_mark_and_windows_lines(tmp_path):
    path = tmp_path / "g.hmetis"
    path.write_bytes(b"\xef\xbb\xbf% comment\r\n2 3\r\n1 2\r\n2 3\r\n")
    H = read_hmetis(path)
    assert H.node_names.tolist() == [1, 2, 3]
    assert "%" not in H.to_hmetis()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("3 3\n1 2\n2 3\n", "line 1: the header announces 3 hyperedges, so 3 lines, but 2 follow"),
        ("1 3\n1 2\n2 3\n", "but 2 follow"),
        ("2 3 10\n1 2\n2 3\n1\n1\n", "and 3 vertex weights"),
        ("2 3\n1 2\n2 4\n", "line 3: vertex 4 is out of range"),
        ("2 3\n0 2\n2 3\n", "line 2: vertex 0 is out of range; hMETIS counts from 1"),
        ("2 3\n1 2.5\n2 3\n", "vertex 2.5"),
        ("2 3\n1 x\n2 3\n", "line 2: 'x' is not a number"),
        ("2 3 1\n0 1 2\n1 2 3\n", "line 2: the weight is 0"),
        ("2 3 1\nnan 1 2\n1 2 3\n", "line 2: the weight is nan"),
        ("2 3 7\n1 2\n2 3\n", "fmt"),
        ("2,3\n1 2\n2 3\n", "header must be"),
        ("2 3 100\n1 1 2\n2 1 3 1\n", "odd number"),
        ("2 3 10\n1 2\n2 3\n1\n-1\n1\n", "line 5: the vertex weight -1"),
        ("2 3 10\n1 2\n2 3\n1\n1 1\n1\n", "expected one vertex weight"),
        ("% only\n\n", "holds no hypergraph"),
        ("% nodes: [1,\n1 2\n1 2\n", "not valid JSON"),
        ("1 2\n1 1\n", "is empty"),
        ("% nodes: [[1], [2]]\n1 2\n1 2\n", "line 1: the names must be one list"),
        ("% nodes: " + "[" * 100_000 + "\n1 2\n1 2\n", "nested too deeply"),
        ("1 5000000000\n1 2\n", "announces 5,000,000,000 vertices, but the hyperedges hold 2"),
        ("2 3 1\n1e308 1 2\n1e308 2 3\n", "edge_weight holds 1e\\+308"),
        ("1 2 100\n1 1e-300 2 1\n", "the incidence holds 1e-300"),
    ],
)
@pytest.mark.filterwarnings("ignore:dropped")
def test_wrong_hmetis_is_named(text, words, tmp_path):
    path = tmp_path / "bad.hmetis"
    path.write_text(text)
    with pytest.raises(InputError, match=words) as caught:
        read_hmetis(path)
    assert "bad.hmetis" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_remarks_of_others_are_no_names():
    for remark in ("% nodes: 3", '% nodes: {"a": 1}', "% hyperedges: 2, weighted"):
        assert Hypergraph.from_hmetis(f"{remark}\n2 3\n1 2\n2 3\n").node_names.tolist() == [1, 2, 3]


def test_ordering_takes_no_quadratic_time_for_crowds():
    """200,000 members of one hyperedge, and 200,000 hyperedges of one vertex: they took nine seconds."""
    n = 200_000
    column = np.r_[np.arange(n), np.zeros(n, dtype=int), np.arange(n)]
    row = np.r_[np.zeros(n, dtype=int), np.arange(1, n + 1), np.arange(1, n + 1)]
    H = Hypergraph(sp.coo_array((np.ones(3 * n), (row, column)), shape=(n + 1, n)), drop_small="quiet")
    began = time.process_time()
    order, edges = locality_order(H)
    assert time.process_time() - began < 3
    assert np.array_equal(np.sort(order), np.arange(n))
    assert np.array_equal(np.sort(edges), np.arange(H.n_edges))


def test_xgi_round_trip():
    pytest.importorskip("xgi", reason="xgi is a peer")
    H = club()
    G = H.to_xgi()
    assert G.num_edges == 3
    same(H, Hypergraph.from_xgi(G))


def test_empty_xgi_is_a_sentence_not_a_crash():
    xgi = pytest.importorskip("xgi", reason="xgi is a peer")
    with pytest.raises(InputError, match="is empty"):
        Hypergraph.from_xgi(xgi.Hypergraph())


def test_six_thousand_nodes_take_no_half_hour():
    xgi = pytest.importorskip("xgi", reason="xgi is a peer")
    rng = np.random.default_rng(0)
    G = xgi.Hypergraph([rng.choice(6000, 4, replace=False).tolist() for _ in range(8000)])
    H = Hypergraph.from_xgi(G)
    assert (H.n_edges, H.n_nodes) == (8000, G.num_nodes)
    assert H.sizes.tolist() == [4] * 8000


def test_hypergraphx_conversion():
    hypergraphx = pytest.importorskip("hypergraphx", reason="hypergraphx is a peer")
    G = hypergraphx.Hypergraph([("a", "b", "c"), ("c", "d")], weighted=True, weights=[2.0, 3.0])
    H = Hypergraph.from_hypergraphx(G)
    assert H.node_names.tolist() == ["a", "b", "c", "d"]
    assert H.degree.tolist() == [2.0, 2.0, 5.0, 3.0]


def test_hypernetx_round_trip():
    pytest.importorskip("hypernetx", reason="hypernetx holds pandas below 3 and is not in the environment")
    H = club()
    back = Hypergraph.from_hypernetx(H.to_hypernetx())
    assert back.edge_names.tolist() == H.edge_names.tolist()
    assert back.edge_weight.tolist() == H.edge_weight.tolist()
    for h in range(3):
        assert set(back.node_names[back.members(h)]) == set(H.node_names[H.members(h)])


def test_networkx_bipartite():
    G = nx.Graph()
    G.add_nodes_from(["ann", "bob", "cid"], bipartite=0)
    G.add_node("tea", bipartite=1, weight=2.0)
    G.add_edge("ann", "tea")
    G.add_edge("tea", "cid", weight=0.5)
    H = Hypergraph.from_networkx(G)
    assert H.incidence.toarray().tolist() == [[1.0, 0.0, 0.5]]
    assert H.edge_weight.tolist() == [2.0]
    G.add_edge("ann", "bob")
    with pytest.raises(InputError, match="not bipartite"):
        Hypergraph.from_networkx(G)
    G.add_node("lost")
    with pytest.raises(InputError, match="'lost' needs the attribute"):
        Hypergraph.from_networkx(G)


def test_bipartite_list():
    H = Hypergraph.from_bipartite(["ann", "bob", "bob", "cid"], ["tea", "tea", "golf", "golf"])
    assert H.edge_names.tolist() == ["tea", "golf"]
    assert H.incidence.toarray().tolist() == [[1, 1, 0], [0, 1, 1]]
    with pytest.raises(InputError, match="row 1"):
        Hypergraph.from_bipartite(["a", None], ["x", "x"])


def test_expansions():
    H = club()
    L, A = H.star_laplacian().toarray(), H.clique_adjacency().toarray()
    np.testing.assert_allclose(L.sum(axis=0), 0, atol=1e-12)
    assert np.linalg.eigvalsh(L).min() > -1e-12
    assert A[0].tolist() == [0, 1.0, 1.0, 0.25, 0]
    np.testing.assert_array_equal(A, A.T)


def test_small_hyperedges_are_dropped_with_one_warning():
    with pytest.warns(UserWarning, match="dropped 2 hyperedge"):
        H = Hypergraph.from_edges([[0, 1], [1], [], [1, 2]], edge_weight=[1, 2, 3, 4])
    assert H.edge_weight.tolist() == [1, 4]
    assert H.edge_names.tolist() == [0, 3]
    assert H.kept.tolist() == [0, 3]


def test_a_vertex_twice_in_a_hyperedge_counts_once():
    assert Hypergraph.from_edges([[0, 1, 1, 0]]).incidence.toarray().tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Hypergraph.from_edges([]), "is empty"),
        (lambda: Hypergraph(sp.csr_array((0, 0))), "is empty"),
        (lambda: Hypergraph.from_edges([[0, -1]]), "-1 is out of range"),
        (lambda: Hypergraph.from_edges([[0, 5]], n_nodes=3), "5 is out of range; vertices are numbered 0 to 2"),
        (lambda: Hypergraph.from_edges([[0, 1]], edge_weight=[0.0]), "must be positive"),
        (lambda: Hypergraph.from_edges([[0, 1]], edge_weight=[np.nan]), "is nan"),
        (lambda: Hypergraph.from_edges([[0, 1]], edge_weight=[1.0, 2.0]), "one value per hyperedge"),
        (lambda: Hypergraph.from_edges([[0, 1]], node_weight=[1.0, 0.0]), "node_weight of vertex 1 is 0"),
        (lambda: Hypergraph.from_edges([[0, 1]], node_weight=[1.0]), "one value per vertex"),
        (lambda: Hypergraph([[1.0, -1.0]]), "hyperedge 0 and vertex 1 is -1"),
        (lambda: Hypergraph([[1.0, np.inf]]), "positive and finite"),
        (lambda: Hypergraph([1.0, 1.0]), "must be a matrix"),
        (lambda: Hypergraph([["a", "b"]]), "array of numbers"),
        (lambda: Hypergraph([[1, 1]], node_names=["a", "a"]), "repeat"),
        (lambda: Hypergraph([[1, 1]], edge_names=["a", "b"]), "must have 1 entries"),
        (lambda: Hypergraph.from_knn(np.zeros((3, 2)), k=3), "from 1 to 2"),
        (lambda: Hypergraph.from_knn([[np.nan, 1.0], [0, 0]], k=1), "finite"),
        (lambda: Hypergraph.from_knn([[1e200, 1.0], [0, 0]], k=1), "beyond 1e150"),
        (lambda: Hypergraph.from_edges([[0, 1]], edge_weight=[1e-320]), "over- or underflow"),
        (lambda: Hypergraph.from_edges([[0, 1]], node_weight=[1e300, 1.0]), "over- or underflow"),
        (lambda: Hypergraph([[1, 1]], drop_small="loud"), "drop_small"),
    ],
)
@pytest.mark.filterwarnings("ignore:dropped")
def test_bad_input_is_a_sentence(make, words):
    with pytest.raises(InputError, match=words):
        make()


def test_knn_hyperedges_hold_the_point_and_its_neighbours():
    X = np.random.default_rng(0).normal(size=(30, 2))
    H = Hypergraph.from_knn(X, 4)
    for i in range(30):
        near = np.argsort(((X - X[i]) ** 2).sum(axis=1))[:5]
        assert set(H.members(i)) == set(near)
    W = Hypergraph.from_knn(X, 4, weights="centre")
    assert np.all((W.incidence.data > 0) & (W.incidence.data <= 1))
    assert W.incidence[0, 0] == 1.0  # the centre itself


def test_categorical_table():
    table = pd.DataFrame(
        {
            "odor": ["none", "foul", "none", "foul"],
            "size": [1.0, 2.0, 2.0, 1.0],
            "root": ["a", "?", "a", "b"],
            "flag": [True, False, True, False],
        }
    )
    encoder = CategoricalEncoder().fit(table)
    assert encoder.dropped_ == ["root"]
    H = encoder.hypergraph_
    assert H.edge_names.tolist() == ["odor=none", "odor=foul", "size=1", "size=2", "flag=0", "flag=1"]
    assert H.incidence.toarray()[0].tolist() == [1, 0, 1, 0]
    kept = Hypergraph.from_categorical(table, missing="ignore_rows")
    assert "root=a" in kept.edge_names.tolist()
    assert "root=b" not in kept.edge_names.tolist()  # a single row


def test_quantile_bins_are_half_open_and_the_last_is_closed():
    table = pd.DataFrame({"v": np.arange(100.0)})
    encoder = CategoricalEncoder(n_bins=4).fit(table)
    H = encoder.hypergraph_
    assert H.sizes.tolist() == [25, 25, 25, 25]
    assert H.edge_names[0] == "v=[0, 24.75)"
    assert H.edge_names[-1].endswith("]")
    J = encoder.transform(pd.DataFrame({"v": [-5.0, 24.75, 99.0, 500.0]})).toarray()
    assert J.argmax(axis=1).tolist() == [0, 1, 3, 3]


def test_long_identifiers_stay_apart_and_huge_numbers_are_no_crash():
    big = 2**53
    H = Hypergraph.from_categorical(pd.DataFrame({"id": [big, big + 1, big, big + 1]}))
    assert H.edge_names.tolist() == [f"id={big}", f"id={big + 1}"]
    assert Hypergraph.from_categorical(pd.DataFrame({"v": [1e308, 1e308, 2.0, 2.0]})).n_edges == 2


def test_new_values_join_nothing():
    encoder = CategoricalEncoder().fit(pd.DataFrame({"a": ["x", "x", "y", "y"]}))
    assert encoder.transform(pd.DataFrame({"a": ["z", None]})).nnz == 0
    with pytest.raises(InputError, match="lacks the column 'a'"):
        encoder.transform(pd.DataFrame({"b": ["x"]}))


@pytest.mark.parametrize(
    ("frame", "options", "words"),
    [
        (pd.DataFrame({"a": [None, "x"]}), {}, "every column has missing"),
        (pd.DataFrame({"a": ["x", "y"]}), {}, "is empty"),
        (pd.DataFrame({"a": ["x", "x"]}), {"n_bins": 1}, "n_bins"),
        (pd.DataFrame({"a": ["x", "x"]}), {"missing": "guess"}, "missing must be"),
        (pd.DataFrame([["x", "x"]], columns=["a", "a"]), {}, "more than once"),
        (pd.DataFrame(), {}, "0 rows"),
        (pd.DataFrame({"a": [1.0, np.inf]}), {}, "infinite"),
    ],
)
def test_bad_tables(frame, options, words):
    with pytest.raises(InputError, match=words):
        CategoricalEncoder(**options).fit(frame)


def test_labels_file(tmp_path):
    path = tmp_path / "g.labels"
    path.write_bytes(b"\xef\xbb\xbftea coffee\r\n0\r\n?\r\n1\r\n\r\n")
    labels, classes = read_labels(path, 3)
    assert labels.tolist() == ["tea", "", "coffee"]
    assert classes == ["tea", "coffee"]
    path.write_text("x\ny\n-1\n")
    assert read_labels(path, 3)[0].tolist() == ["x", "y", ""]
    for text, words in (
        ("tea coffee\n0\n1\n", "2 labels for 3"),
        ("tea coffee\n0\n2\n1\n", "line 3: class 2"),
        ("a b\nc\n0\n1\n", "not a class"),
        ("a b\n\u00b2\n0\n1\n", "not a class"),  # a digit to Python, no index
        ("a a\n0\n0\n1\n", "occurs twice"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match=words):
            read_labels(path, 3)


def test_hyperedges_of_a_hundred_thousand_vertices():
    n = 100_000
    H = Hypergraph.from_edges([range(n), range(0, n, 2), [0, 1]])
    from assay.graphs.hypergraph_diffusion import hypergraph_pagerank

    s = np.zeros(n)
    s[:2] = [1.0, -1.0]
    x, history = hypergraph_pagerank(H, s, tol=1e-3, return_history=True)
    assert history["gap"][-1] <= 1e-3 * abs(history["objective"][-1])
    assert x[0] > 0 > x[1]
