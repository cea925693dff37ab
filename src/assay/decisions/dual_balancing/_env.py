"""The repeated auction as a Gymnasium environment, for agents that learn to bid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from assay._core.errors import InputError

from ._log import BidLog, make_log
from ._mechanisms import get_mechanism
from ._streams import STREAMS, make_stream

if TYPE_CHECKING:
    from ._mechanisms import Mechanism

ID = "assay/RepeatedAuction-v0"


class RepeatedAuctionEnv(gymnasium.Env[Any, Any]):
    """One episode is a budget: bid in auction after auction until the log or the budget ends.

    The observation is (value, share of the budget left, share of the time left, spending so far over even pacing, at most
    10); the action is the bid; the reward is what the win was worth. A bid above the budget that is left is cut to it.

    Parameters
    ----------
    log : BidLog, default None
        Auctions in units of about 1; None simulates a new one for every episode.
    stream : str, default "iid"
        World of a simulated log: "iid", "real", "drift", "switch" or "three_phase".
    length : int, default 1000
        Auctions of an episode.
    rho : float, default 0.1
        Budget per auction.
    roi_target : float, default None
        The info then holds the violation so far; the reward does not know it.
    mechanism : str or Mechanism, default "second"
        How auctions are decided.
    render_mode : None
        Nothing can be rendered.

    Examples
    --------
    >>> import gymnasium
    >>> from assay.decisions.dual_balancing import RepeatedAuctionEnv
    >>> env = gymnasium.make("assay/RepeatedAuction-v0", length=100)
    >>> observation, info = env.reset(seed=0)
    >>> observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
    >>> terminated
    False
    """

    metadata = {"render_modes": []}

    def __init__(
        self,
        log: BidLog | None = None,
        stream: str = "iid",
        length: int = 1000,
        rho: float = 0.1,
        roi_target: float | None = None,
        mechanism: str | Mechanism = "second",
        render_mode: str | None = None,
    ) -> None:
        if stream not in STREAMS:
            raise InputError(f"There is no stream {stream!r}; use {', '.join(STREAMS)}.")
        if length < 1 or (log is not None and len(log) < length):
            raise InputError(f"length must be at least 1 and at most the {0 if log is None else len(log):,} auctions.")
        if not (rho > 0 and np.isfinite(rho)):
            raise InputError(f"rho must be above 0, got {rho}.")
        self._log, self._stream, self._length = log, stream, int(length)
        self._budget = float(rho) * length
        self._roi = roi_target
        self._mechanism = get_mechanism(mechanism)
        self.render_mode = render_mode
        top = np.float32(1.0 if log is None else log.scale)
        self.action_space = gymnasium.spaces.Box(0.0, float(top), (1,), np.float32)
        high = np.array([max(1.0, 1.0 if log is None else log.value.max()), 1.0, 1.0, 10.0], dtype=np.float32)
        self.observation_space = gymnasium.spaces.Box(np.zeros(4, np.float32), high, dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        draw = int(self.np_random.integers(2**31 - 1))
        if self._log is None:
            self._auctions = make_stream(self._stream, make_log(self._length, random_state=draw), self._length, draw)
        else:
            start = draw % (len(self._log) - self._length + 1)
            self._auctions = self._log.take(slice(start, start + self._length))
        self._t, self._spend, self._gained = 0, 0.0, 0.0
        return self._observe(), self._info()

    def _observe(self) -> Any:
        t = min(self._t, self._length - 1)
        even = self._budget * max(self._t, 1) / self._length
        left = max(0.0, 1 - self._spend / self._budget)
        state = [self._auctions.value[t], left, 1 - self._t / self._length, min(10.0, self._spend / even)]
        return np.array(state, dtype=np.float32)

    def _info(self) -> dict[str, Any]:
        missing = 0.0 if self._roi is None else self._roi * self._spend - self._gained
        return {"spend": self._spend, "reward": self._gained, "violation": max(0.0, missing), "t": self._t}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Bid in the next auction."""
        asked = float(np.asarray(action, dtype=np.float64).reshape(-1)[0])
        if not np.isfinite(asked):
            raise InputError(f"The bid must be a finite number, got {asked}.")
        bid = min(max(0.0, asked), self._budget - self._spend)
        t, log = self._t, self._auctions
        won, fraction, price = (np.asarray(x)[0] for x in self._mechanism.outcome(np.array([bid]), log.competing[t]))
        floor = float(log.floor[t]) if log.floor is not None else 0.0
        won = bool(won) and bid >= floor
        reward = float(fraction * log.value[t]) if won else 0.0
        # the price in other units than the bid may round above it
        self._spend = min(self._budget, self._spend + (min(bid, float(fraction * max(price, floor))) if won else 0.0))
        self._gained += reward
        self._t += 1
        ended = self._t >= self._length or self._spend >= self._budget
        return self._observe(), reward, ended, False, {**self._info(), "won": won}


def register() -> None:
    """Make ``gymnasium.make("assay/RepeatedAuction-v0")`` work; calling it again changes nothing."""
    if ID not in gymnasium.registry:
        gymnasium.register(id=ID, entry_point="assay.decisions.dual_balancing._env:RepeatedAuctionEnv")


register()
