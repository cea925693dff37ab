"""What the best fixed mixture of actions would have earned: the benchmark, its prices, and how feasible the problem was."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import linprog

from assay._core.errors import InputError

from ._learners import ROI_LIMIT, check_number

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Optimum:
    """The benchmark LP: value per round, mixture (contexts x actions), and marginal values of its two limits.

    `budget_price` is d value / d rho, `roi_price` is -d value / d omega (per round and unit of target).
    """

    value: float
    mixture: NDArray[np.float64]
    budget_price: float
    roi_price: float


def solve(
    reward: NDArray[np.float64], cost: NDArray[np.float64], share: NDArray[np.float64], rho: float, omega: float | None
) -> Optimum:
    """Benchmark from mean rewards and costs per context (C x K, means within it) and the contexts' shares (C)."""
    C, K = reward.shape
    f, c = (share[:, None] * reward).ravel(), (share[:, None] * cost).ravel()
    rows, limits = [], []
    if math.isfinite(rho):
        rows.append(c)
        limits.append(rho)
    if omega is not None:
        rows.append(omega * c - f)
        limits.append(0.0)
    # Rows scaled to about 1: HiGHS's tolerances are absolute, and the averages of a sparse log are tiny.
    sizes = [max(float(np.abs(row).max()), 1e-300) for row in rows]
    top = max(float(np.abs(f).max()), 1e-300)
    result = linprog(
        -f / top,
        A_ub=np.array([row / s for row, s in zip(rows, sizes)]) if rows else None,
        b_ub=np.array([b / s for b, s in zip(limits, sizes)]) if rows else None,
        A_eq=np.kron(np.eye(C), np.ones((1, K))),
        b_eq=np.ones(C),
        bounds=(0, 1),
        method="highs",
    )
    if result.status != 0:
        raise InputError(f"No mixture of the actions keeps the limits ({result.message.strip()}); is action 0 void?")
    q = result.x.reshape(C, K)
    # HiGHS gives marginals of the scaled rows
    prices = [-m * top / s for m, s in zip(result.ineqlin.marginals, sizes)] if rows else []
    budget_price = float(prices[0]) if math.isfinite(rho) else 0.0
    roi_price = float(prices[-1] * (c @ result.x)) if omega is not None else 0.0
    return Optimum(float(f @ result.x), q, budget_price, roi_price)


def means(
    rewards: NDArray[np.float64], costs: NDArray[np.float64], contexts: ArrayLike | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean reward and cost of every action within every context, and the contexts' shares."""
    T, K = rewards.shape
    if contexts is None:
        return rewards.mean(axis=0)[None], costs.mean(axis=0)[None], np.ones(1)
    labels = np.unique(np.asarray(contexts), return_inverse=True)[1].ravel()
    if len(labels) != T:
        raise InputError(f"contexts has {len(labels)} entries for {T} rounds.")
    count = np.bincount(labels)
    sums = [np.stack([np.bincount(labels, x[:, k]) for k in range(K)], axis=1) for x in (rewards, costs)]
    return sums[0] / count[:, None], sums[1] / count[:, None], count / T


def _tables(rewards: ArrayLike, costs: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    f, c = np.asarray(rewards, dtype=np.float64), np.asarray(costs, dtype=np.float64)
    if f.ndim != 2 or f.shape != c.shape or 0 in f.shape:
        raise InputError(
            f"rewards and costs must be tables of rounds x actions of one shape, got {f.shape}, {c.shape}."
        )
    if not (np.isfinite(f).all() and np.isfinite(c).all()):
        raise InputError("rewards and costs must be finite numbers.")
    return f, c


def _limits(rho: float, omega: float | None) -> tuple[float, float | None]:
    rho = math.inf if rho == math.inf else check_number("rho", rho)
    return rho, None if omega is None else check_number("omega", omega, 0.0, ROI_LIMIT)


def hindsight_optimum(
    rewards: ArrayLike, costs: ArrayLike, rho: float, omega: float | None = None, contexts: ArrayLike | None = None
) -> tuple[float, NDArray[np.float64]]:
    """Compute the value per round of the best fixed mixture that keeps budget and ROI target on average.

    .. math:: \\max \\{\\bar f^T q : \\bar c^T q \\le \\rho,\\ (\\omega \\bar c - \\bar f)^T q \\le 0,\\ q \\in \\Delta\\}

    Parameters
    ----------
    rewards, costs : array-like, T x K
        Of every action in every round.
    rho : float
        Budget per round; infinite without one.
    omega : float, default None
        ROI target.
    contexts : array-like, T, default None
        A label per round: the mixture may then differ between contexts.

    Returns
    -------
    value : float
        Reward per round.
    mixture : ndarray, K or C x K
        The mixture; one row per context (in sorted order) where contexts are given.

    Raises
    ------
    InputError
        If no mixture keeps the limits, which cannot be where action 0 is void.

    Examples
    --------
    >>> from assay.decisions.dual_balancing import hindsight_optimum
    >>> value, mixture = hindsight_optimum([[0.0, 1.0]], [[0.0, 0.5]], rho=0.25)
    >>> round(value, 9), mixture.round(9).tolist()
    (0.5, [0.5, 0.5])
    """
    f, c = _tables(rewards, costs)
    rho, omega = _limits(rho, omega)
    found = solve(*means(f, c, contexts), rho, omega)
    return found.value, found.mixture if contexts is not None else found.mixture[0]


def slater_margin(
    rewards: ArrayLike, costs: ArrayLike, rho: float, omega: float | None = None, block: int | None = None
) -> float:
    """Compute by how much all constraints can be kept at once: large is easy, near 0 is a knife's edge.

    .. math:: \\max \\{a : \\bar c^T q + a \\le \\rho,\\ (\\omega \\bar c - \\bar f)^T q + a \\le 0,\\ q \\in \\Delta\\}

    A diagnostic: no learner of this library is shown it.

    Parameters
    ----------
    rewards, costs : array-like, T x K
        Of every action in every round.
    rho : float
        Budget per round.
    omega : float, default None
        ROI target.
    block : int, default None
        Take the smallest margin over consecutive blocks of this many rounds (sqrt(T) in the paper's analysis).

    Returns
    -------
    float
        The margin, in the unit of the costs per round.

    Examples
    --------
    >>> from assay.decisions.dual_balancing import slater_margin
    >>> round(slater_margin([[0.0, 1.0]], [[0.0, 0.5]], rho=0.25), 9)
    0.25
    """
    f, c = _tables(rewards, costs)
    rho, omega = _limits(rho, omega)
    if block is not None:
        if block < 1:
            raise InputError(f"block must be at least 1, got {block}.")
        starts = range(0, max(1, len(f) - block + 1), block)
        return min(slater_margin(f[s : s + block], c[s : s + block], rho, omega) for s in starts)
    fbar, cbar = f.mean(axis=0), c.mean(axis=0)
    # a budget that cannot bind may be so large that the solver takes it for infinite
    enough = float(cbar.max() + (0.0 if omega is None else np.abs(omega * cbar - fbar).max()))
    if enough < rho < math.inf:
        if omega is None:
            return rho - float(cbar.min())
        rho = enough
    rows = [np.append(cbar, 1.0)] if math.isfinite(rho) else []
    limits = [rho] if math.isfinite(rho) else []
    if omega is not None:
        rows.append(np.append(omega * cbar - fbar, 1.0))
        limits.append(0.0)
    if not rows:
        return math.inf
    K = len(fbar)
    result = linprog(
        np.append(np.zeros(K), -1.0), A_ub=np.array(rows), b_ub=limits, A_eq=np.append(np.ones(K), 0.0)[None], b_eq=[1.0],
        bounds=[(0, 1)] * K + [(None, None)], method="highs",
    )  # fmt: skip
    return float(-result.fun)


def best_fixed(
    rewards: NDArray[np.float64], costs: NDArray[np.float64], rho: float, omega: float | None
) -> tuple[float, int]:
    """Reward per round and number of the best single action that keeps the limits on average."""
    f, c = rewards, costs  # means, K each
    kept = c <= rho
    if omega is not None:
        kept &= omega * c - f <= 0
    value = np.where(kept, f, -np.inf)
    k = int(value.argmax())
    return float(value[k]), k
