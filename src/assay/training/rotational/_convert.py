"""Switch a running optimizer to its rotational form and back, with its moments."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

from assay._core.errors import InputError

from ._optimizers import RVSGD, Lion, RVAdamW, RVLion
from ._rules import Group
from ._rv import RuleOptimizer
from ._wrapper import OPTIONS, RVWrapper

# Options of the torch rules that change the direction and that the rotational twins do not have.
UNSUPPORTED = {"amsgrad": False, "dampening": 0, "differentiable": False}


def twin_of(optimizer: Optimizer) -> type[RuleOptimizer]:
    if isinstance(optimizer, RVWrapper) or (isinstance(optimizer, RuleOptimizer) and optimizer.rotates):
        raise InputError(f"{type(optimizer).__name__} is rotational already.")
    if isinstance(optimizer, torch.optim.SGD):
        twin: type[RuleOptimizer] = RVSGD
    elif isinstance(optimizer, torch.optim.Adam):
        if not all(g.get("decoupled_weight_decay", False) for g in optimizer.param_groups):
            raise InputError(
                "Adam with L2 decay has no rotational twin, because its rotation depends on the size of the gradients: "
                "use AdamW, or RVWrapper with a rotation_rate."
            )
        twin = RVAdamW
    elif isinstance(optimizer, Lion):
        twin = RVLion
    else:
        raise InputError(
            f"{type(optimizer).__name__} has no rotational twin: use RVWrapper(optimizer, rotation_rate=...), which "
            "keeps its state."
        )
    for i, group in enumerate(optimizer.param_groups):
        for key, usual in UNSUPPORTED.items():
            if group.get(key, usual) != usual:
                raise InputError(f"Group {i} has {key}={group[key]!r}, which {twin.__name__} does not have.")
    return twin


def named(group: Group) -> list[Any]:
    """The parameters of a group, with their names where the optimizer was given names."""
    names = group.get("param_names")
    return list(zip(names, group["params"], strict=True)) if names else list(group["params"])


def carry(source: dict[str, Any], names: tuple[str, ...], parameter: Tensor) -> dict[str, Tensor]:
    """Copies of the moments; a missing buffer is a zero one."""
    found = {name: source.get(name) for name in names}
    return {n: torch.zeros_like(parameter) if v is None else v.detach().clone() for n, v in found.items()}


@torch.no_grad()
def to_rotational(optimizer: Optimizer, **options: Any) -> RuleOptimizer:
    """Rotational twin of a running AdamW, SGD or Lion, with its settings, moments and step counts.

    Parameters
    ----------
    optimizer : torch.optim.AdamW, torch.optim.SGD or Lion
        Stays as it is; do not step it any more.
    **options
        Options of the twin for all groups, e.g. ``per_neuron=False`` or ``weight_decay=0.1``.

    Returns
    -------
    RVAdamW, RVSGD or RVLion
        Over the same parameters. With ``zero_mean`` their neurons are centred now; their present norms are held.

    Raises
    ------
    InputError
        If the rule has no twin (Adam with L2 decay, other optimizers), or uses amsgrad or dampening.

    Notes
    -----
    1. Schedulers belong to an optimizer: make a new one on the twin with ``last_epoch`` of the old; the groups carry
       their ``initial_lr``.
    2. The running update norm starts anew with its own bias correction, so the first steps are not too large.
    3. The present norm is held even where it is not yet at its equilibrium, because changing it would change the
       network's outputs.

    References
    ----------
    Kosson, Messmer, Jaggi, "Rotational Equilibrium", ICML 2024, arXiv 2305.17212.

    Examples
    --------
    >>> import torch
    >>> from assay.training.rotational import to_rotational
    >>> layer = torch.nn.Linear(8, 4)
    >>> plain = torch.optim.AdamW(layer.parameters(), lr=1e-2, weight_decay=0.1)
    >>> layer(torch.ones(2, 8)).square().sum().backward()
    >>> plain.step()
    >>> to_rotational(plain).state[layer.weight]["step"]
    1
    """
    kind = twin_of(optimizer)
    groups: list[Group] = []
    for group in optimizer.param_groups:
        kept = {k: v for k, v in group.items() if k not in ("params", "param_names", "foreach", *UNSUPPORTED)}
        groups.append({**kept, **options, "params": named(group)})
    twin = kind(groups)  # type: ignore[call-arg]
    for group in twin.param_groups:
        for p in group["params"]:
            old = optimizer.state.get(p)
            if old:
                # torch's SGD counts no steps, and its rule needs none.
                twin.state[p] = {"step": int(old.get("step", 1)), **carry(old, kind.rule.buffers, p)}
    return twin


@torch.no_grad()
def from_rotational(optimizer: Optimizer, **options: Any) -> Optimizer:
    """Plain AdamW, SGD or Lion that goes on from a rotational one, with its settings and moments.

    Parameters
    ----------
    optimizer : RVAdamW, RVSGD, RVLion or RVWrapper
        Stays as it is; do not step it any more. Of a wrapper, the inner optimizer is returned.
    **options
        Options of the plain optimizer for all groups, e.g. ``weight_decay=0.0`` or ``foreach=True``.

    Returns
    -------
    torch.optim.AdamW, torch.optim.SGD, Lion or the inner optimizer
        Over the same parameters, whose norms are free again from its next step.

    Raises
    ------
    InputError
        If the optimizer is not rotational.

    References
    ----------
    Kosson, Messmer, Jaggi, "Rotational Equilibrium", ICML 2024, arXiv 2305.17212.

    Examples
    --------
    >>> import torch
    >>> from assay.training.rotational import RVSGD, from_rotational
    >>> layer = torch.nn.Linear(8, 4)
    >>> type(from_rotational(RVSGD(layer.parameters(), lr=0.1))).__name__
    'SGD'
    """
    if isinstance(optimizer, RVWrapper):
        for group in optimizer.optimizer.param_groups:
            for key in OPTIONS:
                group.pop(key, None)
            group.update(options)
        return optimizer.optimizer
    plain_kinds: dict[type[Optimizer], type[Optimizer]] = {
        RVAdamW: torch.optim.AdamW,
        RVSGD: torch.optim.SGD,
        RVLion: Lion,
    }
    kind = next((plain for rv, plain in plain_kinds.items() if isinstance(optimizer, rv)), None)
    if kind is None or not isinstance(optimizer, RuleOptimizer):
        raise InputError(f"{type(optimizer).__name__} is not rotational.")
    groups: list[Group] = []
    for group in optimizer.param_groups:
        kept = {k: v for k, v in group.items() if k not in ("params", "param_names", *OPTIONS)}
        groups.append({**kept, **options, "params": named(group)})
    plain = kind(groups, lr=groups[0]["lr"])  # type: ignore[call-arg]
    for group in plain.param_groups:
        for p in group["params"]:
            old = optimizer.state.get(p)
            if not old:
                continue
            new: dict[str, Any] = dict(carry(old, optimizer.rule.buffers, p))
            if kind is Lion:
                new["step"] = old["step"]
            elif kind is torch.optim.AdamW:
                on = p.device if group["fused"] or group["capturable"] else "cpu"
                new["step"] = torch.tensor(float(old["step"]), dtype=torch.float32, device=on)
            plain.state[p] = new
    return plain
