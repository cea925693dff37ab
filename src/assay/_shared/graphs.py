"""Graphs in and out: one validated CSR matrix from whatever a user holds, and readers for the usual files.

Every reader returns ``(W, names)``: ``W`` a symmetric float64 CSR matrix with sorted indices and an empty diagonal,
``names`` the vertex names as the input spells them, in row order. All parsing is array work: no Python loop runs over
edges.
"""

from __future__ import annotations

import gzip
import io
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.sparse as sp

from assay._core.errors import InputError, require
from assay._core.files import atomic_path, read_bytes

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SYMMETRY_TOLERANCE", "as_csr", "read_graph", "read_metis", "write_metis"]

# Two copies of one undirected weight may differ by the rounding of whoever wrote them; 1e-8 of the largest weight is
# far above float64 rounding and far below any difference that a user would mean.
SYMMETRY_TOLERANCE = 1e-8

FORMATS = (".graph", ".metis", ".mtx", ".edgelist", ".edges", ".txt", ".csv", ".tsv", ".gml", ".npz")
_EDGE_LISTS = (".edgelist", ".edges", ".txt", ".csv", ".tsv")
# Spellings of the two endpoint columns in the headers of common exporters (Gephi, igraph, networkx, SNAP, KONECT).
_SOURCE = ("source", "src", "from", "u", "node1", "node_1", "id_1", "id1", "fromnodeid", "head", "i")
_TARGET = ("target", "tgt", "dst", "to", "v", "node2", "node_2", "id_2", "id2", "tonodeid", "tail", "j")
_WEIGHT = ("weight", "w", "value", "wt", "strength", "count")

_SYMMETRISE = "symmetrise it first (W + W.T) or pass directed='symmetrize' (--directed symmetrize)"


# ---------------------------------------------------------------------------------------------------------------------
# matrices and networkx graphs


def as_csr(
    W: Any,
    *,
    weight: str | None = "weight",
    directed: Literal["error", "symmetrize"] = "error",
    source: str = "the graph",
) -> tuple[sp.csr_array, np.ndarray]:
    """Turn an adjacency matrix or a networkx graph into a validated symmetric CSR matrix.

    Parameters
    ----------
    W : sparse matrix, array of shape (n, n), pandas DataFrame or networkx graph
        Weighted adjacency; entry (i, j) is the weight of the edge, 0 means no edge. Duplicate sparse entries are
        summed, explicit zeros dropped.
    weight : str or None, default "weight"
        Edge attribute of a networkx graph; edges without it weigh 1; None gives every edge weight 1.
    directed : {"error", "symmetrize"}, default "error"
        What to do with a directed networkx graph or an asymmetric matrix: refuse it, or use ``W + W.T`` (the weights of
        the two directions are added, so whole weights stay whole).
    source : str, default "the graph"
        How messages name the input, for instance a file name.

    Returns
    -------
    W : scipy.sparse.csr_array of shape (n, n)
        float64, symmetric, sorted indices, empty diagonal. The input is never modified.
    names : ndarray of shape (n,)
        Node names: ``list(G.nodes)`` of a networkx graph, the index of a DataFrame, else 0..n-1.

    Raises
    ------
    InputError
        Non-square or asymmetric (beyond 1e-8 of the largest weight) matrix, a negative, NaN or infinite weight, fewer
        than two vertices, or a directed graph without ``directed="symmetrize"``.

    Notes
    -----
    1. Self-loops never cross a cut: they are dropped with one warning.
    2. An asymmetry below the tolerance is averaged away, so that what follows may rely on exact symmetry.

    Examples
    --------
    >>> A, names = as_csr([[0, 2, 0], [2, 0, 1], [0, 1, 0]])
    >>> A.nnz, names.tolist()
    (4, [0, 1, 2])
    """
    if directed not in ("error", "symmetrize"):
        raise InputError(f"directed must be 'error' or 'symmetrize', not {directed!r}.")
    if hasattr(W, "is_directed") and hasattr(W, "adj"):
        return _from_networkx(W, weight, directed, source)
    names = None
    if hasattr(W, "to_numpy") and hasattr(W, "columns"):
        names = np.asarray(W.index)
        W = W.to_numpy()
    if sp.issparse(W):
        if not np.issubdtype(W.dtype, np.number) and W.dtype != np.bool_:
            raise InputError(f"{source} holds entries of type {W.dtype}; edge weights must be real numbers.")
        if np.issubdtype(W.dtype, np.complexfloating):
            raise InputError(f"{source} holds complex entries; edge weights must be real and non-negative.")
        A = sp.csr_array(W, dtype=np.float64, copy=True)
    else:
        try:
            dense = np.asarray(W)
            if np.iscomplexobj(dense):
                raise InputError(f"{source} holds complex entries; edge weights must be real and non-negative.")
            dense = dense.astype(np.float64)
        except (TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"{source} is not a graph: give a scipy sparse matrix, a square array of numbers or a networkx graph."
            ) from error
        if dense.ndim != 2:
            raise InputError(f"{source} must be a square matrix, but the array has {dense.ndim} dimension(s).")
        A = sp.csr_array(dense)
    if A.shape[0] != A.shape[1]:
        raise InputError(f"{source} must be a square matrix, but its shape is {A.shape[0]} x {A.shape[1]}.")
    if names is None:
        names = np.arange(A.shape[0])
    A.sum_duplicates()
    return _checked(A, names, directed, source), names


def _from_networkx(G: Any, weight: str | None, directed: str, source: str) -> tuple[sp.csr_array, np.ndarray]:
    nx = require("networkx", "graphs")
    names = np.empty(G.number_of_nodes(), dtype=object)
    names[:] = list(G.nodes)
    if all(isinstance(name, (int, np.integer)) and not isinstance(name, bool) for name in names):
        names = names.astype(np.int64) if len(names) else np.arange(0)
    if len(names) < 2:
        raise InputError(f"{source} has {len(names)} vertices; at least 2 are needed.")
    if G.is_directed() and directed == "error":
        raise InputError(f"{source} is directed; cuts are defined for undirected graphs: {_SYMMETRISE}.")
    try:
        A = nx.to_scipy_sparse_array(G, weight=weight, dtype=np.float64, format="csr")
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{source} has an edge whose attribute {weight!r} is not a number; name another attribute or use weight=None."
        ) from error
    A = sp.csr_array(A)
    A.sum_duplicates()
    return _checked(A, names, "symmetrize" if G.is_directed() else directed, source, force=G.is_directed()), names


def _where(names: np.ndarray, i: int, j: int) -> str:
    return f"the edge {names[i]} - {names[j]}"


def _checked(A: sp.csr_array, names: np.ndarray, directed: str, source: str, *, force: bool = False) -> sp.csr_array:
    """Validate an owned CSR matrix with summed duplicates; symmetrise where allowed (always if ``force``)."""
    n = A.shape[0]
    if n < 2:
        raise InputError(f"{source} has {n} vertices; at least 2 are needed.")
    if A.nnz and not (np.isfinite(A.data).all() and A.data.min() >= 0):
        bad = int(np.flatnonzero(~np.isfinite(A.data) | (A.data < 0))[0])
        i = int(np.searchsorted(A.indptr, bad, side="right")) - 1
        what = "is negative" if A.data[bad] < 0 else "is not a finite number"
        raise InputError(
            f"{source}: the weight of {_where(names, i, int(A.indices[bad]))} {what} ({A.data[bad]:g}); "
            "weights must be non-negative and finite."
        )
    loops = np.flatnonzero(A.diagonal())
    if len(loops):
        A.setdiag(0.0)
        warnings.warn(
            f"{source}: dropped {len(loops)} self-loop(s), the first at vertex {names[loops[0]]}; "
            "a self-loop never crosses a cut.",
            UserWarning,
            stacklevel=3,
        )
    A.eliminate_zeros()
    A.sort_indices()
    B = A.T.tocsr()  # the transpose of a sorted CSR matrix comes out sorted, in linear time
    same_pattern = np.array_equal(A.indptr, B.indptr) and np.array_equal(A.indices, B.indices)
    if force:
        A = (A + B).tocsr()
    elif not (same_pattern and np.array_equal(A.data, B.data)):
        D = (A - B).tocoo()
        worst = int(np.argmax(np.abs(D.data))) if D.nnz else 0
        gap = float(np.abs(D.data[worst])) if D.nnz else 0.0
        if gap <= SYMMETRY_TOLERANCE * float(A.data.max()):
            A = ((A + B) * 0.5).tocsr()
        elif directed == "symmetrize":
            A = (A + B).tocsr()
        else:
            i, j = int(D.row[worst]), int(D.col[worst])
            raise InputError(
                f"{source} is not symmetric: {names[i]} -> {names[j]} weighs {A[i, j]:g} but "
                f"{names[j]} -> {names[i]} weighs {A[j, i]:g}; {_SYMMETRISE}."
            )
    A = sp.csr_array(A)
    A.sort_indices()
    if A.nnz and A.nnz < np.iinfo(np.int32).max:  # one index type whatever the input used: numba compiles kernels once
        A.indices = A.indices.astype(np.int32, copy=False)
        A.indptr = A.indptr.astype(np.int32, copy=False)
    return A


# ---------------------------------------------------------------------------------------------------------------------
# bytes


def _read_bytes(path: Path) -> bytes:
    """The content of a plain or gzipped file, without a UTF-8 byte order mark."""
    return read_bytes(path).removeprefix(b"\xef\xbb\xbf")


def _as_text(raw: bytes, path: Path) -> bytes:
    """Check that ``raw`` is UTF-8 text and give it plain newlines."""
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(f"{path} is UTF-16 text; save it as UTF-8.")
    if b"\x00" in raw[:65536]:
        raise InputError(f"{path} is a binary file, not text; check that the name's ending tells the format.")
    if b"\r" in raw:
        raw = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return raw


def _content_lines(raw: bytes, comments: bytes, *, keep_blank: bool) -> tuple[np.ndarray, np.ndarray]:
    """Drop comment (and blank) lines: the bytes kept, each line ended by a newline, and their 1-based line numbers."""
    if not raw.endswith(b"\n"):
        raw += b"\n"
    buf = np.frombuffer(raw, dtype=np.uint8)
    ends = np.flatnonzero(buf == 10)
    starts = np.concatenate(([0], ends[:-1] + 1))
    ink = np.flatnonzero(buf > 32)
    first = np.searchsorted(ink, starts)
    inside = first < len(ink)
    position = np.where(inside, ink[np.minimum(first, len(ink) - 1)] if len(ink) else 0, len(buf))
    blank = position > ends
    keep = np.ones(len(ends), dtype=bool)
    if comments:
        keep &= blank | ~np.isin(buf[np.minimum(position, len(buf) - 1)], np.frombuffer(comments, dtype=np.uint8))
    if not keep_blank:
        keep &= ~blank
    numbers = np.flatnonzero(keep) + 1
    if not keep.all():
        buf = buf[np.repeat(keep, ends - starts + 1)]
    return buf, numbers


# ---------------------------------------------------------------------------------------------------------------------
# METIS


def _whole_numbers(buf: np.ndarray, numbers: np.ndarray, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Parse every token of ``buf`` as a non-negative whole number: the values and the line index of each."""
    space = buf <= 32
    digit = (buf >= 48) & (buf <= 57)
    newlines = np.flatnonzero(buf == 10)
    odd = np.flatnonzero(~(space | digit))
    if len(odd):
        at = int(odd[0])
        left = at - int(np.argmax(space[: at + 1][::-1])) + 1 if space[: at + 1].any() else 0
        right = at + int(np.argmax(space[at:]))
        token = bytes(buf[left:right]).decode("utf-8", "replace")
        line = int(numbers[np.searchsorted(newlines, at)])
        hint = " (METIS files hold whole numbers only; for real weights use .mtx or .npz)" if "." in token else ""
        raise InputError(f"{path}, line {line}: '{token[:40]}' is not a non-negative whole number{hint}.")
    before = np.concatenate(([True], space[:-1]))
    starts = np.flatnonzero(digit & before)
    after = np.concatenate((space[1:], [True]))
    ends = np.flatnonzero(digit & after) + 1
    length = ends - starts
    if len(length) and int(length.max()) > 18:  # 10^18 < 2^63: longer tokens would overflow int64
        line = int(numbers[np.searchsorted(newlines, starts[int(np.argmax(length))])])
        raise InputError(f"{path}, line {line}: a number has more than 18 digits.")
    values = np.zeros(len(starts), dtype=np.int64)
    power = 1
    for k in range(int(length.max()) if len(length) else 0):
        has = length > k
        if has.all():
            values += (buf[ends - 1 - k] - np.uint8(48)).astype(np.int64) * power
        else:
            values[has] += (buf[ends[has] - 1 - k] - np.uint8(48)).astype(np.int64) * power
        power *= 10
    return values, np.searchsorted(newlines, starts)


def read_metis(path: str | Path, *, return_weights: bool = False) -> Any:
    """Read a graph in METIS (Chaco, KaHIP) text format, plain or gzipped.

    Line 1 is ``n m [fmt [ncon]]``; line i+1 lists the neighbours of vertex i (1-based), with weights as ``fmt`` says:
    its digits stand for vertex sizes, vertex weights, edge weights.

    Parameters
    ----------
    path : path
        File to read.
    return_weights : bool, default False
        Also return the vertex weights.

    Returns
    -------
    W : scipy.sparse.csr_array of shape (n, n)
        Symmetric float64 adjacency.
    vertex_weights : ndarray of shape (n,), (n, ncon), or None
        Only with ``return_weights``; None where the file has no vertex weights.

    Raises
    ------
    InputError
        With the line number: wrong number of vertices or edges, vertex ids from 0 or above n, an unknown ``fmt``, a
        list that the other end does not return, a repeated neighbour, zero edge weight, anything not a whole number,
        an empty or cut-off file.

    Notes
    -----
    1. Lines that start with % are comments; a blank line is a vertex without neighbours; blank lines after the last
       vertex are ignored.
    2. Vertex sizes (first digit of ``fmt``) matter to METIS's communication volume only; they are read and ignored.
    3. Self-loops are dropped with one warning.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "path.graph"
    >>> _ = path.write_text("3 2\\n2\\n1 3\\n2\\n")
    >>> read_metis(path).toarray().astype(int).tolist()
    [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    """
    path = Path(path)
    buf, numbers = _content_lines(_as_text(_read_bytes(path), path), b"%", keep_blank=True)
    if not (buf > 32).any():
        raise InputError(f"{path} holds no graph: only blank or comment lines.")
    values, line_of = _whole_numbers(buf, numbers, path)
    head = values[line_of == line_of[0]]
    if line_of[0] != 0:
        raise InputError(f"{path}, line {numbers[0]}: the first line must be 'n m [fmt [ncon]]', but it is blank.")
    header = int(numbers[0])
    if not 2 <= len(head) <= 4:
        raise InputError(
            f"{path}, line {header}: the header must hold 2 to 4 numbers, 'n m [fmt [ncon]]', but it holds {len(head)}."
        )
    n, m = int(head[0]), int(head[1])
    # the header's third token is a digit pattern, so leading zeros matter to its length but not to its meaning
    fmt = int(head[2]) if len(head) > 2 else 0
    ncon = int(head[3]) if len(head) > 3 else 1
    if fmt not in (0, 1, 10, 11, 100, 101, 110, 111):
        raise InputError(
            f"{path}, line {header}: fmt is {fmt}, but it must be three digits 0 or 1 "
            "(vertex sizes, vertex weights, edge weights), for instance 001 or 011."
        )
    has_size, has_weight, has_edge_weight = fmt // 100 == 1, fmt // 10 % 10 == 1, fmt % 10 == 1
    if not has_weight:
        ncon = 1 if len(head) < 4 or ncon <= 1 else ncon
        if ncon > 1:
            raise InputError(f"{path}, line {header}: ncon is {ncon}, but fmt {fmt:03d} announces no vertex weights.")
    elif ncon < 1:
        raise InputError(f"{path}, line {header}: ncon is 0, but fmt {fmt:03d} announces vertex weights.")
    if n < 2:
        raise InputError(f"{path}, line {header}: the header announces {n} vertices; at least 2 are needed.")

    body = line_of > 0
    values, row = values[body], line_of[body] - 1
    if len(row) and int(row[-1]) >= n:
        line = int(numbers[int(row[np.searchsorted(row, n)]) + 1])
        raise InputError(
            f"{path}, line {line}: the header (line {header}) announces {n} vertices, but more lines follow."
        )
    if len(numbers) - 1 < n:
        raise InputError(
            f"{path}, line {header}: the header announces {n} vertices, but only {len(numbers) - 1} lines follow; "
            "the file is cut off or the count is wrong."
        )
    counts = np.bincount(row, minlength=n)
    offset = np.concatenate(([0], np.cumsum(counts)))
    lead = int(has_size) + (ncon if has_weight else 0)
    if lead and int(counts.min()) < lead:
        i = int(np.argmax(counts < lead))
        raise InputError(
            f"{path}, line {numbers[i + 1]}: vertex {i + 1} needs {lead} leading number(s) (fmt {fmt:03d}), "
            f"but the line holds {int(counts[i])}."
        )
    weights = None
    if has_weight:
        weights = values[offset[:-1, None] + int(has_size) + np.arange(ncon)[None, :]].astype(np.float64)
        weights = weights[:, 0] if ncon == 1 else weights
    place = np.arange(len(values)) - offset[row] - lead
    keep = place >= 0
    values, row, place = values[keep], row[keep], place[keep]
    if has_edge_weight:
        ragged = np.flatnonzero((counts - lead) % 2)
        if len(ragged):
            i = int(ragged[0])
            raise InputError(
                f"{path}, line {numbers[i + 1]}: fmt {fmt:03d} announces pairs 'neighbour weight', "
                f"but the line of vertex {i + 1} holds an odd number of entries."
            )
        is_id = place % 2 == 0
        data = values[~is_id].astype(np.float64)
        column, row = values[is_id], row[is_id]
        if len(data) and data.min() == 0:
            i = int(row[int(np.argmin(data))])
            raise InputError(
                f"{path}, line {numbers[i + 1]}: an edge of vertex {i + 1} has weight 0; METIS weights start at 1."
            )
    else:
        column, data = values, np.ones(len(values))
    if len(column) and (int(column.min()) < 1 or int(column.max()) > n):
        at = int(np.argmax((column < 1) | (column > n)))
        why = (
            "METIS counts vertices from 1, this file seems to count from 0"
            if column[at] == 0
            else f"the header announces {n} vertices"
        )
        raise InputError(f"{path}, line {numbers[row[at] + 1]}: neighbour {column[at]} is out of range; {why}.")
    column = column - 1
    loop = column == row
    loops = int(loop.sum())
    entries = len(column)
    if (entries - loops) != 2 * m and entries != 2 * m and entries + loops != 2 * m:
        each = "; m counts each edge once" if entries == m else ""
        raise InputError(
            f"{path}, line {header}: the header announces {m} edges, but the lists hold {entries} entries, "
            f"that is {entries / 2:g} edges{each}."
        )
    if loops:
        at = int(np.argmax(loop))
        warnings.warn(
            f"{path}: dropped {loops} self-loop(s), the first in line {numbers[row[at] + 1]}; "
            "a self-loop never crosses a cut.",
            UserWarning,
            stacklevel=2,
        )
        row, column, data = row[~loop], column[~loop], data[~loop]
    indptr = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=n))))
    A = sp.csr_array((data, column, indptr), shape=(n, n))
    A.sort_indices()
    twice = np.flatnonzero((A.indices[1:] == A.indices[:-1]) & (row[1:] == row[:-1]))
    if len(twice):
        i, j = int(row[twice[0]]), int(A.indices[twice[0]])
        raise InputError(f"{path}, line {numbers[i + 1]}: vertex {i + 1} lists neighbour {j + 1} twice.")
    B = A.T.tocsr()
    if not (np.array_equal(A.indptr, B.indptr) and np.array_equal(A.indices, B.indices)):
        pattern = sp.csr_array((np.ones(A.nnz), A.indices, A.indptr), shape=A.shape)
        missing = (pattern - pattern.T).tocoo()
        at = int(np.argmax(missing.data > 0))
        i, j = int(missing.row[at]), int(missing.col[at])
        raise InputError(
            f"{path}, line {numbers[i + 1]}: vertex {i + 1} lists {j + 1}, but line {numbers[j + 1]} "
            f"(vertex {j + 1}) does not list {i + 1}; every edge must stand in both lists."
        )
    if not np.array_equal(A.data, B.data):
        at = int(np.argmax(A.data != B.data))
        i, j = int(row[at]), int(A.indices[at])
        raise InputError(
            f"{path}, line {numbers[i + 1]}: the edge {i + 1} - {j + 1} weighs {A.data[at]:g} here but {B.data[at]:g} "
            f"in line {numbers[j + 1]}."
        )
    A = _checked(A, np.arange(1, n + 1), "error", str(path))
    return (A, weights) if return_weights else A


def write_metis(path: str | Path, W: Any, *, vertex_weights: Any = None) -> None:
    """Write a graph in METIS text format, gzipped if the name ends in ``.gz``.

    Parameters
    ----------
    path : path
        File to write; it appears only when it is complete.
    W : sparse matrix, array or networkx graph
        Undirected graph with whole, positive weights; the weights are written (fmt 001) unless all are 1.
    vertex_weights : array of shape (n,), optional
        Whole non-negative vertex weights (fmt 01x).

    Raises
    ------
    InputError
        A weight that is not a whole number (the format cannot hold it), or what `as_csr` refuses.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "edge.graph"
    >>> write_metis(path, [[0, 3], [3, 0]])
    >>> path.read_text().split()
    ['2', '1', '001', '2', '3', '1', '3']
    """
    A, _ = as_csr(W)
    n = A.shape[0]
    if A.nnz and not np.array_equal(A.data, np.round(A.data)):
        odd = float(A.data[np.argmax(A.data != np.round(A.data))])
        raise InputError(
            f"METIS files hold whole weights only, but an edge weighs {odd:g}; scale the weights or use .npz."
        )
    weighted = bool(A.nnz and (A.data != 1).any())
    lines = [A.indices.astype(np.int64) + 1]
    if weighted:
        lines.append(A.data.astype(np.int64))
    tokens = np.column_stack(lines).ravel()
    per_row = np.diff(A.indptr).astype(np.int64) * len(lines)
    if vertex_weights is not None:
        vw = np.asarray(vertex_weights, dtype=np.float64)
        if vw.shape != (n,) or not np.array_equal(vw, np.round(vw)) or (vw < 0).any():
            raise InputError(f"vertex_weights must be {n} whole non-negative numbers.")
        tokens = np.insert(tokens, np.concatenate(([0], np.cumsum(per_row)[:-1])), vw.astype(np.int64))
        per_row = per_row + 1
    fmt = f" 0{int(vertex_weights is not None)}{int(weighted)}" if weighted or vertex_weights is not None else ""
    # one string per number, one join per vertex: the loop runs over vertices, never over edges
    words = tokens.astype(str).tolist()
    stops = np.concatenate(([0], np.cumsum(per_row))).tolist()
    text = f"{n} {A.nnz // 2}{fmt}\n" + "\n".join(" ".join(words[a:b]) for a, b in zip(stops, stops[1:], strict=False))
    raw = (text + "\n").encode("ascii")
    path = Path(path)
    with atomic_path(path) as temporary:
        # mtime 0 keeps equal graphs equal byte for byte
        Path(temporary).write_bytes(gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)


# ---------------------------------------------------------------------------------------------------------------------
# all formats


def read_graph(
    path: str | Path,
    *,
    weight: str | None = "weight",
    directed: Literal["error", "symmetrize"] = "error",
) -> tuple[sp.csr_array, np.ndarray]:
    """Read an undirected weighted graph; the ending of the name tells the format.

    Parameters
    ----------
    path : path
        ``.graph``/``.metis`` (METIS), ``.mtx`` (MatrixMarket), ``.edgelist``/``.edges``/``.txt``/``.csv``/``.tsv``
        (one edge per line: source, target, optional weight; optional header), ``.gml``, ``.npz`` (scipy sparse, or one
        square array); each also with ``.gz``.
    weight : str or None, default "weight"
        Column or edge attribute that holds the weights; None gives every edge weight 1.
    directed : {"error", "symmetrize"}, default "error"
        What to do with directed or asymmetric input, see `as_csr`.

    Returns
    -------
    W : scipy.sparse.csr_array of shape (n, n)
        Symmetric float64 adjacency.
    names : ndarray of shape (n,)
        Vertex names as the file spells them: 1..n for METIS and MatrixMarket, 0..n-1 for ``.npz``, the ids of an edge
        list (gaps and text are kept; numbers in increasing order, text in order of appearance), the labels of a GML
        file where they are unique, else its ids.

    Raises
    ------
    InputError
        One sentence that names the file, the line where there is one, what is wrong and what to do.

    Notes
    -----
    1. In an edge list each line is an undirected edge. The same pair may stand twice (also as ``v u``) with the same
       weight: it counts once. Two different weights for one pair are an error unless ``directed="symmetrize"``, which
       adds up all lines.
    2. Lines starting with # or % are comments.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "trade.csv"
    >>> _ = path.write_text("source,target,weight\\nAT,DE,3\\nDE,FR,2\\n")
    >>> W, names = read_graph(path)
    >>> names.tolist(), int(W.sum() / 2)
    (['AT', 'DE', 'FR'], 5)
    """
    path = Path(path)
    suffixes = [s.lower() for s in path.suffixes]
    kind = suffixes[-2] if len(suffixes) > 1 and suffixes[-1] == ".gz" else (suffixes[-1] if suffixes else "")
    if kind not in FORMATS:
        if not path.exists():
            raise InputError(f"{path} does not exist; check the path.")
        raise InputError(
            f"{path}: the format '{kind or 'no ending'}' is not known; use one of {', '.join(FORMATS)}[.gz]."
        )
    if kind in (".graph", ".metis"):
        A = read_metis(path)
        return A, np.arange(1, A.shape[0] + 1)
    if kind in _EDGE_LISTS:
        return _read_edges(path, weight, directed)
    if kind == ".mtx":
        return _read_matrix_market(path, directed)
    if kind == ".gml":
        return _read_gml(path, weight, directed)
    return _read_npz(path, directed)


def _read_matrix_market(path: Path, directed: str) -> tuple[sp.csr_array, np.ndarray]:
    import scipy.io

    raw = _as_text(_read_bytes(path), path)
    try:
        A = scipy.io.mmread(io.BytesIO(raw))
    except (ValueError, OverflowError, EOFError, TypeError, StopIteration) as error:
        reason = re.sub(r"\s+", " ", str(error)).strip().rstrip(".")
        raise InputError(f"{path} is not a valid MatrixMarket file: {reason}.") from error
    if A.shape[0] != A.shape[1]:
        raise InputError(f"{path} must hold a square matrix, but its shape is {A.shape[0]} x {A.shape[1]}.")
    names = np.arange(1, A.shape[0] + 1)
    A, _ = as_csr(A, directed="symmetrize" if directed == "symmetrize" else "error", source=str(path))
    return A, names


def _read_npz(path: Path, directed: str) -> tuple[sp.csr_array, np.ndarray]:
    raw = _read_bytes(path)
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
            keys = sorted(archive.files)
            dense = archive[keys[0]] if len(keys) == 1 else None
        A = dense if dense is not None else sp.load_npz(io.BytesIO(raw))
    except Exception as error:  # zipfile, zlib, numpy and scipy each raise their own kind for a damaged archive
        reason = re.sub(r"\s+", " ", str(error)).strip().rstrip(".")
        raise InputError(
            f"{path} is not a graph archive ({reason or type(error).__name__}); "
            "write one with scipy.sparse.save_npz(path, W), or numpy.savez(path, W) for one square array."
        ) from error
    A, names = as_csr(A, directed="symmetrize" if directed == "symmetrize" else "error", source=str(path))
    return A, names


def _read_gml(path: Path, weight: str | None, directed: str) -> tuple[sp.csr_array, np.ndarray]:
    nx = require("networkx", "graphs")
    raw = _as_text(_read_bytes(path), path)
    try:
        G = nx.parse_gml(raw.decode("utf-8").split("\n"), label="id")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8.") from error
    except (nx.NetworkXError, ValueError, KeyError, TypeError, IndexError) as error:
        reason = re.sub(r"\s+", " ", str(error)).strip().rstrip(".")
        raise InputError(f"{path} is not a valid GML graph: {reason}.") from error
    A, names = as_csr(G, weight=weight, directed=directed, source=str(path))  # type: ignore[arg-type]
    labels = [data.get("label") for _, data in G.nodes(data=True)]
    if None not in labels and len({str(label) for label in labels}) == len(labels):
        names = np.empty(len(labels), dtype=object)
        names[:] = labels
    return A, names


def _delimiter(line: str, path: Path) -> str:
    for mark in ("\t", ",", ";"):
        if mark in line:
            return mark
    if path.name.lower().removesuffix(".gz").endswith(".csv") and len(line.split()) < 2:
        raise InputError(f"{path}: the first line '{line[:40]}' has one column; expected 'source,target[,weight]'.")
    return r"\s+"


def _read_edges(path: Path, weight: str | None, directed: str) -> tuple[sp.csr_array, np.ndarray]:
    raw = _as_text(_read_bytes(path), path)
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8.") from error
    buf, numbers = _content_lines(raw, b"#%", keep_blank=False)
    if not len(numbers):
        raise InputError(f"{path} holds no edges: only blank or comment lines.")
    frame = _edge_table(bytes(buf), numbers, path)
    first = [str(cell).strip().strip('"').lower() for cell in frame.iloc[0]]
    header = _header(first, frame, weight)
    if header:
        frame, numbers = frame.iloc[1:], numbers[1:]
        columns = _pick_columns(first, weight, path)
    else:
        if frame.shape[1] > 3:
            raise InputError(
                f"{path}, line {numbers[0]}: {frame.shape[1]} columns without a header; an edge list has two or three "
                "(source, target, weight): name them in a first line."
            )
        columns = [0, 1, 2 if frame.shape[1] == 3 else None]
    if not len(frame):
        raise InputError(f"{path} holds a header but no edges.")
    u, v = (frame.iloc[:, c].str.strip() for c in columns[:2])
    for side in (u, v):
        empty = np.flatnonzero((side.isna() | (side == "")).to_numpy())
        if len(empty):
            raise InputError(f"{path}, line {numbers[empty[0]]}: an edge needs two vertices, but one is missing.")
    w = np.ones(len(frame))
    if weight is not None and columns[2] is not None:
        w = _edge_weights(frame.iloc[:, columns[2]], numbers, path, weight)
    ends, names = _vertex_ids(u, v)
    return _assemble(ends[: len(u)], ends[len(u) :], w, names, numbers, path, directed), names


def _edge_table(raw: bytes, numbers: np.ndarray, path: Path) -> pd.DataFrame:
    """Cells of an edge list as text; every row has the columns of the first."""
    import pandas as pd

    line = raw.split(b"\n", 1)[0].decode("utf-8")
    if "{" in line or (len(numbers) > 1 and b"{" in raw.split(b"\n", 2)[1]):
        # networkx writes 'u v {'weight': 2}': the dictionary may hold spaces, so it is taken as one cell
        text = pd.Series(raw.decode("utf-8").split("\n")[: len(numbers)])
        frame = text.str.extract(r"^\s*(\S+)[\s,]+(\S+?)[\s,]*(\{.*\})?\s*$")
        bad = np.flatnonzero(frame[0].isna().to_numpy())
        if len(bad):
            raise InputError(f"{path}, line {numbers[bad[0]]}: expected 'source target {{...}}'.")
        inside = frame[2].str.extract(r"['\"]weight['\"]\s*:\s*([^,}\s]+)")[0]
        frame[2] = inside.fillna("1")
        return frame
    sep = _delimiter(line, path)
    quoted = b'"' in raw
    try:
        return pd.read_csv(
            io.BytesIO(raw),
            sep=sep,
            header=None,
            dtype=str,
            keep_default_na=False,
            na_values=[],
            skipinitialspace=True,
            index_col=False,
            quoting=0 if quoted else 3,
            engine="c",
        )
    except pd.errors.ParserError as error:
        found = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
        if found is None:
            raise InputError(f"{path} is not a readable edge list: {str(error).strip()}.") from error
        line_number = numbers[int(found[2]) - 1]
        raise InputError(
            f"{path}, line {line_number}: {found[3]} columns, but the lines before have {found[1]}; "
            "give every edge the same columns."
        ) from error


def _numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _header(first: list[str], frame: pd.DataFrame, weight: str | None) -> bool:
    """A first line is a header if it names the ends, or names a weight column that holds numbers below."""
    if any(c in _SOURCE for c in first) and any(c in _TARGET for c in first):
        # 'u v' may also be an edge between vertices called u and v, which then have other edges below
        below = frame.iloc[1:, :2]
        ends = {str(cell).strip() for cell in frame.iloc[0, :2]}
        return not any(below[c].str.strip().isin(ends).any() for c in below.columns)
    if len(first) < 3 or len(frame) < 2 or _numeric(first[2]):
        return False
    return _numeric(str(frame.iloc[1, 2]).strip())


def _pick_columns(first: list[str], weight: str | None, path: Path) -> list[int | None]:
    source = next((k for k, c in enumerate(first) if c in _SOURCE), None)
    target = next((k for k, c in enumerate(first) if c in _TARGET), None)
    if source is None or target is None:
        source, target = 0, 1
    column = None
    if weight is not None:
        wanted = (weight.lower(), *_WEIGHT) if weight == "weight" else (weight.lower(),)
        column = next((k for name in wanted for k, c in enumerate(first) if c == name), None)
        if column is None and weight != "weight":
            raise InputError(f"{path}: no column '{weight}'; the columns are {', '.join(first)}.")
        if column is None and len(first) == 3:
            column = ({0, 1, 2} - {source, target}).pop()
        if column is None and len(first) > 3:
            others = ", ".join(c for k, c in enumerate(first) if k not in (source, target))
            raise InputError(
                f"{path}: which of the columns {others} holds the weights? Name it with weight (--weight NAME), or none."
            )
    return [source, target, column]


def _edge_weights(cells: pd.Series, numbers: np.ndarray, path: Path, weight: str) -> np.ndarray:
    import pandas as pd

    text = cells.str.strip()
    w = pd.to_numeric(text, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    bad = np.flatnonzero(~np.isfinite(w) | (w < 0))
    if len(bad):
        cell = text.iloc[bad[0]]
        said = "missing" if pd.isna(cell) or cell == "" else f"'{cell}'"
        raise InputError(
            f"{path}, line {numbers[bad[0]]}: the {weight} is {said}; weights must be non-negative finite numbers."
        )
    return w


def _vertex_ids(u: pd.Series, v: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of all ends, and the names: whole numbers in increasing order, else text in order of appearance."""
    import pandas as pd

    both = pd.concat([u, v], ignore_index=True)
    codes, uniques = pd.factorize(both)
    uniques = np.asarray(uniques, dtype=object)
    # '007' and '7' are different names: only canonical whole numbers that fit int64 are read as numbers
    if pd.Series(uniques).str.fullmatch(r"0|-?[1-9]\d{0,17}").all():
        as_number = uniques.astype(np.int64)
        order = np.argsort(as_number)
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        return rank[codes], as_number[order]
    # order of appearance along the lines (source then target), not all sources first
    first_u = pd.Series(np.arange(len(u)) * 2).groupby(codes[: len(u)]).min()
    first_v = pd.Series(np.arange(len(v)) * 2 + 1).groupby(codes[len(u) :]).min()
    first = pd.concat([first_u, first_v]).groupby(level=0).min().to_numpy()
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[codes], uniques[order]


def _assemble(
    i: np.ndarray, j: np.ndarray, w: np.ndarray, names: np.ndarray, numbers: np.ndarray, path: Path, directed: str
) -> sp.csr_array:
    n = len(names)
    a, b = np.minimum(i, j), np.maximum(i, j)
    if directed == "error":
        key = a.astype(np.int64) * n + b
        order = np.argsort(key, kind="stable")
        same = key[order][1:] == key[order][:-1]
        differ = np.flatnonzero(same & (w[order][1:] != w[order][:-1]))
        if len(differ):
            at = int(differ[np.argmin(order[differ + 1])])
            one, two = int(order[at]), int(order[at + 1])
            raise InputError(
                f"{path}, line {numbers[two]}: the edge {names[a[two]]} - {names[b[two]]} weighs {w[two]:g} here but "
                f"{w[one]:g} in line {numbers[one]}; give one weight per undirected edge, or pass "
                "directed='symmetrize' (--directed symmetrize) to add them up."
            )
        unique = order[np.concatenate(([True], ~same))]
        a, b, w = a[unique], b[unique], w[unique]
    off = a != b
    row = np.concatenate((a, b[off]))
    column = np.concatenate((b, a[off]))
    A = sp.csr_array((np.concatenate((w, w[off])), (row, column)), shape=(n, n))
    A.sum_duplicates()
    return _checked(A, names, "error", str(path))
