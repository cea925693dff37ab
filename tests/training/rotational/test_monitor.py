"""The live monitor against a float64 recomputation, and what it says about a training network."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from assay import InputError
from assay.training.rotational import RVAdamW, advise
from assay.training.rotational._equilibrium import equilibrium
from assay.training.rotational._monitor import RotationMonitor, describe_group
from assay.training.rotational._nets import CharGPT, DigitNet, layer_norm_mlp


def _angles64(old, new):
    """Angle per row in float64 from the orthogonal part, an independent route to the monitor's arctangent."""
    old, new = old.double().flatten(1), new.double().flatten(1)
    u, v = old / old.norm(dim=1, keepdim=True), new / new.norm(dim=1, keepdim=True)
    return 2 * torch.asin((u - v).norm(dim=1) / 2)


def _turned(old, angle, radial, generator):
    """A float32 weight turned by about `angle` per row and stretched by `radial`."""
    d = torch.randn(old.shape, generator=generator)
    rows, dr = old.flatten(1), d.flatten(1)
    dr = dr - (dr * rows).sum(1, keepdim=True) / (rows * rows).sum(1, keepdim=True) * rows
    dr = dr / dr.norm(dim=1, keepdim=True) * rows.norm(dim=1, keepdim=True) * angle
    return ((rows + dr) * (1 + radial)).reshape(old.shape)


class _Move(torch.optim.Optimizer):
    """Puts prepared weights in place: lets a test choose the step exactly."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr, "weight_decay": 0.1})
        self.target = {}

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p in self.target:
                    with torch.no_grad():
                        p.copy_(self.target[p])


@pytest.mark.parametrize(("angle", "tolerance"), [(1e-2, 1e-6), (1e-4, 1e-6), (1e-5, 1e-3)])
@pytest.mark.parametrize("radial", [0.0, 1e-4])
def test_angles_match_float64(angle, tolerance, radial):
    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(nn.Conv2d(8, 16, 3, bias=False), nn.Linear(1152, 16, bias=False))
    optimizer = _Move(net.parameters())
    old = [p.detach().clone() for p in net.parameters()]
    optimizer.target = {p: _turned(p.detach(), angle, radial, generator) for p in net.parameters()}
    with RotationMonitor(net, optimizer) as monitor:
        optimizer.step()
    for name, before, p in zip(monitor.layers_, old, net.parameters()):
        truth = _angles64(before, p.detach()).numpy()
        assert truth.mean() == pytest.approx(angle, rel=0.01)
        np.testing.assert_allclose(monitor.neurons(name)["angle"], truth, rtol=tolerance)


def test_norms_radial_share_and_gradient_match_float64():
    torch.manual_seed(0)
    net = nn.Linear(40, 6, bias=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    with RotationMonitor(net, optimizer) as monitor:
        net(torch.randn(7, 40)).square().sum().backward()
        w, g = net.weight.detach().double().clone(), net.weight.grad.double().clone()
        optimizer.step()
    found = monitor.neurons("weight")
    share = (w * g).sum(1) / (w.norm(dim=1) * g.norm(dim=1))
    # Reductions in float32.
    np.testing.assert_allclose(found["radial"], share.numpy(), rtol=1e-5)
    np.testing.assert_allclose(found["grad_rms"], (w.norm(dim=1) * g.norm(dim=1)).numpy(), rtol=1e-5)
    np.testing.assert_allclose(found["norm"], net.weight.detach().norm(dim=1).numpy(), rtol=1e-6)


def _step(net, optimizer, x):
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()


def test_interval_window_and_plain_mean():
    torch.manual_seed(0)
    net = nn.Linear(20, 3, bias=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    everything = RotationMonitor(net, optimizer, window=None)
    every_third = RotationMonitor(net, optimizer, interval=3, window=2)
    truth = []
    with everything, every_third:
        for _ in range(7):
            old = net.weight.detach().clone()
            _step(net, optimizer, torch.randn(5, 20))
            truth.append(_angles64(old, net.weight.detach()).square())
    np.testing.assert_allclose(everything.neurons("weight")["angle"] ** 2, torch.stack(truth).mean(0), rtol=1e-5)
    # Steps 0, 3 and 6; the last two share what the first leaves: ((a+b)/2 + c)/2.
    expected = ((truth[0] + truth[3]) / 2 + truth[6]) / 2
    np.testing.assert_allclose(every_third.neurons("weight")["angle"] ** 2, expected, rtol=1e-5)
    assert every_third.steps_ == 7
    assert every_third.series()["step"].tolist() == [1, 4, 7]


def test_monitoring_changes_nothing_and_detaches():
    torch.manual_seed(0)
    net = layer_norm_mlp(8, 16, 2, 3)
    twin = copy.deepcopy(net)
    x = torch.randn(10, 8)
    a, b = (torch.optim.AdamW(n.parameters(), lr=1e-2, weight_decay=0.1) for n in (net, twin))
    with RotationMonitor(net, a) as monitor:
        for _ in range(3):
            _step(net, a, x)
    for _ in range(3):
        _step(twin, b, x)
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), twin.parameters()))
    _step(net, a, x)
    assert monitor.steps_ == 3


def test_scale_invariance_is_seen():
    torch.manual_seed(0)
    net = DigitNet(8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    with RotationMonitor(net, optimizer) as monitor:
        for _ in range(4):
            optimizer.zero_grad()
            x = torch.randn(32, 1, 8, 8)
            nn.functional.cross_entropy(net(x), torch.randint(0, 10, (32,))).backward()
            optimizer.step()
    report = monitor.report().set_index("layer")
    convs = report.loc[["conv1.weight", "conv2.weight", "conv3.weight"]]
    assert convs["scale_invariant"].all()
    assert (convs["invariance"] == "neuron").all()
    # eps of batch norm leaves a trace of the scale in the first layers.
    assert convs["radial"].abs().max() < 1e-2
    assert report.loc["conv2.weight", "dim"] == 72
    assert np.isfinite(report["norm_predicted"]).all()


def test_a_mean_share_that_cancels_does_not_hide_a_layer():
    # At equilibrium the mean of <g, w> of a layer that is not scale-invariant is small; its single gradients are not.
    torch.manual_seed(0)
    net = nn.Linear(30, 4, bias=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    with RotationMonitor(net, optimizer, window=None) as monitor:
        for step in range(40):
            unit = nn.functional.normalize(net.weight.detach(), dim=1)
            across = torch.randn_like(unit)
            across = nn.functional.normalize(across - (across * unit).sum(1, keepdim=True) * unit, dim=1)
            net.weight.grad = 0.96**0.5 * across + (-1) ** step * 0.2 * unit
            optimizer.step()
    row = monitor.report().iloc[0]
    assert abs(row["radial"]) < 1e-5
    assert row["radial_rms"] == pytest.approx(0.2, rel=1e-4)
    assert row["invariance"] == "none"
    assert not row["scale_invariant"]
    np.testing.assert_allclose(monitor.neurons("weight")["radial_rms"], 0.2, rtol=1e-4)


@pytest.mark.parametrize("layer_only", [False, True])
def test_wide_layers_with_random_gradients_are_not_scale_invariant(layer_only):
    # 1/sqrt(2000) = .022 is below the threshold of narrow layers; summed over all weights even .01 hides it.
    torch.manual_seed(0)
    net = nn.Linear(2000, 12, bias=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    with RotationMonitor(net, optimizer) as monitor:
        for _ in range(10):
            gradient, w = torch.randn_like(net.weight), net.weight.detach()
            if layer_only:
                gradient -= (gradient * w).sum() / (w * w).sum() * w
            net.weight.grad = gradient
            optimizer.step()
    row = monitor.report().iloc[0]
    assert row["radial_rms"] == pytest.approx(2000**-0.5, rel=0.2)
    assert row["invariance"] == ("layer" if layer_only else "none")


def test_steps_without_a_gradient_do_not_make_a_layer_invariant():
    torch.manual_seed(0)
    net = nn.ModuleList([nn.Linear(30, 4, bias=False), nn.Linear(5, 2, bias=False)])
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    with RotationMonitor(net, optimizer) as monitor:
        for step in range(40):
            # the first layer is trained in the first ten steps only
            net[0].weight.grad = torch.randn_like(net[0].weight) if step < 10 else None
            net[1].weight.grad = torch.randn_like(net[1].weight)
            optimizer.step()
    first = monitor.neurons("0.weight")
    assert (first["radial_rms"] > 0.05).all()
    assert monitor.report().set_index("layer")["invariance"].tolist() == ["none", "none"]
    series = torch.stack(monitor._series)[:, 0, 6]
    assert torch.isfinite(series[:10]).all()
    assert series[10:].isnan().all()


def test_prediction_follows_the_schedule():
    net = nn.Linear(30, 4, bias=False)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.1, betas=(0.8, 0.99))
    with RotationMonitor(net, optimizer, window=None) as monitor:
        for lr in (1e-3, 3e-3):
            optimizer.param_groups[0]["lr"] = lr
            _step(net, optimizer, torch.randn(5, 30))
    squares = [equilibrium("adamw", lr=lr, weight_decay=0.1, betas=(0.8, 0.99)).rotation ** 2 for lr in (1e-3, 3e-3)]
    assert monitor.report()["angle_predicted"][0] == pytest.approx(math.sqrt(np.mean(squares)), rel=1e-9)
    assert monitor.series()["lr"].tolist() == [1e-3, 3e-3]


def test_random_gradients_rotate_as_predicted():
    torch.manual_seed(0)
    net = nn.Linear(200, 8, bias=False)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.2)
    goal = equilibrium("adamw", lr=1e-2, weight_decay=0.2, dim=200)
    with torch.no_grad():
        net.weight.mul_(goal.norm / net.weight.norm(dim=1, keepdim=True))
    with RotationMonitor(net, optimizer, window=None) as monitor:
        for step in range(400):
            if step == 100:
                monitor.reset()
            net.weight.grad = torch.randn_like(net.weight)
            optimizer.step()
    row = monitor.report().iloc[0]
    assert row["ratio"] == pytest.approx(1.0, abs=0.03)
    assert row["at_equilibrium"]


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda p: torch.optim.AdamW(p, weight_decay=0.1), "adamw"),
        (lambda p: torch.optim.Adam(p, weight_decay=0.1), "adam_l2"),
        (lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.1), "sgdm"),
        (lambda p: torch.optim.Adagrad(p, weight_decay=0.1), None),
    ],
)
def test_optimizers_are_recognised(make, rule):
    optimizer = make([torch.zeros(2, 2, requires_grad=True)])
    assert describe_group(optimizer, optimizer.param_groups[0])["optimizer"] == rule


def test_dampening_is_a_smaller_lr():
    walks = []
    for lr, dampening in ((0.1, 0.5), (0.05, 0.0)):
        net = nn.Linear(5, 2, bias=False)
        optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9, dampening=dampening, weight_decay=0.1)
        with RotationMonitor(net, optimizer) as monitor:
            _step(net, optimizer, torch.randn(5, 5))
        walks.append(monitor.report()["angle_predicted"][0])
    assert walks[0] == pytest.approx(walks[1], rel=1e-12)


def test_rotational_optimizers_hold_norm_and_speed():
    from assay.training.rotational import RVAdamW

    torch.manual_seed(0)
    net = nn.Linear(100, 8, bias=False)
    optimizer = RVAdamW(net.parameters(), lr=1e-2, weight_decay=0.2)
    with RotationMonitor(net, optimizer, window=None) as monitor:
        for step in range(100):
            # Adam's first directions are longer than its later ones, and the running update norm follows ten steps behind.
            if step == 40:
                monitor.reset()
            net.weight.grad = torch.randn_like(net.weight)
            optimizer.step()
    row = monitor.report().iloc[0]
    assert row["norm"] == pytest.approx(row["norm_predicted"], rel=1e-5)
    assert row["half_life_steps"] == 0.0
    assert row["ratio"] == pytest.approx(1.0, abs=0.05)


def test_own_rotation_rate_and_loops_without_optimizer():
    net = nn.Linear(12, 3, bias=False)
    optimizer = torch.optim.Adagrad(net.parameters(), lr=0.1)
    with RotationMonitor(net, optimizer, rotation_rate=lambda group: 2 * group["lr"]) as monitor:
        _step(net, optimizer, torch.randn(4, 12))
    assert monitor.report()["angle_predicted"][0] == pytest.approx(0.2)

    loop = RotationMonitor(
        net, interval=2, settings={"optimizer": "adamw", "lr": 1e-2, "weight_decay": 0.5}, window=None
    )
    loop.step()
    truth = []
    for step in range(5):
        old = net.weight.detach().clone()
        with torch.no_grad():
            net.weight += 0.01 * torch.randn_like(net.weight)
        loop.step()
        if step % 2 == 0:
            truth.append(_angles64(old, net.weight.detach()).square())
    assert loop.steps_ == 5
    np.testing.assert_allclose(loop.neurons("weight")["angle"] ** 2, torch.stack(truth).mean(0), rtol=1e-4)
    assert loop.report()["angle_predicted"][0] == pytest.approx(
        equilibrium("adamw", lr=1e-2, weight_decay=0.5).rotation
    )


def test_tied_frozen_transposed_and_half_precision():
    torch.manual_seed(0)
    net = CharGPT(11, width=8, depth=1, heads=2, context=6)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.1)
    monitor = RotationMonitor(net, optimizer)
    assert monitor.layers_.count("tokens.weight") == 1
    assert "head.weight" not in monitor.layers_

    up = nn.ConvTranspose2d(4, 6, 3, groups=2, bias=False).to(torch.bfloat16)
    optimizer = torch.optim.SGD(up.parameters(), lr=1.0)
    old = up.weight.detach().clone()
    with RotationMonitor(up, optimizer) as monitor:
        up.weight.grad = torch.randn_like(up.weight)
        optimizer.step()
    report = monitor.report()
    # Two groups of three outputs, each from two inputs.
    assert report["neurons"][0] == 6
    assert report["dim"][0] == 18
    rows = lambda w: torch.stack([w[g * 2 : g * 2 + 2, o].flatten() for g in range(2) for o in range(3)])
    truth = _angles64(rows(old), rows(up.weight.detach()))
    np.testing.assert_allclose(monitor.neurons("weight")["angle"], truth, rtol=1e-5)


def test_zero_neurons_and_missing_gradients_leave_no_nan():
    net = nn.Sequential(nn.Linear(6, 4, bias=False), nn.Linear(4, 2, bias=False))
    with torch.no_grad():
        net[0].weight[1] = 0
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    with RotationMonitor(net, optimizer) as monitor:
        for _ in range(3):
            optimizer.zero_grad()
            net[0](torch.ones(2, 6))[:, [0, 2, 3]].square().sum().backward()
            optimizer.step()
    report = monitor.report()
    assert np.isfinite(report[["norm", "angle", "spread"]]).all(axis=None)
    assert report["angle"][1] == 0.0
    assert math.isnan(monitor.neurons("0.weight")["angle"][1])


def test_groups_predict_with_their_own_settings():
    net = nn.Sequential(nn.Linear(12, 8), nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 3, bias=False))
    groups = [
        {"params": net[0].parameters(), "lr": 1e-2},
        {"params": net[1].parameters(), "weight_decay": 0.0},
        {"params": net[2].parameters(), "lr": 4e-2, "betas": (0.5, 0.9)},
        {"params": net[3].parameters(), "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, weight_decay=0.2)
    with RotationMonitor(net, optimizer) as monitor:
        _step(net, optimizer, torch.randn(6, 12))
    report = monitor.report().set_index("layer")
    # Biases and gains are vectors: they have no neurons to turn and are not listed.
    assert report.index.tolist() == ["0.weight", "2.weight", "3.weight"]
    expected = equilibrium("adamw", lr=1e-2, weight_decay=0.2).rotation
    assert report["angle_predicted"]["0.weight"] == pytest.approx(expected)
    expected = equilibrium("adamw", lr=4e-2, weight_decay=0.2, betas=(0.5, 0.9)).rotation
    assert report["angle_predicted"]["2.weight"] == pytest.approx(expected)
    assert math.isnan(report["ratio"]["3.weight"])
    assert "3.weight" in advise(monitor.report())[-1]


def test_only_what_rotates_is_reported_as_held():
    net = nn.Sequential(nn.Linear(6, 4, bias=False), nn.Linear(4, 2, bias=False), nn.Linear(2, 3, bias=False))
    groups = [{"params": net[0].parameters()}, {"params": net[1].parameters(), "weight_decay": 0.0}]
    optimizer = RVAdamW(groups, lr=1e-2, weight_decay=0.2)
    with pytest.warns(UserWarning, match="too few weights"):
        optimizer.add_param_group({"params": net[2].parameters()})
    with RotationMonitor(net, optimizer) as monitor:
        _step(net, optimizer, torch.randn(6, 6))
    report = monitor.report().set_index("layer")
    assert report["half_life_steps"]["0.weight"] == 0.0
    assert math.isnan(report["norm_predicted"]["1.weight"])  # without decay: the plain update
    plain = equilibrium("adamw", lr=1e-2, weight_decay=0.2, dim=2)  # with decay, but too small to rotate
    assert report["norm_predicted"]["2.weight"] == pytest.approx(plain.norm)
    assert report["half_life_steps"]["2.weight"] == pytest.approx(plain.half_life_steps)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
def test_names_are_those_of_the_plain_model(prefix):
    net = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 2))
    wrapped = net
    for part in reversed(prefix.rstrip(".").split(".")):
        outer = nn.Module()
        outer.add_module(part, wrapped)
        wrapped = outer
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    assert RotationMonitor(wrapped, optimizer).layers_ == ["0.weight", "1.weight"]
    assert RotationMonitor(wrapped, optimizer, layers=["1.*"]).layers_ == ["1.weight"]


def test_layers_that_did_not_move_are_named():
    net = nn.Sequential(nn.Linear(6, 4, bias=False), nn.Linear(4, 2, bias=False))
    net[0].weight.requires_grad_(False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=0.1)
    with RotationMonitor(net, optimizer) as monitor:
        _step(net, optimizer, torch.randn(3, 6))
    assert "0.weight did not move" in " ".join(advise(monitor.report()))
    optimizer.param_groups[0]["params"].clear()
    assert advise(monitor.report().iloc[:1]) == [
        "No layer moved: are the weights frozen, the lr 0, or gradients missing?"
    ]


def test_plot_writes_a_file(tmp_path):
    net = layer_norm_mlp(8, 8, 2, 3)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.1)
    with RotationMonitor(net, optimizer) as monitor:
        for _ in range(4):
            _step(net, optimizer, torch.randn(4, 8))
    assert monitor.plot(tmp_path / "rotation.svg").read_text().count("<svg") == 1


def test_bad_input():
    net = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(InputError, match="interval"):
        RotationMonitor(net, optimizer, interval=0)
    with pytest.raises(InputError, match="to watch"):
        RotationMonitor(net, optimizer, layers=["conv*"])
    with pytest.raises(InputError, match="to watch"):
        RotationMonitor(nn.BatchNorm1d(4))
    with pytest.raises(InputError, match="nothing was measured"):
        RotationMonitor(net, optimizer).report()
    with pytest.raises(InputError, match="hooks the optimizer"):
        RotationMonitor(net, optimizer).step()


def test_trainer_callback_without_transformers(monkeypatch):
    import builtins

    from assay import MissingExtra
    from assay.training.rotational import rotation_callback

    real = builtins.__import__
    import importlib

    def refuse(name, *args, **kwargs):
        if name.split(".")[0] == "transformers":
            raise ModuleNotFoundError("No module named 'transformers'", name="transformers")
        return real(name, *args, **kwargs)

    import_module = importlib.import_module
    monkeypatch.setattr(
        importlib, "import_module", lambda name, *a: refuse(name) if name == "transformers" else import_module(name, *a)
    )
    with pytest.raises(MissingExtra, match="language"):
        rotation_callback()


def test_trainer_callback_with_a_stand_in(monkeypatch, tmp_path):
    import sys
    import types

    stand_in = types.ModuleType("transformers")
    stand_in.TrainerCallback = type("TrainerCallback", (), {})
    monkeypatch.setitem(sys.modules, "transformers", stand_in)
    from assay.training.rotational import rotation_callback

    net = nn.Linear(16, 4, bias=False)
    inner = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.1)
    wrapped = types.SimpleNamespace(optimizer=inner)  # as accelerate wraps it
    callback = rotation_callback(interval=1, log_every=2, out=tmp_path / "out")
    callback.on_train_begin(None, None, None, model=net, optimizer=wrapped)
    logs = {}
    for step in range(1, 5):
        _step(net, inner, torch.randn(4, 16))
        callback.on_log(None, types.SimpleNamespace(global_step=step), None, logs=logs)
    callback.on_train_end(None, None, None)
    assert logs["rotation/median_ratio"] > 0
    assert (tmp_path / "out" / "rotation.csv").exists()
    assert (tmp_path / "out" / "advice.txt").read_text().strip() == "\n".join(callback.advice)
