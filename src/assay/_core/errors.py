"""The exceptions a user can meet, and how a missing extra is named."""

from __future__ import annotations

import importlib
from types import ModuleType

DISTRIBUTION = "assay-ml"


class AssayError(Exception):
    """Base of every error that Assay raises on purpose; its message is one sentence."""


class InputError(AssayError, ValueError):
    """What the user gave cannot be used: says what, where (file, row, option) and what to do."""


class MissingExtra(AssayError, ImportError):
    """A package of an optional extra is not installed; names the line that installs it."""


class MissingData(AssayError, FileNotFoundError):
    """A data file is neither local nor reachable; says where to get it and where to put it."""


def require(module: str, extra: str) -> ModuleType:
    """Import a module of an optional extra.

    Parameters
    ----------
    module : str
        Dotted name, e.g. ``"rdkit.Chem"``.
    extra : str
        The extra of this distribution that installs it, or ``"pip:NAME"`` for a peer that belongs to no extra.

    Raises
    ------
    MissingExtra
        If the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # A module missing *inside* an installed package is a fault of that package, not a missing extra.
        if error.name is None or not (module == error.name or module.startswith(error.name + ".")):
            raise
        raise missing_extra(module, extra) from error


def missing_extra(module: str, extra: str) -> MissingExtra:
    """Return the error of a module that is not installed, with the line that installs it."""
    package = module.partition(".")[0]
    line = extra.removeprefix("pip:") if extra.startswith("pip:") else f"'{DISTRIBUTION}[{extra}]'"
    return MissingExtra(f"This needs the package {package}, which is not installed: pip install {line}")
