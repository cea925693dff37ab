"""Baselines that a network has to beat: the drug's mean curve, expression ridge, a functional forest, interpolation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.interpolate import PchipInterpolator
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from assay._core.errors import InputError
from assay._core.seeds import as_rng, derive

from ._data import DoseResponseData, _names, broadcast_query, training_mask
from ._hill import predict_data, score
from ._residual import CoregionalGP, ResidualGP

if TYPE_CHECKING:
    import pandas as pd


def _mean_curve(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean of the values at each distinct log dose (agreeing to 1e-9 decades)."""
    levels, which = np.unique(np.round(x, 9), return_inverse=True)
    return levels, np.bincount(which, y) / np.bincount(which)


def _interpolate(levels: np.ndarray, values: np.ndarray, x: np.ndarray) -> np.ndarray:
    """PCHIP in log dose between the levels, constant outside; `values` (..., n_levels)."""
    x = np.clip(x, levels[0], levels[-1])
    if len(levels) == 1:
        return np.broadcast_to(values[..., :1], (*values.shape[:-1], len(x))).copy()
    return PchipInterpolator(levels, values, axis=-1)(x)


class DrugMeanCurve(BaseEstimator):
    r"""Every line responds as the drug's mean line; optionally a GP corrects measured pairs.

    .. math:: \hat E_{ij}(z) = m_i(z) + \hat r_{ij}(z)

    with :math:`m_i` the mean over the training lines at each dose, PCHIP in log dose between doses, constant outside.

    Parameters
    ----------
    residual : {None, "gp", "coregional"}, default None
        "gp": :class:`ResidualGP` on each curve's own residuals. "coregional": :class:`CoregionalGP`, in which residuals
        of one drug inform the others on the same line.

    Notes
    -----
    1. An unseen drug gets the mean over the training drugs' mean curves ("global mean curve").
    2. ``return_std`` without a GP is the deviation over the training points.

    Examples
    --------
    >>> from assay.bio.dose_response import DrugMeanCurve, datasets
    >>> data = datasets.load_sarcoma(n_drugs=3)
    >>> model = DrugMeanCurve().fit(data)
    >>> model.predict(data.drugs[1], "a new line", [0.1, 10]).shape
    (2,)
    """

    def __init__(self, residual: Literal["gp", "coregional"] | None = None):
        self.residual = residual

    def fit(self, data: DoseResponseData, train_mask: Any = None) -> DrugMeanCurve:
        """Average, then fit the GP on what is left."""
        if self.residual not in (None, "gp", "coregional"):
            raise InputError(f"residual must be None, 'gp' or 'coregional', got {self.residual!r}.")
        mask = training_mask(data, train_mask)
        log_dose = data.log_dose
        self.data_ = data
        self.curves_: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for d in range(len(data.drugs)):
            use = mask & (data.drug_index == d)[:, None]
            if use.any():
                self.curves_[d] = _mean_curve(log_dose[use], data.effect[use])
        self.grid_ = np.unique(np.concatenate([levels for levels, _ in self.curves_.values()]))
        self.global_mean_ = np.mean([_interpolate(*curve, self.grid_) for curve in self.curves_.values()], axis=0)
        self.gp_: Any = None
        fitted = self._mean(np.broadcast_to(data.drug_index[:, None], mask.shape)[mask], log_dose[mask])
        self.noise_ = float(((data.effect[mask] - fitted) ** 2).mean())
        if self.residual is not None:
            r = np.zeros(mask.shape)
            r[mask] = data.effect[mask] - fitted
            self.gp_ = (ResidualGP() if self.residual == "gp" else CoregionalGP()).fit(data, r, mask)
        return self

    def _mean(self, drug: np.ndarray, x: np.ndarray) -> np.ndarray:
        out: np.ndarray = np.empty(len(x))
        for d in np.unique(drug):
            at = drug == d
            levels, values = self.curves_.get(int(d), (self.grid_, self.global_mean_))
            out[at] = _interpolate(levels, values, x[at])
        return out

    def predict(self, drug: Any, cell: Any, dose: Any, return_std: bool = False) -> Any:
        """Inhibition at `dose` (uM); names broadcast against dose, any line and drug name is accepted."""
        check_is_fitted(self, "data_")
        drug, cell, z = broadcast_query(drug, cell, dose)
        d: Any = self.data_.find_drug(drug)
        mean = self._mean(d.ravel(), np.log10(z).ravel()).reshape(z.shape)
        std = np.full(z.shape, np.sqrt(self.noise_))
        if self.residual == "gp":
            curve = np.where(np.isin(d, list(self.curves_)), self.data_.find(drug, cell), -1)
            correction, std = self.gp_.predict(curve, z)
            mean = mean + correction
        elif self.residual == "coregional":
            known = np.isin(d, list(self.curves_))
            found = self.gp_.predict(
                np.where(known, d, 0), np.where(known, self.data_.find_cell(cell), -1), z, return_std=return_std
            )
            correction, std = found if return_std else (found, std)
            mean = mean + correction
        return (mean, std) if return_std else mean

    def score(self, data: DoseResponseData, mask: Any = None) -> float:
        """Minus the mean squared error over the points of `mask`."""
        return score(self, data, mask)


class LinearInterpolation(BaseEstimator):
    """Straight lines between a curve's own training points in log dose, constant outside.

    Examples
    --------
    >>> from assay.bio.dose_response import LinearInterpolation, datasets
    >>> data = datasets.load_sarcoma(n_drugs=2)
    >>> model = LinearInterpolation().fit(data)
    >>> bool(abs(model.predict(data.drugs[0], data.cells[0], data.dose[0, :3]) - data.effect[0, :3]).max() < 1e-12)
    True
    """

    def __init__(self) -> None:
        pass  # scikit-learn's clone reads the signature; object's own has *args

    def fit(self, data: DoseResponseData, train_mask: Any = None) -> LinearInterpolation:
        """Remember the training points."""
        self.data_, self.train_mask_ = data, training_mask(data, train_mask)
        return self

    def predict(self, drug: Any, cell: Any, dose: Any, return_std: bool = False) -> Any:
        """Inhibition at `dose` (uM); names broadcast against dose. It has no uncertainty: std is NaN."""
        check_is_fitted(self, "data_")
        drug, cell, z = broadcast_query(drug, cell, dose)
        curve = self.data_.find(drug, cell)
        unknown = (curve < 0) | ~self.train_mask_[curve].any(-1)
        if unknown.any():
            first = tuple(np.argwhere(unknown)[0])
            raise InputError(f"LinearInterpolation has no training points for {drug[first]} on {cell[first]}.")
        flat, x = curve.ravel(), np.log10(z).ravel()
        out: np.ndarray = np.empty(len(x))
        order = np.argsort(flat, kind="stable")
        log_dose = self.data_.log_dose
        for at in np.split(order, np.flatnonzero(np.diff(flat[order])) + 1):
            j = flat[at[0]] if len(at) else 0
            use = self.train_mask_[j]
            out[at] = np.interp(x[at], log_dose[j, use], self.data_.effect[j, use])
        out = out.reshape(z.shape)
        return (out, np.full(z.shape, np.nan)) if return_std else out

    def score(self, data: DoseResponseData, mask: Any = None) -> float:
        """Minus the mean squared error over the points of `mask`."""
        return score(self, data, mask)


def _fill(x: np.ndarray, y: np.ndarray, mask: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """A curve's values on a grid: its own where measured, straight lines between, constant outside."""
    return np.stack([np.interp(grid, xi[mi], yi[mi]) for xi, yi, mi in zip(x, y, mask, strict=True)])


class ExpressionRidge(BaseEstimator):
    r"""Per drug: the mean curve plus a ridge regression of each dose on the line's expression.

    .. math:: \hat E_i(c, z) = m_i(z) + k_c^\top (K + \lambda_i I)^{-1} (Y_i - m_i),\qquad K = Q Q^\top / G

    Q the z-scores of G genes over the training lines.

    Parameters
    ----------
    kernel : {"linear", "rbf"}, default "linear"
        "rbf" uses the median squared distance of the training lines as bandwidth.
    lambdas : array or None, default None
        Penalties to choose from; None: 13 log-spaced values in [0.1, 100].

    Attributes
    ----------
    lambda_ : dict
        Chosen penalty by drug name.

    Notes
    -----
    1. The penalty of a drug minimises its closed-form leave-one-line-out error over all doses. The hat diagonal contains
       the intercept, h_ii = (centred hat)_ii + 1/n: without it the smallest penalty always wins.
    2. A training curve that lacks doses of the drug's grid (held out) is filled by straight lines in log dose; between
       grid doses predictions are PCHIP, outside constant.
    3. A drug without training lines gets the global mean curve; a drug with fewer than three gets its mean.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from assay.bio.dose_response import DoseResponseData, ExpressionRidge
    >>> rng = np.random.default_rng(0)
    >>> genes = pd.DataFrame(rng.normal(size=(8, 30)), index=[f"line{i}" for i in range(8)])
    >>> table = pd.DataFrame([("a", c, z, 1 - 0.1 * z) for c in genes.index for z in (1, 2, 4, 8)],
    ...                      columns=["drug", "cell_line", "dose_uM", "viability"])
    >>> model = ExpressionRidge().fit(DoseResponseData.from_long(table, expression=genes))
    >>> model.predict("a", "line3", [2.0]).round(2).tolist()
    [0.2]
    """

    def __init__(self, kernel: Literal["linear", "rbf"] = "linear", lambdas: Any = None):
        self.kernel = kernel
        self.lambdas = lambdas

    def fit(self, data: DoseResponseData, train_mask: Any = None) -> ExpressionRidge:
        """Z-score on the training lines, choose a penalty per drug, solve."""
        if self.kernel not in ("linear", "rbf"):
            raise InputError(f"kernel must be 'linear' or 'rbf', got {self.kernel!r}.")
        if data.expression is None:
            raise InputError("ExpressionRidge needs expression: give from_long(..., expression=).")
        mask = training_mask(data, train_mask)
        lambdas = np.logspace(-1, 2, 13) if self.lambdas is None else np.asarray(self.lambdas, float)
        self.data_ = data
        self.genes_ = list(data.expression.columns)
        values = data.expression.to_numpy(float)
        seen = mask.any(1)
        lines = np.unique(data.cell_index[seen])
        centre, scale = values[lines].mean(0), values[lines].std(0)
        self._kept = scale > 0
        if not self._kept.any():
            raise InputError("ExpressionRidge needs at least two training lines with different expression.")
        self._centre, self._scale = centre[self._kept], scale[self._kept]
        self._lines = lines
        self._q = self._zscore(values[lines])
        self._bandwidth = 1.0
        if self.kernel == "rbf" and len(lines) > 1:
            squared = ((self._q[:, None] - self._q[None]) ** 2).mean(-1)
            self._bandwidth = float(np.median(squared[np.triu_indices(len(lines), 1)]))
        gram = self._gram(self._q, self._q)
        place = np.full(len(data.cells), -1)
        place[lines] = np.arange(len(lines))
        self.lambda_: dict[str, float] = {}
        self._models: dict[int, tuple[Any, ...]] = {}
        log_dose = data.log_dose
        residuals = []
        for d, name in enumerate(data.drugs):
            rows = np.flatnonzero((data.drug_index == d) & seen)
            if not len(rows):
                continue
            grid = np.unique(np.round(log_dose[rows][mask[rows]], 9))
            y = _fill(log_dose[rows], data.effect[rows], mask[rows], grid)
            own = place[data.cell_index[rows]]
            mean, n = y.mean(0), len(rows)
            if n < 3:
                self._models[d] = (grid, mean, own, np.zeros((n, len(grid))))
                continue
            k = gram[np.ix_(own, own)]
            centred = k - k.mean(0) - k.mean(1, keepdims=True) + k.mean()
            w, v = np.linalg.eigh(centred)
            w, rotated = np.maximum(w, 0.0), v.T @ (y - mean)
            loss = np.empty(len(lambdas))
            errors = []
            for i, penalty in enumerate(lambdas):
                shrink = w / (w + penalty)
                hat = (v**2 * shrink).sum(1) + 1.0 / n
                errors.append((y - mean - v @ (shrink[:, None] * rotated)) / np.maximum(1.0 - hat, 1e-6)[:, None])
                loss[i] = (errors[-1] ** 2).mean()
            best = int(loss.argmin())
            residuals.append(errors[best].ravel())
            self.lambda_[str(name)] = float(lambdas[best])
            self._models[d] = (grid, mean, own, v @ (rotated / (w + lambdas[best])[:, None]))
        # Leave-one-out errors are honest errors for a new line.
        self.noise_ = float((np.concatenate(residuals) ** 2).mean()) if residuals else np.nan
        self._gram_mean = gram
        grids = np.unique(np.concatenate([m[0] for m in self._models.values()]))
        self._global = (grids, np.mean([_interpolate(m[0], m[1], grids) for m in self._models.values()], axis=0))
        return self

    def _zscore(self, values: np.ndarray) -> np.ndarray:
        return (values[:, self._kept] - self._centre) / self._scale

    def _gram(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        product = a @ b.T / a.shape[1]
        if self.kernel == "linear":
            return product
        squared = (a**2).mean(1)[:, None] + (b**2).mean(1)[None, :] - 2.0 * product
        return np.exp(-0.5 * np.maximum(squared, 0.0) / self._bandwidth)

    def predict(
        self, drug: Any, cell: Any, dose: Any, return_std: bool = False, *, expression: pd.DataFrame | None = None
    ) -> Any:
        """Inhibition at `dose` (uM); lines must be in the data's expression or in `expression`."""
        check_is_fitted(self, "data_")
        drug, cell, z = broadcast_query(drug, cell, dose)
        names, which = np.unique(cell.ravel(), return_inverse=True)
        q = self._zscore(self._rows(names, expression))
        cross = self._gram(q, self._q)
        d, x = self.data_.find_drug(drug).ravel(), np.log10(z).ravel()
        out: np.ndarray = np.empty(len(x))
        for i in np.unique(d):
            at = np.flatnonzero(d == i)
            if int(i) not in self._models:
                out[at] = _interpolate(*self._global, x[at])
                continue
            grid, mean, own, weights = self._models[int(i)]
            lines, position = np.unique(which[at], return_inverse=True)
            k = self._gram_mean[np.ix_(own, own)]
            centred = cross[np.ix_(lines, own)]
            centred = centred - centred.mean(1, keepdims=True) - k.mean(0) + k.mean()
            curves = mean + centred @ weights
            doses, where = np.unique(x[at], return_inverse=True)
            out[at] = _interpolate(grid, curves, doses)[position, where]
        out = out.reshape(z.shape)
        return (out, np.full(z.shape, np.sqrt(self.noise_))) if return_std else out

    def _rows(self, names: np.ndarray, expression: pd.DataFrame | None) -> np.ndarray:
        return expression_rows(self.data_, self.genes_, names, expression)

    def score(self, data: DoseResponseData, mask: Any = None) -> float:
        """Minus the mean squared error over the points of `mask`."""
        return score(self, data, mask)


def expression_rows(
    data: DoseResponseData, genes: list[str], names: np.ndarray, expression: pd.DataFrame | None = None
) -> np.ndarray:
    """Expression of lines by name, from a given table or the training data, in the order of the training genes.

    Genes that a given table lacks (at most 10 %) take the mean of the training data.
    """
    if data.expression is None:
        raise InputError("The model was trained without expression.")
    table = data.expression
    if expression is not None:
        given = expression.copy()
        given.index, given.columns = given.index.map(str), given.columns.map(str)
        present = [gene for gene in genes if gene in given.columns]
        if len(present) < 0.9 * len(genes):
            raise InputError(
                f"The expression given has {len(present)} of the {len(genes)} training genes; at least 90 % are needed."
            )
        given = given.reindex(columns=genes).fillna(table[genes].mean())
        table = given
    lacking = sorted(set(names) - set(table.index))
    if lacking:
        raise InputError(f"No expression for {len(lacking)} line(s) to predict: {_names(lacking)}.")
    return table.loc[list(names), genes].to_numpy(float)


class FunctionalForest(BaseEstimator):
    """Random forest from drug and line features to the curve on the dose grid, or to its principal components.

    Parameters
    ----------
    n_components : int or None, default 4
        Functional principal components of the training curves; None: the grid itself.
    n_estimators : int, default 200
    random_state : None, int, Generator or RandomState
    n_jobs : int or None, default None

    Notes
    -----
    1. Features: Morgan fingerprint if the data has SMILES, else one-hot drug; expression if the data has it, else one-hot
       line. Minimum leaf 5, a fifth of the features per split.
    2. Needs one dose grid for all curves; training curves that lack a grid dose are filled by straight lines in log dose.
       Doses off the grid are an error: the forest has no notion of dose.

    Examples
    --------
    >>> from assay.bio.dose_response import FunctionalForest, datasets
    >>> data = datasets.load_sarcoma(n_drugs=3)
    >>> model = FunctionalForest(n_estimators=10, random_state=0).fit(data)
    >>> model.predict(data.drugs[0], data.cells[0], data.dose[0]).shape
    (11,)
    """

    def __init__(
        self,
        n_components: int | None = 4,
        n_estimators: int = 200,
        random_state: Any = None,
        n_jobs: int | None = None,
    ):
        self.n_components = n_components
        self.n_estimators = n_estimators
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, data: DoseResponseData, train_mask: Any = None) -> FunctionalForest:
        """Fill the training curves on the grid, compress, grow the forest."""
        from sklearn.ensemble import RandomForestRegressor

        mask = training_mask(data, train_mask)
        log_dose = data.log_dose
        grid = np.unique(np.round(log_dose[data.mask], 9))
        longest = int(data.mask.sum(1).max())
        if len(grid) > longest:
            raise InputError(
                f"FunctionalForest needs one dose grid: the curves use {len(grid)} different doses, none has more than "
                f"{longest}."
            )
        self.data_, self.grid_ = data, grid
        rows = np.flatnonzero(mask.any(1))
        y = _fill(log_dose[rows], data.effect[rows], mask[rows], grid)
        self._mean = y.mean(0)
        self._basis = np.eye(len(grid))
        if self.n_components is not None:
            if not self.n_components >= 1:
                raise InputError(f"n_components must be at least 1 or None, got {self.n_components}.")
            self._basis = np.linalg.svd(y - self._mean, full_matrices=False)[2][: self.n_components]
        self._drug_features: np.ndarray = np.eye(len(data.drugs))
        if data.smiles is not None:
            from assay.bio._shared.molecules import morgan_fingerprints

            bits = morgan_fingerprints({name: data.smiles[name] for name in data.drugs})
            trained = bits[np.unique(data.drug_index[rows])]
            varying = trained.any(0) & ~trained.all(0)
            self._drug_features = np.asarray(bits)[:, varying] if varying.any() else np.asarray(bits)
        self._cell_features = np.eye(len(data.cells))
        if data.expression is not None:
            self._cell_features = data.expression.to_numpy(float)
        seed = self.random_state
        if not (seed is None or isinstance(seed, (int, np.integer))):
            seed = int(as_rng(seed).integers(2**31))
        self.forest_ = RandomForestRegressor(
            self.n_estimators,
            min_samples_leaf=5,
            max_features=0.2,
            random_state=None if seed is None else derive(int(seed), "forest") % 2**32,
            n_jobs=self.n_jobs,
        )
        target = (y - self._mean) @ self._basis.T
        self.forest_.fit(self._features(data.drug_index[rows], data.cell_index[rows]), target)
        self._drug_seen = np.isin(np.arange(len(data.drugs)), data.drug_index[rows])
        self._cell_seen = np.isin(np.arange(len(data.cells)), data.cell_index[rows])
        fitted = self._curves(data.drug_index[rows], data.cell_index[rows])
        self.noise_ = float(((fitted - y) ** 2).mean())
        return self

    def _features(self, drug: np.ndarray, cell: np.ndarray) -> np.ndarray:
        return np.hstack([self._drug_features[drug], self._cell_features[cell]]).astype(np.float32)

    def _curves(self, drug: np.ndarray, cell: np.ndarray) -> np.ndarray:
        found = self.forest_.predict(self._features(drug, cell)).reshape(len(drug), -1)
        return self._mean + found @ self._basis

    def predict(self, drug: Any, cell: Any, dose: Any, return_std: bool = False) -> Any:
        """Inhibition at grid doses (uM); names broadcast against dose. `std` is the in-sample deviation."""
        check_is_fitted(self, "data_")
        drug, cell, z = broadcast_query(drug, cell, dose)
        d, c = self.data_.find_drug(drug).ravel(), self.data_.find_cell(cell).ravel()
        for index, what, names, seen, described in (
            (d, "drug", drug.ravel(), self._drug_seen, self.data_.smiles is not None),
            (c, "line", cell.ravel(), self._cell_seen, self.data_.expression is not None),
        ):
            bad = (index < 0) if described else ((index < 0) | ~seen[index])
            if bad.any():
                raise InputError(
                    f"FunctionalForest cannot predict {what} {names[bad][0]}: it was not in the training data."
                )
        x = np.log10(z).ravel()
        nearest = np.abs(x[:, None] - self.grid_).argmin(1)
        off = np.abs(x - self.grid_[nearest]) > 1e-6  # the grid is rounded to 1e-9 decades
        if off.any():
            raise InputError(
                f"FunctionalForest predicts only the training doses; {z.ravel()[off][0]:.4g} uM is not one of them."
            )
        pairs, which = np.unique(np.column_stack([d, c]), axis=0, return_inverse=True)
        out = self._curves(pairs[:, 0], pairs[:, 1])[which.ravel(), nearest].reshape(z.shape)
        return (out, np.full(z.shape, np.sqrt(self.noise_))) if return_std else out

    def score(self, data: DoseResponseData, mask: Any = None) -> float:
        """Minus the mean squared error over the points of `mask`."""
        return score(self, data, mask)


__all__ = [
    "DrugMeanCurve",
    "ExpressionRidge",
    "FunctionalForest",
    "LinearInterpolation",
    "expression_rows",
    "predict_data",
    "score",
]
