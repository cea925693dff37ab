"""Sending a run's numbers to a tracking server as they come; ``--track mlflow`` or ``--track mlflow:URI``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from numbers import Number
from pathlib import Path
from typing import Any, Protocol

from .errors import InputError, require
from .files import plain


class Tracker(Protocol):
    """What a run calls; another tracking system is another class with these four methods."""

    def start(self, command: str, parameters: Mapping[str, Any]) -> None:
        """Open a record for one run."""

    def metric(self, step: int, numbers: Mapping[str, float]) -> None:
        """Keep numbers of one step."""

    def results(self, numbers: Mapping[str, Any], report: Path) -> None:
        """Keep the final numbers and the report."""

    def finish(self, *, failed: bool) -> None:
        """Close the record."""


class MLflowTracker:
    """Writes to an MLflow store.

    Parameters
    ----------
    uri : str, optional
        Tracking address: ``sqlite:///FILE``, or the address of a server (which may keep its data in PostgreSQL).
        Default: ``$MLFLOW_TRACKING_URI``, else ``sqlite:///mlflow.db`` in the working folder.
    """

    def __init__(self, uri: str | None = None) -> None:
        self._mlflow = require("mlflow", "track")
        self.uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"
        if self.uri.startswith("sqlite"):
            # Named here because MLflow's own message, deep in a traceback, does not say which extra brings it.
            require("sqlalchemy", "track")
            require("alembic", "track")
        self._client: Any = None
        self._run_id = ""

    def start(self, command: str, parameters: Mapping[str, Any]) -> None:
        """Make (or reuse) the experiment ``assay`` and open a run named after the command."""
        from mlflow.exceptions import MlflowException

        self._client = self._mlflow.MlflowClient(tracking_uri=self.uri)
        try:
            experiment = self._client.get_experiment_by_name("assay")
            identifier = experiment.experiment_id if experiment is not None else self._client.create_experiment("assay")
            self._run_id = self._client.create_run(identifier, run_name=command).info.run_id
        except MlflowException as error:
            raise InputError(f"--track mlflow: the store {self.uri} cannot be used ({_first_line(error)}).") from error
        for name, value in parameters.items():
            if value is not None:
                self._client.log_param(self._run_id, name, str(plain(value))[:6000])  # MLflow's limit for a parameter

    def metric(self, step: int, numbers: Mapping[str, float]) -> None:
        """Log each number at its step."""
        for name, value in numbers.items():
            self._client.log_metric(self._run_id, name, float(value), step=step)

    def results(self, numbers: Mapping[str, Any], report: Path) -> None:
        """Log every scalar result, and the report's path as a tag."""
        for name, value in numbers.items():
            if isinstance(value, Number) and not isinstance(value, bool):
                self._client.log_metric(self._run_id, f"result.{name}", float(value))  # type: ignore[arg-type]
        self._client.set_tag(self._run_id, "assay.report", str(report.resolve()))

    def finish(self, *, failed: bool) -> None:
        """Mark the run finished or failed."""
        if self._client is not None:
            self._client.set_terminated(self._run_id, status="FAILED" if failed else "FINISHED")


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200]


def make_tracker(choice: str | None) -> Tracker | None:
    """Turn the value of ``--track`` into a tracker.

    Raises
    ------
    InputError
        If the system is unknown.
    """
    if choice is None:
        return None
    system, _, uri = choice.partition(":")
    if system == "mlflow":
        return MLflowTracker(uri or None)
    raise InputError(f"--track {choice!r} is unknown; use 'mlflow' or 'mlflow:URI'.")
