"""The live bidder against the replay, with answers late, lost and out of order."""

import json
import math

import numpy as np
import pytest

from assay._core.errors import InputError
from assay.decisions.dual_balancing import (
    AutoBidder,
    BidLog,
    GeneralizedSecondPrice,
    Portfolio,
    SecondPrice,
    SoftFloor,
    make_log,
    make_stream,
    replay,
)


def stream(n=600, seed=0, name="iid"):
    return make_stream(name, make_log(n, random_state=seed), n, seed)


@pytest.mark.parametrize(
    ("mechanism", "feedback", "bins"),
    [
        ("first", "full", 1), ("first", "one_sided", 1), ("first", "bandit", 1), ("second", "full", 1),
        ("second", "one_sided", 1), (SoftFloor(0.2), "full", 1), ("first", "full", 3), ("posted", "full", 1),
        (GeneralizedSecondPrice(), "full", 1),
    ],
)  # fmt: skip
def test_live_bidder_equals_the_replay_bit_for_bit(mechanism, feedback, bins):
    log = stream()
    settings = {"feedback": feedback, "value_bins": bins, "random_state": 5}
    batch = replay("dual-balancing", log, budget=40.0, roi_target=1.4, mechanism=mechanism, scale=1.0, **settings)
    bidder = AutoBidder(mechanism, len(log), 40.0, 1.4, **settings)
    live = replay(bidder, log, budget=40.0, roi_target=1.4, mechanism=mechanism, scale=1.0)
    assert np.array_equal(live.bids, batch.bids)
    assert np.array_equal(live.multipliers, batch.multipliers)
    assert bidder.spend_ == batch.summary["spend"]


def test_closed_form_is_the_best_bid_on_a_fine_grid():
    """Whatever the multipliers and the price: no bid has a higher balanced utility."""
    rng = np.random.default_rng(0)
    grid = np.linspace(0, 1, 4001)
    for _ in range(80):
        bidder = AutoBidder("second", 1000, 1000.0 * rng.uniform(0.05, 0.9), float(rng.uniform(0.5, 3)))
        bidder._state.duals[:] = lam, mu = rng.uniform(0, 3, 2) * [1, rng.integers(0, 2)]
        omega, value = bidder.roi_target, float(rng.random())
        bid = bidder.bid(value)
        prices = rng.random(30)
        for price in prices:
            u = np.where(grid >= price, (1 + mu) * value - (lam + omega * mu) * price, 0.0)
            ours = (1 + mu) * value - (lam + omega * mu) * price if bid >= price else 0.0
            capped = bid >= min(2 * value, 1.0) - 1e-12  # the largest multiplier and the largest bid bind it
            # the grid is 1/4000 apart, and utilities change by at most (lam + omega mu) per unit of price
            assert ours >= (u[grid <= bid + 1e-12] if capped else u).max() - 1e-12


@pytest.mark.parametrize("feedback", ["full", "one_sided", "bandit"])
@pytest.mark.parametrize("mechanism", ["first", "second"])
def test_saved_and_loaded_at_any_round_with_waiting_ids(tmp_path, mechanism, feedback):
    def make():
        return AutoBidder(mechanism, 300, 24.0, 1.3, feedback=feedback, timeout=20, value_bins=2, random_state=1)

    def play(bidder, start, stop, log):
        out = []
        for t in range(start, stop):
            out.append(bidder.bid(log.value[t], t))
            for late in (t, t - 7):  # two of three are answered at once, one seven rounds later, some never
                if late < 0 or late % 11 == 5 or (late % 3 == 0) != (late == t - 7):
                    continue
                won = bidder._pending[late]["bid"] >= log.competing[late, 0]
                won = won and bidder._pending[late]["bid"] > 0
                price = (
                    (bidder._pending[late]["bid"] if mechanism == "first" else log.competing[late, 0]) if won else None
                )
                bidder.observe(late, won=bool(won), price=price, competing=log.competing[late, 0])
        return out

    log = stream(300)
    whole = make()
    bids = play(whole, 0, 300, log)
    assert whole.timed_out_ > 0
    for stop in (0, 1, 150, 299):
        half = make()
        play(half, 0, stop, log)
        half.save(tmp_path / "state.json")
        again = make().load(tmp_path / "state.json")
        assert again.pending_ == half.pending_
        assert play(again, stop, 300, log) == bids[stop:]
        assert json.dumps(again.state_dict()) == json.dumps(whole.state_dict())


def test_the_budget_holds_while_answers_are_out():
    """A hundred bids wait at once: were all of them won at their bids, the budget would still hold."""
    bidder = AutoBidder("first", 2000, 5.0, timeout=300, random_state=0)
    rng = np.random.default_rng(0)
    waiting = []
    for k in range(2000):
        bid = bidder.bid(float(rng.uniform(0.2, 1)), k)
        assert bidder.spend_ + bidder.reserved_ <= 5.0
        waiting.append((k, bid))
        if len(waiting) > 100:
            key, amount = waiting.pop(int(rng.integers(100)))
            if key in bidder._pending:
                won = amount > 0
                bidder.observe(key, won=won, price=amount if won else None, competing=amount)
    assert 0 < bidder.spend_ <= 5.0


def test_timeouts_free_the_reservation_and_late_wins_are_booked():
    bidder = AutoBidder("second", 100, 10.0, timeout=3)
    amounts = [bidder.bid(0.5, k) for k in range(3)]
    assert bidder.reserved_ == sum(amounts)
    for k in range(3, 6):
        bidder.bid(0.5, k)
    assert bidder.timed_out_ == 3
    assert bidder.pending_ == 3
    bidder.observe(0, won=True, price=0.1)
    assert bidder.late_wins_ == 1
    assert bidder.spend_ == 0.1
    assert bidder.reward_ == 0.5
    bidder.observe(1, won=False)
    assert bidder.spend_ == 0.1
    with pytest.raises(InputError, match="answered"):
        bidder.observe(0, won=True, price=0.1)
    with pytest.raises(InputError, match="timed out before"):
        bidder.bid(0.5, 2)


def test_answers_in_another_order_book_the_same_money():
    orders = []
    for flip in (False, True):
        bidder = AutoBidder("second", 100, 10.0, 1.2)
        for k in range(10):
            bidder.bid(0.1 * k, k)
        for k in range(10)[:: -1 if flip else 1]:
            bidder.observe(k, won=k > 3, price=0.05 if k > 3 else None)
        orders.append((bidder.reward_, bidder.spend_, bidder.pending_))
    assert orders[0] == pytest.approx(orders[1])


def test_realised_values_count_where_they_are_asked_for():
    bidder = AutoBidder("second", 100, 10.0, roi_on="realised")
    bidder.bid(0.5, "a")
    with pytest.raises(InputError, match="realised"):
        bidder.observe("a", won=True, price=0.1)
    bidder.observe("a", won=True, price=0.1, value=0.9)
    assert bidder.reward_ == 0.9


def test_a_value_above_the_declared_largest_rescales_once():
    bidder = AutoBidder("first", 100, 10.0, 1.1, max_value=0.5)
    with pytest.warns(UserWarning, match="max_value"):
        bidder.bid(0.7, "a")  # a ratio that no double holds exactly
    bidder.observe("a", won=False, competing=1.0)
    lam = bidder.lambda_
    assert bidder.bid(50.0, "b") <= 1.4  # the unit is twice the first one above; no second change
    other = AutoBidder("first", 100, 10.0, 1.1, max_value=0.5)
    other.load_state_dict(json.loads(json.dumps(bidder.state_dict())))
    assert other.lambda_ == lam
    for x in (bidder, other):
        x.observe("b", won=False, competing=100.0)
    assert other.bid(0.3, "c") == bidder.bid(0.3, "c")
    assert json.dumps(other.state_dict()) == json.dumps(bidder.state_dict())
    assert all(np.array_equal(getattr(other._setup, k), getattr(bidder._setup, k)) for k in ("limit", "cap", "step"))


def test_scale_of_money_does_not_matter():
    log = stream(400)
    small = AutoBidder("first", 400, 30.0, 1.3, max_value=1.0)
    large = AutoBidder("first", 400, 30.0 * 1024, 1.3, max_value=1024.0)  # a power of two: the bits stay
    scaled = BidLog(log.value * 1024, log.competing * 1024)
    a = replay(small, log, budget=30.0, mechanism="first", scale=1.0)
    b = replay(large, scaled, budget=30.0 * 1024, mechanism="first", scale=1024.0)
    assert np.array_equal(a.bids * 1024, b.bids)


def test_portfolio_shares_the_budget_and_keeps_targets_apart():
    n = 4000
    log = make_stream("iid", make_log(n), n, 0)
    account = Portfolio("second", n, 0.06 * n, {"strict": 3.0, "loose": None})
    for t in range(n):
        name = ("strict", "loose")[t % 2]
        bid = account.bid(name, float(log.value[t]))
        price = float(log.competing[t, 0])
        won = bid >= price and bid > 0
        account.observe(name, won=won, price=price if won else None)
        assert account.spend_ <= 0.06 * n
    assert account.spend_ == pytest.approx(sum(account.campaign_spend_.values()))
    assert account.spend_ > 0.95 * 0.06 * n
    assert 3.0 * account.campaign_spend_["strict"] - account.reward_["strict"] <= 2 * math.sqrt(n)
    assert account.bidders["strict"].lambda_ == pytest.approx(account.bidders["loose"].lambda_, abs=0.2)
    with pytest.raises(InputError, match="campaign"):
        account.bid("none", 0.5)


def test_portfolio_of_one_is_the_bidder():
    log = stream(400)
    account, alone = Portfolio("second", 400, 30.0, {"a": 1.5}), AutoBidder("second", 400, 30.0, 1.5)
    for t in range(400):
        v, d = float(log.value[t]), float(log.competing[t, 0])
        bid = account.bid("a", v)
        assert bid == alone.bid(v)
        won = bid >= d and bid > 0
        account.observe("a", won=won, price=d if won else None)
        alone.observe(won=won, price=d if won else None)
    assert account.mu_["a"] == alone.mu_
    assert account.roi_["a"] == alone.roi_


def test_portfolio_goes_on_from_its_state():
    log = stream(300)

    def make(roi=1.5):
        return Portfolio("first", 300, 20.0, {"a": roi, "b": None}, random_state=3)

    def play(account, start, stop):
        bids = []
        for t in range(start, stop):
            name, d = "ab"[t % 2], float(log.competing[t, 0])
            bids.append(account.bid(name, float(log.value[t])))
            won = bids[-1] >= d and bids[-1] > 0
            account.observe(name, won=won, price=bids[-1] if won else None, competing=d)
        return bids

    whole, half, again = make(), make(), make()
    bids = play(whole, 0, 300)
    play(half, 0, 140)
    again.load_state_dict(json.loads(json.dumps(half.state_dict())))
    assert play(again, 140, 300) == bids[140:]
    with pytest.raises(InputError, match="roi_target"):
        make(1.6).load_state_dict(half.state_dict())


def test_two_asks_without_a_tell():
    bidder = AutoBidder("second", 100, 10.0)
    bidder.bid(0.5)
    before = json.dumps(bidder.state_dict())
    with pytest.raises(InputError, match="no answer yet"):
        bidder.bid(0.5)
    assert json.dumps(bidder.state_dict()) == before
    bidder.bid(0.5, "named")  # ids may overlap
    bidder.observe(won=False)
    with pytest.raises(InputError, match="without an id"):
        bidder.observe(won=False)


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, "much", None, 10**400, 1e308, 1.1e6])
def test_bad_values_are_refused(value):
    bidder = AutoBidder("second", 100, 10.0)
    before = json.dumps(bidder.state_dict())
    with pytest.raises(InputError):
        bidder.bid(value, "a")
    assert json.dumps(bidder.state_dict()) == before


@pytest.mark.parametrize(
    ("mechanism", "feedback", "answer", "match"),
    [
        ("second", "full", {"won": True}, "price"), ("second", "full", {"won": True, "price": math.nan}, "price"),
        ("second", "full", {"won": True, "price": 99.0}, "above the bid"), ("second", "full", {"won": "yes"}, "true or false"),
        ("second", "full", {"won": False, "price": 0.1}, "costs nothing"), ("first", "full", {"won": False}, "competing"),
        ("first", "one_sided", {"won": True, "price": 0.0}, "competing"),
        ("first", "full", {"won": False, "competing": -1.0}, "competing"),
        ("first", "full", {"won": False, "competing": math.nan}, "competing"),
        ("second", "full", {"won": True, "price": 10**400}, "too large"),
        ("second", "full", {"won": True, "price": 0.1, "value": 1e308}, "million times"),
    ],
)  # fmt: skip
def test_bad_answers_are_refused_and_change_nothing(mechanism, feedback, answer, match):
    bidder = AutoBidder(mechanism, 100, 10.0, feedback=feedback)
    bidder.bid(0.5, "a")
    before = json.dumps(bidder.state_dict())
    with pytest.raises(InputError, match=match):
        bidder.observe("a", **answer)
    assert json.dumps(bidder.state_dict()) == before
    with pytest.raises(InputError, match="unknown"):
        bidder.observe("b", won=False)
    assert json.dumps(bidder.state_dict()) == before


@pytest.mark.parametrize("feedback", ["full", "bandit"])
def test_a_bid_of_nothing_cannot_have_won(feedback):
    """Else a free reward would be credited to the return."""
    bidder = AutoBidder("second", 100, 0.4, 1.2, feedback=feedback)
    for k in range(20):  # the first bid of 0.5 and more is above the budget
        if bidder.bid(0.5, k) == 0:
            break
    before = json.dumps(bidder.state_dict())
    with pytest.raises(InputError, match="cannot have won"):
        bidder.observe(k, won=True, price=0.0)
    assert json.dumps(bidder.state_dict()) == before
    bidder.observe(k, won=False)


def test_names_of_ones_own_do_not_meet_those_made_up():
    bidder = AutoBidder("second", 100, 10.0)
    bidder.bid(0.5, "#0")
    bidder.bid(0.4)
    bidder.observe(won=False)
    assert bidder.pending_ == 1
    bidder.observe("#0", won=False)
    with pytest.raises(InputError, match="whole number"):
        bidder.bid(0.5, True)
    assert math.copysign(1.0, bidder.bid(-0.0, "nothing")) == 1.0


@pytest.mark.parametrize(
    "settings",
    [
        {"budget": 0}, {"horizon": 5}, {"mechanism": "third"}, {"mechanism": "soft_floor"}, {"mechanism": object()},
        {"max_value": 0.0}, {"timeout": 0}, {"roi_on": "hope"}, {"primal": "best"}, {"feedback": "some"},
        {"multipliers": [0.5, 0.5]}, {"multipliers": [-1.0]}, {"roi_target": -1.0}, {"roi_target": 1e308},
        {"value_bins": 0}, {"budget": math.inf},
    ],
)  # fmt: skip
def test_bad_settings_are_refused(settings):
    with pytest.raises(InputError):
        AutoBidder(**{"mechanism": "first", "horizon": 100, "budget": 10.0, **settings})


def test_more_auctions_than_the_horizon():
    bidder = AutoBidder("second", 10, 5.0)
    for k in range(10):
        bidder.bid(0.5, k)
    with pytest.raises(InputError, match="horizon of 10"):
        bidder.bid(0.5, 10)


@pytest.mark.parametrize(
    ("field", "settings"), [("budget", {"budget": 11.0}), ("mechanism", {"mechanism": SecondPrice(0.1)})]
)
def test_a_file_of_another_bidder_is_refused_by_name(tmp_path, field, settings):
    good = {"mechanism": "second", "horizon": 100, "budget": 10.0}
    AutoBidder(**good).save(tmp_path / "s.json")
    with pytest.raises(InputError, match=field) as caught:
        AutoBidder(**{**good, **settings}).load(tmp_path / "s.json")
    assert "s.json" in str(caught.value)
    with pytest.raises(InputError, match="no state file"):
        AutoBidder(**good).load(tmp_path / "other.json")


def test_target_spend_and_its_curve():
    bidder = AutoBidder("second", 1000, 100.0, target_spend=[10.0, 40.0])
    assert bidder.target_(500) == pytest.approx(25.0)
    assert bidder.target_(1000) == pytest.approx(100.0)
    log = stream(1000)
    replay(bidder, log, budget=100.0, scale=1.0)
    batch = replay("dual-balancing", log, budget=100.0, scale=1.0, target_spend=[10.0, 40.0])
    assert batch.summary["spend"] == bidder.spend_
