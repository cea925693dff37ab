"""Watch rotation inside a Hugging Face Trainer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay._core.errors import require

from ._advice import advise
from ._monitor import RotationMonitor

__all__ = ["rotation_callback"]


def rotation_callback(
    interval: int = 10, layers: Sequence[str] | None = None, *, log_every: int = 100, out: str | Path | None = None
) -> Any:
    """Make a ``transformers.TrainerCallback`` that watches the trainer's model and optimizer.

    Parameters
    ----------
    interval : int, default 10
        As in :class:`RotationMonitor`.
    layers : sequence of str, optional
        Patterns of weights to watch.
    log_every : int, default 100
        Every so many steps the median ratio and the number of layers within 15 % are handed to the trainer's log.
    out : path, optional
        Folder for ``rotation.csv`` and ``advice.txt`` at the end of training.

    Returns
    -------
    transformers.TrainerCallback
        With attributes ``monitor`` and, after training, ``report`` and ``advice``.

    Raises
    ------
    MissingExtra
        If transformers is not installed.

    Notes
    -----
    1. transformers is imported by this call and by nothing else.
    2. Accelerate wraps the optimizer; the wrapped one takes the steps, so that one is hooked.

    Examples
    --------
    >>> callback = rotation_callback(interval=10)  # doctest: +SKIP
    >>> Trainer(model, args, callbacks=[callback]).train()  # doctest: +SKIP
    """
    transformers = require("transformers", "language")

    class RotationCallback(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        monitor: RotationMonitor | None = None
        report: Any = None
        advice: Sequence[str] = ()

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            optimizer = kwargs["optimizer"]
            while hasattr(optimizer, "optimizer"):
                if type(optimizer).__name__ == "RVWrapper":
                    break
                optimizer = optimizer.optimizer
            self.monitor = RotationMonitor(kwargs["model"], optimizer, interval, layers)
            self.monitor.attach()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            if self.monitor is None or logs is None or not self.monitor.has_samples or state.global_step % log_every:
                return
            report = self.monitor.report()
            logs["rotation/median_ratio"] = float(report["ratio"].median())
            logs["rotation/layers_as_predicted"] = int(((report["ratio"] - 1).abs() <= 0.15).sum())

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if self.monitor is None:
                return
            self.monitor.detach()
            if not self.monitor.has_samples:
                return
            self.report = self.monitor.report()
            self.advice = advise(self.report)
            if out is not None:
                from assay._core.files import atomic_path, write_text

                folder = Path(out)
                folder.mkdir(parents=True, exist_ok=True)
                with atomic_path(folder / "rotation.csv") as path:
                    self.report.to_csv(path, index=False)
                write_text(folder / "advice.txt", "\n".join(self.advice) + "\n")

    return RotationCallback()
