"""The claims of the method are well formed, and each experiment runs at a small size."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from assay.graphs.semirandom_cut import claims


def test_ids_and_experiments():
    ids = [c.id for c in claims.CLAIMS]
    assert len(set(ids)) == len(ids)
    for claim in claims.CLAIMS:
        assert claim.id.startswith("semirandom-cut/")
        assert {"quick", "standard", "full"} <= set(claim.tiers)
        assert list(inspect.signature(getattr(claims, claim.experiment)).parameters) == [
            "arm",
            "seed",
            "data",
            "size",
            "device",
        ]


@pytest.mark.parametrize("arm", ["lowrank", "fiedler-median", "fiedler-sweep"])
@pytest.mark.parametrize("instance", ["dense", "thin"])
def test_planted(arm, instance):
    result = claims.planted(arm, 1000, None, {"n": 200, "instance": instance}, "cpu")
    assert result["cut"] == pytest.approx(result["cut_over_planted"] * result["planted_cut"])
    assert 0 < result["balance"] <= 0.5
    assert ("lower_bound" in result) == (arm == "lowrank")


def test_the_ablated_arms_leave_out_what_they_say():
    size = {"n": 400, "instance": "thin"}
    full, no_moves, sweeps = (
        claims.planted(arm, 5, None, size, "cpu") for arm in ("lowrank", "lowrank-no-moves", "lowrank-sweeps")
    )
    assert full["cut"] <= no_moves["cut"] <= sweeps["cut"]
    assert full["cut"] < sweeps["cut"]
    assert full["edges"] == sweeps["edges"]
    assert sweeps["balance"] >= 0.45 - 1e-9
    assert full["certified_ratio"] == full["cut"] / full["lower_bound"]


def test_arms_see_the_same_graph():
    runs = [
        claims.planted(a, 1001, None, {"n": 200, "instance": "dense"}, "cpu") for a in ("fiedler-median", "lowrank")
    ]
    assert runs[0]["edges"] == runs[1]["edges"]
    assert runs[0]["planted_cut"] == runs[1]["planted_cut"]


def test_heavy_and_sparsest():
    heavy = claims.heavy("lowrank", 1000, None, {"n": 200, "cliques": 1, "clique_size": 40}, "cpu")
    assert heavy["heavy_over_plain"] <= 1
    ratios = claims.sparsest("lowrank", 1000, None, {"n": 200, "cliques": 1}, "cpu")["sparsity_over_planted"]
    assert len(ratios) == 3
    assert np.isfinite(ratios).all()


def test_hierarchy_and_scaling():
    size = {"depth": 1, "leaf_size": 40, "cliques": 1, "probs": [0.05, 0.5]}
    ours = claims.hierarchy("ours", 1000, None, size, "cpu")
    linkage = claims.hierarchy("average-linkage", 1000, None, size, "cpu")
    assert ours["planted_cost"] == linkage["planted_cost"]
    assert ours["cost"] <= linkage["cost"]
    curve = claims.scaling("lowrank", 1000, None, {"n": [150, 300]}, "cpu")
    assert curve["m"][0] < curve["m"][1]
    assert len(curve["seconds"]) == 2
