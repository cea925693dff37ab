"""Objects of this method that the contract suite checks."""

from __future__ import annotations

from typing import Any


def _tiny() -> tuple[Any]:
    """Four drugs on eight lines with twelve genes: real enough for every model, small enough for seconds."""
    import numpy as np
    import pandas as pd

    from ._data import DoseResponseData

    rng = np.random.default_rng(0)
    lines = [f"line{i}" for i in range(8)]
    genes = pd.DataFrame(rng.normal(8.0, 1.0, (8, 12)), index=lines, columns=[f"g{i}" for i in range(12)])
    doses = np.array([0.01, 0.1, 1.0, 10.0, 100.0])
    rows = []
    for i in range(4):
        for c in lines:
            x50 = 0.5 * i - 0.5 + 0.3 * (genes.loc[c, "g0"] - 8.0)
            effect = 1.0 / (1.0 + np.exp(-2.0 * (np.log10(doses) - x50))) + rng.normal(0, 0.03, 5)
            rows += [(f"drug{i}", c, z, 1.0 - e) for z, e in zip(doses, effect, strict=True)]
    table = pd.DataFrame(rows, columns=["drug", "cell_line", "dose_uM", "viability"])
    return (DoseResponseData.from_long(table, expression=genes),)


def cases() -> list[Any]:
    """Every estimator of the method, on one tiny screen."""
    from assay.testing import Case

    from ._arcanet import ARCANet
    from ._baselines import DrugMeanCurve, ExpressionRidge, FunctionalForest, LinearInterpolation
    from ._hill import HillModel, MixedEffectsHill

    def predict(model: Any) -> Any:
        return model.predict("drug1", ["line0", "line5"], [0.1, 10.0])

    makers = {
        "HillModel(2)": lambda: HillModel(2),
        "HillModel(3)": lambda: HillModel(3),
        "HillModel(4)": lambda: HillModel(4),
        "MixedEffectsHill": MixedEffectsHill,
        "DrugMeanCurve": DrugMeanCurve,
        "DrugMeanCurve(gp)": lambda: DrugMeanCurve("gp"),
        "DrugMeanCurve(coregional)": lambda: DrugMeanCurve("coregional"),
        "LinearInterpolation": LinearInterpolation,
        "ExpressionRidge": ExpressionRidge,
        "FunctionalForest": lambda: FunctionalForest(n_estimators=5, random_state=0),
        "ARCANet": lambda: ARCANet(epochs=2, hidden_dim=16, random_state=0),
    }
    return [Case(kind="estimator", name=name, make=make, data=_tiny, predict=predict) for name, make in makers.items()]
