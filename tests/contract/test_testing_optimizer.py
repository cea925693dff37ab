"""Each optimizer check passes on torch's own optimizers and fails on a twin with exactly its fault."""

import pytest
import torch

from assay.testing import Case, check_optimizer, checks_for
from assay.testing._optimizer import CHECKS


class Plain(torch.optim.Optimizer):
    """Gradient descent with momentum, correct; the twins below break one thing each."""

    def __init__(self, params, lr=0.1, momentum=0.9, foreach=None):
        if lr < 0:
            raise ValueError(f"lr must not be negative, got {lr}")
        super().__init__(params, {"lr": lr, "momentum": momentum, "foreach": foreach})

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.update(p, p.grad, group)
        return loss

    def update(self, p, g, group):
        buffer = self.state[p].setdefault("buffer", torch.zeros_like(p))
        buffer.mul_(group["momentum"]).add_(g)
        p.sub_(group["lr"] * buffer)


class NotAnOptimizer:
    def __init__(self, params):
        self.params = list(params)
        self.param_groups = [{"params": self.params, "lr": 0.1}]

    def step(self):
        pass


class StaysPut(Plain):
    def update(self, p, g, group):
        if p.dim() > 1:
            super().update(p, g, group)


class IgnoresGroups(Plain):
    def update(self, p, g, group):
        super().update(p, g, {**group, "lr": self.defaults["lr"]})


class RemembersRate(Plain):
    def update(self, p, g, group):
        lr = self.state[p].setdefault("lr", group["lr"])
        super().update(p, g, {**group, "lr": lr})


class StateOutsideState(Plain):
    def __init__(self, params, **kwargs):
        super().__init__(params, **kwargs)
        self.buffers = {}

    def update(self, p, g, group):
        buffer = self.buffers.setdefault(p, torch.zeros_like(p))
        buffer.mul_(0.9).add_(g)
        p.sub_(group["lr"] * buffer)


class ClosureWithoutGrad(Plain):
    @torch.no_grad()
    def step(self, closure=None):
        loss = closure() if closure is not None else None
        Plain.step(self)
        return loss


class ClosureTwice(Plain):
    def step(self, closure=None):
        if closure is not None:
            with torch.enable_grad():
                closure()
        return super().step(closure)


class ClosureValueLost(Plain):
    def step(self, closure=None):
        super().step(closure)


class FirstGroupOnly(Plain):
    @torch.no_grad()
    def step(self, closure=None):
        groups = self.param_groups
        self.param_groups = groups[:1]
        try:
            return super().step(closure)
        finally:
            self.param_groups = groups


class DecaysIdle(Plain):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.mul_(1 - 1e-3)
        return super().step(closure)


class KeepsGradients(Plain):
    def zero_grad(self, set_to_none=True):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad.zero_()


class WritesGradients(Plain):
    def update(self, p, g, group):
        super().update(p, g.add_(p, alpha=1e-2), group)


class Noisy(Plain):
    def update(self, p, g, group):
        super().update(p, g + 1e-3 * torch.randn_like(g), group)


class AcceptsAnyRate(Plain):
    def __init__(self, params, lr=0.1, momentum=0.9, foreach=None):
        super().__init__(params, abs(lr), momentum, foreach)


class AcceptsNothing(Plain):
    def __init__(self, params, **kwargs):
        super().__init__(list(params) or [torch.zeros(1)], **kwargs)


class ForeachDiffers(Plain):
    def update(self, p, g, group):
        super().update(p, g * (1 + 1e-6) if group["foreach"] else g, group)


class IgnoresScale(Plain):
    # claims that it handles the scaler itself, and does not
    _step_supports_amp_scaling = True


class SharedBuffers(Plain):
    buffers: dict = {}

    def update(self, p, g, group):
        buffer = self.buffers.setdefault(p.shape, torch.zeros_like(p))
        buffer.mul_(0.9).add_(g)
        p.sub_(group["lr"] * buffer)


class Ascends(Plain):
    def update(self, p, g, group):
        super().update(p, -g, group)


class TooShy(Plain):
    def update(self, p, g, group):
        super().update(p, 1e-6 * g, group)


def case(name, make, **kwargs):
    return Case(name, "optimizer", make=lambda: make, **kwargs)


GOOD = [
    case("Plain", lambda p: Plain(p)),
    case("SGD", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-4)),
    case("AdamW", lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.1)),
    case("Adam", lambda p: torch.optim.Adam(p, lr=1e-3)),
]
TWINS = [
    ("check_is_optimizer", NotAnOptimizer),
    ("check_is_optimizer", StaysPut),
    ("check_parameter_groups", IgnoresGroups),
    ("check_lr_read_each_step", RemembersRate),
    ("check_state_dict_round_trip", StateOutsideState),
    ("check_closure", ClosureWithoutGrad),
    ("check_closure", ClosureTwice),
    ("check_closure", ClosureValueLost),
    ("check_add_param_group", FirstGroupOnly),
    ("check_no_gradient_untouched", DecaysIdle),
    ("check_zero_grad", KeepsGradients),
    ("check_gradients_kept", WritesGradients),
    ("check_deterministic", Noisy),
    ("check_negative_lr_refused", AcceptsAnyRate),
    ("check_empty_parameters_refused", AcceptsNothing),
    ("check_foreach_equal", ForeachDiffers),
    ("check_grad_scaler", IgnoresScale),
    ("check_deepcopy", SharedBuffers),
    ("check_minimises_quadratic", Ascends),
    ("check_minimises_quadratic", TooShy),
    ("check_learns_classification", Ascends),
    ("check_learns_classification", TooShy),
]


@pytest.mark.parametrize("good", GOOD, ids=lambda c: c.name)
def test_good_optimizers_pass(good):
    assert {r.status for r in check_optimizer(good)} == {"passed"}


@pytest.mark.parametrize(("name", "twin"), TWINS, ids=[f"{n}-{t.__name__}" for n, t in TWINS])
def test_check_catches_its_fault(name, twin):
    check = dict(checks_for(case(twin.__name__, lambda p: twin(p))))[name]
    with pytest.raises(AssertionError):
        check()


def test_every_check_has_a_twin():
    assert {name for name, _ in TWINS} == {check.__name__ for check in CHECKS}
