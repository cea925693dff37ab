"""Rotation for any torch optimizer: its directions, our norms and angles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

from assay._core.errors import InputError

from ._optimizers import Lion, OnZero
from ._rates import rotation_adamw, rotation_lion, rotation_sgdm
from ._rules import Group
from ._rv import (
    Item,
    RuleOptimizer,
    centre_parameters,
    check_common_options,
    check_gradient,
    check_rotational_options,
    describe,
    is_rotational,
    local,
    memory_order,
    neuron_axis,
    refuse_free_rotation,
    start_rotation,
    turn_all,
    warn_if_too_small,
)

Rate = Callable[[Group], Any]

# What the wrapper adds to a group. The inner optimizer may have a "foreach" of its own, which means its own loops.
OPTIONS = (
    "update_norm_decay_factor",
    "per_neuron",
    "zero_mean",
    "rotational_eps",
    "rotational",
    "on_zero",
    "rotation_scale",
    "neuron_dim",
    "rotational_foreach",
)


def known_rate(optimizer: Optimizer) -> Rate | None:
    """Equilibrium rotation of an optimizer's rule as a function of the group; None where no closed form holds."""
    groups = optimizer.param_groups
    if isinstance(optimizer, torch.optim.SGD):
        # With dampening the momentum carries another share of the gradient and of the decay.
        if all(g["dampening"] == 0 for g in groups):
            return lambda g: rotation_sgdm(g["lr"], g["weight_decay"], g["momentum"])
        return None
    if isinstance(optimizer, torch.optim.Adam):  # AdamW is Adam with decoupled decay
        if all(g.get("decoupled_weight_decay", False) for g in groups):
            return lambda g: rotation_adamw(g["lr"], g["weight_decay"], g["betas"][0])
        return None
    # Other packages name the class so too; their options for another kind of decay change the rate.
    if isinstance(optimizer, Lion) or type(optimizer).__name__ == "Lion":
        coupled = any(g.get("weight_decouple") is False or g.get("fixed_decay") for g in groups)
        if all("betas" in g for g in groups) and not coupled and not getattr(optimizer, "decoupled_wd", False):
            return lambda g: rotation_lion(g["lr"], g["weight_decay"], g["betas"])
    return None


def ignores_weights(optimizer: Optimizer) -> bool:
    """Whether the direction surely does not depend on the weights once the decay is off.

    Exact types only: a subclass may scale its step by the weights (LARS is often written as a subclass of SGD), and a
    hook on the inner optimizer may look at them.
    """
    hooks = (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)
    return type(optimizer) in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, Lion) and not any(hooks)


class RVWrapper(Optimizer):
    r"""Rotational form of any torch optimizer.

    The inner optimizer takes its step with its weight decay switched off for the rotational tensors; the direction is
    read off as :math:`d = (p_{before} - p_{after}) / \eta`, and :math:`p_{before}` then takes the rotational step of
    :class:`RVAdamW` with it.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        The rule. Its groups become the groups of the wrapper, and get the options below; its ``weight_decay`` sets the
        rotation.
    rotation_rate : callable, optional
        Maps a group to its rotation per step in radians. Needed where no closed form is known: known are SGD without
        dampening, AdamW and Lion. Adam with L2 decay has none, because its rate depends on the size of the gradients.
    update_norm_decay_factor, per_neuron, zero_mean, rotational_eps, rotational : optional
        See :class:`RVAdamW`.
    on_zero, rotation_scale, neuron_dim, foreach : optional
        See :class:`RVAdamW`; a group of the inner optimizer that already has a key of that name keeps it.

    Attributes
    ----------
    optimizer : torch.optim.Optimizer
        The inner optimizer.

    Raises
    ------
    InputError
        If the rate of the rule is unknown, a rotational parameter is in half precision, or as in :class:`RVAdamW`.

    Notes
    -----
    1. Wrap first and build schedulers on the wrapper; they see the same groups as the inner optimizer.
    2. One copy of the rotational parameters is held during the step. The twins need none.
    3. torch's SGD, Adam and AdamW and this module's Lion take their inner step from weights of zero, so that the direction
       is read to full precision. Other rules may look at the weights and start from them; the difference is then
       rounded to ``eps * |p| / lr`` (in float32 about 1e-7 / lr of a weight). Half precision would lose the direction
       and is refused. At lr 0 the direction is read with lr 1.
    4. The inner optimizer must take one step per call (not LBFGS).

    References
    ----------
    Kosson, Messmer, Jaggi, "Rotational Equilibrium", ICML 2024, arXiv 2305.17212.

    Examples
    --------
    >>> import torch
    >>> from assay.training.rotational import RVWrapper
    >>> layer = torch.nn.Linear(8, 4)
    >>> optimizer = RVWrapper(torch.optim.NAdam(layer.parameters(), weight_decay=0.1), rotation_rate=lambda group: 0.01)
    >>> layer(torch.ones(2, 8)).square().sum().backward()
    >>> optimizer.step()
    """

    def __init__(
        self,
        optimizer: Optimizer,
        rotation_rate: Rate | None = None,
        *,
        update_norm_decay_factor: float = 0.9,
        per_neuron: bool = True,
        zero_mean: bool = True,
        rotational_eps: float = 1e-8,
        rotational: bool | None = None,
        on_zero: OnZero = "error",
        rotation_scale: float = 1.0,
        neuron_dim: int = 0,
        foreach: bool | None = None,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise InputError(f"RVWrapper wraps a torch.optim.Optimizer, not {type(optimizer).__name__}.")
        if isinstance(optimizer, RVWrapper) or (isinstance(optimizer, RuleOptimizer) and optimizer.rotates):
            raise InputError(f"{type(optimizer).__name__} is rotational already; use it as it is.")
        if isinstance(optimizer, torch.optim.LBFGS):
            raise InputError("LBFGS takes several steps per call, so there is no single direction to rotate by.")
        if rotation_rate is not None and not callable(rotation_rate):
            raise InputError("rotation_rate must be a function of a parameter group that returns radians per step.")
        self.optimizer = optimizer
        self.rotation_rate = rotation_rate
        self._joined = False
        options = {
            "update_norm_decay_factor": update_norm_decay_factor,
            "per_neuron": per_neuron,
            "zero_mean": zero_mean,
            "rotational_eps": rotational_eps,
            "rotational": rotational,
            "on_zero": on_zero,
            "rotation_scale": rotation_scale,
            "neuron_dim": neuron_dim,
            "rotational_foreach": foreach,
        }
        if rotation_rate is None and known_rate(optimizer) is None:
            raise InputError(
                f"The equilibrium rotation of {type(optimizer).__name__} with these options has no closed form (Adam "
                "with L2 decay: it depends on the size of the gradients): give rotation_rate, a function of the "
                "parameter group that returns radians per step, or wrap SGD, AdamW or Lion."
            )
        super().__init__(optimizer.param_groups, options)
        self._joined = True

    # The groups are those of the inner optimizer, also after it has loaded a state and has new ones.
    @property
    def param_groups(self) -> list[Group]:  # type: ignore[override]
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[Group]) -> None:
        if self.__dict__.get("_joined"):
            self.optimizer.param_groups = groups

    def add_param_group(self, param_group: Group) -> None:
        """Add a parameter group to the inner optimizer and make it rotational."""
        if self._joined:
            self.optimizer.add_param_group(param_group)
            param_group = self.param_groups[-1]
        index = next(i for i, g in enumerate(self.param_groups) if g is param_group)
        added = [key for key in self.defaults if key not in param_group]
        try:
            for key in added:
                param_group[key] = self.defaults[key]
            for key in ("lr", "weight_decay"):
                if key not in param_group:
                    raise InputError(
                        f"Group {index} of {type(self.optimizer).__name__} has no {key}, which sets the rotation."
                    )
            view = options_of(param_group)
            check_common_options(view, index)
            check_rotational_options(view, index)
            for i, p in enumerate(view["params"]):
                if is_rotational(p, view) and p.dtype in (torch.float16, torch.bfloat16):
                    raise InputError(
                        f"{describe(view, i, index)} is {p.dtype}, which rounds away the difference that RVWrapper "
                        "reads the direction from: use RVAdamW, RVSGD or RVLion, or float32 weights."
                    )
            warn_if_too_small(view, index)
            centre_parameters(view, index)
        except Exception:
            for key in added:
                param_group.pop(key, None)
            if self._joined:
                self.param_groups.pop()
            raise

    def __getstate__(self) -> dict[str, Any]:
        return {
            "defaults": self.defaults,
            "state": self.state,
            "optimizer": self.optimizer,
            "rotation_rate": self.rotation_rate,
            "_joined": True,
        }

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients of all parameters."""
        self.optimizer.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """State of the rotation, and below ``"inner"`` that of the inner optimizer."""
        return {**super().state_dict(), "inner": self.optimizer.state_dict()}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state; the norms that it holds go on being held, and nothing is centred again."""
        if "inner" not in state_dict:
            raise InputError(
                "This state has no part 'inner', so it was not saved by RVWrapper: load it into the inner optimizer."
            )
        inner = state_dict["inner"]
        self.optimizer.load_state_dict(inner)
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "inner"})
        # super() leaves its own copies of the groups here; the groups are those that the inner optimizer has loaded.
        self.__dict__.pop("param_groups", None)

    @overload
    def step(self, closure: None = ...) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.compiler.disable(reason="the rotational step keeps its counters as Python numbers; compile the model")
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Perform one step.

        Parameters
        ----------
        closure : callable, optional
            Reevaluates the model and returns the loss; called once, before the inner step.

        Returns
        -------
        float or None
            What ``closure`` returned.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        groups = list(self.param_groups)
        work = [self._collect(options_of(group), index) for index, group in enumerate(groups)]
        copies = [item for items in work for item in items.values()]
        from_zero = ignores_weights(self.optimizer)
        if from_zero:
            for item in copies:
                item.p.zero_()
        try:
            self._inner_step(groups, work)
        except BaseException:
            for item in copies:
                item.p.copy_(item.x)
            raise
        rate = self.rotation_rate or known_rate(self.optimizer)
        if rate is None:
            raise InputError(
                f"The options of {type(self.optimizer).__name__} were changed to a rule without a known rate."
            )
        for group, items in zip(groups, work, strict=True):
            if not items:
                continue
            lr = readable_lr(group["lr"])
            for item in items.values():
                item.state["rotation_step"] += 1
                item.state["step"] = item.state["rotation_step"]
                before = item.x
                # From zero -p_after / lr is the direction; a tensor lr is a factor, so that the host need not wait for it.
                item.x = item.p / -lr if from_zero else (before - item.p) / lr
                item.p.copy_(before)
            turn_all(list(items.values()), options_of(group), given_directions, rate(group))
        return loss

    def _collect(self, group: Group, group_index: int) -> dict[int, Item]:
        """The rotational parameters by identity, each with a copy of its present value."""
        refuse_free_rotation(group, group_index)
        items = {}
        for index, parameter in enumerate(group["params"]):
            if parameter.grad is None or not is_rotational(parameter, group):
                continue
            check_gradient(parameter, group, index, group_index, True)
            state = self.state[parameter]
            if "norm" not in state:
                start_rotation(parameter, group, state, describe(group, index, group_index))
            p = local(parameter)
            axis = neuron_axis(parameter, group)
            items[id(parameter)] = Item(p, p.clone(), [], state, axis, memory_order(p, axis))
        return items

    def _inner_step(self, groups: list[Group], work: list[dict[int, Item]]) -> None:
        """The inner step without decay for the rotational tensors; all others keep theirs."""
        parts: list[tuple[Group, Group]] = []
        for group, items in zip(groups, work, strict=True):
            turning = [p for p in group["params"] if id(p) in items]
            others = [p for p in group["params"] if id(p) not in items]
            if turning:
                lr = readable_lr(group["lr"])
                parts.append((group, {**group, "params": turning, "weight_decay": 0, "lr": lr}))
            if others:
                parts.append((group, {**group, "params": others}))
        self.optimizer.param_groups = [part for _, part in parts]
        try:
            self.optimizer.step()
        finally:
            self.optimizer.param_groups = groups
        for group, part in parts:  # what a rule keeps in its groups, such as a step count
            group.update({k: v for k, v in part.items() if k not in ("params", "weight_decay", "lr")})


def readable_lr(lr: Any) -> Any:
    """The learning rate that the direction is read with: 1 where it is 0, because then nothing would move."""
    return torch.where(lr == 0, torch.ones_like(lr), lr) if isinstance(lr, Tensor) else lr or 1.0


def given_directions(
    group: Group, step: int, xs: list[Tensor], moments: list[list[Tensor]]
) -> tuple[list[Tensor], float]:
    return xs, 1.0


def options_of(group: Group) -> Group:
    """The group as the rotational step reads it."""
    return {**group, "foreach": group["rotational_foreach"]}
