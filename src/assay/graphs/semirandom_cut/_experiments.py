"""Bodies of the claims' experiments."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from assay._core.errors import InputError, require
from assay.claims import interleaved

from ._bisection import SemiRandomBisection, _search
from ._hierarchy import DasguptaHierarchy, dasgupta_cost
from ._instances import adversary, make_semirandom_cut, make_semirandom_hsbm
from ._rounding import _cut, best_prefixes, fiedler_vectors, prefix_labels, window
from ._sdp import certified_lower_bound, solve_lowrank

BALANCE = 0.45


def instance(n: int, kind: str, seed: int) -> tuple[sp.csr_array, np.ndarray, dict[str, Any]]:
    """Planted graph S(n).

    "dense": 1.5 n cut edges before the adversary, random graph of mean degree 8 on the core; "thin": the same moves
    with eta = 3, the random graph drawn before the pendant paths take their vertices (mean degree 5.6 on the core).
    The number of cliques grows with n: otherwise they dominate small graphs and bend the slope in m.
    """
    cliques = adversary.cliques(max(1, n // 1000), 40)
    if kind == "dense":
        moves, eta = [adversary.tendrils(0.3, 20), adversary.random(8), cliques], 6.0
    elif kind == "thin":
        moves, eta = [adversary.random(8), adversary.tendrils(0.3, 20), cliques], 3.0
    else:
        raise InputError(f"unknown instance {kind!r}: dense or thin.")
    return make_semirandom_cut(n, eta=eta, adversary=moves, random_state=seed)


def metis_cut(W: sp.csr_array, seed: int, ufactor: int | None = None) -> np.ndarray:
    """Bisection by METIS with ten tries; `ufactor` is the imbalance in thousandths (its own default is 1)."""
    pymetis = require("pymetis", "pip:pymetis")
    options = pymetis.Options(ncuts=10, seed=seed)
    if ufactor is not None:
        options.ufactor = ufactor
    adjacency = pymetis.CSRAdjacency(W.indptr.astype(np.int32), W.indices.astype(np.int32))
    return np.array(pymetis.part_graph(2, adjacency, options=options)[1], dtype=np.int64)


def kahip_cut(W: sp.csr_array, seed: int) -> np.ndarray:
    """Bisection by KaHIP in its strong mode with 10 % imbalance, which is a balance of .45."""
    kahip = require("kahip", "pip:kahip")
    strong = 2
    _, part = kahip.kaffpa(
        [1] * W.shape[0],
        W.indptr.tolist(),
        W.data.astype(np.int64).tolist(),
        W.indices.tolist(),
        2,
        0.1,
        True,
        seed,
        strong,
    )
    return np.array(part, dtype=np.int64)


def spectral_cut(W: sp.csr_array, how: str, seed: int) -> np.ndarray:
    """Fiedler vector of the largest component, other vertices at its median; cut at the median or by a sweep."""
    n = W.shape[0]
    label = sp.csgraph.connected_components(sp.csr_matrix(W), directed=False)[1]
    members = np.flatnonzero(label == np.bincount(label).argmax())
    inner = W if members.size == n else sp.csr_array(W[members][:, members])
    vector = fiedler_vectors(inner, np.random.default_rng(seed), max_products=20_000)[:, 0]
    score = np.full(n, np.median(vector))
    score[members] = vector
    if how == "median":
        labels = np.zeros(n, dtype=np.int64)
        labels[np.argsort(score, kind="stable")[n // 2 :]] = 1
        return labels
    ones = np.ones(n)
    low, high = window(ones, BALANCE)
    size, _, suffix, order, _ = best_prefixes(W, score[None, :], ones, low, high, mass=ones)[0]
    return prefix_labels(order, size, suffix)


def sklearn_cut(W: sp.csr_array, seed: int) -> np.ndarray:
    """Two clusters by scikit-learn's SpectralClustering."""
    import warnings

    from sklearn.cluster import SpectralClustering

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it says that the graph is not connected: so it is
        model = SpectralClustering(2, affinity="precomputed", random_state=seed)
        return model.fit_predict(sp.csr_matrix(W)).astype(np.int64)


def split(arm: str, W: sp.csr_array, seed: int) -> tuple[np.ndarray, SemiRandomBisection | None]:
    """Sides by one of the arms."""
    if arm == "lowrank":
        model = SemiRandomBisection(balance=BALANCE, random_state=seed).fit(W)
        return model.labels_, model
    if arm == "lowrank-no-moves":
        return SemiRandomBisection(balance=BALANCE, refine=False, random_state=seed).fit(W).labels_, None
    if arm == "lowrank-sweeps":
        # the rounding of the relaxation alone: random directions, no eigenvectors, flows, heavy clusters or moves
        model = SemiRandomBisection(balance=BALANCE, refine=False, heavy=False, certify=False, random_state=seed)
        options = model._options(flow=False, fiedler=False)
        return _search(model._prepare(W), options, np.random.default_rng(seed)).labels, None
    if arm in ("metis", "metis-loose"):
        return metis_cut(W, seed, 100 if arm == "metis-loose" else None), None
    if arm == "kahip":
        return kahip_cut(W, seed), None
    if arm in ("fiedler-median", "fiedler-sweep"):
        return spectral_cut(W, arm.removeprefix("fiedler-"), seed), None
    if arm == "sklearn":
        return sklearn_cut(W, seed), None
    raise InputError(f"unknown arm {arm!r}.")


def planted(arm: str, seed: int, size: Mapping[str, Any]) -> dict[str, Any]:
    W, y, info = instance(size["n"], size["instance"], seed)
    labels, model = split(arm, W, seed)
    cut = _cut(W, labels)
    share = float(labels.mean())
    result = {
        "cut": cut,
        "planted_cut": _cut(W, y),
        "cut_over_planted": cut / info["planted_cut"],
        "cut_over_alpha": cut / info["alpha"],
        "balance": min(share, 1 - share),
        "edges": W.nnz // 2,
    }
    if model is not None:
        result["lower_bound"] = model.lower_bound_
        result["certified_ratio"] = cut / max(model.lower_bound_, 1.0)
    return result


def interior_point(W: sp.csr_array, balance: float) -> float:
    """Value of the relaxation by CLARABEL."""
    cvxpy = require("cvxpy", "pip:cvxpy")
    n = W.shape[0]
    A = W.toarray()
    L = np.diag(A.sum(axis=1)) - A
    X = cvxpy.Variable((n, n), PSD=True)
    problem = cvxpy.Problem(
        cvxpy.Minimize(cvxpy.trace(L @ X) / 4), [cvxpy.diag(X) == 1, cvxpy.sum(X) <= ((1 - 2 * balance) * n) ** 2]
    )
    problem.solve(solver="CLARABEL")
    return float(problem.value)


def against_interior_point(seed: int, size: Mapping[str, Any]) -> dict[str, Any]:
    n = size["n"]
    moves = [adversary.random(8), adversary.tendrils(0.2, 5), adversary.cliques(1, 10)]
    W, _, _ = make_semirandom_cut(n, eta=3.0, adversary=moves, random_state=seed)

    def ours() -> tuple[float, float]:
        rng = np.random.default_rng(seed)
        point = solve_lowrank(W, balance=BALANCE, rng=rng)
        return point.value, certified_lower_bound(W, point, balance=BALANCE, rng=rng)[0]

    ours()  # compilation
    began = time.perf_counter()
    value, bound = ours()
    seconds = time.perf_counter() - began
    began = time.perf_counter()
    optimum = interior_point(W, BALANCE)
    slow = time.perf_counter() - began
    return {
        "value_ratio": value / optimum,
        "bound_ratio": bound / optimum,
        "speedup": slow / seconds,
        "seconds": seconds,
        "interior_point_seconds": slow,
    }


def scaling(arm: str, seed: int, size: Mapping[str, Any]) -> dict[str, Any]:
    edges, seconds, ratios = [], [], []
    settings: dict[str, Any] = {"solver": arm, "certify": False, "random_state": seed}
    # compile and load every kernel before the clock starts
    SemiRandomBisection(**settings).fit(instance(200, "dense", seed)[0])
    for n in size["n"]:
        W, _, info = instance(n, "dense", seed)
        began = time.process_time()
        model = SemiRandomBisection(**settings).fit(W)
        seconds.append(time.process_time() - began)
        edges.append(W.nnz // 2)
        ratios.append(model.cut_ / info["planted_cut"])
    return {"m": edges, "seconds": seconds, "cut_over_planted": ratios, "largest_seconds": seconds[-1]}


def mesh(arm: str, seed: int, W: Any) -> dict[str, Any]:
    W = sp.csr_array(W)
    labels, model = split(arm, W, seed)
    result: dict[str, Any] = {"cut": _cut(W, labels), "balance": float(min(labels.mean(), 1 - labels.mean()))}
    if model is not None:
        result["lower_bound"] = model.lower_bound_
        strict, loose = _cut(W, metis_cut(W, seed)), _cut(W, metis_cut(W, seed, 100))
        result |= {"metis": strict, "metis_loose": loose, "cut_over_metis": result["cut"] / min(strict, loose)}
    return result


def mesh_against_kahip(seed: int, W: Any) -> dict[str, Any]:
    W = sp.csr_array(W)
    ours, theirs = _cut(W, split("lowrank", W, seed)[0]), _cut(W, kahip_cut(W, seed))
    return {"cut": ours, "kahip": theirs, "cut_over_kahip": ours / theirs}


def speed(seed: int, size: Mapping[str, Any]) -> dict[str, Any]:
    W, _, _ = instance(size["n"], "dense", seed)

    def ours() -> None:
        SemiRandomBisection(balance=BALANCE, certify=False, random_state=seed).fit(W)

    if size["peer"] == "metis":
        return interleaved(ours, lambda: metis_cut(W, seed), repeats=size["repeats"])
    return interleaved(ours, lambda: sklearn_cut(W, seed), repeats=size["repeats"], warmup=size.get("warmup", 1))


def sparsest(seed: int, size: Mapping[str, Any]) -> dict[str, Any]:
    ratios, names = [], []
    # no pendant paths: a pendant path is the sparsest cut
    base = [adversary.random(12), adversary.cliques(size["cliques"], 40)]
    variants = {"plain": base, "delete": [*base, adversary.delete(0.3)], "ring": [adversary.ring(4), *base]}
    for name, moves in variants.items():
        W, y, _ = make_semirandom_cut(size["n"], eta=1.5, adversary=moves, random_state=seed)
        model = SemiRandomBisection(balance=0.05, objective="sparsest", certify=False, random_state=seed).fit(W)
        n1, p1 = int(model.labels_.sum()), int(y.sum())
        n = y.size
        ratios.append((model.cut_ / (n1 * (n - n1))) / (_cut(W, y) / (p1 * (n - p1))))
        names.append(name)
    return {"sparsity_over_planted": ratios, "variant": names}


def hierarchy(arm: str, seed: int, size: Mapping[str, Any]) -> dict[str, Any]:
    W, _, info = make_semirandom_hsbm(
        size["depth"],
        size["leaf_size"],
        tuple(size["probs"]),
        [adversary.cliques(size["cliques"], 12)],
        random_state=seed,
    )
    planted_cost = dasgupta_cost(info["children"], W)
    if arm == "ours":
        cost = DasguptaHierarchy(random_state=seed).fit(W).cost_
    elif arm == "paris":
        paris = require("sknetwork.hierarchy", "pip:scikit-network").Paris()
        # Its compiled code takes 32-bit indices only.
        A = sp.csr_matrix((W.data, W.indices.astype(np.int32), W.indptr.astype(np.int32)), shape=W.shape)
        cost = dasgupta_cost(np.asarray(paris.fit_predict(A)), W)
    elif arm == "average-linkage":
        from scipy.cluster.hierarchy import linkage
        from scipy.spatial.distance import squareform

        cost = dasgupta_cost(linkage(squareform(1 - W.toarray(), checks=False), "average"), W)
    else:
        raise InputError(f"unknown arm {arm!r}.")
    return {"cost": float(cost), "planted_cost": float(planted_cost), "cost_over_planted": float(cost / planted_cost)}


def heavy(seed: int, size: Mapping[str, Any]) -> dict[str, Any]:
    n = size["n"]
    moves = [adversary.random(8), adversary.cliques(size["cliques"], size["clique_size"])]
    W, _, info = make_semirandom_cut(n, eta=3.0, adversary=moves, random_state=seed)
    settings: dict[str, Any] = {"refine": False, "certify": False, "random_state": seed}
    on = SemiRandomBisection(heavy=True, **settings).fit(W)
    off = SemiRandomBisection(heavy=False, **settings).fit(W)
    return {
        "heavy_over_plain": on.cut_ / off.cut_,
        "heavy_cut": on.cut_,
        "plain_cut": off.cut_,
        "plain_over_planted": off.cut_ / info["planted_cut"],
        "heavy_candidates": int(on.candidates_["name"].str.startswith("heavy").sum()),
    }
