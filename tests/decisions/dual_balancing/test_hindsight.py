"""The benchmark against brute force over the vertices of its polytope."""

import itertools
import math

import numpy as np
import pytest

from assay._core.errors import InputError
from assay.decisions.dual_balancing import hindsight_optimum, slater_margin
from assay.decisions.dual_balancing._hindsight import means, solve


def vertices(rows, limits, K):
    """All vertices of the simplex cut by rows @ q <= limits: K tight constraints out of all, solved as they stand."""
    A = np.vstack([*rows, -np.eye(K)])
    b = np.concatenate([limits, np.zeros(K)])
    for tight in itertools.combinations(range(len(A)), K - 1):
        M = np.vstack([np.ones(K), A[list(tight)]])
        if abs(np.linalg.det(M)) < 1e-12:
            continue
        q = np.linalg.solve(M, np.concatenate([[1.0], b[list(tight)]]))
        if (A @ q <= b + 1e-10).all():
            yield q


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("omega", [None, 0.8, 1.6])
def test_linear_program_equals_brute_force(seed, omega):
    rng = np.random.default_rng(seed)
    f, c = rng.random((40, 3)), rng.random((40, 3))
    f[:, 0] = c[:, 0] = 0
    rho = float(rng.uniform(0.05, 0.6))
    fbar, cbar = f.mean(axis=0), c.mean(axis=0)
    rows, limits = [cbar], [rho]
    if omega is not None:
        rows.append(omega * cbar - fbar)
        limits.append(0.0)
    best = max(fbar @ q for q in vertices(rows, limits, 3))
    value, q = hindsight_optimum(f, c, rho, omega)
    assert value == pytest.approx(best, abs=1e-9)
    assert q.sum() == pytest.approx(1)
    assert cbar @ q <= rho + 1e-9
    assert fbar @ q == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_marginal_values_are_the_slopes_of_the_value(seed):
    rng = np.random.default_rng(seed)
    f, c = rng.random((50, 6)), rng.random((50, 6))
    f[:, 0] = c[:, 0] = 0
    args = means(f, c, None)
    found = solve(*args, 0.2, 1.3)
    h = 1e-6
    assert found.budget_price == pytest.approx((solve(*args, 0.2 + h, 1.3).value - found.value) / h, abs=1e-5)
    assert found.roi_price == pytest.approx((found.value - solve(*args, 0.2, 1.3 + h).value) / h, abs=1e-4)


def test_contexts_can_only_help():
    rng = np.random.default_rng(0)
    f, c, label = rng.random((100, 4)), rng.random((100, 4)), rng.integers(0, 3, 100)
    f[:, 0] = c[:, 0] = 0
    plain, _ = hindsight_optimum(f, c, 0.2, 1.1)
    value, mixture = hindsight_optimum(f, c, 0.2, 1.1, contexts=label)
    assert value >= plain - 1e-12
    assert mixture.shape == (3, 4)
    played = mixture[label]
    assert (played * f).sum(axis=1).mean() == pytest.approx(value)
    assert (played * c).sum(axis=1).mean() <= 0.2 + 1e-9


def test_value_does_not_depend_on_the_unit():
    rng = np.random.default_rng(1)
    f, c = rng.random((30, 4)), rng.random((30, 4))
    f[:, 0] = c[:, 0] = 0
    value, _ = hindsight_optimum(f, c, 0.1, 1.2)
    for unit in (1e-9, 1e9):
        scaled, _ = hindsight_optimum(unit * f, unit * c, unit * 0.1, 1.2)
        assert scaled == pytest.approx(unit * value, rel=1e-7)


def test_margin_is_what_all_constraints_leave():
    f, c = np.array([[0, 0.9, 0.4]]), np.array([[0, 0.6, 0.1]])
    grid = np.array([q for q in itertools.product(np.linspace(0, 1, 201), repeat=2) if sum(q) <= 1 + 1e-12])
    q = np.column_stack((1 - grid.sum(axis=1), grid))
    brute = np.minimum(0.2 - q @ c[0], -(q @ (1.2 * c[0] - f[0]))).max()
    assert slater_margin(f, c, 0.2, 1.2) == pytest.approx(brute, abs=0.01)
    assert slater_margin(f, c, 0.2, 1.2) >= brute - 1e-12


def test_margin_of_blocks_is_the_smallest():
    rng = np.random.default_rng(2)
    f, c = rng.random((60, 3)), rng.random((60, 3))
    f[:, 0] = c[:, 0] = 0
    parts = [slater_margin(f[s : s + 20], c[s : s + 20], 0.3, 1.1) for s in (0, 20, 40)]
    assert slater_margin(f, c, 0.3, 1.1, block=20) == min(parts)
    assert slater_margin(f, c, math.inf) == math.inf


@pytest.mark.parametrize("omega", [None, 1.1])
def test_margin_where_the_budget_cannot_bind(omega):
    f, c = np.array([[0.0, 0.8, 0.3]]), np.array([[0.0, 0.5, 0.2]])
    for rho in (1.0, 50.0, 1e25, 1e300):  # from about 1e20 on the solver takes a limit for infinite
        got = slater_margin(f, c, rho, omega)
        assert got == pytest.approx(rho if omega is None else 0.25, rel=1e-9)
        assert hindsight_optimum(f, c, rho, omega)[0] == pytest.approx(0.8)


@pytest.mark.parametrize(("rho", "omega"), [(-1.0, None), (math.nan, None), (0.1, -1.0), (0.1, math.nan), (0.1, 1e308)])
def test_bad_limits_are_refused(rho, omega):
    for function in (hindsight_optimum, slater_margin):
        with pytest.raises(InputError, match=r"rho|omega"):
            function([[0.0, 1.0]], [[0.0, 0.5]], rho, omega)


def test_bad_tables_are_refused():
    with pytest.raises(InputError):
        hindsight_optimum([[0, 1]], [[0, 1, 2]], 0.1)
    with pytest.raises(InputError):
        hindsight_optimum([[0, np.nan]], [[0, 1]], 0.1)
    with pytest.raises(InputError, match="void"):
        hindsight_optimum([[0.1, 0.2]], [[0.5, 0.6]], 0.1)  # no action is cheap enough
    with pytest.raises(InputError):
        slater_margin([[0, 1]], [[0, 1]], 0.1, block=0)
