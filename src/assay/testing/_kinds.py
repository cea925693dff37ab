"""From a case to the checks of its kind, and from a card to its cases."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ._cases import Case, Check, CheckResult, bind, run_checks

# kind (the word of card.toml) -> module of this package with `checks(case)`
KINDS: dict[str, str] = {
    "estimator": "_estimator",
    "optimizer": "_optimizer",
    "torch module": "_module",
    "graph algorithm": "_graph",
    "calculator": "_calculator",
    "acquisition": "_acquisition",
    "online learner": "_online",
}


def _checks(case: Case) -> list[tuple[str, Check]]:
    if case.kind not in KINDS:
        raise ValueError(
            f"{case.name}: kind {case.kind!r} has no checks; known kinds are {', '.join(sorted(KINDS))}. "
            "A new kind brings its checks as a module of assay.testing and a line in assay.testing.KINDS."
        )
    found: list[tuple[str, Check]] = importlib.import_module(f"{__package__}.{KINDS[case.kind]}").checks(case)
    return found


def checks_for(case: Case) -> list[tuple[str, Callable[[], None]]]:
    """Give the checks of a case's kind, each a function without arguments.

    Parameters
    ----------
    case : Case
        The object under contract.

    Returns
    -------
    list of (str, callable)
        Name and check. The check raises on a fault and ``unittest.SkipTest`` where it does not apply, so that pytest
        shows it as a skip with its reason.

    Raises
    ------
    ValueError
        Unknown kind, or an expected failure that names no check.

    Examples
    --------
    >>> import torch
    >>> from assay.testing import Case, checks_for
    >>> case = Case("SGD", "optimizer", make=lambda: lambda params: torch.optim.SGD(params, lr=0.1))
    >>> [name for name, check in checks_for(case)][:2]
    ['check_is_optimizer', 'check_parameter_groups']
    """
    return bind(case, _checks(case))


def check_case(case: Case) -> list[CheckResult]:
    """Run every check of a case's kind and raise one AssertionError that names all faults.

    Parameters
    ----------
    case : Case
        The object under contract.

    Returns
    -------
    list of CheckResult
        One per check, in order.

    Examples
    --------
    >>> import numpy as np
    >>> from assay.testing import Case, check_case
    >>> def root(x):
    ...     return np.sqrt(np.abs(np.asarray(x, dtype=float)))
    >>> case = Case("root", "calculator", make=lambda: root, data=lambda: [{"x": 4.0}], bad=[{"x": -1.0}])
    >>> try:
    ...     check_case(case)
    ... except AssertionError as error:
    ...     print(error)
    root breaks 1 of 6 checks:
      check_bad_input_refused: AssertionError: {'x': -1.0} was accepted
    """
    return run_checks(case, _checks(case))


def cases_of(card: Any) -> list[Case]:
    """Give the contract cases of a method.

    Parameters
    ----------
    card : assay._core.registry.Card
        The method.

    Returns
    -------
    list of Case
        What ``cases()`` of the method's ``_contract.py`` returns.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from assay.testing import cases_of
    >>> cases_of(SimpleNamespace(module="assay.testing"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ModuleNotFoundError: No module named 'assay.testing._contract'
    """
    return list(importlib.import_module(f"{card.module}._contract").cases())
