"""The claims of the method: best of both worlds, the ROI target kept, no knowledge of the margin, and what it is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.claims import Bound, Claim, Equivalent, Identity, Ratio, Slope, Superior, Tier

_BOTH = ["simulated", "ipinyou"]


def _tiers(
    size: dict[str, Any], quick: dict[str, Any] | None = None, *, own: bool = False, seeds: int = 5
) -> dict[str, Tier]:
    """Quick: the simulated log; standard and full: also iPinYou's, where the file is. `own`: no auctions are needed."""
    sources = ["none"] if own else _BOTH
    return {
        "quick": Tier(seeds=3, size=size | (quick or {}), limit_s=60, data=sources[:1]),
        "standard": Tier(seeds=seeds, size=size, limit_s=300, data=sources),
        "full": Tier(seeds=4 * seeds, size=size, limit_s=600, data=sources),
    }


_HORIZONS = [2000, 8000, 32000, 128000]
_SHORT = [2000, 8000, 32000]
_SETTINGS = (
    "First price with a budget of .1 per auction; second price with .1; first price with .15 and a return of at least 1.5; "
    "second price with .1 and at least 2. Values, prices and budgets are in units of 300, the largest price of the public logs."
)
_IID: dict[str, Any] = {
    "experiment": "stochastic",
    "ours": "ours",
    "data": _BOTH,
    "tiers": _tiers({"horizons": _HORIZONS}, {"horizons": _SHORT}),
}
_CHANGING: dict[str, Any] = {"experiment": "adversarial", "ours": "ours", "data": _BOTH, "tiers": _tiers({"T": 8000})}

_C8 = "theorem on weak adaptivity: low regret on every interval"
_BANDIT_FIRST: dict[str, Any] = {
    "expect": "not supported",
    "expect_reason": "On the iPinYou log it does (.75 to .76); in the simulated one values lie closer to prices, 21 bids are "
    "told apart more slowly, and .69 was found on tuning seeds.",
}
_NO_SURPRISE: dict[str, Any] = {}
_KNIFE: dict[str, Any] = {"experiment": "knifes_edge", "ours": "ours"}

CLAIMS = [
    Claim(
        id="dual-balancing/iid-ratio",
        says="In auctions without order the reward is within 5, 2.5, 1.5 and 1 % of the best in hindsight.",
        where="abstract; theorem for stochastic inputs",
        paper="regret O~(sqrt T)",
        metric="ratio_above_wanted",
        test=Bound(ge=0.0),
        margin_reason="Ratios of .95, .975, .985, .99 at 2,000 to 128,000 auctions: what a prototype had, less its spread.",
        caveat=_SETTINGS,
        **_IID,
    ),
    Claim(
        id="dual-balancing/iid-rate",
        says="The regret (mean over four settings) grows no faster than the square root of the horizon, up to logarithms.",
        where="abstract; theorem for stochastic inputs",
        paper="O~(sqrt T)",
        metric="regret",
        better="lower",
        test=Slope(at_most=0.6, x="T", y="regret"),
        margin_reason="A slope of .5, and a tenth for logarithms over these horizons.",
        caveat="A regret below .1 sqrt(T) counts as that: where a shortfall of the return buys reward it may be nothing.",
        **_IID,
    ),
    Claim(
        id="dual-balancing/iid-violation-rate",
        says="The shortfall of the return grows no faster than the square root of the horizon.",
        where="abstract: vanishing ROI violation",
        paper="O~(sqrt T)",
        metric="violation",
        better="lower",
        test=Slope(at_most=0.6, x="T", y="violation"),
        margin_reason="A slope of .5, and a tenth for logarithms.",
        caveat="Mean over the two settings with a target. A shortfall below .01 sqrt(T), the usual one here, counts as that.",
        **_IID,
    ),
    Claim(
        id="dual-balancing/adversarial-bound",
        says="Where the world changes, the reward is at least alpha/(1+alpha) of the best in hindsight, on every run.",
        where="abstract; theorem for adversarial inputs",
        paper="alpha/(1+alpha), alpha the Slater margin",
        metric="ratio_above_bound",
        test=Bound(ge=0.0),
        margin_reason="The theorem's constant; its O~(sqrt T) term is not even needed.",
        caveat="Three-phase, drifting, switching and logged order. A weak bound: alpha is at most the budget per auction.",
        **_CHANGING,
    ),
    Claim(
        id="dual-balancing/adversarial-ratio",
        says="In practice it is at least .8 in three-phase, drifting, switching and logged order.",
        where="not in the paper, which has no experiments",
        metric="ratio",
        test=Bound(ge=0.8),
        margin_reason="A prototype had .83 to 1.06.",
        caveat="Ratios above 1 are possible: the benchmark is one fixed mixture.",
        **_CHANGING,
    ),
    Claim(
        id="dual-balancing/adversarial-violation",
        says="The shortfall of the return stays below 2 sqrt(T) in every world.",
        where="abstract: in both worlds",
        paper="O~(sqrt T)",
        metric="v_root",
        better="lower",
        test=Bound(le=2.0),
        margin_reason="A prototype had at most 1.1.",
        caveat=_SETTINGS,
        **_CHANGING,
    ),
    Claim(
        id="dual-balancing/no-feasible-rounds",
        says="With a third of the rounds in which no win pays, the shortfall stays below sqrt(T).",
        where="introduction: strict feasibility is needed on average only",
        experiment="three_phases",
        metric="v_root",
        ours="ours",
        better="lower",
        test=Bound(le=1.0),
        margin_reason="The scale of the guarantee, with constant 1.",
        tiers=_tiers({"T": 8000}),
        data=_BOTH,
    ),
    Claim(
        id="dual-balancing/no-feasible-rounds-reward",
        says="And the other two thirds earn at least .85 of what they could with the whole budget.",
        where="introduction: strict feasibility is needed on average only",
        experiment="three_phases",
        metric="outer_ratio",
        ours="ours",
        test=Bound(ge=0.85),
        margin_reason="The bad third may cost its even share of pace, not more.",
        tiers=_tiers({"T": 8000}),
        data=_BOTH,
    ),
    # ------------------------------------------------------------------------------------------ no knowledge of the margin
    Claim(
        id="dual-balancing/knife-flat",
        says="On a knife's edge with margins of .02 to .08 the mean shortfall grows as sqrt(T), without knowing them.",
        where="abstract: no knowledge of the Slater parameter",
        metric="violation",
        better="lower",
        test=Slope(at_most=0.6, x="T", y="violation"),
        margin_reason="A slope of .5, and a tenth for logarithms.",
        tiers=_tiers({"betas": [0.02, 0.05, 0.08], "horizons": _HORIZONS}, own=True),
        **_KNIFE,
    ),
    Claim(
        id="dual-balancing/wrong-guess-is-costly",
        says="Multipliers capped by a margin that is guessed ten times too large miss the target by five times more and above.",
        where="introduction: earlier methods need the Slater parameter",
        metric="last_violation",
        against=["capped"],
        better="lower",
        test=Ratio(at_least=5.0),
        margin_reason="A prototype had a factor of ten at 128,000 rounds; half of it is asked.",
        tiers=_tiers({"betas": [0.05], "horizons": [128000]}, own=True),
        caveat="A game made for the purpose; for auctions see guess-does-not-matter.",
        **_KNIFE,
    ),
    Claim(
        id="dual-balancing/wrong-guess-linear",
        says="The shortfall of the capped method grows linearly.",
        where="introduction: earlier methods need the Slater parameter",
        experiment="knifes_edge",
        metric="violation",
        ours="capped",
        test=Slope(at_least=0.9, x="T", y="violation"),
        margin_reason="Linear, less a tenth for the first rounds.",
        tiers=_tiers({"betas": [0.05], "horizons": _HORIZONS}, own=True),
    ),
    Claim(
        id="dual-balancing/guess-does-not-matter",
        says="In auctions with return targets of 1.5 to 5 the caps of a guessed margin change nothing at all.",
        where="not in the paper; the honest other side of no knowledge of the Slater parameter",
        experiment="caps_in_auctions",
        metric="reward",
        unit="units of 300",
        ours="ours",
        against=["cap-tenth", "cap"],
        better="equal",
        test=Identity(),
        margin_reason="A cap that is never reached changes no bit.",
        tiers=_tiers({"T": 8000}),
        data=_BOTH,
    ),
    Claim(
        id="dual-balancing/multipliers-small-in-auctions",
        says="There the multiplier of the return stays below 1.8 by itself.",
        where="lemma: multipliers bounded without being told",
        experiment="caps_in_auctions",
        metric="max_mu",
        ours="ours",
        better="lower",
        test=Bound(le=1.8),
        margin_reason="What a prototype never passed.",
        tiers=_tiers({"T": 8000}),
        data=_BOTH,
    ),
    # ------------------------------------------------------------------------------------------ weak adaptivity
    Claim(
        id="dual-balancing/trap-multiplier",
        says="Where a good action turns bad, the multiplier stays below 1 by itself.",
        where=_C8,
        experiment="trap_game",
        metric="max_mu",
        ours="ours",
        better="lower",
        test=Bound(le=1.0),
        margin_reason="A prototype had .45.",
        tiers=_tiers({"horizons": _HORIZONS}, own=True),
    ),
    Claim(
        id="dual-balancing/trap-violation",
        says="And the shortfall never passes half of sqrt(T).",
        where=_C8,
        experiment="trap_game",
        metric="v_max_root",
        ours="ours",
        better="lower",
        test=Bound(le=0.5),
        margin_reason="A prototype had .2.",
        tiers=_tiers({"horizons": _HORIZONS}, own=True),
    ),
    Claim(
        id="dual-balancing/trap-adaptivity-does-it",
        says="It is adaptivity that does it: plain exponential weights with the same steps miss by ten times more and above.",
        where=_C8,
        experiment="trap_game",
        metric="v_max",
        ours="ours",
        against=["plain"],
        better="lower",
        test=Ratio(at_least=10.0),
        margin_reason="5 sqrt(T) and more against .5 sqrt(T) and less.",
        tiers=_tiers({"horizons": _HORIZONS}, own=True),
    ),
    Claim(
        id="dual-balancing/first-price-adaptive",
        says="Over five worlds in first price, fixed share earns .02 of the optimum more than plain exponential weights.",
        where=_C8,
        experiment="adaptive_or_plain",
        metric="ratio",
        ours="ours",
        against=["plain"],
        test=Superior(by=0.02),
        margin_reason="The prototype's gain was .036; it is lost in stationary worlds, where plain is ahead by .003.",
        tiers=_tiers({"T": 8000, "mechanism": "first"}),
        data=_BOTH,
    ),
    Claim(
        id="dual-balancing/first-price-three-phase",
        says="Where the middle third is lost, the gain is .08 and more, averaged over budgets of .1 and .05.",
        where=_C8,
        experiment="adaptive_or_plain",
        metric="ratio",
        ours="ours",
        against=["plain"],
        test=Superior(by=0.08),
        margin_reason="The prototype gained .137 at a budget of .1; .08 leaves room for the tight one.",
        first_seed=2000,  # the margin was lowered and put back after results on the first judging seeds had been seen
        tiers=_tiers({"T": 8000, "mechanism": "first", "streams": ["three_phase"]}),
        data=_BOTH,
    ),
    Claim(
        id="dual-balancing/second-price-no-gain",
        says="In second price fixed share and plain exponential weights earn the same, within .01.",
        where="not in the paper; where adaptivity brings nothing",
        experiment="adaptive_or_plain",
        metric="ratio",
        ours="ours",
        against=["plain"],
        test=Equivalent(within=0.01),
        margin_reason="A hundredth of the optimum is what bidders would notice.",
        tiers=_tiers({"T": 8000, "mechanism": "second"}),
        data=_BOTH,
    ),
    Claim(
        id="dual-balancing/interval-regret-full",
        says="With full feedback the regret on the worst interval is a fifth of that of Hedge and below.",
        where="definition of weak adaptivity",
        experiment="interval",
        metric="interval_regret",
        ours="fixed-share",
        against=["hedge"],
        better="lower",
        test=Ratio(at_least=5.0),
        margin_reason="The prototype's factor was nine with equal steps.",
        tiers=_tiers({"T": 20000}, {"T": 10000}, own=True),
    ),
    Claim(
        id="dual-balancing/interval-regret-bandit",
        says="With bandit feedback EXP3-SIX has at most .7 of the worst interval's regret of EXP3.",
        where="definition of weak adaptivity; bandit feedback",
        experiment="interval",
        metric="interval_regret",
        ours="exp3-six",
        against=["exp3"],
        better="lower",
        test=Ratio(at_least=1 / 0.7),
        margin_reason="The prototype had .51.",
        tiers=_tiers({"T": 20000}, {"T": 10000}, own=True),
    ),
    # ------------------------------------------------------------------------------------------ other auctions, less feedback
    Claim(
        id="dual-balancing/other-mechanisms-each",
        says="With a soft floor and in generalised second price it earns .9 of the optimum in every world.",
        where="model: arbitrary rewards and costs",
        experiment="mechanisms",
        metric="ratios",
        ours="ours",
        test=Bound(ge=0.9),
        margin_reason="A prototype had .93 at least.",
        tiers=_tiers({"T": 8000}),
        data=_BOTH,
    ),
    Claim(
        id="dual-balancing/other-mechanisms-mean",
        says="With a soft floor and in generalised second price it earns .96 of the optimum on average.",
        where="model: arbitrary rewards and costs",
        experiment="mechanisms",
        metric="ratio",
        ours="ours",
        test=Superior(by=0.96),
        margin_reason="A prototype had .97.",
        tiers=_tiers({"T": 8000}),
        data=_BOTH,
    ),
    Claim(
        id="dual-balancing/one-sided-ratio",
        says="When the price is seen on wins only, it earns .86 of the optimum in first price and .91 in second price.",
        where="section on bandit feedback; one-sided feedback is ours",
        experiment="less_feedback",
        metric="above_wanted",
        ours="one_sided",
        test=Bound(ge=0.0),
        margin_reason="What a prototype reached at 25,000 auctions, less a hundredth or two.",
        tiers=_tiers({"T": 25000}),
        data=_BOTH,
    ),
    *(
        Claim(
            id=f"dual-balancing/{arm.replace('_', '-')}-{mechanism}",
            says=f"{words} it earns {wanted} of the optimum in {mechanism} price.",
            where="section on bandit feedback; one-sided feedback is ours",
            experiment="less_feedback",
            metric=f"{mechanism}_ratio",
            ours=arm,
            test=Bound(ge=wanted),
            margin_reason="What a prototype reached at 25,000 auctions, less a hundredth or two.",
            # the quick tier runs what the standard tier asks: the bound means little on a shorter stream
            tiers=_tiers({"T": 25000}),
            data=_BOTH,
            **found,
        )
        for arm, words, mechanism, wanted, found in (
            ("bandit", "When only the own bid's outcome is seen,", "first", 0.75, _BANDIT_FIRST),
            ("bandit", "When only the own bid's outcome is seen,", "second", 0.8, _NO_SURPRISE),
        )
    ),
    Claim(
        id="dual-balancing/one-sided-beats-bandit",
        says="Seeing the price on wins is worth more than seeing the own outcome only.",
        where="not in the paper; one-sided feedback is ours",
        experiment="less_feedback",
        metric="ratio",
        ours="one_sided",
        against=["bandit"],
        test=Superior(by=0.02),
        margin_reason="Two hundredths of the optimum must be there for another learner to be worth it.",
        tiers=_tiers({"T": 25000}),
        data=_BOTH,
    ),
    Claim(
        id="dual-balancing/one-sided-violation",
        says="With prices seen on wins only, the shortfall of the return stays below 3 sqrt(T).",
        where="abstract, with bandit feedback",
        experiment="less_feedback",
        metric="v_root",
        ours="one_sided",
        better="lower",
        test=Bound(le=3.0),
        margin_reason="The full-feedback constant of 2, and half more for the noise of estimates.",
        tiers=_tiers({"T": 25000}),
        data=_BOTH,
    ),
    Claim(
        id="dual-balancing/bandit-violation",
        says="With bandit feedback the shortfall of the return stays below 3 sqrt(T).",
        where="section on bandit feedback",
        experiment="less_feedback",
        metric="v_root",
        ours="bandit",
        better="lower",
        test=Bound(le=3.0),
        margin_reason="The full-feedback constant of 2, and half more for the noise of estimates.",
        tiers=_tiers({"T": 25000}),
        data=_BOTH,
        expect="not supported",
        expect_reason="In first price exploring 21 bids is itself costly: 5 to 7 sqrt(T) were found on tuning seeds. The rate "
        "is the promised one, the constant is not small.",
    ),
    # ------------------------------------------------------------------------------------------ for a bidder
    Claim(
        id="dual-balancing/bidder-ratio",
        says="In the order of the log and second price it earns .98 of the best in hindsight.",
        where="not in the paper, which has no experiments",
        experiment="for_a_bidder",
        metric="ratio",
        ours="dual-balancing",
        test=Bound(ge=0.98),
        margin_reason="A prototype had .992.",
        tiers=_tiers({"T": 32000}),
        data=_BOTH,
    ),
    Claim(
        id="dual-balancing/bidder-spends",
        says="It spends .99 of the budget and more: underspending is the usual complaint.",
        where="not in the paper, which has no experiments",
        experiment="for_a_bidder",
        metric="spend_share",
        ours="dual-balancing",
        test=Bound(ge=0.99),
        margin_reason="A hundredth is what an account manager would ask about.",
        tiers=_tiers({"T": 32000}),
        data=_BOTH,
    ),
    Claim(
        id="dual-balancing/bidder-beats-simple",
        says="It earns more than bidding the value, and than one multiplier tuned on the first fifth.",
        where="not in the paper, which has no experiments",
        experiment="for_a_bidder",
        metric="ratio",
        ours="dual-balancing",
        against=["greedy", "linear"],
        test=Superior(by=0.0),
        margin_reason="Any gain at all: both rules are simpler.",
        tiers=_tiers({"T": 32000}),
        data=_BOTH,
        caveat="Windows of one log; a multiplier tuned on it plays the fifth that it was tuned on as well.",
    ),
    Claim(
        id="dual-balancing/bidder-beats-adaptive-pacing",
        says="It earns more than adaptive pacing with bids value / (1 + lambda).",
        where="related work: pacing",
        experiment="for_a_bidder",
        metric="ratio",
        ours="dual-balancing",
        against=["adaptive-pacing"],
        test=Superior(by=0.0),
        margin_reason="Any gain at all.",
        tiers=_tiers({"T": 32000}),
        data=_BOTH,
        caveat="Adaptive pacing maximises value less payment, this method value: reward is judged here.",
    ),
    Claim(
        id="dual-balancing/bidder-beats-pi",
        says="It earns more than a proportional-integral controller of the multiplier.",
        where="not in the paper, which has no experiments",
        experiment="for_a_bidder",
        metric="ratio",
        ours="dual-balancing",
        against=["pi"],
        test=Superior(by=0.0),
        margin_reason="Any gain at all.",
        tiers=_tiers({"T": 32000}),
        data=_BOTH,
        expect="not supported",
        expect_reason="Without an ROI target and in second price a controller that tracks the pace is ahead by about .005: it "
        "needs no exploration. It has no guarantee and knows no ROI target.",
    ),
    # ------------------------------------------------------------------------------------------ the implementation
    Claim(
        id="dual-balancing/budget-hard",
        says="Over a thousand random streams and all feedbacks the budget is never exceeded.",
        where="problem statement: a hard constraint",
        experiment="budget_kept",
        metric="spend_share",
        ours="ours",
        better="lower",
        test=Bound(le=1.0),
        margin_reason="Hard: no tolerance at all.",
        tiers=_tiers({"streams": 340}, own=True),
    ),
    Claim(
        id="dual-balancing/kernel-speed",
        says="The compiled loop is twenty times faster than the same round in numpy, and more.",
        where="not in the paper; the implementation",
        experiment="kernel_speed",
        metric="ratio",
        ours="ours",
        test=Ratio(at_least=20.0),
        margin_reason="What makes a replay of 156,000 auctions a matter of a second.",
        caveat="The numpy round plays the same actions; a test says so.",
        tiers=_tiers({"T": 8000}),
        data=["simulated"],
        exclusive=True,
    ),
]  # fmt: skip


def _simulated() -> Any:
    from assay.decisions.dual_balancing import _experiments

    return _experiments.load_simulated()


def _ipinyou() -> Any:
    from assay.decisions.dual_balancing import _experiments

    return _experiments.load_ipinyou()


SOURCES = {"simulated": _simulated, "ipinyou": _ipinyou}


def stochastic(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Streams without order."""
    from assay.decisions.dual_balancing import _experiments

    return _experiments.stochastic(arm, seed, data, size, device)


def adversarial(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Streams whose world changes."""
    from assay.decisions.dual_balancing import _experiments

    return _experiments.adversarial(arm, seed, data, size, device)


def three_phases(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """A middle third without a profitable win."""
    from assay.decisions.dual_balancing import _experiments

    return _experiments.three_phases(arm, seed, data, size, device)


def knifes_edge(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """An ROI that is only just possible."""
    from assay.decisions.dual_balancing import _experiments

    return _experiments.knifes_edge(arm, seed, data, size, device)


def caps_in_auctions(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Multiplier caps in auctions."""
    from assay.decisions.dual_balancing import _experiments

    return _experiments.caps_in_auctions(arm, seed, data, size, device)


def trap_game(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """A good action that turns bad."""
    from assay.decisions.dual_balancing import _experiments

    return _experiments.trap_game(arm, seed, data, size, device)


def adaptive_or_plain(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Fixed share and plain exponential weights."""
    from assay.decisions.dual_balancing import _experiments

    return _experiments.adaptive_or_plain(arm, seed, data, size, device)


def mechanisms(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Soft floor and generalised second price."""
    from assay.decisions.dual_balancing import _experiments

    return _experiments.mechanisms(arm, seed, data, size, device)


def less_feedback(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """One-sided and bandit feedback."""
    from assay.decisions.dual_balancing import _experiments

    return _experiments.less_feedback(arm, seed, data, size, device)


def interval(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Regret on the worst interval."""
    from assay.decisions.dual_balancing import _experiments

    return _experiments.interval(arm, seed, data, size, device)


def for_a_bidder(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """The order of the log, second price."""
    from assay.decisions.dual_balancing import _experiments

    return _experiments.for_a_bidder(arm, seed, data, size, device)


def budget_kept(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Random streams under random budgets."""
    from assay.decisions.dual_balancing import _experiments

    return _experiments.budget_kept(arm, seed, data, size, device)


def kernel_speed(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """The compiled loop against numpy."""
    from assay.decisions.dual_balancing import _experiments

    return _experiments.kernel_speed(arm, seed, data, size, device)
