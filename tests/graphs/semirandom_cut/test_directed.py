"""Directed input: refused by default with a way out that the three estimators have, or symmetrised on request."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from sklearn.base import clone

from assay._core.errors import InputError
from assay.graphs.semirandom_cut import DasguptaHierarchy, SemiRandomBisection, SemiRandomKWay, cut_value


def make(kind, **options):
    if kind is SemiRandomKWay:
        return SemiRandomKWay(3, random_state=0, **options)
    return kind(random_state=0, **options)


@pytest.fixture(scope="module")
def web():
    """Two directed communities; one pair has edges both ways."""
    G = nx.gnp_random_graph(40, 0.3, seed=1, directed=True)
    G.remove_edges_from([(u, v) for u, v in G.edges if (u < 20) != (v < 20)])
    G.add_weighted_edges_from([(0, 25, 2.0), (25, 0, 3.0), (30, 3, 1.0)])
    return G


@pytest.mark.parametrize("kind", [SemiRandomBisection, SemiRandomKWay, DasguptaHierarchy])
def test_directed_graphs_are_refused_or_symmetrised(kind, web):
    with pytest.raises(InputError, match="directed='symmetrize'"):
        make(kind).fit(web)
    W = nx.to_scipy_sparse_array(web, dtype=float)
    with pytest.raises(InputError, match="directed='symmetrize'"):
        make(kind).fit(W)
    model = make(kind, directed="symmetrize")
    assert model.get_params()["directed"] == "symmetrize"
    assert clone(model).directed == "symmetrize"
    by_hand = make(kind).fit(W + W.T)
    for graph in (web, W):
        model.fit(graph)
        np.testing.assert_array_equal(model.labels_, by_hand.labels_)
    if kind is SemiRandomBisection:
        # the weights of both directions are added up
        assert model.cut_ == cut_value(W + W.T, model.labels_) == 6.0
        assert model.labels_[:20].sum() in (0, 20)


def test_an_unknown_choice_is_named(web):
    with pytest.raises(InputError, match="directed must be 'error' or 'symmetrize'"):
        SemiRandomBisection(directed="yes").fit(web)
