"""Encoders of cell lines and drugs, and the two ways to let them interact."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from assay.bio._shared.molecules import PackedGraphs

__all__ = [
    "ConcatInteraction",
    "CrossAttentionInteraction",
    "ExpressionEncoder",
    "FingerprintEncoder",
    "GATv2",
    "GraphEncoder",
    "GraphTensors",
    "IdentityEncoder",
]


class ExpressionEncoder(nn.Module):
    """Gene expression to a vector: dropout on the genes, then one linear layer.

    Parameters
    ----------
    n_genes : int
        Columns of the input (z-scores or principal components).
    dim : int
        Width of the output.
    dropout : float, default 0.1, in [0, 1)
        Chance that a gene is hidden in training.

    Shapes
    ------
    (n, n_genes) -> (n, dim)
    """

    def __init__(self, n_genes: int, dim: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(n_genes, dim)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.constant_(self.linear.bias, 0.01)

    def forward(self, x: Tensor) -> Tensor:
        """Encode lines."""
        return self.linear(self.dropout(x))


class FingerprintEncoder(nn.Module):
    """Fingerprint to a vector: one linear layer, then dropout.

    Parameters
    ----------
    n_bits : int
        Columns of the input.
    dim : int
        Width of the output.
    dropout : float, default 0.2, in [0, 1)
        Dropout on the output.

    Shapes
    ------
    (n, n_bits) -> (n, dim)
    """

    def __init__(self, n_bits: int, dim: int, dropout: float = 0.2) -> None:
        super().__init__()
        self.linear = nn.Linear(n_bits, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Encode drugs."""
        return self.dropout(self.linear(x))


class IdentityEncoder(nn.Module):
    """A learned vector per name, for lines without expression and drugs without a structure.

    Parameters
    ----------
    n : int
        Number of names.
    dim : int
        Width of the vectors.

    Shapes
    ------
    (n,) of int64 -> (n, dim)
    """

    def __init__(self, n: int, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n, dim)

    def forward(self, index: Tensor) -> Tensor:
        """Look names up."""
        return self.embedding(index)


class GraphTensors:
    """Tensors of several molecules, with the selection of some of them.

    Parameters
    ----------
    packed : PackedGraphs
        Molecules of :func:`assay.bio._shared.molecules.pack_graphs`.
    device : torch.device or str, default "cpu"
        Where the tensors live.
    """

    def __init__(self, packed: PackedGraphs, device: torch.device | str = "cpu") -> None:
        self.x = torch.as_tensor(packed.x, device=device)
        self.edge_index = torch.as_tensor(packed.edge_index, device=device)
        self.edge_attr = torch.as_tensor(packed.edge_attr, device=device)
        self.molecule = torch.as_tensor(packed.molecule, device=device)
        self.slot = torch.as_tensor(packed.slot, device=device)
        self.sizes = torch.as_tensor(packed.sizes, device=device)

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: Tensor) -> GraphTensors:
        """Keep the molecules of ``index`` (distinct, ascending), in that order."""
        if len(index) == len(self) and bool((index == torch.arange(len(self), device=index.device)).all()):
            return self
        position = torch.full((len(self),), -1, dtype=torch.long, device=self.x.device)
        position[index] = torch.arange(len(index), device=self.x.device)
        nodes = position[self.molecule] >= 0
        new = torch.cumsum(nodes, 0) - 1
        edges = nodes[self.edge_index[1]]
        out = object.__new__(GraphTensors)
        out.x = self.x[nodes]
        out.edge_index = new[self.edge_index[:, edges]]
        out.edge_attr = self.edge_attr[edges]
        out.molecule = position[self.molecule[nodes]]
        out.slot = self.slot[nodes]
        out.sizes = self.sizes[index]
        return out


class GATv2(nn.Module):
    r"""Graph attention with the nonlinearity before the scoring vector, over an edge list.

    .. math:: s_{ij} = a^\top \mathrm{LeakyReLU}(W_l x_j + W_r x_i + W_e e_{ij}), \quad
              x_i' = \sum_j \mathrm{softmax}_j(s_{ij}) W_l x_j + b

    Parameters
    ----------
    in_dim, out_dim : int
        Widths of input and output.
    edge_dim : int
        Width of the edge features.
    heads : int, default 1
        Attention heads of width ``out_dim``; their outputs are averaged.

    Shapes
    ------
    x (nodes, in_dim), edge_index (2, edges), edge_attr (edges, edge_dim) -> (nodes, out_dim)

    References
    ----------
    Brody, Alon, Yahav, How Attentive are Graph Attention Networks?, arXiv 2105.14491.
    """

    def __init__(self, in_dim: int, out_dim: int, edge_dim: int, heads: int = 1) -> None:
        super().__init__()
        self.heads, self.out_dim = heads, out_dim
        self.source = nn.Linear(in_dim, heads * out_dim)
        self.target = nn.Linear(in_dim, heads * out_dim)
        self.edge = nn.Linear(edge_dim, heads * out_dim, bias=False)
        self.score = nn.Parameter(torch.empty(heads, out_dim))
        self.bias = nn.Parameter(torch.zeros(out_dim))
        for layer in (self.source, self.target, self.edge):
            nn.init.xavier_uniform_(layer.weight)
        nn.init.xavier_uniform_(self.score)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Send one round of messages."""
        source, target = edge_index
        shape = (-1, self.heads, self.out_dim)
        left = self.source(x).view(shape)
        message = left[source]
        pre = message + self.target(x).view(shape)[target] + self.edge(edge_attr).view(shape)
        score = (nn.functional.leaky_relu(pre, 0.2) * self.score).sum(-1)
        index = target[:, None].expand_as(score)
        # Subtracting the largest score of a node changes nothing but keeps exp() finite; it needs no gradient.
        top = torch.full((len(x), self.heads), -torch.inf, dtype=x.dtype, device=x.device)
        top = top.scatter_reduce(0, index, score.detach(), "amax")
        weight = (score - top[target]).exp()
        total = torch.zeros_like(top).index_add(0, target, weight)
        weight = weight / total[target]
        out = torch.zeros_like(left).index_add(0, target, weight[:, :, None] * message)
        return out.mean(1) + self.bias


class GraphEncoder(nn.Module):
    """Molecular graphs to one vector per atom, padded to the largest molecule.

    Parameters
    ----------
    atom_dim, bond_dim : int
        Widths of the features.
    dim : int
        Width of the vectors.
    layers : int, default 3, >= 1
        Message-passing layers.
    heads : int, default 2
        Heads of the layers after the first, which has one.
    full_layers : int, default 1
        Layers of attention among all atoms of a molecule.
    full_heads : int, default 2
        Heads of those layers.

    Shapes
    ------
    GraphTensors of n molecules -> (n, atoms, dim) and a mask (n, atoms), True at atoms
    """

    def __init__(
        self,
        atom_dim: int,
        bond_dim: int,
        dim: int,
        layers: int = 3,
        heads: int = 2,
        full_layers: int = 1,
        full_heads: int = 2,
    ) -> None:
        super().__init__()
        self.first = GATv2(atom_dim, dim, bond_dim, heads=1)
        self.layers = nn.ModuleList(GATv2(dim, dim, bond_dim, heads=heads) for _ in range(layers - 1))
        self.full = nn.ModuleList(nn.MultiheadAttention(dim, full_heads, batch_first=True) for _ in range(full_layers))

    def forward(self, graphs: GraphTensors) -> tuple[Tensor, Tensor]:
        """Encode molecules."""
        x = self.first(graphs.x, graphs.edge_index, graphs.edge_attr)
        for layer in self.layers:
            x = (layer(torch.relu(x), graphs.edge_index, graphs.edge_attr) + x) / 2
        n, width = len(graphs), int(graphs.sizes.max())
        atoms = x.new_zeros(n, width, x.shape[1])
        atoms[graphs.molecule, graphs.slot] = x
        mask = torch.zeros(n, width, dtype=torch.bool, device=x.device)
        mask[graphs.molecule, graphs.slot] = True
        for attention in self.full:
            mixed, _ = attention(atoms, atoms, atoms, key_padding_mask=~mask, need_weights=False)
            atoms = (mixed + atoms) / 2
        return atoms, mask


class ConcatInteraction(nn.Module):
    """A two-layer network on the concatenation of line and drug.

    The first layer is the sum of a part for the line and a part for the drug, so each is computed once per distinct
    line and drug of a batch and only the sum is taken per curve.

    Parameters
    ----------
    dim : int
        Width of line, drug and output.
    hidden : int
        Width between.
    dropout : float, default 0.1
        Dropout on the hidden layer.

    Shapes
    ------
    cells (n_c, dim), drugs (n_d, dim), cell_pos and drug_pos (B,) -> (B, dim)
    """

    def __init__(self, dim: int, hidden: int, dropout: float = 0.1) -> None:
        super().__init__()
        whole = nn.Linear(2 * dim, hidden)  # drawn as one layer so that its scale is that of the concatenation
        self.cell = nn.Linear(dim, hidden)
        self.drug = nn.Linear(dim, hidden, bias=False)
        with torch.no_grad():
            self.cell.weight.copy_(whole.weight[:, :dim])
            self.drug.weight.copy_(whole.weight[:, dim:])
            self.cell.bias.copy_(whole.bias)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(hidden, dim)

    def forward(self, cells: Tensor, drugs: Tensor, cell_pos: Tensor, drug_pos: Tensor) -> Tensor:
        """Combine lines and drugs into curves."""
        # index_select has a faster backward pass on CPU than advanced indexing (no sort of the index).
        hidden = self.cell(cells).index_select(0, cell_pos) + self.drug(drugs).index_select(0, drug_pos)
        return self.out(self.dropout(torch.relu(hidden)))


class CrossAttentionInteraction(nn.Module):
    """The line asks, the atoms of the drug answer.

    Parameters
    ----------
    dim : int
        Width of line, atoms and output.
    hidden : int
        Width of the network that makes the question.
    heads : int, default 2
        Attention heads; they divide ``dim``.
    dropout : float, default 0.1
        Dropout in the question's network.

    Shapes
    ------
    cells (n_c, dim), atoms (n_d, a, dim), mask (n_d, a), cell_pos and drug_pos (B,) -> (B, dim)
    """

    def __init__(self, dim: int, hidden: int, heads: int = 2, dropout: float = 0.1) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, dim))
        self.q = nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, 2 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, cells: Tensor, atoms: Tensor, mask: Tensor, cell_pos: Tensor, drug_pos: Tensor) -> Tensor:
        """Combine lines and molecules into curves."""
        n, a, d = atoms.shape
        width = d // self.heads
        question = self.query(cells)
        q = self.q(question).index_select(0, cell_pos).view(-1, self.heads, 1, width)
        k, v = self.kv(atoms).view(n, a, 2, self.heads, width).permute(2, 0, 3, 1, 4)
        score = (q * k.index_select(0, drug_pos)).sum(-1) / width**0.5
        score = score.masked_fill(~mask.index_select(0, drug_pos)[:, None, :], -torch.inf)
        weight = torch.softmax(score, -1)
        answer = (weight[..., None] * v.index_select(0, drug_pos)).sum(2).reshape(-1, d)
        attended = self.out(answer) + question.index_select(0, cell_pos)
        return (attended + cells.index_select(0, cell_pos)) / 2
