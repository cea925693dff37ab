"""The optimizers against an independent reference: the step of the method, written plainly, one neuron at a time."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from assay.training.rotational import RVSGD, RVAdamW, RVLion

LR, DECAY, BETAS = 1e-2, 0.1, (0.9, 0.99)
KINDS = {
    "adamw": (RVAdamW, {"betas": BETAS}),
    "sgdm": (RVSGD, {"momentum": BETAS[0]}),
    "nesterov": (RVSGD, {"momentum": BETAS[0], "nesterov": True}),
    "lion": (RVLion, {"betas": BETAS}),
}


def reference_neuron(kind: str, w: Tensor, grads: list[Tensor], zero_mean: bool, mu: float = 0.9) -> Tensor:
    """Trajectory end of one neuron; scalars are Python floats and nothing is shared with the library."""
    b1, b2 = BETAS
    if zero_mean:
        old = math.sqrt(sum(x * x for x in w.tolist()))
        w = w - sum(w.tolist()) / len(w)
        w = w * (old / math.sqrt(sum(x * x for x in w.tolist())))
    norm = math.sqrt(sum(x * x for x in w.tolist()))
    m, v, s = torch.zeros_like(w), torch.zeros_like(w), 0.0
    if kind == "adamw":
        eta = math.sqrt(2 * LR * DECAY * (1 - b1) / (1 + b1))
    elif kind == "lion":
        eta = math.sqrt(math.pi * LR * DECAY * ((1 - b1) ** 2 + b1**2 * (1 - b2) / (1 + b2)))
    else:
        eta = math.sqrt(2 * LR * DECAY / (1 + b1))
    for t, g in enumerate(grads, 1):
        if kind == "adamw":
            m = b1 * m + (1 - b1) * g
            v = b2 * v + (1 - b2) * g**2
            d = (m / (1 - b1**t)) / (torch.sqrt(v / (1 - b2**t)) + 1e-8)
        elif kind == "lion":
            d = torch.sign(b1 * m + (1 - b1) * g)
            m = b2 * m + (1 - b2) * g
        else:
            m = g if t == 1 else b1 * m + g
            d = g + b1 * m if kind == "nesterov" else m
        if zero_mean:
            d = d - d.mean()
        d = d - w * (float(d @ w) / norm**2)
        s = mu * s + (1 - mu) * float(d @ d)
        average = math.sqrt(s / (1 - mu**t))
        w = w - eta * norm * d / (average + 1e-8)
        w = w * (norm / math.sqrt(float(w @ w)))
    return w


def reference(kind: str, w: Tensor, grads: list[Tensor], per_neuron: bool, zero_mean: bool) -> Tensor:
    if not per_neuron:
        return reference_neuron(kind, w.flatten(), [g.flatten() for g in grads], zero_mean).view_as(w)
    rows = [
        reference_neuron(kind, w[k].flatten(), [g[k].flatten() for g in grads], zero_mean).view_as(w[k])
        for k in range(len(w))
    ]
    return torch.stack(rows)


@pytest.mark.parametrize("zero_mean", [True, False])
@pytest.mark.parametrize("per_neuron", [True, False])
@pytest.mark.parametrize("kind", list(KINDS))
def test_trajectory_equals_the_reference(kind: str, per_neuron: bool, zero_mean: bool) -> None:
    generator = torch.Generator().manual_seed(7)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    # Two tensors of one shape are stacked by the batched path, the third is alone; sizes of gradients differ by step.
    starts = [draw(2, 2, 2, 2), draw(2, 2, 2, 2), draw(2, 5)]
    grads = [[draw(*w.shape) * 10.0 ** (t % 3 - 1) for t in range(50)] for w in starts]
    make, options = KINDS[kind]
    expected = [reference(kind, w, series, per_neuron, zero_mean) for w, series in zip(starts, grads, strict=True)]
    for foreach in (True, False):
        params = [nn.Parameter(w.clone()) for w in starts]
        optimizer = make(
            params, lr=LR, weight_decay=DECAY, per_neuron=per_neuron, zero_mean=zero_mean, foreach=foreach, **options
        )
        for t in range(50):
            for p, series in zip(params, grads, strict=True):
                p.grad = series[t].clone()
            optimizer.step()
        for p, end in zip(params, expected, strict=True):
            # 50 steps of float64 rounding stay below 1e-13; 1e-10 is the promised bound.
            torch.testing.assert_close(p.detach(), end, rtol=0, atol=1e-10)


@pytest.mark.parametrize("dim", [0, 1])
def test_neuron_dim_is_a_transposition(dim: int) -> None:
    torch.manual_seed(3)
    w, g = torch.randn(4, 6, 3, 3, dtype=torch.float64), torch.randn(4, 6, 3, 3, dtype=torch.float64)
    p, q = nn.Parameter(w.clone()), nn.Parameter(w.transpose(0, dim).clone(memory_format=torch.contiguous_format))
    one, two = RVAdamW([p], lr=0.1, neuron_dim=dim), RVAdamW([q], lr=0.1)
    for _ in range(5):
        p.grad, q.grad = g.clone(), g.transpose(0, dim).clone(memory_format=torch.contiguous_format)
        one.step()
        two.step()
    torch.testing.assert_close(p.detach(), q.detach().transpose(0, dim), rtol=0, atol=1e-13)


@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "transposed"])
def test_large_tensors_cut_into_rows_equal_the_plain_order(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A small batch makes a small tensor "large", so that all ways of cutting and copying are taken.
    monkeypatch.setattr("assay.training.rotational._rv.CPU_BATCH", 64)
    torch.manual_seed(4)
    w = torch.randn(9, 5, 3, 3, dtype=torch.float64)
    if layout == "channels_last":
        w = w.to(memory_format=torch.channels_last)
    elif layout == "transposed":
        w = torch.randn(3, 5, 9, 3, dtype=torch.float64).transpose(0, 2)
    runs = []
    for foreach in (True, False):
        torch.manual_seed(5)
        p = nn.Parameter(w.detach().clone())
        optimizer = RVAdamW([p], lr=0.1, weight_decay=0.1, foreach=foreach)
        for _ in range(10):
            p.grad = torch.randn(9, 5, 3, 3, dtype=torch.float64)  # contiguous, unlike the weight
            if layout == "transposed":
                p.grad = torch.randn(w.shape, dtype=torch.float64)
            optimizer.step()
        runs.append(p.detach().clone())
        assert p.stride() == w.stride()
    torch.testing.assert_close(runs[0], runs[1], rtol=0, atol=1e-13)
