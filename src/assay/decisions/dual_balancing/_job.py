"""What the command line does with a user's bid log: replay it, look into it, or bid live."""

from __future__ import annotations

import math
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay._core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from assay._core.run import Run

    from ._log import BidLog
    from ._mechanisms import Mechanism
    from ._replay import Benchmark, ReplayResult

MechanismName = Literal["first", "second", "soft_floor", "gsp", "posted"]
Feedback = Literal["full", "bandit", "one_sided"]
_BUDGETS = (0.5, 0.8, 1.0, 1.2, 1.5, 2.0)


def evaluate(
    auctions: Path,
    *,
    budget: float,
    roi: float | None = None,
    mechanism: MechanismName = "second",
    feedback: Feedback = "full",
    methods: str = "dual-balancing,adaptive-pacing,pi,linear,greedy",
    seeds: int = 1,
    value_bins: int = 1,
    target_spend: Path | None = None,
    reserve: float = 0.0,
    soft_floor: float | None = None,
    alpha: float | None = None,
    columns: str | None = None,
    value_per_click: float | None = None,
    price_scale: float = 1.0,
    won_only: bool = False,
    bids: bool = False,
    run: Run,
) -> None:
    """Replay a bid log under a budget and an ROI target, and compare with other bidders and the best in hindsight.

    Parameters
    ----------
    auctions
        Bid log: CSV, TSV or Parquet with the columns value (or pctr) and competing_price, and timestamp if the rows are not
        in time order; or iPinYou NPZ or text.
    budget
        Total budget, in the currency of values and prices.
    roi
        Reward over cost to be reached over the whole log; none if left out.
    mechanism
        How the auctions are decided: first, second, soft_floor, gsp or posted.
    feedback
        What the learner is told: full (the price to beat after every auction), one_sided (on wins only), bandit (never).
    methods
        Bidders, separated by commas: dual-balancing, dual-balancing-grid, plain, capped, adaptive-pacing, roi-descent, pi,
        linear, greedy. The first is the one that the report is about.
    seeds
        Runs of the methods that draw at random.
    value_bins
        Above 1: a learner per value bin.
    target_spend
        Table with the column cumulative (or spend, per row): spending to follow instead of even pacing.
    reserve
        Least price of every auction.
    soft_floor
        The floor of mechanism soft_floor.
    alpha
        Slater margin that capped and roi-descent are told, as a share of the largest value.
    columns
        Names in your file, such as value=ev,competing_price=mbw.
    value_per_click
        Turns click rates (pctr) into values; where the log has conversions, also counts what they brought.
    price_scale
        Prices are divided by it: 1000 for prices per thousand.
    won_only
        Leave out lost auctions whose price is unknown.
    bids
        Also write bids.csv with every bid.
    """
    if seeds < 1:
        raise InputError(f"--seeds must be at least 1, got {seeds}.")
    with _warnings_to(run):
        log = _read(auctions, columns, value_per_click, price_scale, won_only)
        names = _names(methods)
        if alpha is not None:
            if not {"capped", "roi-descent"} & set(names):
                raise InputError("--alpha goes with the methods capped and roi-descent; name one of them in --methods.")
            if not 0 < alpha < math.inf:
                raise InputError(f"--alpha must be above 0, got {alpha}.")
        target = None
        if target_spend is not None:
            from ._formats import read_target

            target = read_target(target_spend)
        run.title = f"Replay of {log.name}"
        _evaluate(
            log, names, run, budget=budget, roi=roi, mechanism=_mechanism(mechanism, reserve, soft_floor), kind=mechanism,
            feedback=feedback, seeds=seeds, value_bins=value_bins, target=target, alpha=alpha, write_bids=bids,
            value_per_click=value_per_click,
        )  # fmt: skip


def analyse(
    auctions: Path,
    *,
    budget: float | None = None,
    roi: float | None = None,
    mechanism: MechanismName = "second",
    reserve: float = 0.0,
    soft_floor: float | None = None,
    budget_grid: str = "0.5,0.8,1,1.2,1.5,2",
    columns: str | None = None,
    value_per_click: float | None = None,
    price_scale: float = 1.0,
    won_only: bool = False,
    run: Run,
) -> None:
    """Look into a bid log: what could be had at best, how tight the constraints are, and when which of them binds.

    Parameters
    ----------
    auctions
        Bid log, as for evaluate.
    budget
        Total budget; a fifth of what winning everything at the full value would cost, if left out.
    roi
        Reward over cost to be reached; none if left out.
    mechanism
        How the auctions are decided.
    reserve
        Least price of every auction.
    soft_floor
        The floor of mechanism soft_floor.
    budget_grid
        Budgets to price, as factors of the budget.
    columns
        Names in your file, such as value=ev,competing_price=mbw.
    value_per_click
        Turns click rates (pctr) into values.
    price_scale
        Prices are divided by it: 1000 for prices per thousand.
    won_only
        Leave out lost auctions whose price is unknown.
    """
    with _warnings_to(run):
        log = _read(auctions, columns, value_per_click, price_scale, won_only)
        try:
            factors = sorted({float(x) for x in budget_grid.split(",")})
        except ValueError:
            raise InputError(f"--budget-grid must be numbers separated by commas, got {budget_grid!r}.") from None
        if not factors or not all(0 < x < math.inf for x in factors):
            raise InputError(f"--budget-grid must be numbers above 0, got {budget_grid!r}.")
        run.title = f"Analysis of {log.name}"
        _analyse(log, run, budget, roi, _mechanism(mechanism, reserve, soft_floor), factors)


def serve(
    *,
    budget: float,
    horizon: int,
    mechanism: MechanismName = "second",
    state: Path = Path("state.json"),
    roi: float | None = None,
    feedback: Feedback = "full",
    max_value: float = 1.0,
    timeout: int = 1000,
    target_spend: Path | None = None,
    reserve: float = 0.0,
    soft_floor: float | None = None,
    port: int = 8077,
    run: Run,
) -> None:
    """Bid live: POST /bid and /observe on this machine, with a page at / and /metrics; stop with Ctrl-C.

    The state is written every 1,000 answers and when the service stops, and every event in between to a journal, so that
    a killed service goes on with the same next bid. The state is not in --out: restart with --resume.

    Parameters
    ----------
    budget
        Total budget, never exceeded.
    horizon
        Number of auctions that the budget is for.
    mechanism
        How the auctions are decided.
    state
        State file; goes on from it where it exists.
    roi
        Reward over cost to be reached; none if left out.
    feedback
        What /observe tells: full (competing with every answer; not needed in second price), one_sided, bandit.
    max_value
        Largest value of an auction, and largest bid.
    timeout
        A bid without an answer counts as lost after this many later bids.
    target_spend
        Table with the column cumulative (or spend, per row): spending to follow instead of even pacing.
    reserve
        Least price of every auction.
    soft_floor
        The floor of mechanism soft_floor.
    port
        Port on 127.0.0.1; 0 takes a free one.
    """
    from ._bidder import AutoBidder
    from ._formats import read_target
    from ._ledger import Ledger
    from ._service import serve_forever

    if not 0 <= port <= 65535:
        raise InputError(f"--port must lie between 0 and 65535, got {port}.")
    with _warnings_to(run):
        bidder = AutoBidder(
            _mechanism(mechanism, reserve, soft_floor), horizon, budget, roi, feedback=feedback, max_value=max_value,
            timeout=timeout, target_spend=None if target_spend is None else read_target(target_spend),
            random_state=run.seed,
        )  # fmt: skip
        ledger = Ledger(bidder, state, run.warn)
        try:
            if bidder.t_:
                run.log(f"goes on after {bidder.t_:,} auctions ({ledger.restored:,} events from the journal)")
            serve_forever(ledger, port, lambda address: run.log(f"listening on {address}"))
        finally:
            ledger.close()
        _report_service(bidder, state, run)


def demo(*, run: Run) -> None:
    """Replay simulated auctions (iPinYou's, where the file is present) in first and second price, and analyse them."""
    import numpy as np

    from assay._core.data import data_path, sample_path
    from assay._core.errors import MissingData
    from assay._core.smoke import pick, smoke

    from ._formats import read_log
    from ._mechanisms import get_mechanism

    with _warnings_to(run):
        try:
            path = data_path("dual-balancing", "ipinyou_2997_test.npz", download=False)
            log, real = read_log(path, value_per_click=25_000.0), True
        except MissingData:
            log = read_log(sample_path("dual-balancing", "simulated_auctions.csv.gz"))
            real = False
        if smoke():
            log = log.take(slice(0, 3000))
        run.title = f"{len(log):,} {'real' if real else 'simulated'} auctions under a budget and an ROI target"
        run.subtitle = (
            "iPinYou, campaign 2997" if real else "simulated by this library; no real auction is in the sample"
        )
        log.value = np.minimum(log.value, 300.0)  # the range of the prices; single click rates are ten times the usual
        budget = 30.0 * len(log)
        common: dict[str, Any] = {"feedback": "full", "seeds": 1, "value_bins": 1, "target": None, "alpha": None}
        _evaluate(
            log, _names("dual-balancing,dual-balancing-grid,pi,linear,greedy"), run, budget=budget, roi=2.0,
            mechanism=get_mechanism("second"), kind="second", write_bids=False, **common,
        )  # fmt: skip
        _evaluate(
            log, _names(pick("dual-balancing,plain,adaptive-pacing,greedy", "dual-balancing,plain")), run, budget=budget,
            roi=None, mechanism=get_mechanism("first"), kind="first", write_bids=False, prefix="first_", **common,
        )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------


@contextmanager
def _warnings_to(run: Run) -> Iterator[None]:
    """What the library warns of goes into the report."""
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        finally:
            for item in caught:
                if issubclass(item.category, UserWarning):
                    run.warn(str(item.message))


def _names(methods: str) -> list[str]:
    from ._replay import METHODS

    names = list(dict.fromkeys(x.strip() for x in methods.split(",") if x.strip()))
    for name in names:
        if name not in METHODS:
            raise InputError(f"--methods: there is no method {name!r}; use {', '.join(METHODS)}.")
    if not names:
        raise InputError("--methods is empty.")
    return names


def _mechanism(name: str, reserve: float, soft_floor: float | None) -> Mechanism:
    from ._mechanisms import get_mechanism

    if reserve and name not in ("first", "second"):
        raise InputError(f"--reserve goes with first and second price, not with {name}; give a floor column instead.")
    if soft_floor is not None and name != "soft_floor":
        raise InputError(f"--soft-floor goes with --mechanism soft_floor, not with {name}.")
    return get_mechanism(name, soft_floor=soft_floor, reserve=reserve)


def _read(path: Path, columns: str | None, per_click: float | None, price_scale: float, won_only: bool) -> BidLog:
    from ._formats import parse_columns, read_log

    return read_log(
        path, columns=parse_columns(columns), value_per_click=per_click, price_scale=price_scale, won_only=won_only
    )


def _evaluate(
    log: BidLog, names: list[str], run: Run, *, budget: float, roi: float | None, mechanism: Mechanism, kind: str,
    feedback: Feedback, seeds: int, value_bins: int, target: Any, alpha: float | None, write_bids: bool, prefix: str = "",
    value_per_click: float | None = None,
) -> None:  # fmt: skip
    import numpy as np
    import pandas as pd

    from . import _report
    from ._balancing import _pace
    from ._log import default_multipliers, warn_outliers
    from ._replay import benchmark, replay, takes_closed_form

    _check_budget(budget, roi)
    for note in log.notes:
        run.warn(note)
    warn_outliers(log)
    if kind == "gsp" and log.competing.shape[1] == 1:
        run.warn(
            "Generalised second price with one competing bid per auction: positions below the second cost nothing."
        )
    grid, cap = default_multipliers(), log.scale
    known = benchmark(log, mechanism, grid, cap, budget, roi)
    rows, results = [], []
    for name in run.progress(names, desc="methods"):
        drawn = _draws(name, mechanism, feedback, value_bins)
        for seed in range(run.seed, run.seed + (seeds if drawn else 1)):
            result = replay(
                name, log, budget=budget, roi_target=roi, mechanism=mechanism, feedback=feedback, value_bins=value_bins,
                target_spend=target, alpha=alpha, random_state=seed, reference=known,
            )  # fmt: skip
            rows.append(result.summary)
            if seed == run.seed:
                results.append(result)
        run.log(f"{name}: {results[-1].summary['seconds']:.2f} s")
    first = results[0]
    table = pd.DataFrame(rows)
    shown = [
        "method",
        "seed",
        "reward_over_opt",
        "reward_over_fixed",
        "spend_share",
        "roi",
        "violation",
        "max_lambda",
        "max_mu",
    ]
    run.table(
        f"{prefix}summary",
        table,
        columns=shown,
        rows=40,
        caption=f"The bidders on {len(log):,} auctions ({kind} price). reward_over_opt: reward over that of the best fixed "
        "mixture of multipliers in hindsight; above 1 is possible, see violation beside it.",
    )
    frames = [r.trajectory(max(2, 2000 // len(results))).assign(method=r.method) for r in results]
    run.table(f"{prefix}trajectories", pd.concat(frames, ignore_index=True), show=False)
    if write_bids:
        every = {"row": np.arange(1, len(log) + 1), "bid": first.bids, "reward": first.gained, "paid": first.paid}
        run.table(f"{prefix}bids", pd.DataFrame(every), show=False)
    unit = log.scale
    paces = _pace(target, len(log), budget) if target is not None else np.full(len(log), budget / len(log))
    run.text(f"{kind.replace('_', ' ').capitalize()} price in words", _words(log, table, known, budget, roi, unit))
    run.figure(
        f"{prefix}pacing",
        _report.plot_pacing(log, results, budget, np.cumsum(paces)),
        caption="Spending so far and the pace; below, spending per interval. A line that ends below the budget has left "
        "money, one that is flat at the end was out of money early.",
    )
    run.figure(f"{prefix}roi", _report.plot_roi(log, results, roi), caption="Reward over cost so far.")
    if np.isfinite(first.multipliers).any():
        run.figure(
            f"{prefix}multipliers",
            _report.plot_multipliers(log, first),
            caption="The multipliers of the first method: what a unit of budget, and of missing return, is worth to it.",
        )
    closed = takes_closed_form(mechanism, 0, value_bins) and feedback == "full" and first.method == "dual-balancing"
    run.figure(
        f"{prefix}landscape",
        _report.plot_landscape(log, first, cap),
        caption="Left: values and prices. Right: bid over value of the first method"
        + (" (closed form)." if closed else "."),
    )
    summary = first.summary
    numbers: dict[str, Any] = {
        f"{prefix}reward_over_opt": summary["reward_over_opt"],
        f"{prefix}spend_share": summary["spend_share"],
        f"{prefix}roi": summary["roi"],
        f"{prefix}violation": summary["violation"],
    }
    if log.converted is not None and value_per_click is not None and summary["spend"] > 0:
        brought = log.converted[first.gained > 0]
        if np.isfinite(brought).all():
            numbers[f"{prefix}realised_roi"] = float(brought.sum() * value_per_click / summary["spend"])
        else:
            run.warn(
                f"No realised return: {int((~np.isfinite(brought)).sum()):,} of the {len(brought):,} auctions won in the replay "
                "have no entry for conversions."
            )
    run.result(auctions=len(log), **numbers)
    _budget_section(log, run, known, budget, roi, mechanism, feedback, value_bins, target, first, prefix)
    for i, at in enumerate(np.linspace(0, len(log) - 1, 20).astype(int), 1):
        run.metric(
            i if not prefix else 100 + i,
            spend=float(first.paid[: at + 1].sum()),
            reward=float(first.gained[: at + 1].sum()),
        )


def _check_budget(budget: float, roi: float | None) -> None:
    from ._learners import ROI_LIMIT
    from ._log import LARGEST

    if not 0 < budget <= LARGEST:
        raise InputError(f"--budget must be above 0 and at most {LARGEST:g}, got {budget}.")
    if roi is not None and not 0 <= roi <= ROI_LIMIT:
        raise InputError(f"--roi must be at least 0 and at most {ROI_LIMIT:g}, got {roi}.")


def _draws(name: str, mechanism: Mechanism, feedback: str, value_bins: int) -> bool:
    from ._balancing import FEEDBACKS
    from ._replay import takes_closed_form

    if name == "dual-balancing":
        return not takes_closed_form(mechanism, FEEDBACKS[feedback], value_bins)
    return name in ("dual-balancing-grid", "plain", "capped")


def _words(log: BidLog, table: Any, known: Benchmark, budget: float, roi: float | None, unit: float) -> str:
    T, first = len(log), table.iloc[0]
    words = [
        f"{first['method']} gained {first['reward']:,.4g} for {first['spend']:,.4g}: {100 * first['reward_over_opt']:.1f} % of "
        f"what the best fixed mixture of multipliers would have gained ({T * known.opt:,.4g}), with "
        f"{100 * first['spend_share']:.1f} % of the budget spent. The best single multiplier, {known.fixed_multiplier:g}, "
        f"would have gained {T * known.fixed:,.4g}."
    ]
    if roi is not None:
        scale = first["violation"] / (unit * math.sqrt(T))
        said = f"The return was {first['roi']:.4g} against a target of {roi:g}, counted on predicted values: "
        if first["violation"] == 0:
            said += "kept."
        else:
            said += (
                f"missed by {first['violation']:,.4g} in total, which is {scale:.3g} times (largest value x sqrt(T)). The "
                "method promises a small multiple of that scale, not zero on every log; values up to about 2 are ordinary."
            )
        words.append(said)
        others = table.iloc[1:]
        missed = others[others["violation"] > unit * 2 * math.sqrt(T)]
        if len(missed):
            worst = ", ".join(f"{r.method} ({r.roi:.3g})" for r in missed.drop_duplicates("method").itertuples())
            words.append(
                f"Bidders that missed the target by more than that, so that their rewards do not compare: {worst}."
            )
    allowed = max(float(first["violation"]), unit * 2 * math.sqrt(T)) if roi is not None else math.inf
    ahead = table[(table["reward"] > first["reward"]) & (table["violation"] <= allowed)]
    ahead = ahead[~ahead["method"].str.startswith("dual-balancing")].drop_duplicates("method")
    ahead = ahead.sort_values("reward", ascending=False)
    if len(ahead) and first["method"].startswith("dual-balancing"):
        shown = ", ".join(f"{r.method} ({100 * (r.reward / first['reward'] - 1):.2g} %)" for r in ahead.itertuples())
        kept = ", with the target missed by no more than is ordinary" if roi is not None else ""
        words.append(
            f"Ahead of it on this log{kept}: {shown}. They promise nothing where prices change or a target binds."
        )
    if first["spend_share"] < 0.95:
        words.append(
            "Less than 95 % was spent: the ROI target or the largest multiplier (2) binds before the budget does, or the "
            "horizon was short."
        )
    if known.margin < 0.01 * unit * min(1.0, budget / (T * unit)):
        words.append("The constraints leave hardly any room in hindsight (Slater margin near 0): expect misses.")
    worth = f"In hindsight one more unit of budget was worth {known.budget_price:.3g} of reward"
    if roi is not None and known.roi_price > 1e-12:
        worth += f", and a target lower by 0.1 was worth {0.1 * T * known.roi_price:,.4g}"
    elif roi is not None:
        worth += "; the ROI target did not bind"
    words.append(worth + ".")
    return "\n\n".join(words)


def _budget_section(
    log: BidLog, run: Run, known: Benchmark, budget: float, roi: float | None, mechanism: Mechanism, feedback: Feedback,
    value_bins: int, target: Any, first: ReplayResult, prefix: str,
) -> None:  # fmt: skip
    """What more or less budget would have bought: the benchmark and the replay."""
    import numpy as np
    import pandas as pd

    from . import _report
    from ._hindsight import solve
    from ._replay import replay

    if not first.method.startswith("dual-balancing"):
        return
    rows = []
    for factor in _BUDGETS:
        best = solve(known.mean_reward[None], known.mean_cost[None], np.ones(1), factor * budget / len(log), roi)
        result = first
        if factor != 1.0:
            result = replay(
                first.method, log, budget=factor * budget, roi_target=roi, mechanism=mechanism, feedback=feedback,
                value_bins=value_bins, target_spend=target, random_state=run.seed, reference=known,
            )  # fmt: skip
        rows.append(
            {
                "budget_factor": factor,
                "budget": factor * budget,
                "best_reward": best.value * len(log),
                "reward_per_extra_unit": best.budget_price,
                "replayed_reward": result.summary["reward"],
                "replayed_spend": result.summary["spend"],
                "replayed_roi": result.summary["roi"],
            }
        )
    frame = pd.DataFrame(rows)
    run.table(
        f"{prefix}budget_grid",
        frame,
        caption="Other budgets: the benchmark, its marginal value of budget, and the replay.",
    )
    one, more = frame[frame["budget_factor"] == 1.0].iloc[0], frame[frame["budget_factor"] == 1.2].iloc[0]
    gain = more["replayed_reward"] / one["replayed_reward"] - 1 if one["replayed_reward"] > 0 else math.nan
    ideal = more["best_reward"] / one["best_reward"] - 1 if one["best_reward"] > 0 else math.nan
    run.text(
        "What 20 % more budget would buy",
        f"{100 * gain:.1f} % more reward in the replay, {100 * ideal:.1f} % at best in hindsight.",
    )
    fig = _report.plot_budget_grid(
        frame["budget_factor"].to_numpy(), frame["best_reward"].to_numpy(), frame["replayed_reward"].to_numpy()
    )
    run.figure(f"{prefix}budget_grid", fig, caption="Reward against the budget.")
    run.result(**{f"{prefix}gain_of_20_percent_more_budget": float(gain)})


def _analyse(
    log: BidLog, run: Run, budget: float | None, roi: float | None, mechanism: Mechanism, factors: list[float]
) -> None:
    import numpy as np
    import pandas as pd

    from . import _report
    from ._hindsight import slater_margin, solve
    from ._log import default_multipliers, tables, warn_outliers
    from ._replay import benchmark

    for note in log.notes:
        run.warn(note)
    warn_outliers(log)
    grid, cap, T = default_multipliers(), log.scale, len(log)
    if budget is None:
        cost = tables(log, mechanism, np.array([0.0, 1.0]), cap, slice(None))[1][:, 1].sum()
        budget = float(cost) / 5
        if budget <= 0:
            raise InputError(
                "No auction costs anything at a bid of its value, so there is no budget to analyse; give --budget."
            )
        run.warn(f"No --budget: a fifth of what bidding the value would have cost is taken, {budget:,.4g}.")
    _check_budget(budget, roi)
    known = benchmark(log, mechanism, grid, cap, budget, roi)
    rows = []
    for factor in factors:
        found = solve(known.mean_reward[None], known.mean_cost[None], np.ones(1), factor * budget / T, roi)
        spend = float(found.mixture[0] @ known.mean_cost) * T
        reward = found.value * T
        rows.append(
            {
                "budget_factor": factor,
                "budget": factor * budget,
                "best_reward": reward,
                "spend": spend,
                "roi": reward / spend if spend > 0 else math.nan,
                "reward_per_extra_unit": found.budget_price,
                "reward_per_tenth_of_target": 0.1 * T * found.roi_price,
            }
        )
    frame = pd.DataFrame(rows)
    run.table(
        "budget_grid", frame, caption="What other budgets could buy at best, and what one more unit is worth there."
    )
    run.figure(
        "densities",
        _report.plot_analysis(log, known, grid, cap),
        caption="Left: values and prices. Right: what every fixed multiplier of the value earns and costs per auction.",
    )
    run.figure(
        "budget_grid",
        _report.plot_budget_grid(frame["budget_factor"].to_numpy(), frame["best_reward"].to_numpy(), None),
        caption="Best reward in hindsight against the budget.",
    )
    hours = _by_interval(log, mechanism, grid, cap, budget / T, roi)
    unit = "hours since the first auction" if log.hour is not None and log.hour[-1] > 0 else "auctions"
    run.table(
        "intervals", hours, rows=24, caption="Each interval on its own: what it could earn at the average budget."
    )
    run.figure(
        "binding",
        _report.plot_hours(
            hours["start"].to_numpy(), hours["reward_per_unit"].to_numpy(),
            hours["roi_binds"].astype(float).to_numpy() if roi is not None else np.full(len(hours), np.nan), unit,
        ),
        caption="Blue: what one more unit of budget would earn in the interval; none where the budget does not bind. Shaded: "
        "the ROI target binds.",
    )  # fmt: skip
    won = tables(log, mechanism, np.array([0.0, 1.0]), cap, slice(None))
    share = float((won[0][:, 1] > 0).mean())
    # in units of the largest value, as the theory has it
    f, c, _ = tables(log, mechanism, grid, cap, slice(None))
    margin = slater_margin(f / cap, c / cap, budget / (T * cap), roi)
    block = slater_margin(f / cap, c / cap, budget / (T * cap), roi, block=max(1, math.isqrt(T)))
    run.text(
        "The log in words",
        f"{T:,} auctions; bidding the value wins {100 * share:.3g} % of them. The best fixed mixture gains "
        f"{T * known.opt:,.4g} with a budget of {budget:,.4g}"
        + (f" and a return of at least {roi:g}" if roi is not None else "")
        + f". One more unit of budget is worth {known.budget_price:.3g}."
        + f"\n\nSlater margin {margin:.3g} (in units of the largest value; at most the budget per auction, "
        f"{budget / (T * cap):.3g}); the smallest over windows of {math.isqrt(T)} auctions is {block:.3g}. "
        + (
            "Near 0: only a knife's edge of strategies keeps all constraints."
            if margin < 0.1 * budget / (T * cap)
            else ""
        ),
    )
    run.result(
        auctions=T, best_reward=T * known.opt, win_rate_at_value=share, slater_margin=margin, slater_margin_worst_window=block,
        value_of_budget=known.budget_price,
    )  # fmt: skip
    for i, row in enumerate(hours.itertuples(), 1):
        run.metric(i, best_reward=float(row.best_reward))


def _by_interval(log: BidLog, mechanism: Mechanism, grid: np.ndarray, cap: float, rho: float, roi: float | None) -> Any:
    """The benchmark of every hour (or of fifty parts of a log without times)."""
    import numpy as np
    import pandas as pd

    from ._hindsight import solve
    from ._log import tables

    T = len(log)
    if log.hour is not None and log.hour[-1] > 0:
        width = max(1.0, math.ceil(log.hour[-1] / 168))
        label = np.floor(log.hour / width).astype(int)
        starts = {k: k * width for k in np.unique(label)}
    else:
        label = np.arange(T) * min(50, T) // T
        starts = {k: int(np.argmax(label == k)) for k in np.unique(label)}
    rows = []
    for k, start in starts.items():
        at = np.flatnonzero(label == k)
        f, c, _ = tables(log.take(at), mechanism, grid, cap, slice(None))
        found = solve(f.mean(axis=0)[None], c.mean(axis=0)[None], np.ones(1), rho, roi)
        rows.append(
            {
                "start": start,
                "auctions": len(at),
                "mean_value": float(log.value[at].mean()),
                "mean_price": float(log.competing[at, 0].mean()),
                "best_reward": found.value * len(at),
                "reward_per_unit": found.budget_price,
                "budget_binds": found.budget_price > 1e-9,
                "roi_binds": found.roi_price > 1e-12,
            }
        )
    return pd.DataFrame(rows)


def _report_service(bidder: Any, state: Path, run: Run) -> None:
    """What the service leaves when it stops."""
    from assay._core.style import OURS, figure

    history = bidder.history_
    run.title = "Bidding service"
    run.subtitle = f"{bidder.t_:,} of {bidder.horizon:,} auctions"
    run.table("history", history, show=False)
    fig, ax = figure(7.0, 3.4)
    ax.plot(history["t"], history["target"], color="#2B2F36", linestyle=(0, (4, 2)), linewidth=1.2, label="pace")
    ax.plot(history["t"], history["spend"], color=OURS, label="spent")
    ax.set_xlabel("auctions")
    ax.set_ylabel("spent (currency)")
    ax.set_xlim(0, max(1, bidder.t_))
    ax.set_ylim(0, None)
    ax.legend(loc="upper left")
    run.figure("pacing", fig, caption="Spending so far and the pace.")
    run.result(
        auctions=bidder.t_, spend=bidder.spend_, reward=bidder.reward_, roi=bidder.roi_, violation=bidder.violation_,
        pending=bidder.pending_, timed_out=bidder.timed_out_, late_wins=bidder.late_wins_,
    )  # fmt: skip
    run.text("State", f"The state is in {state}; the same command goes on from it.")
