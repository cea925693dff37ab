"""What `assay dose-response VERB` does with a user's files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from assay._core.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from assay._core.run import Run

    from ._data import DoseResponseData

Preset = Literal["measured", "new_cells", "new_drugs", "paper", "paper-drugs"]
DoseUnit = Literal["uM", "nM", "mM", "M"]
ResponseKind = Literal["viability", "inhibition", "percent_viability", "percent_activity"]
Setting = Literal["smoothing", "interpolation", "extrapolation", "new_cells", "new_drugs"]

LABELS = {
    "arcanet": "ARCANet",
    "hill2": "Hill 2P",
    "hill3": "Hill 3P",
    "hill4": "Hill 4P",
    "mixed": "Hill, mixed effects",
    "linear": "linear interpolation",
    "drugmean": "drug mean",
    "drugmean_gp": "drug mean + GP",
    "drugmean_coregional": "drug mean + coregional GP",
    "ridge": "expression ridge",
    "forest": "functional forest",
}
# The coregional GP solves one dense system per line: beyond this many points per line it would dominate the run.
_COREGIONAL_POINTS = 2500
_MICROMOLAR = {"M": 1e6, "mM": 1e3, "uM": 1.0, "nM": 1e-3}
_GRID = 61  # doses of a dense curve: IC50 to about 0.01 decade over five decades
_DRAWS = 200  # posterior curves behind an AAC interval
_REPEATS = 1000  # bootstrap resamples of curves behind an error interval


def fit(
    responses: Path,
    *,
    smiles: Path | None = None,
    expression: Path | None = None,
    preset: Preset = "measured",
    epochs: int | None = None,
    ensemble: int = 1,
    focus: str | None = None,
    drug: str = "drug",
    cell: str = "cell_line",
    dose: str = "dose_uM",
    response: str = "viability",
    dose_unit: DoseUnit = "uM",
    response_type: ResponseKind = "viability",
    response_sd: str | None = None,
    replicates: Literal["error", "median", "mean"] = "median",
    min_points: int = 4,
    on_missing: Literal["error", "drop"] = "error",
    run: Run,
) -> None:
    """Fit ARCANet and its rivals to a screen: held-out errors, curves, IC50 and AAC with status, a report.

    One part of the data is held out to compare the models (a dose of every curve, or lines, or drugs, by preset); then
    ARCANet is fitted to everything and saved.

    Parameters
    ----------
    responses
        Long table (CSV, TSV, gzip): one row per well or per averaged point.
    smiles
        Table with columns drug and smiles.
    expression
        Table with one row per line: its name in the first column, then one column per gene (log scale).
    preset
        What is to be predicted: measured pairs, new lines (needs expression) or new drugs (needs SMILES).
    epochs
        Passes over the curves; default by preset.
    ensemble
        Number of networks to average; from 3 on their spread enters the intervals.
    focus
        Drug of the waterfall picture; default the one whose response differs most between the lines.
    drug
        Column with the drug's name.
    cell
        Column with the line's name.
    dose
        Column with the dose, in the unit of dose_unit.
    response
        Column with the response.
    dose_unit
        Unit of the dose column.
    response_type
        What the response is.
    response_sd
        Column with the standard deviation of an averaged response.
    replicates
        What to do with several rows of one drug, line and dose.
    min_points
        Fewest doses of a curve.
    on_missing
        drop leaves out lines without expression, drugs without SMILES and short curves.
    """
    table, data = _read(
        run, responses, smiles, expression, drug=drug, cell=cell, dose=dose, dose_unit=dose_unit,
        response=response, response_type=response_type, response_sd=response_sd, replicates=replicates, min_points=min_points,
        on_missing=on_missing,
    )  # fmt: skip
    columns = {"drug": drug, "cell": cell, "dose": dose, "response": response}
    _fit(run, table, columns, data, preset=preset, epochs=epochs, ensemble=ensemble, focus=focus)


def demo(*, run: Run) -> None:
    """Run `fit` on 40 drugs of the shipped sarcoma kinase-inhibitor screen."""
    from assay._core.smoke import pick

    from . import datasets
    from ._data import DoseResponseData

    table = datasets.sarcoma_table(pick(40, 3))
    data = DoseResponseData.from_long(table, replicates="median")
    run.log(f"sarcoma screen: {len(data.drugs)} drugs x {len(data.cells)} lines, {data.n_curves} curves")
    columns = {"drug": "drug", "cell": "cell_line", "dose": "dose_uM", "response": "viability"}
    _fit(run, table, columns, data, preset="measured", epochs=pick(None, 2), ensemble=1, focus=None)


def analyse(
    responses: Path,
    *,
    wells: bool = False,
    drug: str = "drug",
    cell: str = "cell_line",
    dose: str = "dose_uM",
    response: str = "viability",
    dose_unit: DoseUnit = "uM",
    response_type: ResponseKind = "viability",
    response_sd: str | None = None,
    replicates: Literal["error", "median", "mean"] = "median",
    min_points: int = 4,
    on_missing: Literal["error", "drop"] = "error",
    run: Run,
) -> None:
    """Fit Hill curves and check the screen: IC50, AAC, biphasic curves, outlying wells. No training.

    Parameters
    ----------
    responses
        Long table of responses, or with --wells a plate-reader table.
    wells
        The table holds raw wells with columns plate, role (blank, negative_control, sample), signal and optionally well
        (A1 ...): plates are normalised by their own controls and checked for edge effects first.
    drug
        Column with the drug's name.
    cell
        Column with the line's name.
    dose
        Column with the dose, in the unit of dose_unit.
    response
        Column with the response.
    dose_unit
        Unit of the dose column.
    response_type
        What the response is.
    response_sd
        Column with the standard deviation of an averaged response.
    replicates
        What to do with several rows of one drug, line and dose.
    min_points
        Fewest doses of a curve.
    on_missing
        drop leaves out short curves.
    """
    from ._hill import HillModel

    if wells:
        table = _plates(run, responses)
        response, response_type = "viability", "viability"
    else:
        table = None
    table, data = _read(
        run, responses, None, None, drug=drug, cell=cell, dose=dose, dose_unit=dose_unit, response=response,
        response_type=response_type, response_sd=response_sd, replicates=replicates, min_points=min_points,
        on_missing=on_missing, table=table,
    )  # fmt: skip
    run.title = "Dose-response screen: Hill fits and quality"
    run.subtitle = _size(data)
    models = {f"Hill {n}P": HillModel(n).fit(data) for n in (2, 3, 4)}
    hill = models["Hill 4P"]
    metrics = _dense_metrics(hill, data)
    run.text("What was done", f"Hill curves were fitted to {data.n_curves:,} curves; nothing was held out or trained.")
    _headline(run, data, metrics)
    _quality(run, table, {"drug": drug, "cell": cell, "dose": dose, "response": response}, data, metrics)
    _tables_of_curves(run, data, metrics, hill)
    _heatmap(run, data, metrics)
    _hill_panels(run, data, models)


def predict(
    model: Path,
    queries: Path,
    *,
    smiles: Path | None = None,
    expression: Path | None = None,
    extrapolate: bool = False,
    drug: str = "drug",
    cell: str = "cell_line",
    dose: str = "dose_uM",
    run: Run,
) -> None:
    """Predict inhibition with a fitted model, for drugs, lines and doses listed in a table; both may be new.

    Parameters
    ----------
    model
        The folder artefacts/model of a `fit` run.
    queries
        Table with a drug and a line per row, optionally a dose.
    smiles
        Table with columns drug and smiles, for drugs that the model does not know (may be the table of queries itself).
    expression
        Table with one row per line, for lines that the model does not know: name in the first column, then the genes.
    extrapolate
        Without doses in the queries: cover the range of the whole screen, also where the pair was not tested.
    drug
        Column with the drug's name.
    cell
        Column with the line's name.
    dose
        Column with the dose in uM; without it 61 doses cover the range that was tested for the pair (for its drug, if the
        pair was not measured; of the whole screen, if the drug was not).
    """
    import numpy as np
    import pandas as pd

    from assay._core.files import read_json, read_table

    from ._arcanet import ARCANet
    from ._data import _text
    from ._metrics import curve_metrics
    from ._ranges import TestedRanges, outside

    if not model.is_dir():
        raise InputError(f"{model} is not a folder: give the folder artefacts/model of a fit.")
    fitted = ARCANet.from_pretrained(model)
    limits = model / "dose_range.json"
    ranges = TestedRanges.from_json(read_json(limits), limits) if limits.is_file() else None
    table = read_table(queries, required=[drug, cell], what="queries")
    if not len(table):
        raise InputError(f"{queries} has no rows: list a drug and a line per row.")
    given = dose in table.columns
    if given and extrapolate:
        raise InputError(f"{queries} has a column {dose!r}, so --extrapolate has nothing to do: leave it out.")
    if not given and ranges is None:
        raise InputError(f"{queries} has no column {dose!r} and {limits} is missing: add doses to the queries.")
    try:
        names = _text(table[drug], drug), _text(table[cell], cell)
    except InputError as error:
        raise InputError(f"{queries}: {error}") from None
    strangers = _strangers(run, fitted, model, queries, names, smiles, expression)
    pairs, pair = np.unique(np.column_stack(names), axis=0, return_inverse=True)
    low, high = (
        np.full((2, len(pairs)), np.nan) if ranges is None else np.array([ranges.find(d, c) for d, c in pairs]).T
    )
    if given:
        z = pd.to_numeric(table[dose], errors="coerce").to_numpy(float)
        good = np.isfinite(z) & (z > 0)
        if not good.all():
            raise InputError(f"{queries}, row {int(np.argmax(~good)) + 1}: {dose} must be > 0 (uM).")
    else:
        # Every pair once, in the order of the queries.
        first = np.sort(np.unique(pair, return_index=True)[1])
        start, end = (np.full(len(pairs), v) for v in ranges.screen) if extrapolate and ranges else (low, high)
        if (start >= end).any():
            d, c = pairs[int(np.argmax(start >= end))]
            raise InputError(f"Only one dose was tested for {d} on {c}: add a column {dose!r} with doses to {queries}.")
        share = np.linspace(0, 1, _GRID)
        grid = 10.0 ** (np.log10(start)[:, None] + np.log10(end / start)[:, None] * share)
        z = grid[pair[first]].ravel()
        pair = np.repeat(pair[first], _GRID)
        names = pairs[pair, 0], pairs[pair, 1]
    mean, std = _predict_pairs(run, fitted, pairs, pair, z, *strangers)
    _applicability(run, fitted, *strangers)
    out = pd.DataFrame({"drug": names[0], "cell_line": names[1], "dose_uM": z, "inhibition": mean})
    if std is not None:
        out["std"] = std
    if ranges is None:
        out["extrapolated"] = pd.array([pd.NA] * len(out), dtype="boolean")
        run.warn(f"{limits} is missing, so which doses were tested is not known: the column extrapolated is empty.")
    else:
        beyond = outside(z, low[pair], high[pair])
        out["extrapolated"] = beyond
        if not ranges.drugs:
            run.warn(
                "The model comes from an older version that kept only the screen's range of doses: extrapolated marks doses "
                "outside that, not outside what was tested for the drug; fit again to have it by drug."
            )
        else:
            untested = sorted(set(pairs[:, 0]) - set(ranges.drugs))
            if untested:
                run.warn(
                    f"{len(untested)} drug(s) were never measured: their range of doses is the whole screen's "
                    f"({ranges.screen[0]:.3g} to {ranges.screen[1]:.3g} uM)."
                )
        if beyond.any():
            run.warn(
                f"{int(beyond.sum()):,} of {len(out):,} predictions are at doses that were not tested for the pair (column "
                "extrapolated): nothing measured bounds them."
            )
        run.result(extrapolated=int(beyond.sum()))
    run.title = "Dose-response predictions"
    run.subtitle = f"{len(pairs):,} pairs of a drug and a line, {len(out):,} doses"
    run.table(
        "predictions",
        out,
        caption="Predicted inhibition (0 none, 1 all dead); std of a new measurement; extrapolated: dose outside the tested "
        "range.",
        show=given,  # a curve is read in its picture
    )
    if not given:
        at = pair[::_GRID]
        found = curve_metrics(
            z.reshape(-1, _GRID), mean.reshape(-1, _GRID), tested=(low[at], high[at]), extrapolate=extrapolate
        )
        found.insert(0, "cell_line", pairs[at, 1])
        found.insert(0, "drug", pairs[at, 0])
        _predicted_panels(run, found, z.reshape(-1, _GRID), mean.reshape(-1, _GRID), std)
        run.table(
            "curve_metrics",
            found,
            caption="IC50 (µM; ∞ where 50 % is not reached), largest effect and AAC of every predicted curve, over the doses "
            "from dose_min to dose_max (µM).",
            columns=[
                "drug",
                "cell_line",
                "ic50",
                "ic50_status",
                "e_max",
                "aac",
                "dose_min",
                "dose_max",
                "extrapolated",
            ],
        )
    run.result(rows=len(out))


def _predicted_panels(
    run: Run, found: pd.DataFrame, doses: np.ndarray, mean: np.ndarray, std: np.ndarray | None, most: int = 12
) -> None:
    """The first curves, as pictures."""
    import numpy as np

    from ._report import plot_curves

    nothing = np.empty(0)
    panels = []
    for j, row in enumerate(found.head(most).itertuples()):
        spread = None if std is None else 1.96 * std.reshape(mean.shape)[j]
        panels.append(
            {
                "title": f"{row.drug} / {row.cell_line}"[:28],
                "subtitle": f"IC50 {row.ic50:.3g} µM" if row.ic50_status == "reached" else "50 % not reached",
                "dose": nothing,
                "effect": nothing,
                "sd": nothing,
                "held_out": nothing.astype(bool),
                "grid": doses[j],
                "curves": {"ARCANet": mean[j]},
                "band": None if spread is None else (mean[j] - spread, mean[j] + spread),
            }
        )
    more = f" The first {most} of {len(found):,}." if len(found) > most else ""
    fig = plot_curves(panels, n_columns=min(4, len(panels)))
    run.figure("predicted_curves", fig, caption=f"Predicted curves; dotted: half of the cells are inhibited.{more}")


def _strangers(
    run: Run,
    fitted: Any,
    model: Path,
    queries: Path,
    names: tuple[np.ndarray, np.ndarray],
    smiles: Path | None,
    expression: Path | None,
) -> tuple[dict[str, str], dict[str, pd.Series]]:
    """SMILES of the drugs and expression of the lines that the model does not know; refuses what it cannot predict."""
    import pandas as pd

    from assay._core.files import read_table

    from ._data import _names, _read_smiles, _text

    drugs, cells = fitted._strangers(*names)
    preset = fitted.preset
    structures: dict[str, str] = {}
    rows: dict[str, pd.Series] = {}
    if drugs:
        if fitted.drugs_.kind == "identity":
            raise InputError(
                f"{queries}: the model in {model} knows its drugs by name only and has not seen {_names(drugs)}; fit with "
                "--smiles and --preset new_drugs to predict new drugs."
            )
        if smiles is None:
            raise InputError(
                f"{queries}: the model has not seen the drug(s) {_names(drugs)}; give their structures with --smiles."
            )
        table = read_table(smiles, required=["drug", "smiles"], what="SMILES table")
        try:
            # Of a drug that is listed several times the last structure would win; two different ones are a mistake.
            table = table.assign(drug=_text(table["drug"], "drug"))
            table = table[table["drug"].isin(drugs)].drop_duplicates(["drug", "smiles"])
            twice = sorted(set(table["drug"][table["drug"].duplicated()]))
            if twice:
                raise InputError(f"Several structures are given for {_names(twice)}: keep one.")
            structures = _read_smiles(table) or {}
        except InputError as error:
            raise InputError(f"{smiles}: {error}") from None
        lacking = [d for d in drugs if d not in structures]
        if lacking:
            raise InputError(
                f"{smiles} has no structure for the drug(s) {_names(lacking)}, which the model has not seen."
            )
        if preset not in ("new_drugs", "paper-drugs"):
            run.warn(f"The model was fitted with preset {preset}: for new drugs --preset new_drugs is the tested one.")
    if cells:
        if fitted.cells_.kind == "identity":
            raise InputError(
                f"{queries}: the model in {model} knows its lines by name only and has not seen {_names(cells)}; fit with "
                "--expression and --preset new_cells to predict new lines."
            )
        if expression is None:
            raise InputError(
                f"{queries}: the model has no expression of the line(s) {_names(cells)}; give it with --expression."
            )
        genes = read_table(expression, what="expression table")
        genes = genes.set_index(genes.columns[0])
        genes.index = genes.index.map(lambda name: str(name).strip())
        genes.columns = genes.columns.map(str)
        lacking = [c for c in cells if c not in genes.index]
        if lacking:
            raise InputError(
                f"{expression} has no row for the line(s) {_names(lacking)}, which the model has not seen."
            )
        genes = genes.loc[genes.index.isin(cells)]
        for repeated, what in ((genes.index, "line"), (genes.columns, "gene")):
            if repeated.has_duplicates:
                twice = sorted(set(repeated[repeated.duplicated()]))
                raise InputError(f"{expression} holds the {what}(s) {_names(twice)} more than once: keep one.")
        genes = genes.reindex(columns=fitted.cells_.genes).apply(pd.to_numeric, errors="coerce")
        absent = genes.isna().sum(axis=1)
        for c in cells:
            rows[c] = genes.loc[c]
            try:
                fitted.cells_.align(rows[c])
            except InputError as error:
                raise InputError(f"{expression}, line {c}: {error}") from None
        if absent.any():
            run.warn(
                f"{int((absent > 0).sum())} new line(s) lack a value for up to {int(absent.max())} of the "
                f"{genes.shape[1]} training genes: those take the training mean."
            )
        if preset == "measured" or preset == "new_drugs":
            run.warn(f"The model was fitted with preset {preset}: for new lines --preset new_cells is the tested one.")
    return structures, rows


def _applicability(run: Run, fitted: Any, structures: dict[str, str], rows: dict[str, pd.Series]) -> None:
    """How near the new drugs and lines are to those of the training: a table, and a note where some are far."""
    import pandas as pd

    from ._data import _names

    found: list[dict[str, Any]] = []
    for d in structures:
        reach = fitted.applicability(smiles=structures[d])
        entry = {"kind": "drug", "name": d, "nearest": reach["nearest_drug"], "tanimoto": reach["tanimoto"]}
        found.append(entry | {"far": bool(reach["warnings"])})
    for c in rows:
        reach = fitted.applicability(expression=rows[c])
        entry = {"kind": "line", "name": c, "nearest": reach["nearest_cell"], "distance": reach["cell_distance"]}
        found.append(entry | {"far": bool(reach["warnings"])})
    if not found:
        return
    far = {kind: [str(e["name"]) for e in found if e["kind"] == kind and e["far"]] for kind in ("drug", "line")}
    if far["drug"]:
        run.warn(
            f"{len(far['drug'])} new drug(s) are unlike every training drug, so expect little more than the mean curve: "
            f"{_names(far['drug'])}; see applicability.csv."
        )
    if far["line"]:
        run.warn(
            f"{len(far['line'])} new line(s) are far from every training line, so their curves are extrapolations: "
            f"{_names(far['line'])}; see applicability.csv."
        )
    run.table(
        "applicability",
        pd.DataFrame(found),
        caption="New drugs and lines: nearest training neighbour with its Tanimoto similarity, or its distance in units of "
        "the usual distance between training lines; far: little can be promised.",
    )


def _predict_pairs(
    run: Run,
    fitted: Any,
    pairs: np.ndarray,
    pair: np.ndarray,
    z: np.ndarray,
    structures: dict[str, str],
    rows: dict[str, pd.Series],
) -> tuple[np.ndarray, np.ndarray | None]:
    """Predict row i, which is `pairs[pair[i]]` at dose `z[i]`; the deviation is NaN where the model has none."""
    import numpy as np

    from ._arcanet import ApplicabilityWarning

    new = np.array([d in structures or c in rows for d, c in pairs])
    mean, std = np.full(len(z), np.nan), np.full(len(z), np.nan)
    by_name = np.flatnonzero(~new[pair])
    if len(by_name):
        mean[by_name], found = _with_std(fitted, pairs[pair[by_name], 0], pairs[pair[by_name], 1], z[by_name])
        if found is not None:
            std[by_name] = found
    order = np.argsort(pair, kind="stable")
    places = np.split(order, np.searchsorted(pair[order], np.arange(1, len(pairs))))
    for k in run.progress(np.flatnonzero(new), desc="new drugs and lines"):
        d, c = (str(name) for name in pairs[k])
        sides: dict[str, Any] = {"smiles": structures[d]} if d in structures else {"drug": d}
        sides |= {"expression": rows[c]} if c in rows else {"cell": c}
        at = places[k]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ApplicabilityWarning)  # said once for each drug and line, not for each pair
            try:
                mean[at], std[at] = fitted.predict_curve(z[at], **sides, return_std=True)
            except InputError as error:
                if "uncertainty" not in str(error):
                    raise
                mean[at] = fitted.predict_curve(z[at], **sides)
    return mean, std if np.isfinite(std).any() else None


def evaluate(
    responses: Path,
    *,
    setting: Setting = "smoothing",
    models: str | None = None,
    folds: int = 3,
    smiles: Path | None = None,
    expression: Path | None = None,
    epochs: int | None = None,
    drug: str = "drug",
    cell: str = "cell_line",
    dose: str = "dose_uM",
    response: str = "viability",
    dose_unit: DoseUnit = "uM",
    response_type: ResponseKind = "viability",
    response_sd: str | None = None,
    replicates: Literal["error", "median", "mean"] = "median",
    min_points: int = 4,
    on_missing: Literal["error", "drop"] = "error",
    run: Run,
) -> None:
    """Compare models on held-out data by repeated splits, paired fold by fold.

    Parameters
    ----------
    responses
        Long table of responses.
    setting
        What is held out: a dose of every curve, a dose level, the top doses, lines, or drugs.
    models
        Comma-separated: arcanet, hill2, hill3, hill4, mixed, linear, drugmean, drugmean_gp, drugmean_coregional, ridge,
        forest. Default: those that can predict what the setting holds out.
    folds
        Number of splits.
    smiles
        Table with columns drug and smiles.
    expression
        Table with one row per line: its name in the first column, then one column per gene.
    epochs
        Passes over the curves of ARCANet; default by preset.
    drug
        Column with the drug's name.
    cell
        Column with the line's name.
    dose
        Column with the dose, in the unit of dose_unit.
    response
        Column with the response.
    dose_unit
        Unit of the dose column.
    response_type
        What the response is.
    response_sd
        Column with the standard deviation of an averaged response.
    replicates
        What to do with several rows of one drug, line and dose.
    min_points
        Fewest doses of a curve.
    on_missing
        drop leaves out lines without expression, drugs without SMILES and short curves.
    """
    import numpy as np
    import pandas as pd
    from scipy.stats import t as student

    from ._metrics import noise_floor
    from ._splits import SPLITTERS

    if models is None:
        models = {"new_cells": "arcanet,drugmean,mixed", "new_drugs": "arcanet,forest"}.get(
            setting, "arcanet,hill2,hill3,hill4,drugmean_gp"
        )
        models += ",ridge" if setting == "new_cells" and expression is not None else ""
    wanted = [name.strip() for name in models.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in LABELS]
    if unknown or not wanted:
        raise InputError(f"--models: unknown {', '.join(unknown) or '(none given)'}; use some of {', '.join(LABELS)}.")
    own = {"hill2", "hill3", "hill4", "linear"} & set(wanted)
    if setting in ("new_cells", "new_drugs") and own:
        raise InputError(
            f"--setting {setting}: {', '.join(sorted(own))} can only predict measured pairs; leave them out of --models."
        )
    if setting == "new_drugs" and "mixed" in wanted:
        raise InputError("--setting new_drugs: mixed needs measurements of the drug; leave it out of --models.")
    if "ridge" in wanted and expression is None:
        raise InputError("--models: ridge predicts from gene expression; give it with --expression or leave ridge out.")
    _, data = _read(
        run, responses, smiles, expression, drug=drug, cell=cell, dose=dose, dose_unit=dose_unit,
        response=response, response_type=response_type, response_sd=response_sd, replicates=replicates, min_points=min_points,
        on_missing=on_missing,
    )  # fmt: skip
    run.title = f"Dose-response models compared: {setting.replace('_', ' ')}"
    run.subtitle = _size(data)
    preset: Preset = setting if setting in ("new_cells", "new_drugs") else "measured"  # type: ignore[assignment]
    rows, by_drug, tested = [], [], np.zeros(data.mask.shape, bool)
    splits = list(SPLITTERS[setting](data, folds, random_state=run.seed))
    for k, (train, test) in enumerate(run.progress(splits, desc=setting)):
        tested |= test
        for name in wanted:
            scored = _score(run, name, data, train, test, preset, epochs, 1, key=f"fold{k}-{name}")
            rows.append({"fold": k, "model": LABELS[name], **scored["summary"]})
            by_drug.append(scored["by_drug"].assign(fold=k, model=LABELS[name]))
            run.metric(len(rows), fold=k, mse=scored["summary"]["mse"])
            run.log(f"fold {k + 1}/{folds}  {LABELS[name]}: MSE {scored['summary']['mse']:.4g}")
    table = pd.DataFrame(rows)
    floor = noise_floor(data, tested)
    pivot = table.pivot(index="fold", columns="model", values="mse")
    summary = []
    reference = pivot[LABELS[wanted[0]]]
    for label in pivot.columns:
        values, difference = pivot[label].to_numpy(), (pivot[label] - reference).to_numpy()
        n = len(values)
        half = student.ppf(0.975, n - 1) / np.sqrt(n) if n > 1 else np.nan
        spread = half * difference.std(ddof=1) if n > 1 else np.nan
        width = half * values.std(ddof=1) if n > 1 else np.nan
        summary.append(
            {
                "model": label,
                "mse": values.mean(),
                "mse_low": max(values.mean() - width, 1e-9) if n > 1 else values.mean(),
                "mse_high": values.mean() + width if n > 1 else values.mean(),
                "difference": difference.mean(),
                "difference_low": difference.mean() - spread,
                "difference_high": difference.mean() + spread,
                "times_floor": values.mean() / floor,
            }
        )
    result = pd.DataFrame(summary).sort_values("mse")
    run.result(
        best_model=str(result["model"].iloc[0]), best_mse=float(result["mse"].iloc[0]), noise_floor=floor, folds=folds
    )
    from ._report import plot_errors

    run.figure(
        "errors",
        plot_errors(result, floor),
        caption=f"Mean over {folds} folds with 95 % Student intervals; the line is the error of a perfect model.",
    )
    run.table(
        "metrics",
        result,
        caption=f"Errors by model; difference to {LABELS[wanted[0]]} with paired 95 % intervals (negative: better).",
    )
    run.table("metrics_by_fold", table, show=False)
    run.table("metrics_by_drug", pd.concat(by_drug, ignore_index=True), show=False)


# --- reading ------------------------------------------------------------------------------------------------------------


def _read(
    run: Run,
    responses: Path,
    smiles: Path | None,
    expression: Path | None,
    *,
    table: pd.DataFrame | None = None,
    dose_unit: DoseUnit = "uM",
    **options: Any,
) -> tuple[pd.DataFrame, DoseResponseData]:
    """Read and check the user's tables; what the checks remark becomes a note of the report."""
    from assay._core.files import read_table

    from ._data import DoseResponseData

    if table is None:
        needed = [options[name] for name in ("drug", "cell", "dose", "response")]
        try:
            table = read_table(responses, required=needed, what="responses")
        except InputError as error:
            option = next(
                (o for o in ("drug", "cell", "dose", "response") if f"no column {options[o]!r}" in str(error)), ""
            )
            raise InputError(f"{error}; name yours with --{option}" if option else str(error)) from error
    table = _in_micromolar(run, table, options["dose"], dose_unit)
    molecules = None if smiles is None else read_table(smiles, required=["drug", "smiles"], what="SMILES table")
    genes = None
    if expression is not None:
        genes = read_table(expression, what="expression table")
        genes = genes.set_index(genes.columns[0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            data = DoseResponseData.from_long(table, smiles=molecules, expression=genes, **options)
        except InputError as error:
            raise InputError(f"{responses}: {error}") from error
    _relay(run, caught)
    run.log(_size(data))
    return table, data


def _in_micromolar(run: Run, table: pd.DataFrame, dose: str, unit: DoseUnit) -> pd.DataFrame:
    """Return the table with its doses in uM; doses that look like another unit get a note."""
    import pandas as pd

    if not pd.api.types.is_numeric_dtype(table[dose]):
        return table  # the reader of the curves names the row
    table = table.assign(**{dose: table[dose] * _MICROMOLAR[unit]})
    # A drug is hardly ever dissolved above a millimolar: such a dose is a nanomolar number under a micromolar name.
    if table[dose].max() > 1000:
        run.warn(f"The highest dose is {table[dose].max():g} uM; if the column {dose!r} is in nM, give --dose-unit nM.")
    return table


def _relay(run: Run, caught: list[warnings.WarningMessage]) -> None:
    for message in caught:
        if issubclass(message.category, UserWarning):
            run.warn(str(message.message))
        else:
            warnings.warn_explicit(message.message, message.category, message.filename, message.lineno)


def _plates(run: Run, path: Path) -> pd.DataFrame:
    from assay._core.files import read_table

    from ._screen import edge_effect, normalise_plates

    wells = read_table(path, required=["plate", "role", "signal"], what="plate table")
    wells = normalise_plates(wells)
    poor = wells.groupby("plate")["plate_z_prime"].first()
    if (poor < 0.5).any():
        names = [str(name) for name in poor.index[poor < 0.5]]
        run.warn(f"{len(names)} plate(s) have Z' below 0.5 (controls too close or too noisy): {', '.join(names[:5])}.")
    controls = wells[wells["role"] == "negative_control"]
    if "well" in wells.columns and len(controls):
        edges = edge_effect(controls)
        run.table("edge_effect", edges, caption="Control wells at the edge of each plate against inner ones.")
        bad = edges[(edges["q_value"] < 0.05) & ((edges["ratio"] - 1).abs() > 0.1)]
        if len(bad):
            run.warn(
                f"{len(bad)} plate(s) show an edge effect above 10 %: {', '.join(map(str, bad['plate'][:5]))}; leave out "
                "edge wells or randomise positions."
            )
    return wells[wells["role"] == "sample"].reset_index(drop=True)


def _size(data: DoseResponseData) -> str:
    counts = data.mask.sum(1)
    doses = f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()}-{counts.max()}"
    extra = "" if data.expression is None else f", {data.expression.shape[1]:,} genes"
    extra += "" if data.smiles is None else ", molecules"
    return f"{len(data.drugs)} drugs, {len(data.cells)} cell lines, {data.n_curves:,} curves of {doses} doses{extra}"


# --- models -------------------------------------------------------------------------------------------------------------


def _make(name: str, run: Run, preset: str, epochs: int | None, ensemble: int) -> Any:
    from . import _baselines as baselines
    from ._hill import HillModel, MixedEffectsHill

    if name == "arcanet":
        from ._arcanet import ARCANet

        return ARCANet(
            preset=cast(Any, preset), epochs=epochs, n_ensemble=ensemble, random_state=run.seed, device=run.device
        )
    makers: dict[str, Any] = {
        "hill2": lambda: HillModel(2),
        "hill3": lambda: HillModel(3),
        "hill4": lambda: HillModel(4),
        "mixed": MixedEffectsHill,
        "linear": baselines.LinearInterpolation,
        "drugmean": baselines.DrugMeanCurve,
        "drugmean_gp": lambda: baselines.DrugMeanCurve("gp"),
        "drugmean_coregional": lambda: baselines.DrugMeanCurve("coregional"),
        "ridge": baselines.ExpressionRidge,
        "forest": lambda: baselines.FunctionalForest(random_state=run.seed),
    }
    return makers[name]()


class _Checkpoint:
    """The run's checkpoint under one name, as ARCANet wants it."""

    # A state of some MB every epoch would cost more than the epoch: at most one in this many seconds.
    every_s = 5.0

    def __init__(self, run: Run, name: str):
        import time

        self._run, self._name, self._clock, self._last = run, name, time.monotonic, time.monotonic()

    def save(self, arrays: dict[str, Any], meta: dict[str, Any]) -> None:
        # The last epoch is always kept: a run that stops later, in its tables or pictures, need not train again.
        if meta["epoch"] == meta["epochs"] or self._clock() - self._last >= self.every_s:
            self._run.save_checkpoint(self._name, arrays, meta)
            self._last = self._clock()

    def load(self) -> Any:
        return self._run.load_checkpoint(self._name)


def _train(run: Run, model: Any, name: str, data: DoseResponseData, train: Any, key: str) -> Any:
    """Fit any of the models; ARCANet reports its loss by epoch and can be resumed."""
    if name != "arcanet":
        return model.fit(data, train)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(
            data,
            train,
            callback=lambda state: run.metric(int(state["epoch"]), **{f"loss_{key.replace('-', '_')}": state["loss"]}),
            checkpoint=_Checkpoint(run, key),
        )
    _relay(run, caught)
    return model


def _with_std(model: Any, drug: Any, cell: Any, dose: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Prediction and deviation, None where the model knows no uncertainty."""
    import numpy as np

    try:
        mean, std = model.predict(drug, cell, dose, return_std=True)
    except InputError as error:
        if "uncertainty" not in str(error):
            raise
        return model.predict(drug, cell, dose), None
    return mean, std if np.isfinite(std).all() else None


def _score(
    run: Run,
    name: str,
    data: DoseResponseData,
    train: np.ndarray,
    test: np.ndarray,
    preset: str,
    epochs: int | None,
    ensemble: int,
    key: str,
) -> dict[str, Any]:
    """Fit one model on `train`, predict `test`: predictions, deviations, the errors by curve and by drug."""
    import time

    import numpy as np
    import pandas as pd

    start = time.perf_counter()
    model = _train(run, _make(name, run, preset, epochs, ensemble), name, data, train, key)
    row, column = np.nonzero(test)
    mean, std = _with_std(
        model, data.drugs[data.drug_index[row]], data.cells[data.cell_index[row]], data.dose[row, column]
    )
    truth = data.effect[row, column]
    error = mean - truth
    sse = np.bincount(row, error**2, minlength=data.n_curves)
    count = np.bincount(row, minlength=data.n_curves)
    held = np.flatnonzero(count)
    # Curves, not points, are resampled: points of one curve err together.
    draws = np.random.default_rng(0).multinomial(len(held), np.full(len(held), 1 / len(held)), size=_REPEATS)
    boot = (draws @ sse[held]) / (draws @ count[held])
    frame = pd.DataFrame(
        {"curve": row, "drug": data.drugs[data.drug_index[row]], "y": truth, "p": mean, "se": error**2}
    )
    by_drug = frame.groupby("drug").agg(mse=("se", "mean"), n_points=("se", "size")).reset_index()
    by_drug["r"] = by_drug["drug"].map(frame.groupby("drug")[["y", "p"]].apply(_pearson))
    enough = frame.groupby("curve").filter(lambda g: len(g) >= 4)  # a correlation of three points says nothing
    r_curve = float(enough.groupby("curve")[["y", "p"]].apply(_pearson).median()) if len(enough) else np.nan
    summary = {
        "mse": float((error**2).mean()),
        "mse_low": float(np.quantile(boot, 0.025)),
        "mse_high": float(np.quantile(boot, 0.975)),
        "r": _pearson(frame),
        "r_per_curve": r_curve,
        "inside_95": float((np.abs(error) <= 1.959964 * std).mean()) if std is not None else np.nan,
        "n_points": len(row),
        "seconds": time.perf_counter() - start,
    }
    full = {"mean": np.full(data.mask.shape, np.nan), "std": np.full(data.mask.shape, np.nan)}
    full["mean"][row, column] = mean
    if std is not None:
        full["std"][row, column] = std
    return {"model": model, "summary": summary, "by_drug": by_drug, "sse": sse, "count": count, **full}


def _pearson(frame: pd.DataFrame) -> float:
    import numpy as np

    y, p = frame["y"].to_numpy(), frame["p"].to_numpy()
    if len(y) < 3 or np.ptp(y) == 0 or np.ptp(p) == 0:
        return float("nan")
    return float(np.corrcoef(y, p)[0, 1])


# --- the fit and its report ---------------------------------------------------------------------------------------------


def _rivals(data: DoseResponseData, preset: str) -> tuple[str, list[str], str]:
    """Setting of the held-out test, models that can take it, and how to say it."""
    import numpy as np

    if preset == "new_cells":
        rivals = ["arcanet", "drugmean", "mixed"] + (["ridge"] if data.expression is not None else [])
        return "new_cells", rivals, "all curves of a fifth of the cell lines"
    if preset in ("new_drugs", "paper-drugs"):
        return "new_drugs", ["arcanet", "drugmean"], "all curves of a fifth of the drugs"
    rivals = ["arcanet", "hill2", "hill3", "hill4", "linear", "drugmean", "drugmean_gp"]
    if np.bincount(data.cell_index, data.mask.sum(1)).max() <= _COREGIONAL_POINTS:
        rivals.append("drugmean_coregional")
    return "smoothing", rivals, "one random dose of every curve"


def _fit(
    run: Run,
    table: pd.DataFrame,
    columns: dict[str, str],
    data: DoseResponseData,
    *,
    preset: str,
    epochs: int | None,
    ensemble: int,
    focus: str | None,
) -> None:
    import numpy as np
    import pandas as pd

    from assay._core.files import write_json

    from ._hill import HillModel
    from ._metrics import noise_floor, value_variance
    from ._ranges import TestedRanges
    from ._report import plot_calibration, plot_errors
    from ._splits import SPLITTERS

    if focus is not None and focus not in set(data.drugs):
        raise InputError(f"--focus: the screen has no drug {focus!r}.")
    _make("arcanet", run, preset, epochs, ensemble)._settle(data, data.mask)  # refuse before anything is trained
    run.title = "Dose-response curves: ARCANet beside Hill fits"
    run.subtitle = _size(data)
    setting, rivals, held_text = _rivals(data, preset)
    parts = {"new_cells": len(data.cells), "new_drugs": len(data.drugs)}.get(setting, 5)
    train, test = next(SPLITTERS[setting](data, min(5, parts), random_state=run.seed))
    floor = noise_floor(data, test)
    scored: dict[str, dict[str, Any]] = {}
    for name in run.progress(rivals, desc="held-out test"):
        scored[name] = _score(run, name, data, train, test, preset, epochs, ensemble, key=f"test-{name}")
        run.log(
            f"{LABELS[name]}: held-out MSE {scored[name]['summary']['mse']:.4g} ({scored[name]['summary']['seconds']:.1f} s)"
        )
    metrics = pd.DataFrame([{"model": LABELS[n], **s["summary"]} for n, s in scored.items()])
    metrics["times_floor"] = metrics["mse"] / floor
    metrics = metrics.sort_values("mse").reset_index(drop=True)

    run.log("fitting ARCANet to all points")
    final = _train(run, _make("arcanet", run, preset, epochs, ensemble), "arcanet", data, None, "final")
    folder = run.artefact_folder("model")
    final.save_pretrained(folder)
    write_json(folder / "dose_range.json", TestedRanges.of(data).to_json())
    hill = HillModel(4).fit(data)
    curves = _dense_metrics(final, data, gp=getattr(final, "residual_gp_", None), seed=run.seed)

    ours = scored["arcanet"]["summary"]
    run.result(
        held_out_mse_arcanet=ours["mse"],
        best_model=str(metrics["model"].iloc[0]),
        best_mse=float(metrics["mse"].iloc[0]),
        noise_floor=floor,
    )
    hills = metrics[metrics["model"].str.match(r"Hill \dP")]
    if len(hills):
        run.result(best_hill_mse=float(hills["mse"].min()))
    _headline(run, data, curves)
    run.text("What was done", _sentence(data, held_text, metrics, floor))
    _compare_notes(run, metrics, scored)
    _quality(run, table, columns, data, curves)
    gp = getattr(final, "residual_gp_", None)
    spread = value_variance(data)[data.mask]
    if gp is not None and np.isfinite(spread).any() and gp.noise_ < 0.25 * np.nanmean(spread):
        run.warn(
            f"The residual GP's noise ({np.sqrt(gp.noise_):.2g}) is far below that of the replicates "
            f"({np.sqrt(np.nanmean(spread)):.2g}): the network has memorised points; use fewer epochs, trust the intervals less."
        )

    if ours["inside_95"] < 0.9:
        z = np.abs(data.effect - scored["arcanet"]["mean"])[test] / scored["arcanet"]["std"][test]
        run.warn(
            f"ARCANet's 95 % intervals hold only {ours['inside_95']:.0%} of the held-out points (see the calibration picture): "
            f"{np.quantile(z, 0.95) / 1.959964:.1f} times as wide they would have held 95 %."
        )
    _curve_panels(run, data, test, scored, setting)
    run.figure(
        "errors",
        plot_errors(metrics, floor),
        caption=f"Held out: {held_text}. Intervals: 95 %, bootstrap over curves. Noise floor: the error of a perfect model, "
        "from the replicates.",
    )
    run.table(
        "metrics",
        metrics,
        columns=["model", "mse", "mse_low", "mse_high", "times_floor", "r", "inside_95", "seconds"],
        caption="Held-out errors by model (MSE in units of inhibition²; times_floor: multiples of the noise floor; inside_95: "
        "share of held-out points inside the 95 % interval).",
    )
    by_drug = [s["by_drug"].assign(model=LABELS[n]) for n, s in scored.items()]
    run.table("metrics_by_drug", pd.concat(by_drug, ignore_index=True), show=False)
    nominal = np.array([0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])
    shown = {
        n: s
        for n, s in scored.items()
        if n in ("arcanet", "drugmean_gp", "hill4", "ridge") and np.isfinite(s["std"][test]).all()
    }
    if shown:
        run.figure(
            "calibration",
            plot_calibration(
                {
                    LABELS[n]: (nominal, _coverage(data.effect[test], s["mean"][test], s["std"][test], nominal))
                    for n, s in shown.items()
                }
            ),
            caption="Calibration of the intervals on the held-out points. Above the diagonal: too wide; below: too narrow.",
        )
    _heatmap(run, data, curves)
    _waterfall(run, data, curves, focus)
    _tables_of_curves(run, data, curves, hill)
    _predictions(run, data, final, scored, test)


def _sentence(data: DoseResponseData, held_text: str, metrics: pd.DataFrame, floor: float) -> str:
    import math

    best = metrics.iloc[0]
    text = (
        f"To compare the models {held_text} was held out and predicted from the rest. Smallest error: {best['model']} with "
        f"a mean squared error of {best['mse']:.2g} (an error of {100 * math.sqrt(best['mse']):.1f} percentage points of "
        "inhibition)."
    )
    if math.isfinite(floor):
        text += (
            f" The replicates alone scatter by {100 * math.sqrt(floor):.1f} points, so no model can go below "
            f"{floor:.2g}: the best is {best['mse'] / floor:.1f} times that."
        )
    else:
        text += " Without replicates there is no noise floor to compare with."
    return text + "\n\nThen ARCANet was fitted to all points; curves, IC50 and AAC below come from that fit."


def _compare_notes(run: Run, metrics: pd.DataFrame, scored: dict[str, dict[str, Any]]) -> None:
    """Say plainly when something simpler is as good as the network."""
    import numpy as np

    ours = scored["arcanet"]
    held = np.flatnonzero(ours["count"])
    draws = np.random.default_rng(0).multinomial(len(held), np.full(len(held), 1 / len(held)), size=_REPEATS)
    for name, other in scored.items():
        if name == "arcanet":
            continue
        difference = (draws @ (other["sse"] - ours["sse"])[held]) / (draws @ ours["count"][held])
        if np.quantile(difference, 0.975) < 0:
            run.warn(
                f"{LABELS[name]} predicts the held-out points better than ARCANet (MSE {other['summary']['mse']:.3g} against "
                f"{ours['summary']['mse']:.3g}, interval of the difference excludes 0): prefer it for this screen."
            )


def _coverage(truth: np.ndarray, mean: np.ndarray, std: np.ndarray, nominal: np.ndarray) -> np.ndarray:
    import numpy as np
    from scipy.stats import norm

    z = np.abs(truth - mean) / std
    return np.array([(z <= norm.ppf(0.5 + level / 2)).mean() for level in nominal])


def _dense_metrics(
    model: Any, data: DoseResponseData, gp: Any = None, seed: int = 0, chunk: int = 2000
) -> pd.DataFrame:
    """Metrics of every curve from the model's dense curve over the curve's own dose range, AAC intervals where known."""
    import numpy as np
    import pandas as pd

    from ._metrics import curve_metrics

    measured = np.where(data.mask, data.dose, np.nan)
    low, high = np.nanmin(measured, 1), np.nanmax(measured, 1)
    share = np.linspace(0, 1, _GRID)
    grid = 10.0 ** (np.log10(low)[:, None] + np.log10(high / low)[:, None] * share)
    rng = np.random.default_rng(seed)
    parts = []
    for at in range(0, data.n_curves, chunk):
        rows = np.arange(at, min(at + chunk, data.n_curves))
        z = grid[rows]
        mean = model.predict(data.drugs[data.drug_index[rows]][:, None], data.cells[data.cell_index[rows]][:, None], z)
        found = curve_metrics(z, mean)
        if gp is not None:
            x = np.log10(z)
            noise = rng.standard_normal((_DRAWS, _GRID))
            bounds = np.empty((len(rows), 2))
            for i, j in enumerate(rows):
                _, covariance = gp.posterior(int(j), z[i])
                values, vectors = np.linalg.eigh(covariance)
                draws = mean[i] + noise @ (vectors * np.sqrt(np.maximum(values, 0))).T
                area = np.trapezoid(np.maximum(draws, 0), x[i], axis=1) / (x[i, -1] - x[i, 0])
                bounds[i] = np.quantile(area, [0.025, 0.975])
            found["aac_low"], found["aac_high"] = bounds.T
        parts.append(found)
    out = pd.concat(parts, ignore_index=True)
    out.insert(0, "cell_line", data.cells[data.cell_index])
    out.insert(0, "drug", data.drugs[data.drug_index])
    return out


def _headline(run: Run, data: DoseResponseData, curves: pd.DataFrame) -> None:
    run.result(
        curves=data.n_curves,
        ic50_reached_share=float((curves["ic50_status"] == "reached").mean()),
    )


def _quality(
    run: Run, table: pd.DataFrame, columns: dict[str, str], data: DoseResponseData, curves: pd.DataFrame
) -> None:
    """What a pharmacologist wants to be told before using the numbers."""
    import numpy as np

    from ._data import _names
    from ._metrics import value_variance
    from ._screen import biphasic_test, flag_outlier_replicates

    status = curves["ic50_status"].value_counts(normalize=True)
    missing, below = status.get("not_reached", 0.0), status.get("below_range", 0.0)
    if missing > 0.2:
        run.warn(
            f"{missing:.0%} of the curves do not reach 50 % inhibition within the tested doses: their IC50 is not a number "
            "(inf, status not_reached). Rank by AAC or Emax instead."
        )
    if below > 0.02:
        run.warn(
            f"{below:.0%} of the curves are above 50 % inhibition at the lowest dose already: the IC50 given is a bound."
        )
    tops = curves.groupby("drug")["e_max"].max()
    silent = tops.index[tops < 0.2]
    if len(silent):
        run.warn(f"{len(silent)} drug(s) stay below 20 % inhibition on every line: {_names(list(silent), 4)}.")
    ranges = curves[["dose_min", "dose_max"]].round(9).drop_duplicates()
    # A tenth of a decade: smaller differences change an AAC by less than its error.
    logs = np.log10(curves[["dose_min", "dose_max"]].to_numpy())
    if (np.ptp(logs, axis=0) > 0.1).any():
        odd = (np.abs(logs - np.median(logs, axis=0)) > 0.1).any(1)
        run.warn(
            f"{int(odd.sum())} curves of {len(set(curves['drug'][odd]))} drug(s) were tested over another dose range than the "
            f"rest ({len(ranges)} ranges): compare AACs only within one range (columns dose_min, dose_max)."
        )
    first = np.abs(data.effect[:, 0]) > 0.25
    if first.mean() > 0.02 and (data.effect[first, 0] < 0).mean() > 0.5:
        run.warn(
            f"{first.mean():.0%} of the curves start more than 25 points from zero, mostly below: look at the normalisation "
            "(controls, edge wells) before calling it stimulation."
        )
    variance = value_variance(data)
    if np.isfinite(variance).any():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # curves without replicates have an empty mean
            spread = np.sqrt(np.nanmean(data.replicate_sd**2, axis=1))
        noisy = spread > 0.15
        if noisy.any():
            order = np.argsort(-np.nan_to_num(spread))[:3]
            worst = [
                f"{data.drugs[data.drug_index[j]]} on {data.cells[data.cell_index[j]]} ({100 * spread[j]:.0f})"
                for j in order
            ]
            run.warn(
                f"{int(noisy.sum())} curves ({noisy.mean():.1%}) have replicates that scatter by more than 15 points; worst: "
                f"{', '.join(worst)}."
            )
    wells = table[[columns[k] for k in ("drug", "cell", "dose", "response")]].copy()
    outlying = flag_outlier_replicates(
        wells, drug=columns["drug"], cell=columns["cell"], dose=columns["dose"], response=columns["response"]
    )
    if outlying.any():
        flagged = wells[outlying]
        curves_hit = flagged.groupby([columns["drug"], columns["cell"]]).size().sort_values(ascending=False)
        run.table("outlier_wells", flagged, show=False)
        (d, c), k = curves_hit.index[0], int(curves_hit.iloc[0])
        run.warn(
            f"{int(outlying.sum()):,} wells ({outlying.mean():.1%}) are more than five robust s.d. from the median of their "
            f"replicates, on {len(curves_hit):,} curves (most: {d} on {c}, {k}); they are listed in outlier_wells.csv, and the "
            "median of the replicates ignores them."
        )
    found = biphasic_test(data, random_state=0)
    run.table("biphasic", found.sort_values(["biphasic", "q_value"], ascending=[False, True]), show=False)
    if found["biphasic"].any():
        hit = found[found["biphasic"]].sort_values("e_min")
        run.warn(
            f"{len(hit)} curves ({len(hit) / len(found):.1%}) first stimulate and then kill (likelihood ratio against a "
            f"4-parameter Hill curve, false-discovery rate 5 %): a Hill fit misreads them; strongest: {hit['drug'].iloc[0]} on "
            f"{hit['cell_line'].iloc[0]}; all in biphasic.csv."
        )
        lines = hit["cell_line"].value_counts()
        if len(hit) >= 8 and lines.iloc[0] > 0.4 * len(hit):
            run.warn(
                f"{lines.index[0]} holds {int(lines.iloc[0])} of the {len(hit)} biphasic curves: a line-wide effect "
                "(controls, edge wells) is likelier than pharmacology."
            )
    run.result(biphasic_curves=int(found["biphasic"].sum()))
    if data.expression is None and data.smiles is None:
        run.text(
            "What this model cannot do",
            "Neither expression nor molecules were given, so only the drugs and lines of this screen can be predicted.",
        )


def _panel(
    data: DoseResponseData, j: int, test: np.ndarray, models: dict[str, Any], band_of: str | None, subtitle: str
) -> dict[str, Any]:
    import numpy as np

    use = data.mask[j]
    dose = data.dose[j, use]
    grid = np.logspace(np.log10(dose[0]), np.log10(dose[-1]), 81)
    drug, cell = str(data.drugs[data.drug_index[j]]), str(data.cells[data.cell_index[j]])
    curves, band = {}, None
    for label, model in models.items():
        if label == band_of:
            mean, std = _with_std(model, drug, cell, grid)
            band = None if std is None else (mean - 1.96 * std, mean + 1.96 * std)
            curves[label] = mean
        else:
            curves[label] = model.predict(drug, cell, grid)
    # 26 characters are what a panel holds; CCLE names carry the tissue behind the line.
    room = max(26 - min(len(drug), 14) - 3, 6)
    name, line = (text if len(text) <= k else text[: k - 1] + "…" for text, k in ((drug, 14), (cell, room)))
    return {
        "title": f"{name} / {line}",
        "subtitle": subtitle,
        "dose": dose,
        "effect": data.effect[j, use],
        "sd": data.replicate_sd[j, use],
        "held_out": test[j, use],
        "grid": grid,
        "curves": curves,
        "band": band,
    }


def _curve_panels(run: Run, data: DoseResponseData, test: np.ndarray, scored: dict[str, Any], setting: str) -> None:
    import numpy as np

    from ._report import plot_curves

    ours = scored["arcanet"]
    held = np.flatnonzero(ours["count"])
    error = np.sqrt(ours["sse"][held] / ours["count"][held])
    rank = held[np.argsort(error, kind="stable")]
    n = len(rank)
    rng = np.random.default_rng(run.seed)
    # Best and worst tenth, and the tenth around the median; four curves of each, drawn at random so that none is chosen.
    tenth = max(n // 10, min(4, n))
    middle = max(0, n // 2 - tenth // 2)
    groups = [rank[:tenth], rank[middle : middle + tenth], rank[-tenth:]]
    if setting == "smoothing":
        overlay = {"ARCANet": ours["model"], "Hill 4P": scored["hill4"]["model"], "Hill 2P": scored["hill2"]["model"]}
    else:
        other = "ridge" if "ridge" in scored else "drugmean"
        overlay = {"ARCANet": ours["model"], LABELS[other]: scored[other]["model"]}
    panels = []
    size = np.sqrt(ours["sse"] / np.maximum(ours["count"], 1))
    for group in groups:
        for j in rng.choice(group, min(4, len(group)), replace=False):
            panels.append(_panel(data, int(j), test, overlay, "ARCANet", f"held-out error {100 * size[j]:.1f} points"))
    labels = ["best tenth", "median", "worst tenth"]
    run.figure(
        "curves",
        plot_curves(panels, labels if len(panels) == 12 else ()),
        caption="Curves from the best, middle and worst tenth by held-out error of ARCANet, drawn at random within "
        "each. No model saw the points marked as held out.",
    )


def _hill_panels(run: Run, data: DoseResponseData, models: dict[str, Any]) -> None:
    import numpy as np

    from ._report import plot_curves

    fit = models["Hill 4P"].fit_
    rank = np.argsort(np.sqrt(fit.sse / fit.n_points), kind="stable")
    n, rng = len(rank), np.random.default_rng(run.seed)
    tenth = max(n // 10, min(4, n))
    middle = max(0, n // 2 - tenth // 2)
    nothing = np.zeros(data.mask.shape, bool)
    panels = []
    for group in (rank[:tenth], rank[middle : middle + tenth], rank[-tenth:]):
        for j in rng.choice(group, min(4, len(group)), replace=False):
            rmse = 100 * np.sqrt(fit.sse[j] / fit.n_points[j])
            panels.append(_panel(data, int(j), nothing, models, None, f"residual of 4P {rmse:.1f} points"))
    run.figure(
        "curves",
        plot_curves(panels, ["best tenth", "median", "worst tenth"] if len(panels) == 12 else ()),
        caption="Curves from the best, middle and worst tenth by the residual of the 4P fit, drawn at random within each.",
    )


def _heatmap(run: Run, data: DoseResponseData, curves: pd.DataFrame, most: int = 60) -> None:
    from ._report import plot_heatmap

    matrix = curves.pivot(index="drug", columns="cell_line", values="aac")
    if len(matrix) < 2 or matrix.shape[1] < 2:
        return
    caption = "AAC of every drug on every line, both clustered."
    if len(matrix) > most:
        matrix = matrix.loc[matrix.max(axis=1).nlargest(most).index]
        caption = f"AAC of the {most} drugs with the largest response on any line, clustered; all in curve_metrics.csv."
    run.figure("heatmap", plot_heatmap(matrix), caption=caption)


def _waterfall(run: Run, data: DoseResponseData, curves: pd.DataFrame, focus: str | None) -> None:
    from ._report import plot_waterfall

    spread = curves.groupby("drug")["aac"].agg(["std", "size"])
    if focus is None:
        spread = spread[spread["size"] >= 2]
        if not len(spread):
            return
        focus = str(spread["std"].idxmax())
    chosen = curves[curves["drug"] == focus].copy()
    if "aac_low" not in chosen:
        chosen["aac_low"] = chosen["aac_high"] = chosen["aac"]
        why = "This model has no interval for a curve."
    else:
        why = "Intervals: 95 % of the residual GP's posterior."
    run.figure(
        "waterfall",
        plot_waterfall(chosen, focus),
        caption=f"{focus}, the drug whose response differs most between the lines (or the one asked for). {why}",
    )


def _tables_of_curves(run: Run, data: DoseResponseData, curves: pd.DataFrame, hill: Any) -> None:
    import numpy as np

    from ._hill import hill as hill_curve
    from ._metrics import curve_metrics

    params = hill.params_
    grid = np.logspace(np.log10(curves["dose_min"]), np.log10(curves["dose_max"]), _GRID, axis=1)
    fit = hill.fit_
    shape = curve_metrics(
        grid, hill_curve(grid, fit.E0[:, None], fit.Einf[:, None], fit.k[:, None], fit.log10_x50[:, None])
    )
    out = curves.copy()
    out["hill4_ic50"], out["hill4_ic50_status"], out["hill4_aac"] = shape["ic50"], shape["ic50_status"], shape["aac"]
    both = (out["ic50_status"] == "reached") & (out["hill4_ic50_status"] == "reached")
    apart = both & (np.abs(np.log10(out["ic50"].where(both, 1) / out["hill4_ic50"].where(both, 1))) > 1)
    if apart.any():
        run.warn(
            f"{int(apart.sum())} curves have an IC50 that differs by more than tenfold between the model and the 4P Hill fit: "
            "do not rest a decision on either (columns ic50, hill4_ic50)."
        )
    shown = ["drug", "cell_line", "ic50", "ic50_status", "e_max", "aac"]
    shown += [name for name in ("aac_low", "aac_high") if name in out] + ["hill4_ic50", "hill4_ic50_status"]
    run.table(
        "curve_metrics",
        out.sort_values("aac", ascending=False),
        columns=shown,
        rows=15,
        caption="Most sensitive pairs: IC50 in µM (∞: not reached within the tested doses), Emax and AAC as fractions.",
    )
    run.table(
        "hill_parameters",
        params,
        rows=5,
        show=False,
        caption="4-parameter Hill fits.",
    )


def _predictions(
    run: Run, data: DoseResponseData, final: Any, scored: dict[str, dict[str, Any]], test: np.ndarray
) -> None:
    import numpy as np

    out = data.to_long()
    row, column = np.nonzero(data.mask)
    out["held_out"] = test[row, column]
    mean, std = _with_std(
        final, data.drugs[data.drug_index[row]], data.cells[data.cell_index[row]], data.dose[row, column]
    )
    out["arcanet"] = mean
    if std is not None:
        out["arcanet_std"] = std
    for name, entry in scored.items():
        out[f"held_out_{name}"] = entry["mean"][row, column]
    run.table("predictions", out, show=False)
