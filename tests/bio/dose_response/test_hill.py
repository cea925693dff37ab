"""Hill fits: exact recovery, invariances, bounds, and the models on top."""

import numpy as np
import pytest
from scipy.optimize import least_squares

from assay._core.errors import InputError
from assay.bio.dose_response import HillModel, MixedEffectsHill, datasets, fit_hill, splits
from assay.bio.dose_response._hill import hill, predict_data


def random_curves(n, n_params, seed=0, m=9):
    rng = np.random.default_rng(seed)
    z = np.logspace(-3, 1, m)
    p = {
        "E0": rng.uniform(-0.3, 0.3, n) if n_params == 4 else np.zeros(n),
        "Einf": rng.uniform(0.6, 1.2, n) if n_params >= 3 else np.ones(n),
        "k": rng.uniform(1.0, 8.0, n),
        "log10_x50": rng.uniform(-2.0, 0.0, n),
    }
    return z, hill(z, *(p[name][:, None] for name in ("E0", "Einf", "k", "log10_x50"))), p


@pytest.mark.parametrize("n_params", [2, 3, 4])
def test_noiseless_parameters_are_recovered(n_params):
    z, y, truth = random_curves(300, n_params)
    fit = fit_hill(z, y, n_params)
    for name, values in truth.items():
        np.testing.assert_allclose(getattr(fit, name), values, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("n_params", [2, 3, 4])
def test_sum_of_squares_is_that_of_a_many_start_scipy_fit(n_params):
    rng = np.random.default_rng(1)
    z, y, _ = random_curves(6, n_params, seed=2)
    y = y + rng.normal(0, 0.08, y.shape)
    fit = fit_hill(z, y, n_params)
    x = np.log10(z)
    lower = np.array([-2.5, -1.0, 0.1, x[0] - 2])[4 - n_params :]
    upper = np.array([1.0, 2.5, 20.0, x[-1] + 2])[4 - n_params :]

    def residual(p, target):
        full = np.r_[[0.0, 1.0][: 4 - n_params], p] if n_params == 2 else np.r_[[0.0][: 4 - n_params], p]
        return hill(z, *full) - target

    for j in range(len(y)):
        best = min(
            2 * least_squares(residual, np.clip(np.array([0, 0.9, k, c])[4 - n_params :], lower, upper),
                              bounds=(lower, upper), args=(y[j],)).cost
            for k in (1, 4, 10) for c in (-2, -0.5)
        )  # fmt: skip
        assert fit.sse[j] <= 1.01 * best + 1e-12


def test_order_of_doses_padding_and_batching_do_not_matter():
    rng = np.random.default_rng(0)
    z, y, _ = random_curves(20, 4)
    y = y + rng.normal(0, 0.05, y.shape)
    whole = fit_hill(z, y, 4)
    order = rng.permutation(len(z))
    shuffled = fit_hill(z[order], y[:, order], 4)
    padded = fit_hill(np.r_[z, np.nan], np.column_stack([y, np.full(20, np.nan)]), 4)
    for other in (shuffled, padded):
        np.testing.assert_allclose(other.sse, whole.sse, rtol=1e-6)
    for j in range(3):
        single = fit_hill(z, y[j], 4)
        assert single.sse.shape == ()
        np.testing.assert_allclose(single.sse, whole.sse[j], rtol=1e-9)
        np.testing.assert_allclose(
            single.predict(z), hill(z, whole.E0[j], whole.Einf[j], whole.k[j], whole.log10_x50[j]), atol=1e-6
        )


def test_scaling_all_doses_shifts_the_half_effect_dose_only():
    rng = np.random.default_rng(0)
    z, y, _ = random_curves(30, 3)
    y = y + rng.normal(0, 0.03, y.shape)
    a, b = fit_hill(z, y, 3), fit_hill(1000 * z, y, 3)
    np.testing.assert_allclose(b.log10_x50 - a.log10_x50, 3, atol=1e-3)
    np.testing.assert_allclose(b.sse, a.sse, rtol=1e-6)


def test_a_weight_of_two_is_a_point_written_twice_and_zero_is_absence():
    rng = np.random.default_rng(0)
    z, y, _ = random_curves(1, 4)
    y = y[0] + rng.normal(0, 0.05, len(z))
    w = np.ones(len(z))
    w[3] = 2
    twice = fit_hill(np.r_[z, z[3]], np.r_[y, y[3]], 4)
    np.testing.assert_allclose(fit_hill(z, y, 4, weights=w).sse, twice.sse, rtol=1e-6)
    w[3] = 0
    without = fit_hill(np.delete(z, 3), np.delete(y, 3), 4)
    np.testing.assert_allclose(fit_hill(z, y, 4, weights=w).sse, without.sse, rtol=1e-6)


def test_parameters_stay_in_their_bounds_on_noise():
    rng = np.random.default_rng(0)
    z = np.logspace(-2, 1, 8)
    fit = fit_hill(z, rng.normal(0, 2, (200, 8)), 4)
    assert (fit.k >= 0.1).all()
    assert (fit.k <= 20).all()
    assert (fit.Einf >= -1).all()
    assert (fit.Einf <= 2.5).all()
    assert (fit.E0 >= -2.5).all()
    assert (fit.E0 <= 1).all()
    assert (fit.log10_x50 >= -4).all()
    assert (fit.log10_x50 <= 3).all()


def test_a_curve_without_points_is_nan_and_does_not_disturb_the_others():
    z, y, truth = random_curves(3, 4)
    mask = np.ones(y.shape, bool)
    mask[1] = False
    fit = fit_hill(z, y, 4, mask)
    assert np.isnan(fit.sse[1])
    np.testing.assert_allclose(fit.k[[0, 2]], truth["k"][[0, 2]], atol=1e-4)


def test_pinned_value():
    # A hand-made curve; the optimum was confirmed with scipy's bounded least squares from 20 starts.
    fit = fit_hill([0.01, 0.1, 1.0, 10.0], [0.0, 0.2, 0.7, 0.9], 2)
    assert float(fit.k) == pytest.approx(2.12519, abs=1e-4)
    assert float(fit.log10_x50) == pytest.approx(-0.359373, abs=1e-5)
    assert float(fit.sse) == pytest.approx(0.00345285544, rel=1e-6)


@pytest.mark.parametrize("bad", [{"n_params": 5}, {"weights": [-1, 1, 1, 1]}, {"dose": [0, 1, 2, 3]}, {"dose": [1, 2]}])
def test_bad_input_is_refused(bad):
    args = {"dose": [1, 2, 3, 4], "effect": [0, 0.1, 0.5, 0.9], **bad}
    with pytest.raises(InputError):
        fit_hill(**args)


@pytest.mark.parametrize("n_params", [2, 4])
def test_model_fits_the_training_points_only_and_refuses_unseen_pairs(n_params):
    data = datasets.load_sarcoma(3)
    train, test = next(splits.smoothing(data, 3, random_state=0))
    model = HillModel(n_params).fit(data, train)
    changed = data.effect.copy()
    changed[test] += 5.0
    import dataclasses

    again = HillModel(n_params).fit(dataclasses.replace(data, effect=changed), train)
    np.testing.assert_array_equal(model.params_.to_numpy()[:, 2:], again.params_.to_numpy()[:, 2:])
    assert list(model.params_.columns) == ["drug", "cell", "E0", "Einf", "k", "log10_x50", "sse"]
    with pytest.raises(InputError, match="no training points for nothing"):
        model.predict("nothing", data.cells[0], [1.0])


def test_shapes_broadcast_names_against_doses():
    data = datasets.load_sarcoma(2)
    model = HillModel(3).fit(data)
    out, std = model.predict(data.drugs[:, None], data.cells[0], [0.1, 1.0, 10.0], return_std=True)
    assert out.shape == std.shape == (2, 3)
    np.testing.assert_allclose(out[1, 2], model.predict(data.drugs[1], data.cells[0], 10.0))
    assert (std > 0).all()


def test_delta_method_interval_covers_new_measurements():
    rng = np.random.default_rng(0)
    import pandas as pd

    z, y, _ = random_curves(300, 3, seed=5, m=11)
    rows = pd.DataFrame(
        {
            "drug": np.repeat([f"d{i:03d}" for i in range(300)], 11),
            "cell_line": "x",
            "dose_uM": np.tile(z, 300),
            "inhibition": (y + rng.normal(0, 0.05, y.shape)).ravel(),
        }
    )
    from assay.bio.dose_response import DoseResponseData

    data = DoseResponseData.from_long(rows, response="inhibition", response_type="inhibition")
    mean, std = predict_data(HillModel(3).fit(data), data, return_std=True)
    inside = np.abs(mean - (y + rng.normal(0, 0.05, y.shape))) < 1.96 * std
    # 3,300 points: a standard error below 1 %; the linearisation and the shared variance cost a little.
    assert 0.93 < inside.mean() < 0.98


def test_mixed_effects_recover_what_they_assume_and_share_across_lines():
    rng = np.random.default_rng(0)
    import pandas as pd

    from assay.bio.dose_response import DoseResponseData

    a, b = rng.normal(-1, 0.7, 8), rng.normal(0, 0.4, 25)
    z = np.logspace(-3, 1.5, 9)
    rows = [
        (f"d{i}", f"c{c:02d}", dose, hill(dose, 0, 1, 3.0, a[i] + b[c]) + rng.normal(0, 0.03))
        for i in range(8) for c in range(25) for dose in z
    ]  # fmt: skip
    data = DoseResponseData.from_long(
        pd.DataFrame(rows, columns=["drug", "cell_line", "dose_uM", "y"]), response="y", response_type="inhibition"
    )
    train, test = next(splits.smoothing(data, 1, random_state=0))
    # Only three of nine points of a curve remain: sharing must pay against single 2P fits.
    few = train & (rng.random(train.shape) < 0.35)
    few[~few.any(1)] = train[~few.any(1)]
    mixed, alone = MixedEffectsHill().fit(data, few), HillModel(2).fit(data, few)
    assert mixed.score(data, test) > alone.score(data, test)
    assert np.corrcoef(mixed.drug_effects_[:, 1], a)[0, 1] > 0.99
    assert np.corrcoef(mixed.cell_effects_[:, 1], b)[0, 1] > 0.95
    assert mixed.predict("d0", "an unseen line", 1.0) == pytest.approx(
        hill(1.0, 0, 1, mixed.drug_effects_[0, 0], mixed.drug_effects_[0, 1])
    )
    with pytest.raises(InputError, match="no measurements of drug"):
        mixed.predict("nothing", "c00", 1.0)
