"""The compiled round against the same formulas in 50-digit arithmetic (stored values)."""

import json
from pathlib import Path

import numpy as np
import pytest

from assay.decisions.dual_balancing._balancing import FEEDBACKS, State, build_setup, primal_rates
from assay.decisions.dual_balancing._replay import play

CASES = json.loads(Path(__file__).with_name("reference.json").read_text(encoding="utf-8"))["cases"]


class Draws:
    """A generator that gives the stored numbers."""

    def __init__(self, values):
        self.values = np.array(values) / 1e6

    def random(self, n):
        return self.values[:n]


@pytest.mark.parametrize("case", CASES, ids=[f"{c['feedback']}-{i}" for i, c in enumerate(CASES)])
def test_rounds(case):
    f, c = np.array(case["reward"]) / 1e6, np.array(case["cost"]) / 1e6
    T, K = f.shape
    code = FEEDBACKS[case["feedback"]]
    setup = build_setup(horizon=T, budget=float(case["budget"]), roi_target=float(case["omega"]), feedback=code)
    rates = primal_rates("auto", code, K, T)
    state = State(setup, K, rates[2])
    top = np.broadcast_to(np.array([0.0, 1.0, 1.0, 1.0]), (T, K))
    actions, trace = play(setup, state, rates, code, f, c, top, Draws(case["draws"]))
    assert actions.tolist() == case["actions"]
    # sixty rounds of double precision against fifty digits
    np.testing.assert_allclose(trace, case["multipliers"], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(state.w[0], case["weights"], rtol=1e-9)
    assert state.num[1] == pytest.approx(case["spend"], rel=1e-12)


def test_the_cases_are_not_idle():
    for case in CASES:
        assert max(x[0] for x in case["multipliers"]) > 0
        assert max(x[1] for x in case["multipliers"]) > 0
        assert len(set(case["actions"])) > 2
