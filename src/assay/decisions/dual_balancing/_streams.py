"""Test streams: the same auctions in kinder and harsher worlds, and two small games that break weaker methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from assay._core.errors import InputError

from ._log import BidLog

if TYPE_CHECKING:
    from numpy.typing import NDArray

STREAMS = ("iid", "real", "three_phase", "drift", "switch")
# Scaling of the public logs: prices up to 300 per thousand impressions, click rates up to 1.2 %
PRICE_SCALE, VALUE_SCALE = 300.0, 300.0


def make_stream(name: str, log: BidLog, n: int, random_state: int = 0) -> BidLog:
    """Give `n` auctions of a log as one of the worlds "iid", "real", "three_phase", "drift" and "switch".

    Values and prices are divided by 300, so that they lie in [0, 1] for the public logs. "real" keeps the order of the
    log from a place that the seed draws; all others begin with rows drawn without replacement in random order.

    Parameters
    ----------
    name : str
        "iid": as drawn; "three_phase": prices x 0.7 in the outer thirds and price + 1.05 value in the middle one, where no
        win pays; "drift": prices x 0.6 rising to x 1.4; "switch": every tenth of the time between prices x 0.6 and
        (prices x 1.6, values x 0.5).
    log : BidLog
        Where the rows come from; at least `n`.
    n : int
        Length.
    random_state : int, default 0
        Seed.

    Returns
    -------
    BidLog
        One competing bid per auction.

    Examples
    --------
    >>> from assay.decisions.dual_balancing import make_log, make_stream
    >>> len(make_stream("drift", make_log(500), 200))
    200
    """
    if name not in STREAMS:
        raise InputError(f"There is no stream {name!r}; use {', '.join(STREAMS)}.")
    if n > len(log):
        raise InputError(f"The log has {len(log):,} auctions, the stream needs {n:,}.")
    rng = np.random.default_rng(random_state)
    if name == "real":
        start = int(rng.integers(len(log) - n + 1))
        rows = np.arange(start, start + n)
    else:
        rows = rng.permutation(len(log))[:n]
    v = np.clip(log.value[rows] / VALUE_SCALE, 0.0, 1.0)
    d = log.competing[rows, 0] / PRICE_SCALE
    third = np.arange(n) * 3 // n
    if name == "three_phase":
        d = np.where(third == 1, d + 1.05 * v, 0.7 * d)
    elif name == "drift":
        d = d * np.linspace(0.6, 1.4, n)
    elif name == "switch":
        odd = (np.arange(n) * 10 // n) % 2 == 1
        d = np.where(odd, 1.6 * d, 0.6 * d)
        v = np.where(odd, 0.5 * v, v)
    return BidLog(v, d, name=f"{log.name}, {name}")


def three_bids(prices: NDArray[np.float64], random_state: int = 0) -> NDArray[np.float64]:
    """The price as the top competing bid and two uniform fractions of it below (for generalised second price)."""
    rng = np.random.default_rng(random_state)
    return np.concatenate((prices[:, None], prices[:, None] * -np.sort(-rng.random((len(prices), 2)), axis=1)), axis=1)


def trap(n: int, random_state: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Void, A, B with noise of 0.1: A is good for the first half and ruins the ROI in the second, B is always modest."""
    rng = np.random.default_rng(random_state)
    f, c = np.zeros((n, 3)), np.zeros((n, 3))
    first = np.arange(n) < n // 2
    noise = rng.uniform(-0.1, 0.1, (n, 4))
    f[:, 1] = np.where(first, 0.8, 0.3) + noise[:, 0]
    c[:, 1] = 0.8 + noise[:, 1]
    f[:, 2] = 0.3 + noise[:, 2]
    c[:, 2] = 0.2 + noise[:, 3]
    return f, c


def knife(n: int, beta: float, random_state: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Void, A (0.8, 0.88), B (0.1, 0.1 - beta): an ROI of 1 is only just possible, through B. Noise of 0.1 on A only."""
    rng = np.random.default_rng(random_state)
    f, c = np.zeros((n, 3)), np.zeros((n, 3))
    f[:, 1] = 0.8 + rng.uniform(-0.1, 0.1, n)
    c[:, 1] = 0.88 + rng.uniform(-0.1, 0.1, n)
    f[:, 2] = 0.1
    c[:, 2] = 0.1 - beta
    return f, c


def switching_bandit(n: int, n_actions: int, switches: int, random_state: int = 0) -> NDArray[np.float64]:
    """Utilities in [0, 1], T x K: one arm pays 0.8, the others 0.5 on average, and which one changes `switches` times."""
    rng = np.random.default_rng(random_state)
    u = np.full((n, n_actions), 0.5)
    best = -1
    for rows in np.array_split(np.arange(n), switches + 1):
        best = int(rng.choice([k for k in range(n_actions) if k != best]))
        u[rows, best] = 0.8
    return np.asarray((rng.random((n, n_actions)) < u).astype(float))
