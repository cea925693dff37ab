"""AdamW, SGD and Lion in rotational form, and plain Lion."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor
from torch.optim.optimizer import ParamsT

from assay._core.errors import InputError

from ._rules import AdamRule, Group, LionRule, SGDRule
from ._rv import RuleOptimizer, check_betas, check_number

OnZero = Literal["error", "skip"]


class RVAdamW(RuleOptimizer):
    r"""AdamW that holds every neuron's norm and turns it by the equilibrium angle from the first step.

    With :math:`d` the Adam direction of a neuron, made orthogonal to its weights :math:`p` (and free of mean), and
    :math:`\hat s` the running mean of :math:`|d|^2`,

    .. math::

        p' = p - \eta_r |p| \, d / \sqrt{\hat s}, \quad p \leftarrow p' \, |p| / |p'|, \quad
        \eta_r = \sqrt{2 \eta \lambda (1 - \beta_1) / (1 + \beta_1)} .

    Parameters
    ----------
    params : iterable of tensors, of (name, tensor), or of group dicts
        What to optimize. Every option below may differ between groups. With names, messages use them.
    lr : float or tensor, default 1e-3
        Learning rate, >= 0.
    betas : (float, float), default (0.9, 0.999)
        Decay of the two moments, each in [0, 1).
    eps : float, default 1e-8
        Added to the root of the second moment, >= 0.
    weight_decay : float, default 1e-2
        Decoupled weight decay, >= 0. Rotational tensors are not decayed: it sets their rotation. Others are decayed as
        in ``torch.optim.AdamW``.
    update_norm_decay_factor : float, default 0.9
        Memory of the running update norm, in [0, 1). At 0 every step turns by exactly
        :math:`\arctan \eta_r`.
    per_neuron : bool, default True
        Whether norms and angles are those of neurons (slices along ``neuron_dim``) or of whole tensors.
    zero_mean : bool, default True
        Whether neurons are centred, once at construction (keeping their norm), and stay so.
    rotational_eps : float, default 1e-8
        Added to the running update norm, >= 0.
    rotational : bool, optional
        Which tensors rotate: None, those with two or more dimensions and a weight decay; True, all (a vector is then
        one neuron); False, none.
    on_zero : {"error", "skip"}, default "error"
        What to do with a neuron without norm (zero, or constant with ``zero_mean``): refuse it, or leave it to the
        plain update until it has one.
    rotation_scale : float, default 1.0
        Factor of the rotation, >= 0, to slow down or speed up the group on purpose.
    neuron_dim : int, default 0
        Dimension along which the neurons lie; 1 for transposed convolutions.
    maximize : bool, default False
        Ascend instead of descend.
    foreach : bool, optional
        None or True: rows in batches that fit the cache, small tensors of equal shape stacked. False: one tensor at a
        time.

    Raises
    ------
    InputError
        If an option is out of range, a group is rotational without weight decay, a parameter is complex, a neuron has
        no norm (``on_zero="error"``), a gradient is sparse, or a tensor is sharded within its neurons.
    FloatingPointError
        If a rotational gradient is not finite while ``torch.autograd.set_detect_anomaly`` is on.

    Notes
    -----
    1. The rotation follows the group's current ``lr``, so every scheduler works; it grows as its root.
    2. Norms are taken at the first step of a tensor, and saved with the state. Loading a state centres nothing, and
       neurons that are already centred are not touched at construction, so a resumed run goes on bitwise.
    3. A tensor whose neurons have fewer than two free dimensions (fan-in 1, or 2 with ``zero_mean``) has no direction
       to turn to: it takes the plain update, with a warning.
    4. Neurons whose running update norm is below 1e-12 stay where they are (embedding rows without gradient).
    5. Parameters in half precision are rotated in float32 and rounded once; their moments stay in half precision, as in
       ``torch.optim.AdamW``. Steps smaller than that rounding are lost, as in every optimizer without a master copy.
    6. The batched path performs the plain order of operations on blocks that stay in cache instead of the algebraically
       shortened form on whole tensors. It needs no renormalisation schedule and no case for cancellation, and is faster.
    7. A group whose weight decay is set to 0 during training (``rotational=None``) takes the plain update from then on.
    8. ``torch.compile`` of a function that calls ``step`` breaks the graph there and runs the step eagerly;
       ``fullgraph=True`` is refused with that reason.
    9. Under FSDP2 tensors may be sharded along dimension 0, which leaves neurons whole; other shards are refused.

    References
    ----------
    Kosson, Messmer, Jaggi, "Rotational Equilibrium: How Weight Decay Balances Learning Across Neural Networks",
    ICML 2024, arXiv 2305.17212.

    Examples
    --------
    >>> import torch
    >>> from assay.training.rotational import RVAdamW
    >>> layer = torch.nn.Linear(8, 4)
    >>> optimizer = RVAdamW(layer.parameters(), lr=1e-2, weight_decay=0.1)
    >>> norms = layer.weight.detach().norm(dim=1)
    >>> for _ in range(10):
    ...     optimizer.zero_grad()
    ...     layer(torch.ones(2, 8)).square().sum().backward()
    ...     optimizer.step()
    >>> torch.allclose(layer.weight.norm(dim=1), norms)
    True
    """

    rule = AdamRule

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        update_norm_decay_factor: float = 0.9,
        per_neuron: bool = True,
        zero_mean: bool = True,
        rotational_eps: float = 1e-8,
        rotational: bool | None = None,
        on_zero: OnZero = "error",
        rotation_scale: float = 1.0,
        neuron_dim: int = 0,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None:
        defaults: dict[str, Any] = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "update_norm_decay_factor": update_norm_decay_factor,
            "per_neuron": per_neuron,
            "zero_mean": zero_mean,
            "rotational_eps": rotational_eps,
            "rotational": rotational,
            "on_zero": on_zero,
            "rotation_scale": rotation_scale,
            "neuron_dim": neuron_dim,
            "maximize": maximize,
            "foreach": foreach,
        }
        super().__init__(params, defaults)

    def _check_group(self, group: Group, index: int) -> None:
        check_betas(group, index)
        check_number(group, "eps", index, 0.0)


class RVSGD(RuleOptimizer):
    r"""SGD with momentum that holds every neuron's norm and turns it by the equilibrium angle from the first step.

    The step is that of :class:`RVAdamW` with the momentum buffer as direction and

    .. math:: \eta_r = \sqrt{2 \eta \lambda / (1 + \alpha)} .

    Parameters
    ----------
    params : iterable of tensors, of (name, tensor), or of group dicts
        What to optimize.
    lr : float or tensor, default 0.1
        Learning rate, >= 0.
    momentum : float, default 0.9
        :math:`\alpha`, in [0, 1).
    weight_decay : float, default 5e-4
        Weight decay in the meaning of ``torch.optim.SGD``, >= 0; sets the rotation of rotational tensors.
    nesterov : bool, default False
        Whether the direction looks ahead; needs a momentum > 0.
    update_norm_decay_factor, per_neuron, zero_mean, rotational_eps, rotational : optional
        See :class:`RVAdamW`.
    on_zero, rotation_scale, neuron_dim, maximize, foreach : optional
        See :class:`RVAdamW`.

    Raises
    ------
    InputError, FloatingPointError
        See :class:`RVAdamW`.

    Notes
    -----
    1. With ``nesterov`` the rate is that of the ordinary form, as in the paper's code. A random walk would turn faster
       by sqrt(1 + 2a - 2a^3), 1.16 at a = 0.9; ``rotation_scale`` can put that in.

    References
    ----------
    Kosson, Messmer, Jaggi, "Rotational Equilibrium", ICML 2024, arXiv 2305.17212.

    Examples
    --------
    >>> import torch
    >>> from assay.training.rotational import RVSGD
    >>> layer = torch.nn.Linear(8, 4)
    >>> optimizer = RVSGD(layer.parameters(), lr=0.1, weight_decay=0.05, update_norm_decay_factor=0.0)
    >>> before = layer.weight.detach().clone()
    >>> layer(torch.ones(2, 8) * torch.arange(8)).square().sum().backward()
    >>> optimizer.step()
    >>> cosine = torch.nn.functional.cosine_similarity(layer.weight.detach(), before, dim=1)
    >>> [round(float(a), 3) for a in cosine.arccos()]  # arctan(sqrt(2 * 0.1 * 0.05 / 1.9))
    [0.072, 0.072, 0.072, 0.072]
    """

    rule = SGDRule

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.1,
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        nesterov: bool = False,
        *,
        update_norm_decay_factor: float = 0.9,
        per_neuron: bool = True,
        zero_mean: bool = True,
        rotational_eps: float = 1e-8,
        rotational: bool | None = None,
        on_zero: OnZero = "error",
        rotation_scale: float = 1.0,
        neuron_dim: int = 0,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None:
        defaults: dict[str, Any] = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "update_norm_decay_factor": update_norm_decay_factor,
            "per_neuron": per_neuron,
            "zero_mean": zero_mean,
            "rotational_eps": rotational_eps,
            "rotational": rotational,
            "on_zero": on_zero,
            "rotation_scale": rotation_scale,
            "neuron_dim": neuron_dim,
            "maximize": maximize,
            "foreach": foreach,
        }
        super().__init__(params, defaults)

    def _check_group(self, group: Group, index: int) -> None:
        check_number(group, "momentum", index, 0.0, 1.0)
        if group["nesterov"] and group["momentum"] == 0:
            raise InputError(f"Group {index} has nesterov=True with momentum 0, which has nothing to look ahead with.")


class RVLion(RuleOptimizer):
    r"""Lion that holds every neuron's norm and turns it by the equilibrium angle from the first step.

    The step is that of :class:`RVAdamW` with the sign of the interpolated momentum as direction and

    .. math::

        \eta_r = \sqrt{\pi \eta \lambda s}, \quad s = (1 - \beta_1)^2 + \beta_1^2 (1 - \beta_2) / (1 + \beta_2) .

    Parameters
    ----------
    params : iterable of tensors, of (name, tensor), or of group dicts
        What to optimize.
    lr : float or tensor, default 1e-4
        Learning rate, >= 0.
    betas : (float, float), default (0.9, 0.99)
        Weight of the momentum in the direction, and decay of the momentum; each in [0, 1).
    weight_decay : float, default 0.1
        Decoupled weight decay, >= 0; sets the rotation of rotational tensors.
    update_norm_decay_factor, per_neuron, zero_mean, rotational_eps, rotational : optional
        See :class:`RVAdamW`.
    on_zero, rotation_scale, neuron_dim, maximize, foreach : optional
        See :class:`RVAdamW`.

    Raises
    ------
    InputError, FloatingPointError
        See :class:`RVAdamW`.

    References
    ----------
    Kosson, Messmer, Jaggi, "Rotational Equilibrium", ICML 2024, arXiv 2305.17212.
    Chen et al., "Symbolic Discovery of Optimization Algorithms", arXiv 2302.06675.

    Examples
    --------
    >>> import torch
    >>> from assay.training.rotational import RVLion
    >>> layer = torch.nn.Linear(8, 4)
    >>> optimizer = RVLion(layer.parameters(), lr=1e-3, weight_decay=1.0)
    >>> layer(torch.ones(2, 8)).square().sum().backward()
    >>> optimizer.step()
    """

    rule = LionRule

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.1,
        *,
        update_norm_decay_factor: float = 0.9,
        per_neuron: bool = True,
        zero_mean: bool = True,
        rotational_eps: float = 1e-8,
        rotational: bool | None = None,
        on_zero: OnZero = "error",
        rotation_scale: float = 1.0,
        neuron_dim: int = 0,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None:
        defaults: dict[str, Any] = {
            "lr": lr,
            "betas": betas,
            "weight_decay": weight_decay,
            "update_norm_decay_factor": update_norm_decay_factor,
            "per_neuron": per_neuron,
            "zero_mean": zero_mean,
            "rotational_eps": rotational_eps,
            "rotational": rotational,
            "on_zero": on_zero,
            "rotation_scale": rotation_scale,
            "neuron_dim": neuron_dim,
            "maximize": maximize,
            "foreach": foreach,
        }
        super().__init__(params, defaults)

    def _check_group(self, group: Group, index: int) -> None:
        check_betas(group, index)


class Lion(RuleOptimizer):
    r"""Plain Lion with decoupled weight decay, the counterpart of :class:`RVLion`.

    .. math::

        p \leftarrow (1 - \eta \lambda) p - \eta \, \mathrm{sign}(\beta_1 m + (1 - \beta_1) g), \quad
        m \leftarrow \beta_2 m + (1 - \beta_2) g .

    Parameters
    ----------
    params : iterable of tensors, of (name, tensor), or of group dicts
        What to optimize.
    lr : float or tensor, default 1e-4
        Learning rate, >= 0.
    betas : (float, float), default (0.9, 0.99)
        Weight of the momentum in the direction, and decay of the momentum; each in [0, 1).
    weight_decay : float, default 0.0
        Decoupled weight decay, >= 0.
    maximize : bool, default False
        Ascend instead of descend.
    foreach : bool, optional
        None or True: all tensors in one call. False: one tensor at a time.

    Raises
    ------
    InputError
        If an option is out of range, a parameter is complex or a gradient is sparse.

    References
    ----------
    Chen et al., "Symbolic Discovery of Optimization Algorithms", arXiv 2302.06675.

    Examples
    --------
    >>> import torch
    >>> from assay.training.rotational import Lion
    >>> w = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    >>> optimizer = Lion([w], lr=0.5)
    >>> w.square().sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.5, -1.5]
    """

    rule = LionRule
    rotates = False

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None:
        defaults: dict[str, Any] = {
            "lr": lr,
            "betas": betas,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
        }
        super().__init__(params, defaults)

    def _check_group(self, group: Group, index: int) -> None:
        check_betas(group, index)
