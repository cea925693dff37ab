"""Small networks for the demo and the claims: residual, convolutional, fully connected and a character transformer."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["CharGPT", "DigitNet", "ResNet8", "layer_norm_mlp"]

Norm = Literal["bn", "ln", "none"]


def _norm(kind: Norm, width: int) -> nn.Module:
    if kind == "bn":
        return nn.BatchNorm2d(width)
    # One group: LayerNorm over channels and pixels, so the layer is scale-invariant but its neurons are not.
    return nn.GroupNorm(1, width) if kind == "ln" else nn.Identity()


def _conv(inputs: int, outputs: int, kernel: int, stride: int, standardise: bool) -> nn.Module:
    if standardise:
        from ._layers import WSConv2d

        return WSConv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm, standardise: bool) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, outputs, 3, stride, standardise)
        self.norm1 = _norm(norm, outputs)
        self.conv2 = _conv(outputs, outputs, 3, 1, standardise)
        self.norm2 = _norm(norm, outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(_conv(inputs, outputs, 1, stride, standardise), _norm(norm, outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet8(nn.Module):
    """Residual network of a stem, three blocks of two 3x3 convolutions and a linear head.

    Parameters
    ----------
    width : int, default 8
        Channels of the first block; the others have two and four times as many.
    norm : {"bn", "ln", "none"}, default "bn"
        Batch norm, layer norm (one group) or nothing.
    standardise : bool, default False
        Weight standardisation in every convolution.
    channels, classes : int
        Image channels and outputs.

    Notes
    -----
    1. Shapes: ``b x channels x h x w`` -> ``b x classes``.

    Examples
    --------
    >>> ResNet8(4)(torch.zeros(2, 3, 16, 16)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self, width: int = 8, norm: Norm = "bn", *, standardise: bool = False, channels: int = 3, classes: int = 10
    ) -> None:
        super().__init__()
        self.stem = _conv(channels, width, 3, 1, standardise)
        self.stem_norm = _norm(norm, width)
        self.blocks = nn.Sequential(
            _Block(width, width, 1, norm, standardise),
            _Block(width, 2 * width, 2, norm, standardise),
            _Block(2 * width, 4 * width, 2, norm, standardise),
        )
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(F.relu(self.stem_norm(self.stem(x))))
        return self.head(x.mean(dim=(2, 3)))


class DigitNet(nn.Module):
    """Three 3x3 convolutions with batch norm and a linear head, for 8x8 digits.

    Parameters
    ----------
    width : int, default 16
        Channels of the first convolution; the others have twice as many.
    norm : {"bn", "ln", "none"}, default "bn"
        Normalisation.
    standardise : bool, default False
        Weight standardisation.

    Examples
    --------
    >>> DigitNet(4)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """

    def __init__(self, width: int = 16, norm: Norm = "bn", *, standardise: bool = False) -> None:
        super().__init__()
        self.conv1 = _conv(1, width, 3, 1, standardise)
        self.norm1 = _norm(norm, width)
        self.conv2 = _conv(width, 2 * width, 3, 2, standardise)
        self.norm2 = _norm(norm, 2 * width)
        self.conv3 = _conv(2 * width, 2 * width, 3, 1, standardise)
        self.norm3 = _norm(norm, 2 * width)
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.relu(self.norm2(self.conv2(x)))
        x = F.relu(self.norm3(self.conv3(x)))
        return self.head(x.mean(dim=(2, 3)))


def layer_norm_mlp(inputs: int = 64, width: int = 64, depth: int = 3, outputs: int = 10) -> nn.Sequential:
    """Fully connected network with LayerNorm before every ReLU.

    Parameters
    ----------
    inputs, width, depth, outputs : int
        Sizes; ``depth`` hidden layers.

    Returns
    -------
    torch.nn.Sequential

    Examples
    --------
    >>> layer_norm_mlp(8, 16, 2, 3)(torch.zeros(5, 8)).shape
    torch.Size([5, 3])
    """
    layers: list[nn.Module] = []
    for i in range(depth):
        layers += [nn.Linear(inputs if i == 0 else width, width, bias=False), nn.LayerNorm(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, outputs))


class _TransformerBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class CharGPT(nn.Module):
    """Character transformer with pre-norm blocks and a head tied to the embedding.

    Parameters
    ----------
    vocabulary, width, depth, heads, context : int
        Sizes.

    Notes
    -----
    1. Shapes: ``b x t`` integers -> ``b x t x vocabulary``.

    Examples
    --------
    >>> CharGPT(30, width=16, depth=1, heads=2)(torch.zeros(2, 5, dtype=torch.long)).shape
    torch.Size([2, 5, 30])
    """

    def __init__(self, vocabulary: int, *, width: int = 64, depth: int = 2, heads: int = 4, context: int = 64) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.zeros(context, width))
        self.blocks = nn.Sequential(*(_TransformerBlock(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        # Small embeddings, because the tied head would otherwise start with logits of size sqrt(width).
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions[: ids.shape[1]]
        return self.head(self.norm(self.blocks(x)))
