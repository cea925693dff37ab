"""The claims of the method: what the abstract promises, made testable on simulated networks and on measured molecules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.claims import Bound, Claim, Identity, NonInferior, Ratio, Superior, Tier

# The race: 13 free initial designs, costs 1 and 49; whole-network methods get almost three times the budget.
_RACE = {"problem": "ackley_sine", "costs": [1.0, 49.0], "initial": 13, "budget": 250.0, "full_budget": 700.0}
_RACE_QUICK = {**_RACE, "full_budget": 100.0, "max_queries": 12}
_GAP = {
    "problem": "ackley_sine",
    "initial": 13,
    "unequal": {"costs": [1.0, 49.0], "budget": 200.0, "full_budget": 200.0},
    "equal": {"costs": [1.0, 1.0], "budget": 60.0, "full_budget": 60.0},
}
_GAP_QUICK = {
    **_GAP,
    "max_queries": 6,
    "unequal": {"costs": [1.0, 49.0], "budget": 52.0, "full_budget": 52.0},
    "equal": {"costs": [1.0, 1.0], "budget": 4.0, "full_budget": 4.0},
}
_SOLVE = {"problem": "freesolv3", "initial": 7, "budget": 400.0}
_SOLVE_QUICK = {**_SOLVE, "budget": 104.0, "max_queries": 5}
_FAST = {"problem": "ackley_matyas", "initial": 15, "budget": 120.0}
_SPEED = {"n": 60, "batches": [1, 16], "repeats": 3}
_SPEED_QUICK = {"n": 20, "batches": [1], "repeats": 1, "checks": 2}


def _tiers(
    quick: dict[str, Any],
    standard: dict[str, Any],
    *,
    seeds: int = 5,
    full: dict[str, Any] | None = None,
    full_seeds: int = 20,
    quick_seeds: int = 1,
) -> dict[str, Tier]:
    return {
        "quick": Tier(seeds=quick_seeds, size=quick, limit_s=120),
        "standard": Tier(seeds=seeds, size=standard, limit_s=600),
        "full": Tier(seeds=full_seeds, size=full or standard, limit_s=7200),
    }


def _broad(name: str, problem: str, budget: float, initial: int, what: str, quick: float, seeds: int = 5) -> Claim:
    size = {"problem": problem, "budget": budget, "initial": initial, "regret": True}
    return Claim(
        id=f"pkgfn/broad-{name}",
        says=f"The method covers a broad class of networks: {what}, unchanged, and not worse than EIFN at the same budget.",
        where="abstract; section 5",
        experiment="race",
        metric="regret",
        unit="share of the way from a random design to the optimum",
        better="lower",
        ours="pkgfn",
        against=["eifn"],
        test=NonInferior(within=0.1),
        margin_reason="A tenth of what optimisation can gain: about one standard error of EIFN over five seeds.",
        tiers=_tiers({**size, "budget": quick, "max_queries": 2}, size, seeds=seeds),
        smoke_quick=True,
    )


CLAIMS = [
    Claim(
        id="pkgfn/outperforms",
        says="Per unit of cost it outperforms existing optimisers of function networks and of whole evaluations: at cost 250 "
        "its design is better than that of any of them at cost 700.",
        where="abstract; section 5",
        experiment="race",
        metric="value",
        unit="objective (best possible 0)",
        better="higher",
        ours="pkgfn",
        against=["eifn", "tsfn", "ei", "random"],
        test=Superior(by=0.0),
        margin_reason="Better at little more than a third of the budget is the margin.",
        tiers=_tiers(_RACE_QUICK, _RACE, seeds=8),
        smoke_quick=True,
        paper="p-KGFN reaches the optimum of the Ackley chain at a fraction of the cost of EIFN",
        caveat="One network of the paper's, whose optimum is in the middle of the box.",
    ),
    Claim(
        id="pkgfn/partial-evaluations-used",
        says="It uses partial evaluations: the cheap first node is run at least three times as often as the dear last one.",
        where="section 5",
        experiment="race",
        metric="node0_per_node1",
        unit="runs of node 0 per run of node 1",
        better="higher",
        ours="pkgfn",
        test=Ratio(at_least=3.0),
        margin_reason="A method that evaluates whole networks has 1.",
        tiers=_tiers(_RACE_QUICK, _RACE, seeds=8),
        smoke_quick=True,
    ),
    Claim(
        id="pkgfn/eifn-runs-whole-networks",
        says="The comparator EIFN runs both nodes equally often.",
        where="section 5",
        experiment="race",
        metric="node0_per_node1",
        unit="runs of node 0 per run of node 1",
        better="equal",
        ours="eifn",
        test=Identity(target=1.0),
        margin_reason="By construction.",
        tiers=_tiers(_RACE_QUICK, _RACE, seeds=8),
    ),
    Claim(
        id="pkgfn/within-budget",
        says="The budget is never exceeded.",
        where="problem statement",
        experiment="race",
        metric="over_budget",
        unit="cost",
        better="lower",
        ours="pkgfn",
        test=Bound(le=0.0, atol=1e-9),
        margin_reason="A constraint, up to rounding.",
        tiers=_tiers(_RACE_QUICK, _RACE, seeds=8),
    ),
    Claim(
        id="pkgfn/equal-costs",
        says="Where all nodes cost the same it is still about as good as EIFN.",
        where="section 5 (cost ratios)",
        experiment="gap",
        metric="gap",
        unit="objective",
        better="higher",
        ours="equal",
        test=Superior(by=-0.5),
        margin_reason="About one standard error of EIFN's final value over six seeds, a tenth of the objective's range.",
        tiers=_tiers(_GAP_QUICK, _GAP, seeds=6),
        smoke_quick=True,
    ),
    Claim(
        id="pkgfn/gap-grows-with-cost-ratio",
        says="Its lead over EIFN at the same budget is larger at costs of 1 and 49 than at equal costs.",
        where="section 5 (cost ratios)",
        experiment="gap",
        metric="gap",
        unit="objective",
        better="higher",
        ours="unequal",
        against=["equal"],
        test=Superior(by=0.0),
        margin_reason="Any positive difference of the two leads.",
        tiers=_tiers(_GAP_QUICK, _GAP, seeds=6),
        smoke_quick=True,
        caveat="Budgets are four whole evaluations at costs (1, 49) and thirty at (1, 1).",
    ),
    Claim(
        id="pkgfn/real-molecules",
        says="On measured hydration free energies its design at half of the budget is at least as good as EIFN's.",
        where="section 5.3 (FreeSolv)",
        experiment="race",
        metric="value_half",
        unit="kcal/mol",
        better="higher",
        ours="pkgfn",
        against=["eifn"],
        test=NonInferior(within=1.0),
        margin_reason="1 kcal/mol, chemical accuracy.",
        tiers=_tiers(_SOLVE_QUICK, _SOLVE, seeds=6),
        smoke_quick=True,
    ),
    _broad("tree", "manufacturing", 200.0, 9, "a tree with a join (four nodes)", 100.0),
    _broad("parallel", "pharma", 40.0, 9, "parallel nodes under a product (two nodes)", 4.0),
    _broad("groups", "gp_network2", 80.0, 7, "a group of nodes that is run together (three nodes)", 24.0),
    Claim(
        id="pkgfn/closed-form-one",
        says="The acquisition is efficient: value and gradient at one point take a tenth of the time of fantasy models.",
        where="section 4 (efficient approach)",
        experiment="closed_form",
        metric="ratio_b1",
        unit="BoTorch seconds per second",
        better="higher",
        ours="ours",
        test=Ratio(at_least=10.0),
        margin_reason="An order of magnitude.",
        tiers=_tiers(_SPEED_QUICK, _SPEED, full_seeds=10),
        exclusive=True,
        smoke_quick=True,
        peers={"ours": ["botorch", "gpytorch"]},
        caveat="Fantasy models in the layout of the paper's code: 8 answers, 64 joint samples. At equal nodes see the next.",
    ),
    Claim(
        id="pkgfn/closed-form-batch",
        says="At sixteen points they take a twentieth.",
        where="section 4 (efficient approach)",
        experiment="closed_form",
        metric="ratio_b16",
        unit="BoTorch seconds per second",
        better="higher",
        ours="ours",
        test=Ratio(at_least=20.0),
        margin_reason="Twice an order of magnitude: batches are what an optimiser calls with.",
        tiers=_tiers({**_SPEED_QUICK, "batches": [1, 16]}, _SPEED, full_seeds=10),
        exclusive=True,
        smoke_quick=True,
        peers={"ours": ["botorch", "gpytorch"]},
    ),
    Claim(
        id="pkgfn/closed-form-equal-nodes",
        says="Given marginal samples and the same 16 nodes, fantasy models still take five times as long.",
        where="beyond the paper",
        experiment="closed_form",
        metric="ratio_equal_nodes_b1",
        unit="BoTorch seconds per second",
        better="higher",
        ours="ours",
        test=Ratio(at_least=5.0),
        margin_reason="What is left when the peer gets our quadrature: closed form and table alone.",
        tiers=_tiers(_SPEED_QUICK, _SPEED, full_seeds=10),
        exclusive=True,
        smoke_quick=True,
        peers={"ours": ["botorch", "gpytorch"]},
    ),
    Claim(
        id="pkgfn/closed-form-equal",
        says="Closed form and fantasy models give the same values at equal nodes.",
        where="section 4",
        experiment="closed_form",
        metric="difference_tabulated",
        unit="objective",
        better="lower",
        ours="ours",
        test=Bound(le=1e-6),
        margin_reason="Rounding of two factorisations of matrices with condition 1e8.",
        tiers=_tiers(_SPEED_QUICK, _SPEED, full_seeds=10),
        peers={"ours": ["botorch", "gpytorch"]},
        exclusive=True,
    ),
    Claim(
        id="pkgfn/ask-cheaper-than-kg",
        says="A whole ask (set of designs, both nodes, recommendation) costs no more than one optimisation of BoTorch's "
        "knowledge gradient on end-to-end data.",
        where="section 4 (efficient approach)",
        experiment="full_ask",
        metric="ratio",
        unit="BoTorch seconds per second",
        better="higher",
        ours="ours",
        test=Ratio(at_least=1.0),
        margin_reason="Not dearer is the claim.",
        tiers=_tiers({"n": 12, "repeats": 1, "fantasies": 2}, {"n": 60, "repeats": 1}, full_seeds=10),
        exclusive=True,
        smoke_quick=True,
        peers={"ours": ["botorch", "gpytorch"]},
    ),
    Claim(
        id="pkgfn/fast-fewer-evaluations",
        says="The fast variant needs less than a tenth of the acquisition evaluations per ask.",
        where="follow-up (AutoML 2025)",
        experiment="effort",
        metric="evaluations_per_ask",
        unit="acquisition values",
        better="lower",
        ours="fast_pkgfn",
        against=["pkgfn"],
        test=Ratio(at_least=10.0),
        margin_reason="One candidate per node instead of hundreds.",
        caveat="Values of the knowledge gradient; those of EIFN, which proposes the candidate, are cheap and not counted.",
        tiers=_tiers({**_FAST, "budget": 2.0}, _FAST),
        smoke_quick=True,
    ),
    Claim(
        id="pkgfn/fast-less-time",
        says="It takes less time per ask.",
        where="follow-up (AutoML 2025)",
        experiment="effort",
        metric="seconds_per_ask",
        unit="CPU seconds",
        better="lower",
        ours="fast_pkgfn",
        against=["pkgfn"],
        test=Ratio(at_least=1.0),
        margin_reason="Any saving. The follow-up's factor of up to 16 is against fantasy models, ours against closed forms.",
        tiers=_tiers({**_FAST, "budget": 2.0}, _FAST),
        smoke_quick=True,
    ),
    Claim(
        id="pkgfn/fast-as-good",
        says="It ends about as well.",
        where="follow-up (AutoML 2025)",
        experiment="effort",
        metric="value",
        unit="objective (best possible 0; random designs about -10)",
        better="higher",
        ours="fast_pkgfn",
        against=["pkgfn"],
        test=NonInferior(within=1.0),
        margin_reason="A tenth of what a random design lacks.",
        tiers=_tiers({**_FAST, "budget": 2.0}, _FAST),
        smoke_quick=True,
    ),
    Claim(
        id="pkgfn/identity-single-node",
        says="With one node the acquisition is the exact discrete knowledge gradient.",
        where="section 4",
        experiment="identity",
        metric="error_single",
        unit="objective",
        better="lower",
        ours="ours",
        test=Bound(le=1e-8),
        margin_reason="Rounding, against refactorised models and an integral over every crossing of two lines.",
        tiers=_tiers({"instances": 6}, {"instances": 40}, quick_seeds=2),
    ),
    Claim(
        id="pkgfn/identity-last-node",
        says="At the last node of a chain the acquisition is exact too.",
        where="section 4",
        experiment="identity",
        metric="error_last",
        unit="objective",
        better="lower",
        ours="ours",
        test=Bound(le=1e-8),
        margin_reason="As for one node.",
        tiers=_tiers({"instances": 6}, {"instances": 40}, quick_seeds=2),
    ),
]


def race(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """One method on one network: true value of its final design, evaluations by node, effort."""
    from ._experiments import race as run

    return run(arm, seed, size)


def gap(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Lead of p-KGFN over EIFN at one pair of costs."""
    from ._experiments import gap as run

    return run(arm, seed, size)


def effort(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Acquisition values and seconds per ask of p-KGFN or its fast variant."""
    from ._experiments import effort as run

    return run(arm, seed, size)


def closed_form(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Closed form against fantasy models: ratio of times and difference of values."""
    from ._experiments import closed_form as run

    return run(seed, size)


def full_ask(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """A whole ask against one optimisation of BoTorch's knowledge gradient."""
    from ._experiments import full_ask as run

    return run(seed, size)


def identity(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Errors of the exact values."""
    from ._experiments import identity as run

    return run(seed, size)
