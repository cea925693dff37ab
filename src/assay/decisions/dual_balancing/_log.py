"""Bid logs in memory: values, competing bids, floors and times, in one currency."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from assay._core.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from ._mechanisms import Mechanism


# Sums over millions of rows and products with targets must not overflow; no currency comes near.
LARGEST = 1e100


@dataclass
class BidLog:
    """Auctions in time order: what each was worth and what others bid.

    Parameters
    ----------
    value : array-like, T
        Worth of a win (currency).
    competing : array-like, T or T x M
        Highest competing bid, or the M highest.
    floor : array-like, T, default None
        Least price of each auction.
    hour : array-like, T, default None
        Hour since the first auction, for plots and target curves.
    won, paid, converted : array-like, T, default None
        What happened when the log was written.
    campaign : array-like, T, default None
        A label per auction.
    name : str, default "log"
        For reports.
    notes : list of str
        What a reader of results should know (rows sorted, dropped).

    Raises
    ------
    InputError
        If lengths differ, or a value or price is negative or not finite.

    Examples
    --------
    >>> from assay.decisions.dual_balancing import BidLog
    >>> len(BidLog([0.5, 0.7], [0.2, 0.9]))
    2
    """

    value: Any
    competing: Any
    floor: Any = None
    hour: Any = None
    won: Any = None
    paid: Any = None
    converted: Any = None
    campaign: Any = None
    name: str = "log"
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.value = self._column("value", self.value)
        competing = np.asarray(self.competing, dtype=np.float64)
        if competing.ndim == 1:
            competing = competing[:, None]
        if competing.ndim != 2 or len(competing) != len(self.value) or competing.shape[1] == 0:
            raise InputError(
                f"competing must be T or T x M for T = {len(self.value)}, got the shape {competing.shape}."
            )
        for k in range(competing.shape[1]):
            self._column(f"competing bid {k + 1}", competing[:, k])
        # the largest first, whatever order they came in
        self.competing = np.ascontiguousarray(-np.sort(-competing, axis=1))
        for name in ("floor", "hour", "paid", "converted"):
            if getattr(self, name) is not None:
                raw = np.asarray(getattr(self, name), dtype=np.float64)
                if raw.shape != self.value.shape:
                    raise InputError(f"{name} has the shape {raw.shape}, value {self.value.shape}.")
                setattr(self, name, raw if name in ("hour", "paid", "converted") else self._column(name, raw))

    @staticmethod
    def _column(name: str, raw: Any) -> NDArray[np.float64]:
        x = np.ascontiguousarray(raw, dtype=np.float64)
        if x.ndim != 1 or len(x) == 0:
            raise InputError(f"{name} must be a list of numbers, got the shape {x.shape}.")
        bad = ~(np.isfinite(x) & (x >= 0))
        if bad.any():
            raise InputError(
                f"{name}: entry {int(np.argmax(bad))} is {x[np.argmax(bad)]}; numbers of 0 or more are needed."
            )
        if x.max() > LARGEST:
            raise InputError(f"{name}: entry {int(x.argmax())} is {x.max():g}, above {LARGEST:g}; check its unit.")
        return x

    def __len__(self) -> int:
        return len(self.value)

    def take(self, rows: Any) -> BidLog:
        """Give the log of some rows (slice, mask or numbers)."""

        def part(x: Any) -> Any:
            return None if x is None else np.asarray(x)[rows]

        return BidLog(
            self.value[rows], self.competing[rows], part(self.floor), part(self.hour), part(self.won), part(self.paid),
            part(self.converted), part(self.campaign), self.name, list(self.notes),
        )  # fmt: skip

    @property
    def scale(self) -> float:
        """Largest value, or the 99.9 % quantile where single values are more than five times that."""
        # method: without interpolation a single absurd value cannot pull the quantile of a short log up
        top, usual = float(self.value.max()), float(np.quantile(self.value, 0.999, method="lower"))
        chosen = usual if usual > 0 and top > 5 * usual else top
        return chosen if chosen > 0 else 1.0

    def floors(self, reserve: float = 0.0) -> NDArray[np.float64]:
        """Least price of every auction: its floor or the reserve, whichever is higher."""
        return np.full(len(self), reserve) if self.floor is None else np.maximum(self.floor, reserve)


def default_multipliers() -> NDArray[np.float64]:
    """The grid of 21 multipliers from 0 to 2."""
    return np.linspace(0.0, 2.0, 21)


def tables(
    log: BidLog, mechanism: Mechanism, multipliers: NDArray[np.float64], cap: float, rows: slice
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Rewards, costs and bids (rows x K, currency) of every multiplier in every auction of `rows`."""
    v = log.value[rows]
    bids = np.minimum(v[:, None] * multipliers, cap)
    won, fraction, price = mechanism.outcome(bids, log.competing[rows])
    if log.floor is not None:
        floor = log.floor[rows][:, None]
        won = won & (bids >= floor)
        price = np.maximum(price, floor)
    fraction = np.where(won, fraction, 0.0)
    costs = fraction * np.where(won, price, 0.0)
    if not ((costs >= 0) & (costs <= bids * (1 + 1e-12))).all():
        raise InputError("The mechanism charges more than the bid, so no budget could be kept; check its outcome().")
    return fraction * v[:, None], np.minimum(costs, bids), bids


def counterfactuals(
    log: BidLog, mechanism: str | Mechanism, multipliers: ArrayLike | None = None, *, cap: float | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute what every multiplier would have earned and paid in every auction.

    Parameters
    ----------
    log : BidLog
        The auctions.
    mechanism : str or Mechanism
        "first", "second", "gsp", "posted" or an object.
    multipliers : array-like, K, default None
        Bids are ``min(multiplier * value, cap)``; None is 21 multipliers from 0 to 2. A 0 is added where it is missing.
    cap : float, default None
        Largest bid; None is ``log.scale``.

    Returns
    -------
    rewards, costs : ndarray, T x K
        In the currency of the log.

    Examples
    --------
    >>> from assay.decisions.dual_balancing import BidLog, counterfactuals
    >>> counterfactuals(BidLog([1.0], [0.4]), "second", [0, 0.3, 0.5])[1].tolist()
    [[0.0, 0.0, 0.4]]
    """
    from ._balancing import checked_grid
    from ._mechanisms import get_mechanism

    grid = default_multipliers() if multipliers is None else checked_grid(multipliers, "multipliers")
    f, c, _ = tables(log, get_mechanism(mechanism), grid, log.scale if cap is None else cap, slice(None))
    return f, c


def make_log(n: int = 8_000, *, random_state: int = 0, days: float = 7.0, name: str = "simulated") -> BidLog:
    """Simulate a log of auctions: log-normal prices and beta click rates that move with the hour, two peaks of traffic.

    Values are click rate times 25,000, prices per thousand impressions (both as in the public iPinYou logs, in whose range
    medians and tails lie); no real auction is in it.

    Parameters
    ----------
    n : int, default 8000
        Number of auctions.
    random_state : int, default 0
        Seed.
    days : float, default 7
        Time that the log spans.
    name : str, default "simulated"
        For reports.

    Returns
    -------
    BidLog
        With `hour` and `converted`.

    Examples
    --------
    >>> from assay.decisions.dual_balancing import make_log
    >>> len(make_log(100))
    100
    """
    rng = np.random.default_rng(random_state)
    # traffic of a day: a low night, a peak at lunch and a higher one in the evening
    hours = np.arange(24)
    traffic = 0.25 + np.exp(-0.5 * ((hours - 12.5) / 2.5) ** 2) + 1.4 * np.exp(-0.5 * ((hours - 20.5) / 2.0) ** 2)
    whole = max(1, round(days * 24))
    weight = np.resize(traffic, whole) * rng.gamma(20.0, 1 / 20.0, whole)
    per_hour = rng.multinomial(n, weight / weight.sum())
    hour = np.repeat(np.arange(whole), per_hour) + rng.random(n)
    hour.sort()
    day = hour % 24
    # medians and spread near those of the public logs: price 33 with a heavy tail below 300, click rate 0.4 %
    level = 33.0 * (1 + 0.35 * np.cos((day - 20.5) / 24 * 2 * np.pi))
    price = np.minimum(np.exp(np.log(level) + 0.95 * rng.standard_normal(n)), 300.0)
    rate = 0.0039 * (1 + 0.2 * np.cos((day - 13.0) / 24 * 2 * np.pi))
    shape = 5.0
    pctr = rng.beta(shape, shape / rate - shape)
    click = rng.random(n) < pctr
    value = np.minimum(pctr * 25_000.0, 300.0)
    return BidLog(np.round(value, 3), np.round(price, 2), hour=hour, converted=click.astype(float), name=name)


def warn_outliers(log: BidLog) -> None:
    """Say where single values lie far above the rest, which the scale then leaves out."""
    if log.value.max() > log.scale:
        above = int((log.value > log.scale).sum())
        warnings.warn(
            f"{above} of {len(log):,} values lie above {log.scale:g} (up to {log.value.max():g}): bids are capped there.",
            stacklevel=3,
        )
