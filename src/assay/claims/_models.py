"""What a claim is: frozen records that validate, print and export to JSON schema. Imports only pydantic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat, field_validator, model_validator

TIERS = ("quick", "standard", "full")
# Pairs below which a rule that needs statistics gives no verdict. `full` aims at ten, "where affordable": the floor is
# the same five as for `standard`, and the report says how many there were.
MIN_PAIRS = {"quick": 3, "standard": 5, "full": 5}
FIRST_SEED = 1000  # seeds 0-99 tune defaults; what tuned a default must not judge it


class _Record(BaseModel):
    # Validators are built when a record is first made: listing claims needs few of the rules.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class _Rule(_Record):
    """A decision rule with its margin, fixed before anything runs."""

    # Rules that need a comparator, may have one, or must not.
    comparator: ClassVar[Literal["needed", "optional", "none"]] = "optional"
    statistical: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def margin(self) -> float | None:
        """The number that the interval is compared with."""
        return None

    def __str__(self) -> str:
        # What was left at its default says nothing; a margin is always said.
        fields = type(self).model_fields
        said = [(k, v) for k, v in self if k != "rule" and (v != fields[k].default or k == "by")]
        shown = (f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in said)
        return f"{self.name}({', '.join(shown)})"


class Superior(_Rule):
    """Ours is better by more than `by` (in the metric's unit): supported when the interval's lower end is above it.

    Without a comparator `by` is an absolute threshold that the metric itself must pass in the claim's direction.
    """

    rule: Literal["Superior"] = "Superior"
    by: float = 0.0

    @property
    def margin(self) -> float:
        return self.by


class NonInferior(_Rule):
    """Ours is worse by less than `within` (in the metric's unit)."""

    comparator = "needed"
    rule: Literal["NonInferior"] = "NonInferior"
    within: NonNegativeFloat

    @property
    def margin(self) -> float:
        return -self.within


class Equivalent(_Rule):
    """The difference lies inside (-`within`, `within`), in the metric's unit."""

    rule: Literal["Equivalent"] = "Equivalent"
    within: PositiveFloat

    @property
    def margin(self) -> float:
        return self.within


class Ratio(_Rule):
    """Ours is better by more than the factor `at_least`, judged on logarithms of paired values (all must be positive).

    The factor is ours/theirs where higher is better and theirs/ours where lower is. Without a comparator the metric is
    itself the factor (its inverse where lower is better).
    """

    rule: Literal["Ratio"] = "Ratio"
    at_least: PositiveFloat

    @property
    def margin(self) -> float:
        return self.at_least


class Slope(_Rule):
    """The least-squares slope of log `y` on log `x`, one per seed, is `expected` +- `within`, or stays on one side.

    `x` and `y` are the keys of the two lists in the experiment's result.
    """

    comparator = "none"
    rule: Literal["Slope"] = "Slope"
    expected: float | None = None
    within: NonNegativeFloat = 0.0
    at_most: float | None = None
    at_least: float | None = None
    x: str = "x"
    y: str = "y"

    @model_validator(mode="after")
    def _one_question(self) -> Slope:
        if (self.expected is None) == (self.at_most is None and self.at_least is None):
            raise ValueError("Slope needs either expected (with within > 0) or at_most / at_least")
        if self.expected is not None and self.within == 0:
            raise ValueError("Slope(expected=...) needs within > 0: no fitted slope equals a number exactly")
        return self

    @property
    def margin(self) -> float | None:
        for value in (self.expected, self.at_most, self.at_least):
            if value is not None:
                return value
        return None


class Crossing(_Rule):
    """The point where something happens comes before `before`.

    With `level`, the point is where the curve (`x`, `y`: keys of lists in the result) first crosses `level`, between
    grid points by linear interpolation (in log x where `log_x`); a curve that never does is an error of that seed.
    Without `level` the metric is the crossing point itself.
    """

    comparator = "none"
    rule: Literal["Crossing"] = "Crossing"
    before: float
    level: float | None = None
    x: str = "x"
    y: str = "y"
    log_x: bool = False

    @property
    def margin(self) -> float:
        return self.before


class Bound(_Rule):
    """Every instance (a scalar per cell, or a list) stays at or below `le`, at or above `ge`, up to `atol`."""

    comparator = "none"
    statistical = False
    rule: Literal["Bound"] = "Bound"
    le: float | None = None
    ge: float | None = None
    atol: NonNegativeFloat = 0.0

    @model_validator(mode="after")
    def _some_bound(self) -> Bound:
        if self.le is None and self.ge is None:
            raise ValueError("Bound needs le or ge")
        return self

    @property
    def margin(self) -> float | None:
        return self.le if self.le is not None else self.ge


class Identity(_Rule):
    """Every instance equals its truth: the comparator's value, else `target`, else ``<metric>_expected``."""

    statistical = False
    rule: Literal["Identity"] = "Identity"
    target: float | None = None
    rtol: NonNegativeFloat = 0.0
    atol: NonNegativeFloat = 0.0

    @property
    def margin(self) -> float | None:
        return self.target


class Calibrated(_Rule):
    """An exact binomial interval of the measured coverage contains the nominal `level`.

    The metric is a list of hits (0/1) per cell, or a fraction beside ``<metric>_n``, the number of trials; cells are
    pooled. `side` makes it one-sided: "at_least" fails only when coverage is certainly below the level. Fewer than
    `min_trials` are inconclusive: a wide interval contains everything.
    """

    comparator = "none"
    rule: Literal["Calibrated"] = "Calibrated"
    level: Annotated[float, Field(gt=0, lt=1)]
    side: Literal["two", "at_least", "at_most"] = "two"
    min_trials: int = 100

    @property
    def margin(self) -> float:
        return self.level


Rule = Annotated[
    Superior | NonInferior | Equivalent | Ratio | Slope | Crossing | Bound | Identity | Calibrated,
    Field(discriminator="rule"),
]


class Tier(_Record):
    """Seeds, sizes and the time limit of a cell at one tier.

    Parameters
    ----------
    seeds : int
        Number of seeds, from the claim's first on.
    size : dict
        Passed to the experiment as it is; part of the cell's key, so equal sizes share cells.
    limit_s : float
        Seconds after which a watchdog kills a cell.
    data : list of str or None
        Sources of this tier; None takes the claim's first.
    """

    seeds: Annotated[int, Field(ge=1, le=100_000)] = 5
    size: dict[str, Any] = Field(default_factory=dict)
    limit_s: PositiveFloat = 600.0
    data: list[str] | None = None


class Accepts(_Record):
    """What a user's own data must be for an experiment to run on it.

    Parameters
    ----------
    task : str or list of str
        Any of "classification", "regression", "table", "images", "graph", "sequences", or a method's own word.
    min_rows : int
        Rows, images, vertices or sequences needed.
    max_rows, min_columns, max_classes : int or None
        Further limits.
    """

    task: str | list[str]
    min_rows: int = 1
    max_rows: int | None = None
    min_columns: int = 1
    max_classes: int | None = None

    @property
    def tasks(self) -> list[str]:
        return [self.task] if isinstance(self.task, str) else list(self.task)


class Claim(_Record):
    """One sentence of a paper made testable: metric, our arm, comparators, direction, margin, unit of replication.

    Parameters
    ----------
    id : str
        ``slug/short-name``, for ever.
    says : str
        The sentence in our words.
    where : str
        Section, table or theorem of the paper.
    experiment : str
        Name of the function in ``claims.py``.
    metric, unit, better
        Key of the experiment's result, its unit, and "higher", "lower" or "equal".
    ours, against, mode
        Our arm; the comparators; whether the claim needs all of them or the best of them.
    test, margin_reason
        The rule, and why its margin is what it is.
    pairs : list of str
        What makes two cells comparable. "seed" and "data", or the name of a list of labels in the result where the
        metric is a list of per-item values: the first name is then the unit that is counted, the rest is averaged
        within it.
    tiers : dict of str to Tier
        "quick", "standard", "full".
    first_seed : int
        The first judging seed, 1000 by default; a later one where results of the first ones were looked at while a
        default, a size or `expect` was chosen.
    data : list of str
        Names in ``SOURCES`` ("none": the experiment makes its own); the first is the default; "user" allows user data.
    accepts : Accepts or None
        What user data must be; None refuses it.
    needs : list of str
        "gpu", "network", "memory:GIB" or extras of the distribution; what is not met skips the claim.
    peers : dict of str to list of str
        Distributions that an arm uses; their versions enter the keys of its cells.
    exclusive : bool
        Cells run alone after all others (timings, memory).
    smoke_quick : bool
        The quick tier only shows that cells run and gives no verdict.
    smoke : dict
        Sizes that replace the quick tier's under ``ASSAY_SMOKE=1``.
    paper : str
        The paper's own number, shown beside ours and never used.
    caveat : str
        What the small scale cannot show.
    expect, expect_reason
        What we found ("supported", "not supported", "inconclusive"), and why where it is not "supported".
    """

    id: str
    says: str
    experiment: str
    metric: str
    ours: str
    test: Rule
    where: str = ""
    paper: str = ""
    unit: str = ""
    better: Literal["higher", "lower", "equal"] = "higher"
    against: list[str] = Field(default_factory=list)
    mode: Literal["all", "best"] = "all"
    margin_reason: str = ""
    pairs: list[str] = Field(default_factory=lambda: ["seed", "data"])
    tiers: dict[str, Tier]
    first_seed: Annotated[int, Field(ge=FIRST_SEED)] = FIRST_SEED
    data: list[str] = Field(default_factory=lambda: ["none"])
    accepts: Accepts | None = None
    needs: list[str] = Field(default_factory=list)
    peers: dict[str, list[str]] = Field(default_factory=dict)
    exclusive: bool = False
    smoke_quick: bool = False
    smoke: dict[str, Any] = Field(default_factory=dict)
    caveat: str = ""
    expect: Literal["supported", "not supported", "inconclusive"] = "supported"
    expect_reason: str = ""

    @field_validator("id")
    @classmethod
    def _id(cls, value: str) -> str:
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*/[a-z0-9]+([-.][a-z0-9]+)*", value):
            raise ValueError("id must be slug/short-name in lower case with hyphens")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Claim:
        rule = self.test
        if not self.tiers:
            raise ValueError("at least one tier is needed")
        unknown = sorted(set(self.tiers) - set(TIERS))
        if unknown:
            raise ValueError(f"there is no tier {unknown[0]!r}: use {', '.join(TIERS)}")
        if len(set(self.against)) != len(self.against) or self.ours in self.against:
            raise ValueError("`against` must name different arms, none of them ours")
        if rule.comparator == "needed" and not self.against:
            raise ValueError(f"{rule.name} compares with another arm: `against` is empty")
        if rule.comparator == "none" and self.against:
            raise ValueError(f"{rule.name} judges our arm alone: `against` must be empty")
        if self.better == "equal" and isinstance(rule, (Superior, NonInferior, Ratio)):
            raise ValueError(f"{rule.name} needs a direction: better='higher' or 'lower'")
        if not self.pairs or len(set(self.pairs)) != len(self.pairs):
            raise ValueError("`pairs` must name what makes two cells comparable, each once")
        if not self.data:
            raise ValueError("`data` must name a source, 'none' where the experiment makes its own")
        if self.expect != "supported" and not self.expect_reason:
            raise ValueError(f"expect={self.expect!r} needs expect_reason")
        return self

    @property
    def slug(self) -> str:
        return self.id.partition("/")[0]

    @property
    def arms(self) -> list[str]:
        return [self.ours, *self.against]

    @property
    def sign(self) -> int:
        """+1 or -1, so that a positive difference is always in favour of ours."""
        return -1 if self.better == "lower" else 1


@dataclass(frozen=True)
class Source:
    """Data as an experiment receives it.

    Parameters
    ----------
    name : str
        For keys, tables and reports.
    data : object
        Anything the method's experiments understand; for user data a `dict` (see the guide page).
    task : str
        What kind of data it is.
    fingerprint : str
        Changes when the data do; computed from `data` where it is empty.
    groups : sequence or None
        A group per row: a split never cuts one.
    splits : sequence of str or None
        A fixed "train" or "test" per row.
    test_fraction : float
        For random splits.
    n_rows : int or None
        Rows, images, vertices or sequences.
    info : mapping
        Where it came from, for the report.
    """

    name: str
    data: Any = None
    task: str = "none"
    fingerprint: str = ""
    groups: Any = None
    splits: Any = None
    test_fraction: float = 0.2
    n_rows: int | None = None
    info: Mapping[str, Any] = field(default_factory=dict)

    def split(self, seed: int, n: int | None = None) -> tuple[Any, Any]:
        """Return row numbers (train, test): the fixed split, or a random one that depends on the seed alone.

        Parameters
        ----------
        seed : int
            The cell's seed; arms of a pair therefore get the same split.
        n : int, optional
            Number of rows where the source does not know it.

        Raises
        ------
        InputError
            If a side would be empty.
        """
        import numpy as np

        from assay._core.errors import InputError

        n = self.n_rows if n is None else n
        if n is None:
            raise InputError(f"Source {self.name!r} does not say how many rows it has; pass n.")
        if self.splits is not None:
            labels = np.asarray(self.splits)
            train, test = np.flatnonzero(labels == "train"), np.flatnonzero(labels == "test")
        else:
            rng = np.random.default_rng(seed)
            units = np.arange(n) if self.groups is None else np.unique(np.asarray(self.groups), return_inverse=True)[1]
            order = rng.permutation(int(units.max()) + 1)
            # At least one unit on each side, whatever the rounding says.
            cut = min(max(round(len(order) * self.test_fraction), 1), len(order) - 1)
            chosen = np.isin(units, order[:cut])
            train, test = np.flatnonzero(~chosen), np.flatnonzero(chosen)
        if not len(train) or not len(test):
            raise InputError(f"Source {self.name!r}: the split leaves {len(train)} training and {len(test)} test rows.")
        return train, test
