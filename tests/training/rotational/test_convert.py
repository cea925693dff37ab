"""Switching a running optimizer to its rotational form and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from assay.training.rotational import RVSGD, Lion, RVAdamW, RVLion, RVWrapper, from_rotational, to_rotational

PLAIN: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "RVAdamW": lambda p: torch.optim.AdamW(p, lr=1e-2, betas=(0.8, 0.95), weight_decay=0.1),
    "RVSGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.8, weight_decay=0.05, nesterov=True),
    "RVLion": lambda p: Lion(p, lr=1e-3, betas=(0.8, 0.95), weight_decay=0.5),
}


def setting() -> tuple[list[nn.Parameter], Callable[[torch.optim.Optimizer, range], None]]:
    torch.manual_seed(0)
    params = [nn.Parameter(torch.randn(4, 6, dtype=torch.float64)), nn.Parameter(torch.randn(5, dtype=torch.float64))]

    def steps(optimizer: torch.optim.Optimizer, times: range) -> None:
        for t in times:
            torch.manual_seed(100 + t)
            for p in params:
                p.grad = torch.randn_like(p)
            optimizer.step()

    return params, steps


@pytest.mark.parametrize("name", list(PLAIN))
def test_moments_and_settings_are_carried(name: str) -> None:
    params, steps = setting()
    plain = PLAIN[name](params)
    steps(plain, range(5))
    twin = to_rotational(plain)
    assert type(twin).__name__ == name
    for key in ("lr", "weight_decay", *("betas", "eps", "momentum", "nesterov")):
        assert twin.param_groups[0].get(key) == plain.param_groups[0].get(key)
    for p in params:
        for key in twin.rule.buffers:
            torch.testing.assert_close(twin.state[p][key], plain.state[p][key], rtol=0, atol=0)
            assert twin.state[p][key] is not plain.state[p][key]
    norm = params[0].detach().norm(dim=1)
    steps(twin, range(5, 10))
    torch.testing.assert_close(params[0].detach().norm(dim=1), norm, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", list(PLAIN))
def test_there_and_back_goes_on_as_if_nothing_happened(name: str) -> None:
    ends = []
    for detour in (False, True):
        params, steps = setting()
        optimizer = PLAIN[name](params)
        steps(optimizer, range(5))
        if detour:
            # zero_mean would centre the weights, which is a change.
            optimizer = from_rotational(to_rotational(optimizer, zero_mean=False))
            assert type(optimizer) is type(PLAIN[name](params))
        steps(optimizer, range(5, 10))
        ends.append([p.detach().clone() for p in params])
    for a, b in zip(*ends, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)


def test_first_step_after_the_switch_is_not_too_large() -> None:
    params, steps = setting()
    plain = PLAIN["RVAdamW"](params)
    steps(plain, range(50))
    twin = to_rotational(plain, rotational_eps=0.0)
    before = params[0].detach().clone()
    steps(twin, range(50, 51))
    angle = 2 * torch.asin((params[0].detach() - before).norm(dim=1) / before.norm(dim=1) / 2)
    # The running norm is bias-corrected from 1 and not from step 51, so the first turn has exactly the rate.
    rate = torch.tensor((2 * 1e-2 * 0.1 * 0.2 / 1.8) ** 0.5, dtype=torch.float64).arctan()
    torch.testing.assert_close(angle, rate.expand(4), rtol=1e-12, atol=0)


def test_wrapper_gives_its_inner_optimizer_back() -> None:
    params, steps = setting()
    inner = torch.optim.NAdam(params, lr=1e-2, weight_decay=0.1)
    keys = set(inner.param_groups[0])
    wrapper = RVWrapper(inner, rotation_rate=lambda g: 0.01)
    steps(wrapper, range(3))
    assert from_rotational(wrapper) is inner
    assert set(inner.param_groups[0]) == keys
    steps(inner, range(3, 5))


def test_names_and_initial_lr_travel() -> None:
    layer = nn.Linear(4, 3)
    plain = torch.optim.AdamW(layer.named_parameters(), lr=0.1, weight_decay=0.1)
    torch.optim.lr_scheduler.StepLR(plain, 10)
    twin = to_rotational(plain)
    assert twin.param_groups[0]["param_names"] == ["weight", "bias"]
    assert twin.param_groups[0]["initial_lr"] == 0.1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: torch.optim.Adam(p, weight_decay=0.1), "Adam with L2 decay"),
        (lambda p: torch.optim.AdamW(p, amsgrad=True), "amsgrad"),
        (lambda p: torch.optim.SGD(p, momentum=0.9, dampening=0.1), "dampening"),
        (lambda p: torch.optim.Adagrad(p), "use RVWrapper"),
        (lambda p: RVLion(p), "rotational already"),
    ],
)
def test_what_has_no_twin_is_named(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        to_rotational(make([nn.Parameter(torch.randn(3, 4))]))


def test_plain_optimizers_cannot_be_turned_back() -> None:
    with pytest.raises(ValueError, match="not rotational"):
        from_rotational(torch.optim.SGD([nn.Parameter(torch.randn(3, 4))]))


def test_twins_are_exactly_the_named_classes() -> None:
    p = [nn.Parameter(torch.randn(3, 4))]
    assert [type(to_rotational(make(p))) for make in PLAIN.values()] == [RVAdamW, RVSGD, RVLion]
