"""Mechanisms by enumeration, replays against the definition, and the environment."""

import math

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from assay._core.data import data_path, sample_path
from assay._core.errors import InputError, MissingData
from assay.decisions.dual_balancing import (
    BidLog,
    FirstPrice,
    GeneralizedSecondPrice,
    Mechanism,
    PostedPrice,
    RepeatedAuctionEnv,
    SecondPrice,
    SoftFloor,
    Table,
    counterfactuals,
    hindsight_optimum,
    make_log,
    make_stream,
    replay,
    simulate,
)
from assay.decisions.dual_balancing._formats import read_log
from assay.decisions.dual_balancing._log import default_multipliers
from assay.decisions.dual_balancing._mechanisms import get_mechanism
from assay.decisions.dual_balancing._replay import METHODS, benchmark
from assay.decisions.dual_balancing._streams import STREAMS, knife, three_bids, trap


def by_hand(mechanism, bid, competing):
    """(share of the value, cost) of one bid, in plain words."""
    top = competing[0]
    if bid <= 0:
        return 0.0, 0.0
    if isinstance(mechanism, FirstPrice):
        return (1.0, bid) if bid >= max(top, mechanism.reserve) else (0.0, 0.0)
    if isinstance(mechanism, SecondPrice):
        price = max(top, mechanism.reserve)
        return (1.0, price) if bid >= price else (0.0, 0.0)
    if isinstance(mechanism, PostedPrice):
        return (1.0, top) if bid >= top else (0.0, 0.0)
    if isinstance(mechanism, SoftFloor):
        if bid < top:
            return 0.0, 0.0
        return (1.0, max(top, mechanism.floor)) if bid >= mechanism.floor else (1.0, bid)
    ranks = sorted([*competing], reverse=True)
    place = sum(x > bid for x in ranks)
    if place >= len(mechanism.ctr):
        return 0.0, 0.0
    below = ranks[place] if place < len(ranks) else 0.0
    return mechanism.ctr[place], mechanism.ctr[place] * below


MECHANISMS = [
    FirstPrice(), FirstPrice(0.3), SecondPrice(), SecondPrice(0.3), PostedPrice(), SoftFloor(0.4), GeneralizedSecondPrice(),
    GeneralizedSecondPrice((0.9, 0.1)),
]  # fmt: skip


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: f"{type(m).__name__}{vars(m)}")
def test_outcomes_by_enumeration(mechanism):
    assert isinstance(mechanism, Mechanism)
    rng = np.random.default_rng(0)
    rivals = 3 if isinstance(mechanism, GeneralizedSecondPrice) else 1
    competing = -np.sort(-np.round(rng.random((60, rivals)), 1), axis=1)  # tenths, so that ties happen
    bids = np.linspace(0, 1, 11).round(1)
    won, fraction, price = mechanism.outcome(np.broadcast_to(bids, (60, 11)), competing)
    for t in range(60):
        for k, bid in enumerate(bids):
            share, cost = by_hand(mechanism, bid, competing[t])
            assert fraction[t, k] == share, (bid, competing[t])
            assert fraction[t, k] * price[t, k] == cost, (bid, competing[t])
            assert won[t, k] == (share > 0)
            assert cost <= bid


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: f"{type(m).__name__}{vars(m)}")
@pytest.mark.parametrize("method", ["greedy", "linear", "pi", "adaptive-pacing", "roi-descent"])
def test_compiled_auctions_are_those_of_the_mechanisms(mechanism, method):
    """Bids that are no multiples on a grid are decided inside the compiled loop: the same outcomes, floors included."""
    log = make_stream("iid", make_log(300), 300, 0)
    competing = three_bids(log.competing[:, 0]) if isinstance(mechanism, GeneralizedSecondPrice) else log.competing
    log = BidLog(log.value, competing, floor=np.where(np.arange(300) % 5 == 0, 0.25, 0.0))
    result = replay(method, log, budget=20.0, roi_target=1.5, mechanism=mechanism, scale=1.0, alpha=0.1)
    for t in range(300):
        share, cost = by_hand(mechanism, result.bids[t], log.competing[t])
        if result.bids[t] < log.floor[t]:
            share, cost = 0.0, 0.0
        elif share:
            cost = max(cost, share * log.floor[t])
        assert result.gained[t] == pytest.approx(share * log.value[t], abs=1e-15)
        assert result.paid[t] == pytest.approx(cost, abs=1e-15)
    assert result.summary["spend"] <= 20.0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mechanism", ["first", "second", SoftFloor(0.2), GeneralizedSecondPrice()])
def test_every_method_keeps_the_budget(method, mechanism):
    log = make_stream("drift", make_log(800), 800, 0)
    for budget in (0.3, 30.0):
        summary = replay(method, log, budget=budget, roi_target=1.2, mechanism=mechanism, scale=1.0, alpha=0.1).summary
        assert summary["spend"] <= budget
        assert summary["T"] == 800


@pytest.mark.parametrize("method", ["dual-balancing", "pi", "adaptive-pacing", "greedy"])
def test_without_numba_the_same_bits(method, monkeypatch):
    log = make_stream("switch", make_log(400), 400, 0)
    a = replay(method, log, budget=30.0, roi_target=1.3, scale=1.0)
    monkeypatch.setenv("ASSAY_NO_NUMBA", "1")
    b = replay(method, log, budget=30.0, roi_target=1.3, scale=1.0)
    assert np.array_equal(a.bids, b.bids)
    assert np.array_equal(a.multipliers, b.multipliers, equal_nan=True)


def test_summary_is_what_the_rounds_say():
    log = make_stream("iid", make_log(500), 500, 0)
    result = replay("dual-balancing", log, budget=40.0, roi_target=2.5, mechanism="first", scale=1.0)
    f, c = counterfactuals(log, "first", cap=1.0)
    value, _ = hindsight_optimum(f, c, 40.0 / 500, 2.5)
    s = result.summary
    assert s["reward"] == pytest.approx(result.gained.sum())
    assert s["reward_over_opt"] == pytest.approx(result.gained.sum() / (500 * value))
    assert s["regret"] == pytest.approx(500 * value - result.gained.sum())
    g = np.cumsum(2.5 * result.paid - result.gained)
    assert s["violation"] == pytest.approx(max(0, g[-1]))
    assert s["violation_max"] == pytest.approx(max(0, g.max()))
    frame = result.trajectory(100)
    assert len(frame) == 100
    assert frame["spend"].iloc[-1] == pytest.approx(s["spend"])


def test_the_best_fixed_multiplier_cannot_beat_the_mixture():
    for name in STREAMS:
        log = make_stream(name, make_log(400), 400, 0)
        s = replay("greedy", log, budget=30.0, roi_target=1.5, scale=1.0).summary
        assert s["reward_over_fixed"] >= s["reward_over_opt"] * (1 - 1e-9)


def test_counterfactuals_by_hand():
    log = BidLog([1.0, 0.5], [0.4, 0.6], floor=[0.5, 0.0])
    f, c = counterfactuals(log, "second", [0.0, 0.45, 0.5, 2.0])
    assert f.tolist() == [[0, 0, 1, 1], [0, 0, 0, 0.5]]
    assert c.tolist() == [[0, 0, 0.5, 0.5], [0, 0, 0, 0.6]]


def test_a_mechanism_of_ones_own():
    class AllPay:
        """Second price, and the value counts double."""

        def outcome(self, bid, state):
            won, fraction, price = SecondPrice().outcome(bid, state)
            return won, 2 * fraction, price / 2

    log = make_stream("iid", make_log(300), 300, 0)
    ours = replay("dual-balancing", log, budget=20.0, mechanism=AllPay(), scale=1.0).summary
    plain = replay("dual-balancing-grid", log, budget=20.0, mechanism="second", scale=1.0).summary
    assert ours["reward"] > 1.5 * plain["reward"]
    with pytest.raises(InputError, match="of your own"):
        replay("pi", log, budget=20.0, mechanism=AllPay(), scale=1.0)

    class Overcharges(AllPay):
        def outcome(self, bid, state):
            won, fraction, _ = SecondPrice().outcome(bid, state)
            return won, fraction, 3 * np.asarray(bid)

    with pytest.raises(InputError, match="more than the bid"):
        replay("dual-balancing", log, budget=20.0, mechanism=Overcharges(), scale=1.0)


def test_tables_get_a_void_action():
    table = Table([[0.8, 0.3], [0.2, 0.1]], [[0.8, 0.2], [0.1, 0.1]])
    assert table.rewards.shape == (2, 3)
    won, fraction, price = table.outcome([0, 1, 2], state=0)
    assert won.tolist() == [False, True, True]
    assert (fraction * price).tolist() == [0.0, 0.8, pytest.approx(0.2)]
    with pytest.raises(InputError):
        Table([[1.2]], [[0.1]])
    with pytest.raises(InputError):
        Table([[0.2]], [[0.1, 0.2]])


def test_streams_are_what_they_say():
    log = make_log(900)
    rows = {name: make_stream(name, log, 900, 3) for name in STREAMS}
    assert np.array_equal(np.sort(rows["iid"].value), np.sort(np.clip(log.value / 300, 0, 1)))
    assert np.array_equal(rows["real"].competing[:, 0], log.competing[:, 0] / 300)
    iid, phase = rows["iid"], rows["three_phase"]
    assert np.allclose(phase.competing[:300], 0.7 * iid.competing[:300])
    assert (phase.competing[300:600, 0] > phase.value[300:600]).all()
    assert np.allclose(rows["drift"].competing[-1], 1.4 * iid.competing[-1])
    assert np.allclose(rows["switch"].value[90:180], 0.5 * iid.value[90:180])
    f, c = trap(1000)
    assert ((f >= 0) & (f <= 1) & (c >= 0) & (c <= 1)).all()
    f, c = knife(1000, 0.05)
    assert (f[:, 2] - c[:, 2]).mean() == pytest.approx(0.05)
    with pytest.raises(InputError):
        make_stream("iid", log, 901)
    with pytest.raises(InputError):
        make_stream("calm", log, 10)


def test_the_generator_is_seeded_and_of_the_shape_that_it_says():
    a, b, other = make_log(5000, random_state=1), make_log(5000, random_state=1), make_log(5000, random_state=2)
    assert np.array_equal(a.value, b.value)
    assert np.array_equal(a.competing, b.competing)
    assert not np.array_equal(a.value, other.value)
    assert (np.diff(a.hour) >= 0).all()
    traffic = np.bincount(a.hour.astype(int) % 24, minlength=24)
    assert min(traffic[12:14].sum(), traffic[20:22].sum()) > 3 * traffic[3:5].sum()
    assert 25 < np.median(a.competing) < 42
    assert 70 < np.median(a.value) < 110


def test_the_shipped_sample_is_the_generators():
    log = read_log(sample_path("dual-balancing", "simulated_auctions.csv.gz"))
    made = make_log(8000, random_state=2024)
    np.testing.assert_allclose(log.value, made.value, rtol=1e-5)  # six digits are in the file
    np.testing.assert_allclose(log.competing, made.competing, rtol=1e-5)
    assert np.array_equal(log.converted, made.converted)


def test_real_auctions_within_ten_seconds():
    """156,063 iPinYou auctions, each method; needs the data file, whose licence does not let it into the package."""
    try:
        path = data_path("dual-balancing", "ipinyou_2997_test.npz", download=False)
        log, opt = read_log(path, value_per_click=25_000.0), 0.98
    except MissingData:
        log, opt = make_log(156_063), 0.98
    log.value = np.minimum(log.value, 300.0)
    known = {name: benchmark(log, get_mechanism(name), default_multipliers(), log.scale, 30.0 * len(log), 1.5)
             for name in ("first", "second")}  # fmt: skip
    for method in METHODS:
        for mechanism in ("first", "second") if method.startswith("dual-balancing") else ("second",):
            s = replay(
                method,
                log,
                budget=30.0 * len(log),
                roi_target=1.5,
                mechanism=mechanism,
                alpha=0.05,
                reference=known[mechanism],
            ).summary
            assert s["seconds"] < 10
            assert s["spend"] <= 30.0 * len(log)
            if method.startswith("dual-balancing"):
                assert s["reward_over_opt"] > opt
                assert s["violation"] <= 2 * 300 * math.sqrt(len(log))


@pytest.mark.parametrize("stream", ["iid", "three_phase"])
@pytest.mark.filterwarnings("error")
def test_environment_keeps_the_interface(stream):
    check_env(RepeatedAuctionEnv(stream=stream, length=50), skip_render_check=True)


def test_environment_by_name_and_its_budget():
    import assay.decisions.dual_balancing  # noqa: F401 - registers the environment, because gymnasium is loaded

    env = gymnasium.make("assay/RepeatedAuction-v0", length=300, rho=0.05, mechanism="first", roi_target=1.2)
    for seed in range(3):
        env.reset(seed=seed)
        spend = 0.0
        ended = False
        while not ended:
            state, reward, ended, _, info = env.step(np.array([1.0], dtype=np.float32))
            assert env.observation_space.contains(state)
            assert spend <= info["spend"] <= 0.05 * 300
            assert reward >= 0
            spend = info["spend"]
        assert info["t"] < 300  # bidding the most, the budget is gone early
        assert info["violation"] > 0


def test_environment_on_a_log_and_bad_settings():
    env = RepeatedAuctionEnv(make_stream("iid", make_log(200), 200, 0), length=100)
    first, _ = env.reset(seed=1)
    again, _ = env.reset(seed=1)
    assert np.array_equal(first, again)
    for settings in ({"length": 0}, {"stream": "calm"}, {"rho": 0.0}, {"log": make_log(50), "length": 100}):
        with pytest.raises(InputError):
            RepeatedAuctionEnv(**settings)
    with pytest.raises(InputError):
        env.step([math.nan])


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"budget": 0.0}, "budget"), ({"budget": math.nan}, "budget"), ({"mechanism": "third"}, "mechanism"),
        ({"feedback": "some"}, "feedback"), ({"bidder": "magic"}, "method"), ({"bidder": object()}, "bid()"),
        ({"bidder": "capped"}, "alpha"), ({"multipliers": [0.5, 0.5]}, "twice"),
        ({"primal": "exp3", "mechanism": "first"}, "primal"),
        ({"target_spend": [2.0, 1.0]}, "cumulative"),
    ],
)  # fmt: skip
def test_bad_settings_of_a_replay_are_refused(settings, match):
    log = make_stream("iid", make_log(50), 50, 0)
    with pytest.raises(InputError, match=match):
        replay(**{"bidder": "dual-balancing", "log": log, "budget": 5.0, "scale": 1.0, **settings})


def test_bad_logs_are_refused():
    for value, competing in (([0.1, math.nan], [1, 2]), ([0.1], [1, 2]), ([-0.1], [1]), ([], []), ([0.1], [math.inf])):
        with pytest.raises(InputError):
            BidLog(value, competing)
    for settings in ({"methods": ["magic"]}, {"methods": {"a": {"rate": 1}}}, {"worst": [1.0]}, {"budget": -1.0}):
        with pytest.raises(InputError):
            simulate([[0, 0.5]] * 20, [[0, 0.5]] * 20, **{"budget": 5.0, **settings})
    with pytest.raises(InputError, match="void"):
        simulate([[0.1, 0.5]] * 20, [[0, 0.5]] * 20, budget=5.0)


def test_absurd_prices_and_values_do_not_break_a_replay():
    log = make_log(500)
    log.competing[::7] = 1e9
    log.competing[::11] = 0.0
    value = log.value.copy()
    value[3] = 1e9
    wild = BidLog(value, log.competing)
    assert wild.scale <= 300
    s = replay("dual-balancing", wild, budget=5_000.0, roi_target=1.5, mechanism="first").summary
    assert s["spend"] <= 5_000.0
    assert math.isfinite(s["reward"])
    all_dear = BidLog(log.value, np.full(500, 1e9))
    s = replay("dual-balancing", all_dear, budget=5_000.0, roi_target=1.5).summary
    assert s["spend"] == s["reward"] == 0


def test_the_numpy_round_that_speed_is_measured_against_plays_the_same_actions():
    from assay.decisions.dual_balancing._experiments import kernel_speed, load_simulated

    found = kernel_speed("ours", 0, load_simulated(), {"T": 2000}, "cpu")
    assert found["different_actions"] == 0
    assert found["multiplier_difference"] < 1e-9
