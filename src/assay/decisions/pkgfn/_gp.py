"""Exact Gaussian processes of single nodes: MAP fit, closed-form conditioning, tables of means, sample paths."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.linalg import LinAlgError, cho_solve, cholesky
from torch import Tensor

from assay._core.errors import InputError

from ._ascent import minimise

DTYPE = torch.float64
_ROOT5 = math.sqrt(5.0)
NOISE_FREE = 1e-6  # variance of a deterministic node, in units of its output variance
NOISE_LADDER = (1.0, 10.0, 100.0, 1e3, 1e4)  # factors tried when a factorisation fails: 1e-6 up to 1e-2
# BoTorch's Gamma priors (shape, rate) of lengthscales in the unit box and of the output scale, its log-normal prior of the
# noise. The newer log-normal prior of lengthscales favours long ones: in six variables the surrogate then trusts the
# local optimum that it found first, and no query promises a gain any more.
_LS_PRIOR = (3.0, 6.0)
_LS_BOUNDS = (0.025, 1e3)
_OS_PRIOR = (2.0, 0.15)
_NOISE_PRIOR = (-4.0, 1.0)
_OS_BOUNDS = (1e-2, 1e3)
_NOISE_BOUNDS = (1e-6, 1.0)
KNOTS = 1024  # of a tabulated mean: cubic Hermite interpolation is then exact to 1e-10 of the output sd


class _Matern52(torch.autograd.Function):
    """Matern-5/2 correlation as a function of the squared distance, whose derivative has no 0/0 at zero."""

    @staticmethod
    def forward(ctx: Any, sq: Tensor) -> Tensor:
        r = sq.sqrt().mul_(_ROOT5)
        e = torch.exp(-r)
        ctx.save_for_backward(r, e)
        return (1.0 + r + r * r / 3.0) * e

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        r, e = ctx.saved_tensors
        return grads[0] * (-5.0 / 6.0) * (1.0 + r) * e


def matern52(sq: Tensor) -> Tensor:
    """Matern-5/2 correlation of squared scaled distances."""
    return _Matern52.apply(sq.clamp_min(0.0))


def squared_distance(a: Tensor, b: Tensor) -> Tensor:
    """Squared distances of the last two dimensions: (..., m, d), (..., n, d) -> (..., m, n)."""
    return (a * a).sum(-1).unsqueeze(-1) + (b * b).sum(-1).unsqueeze(-2) - 2.0 * a @ b.transpose(-1, -2)


class _MaternMean(torch.autograd.Function):
    """s k(Z, X) alpha with its gradient taken in the same pass: no graph over the m x n kernel matrix."""

    @staticmethod
    def forward(ctx: Any, Z: Tensor, X: Tensor, alpha: Tensor, need: bool) -> Tensor:
        r = squared_distance(Z, X).clamp_min_(0.0).sqrt_().mul_(_ROOT5)
        e = torch.exp(-r)
        value = torch.addcmul(e, r, e).addcmul_(r * r, e, value=1.0 / 3.0) @ alpha
        if need:
            w = torch.addcmul(e, r, e).mul_(alpha).mul_(-5.0 / 3.0)
            ctx.save_for_backward(w.sum(-1, keepdim=True) * Z - w @ X)
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (slope,) = ctx.saved_tensors
        return grads[0].unsqueeze(-1) * slope, None, None, None


class _Hermite(torch.autograd.Function):
    """Cubic Hermite interpolation on equidistant knots, with its derivative taken in the same pass."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, table: Tensor, low: float, step: float) -> Tensor:
        position = (u - low) / step
        cell = position.floor().clamp_(0, table.shape[0] - 1)
        t = position - cell
        c = table[cell.long()]
        c0, c1, c2, c3 = c.unbind(-1)
        ctx.save_for_backward(torch.addcmul(c1, t, torch.addcmul(2.0 * c2, t, 3.0 * c3)) / step)
        return torch.addcmul(c0, t, torch.addcmul(c1, t, torch.addcmul(c2, t, c3)))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0] * ctx.saved_tensors[0], None, None, None


class Table:
    """A function of one variable on knots between two ends; exact evaluation beyond them."""

    def __init__(self, function: Callable[[Tensor], Tensor], low: float, high: float, knots: int = KNOTS) -> None:
        self._function = function
        self.low, self.high = low, high
        self.step = (high - low) / (knots - 1)
        with torch.enable_grad():
            x = torch.linspace(low, high, knots, dtype=DTYPE).requires_grad_(True)
            y = function(x)
            (slope,) = torch.autograd.grad(y.sum(), x)
        y, m = y.detach(), slope.detach() * self.step
        self._table = torch.stack(
            [y[:-1], m[:-1], 3 * (y[1:] - y[:-1]) - 2 * m[:-1] - m[1:], 2 * (y[:-1] - y[1:]) + m[:-1] + m[1:]], dim=-1
        ).contiguous()

    def __call__(self, u: Tensor) -> Tensor:
        value: Tensor = _Hermite.apply(u, self._table, self.low, self.step)
        outside = (u < self.low) | (u > self.high)
        if bool(outside.any()):
            value = value.clone()
            value[outside] = self._function(u[outside])
        return value


class NodeGP:
    """The posterior of one node, with everything that an acquisition needs kept factorised.

    All methods take and give raw units; inside, inputs are scaled to the unit box and outputs standardised, and neither
    changes when data are added by `conditioned`.
    """

    def __init__(
        self,
        Z: Tensor,
        y: Tensor,
        *,
        low: Tensor,
        high: Tensor,
        y_mean: float,
        y_std: float,
        lengthscale: Tensor,
        outputscale: float = 1.0,
        mean: float = 0.0,
        noise: float = NOISE_FREE,
        noise_var: Tensor | None = None,
        kernel: Callable[[Tensor, Tensor], Tensor] | None = None,
        mean_function: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.Z, self.y = Z.detach(), y.detach()
        self.low, self.span = low, high - low
        self.y_mean, self.y_std = y_mean, y_std
        self.lengthscale, self.outputscale = lengthscale, outputscale
        self.prior_mean, self.noise = mean, noise
        self.noise_var = torch.zeros_like(self.y) if noise_var is None else noise_var  # raw units, beside `noise`
        self._kernel, self._mean_function = kernel, mean_function
        self._factorise()

    @property
    def n(self) -> int:
        return self.Z.shape[0]

    @property
    def input_dim(self) -> int:
        return self.Z.shape[1]

    def _factorise(self) -> None:
        self.X = self._scaled(self.Z)
        K = self._k(self.X, self.X)
        extra = self.noise_var / self.y_std**2
        for factor in NOISE_LADDER:
            noise = self.noise * factor + extra
            L, info = torch.linalg.cholesky_ex(K + torch.diag(noise.expand(self.n)))
            if int(info) == 0:
                break
        else:
            raise InputError(
                f"The {self.n} observations of a node cannot be told apart (their kernel matrix is singular); remove duplicates."
            )
        self.used_noise = self.noise * factor
        self._Linv = torch.linalg.solve_triangular(L, torch.eye(self.n, dtype=DTYPE), upper=False)
        residual = (self.y - self.y_mean) / self.y_std - self._m(self.X)
        self._white = self._Linv @ residual
        self._alpha = self._Linv.T @ self._white

    def _scaled(self, Z: Tensor) -> Tensor:
        unit = (Z - self.low) / self.span
        return unit if self._kernel is not None else unit / self.lengthscale

    def _k(self, a: Tensor, b: Tensor) -> Tensor:
        if self._kernel is not None:
            return self._kernel(a, b)
        return self.outputscale * matern52(squared_distance(a, b))

    def _k_pairs(self, a: Tensor, b: Tensor) -> Tensor:
        """Kernel of matching rows of two broadcastable tensors (..., d)."""
        if self._kernel is not None:
            a, b = torch.broadcast_tensors(a, b)
            return self._kernel(a.unsqueeze(-2), b.unsqueeze(-2))[..., 0, 0]
        return self.outputscale * matern52(((a - b) ** 2).sum(-1))

    def _k_diagonal(self, a: Tensor) -> Tensor:
        if self._kernel is not None:
            return self._k_pairs(a, a)
        return torch.full(a.shape[:-1], self.outputscale, dtype=DTYPE)

    def _m(self, a: Tensor) -> Tensor:
        if self._mean_function is not None:
            return self._mean_function(a)
        return torch.full(a.shape[:-1], self.prior_mean, dtype=DTYPE)

    # --- posterior ---

    def mean(self, Z: Tensor) -> Tensor:
        """Posterior mean at (..., d)."""
        a = self._scaled(Z)
        if self._kernel is not None:
            value = self._k(a, self.X) @ self._alpha
        elif self.n == 0:
            value = torch.zeros(Z.shape[:-1], dtype=DTYPE) + 0.0 * a.sum(-1)
        else:
            flat = a.reshape(-1, a.shape[-1])
            value = self.outputscale * _MaternMean.apply(flat, self.X, self._alpha, flat.requires_grad)
            value = value.reshape(Z.shape[:-1])
        return self.y_mean + self.y_std * (self._m(a) + value)

    def white(self, Z: Tensor) -> Tensor:
        """L^-1 k(X, Z): (..., d) -> (..., n); covariances and variances are inner products of these."""
        return self._k(self._scaled(Z), self.X) @ self._Linv.T

    def mean_var(self, Z: Tensor, white: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance (without noise) at (..., d)."""
        a = self._scaled(Z)
        v = self.white(Z) if white is None else white
        mean = self.y_mean + self.y_std * (self._m(a) + v @ self._white)
        # rounding can leave a variance of -1e-16 at an observed point
        var = (self._k_diagonal(a) - (v * v).sum(-1)).clamp_min(1e-12)
        return mean, self.y_std**2 * var

    def joint(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior mean (..., q) and covariance (..., q, q) at (..., q, d)."""
        a = self._scaled(Z)
        v = self.white(Z)
        mean = self.y_mean + self.y_std * (self._m(a) + v @ self._white)
        return mean, self.y_std**2 * (self._k(a, a) - v @ v.transpose(-1, -2))

    def covariance(self, U: Tensor, Z: Tensor, white_u: Tensor, white_z: Tensor) -> Tensor:
        """Posterior covariance of matching rows of (..., d) and (..., d), which broadcast."""
        return self.y_std**2 * (self._k_pairs(self._scaled(U), self._scaled(Z)) - (white_u * white_z).sum(-1))

    def covariance_matrix(self, U: Tensor, Z: Tensor, white_u: Tensor, white_z: Tensor) -> Tensor:
        """Posterior covariances (b, m) of Z (b, d) with U (m, d)."""
        return self.y_std**2 * (self._k(self._scaled(Z), self._scaled(U)) - white_z @ white_u.T)

    @property
    def observation_noise(self) -> float:
        """Variance of the noise of a new observation, raw units."""
        return self.y_std**2 * self.used_noise

    # --- other views of the same posterior ---

    def _with(self, Z: Tensor, y: Tensor, noise_var: Tensor) -> NodeGP:
        unit = self.low + self.span
        return NodeGP(
            Z, y, low=self.low, high=unit, y_mean=self.y_mean, y_std=self.y_std, lengthscale=self.lengthscale,
            outputscale=self.outputscale, mean=self.prior_mean, noise=self.noise, noise_var=noise_var,
            kernel=self._kernel, mean_function=self._mean_function,
        )  # fmt: skip

    def conditioned(self, Z: Tensor, y: Tensor) -> NodeGP:
        """The posterior given further observations; hyper-parameters and scalings stay."""
        Z, y = Z.reshape(-1, self.input_dim), y.reshape(-1)
        extra = torch.cat([self.noise_var, torch.zeros_like(y)])
        return self._with(torch.cat([self.Z, Z]), torch.cat([self.y, y]), extra)

    def table(self, low: float, high: float) -> Table:
        """The mean of a node with one input, tabulated."""
        return Table(lambda u: self.mean(u.unsqueeze(-1)), low, high)

    def var_table(self, low: float, high: float) -> Table:
        """The variance of a node with one input, tabulated."""
        return Table(lambda u: self.mean_var(u.unsqueeze(-1))[1], low, high)

    def paths(self, n: int, generator: torch.Generator, features: int = 512) -> Callable[[Tensor], Tensor]:
        """Draw n functions from the posterior: maps (n, m, d) to (n, m), each path at its own points.

        A prior draw on random Fourier features plus the exact update of the data (Matheron's rule).
        """
        if self._kernel is not None:
            raise InputError("Sample paths need a Matern-5/2 kernel; this node's model has another.")
        d = self.input_dim
        normal = torch.randn(n, d, features, generator=generator, dtype=DTYPE)
        # The spectral density of Matern-5/2 is Student's t with 5 degrees of freedom.
        chi = torch.randn(n, 1, features, 5, generator=generator, dtype=DTYPE).pow(2).sum(-1)
        frequency = normal / (chi / 5.0).sqrt()
        phase = 2 * math.pi * torch.rand(n, 1, features, generator=generator, dtype=DTYPE)
        weight = torch.randn(n, features, 1, generator=generator, dtype=DTYPE) * math.sqrt(
            2.0 * self.outputscale / features
        )

        def prior(a: Tensor) -> Tensor:
            return (torch.cos(a @ frequency + phase) @ weight).squeeze(-1)

        noise = (self.used_noise + self.noise_var / self.y_std**2).expand(self.n)
        eps = torch.randn(n, self.n, generator=generator, dtype=DTYPE) * noise.sqrt()
        residual = (self.y - self.y_mean) / self.y_std - self._m(self.X)
        gap = residual - prior(self.X.expand(n, -1, -1)) - eps
        update = (gap @ self._Linv.T) @ self._Linv

        def path(Z: Tensor) -> Tensor:
            a = self._scaled(Z)
            value = self._m(a) + prior(a)
            if self.n:
                value = value + (self._k(a, self.X) @ update.unsqueeze(-1)).squeeze(-1)
            return self.y_mean + self.y_std * value

        return path

    def to_botorch(self) -> Any:
        """The same posterior as a `botorch.models.SingleTaskGP`."""
        from botorch.models import SingleTaskGP
        from botorch.models.transforms import Normalize, Standardize
        from gpytorch.kernels import MaternKernel, ScaleKernel

        if self._kernel is not None:
            raise InputError("This node's model came from outside; use that one.")
        d = self.input_dim
        box = torch.stack([self.low, self.low + self.span])
        outcome: Any = Standardize(1)
        variance = (self.observation_noise + self.noise_var).unsqueeze(-1)
        gp: Any = SingleTaskGP(
            self.Z, self.y.unsqueeze(-1), torch.ones(self.n, 1, dtype=DTYPE), input_transform=Normalize(d, bounds=box),
            outcome_transform=outcome, covar_module=ScaleKernel(MaternKernel(2.5, ard_num_dims=d)),
        )  # fmt: skip
        # Standardisation is fixed at the fit: the transform gets those numbers, the targets are standardised anew.
        outcome.means, outcome.stdvs = torch.full((1, 1), self.y_mean), torch.full((1, 1), self.y_std)
        outcome._stdvs_sq = outcome.stdvs.pow(2)
        gp.set_train_data(gp.train_inputs[0], (self.y - self.y_mean) / self.y_std, strict=False)
        gp.likelihood.noise_covar.noise = (variance / self.y_std**2).expand(self.n, 1).reshape(-1)
        gp = gp.to(DTYPE)
        gp.covar_module.base_kernel.lengthscale = self.lengthscale
        gp.covar_module.outputscale = self.outputscale
        gp.mean_module.constant = self.prior_mean
        return gp.eval()

    @classmethod
    def from_botorch(cls, model: Any) -> NodeGP:
        """Take over a fitted `SingleTaskGP` with its transforms; any kernel and mean."""
        from botorch.models.transforms import Normalize, Standardize
        from gpytorch.kernels import MaternKernel, ScaleKernel
        from gpytorch.means import ConstantMean

        model = model.eval()
        outcome = getattr(model, "outcome_transform", None)
        y_mean, y_std = 0.0, 1.0
        if isinstance(outcome, Standardize):
            y_mean, y_std = float(outcome.means), float(outcome.stdvs)
        elif outcome is not None:
            raise InputError(
                f"node_models: outcome transform {type(outcome).__name__} is not supported; use Standardize."
            )
        targets = model.train_targets.to(DTYPE)
        if targets.ndim != 1:
            raise InputError("node_models: every model must have one output and no batch dimension.")
        transform = getattr(model, "input_transform", None)
        # In eval mode train_inputs are already transformed; the raw ones come back by the inverse.
        inputs = model.train_inputs[0].detach().to(DTYPE)
        d = inputs.shape[-1]
        low, high = torch.zeros(d, dtype=DTYPE), torch.ones(d, dtype=DTYPE)
        if isinstance(transform, Normalize):
            low, high = transform.mins.reshape(-1).to(DTYPE), (transform.mins + transform.ranges).reshape(-1).to(DTYPE)
        elif transform is not None:
            raise InputError(
                f"node_models: input transform {type(transform).__name__} is not supported; use Normalize."
            )
        Z = low + (high - low) * inputs
        covar, mean = model.covar_module, model.mean_module
        base = covar.base_kernel if isinstance(covar, ScaleKernel) else covar
        noise = model.likelihood.noise.detach().to(DTYPE).reshape(-1)
        common: Any = {"low": low, "high": high, "y_mean": y_mean, "y_std": y_std, "noise": float(noise.min())}
        extra = (noise - noise.min()).expand(targets.shape[0]) * y_std**2
        y = y_mean + y_std * targets.detach()
        if (
            isinstance(base, MaternKernel)
            and base.nu == 2.5
            and base.active_dims is None
            and isinstance(mean, ConstantMean)
        ):
            lengthscale = base.lengthscale.detach().reshape(-1).to(DTYPE).expand(d)
            scale = float(covar.outputscale.detach()) if isinstance(covar, ScaleKernel) else 1.0
            return cls(
                Z,
                y,
                lengthscale=lengthscale,
                outputscale=scale,
                mean=float(mean.constant.detach()),
                noise_var=extra,
                **common,
            )

        def kernel(a: Tensor, b: Tensor) -> Tensor:
            return covar(a, b).to_dense()

        for parameter in model.parameters():
            parameter.requires_grad_(False)
        ones = torch.ones(d, dtype=DTYPE)
        return cls(Z, y, lengthscale=ones, noise_var=extra, kernel=kernel, mean_function=mean, **common)

    # --- saving ---

    def hyperparameters(self) -> dict[str, Any]:
        """What a fit found, as plain numbers."""
        return {
            "low": self.low.tolist(), "high": (self.low + self.span).tolist(), "y_mean": self.y_mean, "y_std": self.y_std,
            "lengthscale": self.lengthscale.tolist(), "outputscale": self.outputscale, "mean": self.prior_mean,
            "noise": self.noise,
        }  # fmt: skip

    @classmethod
    def from_hyperparameters(cls, Z: Tensor, y: Tensor, noise_var: Tensor | None, saved: dict[str, Any]) -> NodeGP:
        """Rebuild a posterior from data and saved numbers."""
        tensors: Any = {k: torch.tensor(saved[k], dtype=DTYPE) for k in ("low", "high", "lengthscale")}
        rest: Any = {k: float(saved[k]) for k in ("y_mean", "y_std", "outputscale", "mean", "noise")}
        return cls(Z, y, noise_var=noise_var, **tensors, **rest)


def log_posterior(theta: np.ndarray, sq: np.ndarray, y: np.ndarray, noise: np.ndarray, infer: bool) -> tuple[Any, ...]:
    """Log marginal likelihood plus log priors, its gradient, and the profiled mean.

    theta: log lengthscales, log output scale, and log noise where it is inferred; sq: (d, n, n) squared differences.
    """
    d, n = sq.shape[0], len(y)
    ls2, s = np.exp(-2.0 * theta[:d]), np.exp(theta[d])
    r = np.sqrt(np.tensordot(ls2, sq, 1))
    r *= _ROOT5
    e = np.exp(-r)
    R = (1.0 + r + r * r / 3.0) * e
    sigma = np.exp(theta[-1]) if infer else 0.0
    K = s * R
    K[np.diag_indices(n)] += noise + sigma
    L = cholesky(K, lower=True, check_finite=False)
    Kinv = cho_solve((L, True), np.eye(n), check_finite=False)
    ones = Kinv.sum(0)
    mean = float(ones @ y / ones.sum())
    alpha = Kinv @ (y - mean)
    value = -0.5 * (y - mean) @ alpha - np.log(np.diag(L)).sum() - 0.5 * n * math.log(2 * math.pi)
    G = np.outer(alpha, alpha) - Kinv
    grad = np.empty_like(theta)
    core = G * ((5.0 / 3.0) * s * (1.0 + r) * e)
    grad[:d] = 0.5 * ls2 * np.tensordot(sq, core, 2)
    grad[d] = 0.5 * np.sum(G * R) * s
    lengthscale = np.exp(theta[:d])
    value += float(np.sum((_LS_PRIOR[0] - 1) * theta[:d] - _LS_PRIOR[1] * lengthscale))
    grad[:d] += (_LS_PRIOR[0] - 1) - _LS_PRIOR[1] * lengthscale
    shape, rate = _OS_PRIOR
    value += (shape - 1) * theta[d] - rate * s
    grad[d] += (shape - 1) - rate * s
    if infer:
        grad[-1] = 0.5 * sigma * np.trace(G)
        value += -theta[-1] - (theta[-1] - _NOISE_PRIOR[0]) ** 2 / (2 * _NOISE_PRIOR[1] ** 2)
        grad[-1] += -1.0 - (theta[-1] - _NOISE_PRIOR[0]) / _NOISE_PRIOR[1] ** 2
    return value, grad, mean


def fit_node(
    Z: Tensor,
    y: Tensor,
    low: Tensor,
    high: Tensor,
    *,
    infer: bool = False,
    noise_var: Tensor | None = None,
    previous: NodeGP | None = None,
    max_iter: int = 60,
) -> NodeGP:
    """Fit a node's GP by maximum a posteriori; a failing factorisation raises the noise, then keeps the last fit.

    Parameters
    ----------
    Z, y : Tensor of shape (n, d) and (n,)
        Observations in raw units.
    low, high : Tensor of shape (d,)
        Ends of the box that is scaled to the unit cube.
    infer : bool
        Infer a noise variance; otherwise the node is taken as deterministic.
    noise_var : Tensor of shape (n,), optional
        Known variance of each observation, raw units.
    previous : NodeGP, optional
        Where to start from.
    max_iter : int
        Iterations of L-BFGS-B.
    """
    n, d = Z.shape
    y_mean = float(y.mean()) if n else 0.0
    y_std = float(y.std(unbiased=True)) if n > 1 else 1.0
    if not y_std > 1e-12 * max(1.0, abs(y_mean)):
        y_std = 1.0  # a constant output: its deviations are measured in its own unit
    start = np.full(d, math.log((_LS_PRIOR[0] - 1) / _LS_PRIOR[1]))
    fallback: Any = {
        "lengthscale": torch.from_numpy(np.exp(start)),
        "outputscale": 1.0,
        "mean": 0.0,
        "noise": NOISE_FREE,
    }
    if previous is not None and previous._kernel is None:
        fallback = {
            "lengthscale": previous.lengthscale, "outputscale": previous.outputscale, "mean": previous.prior_mean,
            "noise": previous.noise,
        }  # fmt: skip
    common: dict[str, Any] = {"low": low, "high": high, "y_mean": y_mean, "y_std": y_std, "noise_var": noise_var}
    if infer and n < 2:
        fallback["noise"] = math.exp(_NOISE_PRIOR[0])
    if n < 2:
        return NodeGP(Z, y, **common, **fallback)
    U = ((Z - low) / (high - low)).numpy()
    t = ((y - y_mean) / y_std).numpy()
    sq = np.ascontiguousarray(((U[:, None, :] - U[None, :, :]) ** 2).transpose(2, 0, 1))
    known = np.zeros(n) if noise_var is None else noise_var.numpy() / y_std**2
    bounds = [tuple(np.log(_LS_BOUNDS))] * d + [tuple(np.log(_OS_BOUNDS))]
    bounds += [tuple(np.log(_NOISE_BOUNDS))] * infer
    if previous is not None and previous._kernel is None and previous.n > 1:
        head = [np.log(previous.lengthscale.numpy())]
        tail = [math.log(previous.outputscale)] + [math.log(max(previous.noise, 1e-6))] * infer
    else:
        head = [np.full(d, math.log(0.4)), np.full(d, math.log(2.0))]
        tail = [0.0] + [_NOISE_PRIOR[0]] * infer
    floor, ceiling = np.array(bounds).T
    start_at = np.clip([np.r_[logs, tail] for logs in head], floor, ceiling)
    for factor in NOISE_LADDER:
        noise = known + NOISE_FREE * (factor - infer)  # an inferred noise stands beside, from 1e-6 on

        def call(u: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            values, slopes = np.full(len(u), np.inf), np.zeros_like(u)
            for i, theta in enumerate(floor + u * (ceiling - floor)):
                try:
                    value, grad, _ = log_posterior(theta, sq, t, noise, infer)  # noqa: B023
                except LinAlgError:
                    continue  # not positive definite at this noise: the step is turned back
                values[i], slopes[i] = -value, -grad * (ceiling - floor)
            return values, slopes

        u0 = (start_at - floor) / (ceiling - floor)
        u, f = minimise(call, u0, np.ones_like(u0, dtype=bool), max_iter)
        if np.isfinite(f).any():
            theta = (floor + u * (ceiling - floor))[int(np.argmin(f))]
            mean = log_posterior(theta, sq, t, noise, infer)[2]
            return NodeGP(
                Z, y, **common, lengthscale=torch.from_numpy(np.exp(theta[:d])), outputscale=float(np.exp(theta[d])),
                mean=mean, noise=float(np.exp(theta[-1])) if infer else NOISE_FREE * factor,
            )  # fmt: skip
    return NodeGP(Z, y, **common, **fallback)


__all__ = ["DTYPE", "KNOTS", "NodeGP", "Table", "fit_node", "log_posterior"]
