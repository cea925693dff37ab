"""Gaussian processes over what a model leaves: per curve, or shared by the drugs of a line."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from assay._core.errors import InputError

from ._data import DoseResponseData

# a, l (decades), c, s2: the size of residuals of a fitted screen.
_START = (0.01, 1.0, 0.001, 0.01)
# Second start, tried only where the first one ends with a process below this share of the noise: short-range structure.
_SHORT = (0.003, 0.3, 0.001, 0.001)
_NO_PROCESS = 0.1
# Nats per point by which the second must win: above the search's own tolerance, so that a tie keeps the first.
_BETTER = 1e-4
# Decades of dose; variances of effects. Wide enough never to bind on real screens, narrow enough to stay invertible.
_LOWER = np.log([1e-8, 0.05, 1e-10, 1e-8])
_UPPER = np.log([10.0, 50.0, 10.0, 10.0])
_CHUNK = 65536  # query points per block: keeps the (points x doses x doses) work below some 100 MB


def matern52(distance: np.ndarray) -> np.ndarray:
    """Matern-5/2 correlation at a scaled distance."""
    r = np.sqrt(5.0) * np.abs(distance)
    return (1.0 + r + r * r / 3.0) * np.exp(-r)


class ResidualGP:
    r"""Zero-mean GP over log dose on each curve's residuals, hyper-parameters shared by all curves.

    .. math:: k(x, x') = a\,\mathrm{Matern}_{5/2}(|x - x'|/\ell) + c,\qquad x = \log_{10} z,\qquad
              r = y - \hat E \sim \mathcal N(0, K + \sigma^2 I)

    Parameters
    ----------
    random_state : ignored
        The fit has no randomness; accepted so that all models are built alike.

    Attributes
    ----------
    amplitude_, length_scale_, offset_, noise_ : float
        a, l (decades), c and sigma^2 (variance of one observation).
    log_marginal_likelihood_ : float

    Notes
    -----
    1. The likelihood needs only the second-moment matrix of each dose pattern, so an evaluation costs one small
       Cholesky per pattern, however many curves there are.
    2. Hyper-parameters by Nelder-Mead on logs from (.01, 1, .001, .01), at most 300 evaluations. What a network leaves
       may be anticorrelated over a decade; the likelihood then has two optima, one of them white noise without a process.
       If the search ends there it starts again from (.003, .3, .001, .001), and the likelier of the two ends is taken.
    3. A pair without observations (curve -1) gets no correction and the prior's deviation.

    Examples
    --------
    >>> from assay.bio.dose_response import datasets
    >>> from assay.bio.dose_response._residual import ResidualGP
    >>> data = datasets.load_sarcoma(n_drugs=3)
    >>> gp = ResidualGP().fit(data, data.effect - 0.1, data.mask)
    >>> mean, std = gp.predict(0, data.dose[0])
    >>> mean.shape, bool((std > 0).all())
    ((11,), True)
    """

    def __init__(self, random_state: Any = None):
        self.random_state = random_state

    def fit(
        self,
        data: DoseResponseData,
        residual: np.ndarray,
        mask: np.ndarray,
        *,
        hyper: tuple[float, float, float, float] | None = None,
        noise_floor: float = 0.0,
    ) -> ResidualGP:
        """Learn the hyper-parameters (or take `hyper` = a, l, c, s2) and condition every curve on its residuals.

        Shapes: `residual` and `mask` (n_curves, m) as in `data`. `noise_floor` is the known variance of one value (of
        its replicates): the search for a short-range process, which can explain noise too, stays above it.
        """
        mask = np.asarray(mask, bool) & data.mask
        if not mask.any():
            raise InputError("The residual GP needs at least one observed point.")
        self._condition(data.log_dose, np.asarray(residual, float), mask, hyper, noise_floor)
        return self

    def _condition(
        self, x: np.ndarray, residual: np.ndarray, mask: np.ndarray, hyper: Any, noise_floor: float = 0.0
    ) -> None:
        self.x_ = np.where(mask, x, 0.0)
        self.mask_ = mask
        self.residual_ = np.where(mask, residual, 0.0)
        if not np.isfinite(self.residual_).all():
            raise InputError("A residual is not a number: the model under the GP predicted NaN.")
        # Points that agree to 1e-9 decades are one dose pattern.
        keys = np.where(mask, np.round(x, 9), np.inf)
        _, first, self.pattern_ = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        self.pattern_ = self.pattern_.ravel()
        self._px, self._pm = self.x_[first], mask[first]
        n_patterns = len(first)
        order = np.argsort(self.pattern_, kind="stable")
        starts = np.searchsorted(self.pattern_[order], np.arange(n_patterns))
        outer = self.residual_[order][:, :, None] * self.residual_[order][:, None, :]
        self._moment = np.add.reduceat(outer, starts, axis=0)
        self._count = np.bincount(self.pattern_, minlength=n_patterns)
        if hyper is None:
            logs, worse = self._search(_START)
            if np.exp(logs[0]) + np.exp(logs[2]) < _NO_PROCESS * np.exp(logs[3]):
                again, value = self._search(_SHORT, noise_floor)
                if value < worse - _BETTER:
                    logs = again
        else:
            logs = np.log(np.asarray(hyper, float))
        self.amplitude_, self.length_scale_, self.offset_, self.noise_ = (float(v) for v in np.exp(logs))
        self.log_marginal_likelihood_ = self._log_likelihood(logs)
        self._inverse = np.linalg.inv(self._covariance(logs))
        # Padding has unit variance and zero residual: its weight is exactly zero.
        self._alpha = np.einsum("nij,nj->ni", self._inverse[self.pattern_], self.residual_)

    def _search(self, start: tuple[float, ...], noise_floor: float = 0.0) -> tuple[np.ndarray, float]:
        """Likeliest logs of the hyper-parameters near a start, and minus the log likelihood per point there."""
        n_points = max(int(self._pm.sum(1) @ self._count), 1)
        first, lower = np.log(start), _LOWER.copy()
        lower[3] = np.log(max(np.exp(lower[3]), noise_floor))
        found = minimize(
            lambda logs: -self._log_likelihood(np.clip(logs, lower, _UPPER)) / n_points,
            first,
            method="Nelder-Mead",
            options={
                "maxfev": 300,
                # Per-point nats and log units: both far below what moves a prediction.
                "xatol": 1e-2,
                "fatol": 1e-6,
                # scipy's own first simplex moves a coordinate that is 0 (log of a length of 1) by 0.00025 only.
                "initial_simplex": np.vstack([first, first + 0.7 * np.eye(4)]),
            },
        )
        return np.clip(found.x, lower, _UPPER), float(found.fun)

    def _covariance(self, logs: np.ndarray) -> np.ndarray:
        a, length, c, s2 = np.exp(logs)
        difference = self._px[:, :, None] - self._px[:, None, :]
        both = self._pm[:, :, None] & self._pm[:, None, :]
        k = np.where(both, a * matern52(difference / length) + c, 0.0)
        diagonal = np.where(self._pm, s2, 1.0)
        k[:, np.arange(k.shape[1]), np.arange(k.shape[1])] += diagonal
        return k

    def _log_likelihood(self, logs: np.ndarray) -> float:
        k = self._covariance(logs)
        sign, logdet = np.linalg.slogdet(k)
        if not (sign > 0).all():
            return -1e300  # not positive definite at these values: the search turns back
        fit = np.einsum("pij,pij->p", np.linalg.inv(k), self._moment)
        points = self._pm.sum(1)
        return float(-0.5 * (fit + self._count * (logdet + points * np.log(2 * np.pi))).sum())

    def _kernel(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return self.amplitude_ * matern52((x - y) / self.length_scale_) + self.offset_

    def predict(self, curve: Any, dose: Any, *, include_noise: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and standard deviation of the residual.

        Parameters
        ----------
        curve : int or int array
            Curve numbers, broadcast with `dose`; -1 for a pair that was not measured (mean 0).
        dose : float array, uM
        include_noise : bool, default True
            True: deviation of a new observation (what an interval for a measured point needs).
            False: of the curve itself (for IC50 or AAC uncertainty).

        Returns
        -------
        mean, std : ndarray, broadcast shape
        """
        curve, dose = np.broadcast_arrays(np.asarray(curve, int), np.asarray(dose, float))
        flat_curve, x = curve.ravel(), np.log10(dose.ravel())
        mean, variance = np.zeros(len(x)), np.zeros(len(x))
        prior = self.amplitude_ + self.offset_
        for at in range(0, len(x), _CHUNK):
            part = slice(at, at + _CHUNK)
            j = np.maximum(flat_curve[part], 0)
            seen = (flat_curve[part] >= 0)[:, None] & self.mask_[j]
            k = np.where(seen, self._kernel(x[part, None], self.x_[j]), 0.0)
            mean[part] = (k * self._alpha[j]).sum(1)
            variance[part] = prior - np.einsum("ni,nij,nj->n", k, self._inverse[self.pattern_[j]], k)
        variance = np.maximum(variance, 0.0) + (self.noise_ if include_noise else 0.0)
        return mean.reshape(dose.shape), np.sqrt(variance).reshape(dose.shape)

    def posterior(self, curve: int, dose: Any) -> tuple[np.ndarray, np.ndarray]:
        """Joint posterior of one curve's residual: mean (k,) and covariance (k, k) without observation noise."""
        x = np.log10(np.asarray(dose, float))
        prior = self._kernel(x[:, None], x[None, :])
        if curve < 0:
            return np.zeros(len(x)), prior
        k = np.where(self.mask_[curve], self._kernel(x[:, None], self.x_[curve]), 0.0)
        inverse = self._inverse[self.pattern_[curve]]
        return k @ self._alpha[curve], prior - k @ inverse @ k.T

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything needed to rebuild the fitted GP, as plain arrays."""
        return {
            "hyper": np.array([self.amplitude_, self.length_scale_, self.offset_, self.noise_]),
            "x": self.x_,
            "mask": self.mask_.astype(np.uint8),
            "residual": self.residual_,
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, Any]) -> ResidualGP:
        """Rebuild from :meth:`to_arrays`."""
        gp = cls()
        gp._condition(
            np.asarray(arrays["x"], float),
            np.asarray(arrays["residual"], float),
            np.asarray(arrays["mask"]).astype(bool),
            tuple(np.asarray(arrays["hyper"], float)),
        )
        return gp


class CoregionalGP:
    r"""GP over (drug, dose) within a line: residuals of one drug inform those of the others.

    .. math:: \mathrm{cov}[r_{d}(x), r_{d'}(x')] = K_D[d, d']\,\rho(x, x') + \sigma^2 1\{d = d', x = x'\}

    Parameters
    ----------
    shrinkage : float, default 0.9, range [0, 1]
        Factor on the off-diagonal of the estimated drug covariance.

    Notes
    -----
    1. rho is the normalised kernel and sigma^2 the noise of a :class:`ResidualGP` fitted first.
    2. K_D is the least-squares moment estimate pooled over lines and dose pairs, so that drugs with different dose grids
       share information too; it is projected on the positive semi-definite cone.
    3. Lines are independent. A line without observations gets no correction.

    Examples
    --------
    >>> from assay.bio.dose_response import CoregionalGP, datasets
    >>> data = datasets.load_sarcoma(n_drugs=3)
    >>> gp = CoregionalGP().fit(data, data.effect - 0.1, data.mask)
    >>> gp.predict([0, 1], 2, 0.5).shape
    (2,)
    """

    def __init__(self, shrinkage: float = 0.9):
        self.shrinkage = shrinkage

    def fit(self, data: DoseResponseData, residual: np.ndarray, mask: np.ndarray) -> CoregionalGP:
        """Estimate K_D, rho and sigma^2; Shapes as :meth:`ResidualGP.fit`."""
        mask = np.asarray(mask, bool) & data.mask
        base = ResidualGP().fit(data, residual, mask)
        self.noise_, self.length_scale_ = base.noise_, base.length_scale_
        total = base.amplitude_ + base.offset_
        self._mix = base.amplitude_ / total
        n_drugs = len(data.drugs)
        log_dose = data.log_dose
        self._lines: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        top, bottom = np.zeros((n_drugs, n_drugs)), np.zeros((n_drugs, n_drugs))
        for cell in np.unique(data.cell_index):
            row, column = np.nonzero(mask & (data.cell_index == cell)[:, None])
            if not len(row):
                continue
            d, x, r = data.drug_index[row], log_dose[row, column], np.asarray(residual)[row, column]
            self._lines[int(cell)] = (d, x, r)
            rho = self._rho(x, x)
            # Rows are sorted by drug, so sums over the points of a drug pair are two reduceat calls.
            starts = np.flatnonzero(np.r_[True, np.diff(d) != 0])
            present = d[starts]
            product = np.outer(r, r) * rho
            product[np.arange(len(r)), np.arange(len(r))] -= self.noise_
            block = np.ix_(present, present)
            top[block] += np.add.reduceat(np.add.reduceat(product, starts, 0), starts, 1)
            bottom[block] += np.add.reduceat(np.add.reduceat(rho * rho, starts, 0), starts, 1)
        k = np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1.0), 0.0)
        diagonal = np.maximum(np.diag(k), 1e-8)
        k = self.shrinkage * k
        k[np.arange(n_drugs), np.arange(n_drugs)] = diagonal
        values, vectors = np.linalg.eigh(0.5 * (k + k.T))
        self.drug_covariance_ = (vectors * np.maximum(values, 0.0)) @ vectors.T
        self._solved: dict[int, tuple[Any, np.ndarray]] = {}
        return self

    def _rho(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Correlation of log doses, shape (len(x), len(y)); a screen repeats few doses, so each pair is computed once."""
        (u, i), (v, j) = (np.unique(values, return_inverse=True) for values in (x, y))
        rho = self._mix * matern52((u[:, None] - v[None, :]) / self.length_scale_) + 1.0 - self._mix
        return rho[np.ix_(i, j)]

    def predict(
        self, drug_index: Any, cell_index: Any, dose: Any, *, return_std: bool = False, include_noise: bool = True
    ) -> Any:
        """Posterior mean (and deviation) at drug and line numbers broadcast with `dose`; -1 lines get 0."""
        d, c, z = np.broadcast_arrays(np.asarray(drug_index, int), np.asarray(cell_index, int), np.asarray(dose, float))
        flat_d, flat_c, x = d.ravel(), c.ravel(), np.log10(z.ravel())
        mean = np.zeros(len(x))
        variance = self.drug_covariance_[flat_d, flat_d].copy()
        for cell in np.unique(flat_c):
            if int(cell) not in self._lines:
                continue
            ld, lx, lr = self._lines[int(cell)]
            if int(cell) not in self._solved:
                k = self.drug_covariance_[np.ix_(ld, ld)] * self._rho(lx, lx)
                factor = cho_factor(k + self.noise_ * np.eye(len(k)), lower=True)
                self._solved = {int(cell): (factor, cho_solve(factor, lr))}  # one line at a time: memory stays small
            factor, alpha = self._solved[int(cell)]
            at = np.flatnonzero(flat_c == cell)
            cross = self.drug_covariance_[np.ix_(flat_d[at], ld)] * self._rho(x[at], lx)
            mean[at] = cross @ alpha
            if return_std:
                variance[at] -= np.einsum("ij,ji->i", cross, cho_solve(factor, cross.T))
        if not return_std:
            return mean.reshape(z.shape)
        variance = np.maximum(variance, 0.0) + (self.noise_ if include_noise else 0.0)
        return mean.reshape(z.shape), np.sqrt(variance).reshape(z.shape)
