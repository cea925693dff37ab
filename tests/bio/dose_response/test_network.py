"""The network: shapes, the formula, padding, batches against single calls."""

from __future__ import annotations

import pytest
import torch

from assay.bio._shared.molecules import ATOM_FEATURES, molecule_graph, pack_graphs
from assay.bio.dose_response import ARCANetModule
from assay.bio.dose_response._encoders import GraphTensors
from assay.bio.dose_response._network import ARCANetConfig


def small_network(drug_encoder="fingerprint", **options):
    torch.manual_seed(0)
    n = {"fingerprint": 12, "graph": ATOM_FEATURES, "identity": 3}[drug_encoder]
    config = ARCANetConfig(7, n, "expression", drug_encoder, dim=16, hidden=16, regression=32, **options)
    net = ARCANetModule(config)
    drugs = {
        "fingerprint": torch.rand(3, 12).round(),
        "identity": torch.arange(3),
        "graph": GraphTensors(pack_graphs([molecule_graph(s) for s in ("CCO", "c1ccccc1", "CC(=O)NC")])),
    }[drug_encoder]
    return net, torch.randn(4, 7), drugs, torch.tensor([0, 1, 2, 3, 0]), torch.tensor([0, 1, 2, 0, 2])


@pytest.mark.parametrize("drug_encoder", ["fingerprint", "graph", "identity"])
def test_batch_equals_single_calls(drug_encoder):
    net, cells, drugs, c, d = small_network(drug_encoder)
    net.eval()
    z = torch.rand(5, 6) * 10 + 0.01
    whole = net(cells, drugs, c, d, z)
    assert whole.shape == (5, 6)
    for i in range(5):
        one = net(cells, drugs, c[i : i + 1], d[i : i + 1], z[i : i + 1])
        torch.testing.assert_close(whole[i : i + 1], one, rtol=0, atol=1e-6)  # the spec's tolerance


def test_forward_is_the_formula():
    net, cells, drugs, c, d = small_network()
    net.eval().double()
    cells, drugs = cells.double(), drugs.double()
    z = torch.rand(5, 6, dtype=torch.float64) + 0.01
    u = net.encode_pairs(cells, drugs, c, d)
    b, s = (net.bias(u) + u) / 2, (net.slope(u) + u) / 2
    for k in range(6):
        h = 1 / (1 + torch.exp(-(b - s * torch.log10(z[:, k : k + 1]))))
        expected = net.out((net.fc(h) + h) / 2)[:, 0]
        torch.testing.assert_close(net(cells, drugs, c, d, z)[:, k], expected, rtol=1e-12, atol=1e-12)


def test_doses_are_independent_and_permute():
    net, cells, drugs, c, d = small_network()
    net.eval()
    z = torch.rand(5, 6) + 0.01
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    a = net(cells, drugs, c, d, z)
    torch.testing.assert_close(a[:, order], net(cells, drugs, c, d, z[:, order]), rtol=0, atol=1e-6)
    torch.testing.assert_close(a[:, :1], net(cells, drugs, c, d, z[:, :1]), rtol=0, atol=1e-6)
    assert net(cells, drugs, c, d, z[:, :1]).shape == (5, 1)


def test_linear_head_makes_a_mixture_of_hill_curves_that_can_be_monotone():
    net, cells, drugs, c, d = small_network(linear_head=True)
    net.eval()
    with torch.no_grad():
        net.out.weight.copy_(net.out.weight.abs())
        u = net.encode_pairs(cells, drugs, c, d)
        b, s = net.latent(u)
        z = torch.logspace(-3, 3, 40).repeat(5, 1)
        # Positive weights on curves that all rise with the dose (negative slope in the paper's sign) rise.
        rising = net.respond(b, -s.abs(), z)
    assert bool((rising.diff(dim=1) >= -1e-6).all())


@pytest.mark.parametrize("options", [
    {"activation": "tanh"}, {"dose_scale": "identity"}, {"layer_norm": True}, {"batch_norm": False},
    {"latent_hill": False}, {"linear_head": True},
])  # fmt: skip
def test_every_switch_trains(options):
    net, cells, drugs, c, d = small_network(**options)
    z = torch.rand(5, 6) + 0.01
    before = net(cells, drugs, c, d, z)
    before.square().mean().backward()
    assert all(p.grad is not None and bool(torch.isfinite(p.grad).all()) for p in net.parameters())


def test_dose_scale_identity_sees_the_dose_itself():
    a, cells, drugs, c, d = small_network()
    b, *_ = small_network(dose_scale="identity")
    z = torch.rand(5, 6) + 0.01
    torch.testing.assert_close(a.eval()(cells, drugs, c, d, 10**z), b.eval()(cells, drugs, c, d, z), rtol=0, atol=1e-6)


def test_config_is_json():
    import json

    config = ARCANetConfig(3, 4)
    assert ARCANetConfig(**json.loads(json.dumps(config.to_dict()))) == config
