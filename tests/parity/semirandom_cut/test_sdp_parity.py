"""Value and certificate against an interior-point method (stored values) on graphs of up to 100 vertices."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from assay.graphs.semirandom_cut._sdp import certified_lower_bound, solve_lowrank

STORED = json.loads((Path(__file__).parent / "sdp_values.json").read_text(encoding="utf-8"))["graphs"]


@pytest.mark.parametrize("case", STORED, ids=[c["name"] for c in STORED])
def test_value_and_bound(case):
    i, j = np.array(case["edges"]).T
    w = np.array(case["weights"] or np.ones(i.size))
    half = sp.coo_array((w, (i, j)), shape=(case["n"], case["n"]))
    W = sp.csr_array(half + half.T)
    rng = np.random.default_rng(0)
    point = solve_lowrank(W, balance=case["balance"], rng=rng)
    bound, kind = certified_lower_bound(W, point, balance=case["balance"], rng=rng)
    optimum = case["sdp_value"]
    assert point.value == pytest.approx(optimum, rel=1e-3)
    assert kind == "cholesky"
    # 1e-6: accuracy of the interior-point value
    assert 0.99 * optimum <= bound <= optimum * (1 + 1e-6)
