"""Each estimator check passes on scikit-learn's estimators and fails on a twin with exactly its fault."""

import unittest

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import Lasso, SGDClassifier
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.validation import check_is_fitted

from assay.testing import Case, check_estimator, checks_for
from assay.testing._estimator import CHECKS


def xy():
    X = np.random.default_rng(0).normal(size=(30, 3))
    return X, X @ [1.0, -2.0, 0.5]


class Mean(RegressorMixin, BaseEstimator):
    """Predicts the mean of the targets plus a seeded jitter, correct; the twins below break one thing each."""

    def __init__(self, scale=1e-3, random_state=None, tags=None):
        self.scale = scale
        self.random_state = random_state
        self.tags = tags

    def fit(self, X, y):
        self.mean_ = float(np.mean(y)) + self.scale * self.draw()
        return self

    def draw(self):
        return np.random.default_rng(self.random_state).normal()

    def predict(self, X):
        check_is_fitted(self)
        return np.full(len(X), self.mean_)

    def save_pretrained(self, folder):
        import json
        from pathlib import Path

        params = {k: v for k, v in self.get_params().items() if k != "tags"}
        (Path(folder) / "config.json").write_text(json.dumps({"params": params, "mean": self.mean_}))

    @classmethod
    def from_pretrained(cls, folder):
        import json
        from pathlib import Path

        stored = json.loads((Path(folder) / "config.json").read_text())
        est = cls(**stored["params"])
        est.mean_ = stored["mean"]
        return est


class CopiesParameter(Mean):
    def __init__(self, scale=1e-3, random_state=None, tags=("a",)):
        super().__init__(scale, random_state, list(tags))


class SetsMore(Mean):
    def __init__(self, scale=1e-3, random_state=None, tags=None):
        super().__init__(scale, random_state, tags)
        self.n_calls = 0


class ForgetsParameter(Mean):
    def set_params(self, **params):
        params.pop("scale", None)
        return super().set_params(**params) if params else self


class AcceptsUnknown(Mean):
    def set_params(self, **params):
        return super().set_params(**{k: v for k, v in params.items() if k in self.get_params()})


class ReturnsNone(Mean):
    def fit(self, X, y):
        super().fit(X, y)


class LearnsEarly(Mean):
    def __init__(self, scale=1e-3, random_state=None, tags=None):
        super().__init__(scale, random_state, tags)
        self.mean_ = 0.0


class LearnsWithoutUnderscore(Mean):
    def fit(self, X, y):
        self.n_rows = len(X)
        return super().fit(X, y)


class ChangesParameter(Mean):
    def fit(self, X, y):
        super().fit(X, y)
        self.scale = self.scale * 0.5
        return self


class IgnoresSeed(Mean):
    def draw(self):
        return np.random.default_rng().normal()


class UsesGlobalGenerator(Mean):
    def draw(self):
        return np.random.normal()  # noqa: NPY002  the fault under test


class DifferentOnlyInside(Mean):
    def fit(self, X, y):
        super().fit(X, y)
        self.trace_ = np.random.default_rng().normal(size=3)
        return self


class WrongError(Mean):
    def predict(self, X):
        return np.full(len(X), self.mean_)  # AttributeError before fit


class PredictsUnfitted(Mean):
    def predict(self, X):
        return np.full(len(X), getattr(self, "mean_", 0.0))


class CentresInPlace(Mean):
    def fit(self, X, y):
        X -= X.mean(axis=0)
        return super().fit(X, y)


class PredictsInPlace(Mean):
    def predict(self, X):
        X *= 2
        return super().predict(X)


class Remembers(Mean):
    def fit(self, X, y):
        old = getattr(self, "mean_", None)
        super().fit(X, y)
        self.mean_ = self.mean_ if old is None else 0.5 * (old + self.mean_) + 1.0
        return self


class GivesNaN(Mean):
    def predict(self, X):
        return super().predict(X) * np.nan


class SavesPickle(Mean):
    def save_pretrained(self, folder):
        import pickle
        from pathlib import Path

        (Path(folder) / "model.bin").write_bytes(pickle.dumps(self))


class HiddenPickle(Mean):
    """The file does not look like a pickle; loading it is one."""

    def save_pretrained(self, folder):
        import base64
        import pickle
        from pathlib import Path

        (Path(folder) / "model.txt").write_bytes(base64.b64encode(pickle.dumps(self)))

    @classmethod
    def from_pretrained(cls, folder):
        import base64
        import pickle
        from pathlib import Path

        return pickle.loads(base64.b64decode((Path(folder) / "model.txt").read_bytes()))


class RoundsOnSave(Mean):
    def save_pretrained(self, folder):
        exact = self.mean_
        self.mean_ = round(exact, 3)
        super().save_pretrained(folder)
        self.mean_ = exact


def case(make, **kwargs):
    return Case(getattr(make, "__name__", "estimator"), "estimator", make=make, data=xy, **kwargs)


GOOD = [
    case(Mean),
    case(Lasso, sklearn_checks=True),
    case(DecisionTreeRegressor),
    Case("SGD", "estimator", SGDClassifier, data=lambda: (xy()[0], (xy()[1] > 0).astype(int))),
    case(Mean, predict=lambda est: est.predict(xy()[0])),
]
TWINS = [
    ("check_constructor_only_stores", CopiesParameter),
    ("check_constructor_only_stores", SetsMore),
    ("check_clone_and_params", ForgetsParameter),
    ("check_clone_and_params", AcceptsUnknown),
    ("check_fit_returns_self", ReturnsNone),
    ("check_learned_attributes", LearnsEarly),
    ("check_learned_attributes", LearnsWithoutUnderscore),
    ("check_learned_attributes", ChangesParameter),
    ("check_same_seed_same_result", IgnoresSeed),
    ("check_same_seed_same_result", UsesGlobalGenerator),
    ("check_same_seed_same_result", DifferentOnlyInside),
    ("check_not_fitted", WrongError),
    ("check_not_fitted", PredictsUnfitted),
    ("check_input_not_mutated", CentresInPlace),
    ("check_input_not_mutated", PredictsInPlace),
    ("check_refit_forgets", Remembers),
    ("check_output_finite", GivesNaN),
    ("check_save_pretrained", SavesPickle),
    ("check_save_pretrained", HiddenPickle),
    ("check_save_pretrained", RoundsOnSave),
]


@pytest.mark.parametrize("good", GOOD, ids=lambda c: c.name)
def test_good_estimators_pass(good):
    assert {r.status for r in check_estimator(good)} <= {"passed", "skipped"}


@pytest.mark.parametrize(("name", "twin"), TWINS, ids=[f"{n}-{t.__name__}" for n, t in TWINS])
def test_check_catches_its_fault(name, twin):
    with pytest.raises(AssertionError):
        dict(checks_for(case(twin)))[name]()


def test_every_check_has_a_twin():
    assert {name for name, _ in TWINS} == {check.__name__ for check in CHECKS}


class BrokenForSklearn(Lasso):
    def predict(self, X):
        return super().predict(X)[:, None]


def test_sklearn_checks_are_run():
    good, broken = (
        dict(checks_for(case(Lasso, sklearn_checks=True))),
        dict(checks_for(case(BrokenForSklearn, sklearn_checks=True))),
    )
    assert len(good) > 40
    good["check_regressors_train"]()
    with pytest.raises(AssertionError):
        broken["check_regressors_train"]()


def test_expected_failures_can_only_shrink():
    known = case(ReturnsNone, expected_failures={"check_fit_returns_self": "a reason"})
    with pytest.raises(unittest.SkipTest, match="a reason"):
        dict(checks_for(known))["check_fit_returns_self"]()
    with pytest.raises(AssertionError, match="drop the entry"):
        dict(checks_for(case(Mean, expected_failures={"check_fit_returns_self": "a reason"})))[
            "check_fit_returns_self"
        ]()
    with pytest.raises(ValueError, match="unknown checks"):
        checks_for(case(Mean, expected_failures={"check_nothing": "a reason"}))
    with pytest.raises(ValueError, match="needs its reason"):
        case(Mean, expected_failures={"check_fit_returns_self": " "})


def test_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="has no checks"):
        checks_for(Case("x", "perpetual motion", make=object))


def test_check_estimator_names_every_fault():
    class Twice(ReturnsNone):
        def predict(self, X):
            return np.full(len(X), getattr(self, "mean_", 0.0))

    with pytest.raises(AssertionError) as caught:
        check_estimator(case(Twice))
    assert "check_fit_returns_self" in str(caught.value)
    assert "check_not_fitted" in str(caught.value)
