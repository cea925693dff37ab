"""The commands, end to end on a slice of the shipped screen."""

import numpy as np
import pandas as pd
import pytest

from assay._core.errors import InputError
from assay.bio.dose_response import _job as job
from assay.bio.dose_response import datasets
from assay.testing import FakeRun


@pytest.fixture(scope="module")
def responses(tmp_path_factory):
    table = datasets.sarcoma_table(4)
    path = tmp_path_factory.mktemp("in") / "responses.csv"
    table[table.cell_line.isin(sorted(table.cell_line.unique())[:6])].to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def fitted(responses, tmp_path_factory):
    run = FakeRun(tmp_path_factory.mktemp("fit"), seed=3)
    job.fit(responses, epochs=2, run=run)
    run.finish()
    return run


def test_fit_leaves_what_it_promises(fitted):
    files = {p.relative_to(fitted.out).as_posix() for p in fitted.out.rglob("*") if p.is_file()}
    for name in ("predictions", "curve_metrics", "metrics", "metrics_by_drug", "hill_parameters", "biphasic"):
        assert f"artefacts/{name}.csv" in files
    for name in ("curves", "heatmap", "waterfall", "errors", "calibration"):
        assert f"figures/{name}.svg" in files or f"figures/{name}.png" in files
    assert {"report.html", "result.json", "history.jsonl"} <= files
    assert fitted.results["noise_floor"] > 0


def test_predictions_hold_every_point_and_the_held_out_ones_have_rivals(fitted):
    table = pd.read_csv(fitted.out / "artefacts/predictions.csv")
    assert len(table) == 4 * 6 * 11
    held = table[table.held_out]
    assert len(held) == 24  # one dose of every curve
    columns = [c for c in table.columns if c.startswith("held_out_")]
    assert {"held_out_arcanet", "held_out_hill4", "held_out_drugmean_gp"} <= set(columns)
    assert held[columns].notna().all(axis=None)
    assert table[~table.held_out][columns].isna().all(axis=None)
    metrics = pd.read_csv(fitted.out / "artefacts/metrics.csv").set_index("model")
    mse = ((held.held_out_hill4 - held.inhibition) ** 2).mean()
    assert metrics.mse["Hill 4P"] == pytest.approx(mse)
    assert (metrics.mse_low <= metrics.mse).all()
    assert (metrics.mse <= metrics.mse_high).all()


def test_curve_metrics_have_status_and_intervals(fitted):
    table = pd.read_csv(fitted.out / "artefacts/curve_metrics.csv")
    assert set(table.ic50_status) <= {"reached", "not_reached", "below_range"}
    inside = table[table.ic50_status == "reached"]
    assert ((inside.ic50 >= inside.dose_min) & (inside.ic50 <= inside.dose_max)).all()
    assert np.isinf(table.ic50[table.ic50_status == "not_reached"]).all()
    assert (table.aac_low <= table.aac_high).all()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers(responses, fitted, tmp_path):
    run = FakeRun(tmp_path, seed=3)
    job.fit(responses, epochs=2, run=run)
    a, b = (pd.read_csv(r.out / "artefacts/predictions.csv") for r in (fitted, run))
    pd.testing.assert_frame_equal(a, b, rtol=1e-6)


def test_predict_uses_the_saved_model(fitted, tmp_path):
    queries = tmp_path / "q.csv"
    stored = pd.read_csv(fitted.out / "artefacts/predictions.csv").head(20)
    stored[["drug", "cell_line", "dose_uM"]].to_csv(queries, index=False)
    run = FakeRun(tmp_path / "out")
    job.predict(fitted.out / "artefacts/model", queries, run=run)
    found = pd.read_csv(run.out / "artefacts/predictions.csv")
    np.testing.assert_allclose(found.inhibition, stored.arcanet, atol=1e-6)
    stored[["drug", "cell_line"]].to_csv(queries, index=False)
    whole = FakeRun(tmp_path / "whole")
    job.predict(fitted.out / "artefacts/model", queries, run=whole)
    metrics = pd.read_csv(whole.out / "artefacts/curve_metrics.csv")
    assert len(metrics) == len(stored.drop_duplicates(["drug", "cell_line"]))


def test_evaluate_pairs_models_over_folds(responses, tmp_path):
    run = FakeRun(tmp_path)
    job.evaluate(responses, setting="interpolation", models="hill2,hill4,drugmean_gp", folds=2, run=run)
    run.finish()
    table = pd.read_csv(run.out / "artefacts/metrics.csv").set_index("model")
    assert set(table.index) == {"Hill 2P", "Hill 4P", "drug mean + GP"}
    assert table.difference["Hill 2P"] == 0
    folds = pd.read_csv(run.out / "artefacts/metrics_by_fold.csv")
    assert len(folds) == 6
    assert table.mse["Hill 4P"] == pytest.approx(folds[folds.model == "Hill 4P"].mse.mean())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"models": "hill5"}, "unknown hill5"),
        ({"models": ""}, "none given"),
        ({"setting": "new_cells", "models": "hill2"}, "only predict measured pairs"),
        ({"folds": 99}, "n_splits"),
        ({"setting": "new_cells", "models": "ridge"}, "--expression"),
    ],
)
def test_evaluate_refuses_what_cannot_be(responses, tmp_path, options, words):
    with pytest.raises(InputError, match=words):
        job.evaluate(responses, **{"models": "hill2", **options}, run=FakeRun(tmp_path))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"preset": "new_cells"}, "needs an expression table"),
        ({"preset": "new_drugs"}, "needs SMILES"),
        ({"epochs": 0}, "epochs=0"),
        ({"focus": "nothing"}, "no drug 'nothing'"),
    ],
)
def test_fit_refuses_before_it_trains(responses, tmp_path, monkeypatch, options, words):
    monkeypatch.setattr(job, "_score", lambda *_, **__: pytest.fail("trained before it refused"))
    with pytest.raises(InputError, match=words):
        job.fit(responses, **options, run=FakeRun(tmp_path))


def test_analyse_normalises_plates_and_warns(tmp_path):
    rng = np.random.default_rng(0)
    rows = []
    doses = np.logspace(-2, 1, 8)
    for p in range(3):
        for i in range(40):
            rows.append(
                (
                    f"p{p}",
                    f"{'ABCDEFGH'[i % 8]}{1 + i // 8}",
                    "negative_control",
                    "",
                    "",
                    np.nan,
                    1000 + 15 * rng.normal(),
                )
            )
        for i in range(8):
            rows.append((f"p{p}", f"{'ABCDEFGH'[i]}12", "blank", "", "", np.nan, 50 + 3 * rng.normal()))
        for d in range(3):
            for k, z in enumerate(doses):
                v = 1 / (1 + (z / (0.1 * 10**d)) ** 1.5)
                rows.append(
                    (f"p{p}", f"{'ABCDEFGH'[k]}{8 + d}", "sample", f"d{d}", "line", z, 50 + 950 * v + 15 * rng.normal())
                )
    columns = ["plate", "well", "role", "drug", "cell_line", "dose_uM", "signal"]
    path = tmp_path / "wells.csv"
    pd.DataFrame(rows, columns=columns).to_csv(path, index=False)
    run = FakeRun(tmp_path / "out")
    job.analyse(path, wells=True, run=run)
    run.finish()
    table = pd.read_csv(run.out / "artefacts/curve_metrics.csv").set_index("drug")
    # The drugs' true IC50s are 0.1, 1 and 10 uM, the last at the end of the range.
    assert table.ic50["d0"] == pytest.approx(0.1, rel=0.25)
    assert table.ic50["d1"] == pytest.approx(1.0, rel=0.25)
    assert "edge_effect.csv" in {p.name for p in (run.out / "artefacts").iterdir()}


def test_warnings_a_pharmacologist_wants(tmp_path, monkeypatch):
    """Other dose range, inactive drugs, noisy replicates and an outlying well are each named."""
    rng = np.random.default_rng(0)
    rows = []
    for d in range(6):
        for c in range(6):
            doses = np.logspace(-2, 1, 8) * (10 if d == 5 else 1)
            top = 0.05 if d == 0 else 0.9
            noise = 0.3 if (d, c) == (2, 2) else 0.02
            for z in doses:
                for _ in range(3):
                    rows.append((f"d{d}", f"c{c}", z, 1 - top * z / (z + 0.3) + noise * rng.normal()))
    table = pd.DataFrame(rows, columns=["drug", "cell_line", "dose_uM", "viability"])
    table.loc[100, "viability"] += 1.0
    table.to_csv(tmp_path / "r.csv", index=False)
    monkeypatch.setattr(job, "_hill_panels", lambda *_: None)  # drawn by other tests, and it is most of the time
    run = FakeRun(tmp_path / "out")
    job.analyse(tmp_path / "r.csv", run=run)
    notes = "\n".join(run.warnings)
    for words in (
        "another dose range",
        "stay below 20 % inhibition on every line: d0",
        "scatter by more than 15 points",
        "robust s.d.",
        "d2 on c2",
    ):
        assert words in notes, words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("drug;cell_line;dose_uM\na;x;1\n", "no column 'viability'"),
        ("drug cell_line dose_uM viability\na x 1 1\n", "no comma, tab or semicolon"),
        ("drug,cell_line,dose_uM,viability\na,x,-1,1\n", "r.csv: Row 1"),
    ],
)
def test_bad_files_name_the_file(tmp_path, text, words):
    path = tmp_path / "r.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        job.analyse(path, run=FakeRun(tmp_path / "out"))


@pytest.mark.slow  # that the reader takes both is among the reader's own tests
def test_byte_order_mark_and_windows_line_ends_are_fine(responses, tmp_path):
    path = tmp_path / "windows.csv"
    path.write_bytes(b"\xef\xbb\xbf" + responses.read_bytes().replace(b"\n", b"\r\n"))
    options = {"models": "hill2,linear", "folds": 1}
    a, b = FakeRun(tmp_path / "a"), FakeRun(tmp_path / "b")
    job.evaluate(responses, **options, run=a)
    job.evaluate(path, **options, run=b)
    first, second = (pd.read_csv(r.out / "artefacts/metrics.csv") for r in (a, b))
    assert (first.mse == second.mse).all()


def test_doses_in_another_unit_give_the_same_curves(tmp_path):
    dose = np.tile(np.logspace(-2, 1, 7), 4)
    table = pd.DataFrame({"drug": np.repeat(["a", "b"], 14), "cell_line": np.tile(np.repeat(["u", "v"], 7), 2)})
    table = table.assign(dose_uM=dose, viability=1 / (1 + dose))
    names = {"drug": "drug", "cell": "cell_line", "dose": "dose_uM", "response": "viability"}
    found = {}
    for unit, factor in (("uM", 1.0), ("nM", 1e3), ("mM", 1e-3), ("M", 1e-6)):
        path = tmp_path / f"{unit}.csv"
        table.assign(dose_uM=table["dose_uM"] * factor).to_csv(path, index=False)
        run = FakeRun(tmp_path / unit)
        found[unit] = job._read(run, path, None, None, dose_unit=unit, **names)[1]
        assert not run.warnings
    for data in found.values():
        np.testing.assert_allclose(data.dose, found["uM"].dose, rtol=1e-12)
        np.testing.assert_array_equal(data.effect, found["uM"].effect)
    run = FakeRun(tmp_path / "forgotten")
    job._read(run, tmp_path / "nM.csv", None, None, **names)
    assert any("--dose-unit nM" in note for note in run.warnings)
