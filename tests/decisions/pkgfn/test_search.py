"""Where queries come from: observed parents, boxes, duplicates, discrete inputs, recommendations."""

import pytest
import torch

from assay.decisions.pkgfn import (
    FunctionNetwork,
    FunctionNetworkModel,
    PartialKnowledgeGradientFN,
    optimize_partial_acqf,
)
from assay.decisions.pkgfn._search import discrete_set, parent_box, parent_combinations, recommend, unseen

BOX = torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
D = torch.float64


def obs(*rows):
    return [(torch.tensor(Z, dtype=D).reshape(len(y), -1), torch.tensor(y, dtype=D)) for Z, y in rows]


def test_combinations_are_the_product_of_parent_outputs():
    net = FunctionNetwork([[], [], [0, 1]], [[0], [1], []], BOX, [1] * 3)
    data = obs(([0.1, 0.2], [1.0, 2.0]), ([0.3, 0.4, 0.5], [5.0, 6.0, 5.0]))
    data.append((torch.zeros(0, 2, dtype=D), torch.zeros(0, dtype=D)))
    found = parent_combinations(net, 2, data)
    assert sorted(map(tuple, found.tolist())) == [(1, 5), (1, 6), (2, 5), (2, 6)]
    assert len(parent_combinations(net, 2, data, limit=3)) == 3


def test_parents_of_one_group_are_not_mixed():
    net = FunctionNetwork([[], [], [0, 1]], [[0], [0], []], BOX, [1] * 3, node_groups=[[0, 1]])
    data = obs(([0.1, 0.2], [1.0, 2.0]), ([0.1, 0.2], [5.0, 6.0]))
    data.append((torch.zeros(0, 2, dtype=D), torch.zeros(0, dtype=D)))
    assert sorted(map(tuple, parent_combinations(net, 2, data).tolist())) == [(1, 5), (2, 6)]


def test_same_design_keeps_only_agreeing_parents():
    net = FunctionNetwork([[], [], [0, 1]], [[0, 1], [1, 2], []], BOX, [1] * 3)
    data = obs(([[0.1, 0.5], [0.2, 0.6]], [1.0, 2.0]), ([[0.5, 0.3], [0.7, 0.4]], [5.0, 6.0]))
    data.append((torch.zeros(0, 2, dtype=D), torch.zeros(0, dtype=D)))
    assert parent_combinations(net, 2, data, same_design=True).tolist() == [[1.0, 5.0]]
    assert len(parent_combinations(net, 2, data)) == 4


def test_no_observed_parent_no_combination():
    net = FunctionNetwork([[], [0]], [[0], []], BOX[:, :1], [1] * 2)
    empty = (torch.zeros(0, 1, dtype=D), torch.zeros(0, dtype=D))
    assert len(parent_combinations(net, 1, [empty, empty])) == 0
    assert parent_box(net, 1, [empty, empty]) is None


def test_free_parent_box_is_the_observed_range_widened():
    net = FunctionNetwork([[], [0]], [[0], []], BOX[:, :1], [1] * 2)
    data = [*obs(([0.0, 1.0], [10.0, 20.0])), (torch.zeros(0, 1, dtype=D), torch.zeros(0, dtype=D))]
    assert parent_box(net, 1, data).flatten().tolist() == [8.0, 22.0]


@pytest.mark.parametrize("restricted", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_proposals_keep_to_what_may_be_set(chain, observe, restricted, seed):
    net = chain(parent_bounds={1: [[-1.0], [2.0]]})
    data = observe(net, 7, seed)
    model = FunctionNetworkModel([Z for Z, _ in data.values()], [y for _, y in data.values()], net)
    x = torch.full((3,), 0.5, dtype=D)
    acqf = PartialKnowledgeGradientFN(model, 1, discrete_set(model, x, seed))
    found = optimize_partial_acqf(acqf, x, upstream_required=restricted, seed=seed)
    if restricted:
        assert (data[0][1] == found.parent_values).any()
    else:
        assert -1 <= float(found.parent_values) <= 2
    assert 0 <= float(found.x_active) <= 1
    assert found.z.tolist() == [*found.x_active.tolist(), *found.parent_values.tolist()]


def test_optimised_query_beats_random_ones(fitted):
    x = torch.full((3,), 0.5, dtype=D)
    acqf = PartialKnowledgeGradientFN(fitted, 0, discrete_set(fitted, x, 0))
    found = optimize_partial_acqf(acqf, x, seed=0)
    random = acqf(torch.rand(512, 1, 2, generator=torch.Generator().manual_seed(3), dtype=D))
    assert found.value >= float(random.max()) - 1e-9


def test_observed_inputs_are_not_proposed_again():
    net = FunctionNetwork([[], [0]], [[0], []], BOX[:, :1], [1, 1])
    data = torch.tensor([[0.5]], dtype=D)
    assert unseen(net, 0, torch.tensor([[0.5], [0.5 + 1e-10], [0.51]], dtype=D), data).tolist() == [False, False, True]


def test_cost_limit_filters_inputs():
    net = FunctionNetwork([[]], [[0]], BOX[:, :1], [lambda Z: 1 + 9 * Z[..., 0]])
    X = torch.linspace(0, 1, 4, dtype=D)[:, None]
    model = FunctionNetworkModel([X], [torch.sin(5 * X)], net)
    acqf = PartialKnowledgeGradientFN(model, 0, torch.linspace(0, 1, 15, dtype=D)[:, None])
    found = optimize_partial_acqf(acqf, X[0], max_cost=4.0)
    assert found.cost <= 4.0 + 1e-9
    assert optimize_partial_acqf(acqf, X[0], max_cost=0.5) is None


def test_discrete_inputs_take_allowed_values_only():
    net = FunctionNetwork([[]], [[0, 1]], torch.tensor([[0.0, 0.0], [10.0, 1.0]]), [1.0], discrete={0: range(11)})
    X = torch.tensor([[1, 0.2], [4, 0.9], [9, 0.5], [6, 0.1]], dtype=D)
    model = FunctionNetworkModel([X], [-((X[:, 0] - 6.6) ** 2) / 10 - (X[:, 1] - 0.4) ** 2], net)
    x, _ = recommend(model, None, [], 0)
    assert float(x[0]) == round(float(x[0]))
    A = discrete_set(model, x, 0)
    assert torch.equal(A[:, 0], A[:, 0].round())
    found = optimize_partial_acqf(PartialKnowledgeGradientFN(model, 0, A), x)
    assert float(found.x_active[0]) == round(float(found.x_active[0]))


def test_recommendation_never_falls_back(fitted):
    x, value = recommend(fitted, None, [], seed=1)
    for seed in range(3):
        again, now = recommend(fitted, x, [], seed=seed)
        assert now >= value - 1e-12
        x, value = again, now
