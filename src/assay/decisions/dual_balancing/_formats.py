"""Reading bid logs as people have them: tables, iPinYou's NPZ and text."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assay._core.errors import InputError
from assay._core.files import open_text, read_bytes, read_table

from ._log import LARGEST, BidLog

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

# our name -> what exports call it
ALIASES = {
    "value": ("value", "ev", "expected_value"),
    "pctr": ("pctr", "ctr", "click_rate"),
    "competing_price": ("competing_price", "min_bid_to_win", "winning_price", "market_price", "clearing_price"),
    "timestamp": ("timestamp", "time", "datetime"),
    "floor": ("floor", "bid_floor", "reserve"),
    "won": ("won", "win"),
    "price_paid": ("price_paid", "paid", "cost"),
    "converted": ("converted", "conversion", "click", "clicked"),
    "campaign": ("campaign", "campaign_id"),
    **{f"competing_{k}": (f"competing_{k}",) for k in range(2, 6)},
}


def parse_columns(text: str | None) -> dict[str, str]:
    """``"value=ev,competing_price=mbw"`` as a mapping."""
    out: dict[str, str] = {}
    for part in (text or "").split(","):
        if not part.strip():
            continue
        name, sign, column = (x.strip() for x in part.partition("="))
        if not sign or not column or name not in ALIASES:
            raise InputError(f"--columns: {part.strip()!r} must be NAME=COLUMN with a name of {', '.join(ALIASES)}.")
        out[name] = column
    return out


def read_log(
    path: str | Path,
    *,
    columns: dict[str, str] | None = None,
    value_per_click: float | None = None,
    price_scale: float = 1.0,
    won_only: bool = False,
) -> BidLog:
    """Read a bid log.

    Parameters
    ----------
    path : path
        CSV, TSV or Parquet with ``value`` (or ``pctr``) and ``competing_price``; iPinYou NPZ (``market_price``, ``pctr``)
        or text (``click price feature:1 ...``); ``.gz`` where it is text.
    columns : dict, optional
        Our names to those of the file.
    value_per_click : float, optional
        Turns click rates into values (currency).
    price_scale : float, default 1
        Prices are divided by it: 1000 for prices per thousand.
    won_only : bool, default False
        Leave out lost auctions whose price is unknown.

    Returns
    -------
    BidLog
        In time order; its notes say what was done.

    Raises
    ------
    InputError
        If a column is missing, or a number is missing, negative or infinite; names the row.
    """
    path = Path(path)
    if not 1 / LARGEST <= price_scale <= LARGEST:
        raise InputError(f"--price-scale must be above 0 and no more than {LARGEST:g}, got {price_scale}.")
    if value_per_click is not None and not 1 / LARGEST <= value_per_click <= LARGEST:
        raise InputError(f"--value-per-click must be above 0 and no more than {LARGEST:g}, got {value_per_click}.")
    if path.suffix.lower() == ".npz":
        return _npz(path, value_per_click, price_scale)
    name = path.name.lower().removesuffix(".gz")
    if name.endswith((".yzx", ".yzx.txt")) or (name.endswith(".txt") and _looks_yzx(path)):
        return _yzx(path, value_per_click, price_scale)
    return _table(path, columns or {}, value_per_click, price_scale, won_only)


def _log(path: Path, value: Any, competing: Any, **fields: Any) -> BidLog:
    try:
        return BidLog(value, competing, **fields, name=path.name)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _table(path: Path, columns: dict[str, str], per_click: float | None, scale: float, won_only: bool) -> BidLog:
    frame = read_table(path, what="bid log")
    names = _match(frame, columns, path)
    notes: list[str] = []
    rows = np.arange(len(frame))

    def column(name: str) -> NDArray[np.float64] | None:
        return None if name not in names else _numbers(frame, names[name], path)

    if "value" in names:
        value, value_name = column("value"), names["value"]
    elif "pctr" in names:
        if per_click is None:
            raise InputError(f"{path}: the values are click rates ({names['pctr']}); give --value-per-click.")
        rate, value_name = column("pctr"), names["pctr"]
        if rate is not None and (rate > 1).any():
            row = int(np.argmax(rate > 1))
            raise InputError(
                f"{path}, row {row + 2}, column {value_name}: {rate[row]:g}; a click rate lies in [0, 1] (per cent? divide by "
                "100), and a worth in currency is named value."
            )
        value = rate * per_click if rate is not None else None
    else:
        raise InputError(
            f"{path}: no column 'value' (or 'pctr') in the bid log (found: {_found(frame)}); map it by --columns."
        )
    won = _flags(frame, names["won"], path) if "won" in names else None
    paid = column("price_paid")
    price, price_name = column("competing_price"), names.get("competing_price", "")
    if price is None:
        if paid is None or won is None:
            raise InputError(
                f"{path}: no column 'competing_price' (or 'min_bid_to_win') in the bid log (found: {_found(frame)}); "
                "map it by --columns. Without the price to beat nothing can be replayed."
            )
        price, price_name = np.where(won, paid, np.nan), names["price_paid"]
        notes.append(
            "No competing prices: the price paid stands for the price to beat, which is right for second price."
        )
    unknown = np.isnan(price)
    if won is not None and (unknown & ~won).any():
        if not won_only:
            row = int(np.argmax(unknown & ~won))
            raise InputError(
                f"{path}, row {row + 2}: the lost auctions have no {price_name}; --won-only replays the won ones and says "
                "what that means."
            )
        keep = ~(unknown & ~won)
        rows = rows[keep]
        if not len(rows):
            raise InputError(f"{path}: every auction was lost at an unknown price, so --won-only leaves none.")
        notes.append(f"{int((~keep).sum()):,} lost auctions without a price are left out.")
    _check(value, value_name, path, rows)
    _check(price, price_name, path, rows)
    if won is not None and (free := int((~won[rows] & (price[rows] == 0)).sum())):
        notes.append(
            f"{free:,} lost auctions have a price to beat of 0, so that any bid wins them for nothing; where the price is "
            "unknown, leave the cell empty."
        )
    if won is not None and won[rows].all():
        notes.append(
            "Only won auctions: what a higher bid would have won is unknown, and the prices are those below the old bids. "
            "Rewards of high bids are underestimated, and prices look lower than they are."
        )
    rivals = [price / scale]
    for k in range(2, 6):
        more = column(f"competing_{k}")
        if more is not None:
            _check(more, names[f"competing_{k}"], path, rows)
            rivals.append(more / scale)
    floor = column("floor")
    if floor is not None:
        _check(floor, names["floor"], path, rows)
    hour = None
    if "timestamp" in names:
        seconds = _seconds(frame, names["timestamp"], path)
        if (np.diff(seconds[rows]) < 0).any():
            rows = rows[np.argsort(seconds[rows], kind="stable")]
            notes.append("The rows were not in the order of their timestamps and were sorted.")
        hour = (seconds - seconds[rows[0]]) / 3600.0
    else:
        notes.append("No timestamp: the rows are taken in the order of the file, and hours are not shown.")
    converted = column("converted")
    campaign = frame[names["campaign"]].astype(str).to_numpy() if "campaign" in names else None
    log = _log(
        path, np.asarray(value)[rows], np.stack(rivals, axis=1)[rows], floor=None if floor is None else floor[rows] / scale,
        hour=None if hour is None else hour[rows], won=None if won is None else won[rows],
        paid=None if paid is None else paid[rows] / scale, converted=None if converted is None else converted[rows],
        campaign=None if campaign is None else campaign[rows], notes=notes,
    )  # fmt: skip
    return _checked(log, path)


def _checked(log: BidLog, path: Path) -> BidLog:
    if log.value.max() <= 0:
        raise InputError(f"{path}: every value is 0, so no auction is worth a bid.")
    if len(log) < 10:
        raise InputError(f"{path}: {len(log)} auctions; at least 10 are needed.")
    return log


def _found(frame: pd.DataFrame) -> str:
    return ", ".join(map(str, frame.columns[:12])) + (", ..." if frame.shape[1] > 12 else "")


def _match(frame: pd.DataFrame, columns: dict[str, str], path: Path) -> dict[str, str]:
    lower = {str(c).lower(): str(c) for c in frame.columns}
    names = {}
    for ours, theirs in ALIASES.items():
        if ours in columns:
            if columns[ours] not in frame.columns:
                raise InputError(
                    f"{path}: no column {columns[ours]!r} for {ours} (found: {_found(frame)}); check --columns."
                )
            names[ours] = columns[ours]
            continue
        hit = next((lower[a] for a in theirs if a in lower), None)
        if hit is not None and hit not in columns.values():
            names[ours] = hit
    return names


def _numbers(frame: pd.DataFrame, name: str, path: Path) -> NDArray[np.float64]:
    import pandas as pd

    raw = frame[name]
    numbers = pd.to_numeric(raw, errors="coerce").to_numpy(dtype=np.float64)
    text = np.isnan(numbers) & raw.notna().to_numpy()
    if text.any():
        row = int(np.argmax(text))
        raise InputError(f"{path}, row {row + 2}, column {name}: {str(raw.iloc[row])[:40]!r} is not a number.")
    return np.asarray(numbers)


def _flags(frame: pd.DataFrame, name: str, path: Path) -> NDArray[np.bool_]:
    words = frame[name].astype(str).str.strip().str.lower()
    known = words.map({"1": 1, "0": 0, "1.0": 1, "0.0": 0, "true": 1, "false": 0, "yes": 1, "no": 0})
    if known.isna().any():
        row = int(np.argmax(known.isna()))
        raise InputError(f"{path}, row {row + 2}, column {name}: {words.iloc[row][:40]!r} is neither 1 nor 0.")
    return np.asarray(known.to_numpy(dtype=bool))


def _check(x: Any, name: str, path: Path, rows: NDArray[np.int64]) -> None:
    bad = ~((x[rows] >= 0) & (x[rows] <= LARGEST))
    if bad.any():
        row = int(rows[np.argmax(bad)])
        what = "missing" if np.isnan(x[row]) else f"{x[row]:g}"
        limit = f" and at most {LARGEST:g}" if x[row] > LARGEST else ""
        raise InputError(f"{path}, row {row + 2}, column {name}: {what}; a number of 0 or more{limit} is needed.")


def _seconds(frame: pd.DataFrame, name: str, path: Path) -> NDArray[np.float64]:
    import pandas as pd

    raw = frame[name]
    if pd.api.types.is_numeric_dtype(raw):
        x = raw.to_numpy(dtype=np.float64)
        # above 1e11 a number of seconds would lie beyond the year 5000: it counts milliseconds
        x = x / 1000.0 if np.nanmax(np.abs(x)) > 1e11 else x
        bad = ~np.isfinite(x)
    else:
        times = pd.to_datetime(raw, errors="coerce", utc=True, format="ISO8601")
        bad = times.isna().to_numpy()
        x = (times - pd.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy()
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{path}, row {row + 2}, column {name}: {str(raw.iloc[row])[:40]!r} is no time (ISO 8601 or seconds)."
        )
    return np.asarray(x, dtype=np.float64)


def _npz(path: Path, per_click: float | None, scale: float) -> BidLog:
    read_bytes(path)  # a missing or empty file is named here
    try:
        with np.load(path, allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError, KeyError, AttributeError) as error:
        raise InputError(f"{path} is not a readable NPZ file ({type(error).__name__}).") from error
    price = next((arrays[n] for n in ALIASES["competing_price"] if n in arrays), None)
    if price is None or not ({"value", "pctr"} & set(arrays)):
        raise InputError(
            f"{path} needs the arrays market_price and value (or pctr); it has {', '.join(arrays) or 'none'}."
        )
    for name in ("value", "pctr", "click", *ALIASES["competing_price"]):
        if name in arrays and arrays[name].dtype.kind not in "buif":
            raise InputError(f"{path}: the array {name} holds {arrays[name].dtype}; numbers are needed.")
    if "value" not in arrays and (above := np.flatnonzero(arrays["pctr"] > 1)).size:
        raise InputError(f"{path}: entry {above[0]} of pctr is above 1; click rates lie in [0, 1].")
    if "value" in arrays:
        value = arrays["value"].astype(np.float64)
    elif per_click is None:
        raise InputError(f"{path}: the values are click rates (pctr); give --value-per-click.")
    else:
        value = arrays["pctr"].astype(np.float64) * per_click
    log = _log(
        path, value, price.astype(np.float64) / scale, converted=arrays.get("click"),
        notes=["No timestamp: the rows are taken in the order of the file, and hours are not shown."],
    )  # fmt: skip
    return _checked(log, path)


def _looks_yzx(path: Path) -> bool:
    first = open_text(path).readline().split()
    return len(first) >= 2 and all(w.isdigit() for w in first[:2]) and all(":" in w for w in first[2:])


def _yzx(path: Path, per_click: float | None, scale: float) -> BidLog:
    if per_click is None:
        raise InputError(f"{path}: this format holds clicks and prices; give --value-per-click.")
    clicks, prices = [], []
    for number, line in enumerate(open_text(path), 1):
        words = line.split()
        if not words:
            continue
        try:
            clicks.append(float(words[0]))
            prices.append(float(words[1]))
        except (IndexError, ValueError) as error:
            raise InputError(f"{path}, line {number}: 'click price features' expected, got {line[:40]!r}.") from error
    rate = float(np.mean(clicks))
    if not 0 < rate <= 1:
        raise InputError(f"{path}: the share of clicks is {rate:g}, so no value can be given to an impression.")
    note = f"No click rates: every impression is worth the mean click rate {rate:.4g} times --value-per-click."
    return _checked(
        _log(
            path, np.full(len(clicks), rate * per_click), np.array(prices) / scale, converted=np.array(clicks),
            notes=[note, "No timestamp: the rows are taken in the order of the file, and hours are not shown."],
        ),
        path,
    )  # fmt: skip


def read_target(path: str | Path) -> NDArray[np.float64]:
    """A cumulative spending curve: the column ``cumulative`` or ``spend`` (per row) of a table."""
    frame = read_table(path, what="target curve")
    lower = {str(c).lower(): str(c) for c in frame.columns}
    for name in ("cumulative", "spend", "share"):
        if name in lower:
            x = _numbers(frame, lower[name], Path(path))
            _check(x, lower[name], Path(path), np.arange(len(x)))
            curve = x if name == "cumulative" else np.cumsum(x)
            if (np.diff(curve) < 0).any() or curve[-1] <= 0:
                raise InputError(f"{path}: the cumulative curve must not fall, and must end above 0.")
            return np.asarray(curve)
    raise InputError(f"{path}: no column 'cumulative' or 'spend' in the target curve (found: {_found(frame)}).")
