"""The contract of kind "estimator": what scikit-learn's tools rely on, for fit arguments of any type."""
# ruff: noqa: NPY002, PT018 - numpy's global generator is what is watched, asserts carry the message

from __future__ import annotations

import inspect
import pickle
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from ._cases import Case, Check, CheckResult, not_applicable, run_checks
from ._compare import fingerprint, leaves

# Methods that need a fitted estimator and take what `fit` takes first.
_AFTER_FIT = ("predict", "predict_proba", "transform", "decision_function", "score_samples")


def _seeded(case: Case, seed: int = 0) -> Any:
    est = case.make()
    if "random_state" in est.get_params(deep=False):
        est.set_params(random_state=seed)
    return est


def _fitted(case: Case, seed: int = 0) -> Any:
    return _seeded(case, seed).fit(*case.inputs())


def _output(case: Case, est: Any) -> Any:
    """What the estimator gives for the data of the case: its prediction if it has one, else its learned attributes."""
    if case.predict is not None:
        return case.predict(est)
    for name in _AFTER_FIT:
        if hasattr(est, name):
            return getattr(est, name)(case.inputs()[0])
    return _learned(est)


def _learned(est: Any) -> dict[str, Any]:
    return {k: v for k, v in vars(est).items() if k.endswith("_") and not k.startswith("_")}


def _same(a: Any, b: Any) -> bool:
    return fingerprint(a) == fingerprint(b)


def check_constructor_only_stores(case: Case) -> None:
    """`__init__` stores each argument under its name, untouched, and sets nothing else."""
    est = case.make()
    params = est.get_params(deep=False)
    again = type(est)(**params)
    for name, value in params.items():
        assert getattr(again, name) is value, f"the constructor changed {name}"
    # scikit-learn's own ensembles set a few more in their base classes; what this class itself sets is looked at
    bases = [c for c in type(est).__mro__[1:] if c.__module__.startswith("sklearn.") and "__init__" in vars(c)]
    inherited = {n for c in bases for n in _assigned(vars(c)["__init__"])}
    extra = sorted(k for k in vars(again) if k not in params and not k.startswith("_") and k not in inherited)
    assert not extra, f"the constructor sets {extra}, which are no parameters"
    for name, p in inspect.signature(type(est).__init__).parameters.items():
        assert p.kind is not p.VAR_POSITIONAL, f"*{name} in the constructor cannot be cloned"


def _assigned(init: Any) -> set[str]:
    """Names that a constructor assigns on self, read from its code object; empty for constructors written in C."""
    import dis

    code = getattr(init, "__code__", None)
    return {i.argval for i in dis.get_instructions(code) if i.opname == "STORE_ATTR"} if code else set()


def check_clone_and_params(case: Case) -> None:
    """get_params, set_params and clone agree; an unknown parameter is refused with ValueError."""
    from sklearn.base import clone

    est = case.make()
    params = est.get_params(deep=False)
    assert _same(clone(est).get_params(deep=False), params), "clone changes the parameters"
    for name in params:
        other, value = clone(est), object()  # set_params only stores: a value that is nothing else shows it
        assert other.set_params(**{name: value}) is other, "set_params must return the estimator"
        assert getattr(other, name) is value, f"set_params did not set {name}"
    try:
        clone(est).set_params(no_such_parameter_of_this_estimator=1)
    except ValueError:
        return
    raise AssertionError("set_params accepted an unknown parameter")


def check_fit_returns_self(case: Case) -> None:
    """`fit` returns the estimator."""
    est = _seeded(case)
    assert est.fit(*case.inputs()) is est, "fit must return self"


def check_learned_attributes(case: Case) -> None:
    """Learned attributes end with an underscore and appear in fit; fit leaves the parameters as they were."""
    est = _seeded(case)
    before, public = est.get_params(deep=False), set(vars(est))
    early = sorted(_learned(est))
    assert not early, f"{early} exist before fit"
    mark = fingerprint(before)
    est.fit(*case.inputs())
    assert _learned(est), "fit leaves no attribute that ends with an underscore"
    wrong = sorted(k for k in set(vars(est)) - public if not k.endswith("_") and not k.startswith("_"))
    assert not wrong, f"fit sets public attributes without a trailing underscore: {wrong}"
    after = est.get_params(deep=False)
    assert fingerprint(after) == mark, "fit changed the parameters"
    assert all(after[k] is before[k] for k in before), "fit replaced a parameter"


def check_same_seed_same_result(case: Case) -> None:
    """Two fits with the same random_state agree bit for bit, whatever the global generators hold."""
    outputs = []
    for seed in (11, 12):
        with _global_seed(seed):
            est = _fitted(case)
            outputs.append((_output(case, est), _learned(est)))
    assert _same(outputs[0][0], outputs[1][0]), "two fits with the same random_state give different output"
    different = [k for k in outputs[0][1] if not _same(outputs[0][1][k], outputs[1][1].get(k))]
    assert not different, f"two fits with the same random_state differ in {different}"


@contextmanager
def _global_seed(seed: int) -> Iterator[None]:
    """Other global generators inside, the old ones again outside."""
    import random
    import sys

    state, python_state = np.random.get_state(), random.getstate()
    torch = sys.modules.get("torch")
    torch_state = torch.get_rng_state() if torch else None
    np.random.seed(seed)
    random.seed(seed)
    if torch:
        torch.manual_seed(seed)
    try:
        yield
    finally:
        np.random.set_state(state)
        random.setstate(python_state)
        if torch:
            torch.set_rng_state(torch_state)


def check_not_fitted(case: Case) -> None:
    """Using an unfitted estimator raises sklearn.exceptions.NotFittedError."""
    from sklearn.exceptions import NotFittedError

    calls: list[tuple[str, Any]] = []
    if case.predict is not None:
        calls.append(("predict", lambda est: case.predict(est)))  # type: ignore[misc]
    else:
        for name in _AFTER_FIT:
            if hasattr(case.make(), name):
                calls.append((name, lambda est, name=name: getattr(est, name)(case.inputs()[0])))
    if not calls:
        raise not_applicable("nothing to call after fit")
    for name, call in calls:
        try:
            call(case.make())
        except NotFittedError:
            continue
        except Exception as error:
            raise AssertionError(f"{name} before fit raised {type(error).__name__}, not NotFittedError") from error
        raise AssertionError(f"{name} before fit returned instead of raising NotFittedError")


def check_input_not_mutated(case: Case) -> None:
    """Neither fit nor prediction writes into the data."""
    data = case.inputs()
    mark = [fingerprint(part) for part in data]
    est = _seeded(case).fit(*data)
    assert [fingerprint(part) for part in data] == mark, "fit changed its input"
    if case.predict is None:
        for name in _AFTER_FIT:
            if hasattr(est, name):
                getattr(est, name)(data[0])
        assert [fingerprint(part) for part in data] == mark, "prediction changed its input"


def check_refit_forgets(case: Case) -> None:
    """Fitting a fitted estimator again gives what a fresh one gives; so does predicting twice."""
    est = _fitted(case)
    first = fingerprint(_output(case, est))
    assert fingerprint(_output(case, est)) == first, "two predictions of one fitted estimator differ"
    est.fit(*case.inputs())
    assert fingerprint(_output(case, est)) == first, "a second fit on the same data gives another result"


def check_output_finite(case: Case) -> None:
    """What it predicts for its own training data are finite numbers, and some of them."""
    parts = [a for a in leaves(_output(case, _fitted(case))) if a.dtype.kind in "fiub"]
    assert parts and all(a.size for a in parts), "no numbers came out"
    assert all(np.isfinite(a).all() for a in parts), "the output holds NaN or infinity"


def check_save_pretrained(case: Case) -> None:
    """save_pretrained, from_pretrained: same predictions, and no pickle on the way."""
    if not hasattr(case.make(), "save_pretrained"):
        raise not_applicable("has no save_pretrained")
    est = _fitted(case)
    with tempfile.TemporaryDirectory() as folder:
        est.save_pretrained(folder)
        assert_no_pickle(Path(folder))
        with forbid_pickle():
            loaded = type(est).from_pretrained(folder)
    assert _same(_output(case, loaded), _output(case, est)), "the loaded estimator predicts something else"
    assert _same(loaded.get_params(deep=False), est.get_params(deep=False)), "the loaded estimator has other parameters"


def assert_no_pickle(folder: Path) -> None:
    """No file below `folder` is a pickle or a torch archive (a zip that holds data.pkl)."""
    import zipfile

    files = [p for p in folder.rglob("*") if p.is_file()]
    assert files, "save_pretrained wrote nothing"
    for path in files:
        head = path.read_bytes()[:2]
        assert not (head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05"), f"{path.name} is a pickle"
        if zipfile.is_zipfile(path):
            inside = zipfile.ZipFile(path).namelist()
            assert not any(name.endswith((".pkl", ".pickle")) for name in inside), f"{path.name} holds a pickle"


@contextmanager
def forbid_pickle() -> Iterator[None]:
    """Any unpickling inside raises AssertionError."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a pickle was loaded")

    with (
        mock.patch.object(pickle, "load", refuse),
        mock.patch.object(pickle, "loads", refuse),
        mock.patch.object(pickle, "Unpickler", refuse),
        mock.patch.object(pickle, "_Unpickler", refuse),
    ):
        yield


CHECKS: tuple[Check, ...] = (
    check_constructor_only_stores,
    check_clone_and_params,
    check_fit_returns_self,
    check_learned_attributes,
    check_same_seed_same_result,
    check_not_fitted,
    check_input_not_mutated,
    check_refit_forgets,
    check_output_finite,
    check_save_pretrained,
)


def sklearn_checks(case: Case) -> list[tuple[str, Check]]:
    """scikit-learn's own checks for this estimator; variants of one check run under one name."""
    from sklearn.utils.estimator_checks import estimator_checks_generator

    variants: dict[str, list[Any]] = {}
    for est, check in estimator_checks_generator(case.make(), mark=None):
        function = getattr(check, "func", check)
        variants.setdefault(function.__name__, []).append((est, check))

    def named(name: str) -> Check:
        def run(case: Case) -> None:
            import unittest

            skips = []
            for est, check in variants[name]:
                try:
                    check(est)
                except unittest.SkipTest as skip:
                    skips.append(skip)
            if len(skips) == len(variants[name]):
                raise skips[0]

        run.__name__ = name
        run.__doc__ = f"scikit-learn's {name}."
        return run

    return [(name, named(name)) for name in variants]


def checks(case: Case) -> list[tuple[str, Check]]:
    """The named checks of this kind."""
    own = [(check.__name__, check) for check in CHECKS]
    return own + (sklearn_checks(case) if case.sklearn_checks else [])


def check_estimator(case: Case) -> list[CheckResult]:
    """Run the contract of kind "estimator".

    Parameters
    ----------
    case : Case
        ``make()`` gives an unfitted estimator, ``data()`` the tuple of fit arguments.

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
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from assay.testing import Case, check_estimator
    >>> results = check_estimator(Case("NB", "estimator", GaussianNB, data=lambda: load_iris(return_X_y=True)))
    >>> sorted({r.status for r in results})
    ['passed', 'skipped']
    """
    return run_checks(case, checks(case))
