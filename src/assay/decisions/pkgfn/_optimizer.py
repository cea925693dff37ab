"""Ask and tell: the loop around the surrogate, the acquisitions and the budget."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from assay._core.errors import AssayError, InputError
from assay._core.seeds import as_rng, derive, torch_generator

from ._acquisition import (
    ExpectedImprovementFN,
    KnowledgeGradientFN,
    PartialKnowledgeGradientFN,
    ThompsonSamplingFN,
    _NetworkAcquisition,
)
from ._gp import DTYPE, NodeGP
from ._model import FunctionNetworkModel, InnerNodes
from ._network import FunctionNetwork
from ._search import (
    TAU,
    NodeCandidate,
    check_finite,
    discrete_set,
    maximise_over_designs,
    nearby,
    optimize_partial_acqf,
    recommend,
    sobol,
    unseen,
)

Method = Literal["pkgfn", "fast_pkgfn", "eifn", "kgfn", "tsfn", "ei", "kg", "random"]
PARTIAL = ("pkgfn", "fast_pkgfn")
_SPENT = 1e-9  # relative: a cost that equals the rest of the budget up to rounding is affordable
_OUTSIDE = 1e-9  # how far an input may lie outside its bounds, in ranges (rounding of a text file)
_MATCH = 1e-6  # relative distance at which an observation is that of a proposed query
# Standard deviation, in units of the output's, below which the recommended design counts as run: it moves a little with
# every fit, and running its first node again and again would never reach the last.
_KNOWN = 0.01
_HUGEST = 1e100  # squares of outputs must not overflow
_PATIENCE = 3  # asks in a row below min_gain_per_cost before stopping is advised
_MAX_DESIGNS = 2000  # joined full designs that are kept while looking for the best one


@contextmanager
def _one_thread() -> Iterator[None]:
    """Tensors here are small: on a busy machine torch's threads wait for each other ten times as long as they compute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class BudgetExhausted(AssayError):
    """No query is affordable within the remaining budget; the recommendation stands.

    Examples
    --------
    >>> from assay.decisions.pkgfn import problems
    >>> opt = FunctionNetworkOptimizer(problems.Pharma(), budget=0.5)
    >>> try:
    ...     opt.ask()
    ... except BudgetExhausted as error:
    ...     print(str(error)[:50])
    The cheapest query that is left costs 1, but 0.5 o
    """


class FunctionNetworkOptimizer:
    """Optimise a function network one node evaluation at a time within a budget.

    At each step the node :math:`j` and input :math:`z` with the largest :math:`\\alpha_j(z)/c_j(z)` are proposed, where
    :math:`\\alpha` is the expected rise of the best posterior mean of the objective and :math:`c` the cost.

    Parameters
    ----------
    network : FunctionNetwork
        What feeds what, costs, bounds, objective.
    method : str, default "pkgfn"
        "pkgfn"; "fast_pkgfn" (one candidate per node from EIFN, free mode only); the full-evaluation methods "eifn",
        "kgfn", "tsfn"; "ei" and "kg" on a Gaussian process of the objective; "random".
    budget : float
        Total cost that may be spent.
    seed : int, default 0
        Same seed and same answers, same queries.
    upstream_required : bool, optional
        Whether a node with parents runs only on observed parent outputs. Default: what the network says (True).
    noise : {"fixed", "infer"}, default "fixed"
        Deterministic nodes, or a noise variance per node.
    initial_data : mapping of int to (Tensor, Tensor), optional
        ``{node: (Z, y)}``, free of charge. Without it the first queries walk Sobol designs node by node, at their cost.
    n_initial : int, optional
        Number of such designs. Default 2(d + 1).
    same_design : bool, default False
        Only combine parent outputs whose shared decision variables agree.
    min_gain_per_cost : float, default 0
        `should_stop` turns True when the best expected gain per cost is below it three times in a row.
    noise_var : mapping of int to Tensor, optional
        Known noise variances of the initial data.

    Attributes
    ----------
    last_ask : dict
        What the last `ask` saw: gain, cost and gain per cost of the best candidate of every node, acquisition values
        computed, CPU seconds.
    last_asks : list of dict
        The same for every query of the last `ask(q)`.

    Notes
    -----
    1. Queries that were asked and not yet told count against the budget and are conditioned on at their predicted value,
       so `ask` may be called again before `tell`: that is how parallel laboratories are served.
    2. Initial data, told data and hyper-parameters are all in `state_dict`, which is plain JSON.

    References
    ----------
    Buathong et al., "Bayesian Optimization of Function Networks with Partial Evaluations", ICML 2024, arXiv:2311.02146.
    Buathong and Frazier, "Fast Bayesian Optimization of Function Networks with Partial Evaluations", AutoML 2025.

    Examples
    --------
    >>> from assay.decisions.pkgfn import problems
    >>> net = problems.AckleySine(costs=(1.0, 9.0))
    >>> opt = FunctionNetworkOptimizer(net, budget=60, seed=1, n_initial=5)
    >>> query = opt.ask()
    >>> query.node, query.cost
    (0, 1.0)
    >>> opt.tell(query.node, query.z, net.functions[0](query.z[None])[0])
    >>> opt.remaining_budget
    59.0
    """

    def __init__(
        self,
        network: FunctionNetwork,
        method: Method = "pkgfn",
        budget: float = math.inf,
        seed: int = 0,
        upstream_required: bool | None = None,
        noise: Literal["fixed", "infer"] = "fixed",
        initial_data: Mapping[int, tuple[Tensor, Tensor]] | None = None,
        n_initial: int | None = None,
        *,
        same_design: bool = False,
        min_gain_per_cost: float = 0.0,
        noise_var: Mapping[int, Tensor] | None = None,
    ) -> None:
        if method not in get_args(Method):
            raise InputError(f"method must be one of {', '.join(get_args(Method))}, got {method!r}.")
        if not (math.isfinite(min_gain_per_cost) and min_gain_per_cost >= 0):
            raise InputError(f"min_gain_per_cost must be a number >= 0, got {min_gain_per_cost}.")
        if noise not in ("fixed", "infer"):
            raise InputError(f"noise must be fixed or infer, got {noise!r}.")
        if not budget > 0:
            raise InputError(f"budget must be a number > 0, got {budget}.")
        if n_initial is not None and n_initial < 1:
            raise InputError(f"n_initial must be at least 1, got {n_initial}.")
        self.network, self.method, self.budget, self.seed = network, method, float(budget), int(seed)
        self.upstream_required = network.upstream_required if upstream_required is None else bool(upstream_required)
        if method == "fast_pkgfn" and self.upstream_required:
            raise InputError("fast_pkgfn sets parent values freely: it needs upstream_required=False.")
        self.noise, self.same_design, self.min_gain_per_cost = noise, same_design, float(min_gain_per_cost)
        K = network.n_nodes
        self._data: list[tuple[Tensor, Tensor, Tensor]] = [
            (
                torch.zeros(0, network.input_dim(k), dtype=DTYPE),
                torch.zeros(0, dtype=DTYPE),
                torch.zeros(0, dtype=DTYPE),
            )
            for k in range(K)
        ]
        self._gps: list[NodeGP | None] = [None] * K
        self._dirty = set(range(K))
        self._spent = 0.0
        self._measured: dict[int, list[float]] = {}
        self._pending: list[dict[str, Any]] = []
        self._plan: dict[str, Any] | None = None
        self._rows: list[dict[str, Any]] = []
        self._best_x: Tensor | None = None
        self._best_mean: float | None = None
        self._first_x: Tensor | None = None  # recommended from the initial data alone
        self._recommended_at = -1  # number of observations that the recommendation has seen
        self._asks = 0
        self._low_gains = 0
        self._initial: list[list[float]] = []
        self.last_ask: dict[str, Any] = {}
        self.last_asks: list[dict[str, Any]] = []
        if initial_data is not None:
            for node, (Z, y) in initial_data.items():
                extra = None if noise_var is None else noise_var.get(node)
                self._check_node(node)
                Z = torch.as_tensor(Z, dtype=DTYPE)
                y = torch.as_tensor(y, dtype=DTYPE).reshape(-1)
                Z = Z.reshape(len(y), -1)
                for z, value in zip(Z, y):
                    self._check_input(node, z)
                    self._check_output(node, value)
                self._append(node, Z, y, extra)
            if not any(len(y) for _, y, _ in self._data):
                raise InputError("initial_data holds no observation; leave it out to start from Sobol designs.")
        else:
            count = n_initial if n_initial is not None else 2 * (network.d + 1)
            points = network.snap(sobol(count, *network.box, derive(self.seed, "initial")))
            self._initial = points.tolist()

    # --- data ---

    def _check_node(self, node: int | str) -> int:
        if isinstance(node, str):
            if node not in self.network.node_names:
                raise InputError(f"There is no node {node!r}; nodes are {', '.join(self.network.node_names)}.")
            return self.network.node_names.index(node)
        if not 0 <= int(node) < self.network.n_nodes:
            raise InputError(f"There is no node {node}; the network has {self.network.n_nodes}.")
        return int(node)

    def _check_input(self, node: int, z: Tensor) -> None:
        net, name = self.network, self.network.node_names[node]
        if z.shape != (net.input_dim(node),):
            raise InputError(f"Node {name} reads {', '.join(net.columns(node))}, but got {z.numel()} values.")
        check_finite(z, f"Node {name}: its inputs")
        low, high = net.bounds[:, net.active[node]]
        head = z[: len(net.active[node])]
        out = (head < low - _OUTSIDE * (high - low)) | (head > high + _OUTSIDE * (high - low))
        if bool(out.any()):
            i = int(out.nonzero()[0])
            raise InputError(
                f"Node {name}: {net.columns(node)[i]} = {float(head[i]):g} lies outside [{float(low[i]):g}, {float(high[i]):g}]."
            )

    def _check_output(self, node: int, y: Tensor) -> None:
        if not bool(torch.isfinite(y)):
            raise InputError(
                f"Node {self.network.node_names[node]}: the output must be a finite number, got {float(y)}."
            )
        if abs(float(y)) > _HUGEST:
            raise InputError(
                f"Node {self.network.node_names[node]}: the output {float(y):g} is too large to square; use another unit."
            )

    def _check_duplicate(self, node: int, z: Tensor, y: float) -> bool:
        """Whether the observation says nothing new; two answers to one input of a deterministic node are an error."""
        Z, values, _ = self._data[node]
        if self.noise != "fixed" or not len(values) or bool(unseen(self.network, node, z[None], Z)[0]):
            return False
        i = int((Z - z).abs().sum(-1).argmin())
        name = self.network.node_names[node]
        if abs(float(values[i]) - y) > 1e-6 * max(1.0, abs(y)):
            raise InputError(
                f"Node {name}: this input was observed before with {float(values[i]):.6g}, now {y:.6g}; use noise='infer'."
            )
        warnings.warn(f"Node {name}: a repeated observation was left out.", UserWarning, stacklevel=3)
        return True

    def _append(self, node: int, Z: Tensor, y: Tensor, noise_var: Tensor | None = None) -> None:
        extra = torch.zeros_like(y) if noise_var is None else torch.as_tensor(noise_var, dtype=DTYPE).reshape(-1)
        keep = [i for i in range(len(y)) if not self._check_duplicate(node, Z[i], float(y[i]))]
        old = self._data[node]
        self._data[node] = (
            torch.cat([old[0], Z[keep]]),
            torch.cat([old[1], y[keep]]),
            torch.cat([old[2], extra[keep]]),
        )
        self._dirty.add(node)

    @property
    def observations(self) -> dict[int, tuple[Tensor, Tensor]]:
        """Inputs and outputs of every node so far."""
        return {k: (Z, y) for k, (Z, y, _) in enumerate(self._data)}

    @property
    def remaining_budget(self) -> float:
        """Budget that was neither spent nor promised to pending queries."""
        return self.budget - self._spent - sum(p["cost"] for p in self._pending)

    @property
    def should_stop(self) -> bool:
        """Whether the best expected gain per cost stayed below `min_gain_per_cost` for three asks."""
        return self._low_gains >= _PATIENCE

    def node_cost(self, node: int, Z: Tensor) -> Tensor:
        """Cost of evaluating the node's group at inputs (n, d_k): measured where it was measured, else declared."""
        total = torch.zeros(Z.shape[:-1], dtype=DTYPE)
        for k in self.network.group_of[node]:
            seen = self._measured.get(k)
            total = total + (float(np.mean(seen)) if seen else self.network.cost(k, Z))
        return total

    def tell(
        self,
        node: int | str,
        z: Tensor | Sequence[float],
        y: float | Sequence[float] | Tensor,
        *,
        cost: float | None = None,
        noise_var: float = 0.0,
    ) -> None:
        """Give the outcome of a query.

        Parameters
        ----------
        node : int or str
            The node, by index or name.
        z : Tensor of shape (d_k,)
            Its input: decision variables, then parent outputs.
        y : float, or one per node of its group
            The output.
        cost : float, optional
            What it did cost, where that was measured; replaces the declared cost in later decisions (running mean).
        noise_var : float, default 0
            Known variance of the observation.

        Raises
        ------
        InputError
            Names the node; the state is unchanged.
        """
        j = self._check_node(node)
        net = self.network
        group = net.group_of[j]
        z = torch.as_tensor(z, dtype=DTYPE).reshape(-1).detach()
        values = torch.as_tensor(y, dtype=DTYPE).reshape(-1).detach()
        self._check_input(j, z)
        if len(values) != len(group):
            names = ", ".join(net.node_names[k] for k in group)
            raise InputError(f"Node {net.node_names[j]}: {len(values)} outputs were given; its group is {names}.")
        for k, value in zip(group, values):
            self._check_output(k, value)
        if cost is not None and not (math.isfinite(cost) and cost > 0):
            raise InputError(f"Node {net.node_names[j]}: the cost must be a number > 0, got {cost}.")
        if not (math.isfinite(noise_var) and noise_var >= 0):
            raise InputError(f"Node {net.node_names[j]}: noise_var must be >= 0, got {noise_var}.")
        new = [k for k, value in zip(group, values) if not self._check_duplicate(k, z, float(value))]
        if self.upstream_required:
            for i, p in enumerate(net.parents[j]):
                seen = self._data[p][1]
                value = float(z[len(net.active[j]) + i])
                if not len(seen) or float((seen - value).abs().min()) > _MATCH * max(1.0, abs(value)):
                    warnings.warn(
                        f"Node {net.node_names[j]}: its input {net.node_names[p]} = {value:.6g} was never observed.",
                        UserWarning,
                        stacklevel=2,
                    )
        price = float(self.node_cost(j, z[None])[0]) if cost is None else float(cost)
        for k, value in zip(group, values):
            if k in new:
                old = self._data[k]
                self._data[k] = (
                    torch.cat([old[0], z[None]]),
                    torch.cat([old[1], value[None]]),
                    torch.cat([old[2], torch.tensor([noise_var], dtype=DTYPE)]),
                )
                self._dirty.add(k)
        if cost is not None:
            for k in group:
                self._measured.setdefault(k, []).append(price / len(group))
        self._spent += price
        self._pending = [p for p in self._pending if not (p["node"] == group[0] and _same(p["z"], z.tolist()))]
        self._rows.append(
            {"node": group[0], "z": z.tolist(), "y": values.tolist(), "cost": price, "cumulative_cost": self._spent,
             "x": None, "mean": None}
        )  # fmt: skip
        if self._plan is not None and self._plan["waiting"] == group[0]:
            for k, value in zip(group, values):
                self._plan["y"][str(k)] = float(value)
            self._plan["waiting"] = None

    # --- surrogate ---

    def _observed(self) -> list[tuple[Tensor, Tensor]]:
        return [(Z, y) for Z, y, _ in self._data]

    def fitted_model(self) -> FunctionNetworkModel:
        """The surrogate of the present data; only nodes with new data are fitted again.

        Returns
        -------
        FunctionNetworkModel
            Without pending queries.
        """
        with warnings.catch_warnings():
            # A node without data was reported when the data came; its prior is what the method needs here.
            warnings.filterwarnings("ignore", message="Node .* has no observations")
            model = FunctionNetworkModel(
                [d[0] for d in self._data], [d[1] for d in self._data], self.network, self.noise,
                noise_var=[d[2] if bool((d[2] > 0).any()) else None for d in self._data], fit=False,
            )  # fmt: skip
            if all(gp is not None for gp in self._gps):
                model.nodes = [gp for gp in self._gps if gp is not None]
                for k in sorted(self._dirty):
                    model.fit(k)
            else:
                model.fit()
        self._gps = list(model.nodes)
        self._dirty = set()
        return model

    def _designs(self) -> tuple[Tensor, Tensor]:
        """Full designs (n, d) and outputs (n, K) that can be joined from the observations, the newest kept."""
        net = self.network
        X = torch.full((1, net.d), math.nan, dtype=DTYPE)
        Y = torch.full((1, net.n_nodes), math.nan, dtype=DTYPE)
        for k in net.order:
            if k not in net.relevant:
                continue
            Z, y, _ = self._data[k]
            if not len(y):
                return X[:0], Y[:0]
            n_active = len(net.active[k])
            have = torch.cat([X[:, net.active[k]], Y[:, net.parents[k]]], dim=-1)
            scale = Z.abs().amax(0).clamp_min(1e-12)
            fits = (((have[:, None] - Z[None]).abs() <= 1e-9 * scale) | have[:, None].isnan()).all(-1)
            rows, cols = fits.nonzero(as_tuple=True)
            rows, cols = rows[-_MAX_DESIGNS:], cols[-_MAX_DESIGNS:]
            X, Y = X[rows].clone(), Y[rows].clone()
            X[:, net.active[k]] = Z[cols][:, :n_active]
            Y[:, k] = y[cols]
            if not len(X):
                return X, Y
        free = X.isnan()
        middle = net.snap(net.bounds.mean(0)[None])[0]
        return torch.where(free, middle, X), torch.nan_to_num(Y)

    @_one_thread()
    def _recommend(self, model: FunctionNetworkModel | None = None) -> tuple[Tensor, float]:
        count = sum(len(y) for _, y, _ in self._data)
        if self._best_x is not None and self._best_mean is not None and self._recommended_at == count:
            return self._best_x, self._best_mean
        fresh = self.fitted_model() if model is None else model
        X, Y = self._designs()
        anchors = []
        if len(X):
            utility = self.network.utility(Y, fresh.worst_cached, fresh.spread_cached)
            anchors.append(X[int(utility.argmax())])
        if self.method in ("ei", "kg") and len(X) >= 2:
            surrogate, _ = self._end_to_end(X, Y)
            previous = self._best_x
            x, mean = recommend(surrogate, previous, anchors, derive(self.seed, len(self._rows)), self.seed)
        else:
            x, mean = recommend(fresh, self._best_x, anchors, derive(self.seed, len(self._rows)), self.seed)
        if not math.isfinite(mean):
            raise self._not_finite(self._samples_at(x))
        self._best_x, self._best_mean, self._recommended_at = x, mean, count
        if not self._rows:
            self._first_x = x
        if self._rows:
            self._rows[-1]["x"], self._rows[-1]["mean"] = x.tolist(), mean
        return x, mean

    def _end_to_end(self, X: Tensor, Y: Tensor) -> tuple[FunctionNetworkModel, Tensor]:
        """A Gaussian process of the objective over designs, as a network of one node."""
        net = self.network
        single = FunctionNetwork([[]], [list(range(net.d))], net.bounds, [1.0], discrete=net.discrete)
        g = net.utility(Y)
        return FunctionNetworkModel([X], [g], single, self.noise), g

    def recommend(self) -> tuple[Tensor, float, float]:
        """The design with the highest posterior mean.

        Returns
        -------
        Tensor, float, float
            Design (d,), mean and standard deviation of the objective there, in the objective's own sign.
        """
        x, _ = self._recommend()
        values = self._samples_at(x)
        g = self.network.objective(values)
        if not bool(torch.isfinite(g).all()):
            raise self._not_finite(values)
        return x, float(g.mean()), float(g.std())

    def _not_finite(self, values: Tensor) -> InputError:
        shown = ", ".join(f"{n} = {float(v):.4g}" for n, v in zip(self.network.node_names, values.mean(0)))
        return InputError(
            f"The objective {self.network.objective_text or ''} gives no finite number near predicted outputs such as "
            f"{shown}; avoid division by, and roots of, what may pass zero."
        )

    def _samples_at(self, x: Tensor, n: int = 512) -> Tensor:
        model = self.fitted_model()
        inner = InnerNodes.make(self.network, n, self.seed, nodes=list(range(self.network.n_nodes)), samples=True)
        with torch.no_grad():
            Y = model.propagate(x[None], inner, nodes=set(range(self.network.n_nodes)))
            return model.stack(Y)[0]

    def probability_feasible(self, x: Tensor | None = None) -> float:
        """Probability that a design (default: the recommended one) keeps every constraint."""
        point = self._recommend()[0] if x is None else torch.as_tensor(x, dtype=DTYPE)
        return float(self.network.feasible(self._samples_at(point)).double().mean())

    # --- asking ---

    def ask(self, q: int = 1) -> NodeCandidate | list[NodeCandidate]:
        """Propose the next query, or q of them for parallel evaluation.

        Parameters
        ----------
        q : int, default 1
            Number of queries.

        Returns
        -------
        NodeCandidate, or a list of at most q where q > 1
            A list ends early where the budget does.

        Raises
        ------
        BudgetExhausted
            Nothing is affordable.
        InputError
            The next step needs the answer of a pending query.
        """
        if q < 1:
            raise InputError(f"q must be at least 1, got {q}.")
        self.last_asks = []
        if q == 1:
            one = self._ask()
            self.last_asks = [self.last_ask]
            return one
        found = []
        low_gains = None
        for _ in range(q):
            try:
                found.append(self._ask())
                self.last_asks.append(self.last_ask)
                # Later queries see the earlier ones as answered, so their gains are small: the first decides on stopping.
                low_gains = self._low_gains if low_gains is None else low_gains
            except BudgetExhausted:
                if not found:
                    raise
                break
            except InputError:
                if not found:  # a design that is walked node by node waits for its first answer
                    raise
                break
        self._low_gains = low_gains if low_gains is not None else self._low_gains
        return found

    @_one_thread()
    def _ask(self) -> NodeCandidate:
        began = time.process_time()
        self.last_ask = {"evaluations": 0, "nodes": []}
        if self._initial or self._plan is not None:
            candidate = self._follow_plan()
            if candidate is None:
                return self._ask()
        elif self.method in PARTIAL:
            candidate = self._ask_partial()
        else:
            candidate = self._ask_full()
        self._asks += 1
        z = candidate.z
        self._pending.append({"node": candidate.node, "z": z.tolist(), "cost": candidate.cost})
        self.last_ask["seconds"] = time.process_time() - began
        return candidate

    def _exhausted(self, cost: float) -> BudgetExhausted:
        return BudgetExhausted(
            f"The cheapest query that is left costs {cost:g}, but {max(self.remaining_budget, 0.0):g} of the budget "
            f"({self.budget:g}) remains: see recommend()."
        )

    def _affordable(self, cost: float) -> bool:
        return cost <= self.remaining_budget * (1 + _SPENT) + 1e-12

    def _follow_plan(self) -> NodeCandidate | None:
        """Next node of a design that is walked in order; None when the design is complete."""
        net = self.network
        if self._plan is None:
            self._plan = {"x": self._initial.pop(0), "y": {}, "waiting": None}
        plan = self._plan
        if plan["waiting"] is not None:
            raise InputError(
                f"Node {net.node_names[plan['waiting']]} was asked and not told: the next step of this design needs its output."
            )
        done = {int(k) for k in plan["y"]}
        left = [g for g in net.groups if g[0] not in done and any(k in net.relevant for k in g)]
        if not left:
            self._plan = None
            return None
        group = left[0]
        x = torch.tensor(plan["x"], dtype=DTYPE)
        Y = torch.zeros(net.n_nodes, dtype=DTYPE)
        for k, value in plan["y"].items():
            Y[int(k)] = value
        z = net.gather(group[0], x, Y)
        price = float(self.node_cost(group[0], z[None])[0])
        if not self._affordable(price):
            raise self._exhausted(price)
        plan["waiting"] = group[0]
        n = len(net.active[group[0]])
        return NodeCandidate(group[0], z[:n], z[n:], 0.0, price, tuple(group))

    def _conditioned(self, model: FunctionNetworkModel) -> FunctionNetworkModel:
        """The model with every pending query answered by its predicted mean."""
        for p in self._pending:
            z = torch.tensor(p["z"], dtype=DTYPE)[None]
            for k in self.network.group_of[p["node"]]:
                model = model.condition_on_observations(k, z, model.nodes[k].mean(z).detach())
        return model

    def _cheapest(self) -> float:
        """Lowest possible cost of any group; a cost function is looked at on 64 points."""
        net, lowest = self.network, math.inf
        for group in net.groups:
            Z = torch.cat([d[0] for d in self._data[group[0] : group[0] + 1]])
            low, high = net.bounds[:, net.active[group[0]]]
            if not net.parents[group[0]]:
                Z = torch.cat([Z, sobol(64, low, high, 0)])
            if len(Z):
                lowest = min(lowest, float(self.node_cost(group[0], Z).min()))
            elif not any(callable(net.costs[k]) for k in group):
                lowest = min(
                    lowest, float(self.node_cost(group[0], torch.zeros(1, net.input_dim(group[0]), dtype=DTYPE))[0])
                )
        return lowest

    def _ask_partial(self) -> NodeCandidate:
        net = self.network
        cheapest = self._cheapest()
        if not self._affordable(cheapest):
            raise self._exhausted(cheapest)
        fitted = self.fitted_model()
        x_star, _ = self._recommend(fitted)
        model = self._conditioned(fitted)
        seed = derive(self.seed, "ask", self._asks)
        fast = self.method == "fast_pkgfn"
        A = discrete_set(model, x_star, seed, joint=fast)
        candidates: list[NodeCandidate] = []
        evaluations = 0
        realisation = self._realisation(model, x_star, seed) if fast else None
        if realisation is not None:
            evaluations += realisation[2]
        blocked = [
            (torch.cat([Z, *[torch.tensor(p["z"], dtype=DTYPE)[None] for p in self._pending if k in net.group_of[p["node"]]]]), y)
            for k, (Z, y) in enumerate(self._observed())
        ]  # fmt: skip
        for group in net.groups:
            if not any(k in net.relevant for k in group):
                continue
            acqf = PartialKnowledgeGradientFN(model, group[0], A, seed=derive(seed, "inner"))
            price = (lambda Z, j=group[0]: self.node_cost(j, Z)) if any(k in self._measured for k in group) else None
            if realisation is not None:
                found = self._fast_candidate(acqf, realisation[0], realisation[1])
            else:
                found = optimize_partial_acqf(
                    acqf, x_star, observed=blocked, upstream_required=self.upstream_required, same_design=self.same_design,
                    max_cost=self.remaining_budget, seed=seed, allow_repeats=self.noise == "infer", cost=price,
                )  # fmt: skip
            evaluations += acqf.evaluations
            if found is not None:
                candidates.append(found)
        best = max(candidates, key=lambda c: c.gain_per_cost, default=None)
        floor = TAU * model.output_scale
        # A gain below quadrature error says nothing about where to look: run what the recommendation still lacks.
        verify = best is None or best.value <= floor
        self._low_gains = self._low_gains + 1 if (best is None or best.gain_per_cost < self.min_gain_per_cost) else 0
        self.last_ask |= {
            "evaluations": evaluations,
            "nodes": [
                {"node": c.node, "z": c.z.tolist(), "gain": c.value, "cost": c.cost, "gain_per_cost": c.gain_per_cost}
                for c in candidates
            ],
        }
        if verify:
            step = self._verification(x_star, model)
            if step is not None:
                self.last_ask["reason"] = "next unevaluated node of the recommendation"
                return step
            # Nothing left to verify and nothing promises a gain: the maximisers of sampled networks still explore.
            for x in A[: len(A) - 11].roll(-(self._asks % 10), 0):
                step = self._verification(x, model)
                if step is not None:
                    self.last_ask["reason"] = "no query promises a gain: maximiser of a sampled network"
                    return step
        if best is None:
            raise self._exhausted(cheapest)
        self.last_ask["reason"] = "largest expected gain per cost"
        return best

    def _verification(self, x: Tensor, model: FunctionNetworkModel) -> NodeCandidate | None:
        """First node of the recommended design that was not run there; None where all were, or it is not affordable."""
        net = self.network
        Y = torch.zeros(net.n_nodes, dtype=DTYPE)
        for group in net.groups:
            z = net.gather(group[0], x, Y)
            for k in group:
                Z, y, _ = self._data[k]
                scale = torch.cat([Z, z[None]]).abs().amax(0).clamp_min(1e-12)
                scale[: len(net.active[k])] = (net.bounds[1] - net.bounds[0])[net.active[k]]
                distance = ((Z - z).abs() / scale).amax(-1) if len(y) else torch.tensor([math.inf])
                gp = model.nodes[k]
                known = float(gp.mean_var(z[None])[1].sqrt()) < _KNOWN * gp.y_std
                if float(distance.min()) > _MATCH and not (known and len(y)):
                    price = float(self.node_cost(group[0], z[None])[0])
                    waiting = any(p["node"] == group[0] and _same(p["z"], z.tolist()) for p in self._pending)
                    if waiting or not self._affordable(price) or group[0] not in net.relevant:
                        return None
                    n = len(net.active[group[0]])
                    return NodeCandidate(group[0], z[:n], z[n:], 0.0, price, tuple(group))
                Y[k] = y[int(distance.argmin())]
        return None

    def _best_value(self, model: FunctionNetworkModel, x_star: Tensor) -> float:
        X, Y = self._designs()
        if len(X):
            return float(self.network.utility(Y, model.worst_cached, model.spread_cached).max())
        inner = InnerNodes.make(self.network, seed=self.seed)
        with torch.no_grad():
            return float(model.expected_utility(x_star[None], inner)[0])

    def _raw_designs(self, x_star: Tensor, seed: int, n: int = 256) -> Tensor:
        net = self.network
        rng = as_rng(derive(seed, "raw"))
        return torch.cat([sobol(n, *net.box, derive(seed, "raw")), nearby(n // 4, x_star, *net.box, rng), x_star[None]])

    def _maximise(
        self, acqf: _NetworkAcquisition, x_star: Tensor, seed: int, *, log: bool, restarts: int = 4
    ) -> Tensor:
        def value(X: Tensor) -> Tensor:
            v = acqf(X.unsqueeze(-2))
            return v.clamp_min(1e-30).log() if log else v

        return maximise_over_designs(value, self.network, self._raw_designs(x_star, seed), restarts=restarts)[0]

    def _realisation(self, model: FunctionNetworkModel, x_star: Tensor, seed: int) -> tuple[Tensor, Tensor, int]:
        """EIFN's design and one draw of the network's outputs there."""
        acqf = ExpectedImprovementFN(model, self._best_value(model, x_star), seed=derive(seed, "eifn"))
        x = self._maximise(acqf, x_star, seed, log=True)
        net = self.network
        generator = torch_generator(derive(seed, "realisation"))
        xi = {k: torch.randn(1, generator=generator, dtype=DTYPE) for k in range(net.n_nodes)}
        with torch.no_grad():
            Y = model.propagate(x[None], InnerNodes(xi, torch.ones(1, dtype=DTYPE)))
        return x, model.stack(Y)[0, 0], 0

    def _fast_candidate(self, acqf: PartialKnowledgeGradientFN, x: Tensor, Y: Tensor) -> NodeCandidate | None:
        net, j = self.network, acqf.node
        z = net.gather(j, x, Y)
        n = len(net.active[j])
        if j in net.parent_bounds:  # the sampled parents may lie where the step cannot be set to run
            z = torch.cat(
                [z[:n], torch.maximum(torch.minimum(z[n:], net.parent_bounds[j][1]), net.parent_bounds[j][0])]
            )
        data = self._data[j][0]
        if self.noise == "fixed" and not bool(unseen(net, j, z[None], data)[0]):
            return None
        price = float(self.node_cost(j, z[None])[0])
        if not self._affordable(price):
            return None
        with torch.no_grad():
            value = float(acqf(z[None, None])[0])
        return NodeCandidate(j, z[:n], z[n:], value, price, tuple(net.group_of[j]))

    def _ask_full(self) -> NodeCandidate:
        net = self.network
        X, Y = self._designs()
        lowest = sum(
            float(self.node_cost(g[0], d[0]).min()) if len(d := self._data[g[0]]) and len(d[0]) else 0.0
            for g in net.groups
        )  # fmt: skip
        if not self._affordable(lowest):
            raise self._exhausted(lowest)
        if self._pending:
            raise InputError("A full-evaluation method has a query that was asked and not told.")
        seed = derive(self.seed, "ask", self._asks)
        fitted = self.fitted_model()
        x_star, _ = self._recommend(fitted)
        if self.method == "random":
            rng = as_rng(derive(seed, "random"))
            low, high = net.bounds
            x = net.snap((low + torch.from_numpy(rng.random(net.d)) * (high - low))[None])[0]
        elif self.method == "eifn":
            acqf: _NetworkAcquisition = ExpectedImprovementFN(
                fitted, self._best_value(fitted, x_star), seed=derive(seed, "eifn")
            )
            x = self._maximise(acqf, x_star, seed, log=True)
        elif self.method == "tsfn":
            x = self._maximise(ThompsonSamplingFN(fitted, derive(seed, "path")), x_star, seed, log=False)
        elif self.method == "kgfn":
            acqf = KnowledgeGradientFN(fitted, discrete_set(fitted, x_star, seed), seed=derive(seed, "kgfn"))
            raw = self._raw_designs(x_star, seed, 32)  # a whole network is fantasised per point: a hundredfold of EIFN
            x, _ = maximise_over_designs(lambda X: acqf(X.unsqueeze(-2)), net, raw, restarts=2, max_iter=15)
        else:
            if len(X) < 2:
                raise InputError(f"{self.method} needs at least two complete designs in the data.")
            model, g = self._end_to_end(X, Y)
            if self.method == "ei":
                acqf = ExpectedImprovementFN(model, float(g.max()))
            else:
                acqf = PartialKnowledgeGradientFN(model, 0, discrete_set(model, x_star, seed))
            x = self._maximise(acqf, x_star, seed, log=True)
        if not bool(unseen(net, net.order[0], net.gather(net.order[0], x, torch.zeros(net.n_nodes, dtype=DTYPE))[None],
                           self._data[net.order[0]][0])[0]):  # fmt: skip
            # The maximiser was run before: a deterministic network answers nothing new there.
            rng = as_rng(derive(seed, "again"))
            x = net.snap(nearby(1, x, *net.box, rng))[0]
        self._plan = {"x": x.tolist(), "y": {}, "waiting": None}
        step = self._follow_plan()
        assert step is not None  # a fresh plan has a first node
        if not self._affordable(self._plan_cost(x)):
            self._plan = None
            raise self._exhausted(self._plan_cost(x))
        return step

    def _plan_cost(self, x: Tensor) -> float:
        """Cost of running every node at a design, parents at their predicted means."""
        net = self.network
        model = self.fitted_model()
        inner = InnerNodes({}, torch.ones(1, dtype=DTYPE))
        with torch.no_grad():
            Y = model.stack(model.propagate(x[None], inner))[0, 0]
        groups = [g for g in net.groups if any(k in net.relevant for k in g)]
        return sum(float(self.node_cost(g[0], net.gather(g[0], x, Y)[None])[0]) for g in groups)

    def run(
        self, evaluator: Callable[[int, Tensor], Any] | None = None, max_queries: int | None = None
    ) -> FunctionNetworkOptimizer:
        """Ask and tell until the budget is spent.

        Parameters
        ----------
        evaluator : callable, optional
            ``evaluator(node, z)`` gives the output (one per node of a group). Default: the network's functions.
        max_queries : int, optional
            Stop earlier.

        Returns
        -------
        FunctionNetworkOptimizer
            Itself.
        """
        call = evaluator or self.simulate
        count = 0
        while max_queries is None or count < max_queries:
            try:
                query = self._ask()
            except BudgetExhausted:
                break
            self.tell(query.node, query.z, call(query.node, query.z))
            count += 1
        self._recommend()
        return self

    def simulate(self, node: int, z: Tensor) -> Tensor:
        """Outputs of a node's group by the network's own functions."""
        if self.network.functions is None:
            raise InputError("This network has no functions; pass an evaluator.")
        return torch.stack([self.network.functions[k](z[None])[0] for k in self.network.group_of[node]])

    # --- what was done ---

    @property
    def history(self) -> Any:
        """One row per observation, as a DataFrame; recommendations where they were computed, carried forward."""
        import pandas as pd

        if self._rows:
            self._recommend()
        rows = []
        x, mean = None if self._first_x is None else self._first_x.tolist(), None
        sign = 1.0 if self.network.maximize else -1.0
        for i, row in enumerate(self._rows):
            x, mean = (row["x"], row["mean"]) if row["x"] is not None else (x, mean)
            entry = {
                "iteration": i,
                "node": self.network.node_names[row["node"]],
                "z": row["z"],
                "y": row["y"][0] if len(row["y"]) == 1 else row["y"],
                "cost": row["cost"],
                "cumulative_cost": row["cumulative_cost"],
                "x": x,
                "posterior_mean": sign * mean if mean is not None else math.nan,
            }
            rows.append(entry)
        columns = ["iteration", "node", "z", "y", "cost", "cumulative_cost", "x", "posterior_mean"]
        return pd.DataFrame(rows, columns=columns)

    # --- saving ---

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the next query, as plain JSON values (the network itself is not included)."""
        return {
            "version": 1, "method": self.method, "budget": self.budget, "seed": self.seed, "noise": self.noise,
            "upstream_required": self.upstream_required, "same_design": self.same_design,
            "min_gain_per_cost": self.min_gain_per_cost, "nodes": list(self.network.node_names),
            "columns": [self.network.columns(k) for k in range(self.network.n_nodes)],
            "variables": list(self.network.input_names),
            "data": [[Z.tolist(), y.tolist(), v.tolist()] for Z, y, v in self._data],
            "gps": [None if gp is None else gp.hyperparameters() for gp in self._gps], "dirty": sorted(self._dirty),
            # A node that waits for its fit starts from hyper-parameters found with fewer observations.
            "sizes": [0 if gp is None else gp.n for gp in self._gps],
            "spent": self._spent, "measured": {str(k): v for k, v in self._measured.items()},
            "pending": [dict(p) for p in self._pending], "plan": self._plan, "rows": [dict(r) for r in self._rows],
            "best_x": None if self._best_x is None else self._best_x.tolist(), "best_mean": self._best_mean,
            "first_x": None if self._first_x is None else self._first_x.tolist(), "recommended_at": self._recommended_at,
            "asks": self._asks, "low_gains": self._low_gains, "initial": [list(x) for x in self._initial],
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state.

        Parameters
        ----------
        state : mapping
            What `state_dict` gave, also after a round through JSON.

        Raises
        ------
        InputError
            The state belongs to another network, or is incomplete.
        """
        try:
            if list(state["nodes"]) != self.network.node_names:
                raise InputError(
                    f"The state is that of a network with nodes {state['nodes']}, not {self.network.node_names}."
                )
            # Data are kept by position: a variable that changed its place would be read as another.
            if "variables" in state and list(state["variables"]) != self.network.input_names:
                raise InputError(
                    f"The state has variables {', '.join(state['variables'])}, the network {', '.join(self.network.input_names)}."
                )
            for k, columns in enumerate(state.get("columns", [])):
                if list(columns) != self.network.columns(k):
                    raise InputError(
                        f"The state's node {self.network.node_names[k]} reads {', '.join(columns)}, "
                        f"the network's {', '.join(self.network.columns(k))}."
                    )
            if state["version"] != 1:
                raise InputError(f"The state has version {state['version']}; this release reads version 1.")
            data = []
            for k, (Z, y, v) in enumerate(state["data"]):
                tensor = torch.tensor(Z, dtype=DTYPE).reshape(len(y), self.network.input_dim(k))
                for z in tensor:
                    self._check_input(k, z)
                data.append((tensor, torch.tensor(y, dtype=DTYPE), torch.tensor(v, dtype=DTYPE)))
            gps: list[NodeGP | None] = []
            for (Z, y, v), saved, n in zip(data, state["gps"], state["sizes"], strict=True):
                extra = v[:n] if bool((v[:n] > 0).any()) else None
                gps.append(None if saved is None else NodeGP.from_hyperparameters(Z[:n], y[:n], extra, saved))
            best, first = state["best_x"], state["first_x"]
            new = {
                "method": state["method"], "budget": float(state["budget"]), "seed": int(state["seed"]), "noise": state["noise"],
                "upstream_required": bool(state["upstream_required"]), "same_design": bool(state["same_design"]),
                "min_gain_per_cost": float(state["min_gain_per_cost"]), "_data": data, "_gps": gps, "_dirty": set(state["dirty"]),
                "_spent": float(state["spent"]), "_measured": {int(k): list(v) for k, v in state["measured"].items()},
                "_pending": [dict(p) for p in state["pending"]], "_plan": None if state["plan"] is None else dict(state["plan"]),
                "_rows": [dict(r) for r in state["rows"]], "_best_x": None if best is None else torch.tensor(best, dtype=DTYPE),
                "_best_mean": state["best_mean"], "_first_x": None if first is None else torch.tensor(first, dtype=DTYPE),
                "_recommended_at": int(state["recommended_at"]), "_asks": int(state["asks"]),
                "_low_gains": int(state["low_gains"]),
                "_initial": [list(x) for x in state["initial"]],
            }  # fmt: skip
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
            raise InputError(f"The state is incomplete or damaged ({type(error).__name__}: {error}).") from error
        for name, value in new.items():
            setattr(self, name, value)


def _same(a: Sequence[float], b: Sequence[float]) -> bool:
    return len(a) == len(b) and all(abs(p - q) <= _MATCH * max(1.0, abs(p)) for p, q in zip(a, b))
