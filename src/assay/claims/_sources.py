"""A user's own data as a `Source`: tables, arrays, folders of images, graphs, and sequences.

Readers only read and check. Whatever is fitted (scalers, encoders, vocabularies) is fitted inside the cell, on its
training rows, so that nothing leaks.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from assay._core.errors import InputError
from assay._core.files import open_text, read_table, sha256_file

from ._models import Source

IMAGES = {".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp"}
FASTA = {".fa", ".fasta", ".faa", ".fna"}
SMILES = {".smi", ".smiles"}
GRAPHS = {".mtx", ".graph", ".metis", ".edges", ".edgelist", ".gml"}
TABLES = {".csv", ".tsv", ".parquet", ".pq"}
# A whole-number target with at most this many values is taken for classes; above, for a quantity.
CLASSES = 20


def read_user_data(
    path: str | Path,
    *,
    target: str | None = None,
    split: str | None = None,
    group: str | None = None,
    tasks: Sequence[str] = (),
) -> Source:
    """Read a file or folder of the user's into a `Source` named "user".

    Parameters
    ----------
    path : path
        CSV/TSV/Parquet table, NPZ/NPY arrays, folder of images (a sub-folder per class, or flat), graph (edge list,
        MatrixMarket, METIS, GML, scipy NPZ), FASTA or SMILES file; ``.gz`` where the format is text.
    target : str, optional
        Column to predict (tables), or array of that name (NPZ; default "y").
    split : str, optional
        "random:0.8", "file", "column:NAME" or "file:PATH".
    group : str, optional
        Column whose values a split must not cut.
    tasks : sequence of str
        What the claims accept; decides where a format could mean two things (a CSV of edges).

    Returns
    -------
    Source
        Its ``data`` is a dict: ``X, y`` (tables, arrays), ``paths, y, classes`` (images), ``W, nodes`` (graphs),
        ``sequences, names, y`` (sequences).

    Raises
    ------
    InputError
        If the file cannot be read as such; names the file and the row.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"There is no file or folder {path}; check --data.")
    kind = Path(path.stem).suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
    accepted = set(tasks)
    read: Callable[..., Source]
    if path.is_dir():
        read = _images
    elif kind in FASTA:
        read = _fasta
    elif kind in SMILES:
        read = _smiles
    elif kind in GRAPHS:
        read = _graph
    elif kind in (".npz", ".npy"):
        read = _arrays
    elif kind in TABLES | {".txt"}:
        # A table of edges or of sequences only where the claims take nothing else.
        read = _graph if accepted == {"graph"} else _sequence_table if accepted == {"sequences"} else _table
    else:
        raise InputError(
            f"{path}: files ending in {kind or 'nothing'!r} are not known; bring a CSV/TSV/Parquet table, NPZ, "
            "a folder of images, a graph (MTX, GRAPH, EDGES, GML), FASTA or SMI."
        )
    source = read(path, target=target, split=split, group=group, accepted=accepted)
    # The options change the data as much as the file does.
    digest = hashlib.sha256(repr((source.fingerprint, target, split, group, sorted(accepted))).encode()).hexdigest()
    info = {**source.info, "file": path.name}
    fields = {k: getattr(source, k) for k in ("data", "task", "groups", "n_rows")}
    splits, fraction = _split(split, source, path)
    return Source("user", fingerprint=digest, splits=splits, test_fraction=fraction, info=info, **fields)


def from_arrays(X: Any, y: Any, *, name: str = "user") -> Source:
    """Return the `Source` of a pair (X, y) as scikit-learn users have it."""
    import numpy as np

    features, labels = np.asarray(X), np.asarray(y)
    if features.ndim < 2 or labels.ndim != 1 or len(features) != len(labels) or not len(labels):
        raise InputError(
            f"data=(X, y): X must be rows x features and y a label per row, got {features.shape}, {labels.shape}."
        )
    task, classes = _task(labels, set())
    import joblib

    info = {"columns": int(np.prod(features.shape[1:])), "classes": classes}
    return Source(
        name, {"X": X, "y": labels}, task, str(joblib.hash([features, labels])), n_rows=len(labels), info=info
    )


def _task(y: Any, accepted: set[str]) -> tuple[str, int | None]:
    """Classification or regression, by what the claims take and else by the target; and the number of classes."""
    import numpy as np

    values = np.unique(np.asarray(y).astype(str) if np.asarray(y).dtype == object else np.asarray(y))
    numeric = np.issubdtype(values.dtype, np.number)
    whole = numeric and bool(np.all(values == np.round(values)))
    either = accepted & {"classification", "regression"}
    if len(either) == 1:
        task = either.pop()
    else:
        task = "classification" if not numeric or (whole and len(values) <= CLASSES) else "regression"
    return task, len(values) if task == "classification" else None


def _split(split: str | None, source: Source, path: Path) -> tuple[Any, float]:
    """Fixed "train"/"test" labels per row, or None and the fraction that tests."""
    import numpy as np

    if split is None:
        return source.splits, source.test_fraction
    kind, _, rest = split.partition(":")
    if kind == "random":
        try:
            train = float(rest)
        except ValueError:
            train = 0.0
        if not 0 < train < 1:
            raise InputError(f"--split {split}: write random:0.8, the fraction that trains, between 0 and 1.")
        return None, 1 - train
    if kind == "file" and rest:
        labels = [line.strip().lower() for line in open_text(rest).read().splitlines() if line.strip()]
    elif source.splits is not None:
        labels = [str(value).strip().lower() for value in source.splits]
    else:
        raise InputError(f"--split {split}: use random:0.8, file (a column named split), column:NAME or file:PATH.")
    wrong = next((i for i, label in enumerate(labels) if label not in ("train", "test")), None)
    if wrong is not None:
        raise InputError(f"--split {split}: row {wrong + 1} says {labels[wrong]!r}; each row must say train or test.")
    if len(labels) != source.n_rows:
        raise InputError(f"--split {split}: {len(labels)} labels for the {source.n_rows} rows of {path}.")
    return np.array(labels), source.test_fraction


def _only_tables(path: Path, **options: str | None) -> None:
    for name, value in options.items():
        if value:
            raise InputError(f"--{name} {value} names a column, and {path} is not a table.")


# ------------------------------------------------------------------------------------------------------------- readers


def _table(path: Path, *, target: str | None, split: str | None, group: str | None, accepted: set[str]) -> Source:
    column = None
    if split == "file":
        column = "split"
    elif split and split.startswith("column:"):
        column = split.partition(":")[2]
    special = [name for name in (target, group, column) if name]
    frame = read_table(path, required=special, what="table")
    if target is None and "table" not in accepted and accepted & {"classification", "regression"}:
        raise InputError(
            f"{path}: name the column to predict with --target (there is: {', '.join(frame.columns[:12])})."
        )
    X = frame.drop(columns=special)
    if not X.shape[1]:
        raise InputError(f"{path}: no column is left to learn from besides {', '.join(special)}.")
    groups = frame[group].to_numpy() if group else None
    splits = frame[column].to_numpy() if column else None
    data: dict[str, Any] = {"X": X}
    task, classes = "table", None
    if target is not None:
        missing = frame[target].isna().to_numpy()
        if missing.any():
            raise InputError(
                f"{path}, row {int(missing.argmax()) + 2}: the target {target!r} is empty; fill or drop the row."
            )
        data["y"] = frame[target].to_numpy()
        if frame[target].nunique() < 2:
            raise InputError(f"{path}: the target {target!r} has a single value; there is nothing to predict.")
        task, classes = _task(data["y"], accepted)
        if task == "regression" and data["y"].dtype.kind not in "iuf":
            raise InputError(f"{path}: the target {target!r} is not numeric, and the claims here predict a quantity.")
    info = {"columns": X.shape[1], "classes": classes, "target": target}
    return Source("user", data, task, sha256_file(path), groups, splits, n_rows=len(frame), info=info)


def _arrays(path: Path, *, target: str | None, split: str | None, group: str | None, accepted: set[str]) -> Source:
    import numpy as np

    try:
        with path.open("rb") as handle:  # numpy would leave a damaged file open
            loaded = np.load(handle, allow_pickle=False)
            arrays = {"X": loaded} if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    except (ValueError, OSError, EOFError, KeyError) as error:
        raise InputError(f"{path} is not a readable NumPy file ({error}).") from error
    except Exception as error:  # zipfile.BadZipFile and friends: a truncated archive
        raise InputError(f"{path} is not a complete NumPy archive ({error}).") from error
    if {"indices", "indptr", "shape", "format"} <= set(arrays):
        return _graph(path, target=target, split=split, group=group, accepted=accepted)
    label = target or "y"
    if "X" not in arrays:
        raise InputError(f"{path}: an NPZ file needs an array X (found: {', '.join(arrays)}).")
    if target is not None and target not in arrays:
        raise InputError(f"{path}: there is no array {target!r} (found: {', '.join(arrays)}).")
    if label not in arrays:
        X = arrays["X"]
        info = {"columns": int(np.prod(X.shape[1:])), "classes": None}
        return Source("user", {"X": X}, "table", sha256_file(path), n_rows=len(X), info=info)
    source = from_arrays(arrays["X"], arrays[label])
    task, classes = _task(arrays[label], accepted)
    groups = arrays.get(group) if group else None
    if group and groups is None:
        raise InputError(f"{path}: there is no array {group!r} for --group (found: {', '.join(arrays)}).")
    info = {**source.info, "classes": classes}
    return Source("user", source.data, task, sha256_file(path), groups, n_rows=source.n_rows, info=info)


def _images(path: Path, *, target: str | None, split: str | None, group: str | None, accepted: set[str]) -> Source:
    import numpy as np
    from PIL import Image, UnidentifiedImageError

    _only_tables(path, target=target, group=group)
    files = sorted(p for p in path.rglob("*") if p.suffix.lower() in IMAGES and p.is_file())
    if not files:
        raise InputError(f"{path} holds no images ({', '.join(sorted(IMAGES))}).")
    digest = hashlib.sha256()
    for file in files:
        try:
            with Image.open(file) as image:
                image.verify()
        except (UnidentifiedImageError, OSError, SyntaxError) as error:  # Pillow reports broken PNG as SyntaxError
            raise InputError(f"{file} is not a readable image ({error}); remove or replace it.") from error
        digest.update(f"{file.relative_to(path)}\0{sha256_file(file)}\n".encode())
    parts = [file.relative_to(path).parts for file in files]
    splits = None
    if all(len(p) > 1 and p[0] in ("train", "test") for p in parts):  # train/class/x.png, the layout of many releases
        splits, parts = np.array([p[0] for p in parts]), [p[1:] for p in parts]
    labels = [p[0] if len(p) > 1 else "" for p in parts]
    data: dict[str, Any] = {"paths": [str(file) for file in files], "y": None, "classes": []}
    if all(labels):
        data["classes"], data["y"] = (found.tolist() if i == 0 else found for i, found in enumerate(_codes(labels)))
    info = {"classes": len(data["classes"]) or None}
    return Source("user", data, "images", digest.hexdigest(), splits=splits, n_rows=len(files), info=info)


def _codes(labels: Sequence[str]) -> Any:
    import numpy as np

    return np.unique(labels, return_inverse=True)


def read_images(source: Source, size: int | tuple[int, int], *, grey: bool = False) -> Any:
    """Return the images of an image source as a float32 array n x height x width (x 3) in [0, 1].

    Parameters
    ----------
    source : Source
        With task "images".
    size : int or (height, width)
        Every image is resized to it.
    grey : bool, default False
        One channel, no last axis.

    Returns
    -------
    ndarray of float32
        In the order of ``source.data["paths"]``.
    """
    import numpy as np
    from PIL import Image

    height, width = (size, size) if isinstance(size, int) else size
    images = []
    for name in source.data["paths"]:
        with Image.open(name) as image:
            resized = image.convert("L" if grey else "RGB").resize((width, height), Image.Resampling.BILINEAR)
            images.append(np.asarray(resized, dtype=np.float32) / 255)
    return np.stack(images)


def _graph(path: Path, *, target: str | None, split: str | None, group: str | None, accepted: set[str]) -> Source:
    from assay._shared.graphs import read_graph

    _only_tables(path, target=target, group=group, split=split)
    W, names = read_graph(path)
    if not W.nnz:
        raise InputError(f"{path}: the graph has no edge.")
    return Source(
        "user",
        {"W": W, "nodes": [str(name) for name in names]},
        "graph",
        sha256_file(path),
        n_rows=W.shape[0],
        info={"edges": W.nnz // 2},
    )


def _fasta(path: Path, *, target: str | None, split: str | None, group: str | None, accepted: set[str]) -> Source:
    _only_tables(path, target=target, group=group)
    names: list[str] = []
    parts: list[list[str]] = []
    for number, line in enumerate(open_text(path), start=1):
        text = line.strip()
        if not text:
            continue
        if text.startswith(">"):
            names.append(text[1:].split()[0] if text[1:].split() else f"sequence{len(names) + 1}")
            parts.append([])
        elif not parts:
            raise InputError(f"{path}, line {number}: a FASTA file begins with a line '>name'.")
        elif not re.fullmatch(r"[A-Za-z*.\-]+", text):
            raise InputError(f"{path}, line {number}: {text[:40]!r} is not a sequence of letters.")
        else:
            parts[-1].append(text.upper())
    sequences = ["".join(p) for p in parts]
    empty = next((i for i, s in enumerate(sequences) if not s), None)
    if empty is not None:
        raise InputError(f"{path}: the sequence {names[empty]!r} is empty.")
    data = {"sequences": sequences, "names": names, "y": None}
    return Source(
        "user", data, "sequences", sha256_file(path), n_rows=len(sequences), info={"alphabet": "protein or DNA"}
    )


def _smiles(path: Path, *, target: str | None, split: str | None, group: str | None, accepted: set[str]) -> Source:
    _only_tables(path, target=target, group=group)
    rows = [line.split() for line in open_text(path).read().splitlines() if line.strip() and not line.startswith("#")]
    sequences = [row[0] for row in rows]
    wrong = next(
        (i for i, s in enumerate(sequences) if not re.fullmatch(r"[A-Za-z0-9@+\-\[\]()=#$:/\\.%*~]+", s)), None
    )
    if wrong is not None:
        raise InputError(f"{path}: {sequences[wrong][:40]!r} (molecule {wrong + 1}) is not a SMILES string.")
    names = [row[1] if len(row) > 1 else f"molecule{i + 1}" for i, row in enumerate(rows)]
    data = {"sequences": sequences, "names": names, "y": None}
    return Source("user", data, "sequences", sha256_file(path), n_rows=len(sequences), info={"alphabet": "SMILES"})


def _sequence_table(
    path: Path, *, target: str | None, split: str | None, group: str | None, accepted: set[str]
) -> Source:
    """A table with a column of sequences beside a target."""
    column = "split" if split == "file" else split.partition(":")[2] if split and split.startswith("column:") else None
    frame = read_table(path, required=[c for c in (target, group, column) if c], what="table of sequences")
    found = [c for c in frame.columns if c.lower() in ("sequence", "seq", "smiles", "protein", "peptide")]
    if not found:
        raise InputError(
            f"{path}: no column sequence, seq, smiles, protein or peptide (found: {', '.join(frame.columns[:12])})."
        )
    missing = frame[found[0]].isna().to_numpy()
    if missing.any():
        raise InputError(f"{path}, row {int(missing.argmax()) + 2}: the {found[0]} is empty.")
    data = {
        "sequences": frame[found[0]].astype(str).tolist(),
        "names": [str(i) for i in range(len(frame))],
        "y": frame[target].to_numpy() if target else None,
    }
    groups, splits = (frame[c].to_numpy() if c else None for c in (group, column))
    return Source(
        "user", data, "sequences", sha256_file(path), groups, splits, n_rows=len(frame), info={"alphabet": found[0]}
    )
