"""Networks: order, inputs, costs, objectives, files, and every way to write one wrong."""

import pytest
import torch

from assay._core.errors import InputError
from assay.decisions.pkgfn import FunctionNetwork
from assay.decisions.pkgfn._expression import Expression

BOX = torch.tensor([[0.0, 0.0], [1.0, 2.0]], dtype=torch.float64)

YAML = """
variables: {T: [20, 90], t: [1, 8], mix: [0, 1], n: {range: [1, 5], integer: true}}
nodes:
  - {name: cure, inputs: [T, t], parents: [blend], cost: 12, parent_bounds: {blend: [0, 3]}}
  - {name: blend, inputs: [mix, n], parents: [], cost: "1 + 0.5*n"}
objective: 0.7*cure - 0.1*blend
constraints: ["blend <= 2.5"]
upstream_required: false
"""


def test_out_of_order_nodes_keep_their_indices():
    functions = [lambda Z: Z[..., 0] * 2, lambda Z: Z[..., 0] + 1]
    net = FunctionNetwork([[1], []], [[], [0]], BOX[:, :1], [1.0, 1.0], functions=functions)
    assert net.order == [1, 0]
    Y = net.evaluate(torch.tensor([[0.25]], dtype=torch.float64))
    assert Y.tolist() == [[2.5, 1.25]]


def test_inputs_are_variables_then_parents():
    net = FunctionNetwork([[], [], [1, 0]], [[0], [1], [1]], BOX, [1.0] * 3)
    assert net.columns(2) == ["x1", "node1", "node0"]
    z = net.gather(2, torch.tensor([0.1, 0.2]), torch.tensor([5.0, 7.0, 0.0]))
    assert z.tolist() == pytest.approx([0.2, 7.0, 5.0])


def test_sampled_nodes_follow_the_rule():
    chain = FunctionNetwork([[], [0]], [[0], []], BOX, [1, 1])
    assert chain.sampled == [0]
    product = FunctionNetwork([[], []], [[0], [1]], BOX, [1, 1], objective="node0 * node1")
    assert product.sampled == []
    square = FunctionNetwork([[], []], [[0], [1]], BOX, [1, 1], objective="node0**2 + node1")
    assert square.sampled == [0]
    unused = FunctionNetwork([[], []], [[0], [1]], BOX, [1, 1], objective="node0")
    assert unused.relevant == {0}


@pytest.mark.parametrize(
    ("text", "bent"),
    [("a + b", ""), ("a*b", ""), ("a*a", "a"), ("a/b", "b"), ("2*a - b/3", ""), ("a**2 + b", "a"), ("a**1", ""), ("2**a", "a"),
     ("(a + b)*b", "b"), ("-(a - 1)", "")],
)  # fmt: skip
def test_affine_variables_of_expressions(text, bent):
    assert Expression(text, ["a", "b"]).not_affine == frozenset(bent)


def test_expression_equals_python():
    e = Expression("0.7*a - b**2/(1 + a) + +3", ["a", "b"])
    assert e({"a": 2.0, "b": 5.0}) == 0.7 * 2 - 25 / 3 + 3


NOT_ARITHMETIC = [
    *("__import__('os')", "a.b", "a if b else 1", "f(a)", "a[0]", "a b"),
    *("", "lambda: 1", "a + c", "1e999", "a and b", "'x'", "True"),
]


@pytest.mark.parametrize("text", NOT_ARITHMETIC)
def test_anything_but_arithmetic_is_refused(text):
    with pytest.raises(InputError):
        Expression(text, ["a", "b"])


def test_deep_nesting_is_refused_not_a_crash():
    with pytest.raises(InputError):
        Expression("(" * 900 + "a" + ")" * 900, ["a"])


def test_yaml():
    net = FunctionNetwork.from_yaml(YAML)
    assert net.node_names == ["cure", "blend"]
    assert net.order == [1, 0]
    assert net.columns(0) == ["T", "t", "blend"]
    assert net.discrete == {3: [1.0, 2.0, 3.0, 4.0, 5.0]}
    assert net.cost(1, torch.tensor([[0.3, 4.0]], dtype=torch.float64)).tolist() == [3.0]
    assert net.parent_bounds[0].tolist() == [[0.0], [3.0]]
    assert not net.upstream_required
    assert float(net.objective(torch.tensor([10.0, 1.0]))) == pytest.approx(6.9)
    assert net.feasible(torch.tensor([[0.0, 2.0], [0.0, 3.0]])).tolist() == [True, False]


def test_toml_and_yaml_files_are_the_same(tmp_path):
    (tmp_path / "a.yaml").write_text("variables: {x: [0, 1]}\nnodes:\n  - {name: f, inputs: [x], cost: 2}\n")
    (tmp_path / "a.toml").write_text("[variables]\nx = [0, 1]\n[[nodes]]\nname = 'f'\ninputs = ['x']\ncost = 2\n")
    a, b = FunctionNetwork.from_yaml(tmp_path / "a.yaml"), FunctionNetwork.from_yaml(tmp_path / "a.toml")
    assert a.costs == b.costs == [2.0]
    assert a.node_names == b.node_names == ["f"]


def test_networkx():
    nx = pytest.importorskip("networkx")
    g = nx.DiGraph(variables={"x": [0, 1]}, objective="b")
    g.add_node("a", inputs=["x"], cost=1, function=lambda Z: Z[..., 0])
    g.add_node("b", cost=4, function=lambda Z: Z[..., 0] ** 2)
    g.add_edge("a", "b")
    net = FunctionNetwork.from_networkx(g)
    assert net.parents == [[], [0]]
    assert float(net.objective(net.evaluate(torch.tensor([[3.0]])))[0]) == 9.0


def test_group_costs_once_and_total():
    net = FunctionNetwork([[], [], [0, 1]], [[0], [0], []], BOX, [1.0, 2.0, 10.0], node_groups=[[0, 1]])
    Z = torch.zeros(3, 1, dtype=torch.float64)
    assert net.groups == [(0, 1), (2,)]
    assert net.group_cost(0, Z).tolist() == [3.0] * 3
    assert net.total_cost([Z, Z, torch.zeros(3, 2, dtype=torch.float64)]).tolist() == [13.0] * 3


def test_minimising_turns_the_utility():
    net = FunctionNetwork([[]], [[0]], BOX, [1.0], maximize=False)
    assert float(net.utility(torch.tensor([2.0]))) == -2.0
    assert float(net.objective(torch.tensor([2.0]))) == 2.0


def test_infeasible_outputs_count_as_the_worst():
    net = FunctionNetwork([[]], [[0]], BOX, [1.0], constraints=[(0, "<=", 1.0)])
    g = net.utility(
        torch.tensor([[0.5], [3.0]], dtype=torch.float64), worst=-7.0, spread=torch.ones(1, dtype=torch.float64)
    )
    assert g.tolist() == pytest.approx([0.5, -7.0])


N, A, C = "parent_nodes", "active_input_indices", "costs"
BAD = [
    ({N: [[1], [0]], A: [[0], [1]], C: [1, 1]}, "cycle through node0, node1"),
    ({N: [[], [5]], A: [[0], []], C: [1, 1]}, "node1: parent 5"),
    ({N: [[]], A: [[2]], C: [1]}, "node0: active input 2"),
    ({N: [[]], A: [[0]], C: [0]}, "node0: the cost"),
    ({N: [[]], A: [[0]], C: [float("nan")]}, "node0: the cost"),
    ({N: [[]], A: [[]], C: [1]}, "node0 has neither"),
    ({N: [[]], A: [[0]], C: [1, 2]}, "one per node"),
    ({N: [[]], A: [[0]], C: [1], "objective": "a + 1"}, "no 'a'"),
    ({N: [[]], A: [[0]], C: [1], "objective": lambda Y: Y}, "it gave"),
    ({N: [[], []], A: [[0], [1]], C: [1, 1], "node_groups": [[0, 1]]}, "node0 and node1 are one group"),
    ({N: [[], [0]], A: [[0], []], C: [1, 1], "parent_bounds": {1: [[1.0], [0.0]]}}, "node1: parent_bounds"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[m for _, m in BAD])
def test_bad_networks_name_the_node(arguments, message):
    with pytest.raises(InputError, match=message):
        FunctionNetwork(bounds=BOX, **arguments)


FILES = [
    ("nodes: []", "nodes"),
    ("variables: {x: [0, 1]}\nnodes:\n - {name: f, inputs: [y]}\n", "no input 'y'"),
    ("variables: {x: [1, 0]}\nnodes:\n - {name: f, inputs: [x]}\n", "variable x"),
    ("variables: {x: [0, 1]}\nnodes:\n - {name: f, inputs: [x], cost: -1}\n", "Node f: the cost"),
    ("variables: {x: [0, 1]}\nnodes:\n - {name: f, inputs: [x], price: 1}\n", "'price'"),
    ("variables: {x: [0, 1]}\nnodes:\n - {name: f, inputs: [x]}\n - {name: f, inputs: [x]}\n", "used twice"),
    ("variables: {x: [0, 1]}\nnodes:\n - {name: f, inputs: [x]}\nobjective: 2*g\n", "no 'g'"),
    ("variables: {x: [0, 1]}\nnodes:\n - {name: f, inputs: [x]}\nconstraints: ['g <= 1']\n", "no node 'g'"),
    ("variables: {x: [0, 1]}\nnodes:\n - {name: f, inputs: [x]}\nobjectiv: f\n", "'objectiv'"),
    ("variables: {x: [0, 1]}\nnodes:\n - {name: f, inputs: [x]}\nobjective: 2**9999*f\n", "is not a finite number"),
    ("variables: {x: [0, 1]}\nnodes:\n - {name: f, inputs: [x]}\nobjective: f*(-1)**0.5\n", "is not a finite number"),
    ("variables: {x: [0, 1]}\nnodes:\n - {name: f, inputs: [x]}\nobjective: f + 1/0\n", "1 / 0 is not a finite number"),
    ("variables: {x: [0, 1]}\nnodes:\n - {name: f, inputs: [x]}\nobjective: 3\n", "it is 3"),
    ("variables: {x: [0, 1]}\nnodes:\n - {name: f, inputs: [x]}\nminimize: 'no'\n", "minimize must be true or false"),
    (
        "variables: {x: [0, 1]}\nnodes:\n - {name: f, inputs: [x]}\nupstream_required: maybe\n",
        "upstream_required must be true or false",
    ),
    ("variables: {x: [0, 1]}\nnodes:\n - {name: f, inputs: [x]}\nconstraints: f <= 1\n", "constraints must be a list"),
    (
        "variables: {x: {range: [0, 1], intger: true}}\nnodes:\n - {name: f, inputs: [x]}\n",
        "variable x: the key 'intger'",
    ),
    ("variables: {cost: [0, 1]}\nnodes:\n - {name: f, inputs: [cost]}\n", "cannot be named 'cost'"),
    ("variables: {x: [0, 1]}\nnodes:\n - {name: value, inputs: [x]}\n", "cannot be named 'value'"),
    ("variables: {x: [0, 1]}\nnodes:\n - {name: f, inputs: [x]}\nmaximize:\n", "maximize must be true or false"),
    ("a: [1\nb: 2\n", "line"),
    ("- 1\n- 2\n", "mapping"),
]


@pytest.mark.parametrize(("text", "message"), FILES, ids=[m for _, m in FILES])
def test_bad_files_say_where(text, message, tmp_path):
    path = tmp_path / "net.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        FunctionNetwork.from_yaml(path)
    assert "net.yaml" in str(caught.value)
