"""What the claims of this method run: one function per experiment, one call per cell."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assay.bio.dose_response._data import DoseResponseData

# Each of these drugs has a training drug with the same target as its nearest neighbour (Tanimoto 0.33 to 0.52);
# no other drug of the 24 has.
TARGET_SHARING = ("Irinotecan", "Topotecan", "AZD6244", "PD-0325901", "Erlotinib", "ZD-6474")

# Lines differ most, and most predictably, in their response to these two.
MEK_INHIBITORS = ("AZD6244", "PD-0325901")

# Arms that are ARCANet with something changed; "arcanet" is the preset with its residual process.
_VARIANTS: dict[str, dict[str, Any]] = {
    "arcanet": {},
    "network-alone": {"residual": None},
    "no-shape-loss": {"alpha": 0.0},
    "dose-as-input": {"module_options": {"latent_hill": False}},
    "linear-head": {"module_options": {"linear_head": True}},
}


def load_ccle() -> Any:
    """CCLE with expression and structures, as a source of claims."""
    from assay.bio.dose_response.datasets import load_ccle as load

    return _source("ccle", load(expression=True, smiles=True))


def load_sarcoma() -> Any:
    """The shipped sarcoma screen, as a source of claims."""
    from assay.bio.dose_response.datasets import load_sarcoma as load

    return _source("sarcoma", load())


def _source(name: str, data: DoseResponseData) -> Any:
    import hashlib

    from assay.claims import Source

    digest = hashlib.sha256(np.nan_to_num(data.effect).tobytes() + np.nan_to_num(data.dose).tobytes())
    if data.expression is not None:
        digest.update(data.expression.to_numpy(float).tobytes())
    return Source(name, data=data, task="curves", fingerprint=digest.hexdigest(), n_rows=data.n_curves)


def _part(data: DoseResponseData, size: Mapping[str, Any], seed: int) -> DoseResponseData:
    """The lines and drugs that a tier takes; the seed draws them, so that arms of a pair see the same ones."""
    rng = np.random.default_rng(seed)
    keep = np.ones(data.n_curves, dtype=bool)
    if "lines" in size:
        keep &= np.isin(data.cell_index, rng.permutation(len(data.cells))[: size["lines"]])
    if "drugs" in size:
        keep &= np.isin(data.drug_index, rng.permutation(len(data.drugs))[: size["drugs"]])
    return data if keep.all() else data.subset(keep)


def _split(data: DoseResponseData, setting: str, seed: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    from assay.bio.dose_response import splits

    if setting == "smoothing":
        return next(splits.smoothing(data, 1, random_state=seed))
    if setting == "interpolation":
        return next(splits.interpolation(data, 1, random_state=seed))
    if setting == "extrapolation":
        return next(splits.extrapolation(data, 3, random_state=seed))
    raise ValueError(f"unknown setting {setting!r}")


def _make(arm: str, seed: int, device: str, trees: int = 200, **options: Any) -> Any:
    from assay.bio.dose_response import (
        ARCANet,
        DrugMeanCurve,
        ExpressionRidge,
        FunctionalForest,
        HillModel,
        LinearInterpolation,
    )

    if arm in _VARIANTS:
        return ARCANet(**(_VARIANTS[arm] | options), device=device, random_state=seed)
    made: dict[str, Any] = {
        "hill2": lambda: HillModel(n_params=2),
        "hill3": lambda: HillModel(n_params=3),
        "hill4": lambda: HillModel(n_params=4),
        "drug-mean": DrugMeanCurve,
        "drug-mean-gp": lambda: DrugMeanCurve(residual="gp"),
        "drug-mean-coregional": lambda: DrugMeanCurve(residual="coregional"),
        "interpolation": LinearInterpolation,
        "forest": lambda: FunctionalForest(n_estimators=trees, random_state=seed),
        "ridge": ExpressionRidge,
    }
    return made[arm]()


def _predict(model: Any, data: DoseResponseData, mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    curve, place = np.nonzero(mask)
    return model.predict(
        data.drugs[data.drug_index[curve]], data.cells[data.cell_index[curve]], data.dose[curve, place]
    )


def _errors(
    model: Any, data: DoseResponseData, test: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """Squared errors at the test points, the curve of each, and the predictions."""
    predicted = _predict(model, data, test)
    return (predicted - data.effect[test]) ** 2, np.nonzero(test)[0], predicted


def held_out_doses(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Hide doses of measured pairs and predict them.

    size: ``setting``, optionally ``lines``, ``drugs`` (how many), ``epochs``, ``detail`` (biphasic curves and IC50).
    """
    part = _part(data.data, size, seed)
    train, test = _split(part, size["setting"], seed)
    options = {"epochs": size["epochs"]} if "epochs" in size else {}
    start = time.perf_counter()
    model = _make(arm, seed, device, **options).fit(part, train)
    seconds = time.perf_counter() - start
    error, curve, _ = _errors(model, part, test)
    out: dict[str, Any] = {
        "mse": float(error.mean()),
        "fit_seconds": seconds,
        "n_test": len(error),
        "noise_floor": _noise(part, test),
        "split_sum": int((np.flatnonzero(test) % 1_000_003).sum()),  # equal across the arms of a pair
    }
    if hasattr(model, "residual_gp_") and model.residual_gp_ is not None:
        gp, model.residual_gp_ = model.residual_gp_, None
        out["mse_without_gp"] = float(_errors(model, part, test)[0].mean())
        model.residual_gp_ = gp
    if size.get("detail"):
        out |= _detail(model, part, train, error, curve)
    return out


def _noise(data: DoseResponseData, mask: NDArray[np.bool_]) -> float | None:
    from assay.bio.dose_response import noise_floor

    floor = noise_floor(data, mask)
    return float(floor) if np.isfinite(floor) else None


def _detail(
    model: Any,
    data: DoseResponseData,
    train: NDArray[np.bool_],
    error: NDArray[np.float64],
    curve: NDArray[np.int64],
) -> dict[str, Any]:
    """Error on the biphasic curves, and how often the IC50 differs from that of a 4-parameter Hill curve."""
    from assay.bio.dose_response import HillModel, biphasic_test, curve_metrics

    found = biphasic_test(data, random_state=0)["biphasic"].to_numpy(bool)
    out: dict[str, Any] = {"share_biphasic": float(found.mean()), "n_biphasic": int(found.sum())}
    at = found[curve]
    if at.any():
        out["mse_biphasic"] = float(error[at].mean())
    if not hasattr(model, "residual_gp_"):
        return out
    # Equal held-out error: per curve, the two errors at the hidden dose differ by less than the replicates scatter.
    hill = HillModel(n_params=4).fit(data, train)
    hidden = np.zeros_like(data.mask)
    hidden[curve] = data.mask[curve] & ~train[curve]
    other = _errors(hill, data, hidden)[0]
    spread = float(np.nanmedian(data.replicate_sd[hidden]))
    alike = np.unique(curve[np.abs(np.sqrt(error) - np.sqrt(other)) < spread])
    x = np.array([np.log10(data.dose[j][data.mask[j]])[[0, -1]] for j in alike])
    grid = 10.0 ** np.linspace(x[:, 0], x[:, 1], 61, axis=1)
    names = data.drugs[data.drug_index[alike]][:, None], data.cells[data.cell_index[alike]][:, None]
    tables = [curve_metrics(grid, m.predict(*names, grid)) for m in (model, hill)]
    reached = [t["ic50_status"].to_numpy() == "reached" for t in tables]
    logs = [np.log10(np.where(r, t["ic50"].to_numpy(float), 1.0)) for r, t in zip(reached, tables, strict=True)]
    both, any_ = reached[0] & reached[1], reached[0] | reached[1]
    # One decade apart, or a number from one model and "not inside the range" from the other.
    differs = (both & (np.abs(logs[0] - logs[1]) > 1.0)) | (reached[0] ^ reached[1])
    out |= {
        "n_alike": len(alike),
        "share_ic50_decade": float((np.abs(logs[0] - logs[1])[both] > 1.0).mean()) if both.any() else 0.0,
        "share_ic50_differs": float(differs[any_].mean()) if any_.any() else 0.0,
    }
    return out


def unseen_lines(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Predict all curves of lines that were never seen; a seed is 1000 times a draw of the folds plus a fold's number.

    size: ``folds``, optionally ``lines``, ``epochs`` and ``trees`` (of the forest).
    """
    from assay.bio.dose_response import splits

    draw, fold = 1000 * (seed // 1000), seed % 1000  # the same lines in every fold of one draw
    part = _part(data.data, size, draw)
    folds = list(splits.new_cells(part, size["folds"], random_state=draw))
    train, test = folds[fold % len(folds)]
    options: dict[str, Any] = {"epochs": size["epochs"]} if "epochs" in size else {}
    options["trees"] = size.get("trees", 200)
    if arm == "arcanet":
        options["preset"] = "new_cells"
    elif arm == "network-of-new-cells":
        arm, options = "arcanet", options | {"preset": "new_cells", "residual": None}
    elif arm == "network-without-prior":
        arm = "arcanet"
        options |= {"preset": "new_cells", "residual": None, "prior": None, "expression_input": "zscore"}
    start = time.perf_counter()
    model = _make(arm, seed, device, **options).fit(part, train)
    out: dict[str, Any] = {"fit_seconds": time.perf_counter() - start}
    error, curve, _ = _errors(model, part, test)
    drug = part.drug_index[curve]
    out["mse"] = float(error.mean())
    found = np.unique(drug)
    out["drug"] = [str(part.drugs[d]) for d in found]
    out["mse_by_drug"] = [float(error[drug == d].mean()) for d in found]
    # An axis of the report holds numbers, not names; its label names the two drugs whose response genes tell most about.
    named = ", ".join(f"{1 + d} {part.drugs[d]}" for d in found if part.drugs[d] in MEK_INHIBITORS)
    label = "drug, by alphabet" + (f" ({named})" if named else "")
    drawn = {"x": (1 + found).tolist(), "y": out["mse_by_drug"], "x_label": label, "y_label": "MSE of a drug"}
    out["curves"] = {"by_drug": drawn}
    if getattr(model, "stack_weight_", None) is not None:
        out["stack_weight"] = model.stack_weight_
    return out


def unseen_drugs(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Leave one drug out; the seed is 1000 plus its place among the target-sharing drugs (then the others).

    size: optionally ``lines`` and ``epochs``.
    """
    from assay.bio.dose_response import DrugMeanCurve

    part = _part(data.data, size, 1000)
    order = [d for d in TARGET_SHARING if d in part.drugs] + [d for d in part.drugs if d not in TARGET_SHARING]
    left_out = order[(seed - 1000) % len(order)]
    test = part.mask & (part.drug_index == int(np.flatnonzero(part.drugs == left_out)[0]))[:, None]
    train = part.mask & ~test
    start = time.perf_counter()
    out: dict[str, Any] = {"drug": left_out, "target_sharing": left_out in TARGET_SHARING}
    if arm == "arcanet":
        options = {"epochs": size["epochs"]} if "epochs" in size else {}
        model = _make(arm, seed, device, preset="new_drugs", **options).fit(part, train)
        out["tanimoto"] = model.applicability(drug=left_out)["tanimoto"]
        predicted = _predict(model, part, test)
    elif arm == "forest":
        predicted = _predict(_make(arm, seed, device).fit(part, train), part, test)
    else:
        mean = DrugMeanCurve().fit(part, train)
        curve, place = np.nonzero(test)
        if arm == "global-mean":
            name = left_out  # an unseen drug gets the mean over the drugs
        elif arm == "nearest-drug-mean":
            name = _nearest(part, left_out)
        else:
            raise ValueError(f"unknown arm {arm!r}")
        out["from"] = name
        predicted = mean.predict(name, part.cells[part.cell_index[curve]], part.dose[curve, place])
    out["fit_seconds"] = time.perf_counter() - start
    out["mse"] = float(((predicted - part.effect[test]) ** 2).mean())
    return out


def _nearest(data: DoseResponseData, drug: str) -> str:
    from assay.bio._shared.molecules import morgan_fingerprints, tanimoto

    assert data.smiles is not None
    others = [str(d) for d in data.drugs if d != drug]
    similarity = tanimoto(
        morgan_fingerprints([data.smiles[drug]]), morgan_fingerprints([data.smiles[d] for d in others])
    )
    return others[int(similarity[0].argmax())]


def scarce_curves(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Smoothing with fewer and fewer curves to learn from.

    Whole curves are left out, not points of each: a tenth of a curve's own eight points would leave nothing to fit a Hill
    curve to, and what a small screen lacks is pairs, not doses. The network trains longer on fewer curves, so that the
    number of steps falls less than the number of curves.

    size: ``fractions`` (of the curves), optionally ``max_epochs``.
    """
    from assay.bio.dose_response import splits

    part = data.data
    rng = np.random.default_rng(seed)
    order = rng.permutation(part.n_curves)  # nested: a smaller fraction is part of a larger one
    fractions = list(size["fractions"])
    errors = []
    for fraction in fractions:
        chosen = part.subset(np.sort(order[: max(8, round(fraction * part.n_curves))]))
        train, test = next(splits.smoothing(chosen, 1, random_state=seed))
        epochs = min(size.get("max_epochs", 300), round(30 / fraction))
        options = {"epochs": epochs} if arm in _VARIANTS else {}
        errors.append(float(_errors(_make(arm, seed, device, **options).fit(chosen, train), chosen, test)[0].mean()))
    drawn = {"x": fractions, "y": errors, "x_label": "share of the curves", "y_label": "MSE of a hidden dose"}
    return {
        "fraction": fractions,
        "mse_curve": errors,
        "mse_smallest": errors[0],
        "mse_largest": errors[-1],
        "curves": {"scarce": drawn},
    }
