"""Learners against their definitions, written out in a few lines of numpy."""

import itertools

import numpy as np
import pytest

from assay._core.errors import InputError
from assay.decisions.dual_balancing import (
    EXP3,
    EXP3SIX,
    FixedShareHedge,
    Hedge,
    OneSidedHedge,
    OnlineGradientDescent,
    interval_regret,
)


def exponential_weights(utilities, eta, share):
    """Definition: weights of every round, the first uniform."""
    K = utilities.shape[1]
    w, R, out = np.full(K, 1 / K), 1.0, []
    for u in utilities:
        out.append(w)
        R = max(R, u.max() - u.min())
        w = w * np.exp(eta * u / R)
        w = (1 - share) * w / w.sum() + share / K
    return np.array(out)


@pytest.mark.parametrize("share", [0.0, 0.01])
def test_weights_follow_their_definition(share):
    u = np.random.default_rng(0).uniform(-1, 2, (200, 5))
    learner = FixedShareHedge(5, 200, share=share, eta=0.3)
    found = []
    for row in u:
        found.append(learner.probabilities())
        learner.update(row)
    # products of 200 exponentials in another order
    np.testing.assert_allclose(found, exponential_weights(u, 0.3, share), rtol=1e-9)


def test_no_share_is_hedge():
    u = np.random.default_rng(1).random((100, 4))
    a, b = FixedShareHedge(4, 100, share=0.0, eta=0.2), Hedge(4, 100, eta=0.2)
    for row in u:
        a.update(row)
        b.update(row)
    assert np.array_equal(a.probabilities(), b.probabilities())


def test_no_exploration_and_no_share_is_exp3():
    a, b = EXP3SIX(4, 100, share=0.0, eta=0.2, gamma=0.0), EXP3(4, 100, eta=0.2)
    rng = np.random.default_rng(2)
    losses = np.zeros(4)
    for _ in range(60):
        np.testing.assert_allclose(a.probabilities(), np.exp(-0.2 * losses) / np.exp(-0.2 * losses).sum(), rtol=1e-9)
        k, u = a.next(rng), float(rng.random())
        losses[k] += (1 - u) / a.probabilities()[k]
        a.update(k, u)
        b.update(k, u)
    assert np.array_equal(a.probabilities(), b.probabilities())


@pytest.mark.parametrize("one_sided", [True, False])
def test_estimated_losses_are_unbiased(one_sided):
    """Enumerate the action: the expected change of the log-weights is the loss of every action (gamma = 0)."""
    utility = np.array([0.2, 0.9, 0.5, 0.7])
    eta, expected = 1e-3, np.zeros(4)
    make = OneSidedHedge if one_sided else EXP3SIX
    prior = make(4, 100, share=0.0, eta=eta, gamma=0.0)
    for k, u in zip([2, 1, 0, 3], [0.1, 0.2, 0.9, 0.4]):  # some uneven distribution
        prior.update(k, np.full(4, u) if one_sided else u)
    p = prior.probabilities()
    for k in range(4):
        learner = make(4, 100, share=0.0, eta=eta, gamma=0.0)
        learner.load_state_dict(prior.state_dict())
        learner.update(k, utility if one_sided else utility[k])
        step = np.log(learner.probabilities()) - np.log(p)
        # softmax forgets a constant: an action's change is read against one that saw no loss
        unseen = [j for j in range(4) if (j > k if one_sided else j != k)]
        if not unseen:
            base = 0.0
            seen = np.log(learner.probabilities() / p)
            tails = np.cumsum(p[::-1])[::-1]
            losses = (1 - utility) / tails
            assert np.allclose(seen - seen[0], -eta * (losses - losses[0]), atol=1e-12)
            expected += p[k] * losses
            continue
        base = step[unseen[0]]
        expected += p[k] * -(step - base) / eta
    np.testing.assert_allclose(expected, 1 - utility, rtol=1e-6)


def test_share_and_exploration_keep_every_action_alive():
    learner = FixedShareHedge(3, 100)
    for _ in range(100):
        learner.update([1.0, 0.0, 0.0])
    assert learner.probabilities().min() >= 0.01 / 3 * (1 - 1e-12)


def test_weights_survive_extreme_utilities():
    for learner in (FixedShareHedge(3, 100), Hedge(3, 100)):
        for _ in range(100):
            learner.update([1e9, -1e9, 0.0])
        p = learner.probabilities()
        assert np.isfinite(p).all()
        assert p.sum() == pytest.approx(1)
        assert p.argmax() == 0


def test_shift_invariance():
    u = np.random.default_rng(3).random((50, 3))
    a, b = FixedShareHedge(3, 50), FixedShareHedge(3, 50)
    for row in u:
        a.update(row)
        b.update(row + 7.0)
    np.testing.assert_allclose(a.probabilities(), b.probabilities(), rtol=1e-10)


def test_fixed_share_follows_a_switch_and_hedge_does_not():
    u = np.zeros((2000, 3))
    u[:1000, 1] = 1
    u[1000:, 2] = 1
    regrets = {}
    for make in (FixedShareHedge, Hedge):
        learner = make(3, 2000)
        earned = []
        for row in u:
            earned.append(learner.probabilities() @ row)
            learner.update(row)
        regrets[make] = interval_regret(u, earned)
    assert regrets[FixedShareHedge] < 0.1 * regrets[Hedge]


def test_gradient_descent_projects():
    descent = OnlineGradientDescent(2, [0.0, 0.0], [1.0, np.inf], eta=0.5)
    descent.update([-9.0, -9.0])
    assert descent.point().tolist() == [1.0, 4.5]
    descent.update([9.0, 1.0])
    assert descent.point().tolist() == [0.0, 4.0]


def test_gradient_descent_regret_on_every_interval():
    """At most (D^2 + eta^2 G^2 L) / (2 eta) on an interval of length L, for linear losses."""
    rng = np.random.default_rng(4)
    gradients = rng.choice([-1.0, 1.0], 400)
    descent = OnlineGradientDescent(1, 0.0, 1.0, eta=0.1)
    points = []
    for g in gradients:
        points.append(descent.point()[0])
        descent.update([g])
    losses = np.array(points) * gradients
    for start, stop in itertools.combinations(range(0, 401, 40), 2):
        best = min(0.0, gradients[start:stop].sum())
        assert losses[start:stop].sum() - best <= (1 + 0.01 * (stop - start)) / 0.2 + 1e-9


def test_interval_regret_by_hand():
    u = np.random.default_rng(5).random((64, 3))
    earned = np.random.default_rng(6).random(64)
    best = max(
        (u[s : s + L].sum(axis=0) - earned[s : s + L].sum()).max()
        for L in (64, 32, 16, 8, 4)
        for s in range(0, 64 - L + 1, L // 4)
    )
    assert interval_regret(u, earned) == pytest.approx(best)


@pytest.mark.parametrize(
    ("make", "update"),
    [
        (lambda: FixedShareHedge(3, 10), ([0.1, np.nan, 0.2],)),
        (lambda: FixedShareHedge(3, 10), ([0.1, 0.2],)),
        (lambda: EXP3SIX(3, 10), (3, 0.5)),
        (lambda: EXP3SIX(3, 10), (1, 1.5)),
        (lambda: EXP3SIX(3, 10), (1, np.nan)),
        (lambda: OneSidedHedge(3, 10), (1, [0.1, np.nan, 0.2])),
        (lambda: OneSidedHedge(3, 10), (1, [0.1, -0.1, 0.2])),
    ],
)
def test_bad_feedback_is_refused_and_changes_nothing(make, update):
    learner = make()
    before = learner.probabilities()
    with pytest.raises(InputError):
        learner.update(*update)
    assert np.array_equal(learner.probabilities(), before)


@pytest.mark.parametrize(
    "make",
    [
        lambda: FixedShareHedge(1, 10),
        lambda: FixedShareHedge(3, 0),
        lambda: FixedShareHedge(3, 10, share=1.5),
        lambda: FixedShareHedge(3, 10, eta=0.0),
        lambda: Hedge(True, 10),
        lambda: OnlineGradientDescent(1, 1.0, 0.0, 0.1),
        lambda: OnlineGradientDescent(1, 0.0, 1.0, -1.0),
        lambda: interval_regret([[0.1]], [0.1, 0.2]),
    ],
)
def test_bad_settings_are_refused(make):
    with pytest.raises(InputError):
        make()
