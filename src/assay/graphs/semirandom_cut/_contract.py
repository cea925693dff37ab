"""The public objects of this method that must keep the contract of kind "graph algorithm"."""

from __future__ import annotations


def cases():
    from assay.testing import Case

    from . import DasguptaHierarchy, SemiRandomBisection, SemiRandomKWay

    return [
        Case(name="SemiRandomBisection", kind="graph algorithm", make=lambda: SemiRandomBisection(n_iter=100)),
        Case(name="SemiRandomKWay", kind="graph algorithm", make=lambda: SemiRandomKWay(2, n_iter=50)),
        Case(
            name="DasguptaHierarchy",
            kind="graph algorithm",
            # few sweeps: the suite's path of 20,000 vertices needs more than a hundred cuts
            make=lambda: DasguptaHierarchy(n_iter=10, n_directions=2),
        ),
    ]
