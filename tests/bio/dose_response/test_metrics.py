"""Derived quantities against closed forms; IC50 never leaves the tested range."""

import numpy as np
import pytest

from assay._core.errors import InputError
from assay.bio.dose_response import curve_metrics

Z = np.logspace(-3, 2, 2001)


def sigmoid(x50, k=3.0, top=1.0):
    return top / (1 + np.exp(-k * (np.log10(Z) - x50)))


def test_ic50_ec50_of_a_hill_curve():
    found = curve_metrics(Z, np.stack([sigmoid(-1.0), sigmoid(0.3, top=0.8)]))
    assert found.ic50[0] == pytest.approx(0.1, rel=1e-3)
    # 0.8 s = 0.5: s = 0.625, x = x50 + log(0.625/0.375)/k.
    assert found.ic50[1] == pytest.approx(10 ** (0.3 + np.log(0.625 / 0.375) / 3), rel=1e-3)
    # Half of the own span: 0.4 from a start near zero (the curve begins at 4e-5, so 1e-3 is enough).
    assert found.ec50[1] == pytest.approx(10**0.3, rel=2e-2)
    assert found.ic50_status.tolist() == ["reached", "reached"]


def test_aac_is_the_integral():
    x50, k = 0.2, 2.0
    found = curve_metrics(Z, sigmoid(x50, k))
    # Integral of the logistic: log(1 + exp(k(x - x50))) / k, over five decades.
    exact = (np.log1p(np.exp(k * (2 - x50))) - np.log1p(np.exp(k * (-3 - x50)))) / k / 5
    assert found.aac[0] == pytest.approx(exact, rel=1e-5)
    assert found.aac_signed[0] == pytest.approx(exact, rel=1e-5)


def test_stimulation_lowers_the_signed_area_only():
    found = curve_metrics(Z, np.full(len(Z), -0.2))
    assert found.aac[0] == 0
    assert found.aac_signed[0] == pytest.approx(-0.2)


@pytest.mark.parametrize(
    ("effect", "status", "ic50"),
    [
        (0.3 * np.ones(2001), "not_reached", np.inf),
        (0.7 * np.ones(2001), "below_range", 1e-3),
        (sigmoid(3.0), "not_reached", np.inf),
    ],
)
def test_ic50_is_never_a_number_outside_the_range(effect, status, ic50):
    found = curve_metrics(Z, effect)
    assert found.ic50_status[0] == status
    assert found.ic50[0] == pytest.approx(ic50)


def test_first_upward_crossing_counts():
    x = np.log10(Z)
    twice = 0.8 * np.exp(-((x + 1) ** 2) / 0.1) + 0.9 / (1 + np.exp(-8 * (x - 1.2)))
    assert curve_metrics(Z, twice).ic50[0] < 0.1


def test_biphasic_needs_stimulation_before_the_maximum():
    x = np.log10(Z)
    rise = 1 / (1 + np.exp(-5 * (x - 1)))
    dip = -0.3 * np.exp(-((x + 1) ** 2) / 0.3)
    late = rise - 0.9 * (x > 1.9)
    found = curve_metrics(Z, np.stack([rise + dip, rise, rise + 0.2 * dip, late]))
    assert found.biphasic.tolist() == [True, False, False, False]


def test_only_the_tested_range_counts_unless_asked_and_then_it_is_marked():
    kept = curve_metrics(Z, sigmoid(1.5), tested=(1e-3, 1.0))
    assert kept.ic50_status[0] == "not_reached"
    assert not kept.extrapolated[0]
    assert kept.dose_max[0] == pytest.approx(1.0, rel=5e-3)
    beyond = curve_metrics(Z, sigmoid(1.5), tested=(1e-3, 1.0), extrapolate=True)
    assert beyond.ic50_status[0] == "reached"
    assert beyond.extrapolated[0]


def test_padding_changes_nothing():
    y = sigmoid(-1.0)[::100]
    plain = curve_metrics(Z[::100], y)
    padded = curve_metrics(np.r_[Z[::100], np.nan, np.nan], np.r_[y, np.nan, np.nan])
    for column in plain.columns:
        assert plain[column][0] == padded[column][0], column


@pytest.mark.parametrize(
    ("dose", "effect"), [([3, 2, 1], [0, 0, 1]), ([0, 1, 2], [0, 0, 1]), ([1, 2], [0, 0, 1]), ([1, 1, 2], [0, 0, 1])]
)
def test_bad_doses_are_refused(dose, effect):
    with pytest.raises(InputError):
        curve_metrics(dose, effect)
