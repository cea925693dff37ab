"""The public objects of this method that must keep the contract of kind "online learner"."""

from __future__ import annotations

from typing import Any


def cases():
    import numpy as np

    from assay.testing import Case

    from . import DualBalancing

    def data() -> tuple[Any, Any]:
        reward, cost = np.random.default_rng(0).random((2, 60, 5)) * (np.arange(5) > 0)
        return reward, cost

    def case(name: str, **settings: Any) -> Case:
        # room enough for the easy stream of the checks, which costs nothing
        defaults: dict[str, Any] = {"horizon": 2000, "budget": 600.0, "n_actions": 5}
        return Case(name=name, kind="online learner", make=lambda: DualBalancing(**defaults | settings), data=data)

    return [
        case("DualBalancing"),
        case("DualBalancing-roi", roi_target=1.2),
        case("DualBalancing-bandit", feedback="bandit", roi_target=1.2),
        case("DualBalancing-one-sided", feedback="one_sided"),
        case("DualBalancing-hedge", primal="hedge", roi_target=1.0),
        case("DualBalancing-doubling", horizon=500, budget=150.0, overrun="double"),
    ]
