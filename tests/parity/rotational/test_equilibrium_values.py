"""Equilibrium values against numbers worked out with 50 digits."""

import json
from pathlib import Path

import pytest

from assay.training.rotational import equilibrium

REFERENCE = json.loads((Path(__file__).parent / "equilibrium.json").read_text())


@pytest.mark.parametrize("case", REFERENCE["cases"], ids=lambda c: "-".join(str(v) for v in c["arguments"].values()))
def test_closed_forms(case):
    found = equilibrium(**case["arguments"])
    for name, value in case["expected"].items():
        # Float inputs such as 0.1 are already rounded: a few ulps.
        assert getattr(found, name) == pytest.approx(float(value), rel=1e-12), name
