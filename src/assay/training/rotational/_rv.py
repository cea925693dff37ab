"""The rotational step: fixed norms, mean rotation set to the equilibrium value."""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, cast, overload

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from assay._core.errors import InputError

from ._rules import Group, Rule

# Elements per batch of rows. On a CPU the five tensors of a batch (weight, gradient, two moments, direction) should
# stay in the second-level cache between the operations of a step, which otherwise wait for memory: 64 Ki elements are
# 256 KiB per tensor in float32. On an accelerator the cost is the launch of a kernel, so batches are as large as the
# temporary copies of stacked tensors may reasonably be (32 Mi elements = 128 MiB each).
CPU_BATCH = 1 << 17
DEVICE_BATCH = 1 << 25

# A neuron whose running update norm is below this gets no update: its direction is rounding noise left in the moments
# (an embedding row without gradient), and dividing by its norm would blow that noise up to a full rotation.
IDLE_UPDATE = 1e-12

DIRECTIONS = Callable[[Group, int, list[Tensor], list[list[Tensor]]], tuple[list[Tensor], float]]


# ---------------------------------------------------------------------------------------------------------------------
# Options and their checks


def describe(group: Group, index: int, group_index: int) -> str:
    """Name a parameter for a message: its own name where the optimizer was given names, else its place and shape."""
    p = group["params"][index]
    names = group.get("param_names")
    place = f"parameter {index} of group {group_index}, shape {tuple(p.shape)}"
    return f"'{names[index]}' ({place})" if names else place


def check_number(
    group: Group, key: str, group_index: int, low: float, high: float = math.inf, high_open: bool = True
) -> None:
    value = group[key]
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise InputError(
                f"{key} of group {group_index} is a tensor of shape {tuple(value.shape)}; give one number."
            )
        value = value.item()  # once, at construction
    inside = isinstance(value, (int, float)) and low <= value and (value < high if high_open else value <= high)
    if not inside:
        bound = f"at least {low:g}" if high == math.inf else f"in [{low:g}, {high:g}{')' if high_open else ']'}"
        raise InputError(f"{key} of group {group_index} is {group[key]!r}; it must be a finite number {bound}.")


def check_betas(group: Group, group_index: int) -> None:
    betas = group["betas"]
    if not (isinstance(betas, (tuple, list)) and len(betas) == 2):
        raise InputError(f"betas of group {group_index} is {betas!r}; it must be a pair of numbers in [0, 1).")
    for name, value in zip(("betas[0]", "betas[1]"), betas, strict=True):
        check_number({name: value}, name, group_index, 0.0, 1.0)


def check_common_options(group: Group, group_index: int) -> None:
    """Check what every optimizer of this module has."""
    check_number(group, "lr", group_index, 0.0)
    check_number(group, "weight_decay", group_index, 0.0)
    for i, p in enumerate(group["params"]):
        if p.is_complex():
            raise InputError(
                f"{describe(group, i, group_index)} is complex, and the step is defined for real weights: "
                "give its torch.view_as_real or leave it to another optimizer."
            )


def check_rotational_options(group: Group, group_index: int) -> None:
    """Check the options that all rotational optimizers share."""
    check_number(group, "update_norm_decay_factor", group_index, 0.0, 1.0)
    check_number(group, "rotational_eps", group_index, 0.0)
    check_number(group, "rotation_scale", group_index, 0.0)
    for key in ("per_neuron", "zero_mean"):
        if not isinstance(group[key], bool):
            raise InputError(f"{key} of group {group_index} is {group[key]!r}; it must be True or False.")
    for key in ("rotational", "foreach"):
        if not (group[key] is None or isinstance(group[key], bool)):
            raise InputError(f"{key} of group {group_index} is {group[key]!r}; it must be None, True or False.")
    if group["on_zero"] not in ("error", "skip"):
        raise InputError(f"on_zero of group {group_index} is {group['on_zero']!r}; it must be 'error' or 'skip'.")
    if not isinstance(group["neuron_dim"], int) or group["neuron_dim"] < 0:
        raise InputError(
            f"neuron_dim of group {group_index} is {group['neuron_dim']!r}; it must be a dimension counted from 0."
        )
    refuse_free_rotation(group, group_index)
    for i, p in enumerate(group["params"]):
        if not is_rotational(p, group):
            continue
        if group["per_neuron"] and p.ndim >= 2 and group["neuron_dim"] >= p.ndim:
            raise InputError(
                f"{describe(group, i, group_index)} has no dimension {group['neuron_dim']}, which neuron_dim names."
            )
        if is_sharded(p):
            refuse_shards(p, group, describe(group, i, group_index))


def refuse_free_rotation(group: Group, group_index: int) -> None:
    if group["rotational"] is True and group["weight_decay"] == 0:
        raise InputError(
            f"Group {group_index} is rotational with weight_decay 0, so its equilibrium rotation is 0 and it would "
            "never move: give a weight_decay > 0 or rotational=False."
        )


def dedupe(param_group: Group) -> Group:
    """Keep the first of several mentions of one tensor (tied weights), so that it moves once per step."""
    params = param_group["params"]
    if isinstance(params, (Tensor, set)):  # torch wraps the one and refuses the other, with its own message
        return param_group
    seen: set[int] = set()
    kept = []
    for item in list(params):
        key = id(item[1] if isinstance(item, tuple) else item)
        if key not in seen:
            seen.add(key)
            kept.append(item)
    return {**param_group, "params": kept}


# ---------------------------------------------------------------------------------------------------------------------
# Neurons: which dimension they lie along and how a tensor is seen as rows


def neuron_axis(p: Tensor, group: Group) -> int | None:
    """Dimension whose slices are the neurons, or None where the whole tensor is one."""
    return group["neuron_dim"] if group["per_neuron"] and p.ndim >= 2 else None


def is_rotational(p: Tensor, group: Group) -> bool:
    rotational = group["rotational"]
    if rotational is False or (rotational is None and (p.ndim < 2 or group["weight_decay"] == 0)):
        return False
    return freedom(p, group) >= 2


def freedom(p: Tensor, group: Group) -> int:
    """Dimension of the space that a neuron can turn in; below two there is nothing to turn."""
    axis = neuron_axis(p, group)
    per_neuron = p.numel() if axis is None or axis >= p.ndim else p.numel() // max(p.shape[axis], 1)
    return per_neuron - (1 if group["zero_mean"] else 0)


def warn_if_too_small(group: Group, group_index: int) -> None:
    wanted = [p for p in group["params"] if group["rotational"] or (p.ndim >= 2 and group["weight_decay"] != 0)]
    for i, p in enumerate(group["params"]):
        if group["rotational"] is not False and any(p is w for w in wanted) and 0 <= freedom(p, group) < 2:
            warnings.warn(
                f"{describe(group, i, group_index)} has too few weights per neuron to rotate"
                f"{' after its mean is removed' if group['zero_mean'] else ''}; it takes the plain update.",
                UserWarning,
                stacklevel=4,
            )


def memory_order(p: Tensor, axis: int | None) -> list[int] | None:
    """Permutation that makes the rows of ``p`` a view where possible; None where a plain view does it."""
    if p.is_contiguous() and not axis:
        return None
    rest = sorted((i for i in range(p.ndim) if i != axis), key=lambda i: -p.stride()[i])
    return rest if axis is None else [axis, *rest]


def as_rows(t: Tensor, axis: int | None, order: list[int] | None) -> Tensor:
    """``t`` as (neurons, weights per neuron): a view of its memory where its strides allow."""
    neurons = 1 if axis is None else t.shape[axis]
    return (t if order is None else t.permute(order)).reshape(neurons, t.numel() // max(neurons, 1))


def from_rows(rows: Tensor, p: Tensor, order: list[int] | None) -> tuple[Tensor, Tensor]:
    """Target and source of the copy that writes ``rows`` back to ``p``."""
    target = p if order is None else p.permute(order)
    return target, rows.view(target.shape)


# ---------------------------------------------------------------------------------------------------------------------
# Sharded parameters (FSDP2): the rows of a shard are whole neurons, so all sums stay local


def is_sharded(t: Tensor) -> bool:
    # By attribute, because importing torch.distributed.tensor costs a second that most runs need not pay.
    return hasattr(t, "placements") and hasattr(t, "to_local")


def local(t: Tensor) -> Tensor:
    return cast(Tensor, t.to_local()) if is_sharded(t) else t  # type: ignore[attr-defined]


def refuse_shards(p: Tensor, group: Group, name: str) -> None:
    for placement in p.placements:  # type: ignore[attr-defined]
        if placement.is_replicate():
            continue
        if placement.is_shard(0) and neuron_axis(p, group) == 0:
            continue
        raise InputError(
            f"{name} is distributed as {placement}, so a neuron's weights lie on several devices: shard dimension 0 "
            "with per_neuron=True and neuron_dim=0, or put it into a group with rotational=False."
        )


def per_neuron_state(values: Tensor, p: Tensor) -> Tensor:
    """Give per-neuron values the distribution of their parameter, so that distributed checkpoints save all shards."""
    if not is_sharded(p):
        return values
    from torch.distributed.tensor import DTensor

    neurons = p.shape[0] if values.ndim and any(s.is_shard(0) for s in p.placements) else values.shape[0]  # type: ignore[attr-defined]
    return DTensor.from_local(
        values,
        p.device_mesh,  # type: ignore[attr-defined]
        p.placements,  # type: ignore[attr-defined]
        run_check=False,
        shape=torch.Size([neurons]),
        stride=(1,),
    )


# ---------------------------------------------------------------------------------------------------------------------
# Norms and centring


def compute_dtype(t: Tensor) -> torch.dtype:
    return torch.float32 if t.dtype in (torch.float16, torch.bfloat16) else t.dtype


def column(v: Tensor) -> Tensor:
    return v.unsqueeze(1)


def row_norms(rows: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows, dim=1)


def without_mean(rows: Tensor) -> Tensor:
    """Rows minus their mean, exact where all weights of a row are nearly equal.

    The first steps of Adam are signs, so that a row whose gradients agree in sign has a direction that is almost all
    mean. The rounding of that mean would then be a large part of what is left, and would bring a mean into the weights.
    Taking the first entry off beforehand leaves numbers whose mean is as small as they are.
    """
    rows = rows - rows[:, :1]
    return rows.sub_(rows.mean(1, keepdim=True))


def centred(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows without their mean at their old norm, their norms, and which of them hold nothing but a mean."""
    norm = row_norms(rows)
    rest = rows - rows.mean(1, keepdim=True)
    rest_norm = row_norms(rest)
    # What is left of a constant row is the rounding of its mean: at most half a unit per weight, 8 leaves room.
    constant = rest_norm <= 8 * torch.finfo(rows.dtype).eps * norm
    return rest * column(norm / torch.where(constant, 1.0, rest_norm)), norm, constant


@torch.no_grad()
def centre_parameters(group: Group, group_index: int) -> None:
    """Remove each neuron's mean and keep its norm, for all rotational tensors of a group.

    A neuron whose mean is already negligible stays as it is, to the bit: so a model that was trained rotationally,
    saved and loaded again goes on exactly where it was.
    """
    if not group["zero_mean"]:
        return
    for i, parameter in enumerate(group["params"]):
        if not is_rotational(parameter, group) or parameter.is_meta:
            continue
        p = local(parameter)
        axis = neuron_axis(parameter, group)
        order = memory_order(p, axis)
        rows = as_rows(p, axis, order).to(compute_dtype(p))
        new, norm, constant = centred(rows)
        if group["on_zero"] == "error":
            refuse_zero(constant, describe(group, i, group_index), "is constant, so nothing is left without its mean")
        mean = rows.mean(1).abs() * rows.shape[1] ** 0.5
        # Root of the parameter's own precision: below it the mean changes the norm by less than one rounding.
        keep = constant | (mean <= torch.finfo(p.dtype).eps ** 0.5 * norm)
        target, source = from_rows(torch.where(column(keep), rows, new), p, order)
        target.copy_(source)


def refuse_zero(zero: Tensor, name: str, what: str) -> None:
    if bool(zero.any()):
        index = int(zero.nonzero()[0])
        raise InputError(
            f"Neuron {index} of {name} {what}: a neuron without a norm cannot rotate. Put the tensor into a group with "
            "rotational=False, or give on_zero='skip' to leave such neurons to the plain update until they have one."
        )


def start_rotation(parameter: Tensor, group: Group, state: dict[str, Any], name: str) -> None:
    """Take the norms that will be held from now on."""
    p = local(parameter)
    axis = neuron_axis(parameter, group)
    rows = as_rows(p, axis, memory_order(p, axis)).to(compute_dtype(p))
    norm = row_norms(rows)
    if group["on_zero"] == "skip":
        if group["zero_mean"]:
            norm = torch.where(centred(rows)[2], 0.0, norm)
    else:
        refuse_zero(norm == 0, name, "is zero")
    state["norm"] = per_neuron_state(norm, parameter)
    state["update_norm_sq"] = per_neuron_state(torch.zeros_like(norm), parameter)
    state["rotation_step"] = 0


# ---------------------------------------------------------------------------------------------------------------------
# The step


@dataclass
class Item:
    """One parameter of a step, its gradient (or what else its direction is made of), and its state."""

    p: Tensor
    x: Tensor
    moments: list[Tensor]
    state: dict[str, Any]
    axis: int | None
    order: list[int] | None


@dataclass
class Batch:
    """Neurons of equal length that move together: either some rows of one tensor, or several whole tensors."""

    params: list[Tensor]
    xs: list[Tensor]
    moments: list[list[Tensor]]
    norms: list[Tensor]
    sums: list[Tensor]
    axis: int | None
    order: list[int] | None
    step: int
    rotation_step: int


def batches(items: Iterable[Item]) -> Iterator[Batch]:
    """Cut large tensors into runs of rows and stack small ones of equal (neurons, weights per neuron)."""
    alike: dict[tuple[Any, ...], list[Item]] = defaultdict(list)
    for item in items:
        p, state = item.p, item.state
        size = CPU_BATCH if p.device.type == "cpu" else DEVICE_BATCH
        neurons = 1 if item.axis is None else p.shape[item.axis]
        step, rotation_step = state["step"], state["rotation_step"]
        if p.numel() > size and neurons > 1:
            rows = [as_rows(t, item.axis, item.order) for t in (p, *item.moments)]
            # A reshape that had to copy would lose what is written to it.
            if all(r.data_ptr() == t.data_ptr() for r, t in zip(rows, (p, *item.moments), strict=True)):
                x = as_rows(item.x, item.axis, item.order)
                norm, total = local(state["norm"]), local(state["update_norm_sq"])
                run = max(1, size // rows[0].shape[1])
                for a in range(0, neurons, run):
                    cut = slice(a, a + run)
                    moments = [[m[cut]] for m in rows[1:]]
                    yield Batch(
                        [rows[0][cut]], [x[cut]], moments, [norm[cut]], [total[cut]], 0, None, step, rotation_step
                    )
                continue
        order = None if item.order is None else tuple(item.order)
        key = (p.device, p.dtype, item.x.dtype, p.shape, item.axis, order, step, rotation_step)
        alike[key].append(item)
    for key, group in alike.items():
        size = CPU_BATCH if group[0].p.device.type == "cpu" else DEVICE_BATCH
        many = max(1, size // max(group[0].p.numel(), 1))
        for a in range(0, len(group), many):
            part = group[a : a + many]
            yield Batch(
                [i.p for i in part],
                [i.x for i in part],
                [list(m) for m in zip(*(i.moments for i in part), strict=True)],
                [local(i.state["norm"]) for i in part],
                [local(i.state["update_norm_sq"]) for i in part],
                part[0].axis,
                part[0].order,
                key[-2],
                key[-1],
            )


def turn_batch(batch: Batch, group: Group, directions: DIRECTIONS, rate: Any) -> None:
    """One rotational step for a batch."""
    xs, scale = directions(group, batch.step, batch.xs, batch.moments)
    dtype = compute_dtype(batch.params[0])
    one = len(batch.params) == 1
    views = [as_rows(p, batch.axis, batch.order) for p in batch.params]
    weights = (views[0] if one else torch.cat(views)).to(dtype)
    steps = [as_rows(x, batch.axis, batch.order) for x in xs]
    step = (steps[0] if one else torch.cat(steps)).to(dtype)
    norm = batch.norms[0] if one else torch.cat(batch.norms)
    total = batch.sums[0] if one else torch.cat(batch.sums)
    turn(weights, step, norm, total, group, rate, scale, batch.rotation_step)
    if not one:
        split = norm.shape[0] // len(batch.norms)
        torch._foreach_copy_(batch.sums, list(total.split(split)))
        if group["on_zero"] == "skip":
            torch._foreach_copy_(batch.norms, list(norm.split(split)))
    if not one or weights.data_ptr() != batch.params[0].data_ptr():
        rows = weights.split(views[0].shape[0])
        pairs = [from_rows(r, p, batch.order) for r, p in zip(rows, batch.params, strict=True)]
        torch._foreach_copy_([t for t, _ in pairs], [s for _, s in pairs])


def turn(
    weights: Tensor, step: Tensor, norm: Tensor, total: Tensor, group: Group, rate: Any, scale: float, t: int
) -> None:
    """Rotate the rows of ``weights`` in place; ``step`` times ``scale`` is the direction, ``t`` counts from 1."""
    mu = group["update_norm_decay_factor"]
    zero = before = None
    length = norm
    if group["on_zero"] == "skip":
        zero, before = norm == 0, plain_rows(weights, step, group, scale)
        length = torch.where(zero, 1.0, norm)
    if group["zero_mean"]:
        step = without_mean(step)
    # Divided twice, because the square of a small norm underflows in float32.
    overlap = torch.linalg.vecdot(step, weights) / length / length
    step = torch.addcmul(step, weights, column(overlap), value=-1)
    total.mul_(mu).add_(row_norms(step).square_(), alpha=(1 - mu) * scale**2)
    average = (total / (1 - mu**t)).sqrt_()
    idle = average < IDLE_UPDATE
    size = (rate * scale) * length / (average + group["rotational_eps"])
    weights.addcmul_(step, column(size.masked_fill_(idle, 0.0)), value=-1)
    # The true norm and not the one that the right angle would give: no drift, and no error where almost all of the
    # direction was radial and what is left of it is no longer quite orthogonal.
    weights.mul_(column((length / row_norms(weights)).masked_fill_(idle, 1.0)))
    if zero is not None and before is not None:
        rows, awake = before
        weights.copy_(torch.where(column(zero), rows, weights))
        norm.copy_(torch.where(zero, awake, norm))


def plain_rows(weights: Tensor, step: Tensor, group: Group, scale: float) -> tuple[Tensor, Tensor]:
    """Plain update of all rows, and the norm that a neuron without one would have after it (0: still none)."""
    lr = group["lr"]
    # Also for SGD, whose decay acts through the gradient: neurons without a norm are zero, up to their mean, and the
    # two forms differ by the momentum of that decay alone.
    rows = weights * (1 - lr * group["weight_decay"]) - (lr * scale) * step
    if not group["zero_mean"]:
        return rows, row_norms(rows)
    new, norm, constant = centred(rows)
    return torch.where(column(constant), rows, new), torch.where(constant, 0.0, norm)


def turn_one(item: Item, group: Group, directions: DIRECTIONS, rate: Any) -> None:
    """The step as the paper has it, one tensor at a time (``foreach=False``)."""
    (direction,), scale = directions(group, item.state["step"], [item.x], [[m] for m in item.moments])
    p, mu = item.p, group["update_norm_decay_factor"]
    weights = as_rows(p, item.axis, item.order).to(compute_dtype(p))
    norm, total = local(item.state["norm"]), local(item.state["update_norm_sq"])
    zero = norm == 0
    length = torch.where(zero, 1.0, norm)
    raw = as_rows(direction, item.axis, item.order).to(weights.dtype) * scale

    d = without_mean(raw) if group["zero_mean"] else raw
    d = d - weights * column((d * weights).sum(1) / length / length)
    total.copy_(mu * total + (1 - mu) * (d * d).sum(1))
    average = (total / (1 - mu ** item.state["rotation_step"])).sqrt()
    moved = weights - d * column(rate * length / (average + group["rotational_eps"]))
    moved = moved * column(length / row_norms(moved))
    moved = torch.where(column(average < IDLE_UPDATE), weights, moved)
    if group["on_zero"] == "skip":
        rows, awake = plain_rows(weights, raw, group, 1.0)
        moved = torch.where(column(zero), rows, moved)
        norm.copy_(torch.where(zero, awake, norm))
    target, source = from_rows(moved, p, item.order)
    target.copy_(source)


def turn_all(items: list[Item], group: Group, directions: DIRECTIONS, rate: Any) -> None:
    """One rotational step for the rotational parameters of a group."""
    rate = rate * group["rotation_scale"]
    if group["foreach"] is False:
        for item in items:
            turn_one(item, group, directions, rate)
    else:
        for batch in batches(items):
            turn_batch(batch, group, directions, rate)


def plain_step(rule: type[Rule], group: Group, items: list[Item]) -> None:
    """The ordinary update of the rule with its usual weight decay, for parameters that do not rotate."""
    alike: dict[tuple[Any, ...], list[Item]] = defaultdict(list)
    for number, item in enumerate(items):
        alone = number if group["foreach"] is False else None
        alike[(item.p.device, item.p.dtype, item.state["step"], alone)].append(item)
    lr, decay = group["lr"], group["weight_decay"]
    for part in alike.values():
        params, grads = [i.p for i in part], [i.x for i in part]
        moments = [list(m) for m in zip(*(i.moments for i in part), strict=True)]
        if decay != 0:
            if rule.decoupled:
                torch._foreach_mul_(params, 1 - lr * decay)
            else:
                grads = list(torch._foreach_add(grads, params, alpha=decay))
        directions, scale = rule.directions(group, part[0].state["step"], grads, moments)
        if isinstance(lr, Tensor):  # as a factor and not as alpha, which would read the tensor on the host
            torch._foreach_add_(params, list(torch._foreach_mul(directions, -lr * scale)))
        else:
            torch._foreach_add_(params, directions, alpha=-lr * scale)


def check_gradient(p: Tensor, group: Group, index: int, group_index: int, rotational: bool) -> None:
    grad = p.grad
    assert grad is not None
    if grad.layout != torch.strided:
        raise InputError(
            f"The gradient of {describe(group, index, group_index)} is sparse, and the rotational step needs whole "
            "rows: use sparse=False in the embedding or another optimizer for it."
        )
    if rotational and torch.is_anomaly_enabled() and not bool(torch.isfinite(local(grad)).all()):
        raise FloatingPointError(f"The gradient of {describe(group, index, group_index)} is not finite.")


class RuleOptimizer(Optimizer):
    """An optimizer of one of the rules of this module, whose parameters may be rotational."""

    rule: ClassVar[type[Rule]]
    rotates: ClassVar[bool] = True

    def __init__(self, params: ParamsT, defaults: Group) -> None:
        super().__init__(params, defaults)

    def add_param_group(self, param_group: Group) -> None:
        """Add a parameter group, as in :class:`torch.optim.Optimizer`; its options are checked first."""
        super().add_param_group(dedupe(param_group))
        group, index = self.param_groups[-1], len(self.param_groups) - 1
        try:
            check_common_options(group, index)
            self._check_group(group, index)
            if self.rotates:
                check_rotational_options(group, index)
                warn_if_too_small(group, index)
                centre_parameters(group, index)
        except Exception:
            self.param_groups.pop()
            raise

    def _check_group(self, group: Group, index: int) -> None:
        raise NotImplementedError

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for key, value in self.defaults.items():
                group.setdefault(key, value)
        for values in self.state.values():
            # torch's own optimizers keep the step as a tensor; a Python number never makes the host wait.
            if isinstance(values.get("step"), Tensor):
                values["step"] = int(values["step"].item())

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state; the norms that it holds go on being held, and nothing is centred again."""
        super().load_state_dict(state_dict)
        keep_precise(self, state_dict, ("norm", "update_norm_sq"))

    @overload
    def step(self, closure: None = ...) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.compiler.disable(
        reason="the rotational step keeps its counters as Python numbers, so it runs eagerly; compile the model"
    )
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Perform one step.

        Parameters
        ----------
        closure : callable, optional
            Reevaluates the model and returns the loss.

        Returns
        -------
        float or None
            What ``closure`` returned.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # All checks come before the first write: an error leaves parameters and moments as they were.
        work = [self._collect(group, index) for index, group in enumerate(self.param_groups)]
        for group, (turning, plain) in zip(self.param_groups, work, strict=True):
            for item in chain(turning, plain):
                item.state["step"] += 1
            for item in turning:
                item.state["rotation_step"] += 1
            if turning:
                turn_all(turning, group, self.rule.directions, self.rule.rotation(group))
            if plain:
                plain_step(self.rule, group, plain)
        return loss

    def _collect(self, group: Group, group_index: int) -> tuple[list[Item], list[Item]]:
        if self.rotates:
            refuse_free_rotation(group, group_index)
        turning: list[Item] = []
        plain: list[Item] = []
        for index, parameter in enumerate(group["params"]):
            if parameter.grad is None:
                continue
            rotational = self.rotates and is_rotational(parameter, group)
            check_gradient(parameter, group, index, group_index, rotational)
            state = self.state[parameter]
            if "step" not in state:
                state["step"] = 0
                for name in self.rule.buffers:
                    state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            if not rotational:
                # A norm that was held earlier no longer describes a tensor that has moved freely.
                state.pop("norm", None)
            elif "norm" not in state:
                start_rotation(parameter, group, state, describe(group, index, group_index))
            grad = local(parameter.grad)
            if group["maximize"]:
                grad = -grad
            p = local(parameter)
            axis = neuron_axis(parameter, group) if rotational else None
            order = memory_order(p, axis) if rotational else None
            moments = [local(state[name]) for name in self.rule.buffers]
            (turning if rotational else plain).append(Item(p, grad, moments, state, axis, order))
        return turning, plain


def keep_precise(optimizer: Optimizer, state_dict: dict[str, Any], names: tuple[str, ...]) -> None:
    """Undo the cast of per-neuron state to half precision that ``Optimizer.load_state_dict`` makes."""
    saved = chain.from_iterable(g["params"] for g in state_dict["param_groups"])
    own = chain.from_iterable(g["params"] for g in optimizer.param_groups)
    for key, p in zip(saved, own, strict=True):
        if p.dtype in (torch.float16, torch.bfloat16):
            for name in names:
                if name in state_dict["state"].get(key, {}):
                    optimizer.state[p][name] = state_dict["state"][key][name].to(p.device)
