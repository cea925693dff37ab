"""The claims of the method: what the abstract says, made testable on CCLE and on the sarcoma screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.claims import Bound, Claim, Ratio, Superior, Tier

HILL = ["hill2", "hill3", "hill4"]
SIMPLE = ["drug-mean-gp", "drug-mean-coregional"]


def _tiers(setting: str, quick: dict[str, Any], quick_seeds: int, **standard: Any) -> dict[str, Tier]:
    size = {"setting": setting} | standard
    return {
        "quick": Tier(seeds=quick_seeds, size=size | quick, limit_s=60),
        "standard": Tier(seeds=5, size=size, limit_s=600),
        "full": Tier(seeds=10, size=size, limit_s=3600),
    }


# Quick sizes: 40 lines (some 900 curves) are the fewest on which smoothing has a verdict at three seeds; the other
# settings only show that they run.
_SMOOTHING = _tiers("smoothing", {"lines": 40}, 3)
_TINY = {"lines": 10, "epochs": 3}
_INTERPOLATION = _tiers("interpolation", _TINY, 1)
_EXTRAPOLATION = _tiers("extrapolation", _TINY, 1)
_TINY_SARCOMA = {"drugs": 6, "epochs": 3}
# Sixteen drugs (272 curves) are enough for the direction on the clean screen at three seeds.
_SMALL_SARCOMA = {"drugs": 16}
_SARCOMA_SMOOTHING = _tiers("smoothing", _SMALL_SARCOMA, 3, detail=True)
_SARCOMA_INTERPOLATION = _tiers("interpolation", _TINY_SARCOMA, 1)
_SARCOMA_EXTRAPOLATION = _tiers("extrapolation", _SMALL_SARCOMA, 3)
# Two hundred trees, the forest's default, take two minutes and more per fold; the standard tier grows fifty (see the caveat).
_LINES = {
    "quick": Tier(seeds=1, size={"folds": 10, "lines": 20, "epochs": 2, "trees": 5}, limit_s=60),
    "standard": Tier(seeds=10, size={"folds": 10, "trees": 50}, limit_s=600),
    "full": Tier(seeds=10, size={"folds": 10}, limit_s=3600),
}
_DRUGS = {
    "quick": Tier(seeds=1, size={"lines": 10, "epochs": 2}, limit_s=60),
    "standard": Tier(seeds=6, size={}, limit_s=600),
    "full": Tier(seeds=6, size={}, limit_s=3600),
}
_SCARCE = {
    "quick": Tier(seeds=1, size={"fractions": [0.003, 0.01], "max_epochs": 5}, limit_s=60),
    "standard": Tier(seeds=5, size={"fractions": [0.01, 0.1]}, limit_s=600),
    "full": Tier(seeds=10, size={"fractions": [0.01, 0.03, 0.1, 0.3, 1.0]}, limit_s=3600),
}

_DOSES: dict[str, Any] = {
    "experiment": "held_out_doses",
    "metric": "mse",
    "unit": "squared inhibition",
    "better": "lower",
    "ours": "arcanet",
    "data": ["ccle"],
}

# Claims whose `expect` was written after a look at the first judging seeds are judged on others; unseen-drugs is not:
# its seeds name the six drugs that share a target, and there are no others.
_FRESH = 2000

CLAIMS = [
    Claim(
        id="dose-response/smoothing-beats-hill",
        says="One hidden dose of every measured curve is predicted with less than 0.7 times the error of the best Hill fit.",
        where="abstract; table of smoothing",
        paper="MSE .011 against .022 (3P), CTRPv2",
        against=HILL,
        test=Ratio(at_least=1 / 0.7),
        margin_reason="The paper halves the error on 545 drugs; 24 drugs leave less to share between curves.",
        tiers=_SMOOTHING,
        caveat="24 drugs, 267 lines. ARCANet here is the network with a Gaussian process on its residuals.",
        **_DOSES,
    ),
    Claim(
        id="dose-response/interpolation-beats-hill",
        says="An inner dose level that was never measured for a drug is predicted better than by any Hill fit.",
        where="abstract; table of interpolation",
        paper="MSE .012 against .013 (4P), CTRPv2",
        against=HILL,
        test=Superior(by=0.0),
        margin_reason="The paper's own margin is a few per cent: only the direction is claimed.",
        tiers=_INTERPOLATION,
        smoke_quick=True,
        caveat="The network alone does not always win here; the residual process does the interpolating.",
        **_DOSES,
    ),
    Claim(
        id="dose-response/extrapolation-beats-hill",
        says="The effect at the highest dose, hidden for a third of the drugs, is predicted with less than half the error "
        "of the best Hill fit.",
        where="abstract; table of extrapolation",
        paper="MSE .053 against .116 (4P), CTRPv2",
        against=HILL,
        test=Ratio(at_least=2.0),
        margin_reason="The paper's factor on CTRPv2 is 2.2.",
        tiers=_EXTRAPOLATION,
        smoke_quick=True,
        caveat="Other drugs were measured at that dose.",
        **_DOSES,
    ),
    Claim(
        id="dose-response/smoothing-beats-simple",
        says="In smoothing the network with its residual process also beats the drug's mean curve with the same process.",
        where="not in the paper, which has no such baseline",
        against=SIMPLE,
        test=Superior(by=0.0),
        margin_reason="A network must earn its place by any gain at all over a mean.",
        tiers=_SMOOTHING
        | {"quick": _INTERPOLATION["quick"].model_copy(update={"size": {"setting": "smoothing"} | _TINY})},
        smoke_quick=True,
        **_DOSES,
    ),
    Claim(
        id="dose-response/extrapolation-beats-simple",
        says="In extrapolation the network with its residual process also beats the drug's mean curve with the same process.",
        where="not in the paper, which has no such baseline",
        against=SIMPLE,
        test=Superior(by=0.0),
        margin_reason="A network must earn its place by any gain at all over a mean.",
        tiers=_EXTRAPOLATION,
        smoke_quick=True,
        **_DOSES,
    ),
    # ------------------------------------------------------------------------------------------ clean data
    Claim(
        id="dose-response/clean-smoothing",
        says="On a clean screen with neither structures nor expression, smoothing still beats every Hill fit.",
        where="abstract (every data set)",
        against=HILL,
        test=Ratio(at_least=1 / 0.7),
        margin_reason="The factor asked of the noisy screen.",
        tiers=_SARCOMA_SMOOTHING,
        **(_DOSES | {"data": ["sarcoma"]}),
    ),
    Claim(
        id="dose-response/clean-smoothing-beats-simple",
        says="On a clean screen smoothing also beats the drug's mean curve with the same residual process.",
        where="not in the paper, which has no such baseline",
        against=["drug-mean-gp"],
        test=Superior(by=0.0),
        margin_reason="A network must earn its place by any gain at all over a mean.",
        tiers=_SARCOMA_SMOOTHING,
        first_seed=_FRESH,
        smoke_quick=True,
        expect="not supported",
        expect_reason="On clean curves the neighbouring points say nearly everything: .0032 against .0031 at one seed.",
        **(_DOSES | {"data": ["sarcoma"]}),
    ),
    Claim(
        id="dose-response/clean-interpolation",
        says="On a clean screen an unmeasured inner dose is predicted better than by every Hill fit.",
        where="abstract (every data set)",
        against=HILL,
        test=Superior(by=0.0),
        margin_reason="Direction, as on CCLE.",
        tiers=_SARCOMA_INTERPOLATION,
        smoke_quick=True,
        **(_DOSES | {"data": ["sarcoma"]}),
    ),
    Claim(
        id="dose-response/clean-interpolation-beats-simple",
        says="On a clean screen an unmeasured inner dose is predicted better than by the drug's mean curve with a process.",
        where="not in the paper, which has no such baseline",
        against=["drug-mean-gp"],
        test=Superior(by=0.0),
        margin_reason="A network must earn its place by any gain at all over a mean.",
        tiers=_SARCOMA_INTERPOLATION,
        smoke_quick=True,
        expect="not supported",
        expect_reason="Between two clean neighbours a smooth process has nothing left to learn from other curves: the "
        "drug's mean with a Gaussian process is the better interpolator.",
        **(_DOSES | {"data": ["sarcoma"]}),
    ),
    Claim(
        id="dose-response/clean-extrapolation",
        says="On a clean screen the hidden highest dose is predicted with less than half the error of the best Hill fit.",
        where="abstract (every data set)",
        against=HILL,
        test=Ratio(at_least=2.0),
        margin_reason="The factor asked of the noisy screen.",
        tiers=_SARCOMA_EXTRAPOLATION,
        **(_DOSES | {"data": ["sarcoma"]}),
    ),
    # ------------------------------------------------------------------------------------------ what is unseen
    Claim(
        id="dose-response/unseen-lines",
        says="Curves of cell lines never seen are predicted better than by the drug's mean curve and by a functional "
        "random forest.",
        where="abstract; table of unseen lines",
        paper="MSE .031 against .063 (functional forest), CTRPv2",
        experiment="unseen_lines",
        metric="mse",
        unit="squared inhibition",
        better="lower",
        ours="arcanet",
        against=["drug-mean", "forest"],
        test=Superior(by=0.0),
        margin_reason="Direction in paired folds; 1,000 random genes and 240 training lines cannot give the paper's factor.",
        tiers=_LINES,
        data=["ccle"],
        smoke_quick=True,
        caveat="1,000 random genes. The pairs are the ten folds over lines; folds share training lines, so the interval is "
        "a little too narrow. The forest has 50 trees at the standard tier, 200 at the full one.",
    ),
    Claim(
        id="dose-response/unseen-lines-beats-ridge",
        says="On unseen lines the blend with the network beats the expression ridge alone.",
        where="not in the paper, which has no such baseline",
        experiment="unseen_lines",
        first_seed=_FRESH,
        metric="mse",
        unit="squared inhibition",
        better="lower",
        ours="arcanet",
        against=["ridge"],
        test=Superior(by=0.0),
        margin_reason="Any gain at all.",
        tiers=_LINES,
        data=["ccle"],
        smoke_quick=True,
        expect="inconclusive",
        expect_reason="The ridge brings most of the gain over the drug's mean; the network adds about a hundredth.",
    ),
    Claim(
        id="dose-response/unseen-lines-network-alone",
        says="On unseen lines the network alone, not blended with the ridge, beats the drug's mean curve, and itself without "
        "that prior and without principal components.",
        where="abstract (unseen tumour tissues)",
        experiment="unseen_lines",
        first_seed=_FRESH,
        metric="mse",
        unit="squared inhibition",
        better="lower",
        ours="network-of-new-cells",
        against=["drug-mean", "network-without-prior"],
        test=Superior(by=0.0),
        margin_reason="The network must earn its place in the blend by any gain at all over the mean that it starts from, and so "
        "must prior and components.",
        tiers=_LINES,
        data=["ccle"],
        smoke_quick=True,
    ),
    Claim(
        id="dose-response/unseen-lines-needs-prior",
        says="Without the drug's mean as prior and without principal components the network loses to that mean on unseen "
        "lines.",
        where="not in the paper, whose network has neither",
        experiment="unseen_lines",
        first_seed=_FRESH,
        metric="mse",
        unit="squared inhibition",
        better="lower",
        ours="drug-mean",
        against=["network-without-prior"],
        test=Superior(by=0.0),
        margin_reason="Any loss at all to a curve that knows nothing of the line decides between them.",
        tiers=_LINES,
        data=["ccle"],
        smoke_quick=True,
        expect="not supported",
        expect_reason="On the ten folds of seed 0 it wins nine times, by 4 % of the squared error (with both: ten times, 9 %): "
        "dropout and few epochs keep it from losing.",
        caveat="1,000 random genes and 240 training lines; the paper trains on all genes and more lines.",
    ),
    Claim(
        id="dose-response/unseen-drugs",
        says="A drug that shares its target with a training drug is predicted better than by the global mean curve.",
        where="abstract (untested molecules); table of unseen drugs",
        paper="MSE .12 (graphs) against .14 (functional forest), NCI60",
        experiment="unseen_drugs",
        metric="mse",
        unit="squared inhibition",
        better="lower",
        ours="arcanet",
        against=["global-mean"],
        test=Superior(by=0.0),
        margin_reason="Direction only: six drugs are all that 24 offer.",
        tiers=_DRUGS,
        data=["ccle"],
        smoke_quick=True,
        expect="inconclusive",
        expect_reason="The mean over the six is about a third lower and most of them gain, but two gain far more than the "
        "rest: an interval from six such pairs reaches zero.",
        caveat="Six drugs whose nearest neighbour (Tanimoto .33, or .52 for two) has the same target; for the other 18 the "
        "nearest is at .12 to .28 and nothing is promised.",
    ),
    Claim(
        id="dose-response/unseen-drugs-beats-neighbour",
        says="Such a drug is predicted better than by the mean curve of its nearest training drug.",
        where="not in the paper, which has no such baseline",
        experiment="unseen_drugs",
        metric="mse",
        unit="squared inhibition",
        better="lower",
        ours="arcanet",
        against=["nearest-drug-mean"],
        test=Superior(by=0.0),
        margin_reason="Any gain at all.",
        tiers=_DRUGS,
        data=["ccle"],
        smoke_quick=True,
        expect="inconclusive",
        expect_reason="Five of six drugs gain, one loses most; six pairs cannot settle that.",
    ),
    # ------------------------------------------------------------------------------------------ Hill is too simple
    Claim(
        id="dose-response/biphasic-exists",
        says="At least one curve in a hundred stimulates significantly before it kills.",
        where="introduction (Hill is too simple)",
        experiment="held_out_doses",
        metric="share_biphasic",
        unit="share of curves",
        better="higher",
        ours="arcanet",
        test=Bound(ge=0.01),
        margin_reason="Below one in a hundred a screen could treat such curves by hand.",
        tiers=_SARCOMA_SMOOTHING,
        data=["sarcoma"],
        smoke_quick=True,
        caveat="Found by a likelihood ratio with false-discovery control at 5 % on all points, triplicates.",
    ),
    Claim(
        id="dose-response/biphasic-beats-hill4",
        says="On those curves a hidden dose is predicted better than by the 4-parameter Hill fit.",
        where="introduction (Hill is too simple)",
        against=["hill4"],
        test=Superior(by=0.0),
        margin_reason="Direction only: there are few such curves.",
        tiers=_SARCOMA_SMOOTHING,
        smoke_quick=True,
        caveat="The curves were chosen with all their points, the hidden ones included, for both arms alike.",
        **(_DOSES | {"data": ["sarcoma"], "metric": "mse_biphasic"}),
    ),
    Claim(
        id="dose-response/ic50-misleads",
        says="Of the curves on which network and 4-parameter Hill fit err alike, more than one in twenty get an IC50 from "
        "one that is more than a decade off, or out of range, by the other.",
        where="introduction (single numbers discard information)",
        experiment="held_out_doses",
        first_seed=_FRESH,
        metric="share_ic50_differs",
        unit="share of curves",
        better="higher",
        ours="arcanet",
        test=Superior(by=0.05),
        margin_reason="One in twenty is met by every user of a screen.",
        tiers=_SARCOMA_SMOOTHING,
        data=["sarcoma"],
        smoke_quick=True,
        expect="not supported",
        expect_reason="About 3 % at the first seed: where the two err alike on the hidden dose they mostly agree about the IC50.",
    ),
    Claim(
        id="dose-response/hill-wins-when-scarce",
        says="With one curve in a hundred to learn from, the best-behaved Hill fit (2P) beats the network.",
        where="discussion (data needed)",
        experiment="scarce_curves",
        metric="mse_smallest",
        unit="squared inhibition",
        better="lower",
        ours="hill2",
        against=["arcanet"],
        test=Superior(by=0.0),
        margin_reason="Either sign is of interest; the errors at every fraction are drawn, so that a crossing shows.",
        tiers=_SCARCE,
        data=["ccle"],
        smoke_quick=True,
        caveat="Whole curves are left out, not points of a curve, which a Hill fit needs. It needs its own curve alone, so "
        "fewer curves do not harm it; 61 curves at the smallest fraction.",
    ),
    # ------------------------------------------------------------------------------------------ ablations
    *(
        Claim(
            id=f"dose-response/ablation-{name}",
            says=says,
            where="ablation table",
            against=[arm],
            test=Superior(by=0.0),
            margin_reason="Any gain at all; smoothing on CCLE.",
            tiers=_SMOOTHING
            | {"quick": _INTERPOLATION["quick"].model_copy(update={"size": {"setting": "smoothing"} | _TINY})},
            smoke_quick=True,
            **_DOSES,
        )
        for name, arm, says in (
            ("shape-loss", "no-shape-loss", "The shape term in the loss lowers the error (against alpha = 0)."),
            (
                "latent-hill",
                "dose-as-input",
                "Latent Hill curves lower the error (against the dose as one more input).",
            ),
            (
                "head",
                "linear-head",
                "The regression network lowers the error (against a linear mixture of Hill curves).",
            ),
            ("residual", "network-alone", "The Gaussian process on the residuals lowers the error."),
        )
    ),
]


def _ccle() -> Any:
    from assay.bio.dose_response._experiments import load_ccle

    return load_ccle()


def _sarcoma() -> Any:
    from assay.bio.dose_response._experiments import load_sarcoma

    return load_sarcoma()


SOURCES = {"ccle": _ccle, "sarcoma": _sarcoma}


def held_out_doses(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Hidden doses of measured pairs."""
    from assay.bio.dose_response import _experiments

    return _experiments.held_out_doses(arm, seed, data, size, device)


def unseen_lines(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Lines never seen, one fold per seed."""
    from assay.bio.dose_response import _experiments

    return _experiments.unseen_lines(arm, seed, data, size, device)


def unseen_drugs(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Drugs never seen, one per seed."""
    from assay.bio.dose_response import _experiments

    return _experiments.unseen_drugs(arm, seed, data, size, device)


def scarce_curves(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Smoothing with few curves."""
    from assay.bio.dose_response import _experiments

    return _experiments.scarce_curves(arm, seed, data, size, device)
