"""What a contract check is given: one public object of a method, how to make it, and data small enough for seconds."""

from __future__ import annotations

import unittest
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, eq=False)
class Case:
    """One object that must keep the contract of its kind.

    Parameters
    ----------
    name : str
        Shown in the test's id; usually the class name, with what differs from the default.
    kind : str
        A kind that has checks: "estimator", "optimizer", "torch module", "graph algorithm", "acquisition" or "calculator".
    make : callable
        Called without arguments, gives a fresh object each time: an unfitted estimator or graph algorithm, a
        callable ``params -> Optimizer``, a module, or the function of a calculator.
    data : callable, optional
        Called without arguments: the tuple of fit arguments (estimator), the tuple of inputs (torch module), the list
        of keyword dictionaries (calculator). Optimizers and graph algorithms need none: the checks bring their own.
    expected_failures : mapping of str to str
        Names of checks that this object cannot keep, each with the reason. A check listed here that passes is an error.
    predict : callable, optional
        ``predict(fitted) -> array``. Default: ``predict`` or ``transform`` on the first fit argument (estimator),
        ``labels_`` (graph algorithm).
    sklearn_checks : bool, default False
        Estimators: also run every check of ``sklearn.utils.estimator_checks``.
    expected_failed_checks : mapping of str to str
        Names of scikit-learn's own checks that do not apply, each with the reason.
    per_vertex : bool, default True
        Graph algorithms: the output has one entry per vertex.
    recovers_cliques : bool, default True
        Graph algorithms: two cliques joined by one light edge are told apart (used to see that results come back in
        the order of the input). Set False for algorithms that do not cluster.
    scale_free : bool, default True
        Graph algorithms: multiplying all weights by a constant leaves the output as it is.
    output_shape : sequence of int, optional
        Torch modules: the documented shape of the (first) output for ``data()``.
    batched : bool, default True
        Torch modules: dimension 0 of every tensor input and output is the batch.
    atol : float, optional
        Torch modules and calculators: absolute tolerance where equality is of rounding only. Default by kind.
    bad : sequence of dict, optional
        Calculators: keyword dictionaries each of which must be refused with ValueError.
    vectorised : sequence of str, optional
        Calculators: the arguments that broadcast. Default: all that are floats in ``data()``.

    Examples
    --------
    >>> import torch
    >>> from assay.testing import Case, checks_for
    >>> case = Case("SGD", "optimizer", make=lambda: lambda params: torch.optim.SGD(params, lr=0.1))
    >>> dict(checks_for(case))["check_closure"]()
    """

    name: str
    kind: str
    make: Callable[[], Any]
    data: Callable[[], Any] | None = None
    expected_failures: Mapping[str, str] = field(default_factory=dict)
    predict: Callable[[Any], Any] | None = None
    sklearn_checks: bool = False
    expected_failed_checks: Mapping[str, str] = field(default_factory=dict)
    per_vertex: bool = True
    recovers_cliques: bool = True
    scale_free: bool = True
    output_shape: Sequence[int] | None = None
    batched: bool = True
    atol: float | None = None
    bad: Sequence[Mapping[str, Any]] | None = None
    vectorised: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for check, reason in {**self.expected_failures, **self.expected_failed_checks}.items():
            if not reason.strip():
                raise ValueError(f"{self.name}: the expected failure of {check} needs its reason")

    def inputs(self) -> Any:
        """Fresh data; a case without data cannot run the checks that need it, which is an error, not a skip."""
        if self.data is None:
            raise AssertionError(f"{self.name}: a case of kind {self.kind!r} must give data=")
        return self.data()


@dataclass(frozen=True)
class CheckResult:
    """Outcome of one check.

    Attributes
    ----------
    check : str
        Name of the check.
    status : str
        "passed", "failed", "expected failure" or "skipped".
    message : str
        What went wrong, or why it was skipped.
    """

    check: str
    status: str
    message: str = ""


def not_applicable(reason: str) -> unittest.SkipTest:
    """The exception for a check that has nothing to look at here; pytest reports it as a skip with the reason."""
    return unittest.SkipTest(reason)


Check = Callable[[Case], None]


def bind(case: Case, checks: Iterable[tuple[str, Check]]) -> list[tuple[str, Callable[[], None]]]:
    """Checks of a case as functions without arguments, expected failures turned round.

    An expected failure that does not fail raises AssertionError: the list of exceptions can only shrink.
    """
    checks = list(checks)
    expected = {**case.expected_failures, **case.expected_failed_checks}
    unknown = sorted(set(expected) - {name for name, _ in checks})
    if unknown:
        raise ValueError(
            f"{case.name}: expected_failures names unknown checks {unknown}; known: {[n for n, _ in checks]}"
        )
    return [(name, _bound(case, name, check, expected.get(name))) for name, check in checks]


def _bound(case: Case, name: str, check: Check, reason: str | None) -> Callable[[], None]:
    def run() -> None:
        if reason is None:
            check(case)
            return
        try:
            check(case)
        except unittest.SkipTest as skip:
            raise AssertionError(
                f"{case.name}: {name} does not apply here ({skip}); drop its expected failure"
            ) from skip
        except Exception as error:  # any failure is the one that was announced
            raise unittest.SkipTest(f"expected failure: {reason}") from error
        raise AssertionError(f"{case.name}: {name} passes although it was expected to fail ({reason}); drop the entry")

    run.__name__ = name
    run.__doc__ = check.__doc__
    return run


def run_checks(case: Case, checks: Iterable[tuple[str, Check]]) -> list[CheckResult]:
    """Run all, then raise one AssertionError that names every check that failed."""
    results = []
    for name, check in bind(case, checks):
        try:
            check()
        except unittest.SkipTest as skip:
            status = "expected failure" if str(skip).startswith("expected failure: ") else "skipped"
            results.append(CheckResult(name, status, str(skip)))
        except Exception as error:  # collected, raised together below
            results.append(CheckResult(name, "failed", f"{type(error).__name__}: {error}"))
        else:
            results.append(CheckResult(name, "passed"))
    failed = [f"  {r.check}: {r.message}" for r in results if r.status == "failed"]
    if failed:
        raise AssertionError(f"{case.name} breaks {len(failed)} of {len(results)} checks:\n" + "\n".join(failed))
    return results
