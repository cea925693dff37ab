"""Bodies of the claims' experiments: random walks, and small networks trained with a monitor attached."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ._equilibrium import equilibrium
from ._monitor import RotationMonitor
from ._nets import DigitNet, ResNet8
from ._simulate import simulate_equilibrium

# Settings of the networks' equilibrium: constant lr, weight decay large enough that several half-lives pass.
EQUILIBRIUM = {
    "sgdm": {"lr": 0.1, "weight_decay": 5e-3},
    "adamw": {"lr": 2e-3, "weight_decay": 0.5},
    "adam_l2": {"lr": 2e-3, "weight_decay": 3e-3},
    "rvadamw": {"lr": 2e-3, "weight_decay": 0.5},
}


@dataclass(frozen=True)
class Images:
    """Training and test images as float tensors, standardised per channel of the training part."""

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor


# --- data ----------------------------------------------------------------------------------------------------------------


def digits() -> Images:
    """Digits of scikit-learn: 1,797 images of 8x8, the first 1,200 to train."""
    from sklearn.datasets import load_digits

    found = load_digits()
    x = torch.from_numpy(found.images.astype(np.float32))[:, None]
    y = torch.from_numpy(found.target.astype(np.int64))
    # The file is ordered by writer: an early cut keeps the writers of the test part out of the training part.
    cut = 1200
    mean, std = x[:cut].mean(), x[:cut].std()
    x = (x - mean) / std
    return Images(x[:cut], y[:cut], x[cut:], y[cut:])


def cifar16(train: Any, test: Any) -> Images:
    """CIFAR-10 subset from two zip files of JPEGs (class folders), averaged over 2x2 pixels to 16x16."""
    import io
    import zipfile

    from PIL import Image

    from assay._core.errors import InputError

    parts = []
    for path in (train, test):
        images, labels = [], []
        with zipfile.ZipFile(path) as archive:
            names = sorted(n for n in archive.namelist() if n.endswith(".jpg"))
            if not names:
                raise InputError(f"{path} holds no .jpg files.")
            classes = sorted({n.split("/")[-2] for n in names})
            for name in names:
                with Image.open(io.BytesIO(archive.read(name))) as image:
                    images.append(np.asarray(image.convert("RGB").reduce(2), dtype=np.uint8))
                labels.append(classes.index(name.split("/")[-2]))
        parts.append((np.stack(images), np.asarray(labels, dtype=np.int64)))
    x = [torch.from_numpy(p[0]).permute(0, 3, 1, 2).float() / 255 for p in parts]
    mean = x[0].mean(dim=(0, 2, 3), keepdim=True)
    std = x[0].std(dim=(0, 2, 3), keepdim=True)
    x = [((part - mean) / std).contiguous() for part in x]
    return Images(x[0], torch.from_numpy(parts[0][1]), x[1], torch.from_numpy(parts[1][1]))


# --- one screen of training ----------------------------------------------------------------------------------------------


def make_network(
    data: Images, size: Mapping[str, Any], seed: int, *, norm: str = "bn", standardise: bool = False
) -> nn.Module:
    """Network of the size's width; the seed alone decides its initial weights, so that arms are paired."""
    torch.manual_seed(seed)
    channels = data.x_train.shape[1]
    width = int(size.get("width", 8))
    if channels == 1:
        return DigitNet(width, norm, standardise=standardise)  # type: ignore[arg-type]
    return ResNet8(width, norm, standardise=standardise, channels=channels)  # type: ignore[arg-type]


def make_optimizer(
    kind: str, net: nn.Module, lr: float, weight_decay: float, momentum: float = 0.9
) -> torch.optim.Optimizer:
    """Optimizer by the name of a claim's arm; only weights of two or more dimensions are decayed."""
    from ._optimizers import RVSGD, RVAdamW, RVLion

    groups = [
        {"params": [p for p in net.parameters() if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in net.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    if kind == "sgdm":
        return torch.optim.SGD(groups, lr=lr, momentum=momentum)
    if kind == "adamw":
        return torch.optim.AdamW(groups, lr=lr)
    if kind == "adam_l2":
        return torch.optim.Adam(groups, lr=lr)
    if kind == "rvsgd":
        return RVSGD(groups, lr=lr, momentum=momentum, weight_decay=weight_decay)
    if kind == "rvadamw":
        return RVAdamW(groups, lr=lr, weight_decay=weight_decay)
    if kind == "rvlion":
        return RVLion(groups, lr=lr, weight_decay=weight_decay)
    raise ValueError(f"no optimizer for the arm {kind!r}")


def schedule(steps: int, *, warmup: int = 0, decay: str = "cosine") -> Callable[[int], float]:
    """Factor on the learning rate at each step: linear warmup, then cosine to zero or constant."""

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        if decay == "constant":
            return 1.0
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))

    return factor


def train(
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: Images,
    steps: int,
    seed: int,
    *,
    batch: int = 64,
    factor: Callable[[int], float] | None = None,
    monitor: RotationMonitor | None = None,
    reset_at: int | None = None,
    noise: float = 0.0,
    after_step: Callable[[], None] | None = None,
    before_step: Callable[[], None] | None = None,
) -> float:
    """Train and return the mean loss of the last tenth; batches are drawn from the seed alone.

    ``noise`` adds pixel noise and shifts by up to one pixel: a set as small as the digits would else be learnt by heart, and a
    network without loss has no gradients whose walk could be measured.
    """
    generator = torch.Generator().manual_seed(seed + 1)
    n = len(data.y_train)
    order, place = torch.randperm(n, generator=generator), 0
    base = [group["lr"] for group in optimizer.param_groups]
    losses: list[float] = []
    if monitor is not None:
        monitor.attach()
    net.train()
    for step in range(steps):
        if factor is not None:
            for group, lr in zip(optimizer.param_groups, base, strict=True):
                group["lr"] = lr * factor(step)
        if place + batch > n:
            order, place = torch.randperm(n, generator=generator), 0
        index = order[place : place + batch]
        place += batch
        x = data.x_train[index].contiguous(memory_format=torch.channels_last)
        # Half of the colour images are mirrored, for regularisation; digits have a left and a right.
        if x.shape[1] == 3 and torch.rand((), generator=generator) < 0.5:
            x = x.flip(3)
        if noise:
            right, down = torch.randint(-1, 2, (2,), generator=generator).tolist()
            x = x.roll((down, right), (2, 3)) + noise * torch.randn(x.shape, generator=generator)
        if monitor is not None and step == reset_at:
            monitor.reset()
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), data.y_train[index])
        loss.backward()
        if before_step is not None:
            before_step()
        optimizer.step()
        if after_step is not None:
            after_step()
        if step >= steps - max(1, steps // 10):
            losses.append(float(loss.detach()))
    if monitor is not None:
        monitor.detach()
    return float(np.mean(losses))


@torch.no_grad()
def accuracy(net: nn.Module, data: Images) -> float:
    """Test accuracy in percent."""
    net.eval()
    right = 0
    for x, y in zip(data.x_test.split(500), data.y_test.split(500), strict=True):
        right += int((net(x.contiguous(memory_format=torch.channels_last)).argmax(1) == y).sum())
    net.train()
    return 100.0 * right / len(data.y_test)


def _noise(size: Mapping[str, Any]) -> float:
    return float(size.get("noise", 0.0))


# --- the experiments -----------------------------------------------------------------------------------------------------


def random_walk(seed: int, size: Mapping[str, Any]) -> dict[str, Any]:
    """Relative errors of the closed forms against walks of several dimensions and strengths of decay."""
    errors: dict[str, list[float]] = {"angle_norm_error": [], "angle_norm_error_lion": [], "lag_error": []}
    for rule in ("adamw", "sgdm", "lion"):
        lr = 0.1 if rule == "sgdm" else 1e-3
        for dim in size["dims"]:
            for product in size["products"]:
                decay = product / lr
                half_life = equilibrium(rule, lr=lr, weight_decay=decay).half_life_steps
                steps = int(size["half_lives"] * half_life) + int(size["measure"])
                # Checkpoint angles are a small-rotation formula: they are checked where a user would save checkpoints.
                lags = (1, 3, 10, 30, 100, 300) if product <= 1e-4 and dim >= 256 else (1,)
                walk = simulate_equilibrium(
                    rule,
                    dim,
                    steps,
                    lr,
                    decay,
                    seed,
                    neurons=int(size["neurons"]),
                    lags=lags,
                    measure=int(size["measure"]),
                )
                key = "angle_norm_error_lion" if rule == "lion" else "angle_norm_error"
                predicted = walk["predicted"]
                errors[key] += [abs(walk["rotation"] / predicted.rotation - 1), abs(walk["norm"] / predicted.norm - 1)]
                for lag, angle in walk["angles"].items():
                    if lag > 1:
                        goal = equilibrium(rule, lr=lr, weight_decay=decay, lag=lag).rotation
                        errors["lag_error"].append(abs(angle / goal - 1))
    return dict(errors)


def half_life(seed: int, size: Mapping[str, Any]) -> dict[str, Any]:
    """Half-life of the norm's excess fitted to walks from four times and a quarter of the equilibrium norm."""
    from scipy.optimize import curve_fit

    errors: list[float] = []
    curves: dict[str, list[float]] = {}
    for rule in ("adamw", "sgdm", "lion"):
        lr = 0.1 if rule == "sgdm" else 1e-3
        # Momentum of .9 makes each step of SGD act ten times over: a tenth of the decay moves the norm at a like pace.
        decay = float(size["product"]) / lr * (0.1 if rule == "sgdm" else 1.0)
        goal = equilibrium(rule, lr=lr, weight_decay=decay, dim=size["dim"], grad_rms=math.sqrt(size["dim"] - 1))
        power = 4 if rule == "sgdm" else 2
        steps = int(5 * goal.half_life_steps)
        for start in (4.0, 0.25):
            walk = simulate_equilibrium(
                rule,
                int(size["dim"]),
                steps,
                lr,
                decay,
                seed,
                neurons=int(size["neurons"]),
                start=start * goal.norm,
                # A second moment that remembers 1000 steps would lag behind the gradient, which grows as the norm falls;
                # the closed form is about a settled one.
                betas=(0.9, 0.99) if rule != "sgdm" else None,
            )
            y = (walk["norm_series"] / goal.norm) ** power
            t = np.arange(1, steps + 1)
            # From above: the first tenth of a half-life holds the optimizer's own start (empty moments). From below: steps
            # are not small beside a quarter of the norm, and the small-angle theory begins when a fifth of the excess is gone.
            used = t > (0.1 if start > 1 else 0.3) * goal.half_life_steps
            # The goal is fitted too: a percent of bias in it (Lion) would bend the logarithm of a small excess.
            fitted = curve_fit(
                lambda t, end, excess, half_life: end + excess * 2.0 ** (-t / half_life),
                t[used],
                y[used],
                p0=(1.0, float(y[0] - 1), goal.half_life_steps),
                # A factor of ten either way keeps a step of the search from a half-life of zero; no honest fit ends there.
                bounds=([0, -np.inf, goal.half_life_steps / 10], [np.inf, np.inf, goal.half_life_steps * 10]),
            )[0][2]
            errors.append(float(abs(fitted / goal.half_life_steps - 1)))
            curves[f"{rule} from {start:g}"] = (walk["norm_series"][:: max(1, steps // 50)] / goal.norm).tolist()
    return {"half_life_error": errors, "curves": curves}


def equilibrium_in_network(arm: str, seed: int, data: Images, size: Mapping[str, Any]) -> dict[str, Any]:
    """Train at constant lr with a monitor; report measured over predicted rotation per layer once it has settled."""
    net = make_network(data, size, seed)
    optimizer = make_optimizer(arm, net, **EQUILIBRIUM[arm])
    steps = int(size["sgdm_steps"] if arm == "sgdm" else size["steps"])
    monitor = RotationMonitor(net, optimizer, interval=2, window=None)
    train(
        net,
        optimizer,
        data,
        steps,
        seed,
        batch=int(size.get("batch", 64)),
        noise=_noise(size),
        monitor=monitor,
        reset_at=2 * steps // 3,
    )
    report = monitor.report()
    convs = report[~report["layer"].str.startswith("head")]
    head = report[report["layer"].str.startswith("head")].iloc[0]
    series = monitor.series()
    first = convs["layer"].iloc[1]
    out = {
        "conv_ratio": convs["ratio"].tolist(),
        "conv_deviation": (convs["ratio"] - 1).abs().tolist(),
        "median_deviation": float(abs(convs["ratio"].median() - 1)),
        "median_ratio": float(convs["ratio"].median()),
        "head_ratio": float(head["ratio"]),
        "head_radial": float(head["radial_rms"]),
        "head_radial_mean": float(monitor.neurons(head["layer"])["radial"].abs().median()),
        "conv_radial": convs["radial_rms"].tolist(),
        # Angles, not ratios: the statement is that layers turn alike, whatever the prediction.
        "layer_spread": float(convs["angle"].std(ddof=0) / convs["angle"].mean()),
        "neuron_spread": float(convs["spread"].median()),
        "layers": convs["layer"].tolist(),
        "curve": series.loc[series["layer"] == first, "ratio"].iloc[:: max(1, steps // 100)].tolist(),
    }
    out["accuracy"] = accuracy(net, data)
    return out


def zero_shot(arm: str, seed: int, data: Images, size: Mapping[str, Any]) -> dict[str, Any]:
    """Accuracy at AdamW's settings under a cosine schedule."""
    net = make_network(data, size, seed)
    optimizer = make_optimizer(arm, net, **EQUILIBRIUM[arm])
    steps = int(size["steps"])
    loss = train(
        net, optimizer, data, steps, seed, batch=int(size.get("batch", 64)), noise=_noise(size), factor=schedule(steps)
    )
    return {"accuracy": accuracy(net, data), "loss": loss}


def warmup(arm: str, seed: int, data: Images, size: Mapping[str, Any]) -> dict[str, Any]:
    """Accuracy lost by leaving the warmup out; the size says at which learning rate and with which norm (layer norm)."""
    steps, found = int(size["steps"]), {}
    for warm in (0, int(size["warmup"])):
        net = make_network(data, size, seed, norm=str(size.get("norm", "ln")))
        optimizer = make_optimizer(arm, net, lr=float(size["lr"]), weight_decay=float(size["weight_decay"]))
        factor = schedule(steps, warmup=warm)
        train(net, optimizer, data, steps, seed, batch=int(size.get("batch", 128)), noise=_noise(size), factor=factor)
        found[warm] = accuracy(net, data)
    with_warmup, without = found[int(size["warmup"])], found[0]
    drop = with_warmup - without
    # "At most half": half of AdamW's drop is what the rotational drop is compared with.
    return {
        "drop": drop,
        "drop_or_half": drop if arm.startswith("rv") else drop / 2,
        "accuracy_without_warmup": without,
        "accuracy_with_warmup": with_warmup,
    }


def lr_sweep(arm: str, seed: int, data: Images, size: Mapping[str, Any]) -> dict[str, Any]:
    """Accuracy over learning rates at one product of lr and weight decay: same rotation, different transient."""
    scores, early = [], []
    steps = int(size["steps"])
    for lr in size["lrs"]:
        net = make_network(data, size, seed)
        optimizer = make_optimizer(arm, net, lr=float(lr), weight_decay=float(size["product"]) / float(lr))
        monitor = RotationMonitor(net, optimizer, interval=5, window=None)
        train(
            net,
            optimizer,
            data,
            steps,
            seed,
            batch=int(size.get("batch", 64)),
            noise=_noise(size),
            factor=schedule(steps),
            monitor=monitor,
        )
        scores.append(accuracy(net, data))
        series = monitor.series()
        # After the optimizer's own memory has filled (1/(1-b1) = 10 steps), before weight decay can have acted.
        window = (series["step"] > 10) & (series["step"] <= 40) & ~series["layer"].str.startswith("head")
        early.append(float(np.abs(np.log(series.loc[window].groupby("layer")["ratio"].mean())).median()))
    return {
        "accuracy_range": max(scores) - min(scores),
        "best_accuracy": max(scores),
        "mean_accuracy": float(np.mean(scores)),
        "early_log_deviation": max(early),
        "x": [float(lr) for lr in size["lrs"]],
        "accuracies": scores,
        "early": early,
    }


def standardisation(arm: str, seed: int, data: Images, size: Mapping[str, Any]) -> dict[str, Any]:
    """Spread of the neurons' rotation and accuracy of a layer-norm network: plain, weight standardised, rotational."""
    net = make_network(data, size, seed, norm="ln", standardise=arm == "sgdm_ws")
    kind = "rvsgd" if arm == "rvsgd" else "sgdm"
    optimizer = make_optimizer(kind, net, lr=float(size["lr"]), weight_decay=float(size["weight_decay"]))
    steps = int(size["steps"])
    monitor = RotationMonitor(
        net, optimizer, interval=2, window=None, layers=lambda name, _: not name.startswith("head")
    )
    batch = int(size.get("batch", 64))
    # Measured in the middle of the run: a cosine's end has angles too small to matter.
    train(
        net,
        optimizer,
        data,
        steps,
        seed,
        batch=batch,
        noise=_noise(size),
        factor=schedule(steps),
        monitor=monitor,
        reset_at=steps // 3,
    )
    report = monitor.report()
    return {"neuron_spread": float(report["spread"].median()), "accuracy": accuracy(net, data)}


def imbalance(arm: str, seed: int, data: Images, size: Mapping[str, Any]) -> dict[str, Any]:
    """Accuracy when half of the neurons rotate by a factor and the others make up for it."""
    slow = {"balanced": 1.0, "quarter": 1 / 4, "sixteenth": 1 / 16}[arm]
    net = make_network(data, size, seed)
    optimizer = make_optimizer("rvadamw", net, **EQUILIBRIUM["rvadamw"])
    generator = torch.Generator().manual_seed(seed + 2)
    scaled = []
    for p in net.parameters():
        if p.ndim >= 2:
            half = torch.randperm(p.shape[0], generator=generator) < p.shape[0] // 2
            # The mean squared rotation stays what it was.
            factors = torch.where(half, slow, math.sqrt(2 - slow**2)).reshape(-1, *[1] * (p.ndim - 1))
            scaled.append((p, factors, torch.empty_like(p)))

    @torch.no_grad()
    def before() -> None:
        for p, _, old in scaled:
            old.copy_(p)

    @torch.no_grad()
    def after() -> None:
        for p, factors, old in scaled:
            dims = tuple(range(1, p.ndim))
            squared = (old * old).sum(dims, keepdim=True)
            # The step took p along a tangent and back to the sphere; take the same tangent `factors` times as far.
            tangent = p * (squared / (old * p).sum(dims, keepdim=True)) - old
            new = old + factors * tangent
            p.copy_(new * (squared / (new * new).sum(dims, keepdim=True)).sqrt())

    steps = int(size["steps"])
    if arm == "balanced":
        # Factor one changes nothing; leaving it out keeps the arm free of the extra rounding.
        scaled = []
    train(
        net,
        optimizer,
        data,
        steps,
        seed,
        batch=int(size.get("batch", 64)),
        noise=_noise(size),
        factor=schedule(steps),
        before_step=before,
        after_step=after,
    )
    return {"accuracy": accuracy(net, data)}
