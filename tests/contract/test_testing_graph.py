"""Each graph check passes on a small correct bisection and fails on a twin with exactly its fault."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClusterMixin

from assay.testing import Case, check_graph_algorithm, checks_for
from assay.testing._graph import CHECKS, check_returns_self

nx = pytest.importorskip("networkx", reason="extra graphs")


class Walk(ClusterMixin, BaseEstimator):
    """Splits by the sign of a lazy random walk, correct; the twins below break one thing each."""

    def __init__(self, n_iter=400, random_state=None):
        self.n_iter = n_iter
        self.random_state = random_state

    def nodes(self, G):
        return list(G.nodes)

    def read(self, W):
        if isinstance(W, nx.Graph):
            return nx.to_scipy_sparse_array(W, nodelist=self.nodes(W), dtype=float)
        A = sp.csr_array(W, dtype=float, copy=True)
        A.sum_duplicates()
        A.sort_indices()
        return A

    def validate(self, A):
        if A.shape[0] != A.shape[1]:
            raise ValueError(f"W must be square, got {A.shape}")
        if not np.isfinite(A.data).all():
            raise ValueError("W holds NaN or infinite weights")
        if (A.data < 0).any():
            raise ValueError("W holds negative weights")
        if abs(A - A.T).max() > 1e-8:
            raise ValueError("W is not symmetric; use (W + W.T) / 2")

    def start(self, n):
        return np.random.default_rng(self.random_state).standard_normal(n)

    def fit(self, W, y=None):
        A = self.read(W)
        self.validate(A)
        self.labels_ = self.split(A)
        return self

    def split(self, A):
        degree = A.sum(axis=1)
        degree[degree == 0] = 1.0
        x = self.start(A.shape[0])
        for _ in range(self.n_iter):
            x = 0.5 * (x + A @ x / degree)
            x -= np.average(x, weights=degree)
        return (x > 0).astype(np.int64)


class DenseDiffers(Walk):
    def fit(self, W, y=None):
        super().fit(W)
        if isinstance(W, np.ndarray):
            self.labels_ = 1 - self.labels_
        return self


class DropsDuplicates(Walk):
    def read(self, W):
        if sp.issparse(W) and W.format == "coo":
            last = dict(zip(zip(W.row.tolist(), W.col.tolist()), W.data.tolist()))
            rows, cols = zip(*last)
            W = sp.coo_array((list(last.values()), (rows, cols)), shape=W.shape)
        return super().read(W)


class SortsNodes(Walk):
    def nodes(self, G):
        return sorted(G.nodes, key=str)


class SortsLabels(Walk):
    def split(self, A):
        return np.sort(super().split(A))


class Thresholds(Walk):
    def split(self, A):
        A = A.copy()
        A.data[A.data < 2.5] = 0.0
        return super().split(A)


class GlobalGenerator(Walk):
    def start(self, n):
        return np.random.standard_normal(n)  # noqa: NPY002  the fault under test


class DropsIsolated(Walk):
    def split(self, A):
        keep = A.sum(axis=1) > 0
        return super().split(A[keep][:, keep])


class LargestComponent(Walk):
    def split(self, A):
        count, _ = sp.csgraph.connected_components(A)
        return super().split(A) if count == 1 else np.zeros(A.shape[0], dtype=np.int64)


class CrashesWithoutEdges(Walk):
    def split(self, A):
        return 0 // A.nnz + super().split(A)


class NoValidation(Walk):
    def validate(self, A):
        pass

    def split(self, A):
        n = A.shape[0]
        return super().split(A[:n, :n]) if A.shape[0] == A.shape[1] else np.zeros(n, dtype=np.int64)


class IndexErrorOnBad(Walk):
    def validate(self, A):
        if A.shape[0] != A.shape[1]:
            raise IndexError("a matrix that is not square")
        super().validate(A)


class CleansInPlace(Walk):
    def fit(self, W, y=None):
        if sp.issparse(W) and W.format == "csr":
            W.eliminate_zeros()
        return super().fit(W)


class AddsAttributes(Walk):
    def read(self, W):
        if isinstance(W, nx.Graph):
            nx.set_edge_attributes(W, 1.0, "seen")
        return super().read(W)


class Densifies(Walk):
    def split(self, A):
        return super().split(sp.csr_array(A.toarray()))


class AllPairs(Walk):
    def split(self, A):
        n = A.shape[0]
        pairs = np.zeros((n, n), dtype=bool)
        return super().split(A) + int(pairs[0, 0])


class SetsMore(Walk):
    def __init__(self, n_iter=400, random_state=None):
        super().__init__(n_iter, random_state)
        self.calls = 0


class AcceptsUnknown(Walk):
    def set_params(self, **params):
        return super().set_params(**{k: v for k, v in params.items() if k in self.get_params()})


class ReturnsNone(Walk):
    def fit(self, W, y=None):
        super().fit(W)
        return None


class FloatLabels(Walk):
    def split(self, A):
        return super().split(A) + 0.5


def case(make, **kwargs):
    return Case(make.__name__, "graph algorithm", make=make, **kwargs)


TWINS = [
    ("check_constructor_only_stores", SetsMore),
    ("check_clone_and_params", AcceptsUnknown),
    ("check_containers_agree", DenseDiffers),
    ("check_containers_agree", DropsDuplicates),
    ("check_containers_agree", FloatLabels),
    ("check_networkx", SortsNodes),
    ("check_input_order", SortsLabels),
    ("check_scaling_weights", Thresholds),
    ("check_deterministic", GlobalGenerator),
    ("check_isolated_vertices", DropsIsolated),
    ("check_disconnected", LargestComponent),
    ("check_no_edges", CrashesWithoutEdges),
    ("check_bad_matrix_refused", NoValidation),
    ("check_bad_matrix_refused", IndexErrorOnBad),
    ("check_input_not_mutated", CleansInPlace),
    ("check_input_not_mutated", AddsAttributes),
    ("check_never_dense", Densifies),
    ("check_never_dense", AllPairs),
    ("check_returns_self", ReturnsNone),
]


def test_good_graph_algorithm_passes():
    assert {r.status for r in check_graph_algorithm(case(Walk))} == {"passed"}


@pytest.mark.parametrize(("name", "twin"), TWINS, ids=[f"{n}-{t.__name__}" for n, t in TWINS])
def test_check_catches_its_fault(name, twin):
    with pytest.raises((AssertionError, ZeroDivisionError, ValueError)) as caught:
        dict(checks_for(case(twin)))[name]()
    if caught.type is not AssertionError:
        assert twin in (CrashesWithoutEdges, DropsDuplicates), "only these crash inside the algorithm itself"


def test_every_check_has_a_twin():
    assert {name for name, _ in TWINS} == {check.__name__ for check in (*CHECKS, check_returns_self)}
