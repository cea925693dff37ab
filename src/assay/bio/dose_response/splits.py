"""Leakage-proof splits: smoothing, interpolation, extrapolation, new lines, new drugs."""

from ._splits import extrapolation, interpolation, new_cells, new_drugs, smoothing

__all__ = ["extrapolation", "interpolation", "new_cells", "new_drugs", "smoothing"]
