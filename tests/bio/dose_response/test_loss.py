"""The loss equals a hand computation, ignores what is masked, and has the right gradient."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from assay.bio.dose_response import curve_loss


def loss_by_hand(pred, target, mask, alpha, T):
    squares, divergences = [], []
    for p, t, m in zip(pred, target, mask, strict=True):
        at = [k for k in range(len(m)) if m[k]]
        squares += [(p[k] - t[k]) ** 2 for k in at]
        if len(at) >= 2:
            zq, zp = sum(math.exp(T * t[k]) for k in at), sum(math.exp(T * p[k]) for k in at)
            q = {k: math.exp(T * t[k]) / zq for k in at}
            divergences.append(sum(q[k] * (math.log(q[k]) - (T * p[k] - math.log(zp))) for k in at))
    mse = sum(squares) / len(squares)
    kl = sum(divergences) / max(len(divergences), 1)
    return (1 - alpha) * mse + alpha * kl


@pytest.mark.parametrize(("alpha", "T"), [(0.0, 2.5), (0.26, 2.5), (0.57, 1.0), (1.0, 4.0)])
def test_equals_hand_computation_with_ragged_masks(alpha, T):
    rng = np.random.default_rng(0)
    pred, target = rng.normal(size=(6, 5)), rng.normal(size=(6, 5))
    mask = rng.random((6, 5)) < 0.6
    mask[0], mask[1] = True, [True, False, False, False, False]  # a full curve and a curve with one dose
    mask[2] = False  # a curve that is all padding
    target[~mask] = np.nan
    value = curve_loss(torch.tensor(pred), torch.tensor(target), torch.tensor(mask), alpha, T)
    # Both sides are float64 with some twenty operations: 1e-13 leaves room for their order only.
    assert float(value) == pytest.approx(loss_by_hand(pred, target, mask, alpha, T), rel=1e-13)


def test_gradcheck_and_no_gradient_at_masked_places():
    gen = torch.Generator().manual_seed(1)
    pred = torch.randn(4, 5, dtype=torch.float64, generator=gen, requires_grad=True)
    target = torch.randn(4, 5, dtype=torch.float64, generator=gen)
    mask = torch.rand(4, 5, generator=gen) < 0.7
    mask[0, 0] = False
    target[~mask] = torch.nan
    assert torch.autograd.gradcheck(lambda p: curve_loss(p, target, mask), (pred,))
    curve_loss(pred, target, mask).backward()
    assert bool((pred.grad[~mask] == 0).all())
    assert bool(torch.isfinite(pred.grad).all())


def test_zero_at_the_truth_and_positive_elsewhere():
    y = torch.rand(3, 6, dtype=torch.float64)
    mask = torch.ones(3, 6, dtype=torch.bool)
    assert abs(float(curve_loss(y, y, mask))) < 1e-15
    assert float(curve_loss(y + torch.rand_like(y), y, mask)) > 0


def test_shape_term_does_not_see_a_shift_but_the_error_does():
    y = torch.rand(3, 6, dtype=torch.float64)
    mask = torch.ones(3, 6, dtype=torch.bool)
    assert abs(float(curve_loss(y + 0.5, y, mask, alpha=1.0))) < 1e-14
    assert float(curve_loss(y + 0.5, y, mask, alpha=0.0)) == pytest.approx(0.25)


def test_permuting_doses_changes_nothing():
    y, p = torch.rand(3, 6, dtype=torch.float64), torch.rand(3, 6, dtype=torch.float64)
    mask = torch.rand(3, 6) < 0.8
    order = torch.randperm(6)
    a, b = curve_loss(p, y, mask), curve_loss(p[:, order], y[:, order], mask[:, order])
    assert float(a) == pytest.approx(float(b), rel=1e-13)


def test_curves_without_two_doses_leave_only_the_error():
    mask = torch.tensor([[True, False], [False, False]])
    value = curve_loss(torch.zeros(2, 2), torch.ones(2, 2), mask, alpha=0.26)
    assert float(value) == pytest.approx(0.74)
    assert float(curve_loss(torch.zeros(2, 2), torch.ones(2, 2), torch.zeros(2, 2, dtype=torch.bool))) == 0.0
