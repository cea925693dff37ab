"""The shipped sarcoma screen, the CCLE files, and readers for copies of public screens that you hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from assay._core.data import data_path, sample_path
from assay._core.errors import InputError, require
from assay._core.files import read_table

from ._data import DoseResponseData
from ._screen import normalise_plates

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "load_ccle",
    "load_sarcoma",
    "read_ctrpv2",
    "read_gdsc_raw",
    "read_nci60",
    "read_prism_secondary",
    "read_thunor",
    "sarcoma_table",
]

SLUG = "dose-response"


def sarcoma_table(n_drugs: int | None = None) -> pd.DataFrame:
    """Long table of the shipped screen: drug, cell_line, dose_uM, replicate, viability.

    Parameters
    ----------
    n_drugs : int or None, default None
        Take this many of the 144 drugs, evenly spaced in alphabetical order.
    """
    table = read_table(sample_path(SLUG, "sarcoma_viability.csv.gz"), what="sarcoma screen")
    if n_drugs is not None:
        names = np.unique(table["drug"].to_numpy().astype(str))
        if not 1 <= n_drugs <= len(names):
            raise InputError(f"n_drugs must be between 1 and {len(names)}, got {n_drugs}.")
        kept = names[np.linspace(0, len(names) - 1, n_drugs).round().astype(int)]
        table = table[table["drug"].isin(kept)].reset_index(drop=True)
    return table


def load_sarcoma(n_drugs: int | None = None, *, replicates: Literal["median", "mean"] = "median") -> DoseResponseData:
    """Sarcoma kinase-inhibitor screen: 144 drugs x 17 lines x 11 doses (0.17 nM - 10 uM) in triplicate.

    Parameters
    ----------
    n_drugs : int or None, default None
        Take this many drugs, evenly spaced in alphabetical order.
    replicates : {"median", "mean"}, default "median"

    Returns
    -------
    DoseResponseData

    References
    ----------
    Lee et al., Molecular Systems Biology (2024), doi 10.1038/s44320-023-00004-7, CC BY 4.0.

    Examples
    --------
    >>> from assay.bio.dose_response import datasets
    >>> data = datasets.load_sarcoma(n_drugs=2)
    >>> data.n_curves, data.dose.shape[1]
    (34, 11)
    """
    return DoseResponseData.from_long(sarcoma_table(n_drugs), replicates=replicates)


def load_ccle(
    *, expression: bool = False, smiles: bool = False, complete: bool = True, drugs: list[str] | None = None
) -> DoseResponseData:
    """CCLE screen: 24 drugs on up to 504 lines, 8 doses 0.0025 - 8 uM (research use; not shipped).

    Parameters
    ----------
    expression : bool, default False
        Add 1,000 genes and keep the 267 lines that have them (6,113 complete curves).
    smiles : bool, default False
        Add the molecules.
    complete : bool, default True
        Keep curves with all eight doses only.
    drugs : list of str, optional
        Keep these drugs.

    Returns
    -------
    DoseResponseData
        `replicate_sd` holds the file's `activity_sd`.

    Raises
    ------
    MissingData
        when the files are not in ``$ASSAY_DATA_DIR/dose-response`` or the cache.
    """
    table = read_table(data_path(SLUG, "ccle_dose_response.csv.gz"), what="CCLE screen")
    if drugs is not None:
        table = table[table["drug"].isin(drugs)]
    genes = molecules = None
    if expression:
        genes = read_table(data_path(SLUG, "ccle_expression_1000genes.csv.gz"), what="CCLE expression")
        genes = genes.set_index("cell_line")
        table = table[table["cell_line"].isin(genes.index)]
        genes = genes.loc[genes.index.isin(table["cell_line"])]
    if smiles:
        listed = read_table(data_path(SLUG, "drugs.csv"), what="CCLE drugs")
        molecules = dict(zip(listed["drug"], listed["smiles"], strict=True))
    data = DoseResponseData.from_long(
        table,
        response="activity_pct",
        response_type="percent_activity",
        response_sd="activity_sd",
        expression=genes,
        smiles=molecules,
    )
    return data.subset(data.mask.sum(1) == 8) if complete else data


def read_gdsc_raw(path: str | Path, *, drug_names: dict[int, str] | None = None) -> pd.DataFrame:
    """Read a GDSC1 or GDSC2 raw file (``GDSC2_public_raw_data_*.csv``) into a long table of viability.

    Every plate is normalised by its own blanks and negative controls:
    ``(I - median blank) / (median negative control - median blank)``.

    Parameters
    ----------
    path : str or Path
        Your copy of the file.
    drug_names : dict, optional
        DRUG_ID to name; without it the id is the name.

    Returns
    -------
    DataFrame
        drug, cell_line, dose_uM, plate, viability; replicates as they come.

    Notes
    -----
    1. Wells are told by TAG: "B" blank, "NC-0" (GDSC1) or "NC-1" (GDSC2) vehicle control, "L*" or "R*" a drug of the
       library. The control with more wells on the plate is used, as the two screens differ in it.
    """
    columns = ["BARCODE", "CELL_LINE_NAME", "DRUG_ID", "CONC", "INTENSITY", "TAG"]
    table = read_table(path, required=columns, what="GDSC raw data")
    tag = table["TAG"].astype(str).str.upper()
    counts = {name: int((tag == name).sum()) for name in ("NC-0", "NC-1")}
    control = max(counts, key=lambda name: counts[name])
    role = np.select(
        [tag == "B", tag == control, tag.str.match(r"[LR]\d")], ["blank", "negative_control", "sample"], ""
    )
    wells = table.assign(role=role)[role != ""]
    out = normalise_plates(wells, plate="BARCODE", signal="INTENSITY")
    out = out[out["role"] == "sample"]
    drug = out["DRUG_ID"].astype(float).astype(int)
    return _long(
        drug.map(drug_names).fillna(drug.astype(str)) if drug_names else drug.astype(str),
        out["CELL_LINE_NAME"],
        out["CONC"],
        out["viability"],
        plate=out["BARCODE"],
    )


def read_ctrpv2(folder: str | Path) -> pd.DataFrame:
    """Read CTRPv2 (``v20.data.per_cpd_post_qc.txt`` and its ``v20.meta.*`` tables) into a long table.

    Parameters
    ----------
    folder : str or Path
        The unpacked archive.

    Returns
    -------
    DataFrame
        drug, cell_line, dose_uM, viability (``cpd_avg_pv``), smiles.
    """
    folder = Path(folder)
    points = read_table(
        folder / "v20.data.per_cpd_post_qc.txt",
        required=["experiment_id", "master_cpd_id", "cpd_conc_umol", "cpd_avg_pv"],
        what="CTRPv2 data",
    )
    runs = read_table(
        folder / "v20.meta.per_experiment.txt", required=["experiment_id", "master_ccl_id"], what="CTRPv2 experiments"
    ).drop_duplicates("experiment_id")
    lines = read_table(
        folder / "v20.meta.per_cell_line.txt", required=["master_ccl_id", "ccl_name"], what="CTRPv2 cell lines"
    )
    compounds = read_table(
        folder / "v20.meta.per_compound.txt",
        required=["master_cpd_id", "cpd_name", "cpd_smiles"],
        what="CTRPv2 compounds",
    )
    table = points.merge(runs[["experiment_id", "master_ccl_id"]], on="experiment_id")
    table = table.merge(lines[["master_ccl_id", "ccl_name"]], on="master_ccl_id")
    table = table.merge(compounds[["master_cpd_id", "cpd_name", "cpd_smiles"]], on="master_cpd_id")
    return _long(
        table["cpd_name"], table["ccl_name"], table["cpd_conc_umol"], table["cpd_avg_pv"], smiles=table["cpd_smiles"]
    )


def read_prism_secondary(folder: str | Path) -> pd.DataFrame:
    """Read PRISM secondary-screen replicate-collapsed log fold changes into a long table; viability = 2^LFC.

    Parameters
    ----------
    folder : str or Path
        Holds ``secondary-screen-replicate-collapsed-logfold-change.csv`` and
        ``secondary-screen-replicate-collapsed-treatment-info.csv``.

    Returns
    -------
    DataFrame
        drug, cell_line (DepMap id), dose_uM, screen, viability, smiles.
    """
    folder = Path(folder)
    matrix = read_table(
        folder / "secondary-screen-replicate-collapsed-logfold-change.csv", what="PRISM log fold changes"
    )
    info = read_table(
        folder / "secondary-screen-replicate-collapsed-treatment-info.csv",
        required=["column_name", "name", "dose", "screen_id", "smiles"],
        what="PRISM treatments",
    )
    matrix = matrix.rename(columns={matrix.columns[0]: "cell_line"})
    table = matrix.melt("cell_line", var_name="column_name", value_name="lfc").dropna(subset=["lfc"])
    table = table.merge(info[["column_name", "name", "dose", "screen_id", "smiles"]], on="column_name")
    # The first structure of a list of salts or batches stands for the drug.
    smiles = table["smiles"].astype(str).str.split(",").str[0].str.strip()
    return _long(
        table["name"],
        table["cell_line"],
        table["dose"],
        np.exp2(table["lfc"]),
        screen=table["screen_id"],
        smiles=smiles,
    )


def read_nci60(path: str | Path) -> pd.DataFrame:
    """Read NCI60 ``DOSERESP.csv`` into a long table of percent growth.

    Parameters
    ----------
    path : str or Path
        Your copy of the file.

    Returns
    -------
    DataFrame
        drug (NSC), cell_line, dose_uM, percent_viability. Percent growth runs from 100 (as the control) over 0 (no net
        growth) to -100 (all cells of the start killed), so inhibition reaches 2.

    Notes
    -----
    1. Concentrations are log10 molar; rows in other units (ug/ml, volume) are left out.
    """
    table = read_table(
        path,
        required=["NSC", "CELL_NAME", "CONCENTRATION", "CONCENTRATION_UNIT", "AVERAGE_PTC"],
        what="NCI60 DOSERESP",
    )
    table = table[table["CONCENTRATION_UNIT"].astype(str).str.strip().str.upper() == "M"]
    if table.empty:
        raise InputError(f"{path} has no row with CONCENTRATION_UNIT M.")
    dose = 10.0 ** (table["CONCENTRATION"].astype(float) + 6.0)
    out = _long(table["NSC"].astype(str), table["CELL_NAME"].astype(str).str.strip(), dose, table["AVERAGE_PTC"])
    return out.rename(columns={"viability": "percent_viability"})


def read_thunor(path: str | Path, *, dataset_drug: int = 0) -> pd.DataFrame:
    """Read a Thunor HDF5 screen (such as its ``hts007.h5``) into a long table of viability.

    Viability is the last measured cell count divided by the median of the line's controls on the same plate.

    Parameters
    ----------
    path : str or Path
        The HDF5 file.
    dataset_drug : int, default 0
        Which drug of a combination names the row; single-drug screens have one.

    Returns
    -------
    DataFrame
        drug, cell_line, dose_uM, plate, viability.

    Raises
    ------
    MissingExtra
        without the packages thunor and tables.
    InputError
        for a file without controls on the plates of its wells, or with several assays of which none counts cells.
    """
    reader = require("thunor.io", "pip:'thunor tables'")
    screen = reader.read_hdf(str(path))
    if screen.controls is None:
        raise InputError(f"{path} holds no control wells, so its cell counts cannot become viabilities.")
    assays, controls = screen.assays.reset_index(), screen.controls.reset_index()
    names = sorted(set(assays["assay"]))
    counts = screen.dip_assay_name or (names[0] if len(names) == 1 else None)
    if counts is None:
        raise InputError(f"{path} holds several assays and none of them counts cells: {', '.join(names)}.")
    assays, controls = assays[assays["assay"] == counts], controls[controls["assay"] == counts]
    last = assays.sort_values("timepoint").groupby("well_id", as_index=False).last()[["well_id", "value"]]
    wells = screen.doses.reset_index().merge(last, on="well_id")
    controls = controls.sort_values("timepoint").groupby(["cell_line", "plate", "well_id"], as_index=False).last()
    middle = controls.groupby(["cell_line", "plate"])["value"].median().rename("control")
    wells = wells.merge(middle, left_on=["cell_line", "plate"], right_index=True)
    if wells.empty:
        raise InputError(f"{path}: no treated well shares plate and line with a control well.")
    # Drugs and doses of a well are tuples; a well without the drug asked for belongs to another screen.
    wells = wells[[len(names) > dataset_drug for names in wells["drug"]]]
    drug = wells["drug"].map(lambda names: names[dataset_drug])
    molar = wells["dose"].map(lambda values: values[dataset_drug])
    return _long(drug, wells["cell_line"], 1e6 * molar, wells["value"] / wells["control"], plate=wells["plate"])


def _long(drug: Any, cell: Any, dose: Any, viability: Any, **extra: Any) -> pd.DataFrame:
    import pandas as pd

    columns = {"drug": drug, "cell_line": cell, "dose_uM": dose, "viability": viability, **extra}
    table = pd.DataFrame({name: np.asarray(values) for name, values in columns.items()})
    for name in ("dose_uM", "viability"):
        table[name] = pd.to_numeric(table[name], errors="coerce")
    table = table.dropna(subset=["dose_uM", "viability"])
    table["drug"] = table["drug"].astype(str).map(lambda text: re.sub(r"\s+", " ", text).strip())
    return table[table["dose_uM"] > 0].reset_index(drop=True)
