"""The claims of the method: what the abstract promises, made testable on planted graphs, meshes and trees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.claims import Bound, Claim, Identity, Ratio, Slope, Source, Tier

# S(n) "dense" has 1.5 n cut edges before the adversary deletes half of them. "thin" halves the cut, which makes the
# planted sides easy for multilevel partitioners as well; both are shown.
_S2K = {"n": 2000, "instance": "dense"}
_S8K = {"n": 8000, "instance": "dense"}
_S32K = {"n": 32000, "instance": "dense"}
_THIN = {"n": 32000, "instance": "thin"}
_THIN_2K = {"n": 2000, "instance": "thin"}
# The graph of seed 1000 was profiled while the search was made fast, and the instance was chosen by results on it.
_FRESH = 2000
_MESHES = ["4elt", "delaunay_n15", "rgg_n_2_15_s0"]
_PEERS = {
    "metis": ["pymetis"],
    "metis-loose": ["pymetis"],
    "kahip": ["kahip"],
    "sklearn": ["scikit-learn"],
    "paris": ["scikit-network"],
}


def _tiers(
    quick: dict[str, Any], standard: dict[str, Any], full: dict[str, Any] | None = None, quick_seeds: int = 3
) -> dict[str, Tier]:
    return {
        "quick": Tier(seeds=quick_seeds, size=quick, limit_s=60),
        "standard": Tier(seeds=5, size=standard, limit_s=600),
        "full": Tier(seeds=10, size=full or standard, limit_s=3600),
    }


def _small(size: dict[str, Any]) -> dict[str, Tier]:
    """One size for all tiers, a fraction of a second per cell."""
    return {
        "quick": Tier(seeds=3, size=size, limit_s=60),
        "standard": Tier(seeds=10, size=size, limit_s=600),
        "full": Tier(seeds=20, size=size, limit_s=3600),
    }


CLAIMS = [
    Claim(
        id="semirandom-cut/constant-factor",
        says="In near-linear time, the cut is within a constant factor of the planted one whatever a monotone adversary "
        "adds inside the sides or deletes across (no constant is given; here 1.05 must do).",
        where="abstract; theorem 1.1",
        experiment="planted",
        first_seed=_FRESH,
        metric="cut_over_planted",
        unit="ratio",
        better="lower",
        ours="lowrank",
        test=Bound(le=1.05),
        margin_reason="A twentieth covers sampling noise of the planted cut; the theorem allows any constant.",
        tiers=_tiers(_S2K, _S32K),
        caveat="One family of adversaries: random graph, pendant paths, cliques.",
    ),
    Claim(
        id="semirandom-cut/constant-factor-8000",
        says="The same at a quarter of the size: the factor does not grow with the graph.",
        where="abstract; theorem 1.1",
        experiment="planted",
        first_seed=_FRESH,
        metric="cut_over_planted",
        unit="ratio",
        better="lower",
        ours="lowrank",
        test=Bound(le=1.05),
        margin_reason="As for the large size.",
        tiers=_tiers(_S2K, _S8K),
    ),
    Claim(
        id="semirandom-cut/certified-ratio",
        says="The certificate shows each cut to be at most twice the optimum.",
        where="abstract (approximation factor; the certificate is this library's)",
        experiment="planted",
        first_seed=_FRESH,
        metric="certified_ratio",
        unit="cut over lower bound",
        better="lower",
        ours="lowrank",
        test=Bound(le=2.0),
        margin_reason="1.65 when the method was specified, up to 1.9 on thin cuts at tuning seeds; two is a round factor above.",
        tiers=_tiers(_S2K, _S32K),
        caveat="Most of the ratio is the gap of the relaxation: the cuts themselves are below the planted ones.",
    ),
    Claim(
        id="semirandom-cut/within-alpha",
        says="The cut never exceeds alpha, the number of edges across before the adversary acts.",
        where="abstract; theorem 1.1",
        experiment="planted",
        first_seed=_FRESH,
        metric="cut_over_alpha",
        unit="ratio",
        better="lower",
        ours="lowrank",
        test=Bound(le=1.0),
        margin_reason="O(alpha) with constant one: the adversary has deleted half of these edges.",
        tiers=_tiers(_S2K, _S32K),
    ),
    Claim(
        id="semirandom-cut/spectral-fails",
        says="Spectral methods lose the cut under a monotone adversary where the relaxation does not.",
        where="introduction",
        experiment="planted",
        first_seed=_FRESH,
        metric="cut",
        unit="edge weight",
        better="lower",
        ours="lowrank",
        against=["fiedler-median", "fiedler-sweep"],
        test=Ratio(at_least=1.3),
        margin_reason="Beyond anything that rounding or local moves repair.",
        tiers=_tiers(_S2K, _S8K),
    ),
    Claim(
        id="semirandom-cut/spectral-clustering-unbalanced",
        says="Spectral clustering with k-means puts less than a hundredth of the vertices on one side.",
        where="introduction",
        experiment="planted",
        first_seed=_FRESH,
        metric="balance",
        unit="share",
        better="higher",
        ours="lowrank",
        against=["sklearn"],
        test=Ratio(at_least=45.0),
        margin_reason="A side below one hundredth against a guaranteed .45.",
        tiers=_tiers(_S2K, _S8K),
        peers=_PEERS,
        caveat="At n = 2000 the k-means sides are a few per cent; the claim is about the standard size.",
        smoke_quick=True,
    ),
    Claim(
        id="semirandom-cut/matches-interior-point",
        says="The low-rank solver reaches the value of the semidefinite relaxation that an interior-point method finds.",
        where="section 3 (solver is this library's)",
        experiment="against_interior_point",
        metric="value_ratio",
        unit="ratio",
        better="equal",
        ours="lowrank",
        test=Identity(target=1.0, rtol=1e-3),
        margin_reason="A thousandth: the accuracy that rounding can use.",
        tiers=_tiers({"n": 30}, {"n": 60}, {"n": 120}),
        peers={"lowrank": ["cvxpy", "clarabel"]},
    ),
    Claim(
        id="semirandom-cut/certified-bound",
        says="The certified lower bound is at least .99 of the relaxation's optimum and never above it.",
        where="weak duality (certificate is this library's)",
        experiment="against_interior_point",
        metric="bound_ratio",
        unit="ratio",
        better="higher",
        ours="lowrank",
        # the interior-point value itself carries a relative error of about 1e-8
        test=Bound(ge=0.99, le=1.0, atol=1e-6),
        margin_reason="One per cent of the certified gap is below what the rounding loses.",
        tiers=_tiers({"n": 30}, {"n": 60}, {"n": 120}),
        peers={"lowrank": ["cvxpy", "clarabel"]},
    ),
    Claim(
        id="semirandom-cut/faster-than-interior-point",
        says="Value and certificate take less than a twentieth of the interior-point method's time.",
        where="abstract (running time)",
        experiment="against_interior_point",
        metric="speedup",
        unit="ratio",
        better="higher",
        ours="lowrank",
        test=Ratio(at_least=20.0),
        margin_reason="The factor at n = 60; it grows with a power of n.",
        tiers=_tiers({"n": 30}, {"n": 60}, {"n": 120}),
        peers={"lowrank": ["cvxpy", "clarabel"]},
        exclusive=True,
        smoke_quick=True,
    ),
    Claim(
        id="semirandom-cut/near-linear",
        says="The running time grows nearly linearly in the number of edges.",
        where="abstract; theorem 1.1",
        experiment="scaling",
        metric="seconds",
        unit="log-log slope",
        better="lower",
        ours="lowrank",
        test=Slope(at_most=1.2, x="m", y="seconds"),
        margin_reason="1 + o(1) plus the logarithm of sorting and the growing cost of memory.",
        tiers=_tiers({"n": [1000, 2000, 4000]}, {"n": [4000, 8000, 16000, 32000, 64000, 128000]}),
        exclusive=True,
        smoke_quick=True,
    ),
    Claim(
        id="semirandom-cut/near-linear-mmw",
        says="The matrix multiplicative weights solver of the paper grows nearly linearly as well.",
        where="abstract; section 5",
        experiment="scaling",
        metric="seconds",
        unit="log-log slope",
        better="lower",
        ours="mmw",
        test=Slope(at_most=1.25, x="m", y="seconds"),
        margin_reason="The order of the Chebyshev series carries a further logarithm.",
        tiers={
            "quick": Tier(seeds=1, size={"n": [120, 240]}, limit_s=60),
            "standard": Tier(seeds=5, size={"n": [500, 1000, 2000, 4000]}, limit_s=600),
            "full": Tier(seeds=5, size={"n": [2000, 4000, 8000, 16000, 32000]}, limit_s=7200),
        },
        exclusive=True,
        smoke_quick=True,
        caveat="Up to 4000 vertices at the standard tier: sketched exponentials cost a hundred times the low-rank sweeps.",
    ),
    Claim(
        id="semirandom-cut/beats-metis",
        says="On semi-random graphs the cut is at most .95 of that of METIS with ten tries.",
        where="beyond the paper",
        experiment="planted",
        first_seed=_FRESH,
        metric="cut",
        unit="edge weight",
        better="lower",
        ours="lowrank",
        against=["metis", "metis-loose"],
        test=Ratio(at_least=1 / 0.95),
        margin_reason="More than METIS gains by another ten tries.",
        tiers=_tiers(_S2K, _S32K),
        peers=_PEERS,
    ),
    Claim(
        id="semirandom-cut/beats-metis-thin",
        says="Where the planted cut is thin and METIS finds it too, the cut is no larger than that of METIS.",
        where="beyond the paper",
        experiment="planted",
        first_seed=_FRESH,
        metric="cut",
        unit="edge weight",
        better="lower",
        ours="lowrank",
        against=["metis", "metis-loose"],
        test=Ratio(at_least=1.0),
        margin_reason="Equal is good enough.",
        tiers=_tiers(_S2K | {"instance": "thin"}, _THIN),
        peers=_PEERS,
    ),
    Claim(
        id="semirandom-cut/sweeps-against-metis",
        says="At n = 2000 with a thin cut, sweeps over random directions alone, without flows and moves, cut at most a twentieth "
        "more than METIS, which is ahead of them.",
        where="beyond the paper",
        experiment="planted",
        first_seed=_FRESH,
        metric="cut",
        unit="edge weight",
        better="lower",
        ours="lowrank-sweeps",
        against=["metis", "metis-loose"],
        test=Ratio(at_least=1 / 1.05),
        margin_reason="The rounding that the theory speaks of; one to two per cent when the method was specified, 3.7 at tuning "
        "seeds. Flows and moves regain a twentieth.",
        tiers=_small(_THIN_2K),
        peers=_PEERS,
    ),
    Claim(
        id="semirandom-cut/no-moves-against-metis",
        says="With flows but without Fiduccia-Mattheyses moves, the cut of such a graph is at most 1.02 of that of METIS.",
        where="beyond the paper",
        experiment="planted",
        first_seed=_FRESH,
        metric="cut",
        unit="edge weight",
        better="lower",
        ours="lowrank-no-moves",
        against=["metis", "metis-loose"],
        test=Ratio(at_least=1 / 1.02),
        margin_reason="METIS refines by moves itself; two per cent is what it was ahead when the method was specified.",
        tiers=_small(_THIN_2K),
        peers=_PEERS,
    ),
    Claim(
        id="semirandom-cut/beats-kahip",
        says="On semi-random graphs the cut is no larger than that of KaHIP in its strong mode.",
        where="beyond the paper",
        experiment="planted",
        first_seed=_FRESH,
        metric="cut",
        unit="edge weight",
        better="lower",
        ours="lowrank",
        against=["kahip"],
        test=Ratio(at_least=1.0),
        margin_reason="Equal is good enough.",
        tiers=_tiers(_S2K, _S8K),
        peers=_PEERS,
    ),
    Claim(
        id="semirandom-cut/meshes-metis",
        says="On meshes the cut is no larger than that of METIS, at its default balance and at ten per cent imbalance.",
        where="beyond the paper",
        experiment="mesh",
        metric="cut_over_metis",
        unit="ratio",
        better="lower",
        ours="lowrank",
        test=Bound(le=1.0),
        margin_reason="The better of the two METIS runs is the mark.",
        tiers={
            "quick": Tier(seeds=1, limit_s=60, data=["4elt"]),
            "standard": Tier(seeds=2, limit_s=600, data=_MESHES),
            "full": Tier(seeds=5, limit_s=3600, data=_MESHES),
        },
        data=_MESHES,
        peers={"lowrank": ["pymetis"]},
        caveat="METIS needs a twentieth of the time on a mesh.",
    ),
    Claim(
        id="semirandom-cut/meshes-kahip",
        says="On meshes the cut is at most 1.02 of that of KaHIP in its strong mode with ten per cent imbalance.",
        where="beyond the paper",
        experiment="mesh_against_kahip",
        metric="cut_over_kahip",
        unit="ratio",
        better="lower",
        ours="lowrank",
        test=Bound(le=1.02),
        margin_reason="Two per cent is the spread of KaHIP over its own seeds.",
        tiers={
            "quick": Tier(seeds=1, limit_s=60, data=["4elt"]),
            "standard": Tier(seeds=1, limit_s=600, data=_MESHES),
            "full": Tier(seeds=5, limit_s=3600, data=_MESHES),
        },
        data=_MESHES,
        peers={"lowrank": ["kahip"]},
    ),
    Claim(
        id="semirandom-cut/time-of-metis",
        says="The cut takes at most twice the time of METIS with ten tries.",
        where="abstract (running time)",
        experiment="speed",
        first_seed=_FRESH,
        metric="ratio",
        unit="METIS seconds per second",
        better="higher",
        ours="lowrank",
        test=Ratio(at_least=0.5),
        margin_reason="Twice the time for a fifth fewer cut edges; without the certificate, which METIS does not give.",
        tiers=_tiers(
            {"n": 2000, "peer": "metis", "repeats": 1}, {"n": 32000, "peer": "metis", "repeats": 3}, quick_seeds=1
        ),
        peers={"lowrank": ["pymetis"]},
        exclusive=True,
        smoke_quick=True,
    ),
    Claim(
        id="semirandom-cut/time-of-spectral-clustering",
        says="The cut takes less than a tenth of the time of scikit-learn's SpectralClustering.",
        where="abstract (running time)",
        experiment="speed",
        first_seed=_FRESH,
        metric="ratio",
        unit="sklearn seconds per second",
        better="higher",
        ours="lowrank",
        test=Ratio(at_least=10.0),
        margin_reason="An order of magnitude.",
        tiers={
            "quick": Tier(seeds=1, size={"n": 500, "peer": "sklearn", "repeats": 1}, limit_s=60),
            "standard": Tier(seeds=5, size={"n": 8000, "peer": "sklearn", "repeats": 1, "warmup": 0}, limit_s=600),
            "full": Tier(seeds=5, size={"n": 8000, "peer": "sklearn", "repeats": 2, "warmup": 0}, limit_s=3600),
        },
        exclusive=True,
        smoke_quick=True,
    ),
    Claim(
        id="semirandom-cut/sparsest",
        says="The same vectors round to a sparsest cut as good as the planted one, also after edges across are deleted "
        "and where each side is a ring of blobs.",
        where="corollary for sparsest cut",
        experiment="sparsest",
        metric="sparsity_over_planted",
        unit="ratio",
        better="lower",
        ours="lowrank",
        test=Bound(le=1.05),
        margin_reason="As for the balanced cut.",
        tiers=_tiers({"n": 1000, "cliques": 2}, {"n": 4000, "cliques": 8}),
    ),
    Claim(
        id="semirandom-cut/hierarchy-planted",
        says="Recursive sparsest cuts give a hierarchy whose Dasgupta cost is at most 1.02 of the planted tree's.",
        where="corollary for hierarchical clustering",
        experiment="hierarchy",
        metric="cost_over_planted",
        unit="ratio",
        better="lower",
        ours="ours",
        test=Bound(le=1.02),
        margin_reason="Two per cent is below the difference to any agglomerative tree.",
        tiers=_tiers(
            {"depth": 3, "leaf_size": 30, "cliques": 3, "probs": (0.04, 0.1, 0.24, 0.6)},
            {"depth": 3, "leaf_size": 60, "cliques": 6, "probs": (0.02, 0.05, 0.12, 0.3)},
        ),
    ),
    Claim(
        id="semirandom-cut/hierarchy-peers",
        says="Its cost is at most .9 of that of Paris and of average linkage.",
        where="corollary for hierarchical clustering",
        experiment="hierarchy",
        metric="cost",
        unit="edge weight x leaves",
        better="lower",
        ours="ours",
        against=["paris", "average-linkage"],
        test=Ratio(at_least=1 / 0.9),
        margin_reason="A tenth of the cost is about one level of the tree.",
        tiers=_tiers(
            {"depth": 3, "leaf_size": 30, "cliques": 3, "probs": (0.04, 0.1, 0.24, 0.6)},
            {"depth": 3, "leaf_size": 60, "cliques": 6, "probs": (0.02, 0.05, 0.12, 0.3)},
        ),
        peers=_PEERS,
        smoke_quick=True,
    ),
    Claim(
        id="semirandom-cut/heavy-vertices",
        says="Removing heavy vertices never makes the cut worse.",
        where="section 4 (key step)",
        experiment="heavy",
        metric="heavy_over_plain",
        unit="ratio",
        better="lower",
        ours="lowrank",
        test=Bound(le=1.0, atol=1e-12),
        margin_reason="By construction: the clusters add candidates and replace none.",
        tiers=_tiers(
            {"n": 1000, "cliques": 1, "clique_size": 150},
            {"n": 4000, "cliques": 4, "clique_size": 300},
        ),
        caveat="An ablation: on these graphs sweeps alone are already near the planted cut, so the gain is small.",
    ),
]


def _mesh_source(name: str) -> Any:
    def load() -> Source:
        from assay._core.data import data_path, sample_path
        from assay._core.files import sha256_file
        from assay._shared.graphs import read_graph

        file = f"{name}.graph.gz"
        # one mesh ships with the method, the others are looked up or fetched
        path = (sample_path if name == "4elt" else data_path)("semirandom-cut", file)
        return Source(name, data=read_graph(path)[0], task="graph", fingerprint=sha256_file(path))

    return load


SOURCES = {name: _mesh_source(name) for name in _MESHES}


def planted(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Cut of a semi-random graph S(n) by one arm, beside the planted one."""
    from ._experiments import planted as run

    return run(arm, seed, size)


def against_interior_point(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Low-rank value, certified bound and time against CLARABEL on the same graph."""
    from ._experiments import against_interior_point as run

    return run(seed, size)


def scaling(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """CPU seconds of a solver for growing graphs."""
    from ._experiments import scaling as run

    return run(arm, seed, size)


def mesh(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Cut of a mesh, beside METIS at two balances."""
    from ._experiments import mesh as run

    return run(arm, seed, data.data)


def mesh_against_kahip(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Cut of a mesh, beside KaHIP."""
    from ._experiments import mesh_against_kahip as run

    return run(seed, data.data)


def speed(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Seconds of ours and of a peer in one process, interleaved."""
    from ._experiments import speed as run

    return run(seed, size)


def sparsest(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Sparsity over the planted one for three adversaries."""
    from ._experiments import sparsest as run

    return run(seed, size)


def hierarchy(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Dasgupta cost of a tree, beside the planted tree."""
    from ._experiments import hierarchy as run

    return run(arm, seed, size)


def heavy(arm: str, seed: int, data: Any, size: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Cut with and without the heavy-vertex step, moves off."""
    from ._experiments import heavy as run

    return run(seed, size)
