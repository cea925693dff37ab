"""hMETIS files and label files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from assay._core.errors import InputError
from assay._core.files import open_text

from ._hypergraph import _EDGES, _NODES, Hypergraph

# A header may announce vertices that no hyperedge holds, but not any number of them: memory grows with the header, and a
# slip of the finger in it must not fill the machine.
_LARGEST_IDLE, _MOST_IDLE = 1_000_000, 100


def read_hmetis(path: str | Path) -> Hypergraph:
    """Read a hypergraph in hMETIS format, plain or gzip.

    The first line is ``m n [fmt]``: hyperedges, vertices, and which weights follow. The ones digit of fmt announces a
    weight in front of each hyperedge, the tens digit n lines of vertex weights at the end, the hundreds digit a value
    r_hi behind every vertex of a hyperedge. Vertices are counted from 1; lines that begin with % are comments.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    Hypergraph
        Vertices are named 1..n as in the file, unless the comments that `Hypergraph.to_hmetis` writes name them.

    Raises
    ------
    InputError
        With the line: wrong counts, vertices out of range, words that are no numbers, weights that are not positive.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from assay.graphs.hypergraph_diffusion import read_hmetis
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "small.hmetis"
    >>> _ = path.write_text("2 4 1\\n1.5 1 2 3\\n1 3 4\\n")
    >>> H = read_hmetis(path)
    >>> H.n_nodes, H.edge_weight.tolist(), H.node_names.tolist()
    (4, [1.5, 1.0], [1, 2, 3, 4])
    """
    return parse_hmetis(open_text(path).read(), str(path))


def parse_hmetis(text: str, source: str) -> Hypergraph:
    """The hypergraph of an hMETIS text; `source` names it in messages."""
    names: dict[str, list[Any]] = {}
    lines: list[str] = []
    numbers: list[int] = []
    for number, line in enumerate(io.StringIO(text), 1):
        stripped = line.strip()
        if stripped.startswith("%"):
            for tag in (_NODES, _EDGES):
                if stripped.startswith(tag):
                    found = _name_list(stripped[len(tag) :].strip(), f"{source}, line {number}")
                    if found is not None:
                        names[tag] = found
        elif stripped:
            lines.append(stripped)
            numbers.append(number)
    if not lines:
        raise InputError(f"{source} holds no hypergraph: only blank or comment lines.")
    try:
        head = [int(word) for word in lines[0].split()]
    except ValueError:
        head = []
    if not 2 <= len(head) <= 3:
        raise InputError(
            f"{source}, line {numbers[0]}: the header must be 'hyperedges vertices [fmt]' in whole numbers, "
            f"got {lines[0][:40]!r}."
        )
    m, n = head[0], head[1]
    fmt = head[2] if len(head) == 3 else 0
    digits = (fmt // 100, fmt // 10 % 10, fmt % 10)
    if m < 1 or n < 1 or fmt < 0 or any(d not in (0, 1) for d in digits):
        raise InputError(
            f"{source}, line {numbers[0]}: needs at least one hyperedge and one vertex, and fmt of digits 0 and 1, "
            f"got {lines[0][:40]!r}."
        )
    valued, vertex_weights, weighted = (bool(d) for d in digits)
    expected = m + (n if vertex_weights else 0)
    if len(lines) - 1 != expected:
        parts = f"{m} hyperedges" + (f" and {n} vertex weights" if vertex_weights else "")
        raise InputError(
            f"{source}, line {numbers[0]}: the header announces {parts}, so {expected} lines, but {len(lines) - 1} follow."
        )
    words = [line.split() for line in lines[1 : m + 1]]
    count = np.array([len(row) for row in words])
    value = _floats([word for row in words for word in row], count, numbers[1:], source)
    row = np.repeat(np.arange(m), count)
    place = np.arange(len(value)) - np.repeat(np.cumsum(count) - count, count)
    weight = None
    if weighted:
        weight = value[place == 0]
        bad = ~(np.isfinite(weight) & (weight > 0))
        if bad.any():
            h = int(np.argmax(bad))
            raise InputError(f"{source}, line {numbers[h + 1]}: the weight is {weight[h]:g}; it must be positive.")
        keep = place > 0
        value, row, place, count = value[keep], row[keep], place[keep] - 1, count - 1
    r = np.ones(len(value))
    if valued:
        odd = count % 2 == 1
        if odd.any():
            raise InputError(
                f"{source}, line {numbers[int(np.argmax(odd)) + 1]}: fmt {fmt} announces pairs 'vertex value', "
                "but the line holds an odd number of entries."
            )
        second = place % 2 == 1
        r, value, row = value[second], value[~second], row[~second]
        bad = ~(np.isfinite(r) & (r > 0))
        if bad.any():
            at = int(np.argmax(bad))
            raise InputError(
                f"{source}, line {numbers[row[at] + 1]}: the value {r[at]:g} of a vertex must be positive."
            )
    bad = ~((value >= 1) & (value <= n) & (value == np.floor(value)))
    if bad.any():
        at = int(np.argmax(bad))
        why = "hMETIS counts from 1" if value[at] == 0 else f"the header announces vertices 1 to {n}"
        raise InputError(f"{source}, line {numbers[row[at] + 1]}: vertex {value[at]:g} is out of range; {why}.")
    node = None
    if vertex_weights:
        rest = [line.split() for line in lines[m + 1 :]]
        long = next((i for i, line in enumerate(rest) if len(line) != 1), None)
        if long is not None:
            raise InputError(
                f"{source}, line {numbers[m + 1 + long]}: expected one vertex weight, got {' '.join(rest[long])[:40]!r}."
            )
        node = _floats([line[0] for line in rest], np.ones(n, dtype=int), numbers[m + 1 :], source)
        bad = ~(np.isfinite(node) & (node >= 0))
        if bad.any():
            i = int(np.argmax(bad))
            raise InputError(f"{source}, line {numbers[m + 1 + i]}: the vertex weight {node[i]:g} must be positive.")
    if n > _LARGEST_IDLE + _MOST_IDLE * len(value):
        raise InputError(
            f"{source}, line {numbers[0]}: the header announces {n:,} vertices, but the hyperedges hold {len(value):,} "
            "entries; correct the header."
        )
    B = sp.coo_array((r, (row, value.astype(np.int64) - 1)), shape=(m, n))
    try:
        return Hypergraph(
            B, weight, node, edge_names=names.get(_EDGES), node_names=names.get(_NODES, list(range(1, n + 1)))
        )
    except InputError as error:
        raise InputError(f"{source}: {error}") from error


def _name_list(text: str, where: str) -> list[Any] | None:
    """Names of a comment that `Hypergraph.to_hmetis` writes; None for a remark of someone else ("% nodes: 7")."""
    if not text.startswith("["):
        return None
    try:
        names = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        why = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
        raise InputError(f"{where}: the names are not valid JSON ({why}).") from error
    if not isinstance(names, list) or any(isinstance(name, (list, dict)) for name in names):
        raise InputError(f"{where}: the names must be one list of texts or numbers.")
    return names


def _floats(words: list[str], count: NDArray[Any], numbers: list[int], source: str) -> NDArray[np.float64]:
    try:
        return np.array(words, dtype=np.float64)
    except ValueError:
        for k, word in enumerate(words):
            try:
                float(word)
            except ValueError as error:
                line = numbers[int(np.searchsorted(np.cumsum(count), k, side="right"))]
                raise InputError(f"{source}, line {line}: {word[:40]!r} is not a number.") from error
        raise


def read_labels(path: str | Path, n: int) -> tuple[NDArray[Any], list[str]]:
    """Read a label file: optionally a first line of class names, then one class index (or word) per vertex.

    ``-1``, ``?`` or an empty line is a vertex without a label.

    Parameters
    ----------
    path : path
        The file, plain or gzip.
    n : int
        Number of vertices.

    Returns
    -------
    labels : ndarray of shape (n,)
        Class names as text, "" where unknown.
    classes : list of str
        The names that occur, in the order of the first line where there is one.

    Raises
    ------
    InputError
        Wrong number of lines, or an index beyond the names of the first line.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from assay.graphs.hypergraph_diffusion import read_labels
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "small.labels"
    >>> _ = path.write_text("tea coffee\\n0\\n-1\\n1\\n")
    >>> read_labels(path, 3)
    (array(['tea', '', 'coffee'], dtype=object), ['tea', 'coffee'])
    """
    lines = [line.strip() for line in open_text(path).read().split("\n")]
    if not lines[-1]:
        lines.pop()  # the line break at the end of the last line
    while len(lines) > n + 1 and not lines[-1]:
        lines.pop()
    head = lines[0].split() if lines else []
    named = len(head) > 1 or len(lines) == n + 1
    if named and len(set(head)) < len(head):
        raise InputError(f"{path}, line 1: a class name occurs twice in {lines[0][:60]!r}; names must differ.")
    body = lines[1:] if named else lines
    if len(body) != n:
        raise InputError(
            f"{path}: {len(body)} labels for {n} vertices; give one line per vertex"
            + (" after the line of class names." if named else ".")
        )
    out = np.empty(n, dtype=object)
    for i, word in enumerate(body):
        if word in ("", "-1", "?"):
            out[i] = ""
        elif named and word.isascii() and word.isdigit() and len(word) < 10:
            if int(word) >= len(head):
                raise InputError(
                    f"{path}, line {i + 2}: class {word}, but the first line names {len(head)} classes (from 0)."
                )
            out[i] = head[int(word)]
        elif named and word not in head:
            raise InputError(f"{path}, line {i + 2}: {word[:40]!r} is not a class of the first line.")
        else:
            out[i] = word
    classes = [c for c in head if c in set(out)] if named else sorted({c for c in out if c})
    return out, classes
