"""Hierarchy, cost and reading against their peers: the ratio inside a group is the figure.

Run with ``pytest bench/graphs/bench_semirandom_cut_hierarchy.py --benchmark-enable --benchmark-group-by=group``.
"""

import numpy as np
import pytest
import scipy.sparse as sp

from assay.graphs.semirandom_cut import (
    DasguptaHierarchy,
    adversary,
    dasgupta_cost,
    make_semirandom_hsbm,
    read_metis,
    write_metis,
)


@pytest.fixture(scope="module")
def planted():
    return make_semirandom_hsbm(3, 60, (0.02, 0.05, 0.12, 0.3), [adversary.cliques(6, 12)], random_state=0)[0]


@pytest.fixture(scope="module")
def large():
    """A tree over 20,000 vertices, and 120,000 random edges."""
    rng = np.random.default_rng(0)
    n = 20_000
    A = sp.coo_array((np.ones(120_000), rng.integers(0, n, (2, 120_000))), shape=(n, n)).tocsr()
    A = ((A + A.T) != 0).astype(float)
    A = sp.csr_array(A - sp.diags_array(A.diagonal()))
    A.eliminate_zeros()
    roots, rows = list(range(n)), []
    for t in range(n - 1):  # a random balanced tree: always the two oldest
        rows.append((roots[2 * t], roots[2 * t + 1]))
        roots.append(n + t)
    return A, np.array(rows)


def as_sknetwork(A):
    return sp.csr_matrix((A.data, A.indices.astype(np.int32), A.indptr.astype(np.int32)), shape=A.shape)


@pytest.mark.benchmark(group="hierarchy, 480 vertices")
def test_hierarchy_ours(benchmark, planted):
    model = benchmark(lambda: DasguptaHierarchy(random_state=0).fit(planted))
    benchmark.extra_info["cost"] = model.cost_


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.benchmark(group="hierarchy, 480 vertices")
def test_hierarchy_paris(benchmark, planted):
    hierarchy = pytest.importorskip("sknetwork.hierarchy", reason="scikit-network is in the bench group only")
    tree = benchmark(lambda: hierarchy.Paris().fit_predict(as_sknetwork(planted)))
    benchmark.extra_info["cost"] = dasgupta_cost(tree, planted)


@pytest.mark.benchmark(group="dasgupta_cost, 20,000 vertices, 120,000 edges")
def test_cost_ours(benchmark, large):
    A, tree = large
    benchmark(lambda: dasgupta_cost(tree, A))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.benchmark(group="dasgupta_cost, 20,000 vertices, 120,000 edges")
def test_cost_scikit_network(benchmark, large):
    hierarchy = pytest.importorskip("sknetwork.hierarchy", reason="scikit-network is in the bench group only")
    A, tree = large
    height = np.arange(1.0, len(tree) + 1)
    dendrogram = np.column_stack((tree, height, height + 1))
    benchmark.pedantic(lambda: hierarchy.dasgupta_cost(as_sknetwork(A), dendrogram), rounds=1)


@pytest.mark.benchmark(group="read METIS, 120,000 edges")
def test_read_metis_ours(benchmark, large, tmp_path):
    write_metis(tmp_path / "g.graph", large[0])
    benchmark(lambda: read_metis(tmp_path / "g.graph"))


@pytest.mark.benchmark(group="read METIS, 120,000 edges")
def test_read_metis_line_by_line(benchmark, large, tmp_path):
    path = tmp_path / "g.graph"
    write_metis(path, large[0])

    def loop():
        lines = path.read_text().split("\n")
        return [[int(x) for x in line.split()] for line in lines[1:]]

    benchmark(loop)
