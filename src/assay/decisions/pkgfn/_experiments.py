"""Bodies of the claims' experiments."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import gpytorch
import numpy as np
import torch
from torch import Tensor

from assay._core.seeds import derive, torch_generator
from assay.claims import interleaved

from . import problems
from ._acquisition import PartialKnowledgeGradientFN, expected_max_affine
from ._ascent import ascend
from ._gp import DTYPE
from ._job import start_problem
from ._model import FunctionNetworkModel, gauss_hermite
from ._network import FunctionNetwork
from ._optimizer import FunctionNetworkOptimizer
from ._search import discrete_set, optimize_partial_acqf, recommend, sobol

PROBLEMS = {
    "ackley_sine": problems.AckleySine,
    "ackley_matyas": problems.AckleyMatyas,
    "freesolv3": problems.FreeSolv3,
    "manufacturing": problems.Manufacturing,
    "pharma": problems.Pharma,
    "gp_network2": problems.GPNetwork2,
}


@lru_cache(maxsize=8)
def scale_of(name: str) -> tuple[float, float]:
    """(optimum, median of random designs) of a problem's objective: the unit of a regret."""
    net: FunctionNetwork = PROBLEMS[name]()
    X = sobol(8192, net.bounds[0], net.bounds[1], 12345)

    def value(Z: Tensor) -> Tensor:
        return net.objective(net.evaluate(Z))

    with torch.no_grad():
        v = value(X)
    start = X[torch.topk(v, 24).indices]
    best = float(ascend(value, start, *net.box, max_iter=100)[1].max())
    return max(best, net.optimal_value if net.optimal_value is not None else -math.inf), float(v.median())


def truth(net: FunctionNetwork, x: Any) -> float:
    """The objective's true value at a design."""
    with torch.no_grad():
        return float(net.objective(net.evaluate(torch.as_tensor(x, dtype=DTYPE).reshape(1, -1)))[0])


def one_run(arm: str, seed: int, size: Mapping[str, Any]) -> tuple[FunctionNetwork, FunctionNetworkOptimizer]:
    """A whole run of one method on one problem from the seed's own initial designs."""
    name = size["problem"]
    net = PROBLEMS[name](costs=tuple(size["costs"])) if "costs" in size else PROBLEMS[name]()
    partial = arm in ("pkgfn", "fast_pkgfn")
    budget = size["budget"] if partial else size.get("full_budget", size["budget"])
    opt = start_problem(net, arm, budget, seed, size["initial"], bool(size.get("free", False)), "fixed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # repeated observations are left out and say so; counted below
        opt.run(max_queries=size.get("max_queries"))
    return net, opt


def race(arm: str, seed: int, size: Mapping[str, Any]) -> dict[str, Any]:
    """True value at the final recommendation, at half of the budget, evaluations by node, effort per ask."""
    import time

    began = time.process_time()
    net, opt = one_run(arm, seed, size)
    seconds = time.process_time() - began
    frame = opt.history
    final = truth(net, opt._best_x)
    half = final
    limit = 0.5 * opt.budget
    before = frame[(frame["cumulative_cost"] <= limit * (1 + 1e-12)) & frame["x"].map(lambda x: x is not None)]
    if len(before):
        half = truth(net, before["x"].iloc[-1])
    counts = [int((frame["node"] == name).sum()) for name in net.node_names]
    found: dict[str, Any] = {
        "value": final,
        "value_half": half,
        "evaluations": len(frame),
        "spent": opt._spent,
        "over_budget": max(0.0, opt._spent - opt.budget),
        "seconds_per_query": seconds / max(len(frame), 1),
        **{f"runs_node{k}": c for k, c in enumerate(counts)},
    }
    if net.n_nodes == 2:
        found["node0_per_node1"] = counts[0] / max(counts[1], 1)  # without any run of the last node: a lower bound
    if size.get("regret"):
        best, typical = scale_of(size["problem"])
        found["regret"] = (best - final) / (best - typical)
    return found


def gap(arm: str, seed: int, size: Mapping[str, Any]) -> dict[str, Any]:
    """Lead of p-KGFN over EIFN at one pair of costs; the arm is the pair."""
    setting = {**size, **size[arm]}
    values = {m: race(m, seed, setting)["value"] for m in ("pkgfn", "eifn")}
    return {"gap": values["pkgfn"] - values["eifn"], **{f"value_{m}": v for m, v in values.items()}}


def effort(arm: str, seed: int, size: Mapping[str, Any]) -> dict[str, Any]:
    """Acquisition values and CPU seconds per ask of p-KGFN or its fast variant, and the final value."""
    net = PROBLEMS[size["problem"]]()
    opt = start_problem(net, arm, size["budget"], seed, size["initial"], True, "fixed")
    evaluations, seconds = [], []
    original = opt._ask

    def counted() -> Any:
        query = original()
        evaluations.append(opt.last_ask["evaluations"])
        seconds.append(opt.last_ask["seconds"])
        return query

    opt._ask = counted  # type: ignore[method-assign]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        opt.run()
    return {
        "evaluations_per_ask": float(np.mean(evaluations)),
        "seconds_per_ask": float(np.median(seconds)),
        "value": truth(net, opt._best_x),
        "queries": len(seconds),
    }


# --- closed form against fantasy models ---


def chain_model(seed: int, n: int, n_last: int | None = None) -> tuple[FunctionNetwork, FunctionNetworkModel, Tensor]:
    """AckleySine's surrogate of n designs, and a set A of 21 designs around the best."""
    net = problems.AckleySine()
    X = sobol(n, *net.box, derive(seed, "chain"))
    # half of the designs near the optimum, as in a run: far away alpha is nil and there is nothing to compare
    X[n // 2 :] = X[n // 2 :] * 0.25
    Y = net.evaluate(X)
    m = n if n_last is None else n_last
    model = FunctionNetworkModel([X, Y[-m:, :1]], [Y[:, 0], Y[-m:, 1]], net)
    A = 0.5 * sobol(21, *net.box, derive(seed, "A"))
    return net, model, A


def fantasy_values(
    model: FunctionNetworkModel, gps: list[Any], Z: Tensor, A: Tensor, outer: Tensor, inner: Tensor, *, joint: bool
) -> Tensor:
    """Value of running the first node of a chain, with fantasy models as BoTorch builds them.

    outer (F, weights) and inner (S, weights) are stacked nodes and weights (2, n). `joint` samples the first node's
    outputs at all designs together, the layout of the paper's code; otherwise each design has its marginal.
    """
    first, last = gps
    b, F = Z.shape[0], outer.shape[1]
    posterior = first.posterior(Z, observation_noise=False)
    noise = model.nodes[0].observation_noise
    y = posterior.mean + (posterior.variance + noise).sqrt() * outer[0][:, None, None, None]  # F x b x 1 x 1
    fantasy = first.condition_on_observations(Z.expand(F, b, 1, -1), y, noise=torch.full_like(y, noise))
    spread = A.expand(F, b, *A.shape)
    at = fantasy.posterior(spread)
    if joint:
        y0 = at.rsample(torch.Size([inner.shape[1]]))
        weights = torch.full((inner.shape[1],), 1.0 / inner.shape[1], dtype=DTYPE)
    else:
        sd = at.variance.clamp_min(1e-12 * model.nodes[0].y_std ** 2).sqrt()
        y0 = at.mean + sd * inner[0].reshape(-1, *[1] * at.mean.ndim)
        weights = inner[1]
    mean = last.posterior(y0).mean
    mean = mean.reshape(inner.shape[1], F, b, len(A))
    best = torch.einsum("s,sfba->fba", weights, mean).amax(-1)
    return (outer[1][:, None] * best).sum(0)


def closed_form(seed: int, size: Mapping[str, Any]) -> dict[str, Any]:
    """Value and gradient of alpha at b points: ours against fantasy models, and the largest difference at equal nodes."""
    torch.set_num_threads(1)
    net, model, A = chain_model(seed, size["n"])
    found: dict[str, Any] = {}
    # GPyTorch would round the given noises (1e-6 of each output variance) up to 1e-6 in raw units
    with warnings.catch_warnings(), gpytorch.settings.min_fixed_noise(double_value=1e-12):
        warnings.simplefilter("ignore")  # BoTorch's advice on scaling: the models are ours
        gps = [gp.to_botorch() for gp in model.nodes]
        plain = [_untransformed(gp) for gp in gps]
        acqf = PartialKnowledgeGradientFN(model, 0, A)
        exact = PartialKnowledgeGradientFN(model, 0, A, tabulate=False)
        outer, inner = torch.stack(gauss_hermite(8)), torch.stack(gauss_hermite(16))
        many = torch.ones(2, 64, dtype=DTYPE)
        current = float(acqf.current_value)
        check = 0.3 * sobol(size.get("checks", 6), *net.box, derive(seed, "checks")).unsqueeze(1)
        with torch.no_grad():
            theirs = fantasy_values(model, plain, check, A, outer, inner, joint=False) - current
            found["difference"] = (theirs - exact(check)).abs().tolist()
            found["difference_tabulated"] = (theirs - acqf(check)).abs().tolist()
        for b in size["batches"]:
            Z = 0.3 * sobol(b, *net.box, derive(seed, "points", b)).unsqueeze(1)

            def step(value: Any, Z: Tensor = Z) -> None:
                z = Z.clone().requires_grad_(True)
                value(z).sum().backward()

            official = lambda z: fantasy_values(model, plain, z, A, outer, many, joint=True)
            marginal = lambda z: fantasy_values(model, plain, z, A, outer, inner, joint=False)
            repeats = size["repeats"]
            pair = interleaved(lambda: step(acqf), lambda: step(official), repeats)  # noqa: B023
            found[f"ratio_b{b}"] = pair["ratio"]
            found[f"ms_b{b}"] = 1e3 * pair["ours_seconds"]
            found[f"peer_ms_b{b}"] = 1e3 * pair["theirs_seconds"]
            same = interleaved(lambda: step(acqf), lambda: step(marginal), repeats)  # noqa: B023
            found[f"ratio_equal_nodes_b{b}"] = same["ratio"]
            bare = interleaved(lambda: step(exact), lambda: step(marginal), repeats)  # noqa: B023
            found[f"ratio_untabulated_b{b}"] = bare["ratio"]
    return found


def _untransformed(gp: Any) -> Any:
    """The same posterior without transforms, in raw units: what conditioning in BoTorch needs to stay fixed."""
    from botorch.models import SingleTaskGP
    from gpytorch.kernels import MaternKernel, ScaleKernel

    low, span = gp.input_transform.mins.reshape(-1), gp.input_transform.ranges.reshape(-1)
    mean, sd = float(gp.outcome_transform.means), float(gp.outcome_transform.stdvs)
    Z = low + span * gp.train_inputs[0]
    y = (mean + sd * gp.train_targets).unsqueeze(-1)
    noise = (sd**2 * gp.likelihood.noise).reshape(-1, 1).expand_as(y)
    kernel = ScaleKernel(MaternKernel(2.5, ard_num_dims=Z.shape[-1]))
    out = SingleTaskGP(Z, y, noise.clone(), covar_module=kernel, outcome_transform=None).to(DTYPE)
    kernel.base_kernel.lengthscale = gp.covar_module.base_kernel.lengthscale.detach() * span
    kernel.outputscale = sd**2 * gp.covar_module.outputscale.detach()
    out.mean_module.constant = mean + sd * float(gp.mean_module.constant.detach())
    for parameter in out.parameters():
        parameter.requires_grad_(False)
    return out.eval()


def full_ask(seed: int, size: Mapping[str, Any]) -> dict[str, Any]:
    """CPU of one whole ask (recommendation, set A, both nodes) against optimize_acqf of qKnowledgeGradient end to end."""
    import time

    from botorch.acquisition import qKnowledgeGradient
    from botorch.optim import optimize_acqf

    torch.set_num_threads(1)
    net, model, _ = chain_model(seed, size["n"])
    X, y = model.data[0][0], model.data[1][1]
    single = FunctionNetworkModel([X], [y], FunctionNetwork([[]], [list(range(6))], net.bounds, [1.0]))

    def ours() -> None:
        x_star, _ = recommend(model, None, [X[int(y.argmax())]], seed)
        A = discrete_set(model, x_star, seed)
        for node in (0, 1):
            optimize_partial_acqf(PartialKnowledgeGradientFN(model, node, A), x_star, seed=seed)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gp = single.nodes[0].to_botorch()

        def theirs() -> None:
            # BoTorch's documented settings: 64 fantasies, the same restarts, raw samples and iterations as ours
            acqf = qKnowledgeGradient(gp, num_fantasies=size.get("fantasies", 64))
            optimize_acqf(
                acqf, bounds=net.bounds, q=1, num_restarts=8, raw_samples=192, options={"maxiter": 60, "seed": 0}
            )

        def cpu(call: Any) -> float:
            began = time.process_time()
            call()
            return time.process_time() - began

        ours()
        mine, peer = [], []
        for _ in range(size["repeats"]):
            mine.append(cpu(ours))
            peer += [cpu(theirs)]
            mine.append(cpu(ours))
    return {
        "ratio": float(np.median(peer) / np.median(mine)),
        "seconds": float(np.median(mine)),
        "peer_seconds": float(np.median(peer)),
    }


# --- identities ---


def identity(seed: int, size: Mapping[str, Any]) -> dict[str, Any]:
    """Errors of the exact value against numerical integration: a network of one node, and the last node of a chain."""
    errors_single, errors_last, values = [], [], []
    generator = torch_generator(seed)
    for i in range(size["instances"]):
        d = 1 + i % 3
        net = FunctionNetwork([[]], [list(range(d))], torch.stack([torch.zeros(d), torch.ones(d)]), [1.0])
        X = torch.rand(8, d, generator=generator, dtype=DTYPE)
        y = torch.sin(5 * X).sum(-1)
        model = FunctionNetworkModel([X], [y], net)
        A = torch.rand(12, d, generator=generator, dtype=DTYPE)
        z = torch.rand(1, 1, d, generator=generator, dtype=DTYPE)
        errors_single.append(abs(float(PartialKnowledgeGradientFN(model, 0, A)(z)[0]) - _integral(model, 0, A, z[0])))
        _, chain_surrogate, A = chain_model(seed + i, 16, 4)  # few runs of the last node: its gain is not nil
        z = -1.0 - 3.0 * torch.rand(1, 1, 1, generator=generator, dtype=DTYPE)
        value = float(PartialKnowledgeGradientFN(chain_surrogate, 1, A, tabulate=False)(z)[0])
        values.append(value)
        errors_last.append(abs(value - _integral(chain_surrogate, 1, A, z[0])))
    return {"error_single": errors_single, "error_last": errors_last, "value_last": values}


def _integral(model: FunctionNetworkModel, node: int, A: Tensor, z: Tensor) -> float:
    """The same value by refactorised models at three answers (the mean is affine in the answer) and a fine integral."""
    from ._model import InnerNodes

    gp = model.nodes[node]
    inner = InnerNodes.make(model.network)
    mean, var = gp.mean_var(z)
    sd = (var + gp.observation_noise).sqrt()

    def line(zeta: float) -> Tensor:
        told = model.condition_on_observations(node, z, mean + sd * zeta)
        with torch.no_grad():
            return told.expected_utility(A, inner)

    with torch.no_grad():
        now = model.expected_utility(A, inner)
    slope = 0.5 * (line(1.0) - line(-1.0))
    return _piecewise(now.numpy(), slope.numpy()) - float(now.max())


def _piecewise(alpha: np.ndarray, beta: np.ndarray) -> float:
    """E max of lines: between neighbouring crossings of any two lines one line leads; each piece has a closed form."""
    from scipy.stats import norm

    i, j = np.triu_indices(len(alpha), 1)
    slope = beta[i] - beta[j]
    usable = np.abs(slope) > 1e-14
    crossings = np.sort(-(alpha[i] - alpha[j])[usable] / slope[usable])
    ends = np.concatenate([[-np.inf], crossings, [np.inf]])
    low, high = ends[:-1], ends[1:]
    middle = 0.5 * (np.clip(low, -40.0, 40.0) + np.clip(high, -40.0, 40.0))  # beyond 40 there is no mass
    lead = np.argmax(alpha + beta * middle[:, None], axis=1)
    share, density = norm.cdf(high) - norm.cdf(low), norm.pdf(low) - norm.pdf(high)
    return float(np.sum(alpha[lead] * share + beta[lead] * density))


__all__ = ["closed_form", "effort", "expected_max_affine", "full_ask", "gap", "identity", "race"]
