"""Dose planning: the chosen dose removes the most variance, and plans are sane."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from assay._core.errors import InputError
from assay.bio.dose_response import ARCANet, DoseResponseData, suggest_doses


def planned_model(residual="gp", gain=1.0):
    rng = np.random.default_rng(0)
    doses = np.array([0.01, 0.03, 0.1, 3.0, 10.0])  # a gap between 0.1 and 3
    rows = []
    for d in range(3):
        for c in range(5):
            effect = gain / (1 + np.exp(-2 * (np.log10(doses) + 0.3 - 0.2 * d))) + 0.05 * rng.normal(size=5)
            rows += [(f"d{d}", f"c{c}", z, e) for z, e in zip(doses, effect, strict=True)]
    table = pd.DataFrame(rows, columns=["drug", "cell_line", "dose_uM", "y"])
    data = DoseResponseData.from_long(table, response="y", response_type="inhibition")
    mask = data.mask.copy()
    mask[-1] = False  # d2 on c4 is unmeasured
    return ARCANet(epochs=60, lr=5e-3, hidden_dim=16, residual=residual, random_state=0).fit(data, mask)


@pytest.fixture(scope="module")
def model():
    net = planned_model()
    # Fixed hyper-parameters, so that the plan does not hang on what the short fit found.
    from assay.bio.dose_response import ResidualGP

    gp = net.residual_gp_
    net.residual_gp_ = ResidualGP.from_arrays(gp.to_arrays() | {"hyper": np.array([0.02, 0.5, 1e-4, 0.002])})
    return net


def test_area_plan_removes_the_most_variance_by_brute_force(model):
    (dose,) = suggest_doses(model, "d0", "c0", 1, target="aac")
    gp = model.residual_gp_
    x = np.linspace(-2, 1, 121)
    covariance = gp.posterior(0, 10**x)[1]
    positive = model.predict("d0", "c0", 10**x) > 0
    weight = np.gradient(x) * positive
    weight[[0, -1]] /= 2
    weight /= weight.sum()
    left = []
    for j in range(len(x)):  # condition on each dose in turn and integrate what remains
        remaining = covariance - np.outer(covariance[j], covariance[j]) / (covariance[j, j] + gp.noise_)
        left.append(weight @ remaining @ weight)
    assert dose == pytest.approx(10 ** x[int(np.argmin(left))])
    assert 0.1 < dose < 3.0  # in the gap


def test_ic50_plan_lies_near_the_crossing(model):
    (dose,) = suggest_doses(model, "d0", "c0", 1, target="ic50")
    x = np.linspace(-2, 1, 200)
    crossing = 10 ** x[np.argmax(model.predict("d0", "c0", 10**x) >= 0.5)]
    assert abs(np.log10(dose) - np.log10(crossing)) < 0.5


def test_several_doses_are_distinct_inside_the_range_and_start_with_the_best(model):
    for target in ("aac", "ic50"):
        doses = suggest_doses(model, "d1", "c2", 4, target=target)
        assert doses.shape == (4,)
        assert ((doses >= 0.01 * (1 - 1e-9)) & (doses <= 10 * (1 + 1e-9))).all()
        assert doses[0] == suggest_doses(model, "d1", "c2", 1, target=target)[0]
        assert len(np.unique(doses)) > 1
        assert np.array_equal(doses, suggest_doses(model, "d1", "c2", 4, target=target))


def test_unmeasured_pair_is_planned_in_the_range_of_the_drug(model):
    doses = suggest_doses(model, "d2", "c4", 2, target="aac")
    assert ((doses > 0.01) & (doses < 10)).all()


def test_a_curve_that_never_crosses_is_planned_by_area_with_a_warning(model):
    weak = planned_model(gain=0.02)
    from assay.bio.dose_response import ResidualGP

    weak.residual_gp_ = ResidualGP.from_arrays(
        weak.residual_gp_.to_arrays() | {"hyper": np.array([1e-4, 0.5, 1e-6, 1e-4])}
    )
    with pytest.warns(UserWarning, match="No plausible curve"):
        doses = suggest_doses(weak, "d0", "c0", 1)
    assert doses[0] == suggest_doses(weak, "d0", "c0", 1, target="aac")[0]


def test_bad_requests(model):
    with pytest.raises(InputError, match="target"):
        suggest_doses(model, "d0", "c0", 1, target="emax")
    with pytest.raises(InputError, match="between 1 and 20"):
        suggest_doses(model, "d0", "c0", 0)
    with pytest.raises(InputError, match="Drug nope"):
        suggest_doses(model, "nope", "c0", 1)
    with pytest.raises(InputError, match="residual='gp'"):
        suggest_doses(planned_model(residual=None), "d0", "c0", 1)
