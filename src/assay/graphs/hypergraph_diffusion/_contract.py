"""Objects of this method that the contract suite checks."""

from __future__ import annotations

from typing import Any


def _points() -> tuple[Any, Any]:
    """Three blobs, six labels each."""
    import numpy as np
    from sklearn.datasets import make_blobs

    X, y = make_blobs(60, centers=3, random_state=0)
    visible = np.full(60, -1)
    for k in range(3):
        visible[np.flatnonzero(y == k)[:6]] = k
    return X, visible


def _table() -> tuple[Any, Any]:
    """The same points, cut into bins."""
    import pandas as pd

    X, visible = _points()
    return pd.DataFrame(X, columns=["a", "b"]), visible


def _two_groups() -> tuple[Any]:
    from ._hypergraph import Hypergraph

    return (Hypergraph.from_edges([[0, 1, 2], [0, 1], [1, 2], [2, 3], [3, 4, 5], [4, 5], [3, 5]]),)


def cases() -> list[Any]:
    """Label propagation on points and on a table, local clustering on a hypergraph."""
    from assay.testing import Case

    from . import HypergraphLabelPropagation, HypergraphLocalClustering

    return [
        Case(
            name="HypergraphLabelPropagation(knn)",
            kind="estimator",
            make=lambda: HypergraphLabelPropagation(hypergraph="knn"),
            data=_points,
            sklearn_checks=True,
            expected_failed_checks={
                "check_classifiers_classes": "it trains on the classes -1 and 1, and -1 means unlabelled here, as in "
                "scikit-learn's own LabelSpreading",
            },
        ),
        Case(
            name="HypergraphLabelPropagation(categorical)",
            kind="estimator",
            make=lambda: HypergraphLabelPropagation(hypergraph="categorical"),
            data=_table,
        ),
        Case(
            name="HypergraphLocalClustering",
            kind="estimator",
            make=lambda: HypergraphLocalClustering([0]),
            data=_two_groups,
            predict=_cluster,
        ),
    ]


def _cluster(model: Any) -> Any:
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model, "labels_")
    return model.labels_
