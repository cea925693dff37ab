"""Semi-supervised classification: seeds, readouts, new rows, explanations, suggestions."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from assay._core.errors import InputError
from assay._core.seeds import as_rng

from ._hypergraph import Hypergraph, check_coordinates
from ._solve import Diffusion, _checked, check_options, resolve_lam, solve
from ._tables import CategoricalEncoder

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
READOUTS = ("vertex", "edge", "edge2")
HYPERGRAPHS = ("precomputed", "categorical", "knn")
# Below this many seeds one round of five folds is a coin toss; three rounds cost little where seeds are few.
_FEW_SEEDS = 60
_FOLDS = 5


def seed_matrix(codes: NDArray[np.int64], n_classes: int, lam: float, how: str) -> Array:
    """Right-hand side of one-vs-rest columns.

    "plain": +lam for the class, -lam for labelled vertices of others. "balanced": +lam L / (2 n_k) and
    -lam L / (2 (L - n_k)), so that every column sums to zero.
    """
    labelled = codes >= 0
    L = int(labelled.sum())
    s = np.zeros((len(codes), n_classes))
    for k in range(n_classes):
        mine = codes == k
        n_k = int(mine.sum())
        if how == "plain":
            s[labelled, k] = -lam
            s[mine, k] = lam
        else:
            s[labelled, k] = -lam * L / (2.0 * (L - n_k))
            s[mine, k] = lam * L / (2.0 * n_k)
    return s


def readout(H: Hypergraph, x: Array, how: str) -> Array:
    """Scores of the vertices themselves, or the mean over their hyperedges of the hyperedges' means, once or twice."""
    for _ in range({"vertex": 0, "edge": 1, "edge2": 2}[how]):
        x = _from_edges(H, edge_means(H, x))
    return x


def edge_means(H: Hypergraph, x: Array) -> Array:
    """Mean score of each hyperedge."""
    return np.asarray(H._pattern() @ x) / H.sizes[:, None]


def _from_edges(H: Hypergraph, mean: Array) -> Array:
    pattern = H._pattern()
    total = np.asarray(pattern.T @ (H.edge_weight[:, None] * mean))
    d = np.asarray(pattern.T @ H.edge_weight)[:, None]
    return np.divide(total, d, out=np.zeros_like(total), where=d > 0)


def split_labels(y: Any) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Codes (-1 unlabelled) and sorted classes of labels in which -1, None, NaN or "" mean unlabelled."""
    declared: list[Any] = []
    if hasattr(y, "dtype") and hasattr(getattr(y, "dtype", None), "categories"):
        declared = list(y.dtype.categories)
    values = np.asarray(y, dtype=object) if declared or isinstance(y, (list, tuple)) else np.asarray(y)
    if values.dtype == object and values.ndim == 1 and all(_is_number(v) for v in values):
        values = np.array(values.tolist())  # numbers that came as objects
    if values.ndim == 2 and values.shape[1] == 1:
        from sklearn.exceptions import DataConversionWarning

        warnings.warn("A column-vector y was passed when a 1d array was expected.", DataConversionWarning, stacklevel=3)
        values = values[:, 0]
    if values.ndim != 1:
        raise InputError(f"y must be one-dimensional (a label per vertex), got shape {values.shape}.")
    if values.dtype == object:
        minus = np.array([_is_number(v) and v == -1 for v in values], dtype=bool)
        gone = np.array([v is None or v != v or (isinstance(v, str) and not v.strip()) for v in values], dtype=bool)
    elif values.dtype.kind == "f":
        minus, gone = values == -1, np.isnan(values)
        if np.isinf(values).any():
            raise InputError("y holds an infinite label.")
        known = values[~minus & ~gone]
        if (known != np.floor(known)).any():
            raise InputError("Unknown label type: y holds fractional numbers; labels must be classes, not quantities.")
    elif values.dtype.kind in "iub":
        minus, gone = values == -1, np.zeros(len(values), dtype=bool)
    elif values.dtype.kind in "US":
        minus, gone = np.zeros(len(values), dtype=bool), np.char.strip(values) == values.dtype.type("")
    else:
        raise InputError(f"Unknown label type: y of type {values.dtype}; use whole numbers or text.")
    if minus.any() and gone.any():
        raise InputError(
            "y holds both -1 and empty labels (NaN, None or ''): all of them mean 'unlabelled', so if -1 is a class, "
            "rename it; otherwise use one mark."
        )
    known = ~(minus | gone)
    if not known.any():
        raise InputError("y holds no labelled vertex: every label is -1 or empty.")
    labels = values[known]
    if labels.dtype == object and len({isinstance(v, str) for v in labels}) > 1:
        raise InputError("y mixes text and numbers; use one type of label.")
    try:
        classes, inverse = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise InputError("y holds labels that cannot be compared; use text or whole numbers.") from error
    lost = [c for c in declared if c not in set(classes.tolist())]
    if lost:
        raise InputError(
            f"no vertex is labelled with the declared class(es) {', '.join(map(str, lost))}; label one each."
        )
    if len(classes) < 2:
        hint = " (-1 means unlabelled, so it cannot be a class)" if minus.any() else ""
        raise InputError(f"all labels are of one class, {str(classes[0])!r}{hint}; at least two classes are needed.")
    codes = np.full(len(values), -1, dtype=np.int64)
    codes[known] = inverse
    return codes, classes


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


class HypergraphLabelPropagation(ClassifierMixin, BaseEstimator):
    """Classify vertices from a few labels by diffusion over hyperedges.

    One resolvent per class, min U(x) + lam/2 x^T D x - s_k^T x, then the largest readout.

    Parameters
    ----------
    lam : "auto" or float, default "auto"
        Weight of the teleport; "auto" is 1, and 0.1 for ``hypergraph="knn"``.
    cut : str, CardinalityCut or SubmodularCut, default "standard"
        As for `potential`.
    seeds : {"balanced", "plain"}, default "balanced"
        Right-hand side: "plain" is +-lam as in the paper; "balanced" gives the two sides of each column equal weight.
    readout : {"auto", "vertex", "edge", "edge2"}, default "auto"
        Scores of the vertices as they are (paper), or averaged over their hyperedges once or twice; "auto" takes the one
        with fewest errors in cross-validation on the seeds.
    solver : str, default "auto"
        As for `hypergraph_pagerank`.
    schedule : str, default "strong"
        As for `hypergraph_pagerank`.
    step : float, default 0.5
        First step of Algorithm 1.
    max_iter : int, default 100
        Steps at most.
    tol : float or None, default 1e-2
        Relative certified gap at which to stop.
    hypergraph : {"precomputed", "categorical", "knn"}, default "precomputed"
        What X is: a `Hypergraph` or an incidence matrix with a row per vertex; a table with one hyperedge per (column,
        value); points with one hyperedge per point and its neighbours.
    n_neighbors : int, default 5
        Neighbours of a point, for "knn".
    n_bins : int, default 10
        Quantile bins of numeric columns, for "categorical".
    missing : {"drop_column", "ignore_rows"}, default "drop_column"
        For "categorical", as for `CategoricalEncoder`.
    warm_start : bool, default False
        Start from the solution of the last fit where the sizes agree: label a few more rows and continue.
    random_state : int or Generator, default 0
        Folds of the cross-validation, order of the dual solver's blocks.
    device : str, default "cpu"
        As for `hypergraph_pagerank`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Sorted classes.
    transduction_ : ndarray of shape (n_nodes,)
        Class of every vertex; seeds keep theirs, unreached vertices get the commonest class of the seeds.
    scores_ : ndarray of shape (n_nodes, n_classes)
        Readout.
    diffusion_ : ndarray of shape (n_nodes, n_classes)
        Solution before the readout.
    label_distributions_ : ndarray of shape (n_nodes, n_classes)
        Softmax of the scores over their spread: a ranking on a common scale, not calibrated probabilities.
    unreached_ : ndarray of bool of shape (n_nodes,)
        Vertices without a hyperedge or in a component without seeds.
    readout_ : str
        The readout used.
    cv_errors_ : dict
        Errors per readout in the cross-validation (empty unless "auto").
    n_iter_, objective_, gap_ : int, float, float
        Steps; objective and certified gap, summed over the columns solved.
    history_ : dict
        n_iter, objective, gap, seconds of each check, summed over columns.
    hypergraph_ : Hypergraph
        The hypergraph.
    lam_ : float
        The teleport weight used.

    Notes
    -----
    1. With two classes the second column is minus the first, so one is solved (for symmetric cuts).
    2. A new row joins the hyperedges of its values (for "knn": its own, and those centred at its neighbours) and
       minimises its own one-dimensional problem; what was fitted stays as it is. Cuts "standard" and "star".

    References
    ----------
    K. Ameranis, A. F. DePavia, L. Orecchia, E. Tani. Fast algorithms for hypergraph PageRank with applications to
    semi-supervised learning. ICML 2024, PMLR 235:1306-1330.

    Examples
    --------
    >>> import pandas as pd
    >>> from assay.graphs.hypergraph_diffusion import HypergraphLabelPropagation
    >>> table = pd.DataFrame({"cap": list("ffbbfb"), "odor": list("nnaana"), "ring": list("ppopoo")})
    >>> y = ["edible", "", "poisonous", "", "", ""]
    >>> model = HypergraphLabelPropagation(hypergraph="categorical").fit(table, y)
    >>> model.transduction_.tolist()
    ['edible', 'edible', 'poisonous', 'poisonous', 'edible', 'poisonous']
    >>> model.predict(pd.DataFrame({"cap": ["b"], "odor": ["a"], "ring": ["p"]})).tolist()
    ['poisonous']
    """

    def __init__(
        self,
        lam: str | float = "auto",
        cut: Any = "standard",
        seeds: str = "balanced",
        readout: str = "auto",
        solver: str = "auto",
        schedule: str = "strong",
        step: float = 0.5,
        max_iter: int = 100,
        tol: float | None = 1e-2,
        hypergraph: str = "precomputed",
        n_neighbors: int = 5,
        n_bins: int = 10,
        missing: str = "drop_column",
        warm_start: bool = False,
        random_state: Any = 0,
        device: str = "cpu",
    ) -> None:
        self.lam = lam
        self.cut = cut
        self.seeds = seeds
        self.readout = readout
        self.solver = solver
        self.schedule = schedule
        self.step = step
        self.max_iter = max_iter
        self.tol = tol
        self.hypergraph = hypergraph
        self.n_neighbors = n_neighbors
        self.n_bins = n_bins
        self.missing = missing
        self.warm_start = warm_start
        self.random_state = random_state
        self.device = device

    # ------------------------------------------------------------------------------------------------------- fit

    def fit(self, X: Any, y: Any) -> HypergraphLabelPropagation:
        """Diffuse the labels.

        Parameters
        ----------
        X : Hypergraph, matrix, DataFrame or array
            See `hypergraph`; a matrix has a row per vertex and a column per hyperedge.
        y : array-like of shape (n_nodes,)
            Labels; -1, None, NaN or "" is unlabelled.

        Returns
        -------
        self
        """
        self._check()
        H, y = self._build(X, y)
        codes, self.classes_ = split_labels(y)
        if len(codes) != H.n_nodes:
            raise InputError(f"y holds {len(codes)} labels for {H.n_nodes} vertices.")
        warm = getattr(self, "_state", None) if self.warm_start else None
        self.hypergraph_ = H
        automatic = 0.1 if self.hypergraph == "knn" else 1.0
        self.lam_ = automatic if isinstance(self.lam, str) else resolve_lam(self.lam, None)
        rng = as_rng(self.random_state)
        order_seed = int(rng.integers(2**31))
        self.cv_errors_: dict[str, int] = {}
        self.readout_ = self.readout
        if self.readout == "auto":
            self.readout_ = self._choose_readout(codes, rng, order_seed)
        x, found = self._diffuse(codes, order_seed, warm)
        self._state = found.state
        self.diffusion_ = x
        self.scores_ = readout(H, x, self.readout_)
        labelled = codes >= 0
        reached = np.isin(H.components, H.components[labelled]) & ~H.isolated
        self.unreached_ = ~reached & ~labelled
        self.scores_[self.unreached_] = 0.0
        self._prior = np.bincount(codes[labelled], minlength=len(self.classes_)) / labelled.sum()
        spread = float(self.scores_[reached].std()) if reached.any() else 0.0
        self._spread = spread if spread > 0 else 1.0
        self.label_distributions_ = self._softmax(self.scores_, self.unreached_)
        predicted = self.scores_.argmax(axis=1)
        predicted[self.unreached_] = int(self._prior.argmax())
        predicted[labelled] = codes[labelled]
        self.transduction_ = self.classes_[predicted]
        self._codes = codes
        self.n_iter_ = found.n_iter
        self.objective_, self.gap_ = float(found.objective.sum()), float(found.gap.sum())
        self.relative_gap_ = float(found.relative_gap.max())
        self.history_ = {k: [float(np.sum(v)) for v in found.history[k]] for k in ("objective", "gap", "seconds")}
        self.history_ = {"n_iter": list(found.history["n_iter"])} | self.history_
        return self

    def _check(self) -> None:
        check_options(self.cut, self.solver, self.schedule, self.step, self.max_iter, True, self.tol)
        for name, value, known in (
            ("seeds", self.seeds, ("balanced", "plain")),
            ("readout", self.readout, ("auto", *READOUTS)),
            ("hypergraph", self.hypergraph, HYPERGRAPHS),
        ):
            if not isinstance(value, str) or value not in known:
                raise InputError(f"{name} must be one of {', '.join(known)}, got {value!r}.")
        if isinstance(self.lam, str) and self.lam != "auto":
            raise InputError(f"lam must be 'auto' or a positive number, got {self.lam!r}.")

    def _build(self, X: Any, y: Any) -> tuple[Hypergraph, Any]:
        if y is None:
            raise InputError("requires y to be passed, but the target y is None: give labels, -1 where unknown.")
        if self.hypergraph == "knn":
            X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
            if (
                isinstance(self.n_neighbors, bool)
                or not isinstance(self.n_neighbors, (int, np.integer))
                or self.n_neighbors < 1
            ):
                raise InputError(f"n_neighbors must be a whole number of at least 1, got {self.n_neighbors!r}.")
            from sklearn.neighbors import NearestNeighbors

            check_coordinates(X)
            k = min(int(self.n_neighbors), len(X) - 1)
            if k < self.n_neighbors:
                warnings.warn(
                    f"n_neighbors={self.n_neighbors}, but {len(X)} points have only {k} neighbours each: {k} are used.",
                    UserWarning,
                    stacklevel=3,
                )
            H = Hypergraph.from_knn(X, k)
            self._near = NearestNeighbors(n_neighbors=k).fit(X)
            return H, y
        if self.hypergraph == "categorical":
            self._encoder = CategoricalEncoder(n_bins=self.n_bins, missing=self.missing).fit(X)
            return self._encoder.hypergraph_, y
        if isinstance(X, Hypergraph):
            return X, y
        if not (sp.issparse(X) or hasattr(X, "shape") or isinstance(X, (list, tuple))):
            raise InputError(
                f"X must be a Hypergraph or an incidence matrix (vertices x hyperedges), got {type(X).__name__}."
            )
        return Hypergraph(sp.coo_array(X).T if sp.issparse(X) else np.asarray(X).T, drop_small="quiet"), y

    def _diffuse(
        self, codes: NDArray[np.int64], order_seed: int, warm: dict[str, Array] | None = None
    ) -> tuple[Array, Diffusion]:
        """Scores of every class and the solve behind them; `codes` may lack labels that a fold hides, not classes."""
        c = len(self.classes_)
        s = seed_matrix(codes, c, self.lam_, self.seeds)
        mirrored = c == 2 and isinstance(self.cut, str)
        s = np.ascontiguousarray(s[:, :1]) if mirrored else s
        if self.device != "cpu":
            from ._torch import subgradient_on_device

            found = subgradient_on_device(
                self.hypergraph_, s, self.lam_, self.cut, self.solver, self.schedule, self.step, self.max_iter, True,
                self.tol, self.device,
            )  # fmt: skip
            return (np.hstack((found.x, -found.x)) if mirrored else found.x), found
        found = solve(
            self.hypergraph_,
            s,
            self.lam_,
            cut=self.cut,
            solver=self.solver,
            schedule=self.schedule,
            step=self.step,
            max_iter=self.max_iter,
            tol=self.tol,
            random_state=order_seed,
            warm=warm,
        )
        return (np.hstack((found.x, -found.x)) if mirrored else found.x), found

    def _choose_readout(self, codes: NDArray[np.int64], rng: np.random.Generator, order_seed: int) -> str:
        labelled = np.flatnonzero(codes >= 0)
        errors = dict.fromkeys(READOUTS, 0)
        for _ in range(3 if len(labelled) < _FEW_SEEDS else 1):
            mixed = rng.permutation(labelled)
            for fold in range(_FOLDS):
                held = mixed[fold::_FOLDS]
                left = np.bincount(codes[labelled], minlength=len(self.classes_))
                hidden = []
                for i in held:  # a class keeps at least one seed
                    if left[codes[i]] > 1:
                        left[codes[i]] -= 1
                        hidden.append(i)
                if not hidden:
                    continue
                part = codes.copy()
                part[hidden] = -1
                x, _ = self._diffuse(part, order_seed)
                for how in READOUTS:
                    guess = readout(self.hypergraph_, x, how)[hidden].argmax(axis=1)
                    errors[how] += int((guess != codes[hidden]).sum())
        self.cv_errors_ = errors
        return min(READOUTS, key=lambda how: (errors[how], READOUTS.index(how)))

    def _softmax(self, scores: Array, nothing: NDArray[np.bool_]) -> Array:
        z = scores / self._spread
        z = np.exp(z - z.max(axis=1, keepdims=True))
        out = z / z.sum(axis=1, keepdims=True)
        out[nothing] = self._prior
        return out

    # --------------------------------------------------------------------------------------------------- new rows

    def predict(self, X: Any) -> NDArray[Any]:
        """Classes of new rows, without solving anew.

        Parameters
        ----------
        X : DataFrame, array or matrix
            As in `fit`: rows of the table, points, or rows of the incidence matrix over the same hyperedges.

        Returns
        -------
        ndarray of shape (n_rows,)
            Rows that join no hyperedge get the commonest class of the seeds.
        """
        probability = self.predict_proba(X)
        return self.classes_[probability.argmax(axis=1)]

    def predict_proba(self, X: Any) -> Array:
        """Uncalibrated distribution of new rows: softmax of their scores, as `label_distributions_`.

        Parameters
        ----------
        X : DataFrame, array or matrix
            As for `predict`.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
        """
        check_is_fitted(self, "transduction_")
        scores, nothing = self._new_scores(self._join(X))
        return self._softmax(scores, nothing)

    def _join(self, X: Any) -> sp.csr_array:
        """Hyperedges of new rows, by row."""
        H = self.hypergraph_
        if self.hypergraph == "categorical":
            return self._encoder.transform(X)
        if self.hypergraph == "knn":
            points = validate_data(self, X, dtype=np.float64, reset=False)
            check_coordinates(points)
            near = self._near.kneighbors(points, return_distance=False)
            # its own hyperedge holds its neighbours; as a member it joins those centred at them
            return sp.csr_array(
                (np.ones(near.size), near.ravel(), np.arange(len(points) + 1) * near.shape[1]),
                shape=(len(points), H.n_edges),
            )
        if isinstance(X, Hypergraph):
            raise InputError(
                "predict takes rows of an incidence matrix; transduction_ holds the classes of the hypergraph."
            )
        try:
            J = sp.csr_array(X, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError("predict takes rows of an incidence matrix of numbers (rows x hyperedges).") from error
        if J.ndim != 2 or J.shape[1] != H.n_given:
            raise InputError(f"X must have a column per hyperedge of the fit ({H.n_given}), got shape {J.shape}.")
        if not np.isfinite(J.data).all() or (J.data < 0).any():
            raise InputError(
                "X holds entries that are negative, NaN or infinite; 1 where a row joins a hyperedge, else 0."
            )
        J = sp.csr_array(J[:, H.kept])
        J.eliminate_zeros()
        return J

    def _new_scores(self, J: sp.csr_array) -> tuple[Array, NDArray[np.bool_]]:
        H, x = self.hypergraph_, self.diffusion_
        n_new = J.shape[0]
        row = np.repeat(np.arange(n_new), np.diff(J.indptr))
        h = J.indices
        w = H.edge_weight[h]
        d = np.bincount(row, weights=w, minlength=n_new)
        nothing = d == 0
        if self.readout_ != "vertex":
            inner = x if self.readout_ == "edge" else readout(H, x, "edge")
            mean = edge_means(H, inner)[h]
            total = np.column_stack([np.bincount(row, weights=w * m, minlength=n_new) for m in mean.T])
            return np.divide(total, d[:, None], out=np.zeros_like(total), where=d[:, None] > 0), nothing
        cut = self.cut if isinstance(self.cut, str) else "other"
        scores = np.zeros((n_new, x.shape[1]))
        if cut == "star":
            mean, size = edge_means(H, x)[h], H.sizes[h]
            pull = w * size / (size + 1.0)
            below = np.bincount(row, weights=pull, minlength=n_new) + self.lam_ * d
            for k in range(x.shape[1]):
                top = np.bincount(row, weights=pull * mean[:, k], minlength=n_new)
                np.divide(top, below, out=scores[:, k], where=below > 0)
            return scores, nothing
        if cut != "standard":
            raise InputError(f"new rows with the readout 'vertex' need cut 'standard' or 'star', not {self.cut!r}.")
        start = H.incidence.indptr[:-1].astype(np.intp)
        member = x[H.incidence.indices]
        high_of, low_of = np.maximum.reduceat(member, start, axis=0), np.minimum.reduceat(member, start, axis=0)
        for k in range(x.shape[1]):
            scores[:, k] = _place(row, w, high_of[h, k], low_of[h, k], self.lam_ * d)
        return scores, nothing

    # ------------------------------------------------------------------------------------------- what else it says

    def explain(self, i: int) -> pd.DataFrame:
        """Hyperedges that decided vertex i; see `explain`.

        Parameters
        ----------
        i : int
            Row number.

        Returns
        -------
        DataFrame
            One row per hyperedge of i, the strongest pull towards the predicted class first.
        """
        check_is_fitted(self, "transduction_")
        _check_row(i, self.hypergraph_)
        k = int(np.flatnonzero(self.classes_ == self.transduction_[i])[0])
        return explain(self.hypergraph_, self.diffusion_[:, k], i)

    def suggest(self, k: int = 10) -> NDArray[np.int64]:
        """Vertices whose label would help most: least margin first, at most one per large hyperedge.

        Parameters
        ----------
        k : int, default 10
            How many; fewer come back where hyperedges run out.

        Returns
        -------
        ndarray of int
            Row numbers of unlabelled vertices; unreached ones (margin 0) come first, one per hyperedge.

        Notes
        -----
        1. The large hyperedge of a vertex is the largest of its hyperedges that hold at most half of the vertices: one
           that holds nearly all of them (a column with a single value) says nothing about where a label would reach.
        """
        check_is_fitted(self, "transduction_")
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
            raise InputError(f"k must be a whole number of at least 1, got {k!r}.")
        H = self.hypergraph_
        order = np.argsort(self.margin_, kind="stable")
        T = H.by_node
        # -1 for isolated vertices, which help nobody
        biggest = np.full(H.n_nodes, -1)
        has = np.diff(T.indptr) > 0
        size = np.where(2 * H.sizes <= H.n_nodes, H.sizes, -H.sizes)[T.indices]
        at = np.lexsort((T.indices, -size, np.repeat(np.arange(H.n_nodes), np.diff(T.indptr))))
        biggest[has] = T.indices[at[T.indptr[:-1][has]]]
        chosen: list[int] = []
        taken: set[int] = set()
        for i in order.tolist():
            if self._codes[i] < 0 and biggest[i] >= 0 and biggest[i] not in taken:
                taken.add(int(biggest[i]))
                chosen.append(i)
                if len(chosen) == k:
                    break
        return np.array(chosen, dtype=np.int64)

    @property
    def margin_(self) -> Array:
        """Largest minus second largest score of every vertex."""
        top = np.partition(self.scores_, -2, axis=1)
        return np.abs(top[:, -1] - top[:, -2])  # mirrored columns give -0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.hypergraph == "precomputed"
        return tags


def _place(row: NDArray[np.intp], w: Array, high: Array, low: Array, pull: NDArray[Any]) -> Array:
    """Minimiser over z of 1/2 sum_h w_h (max(high, z) - min(low, z))^2 + pull/2 z^2 of every row, by bisection.

    The derivative is increasing: 0 inside [low, high], and w times the whole extent outside.
    """
    n = len(pull)
    left, right = np.zeros(n), np.zeros(n)
    np.minimum.at(left, row, low)
    np.maximum.at(right, row, high)
    for _ in range(60):  # halves the interval to the last bit of a double
        z = 0.5 * (left + right)
        at = z[row]
        force = np.where(at > high, w * (at - low), np.where(at < low, w * (at - high), 0.0))
        slope = np.bincount(row, weights=force, minlength=n) + pull * z
        left, right = np.where(slope < 0, z, left), np.where(slope < 0, right, z)
    return 0.5 * (left + right)


def explain(H: Hypergraph, x: Any, i: int) -> pd.DataFrame:
    """Hyperedges of a vertex with the scores inside: which groups decided it.

    Parameters
    ----------
    H : Hypergraph
        The hypergraph.
    x : array-like of shape (n_nodes,)
        Scores, for instance a column of `diffusion_`.
    i : int
        Row number of the vertex.

    Returns
    -------
    DataFrame
        hyperedge, size, weight, min, mean, max of the scores inside; the largest weight times mean first.

    Raises
    ------
    InputError
        Wrong shape or row number.

    Examples
    --------
    >>> from assay.graphs.hypergraph_diffusion import Hypergraph, explain
    >>> H = Hypergraph.from_edges([["ann", "bob"], ["bob", "cid"]], edge_names=["tea", "chess"])
    >>> explain(H, [1.0, 0.5, -1.0], 1)["hyperedge"].tolist()
    ['tea', 'chess']
    """
    import pandas as pd

    _checked(H)
    scores = np.asarray(x, dtype=np.float64)
    if scores.shape != (H.n_nodes,):
        raise InputError(f"x must hold one score per vertex ({H.n_nodes}), got shape {scores.shape}.")
    _check_row(i, H)
    T = H.by_node
    edges = T.indices[T.indptr[i] : T.indptr[i + 1]]
    inside = [scores[H.members(h)] for h in edges]
    frame = pd.DataFrame(
        {
            "hyperedge": H.edge_names[edges],
            "size": H.sizes[edges],
            "weight": H.edge_weight[edges],
            "min": [float(v.min()) for v in inside],
            "mean": [float(v.mean()) for v in inside],
            "max": [float(v.max()) for v in inside],
        }
    )
    order = np.argsort(-(frame["weight"] * frame["mean"]).to_numpy(), kind="stable")
    return frame.iloc[order].reset_index(drop=True)


def _check_row(i: Any, H: Hypergraph) -> None:
    if isinstance(i, bool) or not isinstance(i, (int, np.integer)) or not 0 <= i < H.n_nodes:
        raise InputError(f"i must be a row number from 0 to {H.n_nodes - 1}, got {i!r}.")
