"""The statistics: from the results of cells to verdicts, by the rule that the claim fixed before anything ran.

Every statistical rule is one question on one axis: is the quantity inside a region whose ends are the margins? The
claim is supported when the 95 % interval lies inside the region, not supported when it lies outside, and inconclusive
when it straddles an end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ._models import (
    MIN_PAIRS,
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
)

if TYPE_CHECKING:
    import numpy as np

SUPPORTED = "supported"
NOT_SUPPORTED = "not supported"
INCONCLUSIVE = "inconclusive"
HOLDS = "direction holds"
HOLDS_NOT = "direction does not hold"
RAN = "ran (smoke)"
SKIPPED = "skipped"
ERROR = "error"
MISSING = "inconclusive (missing comparator)"
TOO_FEW = "inconclusive (too few pairs)"
INCOMPLETE = "inconclusive (incomplete)"

LEVEL = 0.95
# Measured coverage of nominal 95 % intervals for a mean difference: at 5 pairs BCa gives 0.78-0.88 and Student's t
# 0.88-0.97; from 20 pairs on they agree and BCa follows skewed data better.
BOOTSTRAP_FROM = 20
RESAMPLES = 9999
# The exact sign-flip distribution has 2^n members: 4096 at twelve pairs, computed in milliseconds.
EXACT_UP_TO = 12
# Differences this close, relative to the largest, are the same number up to rounding.
SAME = 1e-12


@dataclass
class Pair:
    """One unit of replication: our value, the comparator's, and what became of them."""

    unit: str
    ours: float | None = None
    theirs: float | None = None
    difference: float | None = None
    status: str = "ok"
    reason: str = ""


@dataclass
class Comparison:
    """Ours against one comparator ("" where the claim has none) under the claim's rule.

    `effect`, `low` and `high` are on the axis of the rule: a difference in the metric's unit (positive: ours better), a
    factor (above 1: ours better), a slope, a crossing point, a coverage, or the metric itself where there is no
    comparator; for a bound the extreme instance, for an identity the largest deviation, with the range of the values.
    `ratio` is ours/theirs whatever the direction.
    """

    comparator: str
    verdict: str
    reason: str = ""
    ours: float | None = None
    theirs: float | None = None
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    ratio: float | None = None
    margin: float | None = None
    n_pairs: int = 0
    n_failed: int = 0
    p: float | None = None
    holm_p: float | None = None
    method: str = ""
    degenerate: bool = False
    more_seeds: int | None = None
    counterexample: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)


@dataclass
class Verdict:
    """The verdict on a claim, with one comparison per comparator."""

    claim: str
    tier: str
    verdict: str
    reason: str = ""
    expect: str = "supported"
    data: list[str] = field(default_factory=list)
    scope: str = ""
    comparisons: list[Comparison] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def as_expected(self) -> bool | None:
        """Whether it agrees with `expect`; None where this run cannot say."""
        if self.verdict in (SUPPORTED, HOLDS):
            return self.expect == SUPPORTED
        if self.verdict in (NOT_SUPPORTED, HOLDS_NOT):
            return self.expect == NOT_SUPPORTED
        if self.verdict == INCONCLUSIVE:
            return self.expect == INCONCLUSIVE
        return None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Verdict:
        comparisons = [
            Comparison(**{**c, "pairs": [Pair(**p) for p in c.get("pairs", [])]}) for c in raw.get("comparisons", [])
        ]
        return cls(**{**raw, "comparisons": comparisons})


class _Unusable(Exception):
    """A cell ran but what it returned cannot be judged; the message says why."""


# ---------------------------------------------------------------------------------------------- intervals and p-values


@dataclass(frozen=True)
class Interval:
    """A confidence interval for a mean."""

    mean: float
    low: float
    high: float
    method: str
    degenerate: bool = False


def interval(values: Sequence[float] | np.ndarray, *, level: float = LEVEL, seed: int = 0) -> Interval:
    """Return the confidence interval of the mean of independent values.

    Parameters
    ----------
    values : sequence of float
        Finite values, one per unit of replication.
    level : float, default 0.95
        Confidence level.
    seed : int, default 0
        Of the bootstrap's resampling, so that the same values give the same interval.

    Returns
    -------
    Interval
        Student's t below 20 values, the BCa bootstrap from 20 on; no interval (NaN) below 3; of zero width and marked
        degenerate where all values are equal.

    Examples
    --------
    >>> found = interval([1.0, 2.0, 3.0])
    >>> round(found.low, 3), round(found.high, 3), found.method
    (-0.484, 4.484, 't')
    """
    import numpy as np
    from scipy import stats

    x = np.asarray(values, dtype=float)
    n = len(x)
    mean = float(x.mean()) if n else math.nan
    if n < 3:
        return Interval(mean, math.nan, math.nan, "none")
    if np.ptp(x) <= SAME * np.abs(x).max():
        return Interval(mean, mean, mean, "all equal", degenerate=True)
    if n >= BOOTSTRAP_FROM:
        found = stats.bootstrap(
            (x,), np.mean, confidence_level=level, n_resamples=RESAMPLES, method="BCa", rng=np.random.default_rng(seed)
        ).confidence_interval
        if math.isfinite(found.low) and math.isfinite(found.high):
            return Interval(mean, float(found.low), float(found.high), "BCa")
    half = float(stats.t.ppf(0.5 + level / 2, n - 1) * x.std(ddof=1) / math.sqrt(n))
    return Interval(mean, mean - half, mean + half, "t" if n < BOOTSTRAP_FROM else "t (BCa undefined)")


def p_value(values: Sequence[float] | np.ndarray, *, above: float) -> float:
    """Return the one-sided p of "the centre is at most `above`": exact sign flips up to 12 values, Wilcoxon beyond."""
    import numpy as np
    from scipy import stats

    x = np.asarray(values, dtype=float) - above
    if np.abs(x).max() <= SAME * max(abs(above), np.abs(values).max()):
        return 1.0
    if len(x) <= EXACT_UP_TO:
        found = stats.permutation_test(
            (x,),
            lambda v, axis=-1: np.mean(v, axis=axis),
            permutation_type="samples",
            n_resamples=2**EXACT_UP_TO,  # at least 2^n: the exact distribution
            alternative="greater",
            vectorized=True,
        )
        return float(found.pvalue)
    return float(stats.wilcoxon(x, alternative="greater").pvalue)


def holm(values: Iterable[float]) -> list[float]:
    """Return Holm's step-down adjusted p-values, in the given order."""
    raw = list(values)
    adjusted, running = [0.0] * len(raw), 0.0
    for rank, i in enumerate(sorted(range(len(raw)), key=raw.__getitem__)):
        running = max(running, min(1.0, (len(raw) - rank) * raw[i]))
        adjusted[i] = running
    return adjusted


# ------------------------------------------------------------------------------------------------------- reading cells


def _numbers(record: Mapping[str, Any], name: str) -> np.ndarray:
    """The metric `name` of a cell as a float array (0-d for a scalar)."""
    import numpy as np

    if name not in record["metrics"]:
        raise _Unusable(f"the experiment returned no {name!r} (it has: {', '.join(record['metrics'])})")
    try:
        return np.asarray(record["metrics"][name], dtype=float)
    except (TypeError, ValueError) as error:
        raise _Unusable(f"the metric {name!r} is not numeric") from error


def _slope(record: Mapping[str, Any], rule: Slope) -> float:
    import numpy as np

    x, y = np.atleast_1d(_numbers(record, rule.x)), np.atleast_1d(_numbers(record, rule.y))
    if x.shape != y.shape or x.ndim != 1 or len(np.unique(x)) < 2:
        raise _Unusable(f"a slope needs two lists of equal length with two different {rule.x!r}")
    if not (np.all(x > 0) and np.all(y > 0) and np.all(np.isfinite(x)) and np.all(np.isfinite(y))):
        raise _Unusable(f"a log-log slope needs positive finite {rule.x!r} and {rule.y!r}")
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def _crossing(record: Mapping[str, Any], rule: Crossing) -> float:
    import numpy as np

    x, y = np.atleast_1d(_numbers(record, rule.x)), np.atleast_1d(_numbers(record, rule.y))
    if x.shape != y.shape or x.ndim != 1 or not (np.all(np.isfinite(x)) and np.all(np.isfinite(y))):
        raise _Unusable(f"a crossing needs two finite lists of equal length, {rule.x!r} and {rule.y!r}")
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    axis = np.log(x) if rule.log_x else x
    assert rule.level is not None
    above = y >= rule.level
    changes = np.flatnonzero(above[1:] != above[:-1])
    if not len(changes):
        raise _Unusable(f"the curve never crosses {rule.level:g} between {x[0]:g} and {x[-1]:g}")
    i = int(changes[0])
    at = axis[i] + (rule.level - y[i]) / (y[i + 1] - y[i]) * (axis[i + 1] - axis[i])
    return float(np.exp(at) if rule.log_x else at)


def _values(claim: Claim, record: Mapping[str, Any]) -> dict[tuple[str, ...], float]:
    """The cell's values by item label; one value under the empty label where the claim does not pair by items."""
    rule = claim.test
    items = [name for name in claim.pairs if name not in ("seed", "data")]
    found: dict[tuple[str, ...], float]
    if isinstance(rule, Slope):
        found = {(): _slope(record, rule)}
    elif isinstance(rule, Crossing) and rule.level is not None:
        found = {(): _crossing(record, rule)}
    else:
        value = _numbers(record, claim.metric)
        if not items:
            if value.size == 0:
                raise _Unusable(f"the metric {claim.metric!r} is an empty list")
            found = {(): float(value.mean())}
        else:
            labels = []
            for name in items:
                column = record["metrics"].get(name)
                if not isinstance(column, list) or value.ndim != 1 or len(column) != len(value):
                    raise _Unusable(f"pairs by {name!r} need a list {name!r} as long as the list {claim.metric!r}")
                labels.append([str(v) for v in column])
            found = dict(zip(zip(*labels, strict=True), map(float, value), strict=True))
            if len(found) != len(value):
                raise _Unusable(f"the labels {', '.join(items)} are not unique")
    for one in found.values():
        if not math.isfinite(one):
            raise _Unusable(f"the metric {claim.metric!r} is {one}")
        if isinstance(rule, Ratio) and one <= 0:
            raise _Unusable(f"a ratio needs positive values, and {claim.metric!r} is {one:g}")
    return found


def _failure(record: Mapping[str, Any] | None) -> str:
    """Why this cell gives no value ("" where it should)."""
    if record is None or record["status"] == "missing":
        return "missing"
    return "" if record["status"] == "ok" else f"{record['status']}: {record.get('reason', '')}".rstrip(": ")


def _broken_pairing(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Keys beginning with ``same_`` are fingerprints of what the arms of a pair must share."""
    for name, value in ours["metrics"].items():
        if name.startswith("same_") and theirs["metrics"].get(name, value) != value:
            return f"the arms do not share {name.removeprefix('same_')!r}: pairing is broken"
    return ""


def _pairs(claim: Claim, records: Sequence[Mapping[str, Any]], comparator: str) -> list[Pair]:
    """Pair the cells of ours and `comparator` ("" for ours alone), unit by unit."""
    import numpy as np

    cells = {(r["arm"], r["seed"], r["data"]): r for r in records}
    places = sorted({(r["seed"], r["data"]) for r in records if r["arm"] in (claim.ours, comparator)})
    items = [name for name in claim.pairs if name not in ("seed", "data")]
    counted = claim.pairs[:1] if items else claim.pairs
    several = len({data for _, data in places}) > 1
    ratio = isinstance(claim.test, Ratio)
    units: dict[str, list[tuple[float, float | None]]] = {}
    failed: dict[str, tuple[str, str]] = {}

    def unit(seed: int, data: str, label: tuple[str, ...]) -> str:
        names = {"seed": str(seed), "data": data, **dict(zip(items, label, strict=True))}
        shown = [names[name] for name in counted if name != "data" or several or counted == ["data"]]
        return " / ".join(shown) or data

    for seed, data in places:
        ours, theirs = cells.get((claim.ours, seed, data)), cells.get((comparator, seed, data))
        wanted = [(claim.ours, ours)] + ([(comparator, theirs)] if comparator else [])
        reasons = [f"{arm}: {_failure(r)}" for arm, r in wanted if _failure(r)]
        try:
            if reasons:
                raise _Unusable("; ".join(reasons))
            assert ours is not None
            left = _values(claim, ours)
            right: dict[tuple[str, ...], float | None] = dict.fromkeys(left)
            if comparator:
                assert theirs is not None
                broken = _broken_pairing(ours, theirs)
                if broken:
                    raise _Unusable(broken)
                right = dict(_values(claim, theirs))
                if left.keys() != right.keys():
                    raise _Unusable(f"the arms have different items in {', '.join(items)}")
        except _Unusable as error:
            # Where items are the unit, a failed cell has no items to name: the whole place fails under its own name.
            name = unit(seed, data, ()) if not items or counted[0] in ("seed", "data") else f"seed {seed} / {data}"
            missing = all(reason.endswith(": missing") for reason in reasons) and bool(reasons)
            failed[name] = ("missing" if missing else "error", str(error))
            continue
        for label, value in left.items():
            units.setdefault(unit(seed, data, label), []).append((value, right[label]))

    def centre(values: Sequence[float]) -> float:
        return float(np.exp(np.mean(np.log(values)))) if ratio else float(np.mean(values))

    pairs = []
    for name, values in units.items():
        if name in failed:
            continue
        ours_value = centre([a for a, _ in values])
        others = [b for _, b in values if b is not None]
        theirs_value = centre(others) if others else None
        if ratio:
            z = claim.sign * (math.log(ours_value) - (math.log(theirs_value) if theirs_value is not None else 0.0))
        elif theirs_value is not None:
            z = claim.sign * (ours_value - theirs_value)
        else:
            z = ours_value
        pairs.append(Pair(name, ours_value, theirs_value, z))
    pairs += [Pair(name, status=status, reason=reason) for name, (status, reason) in failed.items()]
    return pairs


# ------------------------------------------------------------------------------------------------------------- judging


def _region(claim: Claim, *, direction: bool, alone: bool) -> tuple[float, float]:
    """The claim's region on the rule's axis; for the quick tier only the side that the direction points to."""
    rule, inf = claim.test, math.inf
    if isinstance(rule, Superior):
        if alone:  # an absolute threshold has no direction apart from itself
            return (rule.by, inf) if claim.sign > 0 else (-inf, rule.by)
        return (min(rule.by, 0.0) if direction else rule.by, inf)
    if isinstance(rule, NonInferior):
        return (-rule.within, inf)
    if isinstance(rule, Equivalent):
        return (-rule.within, rule.within)
    if isinstance(rule, Ratio):
        return (math.log(min(rule.at_least, 1.0) if direction else rule.at_least), inf)
    if isinstance(rule, Crossing):
        return (-inf, rule.before)
    if isinstance(rule, Slope):
        if rule.expected is not None:
            return (rule.expected - rule.within, rule.expected + rule.within)
        return (
            -inf if rule.at_least is None else rule.at_least,
            inf if rule.at_most is None else rule.at_most,
        )
    raise TypeError(f"{rule.name} is not a rule with an interval")


def _more_seeds(values: np.ndarray, region: tuple[float, float], n_seeds: int) -> int | None:
    """How many more seeds would resolve it if the spread stays (normal approximation); None where no number would."""
    mean, spread = float(values.mean()), float(values.std(ddof=1))
    distance = min(abs(mean - end) for end in region if math.isfinite(end))
    if distance == 0 or spread == 0:
        return None
    needed = (1.959964 * spread / distance) ** 2
    if needed > 1e6:  # nobody runs a million seeds: the effect sits on the margin
        return None
    return max(1, math.ceil((math.ceil(needed) - len(values)) * n_seeds / len(values)))


def _compare(claim: Claim, tier: str, records: Sequence[Mapping[str, Any]], comparator: str) -> Comparison:
    """Judge a rule that has an interval."""
    import numpy as np

    pairs = _pairs(claim, records, comparator)
    good = [p for p in pairs if p.status == "ok"]
    result = Comparison(comparator, INCONCLUSIVE, margin=claim.test.margin, n_pairs=len(good), pairs=pairs)
    result.n_failed = sum(p.status == "error" for p in pairs)
    n_missing = sum(p.status == "missing" for p in pairs)
    direction = tier == "quick"
    region = _region(claim, direction=False, alone=not comparator)
    is_ratio = isinstance(claim.test, Ratio)
    if good:
        z = np.array([p.difference for p in good], dtype=float)
        found = interval(z)
        result.ours = float(np.mean([p.ours for p in good]))
        if comparator:
            both = np.array([[p.ours, p.theirs] for p in good], dtype=float)
            result.theirs = float(both[:, 1].mean())
            if np.all(both > 0):
                result.ratio = float(np.exp(np.mean(np.log(both[:, 0]) - np.log(both[:, 1]))))
        show = math.exp if is_ratio else float
        result.effect, result.method, result.degenerate = show(found.mean), found.method, found.degenerate
        if math.isfinite(found.low):
            result.low, result.high = show(found.low), show(found.high)
            # Two ends are two one-sided tests; the larger p is that of the whole statement.
            ends = [p_value(z, above=region[0])] if math.isfinite(region[0]) else []
            ends += [p_value(-z, above=-region[1])] if math.isfinite(region[1]) else []
            result.p = max(ends)
            if len(z) <= EXACT_UP_TO:
                result.notes.append(f"with {len(z)} pairs the smallest possible p is 1/{2 ** len(z)}")
        if found.degenerate:
            result.notes.append("all differences are equal: the interval has no width (degenerate)")
    if result.n_failed:
        first = next(p for p in pairs if p.status == "error")
        result.verdict = ERROR
        result.reason = f"{result.n_failed} of {len(pairs)} pairs failed ({first.unit}: {first.reason})"
    elif n_missing:
        result.verdict, result.reason = INCOMPLETE, f"{n_missing} of {len(pairs)} pairs have not been run"
    elif len(good) < MIN_PAIRS[tier]:
        result.verdict = TOO_FEW
        result.reason = f"{len(good)} pairs; the {tier} tier needs {MIN_PAIRS[tier]}"
    elif direction:
        side = _region(claim, direction=True, alone=not comparator)
        result.verdict = HOLDS if side[0] < found.mean < side[1] else HOLDS_NOT
    elif region[0] < found.low and found.high < region[1]:
        result.verdict = SUPPORTED
    elif found.high < region[0] or found.low > region[1]:
        result.verdict = NOT_SUPPORTED
    else:
        n_seeds = len({r["seed"] for r in records})
        result.more_seeds = _more_seeds(z, region, n_seeds)
        more = result.more_seeds
        result.reason = (
            f"the interval straddles the margin; about {more} more seed{'s' if more > 1 else ''} would resolve it"
            if more is not None
            else "the effect sits on the margin: no number of seeds would resolve it"
        )
    return result


def _instances(claim: Claim, record: Mapping[str, Any], other: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The instances of a Bound or an Identity in one cell, each with whether it holds."""
    import numpy as np

    rule = claim.test
    values = np.atleast_1d(_numbers(record, claim.metric)).ravel()
    if not values.size:
        raise _Unusable(f"the metric {claim.metric!r} is an empty list")
    if np.isnan(values).any():
        raise _Unusable(f"instance {int(np.flatnonzero(np.isnan(values))[0])} of {claim.metric!r} is NaN")
    if isinstance(rule, Bound):
        low = -math.inf if rule.ge is None else rule.ge
        high = math.inf if rule.le is None else rule.le
        holds = (values >= low - rule.atol) & (values <= high + rule.atol)
        targets: list[float | None] = [None] * len(values)
    else:
        assert isinstance(rule, Identity)
        expected = f"{claim.metric}_expected"
        if other is not None:
            truth = np.atleast_1d(_numbers(other, claim.metric)).ravel()
        elif rule.target is not None:
            truth = np.full(len(values), rule.target)
        else:
            truth = np.atleast_1d(_numbers(record, expected)).ravel()
        if truth.shape != values.shape and truth.size != 1:
            raise _Unusable(f"{len(values)} instances of {claim.metric!r} but {len(truth)} true values")
        truth = np.broadcast_to(truth, values.shape)
        if np.isnan(truth).any():
            raise _Unusable("a true value is NaN")
        holds = np.isclose(values, truth, rtol=rule.rtol, atol=rule.atol)
        targets = [float(t) for t in truth]
    return [
        {
            "seed": record["seed"],
            "data": record["data"],
            "instance": i,
            "value": float(v),
            "target": t,
            "holds": bool(h),
        }
        for i, (v, t, h) in enumerate(zip(values, targets, holds, strict=True))
    ]


def _enumerate(claim: Claim, tier: str, records: Sequence[Mapping[str, Any]], comparator: str) -> Comparison:
    """Judge a Bound or an Identity: no statistics, every instance must hold."""
    rule = claim.test
    result = Comparison(comparator, SUPPORTED, margin=rule.margin, method="every instance")
    others = {(r["seed"], r["data"]): r for r in records if comparator and r["arm"] == comparator}
    instances: list[dict[str, Any]] = []
    missing = 0
    for record in [r for r in records if r["arm"] == claim.ours]:
        other = others.get((record["seed"], record["data"])) if comparator else None
        name = str(record["seed"])
        wanted = [(claim.ours, record)] + ([(comparator, other)] if comparator else [])
        reasons = [f"{arm}: {_failure(r)}" for arm, r in wanted if _failure(r)]
        try:
            if reasons:
                raise _Unusable("; ".join(reasons))
            found = _instances(claim, record, other)
        except _Unusable as error:
            if reasons and all(reason.endswith(": missing") for reason in reasons):
                missing += 1
            else:
                result.pairs.append(Pair(name, status="error", reason=str(error)))
            continue
        instances += found
        shown = [i["value"] for i in found]
        result.pairs.append(Pair(name, sum(shown) / len(shown)))
    result.n_pairs = len(instances)
    result.n_failed = sum(p.status == "error" for p in result.pairs)
    broken = [i for i in instances if not i["holds"]]
    if instances:
        values = [i["value"] for i in instances]
        result.low, result.high = min(values), max(values)
        result.ours = sum(values) / len(values)
        if isinstance(rule, Identity):  # the largest deviation; for a bound the instance nearest to or furthest past it
            result.effect = max(abs(i["value"] - i["target"]) for i in instances)
            if comparator:
                result.theirs = sum(i["target"] for i in instances) / len(instances)
        else:
            result.effect = result.high if isinstance(rule, Bound) and rule.le is not None else result.low
    count = f"{len(instances) - len(broken)} of {len(instances)} instances hold"
    if result.n_failed:
        first = next(p for p in result.pairs if p.status == "error")
        result.verdict = ERROR
        result.reason = f"{result.n_failed} cells failed (seed {first.unit}: {first.reason})"
    elif broken:
        worst = broken[0]
        result.counterexample = {k: worst[k] for k in ("seed", "data", "instance", "value", "target")}
        result.verdict = HOLDS_NOT if tier == "quick" else NOT_SUPPORTED
        result.reason = (
            f"{count}; first counterexample: seed {worst['seed']}, instance {worst['instance']}, {worst['value']:.6g}"
        )
    elif missing or not instances:
        result.verdict, result.reason = INCOMPLETE, f"{missing} cells have not been run"
    else:
        result.verdict, result.reason = (HOLDS if tier == "quick" else SUPPORTED), count
    return result


def _coverage(claim: Claim, tier: str, records: Sequence[Mapping[str, Any]]) -> Comparison:
    """Judge a Calibrated rule: pool hits over cells, exact binomial interval."""
    import numpy as np
    from scipy import stats

    rule = claim.test
    assert isinstance(rule, Calibrated)
    result = Comparison("", INCONCLUSIVE, margin=rule.level, method="Clopper-Pearson")
    hits = trials = missing = 0
    for record in records:
        name = str(record["seed"])
        try:
            if _failure(record):
                raise _Unusable(_failure(record))
            value = _numbers(record, claim.metric)
            if value.ndim == 0:
                n = int(_numbers(record, f"{claim.metric}_n"))
                k = float(value) * n
                if not (0 <= float(value) <= 1) or abs(k - round(k)) > 1e-6 * max(n, 1):
                    raise _Unusable(f"{claim.metric!r} = {float(value):g} is not a fraction of {n} trials")
            else:
                n, k = len(value), float(value.sum())
                if not np.isin(value, (0.0, 1.0)).all():
                    raise _Unusable(f"the list {claim.metric!r} must hold hits, 0 or 1")
        except _Unusable as error:
            if str(error) == "missing":
                missing += 1
            else:
                result.pairs.append(Pair(name, status="error", reason=str(error)))
            continue
        hits, trials = hits + round(k), trials + n
        if n:
            result.pairs.append(Pair(name, k / n))
    result.n_pairs, result.n_failed = trials, sum(p.status == "error" for p in result.pairs)
    if trials:
        test = stats.binomtest(hits, trials, rule.level)
        found = test.proportion_ci(LEVEL, method="exact")
        result.effect = result.ours = hits / trials
        result.low, result.high, result.p = float(found.low), float(found.high), float(test.pvalue)
        result.notes.append(f"{hits} of {trials} trials covered; p is that of the level being right")
    if result.n_failed:
        first = next(p for p in result.pairs if p.status == "error")
        result.verdict, result.reason = ERROR, f"{result.n_failed} cells failed (seed {first.unit}: {first.reason})"
    elif missing or not trials:
        result.verdict, result.reason = INCOMPLETE, f"{missing} cells have not been run"
    else:
        assert result.low is not None
        assert result.high is not None
        below, above = result.high < rule.level, result.low > rule.level
        fails = (below and rule.side != "at_most") or (above and rule.side != "at_least")
        if fails:
            result.verdict = HOLDS_NOT if tier == "quick" else NOT_SUPPORTED
        elif tier == "quick":
            result.verdict = HOLDS
        elif trials < rule.min_trials:
            result.verdict, result.reason = TOO_FEW, f"{trials} trials; the rule asks for {rule.min_trials}"
        else:
            result.verdict = SUPPORTED
    return result


def judge(claim: Claim, tier: str, records: Sequence[Mapping[str, Any]], *, smoke: bool = False) -> Verdict:
    """Return the verdict on a claim from the results of its cells.

    Parameters
    ----------
    claim : Claim
        The declaration.
    tier : str
        "quick" gives *direction holds / does not hold*; "standard" and "full" give verdicts.
    records : sequence of mapping
        The cells: ``arm``, ``seed``, ``data``, ``status`` ("ok", "error", "timeout", "skipped", "missing"), ``reason``
        and ``metrics``.
    smoke : bool
        Only whether every cell ran.

    Returns
    -------
    Verdict
    """
    verdict = Verdict(claim.id, tier, SKIPPED, expect=claim.expect)
    verdict.data = sorted({r["data"] for r in records})
    verdict.scope = "on your data" if any(r.get("user_data") for r in records) else ""
    for record in records:
        if record["status"] == "skipped":
            verdict.skipped.setdefault(record["arm"], record.get("reason", ""))
    if claim.ours in verdict.skipped or not records:
        verdict.reason = verdict.skipped.get(claim.ours, "nothing was run")
        return verdict
    if smoke:
        bad = [r for r in records if r["status"] not in ("ok", "skipped")]
        verdict.verdict = ERROR if bad else RAN
        if bad:
            verdict.reason = f"{len(bad)} of {len(records)} cells failed ({bad[0]['arm']}: {_failure(bad[0])})"
        return verdict
    for comparator in claim.against or [""]:
        if comparator in verdict.skipped:
            reason = f"{comparator}: {verdict.skipped[comparator]}"
            verdict.comparisons.append(Comparison(comparator, MISSING, reason, margin=claim.test.margin))
            continue
        own = [r for r in records if r["arm"] in (claim.ours, comparator)]
        if isinstance(claim.test, Calibrated):
            verdict.comparisons.append(_coverage(claim, tier, own))
        elif isinstance(claim.test, (Bound, Identity)):
            verdict.comparisons.append(_enumerate(claim, tier, own, comparator))
        else:
            verdict.comparisons.append(_compare(claim, tier, own, comparator))
    _combine(claim, verdict)
    return verdict


def _combine(claim: Claim, verdict: Verdict) -> None:
    """From the comparisons to the claim: all, or the best comparator; a failed or missing one never lets it pass."""
    found = verdict.comparisons
    by_verdict = {c.verdict: c for c in reversed(found)}
    decisive = [ERROR, NOT_SUPPORTED, HOLDS_NOT, MISSING, INCOMPLETE, TOO_FEW, INCONCLUSIVE]
    if claim.mode == "best" and len(found) > 1 and not {ERROR, MISSING, INCOMPLETE} & set(by_verdict):
        best = max(found, key=lambda c: claim.sign * (c.theirs if c.theirs is not None else -math.inf))
        verdict.verdict, verdict.reason = best.verdict, best.reason
        verdict.notes.append(f"the best comparator is {best.comparator!r}, by its mean {claim.metric}")
        return
    for name in decisive:
        if name in by_verdict:
            hit = by_verdict[name]
            verdict.verdict = name
            prefix = f"against {hit.comparator}: " if hit.comparator and len(found) > 1 and hit.reason else ""
            verdict.reason = prefix + hit.reason
            return
    verdict.verdict, verdict.reason = found[0].verdict, found[0].reason if len(found) == 1 else ""


def adjust(verdicts: Sequence[Verdict]) -> None:
    """Write Holm's correction over the claims of each method beside the p-values; verdicts do not use it."""
    for slug in {v.claim.partition("/")[0] for v in verdicts}:
        own = [c for v in verdicts if v.claim.partition("/")[0] == slug for c in v.comparisons if c.p is not None]
        for comparison, value in zip(own, holm(c.p for c in own if c.p is not None), strict=True):
            comparison.holm_p = value
