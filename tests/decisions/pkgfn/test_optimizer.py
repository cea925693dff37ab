"""The loop: budgets, groups, restarts from a saved state, parallel asks, costs, constraints, and what is refused."""

import json
import math

import pytest
import torch

from assay._core.errors import InputError
from assay.decisions.pkgfn import BudgetExhausted, FunctionNetwork, FunctionNetworkOptimizer, problems

D = torch.float64


@pytest.mark.parametrize("method", ["pkgfn", "eifn", "tsfn", "kgfn", "ei", "kg", "random"])
def test_budget_is_never_exceeded_and_inputs_are_allowed(chain, observe, method):
    net = chain()
    opt = FunctionNetworkOptimizer(net, method, budget=23.0, seed=1, initial_data=observe(net, 5))
    known = set(opt.observations[0][1].tolist())
    while True:
        try:
            q = opt.ask()
        except BudgetExhausted:
            break
        assert q.cost <= opt.budget - opt._spent + 1e-12
        if q.node == 1:
            assert float(q.parent_values) in known, "a restricted query needs an observed parent output"
        y = opt.simulate(q.node, q.z)
        known |= set(y.tolist()) if q.node == 0 else set()
        opt.tell(q.node, q.z, y)
    assert opt._spent <= 23.0
    frame = opt.history
    assert frame["cumulative_cost"].iloc[-1] == pytest.approx(frame["cost"].sum())
    if method not in ("pkgfn",):
        assert (frame["node"] == "node0").sum() == (frame["node"] == "node1").sum() == 2


@pytest.mark.slow  # a whole run
def test_fast_variant_runs_free_and_is_refused_restricted(chain, observe):
    net = chain(parent_bounds={1: [[-1.0], [2.0]]})
    with pytest.raises(InputError, match="upstream_required"):
        FunctionNetworkOptimizer(net, "fast_pkgfn", budget=5.0)
    opt = FunctionNetworkOptimizer(
        net, "fast_pkgfn", budget=14.0, upstream_required=False, initial_data=observe(net, 5)
    )
    opt.run()
    assert 0 < opt._spent <= 14.0
    assert opt.last_ask["evaluations"] <= 2  # one per node


@pytest.mark.parametrize("method", ["pkgfn", "fast_pkgfn"])
def test_free_candidates_stay_in_the_parent_bounds(chain, observe, method):
    net = chain(parent_bounds={1: [[0.1], [0.12]]})  # far narrower than what node 0 gives
    opt = FunctionNetworkOptimizer(net, method, budget=14.0, upstream_required=False, initial_data=observe(net, 5))
    opt.ask()
    proposed = [candidate["z"][-1] for candidate in opt.last_ask["nodes"] if candidate["node"] == 1]
    assert len(proposed) == 1
    assert 0.1 <= proposed[0] <= 0.12


@pytest.mark.slow  # a whole run
def test_it_finds_the_optimum_of_the_chain(chain, observe):
    net = chain()
    opt = FunctionNetworkOptimizer(net, budget=60.0, seed=0, initial_data=observe(net, 4))
    opt.run()
    x, mean, std = opt.recommend()
    # y0 = 0.5 is reachable and cos(0) = 1: the best value is 1
    assert float(net.objective(net.evaluate(x[None]))[0]) > 0.98
    assert abs(mean - 1.0) < 0.1
    assert std < 0.2


def test_minimising_is_maximising_the_negative(observe):
    functions = [lambda Z: (Z[..., 0] - 0.3) ** 2 + 2.0]
    box = torch.tensor([[0.0], [1.0]], dtype=D)
    down = FunctionNetwork([[]], [[0]], box, [1.0], functions=functions, maximize=False)
    opt = FunctionNetworkOptimizer(down, budget=6.0, seed=0, initial_data=observe(down, 3)).run()
    x, mean, _ = opt.recommend()
    assert float(x[0]) == pytest.approx(0.3, abs=0.03)
    assert mean == pytest.approx(2.0, abs=0.02)
    assert opt.history["posterior_mean"].iloc[-1] == pytest.approx(2.0, abs=0.02)


@pytest.mark.parametrize("after", [pytest.param(1, marks=pytest.mark.slow), 3])  # 3 holds 1; half a second each
def test_saved_and_loaded_gives_the_same_next_query(chain, observe, after):
    net = chain()
    opt = FunctionNetworkOptimizer(net, budget=40.0, seed=3, initial_data=observe(net, 5))
    for _ in range(after):
        q = opt.ask()
        opt.tell(q.node, q.z, opt.simulate(q.node, q.z))
    text = json.dumps(opt.state_dict())
    twin = FunctionNetworkOptimizer(net, budget=1.0)
    twin.load_state_dict(json.loads(text))
    a, b = opt.ask(), twin.ask()
    assert (a.node, a.z.tolist(), a.value) == (b.node, b.z.tolist(), b.value)


def test_saved_inside_the_first_designs(chain):
    net = chain()
    opt = FunctionNetworkOptimizer(net, budget=40.0, seed=3, n_initial=3)
    q = opt.ask()
    twin = FunctionNetworkOptimizer(net, budget=1.0)
    twin.load_state_dict(json.loads(json.dumps(opt.state_dict())))
    for o in (opt, twin):
        o.tell(q.node, q.z, 0.7)
    assert opt.ask().z.tolist() == twin.ask().z.tolist()


def test_same_seed_same_queries_other_seed_others(chain):
    net = chain()
    runs = [FunctionNetworkOptimizer(net, budget=25.0, seed=s, n_initial=2).run(max_queries=5) for s in (1, 1, 2)]
    zs = [[r["z"] for r in opt._rows] for opt in runs]
    assert zs[0] == zs[1] != zs[2]


def test_group_is_asked_together_and_costs_once(observe):
    net = problems.GPNetwork2()
    opt = FunctionNetworkOptimizer(net, budget=30.0, seed=0, initial_data=observe(net, 5))
    opt.tell(1, torch.zeros(3, dtype=D), [0.1, 0.2])
    assert opt._spent == 2.0
    assert [len(opt.observations[k][1]) for k in (0, 1)] == [6, 6]
    with pytest.raises(InputError, match="node0, node1"):
        opt.tell(0, torch.ones(3, dtype=D), 0.1)


def test_parallel_asks_differ_and_reserve_the_budget(chain, observe):
    net = chain()
    opt = FunctionNetworkOptimizer(net, budget=30.0, seed=0, initial_data=observe(net, 5))
    queries = opt.ask(q=3)
    assert len({(c.node, tuple(c.z.tolist())) for c in queries}) == 3
    assert opt.remaining_budget == pytest.approx(30.0 - sum(c.cost for c in queries))
    again = opt.ask()  # two asks without a tell: the first ones are pending, not forgotten
    assert all(again.node != c.node or again.z.tolist() != c.z.tolist() for c in queries)
    for c in queries:
        opt.tell(c.node, c.z, opt.simulate(c.node, c.z))
    assert len(opt._pending) == 1


def test_parallel_asks_count_once_for_stopping(chain, observe):
    net = chain()
    opt = FunctionNetworkOptimizer(net, budget=40.0, seed=0, initial_data=observe(net, 5), min_gain_per_cost=1e6)
    opt.ask(q=3)
    assert len(opt.last_asks) == 3
    assert opt._low_gains == 1
    assert not opt.should_stop


def test_parallel_asks_end_with_the_budget(chain, observe):
    net = chain()
    opt = FunctionNetworkOptimizer(net, budget=2.5, seed=0, initial_data=observe(net, 5))
    assert len(opt.ask(q=9)) == 2


def test_full_designs_wait_for_their_answer(chain, observe):
    net = chain()
    for opt in (
        FunctionNetworkOptimizer(net, budget=30.0, n_initial=2),
        FunctionNetworkOptimizer(net, "eifn", budget=30.0, initial_data=observe(net, 5)),
    ):
        opt.ask()
        with pytest.raises(InputError, match="not told"):
            opt.ask()


def test_budget_below_the_cheapest_node(chain, observe):
    net = chain()
    opt = FunctionNetworkOptimizer(net, budget=0.5, initial_data=observe(net, 5))
    with pytest.raises(BudgetExhausted, match="costs 1"):
        opt.ask()
    assert math.isfinite(opt.recommend()[1])


def test_measured_costs_replace_declared_ones(chain, observe):
    net = chain()
    opt = FunctionNetworkOptimizer(net, budget=100.0, initial_data=observe(net, 5))
    for cost in (4.0, 6.0):
        q = torch.rand(2, generator=torch.Generator().manual_seed(int(cost)), dtype=D)
        opt.tell(0, q, float(opt.simulate(0, q)[0]), cost=cost)
    assert opt.node_cost(0, torch.zeros(1, 2, dtype=D)).tolist() == [5.0]
    assert opt._spent == 10.0
    q = opt.ask()
    assert q.cost in (5.0, 9.0)


@pytest.mark.slow  # a whole run
def test_constraints_steer_the_recommendation(chain, observe):
    plain, bound = chain(), chain(constraints=[(0, ">=", 1.2)])
    xs = []
    for net in (plain, bound):
        opt = FunctionNetworkOptimizer(net, budget=25.0, seed=0, initial_data=observe(net, 8)).run()
        xs.append(opt.recommend()[0])
        if net is bound:
            assert opt.probability_feasible() > 0.8
    assert float(bound.evaluate(xs[1][None])[0, 0]) > 1.15
    assert float(plain.evaluate(xs[0][None])[0, 0]) < 1.15


def test_stopping_is_advised_when_gains_stay_small(chain, observe):
    net = chain()
    opt = FunctionNetworkOptimizer(net, budget=100.0, initial_data=observe(net, 5), min_gain_per_cost=1e9)
    for i in range(3):
        assert opt.should_stop == (i >= 3)
        q = opt.ask()
        opt.tell(q.node, q.z, opt.simulate(q.node, q.z))
    assert opt.should_stop


def test_why_lists_the_best_of_every_node(chain, observe):
    net = chain()
    opt = FunctionNetworkOptimizer(net, budget=100.0, initial_data=observe(net, 5))
    q = opt.ask()
    nodes = opt.last_ask["nodes"]
    assert {e["node"] for e in nodes} == {0, 1}
    assert max(e["gain_per_cost"] for e in nodes) == pytest.approx(q.gain_per_cost)


def test_noisy_network_runs_and_repeats_are_allowed(chain, observe):
    net = chain()
    g = torch.Generator().manual_seed(0)
    data = {k: (Z, y + 0.05 * torch.randn(len(y), generator=g, dtype=D)) for k, (Z, y) in observe(net, 8).items()}
    opt = FunctionNetworkOptimizer(net, budget=14.0, noise="infer", initial_data=data)
    opt.tell(0, data[0][0][0], float(data[0][1][0]) + 0.1)
    q = opt.ask()
    opt.tell(q.node, q.z, opt.simulate(q.node, q.z))
    assert math.isfinite(opt.recommend()[1])


def test_node_without_data_uses_its_prior_and_waits(chain, observe):
    net = chain()
    opt = FunctionNetworkOptimizer(net, budget=30.0, initial_data={1: observe(net, 5)[1]})
    assert opt.ask().node == 0, "node 1 needs an observed output of node 0"


def test_single_observation_per_node(chain, observe):
    net = chain()
    opt = FunctionNetworkOptimizer(net, budget=12.0, initial_data=observe(net, 1)).run()
    assert opt._spent > 0


BAD_TELLS = [
    ((0, [0.1], 1.0), "node0 reads x0, x1"),
    ((0, [0.1, 0.2], float("nan")), "node0: the output"),
    ((0, [0.1, 0.2], float("inf")), "node0: the output"),
    ((0, [0.1, float("nan")], 1.0), "node0: its inputs"),
    ((0, [0.1, 1.2], 1.0), "node0: x1 = 1.2 lies outside"),
    ((7, [0.1, 1.2], 1.0), "no node 7"),
    (("oven", [0.1, 1.2], 1.0), "no node 'oven'"),
    ((0, [0.1, 0.2], [1.0, 2.0]), "node0: 2 outputs"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_TELLS, ids=[m for _, m in BAD_TELLS])
def test_bad_observations_name_the_node_and_change_nothing(chain, observe, arguments, message):
    net = chain()
    opt = FunctionNetworkOptimizer(net, budget=30.0, initial_data=observe(net, 4))
    before = json.dumps(opt.state_dict())
    with pytest.raises(InputError, match=message):
        opt.tell(*arguments)
    assert json.dumps(opt.state_dict()) == before


def test_duplicates_and_contradictions(chain, observe):
    net = chain()
    data = observe(net, 4)
    opt = FunctionNetworkOptimizer(net, budget=30.0, initial_data=data)
    z, y = data[0][0][0], float(data[0][1][0])
    with pytest.warns(UserWarning, match="node0: a repeated observation"):
        opt.tell(0, z, y)
    assert len(opt.observations[0][1]) == 4
    with pytest.raises(InputError, match=r"node0.*observed before"):
        opt.tell(0, z, y + 1)


def test_downstream_value_never_observed(chain, observe):
    net = chain()
    opt = FunctionNetworkOptimizer(net, budget=30.0, initial_data=observe(net, 4))
    with pytest.warns(UserWarning, match="node1: its input node0 = 0.123"):
        opt.tell(1, [0.5, 0.123], 1.0)
    free = FunctionNetworkOptimizer(net, budget=30.0, initial_data=observe(net, 4), upstream_required=False)
    free.tell(1, [0.5, 0.123], 1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"method": "best"}, "method"), ({"budget": 0}, "budget"), ({"budget": math.nan}, "budget"),
     ({"n_initial": 0}, "n_initial"),
     ({"initial_data": {}}, "no observation"), ({"initial_data": {5: (torch.zeros(1, 1), torch.zeros(1))}}, "no node 5")],
)  # fmt: skip
def test_bad_options(chain, options, message):
    with pytest.raises(InputError, match=message):
        FunctionNetworkOptimizer(chain(), **{"budget": 10.0, **options})


@pytest.mark.parametrize("damage", [lambda s: s.pop("data"), lambda s: s["data"].pop(), lambda s: s.update(nodes=["a"]),
                                    lambda s: s.update(version=9), lambda s: s["data"][0].__setitem__(0, [[1.0]])])  # fmt: skip
def test_torn_states_are_refused(chain, observe, damage):
    net = chain()
    opt = FunctionNetworkOptimizer(net, budget=30.0, initial_data=observe(net, 4))
    state = json.loads(json.dumps(opt.state_dict()))
    damage(state)
    before = json.dumps(opt.state_dict())
    with pytest.raises(InputError, match="state"):
        opt.load_state_dict(state)
    assert json.dumps(opt.state_dict()) == before
