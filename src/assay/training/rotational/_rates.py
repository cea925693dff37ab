"""Closed forms of the equilibrium rotation, one line per update rule."""

from __future__ import annotations

import math
from typing import TypeVar

# Floats, NumPy arrays and tensors all work: the formulas use only arithmetic and ``** 0.5``. A tensor learning rate
# must stay a tensor, because reading it would make the host wait for the device.
Number = TypeVar("Number")


def rotation_adamw(lr: Number, weight_decay: Number, beta1: Number) -> Number:
    r"""Equilibrium rotation per step of AdamW, in radians.

    .. math:: \eta_r = \sqrt{2 \eta \lambda \, (1 - \beta_1) / (1 + \beta_1)}

    Parameters
    ----------
    lr, weight_decay : float or array
        Learning rate and decoupled weight decay in the meaning of ``torch.optim.AdamW``, both >= 0.
    beta1 : float or array
        Decay of the first moment, in [0, 1).

    Returns
    -------
    float or array
        Root-mean-square angle between the weight vectors of two successive steps.

    References
    ----------
    Kosson, Messmer, Jaggi, "Rotational Equilibrium", arXiv 2305.17212.

    Examples
    --------
    >>> round(rotation_adamw(1e-3, 0.1, 0.9), 6)
    0.003244
    """
    return (2 * lr * weight_decay * (1 - beta1) / (1 + beta1)) ** 0.5  # type: ignore[operator]


def rotation_sgdm(lr: Number, weight_decay: Number, momentum: Number, nesterov: bool = False) -> Number:
    r"""Equilibrium rotation per step of SGD with momentum and L2 decay in the gradient, in radians.

    .. math:: \eta_r = \sqrt{2 \eta \lambda / (1 + \alpha)}

    Parameters
    ----------
    lr, weight_decay : float or array
        Learning rate and weight decay in the meaning of ``torch.optim.SGD``, both >= 0.
    momentum : float or array
        Momentum :math:`\alpha` without dampening, in [0, 1).
    nesterov : bool, default False
        Whether the step looks ahead. The long-run effect of a gradient is the same, but a single step is longer:
        :math:`\eta_r^2` grows by :math:`1 + 2\alpha - 2\alpha^3`.

    Returns
    -------
    float or array
        Root-mean-square angle between the weight vectors of two successive steps.

    Notes
    -----
    1. The paper has no formula for Nesterov's form. With independent gradients the step
       :math:`g_t + \alpha \, buf_t = (1 + \alpha) g_t + \alpha^2 buf_{t-1}` has mean square
       :math:`(1 + \alpha)^2 + \alpha^4 / (1 - \alpha^2)` times that of a gradient, against
       :math:`1 / (1 - \alpha^2)` of the ordinary form. :class:`RVSGD` keeps to the paper and uses the ordinary
       rate in both forms.

    References
    ----------
    Kosson, Messmer, Jaggi, "Rotational Equilibrium", arXiv 2305.17212.

    Examples
    --------
    >>> round(rotation_sgdm(0.1, 5e-4, 0.9), 6)
    0.007255
    """
    longer = 1 + 2 * momentum - 2 * momentum**3 if nesterov else 1  # type: ignore[operator]
    return (2 * lr * weight_decay / (1 + momentum) * longer) ** 0.5  # type: ignore[operator]


def rotation_lion(lr: Number, weight_decay: Number, betas: tuple[Number, Number]) -> Number:
    r"""Equilibrium rotation per step of Lion, in radians.

    .. math:: \eta_r = \sqrt{\pi \eta \lambda s}, \quad
              s = (1 - \beta_1)^2 + \beta_1^2 (1 - \beta_2) / (1 + \beta_2)

    Parameters
    ----------
    lr, weight_decay : float or array
        Learning rate and decoupled weight decay, both >= 0.
    betas : pair of float or array
        Interpolation weight and decay of the momentum, each in [0, 1).

    Returns
    -------
    float or array
        Root-mean-square angle between the weight vectors of two successive steps.

    References
    ----------
    Kosson, Messmer, Jaggi, "Rotational Equilibrium", arXiv 2305.17212.

    Examples
    --------
    >>> round(rotation_lion(1e-4, 1.0, (0.9, 0.99)), 6)
    0.002102
    """
    beta1, beta2 = betas
    s = (1 - beta1) ** 2 + beta1**2 * (1 - beta2) / (1 + beta2)  # type: ignore[operator]
    return (math.pi * lr * weight_decay * s) ** 0.5  # type: ignore[operator]
