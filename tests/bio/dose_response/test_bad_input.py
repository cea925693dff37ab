"""Every bad input of a table ends in one sentence that names the row, drug or line."""

import sys
import types

import numpy as np
import pandas as pd
import pytest

from assay._core.errors import InputError
from assay.bio.dose_response import DoseResponseData, DrugMeanCurve, ExpressionRidge, HillModel, datasets


def good():
    return pd.DataFrame(
        {
            "drug": ["a"] * 4 + ["b"] * 4,
            "cell_line": ["x"] * 8,
            "dose_uM": [0.1, 1.0, 10.0, 100.0] * 2,
            "viability": [1.0, 0.9, 0.5, 0.1] * 2,
        }
    )


def with_value(column, row, value):
    table = good().astype({column: object})
    table.loc[row, column] = value
    return table


@pytest.mark.parametrize(
    ("table", "options", "words"),
    [
        (with_value("dose_uM", 2, 0.0), {}, r"Row 3 \(a on x\).*vehicle"),
        (with_value("dose_uM", 2, -1.0), {}, r"Row 3 .*must be > 0"),
        (with_value("dose_uM", 5, np.inf), {}, r"Row 6 .*finite"),
        (with_value("dose_uM", 5, "ten"), {}, r"Row 6 .*'ten'"),
        (with_value("viability", 7, np.nan), {}, r"Row 8 \(b on x\).*missing"),
        (with_value("viability", 7, "dead"), {}, r"Row 8 .*not a number"),
        (with_value("drug", 1, None), {}, r"Row 2 has no value in column 'drug'"),
        (pd.concat([good(), good().iloc[[2]]]), {}, r"more than once.*a on x at 10 uM"),
        (good().iloc[:7], {}, r"fewer than 4 doses: b on x \(3\)"),
        (good(), {"response_type": "growth"}, "Unknown response_type 'growth'"),
        (good(), {"replicates": "sum"}, "Unknown replicates"),
        (good(), {"on_missing": "ignore"}, "Unknown on_missing"),
        (good(), {"min_points": 0}, "min_points=0"),
        (good().assign(viability=lambda t: 100 * t.viability), {}, "percent_viability"),
        (good().rename(columns={"viability": "y"}), {}, "no column 'viability'.*it has: drug, cell_line, dose_uM, y"),
        (good().iloc[:0], {}, "no rows"),
        (good(), {"min_points": 9}, "Every curve|fewer than 9"),
        (good(), {"smiles": {"a": "CCO"}}, r"No SMILES for 1 drug\(s\): b"),
        (good(), {"smiles": {"a": "CCO", "b": "C1CC("}}, r"Unreadable SMILES for 1 drug\(s\): b"),
        (good(), {"smiles": pd.DataFrame({"name": ["a"]})}, "SMILES table has no column 'drug'"),
        (good(), {"expression": pd.DataFrame({"g": [1.0]}, index=["z"])}, r"No expression for 1 line\(s\): x"),
        (good(), {"expression": pd.DataFrame({"g": [np.nan]}, index=["x"])}, "line x, gene g is not a number"),
        (good(), {"expression": pd.DataFrame({"g": [1.0, 2.0]}, index=["x", "x"])}, "more than once: x"),
        (good(), {"expression": pd.DataFrame({"tissue": ["lung"]}, index=["x"])}, "tissue are not numbers"),
        (good(), {"expression": {"x": [1.0]}}, "must be a DataFrame"),
    ],
)
def test_from_long_says_what_and_where(table, options, words):
    with pytest.raises(InputError, match=words) as caught:
        DoseResponseData.from_long(table, **options)
    assert "\n" not in str(caught.value)


def test_drop_leaves_out_what_is_missing_with_a_warning():
    table = pd.concat([good(), good().assign(cell_line="y").iloc[:7]])
    genes = pd.DataFrame({"g1": [1.0, 2.0], "g2": [2.0, 1.0]}, index=["x", "w"])
    data = DoseResponseData.from_long(table, expression=genes, on_missing="drop")
    assert list(data.cells) == ["x"]
    with pytest.warns(UserWarning, match="fewer than 4 doses were left out"):
        assert DoseResponseData.from_long(table, on_missing="drop").n_curves == 3
    with pytest.raises(InputError, match="No curve is left"):
        DoseResponseData.from_long(good(), expression=genes.loc[["w"]], on_missing="drop")


def test_constant_genes_are_dropped_with_a_warning_and_doubled_lines_reported():
    rng = np.random.default_rng(0)
    table = pd.concat([good(), good().assign(cell_line="y"), good().assign(cell_line="z")])
    genes = pd.DataFrame(rng.normal(size=(3, 30)), index=["x", "y", "z"]).rename(columns=str)
    with pytest.warns(UserWarning, match=r"1 gene\(s\) are constant.*: 7"):
        data = DoseResponseData.from_long(table, expression=genes.assign(**{"7": 1.0}))
    assert data.expression.shape == (3, 29)
    genes.loc["z"] = genes.loc["x"] + 1e-4 * rng.normal(size=30)
    with pytest.warns(UserWarning, match="x and z have the same expression"):
        DoseResponseData.from_long(table, expression=genes)


def test_models_refuse_wrong_masks_doses_and_missing_expression():
    data = DoseResponseData.from_long(good())
    with pytest.raises(InputError, match="train_mask has shape"):
        HillModel(2).fit(data, np.ones(3, bool))
    with pytest.raises(InputError, match="leaves no point"):
        HillModel(2).fit(data, np.zeros(data.mask.shape, bool))
    with pytest.raises(InputError, match="needs expression"):
        ExpressionRidge().fit(data)
    model = DrugMeanCurve().fit(data)
    for dose in (0.0, -1.0, np.nan):
        with pytest.raises(InputError, match="finite and > 0"):
            model.predict("a", "x", dose)
    with pytest.raises(InputError, match="do not broadcast"):
        model.predict(["a", "b"], "x", [1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="no curve"):
        data.subset([])


def test_readers_of_public_screens(tmp_path):
    """Small files in the published layouts; values by hand."""
    gdsc = pd.DataFrame(
        {
            "BARCODE": 1,
            "CELL_LINE_NAME": "A",
            "DRUG_ID": [np.nan, np.nan, 7, 7],
            "CONC": [np.nan, np.nan, 1.0, 2.0],
            "INTENSITY": [100, 1100, 600, 350],
            "TAG": ["B", "NC-1", "L1-D1-S", "L1-D2-S"],
        }
    )
    gdsc.to_csv(tmp_path / "gdsc.csv", index=False)
    found = datasets.read_gdsc_raw(tmp_path / "gdsc.csv", drug_names={7: "seven"})
    assert found.viability.tolist() == [0.5, 0.25]
    assert set(found.drug) == {"seven"}

    folder = tmp_path / "ctrp"
    folder.mkdir()
    write = lambda name, **columns: pd.DataFrame(columns).to_csv(folder / name, sep="\t", index=False)
    write("v20.data.per_cpd_post_qc.txt", experiment_id=[1], master_cpd_id=[5], cpd_conc_umol=[0.3], cpd_avg_pv=[0.8])
    write("v20.meta.per_experiment.txt", experiment_id=[1, 1], master_ccl_id=[9, 9])
    write("v20.meta.per_cell_line.txt", master_ccl_id=[9], ccl_name=["LINE"])
    write("v20.meta.per_compound.txt", master_cpd_id=[5], cpd_name=["drug"], cpd_smiles=["CCO"])
    found = datasets.read_ctrpv2(folder)
    assert found.iloc[0].tolist() == ["drug", "LINE", 0.3, 0.8, "CCO"]

    prism = tmp_path / "prism"
    prism.mkdir()
    pd.DataFrame({"Unnamed": ["ACH-1"], "BRD::1": [-1.0]}).to_csv(
        prism / "secondary-screen-replicate-collapsed-logfold-change.csv", index=False
    )
    pd.DataFrame(
        {"column_name": ["BRD::1"], "name": ["d"], "dose": [2.5], "screen_id": ["MTS"], "smiles": ["CC, CCO"]}
    ).to_csv(prism / "secondary-screen-replicate-collapsed-treatment-info.csv", index=False)
    found = datasets.read_prism_secondary(prism)
    assert found.viability.tolist() == [0.5]
    assert found.smiles.tolist() == ["CC"]

    pd.DataFrame(
        {
            "NSC": [740, 740],
            "CELL_NAME": "K-562",
            "CONCENTRATION": [-6.0, 2.0],
            "CONCENTRATION_UNIT": ["M", "u"],
            "AVERAGE_PTC": [40.0, 9.0],
        }
    ).to_csv(tmp_path / "nci.csv", index=False)
    found = datasets.read_nci60(tmp_path / "nci.csv")
    assert found.dose_uM.tolist() == [1.0]
    assert found.percent_viability.tolist() == [40.0]


def thunor_frames():
    """One plate as thunor 1.0 holds it: two control and two treated wells, counted at 0 and 72 hours."""
    hours = [pd.Timedelta(0), pd.Timedelta(hours=72)]
    assay, cell = "Cell count", "LN"
    control_rows, rows = [], []
    for well, last in enumerate((200.0, 240.0, 55.0, 22.0)):
        for time, count in zip(hours, (100.0, last), strict=True):
            if well < 2:
                control_rows.append((assay, cell, "P1", f"P1__{well}", time, count, well))
            else:
                rows.append((assay, f"P1__{well}", time, count))
    columns = ["assay", "cell_line", "plate", "well_id", "timepoint"]
    controls = pd.DataFrame(control_rows, columns=[*columns, "value", "well_num"]).set_index(columns)
    columns = ["assay", "well_id", "timepoint"]
    assays = pd.DataFrame(rows, columns=[*columns, "value"]).set_index(columns)
    doses = pd.DataFrame(
        [(("d",), cell, (1e-6,), "P1", "P1__2", 2), (("d",), cell, (2e-6,), "P1", "P1__3", 3)],
        columns=["drug", "cell_line", "dose", "plate", "well_id", "well_num"],
    ).set_index(["drug", "cell_line", "dose"])
    return doses, assays, controls


def check_thunor(found):
    # The last count over the median of the controls' last counts, 220.
    found = found.sort_values("dose_uM")
    assert found[["drug", "cell_line", "plate"]].drop_duplicates().to_numpy().tolist() == [["d", "LN", "P1"]]
    np.testing.assert_allclose(found.dose_uM, [1.0, 2.0])
    np.testing.assert_allclose(found.viability, [0.25, 0.1])


@pytest.fixture
def thunor_screen(monkeypatch):
    """`read_thunor` on frames instead of a file, so that its own steps are tested where thunor is not installed."""
    screen = types.SimpleNamespace(dip_assay_name="Cell count")
    screen.doses, screen.assays, screen.controls = thunor_frames()
    reader = types.ModuleType("thunor.io")
    reader.read_hdf = lambda path: screen
    monkeypatch.setitem(sys.modules, "thunor", types.ModuleType("thunor"))
    monkeypatch.setitem(sys.modules, "thunor.io", reader)
    return screen


def test_thunor_screen_becomes_viability(thunor_screen):
    check_thunor(datasets.read_thunor("x.h5"))
    other = thunor_screen.assays.rename({"Cell count": "lum"}, level="assay") * 1000
    thunor_screen.assays = pd.concat([other, thunor_screen.assays])  # a second assay of the same wells is not mixed in
    check_thunor(datasets.read_thunor("x.h5"))
    assert datasets.read_thunor("x.h5", dataset_drug=1).empty  # no well has a second drug


def test_thunor_screens_that_cannot_be_normalised_are_refused(thunor_screen):
    thunor_screen.controls = thunor_screen.controls.rename({"P1": "P2"}, level="plate")
    with pytest.raises(InputError, match="no treated well shares plate and line"):
        datasets.read_thunor("x.h5")
    thunor_screen.dip_assay_name = None
    thunor_screen.assays = pd.concat([thunor_screen.assays, thunor_screen.assays.rename({"Cell count": "lum"})])
    with pytest.raises(InputError, match="several assays and none of them counts cells: Cell count, lum"):
        datasets.read_thunor("x.h5")
    thunor_screen.controls = None
    with pytest.raises(InputError, match="no control wells"):
        datasets.read_thunor("x.h5")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # thunor 1.0.3 uses what pandas 3.1 deprecates
def test_thunor_file(tmp_path):
    """The file itself, written by thunor."""
    pytest.importorskip("tables", reason="HDF5 files of thunor need PyTables, which no extra installs")
    io = pytest.importorskip("thunor.io", reason="thunor is not part of any extra")
    io.write_hdf(io.HtsPandas(*thunor_frames()), str(tmp_path / "x.h5"))
    check_thunor(datasets.read_thunor(tmp_path / "x.h5"))
