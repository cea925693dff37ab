"""The contract of kind "online learner": act, be answered, never be told twice, and go on from a saved state."""
# ruff: noqa: PT018 - one assert, one message

from __future__ import annotations

import copy
import json
import math
from typing import Any

import numpy as np

from ._cases import Case, Check, CheckResult, not_applicable, run_checks

FEEDBACKS = ("full", "bandit", "one_sided")
# Probabilities are sums of at most a few dozen doubles.
_SUM = 1e-9


def _tables(case: Case) -> tuple[np.ndarray, ...]:
    tables = tuple(np.asarray(table, dtype=float) for table in case.inputs())
    assert tables and all(t.ndim == 2 and t.shape == tables[0].shape for t in tables), (
        "data() must give a tuple of tables, rounds x actions, in the order that update() takes them"
    )
    return tables


def _rounds(tables: tuple[np.ndarray, ...]) -> int:
    return len(tables[0])


def _kind_of_feedback(learner: Any) -> str:
    feedback = str(getattr(learner, "feedback", "full"))
    assert feedback in FEEDBACKS, f"feedback is {feedback!r}; known are {', '.join(FEEDBACKS)}"
    return feedback


def _told(learner: Any, rows: tuple[np.ndarray, ...], action: int) -> list[Any]:
    """What the learner is told of a round in which it played `action`."""
    feedback = _kind_of_feedback(learner)
    if feedback == "bandit":
        return [float(row[action]) for row in rows]
    if feedback == "one_sided":  # what lies above the played action is unknown to the world, so nobody may read it
        return [np.where(np.arange(len(row)) <= action, row, np.nan) for row in rows]
    return [row.copy() for row in rows]


def _play(learner: Any, tables: tuple[np.ndarray, ...], start: int, stop: int) -> list[int]:
    actions = []
    for t in range(start, stop):
        action = learner.act()
        actions.append(int(action))
        learner.update(*_told(learner, tuple(table[t] for table in tables), actions[-1]))
    return actions


def _state(learner: Any) -> str:
    return json.dumps(learner.state_dict(), sort_keys=True)


def _refused(call: Any, *args: Any) -> bool:
    try:
        call(*args)
    except (ValueError, RuntimeError):
        return True
    return False


def check_actions_in_range(case: Case) -> None:
    """`act()` gives a whole number from 0 to `n_actions - 1`, and more than one of them over a run."""
    learner, tables = case.make(), _tables(case)
    assert learner.n_actions == tables[0].shape[1], (
        f"n_actions is {learner.n_actions}, data() has {tables[0].shape[1]} actions"
    )
    seen = set()
    for t in range(_rounds(tables)):
        action = learner.act()
        assert isinstance(action, (int, np.integer)) and not isinstance(action, bool), (
            f"act() gave {action!r}, not a whole number"
        )
        assert 0 <= action < learner.n_actions, f"act() gave {action}, outside 0 to {learner.n_actions - 1}"
        seen.add(int(action))
        learner.update(*_told(learner, tuple(table[t] for table in tables), int(action)))
    assert len(seen) > 1, f"{_rounds(tables)} rounds, and only action {seen} was played"


def check_act_before_update(case: Case) -> None:
    """`update` without an open round is refused, at the start and after each round; nothing changes then."""
    learner, tables = case.make(), _tables(case)
    rows = tuple(table[0] for table in tables)
    before = _state(learner)
    assert _refused(learner.update, *_told(learner, rows, 0)), "update() was accepted before the first act()"
    assert _state(learner) == before, "a refused update() changed the state"
    action = learner.act()
    learner.update(*_told(learner, rows, action))
    before = _state(learner)
    assert _refused(learner.update, *_told(learner, rows, action)), "a second update() of the same round was accepted"
    assert _state(learner) == before, "a refused second update() changed the state"


def check_act_twice_refused(case: Case) -> None:
    """A second `act` before the answer is refused and draws nothing: the round goes on as if it had not been asked."""
    learner, twin = case.make(), case.make()
    learner.act(), twin.act()
    assert _refused(learner.act), "act() was accepted twice without update()"
    assert _state(learner) == _state(twin), "a refused act() changed the state"


def check_probabilities_on_simplex(case: Case) -> None:
    """`probabilities()` is one number per action, none negative, with sum 1, in every round; asking changes nothing."""
    learner, tables = case.make(), _tables(case)
    for t in range(_rounds(tables)):
        before = _state(learner)
        p = np.asarray(learner.probabilities())
        assert _state(learner) == before, "probabilities() changed the state"
        assert p.shape == (learner.n_actions,), f"probabilities() has the shape {p.shape}"
        assert np.isfinite(p).all() and (p >= 0).all(), f"round {t}: probabilities {p}"
        assert abs(p.sum() - 1) <= _SUM, f"round {t}: probabilities sum to {p.sum():.12g}"
        _play(learner, tables, t, t + 1)


def check_deterministic(case: Case) -> None:
    """Equal learners on equal rounds play equal actions, whatever the global generators hold."""
    tables = _tables(case)
    held = np.random.get_state()  # noqa: NPY002 - it is the legacy generator that must not matter
    try:
        np.random.seed(1)  # noqa: NPY002
        first = case.make()
        actions = _play(first, tables, 0, _rounds(tables))
        np.random.seed(2)  # noqa: NPY002
        second = case.make()
        again = _play(second, tables, 0, _rounds(tables))
    finally:
        np.random.set_state(held)  # noqa: NPY002
    assert actions == again, "two equal runs played different actions"
    assert _state(first) == _state(second), "two equal runs end in different states"


def check_instances_are_independent(case: Case) -> None:
    """Two learners that play in turns do what each does alone."""
    tables = _tables(case)
    n = _rounds(tables)
    alone = _play(case.make(), tables, 0, n)
    one, two = case.make(), case.make()
    turns: list[int] = []
    for t in range(n):
        turns += _play(one, tables, t, t + 1)
        _play(two, tables, n - 1 - t, n - t)
    assert turns == alone, "a second learner changed what the first one plays"


def check_state_round_trip(case: Case) -> None:
    """`state_dict` through JSON into a fresh learner, at any round: it goes on bit for bit."""
    tables = _tables(case)
    n = _rounds(tables)
    whole = case.make()
    actions = _play(whole, tables, 0, n)
    for stop in sorted({0, 1, n // 3, n - 1}):
        half = case.make()
        _play(half, tables, 0, stop)
        text = json.dumps(half.state_dict(), allow_nan=False)
        fresh = case.make()
        fresh.load_state_dict(json.loads(text))
        assert _play(fresh, tables, stop, n) == actions[stop:], f"saved after {stop} rounds, it plays other actions"
        assert _state(fresh) == _state(whole), f"saved after {stop} rounds, it ends in another state"


def check_state_inside_a_round(case: Case) -> None:
    """A state taken between `act` and `update` keeps the open round: no second act, and the same end."""
    learner, tables = case.make(), _tables(case)
    stop = _rounds(tables) // 2
    _play(learner, tables, 0, stop)
    action = learner.act()
    fresh = case.make()
    fresh.load_state_dict(json.loads(json.dumps(learner.state_dict())))
    assert _refused(fresh.act), "the restored learner forgot that a round is open"
    rows = tuple(table[stop] for table in tables)
    for one in (learner, fresh):
        one.update(*_told(one, rows, action))
    assert _state(fresh) == _state(learner), "the restored round ended in another state"


def check_state_is_a_copy(case: Case) -> None:
    """A state that was taken does not move when the learner goes on."""
    learner, tables = case.make(), _tables(case)
    _play(learner, tables, 0, 3)
    state = learner.state_dict()
    held = json.dumps(state, sort_keys=True)
    _play(learner, tables, 3, _rounds(tables))
    assert json.dumps(state, sort_keys=True) == held, "the state_dict changed while the learner went on"


def check_deepcopy(case: Case) -> None:
    """A deep copy goes on with the same bits and leaves the original alone."""
    learner, tables = case.make(), _tables(case)
    n = _rounds(tables)
    _play(learner, tables, 0, n // 2)
    twin, before = copy.deepcopy(learner), _state(learner)
    played = _play(twin, tables, n // 2, n)
    assert _state(learner) == before, "playing the copy moved the original"
    assert _play(learner, tables, n // 2, n) == played, "the copy went another way than the original"


def _bad_feedback(learner: Any, rows: tuple[np.ndarray, ...], action: int) -> list[tuple[str, list[Any]]]:
    good = _told(learner, rows, action)
    faults = []
    for i in range(len(good)):
        for name, value in (("NaN", math.nan), ("infinity", math.inf)):
            bad = list(good)
            if _kind_of_feedback(learner) == "bandit":
                bad[i] = value
            else:
                bad[i] = good[i].copy()
                bad[i][action] = value
            faults.append((f"{name} in argument {i + 1}", bad))
        bad = list(good)
        bad[i] = [0.1, 0.2] if _kind_of_feedback(learner) == "bandit" else np.append(rows[i], 0.5)
        faults.append((f"a wrong shape in argument {i + 1}", bad))
    return faults


def check_bad_feedback_refused(case: Case) -> None:
    """NaN, infinity and wrong shapes are refused with ValueError, leave the state as it was, and the round open."""
    tables = _tables(case)
    learner = case.make()
    _play(learner, tables, 0, 5)
    action = learner.act()
    before = _state(learner)
    rows = tuple(table[5] for table in tables)
    for what, bad in _bad_feedback(learner, rows, action):
        try:
            learner.update(*bad)
        except ValueError:
            assert _state(learner) == before, f"{what} was refused, but the state changed"
        else:
            raise AssertionError(f"{what} was accepted")
    learner.update(*_told(learner, rows, action))


def check_feedback_untouched(case: Case) -> None:
    """What is passed to `update` is read, not written."""
    learner, tables = case.make(), _tables(case)
    if _kind_of_feedback(learner) == "bandit":
        raise not_applicable("a bandit is told numbers, which nobody can write to")
    for t in range(_rounds(tables)):
        action = learner.act()
        told = _told(learner, tuple(table[t] for table in tables), action)
        held = [x.copy() for x in told]
        learner.update(*told)
        for i, (now, was) in enumerate(zip(told, held)):
            assert np.array_equal(now, was, equal_nan=True), f"round {t}: update() wrote to its argument {i + 1}"


def check_unseen_is_not_read(case: Case) -> None:
    """One-sided learners: what lies above the played action may hold anything without changing a bit."""
    learner, twin, tables = case.make(), case.make(), _tables(case)
    if _kind_of_feedback(learner) != "one_sided":
        raise not_applicable("only one-sided feedback has entries that nobody may read")
    for t in range(_rounds(tables)):
        action, other = learner.act(), twin.act()
        rows = tuple(table[t] for table in tables)
        learner.update(*_told(learner, rows, action))
        # other fillers for other arguments, so that no difference of two cancels them
        filled = [np.where(np.isnan(x), 0.77 / (i + 1), x) for i, x in enumerate(_told(twin, rows, other))]
        twin.update(*filled)
        assert _state(learner) == _state(twin), f"round {t}: entries above the played action were read"


def _easy(case: Case, n: int) -> tuple[np.ndarray, ...]:
    """Rounds of one easy world: the third action always earns most and costs nothing."""
    K = _tables(case)[0].shape[1]
    reward = np.full((n, K), 0.2)
    reward[:, 0] = 0.0
    reward[:, min(2, K - 1)] = 0.9
    return (reward, *(np.zeros((n, K)) for _ in range(len(_tables(case)) - 1)))


def check_regret_sublinear(case: Case) -> None:
    """On an easy stream the mean regret of the last quarter is below a third of that of uniform play."""
    learner = case.make()
    n = int(getattr(learner, "horizon", 0)) or 2000
    world = _easy(case, n)
    actions = np.array(_play(learner, world, 0, n))
    reward = world[0]
    last = np.arange(n) >= 3 * n // 4
    mean = float((reward.max(axis=1) - reward[np.arange(n), actions])[last].mean())
    uniform = float((reward.max(axis=1) - reward.mean(axis=1)).mean())
    assert mean < uniform / 3, (
        f"mean regret {mean:.3g} in the last quarter of {n} rounds; uniform play has {uniform:.3g}"
    )


CHECKS: tuple[Check, ...] = (
    check_actions_in_range,
    check_act_before_update,
    check_act_twice_refused,
    check_probabilities_on_simplex,
    check_deterministic,
    check_instances_are_independent,
    check_state_round_trip,
    check_state_inside_a_round,
    check_state_is_a_copy,
    check_deepcopy,
    check_bad_feedback_refused,
    check_feedback_untouched,
    check_unseen_is_not_read,
    check_regret_sublinear,
)


def checks(case: Case) -> list[tuple[str, Check]]:
    """The named checks of this kind."""
    return [(check.__name__, check) for check in CHECKS]


def check_online_learner(case: Case) -> list[CheckResult]:
    """Run the contract of kind "online learner".

    A learner has ``n_actions``, ``act() -> int``, ``update(...)``, ``probabilities()``, ``state_dict()`` (JSON) and
    ``load_state_dict(state)``. Its attribute ``feedback`` says what `update` is told: "full" (an array over the actions
    per table; the default), "bandit" (a number of the played action) or "one_sided" (arrays that are NaN above the played
    action). Where it has ``horizon``, the easy stream of `check_regret_sublinear` is that long.

    Parameters
    ----------
    case : Case
        ``make()`` gives a fresh learner; ``data()`` a tuple of tables, rounds x actions, the first of which is the reward,
        in the order of the arguments of `update`.

    Returns
    -------
    list of CheckResult
        One per check.

    Raises
    ------
    AssertionError
        Names every check that failed.

    Examples
    --------
    >>> import numpy as np
    >>> from assay.decisions.dual_balancing import DualBalancing
    >>> from assay.testing import Case, check_online_learner
    >>> rng = np.random.default_rng(0)
    >>> reward, cost = rng.random((2, 40, 3)) * [0, 1, 1]
    >>> case = Case(
    ...     "full",
    ...     "online learner",
    ...     make=lambda: DualBalancing(1000, 300, n_actions=3),
    ...     data=lambda: (reward, cost),
    ... )
    >>> sorted({result.status for result in check_online_learner(case)})
    ['passed', 'skipped']
    """
    return run_checks(case, checks(case))
