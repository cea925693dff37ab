"""A third-party method made on the spot: a package with a card and claims, found through its entry point like any other."""

import importlib
import os
import sys
import textwrap

import pytest

from assay._core import registry

CARD = """
slug = "{slug}"
field = "toys"
title = "Toy {slug}"
summary = "For tests."
kind = "calculator"
brings = "nothing"
yields = "numbers"
demo = "{name}._job:demo"
[paper]
title = "A toy paper"
authors = ["A. Uthor"]
arxiv = "0000.00000"
[commands]
"""

HEAD = """
from assay.claims import *
from assay.claims import Claim, Tier

TIERS = {"quick": Tier(seeds=3, limit_s=30), "standard": Tier(seeds=5, limit_s=30), "full": Tier(seeds=10, limit_s=30)}


def claim(name, **fields):
    given = dict(
        id=f"SLUG/{name}", says=f"The toy shows {name}.", experiment="experiment", metric="score", ours="ours",
        against=["theirs"], tiers=TIERS, unit="%", paper="1.2 % (table 2)", caveat="A toy.", where="abstract",
    )
    return Claim(**{**given, **fields})

"""


@pytest.fixture
def toy_method(tmp_path, monkeypatch):
    """A function (name, source of claims.py) -> folder of a new installed method `name` (slug with hyphens)."""
    made = []

    def make(name, source):
        slug = name.replace("_", "-")
        folder = tmp_path / "site" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text('"""A toy."""\n')
        (folder / "card.toml").write_text(CARD.format(slug=slug, name=name))
        (folder / "claims.py").write_text(HEAD.replace("SLUG", slug) + textwrap.dedent(source))
        info = tmp_path / "site" / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[assay.methods]\n{slug} = {name}\n")
        if str(tmp_path / "site") not in sys.path:
            monkeypatch.syspath_prepend(str(tmp_path / "site"))
            # A subprocess must find it too.
            monkeypatch.setenv(
                "PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
            )
        importlib.invalidate_caches()
        registry._walk.cache_clear()
        made.append(name)
        return folder

    monkeypatch.chdir(tmp_path)
    yield make
    registry._walk.cache_clear()
    for name in made:
        for module in [m for m in sys.modules if m == name or m.startswith(name + ".")]:
            del sys.modules[module]


GAUSS = """
CLAIMS = [claim("better", test=Superior(by=1.0), margin_reason="half the effect")]


def experiment(arm, seed, data, size, device):
    import numpy as np

    shared = np.random.default_rng(seed).normal(10, 3)
    own = np.random.default_rng([seed, len(arm)]).normal(0, 0.2)
    return {"score": shared + own + (2.0 if arm == "ours" else 0.0), "same_split": str(shared)}
"""


@pytest.fixture
def gauss(toy_method):
    """A method with one claim whose effect is known: 2 with a spread of 0.28."""
    return toy_method("toy_gauss", GAUSS)
