"""The update directions of AdamW, SGD with momentum and Lion, without learning rate and without weight decay."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from ._rates import rotation_adamw, rotation_lion, rotation_sgdm

Group = dict[str, Any]


class Rule(Protocol):
    """What the rotational step needs to know of an update rule.

    ``buffers`` names the moments that it keeps, each of the parameter's shape; ``decoupled`` says whether its weight
    decay shrinks the parameter (AdamW, Lion) or is added to the gradient (SGD).
    """

    buffers: ClassVar[tuple[str, ...]]
    decoupled: ClassVar[bool]

    @staticmethod
    def directions(
        group: Group, step: int, grads: list[Tensor], moments: list[list[Tensor]]
    ) -> tuple[list[Tensor], float]:
        """Advance the moments in place; the direction of tensor ``i`` is ``scale * directions[i]``.

        A returned tensor may be one of the moments, so the caller must not write to it.
        """
        ...

    @staticmethod
    def rotation(group: Group) -> Any:
        """Equilibrium rotation per step at the group's current settings."""
        ...


def _at_least_float32(tensors: list[Tensor]) -> list[Tensor]:
    # In half precision eps = 1e-8 is zero and the quotient of two moments loses the digits that the projection needs.
    return [t.float() if t.dtype in (torch.float16, torch.bfloat16) else t for t in tensors]


class AdamRule:
    """Bias-corrected first moment over the root of the bias-corrected second moment."""

    buffers: ClassVar[tuple[str, ...]] = ("exp_avg", "exp_avg_sq")
    decoupled: ClassVar[bool] = True

    @staticmethod
    def directions(
        group: Group, step: int, grads: list[Tensor], moments: list[list[Tensor]]
    ) -> tuple[list[Tensor], float]:
        (beta1, beta2), eps = group["betas"], group["eps"]
        first, second = moments
        torch._foreach_lerp_(first, grads, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, grads, grads, 1 - beta2)
        # Both bias corrections are scalars: drawn out of the quotient they cost nothing per element,
        # (m/c1) / (sqrt(v)/r + eps) = (r/c1) * m / (sqrt(v) + r*eps) with c1 = 1-b1^t, r = sqrt(1-b2^t).
        root = (1 - beta2**step) ** 0.5
        denominator = torch._foreach_sqrt(_at_least_float32(second))
        torch._foreach_add_(denominator, eps * root)
        directions = torch._foreach_div(_at_least_float32(first), denominator)
        return list(directions), root / (1 - beta1**step)

    @staticmethod
    def rotation(group: Group) -> Any:
        return rotation_adamw(group["lr"], group["weight_decay"], group["betas"][0])


class SGDRule:
    """Heavy-ball momentum buffer, optionally with Nesterov's look-ahead."""

    buffers: ClassVar[tuple[str, ...]] = ("momentum_buffer",)
    decoupled: ClassVar[bool] = False

    @staticmethod
    def directions(
        group: Group, step: int, grads: list[Tensor], moments: list[list[Tensor]]
    ) -> tuple[list[Tensor], float]:
        momentum = group["momentum"]
        (buffer,) = moments
        # The buffers start at zero, so the first one becomes the gradient, as in torch.optim.SGD.
        torch._foreach_mul_(buffer, momentum)
        torch._foreach_add_(buffer, grads)
        if group["nesterov"]:
            return list(torch._foreach_add(grads, buffer, alpha=momentum)), 1.0
        return buffer, 1.0

    @staticmethod
    def rotation(group: Group) -> Any:
        return rotation_sgdm(group["lr"], group["weight_decay"], group["momentum"])


class LionRule:
    """Sign of an interpolation between momentum and gradient; the momentum moves afterwards."""

    buffers: ClassVar[tuple[str, ...]] = ("exp_avg",)
    decoupled: ClassVar[bool] = True

    @staticmethod
    def directions(
        group: Group, step: int, grads: list[Tensor], moments: list[list[Tensor]]
    ) -> tuple[list[Tensor], float]:
        beta1, beta2 = group["betas"]
        (average,) = moments
        directions = torch._foreach_lerp(average, grads, 1 - beta1)
        torch._foreach_sign_(directions)
        torch._foreach_lerp_(average, grads, 1 - beta2)
        return list(directions), 1.0

    @staticmethod
    def rotation(group: Group) -> Any:
        return rotation_lion(group["lr"], group["weight_decay"], group["betas"])
