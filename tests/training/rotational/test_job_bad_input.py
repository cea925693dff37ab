"""Each thing that a user can do wrong gives one sentence that names it."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from assay import InputError
from assay.testing import FakeRun
from assay.training.rotational import _job


class _Custom:
    """A Python object that a safe loader must not build."""


@pytest.fixture
def files(tmp_path):
    generator = torch.Generator().manual_seed(0)
    paths = []
    for step in (0, 10, 20):
        path = tmp_path / f"c{step}.pt"
        torch.save({"w": torch.randn(4, 6, generator=generator)}, path)
        paths.append(path)
    return tmp_path, paths


def _refused(run_folder, paths, says, **options):
    options = {"every": 10, "lr": "1e-3", "weight_decay": 0.1, **options}
    with pytest.raises(InputError, match=says) as caught:
        _job.analyse(*paths, **options, run=FakeRun(run_folder / "out"))
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400


def _file(folder, name, content):
    path = folder / name
    path.write_bytes(content)
    return path


def test_files_that_cannot_be_read(files):
    folder, paths = files
    _refused(folder, [paths[0], folder / "gone.pt"], "gone.pt does not exist")
    _refused(folder, [paths[0], _file(folder, "x3.pt", b"")], "x3.pt is empty")
    whole = paths[1].read_bytes()
    _refused(folder, [paths[0], _file(folder, "x4.pt", whole[: len(whole) // 2])], "x4.pt")
    _refused(folder, [paths[0], _file(folder, "x5.pt", b"step,lr\n1,2\n")], "x5.pt")
    _refused(folder, [paths[0], _file(folder, "x6.safetensors", b"\x10\0\0\0\0\0\0\0{")], "x6.safetensors")
    (folder / "x7").mkdir()
    _refused(folder, [paths[0], folder / "x7"], "without .safetensors")


def test_python_objects_are_not_run(files):
    folder, paths = files
    torch.save({"w": torch.ones(2, 2), "config": _Custom()}, folder / "object.pt")
    _refused(folder, [paths[0], folder / "object.pt"], "never run here")
    _refused(folder, [paths[0], _file(folder, "plain.pkl", pickle.dumps(_Custom()))], "plain.pkl")


def test_files_without_weights(files):
    folder, paths = files
    torch.save({"step": 3, "loss": torch.ones(())}, folder / "noweights.pt")
    _refused(folder, [paths[0], folder / "noweights.pt"], "holds no state dict")
    torch.save([1, 2], folder / "list.pt")
    _refused(folder, [paths[0], folder / "list.pt"], "holds no state dict")


def test_series_that_make_no_sense(files):
    folder, paths = files
    _refused(folder, [], "at least two")
    _refused(folder, paths[:1], "at least two")
    _refused(folder, paths, "--every", every=0)
    torch.save({"w": torch.full((4, 6), torch.nan)}, folder / "c30.pt")
    _refused(folder, [*paths, folder / "c30.pt"], "c30.pt.*NaN")
    save_file({"other": torch.ones(3, 3)}, folder / "c40.safetensors")
    _refused(folder, [*paths, folder / "c40.safetensors"], "shares no weight names")
    _refused(folder, paths, "matching head", layers="head.*")


def test_options(files):
    folder, paths = files
    _refused(folder, paths, "--lr is missing", lr="")
    _refused(folder, paths, "--weight-decay is missing", weight_decay=None)
    _refused(folder, paths, "neither a number nor", lr="fast")
    _refused(folder, paths, "--lr must be", lr="-1")
    _refused(folder, paths, "--lr must be", lr="nan")
    _refused(folder, paths, "--betas", betas="0.9")
    _refused(folder, paths, "--betas", betas="a,b")
    _refused(folder, paths, r"betas\[1\]", betas="0.9,1.5")
    _refused(folder, paths, "momentum", optimizer="sgdm", momentum=2.0)
    _refused(folder, paths, "weight_decay", weight_decay=-0.1)
    _refused(folder, paths, "--first-step", first_step=-5)
    _refused(folder, paths, "makes a run of", every=10**9)
    _refused(folder, paths, "lr x weight decay is 2", lr="4", weight_decay=0.5)


def test_schedules(files, monkeypatch):
    folder, paths = files

    def schedule(name, frame, **options):
        frame.to_csv(folder / name, index=False, **options)
        return str(folder / name)

    good = pd.DataFrame({"step": np.arange(21), "lr": 1e-3})
    _refused(folder, paths, "lr", lr=schedule("a.csv", good.rename(columns={"lr": "rate"})))
    _refused(folder, paths, "covers steps", lr=schedule("b.csv", good.iloc[:10]))
    _refused(folder, paths, "covers steps", lr=schedule("c.csv", good), first_step=100)
    _refused(folder, paths, "row 5", lr=schedule("d.csv", good.assign(lr=np.where(good["step"] == 3, -1.0, 1e-3))))
    _refused(folder, paths, "row 5", lr=schedule("h.csv", good.assign(lr=np.where(good["step"] == 3, "fast", "0.1"))))
    _refused(folder, paths, "come after", lr=schedule("e.csv", good.assign(step=np.r_[0, 0, np.arange(2, 21)])))
    _refused(folder, paths, "empty", lr=str(_file(folder, "f.csv", b"")))
    # A byte order mark, Windows line ends and semicolons are no faults.
    (folder / "g.csv").write_text("\ufeff" + good.to_csv(index=False, sep=";").replace("\n", "\r\n"), encoding="utf-8")
    found = []
    monkeypatch.setattr(_job, "_present", lambda run, series, optimizer: found.append(series))
    _job.analyse(*paths, every=10, lr=str(folder / "g.csv"), weight_decay=0.1, run=FakeRun(folder / "ok"))
    assert found[0].series["lr"].to_numpy() == pytest.approx(1e-3)


def test_predict_options(tmp_path):
    for options, says in [
        ({"lr": -1.0}, "lr"),
        ({"lr": 1e30, "weight_decay": 1e30}, "lr x weight decay"),
        ({"weight_decay": float("inf")}, "weight_decay"),
        ({"betas": "0.9,1"}, "betas"),
        ({"steps": 0}, "--steps"),
        ({"dim": 0}, "dim"),
        ({"optimizer": "adam_l2"}, "--grad-rms"),
    ]:
        with pytest.raises(InputError, match=says):
            _job.predict(**{"lr": 1e-3, "weight_decay": 0.1, **options}, run=FakeRun(tmp_path / "out"))
