"""Running cells: caching, interruption, the watchdog, faults, back-ends."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay._core.errors import AssayError, InputError
from assay.claims import _execute, load, load_run, prepare, run, run_and_write
from assay.claims._plan import plan


def statuses(done):
    return {(r["arm"], r["seed"]): r["status"] for r in done.records.values()}


def files(folder):
    return {p.name: p.stat().st_mtime_ns for p in (folder / "cells").iterdir()}


def test_end_to_end_with_a_known_effect(gauss, tmp_path):
    done = run("toy-gauss/*", tier="standard", jobs=1, out=tmp_path / "run")
    verdict = done.verdict("toy-gauss/better")
    assert verdict.verdict == "supported"
    found = verdict.comparisons[0]
    assert found.low < 2.0 < found.high  # the truth of the experiment
    assert [p.unit for p in found.pairs] == ["1000", "1001", "1002", "1003", "1004"]
    frame = done.to_frame()
    assert list(frame["verdict"]) == ["supported"]
    assert set(os.listdir(tmp_path / "run")) >= {"plan.json", "env.json", "cells", "verdicts.json", "verdicts.csv"}
    record = json.loads(next((tmp_path / "run" / "cells").iterdir()).read_text())
    assert record["status"] == "ok"
    assert record["seconds"] >= 0
    assert record["cpu_seconds"] > 0
    assert record["peak_mb"] > 5  # a Python process with numpy
    assert load_run(tmp_path / "run").to_frame().equals(frame)


def test_order_is_seed_major_and_exclusive_cells_come_last(toy_method):
    toy_method(
        "toy_order",
        """
        CLAIMS = [
            claim("timed", experiment="timed", exclusive=True, test=Superior()),
            claim("plain", against=["b", "c"], test=Superior()),
        ]

        def experiment(arm, seed, data, size, device):
            return {"score": 1.0}

        timed = experiment
        """,
    )
    work = plan(load("toy-order"), tier="quick")
    order = [(c.experiment, c.seed, c.arm) for c in work.cells]
    plain = [("experiment", 1000 + s, arm) for s in range(3) for arm in ("ours", "b", "c")]
    timed = [("timed", 1000 + s, arm) for s in range(3) for arm in ("ours", "theirs")]
    assert order == plain + timed


def test_a_claim_may_be_judged_on_later_seeds(toy_method):
    toy_method(
        "toy_fresh",
        """
        CLAIMS = [claim("old", test=Superior()), claim("fresh", first_seed=2000, test=Superior())]

        def experiment(arm, seed, data, size, device):
            return {"score": 1.0}
        """,
    )
    work = plan(load("toy-fresh"), tier="quick")
    seeds = {name: sorted({c.seed for c in work.cells if c.key in keys}) for name, keys in _keys_of(work).items()}
    assert seeds == {"toy-fresh/old": [1000, 1001, 1002], "toy-fresh/fresh": [2000, 2001, 2002]}


def _keys_of(work):
    return {item.claim.id: set(item.keys) for item in work.claims}


def test_claims_share_cells_of_the_same_experiment_and_size(toy_method):
    toy_method(
        "toy_share",
        """
        CLAIMS = [claim("one", test=Superior()), claim("two", metric="other", test=Superior())]

        def experiment(arm, seed, data, size, device):
            return {"score": 1.0, "other": 2.0}
        """,
    )
    assert len(plan(load("toy-share"), tier="quick").cells) == 6


def test_the_key_changes_with_what_determines_the_result_and_with_nothing_else(gauss):
    from assay.claims import _plan

    def keys(**options):
        _plan._source_state.cache_clear()
        return [c.key for c in plan(load("toy-gauss"), **options).cells]

    base = keys(tier="quick")
    assert keys(tier="quick", limit_s=5.0) == base
    assert set(keys(tier="standard")) > set(base)  # same sizes: the standard tier reuses the quick one's cells
    assert not set(keys(tier="quick", device="cuda")) & set(base)
    (gauss / "_helper.py").write_text("x = 1  # a comment is a change: simple and safe\n")
    assert not set(keys(tier="quick")) & set(base)


def test_a_second_run_runs_nothing_and_fresh_runs_everything(gauss, tmp_path):
    out = tmp_path / "run"
    run("toy-gauss", tier="quick", jobs=1, out=out)
    before, verdicts = files(out), (out / "verdicts.json").read_bytes()
    run("toy-gauss", tier="quick", jobs=1, out=out)
    assert files(out) == before
    run("toy-gauss", tier="quick", jobs=1, out=out, fresh=True)
    after = files(out)
    assert after.keys() == before.keys()
    assert all(after[name] > before[name] for name in before)
    assert (out / "verdicts.json").read_bytes() == verdicts


SLOW = """
    CLAIMS = [claim("slow", test=Superior())]

    def experiment(arm, seed, data, size, device):
        import time

        time.sleep(0.4)
        return {"score": float(seed) + (1.0 if arm == "ours" else 0.0) + 0.1 * (seed % 3)}
"""


def cell_processes(folder):
    """Processes of cells whose environment names the folder (Linux)."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command, environment = (path / "cmdline").read_bytes(), (path / "environ").read_bytes()
        except OSError:
            continue  # it ended, or belongs to somebody else
        if b"assay.claims._cell" in command and str(folder).encode() in environment:
            found.append(path.name)
    return found


def none_is_left(folder, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not cell_processes(folder):
            return True
        time.sleep(0.05)
    return False


# A background job of a shell ignores SIGINT and hands that on to its children: a test of Ctrl-C must undo it.
LISTENING = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from assay.cli import main; sys.exit(main())"
)


def start(out, *more):
    command = [sys.executable, "-c", LISTENING]
    words = ["claims", "run", "toy-slow/*", "--out", str(out), "--jobs", "2", "--no-report", *more]
    return subprocess.Popen([*command, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_cells(out, n, process, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        # a name that begins with a dot is a file still being written
        if (out / "cells").is_dir() and len(list((out / "cells").glob("[!.]*.json"))) >= n:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    raise AssertionError("the run made no progress")


def test_kill_9_loses_nothing_and_the_rerun_runs_only_what_is_missing(toy_method, tmp_path):
    toy_method("toy_slow", SLOW)
    out = tmp_path / "run"
    process = start(out)
    wait_for_cells(out, 3, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    process.stderr.close()
    assert none_is_left(tmp_path)
    # The kill may fall into a write: what is under a cell's name is whole, and the rest is swept up by the rerun.
    before = {name: at for name, at in files(out).items() if not name.startswith(".partial")}
    assert 3 <= len(before) < 10
    for name in before:
        assert json.loads((out / "cells" / name).read_text())["status"] == "ok"
    (out / "cells" / ".partial-of-a-killed-write.json").write_text('{"half')
    done = run("toy-slow/*", out=out, jobs=2)
    after = files(out)
    assert len(after) == 10
    assert not list(out.rglob(".partial*"))
    assert {name: after[name] for name in before} == before
    assert done.verdict("toy-slow/slow").verdict == "supported"


def test_ctrl_c_leaves_verdicts_that_say_what_is_missing(toy_method, tmp_path):
    toy_method("toy_slow", SLOW)
    out = tmp_path / "run"
    process = start(out)
    wait_for_cells(out, 2, process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "goes on" in errors
    assert none_is_left(tmp_path)
    verdict = load_run(out).verdict("toy-slow/slow")
    assert verdict.verdict == "inconclusive (incomplete)"
    assert json.loads((out / "verdicts.json").read_text())["verdicts"][0]["verdict"] == verdict.verdict
    assert run("toy-slow/*", out=out, jobs=2).verdict("toy-slow/slow").verdict == "supported"


def test_two_runs_into_one_folder_are_refused(toy_method, tmp_path):
    toy_method("toy_slow", SLOW)
    out = tmp_path / "run"
    process = start(out)
    wait_for_cells(out, 1, process)
    with pytest.raises(InputError, match="Another run"):
        run("toy-slow/*", out=out, jobs=1)
    process.communicate(timeout=60)
    assert process.returncode == 0


FAULTS = """
    import os

    CLAIMS = [
        claim("stuck", experiment="stuck", test=Superior()),
        claim("dies", experiment="dies", test=Superior()),
        claim("raises", experiment="raises", test=Superior()),
        claim("missing-peer", experiment="missing_peer", test=Superior()),
        claim("fine", experiment="fine", test=Superior()),
        claim("wrong", experiment="wrong", test=Superior()),
    ]

    def fine(arm, seed, data, size, device):
        return {"score": seed % 3 + (1.0 if arm == "ours" else 0.0)}

    def stuck(arm, seed, data, size, device):
        if arm == "theirs" and seed == 1001:
            while True:
                pass
        return fine(arm, seed, data, size, device)

    def dies(arm, seed, data, size, device):
        if arm == "theirs" and seed == 1000:
            os._exit(3)
        if arm == "theirs" and seed == 1001:
            os.kill(os.getpid(), 9)
        return fine(arm, seed, data, size, device)

    def raises(arm, seed, data, size, device):
        if arm == "ours" and seed == 1002:
            print("about to fail")
            raise ValueError("the toy broke")
        return fine(arm, seed, data, size, device)

    def missing_peer(arm, seed, data, size, device):
        if arm == "theirs":
            import a_package_that_nobody_has
        return fine(arm, seed, data, size, device)

    def wrong(arm, seed, data, size, device):
        return 1.0
"""


def test_faults_stay_in_their_cells(toy_method, tmp_path):
    toy_method("toy_faults", FAULTS)
    began = time.monotonic()
    done = run("toy-faults/*", tier="quick", jobs=2, out=tmp_path / "run", limit_s=2.0)
    assert time.monotonic() - began < 120
    found = {c.experiment: done.cells_of(c.id) for c in done.claims}

    def of(experiment, arm, seed):
        return next(r for r in found[experiment] if (r["arm"], r["seed"]) == (arm, seed))

    assert of("stuck", "theirs", 1001)["status"] == "timeout"
    assert "2 s" in of("stuck", "theirs", 1001)["reason"]
    assert "exit code 3" in of("dies", "theirs", 1000)["reason"]
    assert "SIGKILL" in of("dies", "theirs", 1001)["reason"]
    failed = of("raises", "ours", 1002)
    assert failed["status"] == "error"
    assert "the toy broke" in failed["traceback"]
    assert "about to fail" in failed["output"]
    assert of("missing_peer", "theirs", 1000)["status"] == "skipped"
    assert "must return a dict" in of("wrong", "ours", 1000)["reason"]
    verdicts = {v.claim.partition("/")[2]: v.verdict for v in done.verdicts}
    assert verdicts == {
        "stuck": "error",
        "dies": "error",
        "raises": "error",
        "missing-peer": "inconclusive (missing comparator)",
        "fine": "direction holds",
        "wrong": "error",
    }
    done.report()


def test_failed_cells_are_tried_again_and_good_ones_are_not(toy_method, tmp_path):
    marker = tmp_path / "fixed"
    toy_method(
        "toy_retry",
        f"""
        CLAIMS = [claim("x", test=Superior())]

        def experiment(arm, seed, data, size, device):
            import os

            if arm == "theirs" and not os.path.exists({str(marker)!r}):
                raise RuntimeError("not yet")
            return {{"score": seed % 3 + (1.0 if arm == "ours" else 0.0)}}
        """,
    )
    out = tmp_path / "run"
    assert run("toy-retry", tier="quick", jobs=1, out=out).verdicts[0].verdict == "error"
    before = files(out)
    marker.touch()
    assert run("toy-retry", tier="quick", jobs=1, out=out).verdicts[0].verdict == "direction holds"
    assert sum(files(out)[name] == before[name] for name in before) == 3


def test_a_dead_pool_worker_is_replaced(gauss, tmp_path, monkeypatch):
    # The worker around the cell is killed (not the cell): the pool breaks, and the rest runs in a new one.
    original, calls = _execute._parallel, []

    def breaking(jobs, n_jobs, backend, folder):
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        calls.append(len(jobs))
        for i, record in enumerate(original(jobs, n_jobs, backend, folder)):
            if len(calls) == 1 and i == 2:
                raise TerminatedWorkerError("a worker was killed")
            yield record

    monkeypatch.setattr(_execute, "_parallel", breaking)
    done = run("toy-gauss", tier="quick", jobs=1, out=tmp_path / "run")
    assert calls == [6, 4]
    assert done.verdicts[0].verdict == "direction holds"


def test_ambient_seeds_make_cells_independent_of_their_order(toy_method, tmp_path):
    toy_method(
        "toy_ambient",
        """
        CLAIMS = [claim("x", test=Superior())]

        def experiment(arm, seed, data, size, device):
            import random

            import numpy as np

            return {"score": np.random.rand() + random.random(), "same_draw": repr(np.random.rand())}
        """,
    )
    one = run("toy-ambient", tier="quick", jobs=1, out=tmp_path / "one")
    two = run("toy-ambient", tier="quick", jobs=2, out=tmp_path / "two")
    assert one.verdicts[0].comparisons[0].n_failed == 0  # arms of a pair draw the same
    by_key = {k: r["metrics"] for k, r in one.records.items()}
    assert by_key == {k: r["metrics"] for k, r in two.records.items()}
    assert len({r["metrics"]["score"] for r in one.records.values()}) == 3  # and seeds differ


def test_threads_are_limited_inside_a_cell(toy_method, tmp_path):
    toy_method(
        "toy_threads",
        """
        CLAIMS = [claim("x", against=[], test=Bound(le=1))]

        def experiment(arm, seed, data, size, device):
            import torch

            return {"score": torch.get_num_threads()}
        """,
    )
    assert run("toy-threads", tier="quick", seeds=1, out=tmp_path / "run").verdicts[0].verdict == "direction holds"


def test_smoke_mode_runs_one_seed_and_gives_no_verdict(gauss, tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_SMOKE", "1")
    done = run("toy-gauss", jobs=1, out=tmp_path / "run")
    assert done.verdicts[0].verdict == "ran (smoke)"
    assert len(done.records) == 2


def test_sources_that_are_missing_skip_the_claim_with_the_reason(toy_method, tmp_path):
    toy_method(
        "toy_sources",
        """
        from assay.claims import Source
        from assay._core.errors import MissingData

        def absent():
            raise MissingData("Fetch big.csv from example.org into the cache.")

        SOURCES = {"absent": absent, "there": lambda: Source("there", [3.0], "numbers")}
        CLAIMS = [claim("no", data=["absent"], test=Superior()), claim("yes", data=["there", "absent"], test=Superior())]

        def experiment(arm, seed, data, size, device):
            return {"score": data.data[0] + seed % 3 + (1.0 if arm == "ours" else 0.0)}
        """,
    )
    done = run("toy-sources", tier="quick", jobs=1, out=tmp_path / "run")
    assert [(v.verdict, v.data) for v in done.verdicts] == [("skipped", ["absent"]), ("direction holds", ["there"])]
    assert done.verdicts[0].reason == "Fetch big.csv from example.org into the cache."


def test_needs_that_are_not_met_skip_the_claim(toy_method, tmp_path):
    toy_method(
        "toy_needs",
        """
        CLAIMS = [claim("big", needs=["memory:1000000"], test=Superior())]

        def experiment(arm, seed, data, size, device):
            return {"score": 1.0}
        """,
    )
    done = run("toy-needs", tier="quick", jobs=1, out=tmp_path / "run")
    assert done.verdicts[0].verdict == "skipped"
    assert "1e+06 GiB" in done.verdicts[0].reason


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: run("toy-gaus"), "toy-gauss"),
        (lambda: run("toy-gauss/beter"), "toy-gauss/better"),
        (lambda: run("toy-gauss", tier="huge"), "quick, standard, full"),
        (lambda: run("toy-gauss", backend="spark"), "loky, ray or dask"),
        (lambda: run("toy-gauss", seeds=0), "seeds"),
        (lambda: run("toy-gauss", data="nowhere.csv"), "no such file"),
        (lambda: run("toy-gauss", data="none", target="y"), "--target"),
        (lambda: run("toy-gauss", resume=True), "no earlier run"),
    ],
)
def test_bad_requests_are_one_sentence(gauss, call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_a_folder_with_other_content_is_refused(gauss, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(InputError, match="something other"):
        run("toy-gauss", tier="quick", out=tmp_path / "mine")
    assert os.listdir(tmp_path / "mine") == ["thesis.txt"]


def test_resume_without_a_folder_continues_the_newest_run_of_the_request(gauss, tmp_path):
    first = run("toy-gauss", tier="quick", jobs=1)
    again = run("toy-gauss", tier="quick", jobs=1, resume=True)
    assert again.folder == first.folder
    assert first.folder.parent.name == "runs"


def test_a_claims_file_that_is_wrong_is_named(toy_method):
    toy_method("toy_wrong", 'CLAIMS = [claim("x", experiment="nowhere", test=Superior())]')
    with pytest.raises(AssayError, match=r"claims\.py.*nowhere"):
        load("toy-wrong")


def test_another_scheduler_can_run_the_same_cells(gauss, tmp_path):
    out = tmp_path / "run"
    jobs = prepare("toy-gauss/*", tier="quick", out=out)
    assert len(jobs) == 6
    for job in pickle.loads(pickle.dumps(jobs))[:4]:  # as a scheduler would carry them
        run_and_write(job, str(out))
    _execute._stop_child()
    assert len(prepare("toy-gauss/*", tier="quick", out=out)) == 2
    before = files(out)
    assert run("toy-gauss/*", tier="quick", jobs=1, out=out).verdicts[0].verdict == "direction holds"
    assert {name: files(out)[name] for name in before} == before


def test_a_read_only_or_full_disk_is_one_sentence_and_loses_nothing(gauss, tmp_path, monkeypatch):
    out, original, written = tmp_path / "run", _execute.write_cell, []

    def full(folder, record):
        if len(written) == 2:
            raise AssayError(f"Cannot write {folder}: no space left on device.")
        written.append(record["key"])
        return original(folder, record)

    monkeypatch.setattr(_execute, "write_cell", full)
    with pytest.raises(AssayError, match="no space left"):
        run("toy-gauss", tier="quick", jobs=1, out=out)
    monkeypatch.setattr(_execute, "write_cell", original)
    assert sorted(files(out)) == sorted(f"{key}.json" for key in written)
    assert run("toy-gauss", tier="quick", jobs=1, out=out).verdicts[0].verdict == "direction holds"


@pytest.mark.slow
@pytest.mark.parametrize("other", ["ray", "dask"])
def test_a_cluster_gives_the_same_verdicts_bit_for_bit(gauss, tmp_path, other):
    module = {"ray": "ray", "dask": "distributed"}[other]
    version = pytest.importorskip(module, reason=f"{module} is in the extra `cluster`").__version__
    out = {}
    for backend in ("loky", other):
        # Its own process: a cluster leaves threads, sockets and a patched joblib behind.
        code = LISTENING
        words = ["claims", "run", "toy-gauss/*", "--backend", backend, "--jobs", "2", "--no-report"]
        folder = tmp_path / backend
        done = subprocess.run(
            [sys.executable, "-c", code, *words, "--out", str(folder)], capture_output=True, text=True, timeout=280
        )
        assert done.returncode == 0, (version, done.stdout, done.stderr)
        out[backend] = (folder / "verdicts.json").read_bytes()
        assert json.loads((folder / "env.json").read_text())["backend"] == backend
    assert out[other] == out["loky"]
