"""The encoders: graph attention against a loop, unique encoding against per-curve encoding, masks."""

from __future__ import annotations

import pytest
import torch

from assay.bio._shared.molecules import ATOM_FEATURES, BOND_FEATURES, molecule_graph, pack_graphs
from assay.bio.dose_response._encoders import (
    ConcatInteraction,
    CrossAttentionInteraction,
    ExpressionEncoder,
    FingerprintEncoder,
    GATv2,
    GraphEncoder,
    GraphTensors,
)

SMILES = ["CCO", "c1ccccc1C(=O)N", "[Na+].[Cl-]", "CC(C)(C)NCC(O)c1ccc(O)c(CO)c1"]


def graphs_of(smiles):
    return GraphTensors(pack_graphs([molecule_graph(s) for s in smiles]))


def test_gatv2_equals_a_loop_over_nodes():
    torch.manual_seed(0)
    layer = GATv2(5, 4, 3, heads=2).double()
    x = torch.randn(6, 5, dtype=torch.float64)
    edge_index = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2], [1, 1, 1, 0, 0, 5, 5, 5]])
    edge_attr = torch.randn(8, 3, dtype=torch.float64)
    out = layer(x, edge_index, edge_attr)
    for node in range(6):
        heads = []
        for h in range(2):
            rows = slice(4 * h, 4 * h + 4)
            incoming = [e for e in range(8) if int(edge_index[1, e]) == node]
            if not incoming:
                heads.append(torch.zeros(4, dtype=torch.float64))
                continue
            left = [layer.source.weight[rows] @ x[edge_index[0, e]] + layer.source.bias[rows] for e in incoming]
            right = layer.target.weight[rows] @ x[node] + layer.target.bias[rows]
            pre = [v + right + layer.edge.weight[rows] @ edge_attr[e] for v, e in zip(left, incoming, strict=True)]
            score = torch.stack([layer.score[h] @ torch.nn.functional.leaky_relu(p, 0.2) for p in pre])
            weight = torch.softmax(score, 0)
            heads.append(sum(w * v for w, v in zip(weight, left, strict=True)))
        expected = sum(heads) / 2 + layer.bias
        # Same float64 operations in another order.
        torch.testing.assert_close(out[node], expected, rtol=1e-12, atol=1e-12)


def test_gatv2_gradcheck():
    torch.manual_seed(0)
    layer = GATv2(3, 2, 2, heads=2).double()
    edge_index = torch.tensor([[0, 1, 2, 0], [1, 2, 1, 0]])
    x = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    attr = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: layer(a, edge_index, b), (x, attr))


def test_a_molecule_is_encoded_the_same_alone_and_in_company():
    torch.manual_seed(0)
    encoder = GraphEncoder(ATOM_FEATURES, BOND_FEATURES, 16, layers=3, heads=2).eval()
    together, mask = encoder(graphs_of(SMILES))
    for i, s in enumerate(SMILES):
        alone, _ = encoder(graphs_of([s]))
        # float32 sums of at most some twenty atoms: 1e-5 is a few dozen units in the last place.
        torch.testing.assert_close(together[i][mask[i]], alone[0], rtol=1e-5, atol=1e-5)


def test_selection_of_graphs_equals_packing_them():
    picked = graphs_of(SMILES)[torch.tensor([1, 3])]
    packed = graphs_of([SMILES[1], SMILES[3]])
    for name in ("x", "edge_index", "edge_attr", "molecule", "slot", "sizes"):
        assert torch.equal(getattr(picked, name), getattr(packed, name)), name


def test_renumbering_atoms_permutes_the_encoding():
    torch.manual_seed(0)
    encoder = GraphEncoder(ATOM_FEATURES, BOND_FEATURES, 16).eval()
    a, _ = encoder(graphs_of(["CCO"]))
    b, _ = encoder(graphs_of(["OCC"]))
    torch.testing.assert_close(a[0, [2, 1, 0, 3]], b[0], rtol=1e-5, atol=1e-5)


def test_concat_interaction_is_the_network_on_the_concatenation():
    torch.manual_seed(0)
    layer = ConcatInteraction(6, 8, 0.0).double()
    cells, drugs = torch.randn(3, 6, dtype=torch.float64), torch.randn(2, 6, dtype=torch.float64)
    c, d = torch.tensor([0, 2, 1, 1]), torch.tensor([1, 0, 0, 1])
    joined = torch.cat([cells[c], drugs[d]], 1)
    weight = torch.cat([layer.cell.weight, layer.drug.weight], 1)
    expected = layer.out(torch.relu(joined @ weight.T + layer.cell.bias))
    torch.testing.assert_close(layer(cells, drugs, c, d), expected, rtol=1e-12, atol=1e-12)


def test_cross_attention_equals_torch_multihead_attention():
    torch.manual_seed(0)
    d, heads = 8, 2
    layer = CrossAttentionInteraction(d, 8, heads, 0.0).double()
    cells, atoms = torch.randn(3, d, dtype=torch.float64), torch.randn(2, 5, d, dtype=torch.float64)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    c, g = torch.tensor([0, 1, 2, 2]), torch.tensor([0, 1, 1, 0])
    peer = torch.nn.MultiheadAttention(d, heads, batch_first=True).double()
    with torch.no_grad():
        peer.in_proj_weight.copy_(torch.cat([layer.q.weight, layer.kv.weight]))
        peer.in_proj_bias.copy_(torch.cat([layer.q.bias, layer.kv.bias]))
        peer.out_proj.weight.copy_(layer.out.weight)
        peer.out_proj.bias.copy_(layer.out.bias)
    question = layer.query(cells)[c]
    answer, _ = peer(question[:, None], atoms[g], atoms[g], key_padding_mask=~mask[g])
    expected = (answer[:, 0] + question + cells[c]) / 2
    torch.testing.assert_close(layer(cells, atoms, mask, c, g), expected, rtol=1e-12, atol=1e-12)


def test_padding_atoms_have_no_influence():
    torch.manual_seed(0)
    layer = CrossAttentionInteraction(8, 8, 2, 0.0)
    atoms = torch.randn(1, 5, 8)
    mask = torch.tensor([[True, True, True, False, False]])
    zero = torch.zeros(1, dtype=torch.long)
    a = layer(torch.ones(1, 8), atoms, mask, zero, zero)
    atoms[0, 3:] = 1e3
    assert torch.equal(a, layer(torch.ones(1, 8), atoms, mask, zero, zero))


def test_expression_encoder_starts_as_the_paper_says():
    encoder = ExpressionEncoder(50, 20, 0.0)
    assert bool((encoder.linear.bias == 0.01).all())
    limit = (6 / 70) ** 0.5  # Xavier-uniform bound for fan-in 50 and fan-out 20
    assert float(encoder.linear.weight.detach().abs().max()) <= limit
    assert float(encoder.linear.weight.detach().std()) == pytest.approx(limit / 3**0.5, rel=0.1)


def test_dropout_is_off_in_evaluation():
    for encoder in (ExpressionEncoder(10, 4, 0.9), FingerprintEncoder(10, 4, 0.9)):
        x = torch.ones(2, 10)
        assert torch.equal(encoder.eval()(x), encoder(x))
        assert not torch.equal(encoder.train()(x), encoder(x))
