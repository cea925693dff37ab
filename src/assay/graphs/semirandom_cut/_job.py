"""What the command line does with a user's graph: read, cut, compare, explain, draw."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay._core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    import pandas as pd
    import scipy.sparse as sp

    from assay._core.run import Run

    from ._bisection import SemiRandomBisection
    from ._hierarchy import DasguptaHierarchy

# Average linkage as a comparison needs all pairs: 3000 vertices are 36 MB of distances and about a second.
_AVERAGE_LINKAGE_UP_TO = 3000


@dataclass
class _Graph:
    W: sp.csr_array
    names: np.ndarray
    vertex_weight: np.ndarray | None
    source: str

    @property
    def n(self) -> int:
        return self.W.shape[0]

    @property
    def m(self) -> int:
        return self.W.nnz // 2

    @property
    def unit(self) -> str:
        """What cut values count."""
        return "edges" if self.W.nnz == 0 or (self.W.data == 1).all() else "edge weight"

    def weights(self) -> np.ndarray:
        import numpy as np

        return np.ones(self.n) if self.vertex_weight is None else self.vertex_weight


def fit(
    graph: Path,
    *,
    parts: int = 2,
    balance: float = 0.45,
    objective: Literal["cut", "bisection", "sparsest", "conductance"] = "cut",
    imbalance: float = 0.1,
    solver: Literal["lowrank", "mmw"] = "lowrank",
    connected: bool = False,
    compare: bool = False,
    stability: int = 10,
    weight: str = "weight",
    directed: Literal["error", "symmetrize"] = "error",
    jobs: int = 1,
    run: Run,
) -> None:
    """Split a graph into balanced sides, or into several parts, with few edges between them.

    Two sides come with a certified lower bound: how far from optimal the cut can be at most.

    Parameters
    ----------
    graph
        Graph file: .graph (METIS), .mtx, .edgelist, .txt, .csv, .tsv, .gml or .npz, plain or .gz.
    parts
        Number of parts, from 2 to the number of vertices.
    balance
        Two parts: least share of the smaller side, above 0 and at most 0.5.
    objective
        Two parts: what to minimise. cut: weight across; bisection: the same with equal sides; sparsest: cut over the
        product of the sides; conductance: cut over the smaller volume.
    imbalance
        More than two parts: how far the heaviest part may exceed the average.
    solver
        Two parts: lowrank (fast) or mmw (the paper's multiplicative weights).
    connected
        Two parts: both sides must be connected.
    compare
        Also run spectral bisection, Kernighan-Lin, a random cut and, where installed, METIS and KaHIP on the same graph.
    stability
        Two parts: reruns with 5 % of the edges dropped, to find borderline vertices; 0 skips them.
    weight
        Column or edge attribute that holds the weights; none: every edge weighs 1.
    directed
        error refuses a directed graph; symmetrize adds up both directions.
    jobs
        Threads; the result does not depend on it.
    """
    if stability < 0:
        raise InputError(f"--stability must be 0 or more, got {stability}.")
    if jobs == 0:
        raise InputError("--jobs must not be 0; -1 takes all cores.")
    with _warnings_to(run):
        data = _load(graph, weight, directed)
        run.title = f"Balanced cut of {graph.name}" if parts == 2 else f"{parts} parts of {graph.name}"
        run.subtitle = f"{data.n:,} vertices, {data.m:,} edges"
        if parts == 2:
            cut = _bisect(data, balance, objective, solver, connected, jobs, run)
            _report_cut(data, cut, balance, objective, compare, stability, run)
        else:
            _fit_parts(data, parts, imbalance, compare, run)


def compare(
    graph: Path,
    *,
    parts: int = 2,
    balance: float = 0.45,
    imbalance: float = 0.1,
    weight: str = "weight",
    directed: Literal["error", "symmetrize"] = "error",
    run: Run,
) -> None:
    """Cut a graph with this method and with its peers, and put the cuts side by side.

    Parameters
    ----------
    graph
        Graph file: .graph (METIS), .mtx, .edgelist, .txt, .csv, .tsv, .gml or .npz, plain or .gz.
    parts
        Number of parts, from 2 to the number of vertices.
    balance
        Two parts: least share of the smaller side, above 0 and at most 0.5.
    imbalance
        More than two parts: how far the heaviest part may exceed the average.
    weight
        Column or edge attribute that holds the weights; none: every edge weighs 1.
    directed
        error refuses a directed graph; symmetrize adds up both directions.
    """
    fit(
        graph,
        parts=parts,
        balance=balance,
        imbalance=imbalance,
        compare=True,
        stability=0,
        weight=weight,
        directed=directed,
        run=run,
    )


def analyse(
    graph: Path,
    *,
    clusters: int = 4,
    leaf_size: int | None = None,
    weight: str = "weight",
    directed: Literal["error", "symmetrize"] = "error",
    run: Run,
) -> None:
    """Build a hierarchy of a graph's groups and compare its Dasgupta cost with Paris, Louvain and average linkage.

    Parameters
    ----------
    graph
        Graph file: .graph (METIS), .mtx, .edgelist, .txt, .csv, .tsv, .gml or .npz, plain or .gz.
    clusters
        Number of flat clusters that the tree is cut into for labels.csv and for the colours.
    leaf_size
        Groups of at most this many vertices are finished by average linkage; larger is faster. Default: 32, or a
        hundredth of the vertices if that is more.
    weight
        Column or edge attribute that holds the weights; none: every edge weighs 1.
    directed
        error refuses a directed graph; symmetrize adds up both directions.
    """
    with _warnings_to(run):
        data = _load(graph, weight, directed)
        run.title = f"Hierarchy of {graph.name}"
        run.subtitle = f"{data.n:,} vertices, {data.m:,} edges"
        _hierarchy(data, clusters, leaf_size, run)


def demo(*, run: Run) -> None:
    """Cut the shipped finite-element mesh 4elt, compare with the peers, and build the hierarchy of a small network."""
    import networkx as nx

    from assay._core.data import sample_path
    from assay._core.smoke import pick, smoke
    from assay._shared.graphs import as_csr

    with _warnings_to(run):
        path = sample_path("semirandom-cut", "4elt.graph.gz")
        data = _load(path, "weight", "error")
        if smoke():
            data = _piece(data, 2500)
        run.title = "Balanced cut of the airfoil mesh 4elt, and the hierarchy of Les Miserables"
        run.subtitle = f"4elt{pick('', ', a piece')}: {data.n:,} vertices, {data.m:,} edges; shipped with this library"
        cut = _bisect(data, 0.45, "cut", "lowrank", False, 1, run, n_iter=pick(300, 50))
        _report_cut(data, cut, 0.45, "cut", pick(True, False), pick(10, 1), run)
        novel = nx.les_miserables_graph()
        W, names = as_csr(novel)
        _hierarchy(_Graph(W, names, None, "Les Miserables"), 6, 16, run)


# ---------------------------------------------------------------------------------------------------------------------
# reading


@contextmanager
def _warnings_to(run: Run) -> Iterator[None]:
    """Put what the library warns of (dropped self-loops, say) into the report instead of on a screen that scrolls."""
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        finally:
            for item in caught:
                if issubclass(item.category, UserWarning):
                    run.warn(str(item.message))


def _load(path: Path, weight: str, directed: Literal["error", "symmetrize"]) -> _Graph:
    import numpy as np

    from assay._shared.graphs import read_graph, read_metis

    name = path.name.lower().removesuffix(".gz")
    if not name.endswith((".graph", ".metis")):
        W, names = read_graph(path, weight=None if weight == "none" else weight, directed=directed)
        return _Graph(W, names, None, path.name)
    W, vertex_weight = read_metis(path, return_weights=True)
    if vertex_weight is not None and vertex_weight.ndim == 2:
        raise InputError(
            f"{path}: the file gives {vertex_weight.shape[1]} weights per vertex; keep the one that should be balanced (ncon 1)."
        )
    if vertex_weight is not None and (vertex_weight <= 0).any():
        raise InputError(
            f"{path}: vertex {int(np.argmax(vertex_weight <= 0)) + 1} has weight 0; vertex weights must be positive."
        )
    return _Graph(W, np.arange(1, W.shape[0] + 1), vertex_weight, path.name)


def _piece(data: _Graph, size: int) -> _Graph:
    """The vertices that a breadth-first walk from the first one meets first, in the order of the file."""
    import numpy as np
    from scipy.sparse.csgraph import breadth_first_order

    keep = np.sort(breadth_first_order(data.W, 0, directed=False, return_predecessors=False)[:size])
    weight = None if data.vertex_weight is None else data.vertex_weight[keep]
    return _Graph(data.W[keep][:, keep].tocsr(), data.names[keep], weight, data.source)


# ---------------------------------------------------------------------------------------------------------------------
# two sides


def _bisect(
    data: _Graph, balance: float, objective: str, solver: str, connected: bool, jobs: int, run: Run, n_iter: int = 300
) -> SemiRandomBisection:
    from . import SemiRandomBisection

    weight = data.weights()
    heaviest = int(weight.argmax())
    share = float(weight[heaviest] / weight.sum())
    if data.vertex_weight is not None and 0 < balance <= 0.5 and share > 1 - balance:
        # the estimator says so too, but knows row numbers only, not the ids of the file
        raise InputError(
            f"{data.source}: vertex {data.names[heaviest]} weighs {share:.3g} of the total, so no split can give both sides "
            f"{balance:g}; lower --balance to {1 - share:.3g} or less."
        )
    cut = SemiRandomBisection(
        balance=balance,
        objective=objective,
        solver=solver,
        n_iter=n_iter,
        connected=connected,
        random_state=run.seed,
        n_jobs=jobs,
        device=run.device,
    )
    key = _fingerprint(data, cut)
    kept = run.load_checkpoint("cut")
    if kept is not None and kept[1]["key"] == key:
        _restore(cut, data, *kept)
        run.log("the finished cut of the interrupted run is taken over")
    else:
        run.log(f"cutting {data.source}: {data.n:,} vertices, {data.m:,} edges")
        cut.fit(data.W, sample_weight=data.vertex_weight)
        # peers and reruns may take many times longer than the cut: a run that stops there need not repeat it
        run.save_checkpoint("cut", *_state(cut, key))
    run.log(f"cut {cut.cut_:,.6g}, smaller side {100 * cut.balance_:.2f} %, lower bound {cut.lower_bound_:,.6g}")
    return cut


_NUMBERS = (
    "cut_", "conductance_", "balance_", "sdp_value_", "converged_", "lower_bound_", "lower_bound_kind_", "n_iter_",
)  # fmt: skip


def _fit_or_restore(
    run: Run,
    name: str,
    data: _Graph,
    model: Any,
    fit: Callable[[], Any],
    arrays: tuple[str, ...],
    numbers: tuple[str, ...],
) -> None:
    """Fit, and keep what was learned; an interrupted run that had come this far takes it over."""
    key = _fingerprint(data, model)
    kept = run.load_checkpoint(name)
    if kept is not None and kept[1]["key"] == key:
        for attribute, value in {**kept[0], **kept[1]["numbers"]}.items():
            setattr(model, attribute, value)
        run.log("the finished work of the interrupted run is taken over")
        return
    fit()
    state = {a: getattr(model, a) for a in arrays}
    run.save_checkpoint(name, state, {"key": key, "numbers": {a: getattr(model, a) for a in numbers}})


def _fingerprint(data: _Graph, cut: Any) -> str:
    """Of the graph and of every parameter: a checkpoint of anything else is not taken over."""
    import hashlib

    digest = hashlib.sha256(repr(sorted(cut.get_params().items())).encode())
    for part in (data.W.indptr, data.W.indices, data.W.data, data.weights()):
        digest.update(part.tobytes())
    return digest.hexdigest()


def _state(cut: SemiRandomBisection, key: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    arrays = {"labels": cut.labels_, "embedding": cut.embedding_}
    arrays |= {f"profile/{c}": cut.sweep_profile_[c].to_numpy() for c in cut.sweep_profile_.columns}
    arrays |= {f"candidates/{c}": cut.candidates_[c].to_numpy() for c in ("cut", "balance", "seconds")}
    numbers = {name: getattr(cut, name) for name in _NUMBERS}
    return arrays, {"key": key, "numbers": numbers, "candidates": cut.candidates_["name"].tolist()}


def _restore(cut: SemiRandomBisection, data: _Graph, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
    import pandas as pd

    cut._prepare(data.W, data.vertex_weight)
    cut.labels_, cut.embedding_ = arrays["labels"], arrays["embedding"]
    cut.sweep_profile_ = pd.DataFrame({c: arrays[f"profile/{c}"] for c in ("share", "cut")})
    columns = {c: arrays[f"candidates/{c}"] for c in ("cut", "balance", "seconds")}
    cut.candidates_ = pd.DataFrame({"name": meta["candidates"], **columns})
    for name in _NUMBERS:
        setattr(cut, name, meta["numbers"][name])


def _report_cut(
    data: _Graph, cut: SemiRandomBisection, balance: float, objective: str, with_peers: bool, stability: int, run: Run
) -> None:
    import numpy as np
    import pandas as pd

    from . import _report

    labels = cut.labels_
    run.table("labels", pd.DataFrame({"id": data.names, "part": labels}), show=False)
    with run.artefact("embedding.npy") as path:
        np.save(path, cut.embedding_, allow_pickle=False)
    total = float(data.W.sum()) / 2
    # the balance that the bound is about: equal sides for a bisection; an odd number of vertices cannot be halved
    held = cut.balance_ if objective == "bisection" else min(balance, cut.balance_)
    ratio = cut.cut_ / cut.lower_bound_ if cut.lower_bound_ > 0 else (1.0 if cut.cut_ == 0 else None)
    run.result(
        vertices=data.n,
        edges=data.m,
        cut=cut.cut_,
        cut_share=cut.cut_ / total if total else 0.0,
        balance=cut.balance_,
        conductance=cut.conductance_,
        lower_bound=cut.lower_bound_,
        lower_bound_kind=cut.lower_bound_kind_,
        at_most_times_optimum=ratio,
        sdp_value=cut.sdp_value_,
        sdp_converged=cut.converged_,
        components=cut.n_graph_components_,
    )
    sizes = np.bincount(labels, weights=data.weights(), minlength=2)
    across = _report.cut_edges(data.W, labels)[0]
    measure = "vertices" if data.vertex_weight is None else "vertex weight"
    crossing = f"{len(across):,} of {data.m:,} edges"
    weight_note = "" if data.unit == "edges" else f" with a weight of {cut.cut_:,.6g} of {total:,.6g}"
    share = f" ({_report.percent(cut.cut_ / total)})" if total else ""
    boundary = len(np.unique(np.concatenate(_report.cut_edges(data.W, labels)))) if len(across) else 0
    words = [
        f"Side 0 holds {sizes[0]:,.6g} and side 1 {sizes[1]:,.6g} of {sizes.sum():,.6g} {measure}: the smaller side is "
        f"{_report.percent(cut.balance_)}. {crossing}{weight_note}{share} run between the sides; they touch {boundary:,} "
        f"vertices. Conductance {cut.conductance_:.3g}.",
        _report.gap_sentence(cut.cut_, cut.lower_bound_, held, cut.lower_bound_kind_, cut.sdp_value_),
    ]
    if cut.solver == "lowrank" and not cut.converged_ and cut.lower_bound_kind_ != "exact":
        words.append(
            f"The vectors had not settled after {cut.n_iter_:,} sweeps: the value {cut.sdp_value_:,.3g} of the relaxation "
            "(sdp_value) may lie many times above its optimum, as is usual on meshes. The cut and the bound hold all the same."
        )
    if objective in ("sparsest", "conductance"):
        words.append(
            f"The sides were chosen for the objective '{objective}', not for the cut alone; the bound is on the weight of "
            "the cut over all splits of this balance."
        )
    if cut.n_graph_components_ > 1:
        words.append(
            f"The graph has {cut.n_graph_components_:,} connected components; whole components were packed first."
        )
    run.text("The cut in words", "\n\n".join(words))

    fig, drawn = _report.plot_embedding(cut.embedding_, labels, data.W)
    run.figure(
        "embedding",
        fig,
        caption="Each point is a vertex, placed by the relaxation: near points want to be on the same side. Two separate "
        f"clouds mean a clear split; points between them are the ones that could go either way.{drawn}",
    )
    profile = cut.sweep_profile_
    if len(profile) and data.m:
        share0 = float(sizes[0] / sizes.sum())
        low, high = profile["share"] >= held - 1e-9, profile["share"] <= 1 - held + 1e-9
        valley = profile[low & high]
        if len(valley):  # a prefix has no side: put the final cut where the curve has its valley
            at = float(valley["share"].iloc[int(np.argmin(valley["cut"].to_numpy()))])
            share0 = min((share0, 1 - share0), key=lambda s: abs(s - at))
        fig = _report.plot_sweep(
            profile["share"].to_numpy(),
            profile["cut"].to_numpy(),
            balance=held,
            cut=cut.cut_,
            cut_share=share0,
            lower_bound=cut.lower_bound_,
            unit=data.unit,
        )
        run.figure(
            "sweep",
            fig,
            caption="Vertices are sorted along the best direction of the embedding, and every prefix is tried as side 0. "
            "The shaded window holds the balanced cuts; flows and single moves then lower the best prefix to the final cut.",
        )
    run.table(
        "candidates",
        cut.candidates_,
        caption="What was tried, best first; the best that keeps the balance is the result.",
        show=False,  # the bars show the best of each kind; eight rows of one cut say nothing
    )
    _compare_two(data, cut, held, with_peers, run)
    _stability(data, cut, stability, run)
    _adversary(data, cut, run)


def _compare_two(data: _Graph, cut: SemiRandomBisection, balance: float, with_peers: bool, run: Run) -> None:
    import numpy as np
    import pandas as pd

    from . import _report, cut_value
    from ._peers import RANDOM

    # one bar per kind of candidate, whatever the sweep it came from: its best
    own = cut.candidates_.assign(name=cut.candidates_["name"].str.replace(r"@\d+", "", regex=True))
    own = own.sort_values("cut", kind="stable").drop_duplicates("name").head(8)
    bars = pd.DataFrame(
        {"method": own["name"], "cut": own["cut"], "ours": True, "within_balance": True}, columns=list(_BAR_COLUMNS)
    )
    if with_peers:
        rows = _run_peers(data, 2, balance, 0.1, run)
        weight = data.weights()
        # half the heaviest vertex: peers that balance to one vertex are within the balance that they can reach
        tolerance = 1e-9 + (float(weight.max()) / float(weight.sum()) if balance >= 0.5 - 1e-9 else 0.0)
        table = [
            {
                "method": "semirandom-cut",
                "cut": cut.cut_,
                "balance": cut.balance_,
                "within_balance": True,
                "seconds": float(cut.candidates_["seconds"].sum()),
                "note": "",
            }
        ]
        for row in rows:
            if row["labels"] is None:
                table.append(
                    {"method": row["method"], "within_balance": False, "seconds": row["seconds"], "note": row["note"]}
                )
                continue
            share = float(weight[row["labels"] == 1].sum() / weight.sum())
            share = min(share, 1 - share)
            table.append(
                {
                    "method": row["method"],
                    "cut": cut_value(data.W, row["labels"]),
                    "balance": share,
                    "within_balance": share >= balance - tolerance,
                    "seconds": row["seconds"],
                    "note": "" if share >= balance - tolerance else "outside the balance",
                }
            )
        frame = pd.DataFrame(table)
        frame["cut_over_ours"] = frame["cut"] / cut.cut_ if cut.cut_ > 0 else np.nan
        run.table("compare", frame, caption="The same graph and the same balance cut by other methods.")
        peers = frame.iloc[1:].dropna(subset=["cut"])
        # a hundred times the others' on a mesh: its bar would leave nothing of theirs to see
        peers = peers[peers["method"] != RANDOM]
        bars = pd.concat(
            [
                bars,
                pd.DataFrame(
                    {
                        "method": peers["method"],
                        "cut": peers["cut"],
                        "ours": False,
                        "within_balance": peers["within_balance"].astype(bool),
                    }
                ),
            ],
            ignore_index=True,
        )
        run.text("Against other methods", _peer_words(frame))
    fig = _report.plot_candidates(bars, lower_bound=cut.lower_bound_, unit=data.unit)
    run.figure(
        "candidates",
        fig,
        caption="Blue: this method's candidates. "
        + ("Grey: other methods; hatched bars break the balance and do not count. " if with_peers else "")
        + ("The dashed line is the certified bound. " if cut.lower_bound_ > 0 else "")
        + "Every candidate is in artefacts/candidates.csv.",
    )


_BAR_COLUMNS = ("method", "cut", "ours", "within_balance")


def _run_peers(data: _Graph, parts: int, balance: float, imbalance: float, run: Run) -> list[dict[str, Any]]:
    import importlib.util

    from assay._core.seeds import as_rng

    from ._peers import KERNIGHAN_LIN_UP_TO, PEER_PACKAGES, peer_partitions

    if parts == 2 and data.n > KERNIGHAN_LIN_UP_TO:
        run.log(
            f"Kernighan-Lin is left out: networkx moves vertices in Python, too slow beyond {KERNIGHAN_LIN_UP_TO:,} of them"
        )
    missing = [(n, p) for module, (n, p) in PEER_PACKAGES.items() if importlib.util.find_spec(module) is None]
    if missing:
        run.warn(
            f"{' and '.join(name for name, _ in missing)} not installed, so not compared: "
            f"pip install {' '.join(package for _, package in missing)}"
        )
    return peer_partitions(
        data.W,
        parts,
        balance=balance,
        imbalance=imbalance,
        vertex_weight=data.weights(),
        rng=as_rng(run.seed),
        progress=run.progress,
    )


def _peer_words(frame: pd.DataFrame) -> str:
    from ._peers import RANDOM

    ours = frame.iloc[0]
    peers = frame.iloc[1:].dropna(subset=["cut"])
    peers = peers[peers["method"] != RANDOM]  # a scale for the others, no method that anyone would use
    legal = peers[peers["within_balance"].astype(bool)]
    broken = peers[~peers["within_balance"].astype(bool)]
    words = []
    if len(legal):
        best = legal.loc[legal["cut"].idxmin()]
        if best["cut"] < ours["cut"]:
            words.append(
                f"{best['method']} found a lower cut: {best['cut']:,.6g} against {ours['cut']:,.6g} here. Take its result if the "
                "cut is all you need."
            )
        elif best["cut"] == ours["cut"]:
            words.append(f"{best['method']} found a cut of the same weight, {best['cut']:,.6g}.")
        else:
            times = f"{best['cut'] / ours['cut']:.2f} times" if ours["cut"] > 0 else "more than"
            words.append(
                f"The best other method within the balance is {best['method']} with {best['cut']:,.6g}: {times} the cut found "
                f"here ({ours['cut']:,.6g})."
            )
    else:
        words.append("No other method kept the balance.")
    if len(broken):
        names = ", ".join(f"{r.method} (smaller side {100 * r.balance:.3g} %)" for r in broken.itertuples())
        words.append(f"Outside the balance, and therefore not comparable: {names}.")
    return "\n\n".join(words)


def _stability(data: _Graph, cut: SemiRandomBisection, reruns: int, run: Run) -> None:
    import numpy as np
    import pandas as pd

    if reruns == 0 or data.m == 0:
        return
    run.log(f"stability: {reruns} reruns with 5 % of the edges dropped")
    agreement = np.asarray(cut.stability(reruns))
    order = np.argsort(agreement, kind="stable")
    order = order[agreement[order] < 1]
    run.table(
        "borderline",
        # as text: a table of numbers would group the digits of an id
        pd.DataFrame({"id": data.names[order].astype(str), "part": cut.labels_[order], "agreement": agreement[order]}),
        caption=f"Vertices that changed sides when 5 % of the edges were dropped ({reruns} reruns), least certain first.",
        rows=12,
        show=len(order) > 0,
    )
    firm = float((agreement >= 0.9).mean())
    run.result(stable_share=firm)
    if firm > 0.99:
        reading = "the split hardly depends on single edges"
    elif firm > 0.8:
        reading = "the core of both sides is firm; treat the vertices in borderline.csv as undecided"
    else:
        reading = (
            "several splits of nearly the same weight exist; do not read meaning into single memberships, and look at the "
            "certified gap before trusting this one"
        )
    run.text(
        "Borderline vertices",
        f"{100 * firm:.3g} % of the vertices kept their side in at least 90 % of {reruns} reruns with 5 % of the edges dropped: "
        f"{reading}.",
    )


def _adversary(data: _Graph, cut: SemiRandomBisection, run: Run) -> None:
    if data.m == 0:
        return
    found = cut.explain_adversary()
    run.table(
        "adversary",
        found,
        caption="Structures that mislead spectral methods: how many there are, how much of the Fiedler vector sits on them, "
        "and the balanced spectral cut once they are left out.",
    )
    run.text("What the graph is made of", _adversary_words(found, cut.cut_, data.n))


def _adversary_words(found: pd.DataFrame, ours: float, n: int) -> str:
    table = found.set_index(found.columns[0])
    nouns = {"pendant trees": "pendant trees", "cliques": "dense cliques", "hubs": "hubs"}
    parts = [
        f"{int(table.at[key, 'count']):,} {noun} ({int(table.at[key, 'vertices']):,} vertices)"
        for key, noun in nouns.items()
        if key in table.index and table.at[key, "count"] > 0
    ]
    if not parts:
        return "No pendant trees, large cliques or hubs: nothing here that would lead a spectral method astray."
    words = [f"Found {', '.join(parts)} among {n:,} vertices."]
    spectral = found.attrs.get("spectral_cut")
    if spectral is not None and spectral == spectral and spectral > 0:
        if ours > 0 and spectral > 1.05 * ours:
            words.append(
                f"The balanced spectral cut of the whole graph weighs {spectral:,.6g}, {spectral / ours:.2f} times this one."
            )
        else:
            words.append(f"The balanced spectral cut of the whole graph weighs {spectral:,.6g}, close to this one.")
    rows = table.loc[[key for key in nouns if key in table.index and table.at[key, "count"] > 0]]
    heaviest = rows["fiedler_mass"].astype(float)
    if heaviest.notna().any():
        key = heaviest.idxmax()
        share = float(rows.at[key, "vertices"]) / n
        mass = float(heaviest.max())
        if mass > 2 * share and mass > 0.2:
            words.append(
                f"{100 * mass:.0f} % of the Fiedler vector sits on the {nouns[key]}, which are {100 * share:.2g} % of the "
                "vertices: a spectral method looks at them instead of at the split."
            )
        else:
            words.append(
                "The Fiedler vector is spread over the graph, so spectral methods are not misled by them here."
            )
    return " ".join(words)


# ---------------------------------------------------------------------------------------------------------------------
# several parts


def _fit_parts(data: _Graph, parts: int, imbalance: float, with_peers: bool, run: Run) -> None:
    import numpy as np
    import pandas as pd
    import scipy.sparse as sp

    from . import SemiRandomKWay, _report, cut_value

    run.log(f"partitioning {data.source} into {parts} parts: {data.n:,} vertices, {data.m:,} edges")
    model = SemiRandomKWay(parts, imbalance, random_state=run.seed)
    _fit_or_restore(
        run, "parts", data, model, lambda: model.fit(data.W, sample_weight=data.vertex_weight),
        ("labels_", "part_weights_"), ("capacity_", "imbalance_", "edge_cut_"),
    )  # fmt: skip
    labels, weight = model.labels_, data.weights()
    run.table("labels", pd.DataFrame({"id": data.names, "part": labels}), show=False)
    membership = sp.csr_array((np.ones(data.n), (np.arange(data.n), labels)), shape=(data.n, parts))
    between = membership.T @ data.W @ membership
    inside = between.diagonal() / 2
    leaving = np.asarray(between.sum(axis=1)).ravel() - between.diagonal()
    total = float(data.W.sum()) / 2
    run.result(
        vertices=data.n,
        edges=data.m,
        parts=parts,
        edge_cut=model.edge_cut_,
        cut_share=model.edge_cut_ / total if total else 0.0,
        imbalance=model.imbalance_,
    )
    run.table(
        "parts",
        pd.DataFrame(
            {
                "part": np.arange(parts),
                "vertices": np.bincount(labels, minlength=parts),
                "vertex_weight": model.part_weights_,
                "edge_weight_inside": inside,
                "edge_weight_leaving": leaving,
            }
        ),
        caption="The parts.",
        rows=30,
    )
    share = f" ({_report.percent(model.edge_cut_ / total)} of all)" if total else ""
    run.text(
        "The partition in words",
        f"{parts} parts of {model.part_weights_.min():,.6g} to {model.part_weights_.max():,.6g} "
        f"({'vertices' if data.vertex_weight is None else 'vertex weight'}), average {weight.sum() / parts:,.6g}; a part may "
        f"hold {model.capacity_:,.6g}. {model.edge_cut_:,.6g} ({data.unit}) run between different parts{share}.",
    )
    if parts <= 200:
        fig = _report.plot_parts(model.part_weights_, model.capacity_, between.toarray(), data.unit)
        run.figure("parts", fig, caption="Left: the weight of each part. Right: what is cut between each two parts.")
    if not with_peers:
        return
    rows: list[dict[str, Any]] = [
        {
            "method": "semirandom-cut",
            "cut": model.edge_cut_,
            "imbalance": model.imbalance_,
            "within_balance": True,
            "note": "",
        }
    ]
    average = model.capacity_ / (1 + imbalance)
    for row in _run_peers(data, parts, 0.5, imbalance, run):
        if row["labels"] is None:
            rows.append(
                {"method": row["method"], "within_balance": False, "seconds": row["seconds"], "note": row["note"]}
            )
            continue
        load = np.bincount(row["labels"], weights=weight, minlength=parts)
        legal = bool(load.max() <= model.capacity_ * (1 + 1e-9) and load.min() > 0)
        note = "" if legal else ("an empty part" if load.min() == 0 else "a part too heavy")
        rows.append(
            {
                "method": row["method"],
                "cut": cut_value(data.W, row["labels"]) if parts == 2 else _k_cut(data.W, row["labels"]),
                "imbalance": float(load.max() / average - 1),
                "within_balance": legal,
                "seconds": row["seconds"],
                "note": note,
            }
        )
    frame = pd.DataFrame(rows)
    frame["cut_over_ours"] = frame["cut"] / model.edge_cut_ if model.edge_cut_ > 0 else np.nan
    run.table("compare", frame, caption="The same graph and imbalance partitioned by other methods.")
    bars = frame.dropna(subset=["cut"]).assign(ours=lambda f: f["method"] == "semirandom-cut")
    bars["within_balance"] = bars["within_balance"].astype(bool)
    fig = _report.plot_candidates(bars, lower_bound=0.0, unit=data.unit, label="weight between parts")
    run.figure("compare", fig, caption="Hatched bars break the balance and do not count.")


def _k_cut(W: sp.csr_array, labels: np.ndarray) -> float:
    from ._kway import _edge_cut

    return _edge_cut(W, labels)


# ---------------------------------------------------------------------------------------------------------------------
# hierarchy


def _hierarchy(data: _Graph, clusters: int, leaf_size: int | None, run: Run) -> None:
    import numpy as np
    import pandas as pd

    from . import DasguptaHierarchy, _report
    from ._hierarchy import to_newick

    if not 1 <= clusters <= data.n:
        raise InputError(f"--clusters must lie between 1 and the {data.n} vertices, got {clusters}.")
    run.log(f"hierarchy of {data.source}: {data.n:,} vertices, {data.m:,} edges")
    tree = DasguptaHierarchy(clusters, leaf_size=leaf_size, random_state=run.seed)
    arrays = ("children_", "linkage_", "labels_")
    _fit_or_restore(run, "tree", data, tree, lambda: tree.fit(data.W), arrays, ("cost_", "n_splits_"))
    with run.artefact("tree.newick") as path:
        path.write_text(to_newick(tree.linkage_, data.names) + "\n", encoding="utf-8")
    with run.artefact("linkage.npy") as path:
        np.save(path, tree.linkage_, allow_pickle=False)
    run.table("clusters", pd.DataFrame({"id": data.names, "cluster": tree.labels_}), show=False)
    total = float(data.W.sum()) / 2
    costs = _hierarchy_costs(data, tree, run)
    # an edge pays for between 2 and n leaves: its mean share of n is a scale that means something
    costs["mean_share_of_leaves"] = costs["cost"] / (total * data.n) if total else 0.0
    costs["cost_over_ours"] = costs["cost"] / tree.cost_ if tree.cost_ > 0 else np.nan
    run.table(
        "hierarchy_costs", costs, caption=f"Dasgupta cost of the tree of {data.source} and of others; lower is better."
    )
    run.result(hierarchy_cost=tree.cost_, hierarchy_splits=tree.n_splits_)
    sizes = np.bincount(tree.labels_)
    others = costs.iloc[1:].dropna(subset=["cost"])
    words = [
        f"The tree of {data.source} costs {tree.cost_:,.6g}: on average an edge is separated in a group that holds "
        f"{_report.percent(tree.cost_ / (total * data.n)) if total else '0 %'} of the vertices. Cut into {clusters} clusters, "
        f"it gives groups of {', '.join(f'{s:,}' for s in sorted(sizes.tolist(), reverse=True)[:12])} vertices."
    ]
    if len(others) and tree.cost_ > 0:
        best = others.loc[others["cost"].idxmin()]
        change = best["cost"] / tree.cost_ - 1
        words.append(
            f"The best other tree, {best['method']}, costs {abs(100 * change):.1f} % {'more' if change >= 0 else 'less'}."
        )
    run.text(f"The hierarchy of {data.source}", "\n\n".join(words))
    fig = _report.plot_dendrogram(tree.linkage_, tree.labels_, data.names)
    run.figure(
        "dendrogram",
        fig,
        caption="A merge is as high as it has vertices below it (each step of the scale doubles), which is what an edge "
        "separated there costs.",
    )


def _hierarchy_costs(data: _Graph, tree: DasguptaHierarchy, run: Run) -> pd.DataFrame:
    import importlib.util
    import time

    import numpy as np
    import pandas as pd

    from . import dasgupta_cost
    from ._hierarchy import _average_linkage

    rows: list[dict[str, Any]] = [{"method": "semirandom-cut", "cost": tree.cost_}]
    if importlib.util.find_spec("sknetwork") is not None:
        for name, kind, options in (
            ("Paris (scikit-network)", "Paris", {"weights": "degree"}),
            ("Paris, uniform weights", "Paris", {"weights": "uniform"}),
            ("LouvainHierarchy (scikit-network)", "LouvainHierarchy", {"random_state": run.seed}),
        ):
            start = time.perf_counter()
            children, note = _sknetwork_tree(data.W, kind, options)
            cost = dasgupta_cost(children, data.W) if children is not None else np.nan
            rows.append({"method": name, "cost": cost, "seconds": time.perf_counter() - start, "note": note})
    else:
        run.warn(
            "scikit-network is not installed, so Paris and LouvainHierarchy are not compared: pip install scikit-network"
        )
    if data.n <= _AVERAGE_LINKAGE_UP_TO:
        start = time.perf_counter()
        cost = dasgupta_cost(_average_linkage(data.W), data.W)
        rows.append({"method": "average linkage", "cost": cost, "seconds": time.perf_counter() - start})
    else:
        run.log(
            f"average linkage is left out: it needs all pairs, and {data.n:,} vertices are above {_AVERAGE_LINKAGE_UP_TO:,}"
        )
    return pd.DataFrame([{"note": ""} | row for row in rows], columns=["method", "cost", "seconds", "note"])


def _sknetwork_tree(W: sp.csr_array, kind: str, options: dict[str, Any]) -> tuple[np.ndarray | None, str]:
    import warnings

    import numpy as np
    import scipy.sparse as sp
    import sknetwork.hierarchy

    # its compiled code takes 32-bit indices only
    A = sp.csr_matrix((W.data, W.indices.astype(np.int32), W.indptr.astype(np.int32)), shape=W.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # its own call of scipy.sparse.diags
        try:
            return getattr(sknetwork.hierarchy, kind)(**options).fit_predict(A)[:, :2].astype(np.int64), ""
        # a peer that cannot do a graph is a result of the comparison: the row says so
        except Exception as error:
            return None, f"failed: {str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}"
