"""The contract of kind "graph algorithm": any graph container, results in input order, never n x n."""
# ruff: noqa: NPY002, PT017 - numpy's global generator is what is watched, asserts carry the message

from __future__ import annotations

import copy
import re
import tracemalloc
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
import scipy.sparse as sp

from ._cases import Case, Check, CheckResult, not_applicable, run_checks
from ._compare import fingerprint
from ._estimator import check_clone_and_params, check_constructor_only_stores, check_fit_returns_self

# Largest side of a matrix that an algorithm may make dense (a coarse graph, a small block): 1000 x 1000 doubles are 8 MB.
_DENSE_SIDE = 1000
_BIG = 141  # side of a grid of 19,881 vertices
# Half of a boolean matrix over that grid's vertices; O(m + n k) work with k = 300 columns of doubles takes 48 MB there.
_PEAK_BYTES = 200_000_000


def _communities(n: int = 48, seed: int = 5) -> sp.csr_array:
    """Connected weighted graph with two communities and whole-number weights, so that sums are exact in any order."""
    rng = np.random.default_rng(seed)
    side = np.arange(n) % 2
    same = side[:, None] == side[None, :]
    upper = np.triu(rng.random((n, n)) < np.where(same, 0.5, 0.06), 1) * rng.integers(1, 5, (n, n)).astype(float)
    ring = np.arange(n - 2)
    upper[ring, ring + 2] = 3.0
    upper[0, 1] = 1.0
    return sp.csr_array(upper + upper.T)


def _cliques(size: int = 12) -> sp.csr_array:
    """Two cliques joined by one edge."""
    block = np.ones((size, size)) - np.eye(size)
    W = sp.block_diag([block, block], format="lil")
    W[0, size] = W[size, 0] = 1.0
    return sp.csr_array(W)


def _permuted(W: sp.csr_array, order: np.ndarray) -> sp.csr_array:
    return sp.csr_array(W[order][:, order])


def _fit(case: Case, W: Any) -> np.ndarray:
    est = case.make()
    if "random_state" in est.get_params(deep=False):
        est.set_params(random_state=0)
    est.fit(W)
    return np.asarray(case.predict(est) if case.predict is not None else est.labels_)


def _assert_valid(case: Case, out: np.ndarray, n: int) -> None:
    if case.per_vertex:
        assert out.shape[0] == n, f"{n} vertices, but {out.shape[0]} results"
    assert out.size > 0, "nothing came out"
    if case.predict is None:
        assert out.dtype.kind in "iu", f"labels must be whole numbers, not {out.dtype}"
    elif out.dtype.kind == "f":
        assert np.isfinite(out).all(), "the result holds NaN or infinity"


def _same_partition(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal up to the names of the parts."""
    pairs = set(zip(a.tolist(), b.tolist(), strict=True))
    return len(pairs) == len(set(a.tolist())) == len(set(b.tolist()))


def check_containers_agree(case: Case) -> None:
    """csr, csc, coo, matrix and array classes, and a dense array hold the same graph and give the same result."""
    W = _communities()
    reference = _fit(case, W)
    _assert_valid(case, reference, W.shape[0])
    others = {
        "csc_array": W.tocsc(),
        "coo_array": W.tocoo(),
        "csr_matrix": sp.csr_matrix(W),
        "dense": W.toarray(),
        "csr of whole numbers": W.astype(np.int64),
    }
    for name, other in others.items():
        assert np.array_equal(_fit(case, other), reference), f"{name} gives another result than csr_array"
    messy = W.tocoo()  # each entry w stored as w + 8 and -8, in any order: the same matrix once it is summed
    order = np.random.default_rng(0).permutation(2 * messy.nnz)
    values = np.concatenate([messy.data + 8, np.full(messy.nnz, -8.0)])
    parts = sp.coo_array((values[order], (np.tile(messy.row, 2)[order], np.tile(messy.col, 2)[order])), shape=W.shape)
    assert np.array_equal(_fit(case, parts), reference), "duplicate entries of a coo_array are not summed"


def check_networkx(case: Case) -> None:
    """A networkx Graph gives the same result, rows in the order of `G.nodes`, weights from the attribute `weight`."""
    import networkx as nx

    W = _communities()
    G = nx.Graph()
    names = [f"v{i}" for i in np.random.default_rng(1).permutation(W.shape[0])]  # neither sorted nor numbers
    G.add_nodes_from(names)
    coo = sp.coo_array(sp.triu(W))
    G.add_weighted_edges_from(
        (names[i], names[j], float(w)) for i, j, w in zip(coo.row, coo.col, coo.data, strict=True)
    )
    assert np.array_equal(_fit(case, G), _fit(case, W)), "a networkx graph gives another result than its matrix"


def check_input_order(case: Case) -> None:
    """Renumbering the vertices renumbers the result: two joined cliques keep their members."""
    W = _cliques()
    n = W.shape[0]
    order = np.random.default_rng(2).permutation(n)
    out = _fit(case, _permuted(W, order))
    _assert_valid(case, out, n)
    if not case.recovers_cliques or not case.per_vertex:
        raise not_applicable("does not cluster vertices")
    clique = (np.arange(n) >= n // 2)[order]
    assert _same_partition(out, clique), "the two cliques are not told apart in the order of the input"


def check_scaling_weights(case: Case) -> None:
    """Multiplying every weight by a constant leaves the result as it is (powers of two: exact in floating point)."""
    if not case.scale_free:
        raise not_applicable("depends on the scale of the weights")
    W = _communities()
    reference = _fit(case, W)
    for factor in (0.25, 8.0):
        assert np.array_equal(_fit(case, W * factor), reference), f"weights times {factor} give another result"


def check_deterministic(case: Case) -> None:
    """The same random_state gives the same result, whatever the global generator holds."""
    ones = np.ones(40)
    ring = sp.csr_array(sp.coo_array((ones, (np.arange(40), (np.arange(40) + 1) % 40)), shape=(40, 40)))
    # on a ring every rotation is as good as another, so that a result that depends on luck shows it
    for W in (_communities(), sp.csr_array(ring + ring.T)):
        state = np.random.get_state()
        try:
            outputs = []
            for seed in (21, 22, 23):
                np.random.seed(seed)
                outputs.append(_fit(case, W))
        finally:
            np.random.set_state(state)
        for other in outputs[1:]:
            assert np.array_equal(outputs[0], other), "two fits with the same random_state differ"


def check_isolated_vertices(case: Case) -> None:
    """Vertices without edges are allowed and get a result."""
    W = _communities(24)
    n = W.shape[0]
    padded = sp.csr_array(sp.block_diag([sp.csr_array((2, 2)), W, sp.csr_array((2, 2))], format="csr"))
    _assert_valid(case, _fit(case, padded), n + 4)


def check_disconnected(case: Case) -> None:
    """Several components are allowed; two equal cliques without any edge between them are the two parts."""
    block = np.ones((10, 10)) - np.eye(10)
    W = sp.csr_array(sp.block_diag([block, block], format="csr"))
    out = _fit(case, W)
    _assert_valid(case, out, 20)
    if case.recovers_cliques and case.per_vertex:
        assert _same_partition(out, np.arange(20) >= 10), "two components of equal size are not the two parts"


def check_no_edges(case: Case) -> None:
    """A graph without edges gives a result or a ValueError, no crash inside a solver."""
    try:
        out = _fit(case, sp.csr_array((6, 6)))
    except ValueError as error:
        assert re.search("edge|weight|empty", str(error), re.IGNORECASE), (
            f"the message does not say what is wrong: {error}"
        )
        return
    _assert_valid(case, out, 6)


def check_bad_matrix_refused(case: Case) -> None:
    """Non-square, asymmetric, negative, NaN and infinite weights are refused with a ValueError that says so."""
    good = _communities(24)

    def with_entry(value: float, mirrored: bool = True) -> sp.csr_array:
        W = good.tolil()
        W[3, 5] = value
        if mirrored:
            W[5, 3] = value
        return sp.csr_array(W)

    bad = {  # name -> matrix, words of which the message must hold one
        "non-square": (sp.csr_array(good[:, :-2]), "square|shape"),
        "asymmetric": (with_entry(9.0, mirrored=False), "symmetr|undirected"),
        "negative": (with_entry(-1.0), "negative"),
        "NaN": (with_entry(float("nan")), "nan|finite"),
        "infinite": (with_entry(float("inf")), "inf"),
    }
    for name, (W, words) in bad.items():
        for form, value in (("sparse", W), ("dense", W.toarray())):
            try:
                _fit(case, value)
            except ValueError as error:
                said = str(error)
                assert re.search(words, said, re.IGNORECASE), (
                    f"{name} {form} weights: the message does not say so ({said})"
                )
                continue
            except Exception as error:
                raise AssertionError(f"{name} {form} weights raise {type(error).__name__}, not ValueError") from error
            raise AssertionError(f"{name} {form} weights were accepted")


def check_input_not_mutated(case: Case) -> None:
    """fit writes into no container, and does not sort or compress the caller's matrix in place."""
    import networkx as nx

    W = _communities()
    G = nx.Graph()
    coo = sp.coo_array(sp.triu(W))
    G.add_weighted_edges_from(zip(coo.row.tolist(), coo.col.tolist(), coo.data.tolist(), strict=True))
    looped = W.tolil()
    looped[2, 2] = 4.0  # a loop, a stored zero: what an algorithm is tempted to clean in place
    looped = sp.csr_array(looped)
    looped.data[0] = 0.0
    looped[looped.indices[0], 0] = 0.0
    rows = copy.deepcopy(list(G.edges(data=True)))
    for name, value in (("csr", W.copy()), ("csr with a loop and stored zeros", looped), ("dense", W.toarray())):
        mark = _raw(value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # dropping loops may warn; here only the input is looked at
            _fit(case, value)
        assert _raw(value) == mark, f"fit changed its {name} input"
    _fit(case, G)
    assert list(G.edges(data=True)) == rows, "fit changed the networkx graph"


def _raw(W: Any) -> str:
    """Fingerprint of the stored arrays themselves, not only of the matrix they stand for."""
    return fingerprint([W.data, W.indices, W.indptr] if sp.issparse(W) else W)


@contextmanager
def forbid_dense(side: int = _DENSE_SIDE) -> Iterator[None]:
    """Inside, a sparse matrix with more than `side` rows and columns cannot be made dense."""

    def guarded(original: Any) -> Any:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            if min(self.shape) > side:
                raise AssertionError(f"a {self.shape[0]} x {self.shape[1]} sparse matrix was made dense")
            return original(self, *args, **kwargs)

        return method

    classes = [
        getattr(sp, f"{form}_{kind}")
        for form in ("csr", "csc", "coo", "lil", "dok", "bsr", "dia")
        for kind in ("array", "matrix")
    ]
    owners = {
        (owner, name) for c in classes for owner in c.__mro__ for name in ("toarray", "todense") if name in vars(owner)
    }
    with ExitStack() as stack:
        for owner, name in owners:
            stack.enter_context(mock.patch.object(owner, name, guarded(vars(owner)[name])))
        yield


def check_never_dense(case: Case) -> None:
    """A grid of 19,881 vertices is fitted without a dense n x n matrix and within 200 MB."""
    ones = np.ones(_BIG - 1)
    path, line = sp.diags_array([ones, ones], offsets=[-1, 1]), sp.eye_array(_BIG)
    W = sp.csr_array(sp.kron(path, line) + sp.kron(line, path))
    _fit(case, _communities())  # compilation and lazy imports are not counted
    with forbid_dense():
        tracemalloc.start()
        try:
            out = _fit(case, W)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    _assert_valid(case, out, W.shape[0])
    assert peak < _PEAK_BYTES, f"fit took {peak / 1e6:.0f} MB on a grid of {W.shape[0]} vertices"


CHECKS: tuple[Check, ...] = (
    check_constructor_only_stores,
    check_clone_and_params,
    check_containers_agree,
    check_networkx,
    check_input_order,
    check_scaling_weights,
    check_deterministic,
    check_isolated_vertices,
    check_disconnected,
    check_no_edges,
    check_bad_matrix_refused,
    check_input_not_mutated,
    check_never_dense,
)


def check_returns_self(case: Case) -> None:
    """`fit` returns the estimator."""
    from dataclasses import replace

    check_fit_returns_self(replace(case, data=lambda: (_communities(24),)))


def checks(case: Case) -> list[tuple[str, Check]]:
    """The named checks of this kind."""
    return [(check.__name__, check) for check in (*CHECKS, check_returns_self)]


def check_graph_algorithm(case: Case) -> list[CheckResult]:
    """Run the contract of kind "graph algorithm".

    Parameters
    ----------
    case : Case
        ``make()`` gives an unfitted estimator whose ``fit`` takes a weighted undirected graph and leaves ``labels_``.

    Returns
    -------
    list of CheckResult
        One per check.

    Raises
    ------
    AssertionError
        Names every check that failed.

    Examples
    --------
    >>> from assay.testing import Case, checks_for
    >>> case = Case("a graph algorithm", "graph algorithm", make=lambda: None)
    >>> [name for name, check in checks_for(case)][-2:]
    ['check_never_dense', 'check_returns_self']
    """
    return run_checks(case, checks(case))
