"""What the commands do with files, good and bad."""

import gzip
import json
import re

import numpy as np
import pandas as pd
import pytest

from assay._core.data import sample_path
from assay._core.errors import InputError
from assay.decisions.dual_balancing import _job, make_log, make_stream, replay
from assay.decisions.dual_balancing._formats import parse_columns, read_log, read_target
from assay.testing import FakeRun, run_cli


def frame(n=300, seed=0):
    log = make_log(n, random_state=seed)
    return pd.DataFrame({"timestamp": 3600 * log.hour, "value": log.value, "competing_price": log.competing[:, 0]})


def written(table, path):
    table.to_csv(path, index=False)
    return path


@pytest.fixture
def no_figures(monkeypatch):
    """For tests of numbers: figures take most of a second per run, and other tests look at them."""
    from assay.decisions.dual_balancing import _report

    for name in [n for n in vars(_report) if n.startswith("plot_")]:
        monkeypatch.setattr(_report, name, lambda *args: None)
    monkeypatch.setattr(FakeRun, "figure", lambda self, name, fig, caption="": None)


def test_evaluate_leaves_what_it_promises(tmp_path):
    path = written(frame(), tmp_path / "log.csv")
    run = FakeRun(tmp_path / "out")
    _job.evaluate(path, budget=5000.0, roi=2.0, mechanism="first", seeds=2, bids=True, run=run)
    summary = pd.read_csv(tmp_path / "out" / "artefacts" / "summary.csv")
    assert summary["method"].tolist()[:2] == ["dual-balancing", "dual-balancing"]
    promised = (
        "T reward reward_over_opt regret spend_share roi violation violation_max max_lambda max_mu stopped_at seconds"
    )
    assert set(promised.split()) <= set(summary)
    assert (summary["spend_share"] <= 1).all()
    assert len(pd.read_csv(tmp_path / "out" / "artefacts" / "trajectories.csv")) <= 2000
    bids = pd.read_csv(tmp_path / "out" / "artefacts" / "bids.csv")
    assert len(bids) == 300
    assert bids["paid"].sum() <= 5000
    figures = {p.stem for p in (tmp_path / "out" / "figures").iterdir()}
    assert {"pacing", "roi", "multipliers", "landscape", "budget_grid"} <= figures


def test_evaluate_gives_the_numbers_of_the_library(tmp_path, no_figures):
    path = written(frame(), tmp_path / "log.csv")
    run = FakeRun(tmp_path / "out")
    _job.evaluate(path, budget=5000.0, roi=2.0, run=run)
    expected = replay("dual-balancing", read_log(path), budget=5000.0, roi_target=2.0).summary
    assert run.results["reward_over_opt"] == pytest.approx(expected["reward_over_opt"])
    assert run.results["spend_share"] == pytest.approx(expected["spend_share"])


def test_analyse(tmp_path):
    path = written(frame(), tmp_path / "log.csv")
    run = FakeRun(tmp_path / "out")
    _job.analyse(path, budget=5000.0, roi=2.5, run=run)
    grid = pd.read_csv(tmp_path / "out" / "artefacts" / "budget_grid.csv")
    assert (np.diff(grid["best_reward"]) >= -1e-9).all()
    assert (np.diff(grid["reward_per_extra_unit"]) <= 1e-9).all()  # returns diminish
    assert run.results["slater_margin"] > 0
    assert len(pd.read_csv(tmp_path / "out" / "artefacts" / "intervals.csv")) > 10


def test_command_line_and_replay_of_its_configuration(tmp_path):
    path = written(frame(100), tmp_path / "log.csv")
    done = run_cli(
        "dual-balancing", "evaluate", path, "--budget", "2000", "--roi", "2", "--out", tmp_path / "a", "--quiet"
    )
    assert done.code == 0, done.err
    again = run_cli(
        "dual-balancing", "evaluate", "--config", tmp_path / "a" / "config.toml", "--out", tmp_path / "b", "--quiet"
    )
    assert again.code == 0, again.err
    numbers = [json.loads((tmp_path / x / "result.json").read_text())["result"] for x in "ab"]
    assert numbers[0] == numbers[1]


def test_columns_scales_and_formats(tmp_path):
    table = frame(50)
    renamed = table.rename(columns={"value": "ev", "competing_price": "mbw"})
    renamed["mbw"] *= 1000
    log = read_log(
        written(renamed, tmp_path / "a.csv"), columns=parse_columns("value=ev, competing_price=mbw"), price_scale=1000.0
    )
    np.testing.assert_allclose(log.competing[:, 0], table["competing_price"])
    rates = table.assign(pctr=table["value"] / 25_000).drop(columns="value")
    log = read_log(written(rates, tmp_path / "b.csv"), value_per_click=25_000.0)
    np.testing.assert_allclose(log.value, table["value"])
    np.savez(tmp_path / "c.npz", market_price=np.arange(1, 21), pctr=np.full(20, 0.004), click=np.zeros(20))
    assert read_log(tmp_path / "c.npz", value_per_click=100.0).value[0] == pytest.approx(0.4)
    (tmp_path / "d.yzx.txt").write_text("".join(f"{int(k == 3)} {k + 1} 1:1 7:1\n" for k in range(20)))
    assert read_log(tmp_path / "d.yzx.txt", value_per_click=100.0).value[0] == pytest.approx(5.0)
    several = table.assign(competing_2=table["competing_price"] / 2)
    assert read_log(written(several, tmp_path / "e.csv")).competing.shape == (50, 2)
    texts = table.assign(timestamp=pd.to_datetime(table["timestamp"], unit="s").astype(str))
    assert read_log(written(texts, tmp_path / "f.csv")).hour[-1] == pytest.approx(log_hours(table), rel=1e-3)
    millis = table.assign(timestamp=1.7e12 + 1000 * table["timestamp"])
    assert read_log(written(millis, tmp_path / "g.csv")).hour[-1] == pytest.approx(log_hours(table), rel=1e-3)


def log_hours(table):
    return (table["timestamp"].iloc[-1] - table["timestamp"].iloc[0]) / 3600


def test_a_clock_that_goes_backwards_is_sorted_and_said(tmp_path):
    table = frame(50)
    log = read_log(written(table.sample(frac=1, random_state=0), tmp_path / "a.csv"))
    assert (np.diff(log.hour) >= 0).all()
    np.testing.assert_allclose(log.value, table["value"])
    assert any("sorted" in note for note in log.notes)


def test_won_only_logs_are_replayed_with_their_bias_stated(tmp_path, no_figures):
    table = frame(100)
    won = np.arange(100) % 3 > 0
    table["won"] = won.astype(int)
    table.loc[~won, "competing_price"] = np.nan
    path = written(table, tmp_path / "a.csv")
    with pytest.raises(InputError, match="--won-only"):
        read_log(path)
    log = read_log(path, won_only=True)
    assert len(log) == won.sum()
    assert any("what a higher bid would have won is unknown" in note for note in log.notes)
    run = FakeRun(tmp_path / "out")
    _job.evaluate(path, budget=1000.0, won_only=True, run=run)
    assert any("unknown" in w for w in run.warnings)
    paid = table[table["won"] == 1].rename(columns={"competing_price": "price_paid"})
    assert any("price paid" in note for note in read_log(written(paid, tmp_path / "b.csv")).notes)


def edit(column, row, value):
    def change(table):
        table = table.astype({column: object})
        table.loc[row, column] = value
        return table

    return change


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (edit("value", 4, np.nan), "row 6, column value: missing"), (edit("value", 4, -1), "row 6, column value: -1"),
        (edit("value", 4, "much"), "row 6, column value: 'much'"),
        (edit("competing_price", 0, np.nan), "row 2, column competing_price"),
        (edit("competing_price", 0, "inf"), "row 2"), (edit("timestamp", 7, "yesterday"), "timestamp"),
        (lambda t: t.drop(columns="value"), "no column 'value'"),
        (lambda t: t.drop(columns="competing_price"), "no column 'competing_price'"),
        (lambda t: t.assign(value=0.0), "every value is 0"),
        (lambda t: t.head(5), "at least 10"),
        (lambda t: t.drop(columns="value").assign(pctr=0.1), "--value-per-click"),
        (lambda t: t.assign(won="maybe"), "neither 1 nor 0"),
        (edit("value", 4, 1e308), "row 6, column value: 1e.308"), (edit("competing_price", 4, 1e200), "row 6, column comp"),
    ],
)  # fmt: skip
def test_bad_logs_are_refused_with_row_and_column(tmp_path, change, match):
    path = written(change(frame(50)), tmp_path / "log.csv")
    with pytest.raises(InputError, match=match) as caught:
        read_log(path)
    assert "log.csv" in str(caught.value)
    done = run_cli("dual-balancing", "evaluate", path, "--budget", "10", "--out", tmp_path / "out", "--quiet")
    assert done.code == 2
    assert len(done.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["--budget", "0"], "--budget"), (["--budget", "nan"], "--budget"), (["--budget", "9", "--roi", "-1"], "--roi"),
        (["--budget", "9", "--methods", "magic"], "magic"), (["--budget", "9", "--methods", ","], "empty"),
        (["--budget", "9", "--seeds", "0"], "--seeds"), (["--budget", "9", "--mechanism", "soft_floor"], "soft-floor"),
        (["--budget", "9", "--columns", "price=x"], "--columns"), (["--budget", "9", "--columns", "value=nope"], "nope"),
        (["--budget", "9", "--methods", "capped"], "alpha"), (["--budget", "9", "--price-scale", "0"], "--price-scale"),
        (["--budget", "9", "--reserve", "1", "--mechanism", "gsp"], "--reserve"),
        (["--budget", "9", "--value-bins", "0"], "value_bins"), (["--budget", "1e308"], "--budget"),
        (["--budget", "9", "--roi", "1e308"], "--roi"), (["--budget", "9", "--soft-floor", "1"], "--soft-floor goes"),
        (["--budget", "9", "--alpha", "0.1"], "--alpha goes"),
        (["--budget", "9", "--methods", "plain,capped", "--alpha", "-1"], "above 0"),
    ],
)  # fmt: skip
def test_bad_options_are_refused(tmp_path, options, match):
    path = written(frame(30), tmp_path / "log.csv")
    done = run_cli("dual-balancing", "evaluate", path, *options, "--out", tmp_path / "out", "--quiet")
    assert done.code == 2, done.err
    assert re.search(match, done.err), done.err
    assert "Traceback" not in done.err


def test_serve_refuses_bad_settings_before_it_opens_anything(tmp_path):
    for words in ("--budget 0 --horizon 100", "--budget 5 --horizon 3", "--budget 5 --horizon 100 --port 70000"):
        options = words.split()
        done = run_cli(
            "dual-balancing", "serve", *options, "--state", tmp_path / "s.json", "--out", tmp_path / "out", "--quiet"
        )
        assert done.code == 2, done.err
    (tmp_path / "s.json").write_text('{"state": {"t')
    options = [
        "--budget",
        "5",
        "--horizon",
        "100",
        "--state",
        tmp_path / "s.json",
        "--out",
        tmp_path / "out",
        "--quiet",
    ]
    done = run_cli("dual-balancing", "serve", *options)
    assert done.code == 2
    assert "s.json is torn" in done.err


def test_target_curves(tmp_path, no_figures):
    (tmp_path / "a.csv").write_text("hour,spend\n0,1\n1,3\n2,0\n")
    assert read_target(tmp_path / "a.csv").tolist() == [1, 4, 4]
    (tmp_path / "b.csv").write_text("hour,cumulative\n0,1\n1,0.5\n")
    with pytest.raises(InputError, match="fall"):
        read_target(tmp_path / "b.csv")
    (tmp_path / "c.csv").write_text("hour,money\n0,1\n1,0.5\n")
    with pytest.raises(InputError, match="cumulative"):
        read_target(tmp_path / "c.csv")
    run = FakeRun(tmp_path / "out")
    _job.evaluate(
        written(frame(200), tmp_path / "log.csv"),
        budget=2000.0,
        target_spend=tmp_path / "a.csv",
        methods="dual-balancing",
        run=run,
    )
    spent = pd.read_csv(tmp_path / "out" / "artefacts" / "trajectories.csv")["spend"].to_numpy()
    assert spent[len(spent) // 3] < 0.5 * spent[-1]  # a quarter was asked for in the first third


def test_remarks_above_the_header_are_skipped(tmp_path):
    with gzip.open(sample_path("dual-balancing", "simulated_auctions.csv.gz"), "rt") as handle:
        first = handle.readline()
    assert first.startswith("# Simulated")
    (tmp_path / "a.csv").write_text("# one\n# two\n" + frame(20).to_csv(index=False))
    assert len(read_log(tmp_path / "a.csv")) == 20


def test_realised_return_is_shown_where_conversions_are_known(tmp_path, no_figures):
    table = frame(200).assign(pctr=lambda t: t["value"] / 1000, converted=1).drop(columns="value")
    run = FakeRun(tmp_path / "out")
    _job.evaluate(written(table, tmp_path / "a.csv"), budget=500.0, value_per_click=1000.0, run=run)
    assert run.results["realised_roi"] > run.results["roi"]


def test_seeds_change_draws_and_nothing_else():
    log = make_stream("iid", make_log(300), 300, 0)
    runs = [replay("dual-balancing", log, budget=20.0, mechanism="first", scale=1.0, random_state=s) for s in (0, 0, 1)]
    assert np.array_equal(runs[0].bids, runs[1].bids)
    assert not np.array_equal(runs[0].bids, runs[2].bids)


def test_a_click_rate_above_one_is_refused(tmp_path):
    table = frame(30).rename(columns={"value": "pctr"}).assign(pctr=0.1)
    table.loc[3, "pctr"] = 4.0
    with pytest.raises(InputError, match="row 5, column pctr: 4"):
        read_log(written(table, tmp_path / "a.csv"), value_per_click=2.0)
    np.savez(tmp_path / "a.npz", market_price=np.ones(30), pctr=table["pctr"])
    with pytest.raises(InputError, match="entry 3 of pctr"):
        read_log(tmp_path / "a.npz", value_per_click=2.0)


@pytest.mark.parametrize("kind", ["U1", "complex128", "datetime64[s]"])
def test_arrays_of_something_else_are_refused(tmp_path, kind):
    np.savez(tmp_path / "a.npz", market_price=np.ones(30).astype(int).astype(kind), pctr=np.full(30, 0.1))
    with pytest.raises(InputError, match="market_price holds"):
        read_log(tmp_path / "a.npz", value_per_click=2.0)


def test_other_budgets_are_replayed_with_the_same_target_curve(tmp_path, no_figures):
    path, curve = written(frame(), tmp_path / "log.csv"), tmp_path / "t.csv"
    curve.write_text("spend\n0.01\n1\n")  # nearly all in the second half
    run = FakeRun(tmp_path / "out")
    _job.evaluate(path, budget=1500.0, target_spend=curve, methods="dual-balancing", run=run)
    log = read_log(path)
    for row in pd.read_csv(tmp_path / "out" / "artefacts" / "budget_grid.csv").itertuples():
        want = replay("dual-balancing", log, budget=row.budget, target_spend=read_target(curve)).summary
        assert row.replayed_reward == pytest.approx(want["reward"], rel=1e-12)  # as the file has it


def test_missing_conversions_are_said(tmp_path, no_figures):
    table = frame().assign(converted=1.0)
    table.loc[::2, "converted"] = np.nan
    run = FakeRun(tmp_path / "out")
    _job.evaluate(written(table, tmp_path / "a.csv"), budget=2000.0, value_per_click=2.0, methods="greedy", run=run)
    assert "realised_roi" not in run.results
    assert any("No realised return" in w for w in run.warnings)


def test_lost_auctions_that_cost_nothing_are_said(tmp_path):
    table = frame(40).assign(won=[1, 0] * 20)
    table.loc[table["won"] == 0, "competing_price"] = 0.0
    notes = read_log(written(table, tmp_path / "a.csv")).notes
    assert any("20 lost auctions have a price to beat of 0" in note for note in notes)
    table.loc[table["won"] == 0, "competing_price"] = 1.0
    assert not any("price to beat of 0" in note for note in read_log(written(table, tmp_path / "b.csv")).notes)


def test_what_is_wrong_with_the_numbers_names_the_file(tmp_path):
    lost = frame(40).assign(won=0, competing_price=np.nan)
    with pytest.raises(InputError, match=r"lost\.csv: every auction was lost"):
        read_log(written(lost, tmp_path / "lost.csv"), won_only=True)
    with pytest.raises(InputError, match="--price-scale"):
        read_log(written(frame(40), tmp_path / "log.csv"), price_scale=1e-320)
    (tmp_path / "a.txt").write_text("0 5 1:1\n1 nan 2:1\n" * 10)
    with pytest.raises(InputError, match=r"a\.txt: competing bid 1"):
        read_log(tmp_path / "a.txt", value_per_click=20.0)


def test_the_words_name_who_was_ahead(tmp_path, no_figures, monkeypatch):
    said = []
    monkeypatch.setattr(FakeRun, "text", lambda self, heading, text: said.append(text))
    for roi in (None, 1.2, 2.0):
        _job.evaluate(
            written(frame(), tmp_path / "a.csv"),
            budget=5000.0,
            roi=roi,
            mechanism="first",
            run=FakeRun(tmp_path / f"{roi}"),
        )
        summary = pd.read_csv(tmp_path / f"{roi}" / "artefacts" / "summary.csv").set_index("method")
        first = summary.loc["dual-balancing"]
        scale = 2 * read_log(tmp_path / "a.csv").scale * np.sqrt(300)
        kept = summary["violation"] <= (np.inf if roi is None else max(first["violation"], scale))
        ahead = set(summary.index[(summary["reward"] > first["reward"]) & kept])
        sentence = next((line for line in said[-2].split("\n\n") if line.startswith("Ahead")), "")
        assert {name for name in summary.index if f"{name} (" in sentence} == ahead
