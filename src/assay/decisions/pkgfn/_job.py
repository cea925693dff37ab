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
        JSON file that remembers observations, pending queries, fits and the options below between calls; made if absent.
    q
        Number of queries for parallel evaluation.
    noise
        infer: nodes are noisy; fixed: the same input gives the same output.
    free
        Parent outputs may be set to any value, not only to observed ones.
    same_design
        Combine only parent outputs whose shared decision variables agree.
    min_gain_per_cost
        Advise to stop when the best expected gain per cost stays below this for three asks, which --state counts.
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
    if state is not None and state.is_dir():
        raise InputError(f"--state {state} is a folder; give a file.")
    if state is not None and state.exists():
        if data is not None:
            raise InputError(f"{state} already holds observations; leave the table out, or choose another --state.")
        opt = FunctionNetworkOptimizer(net, seed=run.seed, **options)
        _load_state(opt, state)
        _change_options(opt, noise, free, same_design, min_gain_per_cost)
    elif data is None:
        opt = FunctionNetworkOptimizer(net, seed=run.seed, budget=budget_left, **options)
    else:
        opt = _from_table(run, net, data, options)
    opt.budget = opt._spent + budget_left
    if min_gain_per_cost > 0 and state is None:
        run.warn("--min-gain-per-cost counts three asks in a row, which needs --state FILE: here it has no effect.")
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
    value: list[float],
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
        Output of the node; for a group one --value per node, in the order of the query's "evaluates".
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
    group = [net.node_names[i] for i in net.group_of[k]]
    if len(value) != len(group):
        needed = "one --value" if len(group) == 1 else f"{len(group)} --value, in the order {', '.join(group)}"
        raise InputError(f"Node {net.node_names[k]} needs {needed}, but got {len(value)}.")
    with _noted(run):
        opt.tell(k, z, value, cost=cost, noise_var=noise_var)
    write_json(state, opt.state_dict())
    run.title = "Observation of a function network"
    run.subtitle = f"{', '.join(group)} at {_inline(dict(zip(net.columns(k), z)))}"
    run.result(
        node=", ".join(group),
        value=value[0] if len(value) == 1 else value,
        observations=sum(len(y) for _, y in opt.observations.values()),
    )
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
        if n_initial is not None:
            raise InputError("--n-initial are designs for a start without data; leave out it or --data.")
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
    if full_budget is not None:
        _positive("--full-budget", full_budget)
    if n_initial is not None and n_initial < 1:
        raise InputError(f"--n-initial must be at least 1, got {n_initial}.")
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
    _report_run(
        run, net, runs, net, value_label="hydration free energy at\nthe recommendation (kcal/mol)", unit="kcal/mol"
    )


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


def _change_options(
    opt: FunctionNetworkOptimizer, noise: str, free: bool, same_design: bool, min_gain_per_cost: float
) -> None:
    """Options given now win over those of the state; defaults leave the state's in place."""
    opt.min_gain_per_cost = min_gain_per_cost or opt.min_gain_per_cost
    opt.same_design = opt.same_design or same_design
    opt.upstream_required = opt.upstream_required and not free
    if noise == "infer" and opt.noise != "infer":
        opt.noise = "infer"
        opt._gps = [None] * opt.network.n_nodes  # hyper-parameters without a noise variance are no start
        opt._dirty = set(range(opt.network.n_nodes))
        opt._recommended_at = -1


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
                opt._check_output(k, y[0])
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
        if name.strip() in given:
            raise InputError(f"--inputs gives {name.strip()} twice.")
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
                except BudgetExhausted as error:
                    if not opt._rows:
                        run.warn(f"Nothing was run. {error}")
                    elif opt._initial or (opt._plan is not None and opt._first_x is None and opt._best_x is None):
                        run.warn(f"The budget ended among the first designs; no query was chosen yet. {error}")
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


def _why(net: FunctionNetwork, seen: dict[str, Any], scale: float) -> list[dict[str, Any]]:
    """Best candidate of every node in one ask; gains that are rounding errors of the objective's scale are nil."""
    nil = 1e-12 * scale
    return [
        {
            "node": net.node_names[entry["node"]],
            "inputs": dict(zip(net.columns(entry["node"]), entry["z"])),
            "expected_gain": entry["gain"] if entry["gain"] > nil else 0.0,
            "cost": entry["cost"],
            "gain_per_cost": entry["gain_per_cost"] if entry["gain"] > nil else 0.0,
        }
        for entry in sorted(seen.get("nodes", []), key=lambda e: -e["gain_per_cost"])
    ]


def _report_next(run: Run, net: FunctionNetwork, opt: FunctionNetworkOptimizer, queries: list[Any]) -> None:
    import pandas as pd

    from assay._core.files import write_json

    asks = opt.last_asks if queries else [opt.last_ask]
    informed = any(len(y) for _, y in opt.observations.values())
    model = opt.fitted_model() if informed else None
    whys = [_why(net, seen, model.output_scale) if model is not None else [] for seen in asks]
    reasons = [seen.get("reason", "first designs") for seen in asks]
    listed = [
        {
            "node": net.node_names[c.node],
            "evaluates": [net.node_names[k] for k in c.nodes],
            "inputs": dict(zip(net.columns(c.node), c.z.tolist())),
            "expected_gain": c.value,
            "cost": c.cost,
            "gain_per_cost": c.gain_per_cost,
            "reason": reason,
            "why": why,
        }
        for c, reason, why in zip(queries, reasons, whys)
    ]
    # The first query is the one that was chosen with nothing pending from this ask.
    body: dict[str, Any] = {"queries": listed, "why": whys[0] if listed else [], "reason": reasons[0] if listed else ""}
    if informed:
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
        run.result(**{f"run{tag}": f"{', '.join(query['evaluates'])} at {_inline(query['inputs'])}"})
    if len(listed) == 1:
        run.result(expected_gain=listed[0]["expected_gain"], cost=listed[0]["cost"])
    if listed:
        frame = pd.DataFrame(
            [{"query": i, "run": ", ".join(e["evaluates"]), "at": _inline(e["inputs"]), "expected gain": e["expected_gain"],
              "cost": e["cost"], "gain per cost": e["gain_per_cost"], "reason": e["reason"]}
             for i, e in enumerate(listed, 1)]
        )  # fmt: skip
        run.table(
            "queries", frame, caption="What to run next; expected gain is the rise of the best predicted objective."
        )
    if "recommendation" in body:
        _table_of_recommendation(run, net, body["recommendation"])
    if any(whys):
        frame = pd.DataFrame(
            [{"query": i, **{k.replace("_", " "): v for k, v in e.items() if k != "inputs"}, "inputs": _inline(e["inputs"])}
             for i, why in enumerate(whys, 1) for e in why]
        )  # fmt: skip
        run.table(
            "why", frame,
            caption="Why: the best candidate of every node at each query; its first row is run unless its gain is nil.",
        )  # fmt: skip
        run.figure("slices", _slices(net, model, opt), caption=_SLICES)
    _table_of_observations(run, net, opt)


_SLICES = (
    "Each node along each of its inputs, the others as in the recommended design (dashed): mean and two standard "
    "deviations; points are observations (grey where other inputs differ too)."
)


def _inline(named: dict[str, float], digits: int = 4) -> str:
    return ", ".join(f"{k} = {v:.{digits}g}" for k, v in named.items())


def _slices(net: FunctionNetwork, model: Any, opt: FunctionNetworkOptimizer, unit: str = "") -> Any:
    from ._report import plot_slices

    return plot_slices(net, model, opt._recommend()[0], unit)


def _table_of_recommendation(run: Run, net: FunctionNetwork, found: dict[str, Any], whose: str = "") -> None:
    """The design that would be used if nothing more were run, where a reader looks for it."""
    import pandas as pd

    unit = "objective" if net.objective_text is None else net.objective_text
    row: dict[str, Any] = dict(found["x"]) | {f"predicted {unit}": found["mean"], "standard deviation": found["std"]}
    if "probability_feasible" in found:
        row["probability feasible"] = found["probability_feasible"]
    if "true" in found:
        row["true value"] = found["true"]
    run.table(
        "recommendation",
        pd.DataFrame([row]),
        caption=f"Recommended design: the best predicted objective of all designs{_of(whose)}.",
    )


def _table_of_observations(run: Run, net: FunctionNetwork, opt: FunctionNetworkOptimizer) -> None:
    import numpy as np
    import pandas as pd

    rows = []
    for k in net.order:
        Z, y, extra = opt._data[k]
        # Measured costs decide by their mean: written to every row of the node, they are read back as the same mean.
        paid = {"cost": float(np.mean(opt._measured[k]))} if opt._measured.get(k) else {}
        for z, value, v in zip(Z.tolist(), y.tolist(), extra.tolist()):
            named = dict(zip(net.columns(k), z))
            rows.append({"node": net.node_names[k], **named, "value": value, "noise_var": v, **paid})
    frame = pd.DataFrame(rows, columns=["node", *net.input_names, *net.node_names, "value", "noise_var", "cost"])
    caption = "All observations, in the form that ask reads"
    if frame["cost"].notna().any():
        caption += "; cost is the mean of what was measured for the node"
    else:
        frame = frame.drop(columns="cost")
    run.table("obs", frame, caption=f"{caption}.", rows=10)


def _last(curves: list[Any], starts: list[float]) -> list[float]:
    """Value at the end of every run; that of the initial data where the budget bought nothing."""
    return [float(values[-1]) if len(values) else start for (_, values), start in zip(curves, starts)]


def _of(whose: str) -> str:
    return f" ({whose.strip()})" if whose else ""


def _table_of_methods(
    run: Run, net: FunctionNetwork, runs: dict[str, Any], final: dict[str, Any], counts: list[dict[str, Any]]
) -> None:
    """One line per method over all seeds."""
    import numpy as np
    import pandas as pd

    from ._report import LABELS

    lines = []
    for method, opts in runs.items():
        line = {"method": LABELS.get(method, method), "runs": len(opts), "final value": float(np.mean(final[method]))}
        if len(opts) > 1:
            line["standard deviation"] = float(np.std(final[method], ddof=1))
        line["spent"] = float(np.mean([opt._spent for opt in opts]))
        for name in net.node_names:
            mine = [c["evaluations"] for c in counts if c["method"] == method and c["node"] == name]
            line[f"runs of {name}"] = float(np.mean(mine))
        lines.append(line)
    what = "Means over the seeds" if len(next(iter(runs.values()))) > 1 else "By method"
    run.table(
        "methods", pd.DataFrame(lines), caption=f"{what}: true value of the last recommendation, and what was run."
    )


def _report_run(
    run: Run,
    net: FunctionNetwork,
    runs: dict[str, list[FunctionNetworkOptimizer]],
    truth: FunctionNetwork | None,
    value_label: str | None = None,
    unit: str = "",
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
                     "inputs": _inline(dict(zip(net.columns(net.node_names.index(record["node"])), record["z"])), 6),
                     "output": record["y"], "cost": record["cost"],
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
    one = len(runs[lead]) == 1  # of several seeds the first would stand for all
    if one:
        run.result(recommended=dict(zip(net.input_names, x.tolist())), predicted=mean, predicted_sd=std)
    found: dict[str, Any] = {"x": dict(zip(net.input_names, x.tolist())), "mean": mean, "std": std}
    if truth is not None:
        found["true"] = float(truth.objective(truth.evaluate(x[None]))[0])
        run.result(**{f"value_{m}": float(np.mean(_last(curves[m], starts[m]))) for m in runs})
        if truth.optimal_value is not None:
            run.result(optimum=truth.optimal_value)
    if net.constraints:
        found["probability_feasible"] = opt.probability_feasible()
        run.result(probability_feasible=found["probability_feasible"])
    if one:
        run.result(evaluations=len(opt._rows), spent=opt._spent)
    run.result(budget=opt.budget)
    label = value_label or (
        "true value at the recommendation" if truth is not None else "posterior mean at\nthe recommendation"
    )
    several = len(runs) * len(runs[lead]) > 1
    whose = "" if not several else f" {LABELS.get(lead, lead)}" + (f", seed {opt.seed}" if len(runs[lead]) > 1 else "")
    if several:
        _table_of_methods(run, net, runs, {m: _last(curves[m], starts[m]) for m in runs}, counts)
    _table_of_recommendation(run, net, found, whose)
    drawn = {m: cs for m, cs in curves.items() if all(len(c[0]) for c in cs)}
    if drawn:
        fig = plot_curves(
            drawn, label=label, optimum=truth.optimal_value if truth is not None else None,
            starts={m: starts[m] for m in drawn},
        )  # fmt: skip
        free = opt._first_x is not None
        band = "; median and quartiles over seeds" if len(runs[lead]) > 1 else ""
        run.figure(
            "curves", fig,
            caption=f"Value of the recommended design against what was spent{band}. "
            + ("The initial designs were free." if free else "The initial designs are among the costs."),
        )  # fmt: skip
        frame = opt.history
        together = {net.node_names[g[0]]: " + ".join(net.node_names[k] for k in g) for g in net.groups}
        if len(frame):
            fig = plot_queries([together[n] for n in frame["node"]], list(frame["cost"]), list(together.values()))
            run.figure("queries", fig, caption=f"Which node was run when; a bar is as long as its cost{_of(whose)}.")
    mine = [c for c in counts if c["method"] == lead and c["seed"] == opt.seed]
    fig = plot_network(net, {c["node"]: c["evaluations"] for c in mine}, {c["node"]: c["spent"] for c in mine})
    run.figure(
        "network",
        fig,
        caption=f"The network with runs and spending, darker where more was spent{_of(whose)}.",
    )
    run.figure("slices", _slices(net, opt.fitted_model(), opt, unit), caption=_SLICES)
    run.table(
        "curves",
        pd.DataFrame(records),
        caption="Every evaluation, and the value of the design recommended after it.",
        rows=8,
    )
    run.table(
        "node_counts",
        pd.DataFrame(counts),
        caption="Evaluations and spending by node.",
        rows=20,
        show=one,
    )
    if not several:
        _table_of_observations(run, net, opt)
