"""The peers of `compare`: which take part where, and what they return."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from assay.graphs.semirandom_cut import _job, _peers, cut_value, make_semirandom_cut, write_metis
from assay.testing import FakeRun


@pytest.fixture
def no_others(monkeypatch):
    """METIS and KaHIP have tests of their own."""
    monkeypatch.setattr(_peers, "_installed", lambda module: False)
    monkeypatch.setattr(_peers, "_sklearn", lambda W, parts, seed: np.arange(W.shape[0]) % parts)


def run(W, weight=None, parts=2, seed=0):
    weight = np.ones(W.shape[0]) if weight is None else weight
    rows = _peers.peer_partitions(
        W, parts, balance=0.45, imbalance=0.1, vertex_weight=weight, rng=np.random.default_rng(seed)
    )
    assert all(row["note"] == "" for row in rows)
    return {row["method"]: row["labels"] for row in rows}


def test_kernighan_lin_and_a_random_cut(no_others):
    W = make_semirandom_cut(120, eta=1.0, adversary=[], random_state=0)[0]
    W = sp.csr_array(W + nx.to_scipy_sparse_array(nx.cycle_graph(120), dtype=float, format="csr"))
    found = run(W)
    for name in ("Kernighan-Lin (networkx)", "random cut"):
        assert found[name].sum() == 60
    # a random half cuts every second edge; Kernighan-Lin improves on its own random start
    assert cut_value(W, found["random cut"]) == pytest.approx(W.sum() / 4, rel=0.25)
    assert cut_value(W, found["Kernighan-Lin (networkx)"]) < 0.9 * cut_value(W, found["random cut"])
    again = run(W)
    assert all(np.array_equal(found[name], again[name]) for name in found)


def test_kernighan_lin_on_what_it_can_do_only(no_others, monkeypatch):
    W = sp.csr_array(nx.to_scipy_sparse_array(nx.cycle_graph(30), dtype=float))
    assert "Kernighan-Lin (networkx)" not in run(W, weight=np.arange(1.0, 31.0))
    assert "Kernighan-Lin (networkx)" not in run(W, parts=3)
    weight = np.ones(30)
    weight[0] = 29.0  # the random cut halves weights, not numbers
    labels = run(W, weight=weight)["random cut"]
    assert 0 < weight[labels == 1].sum() / weight.sum() < 1
    monkeypatch.setattr(_peers, "KERNIGHAN_LIN_UP_TO", 29)
    assert "Kernighan-Lin (networkx)" not in run(W)


def test_a_random_cut_is_a_scale_and_no_rival():
    rows = [("semirandom-cut", 10.0, True), ("random cut", 500.0, True), ("METIS, ncuts 10", 12.0, False)]
    frame = pd.DataFrame(rows, columns=["method", "cut", "within_balance"]).assign(balance=0.4)
    words = _job._peer_words(frame)
    assert "No other method kept the balance." in words
    assert "random" not in words


def test_louvain_takes_part_in_the_hierarchies(tmp_path):
    pytest.importorskip("sknetwork", reason="scikit-network is a peer of the bench group")
    write_metis(tmp_path / "g.graph", nx.to_scipy_sparse_array(nx.ring_of_cliques(5, 6), dtype=float))
    record = FakeRun(tmp_path / "out")
    _job.analyse(tmp_path / "g.graph", clusters=5, leaf_size=8, run=record)
    costs = pd.read_csv(record.out / "artefacts/hierarchy_costs.csv").set_index("method")
    assert np.isfinite(costs["cost"]).all()
    # every tree pays for an edge at least the two leaves that it joins
    assert costs.loc["LouvainHierarchy (scikit-network)", "cost"] >= 2 * (5 * 15 + 5)
    assert costs.loc["semirandom-cut", "cost"] <= costs.loc["LouvainHierarchy (scikit-network)", "cost"]
