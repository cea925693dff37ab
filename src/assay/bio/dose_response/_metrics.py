"""Quantities that are read off a dense curve, and the error that no model can beat."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from assay._core.errors import InputError

from ._data import DoseResponseData

if TYPE_CHECKING:
    import pandas as pd


def curve_metrics(
    dose: Any,
    effect: Any,
    level: float = 0.5,
    delta: float = 0.1,
    *,
    tested: tuple[Any, Any] | None = None,
    extrapolate: bool = False,
) -> pd.DataFrame:
    r"""IC50, EC50, Emax, AAC and shape of dense dose-response curves.

    .. math:: \mathrm{AAC} = \frac{1}{x_b - x_a}\int_{x_a}^{x_b} \max(E(x), 0)\,dx,\qquad x = \log_{10} z

    Parameters
    ----------
    dose : array, shape (m,) or (n, m)
        Ascending doses in uM (100 points or more give three digits).
    effect : array, shape (m,) or (n, m)
        Inhibition; NaN entries are ignored.
    level : float, default 0.5
        Effect that defines the absolute IC50.
    delta : float, default 0.1
        Size of stimulation and of inhibition that make a curve biphasic.
    tested : pair of floats or arrays (n,), optional
        Lowest and highest dose that was measured; points outside are ignored unless `extrapolate`.
    extrapolate : bool, default False
        Use the whole curve; the column `extrapolated` then says where it left the tested range.

    Returns
    -------
    DataFrame, one row per curve
        ic50 (uM; first upward crossing of `level`, interpolated in log dose; inf if there is none; the lowest dose, as a
        bound, if the curve starts above), ic50_status ("reached", "not_reached", "below_range"), ec50 (first crossing of
        half of the curve's own span; NaN for a flat curve), e_top (effect at the highest dose), e_max, aac, aac_signed,
        biphasic, dose_min, dose_max, extrapolated.

    Raises
    ------
    InputError
        for doses that do not ascend or are not positive, or shapes that do not fit.

    Notes
    -----
    1. Biphasic: the smallest effect before the maximum is below -delta and the maximum above delta.
    2. AACs are comparable only over the same dose range: compare `dose_min` and `dose_max` first.

    Examples
    --------
    >>> import numpy as np
    >>> from assay.bio.dose_response import curve_metrics
    >>> z = np.logspace(-2, 2, 401)
    >>> found = curve_metrics(z, z / (z + 1.0))
    >>> round(float(found.ic50[0]), 3), found.ic50_status[0], round(float(found.aac[0]), 3)
    (1.0, 'reached', 0.5)
    """
    import pandas as pd

    e = np.atleast_2d(np.asarray(effect, float))
    try:
        z = np.broadcast_to(np.asarray(dose, float), e.shape)
    except ValueError:
        raise InputError(f"dose {np.shape(dose)} does not fit effect {np.shape(effect)}.") from None
    use = np.isfinite(e) & np.isfinite(z)
    if not (z[use] > 0).all():
        raise InputError("Doses of a curve must be > 0.")
    x_all = np.log10(np.where(use, z, 1.0))
    n, m = e.shape
    limits = np.column_stack([np.where(use, x_all, np.inf).min(1), np.where(use, x_all, -np.inf).max(1)])
    outside = np.zeros(n, bool)
    if tested is not None:
        low = np.log10(np.broadcast_to(np.asarray(tested[0], float), n))
        high = np.log10(np.broadcast_to(np.asarray(tested[1], float), n))
        # 1e-9 decades: the ends of a grid built from the same doses count as inside.
        inside = (x_all >= low[:, None] - 1e-9) & (x_all <= high[:, None] + 1e-9)
        outside = (use & ~inside).any(1)
        if not extrapolate:
            use, outside = use & inside, np.zeros(n, bool)
        limits = np.column_stack([np.where(use, x_all, np.inf).min(1), np.where(use, x_all, -np.inf).max(1)])
    if (use.sum(1) < 2).any():
        raise InputError(f"Curve {int(np.argmax(use.sum(1) < 2))} has fewer than two points in the tested range.")
    # Left-align the used points and repeat the last one, so that padding adds neither area nor crossings.
    order = np.argsort(~use, axis=1, kind="stable")
    x, y = np.take_along_axis(x_all, order, 1), np.take_along_axis(np.where(use, e, 0.0), order, 1)
    count = use.sum(1)
    last = np.minimum(np.arange(m)[None, :], count[:, None] - 1)
    x, y = np.take_along_axis(x, last, 1), np.take_along_axis(y, last, 1)
    if (np.diff(x, axis=1) < 0).any() or (np.diff(x, axis=1)[np.arange(m - 1) < count[:, None] - 1] == 0).any():
        raise InputError("Doses of a curve must ascend strictly.")
    width = np.diff(x, axis=1)
    span = x[:, -1] - x[:, 0]

    def area(values: np.ndarray) -> np.ndarray:
        return ((values[:, 1:] + values[:, :-1]) * 0.5 * width).sum(1) / span

    crossing = _first_crossing(x, y, np.full(n, level))
    starts_above = y[:, 0] >= level
    status = np.where(starts_above, "below_range", np.where(np.isfinite(crossing), "reached", "not_reached"))
    ic50 = np.where(starts_above, 10.0 ** x[:, 0], 10.0**crossing)
    e_max = y.max(1)
    own = e_max - y[:, 0]
    half = _first_crossing(x, y, y[:, 0] + 0.5 * own)
    peak = y.argmax(1)
    before = np.where(np.arange(m) <= peak[:, None], y, np.inf).min(1)
    return pd.DataFrame(
        {
            "ic50": ic50,
            "ic50_status": status,
            "ec50": np.where(own > 1e-9, 10.0**half, np.nan),
            "e_top": y[:, -1],
            "e_max": e_max,
            "aac": area(np.maximum(y, 0.0)),
            "aac_signed": area(y),
            "biphasic": (before < -delta) & (e_max > delta),
            "dose_min": 10.0 ** limits[:, 0],
            "dose_max": 10.0 ** limits[:, 1],
            "extrapolated": outside,
        }
    )


def _first_crossing(x: np.ndarray, y: np.ndarray, level: np.ndarray) -> np.ndarray:
    """log dose of the first upward crossing, linear between points; inf if there is none."""
    up = (y[:, :-1] < level[:, None]) & (y[:, 1:] >= level[:, None])
    at = up.argmax(1)
    row = np.arange(len(y))
    y0, y1, x0, x1 = y[row, at], y[row, at + 1], x[row, at], x[row, at + 1]
    rise = np.where(y1 > y0, y1 - y0, 1.0)
    return np.where(up.any(1), x0 + (x1 - x0) * (level - y0) / rise, np.inf)


# Variance of the median of n normal values times n (order statistics; beyond ten the limit pi/2 is within 6 %).
_MEDIAN_VARIANCE = {
    1: 1.0,
    2: 1.0,
    3: 1.3460,
    4: 1.1930,
    5: 1.4339,
    6: 1.2884,
    7: 1.4716,
    8: 1.3448,
    9: 1.4929,
    10: 1.3830,
}


def noise_floor(data: DoseResponseData, mask: Any = None) -> float:
    r"""Mean squared error that a perfect model would have against the measured values, from the replicates.

    .. math:: \mathrm{floor} = \frac{1}{|M|}\sum_{jk \in M} \mathrm{Var}(\bar y_{jk}),\qquad
              \mathrm{Var} = s_{jk}^2 c(n_{jk})/n_{jk}

    with c = 1 for means and the efficiency of the median (1.35 at n = 3) for medians.

    Parameters
    ----------
    data : DoseResponseData
    mask : bool array (n_curves, m), optional
        Points to average over.

    Returns
    -------
    float
        NaN when no point has replicates.

    Notes
    -----
    1. Errors shared by the replicates (plate position, seeding, drift) are invisible to it: the true floor is higher.
    2. Where only a standard deviation of an averaged value is known (`response_sd`) it is taken as that value's error.

    Examples
    --------
    >>> from assay.bio.dose_response import datasets, noise_floor
    >>> 0.0001 < noise_floor(datasets.load_sarcoma(n_drugs=3)) < 0.003
    True
    """
    mask = data.mask if mask is None else np.asarray(mask, bool) & data.mask
    variance = value_variance(data)[mask]
    variance = variance[np.isfinite(variance)]
    return float(variance.mean()) if len(variance) else math.nan


def value_variance(data: DoseResponseData) -> np.ndarray:
    """Variance of every value of `data.effect` as its own replicates tell it; NaN where they do not."""
    n = np.maximum(data.replicate_n, 1)
    factor = np.ones(n.shape)
    if data.aggregate == "median":
        factor = np.vectorize(lambda k: _MEDIAN_VARIANCE.get(int(k), math.pi / 2))(n).astype(float)
    return data.replicate_sd**2 * factor / n
