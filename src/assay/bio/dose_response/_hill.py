"""Hill curves: all curves of a screen fitted at once, and a mixed-effects version."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from assay._core.errors import InputError

from ._data import DoseResponseData, broadcast_query, training_mask

if TYPE_CHECKING:
    import pandas as pd

# Bounds (spec): slope, distance of x50 from the tested range in decades, plateaus in units of effect.
_K_BOUNDS = (0.1, 20.0)
_X50_MARGIN = 2.0
_EINF_BOUNDS = (-1.0, 2.5)
_E0_BOUNDS = (-2.5, 1.0)
_MAX_ITER = 60
# Relative decrease of the SSE below which a curve is finished: 1e-9 of the SSE is far below any effect on a parameter.
_SSE_TOL = 1e-9
# Slopes of the start grid: one per shape class (shallow, ordinary, steep, step-like).
_GRID_K = np.array([0.5, 1.0, 2.0, 4.0, 8.0, 16.0])
_GRID_X = 15


@dataclasses.dataclass(frozen=True, eq=False)
class HillFit:
    """Fitted Hill curves: parameters as arrays of the leading shape of the input.

    Attributes
    ----------
    E0, Einf, k, log10_x50 : ndarray
        Plateaus at dose 0 and infinity, slope per decade (natural logistic units), log10 of the half-effect dose in uM.
    sse : ndarray
        (Weighted) sum of squared residuals.
    n_points : ndarray of int
    converged : ndarray of bool
        False where the iteration limit was reached first.
    """

    E0: np.ndarray
    Einf: np.ndarray
    k: np.ndarray
    log10_x50: np.ndarray
    sse: np.ndarray
    n_points: np.ndarray
    converged: np.ndarray

    def predict(self, dose: Any) -> np.ndarray:
        """Effect at `dose`, shape (..., k), for parameters of shape (...)."""
        return hill(dose, self.E0[..., None], self.Einf[..., None], self.k[..., None], self.log10_x50[..., None])


def hill(dose: Any, e0: Any, einf: Any, k: Any, log10_x50: Any) -> np.ndarray:
    r"""Hill curve :math:`E_0 + (E_\infty - E_0) / (1 + e^{-k (\log_{10} z - x_{50})})`, inputs broadcast.

    Examples
    --------
    >>> float(hill(1.0, 0.0, 1.0, 2.0, 0.0))
    0.5
    """
    return e0 + (einf - e0) * _sigmoid(k * (np.log10(dose) - log10_x50))


def _sigmoid(t: np.ndarray) -> np.ndarray:
    return 0.5 * (1.0 + np.tanh(0.5 * t))  # no overflow at either end


def fit_hill(dose: Any, effect: Any, n_params: int = 4, mask: Any = None, weights: Any = None) -> HillFit:
    r"""Fit 2-, 3- or 4-parameter Hill curves to all rows at once.

    .. math:: \min \sum_k w_k \Big(y_k - E_0 - \frac{E_\infty - E_0}{1 + e^{-k(x_k - x_{50})}}\Big)^2,\quad
              x = \log_{10} z

    Parameters
    ----------
    dose : array, shape (m,) or (n, m)
        Doses in uM, > 0; one row for all curves or one per curve.
    effect : array, shape (m,) or (n, m)
        Inhibition.
    n_params : {2, 3, 4}, default 4
        2: E0 = 0, Einf = 1. 3: E0 = 0. 4: all free.
    mask : bool array like `effect`, optional
        Points to use; default: where dose and effect are numbers.
    weights : array like `effect`, optional
        Non-negative weights of the squared residuals.

    Returns
    -------
    HillFit
        Arrays of shape () or (n,); NaN for rows without a point.

    Raises
    ------
    InputError
        for another `n_params`, shapes that do not fit, or a used dose that is not positive.

    Notes
    -----
    1. Bounds: k in [0.1, 20], x50 within two decades of the doses of the curve, Einf in [-1, 2.5], E0 in [-2.5, 1].
    2. Starts: given (k, x50) the plateaus are a linear problem, so all shapes of a 6 x 15 grid are scored in closed form
       and the best of each of three slope classes is refined (deviates from four fixed starts: fewer iterations
       and, on real screens, a lower SSE).
    3. Projected Levenberg-Marquardt with the analytic Jacobian, at most 60 iterations, damping / 3 on success and x 4
       on failure; a parameter pinned at a bound with an outward gradient is frozen for the step. Finished curves leave
       the batch.

    Examples
    --------
    >>> import numpy as np
    >>> from assay.bio.dose_response import fit_hill
    >>> z = np.logspace(-3, 1, 9)
    >>> fit = fit_hill(z, 0.8 / (1 + np.exp(-3 * (np.log10(z) + 1))), n_params=3)
    >>> round(float(fit.k), 4), round(float(fit.log10_x50), 4), round(float(fit.Einf), 4)
    (3.0, -1.0, 0.8)
    """
    if n_params not in (2, 3, 4):
        raise InputError(f"n_params must be 2, 3 or 4, got {n_params!r}.")
    effect = np.asarray(effect, float)
    single = effect.ndim == 1
    y = np.atleast_2d(effect)
    try:
        z = np.broadcast_to(np.asarray(dose, float), y.shape)
    except ValueError:
        raise InputError(f"dose {np.shape(dose)} does not fit effect {effect.shape}.") from None
    use = np.isfinite(z) & np.isfinite(y) if mask is None else np.broadcast_to(np.asarray(mask, bool), y.shape)
    if (use & ~(np.isfinite(z) & (z > 0))).any():
        raise InputError("A dose to fit is not a positive number.")
    if (use & ~np.isfinite(y)).any():
        raise InputError("An effect to fit is not a number: mask it out.")
    w = use.astype(float)
    if weights is not None:
        given = np.broadcast_to(np.asarray(weights, float), y.shape)
        if not (np.isfinite(given[use]).all() and (given[use] >= 0).all()):
            raise InputError("weights must be non-negative numbers.")
        w = w * np.where(use, given, 0.0)
    x = np.log10(np.where(use, z, 1.0))
    n, points = len(y), use.sum(1)
    out = {name: np.full(n, np.nan) for name in ("E0", "Einf", "k", "log10_x50", "sse")}
    converged = np.zeros(n, bool)
    rows = np.flatnonzero(points > 0)
    if len(rows):
        theta, sse, done = _fit(x[rows], np.where(use, y, 0.0)[rows], w[rows], use[rows], n_params)
        for i, name in enumerate(("E0", "Einf", "k", "log10_x50")):
            out[name][rows] = theta[:, i]
        out["sse"][rows], converged[rows] = sse, done
    arrays: dict[str, Any] = {**out, "n_points": points, "converged": converged}
    if single:
        arrays = {name: value[0] for name, value in arrays.items()}
    return HillFit(**arrays)


def _fit(x: np.ndarray, y: np.ndarray, w: np.ndarray, use: np.ndarray, n_params: int) -> tuple[np.ndarray, ...]:
    n = len(x)
    low_x, high_x = np.where(use, x, np.inf).min(1), np.where(use, x, -np.inf).max(1)
    lower = np.empty((4, n))
    upper = np.empty((4, n))
    lower[0], upper[0] = _E0_BOUNDS
    lower[1], upper[1] = _EINF_BOUNDS
    lower[2], upper[2] = _K_BOUNDS
    lower[3], upper[3] = low_x - _X50_MARGIN, high_x + _X50_MARGIN
    starts = _starts(x, y, w, low_x, high_x, lower, upper, n_params)  # (n_starts, 4, n)
    n_starts = len(starts)
    theta = np.concatenate(list(starts), axis=1)
    which = np.tile(np.arange(n), n_starts)
    theta, sse, done = _refine(theta, x[which], y[which], w[which], lower[:, which], upper[:, which], n_params)
    best = sse.reshape(n_starts, n).argmin(0) * n + np.arange(n)
    return theta[:, best].T, sse[best], done[best]


def _starts(
    x: np.ndarray,
    y: np.ndarray,
    w: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    n_params: int,
) -> np.ndarray:
    """Best grid shape in each of three slope classes, with its closed-form plateaus: (3, 4, n)."""
    n = len(x)
    n_k = len(_GRID_K)
    # One decade outside the doses on either side: curves whose half-effect dose was not reached.
    fraction = np.linspace(0.0, 1.0, _GRID_X)
    centre = (low - 1.0)[:, None] + (high - low + 2.0)[:, None] * fraction
    score = np.empty((n, n_k, _GRID_X))
    plateau = np.zeros((2, n, n_k, _GRID_X))
    chunk = max(1, 2_000_000 // (n_k * _GRID_X * x.shape[1]))  # about 16 MB per temporary
    for at in range(0, n, chunk):
        part = slice(at, at + chunk)
        t = x[part, None, :] - centre[part, :, None]
        s = _sigmoid(_GRID_K[None, :, None, None] * t[:, None])
        ww, yy = w[part, None, None, :], y[part, None, None, :]
        if n_params == 2:
            e0, einf = np.zeros(s.shape[:3]), np.ones(s.shape[:3])
        else:
            ws = ww * s
            ss, sy = (ws * s).sum(-1), (ws * yy).sum(-1)
            if n_params == 3:
                e0 = np.zeros_like(ss)
                einf = sy / np.maximum(ss, 1e-12)
            else:
                s1, s0, y1 = ws.sum(-1), ww.sum(-1), (ww * yy).sum(-1)
                # Ridge of 1e-9: shapes that are flat over the doses have no second plateau.
                det = s0 * ss - s1 * s1 + 1e-9
                span = (s0 * sy - s1 * y1) / det
                e0 = np.clip((y1 - span * s1) / np.maximum(s0, 1e-12), *_E0_BOUNDS)
                einf = e0 + span
            einf = np.clip(einf, *_EINF_BOUNDS)
        r = yy - e0[..., None] - (einf - e0)[..., None] * s
        score[part] = (ww * r * r).sum(-1)
        plateau[0, part], plateau[1, part] = e0, einf
    out = np.empty((3, 4, n))
    index = np.arange(n)
    for i, group in enumerate(np.array_split(np.arange(n_k), 3)):
        best = score[:, group].reshape(n, -1).argmin(1)
        k_at, x_at = group[best // _GRID_X], best % _GRID_X
        out[i, 0], out[i, 1] = plateau[0, index, k_at, x_at], plateau[1, index, k_at, x_at]
        out[i, 2], out[i, 3] = _GRID_K[k_at], centre[index, x_at]
    return np.clip(out, lower, upper)


def _refine(
    theta: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    w: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    n_params: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Projected Levenberg-Marquardt on columns of `theta` (E0, Einf, k, x50); structure of arrays throughout."""
    free = {2: [2, 3], 3: [1, 2, 3], 4: [0, 1, 2, 3]}[n_params]
    final_theta = theta.copy()
    final_sse = np.empty(theta.shape[1])
    final_done = np.zeros(theta.shape[1], bool)
    index = np.arange(theta.shape[1])
    x, y, w = np.ascontiguousarray(x.T), np.ascontiguousarray(y.T), np.ascontiguousarray(w.T)
    damping = np.full(theta.shape[1], 1e-2)
    s = _sigmoid(theta[2] * (x - theta[3]))
    r = y - theta[0] - (theta[1] - theta[0]) * s
    sse = (w * r * r).sum(0)
    scale = (w * y * y).sum(0) + 1e-30
    for _ in range(_MAX_ITER):
        slope = (theta[1] - theta[0]) * s * (1.0 - s)
        jacobian = {0: 1.0 - s, 1: s, 2: slope * (x - theta[3]), 3: -slope * theta[2]}
        wr = w * r
        gradient = [(jacobian[p] * wr).sum(0) for p in free]
        weighted = [w * jacobian[p] for p in free]
        normal = [
            [(weighted[i] * jacobian[free[j]]).sum(0) if j <= i else None for j in range(len(free))]
            for i in range(len(free))
        ]
        pinned = [
            ((theta[p] <= lower[p]) & (g < 0)) | ((theta[p] >= upper[p]) & (g > 0))
            for p, g in zip(free, gradient, strict=True)
        ]
        step = _solve(normal, gradient, pinned, damping)
        trial = theta.copy()
        for p, delta in zip(free, step, strict=True):
            trial[p] = np.clip(theta[p] + delta, lower[p], upper[p])
        trial_s = _sigmoid(trial[2] * (x - trial[3]))
        trial_r = y - trial[0] - (trial[1] - trial[0]) * trial_s
        trial_sse = (w * trial_r * trial_r).sum(0)
        better = trial_sse < sse
        gain = sse - trial_sse
        theta = np.where(better, trial, theta)
        s, r = np.where(better, trial_s, s), np.where(better, trial_r, r)
        # Finished: an accepted step that gains nothing, or damping so large that no step can.
        done = (better & (gain <= _SSE_TOL * sse)) | (sse <= 1e-20 * scale) | (~better & (damping > 1e6))
        sse = np.where(better, trial_sse, sse)
        damping = np.where(better, damping / 3.0, damping * 4.0)
        np.clip(damping, 1e-12, 1e8, out=damping)
        if done.any():
            final_theta[:, index[done]], final_sse[index[done]], final_done[index[done]] = (
                theta[:, done],
                sse[done],
                True,
            )
            keep = ~done
            if not keep.any():
                return final_theta, final_sse, final_done
            # Compacting copies everything, so wait until it saves an eighth of the work.
            x, y, w, s, r = x[:, keep], y[:, keep], w[:, keep], s[:, keep], r[:, keep]
            theta, lower, upper = theta[:, keep], lower[:, keep], upper[:, keep]
            damping, sse, scale, index = damping[keep], sse[keep], scale[keep], index[keep]
    final_theta[:, index], final_sse[index] = theta, sse
    return final_theta, final_sse, final_done


def _solve(normal: list, gradient: list, pinned: list, damping: np.ndarray) -> list[np.ndarray]:
    """Damped normal equations of all curves by an unrolled LDL' decomposition; pinned parameters do not move."""
    p = len(gradient)
    a: list[list[Any]] = [[None] * p for _ in range(p)]
    b: list[Any] = [np.where(pinned[i], 0.0, gradient[i]) for i in range(p)]
    for i in range(p):
        for j in range(i):
            a[i][j] = np.where(pinned[i] | pinned[j], 0.0, normal[i][j])
        # Marquardt scaling; the constant keeps flat directions (an x50 far outside the doses) solvable.
        a[i][i] = np.where(pinned[i], 1.0, normal[i][i] * (1.0 + damping) + 1e-9 * (1.0 + damping))
    for j in range(p):
        for k in range(j):
            a[j][j] = a[j][j] - a[j][k] * a[j][k] * a[k][k]
        a[j][j] = np.maximum(a[j][j], 1e-14)
        for i in range(j + 1, p):
            for k in range(j):
                a[i][j] = a[i][j] - a[i][k] * a[j][k] * a[k][k]
            a[i][j] = a[i][j] / a[j][j]
    for i in range(p):
        for k in range(i):
            b[i] = b[i] - a[i][k] * b[k]
    for i in range(p):
        b[i] = b[i] / a[i][i]
    for i in reversed(range(p)):
        for k in range(i + 1, p):
            b[i] = b[i] - a[k][i] * b[k]
    return b


class HillModel(BaseEstimator):
    r"""One Hill curve per (drug, line) pair, as every fitting programme does.

    .. math:: \hat E(z) = E_0 + (E_\infty - E_0) / (1 + e^{-k(\log_{10} z - x_{50})})

    Parameters
    ----------
    n_params : {2, 3, 4}, default 4
        2: E0 = 0 and Einf = 1; 3: E0 = 0; 4: all free.

    Attributes
    ----------
    params_ : DataFrame
        drug, cell, E0, Einf, k, log10_x50, sse, one row per curve with training points.

    Notes
    -----
    1. Knows nothing beyond its own curve: pairs without training points cannot be predicted (InputError).
    2. ``return_std=True`` is the delta method with the curve's own residual variance and the Jacobian at the optimum;
       it includes the noise of one observation. Curves with no more points than parameters use the pooled variance.

    Examples
    --------
    >>> from assay.bio.dose_response import HillModel, datasets
    >>> data = datasets.load_sarcoma(n_drugs=3)
    >>> model = HillModel(n_params=2).fit(data)
    >>> model.predict(data.drugs[0], data.cells[0], [0.01, 10.0]).shape
    (2,)
    """

    def __init__(self, n_params: int = 4):
        self.n_params = n_params

    def fit(self, data: DoseResponseData, train_mask: Any = None) -> HillModel:
        """Fit every curve that has training points."""
        mask = training_mask(data, train_mask)
        fit = fit_hill(data.dose, data.effect, self.n_params, mask)
        self.data_, self.fit_, self.train_mask_ = data, fit, mask
        freedom = np.maximum(fit.n_points - self.n_params, 0)
        pooled = np.nansum(fit.sse) / max(freedom.sum(), 1)
        # A curve's own variance counts as its degrees of freedom, the pooled one as four: steadies short curves.
        self.noise_ = (np.nan_to_num(fit.sse) + 4.0 * pooled) / (freedom + 4.0)
        jacobian = self._jacobian(np.where(mask, data.dose, 1.0), np.arange(data.n_curves)) * mask[..., None]
        information = np.einsum("nmi,nmj->nij", jacobian, jacobian)
        # 1e-8: directions the doses do not see get a huge but finite variance.
        information += 1e-8 * np.eye(information.shape[1])
        self._covariance = np.linalg.inv(np.nan_to_num(information, nan=1.0)) * self.noise_[:, None, None]
        return self

    @property
    def params_(self) -> pd.DataFrame:
        """Parameters of every curve with training points: drug, cell, E0, Einf, k, log10_x50, sse."""
        import pandas as pd

        check_is_fitted(self, "data_")
        fit, data = self.fit_, self.data_
        frame = pd.DataFrame(
            {
                "drug": data.drugs[data.drug_index],
                "cell": data.cells[data.cell_index],
                "E0": fit.E0,
                "Einf": fit.Einf,
                "k": fit.k,
                "log10_x50": fit.log10_x50,
                "sse": fit.sse,
            }
        )
        return frame[fit.n_points > 0].reset_index(drop=True)

    def _jacobian(self, dose: np.ndarray, curve: np.ndarray) -> np.ndarray:
        f = self.fit_
        e0, einf, k, x50 = (v[curve][..., None] for v in (f.E0, f.Einf, f.k, f.log10_x50))
        t = np.log10(dose) - x50
        s = _sigmoid(k * t)
        slope = (einf - e0) * s * (1 - s)
        columns = [1 - s, s, slope * t, -slope * k][4 - self.n_params if self.n_params < 4 else 0 :]
        return np.stack(columns, -1)

    def predict(self, drug: Any, cell: Any, dose: Any, return_std: bool = False) -> Any:
        """Inhibition at `dose` (uM); names broadcast against dose."""
        check_is_fitted(self, "data_")
        drug, cell, z = broadcast_query(drug, cell, dose)
        curve = self.data_.find(drug, cell)
        unknown = (curve < 0) | (self.fit_.n_points[curve] == 0)
        if unknown.any():
            at = tuple(np.argwhere(unknown)[0])
            raise InputError(
                f"HillModel has no training points for {drug[at]} on {cell[at]}: a Hill fit needs the pair's own "
                "measurements."
            )
        f = self.fit_
        mean = hill(z, f.E0[curve], f.Einf[curve], f.k[curve], f.log10_x50[curve])
        if not return_std:
            return mean
        flat = curve.ravel()
        j = self._jacobian(z.reshape(-1, 1), flat)[:, 0]
        variance = np.einsum("ni,nij,nj->n", j, self._covariance[flat], j) + self.noise_[flat]
        return mean, np.sqrt(variance).reshape(z.shape)

    def score(self, data: DoseResponseData, mask: Any = None) -> float:
        """Minus the mean squared error over the points of `mask`."""
        return score(self, data, mask)


def predict_data(model: Any, data: DoseResponseData, mask: Any = None, return_std: bool = False) -> Any:
    """Predictions at the measured points of `data` as (n_curves, m) arrays, NaN elsewhere."""
    mask = data.mask if mask is None else np.asarray(mask, bool)
    row, column = np.nonzero(mask)
    found = model.predict(
        data.drugs[data.drug_index[row]],
        data.cells[data.cell_index[row]],
        data.dose[row, column],
        **({"return_std": True} if return_std else {}),
    )
    outputs = []
    for values in found if return_std else (found,):
        full = np.full(data.mask.shape, np.nan)
        full[row, column] = values
        outputs.append(full)
    return tuple(outputs) if return_std else outputs[0]


def score(model: Any, data: DoseResponseData, mask: Any = None) -> float:
    """Minus the mean squared error of a fitted model over the points of `mask`."""
    mask = data.mask if mask is None else np.asarray(mask, bool) & data.mask
    return -float(((predict_data(model, data, mask) - data.effect)[mask] ** 2).mean())


class MixedEffectsHill(BaseEstimator):
    r"""Two-parameter Hill curves whose slope and half-effect dose share drug and line effects.

    .. math:: E_{ij}(x) = \sigma\big((k_i + \delta_c)(x - a_i - b_c - e_{ic})\big),\quad
              k_i \sim \mathcal N(\bar k, v_k),\ \delta_c, b_c, e_{ic} \sim \mathcal N(0, \cdot),\
              a_i \sim \mathcal N(\bar a, v_a)

    Parameters
    ----------
    n_iter : int, default 40
        Alternating ridge steps.

    Notes
    -----
    1. Each step is a penalised Gauss-Newton step of one block (drugs, lines, pairs) with the others fixed; variances are
       the mean squared effect plus its posterior variance (EM), the noise the mean squared residual.
    2. An unseen line has b_c = delta_c = e = 0, an unseen pair e = 0; an unseen drug is an error.

    Examples
    --------
    >>> from assay.bio.dose_response import MixedEffectsHill, datasets
    >>> data = datasets.load_sarcoma(n_drugs=4)
    >>> model = MixedEffectsHill().fit(data)
    >>> model.predict(data.drugs[0], "a line never seen", [0.1]).shape
    (1,)
    """

    def __init__(self, n_iter: int = 40):
        self.n_iter = n_iter

    def fit(self, data: DoseResponseData, train_mask: Any = None) -> MixedEffectsHill:
        """Fit all curves jointly."""
        mask = training_mask(data, train_mask)
        x = np.where(mask, np.log10(np.where(mask, data.dose, 1.0)), 0.0)
        y, w = np.where(mask, data.effect, 0.0), mask.astype(float)
        d, c = data.drug_index, data.cell_index
        n_d, n_c, n = len(data.drugs), len(data.cells), data.n_curves
        seen = mask.any(1)
        start = fit_hill(data.dose, data.effect, 2, mask)
        k0, x0 = np.nanmedian(start.k), np.nanmedian(start.log10_x50)
        drug = np.column_stack([np.full(n_d, k0), np.full(n_d, x0)])
        for i in range(n_d):
            rows = (d == i) & seen
            if rows.any():
                drug[i] = np.median(start.k[rows]), np.median(start.log10_x50[rows])
        cell, pair = np.zeros((n_c, 2)), np.zeros(n)
        var: dict[str, Any] = {"drug": np.array([1.0, 1.0]), "cell": np.array([0.1, 0.1]), "pair": 0.1}
        mean, noise = np.array([k0, x0]), 0.01

        def parts() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            k = np.clip(drug[d, 0] + cell[c, 0], *_K_BOUNDS)[:, None]
            x50 = (drug[d, 1] + cell[c, 1] + pair)[:, None]
            s = _sigmoid(k * (x - x50))
            slope = s * (1 - s)
            r = w * (y - s)
            j = np.stack([slope * (x - x50), -slope * k], -1) * w[..., None]
            return np.einsum("nmi,nm->ni", j, r), np.einsum("nmi,nmj->nij", j, j), (r * r).sum(1)

        def block(
            group: np.ndarray, size: int, effect: np.ndarray, centre: np.ndarray, v: np.ndarray
        ) -> tuple[np.ndarray, np.ndarray]:
            g, h, _ = parts()
            gradient, hessian = np.zeros((size, 2)), np.zeros((size, 2, 2))
            np.add.at(gradient, group, g)
            np.add.at(hessian, group, h)
            precision = np.diag(noise / v)
            hessian = hessian + precision
            step = np.linalg.solve(hessian, (gradient - (effect - centre) @ precision)[..., None])[..., 0]
            # A Gauss-Newton step of a sigmoid can overshoot: one unit of slope or half a decade is enough per round.
            return np.clip(step, [-1.0, -0.5], [1.0, 0.5]), noise * np.linalg.inv(hessian)

        for _ in range(self.n_iter):
            step, spread = block(d, n_d, drug, mean, var["drug"])
            drug = drug + step
            drug[:, 0] = np.clip(drug[:, 0], *_K_BOUNDS)
            mean = drug.mean(0)
            # 1e-6: a variance that reaches zero could never leave it.
            var["drug"] = np.maximum(((drug - mean) ** 2 + np.diagonal(spread, 0, 1, 2)).mean(0), 1e-6)
            step, spread = block(c, n_c, cell, np.zeros(2), var["cell"])
            cell = cell + step
            var["cell"] = np.maximum((cell**2 + np.diagonal(spread, 0, 1, 2)).mean(0), 1e-6)
            g, h, _ = parts()
            curvature = h[:, 1, 1] + noise / var["pair"]
            pair = pair + np.clip((g[:, 1] - pair * noise / var["pair"]) / curvature, -0.5, 0.5)
            var["pair"] = max(float((pair**2 + noise / curvature)[seen].mean()), 1e-6)
            noise = max(float(parts()[2].sum() / mask.sum()), 1e-8)
        self.data_, self.drug_effects_, self.cell_effects_, self.pair_effects_ = data, drug, cell, pair
        self.variances_, self.noise_ = {**var, "mean": mean}, noise
        self._drug_seen = np.isin(np.arange(n_d), d[seen])
        self._cell_seen = np.isin(np.arange(n_c), c[seen])
        return self

    def predict(self, drug: Any, cell: Any, dose: Any, return_std: bool = False) -> Any:
        """Inhibition at `dose` (uM); names broadcast against dose."""
        check_is_fitted(self, "data_")
        drug, cell, z = broadcast_query(drug, cell, dose)
        d, c, j = self.data_.find_drug(drug), self.data_.find_cell(cell), self.data_.find(drug, cell)
        unknown = (d < 0) | ~self._drug_seen[d]
        if unknown.any():
            raise InputError(f"MixedEffectsHill has no measurements of drug {drug[unknown].flat[0]}.")
        known_cell = ((c >= 0) & self._cell_seen[c])[..., None]
        effect = self.drug_effects_[d] + np.where(known_cell, self.cell_effects_[c], 0.0)
        k = np.clip(effect[..., 0], *_K_BOUNDS)
        x50 = effect[..., 1] + np.where(j >= 0, self.pair_effects_[j], 0.0)
        s = _sigmoid(k * (np.log10(z) - x50))
        if not return_std:
            return s
        # Deviation of a new observation: noise plus the prior of what is unknown about the pair.
        extra = np.where(j >= 0, 0.0, self.variances_["pair"])
        extra = extra + np.where(known_cell[..., 0], 0.0, self.variances_["cell"][1])
        return s, np.sqrt(self.noise_ + (s * (1 - s) * k) ** 2 * extra)

    def score(self, data: DoseResponseData, mask: Any = None) -> float:
        """Minus the mean squared error over the points of `mask`."""
        return score(self, data, mask)
