"""The training objective: squared error plus agreement of the shapes of the curves."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["curve_loss"]


def curve_loss(pred: Tensor, target: Tensor, mask: Tensor, alpha: float = 0.26, T: float = 2.5) -> Tensor:
    r"""Mean squared error blended with a divergence between the softened shapes of two curves.

    .. math:: (1-\alpha)\,\frac{\sum_{jk} m_{jk}(\hat E_{jk}-E_{jk})^2}{\sum_{jk} m_{jk}}
              + \alpha\,\frac{1}{|J|}\sum_{j\in J}\mathrm{KL}\bigl(\mathrm{softmax}(T E_j)\,\|\,
              \mathrm{softmax}(T\hat E_j)\bigr)

    where the softmax runs over the measured doses of a curve and J holds the curves with at least two of them.

    Parameters
    ----------
    pred : Tensor, shape (B, m)
        Predicted effects.
    target : Tensor, shape (B, m)
        Measured effects; what stands at masked places (NaN included) has no influence.
    mask : Tensor of bool, shape (B, m)
        True where a dose was measured.
    alpha : float, default 0.26, in [0, 1]
        Weight of the divergence: 0.26 suits tasks over cell lines, 0.57 tasks over drugs.
    T : float, default 2.5, > 0
        Factor on the effects before the softmax; larger values stress the strongest responses.

    Returns
    -------
    Tensor, shape ()
        The loss; zero if nothing is measured.

    Shapes
    ------
    B curves, m doses, padded.

    Notes
    -----
    1. The paper's temperature divides, its code multiplies; the factor multiplies here.
    2. A curve with a single measured dose has a softmax that is constant, so it is left out of the mean of the
       divergence, not counted as a zero.

    References
    ----------
    Alonso Campana, Prasse, Scheffer, Predicting Dose-Response Curves with Deep Neural Networks, ICML 2024.

    Examples
    --------
    >>> import torch
    >>> y = torch.tensor([[0.1, 0.9]])
    >>> float(curve_loss(y, y, torch.ones(1, 2, dtype=torch.bool)))
    0.0
    """
    mask = mask.bool()
    target = torch.where(mask, target, torch.zeros_like(target))
    error = torch.where(mask, pred - target, torch.zeros_like(pred))
    mse = error.square().sum() / mask.sum().clamp(min=1)
    if alpha == 0.0:
        return mse
    # A finite filler instead of -inf: exp() of it is an exact zero, and no inf - inf can arise in the gradient.
    low = torch.finfo(pred.dtype).min / 4
    log_p = torch.log_softmax(torch.where(mask, T * pred, low), dim=1)
    log_q = torch.log_softmax(torch.where(mask, T * target, low), dim=1)
    divergence = torch.where(mask, log_q.exp() * (log_q - log_p), torch.zeros_like(log_p)).sum(1)
    counted = mask.sum(1) >= 2
    kl = torch.where(counted, divergence, torch.zeros_like(divergence)).sum() / counted.sum().clamp(min=1)
    return (1.0 - alpha) * mse + alpha * kl
