"""What a screening facility checks: plates, edges, outlying wells, and curves that first stimulate, then kill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from assay._core.errors import InputError
from assay._core.seeds import as_rng

from ._data import DoseResponseData, _names
from ._hill import fit_hill
from ._metrics import value_variance
from ._residual import ResidualGP, matern52

if TYPE_CHECKING:
    import pandas as pd

# MAD to standard deviation of a normal distribution.
_MAD = 1.4826


def normalise_plates(
    df: pd.DataFrame,
    *,
    plate: str = "plate",
    role: str = "role",
    signal: str = "signal",
    blank: str = "blank",
    control: str = "negative_control",
    sample: str = "sample",
) -> pd.DataFrame:
    r"""Turn plate-reader signals into viability, plate by plate.

    .. math:: v = \frac{I - \mathrm{med}(I_{blank})}{\mathrm{med}(I_{control}) - \mathrm{med}(I_{blank})}

    Parameters
    ----------
    df : DataFrame
        One row per well.
    plate, role, signal : str
        Columns: plate name; what the well is; the reading.
    blank, control, sample : str
        Values of `role`: no cells; vehicle (dose 0); drug.

    Returns
    -------
    DataFrame
        The input with the columns `viability` and `plate_z_prime` added.

    Raises
    ------
    InputError
        for missing columns, a plate without control wells, or controls that are not above the blanks.

    Notes
    -----
    1. A screen without blanks on any plate uses 0 as blank; a single plate without blanks is an error.
    2. ``Z' = 1 - 3 (s_control + s_blank) / |m_control - m_blank|`` with robust s and m; below 0.5 a plate is doubtful.
       NaN where a plate has fewer than two wells of either kind.

    Examples
    --------
    >>> import pandas as pd
    >>> from assay.bio.dose_response import normalise_plates
    >>> wells = pd.DataFrame({"plate": "p", "role": ["blank", "negative_control", "sample"], "signal": [100, 1100, 600]})
    >>> normalise_plates(wells).viability.tolist()
    [0.0, 1.0, 0.5]
    """
    import pandas as pd

    for column in (plate, role, signal):
        if column not in df.columns:
            raise InputError(f"The plate table has no column {column!r}; it has: {_names(list(df.columns), 12)}.")
    out = df.copy()
    reading = pd.to_numeric(out[signal], errors="coerce").to_numpy(float)
    if not np.isfinite(reading).all():
        raise InputError(f"Row {int(np.argmax(~np.isfinite(reading))) + 1}: {signal} is not a number.")
    kind = out[role].astype(str).to_numpy()
    unknown = sorted(set(kind) - {blank, control, sample})
    if unknown:
        raise InputError(f"Unknown well role(s) {_names(unknown)}: use {blank!r}, {control!r} or {sample!r}.")
    any_blank = (kind == blank).any()
    viability, quality = np.full(len(out), np.nan), np.full(len(out), np.nan)
    names, which = np.unique(out[plate].astype(str).to_numpy(), return_inverse=True)
    for p, name in enumerate(names):
        rows = which == p
        controls, blanks = reading[rows & (kind == control)], reading[rows & (kind == blank)]
        if not len(controls):
            raise InputError(f"Plate {name} has no {control} well: its signals cannot be normalised.")
        if any_blank and not len(blanks):
            raise InputError(f"Plate {name} has no {blank} well although other plates do: add it or drop the plate.")
        zero = float(np.median(blanks)) if len(blanks) else 0.0
        one = float(np.median(controls))
        if one <= zero:
            raise InputError(
                f"Plate {name}: the {control} wells (median {one:.4g}) are not above the {blank} wells ({zero:.4g})."
            )
        viability[rows] = (reading[rows] - zero) / (one - zero)
        if len(controls) > 1 and len(blanks) > 1:
            spread = _MAD * (np.median(np.abs(controls - one)) + np.median(np.abs(blanks - zero)))
            quality[rows] = 1.0 - 3.0 * spread / (one - zero)
    return out.assign(viability=viability, plate_z_prime=quality)


def edge_effect(
    df: pd.DataFrame, *, plate: str = "plate", well: str = "well", value: str = "viability", min_wells: int = 4
) -> pd.DataFrame:
    """Compare the outermost wells of each plate with its inner wells (of the rows given: best, the controls).

    Parameters
    ----------
    df : DataFrame
        One row per well; pass control wells, or drug effects will be mistaken for edge effects.
    plate, well, value : str
        Columns: plate name, position such as "A1" or "P24", viability.
    min_wells : int, default 4
        Plates with fewer edge or inner wells are left out.

    Returns
    -------
    DataFrame
        plate, edge_median, inner_median, ratio, p_value (Mann-Whitney), q_value (Benjamini-Hochberg), n_edge, n_inner.
    """
    import pandas as pd
    from scipy.stats import mannwhitneyu

    for column in (plate, well, value):
        if column not in df.columns:
            raise InputError(f"The plate table has no column {column!r}; it has: {_names(list(df.columns), 12)}.")
    df = df.reset_index(drop=True)  # concatenated plates repeat their index
    place = df[well].astype(str).str.extract(r"^\s*([A-Za-z]{1,2})0*(\d+)\s*$")
    if place.isna().any(axis=None):
        at = int(np.argmax(place.isna().any(axis=1).to_numpy()))
        raise InputError(f"Row {at + 1}: {df[well].iloc[at]!r} is not a well position such as A1.")
    row = place[0].str.upper().map(lambda text: sum((ord(c) - 64) * 26**i for i, c in enumerate(reversed(text))))
    column_number = place[1].astype(int)
    found = []
    for name, index in df.groupby(plate, sort=True).groups.items():
        # Plate formats by the smallest that holds the positions used: 96, 384 or 1,536 wells.
        r, c = row.loc[index], column_number.loc[index]
        size = next(
            (s for s in ((8, 12), (16, 24), (32, 48)) if r.max() <= s[0] and c.max() <= s[1]), (r.max(), c.max())
        )
        on_edge = (r == 1) | (r == size[0]) | (c == 1) | (c == size[1])
        values = df.loc[index, value].astype(float)
        edge, inner = values[on_edge].dropna(), values[~on_edge].dropna()
        if min(len(edge), len(inner)) < min_wells:
            continue
        found.append(
            {
                "plate": name,
                "edge_median": edge.median(),
                "inner_median": inner.median(),
                "ratio": edge.median() / inner.median(),
                "p_value": mannwhitneyu(edge, inner).pvalue,
                "n_edge": len(edge),
                "n_inner": len(inner),
            }
        )
    columns = ["plate", "edge_median", "inner_median", "ratio", "p_value", "n_edge", "n_inner"]
    table = pd.DataFrame(found, columns=columns)
    return table.assign(q_value=false_discovery(table["p_value"].to_numpy(float)))


def flag_outlier_replicates(
    df: pd.DataFrame,
    *,
    drug: str = "drug",
    cell: str = "cell_line",
    dose: str = "dose_uM",
    response: str = "viability",
    threshold: float = 5.0,
) -> np.ndarray:
    """Mark replicate wells that are far from the median of their group.

    Parameters
    ----------
    df : DataFrame
        Long table with replicates.
    drug, cell, dose, response : str
        Column names.
    threshold : float, default 5
        Distance from the median in robust standard deviations of the whole screen (5: one normal well in a million).

    Returns
    -------
    ndarray of bool, shape (n_rows,)
        Groups of fewer than three wells are never marked: nobody knows which well is wrong.

    Examples
    --------
    >>> from assay.bio.dose_response import datasets, flag_outlier_replicates
    >>> bool(flag_outlier_replicates(datasets.sarcoma_table(3)).mean() < 0.01)
    True
    """
    keys = [drug, cell, dose]
    for column in (*keys, response):
        if column not in df.columns:
            raise InputError(f"The response table has no column {column!r}; it has: {_names(list(df.columns), 12)}.")
    group = df.groupby(keys, sort=False)[response]
    deviation = (df[response] - group.transform("median")).abs().to_numpy(float)
    size = group.transform("size").to_numpy()
    inside = size >= 3
    if not inside.any():
        return np.zeros(len(df), bool)
    # The median well of a group has deviation 0 by construction: leave it out of the scale.
    moved = deviation[inside & (deviation > 0)]
    scale = _MAD * float(np.median(moved)) if len(moved) else 0.0
    return inside & (deviation > threshold * scale) if scale > 0 else np.zeros(len(df), bool)


def false_discovery(p: np.ndarray) -> np.ndarray:
    """Benjamini-Hochberg q-values."""
    p = np.asarray(p, float)
    if not len(p):
        return p
    order = np.argsort(p)
    q = p[order] * len(p) / np.arange(1, len(p) + 1)
    q = np.minimum.accumulate(q[::-1])[::-1]
    out = np.empty(len(p))
    out[order] = np.minimum(q, 1.0)
    return out


def biphasic_test(
    data: DoseResponseData,
    *,
    mask: Any = None,
    level: float = 0.05,
    delta: float = 0.1,
    n_bootstrap: int = 4,
    random_state: Any = None,
) -> pd.DataFrame:
    r"""Find curves that first stimulate and then kill: likelihood ratio of a GP over the best 4-parameter Hill curve.

    .. math:: \Lambda = 2\big[\max_a \log \mathcal N(r; 0, a K + S) - \log \mathcal N(r; 0, S)\big],\quad
              r = y - \hat E_{4P},\ S = s_j^2 I

    Parameters
    ----------
    data : DoseResponseData
    mask : bool array (n_curves, m), optional
        Points to use.
    level : float, default 0.05
        False-discovery rate over the screen.
    delta : float, default 0.1
        Stimulation and inhibition the smoothed curve must reach.
    n_bootstrap : int, default 4
        Screens simulated from the 4P fits; their ratios are the null distribution.
    random_state : None, int, Generator or RandomState

    Returns
    -------
    DataFrame, one row per curve
        drug, cell_line, e_min and e_max of the smoothed curve (minimum before the maximum), lr, p_value, q_value,
        biphasic (q <= level and e_min < -delta and e_max > delta).

    Notes
    -----
    1. Noise per curve: its replicates, shrunk to the screen's with ten degrees of freedom; without replicates the noise
       of a residual GP on the 4P fits.
    2. The null is simulated and refitted, because the ratio's distribution after a bounded four-parameter fit on ten
       points is no chi-square. A monotone curve that starts below zero is fitted by E0 < 0 and is not counted.
    3. Errors shared by the replicates of a curve look like structure; the demand on e_min and e_max keeps them small.

    Examples
    --------
    >>> from assay.bio.dose_response import biphasic_test, datasets
    >>> found = biphasic_test(datasets.load_sarcoma(n_drugs=3), random_state=0)
    >>> len(found)
    51
    """
    import pandas as pd

    rng = as_rng(random_state)
    mask = data.mask if mask is None else np.asarray(mask, bool) & data.mask
    x = np.where(mask, np.log10(np.where(mask, data.dose, 1.0)), 0.0)
    fit = fit_hill(data.dose, data.effect, 4, mask)
    fitted = np.nan_to_num(fit.predict(np.where(mask, data.dose, 1.0)))
    residual = np.where(mask, data.effect - fitted, 0.0)
    own = np.where(mask, value_variance(data), np.nan)
    known = np.isfinite(own).sum(1)
    if known.sum() > mask.sum() // 2:
        pooled = float(np.nanmean(own))
        freedom = np.nansum(np.where(np.isfinite(own), np.maximum(data.replicate_n - 1, 1), 0), axis=1)
        noise = (np.nansum(own, 1) / np.maximum(known, 1) * freedom + pooled * 10.0) / (freedom + 10.0)
    else:
        noise = np.full(data.n_curves, ResidualGP().fit(data, residual, mask).noise_)
    noise = np.maximum(noise, 1e-8)  # noiseless synthetic data
    ratio = _gp_ratio(x, residual, mask, noise)
    null = []
    for _ in range(n_bootstrap):
        simulated = fitted + rng.standard_normal(mask.shape) * np.sqrt(noise)[:, None]
        again = fit_hill(data.dose, simulated, 4, mask)
        null.append(
            _gp_ratio(
                x,
                np.where(mask, simulated - np.nan_to_num(again.predict(np.where(mask, data.dose, 1.0))), 0.0),
                mask,
                noise,
            )
        )
    reference = np.sort(np.concatenate(null))
    above = len(reference) - np.searchsorted(reference, ratio, side="left")
    p = (above + 1.0) / (len(reference) + 1.0)
    q = false_discovery(p)
    smooth = fitted + _gp_mean(x, residual, mask, noise)
    seen = np.where(mask, smooth, -np.inf)
    peak = seen.argmax(1)
    e_min = np.where(mask & (np.arange(mask.shape[1]) <= peak[:, None]), smooth, np.inf).min(1)
    e_max = seen.max(1)
    return pd.DataFrame(
        {
            "drug": data.drugs[data.drug_index],
            "cell_line": data.cells[data.cell_index],
            "e_min": e_min,
            "e_max": e_max,
            "lr": ratio,
            "p_value": p,
            "q_value": q,
            "biphasic": (q <= level) & (e_min < -delta) & (e_max > delta),
        }
    )


# Signal-to-noise ratios a / s2 that the likelihood is maximised over, and the length scale in decades: a hump of a
# biphasic curve is about two decades wide.
_RATIOS = np.array([0.3, 1.0, 3.0, 10.0, 30.0, 100.0])
_LENGTH = 1.0


def _patterns(x: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    keys = np.where(mask, np.round(x, 9), np.inf)
    _, first, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    both = mask[first][:, :, None] & mask[first][:, None, :]
    k = np.where(both, matern52((x[first][:, :, None] - x[first][:, None, :]) / _LENGTH), 0.0)
    return k, which.ravel()


def _gp_ratio(x: np.ndarray, r: np.ndarray, mask: np.ndarray, noise: np.ndarray) -> np.ndarray:
    k, which = _patterns(x, mask)
    values, vectors = np.linalg.eigh(k)
    t = np.einsum("nmk,nm->nk", vectors[which], r) ** 2 / noise[:, None]
    best = np.zeros(len(x))
    for a in _RATIOS:
        scale = 1.0 + a * np.maximum(values[which], 0.0)
        best = np.maximum(best, (t * (1.0 - 1.0 / scale) - np.log(scale)).sum(1))
    return best


def _gp_mean(x: np.ndarray, r: np.ndarray, mask: np.ndarray, noise: np.ndarray) -> np.ndarray:
    k, which = _patterns(x, mask)
    values, vectors = np.linalg.eigh(k)
    values = np.maximum(values, 0.0)
    t = np.einsum("nmk,nm->nk", vectors[which], r)
    best, mean = np.zeros(len(x)), np.zeros_like(r)
    for a in _RATIOS:
        scale = 1.0 + a * values[which]
        ratio = (t**2 / noise[:, None] * (1.0 - 1.0 / scale) - np.log(scale)).sum(1)
        smoothed = np.einsum("nmk,nk->nm", vectors[which], t * (1.0 - 1.0 / scale))
        mean = np.where((ratio > best)[:, None], smoothed, mean)
        best = np.maximum(best, ratio)
    return mean
