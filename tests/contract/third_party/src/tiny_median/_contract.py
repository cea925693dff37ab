"""What the contract suite looks at."""

from __future__ import annotations

from assay.testing import Case


def cases() -> list[Case]:
    """One case: the estimator on a small table."""
    import numpy as np

    from ._median import MedianModel

    return [Case("MedianModel", "estimator", MedianModel, data=lambda: (np.arange(12.0).reshape(6, 2),))]
