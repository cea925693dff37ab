"""What `assay pkgfn VERB` does with a user's files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from assay._core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from assay._core.run import Run

    from ._network import FunctionNetwork
    from ._optimizer import FunctionNetworkOptimizer

Method = Literal["pkgfn", "fast_pkgfn", "eifn", "kgfn", "tsfn", "ei", "kg", "random"]
Noise = Literal["fixed", "infer"]
Problem = Literal["ackley_sine", "ackley_matyas", "freesolv3", "manufacturing", "pharma", "gp_network1", "gp_network2"]

_CLASSES = {
    "ackley_sine": "AckleySine",
    "ackley_matyas": "AckleyMatyas",
    "freesolv3": "FreeSolv3",
    "manufacturing": "Manufacturing",
    "pharma": "Pharma",
    "gp_network1": "GPNetwork1",
    "gp_network2": "GPNetwork2",
}


def ask(
    network: Path,
    data: Path | None = None,
    *,
    budget_left: float,
    state: Path | None = None,
    q: int = 1,
    noise: Noise = "fixed",
    free: bool = False,
    same_design: bool = False,
    min_gain_per_cost: float = 0.0,
    run: Run,
) -> None:
    """Propose which node to run next, and at which input.

    Writes artefacts/next.json: the query, its expected gain and cost, the best gain per cost of every node ("why this
    query"), and the design that would be recommended now.

    Parameters
    ----------
    network
        YAML or TOML file of the network.
    data
        Table of node evaluations so far (CSV); may be left out once --state holds them.
    budget_left
        Budget that may still be spent.
    state
        JSON file that remembers observations, pending queries and fits between calls; made if absent.
    q
        Number of queries for parallel evaluation.
    noise
        infer: nodes are noisy; fixed: the same input gives the same output.
    free
        Parent outputs may be set to any value, not only to observed ones.
    same_design
        Combine only parent outputs whose shared decision variables agree.
    min_gain_per_cost
        Advise to stop when the best expected gain per cost stays below this.
    """
    from ._network import FunctionNetwork
    from ._optimizer import BudgetExhausted, FunctionNetworkOptimizer

    net = FunctionNetwork.from_yaml(network)
    if q < 1:
        raise InputError(f"--q must be at least 1, got {q}.")
    _positive("--budget-left", budget_left)
    if data is None and state is None:
        raise InputError("ask needs the evaluations so far: give a table, or --state FILE.")
    options: dict[str, Any] = {"noise": noise, "same_design": same_design, "min_gain_per_cost": min_gain_per_cost}
    options["upstream_required"] = False if free else net.upstream_required
    if state is not None and state.exists():
        if data is not None:
            raise InputError(f"{state} already holds observations; leave the table out, or choose another --state.")
        opt = FunctionNetworkOptimizer(net, seed=run.seed, **options)
        _load_state(opt, state)
        opt.min_gain_per_cost = min_gain_per_cost or opt.min_gain_per_cost
    elif data is None:
        opt = FunctionNetworkOptimizer(net, seed=run.seed, budget=budget_left, **options)
    else:
        opt = _from_table(run, net, data, options)
    opt.budget = opt._spent + budget_left
    run.title = "Next evaluation of a function network"
    try:
        with _noted(run):
            found = opt.ask(q)
    except BudgetExhausted as error:
        run.warn(str(error))
        found = []
    queries = found if isinstance(found, list) else [found]
    if state is not None:
        from assay._core.files import write_json

        write_json(state, opt.state_dict())
    _report_next(run, net, opt, queries)


def tell(
    network: Path,
    state: Path,
    *,
    value: float,
    node: str | None = None,
    inputs: str | None = None,
    query: int = 1,
    cost: float | None = None,
    noise_var: float = 0.0,
    run: Run,
) -> None:
    """Add the outcome of a query to the state file.

    Parameters
    ----------
    network
        YAML or TOML file of the network.
    state
        The JSON file that `ask --state` keeps.
    value
        Output of the node.
    node
        Node that was run; without it the pending query is answered.
    inputs
        Its inputs as NAME=VALUE,NAME=VALUE where it was not a pending query.
    query
        Number of the pending query (1 is the oldest).
    cost
        What the evaluation did cost; replaces the declared cost from now on (running mean).
    noise_var
        Known variance of the value.
    """
    from assay._core.files import write_json

    from ._network import FunctionNetwork
    from ._optimizer import FunctionNetworkOptimizer

    net = FunctionNetwork.from_yaml(network)
    opt = FunctionNetworkOptimizer(net, seed=run.seed)
    _load_state(opt, state)
    if node is None:
        if not 1 <= query <= len(opt._pending):
            raise InputError(
                f"{state} holds {len(opt._pending)} pending queries; --query {query} is none of them, give --node."
            )
        pending = opt._pending[query - 1]
        k, z = pending["node"], list(pending["z"])
    else:
        if node not in net.node_names:
            raise InputError(f"--node: there is no node {node!r}; nodes are {', '.join(net.node_names)}.")
        k = net.node_names.index(node)
        z = _read_inputs(net, k, inputs, opt)
    if len(net.group_of[k]) > 1:
        raise InputError(
            f"Node {net.node_names[k]} belongs to a group: add its rows to the table and use ask with the table."
        )
    with _noted(run):
        opt.tell(k, z, value, cost=cost, noise_var=noise_var)
    write_json(state, opt.state_dict())
    run.title = "Observation of a function network"
    run.result(node=net.node_names[k], value=value, observations=sum(len(y) for _, y in opt.observations.values()))
    _table_of_observations(run, net, opt)


def optimize(
    network: Path,
    *,
    budget: float,
    functions: str | None = None,
    evaluator: str | None = None,
    timeout: float = 3600.0,
    data: Path | None = None,
    method: Method = "pkgfn",
    noise: Noise = "fixed",
    free: bool = False,
    n_initial: int | None = None,
    same_design: bool = False,
    min_gain_per_cost: float = 0.0,
    run: Run,
) -> None:
    """Optimise a network whose nodes can be run from here, within a budget.

    Every answer is kept at once: an evaluator that fails, hangs or prints no number ends the run with one sentence, and
    --resume goes on.

    Parameters
    ----------
    network
        YAML or TOML file of the network.
    budget
        Total cost that may be spent.
    functions
        Python file or module with a callable per node, which gets the node's inputs by name.
    evaluator
        Command that evaluates a node: {node} and {NAME} in it are replaced; without them it gets JSON on its input. Its
        last line of output is the value.
    timeout
        Seconds after which the command is stopped.
    data
        Table of earlier evaluations, free of charge; without it Sobol designs come first.
    method
        pkgfn, or a method to compare with.
    noise
        infer: nodes are noisy; fixed: the same input gives the same output.
    free
        Parent outputs may be set to any value, not only to observed ones.
    n_initial
        Number of first designs; default 2 (number of variables + 1).
    same_design
        Combine only parent outputs whose shared decision variables agree.
    min_gain_per_cost
        Stop when the best expected gain per cost stays below this three times in a row.
    """
    from ._files import command_evaluator, load_functions
    from ._network import FunctionNetwork
    from ._optimizer import FunctionNetworkOptimizer

    net = FunctionNetwork.from_yaml(network)
    _positive("--budget", budget)
    if (functions is None) == (evaluator is None):
        raise InputError("optimize needs one way to run a node: --functions MODULE or --evaluator COMMAND.")
    if functions is not None:
        call: Callable[[int, Tensor], Any] = load_functions(functions, net)
    else:
        call = command_evaluator(str(evaluator), net, timeout)
    options: dict[str, Any] = {"noise": noise, "same_design": same_design, "min_gain_per_cost": min_gain_per_cost}
    options["upstream_required"] = False if free else net.upstream_required
    options |= {"method": method, "budget": budget}
    if data is not None:
        opt = _from_table(run, net, data, options)
    else:
        opt = FunctionNetworkOptimizer(net, seed=run.seed, n_initial=n_initial, **options)
    _drive(run, net, opt, call)
    run.title = "Optimisation of a function network"
    run.subtitle = f"{method}, budget {budget:g}"
    _report_run(run, net, {method: [opt]}, None)


def evaluate(
    problem: Problem,
    *,
    methods: str = "pkgfn,eifn,tsfn,ei,random",
    seeds: int = 10,
    budget: float | None = None,
    full_budget: float | None = None,
    n_initial: int | None = None,
    costs: str | None = None,
    free: bool = False,
    noise: Noise = "fixed",
    run: Run,
) -> None:
    """Compare methods on a simulated network whose truth is known, from the same initial designs.

    Parameters
    ----------
    problem
        The network.
    methods
        Comma-separated: pkgfn, fast_pkgfn (needs --free), eifn, kgfn, tsfn, ei, kg, random.
    seeds
        Number of repetitions.
    budget
        Budget of every method; default five evaluations of the whole network.
    full_budget
        Another budget for the methods that evaluate the whole network.
    n_initial
        Initial designs, free of charge; default 2 d + 1.
    costs
        Comma-separated costs of the nodes.
    free
        Parent outputs may be set to any value.
    noise
        infer: noise variances are inferred; fixed: nodes are deterministic.
    """
    import time

    import pandas as pd

    from . import problems
    from ._optimizer import PARTIAL

    chosen = [m.strip() for m in methods.split(",") if m.strip()]
    allowed = list(get_args(Method))
    for m in chosen:
        if m not in allowed:
            raise InputError(f"--methods: there is no {m!r}; use {', '.join(allowed)}.")
    if not chosen or seeds < 1:
        raise InputError("evaluate needs at least one method and one seed.")
    if "fast_pkgfn" in chosen and not free:
        raise InputError("--methods fast_pkgfn sets parent values freely: add --free.")
    kind = getattr(problems, _CLASSES[problem])
    if costs is not None:
        try:
            net = kind(costs=tuple(float(c) for c in costs.split(",")))
        except ValueError as error:
            raise InputError(f"--costs {costs!r}: {error}") from error
    else:
        net = kind()
    whole = sum(float(c) for c in net.costs)
    limit = budget if budget is not None else 5 * whole
    _positive("--budget", limit)
    runs: dict[str, list[FunctionNetworkOptimizer]] = {m: [] for m in chosen}
    timing = []
    jobs = [(s, m) for s in range(seeds) for m in chosen]
    for s, m in run.progress(jobs, desc="runs"):
        opt = start_problem(
            net, m, limit if m in PARTIAL or full_budget is None else full_budget, run.seed + s, n_initial, free, noise
        )
        began = time.process_time()
        opt.run()
        spent = time.process_time() - began
        queries = len(opt._rows)
        timing.append(
            {
                "method": m,
                "seed": run.seed + s,
                "queries": queries,
                "cpu_seconds": spent,
                "per_query": spent / max(queries, 1),
            }
        )
        runs[m].append(opt)
        x, _, _ = opt.recommend()
        run.metric(len(timing), **{m: float(net.objective(net.evaluate(x[None]))[0])})
    run.title = f"Methods on {_CLASSES[problem]}"
    run.subtitle = f"{seeds} seeds, costs {', '.join(f'{c:g}' for c in net.costs)}"
    _report_run(run, net, runs, net)
    run.table(
        "runtime", pd.DataFrame(timing), caption="CPU seconds of each run, all of it the method's own work.", rows=10
    )


def demo(*, run: Run) -> None:
    """Find a soluble molecule in FreeSolv: cheap calculations, dear experiments."""
    from assay._core.smoke import pick

    from . import problems

    net = problems.FreeSolv3()
    runs = {}
    for method in ("pkgfn", "eifn"):
        opt = start_problem(net, method, pick(150.0, 52.0), run.seed, 7, False, "fixed")
        runs[method] = [opt]
        _drive(run, net, opt, opt.simulate, name=method)
    run.title = "p-KGFN on FreeSolv: calculate cheaply, measure rarely"
    run.subtitle = (
        "642 molecules; a calculation costs 1, an experiment 49; hydration free energy is maximised (kcal/mol)"
    )
    _report_run(run, net, runs, net, value_label="hydration free energy at\nthe recommendation (kcal/mol)")


# --- pieces ---


def start_problem(
    net: FunctionNetwork, method: str, budget: float, seed: int, n_initial: int | None, free: bool, noise: str
) -> FunctionNetworkOptimizer:
    """An optimiser of a simulated network with its free initial designs, equal for all methods of a seed."""
    from assay._core.seeds import derive

    from ._optimizer import FunctionNetworkOptimizer
    from ._search import sobol

    count = n_initial if n_initial is not None else 2 * net.d + 1
    X = net.snap(sobol(count, *net.box, derive(seed, "designs")))
    Y = net.evaluate(X)
    data = {k: (net.gather(k, X, Y), Y[:, k]) for k in range(net.n_nodes)}
    return FunctionNetworkOptimizer(net, method, budget, seed, not free, noise, data)  # type: ignore[arg-type]


def _positive(name: str, value: float) -> None:
    if not value > 0 or value == float("inf"):
        raise InputError(f"{name} must be a number > 0, got {value}.")


def _noted(run: Run) -> Any:
    """A context in which the method's own warnings become notes of the run."""
    from contextlib import contextmanager

    @contextmanager
    def context() -> Any:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for item in caught:
            if issubclass(item.category, UserWarning):
                run.warn(str(item.message))

    return context()


def _load_state(opt: FunctionNetworkOptimizer, path: Path) -> None:
    from assay._core.files import read_json

    saved = read_json(path)
    if not isinstance(saved, dict):
        raise InputError(f"{path} is not a state file of this method.")
    try:
        opt.load_state_dict({k: (float("inf") if v == "inf" else v) for k, v in saved.items()})
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _from_table(run: Run, net: FunctionNetwork, path: Path, options: dict[str, Any]) -> FunctionNetworkOptimizer:
    import torch

    from ._files import read_observations
    from ._optimizer import FunctionNetworkOptimizer

    rows = read_observations(path, net)
    opt = FunctionNetworkOptimizer(net, seed=run.seed, n_initial=1, **options)
    opt._initial = []
    budget = opt.budget
    with _noted(run):
        for row in rows:
            k = row["node"]
            z = torch.tensor(row["z"], dtype=torch.float64)
            y = torch.tensor([row["y"]], dtype=torch.float64)
            try:
                opt._check_input(k, z)
                opt._append(k, z[None], y, torch.tensor([row["noise_var"]], dtype=torch.float64))
            except InputError as error:
                raise InputError(f"{path}, row {row['row']}: {error}") from error
            if row["cost"] is not None:
                opt._measured.setdefault(k, []).append(row["cost"])
    opt.budget = budget
    _check_parents(run, net, opt, path)
    return opt


def _check_parents(run: Run, net: FunctionNetwork, opt: FunctionNetworkOptimizer, path: Path) -> None:
    """Say which nodes have no data, and which downstream rows sit on parent values that nobody observed."""
    for k, (Z, y) in opt.observations.items():
        if not len(y):
            run.warn(
                f"{path}: node {net.node_names[k]!r} has no row; its prior is used, and nodes that read it wait for it."
            )
            continue
        for i, p in enumerate(net.parents[k]):
            seen = opt.observations[p][1]
            column = Z[:, len(net.active[k]) + i]
            far = [
                r for r in range(len(y))
                if not len(seen) or float((seen - column[r]).abs().min()) > 1e-6 * max(1.0, abs(float(column[r])))
            ]  # fmt: skip
            if far and opt.upstream_required:
                run.warn(
                    f"{path}: {len(far)} of {len(y)} rows of node {net.node_names[k]!r} have a value of {net.node_names[p]!r} "
                    "that no row of that node shows."
                )


def _read_inputs(net: FunctionNetwork, k: int, text: str | None, opt: FunctionNetworkOptimizer) -> list[float]:
    columns = net.columns(k)
    if text is None:
        pending = [p for p in opt._pending if p["node"] == net.group_of[k][0]]
        if len(pending) == 1:
            return list(pending[0]["z"])
        raise InputError(f"--inputs is needed for node {net.node_names[k]}: {','.join(f'{c}=VALUE' for c in columns)}.")
    given = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        try:
            given[name.strip()] = float(number)
        except ValueError as error:
            raise InputError(f"--inputs: {part.strip()!r} is not NAME=VALUE.") from error
    if set(given) != set(columns):
        raise InputError(f"--inputs: node {net.node_names[k]} reads {', '.join(columns)}, but got {', '.join(given)}.")
    return [given[c] for c in columns]


def _drive(run: Run, net: FunctionNetwork, opt: FunctionNetworkOptimizer, call: Any, name: str = "optimizer") -> None:
    """Ask and tell until the budget is spent; every answer is in the checkpoint before the next question."""
    import numpy as np
    import torch

    from ._optimizer import BudgetExhausted

    kept = run.load_checkpoint(name)
    if kept is not None:
        opt.load_state_dict({k: (float("inf") if v == "inf" else v) for k, v in kept[1].items()})
        run.log(f"goes on after {len(opt._rows)} evaluations, {opt._spent:g} of {opt.budget:g} spent")

    def keep() -> None:
        run.save_checkpoint(name, {"spent": np.array([opt._spent])}, opt.state_dict())

    bar = run.progress(total=round(opt.budget), desc=name)
    with _noted(run), bar:
        while True:
            if opt._pending:  # asked before an interruption: it is answered first
                pending = opt._pending[0]
                node, z = pending["node"], torch.tensor(pending["z"], dtype=torch.float64)
            else:
                try:
                    query = opt._ask()
                except BudgetExhausted:
                    break
                node, z = query.node, query.z
                keep()
            before = opt._spent
            opt.tell(node, z, call(node, z))
            keep()
            bar.update(opt._spent - before)
            row = opt._rows[-1]
            run.metric(len(opt._rows), **{f"{name}_cost": row["cumulative_cost"], f"{name}_y": float(row["y"][0])})
            if opt.min_gain_per_cost > 0 and opt.should_stop:
                run.warn(
                    f"Stopped with {opt.remaining_budget:g} left: the expected gain per cost was below "
                    f"{opt.min_gain_per_cost:g} three times in a row."
                )
                break
        opt._recommend()
    keep()


def _why(net: FunctionNetwork, opt: FunctionNetworkOptimizer) -> list[dict[str, Any]]:
    return [
        {
            "node": net.node_names[entry["node"]],
            "inputs": dict(zip(net.columns(entry["node"]), entry["z"])),
            "expected_gain": entry["gain"],
            "cost": entry["cost"],
            "gain_per_cost": entry["gain_per_cost"],
        }
        for entry in sorted(opt.last_ask.get("nodes", []), key=lambda e: -e["gain_per_cost"])
    ]


def _report_next(run: Run, net: FunctionNetwork, opt: FunctionNetworkOptimizer, queries: list[Any]) -> None:
    import pandas as pd

    from assay._core.files import write_json

    listed = [
        {
            "node": net.node_names[c.node],
            "evaluates": [net.node_names[k] for k in c.nodes],
            "inputs": dict(zip(net.columns(c.node), c.z.tolist())),
            "expected_gain": c.value,
            "cost": c.cost,
            "gain_per_cost": c.gain_per_cost,
        }
        for c in queries
    ]
    body: dict[str, Any] = {
        "queries": listed,
        "why": _why(net, opt),
        "reason": opt.last_ask.get("reason", "first designs"),
    }
    if any(len(y) for _, y in opt.observations.values()):
        x, mean, std = opt.recommend()
        body["recommendation"] = {"x": dict(zip(net.input_names, x.tolist())), "mean": mean, "std": std}
        if net.constraints:
            body["recommendation"]["probability_feasible"] = opt.probability_feasible()
        run.result(recommended=body["recommendation"]["x"], predicted=mean, predicted_sd=std)
        if net.constraints:
            run.result(probability_feasible=body["recommendation"]["probability_feasible"])
    body["stop_advised"] = bool(opt.min_gain_per_cost > 0 and opt.should_stop)
    with run.artefact("next.json") as path:
        write_json(path, body)
    for i, query in enumerate(listed):
        tag = "" if len(listed) == 1 else f"_{i + 1}"
        run.result(**{f"node{tag}": query["node"], f"inputs{tag}": query["inputs"], f"expected_gain{tag}": query["expected_gain"],
                      f"cost{tag}": query["cost"]})  # fmt: skip
    run.text("Why this query", f"{body['reason'].capitalize()}.")
    if body["why"]:
        frame = pd.DataFrame(
            [{**{k: v for k, v in e.items() if k != "inputs"}, "inputs": _inline(e["inputs"])} for e in body["why"]]
        )
        run.table(
            "why", frame, caption="Best candidate of every node; the first row is run next unless its gain is nil."
        )
        model = opt.fitted_model()
        run.figure("slices", _slices(net, model, opt), caption=_SLICES)
    _table_of_observations(run, net, opt)


_SLICES = (
    "Each node along each of its inputs, the others as in the recommended design (dashed): mean and two standard "
    "deviations; points are observations (grey where other inputs differ too)."
)


def _inline(named: dict[str, float]) -> str:
    return ", ".join(f"{k} = {v:.4g}" for k, v in named.items())


def _slices(net: FunctionNetwork, model: Any, opt: FunctionNetworkOptimizer) -> Any:
    from ._report import plot_slices

    return plot_slices(net, model, opt._recommend()[0])


def _table_of_observations(run: Run, net: FunctionNetwork, opt: FunctionNetworkOptimizer) -> None:
    import pandas as pd

    rows = []
    for k in net.order:
        Z, y, extra = opt._data[k]
        for z, value, v in zip(Z.tolist(), y.tolist(), extra.tolist()):
            rows.append({"node": net.node_names[k], **dict(zip(net.columns(k), z)), "value": value, "noise_var": v})
    columns = ["node", *net.input_names, *net.node_names, "value", "noise_var"]
    run.table(
        "obs", pd.DataFrame(rows, columns=columns), caption="All observations, in the form that ask reads.", rows=10
    )


def _report_run(
    run: Run,
    net: FunctionNetwork,
    runs: dict[str, list[FunctionNetworkOptimizer]],
    truth: FunctionNetwork | None,
    value_label: str | None = None,
) -> None:
    import numpy as np
    import pandas as pd
    import torch

    from ._report import LABELS, plot_curves, plot_network, plot_queries

    records, counts = [], []
    curves: dict[str, list[Any]] = {}
    starts: dict[str, list[float]] = {}
    for method, opts in runs.items():
        curves[method], starts[method] = [], []
        for opt in opts:
            frame = opt.history
            values = []
            for x, mean in zip(frame["x"], frame["posterior_mean"]):
                if x is None:
                    values.append(float("nan"))
                elif truth is not None:
                    values.append(float(truth.objective(truth.evaluate(torch.tensor([x], dtype=torch.float64)))[0]))
                else:
                    values.append(mean)
            frame["value"] = values
            curves[method].append((frame["cumulative_cost"].to_numpy(float), np.array(values)))
            start = float("nan")
            if truth is not None and opt._first_x is not None:
                start = float(truth.objective(truth.evaluate(opt._first_x[None]))[0])
            starts[method].append(start)
            for record in frame.to_dict("records"):
                records.append(
                    {"method": method, "seed": opt.seed, "iteration": record["iteration"], "node": record["node"],
                     "inputs": " ".join(f"{v:.6g}" for v in record["z"]), "output": record["y"], "cost": record["cost"],
                     "cumulative_cost": record["cumulative_cost"], "value": record["value"],
                     "posterior_mean": record["posterior_mean"]}
                )  # fmt: skip
            for k, name in enumerate(net.node_names):
                mine = frame[frame["node"] == net.node_names[net.group_of[k][0]]]
                counts.append({"method": method, "seed": opt.seed, "node": name, "evaluations": len(mine),
                               "spent": float(mine["cost"].sum()) / len(net.group_of[k])})  # fmt: skip
    lead = next(iter(runs))
    opt = runs[lead][0]
    x, mean, std = opt.recommend()
    run.result(recommended=dict(zip(net.input_names, x.tolist())), predicted=mean, predicted_sd=std)
    if truth is not None:
        final = {m: [float(c[1][-1]) if len(c[1]) else float("nan") for c in curves[m]] for m in runs}
        run.result(**{f"value_{m}": float(np.nanmean(v)) for m, v in final.items()})
        if truth.optimal_value is not None:
            run.result(optimum=truth.optimal_value)
    if net.constraints:
        run.result(probability_feasible=opt.probability_feasible())
    run.result(evaluations=len(opt._rows), spent=opt._spent, budget=opt.budget)
    label = value_label or (
        "true value at the recommendation" if truth is not None else "posterior mean at\nthe recommendation"
    )
    drawn = {m: cs for m, cs in curves.items() if all(len(c[0]) for c in cs)}
    if drawn:
        fig = plot_curves(
            drawn, label=label, optimum=truth.optimal_value if truth is not None else None,
            starts={m: starts[m] for m in drawn},
        )  # fmt: skip
        run.figure(
            "curves", fig, caption="Value of the recommended design against what was spent; initial designs are free."
        )
        frame = opt.history
        nodes = list(frame["node"])
        names = [net.node_names[g[0]] for g in net.groups]
        if len(frame):
            fig = plot_queries(nodes, list(frame["cost"]), names)
            run.figure(
                "queries", fig, caption=f"Which node {LABELS.get(lead, lead)} ran when; a bar is as long as its cost."
            )
    mine = [c for c in counts if c["method"] == lead and c["seed"] == opt.seed]
    fig = plot_network(net, {c["node"]: c["evaluations"] for c in mine}, {c["node"]: c["spent"] for c in mine})
    run.figure(
        "network",
        fig,
        caption=f"The network; runs and spending of {LABELS.get(lead, lead)}, darker where more was spent.",
    )
    run.figure("slices", _slices(net, opt.fitted_model(), opt), caption=_SLICES)
    run.table(
        "curves",
        pd.DataFrame(records),
        caption="Every evaluation, and the value of the design recommended after it.",
        rows=8,
    )
    run.table("node_counts", pd.DataFrame(counts), caption="Evaluations and spending by node.", rows=20)
    if len(runs) == 1 and len(runs[lead]) == 1:
        _table_of_observations(run, net, opt)
