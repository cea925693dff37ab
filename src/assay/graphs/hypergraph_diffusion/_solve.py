"""Hypergraph PageRank, Laplacian systems and heat diffusion, each answer with a certified gap."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay._core.errors import InputError
from assay._core.seeds import as_rng
from assay._shared.accel import numba_enabled

from . import _kernels as kernels
from ._cuts import CUTS, Cut, _Star, columns, deltas, evaluator, inverse_degree
from ._hypergraph import Hypergraph, locality_order, said
from ._qp import DENSE_NODES, interior_point

Array = NDArray[np.float64]
SOLVERS = ("auto", "subgradient", "dual", "qp", "cg")
SCHEDULES = ("strong", "paper", "sqrt")
# The certificate costs about as much as a step; every ten steps it is a tenth of the time.
_CHECK_EVERY = 10
# Steps that a warm start counts as done: it keeps a good average from being washed out by the first long steps.
_WARM = 10
# The singular system is regularised by this much of D: 1e-6 keeps six digits of the solution.
_LAPLACIAN_LAM = 1e-6
# Incidences up to which block ascent may run as plain Python: tens of milliseconds per sweep.
_PYTHON_NNZ = 20_000
# The proximal steps of a Laplacian system: large enough for fast resolvents, small enough for few of them.
_PROXIMAL_LAM = 0.01
_PROXIMAL_TOL = 1e-8
# From here on the scores of six columns leave the second-level cache; renumbering costs about ten steps, once.
_REORDER_NODES = 50_000
# f within 1e-200 .. 1e200 leaves room for sums and for relative gaps of 1e-16 below.
_DECADES = 200.0
_QP_NODES = DENSE_NODES
# Beyond, Laplacian systems factor a sparse matrix where some order of the vertices keeps it near its diagonal: two
# million entries are about four seconds. Only laplacian_solve asks for it.
_SPARSE_QP, _SPARSE_ENTRIES = "sparse qp", 2_000_000


@dataclass
class Diffusion:
    """Solution of one resolvent with its certificate: per column objective, lower bound and gap."""

    x: Array
    objective: Array
    lower_bound: Array
    n_iter: int
    history: dict[str, list[Any]]
    state: dict[str, Array] = field(default_factory=dict)

    @property
    def gap(self) -> Array:
        """objective - lower bound, never below 0 (rounding at convergence)."""
        return np.maximum(self.objective - self.lower_bound, 0.0)

    @property
    def relative_gap(self) -> Array:
        return relative(self.gap, self.objective)


def relative(gap: Array, objective: Array) -> Array:
    """gap / |objective|: at least the error in units of |f*|, since f* <= f <= 0; infinite while f > 0."""
    out = np.full(gap.shape, np.inf)
    np.divide(gap, -objective, out=out, where=objective < 0)
    out[(objective == 0) & (gap == 0)] = 0.0
    return out


class _Problem:
    """f(x) = U(x) + lam/2 x^T D x - s^T x with everything that its evaluation needs."""

    def __init__(self, H: Hypergraph, s: Array, lam: float, cut: Cut) -> None:
        self.H, self.lam, self.cut = H, lam, cut
        self.d, self.inverse = H.degree[:, None], inverse_degree(H)[:, None]
        # an isolated vertex without weight keeps score 0
        self.s = s if (H.degree > 0).all() else np.where(self.d > 0, s, 0.0)
        self.target = self.s * self.inverse
        _check_scale(self.s, self.target, lam)
        self.evaluate = evaluator(H, cut)
        self.w = H.edge_weight[:, None]

    def objective(self, x: Array, delta: Array | None = None, buffer: Array | None = None) -> Array:
        if delta is None:
            delta = deltas(self.H, x, self.evaluate, self.cut, buffer)
        quadratic = 0.5 * self.lam * np.einsum("ik,ik,i->k", x, x, self.H.degree)
        return (
            0.5 * np.einsum("hk,hk,h->k", delta, delta, self.H.edge_weight)
            + quadratic
            - np.einsum("ik,ik->k", self.s, x)
        )

    def bound(self, a: Array, phi: Array, buffer: Array | None = None) -> Array:
        """Lower bound of f* from any average of (D^-1 g, w delta) over points: weak duality."""
        rest = np.subtract(self.target, a, out=buffer)
        return -0.5 / self.lam * np.einsum("ik,ik,i->k", rest, rest, self.H.degree) - 0.5 * np.einsum(
            "hk,hk,h->k", phi, phi, 1.0 / self.H.edge_weight
        )


def _check_scale(s: Array, target: Array, lam: float) -> None:
    """Refuse s and lam so large or small that f leaves the range of doubles: its gap would come out as 0 or NaN.

    f* lies between -|s|^2 / (2 lam) and about -|s|^2 / (2 (2 + lam)), in the norm of D^-1.
    """
    top = np.abs(s).max(axis=0)
    live = top > 0
    if not live.any():
        return
    with np.errstate(over="ignore", under="ignore"):
        # log10 |s|^2, the largest entries taken out so that nothing overflows on the way
        unit = np.abs(target).max(axis=0)[live]
        inner = (np.abs(s[:, live]) / top[live] * (np.abs(target[:, live]) / unit)).sum(axis=0)
        size = np.log10(top[live]) + np.log10(unit) + np.log10(inner)
    if (size - np.log10(lam) > _DECADES).any() or (size - np.log10(2.0 + lam) < -_DECADES).any():
        raise InputError(
            f"s of size {top[live].max():.3g} with lam = {lam:g} over- or underflows; scale s (the solution scales with it) "
            "or take another lam."
        )


def solve(
    H: Hypergraph,
    s: Array,
    lam: float,
    *,
    cut: Cut = "standard",
    solver: str = "auto",
    schedule: str = "strong",
    step: float = 0.5,
    max_iter: int = 100,
    average: bool | str = True,
    tol: float | None = 1e-2,
    random_state: Any = 0,
    warm: dict[str, Array] | None = None,
    reorder: bool = True,
) -> Diffusion:
    """Minimise f for checked input: s of shape (n, c), lam > 0."""
    if isinstance(cut, str) and cut in ("standard", "node_weighted") and H.n_nodes >= _REORDER_NODES and reorder:
        work, order = H.in_locality_order
        found = solve(
            work, s[order], lam, cut=cut, solver=solver, schedule=schedule, step=step, max_iter=max_iter,
            average=average, tol=tol, random_state=random_state, warm=warm, reorder=False,
        )  # fmt: skip
        x = np.empty_like(found.x)
        x[order] = found.x
        return replace(found, x=x)
    chosen = _choose(H, cut, solver, tol)
    problem = _Problem(H, s, lam, cut)
    if chosen == "dual":
        return _dual(problem, max_iter, tol, as_rng(random_state), warm)
    if chosen == "cg":
        return _conjugate_gradients(problem, max_iter, tol, warm)
    if chosen == "qp":
        began = time.perf_counter()
        try:
            x, a, phi, n_iter = interior_point(H, problem.s, lam)
        except (np.linalg.LinAlgError, RuntimeError) as error:  # dense and sparse say it differently
            raise InputError(
                f"solver='qp' cannot factor this system (lam = {lam:g}, weights from {H.edge_weight.min():.3g} to "
                f"{H.edge_weight.max():.3g}); use solver='dual', a larger lam, or weights closer to each other."
            ) from error
        f, bound = problem.objective(x), problem.bound(a, phi)
        history: dict[str, list[Any]] = {
            "n_iter": [n_iter],
            "objective": [f],
            "gap": [f - bound],
            "seconds": [time.perf_counter() - began],
        }
        return Diffusion(x, f, bound, n_iter, history)
    return _subgradient(problem, schedule, step, max_iter, average, tol, warm)


def _choose(H: Hypergraph, cut: Cut, solver: str, tol: float | None) -> str:
    if solver == "auto":
        if isinstance(cut, str) and cut == "star":
            return "cg"
        # block ascent reached every certified gap sooner than averaging: 2 to 40 times on digits, mushroom, 20news, dblp
        exact = isinstance(cut, str) and cut == "standard" and tol is not None
        # without numba its loop is plain Python, and the vectorised steps are the faster ones
        exact = exact and (numba_enabled() or H.incidence.nnz <= _PYTHON_NNZ)
        return "dual" if exact else "subgradient"
    if solver == _SPARSE_QP:
        return "qp"
    if solver in ("dual", "qp") and not (isinstance(cut, str) and cut == "standard"):
        raise InputError(f"solver={solver!r} is for cut='standard' only; use solver='auto'.")
    if solver == "cg" and not (isinstance(cut, str) and cut == "star"):
        raise InputError("solver='cg' is for cut='star' only; use solver='auto'.")
    if solver == "qp" and H.n_nodes > _QP_NODES:
        raise InputError(
            f"solver='qp' takes up to {_QP_NODES} vertices, this hypergraph has {H.n_nodes}; use solver='dual'."
        )
    return solver


def _subgradient(
    p: _Problem,
    schedule: str,
    step: float,
    max_iter: int,
    average: bool | str,
    tol: float | None,
    warm: dict[str, Array] | None,
    every: int = _CHECK_EVERY,
) -> Diffusion:
    """Algorithm 1: degree-preconditioned subgradient steps, weighted averages of points and subgradients."""
    lam, shape = p.lam, p.s.shape
    x = np.zeros(shape)
    mean_x, mean_a = np.zeros(shape), np.zeros(shape)
    mean_phi = np.zeros((p.H.n_edges, shape[1]))
    a, delta = np.empty(shape), np.empty_like(mean_phi)
    done = 0
    if warm is not None and "a" in warm and warm["x"].shape == shape and warm["phi"].shape == mean_phi.shape:
        x, mean_x = warm["x"].copy(), warm["x"].copy()
        mean_a, mean_phi = warm["a"].copy(), warm["phi"].copy()
        done = _WARM
    lower = np.full(shape[1], -np.inf)
    best_f, best_x = np.full(shape[1], np.inf), np.zeros(shape if average == "best" else (0, shape[1]))
    scratch = np.empty(shape)
    history: dict[str, list[Any]] = {"n_iter": [], "objective": [], "gap": [], "seconds": []}
    began = time.perf_counter()
    point, f = x, np.zeros(shape[1])
    t = 0
    for t in range(1, max_iter + 1):
        p.evaluate(x, a, delta)
        if average == "best":
            now = p.objective(x, delta)
            better = now < best_f
            best_f = np.where(better, now, best_f)
            best_x[:, better] = x[:, better]
        k = t - 1 + done
        if schedule == "strong":
            h, share = 2.0 / (lam * (k + 2) + 2.0 / step), 2.0 / (k + 2)
        else:
            # the curvature of f in the D norm grows as 1 + lam, so the step shrinks as its inverse; `step` at lam = 1
            h, share = 2.0 * step / (1.0 + lam), 1.0 / (k + 1)
            if schedule == "sqrt":
                h /= np.sqrt(k + 1)
        delta *= p.w
        delta -= mean_phi
        delta *= share
        mean_phi += delta
        kernels.step(x, a, p.target, lam, h, share, mean_x, mean_a, scratch)
        if t % every == 0 or t == max_iter:
            point = mean_x if average is True else (best_x if average == "best" else x)
            f = p.objective(point, buffer=delta)
            lower = np.maximum(lower, p.bound(mean_a, mean_phi, scratch))
            gap = np.maximum(f - lower, 0.0)
            _note(history, t, f, gap, began)
            if tol is not None and bool(np.all(relative(gap, f) <= tol)):
                break
    state = {"x": mean_x, "a": mean_a, "phi": mean_phi}
    return Diffusion(point, f, lower, t, history, state)


def _note(history: dict[str, list[Any]], t: int, f: Array, gap: Array, began: float) -> None:
    history["n_iter"].append(t)
    history["objective"].append(f)
    history["gap"].append(gap)
    history["seconds"].append(time.perf_counter() - began)


def _dual(
    p: _Problem, max_iter: int, tol: float | None, rng: np.random.Generator, warm: dict[str, Array] | None
) -> Diffusion:
    """Exact block coordinate ascent over hyperedges; columns stop one by one, all with the same order of blocks."""
    H, lam = p.H, p.lam
    B, n, c = H.incidence, H.n_nodes, p.s.shape[1]
    d = np.where(H.degree > 0, H.degree, 1.0)
    y, gamma = np.zeros((c, B.nnz)), np.zeros((c, H.n_edges))
    if warm is not None and "y" in warm and warm["y"].shape == y.shape:
        y, gamma = warm["y"].copy(), warm["gamma"].copy()
    x, a = np.empty((n, c)), np.empty((n, c))
    f, lower = np.zeros(c), np.full(c, -np.inf)
    active = list(range(c))
    history: dict[str, list[Any]] = {"n_iter": [], "objective": [], "gap": [], "seconds": []}
    began = time.perf_counter()
    flat = [np.ascontiguousarray(p.target[:, k]) / lam for k in range(c)]
    for k in active:
        flat[k] = flat[k] - np.bincount(B.indices, weights=y[k], minlength=n) / (lam * d)
    sweep = 0
    for sweep in range(1, max_iter + 1):
        order = rng.permutation(H.n_edges)
        for k in active:
            kernels.dual_sweep(order, B.indptr, B.indices, H.edge_weight, d, lam, flat[k], y[k], gamma[k])
        # after a few sweeps progress per sweep is small: looking at every fifth costs less than it saves
        if sweep <= 10 or sweep % 5 == 0 or sweep == max_iter:
            for k in active:
                total = np.bincount(B.indices, weights=y[k], minlength=n) / d
                flat[k] = p.target[:, k] / lam - total / lam  # afresh: increments would pile up rounding
                x[:, k], a[:, k] = flat[k], total
                one = _column(p, k)
                f[k] = one.objective(flat[k][:, None])[0]
                lower[k] = max(lower[k], one.bound(total[:, None], gamma[k][:, None])[0])
            gap = np.maximum(f - lower, 0.0)
            _note(history, sweep, f.copy(), gap, began)
            if tol is not None:
                small = relative(gap, f) <= tol
                active = [k for k in active if not small[k]]
                if not active:
                    break
    return Diffusion(x, f, lower, sweep, history, {"x": x, "y": y, "gamma": gamma, "a": a, "phi": gamma.T})


def _column(p: _Problem, k: int) -> _Problem:
    """The problem of one column, sharing everything with the whole."""
    one = object.__new__(_Problem)
    one.__dict__.update(p.__dict__)
    one.s, one.target = p.s[:, k : k + 1], p.target[:, k : k + 1]
    return one


def _conjugate_gradients(p: _Problem, max_iter: int, tol: float | None, warm: dict[str, Array] | None) -> Diffusion:
    """(L + lam D) x = s of the star expansion, preconditioned by D; the certificate is that of any other cut."""
    star = p.evaluate
    assert isinstance(star, _Star)
    x = warm["x"].copy() if warm is not None and warm["x"].shape == p.s.shape else np.zeros(p.s.shape)
    r = p.s - star.laplacian(x) - p.lam * p.d * x
    z = p.inverse * r
    q, rz = z.copy(), (r * z).sum(axis=0)
    history: dict[str, list[Any]] = {"n_iter": [], "objective": [], "gap": [], "seconds": []}
    began = time.perf_counter()
    a, delta = np.empty_like(x), np.empty((p.H.n_edges, x.shape[1]))
    f, lower = np.zeros(x.shape[1]), np.full(x.shape[1], -np.inf)
    t = 0
    # a linear system is asked for more than a non-smooth problem: a hundredth of the gap costs a few iterations
    goal = None if tol is None else min(tol, 1e-4)
    for t in range(1, max_iter + 1):
        Aq = star.laplacian(q) + p.lam * p.d * q
        curve = (q * Aq).sum(axis=0)
        step = np.divide(rz, curve, out=np.zeros_like(rz), where=curve > 0)
        x += step * q
        r -= step * Aq
        z = p.inverse * r
        new = (r * z).sum(axis=0)
        q = z + np.divide(new, rz, out=np.zeros_like(rz), where=rz > 0) * q
        rz = new
        if t % 5 == 0 or t == max_iter or not rz.any():
            p.evaluate(x, a, delta)
            f = p.objective(x, delta)
            lower = np.maximum(lower, p.bound(a, p.w * delta))
            gap = np.maximum(f - lower, 0.0)
            _note(history, t, f, gap, began)
            if not rz.any() or (goal is not None and bool(np.all(relative(gap, f) <= goal))):
                break
    return Diffusion(x, f, lower, t, history, {"x": x, "a": a, "phi": p.w * delta})


# ------------------------------------------------------------------------------------------------------------ public


def resolve_lam(lam: float, alpha: float | None) -> float:
    """lam of a lazy walk with teleport alpha, or lam itself, checked."""
    if alpha is not None:
        if lam != 1.0:
            raise InputError("give lam or alpha, not both: lam = 2 alpha / (1 - alpha).")
        if not _real(alpha) or not 0 < alpha < 1:
            raise InputError(f"alpha must lie strictly between 0 and 1, got {alpha!r}.")
        return 2.0 * float(alpha) / (1.0 - float(alpha))
    if not _real(lam) or not 0 < lam < np.inf:
        raise InputError(f"lam must be a positive number, got {lam!r}.")
    return float(lam)


def _real(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def check_options(
    cut: Cut, solver: str, schedule: str, step: float, max_iter: int, average: bool | str, tol: float | None
) -> None:
    """Refuse options out of range, each with one sentence."""
    if isinstance(cut, str) and cut not in CUTS:
        raise InputError(f"cut must be one of {', '.join(CUTS)}, a CardinalityCut or a SubmodularCut, got {cut!r}.")
    for name, value, known in (("solver", solver, SOLVERS), ("schedule", schedule, SCHEDULES)):
        if value not in known:
            raise InputError(f"{name} must be one of {', '.join(known)}, got {value!r}.")
    if not _real(step) or not 0 < step <= 1:
        raise InputError(f"step must lie in (0, 1], got {step!r}.")
    if isinstance(max_iter, bool) or not isinstance(max_iter, (int, np.integer)) or max_iter < 1:
        raise InputError(f"max_iter must be a whole number of at least 1, got {max_iter!r}.")
    if average not in (True, False, "best"):
        raise InputError(f"average must be True, False or 'best', got {average!r}.")
    if tol is not None and (not _real(tol) or not 0 < tol < np.inf):
        raise InputError(f"tol must be a positive number or None, got {tol!r}.")


def _checked(H: Any) -> Hypergraph:
    if not isinstance(H, Hypergraph):
        raise InputError(f"H must be a Hypergraph (see Hypergraph.from_edges and its kin), got {type(H).__name__}.")
    return H


def hypergraph_pagerank(
    H: Hypergraph,
    s: ArrayLike,
    lam: float = 1.0,
    alpha: float | None = None,
    cut: Cut = "standard",
    solver: str = "auto",
    schedule: str = "strong",
    step: float = 0.5,
    max_iter: int = 100,
    average: bool | str = True,
    tol: float | None = 1e-2,
    return_history: bool = False,
    random_state: Any = 0,
    device: str = "cpu",
) -> Any:
    """Personalised PageRank of a hypergraph: minimise f(x) = U(x) + lam/2 x^T D x - s^T x.

    For hyperedges of two vertices this is the linear system ((1 + lam) D - A) x = s.

    Parameters
    ----------
    H : Hypergraph
        The hypergraph.
    s : array-like of shape (n_nodes,) or (n_nodes, c)
        Seeds; columns are solved together, each as if alone.
    lam : float, default 1.0
        Weight of the teleport, above 0.
    alpha : float, default None
        Teleport probability of the lazy walk in (0, 1), instead of lam: lam = 2 alpha / (1 - alpha).
    cut : str, CardinalityCut or SubmodularCut, default "standard"
        As for `potential`.
    solver : {"auto", "subgradient", "dual", "qp", "cg"}, default "auto"
        "subgradient" is Algorithm 1 of the paper; "dual" exact block coordinate ascent (standard cut); "qp" an
        interior-point method (standard cut, up to 2000 vertices); "cg" conjugate gradients (star). "auto" takes "dual"
        for the standard cut with a tol (without numba only for small hypergraphs), "cg" for the star, else Algorithm 1.
    schedule : {"strong", "paper", "sqrt"}, default "strong"
        Steps of Algorithm 1. "strong": 2 / (lam (t + 2) + 2 / step) and averages weighted by t + 1; "paper": constant,
        plain average; "sqrt": divided by sqrt(t + 1). The last two are scaled by 2 / (1 + lam).
    step : float, default 0.5
        First step, in (0, 1].
    max_iter : int, default 100
        Steps (sweeps of "dual") at most.
    average : bool or "best", default True
        Return the average, the last point (False), or the best point seen.
    tol : float or None, default 1e-2
        Stop once the certified gap of every column is at most ``tol |f|``; None runs `max_iter`.
    return_history : bool, default False
        Also return the history.
    random_state : int or Generator, default 0
        Order of the blocks of "dual".
    device : str, default "cpu"
        "cpu" runs compiled loops; a torch device such as "cuda" runs Algorithm 1 for the standard cut there.

    Returns
    -------
    x : ndarray of the shape of s
        Scores; 0 in components without seeds and for isolated vertices.
    history : dict
        Only with `return_history`: lists ``n_iter``, ``objective``, ``gap`` (certified: f(x) - f* at most; one value
        per column where s has columns) and ``seconds``.

    Raises
    ------
    InputError
        Wrong shape, NaN, options out of range, both lam and alpha, a solver that does not know the cut.

    Notes
    -----
    1. The objective and gap belong to the returned point, not to the last iterate.
    2. The gap is weak duality: averages of subgradients and of w_h delta_h give a lower bound of f*.
    3. Running out of `max_iter` is no error: look at the gap.

    References
    ----------
    K. Ameranis, A. F. DePavia, L. Orecchia, E. Tani. Fast algorithms for hypergraph PageRank with applications to
    semi-supervised learning. ICML 2024, PMLR 235:1306-1330. P. Li, N. He, O. Milenkovic. Quadratic decomposable
    submodular function minimization. NeurIPS 2018, arXiv 1806.09842 (the dual solver).

    Examples
    --------
    >>> from assay.graphs.hypergraph_diffusion import Hypergraph, hypergraph_pagerank
    >>> H = Hypergraph.from_edges([[0, 1, 2], [2, 3]])
    >>> x = hypergraph_pagerank(H, [1.0, 0.0, 0.0, 0.0], tol=1e-8)
    >>> [round(v, 4) for v in x.tolist()]
    [0.5625, 0.125, 0.125, 0.0625]
    """
    _checked(H)
    lam = resolve_lam(lam, alpha)
    check_options(cut, solver, schedule, step, max_iter, average, tol)
    a, flat = columns(H, s, "s")
    if device != "cpu":
        from ._torch import subgradient_on_device

        found = subgradient_on_device(H, a, lam, cut, solver, schedule, step, max_iter, average, tol, device)
    else:
        found = solve(
            H, a, lam, cut=cut, solver=solver, schedule=schedule, step=step, max_iter=max_iter, average=average,
            tol=tol, random_state=random_state,
        )  # fmt: skip
    return _answer(found, flat, return_history)


def _answer(found: Diffusion, flat: bool, return_history: bool) -> Any:
    x = found.x[:, 0] if flat else found.x
    if not return_history:
        return x
    history = dict(found.history)
    if flat:
        for key in ("objective", "gap"):
            history[key] = [float(v[0]) for v in history[key]]
    return x, history


def lam_path(H: Hypergraph, s: ArrayLike, lams: Sequence[float], **options: Any) -> list[Any]:
    """Solutions for several lam, each started from the one before.

    Parameters
    ----------
    H : Hypergraph
        The hypergraph.
    s : array-like of shape (n_nodes,) or (n_nodes, c)
        Seeds.
    lams : sequence of float
        Teleport weights, in the order in which they are solved; neighbours in size help each other most.
    **options
        cut, solver, schedule, step, max_iter, tol and random_state as for `hypergraph_pagerank`.

    Returns
    -------
    list of ndarray
        One solution per lam.

    Examples
    --------
    >>> from assay.graphs.hypergraph_diffusion import Hypergraph, lam_path
    >>> H = Hypergraph.from_edges([[0, 1, 2], [2, 3]])
    >>> [round(float(x[3]), 3) for x in lam_path(H, [1.0, 0, 0, 0], [0.1, 1.0], tol=1e-8)]
    [1.715, 0.063]
    """
    _checked(H)
    known = {"cut", "solver", "schedule", "step", "max_iter", "tol", "random_state"}
    unknown = sorted(set(options) - known)
    if unknown:
        raise InputError(f"lam_path takes no option {unknown[0]!r}; it takes {', '.join(sorted(known))}.")
    settings: dict[str, Any] = {
        "cut": "standard",
        "solver": "auto",
        "schedule": "strong",
        "step": 0.5,
        "max_iter": 100,
        "tol": 1e-2,
    }
    settings |= options
    check_options(average=True, **{k: v for k, v in settings.items() if k != "random_state"})
    a, flat = columns(H, s, "s")
    warm, out = None, []
    for lam in lams:
        found = solve(H, a, resolve_lam(lam, None), warm=warm, **settings)
        warm = found.state or None
        out.append(found.x[:, 0] if flat else found.x)
    return out


def laplacian_solve(
    H: Hypergraph,
    s: ArrayLike,
    cut: Cut = "standard",
    solver: str = "auto",
    max_iter: int = 10_000,
    tol: float | None = 1e-4,
    return_history: bool = False,
    random_state: Any = 0,
) -> Any:
    """Solve the Laplacian system s in L(x), L the subdifferential of U: minimise U(x) - s^T x.

    Parameters
    ----------
    H : Hypergraph
        The hypergraph.
    s : array-like of shape (n_nodes,) or (n_nodes, c)
        Right-hand side; it must sum to zero on every connected component.
    cut : str, CardinalityCut or SubmodularCut, default "standard"
        As for `potential`.
    solver : str, default "auto"
        As for `hypergraph_pagerank`; "auto" takes the interior-point method for the standard cut up to 2000 vertices,
        and beyond where a sparse factor is small (paths, meshes, local structure), else "dual".
    max_iter : int, default 10000
        Steps or sweeps at most, over all resolvents.
    tol : float or None, default 1e-4
        Relative certified gap.
    return_history : bool, default False
        Also return the history.
    random_state : int or Generator, default 0
        Order of the blocks of "dual".

    Returns
    -------
    x : ndarray of the shape of s
        Solution with D-mean zero on every component; unique only up to what U does not see.
    history : dict
        Only with `return_history`.

    Raises
    ------
    InputError
        If s does not sum to zero on a component.

    Notes
    -----
    1. Regularised with lam = 1e-6, then the D-mean of each component is removed.
    2. Above 2000 vertices without local structure, sweeps may not reach `tol` within `max_iter`: look at the gap.
    3. "dual", "subgradient" and "cg" are called for a sequence of resolvents around the last point (proximal point).

    Examples
    --------
    >>> from assay.graphs.hypergraph_diffusion import Hypergraph, laplacian_solve
    >>> x = laplacian_solve(Hypergraph.from_edges([[0, 1], [1, 2]]), [1.0, 0.0, -1.0])
    >>> [round(v, 3) + 0.0 for v in x.tolist()]
    [1.0, 0.0, -1.0]
    """
    _checked(H)
    check_options(cut, solver, "strong", 0.5, max_iter, True, tol)
    a, flat = columns(H, s, "s")
    part = H.components
    n_parts = int(part.max()) + 1
    for k in range(a.shape[1]):
        total = np.bincount(part, weights=a[:, k], minlength=n_parts)
        size = np.bincount(part, weights=np.abs(a[:, k]), minlength=n_parts)
        wrong = np.abs(total) > 1e-9 * np.maximum(size, 1e-300)
        if wrong.any():
            c = int(np.argmax(wrong))
            member = H.node_names[int(np.argmax(part == c))]
            raise InputError(
                f"s must sum to zero on every connected component, but sums to {total[c]:.6g} on that of vertex {said(member)}."
            )
    if solver == "auto" and isinstance(cut, str) and cut == "standard":
        solver = "qp" if H.n_nodes <= _QP_NODES else (_SPARSE_QP if _banded_entries(H) <= _SPARSE_ENTRIES else "dual")
    if solver in ("qp", _SPARSE_QP):
        found = solve(H, a, _LAPLACIAN_LAM, cut=cut, solver=solver)
    else:
        found = _proximal_point(H, a, cut, solver, max_iter, tol, random_state)
    d = H.degree
    for k in range(a.shape[1]):
        mass = np.bincount(part, weights=d, minlength=n_parts)
        mean = np.bincount(part, weights=d * found.x[:, k], minlength=n_parts) / np.where(mass > 0, mass, 1.0)
        found.x[:, k] -= mean[part]
    return _answer(found, flat, return_history)


def _banded_entries(H: Hypergraph) -> float:
    """Entries of a factor of the clique pattern in locality order: the spread of the widest hyperedge at every vertex."""
    order, _ = locality_order(H)
    place = np.empty(H.n_nodes, dtype=np.int64)
    place[order] = np.arange(H.n_nodes)
    at, start = place[H.incidence.indices], H.incidence.indptr[:-1].astype(np.intp)
    first = np.minimum.reduceat(at, start)
    # the envelope of a row reaches back to the first vertex that shares a hyperedge with it
    reach = np.arange(H.n_nodes)
    np.minimum.at(reach, at, np.repeat(first, H.sizes))
    return float((np.arange(H.n_nodes) - reach).sum())


def _proximal_point(
    H: Hypergraph, s: Array, cut: Cut, solver: str, max_iter: int, tol: float | None, random_state: Any
) -> Diffusion:
    """Solve the system by resolvents: x <- argmin U(z) - s z + lam/2 |z - x|^2_D with a lam at which solvers are fast.

    At lam = 1e-6 itself block ascent and averaging would need 1 / lam rounds. The certificate is that of lam = 1e-6.
    """
    goal = _Problem(H, s, _LAPLACIAN_LAM, cut)
    x, warm = np.zeros(s.shape), None
    lower = np.full(s.shape[1], -np.inf)
    history: dict[str, list[Any]] = {"n_iter": [], "objective": [], "gap": [], "seconds": []}
    began = time.perf_counter()
    done = 0
    while True:
        inner = solve(
            H, s + _PROXIMAL_LAM * H.degree[:, None] * x, _PROXIMAL_LAM, cut=cut, solver=solver, tol=_PROXIMAL_TOL,
            max_iter=max(1, min(200, max_iter - done)), random_state=random_state, warm=warm, reorder=False,
        )  # fmt: skip
        x, warm = inner.x.copy(), inner.state
        done += inner.n_iter
        f = goal.objective(x)
        lower = np.maximum(lower, goal.bound(warm["a"], warm["phi"]))
        gap = np.maximum(f - lower, 0.0)
        _note(history, done, f, gap, began)
        if done >= max_iter or (tol is not None and bool(np.all(relative(gap, f) <= tol))):
            return Diffusion(x, f, lower, done, history)


def heat_diffusion(H: Hypergraph, x0: ArrayLike, n_steps: int, step: float = 0.5, cut: Cut = "standard") -> Array:
    """Let scores flow: x_(t+1) = x_t - step D^-1 g_t, g_t a subgradient of U at x_t.

    Parameters
    ----------
    H : Hypergraph
        The hypergraph.
    x0 : array-like of shape (n_nodes,) or (n_nodes, c)
        Start.
    n_steps : int
        Number of steps, 0 or more.
    step : float, default 0.5
        Step in (0, 1].
    cut : str, CardinalityCut or SubmodularCut, default "standard"
        As for `potential`.

    Returns
    -------
    ndarray of the shape of x0
        Scores after `n_steps`; sum_i d_i x_i is that of x0.

    Raises
    ------
    InputError
        Wrong shape, NaN, options out of range.

    Examples
    --------
    >>> from assay.graphs.hypergraph_diffusion import Hypergraph, heat_diffusion
    >>> heat_diffusion(Hypergraph.from_edges([[0, 1]]), [1.0, 0.0], 1).tolist()
    [0.5, 0.5]
    """
    _checked(H)
    if isinstance(n_steps, bool) or not isinstance(n_steps, (int, np.integer)) or n_steps < 0:
        raise InputError(f"n_steps must be a whole number of at least 0, got {n_steps!r}.")
    check_options(cut, "auto", "strong", step, 1, True, None)
    x, flat = columns(H, x0, "x0")
    evaluate = evaluator(H, cut)
    a, delta = np.empty_like(x), np.empty((H.n_edges, x.shape[1]))
    for _ in range(n_steps):
        evaluate(x, a, delta)
        x -= step * a
    return x[:, 0] if flat else x
