"""Node surrogates: gradients of the fit, conditioning, tables, paths, and fits that must not die."""

import numpy as np
import pytest
import torch
from scipy.optimize import check_grad

from assay.decisions.pkgfn._ascent import ascend
from assay.decisions.pkgfn._gp import NodeGP, fit_node, log_posterior

ZERO, ONE = torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)


def data(n=15, seed=0):
    Z = torch.rand(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Z, torch.sin(5 * Z[:, 0]) * Z[:, 1]


@pytest.mark.parametrize("infer", [False, True])
def test_gradient_of_the_fit(infer):
    Z, y = data()
    sq = ((Z[:, None] - Z[None]) ** 2).permute(2, 0, 1).numpy()
    theta = np.array([-0.5, 0.3, 0.2] + [-3.0] * infer)
    noise = np.full(len(y), 1e-3)
    error = check_grad(
        lambda t: log_posterior(t, sq, y.numpy(), noise, infer)[0],
        lambda t: log_posterior(t, sq, y.numpy(), noise, infer)[1],
        theta,
        epsilon=1e-6,
    )
    assert error < 1e-3 * np.linalg.norm(log_posterior(theta, sq, y.numpy(), noise, infer)[1])


def test_conditioning_equals_refactorisation_in_closed_form():
    Z, y = data()
    gp = fit_node(Z, y, ZERO, ONE)
    z, U = torch.tensor([[0.31, 0.77]], dtype=torch.float64), data(7, seed=3)[0]
    mean_z, var_z = gp.mean_var(z)
    v = var_z + gp.observation_noise
    told = gp.conditioned(z, mean_z + 1.3 * v.sqrt())
    cov = gp.covariance_matrix(U, z, gp.white(U), gp.white(z))[0]
    mean, var = gp.mean_var(U)
    after_mean, after_var = told.mean_var(U)
    assert torch.allclose(mean + 1.3 * cov / v.sqrt(), after_mean, atol=1e-9)
    assert torch.allclose(var - cov**2 / v, after_var, atol=1e-9)


def test_fast_mean_and_gradient_equal_the_general_ones():
    Z, y = data()
    gp = fit_node(Z, y, ZERO, ONE)
    U = data(6, seed=5)[0].requires_grad_(True)
    (fast,) = torch.autograd.grad(gp.mean(U).sum(), U)
    (slow,) = torch.autograd.grad(gp.mean_var(U)[0].sum(), U)
    assert torch.allclose(gp.mean(U), gp.mean_var(U)[0], atol=1e-9)
    assert torch.allclose(fast, slow, atol=1e-7)


def test_table_is_exact_to_1e_10_and_beyond_its_ends():
    x = torch.linspace(0, 1, 9, dtype=torch.float64)[:, None]
    gp = fit_node(x, torch.sin(6 * x[:, 0]), ZERO[:1], ONE[:1])
    table = gp.table(-0.5, 1.5)
    u = torch.rand(500, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3 - 1
    assert (table(u) - gp.mean(u[:, None])).abs().max() < 1e-8
    inside = u[(u > -0.5) & (u < 1.5)].requires_grad_(True)
    (a,) = torch.autograd.grad(table(inside).sum(), inside)
    (b,) = torch.autograd.grad(gp.mean(inside[:, None]).sum(), inside)
    assert (a - b).abs().max() < 1e-5


def test_paths_go_through_noise_free_data_and_spread_elsewhere():
    Z, y = data(8)
    gp = fit_node(Z, y, ZERO, ONE)
    path = gp.paths(64, torch.Generator().manual_seed(0))
    assert (path(Z.expand(64, -1, -1)) - y).abs().max() < 0.02
    U = torch.tensor([[0.02, 0.98], [0.9, 0.05]], dtype=torch.float64)
    drawn = path(U.expand(64, -1, -1))
    mean, var = gp.mean_var(U)
    assert ((drawn.mean(0) - mean).abs() < 4 * (var / 64).sqrt() + 1e-6).all()
    assert ((drawn.var(0) / var) - 1).abs().max() < 0.8


def test_same_generator_same_path():
    Z, y = data(8)
    gp = fit_node(Z, y, ZERO, ONE)
    a, b = (gp.paths(2, torch.Generator().manual_seed(4))(Z.expand(2, -1, -1)) for _ in range(2))
    assert torch.equal(a, b)


@pytest.mark.parametrize("value", [0.0, 3.0, -1e9])
def test_constant_outputs(value):
    Z, _ = data(6)
    gp = fit_node(Z, torch.full((6,), value, dtype=torch.float64), ZERO, ONE)
    assert torch.allclose(gp.mean(Z), torch.tensor(value, dtype=torch.float64), atol=1e-6 * max(1, abs(value)))


def test_near_duplicates_raise_the_noise_instead_of_failing():
    Z, y = data(6)
    Z = torch.cat([Z, Z + 1e-13, Z + 2e-13])
    gp = fit_node(Z, torch.cat([y, y + 0.3, y - 0.2]), ZERO, ONE)
    assert torch.isfinite(gp.mean(Z)).all()


def test_no_and_one_observation():
    empty = fit_node(torch.zeros(0, 2, dtype=torch.float64), torch.zeros(0, dtype=torch.float64), ZERO, ONE)
    mean, var = empty.mean_var(data(3)[0])
    assert mean.tolist() == [0.0] * 3
    assert (var > 0.5).all()
    Z, y = data(1)
    assert float(fit_node(Z, y, ZERO, ONE).mean(Z)[0]) == pytest.approx(float(y[0]), abs=1e-4)


def test_inferred_noise_is_found():
    Z, y = data(60)
    noisy = y + 0.1 * torch.randn(60, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    gp = fit_node(Z, noisy, ZERO, ONE, infer=True)
    assert 0.003 < gp.observation_noise < 0.03
    assert float((gp.mean(Z) - y).pow(2).mean().sqrt()) < 0.07


def test_saved_numbers_give_the_same_posterior():
    Z, y = data()
    gp = fit_node(Z, y, ZERO, ONE)
    twin = NodeGP.from_hyperparameters(Z, y, None, gp.hyperparameters())
    U = data(5, seed=9)[0]
    assert torch.equal(gp.mean(U), twin.mean(U))


def test_ascent_finds_maxima_at_bounds_and_inside_and_keeps_held_coordinates():
    def f(X):
        return -((X[:, 0] - 0.3) ** 2) * 50 + X[:, 1] - (X[:, 2] - X[:, 0]) ** 2

    start = torch.rand(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    low, high = torch.zeros(6, 3, dtype=torch.float64), torch.ones(6, 3, dtype=torch.float64)
    low[0, 2] = high[0, 2] = start[0, 2]
    X, value = ascend(f, start, low, high)
    assert torch.allclose(X[1:], torch.tensor([0.3, 1.0, 0.3], dtype=torch.float64), atol=1e-4)
    assert X[0, 2] == start[0, 2]
    assert torch.allclose(value, f(X))
    assert (value >= f(start)).all()
