"""Which doses were tested: of the screen, of each drug and of each pair; kept beside a fitted model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from assay._core.errors import InputError

if TYPE_CHECKING:
    from ._data import DoseResponseData

Range = tuple[float, float]
# Decades: doses that went through a file or a logarithm are the same dose.
SAME_DOSE = 1e-9


@dataclass(frozen=True)
class TestedRanges:
    """Lowest and highest tested dose in uM.

    Parameters
    ----------
    screen : pair of floats
        Over all curves.
    drugs : mapping of name to pair of floats
        Over all lines of a drug.
    pairs : mapping of (drug, line) to pair of floats
        Of the measured pairs whose range is not their drug's.

    Notes
    -----
    1. A pair that was not measured has its drug's range, a drug that was not measured the screen's.
    """

    __test__ = False  # no test of pytest's, in spite of its name

    screen: Range
    drugs: Mapping[str, Range] = field(default_factory=dict)
    pairs: Mapping[tuple[str, str], Range] = field(default_factory=dict)

    @classmethod
    def of(cls, data: DoseResponseData) -> TestedRanges:
        """Read the ranges off a screen."""
        low = np.where(data.mask, data.dose, np.inf).min(1)
        high = np.where(data.mask, data.dose, -np.inf).max(1)
        lowest = np.full(len(data.drugs), np.inf)
        highest = np.full(len(data.drugs), -np.inf)
        np.minimum.at(lowest, data.drug_index, low)
        np.maximum.at(highest, data.drug_index, high)
        drugs = {str(d): (float(a), float(b)) for d, a, b in zip(data.drugs, lowest, highest, strict=True)}
        other = np.flatnonzero((low != lowest[data.drug_index]) | (high != highest[data.drug_index]))
        pairs = {
            (str(data.drugs[data.drug_index[j]]), str(data.cells[data.cell_index[j]])): (float(low[j]), float(high[j]))
            for j in other
        }
        return cls((float(low.min()), float(high.max())), drugs, pairs)

    def to_json(self) -> dict[str, Any]:
        """Plain lists and dicts for a JSON file."""
        pairs: dict[str, dict[str, Range]] = {}
        for (drug, cell), found in self.pairs.items():
            pairs.setdefault(drug, {})[cell] = found
        return {"dose_uM": self.screen, "by_drug": dict(self.drugs), "by_pair": pairs}

    @classmethod
    def from_json(cls, value: Any, where: Any) -> TestedRanges:
        """Rebuild from :meth:`to_json`; a file without ranges by drug (of an older model) has the screen's alone."""
        try:
            return cls(
                _range(value["dose_uM"]),
                {str(d): _range(found) for d, found in value.get("by_drug", {}).items()},
                {(d, c): _range(r) for d, cells in value.get("by_pair", {}).items() for c, r in cells.items()},
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            raise InputError(f"{where} does not hold dose ranges as fit writes them: fit the model again.") from None

    def find(self, drug: str, cell: str) -> Range:
        """The range of a pair, else of its drug, else of the screen."""
        return self.pairs.get((drug, cell)) or self.drugs.get(drug) or self.screen


def outside(dose: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Where doses lie outside [low, high]."""
    x = np.log10(dose)
    return (x < np.log10(low) - SAME_DOSE) | (x > np.log10(high) + SAME_DOSE)


def _range(value: Any) -> Range:
    low, high = (float(v) for v in value)
    if not 0 < low <= high < np.inf:
        raise ValueError
    return low, high
