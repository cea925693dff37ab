"""Closed forms, the lag sum, the transient, and the warning about schedules."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay import InputError
from assay.training.rotational import _rates
from assay.training.rotational._equilibrium import (
    equilibrium,
    lag_factor,
    predicted_norms,
    rotation_over_steps,
    steps_where_lr_outpaces,
)

RATE = st.floats(1e-6, 1.0)
BETA = st.floats(0.0, 0.999)


# 1e-12 relative is the figure; a few ulps of float64 roots stay far below it.
@settings(deadline=None, max_examples=60)
@given(lr=RATE, wd=RATE, b1=BETA, b2=BETA, dim=st.integers(1, 10_000))
def test_adamw_and_lion_are_the_closed_forms(lr, wd, b1, b2, dim):
    found = equilibrium("adamw", lr=lr, weight_decay=wd, betas=(b1, b2), dim=dim)
    assert found.rotation == pytest.approx(math.sqrt(2 * lr * wd * (1 - b1) / (1 + b1)), rel=1e-12)
    assert found.norm == pytest.approx(math.sqrt(lr * dim / (2 * wd)), rel=1e-12)
    assert found.update_size == pytest.approx(lr * math.sqrt(dim * (1 - b1) / (1 + b1)), rel=1e-12)
    assert found.half_life_steps == pytest.approx(math.log(2) / (2 * lr * wd), rel=1e-12)
    s = (1 - b1) ** 2 + b1**2 * (1 - b2) / (1 + b2)
    found = equilibrium("lion", lr=lr, weight_decay=wd, betas=(b1, b2), dim=dim)
    assert found.rotation == pytest.approx(math.sqrt(math.pi * lr * wd * s), rel=1e-12)
    assert found.norm == pytest.approx(math.sqrt(lr * dim / (math.pi * wd * s)), rel=1e-12)


@settings(deadline=None, max_examples=60)
@given(lr=RATE, wd=RATE, a=BETA, g=st.floats(1e-3, 1e3), dim=st.integers(1, 10_000))
def test_sgdm_and_adam_l2_are_the_closed_forms(lr, wd, a, g, dim):
    found = equilibrium("sgdm", lr=lr, weight_decay=wd, momentum=a, grad_rms=g)
    norm = (lr * g**2 / (2 * wd * (1 - a))) ** 0.25
    assert found.rotation == pytest.approx(math.sqrt(2 * lr * wd / (1 + a)), rel=1e-12)
    assert found.norm == pytest.approx(norm, rel=1e-12)
    assert found.update_size == pytest.approx(lr * math.sqrt((g / norm) ** 2 / (1 - a**2)), rel=1e-12)
    assert found.half_life_steps == pytest.approx(math.log(2) * (1 - a) / (4 * lr * wd), rel=1e-12)
    found = equilibrium("adam_l2", lr=lr, weight_decay=wd, betas=(a, 0.999), grad_rms=g, dim=dim)
    norm = (lr * math.sqrt(dim) * g / (2 * wd)) ** (1 / 3)
    assert found.norm == pytest.approx(norm, rel=1e-12)
    assert found.rotation == pytest.approx(lr * math.sqrt(dim * (1 - a) / (1 + a)) / norm, rel=1e-12)


@pytest.mark.parametrize(
    ("rule", "extra"),
    [
        ("adamw", {"dim": 64}),
        ("sgdm", {"grad_rms": 3.0}),
        ("lion", {"dim": 64}),
        ("adam_l2", {"dim": 64, "grad_rms": 3.0}),
    ],
)
def test_rotation_is_the_update_over_the_norm(rule, extra):
    found = equilibrium(rule, lr=1e-3, weight_decay=0.1, **extra)
    # Lion's step has the fixed length lr sqrt(C); all forms follow from one Pythagoras.
    assert found.rotation == pytest.approx(found.update_size / found.norm, rel=1e-12)


@pytest.mark.parametrize(("rule", "extra"), [("adamw", {}), ("sgdm", {"momentum": 0.9}), ("lion", {})])
def test_agrees_with_the_rates_that_the_optimizers_use(rule, extra):
    mine = equilibrium(rule, lr=1e-2, weight_decay=0.3, **extra).rotation
    other = {
        "adamw": lambda: _rates.rotation_adamw(1e-2, 0.3, 0.9),
        "sgdm": lambda: _rates.rotation_sgdm(1e-2, 0.3, 0.9),
        "lion": lambda: _rates.rotation_lion(1e-2, 0.3, (0.9, 0.99)),
    }[rule]()
    assert mine == pytest.approx(other, rel=1e-12)


def _lag_sum(rho, k):
    return k + 2 * sum((k - j) * rho(j) for j in range(1, k))


@pytest.mark.parametrize("k", [1, 2, 3, 10, 64, 65, 300, 3000])
@pytest.mark.parametrize("b", [0.0, 0.5, 0.9, 0.99])
def test_lag_formula_is_its_sum(k, b):
    expected = _lag_sum(lambda j: b**j, k)
    assert lag_factor("adamw", k, betas=(b, 0.999)) == pytest.approx(expected, rel=1e-12)
    assert lag_factor("sgdm", k, momentum=b) == pytest.approx(expected, rel=1e-12)
    closed = k * (1 + b) / (1 - b) - 2 * b * (1 - b**k) / (1 - b) ** 2
    # The closed form itself loses up to 2 / (k (1-b)) of its digits.
    assert expected == pytest.approx(closed, rel=1e-9)


@pytest.mark.parametrize("k", [2, 10, 300, 3000])
def test_lion_lag_formula_is_its_sum(k):
    b1, b2 = 0.9, 0.99
    s = (1 - b1) ** 2 + b1**2 * (1 - b2) / (1 + b2)

    def rho(j):
        r = (b1 * (1 - b1) * (1 - b2) * b2 ** (j - 1) + b1**2 * b2**j * (1 - b2) / (1 + b2)) / s
        return 2 / math.pi * math.asin(r)

    assert lag_factor("lion", k, betas=(b1, b2)) == pytest.approx(_lag_sum(rho, k), rel=1e-12)


def test_nesterov_keeps_the_long_run_rotation():
    # Per step it is longer, over many steps the same: only the sum of a gradient's effects counts.
    plain = equilibrium("sgdm", lr=0.1, weight_decay=1e-5, lag=20_000).rotation
    nesterov = equilibrium("sgdm", lr=0.1, weight_decay=1e-5, nesterov=True, lag=20_000).rotation
    assert nesterov == pytest.approx(plain, rel=2e-3)
    one = equilibrium("sgdm", lr=0.1, weight_decay=1e-5, nesterov=True).rotation
    assert one > 1.1 * equilibrium("sgdm", lr=0.1, weight_decay=1e-5).rotation


def test_long_lags_reach_the_decay_rate_and_saturate_at_a_right_angle():
    # acos(exp(-k lr wd)): over long times only decay is left.
    long = equilibrium("adamw", lr=1e-3, weight_decay=0.1, lag=20_000).rotation
    assert long == pytest.approx(math.acos(math.exp(-20_000 * 1e-4)), rel=2e-3)
    assert equilibrium("adamw", lr=1e-3, weight_decay=0.1, lag=10**6).rotation == pytest.approx(math.pi / 2, abs=1e-12)


def test_small_angles_keep_their_digits():
    assert rotation_over_steps(1e-9, 1.0) == pytest.approx(1e-9, rel=1e-12)


def test_broadcasts_and_leaves_out_what_it_cannot_know():
    found = equilibrium("adamw", lr=np.array([1e-3, 2e-3]), weight_decay=0.1, dim=np.array([[64], [128], [256]]))
    assert found.rotation.shape == found.norm.shape == (3, 2)
    assert found.rotation[2, 1] == equilibrium("adamw", lr=2e-3, weight_decay=0.1).rotation
    assert equilibrium("adamw", lr=1e-3, weight_decay=0.1).norm is None
    assert equilibrium("sgdm", lr=0.1, weight_decay=1e-3, dim=64).norm is None
    assert equilibrium("adam_l2", lr=1e-3, weight_decay=1e-3, dim=64).rotation is None
    assert equilibrium("adamw", lr=0.0, weight_decay=0.1).rotation == 0.0
    assert math.isinf(equilibrium("adamw", lr=1e-3, weight_decay=0.0).half_life_steps)


def test_the_transient_follows_the_recursion():
    lr = np.r_[np.linspace(0, 1e-2, 50), np.full(150, 1e-2)]
    squared = 9.0
    for eta in lr:
        q = (1 - eta * 0.5) ** 2
        squared = q * squared + ((1 - q) * eta * 128 / (2 * 0.5))
    found = predicted_norms("adamw", 3.0, lr, weight_decay=0.5, dim=128, at=[0, 200])
    assert found[0] == 3.0
    # The pieces of constant lr are three steps wide here.
    assert found[1] == pytest.approx(math.sqrt(squared), rel=1e-4)


@pytest.mark.parametrize(("rule", "power"), [("adamw", 2), ("lion", 2), ("sgdm", 4)])
def test_the_excess_halves_in_a_half_life(rule, power):
    inputs = {"grad_rms": 2.0} if rule == "sgdm" else {"dim": 100}
    goal = equilibrium(rule, lr=1e-3, weight_decay=0.01, **inputs)
    at = [0, round(goal.half_life_steps), 2 * round(goal.half_life_steps)]
    norms = predicted_norms(rule, 3 * goal.norm, 1e-3, weight_decay=0.01, at=at, **inputs)
    excess = (norms / goal.norm) ** power - 1
    # (1 - lr wd)^2 against exp(-2 lr wd): equal to 1e-5 relative here.
    np.testing.assert_allclose(excess[1:] / excess[:-1], 0.5, rtol=1e-3)


def test_rotational_optimizers_have_no_transient():
    assert predicted_norms("rvadamw", 5.0, 1e-3, weight_decay=0.1, at=[0, 10, 1000]).tolist() == [5.0, 5.0, 5.0]


def test_schedule_warning():
    steps = np.arange(1000)
    cosine = 0.1 * 0.5 * (1 + np.cos(np.pi * steps / 1000))
    marked = steps_where_lr_outpaces("sgdm", cosine, weight_decay=5e-3)
    assert not marked[:500].any()
    assert marked[950:990].all()
    # Constant and rising rates never outpace.
    assert not steps_where_lr_outpaces("adamw", np.full(100, 1e-3), weight_decay=1e-3).any()
    assert not steps_where_lr_outpaces("adamw", np.linspace(1e-4, 1e-2, 100), weight_decay=1.0).any()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"lr": -1.0}, "lr"),
        ({"lr": math.nan}, "lr"),
        ({"lr": math.inf}, "lr"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"betas": (0.9,)}, "betas"),
        ({"betas": (0.9, 1.0)}, r"betas\[1\]"),
        ({"optimizer": "sgdm", "momentum": 1.0}, "momentum"),
        ({"optimizer": "adagrad"}, "adagrad"),
        ({"dim": 0}, "dim"),
        ({"lag": 0}, "lag"),
        ({"lag": 2.5}, "whole number"),
    ],
)
def test_bad_input_is_named(change, says):
    with pytest.raises(InputError, match=says):
        equilibrium(**{"optimizer": "adamw", "lr": 1e-3, "weight_decay": 0.1, **change})


def test_transient_needs_its_inputs():
    with pytest.raises(InputError, match="grad_rms"):
        predicted_norms("sgdm", 1.0, 0.1, weight_decay=1e-3, at=[1])
    with pytest.raises(InputError, match="decoupled"):
        predicted_norms("adam_l2", 1.0, 0.1, weight_decay=1e-3, at=[1], dim=3, grad_rms=1.0)
    with pytest.raises(InputError, match="step 20"):
        predicted_norms("adamw", 1.0, np.full(10, 0.1), weight_decay=1e-3, at=[20], dim=3)
