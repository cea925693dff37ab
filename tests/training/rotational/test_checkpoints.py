"""Series of checkpoints: random walks whose truth is known, and the faults a series can have."""

import math

import numpy as np
import pytest
import torch

from assay import InputError
from assay.training.rotational._advice import advise, what_if
from assay.training.rotational._checkpoints import analyse_checkpoints
from assay.training.rotational._equilibrium import equilibrium


def _walk(optimizer, dim, every, count, lr, decay, *, start=1.0, neurons=24, seed=0):
    """States of one weight whose gradients are random, as torch's own optimizer moves it."""
    torch.manual_seed(seed)
    w = torch.nn.Parameter(torch.randn(neurons, dim))
    goal = equilibrium(optimizer, lr=lr, weight_decay=decay, dim=dim, grad_rms=math.sqrt(dim - 1))
    with torch.no_grad():
        w *= start * goal.norm / w.norm(dim=1, keepdim=True)
    make = {"adamw": torch.optim.AdamW, "sgdm": lambda p, **k: torch.optim.SGD(p, momentum=0.9, **k)}[optimizer]
    opt = make([w], lr=lr, weight_decay=decay)
    states = [{"net.weight": w.detach().clone()}]
    for step in range(1, every * (count - 1) + 1):
        g = torch.randn_like(w)
        with torch.no_grad():
            squared = (w * w).sum(1, keepdim=True)
            w.grad = (g - (g * w).sum(1, keepdim=True) / squared * w) / squared.sqrt()
        opt.step()
        if step % every == 0:
            states.append({"net.weight": w.detach().clone()})
    return states


@pytest.mark.parametrize(("rule", "lr", "decay"), [("adamw", 1e-2, 0.02), ("sgdm", 0.1, 1e-3)])
@pytest.mark.parametrize("every", [7, 120])
def test_a_random_walk_is_as_predicted(rule, lr, decay, every):
    states = _walk(rule, 256, every, 6, lr, decay)
    found = analyse_checkpoints(states, every, rule, lr=lr, weight_decay=decay)
    row = found.layers.iloc[0]
    # AdamW's first steps have settled neither moment; the last third is what the table holds.
    assert row["ratio"] == pytest.approx(1.0, abs=0.06)
    assert row["at_equilibrium"]
    if every == 120:
        # Over two intervals a free walk turns twice as far in squared angle; within the memory it is more.
        assert row["wander"] == pytest.approx(1.0, abs=0.08)
    assert found.neuron_ratios["net.weight"].shape == (24,)
    assert np.median(found.neuron_ratios["net.weight"]) == pytest.approx(1.0, abs=0.08)


def test_the_norm_is_predicted_on_its_way():
    states = _walk("adamw", 128, 100, 7, 1e-2, 0.1, start=3.0)
    found = analyse_checkpoints(states, 100, "adamw", lr=1e-2, weight_decay=0.1)
    np.testing.assert_allclose(found.norms["norm"], found.norms["norm_predicted"], rtol=0.06)
    share = found.layers.attrs["share_before_equilibrium"]["net.weight"]
    assert 0 < share <= 1
    assert found.layers["share_before_equilibrium"].tolist() == [share]
    # 3 n_eq falls to 1.15 n_eq in log2((9 - 1) / (1.15^2 - 1)) half-lives; a checkpoint late at most.
    goal = equilibrium("adamw", lr=1e-2, weight_decay=0.1, dim=128)
    steps = goal.half_life_steps * math.log2(8 / (1.15**2 - 1))
    assert share == pytest.approx(min(1.0, steps / 600), abs=0.2)


def test_sgds_gradient_size_is_recovered_from_the_norms():
    states = _walk("sgdm", 128, 40, 8, 0.1, 2e-3, start=2.0)
    found = analyse_checkpoints(states, 40, "sgdm", lr=0.1, weight_decay=2e-3)
    truth = equilibrium("sgdm", lr=0.1, weight_decay=2e-3, grad_rms=math.sqrt(127)).norm
    assert found.layers["norm_predicted"][0] == pytest.approx(truth, rel=0.06)
    np.testing.assert_allclose(found.norms["norm"], found.norms["norm_predicted"], rtol=0.06)


def test_wrong_settings_are_noticed():
    states = _walk("adamw", 128, 20, 5, 1e-2, 0.02)
    found = analyse_checkpoints(states, 20, "adamw", lr=1e-3, weight_decay=0.02)
    assert found.layers["ratio"][0] == pytest.approx(math.sqrt(10), rel=0.1)
    assert "faster than predicted" in " ".join(found.advice)


def test_a_weight_that_circles_is_told_from_a_slow_one():
    rng = np.random.default_rng(0)
    # At AdamW's equilibrium norm for these settings, so that the norm is no cause.
    base = 0.1 * rng.normal(size=(16, 200))
    circling = [{"w": base + 0.005 * rng.normal(size=base.shape)} for _ in range(7)]
    steps = 0.002 * rng.normal(size=(7, *base.shape))
    slow = [{"w": base + steps[: i + 1].sum(0)} for i in range(7)]
    circle = analyse_checkpoints(circling, 10, "adamw", lr=1e-2, weight_decay=0.5)
    free = analyse_checkpoints(slow, 10, "adamw", lr=1e-2, weight_decay=0.5)
    assert circle.layers["wander"][0] == pytest.approx(0.5, abs=0.05)
    assert free.layers["wander"][0] == pytest.approx(1.0, abs=0.1)
    assert "undo each other" in " ".join(circle.advice)


def test_schedule_and_rotational_norms():
    rng = np.random.default_rng(1)
    w = rng.normal(size=(8, 64))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    states = []
    for _ in range(5):
        states.append({"w": w.astype(np.float32)})
        w = w + 0.05 * rng.normal(size=w.shape)
        w /= np.linalg.norm(w, axis=1, keepdims=True)
    lr = 1e-2 * 0.5 * (1 + np.cos(np.pi * np.arange(400) / 400))
    found = analyse_checkpoints(states, 100, "rvadamw", lr=lr, weight_decay=0.1)
    assert found.norms["norm_predicted"].tolist() == pytest.approx([1.0] * 5)
    first, last = found.series["rotation_predicted"].iloc[[0, -1]]
    assert first == pytest.approx(
        math.sqrt(np.mean(equilibrium("adamw", lr=lr[:100], weight_decay=0.1).rotation ** 2)), rel=1e-12
    )
    assert last < first
    decayed = analyse_checkpoints(states, 100, "adamw", lr=lr, weight_decay=0.1)
    assert "lr falls faster than the equilibrium can follow" in " ".join(decayed.advice)


def test_only_weights_are_read_and_what_is_left_out_is_said():
    rng = np.random.default_rng(2)
    frozen = rng.normal(size=(4, 9))
    states = [
        {
            "module.a.weight": rng.normal(size=(6, 5, 3, 3)),
            "module.a.bias": rng.normal(size=6),
            "module.norm.num_batches_tracked": np.array(i),
            "module.ids": np.arange(12).reshape(3, 4),
            "module.frozen.weight": frozen,
            "module.zero.weight": np.vstack([np.zeros((1, 7)), rng.normal(size=(3, 7))]),
        }
        for i in range(3)
    ]
    found = analyse_checkpoints(states, 5, lr=1e-3, weight_decay=0.1, no_decay=["zero*"])
    assert found.layers["layer"].tolist() == ["a.weight", "zero.weight"]
    assert found.layers["dim"].tolist() == [45, 7]
    text = " ".join(found.notes)
    assert "never moved" in text
    assert "frozen.weight" in text
    assert "1 neurons of zero norm" in text
    assert math.isnan(found.layers["ratio"][1])
    only = analyse_checkpoints(states, 5, lr=1e-3, weight_decay=0.1, layers=["a.*"], transposed=["a.*"])
    assert only.layers["neurons"].tolist() == [5]


def test_tied_weights_count_once():
    w = [torch.randn(4, 6) for _ in range(3)]
    found = analyse_checkpoints([{"emb": x, "head": x} for x in w], 5, lr=1e-3, weight_decay=0.1)
    assert found.layers["layer"].tolist() == ["emb"]


def test_adam_l2_gets_no_prediction_but_its_angles():
    states = _walk("adamw", 64, 10, 3, 1e-2, 0.02)
    found = analyse_checkpoints(states, 10, "adam_l2", lr=1e-2, weight_decay=0.02)
    assert np.isfinite(found.layers["angle"]).all()
    assert found.layers["ratio"].isna().all()
    assert "gradient size" in " ".join(found.notes)


def test_too_far_apart_is_said():
    rng = np.random.default_rng(0)
    states = [{"w": rng.normal(size=(4, 300))} for _ in range(3)]
    found = analyse_checkpoints(states, 5000, "adamw", lr=1e-2, weight_decay=0.1)
    assert "save more often" in " ".join(found.notes)


def test_what_if_scales_as_theory_says():
    table = what_if("sgdm", lr=0.1, weight_decay=1e-3, total_steps=1000).set_index("setting")
    assert table.loc["lr x2", "rotation_mrad"] / table.loc["now", "rotation_mrad"] == pytest.approx(math.sqrt(2))
    assert table.loc["lr x2, weight decay /2", "rotation_factor"] == 1.0
    assert table.loc["lr x2, weight decay /2", "norm_factor"] == pytest.approx(2**0.5)
    assert table.loc["both x2", "half_lives"] == pytest.approx(4 * table.loc["now", "half_lives"])


def test_advice_names_causes():
    import pandas as pd

    base = {"dim": 64, "norm": 1.0, "norm_predicted": 1.0, "angle_predicted": 0.01}
    base |= {"spread": 0.05, "half_life_steps": 100.0}
    frame = pd.DataFrame(
        [
            {"layer": "fine", "ratio": 1.05, "radial": 0.0, "invariance": "neuron", **base},
            {"layer": "layer4.conv2", "ratio": 1 / 3.1, "radial": 0.41, "invariance": "none", **base},
            {"layer": "ln", "ratio": 1.4, "radial": 0.0, "invariance": "layer", **base},
            {"layer": "big", "ratio": 0.5, "radial": 0.0, "invariance": "neuron", **base, "norm": 2.0},
            {"layer": "stem", "ratio": 0.7, "radial": 0.0, "invariance": "neuron", **base, "dim": 27},
            {"layer": "rough", "ratio": 1.0, "radial": 0.0, "invariance": "neuron", **base, "spread": 0.6},
            {"layer": "bias", "ratio": math.nan, "radial": 0.0, "invariance": "neuron", **base},
        ]
    )
    text = advise(frame)
    assert text[0].startswith("2 of 6 layers rotate within 15%")
    joined = " ".join(text)
    assert (
        "layer4.conv2 rotates 3.1x slower than predicted: gradient not orthogonal to the weight (+0.41), not scale-invariant"
        in joined
    )
    assert "ln rotates 40 % faster than predicted: only the layer as a whole is scale-invariant" in joined
    assert "big rotates 2.0x slower than predicted: its norm is 2.0x the equilibrium norm and still falling" in joined
    assert "fan-in of 27" in joined
    assert "rough: its neurons rotate unevenly" in joined
    assert "No prediction for 1 layers" in joined


@pytest.mark.parametrize(
    ("states", "options", "says"),
    [
        ([], {}, "at least two"),
        ([{"w": np.ones((2, 3))}], {}, "at least two"),
        ([{"b": np.ones(3)}] * 2, {}, "no weight of two"),
        ([{"w": np.ones((2, 3))}, {"w": np.ones((2, 4))}], {}, "before it had"),
        ([{"w": np.ones((2, 3))}, {"w": np.full((2, 3), np.nan)}], {}, "NaN"),
        ([{"w": np.ones((2, 3))}, {"v": np.ones((2, 3))}], {}, "shares no weight"),
        ([{"w": np.ones((2, 3))}] * 3, {}, "no weight moved"),
        ([{"w": np.eye(3)}, {"w": 2 - np.eye(3)}], {"lr": np.full(3, 0.1)}, "need 10"),
        ([{"w": np.eye(3)}, {"w": 2 - np.eye(3)}], {"lr": np.full(10, np.nan)}, "finite"),
        ([{"w": np.eye(3)}, {"w": 2 - np.eye(3)}], {"weight_decay": -1.0}, "weight_decay"),
        ([{"w": np.eye(3)}, {"w": 2 - np.eye(3)}], {"optimizer": "adagrad"}, "adagrad"),
        ([{"w": np.eye(3)}, {"w": 2 - np.eye(3)}], {"layers": ["x*"]}, r"matching x\*"),
    ],
)
def test_bad_series(states, options, says):
    with pytest.raises(InputError, match=says):
        analyse_checkpoints(states, 10, **{"lr": 1e-3, "weight_decay": 0.1, **options})


def test_every_must_be_positive():
    with pytest.raises(InputError, match="every"):
        analyse_checkpoints([], 0, lr=1e-3, weight_decay=0.1)
