"""A bidder for a live stream: answers may come late, out of order or never, and the budget still holds."""

from __future__ import annotations

import copy
import json
import math
import warnings
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from assay._core.errors import InputError
from assay._core.files import write_text

from ._balancing import (
    ACT,
    FEEDBACKS,
    UPDATE,
    ClosedForm,
    State,
    build_setup,
    check_config,
    checked_grid,
    digest,
    load_rng,
    primal_rates,
    rng_state,
)
from ._kernels import BANDIT, FULL, RESERVED, REWARD, ROUNDS, SPEND, play_grid
from ._learners import check_count, check_number
from ._log import default_multipliers
from ._mechanisms import FirstPrice, Mechanism, PostedPrice, SecondPrice, get_mechanism
from ._replay import WARM_UP, takes_closed_form, value_edges

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike, NDArray

FORMAT = "assay dual-balancing bidder 1"
# Ids of bids that timed out are remembered this long: a late win costs money and must still be booked.
_REMEMBERED = 10_000
_HISTORY = 2_000
# A value above max_value stretches the unit once, and for good; beyond this many times it is a mistake (another currency,
# micros, a torn message), and stretching would leave nothing to learn from. Near 1e308 the unit itself would overflow.
_FARTHEST = 1e6


class AutoBidder:
    """Bid in repeated auctions within a hard budget and an ROI target, without a forecast.

    Parameters
    ----------
    mechanism : str or Mechanism
        "first", "second", "posted", "gsp", or an object such as ``SoftFloor(0.2)``.
    horizon : int
        Number of auctions to come, at least 10.
    budget : float
        In currency; never exceeded as long as wins are reported within `timeout` bids.
    roi_target : float, default None
        Reward over cost to be reached in the long run.
    multipliers : array-like, K, default None
        Grid of the grid learner; bids are ``min(multiplier * value, max_value)``. None is 21 multipliers from 0 to 2.
    feedback : {"full", "bandit", "one_sided"}, default "full"
        "full": the competing price is known after every auction (or not needed: second price); "one_sided": on wins only;
        "bandit": never.
    primal : str, default "auto"
        "auto" takes the closed form in second price with full feedback and the grid learner otherwise; "grid" forces it.
    value_bins : int, default 1
        Above 1: a learner per value bin, with bins from the first 200 values.
    target_spend : array-like, default None
        Cumulative spending to follow over equal parts of the horizon.
    max_value : float, default 1
        Largest value and bid. A larger value doubles it once, with a warning; later bids stop there.
    timeout : int, default 1000
        A bid without an answer counts as lost after this many later bids.
    roi_on : {"predicted", "realised"}, default "predicted"
        Whether the reward of a win is the value given to `bid` or the one given to `observe`.
    eta_budget, eta_roi : float, default None
        Steps of the multipliers; None is the default of `DualBalancing`.
    random_state : int, default 0
        Seed of the drawn actions.

    Attributes
    ----------
    lambda_, mu_, spend_, reward_, remaining_budget, roi_, violation_ : float
        As in `DualBalancing`, in currency.
    pending_, timed_out_, late_wins_ : int
        Bids that wait, bids that were counted as lost without an answer, and wins reported after that.
    history_ : DataFrame
        At most 2,000 points.

    Raises
    ------
    InputError
        If a setting, a value or an answer cannot be used; nothing has changed then.

    Notes
    -----
    1. A waiting bid reserves its own amount, the most it can cost.
    2. A win that is reported after its timeout is booked, and counted in `late_wins_`: the money is gone.
    3. Answers change the multipliers when they come, with the probabilities that the bid was drawn with.

    References
    ----------
    Castiglioni, Celli and Kroer, ICML 2024, arXiv:2302.01203.

    Examples
    --------
    >>> from assay.decisions.dual_balancing import AutoBidder
    >>> bidder = AutoBidder("second", horizon=100, budget=10.0, max_value=1.0)
    >>> amount = bidder.bid(0.6, auction_id="a1")
    >>> bidder.observe("a1", won=True, price=0.2)
    >>> bidder.spend_
    0.2
    """

    def __init__(
        self,
        mechanism: str | Mechanism,
        horizon: int,
        budget: float,
        roi_target: float | None = None,
        multipliers: ArrayLike | None = None,
        feedback: Literal["full", "bandit", "one_sided"] = "full",
        primal: Literal["auto", "grid"] = "auto",
        value_bins: int = 1,
        target_spend: ArrayLike | None = None,
        max_value: float = 1.0,
        timeout: int = 1000,
        roi_on: Literal["predicted", "realised"] = "predicted",
        eta_budget: float | None = None,
        eta_roi: float | None = None,
        random_state: int = 0,
    ) -> None:
        if feedback not in FEEDBACKS:
            raise InputError(f"feedback must be full, bandit or one_sided, got {feedback!r}.")
        if primal not in ("auto", "grid"):
            raise InputError(f"primal must be auto or grid, got {primal!r}.")
        if roi_on not in ("predicted", "realised"):
            raise InputError(f"roi_on must be predicted or realised, got {roi_on!r}.")
        self.mechanism = get_mechanism(mechanism)
        self.feedback = feedback
        self._code = FEEDBACKS[feedback]
        self.grid = default_multipliers() if multipliers is None else checked_grid(multipliers, "multipliers")
        self.value_bins = check_count("value_bins", value_bins, 1)
        self.timeout = check_count("timeout", timeout, 1)
        self.roi_on = roi_on
        self._seed = check_count("random_state", random_state, 0)
        self._closed = primal == "auto" and takes_closed_form(self.mechanism, self._code, self.value_bins)
        self._declared = check_number("max_value", max_value, open_low=True)
        budget = check_number("budget", budget, open_low=True)
        self._setup = build_setup(
            horizon=horizon, budget=budget, roi_target=roi_target, feedback=FULL if self._closed else self._code,
            unit=self._declared, eta_budget=eta_budget, eta_roi=eta_roi, target_spend=target_spend,
        )  # fmt: skip
        self._given = {"eta_budget": eta_budget, "eta_roi": eta_roi, "primal": primal}
        K = len(self.grid)
        if self._closed:
            self._form: ClosedForm | None = ClosedForm(self._setup, 2.0)
            self._state = self._form.state
            self._rates = (1.0, 0.0, 1.0)
        else:
            self._form = None
            self._rates = primal_rates("auto", self._code, K, max(1, self._setup.horizon // self.value_bins))
            contexts = 1 if self.value_bins == 1 else self.value_bins + 1
            self._state = State(self._setup, K, self._rates[2], contexts)
        self._p = np.zeros(K)
        self._rng = np.random.default_rng(self._seed)
        self._pending: OrderedDict[Hashable, dict[str, Any]] = OrderedDict()
        self._gone: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # value and bid of those timed out
        self._first: list[float] = []
        self._counters = {"answered": 0, "won": 0, "timed_out": 0, "late_wins": 0, "late_losses": 0, "unnamed": 0}
        self._ratio: float | None = None  # of the unit to the declared one, once a larger value has come
        self._base = copy.deepcopy(self._setup)
        self._pace_digest = None if self._setup.pace is None else digest(self._setup.pace)
        self._history: list[list[float]] = []
        self._stride = 1

    # --- the round ---

    def bid(self, value: float, auction_id: Hashable | None = None) -> float:
        """Return the bid for an auction that is worth `value`.

        Parameters
        ----------
        value : float
            Worth of a win (currency).
        auction_id : str or int, default None
            Names the auction for a late answer. Without it the answer must come before the next bid.

        Returns
        -------
        float
            The bid; 0 means: do not take part.

        Raises
        ------
        InputError
            If the value is negative or not finite, the id waits already, the last unnamed bid has no answer, or the
            horizon is over.
        """
        v = self._worthwhile(value)
        state, setup = self._state, self._setup
        if isinstance(auction_id, bool) or (auction_id is not None and not isinstance(auction_id, (str, int))):
            raise InputError(f"auction_id must be a text or a whole number, got {type(auction_id).__name__}.")
        key = self._made_up() if auction_id is None else auction_id
        if key in self._pending:
            raise InputError(f"The auction {key!r} has a bid already that waits for its answer.")
        if key in self._gone:
            raise InputError(f"The auction {key!r} timed out before; give every auction an id of its own.")
        if auction_id is None and any(p["unnamed"] for p in self._pending.values()):
            raise InputError("The last bid without auction_id has no answer yet: observe() it first, or give ids.")
        if state.num[ROUNDS] >= setup.horizon:
            raise InputError(f"The horizon of {setup.horizon} auctions is over; start a bidder with a longer one.")
        self._rescale(v)
        self._expire()
        entry: dict[str, Any] = {"value": v, "round": int(state.num[ROUNDS]), "unnamed": auction_id is None}
        if self._form is not None:
            entry["bid"] = self._form.call(ACT, v, 0.0, 0.0, 0.0, 0.0)
        else:
            self._draw(v, entry)
        self._pending[key] = entry
        if auction_id is None:
            self._counters["unnamed"] += 1
        self._reserve()
        return float(entry["bid"])

    def _worthwhile(self, value: Any) -> float:
        v = check_number("value", value) + 0.0  # -0.0 would become a bid of -0.0
        if v > _FARTHEST * self._declared:
            raise InputError(
                f"The value {v:g} is more than a million times max_value = {self._declared:g}; check the currency, or declare "
                "a larger max_value."
            )
        return v

    def _made_up(self) -> str:
        """A name for a bid without one; where a caller's own id looks like it, the next."""
        n = self._counters["unnamed"]
        while (key := f"#{n}") in self._pending or key in self._gone:
            n += 1
        return key

    def _draw(self, v: float, entry: dict[str, Any]) -> None:
        bids = np.minimum(v * self.grid, self._setup.unit)[None]
        context = self._context(v)
        actions, forced = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int8)
        self._loop(ACT, bids, bids, bids, self._rng.random(1), context, self._p, 0.0, actions, forced)
        a = int(actions[0])
        entry |= {"bid": float(bids[0, a]), "action": a, "forced": int(forced[0]), "context": context}
        if self._code != FULL:
            entry["p"] = self._p.tolist()

    def _context(self, v: float) -> int:
        if self.value_bins == 1:
            return 0
        if len(self._first) < WARM_UP:
            self._first.append(v)
            return self.value_bins
        edges = value_edges(np.array(self._first), self.value_bins)
        return int(np.searchsorted(edges, v, side="right"))

    def _loop(
        self,
        phase: int,
        f: Any,
        c: Any,
        worst: Any,
        draws: Any,
        context: int,
        p: Any,
        pace: float,
        actions: Any,
        forced: Any,
    ) -> None:
        state, setup = self._state, self._setup
        par = np.array([*self._rates, setup.unit, setup.budget, 1.0])
        play_grid(
            phase, self._code, f, c, np.zeros((1, 0, len(self.grid))), worst, np.array([pace]), draws, np.array([context]),
            state.w, p, setup.coef, setup.limit, setup.cap, setup.step, state.duals, state.totals, state.num, par, actions,
            forced, np.zeros((1, 0)), 0,
        )  # fmt: skip

    def observe(
        self,
        auction_id: Hashable | None = None,
        *,
        won: bool,
        price: float | None = None,
        value: float | None = None,
        competing: float | ArrayLike | None = None,
    ) -> None:
        """Tell how an auction went.

        Parameters
        ----------
        auction_id : str or int, default None
            The id given to `bid`; None is the last bid without one.
        won : bool
            Whether the bid won.
        price : float, default None
            What was paid (currency); needed for a win.
        value : float, default None
            What the win brought, for ``roi_on="realised"``; also the share of the value that a lower position brought.
        competing : float or array-like, default None
            Highest competing bid, or several. With full feedback the grid learner needs it always, with one-sided
            feedback on wins of every mechanism but second price.

        Raises
        ------
        InputError
            If the id is unknown or answered, a number is missing or out of range; nothing has changed then.
        """
        key = self._find(auction_id)
        if not isinstance(won, (bool, np.bool_)):
            raise InputError(f"won must be true or false, got {won!r}.")
        if key in self._gone:
            self._late(key, bool(won), price, value)
            return
        entry = self._pending[key]
        paid = self._paid(entry, bool(won), price)
        worth = self._worth(entry, bool(won), value)
        rivals = self._rivals(competing)
        pace = float(self._setup.paces(entry["round"], 1)[0])
        if self._form is not None:
            self._form.call(UPDATE, entry["value"], entry["bid"], worth, paid, pace)
        else:
            self._teach(entry, bool(won), paid, worth, rivals, pace, value is not None)
        del self._pending[key]
        self._counters["answered"] += 1
        self._counters["won"] += int(won)
        self._reserve()
        self._remember()

    def _find(self, auction_id: Hashable | None) -> Hashable:
        if auction_id is None:
            open_ = [k for k, p in self._pending.items() if p["unnamed"]]
            if not open_:
                raise InputError("observe() without an id, but no bid without an id waits for an answer.")
            return open_[0]
        if auction_id not in self._pending and auction_id not in self._gone:
            raise InputError(f"No bid with the id {auction_id!r} waits for an answer: it is unknown or was answered.")
        return auction_id

    @staticmethod
    def _paid(entry: dict[str, Any], won: bool, price: float | None) -> float:
        if not won:
            if price not in (None, 0, 0.0):
                raise InputError(f"A lost auction costs nothing, got price {price!r}.")
            return 0.0
        if entry["bid"] <= 0:
            raise InputError("The bid was 0, which means not to take part, so it cannot have won.")
        if price is None:
            raise InputError("A win needs its price.")
        paid = check_number("price", price)
        if paid > entry["bid"]:
            raise InputError(f"price {paid:g} is above the bid {entry['bid']:g}, the most that a win can cost.")
        return paid

    def _worth(self, entry: dict[str, Any], won: bool, value: float | None) -> float:
        if self.roi_on == "realised" and won and value is None:
            raise InputError("roi_on='realised' needs value= for a win: what it brought.")
        worth = entry["value"] if value is None else self._worthwhile(value)
        return float(worth) if won else 0.0

    def _rivals(self, competing: Any) -> NDArray[np.float64] | None:
        if competing is None:
            return None
        x = np.atleast_1d(np.asarray(competing, dtype=np.float64))
        if x.ndim != 1 or not len(x) or not (np.isfinite(x) & (x >= 0)).all():
            raise InputError("competing must be one or more finite numbers of 0 or more.")
        return -np.sort(-x)

    def _teach(
        self, entry: dict[str, Any], won: bool, paid: float, worth: float, rivals: Any, pace: float, told: bool
    ) -> None:
        K, v, a = len(self.grid), entry["value"], entry["action"]
        f, c = np.zeros((1, K)), np.zeros((1, K))
        if self._code != BANDIT and (self._code == FULL or won):
            if rivals is None and won and type(self.mechanism) in (SecondPrice, PostedPrice):
                rivals = np.array([paid])
            if rivals is None:
                when = "" if self._code == FULL else " on a win"
                raise InputError(
                    f"{self.feedback} feedback needs competing={when} (the price to beat); without it use feedback='bandit'"
                    + (" or 'one_sided'." if self._code == FULL else ".")
                )
            bids = np.minimum(v * self.grid, self._setup.unit)
            hit, fraction, price = self.mechanism.outcome(bids, rivals)
            scale = worth / v if won and self.roi_on == "realised" and v > 0 else 1.0
            f[0] = np.where(hit, fraction, 0.0) * v * scale
            c[0] = np.minimum(np.where(hit, fraction, 0.0) * price, bids)
        if won and not told and f[0, a] > 0:
            worth = float(f[0, a])  # a lower position brings a share of the value
        # what happened counts, not what the rules say should have happened
        f[0, a], c[0, a] = worth if a else 0.0, paid
        p = np.array(entry["p"]) if "p" in entry else self._p
        self._loop(
            UPDATE,
            f,
            c,
            c,
            np.zeros(1),
            entry["context"],
            p,
            pace,
            np.array([a]),
            np.array([entry["forced"]], dtype=np.int8),
        )

    def _late(self, key: Hashable, won: bool, price: float | None, value: float | None) -> None:
        """An answer after its timeout: the loss was booked, so only a win changes anything."""
        worth, bid = self._gone[key]
        paid = self._paid({"bid": bid}, won, price)
        gained = self._worth({"value": worth}, won, value)
        del self._gone[key]
        if not won:
            self._counters["late_losses"] += 1
            return
        self._counters["late_wins"] += 1
        self._counters["won"] += 1
        self._book(gained, paid)

    def _book(self, gained: float, paid: float) -> None:
        """Money of a round whose pace was booked before."""
        state, setup = self._state, self._setup
        g = setup.coef[:, 0] * gained / setup.unit + setup.coef[:, 1] * paid / setup.unit
        state.totals[:, 0] += g
        state.totals[:, 1] = np.maximum(state.totals[:, 1], state.totals[:, 0])
        state.duals[:] = np.clip(state.duals + setup.step * g, 0.0, setup.cap)
        state.num[SPEND] += paid
        state.num[REWARD] += gained

    def _expire(self) -> None:
        """Count bids as lost that waited for more than `timeout` later ones."""
        now = int(self._state.num[ROUNDS])
        while self._pending:
            key, entry = next(iter(self._pending.items()))
            if now - entry["round"] < self.timeout:
                break
            pace = float(self._setup.paces(entry["round"], 1)[0])
            if self._form is not None:
                self._form.call(UPDATE, entry["value"], entry["bid"], 0.0, 0.0, pace)
            else:
                zero = np.zeros((1, len(self.grid)))
                p = np.array(entry["p"]) if "p" in entry else self._p
                # with full feedback a bid without an answer teaches nothing: the competing price is unknown
                forced = 2 if self._code == FULL else entry["forced"]
                self._loop(
                    UPDATE, zero, zero, zero, np.zeros(1), entry["context"], p, pace, np.array([entry["action"]]),
                    np.array([forced], dtype=np.int8),
                )  # fmt: skip
            del self._pending[key]
            self._counters["timed_out"] += 1
            if not entry["unnamed"]:
                self._gone[key] = (entry["value"], entry["bid"])
                while len(self._gone) > _REMEMBERED:
                    self._gone.popitem(last=False)
            self._reserve()

    def _reserve(self) -> None:
        # summed anew in one order, so that a restored bidder has the same bits
        total = 0.0
        for entry in self._pending.values():
            total += entry["bid"]
        self._state.num[RESERVED] = total

    def _rescale(self, v: float) -> None:
        """A value above the declared maximum: once, the unit becomes twice that value."""
        setup = self._setup
        if v <= setup.unit or self._ratio is not None:
            return
        warnings.warn(
            f"The value {v:g} is above max_value = {setup.unit:g}; the unit is now {2 * v:g}, and bids stop there.",
            stacklevel=3,
        )
        ratio = 2 * v / setup.unit
        self._apply_unit(ratio)
        self._state.totals /= ratio

    def _apply_unit(self, ratio: float | None) -> None:
        """Multipliers are ratios of money and stay; what is counted in units changes.

        Always from the settings as they were declared, so that a restored bidder has the same bits.
        """
        setup, base = self._setup, self._base
        self._ratio = ratio
        by = 1.0 if ratio is None else ratio
        setup.unit = base.unit * by
        if setup.pace is not None and base.pace is not None:
            setup.pace[:] = base.pace / by
        budget_row = 0
        setup.limit[budget_row] = base.limit[budget_row] / by
        setup.cap[budget_row] = base.cap[budget_row] * by
        setup.step[budget_row] = base.step[budget_row] * by
        if self._form is not None:
            self._form.par[3] = setup.unit

    # --- what a user reads ---

    @property
    def t_(self) -> int:
        """Bids so far."""
        return int(self._state.num[ROUNDS])

    @property
    def horizon(self) -> int:
        """Auctions in all."""
        return self._setup.horizon

    @property
    def budget(self) -> float:
        """The budget."""
        return self._setup.budget

    @property
    def roi_target(self) -> float | None:
        """The ROI target."""
        return self._setup.roi_target

    @property
    def lambda_(self) -> float:
        """Multiplier of the budget."""
        return float(self._state.duals[0])

    @property
    def mu_(self) -> float:
        """Multiplier of the ROI target (0 without one)."""
        return float(self._state.duals[self._setup.roi]) if self._setup.roi >= 0 else 0.0

    @property
    def spend_(self) -> float:
        """Spent so far."""
        return float(self._state.num[SPEND])

    @property
    def reward_(self) -> float:
        """Gained so far."""
        return float(self._state.num[REWARD])

    @property
    def reserved_(self) -> float:
        """What waiting bids may still cost."""
        return float(self._state.num[RESERVED])

    @property
    def remaining_budget(self) -> float:
        """Budget that is neither spent nor reserved."""
        return self._setup.budget - self.spend_ - self.reserved_

    @property
    def roi_(self) -> float:
        """Reward over cost so far."""
        return self.reward_ / self.spend_ if self.spend_ > 0 else math.nan

    @property
    def violation_(self) -> float:
        """How far the ROI target is missed in total (currency)."""
        row = self._setup.roi
        return max(0.0, float(self._state.totals[row, 0])) * self._setup.unit if row >= 0 else 0.0

    @property
    def pending_(self) -> int:
        """Bids that wait for an answer."""
        return len(self._pending)

    def knows(self, auction_id: Hashable) -> bool:
        """Whether a bid under this id waits, or timed out not long ago."""
        return auction_id in self._pending or auction_id in self._gone

    @property
    def answered_(self) -> int:
        """Answers so far, without those that came after their timeout."""
        return self._counters["answered"]

    @property
    def won_(self) -> int:
        """Wins so far."""
        return self._counters["won"]

    @property
    def timed_out_(self) -> int:
        """Bids that were counted as lost without an answer."""
        return self._counters["timed_out"]

    @property
    def late_wins_(self) -> int:
        """Wins that were reported after their timeout."""
        return self._counters["late_wins"]

    @property
    def history_(self) -> pd.DataFrame:
        """The run at up to 2,000 answers: t, spend, reward, lambda, mu, and the target of spending."""
        import pandas as pd

        return pd.DataFrame(self._history, columns=["t", "spend", "reward", "lambda", "mu", "target"])

    def _remember(self) -> None:
        if self._counters["answered"] % self._stride:
            return
        self._history.append([self.t_, self.spend_, self.reward_, self.lambda_, self.mu_, self.target_(self.t_)])
        if len(self._history) > _HISTORY:
            self._history = self._history[1::2]
            self._stride *= 2

    def target_(self, t: int) -> float:
        """Spending that even pacing, or the target curve, asks for after `t` auctions (currency)."""
        setup = self._setup
        if setup.pace is None:
            return setup.budget * t / setup.horizon
        if not hasattr(self, "_curve"):
            self._curve = np.concatenate(([0.0], np.cumsum(setup.pace))) / setup.pace.sum() * setup.budget
        return float(self._curve[t])

    # --- keeping ---

    def _config(self) -> dict[str, Any]:
        setup = self._setup
        mech = {k: list(v) if isinstance(v, tuple) else v for k, v in sorted(vars(self.mechanism).items())}
        return {
            "mechanism": {"name": type(self.mechanism).__name__, **mech},
            "horizon": setup.horizon,
            "budget": setup.budget,
            "roi_target": setup.roi_target,
            "multipliers": self.grid.tolist(),
            "feedback": self.feedback,
            "value_bins": self.value_bins,
            "max_value": self._declared,
            "timeout": self.timeout,
            "roi_on": self.roi_on,
            "random_state": self._seed,
            "target_spend": self._pace_digest,
            **self._given,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return all that is needed to go on bit for bit, waiting bids included, as JSON can hold it."""
        return {
            "format": FORMAT,
            "config": self._config(),
            **self._state.to_json(),
            "ratio": self._ratio,
            "rng": rng_state(self._rng),
            "pending": [[k, v] for k, v in self._pending.items()],
            "timed_out": [[k, list(v)] for k, v in self._gone.items()],
            "first_values": list(self._first),
            "counters": dict(self._counters),
            "history": [list(row) for row in self._history],
            "stride": self._stride,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave to a bidder of the same settings.

        Raises
        ------
        InputError
            If the state is of other settings (names the first that differs) or damaged; nothing has changed then.
        """
        check_config(state, self._config())
        fields = ("ratio", "rng", "pending", "timed_out", "first_values", "counters", "history", "stride")
        for name in fields:
            if name not in state:
                raise InputError(f"The state lacks the field {name!r}.")
        rng = load_rng(state["rng"])
        try:
            pending = OrderedDict((k, dict(v)) for k, v in state["pending"])
            gone = OrderedDict((k, (float(v[0]), float(v[1]))) for k, v in state["timed_out"])
            ratio = None if state["ratio"] is None else float(state["ratio"])
            counters = {k: int(state["counters"][k]) for k in self._counters}
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise InputError(f"The state is damaged ({type(error).__name__}: {error}).") from error
        self._state.load(state)
        self._apply_unit(ratio)
        self._rng, self._pending, self._gone, self._counters = rng, pending, gone, counters
        self._first = [float(x) for x in state["first_values"]]
        self._history = [list(row) for row in state["history"]]
        self._stride = int(state["stride"])

    def save(self, path: str | Path) -> None:
        """Write the state as JSON, to a temporary name that is then renamed."""
        write_text(path, dump_state(self.state_dict()))

    def load(self, path: str | Path) -> AutoBidder:
        """Read what `save` wrote and go on from there.

        Returns
        -------
        AutoBidder
            This bidder.

        Raises
        ------
        InputError
            If the file is torn, was changed, or is of a bidder with other settings.
        """
        state = read_state(path)
        try:
            self.load_state_dict(state)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        return self


def dump_state(state: Mapping[str, Any]) -> str:
    """A state and a checksum of it as JSON text."""
    import hashlib

    body = json.dumps(state, allow_nan=False)
    return json.dumps({"sha256": hashlib.sha256(body.encode()).hexdigest(), "state": state}, allow_nan=False) + "\n"


def read_state(path: str | Path) -> dict[str, Any]:
    """Read a file of `dump_state`; a torn or changed one is refused."""
    import hashlib

    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InputError(f"There is no state file {path}; check the path.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"The state file {path} cannot be read ({type(error).__name__}).") from error
    try:
        held = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"The state file {path} is torn (no JSON from line {error.lineno} on); use a backup."
        ) from error
    if not isinstance(held, dict) or "state" not in held or "sha256" not in held:
        raise InputError(f"{path} is not a state file of a bidder: the fields 'state' and 'sha256' are missing.")
    if hashlib.sha256(json.dumps(held["state"]).encode()).hexdigest() != held["sha256"]:
        raise InputError(f"The state file {path} is damaged: its checksum does not fit; use a backup.")
    state = held["state"]
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise InputError(f"{path} has the format {state.get('format')!r}, this version reads {FORMAT!r}.")
    return dict(state)


class Portfolio:
    """One account budget over several campaigns, each with an ROI target of its own.

    The multiplier of the budget is shared, every campaign has its own learner and its own mu: none pays for the missed
    target of another, which pacing of the pooled average allows.

    Parameters
    ----------
    mechanism : str or Mechanism
        As in `AutoBidder`.
    horizon : int
        Auctions of all campaigns together.
    budget : float
        Of the account.
    campaigns : mapping of str to float or None
        Name and ROI target (None: no target).
    **options
        Passed to every `AutoBidder`.

    Examples
    --------
    >>> from assay.decisions.dual_balancing import Portfolio
    >>> account = Portfolio("second", horizon=100, budget=5.0, campaigns={"shoes": 1.5, "hats": None})
    >>> amount = account.bid("shoes", 0.7)
    >>> account.observe("shoes", won=True, price=0.3)
    >>> account.spend_, account.campaign_spend_["shoes"]
    (0.3, 0.3)
    """

    def __init__(
        self,
        mechanism: str | Mechanism,
        horizon: int,
        budget: float,
        campaigns: Mapping[str, float | None],
        **options: Any,
    ) -> None:
        if not campaigns:
            raise InputError("campaigns must name at least one campaign.")
        seed = options.pop("random_state", 0)
        self.bidders = {
            name: AutoBidder(mechanism, horizon, budget, roi, random_state=seed + k, **options)
            for k, (name, roi) in enumerate(campaigns.items())
        }
        self._lambda, self._spend, self._rounds = 0.0, 0.0, 0.0
        self.campaign_spend_ = dict.fromkeys(campaigns, 0.0)

    def _bidder(self, campaign: str) -> AutoBidder:
        if campaign not in self.bidders:
            raise InputError(f"There is no campaign {campaign!r}; there are {', '.join(self.bidders)}.")
        return self.bidders[campaign]

    def _enter(self, bidder: AutoBidder) -> None:
        """Lend the shared budget to a campaign for one call."""
        state = bidder._state
        state.duals[0] = self._lambda
        state.num[SPEND], state.num[ROUNDS] = self._spend, self._rounds
        state.num[RESERVED] = sum(b._state.num[RESERVED] for b in self.bidders.values())

    def _leave(self, campaign: str, bidder: AutoBidder) -> None:
        state = bidder._state
        self.campaign_spend_[campaign] += float(state.num[SPEND]) - self._spend
        self._lambda, self._spend, self._rounds = (
            float(state.duals[0]),
            float(state.num[SPEND]),
            float(state.num[ROUNDS]),
        )
        bidder._reserve()

    def bid(self, campaign: str, value: float, auction_id: Hashable | None = None) -> float:
        """Return the bid of a campaign for an auction that is worth `value` to it."""
        bidder = self._bidder(campaign)
        self._enter(bidder)
        try:
            return bidder.bid(value, auction_id)
        finally:
            self._leave(campaign, bidder)

    def observe(self, campaign: str, auction_id: Hashable | None = None, **answer: Any) -> None:
        """Tell how an auction of a campaign went (see `AutoBidder.observe`)."""
        bidder = self._bidder(campaign)
        self._enter(bidder)
        try:
            bidder.observe(auction_id, **answer)
        finally:
            self._leave(campaign, bidder)

    def state_dict(self) -> dict[str, Any]:
        """Return all that is needed to go on bit for bit, as JSON can hold it."""
        return {
            "lambda": self._lambda,
            "spend": self._spend,
            "rounds": self._rounds,
            "campaign_spend": dict(self.campaign_spend_),
            "bidders": {name: bidder.state_dict() for name, bidder in self.bidders.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave to a portfolio of the same settings."""
        for name in ("lambda", "spend", "rounds", "campaign_spend", "bidders"):
            if name not in state:
                raise InputError(f"The state lacks the field {name!r}.")
        if list(state["bidders"]) != list(self.bidders):
            raise InputError(f"The state is of the campaigns {list(state['bidders'])}, not {list(self.bidders)}.")
        for name, bidder in self.bidders.items():  # all of them first: nothing changes where one does not fit
            check_config(state["bidders"][name], bidder._config())
        for name, bidder in self.bidders.items():
            bidder.load_state_dict(state["bidders"][name])
        self._lambda, self._spend, self._rounds = (float(state[k]) for k in ("lambda", "spend", "rounds"))
        self.campaign_spend_ = {name: float(state["campaign_spend"][name]) for name in self.bidders}

    @property
    def spend_(self) -> float:
        """Spent by all campaigns."""
        return self._spend

    @property
    def lambda_(self) -> float:
        """The shared multiplier of the budget."""
        return self._lambda

    @property
    def mu_(self) -> dict[str, float]:
        """Multiplier of the ROI target, by campaign."""
        return {name: bidder.mu_ for name, bidder in self.bidders.items()}

    @property
    def reward_(self) -> dict[str, float]:
        """Gained, by campaign."""
        return {name: bidder.reward_ for name, bidder in self.bidders.items()}

    @property
    def roi_(self) -> dict[str, float]:
        """Reward over cost, by campaign."""
        return {
            name: bidder.reward_ / self.campaign_spend_[name] if self.campaign_spend_[name] > 0 else math.nan
            for name, bidder in self.bidders.items()
        }


__all__ = ["AutoBidder", "FirstPrice", "Portfolio", "dump_state", "read_state"]
