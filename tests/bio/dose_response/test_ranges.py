"""What the tested doses are, and that `predict` never leaves them in silence; new drugs and lines from files."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from assay._core.errors import InputError
from assay._core.files import read_json, write_json
from assay.bio.dose_response import ARCANet, DoseResponseData
from assay.bio.dose_response import _job as job
from assay.bio.dose_response._ranges import TestedRanges, outside
from assay.testing import FakeRun

SMILES = {"a": "CCO", "b": "CCOC(=O)c1ccccc1", "new": "CC(=O)Nc1ccc(O)cc1"}
LINES = [f"c{i}" for i in range(6)]
SMALL = {"epochs": 1, "hidden_dim": 8, "random_state": 0}


def table():
    """Drug a from 0.01 to 1 uM, except to 0.1 on c0; drug b from 0.1 to 10 uM, not on c5."""
    doses = {"a": np.logspace(-2, 0, 7), "b": np.logspace(-1, 1, 7)}
    rows = [
        (d, c, z, 1 / (1 + z))
        for d in doses
        for c in LINES
        if (d, c) != ("b", "c5")
        for z in (doses[d][:4] if (d, c) == ("a", "c0") else doses[d])
    ]
    return pd.DataFrame(rows, columns=["drug", "cell_line", "dose_uM", "viability"])


def genes(names):
    rng = np.random.default_rng(0)
    return (
        pd.DataFrame(rng.normal(size=(9, 30)), columns=[f"g{i}" for i in range(30)]).iloc[: len(names)].set_axis(names)
    )


def saved(folder, preset="measured", features=False):
    extra = {"smiles": {d: SMILES[d] for d in "ab"}, "expression": genes(LINES)} if features else {}
    data = DoseResponseData.from_long(table(), **extra)
    net = ARCANet(preset=preset, **SMALL).fit(data)
    net.save_pretrained(folder)
    write_json(folder / "dose_range.json", TestedRanges.of(data).to_json())
    return folder, net


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("named"))


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("lines"), "new_cells", features=True)


@pytest.fixture(scope="module")
def drugs(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("drugs"), "new_drugs", features=True)


def predict(folder, queries, tmp_path, **options):
    path = tmp_path / "queries.csv"
    queries.to_csv(path, index=False)
    run = FakeRun(tmp_path / "out")
    job.predict(folder, path, run=run, **options)
    metrics = run.out / "artefacts/curve_metrics.csv"
    return run, pd.read_csv(run.out / "artefacts/predictions.csv"), pd.read_csv(metrics) if metrics.exists() else None


# ------------------------------------------------------------------------------------------------------ the ranges


def test_ranges_are_of_the_pair_then_of_the_drug_then_of_the_screen():
    data = DoseResponseData.from_long(table())
    for ranges in (TestedRanges.of(data), TestedRanges.from_json(TestedRanges.of(data).to_json(), "x")):
        assert ranges.find("a", "c0") == pytest.approx((0.01, 0.1))
        assert ranges.find("a", "c1") == pytest.approx((0.01, 1.0))
        assert ranges.find("b", "c5") == pytest.approx((0.1, 10.0))  # not measured: the drug's
        assert ranges.find("nobody", "c1") == pytest.approx((0.01, 10.0))
        assert set(ranges.pairs) == {("a", "c0")}  # only what the drug's range does not say


def test_a_range_survives_rounding_but_not_a_per_cent():
    dose = np.array([0.1 * (1 - 1e-12), 0.099, 1.0, 1.01])
    assert outside(dose, np.array(0.1), np.array(1.0)).tolist() == [False, True, False, True]


@pytest.mark.parametrize("value", [{}, [], {"dose_uM": [1, 0.1]}, {"dose_uM": [0.1, 1], "by_drug": {"a": 3}}])
def test_a_damaged_file_of_ranges_is_refused(value):
    with pytest.raises(InputError, match="fit the model again"):
        TestedRanges.from_json(value, "dose_range.json")


def test_fit_keeps_the_ranges(tmp_path, monkeypatch):
    path = tmp_path / "r.csv"
    table().to_csv(path, index=False)
    for name in ("_curve_panels", "_heatmap", "_waterfall"):  # drawn by other tests, and most of the time
        monkeypatch.setattr(job, name, lambda *_: None)
    run = FakeRun(tmp_path / "out")
    job.fit(path, epochs=1, run=run)
    assert read_json(run.out / "artefacts/model/dose_range.json")["by_pair"] == {
        "a": {"c0": pytest.approx([0.01, 0.1])}
    }


# --------------------------------------------------------------------------------------------- predictions by name


def test_given_doses_outside_the_tested_range_are_marked(named, tmp_path):
    queries = pd.DataFrame(
        [("a", "c1", 1.0), ("a", "c1", 5.0), ("a", "c0", 0.1), ("a", "c0", 0.5), ("b", "c5", 0.05), ("b", "c5", 5.0)],
        columns=["drug", "cell_line", "dose_uM"],
    )
    run, found, metrics = predict(named[0], queries, tmp_path)
    assert found.extrapolated.tolist() == [False, True, False, True, True, False]
    assert metrics is None
    assert run.results["extrapolated"] == 3
    assert any("3 of 6 predictions" in note for note in run.warnings)


def test_without_doses_curves_stay_in_the_range_of_the_pair(named, tmp_path):
    queries = pd.DataFrame({"drug": ["b", "a", "a", "a"], "cell_line": ["c5", "c0", "c1", "c0"]})
    run, found, metrics = predict(named[0], queries, tmp_path)
    assert list(zip(metrics.drug, metrics.cell_line, strict=True)) == [("b", "c5"), ("a", "c0"), ("a", "c1")]
    np.testing.assert_allclose(metrics[["dose_min", "dose_max"]], [[0.1, 10], [0.01, 0.1], [0.01, 1]])
    assert not found.extrapolated.any()
    assert not metrics.extrapolated.any()
    assert not run.warnings
    assert (run.out / "figures/predicted_curves.svg").is_file()
    np.testing.assert_allclose(
        found.inhibition, named[1].predict(found.drug, found.cell_line, found.dose_uM), atol=1e-6
    )


def test_extrapolation_must_be_asked_for_and_is_marked(named, tmp_path):
    queries = pd.DataFrame({"drug": ["a", "b"], "cell_line": ["c0", "c1"]})
    run, found, metrics = predict(named[0], queries, tmp_path, extrapolate=True)
    np.testing.assert_allclose(metrics[["dose_min", "dose_max"]], [[0.01, 10]] * 2)
    assert metrics.extrapolated.all()
    first = found[found.drug == "a"]
    assert (first.extrapolated == (first.dose_uM > 0.1 * (1 + 1e-9))).all()
    assert any("column extrapolated" in note for note in run.warnings)
    with pytest.raises(InputError, match="nothing to do"):
        predict(named[0], queries.assign(dose_uM=1.0), tmp_path, extrapolate=True)


def test_a_model_without_ranges_by_drug_still_predicts_and_says_so(tmp_path):
    folder, _ = saved(tmp_path / "old")
    write_json(folder / "dose_range.json", {"dose_uM": [0.01, 10.0]})  # what earlier versions wrote
    queries = pd.DataFrame({"drug": ["a", "a"], "cell_line": ["c1", "c1"], "dose_uM": [5.0, 50.0]})
    run, found, _ = predict(folder, queries, tmp_path)
    assert found.extrapolated.tolist() == [False, True]
    assert any("older version" in note for note in run.warnings)
    (folder / "dose_range.json").unlink()
    run, found, _ = predict(folder, queries, tmp_path)
    assert found.extrapolated.isna().all()
    assert any("is missing" in note for note in run.warnings)
    with pytest.raises(InputError, match="add doses"):
        predict(folder, queries[["drug", "cell_line"]], tmp_path)


# --------------------------------------------------------------------------------------------- new drugs and lines


def test_new_lines_come_from_a_table_of_expression(lines, tmp_path):
    folder, net = lines
    every = genes([*LINES, "n0", "n1"])
    every.drop(columns="g3").to_csv(tmp_path / "genes.csv")  # one gene of thirty is missing
    queries = pd.DataFrame([(d, c) for d in "ab" for c in ("n0", "c1", "n1")], columns=["drug", "cell_line"])
    run, found, metrics = predict(folder, queries, tmp_path, expression=tmp_path / "genes.csv")
    assert len(metrics) == 6
    for (d, c), part in found.groupby(["drug", "cell_line"]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            side = {"cell": c} if c == "c1" else {"expression": every.loc[c].drop("g3")}
            mean, std = net.predict_curve(part.dose_uM, drug=d, **side, return_std=True)
        np.testing.assert_allclose(part.inhibition, mean, atol=1e-6)
        np.testing.assert_allclose(part["std"], std, atol=1e-6)
    assert (found["std"] > 0).all()
    reach = pd.read_csv(run.out / "artefacts/applicability.csv")
    assert reach.name.tolist() == ["n0", "n1"]
    assert any("lack a value for up to 1 of the 30" in note for note in run.warnings)


def test_new_drugs_come_from_a_table_of_smiles(drugs, tmp_path):
    folder, net = drugs
    queries = pd.DataFrame({"drug": ["new", "a"], "cell_line": "c1", "smiles": [SMILES["new"], SMILES["a"]]})
    run, found, metrics = predict(folder, queries, tmp_path, smiles=tmp_path / "queries.csv")
    new = found[found.drug == "new"]
    with pytest.warns(UserWarning, match="Tanimoto"):
        expected = net.predict_curve(new.dose_uM, smiles=SMILES["new"], cell="c1")
    np.testing.assert_allclose(new.inhibition, expected, atol=1e-6)
    np.testing.assert_allclose(metrics.dose_max, [10, 1])  # never measured: the screen's range
    notes = "\n".join(run.warnings)
    assert "1 drug(s) were never measured" in notes
    assert "unlike every training drug" in notes
    assert "std" not in found  # this preset has no source of a deviation


def test_a_line_may_be_new_together_with_a_drug(drugs, tmp_path):
    genes([*LINES, "n0"]).to_csv(tmp_path / "genes.csv")
    pd.Series(SMILES, name="smiles").rename_axis("drug").to_csv(tmp_path / "smiles.csv")
    queries = pd.DataFrame({"drug": ["new"], "cell_line": ["n0"], "dose_uM": [1.0]})
    files = {"smiles": tmp_path / "smiles.csv", "expression": tmp_path / "genes.csv"}
    run, found, _ = predict(drugs[0], queries, tmp_path, **files)
    assert np.isfinite(found.inhibition).all()
    assert any("--preset new_cells" in note for note in run.warnings)


@pytest.mark.parametrize(
    ("drug", "line", "words"),
    [("new", "c1", "knows its drugs by name only"), ("a", "n0", "knows its lines by name only")],
)
def test_a_model_of_names_refuses_what_it_has_not_seen(named, tmp_path, drug, line, words):
    with pytest.raises(InputError, match=words):
        predict(named[0], pd.DataFrame({"drug": [drug], "cell_line": [line]}), tmp_path)


def test_new_names_without_their_features_are_refused(lines, drugs, tmp_path):
    ask = lambda d, c: pd.DataFrame({"drug": [d], "cell_line": [c]})
    path = tmp_path / "t.csv"
    with pytest.raises(InputError, match=r"not seen the drug\(s\) new; give their structures with --smiles"):
        predict(drugs[0], ask("new", "c1"), tmp_path)
    with pytest.raises(InputError, match=r"no expression of the line\(s\) n0; give it with --expression"):
        predict(lines[0], ask("a", "n0"), tmp_path)
    for text, words in (
        ("drug,smiles\na,CCO\n", r"no structure for the drug\(s\) new"),
        ("drug,smiles\nnew,C1CC\n", "Unreadable SMILES"),
        ("drug,smiles\nnew,CC\nnew,CCC\n", "Several structures"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            predict(drugs[0], ask("new", "c1"), tmp_path, smiles=path)
    every = genes([*LINES, "n0"])
    for frame, words in (
        (every.loc[LINES], r"no row for the line\(s\) n0"),
        (every.iloc[:, :20], "line n0: The expression row has 20 of the 30"),
        (pd.concat([every, every.loc[["n0"]]]), r"line\(s\) n0 more than once"),
    ):
        frame.to_csv(path)
        with pytest.raises(InputError, match=words):
            predict(lines[0], ask("a", "n0"), tmp_path, expression=path)
