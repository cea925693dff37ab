"""Every mistake is named before a weight has moved."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from assay._core.errors import InputError
from assay.training.rotational import RVSGD, Lion, RVAdamW, RVLion


def matrix(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*(shape or (3, 4)), generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (RVAdamW, {"lr": -1.0}, "lr of group 0 is -1.0"),
        (RVAdamW, {"lr": math.nan}, "lr of group 0 is nan"),
        (RVAdamW, {"lr": torch.ones(2)}, "lr of group 0 is a tensor of shape"),
        (RVAdamW, {"eps": -1e-8}, "eps of group 0"),
        (RVAdamW, {"weight_decay": -0.1}, "weight_decay of group 0"),
        (RVAdamW, {"betas": (1.0, 0.9)}, r"betas\[0\] of group 0 is 1.0"),
        (RVAdamW, {"betas": (0.9, -0.1)}, r"betas\[1\] of group 0"),
        (RVAdamW, {"betas": 0.9}, "must be a pair"),
        (RVLion, {"betas": (0.9, 1.0)}, r"betas\[1\] of group 0"),
        (Lion, {"betas": (0.9, 1.5)}, r"betas\[1\] of group 0"),
        (RVSGD, {"momentum": 1.0}, "momentum of group 0"),
        (RVSGD, {"momentum": 0.0, "nesterov": True}, "nesterov=True with momentum 0"),
        (RVAdamW, {"update_norm_decay_factor": 1.0}, "update_norm_decay_factor of group 0"),
        (RVAdamW, {"rotational_eps": -1.0}, "rotational_eps of group 0"),
        (RVAdamW, {"rotation_scale": -1.0}, "rotation_scale of group 0"),
        (RVAdamW, {"rotational": True, "weight_decay": 0.0}, "rotational with weight_decay 0"),
        (RVAdamW, {"on_zero": "ignore"}, "on_zero of group 0 is 'ignore'"),
        (RVAdamW, {"neuron_dim": 2}, "has no dimension 2"),
        (RVAdamW, {"neuron_dim": -1}, "neuron_dim of group 0"),
        (RVAdamW, {"per_neuron": 1}, "per_neuron of group 0"),
        (RVAdamW, {"rotational": "yes"}, "rotational of group 0"),
    ],
)
def test_options_out_of_range(kind: Any, options: dict[str, Any], message: str) -> None:
    p = matrix()
    start = p.detach().clone()
    with pytest.raises(InputError, match=message):
        kind([p], **options)
    assert torch.equal(p, start)


def test_a_refused_group_is_not_added() -> None:
    optimizer = RVAdamW([matrix()])
    with pytest.raises(ValueError, match="lr of group 1"):
        optimizer.add_param_group({"params": [matrix()], "lr": -1.0})
    assert len(optimizer.param_groups) == 1


def test_complex_parameters() -> None:
    with pytest.raises(ValueError, match="is complex"):
        RVAdamW([nn.Parameter(torch.ones(3, 4, dtype=torch.complex64))])


@pytest.mark.parametrize("kind", [RVAdamW, RVSGD, RVLion, Lion])
def test_sparse_gradients(kind: Any) -> None:
    table, p = nn.Embedding(5, 4, sparse=True), matrix()
    optimizer = kind([p, *table.parameters()])
    start = p.detach().clone()
    p.grad = torch.ones_like(p)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match="is sparse"):
        optimizer.step()
    assert torch.equal(p, start)


@pytest.mark.parametrize("zero_mean", [True, False])
def test_neurons_without_norm_are_named(zero_mean: bool) -> None:
    layer = nn.Linear(4, 3)
    with torch.no_grad():
        layer.weight[1] = 0.0
    with pytest.raises(ValueError, match=r"Neuron 1 of 'weight'.*rotational=False.*on_zero='skip'"):
        optimizer = RVAdamW(layer.named_parameters(), zero_mean=zero_mean)
        layer(torch.ones(1, 4)).sum().backward()
        optimizer.step()
    assert RVAdamW(layer.parameters(), rotational=False)


def test_constant_neurons_have_no_norm_without_their_mean() -> None:
    with pytest.raises(ValueError, match=r"Neuron 0 .* is constant"):
        RVAdamW([nn.Parameter(torch.full((2, 7), 0.1))])


def test_non_finite_gradients() -> None:
    layer = nn.Linear(4, 3)
    optimizer = RVAdamW(layer.named_parameters(), weight_decay=0.1)
    layer.weight.grad = torch.ones(3, 4)
    layer.weight.grad[2, 1] = math.nan
    start = layer.weight.detach().clone()
    with torch.autograd.set_detect_anomaly(True, check_nan=False), pytest.raises(FloatingPointError, match="'weight'"):
        optimizer.step()
    assert torch.equal(layer.weight, start)
    optimizer.step()  # without it the usual semantics: NaN where the gradient was, nowhere else
    assert torch.isnan(layer.weight[2]).all()
    assert torch.isfinite(layer.weight[:2]).all()


@pytest.mark.parametrize(
    ("shape", "options"), [((5, 1), {}), ((5, 2), {}), ((5, 1), {"zero_mean": False}), ((5, 1, 1, 1), {})]
)
def test_neurons_too_small_to_turn_warn_and_take_the_plain_update(
    shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    p = matrix(*shape)
    q = nn.Parameter(p.detach().clone())
    with pytest.warns(UserWarning, match="too few weights per neuron"):
        optimizer = RVAdamW([p], lr=0.1, weight_decay=0.1, **options)
    plain = torch.optim.AdamW([q], lr=0.1, weight_decay=0.1)
    p.grad, q.grad = torch.ones_like(p), torch.ones_like(q)
    optimizer.step()
    plain.step()
    torch.testing.assert_close(p.detach(), q.detach())


def test_vectors_rotate_only_when_forced_and_then_as_one_neuron() -> None:
    p, q = matrix(6), matrix(6)
    free, forced = RVAdamW([p], weight_decay=0.1), RVAdamW([q], weight_decay=0.1, rotational=True)
    norm = q.detach().norm()
    for _ in range(3):
        p.grad, q.grad = torch.arange(6.0), torch.arange(6.0)
        free.step()
        forced.step()
    assert "norm" not in free.state[p]
    assert forced.state[q]["norm"].shape == (1,)
    torch.testing.assert_close(q.detach().norm(), norm, rtol=1e-6, atol=0)


def test_a_rotational_group_whose_decay_is_removed_is_refused_at_the_step() -> None:
    p = matrix()
    optimizer = RVAdamW([p], weight_decay=0.1, rotational=True)
    optimizer.param_groups[0]["weight_decay"] = 0.0
    p.grad = torch.ones_like(p)
    with pytest.raises(ValueError, match="would never move"):
        optimizer.step()
