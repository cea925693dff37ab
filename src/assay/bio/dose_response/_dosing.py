"""Which dose to measure next."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Literal

import numpy as np

from assay._core.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assay.bio.dose_response._arcanet import ARCANet

__all__ = ["suggest_doses"]

GRID = 121  # doses on the grid: 3.5 decades then have a step of 0.03, far below what a pipette resolves
SAMPLES = 1024  # curves drawn for the IC50; its Monte Carlo error in a variance is about 4 %
LEVEL = 0.5


def suggest_doses(
    model: ARCANet,
    drug: str,
    cell: str,
    n: int = 1,
    target: Literal["ic50", "aac"] = "ic50",
) -> NDArray[np.float64]:
    r"""Choose the next doses so that the IC50 or the AAC becomes as certain as possible.

    .. math:: z^* = \arg\max_z \frac{\mathrm{cov}(\tau, E(z))^2}{\mathrm{var}\,E(z) + \sigma^2}

    where :math:`\tau` is the target under the posterior of the residual process: the part of its variance that a
    measurement at z removes. Further doses are chosen after conditioning on the former.

    Parameters
    ----------
    model : ARCANet
        Fitted with ``residual="gp"``.
    drug, cell : str
        Names; the pair may be unmeasured, if both are known.
    n : int, default 1, in [1, 20]
        How many doses.
    target : {"ic50", "aac"}, default "ic50"
        Absolute IC50 (in log10) or the area under the inhibition over the tested range.

    Returns
    -------
    ndarray, shape (n,)
        Doses in uM in the order of choice, inside the tested range of the curve (of the drug, if unmeasured).

    Raises
    ------
    InputError
        If the model has no residual process or the pair cannot be predicted.

    Warns
    -----
    UserWarning
        If no plausible curve reaches 50 % inside the range: the area then takes the place of the IC50.

    Notes
    -----
    1. For the AAC the variance is exact where the curve is positive. For the IC50 it comes from 1,024 posterior curves
       with a fixed seed; a curve that stays below 50 % counts with the highest dose.
    2. Uncertainty of the network itself is not part of it, only that of the residual process.

    Examples
    --------
    >>> from assay.bio.dose_response import ARCANet, datasets, suggest_doses
    >>> data = datasets.load_sarcoma(n_drugs=3)
    >>> net = ARCANet(epochs=2, random_state=0).fit(data)
    >>> suggest_doses(net, data.drugs[0], data.cells[0], n=2, target="aac").shape
    (2,)
    """
    if target not in ("ic50", "aac"):
        raise InputError(f"target={target!r} must be 'ic50' or 'aac'.")
    if not 1 <= n <= 20:
        raise InputError(f"n={n} must be between 1 and 20.")
    model._check_fitted()
    gp = model.residual_gp_
    if gp is None:
        raise InputError("Dose planning needs the residual process: fit ARCANet with residual='gp'.")
    d, c = model._codes(np.array([drug]), np.array([cell]))
    curve = int(model._curve_of(d, c)[0])
    rows = np.array([curve]) if curve >= 0 else np.flatnonzero((model.pairs_[0] == d[0]) & model.pairs_[2])
    if not len(rows):
        raise InputError(f"Drug {drug} has no measured curve, so there is no tested range to plan in.")
    tested = gp.x_[rows][gp.mask_[rows]]
    x = np.linspace(tested.min(), tested.max(), GRID)
    mean = model.predict(drug, cell, 10.0**x)
    _, covariance = gp.posterior(curve, 10.0**x)
    if target == "ic50":
        chosen = _for_ic50(x, mean, covariance, gp.noise_, n)
        if chosen is not None:
            return 10.0 ** x[chosen]
        warnings.warn(
            f"No plausible curve of {drug} on {cell} crosses 50 % inside the tested range: doses are chosen for the "
            "area instead of the IC50.",
            stacklevel=2,
        )
    return 10.0 ** x[_for_area(x, mean, covariance, gp.noise_, n)]


def _for_area(
    x: NDArray[np.float64], mean: NDArray[np.float64], covariance: NDArray[np.float64], noise: float, n: int
) -> list[int]:
    weight = np.gradient(x)
    weight[[0, -1]] *= 0.5  # the trapezoid rule
    weight = weight * (mean > 0)
    if not weight.any():  # a curve that only stimulates: its signed area is what remains uncertain
        weight = np.gradient(x)
    weight = weight / weight.sum()
    covariance = covariance.copy()
    chosen: list[int] = []
    for _ in range(n):
        gain = (covariance @ weight) ** 2 / (np.diag(covariance) + noise)
        best = int(gain.argmax())
        chosen.append(best)
        column = covariance[:, best].copy()
        covariance -= np.outer(column, column) / (column[best] + noise)
    return chosen


def _for_ic50(
    x: NDArray[np.float64], mean: NDArray[np.float64], covariance: NDArray[np.float64], noise: float, n: int
) -> list[int] | None:
    rng = np.random.default_rng(0)  # fixed: the same model always gives the same plan
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    curves = mean + rng.standard_normal((SAMPLES, len(x))) @ root.T
    chosen: list[int] = []
    for _ in range(n):
        log_ic50 = _crossing(x, curves)
        if log_ic50.std() < 1e-12:
            return None
        centred = curves - curves.mean(axis=0)
        covariant = (log_ic50 - log_ic50.mean()) @ centred / SAMPLES
        gain = covariant**2 / (centred.var(axis=0) + noise)
        best = int(gain.argmax())
        chosen.append(best)
        # Condition every curve on a measurement at its expected value (Matheron's rule on the sample).
        seen = curves[:, best] + np.sqrt(noise) * rng.standard_normal(SAMPLES)
        column = centred.T @ centred[:, best] / SAMPLES
        curves = curves + np.outer(curves[:, best].mean() - seen, column / (column[best] + noise))
    return chosen


def _crossing(x: NDArray[np.float64], curves: NDArray[np.float64]) -> NDArray[np.float64]:
    """log10 of the first upward crossing of 50 %, the ends of the range where there is none."""
    above = curves >= LEVEL
    upward = above[:, 1:] & ~above[:, :-1]
    k = upward.argmax(axis=1)
    rows = np.arange(len(curves))
    low, high = curves[rows, k], curves[rows, k + 1]
    share = (LEVEL - low) / np.where(high == low, 1.0, high - low)
    found = x[k] + share * (x[k + 1] - x[k])
    out = np.where(upward.any(axis=1), found, x[-1])
    return np.where(above[:, 0], x[0], out)
