"""Compiled loops against their numpy versions bit for bit, and both against the definitions."""

import itertools

import numpy as np
import pytest

from assay import InputError
from assay.graphs.hypergraph_diffusion import (
    CardinalityCut,
    GaussianMICut,
    Hypergraph,
    SubmodularCut,
    potential,
    subgradient,
)
from assay.graphs.hypergraph_diffusion import _kernels as kernels


def hypergraph(seed, n=40, m=60, largest=12, node_weight=False):
    rng = np.random.default_rng(seed)
    edges = [rng.choice(n, size=int(rng.integers(2, largest + 1)), replace=False) for _ in range(m)]
    extra = {"node_weight": rng.uniform(0.5, 2, n)} if node_weight else {}
    H = Hypergraph.from_edges(edges, n_nodes=n, edge_weight=rng.uniform(0.5, 2, m), **extra)
    H.incidence.data[:] = rng.uniform(0.3, 3, H.incidence.nnz)
    return H


def points(H, seed, c=3):
    """Generic scores, scores with many ties, and one constant column."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(H.n_nodes, c))
    x[:, 1] = np.round(x[:, 1])
    x[:, 2] = 0.5
    return x


CUTS = {
    "standard": "standard",
    "node_weighted": "node_weighted",
    "linear": "linear",
    "star": "star",
    "cardinality": CardinalityCut(lambda k, m: min(k, m - k, 2)),
    "concave": CardinalityCut(lambda k, m: k * (m - k) / m),
    "submodular": SubmodularCut(lambda members, inside: float(np.sqrt(min(inside.sum(), (~inside).sum())))),
}


def all_cuts(H):
    return {**CUTS, "mutual information": GaussianMICut(np.random.default_rng(0).normal(size=(H.n_nodes, 2)))}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kernel", ["extent", "standard", "weighted", "cardinality"])
def test_compiled_equals_numpy_bit_for_bit(kernel, seed, monkeypatch):
    H = hypergraph(seed, node_weight=seed % 2 == 1)
    B, x = H.incidence, points(H, seed)
    table, offset = CUTS["cardinality"].table(H.sizes)
    middle = {"weighted": (B.data,), "cardinality": (table, offset)}.get(kernel, ())
    results = []
    for off in ("", "1"):
        monkeypatch.setenv("ASSAY_NO_NUMBA", off)
        out, delta = np.empty_like(x), np.empty((H.n_edges, x.shape[1]))
        if kernel == "extent":
            kernels.extent(x, B.indptr, B.indices, delta)
            out[:] = 0
        else:
            getattr(kernels, kernel)(x, B.indptr, B.indices, *middle, H.edge_weight, H.degree, out, delta)
        results.append((out, delta))
    for compiled, numpy in zip(*results, strict=True):
        np.testing.assert_array_equal(compiled, numpy)


@pytest.mark.parametrize("name", [*CUTS, "mutual information"])
def test_subgradient_inequality_sum_and_homogeneity(name):
    """U(z) >= U(x) + g (z - x); g sums to zero; g x = 2 U(x): 100 random pairs, ties included."""
    H = hypergraph(1, n=12, m=10, largest=5)
    cut = all_cuts(H)[name]
    rng = np.random.default_rng(3)
    X = np.round(rng.normal(size=(12, 100)), np.repeat([0, 6], 50)[0])
    X[:, 50:] = rng.normal(size=(12, 50))
    Z = rng.normal(size=(12, 100)) + np.where(rng.random(100) < 0.5, X, 0)
    U, g, V = potential(H, X, cut), subgradient(H, X, cut), potential(H, Z, cut)
    scale = 1 + np.abs(V) + np.abs(U)
    assert np.all(U + (g * (Z - X)).sum(axis=0) - 1e-10 * scale <= V)
    np.testing.assert_allclose(g.sum(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose((g * X).sum(axis=0), 2 * U, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["standard", "linear", "cardinality", "concave", "submodular", "mutual information"])
def test_potential_is_the_lovasz_extension(name):
    """Against the maximum over the base polytope, by all greedy vertices: delta(x) = max over orders of x y."""
    H = hypergraph(2, n=6, m=5, largest=4)
    cut = all_cuts(H)[name]
    functions = {
        "standard": lambda members, k: float(0 < len(k) < len(members)),
        "linear": lambda members, k: float(min(len(k), len(members) - len(k))),
        "cardinality": lambda members, k: float(min(len(k), len(members) - len(k), 2)),
        "concave": lambda members, k: len(k) * (len(members) - len(k)) / len(members),
        "submodular": lambda members, k: float(np.sqrt(min(len(k), len(members) - len(k)))),
        "mutual information": lambda members, k: mutual_information(cut, members, k),
    }
    F = functions[name]
    x = np.random.default_rng(4).normal(size=6)
    total = 0.0
    for h in range(H.n_edges):
        members = H.members(h).tolist()
        best = -np.inf
        for order in itertools.permutations(members):
            values = [F(members, order[:j]) for j in range(len(order) + 1)]
            best = max(best, sum(x[v] * (values[j + 1] - values[j]) for j, v in enumerate(order)))
        total += 0.5 * H.edge_weight[h] * best**2
    assert potential(H, x, cut) == pytest.approx(total, rel=1e-10)


def mutual_information(cut, members, inside):
    def logdet(part):
        p = cut.points[list(part)]
        if not len(p):
            return 0.0
        K = np.exp(-((p[:, None] - p[None]) ** 2).sum(axis=2) / (2 * cut.scale**2)) + cut.noise * np.eye(len(p))
        return np.linalg.slogdet(K)[1]

    outside = [v for v in members if v not in inside]
    return 0.5 * (logdet(inside) + logdet(outside) - logdet(members))


def test_node_weighted_minimises_over_the_centre():
    H = hypergraph(5)
    x = points(H, 5)[:, 0]
    grid = np.linspace(x.min(), x.max(), 20_001)
    total = 0.0
    for h in range(H.n_edges):
        a, b = H.incidence.indptr[h : h + 2]
        r, v = H.incidence.data[a:b], x[H.incidence.indices[a:b]]
        total += 0.5 * H.edge_weight[h] * (2 * (r[:, None] * np.abs(v[:, None] - grid)).max(axis=0).min()) ** 2
    assert potential(H, x, "node_weighted") == pytest.approx(total, rel=1e-3)  # the grid's spacing
    assert potential(H, x, "node_weighted") <= total * (1 + 1e-12)


def test_unit_values_reduce_node_weighted_to_standard():
    H = hypergraph(6)
    H.incidence.data[:] = 1.0
    x = points(H, 6)
    np.testing.assert_allclose(potential(H, x, "node_weighted"), potential(H, x), rtol=1e-12)
    np.testing.assert_allclose(subgradient(H, x, "node_weighted"), subgradient(H, x), atol=1e-12)


def test_cardinality_one_is_standard_ties_included():
    H = hypergraph(7)
    x = points(H, 7)
    one = CardinalityCut(lambda k, m: min(k, m - k, 1))
    np.testing.assert_allclose(potential(H, x, one), potential(H, x), rtol=1e-12)
    np.testing.assert_allclose(subgradient(H, x, one), subgradient(H, x), atol=1e-12)


def test_norm_of_the_subgradient_is_bounded_by_the_potential():
    """|g|^2 in the inverse degree norm is at most 4 U: why steps need not vanish."""
    for seed in range(10):
        H = hypergraph(seed)
        x = points(H, seed)
        g = subgradient(H, x)
        assert np.all((g**2 / H.degree[:, None]).sum(axis=0) <= 4 * potential(H, x) + 1e-12)


def test_ties_share_by_degree():
    H = Hypergraph.from_edges([[0, 1, 2], [0, 3]], edge_weight=[1.0, 2.0])
    g = subgradient(H, [1.0, 1.0, 0.0, 1.0])
    np.testing.assert_allclose(g, [0.75, 0.25, -1.0, 0.0])  # degrees 3 and 1


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        ("clique", "cut must be one of"),
        (CardinalityCut(lambda k, m: k**2 - m * k), "not concave"),
        (CardinalityCut(lambda k, m: 1.0), "must be 0"),
        (GaussianMICut([[0.0], [1.0]]), "2 points for 40"),
    ],
)
def test_bad_cuts_are_refused(cut, words):
    H = hypergraph(0)
    with pytest.raises(InputError, match=words):
        potential(H, np.zeros(40), cut)


def test_mutual_information_refuses_a_singular_kernel():
    with pytest.raises(InputError, match="noise"):
        GaussianMICut([[0.0]], noise=0.0)
