"""RVWrapper: equal to the twins where the rate is known, clear where it is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from assay.training.rotational import RVSGD, Lion, RVAdamW, RVLion, RVWrapper

TWINS: dict[str, tuple[Callable[..., torch.optim.Optimizer], Callable[..., torch.optim.Optimizer]]] = {
    "adamw": (
        lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1),
        lambda p, **k: RVAdamW(p, lr=1e-2, weight_decay=0.1, **k),
    ),
    "adam-decoupled": (
        lambda p: torch.optim.Adam(p, lr=1e-2, weight_decay=0.1, decoupled_weight_decay=True),
        lambda p, **k: RVAdamW(p, lr=1e-2, weight_decay=0.1, **k),
    ),
    "sgd": (
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.05),
        lambda p, **k: RVSGD(p, lr=0.1, momentum=0.9, weight_decay=0.05, **k),
    ),
    "nesterov": (
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.05, nesterov=True),
        lambda p, **k: RVSGD(p, lr=0.1, momentum=0.9, weight_decay=0.05, nesterov=True, **k),
    ),
    "lion": (lambda p: Lion(p, lr=1e-3, weight_decay=1.0), lambda p, **k: RVLion(p, lr=1e-3, weight_decay=1.0, **k)),
}


def parameters(seed: int = 0) -> list[nn.Parameter]:
    torch.manual_seed(seed)
    # Rows long enough that no first gradient has one sign throughout: what is left of Adam's first direction (its signs)
    # without its mean is then eps of it, and the last bit of either direction is not small beside that.
    shapes = [(4, 24), (4, 24), (3, 2, 3, 3), (5,)]
    return [nn.Parameter(torch.randn(s, dtype=torch.float64)) for s in shapes]


def steps(optimizer: torch.optim.Optimizer, params: list[nn.Parameter], n: int, first: int = 0) -> None:
    for t in range(first, first + n):
        torch.manual_seed(1000 + t)
        for p in params:
            p.grad = torch.randn_like(p)
        optimizer.step()


@pytest.mark.parametrize("options", [{}, {"per_neuron": False}, {"zero_mean": False, "update_norm_decay_factor": 0.5}])
@pytest.mark.parametrize("name", list(TWINS))
def test_equals_the_twin(name: str, options: dict[str, object]) -> None:
    plain, twin = TWINS[name]
    one, two = parameters(), parameters()
    steps(RVWrapper(plain(one), **options), one, 15)  # type: ignore[arg-type]
    steps(twin(two, **options), two, 15)
    for a, b in zip(one, two, strict=True):
        torch.testing.assert_close(a.detach(), b.detach(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", list(TWINS))
def test_short_rows_differ_by_rounding_alone(name: str) -> None:
    plain, twin = TWINS[name]
    ends = []
    for make in (lambda p: RVWrapper(plain(p)), twin):
        torch.manual_seed(1)
        params = [nn.Parameter(torch.randn(40, 6, dtype=torch.float64))]
        steps(make(params), params, 15)
        ends.append(params[0].detach())
    # Of a row whose six first gradients have one sign (one in 32), Adam's first direction minus its mean is about
    # eps = 1e-8: both sides round it by 2^-53, and their angles differ by that quotient of the step.
    rate = (2 * 1e-2 * 0.1) ** 0.5
    torch.testing.assert_close(*ends, rtol=0, atol=2**-53 / 1e-8 * rate * 6)


def test_small_learning_rates_lose_no_digits() -> None:
    # In float32 a difference of weights holds 6e-8 / lr of a direction: nothing at 1e-7.
    ends = []
    for wrapped in (True, False):
        torch.manual_seed(2)
        p = nn.Parameter(torch.randn(8, 50))
        start = p.detach().clone()
        options = {"lr": 1e-7, "weight_decay": 1e3}
        optimizer = RVWrapper(torch.optim.AdamW([p], **options)) if wrapped else RVAdamW([p], **options)  # type: ignore[arg-type]
        steps(optimizer, [p], 10)
        ends.append(p.detach())
    assert (ends[1] - start).abs().max() > 1e-3
    torch.testing.assert_close(*ends, rtol=0, atol=1e-6)


def test_rules_that_may_look_at_the_weights_see_them() -> None:
    class Scaled(torch.optim.SGD):
        seen: list[float]

        def step(self, closure: object = None) -> None:  # type: ignore[override]
            self.seen = [float(p.detach().norm()) for g in self.param_groups for p in g["params"]]
            super().step()

    params = parameters()
    optimizer = RVWrapper(Scaled(params, lr=0.1, momentum=0.9, weight_decay=0.05))
    norms = [float(p.detach().norm()) for p in params]
    steps(optimizer, params, 1)
    assert sorted(optimizer.optimizer.seen) == pytest.approx(sorted(norms))  # type: ignore[attr-defined]


def test_weights_come_back_when_the_inner_step_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    params = parameters()
    optimizer = RVWrapper(torch.optim.SGD(params, lr=0.1, weight_decay=0.1))

    def fail(*args: object) -> None:
        raise RuntimeError("inside")

    monkeypatch.setattr(torch.optim.SGD, "_init_group", fail)
    before = [p.detach().clone() for p in params]
    with pytest.raises(RuntimeError, match="inside"):
        steps(optimizer, params, 1)
    assert all(torch.equal(a, b) for a, b in zip(before, params, strict=True))


def test_equals_the_twin_through_a_warmup_from_zero() -> None:
    plain, twin = TWINS["adamw"]
    ends = []
    for wrapped in (True, False):
        params = parameters()
        optimizer = RVWrapper(plain(params)) if wrapped else twin(params)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: min(t / 4, 1.0))
        for t in range(8):
            steps(optimizer, params, 1, t)
            scheduler.step()
        ends.append([p.detach() for p in params])
    for a, b in zip(*ends, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_any_rule_turns_by_the_given_rate() -> None:
    p = nn.Parameter(torch.randn(4, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    inner = torch.optim.Adagrad([p], lr=0.1, weight_decay=0.1)
    optimizer = RVWrapper(inner, rotation_rate=lambda g: g["lr"] * 0.2, update_norm_decay_factor=0.0)
    before = p.detach().clone()
    p.grad = torch.randn_like(p)
    optimizer.step()
    chord = (p.detach() - before).norm(dim=1) / before.norm(dim=1)
    expected = torch.tensor(0.02, dtype=torch.float64).arctan()
    torch.testing.assert_close(2 * torch.asin(chord / 2), expected.expand(4), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.Adam(p, weight_decay=0.1),
        lambda p: torch.optim.RMSprop(p, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, momentum=0.9, dampening=0.5, weight_decay=0.1),
    ],
)
def test_rules_without_a_closed_form_ask_for_a_rate(make: Callable[..., torch.optim.Optimizer]) -> None:
    with pytest.raises(ValueError, match="give rotation_rate"):
        RVWrapper(make([nn.Parameter(torch.randn(3, 4))]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: "adamw", r"wraps a torch\.optim\.Optimizer, not str"),
        (lambda p: RVAdamW(p), "rotational already"),
        (lambda p: torch.optim.LBFGS(p), "several steps per call"),
        (lambda p: torch.optim.AdamW(p, weight_decay=-1.0), "weight_decay"),
    ],
)
def test_what_cannot_be_wrapped_is_named(make: Callable[..., torch.optim.Optimizer], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RVWrapper(make([nn.Parameter(torch.randn(3, 4))]))


def test_half_precision_is_refused() -> None:
    p = nn.Parameter(torch.randn(3, 4).bfloat16())
    with pytest.raises(ValueError, match="rounds away the difference"):
        RVWrapper(torch.optim.AdamW([p], weight_decay=0.1))


def test_state_of_a_plain_optimizer_is_refused() -> None:
    params = parameters()
    state = torch.optim.AdamW(params).state_dict()
    with pytest.raises(ValueError, match="'inner'"):
        RVWrapper(torch.optim.AdamW(params)).load_state_dict(state)


def test_groups_are_shared_and_added_ones_rotate() -> None:
    params = parameters()
    inner = torch.optim.AdamW(params[:1], lr=1e-2, weight_decay=0.1)
    optimizer = RVWrapper(inner)
    optimizer.add_param_group({"params": params[1:2]})
    optimizer.param_groups[0]["lr"] = 0.5
    assert inner.param_groups[0]["lr"] == 0.5
    norms = [p.detach().norm(dim=1) for p in params[:2]]
    steps(optimizer, params[:2], 5)
    for p, norm in zip(params[:2], norms, strict=True):
        torch.testing.assert_close(p.detach().norm(dim=1), norm, rtol=1e-12, atol=0)
    # The decay is off for the inner step only.
    assert [g["weight_decay"] for g in inner.param_groups] == [0.1, 0.1]


def test_decay_comes_back_after_a_failing_step() -> None:
    class Failing(torch.optim.SGD):
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            raise RuntimeError("inside")

    params = parameters()
    inner = Failing(params, lr=0.1, weight_decay=0.1)
    optimizer = RVWrapper(inner)
    with pytest.raises(RuntimeError, match="inside"):
        steps(optimizer, params, 1)
    assert len(inner.param_groups) == 1
    assert inner.param_groups[0]["weight_decay"] == 0.1
    assert inner.param_groups[0]["params"] == params
