"""Function networks to try methods on: published test problems and one made of real measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ._gp import DTYPE, NodeGP
from ._network import FunctionNetwork

__all__ = ["AckleyMatyas", "AckleySine", "FreeSolv3", "GPNetwork1", "GPNetwork2", "Manufacturing", "Pharma"]


def _ackley(X: Tensor) -> Tensor:
    a, b, c = 20.0, 0.2, 2 * math.pi
    # the clamp keeps the gradient at the optimum finite; it changes the value there by 2e-13
    root = X.pow(2).mean(-1).clamp_min(1e-26).sqrt()
    return -a * torch.exp(-b * root) - torch.exp(torch.cos(c * X).mean(-1)) + a + math.e


class AckleySine(FunctionNetwork):
    """Chain of two nodes in six variables: y0 = -Ackley(x), y1 = -y0 sin(5 y0 / 6 pi); maximum 0 at x = 0.

    Parameters
    ----------
    costs : (float, float), default (1, 49)
        Of the two nodes.

    Examples
    --------
    >>> round(float(AckleySine().evaluate(torch.zeros(1, 6))[0, 1]), 9) + 0.0
    0.0
    """

    def __init__(self, costs: Sequence[float] = (1.0, 49.0)) -> None:
        super().__init__(
            [[], [0]], [list(range(6)), []], torch.tensor([[-2.0] * 6, [2.0] * 6]), list(costs),
            functions=[lambda Z: -_ackley(Z), lambda Z: -Z[..., 0] * torch.sin(5 * Z[..., 0] / (6 * math.pi))],
            parent_bounds={1: [[-20.0], [0.0]]}, optimal_value=0.0,
        )  # fmt: skip


class AckleyMatyas(FunctionNetwork):
    """y0 = Ackley(x1..x6), y1 = -0.26 (x7^2 + y0^2) + 0.48 x7 y0 with x7 in [-10, 10]; maximum 0 at x = 0.

    Parameters
    ----------
    costs : (float, float), default (1, 49)
        Of the two nodes.

    Examples
    --------
    >>> net = AckleyMatyas()
    >>> net.columns(1), round(float(net.evaluate(torch.zeros(1, 7))[0, 1]), 9) + 0.0
    (['x6', 'node0'], 0.0)
    """

    def __init__(self, costs: Sequence[float] = (1.0, 49.0)) -> None:
        low, high = [-2.0] * 6 + [-10.0], [2.0] * 6 + [10.0]
        super().__init__(
            [[], [0]], [list(range(6)), [6]], torch.tensor([low, high]), list(costs),
            functions=[
                _ackley,
                lambda Z: -0.26 * (Z[..., 0] ** 2 + Z[..., 1] ** 2) + 0.48 * Z[..., 0] * Z[..., 1],
            ],
            parent_bounds={1: [[0.0], [20.0]]}, optimal_value=0.0,
        )  # fmt: skip


@lru_cache(maxsize=1)
def _freesolv_nodes() -> tuple[NodeGP, NodeGP]:
    from assay._core.files import read_table

    table = read_table(Path(__file__).parent / "data" / "freesolv_rep3.csv", required=["x1", "x2", "x3", "cal", "expt"])
    X = torch.tensor(table[["x1", "x2", "x3"]].to_numpy(float), dtype=DTYPE)
    calculated, experimental = (torch.tensor(table[c].to_numpy(float), dtype=DTYPE) for c in ("cal", "expt"))

    def node(Z: Tensor, y: Tensor, lengthscale: float, noise: float) -> NodeGP:
        d = Z.shape[1]
        return NodeGP(
            Z, y, low=torch.zeros(d, dtype=DTYPE), high=torch.ones(d, dtype=DTYPE), y_mean=float(y.mean()),
            y_std=float(y.std()), lengthscale=torch.full((d,), lengthscale, dtype=DTYPE), noise=noise,
        )  # fmt: skip

    return node(X, calculated, 0.25, 0.05), node(calculated[:, None], experimental, 4.0, 0.1)


class FreeSolv3(FunctionNetwork):
    """Molecule (3 coordinates) -> calculated -> experimental hydration free energy, from 642 measured molecules.

    Node functions are posterior means of Gaussian processes fitted to the FreeSolv table; the experimental value is
    maximised (kcal/mol, sign turned: larger is more soluble).

    Parameters
    ----------
    costs : (float, float), default (1, 49)
        Of a calculation and of an experiment.

    Examples
    --------
    >>> FreeSolv3().node_names
    ['calculated', 'experiment']
    """

    def __init__(self, costs: Sequence[float] = (1.0, 49.0)) -> None:
        first, second = _freesolv_nodes()
        super().__init__(
            [[], [0]], [[0, 1, 2], []], torch.tensor([[0.0] * 3, [1.0] * 3]), list(costs),
            functions=[first.mean, second.mean], node_names=["calculated", "experiment"], input_names=["x1", "x2", "x3"],
            parent_bounds={1: [[float(second.Z.min())], [float(second.Z.max())]]}, optimal_value=_FREESOLV_BEST,
        )  # fmt: skip


_FREESOLV_BEST = 22.26  # kcal/mol: best of 2,000 polished starts (tests/decisions/pkgfn/test_problems.py)


def _draw(d: int, lengthscale: float, outputscale: float, seed: int, features: int = 512):
    """A fixed draw from a Matern-5/2 process on random Fourier features."""
    rng = np.random.default_rng(seed)
    frequency = torch.from_numpy(rng.normal(size=(d, features)) / np.sqrt(rng.chisquare(5, features) / 5)) / lengthscale
    phase = torch.from_numpy(rng.uniform(0, 2 * np.pi, features))
    weight = torch.from_numpy(rng.normal(size=features)) * math.sqrt(2 * outputscale / features)
    return lambda Z: torch.cos(Z.to(DTYPE) @ frequency + phase) @ weight


class Manufacturing(FunctionNetwork):
    """Two production lines that are joined: node 1 works on node 0, node 3 on nodes 1 and 2; four variables.

    Every node is one fixed draw from a Gaussian process.

    Parameters
    ----------
    seed : int, default 0
        Of the draws.
    costs : sequence of float, default (5, 10, 10, 45)
        Of the nodes.

    Examples
    --------
    >>> Manufacturing().columns(3)
    ['node1', 'node2']
    """

    def __init__(self, seed: int = 0, costs: Sequence[float] = (5.0, 10.0, 10.0, 45.0)) -> None:
        shapes = [(2, 1.0, 1.0), (1, 1.0, 1.0), (2, 1.0, 1.0), (2, 3.0, 10.0)]
        super().__init__(
            [[], [0], [], [1, 2]], [[0, 1], [], [2, 3], []], torch.tensor([[-1.0] * 4, [1.0] * 4]), list(costs),
            functions=[_draw(d, ls, os, 1000 * seed + k) for k, (d, ls, os) in enumerate(shapes)],
        )  # fmt: skip


class GPNetwork1(FunctionNetwork):
    """Chain of three nodes in three variables, each a fixed draw: x0, x1 -> y0; x2, y0 -> y1; y1 -> y2.

    Parameters
    ----------
    seed : int, default 0
        Of the draws.
    costs : sequence of float, default (1, 5, 25)
        Of the nodes.

    Examples
    --------
    >>> GPNetwork1().columns(1)
    ['x2', 'node0']
    """

    def __init__(self, seed: int = 0, costs: Sequence[float] = (1.0, 5.0, 25.0)) -> None:
        super().__init__(
            [[], [0], [1]], [[0, 1], [2], []], torch.tensor([[-1.0] * 3, [1.0] * 3]), list(costs),
            functions=[
                _draw(2, 0.7, 1.0, 2000 + 10 * seed),
                _draw(2, 1.0, 2.0, 2001 + 10 * seed), _draw(1, 1.0, 4.0, 2002 + 10 * seed)],
        )  # fmt: skip


class GPNetwork2(FunctionNetwork):
    """Two quantities measured together at three variables (one group), and a third that depends on both.

    Parameters
    ----------
    seed : int, default 0
        Of the draws.
    costs : sequence of float, default (1, 1, 10)
        Of the nodes; the group of the first two costs their sum.

    Examples
    --------
    >>> GPNetwork2().groups
    [(0, 1), (2,)]
    """

    def __init__(self, seed: int = 0, costs: Sequence[float] = (1.0, 1.0, 10.0)) -> None:
        super().__init__(
            [[], [], [0, 1]], [[0, 1, 2], [0, 1, 2], []], torch.tensor([[-1.0] * 3, [1.0] * 3]), list(costs),
            node_groups=[[0, 1]],
            functions=[
                _draw(3, 1.0, 1.0, 3000 + 10 * seed),
                _draw(3, 1.0, 1.0, 3001 + 10 * seed), _draw(2, 1.5, 4.0, 3002 + 10 * seed)],
        )  # fmt: skip


def _logistic_sum(Z: Tensor, offset: float, rows: Sequence[Sequence[float]]) -> Tensor:
    one = torch.ones(Z.shape[:-1], dtype=DTYPE)
    total = offset * one
    features = torch.cat([one.unsqueeze(-1), Z.to(DTYPE)], dim=-1)
    for weight, *coefficients in rows:
        total = total + weight * torch.sigmoid(features @ torch.tensor(coefficients, dtype=DTYPE))
    return total


_TENSILE = (
    (0.62, 3.05, 0.03, -0.16, 4.03, -0.54),
    (0.65, 1.78, 0.60, -3.19, 0.10, 0.52),
    (-0.72, 0.01, 2.04, -3.73, 0.10, -1.05),
    (-0.45, 1.82, 4.78, 0.48, -4.68, -1.65),
    (-0.32, 2.69, 5.99, 3.87, 3.10, -2.17),
)
_DISINTEGRATION = (
    (9.20, 0.32, 5.06, -4.07, -0.36, -0.34),
    (9.88, -4.83, 7.43, 3.46, 9.19, 16.58),
    (10.84, 7.90, 7.91, 4.48, 4.08, 8.28),
    (15.18, 9.41, -7.99, 0.65, 3.14, 0.31),
)


class Pharma(FunctionNetwork):
    """Tablet of four components: disintegration time DT and tensile strength TS, both to be good.

    .. math:: g = \\frac{60 - DT}{60}\\,\\frac{TS}{1.5}

    Parameters
    ----------
    costs : (float, float), default (1, 1)
        Of measuring DT and TS.

    Examples
    --------
    >>> x = torch.tensor([[-1.0, -0.147, 0.086, -0.274]], dtype=torch.float64)
    >>> net = Pharma()
    >>> round(float(net.objective(net.evaluate(x))[0]), 4)
    1.0635
    """

    def __init__(self, costs: Sequence[float] = (1.0, 1.0)) -> None:
        super().__init__(
            [[], []], [[0, 1, 2, 3], [0, 1, 2, 3]], torch.tensor([[-1.0] * 4, [1.0] * 4]), list(costs),
            functions=[lambda Z: _logistic_sum(Z, -3.95, _DISINTEGRATION), lambda Z: _logistic_sum(Z, 1.07, _TENSILE)],
            node_names=["DT", "TS"], objective="(60 - DT) / 60 * TS / 1.5", optimal_value=1.06352,
        )  # fmt: skip
