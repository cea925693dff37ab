"""Rounds per second of the compiled loop against the same round in numpy; bids per second of the live bidder and its ledger.

Run: ``pytest bench/decisions/bench_dual_balancing.py --benchmark-enable --benchmark-group-by=group``. In the group
"rounds" the loops play the same 8,000 auctions; ``extra_info["per_second"]`` compares across groups.
"""

import numpy as np
import pytest

from assay.decisions.dual_balancing import AutoBidder, make_log, make_stream
from assay.decisions.dual_balancing._balancing import State, build_setup, primal_rates
from assay.decisions.dual_balancing._experiments import numpy_rounds
from assay.decisions.dual_balancing._kernels import FULL
from assay.decisions.dual_balancing._ledger import Ledger
from assay.decisions.dual_balancing._log import default_multipliers, tables
from assay.decisions.dual_balancing._mechanisms import get_mechanism
from assay.decisions.dual_balancing._replay import play, replay

T = 8_000
REAL = 156_063  # auctions of the public iPinYou campaign 2997


def per_second(benchmark, n):
    if benchmark.stats:
        benchmark.extra_info["per_second"] = n / benchmark.stats.stats.median


@pytest.fixture(scope="module")
def problem():
    grid = default_multipliers()
    stream = make_stream("iid", make_log(T), T, 0)
    f, c, bids = tables(stream, get_mechanism("first"), grid, 1.0, slice(None))
    setup = build_setup(horizon=T, budget=0.1 * T, roi_target=1.5, feedback=FULL)
    return f, c, bids, setup, primal_rates("auto", FULL, len(grid), T)


@pytest.mark.benchmark(group="rounds")
def test_compiled(benchmark, problem):
    f, c, bids, setup, rates = problem

    def run():
        return play(setup, State(setup, 21, rates[2]), rates, FULL, f, c, bids, np.random.default_rng(0))[0]

    actions = benchmark.pedantic(run, rounds=10, warmup_rounds=1)
    per_second(benchmark, T)
    assert np.array_equal(actions, numpy_rounds(f, c, bids, setup, rates, np.random.default_rng(0).random(T))[0])


@pytest.mark.benchmark(group="rounds")
def test_numpy_per_round(benchmark, problem):
    f, c, bids, setup, rates = problem
    draws = np.random.default_rng(0).random(T)
    benchmark.pedantic(numpy_rounds, (f, c, bids, setup, rates, draws), rounds=3, warmup_rounds=1)
    per_second(benchmark, T)


@pytest.mark.benchmark(group="bandit")
@pytest.mark.parametrize("peer", ["ours", "mabwiser"])
def test_one_bandit_step(benchmark, peer):
    """A draw and an update of a bandit learner with 21 arms; mabwiser has no budgets, so the learner alone is compared."""
    rng = np.random.default_rng(0)
    if peer == "ours":
        from assay.decisions.dual_balancing import EXP3SIX

        learner = EXP3SIX(21, 10_000)
        benchmark(lambda: learner.update(learner.next(rng), 0.5))
    else:
        mabwiser = pytest.importorskip("mabwiser.mab", reason="peer: pip install mabwiser")
        mab = mabwiser.MAB(list(range(21)), mabwiser.LearningPolicy.Softmax(), seed=0)
        mab.fit([0], [0.5])
        benchmark(lambda: mab.partial_fit([mab.predict()], [0.5]))


@pytest.mark.benchmark(group="replay of 156,063 auctions")
@pytest.mark.parametrize("method", ["dual-balancing", "dual-balancing-grid", "plain", "pi", "linear", "greedy"])
def test_replay(benchmark, method):
    log = make_log(REAL)
    benchmark.pedantic(lambda: replay(method, log, budget=30.0 * REAL, roi_target=1.5), rounds=2, warmup_rounds=1)
    per_second(benchmark, REAL)
    if benchmark.stats:
        assert benchmark.stats.stats.median < 10


@pytest.mark.benchmark(group="live bids")
@pytest.mark.parametrize("kept", ["in memory", "on disk"])
@pytest.mark.parametrize("mechanism", ["first", "second"])
def test_bid_and_answer(benchmark, kept, mechanism, tmp_path):
    bidder = AutoBidder(mechanism, 10**7, 10**6)
    number = iter(range(10**7))
    if kept == "in memory":

        def step():
            k = next(number)
            bidder.bid(0.5, k)
            bidder.observe(k, won=False, competing=0.9)
    else:
        ledger = Ledger(bidder, tmp_path / "state.json")

        def step():
            key, _ = ledger.bid(0.5, next(number))
            ledger.observe(key, {"won": False, "competing": 0.9})

    benchmark(step)
    per_second(benchmark, 1)
    if benchmark.stats:
        assert benchmark.stats.stats.median < 1 / 500
