"""The contract of kind "optimizer": what `torch.optim.Optimizer` promises to training loops, schedulers and scalers."""
# ruff: noqa: PT018 - one assert, one message

from __future__ import annotations

import copy
import inspect
import io
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ._cases import Case, Check, CheckResult, not_applicable, run_checks

# After a step at lr = 0 a parameter may differ by rounding only: optimizers that renormalise weights divide and multiply
# by the same norm, which costs a few float32 ulps (1.2e-7 each).
_ROUNDING = {"rtol": 2e-6, "atol": 1e-7}


def _net(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """6-8-3 network with random weights and biases; the global generator is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)
        for p in net.parameters():
            nn.init.normal_(p, std=0.7)
    return net


def _batch(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """60 points of three classes that a small network separates."""
    g = torch.Generator().manual_seed(1)
    y = torch.arange(60) % 3
    x = 0.5 * torch.randn(60, 6, generator=g, dtype=torch.float64)
    x[torch.arange(60), y] += 2.0
    return x.to(dtype), y


def _backward(net: nn.Module) -> Tensor:
    x, y = _batch(next(net.parameters()).dtype)
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    return loss.detach()


def _train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> Tensor:
    loss = torch.zeros(())
    for _ in range(steps):
        optimizer.zero_grad()
        loss = _backward(net)
        optimizer.step()
    return loss


def _copies(parameters: Iterable[Tensor]) -> list[Tensor]:
    return [p.detach().clone() for p in parameters]


def _equal(a: Iterable[Tensor], b: Iterable[Tensor]) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a, b, strict=True))


def _close(a: Iterable[Tensor], b: Iterable[Tensor], rtol: float, atol: float) -> bool:
    return all(torch.allclose(p, q, rtol=rtol, atol=atol) for p, q in zip(a, b, strict=True))


def _moved(before: Iterable[Tensor], after: Iterable[Tensor]) -> float:
    return max(float((p - q.detach()).abs().max()) for p, q in zip(before, after, strict=True))


def _rebuild(case: Case, parameters: Any, **changes: Any) -> torch.optim.Optimizer:
    """The same optimizer with other arguments: its class called with its own defaults and the changes."""
    template = case.make()(_net().parameters())
    accepted = inspect.signature(type(template).__init__).parameters
    first = list(accepted)[1]
    if first not in ("params", "parameters"):
        raise not_applicable(f"{type(template).__name__} takes {first}, not parameters")
    for name in changes:
        if name not in accepted:
            raise not_applicable(f"{type(template).__name__} has no argument {name}")
    kept = {k: v for k, v in template.defaults.items() if k in accepted and k not in changes}
    return type(template)(parameters, **kept, **changes)


def check_is_optimizer(case: Case) -> None:
    """It is a torch.optim.Optimizer, `step()` returns None and moves every parameter that has a gradient."""
    net = _net()
    optimizer = case.make()(net.parameters())
    assert isinstance(optimizer, torch.optim.Optimizer), f"{type(optimizer).__name__} is no torch.optim.Optimizer"
    before = _copies(net.parameters())
    _backward(net)
    assert optimizer.step() is None, "step() without a closure must return None"
    for (name, p), old in zip(net.named_parameters(), before, strict=True):
        assert not torch.equal(p, old), f"{name} has a gradient but did not move"
        assert torch.isfinite(p).all(), f"{name} is not finite after one step"


def check_parameter_groups(case: Case) -> None:
    """Each group has its own options: a group with lr 0 stays, the other moves."""
    net = _net()
    optimizer = case.make()([{"params": list(net[0].parameters()), "lr": 0.0}, {"params": list(net[2].parameters())}])
    frozen, free = _copies(net[0].parameters()), _copies(net[2].parameters())
    _train(net, optimizer, 3)
    assert _close(net[0].parameters(), frozen, **_ROUNDING), "the group with lr=0 moved: its own lr is not used"
    assert _moved(free, net[2].parameters()) > 0, "the group with the default lr did not move"


def check_lr_read_each_step(case: Case) -> None:
    """`group["lr"]` is read at each step, so that a scheduler works."""
    net = _net()
    optimizer = case.make()(net.parameters())
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0 if epoch < 2 else 0.0)
    start = _copies(net.parameters())
    for _ in range(2):
        _train(net, optimizer, 1)
        scheduler.step()
    assert _moved(start, net.parameters()) > 0, "nothing moved before the scheduler set lr to 0"
    held = _copies(net.parameters())
    _train(net, optimizer, 1)
    assert _close(net.parameters(), held, **_ROUNDING), "parameters moved although the scheduler had set lr to 0"


def check_state_dict_round_trip(case: Case) -> None:
    """Saved, loaded with weights_only=True into a fresh optimizer and continued, the run is bitwise the same."""
    net = _net(0)
    optimizer = case.make()(net.parameters())
    _train(net, optimizer, 3)
    file = io.BytesIO()
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    other = _net(7)
    restored = case.make()(other.parameters())
    other.load_state_dict(loaded["net"])
    restored.load_state_dict(loaded["optimizer"])
    _train(net, optimizer, 4)
    _train(other, restored, 4)
    assert _equal(net.parameters(), other.parameters()), "the run continued from the state_dict differs"


def check_closure(case: Case) -> None:
    """`step(closure)` calls it once, with gradients enabled even under no_grad, and returns its value."""
    net, twin = _net(), _net()
    optimizer, plain = case.make()(net.parameters()), case.make()(twin.parameters())
    calls: list[bool] = []

    def closure() -> Tensor:
        calls.append(torch.is_grad_enabled())
        optimizer.zero_grad()
        with torch.enable_grad():  # so that a wrong optimizer fails by the assert below, not inside backward
            return _backward(net)

    with torch.no_grad():
        value = optimizer.step(closure)
    assert len(calls) == 1, f"the closure was called {len(calls)} times"
    assert calls[0], "the closure was called with gradients disabled"
    expected = _train(twin, plain, 1)
    assert value is not None and torch.equal(torch.as_tensor(value), expected), (
        "step(closure) must return the closure's value"
    )
    assert _equal(net.parameters(), twin.parameters()), "step(closure) and step() after backward differ"


def check_add_param_group(case: Case) -> None:
    """A group added after some steps is trained from then on, with the options it was added with."""
    net = _net()
    optimizer = case.make()(net[2].parameters())
    _train(net, optimizer, 2)
    optimizer.add_param_group({"params": list(net[0].parameters())})
    held = _copies(net[0].parameters())
    _train(net, optimizer, 1)
    assert len(optimizer.param_groups) == 2, "add_param_group did not add a group"
    assert set(optimizer.param_groups[0]) == set(optimizer.param_groups[1]), "the added group lacks the default options"
    assert _moved(held, net[0].parameters()) > 0, "the added group did not move"


def check_no_gradient_untouched(case: Case) -> None:
    """Parameters whose gradient is None, or that do not require one, keep their bits through steps."""
    net = _net()
    bias = net[2].get_parameter("bias").requires_grad_(False)
    idle = nn.Parameter(torch.linspace(-1.0, 1.0, 12).reshape(3, 4))
    optimizer = case.make()([*net.parameters(), idle])
    held = _copies([bias, idle])
    _train(net, optimizer, 3)
    assert torch.equal(bias, held[0]), "a parameter with requires_grad=False moved"
    assert torch.equal(idle, held[1]), "a parameter without a gradient moved"
    assert idle not in optimizer.state or not optimizer.state[idle], "state was made for a parameter without a gradient"


def check_zero_grad(case: Case) -> None:
    """`zero_grad()` sets gradients to None, `zero_grad(set_to_none=False)` to zero."""
    net = _net()
    optimizer = case.make()(net.parameters())
    _backward(net)
    optimizer.zero_grad(set_to_none=False)
    assert all(p.grad is not None and not p.grad.any() for p in net.parameters()), "set_to_none=False must leave zeros"
    _backward(net)
    optimizer.zero_grad()
    assert all(p.grad is None for p in net.parameters()), "zero_grad() must set gradients to None"


def check_gradients_kept(case: Case) -> None:
    """A step reads gradients and does not write them: hooks, monitors and clipping logs read them afterwards."""
    net = _net()
    optimizer = case.make()(net.parameters())
    _train(net, optimizer, 1)
    optimizer.zero_grad()
    _backward(net)
    held = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    optimizer.step()
    assert _equal([p.grad for p in net.parameters() if p.grad is not None], held), "step() changed p.grad"


def check_deterministic(case: Case) -> None:
    """Two runs from the same weights give the same bits, whatever the global generator holds."""
    runs = []
    for seed in (3, 4):
        net = _net()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            _train(net, case.make()(net.parameters()), 5)
        runs.append(_copies(net.parameters()))
    assert _equal(*runs), "two equal runs differ"


def check_negative_lr_refused(case: Case) -> None:
    """A negative learning rate is refused with ValueError."""
    try:
        _rebuild(case, _net().parameters(), lr=-1e-3)
    except ValueError:
        return
    raise AssertionError("lr=-0.001 was accepted")


def check_empty_parameters_refused(case: Case) -> None:
    """An empty parameter list is refused with ValueError."""
    try:
        case.make()([])
    except ValueError:
        return
    raise AssertionError("an empty parameter list was accepted")


def check_foreach_equal(case: Case) -> None:
    """foreach=True and foreach=False agree in float64 to rounding."""
    nets = []
    for foreach in (False, True):
        net = _net(dtype=torch.float64)
        _train(net, _rebuild(case, net.parameters(), foreach=foreach), 20)
        nets.append(net)
    # 20 steps of float64 work whose sums are taken in another order: 1e-10 is 4e5 ulps, far below a wrong formula
    assert _close(nets[0].parameters(), nets[1].parameters(), rtol=1e-10, atol=1e-12), "foreach changes the result"


def check_grad_scaler(case: Case) -> None:
    """Under a GradScaler: the scaled run equals the plain one, and a step with an infinite gradient is skipped."""
    net, twin = _net(), _net()
    optimizer, plain = case.make()(net.parameters()), case.make()(twin.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for _ in range(3):
        optimizer.zero_grad()
        x, y = _batch()
        scaler.scale(nn.functional.cross_entropy(net(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()
    _train(twin, plain, 3)
    # scaling by a power of two is exact but for subnormal numbers
    assert _close(net.parameters(), twin.parameters(), rtol=1e-5, atol=1e-7), (
        "the scaled run differs from the plain one"
    )
    held = _copies(net.parameters())
    optimizer.zero_grad()
    x, y = _batch()
    scaler.scale(nn.functional.cross_entropy(net(x), y)).backward()
    next(net.parameters()).grad.fill_(float("inf"))  # type: ignore[union-attr]
    scaler.step(optimizer)
    scaler.update()
    assert _equal(net.parameters(), held), "a step with an infinite gradient was not skipped"


def check_deepcopy(case: Case) -> None:
    """A deep copy of network and optimizer goes on with the same bits and leaves the original alone."""
    net = _net()
    optimizer = case.make()(net.parameters())
    _train(net, optimizer, 2)
    net2, optimizer2 = copy.deepcopy((net, optimizer))
    held = _copies(net.parameters())
    _train(net2, optimizer2, 3)
    assert _equal(net.parameters(), held), "stepping the copy moved the original"
    _train(net, optimizer, 3)
    assert _equal(net.parameters(), net2.parameters()), "the copy went another way than the original"


# A case may sit at a cautious rate: up to a hundred times its own is tried, and the first success ends the search.
_FACTORS = (1.0, 10.0, 100.0)


def check_minimises_quadratic(case: Case) -> None:
    """On f(x) = sum a_i (x_i - t_i)^2 / 2 the value falls below a quarter of its start within 300 steps."""
    a, t = torch.tensor([1.0, 2.0, 3.0, 0.5]), torch.tensor([1.0, -1.0, 0.5, 1.0])

    def run(factor: float) -> float:
        x = nn.Parameter(torch.zeros(4))
        optimizer = case.make()([x])
        for group in optimizer.param_groups:
            group["lr"] *= factor
        value = torch.zeros(())
        for _ in range(300):
            optimizer.zero_grad()
            value = 0.5 * (a * (x - t) ** 2).sum()
            value.backward()
            optimizer.step()
        return float(value.detach().nan_to_num(nan=float("inf")))

    start = float(0.5 * (a * t**2).sum())
    ends = []
    for factor in _FACTORS:
        ends.append(run(factor))
        if ends[-1] < 0.25 * start:
            return
    raise AssertionError(f"the quadratic went from {start:.3g} to {ends} at 1, 10 and 100 times the rate")


def check_learns_classification(case: Case) -> None:
    """A small network on three separable classes: the loss halves and training accuracy passes 90 % in 200 steps."""
    x, y = _batch()
    start = float(nn.functional.cross_entropy(_net()(x), y).detach())
    outcomes = []
    for factor in _FACTORS:
        net = _net()
        optimizer = case.make()(net.parameters())
        for group in optimizer.param_groups:
            group["lr"] *= factor
        loss = float(_train(net, optimizer, 200))
        outcomes.append((loss, float((net(x).argmax(1) == y).float().mean())))
        if loss < 0.5 * start and outcomes[-1][1] > 0.9:
            return
    raise AssertionError(
        f"from loss {start:.3g}, (loss, accuracy) after 200 steps at 1, 10 and 100 times the rate: {outcomes}"
    )


CHECKS: tuple[Check, ...] = (
    check_is_optimizer,
    check_parameter_groups,
    check_lr_read_each_step,
    check_state_dict_round_trip,
    check_closure,
    check_add_param_group,
    check_no_gradient_untouched,
    check_zero_grad,
    check_gradients_kept,
    check_deterministic,
    check_negative_lr_refused,
    check_empty_parameters_refused,
    check_foreach_equal,
    check_grad_scaler,
    check_deepcopy,
    check_minimises_quadratic,
    check_learns_classification,
)


def checks(case: Case) -> list[tuple[str, Check]]:
    """The named checks of this kind."""
    return [(check.__name__, check) for check in CHECKS]


def check_optimizer(case: Case) -> list[CheckResult]:
    """Run the contract of kind "optimizer".

    Parameters
    ----------
    case : Case
        ``make()`` gives a callable ``params -> torch.optim.Optimizer``.

    Returns
    -------
    list of CheckResult
        One per check.

    Raises
    ------
    AssertionError
        Names every check that failed.

    Examples
    --------
    >>> import torch
    >>> from assay.testing import Case, check_optimizer
    >>> results = check_optimizer(Case("SGD", "optimizer", lambda: lambda params: torch.optim.SGD(params, lr=0.1)))
    >>> {r.status for r in results}
    {'passed'}
    """
    return run_checks(case, checks(case))
