"""Ours against METIS, KaHIP, scikit-learn and an interior-point method; the ratio within a group is the figure."""

from __future__ import annotations

import numpy as np
import pytest

from assay.graphs.semirandom_cut import SemiRandomBisection, adversary, make_semirandom_cut
from assay.graphs.semirandom_cut._experiments import instance, interior_point, kahip_cut, metis_cut, sklearn_cut
from assay.graphs.semirandom_cut._sdp import certified_lower_bound, solve_lowrank


def _ours(W):
    return SemiRandomBisection(certify=False, random_state=0).fit(W).labels_


ARMS = {
    "ours": _ours,
    "metis": lambda W: metis_cut(W, 0),
    "kahip": lambda W: kahip_cut(W, 0),
    "sklearn": lambda W: sklearn_cut(W, 0),
}
MODULES = {"metis": "pymetis", "kahip": "kahip", "sklearn": "sklearn", "ours": "numpy"}


@pytest.fixture(scope="module")
def graphs():
    return {n: instance(n, "dense", 0)[0] for n in (8000, 32000)}


@pytest.mark.parametrize("arm", ["ours", "metis", "kahip", "sklearn"])
@pytest.mark.benchmark(group="S(8000)")
def test_8000(benchmark, graphs, arm):
    pytest.importorskip(MODULES[arm])
    benchmark.pedantic(ARMS[arm], args=(graphs[8000],), rounds=2, warmup_rounds=1 if arm in ("ours", "metis") else 0)


@pytest.mark.parametrize("arm", ["ours", "metis"])
@pytest.mark.benchmark(group="S(32000)")
def test_32000(benchmark, graphs, arm):
    pytest.importorskip(MODULES[arm])
    benchmark.pedantic(ARMS[arm], args=(graphs[32000],), rounds=3, warmup_rounds=1)


@pytest.mark.parametrize("arm", ["low-rank and certificate", "interior point"])
@pytest.mark.benchmark(group="relaxation, n = 60")
def test_relaxation(benchmark, arm):
    pytest.importorskip("cvxpy")
    W = make_semirandom_cut(60, adversary=[adversary.random(8)], random_state=0)[0]

    def ours():
        rng = np.random.default_rng(0)
        point = solve_lowrank(W, balance=0.45, rng=rng)
        return certified_lower_bound(W, point, balance=0.45, rng=rng)

    if arm == "interior point":
        benchmark.pedantic(interior_point, args=(W, 0.45), rounds=1)
    else:
        benchmark.pedantic(ours, rounds=5, warmup_rounds=1)
