"""What the method promises."""

from __future__ import annotations

from typing import Any

from assay.claims import Bound, Claim, Tier

CLAIMS = [
    Claim(
        id="tiny-median/is-the-middle",
        says="Half of the points lie on either side of the median.",
        where="definition",
        experiment="sides",
        metric="imbalance",
        unit="points",
        better="lower",
        ours="median",
        test=Bound(le=1.0),
        margin_reason="one point, the median itself, can lie on neither side",
        tiers={
            "quick": Tier(seeds=3, size={"n": 11}, limit_s=10),
            "standard": Tier(seeds=5, size={"n": 101}, limit_s=10),
        },
        caveat="one distribution",
    )
]


def sides(arm: str, seed: int, data: Any, size: Any, device: str) -> dict[str, float]:
    """Difference between the numbers of points above and below."""
    import numpy as np

    from ._median import MedianModel

    x = np.random.default_rng(seed).normal(size=(size["n"], 1))
    median = MedianModel().fit(x).median_[0]
    return {"imbalance": float(abs((x > median).sum() - (x < median).sum()))}
