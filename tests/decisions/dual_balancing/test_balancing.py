"""The round against a plain numpy loop, the budget against every stream, and the state across save and load."""

import json
import math

import numpy as np
import pytest

from assay._core.errors import InputError
from assay.decisions.dual_balancing import (
    BudgetConstraint,
    DualBalancing,
    FixedShareHedge,
    LinearConstraint,
    ROIConstraint,
    simulate,
)
from assay.decisions.dual_balancing._balancing import SPEND, State, build_setup, primal_rates
from assay.decisions.dual_balancing._replay import play
from assay.decisions.dual_balancing._streams import knife, trap

FEEDBACKS = ("full", "bandit", "one_sided")
PRIMAL = {"full": "fixed_share", "bandit": "exp3six", "one_sided": "one_sided"}


def tables(seed, T=200, K=5):
    rng = np.random.default_rng(seed)
    f, c = rng.random((T, K)), rng.random((T, K))
    f[:, 0] = c[:, 0] = 0
    return f, c


def feed(learner, f, c, rounds):
    """Play rounds of a table with what the learner's feedback is told."""
    actions = []
    for t in rounds:
        a = learner.act()
        actions.append(a)
        if learner.feedback == "bandit":
            learner.update(f[t, a], c[t, a])
        elif learner.feedback == "one_sided":
            hide = np.where(np.arange(f.shape[1]) <= a, 0.0, np.nan)
            learner.update(f[t] + hide, c[t] + hide)
        else:
            learner.update(f[t], c[t])
    return actions


def numpy_loop(f, c, budget, omega, feedback, draws):
    """The round of the paper as one would write it in numpy, one round at a time."""
    T, K = f.shape
    rho = budget / T
    kappa = 2.0 if feedback == "full" else 1.0
    eta_b, eta_r = 1 / (rho * math.sqrt(T)), kappa / math.sqrt(T)
    if feedback == "full":
        eta, gamma = 16 * math.sqrt(8 * math.log(K * T) / T), 0.0
    elif feedback == "bandit":
        eta = 4 * math.sqrt(2 * math.log(K) / (K * T))
        gamma = eta / 2
    else:
        eta, gamma = math.sqrt(8 * math.log(K * T) / T), 1 / (10 * math.sqrt(T))
    s, logw, R, lam, mu, left = 1 / T, np.zeros(K), 1.0, 0.0, 0.0, budget
    actions = []
    for t in range(T):
        p = np.exp(logw - logw.max())
        p /= p.sum()
        a = int(np.searchsorted(np.cumsum(p), draws[t], side="right"))
        forced = a > 0 and left < 1.0
        if forced:
            a = 0
        actions.append(a)
        g = omega * c[t] - f[t]
        u = f[t] - lam * c[t] - mu * g
        if feedback == "full":
            R = max(R, u.max() - u.min())
            logw = logw + eta * u / R
        elif not forced:
            U = 1 + mu
            R = max(R, U + lam + omega * mu)
            if feedback == "bandit":
                logw[a] -= eta * ((U - u[a]) / R) / (p[a] + gamma)
            else:
                for k in range(a + 1):
                    logw[k] -= eta * ((U - u[k]) / R) / (p[k:].sum() + gamma)
        w = np.exp(logw - logw.max())
        logw = np.log((1 - s) * w / w.sum() + s / K)
        lam = min(max(0.0, lam + eta_b * (c[t, a] - rho)), 1 / rho)
        mu = max(0.0, mu + eta_r * g[a])
        left -= c[t, a]
    return actions, lam, mu, budget - left


@pytest.mark.parametrize("feedback", FEEDBACKS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_kernel_equals_the_numpy_loop(feedback, seed):
    f, c = tables(seed)
    budget = 60.0
    learner = DualBalancing(200, budget, 1.2, 5, feedback=feedback, random_state=seed)
    actions = feed(learner, f, c, range(200))
    draws = np.random.default_rng(seed).random(200)
    expected, lam, mu, spend = numpy_loop(f, c, budget, 1.2, feedback, draws)
    assert actions == expected
    # exp and log of another library, over 200 rounds
    assert learner.lambda_ == pytest.approx(lam, rel=1e-9, abs=1e-9)
    assert learner.mu_ == pytest.approx(mu, rel=1e-9, abs=1e-9)
    assert learner.spend_ == pytest.approx(spend)


@pytest.mark.parametrize("feedback", FEEDBACKS)
def test_batch_equals_the_loop_bit_for_bit(feedback):
    f, c = tables(7, T=300)
    table = simulate(f, c, [PRIMAL[feedback]], [0, 1, 2], budget=80.0, roi_target=1.1)
    for row in table.itertuples():
        learner = DualBalancing(300, 80.0, 1.1, 5, feedback=feedback, random_state=row.seed)
        feed(learner, f, c, range(300))
        assert (row.reward, row.spend) == (learner.reward_, learner.spend_)
        assert row.violation == learner.violation_


@pytest.mark.parametrize("feedback", FEEDBACKS)
def test_without_numba_the_same_bits(feedback, monkeypatch):
    f, c = tables(8, T=120)
    compiled = simulate(f, c, [PRIMAL[feedback]], [0, 1], budget=30.0, roi_target=1.1)
    monkeypatch.setenv("ASSAY_NO_NUMBA", "1")
    plain = simulate(f, c, [PRIMAL[feedback]], [0, 1], budget=30.0, roi_target=1.1)
    assert compiled.equals(plain)


def test_budget_is_never_exceeded_over_a_thousand_streams():
    """Random sizes, budgets, targets and shapes, every feedback; the comparison is exact, without a tolerance."""
    rng = np.random.default_rng(0)
    for case in range(1000):
        T, K = int(rng.integers(10, 60)), int(rng.integers(2, 7))
        f, c = tables(case, T, K)
        if case % 3 == 0:
            c[:, 1:] = np.round(c[:, 1:])  # costs of exactly 1
        budget = float(np.exp(rng.uniform(np.log(0.05), np.log(0.9 * T))))
        roi = [None, 0.5, 1.5][case % 3]
        worst = np.broadcast_to(np.where(np.arange(K) > 0, 1.0, 0.0), (T, K))
        for code, feedback in enumerate(
            FEEDBACKS
        ):  # as simulate() does, without its benchmark, which takes most of the time
            setup = build_setup(horizon=T, budget=budget, roi_target=roi, feedback=code)
            rates = primal_rates("auto", code, K, T)
            state = State(setup, K, rates[2])
            actions, _ = play(setup, state, rates, code, f, c, worst, np.random.default_rng(case))
            spend = float(np.add.accumulate(c[np.arange(T), actions])[-1])
            assert spend == state.num[SPEND]
            assert spend <= budget, (case, feedback, budget, spend)


def test_budget_is_never_exceeded_by_a_live_learner():
    for feedback in FEEDBACKS:
        f, c = tables(3, 400)
        learner = DualBalancing(400, 3.0, None, 5, feedback=feedback)
        for t in range(400):
            feed(learner, f, c, [t])
            assert learner.spend_ <= 3.0


@pytest.mark.parametrize("feedback", FEEDBACKS)
@pytest.mark.parametrize("stop", [0, 1, 37, 199])
def test_saved_and_loaded_it_goes_on_bit_for_bit(feedback, stop):
    f, c = tables(4)

    def make():
        return DualBalancing(200, 50.0, 1.2, 5, feedback=feedback, random_state=9)

    whole, half = make(), make()
    actions = feed(whole, f, c, range(200))
    feed(half, f, c, range(stop))
    restored = make()
    restored.load_state_dict(json.loads(json.dumps(half.state_dict())))
    assert feed(restored, f, c, range(stop, 200)) == actions[stop:]
    assert restored.state_dict() == whole.state_dict()
    assert restored.history_.equals(whole.history_)


def test_a_state_taken_inside_a_round_keeps_the_open_action():
    learner = DualBalancing(50, 10.0, None, 3)
    action = learner.act()
    other = DualBalancing(50, 10.0, None, 3)
    other.load_state_dict(json.loads(json.dumps(learner.state_dict())))
    with pytest.raises(InputError, match="twice"):
        other.act()
    for x in (learner, other):
        x.update([0, 0.5, 0.9], [0, 0.1, 0.9])
    assert other.state_dict() == learner.state_dict()
    assert action in range(3)


def test_multipliers_stay_in_their_range():
    f, c = tables(5, 500)
    learner = DualBalancing(500, 25.0, 3.0, 5)
    for t in range(500):
        feed(learner, f, c, [t])
        assert 0 <= learner.lambda_ <= 500 / 25
        assert learner.mu_ >= 0


def test_scale_is_a_change_of_units():
    f, c = tables(6)
    small = DualBalancing(200, 50.0, 1.2, 5)
    large = DualBalancing(200, 50.0 * 256, 1.2, 5, scale=256.0)  # a power of two: the bits stay
    assert feed(small, f, c, range(200)) == feed(large, 256 * f, 256 * c, range(200))
    assert large.spend_ == 256 * small.spend_
    assert large.violation_ == 256 * small.violation_


def test_constraints_say_the_same_as_arguments():
    f, c = tables(6)
    a = DualBalancing(200, 50.0, 1.2, 5)
    b = DualBalancing(200, n_actions=5, constraints=[BudgetConstraint(0.25), ROIConstraint(1.2)])
    linear = LinearConstraint(reward=-1.0, cost=1.2)  # the ROI target, written out; its step is 2 / sqrt(T) as well
    d = DualBalancing(200, 50.0, n_actions=5, constraints=[linear])
    assert feed(a, f, c, range(200)) == feed(b, f, c, range(200)) == feed(d, f, c, range(200))
    assert d.duals_.tolist() == [a.lambda_, a.mu_]


def test_a_linear_constraint_on_a_further_resource_is_kept():
    T = 4000
    learner = DualBalancing(T, None, n_actions=2, constraints=[LinearConstraint(usage=(1.0,), limit=0.2)])
    wins = 0
    for _ in range(T):
        a = learner.act()
        wins += a
        learner.update([0, 0.5], [0, 0], usage=[[0, 1.0]])
    assert wins / T <= 0.2 + 2 / math.sqrt(T)
    assert wins / T > 0.15
    assert learner.violations_[0] <= 2 * math.sqrt(T)


def test_contexts_learn_different_actions():
    T = 2000
    learner = DualBalancing(T, 0.5 * T, n_actions=3, n_contexts=2)
    for t in range(T):
        learner.act(t % 2)
        learner.update([0, 0.9, 0.1] if t % 2 else [0, 0.1, 0.9], [0, 0.1, 0.1])
    assert learner.probabilities(0).argmax() == 2
    assert learner.probabilities(1).argmax() == 1
    # what the better action of each context earns
    assert learner.reward_ > 0.85 * 0.9 * T


def test_a_learner_of_the_users_own():
    f, c = tables(2)

    class Mine:
        def __init__(self):
            self.inner = FixedShareHedge(5, 200)

        def probabilities(self):
            return self.inner.probabilities()

        def update(self, utility):
            self.inner.update(utility)

        def state_dict(self):
            return self.inner.state_dict()

        def load_state_dict(self, state):
            self.inner.load_state_dict(state)

    ours, mine = DualBalancing(200, 50.0, 1.2, 5), DualBalancing(200, 50.0, 1.2, 5, primal=Mine())
    assert feed(ours, f, c, range(100)) == feed(mine, f, c, range(100))
    assert mine.lambda_ == pytest.approx(ours.lambda_)
    again = DualBalancing(200, 50.0, 1.2, 5, primal=Mine())
    again.load_state_dict(json.loads(json.dumps(mine.state_dict())))
    assert feed(again, f, c, range(100, 200)) == feed(mine, f, c, range(100, 200))


def test_unknown_horizon_by_doubling():
    f, c = tables(1, 400)
    learner = DualBalancing(100, 20.0, None, 5, overrun="double")
    feed(learner, f, c, range(400))
    assert learner.t_ == 400
    assert 20.0 < learner.spend_ <= 80.0
    again = DualBalancing(100, 20.0, None, 5, overrun="double")
    again.load_state_dict(json.loads(json.dumps(learner.state_dict())))
    assert again.remaining_budget == learner.remaining_budget
    fresh = DualBalancing(100, 20.0, None, 5, overrun="double")
    again.load_state_dict(fresh.state_dict())  # and back again
    assert again.horizon == 100
    assert feed(again, f, c, range(400)) == feed(fresh, f, c, range(400))
    with pytest.raises(InputError, match="horizon of 100"):
        feed(DualBalancing(100, 20.0, None, 5), f, c, range(101))


def test_target_spend_moves_the_spending():
    T = 4000
    rng = np.random.default_rng(0)
    late = DualBalancing(T, 400.0, n_actions=3, target_spend=[0.1, 1.0])
    for t in range(T):
        late.act()
        late.update([0, 0.5, 0.9], [0, rng.uniform(0.2, 0.4), rng.uniform(0.5, 0.9)])
        if t == T // 2:
            first = late.spend_
    assert first < 0.25 * 400  # a tenth was asked for, and sqrt(T) may be off
    assert late.spend_ > 0.9 * 400


def test_adaptive_against_plain_on_the_trap():
    """The game of the paper: the ROI multiplier of plain exponential weights grows, that of fixed share does not."""
    f, c = trap(8000, 0)
    eta = 16 * math.sqrt(8 * math.log(3 * 8000) / 8000)
    methods = {"ours": {}, "plain": {"primal": "hedge", "eta": eta}}
    table = simulate(f, c, methods, [0], roi_target=1.0).set_index("method")
    assert table.at["ours", "max_mu"] <= 1
    assert table.at["plain", "max_mu"] >= 10


def test_violation_is_bounded_on_the_knifes_edge():
    f, c = knife(8000, 0.05, 0)
    table = simulate(f, c, ["fixed_share"], [0], roi_target=1.0)
    assert table["violation"][0] <= 5 * math.sqrt(8000)


@pytest.mark.parametrize(
    "settings",
    [
        {"budget": 0.0}, {"budget": -1.0}, {"budget": math.nan}, {"horizon": 9}, {"horizon": 10.5}, {"roi_target": -0.1},
        {"roi_target": math.nan}, {"n_actions": 1}, {"n_actions": None}, {"feedback": "half"}, {"primal": "sgd"},
        {"primal": "exp3six"}, {"eta_budget": -1.0}, {"scale": 0.0}, {"random_state": -1}, {"overrun": "stop"},
        {"action_grid": [0.1, 0.1], "n_actions": None}, {"action_grid": [0.1, -1], "n_actions": None},
        {"constraints": [BudgetConstraint(0.1)]}, {"constraints": [object()]}, {"budget": None},
        {"target_spend": [0.5, 0.2]}, {"target_spend": [math.nan]}, {"n_contexts": 0},
        {"constraints": [LinearConstraint(reward=math.inf)]}, {"primal": object()},
    ],
)  # fmt: skip
def test_bad_settings_are_refused(settings):
    good = {"horizon": 100, "budget": 10.0, "n_actions": 4}
    with pytest.raises(InputError):
        DualBalancing(**{**good, **settings})


@pytest.mark.parametrize(
    "feedback",
    [
        ([0, 0.5], [0, 0.5]), ([0, 0.5, np.nan], [0, 0.5, 0.1]), ([0, 0.5, 1.5], [0, 0.5, 0.1]), (0.5, 0.5),
        ([0, 0.5, 0.1], [0, -0.5, 0.1]), ([0.1, 0.5, 0.1], [0, 0.5, 0.1]),
    ],
)  # fmt: skip
def test_bad_feedback_is_refused_and_changes_nothing(feedback):
    learner = DualBalancing(100, 10.0, 1.0, 3)
    learner.act()
    before = learner.state_dict()
    with pytest.raises(InputError):
        learner.update(*feedback)
    assert learner.state_dict() == before


def test_the_protocol_is_kept():
    learner = DualBalancing(100, 10.0, None, 3)
    with pytest.raises(InputError, match="without act"):
        learner.update([0, 0, 0], [0, 0, 0])
    learner.act()
    with pytest.raises(InputError, match="twice"):
        learner.act()
    learner.update([0, 0, 0], [0, 0, 0])
    with pytest.raises(InputError, match="without act"):
        learner.update([0, 0, 0], [0, 0, 0])


def test_a_grid_gets_its_void_action():
    learner = DualBalancing(100, 10.0, action_grid=[0.5, 1.0])
    assert learner.n_actions == 3
    assert learner.action_grid_.tolist() == [0.0, 0.5, 1.0]


def test_a_budget_that_cannot_bind_is_said():
    with pytest.warns(UserWarning, match="cannot bind"):
        DualBalancing(100, 200.0, None, 3)


@pytest.mark.parametrize(
    ("field", "value"), [("horizon", 200), ("budget", 11.0), ("roi_target", 1.0), ("random_state", 1)]
)
def test_a_state_of_other_settings_is_refused_by_name(field, value):
    good = {"horizon": 100, "budget": 10.0, "n_actions": 3}
    state = DualBalancing(**good).state_dict()
    other = DualBalancing(**{**good, field: value})
    before = other.state_dict()
    with pytest.raises(InputError, match=field):
        other.load_state_dict(state)
    assert other.state_dict() == before


@pytest.mark.parametrize("field", ["config", "w", "num", "rng", "waiting"])
def test_a_state_with_a_hole_is_refused_by_name(field):
    learner = DualBalancing(100, 10.0, None, 3)
    state = learner.state_dict()
    del state[field]
    with pytest.raises(InputError, match=field):
        learner.load_state_dict(state)


def test_history_is_thin():
    learner = DualBalancing(5_000, 500.0, None, 3)
    for _ in range(5_000):
        learner.act()
        learner.update([0, 0.1, 0.2], [0, 0.1, 0.2])
    history = learner.history_
    assert 1000 <= len(history) <= 2000
    assert history["t"].is_monotonic_increasing
    assert history["t"].iloc[-1] > 4_900
