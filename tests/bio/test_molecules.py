"""Molecules: bad SMILES are listed, fingerprints and graphs do not depend on how a molecule is written."""

from __future__ import annotations

import numpy as np
import pytest

from assay._core.errors import InputError
from assay.bio._shared.molecules import (
    ATOM_FEATURES,
    BOND_FEATURES,
    check_smiles,
    molecule_graph,
    morgan_fingerprints,
    pack_graphs,
    tanimoto,
)


def test_bad_smiles_are_listed_with_their_names_and_rdkit_is_quiet(capfd):
    with pytest.raises(InputError) as error:
        check_smiles({"good": "CCO", "ring": "C1CC", "empty": "", "word": "aspirin"})
    text = str(error.value)
    assert "3 SMILES" in text
    assert all(name in text for name in ("ring", "empty", "word"))
    assert "good" not in text
    assert capfd.readouterr().err == ""


def test_two_spellings_are_one_molecule():
    assert check_smiles(["OCC", "C(C)O"]) == ["CCO", "CCO"]
    a, b = morgan_fingerprints(["OCC", "C(C)O"])
    assert np.array_equal(a, b)
    x, y = molecule_graph("OCC"), molecule_graph("CCO")
    assert np.array_equal(np.sort(x.x, axis=0), np.sort(y.x, axis=0))


def test_fingerprints_match_an_environment_count_of_methane_and_ethane():
    # Methane has one environment; ethane a methyl group at radius 0 and its one bond at radius 1.
    assert morgan_fingerprints(["C", "CC"]).sum(axis=1).tolist() == [1, 2]
    assert morgan_fingerprints([]).shape == (0, 2048)


def test_tanimoto_is_a_similarity():
    bits = np.random.default_rng(0).integers(0, 2, (5, 40))
    s = tanimoto(bits, bits)
    assert np.allclose(np.diag(s), 1)
    assert np.allclose(s, s.T)
    assert ((s >= 0) & (s <= 1)).all()
    i, j = bits[0] > 0, bits[1] > 0
    assert s[0, 1] == pytest.approx((i & j).sum() / (i | j).sum())
    assert tanimoto(np.zeros((1, 4)), np.zeros((1, 4)))[0, 0] == 1.0


def test_graph_has_two_edges_per_bond_loops_and_a_virtual_node():
    g = molecule_graph("c1ccccc1O")  # 7 atoms, 7 bonds
    assert g.x.shape == (8, ATOM_FEATURES)
    assert g.edge_attr.shape == (2 * 7 + 7 + 8, BOND_FEATURES)
    assert g.x[-1].tolist() == [0.0] * (ATOM_FEATURES - 1) + [1.0]
    assert g.x[:-1, -1].sum() == 0
    into_virtual = g.edge_index[0][g.edge_index[1] == 7]
    assert sorted(into_virtual.tolist()) == list(range(8))
    assert set(g.edge_index[1][g.edge_index[0] == 7].tolist()) == {7}  # it only listens


def test_atom_features_say_what_the_atom_is():
    charged = molecule_graph("[NH4+]").x[0]
    neutral = molecule_graph("N").x[0]
    carbon = molecule_graph("C").x[0]
    assert not np.array_equal(charged, neutral)
    assert not np.array_equal(neutral, carbon)
    left, right = molecule_graph("C[C@H](N)O").x, molecule_graph("C[C@@H](N)O").x
    assert not np.array_equal(left, right)
    unknown = molecule_graph("[U]").x[0]
    assert unknown[43 - 1] == 1.0  # the column after the 42 elements


def test_packing_shifts_node_numbers():
    graphs = [molecule_graph(s) for s in ("C", "CC", "[Na+].[Cl-]")]
    packed = pack_graphs(graphs)
    assert packed.sizes.tolist() == [2, 3, 3]
    for i, g in enumerate(graphs):
        nodes = np.flatnonzero(packed.molecule == i)
        assert np.array_equal(packed.x[nodes], g.x)
        assert np.array_equal(packed.slot[nodes], np.arange(len(nodes)))
    source, target = packed.edge_index
    assert np.array_equal(packed.molecule[source], packed.molecule[target])
