"""Dasgupta's cost equals brute force, and the hierarchy is a valid tree that finds what was planted."""

import itertools

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.cluster.hierarchy import cophenet, dendrogram, fcluster, is_monotonic, is_valid_linkage, leaves_list

from assay._core.errors import InputError
from assay.graphs.semirandom_cut import DasguptaHierarchy, adversary, dasgupta_cost, make_semirandom_hsbm
from assay.graphs.semirandom_cut._hierarchy import to_newick


def random_weights(n, rng, density=0.5):
    A = np.triu(rng.integers(1, 6, (n, n)) * (rng.random((n, n)) < density), 1).astype(float)
    return A + A.T


def random_tree(n, rng):
    roots, rows = list(range(n)), []
    for t in range(n - 1):
        a, b = rng.choice(len(roots), 2, replace=False)
        rows.append([roots[a], roots[b]])
        roots = [r for k, r in enumerate(roots) if k not in (a, b)] + [n + t]
    return np.array(rows)


def brute_force_cost(tree, A):
    n = len(A)
    below = {i: {i} for i in range(n)}
    for t, (a, b) in enumerate(tree):
        below[n + t] = below[a] | below[b]
    return sum(
        A[i, j] * min(len(s) for s in below.values() if {i, j} <= s) for i, j in itertools.combinations(range(n), 2)
    )


def optimum(A, vertices=None):
    """Least cost over all binary trees, by trying every split of every subset."""
    vertices = tuple(range(len(A))) if vertices is None else vertices
    if len(vertices) == 1:
        return 0.0
    first, rest = vertices[0], vertices[1:]
    best = np.inf
    for size in range(len(rest)):
        for chosen in itertools.combinations(rest, size):
            left = (first, *chosen)
            right = tuple(v for v in rest if v not in chosen)
            here = len(vertices) * A[np.ix_(left, right)].sum()
            if here < best:
                best = min(best, here + optimum(A, left) + optimum(A, right))
    return best


@pytest.mark.parametrize("n", range(2, 9))
def test_cost_equals_brute_force(n):
    rng = np.random.default_rng(n)
    for _ in range(20):
        A, tree = random_weights(n, rng), random_tree(n, rng)
        expected = brute_force_cost(tree.tolist(), A)
        assert dasgupta_cost(tree, A) == expected
        linkage = np.column_stack((tree, np.ones((n - 1, 2))))
        assert dasgupta_cost(linkage, sp.csr_array(A)) == expected


def test_cost_is_linear_in_the_weights_and_ignores_names():
    rng = np.random.default_rng(0)
    A, tree = random_weights(30, rng), random_tree(30, rng)
    assert dasgupta_cost(tree, 3 * A) == 3 * dasgupta_cost(tree, A)
    order = rng.permutation(30)
    back = np.concatenate((np.argsort(order), np.arange(30, 59)))
    assert dasgupta_cost(back[tree], A[np.ix_(order, order)]) == dasgupta_cost(tree, A)


def test_clique_costs_the_same_under_every_tree():
    # Dasgupta (2016), theorem 3: every tree over a clique costs (n^3 - n)/3
    rng = np.random.default_rng(1)
    for n in (2, 5, 17):
        assert dasgupta_cost(random_tree(n, rng), np.ones((n, n)) - np.eye(n)) == (n**3 - n) / 3


def test_cost_of_a_deep_tree():
    n = 50_000  # a caterpillar: any recursion over the depth would fail here
    rows = np.column_stack((np.r_[0, n + np.arange(n - 2)], np.arange(1, n)))
    path = sp.diags_array([np.ones(n - 1), np.ones(n - 1)], offsets=[-1, 1], format="csr")
    assert dasgupta_cost(rows, path) == (n * (n + 1) - 2) / 2  # 2 + 3 + ... + n


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ([[0, 1]], r"shape \(2, 2\) or \(2, 4\)"),
        (np.zeros((2, 3)), "shape"),
        ([[0, 3], [1, 2]], "Row 0 of the tree merges .0, 3., but only nodes 0..2 exist"),
        ([[0, 1], [1, 2]], "Node 1 is merged twice"),
        ([[0, 1], [3, 2.5]], "whole numbers"),
        ([[0, 1], [3, np.nan]], "whole numbers"),
        ([[0, -1], [3, 2]], "Row 0"),
    ],
)
def test_bad_trees(tree, message):
    with pytest.raises(InputError, match=message):
        dasgupta_cost(tree, np.ones((3, 3)) - np.eye(3))


def assert_valid_tree(h, n):
    assert is_valid_linkage(h.linkage_)
    assert is_monotonic(h.linkage_)
    assert sorted(h.children_.ravel().tolist()) == list(range(2 * n - 2))
    assert h.linkage_[-1, 3] == n
    assert sorted(leaves_list(h.linkage_).tolist()) == list(range(n))
    assert len(dendrogram(h.linkage_, no_plot=True)["leaves"]) == n


def test_linkage_is_readable_and_carries_the_cost():
    A = nx.to_scipy_sparse_array(nx.karate_club_graph(), weight="weight", dtype=float)
    h = DasguptaHierarchy(leaf_size=6, random_state=0).fit(A)
    assert_valid_tree(h, 34)
    # a merge is as high as it has leaves, so the cost is the weighted sum of cophenetic distances
    i, j = np.triu_indices(34, 1)
    assert h.cost_ == pytest.approx(A.toarray()[i, j] @ cophenet(h.linkage_))
    assert h.cost_ == dasgupta_cost(h.linkage_, A)
    assert max(np.bincount(fcluster(h.linkage_, 12, "distance"))) <= 12


def test_small_graphs_are_close_to_the_optimum():
    rng = np.random.default_rng(5)
    for n in (4, 5, 6):
        for _ in range(2):
            A = random_weights(n, rng)
            for leaf_size in (2, 32):
                cost = DasguptaHierarchy(leaf_size=leaf_size, random_state=0).fit(A).cost_
                best = optimum(A)
                # measured at most 1.09 on these graphs; both recursion and average linkage promise only a constant
                assert best <= cost <= 1.2 * best + 1e-9


def test_components_are_separated_before_anything_is_cut():
    blocks = [np.ones((k, k)) - np.eye(k) for k in (1, 3, 40, 1, 5)]
    A = sp.block_diag(blocks, format="csr")
    order = np.random.default_rng(0).permutation(50)
    h = DasguptaHierarchy(n_clusters=5, random_state=0).fit(A[order][:, order])
    assert_valid_tree(h, 50)
    assert h.cost_ == sum((len(b) ** 3 - len(b)) / 3 for b in blocks)
    assert sorted(np.bincount(h.cut_tree(2)).tolist()) == [10, 40]


def test_no_edges_and_two_vertices():
    h = DasguptaHierarchy(random_state=0).fit(np.zeros((9, 9)))
    assert_valid_tree(h, 9)
    assert h.cost_ == 0
    assert DasguptaHierarchy().fit([[0, 1], [1, 0]]).linkage_.tolist() == [[0, 1, 2, 2]]


def test_flat_clusters_are_nested():
    h = DasguptaHierarchy(random_state=0).fit(nx.karate_club_graph())
    finer = None
    for k in (34, 20, 8, 3, 2, 1):
        labels = h.cut_tree(k)
        assert len(np.unique(labels)) == k == labels.max() + 1
        assert labels[0] == 0
        if finer is not None:
            assert len(set(zip(finer.tolist(), labels.tolist(), strict=True))) == len(np.unique(finer))
        finer = labels
    with pytest.raises(InputError, match="n_clusters"):
        h.cut_tree(35)


@pytest.mark.slow  # the contract suite asks the same
def test_deterministic_and_the_same_for_all_containers():
    A = nx.to_scipy_sparse_array(nx.les_miserables_graph(), dtype=float)
    first = DasguptaHierarchy(random_state=3).fit(A)
    for other in (A.toarray(), nx.les_miserables_graph(), A):
        again = DasguptaHierarchy(random_state=3, n_jobs=2).fit(other)
        np.testing.assert_array_equal(first.children_, again.children_)
    scaled = DasguptaHierarchy(random_state=3).fit(8 * A)
    np.testing.assert_array_equal(first.children_, scaled.children_)
    assert scaled.cost_ == 8 * first.cost_


def test_finds_the_planted_hierarchy_below_an_adversary():
    W, _, info = make_semirandom_hsbm(
        depth=2, leaf_size=40, probs=(0.02, 0.08, 0.35), adversary=[adversary.cliques(4, 12)], random_state=0
    )
    h = DasguptaHierarchy(n_clusters=4, random_state=0).fit(W)
    assert_valid_tree(h, 160)
    # the spec's bound; measured .99: below 1 because the tree goes on inside the planted leaves
    assert h.cost_ <= 1.02 * dasgupta_cost(info["children"], W)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_clusters": 0}, "n_clusters"),
        ({"n_clusters": 35}, "n_clusters"),
        ({"leaf_size": 0}, "leaf_size"),
        ({"n_iter": 0}, "n_iter"),
    ],
)
def test_bad_parameters(params, message):
    with pytest.raises(InputError, match=message):
        DasguptaHierarchy(**params).fit(nx.karate_club_graph())


def test_newick_quotes_what_it_must():
    Z = np.array([[0, 1, 2, 2], [2, 3, 3, 3]], dtype=float)
    assert to_newick(Z, np.array(["a", "O'Neil", "c d"])) == "('c d':3,(a:2,'O''Neil':2):1);"
