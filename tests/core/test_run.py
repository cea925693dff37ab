"""What a run leaves, and that nothing is lost or half-written however it ends."""

import json
import os
import signal
import subprocess
import time

import pytest

from assay import InputError
from assay._core.run import Run, cell

PROMISED = {"config.toml", "result.json", "history.jsonl", "env.json", "log.txt", "report.html"}


def strays(out):
    return sorted(p.name for p in out.rglob("*") if p.name.startswith(".") or p.name == "checkpoints")


def numbers(out):
    return json.loads((out / "result.json").read_text())["result"]


def test_a_run_leaves_the_promised_files_and_nothing_else(toy, table, tmp_path):
    done = toy("old-toy", "fit", table, "--out", tmp_path / "o")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"Report: {tmp_path / 'o' / 'report.html'}"
    assert {p.name for p in (tmp_path / "o").iterdir()} == PROMISED | {"artefacts"}
    assert strays(tmp_path / "o") == []
    steps = [json.loads(line)["step"] for line in (tmp_path / "o" / "history.jsonl").read_text().splitlines()]
    assert steps == [0, 1, 2, 3, 4]
    page = (tmp_path / "o" / "report.html").read_text()
    assert "<script>" not in page.split("</style>")[1]
    assert "&lt;b&gt;the table&lt;/b&gt;" in page


def test_replay_from_config_gives_the_same_numbers(toy, table, tmp_path):
    toy("toy", "fit", table, "--out", tmp_path / "a", "--seed", 7, "--steps", 3, "--mode", "mean")
    again = toy("toy", "fit", "--config", tmp_path / "a" / "config.toml", "--out", tmp_path / "b")
    assert again.returncode == 0, again.stderr
    assert numbers(tmp_path / "a") == numbers(tmp_path / "b")
    assert (tmp_path / "a" / "config.toml").read_text() == (tmp_path / "b" / "config.toml").read_text()
    other = toy("toy", "fit", "--config", tmp_path / "a" / "config.toml", "--out", tmp_path / "c", "--seed", 8)
    assert other.returncode == 0
    assert numbers(tmp_path / "c") != numbers(tmp_path / "a")


def test_replay_of_several_files(toy, table, tmp_path):
    first = toy("toy", "merge", table, table, "--every", 3, "--out", tmp_path / "a")
    assert first.returncode == 0, first.stderr
    assert numbers(tmp_path / "a") == {"count": 2, "every": 3}
    again = toy("toy", "merge", "--config", tmp_path / "a" / "config.toml", "--out", tmp_path / "b")
    assert again.returncode == 0, again.stderr
    assert numbers(tmp_path / "b") == numbers(tmp_path / "a")


@pytest.mark.parametrize("fail", ["die", "interrupt"])
def test_resume_after_kill_or_interrupt_equals_an_uninterrupted_run(toy, table, tmp_path, fail):
    args = ["toy", "fit", table, "--steps", 6, "--seed", 3, "--fail", fail]
    died = toy(*args, "--out", tmp_path / "a")
    assert died.returncode == (130 if fail == "interrupt" else -signal.SIGKILL)
    assert not (tmp_path / "a" / "result.json").exists()
    refused = toy(*args, "--out", tmp_path / "a")
    assert refused.returncode == 2
    assert "--resume" in refused.stderr
    resumed = toy(*args, "--out", tmp_path / "a", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "from step 3" in resumed.stderr
    whole = toy("toy", "fit", table, "--steps", 6, "--seed", 3, "--out", tmp_path / "b")
    assert whole.returncode == 0
    assert numbers(tmp_path / "a") == numbers(tmp_path / "b")
    assert (tmp_path / "a" / "history.jsonl").read_text() == (tmp_path / "b" / "history.jsonl").read_text()
    assert strays(tmp_path / "a") == []
    again = toy(*args, "--out", tmp_path / "a", "--resume")
    assert again.returncode == 0
    assert "complete" in again.stdout


def test_real_signal_in_the_middle(toy, table, tmp_path):
    process = toy("toy", "fit", table, "--steps", 200, "--pause", 0.05, "--out", tmp_path / "a", wait=False)
    try:
        history = tmp_path / "a" / "history.jsonl"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (history.exists() and history.read_text().count("\n") >= 2):
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert err.strip().splitlines()[-1].startswith("assay: interrupted")
    assert "Traceback" not in err
    assert (tmp_path / "a" / "checkpoints").is_dir()
    assert not (tmp_path / "a" / ".lock").exists()


def test_resume_with_other_arguments_or_changed_input_is_refused(toy, table, tmp_path):
    toy("toy", "fit", table, "--fail", "die", "--out", tmp_path / "a")
    other = toy("toy", "fit", table, "--fail", "die", "--steps", 9, "--out", tmp_path / "a", "--resume")
    assert other.returncode == 2
    assert "steps = 5, not 9" in other.stderr
    table.write_text("x,y\n5,6\n")
    changed = toy("toy", "fit", table, "--fail", "die", "--out", tmp_path / "a", "--resume")
    assert changed.returncode == 2
    assert str(table) in changed.stderr


def test_a_state_file_may_change_between_a_run_and_its_resumption(tmp_path):
    state, table = tmp_path / "state.json", tmp_path / "table.csv"
    state.write_text("1")
    table.write_text("1")

    def open_run(resume):
        arguments = {"state": state, "table": table}
        return Run(tmp_path / "out", command="toy serve", arguments=arguments, resume=resume, verbose=False)

    with pytest.raises(KeyboardInterrupt), open_run(False):
        state.write_text("2")
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), open_run(True):
        raise KeyboardInterrupt
    table.write_text("2")
    with pytest.raises(InputError, match="table"):
        open_run(True).open()


def test_an_error_leaves_one_sentence_and_no_half_artefact(toy, table, tmp_path):
    died = toy("toy", "fit", table, "--fail", "half", "--out", tmp_path / "a")
    assert died.returncode == 1
    assert [line for line in died.stderr.splitlines() if line.startswith("assay:")] == [
        "assay: failed: RuntimeError: died while writing (--debug shows where)."
    ]
    assert "Traceback" not in died.stderr
    assert not list((tmp_path / "a").rglob("*half*"))
    assert "Traceback" in toy("toy", "fit", table, "--fail", "raise", "--out", tmp_path / "b", "--debug").stderr


def test_other_content_is_refused_and_force_keeps_it(toy, table, tmp_path):
    out = tmp_path / "mine"
    out.mkdir()
    (out / "thesis.txt").write_text("precious")
    refused = toy("toy", "fit", table, "--out", out)
    assert refused.returncode == 2
    assert sorted(p.name for p in out.iterdir()) == ["thesis.txt"]
    assert toy("toy", "fit", table, "--out", out, "--force").returncode == 0
    assert toy("toy", "fit", table, "--out", out).returncode == 2
    assert toy("toy", "fit", table, "--steps", 2, "--out", out, "--force").returncode == 0
    assert (out / "thesis.txt").read_text() == "precious"
    assert len((out / "history.jsonl").read_text().splitlines()) == 2


def test_two_runs_into_one_folder_at_once(toy, table, tmp_path):
    with Run(tmp_path / "a", verbose=False):
        for flag in ("--force", "--resume"):
            second = toy("toy", "fit", table, "--out", tmp_path / "a", flag)
            assert second.returncode == 2
            assert "in use by another run" in second.stderr
    assert (tmp_path / "a" / "result.json").exists()


def test_out_that_cannot_be_written(toy, table, tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file" / "below", "/proc/assay-out"):
        refused = toy("toy", "fit", table, "--out", out)
        assert refused.returncode == 2
        assert refused.stderr.count("\n") == 1
        assert "cannot be written" in refused.stderr


@pytest.fixture
def small_disk(tmp_path):
    """Return a folder on a file system of one mebibyte, or skip where the system does not let us mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True)
    if mount.returncode != 0:
        pytest.skip("mounting a small tmpfs needs root; test_full_disk_without_a_mount covers the same path")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_gives_one_sentence_and_nothing_half_written(toy, table, small_disk):
    died = toy("toy", "fit", table, "--fail", "full", "--out", small_disk / "o")
    assert died.returncode == 1
    last = died.stderr.strip().splitlines()[-1]
    assert "no space left" in last
    assert "big.bin" in last
    assert not list(small_disk.rglob(".partial-*"))
    assert not list(small_disk.rglob("big.bin"))


def test_a_read_only_folder(toy, table, small_disk):
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    refused = toy("toy", "fit", table, "--out", small_disk / "o")
    assert refused.returncode == 2
    assert "read-only" in refused.stderr


def test_full_disk_without_a_mount(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with Run(tmp_path, verbose=False) as run:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(Exception, match=r"Cannot write .*a\.bin: no space left"), run.artefact("a.bin") as path:
            path.write_bytes(b"x")
        monkeypatch.undo()
        assert not list(tmp_path.rglob(".partial-*"))
        assert not (tmp_path / "artefacts" / "a.bin").exists()


def test_bad_run_options(toy, table, tmp_path):
    for args in (
        ["--seed", "-1"],
        ["--seed", "x"],
        ["--resume"],
        ["--mode", "median"],
        ["--nonsense"],
        ["--track", "x"],
    ):
        refused = toy("toy", "fit", table, *args, cwd=tmp_path)
        assert refused.returncode == 2, args
        assert refused.stderr.count("\n") == 1, refused.stderr
        assert refused.stderr.startswith("assay: ")
    assert not (tmp_path / "runs").exists()


def test_bad_input_leaves_nothing_behind_so_that_the_corrected_command_runs(toy, table, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("x,z\n1,2\n")
    assert toy("toy", "fit", bad, "--out", tmp_path / "o").returncode == 2
    assert not (tmp_path / "o").exists()
    assert toy("toy", "fit", bad, cwd=tmp_path).returncode == 2
    assert not list((tmp_path / "runs").glob("*"))
    assert toy("toy", "fit", table, "--out", tmp_path / "o").returncode == 0
    # What a finished run left is not touched by a later mistake.
    assert toy("toy", "fit", bad, "--out", tmp_path / "o").returncode == 2
    assert (tmp_path / "o" / "result.json").exists()


def test_resume_needs_a_run_to_go_on_with(toy, table, tmp_path):
    refused = toy("toy", "fit", table, "--out", tmp_path / "o", "--resume")
    assert refused.returncode == 2
    assert "holds no run" in refused.stderr
    assert not (tmp_path / "o").exists()


def test_config_errors(toy, table, tmp_path):
    bad = tmp_path / "c.toml"
    for text, word in [
        ("command = 'toy fit'\n[arguments]\nstepz = 3\n", "stepz"),
        ("command = 'toy fit'\n[arguments]\nsteps = 'many'\n", "steps"),
        ("command = 'other fit'\n", "other fit"),
        ("= nonsense", "TOML"),
        ("", "empty"),
    ]:
        bad.write_text(text)
        refused = toy("toy", "fit", table, "--config", bad, "--out", tmp_path / "o")
        assert refused.returncode == 2
        assert word in refused.stderr
        assert refused.stderr.count("\n") == 1


def test_metric_of_a_repeated_step_replaces_the_first(tmp_path):
    with Run(tmp_path, verbose=False) as run:
        for step in (0, 1, 2, 1):
            run.metric(step, loss=float(step) + len(run._history))
        run.metric(0, other=1.0)
    entries = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [e["step"] for e in entries if "loss" in e] == [0, 1]
    assert entries[1]["loss"] == 1 + 3
    assert entries[2] == {"step": 0, "other": 1.0}


def test_a_folder_of_a_run_is_freed_when_opening_fails(tmp_path):
    (tmp_path / "x").write_text("")
    for _ in range(2):  # a lock that stayed would change the second message
        with pytest.raises(InputError, match="not empty"):
            Run(tmp_path).open()


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0123456, "0.0123"), (12345.678, "12,346"), (3.0, "3"), (float("nan"), "–"), (1e-9, "1.00e-09"), (True, "yes")]
    + [(1234567, "1,234,567"), (None, ""), ("a", "a"), (float("-inf"), "−∞")],
)
def test_cells_have_three_digits(value, text):
    assert cell(value) == text
