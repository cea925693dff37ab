"""Declarations validate, export, and cost next to nothing to import."""

import json
import subprocess
import sys

import numpy as np
import pytest
from pydantic import ValidationError

from assay._core.errors import InputError
from assay.claims import (
    Bound,
    Calibrated,
    Claim,
    Crossing,
    Equivalent,
    NonInferior,
    Ratio,
    Slope,
    Source,
    Superior,
    Tier,
)

BASE = {
    "id": "toy/one",
    "says": "s",
    "experiment": "e",
    "metric": "m",
    "ours": "a",
    "against": ["b"],
    "test": Superior(),
    "tiers": {"quick": Tier(seeds=3)},
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": "no-slash"},
        {"id": "Upper/case"},
        {"against": ["a"]},
        {"against": ["b", "b"]},
        {"against": [], "test": NonInferior(within=1)},
        {"against": ["b"], "test": Bound(le=1)},
        {"better": "equal"},
        {"better": "best"},
        {"tiers": {}},
        {"tiers": {"huge": Tier()}},
        {"expect": "not supported"},
        {"pairs": []},
        {"data": []},
        {"unknown_field": 1},
    ],
    ids=str,
)
def test_a_wrong_declaration_is_refused(wrong):
    with pytest.raises(ValidationError):
        Claim(**{**BASE, **wrong})


@pytest.mark.parametrize(
    "make",
    [
        lambda: Bound(),
        lambda: Slope(),
        lambda: Slope(expected=1.0),
        lambda: Slope(expected=1.0, within=0.1, at_most=2.0),
        lambda: Equivalent(within=0.0),
        lambda: NonInferior(within=-1.0),
        lambda: Ratio(at_least=0.0),
        lambda: Calibrated(level=95),
        lambda: Superior(by=float("nan")),
    ],
)
def test_a_rule_without_a_usable_margin_is_refused(make):
    with pytest.raises(ValidationError):
        make()


@pytest.mark.parametrize(
    "rule",
    [
        Superior(by=2.0),
        Ratio(at_least=1.5),
        Slope(at_most=1.2, x="m", y="s"),
        Crossing(before=3, level=0.5),
        Calibrated(level=0.9),
    ],
    ids=str,
)
def test_json_round_trip_keeps_the_rule(rule):
    against = [] if rule.comparator == "none" else ["b"]
    claim = Claim(**{**BASE, "test": rule, "against": against})
    assert Claim.model_validate_json(claim.model_dump_json()) == claim


def test_a_claim_is_frozen_and_has_a_schema():
    claim = Claim(**BASE)
    with pytest.raises(ValidationError):
        claim.says = "something else"
    assert {"id", "says", "test", "tiers"} <= set(Claim.model_json_schema()["properties"])


def test_a_split_depends_on_the_seed_alone_and_never_cuts_a_group():
    groups = np.repeat(np.arange(10), 7)
    source = Source("x", n_rows=70, groups=groups)
    train, test = source.split(1003)
    again = source.split(1003)
    assert np.array_equal(train, again[0])
    assert np.array_equal(np.sort(np.r_[train, test]), np.arange(70))
    assert not set(groups[train]) & set(groups[test])
    assert not np.array_equal(test, source.split(1004)[1])


def test_a_split_with_an_empty_side_is_refused():
    with pytest.raises(InputError, match="0 test rows"):
        Source("x", n_rows=3, splits=["train"] * 3).split(0)
    with pytest.raises(InputError):
        Source("x", n_rows=4, groups=[1, 1, 1, 1]).split(0)


def test_listing_claims_is_cheap(gauss):
    # CPU seconds, not wall: the limit of 0.4 s is for an idle machine, and a loaded one doubles it.
    code = (
        "import json, resource, sys\n"
        "from assay.cli import main\n"
        "status = main(['claims', 'list'])\n"
        "use = resource.getrusage(resource.RUSAGE_SELF)\n"
        "heavy = [m for m in ('torch', 'sklearn', 'scipy', 'pandas', 'matplotlib', 'joblib', 'numpy') if m in sys.modules]\n"
        "print(json.dumps([status, use.ru_utime + use.ru_stime, heavy]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    status, cpu, heavy = json.loads(done.stdout.strip().splitlines()[-1])
    assert status == 0
    assert "toy-gauss/better" in done.stdout
    assert heavy == []
    assert cpu < 0.8
