"""The claims are well formed, arms share their initial designs, and the experiments run at a small size."""

import pytest

from assay.decisions.pkgfn import _experiments, claims
from assay.decisions.pkgfn._job import start_problem


def test_arms_start_from_the_same_designs():
    net = _experiments.PROBLEMS["pharma"]()
    a, b = (start_problem(net, m, 4.0, 1000, 5, False, "fixed") for m in ("pkgfn", "random"))
    assert a.observations[0][0].tolist() == b.observations[0][0].tolist()
    other = start_problem(net, "pkgfn", 4.0, 1001, 5, False, "fixed")
    assert a.observations[0][0].tolist() != other.observations[0][0].tolist()


@pytest.mark.parametrize("arm", ["pkgfn", "eifn", "random"])
def test_race(arm):
    size = {"problem": "pharma", "budget": 2.0, "initial": 5, "regret": True}
    found = claims.race(arm, 1000, None, size, "cpu")
    assert found["over_budget"] == 0
    assert found["runs_node0"] + found["runs_node1"] == found["evaluations"] == 2
    assert 0 <= found["regret"] < 1.5
    assert found == {**claims.race(arm, 1000, None, size, "cpu"), "seconds_per_query": found["seconds_per_query"]}


def test_scale_of_a_problem_is_its_optimum():
    best, typical = _experiments.scale_of("pharma")
    assert best == pytest.approx(1.06352, abs=1e-4)
    assert typical < best


def test_closed_form_equals_fantasy_models():
    found = claims.closed_form("ours", 1000, None, {"n": 16, "batches": [1], "repeats": 1, "checks": 3}, "cpu")
    assert max(found["difference"] + found["difference_tabulated"]) < 1e-6
    assert found["ratio_b1"] > 1


@pytest.mark.slow  # two runs in seven variables
def test_effort_counts_acquisition_values():
    size = {"problem": "ackley_matyas", "budget": 2.0, "initial": 9}
    fast, plain = (claims.effort(arm, 1000, None, size, "cpu") for arm in ("fast_pkgfn", "pkgfn"))
    assert fast["evaluations_per_ask"] <= 2
    assert plain["evaluations_per_ask"] > 100
