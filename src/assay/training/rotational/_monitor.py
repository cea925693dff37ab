"""Watch how far the weights of a running training rotate per step, beside what weight decay predicts."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from assay._core.errors import InputError

from ._equilibrium import equilibrium
from ._names import clean_name
from ._rv import is_rotational

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RotationMonitor", "describe_group", "neuron_rows"]

#: A layer counts as rotating as predicted within this relative band; the reports draw the same band.
BAND = 0.15
#: Median share of the gradient along the weight below which a layer is taken as scale-invariant.
INVARIANT = 0.05
#: A gradient of random direction in C dimensions has a share of 1/sqrt(C) along the weight: in a wide layer that alone is
#: below `INVARIANT`, so the threshold is never above half of it. Where the scale does not matter the share is 1e-6 to 1e-3.
CHANCE = 0.5


@dataclass
class _Watch:
    name: str
    param: Tensor
    group: int
    rows: Callable[[Tensor], Tensor]
    neurons: int
    dim: int
    turns: bool = True
    copy: Tensor | None = field(default=None, repr=False)


def _local(tensor: Tensor, name: str) -> Tensor:
    """Return the local shard of a DTensor whose neurons are whole on each rank."""
    if not hasattr(tensor, "to_local"):
        return tensor
    for placement in tensor.placements:  # type: ignore[attr-defined]
        if not (placement.is_replicate() or (placement.is_shard() and placement.dim == 0)):
            raise InputError(
                f"parameter {name} is sharded as {placement}; only shards of dimension 0 keep neurons whole."
            )
    return tensor.to_local()


def neuron_rows(shape: Sequence[int], neuron_dim: int = 0, groups: int = 1) -> Callable[[Tensor], Tensor]:
    """Return the function that reshapes a weight of this shape to one row per neuron.

    Parameters
    ----------
    shape : sequence of int
        Shape of the weight, at least two dimensions.
    neuron_dim : int, default 0
        1 for transposed convolutions.
    groups : int, default 1
        Groups of a transposed convolution, whose neurons are (group, output channel).

    Returns
    -------
    callable
        Tensor -> tensor (neurons, dim).

    Examples
    --------
    >>> neuron_rows((8, 3, 5, 5))(torch.zeros(8, 3, 5, 5)).shape
    torch.Size([8, 75])
    """
    if neuron_dim == 0:
        return lambda w: w.reshape(w.shape[0], -1)
    if groups == 1:
        return lambda w: w.transpose(0, neuron_dim).reshape(w.shape[neuron_dim], -1)
    return lambda w: w.reshape(groups, shape[0] // groups, *shape[1:]).transpose(1, 2).reshape(groups * shape[1], -1)


def describe_group(optimizer: Any, group: Mapping[str, Any]) -> dict[str, Any]:
    """Read the update rule and its hyperparameters from a torch optimizer's group.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        AdamW, Adam, SGD, Lion, their RV twins or an RVWrapper; others have no known rate.
    group : mapping
        One of its ``param_groups``.

    Returns
    -------
    dict
        ``optimizer`` (None if unknown), ``lr``, ``weight_decay``, ``betas`` or ``momentum`` and ``nesterov``,
        ``fixed_norm`` and ``scale`` (factor on the rotation).

    Examples
    --------
    >>> opt = torch.optim.SGD([torch.zeros(2, 2)], lr=0.1, momentum=0.9, weight_decay=1e-3)
    >>> describe_group(opt, opt.param_groups[0])["optimizer"]
    'sgdm'
    """
    name = type(optimizer).__name__
    inner = getattr(optimizer, "optimizer", None) if name == "RVWrapper" else None
    kind = type(inner).__name__ if inner is not None else name.removeprefix("RV")
    out: dict[str, Any] = {
        "optimizer": None,
        "lr": float(group.get("lr", math.nan)),
        "weight_decay": float(group.get("weight_decay", 0.0)),
        # Without decay a rotational optimizer takes the plain update.
        "fixed_norm": name.startswith("RV")
        and group.get("rotational") is not False
        and float(group.get("weight_decay", 0.0)) > 0,
        "scale": float(group.get("rotation_scale", 1.0)),
    }
    if kind == "AdamW" or (kind in ("Adam", "NAdam", "RAdam") and group.get("decoupled_weight_decay")):
        out["optimizer"] = "adamw" if kind in ("AdamW", "Adam") else None
    elif kind == "Adam":
        out["optimizer"] = "adamw" if out["fixed_norm"] else "adam_l2"
    elif kind == "Lion":
        out["optimizer"] = "lion"
    elif kind in ("SGD", "SGDM"):
        out["optimizer"] = "sgdm"
        out["momentum"] = float(group.get("momentum", 0.0))
        # RVSGD drives the heavy-ball rate in both forms.
        out["nesterov"] = bool(group.get("nesterov", False)) and not out["fixed_norm"]
        # torch damps gradient and decay alike before they enter the buffer: the same as a smaller lr.
        out["rate"] = 1.0 - float(group.get("dampening", 0.0))
    if out["optimizer"] in ("adamw", "adam_l2", "lion"):
        out["betas"] = tuple(float(b) for b in group["betas"])
    return out


def _neuron_layout(model: nn.Module) -> dict[int, tuple[int, int]]:
    """Map id(weight) to (neuron_dim, groups) for the modules whose neurons are not rows."""
    transposed = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
    return {id(m.weight): (1, m.groups) for m in model.modules() if isinstance(m, transposed)}


class RotationMonitor:
    r"""Measure rotation, norm and radial gradient share of every neuron while a network trains.

    .. math:: \angle(w_t, w_{t+1}) = \arctan\frac{|d_\perp|}{|w_{t+1}| - \langle d, w_{t+1}\rangle/|w_{t+1}|},
        \qquad d = w_{t+1}-w_t

    Parameters
    ----------
    model : torch.nn.Module
        Network whose weights are watched.
    optimizer : torch.optim.Optimizer, optional
        Its steps are hooked. None: call :meth:`step` once before the loop and after every update.
    interval : int, default 1
        A step is measured every so many steps. 10 costs under 10 % of a usual step.
    layers : sequence of str or callable, optional
        Patterns (``"layer4.*"``) or a predicate ``(name, param) -> bool``. Default: every parameter of two or more
        dimensions that the optimizer trains.
    window : int or None, default 50
        Measurements that the averages remember (plain mean until then, exponential afterwards); None remembers all.
    rotation_rate : callable, optional
        ``group -> radians per step`` for optimizers whose equilibrium is not known.
    settings : mapping or callable, optional
        Without an optimizer: ``optimizer, lr, weight_decay, betas | momentum`` of the loop, or a function that returns them.

    Attributes
    ----------
    steps_ : int
        Optimizer steps seen.
    layers_ : list of str
        Names of the watched weights.

    Raises
    ------
    InputError
        Nothing to watch, interval below 1, or a sharding that cuts neurons.

    Notes
    -----
    1. One copy of the watched weights is kept, and nothing per step except one row of seven numbers per layer.
    2. No cosine is ever formed: in float32 the angle of 1e-4 rad would be lost. The difference of two close float32
       weights is exact, and its part orthogonal to the weight gives the angle to full precision.
    3. Averages of squares, because the prediction is a root mean square.
    4. For SGD with momentum and Adam with L2 the equilibrium norm needs the gradient's size, which is measured.
    5. Frozen and tied parameters: watched once, or not at all if the optimizer does not hold them.

    References
    ----------
    arXiv:2305.17212.

    Examples
    --------
    >>> net = nn.Sequential(nn.Linear(8, 16, bias=False), nn.LayerNorm(16), nn.Linear(16, 2))
    >>> opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.1)
    >>> with RotationMonitor(net, opt) as monitor:
    ...     for _ in range(3):
    ...         opt.zero_grad()
    ...         net(torch.ones(4, 8)).square().sum().backward()
    ...         _ = opt.step()
    >>> monitor.report()["layer"].tolist()
    ['0.weight', '2.weight']
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        interval: int = 1,
        layers: Sequence[str] | Callable[[str, Tensor], bool] | None = None,
        *,
        window: int | None = 50,
        rotation_rate: Callable[[Mapping[str, Any]], float] | None = None,
        settings: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        if interval < 1 or int(interval) != interval:
            raise InputError(f"interval must be a whole number >= 1, got {interval!r}.")
        if window is not None and window < 1:
            raise InputError(f"window must be at least 1 or None, got {window!r}.")
        self.model, self.optimizer, self.interval, self.window = model, optimizer, int(interval), window
        self.rotation_rate, self.settings = rotation_rate, settings
        self.steps_ = 0
        self._watches = self._choose(layers)
        self.layers_ = [w.name for w in self._watches]
        self._handles: list[Any] = []
        self._armed = False
        self._samples = 0
        self._mean: Tensor | None = None
        self._initial_norm: Tensor | None = None
        self._series: list[Tensor] = []
        self._series_steps: list[int] = []
        self._series_groups: list[list[dict[str, Any]]] = []
        device = self._watches[0].param.device
        counts = torch.tensor([w.neurons for w in self._watches])
        self._counts = counts.tolist()
        self._segment = torch.repeat_interleave(torch.arange(len(counts)), counts).to(device)
        self._mean_squared_rate = [0.0] * len(self._watches)
        # float64 sums where the device has them (not on Apple's); K numbers per layer cost nothing.
        self._stat_dtype = torch.float32 if device.type == "mps" else torch.float64

    # --- what is watched -----------------------------------------------------------------------------------------------

    def _choose(self, layers: Sequence[str] | Callable[[str, Tensor], bool] | None) -> list[_Watch]:
        layout = _neuron_layout(self.model)
        where: dict[int, int] = {}
        neuron_dims: dict[int, int] = {}
        if self.optimizer is not None:
            for index, group in enumerate(self.optimizer.param_groups):
                for param in group["params"]:
                    where[id(param)] = index
                    if "neuron_dim" in group:
                        neuron_dims[id(param)] = int(group["neuron_dim"])
        patterns = [layers] if isinstance(layers, str) else layers
        watches = []
        for raw, param in self.model.named_parameters():
            name = clean_name(raw)
            if param.ndim < 2 or param.numel() == 0 or param.is_complex():
                continue
            if callable(patterns):
                if not patterns(name, param):
                    continue
            elif patterns is not None and not any(fnmatch.fnmatchcase(name, p) for p in patterns):
                continue
            if self.optimizer is not None and id(param) not in where:
                continue
            if self.optimizer is None and not param.requires_grad:
                continue
            local = _local(param.detach(), name)
            neuron_dim, groups = layout.get(id(param), (neuron_dims.get(id(param), 0), 1))
            rows = neuron_rows(local.shape, neuron_dim, groups)
            view = rows(local)
            index = where.get(id(param), 0)
            # A tensor too small to rotate takes the plain update inside a rotational group.
            group = {} if self.optimizer is None else self.optimizer.param_groups[index]
            turns = "per_neuron" not in group or is_rotational(param, group)
            watches.append(_Watch(name, param, index, rows, view.shape[0], view.shape[1], turns))
        if not watches:
            raise InputError(
                "no parameter of two or more dimensions to watch; check layers= and that the optimizer holds the model."
            )
        return watches

    @staticmethod
    def _settings(watch: _Watch, groups: list[dict[str, Any]]) -> dict[str, Any]:
        group = groups[watch.group]
        return group if watch.turns else {**group, "fixed_norm": False, "scale": 1.0}

    def _groups_now(self) -> list[dict[str, Any]]:
        if self.optimizer is not None:
            out = []
            for group in self.optimizer.param_groups:
                described = describe_group(self.optimizer, group)
                if self.rotation_rate is not None:
                    described["rotation"] = float(self.rotation_rate(group))
                out.append(described)
            return out
        given = self.settings() if callable(self.settings) else self.settings
        base = {"optimizer": None, "lr": math.nan, "weight_decay": math.nan, "fixed_norm": False, "scale": 1.0}
        return [{**base, **dict(given or {})}]

    # --- hooks ---------------------------------------------------------------------------------------------------------

    def __enter__(self) -> RotationMonitor:
        self.attach()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()

    def attach(self) -> None:
        """Hook the optimizer's steps (the context manager does this)."""
        if self.optimizer is not None and not self._handles:
            self._handles = [
                self.optimizer.register_step_pre_hook(lambda *_: self._before()),
                self.optimizer.register_step_post_hook(lambda *_: self._after()),
            ]

    def detach(self) -> None:
        """Remove the hooks; what was measured stays."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._armed = False

    def step(self) -> None:
        """Mark the end of an update in a loop without a torch optimizer; call it once before the first update too."""
        if self.optimizer is not None:
            raise InputError("step() is for loops without a torch optimizer; this monitor hooks the optimizer itself.")
        if self._armed:
            self._after()
        elif self._mean is not None or self._watches[0].copy is not None:
            self.steps_ += 1
        # The call before an update that is to be measured takes the copy.
        if self.steps_ % self.interval == 0:
            self._before()

    @torch.no_grad()
    def _before(self) -> None:
        if self.steps_ % self.interval:
            return
        for watch in self._watches:
            rows = watch.rows(_local(watch.param.detach(), watch.name))
            if watch.copy is None:
                # Half-precision weights are measured in float32: their squares would lose all digits.
                dtype = rows.dtype if rows.dtype == torch.float64 else torch.float32
                watch.copy = torch.empty(rows.shape, dtype=dtype, device=rows.device)
            watch.copy.copy_(rows)
        self._groups = self._groups_now()
        self._armed = True

    @torch.no_grad()
    def _after(self) -> None:
        self.steps_ += 1
        if not self._armed:
            return
        self._armed = False
        columns = [self._measure(watch) for watch in self._watches]
        target = self._segment.device
        stacked = torch.cat([c.to(target, self._stat_dtype) for c in columns], dim=1)
        perp, along, after, radial_dot, grad = stacked
        before = (after**2 - 2 * along * after + along**2 + perp**2).sqrt()
        angle = torch.atan2(perp, after - along)
        alive = (before > 0) & (after > 0)
        radial = radial_dot / (grad * before)
        whole = torch.zeros(len(self._watches), dtype=radial_dot.dtype, device=target)
        whole.index_add_(0, self._segment, radial_dot.nan_to_num())
        # Squares of the shares as well: once decay holds the norms, the mean of <g, w> is small whatever the layer is.
        squared = (grad * before) ** 2
        # A step without a gradient says nothing; its sum of nothing must not enter as a zero.
        whole = torch.where(radial_dot.isnan(), math.nan, whole[self._segment])
        values = torch.stack([angle, angle**2, after, radial, squared, radial**2, whole**2])
        values = torch.where(alive, values, math.nan)
        self._samples += 1
        if self._mean is None:
            self._mean = values.clone()
            self._initial_norm = before
        else:
            share = 1 / self._samples if self.window is None else max(1 / self._samples, 1 / self.window)
            moved = torch.where(self._mean.isnan(), values, self._mean.lerp(values, share))
            # A neuron without a gradient this time keeps its average.
            self._mean = torch.where(values.isnan(), self._mean, moved)
        self._record(values)

    def _measure(self, watch: _Watch) -> Tensor:
        """Return per neuron: |d_perp|, d along w', |w'|, <g, w>, |g| (two passes over the layer, no extra copy)."""
        new = watch.rows(_local(watch.param.detach(), watch.name)).to(watch.copy.dtype)  # type: ignore[union-attr]
        old = watch.copy
        assert old is not None
        grad = watch.param.grad
        if grad is None or grad.is_sparse:
            radial = size = torch.full((watch.neurons,), math.nan, device=new.device, dtype=new.dtype)
        else:
            g = watch.rows(_local(grad.detach(), watch.name)).to(new.dtype)
            radial, size = (g * old).sum(1), torch.linalg.vector_norm(g, dim=1)
        norm = torch.linalg.vector_norm(new, dim=1)
        d = torch.sub(new, old, out=old)
        along = (d * new).sum(1) / norm
        d.addcmul_(new, (along / norm).unsqueeze(1), value=-1)
        return torch.stack([torch.linalg.vector_norm(d, dim=1), along, norm, radial, size])

    def _record(self, values: Tensor) -> None:
        known = ~values.isnan()
        layers = len(self._watches)
        total = torch.zeros(layers, values.shape[0], dtype=values.dtype, device=values.device)
        count = torch.zeros_like(total)
        total.index_add_(0, self._segment, values.nan_to_num().T)
        count.index_add_(0, self._segment, known.T.to(values.dtype))
        self._series.append(total / count)
        self._series_steps.append(self.steps_)
        self._series_groups.append(self._groups)
        share = 1 / self._samples if self.window is None else max(1 / self._samples, 1 / self.window)
        for i, watch in enumerate(self._watches):
            rate = _group_rotation(self._settings(watch, self._groups)) ** 2
            self._mean_squared_rate[i] += share * (rate - self._mean_squared_rate[i])

    # --- results -------------------------------------------------------------------------------------------------------

    @property
    def has_samples(self) -> bool:
        """Whether anything was measured since the start or the last :meth:`reset`."""
        return self._mean is not None

    def reset(self) -> None:
        """Forget the averages (not the series), e.g. after warmup."""
        self._mean, self._samples = None, 0
        self._mean_squared_rate = [0.0] * len(self._watches)

    def neurons(self, layer: str) -> pd.DataFrame:
        """Averages of one layer per neuron: angle (root mean square), norm, radial share (mean and root mean square over the
        measurements), gradient size at norm 1.

        Parameters
        ----------
        layer : str
            A name from ``layers_``.

        Returns
        -------
        pandas.DataFrame
            Also ``angle_std``, the standard deviation of the angle over the measured steps.
        """
        import pandas as pd

        if layer not in self.layers_:
            raise InputError(f"layer {layer!r} is not watched; watched are {', '.join(self.layers_[:8])}.")
        mean = self._split()[self.layers_.index(layer)]
        return pd.DataFrame(
            {
                "angle": mean[1].sqrt().numpy(),
                "angle_std": (mean[1] - mean[0] ** 2).clamp_min(0).sqrt().numpy(),
                "norm": mean[2].numpy(),
                "radial": mean[3].numpy(),
                "radial_rms": mean[5].sqrt().numpy(),
                "grad_rms": mean[4].sqrt().numpy(),
            }
        )

    def _split(self) -> tuple[Tensor, ...]:
        if self._mean is None:
            raise InputError("nothing was measured yet: attach the monitor and take at least one optimizer step.")
        return self._mean.double().cpu().split(self._counts, dim=1)

    def report(self) -> pd.DataFrame:
        """One row per watched weight: measured against predicted.

        Returns
        -------
        pandas.DataFrame
            ``layer, dim, neurons, norm, norm_predicted, angle, angle_predicted, ratio, spread, half_life_steps, radial,
            scale_invariant, at_equilibrium``, ``invariance`` (``neuron``, ``layer`` or ``none``) and ``radial_rms``.

        Notes
        -----
        1. ``angle`` is radians per step, root mean square over neurons and the remembered measurements.
        2. ``spread``: standard deviation over mean of the neurons' angles.
        3. ``scale_invariant``: ``radial_rms``, the median over neurons of the root mean square of their radial shares over the
           measurements, is below .05 and below half of what a gradient of random direction has, 1/sqrt(dim). Single gradients
           decide, not their mean: weight decay can only hold a norm if the mean share is small, so at equilibrium the mean of
           a last layer is as small (.02 to .04) as its single shares are large (.3). ``invariance`` is ``layer`` where the
           shares cancel over the layer in every step but not within its neurons (LayerNorm after a linear layer).
           ``radial`` is the signed median of the means.
        4. ``at_equilibrium``: angle within 15 % of the prediction, and the norm too where it can be predicted.
        """
        import pandas as pd

        groups = self._groups_now()
        initial = None if self._initial_norm is None else self._initial_norm.double().cpu().split(self._counts)
        rows = []
        for index, (watch, mean) in enumerate(zip(self._watches, self._split(), strict=True)):
            alive = ~mean[1].isnan()
            angle = mean[1][alive].sqrt()
            if angle.numel() == 0:
                angle = torch.full((1,), math.nan, dtype=torch.float64)
            measured = float(angle.square().mean().sqrt())
            norm = float(mean[2][alive].mean())
            gradient = mean[4][alive & ~mean[4].isnan()]
            grad_rms = float(gradient.mean().sqrt()) if gradient.numel() else None
            group = self._settings(watch, groups)
            prediction = _group_equilibrium(group, watch.dim, grad_rms)
            predicted = math.sqrt(self._mean_squared_rate[index])
            if group["optimizer"] == "adam_l2" and not group["fixed_norm"]:
                predicted = prediction["rotation"]
            norm_predicted = prediction["norm"]
            if group["fixed_norm"] and initial is not None:
                norm_predicted = float(initial[index][alive].mean())
            shares = mean[3][~mean[3].isnan()]
            radial = float(shares.median()) if shares.numel() else math.nan
            invariance = "unknown"
            radial_rms = math.nan
            if shares.numel():
                radial_rms = float(mean[5][~mean[5].isnan()].sqrt().median())
                invariance = "neuron" if radial_rms < min(INVARIANT, CHANCE / math.sqrt(watch.dim)) else "none"
                if invariance == "none" and _cancels(mean[6], mean[4], mean[2], watch.dim):
                    invariance = "layer"
            ratio = measured / predicted if predicted > 0 else math.nan
            near = abs(ratio - 1) <= BAND
            if math.isfinite(norm_predicted):
                near = near and abs(norm / norm_predicted - 1) <= BAND
            rows.append(
                {
                    "layer": watch.name,
                    "dim": watch.dim,
                    "neurons": watch.neurons,
                    "norm": norm,
                    "norm_predicted": norm_predicted,
                    "angle": measured,
                    "angle_predicted": predicted if predicted > 0 else math.nan,
                    "ratio": ratio,
                    "spread": float(angle.std(correction=0) / angle.mean()) if bool(angle.mean() != 0) else 0.0,
                    "half_life_steps": prediction["half_life_steps"],
                    "radial": radial,
                    "scale_invariant": invariance == "neuron",
                    "at_equilibrium": bool(near),
                    "invariance": invariance,
                    "radial_rms": radial_rms,
                }
            )
        frame = pd.DataFrame(rows)
        frame.attrs["steps"] = self.steps_
        frame.attrs["fixed_norm"] = all(g["fixed_norm"] for g in groups)
        return frame

    def series(self) -> pd.DataFrame:
        """Every measurement of every layer over time (long form).

        Returns
        -------
        pandas.DataFrame
            ``step, layer, lr, angle, angle_predicted, ratio, norm, norm_equilibrium``.
        """
        import pandas as pd

        rows = []
        for step, values, groups in zip(self._series_steps, self._series, self._series_groups, strict=True):
            for watch, value in zip(self._watches, values.double().cpu(), strict=True):
                group = self._settings(watch, groups)
                grad_rms = float(value[4].sqrt())
                prediction = _group_equilibrium(group, watch.dim, grad_rms if math.isfinite(grad_rms) else None)
                angle = float(value[1].sqrt())
                rows.append(
                    {
                        "step": step,
                        "layer": watch.name,
                        "lr": group["lr"],
                        "angle": angle,
                        "angle_predicted": prediction["rotation"],
                        "ratio": angle / prediction["rotation"] if prediction["rotation"] > 0 else math.nan,
                        "norm": float(value[2]),
                        "norm_equilibrium": math.nan if group["fixed_norm"] else prediction["norm"],
                    }
                )
        return pd.DataFrame(rows)

    def plot(self, path: str | Path) -> Path:
        """Draw rotation over prediction and norm over time, per layer, to a file (SVG, PNG or PDF by its ending).

        Parameters
        ----------
        path : path-like
            File to write.

        Returns
        -------
        pathlib.Path
        """
        from ._report import draw_monitor

        return draw_monitor(self, Path(path))


def _cancels(whole_squared: Tensor, squared: Tensor, norm: Tensor, dim: int) -> bool:
    """Whether <g, w> sums to nothing over the layer in every step although it does not within its neurons.

    ``whole_squared`` holds the mean square of the layer's <g, w> (the same for each neuron), ``squared`` the mean of
    (|g| |w|)^2 per neuron.
    """
    known = ~squared.isnan()
    size = (squared[known].sqrt() / norm[known]).square().sum().sqrt() * norm[known].square().sum().sqrt()
    # A fifth of the threshold for neurons: what is exactly zero stays below it with room for the epsilon of the norm layer.
    limit = min(INVARIANT / 5, CHANCE / math.sqrt(dim * int(known.sum())))
    return bool(whole_squared[known][0].sqrt() < limit * size)


def _group_equilibrium(group: Mapping[str, Any], dim: int, grad_rms: float | None) -> dict[str, float]:
    """Prediction of one group as floats, NaN where there is none."""
    out = {"rotation": math.nan, "norm": math.nan, "half_life_steps": math.nan}
    rate = float(group.get("rate", 1.0))
    if group["optimizer"] is not None and group["weight_decay"] > 0 and math.isfinite(group["lr"]):
        found = equilibrium(
            group["optimizer"],
            lr=group["lr"] * rate,
            weight_decay=group["weight_decay"],
            betas=group.get("betas"),
            momentum=group.get("momentum"),
            nesterov=group.get("nesterov", False),
            dim=dim,
            grad_rms=grad_rms,
        )
        for key in out:
            value = getattr(found, key)
            out[key] = math.nan if value is None else float(value)
        out["rotation"] *= group["scale"]
    if "rotation" in group:
        out["rotation"] = float(group["rotation"])
    if group["fixed_norm"]:
        # The norm is held: there is no transient, and nothing that could halve.
        out["half_life_steps"] = 0.0
    return out


def _group_rotation(group: Mapping[str, Any]) -> float:
    """Predicted rotation per step where it does not depend on the layer; 0 where there is none."""
    value = _group_equilibrium(group, 1, None)["rotation"]
    return value if math.isfinite(value) else 0.0
