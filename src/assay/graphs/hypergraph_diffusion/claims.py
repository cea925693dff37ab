"""The claims of the method: what the abstract promises, made testable on tables, text, points and random instances."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from assay.claims import Bound, Calibrated, Claim, Equivalent, NonInferior, Ratio, Slope, Superior, Tier

# Cells of the table of errors: data, visible labels, the paper's published error (over all vertices, in per cent), what a
# run of its settings is expected to give over hidden vertices, and how far it may be off.
_CELLS = {
    "mushroom-20": ("mushroom", 20, "14.5", 15.0, 4.0),
    "mushroom-60": ("mushroom", 60, "6.6", 8.5, 3.0),
    "mushroom-200": ("mushroom", 200, "1.6", 2.5, 1.0),
    "zoo-20": ("zoo", 20, "28.5", 33.0, 8.0),
    "zoo-50": ("zoo", 50, "7.5", 15.0, 6.0),
    "20news-40": ("20news", 40, "53.3", None, None),
    "20news-200": ("20news", 200, "39.7", None, None),
}
_MEAN_OF = (
    "Each pair is a mean over ten draws of the visible labels (two at the quick tier); errors over hidden vertices."
)


def _tiers(quick: dict[str, Any], standard: dict[str, Any], *, quick_seeds: int = 3, seeds: int = 5) -> dict[str, Tier]:
    return {
        "quick": Tier(seeds=quick_seeds, size=quick, limit_s=60),
        "standard": Tier(seeds=seeds, size=standard, limit_s=600),
        "full": Tier(seeds=2 * seeds, size=standard, limit_s=3600),
    }


_EXPECTED: tuple[Any, ...] = (
    ("mushroom-60", "not supported", "Few columns separate the two classes linearly: 6 % against 8 % in a prototype."),
    ("20news-40", "supported", ""),
    ("20news-200", "supported", ""),
)


# With 20 labels and plain seeds single draws range from 2 to 50 %: only many of them have a mean. 20news takes longer.
_DRAWS = {"mushroom-20": (10, 20), "20news-40": (5, 10), "20news-200": (5, 10)}


def _cell(name: str) -> dict[str, Any]:
    """What the claims about one cell share: equal sizes, so that they share their runs."""
    seeds, repeats = _DRAWS.get(name, (10, 10))
    data, labels, published, target, _ = _CELLS[name]
    size: dict[str, Any] = {"labels": labels}
    if target is not None:
        size["published"] = target
    return {
        "experiment": "ssl",
        "unit": "%",
        "better": "lower",
        "data": [data],
        "tiers": _tiers(size | {"repeats": 2}, size | {"repeats": repeats}, seeds=seeds),
        "paper": f"{published} % over all vertices, one repeat differing in a seed",
        "caveat": _MEAN_OF,
    }


def _as_published() -> list[Claim]:
    out = []
    for name, (data, labels, _, target, within) in _CELLS.items():
        if target is None or within is None:
            continue
        shared = _cell(name) | {"better": "equal", "unit": "percentage points"}
        # two draws per pair say little about a mean: the quick tier only shows that the cell runs
        out.append(
            Claim(
                id=f"hypergraph-diffusion/as-published-{name}",
                says=f"With the paper's settings (plain seeds, score of the vertex, constant step, 100 steps) {labels} labels of "
                f"{data} give an error of {target:g} +- {within:g} % on the hidden ones.",
                where="experiments on categorical data",
                metric="off_published",
                ours="paper",
                test=Equivalent(within=within),
                margin_reason="The published figure counts the labelled vertices too and its run is not converged; prototype "
                "runs over hidden vertices spread this much.",
                smoke_quick=True,
                **shared,
            )
        )
    return out


def _groups() -> list[Claim]:
    out = []
    for name in _CELLS:
        text = name.startswith("20news")
        expect: Any = "not supported" if text else "supported"
        out.append(
            Claim(
                id=f"hypergraph-diffusion/groups-beat-linear-{name}",
                says="With the paper's seeds and readout the group penalty beats the linear star model at its best teleport.",
                where="abstract; comparison with clique and star expansions",
                metric="error_percent",
                ours="paper",
                against=["star-plain"],
                test=Superior(by=0.0) if name == "mushroom-20" or text else Ratio(at_least=1.2),
                margin_reason="A fifth, except where few labels leave both near chance and on text: there the direction.",
                # the direction at the hardest cells needs more draws than a quick run has
                smoke_quick=name == "mushroom-20" or text,
                expect=expect,
                expect_reason="On 100 sparse word columns the score of the vertex itself is poor and the linear model is ahead; "
                "the readout over hyperedges turns that round."
                if text
                else "",
                **(_cell(name) | {"caveat": f"{_MEAN_OF} The star picks its teleport in hindsight."}),
            )
        )
    return out


# How much worse than the balanced star the default may be, in points; None: it must be better.
_STAR = {
    "mushroom-20": 1.0,
    "mushroom-60": 1.0,
    "mushroom-200": None,
    "20news-40": None,
    "20news-200": None,
    "zoo-20": None,
    "zoo-50": None,
}


def _honest() -> list[Claim]:
    out = []
    for name, allowance in _STAR.items():
        zoo = name.startswith("zoo")
        expect: Any = "not supported" if zoo else ("inconclusive" if name == "mushroom-20" else "supported")
        reason = "On zoo, small and clean, the linear model with balanced seeds is the better one." if zoo else ""
        if name == "mushroom-20":
            reason = (
                "On tuning seeds the star, free to choose its teleport, is ahead by just the point that is allowed."
            )
        out.append(
            Claim(
                id=f"hypergraph-diffusion/beats-balanced-linear-{name}",
                says="The default (balanced seeds, readout by cross-validation) is "
                + ("at most a point worse than" if allowance is not None else "better than")
                + " the star model with the same balanced seeds and its best teleport.",
                where="not in the paper, whose linear model has plain seeds",
                metric="error_percent",
                ours="default",
                against=["star-balanced"],
                test=Superior(by=0.0) if allowance is None else NonInferior(within=allowance),
                margin_reason="Direction; a point where the linear model is known to be strong.",
                smoke_quick=True,
                expect=expect,
                expect_reason=reason,
                **(_cell(name) | {"caveat": f"{_MEAN_OF} The star picks its teleport in hindsight."}),
            )
        )
    return out


def _defaults() -> list[Claim]:
    return [
        Claim(
            id=f"hypergraph-diffusion/default-beats-paper-{name}",
            says="Balanced seeds and a readout chosen by cross-validation lower the error by the factor 1.3 against the "
            "paper's settings.",
            where="beyond the paper",
            metric="error_percent",
            ours="default",
            against=["paper"],
            test=Ratio(at_least=1.3),
            margin_reason="Less would not be worth another default.",
            smoke_quick=name in ("mushroom-20", "zoo-50"),
            expect="inconclusive" if name == "zoo-50" else "supported",
            expect_reason="A factor of about 1.3 on tuning seeds: just the margin." if name == "zoo-50" else "",
            **_cell(name),
        )
        for name in ("mushroom-20", "zoo-20", "zoo-50", "20news-40", "20news-200")
    ]


def _manifold() -> list[Claim]:
    out = []
    for shape in ("spheres", "boxes"):
        for dim in (2, 4, 7, 15):
            size = {"shape": shape, "dim": dim}
            margin = 0.02 if dim >= 7 else 0.0
            out.append(
                Claim(
                    id=f"hypergraph-diffusion/manifold-{shape}-{dim}",
                    says=f"On concentric {shape} in {dim} dimensions PageRank on the kNN hypergraph ranks the two manifolds "
                    "better than on the kNN graph.",
                    where="experiments on manifold clustering",
                    experiment="manifold",
                    metric="gain",
                    unit="AUC",
                    better="higher",
                    ours="hypergraph",
                    test=Superior(by=margin),
                    margin_reason="Two points of AUC in high dimension, where the paper's gap is; the direction in low.",
                    tiers=_tiers(size, size, quick_seeds=5, seeds=30),
                    smoke_quick=dim == 2,
                    caveat="300 + 300 points, k = 5, 30 labelled; the graph's PageRank is exact.",
                )
            )
            if dim >= 4:
                out.append(
                    Claim(
                        id=f"hypergraph-diffusion/manifold-wins-{shape}-{dim}",
                        says=f"It does so in at least 80 % of the samples ({shape}, {dim} dimensions).",
                        where="experiments on manifold clustering",
                        experiment="manifold",
                        metric="wins",
                        unit="share of samples",
                        better="higher",
                        ours="hypergraph",
                        test=Calibrated(level=0.8, side="at_least", min_trials=20),
                        margin_reason="Four of five; a coin would give half.",
                        tiers=_tiers(size, size, quick_seeds=5, seeds=30),
                        smoke_quick=True,
                    )
                )
    return out


def _certificate(name: str, says: str, metric: str, test: Any, reason: str, unit: str = "share of |f*|") -> Claim:
    return Claim(
        id=f"hypergraph-diffusion/{name}",
        says=says,
        where="theorem on the resolvent; certificate and dual solver are this library's",
        experiment="certified",
        metric=metric,
        unit=unit,
        better="lower" if test.le is not None else "higher",
        ours="ours",
        test=test,
        margin_reason=reason,
        tiers=_tiers({"instances": 5, "long": 1}, {"instances": 10, "long": 3}, quick_seeds=2),
        caveat="Random hypergraphs of 20 to 60 vertices, against an interior-point method.",
    )


def _speed(name: str, data: str, tol: float, test: Any, says: str, **more: Any) -> Claim:
    return Claim(
        id=f"hypergraph-diffusion/{name}",
        says=says,
        where="abstract (running time)",
        experiment="against_pdhg",
        metric="speedup",
        unit="PDHG seconds per second",
        better="higher",
        ours="ours",
        test=test,
        margin_reason="Five times is more than tuning of a step size gives; at 1: faster at all.",
        tiers=_tiers({"tol": tol, "cap": 20, "repeats": 1}, {"tol": tol, "cap": 300, "repeats": 2}, quick_seeds=1),
        data=[data],
        exclusive=True,
        smoke_quick=True,
        caveat="One column of one-vs-rest seeds, 200 labels. Where PDHG is not there after 300 steps, their time counts: the "
        "factor is then a lower bound.",
        **more,
    )


CLAIMS = [
    *_as_published(),
    *_groups(),
    *_honest(),
    *_defaults(),
    *(
        Claim(
            id=f"hypergraph-diffusion/beats-logistic-{name}",
            says="The default is better than logistic regression on the same incidence columns.",
            where="not in the paper, which has no such baseline",
            metric="error_percent",
            ours="default",
            against=["logistic"],
            test=Superior(by=0.0),
            margin_reason="Direction: the simplest tool that anyone would try.",
            smoke_quick=True,
            expect=expect,
            expect_reason=reason,
            **_cell(name),
        )
        for name, expect, reason in _EXPECTED
    ),
    *_manifold(),
    *(
        Claim(
            id=f"hypergraph-diffusion/beats-label-spreading-{labels}",
            says=f"On digits with {labels} labels the defaults have an error at most 1/1.3 of that of LabelSpreading at the best "
            "of four settings.",
            where="beyond the paper",
            experiment="digits",
            metric="error_percent",
            unit="%",
            better="lower",
            ours="ours",
            against=["label-spreading"],
            test=Ratio(at_least=1.3),
            margin_reason="More than a change of k gives either method.",
            tiers=_tiers({"labels": labels, "repeats": 1}, {"labels": labels, "repeats": 8}, quick_seeds=3, seeds=8),
            smoke_quick=True,
            peers={"label-spreading": ["scikit-learn"]},
            caveat="The rival picks its neighbours and alpha in hindsight.",
        )
        for labels in (30, 60)
    ),
    _certificate(
        "gap-covers-error",
        "The certified gap is never below the true error.",
        "slack",
        Bound(ge=0.0, atol=1e-9),
        "Weak duality, to the rounding of the interior-point reference.",
    ),
    _certificate(
        "error-is-positive",
        "The reported objective is never below the optimum: it is that of the returned point.",
        "error",
        Bound(ge=0.0, atol=1e-9),
        "By definition, to the rounding of the reference.",
    ),
    _certificate(
        "stops-in-time",
        "A run that stops at a relative gap of 1 % has an error of at most 1 %.",
        "stopped_error",
        Bound(le=0.01),
        "The tolerance that was asked for.",
    ),
    _certificate(
        "approximates",
        "Algorithm 1 with strong convexity steps is within a thousandth of the optimum after 5000 steps.",
        "strong_error",
        Bound(le=1e-3),
        "The precision that the theorem's step count promises at this size.",
    ),
    _certificate(
        "dual-is-exact",
        "Block coordinate ascent agrees with an interior-point method to 1e-8.",
        "dual_error",
        Bound(le=1e-8),
        "Eight digits: far beyond what classification uses.",
    ),
    Claim(
        id="hypergraph-diffusion/steps-do-not-grow",
        says="The number of steps to a certified 1 % does not grow with the size of the hypergraph.",
        where="theorem (iteration bound)",
        experiment="step_scaling",
        metric="steps",
        unit="log-log slope",
        better="lower",
        ours="ours",
        test=Slope(expected=0.0, within=0.1, x="n", y="steps"),
        margin_reason="A tenth: less than a logarithm over this range.",
        tiers=_tiers({"n": [1000, 4000, 16_000]}, {"n": [1000, 10_000, 100_000]}),
        caveat="Random hypergraphs, lam = 1, a fiftieth of the vertices labelled.",
    ),
    _speed(
        "faster-than-pdhg-20news",
        "20news",
        0.01,
        Ratio(at_least=5.0),
        "To 1 % of the optimum on 20news the better of the two solvers is five times as fast as primal-dual hybrid gradient.",
    ),
    _speed(
        "faster-than-pdhg-dblp",
        "dblp",
        0.01,
        Ratio(at_least=5.0),
        "To 1 % of the optimum on dblp the better of the two solvers is five times as fast as primal-dual hybrid gradient.",
    ),
    _speed(
        "faster-than-pdhg-mushroom",
        "mushroom",
        0.001,
        Ratio(at_least=1.0),
        "To 0.1 % of the optimum on mushroom the better of the two solvers is faster than primal-dual hybrid gradient.",
    ),
    _speed(
        "faster-than-pdhg-mushroom-1",
        "mushroom",
        0.01,
        Ratio(at_least=1.0),
        "To 1 % of the optimum on mushroom the better of the two solvers is faster than primal-dual hybrid gradient.",
    ),
    *(
        Claim(
            id=f"hypergraph-diffusion/compiled-{data}",
            says=f"The compiled subgradient is {factor:g} times as fast as its numpy version, with the same bits ({data}).",
            where="implementation",
            experiment="kernel_speed",
            metric="ratio",
            unit="numpy seconds per second",
            better="higher",
            ours="ours",
            test=Ratio(at_least=factor),
            margin_reason="Below three a second code path is not worth its tests.",
            tiers=_tiers({"columns": columns, "repeats": 2}, {"columns": columns, "repeats": 10}, quick_seeds=1),
            data=[data],
            exclusive=True,
            smoke_quick=True,
        )
        for data, columns, factor in (("mushroom", 2, 5.0), ("dblp", 6, 3.0))
    ),
    Claim(
        id="hypergraph-diffusion/dblp-seconds",
        says="Six classes of dblp (83,114 authors) take less than 30 seconds to a certified 1 %, cross-validation included.",
        where="abstract (massive scale)",
        experiment="dblp_run",
        metric="seconds",
        unit="s",
        better="lower",
        ours="ours",
        test=Bound(le=30.0),
        margin_reason="The time that a user waits without looking for something else.",
        tiers=_tiers({"labels": 200}, {"labels": 600}, quick_seeds=1, seeds=3),
        data=["dblp"],
        exclusive=True,
    ),
    Claim(
        id="hypergraph-diffusion/dblp-memory",
        says="That run, interpreter and all, stays below 1 GiB.",
        where="abstract (massive scale)",
        experiment="dblp_run",
        metric="peak_mib",
        unit="MiB",
        better="lower",
        ours="ours",
        test=Bound(le=1024.0),
        margin_reason="A small laptop.",
        tiers=_tiers({"labels": 200}, {"labels": 600}, quick_seeds=1, seeds=3),
        data=["dblp"],
        exclusive=True,
    ),
    Claim(
        id="hypergraph-diffusion/memory-per-incidence",
        says="Memory stays below 40 bytes per incidence and max(1, c/4), the hypergraph included.",
        where="abstract (massive scale)",
        experiment="memory",
        metric="bytes_per_incidence",
        unit="bytes",
        better="lower",
        ours="ours",
        test=Bound(le=40.0),
        margin_reason="Five doubles per incidence; hyperedges of ten.",
        tiers=_tiers(
            {"nnz": [100_000], "columns": [1, 6]},
            {"nnz": [100_000, 1_000_000], "columns": [1, 6]},
            quick_seeds=1,
            seeds=3,
        ),
    ),
    *(
        Claim(
            id=f"hypergraph-diffusion/near-linear-{arm}",
            says=f"Seconds per step grow {how}.",
            where="abstract (massive scale)",
            experiment="growth",
            metric="seconds",
            unit="log-log slope",
            better="lower",
            ours=arm,
            test=test,
            margin_reason="Linear work; random ids pay the step from cache to memory on top.",
            tiers=_tiers({"nnz": [30_000, 300_000]}, {"nnz": [100_000, 1_000_000, 10_000_000]}, quick_seeds=1),
            exclusive=True,
            smoke_quick=True,
            caveat="Up to 1e7 incidences; needs a quiet machine: other processes take cache and bandwidth away. Ordered: "
            "hyperedges are local before the ids are shuffled.",
        )
        for arm, how, test in (
            (
                "random",
                "nearly linearly even where every access misses the cache",
                Slope(at_most=1.4, x="nnz", y="seconds"),
            ),
            (
                "ordered",
                "linearly once vertices are ordered for locality",
                Slope(expected=1.0, within=0.1, x="nnz", y="seconds"),
            ),
        )
    ),
    Claim(
        id="hypergraph-diffusion/families-greedy",
        says="The greedy subgradient of min(k, m - k, 1) equals the fast one of max - min, ties included.",
        where="section on general submodular cuts",
        experiment="families",
        metric="difference",
        unit="largest difference",
        better="lower",
        ours="ours",
        test=Bound(le=1e-12),
        margin_reason="Rounding of sums of a dozen terms.",
        tiers=_tiers({"n": 60, "steps": 40}, {"n": 200, "steps": 160}, quick_seeds=1),
    ),
    Claim(
        id="hypergraph-diffusion/families-certified",
        says="The certificate holds for cardinality cuts and for the mutual information of a Gaussian process as well.",
        where="section on general submodular cuts",
        experiment="families",
        metric="slack",
        unit="share of |f*|",
        better="higher",
        ours="ours",
        test=Bound(ge=0.0, atol=1e-12),
        margin_reason="Weak duality, to rounding.",
        tiers=_tiers({"n": 60, "steps": 40}, {"n": 200, "steps": 160}, quick_seeds=1),
    ),
]


def _source(name: str) -> Any:
    from assay.graphs.hypergraph_diffusion._experiments import load_source

    return load_source(name)


SOURCES = {name: partial(_source, name) for name in ("mushroom", "zoo", "20news", "dblp")}


def ssl(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Error on hidden labels of one arm, mean over draws of the visible ones."""
    from ._experiments import ssl as run

    return run(arm, seed, data, size)


def manifold(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """AUC of hypergraph and graph PageRank on one sample of two manifolds."""
    from ._experiments import manifold as run

    return run(seed, size)


def digits(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Error on hidden digits beside LabelSpreading."""
    from ._experiments import digits as run

    return run(arm, seed, size)


def certified(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Certified gaps and true errors on random instances."""
    from ._experiments import certified as run

    return run(seed, size)


def step_scaling(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Steps to a certified 1 % for growing random hypergraphs."""
    from ._experiments import step_scaling as run

    return run(seed, size)


def against_pdhg(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Seconds to a true error, ours and primal-dual hybrid gradient interleaved."""
    from ._experiments import against_pdhg as run

    return run(seed, data, size)


def kernel_speed(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Compiled and numpy subgradient interleaved, compared bit for bit."""
    from ._experiments import kernel_speed as run

    return run(seed, data, size)


def dblp_run(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Seconds and memory of the estimator on dblp in a fresh process."""
    from ._experiments import dblp_run as run

    return run(seed, size)


def memory(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Peak bytes per incidence."""
    from ._experiments import memory as run

    return run(seed, size)


def growth(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Seconds per step for growing hypergraphs."""
    from ._experiments import growth as run

    return run(arm, seed, size)


def families(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """General cuts on two spirals."""
    from ._experiments import families as run

    return run(seed, size)
