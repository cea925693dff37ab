"""Optima and minimisers against a general conic solver, whose values are kept as data."""

import json
from pathlib import Path

import numpy as np
import pytest

from assay.graphs.hypergraph_diffusion import Hypergraph, hypergraph_pagerank
from assay.graphs.hypergraph_diffusion._solve import solve

CASES = json.loads(Path(__file__).with_name("resolvents.json").read_text(encoding="utf-8"))["instances"]


def load(case):
    return Hypergraph.from_edges(case["edges"], case["n"], case["edge_weight"], node_weight=case["node_weight"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
@pytest.mark.parametrize("solver", ["dual", "qp"])
def test_exact_solvers(case, solver):
    H, s = load(case), np.array(case["s"])[:, None]
    found = solve(H, s, case["lam"], solver=solver, tol=1e-9, max_iter=20_000)
    # 1e-8: the precision to which the conic solver was asked, with two digits to spare
    assert found.objective[0] == pytest.approx(case["objective"], rel=1e-8)
    np.testing.assert_allclose(found.x[:, 0], case["x"], atol=1e-4)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_algorithm_1(case):
    H, s = load(case), np.array(case["s"])[:, None]
    found = solve(H, s, case["lam"], max_iter=5000, tol=None)
    assert 0 <= found.objective[0] - case["objective"] <= 1e-3 * abs(case["objective"])
    assert found.lower_bound[0] <= case["objective"] + 1e-9


def test_pairs_against_networkx_pagerank():
    """networkx walks without laziness: teleport beta there is lam / (1 + lam) here, and its vector is D x."""
    nx = pytest.importorskip("networkx")
    G = nx.les_miserables_graph()
    nodes = list(G.nodes)
    edges = [[nodes.index(a), nodes.index(b)] for a, b in G.edges]
    H = Hypergraph.from_edges(edges, edge_weight=[float(d["weight"]) for _, _, d in G.edges(data=True)])
    lam = 0.5
    seed = np.zeros(H.n_nodes)
    seed[nodes.index("Valjean")] = lam
    x = hypergraph_pagerank(H, seed, lam, tol=1e-13, max_iter=5000)
    theirs = nx.pagerank(G, alpha=1 / (1 + lam), personalization={"Valjean": 1.0}, tol=1e-14, max_iter=1000)
    np.testing.assert_allclose(H.degree * x, [theirs[v] for v in nodes], atol=1e-6)
