"""What stands between a user's names and the network: features fitted on training lines and drugs, and the prior."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from assay._core.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

__all__ = ["CellInputs", "DrugInputs", "DrugMeanPrior"]

N_COMPONENTS = 40  # of the expression; on 267 lines the held-out error is flat between 30 and 60
MIN_GENES = 0.9  # share of the training genes that a new expression row must bring


class CellInputs:
    """Expression rows as network inputs, scaled by the training lines alone; or plain identities.

    Parameters
    ----------
    kind : {"expression", "identity"}
        What a line is to the network.
    expression_input : {"zscore", "pca"}
        z-scores of the genes, or the first 40 principal components of them divided by one common scale.

    Notes
    -----
    1. Mean, deviation and components come from lines with at least one training point; nothing of a held-out line
       enters.
    2. A gene that is constant on the training lines carries nothing and is dropped without a word; genes constant in
       the whole table were reported when the data were read.
    3. The components share one scale (the deviation of the first over 3): whitening would blow noise up.
    """

    def __init__(self, kind: str, expression_input: str = "zscore") -> None:
        self.kind = kind
        self.expression_input = expression_input

    def fit(self, cells: NDArray[Any], expression: pd.DataFrame | None, trained: NDArray[np.bool_]) -> CellInputs:
        """Learn the scaling from the lines where ``trained`` is True."""
        self.cells = [str(c) for c in cells]
        self.trained = np.asarray(trained, dtype=bool)
        self.index = {c: i for i, c in enumerate(self.cells)}
        if self.kind == "identity":
            self.n_inputs = len(self.cells)
            return self
        assert expression is not None
        values = expression.reindex(cells).to_numpy(dtype=np.float64)
        known = np.isfinite(values).all(axis=1)
        if not known[self.trained].all():
            bad = [c for c, ok in zip(self.cells, known | ~self.trained, strict=True) if not ok]
            raise InputError(
                f"{len(bad)} training lines have no complete expression row ({', '.join(bad[:10])}); add them or "
                "leave these lines out."
            )
        train = values[self.trained]
        deviation = train.std(axis=0)
        # A deviation this far below the size of the values is rounding, not signal.
        varies = deviation > 1e-9 * np.maximum(1.0, np.abs(train).max(axis=0))
        if not varies.any():
            raise InputError(
                "No gene varies among the training lines; at least two lines with different expression are needed."
            )
        self.genes = [str(g) for g in np.asarray(expression.columns)[varies]]
        self.mean = train[:, varies].mean(axis=0)
        self.std = deviation[varies]
        z = (train[:, varies] - self.mean) / self.std
        if self.expression_input == "pca":
            _, _, rows = np.linalg.svd(z, full_matrices=False)
            rows = rows[: min(N_COMPONENTS, max(1, len(z) - 1))]
            # The sign of a component is arbitrary; fixing it makes fits on two machines comparable.
            largest = np.abs(rows).argmax(axis=1)
            self.components = rows * np.sign(rows[np.arange(len(rows)), largest])[:, None]
            self.scale = float((z @ self.components[0]).std() / 3.0)
        self.known = known
        self.features = np.zeros((len(self.cells), self._width()), dtype=np.float32)
        self.features[known] = self.transform(values[known][:, varies])
        self.n_inputs = self.features.shape[1]
        self._reach()
        return self

    def _width(self) -> int:
        return len(self.components) if self.expression_input == "pca" else len(self.genes)

    def _reach(self) -> None:
        # How far a training line is from its nearest fellow: the yardstick for "outside the training lines".
        own = self.features[self.trained].astype(np.float64)
        if len(own) < 3:
            self.reach = float("inf")
            return
        square = (own**2).sum(1)
        distance = np.sqrt(np.maximum(square[:, None] + square[None] - 2 * own @ own.T, 0.0))
        np.fill_diagonal(distance, np.inf)
        self.reach = float(np.quantile(distance.min(axis=1), 0.95))

    def transform(self, values: NDArray[np.float64]) -> NDArray[np.float32]:
        """Scale rows that hold exactly the kept genes, in their order."""
        z = (values - self.mean) / self.std
        if self.expression_input == "pca":
            z = z @ self.components.T / self.scale
        return z.astype(np.float32)

    def align(self, expression: pd.Series | Mapping[str, float]) -> NDArray[np.float64]:
        """Order one new expression row as the training genes; a few missing genes take the training mean."""
        import pandas as pd

        row = pd.Series(expression, dtype=np.float64)
        row.index = row.index.astype(str)
        values = row[~row.index.duplicated()].reindex(self.genes).to_numpy()
        found = np.isfinite(values)
        if found.mean() < MIN_GENES:
            raise InputError(
                f"The expression row has {int(found.sum())} of the {len(self.genes)} training genes; at least 90 % "
                "are needed (are the gene names of the same kind?)."
            )
        return np.where(found, values, self.mean)

    def nearest(self, feature: NDArray[np.float32]) -> tuple[str, float]:
        """Nearest training line and its distance, in units of the usual distance between training lines."""
        own = np.flatnonzero(self.trained)
        distance = np.linalg.norm(self.features[own].astype(np.float64) - feature.astype(np.float64), axis=1)
        best = int(distance.argmin())
        return self.cells[own[best]], float(distance[best] / self.reach)

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Arrays and JSON from which :meth:`from_state` rebuilds the object."""
        arrays: dict[str, NDArray[Any]] = {"trained": self.trained}
        meta: dict[str, Any] = {
            "kind": self.kind,
            "expression_input": self.expression_input,
            "cells": self.cells,
            "n_inputs": self.n_inputs,
        }
        if self.kind == "expression":
            arrays |= {"mean": self.mean, "std": self.std, "features": self.features, "known": self.known}
            meta |= {"genes": self.genes, "reach": self.reach if np.isfinite(self.reach) else None}
            if self.expression_input == "pca":
                arrays["components"] = self.components
                meta["scale"] = self.scale
        return arrays, meta

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> CellInputs:
        """Rebuild from :meth:`state`."""
        new = cls(meta["kind"], meta["expression_input"])
        new.cells, new.n_inputs = list(meta["cells"]), int(meta["n_inputs"])
        new.index = {c: i for i, c in enumerate(new.cells)}
        new.trained = arrays["trained"].astype(bool)
        if new.kind == "expression":
            new.genes = list(meta["genes"])
            new.reach = float("inf") if meta["reach"] is None else float(meta["reach"])
            new.mean, new.std = arrays["mean"], arrays["std"]
            new.features, new.known = arrays["features"], arrays["known"].astype(bool)
            if new.expression_input == "pca":
                new.components, new.scale = arrays["components"], float(meta["scale"])
        return new


class DrugInputs:
    """Drugs as fingerprints, graphs or identities.

    Parameters
    ----------
    kind : {"fingerprint", "graph", "identity"}
        What a drug is to the network.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def fit(self, drugs: NDArray[Any], smiles: Mapping[str, str] | None, trained: NDArray[np.bool_]) -> DrugInputs:
        """Compute features; fingerprint columns that are constant among the training drugs are dropped."""
        self.drugs = [str(d) for d in drugs]
        self.trained = np.asarray(trained, dtype=bool)
        self.index = {d: i for i, d in enumerate(self.drugs)}
        self.smiles = None if smiles is None else {d: smiles[d] for d in self.drugs if d in smiles}
        if self.kind == "identity":
            self.n_inputs = len(self.drugs)
            return self
        from assay.bio._shared.molecules import ATOM_FEATURES, morgan_fingerprints

        missing = [d for d in self.drugs if self.smiles is None or d not in self.smiles]
        if missing:
            raise InputError(
                f"{len(missing)} drugs have no SMILES ({', '.join(missing[:10])}); give them, or use "
                "drug_encoder='identity'."
            )
        assert self.smiles is not None
        self.bits = morgan_fingerprints([self.smiles[d] for d in self.drugs])
        if self.kind == "fingerprint":
            train = self.bits[self.trained]
            kept = np.flatnonzero(train.min(axis=0) != train.max(axis=0))
            # With a single training drug every column is constant; its own bits then serve as the constant input.
            self.columns = kept if len(kept) else np.flatnonzero(train[0])
            self.n_inputs = len(self.columns)
        else:
            self.n_inputs = ATOM_FEATURES
        return self

    def nearest(self, bits: NDArray[np.uint8]) -> tuple[str, float]:
        """Most similar training drug and its Tanimoto similarity."""
        from assay.bio._shared.molecules import tanimoto

        own = np.flatnonzero(self.trained)
        similarity = tanimoto(bits[None], self.bits[own])[0]
        best = int(similarity.argmax())
        return self.drugs[own[best]], float(similarity[best])

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Arrays and JSON from which :meth:`from_state` rebuilds the object."""
        arrays: dict[str, NDArray[Any]] = {"trained": self.trained}
        meta = {"kind": self.kind, "drugs": self.drugs, "smiles": self.smiles, "n_inputs": self.n_inputs}
        if self.kind != "identity":
            arrays["bits"] = self.bits
        if self.kind == "fingerprint":
            arrays["columns"] = self.columns
        return arrays, meta

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> DrugInputs:
        """Rebuild from :meth:`state`."""
        new = cls(meta["kind"])
        new.drugs, new.smiles, new.n_inputs = list(meta["drugs"]), meta["smiles"], int(meta["n_inputs"])
        new.index = {d: i for i, d in enumerate(new.drugs)}
        new.trained = arrays["trained"].astype(bool)
        if new.kind != "identity":
            new.bits = arrays["bits"]
        if new.kind == "fingerprint":
            new.columns = arrays["columns"]
        return new


class DrugMeanPrior:
    r"""The mean curve of each drug over the training lines.

    .. math:: m_d(z_k) = \frac{1}{|L_{dk}|}\sum_{l \in L_{dk}} E_{dl}(z_k)

    joined by a monotone cubic (PCHIP) in log10 dose between the measured doses and constant outside them.

    Notes
    -----
    1. In training a line sees the mean of the *others* (:meth:`leave_one_out`), else the network would learn to add
       nothing to a prior that already contains the answer.
    2. Where no other line was measured at a dose, the others' curve is read between its neighbouring doses.
    3. A drug without training lines takes the mean of the curves of all drugs.
    """

    def fit(self, data: Any, train_mask: NDArray[np.bool_]) -> DrugMeanPrior:
        """Average the training points of each drug and dose."""
        n_drugs = len(data.drugs)
        curve, place = np.nonzero(train_mask)
        drug = data.drug_index[curve]
        x = np.log10(data.dose[curve, place])
        y = data.effect[curve, place]
        # Doses that differ by rounding of the table (1e-6 in log10) are one dose.
        key = np.round(x, 6)
        order = np.lexsort((key, drug))
        d, k = drug[order], key[order]
        first = np.ones(len(d), dtype=bool)
        first[1:] = (d[1:] != d[:-1]) | (k[1:] != k[:-1])
        group = np.cumsum(first) - 1
        counts = np.bincount(group)
        self.knot_x = k[first]
        self.knot_y = np.bincount(group, weights=y[order]) / counts
        self.knot_n = counts
        self.start = np.searchsorted(d[first], np.arange(n_drugs + 1))
        self._build()
        return self

    def _build(self) -> None:
        from scipy.interpolate import PchipInterpolator

        self._curves: list[Any] = []
        for a, b in zip(self.start[:-1], self.start[1:], strict=True):
            x, y = self.knot_x[a:b], self.knot_y[a:b]
            self._curves.append(None if a == b else (x, y, PchipInterpolator(x, y) if b - a > 1 else None))

    @staticmethod
    def _evaluate(curve: Any, x: NDArray[np.float64]) -> NDArray[np.float64]:
        knots, values, spline = curve
        return np.full(x.shape, values[0]) if spline is None else spline(np.clip(x, knots[0], knots[-1]))

    def predict(self, drug: NDArray[np.int64], dose: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mean curve of the drugs (code -1: of a drug never seen) at the doses, elementwise."""
        out = np.empty(dose.shape)
        x = np.log10(dose)
        for d in np.unique(drug):
            at = drug == d
            curve = self._curves[d] if d >= 0 else None
            if curve is not None:
                out[at] = self._evaluate(curve, x[at])
            else:
                known = [c for c in self._curves if c is not None]
                out[at] = np.mean([self._evaluate(c, x[at]) for c in known], axis=0)
        return out

    def leave_one_out(self, data: Any, train_mask: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Mean of the other lines at every training point, zero elsewhere; shape (n, m)."""
        out = np.zeros(data.mask.shape)
        curve, place = np.nonzero(train_mask)
        drug = data.drug_index[curve]
        key = np.round(np.log10(data.dose[curve, place]), 6)
        y = data.effect[curve, place]
        values = np.empty(len(curve))
        for d in np.unique(drug):
            at = np.flatnonzero(drug == d)
            a, b = self.start[d], self.start[d + 1]
            x, mean, n = self.knot_x[a:b], self.knot_y[a:b], self.knot_n[a:b]
            j = np.searchsorted(x, key[at])
            others = (mean[j] * n[j] - y[at]) / np.maximum(n[j] - 1, 1)
            for i in np.flatnonzero(n[j] == 1):
                keep = np.arange(len(x)) != j[i]
                others[i] = np.interp(x[j[i]], x[keep], mean[keep]) if keep.any() else 0.0
            values[at] = others
        out[curve, place] = values
        return out

    def state(self) -> dict[str, NDArray[Any]]:
        """Arrays from which :meth:`from_state` rebuilds the object."""
        return {"knot_x": self.knot_x, "knot_y": self.knot_y, "knot_n": self.knot_n, "start": self.start}

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]]) -> DrugMeanPrior:
        """Rebuild from :meth:`state`."""
        new = cls()
        new.knot_x, new.knot_y = arrays["knot_x"], arrays["knot_y"]
        new.knot_n, new.start = arrays["knot_n"], arrays["start"]
        new._build()
        return new


def codes(names: NDArray[Any], index: Mapping[str, int]) -> tuple[NDArray[np.int64], Sequence[str]]:
    """Codes of names, and the sorted names that are not in the index (code -1)."""
    values, inverse = np.unique(names.astype(str), return_inverse=True)
    found = np.array([index.get(str(v), -1) for v in values], dtype=np.int64)
    return found[inverse].reshape(names.shape), [str(v) for v in values[found < 0]]
