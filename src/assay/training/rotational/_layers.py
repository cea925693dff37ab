"""Layers whose gain is learned apart from their direction, for weights of fixed norm."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay._core.errors import InputError


def _column(gain: Tensor, weight: Tensor) -> Tensor:
    return gain.view(-1, *([1] * (weight.ndim - 1)))


class _Gained:
    """Adds a learnable gain per output to a layer; mixed in before the layer's class."""

    weight: Tensor
    gain: Tensor

    def gained_weight(self) -> Tensor:
        """The weight that the layer computes with, of the weight's shape."""
        return self.weight * _column(self.gain, self.weight)


class ScaledLinear(_Gained, nn.Linear):
    r"""Linear layer with a learnable gain per output, :math:`y = (g \odot W) x + b`.

    A rotational optimizer holds the norm of each row of :math:`W`; the gain gives that freedom back where it matters.

    Parameters
    ----------
    in_features, out_features : int
        Sizes, as in ``torch.nn.Linear``.
    bias : bool, default True
        Whether there is a bias, which the gain does not scale.
    device, dtype
        As in ``torch.nn.Linear``.

    Shapes
    ------
    ``* x in_features`` to ``* x out_features``; ``gain``: ``out_features``, initially 1.

    Notes
    -----
    1. The gain is a vector, so it is never rotational, but it is decayed like a bias if its group is.

    References
    ----------
    Kosson, Messmer, Jaggi, "Rotational Equilibrium", ICML 2024, arXiv 2305.17212.

    Examples
    --------
    >>> import torch
    >>> from assay.training.rotational import ScaledLinear
    >>> ScaledLinear(3, 2)(torch.ones(5, 3)).shape
    torch.Size([5, 2])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        self.gain = nn.Parameter(torch.ones(out_features, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.gained_weight(), self.bias)


class ScaledConv2d(_Gained, nn.Conv2d):
    r"""Convolution with a learnable gain per output channel.

    Parameters
    ----------
    *args, **kwargs
        As for ``torch.nn.Conv2d``.

    Shapes
    ------
    ``b x in_channels x h x w`` to ``b x out_channels x h' x w'``; ``gain``: ``out_channels``, initially 1.

    References
    ----------
    Kosson, Messmer, Jaggi, "Rotational Equilibrium", ICML 2024, arXiv 2305.17212.

    Examples
    --------
    >>> import torch
    >>> from assay.training.rotational import ScaledConv2d
    >>> ScaledConv2d(3, 4, 3, padding=1)(torch.ones(2, 3, 8, 8)).shape
    torch.Size([2, 4, 8, 8])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.gain = nn.Parameter(torch.ones(self.out_channels, device=self.weight.device, dtype=self.weight.dtype))

    def forward(self, x: Tensor) -> Tensor:
        return self._conv_forward(x, self.gained_weight(), self.bias)


class _Standardised:
    """Weight standardisation per output; mixed in before the layer's class."""

    weight: Tensor
    gain: Tensor | None
    constant: float
    eps: float

    def _standardise(self, constant: float, gain: bool, eps: float) -> None:
        fan_in = self.weight[0].numel()
        if fan_in < 2:
            raise InputError("Weight standardisation needs at least two weights per output.")
        if not (math.isfinite(constant) and constant > 0):
            raise InputError(f"constant is {constant!r}; it must be a finite number > 0.")
        if not (math.isfinite(eps) and eps >= 0):
            raise InputError(f"eps is {eps!r}; it must be a finite number >= 0.")
        self.constant, self.eps = float(constant), float(eps)
        self.gain = (
            nn.Parameter(torch.ones(len(self.weight), device=self.weight.device, dtype=self.weight.dtype))
            if gain
            else None
        )

    def standardised_weight(self) -> Tensor:
        """The weight that the layer computes with, of the weight's shape."""
        rows = self.weight.flatten(1)
        rows = rows - rows.mean(1, keepdim=True)
        rows = rows * (self.constant / (rows.norm(dim=1, keepdim=True) + self.eps))
        if self.gain is not None:
            rows = rows * self.gain.unsqueeze(1)
        return rows.view_as(self.weight)


class WSLinear(_Standardised, nn.Linear):
    r"""Linear layer with standardised weights: per output mean removed, norm fixed.

    .. math:: \hat w = c \, g \, (w - \bar w) / |w - \bar w|

    Parameters
    ----------
    in_features, out_features : int
        Sizes, as in ``torch.nn.Linear``; at least two inputs.
    bias : bool, default True
        Whether there is a bias.
    constant : float, default sqrt(2)
        :math:`c`, the norm of every row, > 0; sqrt(2) keeps the variance through a ReLU.
    gain : bool, default False
        Whether a learnable gain :math:`g` per output (initially 1) multiplies the row.
    eps : float, default 1e-8
        Added to the norm, >= 0; a constant row gives zero instead of NaN.
    device, dtype
        As in ``torch.nn.Linear``.

    Shapes
    ------
    ``* x in_features`` to ``* x out_features``.

    Raises
    ------
    InputError
        If there is only one input, or ``constant`` or ``eps`` is out of range.

    References
    ----------
    Kosson, Messmer, Jaggi, "Rotational Equilibrium", ICML 2024, arXiv 2305.17212.
    Qiao et al., "Micro-Batch Training with Batch-Channel Normalization and Weight Standardization", arXiv 1903.10520.

    Examples
    --------
    >>> from assay.training.rotational import WSLinear
    >>> [round(float(n), 4) for n in WSLinear(5, 2).standardised_weight().detach().norm(dim=1)]
    [1.4142, 1.4142]
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        constant: float = math.sqrt(2),
        gain: bool = False,
        eps: float = 1e-8,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        self._standardise(constant, gain, eps)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.standardised_weight(), self.bias)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, constant={self.constant:g}, gain={self.gain is not None}"


class WSConv2d(_Standardised, nn.Conv2d):
    """Convolution with standardised weights; see :class:`WSLinear`.

    Parameters
    ----------
    *args, **kwargs
        As for ``torch.nn.Conv2d``.
    constant, gain, eps
        As in :class:`WSLinear`.

    Shapes
    ------
    ``b x in_channels x h x w`` to ``b x out_channels x h' x w'``.

    Raises
    ------
    InputError
        If there is one weight per output, or ``constant`` or ``eps`` is out of range.

    References
    ----------
    Kosson, Messmer, Jaggi, "Rotational Equilibrium", ICML 2024, arXiv 2305.17212.
    Qiao et al., "Micro-Batch Training with Batch-Channel Normalization and Weight Standardization", arXiv 1903.10520.

    Examples
    --------
    >>> import torch
    >>> from assay.training.rotational import WSConv2d
    >>> WSConv2d(3, 4, 3, padding=1, gain=True)(torch.ones(2, 3, 8, 8)).shape
    torch.Size([2, 4, 8, 8])
    """

    def __init__(
        self, *args: Any, constant: float = math.sqrt(2), gain: bool = False, eps: float = 1e-8, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._standardise(constant, gain, eps)

    def forward(self, x: Tensor) -> Tensor:
        return self._conv_forward(x, self.standardised_weight(), self.bias)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, constant={self.constant:g}, gain={self.gain is not None}"


def add_gains(model: nn.Module, where: Callable[[str, nn.Module], bool] | None = None) -> list[str]:
    """Turn the linear and 2-d convolution layers of a model into their scaled forms, with identical outputs.

    Parameters
    ----------
    model : torch.nn.Module
        Changed in place: the layers stay the same objects, with the same weights, hooks and names, and get a parameter
        ``gain`` of ones.
    where : callable, optional
        ``where(name, layer)`` says which layers; by default all. Layers that are normalised afterwards need none.

    Returns
    -------
    list of str
        Names of the changed layers, in the order of ``model.named_modules()``.

    Raises
    ------
    InputError
        If ``model`` is not a module, or no layer could be changed.

    Notes
    -----
    1. Call it before the optimizer is built, which must see the gains.
    2. Subclasses and parametrised layers are left alone, because their forward pass is their own.
    3. The fused inference path of ``torch.nn.TransformerEncoderLayer`` reads the weights of its layers without calling
       them; it is switched off where such a layer gets a gain.

    References
    ----------
    Kosson, Messmer, Jaggi, "Rotational Equilibrium", ICML 2024, arXiv 2305.17212.

    Examples
    --------
    >>> import torch
    >>> from assay.training.rotational import add_gains
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> x = torch.ones(3, 4)
    >>> before = model(x)
    >>> add_gains(model)
    ['0', '2']
    >>> torch.equal(model(x), before)
    True
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"add_gains takes a torch.nn.Module, not {type(model).__name__}.")
    scaled: dict[type[nn.Module], type[nn.Module]] = {nn.Linear: ScaledLinear, nn.Conv2d: ScaledConv2d}
    changed = []
    for name, module in model.named_modules():
        kind = scaled.get(type(module))
        if kind is None or (where is not None and not where(name, module)):
            continue
        weight = module.weight
        assert isinstance(weight, Tensor)
        gain = torch.ones(weight.shape[0], device=weight.device, dtype=weight.dtype)
        # The class and not the object, so that hooks, references and tied weights stay what they are.
        module.__class__ = kind
        module.gain = nn.Parameter(gain, requires_grad=weight.requires_grad)
        changed.append(name)
    if not changed:
        raise InputError(
            "No layer of the model could be given a gain: there is no plain torch.nn.Linear or Conv2d"
            + (" that 'where' accepts." if where is not None else ".")
        )
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False
        elif isinstance(module, nn.TransformerEncoderLayer) and any(isinstance(m, _Gained) for m in module.children()):
            module.activation_relu_or_gelu = 0
    return changed
