"""Baselines against the formulas they stand for."""

import numpy as np
import pandas as pd
import pytest

from assay._core.errors import InputError
from assay.bio.dose_response import (
    DoseResponseData,
    DrugMeanCurve,
    ExpressionRidge,
    FunctionalForest,
    LinearInterpolation,
    splits,
)
from assay.bio.dose_response._hill import predict_data

Z = np.logspace(-2, 1, 5)


@pytest.fixture(scope="module")
def screen():
    rng = np.random.default_rng(0)
    lines = [f"c{i:02d}" for i in range(40)]
    genes = pd.DataFrame(rng.normal(7, 2, (40, 60)), index=lines, columns=[f"g{i}" for i in range(60)])
    rows = []
    for d in range(3):
        shift = 0.35 * (genes[f"g{d}"] - 7) / 2
        for c in lines:
            y = 1 / (1 + np.exp(-2 * (np.log10(Z) - 0.3 * d + shift[c]))) + rng.normal(0, 0.03, 5)
            rows += [(f"d{d}", c, z, e) for z, e in zip(Z, y, strict=True)]
    table = pd.DataFrame(rows, columns=["drug", "cell_line", "dose_uM", "y"])
    return DoseResponseData.from_long(table, response="y", response_type="inhibition", expression=genes)


def test_drug_mean_is_the_mean_over_training_lines(screen):
    train, _test = next(splits.new_cells(screen, 5, random_state=0))
    model = DrugMeanCurve().fit(screen, train)
    rows = (screen.drug_index == 1) & train.any(1)
    np.testing.assert_allclose(model.predict("d1", "anybody", Z), screen.effect[rows].mean(0), atol=1e-12)
    # Constant outside the doses.
    assert model.predict("d1", "x", 1e-4) == pytest.approx(float(model.predict("d1", "x", Z[0])))
    # An unseen drug is the mean of the drugs.
    np.testing.assert_allclose(
        model.predict("new", "x", Z), np.mean([model.predict(d, "x", Z) for d in screen.drugs], axis=0), atol=1e-12
    )


def test_linear_interpolation_is_numpy_interp(screen):
    train, test = next(splits.smoothing(screen, 1, random_state=0))
    model = LinearInterpolation().fit(screen, train)
    found = predict_data(model, screen, test)
    for j in range(screen.n_curves):
        use = train[j]
        expected = np.interp(np.log10(screen.dose[j, test[j]]), np.log10(screen.dose[j, use]), screen.effect[j, use])
        np.testing.assert_allclose(found[j, test[j]], expected, atol=1e-12)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_ridge_leave_one_out_is_exact(screen, kernel):
    """The closed form must equal refitting without the line, intercept and all, for a fixed penalty and scaling."""
    one = screen.subset(screen.drug_index == 0)
    model = ExpressionRidge(kernel, lambdas=[3.0]).fit(one)
    n = one.n_curves
    y, k = one.effect, model._gram(model._q, model._q)
    centring = np.eye(n) - 1 / n
    centred = centring @ k @ centring
    hat = centred @ np.linalg.inv(centred + 3.0 * np.eye(n)) + 1 / n
    closed = (y - hat @ y) / (1 - np.diag(hat))[:, None]
    brute = np.empty_like(y)
    for i in range(n):
        keep = np.arange(n) != i
        kk = k[np.ix_(keep, keep)]
        mean = y[keep].mean(0)
        c = np.eye(n - 1) - 1 / (n - 1)
        weights = np.linalg.solve(c @ kk @ c + 3.0 * np.eye(n - 1), y[keep] - mean)
        cross = k[i, keep] - k[i, keep].mean() - kk.mean(0) + kk.mean()
        brute[i] = y[i] - mean - cross @ weights
    np.testing.assert_allclose(closed, brute, atol=1e-8)
    # And the model's own honest error is that of the brute force.
    assert model.noise_ == pytest.approx((brute**2).mean(), rel=1e-8)


def test_ridge_dual_equals_primal(screen):
    one = screen.subset(screen.drug_index == 0)
    train, test = next(splits.new_cells(one, 5, random_state=1))
    model = ExpressionRidge(lambdas=[2.0]).fit(one, train)
    lines = train.any(1)
    x = one.expression.to_numpy()
    q = (x - x[lines].mean(0)) / x[lines].std(0)
    g = q.shape[1]
    mean = one.effect[lines].mean(0)
    beta = np.linalg.solve(q[lines].T @ q[lines] / g + 2.0 * np.eye(g), q[lines].T @ (one.effect[lines] - mean) / g)
    expected = mean + q[~lines] @ beta
    found = predict_data(model, one, test)[~lines]
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_ridge_beats_the_mean_on_unseen_lines_and_stays_the_mean_without_signal(screen):
    wins = []
    for train, test in splits.new_cells(screen, 4, random_state=0):
        ridge, mean = ExpressionRidge().fit(screen, train), DrugMeanCurve().fit(screen, train)
        wins.append(ridge.score(screen, test) - mean.score(screen, test))
    assert min(wins) > 0
    rng = np.random.default_rng(1)
    import dataclasses

    shuffled = dataclasses.replace(
        screen,
        expression=pd.DataFrame(rng.normal(size=(40, 60)), index=screen.cells, columns=screen.expression.columns),
    )
    ratio = [
        ExpressionRidge().fit(shuffled, train).score(shuffled, test)
        / DrugMeanCurve().fit(shuffled, train).score(shuffled, test)
        for train, test in splits.new_cells(shuffled, 4, random_state=0)
    ]
    assert np.mean(ratio) < 1.15  # measured 1.00 to 1.10 over seeds: choosing a penalty on 30 lines costs a little


def test_ridge_uses_training_lines_only_for_scaling(screen):
    import dataclasses

    train, test = next(splits.new_cells(screen, 5, random_state=0))
    spoilt = screen.expression.copy()
    held = screen.cells[np.unique(screen.cell_index[test.any(1)])]
    spoilt.loc[held] *= 100.0
    a = ExpressionRidge().fit(screen, train)
    b = ExpressionRidge().fit(dataclasses.replace(screen, expression=spoilt), train)
    seen = screen.cells[np.unique(screen.cell_index[train.any(1)])]
    np.testing.assert_array_equal(a.predict("d0", seen, 0.5), b.predict("d0", seen, 0.5))


def test_ridge_takes_a_new_line_from_its_expression(screen):
    model = ExpressionRidge().fit(screen)
    row = screen.expression.loc[["c03"]].rename(index={"c03": "newcomer"})
    np.testing.assert_allclose(
        model.predict("d1", "newcomer", Z, expression=row.iloc[:, ::-1]), model.predict("d1", "c03", Z), atol=1e-12
    )
    with pytest.raises(InputError, match="90 %"):
        model.predict("d1", "newcomer", Z, expression=row.iloc[:, :30])
    with pytest.raises(InputError, match="No expression for 1 line"):
        model.predict("d1", "nobody", Z)


def test_forest_is_deterministic_beats_the_mean_on_seen_lines_and_refuses_other_doses(screen):
    train, _test = next(splits.new_cells(screen, 4, random_state=0))
    a = FunctionalForest(n_estimators=8, random_state=3).fit(screen, train)
    b = FunctionalForest(n_estimators=8, random_state=3).fit(screen, train)
    np.testing.assert_array_equal(a.predict("d0", screen.cells, Z[2]), b.predict("d0", screen.cells, Z[2]))
    assert a.score(screen, train) > DrugMeanCurve().fit(screen, train).score(screen, train)
    with pytest.raises(InputError, match="only the training doses"):
        a.predict("d0", "c00", 0.5)
    with pytest.raises(InputError, match="cannot predict drug new"):
        a.predict("new", "c00", Z[0])


def test_forest_components_lose_nothing_when_they_are_all_kept(screen):
    grid = FunctionalForest(None, n_estimators=5, random_state=0).fit(screen)
    assert np.isfinite(grid.predict("d0", screen.cells[:, None], Z)).all()
    basis = FunctionalForest(5, n_estimators=5, random_state=0).fit(screen)._basis
    np.testing.assert_allclose(basis @ basis.T, np.eye(5), atol=1e-10)


def test_forest_needs_one_grid(screen):
    table = screen.to_long()
    table.loc[table.drug == "d1", "dose_uM"] *= 1.3
    ragged = DoseResponseData.from_long(table, response="inhibition", response_type="inhibition")
    with pytest.raises(InputError, match="one dose grid"):
        FunctionalForest().fit(ragged)


@pytest.mark.parametrize(
    "model", [DrugMeanCurve("gp"), DrugMeanCurve("coregional"), LinearInterpolation(), ExpressionRidge()]
)
def test_permuting_doses_permutes_predictions_and_batches_equal_single_calls(screen, model):
    model.fit(screen)
    order = np.array([3, 0, 4, 1, 2])
    whole = model.predict(screen.drugs[:, None], "c05", Z)
    np.testing.assert_allclose(model.predict(screen.drugs[:, None], "c05", Z[order]), whole[:, order], atol=1e-12)
    single = [[float(model.predict(d, "c05", z)) for z in Z] for d in screen.drugs]
    np.testing.assert_allclose(whole, single, atol=1e-10)


def test_unknown_options_are_refused(screen):
    with pytest.raises(InputError):
        DrugMeanCurve("spline").fit(screen)
    with pytest.raises(InputError):
        ExpressionRidge("poly").fit(screen)
    with pytest.raises(InputError):
        FunctionalForest(0).fit(screen)
