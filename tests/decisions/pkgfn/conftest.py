"""A small chain with a side input, its surrogate and a set of designs."""

import pytest
import torch

from assay.decisions.pkgfn import FunctionNetwork, FunctionNetworkModel


def _chain(**options):
    """Node 0 reads x0, x1; node 1 reads x2 and node 0."""
    functions = [
        lambda Z: torch.sin(4 * Z[..., 0]) + Z[..., 1] ** 2,
        lambda Z: -((Z[..., 1] - 0.5) ** 2) + torch.cos(3 * Z[..., 0]),
    ]
    box = torch.tensor([[0.0] * 3, [1.0] * 3], dtype=torch.float64)
    return FunctionNetwork([[], [0]], [[0, 1], [2]], box, [1.0, 9.0], functions=functions, **options)


def _observe(net, n, seed=0):
    g = torch.Generator().manual_seed(seed)
    X = net.bounds[0] + torch.rand(n, net.d, generator=g, dtype=torch.float64) * (net.bounds[1] - net.bounds[0])
    Y = net.evaluate(net.snap(X))
    return {k: (net.gather(k, net.snap(X), Y), Y[:, k]) for k in range(net.n_nodes)}


@pytest.fixture(scope="session")
def chain():
    """``chain(**options)`` makes the network."""
    return _chain


@pytest.fixture(scope="session")
def observe():
    """``observe(net, n, seed)``: free initial data of n designs."""
    return _observe


@pytest.fixture
def net():
    return _chain()


@pytest.fixture(scope="session")
def fitted():
    net = _chain()
    data = _observe(net, 6)  # few enough that most queries still promise something
    return FunctionNetworkModel([Z for Z, _ in data.values()], [y for _, y in data.values()], net)


@pytest.fixture(scope="session")
def designs():
    return torch.rand(15, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
