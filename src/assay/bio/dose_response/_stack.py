"""The ridge half of the blend for unseen lines, reduced to what prediction needs, so that it can be saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.bio.dose_response._baselines import _interpolate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assay.bio.dose_response._baselines import ExpressionRidge

__all__ = ["FrozenRidge"]


@dataclass(eq=False)
class FrozenRidge:
    """A fitted linear :class:`ExpressionRidge` by codes instead of names.

    Parameters
    ----------
    genes : list of str
        Names of the kept genes.
    centre, scale : ndarray, shape (n_genes,)
        Mean and deviation of the genes on the training lines.
    q : ndarray, shape (n_lines, n_genes)
        z-scores of the training lines.
    cross : ndarray, shape (n_known, n_lines)
        Kernel between all known lines and the training lines.
    drugs : dict
        Drug code to (dose grid in log10 uM, mean curve, training lines, dual weights).

    Notes
    -----
    1. The dual form is kept: lines x genes, and lines x lines for the known lines; the primal coefficients would be
       drugs x doses x genes.
    """

    genes: list[str]
    centre: NDArray[np.float64]
    scale: NDArray[np.float64]
    q: NDArray[np.float64]
    cross: NDArray[np.float64]
    drugs: dict[int, tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]]

    def __post_init__(self) -> None:
        self.gram: NDArray[np.float64] = self.q @ self.q.T / self.q.shape[1]

    @classmethod
    def of(cls, ridge: ExpressionRidge) -> FrozenRidge:
        """Take over a fitted ridge."""
        expression = ridge.data_.expression
        assert expression is not None  # ExpressionRidge.fit refuses data without it
        return cls(
            genes=[str(g) for g, kept in zip(ridge.genes_, ridge._kept, strict=True) if kept],
            centre=ridge._centre,
            scale=ridge._scale,
            q=ridge._q,
            cross=ridge._gram(ridge._zscore(expression.to_numpy(float)), ridge._q),
            drugs={
                int(d): (np.asarray(grid), np.asarray(mean), np.asarray(own), np.asarray(weights))
                for d, (grid, mean, own, weights) in ridge._models.items()
            },
        )

    def knows(self, drug: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Where a drug code has training lines."""
        return np.isin(drug, list(self.drugs))

    def predict(
        self, drug: NDArray[np.int64], cell: NDArray[np.int64], dose: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Inhibition at flat codes of known drugs and lines."""
        return self._evaluate(drug, cell, dose, self.cross)

    def predict_row(
        self, drug: NDArray[np.int64], expression: Mapping[str, float], dose: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Inhibition of known drugs on one new line; a gene that is not given takes its training mean."""
        values = np.array([expression.get(g, m) for g, m in zip(self.genes, self.centre, strict=True)])
        row = ((values - self.centre) / self.scale)[None] @ self.q.T / self.q.shape[1]
        return self._evaluate(drug, np.zeros(len(drug), dtype=np.int64), dose, row)

    def _evaluate(
        self,
        drug: NDArray[np.int64],
        cell: NDArray[np.int64],
        dose: NDArray[np.float64],
        cross: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        out = np.empty(len(dose))
        x = np.log10(dose)
        for d in np.unique(drug):
            at = np.flatnonzero(drug == d)
            grid, mean, own, weights = self.drugs[int(d)]
            lines, position = np.unique(cell[at], return_inverse=True)
            k = self.gram[np.ix_(own, own)]
            centred = cross[np.ix_(lines, own)]
            centred = centred - centred.mean(1, keepdims=True) - k.mean(0) + k.mean()
            curves = mean + centred @ weights
            doses, where = np.unique(x[at], return_inverse=True)
            out[at] = _interpolate(grid, curves, doses)[position, where]
        return out

    def to_arrays(self) -> dict[str, Any]:
        """Arrays from which :meth:`from_arrays` rebuilds the object."""
        out: dict[str, Any] = {
            "genes": np.array(self.genes),
            "centre": self.centre,
            "scale": self.scale,
            "q": self.q,
            "cross": self.cross,
        }
        for d, parts in self.drugs.items():
            out |= {f"drug{d}.{k}": a for k, a in zip(("grid", "mean", "own", "weights"), parts, strict=True)}
        return out

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> FrozenRidge:
        """Rebuild from :meth:`to_arrays`."""
        found = sorted(int(key[4:].partition(".")[0]) for key in arrays if key.endswith(".grid"))
        return cls(
            genes=[str(g) for g in arrays["genes"]],
            centre=arrays["centre"],
            scale=arrays["scale"],
            q=arrays["q"],
            cross=arrays["cross"],
            drugs={
                d: (
                    arrays[f"drug{d}.grid"],
                    arrays[f"drug{d}.mean"],
                    arrays[f"drug{d}.own"].astype(np.int64),
                    arrays[f"drug{d}.weights"],
                )
                for d in found
            },
        )
