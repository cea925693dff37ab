"""The public objects of this method that must keep the contract of kind "acquisition"."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any


def _tiny() -> tuple[Any, Any]:
    """The fitted model, a fresh copy each time, and fifteen designs."""
    model, A = _fitted()
    return model._copy(list(model.nodes)), A


def _fresh(make: Any) -> Any:
    return make(*_tiny())


@lru_cache(maxsize=1)
def _fitted() -> tuple[Any, Any]:
    """A chain with a side input: node 0 reads x0, x1; node 1 reads x2 and node 0. Twelve designs."""
    import torch

    from . import FunctionNetwork, FunctionNetworkModel

    box = torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    net = FunctionNetwork([[], [0]], [[0, 1], [2]], box, [1.0, 9.0])
    g = torch.Generator().manual_seed(0)
    X = torch.rand(12, 3, generator=g, dtype=torch.float64)
    y0 = torch.sin(4 * X[:, 0]) + X[:, 1] ** 2
    y1 = -((y0 - 0.5) ** 2) + torch.cos(3 * X[:, 2])
    Z1 = torch.stack([X[:8, 2], y0[:8]], dim=-1)
    model = FunctionNetworkModel([X[:, :2], Z1], [y0, y1[:8]], net)
    return model, torch.rand(15, 3, generator=g, dtype=torch.float64)


def cases() -> list[Any]:
    """Every acquisition on one tiny network; partial ones at each of its nodes."""
    from assay.testing import Case

    from . import (
        ExpectedImprovementFN,
        KnowledgeGradientFN,
        NetworkPosteriorMean,
        PartialKnowledgeGradientFN,
        ThompsonSamplingFN,
    )

    def box(d: int, low: float = 0.0, high: float = 1.0) -> Any:
        import torch

        return torch.tensor([[low] * d, [high] * d], dtype=torch.float64), 1

    makers: dict[str, tuple[Any, Any]] = {
        "PartialKnowledgeGradientFN(0)": (lambda m, A: PartialKnowledgeGradientFN(m, 0, A), lambda: box(2)),
        "PartialKnowledgeGradientFN(1)": (lambda m, A: PartialKnowledgeGradientFN(m, 1, A), lambda: box(2, 0.0, 1.5)),
        "ExpectedImprovementFN": (lambda m, A: ExpectedImprovementFN(m, best_f=0.0), lambda: box(3)),
        "KnowledgeGradientFN": (lambda m, A: KnowledgeGradientFN(m, A[:6], num_fantasies=4), lambda: box(3)),
        "ThompsonSamplingFN": (lambda m, A: ThompsonSamplingFN(m, seed=1), lambda: box(3)),
        "NetworkPosteriorMean": (lambda m, A: NetworkPosteriorMean(m), lambda: box(3)),
    }
    return [
        Case(name=name, kind="acquisition", make=partial(_fresh, make), data=data)
        for name, (make, data) in makers.items()
    ]
