"""Molecules from SMILES: checks, fingerprints, similarity and graphs as edge lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from assay._core.errors import InputError, require

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "ATOM_FEATURES",
    "BOND_FEATURES",
    "MoleculeGraph",
    "PackedGraphs",
    "check_smiles",
    "molecule_graph",
    "morgan_fingerprints",
    "pack_graphs",
    "tanimoto",
]

# The organic elements of drug-like molecules first, then the metals and metalloids that occur in approved drugs
# and in screening collections; anything else falls into the last, "unknown" column.
_ELEMENTS = [
    "H",
    "B",
    "C",
    "N",
    "O",
    "F",
    "Si",
    "P",
    "S",
    "Cl",
    "Br",
    "I",
    "Se",
    "As",
    "Li",
    "Na",
    "K",
    "Mg",
    "Ca",
    "Al",
    "Ti",
    "V",
    "Cr",
    "Mn",
    "Fe",
    "Co",
    "Ni",
    "Cu",
    "Zn",
    "Ga",
    "Ge",
    "Zr",
    "Tc",
    "Ru",
    "Pd",
    "Ag",
    "Sn",
    "Sb",
    "Te",
    "Pt",
    "Au",
    "Hg",
]
_HYBRIDISATIONS = ("S", "SP", "SP2", "SP3", "SP3D", "SP3D2")  # the seventh column takes every other value
_CHIRALITIES = ("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW")  # the fourth takes the rest
_BONDS = ("SINGLE", "DOUBLE", "TRIPLE")  # the fourth column takes aromatic and every other type
_STEREOS = ("STEREONONE", "STEREOZ", "STEREOE")  # the fourth takes cis/trans/any/atropisomers

ATOM_FEATURES = len(_ELEMENTS) + 1 + 6 + 8 + 7 + 2 + 3 + 4 + 6 + 1
"""Columns of an atom: element, heavy neighbours, charge, hybridisation, ring and aromatic, three sizes, chirality,
hydrogens, and one bit that marks the virtual node."""
BOND_FEATURES = 4 + 2 + 4 + 2
"""Columns of a bond: type, conjugated and in-ring, stereo, and two bits that mark virtual edges and self-loops."""


def _molecules(smiles: Mapping[Any, str] | Sequence[str]) -> list[Any]:
    chem = require("rdkit.Chem", "bio")
    rdbase = require("rdkit.rdBase", "bio")
    items = list(smiles.items()) if isinstance(smiles, Mapping) else [(i, s) for i, s in enumerate(smiles)]
    found, bad = [], []
    block = rdbase.BlockLogs()  # one sentence of ours instead of rdkit's own lines on standard error
    try:
        for name, text in items:
            molecule = chem.MolFromSmiles(text) if isinstance(text, str) and text.strip() else None
            if molecule is None or molecule.GetNumAtoms() == 0:
                bad.append(f"{name}: {text!r}")
            else:
                found.append(molecule)
    finally:
        del block
    if bad:
        shown = "; ".join(bad[:10]) + (f"; and {len(bad) - 10} more" if len(bad) > 10 else "")
        raise InputError(f"{len(bad)} SMILES cannot be read ({shown}); correct or remove them.")
    return found


def check_smiles(smiles: Mapping[Any, str] | Sequence[str]) -> list[str]:
    """Check that every SMILES can be read and return the canonical forms.

    Parameters
    ----------
    smiles : mapping of name to SMILES, or sequence of SMILES
        The molecules; names (or positions) are used in the error.

    Returns
    -------
    list of str
        Canonical SMILES in the order given.

    Raises
    ------
    InputError
        When at least one SMILES is empty or cannot be parsed; the message lists the bad ones.

    Examples
    --------
    >>> check_smiles({"ethanol": "OCC"})
    ['CCO']
    """
    molecules = _molecules(smiles)
    chem = require("rdkit.Chem", "bio")
    return [chem.MolToSmiles(m) for m in molecules]


def morgan_fingerprints(
    smiles: Mapping[Any, str] | Sequence[str], *, radius: int = 2, n_bits: int = 2048
) -> NDArray[np.uint8]:
    """Hashed circular (Morgan) fingerprints as a matrix of zeros and ones.

    Parameters
    ----------
    smiles : mapping of name to SMILES, or sequence of SMILES
        The molecules.
    radius : int, default 2
        Largest number of bonds from the centre of an environment; at least 0.
    n_bits : int, default 2048
        Length of the fingerprint; at least 1.

    Returns
    -------
    ndarray of uint8, shape (n_molecules, n_bits)
        One row per molecule.

    Raises
    ------
    InputError
        When a SMILES cannot be read.

    References
    ----------
    Rogers and Hahn, Extended-connectivity fingerprints, J. Chem. Inf. Model. 50 (2010).

    Examples
    --------
    >>> morgan_fingerprints(["CCO", "CCN"], n_bits=64).shape
    (2, 64)
    """
    molecules = _molecules(smiles)
    generators = require("rdkit.Chem.rdFingerprintGenerator", "bio")
    make = generators.GetMorganGenerator(radius=radius, fpSize=n_bits)
    if not molecules:
        return np.zeros((0, n_bits), dtype=np.uint8)
    return np.stack([make.GetFingerprintAsNumPy(m) for m in molecules]).astype(np.uint8)


def tanimoto(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    r"""Tanimoto similarity of binary fingerprints, :math:`|a \cap b| / |a \cup b|`.

    Parameters
    ----------
    a, b : array of 0/1, shapes (n, bits) and (m, bits)
        Fingerprints.

    Returns
    -------
    ndarray, shape (n, m)
        Values in [0, 1]; two empty fingerprints have similarity 1.

    Examples
    --------
    >>> import numpy as np
    >>> tanimoto(np.array([[1, 1, 0]]), np.array([[1, 0, 0]]))
    array([[0.5]])
    """
    x = np.atleast_2d(np.asarray(a, dtype=np.float64))
    y = np.atleast_2d(np.asarray(b, dtype=np.float64))
    common = x @ y.T
    union = x.sum(1)[:, None] + y.sum(1)[None, :] - common
    return np.where(union > 0, common / np.maximum(union, 1.0), 1.0)


@dataclass(frozen=True)
class MoleculeGraph:
    """Features and edges of one molecule; the last node is the virtual one.

    Attributes
    ----------
    x : ndarray of float32, shape (n_atoms + 1, ATOM_FEATURES)
        Node features.
    edge_index : ndarray of int64, shape (2, n_edges)
        Sources in the first row, targets in the second.
    edge_attr : ndarray of float32, shape (n_edges, BOND_FEATURES)
        Edge features.
    """

    x: NDArray[np.float32]
    edge_index: NDArray[np.int64]
    edge_attr: NDArray[np.float32]


def _one_hot(value: Any, choices: Sequence[Any]) -> list[float]:
    row = [0.0] * (len(choices) + 1)
    row[choices.index(value) if value in choices else len(choices)] = 1.0
    return row


def molecule_graph(smiles: str) -> MoleculeGraph:
    """Turn one SMILES into atom features, bond features and directed edges.

    Every bond gives two edges, every node a self-loop (so that a lone ion still receives a message), and the virtual
    node, which is the last one, receives an edge from every atom.

    Parameters
    ----------
    smiles : str
        The molecule.

    Returns
    -------
    MoleculeGraph
        Arrays of one molecule.

    Raises
    ------
    InputError
        When the SMILES cannot be read.

    Examples
    --------
    >>> molecule_graph("CCO").x.shape
    (4, 80)
    """
    (molecule,) = _molecules([smiles])
    table = require("rdkit.Chem", "bio").GetPeriodicTable()
    rows = []
    for atom in molecule.GetAtoms():
        number = atom.GetAtomicNum()
        rows.append(
            _one_hot(atom.GetSymbol(), _ELEMENTS)
            + _one_hot(atom.GetDegree(), range(5))
            + _one_hot(atom.GetFormalCharge(), range(-3, 4))
            + _one_hot(str(atom.GetHybridization()), _HYBRIDISATIONS)
            + [float(atom.IsInRing()), float(atom.GetIsAromatic())]
            # Centred on boron-like to carbon-like values and divided by the spread over the elements above.
            + [
                (atom.GetMass() - 10.812) / 116.092,
                (table.GetRvdw(number) - 1.5) / 0.6,
                (table.GetRcovalent(number) - 0.64) / 0.76,
            ]
            + _one_hot(str(atom.GetChiralTag()), _CHIRALITIES)
            + _one_hot(atom.GetTotalNumHs(), range(5))
            + [0.0]
        )
    n = len(rows)
    rows.append([0.0] * (ATOM_FEATURES - 1) + [1.0])
    edges: list[tuple[int, int]] = []
    attributes: list[list[float]] = []
    for bond in molecule.GetBonds():
        row = (
            _one_hot(str(bond.GetBondType()), _BONDS)
            + [float(bond.GetIsConjugated()), float(bond.IsInRing())]
            + _one_hot(str(bond.GetStereo()), _STEREOS)
            + [0.0, 0.0]
        )
        i, j = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        edges += [(i, j), (j, i)]
        attributes += [row, row]
    virtual = [0.0] * (BOND_FEATURES - 2) + [1.0, 0.0]
    loop = [0.0] * (BOND_FEATURES - 2) + [0.0, 1.0]
    edges += [(i, n) for i in range(n)] + [(i, i) for i in range(n + 1)]
    attributes += [virtual] * n + [loop] * (n + 1)
    return MoleculeGraph(
        np.asarray(rows, dtype=np.float32),
        np.asarray(edges, dtype=np.int64).T.copy(),
        np.asarray(attributes, dtype=np.float32),
    )


@dataclass(frozen=True)
class PackedGraphs:
    """Several molecules in one edge list.

    Attributes
    ----------
    x, edge_index, edge_attr : ndarray
        As in :class:`MoleculeGraph`, node numbers shifted per molecule.
    molecule : ndarray of int64, shape (n_nodes,)
        Molecule of each node.
    slot : ndarray of int64, shape (n_nodes,)
        Position of each node inside its molecule.
    sizes : ndarray of int64, shape (n_molecules,)
        Nodes per molecule, the virtual one included.
    """

    x: NDArray[np.float32]
    edge_index: NDArray[np.int64]
    edge_attr: NDArray[np.float32]
    molecule: NDArray[np.int64]
    slot: NDArray[np.int64]
    sizes: NDArray[np.int64]


def pack_graphs(graphs: Sequence[MoleculeGraph]) -> PackedGraphs:
    """Put molecules one after the other into a single edge list.

    Parameters
    ----------
    graphs : sequence of MoleculeGraph
        At least one molecule.

    Returns
    -------
    PackedGraphs
        The joined arrays.

    Examples
    --------
    >>> pack_graphs([molecule_graph("C"), molecule_graph("CC")]).sizes
    array([2, 3])
    """
    sizes = np.array([len(g.x) for g in graphs], dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    return PackedGraphs(
        np.concatenate([g.x for g in graphs]),
        np.concatenate([g.edge_index + s for g, s in zip(graphs, starts, strict=True)], axis=1),
        np.concatenate([g.edge_attr for g in graphs]),
        np.repeat(np.arange(len(graphs)), sizes),
        np.concatenate([np.arange(n) for n in sizes]),
        sizes,
    )
