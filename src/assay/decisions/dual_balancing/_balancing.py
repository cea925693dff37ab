"""Dual balancing: multipliers for budget, ROI and further long-run constraints over any learner of actions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from assay._core.errors import InputError

from ._kernels import (
    ACT,
    BANDIT,
    CLOSED_FORM,
    FULL,
    ONE_SIDED,
    RANGE,
    RESERVED,
    REWARD,
    ROUNDS,
    SPEND,
    STOPPED,
    UPDATE,
    play_grid,
    play_multiplier,
)
from ._learners import (
    ROI_LIMIT,
    _Weights,
    bandit_rate,
    check_count,
    check_number,
    fixed_share_rate,
    one_sided_rate,
)

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike, NDArray

FEEDBACKS = {"full": FULL, "bandit": BANDIT, "one_sided": ONE_SIDED}
_HISTORY = 2_000  # points kept; beyond, every second one goes and the distance doubles
# kappa_B = 1 and kappa_R = 2 with full feedback, 1 and 1 with less: measured, see the guide's decisions
KAPPA_BUDGET = 1.0
KAPPA_ROI = {FULL: 2.0, BANDIT: 1.0, ONE_SIDED: 1.0}


@dataclass(frozen=True)
class BudgetConstraint:
    """Spend at most `rho` per round on average; with it the budget ``rho * horizon`` is never exceeded.

    Parameters
    ----------
    rho : float
        Budget per round, in the unit of the costs.

    Examples
    --------
    >>> from assay.decisions.dual_balancing import BudgetConstraint
    >>> BudgetConstraint(0.1).rho
    0.1
    """

    rho: float


@dataclass(frozen=True)
class ROIConstraint:
    """Earn at least `omega` per unit of cost in the long run.

    Parameters
    ----------
    omega : float
        Target of total reward over total cost.

    Examples
    --------
    >>> from assay.decisions.dual_balancing import ROIConstraint
    >>> ROIConstraint(1.5).omega
    1.5
    """

    omega: float


@dataclass(frozen=True)
class LinearConstraint:
    """Keep ``reward * f + cost * c + usage @ z`` at or below `limit` on average over the rounds.

    Parameters
    ----------
    reward, cost : float, default 0
        Coefficients of reward and cost.
    usage : tuple of float, default ()
        Coefficients of further resources z, each in [0, 1], that are passed to `DualBalancing.update`.
    limit : float, default 0
        What the average may reach.
    eta : float, default None
        Step of the multiplier; None is 2 / sqrt(T).

    Examples
    --------
    At most one win in ten rounds, where z is 1 for a win:

    >>> from assay.decisions.dual_balancing import LinearConstraint
    >>> LinearConstraint(usage=(1.0,), limit=0.1).limit
    0.1
    """

    reward: float = 0.0
    cost: float = 0.0
    usage: tuple[float, ...] = ()
    limit: float = 0.0
    eta: float | None = None


Constraint = BudgetConstraint | ROIConstraint | LinearConstraint


@dataclass
class Setup:
    """Everything that the compiled loops need to know, in arrays; the same for live classes and replays."""

    horizon: int
    budget: float
    unit: float
    coef: NDArray[np.float64]
    limit: NDArray[np.float64]
    cap: NDArray[np.float64]
    step: NDArray[np.float64]
    has_budget: bool
    roi: int  # row of the ROI constraint, -1 without
    roi_target: float | None
    usages: int
    pace: NDArray[np.float64] | None  # budget share of every round (in units); None: even

    @property
    def rho(self) -> float:
        return self.budget / (self.horizon * self.unit)

    def paces(self, start: int, n: int) -> NDArray[np.float64]:
        """Limits of the budget constraint in rounds `start` to `start + n`."""
        if self.pace is None:
            return np.full(n, self.rho if self.has_budget else 0.0)
        return self.pace[start : start + n]


def build_setup(
    *,
    horizon: int,
    budget: float | None,
    roi_target: float | None,
    feedback: int,
    unit: float = 1.0,
    eta_budget: float | None = None,
    eta_roi: float | None = None,
    constraints: Sequence[Constraint] | None = None,
    target_spend: ArrayLike | None = None,
    roi_cap: float = math.inf,
) -> Setup:
    """Check the settings and turn them into arrays."""
    T = check_count("horizon", horizon, 10)
    unit = check_number("scale", unit, open_low=True)
    extra: list[LinearConstraint] = []
    for item in constraints or ():
        if isinstance(item, BudgetConstraint):
            if budget is not None:
                raise InputError("Give the budget either as budget= or as BudgetConstraint, not both.")
            budget = check_number("rho", item.rho, open_low=True) * T
        elif isinstance(item, ROIConstraint):
            if roi_target is not None:
                raise InputError("Give the ROI target either as roi_target= or as ROIConstraint, not both.")
            roi_target = item.omega
        elif isinstance(item, LinearConstraint):
            extra.append(item)
        else:
            raise InputError(f"constraints must be Budget-, ROI- or LinearConstraint, got {type(item).__name__}.")
    has_budget = budget is not None
    B = math.inf if budget is None else check_number("budget", budget, open_low=True)
    if roi_target is not None:
        roi_target = check_number("roi_target", roi_target, 0.0, ROI_LIMIT)
    E = max((len(item.usage) for item in extra), default=0)
    rows, limits, caps, steps = [], [], [], []
    root = math.sqrt(T)
    if has_budget:
        rho = B / (T * unit)
        if rho >= 1.0:
            warnings.warn(
                f"The budget allows {rho:.3g} times the largest cost in every round, so it cannot bind.", stacklevel=4
            )
        rows.append([0.0, 1.0] + [0.0] * E)
        limits.append(rho)
        caps.append(1.0 / rho)
        # eta must grow as 1/rho: with 1/sqrt(T) alone a small budget is gone before the multiplier has risen
        steps.append(KAPPA_BUDGET / (rho * root) if eta_budget is None else check_number("eta_budget", eta_budget))
    roi = -1
    if roi_target is not None:
        roi = len(rows)
        rows.append([-1.0, roi_target] + [0.0] * E)
        limits.append(0.0)
        caps.append(roi_cap)
        steps.append(KAPPA_ROI[feedback] / root if eta_roi is None else check_number("eta_roi", eta_roi))
    for item in extra:
        rows.append([item.reward, item.cost, *item.usage] + [0.0] * (E - len(item.usage)))
        if not np.isfinite([*rows[-1], item.limit]).all():
            raise InputError("The coefficients and the limit of a LinearConstraint must be finite numbers.")
        limits.append(item.limit)
        caps.append(math.inf)
        steps.append(2.0 / root if item.eta is None else check_number("eta", item.eta, open_low=True))
    pace = None
    if target_spend is not None:
        if not has_budget:
            raise InputError("target_spend needs a budget.")
        pace = _pace(target_spend, T, B / unit)
    return Setup(
        T, B, unit, np.array(rows, dtype=np.float64).reshape(len(rows), 2 + E), np.array(limits, dtype=np.float64),
        np.array(caps, dtype=np.float64), np.array(steps, dtype=np.float64), has_budget, roi, roi_target, E, pace,
    )  # fmt: skip


def _pace(target: ArrayLike, T: int, total: float) -> NDArray[np.float64]:
    """Budget of every round from a cumulative curve over equal parts of the horizon, scaled to end at the budget."""
    curve = np.asarray(target, dtype=np.float64)
    if curve.ndim != 1 or len(curve) < 1 or not np.isfinite(curve).all():
        raise InputError("target_spend must be a list of finite cumulative amounts.")
    if (np.diff(curve, prepend=0.0) < 0).any() or curve[-1] <= 0:
        raise InputError("target_spend must be cumulative: it never falls and ends above 0.")
    at = np.linspace(0.0, 1.0, len(curve) + 1)
    cumulative = np.interp(np.linspace(0.0, 1.0, T + 1), at, np.concatenate(([0.0], curve))) / curve[-1] * total
    return np.diff(cumulative)


class State:
    """The arrays that change: multipliers, sums, weights. One per stream."""

    def __init__(self, setup: Setup, n_actions: int, share: float, n_contexts: int = 1) -> None:
        m = len(setup.limit)
        self.w = np.full((n_contexts, n_actions), 1.0 / n_actions if share > 0 else 0.0)
        self.duals = np.zeros(m)
        self.totals = np.zeros((m, 2))
        self.num = np.array([1.0, 0.0, 0.0, 0.0, 0.0, -1.0])

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name).tolist() for name in ("w", "duals", "totals", "num")}

    def load(self, state: dict[str, Any], where: str = "The state") -> None:
        new = {}
        for name in ("w", "duals", "totals", "num"):
            old = getattr(self, name)
            if name not in state:
                raise InputError(f"{where} lacks the field {name!r}.")
            value = np.asarray(state[name], dtype=np.float64).reshape(
                old.shape if np.size(state[name]) == old.size else -1
            )
            if value.shape != old.shape:
                raise InputError(f"{where}: the field {name!r} has {value.size} numbers, {old.size} are needed.")
            new[name] = value
        for name, value in new.items():
            getattr(self, name)[...] = value


def grid_rates(feedback: int, n_actions: int, horizon: int) -> tuple[float, float, float]:
    """eta, gamma and share of the default learner of a feedback."""
    share = 1.0 / horizon
    if feedback == FULL:
        return fixed_share_rate(n_actions, horizon), 0.0, share
    if feedback == BANDIT:
        eta = bandit_rate(n_actions, horizon)
        return eta, eta / 2, share
    return one_sided_rate(n_actions, horizon), 1.0 / (10.0 * math.sqrt(horizon)), share


_PRIMALS = ("auto", "fixed_share", "hedge", "exp3six", "exp3", "one_sided")


def primal_rates(primal: Any, feedback: int, n_actions: int, horizon: int) -> tuple[float, float, float]:
    """eta, gamma, share of a named learner or of one of this module's learner objects."""
    if isinstance(primal, _Weights):
        if primal.n_actions != n_actions:
            raise InputError(f"The learner has {primal.n_actions} actions, the problem {n_actions}.")
        if primal.feedback != feedback:
            raise InputError(f"The learner {type(primal).__name__} does not go with this feedback.")
        return primal.eta, primal.gamma, primal.share
    if primal not in _PRIMALS:
        raise InputError(f"primal must be one of {', '.join(_PRIMALS)} or a learner, got {primal!r}.")
    wanted = {"fixed_share": FULL, "hedge": FULL, "exp3six": BANDIT, "exp3": BANDIT, "one_sided": ONE_SIDED}
    if primal != "auto" and wanted[primal] != feedback:
        raise InputError(f"primal={primal!r} does not go with this feedback; primal='auto' chooses one that does.")
    eta, gamma, share = grid_rates(feedback, n_actions, horizon)
    return (eta, 0.0, 0.0) if primal in ("hedge", "exp3") else (eta, gamma, share)


class DualBalancing:
    """Choose actions online under a hard budget and long-run constraints, without knowing how feasible they are.

    .. math::

       \\max \\sum_t f_t(x_t) \\quad\\text{subject to}\\quad \\sum_t c_t(x_t) \\le B, \\qquad
       \\sum_t f_t(x_t) \\ge \\omega \\sum_t c_t(x_t)

    The primal learner sees :math:`f - \\lambda c - \\mu(\\omega c - f)`; the multipliers follow by projected gradient
    steps, :math:`\\lambda` within :math:`[0, 1/\\rho]` and :math:`\\mu \\ge 0`.

    Parameters
    ----------
    horizon : int
        Number of rounds T, at least 10.
    budget : float or None
        Total budget B in the unit of the costs; never exceeded. None: no budget.
    roi_target : float, default None
        omega: total reward over total cost to be reached in the long run; None: no target.
    n_actions : int, default None
        Number of actions K with the void action 0.
    action_grid : array-like, default None
        Values of the actions, in rising order, instead of `n_actions`; a 0 is put in front where it is missing.
    feedback : {"full", "bandit", "one_sided"}, default "full"
        What `update` is told: everything, the played action, or all actions up to the played one.
    primal : str or learner, default "auto"
        "fixed_share", "hedge", "exp3six", "exp3", "one_sided", one of this module's learners, or any object with
        ``probabilities()`` and ``update(utility)`` (with bandit feedback ``update(action, utility)``).
    eta_budget, eta_roi : float, default None
        Steps of the multipliers; None is 1 / (rho sqrt T) and 2 / sqrt T (1 / sqrt T with less than full feedback).
    constraints : sequence, default None
        Further `BudgetConstraint`, `ROIConstraint` or `LinearConstraint`.
    scale : float, default 1
        Largest reward and cost; rewards and costs are divided by it.
    target_spend : array-like, default None
        Cumulative spending to follow, over equal parts of the horizon, in place of even pacing.
    n_contexts : int, default 1
        Number of contexts, each with weights of its own; all share the multipliers.
    overrun : {"raise", "double"}, default "raise"
        After `horizon` rounds: refuse, or go on with twice the horizon and twice the budget (unknown horizon with a fixed
        budget per round), keeping multipliers and weights.
    random_state : int, default 0
        Seed of the drawn actions.

    Attributes
    ----------
    lambda_, mu_ : float
        Multipliers of budget and ROI.
    remaining_budget, spend_, reward_ : float
        In the unit of the costs and rewards.
    roi_ : float
        Reward over cost so far; NaN before the first cost.
    violation_ : float
        max(0, sum of omega c - f) so far, in the same unit.
    t_ : int
        Rounds played.
    history_ : DataFrame
        At most 2,000 points of the run.

    Raises
    ------
    InputError
        If a setting is out of its range, or rounds are played out of order.

    Notes
    -----
    1. The worst cost of the drawn action (`worst` of `act`, else `scale`) is held against the budget before it is played.
    2. With bandit and one-sided feedback a void action that the budget forced teaches nothing: it was not drawn.

    References
    ----------
    Castiglioni, Celli and Kroer, "Online Learning under Budget and ROI Constraints via Weak Adaptivity", ICML 2024,
    arXiv:2302.01203.

    Examples
    --------
    >>> from assay.decisions.dual_balancing import DualBalancing
    >>> learner = DualBalancing(horizon=100, budget=20, n_actions=3)
    >>> for _ in range(100):
    ...     action = learner.act()
    ...     learner.update(reward=[0.0, 0.8, 0.3], cost=[0.0, 0.8, 0.1])
    >>> learner.spend_ <= 20
    True
    """

    def __init__(
        self,
        horizon: int,
        budget: float | None = None,
        roi_target: float | None = None,
        n_actions: int | None = None,
        action_grid: ArrayLike | None = None,
        feedback: Literal["full", "bandit", "one_sided"] = "full",
        primal: Any = "auto",
        eta_budget: float | None = None,
        eta_roi: float | None = None,
        constraints: Sequence[Constraint] | None = None,
        scale: float = 1.0,
        target_spend: ArrayLike | None = None,
        n_contexts: int = 1,
        overrun: Literal["raise", "double"] = "raise",
        random_state: int = 0,
    ) -> None:
        if feedback not in FEEDBACKS:
            raise InputError(f"feedback must be full, bandit or one_sided, got {feedback!r}.")
        if overrun not in ("raise", "double"):
            raise InputError(f"overrun must be raise or double, got {overrun!r}.")
        self.feedback = feedback
        self.action_grid_, self.n_actions = _actions(n_actions, action_grid)
        self._overrun = overrun
        self._eta_budget, self._eta_roi, self._constraints = eta_budget, eta_roi, tuple(constraints or ())
        self._code = FEEDBACKS[feedback]
        self._primal = primal
        self._seed = check_count("random_state", random_state, 0)
        self._setup = build_setup(
            horizon=horizon, budget=budget, roi_target=roi_target, feedback=self._code, unit=scale,
            eta_budget=eta_budget, eta_roi=eta_roi, constraints=constraints, target_spend=target_spend,
        )  # fmt: skip
        if overrun == "double" and target_spend is not None:
            raise InputError("target_spend needs a known horizon; use overrun='raise'.")
        if not len(self._setup.limit):
            raise InputError("Nothing to balance: give a budget, an ROI target or a constraint.")
        self.n_contexts = check_count("n_contexts", n_contexts, 1)
        self._learner = None
        if not isinstance(primal, (str, _Weights)):
            self._learner = primal
            for name in ("probabilities", "update"):
                if not callable(getattr(primal, name, None)):
                    raise InputError(f"The learner {type(primal).__name__} has no method {name}().")
            if self.n_contexts > 1:
                raise InputError("n_contexts needs a learner of this library (primal by name).")
            self._rates = (1.0, 0.0, 0.0)
        else:
            self._rates = self._make_rates()
        self._at_start = self._setup, self._rates
        self._state = State(self._setup, self.n_actions, self._rates[2], self.n_contexts)
        self._rng = np.random.default_rng(self._seed)
        self._p = np.zeros(self.n_actions)
        self._waiting: tuple[int, int, int] | None = None  # action, whether the budget forced it, context
        self._history: list[list[float]] = []
        self._stride = 1
        self._epoch = 0

    def _make_rates(self) -> tuple[float, float, float]:
        # a learner of one context sees its share of the rounds
        rounds = max(1, self._setup.horizon // self.n_contexts)
        return primal_rates(self._primal, self._code, self.n_actions, rounds)

    # --- the round ---

    def probabilities(self, context: int = 0) -> NDArray[np.float64]:
        """Return the distribution of the next draw (K, sums to 1), before the budget check."""
        if self._learner is not None:
            return np.asarray(self._learner.probabilities(), dtype=np.float64)
        if self._rates[2] > 0:
            return self._state.w[context].copy()
        p = np.exp(self._state.w[context])
        return np.asarray(p / p.sum())

    def act(self, context: int | None = None, *, worst: ArrayLike | None = None) -> int:
        """Begin a round and return the action to play.

        Parameters
        ----------
        context : int, default None
            Number of the context, from 0 to ``n_contexts - 1``; None is 0.
        worst : array-like, K, default None
            Largest cost that each action can have in this round; None is `scale` for every action but the void.

        Returns
        -------
        int
            The action, 0 for void.

        Raises
        ------
        InputError
            If the round before has no answer yet, or the horizon is over.
        """
        if self._waiting is not None:
            raise InputError("act() was called twice: the round before still waits for update().")
        state, setup = self._state, self._setup
        place = 0 if context is None else check_count("context", context, 0)
        if place >= self.n_contexts:
            raise InputError(f"context must be below n_contexts = {self.n_contexts}, got {place}.")
        if state.num[ROUNDS] >= setup.horizon:
            if self._overrun == "raise":
                raise InputError(
                    f"The horizon of {setup.horizon} rounds is over; set horizon= higher or overrun='double'."
                )
            self._double()
            setup = self._setup
        row = self._worst(worst)
        if self._learner is not None:
            self._draw_from_learner(row)
        else:
            actions, forced = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int8)
            none = np.zeros((1, setup.usages, self.n_actions))
            self._call(ACT, row, row, none, row, 0.0, actions, forced, place)
            self._waiting = int(actions[0]), int(forced[0]), place
        return self._waiting[0]  # type: ignore[index]

    def update(self, reward: ArrayLike, cost: ArrayLike, usage: ArrayLike | None = None) -> None:
        """End the round with its feedback.

        Parameters
        ----------
        reward, cost : array-like, K, or float
            Of every action (full), of the actions up to the played one (one-sided; later entries are not read), or of the
            played action (bandit: a number each).
        usage : array-like, E x K, or E, default None
            Further resources of `LinearConstraint`, each in [0, 1].

        Raises
        ------
        InputError
            If no round is open, shapes are wrong, or a number is not finite or out of range; nothing has changed then.
        """
        if self._waiting is None:
            raise InputError("update() without act(): no round is open.")
        action, forced, place = self._waiting
        rewards, costs, usages = self._feedback(action, reward, cost, usage)
        pace = float(self._setup.paces(int(self._state.num[ROUNDS]) - 1, 1)[0])
        if self._learner is not None:
            self._teach(action, forced, rewards, costs, usages)
        self._call(
            UPDATE, rewards, costs, usages, rewards, pace, np.array([action]), np.array([forced], dtype=np.int8),
            place, BANDIT if self._learner is not None else self._code,
        )  # fmt: skip
        self._waiting = None
        self._remember(action)

    def _call(
        self, phase: int, f: Any, c: Any, z: Any, worst: Any, pace: float, actions: Any, forced: Any, place: int,
        code: int | None = None,
    ) -> None:  # fmt: skip
        state, setup = self._state, self._setup
        eta, gamma, share = self._rates
        par = np.array([eta, gamma, share, setup.unit, setup.budget, float(setup.has_budget)])
        draws = self._rng.random(1) if phase == ACT else np.zeros(1)
        # a user's learner keeps weights of its own: the loop then only books money and moves the multipliers
        w = self._p.reshape(1, -1).copy() if self._learner is not None else state.w
        play_grid(
            phase, self._code if code is None else code, f, c, z, worst, np.array([pace]), draws,
            np.array([place]), w, self._p, setup.coef, setup.limit, setup.cap, setup.step, state.duals, state.totals,
            state.num, par, actions, forced, np.zeros((1, 0)), 0,
        )  # fmt: skip

    def _draw_from_learner(self, worst: NDArray[np.float64]) -> None:
        p = np.asarray(self._learner.probabilities(), dtype=np.float64)  # type: ignore[union-attr]
        # 1e-6: what a learner in single precision may be off
        if p.shape != (self.n_actions,) or not (p >= 0).all() or abs(p.sum() - 1) > 1e-6:
            raise InputError("The learner's probabilities() must be one per action, not negative, and sum to 1.")
        self._p[:] = p / p.sum()
        num = self._state.num
        drawn = int(np.searchsorted(np.cumsum(self._p), self._rng.random(), side="right"))
        a = min(drawn, self.n_actions - 1)
        forced = int(a != 0 and num[SPEND] + num[RESERVED] + worst[0, a] > self._setup.budget)
        if forced and num[STOPPED] < 0:
            num[STOPPED] = num[ROUNDS]
        num[ROUNDS] += 1
        self._waiting = (0, 1, 0) if forced else (a, 0, 0)

    def _teach(self, action: int, forced: int, f: Any, c: Any, z: Any) -> None:
        setup, duals = self._setup, self._state.duals
        wf, wc = 1.0 - duals @ setup.coef[:, 0], duals @ setup.coef[:, 1]
        u = (wf * f[0] - wc * c[0]) / setup.unit - (duals @ setup.coef[:, 2:]) @ z[0]
        learner: Any = self._learner
        if self._code == FULL:
            learner.update(u)
        elif not forced:
            if self._code == BANDIT:
                learner.update(action, float(u[action]))
            else:
                learner.update(action, np.where(np.arange(self.n_actions) <= action, u, np.nan))

    def _worst(self, worst: ArrayLike | None) -> NDArray[np.float64]:
        if worst is None:
            row = np.full((1, self.n_actions), self._setup.unit)
            row[0, 0] = 0.0
            return row
        row = np.asarray(worst, dtype=np.float64).reshape(1, -1)
        if row.shape[1] != self.n_actions or not (row >= 0).all():
            raise InputError(f"worst must be {self.n_actions} costs of 0 or more.")
        return row

    def _feedback(self, action: int, reward: Any, cost: Any, usage: Any) -> tuple[Any, Any, Any]:
        K, unit, E = self.n_actions, self._setup.unit, self._setup.usages
        known = slice(action, action + 1) if self._code == BANDIT else slice(0, action + 1 if self._code else K)
        tables = []
        for name, raw in (("reward", reward), ("cost", cost)):
            x = np.asarray(raw, dtype=np.float64)
            wanted = () if self._code == BANDIT else (K,)
            if x.shape != wanted:
                what = "a number" if self._code == BANDIT else f"one number per action ({K})"
                raise InputError(f"{name} must be {what} with {self.feedback} feedback, got the shape {x.shape}.")
            row = np.zeros((1, K))
            row[0, known] = x if self._code == BANDIT else x[known]
            bad = ~((row >= 0) & (row <= unit))
            if bad.any():
                k = int(np.argmax(bad))
                raise InputError(f"{name} of action {k} is {row[0, k]:g}; it must lie in [0, {unit:g}] (see scale=).")
            tables.append(row)
        if tables[0][0, 0] != 0 or tables[1][0, 0] != 0:
            raise InputError("The void action 0 has no reward and no cost.")
        z = np.zeros((1, E, K))
        if E:
            x = np.asarray(np.nan if usage is None else usage, dtype=np.float64)
            if x.shape != ((E,) if self._code == BANDIT else (E, K)):
                raise InputError(f"usage must have {E} rows for the LinearConstraint, got the shape {x.shape}.")
            z[0, :, known] = x[:, None] if self._code == BANDIT else x[:, known]
            if not ((z >= 0) & (z <= 1)).all():
                raise InputError("usage must lie in [0, 1].")
        elif usage is not None:
            raise InputError("usage is given, but no LinearConstraint reads it.")
        return tables[0], tables[1], z

    def _double(self) -> None:
        from dataclasses import replace

        old = self._setup
        budget = old.budget * 2
        self._epoch += 1
        ratio = math.sqrt(0.5)
        self._setup = replace(old, horizon=old.horizon * 2, budget=budget, step=old.step * ratio)
        if self._learner is None and isinstance(self._primal, str):
            self._rates = self._make_rates()
        elif self._learner is None:
            eta, gamma, share = self._rates
            self._rates = (eta * ratio, gamma * ratio, share / 2)

    # --- what a user reads ---

    @property
    def horizon(self) -> int:
        """Rounds in all (so far, where the horizon doubles)."""
        return self._setup.horizon

    @property
    def t_(self) -> int:
        """Rounds begun."""
        return int(self._state.num[ROUNDS])

    @property
    def lambda_(self) -> float:
        """Multiplier of the budget (0 without one)."""
        return float(self._state.duals[0]) if self._setup.has_budget else 0.0

    @property
    def mu_(self) -> float:
        """Multiplier of the ROI target (0 without one)."""
        return float(self._state.duals[self._setup.roi]) if self._setup.roi >= 0 else 0.0

    @property
    def duals_(self) -> NDArray[np.float64]:
        """All multipliers: budget, ROI, then the linear constraints in their order."""
        return self._state.duals.copy()

    @property
    def spend_(self) -> float:
        """Total cost so far."""
        return float(self._state.num[SPEND])

    @property
    def reward_(self) -> float:
        """Total reward so far."""
        return float(self._state.num[REWARD])

    @property
    def remaining_budget(self) -> float:
        """Budget that is left (infinite without one)."""
        return self._setup.budget - self.spend_

    @property
    def roi_(self) -> float:
        """Reward over cost so far."""
        return self.reward_ / self.spend_ if self.spend_ > 0 else math.nan

    @property
    def violation_(self) -> float:
        """How far the ROI target is missed in total, in the unit of the costs."""
        if self._setup.roi < 0:
            return 0.0
        return max(0.0, float(self._state.totals[self._setup.roi, 0])) * self._setup.unit

    @property
    def violations_(self) -> NDArray[np.float64]:
        """max(0, sum of g) of every constraint, in units of `scale`."""
        return np.maximum(0.0, self._state.totals[:, 0])

    @property
    def history_(self) -> pd.DataFrame:
        """The run at up to 2,000 rounds: t, action, reward and spend so far, multipliers."""
        import pandas as pd

        return pd.DataFrame(self._history, columns=["t", "action", "reward", "spend", "lambda", "mu"])

    def _remember(self, action: int) -> None:
        if self.t_ % self._stride:
            return
        self._history.append([self.t_, action, self.reward_, self.spend_, self.lambda_, self.mu_])
        if len(self._history) > _HISTORY:
            self._history = self._history[1::2]
            self._stride *= 2

    # --- keeping ---

    def _config(self) -> dict[str, Any]:
        setup = self._setup
        return {
            "horizon": setup.horizon >> self._epoch,
            "budget": None if not setup.has_budget else setup.budget / 2**self._epoch,
            "roi_target": setup.roi_target,
            "n_actions": self.n_actions,
            "n_contexts": self.n_contexts,
            "feedback": self.feedback,
            "primal": self._primal if isinstance(self._primal, str) else type(self._primal).__name__,
            "scale": setup.unit,
            "constraints": [{"kind": type(c).__name__, **asdict(c)} for c in self._constraints],
            "eta_budget": self._eta_budget,
            "eta_roi": self._eta_roi,
            "random_state": self._seed,
            "overrun": self._overrun,
            "target_spend": None if setup.pace is None else digest(setup.pace),
        }

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a learner needs to go on bit for bit, as JSON can hold it; also inside a round."""
        out = {
            "config": self._config(),
            "epoch": self._epoch,
            **self._state.to_json(),
            "p": self._p.tolist(),
            "waiting": None if self._waiting is None else list(self._waiting),
            "rng": rng_state(self._rng),
            "history": [list(row) for row in self._history],
            "stride": self._stride,
        }
        if self._learner is not None:
            if not callable(getattr(self._learner, "state_dict", None)):
                raise InputError(
                    f"The learner {type(self._learner).__name__} has no state_dict(), so it cannot be kept."
                )
            out["learner"] = self._learner.state_dict()
        return out

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave to a learner of the same settings.

        Raises
        ------
        InputError
            If the state is of other settings (names the field) or incomplete; nothing has changed then.
        """
        check_config(state, self._config())
        needed = ("epoch", "w", "duals", "totals", "num", "p", "waiting", "rng", "history", "stride")
        for name in needed:
            if name not in state:
                raise InputError(f"The state lacks the field {name!r}.")
        rng = load_rng(state["rng"])
        epoch = check_count("epoch", state["epoch"], 0)
        self._state.load(state)
        if self._learner is not None:
            self._learner.load_state_dict(state["learner"])
        (self._setup, self._rates), self._epoch = self._at_start, 0
        while self._epoch < epoch:
            self._double()
        self._rng = rng
        self._p = np.array(state["p"], dtype=np.float64)
        waiting = state["waiting"]
        self._waiting = None if waiting is None else (int(waiting[0]), int(waiting[1]), int(waiting[2]))
        self._history = [list(row) for row in state["history"]]
        self._stride = int(state["stride"])


def _actions(n_actions: int | None, grid: ArrayLike | None) -> tuple[NDArray[np.float64] | None, int]:
    if grid is None:
        if n_actions is None:
            raise InputError("Give n_actions or action_grid.")
        return None, check_count("n_actions", n_actions, 2)
    values = checked_grid(grid)
    if n_actions is not None and n_actions != len(values):
        raise InputError(f"n_actions is {n_actions}, but the grid has {len(values)} actions with the void one.")
    return values, len(values)


def checked_grid(grid: ArrayLike, name: str = "action_grid") -> NDArray[np.float64]:
    """A rising grid of actions that begins with the void action 0, which is added where it is missing."""
    values = np.asarray(grid, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all() or (values < 0).any():
        raise InputError(f"{name} must be a list of finite numbers of 0 or more.")
    values = np.sort(values)
    if (np.diff(values) == 0).any():
        raise InputError(f"{name} holds {values[:-1][np.diff(values) == 0][0]:g} twice.")
    if values[0] != 0:
        values = np.concatenate(([0.0], values))
    if len(values) < 2:
        raise InputError(f"{name} needs an action beside the void one.")
    return values


def rng_state(rng: np.random.Generator) -> dict[str, Any]:
    """A generator's state as JSON can hold it (its 128-bit integers as text, for readers other than Python)."""
    state: Any = rng.bit_generator.state
    return {**state, "state": {k: str(v) for k, v in state["state"].items()}}


def load_rng(state: dict[str, Any]) -> np.random.Generator:
    """The generator of `rng_state`."""
    rng = np.random.default_rng(0)
    try:
        rng.bit_generator.state = {**state, "state": {k: int(v) for k, v in state["state"].items()}}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"The field 'rng' of the state is damaged ({error}).") from error
    return rng


def check_config(state: Any, config: dict[str, Any]) -> None:
    """Refuse a state that belongs to other settings, and name the first that differs."""
    if not isinstance(state, dict) or not isinstance(state.get("config"), dict):
        raise InputError("This is not the state of a learner: the field 'config' is missing.")
    was = state["config"]
    for key, value in config.items():
        if key not in was:
            raise InputError(f"The state lacks the setting {key!r}.")
        if _plain(was[key]) != _plain(value):
            raise InputError(f"The state was made with {key} = {was[key]!r}, this one has {value!r}.")


def _plain(value: Any) -> Any:
    """Tuples become lists, as they do in JSON."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def digest(values: NDArray[np.float64]) -> str:
    """A short hash of numbers."""
    import hashlib

    return hashlib.sha256(values.tobytes()).hexdigest()[:16]


class ClosedForm:
    """The maximiser of the balanced utility in a second-price auction, one bid at a time (for `AutoBidder`)."""

    def __init__(self, setup: Setup, largest: float) -> None:
        self.setup = setup
        self.largest = largest
        self.state = State(setup, 1, 1.0)
        self.par = np.array([largest, 1.0, 0.0, setup.unit, setup.budget, float(setup.has_budget), 0.0, 0.0, 0.0])

    def call(self, phase: int, value: float, bid: float, gained: float, paid: float, pace: float) -> float:
        """Phase `ACT` returns the bid for a value; phase `UPDATE` books what it brought."""
        state, setup = self.state, self.setup
        bids = np.array([bid])
        play_multiplier(
            phase, CLOSED_FORM, 1, np.array([value]), np.zeros((1, 1)), np.zeros(1), np.array([pace]), setup.coef,
            setup.limit, setup.cap, setup.step, state.duals, state.totals, state.num, self.par, np.zeros(1), bids,
            np.array([gained]), np.array([paid]), np.zeros((1, 0)), 0,
        )  # fmt: skip
        return float(bids[0])


__all__ = [
    "ACT",
    "RANGE",
    "UPDATE",
    "BudgetConstraint",
    "ClosedForm",
    "DualBalancing",
    "LinearConstraint",
    "ROIConstraint",
    "Setup",
    "State",
    "build_setup",
    "check_config",
    "checked_grid",
    "digest",
    "grid_rates",
    "load_rng",
    "primal_rates",
    "rng_state",
]
