"""Layers with gains and standardised weights."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from assay.training.rotational import RVAdamW, ScaledConv2d, ScaledLinear, WSConv2d, WSLinear, add_gains


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1, padding_mode="reflect", groups=3),
        nn.BatchNorm2d(6),
        nn.Sequential(nn.Conv2d(6, 4, 1, stride=2, bias=False), nn.ReLU()),
        nn.Flatten(),
        nn.Linear(64, 5),
    )


def test_gains_leave_outputs_gradients_and_objects_as_they_are() -> None:
    model, x = net(), torch.randn(7, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    modules, before = list(model.modules()), model(x)
    before.square().sum().backward()
    grads = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    assert add_gains(model) == ["0", "2.0", "4"]
    after = model(x)
    torch.testing.assert_close(after, before, rtol=1e-6, atol=1e-6)
    after.square().sum().backward()
    assert list(model.modules()) == modules
    for name, p in model.named_parameters():
        assert p.grad is not None
        if name in grads:
            torch.testing.assert_close(p.grad, grads[name], rtol=1e-5, atol=1e-5)
        else:
            assert name.endswith("gain")
    assert isinstance(model[0], ScaledConv2d)
    assert isinstance(model[4], ScaledLinear)


def test_gain_multiplies_outputs_before_the_bias() -> None:
    layer, x = ScaledLinear(4, 3, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
    conv, y = ScaledConv2d(2, 3, 3, dtype=torch.float64), torch.randn(1, 2, 5, 5, dtype=torch.float64)
    gain = torch.tensor([2.0, -1.0, 0.0], dtype=torch.float64)
    with torch.no_grad():
        layer.gain.copy_(gain)
        conv.gain.copy_(gain)
    torch.testing.assert_close(layer(x), gain * F.linear(x, layer.weight) + layer.bias)
    expected = gain.view(3, 1, 1) * F.conv2d(y, conv.weight) + conv.bias.view(3, 1, 1)
    torch.testing.assert_close(conv(y), expected)


def test_where_chooses_layers_and_tied_weights_stay_tied() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    assert add_gains(model, where=lambda name, layer: name == "1") == ["1"]
    assert model[1].weight is model[0].weight
    assert type(model[0]) is nn.Linear


def test_fused_transformer_inference_does_not_bypass_the_gain() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 1).eval()
    add_gains(model)
    with torch.no_grad():
        model.layers[0].linear1.gain.mul_(3.0)
        fast = model(torch.ones(2, 4, 8).cumsum(1))
    slow = model(torch.ones(2, 4, 8).cumsum(1))  # with gradients torch never takes the fused path
    torch.testing.assert_close(fast, slow.detach())


@pytest.mark.parametrize("gain", [False, True])
def test_standardised_rows_have_no_mean_and_a_fixed_norm(gain: bool) -> None:
    for layer in (WSLinear(9, 4, gain=gain), WSConv2d(3, 4, 3, gain=gain), WSConv2d(4, 4, 3, groups=2, constant=2.0)):
        rows = layer.standardised_weight().detach().flatten(1)
        torch.testing.assert_close(rows.mean(1), torch.zeros(4), rtol=0, atol=1e-6)
        torch.testing.assert_close(rows.norm(dim=1), torch.full((4,), layer.constant), rtol=1e-6, atol=0)
    assert layer.constant == 2.0
    assert WSLinear(9, 4).constant == math.sqrt(2)


def test_standardised_layers_ignore_scale_and_mean_of_the_stored_weight() -> None:
    layer, x = WSLinear(6, 3), torch.randn(2, 6)
    before = layer(x).detach()
    with torch.no_grad():
        layer.weight.mul_(5.0).add_(2.0)
    torch.testing.assert_close(layer(x).detach(), before, rtol=1e-5, atol=1e-5)
    layer(x).sum().backward()
    assert layer.weight.grad is not None
    # Scale invariance: the gradient is orthogonal to the weight.
    overlap = (layer.weight.grad * layer.weight).sum(1).detach()
    torch.testing.assert_close(overlap, torch.zeros(3), rtol=0, atol=1e-5)


def test_gradcheck() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 2, 4, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(WSConv2d(2, 2, 3, gain=True, dtype=torch.float64), (x,))
    assert torch.autograd.gradcheck(ScaledConv2d(2, 2, 3, dtype=torch.float64), (x,))


def test_constant_rows_give_zero_not_nan() -> None:
    layer = WSLinear(4, 2, bias=False)
    with torch.no_grad():
        layer.weight.fill_(0.5)
    assert torch.equal(layer(torch.ones(1, 4)), torch.zeros(1, 2))


def test_gains_are_never_rotational() -> None:
    model = net()
    add_gains(model)
    optimizer = RVAdamW(model.parameters(), weight_decay=0.1)
    model(torch.randn(4, 3, 8, 8)).square().sum().backward()
    optimizer.step()
    assert "norm" not in optimizer.state[model[4].gain]
    assert "norm" in optimizer.state[model[4].weight]


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="at least two weights"):
        WSLinear(1, 3)
    with pytest.raises(ValueError, match="constant is -1"):
        WSLinear(4, 3, constant=-1.0)
    with pytest.raises(ValueError, match="eps is"):
        WSConv2d(4, 3, 3, eps=math.nan)
    with pytest.raises(ValueError, match="No layer"):
        add_gains(nn.Sequential(nn.ReLU()))
    with pytest.raises(ValueError, match=r"takes a torch\.nn\.Module, not int"):
        add_gains(3)  # type: ignore[arg-type]
