"""Dasgupta's cost against scikit-network's implementation, whose values are kept as data."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from assay.graphs.semirandom_cut import dasgupta_cost

CASES = json.loads(Path(__file__).with_name("dasgupta_cost.json").read_text())["cases"]


def adjacency(case):
    i, j, w = np.array(case["edges"]).T
    A = sp.coo_array((w, (i.astype(int), j.astype(int))), shape=(case["n"], case["n"])).tocsr()
    return A + A.T


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_equals_scikit_network(case):
    # scikit-network divides by the total edge weight, and sums in single precision: hence 1e-6
    expected = case["scikit_network"] * case["total_weight"]
    assert dasgupta_cost(case["tree"], adjacency(case)) == pytest.approx(expected, rel=1e-6)


def test_karate_is_865():
    case = next(case for case in CASES if case["name"] == "karate / Paris uniform")
    assert dasgupta_cost(case["tree"], adjacency(case)) == 865
    assert round(case["scikit_network"], 4) == 11.0897


@pytest.mark.filterwarnings("ignore::FutureWarning")  # scikit-network's own call of scipy.sparse.diags
def test_against_the_live_package():
    hierarchy = pytest.importorskip("sknetwork.hierarchy", reason="scikit-network is a peer of the bench group only")
    for case in CASES:
        tree = np.array(case["tree"], dtype=float)
        heights = np.arange(1.0, len(tree) + 1)
        dendrogram = np.column_stack((tree, heights, heights + 1))
        A = sp.csr_matrix(adjacency(case), dtype=float)
        theirs = hierarchy.dasgupta_cost(A, dendrogram, normalized=False) * case["total_weight"]
        assert dasgupta_cost(tree, A) == pytest.approx(theirs, rel=1e-6)
