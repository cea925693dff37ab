"""The data model: one screen as padded arrays of doses and effects."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from assay._core.errors import InputError, require

if TYPE_CHECKING:
    import pandas as pd

ResponseType = Literal["viability", "inhibition", "percent_viability", "percent_activity"]

# E = offset + scale * response, with E the inhibition (0 no effect, 1 all dead).
RESPONSE_TYPES: dict[str, tuple[float, float]] = {
    "viability": (1.0, -1.0),
    "inhibition": (0.0, 1.0),
    "percent_viability": (1.0, -0.01),
    "percent_activity": (0.0, -0.01),
}

# A whole screen whose median response is above 5 under a 0..1 scale can only be per cent (spec, "Bad input").
_PERCENT_MEDIAN = 5.0
# Two lines of different origin never correlate above this over hundreds of genes; duplicated or renamed lines do.
DUPLICATE_CORRELATION = 0.999
# Below this number of genes a correlation above the limit happens by chance.
_MIN_GENES_FOR_DUPLICATES = 20
# Doses that agree to 9 digits are one dose: files carry the rounding of serial dilutions (0.013720000000000001).
_DOSE_DIGITS = 9


def _names(items: Sequence[Any], limit: int = 5) -> str:
    """At most `limit` names, then a count, so that an error stays one readable sentence."""
    shown = ", ".join(str(item) for item in items[:limit])
    return shown if len(items) <= limit else f"{shown} and {len(items) - limit} more"


@dataclasses.dataclass(frozen=True, eq=False)
class DoseResponseData:
    r"""A screen of dose-response curves, one row per (drug, cell line) pair.

    Curve :math:`j` is a drug, a line, doses :math:`z_{j1} < \dots < z_{jm_j}` (micromolar) and effects
    :math:`E_{jk} = 1 - \mathrm{viability}`: 0 no effect, 1 all dead. Values below 0 (stimulation) and above 1 are kept.

    Parameters
    ----------
    drugs, cells : ndarray of str, shapes (n_drugs,), (n_cells,)
        Sorted names.
    drug_index, cell_index : ndarray of int, shape (n_curves,)
        Positions in `drugs` and `cells`.
    dose, effect : ndarray of float64, shape (n_curves, m)
        Doses in uM, ascending in each row, and inhibition; NaN where `mask` is False.
    mask : ndarray of bool, shape (n_curves, m)
        True where a value was measured.
    replicate_sd : ndarray of float64, shape (n_curves, m)
        Standard deviation over the replicates of a point in units of `effect`; NaN where there is one value only.
    replicate_n : ndarray of int, shape (n_curves, m)
        Number of replicates behind each value (0 where `mask` is False).
    smiles : dict or None
        Drug name to SMILES.
    expression : DataFrame or None, shape (n_cells, n_genes)
        One row per line in the order of `cells`.
    aggregate : {"single", "mean", "median"}
        How replicates became one value.

    Notes
    -----
    1. Build it with :meth:`from_long`, which checks everything; the constructor checks nothing.
    2. Row order and dose order of the input never matter: curves are sorted by (drug, line), doses ascend.

    Examples
    --------
    >>> import pandas as pd
    >>> from assay.bio.dose_response import DoseResponseData
    >>> table = pd.DataFrame({"drug": ["a"] * 4, "cell_line": ["x"] * 4, "dose_uM": [10, 1, 0.1, 0.01],
    ...                       "viability": [0.1, 0.4, 0.9, 1.0]})
    >>> data = DoseResponseData.from_long(table)
    >>> data.n_curves, data.effect.round(2).tolist()
    (1, [[0.0, 0.1, 0.6, 0.9]])
    """

    drugs: np.ndarray
    cells: np.ndarray
    drug_index: np.ndarray
    cell_index: np.ndarray
    dose: np.ndarray
    effect: np.ndarray
    mask: np.ndarray
    replicate_sd: np.ndarray
    replicate_n: np.ndarray
    smiles: dict[str, str] | None = None
    expression: pd.DataFrame | None = None
    aggregate: str = "single"

    @property
    def n_curves(self) -> int:
        """Number of (drug, line) pairs."""
        return len(self.drug_index)

    @property
    def log_dose(self) -> np.ndarray:
        """log10 of the dose in uM, NaN where there is no dose; shape (n_curves, m)."""
        return np.log10(self.dose)

    def find(self, drug: Any, cell: Any) -> np.ndarray:
        """Curve numbers of (drug, line) names, broadcast against each other; -1 where the pair was not measured."""
        d, c = self.find_drug(drug), self.find_cell(cell)
        d, c = np.broadcast_arrays(d, c)
        # Curves are sorted by (drug, line), so the pair's rank is found by bisection: no n_drugs x n_cells table.
        keys = self.drug_index.astype(np.int64) * len(self.cells) + self.cell_index
        wanted = d.astype(np.int64) * len(self.cells) + c
        at = np.minimum(np.searchsorted(keys, wanted), self.n_curves - 1)
        return np.where((d >= 0) & (c >= 0) & (keys[at] == wanted), at, -1)

    def find_drug(self, drug: Any) -> np.ndarray:
        """Positions of drug names in `drugs`, -1 where unknown."""
        return _position(self.drugs, drug)

    def find_cell(self, cell: Any) -> np.ndarray:
        """Positions of line names in `cells`, -1 where unknown."""
        return _position(self.cells, cell)

    def subset(self, curve_index: Any) -> DoseResponseData:
        """Keep some curves (integer or boolean index); drugs, lines and padding columns that fall out are dropped."""
        index = np.asarray(curve_index)
        index = np.flatnonzero(index) if index.dtype == bool else np.sort(index.astype(int))
        if not len(index):
            raise InputError("The subset holds no curve: choose at least one.")
        drug_kept, drug_index = np.unique(self.drug_index[index], return_inverse=True)
        cell_kept, cell_index = np.unique(self.cell_index[index], return_inverse=True)
        drugs, cells = self.drugs[drug_kept], self.cells[cell_kept]
        columns: np.ndarray = np.asarray(self.mask[index].any(0))
        columns = columns | (np.cumsum(columns[::-1])[::-1] > 0)  # keep inner columns, drop trailing padding
        pick = np.ix_(index, np.flatnonzero(columns))
        return DoseResponseData(
            drugs=drugs,
            cells=cells,
            drug_index=drug_index,
            cell_index=cell_index,
            dose=self.dose[pick],
            effect=self.effect[pick],
            mask=self.mask[pick],
            replicate_sd=self.replicate_sd[pick],
            replicate_n=self.replicate_n[pick],
            smiles=None if self.smiles is None else {d: self.smiles[d] for d in drugs},
            expression=None if self.expression is None else self.expression.loc[list(cells)],
            aggregate=self.aggregate,
        )

    def to_long(self) -> pd.DataFrame:
        """One row per measured point: drug, cell_line, dose_uM, inhibition, replicate_sd, replicates."""
        import pandas as pd

        row, column = np.nonzero(self.mask)
        return pd.DataFrame(
            {
                "drug": self.drugs[self.drug_index[row]],
                "cell_line": self.cells[self.cell_index[row]],
                "dose_uM": self.dose[row, column],
                "inhibition": self.effect[row, column],
                "replicate_sd": self.replicate_sd[row, column],
                "replicates": self.replicate_n[row, column],
            }
        )

    @classmethod
    def from_long(
        cls,
        df: pd.DataFrame,
        *,
        drug: str = "drug",
        cell: str = "cell_line",
        dose: str = "dose_uM",
        response: str = "viability",
        response_type: ResponseType = "viability",
        response_sd: str | None = None,
        smiles: Mapping[str, str] | pd.DataFrame | pd.Series | None = None,
        expression: pd.DataFrame | None = None,
        replicates: Literal["error", "median", "mean"] = "error",
        min_points: int = 4,
        on_missing: Literal["error", "drop"] = "error",
    ) -> DoseResponseData:
        r"""Build the data from a long table: one row per well or per averaged point.

        .. math:: E = 1 - v,\quad E = e,\quad E = 1 - p/100,\quad E = -a/100

        for `response_type` "viability", "inhibition", "percent_viability", "percent_activity" (CCLE).

        Parameters
        ----------
        df : DataFrame
            The long table.
        drug, cell, dose, response : str
            Column names; doses in uM, > 0.
        response_type : {"viability", "inhibition", "percent_viability", "percent_activity"}, default "viability"
            What the response column holds.
        response_sd : str or None, default None
            Column with the standard deviation of each value, in units of `response`, where replicates were averaged
            before. It is taken as the error of the value itself.
        smiles : mapping, Series or DataFrame(drug, smiles), optional
            Molecules.
        expression : DataFrame, optional
            Lines in the index, genes in the columns (log scale).
        replicates : {"error", "median", "mean"}, default "error"
            What to do with several rows of one (drug, line, dose).
        min_points : int, default 4, at least 1
            Fewest doses of a curve.
        on_missing : {"error", "drop"}, default "error"
            "drop" leaves out lines without expression, drugs without SMILES and curves with too few doses.

        Returns
        -------
        DoseResponseData

        Raises
        ------
        InputError
            (a ValueError) for a missing column, a dose that is not a positive number, a missing response, repeated rows
            under ``replicates="error"``, an unreadable SMILES, a line without expression, a short curve, an unknown
            `response_type`, or percentages given as fractions. The message names row, drug or line.

        Notes
        -----
        1. Vehicle wells (dose 0) are controls: normalise with them first, then leave them out.
        2. Doses that agree to nine digits are the same dose.
        3. Genes that are constant over the lines are dropped with a warning; so are pairs of lines whose expression
           correlates above 0.999 reported, since one line under two names leaks from training into test.

        Examples
        --------
        >>> import pandas as pd
        >>> from assay.bio.dose_response import DoseResponseData
        >>> table = pd.DataFrame({"d": ["a"] * 8, "c": ["x"] * 8, "z": [1, 2, 3, 4] * 2, "p": [90, 80, 50, 10] * 2})
        >>> data = DoseResponseData.from_long(table, drug="d", cell="c", dose="z", response="p",
        ...                                   response_type="percent_viability", replicates="mean")
        >>> data.replicate_n.tolist()
        [[2, 2, 2, 2]]
        """
        import pandas as pd

        if response_type not in RESPONSE_TYPES:
            raise InputError(f"Unknown response_type {response_type!r}: use one of {', '.join(RESPONSE_TYPES)}.")
        if replicates not in ("error", "median", "mean"):
            raise InputError(f"Unknown replicates={replicates!r}: use 'error', 'median' or 'mean'.")
        if on_missing not in ("error", "drop"):
            raise InputError(f"Unknown on_missing={on_missing!r}: use 'error' or 'drop'.")
        if min_points < 1:
            raise InputError(f"min_points={min_points} must be at least 1.")
        wanted = [drug, cell, dose, response] + ([response_sd] if response_sd else [])
        for name in wanted:
            if name not in df.columns:
                raise InputError(
                    f"The response table has no column {name!r}; it has: {_names(list(df.columns), 12)}. "
                    "Name your columns with the options for drug, cell, dose and response."
                )
        if not len(df):
            raise InputError("The response table has no rows.")
        drug_name = _text(df[drug], drug)
        cell_name = _text(df[cell], cell)
        z = pd.to_numeric(df[dose], errors="coerce").to_numpy(float)
        y = pd.to_numeric(df[response], errors="coerce").to_numpy(float)
        _refuse(
            ~np.isfinite(z),
            df[dose],
            drug_name,
            cell_name,
            f"{dose} must be a finite number in uM (log doses: convert)",
        )
        _refuse(
            z <= 0,
            df[dose],
            drug_name,
            cell_name,
            f"{dose} must be > 0: vehicle wells are controls, use them to normalise and leave them out",
        )
        _refuse(
            ~np.isfinite(y),
            df[response],
            drug_name,
            cell_name,
            f"{response} is missing or not a number: remove the row",
        )
        middle = float(np.median(np.abs(y)))
        if response_type in ("viability", "inhibition") and middle > _PERCENT_MEDIAN:
            cure = (
                'say response_type="percent_viability"' if response_type == "viability" else "divide the column by 100"
            )
            raise InputError(
                f"The responses look like per cent (median {middle:.3g}) but response_type is "
                f"{response_type!r}: {cure}."
            )
        offset, scale = RESPONSE_TYPES[response_type]
        effect = offset + scale * y
        sd = np.full(len(y), np.nan)
        if response_sd:
            sd = np.abs(scale) * pd.to_numeric(df[response_sd], errors="coerce").to_numpy(float)

        smiles_of = _read_smiles(smiles)
        expression = _read_expression(expression)
        keep = np.ones(len(y), bool)
        if smiles_of is not None:
            lacking = sorted(set(drug_name) - set(smiles_of))
            if lacking and on_missing == "error":
                raise InputError(
                    f"No SMILES for {len(lacking)} drug(s): {_names(lacking)}. Add them or use on_missing='drop'."
                )
            keep &= ~np.isin(drug_name, lacking)
        if expression is not None:
            lacking = sorted(set(cell_name) - set(expression.index))
            if lacking and on_missing == "error":
                raise InputError(
                    f"No expression for {len(lacking)} line(s): {_names(lacking)}. Add them or use on_missing='drop'."
                )
            keep &= ~np.isin(cell_name, lacking)
        if not keep.any():
            raise InputError(
                "No curve is left: the names in the response table match none of the SMILES or expression table."
            )
        drug_name, cell_name, z, effect, sd = drug_name[keep], cell_name[keep], z[keep], effect[keep], sd[keep]
        row_number = np.flatnonzero(keep) + 1

        # One value per (drug, line, dose).
        power = np.floor(np.log10(z))
        z = np.round(z / 10.0**power, _DOSE_DIGITS) * 10.0**power
        z = np.array([float(f"{value:.{_DOSE_DIGITS}e}") for value in np.unique(z)])[
            np.unique(z, return_inverse=True)[1]
        ]
        drugs, d = np.unique(drug_name, return_inverse=True)
        cells, c = np.unique(cell_name, return_inverse=True)
        order = np.lexsort((effect, z, c, d))
        d, c, z, effect, sd, row_number = d[order], c[order], z[order], effect[order], sd[order], row_number[order]
        new = np.r_[True, (np.diff(d) != 0) | (np.diff(c) != 0) | (np.diff(z) != 0)]
        first = np.flatnonzero(new)
        count = np.diff(np.r_[first, len(z)])
        aggregate = "single"
        if count.max() > 1:
            if replicates == "error":
                at = first[np.argmax(count > 1)]
                raise InputError(
                    f"{int((count > 1).sum())} points occur more than once, the first is {drugs[d[at]]} on "
                    f"{cells[c[at]]} at {z[at]:.4g} uM (row {min(row_number[at], row_number[at + 1])}): say "
                    "replicates='median' or 'mean', or remove the repeats."
                )
            aggregate = replicates
            total = np.add.reduceat(effect, first)
            mean = total / count
            spread = np.add.reduceat((effect - np.repeat(mean, count)) ** 2, first)
            sd_point = np.where(count > 1, np.sqrt(spread / np.maximum(count - 1, 1)), sd[first])
            if replicates == "mean":
                value = mean
            else:  # values ascend inside a group, so the median is the middle one or the mean of the middle two
                value = 0.5 * (effect[first + (count - 1) // 2] + effect[first + count // 2])
        else:
            value, sd_point = effect, sd
        d, c, z = d[first], c[first], z[first]

        # Curves as padded rows.
        start = np.flatnonzero(np.r_[True, (np.diff(d) != 0) | (np.diff(c) != 0)])
        length = np.diff(np.r_[start, len(d)])
        short = length < min_points
        if short.any() and on_missing == "error":
            bad = [f"{drugs[d[s]]} on {cells[c[s]]} ({n})" for s, n in zip(start[short], length[short], strict=True)]
            raise InputError(
                f"{int(short.sum())} curve(s) have fewer than {min_points} doses: {_names(bad)}. "
                "Lower min_points or use on_missing='drop'."
            )
        if short.all():
            raise InputError(f"Every curve has fewer than {min_points} doses: lower min_points.")
        shape = (len(start), int(length.max()))
        row = np.repeat(np.arange(len(start)), length)
        column = np.arange(len(d)) - np.repeat(start, length)

        def padded(values: np.ndarray, fill: float) -> np.ndarray:
            out = np.full(shape, fill)
            out[row, column] = values
            return out

        data = cls(
            drugs=drugs,
            cells=cells,
            drug_index=d[start],
            cell_index=c[start],
            dose=padded(z, np.nan),
            effect=padded(value, np.nan),
            mask=padded(np.ones(len(d)), 0.0).astype(bool),
            replicate_sd=padded(sd_point, np.nan),
            replicate_n=padded(count.astype(float), 0.0).astype(int),
            smiles=None if smiles_of is None else {name: smiles_of[name] for name in drugs},
            expression=None if expression is None else expression.loc[list(cells)],
            aggregate=aggregate,
        )
        if short.any():
            warnings.warn(
                f"{int(short.sum())} curve(s) with fewer than {min_points} doses were left out.", stacklevel=2
            )
            data = data.subset(~short)
        if data.expression is not None:
            data = dataclasses.replace(data, expression=_informative_genes(data.expression))
        return data


def _position(names: np.ndarray, wanted: Any) -> np.ndarray:
    wanted = np.asarray(wanted, dtype=str)
    at = np.minimum(np.searchsorted(names, wanted), len(names) - 1)
    return np.where(names[at] == wanted, at, -1)


def _text(column: pd.Series, name: str) -> np.ndarray:
    missing = column.isna().to_numpy()
    if missing.any():
        raise InputError(f"Row {int(np.argmax(missing)) + 1} has no value in column {name!r}: fill it or remove it.")
    return np.char.strip(column.astype(str).to_numpy().astype(str))


def _refuse(bad: np.ndarray, values: pd.Series, drug: np.ndarray, cell: np.ndarray, why: str) -> None:
    if bad.any():
        at = int(np.argmax(bad))
        raise InputError(
            f"Row {at + 1} ({drug[at]} on {cell[at]}) holds {_plain(values.iloc[at])!r}: {why} ({int(bad.sum())} such rows)."
        )


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value  # -1 rather than np.int64(-1)


def _read_smiles(smiles: Any) -> dict[str, str] | None:
    if smiles is None:
        return None
    import pandas as pd

    if isinstance(smiles, pd.DataFrame):
        lower = {str(column).lower(): column for column in smiles.columns}
        for column in ("drug", "smiles"):
            if column not in lower:
                raise InputError(f"The SMILES table has no column {column!r}; it has: {_names(list(smiles.columns))}.")
        smiles = dict(zip(_text(smiles[lower["drug"]], "drug"), smiles[lower["smiles"]], strict=True))
    table = {str(name).strip(): value for name, value in dict(smiles).items()}
    chem = require("rdkit.Chem", "bio")
    logger = require("rdkit.RDLogger", "bio")
    logger.DisableLog("rdApp.*")  # the reader gets one sentence with all bad names instead of one log line each
    try:
        bad = [
            name
            for name, text in table.items()
            if not isinstance(text, str) or not text.strip() or chem.MolFromSmiles(text) is None
        ]
    finally:
        logger.EnableLog("rdApp.*")
    if bad:
        raise InputError(f"Unreadable SMILES for {len(bad)} drug(s): {_names(sorted(bad), 10)}.")
    return {name: text.strip() for name, text in table.items()}


def _read_expression(expression: pd.DataFrame | None) -> pd.DataFrame | None:
    if expression is None:
        return None
    import pandas as pd

    if not isinstance(expression, pd.DataFrame):
        raise InputError("expression must be a DataFrame with one row per line and one column per gene.")
    table = expression.copy()
    table.index = table.index.map(lambda name: str(name).strip())
    table.columns = table.columns.map(str)
    if table.index.has_duplicates:
        repeated = sorted(set(table.index[table.index.duplicated()]))
        raise InputError(f"The expression table holds these lines more than once: {_names(repeated)}.")
    if table.columns.has_duplicates:
        repeated = sorted(set(table.columns[table.columns.duplicated()]))
        raise InputError(f"The expression table holds these genes more than once: {_names(repeated)}.")
    text = [column for column in table.columns if not pd.api.types.is_numeric_dtype(table[column])]
    if text:
        raise InputError(f"The expression column(s) {_names(text)} are not numbers: keep genes only.")
    values = table.to_numpy(float)
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        raise InputError(f"The expression of line {table.index[row]}, gene {table.columns[column]} is not a number.")
    return table.astype(float)


def _informative_genes(expression: pd.DataFrame) -> pd.DataFrame:
    values = expression.to_numpy(float)
    if len(values) > 1:
        constant = np.ptp(values, axis=0) == 0
        if constant.any():
            warnings.warn(
                f"{int(constant.sum())} gene(s) are constant over the lines and were dropped: "
                f"{_names(list(expression.columns[constant]))}.",
                stacklevel=3,
            )
            expression = expression.loc[:, ~constant]
        if not expression.shape[1]:
            raise InputError("Every gene of the expression table is constant over the lines: nothing to learn from.")
    for first, second, r in duplicate_lines(expression):
        warnings.warn(
            f"Lines {first} and {second} have the same expression (r = {r:.4f}): one line under two names leaks "
            "between training and test.",
            stacklevel=3,
        )
    return expression


def duplicate_lines(expression: pd.DataFrame, limit: float = DUPLICATE_CORRELATION) -> list[tuple[str, str, float]]:
    """Pairs of lines whose expression correlates above `limit`: probably one line under two names."""
    if expression.shape[1] < _MIN_GENES_FOR_DUPLICATES or len(expression) < 2:
        return []
    values = expression.to_numpy(float)
    values = values - values.mean(1, keepdims=True)
    values = values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-300)
    correlation = np.triu(values @ values.T, 1)
    return [
        (str(expression.index[i]), str(expression.index[j]), float(correlation[i, j]))
        for i, j in np.argwhere(correlation > limit)
    ]


def broadcast_query(drug: Any, cell: Any, dose: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Names and doses of a prediction, broadcast to one shape; doses must be positive numbers."""
    z = np.asarray(dose, dtype=float)
    if not (np.isfinite(z).all() and (z > 0).all()):
        raise InputError("Doses to predict must be finite and > 0 (uM).")
    drug, cell = np.asarray(drug, dtype=str), np.asarray(cell, dtype=str)
    try:
        drug, cell, z = np.broadcast_arrays(drug, cell, z)
    except ValueError:
        raise InputError(
            f"drug {drug.shape}, cell {cell.shape} and dose {z.shape} do not broadcast to one shape."
        ) from None
    return drug, cell, z


def training_mask(data: DoseResponseData, train_mask: Any = None) -> np.ndarray:
    """The points to learn from: `train_mask` (or everything) where something was measured."""
    if train_mask is None:
        return data.mask.copy()
    mask = np.asarray(train_mask, dtype=bool)
    if mask.shape != data.mask.shape:
        raise InputError(f"train_mask has shape {mask.shape}, the data {data.mask.shape}.")
    mask = mask & data.mask
    if not mask.any():
        raise InputError("train_mask leaves no point to learn from.")
    return mask
