"""The command line on checkpoints of a run that the code has never seen, and on settings alone."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from assay.testing import FakeRun
from assay.training.rotational import _job, equilibrium
from assay.training.rotational._nets import layer_norm_mlp


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A layer-norm MLP on noisy labels, trained by AdamW under a cosine schedule, saved the way scripts save."""
    folder = tmp_path_factory.mktemp("unseen")
    torch.manual_seed(11)
    net = layer_norm_mlp(24, 32, 2, 5)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.3)
    every, count = 25, 6
    total = every * (count - 1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda t: 0.5 * (1 + math.cos(math.pi * t / (1.1 * total)))
    )
    rates = []

    def save(step):
        nested = {"epoch": step, "model": {f"module.{k}": v for k, v in net.state_dict().items()}}
        torch.save({**nested, "optimizer": optimizer.state_dict()}, folder / f"ckpt_{step}.pt")
        save_file({k: v.contiguous() for k, v in net.state_dict().items()}, folder / f"ckpt_{step}.safetensors")

    save(0)
    for step in range(1, total + 1):
        x = torch.randn(16, 24)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), torch.randint(0, 5, (16,))).backward()
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
        if step % every == 0:
            save(step)
    pd.DataFrame({"step": range(total), "lr": rates}).to_csv(folder / "lr.csv", index=False)
    return folder, [f"ckpt_{every * i}" for i in range(count)], every


def test_unseen_run_gives_table_figures_and_advice(trained, tmp_path):
    folder, _, every = trained
    with FakeRun(tmp_path / "out") as run:
        # As a shell would list them: ckpt_100 before ckpt_25.
        paths = sorted(folder.glob("*.pt"))
        _job.analyse(*paths, every=every, optimizer="adamw", lr=str(folder / "lr.csv"), weight_decay=0.3, run=run)
    out = tmp_path / "out"
    table = pd.read_csv(out / "artefacts" / "rotation.csv")
    assert table["share_before_equilibrium"].between(0, 1).all()
    assert table["layer"].tolist() == ["0.weight", "3.weight", "6.weight"]
    assert table["dim"].tolist() == [24, 32, 32]
    assert np.isfinite(table[["angle", "angle_predicted", "ratio", "norm", "norm_predicted"]]).all(axis=None)
    # Random labels are close to a random walk, but the norm cannot follow the falling rate.
    assert 0.3 < table["ratio"][1] < 1.3
    advice = (out / "artefacts" / "advice.txt").read_text()
    assert "layers rotate within" in advice
    for name in ("layers", "rotation", "neurons", "norms"):
        assert (out / "figures" / f"{name}.svg").read_text().rstrip().endswith("</svg>")
    what_if = pd.read_csv(out / "artefacts" / "what_if.csv")
    assert what_if["setting"].tolist()[:4] == ["now", "lr x2", "weight decay x2", "both x2"]
    assert any("order of the numbers" in w for w in run.warnings)
    assert run.results["layers"] == 3
    page = (out / "report.html").read_text()
    assert "3.weight" in page
    assert "What if?" in page


def test_safetensors_and_torch_files_agree(trained):
    folder, names, _ = trained
    for name in names:
        one, two = (_job.read_checkpoint(folder / f"{name}.{kind}")[0] for kind in ("pt", "safetensors"))
        assert {k.removeprefix("module.") for k in one} == set(two)
        assert all(torch.equal(one[f"module.{k}"], v) for k, v in two.items())


@pytest.fixture
def found(monkeypatch):
    """What an analysis found, without the seconds that its pictures take."""
    caught = []
    monkeypatch.setattr(_job, "_present", lambda run, found, optimizer: caught.append(found))
    return caught


def test_settings_are_read_from_optimizer_states(trained, tmp_path, found):
    folder, names, every = trained
    _job.analyse(*[folder / f"{n}.pt" for n in names], every=every, run=FakeRun(tmp_path / "out"))
    series = found[0].series
    lr = pd.read_csv(folder / "lr.csv")["lr"].to_numpy().reshape(-1, every).mean(axis=1)
    # Straight lines between the checkpoints' rates against the true cosine.
    np.testing.assert_allclose(series.loc[series["layer"] == "0.weight", "lr"], lr, atol=5e-4)


def test_memory_is_read_from_the_state_and_another_rule_is_warned_of(tmp_path, found):
    generator = torch.Generator().manual_seed(0)
    cases = [
        ("adamw", lambda p: torch.optim.AdamW(p, betas=(0.5, 0.9)), False),
        ("sgdm", lambda p: torch.optim.SGD(p, momentum=0.3, nesterov=True), False),
        ("sgdm", lambda p: torch.optim.AdamW(p), True),
        ("adamw", lambda p: torch.optim.Adam(p), True),
        ("lion", lambda p: torch.optim.SGD(p, momentum=0.3), True),
    ]
    for name, make, warned in cases:
        paths = []
        for step in (10, 20, 30):
            weight = torch.randn(4, 8, generator=generator)
            paths.append(tmp_path / f"c{step}.pt")
            torch.save({"model": {"w": weight}, "optimizer": make([nn.Parameter(weight)]).state_dict()}, paths[-1])
        run = FakeRun(tmp_path / "out")
        _job.analyse(*paths, every=10, optimizer=name, lr="1e-2", weight_decay=0.1, run=run)
        assert any("checkpoints" in w for w in run.warnings) == warned
    rates = [f.layers["rotation_predicted"][0] for f in found[:2]]
    expected = [
        equilibrium("adamw", lr=1e-2, weight_decay=0.1, betas=(0.5, 0.9)).rotation,
        equilibrium("sgdm", lr=1e-2, weight_decay=0.1, momentum=0.3, nesterov=True).rotation,
    ]
    assert rates == pytest.approx(expected, rel=1e-9)


def test_hugging_face_folders(tmp_path, found):
    for step in (10, 20, 30):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        generator = torch.Generator().manual_seed(step)
        for part in (1, 2):
            tensors = {f"layer{part}.weight": torch.randn(4, 8, generator=generator)}
            save_file(tensors, folder / f"model-0000{part}-of-00002.safetensors")
    folders = sorted(tmp_path.glob("checkpoint-*"))
    _job.analyse(*folders, every=10, lr="1e-3", weight_decay=0.1, run=FakeRun(tmp_path / "out"))
    assert found[0].layers["layer"].tolist() == ["layer1.weight", "layer2.weight"]


def test_predict(tmp_path):
    with FakeRun(tmp_path / "out") as run:
        _job.predict(optimizer="sgdm", lr=0.1, momentum=0.9, weight_decay=5e-4, dim=1152, run=run)
    assert run.results["rotation_rad"] == pytest.approx(math.sqrt(2 * 0.1 * 5e-4 / 1.9), rel=1e-12)
    assert run.results["half_life_steps"] == pytest.approx(math.log(2) * 0.1 / (4 * 5e-5), rel=1e-12)
    assert "half-lives" in (tmp_path / "out" / "report.html").read_text()
    table = pd.read_csv(tmp_path / "out" / "artefacts" / "rotation.csv")
    assert table["steps_apart"].iloc[0] == 1
    assert table["angle_deg"].is_monotonic_increasing


def test_predict_without_decay_says_so(tmp_path):
    with FakeRun(tmp_path / "out") as run:
        _job.predict(optimizer="adamw", lr=1e-3, weight_decay=0.0, dim=64, run=run)
    assert "half_life_steps" not in run.results
    assert "no equilibrium" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.slow  # nine seconds; the contract suite runs the same demo by default
def test_demo_analyses_its_own_checkpoints(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_SMOKE", "1")
    with FakeRun(tmp_path / "out", seed=1) as run:
        _job.demo(run=run)
    for kind in ("adamw", "sgdm", "rvadamw"):
        assert len(list((tmp_path / "out" / "artefacts" / "checkpoints" / kind).glob("step_*.pt"))) == 6
        table = pd.read_csv(tmp_path / "out" / "artefacts" / f"{kind}_rotation.csv")
        assert table["layer"].tolist() == ["conv1.weight", "conv2.weight", "conv3.weight", "head.weight"]
        assert run.results[f"{kind}_test_accuracy"] > 8  # chance is 10: 75 steps on noisy images must run, not learn
    norms = pd.read_csv(tmp_path / "out" / "artefacts" / "rvadamw_norms.csv")
    # Fixed norms to float32 rounding over the run.
    np.testing.assert_allclose(norms["norm"], norms["norm_predicted"], rtol=1e-4)
