"""Conductance and sweep cuts against enumeration; local clusters."""

import itertools

import numpy as np
import pytest

from assay import InputError
from assay.graphs.hypergraph_diffusion import Hypergraph, HypergraphLocalClustering, conductance, sweep_cut
from assay.graphs.hypergraph_diffusion._experiments import random_hypergraph


def brute(H, mask):
    cut = sum(w for h, w in enumerate(H.edge_weight) if 0 < mask[H.members(h)].sum() < H.sizes[h])
    return cut / min(H.degree[mask].sum(), H.degree[~mask].sum())


@pytest.mark.parametrize("seed", range(5))
def test_sweep_is_the_best_prefix(seed):
    rng = np.random.default_rng(seed)
    H = random_hypergraph(14, 18, rng)
    x = np.round(rng.normal(size=14), 1)
    values = {}
    for level in np.unique(x)[1:]:
        mask = x >= level
        values[level] = brute(H, mask)
        assert conductance(H, mask) == pytest.approx(values[level])
    mask, phi = sweep_cut(H, x)
    assert phi == pytest.approx(min(values.values()))
    assert brute(H, mask) == pytest.approx(phi)


def test_planted_cluster_is_found_and_optimal():
    blocks = [list(c) for b in (range(5), range(5, 12)) for c in itertools.combinations(b, 3)]
    H = Hypergraph.from_edges([*blocks, [4, 5], [0, 11]])
    model = HypergraphLocalClustering([1, 2]).fit(H)
    assert np.flatnonzero(model.labels_).tolist() == [0, 1, 2, 3, 4]
    every = (np.arange(1, 2**12 - 1)[:, None] >> np.arange(12)) % 2  # all sets but none and all
    count = every @ H.incidence.toarray().T
    cut = ((count > 0) & (count < H.sizes)) @ H.edge_weight
    best = (cut / np.minimum(every @ H.degree, (1 - every) @ H.degree)).min()
    assert model.conductance_ == pytest.approx(best)
    assert model.profile_["conductance"].min() == pytest.approx(best)


def test_a_cluster_lies_around_its_seeds_not_around_everything_else():
    """A ring of cliques with a tail that hangs by a light thread: cutting off the tail is cheaper, but no cluster of 0."""
    cliques = [list(c) for k in range(6) for c in itertools.combinations(range(5 * k, 5 * k + 5), 3)]
    ring = [[5 * k + 4, 5 * ((k + 1) % 6)] for k in range(6)]
    tail = [[30, 31, 32], [30, 32], [31, 32]]
    H = Hypergraph.from_edges([*cliques, *ring, *tail, [17, 30]], edge_weight=[1.0] * (len(cliques) + 9) + [1e-4])
    model = HypergraphLocalClustering([0, 1], lam=0.02).fit(H)
    inside = model.labels_ == 1
    assert model.profile_["conductance"].min() < model.conductance_  # the sweep over everything finds the tail
    assert H.degree[inside].sum() <= 0.5 * H.degree.sum()
    assert set(range(5)) <= set(np.flatnonzero(inside))
    assert brute(H, inside) == pytest.approx(model.conductance_)


def test_other_components_stay_outside():
    H = Hypergraph.from_edges([[0, 1, 2], [1, 2], [3, 4, 5]])
    model = HypergraphLocalClustering([0]).fit(H)
    assert np.all(model.labels_[3:] == 0)
    assert np.all(model.scores_[3:] == 0)
    assert model.conductance_ == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda H: conductance(H, np.ones(3, dtype=bool)), "neither empty nor everything"),
        (lambda H: conductance(H, [1, 0, 0]), "one boolean per vertex"),
        (lambda H: sweep_cut(H, np.ones(3)), "all scores are equal"),
        (lambda H: sweep_cut(H, [np.nan, 0, 1]), "finite"),
        (lambda H: HypergraphLocalClustering([]).fit(H), "seeds must be"),
        (lambda H: HypergraphLocalClustering([7]).fit(H), "seeds must be"),
        (lambda H: HypergraphLocalClustering(7).fit(H), "seeds must be"),
        (lambda H: HypergraphLocalClustering(v for v in [7]).fit(H), "seeds must be"),
        (lambda H: HypergraphLocalClustering([0], lam=-1).fit(H), "lam"),
        (lambda H: HypergraphLocalClustering([0]).fit([[1]]), "must be a Hypergraph"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InputError, match=words):
        call(Hypergraph.from_edges([[0, 1], [1, 2]]))


def test_isolated_seed():
    with pytest.raises(InputError, match="in no hyperedge"):
        HypergraphLocalClustering([3]).fit(Hypergraph.from_edges([[0, 1], [1, 2]], n_nodes=4))
