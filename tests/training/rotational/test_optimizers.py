"""What users of torch expect of an optimizer, and what the rotational ones promise beyond it."""

from __future__ import annotations

import copy
import io
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.training.rotational import RVSGD, Lion, RVAdamW, RVLion, RVWrapper
from assay.training.rotational._rv import turn

MAKE: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "RVAdamW": lambda p, **k: RVAdamW(p, **{"lr": 1e-2, "weight_decay": 0.1, **k}),
    "RVSGD": lambda p, **k: RVSGD(p, **{"lr": 0.1, "weight_decay": 0.01, **k}),
    "RVLion": lambda p, **k: RVLion(p, **{"lr": 1e-3, "weight_decay": 1.0, **k}),
    "RVWrapper": lambda p, **k: RVWrapper(torch.optim.AdamW(p, **{"lr": 1e-2, "weight_decay": 0.1, **k})),
    "Lion": lambda p, **k: Lion(p, **{"lr": 1e-3, "weight_decay": 0.1, **k}),
}
TURNING = ["RVAdamW", "RVSGD", "RVLion", "RVWrapper"]


def small_net(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(2, 6, 3), nn.GroupNorm(1, 6), nn.ReLU(), nn.Flatten(), nn.Linear(24, 24), nn.Linear(24, 24)
    ).to(dtype)


def backward(model: nn.Module, step: int) -> Tensor:
    generator = torch.Generator().manual_seed(step)
    dtype = next(model.parameters()).dtype
    x = torch.randn(8, 2, 4, 4, generator=generator).to(dtype)
    y = torch.randn(8, 24, generator=generator).to(dtype)
    model.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    return loss


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        backward(model, step)
        optimizer.step()


def weights(model: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def same(one: nn.Module, two: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights(one), weights(two), strict=True))


# --- the promises of the method


def hold_norms(name: str, steps: int) -> None:
    torch.manual_seed(0)
    w = nn.Parameter(torch.randn(2, 40))
    optimizer = MAKE[name]([w])
    norm = w.detach().double().norm(dim=1)
    noise = torch.randn(101, 2, 40)
    for t in range(steps):
        w.grad = noise[t % 101]
        optimizer.step()
    torch.testing.assert_close(w.detach().double().norm(dim=1), norm, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", TURNING)
def test_norms_are_held(name: str) -> None:
    hold_norms(name, 100)


@pytest.mark.slow
@pytest.mark.parametrize("name", TURNING)
def test_norms_are_held_by_ten_thousand_whole_steps(name: str) -> None:
    hold_norms(name, 10_000)


def test_norms_are_held_by_many_turns() -> None:
    # The turn alone, which all rules share: whole steps spend their time around it. The slow test takes 10,000.
    torch.manual_seed(0)
    w, noise = torch.randn(3, 40), torch.randn(101, 3, 40)
    w -= w.mean(1, keepdim=True)
    exact, norm, total = w.double().norm(dim=1), w.norm(dim=1), torch.zeros(3)
    group = RVAdamW([nn.Parameter(w.clone())]).param_groups[0]
    for t in range(2_000):
        turn(w, noise[t % 101], norm, total, group, 3e-3, 1.0, t + 1)
    torch.testing.assert_close(w.double().norm(dim=1), exact, rtol=1e-6, atol=0)
    assert (w.double().mean(1).abs() / exact).max() < 1e-5  # the same rounding, added up at random


@pytest.mark.parametrize("name", TURNING)
def test_mean_stays_zero(name: str) -> None:
    model = small_net()
    optimizer = MAKE[name](model.parameters())
    train(model, optimizer, range(30))
    for p in model.parameters():
        if p.ndim >= 2:
            rows = p.detach().flatten(1).double()
            # Rounding of single float32 weights, added up at random over 30 steps.
            assert (rows.mean(1).abs() / rows.norm(dim=1)).max() < 1e-6


def test_without_memory_every_step_turns_by_the_arctangent_of_the_rate() -> None:
    torch.manual_seed(1)
    w = nn.Parameter(torch.randn(5, 30, dtype=torch.float64))
    optimizer = RVSGD([w], lr=0.2, momentum=0.0, weight_decay=0.01, update_norm_decay_factor=0.0)
    for _ in range(5):
        before = w.detach().clone()
        w.grad = torch.randn_like(w)
        optimizer.step()
        chord = (w.detach() - before).norm(dim=1) / before.norm(dim=1)
        expected = math.atan(math.sqrt(2 * 0.2 * 0.01))
        # rotational_eps of 1e-8 beside an update norm of about 5.
        torch.testing.assert_close(2 * torch.asin(chord / 2), torch.full_like(chord, expected), rtol=1e-7, atol=0)


def test_rotation_scales_with_the_root_of_lr_and_with_rotation_scale() -> None:
    def angle(**options: Any) -> float:
        torch.manual_seed(1)
        w = nn.Parameter(torch.randn(3, 30, dtype=torch.float64))
        optimizer = RVLion([w], weight_decay=0.5, update_norm_decay_factor=0.0, rotational_eps=0.0, **options)
        before = w.detach().clone()
        w.grad = torch.randn_like(w)
        optimizer.step()
        return math.tan(2 * math.asin(float((w.detach() - before).norm() / before.norm()) / 2))

    assert angle(lr=4e-3) == pytest.approx(2 * angle(lr=1e-3), rel=1e-9)
    assert angle(lr=1e-3, rotation_scale=3.0) == pytest.approx(3 * angle(lr=1e-3), rel=1e-9)
    assert angle(lr=1e-3, rotation_scale=0.0) == 0.0


@pytest.mark.parametrize("name", TURNING)
def test_foreach_equals_the_loop(name: str) -> None:
    runs = []
    for foreach in (True, False):
        model = small_net()
        if name == "RVWrapper":
            inner = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
            optimizer: torch.optim.Optimizer = RVWrapper(inner, foreach=foreach)
        else:
            optimizer = MAKE[name](model.parameters(), foreach=foreach)
        # Fixed gradients: the training loop itself would amplify the last bit (Lion takes signs).
        for step in range(20):
            torch.manual_seed(step)
            for p in model.parameters():
                p.grad = torch.randn_like(p)
            optimizer.step()
        runs.append(weights(model))
    for a, b in zip(*runs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("RVAdamW", lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1)),
        ("RVSGD", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01)),
        ("RVLion", lambda p: Lion(p, lr=1e-3, weight_decay=1.0)),
    ],
)
def test_other_parameters_take_the_plain_update(name: str, plain: Callable[..., torch.optim.Optimizer]) -> None:
    one, two = small_net(dtype=torch.float64), small_net(dtype=torch.float64)
    train(one, MAKE[name](one.parameters(), rotational=False), range(10))
    train(two, plain(two.parameters()), range(10))
    for a, b in zip(weights(one), weights(two), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_lion_takes_steps_of_equal_size_after_decay() -> None:
    w = nn.Parameter(torch.tensor([[1.0, -2.0, 4.0]], dtype=torch.float64))
    optimizer = Lion([w], lr=0.1, betas=(0.5, 0.5), weight_decay=0.5)
    w.grad = torch.tensor([[3.0, -1.0, 0.0]], dtype=torch.float64)
    optimizer.step()
    torch.testing.assert_close(w.detach()[0].tolist(), [0.95 - 0.1, -1.9 + 0.1, 3.8])


# --- what torch users expect


@pytest.mark.parametrize("name", list(MAKE))
def test_saved_state_goes_on_bitwise(name: str) -> None:
    model = small_net()
    optimizer = MAKE[name](model.parameters())
    train(model, optimizer, range(5))
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    resumed = small_net(seed=9)
    resumed.load_state_dict(saved["model"])
    again = MAKE[name](resumed.parameters())  # must not centre what is centred
    assert same(model, resumed)
    again.load_state_dict(saved["optimizer"])
    assert same(model, resumed)
    train(model, optimizer, range(5, 15))
    train(resumed, again, range(5, 15))
    assert same(model, resumed)


@pytest.mark.parametrize("name", list(MAKE))
def test_deepcopy_and_pickle_go_on_bitwise(name: str) -> None:
    model = small_net()
    optimizer = MAKE[name](model.parameters())
    train(model, optimizer, range(3))
    start = model[0].weight.detach().clone()
    ends = []
    for twin in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer)), optimizer):
        for step in range(3):
            torch.manual_seed(step)
            for group in twin.param_groups:
                for p in group["params"]:
                    p.grad = torch.randn_like(p)
            twin.step()
        ends.append([p.detach().clone() for g in twin.param_groups for p in g["params"]])
        assert not torch.equal(ends[-1][0], start)
    for end in ends[:-1]:
        assert all(torch.equal(a, b) for a, b in zip(end, ends[-1], strict=True))


def test_norm_state_stays_float32_beside_bfloat16_weights() -> None:
    def make(model: nn.Module) -> RVAdamW:
        return RVAdamW(model.parameters(), lr=0.1, weight_decay=0.5)

    model = small_net(dtype=torch.bfloat16)
    optimizer = make(model)
    norm = model[4].weight.detach().double().norm(dim=1)
    train(model, optimizer, range(20))
    # One rounding of every weight to 8 bits, which averages out over the 24 weights of a neuron.
    torch.testing.assert_close(model[4].weight.detach().double().norm(dim=1), norm, rtol=4e-3, atol=0)
    twin = copy.deepcopy(model)
    other = make(twin)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert other.state[twin[4].weight]["norm"].dtype == torch.float32
    train(model, optimizer, range(20, 25))
    train(twin, other, range(20, 25))
    assert same(model, twin)


@pytest.mark.parametrize("name", TURNING)
def test_state_is_two_scalars_per_neuron_beyond_the_moments(name: str) -> None:
    model = small_net()
    optimizer = MAKE[name](model.parameters())
    train(model, optimizer, range(1))
    weight = model[4].weight
    extra = [v for v in optimizer.state[weight].values() if isinstance(v, Tensor) and v.shape != weight.shape]
    assert sum(v.numel() for v in extra) == 2 * weight.shape[0]


@pytest.mark.parametrize("name", TURNING)
def test_schedulers_and_tensor_learning_rates(name: str) -> None:
    def run(lr: Any) -> list[Tensor]:
        model = small_net(dtype=torch.float64)
        optimizer = MAKE[name](model.parameters(), lr=lr)
        scheduler = torch.optim.lr_scheduler.SequentialLR(
            optimizer,
            [
                torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: t / 3),  # starts at 0
                torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5),
            ],
            milestones=[3],
        )
        start = weights(model)
        for step in range(8):
            backward(model, step)
            optimizer.step()
            scheduler.step()
            if step == 0:  # lr 0: nothing moves, the moments and the update norm start
                for a, b in zip(start, weights(model), strict=True):
                    torch.testing.assert_close(a, b, rtol=1e-14, atol=0)
        assert all(torch.isfinite(w).all() for w in weights(model))
        assert not torch.equal(start[0], weights(model)[0])
        return weights(model)

    numbers = run(1e-2)
    tensors = run(torch.tensor(1e-2, dtype=torch.float64))
    for a, b in zip(numbers, tensors, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", list(MAKE))
def test_closure_is_called_once_with_gradients(name: str) -> None:
    model = small_net()
    optimizer = MAKE[name](model.parameters())
    calls = []

    def closure() -> Tensor:
        calls.append(torch.is_grad_enabled())
        return backward(model, 0)

    loss = optimizer.step(closure)
    assert isinstance(loss, Tensor)
    assert loss.item() > 0
    assert calls == [True]


@pytest.mark.parametrize("name", TURNING)
def test_parameters_without_gradient_are_untouched(name: str) -> None:
    model = small_net()
    optimizer = MAKE[name](model.parameters())
    frozen = model[5].weight.detach().clone()
    for step in range(3):
        backward(model, step)
        model[5].weight.grad = None
        optimizer.step()
    assert torch.equal(model[5].weight, frozen)
    assert model[5].weight not in optimizer.state


def test_tied_weights_move_once() -> None:
    w = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    ends = []
    for mentions in (1, 2):
        p = nn.Parameter(w.clone())
        optimizer = RVAdamW([p] * mentions, lr=0.1, weight_decay=0.1)
        p.grad = torch.ones_like(p) * torch.arange(6)
        optimizer.step()
        ends.append(p.detach().clone())
        assert len(optimizer.param_groups[0]["params"]) == 1
    assert torch.equal(*ends)


@pytest.mark.parametrize("foreach", [True, False])
def test_rows_without_gradient_stay_to_the_bit(foreach: bool) -> None:
    torch.manual_seed(0)
    table = nn.Embedding(6, 8)
    optimizer = RVAdamW(table.parameters(), lr=0.1, weight_decay=0.1, foreach=foreach)
    start = table.weight.detach().clone()
    for _ in range(5):
        optimizer.zero_grad()
        (table(torch.tensor([0, 2])) * torch.randn(2, 8)).sum().backward()
        optimizer.step()
    idle = [1, 3, 4, 5]
    assert torch.equal(table.weight[idle], start[idle])
    assert not torch.equal(table.weight[[0, 2]], start[[0, 2]])


@pytest.mark.parametrize("foreach", [True, False])
def test_neurons_without_norm_wait_for_one(foreach: bool) -> None:
    torch.manual_seed(0)
    start = torch.randn(4, 6)
    start[1] = 0.0
    start[2] = 0.7  # constant: nothing without its mean
    p = nn.Parameter(start.clone())
    optimizer = RVAdamW([p], lr=0.01, weight_decay=0.1, on_zero="skip", foreach=foreach)
    assert torch.equal(p[1:3], start[1:3])
    p.grad = torch.randn(4, 6)
    p.grad[1] = 0.0
    optimizer.step()
    assert torch.equal(p[1].detach(), torch.zeros(6))
    norm = float(p.detach()[2].norm())
    for _ in range(20):
        p.grad = torch.randn(4, 6)
        optimizer.step()
    assert torch.isfinite(p).all()
    assert float(p.detach()[1].norm()) > 0
    assert float(p.detach()[2].norm()) == pytest.approx(norm, rel=1e-5)  # held from its first norm on


def test_purely_radial_gradients_keep_the_norm() -> None:
    torch.manual_seed(0)
    p = nn.Parameter(torch.randn(5, 16))
    optimizer = RVSGD([p], lr=0.1, weight_decay=0.1)
    norm = p.detach().double().norm(dim=1)
    for _ in range(50):
        p.grad = p.detach().clone()
        optimizer.step()
    # What is left of the direction is rounding, in any direction, and the norm must hold all the same.
    torch.testing.assert_close(p.detach().double().norm(dim=1), norm, rtol=1e-6, atol=0)


def test_maximize_is_the_negative_gradient() -> None:
    torch.manual_seed(0)
    w, g = torch.randn(3, 5), torch.randn(3, 5)
    p, q = nn.Parameter(w.clone()), nn.Parameter(w.clone())
    p.grad, q.grad = g.clone(), -g
    RVLion([p], maximize=True).step()
    RVLion([q]).step()
    assert torch.equal(p, q)


@pytest.mark.parametrize("name", TURNING)
def test_grad_scaler_skips_a_step_that_overflowed(name: str) -> None:
    model = small_net()
    optimizer = MAKE[name](model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    backward(model, 0)
    for p in model.parameters():
        assert p.grad is not None
        p.grad.mul_(4.0)
    start = weights(model)
    model[4].weight.grad[0, 0] = math.inf  # type: ignore[index]
    scaler.scale(torch.ones(()))
    scaler.step(optimizer)
    scaler.update()
    assert all(torch.equal(a, b) for a, b in zip(start, weights(model), strict=True))
    assert scaler.get_scale() == 2.0


def test_groups_keep_their_own_options_and_names() -> None:
    model = small_net()
    optimizer = RVAdamW(
        [
            {"params": list(model[0].named_parameters()), "rotation_scale": 0.5},
            {"params": list(model[4].named_parameters()), "rotational": False},
        ],
        lr=1e-2,
        weight_decay=0.1,
    )
    train(model, optimizer, range(2))
    assert "norm" in optimizer.state[model[0].weight]
    assert "norm" not in optimizer.state[model[0].bias]
    assert "norm" not in optimizer.state[model[4].weight]


def test_decay_set_to_zero_in_training_leads_to_the_plain_update() -> None:
    model = small_net()
    optimizer = RVAdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    train(model, optimizer, range(3))
    optimizer.param_groups[0]["weight_decay"] = 0.0
    norm = model[4].weight.detach().norm(dim=1)
    train(model, optimizer, range(3, 6))
    assert not torch.allclose(model[4].weight.detach().norm(dim=1), norm)


def test_step_hooks_run() -> None:
    model = small_net()
    optimizer = RVAdamW(model.parameters())
    seen: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    train(model, optimizer, range(1))
    assert seen == ["before", "after"]


@pytest.mark.slow
def test_compiled_loops_run_the_step_eagerly_and_full_graphs_are_refused() -> None:
    one, two = small_net(), small_net()
    first, second = RVAdamW(one.parameters()), RVAdamW(two.parameters())
    compiled = torch.compile(first.step, backend="eager")
    for step in range(3):
        backward(one, step)
        compiled()
        backward(two, step)
        second.step()
    assert same(one, two)
    backward(one, 3)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="runs eagerly"):
        torch.compile(first.step, backend="eager", fullgraph=True)()
