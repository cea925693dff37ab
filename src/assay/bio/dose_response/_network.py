"""The network from encoded inputs to curves: interaction, latent Hill curves, regression."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from assay.bio.dose_response._encoders import (
    ConcatInteraction,
    CrossAttentionInteraction,
    ExpressionEncoder,
    FingerprintEncoder,
    GraphEncoder,
    GraphTensors,
    IdentityEncoder,
)

__all__ = ["ARCANetConfig", "ARCANetModule"]


@dataclass(frozen=True)
class ARCANetConfig:
    """Sizes and switches of :class:`ARCANetModule`; everything is JSON.

    Attributes
    ----------
    n_cell_inputs, n_drug_inputs : int
        Columns of the expression matrix and of the fingerprint, or the number of names for identities.
    cell_encoder : {"expression", "identity"}
        How a line is encoded.
    drug_encoder : {"fingerprint", "graph", "identity"}
        How a drug is encoded.
    dim, hidden, regression : int
        Widths d, H and F.
    p_gene, p_drug, p_interaction, p_hill, p_fc : float
        Dropout rates.
    activation : {"relu", "tanh"}
        Last activation of the regression network.
    dose_scale : {"log10", "identity"}
        What multiplies the slopes: the logarithm of the dose, or the dose itself in micromolar.
    batch_norm, layer_norm, latent_hill : bool
        Normalisations on u and r; ``latent_hill=False`` feeds the dose beside u into the regression network instead
        of latent Hill curves (an ablation), and ``linear_head=True`` drops the regression network (another).
    graph_layers, graph_heads, full_layers, attention_heads : int
        Sizes of the graph encoder.
    bond_dim : int
        Width of the bond features.
    """

    n_cell_inputs: int
    n_drug_inputs: int
    cell_encoder: Literal["expression", "identity"] = "expression"
    drug_encoder: Literal["fingerprint", "graph", "identity"] = "fingerprint"
    dim: int = 128
    hidden: int = 128
    regression: int = 256
    p_gene: float = 0.1
    p_drug: float = 0.2
    p_interaction: float = 0.1
    p_hill: float = 0.05
    p_fc: float = 0.1
    activation: Literal["relu", "tanh"] = "relu"
    dose_scale: Literal["log10", "identity"] = "log10"
    batch_norm: bool = True
    layer_norm: bool = False
    latent_hill: bool = True
    linear_head: bool = False
    graph_layers: int = 3
    graph_heads: int = 2
    full_layers: int = 1
    attention_heads: int = 2
    bond_dim: int = 12

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary that JSON can hold."""
        return asdict(self)


def _mlp(d_in: int, d_mid: int, d_out: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(nn.Linear(d_in, d_mid), nn.Dropout(dropout), nn.ReLU(), nn.Linear(d_mid, d_out))


class ARCANetModule(nn.Module):
    r"""Curves of (drug, line) pairs as a regression on latent Hill curves.

    .. math:: h(z) = \sigma(b(u) - s(u)\,f(z)), \qquad \hat E(z) = w^\top\,\tfrac12\bigl(\mathrm{FC}(h) + h\bigr) + w_0

    where u is the joint encoding of drug and line, and f the logarithm of the dose (or the dose).

    Parameters
    ----------
    config : ARCANetConfig
        Sizes and switches.

    Shapes
    ------
    B curves, m doses (padded places hold any finite dose): z (B, m); u, bias, slope (B, d); h (B, m, d);
    output (B, m).

    Notes
    -----
    1. Lines and drugs are encoded once per distinct one of a batch: ``cells`` and ``drugs`` hold distinct inputs,
       ``cell_pos`` and ``drug_pos`` say which of them a curve has.
    2. The hidden width of the networks for bias and slope is d.

    References
    ----------
    Alonso Campana, Prasse, Scheffer, Predicting Dose-Response Curves with Deep Neural Networks, ICML 2024.

    Examples
    --------
    >>> import torch
    >>> net = ARCANetModule(ARCANetConfig(3, 2, "identity", "identity", dim=8, hidden=8, regression=8))
    >>> pos = torch.tensor([0, 1])
    >>> net.eval()(torch.arange(3), torch.arange(2), pos, pos, torch.ones(2, 5)).shape
    torch.Size([2, 5])
    """

    def __init__(self, config: ARCANetConfig) -> None:
        super().__init__()
        self.config = c = config
        self.cell_encoder: nn.Module = (
            ExpressionEncoder(c.n_cell_inputs, c.dim, c.p_gene)
            if c.cell_encoder == "expression"
            else IdentityEncoder(c.n_cell_inputs, c.dim)
        )
        self.drug_encoder: nn.Module
        self.interaction: nn.Module
        if c.drug_encoder == "graph":
            self.drug_encoder = GraphEncoder(
                c.n_drug_inputs,
                c.bond_dim,
                c.dim,
                layers=c.graph_layers,
                heads=c.graph_heads,
                full_layers=c.full_layers,
                full_heads=c.attention_heads,
            )
            self.interaction = CrossAttentionInteraction(c.dim, c.hidden, c.attention_heads, c.p_interaction)
        else:
            self.drug_encoder = (
                FingerprintEncoder(c.n_drug_inputs, c.dim, c.p_drug)
                if c.drug_encoder == "fingerprint"
                else IdentityEncoder(c.n_drug_inputs, c.dim)
            )
            self.interaction = ConcatInteraction(c.dim, c.hidden, c.p_interaction)
        self.norm: nn.Module = nn.BatchNorm1d(c.dim) if c.batch_norm else nn.Identity()
        if c.latent_hill:
            self.bias = _mlp(c.dim, c.dim, c.dim, c.p_hill)
            self.slope = _mlp(c.dim, c.dim, c.dim, c.p_hill)
        else:
            self.dose = nn.Linear(1, c.dim)
        self.fc: nn.Module = (
            nn.Identity()
            if c.linear_head
            else nn.Sequential(
                nn.Linear(c.dim, c.regression),
                nn.ReLU(),
                nn.Dropout(c.p_fc),
                nn.Linear(c.regression, c.dim),
                nn.ReLU() if c.activation == "relu" else nn.Tanh(),
            )
        )
        self.layer_norm: nn.Module = nn.LayerNorm(c.dim) if c.layer_norm else nn.Identity()
        self.out = nn.Linear(c.dim, 1)

    def encode_pairs(self, cells: Tensor, drugs: Tensor | GraphTensors, cell_pos: Tensor, drug_pos: Tensor) -> Tensor:
        """Joint encoding u of the pairs, shape (B, d)."""
        cell = self.cell_encoder(cells)
        if self.config.drug_encoder == "graph":
            atoms, mask = self.drug_encoder(drugs)
            u = self.interaction(cell, atoms, mask, cell_pos, drug_pos)
        else:
            u = self.interaction(cell, self.drug_encoder(drugs), cell_pos, drug_pos)
        return self.norm(u)

    def latent(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Bias and slope of the latent Hill curves, each of shape (B, d)."""
        if not self.config.latent_hill:
            return u, u
        return (self.bias(u) + u) / 2, (self.slope(u) + u) / 2

    def respond(self, bias: Tensor, slope: Tensor, dose: Tensor) -> Tensor:
        """Effects at ``dose`` (uM, any trailing shape after the curve axis is one axis m), shape (B, m)."""
        x = torch.log10(dose) if self.config.dose_scale == "log10" else dose
        if self.config.latent_hill:
            h = torch.sigmoid(bias[:, None, :] - slope[:, None, :] * x[:, :, None])
        else:
            h = torch.relu(bias[:, None, :] + self.dose(x[:, :, None]))
        r = h if self.config.linear_head else (self.fc(h) + h) / 2
        # [..., 0] and not squeeze(): a batch of curves with a single dose keeps its axis.
        return self.out(self.layer_norm(r))[..., 0]

    def forward(
        self,
        cells: Tensor,
        drugs: Tensor | GraphTensors,
        cell_pos: Tensor,
        drug_pos: Tensor,
        dose: Tensor,
    ) -> Tensor:
        """Predict the effects of the curves.

        Parameters
        ----------
        cells : Tensor, shape (n_c, genes) or (n_c,) for identities
            Distinct lines.
        drugs : Tensor, shape (n_d, bits) or (n_d,), or GraphTensors of n_d molecules
            Distinct drugs.
        cell_pos, drug_pos : Tensor of int64, shape (B,)
            Row of line and drug of each curve.
        dose : Tensor, shape (B, m)
            Doses in micromolar, positive.

        Returns
        -------
        Tensor, shape (B, m)
            Predicted inhibition.
        """
        bias, slope = self.latent(self.encode_pairs(cells, drugs, cell_pos, drug_pos))
        return self.respond(bias, slope, dose)
