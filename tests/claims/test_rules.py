"""The verdict of each rule, its edges, and what its intervals are worth."""

import itertools
import math

import numpy as np
import pytest

from assay.claims import (
    Bound,
    Calibrated,
    Claim,
    Crossing,
    Equivalent,
    Identity,
    NonInferior,
    Ratio,
    Slope,
    Superior,
    Tier,
    interval,
    judge,
)
from assay.claims._rules import Verdict, adjust, holm, p_value


def declare(rule, **fields):
    given = {
        "id": "toy/x",
        "says": "s",
        "experiment": "e",
        "metric": "m",
        "ours": "a",
        "against": [] if rule.comparator == "none" else ["b"],
        "test": rule,
        "tiers": {"quick": Tier()},
    }
    return Claim(**{**given, **fields})


def cell(arm, seed, value, **metrics):
    metrics = {"m": value, **metrics} if value is not None else metrics
    return {"arm": arm, "seed": seed, "data": "none", "status": "ok", "reason": "", "metrics": metrics}


def cells(ours, theirs=None, arm="b"):
    made = [cell("a", 1000 + i, v) for i, v in enumerate(ours)]
    return made + [cell(arm, 1000 + i, v) for i, v in enumerate(theirs if theirs is not None else [])]


SPREAD = np.array([-0.2, -0.1, 0.0, 0.1, 0.2])  # t interval of the mean: +- 0.196


@pytest.mark.parametrize(
    ("rule", "effect", "expected"),
    [
        (Superior(by=1.0), 2.0, "supported"),
        (Superior(by=1.0), 1.1, "inconclusive"),
        (Superior(by=1.0), 0.0, "not supported"),
        (NonInferior(within=1.0), -0.5, "supported"),
        (NonInferior(within=1.0), -1.1, "inconclusive"),
        (NonInferior(within=1.0), -2.0, "not supported"),
        (Equivalent(within=1.0), 0.5, "supported"),
        (Equivalent(within=1.0), 0.9, "inconclusive"),
        (Equivalent(within=1.0), -1.5, "not supported"),
    ],
)
@pytest.mark.parametrize("better", ["higher", "lower"])
def test_difference_rules(rule, effect, expected, better):
    theirs = np.array([10.0, 20.0, 5.0, 8.0, 13.0])
    ours = theirs + (1 if better == "higher" else -1) * (effect + SPREAD)
    verdict = judge(declare(rule, better=better), "standard", cells(ours, theirs))
    found = verdict.comparisons[0]
    assert verdict.verdict == expected
    assert found.effect == pytest.approx(effect)
    half = 2.7764451 * SPREAD.std(ddof=1) / math.sqrt(5)  # Student's t with 4 degrees of freedom at 97.5 %
    assert (found.low, found.high) == (pytest.approx(effect - half), pytest.approx(effect + half))


@pytest.mark.parametrize(("factor", "expected"), [(2.0, "supported"), (1.55, "inconclusive"), (1.1, "not supported")])
@pytest.mark.parametrize("better", ["higher", "lower"])
def test_ratio_is_judged_on_logarithms_of_paired_values(factor, expected, better):
    theirs = np.array([1.0, 100.0, 3.0, 0.1, 20.0])  # spans decades: a ratio of means would be that of one pair
    each = factor * np.exp(SPREAD)
    ours = theirs * each if better == "higher" else theirs / each
    verdict = judge(declare(Ratio(at_least=1.5), better=better), "standard", cells(ours, theirs))
    assert verdict.verdict == expected
    assert verdict.comparisons[0].effect == pytest.approx(factor)
    assert verdict.comparisons[0].ratio == pytest.approx(factor if better == "higher" else 1 / factor)


@pytest.mark.parametrize("bad", [0.0, -1.0])
def test_ratio_refuses_values_that_have_no_logarithm(bad):
    verdict = judge(declare(Ratio(at_least=1.1)), "standard", cells([2, 2, 2, 2, bad], [1] * 5))
    assert verdict.verdict == "error"
    assert "positive" in verdict.reason


def test_an_absolute_threshold_follows_the_direction():
    values = 5 + SPREAD
    assert judge(declare(Superior(by=4.0), against=[]), "standard", cells(values)).verdict == "supported"
    assert judge(declare(Superior(by=6.0), against=[]), "standard", cells(values)).verdict == "not supported"
    lower = declare(Superior(by=6.0), against=[], better="lower")
    assert judge(lower, "standard", cells(values)).verdict == "supported"
    assert judge(lower, "standard", cells(values)).comparisons[0].effect == pytest.approx(5)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Slope(expected=1.5, within=0.2), "supported"),
        (Slope(expected=1.0, within=0.2), "not supported"),
        (Slope(at_most=1.6), "supported"),
        (Slope(at_most=1.4), "not supported"),
        (Slope(at_least=1.4), "supported"),
        (Slope(expected=1.7, within=0.2), "inconclusive"),
    ],
)
def test_slope(rule, expected):
    x = np.array([10.0, 100.0, 1000.0, 10000.0])
    made = [
        cell("a", i, None, x=list(x), y=list(3 * x ** (1.5 + 0.02 * s))) for i, s in enumerate((-1, 0, 1, 0.5, -0.5))
    ]
    verdict = judge(declare(rule), "standard", made)
    assert verdict.comparisons[0].effect == pytest.approx(1.5)
    assert verdict.verdict == expected


def test_slope_refuses_what_has_no_logarithm():
    made = [cell("a", i, None, x=[1, 2], y=[0.0, 1.0]) for i in range(5)]
    assert judge(declare(Slope(at_most=1.0)), "standard", made).verdict == "error"


@pytest.mark.parametrize(("before", "expected"), [(3.0, "supported"), (2.0, "not supported"), (2.5, "inconclusive")])
def test_crossing_interpolates_the_curve(before, expected):
    x = [1, 2, 3, 4]
    made = [cell("a", i, None, x=x, y=[0, 0, 1 + s, 1]) for i, s in enumerate((-0.1, 0, 0.1, -0.1, 0.1))]
    verdict = judge(declare(Crossing(before=before, level=0.5)), "standard", made)
    assert verdict.comparisons[0].effect == pytest.approx(2.5, abs=0.01)
    assert verdict.verdict == expected


def test_a_curve_that_never_crosses_is_an_error_not_a_success():
    made = [cell("a", i, None, x=[1, 2], y=[0, 0.1]) for i in range(5)]
    verdict = judge(declare(Crossing(before=3, level=0.5)), "standard", made)
    assert verdict.verdict == "error"
    assert "never crosses" in verdict.reason


def test_bound_stores_the_counterexample():
    rule = Bound(le=1.0, atol=1e-9)
    good = judge(declare(rule), "standard", [cell("a", 1000, [0.5, 1.0 + 1e-10]), cell("a", 1001, 0.2)])
    assert good.verdict == "supported"
    assert good.comparisons[0].n_pairs == 3
    bad = judge(declare(rule), "standard", [cell("a", 1000, [0.5, 0.7]), cell("a", 1001, [0.2, 1.1])])
    assert bad.verdict == "not supported"
    assert bad.comparisons[0].counterexample == {
        "seed": 1001,
        "data": "none",
        "instance": 1,
        "value": 1.1,
        "target": None,
    }


def test_identity_against_target_expectation_and_another_arm():
    assert judge(
        declare(Identity(target=1.0, rtol=1e-6), against=[]), "standard", [cell("a", 0, [1, 1 + 1e-7])]
    ).verdict == ("supported")
    own = [cell("a", 0, [1.0, 2.0], m_expected=[1.0, 2.1])]
    assert judge(declare(Identity(atol=0.2), against=[]), "standard", own).verdict == "supported"
    assert judge(declare(Identity(atol=0.05), against=[]), "standard", own).verdict == "not supported"
    pair = [cell("a", 0, [1.0, 2.0]), cell("b", 0, [1.0, 2.0])]
    assert judge(declare(Identity()), "standard", pair).verdict == "supported"


def test_an_instance_that_is_nan_is_an_error():
    assert judge(declare(Bound(le=1.0)), "standard", [cell("a", 0, [0.5, math.nan])]).verdict == "error"


def test_calibrated_uses_the_exact_binomial_interval():
    rule = Calibrated(level=0.95)
    hits = [1.0] * 190 + [0.0] * 10
    found = judge(declare(rule), "standard", [cell("a", 0, hits)])
    assert found.verdict == "supported"
    # Clopper-Pearson for 190 of 200 from tables: (0.9100, 0.9758).
    assert found.comparisons[0].low == pytest.approx(0.9100, abs=5e-4)
    assert found.comparisons[0].high == pytest.approx(0.9758, abs=5e-4)
    assert judge(declare(rule), "standard", [cell("a", 0, 0.8, m_n=500)]).verdict == "not supported"
    above = Calibrated(level=0.8, side="at_least")
    assert judge(declare(above), "standard", [cell("a", 0, 0.95, m_n=500)]).verdict == "supported"
    assert judge(declare(rule), "standard", [cell("a", 0, 0.95, m_n=20)]).verdict == "inconclusive (too few pairs)"


# ----------------------------------------------------------------------------------------------------- edges and faults


def test_all_equal_differences_are_reported_as_degenerate():
    verdict = judge(declare(Superior(by=0.5)), "standard", cells([3, 4, 5, 6, 7], [2, 3, 4, 5, 6]))
    found = verdict.comparisons[0]
    assert verdict.verdict == "supported"
    assert found.degenerate
    assert found.low == found.high == 1.0
    assert any("degenerate" in note for note in found.notes)
    nothing = judge(declare(Superior()), "standard", cells([1] * 5, [1] * 5))
    assert nothing.verdict == "inconclusive"
    assert nothing.comparisons[0].p == 1.0


@pytest.mark.parametrize("n", [1, 2])
def test_no_interval_below_three_pairs(n):
    verdict = judge(declare(Superior()), "quick", cells([5.0, 6.0][:n], [1.0, 1.5][:n]))
    assert verdict.verdict == "inconclusive (too few pairs)"
    assert verdict.comparisons[0].low is None


def test_minimum_pairs_of_a_tier():
    records = cells([5.0, 6.0, 7.0], [1.0, 1.5, 1.0])
    assert judge(declare(Superior()), "quick", records).verdict == "direction holds"
    assert judge(declare(Superior()), "standard", records).verdict == "inconclusive (too few pairs)"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("arm", [0, 1])
def test_a_metric_that_is_not_finite_is_a_visible_error(bad, arm):
    values = [[5.0] * 6, [1.0] * 6]
    values[arm] = values[arm][:5] + [bad]
    verdict = judge(declare(Superior()), "standard", cells(*values))
    assert verdict.verdict == "error"
    assert verdict.comparisons[0].n_failed == 1
    assert [p.unit for p in verdict.comparisons[0].pairs if p.status == "error"] == ["1005"]


def test_a_failed_comparator_never_lets_the_claim_pass():
    records = cells([5, 6, 7, 8, 9, 9], [1, 2, 1, 2, 1, 1])
    records[-1] |= {"status": "timeout", "reason": "too slow", "metrics": {}}
    assert judge(declare(Superior()), "standard", records).verdict == "error"
    assert judge(declare(Superior()), "quick", records).verdict == "error"


def test_a_skipped_comparator_is_inconclusive_and_a_skipped_arm_of_ours_skips():
    records = cells([5, 6, 7, 8, 9], [1, 2, 1, 2, 1])
    for record in records[5:]:
        record |= {"status": "skipped", "reason": "no peer", "metrics": {}}
    verdict = judge(declare(Superior()), "standard", records)
    assert verdict.verdict == "inconclusive (missing comparator)"
    assert verdict.skipped == {"b": "no peer"}
    for record in records[:5]:
        record |= {"status": "skipped", "reason": "no data", "metrics": {}}
    assert judge(declare(Superior()), "standard", records).verdict == "skipped"


def test_cells_that_have_not_run_leave_it_incomplete():
    records = cells([5, 6, 7, 8, 9, 9], [1, 2, 1, 2, 1, 1])
    records[2] |= {"status": "missing", "metrics": {}}
    verdict = judge(declare(Superior()), "standard", records)
    assert verdict.verdict == "inconclusive (incomplete)"
    assert "1 of 6" in verdict.reason


def test_arms_that_do_not_share_their_split_are_not_compared():
    records = [cell("a", i, 5.0 + i, same_split="x") for i in range(5)] + [
        cell("b", i, 1.0, same_split="y") for i in range(5)
    ]
    verdict = judge(declare(Superior()), "standard", records)
    assert verdict.verdict == "error"
    assert "pairing is broken" in verdict.reason


def test_all_comparators_or_the_best_of_them():
    ours, weak, strong = [5 + s for s in SPREAD], [1, 1.1, 0.9, 1, 1.2], [4.9, 5.2, 5.0, 4.8, 5.1]
    records = cells(ours, weak) + cells([], strong, arm="c")
    for mode in ("all", "best"):
        verdict = judge(declare(Superior(), against=["b", "c"], mode=mode), "standard", records)
        assert verdict.verdict == "inconclusive"
        assert [c.verdict for c in verdict.comparisons] == ["supported", "inconclusive"]
    lost = cells(ours, [9.0 + s for s in SPREAD]) + cells([], strong, arm="c")
    verdict = judge(declare(Superior(), against=["b", "c"]), "standard", lost)
    assert verdict.verdict == "not supported"
    best = judge(declare(Superior(), against=["b", "c"], mode="best"), "standard", records + cells([], [1.0] * 5, "d"))
    assert best.verdict == "inconclusive"
    assert best.notes == ["the best comparator is 'c', by its mean m"]


def test_quick_gives_the_direction_by_the_mean_and_ignores_a_positive_margin():
    records = cells([3.0, 1.0, 2.0], [1.0, 1.5, 1.0])
    assert judge(declare(Superior(by=5.0)), "quick", records).verdict == "direction holds"
    assert judge(declare(Ratio(at_least=9.0)), "quick", records).verdict == "direction holds"
    assert judge(declare(Superior(by=5.0), better="lower"), "quick", records).verdict == "direction does not hold"


def test_smoke_only_says_that_cells_ran():
    records = cells([1.0], [9.0])
    assert judge(declare(Superior()), "quick", records, smoke=True).verdict == "ran (smoke)"
    records[0]["status"] = "error"
    assert judge(declare(Superior()), "quick", records, smoke=True).verdict == "error"


def test_items_are_averaged_inside_the_outer_unit_and_counted_when_they_are_the_unit():
    records = []
    for seed, arm in itertools.product(range(5), "ab"):
        value = [1.0 + seed, 3.0 + seed] if arm == "a" else [1.0, 1.0]
        records.append(cell(arm, seed, value, graph=["g1", "g2"]))
    by_seed = judge(declare(Superior(), pairs=["seed", "graph"]), "standard", records).comparisons[0]
    assert by_seed.n_pairs == 5
    assert [p.difference for p in by_seed.pairs] == [1.0, 2.0, 3.0, 4.0, 5.0]
    by_graph = judge(declare(Superior(), pairs=["graph"]), "quick", records).comparisons[0]
    assert [(p.unit, p.difference) for p in by_graph.pairs] == [("g1", 2.0), ("g2", 4.0)]


def test_how_many_more_seeds():
    differences = 0.2 + 2 * np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
    found = judge(declare(Superior()), "standard", cells(differences, [0.0] * 5)).comparisons[0]
    spread = differences.std(ddof=1)
    assert found.more_seeds == math.ceil((1.959964 * spread / 0.2) ** 2) - 5
    assert str(found.more_seeds) in found.reason


def test_exact_p_of_five_pairs_is_one_in_32():
    found = judge(declare(Superior()), "standard", cells([2, 3, 4, 5, 6], [1, 1, 1, 1, 1])).comparisons[0]
    assert found.p == 1 / 32
    assert any("1/32" in note for note in found.notes)


@pytest.mark.parametrize("n", [3, 8, 12])
def test_sign_flip_p_is_exact(n):
    x = np.random.default_rng(n).normal(0.3, 1, n)
    flips = np.array(list(itertools.product([1, -1], repeat=n))) @ x / n
    assert p_value(x, above=0.0) == pytest.approx(np.mean(flips >= x.mean() - 1e-12))


def test_wilcoxon_beyond_twelve_pairs():
    from scipy.stats import wilcoxon

    x = np.random.default_rng(0).normal(0.3, 1, 15)
    assert p_value(x, above=0.1) == wilcoxon(x - 0.1, alternative="greater").pvalue


def test_holm():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    verdicts = [judge(declare(Superior(), id=f"{s}/x"), "quick", cells([2, 3, 4], [1, 1, 1])) for s in ("s", "s", "t")]
    adjust(verdicts)
    assert [v.comparisons[0].holm_p for v in verdicts] == [0.25, 0.25, 0.125]


def test_as_expected():
    assert Verdict("t/x", "quick", "direction holds").as_expected is True
    assert Verdict("t/x", "quick", "direction does not hold", expect="not supported").as_expected is True
    assert Verdict("t/x", "standard", "not supported").as_expected is False
    assert Verdict("t/x", "standard", "error").as_expected is None


# ---------------------------------------------------------------------------------------------- what the intervals are worth


@pytest.mark.parametrize("n", [5, 10])
@pytest.mark.parametrize("kind", ["normal", "bounded"])
def test_coverage_of_the_interval(n, kind):
    rng = np.random.default_rng(20240601 + n)
    shape = (500, n)
    draws = rng.normal(0.3, 1, shape) if kind == "normal" else 0.3 + rng.uniform(-1, 1, shape)
    found = [interval(row) for row in draws]
    assert {f.method for f in found} == {"t"}
    coverage = np.mean([f.low <= 0.3 <= f.high for f in found])
    # 0.95 nominal; 500 repetitions have a standard error of 0.01.
    assert 0.92 <= coverage <= 0.98


def test_false_positive_rate_of_superior_at_the_margin():
    claim = declare(Superior(by=0.3))
    rng = np.random.default_rng(7)
    repetitions = 500
    wrong = 0
    for row in rng.normal(0.3, 1, (repetitions, 5)):
        wrong += judge(claim, "standard", cells(row, [0.0] * 5)).verdict == "supported"
    # Nominal 0.025 (one end of a 95 % interval); two standard errors above 0.05 would be a broken rule.
    assert wrong / repetitions < 0.05 + 2 * math.sqrt(0.05 * 0.95 / repetitions)


@pytest.mark.slow
def test_coverage_of_bca_from_twenty_pairs():
    rng = np.random.default_rng(3)
    found = [interval(row, seed=i) for i, row in enumerate(rng.normal(0, 1, (500, 20)))]
    assert {f.method for f in found} == {"BCa"}
    coverage = np.mean([f.low <= 0 <= f.high for f in found])
    assert 0.90 <= coverage <= 0.97  # measured elsewhere: 0.92 at twenty normal pairs


def test_the_bootstrap_is_reproducible():
    x = np.random.default_rng(1).lognormal(size=25)
    assert interval(x) == interval(x)
    assert interval(x).method == "BCa"
