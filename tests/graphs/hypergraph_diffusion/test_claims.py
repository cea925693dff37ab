"""What the experiments return, on the smallest sizes."""

import numpy as np

from assay.graphs.hypergraph_diffusion import _experiments as experiments
from assay.graphs.hypergraph_diffusion.claims import CLAIMS


def test_arms_of_a_pair_see_the_same_labels_and_the_star_picks_its_best():
    data = experiments.load_source("zoo")
    size = {"labels": 20, "repeats": 1, "published": 33.0}
    found = {
        arm: experiments.ssl(arm, 0, data, size)
        for arm in ("paper", "default", "star-plain", "star-balanced", "logistic")
    }
    assert all(0 <= result["error_percent"] <= 100 for result in found.values())
    assert found["star-plain"]["best_lam"] in (0.01, 0.1, 1.0)
    assert found["paper"]["off_published"] == found["paper"]["error_percent"] - 33.0
    again = experiments.ssl("default", 0, data, size)
    assert again == found["default"]


def test_manifolds_lie_where_they_should():
    rng = np.random.default_rng(0)
    for dim in (2, 7):
        X, y = experiments.manifold_points("spheres", dim, 200, rng)
        assert np.abs(np.linalg.norm(X[y == 1], axis=1)).max() <= 1
        X, y = experiments.manifold_points("boxes", dim, 200, rng)
        half = np.r_[2.0, np.ones(dim - 1)]
        assert np.abs((np.abs(X[y == -1]) / half).max(axis=1) - 1).mean() < 0.2  # on the surface, up to noise
        assert X[y == 1][:, 0].std() > X[y == 1][:, 1].std()


def test_memory_and_growth_report_what_they_measure():
    assert max(experiments.memory(0, {"nnz": [50_000], "columns": [1, 6]})["bytes_per_incidence"]) < 40
    found = experiments.growth("ordered", 0, {"nnz": [3000, 6000]})
    assert len(found["seconds"]) == len(found["nnz"]) == 2


def test_every_margin_has_its_reason_and_sources_are_named():
    assert all(len(claim.margin_reason) > 10 for claim in CLAIMS)
    assert {name for claim in CLAIMS for name in claim.data} == {"mushroom", "zoo", "20news", "dblp", "none"}
