"""The switch that shrinks demos, examples and claims to seconds without another code path."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")


def smoke() -> bool:
    """Whether ``ASSAY_SMOKE=1`` asks for the smallest size that still runs every line."""
    return os.environ.get("ASSAY_SMOKE", "") not in ("", "0")


def pick(full: T, small: T) -> T:
    """Return `small` in smoke mode and `full` otherwise."""
    return small if smoke() else full
