"""Files of node evaluations, and evaluators that a user brings as a module or a command."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay._core.errors import AssayError, InputError

if TYPE_CHECKING:
    from torch import Tensor

    from ._network import FunctionNetwork


class EvaluationFailed(AssayError):
    """A node could not be evaluated; what was done before is kept."""


def read_observations(path: Path, network: FunctionNetwork) -> list[dict[str, Any]]:
    """Read a table of node evaluations: one row per evaluation.

    Columns: ``node``, one per decision variable and per parent output that the node reads (empty where a node does not
    read it), ``value``; optionally ``noise_var``, ``cost``, ``timestamp``.

    Parameters
    ----------
    path : path
        CSV, TSV or Parquet.
    network : FunctionNetwork
        Whose names the table uses.

    Returns
    -------
    list of dict
        ``node`` (index), ``z``, ``y``, ``noise_var``, ``cost``, ``row`` (number in the table, from 1).

    Raises
    ------
    InputError
        Names the row.
    """
    import difflib

    import pandas as pd

    from assay._core.files import read_table

    table = read_table(path, required=["node", "value"], what="table of evaluations")
    known = {"node", "value", "noise_var", "cost", "timestamp", *network.input_names, *network.node_names}
    for column in table.columns:
        if column not in known:
            close = difflib.get_close_matches(column, sorted(known), n=1)
            hint = f"; did you mean {close[0]!r}?" if close else "."
            raise InputError(f"{path}: the column {column!r} is no variable or node of the network{hint}")

    def number(row: int, column: str, text: Any, who: str) -> float:
        value = pd.to_numeric(text, errors="coerce") if not isinstance(text, (int, float)) else float(text)
        if not math.isfinite(float(value)):
            shown = "empty" if pd.isna(text) else repr(str(text))
            raise InputError(f"{path}, row {row}: {who} needs a number in the column {column!r}, it is {shown}.")
        return float(value)

    rows = []
    for i, record in enumerate(table.to_dict("records"), 1):
        name = "" if pd.isna(record["node"]) else str(record["node"]).strip()
        if name not in network.node_names:
            raise InputError(f"{path}, row {i}: there is no node {name!r}; nodes are {', '.join(network.node_names)}.")
        k = network.node_names.index(name)
        z = []
        for column in network.columns(k):
            if column not in table.columns:
                what = "its parent" if column in network.node_names else "its input"
                raise InputError(f"{path}: there is no column {column!r}, {what} that node {name!r} (row {i}) reads.")
            z.append(number(i, column, record[column], f"node {name!r}"))
        entry: dict[str, Any] = {"node": k, "z": z, "row": i, "noise_var": 0.0, "cost": None}
        entry["y"] = number(i, "value", record["value"], f"node {name!r}")
        for column in ("noise_var", "cost"):
            if column in table.columns and not pd.isna(record[column]):
                value = number(i, column, record[column], f"node {name!r}")
                if value < 0 or (column == "cost" and value == 0):
                    least = "above 0" if column == "cost" else "at least 0"
                    raise InputError(f"{path}, row {i}: {column} must be {least}, it is {value:g}.")
                entry[column] = value
        rows.append(entry)
    return rows


def load_functions(source: str, network: FunctionNetwork) -> Callable[[int, Tensor], list[float]]:
    """Take node functions from a Python module: a callable per node name, keyword arguments per input column.

    Parameters
    ----------
    source : str
        A file ``my_steps.py`` or an importable module name.
    network : FunctionNetwork
        Whose node names the module uses.

    Returns
    -------
    callable
        ``evaluator(node, z)`` gives the outputs of the node's group.
    """
    path = Path(source)
    if path.suffix == ".py" or path.is_file():
        if not path.is_file():
            raise InputError(f"There is no file {source}; --functions takes a Python file or a module name.")
        spec = importlib.util.spec_from_file_location("assay_user_functions", path)
        if spec is None or spec.loader is None:
            raise InputError(f"{source} is not a Python file.")
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except (
            Exception,
            SystemExit,
        ) as error:  # whatever the user's module raises is the user's to read, in one sentence
            raise InputError(f"{source} cannot be imported ({type(error).__name__}: {error}).") from error
    else:
        sys.path.insert(0, os.getcwd())
        try:
            module = importlib.import_module(source)
        except (Exception, SystemExit) as error:
            raise InputError(f"The module {source!r} cannot be imported ({type(error).__name__}: {error}).") from error
        finally:
            sys.path.pop(0)
    found = {}
    for k, name in enumerate(network.node_names):
        function = getattr(module, _identifier(name), None)
        if not callable(function):
            raise InputError(f"{source} has no function {_identifier(name)!r} for the node {name!r}.")
        found[k] = function

    def evaluate(node: int, z: Tensor) -> list[float]:
        outputs = []
        for k in network.group_of[node]:
            named = {_identifier(c): float(v) for c, v in zip(network.columns(k), z)}
            try:
                value = found[k](**named)
            except (Exception, SystemExit) as error:  # a step that calls exit() must not end the run unnamed
                raise EvaluationFailed(
                    f"The function of node {network.node_names[k]!r} failed at {_shown(named)} ({type(error).__name__}: {error})."
                ) from error
            outputs.append(_finite(value, network.node_names[k], named))
        return outputs

    return evaluate


def command_evaluator(command: str, network: FunctionNetwork, timeout: float) -> Callable[[int, Tensor], list[float]]:
    """Evaluate nodes by a command: the node and its inputs go in, a number comes back.

    ``{node}`` and ``{NAME}`` (any variable or node name) in the command are replaced; without any of them the command
    gets ``{"node": ..., "inputs": {...}}`` as JSON on standard input. The last line of its output is the value.

    Parameters
    ----------
    command : str
        Run without a shell.
    network : FunctionNetwork
        Whose names are used.
    timeout : float
        Seconds after which the command and its children are stopped.

    Returns
    -------
    callable
        ``evaluator(node, z)`` gives the outputs of the node's group.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"--evaluator {command!r} cannot be split into words ({error}).") from error
    if not words:
        raise InputError("--evaluator is empty; give a command.")
    if not (math.isfinite(timeout) and timeout > 0):
        raise InputError(f"--timeout must be a number of seconds > 0, got {timeout}.")
    names = ["node", *network.input_names, *network.node_names]
    pattern = re.compile("|".join(re.escape("{" + name + "}") for name in names))
    placeholders = any(pattern.search(word) for word in words)

    def evaluate(node: int, z: Tensor) -> list[float]:
        outputs = []
        for k in network.group_of[node]:
            named = {c: float(v) for c, v in zip(network.columns(k), z)}
            values = {"node": network.node_names[k], **{c: repr(v) for c, v in named.items()}}
            line = [pattern.sub(lambda m: str(values.get(m.group()[1:-1], "")), word) for word in words]  # noqa: B023
            text = None if placeholders else json.dumps({"node": network.node_names[k], "inputs": named})
            outputs.append(_run(line, text, timeout, network.node_names[k], named))
        return outputs

    return evaluate


def _run(line: list[str], text: str | None, timeout: float, name: str, named: dict[str, float]) -> float:
    at = f"node {name!r} at {_shown(named)}"
    try:
        process = subprocess.Popen(
            line, stdin=subprocess.PIPE if text is not None else subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise InputError(
            f"--evaluator: {line[0]} cannot be started ({(error.strerror or str(error)).lower()})."
        ) from error
    try:
        out, err = process.communicate(text, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        _stop(process)
        raise EvaluationFailed(
            f"The evaluator did not answer for {at} within {timeout:g} s and was stopped."
        ) from error
    except BaseException:
        _stop(process)  # Ctrl-C: the command must not go on alone
        raise
    if process.returncode != 0:
        last = (err.strip().splitlines() or ["no message"])[-1]
        raise EvaluationFailed(f"The evaluator failed for {at} with exit code {process.returncode} ({last[:200]}).")
    answer = (out.strip().splitlines() or [""])[-1].strip()
    try:
        value = float(answer)
    except ValueError as error:
        shown = repr(answer[:60]) if answer else "nothing"
        raise EvaluationFailed(f"The evaluator printed {shown} for {at}; its last line must be a number.") from error
    return _finite(value, name, named)


def _stop(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)  # the whole group: a shell script's children would live on
    except ProcessLookupError:
        process.poll()  # it ended by itself in the meantime
    process.communicate()


def _finite(value: Any, name: str, named: dict[str, float]) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise EvaluationFailed(
            f"Node {name!r} gave {type(value).__name__} at {_shown(named)}; a number is needed."
        ) from error
    if not math.isfinite(number):
        raise EvaluationFailed(f"Node {name!r} gave {number} at {_shown(named)}; a finite number is needed.")
    return number


def _shown(named: dict[str, float]) -> str:
    return ", ".join(f"{k} = {v:.6g}" for k, v in named.items())


def _identifier(name: str) -> str:
    """The name as Python spells it: a node "dry-mix 2" is the function ``dry_mix_2``."""
    text = re.sub(r"\W", "_", name)
    return f"_{text}" if text[:1].isdigit() else text
