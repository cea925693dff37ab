"""Plates, edges, outlying wells, biphasic curves."""

import numpy as np
import pandas as pd
import pytest

from assay._core.errors import InputError
from assay.bio.dose_response import (
    DoseResponseData,
    biphasic_test,
    fit_hill,
    flag_outlier_replicates,
    normalise_plates,
)
from assay.bio.dose_response._hill import hill
from assay.bio.dose_response._screen import edge_effect, false_discovery


def plate(name, gain, seed, edge=1.0):
    rng = np.random.default_rng(seed)
    rows = []
    for r in range(16):
        for c in range(24):
            on_edge = r in (0, 15) or c in (0, 23)
            role = "blank" if c == 12 else "negative_control" if c % 3 == 0 else "sample"
            level = 50.0 if role == "blank" else 1050.0 * (edge if on_edge else 1.0) * rng.normal(1, 0.03)
            rows.append((name, f"{chr(65 + r)}{c + 1}", role, gain * level))
    return pd.DataFrame(rows, columns=["plate", "well", "role", "signal"])


def test_plates_of_different_gain_agree_after_normalisation():
    wells = normalise_plates(pd.concat([plate("a", 1.0, 0), plate("b", 7.0, 0)]))
    a, b = wells[wells.plate == "a"].viability, wells[wells.plate == "b"].viability
    np.testing.assert_allclose(a, b, atol=1e-12)
    controls = wells[(wells.role == "negative_control")].viability
    assert controls.median() == pytest.approx(1.0)
    assert (wells.plate_z_prime > 0.5).all()


def test_edge_effect_is_found_where_it_is():
    wells = normalise_plates(pd.concat([plate("good", 1.0, 1), plate("bad", 1.0, 2, edge=0.8)]))
    found = edge_effect(wells[wells.role == "negative_control"]).set_index("plate")
    assert found.q_value["bad"] < 1e-3
    assert found.ratio["bad"] == pytest.approx(0.79, abs=0.03)
    assert found.q_value["good"] > 0.01
    assert found.ratio["good"] == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w: w[w.role != "negative_control"], "no negative_control well"),
        (lambda w: w[(w.role != "blank") | (w.plate == "a")], "Plate b has no blank"),
        (lambda w: w.assign(signal=np.where(w.role == "blank", 9e9, w.signal)), "not above the blank"),
        (lambda w: w.assign(role=w.role.replace("sample", "drug")), "Unknown well role"),
        (lambda w: w.assign(signal=np.nan), "not a number"),
        (lambda w: w.drop(columns="plate"), "no column 'plate'"),
    ],
)
def test_bad_plates_are_named(change, words):
    wells = pd.concat([plate("a", 1.0, 0), plate("b", 1.0, 1)], ignore_index=True)
    with pytest.raises(InputError, match=words):
        normalise_plates(change(wells))


def test_bad_well_names_are_refused():
    wells = normalise_plates(plate("a", 1.0, 0)).assign(well="here")
    with pytest.raises(InputError, match="not a well position"):
        edge_effect(wells)


def test_outlying_replicates_are_flagged_and_normal_ones_are_not():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "drug": np.repeat([f"d{i}" for i in range(200)], 3),
            "cell_line": "x",
            "dose_uM": 1.0,
            "viability": rng.normal(0.5, 0.03, 600),
        }
    )
    table.loc[[10, 300], "viability"] += 0.6
    flagged = flag_outlier_replicates(table)
    assert flagged[[10, 300]].all()
    assert flagged.sum() <= 6  # deviations from the median of three have heavier tails than a normal
    pairs = table.groupby("drug").head(2)
    assert not flag_outlier_replicates(pairs).any()  # of two wells nobody knows which is wrong


def test_false_discovery_equals_the_textbook_loop():
    p = np.random.default_rng(0).uniform(size=50) ** 2
    order = np.sort(p)
    q = [min(min(order[k] * 50 / (k + 1) for k in range(i, 50)), 1) for i in range(50)]
    np.testing.assert_allclose(np.sort(false_discovery(p)), np.sort(q))


def synthetic(n_monotone, n_biphasic, noise=0.04, seed=0):
    rng = np.random.default_rng(seed)
    z = np.logspace(-3, 1, 11)
    x = np.log10(z)
    n = n_monotone + n_biphasic
    y = hill(
        z, rng.uniform(-0.25, 0.1, n)[:, None], rng.uniform(0.2, 1.0, n)[:, None], 3.0, rng.uniform(-2, 0, n)[:, None]
    )
    y[n_monotone:] = -0.45 * np.exp(-((x + 1.5) ** 2) / 0.5) + 0.9 / (1 + np.exp(-5 * (x - 0.2)))
    rows = [
        (f"d{i:04d}", "x", z[k], y[i, k] + e) for i in range(n) for k in range(11) for e in rng.normal(0, noise, 3)
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=["drug", "cell_line", "dose_uM", "y"])
    data = DoseResponseData.from_long(table, response="y", response_type="inhibition", replicates="mean")
    return data, np.arange(n) >= n_monotone


def test_biphasic_curves_are_found_with_the_false_discovery_rate_kept():
    data, truth = synthetic(350, 50)
    found = biphasic_test(data, random_state=0)
    assert found.biphasic[truth].mean() > 0.9
    assert found.biphasic[~truth].mean() < 0.01
    # Monotone curves that start below zero are Hill curves, not biphasic ones.
    p = found.p_value[~truth]
    assert (p < 0.05).mean() < 0.12  # the bounded refit is the null, so small p are about as rare as they say


def test_a_biphasic_curve_is_what_four_parameters_cannot_fit():
    data, truth = synthetic(0, 5, noise=1e-3)
    fit = fit_hill(data.dose, data.effect, 4)
    assert (np.sqrt(fit.sse / 11) > 0.05).all()
    assert biphasic_test(data, random_state=0).biphasic.all()
    assert truth.all()
