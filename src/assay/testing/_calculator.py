"""The contract of kind "calculator": pure functions in float64 that broadcast."""
# ruff: noqa: NPY002, PT017, PT018 - checks of others' code: numpy's global generator is what is watched, asserts carry the message

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._cases import Case, Check, CheckResult, not_applicable, run_checks
from ._compare import fingerprint, leaves


def _floats(case: Case, kwargs: Mapping[str, Any]) -> list[str]:
    """Names of the arguments that broadcast: the declared ones, else those that are scalar floats."""
    if case.vectorised is not None:
        return [name for name in case.vectorised if kwargs.get(name) is not None]
    return [k for k, v in kwargs.items() if isinstance(v, (float, np.floating))]


def _numbers(value: Any) -> list[np.ndarray]:
    return [a for a in leaves(value) if a.dtype.kind in "fiubc"]


def _examples(case: Case) -> list[dict[str, Any]]:
    examples = [dict(kwargs) for kwargs in case.inputs()]
    assert examples, f"{case.name}: data() gives no example"
    return examples


def check_pure(case: Case) -> None:
    """The same arguments give the same bits, in any order of calls, and no global generator moves."""
    f = case.make()
    examples = _examples(case)
    state = fingerprint(list(np.random.get_state()))
    first = [fingerprint(f(**copy.deepcopy(kwargs))) for kwargs in examples]
    second = [fingerprint(f(**copy.deepcopy(kwargs))) for kwargs in reversed(examples)][::-1]
    assert first == second, "the same arguments give different results"
    assert fingerprint(list(np.random.get_state())) == state, "a call moved numpy's global generator"


def check_input_not_mutated(case: Case) -> None:
    """Arguments are left as they were, also arrays."""
    f = case.make()
    for kwargs in _examples(case):
        names = _floats(case, kwargs)
        arrays = {
            k: np.array([float(kwargs[k])] * 3) if np.ndim(kwargs[k]) == 0 else np.array(kwargs[k]) for k in names
        }
        for given in (kwargs, {**kwargs, **arrays}):
            mark = fingerprint(given)
            f(**given)
            assert fingerprint(given) == mark, "a call changed its arguments"


def check_float64(case: Case) -> None:
    """Real results are float64, also when arguments are float32, and agree with the float64 call."""
    f = case.make()
    for kwargs in _examples(case):
        full = _numbers(f(**kwargs))
        assert any(a.dtype.kind == "f" for a in full), "no real number came out"
        names = _floats(case, kwargs)
        single = _numbers(f(**{**kwargs, **{k: np.asarray(kwargs[k], dtype=np.float32) for k in names}}))
        for a, b in zip(full, single, strict=True):
            for part in (a, b):
                assert part.dtype.kind != "f" or part.dtype == np.float64, f"{part.dtype} came out"
            # arguments rounded to float32 move a smooth closed form by about their own relative rounding, 6e-8
            assert np.allclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True), "float32 arguments give another result"


def check_vectorised(case: Case) -> None:
    """Arrays give what their elements give one by one, and shapes broadcast."""
    f = case.make()
    seen = 0
    for kwargs in _examples(case):
        names = _floats(case, kwargs)
        scalars = [k for k in names if np.ndim(kwargs[k]) == 0]
        if not scalars:
            continue
        seen += 1
        # steps of 3 % stay inside any domain that the example is not on the edge of
        factors = np.array([1.0, 0.97, 0.94])
        for varied in [[k] for k in scalars] + [scalars]:
            arrays = {k: float(kwargs[k]) * factors for k in varied}
            whole = _numbers(f(**{**kwargs, **arrays}))
            parts = [_numbers(f(**{**kwargs, **{k: float(arrays[k][i]) for k in varied}})) for i in range(3)]
            for j, out in enumerate(whole):
                single = np.stack([part[j] for part in parts])
                tolerance = 1e-12 if case.atol is None else case.atol  # a few ulps: other order of the same operations
                assert np.allclose(
                    np.broadcast_to(out, single.shape), single, rtol=1e-12, atol=tolerance, equal_nan=True
                ), f"an array for {varied} differs from its elements one by one"
    if not seen:
        raise not_applicable("no scalar float argument")


def check_scalars(case: Case) -> None:
    """A Python number, a numpy scalar and a 0-d array are the same argument."""
    f = case.make()
    for kwargs in _examples(case):
        names = [k for k in _floats(case, kwargs) if np.ndim(kwargs[k]) == 0]
        reference = _numbers(f(**kwargs))
        for form in (np.float64, np.asarray):
            other = _numbers(f(**{**kwargs, **{k: form(kwargs[k]) for k in names}}))
            for a, b in zip(reference, other, strict=True):
                assert a.size == b.size and np.array_equal(a.ravel(), b.ravel(), equal_nan=a.dtype.kind in "fc"), (
                    f"{form.__name__} arguments give another result"
                )


def check_bad_input_refused(case: Case) -> None:
    """Each example of bad input raises ValueError; without examples, text in place of each number must be refused."""
    f = case.make()
    if case.bad is None:
        for kwargs in _examples(case)[:1]:
            names = _floats(case, kwargs)
            if not names:
                raise not_applicable("no float argument; give bad= to the case")
            for k in names:
                _assert_refused(f, {**kwargs, k: "not a number"}, (ValueError, TypeError))
        return
    assert case.bad, f"{case.name}: bad= is empty"
    for bad in case.bad:
        _assert_refused(f, dict(bad), (ValueError,))


def _assert_refused(f: Any, kwargs: dict[str, Any], errors: tuple[type[Exception], ...]) -> None:
    try:
        f(**kwargs)
    except errors as error:
        assert len(str(error)) > 10, f"the message for {kwargs} says nothing: {error}"
        return
    except Exception as error:
        raise AssertionError(f"{kwargs} raised {type(error).__name__}, not {errors[0].__name__}") from error
    raise AssertionError(f"{kwargs} was accepted")


CHECKS: tuple[Check, ...] = (
    check_pure,
    check_input_not_mutated,
    check_float64,
    check_vectorised,
    check_scalars,
    check_bad_input_refused,
)


def checks(case: Case) -> list[tuple[str, Check]]:
    """The named checks of this kind."""
    return [(check.__name__, check) for check in CHECKS]


def check_calculator(case: Case) -> list[CheckResult]:
    """Run the contract of kind "calculator".

    Parameters
    ----------
    case : Case
        ``make()`` gives the function, ``data()`` a list of keyword dictionaries.

    Returns
    -------
    list of CheckResult
        One per check.

    Raises
    ------
    AssertionError
        Names every check that failed.

    Examples
    --------
    >>> import numpy as np
    >>> from assay.testing import Case, check_calculator
    >>> def area(r):
    ...     r = np.asarray(r, dtype=float)
    ...     if (r < 0).any():
    ...         raise ValueError("r must not be negative")
    ...     return np.pi * r**2
    >>> case = Case("area", "calculator", lambda: area, data=lambda: [{"r": 2.0}], bad=[{"r": -1.0}])
    >>> {r.status for r in check_calculator(case)}
    {'passed'}
    """
    return run_checks(case, checks(case))
