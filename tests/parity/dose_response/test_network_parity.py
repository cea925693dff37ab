"""Loss, network and graph attention against values computed elsewhere."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from assay.bio.dose_response import ARCANetModule, curve_loss
from assay.bio.dose_response._encoders import GATv2
from assay.bio.dose_response._network import ARCANetConfig

HERE = Path(__file__).parent
CLOSED = json.loads((HERE / "network.json").read_text())
PEER = json.loads((HERE / "gatv2.json").read_text())


@pytest.mark.parametrize("case", CLOSED["curve_loss"], ids=lambda c: f"alpha{c['alpha']}-T{c['T']}")
def test_curve_loss_in_forty_digits(case):
    pred, target = (torch.tensor(case[k], dtype=torch.float64) for k in ("pred", "target"))
    value = curve_loss(pred, target, torch.tensor(case["mask"]).bool(), case["alpha"], case["T"])
    # A dozen float64 operations on numbers of order one.
    assert float(value) == pytest.approx(case["loss"], rel=1e-13)


def test_network_forward_in_forty_digits():
    case = CLOSED["network"]
    net = ARCANetModule(ARCANetConfig(5, 4, dim=3, hidden=3, regression=4, batch_norm=False)).double().eval()
    with torch.no_grad():
        for layer, name in enumerate(case["layers"]):
            module = net.get_submodule(name)
            for i in range(module.out_features):
                for j in range(module.in_features):
                    module.weight[i, j] = math.sin(7 * i + 3 * j + 11 * layer + 1) / 2
                if module.bias is not None:
                    module.bias[i] = math.sin(7 * i + 3 * 97 + 11 * layer + 1) / 2
        zero = torch.zeros(1, dtype=torch.long)
        genes, bits, doses = (torch.tensor([case[k]], dtype=torch.float64) for k in ("genes", "bits", "doses"))
        out = net(genes, bits, zero, zero, doses)
    # float64 against 40 digits; sums of at most five terms per layer, twelve layers.
    assert out[0].tolist() == pytest.approx(case["effect"], rel=1e-12)


@pytest.mark.parametrize("case", PEER["cases"], ids=lambda c: f"heads{c['heads']}")
def test_gatv2_equals_pytorch_geometric(case):
    t = {k: torch.tensor(v, dtype=torch.int64 if k == "edge_index" else torch.float64) for k, v in case.items()}
    layer = GATv2(4, 3, 2, heads=case["heads"]).double()
    with torch.no_grad():
        for ours, theirs in (
            (layer.source.weight, "source_weight"),
            (layer.source.bias, "source_bias"),
            (layer.target.weight, "target_weight"),
            (layer.target.bias, "target_bias"),
            (layer.edge.weight, "edge_weight"),
            (layer.score, "score"),
            (layer.bias, "bias"),
        ):
            ours.copy_(t[theirs])
        out = layer(t["x"], t["edge_index"], t["edge_attr"])
    # Same float64 sums; the peer adds 1e-16 to the denominator of its softmax.
    torch.testing.assert_close(out, t["out"], rtol=1e-12, atol=1e-13)
