"""The surrogate of a whole network: one Gaussian process per node, sampled in topological order."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from botorch.models.model import Model
from botorch.posteriors import Posterior
from botorch.sampling.get_sampler import GetSampler
from botorch.sampling.normal import SobolQMCNormalSampler
from botorch.utils.sampling import draw_sobol_normal_samples
from torch import Tensor

from assay._core.errors import InputError
from assay._core.seeds import torch_generator

from ._gp import DTYPE, NodeGP, Table, fit_node
from ._network import FunctionNetwork

HERMITE_NODES = 16  # one sampled node: on a two-node chain equal to 4,096 Sobol samples to 1e-4
SOBOL_NODES = 64  # two or more sampled nodes
RECOMMEND_NODES = 512  # for the recommendation, whose value is compared between asks
_TABLE_MARGIN = 1.0  # a table covers the observed range of its input, widened by this share on both sides
_MAX_ELEMENTS = 8_000_000  # float64 numbers in the largest array, 64 MB: designs are propagated in chunks below it


def gauss_hermite(n: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights of E[f(xi)], xi standard normal."""
    x, w = np.polynomial.hermite_e.hermegauss(n)
    return torch.from_numpy(x), torch.from_numpy(w / w.sum())


@dataclass
class InnerNodes:
    """Fixed standard-normal numbers of the sampled nodes, with quadrature weights.

    Attributes
    ----------
    xi : dict of int to Tensor of shape (S,)
        One column per sampled node.
    weights : Tensor of shape (S,)
        Sum to 1.
    """

    xi: dict[int, Tensor]
    weights: Tensor

    @property
    def size(self) -> int:
        return self.weights.shape[0]

    @classmethod
    def make(
        cls,
        network: FunctionNetwork,
        n: int | None = None,
        seed: int = 0,
        sampler: Any = None,
        wide: bool = False,
        nodes: Sequence[int] | None = None,
        samples: bool = False,
    ) -> InnerNodes:
        """Nodes by the rule: none to sample, one point; one, Gauss-Hermite; more, a scrambled Sobol sequence.

        `samples` asks for equally likely samples whatever the number of nodes.
        """
        nodes = network.sampled if nodes is None else list(nodes)
        if not nodes:
            return cls({}, torch.ones(1, dtype=DTYPE))
        if sampler is not None:
            size = sampler.sample_shape.numel()
            z = draw_sobol_normal_samples(len(nodes), size, dtype=DTYPE, seed=sampler.seed or 0)
        elif len(nodes) == 1 and not samples:
            x, w = gauss_hermite(n or HERMITE_NODES)
            return cls({nodes[0]: x}, w)
        else:
            size = n or (RECOMMEND_NODES if wide else SOBOL_NODES)
            z = draw_sobol_normal_samples(len(nodes), size, dtype=DTYPE, seed=seed % 2**31)
        return cls({k: z[:, i].contiguous() for i, k in enumerate(nodes)}, torch.full((size,), 1.0 / size, dtype=DTYPE))


class FunctionNetworkPosterior(Posterior):
    """Posterior of a network at designs ``batch x q x d``: sampled node by node, jointly over the q points.

    Parameters
    ----------
    model : FunctionNetworkModel
        The surrogate.
    X : Tensor of shape (batch, q, d)
        Designs.
    """

    def __init__(self, model: FunctionNetworkModel, X: Tensor) -> None:
        self._model = model
        self._dtype = X.dtype
        self.X = X.to(DTYPE)

    @property
    def device(self) -> torch.device:
        return self.X.device

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype

    @property
    def base_sample_shape(self) -> torch.Size:
        return self.X.shape[:-1] + torch.Size([self._model.network.n_nodes])

    @property
    def batch_range(self) -> tuple[int, int]:
        return (0, -2)

    def _extended_shape(self, sample_shape: torch.Size = torch.Size()) -> torch.Size:  # noqa: B008
        return sample_shape + self.X.shape[:-1] + torch.Size([self._model.num_outputs])

    def rsample_from_base_samples(self, sample_shape: torch.Size, base_samples: Tensor) -> Tensor:
        """Samples ``sample_shape x batch x q x m`` that are differentiable in the designs."""
        net = self._model.network
        base = base_samples.to(DTYPE)
        X = self.X.expand(*sample_shape, *self.X.shape)
        Y: list[Tensor | None] = [None] * net.n_nodes
        for k in net.order:
            columns = [X[..., net.active[k]]] if net.parents[k] else [self.X[..., net.active[k]]]
            columns += [y.unsqueeze(-1) for p in net.parents[k] if (y := Y[p]) is not None]
            mean, cov = self._model.nodes[k].joint(torch.cat(columns, dim=-1))
            q = cov.shape[-1]
            scale = cov.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(1e-12)[..., None, None]
            eye = torch.eye(q, dtype=DTYPE)
            for jitter in (1e-8, 1e-6, 1e-4):  # designs that coincide make the covariance singular
                L, info = torch.linalg.cholesky_ex(cov + jitter * scale * eye)
                if not bool((info > 0).any()):
                    break
            else:
                L = (cov.diagonal(dim1=-2, dim2=-1).clamp_min(0.0).sqrt()).diag_embed()
            Y[k] = mean + (L @ base[..., k].unsqueeze(-1)).squeeze(-1)
        every = torch.stack([y.expand(X.shape[:-1]) for y in Y if y is not None], dim=-1)
        return self._model._outputs(every).to(self._dtype)

    def rsample(self, sample_shape: torch.Size | None = None) -> Tensor:
        """Samples with fresh base samples."""
        shape = torch.Size([1]) if sample_shape is None else sample_shape
        return self.rsample_from_base_samples(shape, torch.randn(*shape, *self.base_sample_shape, dtype=DTYPE))

    def _moments(self) -> tuple[Tensor, Tensor]:
        base = draw_sobol_normal_samples(self._model.network.n_nodes, RECOMMEND_NODES, dtype=DTYPE, seed=0)
        shape = (RECOMMEND_NODES, *[1] * (self.X.ndim - 1), self._model.network.n_nodes)
        Y = self.rsample_from_base_samples(
            torch.Size([RECOMMEND_NODES]), base.reshape(shape).expand(RECOMMEND_NODES, *self.base_sample_shape)
        )
        return Y.mean(0), Y.var(0)

    @property
    def mean(self) -> Tensor:
        """Mean ``batch x q x m`` by 512 quasi-random samples."""
        return self._moments()[0]

    @property
    def variance(self) -> Tensor:
        """Variance ``batch x q x m`` by 512 quasi-random samples."""
        return self._moments()[1]


@GetSampler.register(FunctionNetworkPosterior)
def _network_sampler(posterior: Any, sample_shape: torch.Size, *, seed: int | None = None) -> SobolQMCNormalSampler:
    return SobolQMCNormalSampler(sample_shape=sample_shape, seed=seed)


@dataclass
class Fantasy:
    """A query that has not been answered: node, its input (b, F, d_k) and the standard normals (F,) of its answers."""

    node: int
    z: Tensor
    zeta: Tensor
    tables: dict[str, Any] = field(default_factory=dict)


class FunctionNetworkModel(Model):
    """A BoTorch model of a function network: an independent Gaussian process per node.

    .. math:: y_k = \\mu_k(z_k) + \\sigma_k(z_k)\\,\\xi_k, \\qquad z_k = (x_{I(k)}, y_{J(k)})

    Parameters
    ----------
    train_X : list of Tensor of shape (n_k, d_k)
        Inputs of each node: its active variables, then its parents' outputs.
    train_Y : list of Tensor of shape (n_k,) or (n_k, 1)
        Outputs of each node; a node may have none.
    network : FunctionNetwork
        What feeds what.
    noise : {"fixed", "infer"}, default "fixed"
        Deterministic nodes (variance 1e-6 of the output variance), or a noise variance per node by MAP.
    input_bounds : mapping of int to Tensor of shape (2, d_k), optional
        Box of each node's inputs that is scaled to the unit cube. Default: bounds of the variables, range of the
        parents' observations.
    node_models : list of SingleTaskGP, optional
        Fitted models, taken as they are with their transforms; their data replace `train_X` and `train_Y`.
    noise_var : list of Tensor or None, optional
        Known variance of every observation.
    outputs : {"objective", "nodes"}, default "objective"
        Whether `posterior` gives the objective (one output, to be maximised) or all node outputs.
    fit : bool, default True
        Fit at once.

    Notes
    -----
    1. Everything is float64; designs in another dtype are converted and samples converted back.
    2. The posterior is not Gaussian: use Monte Carlo acquisitions.

    References
    ----------
    Buathong et al., "Bayesian Optimization of Function Networks with Partial Evaluations", ICML 2024, arXiv:2311.02146.

    Examples
    --------
    >>> import torch
    >>> net = FunctionNetwork([[], [0]], [[0], []], torch.tensor([[0.0], [1.0]]), [1.0, 1.0])
    >>> x = torch.linspace(0, 1, 6, dtype=torch.float64)[:, None]
    >>> y0 = torch.sin(3 * x)
    >>> model = FunctionNetworkModel([x, y0], [y0, y0**2], net)
    >>> round(float(model.posterior(x[2:3]).mean), 2)
    0.87
    """

    def __init__(
        self,
        train_X: Sequence[Tensor] | None,
        train_Y: Sequence[Tensor] | None,
        network: FunctionNetwork,
        noise: Literal["fixed", "infer"] = "fixed",
        input_bounds: dict[int, Tensor] | None = None,
        node_models: Sequence[Any] | None = None,
        *,
        noise_var: Sequence[Tensor | None] | None = None,
        outputs: Literal["objective", "nodes"] = "objective",
        fit: bool = True,
    ) -> None:
        super().__init__()
        if noise not in ("fixed", "infer"):
            raise InputError(f"noise must be 'fixed' or 'infer', got {noise!r}.")
        if outputs not in ("objective", "nodes"):
            raise InputError(f"outputs must be 'objective' or 'nodes', got {outputs!r}.")
        self.network, self.noise, self.outputs = network, noise, outputs
        self.input_bounds = dict(input_bounds or {})
        self._external = node_models is not None
        self.nodes: list[NodeGP] = []
        self.data: list[tuple[Tensor, Tensor, Tensor | None]] = []
        if node_models is not None:
            if len(node_models) != network.n_nodes:
                raise InputError(f"node_models has {len(node_models)} entries for {network.n_nodes} nodes.")
            self.nodes = [NodeGP.from_botorch(m) for m in node_models]
            for k, gp in enumerate(self.nodes):
                self._check_data(k, gp.Z, gp.y)
            self.data = [(gp.Z, gp.y, None) for gp in self.nodes]
            return
        if train_X is None or train_Y is None or len(train_X) != network.n_nodes or len(train_Y) != network.n_nodes:
            raise InputError(f"train_X and train_Y need one entry per node ({network.n_nodes}).")
        extra = list(noise_var) if noise_var is not None else [None] * network.n_nodes
        for k in range(network.n_nodes):
            Z = torch.as_tensor(train_X[k], dtype=DTYPE).reshape(-1, network.input_dim(k))
            y = torch.as_tensor(train_Y[k], dtype=DTYPE).reshape(-1)
            self._check_data(k, Z, y)
            self.data.append((Z, y, extra[k]))
        if fit:
            self.fit()

    def _check_data(self, k: int, Z: Tensor, y: Tensor) -> None:
        name = self.network.node_names[k]
        if Z.shape[-1] != self.network.input_dim(k):
            raise InputError(f"Node {name} reads {self.network.columns(k)}, but its inputs have {Z.shape[-1]} columns.")
        if Z.shape[0] != y.shape[0]:
            raise InputError(f"Node {name}: {Z.shape[0]} inputs but {y.shape[0]} outputs.")
        if not bool(torch.isfinite(Z).all() and torch.isfinite(y).all()):
            raise InputError(f"Node {name}: observations must be finite numbers.")

    # --- fitting and data ---

    def _box(self, k: int) -> tuple[Tensor, Tensor]:
        if k in self.input_bounds:
            box = torch.as_tensor(self.input_bounds[k], dtype=DTYPE)
            return box[0], box[1]
        net = self.network
        columns = [net.bounds[:, net.active[k]]]
        for i, p in enumerate(net.parents[k]):
            y = torch.cat([self.data[p][1], self.data[k][0][:, len(net.active[k]) + i]])
            if y.numel() > 1 and float(y.max() - y.min()) > 1e-12:
                columns.append(torch.stack([y.min(), y.max()])[:, None])
            elif k in net.parent_bounds:
                columns.append(net.parent_bounds[k][:, i : i + 1])
            else:
                middle = float(y.mean()) if y.numel() else 0.0
                columns.append(torch.tensor([[middle - 0.5], [middle + 0.5]], dtype=DTYPE))
        box = torch.cat(columns, dim=1)
        return box[0], box[1]

    def fit(self, node: int | None = None) -> FunctionNetworkModel:
        """Fit the hyper-parameters of one node, or of all; a node without data keeps its prior.

        Parameters
        ----------
        node : int, optional
            Default: every node.

        Returns
        -------
        FunctionNetworkModel
            Itself.
        """
        if self._external:
            raise InputError(
                "This model was made of fitted node_models, which are taken as they are; build it from data."
            )
        previous: list[NodeGP | None] = list(self.nodes) or [None] * self.network.n_nodes
        fitted = []
        for k, (Z, y, extra) in enumerate(self.data):
            old = previous[k]
            if node is not None and k != node and old is not None:
                fitted.append(old)
                continue
            if len(y) == 0:
                warnings.warn(
                    f"Node {self.network.node_names[k]} has no observations: its prior is used.",
                    UserWarning,
                    stacklevel=2,
                )
            low, high = self._box(k)
            fitted.append(fit_node(Z, y, low, high, infer=self.noise == "infer", noise_var=extra, previous=old))
        self.nodes = fitted
        return self

    def _copy(self, nodes: list[NodeGP]) -> FunctionNetworkModel:
        twin = FunctionNetworkModel.__new__(FunctionNetworkModel)
        Model.__init__(twin)
        twin.network, twin.noise, twin.outputs, twin.input_bounds = (
            self.network, self.noise, self.outputs, self.input_bounds,
        )  # fmt: skip
        twin._external, twin.nodes = self._external, nodes
        twin.data = [(gp.Z, gp.y, gp.noise_var) for gp in nodes]
        return twin

    def condition_on_observations(self, node: int, X: Tensor, Y: Tensor) -> FunctionNetworkModel:  # type: ignore[override]
        """The model given further observations of one node; hyper-parameters stay.

        Parameters
        ----------
        node : int
            The node.
        X, Y : Tensor of shape (m, d_k) and (m,)
            Its inputs and outputs.

        Returns
        -------
        FunctionNetworkModel
            A new model; this one is unchanged.
        """
        X = torch.as_tensor(X, dtype=DTYPE).reshape(-1, X.shape[-1])
        Y = torch.as_tensor(Y, dtype=DTYPE).reshape(-1)
        self._check_data(node, X, Y)
        nodes = list(self.nodes)
        nodes[node] = nodes[node].conditioned(X, Y)
        return self._copy(nodes)

    def fantasize(self, node: int, z: Tensor, num_fantasies: int = 8) -> tuple[list[FunctionNetworkModel], Tensor]:
        """Models given each of the Gauss-Hermite answers of one query, by factorising anew.

        This is the slow, plain way; `PartialKnowledgeGradientFN` gets the same numbers in closed form.

        Parameters
        ----------
        node : int
            The node queried.
        z : Tensor of shape (d_k,)
            Its input.
        num_fantasies : int, default 8
            Number of answers.

        Returns
        -------
        list of FunctionNetworkModel, Tensor
            The models and the weights of the answers.
        """
        gp = self.nodes[node]
        z = torch.as_tensor(z, dtype=DTYPE).reshape(1, -1)
        zeta, weights = gauss_hermite(num_fantasies)
        mean, var = gp.mean_var(z)
        answers = mean + (var + gp.observation_noise).sqrt() * zeta
        return [self.condition_on_observations(node, z, y.reshape(1)) for y in answers], weights

    def sample_path(self, n: int = 1, seed: int = 0) -> Callable[[Tensor], Tensor]:
        """Draw n networks from the posterior.

        Parameters
        ----------
        n : int, default 1
            Number of networks.
        seed : int, default 0
            Of the draw.

        Returns
        -------
        callable
            Maps designs ``n x m x d`` (each network at its own m points) to node outputs ``n x m x K``; differentiable.
        """
        generator = torch_generator(seed)
        drawn = [gp.paths(n, generator) for gp in self.nodes]
        net = self.network

        def path(X: Tensor) -> Tensor:
            Y: list[Tensor] = [torch.empty(0)] * net.n_nodes
            for k in net.order:
                Z = torch.cat([X[..., net.active[k]], *[Y[p].unsqueeze(-1) for p in net.parents[k]]], dim=-1)
                Y[k] = drawn[k](Z)
            return torch.stack(Y, dim=-1)

        return path

    # --- BoTorch's interface ---

    @property
    def num_outputs(self) -> int:
        return 1 if self.outputs == "objective" else self.network.n_nodes

    @property
    def batch_shape(self) -> torch.Size:
        return torch.Size()

    def _outputs(self, Y: Tensor) -> Tensor:
        if self.outputs == "nodes":
            return Y
        return self.network.utility(Y, self.worst, self.spread).unsqueeze(-1)

    def posterior(self, X: Tensor, *args: Any, **kwargs: Any) -> FunctionNetworkPosterior:
        """Posterior at designs ``batch x q x d``; see `outputs` for what it is of."""
        if X.shape[-1] != self.network.d:
            raise InputError(f"X has {X.shape[-1]} columns; the network has {self.network.d} inputs.")
        return FunctionNetworkPosterior(self, X if X.ndim > 1 else X.unsqueeze(0))

    # --- what the acquisitions use ---

    @property
    def spread(self) -> Tensor:
        """Range of each node's observed outputs."""
        return torch.tensor(
            [float(y.max() - y.min()) if len(y) > 1 else gp.y_std for (_, y, _), gp in zip(self.data, self.nodes)],
            dtype=DTYPE,
        )

    @property
    def worst(self) -> float | None:
        """What an infeasible design counts: below anything that the objective shows at the observed outputs' corners."""
        if not self.network.constraints:
            return None
        rows = min((len(y) for _, y, _ in self.data), default=0)
        if rows == 0:
            return None
        generator = torch_generator(0)
        pick = [y[torch.randint(len(y), (256,), generator=generator)] for _, y, _ in self.data]
        value = self.network.objective(torch.stack(pick, dim=-1)) * (1.0 if self.network.maximize else -1.0)
        return float(value.min() - 0.1 * (value.max() - value.min()))

    @property
    def output_scale(self) -> float:
        """Standard deviation of the objective over the observed outputs of its nodes."""
        sds = [self.nodes[k].y_std for k in self.network.objective_nodes]
        if self.network.objective_text in self.network.node_names:
            return sds[0]
        center = torch.tensor([gp.y_mean for gp in self.nodes], dtype=DTYPE).requires_grad_(True)
        (slope,) = torch.autograd.grad(self.network.objective(center.unsqueeze(0)).sum(), center, allow_unused=True)
        slope = torch.zeros_like(center) if slope is None else slope
        sd = math.sqrt(sum(float(slope[k]) ** 2 * self.nodes[k].y_std ** 2 for k in range(self.network.n_nodes)))
        return sd if math.isfinite(sd) and sd > 0 else max(sds)

    def tables(self) -> dict[int, tuple[Table, Table | None]]:
        """Tabulated means (and variances of sampled nodes) of the nodes that read one parent and nothing else."""
        found: dict[int, tuple[Table, Table | None]] = {}
        net = self.network
        for k in net.relevant:
            if len(net.parents[k]) == 1 and not net.active[k] and self.nodes[k].n:
                gp = self.nodes[k]
                y = torch.cat([self.data[net.parents[k][0]][1], gp.Z[:, 0]])
                margin = _TABLE_MARGIN * max(float(y.max() - y.min()), 1e-9)
                low, high = float(y.min()) - margin, float(y.max()) + margin
                found[k] = gp.table(low, high), gp.var_table(low, high) if k in net.sampled else None
        return found

    def propagate(
        self,
        X: Tensor,
        inner: InnerNodes,
        tables: dict[int, tuple[Table, Table | None]] | None = None,
        known: dict[int, Tensor] | None = None,
        nodes: set[int] | None = None,
    ) -> dict[int, Tensor]:
        """Sampled (or mean) outputs of the nodes, each broadcastable to (..., S), at designs (..., d).

        `known` outputs are taken as they are; `nodes` limits the work.
        """
        net, Y = self.network, dict(known or {})
        for k in net.order:
            if k in Y or k not in (nodes if nodes is not None else net.relevant):
                continue
            U = self.node_inputs(k, X, Y)
            gp = self.nodes[k]
            if tables is not None and k in tables:
                mean_table, var_table = tables[k]
                mean = mean_table(U[..., 0])
                if k in inner.xi and var_table is not None:
                    sd = var_table(U[..., 0]).clamp_min(1e-12 * gp.y_std**2).sqrt()
                    mean = mean + sd * inner.xi[k]
            elif k in inner.xi:
                mean, var = gp.mean_var(U)
                mean = mean + var.sqrt() * inner.xi[k]
            else:
                mean = gp.mean(U)
            Y[k] = mean
        return Y

    def node_inputs(self, k: int, X: Tensor, Y: dict[int, Tensor]) -> Tensor:
        """Inputs of a node (..., S, d_k) from designs (..., d) and parent outputs (..., S)."""
        net = self.network
        columns = [X[..., net.active[k]].unsqueeze(-2)] if net.active[k] else []
        columns += [Y[p].unsqueeze(-1) for p in net.parents[k]]
        shape = torch.broadcast_shapes(*[c.shape[:-1] for c in columns])
        return torch.cat([c.expand(*shape, c.shape[-1]) for c in columns], dim=-1)

    def stack(self, Y: dict[int, Tensor]) -> Tensor:
        """Node outputs in one tensor (..., S, K); nodes that the objective ignores are zero."""
        shape = torch.broadcast_shapes(*[y.shape for y in Y.values()])
        zero = torch.zeros((), dtype=DTYPE).expand(shape)
        return torch.stack([Y[k].expand(shape) if k in Y else zero for k in range(self.network.n_nodes)], dim=-1)

    def value(self, Y: dict[int, Tensor], inner: InnerNodes) -> Tensor:
        """Expected utility (...) of propagated outputs."""
        g = self.network.utility(self.stack(Y), self.worst_cached, self.spread_cached)
        if g.shape[-1] == 1:
            return g[..., 0]
        return (g * inner.weights).sum(-1)

    @property
    def worst_cached(self) -> float | None:
        if not self.network.constraints:
            return None
        if not hasattr(self, "_worst"):
            self._worst = self.worst
        return self._worst

    @property
    def spread_cached(self) -> Tensor | None:
        if not self.network.constraints:
            return None
        if not hasattr(self, "_spread"):
            self._spread = self.spread
        return self._spread

    def expected_utility(
        self, X: Tensor, inner: InnerNodes, tables: dict[int, tuple[Table, Table | None]] | None = None
    ) -> Tensor:
        """Expected utility at designs (b, d), in chunks that keep every array below 64 MB."""
        widest = max(gp.n for gp in self.nodes) + 1
        size = max(1, _MAX_ELEMENTS // (inner.size * widest))
        parts = [self.value(self.propagate(x, inner, tables), inner) for x in X.split(size)]
        return torch.cat(parts) if len(parts) > 1 else parts[0]
