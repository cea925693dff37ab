"""Function networks: nodes in a directed acyclic graph, what each reads, what each costs, and what is maximised."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from assay._core.errors import InputError, require
from assay._core.files import open_text

from ._expression import Expression

DTYPE = torch.float64
Cost = float | Callable[[Tensor], Tensor]
# Slope of the sigmoid that stands for "within the limit", as a share of the node's observed range: BoTorch's own
# constrained acquisitions use 1e-3 of standardised outcomes, too steep for a gradient from a hundred samples.
_ETA = 0.02
_RESERVED = ("node", "value", "noise_var", "cost", "timestamp")  # columns of the table of evaluations


class FunctionNetwork:
    """A directed acyclic network of expensive functions that can be run one node at a time.

    Node :math:`k` sees :math:`z_k = (x_{I(k)}, y_{J(k)})`, its active decision variables first, then the outputs of its
    parents in the given order, and gives :math:`y_k = f_k(z_k)`. The decision :math:`x` lies in a box, and an objective
    :math:`g(y_0, \\ldots, y_{K-1})` of the outputs is maximised.

    Parameters
    ----------
    parent_nodes : list of list of int
        Parents of each node, in the order of the node's input columns. Nodes may come in any order.
    active_input_indices : list of list of int
        Decision variables that each node reads; may be empty where the node has parents.
    bounds : Tensor of shape (2, d)
        Lower and upper bounds of the decision variables.
    costs : list of float or callable
        Cost of one evaluation of each node, > 0; a callable maps inputs ``n x d_k`` to ``n`` costs.
    node_groups : list of list of int, optional
        Nodes with the same input that are always evaluated together, at the sum of their costs.
    parent_bounds : mapping of int to Tensor of shape (2, number of parents), optional
        Range of a node's parent inputs, used where these may be set freely.
    objective : str or callable, optional
        An arithmetic expression in node names, or a differentiable callable ``(... x K) -> (...)``. Default: the last
        node of the list.
    node_names, input_names : list of str, optional
        Default ``node0`` ..., ``x0`` ...
    functions : list of callable, optional
        The functions themselves, ``n x d_k -> n``, for simulation.
    maximize : bool, default True
        False minimises the objective; all reported values keep the objective's own sign.
    discrete : mapping of int to sequence of float, optional
        Allowed values of decision variables that are not continuous (integers are such a list).
    constraints : list of (int, str, float), optional
        ``(node, "<=" or ">=", limit)``: wanted ranges of node outputs. Values outside count as the worst that was seen.
    optimal_value : float, optional
        Known optimum of the objective, for simulations.

    Examples
    --------
    >>> net = FunctionNetwork([[], [0]], [[0, 1], []], torch.tensor([[0.0, 0.0], [1.0, 1.0]]), costs=[1.0, 49.0])
    >>> net.order, net.input_dim(1), net.columns(1)
    ([0, 1], 1, ['node0'])
    """

    def __init__(
        self,
        parent_nodes: Sequence[Sequence[int]],
        active_input_indices: Sequence[Sequence[int]],
        bounds: Tensor,
        costs: Sequence[Cost],
        node_groups: Sequence[Sequence[int]] | None = None,
        parent_bounds: Mapping[int, Any] | None = None,
        objective: str | Callable[[Tensor], Tensor] | None = None,
        node_names: Sequence[str] | None = None,
        functions: Sequence[Callable[[Tensor], Tensor]] | None = None,
        *,
        input_names: Sequence[str] | None = None,
        maximize: bool = True,
        discrete: Mapping[int, Sequence[float]] | None = None,
        constraints: Sequence[tuple[int, str, float]] = (),
        optimal_value: float | None = None,
    ) -> None:
        self.parents = [[int(p) for p in row] for row in parent_nodes]
        self.active = [[int(i) for i in row] for row in active_input_indices]
        K = len(self.parents)
        if K == 0:
            raise InputError("A network needs at least one node.")
        if len(self.active) != K:
            raise InputError(f"active_input_indices has {len(self.active)} entries for {K} nodes; give one per node.")
        self.bounds = torch.as_tensor(bounds, dtype=DTYPE).detach().clone()
        if self.bounds.ndim != 2 or self.bounds.shape[0] != 2 or self.bounds.shape[1] == 0:
            raise InputError(f"bounds must have shape 2 x d with d >= 1, got {tuple(self.bounds.shape)}.")
        if not torch.isfinite(self.bounds).all() or not (self.bounds[0] < self.bounds[1]).all():
            raise InputError("bounds: every lower bound must be finite and below its upper bound.")
        self.d, self.n_nodes = self.bounds.shape[1], K
        self.node_names = self._names(node_names, K, "node_names", "node")
        self.input_names = self._names(input_names, self.d, "input_names", "x")
        self._check_graph()
        self.order = self._topological_order()
        self.children = [[k for k in range(K) if j in self.parents[k]] for j in range(K)]
        self.costs = self._check_costs(costs)
        self.groups = self._check_groups(node_groups)
        self.group_of = {k: group for group in self.groups for k in group}
        self.parent_bounds = self._check_parent_bounds(parent_bounds or {})
        self.discrete = {int(i): sorted(float(v) for v in values) for i, values in (discrete or {}).items()}
        for i, values in self.discrete.items():
            if not 0 <= i < self.d or not values:
                raise InputError(f"discrete: input {i} needs at least one value and an index below {self.d}.")
            if values[0] < self.bounds[0, i] or values[-1] > self.bounds[1, i]:
                raise InputError(f"discrete values of {self.input_names[i]} lie outside its bounds.")
        if functions is not None and len(functions) != K:
            raise InputError(f"functions has {len(functions)} entries for {K} nodes; give one per node.")
        self.functions = None if functions is None else list(functions)
        self.maximize = bool(maximize)
        self.optimal_value = optimal_value
        self.upstream_required = True
        self.constraints = self._check_constraints(constraints)
        self._set_objective(objective)

    # --- checks ---

    @staticmethod
    def _names(names: Sequence[str] | None, n: int, what: str, stem: str) -> list[str]:
        found = [f"{stem}{i}" for i in range(n)] if names is None else [str(name) for name in names]
        if len(found) != n or len(set(found)) != n:
            raise InputError(f"{what} must be {n} different names, got {found}.")
        return found

    def _check_graph(self) -> None:
        for k, (parents, active) in enumerate(zip(self.parents, self.active, strict=True)):
            name = self.node_names[k]
            for p in parents:
                if not 0 <= p < self.n_nodes:
                    raise InputError(f"Node {name}: parent {p} is out of range, there are {self.n_nodes} nodes.")
            for i in active:
                if not 0 <= i < self.d:
                    raise InputError(f"Node {name}: active input {i} is out of range, there are {self.d} inputs.")
            if len(set(parents)) != len(parents) or len(set(active)) != len(active):
                raise InputError(f"Node {name} lists an input or a parent twice.")
            if not parents and not active:
                raise InputError(f"Node {name} has neither inputs nor parents: it is a constant.")

    def _topological_order(self) -> list[int]:
        left, order = list(range(self.n_nodes)), []
        while left:
            ready = [k for k in left if all(p in order for p in self.parents[k])]
            if not ready:
                cycle = ", ".join(self.node_names[k] for k in left)
                raise InputError(f"The network has a cycle through {cycle}; remove one of the parents.")
            order.append(ready[0])
            left.remove(ready[0])
        return order

    def _check_costs(self, costs: Sequence[Cost]) -> list[Cost]:
        if len(costs) != self.n_nodes:
            raise InputError(f"costs has {len(costs)} entries for {self.n_nodes} nodes; give one per node.")
        checked: list[Cost] = []
        for name, cost in zip(self.node_names, costs, strict=True):
            if callable(cost):
                checked.append(cost)
                continue
            if not (math.isfinite(float(cost)) and float(cost) > 0):
                raise InputError(f"Node {name}: the cost must be a number > 0, got {cost}.")
            checked.append(float(cost))
        return checked

    def _check_groups(self, groups: Sequence[Sequence[int]] | None) -> list[tuple[int, ...]]:
        found = [tuple(int(k) for k in group) for group in groups or [] if len(group)]
        flat = [k for group in found for k in group]
        if len(set(flat)) != len(flat) or any(not 0 <= k < self.n_nodes for k in flat):
            raise InputError("node_groups: every node may be in one group, by its index.")
        for group in found:
            for k in group[1:]:
                if self.active[k] != self.active[group[0]] or self.parents[k] != self.parents[group[0]]:
                    first, other = self.node_names[group[0]], self.node_names[k]
                    raise InputError(f"Nodes {first} and {other} are one group but do not read the same inputs.")
        found += [(k,) for k in range(self.n_nodes) if k not in flat]
        return sorted(found, key=lambda group: min(self.order.index(k) for k in group))

    def _check_parent_bounds(self, given: Mapping[int, Any]) -> dict[int, Tensor]:
        out = {}
        for k, value in given.items():
            if not 0 <= int(k) < self.n_nodes:
                raise InputError(f"parent_bounds: there is no node {k}.")
            box = torch.as_tensor(value, dtype=DTYPE)
            if box.shape != (2, len(self.parents[int(k)])) or not (box[0] < box[1]).all():
                raise InputError(
                    f"Node {self.node_names[int(k)]}: parent_bounds must be 2 x {len(self.parents[int(k)])}, "
                    "lower below upper."
                )
            out[int(k)] = box
        return out

    def _check_constraints(self, constraints: Sequence[tuple[int, str, float]]) -> list[tuple[int, int, float]]:
        out = []
        for node, sense, limit in constraints:
            if not 0 <= int(node) < self.n_nodes or sense not in ("<=", ">=") or not math.isfinite(float(limit)):
                raise InputError(f"constraints: ({node}, {sense!r}, {limit}) is not (node, '<=' or '>=', number).")
            out.append((int(node), 1 if sense == "<=" else -1, float(limit)))
        return out

    def _set_objective(self, objective: str | Callable[[Tensor], Tensor] | None) -> None:
        every = set(range(self.n_nodes))
        if objective is None:
            objective = self.node_names[-1]
        self.objective_text: str | None = None
        if isinstance(objective, str):
            if objective in self.node_names:  # a name may hold spaces or hyphens, which an expression may not
                last = self.node_names.index(objective)
                names, bent = {objective}, set()
                self._objective = lambda Y: Y[..., last]
            else:
                expression = Expression(objective, self.node_names)
                names, bent = set(expression.names), set(expression.not_affine)
                if not names:
                    raise InputError(f"objective {objective!r} reads no node.")
                index = {name: k for k, name in enumerate(self.node_names)}
                self._objective = lambda Y: expression({name: Y[..., index[name]] for name in names})
            self.objective_text = objective
            self.objective_nodes = {self.node_names.index(name) for name in names}
            not_affine = {self.node_names.index(name) for name in bent}
        else:
            probe = objective(torch.zeros(3, 2, self.n_nodes, dtype=DTYPE))
            if not isinstance(probe, Tensor) or probe.shape != (3, 2):
                shape = tuple(probe.shape) if isinstance(probe, Tensor) else type(probe).__name__
                raise InputError(f"objective must map (... x {self.n_nodes}) to (...), it gave {shape} for 3 x 2.")
            self._objective = objective
            self.objective_nodes, not_affine = every, every
        if self.constraints:
            bound = {k for k, _, _ in self.constraints}
            self.objective_nodes |= bound
            # With a factor "feasible", the utility is affine in a node only if the node enters the objective alone.
            not_affine |= bound
        # Nodes whose output must be sampled: those that others read, and those in which g is not affine.
        relevant = set(self.objective_nodes)
        for k in reversed(self.order):
            if k in relevant:
                relevant |= set(self.parents[k])
        self.relevant = relevant
        self.sampled = [
            k for k in self.order
            if k in relevant and (any(c in relevant for c in self.children[k]) or k in not_affine)
        ]  # fmt: skip

    # --- what nodes read, cost and give ---

    @property
    def box(self) -> tuple[Tensor, Tensor]:
        """Lower and upper bounds of the decision variables."""
        return self.bounds[0], self.bounds[1]

    def columns(self, node: int) -> list[str]:
        """Names of a node's input columns."""
        return [self.input_names[i] for i in self.active[node]] + [self.node_names[p] for p in self.parents[node]]

    def input_dim(self, node: int) -> int:
        """Number of a node's inputs."""
        return len(self.active[node]) + len(self.parents[node])

    def cost(self, node: int, Z: Tensor) -> Tensor:
        """Cost of a node at inputs ``n x d_k``: a tensor of n costs."""
        cost = self.costs[node]
        if not callable(cost):
            return torch.full(Z.shape[:-1], cost, dtype=DTYPE)
        value = torch.as_tensor(cost(Z), dtype=DTYPE).expand(Z.shape[:-1])
        if not bool(torch.isfinite(value).all() and (value > 0).all()):
            raise InputError(f"Node {self.node_names[node]}: its cost function gave a value that is not > 0.")
        return value

    def group_cost(self, node: int, Z: Tensor) -> Tensor:
        """Cost of evaluating the node's whole group at inputs ``n x d_k``."""
        return sum((self.cost(k, Z) for k in self.group_of[node]), torch.zeros(Z.shape[:-1], dtype=DTYPE))

    def total_cost(self, Z: Sequence[Tensor]) -> Tensor:
        """Cost of evaluating every node once; `Z` holds one tensor ``n x d_k`` per node."""
        return sum((self.cost(k, Z[k]) for k in range(self.n_nodes)), torch.zeros((), dtype=DTYPE))

    def gather(self, node: int, X: Tensor, Y: Tensor) -> Tensor:
        """Inputs of a node: decision variables of `X` (... x d) and parent outputs of `Y` (... x K)."""
        return torch.cat([X[..., self.active[node]], Y[..., self.parents[node]]], dim=-1)

    def evaluate(self, X: Tensor) -> Tensor:
        """Run the whole network at designs ``n x d``: outputs ``n x K``. Needs `functions`."""
        if self.functions is None:
            raise InputError("This network has no functions; pass functions= to evaluate it.")
        X = torch.as_tensor(X, dtype=DTYPE)
        Y = torch.zeros(*X.shape[:-1], self.n_nodes, dtype=DTYPE)
        for k in self.order:
            value = torch.as_tensor(self.functions[k](self.gather(k, X, Y)), dtype=DTYPE)
            if value.shape != X.shape[:-1]:
                raise InputError(
                    f"The function of node {self.node_names[k]} gave shape {tuple(value.shape)}, not {tuple(X.shape[:-1])}."
                )
            Y = torch.cat([Y[..., :k], value.unsqueeze(-1), Y[..., k + 1 :]], dim=-1)
        return Y

    def objective(self, Y: Tensor) -> Tensor:
        """Objective of node outputs (... x K), in its own sign."""
        return cast(Tensor, self._objective(Y))

    def utility(self, Y: Tensor, worst: float | None = None, spread: Tensor | None = None) -> Tensor:
        """What is maximised: the objective, its sign turned for minimisation, outputs outside a limit at the worst."""
        value = self.objective(Y) if self.maximize else -self.objective(Y)
        if self.constraints and worst is not None:
            feasible = torch.ones_like(value)
            for node, sign, limit in self.constraints:
                scale = _ETA * (float(spread[node]) if spread is not None else 1.0)
                feasible = feasible * torch.sigmoid(sign * (limit - Y[..., node]) / max(scale, 1e-12))
            value = worst + (value - worst) * feasible
        return value

    def feasible(self, Y: Tensor) -> Tensor:
        """Whether node outputs (... x K) keep every constraint."""
        ok = torch.ones(Y.shape[:-1], dtype=torch.bool)
        for node, sign, limit in self.constraints:
            ok &= sign * (limit - Y[..., node]) >= 0
        return ok

    def snap(self, X: Tensor) -> Tensor:
        """Designs with discrete variables moved to their nearest allowed value."""
        X = X.clone()
        for i, values in self.discrete.items():
            grid = torch.tensor(values, dtype=DTYPE)
            X[..., i] = grid[(X[..., i].unsqueeze(-1) - grid).abs().argmin(-1)]
        return X

    def descendants(self, node: int) -> set[int]:
        """Nodes that read the node's output, directly or through others."""
        found: set[int] = set()
        for k in self.order:
            if any(p == node or p in found for p in self.parents[k]):
                found.add(k)
        return found

    # --- reading ---

    @classmethod
    def from_yaml(cls, source: str | Path) -> FunctionNetwork:
        """Read a network from a YAML or TOML file, or from YAML text.

        Parameters
        ----------
        source : path or str
            A file, or the text itself (any string with a line break).

        Returns
        -------
        FunctionNetwork
            With the names of the file.

        Raises
        ------
        InputError
            Names the file, and the node or variable that is wrong.
        """
        is_text = isinstance(source, str) and "\n" in source
        where = "network" if is_text else str(source)
        text = cast(str, source) if is_text else open_text(cast(Path, source)).read()
        if not is_text and str(source).lower().endswith(".toml"):
            try:
                data: Any = tomllib.loads(text)
            except tomllib.TOMLDecodeError as error:
                raise InputError(f"{where} is not valid TOML ({error}).") from error
        else:
            yaml = require("yaml", "decisions")
            try:
                data = yaml.safe_load(text)
            except yaml.YAMLError as error:
                mark = getattr(error, "problem_mark", None)
                line = f", line {mark.line + 1}" if mark is not None else ""
                problem = getattr(error, "problem", None) or "damaged"
                raise InputError(f"{where}{line}: not valid YAML ({problem}).") from error
        try:
            return cls._from_mapping(data)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error

    @classmethod
    def _from_mapping(cls, data: Any) -> FunctionNetwork:
        if not isinstance(data, dict):
            raise InputError("a network is a mapping with variables, nodes and objective.")
        known = {"variables", "nodes", "objective", "maximize", "minimize", "constraints", "upstream_required"}
        for key in data:
            if key not in known:
                raise InputError(f"the key {key!r} is not known; use {', '.join(sorted(known))}.")
        for key in ("maximize", "minimize", "upstream_required"):
            _switch(data, key, f"the key {key}")
        if data.get("objective") is not None and not isinstance(data["objective"], str):
            raise InputError(
                f"objective must be a node or an expression such as 0.7*a - b, it is {data['objective']!r}."
            )
        limits = data.get("constraints") or []
        if not isinstance(limits, list):
            raise InputError(f"constraints must be a list such as ['a <= 2.5'], it is {limits!r}.")
        names, low, high, discrete = _read_variables(data.get("variables"))
        nodes = data.get("nodes")
        if not isinstance(nodes, list) or not nodes:
            raise InputError("nodes must be a list of at least one {name, inputs, parents, cost}.")
        node_names = []
        for number, node in enumerate(nodes, 1):
            if not isinstance(node, dict) or not isinstance(node.get("name"), str):
                raise InputError(f"node number {number} needs a name.")
            for key in node:
                if key not in ("name", "inputs", "parents", "cost", "parent_bounds", "group"):
                    raise InputError(f"node {node['name']}: the key {key!r} is not known.")
            if node["name"] in names or node["name"] in node_names:
                raise InputError(f"the name {node['name']!r} is used twice.")
            if node["name"] in _RESERVED:
                raise InputError(
                    f"a node cannot be named {node['name']!r}: the table of evaluations has such a column."
                )
            node_names.append(node["name"])
        parents, active, costs, boxes = [], [], [], {}
        groups: dict[str, list[int]] = {}
        for k, node in enumerate(nodes):
            name = node["name"]
            inputs, above = node.get("inputs") or [], node.get("parents") or []
            for what, listed, allowed in (("input", inputs, names), ("parent", above, node_names)):
                if not isinstance(listed, list):
                    raise InputError(f"node {name}: {what}s must be a list.")
                for item in listed:
                    if item not in allowed:
                        raise InputError(f"node {name}: there is no {what} {item!r}; known are {', '.join(allowed)}.")
            active.append([names.index(i) for i in inputs])
            parents.append([node_names.index(p) for p in above])
            costs.append(_read_cost(name, node.get("cost", 1), [*inputs, *above]))
            if node.get("parent_bounds") is not None:
                boxes[k] = _read_parent_bounds(name, node["parent_bounds"], above)
            if node.get("group") is not None:
                groups.setdefault(str(node["group"]), []).append(k)
        if "minimize" in data and "maximize" in data:
            raise InputError("give either maximize or minimize.")
        maximize = bool(data.get("maximize", not data.get("minimize", False)))
        network = cls(
            parents, active, torch.tensor([low, high], dtype=DTYPE), costs,
            node_groups=list(groups.values()) or None, parent_bounds=boxes, objective=data.get("objective"),
            node_names=node_names, input_names=names, maximize=maximize, discrete=discrete,
            constraints=[_read_constraint(text, node_names) for text in limits],
        )  # fmt: skip
        network.upstream_required = bool(data.get("upstream_required", True))
        return network

    @classmethod
    def from_networkx(cls, graph: Any) -> FunctionNetwork:
        """Read a network from a ``networkx.DiGraph``.

        Parameters
        ----------
        graph : networkx.DiGraph
            ``graph.graph["variables"]``: mapping of name to (low, high). Every node may carry ``inputs`` (names),
            ``cost``, ``group`` and ``function``; edges run from parent to child, in the order in which they were added.

        Returns
        -------
        FunctionNetwork
            Node names are ``str(node)``.
        """
        data = {
            "variables": dict(graph.graph.get("variables", {})),
            "objective": graph.graph.get("objective"),
            "nodes": [],
        }
        for node, given in graph.nodes(data=True):
            entry = {"name": str(node), "inputs": list(given.get("inputs", [])), "cost": given.get("cost", 1)}
            entry["parents"] = [str(p) for p in graph.predecessors(node)]
            if given.get("group") is not None:
                entry["group"] = given["group"]
            data["nodes"].append(entry)
        network = cls._from_mapping(data)
        functions = [given.get("function") for _, given in graph.nodes(data=True)]
        if all(callable(f) for f in functions):
            network.functions = functions
        return network


def _switch(data: Mapping[str, Any], key: str, what: str) -> None:
    """A quoted 'no' is a text, and a text counts as true: ask for a truth value."""
    if key in data and not isinstance(data[key], bool):
        raise InputError(f"{what} must be true or false, it is {data[key]!r}.")


def _read_variables(given: Any) -> tuple[list[str], list[float], list[float], dict[int, list[float]]]:
    if not isinstance(given, dict) or not given:
        raise InputError("variables must be a mapping such as {T: [20, 90], n: {range: [1, 8], integer: true}}.")
    names, low, high, discrete = [], [], [], {}
    for i, (name, value) in enumerate(given.items()):
        name = str(name)
        if name in names:
            raise InputError(f"the variable {name!r} is given twice.")
        names.append(name)
        if name in _RESERVED:
            raise InputError(f"a variable cannot be named {name!r}: the table of evaluations has such a column.")
        integer, values = False, None
        if isinstance(value, dict):
            for key in value:
                if key not in ("range", "integer", "values"):
                    raise InputError(f"variable {name}: the key {key!r} is not known; use range, integer or values.")
            _switch(value, "integer", f"variable {name}: integer")
            integer, values, value = bool(value.get("integer")), value.get("values"), value.get("range")
        try:
            if values is not None:
                numbers = sorted(float(v) for v in values)
                value = [numbers[0], numbers[-1]]
                discrete[i] = numbers
            a, b = (float(v) for v in value)
        except (TypeError, ValueError, IndexError) as error:
            raise InputError(
                f"variable {name}: give [low, high], {{range: [low, high]}} or {{values: [...]}}."
            ) from error
        if not (math.isfinite(a) and math.isfinite(b) and a < b):
            raise InputError(f"variable {name}: {a:g} must be below {b:g}.")
        if integer:
            discrete[i] = [float(v) for v in range(math.ceil(a), math.floor(b) + 1)]
            if not discrete[i] or len(discrete[i]) > 100_000:
                raise InputError(f"variable {name}: there are {len(discrete[i])} whole numbers in its range.")
        low.append(a)
        high.append(b)
    return names, low, high, discrete


def _read_cost(name: str, value: Any, columns: list[str]) -> Cost:
    if isinstance(value, str):
        expression = Expression(value, columns, f"node {name}: cost")
        return lambda Z: torch.as_tensor(expression({c: Z[..., i] for i, c in enumerate(columns)}), dtype=DTYPE)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"node {name}: the cost must be a number > 0 or an expression in its inputs, got {value!r}.")
    return float(value)


def _read_parent_bounds(name: str, given: Any, parents: list[str]) -> np.ndarray:
    try:
        pairs = [given[p] for p in parents]
        box = np.array([[float(a) for a, _ in pairs], [float(b) for _, b in pairs]])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"node {name}: parent_bounds needs {{parent: [low, high]}} for {', '.join(parents)}."
        ) from error
    return box


def _read_constraint(text: Any, names: list[str]) -> tuple[int, str, float]:
    for sense in ("<=", ">="):
        if isinstance(text, str) and text.count(sense) == 1:
            name, limit = (part.strip() for part in text.split(sense))
            if name not in names:
                raise InputError(f"constraint {text!r}: there is no node {name!r}; known are {', '.join(names)}.")
            try:
                return names.index(name), sense, float(limit)
            except ValueError as error:
                raise InputError(f"constraint {text!r}: {limit!r} is not a number.") from error
    raise InputError(f"constraint {text!r} must read 'node <= number' or 'node >= number'.")
