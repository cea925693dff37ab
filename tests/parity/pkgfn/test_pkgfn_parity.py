"""Values of BoTorch 0.18.1 on a 20-point chain: posteriors, fantasy models at equal nodes, MAP optimum.

Made with the functions `fantasy_values` and `_untransformed` of the claims' experiments and with `fit_gpytorch_mll`.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from assay.decisions.pkgfn import FunctionNetworkModel, PartialKnowledgeGradientFN, problems
from assay.decisions.pkgfn._gp import NodeGP, fit_node, log_posterior

DATA = json.loads((Path(__file__).parent / "botorch.json").read_text())
D = torch.float64


@pytest.fixture(scope="module")
def model():
    nodes = []
    for name, hyper in zip(("first", "last"), DATA["hyper"]):
        Z = torch.tensor(DATA[name]["X"], dtype=D)
        nodes.append(NodeGP.from_hyperparameters(Z, torch.tensor(DATA[name]["y"], dtype=D), None, hyper))
    net = problems.AckleySine()
    out = FunctionNetworkModel([gp.Z for gp in nodes], [gp.y for gp in nodes], net, fit=False)
    out.nodes = nodes
    return out


@pytest.mark.parametrize("node", [0, 1])
def test_posterior(model, node):
    Z = torch.tensor(DATA["Z"], dtype=D) if node == 0 else torch.linspace(-6, 0, 7, dtype=D)[:, None]
    mean, var = model.nodes[node].mean_var(Z)
    # two factorisations of a matrix with condition 1e8
    assert np.allclose(mean, DATA["posterior"][node]["mean"], atol=1e-6)
    assert np.allclose(var, DATA["posterior"][node]["variance"], atol=1e-6)


@pytest.mark.parametrize("tabulate", [True, False])
def test_acquisition_equals_fantasy_models(model, tabulate):
    acqf = PartialKnowledgeGradientFN(model, 0, torch.tensor(DATA["A"], dtype=D), tabulate=tabulate)
    Z = torch.tensor(DATA["Z"], dtype=D).unsqueeze(1)
    theirs = torch.tensor(DATA["fantasy_value"], dtype=D) - acqf.current_value
    assert torch.allclose(acqf(Z), theirs, atol=1e-6)
    assert float(theirs.max()) > 1e-3


def test_map_optimum(model):
    """Ours is at least as good under the same log posterior, whose value equals BoTorch's up to constants."""
    gp = fit_node(model.nodes[0].Z, model.nodes[0].y, model.nodes[0].low, model.nodes[0].low + model.nodes[0].span)
    U = ((gp.Z - gp.low) / gp.span).numpy()
    t = ((gp.y - gp.y_mean) / gp.y_std).numpy()
    sq = ((U[:, None] - U[None]) ** 2).transpose(2, 0, 1)
    noise = np.full(len(t), 1e-6)

    def at(lengthscale, outputscale):
        return log_posterior(np.r_[np.log(lengthscale), np.log(outputscale)], sq, t, noise, False)[0]

    ours = at(gp.lengthscale.numpy(), gp.outputscale)
    theirs = at(DATA["map_lengthscale"], DATA["map_outputscale"])
    assert ours >= theirs - 1e-3
    assert gp.lengthscale.numpy() == pytest.approx(np.array(DATA["map_lengthscale"]), rel=0.05)


def test_both_ways_between_ours_and_botorch(model):
    Z = torch.tensor(DATA["Z"], dtype=D)
    twin = model.nodes[0].to_botorch()
    with torch.no_grad():
        posterior = twin.posterior(Z)
    back = NodeGP.from_botorch(twin)
    mean, var = model.nodes[0].mean_var(Z)
    for m, v in ((posterior.mean[:, 0], posterior.variance[:, 0]), back.mean_var(Z)):
        assert torch.allclose(m, mean, atol=1e-5)
        assert torch.allclose(v, var, atol=1e-5)
