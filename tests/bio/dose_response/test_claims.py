"""The claims: cheap to import, complete, and every experiment runs with arms that see the same data."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from assay.bio.dose_response import DoseResponseData, claims
from assay.claims import Source

SMILES = {
    "Irinotecan": "CCc1c2c(nc3ccccc13)-c1cc3c(c(=O)n1C2)COC(=O)C3(O)CC",
    "Topotecan": "CCC1(O)C(=O)OCc2c1cc1n(c2=O)Cc2cc3c(CN(C)C)c(O)ccc3nc2-1",
    "aspirin": "CC(=O)Oc1ccccc1C(=O)O",
    "caffeine": "Cn1cnc2c1c(=O)n(C)c(=O)n2C",
}


def screen_with_everything():
    rng = np.random.default_rng(0)
    cells = [f"c{i:02d}" for i in range(12)]
    genes = pd.DataFrame(rng.normal(size=(12, 25)), index=cells, columns=[f"g{i}" for i in range(25)])
    rows = []
    for d, name in enumerate(SMILES):
        for c in cells:
            x = np.linspace(-2, 1, 6)
            effect = 1 / (1 + np.exp(-3 * (x - 0.2 * d + 0.3 * genes.loc[c, "g0"]))) + 0.05 * rng.normal(size=(3, 6))
            rows += [(name, c, 10 ** x[k], r, effect[r, k]) for r in range(3) for k in range(6)]
    table = pd.DataFrame(rows, columns=["drug", "cell_line", "dose_uM", "replicate", "y"])
    return DoseResponseData.from_long(
        table, response="y", response_type="inhibition", replicates="median", smiles=SMILES, expression=genes
    )


@pytest.fixture(scope="module")
def source():
    data = screen_with_everything()
    return Source("synthetic", data=data, task="curves", fingerprint="synthetic", n_rows=data.n_curves)


SIZES = {
    "held_out_doses": {"setting": "smoothing", "epochs": 2},
    "unseen_lines": {"folds": 3, "epochs": 1, "trees": 3},
    "unseen_drugs": {"epochs": 1},
    "scarce_curves": {"fractions": [0.5, 1.0], "max_epochs": 2},
}


def experiment_arms():
    return sorted({(c.experiment, arm) for c in claims.CLAIMS for arm in c.arms})


@pytest.mark.parametrize(("experiment", "arm"), experiment_arms())
def test_every_arm_of_every_experiment_runs_and_gives_its_metrics(source, experiment, arm):
    detail = any(
        c.metric != "mse" for c in claims.CLAIMS if c.experiment == experiment == "held_out_doses" and arm in c.arms
    )
    size = SIZES[experiment] | ({"detail": True} if detail else {})
    result = getattr(claims, experiment)(arm, 1000, source, size, "cpu")
    for claim in claims.CLAIMS:
        if claim.experiment == experiment and arm in claim.arms:
            if claim.metric == "mse_biphasic" and claim.metric not in result:
                assert result["n_biphasic"] == 0  # this screen has none; the metric is then absent, not zero
                continue
            assert np.isfinite(result[claim.metric]), claim.id


def test_arms_of_a_pair_see_the_same_points_and_seeds_differ(source):
    size = {"setting": "smoothing", "lines": 6, "epochs": 2}
    sums = [
        claims.held_out_doses(arm, 1000, source, size, "cpu")["split_sum"]
        for arm in ("arcanet", "hill2", "drug-mean-gp")
    ]
    assert len(set(sums)) == 1
    assert claims.held_out_doses("hill2", 1001, source, size, "cpu")["split_sum"] != sums[0]


@pytest.mark.slow  # of the models themselves the default tests say the same
def test_a_cell_is_deterministic(source):
    size = {"setting": "extrapolation", "epochs": 2}
    a, b = (claims.held_out_doses("arcanet", 1000, source, size, "cpu") for _ in range(2))
    assert a["mse"] == b["mse"]


def test_folds_are_the_seeds_and_cover_every_line(source):
    size = {"folds": 3}
    parts = [claims.unseen_lines("drug-mean", 1000 + k, source, size, "cpu") for k in range(3)]
    assert len({p["mse"] for p in parts}) == 3
    drugs = [claims.unseen_drugs("global-mean", 1000 + k, source, {}, "cpu") for k in range(4)]
    assert sorted(d["drug"] for d in drugs) == sorted(SMILES)
    assert [d["target_sharing"] for d in drugs] == [True, True, False, False]
    near = claims.unseen_drugs("nearest-drug-mean", 1000, source, {}, "cpu")
    assert (near["drug"], near["from"]) == ("Irinotecan", "Topotecan")


def test_the_report_is_given_the_crossing_and_the_errors_by_drug(source):
    """What the claims say is drawn arrives where the report looks for it, and equals the metrics."""
    from assay.claims import _report

    scarce = claims.scarce_curves("hill2", 1000, source, SIZES["scarce_curves"], "cpu")
    lines = claims.unseen_lines("drug-mean", 1000, source, SIZES["unseen_lines"], "cpu")
    by_drug = lines["curves"]["by_drug"]
    assert by_drug["y"] == lines["mse_by_drug"]
    assert [sorted(SMILES)[k - 1] for k in by_drug["x"]] == lines["drug"]
    # Every drug was measured on every line, so the mean over drugs is the mean over points.
    assert np.mean(lines["mse_by_drug"]) == pytest.approx(lines["mse"])
    for name, metrics, n in (("hill-wins-when-scarce", scarce, 2), ("unseen-lines", lines, 4)):
        claim = next(c for c in claims.CLAIMS if c.id == f"dose-response/{name}")
        [(_, arms, _)] = _report._curves(claim, [{"status": "ok", "arm": "x", "metrics": metrics}])
        [(x, y)] = arms["x"]
        assert len(x) == len(y) == n
    assert scarce["curves"]["scarce"]["y"] == scarce["mse_curve"]


def test_declarations_are_complete():
    ids = [c.id for c in claims.CLAIMS]
    assert len(set(ids)) == len(ids)
    for claim in claims.CLAIMS:
        assert claim.id.startswith("dose-response/")
        assert claim.margin_reason, claim.id
        assert set(claim.tiers) == {"quick", "standard", "full"}
        assert claim.tiers["standard"].seeds >= 5
        assert set(claim.data) <= set(claims.SOURCES)
        assert callable(getattr(claims, claim.experiment))


def test_declarations_import_nothing_heavy():
    code = (
        "import sys, assay.bio.dose_response.claims\n"
        "heavy = {'torch', 'numpy', 'sklearn', 'pandas', 'scipy', 'rdkit'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_shipped_source_needs_no_download():
    sarcoma = claims.SOURCES["sarcoma"]()
    assert sarcoma.data.n_curves == 2448
    assert sarcoma.fingerprint == claims.SOURCES["sarcoma"]().fingerprint
