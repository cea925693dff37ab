"""What the contract suite checks of this method."""

from __future__ import annotations

from typing import Any


def cases() -> list[Any]:
    """Optimizers, layers and the calculator."""
    import torch

    from assay.testing import Case

    from ._equilibrium import equilibrium
    from ._layers import ScaledConv2d, ScaledLinear, WSConv2d, WSLinear
    from ._optimizers import RVSGD, Lion, RVAdamW, RVLion
    from ._wrapper import RVWrapper

    def optimizer(make: Any, **options: Any) -> Any:
        return lambda: lambda params: make(params, **options)

    def vectors() -> tuple[Any, ...]:
        return (torch.randn(5, 8, generator=torch.Generator().manual_seed(0)),)

    def images() -> tuple[Any, ...]:
        return (torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0)),)

    examples = [
        {"optimizer": "adamw", "lr": 1e-3, "weight_decay": 0.1, "dim": 64.0},
        {"optimizer": "sgdm", "lr": 0.1, "weight_decay": 5e-4, "momentum": 0.9, "grad_rms": 2.0},
        {"optimizer": "lion", "lr": 1e-4, "weight_decay": 1.0, "dim": 64.0},
        {"optimizer": "adam_l2", "lr": 1e-3, "weight_decay": 1e-3, "dim": 64.0, "grad_rms": 2.0},
    ]
    good = examples[0]
    return [
        Case("RVAdamW", "optimizer", make=optimizer(RVAdamW, lr=1e-2, weight_decay=0.1)),
        Case("RVSGD", "optimizer", make=optimizer(RVSGD, lr=0.1, momentum=0.9, weight_decay=5e-3)),
        Case("RVLion", "optimizer", make=optimizer(RVLion, lr=1e-3, weight_decay=1.0)),
        Case("Lion", "optimizer", make=optimizer(Lion, lr=1e-3, weight_decay=0.1)),
        Case(
            "RVWrapper(AdamW)",
            "optimizer",
            make=lambda: lambda params: RVWrapper(torch.optim.AdamW(params, lr=1e-2, weight_decay=0.1)),
        ),
        Case("ScaledLinear", "torch module", make=lambda: ScaledLinear(8, 4), data=vectors, output_shape=(5, 4)),
        Case("WSLinear", "torch module", make=lambda: WSLinear(8, 4), data=vectors, output_shape=(5, 4)),
        Case(
            "ScaledConv2d",
            "torch module",
            make=lambda: ScaledConv2d(3, 4, 3, padding=1),
            data=images,
            output_shape=(2, 4, 6, 6),
        ),
        Case(
            "WSConv2d",
            "torch module",
            make=lambda: WSConv2d(3, 4, 3, padding=1),
            data=images,
            output_shape=(2, 4, 6, 6),
        ),
        Case(
            "equilibrium",
            "calculator",
            make=lambda: equilibrium,
            data=lambda: examples,
            bad=[
                {**good, "lr": -1e-3},
                {**good, "weight_decay": float("nan")},
                {**good, "betas": (1.0, 0.999)},
                {**good, "optimizer": "sgdm", "momentum": 1.0},
                {**good, "optimizer": "adagrad"},
                {**good, "dim": 0.0},
                {**good, "lag": 0},
                {**good, "lag": 1.5},
                {**good, "lr": "fast"},
            ],
        ),
    ]
