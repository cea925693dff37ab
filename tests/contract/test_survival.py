"""Every demo, killed where it stands, goes on with --resume to the numbers of a run that was left alone."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.slow  # each method's demo runs six times

# Numbers that a clock gives differ between any two runs.
CLOCK = re.compile(r"second|time|_ms|per_s|speed|cpu|wall|memory", re.IGNORECASE)
DEMO = [sys.executable, "-c", "import sys; from assay.cli import main; sys.exit(main())", "demo"]


def _start(slug, out, *options):
    env = {**os.environ, "ASSAY_SMOKE": "1", "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    return subprocess.Popen(
        [*DEMO, slug, "--out", str(out), *options],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # the kill reaches the workers of a job, too
        text=True,
    )


def _numbers(out):
    result = json.loads((out / "result.json").read_text(encoding="utf-8"))["result"]
    return {key: value for key, value in result.items() if not CLOCK.search(key)}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """``undisturbed(slug)``: numbers and wall seconds of the demo; run once per method."""
    done = {}

    def get(slug):
        if slug not in done:
            out = tmp_path_factory.mktemp(slug) / "whole"
            begin = time.monotonic()
            child = _start(slug, out)
            _, err = child.communicate()
            assert child.returncode == 0, err[-2000:]
            done[slug] = _numbers(out), time.monotonic() - begin
        return done[slug]

    return get


def test_the_same_seed_gives_the_same_numbers(card, undisturbed, tmp_path):
    child = _start(card.slug, tmp_path / "again")
    _, err = child.communicate()
    assert child.returncode == 0, err[-2000:]
    assert _numbers(tmp_path / "again") == undisturbed(card.slug)[0]


@pytest.mark.parametrize("share", [0.5, 0.75, 0.95])
def test_killed_demo_goes_on(card, undisturbed, tmp_path, share):
    numbers, seconds = undisturbed(card.slug)
    out = tmp_path / "killed"
    child = _start(card.slug, out)
    begin = time.monotonic()
    while not (out / "config.toml").exists() and child.poll() is None:
        time.sleep(0.01)
    time.sleep(max(0.0, share * seconds - (time.monotonic() - begin)))
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
    for path in out.rglob("[!.]*.json"):  # what stands is whole; a name that begins with a dot was being written
        json.loads(path.read_text(encoding="utf-8"))
    child = _start(card.slug, out, "--resume")
    _, err = child.communicate()
    assert child.returncode == 0, err[-2000:]
    assert _numbers(out) == numbers
    assert (out / "report.html").is_file()
    left = [p.name for p in out.rglob("*") if p.suffix in (".tmp", ".part")]
    assert not left, f"half-written files stay: {left}"
