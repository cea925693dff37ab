"""From a categorical table to a hypergraph, and from new rows to the hyperedges they join."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from assay._core.errors import InputError

from ._hypergraph import Hypergraph

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

# Spellings of a missing category: the UCI files write "?".
_MISSING = ("", "?")


@dataclass
class _Column:
    """How one column becomes hyperedges: exact values, or quantile bins where `edges` is given."""

    name: str
    values: dict[Any, int]
    edges: NDArray[np.float64] | None
    first: int  # number of the column's first hyperedge

    def codes(self, series: pd.Series) -> NDArray[np.int64]:
        """Hyperedge of each row, -1 where the value is missing or was never seen."""
        gone = _missing(series)
        if self.edges is not None:
            number = _numeric(series, gone, self.name)
            # half open bins, the last closed; what lies beyond the ends joins the outermost bin
            code = np.clip(np.searchsorted(self.edges, number, side="right") - 1, 0, len(self.edges) - 2)
            return np.where(gone, -1, code + self.first)
        code = series.map(_key).map(self.values)
        return np.where(gone | code.isna().to_numpy(), -1, code.fillna(-1).to_numpy(dtype=np.int64) + self.first)


def _key(value: Any) -> Any:
    """One key for equal values of any type: 1, 1.0 and True are the same number, text is stripped."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, (bool, np.bool_, int, np.integer)):
        return int(value)  # never through a float, which would merge long identifiers
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return int(number) if number.is_integer() and abs(number) < 2**53 else number
    return value


def _missing(series: pd.Series) -> NDArray[np.bool_]:
    gone = series.isna().to_numpy(dtype=bool).copy()
    if not gone.all() and series.dtype.kind not in "iufb":
        gone |= series.map(lambda v: isinstance(v, str) and v.strip() in _MISSING).to_numpy(dtype=bool)
    return gone


def _numeric(series: pd.Series, gone: NDArray[np.bool_], name: str) -> NDArray[np.float64]:
    import pandas as pd

    number = pd.to_numeric(series.where(~gone), errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    bad = np.isnan(number) & ~gone
    if bad.any():
        raise InputError(
            f"column {name!r}, row {int(np.argmax(bad))}: {series.iloc[int(np.argmax(bad))]!r} is not a number."
        )
    return np.where(gone, 0.0, number)


def as_frame(X: Any) -> pd.DataFrame:
    """Any two-dimensional table as a data frame with text column names."""
    import pandas as pd

    if isinstance(X, pd.DataFrame):
        frame = X.copy(deep=False)
    else:
        array = np.asarray(X)
        if array.ndim != 2:
            raise InputError(f"a table needs two dimensions (rows x columns), got {array.ndim}.")
        frame = pd.DataFrame(array, columns=[f"x{j}" for j in range(array.shape[1])])
    frame.columns = [str(c) for c in frame.columns]
    repeated = frame.columns[frame.columns.duplicated()]
    if len(repeated):
        raise InputError(f"the column {repeated[0]!r} occurs more than once; rename one.")
    if not frame.shape[0] or not frame.shape[1]:
        raise InputError(f"the table has {frame.shape[0]} rows and {frame.shape[1]} columns; both are needed.")
    return frame


class CategoricalEncoder:
    """One hyperedge per (column, value) of a table; new rows join the hyperedges of their values.

    Parameters
    ----------
    n_bins : int, default 10
        Numeric columns with more distinct values are cut into as many quantile bins, half open, the last closed.
    missing : {"drop_column", "ignore_rows"}, default "drop_column"
        Leave out a column with missing values (empty, NaN or "?"), or leave those rows out of its hyperedges.

    Attributes
    ----------
    hypergraph_ : Hypergraph
        Rows of the table as vertices.
    dropped_ : list of str
        Columns left out because of missing values.

    Examples
    --------
    >>> import pandas as pd
    >>> from assay.graphs.hypergraph_diffusion import CategoricalEncoder
    >>> table = pd.DataFrame({"cap": ["flat", "bell", "flat"], "odor": ["none", "none", "?"]})
    >>> encoder = CategoricalEncoder(missing="ignore_rows").fit(table)
    >>> encoder.hypergraph_.edge_names.tolist()
    ['cap=flat', 'odor=none']
    >>> encoder.transform(pd.DataFrame({"cap": ["flat"], "odor": ["foul"]})).toarray().tolist()
    [[1.0, 0.0]]
    """

    def __init__(self, n_bins: int = 10, missing: str = "drop_column") -> None:
        self.n_bins = n_bins
        self.missing = missing

    def fit(self, X: Any) -> CategoricalEncoder:
        """Learn the hyperedges of a table.

        Parameters
        ----------
        X : DataFrame or array of shape (n_rows, n_columns)
            Values of any type.

        Returns
        -------
        self
        """
        if isinstance(self.n_bins, bool) or not isinstance(self.n_bins, (int, np.integer)) or self.n_bins < 2:
            raise InputError(f"n_bins must be a whole number of at least 2, got {self.n_bins!r}.")
        if self.missing not in ("drop_column", "ignore_rows"):
            raise InputError(f"missing must be 'drop_column' or 'ignore_rows', got {self.missing!r}.")
        frame = as_frame(X)
        self.columns_: list[_Column] = []
        self.dropped_: list[str] = []
        names: list[str] = []
        rows, columns = [], []
        for name in frame.columns:
            series = frame[name]
            gone = _missing(series)
            if gone.any() and self.missing == "drop_column":
                self.dropped_.append(name)
                continue
            column, labels = self._column(series, gone, name, len(names))
            self.columns_.append(column)
            names += labels
            code = column.codes(series)
            rows.append(np.flatnonzero(code >= 0))
            columns.append(code[code >= 0])
        if not names:
            raise InputError(
                f"every column has missing values ({', '.join(self.dropped_[:5])}); use missing='ignore_rows' "
                "(--missing ignore_rows)."
            )
        i, h = np.concatenate(rows), np.concatenate(columns)
        B = sp.coo_array((np.ones(len(i)), (h, i)), shape=(len(names), len(frame)))
        # a value that occurs once is normal in a table and nothing to warn of
        self.hypergraph_ = Hypergraph(B, edge_names=names, drop_small="quiet")
        self._n_all = len(names)
        return self

    def _column(self, series: pd.Series, gone: NDArray[np.bool_], name: str, first: int) -> tuple[_Column, list[str]]:
        keys = list(dict.fromkeys(series[~gone].map(_key)))
        numbers = all(isinstance(k, (int, float)) for k in keys)
        if numbers and any(isinstance(k, float) and not np.isfinite(k) for k in keys):
            raise InputError(f"column {name!r} holds an infinite value; replace it, or leave it empty.")
        if numbers and len(keys) > self.n_bins:
            value = _numeric(series, gone, name)[~gone]
            edges = np.unique(np.quantile(value, np.linspace(0, 1, self.n_bins + 1)))
            last = len(edges) - 2
            labels = [
                f"{name}=[{edges[b]:.6g}, {edges[b + 1]:.6g}{']' if b == last else ')'}" for b in range(len(edges) - 1)
            ]
            if len(set(labels)) < len(labels):  # bins narrower than six digits
                labels = [f"{label} #{b}" for b, label in enumerate(labels)]
            return _Column(name, {}, edges, first), labels
        keys = sorted(keys) if numbers else keys
        return _Column(name, {k: c for c, k in enumerate(keys)}, None, first), [f"{name}={k}" for k in keys]

    def transform(self, X: Any) -> sp.csr_array:
        """Hyperedges that new rows join.

        Parameters
        ----------
        X : DataFrame or array
            The columns of `fit`, by name where both are data frames.

        Returns
        -------
        csr_array of shape (n_rows, n_edges)
            1 where the row has the hyperedge's value; values never seen join nothing.
        """
        frame = as_frame(X)
        lost = [c.name for c in self.columns_ if c.name not in frame.columns]
        if lost:
            raise InputError(f"the table lacks the column {lost[0]!r} that the model was fitted with.")
        rows, columns = [], []
        for column in self.columns_:
            code = column.codes(frame[column.name])
            rows.append(np.flatnonzero(code >= 0))
            columns.append(code[code >= 0])
        i, h = np.concatenate(rows), np.concatenate(columns)
        B = sp.csr_array(sp.coo_array((np.ones(len(i)), (i, h)), shape=(len(frame), self._n_all)))
        return sp.csr_array(B[:, self.hypergraph_.kept])
