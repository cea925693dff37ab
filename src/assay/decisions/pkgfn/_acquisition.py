"""Acquisition functions on function networks, in closed form wherever the network allows it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from botorch.acquisition.acquisition import AcquisitionFunction
from botorch.utils.sampling import draw_sobol_normal_samples
from torch import Tensor

from assay._core.errors import InputError

from ._gp import DTYPE
from ._model import _MAX_ELEMENTS, FunctionNetworkModel, InnerNodes, gauss_hermite

# Fantasised answers of a group of two or more nodes, which Gauss-Hermite products would make too many.
_GROUP_FANTASIES = 16
# Up to this many lines all pairs are compared at once; beyond, the envelope is walked in order of slope.
_PAIRWISE_LINES = 128


def _intervals(alpha: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Interval of zeta on which each line alpha + beta zeta is the highest; equal ends where it never is."""
    gap = beta.unsqueeze(-1) - beta.unsqueeze(-2)  # [i, j] = beta_i - beta_j
    rise = alpha.unsqueeze(-2) - alpha.unsqueeze(-1)  # [i, j] = alpha_j - alpha_i
    tiny = 1e-14 * beta.abs().amax(-1)[..., None, None].clamp_min(1e-300)
    cross = rise / torch.where(gap.abs() <= tiny, torch.ones_like(gap), gap)
    infinity = torch.full_like(cross, math.inf)
    low = torch.where(gap > tiny, cross, -infinity).amax(-1)
    high = torch.where(gap < -tiny, cross, infinity).amin(-1)
    index = torch.arange(alpha.shape[-1])
    first = index.unsqueeze(-2) < index.unsqueeze(-1)  # of equal lines the first counts
    beaten = ((gap.abs() <= tiny) & ((rise > 0) | ((rise == 0) & first))).any(-1)
    dead = beaten | (low >= high)
    zero = torch.zeros_like(low)
    return torch.where(dead, zero, low), torch.where(dead, zero, high)


def _intervals_walk(alpha: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same for one set of many lines in O(A log A)."""
    order = np.lexsort((alpha, beta))
    keep: list[int] = []
    start: list[float] = []
    for i in order:
        if keep and beta[i] == beta[keep[-1]]:
            keep.pop()
            start.pop()
        x = -math.inf
        while keep:
            x = (alpha[keep[-1]] - alpha[i]) / (beta[i] - beta[keep[-1]])
            if x > start[-1]:
                break
            keep.pop()
            start.pop()
            x = -math.inf
        keep.append(int(i))
        start.append(x)
    low, high = np.zeros(len(alpha)), np.zeros(len(alpha))
    low[keep] = start
    high[keep] = [*start[1:], math.inf]
    return low, high


def expected_max_affine(alpha: Tensor, beta: Tensor) -> Tensor:
    """Give E[max_a (alpha_a + beta_a zeta)] for standard normal zeta, exactly.

    .. math:: \\sum_a \\alpha_a[\\Phi(c_{a+1}) - \\Phi(c_a)] + \\beta_a[\\varphi(c_a) - \\varphi(c_{a+1})]

    over the lines of the upper envelope with breakpoints c.

    Parameters
    ----------
    alpha, beta : Tensor of shape (..., A)
        Intercepts and slopes.

    Returns
    -------
    Tensor of shape (...)
        Differentiable once in both (the breakpoints need no derivative: the envelope is continuous there).

    Examples
    --------
    >>> a, b = torch.zeros(2, dtype=torch.float64), torch.tensor([1.0, -1.0], dtype=torch.float64)
    >>> round(float(expected_max_affine(a, b)), 6)  # E|zeta|
    0.797885
    """
    alpha, beta = torch.broadcast_tensors(alpha, beta)
    with torch.no_grad():
        top = alpha.amax(-1, keepdim=True)
        if alpha.shape[-1] <= _PAIRWISE_LINES:
            low, high = _intervals(alpha - top, beta)
        else:
            a = (alpha - top).reshape(-1, alpha.shape[-1]).numpy()
            b = beta.reshape(-1, beta.shape[-1]).numpy()
            ends = [_intervals_walk(x, y) for x, y in zip(a, b, strict=True)]
            low = torch.from_numpy(np.stack([e[0] for e in ends])).reshape(alpha.shape)
            high = torch.from_numpy(np.stack([e[1] for e in ends])).reshape(alpha.shape)
        # zero-length intervals give exact zeros
        share = torch.special.ndtr(high) - torch.special.ndtr(low)
        root = 1.0 / math.sqrt(2.0 * math.pi)
        density = root * (torch.exp(-0.5 * low**2) - torch.exp(-0.5 * high**2))
    return top.squeeze(-1) + ((alpha - top) * share + beta * density).sum(-1)


class _NetworkAcquisition(AcquisitionFunction):
    """Checks of shapes and dtypes that all acquisitions of networks share; subclasses give `_value(z: b x d_z)`."""

    model: FunctionNetworkModel

    def __init__(self, model: FunctionNetworkModel) -> None:
        if not isinstance(model, FunctionNetworkModel):
            raise InputError(f"model must be a FunctionNetworkModel, got {type(model).__name__}.")
        super().__init__(model=model)
        self._width, self._columns = model.network.d, list(model.network.input_names)
        self._work_per_row = 1
        self.evaluations = 0  # queries valued so far, for comparisons of effort

    def forward(self, X: Tensor) -> Tensor:
        """Value at ``b x 1 x d``: a tensor of shape ``b``."""
        if X.ndim < 2 or X.shape[-1] != self._width:
            raise InputError(
                f"{type(self).__name__}: the last dimension must hold {', '.join(self._columns)} "
                f"({self._width} columns), got shape {tuple(X.shape)}."
            )
        if X.shape[-2] != 1:
            raise InputError(f"{type(self).__name__} values one query at a time: q must be 1, got {X.shape[-2]}.")
        flat = X.to(DTYPE).reshape(-1, self._width)
        size = max(1, _MAX_ELEMENTS // self._work_per_row)
        self.evaluations += len(flat)
        value = torch.cat([self._value(z) for z in flat.split(size)])
        return value.reshape(X.shape[:-2]).to(X.dtype)

    def _value(self, z: Tensor) -> Tensor:
        raise NotImplementedError


class PartialKnowledgeGradientFN(_NetworkAcquisition):
    """Expected rise of the best posterior mean from running one node at one input.

    .. math:: \\alpha_j(z) = E_y\\Big[\\max_{x \\in A} E[g(y(x)) \\mid D, (j, z, y)]\\Big] - \\max_{x \\in A} E[g(y(x)) \\mid D]

    over a finite set A of designs, before division by the node's cost.

    Parameters
    ----------
    model : FunctionNetworkModel
        The surrogate; it is not changed.
    node : int
        The node to run; with it every node of its group.
    X_discrete : Tensor of shape (A, d)
        The set A.
    num_fantasies : int, default 8
        Gauss-Hermite answers of the query, where they are needed.
    num_inner_samples : int, optional
        Inner nodes. Default: none where no node need be sampled, 16 Gauss-Hermite nodes for one, 64 Sobol points for more.
    current_value : Tensor, optional
        Second term. Default: over the same set and inner nodes, so that the difference is free of their error.
    sampler : MCSampler, optional
        BoTorch sampler whose size and seed give the inner nodes.
    cost_aware_utility : CostAwareUtility, optional
        BoTorch's, for example ``InverseCostWeightedUtility``: then the value is divided by the cost.
    tabulate : bool, default True
        Tabulate nodes that read one parent and nothing else (error 1e-10 of the output's standard deviation).
    seed : int, default 0
        Of the Sobol points.

    Notes
    -----
    1. No model is rebuilt: with fixed hyper-parameters the mean after an answer is
       :math:`\\mu(u) + c(u, z)\\zeta/\\sqrt v` and the variance :math:`\\sigma^2(u) - c(u, z)^2/v`.
    2. Where the answer enters the objective linearly, the value is exact: the upper envelope of the lines of A.

    References
    ----------
    Buathong et al., "Bayesian Optimization of Function Networks with Partial Evaluations", ICML 2024, arXiv:2311.02146.

    Examples
    --------
    >>> from assay.decisions.pkgfn import FunctionNetwork, FunctionNetworkModel
    >>> net = FunctionNetwork([[], [0]], [[0], []], torch.tensor([[0.0], [1.0]]), [1.0, 1.0])
    >>> x = torch.linspace(0, 1, 4, dtype=torch.float64)[:, None]
    >>> model = FunctionNetworkModel([x, torch.sin(3 * x)], [torch.sin(3 * x), torch.sin(3 * x) ** 2], net)
    >>> acqf = PartialKnowledgeGradientFN(model, 0, X_discrete=torch.rand(20, 1, dtype=torch.float64))
    >>> acqf(torch.rand(5, 1, 1, dtype=torch.float64)).shape
    torch.Size([5])
    """

    def __init__(
        self,
        model: FunctionNetworkModel,
        node: int,
        X_discrete: Tensor,
        num_fantasies: int = 8,
        num_inner_samples: int | None = None,
        current_value: Tensor | None = None,
        sampler: Any = None,
        *,
        cost_aware_utility: Any = None,
        tabulate: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__(model)
        net = model.network
        if not 0 <= node < net.n_nodes:
            raise InputError(f"node {node} is out of range: the network has {net.n_nodes} nodes.")
        if X_discrete.ndim != 2 or X_discrete.shape[-1] != net.d or len(X_discrete) == 0:
            raise InputError(f"X_discrete must be A x {net.d} with A >= 1, got {tuple(X_discrete.shape)}.")
        if num_fantasies < 1 or (num_inner_samples is not None and num_inner_samples < 1):
            raise InputError("num_fantasies and num_inner_samples must be at least 1.")
        self.node, self.cost_aware_utility = node, cost_aware_utility
        self._width, self._columns = net.input_dim(node), net.columns(node)
        A = X_discrete.detach().to(DTYPE)
        with torch.no_grad():
            self._inner = InnerNodes.make(net, num_inner_samples, seed, sampler)
            self._tables = model.tables() if tabulate else None
            self._A = A
            group = net.group_of[node]
            self._group = [j for j in group if j in net.relevant]
            below = set().union(*[net.descendants(j) for j in group]) & net.relevant
            apart = net.relevant - below - set(group)
            known = model.propagate(A, self._inner, self._tables, nodes=apart)
            self._inputs, self._white, self._mean, self._var = {}, {}, {}, {}
            for j in self._group:
                U = model.node_inputs(j, A, known)  # (A, S', d_j)
                self._inputs[j], self._white[j] = U, model.nodes[j].white(U)
                self._mean[j], self._var[j] = model.nodes[j].mean_var(U, self._white[j])
            self._known, self._below = known, below
            now = dict(known)
            for j in self._group:
                now[j] = self._mean[j]
                if j in self._inner.xi:
                    now[j] = now[j] + self._var[j].sqrt() * self._inner.xi[j]
            full = model.propagate(A, self._inner, self._tables, known=now)
            self._plain = model.value(full, self._inner)  # (A,)
            self.current_value = self._plain.amax() if current_value is None else torch.as_tensor(current_value)
            self._affine = len(self._group) == 1 and not below and self._group[0] not in net.sampled
            if self._affine:
                self._prepare_lines(full)
        if len(self._group) > 1:
            count = max(num_fantasies, _GROUP_FANTASIES)
            self._zeta = draw_sobol_normal_samples(len(self._group), count, dtype=DTYPE, seed=seed % 2**31)
            self._fantasy_weights = torch.full((count,), 1.0 / count, dtype=DTYPE)
        else:
            zeta, self._fantasy_weights = gauss_hermite(num_fantasies)
            self._zeta = zeta.unsqueeze(-1)
        if not self._affine:
            # kernel rows where a descendant is not tabulated, otherwise about the dozen arrays of an interpolation
            wide = [model.nodes[k].n for k in below if self._tables is None or k not in self._tables]
            self._work_per_row = len(A) * self._inner.size * len(self._zeta) * max([12, *wide])
        else:
            self._work_per_row = self._inputs[self._group[0]].shape[:-1].numel() + len(A) ** 2

    def _prepare_lines(self, full: dict[int, Tensor]) -> None:
        """Weights C[a, s] with which covariances to the query enter the slope of each design's line."""
        model, j = self.model, self._group[0]
        up = dict(full)
        up[j] = full[j] + 1.0  # the utility is affine in this output: a difference over any step is its slope
        net = model.network
        g = [
            net.utility(model.stack(Y), model.worst_cached, model.spread_cached).expand(len(self._A), self._inner.size)
            for Y in (full, up)
        ]
        weight = (g[1] - g[0]) * self._inner.weights
        if self._inputs[j].shape[1] == 1:
            weight = weight.sum(-1, keepdim=True)
        self._line_weight = weight  # (A, S')
        self._line_white = (weight.unsqueeze(-1) * self._white[j]).sum(1)  # (A, n)

    def _value(self, z: Tensor) -> Tensor:
        if not self._group:
            value = torch.zeros(len(z), dtype=DTYPE) + 0.0 * z.sum(-1)
        elif self._affine:
            value = self._exact(z)
        else:
            value = self._fantasies(z)
        if self.cost_aware_utility is not None:
            value = self.cost_aware_utility(z.unsqueeze(-2), value.unsqueeze(0)).squeeze(0)
        return value

    def _exact(self, z: Tensor) -> Tensor:
        j = self._group[0]
        gp = self.model.nodes[j]
        white = gp.white(z)
        var = gp.mean_var(z, white)[1] + gp.observation_noise
        U = self._inputs[j].flatten(0, 1)
        k = gp._k(gp._scaled(z), gp._scaled(U)).reshape(len(z), *self._line_weight.shape)
        cov = gp.y_std**2 * ((k * self._line_weight).sum(-1) - white @ self._line_white.T)
        lines = expected_max_affine(self._plain.expand(len(z), -1), cov / var.sqrt().unsqueeze(-1))
        return lines - self.current_value

    def _fantasies(self, z: Tensor) -> Tensor:
        model = self.model
        known = dict(self._known)
        for i, j in enumerate(self._group):
            gp = model.nodes[j]
            white = gp.white(z)
            var = gp.mean_var(z, white)[1] + gp.observation_noise
            U = self._inputs[j]
            cov = gp.covariance_matrix(U.flatten(0, 1), z, self._white[j].flatten(0, 1), white).reshape(
                len(z), 1, *U.shape[:-1]
            )
            step = cov / var.sqrt()[:, None, None, None]
            y = self._mean[j] + step * self._zeta[:, i, None, None]
            if j in self._inner.xi:
                left = (self._var[j] - step * step).clamp_min(1e-12 * gp.y_std**2)
                y = y + left.sqrt() * self._inner.xi[j]
            known[j] = y
        full = model.propagate(self._A, self._inner, self._tables, known=known)
        best = model.value(full, self._inner).amax(-1)  # (b, F)
        return (best * self._fantasy_weights).sum(-1) - self.current_value


class NetworkPosteriorMean(_NetworkAcquisition):
    """Posterior mean of the objective of a network, for the final recommendation.

    Parameters
    ----------
    model : FunctionNetworkModel
        The surrogate.
    num_inner_samples : int, optional
        Default: 16 Gauss-Hermite nodes where one node must be sampled, 512 Sobol points for more.
    seed : int, default 0
        Of the Sobol points.

    Examples
    --------
    >>> from assay.decisions.pkgfn import FunctionNetwork, FunctionNetworkModel
    >>> net = FunctionNetwork([[]], [[0]], torch.tensor([[0.0], [1.0]]), [1.0])
    >>> x = torch.linspace(0, 1, 4, dtype=torch.float64)[:, None]
    >>> value = NetworkPosteriorMean(FunctionNetworkModel([x], [x], net))(x[2].reshape(1, 1, 1))
    >>> round(float(value), 3)
    0.667
    """

    def __init__(self, model: FunctionNetworkModel, num_inner_samples: int | None = None, seed: int = 0) -> None:
        super().__init__(model)
        self._inner = InnerNodes.make(model.network, num_inner_samples, seed, wide=True)
        with torch.no_grad():
            self._tables = model.tables()

    def _value(self, z: Tensor) -> Tensor:
        return self.model.expected_utility(z, self._inner, self._tables)


class ExpectedImprovementFN(_NetworkAcquisition):
    """Expected improvement of the objective by evaluating the whole network at a design (EIFN).

    Parameters
    ----------
    model : FunctionNetworkModel
        The surrogate.
    best_f : float
        Best objective value so far (sign turned for minimisation).
    num_inner_samples : int, optional
        As `NetworkPosteriorMean`, but 64 Sobol points. One node in which the objective is affine is integrated exactly.
    seed : int, default 0
        Of the Sobol points.

    References
    ----------
    Astudillo and Frazier, "Bayesian Optimization of Function Networks", NeurIPS 2021, arXiv:2112.15311.

    Examples
    --------
    >>> from assay.decisions.pkgfn import FunctionNetwork, FunctionNetworkModel
    >>> net = FunctionNetwork([[]], [[0]], torch.tensor([[0.0], [1.0]]), [1.0])
    >>> x = torch.linspace(0, 0.5, 4, dtype=torch.float64)[:, None]
    >>> acqf = ExpectedImprovementFN(FunctionNetworkModel([x], [x], net), best_f=0.5)
    >>> bool(acqf(torch.ones(1, 1, 1, dtype=torch.float64)) > 0.05)
    True
    """

    def __init__(
        self, model: FunctionNetworkModel, best_f: float, num_inner_samples: int | None = None, seed: int = 0
    ) -> None:
        super().__init__(model)
        net = model.network
        self.best_f = float(best_f)
        exact = [k for k in net.order if k in net.objective_nodes and k not in net.sampled]
        self._exact_node = exact[-1] if exact else None
        others = [k for k in net.order if k in net.relevant and k != self._exact_node]
        self._inner = InnerNodes.make(net, num_inner_samples, seed, nodes=others)
        self._work_per_row = self._inner.size * max(gp.n + 1 for gp in model.nodes)

    def _value(self, z: Tensor) -> Tensor:
        model, net = self.model, self.model.network
        last = self._exact_node
        Y = model.propagate(z, self._inner, nodes=net.relevant - ({last} if last is not None else set()))
        if last is None:
            gain = (net.utility(model.stack(Y), model.worst_cached, model.spread_cached) - self.best_f).clamp_min(0.0)
            return (gain * self._inner.weights).sum(-1)
        mean, var = model.nodes[last].mean_var(model.node_inputs(last, z, Y))
        g = [
            net.utility(model.stack({**Y, last: mean + step}), model.worst_cached, model.spread_cached)
            for step in (0.0, 1.0)
        ]
        sd = (var * (g[1] - g[0]) ** 2).clamp_min(1e-18).sqrt()
        u = (g[0] - self.best_f) / sd
        root = 1.0 / math.sqrt(2.0 * math.pi)
        return (sd * (root * torch.exp(-0.5 * u * u) + u * torch.special.ndtr(u)) * self._inner.weights).sum(-1)


class KnowledgeGradientFN(_NetworkAcquisition):
    """Expected rise of the best posterior mean from evaluating the whole network at a design (KGFN).

    Parameters
    ----------
    model : FunctionNetworkModel
        The surrogate.
    X_discrete : Tensor of shape (A, d)
        Designs over which the maximum is taken.
    num_fantasies : int, default 16
        Sobol answers of the whole network.
    num_inner_samples : int, optional
        As `PartialKnowledgeGradientFN`.
    seed : int, default 0
        Of the Sobol points.

    Examples
    --------
    >>> from assay.decisions.pkgfn import FunctionNetwork, FunctionNetworkModel
    >>> net = FunctionNetwork([[]], [[0]], torch.tensor([[0.0], [1.0]]), [1.0])
    >>> x = torch.linspace(0, 0.5, 4, dtype=torch.float64)[:, None]
    >>> A = torch.rand(10, 1, dtype=torch.float64)
    >>> KnowledgeGradientFN(FunctionNetworkModel([x], [x], net), A)(A[:3, None]).shape
    torch.Size([3])
    """

    def __init__(
        self,
        model: FunctionNetworkModel,
        X_discrete: Tensor,
        num_fantasies: int = 16,
        num_inner_samples: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(model)
        net = model.network
        self._A = X_discrete.detach().to(DTYPE)
        self._inner = InnerNodes.make(net, num_inner_samples, seed)
        self._zeta = draw_sobol_normal_samples(net.n_nodes, num_fantasies, dtype=DTYPE, seed=seed % 2**31)
        with torch.no_grad():
            self.current_value = model.expected_utility(self._A, self._inner).amax()
        self._work_per_row = len(self._A) * self._inner.size * num_fantasies * max(gp.n + 1 for gp in model.nodes)

    def _value(self, z: Tensor) -> Tensor:
        model, net = self.model, self.model.network
        b, F = len(z), len(self._zeta)
        answer: dict[int, Tensor] = {}  # (b, F) sampled outputs of the query
        Y: dict[int, Tensor] = {}  # (b, F, A, S) outputs at the designs, given the answer
        X = z.unsqueeze(1).expand(b, F, net.d)
        for k in net.order:
            if k not in net.relevant:
                continue
            gp = model.nodes[k]
            query = torch.cat([X[..., net.active[k]], *[answer[p].unsqueeze(-1) for p in net.parents[k]]], dim=-1)
            white_z = gp.white(query)
            mean_z, var_z = gp.mean_var(query, white_z)
            answer[k] = mean_z + var_z.sqrt() * self._zeta[:, k]
            v = (var_z + gp.observation_noise).sqrt()
            U = model.node_inputs(k, self._A, Y)  # (..., A, S', d_k)
            white_u = gp.white(U)
            mean, var = gp.mean_var(U, white_u)
            step = gp.covariance(U, query[:, :, None, None], white_u, white_z[:, :, None, None]) / v[:, :, None, None]
            y = mean + step * self._zeta[:, k, None, None]
            if k in self._inner.xi:
                y = y + (var - step * step).clamp_min(1e-12 * gp.y_std**2).sqrt() * self._inner.xi[k]
            Y[k] = y
        best = model.value(Y, self._inner).amax(-1)
        return best.expand(b, F).mean(-1) - self.current_value


class ThompsonSamplingFN(_NetworkAcquisition):
    """Objective of one network drawn from the posterior (TSFN).

    Parameters
    ----------
    model : FunctionNetworkModel
        The surrogate.
    seed : int, default 0
        Of the draw: two calls with one seed see the same network.

    Examples
    --------
    >>> from assay.decisions.pkgfn import FunctionNetwork, FunctionNetworkModel
    >>> net = FunctionNetwork([[]], [[0]], torch.tensor([[0.0], [1.0]]), [1.0])
    >>> x = torch.linspace(0, 0.5, 4, dtype=torch.float64)[:, None]
    >>> acqf = ThompsonSamplingFN(FunctionNetworkModel([x], [x], net), seed=1)
    >>> bool((acqf(x[:, None]) - x[:, 0]).abs().max() < 1e-2)  # paths go through noise-free data
    True
    """

    def __init__(self, model: FunctionNetworkModel, seed: int = 0) -> None:
        super().__init__(model)
        with torch.no_grad():
            self._path = model.sample_path(1, seed)

    def _value(self, z: Tensor) -> Tensor:
        model = self.model
        return model.network.utility(self._path(z.unsqueeze(0))[0], model.worst_cached, model.spread_cached)
