"""Turning a device name into a torch device, with an error that says what this machine has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import InputError

if TYPE_CHECKING:
    import torch


def resolve_device(device: str | torch.device = "cpu") -> torch.device:
    """Return the torch device named, where ``"auto"`` takes CUDA if there is one and the CPU otherwise.

    Raises
    ------
    InputError
        If the name is unknown or the device is not on this machine.
    """
    import torch

    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"Unknown device {device!r}: use 'auto', 'cpu', 'cuda' or 'cuda:INDEX'.") from error
    if resolved.type == "cuda":
        count = torch.cuda.device_count()
        if count == 0:
            raise InputError(f"Device {str(device)!r} was asked for, but torch sees no CUDA device here: use 'cpu'.")
        if resolved.index is not None and resolved.index >= count:
            raise InputError(f"Device {str(device)!r} was asked for, but torch sees only {count} CUDA device(s).")
    return resolved
