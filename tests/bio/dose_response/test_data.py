"""The data model: order never matters, replicates, curves of different length, subsets."""

import numpy as np
import pandas as pd
import pytest

from assay.bio.dose_response import DoseResponseData, datasets, noise_floor


def ragged_table(rng=None):
    rng = rng or np.random.default_rng(3)
    rows = []
    for d in range(3):
        for c in range(4):
            n = 4 + (d + c) % 4
            for z in np.logspace(-2 + 0.1 * d, 1, n):
                rows.append((f"drug{d}", f"line{c}", z, 1 - z / (z + 0.3 * (1 + d)) + 0.02 * rng.normal()))
    return pd.DataFrame(rows, columns=["drug", "cell_line", "dose_uM", "viability"])


def assert_same(a, b):
    for name in ("drugs", "cells", "drug_index", "cell_index", "mask", "replicate_n"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
    for name in ("dose", "effect", "replicate_sd"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def test_row_order_does_not_matter():
    table = ragged_table()
    assert_same(DoseResponseData.from_long(table), DoseResponseData.from_long(table.sample(frac=1, random_state=1)))


def test_rows_are_curves_with_ascending_doses_and_nan_padding():
    data = DoseResponseData.from_long(ragged_table())
    assert data.n_curves == 12
    for j in range(data.n_curves):
        assert (np.diff(data.dose[j, data.mask[j]]) > 0).all()
        assert np.isnan(data.dose[j, ~data.mask[j]]).all()
        assert np.isnan(data.effect[j, ~data.mask[j]]).all()
    assert sorted(data.drugs) == list(data.drugs)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [("viability", 0.3, 0.7), ("inhibition", 0.3, 0.3), ("percent_viability", 30, 0.7), ("percent_activity", -70, 0.7)],
)
def test_response_types_all_become_inhibition(kind, value, expected):
    table = pd.DataFrame({"drug": "a", "cell_line": "x", "dose_uM": [1, 2, 3, 4], "viability": value})
    data = DoseResponseData.from_long(table, response_type=kind)
    np.testing.assert_allclose(data.effect, expected)


@pytest.mark.parametrize("how", ["median", "mean"])
def test_replicates_agree_with_groupby(how):
    rng = np.random.default_rng(0)
    table = ragged_table()
    table = pd.concat([table.assign(viability=table.viability + rng.normal(0, 0.1, len(table))) for _ in range(3)])
    table = table.drop(table.index[5])  # groups of unequal size
    data = DoseResponseData.from_long(table.sample(frac=1, random_state=0), replicates=how)
    expected = table.assign(e=1 - table.viability).groupby(["drug", "cell_line", "dose_uM"]).e.agg([how, "std", "size"])
    found = data.to_long().sort_values(["drug", "cell_line", "dose_uM"])
    np.testing.assert_allclose(found.inhibition, expected[how], atol=1e-12)
    np.testing.assert_allclose(found.replicate_sd, expected["std"], atol=1e-12)
    assert (found.replicates.to_numpy() == expected["size"].to_numpy()).all()


def test_doses_that_agree_to_nine_digits_are_one():
    table = pd.DataFrame(
        {"drug": "a", "cell_line": "x", "dose_uM": [1, 2, 3, 0.01372, 0.013720000000000001], "viability": 0.5}
    )
    assert DoseResponseData.from_long(table, replicates="mean").mask.sum() == 4


def test_find_gives_the_curve_of_a_pair_and_minus_one():
    data = DoseResponseData.from_long(ragged_table()).subset([0, 2, 5, 9, 11])
    found = data.find(data.drugs[data.drug_index], data.cells[data.cell_index])
    assert found.tolist() == list(range(5))
    assert data.find("drug0", ["line1", "nobody"]).tolist() == [-1, -1]


def test_subset_keeps_only_what_it_uses():
    genes = pd.DataFrame(np.random.default_rng(0).normal(size=(4, 3)), index=[f"line{i}" for i in range(4)])
    data = DoseResponseData.from_long(ragged_table(), expression=genes)
    part = data.subset((data.drug_index == 1) & (data.cell_index > 1))
    assert list(part.drugs) == ["drug1"]
    assert list(part.cells) == ["line2", "line3"] == list(part.expression.index)
    assert part.mask.any(0).all()
    np.testing.assert_array_equal(
        part.effect[0][part.mask[0]], data.effect[data.find("drug1", "line2")][: part.mask[0].sum()]
    )


def test_expression_is_in_the_order_of_the_lines():
    genes = pd.DataFrame({"g": [3.0, 1.0, 2.0, 0.0]}, index=["line3", "line1", "line2", "line0"])
    data = DoseResponseData.from_long(ragged_table(), expression=genes)
    assert data.expression["g"].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_sarcoma_sample_is_what_its_provenance_says():
    table = datasets.sarcoma_table()
    assert len(table) == 80399
    assert table.drug.nunique() == 144
    assert table.cell_line.nunique() == 17
    data = datasets.load_sarcoma(5)
    assert len(data.drugs) == 5
    assert data.n_curves == 85
    # The spread of replicates stated for this screen is 0.034; five drugs of it lie nearby.
    assert 0.02 < np.sqrt(np.nanmean(data.replicate_sd**2)) < 0.06


def test_noise_floor_is_the_error_of_the_truth():
    rng = np.random.default_rng(0)
    dose = np.tile(np.logspace(-2, 1, 8), 400)
    drug = np.repeat([f"d{i:03d}" for i in range(400)], 8)
    truth = dose / (dose + 1)
    for how, reference in (("mean", 0.01 / 3), ("median", 0.01 / 3 * 1.346)):
        table = pd.concat(
            [
                pd.DataFrame(
                    {"drug": drug, "cell_line": "x", "dose_uM": dose, "viability": 1 - truth + rng.normal(0, 0.1, 3200)}
                )
                for _ in range(3)
            ]
        )
        data = DoseResponseData.from_long(table, replicates=how)
        actual = float(((data.effect - data.dose / (data.dose + 1)) ** 2).mean())
        # 3,200 points: 2.5 % standard error of either figure.
        assert noise_floor(data) == pytest.approx(actual, rel=0.1)
        assert noise_floor(data) == pytest.approx(reference, rel=0.1)
