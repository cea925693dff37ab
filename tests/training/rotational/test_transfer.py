"""Settings that keep the rotation."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay import InputError
from assay.training.rotational._transfer import transfer

FACTOR = st.floats(0.1, 10.0)


@settings(deadline=None, max_examples=50)
@given(lr=st.floats(1e-5, 1.0), wd=st.floats(1e-5, 1.0), factor=FACTOR, rule=st.sampled_from(["adamw", "sgdm", "lion"]))
def test_rotation_is_kept_when_lr_changes(lr, wd, factor, rule):
    new = transfer(lr, wd, optimizer=rule, change={"lr": factor})
    assert new.lr == pytest.approx(lr * factor)
    assert new.weight_decay == pytest.approx(wd / factor, rel=1e-9)
    assert new.rotation == pytest.approx(new.rotation_before, rel=1e-9)


@settings(deadline=None, max_examples=50)
@given(batch=FACTOR, adjust=st.sampled_from(["weight_decay", "lr", "both"]))
def test_half_lives_of_the_run_are_kept_when_the_batch_changes(batch, adjust):
    new = transfer(1e-3, 0.1, keep="half_lives", adjust=adjust, change={"batch": batch})
    assert new.steps_factor == pytest.approx(1 / batch)
    assert new.steps_factor / new.half_life_steps == pytest.approx(1 / new.half_life_before, rel=1e-9)


def test_both_is_square_root_scaling():
    new = transfer(1e-3, 0.1, keep="half_lives", adjust="both", change={"batch": 16})
    assert new.lr == pytest.approx(4e-3)


def test_changing_the_optimizer_keeps_the_rotation():
    new = transfer(1e-3, 0.1, change={"lr": 0.1}, to_optimizer="lion")
    assert new.rotation == pytest.approx(new.rotation_before, rel=1e-9)
    assert new.weight_decay > 0.1


def test_a_weight_decay_change_moves_lr():
    new = transfer(1e-3, 0.1, change={"weight_decay": 4})
    assert new.lr == pytest.approx(2.5e-4)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"change": {"width": 2}}, "width"),
        ({"change": {"lr": 0}}, "positive"),
        ({"change": {"lr": math.nan}}, "positive"),
        ({"change": {"lr": 2, "weight_decay": 2}}, "adjusted"),
        ({"keep": "loss"}, "keep"),
        ({"adjust": "momentum"}, "adjust"),
        ({"optimizer": "adam_l2"}, "adam_l2"),
    ],
)
def test_bad_input(options, says):
    with pytest.raises(InputError, match=says):
        transfer(1e-3, 0.1, **options)
