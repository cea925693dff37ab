"""The paper's engine: matrix multiplicative weights with sketched exponentials."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.special import ive

__all__ = ["MMWResult", "chebyshev_exponential", "solve_mmw"]


@dataclass
class MMWResult:
    """Last vectors of the outer loop and what they cost."""

    V: np.ndarray  # n x k; |v_i|^2 is about 1
    value: float  # sum w |v_i - v_j|^2 / 4, rows as they are
    spread: float  # |sum d_i v_i| / vol
    n_iter: int
    gammas: list[float]


def chebyshev_exponential(product: Callable[[np.ndarray], np.ndarray], G: np.ndarray, lmax: float) -> np.ndarray:
    r"""Apply :math:`e^{-M/2}` to a block, for symmetric M with spectrum in [0, lmax].

    With :math:`c = l_{max}/4`: :math:`e^{-c}(I_0(c) + 2 \sum_j (-1)^j I_j(c) T_j(2M/l_{max} - 1))`.

    Parameters
    ----------
    product : callable
        X -> M X.
    G : ndarray of shape (n, k)
        Block.
    lmax : float
        Upper end of the spectrum. A true eigenvalue beyond it makes the polynomials grow: this is checked.

    Returns
    -------
    ndarray of shape (n, k)
    """
    n = G.shape[0]
    c = lmax / 4
    # twice the square root of lmax resolves the exponential; ln n for a relative error of 1/n
    q = int(np.clip(math.ceil(1.5 * math.sqrt(lmax / 2) * math.log(max(n, 2))), 12, 200))
    coefficient = ive(np.arange(q + 1), c)  # ive(j, c) = I_j(c) e^{-c}
    before = G
    current = (2 / lmax) * product(G) - G
    H = coefficient[0] * before - 2 * coefficient[1] * current
    sign = 1.0
    for j in range(2, q + 1):
        before, current = current, 2 * ((2 / lmax) * product(current) - current) - before
        H += (2 * sign * coefficient[j]) * current
        sign = -sign
    # |T_q| <= 1 on the interval, so the block cannot have grown; 1e-6 covers rounding in q steps
    limit = float(np.linalg.norm(G)) * (1 + 1e-6)
    if not float(np.linalg.norm(current)) <= limit:
        raise FloatingPointError(f"Chebyshev polynomials left [-1, 1]: the spectrum exceeds lmax = {lmax:.4g}.")
    return H


def solve_mmw(
    W: sp.csr_array,
    *,
    balance: float,
    rng: np.random.Generator,
    n_components: int = 24,
    n_iter: int = 40,
    best_cut: Callable[[np.ndarray], float],
) -> MMWResult:
    r"""Find vectors that the balanced-cut relaxation accepts, by multiplicative weights on the normalised Laplacian.

    Parameters
    ----------
    W : csr_array
        Symmetric graph. A vertex without edges counts in the volume with the mean degree.
    balance : float
        Share of the smaller side, by volume.
    rng : Generator
        Source of the Gaussian sketches.
    n_components : int, default 24
        Columns of the sketch.
    n_iter : int, default 40
        Iterations for each value of gamma.
    best_cut : callable
        Rounds an iterate and returns the best cut seen so far; called for every fifth iterate of the second half.

    Returns
    -------
    MMWResult

    Notes
    -----
    1. The normalised Laplacian has its spectrum in [0, 2], so the width of the oracle is bounded whatever the
       adversary adds.
    2. gamma doubles from 8, warm-started, until the cost falls by less than 5 % or gamma exceeds 40 ln n / phi, with
       phi the best cut over half the volume.

    References
    ----------
    arXiv 2406.04857, sections 3 and 5.
    """
    n = W.shape[0]
    true_degree = np.asarray(W.sum(axis=1)).ravel()
    mean = float(true_degree.mean()) or 1.0
    degree = np.where(true_degree > 0, true_degree, mean)
    root = 1 / np.sqrt(degree)
    volume = float(degree.sum())
    A = sp.csr_array(W.multiply(root[:, None]).multiply(root[None, :]))
    u = np.sqrt(degree / volume)
    target = max((1 - 2 * balance) ** 2, 0.01)
    y, z, gamma, previous, gammas, steps = np.zeros(n), 0.0, 8.0, math.inf, [], 0
    kept: tuple[np.ndarray, float, float] | None = None
    while True:
        gammas.append(gamma)
        costs = []
        for t in range(1, n_iter + 1):
            steps += 1
            lift = y - y.min()
            lmax = 2 * gamma + float(lift.max()) + z

            def product(X: np.ndarray, lift: np.ndarray = lift, z: float = z, gamma: float = gamma) -> np.ndarray:
                return gamma * (X - A @ X) + lift[:, None] * X + z * np.outer(u, u @ X)

            H = chebyshev_exponential(product, rng.standard_normal((n, n_components)), lmax)
            H /= np.linalg.norm(H)
            V = H * (root * math.sqrt(volume))[:, None]
            x = np.einsum("ij,ij->i", V, V)
            drift = degree @ V / volume
            spread = float(drift @ drift)
            cost = float(true_degree @ x - np.einsum("ij,ij->", V, W @ V)) / volume
            y = y + 0.3 * np.clip(x - 1, -1, 3)
            z = max(0.0, z + 6 * min(max(spread - target, -0.1), 1.0))
            if t > n_iter // 2:
                costs.append(cost)
                if t % 5 == 0:
                    best = best_cut(V)
        mean_cost = float(np.mean(costs))
        # Too cold a gamma outruns the steps of y: the vectors lose their unit lengths and the cost rises again. What the
        # warmer one found stands.
        if kept is None or mean_cost < kept[1]:
            kept = V, mean_cost, spread
        phi = max(best / (volume / 2), 1e-12)
        if mean_cost > 0.95 * previous or 2 * gamma > 40 * math.log(max(n, 2)) / phi:
            break
        previous, gamma = mean_cost, 2 * gamma
    V, mean_cost, spread = kept
    return MMWResult(V, mean_cost * volume / 4, math.sqrt(spread), steps, gammas)
