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
            # few sweeps, and parts just below the 48 vertices of the suite's graphs: its path of 20,000 vertices needs
            # 500 splits, which is what the time goes into
            make=lambda: DasguptaHierarchy(2, leaf_size=40, n_iter=10, n_directions=2),
        ),
    ]
