"""Learners over finitely many actions, or over a box: the primal and the dual side of the method, usable on their own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from assay._core.errors import InputError

from ._kernels import BANDIT, FULL, ONE_SIDED, UPDATE, play_grid

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_NONE = np.zeros(0)
ROI_LIMIT = 1e9  # of an ROI target: above it is a mistake, and products with costs must not overflow


def fixed_share_rate(n_actions: int, horizon: int) -> float:
    """eta of fixed share: 16 times the textbook's sqrt(8 log(KT) / T); the factor is measured, see the guide."""
    return 16.0 * math.sqrt(8.0 * math.log(n_actions * horizon) / horizon)


def bandit_rate(n_actions: int, horizon: int) -> float:
    """eta of EXP3-SIX; gamma is half of it."""
    return 4.0 * math.sqrt(2.0 * math.log(n_actions) / (n_actions * horizon))


def one_sided_rate(n_actions: int, horizon: int) -> float:
    """eta of one-sided feedback."""
    return math.sqrt(8.0 * math.log(n_actions * horizon) / horizon)


def check_count(name: str, value: Any, least: int) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    return int(value)


def check_number(name: str, value: Any, low: float = 0.0, high: float = math.inf, *, open_low: bool = False) -> float:
    """A finite number between `low` (excluded where `open_low`) and `high`."""
    try:
        x = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number, got {value!r}.") from None
    except OverflowError:  # a whole number beyond what a float can hold
        raise InputError(f"{name} is too large for a number with decimals.") from None
    if not math.isfinite(x) or x < low or x > high or (open_low and x == low):
        bounds = f"{'above' if open_low else 'at least'} {low:g}" + (
            f" and at most {high:g}" if high < math.inf else ""
        )
        raise InputError(f"{name} must be {bounds}, got {value!r}.")
    return x


class _Weights:
    """Weights over K actions that the compiled loop updates: without constraints its utility is the reward."""

    feedback = FULL

    def __init__(self, n_actions: int, horizon: int, eta: float | None, gamma: float, share: float | None) -> None:
        self.n_actions = check_count("n_actions", n_actions, 2)
        self.horizon = check_count("horizon", horizon, 1)
        self.eta = self._default_eta() if eta is None else check_number("eta", eta, open_low=True)
        self.gamma = check_number("gamma", gamma)
        self.share = 1.0 / self.horizon if share is None else check_number("share", share, 0.0, 1.0)
        self._w = np.full(self.n_actions, 1.0 / self.n_actions if self.share > 0 else 0.0)
        self._p = np.zeros(self.n_actions)
        self._num = np.array([1.0, 0.0, 0.0, 0.0, 0.0, -1.0])

    def _default_eta(self) -> float:
        raise NotImplementedError

    def probabilities(self) -> NDArray[np.float64]:
        """Return the distribution of the next action (K, sums to 1)."""
        if self.share > 0:
            return self._w.copy()
        p = np.exp(self._w)
        return np.asarray(p / p.sum())

    def next(self, rng: np.random.Generator) -> int:
        """Draw an action."""
        below = np.cumsum(self.probabilities())
        return int(min(np.searchsorted(below, rng.random() * below[-1], side="right"), self.n_actions - 1))

    def _apply(self, action: int, utility: NDArray[np.float64]) -> None:
        self._p[:] = self.probabilities()
        one = np.zeros(1)
        row = utility.reshape(1, -1)
        par = np.array([self.eta, self.gamma, self.share, 1.0, math.inf, 0.0])
        play_grid(
            UPDATE, self.feedback, row, np.zeros_like(row), np.zeros((1, 0, self.n_actions)), np.zeros_like(row), one, one,
            np.zeros(1, dtype=np.int64), self._w.reshape(1, -1), self._p, np.zeros((0, 2)), _NONE, _NONE, _NONE, _NONE,
            np.zeros((0, 2)), self._num, par, np.array([action]), np.zeros(1, dtype=np.int8), np.zeros((1, 0)), 0,
        )  # fmt: skip

    def _checked(self, utility: ArrayLike, known: int | None = None) -> NDArray[np.float64]:
        u = np.asarray(utility, dtype=np.float64)
        if u.shape != (self.n_actions,):
            raise InputError(f"utility must have one number per action ({self.n_actions}), got the shape {u.shape}.")
        if not np.isfinite(u[:known]).all():
            raise InputError(f"utility of action {int(np.argmin(np.isfinite(u)))} is not a finite number.")
        return u

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON can hold it."""
        return {"w": self._w.tolist(), "num": self._num.tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        w = np.asarray(state["w"], dtype=np.float64)
        if w.shape != self._w.shape:
            raise InputError(f"The state is of {w.shape[0]} actions, this learner has {self.n_actions}.")
        self._w[:] = w
        self._num[:] = state["num"]


class FixedShareHedge(_Weights):
    """Exponential weights with fixed share: low regret on every interval, not only over the whole horizon.

    .. math:: w \\leftarrow (1 - s)\\,\\mathrm{normalise}(w\\, e^{\\eta u / R}) + s / K

    where :math:`R` is the largest spread of utilities within a round so far, at least 1.

    Parameters
    ----------
    n_actions : int
        Number of actions K, at least 2.
    horizon : int
        Number of rounds T that share and rate are set for.
    share : float, default None
        Part of the weight that is spread evenly in every round; None is 1/T, 0 is Hedge.
    eta : float, default None
        Learning rate; None is 16 sqrt(8 log(KT) / T).

    Raises
    ------
    InputError
        If a number is out of its range.

    References
    ----------
    Herbster and Warmuth, 1998; Castiglioni, Celli and Kroer, 2024, arXiv:2302.01203.

    Examples
    --------
    >>> from assay.decisions.dual_balancing import FixedShareHedge
    >>> learner = FixedShareHedge(3, horizon=100)
    >>> for _ in range(20):
    ...     learner.update([0.1, 0.9, 0.2])
    >>> int(learner.probabilities().argmax())
    1
    """

    def __init__(self, n_actions: int, horizon: int, share: float | None = None, eta: float | None = None) -> None:
        super().__init__(n_actions, horizon, eta, 0.0, share)

    def _default_eta(self) -> float:
        return fixed_share_rate(self.n_actions, self.horizon)

    def update(self, utility: ArrayLike) -> None:
        """Learn from the utility of every action (K)."""
        self._apply(0, self._checked(utility))


class Hedge(_Weights):
    """Exponential weights: low regret over the whole horizon, slow to leave what was long the best.

    Parameters
    ----------
    n_actions : int
        Number of actions K, at least 2.
    horizon : int
        Number of rounds T that the rate is set for.
    eta : float, default None
        Learning rate; None is sqrt(8 log K / T).

    References
    ----------
    Freund and Schapire, 1997.

    Examples
    --------
    >>> from assay.decisions.dual_balancing import Hedge
    >>> learner = Hedge(2, horizon=100)
    >>> learner.update([0.0, 1.0])
    >>> bool(learner.probabilities()[1] > 0.5)
    True
    """

    def __init__(self, n_actions: int, horizon: int, eta: float | None = None) -> None:
        super().__init__(n_actions, horizon, eta, 0.0, 0.0)

    def _default_eta(self) -> float:
        return math.sqrt(8.0 * math.log(self.n_actions) / self.horizon)

    def update(self, utility: ArrayLike) -> None:
        """Learn from the utility of every action (K)."""
        self._apply(0, self._checked(utility))


class EXP3SIX(_Weights):
    """Bandit learner with low regret on every interval: implicit exploration and fixed share.

    .. math:: \\hat\\ell_a = \\frac{1 - u_a}{p_a + \\gamma}

    Parameters
    ----------
    n_actions : int
        Number of actions K, at least 2.
    horizon : int
        Number of rounds T that the rates are set for.
    share : float, default None
        Part of the weight that is spread evenly in every round; None is 1/T.
    eta : float, default None
        Learning rate; None is 4 sqrt(2 log K / (K T)).
    gamma : float, default None
        Implicit exploration; None is eta / 2.

    References
    ----------
    Neu, 2015, arXiv:1506.03271.

    Examples
    --------
    >>> from assay.decisions.dual_balancing import EXP3SIX
    >>> learner = EXP3SIX(2, horizon=100)
    >>> learner.update(0, 0.1)
    >>> bool(learner.probabilities()[1] > 0.5)
    True
    """

    feedback = BANDIT

    def __init__(
        self,
        n_actions: int,
        horizon: int,
        share: float | None = None,
        eta: float | None = None,
        gamma: float | None = None,
    ) -> None:
        super().__init__(n_actions, horizon, eta, 0.0, share)
        self.gamma = self.eta / 2 if gamma is None else check_number("gamma", gamma)

    def _default_eta(self) -> float:
        return bandit_rate(self.n_actions, self.horizon)

    def update(self, action: int, utility: float) -> None:
        """Learn from the utility, in [0, 1], of the action that was played."""
        if not 0 <= action < self.n_actions:
            raise InputError(f"action must lie between 0 and {self.n_actions - 1}, got {action}.")
        row = np.zeros(self.n_actions)
        row[action] = check_number("utility", utility, 0.0, 1.0)
        self._apply(int(action), row)


class EXP3(EXP3SIX):
    """EXP3 in its plain form: importance weights without exploration or share.

    Parameters
    ----------
    n_actions : int
        Number of actions K, at least 2.
    horizon : int
        Number of rounds T that the rate is set for.
    eta : float, default None
        Learning rate; None is sqrt(2 log K / (K T)).

    References
    ----------
    Auer, Cesa-Bianchi, Freund and Schapire, 2002.

    Examples
    --------
    >>> from assay.decisions.dual_balancing import EXP3
    >>> learner = EXP3(2, horizon=100)
    >>> learner.update(0, 0.1)
    >>> bool(learner.probabilities()[1] > 0.5)
    True
    """

    def __init__(self, n_actions: int, horizon: int, eta: float | None = None) -> None:
        super().__init__(n_actions, horizon, 0.0, eta, 0.0)

    def _default_eta(self) -> float:
        return math.sqrt(2.0 * math.log(self.n_actions) / (self.n_actions * self.horizon))


class OneSidedHedge(_Weights):
    """Learner for ordered actions where playing `a` reveals the utility of every action up to `a`.

    A bidder who is told the competing price on wins only is in this place: a won bid shows what each lower bid would have
    got, a lost one that each lower bid would have lost too.

    .. math:: \\hat\\ell_k = \\frac{1 - u_k}{P(\\mathrm{action} \\ge k) + \\gamma} \\quad\\text{for } k \\le a

    Parameters
    ----------
    n_actions : int
        Number of actions K, at least 2, in rising order.
    horizon : int
        Number of rounds T that the rates are set for.
    share : float, default None
        Part of the weight that is spread evenly in every round; None is 1/T.
    eta : float, default None
        Learning rate; None is sqrt(8 log(KT) / T).
    gamma : float, default None
        Implicit exploration; None is 1 / (10 sqrt T).

    Examples
    --------
    >>> from assay.decisions.dual_balancing import OneSidedHedge
    >>> learner = OneSidedHedge(3, horizon=100)
    >>> learner.update(1, [0.1, 0.9, float("nan")])
    >>> bool(learner.probabilities()[0] < learner.probabilities()[1])
    True
    """

    feedback = ONE_SIDED

    def __init__(
        self,
        n_actions: int,
        horizon: int,
        share: float | None = None,
        eta: float | None = None,
        gamma: float | None = None,
    ) -> None:
        super().__init__(n_actions, horizon, eta, 0.0, share)
        self.gamma = 1.0 / (10.0 * math.sqrt(horizon)) if gamma is None else check_number("gamma", gamma)

    def _default_eta(self) -> float:
        return one_sided_rate(self.n_actions, self.horizon)

    def update(self, action: int, utility: ArrayLike) -> None:
        """Learn from the utilities, in [0, 1], of the actions 0 to `action`; entries above it are not read."""
        if not 0 <= action < self.n_actions:
            raise InputError(f"action must lie between 0 and {self.n_actions - 1}, got {action}.")
        u = self._checked(utility, int(action) + 1)
        if (u[: action + 1] < 0).any() or (u[: action + 1] > 1).any():
            raise InputError("utilities must lie in [0, 1].")
        self._apply(int(action), u)


class OnlineGradientDescent:
    """Projected gradient descent with a constant step over a box: low regret on every interval.

    .. math:: x \\leftarrow \\mathrm{clip}(x - \\eta g, \\mathrm{lower}, \\mathrm{upper})

    Parameters
    ----------
    dim : int
        Number of coordinates.
    lower, upper : float or array-like
        The box; `upper` may be infinite.
    eta : float
        Step.

    References
    ----------
    Zinkevich, 2003.

    Examples
    --------
    >>> from assay.decisions.dual_balancing import OnlineGradientDescent
    >>> descent = OnlineGradientDescent(1, 0.0, 2.0, eta=0.5)
    >>> descent.update([-3.0])
    >>> descent.point().tolist()
    [1.5]
    """

    def __init__(self, dim: int, lower: ArrayLike, upper: ArrayLike, eta: float) -> None:
        self.dim = check_count("dim", dim, 1)
        self.lower = np.broadcast_to(np.asarray(lower, dtype=np.float64), (dim,)).copy()
        self.upper = np.broadcast_to(np.asarray(upper, dtype=np.float64), (dim,)).copy()
        if not (self.lower <= self.upper).all():
            raise InputError("lower must not be above upper.")
        self.eta = check_number("eta", eta, open_low=True)
        self._x = np.clip(np.zeros(dim), self.lower, self.upper)

    def point(self) -> NDArray[np.float64]:
        """Return the current point (dim)."""
        return self._x.copy()

    def update(self, gradient: ArrayLike) -> None:
        """Step against the gradient of the loss (dim) and project."""
        g = np.asarray(gradient, dtype=np.float64)
        if g.shape != (self.dim,) or not np.isfinite(g).all():
            raise InputError(f"gradient must be {self.dim} finite numbers.")
        self._x = np.clip(self._x - self.eta * g, self.lower, self.upper)

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON can hold it."""
        return {"x": self._x.tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self._x = np.asarray(state["x"], dtype=np.float64)


def interval_regret(utilities: ArrayLike, earned: ArrayLike) -> float:
    """Compute the largest regret of a learner over intervals: what one fixed action would have earned more.

    .. math:: \\max_{I} \\Big( \\max_k \\sum_{t \\in I} u_t(k) - \\sum_{t \\in I} u_t(a_t) \\Big)

    over windows of length T, T/2, T/4, T/8 and T/16, each moved by a quarter of its length.

    Parameters
    ----------
    utilities : array-like, T x K
        Utility of every action in every round.
    earned : array-like, T
        What the learner earned (or expected to earn).

    Returns
    -------
    float
        The largest regret.

    Examples
    --------
    >>> from assay.decisions.dual_balancing import interval_regret
    >>> interval_regret([[1.0, 0.0]] * 8 + [[0.0, 1.0]] * 8, [1.0] * 8 + [0.0] * 8)
    8.0
    """
    u, e = np.asarray(utilities, dtype=np.float64), np.asarray(earned, dtype=np.float64)
    if u.ndim != 2 or e.shape != u.shape[:1] or len(e) == 0:
        raise InputError(f"utilities must be T x K and earned T, got {u.shape} and {e.shape}.")
    T = len(e)
    gap = np.vstack((np.zeros(u.shape[1]), np.cumsum(u - e[:, None], axis=0)))
    worst = -math.inf
    for parts in (1, 2, 4, 8, 16):
        length = max(1, T // parts)
        starts = np.arange(0, T - length + 1, max(1, length // 4))
        worst = max(worst, float((gap[starts + length] - gap[starts]).max()))
    return worst
