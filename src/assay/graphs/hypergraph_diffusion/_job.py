"""What the command line does with tables, points and hypergraphs: predict, evaluate, cluster."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from assay._core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import pandas as pd

    from assay._core.run import Run

    from ._hypergraph import Hypergraph
    from ._propagation import HypergraphLabelPropagation

Seeds = Literal["balanced", "plain"]
Readout = Literal["auto", "vertex", "edge", "edge2"]
CutName = Literal["standard", "node_weighted", "linear", "star"]
Missing = Literal["drop_column", "ignore_rows"]
Neighbours = Annotated[int, Parameter(name=["--k", "-k"])]
# Rows of the table of hyperedges that the report shows; the file has all.
_SHOWN = 12


@dataclass
class _Data:
    """Rows to classify: how the estimator is fed, labels as text ("" unknown), and what to call the rows."""

    kind: str
    X: Any
    labels: np.ndarray
    names: list[Any]
    source: str
    points: Any = None
    columns: list[str] = field(default_factory=list)
    loss: str = ""


def predict(
    table: Path | None = None,
    *,
    label: str = "label",
    hmetis: Path | None = None,
    labels: Path | None = None,
    knn: Path | None = None,
    k: Neighbours = 5,
    drop: list[str] | None = None,
    seeds: Seeds = "balanced",
    readout: Readout = "auto",
    cut: CutName = "standard",
    lam: float | None = None,
    tol: float = 1e-3,
    max_iter: int = 200,
    n_bins: int = 10,
    missing: Missing = "drop_column",
    suggest: int = 5,
    run: Run,
) -> None:
    """Classify the rows without a label from the few that have one.

    Give a table whose columns are categories (each value becomes a hyperedge), or --knn points, or --hmetis with --labels.

    Parameters
    ----------
    table
        CSV or TSV, plain or .gz: one row per item; an empty label is to be predicted.
    label
        Column with the labels (table and points).
    hmetis
        Hypergraph in hMETIS format, instead of a table.
    labels
        Label file of --hmetis: class names in the first line, then a class index per vertex, -1 where unknown.
    knn
        Table of numeric columns, instead of a table of categories: each point and its k nearest neighbours are a hyperedge.
    k
        Neighbours of a point for --knn.
    drop
        Columns to leave out (an identifier, say).
    seeds
        balanced gives both sides of each class equal weight; plain is that of the paper.
    readout
        vertex: scores as they are; edge, edge2: averaged over hyperedges; auto: chosen by cross-validation on the labels.
    cut
        What a hyperedge penalises: standard is max - min; star is the linear model.
    lam
        Weight of the teleport; default 1, and 0.1 for --knn.
    tol
        Certified relative gap at which the solver stops.
    max_iter
        Steps of Algorithm 1, or sweeps of the dual solver, at most.
    n_bins
        Numeric columns of a table with more distinct values are cut into as many quantile bins.
    missing
        drop_column leaves out columns with missing values; ignore_rows leaves those rows out of the column's hyperedges.
    suggest
        How many rows to propose for labelling next; 0 for none.
    """
    if suggest < 0:
        raise InputError(f"--suggest must be 0 or more, got {suggest}.")
    options = _options(seeds, readout, cut, lam, tol, max_iter, n_bins, missing, k)
    _check_device(run)
    with _warnings_to(run):
        data = _load(table, label, hmetis, labels, knn, drop, k, run)
        model = _fit(data, data.labels, options, run)
        run.title = f"Classes of {data.source}"
        H = model.hypergraph_
        known = int((data.labels != "").sum())
        run.subtitle = f"{H.n_nodes:,} rows, {known:,} labelled; {H.n_edges:,} hyperedges"
        _report_prediction(data, model, tol, suggest, run)


def evaluate(
    table: Path | None = None,
    *,
    label: str = "label",
    labelled: int = 60,
    repeats: int = 10,
    hmetis: Path | None = None,
    labels: Path | None = None,
    knn: Path | None = None,
    k: Neighbours = 5,
    drop: list[str] | None = None,
    seeds: Seeds = "balanced",
    readout: Readout = "auto",
    cut: CutName = "standard",
    lam: float | None = None,
    tol: float = 1e-3,
    max_iter: int = 200,
    n_bins: int = 10,
    missing: Missing = "drop_column",
    run: Run,
) -> None:
    """Hide most labels, predict them, and compare with the linear model and logistic regression.

    Parameters
    ----------
    table
        CSV or TSV, plain or .gz: one row per item.
    label
        Column with the labels (table and points).
    labelled
        How many labels stay visible, drawn anew in each repeat.
    repeats
        Number of draws.
    hmetis
        Hypergraph in hMETIS format, instead of a table.
    labels
        Label file of --hmetis: class names in the first line, then a class index per vertex, -1 where unknown.
    knn
        Table of numeric columns, instead of a table of categories.
    k
        Neighbours of a point for --knn.
    drop
        Columns to leave out (an identifier, say).
    seeds
        balanced gives both sides of each class equal weight; plain is that of the paper.
    readout
        vertex: scores as they are; edge, edge2: averaged over hyperedges; auto: chosen by cross-validation on the labels.
    cut
        What a hyperedge penalises: standard is max - min; star is the linear model.
    lam
        Weight of the teleport; default 1, and 0.1 for --knn.
    tol
        Certified relative gap at which the solver stops.
    max_iter
        Steps of Algorithm 1, or sweeps of the dual solver, at most.
    n_bins
        Numeric columns of a table with more distinct values are cut into as many quantile bins.
    missing
        drop_column leaves out columns with missing values; ignore_rows leaves those rows out of the column's hyperedges.
    """
    if repeats < 1:
        raise InputError(f"--repeats must be at least 1, got {repeats}.")
    options = _options(seeds, readout, cut, lam, tol, max_iter, n_bins, missing, k)
    _check_device(run)
    with _warnings_to(run):
        data = _load(table, label, hmetis, labels, knn, drop, k, run)
        _evaluate(data, labelled, repeats, options, tol, run)


def analyse(
    graph: Path,
    *,
    around: str = "",
    lam: float = 0.1,
    tol: float = 1e-3,
    max_iter: int = 300,
    run: Run,
) -> None:
    """Find the cluster around some vertices of a hypergraph: PageRank from them, then the sweep of least conductance.

    Parameters
    ----------
    graph
        hMETIS file, or a .csv/.tsv of two columns (vertex, hyperedge that holds it); plain or .gz.
    around
        Vertices as the file names them, separated by commas, for instance 12,40; default the vertex of largest degree.
    lam
        Weight of the teleport; smaller looks further.
    tol
        Certified relative gap at which the solver stops.
    max_iter
        Steps of Algorithm 1, or sweeps of the dual solver, at most.
    """
    if run.device != "cpu":
        raise InputError(f"analyse runs on the CPU only; leave out --device {run.device}.")
    _options("balanced", "auto", "standard", lam, tol, max_iter, 10, "drop_column", 5)
    with _warnings_to(run):
        H = _read_hypergraph(graph)
        at = _find(H, around, graph)
        run.title = f"Cluster in {graph.name}"
        run.subtitle = f"{H.n_nodes:,} vertices, {H.n_edges:,} hyperedges"
        _cluster(H, at, lam, tol, max_iter, run)


def demo(*, run: Run) -> None:
    """Predict the edibility of 8,124 mushrooms of the shipped UCI table from 60 labels, and check against the truth."""
    from assay._core.data import sample_path
    from assay._core.smoke import pick

    options = _options("balanced", "auto", "standard", None, 1e-6, 200, 10, "drop_column", 5)
    with _warnings_to(run):
        path = sample_path("hypergraph-diffusion", "agaricus-lepiota.data.gz")
        data = _load(path, "edibility", None, None, None, None, 5, run)
        _evaluate(data, 60, pick(5, 1), options, 1e-6, run)
        run.title = "Edible or poisonous? 8,124 mushrooms from 60 labels"


# ------------------------------------------------------------------------------------------------------------- reading


@contextmanager
def _warnings_to(run: Run) -> Iterator[None]:
    """Put what the library warns of into the report instead of on a screen that scrolls."""
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        finally:
            for item in caught:
                if issubclass(item.category, UserWarning):
                    run.warn(str(item.message))


def _options(
    seeds: str, readout: str, cut: str, lam: float | None, tol: float, max_iter: int, n_bins: int, missing: str, k: int
) -> dict[str, Any]:
    for name, value in (("lam", lam), ("tol", tol)):
        if value is not None and not 0 < value < float("inf"):
            raise InputError(f"--{name} must be a positive number, got {value:g}.")
    for name, number, least in (("max-iter", max_iter, 1), ("n-bins", n_bins, 2), ("k", k, 1)):
        if number < least:
            raise InputError(f"--{name} must be at least {least}, got {number}.")
    return {
        "seeds": seeds, "readout": readout, "cut": cut, "lam": "auto" if lam is None else lam, "tol": tol,
        "max_iter": max_iter, "n_bins": n_bins, "missing": missing, "n_neighbors": k,
    }  # fmt: skip


def _check_device(run: Run) -> None:
    """Refuse a device that is not there before anything is read."""
    if run.device != "cpu":
        from assay._core.devices import resolve_device

        resolve_device(run.device)


def _text_labels(column: pd.Series) -> np.ndarray:
    """Labels as text, "" where missing (empty or "?"); whole numbers without a decimal point."""
    import numpy as np

    out = np.empty(len(column), dtype=object)
    for i, value in enumerate(column.tolist()):
        if value is None or value != value:
            out[i] = ""
        elif isinstance(value, str):
            out[i] = "" if value.strip() == "?" else value.strip()  # as in the columns: the UCI files write "?"
        elif isinstance(value, float) and value.is_integer():
            out[i] = str(int(value))
        else:
            out[i] = str(value)
    return out


def _load(
    table: Path | None,
    label: str,
    hmetis: Path | None,
    labels: Path | None,
    knn: Path | None,
    drop: list[str] | None,
    k: int,
    run: Run,
) -> _Data:
    from assay._core.files import read_table

    given = [p for p in (table, hmetis, knn) if p is not None]
    if len(given) != 1:
        raise InputError("give exactly one of: a table, --hmetis FILE with --labels FILE, --knn FILE.")
    if hmetis is not None:
        if labels is None:
            raise InputError(f"--hmetis {hmetis} needs --labels FILE with a label per vertex.")
        from ._formats import read_hmetis, read_labels

        H = read_hmetis(hmetis)
        text, _ = read_labels(labels, H.n_nodes)
        return _Data("precomputed", H, text, H.node_names.tolist(), hmetis.name, loss=str(labels))
    if labels is not None:
        raise InputError("--labels belongs to --hmetis; for a table name the column with --label.")
    path = given[0]
    frame = read_table(path, required=[label, *(drop or [])], what="points" if knn is not None else "table")
    y = _text_labels(frame[label])
    if (y == "-1").any() and len(set(y) - {"", "-1"}) > 1:
        run.warn("the label -1 is taken for a class like the others; leave the cell empty where it means unknown.")
    X = frame.drop(columns=[label, *(drop or [])])
    if not X.shape[1]:
        raise InputError(f"{path}: no column is left besides the label {label!r}.")
    rows = list(range(1, len(frame) + 1))
    if knn is None:
        for name in X.columns:
            # a measurement may well differ in every row: it goes into bins
            measured = X[name].dtype.kind == "f" and bool((X[name] % 1 != 0).any())
            if len(X) > 20 and not measured and X[name].nunique() == len(X):
                run.warn(
                    f"column {name!r} has another value in every row: it looks like an identifier (--drop {name})."
                )
        return _Data("categorical", X, y, rows, path.name, loss=f"{path}, column {label!r}")
    import numpy as np
    import pandas as pd

    for name in X.columns:
        number = pd.to_numeric(X[name], errors="coerce")
        bad = ~np.isfinite(number.to_numpy(dtype=float, na_value=np.nan))
        if bad.any():
            i = int(np.argmax(bad))
            raise InputError(
                f"{path}, row {i + 2}: '{X[name].iloc[i]}' in column {name!r} is not a finite number; "
                f"fix it, or leave the column out with --drop {name}."
            )
        X[name] = number
    if k >= len(X):
        raise InputError(
            f"{path}: {len(X)} point(s) have at most {len(X) - 1} neighbours each, but -k is {k}; lower it."
        )
    points = X.to_numpy(dtype=float) if X.shape[1] == 2 else None
    return _Data(
        "knn", X, y, rows, path.name, points=points, columns=list(map(str, X.columns)), loss=f"{path}, column {label!r}"
    )


def _read_hypergraph(path: Path) -> Hypergraph:
    from ._formats import read_hmetis
    from ._hypergraph import Hypergraph

    name = path.name.lower().removesuffix(".gz")
    if not name.endswith((".csv", ".tsv")):
        return read_hmetis(path)
    from assay._core.files import read_table

    frame = read_table(path, what="list of memberships")
    if frame.shape[1] != 2:
        raise InputError(f"{path}: expected two columns (vertex, hyperedge), found {frame.shape[1]}.")
    import numpy as np

    gone = frame.isna().any(axis=1).to_numpy()
    if gone.any():
        raise InputError(f"{path}, row {int(np.argmax(gone)) + 2}: a vertex or hyperedge is missing.")
    try:
        return Hypergraph.from_bipartite(frame.iloc[:, 0].tolist(), frame.iloc[:, 1].tolist())
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _find(H: Hypergraph, around: str, path: Path) -> list[int]:
    import numpy as np

    at = {str(name): i for i, name in enumerate(H.node_names.tolist())}
    # a name may hold commas itself
    words = [around] if around in at else [word.strip() for word in around.split(",") if word.strip()]
    if not words:
        return [int(np.argmax(H.degree))]
    lost = next((word for word in words if word not in at), None)
    if lost is not None:
        names = list(at)
        raise InputError(
            f"--around: {path} has no vertex {lost!r}; its vertices are {names[0]} to {names[-1]} ({len(names):,})."
        )
    return [at[word] for word in words]


# ------------------------------------------------------------------------------------------------------------- working


def _fit(data: _Data, y: np.ndarray, options: dict[str, Any], run: Run) -> HypergraphLabelPropagation:
    from ._propagation import HypergraphLabelPropagation

    model = HypergraphLabelPropagation(hypergraph=data.kind, random_state=run.seed, device=run.device, **options)
    try:
        model.fit(data.X, y)
    except InputError as error:
        raise InputError(f"{data.loss}: {error}") from error
    if data.kind == "categorical" and model._encoder.dropped_:
        names = ", ".join(model._encoder.dropped_[:5])
        run.warn(f"left out because of missing values: {names} (--missing ignore_rows keeps what is there).")
    if model.relative_gap_ > options["tol"]:
        run.warn(
            f"the certified gap is {model.relative_gap_:.2g} of the objective after {model.n_iter_} steps, above the "
            f"{options['tol']:g} asked for; raise --max-iter."
        )
    return model


def _edges_table(model: HypergraphLabelPropagation, kind: str) -> pd.DataFrame:
    """Every hyperedge with its mean scores, and its pull: weight x size x lead of the mean over the other classes.

    Points name theirs by the row in the centre, counted from 1 as in the other tables.
    """
    import numpy as np
    import pandas as pd

    from ._propagation import edge_means

    H = model.hypergraph_
    mean = edge_means(H, model.scores_)
    names = [f"around row {h + 1}" for h in H.kept] if kind == "knn" else H.edge_names
    frame = pd.DataFrame({"hyperedge": names, "size": H.sizes, "weight": H.edge_weight})
    for k, name in enumerate(model.classes_):
        frame[f"mean_{name}"] = mean[:, k]
    for k, name in enumerate(model.classes_):
        lead = mean[:, k] - np.delete(mean, k, axis=1).max(axis=1)
        frame[f"pull_{name}"] = H.edge_weight * H.sizes * lead
    pulls = frame[[f"pull_{name}" for name in model.classes_]].to_numpy()
    frame.insert(3, "towards", model.classes_[pulls.argmax(axis=1)])
    frame.insert(4, "pull", pulls.max(axis=1))
    return frame.sort_values("pull", ascending=False, kind="stable", ignore_index=True)


def _history(model: HypergraphLabelPropagation, run: Run) -> None:
    h = model.history_
    for step, f, gap, seconds in zip(h["n_iter"], h["objective"], h["gap"], h["seconds"], strict=True):
        run.metric(int(step), objective=f, gap=gap, seconds=seconds)


def _show_model(data: _Data, model: HypergraphLabelPropagation, tol: float, run: Run) -> None:
    """Figures and tables that predict and evaluate share."""
    import numpy as np

    from ._report import CLASSES, plot_categories, plot_convergence, plot_points

    _history(model, run)
    edges = _edges_table(model, data.kind)
    run.figure(
        "categories",
        plot_categories(edges, list(model.classes_)),
        caption="The hyperedges that pull hardest towards each class"
        + (f" (the first {CLASSES} of {len(model.classes_)})." if len(model.classes_) > CLASSES else "."),
    )
    if data.points is not None:
        codes = np.searchsorted(model.classes_, model.transduction_)
        run.figure(
            "scores",
            plot_points(data.points, codes, model._codes >= 0, list(model.classes_), data.columns),
            caption="Predicted classes of the points.",
        )
    run.figure(
        "convergence",
        plot_convergence(model.history_, tol),
        caption="Objective, and the certified gap to the optimum: the right curve must reach the dashed line.",
    )
    run.table(
        "edges",
        edges,
        caption="Hyperedges by their pull towards a class.",
        columns=["hyperedge", "size", "weight", "towards", "pull"],
        rows=_SHOWN,
    )
    with run.artefact("scores.npy") as path:
        np.save(path, model.scores_)


def _report_prediction(data: _Data, model: HypergraphLabelPropagation, tol: float, suggest: int, run: Run) -> None:
    import numpy as np
    import pandas as pd

    best = model.scores_.max(axis=1)
    table = pd.DataFrame(
        {
            "row": data.names,
            "label": model.transduction_,
            "score": best,
            "margin": model.margin_,
            "unreached": model.unreached_,
            "given": data.labels != "",
        }
    )
    open_ = data.labels == ""
    counts = pd.Series(model.transduction_[open_]).value_counts()
    said = ", ".join(f"{n:,} {name}" for name, n in counts.items()) or "none were open"
    run.text(
        "In words",
        f"{int(open_.sum()):,} rows were predicted: {said}. Scores were read out from "
        f"{ {'vertex': 'the rows themselves', 'edge': 'their hyperedges', 'edge2': 'their hyperedges, twice'}[model.readout_] }; "
        f"the solution is within {100 * model.relative_gap_:.2g} % of the optimum, certified.",
    )  # fmt: skip
    if model.unreached_.any():
        run.warn(
            f"{int(model.unreached_.sum()):,} rows share no chain of hyperedges with a labelled one and got the commonest class."
        )
    run.table(
        "predictions",
        table,
        caption="A small margin is an uncertain row. Scores and margins have no unit: compare them within this run only.",
    )
    if suggest and open_.any():
        rows = model.suggest(suggest)
        run.table(
            "suggestions",
            table.iloc[rows][["row", "label", "margin"]],
            caption="Label these next: least margin, at most one per large hyperedge.",
        )
    _show_model(data, model, tol, run)
    run.result(
        rows=len(table),
        labelled=int((~open_).sum()),
        predicted={str(name): int(n) for name, n in counts.items()},
        readout=model.readout_,
        lam=model.lam_,
        objective=model.objective_,
        gap=model.gap_,
        relative_gap=model.relative_gap_,
        steps=model.n_iter_,
        solve_seconds=round(model.history_["seconds"][-1], 4),
        unreached=int(np.count_nonzero(model.unreached_)),
    )


def _evaluate(data: _Data, labelled: int, repeats: int, options: dict[str, Any], tol: float, run: Run) -> None:
    import numpy as np
    import pandas as pd

    from ._report import plot_confusion, plot_errors

    known = np.flatnonzero(data.labels != "")
    classes = sorted(set(data.labels[known]))
    if len(classes) < 2:
        raise InputError(f"{data.loss}: {len(classes)} class(es) among the labels; at least two are needed.")
    if not 2 <= labelled < len(known):
        raise InputError(
            f"--labelled must lie between 2 and {len(known) - 1} ({len(known)} labels are known), got {labelled}."
        )
    rng = np.random.default_rng(run.seed)
    rows = []
    confusion = np.zeros((len(classes), len(classes)), dtype=np.int64)
    first = None
    for repeat in run.progress(range(repeats), desc="repeats"):
        shown = _draw(known, data.labels, labelled, rng)
        y = np.full(len(data.labels), "", dtype=object)
        y[shown] = data.labels[shown]
        hidden = np.setdiff1d(known, shown)
        model = _fit(data, y, options, run)
        first = first or model
        truth = data.labels[hidden]
        guesses = {
            f"this method ({model.readout_ if options['readout'] != 'auto' else 'auto'})": model.transduction_[hidden]
        }
        guesses |= _rivals(model, data, y, hidden)
        for name, guess in guesses.items():
            rows.append({"repeat": repeat, "method": name, "error_percent": 100 * float((guess != truth).mean())})
        ours = next(iter(guesses.values()))
        np.add.at(confusion, (np.searchsorted(classes, truth), np.searchsorted(classes, ours)), 1)
        run.metric(repeat, error_percent=rows[-len(guesses)]["error_percent"])
    assert first is not None
    errors = pd.DataFrame(rows)
    mean = errors.groupby("method", sort=False)["error_percent"].agg(["mean", "std", "min", "max"]).reset_index()
    run.title = f"How well are the labels of {data.source} predicted?"
    run.subtitle = f"{len(data.labels):,} rows, {labelled} labels visible, {repeats} draws"
    ours = mean.iloc[0]
    best = mean.iloc[1:].nsmallest(1, "mean").iloc[0]
    run.text(
        "In words",
        f"With {labelled} labels the error on the hidden ones is {ours['mean']:.3g} % on average; the best rival, "
        f"{best['method']}, has {best['mean']:.3g} %. Errors are counted over hidden labels only.",
    )
    run.table("errors_by_method", mean, caption="Error on hidden labels in per cent over the draws.")
    run.table("errors", errors, show=False)
    run.figure("errors", plot_errors(errors), caption="Every draw of visible labels.")
    run.figure(
        "confusion",
        plot_confusion(confusion, classes, "all draws"),
        caption="Hidden labels: true against predicted class.",
    )
    table = pd.DataFrame(
        {
            "row": data.names,
            "label": first.transduction_,
            "score": first.scores_.max(axis=1),
            "margin": first.margin_,
            "unreached": first.unreached_,
            "given": first._codes >= 0,
            "truth": data.labels,
        }
    )
    run.table("predictions", table, caption="The first draw.", rows=8)
    _show_model(data, first, tol, run)
    run.result(
        error_percent=float(ours["mean"]),
        errors={str(m): round(float(v), 4) for m, v in zip(mean["method"], mean["mean"], strict=True)},
        readout=first.readout_,
        lam=first.lam_,
        objective=first.objective_,
        gap=first.gap_,
        relative_gap=first.relative_gap_,
        steps=first.n_iter_,
        solve_seconds=round(first.history_["seconds"][-1], 4),
        unreached=int(np.count_nonzero(first.unreached_)),
    )


def _draw(known: np.ndarray, labels: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Visible labels, uniformly; drawn again while all are of one class."""
    for _ in range(1000):
        shown = rng.choice(known, size=size, replace=False)
        if len(set(labels[shown])) > 1:
            return shown
    raise InputError(f"a thousand draws of {size} labels were of one class each; raise --labelled.")


def _rivals(model: HypergraphLabelPropagation, data: _Data, y: np.ndarray, hidden: np.ndarray) -> dict[str, np.ndarray]:
    """Predictions of the linear model on the same hypergraph and of logistic regression on the same columns."""
    import warnings

    import numpy as np
    from sklearn.linear_model import LogisticRegression

    from ._propagation import HypergraphLabelPropagation

    H = model.hypergraph_
    star = HypergraphLabelPropagation(cut="star", readout="vertex", lam=model.lam_).fit(H, y)
    features = data.X.to_numpy(dtype=float) if data.kind == "knn" else H._pattern().T.tocsr()
    if data.kind == "knn":
        spread = features.std(axis=0)
        features = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    seen = np.flatnonzero(y != "")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few rows in many columns: lbfgs may stop early, which its error shows
        line = LogisticRegression(max_iter=1000).fit(features[seen], y[seen].astype(str))
    columns = "the columns" if data.kind == "knn" else "incidences"
    return {
        "star (linear hypergraph model)": star.transduction_[hidden],
        f"logistic regression on {columns}": line.predict(features[hidden]).astype(object),
    }


def _cluster(H: Hypergraph, at: list[int], lam: float, tol: float, max_iter: int, run: Run) -> None:
    import numpy as np
    import pandas as pd

    from ._report import plot_conductance
    from ._sweep import HypergraphLocalClustering

    found = HypergraphLocalClustering(at, lam=lam, tol=tol, max_iter=max_iter, random_state=run.seed).fit(H)
    inside = found.labels_ == 1
    size = int(inside.sum())
    order = np.argsort(-found.scores_, kind="stable")
    order = order[found.scores_[order] > 0]
    table = pd.DataFrame(
        {
            "vertex": H.node_names[order].astype(str),  # names, though they may look like numbers
            "score": found.scores_[order],
            "inside": inside[order],
            "degree": H.degree[order],
        }
    )
    table["seed"] = np.isin(order, at)
    count = np.add.reduceat(inside[H.incidence.indices].astype(int), H.incidence.indptr[:-1].astype(int))
    touched = np.flatnonzero(count > 0)
    edges = pd.DataFrame(
        {
            "hyperedge": H.edge_names[touched].astype(str),
            "size": H.sizes[touched],
            "weight": H.edge_weight[touched],
            "inside": count[touched],
            "split": count[touched] < H.sizes[touched],
        }
    )
    seeds = ", ".join(str(v) for v in H.node_names[at][:5])
    run.text(
        "In words",
        f"Around {seeds} there is a cluster of {size:,} vertices with conductance {found.conductance_:.3g}: "
        f"{int(edges['split'].sum()):,} of the {len(edges):,} hyperedges that it touches also reach outside. "
        f"PageRank is positive on {len(table):,} vertices.",
    )
    lost = [str(H.node_names[v]) for v in dict.fromkeys(at) if not inside[v]]
    if lost:
        run.warn(
            f"outside the cluster lie {len(lost)} of the given vertices ({', '.join(lost[:5])}): they belong to another; "
            "ask for them alone."
        )
    gap = found.gap_ / max(abs(found.objective_), 1e-300)
    if gap > tol:
        run.warn(f"the certified gap is {gap:.2g} after {found.n_iter_} steps, above {tol:g}; raise --max-iter.")
    if len(found.profile_):
        run.figure(
            "conductance",
            plot_conductance(found.profile_, size, found.conductance_),
            caption="A deep valley is a cluster; a flat curve says that there is none at this scale.",
        )
    run.table("cluster", table, caption="Vertices by score.")
    run.table(
        "edges", edges.sort_values(["split", "size"], ascending=[False, False]), caption="Hyperedges of the cluster."
    )
    run.result(
        size=size,
        conductance=found.conductance_,
        reached=len(table),
        lam=lam,
        objective=found.objective_,
        gap=found.gap_,
        relative_gap=gap,
        steps=found.n_iter_,
    )
