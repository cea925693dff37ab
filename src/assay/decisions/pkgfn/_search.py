"""Where the acquisitions are maximised: designs over which a gain is measured, recommendations, next queries."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from assay._core.errors import InputError
from assay._core.seeds import as_rng, derive

from ._acquisition import NetworkPosteriorMean, PartialKnowledgeGradientFN
from ._ascent import ascend
from ._gp import DTYPE
from ._model import FunctionNetworkModel, InnerNodes
from ._network import FunctionNetwork

# Below this share of the objective's standard deviation a gain is quadrature error; alpha is flat there, and its
# logarithm is smoothed.
TAU = 1e-4
_ENOUGH = 1e-4  # relative rise of log alpha at which a start is done: queries are compared, not certified
_SAME = 1e-8  # relative distance below which two inputs of a deterministic node are one
_LOCAL = 0.1  # half-width, in ranges, of the neighbourhood of the recommendation
_N_PATHS, _N_LOCAL = 10, 10
_MAX_COMBINATIONS = 4096  # of observed parent outputs that are looked at in one batch
_PARENT_MARGIN = 0.2  # free parent values may leave the observed range by this share of it


@dataclass(frozen=True)
class NodeCandidate:
    """One proposed query: a node and its input.

    Attributes
    ----------
    node : int
        The node; with a group, its first.
    x_active : Tensor
        Values of the node's decision variables.
    parent_values : Tensor
        Values of its parents' outputs.
    value : float
        Expected gain of the objective (0 where the method gives none).
    cost : float
        Cost of the query.
    nodes : tuple of int
        All nodes that the query evaluates.
    """

    node: int
    x_active: Tensor
    parent_values: Tensor
    value: float
    cost: float
    nodes: tuple[int, ...] = ()

    @property
    def z(self) -> Tensor:
        """The node's input: decision variables, then parent outputs."""
        return torch.cat([self.x_active, self.parent_values])

    @property
    def gain_per_cost(self) -> float:
        """Expected gain per unit of cost."""
        return self.value / self.cost


def sobol(n: int, low: Tensor, high: Tensor, seed: int) -> Tensor:
    """n scrambled Sobol points in a box."""
    if len(low) == 0:
        return torch.zeros(n, 0, dtype=DTYPE)
    return draw_sobol_samples(torch.stack([low, high]), n=n, q=1, seed=seed % 2**31).squeeze(1).to(DTYPE)


def nearby(n: int, center: Tensor, low: Tensor, high: Tensor, rng: np.random.Generator, normal: bool = True) -> Tensor:
    """n points around a centre, a tenth of each range away, clipped to the box."""
    step = rng.normal(size=(n, len(center))) if normal else rng.uniform(-1, 1, (n, len(center)))
    return torch.minimum(torch.maximum(center + torch.from_numpy(step) * _LOCAL * (high - low), low), high)


def _held(network: FunctionNetwork, X: Tensor, columns: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Bounds for rows of the given decision variables, discrete ones held where they are."""
    low, high = network.bounds[:, list(columns)]
    low, high = low.expand(len(X), -1).clone(), high.expand(len(X), -1).clone()
    for i, column in enumerate(columns):
        if column in network.discrete:
            low[:, i] = high[:, i] = X[:, i]
    return low, high


def _neighbours(network: FunctionNetwork, x: Tensor, columns: Sequence[int]) -> Tensor:
    """Copies of a row with one discrete variable moved to the next value up or down."""
    rows = []
    for i, column in enumerate(columns):
        values = network.discrete.get(column)
        if values is None:
            continue
        place = int(np.argmin([abs(v - float(x[i])) for v in values]))
        for other in (place - 1, place + 1):
            if 0 <= other < len(values):
                row = x.clone()
                row[i] = values[other]
                rows.append(row)
    return torch.stack(rows) if rows else torch.zeros(0, len(x), dtype=DTYPE)


def _walk(
    function: Callable[[Tensor], Tensor], network: FunctionNetwork, x: Tensor, value: float, columns: Sequence[int]
) -> tuple[Tensor, float]:
    """Coordinate search over discrete neighbours until none is better."""
    for _ in range(20):  # each round is a strict rise on a finite grid; twenty steps cross any practical one
        around = _neighbours(network, x, columns)
        if not len(around):
            break
        with torch.no_grad():
            found = function(around)
        best = int(found.argmax())
        if float(found[best]) <= value:
            break
        x, value = around[best], float(found[best])
    return x, value


def maximise_over_designs(
    function: Callable[[Tensor], Tensor],
    network: FunctionNetwork,
    raw: Tensor,
    *,
    restarts: int = 4,
    max_iter: int = 60,
) -> tuple[Tensor, float]:
    """Best design for a batched function of designs: screen the raw ones, polish the best, walk discrete neighbours."""
    raw = network.snap(raw)
    with torch.no_grad():
        screened = function(raw)
    top = torch.topk(screened, min(restarts, len(raw))).indices
    start = raw[top]
    low, high = _held(network, start, range(network.d))
    X, value = ascend(function, start, low, high, max_iter)
    best = int(value.argmax())
    return _walk(function, network, X[best], float(value[best]), range(network.d))


def recommend(
    model: FunctionNetworkModel, previous: Tensor | None, anchors: Sequence[Tensor], seed: int, fixed_seed: int = 0
) -> tuple[Tensor, float]:
    """Design with the highest posterior mean; the previous one stays unless a new one beats it.

    Parameters
    ----------
    model : FunctionNetworkModel
        The surrogate.
    previous : Tensor of shape (d,), optional
        The last recommendation.
    anchors : list of Tensor
        Further good designs, for example the best one that was fully evaluated.
    seed : int
        Of the starts.
    fixed_seed : int
        Of the inner nodes: kept between asks, so that values can be compared.
    """
    net = model.network
    low, high = net.bounds
    rng = as_rng(derive(seed, "recommend"))
    known = [x for x in [previous, *anchors] if x is not None]
    raw = [sobol(512, low, high, derive(seed, "recommend", "sobol"))]
    if known:
        raw += [torch.stack(known), *[nearby(64 // len(known), x, low, high, rng) for x in known]]
    tables = model.tables()
    coarse = InnerNodes.make(net, seed=fixed_seed)
    fine = NetworkPosteriorMean(model, seed=fixed_seed)
    everything = net.snap(torch.cat(raw))
    with torch.no_grad():
        screened = model.expected_utility(everything, coarse, tables)
    top = everything[torch.topk(screened, 4).indices]
    start = torch.cat([top, net.snap(torch.stack(known))]) if known else top

    def mean(X: Tensor) -> Tensor:
        return fine(X.unsqueeze(-2))

    X, value = ascend(mean, start, *_held(net, start, range(net.d)), max_iter=50)
    best = int(value.argmax())
    x, v = _walk(mean, net, X[best], float(value[best]), range(net.d))
    if previous is not None:
        with torch.no_grad():
            old = float(mean(previous.unsqueeze(0)))
        if not v > old:
            return previous, old
    return x, v


def discrete_set(
    model: FunctionNetworkModel,
    x_star: Tensor,
    seed: int,
    *,
    n_paths: int = _N_PATHS,
    n_local: int = _N_LOCAL,
    joint: bool = False,
) -> Tensor:
    """Designs among which the posterior mean is maximised after a query: Thompson maximisers, neighbours, the best.

    `joint` finds the Thompson points in one optimisation of the mean over paths of the maximum over points.
    """
    net = model.network
    low, high = net.bounds
    rng = as_rng(derive(seed, "set"))
    with torch.no_grad():
        path = model.sample_path(n_paths, derive(seed, "paths"))

    def value(X: Tensor) -> Tensor:  # (paths, m, d) -> (paths, m)
        return net.utility(path(X), model.worst_cached, model.spread_cached)

    raw = net.snap(
        torch.cat(
            [sobol(96, low, high, derive(seed, "set", "sobol")), nearby(31, x_star, low, high, rng), x_star[None]]
        )
    )
    with torch.no_grad():
        screened = value(raw.expand(n_paths, -1, -1))
    if joint:
        start = raw[screened.argmax(-1)]

        def average(X: Tensor) -> Tensor:
            return value(X.reshape(1, n_paths, net.d).expand(n_paths, -1, -1)).amax(-1).mean()[None]

        low_, high_ = _held(net, start, range(net.d))
        points = ascend(average, start.reshape(1, -1), low_.reshape(1, -1), high_.reshape(1, -1), max_iter=30)[0]
        points = points.reshape(n_paths, net.d)
    else:
        top = torch.topk(screened, 2, dim=-1).indices
        start = raw[top]  # (paths, 2, d)
        flat = start.reshape(-1, net.d)
        low_, high_ = _held(net, flat, range(net.d))
        found, best = ascend(
            lambda X: value(X.reshape(n_paths, 2, net.d)).reshape(-1), flat, low_, high_, max_iter=40, separable=False
        )
        which = best.reshape(n_paths, 2).argmax(-1)
        points = found.reshape(n_paths, 2, net.d)[torch.arange(n_paths), which]
    local = net.snap(nearby(n_local, x_star, low, high, rng, normal=False))
    return torch.cat([points, local, x_star[None]])


def parent_combinations(
    network: FunctionNetwork,
    node: int,
    observed: Sequence[tuple[Tensor, Tensor]],
    *,
    same_design: bool = False,
    limit: int = _MAX_COMBINATIONS,
    seed: int = 0,
) -> Tensor:
    """Every combination of observed outputs of a node's parents (m, number of parents); none where one is unobserved.

    Parents of one group are observed together, so their outputs are not mixed. With `same_design` only combinations whose
    parents agree in the decision variables that they share are kept.
    """
    parents = network.parents[node]
    sets: dict[tuple[int, ...], list[int]] = {}
    for i, p in enumerate(parents):
        sets.setdefault(network.group_of[p], []).append(i)
    choices: list[list[tuple[list[int], Tensor, dict[int, float]]]] = []
    for members in sets.values():
        first = parents[members[0]]
        n = min(len(observed[parents[i]][1]) for i in members)
        rows, seen = [], set()
        for r in range(n):
            values = torch.stack([observed[parents[i]][1][r] for i in members])
            inputs = {c: float(v) for c, v in zip(network.active[first], observed[first][0][r])}
            key = tuple(np.round(values.numpy(), 12)) + (tuple(inputs.items()) if same_design else ())
            if key not in seen:
                seen.add(key)
                rows.append((members, values, inputs))
        choices.append(rows)
    total = int(np.prod([len(rows) for rows in choices])) if choices else 0
    if total == 0:
        return torch.zeros(0, len(parents), dtype=DTYPE)
    if total > 8 * limit:  # an even sample of a product too large to list
        rng = as_rng(derive(seed, "combinations"))
        product: Any = ([rows[rng.integers(len(rows))] for rows in choices] for _ in range(8 * limit))
    else:
        product = itertools.product(*choices)
    found = []
    for combination in product:
        if same_design:
            x: dict[int, float] = {}
            if any(abs(x.setdefault(c, v) - v) > _SAME for _, _, given in combination for c, v in given.items()):
                continue
        row = torch.zeros(len(parents), dtype=DTYPE)
        for members, values, _ in combination:
            row[members] = values
        found.append(row)
    if not found:
        return torch.zeros(0, len(parents), dtype=DTYPE)
    out = torch.stack(found)
    if len(out) > limit:
        out = out[torch.from_numpy(np.sort(as_rng(derive(seed, "limit")).permutation(len(out))[:limit]))]
    return out


def parent_box(network: FunctionNetwork, node: int, observed: Sequence[tuple[Tensor, Tensor]]) -> Tensor | None:
    """Range (2, number of parents) in which parent values may be set freely; None where nothing is known of one."""
    if node in network.parent_bounds:
        return network.parent_bounds[node]
    columns = []
    for i, p in enumerate(network.parents[node]):
        seen = torch.cat([observed[p][1], observed[node][0][:, len(network.active[node]) + i]])
        if len(seen) < 2 or float(seen.max() - seen.min()) <= 0:
            return None
        low, high = seen.min(), seen.max()
        columns.append(torch.stack([low - _PARENT_MARGIN * (high - low), high + _PARENT_MARGIN * (high - low)]))
    return torch.stack(columns, dim=-1) if columns else torch.zeros(2, 0, dtype=DTYPE)


def unseen(network: FunctionNetwork, node: int, Z: Tensor, data: Tensor) -> Tensor:
    """Mask of inputs that differ from every observed one by more than 1e-8 of the observed spread."""
    if not len(data) or not len(Z):
        return torch.ones(len(Z), dtype=torch.bool)
    scale = torch.cat([Z, data]).abs().amax(0).clamp_min(1e-12)
    scale[: len(network.active[node])] = (network.bounds[1] - network.bounds[0])[network.active[node]]
    return torch.cdist(Z / scale, data / scale, p=float("inf")).amin(-1) > _SAME


def optimize_partial_acqf(
    acqf: PartialKnowledgeGradientFN,
    x_star: Tensor,
    *,
    observed: Sequence[tuple[Tensor, Tensor]] | None = None,
    upstream_required: bool = True,
    same_design: bool = False,
    max_parent_combinations: int = 64,
    max_cost: float | None = None,
    num_restarts: int = 8,
    raw_samples: int = 192,
    max_iter: int = 60,
    seed: int = 0,
    allow_repeats: bool = False,
    cost: Callable[[Tensor], Tensor] | None = None,
) -> NodeCandidate | None:
    """Find the input at which running the acquisition's node gains most per unit of cost.

    Parameters
    ----------
    acqf : PartialKnowledgeGradientFN
        Value of the node's inputs, before division by cost.
    x_star : Tensor of shape (d,)
        The present recommendation, near which alpha is largest.
    observed : list of (Tensor, Tensor), optional
        Inputs and outputs of every node. Default: the model's data.
    upstream_required : bool, default True
        A node with parents runs only on observed parent outputs; False lets parent values be set freely.
    same_design : bool, default False
        Only combinations of parent outputs whose shared decision variables agree.
    max_parent_combinations : int, default 64
        Combinations that are ranked where the node also has decision variables; the best eight are optimised.
    max_cost : float, optional
        Inputs that cost more are left out.
    num_restarts, raw_samples, max_iter : int
        Starts, screened points and iterations of L-BFGS-B.
    seed : int, default 0
        Of the screened points.
    allow_repeats : bool, default False
        Whether an input that was observed may be proposed again (noisy nodes).
    cost : callable, optional
        Maps inputs ``n x d_k`` to costs. Default: the network's.

    Returns
    -------
    NodeCandidate or None
        None where the node cannot be run: a parent without observations, nothing new, nothing within `max_cost`.

    Examples
    --------
    >>> from assay.decisions.pkgfn import FunctionNetwork, FunctionNetworkModel, PartialKnowledgeGradientFN
    >>> net = FunctionNetwork([[], [0]], [[0], []], torch.tensor([[0.0], [1.0]]), [1.0, 9.0])
    >>> x = torch.linspace(0, 1, 4, dtype=torch.float64)[:, None]
    >>> model = FunctionNetworkModel([x, torch.sin(3 * x[:2])], [torch.sin(3 * x), torch.sin(3 * x[:2]) ** 2], net)
    >>> acqf = PartialKnowledgeGradientFN(model, 1, X_discrete=x)
    >>> found = optimize_partial_acqf(acqf, x_star=x[1])
    >>> found.node, found.cost, bool((torch.sin(3 * x) == found.parent_values).any())
    (1, 9.0, True)
    """
    model, net, node = acqf.model, acqf.model.network, acqf.node
    group = net.group_of[node]
    data = [(Z, y) for Z, y, *_ in model.data] if observed is None else list(observed)
    active, n_active = net.active[node], len(net.active[node])
    low, high = net.bounds[:, active]
    price = cost or (lambda Z: net.group_cost(node, Z))
    # costs set by a number are one constant: they need no place inside the optimisation
    flexible = any(callable(net.costs[k]) for k in group) and cost is None
    tau = TAU * model.output_scale
    rng = as_rng(derive(seed, "query", node))

    def score(Z: Tensor) -> Tensor:
        alpha = acqf(Z.unsqueeze(-2)) / tau
        # log softplus, by its limit where softplus would underflow
        soft = torch.where(alpha < -20, alpha, torch.nn.functional.softplus(alpha.clamp_min(-20)).log())
        return soft - price(Z).log() if flexible else soft

    parents = net.parents[node]
    if parents and upstream_required:
        limit = max_parent_combinations if active else _MAX_COMBINATIONS
        fixed = parent_combinations(net, node, data, same_design=same_design, limit=limit, seed=seed)
        if not len(fixed):
            return None
        if not active:
            Z = fixed
        else:
            per = max(8, -(-raw_samples // len(fixed)))
            count = per * len(fixed)
            x = torch.cat(
                [
                    sobol(count // 2, low, high, derive(seed, node)),
                    nearby(count - count // 2, x_star[active], low, high, rng),
                ]
            )
            x = x[torch.from_numpy(rng.permutation(count))]
            Z = torch.cat([x, fixed.repeat(per, 1)], dim=-1)
            Z = torch.cat([Z, torch.cat([x_star[active].expand(len(fixed), -1), fixed], dim=-1)])
        box = None
    else:
        box = parent_box(net, node, data) if parents else torch.zeros(2, 0, dtype=DTYPE)
        if box is None:
            return None
        with torch.no_grad():
            centers = torch.cat([x_star[None], acqf._A])
            Y = model.propagate(centers, acqf._inner, nodes=net.relevant)
            mean = {k: (y * acqf._inner.weights).sum(-1) if y.shape[-1] > 1 else y[..., 0] for k, y in Y.items()}
            on = torch.cat(
                [centers[:, active], *[mean[p].expand(len(centers))[:, None] for p in parents if p in mean]], dim=-1
            )
        full_low, full_high = torch.cat([low, box[0]]), torch.cat([high, box[1]])
        Z = sobol(raw_samples // 2, full_low, full_high, derive(seed, node))
        if on.shape[-1] == len(full_low):
            on = torch.minimum(torch.maximum(on, full_low), full_high)
            Z = torch.cat([Z, nearby(raw_samples // 4, on[0], full_low, full_high, rng), on])
    if active:
        Z = torch.cat([_snap_columns(net, Z[:, :n_active], active), Z[:, n_active:]], dim=-1)

    def admissible(Z: Tensor) -> Tensor:
        ok = torch.ones(len(Z), dtype=torch.bool)
        if not allow_repeats:
            for k in group:
                ok &= unseen(net, node, Z, data[k][0])
        if max_cost is not None:
            ok &= price(Z) <= max_cost * (1 + 1e-12)
        return ok

    Z = Z[admissible(Z)]
    if not len(Z):
        return None
    with torch.no_grad():
        screened = score(Z)
    if active or box is not None:
        start = Z[torch.topk(screened, min(num_restarts, len(Z))).indices]
        if parents and upstream_required:
            start = _one_per_combination(Z, screened, n_active, num_restarts)
        bounds = _held(net, start[:, :n_active], active)
        tail_low = box[0].expand(len(start), -1) if box is not None else start[:, n_active:]
        tail_high = box[1].expand(len(start), -1) if box is not None else start[:, n_active:]
        found, _ = ascend(
            score, start, torch.cat([bounds[0], tail_low], dim=-1), torch.cat([bounds[1], tail_high], dim=-1), max_iter,
            tolerance=_ENOUGH,
        )  # fmt: skip
        top = Z[screened.argmax()][None]
        Z = torch.cat([found, top])
        if net.discrete:
            best = int(score(Z).detach().argmax())
            head, tail = Z[best, :n_active], Z[best, n_active:]

            def at(x: Tensor) -> Tensor:
                return score(torch.cat([x, tail.expand(len(x), -1)], dim=-1))

            moved, _ = _walk(at, net, head, float(score(Z[best][None]).detach()), active)
            Z = torch.cat([Z, torch.cat([moved, tail])[None]])
        Z = Z[admissible(Z)]
        if not len(Z):
            return None
    with torch.no_grad():
        alpha, prices = acqf(Z.unsqueeze(-2)), price(Z)
    best = int((alpha / prices).argmax())
    z = Z[best]
    return NodeCandidate(group[0], z[:n_active], z[n_active:], float(alpha[best]), float(prices[best]), tuple(group))


def _snap_columns(network: FunctionNetwork, x: Tensor, columns: Sequence[int]) -> Tensor:
    full = network.bounds[0].expand(len(x), -1).clone()
    full[:, list(columns)] = x
    return network.snap(full)[:, list(columns)]


def _one_per_combination(Z: Tensor, value: Tensor, n_active: int, count: int) -> Tensor:
    """Best screened point of each of the best combinations of parent outputs; filled up with further points."""
    order = torch.argsort(value, descending=True)
    picked, seen = [], set()
    for i in order.tolist():
        key = tuple(Z[i, n_active:].tolist())
        if key not in seen:
            seen.add(key)
            picked.append(i)
        if len(picked) == count:
            break
    for i in order.tolist():
        if len(picked) >= count:
            break
        if i not in picked:
            picked.append(i)
    return Z[picked]


def check_finite(values: Tensor, what: str) -> None:
    """Refuse NaN and infinities with the name of what they are."""
    if not bool(torch.isfinite(values).all()):
        raise InputError(f"{what} must be finite numbers, got {values.tolist()}.")
