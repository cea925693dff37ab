"""A fit that is killed in the middle of the training goes on to the numbers of one that was not."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from assay.bio.dose_response import datasets


def command(responses, out, *more):
    # Enough epochs that both trainings outlast the five seconds between two checkpoints, on any machine.
    line = ["dose-response", "fit", str(responses), "--epochs", "600", "--seed", "3", "--out", str(out), *more]
    return [sys.executable, "-m", "assay", *line]


def killed_once_saved(line, checkpoint):
    """Start, wait until the checkpoint has been written, kill -9."""
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        end = time.monotonic() + 240
        while not checkpoint.exists():
            assert process.poll() is None, "the fit ended before it was killed: give it more epochs"
            assert time.monotonic() < end, "no checkpoint was written"
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.timeout(900)  # two fits of 1,200 epochs and their reports on a busy core
def test_killed_twice_and_resumed_gives_the_numbers_of_an_uninterrupted_fit(tmp_path):
    table = datasets.sarcoma_table(6)
    responses = tmp_path / "responses.csv"
    table[table.cell_line.isin(sorted(table.cell_line.unique())[:6])].to_csv(responses, index=False)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    subprocess.run(command(responses, whole), check=True, capture_output=True)

    killed_once_saved(command(responses, broken), broken / "checkpoints/test-arcanet.safetensors")
    assert not (broken / "result.json").exists()
    refused = subprocess.run(command(responses, broken), capture_output=True, text=True)
    assert refused.returncode == 2
    assert "--resume" in refused.stderr
    killed_once_saved(command(responses, broken, "--resume"), broken / "checkpoints/final.safetensors")
    subprocess.run(command(responses, broken, "--resume"), check=True, capture_output=True)

    a, b = (json.loads((out / "result.json").read_text())["result"] for out in (whole, broken))
    assert a == b
    for name in ("predictions", "curve_metrics"):
        first, second = (pd.read_csv(out / f"artefacts/{name}.csv") for out in (whole, broken))
        pd.testing.assert_frame_equal(first, second, check_exact=True)
    # Every epoch of both trainings is in the history once.
    lines = [json.loads(text) for text in (broken / "history.jsonl").read_text().splitlines()]
    for key in ("loss_test_arcanet", "loss_final"):
        assert [entry["step"] for entry in lines if key in entry] == list(range(1, 601))
    assert not (broken / "checkpoints").exists()


def test_a_run_that_stops_after_the_training_does_not_train_again(tmp_path, monkeypatch):
    from assay.bio.dose_response import _job
    from assay.testing import FakeRun

    table = datasets.sarcoma_table(4)
    responses = tmp_path / "responses.csv"
    table[table.cell_line.isin(sorted(table.cell_line.unique())[:5])].to_csv(responses, index=False)

    class Stopped(Exception):
        """The interruption."""

    def stop(*_):
        raise Stopped

    monkeypatch.setattr(_job, "_headline", stop)  # comes after both trainings
    losses = []
    for resume in (False, True):
        run, seen = FakeRun(tmp_path / "out", seed=1, resume=resume), []
        monkeypatch.setattr(run, "metric", lambda step, seen=seen, **values: seen.extend(values))
        with pytest.raises(Stopped):
            _job.fit(responses, epochs=3, run=run)
        losses.append(seen)
    assert losses[0].count("loss_test_arcanet") == losses[0].count("loss_final") == 3
    assert not losses[1]
