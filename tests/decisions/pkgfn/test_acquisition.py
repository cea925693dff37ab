"""Acquisitions: exactness against refactorised models, bounds, invariances, gradients, what is refused."""

import math

import pytest
import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.models.cost import AffineFidelityCostModel
from botorch.optim import optimize_acqf

from assay._core.errors import InputError
from assay.decisions.pkgfn import (
    ExpectedImprovementFN,
    FunctionNetwork,
    FunctionNetworkModel,
    KnowledgeGradientFN,
    NetworkPosteriorMean,
    PartialKnowledgeGradientFN,
    ThompsonSamplingFN,
    expected_max_affine,
)
from assay.decisions.pkgfn._acquisition import _intervals, _intervals_walk
from assay.decisions.pkgfn._experiments import _piecewise, identity
from assay.decisions.pkgfn._model import InnerNodes


def rand(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- the envelope ---


@pytest.mark.parametrize("seed", range(8))
def test_expected_max_equals_every_crossing(seed):
    g = torch.Generator().manual_seed(seed)
    alpha, beta = (torch.randn(9, generator=g, dtype=torch.float64) for _ in range(2))
    beta[3] = beta[4]  # parallel lines
    alpha[5], beta[5] = alpha[6], beta[6]  # equal lines
    assert float(expected_max_affine(alpha, beta)) == pytest.approx(_piecewise(alpha.numpy(), beta.numpy()), abs=1e-12)


def test_both_ways_to_the_envelope_agree():
    alpha, beta = rand(4, 50) - 0.5, rand(4, 50, seed=1) - 0.5
    beta[:, 7] = beta[:, 8]
    low, high = _intervals(alpha, beta)
    for i in range(4):
        a, b = _intervals_walk(alpha[i].numpy(), beta[i].numpy())
        assert torch.allclose(low[i], torch.from_numpy(a))
        assert torch.allclose(high[i], torch.from_numpy(b))
    many = rand(140), rand(140, seed=2)
    assert float(expected_max_affine(*many)) == pytest.approx(_piecewise(many[0].numpy(), many[1].numpy()), abs=1e-12)


def test_expected_max_is_at_least_the_max_and_scales():
    alpha, beta = rand(5, 12), rand(5, 12, seed=1)
    value = expected_max_affine(alpha, beta)
    assert (value >= alpha.amax(-1)).all()
    assert torch.allclose(expected_max_affine(3 * alpha + 2, 3 * beta), 3 * value + 2)
    assert torch.allclose(expected_max_affine(alpha, 0 * beta), alpha.amax(-1))
    assert torch.allclose(expected_max_affine(alpha, -beta), value)


def test_expected_max_gradient():
    alpha, beta = rand(2, 6).requires_grad_(True), rand(2, 6, seed=1).requires_grad_(True)
    assert torch.autograd.gradcheck(expected_max_affine, (alpha, beta))


# --- exactness ---


def test_one_node_and_last_node_are_exact():
    found = identity(0, {"instances": 6})
    assert max(found["error_single"]) < 1e-8
    assert max(found["error_last"]) < 1e-8
    assert max(found["value_last"]) > 1e-4, "values of nothing would prove nothing"


@pytest.mark.parametrize("tabulate", [True, False])
def test_first_node_equals_refactorised_models_at_equal_nodes(fitted, designs, tabulate):
    acqf = PartialKnowledgeGradientFN(fitted, 0, designs, tabulate=tabulate)
    inner = InnerNodes.make(fitted.network)
    for z in rand(3, 2, seed=4):
        models, weights = fitted.fantasize(0, z)
        with torch.no_grad():
            plain = (
                sum(w * m.expected_utility(designs, inner).max() for m, w in zip(models, weights)) - acqf.current_value
            )
        assert float(acqf(z.reshape(1, 1, 2))[0]) == pytest.approx(float(plain), abs=1e-8)


def test_groups_and_products_equal_refactorised_models():
    """DT and TS under a product: affine in each, so that both values are exact."""
    net = FunctionNetwork(
        [[], []], [[0, 1], [0, 1]], torch.tensor([[0.0] * 2, [1.0] * 2]), [1, 1], objective="(2 - node0)*node1"
    )
    X = rand(4, 2)
    model = FunctionNetworkModel([X, X], [torch.sin(4 * X[:, 0]), X.sum(-1) ** 2], net)
    A, many = rand(9, 2, seed=3), rand(64, 1, 2, seed=5)
    for node in (0, 1):
        values = PartialKnowledgeGradientFN(model, node, A)(many)
        z, exact = many[values.argmax()][None], float(values.max())
        models, weights = model.fantasize(node, z[0, 0], num_fantasies=200)
        inner = InnerNodes.make(net)
        with torch.no_grad():
            now = model.expected_utility(A, inner).max()
            plain = sum(w * (m.expected_utility(A, inner).max() - now) for m, w in zip(models, weights))
        # 200 quadrature nodes of a piecewise linear function: an error of 1e-3 of its scale at the kinks
        assert exact == pytest.approx(float(plain), rel=0.02, abs=1e-6)
        assert exact > 1e-3
    both = FunctionNetwork(
        [[], []], [[0, 1], [0, 1]], net.bounds, [1, 1], node_groups=[[0, 1]], objective="node0 + node1"
    )
    joint = FunctionNetworkModel([X, X], [torch.sin(4 * X[:, 0]), X.sum(-1) ** 2], both)
    together = float(PartialKnowledgeGradientFN(joint, 0, A, num_fantasies=512)(z)[0])
    # the sum of two independent answers is one normal answer: exact by the lines of the joint slope
    slopes = []
    for k in (0, 1):
        gp = joint.nodes[k]
        v = gp.mean_var(z[0])[1] + gp.observation_noise
        slopes.append(gp.covariance_matrix(A, z[0], gp.white(A), gp.white(z[0]))[0] / v.sqrt())
    mean = joint.nodes[0].mean(A) + joint.nodes[1].mean(A)
    samples = torch.randn(40_000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain = (mean + samples @ torch.stack(slopes)).amax(-1).mean() - mean.max()
    assert together == pytest.approx(float(plain), rel=0.05)


def test_mean_of_a_chain_against_samples(fitted):
    x = rand(4, 3, seed=7)
    value = NetworkPosteriorMean(fitted)(x.unsqueeze(1))
    g = torch.Generator().manual_seed(0)
    m0, v0 = fitted.nodes[0].mean_var(x[:, :2])
    y0 = m0 + v0.sqrt() * torch.randn(100_000, 4, generator=g, dtype=torch.float64)
    y1 = torch.cat(
        [fitted.nodes[1].mean(torch.stack([x[:, 2].expand_as(part), part], dim=-1)) for part in y0.split(20_000)]
    )
    error = y1.std(0) / math.sqrt(100_000)
    assert ((value - y1.mean(0)).abs() < 3 * error + 1e-9).all()


def test_expected_improvement_against_samples(fitted):
    x = rand(3, 3, seed=8)
    acqf = ExpectedImprovementFN(fitted, best_f=0.6)
    sampled = fitted.posterior(x.unsqueeze(1)).rsample(torch.Size([40_000]))[..., 0, 0]
    gain = (sampled - 0.6).clamp_min(0.0)
    assert ((acqf(x.unsqueeze(1)) - gain.mean(0)).abs() < 4 * gain.std(0) / 200 + 1e-6).all()


def test_values_are_not_negative_and_nil_where_the_answer_is_known(fitted, designs):
    for node in (0, 1):
        acqf = PartialKnowledgeGradientFN(fitted, node, designs)
        z = rand(40, 1, 2, seed=node)
        assert float(acqf(z).min()) > -1e-5  # error of eight answers and sixteen inner nodes
        known = fitted.nodes[node].Z[:5].unsqueeze(1)
        assert float(acqf(known).abs().max()) < 1e-4


def test_value_does_not_depend_on_the_order_or_repetition_of_the_set(fitted, designs):
    z = rand(5, 1, 2, seed=2)
    a = PartialKnowledgeGradientFN(fitted, 0, designs)(z)
    b = PartialKnowledgeGradientFN(fitted, 0, torch.cat([designs.flip(0), designs[:4]]))(z)
    assert torch.allclose(a, b, atol=1e-10)


def test_more_designs_never_lower_the_best_mean(fitted, designs):
    few = PartialKnowledgeGradientFN(fitted, 0, designs[:5])
    many = PartialKnowledgeGradientFN(fitted, 0, designs)
    z = rand(5, 1, 2, seed=2)
    assert (many(z) + many.current_value >= few(z) + few.current_value - 1e-9).all()


def test_chunks_change_nothing(fitted, designs, monkeypatch):
    acqf = PartialKnowledgeGradientFN(fitted, 0, designs)
    z = rand(9, 1, 2)
    whole = acqf(z)
    acqf._work_per_row = 3_000_000  # two rows a chunk
    assert torch.allclose(acqf(z), whole, atol=1e-12)


def test_irrelevant_nodes_have_no_value():
    net = FunctionNetwork([[], []], [[0], [0]], torch.tensor([[0.0], [1.0]]), [1, 1], objective="node0")
    X = rand(5, 1)
    model = FunctionNetworkModel([X, X], [X, X**2], net)
    assert PartialKnowledgeGradientFN(model, 1, X)(rand(3, 1, 1)).tolist() == [0.0] * 3


def test_cost_aware_utility_divides(fitted, designs):
    from botorch.acquisition.cost_aware import InverseCostWeightedUtility

    cost = AffineFidelityCostModel(fidelity_weights={0: 2.0}, fixed_cost=1.0).double()
    plain = PartialKnowledgeGradientFN(fitted, 0, designs)
    priced = PartialKnowledgeGradientFN(fitted, 0, designs, cost_aware_utility=InverseCostWeightedUtility(cost))
    z = rand(40, 1, 2)
    z = z[plain(z) > 1e-6]  # BoTorch multiplies negative values by the cost instead
    assert len(z) > 3
    assert torch.allclose(priced(z) * (1 + 2 * z[:, 0, 0]), plain(z), atol=1e-10)


@pytest.mark.parametrize("node", [0, 1])
def test_gradients_equal_finite_differences(fitted, designs, node):
    acqf = PartialKnowledgeGradientFN(fitted, node, designs)
    z = (0.2 + 0.6 * rand(3, 1, 2, seed=3)).requires_grad_(True)
    (gradient,) = torch.autograd.grad(acqf(z).sum(), z)
    for j in range(2):
        step = torch.zeros_like(z)
        step[..., j] = 1e-5
        with torch.no_grad():
            slope = (acqf(z + step) - acqf(z - step)) / 2e-5
        assert (gradient[:, 0, j] - slope).abs().max() < 1e-4


def test_botorch_optimises_monte_carlo_acquisitions_on_the_model(fitted):
    acqf = qLogExpectedImprovement(fitted, best_f=0.5)
    x, value = optimize_acqf(
        acqf, bounds=fitted.network.bounds, q=2, num_restarts=2, raw_samples=32, options={"maxiter": 20}
    )
    assert x.shape == (2, 3)
    assert torch.isfinite(value)


@pytest.mark.filterwarnings("ignore:qExpectedImprovement has known numerical issues")
def test_optimize_acqf_with_q_expected_improvement(fitted):
    from botorch.acquisition import qExpectedImprovement

    x, value = optimize_acqf(
        qExpectedImprovement(fitted, best_f=0.0), fitted.network.bounds, 1, 2, 32, options={"maxiter": 10}
    )
    assert float(value) > 0
    assert (x >= 0).all()


def test_full_fantasy_beats_partial_ones(fitted, designs):
    """The whole network answers more than its first node alone (up to quasi-random error)."""
    x = rand(6, 3, seed=9)
    whole = KnowledgeGradientFN(fitted, designs, num_fantasies=64)(x.unsqueeze(1))
    part = PartialKnowledgeGradientFN(fitted, 0, designs)(x[:, None, :2])
    assert (whole >= part - 0.2 * part.abs() - 1e-3).all()


def test_thompson_network_is_one_function(fitted):
    x = rand(5, 1, 3)
    a = ThompsonSamplingFN(fitted, seed=2)
    assert torch.equal(a(x), ThompsonSamplingFN(fitted, seed=2)(x))
    assert not torch.allclose(a(x), ThompsonSamplingFN(fitted, seed=3)(x))


def test_constraints_lower_the_value_of_infeasible_designs(chain, observe):
    free, bound = chain(), chain(constraints=[(0, "<=", 0.5)])
    data = observe(free, 12)
    means = []
    x = torch.tensor([[[0.4, 0.9, 0.1]]], dtype=torch.float64)  # node 0 is about 1.8 there
    for net in (free, bound):
        model = FunctionNetworkModel([Z for Z, _ in data.values()], [y for _, y in data.values()], net)
        means.append(float(NetworkPosteriorMean(model)(x)[0]))
    assert means[1] < means[0] - 0.5


def test_wrong_arguments_are_refused(fitted, designs):
    with pytest.raises(InputError, match="node 7"):
        PartialKnowledgeGradientFN(fitted, 7, designs)
    with pytest.raises(InputError, match="X_discrete"):
        PartialKnowledgeGradientFN(fitted, 0, designs[:, :2])
    acqf = PartialKnowledgeGradientFN(fitted, 1, designs)
    with pytest.raises(InputError, match="x2, node0"):
        acqf(rand(2, 1, 3))
    with pytest.raises(InputError, match="q must be 1"):
        acqf(rand(2, 2, 2))
