"""Residual GPs against dense linear algebra."""

import numpy as np
import pandas as pd
import pytest

from assay.bio.dose_response import CoregionalGP, DoseResponseData, DrugMeanCurve, ResidualGP, datasets, splits

SQRT5 = np.sqrt(5.0)


def dense_kernel(x, y, a, length, c):
    r = np.abs(x[:, None] - y[None, :]) / length
    return a * (1 + SQRT5 * r + 5 * r**2 / 3) * np.exp(-SQRT5 * r) + c


@pytest.fixture(scope="module")
def ragged():
    rng = np.random.default_rng(0)
    rows = [
        (f"d{d}", f"c{c}", z, rng.normal(0, 0.2))
        for d in range(3) for c in range(6) for z in rng.choice(np.logspace(-3, 1, 9), rng.integers(4, 10), replace=False)
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=["drug", "cell_line", "dose_uM", "y"])
    return DoseResponseData.from_long(table, response="y", response_type="inhibition")


def test_equals_a_dense_gp_on_one_curve(ragged):
    hyper = (0.04, 0.8, 0.003, 0.01)
    mask = ragged.mask.copy()
    mask[:, 1] = False  # a held-out point must not matter
    gp = ResidualGP().fit(ragged, ragged.effect, mask, hyper=hyper)
    a, length, c, s2 = hyper
    grid = np.logspace(-3.5, 1.5, 23)
    for j in (0, 7, 17):
        x, r, xs = np.log10(ragged.dose[j, mask[j]]), ragged.effect[j, mask[j]], np.log10(grid)
        k = dense_kernel(x, x, a, length, c) + s2 * np.eye(len(x))
        cross = dense_kernel(xs, x, a, length, c)
        mean = cross @ np.linalg.solve(k, r)
        cov = dense_kernel(xs, xs, a, length, c) - cross @ np.linalg.solve(k, cross.T)
        found, std = gp.predict(j, grid, include_noise=False)
        np.testing.assert_allclose(found, mean, atol=1e-8)
        np.testing.assert_allclose(std**2, np.diag(cov), atol=1e-8)
        np.testing.assert_allclose(gp.predict(j, grid)[1] ** 2, np.diag(cov) + s2, atol=1e-8)
        joint_mean, joint = gp.posterior(j, grid)
        np.testing.assert_allclose(joint_mean, mean, atol=1e-8)
        np.testing.assert_allclose(joint, cov, atol=1e-8)


def test_likelihood_equals_the_sum_over_curves(ragged):
    hyper = (0.04, 0.8, 0.003, 0.01)
    gp = ResidualGP().fit(ragged, ragged.effect, ragged.mask, hyper=hyper)
    total = 0.0
    for j in range(ragged.n_curves):
        x, r = np.log10(ragged.dose[j, ragged.mask[j]]), ragged.effect[j, ragged.mask[j]]
        k = dense_kernel(x, x, *hyper[:3]) + hyper[3] * np.eye(len(x))
        total += -0.5 * (r @ np.linalg.solve(k, r) + np.linalg.slogdet(k)[1] + len(x) * np.log(2 * np.pi))
    assert gp.log_marginal_likelihood_ == pytest.approx(total, rel=1e-10)


def test_unobserved_pairs_get_no_correction(ragged):
    gp = ResidualGP().fit(ragged, ragged.effect, ragged.mask)
    mean, std = gp.predict(-1, [0.1, 1.0], include_noise=False)
    assert (mean == 0).all()
    np.testing.assert_allclose(std**2, gp.amplitude_ + gp.offset_)
    mask = ragged.mask.copy()
    mask[4] = False
    mean, _ = ResidualGP().fit(ragged, ragged.effect, mask).predict(4, [0.1, 1.0])
    assert (mean == 0).all()


def test_hyperparameters_of_simulated_residuals_come_back():
    rng = np.random.default_rng(1)
    z = np.logspace(-3, 1, 9)
    x = np.log10(z)
    k = dense_kernel(x, x, 0.02, 0.9, 0.004) + 0.003 * np.eye(9)
    r = rng.multivariate_normal(np.zeros(9), k, size=2000)
    table = pd.DataFrame(
        {
            "drug": np.repeat([f"d{i:04d}" for i in range(2000)], 9),
            "cell_line": "c",
            "dose_uM": np.tile(z, 2000),
            "y": r.ravel(),
        }
    )
    data = DoseResponseData.from_long(table, response="y", response_type="inhibition")
    gp = ResidualGP().fit(data, data.effect, data.mask)
    assert gp.noise_ == pytest.approx(0.003, rel=0.1)
    assert gp.length_scale_ == pytest.approx(0.9, rel=0.15)
    assert gp.amplitude_ + gp.offset_ == pytest.approx(0.024, rel=0.15)


def test_residuals_that_are_anticorrelated_over_a_decade_do_not_switch_the_process_off():
    """A network takes the broad part of a curve and leaves short waves: from one start the search calls them noise."""
    rng = np.random.default_rng(0)
    z = np.logspace(-3.5, 1, 11)
    x = np.log10(z)
    r = rng.multivariate_normal(np.zeros(11), dense_kernel(x, x, 0.004, 0.5, 0.0) + 3e-4 * np.eye(11), size=300)
    broad = np.linalg.qr(np.vander(x, 3))[0]
    r = r - r @ broad @ broad.T
    rows = [(f"d{i:03d}", "c", dose, value) for i in range(300) for dose, value in zip(z, r[i], strict=True)]
    table = pd.DataFrame(rows, columns=["drug", "cell_line", "dose_uM", "y"])
    data = DoseResponseData.from_long(table, response="y", response_type="inhibition")
    gp = ResidualGP().fit(data, data.effect, data.mask)
    white = float(r.var())
    noise = ResidualGP().fit(data, data.effect, data.mask, hyper=(1e-8, 1.0, 1e-10, white))
    assert gp.log_marginal_likelihood_ > noise.log_marginal_likelihood_ + 10  # the first start alone: equal to it
    assert gp.amplitude_ > 10 * gp.noise_
    # Where the replicates tell the noise, the short waves do not swallow it.
    told = ResidualGP().fit(data, data.effect, data.mask, noise_floor=3e-4)
    assert told.noise_ >= 0.999 * 3e-4


def test_saved_and_rebuilt_predicts_the_same(ragged):
    gp = ResidualGP().fit(ragged, ragged.effect, ragged.mask)
    again = ResidualGP.from_arrays(gp.to_arrays())
    curves = np.arange(ragged.n_curves)[:, None]
    for a, b in zip(gp.predict(curves, [0.02, 0.5]), again.predict(curves, [0.02, 0.5]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_coregional_equals_a_dense_gp_within_a_line(ragged):
    gp = CoregionalGP().fit(ragged, ragged.effect, ragged.mask)
    row, column = np.nonzero(ragged.mask & (ragged.cell_index == 2)[:, None])
    d, x, r = ragged.drug_index[row], np.log10(ragged.dose[row, column]), ragged.effect[row, column]
    rho = dense_kernel(x, x, gp._mix, gp.length_scale_, 1 - gp._mix)
    k = gp.drug_covariance_[np.ix_(d, d)] * rho + gp.noise_ * np.eye(len(x))
    xs = np.log10([0.03, 0.7])
    for drug in range(3):
        cross = gp.drug_covariance_[drug, d] * dense_kernel(xs, x, gp._mix, gp.length_scale_, 1 - gp._mix)
        mean = gp.predict(drug, 2, [0.03, 0.7])
        np.testing.assert_allclose(mean, cross @ np.linalg.solve(k, r), atol=1e-8)
    assert (np.linalg.eigvalsh(gp.drug_covariance_) > -1e-12).all()
    assert (gp.predict([0, 1], -1, 0.1) == 0).all()


def test_residual_gp_improves_held_out_points_of_a_real_screen():
    data = datasets.load_sarcoma(20)
    train, test = next(splits.smoothing(data, 1, random_state=0))
    plain = -DrugMeanCurve().fit(data, train).score(data, test)
    gp = -DrugMeanCurve("gp").fit(data, train).score(data, test)
    coregional = -DrugMeanCurve("coregional").fit(data, train).score(data, test)
    assert gp < 0.5 * plain  # measured: about 0.2
    assert coregional < 0.5 * plain
