"""Reading what users bring and writing what they keep: clear errors in, atomic files out."""

from __future__ import annotations

import csv
import difflib
import gzip
import hashlib
import io
import json
import math
import os
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import AssayError, InputError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

_DELIMITERS = ",\t;|"


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` that becomes `path` if the block succeeds and vanishes if it does not.

    The content is on the disk before the rename, so that a crash leaves the old file or the new one, never half.

    Raises
    ------
    AssayError
        If the folder cannot be written or the disk is full; names the file.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The suffix is kept because writers (numpy, matplotlib, pandas) choose the format by it.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".partial-", suffix="".join(path.suffixes[-2:]))
    except OSError as error:
        raise _cannot_write(path, error) from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes files private; results are as readable as any other
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _cannot_write(path, error) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)  # the only portable way to read it is to set it
    os.umask(mask)
    return mask


def _cannot_write(path: Path, error: OSError) -> AssayError:
    reason = (error.strerror or str(error)).lower()
    return AssayError(f"Cannot write {path}: {reason}; choose another --out folder or free some space.")


def plain(value: Any) -> Any:
    """Turn numpy and torch values, paths and mappings into what JSON can hold; NaN and infinity become strings."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in (sorted(value) if isinstance(value, (set, frozenset)) else value)]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # numpy arrays and scalars, torch tensors, pandas indexes
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def write_text(path: str | Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: str | Path, value: Any) -> None:
    """Write JSON atomically; numpy values are converted, NaN and infinities are written as strings."""
    write_text(path, json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: str | Path) -> Any:
    """Read a JSON file.

    Raises
    ------
    InputError
        If the file is missing or is not JSON; gives the line.
    """
    text = open_text(path).read()
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: this is not valid JSON ({error.msg}).") from error


def sha256_file(path: str | Path) -> str:
    """Return the hexadecimal sha256 of a file's bytes."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def read_bytes(path: str | Path) -> bytes:
    """Return the file's bytes, decompressed if it is gzip (by its first bytes, whatever its name).

    Raises
    ------
    InputError
        If the file is missing, a folder, empty, unreadable, or a truncated gzip.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder; a file is expected.")
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"There is no file {path}; check the path.") from error
    except OSError as error:
        raise InputError(f"Cannot read {path}: {(error.strerror or str(error)).lower()}.") from error
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (EOFError, OSError, zlib.error) as error:
            raise InputError(f"{path} is a truncated or damaged gzip file; fetch or export it again.") from error
    if not raw:
        raise InputError(f"{path} is empty.")
    return raw


def open_text(path: str | Path) -> io.StringIO:
    """Return the text of a plain or gzip file: UTF-8 (or marked UTF-16), byte-order mark dropped, newlines unified.

    Raises
    ------
    InputError
        As `read_bytes`, or if the file is not text.
    """
    raw = read_bytes(path)
    try:
        if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
            text = raw.decode("utf-16")
        else:
            text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Excel on Windows still writes cp1252; a NUL byte, though, never occurs in a text file.
        if b"\x00" in raw:
            raise InputError(f"{path} is not a text file (byte {error.start} is not UTF-8).") from error
        line = raw[: error.start].count(b"\n") + 1
        raise InputError(f"{path}, line {line}: not UTF-8 text; save the file as UTF-8.") from error
    if "\x00" in text:
        raise InputError(f"{path} is not a text file (it contains zero bytes).")
    if not text.strip():
        raise InputError(f"{path} is empty.")
    return io.StringIO(text.replace("\r\n", "\n").replace("\r", "\n"))


def read_table(
    path: str | Path, *, columns: Sequence[str] | None = None, required: Sequence[str] = (), what: str = "table"
) -> pd.DataFrame:
    """Read a user's table: CSV, TSV or semicolon-separated (sniffed from the header), gzip or plain, or Parquet.

    Parameters
    ----------
    path : path
        The file.
    columns : sequence of str, optional
        Read only these.
    required : sequence of str
        Columns that must be there.
    what : str
        What the table is, for messages ("responses").

    Returns
    -------
    pandas.DataFrame
        With column names stripped of surrounding blanks. In a semicolon-separated file 0,5 is a half.

    Raises
    ------
    InputError
        Missing, empty, binary or ragged file (with the line), duplicate or missing columns (with the columns found and
        the closest name).
    """
    import pandas as pd

    path = Path(path)
    if path.suffix.lower() in (".parquet", ".pq"):
        from .errors import require

        require("pyarrow", "pip:pyarrow")
        try:
            frame = pd.read_parquet(io.BytesIO(read_bytes(path)))
        except (OSError, ValueError) as error:
            raise InputError(f"{path} is not a readable Parquet file ({error}).") from error
    else:
        text = open_text(path)
        start, header = 0, text.readline().rstrip("\n")
        while header.startswith("# "):  # remarks above the header, such as where a sample comes from
            start, header = text.tell(), text.readline().rstrip("\n")
        delimiter = max(_DELIMITERS, key=header.count)
        if header.count(delimiter) == 0 and len(required) > 1:
            raise InputError(
                f"{path}, line 1: no comma, tab or semicolon in the header {header[:60]!r}, so the {what} has one "
                f"column; it needs {', '.join(required)}."
            )
        names = [name.strip() for name in next(csv.reader([header], delimiter=delimiter))]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise InputError(f"{path}, line 1: the column {repeated[0]!r} occurs more than once; rename one.")
        text.seek(start)
        try:
            frame = pd.read_csv(text, sep=delimiter, skipinitialspace=True, low_memory=False)
        except pd.errors.ParserError as error:
            raise InputError(f"{path}: the {what} could not be read ({_first_sentence(error)}).") from error
        if delimiter == ";":
            frame = _decimal_commas(frame)
    frame.columns = [str(name).strip() for name in frame.columns]
    for name in required:
        if name not in frame.columns:
            close = difflib.get_close_matches(name.lower(), [c.lower() for c in frame.columns], n=1, cutoff=0.5)
            hint = next((f"; did you mean {c!r}?" for c in frame.columns if close and c.lower() == close[0]), "")
            found = ", ".join(map(str, frame.columns[:12])) + (", ..." if len(frame.columns) > 12 else "")
            raise InputError(f"{path}: no column {name!r} in the {what} (found: {found}){hint}")
    if len(frame) == 0:
        raise InputError(f"{path}: the {what} has a header but no rows.")
    return frame[list(columns)] if columns is not None else frame


def _decimal_commas(frame: pd.DataFrame) -> pd.DataFrame:
    """Turn columns of numbers with decimal commas into numbers: spreadsheets that part columns by semicolons write them."""
    for name in frame.columns:
        filled = frame[name].dropna()
        if filled.dtype.kind in "biuf" or not len(filled):
            continue
        text = filled.astype(str).str.strip()
        if text.str.fullmatch(r"[+-]?\d*,?\d+(?:[eE][+-]?\d+)?").all() and text.str.contains(",").any():
            frame[name] = (
                frame[name].astype(str).str.strip().str.replace(",", ".").where(frame[name].notna()).astype(float)
            )
    return frame


def _first_sentence(error: Exception) -> str:
    return str(error).strip().splitlines()[0].removeprefix("Error tokenizing data. C error: ").rstrip(".")


def save_tensors(path: str | Path, tensors: Mapping[str, Any], metadata: Mapping[str, Any] | None = None) -> None:
    """Write arrays or tensors and JSON metadata into one safetensors file, atomically.

    Parameters
    ----------
    path : path
        Usually ending in ``.safetensors``.
    tensors : mapping of str to ndarray or Tensor
        All on the CPU afterwards; views are copied.
    metadata : mapping, optional
        Anything JSON can hold; kept under the file's single metadata key ``assay``.
    """
    import numpy as np
    from safetensors.numpy import save_file

    arrays = {}
    for name, tensor in tensors.items():
        if hasattr(tensor, "detach"):
            tensor = tensor.detach().cpu().numpy()
        array = np.ascontiguousarray(tensor)
        # ascontiguousarray makes 0-d arrays 1-d; the shape must survive the round trip.
        arrays[name] = array.reshape(np.shape(tensor))
    text = json.dumps(plain(metadata or {}), allow_nan=False)
    with atomic_path(path) as temporary:
        save_file(arrays, temporary, metadata={"assay": text})


def load_tensors(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read what `save_tensors` wrote: (arrays by name, metadata). Never unpickles anything.

    Raises
    ------
    InputError
        If the file is missing, truncated or not a safetensors file.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no file {path}; check the path.")
    try:
        with safe_open(path, framework="numpy") as handle:
            arrays = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118 - not a dict
            metadata = handle.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path} is not a complete safetensors file ({error}).") from error
    return arrays, json.loads(metadata.get("assay", "{}"))
