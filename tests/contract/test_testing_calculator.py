"""Each calculator check passes on a correct closed form and fails on a twin with exactly its fault; also `fingerprint`."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from assay.testing import Case, check_calculator, checks_for, fingerprint, leaves
from assay.testing._calculator import CHECKS


def decay(rate, time, levels=(1.0, 2.0)):
    """exp(-rate * time), with a second output, correct."""
    rate, time = np.asarray(rate, dtype=np.float64), np.asarray(time, dtype=np.float64)
    if not (np.isfinite(rate).all() and (rate >= 0).all()):
        raise ValueError(f"rate must be a non-negative number, got {rate}")
    return {"left": np.exp(-rate * time), "sum": rate * time + sum(levels)}


calls = []


def counts(rate, time, levels=()):
    calls.append(rate)
    return decay(rate, time)["left"] + len(calls)


def moves_generator(rate, time, levels=()):
    np.random.random()  # noqa: NPY002  the fault under test
    return decay(rate, time)


def in_place(rate, time, levels=()):
    if isinstance(rate, np.ndarray) and rate.ndim:
        rate *= 2
        return np.exp(-rate / 2 * time)
    return decay(rate, time)["left"]


def appends(rate, time, levels=()):
    out = decay(rate, time, tuple(levels))
    levels.append(1.0)
    return out


def single(rate, time, levels=()):
    return decay(rate, time)["left"].astype(np.float32)


def keeps_dtype(rate, time, levels=()):
    return np.exp(-np.asarray(rate) * np.asarray(time))


def couples(rate, time, levels=()):
    out = decay(rate, time)["left"]
    return out / out.max()


def no_zero_d(rate, time, levels=()):
    out = decay(rate, time)["left"]
    return out if isinstance(rate, float) and not isinstance(rate, np.floating) else out * 1.5


def lenient(rate, time, levels=()):
    return np.exp(-np.abs(np.asarray(rate, dtype=float)) * time)


def wrong_error(rate, time, levels=()):
    if np.any(np.asarray(rate) < 0):
        raise RuntimeError("rate must not be negative, got something else")
    return decay(rate, time)


def case(f, **kwargs):
    data = lambda: [{"rate": 0.5, "time": 2.0, "levels": [1.0]}, {"rate": 0.1, "time": 3.0}]
    kwargs = {"bad": [{"rate": -1.0, "time": 1.0}, {"rate": float("nan"), "time": 1.0}], **kwargs}
    return Case(f.__name__, "calculator", make=lambda: f, data=data, **kwargs)


TWINS = [
    ("check_pure", counts),
    ("check_pure", moves_generator),
    ("check_input_not_mutated", in_place),
    ("check_input_not_mutated", appends),
    ("check_float64", single),
    ("check_float64", keeps_dtype),
    ("check_vectorised", couples),
    ("check_scalars", no_zero_d),
    ("check_bad_input_refused", lenient),
    ("check_bad_input_refused", wrong_error),
]


@pytest.mark.parametrize("good", [case(decay), case(decay, bad=None)], ids=["bad", "default"])
def test_good_calculator_passes(good):
    assert {r.status for r in check_calculator(good)} == {"passed"}


@pytest.mark.parametrize(("name", "twin"), TWINS, ids=[f"{n}-{t.__name__}" for n, t in TWINS])
def test_check_catches_its_fault(name, twin):
    with pytest.raises(AssertionError):
        dict(checks_for(case(twin)))[name]()


def test_every_check_has_a_twin():
    assert {name for name, _ in TWINS} == {check.__name__ for check in CHECKS}


class Holder:
    def __init__(self, value, seconds=0.0):
        self.value = value
        self.fit_seconds_ = seconds
        self._cache = seconds


@pytest.mark.parametrize(
    ("make", "same"),
    [
        (lambda k: np.arange(4.0) + 0 * k, True),
        (lambda k: np.arange(4.0) + 1e-16 * k, False),
        (lambda k: Holder(1.0, seconds=k), True),
        (lambda k: Holder(float(k)), False),
        (lambda k: pd.DataFrame({"a": [1, 2], "seconds": [k, k]}), True),
        (lambda k: pd.DataFrame({"a": [1, 2 + k]}), False),
        (lambda k: pd.DataFrame({"a": ["x", None, f"{k}"]}), False),
        (lambda k: sp.csr_array(np.eye(3) * (1 + k)), False),
        (lambda k: [{"a": {1, 2}}, (np.float32(k),)], False),
        (lambda k: np.random.default_rng(k), False),
        (lambda k: np.array(["a", "b", str(k)], dtype=object), False),
        (lambda k: [Holder(np.zeros(3)), Holder(np.zeros(3))], True),
    ],
)
def test_fingerprint_sees_exactly_what_changed(make, same):
    assert fingerprint(make(0)) == fingerprint(make(0)), "the same thing twice"
    assert (fingerprint(make(0)) == fingerprint(make(1))) is same


def test_leaves_keeps_order_and_numbers():
    found = leaves({"x": (1, [2.0, None, "text"]), "frame": pd.DataFrame({"a": [3, 4]})})
    assert [np.asarray(v).tolist() for v in found] == [1, 2.0, [3, 4]]
