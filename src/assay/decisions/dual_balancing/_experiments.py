"""What the claims of this method run: one function per experiment, one call per cell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ._balancing import FEEDBACKS, State, build_setup, primal_rates
from ._hindsight import slater_margin, solve
from ._kernels import FULL
from ._learners import EXP3, EXP3SIX, FixedShareHedge, Hedge, fixed_share_rate, interval_regret
from ._log import BidLog, default_multipliers, make_log, tables
from ._mechanisms import GeneralizedSecondPrice, Mechanism, SoftFloor, get_mechanism
from ._replay import benchmark, play, replay
from ._streams import STREAMS, knife, make_stream, switching_bandit, three_bids, trap

if TYPE_CHECKING:
    from numpy.typing import NDArray

# mechanism, budget per auction, ROI target
SETTINGS: dict[str, tuple[str, float, float | None]] = {
    "first": ("first", 0.1, None),
    "second": ("second", 0.1, None),
    "first-roi": ("first", 0.15, 1.5),
    "second-roi": ("second", 0.1, 2.0),
}
# Near zero a regret or a violation is noise whose logarithm says nothing: below these multiples of sqrt(T) it counts as
# them. Regrets of .1 to .4 sqrt(T) are usual; a violation is usually none.
_REGRET_FLOOR, _FLOOR = 0.1, 0.01
# Rows of the simulated log: the longest stream has 128,000.
_SIMULATED = 160_000


def load_simulated() -> Any:
    """Simulated auctions of the library's generator, as a source of claims."""
    return _source("simulated", make_log(_SIMULATED, random_state=7, days=14.0))


def load_ipinyou() -> Any:
    """iPinYou campaign 2997, as a source of claims; needs the data file."""
    from assay._core.data import data_path

    with np.load(data_path("dual-balancing", "ipinyou_2997_test.npz", download=False), allow_pickle=False) as held:
        price, rate = held["market_price"].astype(float), held["pctr"].astype(float)
    return _source("ipinyou", BidLog(rate * 25_000.0, price, name="ipinyou"))


def _source(name: str, log: BidLog) -> Any:
    from assay.claims import Source, fingerprint

    return Source(name, data=log, task="auctions", fingerprint=fingerprint(log.value, log.competing), n_rows=len(log))


def _run(
    stream: BidLog, mechanism: str | Mechanism, rho: float, omega: float | None, seed: int, method: str = "dual-balancing",
    **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """One replay in units of the stream: its summary, with violations over sqrt(T)."""
    T = len(stream)
    result = replay(
        method, stream, budget=rho * T, roi_target=omega, mechanism=mechanism, scale=1.0, random_state=seed, **options
    )
    s = result.summary
    return {
        **s,
        "v_root": s["violation"] / math.sqrt(T),
        "v_max_root": s["violation_max"] / math.sqrt(T),
        "run": result,
    }


def stochastic(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Streams without order in every setting: ratio, spend, and mean regret and violation against the horizon.

    size: ``horizons``.
    """
    T = np.array(size["horizons"], dtype=float)
    rows = [[_run(make_stream("iid", data.data, int(n), seed), *SETTINGS[name], seed) for n in T] for name in SETTINGS]

    def table(key: str) -> NDArray[np.float64]:
        return np.array([[row[key] for row in line] for line in rows], dtype=float)

    # what the prototype reached with room to spare, by horizon
    wanted = np.interp(np.log(T), np.log([2e3, 8e3, 32e3, 128e3]), [0.95, 0.975, 0.985, 0.99])
    root = np.sqrt(T)
    with_target = np.array([omega is not None for _, _, omega in SETTINGS.values()])
    return {
        "T": T.tolist(),
        "ratio_above_wanted": (table("reward_over_opt") - wanted).ravel().tolist(),
        "spend_share": table("spend_share").ravel().tolist(),
        "regret": np.maximum(table("regret"), _REGRET_FLOOR * root).mean(axis=0).tolist(),
        "violation": np.maximum(table("violation")[with_target], _FLOOR * root).mean(axis=0).tolist(),
    }


def adversarial(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Streams whose world changes, in every setting: ratio against the paper's bound, and violation.

    size: ``T``.
    """
    T = size["T"]
    out: dict[str, Any] = {"ratio": [], "ratio_above_bound": [], "v_root": [], "spend_share": []}
    for name in ("three_phase", "drift", "switch", "real"):
        stream = make_stream(name, data.data, T, seed)
        for mechanism, rho, omega in SETTINGS.values():
            row = _run(stream, mechanism, rho, omega, seed)
            f, c, _ = tables(stream, get_mechanism(mechanism), default_multipliers(), 1.0, slice(None))
            alpha = max(0.0, slater_margin(f, c, rho, omega))
            out["ratio"].append(row["reward_over_opt"])
            out["ratio_above_bound"].append(row["reward_over_opt"] - alpha / (1 + alpha))
            out["v_root"].append(row["v_root"])
            out["spend_share"].append(row["spend_share"])
    return out


def three_phases(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """A middle third in which no win pays: the violation, and the reward of the outer thirds against their own optimum.

    size: ``T``.
    """
    mechanism, rho, omega = SETTINGS["second-roi"]
    T = size["T"]
    stream = make_stream("three_phase", data.data, T, seed)
    row = _run(stream, mechanism, rho, omega, seed)
    third = np.arange(T) * 3 // T
    outer = third != 1
    # what the outer thirds could do with the whole budget: it is they that it is spent in
    part = stream.take(outer)
    known = benchmark(part, get_mechanism(mechanism), default_multipliers(), 1.0, rho * T, omega)
    return {
        "v_root": row["v_root"],
        "outer_ratio": float(row["run"].gained[outer].sum() / (known.opt * len(part))),
        "ratio": row["reward_over_opt"],
    }


def _tables_run(
    f: NDArray[np.float64], c: NDArray[np.float64], seed: int, *, eta: float | None = None, plain: bool = False,
    roi_cap: float = math.inf, eta_roi: float | None = None,
) -> dict[str, float]:  # fmt: skip
    """A table with an ROI target of 1 and no budget, by fixed share or by plain exponential weights."""
    T, K = f.shape
    setup = build_setup(horizon=T, budget=None, roi_target=1.0, feedback=FULL, roi_cap=roi_cap, eta_roi=eta_roi)
    base = fixed_share_rate(K, T) if eta is None else eta
    rates = (base, 0.0, 0.0 if plain else 1.0 / T)
    state = State(setup, K, rates[2])
    top = np.broadcast_to(np.array([0.0, 1.0, 1.0]), (T, K))
    _, trace = play(setup, state, rates, FULL, f, c, top, np.random.default_rng(seed))
    root = math.sqrt(T)
    return {
        "violation": max(float(state.totals[0, 0]), _FLOOR * root),
        "v_root": max(0.0, float(state.totals[0, 0])) / root,
        "v_max": max(float(state.totals[0, 1]), _FLOOR * root),
        "v_max_root": max(0.0, float(state.totals[0, 1])) / root,
        "max_mu": float(trace[:, 0].max()),
    }


def knifes_edge(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """An ROI that is only just possible, with and without a multiplier cap from a wrong guess of the margin.

    size: ``betas``, ``horizons``. Arms: "ours", "capped" (plain exponential weights, mu at most 1 / (10 beta)).
    """
    capped = arm == "capped"
    total = []
    for T in size["horizons"]:
        rows = [
            _tables_run(*knife(T, beta, seed), seed, plain=capped, roi_cap=1 / (10 * beta) if capped else math.inf)
            for beta in size["betas"]
        ]
        total.append(float(np.mean([row["violation"] for row in rows])))
    return {"T": list(size["horizons"]), "violation": total, "last_violation": total[-1]}


def caps_in_auctions(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Real ROI targets in auctions: how large mu gets, and whether caps from a guessed margin of 0.05 change anything.

    size: ``T``. Arms: "ours", "cap-tenth" (1 / (10 beta) = 2), "cap" (1 / beta = 20).
    """
    rewards, violations, mus = [], [], []
    for omega in (1.5, 2.0, 3.0, 5.0):
        for mechanism in ("first", "second"):
            stream = make_stream("iid", data.data, size["T"], seed)
            cap = {"ours": math.inf, "cap-tenth": 2.0, "cap": 20.0}[arm]
            row = _capped_replay(stream, mechanism, 0.1, omega, seed, cap)
            rewards.append(row["reward"])
            violations.append(row["violation"])
            mus.append(row["max_mu"])
    return {"reward": rewards, "violation": violations, "max_mu": mus}


def _capped_replay(stream: BidLog, mechanism: str, rho: float, omega: float, seed: int, cap: float) -> dict[str, float]:
    """The grid learner with a cap on mu alone."""
    T, grid = len(stream), default_multipliers()
    setup = build_setup(horizon=T, budget=rho * T, roi_target=omega, feedback=FULL, roi_cap=cap)
    rates = primal_rates("auto", FULL, len(grid), T)
    state = State(setup, len(grid), rates[2])
    f, c, bids = tables(stream, get_mechanism(mechanism), grid, 1.0, slice(None))
    _, trace = play(setup, state, rates, FULL, f, c, bids, np.random.default_rng(seed))
    return {
        "reward": float(state.num[3]),
        "violation": max(0.0, float(state.totals[1, 0])),
        "max_mu": float(trace[:, 1].max()),
    }


def trap_game(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """The trap: multipliers and largest violation of fixed share and of plain exponential weights with the same step.

    size: ``horizons``.
    """
    rows = [_tables_run(*trap(T, seed), seed, plain=arm == "plain") for T in size["horizons"]]
    return {
        "max_mu": max(r["max_mu"] for r in rows),
        "mu": [r["max_mu"] for r in rows],
        "v_max_root": max(r["v_max_root"] for r in rows),
        "v_max": max(r["v_max"] for r in rows),
    }


def adaptive_or_plain(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Mean ratio over five worlds and two budgets, grid learners with equal steps.

    size: ``T``, ``mechanism``; optionally ``streams``. Arms: "ours", "plain".
    """
    ratios = []
    for name in size.get("streams", STREAMS):
        stream = make_stream(name, data.data, size["T"], seed)
        for rho in (0.1, 0.05):
            method = "plain" if arm == "plain" else "dual-balancing-grid"
            ratios.append(_run(stream, size["mechanism"], rho, None, seed, method)["reward_over_opt"])
    return {"ratio": float(np.mean(ratios)), "ratios": ratios}


def mechanisms(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Ratios with a soft floor and in generalised second price, over five worlds.

    size: ``T``.
    """
    ratios, roots = [], []
    for name in STREAMS:
        stream = make_stream(name, data.data, size["T"], seed)
        several = BidLog(stream.value, three_bids(stream.competing[:, 0], seed))
        runs = (
            (stream, SoftFloor(0.2), 0.1, None),
            (several, GeneralizedSecondPrice(), 0.08, None),
            (several, GeneralizedSecondPrice(), 0.1, 2.0),
        )
        for log, mechanism, rho, omega in runs:
            row = _run(log, mechanism, rho, omega, seed)
            ratios.append(row["reward_over_opt"])
            roots.append(row["v_root"])
    return {"ratios": ratios, "ratio": float(np.mean(ratios)), "v_root": roots}


def less_feedback(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Feedback on wins only, or on the own bid only: first and second price, and V with an ROI target.

    size: ``T``. Arms: "one_sided", "bandit".
    """
    stream = make_stream("iid", data.data, size["T"], seed)
    out: dict[str, Any] = {"v_root": []}
    for mechanism in ("first", "second"):
        row = _run(stream, mechanism, 0.1, None, seed, "dual-balancing-grid", feedback=arm)
        out[f"{mechanism}_ratio"] = row["reward_over_opt"]
        with_roi = _run(stream, mechanism, 0.15, 1.5, seed, "dual-balancing-grid", feedback=arm)
        out["v_root"].append(with_roi["v_root"])
    out["ratio"] = (out["first_ratio"] + out["second_ratio"]) / 2
    # what the prototype reached with one-sided feedback at 25,000 auctions, less a hundredth or two
    out["above_wanted"] = [out["first_ratio"] - 0.86, out["second_ratio"] - 0.91]
    return out


def interval(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Regret on the worst interval of a game whose best of ten arms changes ten times.

    size: ``T``. Arms: "fixed-share", "hedge", "exp3-six", "exp3".
    """
    T = size["T"]
    u = switching_bandit(T, 10, 10, seed)
    rng = np.random.default_rng([seed, 1])
    make: Any = {"fixed-share": FixedShareHedge, "hedge": Hedge, "exp3-six": EXP3SIX, "exp3": EXP3}[arm]
    learner = make(10, T)
    earned = np.zeros(T)
    for t in range(T):
        p = learner.probabilities()
        earned[t] = p @ u[t]
        if arm in ("fixed-share", "hedge"):
            learner.update(u[t])
        else:
            a = learner.next(rng)
            learner.update(a, u[t, a])
    return {"interval_regret": max(interval_regret(u, earned), 1e-9), "regret": float(u.sum(0).max() - earned.sum())}


def for_a_bidder(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Second price in the order of the log: reward and spending of this method and of what bidders use today.

    size: ``T``. Arms: "dual-balancing", "dual-balancing-grid", "greedy", "linear", "pi", "adaptive-pacing".
    """
    T, log = size["T"], data.data
    # A seed is a window of the log. Neighbouring seeds overlap by half, so their results are not independent.
    start = (seed * T // 2) % (len(log) - T + 1)
    part = log.take(slice(start, start + T))
    stream = BidLog(np.clip(part.value / 300.0, 0, 1), part.competing / 300.0)
    row = _run(stream, "second", 0.1, None, seed, arm)
    return {"ratio": row["reward_over_opt"], "spend_share": row["spend_share"]}


def budget_kept(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Random streams, budgets, targets and feedbacks: the largest share of the budget that was spent.

    size: ``streams``.
    """
    rng = np.random.default_rng(seed)
    shares = []
    for _ in range(size["streams"]):
        T, K = int(rng.integers(10, 400)), int(rng.integers(2, 8))
        f, c = rng.random((2, T, K))
        c **= float(rng.uniform(0.1, 3.0))  # from mostly dear to mostly cheap
        f[:, 0] = c[:, 0] = 0.0
        budget = float(np.exp(rng.uniform(math.log(0.05), math.log(0.9 * T))))
        for feedback in ("full", "bandit", "one_sided"):
            code = FEEDBACKS[feedback]
            omega = float(rng.uniform(0, 2)) if rng.random() < 0.5 else None
            setup = build_setup(horizon=T, budget=budget, roi_target=omega, feedback=code)
            rates = primal_rates("auto", code, K, T)
            state = State(setup, K, rates[2])
            top = np.broadcast_to(np.where(np.arange(K) > 0, 1.0, 0.0), (T, K))
            play(setup, state, rates, code, f, c, top, rng)
            shares.append(float(state.num[1]) / budget)
    return {"spend_share": max(shares), "runs": len(shares)}


def kernel_speed(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """The compiled loop against the same round written in numpy, in one process, in turns.

    size: ``T``.
    """
    from assay.claims import interleaved

    T = size["T"]
    stream = make_stream("iid", data.data, T, seed)
    grid = default_multipliers()
    f, c, bids = tables(stream, get_mechanism("first"), grid, 1.0, slice(None))
    setup = build_setup(horizon=T, budget=0.1 * T, roi_target=1.5, feedback=FULL)
    rates = primal_rates("auto", FULL, len(grid), T)
    got: dict[str, Any] = {}

    def ours() -> None:
        state = State(setup, len(grid), rates[2])
        got["ours"] = play(setup, state, rates, FULL, f, c, bids, np.random.default_rng(seed))[0], state

    def theirs() -> None:
        got["theirs"] = numpy_rounds(f, c, bids, setup, rates, np.random.default_rng(seed).random(T))

    timing = interleaved(ours, theirs, repeats=3)
    actions, lam, mu = got["theirs"]
    state = got["ours"][1]
    return {
        "ratio": timing["ratio"],
        "rounds_per_second": T / timing["ours_seconds"],
        "numpy_rounds_per_second": T / timing["theirs_seconds"],
        "different_actions": int((got["ours"][0] != actions).sum()),
        "multiplier_difference": max(abs(float(state.duals[0]) - lam), abs(float(state.duals[1]) - mu)),
    }


def numpy_rounds(
    f: NDArray[np.float64], c: NDArray[np.float64], worst: NDArray[np.float64], setup: Any,
    rates: tuple[float, float, float], draws: NDArray[np.float64],
) -> tuple[NDArray[np.int64], float, float]:  # fmt: skip
    """The round with full feedback, budget and ROI target in vectorised numpy, one round at a time."""
    T, K = f.shape
    eta, _, share = rates
    omega = setup.roi_target
    eta_b, eta_r = setup.step
    w, R, lam, mu, left = np.full(K, 1.0 / K), 1.0, 0.0, 0.0, setup.budget
    actions = np.zeros(T, dtype=np.int64)
    for t in range(T):
        a = int(np.searchsorted(np.cumsum(w), draws[t], side="right"))
        if worst[t, a] > left:
            a = 0
        actions[t] = a
        g = omega * c[t] - f[t]
        u = f[t] - lam * c[t] - mu * g
        high = u.max()
        R = max(R, high - u.min())
        w = w * np.exp(eta / R * (u - high))
        w = (1 - share) * (w / w.sum()) + share / K
        lam = min(max(0.0, lam + eta_b * (c[t, a] - setup.rho)), 1 / setup.rho)
        mu = max(0.0, mu + eta_r * g[a])
        left -= c[t, a]
    return actions, lam, mu


def optimum_of(stream: BidLog, mechanism: str, rho: float, omega: float | None) -> float:
    """Benchmark per round, for tests."""
    f, c, _ = tables(stream, get_mechanism(mechanism), default_multipliers(), 1.0, slice(None))
    return solve(f.mean(axis=0)[None], c.mean(axis=0)[None], np.ones(1), rho, omega).value
