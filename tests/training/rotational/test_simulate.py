"""Random walks land on the closed forms."""

import numpy as np
import pytest

from assay import InputError
from assay.training.rotational._equilibrium import equilibrium
from assay.training.rotational._simulate import simulate_equilibrium


@pytest.mark.parametrize(("rule", "tolerance"), [("adamw", 0.03), ("sgdm", 0.03), ("lion", 0.05)])
def test_random_walk_reaches_the_closed_forms(rule, tolerance):
    lr = 0.1 if rule == "sgdm" else 1e-3
    decay = 1e-3 / lr
    half_life = equilibrium(rule, lr=lr, weight_decay=decay).half_life_steps
    walk = simulate_equilibrium(rule, 64, int(4 * half_life) + 600, lr, decay, seed=0, neurons=12, measure=600)
    assert walk["rotation"] == pytest.approx(walk["predicted"].rotation, rel=tolerance)
    assert walk["norm"] == pytest.approx(walk["predicted"].norm, rel=tolerance)


def test_adam_l2_walks_to_its_own_norm_and_speed():
    # Its decay goes through the second moment, so the product form does not hold; the cube root does.
    walk = simulate_equilibrium("adam_l2", 128, 3000, 3e-3, 0.05, seed=0, betas=(0.9, 0.99), neurons=8, measure=800)
    assert walk["norm"] == pytest.approx(walk["predicted"].norm, rel=0.05)
    assert walk["rotation"] == pytest.approx(walk["predicted"].rotation, rel=0.05)


@pytest.mark.parametrize("rule", ["adamw", "sgdm", "lion"])
def test_angles_over_many_steps(rule):
    lr = 0.1 if rule == "sgdm" else 1e-3
    lags = (1, 3, 10, 30, 100)
    walk = simulate_equilibrium(rule, 512, 900, lr, 1e-4 / lr, seed=1, neurons=4, lags=lags, measure=600)
    for lag in lags:
        goal = equilibrium(rule, lr=lr, weight_decay=1e-4 / lr, lag=lag).rotation
        assert walk["angles"][lag] == pytest.approx(goal, rel=0.02), lag


def test_nesterov_walk():
    walk = simulate_equilibrium(
        "sgdm", 256, 1500, 0.1, 1e-3, seed=0, nesterov=True, neurons=6, lags=(1, 10), measure=800
    )
    assert walk["norm"] == pytest.approx(walk["predicted"].norm, rel=0.03)
    for lag in (1, 10):
        goal = equilibrium("sgdm", lr=0.1, weight_decay=1e-3, nesterov=True, lag=lag).rotation
        assert walk["angles"][lag] == pytest.approx(goal, rel=0.02)


def test_speed_is_free_of_the_gradient_scale_but_norm_of_sgd_is_not():
    walks = [simulate_equilibrium("sgdm", 64, 300, 0.1, 1e-2, seed=3, grad_rms=g) for g in (1.0, 16.0)]
    assert walks[0]["rotation"] == pytest.approx(walks[1]["rotation"], rel=1e-6)
    # n ~ sqrt(gradient)
    assert walks[1]["norm"] / walks[0]["norm"] == pytest.approx(4.0, rel=1e-6)


def test_same_seed_same_walk_and_shapes():
    a, b = (simulate_equilibrium("lion", 32, 50, 1e-3, 0.1, seed=5) for _ in range(2))
    np.testing.assert_array_equal(a["norm_series"], b["norm_series"])
    assert a["norm_series"].shape == a["rotation_series"].shape == (50,)
    assert set(a["angles"]) == {1}


@pytest.mark.parametrize(
    "change", [{"dim": 1}, {"steps": 0}, {"neurons": 0}, {"lr": 0.0}, {"weight_decay": 0.0}, {"start": -1.0}]
)
def test_bad_input(change):
    with pytest.raises(InputError):
        simulate_equilibrium(**{"dim": 8, "steps": 10, "lr": 1e-3, "weight_decay": 0.1, **change})
