"""How a bid meets the market: who wins, what share of the value that brings, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from assay._core.errors import InputError

from ._kernels import FIRST, GSP, SECOND, SOFT_FLOOR

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Outcome = tuple[NDArray[np.bool_], NDArray[np.float64], NDArray[np.float64]]


@runtime_checkable
class Mechanism(Protocol):
    """What a mechanism must offer: the outcome of many bids against one state of the market.

    Examples
    --------
    >>> from assay.decisions.dual_balancing import FirstPrice, Mechanism
    >>> isinstance(FirstPrice(), Mechanism)
    True
    """

    def outcome(self, bid: ArrayLike, state: Any) -> Outcome:
        """Return ``(won, fraction, price)`` for every bid: reward ``fraction * value``, cost ``fraction * price``."""
        ...


def _bids(bid: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(bid, dtype=np.float64)


def _market(state: Any) -> NDArray[np.float64]:
    """Competing bids with the largest first along the last axis."""
    return np.asarray(state, dtype=np.float64)


def _top(state: Any) -> NDArray[np.float64]:
    market = _market(state)
    return market[..., :1] if market.ndim else market


def _checked(name: str, value: float) -> float:
    if not (np.isfinite(value) and value >= 0):
        raise InputError(f"{name} must be a number of 0 or more, got {value}.")
    return float(value)


class FirstPrice:
    """First-price auction: the highest bid wins and pays itself.

    .. math:: \\mathrm{won} = 1[b \\ge \\max(d, r),\\ b > 0], \\qquad \\mathrm{price} = b

    Parameters
    ----------
    reserve : float, default 0
        Least bid that can win (currency).

    Examples
    --------
    >>> from assay.decisions.dual_balancing import FirstPrice
    >>> FirstPrice().outcome([0.2, 0.5], 0.4)[2].tolist()
    [0.0, 0.5]
    """

    code = FIRST

    def __init__(self, reserve: float = 0.0) -> None:
        self.reserve = _checked("reserve", reserve)

    def outcome(self, bid: ArrayLike, state: Any) -> Outcome:
        """Return ``(won, fraction, price)``; `state` is the competing bid (any shape that broadcasts)."""
        b = _bids(bid)
        won = (b >= np.maximum(_top(state), self.reserve)) & (b > 0)
        return won, won.astype(float), np.where(won, b, 0.0)


class SecondPrice:
    """Second-price auction: the highest bid wins and pays the competing bid, at least the reserve.

    .. math:: \\mathrm{won} = 1[b \\ge \\max(d, r),\\ b > 0], \\qquad \\mathrm{price} = \\max(d, r)

    Parameters
    ----------
    reserve : float, default 0
        Least price (currency).

    Examples
    --------
    >>> from assay.decisions.dual_balancing import SecondPrice
    >>> SecondPrice().outcome([0.2, 0.5], 0.4)[2].tolist()
    [0.0, 0.4]
    """

    code = SECOND

    def __init__(self, reserve: float = 0.0) -> None:
        self.reserve = _checked("reserve", reserve)

    def outcome(self, bid: ArrayLike, state: Any) -> Outcome:
        """Return ``(won, fraction, price)``; `state` is the competing bid (any shape that broadcasts)."""
        b = _bids(bid)
        due = np.maximum(_top(state), self.reserve)
        won = (b >= due) & (b > 0)
        return won, won.astype(float), np.where(won, due, 0.0)


class SoftFloor:
    """Soft floor: from the floor on second price (at least the floor), below it the winner pays the own bid.

    Parameters
    ----------
    floor : float
        The soft floor (currency).

    Examples
    --------
    >>> from assay.decisions.dual_balancing import SoftFloor
    >>> SoftFloor(0.3).outcome([0.2, 0.5], 0.1)[2].tolist()
    [0.2, 0.3]
    """

    code = SOFT_FLOOR

    def __init__(self, floor: float) -> None:
        self.floor = _checked("floor", floor)

    def outcome(self, bid: ArrayLike, state: Any) -> Outcome:
        """Return ``(won, fraction, price)``; `state` is the competing bid (any shape that broadcasts)."""
        b = _bids(bid)
        d = _top(state)
        won = (b >= d) & (b > 0)
        price = np.where(b >= self.floor, np.maximum(d, self.floor), b)
        return won, won.astype(float), np.where(won, price, 0.0)


class GeneralizedSecondPrice:
    """Several positions, each with its share of clicks; a position costs the next bid below, per click.

    Parameters
    ----------
    ctr : sequence of float, default (1, 0.6, 0.3)
        Share of the value that each position brings, first the best, each in (0, 1] and none above the one before.

    Examples
    --------
    >>> from assay.decisions.dual_balancing import GeneralizedSecondPrice
    >>> won, fraction, price = GeneralizedSecondPrice().outcome([0.5, 0.25], [0.4, 0.2, 0.1])
    >>> fraction.tolist(), price.tolist()
    ([1.0, 0.6], [0.4, 0.2])
    """

    code = GSP

    def __init__(self, ctr: Sequence[float] = (1.0, 0.6, 0.3)) -> None:
        shares = tuple(float(x) for x in ctr)
        if not shares or not all(0 < x <= 1 for x in shares) or any(b > a for a, b in zip(shares, shares[1:])):
            raise InputError(f"ctr must be shares in (0, 1], none above the one before, got {tuple(ctr)}.")
        self.ctr = shares

    def outcome(self, bid: ArrayLike, state: Any) -> Outcome:
        """Return ``(won, fraction, price)``; `state` holds the competing bids, largest first, along its last axis."""
        b = _bids(bid)
        market = _market(state)
        place = (market[..., None, :] > b[..., :, None]).sum(axis=-1)
        won = (place < len(self.ctr)) & (b > 0)
        shares = np.array([*self.ctr, 0.0])
        fraction = np.where(won, shares[np.minimum(place, len(self.ctr))], 0.0)
        padded = np.concatenate((market, np.zeros((*market.shape[:-1], 1))), axis=-1)
        price = np.take_along_axis(padded, np.minimum(place, market.shape[-1]), axis=-1)
        return won, fraction, np.where(won, price, 0.0)


class PostedPrice:
    """A posted price: the offer is taken if the bid (multiplier times value) reaches it, at that price.

    Examples
    --------
    >>> from assay.decisions.dual_balancing import PostedPrice
    >>> PostedPrice().outcome([0.2, 0.5], 0.4)[0].tolist()
    [False, True]
    """

    code = SECOND

    def outcome(self, bid: ArrayLike, state: Any) -> Outcome:
        """Return ``(won, fraction, price)``; `state` is the price (any shape that broadcasts)."""
        b = _bids(bid)
        d = _top(state)
        won = (b >= d) & (b > 0)
        return won, won.astype(float), np.where(won, d, 0.0)


class Table:
    """Arbitrary rewards and costs per action and round, for problems that are no auction.

    Parameters
    ----------
    rewards, costs : array-like, T x K
        In [0, 1]; column 0 is the void action and must be zero. Without such a column one is added in front.

    Examples
    --------
    >>> from assay.decisions.dual_balancing import Table
    >>> Table([[0.8, 0.3]], [[0.8, 0.2]]).rewards.tolist()
    [[0.0, 0.8, 0.3]]
    """

    def __init__(self, rewards: ArrayLike, costs: ArrayLike) -> None:
        f, c = checked_tables(rewards, costs)
        if f[:, 0].any() or c[:, 0].any():
            void = np.zeros((len(f), 1))
            f, c = np.hstack((void, f)), np.hstack((void, c))
        self.rewards, self.costs = f, c

    def outcome(self, bid: ArrayLike, state: Any) -> Outcome:
        """Return ``(won, fraction, price)`` of action numbers `bid` in round number `state`, at a value of 1."""
        action = np.asarray(bid, dtype=np.int64)
        f, c = self.rewards[int(state), action], self.costs[int(state), action]
        # reward = fraction * 1 and cost = fraction * price; an action that costs without reward has no such price
        if (c[f == 0] > 0).any():
            raise InputError("An action of this table costs without reward; use its rewards and costs directly.")
        return action > 0, f, np.divide(c, f, out=np.zeros_like(c), where=f > 0)


def checked_tables(rewards: ArrayLike, costs: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two T x K arrays of numbers in [0, 1] as float64."""
    tables = []
    for name, raw in (("rewards", rewards), ("costs", costs)):
        x = np.ascontiguousarray(raw, dtype=np.float64)
        if x.ndim != 2 or 0 in x.shape:
            raise InputError(f"{name} must be a table of rounds x actions, got the shape {x.shape}.")
        bad = ~((x >= 0) & (x <= 1))
        if bad.any():
            t, k = np.argwhere(bad)[0]
            raise InputError(
                f"{name}: round {t}, action {k} is {x[t, k]}; numbers in [0, 1] are needed, so scale them."
            )
        tables.append(x)
    if tables[0].shape != tables[1].shape:
        raise InputError(f"rewards are {tables[0].shape} and costs {tables[1].shape}; both must have one shape.")
    return tables[0], tables[1]


NAMES: dict[str, type] = {"first": FirstPrice, "second": SecondPrice, "posted": PostedPrice}


def get_mechanism(mechanism: str | Mechanism, *, soft_floor: float | None = None, reserve: float = 0.0) -> Mechanism:
    """A mechanism by name ("first", "second", "soft_floor", "gsp", "posted"), or the object itself."""
    if not isinstance(mechanism, str):
        if not isinstance(mechanism, Mechanism):
            raise InputError(f"mechanism must be a name or have the method outcome(), got {type(mechanism).__name__}.")
        return mechanism
    if mechanism in ("first", "second"):
        return NAMES[mechanism](reserve)  # type: ignore[no-any-return]
    if mechanism == "posted":
        return PostedPrice()
    if mechanism == "gsp":
        return GeneralizedSecondPrice()
    if mechanism == "soft_floor":
        if soft_floor is None:
            raise InputError("mechanism 'soft_floor' needs the floor: pass SoftFloor(floor), or --soft-floor.")
        return SoftFloor(soft_floor)
    raise InputError(f"There is no mechanism {mechanism!r}; use first, second, soft_floor, gsp or posted.")


def kernel_setting(mechanism: Mechanism) -> tuple[int, NDArray[np.float64]] | None:
    """The number under which the compiled loop knows a mechanism and its settings; None for a user's own."""
    if type(mechanism) in (FirstPrice, SecondPrice, PostedPrice):
        return int(mechanism.code), np.zeros(1)  # type: ignore[attr-defined]
    if type(mechanism) is SoftFloor:
        return SOFT_FLOOR, np.array([mechanism.floor])
    if type(mechanism) is GeneralizedSecondPrice:
        return GSP, np.array([0.0, *mechanism.ctr])
    return None


def reserve_of(mechanism: Mechanism) -> float:
    """The reserve that the compiled loop takes as a floor of every round."""
    return float(getattr(mechanism, "reserve", 0.0))
