"""Replays: a bidder, or a method by name, on a log whose outcomes are known for every bid."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from assay._core.errors import InputError

from ._balancing import FEEDBACKS, State, build_setup, checked_grid, primal_rates
from ._hindsight import best_fixed, slater_margin, solve
from ._kernels import (
    BOTH,
    CLOSED_FORM,
    FIXED,
    FULL,
    PACING,
    PI,
    ROUNDS,
    SPEND,
    STOPPED,
    play_grid,
    play_multiplier,
)
from ._learners import check_count, check_number, fixed_share_rate
from ._log import BidLog, default_multipliers, tables
from ._mechanisms import Mechanism, checked_tables, get_mechanism, kernel_setting, reserve_of

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike, NDArray

    from ._balancing import Setup

METHODS = {
    "dual-balancing": "this method; the closed form in second price, the grid learner otherwise",
    "dual-balancing-grid": "this method with the grid learner",
    "plain": "the grid learner without fixed share (Hedge with the same step)",
    "capped": "plain, and multipliers capped at 1/alpha for a guessed Slater margin",
    "adaptive-pacing": "bids value/(1 + lambda), dual mirror descent on the budget; knows no ROI target",
    "roi-descent": "closed-form bids, multipliers capped at 1/alpha for a guessed Slater margin",
    "pi": "a proportional-integral controller of the multiplier; knows no ROI target",
    "linear": "one multiplier, the best on the first fifth of the log",
    "greedy": "bids the value until the budget is gone",
}
# Rows of counterfactual tables held at a time: 65,536 x 21 x 3 numbers are 33 MB.
CHUNK = 65_536
WARM_UP = 200  # values that the bins of the per-value learners are made from
# Error of the controller: at one per cent of the budget behind, bids rise by a fifth; found on simulated logs, seeds 0-9.
PI_GAIN = 20.0
PI_INTEGRAL = 40.0
TRAJECTORY = 2_000  # rows of a trajectory at most


@dataclass
class ReplayResult:
    """What a replay gives.

    Attributes
    ----------
    method : str
        Its name.
    summary : dict
        One row: method, seed, T, reward, reward_over_opt, regret, spend_share, roi, violation, violation_max,
        max_lambda, max_mu, stopped_at, seconds and the benchmarks.
    bids, gained, paid : ndarray, T
        Bid, reward and cost of every round (currency).
    multipliers : ndarray, T x 2
        lambda and mu after every round (NaN for methods without them).
    chosen : ndarray, T
        Multiplier of the value that was bid (0: void).
    """

    method: str
    summary: dict[str, Any]
    bids: NDArray[np.float64]
    gained: NDArray[np.float64]
    paid: NDArray[np.float64]
    multipliers: NDArray[np.float64]
    chosen: NDArray[np.float64] = field(repr=False)

    def trajectory(self, rows: int = TRAJECTORY) -> pd.DataFrame:
        """Return at most `rows` points of the run: t, bid, spend and reward so far, roi, lambda, mu."""
        import pandas as pd

        T = len(self.bids)
        at = np.unique(np.linspace(0, T - 1, min(rows, T)).round().astype(np.int64))
        spend, reward = np.cumsum(self.paid)[at], np.cumsum(self.gained)[at]
        return pd.DataFrame(
            {
                "t": at + 1,
                "bid": self.bids[at],
                "spend": spend,
                "reward": reward,
                "roi": np.divide(reward, spend, out=np.full(len(at), np.nan), where=spend > 0),
                "lambda": self.multipliers[at, 0],
                "mu": self.multipliers[at, 1],
            }
        )


@dataclass
class Benchmark:
    """What could have been had on a log: the LP, the best single multiplier, the margins."""

    opt: float
    mixture: NDArray[np.float64]
    budget_price: float
    roi_price: float
    fixed: float
    fixed_multiplier: float
    margin: float
    mean_reward: NDArray[np.float64]
    mean_cost: NDArray[np.float64]


def benchmark(
    log: BidLog, mechanism: Mechanism, grid: NDArray[np.float64], cap: float, budget: float, roi_target: float | None
) -> Benchmark:
    """LP and best fixed multiplier from the mean reward and cost of every multiplier."""
    T = len(log)
    f, c = np.zeros(len(grid)), np.zeros(len(grid))
    for start in range(0, T, CHUNK):
        rewards, costs, _ = tables(log, mechanism, grid, cap, slice(start, start + CHUNK))
        f += rewards.sum(axis=0)
        c += costs.sum(axis=0)
    f, c = f / T, c / T
    found = solve(f[None], c[None], np.ones(1), budget / T, roi_target)
    value, k = best_fixed(f, c, budget / T, roi_target)
    margin = slater_margin(f[None], c[None], budget / T, roi_target)
    return Benchmark(
        found.value, found.mixture[0], found.budget_price, found.roi_price, value, float(grid[k]), margin, f, c
    )


def value_edges(first: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    """Inner edges of `bins` bins with equal counts."""
    return np.quantile(first, np.arange(1, bins) / bins)


def value_contexts(values: NDArray[np.float64], bins: int) -> NDArray[np.int64]:
    """Bin of every value; the first 200, from which the bins are made, share a context of their own."""
    if bins == 1:
        return np.zeros(len(values), dtype=np.int64)
    context = np.searchsorted(value_edges(values[:WARM_UP], bins), values, side="right").astype(np.int64)
    context[:WARM_UP] = bins
    return context


def replay(
    bidder: Any,
    log: BidLog,
    *,
    budget: float,
    roi_target: float | None = None,
    mechanism: str | Mechanism = "second",
    multipliers: ArrayLike | None = None,
    feedback: Literal["full", "bandit", "one_sided"] = "full",
    primal: str = "auto",
    value_bins: int = 1,
    target_spend: ArrayLike | None = None,
    scale: float | None = None,
    alpha: float | None = None,
    eta_budget: float | None = None,
    eta_roi: float | None = None,
    random_state: int = 0,
    reference: Benchmark | None = None,
) -> ReplayResult:
    """Run a bidder over a log of auctions as if it had been there, and compare with the best in hindsight.

    Parameters
    ----------
    bidder : str or object
        A method by name (see ``METHODS``), or any object with ``bid(value)`` and
        ``observe(won=, price=, competing=)``.
    log : BidLog
        The auctions in time order, as many as the horizon.
    budget : float
        In the currency of the log.
    roi_target : float, default None
        Reward over cost to be reached.
    mechanism : str or Mechanism, default "second"
        How the auctions are decided.
    multipliers : array-like, K, default None
        Grid of the grid learner and of the benchmark; None is 21 multipliers from 0 to 2.
    feedback : {"full", "bandit", "one_sided"}, default "full"
        What the grid learner is told.
    primal : str, default "auto"
        Grid learner by name, see `DualBalancing`.
    value_bins : int, default 1
        Above 1: a learner per value bin.
    target_spend : array-like, default None
        Cumulative spending to follow.
    scale : float, default None
        Unit of values, prices and bids, and the largest bid; None is ``log.scale``.
    alpha : float, default None
        Guessed Slater margin for "capped" and "roi-descent" (in units of `scale`).
    eta_budget, eta_roi : float, default None
        Steps of the multipliers.
    random_state : int, default 0
        Seed of the drawn actions.
    reference : Benchmark, default None
        The benchmark of the same log and settings, where it is known already.

    Returns
    -------
    ReplayResult
        Summary, bids, rewards and costs.

    Raises
    ------
    InputError
        If the method is unknown or a setting is out of range.

    Examples
    --------
    >>> from assay.decisions.dual_balancing import make_log, replay
    >>> log = make_log(2000, random_state=1)
    >>> result = replay("dual-balancing", log, budget=20_000.0)
    >>> result.summary["spend_share"] <= 1
    True
    """
    mech = get_mechanism(mechanism)
    grid = default_multipliers() if multipliers is None else checked_grid(multipliers, "multipliers")
    unit = log.scale if scale is None else float(scale)
    if feedback not in FEEDBACKS:
        raise InputError(f"feedback must be full, bandit or one_sided, got {feedback!r}.")
    check_count("value_bins", value_bins, 1)
    check_number("budget", budget, open_low=True)
    known = reference or benchmark(log, mech, grid, unit, budget, roi_target)
    began = time.perf_counter()
    if isinstance(bidder, str):
        if bidder not in METHODS:
            raise InputError(f"There is no method {bidder!r}; use {', '.join(METHODS)}.")
        name = bidder
        code = FEEDBACKS[feedback]
        closed = bidder == "dual-balancing" and primal == "auto" and takes_closed_form(mech, code, value_bins)
        on_grid = bidder in ("dual-balancing-grid", "plain", "capped") or (bidder == "dual-balancing" and not closed)
        capped = bidder in ("capped", "roi-descent")
        if capped and (alpha is None or not alpha > 0):
            raise InputError(f"The method {bidder} needs alpha > 0, the Slater margin that it is told.")
        knows_roi = bidder not in ("adaptive-pacing", "pi", "linear", "greedy")
        setup = build_setup(
            horizon=len(log), budget=budget, roi_target=roi_target if knows_roi else None,
            feedback=code if on_grid else FULL, unit=unit, eta_budget=eta_budget, eta_roi=eta_roi,
            target_spend=target_spend, roi_cap=1.0 / alpha if capped and alpha else math.inf,
        )  # fmt: skip
        if capped and alpha:
            setup.cap[0] = min(setup.cap[0], 1.0 / alpha)
        if on_grid:
            plain = bidder in ("plain", "capped")
            rounds = max(1, len(log) // value_bins)
            rates = primal_rates(primal, code, len(grid), rounds)
            if plain:
                rates = (fixed_share_rate(len(grid), len(log)) if code == FULL else rates[0], 0.0, 0.0)
            parts = _replay_grid(log, mech, grid, setup, rates, code, value_bins, random_state)
        else:
            parts = _replay_multiplier(bidder, log, mech, grid, setup)
    else:
        name = type(bidder).__name__
        parts = _replay_object(bidder, log, mech)
    bids, gained, paid, duals, stopped = parts
    seconds = time.perf_counter() - began
    summary = summarise(log, gained, paid, duals, budget, roi_target, known)
    summary = {"method": name, "seed": random_state, **summary, "stopped_at": stopped, "seconds": seconds}
    chosen = np.divide(bids, log.value, out=np.zeros(len(bids)), where=log.value > 0)
    return ReplayResult(name, summary, bids, gained, paid, duals, chosen)


def takes_closed_form(mechanism: Mechanism, feedback: int, value_bins: int) -> bool:
    """Whether ``primal="auto"`` uses the closed form: prices are then second prices, and one bid fits all values."""
    from ._mechanisms import PostedPrice, SecondPrice

    return type(mechanism) in (SecondPrice, PostedPrice) and feedback == FULL and value_bins == 1


def summarise(
    log: BidLog, gained: NDArray[np.float64], paid: NDArray[np.float64], duals: NDArray[np.float64], budget: float,
    roi_target: float | None, known: Benchmark,
) -> dict[str, Any]:  # fmt: skip
    """The row of numbers of one replay."""
    T = len(log)
    reward, spend = float(gained.sum()), float(np.add.accumulate(paid)[-1])
    missing = np.cumsum(roi_target * paid - gained) if roi_target is not None else np.zeros(T)
    total = T * known.opt

    def largest(column: int) -> float:
        x = duals[:, column]
        return float(np.nanmax(x)) if np.isfinite(x).any() else math.nan

    return {
        "T": T,
        "reward": reward,
        "reward_over_opt": reward / total if total > 0 else math.nan,
        "regret": total - reward,
        "reward_over_fixed": reward / (T * known.fixed) if known.fixed > 0 else math.nan,
        "spend": spend,
        "spend_share": spend / budget,
        "roi": reward / spend if spend > 0 else math.nan,
        "violation": max(0.0, float(missing[-1])),
        "violation_max": max(0.0, float(missing.max())),
        "max_lambda": largest(0),
        "max_mu": largest(1),
    }


def _replay_grid(
    log: BidLog, mech: Mechanism, grid: NDArray[np.float64], setup: Setup, rates: tuple[float, float, float], code: int,
    bins: int, seed: int,
) -> tuple[Any, ...]:  # fmt: skip
    T = len(log)
    context = value_contexts(log.value, bins)
    state = State(setup, len(grid), rates[2], 1 if bins == 1 else bins + 1)
    rng = np.random.default_rng(seed)
    out = np.zeros((3, T))
    duals = np.full((T, 2), np.nan)
    for start in range(0, T, CHUNK):
        rows = slice(start, min(start + CHUNK, T))
        f, c, bids = tables(log, mech, grid, setup.unit, rows)
        actions, trace = play(setup, state, rates, code, f, c, bids, rng, start, context[rows])
        at = np.arange(len(f)), actions
        out[0, rows], out[1, rows], out[2, rows] = bids[at], f[at], c[at]
        _keep_duals(duals, rows, trace, setup)
    return (*out, duals, _stopped(state))


def play(
    setup: Setup, state: State, rates: tuple[float, float, float], code: int, f: NDArray[np.float64],
    c: NDArray[np.float64], worst: NDArray[np.float64], rng: np.random.Generator, start: int = 0,
    context: NDArray[np.int64] | None = None, usage: NDArray[np.float64] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:  # fmt: skip
    """Play rounds `start` to ``start + n`` over tables with the compiled loop; actions and multipliers per round."""
    n, K = f.shape
    actions, trace = np.zeros(n, dtype=np.int64), np.zeros((n, len(setup.limit)))
    par = np.array([*rates, setup.unit, setup.budget, float(setup.has_budget)])
    play_grid(
        BOTH, code, f, c, np.zeros((n, setup.usages, K)) if usage is None else usage, worst, setup.paces(start, n),
        rng.random(n), np.zeros(n, dtype=np.int64) if context is None else context, state.w, np.zeros(K), setup.coef,
        setup.limit, setup.cap, setup.step, state.duals, state.totals, state.num, par, actions, np.zeros(n, dtype=np.int8),
        trace, 1,
    )  # fmt: skip
    return actions, trace


def _keep_duals(duals: NDArray[np.float64], rows: slice, trace: NDArray[np.float64], setup: Setup) -> None:
    if setup.has_budget:
        duals[rows, 0] = trace[:, 0]
    if setup.roi >= 0:
        duals[rows, 1] = trace[:, setup.roi]


def _stopped(state: State) -> float:
    return float(state.num[STOPPED]) if state.num[STOPPED] >= 0 else math.nan


def _replay_multiplier(
    method: str, log: BidLog, mech: Mechanism, grid: NDArray[np.float64], setup: Setup
) -> tuple[Any, ...]:
    known = kernel_setting(mech)
    if known is None:
        raise InputError(f"The method {method} cannot be replayed with a mechanism of your own; use the grid methods.")
    code, setting = known
    T = len(log)
    kinds = {"dual-balancing": CLOSED_FORM, "roi-descent": CLOSED_FORM, "adaptive-pacing": PACING, "pi": PI}
    kind = kinds.get(method, FIXED)
    multiplier = 1.0
    if method == "linear":
        multiplier = _tuned(log, mech, setup)
    total = setup.budget / setup.unit
    par = np.array(
        [2.0, multiplier, PI_GAIN / total, setup.unit, setup.budget, 1.0, PI_INTEGRAL / (total * T), 0.0, 0.0]
    )
    state = State(setup, 1, 1.0)
    out = np.zeros((3, T))
    trace = np.zeros((T, len(setup.limit)))
    play_multiplier(
        BOTH, kind, code, log.value, log.competing, log.floors(reserve_of(mech)), setup.paces(0, T), setup.coef,
        setup.limit, setup.cap, setup.step, state.duals, state.totals, state.num, par, setting, out[0], out[1], out[2],
        trace, 1,
    )  # fmt: skip
    duals = np.full((T, 2), np.nan)
    if kind in (CLOSED_FORM, PACING):
        _keep_duals(duals, slice(None), trace, setup)
    return (*out, duals, _stopped(state))


def _tuned(log: BidLog, mech: Mechanism, setup: Setup) -> float:
    """The multiplier that would have earned most on the first fifth within its share of the budget."""
    head = max(1, len(log) // 5)
    fine = np.linspace(0.0, 2.0, 81)
    f, c, _ = tables(log, mech, fine, setup.unit, slice(0, head))
    _, k = best_fixed(f.mean(axis=0), c.mean(axis=0), setup.budget / len(log), None)
    return float(fine[k])


def _replay_object(bidder: Any, log: BidLog, mech: Mechanism) -> tuple[Any, ...]:
    for name in ("bid", "observe"):
        if not callable(getattr(bidder, name, None)):
            raise InputError(
                f"A bidder needs the methods bid() and observe(); {type(bidder).__name__} has no {name}()."
            )
    T = len(log)
    out, duals = np.zeros((3, T)), np.full((T, 2), np.nan)
    floors = log.floors()
    for t in range(T):
        v = float(log.value[t])
        bid = float(bidder.bid(v))
        won, fraction, price = (np.asarray(x)[0] for x in mech.outcome(np.array([bid]), log.competing[t]))
        won = bool(won) and bid >= floors[t]
        cost = float(fraction) * max(float(price), float(floors[t])) if won else 0.0
        competing = log.competing[t] if log.competing.shape[1] > 1 else float(log.competing[t, 0])
        position = {"value": float(fraction) * v} if won and fraction < 1 else {}
        bidder.observe(won=won, price=cost, competing=competing, **position)
        out[:, t] = bid, float(fraction) * v if won else 0.0, cost
        duals[t] = getattr(bidder, "lambda_", math.nan), getattr(bidder, "mu_", math.nan)
    return (*out, duals, math.nan)


def simulate(
    rewards: ArrayLike,
    costs: ArrayLike,
    methods: Sequence[str] | Mapping[str, Mapping[str, Any]] = ("fixed_share",),
    seeds: Iterable[int] = (0,),
    *,
    budget: float | None = None,
    roi_target: float | None = None,
    worst: ArrayLike | None = None,
) -> pd.DataFrame:
    """Play tables of rewards and costs with several learners and seeds by the compiled loop.

    Every stream gives, to the last bit, what `DualBalancing` gives when it is fed the same table round by round.

    Parameters
    ----------
    rewards, costs : array-like, T x K
        In [0, 1]; action 0 is void (zeros).
    methods : sequence of str, or mapping of name to settings, default ("fixed_share",)
        Learners by name ("fixed_share", "hedge", "exp3six", "exp3", "one_sided"), or a name of your own with settings:
        ``primal``, ``eta``, ``share``, ``eta_budget``, ``eta_roi``, ``dual_cap``.
    seeds : iterable of int, default (0,)
        One stream for each.
    budget : float, default None
        Total.
    roi_target : float, default None
        omega.
    worst : array-like, K, default None
        Largest cost of each action; None is 1 for all but void.

    Returns
    -------
    DataFrame
        A row per method and seed: reward, reward_over_opt, regret, spend, roi, violation, violation_max, max_lambda,
        max_mu, stopped_at.

    Examples
    --------
    >>> from assay.decisions.dual_balancing import simulate
    >>> table = simulate([[0.0, 0.8]] * 50, [[0.0, 0.5]] * 50, ["fixed_share"], [0, 1], budget=10.0)
    >>> bool((table["spend"] <= 10).all())
    True
    """
    import pandas as pd

    f, c = checked_tables(rewards, costs)
    if f[:, 0].any() or c[:, 0].any():
        raise InputError("Action 0 must be void: its rewards and costs are zeros.")
    T, K = f.shape
    top = np.where(np.arange(K) > 0, 1.0, 0.0) if worst is None else np.asarray(worst, dtype=np.float64)
    if top.shape != (K,) or (c > top).any():
        raise InputError("worst must be one number per action, none below a cost in the table.")
    named = dict(methods) if isinstance(methods, Mapping) else {m: {"primal": m} for m in methods}
    codes = {"fixed_share": "full", "hedge": "full", "exp3six": "bandit", "exp3": "bandit", "one_sided": "one_sided"}
    rho = budget / T if budget is not None else math.inf
    opt = solve(f.mean(axis=0)[None], c.mean(axis=0)[None], np.ones(1), rho, roi_target).value
    rows = []
    for name, settings in named.items():
        options = dict(settings)
        primal = options.pop("primal", "fixed_share")
        if primal not in codes:
            raise InputError(f"There is no learner {primal!r}; use {', '.join(codes)}.")
        code = FEEDBACKS[codes[primal]]
        eta, gamma, share = primal_rates(primal, code, K, T)
        rates = (options.pop("eta", None) or eta, gamma, options.pop("share", share))
        limit = options.pop("dual_cap", math.inf)
        unknown = sorted(set(options) - {"eta_budget", "eta_roi"})
        if unknown:
            raise InputError(f"The method {name!r} has the unknown setting {unknown[0]!r}.")
        setup = build_setup(horizon=T, budget=budget, roi_target=roi_target, feedback=code, roi_cap=limit, **options)
        if setup.has_budget:
            setup.cap[0] = min(setup.cap[0], limit)
        for seed in seeds:
            state = State(setup, K, rates[2])
            rng = np.random.default_rng(check_count("seed", seed, 0))
            _, trace = play(setup, state, rates, code, f, c, np.broadcast_to(top, (T, K)), rng)
            reward, spend = float(state.num[3]), float(state.num[SPEND])
            roi = setup.roi
            rows.append(
                {
                    "method": name,
                    "seed": seed,
                    "T": int(state.num[ROUNDS]),
                    "reward": reward,
                    "reward_over_opt": reward / (T * opt) if opt > 0 else math.nan,
                    "regret": T * opt - reward,
                    "spend": spend,
                    "roi": reward / spend if spend > 0 else math.nan,
                    "violation": max(0.0, float(state.totals[roi, 0])) if roi >= 0 else 0.0,
                    "violation_max": float(state.totals[roi, 1]) if roi >= 0 else 0.0,
                    "max_lambda": float(trace[:, 0].max()) if setup.has_budget else math.nan,
                    "max_mu": float(trace[:, roi].max()) if roi >= 0 else math.nan,
                    "stopped_at": _stopped(state),
                }
            )
    return pd.DataFrame(rows)
