"""What the command line does with checkpoints: read, check, analyse, draw."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from assay._core.run import Run

    from ._checkpoints import SeriesAnalysis
    from ._equilibrium import Equilibrium

Optimizer = Literal["adamw", "sgdm", "lion", "adam_l2", "rvadamw", "rvsgd", "rvlion"]

#: Where training scripts put the weights, in the order in which they are looked for.
_WEIGHTS = ("model", "state_dict", "model_state_dict", "net", "network", "module", "params", "weights")
#: Steps of the longest run that is believed; the learning rate is held per step.
_LONGEST = 50_000_000
_OPTIMIZERS = ("optimizer", "optimizer_state_dict", "optim", "optimizer_states")


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the weights of a checkpoint, and the first optimizer group that it holds (empty if none).

    Parameters
    ----------
    path : Path
        A torch file, a safetensors file, or a folder as Hugging Face's Trainer leaves it.

    Returns
    -------
    weights, group : dict, dict

    Raises
    ------
    InputError
        Missing, empty, damaged or unsafe file, or no weights in it.
    """
    from assay._core.errors import InputError

    if path.is_dir():
        parts = sorted(path.glob("*.safetensors")) or sorted(path.glob("pytorch_model*.bin"))
        if not parts:
            raise InputError(f"{path} is a folder without .safetensors or pytorch_model.bin; name the checkpoint file.")
        weights: dict[str, Any] = {}
        for part in parts:
            weights |= read_checkpoint(part)[0]
        return weights, {}
    if not path.exists():
        raise InputError(f"{path} does not exist; give the checkpoint files in step order.")
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty (0 bytes); it was probably cut off while being saved.")
    if path.suffix == ".safetensors":
        return _read_safetensors(path), {}
    return _read_torch(path)


def _read_safetensors(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from assay._core.errors import InputError

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable safetensors file ({_line(error)}); save it again.") from error


def _read_torch(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    import pickle
    import warnings

    import torch

    from assay._core.errors import InputError

    try:
        with warnings.catch_warnings():
            # Of a file that is no torch file at all torch warns about its pickle protocol before it fails.
            warnings.simplefilter("ignore", UserWarning)
            found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        text = str(error)
        if "Unsupported" in text or "GLOBAL" in text or "weights_only" in text.lower():
            raise InputError(
                f"{path} is not a file of plain tensors (it may hold Python objects, which are never run here); save "
                "model.state_dict() with torch.save or safetensors."
            ) from error
        raise InputError(f"{path} is damaged ({_line(error)}); save it again.") from error
    except Exception as error:
        # On foreign bytes the unpickler fails in any way that a stack machine can (IndexError, TypeError, KeyError ...).
        raise InputError(f"{path} is not a readable torch checkpoint ({_line(error)}); save it again.") from error
    weights = _find_weights(found)
    if weights is None:
        keys = ", ".join(map(str, list(found)[:6])) if isinstance(found, Mapping) else type(found).__name__
        raise InputError(
            f"{path} holds no state dict (found: {keys}); save model.state_dict(), plain or under 'model'."
        )
    return weights, _find_group(found)


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]


def _find_weights(found: Any, depth: int = 0) -> dict[str, Any] | None:
    if not isinstance(found, Mapping):
        return None
    tensors = {str(k): v for k, v in found.items() if hasattr(v, "is_floating_point")}
    # Any weight matrix makes it a state dict; a lone scalar tensor beside the nested ones (a step count) does not.
    if any(v.ndim >= 2 for v in tensors.values()):
        return tensors
    if depth < 3:
        for key in _WEIGHTS:
            if key in found:
                nested = _find_weights(found[key], depth + 1)
                if nested:
                    return nested
    return None


def _find_group(found: Any) -> dict[str, Any]:
    for key in _OPTIMIZERS:
        state = found.get(key) if isinstance(found, Mapping) else None
        if isinstance(state, (list, tuple)) and state:
            state = state[0]
        if isinstance(state, Mapping) and state.get("param_groups"):
            groups = [g for g in state["param_groups"] if isinstance(g, Mapping) and "lr" in g]
            decayed = [g for g in groups if g.get("weight_decay")]
            for group in decayed or groups:
                return {k: v for k, v in group.items() if isinstance(v, (int, float, bool, tuple, list))}
    return {}


def _step_in_name(path: Path) -> int | None:
    numbers = re.findall(r"\d+", path.stem if not path.is_dir() else path.name)
    return int(numbers[-1]) if numbers else None


def _in_step_order(paths: list[Path], every: int, run: Run) -> list[Path]:
    """Put files that a shell sorted as text (1000 before 200) into the order of their numbers."""
    steps = [_step_in_name(p) for p in paths]
    known = [s for s in steps if s is not None]
    if len(known) < len(paths) or len(set(known)) < len(known):
        return paths
    order = sorted(range(len(paths)), key=lambda i: known[i])
    if order != list(range(len(paths))):
        run.warn("The checkpoints were not in the order of the numbers in their names; they were put in that order.")
    known.sort()
    gaps = {b - a for a, b in zip(known, known[1:], strict=False)}
    if len(gaps) == 1 and every not in gaps:
        (gap,) = gaps
        # Names may count epochs, so a gap of 1 says nothing.
        if gap > 1:
            run.warn(f"The names of the checkpoints are {gap} apart, but --every says {every} steps.")
    elif len(gaps) > 1:
        run.warn(
            f"The names of the checkpoints are unevenly spaced ({min(gaps)} to {max(gaps)}); every pair counts as --every."
        )
    return [paths[i] for i in order]


def _parse_betas(text: str) -> tuple[float, float] | None:
    from assay._core.errors import InputError

    if not text.strip():
        return None
    parts = re.split(r"[,\s]+", text.strip().strip("()[]"))
    try:
        values = [float(p) for p in parts]
    except ValueError:
        values = []
    if len(values) != 2:
        raise InputError(f"--betas must be two numbers such as 0.9,0.999, got {text!r}.")
    return values[0], values[1]


def _parse_lr(text: str, total: int, first_step: int, checkpoints: list[float]) -> Any:
    """A number, a CSV schedule, or what the checkpoints' own optimizer states say."""
    import numpy as np

    from assay._core.errors import InputError
    from assay._core.files import read_table

    if not text:
        if not checkpoints:
            raise InputError("--lr is missing, and the checkpoints hold no optimizer state to read it from.")
        at = np.linspace(0, total, len(checkpoints))
        return np.interp(np.arange(total), at, checkpoints)
    try:
        value = float(text)
    except ValueError:
        pass
    else:
        if not (math.isfinite(value) and value >= 0):
            raise InputError(f"--lr must be a finite number >= 0, got {text}.")
        return value
    path = Path(text)
    if not path.exists():
        raise InputError(f"--lr is neither a number nor an existing CSV file: {text}.")
    table = read_table(path, required=("step", "lr"), what="lr schedule")
    from pandas import to_numeric

    # What is no number becomes NaN and is named by its row below.
    step, lr = (to_numeric(table[name], errors="coerce").to_numpy(dtype=float) for name in ("step", "lr"))
    bad = ~np.isfinite(lr) | (lr < 0) | ~np.isfinite(step)
    if bad.any():
        raise InputError(f"{path}: row {int(bad.argmax()) + 2} has no usable step and lr >= 0.")
    if np.any(np.diff(step) <= 0):
        row = int(np.argmax(np.diff(step) <= 0)) + 3
        raise InputError(f"{path}: row {row} has a step that does not come after the one before it.")
    end = first_step + total
    if step[0] > first_step or step[-1] < end - 1:
        raise InputError(
            f"{path} covers steps {step[0]:g} to {step[-1]:g}, but the checkpoints go from {first_step} to {end}; "
            "add rows, or say with --first-step where they begin."
        )
    return np.interp(np.arange(first_step, end), step, lr)


def analyse(
    *ckpt: Path,
    every: int,
    optimizer: Optimizer = "adamw",
    lr: str = "",
    weight_decay: float | None = None,
    betas: str = "",
    momentum: float | None = None,
    nesterov: bool = False,
    layers: str = "",
    no_decay: str = "",
    transposed: str = "",
    first_step: int = 0,
    run: Run,
) -> None:
    """Measure how far the weights turned between saved checkpoints, against what the settings of the run predict.

    Parameters
    ----------
    ckpt
        Checkpoints of one run in step order: torch files (state dict, plain or under 'model' or 'state_dict'), safetensors, or
        Hugging Face checkpoint folders.
    every : int
        Optimizer steps between successive checkpoints.
    optimizer : str
        Optimizer of the run: adamw, sgdm (SGD with L2 decay), lion, adam_l2, or a rotational rvadamw, rvsgd, rvlion.
    lr : str
        Learning rate, or a CSV file with the columns step and lr. Left out: read from optimizer states in the checkpoints.
    weight_decay : float
        Weight decay as the optimizer takes it. Left out: read from optimizer states in the checkpoints.
    betas : str
        Two numbers such as 0.9,0.999. Left out: read from optimizer states in the checkpoints, else the optimizer's defaults.
    momentum : float
        Momentum of SGD. Left out: read from optimizer states in the checkpoints, else 0.9.
    nesterov : bool
        SGD with Nesterov momentum.
    layers : str
        Analyse only weights that match one of these comma-separated patterns, such as layer4.*,fc.weight.
    no_decay : str
        Patterns of weights that were trained without weight decay.
    transposed : str
        Patterns of transposed convolutions, whose neurons lie along dimension 1.
    first_step : int
        Step of the first checkpoint, where lr is a CSV file.
    """
    import numpy as np

    from assay._core.errors import InputError

    if every < 1:
        raise InputError(f"--every must be at least 1 step, got {every}.")
    if first_step < 0:
        raise InputError(f"--first-step must be 0 or more, got {first_step}.")
    if len(ckpt) == 1 and ckpt[0].is_dir() and not (ckpt[0] / "model.safetensors").exists():
        kinds = sorted({p.suffix for p in ckpt[0].iterdir()} & {".pt", ".pth", ".safetensors"}) or [".pt"]
        raise InputError(f"{ckpt[0]} is a folder; name the files, in any order: {ckpt[0]}/*{kinds[0]}")
    if len(ckpt) < 2:
        raise InputError(f"analyse needs at least two checkpoints to measure rotation between them, got {len(ckpt)}.")
    paths = _in_step_order(list(ckpt), every, run)
    settings: dict[str, Any] = {}
    rates: list[float] = []
    if not lr or weight_decay is None:
        for path in run.progress(paths, desc="settings"):
            group = read_checkpoint(path)[1]
            if "lr" in group:
                rates.append(float(group["lr"]))
                settings = settings or group
        if len(rates) not in (0, len(paths)):
            raise InputError("only some of the checkpoints hold an optimizer state; give --lr and --weight-decay.")
    elif not betas and momentum is None:
        settings = read_checkpoint(paths[0])[1]
    _check_rule(settings, optimizer, run)
    if weight_decay is None:
        if "weight_decay" not in settings:
            raise InputError("--weight-decay is missing, and the checkpoints hold no optimizer state to read it from.")
        weight_decay = float(settings["weight_decay"])
        run.log(f"weight decay {weight_decay:g} read from the checkpoints")
    pair = _parse_betas(betas)
    if pair is None and isinstance(settings.get("betas"), (tuple, list)):
        pair = (float(settings["betas"][0]), float(settings["betas"][1]))
    if momentum is None and "momentum" in settings:
        momentum = float(settings["momentum"])
    nesterov = nesterov or bool(settings.get("nesterov", False))
    total = every * (len(paths) - 1)
    if total > _LONGEST:
        raise InputError(
            f"--every {every} makes a run of {total:,} steps; give the optimizer steps between checkpoints."
        )
    rate = _parse_lr(lr, total, first_step, rates)
    if not lr:
        run.log(f"lr {rates[0]:g} to {rates[-1]:g} read from the checkpoints")
    _check_decay(float(np.max(rate)), weight_decay)
    run.title = "Rotation of the weights"
    run.subtitle = f"{len(paths)} checkpoints, {every:,} steps apart, {optimizer}"
    found = _analyse(
        paths, every, optimizer, rate, weight_decay, pair, momentum, nesterov, layers, no_decay, transposed, run
    )
    _present(run, found, optimizer)


def _check_decay(lr: float, weight_decay: float) -> None:
    from assay._core.errors import InputError

    # NaN and negative values are named by the algorithm itself.
    if 1 <= lr * weight_decay < math.inf:
        raise InputError(
            f"lr x weight decay is {lr * weight_decay:.3g}, so one step would remove the whole weight; both must be those of "
            "the optimizer, with a product far below 1."
        )


def _check_rule(settings: dict[str, Any], optimizer: str, run: Run) -> None:
    """Warn where the checkpoints' optimizer state is of another rule than the one named."""
    if not settings:
        return
    if ("momentum" in settings and "betas" not in settings) != (optimizer in ("sgdm", "rvsgd")):
        has = "betas" if "betas" in settings else "no betas"
        run.warn(f"--optimizer says {optimizer}, but the optimizer state in the checkpoints has {has}.")
    elif settings.get("decoupled_weight_decay") is False and optimizer in ("adamw", "rvadamw"):
        run.warn("The checkpoints are of Adam with L2 decay, not of AdamW: give --optimizer adam_l2.")


def _patterns(text: str) -> list[str]:
    return [p.strip() for p in text.split(",") if p.strip()]


def _analyse(
    paths: list[Path],
    every: int,
    optimizer: str,
    lr: Any,
    weight_decay: float,
    betas: tuple[float, float] | None,
    momentum: float | None,
    nesterov: bool,
    layers: str,
    no_decay: str,
    transposed: str,
    run: Run,
) -> SeriesAnalysis:
    from ._checkpoints import analyse_checkpoints

    def states() -> Iterator[dict[str, Any]]:
        for path in run.progress(paths, desc="checkpoints"):
            yield read_checkpoint(path)[0]

    return analyse_checkpoints(
        states(),
        every,
        optimizer,
        lr=lr,
        weight_decay=weight_decay,
        betas=betas,
        momentum=momentum,
        nesterov=nesterov,
        layers=_patterns(layers) or None,
        no_decay=_patterns(no_decay),
        transposed=_patterns(transposed),
        labels=[str(p) for p in paths],
    )


def _present(run: Run, found: SeriesAnalysis, optimizer: str, prefix: str = "", heading: str = "") -> None:
    """Write tables, pictures, advice and numbers of one series."""
    import numpy as np

    from ._advice import BAND
    from ._report import pictures

    fixed = optimizer.startswith("rv")
    run.text(heading or "Advice", "\n\n".join(found.advice))
    with run.artefact(f"{prefix}advice.txt") as path:
        path.write_text("\n".join(found.advice + [f"Note: {n}" for n in found.notes]) + "\n", encoding="utf-8")
    for note in found.notes:
        run.warn(f"{heading}: {note}" if heading else note)
    table = found.layers.drop(columns="norm_power")
    for name, fig, caption in pictures(found, fixed=fixed, implied=optimizer == "sgdm"):
        run.figure(f"{prefix}{name}", fig, caption=caption)
    run.table(
        f"{prefix}rotation",
        table,
        caption="Every layer over the last third of the run. Angles are radians between checkpoints, rotation radians per step; "
        "spread is the variation between the neurons of a layer (std/mean); wander is 1 for a free walk, .5 for circling; "
        "share_before_equilibrium is the part of the run until the norm first was within 15 % of its equilibrium (1: never).",
        columns=[
            "layer",
            "dim",
            "neurons",
            "rotation",
            "rotation_predicted",
            "ratio",
            "relative",
            "spread",
            "wander",
            "norm",
            "norm_predicted",
            "share_before_equilibrium",
        ],
        rows=60,
    )
    run.table(f"{prefix}series", found.series, show=False)
    run.table(f"{prefix}norms", found.norms, show=False)
    if optimizer != "adam_l2":
        run.table(
            f"{prefix}what_if",
            found.what_if,
            caption="What if? At the run's highest lr: predicted rotation per step (milliradians), its factor, the factor on the "
            "equilibrium norm, how many half-lives of the norm the run would cover.",
        )
    ratios = found.layers["ratio"].to_numpy(dtype=float)
    known = ratios[np.isfinite(ratios)]
    tag = prefix.rstrip("_")
    numbers: dict[str, Any] = {"layers": len(ratios)}
    if known.size:
        numbers |= {
            "layers_as_predicted": int(np.sum(np.abs(known - 1) <= BAND)),
            "layers_at_equilibrium": int(found.layers["at_equilibrium"].sum()),
            "median_ratio": float(np.median(known)),
        }
    if found.layers.attrs.get("half_lives") is not None:
        numbers["half_lives_in_run"] = float(found.layers.attrs["half_lives"])
    run.result(**{f"{tag}_{k}" if tag else k: v for k, v in numbers.items()})


def predict(
    *,
    optimizer: Optimizer = "adamw",
    lr: float,
    weight_decay: float,
    betas: str = "",
    momentum: float | None = None,
    nesterov: bool = False,
    dim: int | None = None,
    grad_rms: float | None = None,
    steps: int = 10_000,
    run: Run,
) -> None:
    """Predict rotation, norm and half-life of a training run from its settings.

    Parameters
    ----------
    optimizer : str
        adamw, sgdm (SGD with L2 decay), lion, adam_l2, or a rotational rvadamw, rvsgd, rvlion.
    lr : float
        Learning rate.
    weight_decay : float
        Weight decay as the optimizer takes it.
    betas : str
        Two numbers such as 0.9,0.999, if not the optimizer's defaults.
    momentum : float
        Momentum of SGD, if not 0.9.
    nesterov : bool
        SGD with Nesterov momentum.
    dim : int
        Weights per neuron (fan-in times kernel size), for the equilibrium norm.
    grad_rms : float
        Gradient norm of a neuron times its weight norm, for the norm of sgdm and adam_l2.
    steps : int
        Length of the run in steps.
    """
    import numpy as np
    import pandas as pd

    from assay._core.errors import InputError

    from ._advice import what_if
    from ._equilibrium import equilibrium, lag_factor, rotation_over_steps
    from ._report import draw_prediction

    if steps < 1:
        raise InputError(f"--steps must be at least 1, got {steps}.")
    _check_decay(lr, weight_decay)
    pair = _parse_betas(betas)
    common: dict[str, Any] = {"betas": pair, "momentum": momentum, "nesterov": nesterov}
    found = equilibrium(optimizer, lr=lr, weight_decay=weight_decay, dim=dim, grad_rms=grad_rms, **common)
    run.title, run.subtitle = "Predicted rotation", f"{optimizer}, lr {lr:g}, weight decay {weight_decay:g}"
    fixed = optimizer.startswith("rv")
    if found.rotation is None:
        raise InputError("adam_l2 rotates by the gradient's size: give --dim and --grad-rms.")
    lags = sorted({k for k in (1, 3, 10, 30, 100, 300, 1000, 3000, 10000, 30000, 100000) if k <= steps} | {steps})
    angles = rotation_over_steps(found.rotation, lag_factor(optimizer, np.array(lags), **common))
    lines = _in_words(found, optimizer, steps, fixed)
    run.text("In words", "\n\n".join(lines))
    for line in lines:
        run.log(line)
    table = pd.DataFrame({"steps_apart": lags, "angle_rad": angles, "angle_deg": np.degrees(angles)})
    dense = np.unique(np.geomspace(1, steps, 80).astype(int))
    curve = rotation_over_steps(found.rotation, lag_factor(optimizer, dense, **common))
    if found.rotation > 0:
        run.figure(
            "prediction",
            draw_prediction(dense.tolist(), curve, rotation_over_steps(found.rotation, dense)),
            caption="Updates within the optimizer's memory point the same way, so checkpoints are farther apart than a walk "
            "without memory would put them; at 90 degrees nothing of the old direction is left.",
        )
    run.table(
        "rotation", table, caption="Predicted angle between two weights of one neuron, by the steps between them."
    )
    if optimizer != "adam_l2":
        run.table(
            "what_if",
            what_if(optimizer, lr=lr, weight_decay=weight_decay, total_steps=steps, **common),
            caption="What if? Factors on rotation per step and equilibrium norm, and half-lives of the norm in the run.",
        )
    half_life = 0.0 if fixed else found.half_life_steps
    numbers = {
        "rotation_rad": found.rotation,
        "rotation_degrees": math.degrees(found.rotation),
        "norm": None if fixed else found.norm,
        "update_size": None if fixed else found.update_size,
        "half_life_steps": half_life if math.isfinite(half_life) else None,
    }
    run.result(**{name: value for name, value in numbers.items() if value is not None})


def _in_words(found: Equilibrium, optimizer: str, steps: int, fixed: bool) -> list[str]:
    half_life = 0.0 if fixed else found.half_life_steps
    lines = [
        f"A neuron turns by {found.rotation * 1e3:.3g} mrad ({math.degrees(found.rotation):.3g} degrees) per step."
    ]
    if fixed:
        lines.append("A rotational optimizer holds every norm and turns at this speed from the first step.")
    elif math.isfinite(half_life):
        lines.append(
            f"Until the norm is in equilibrium it turns slower (norm too large) or faster (too small). The excess halves every "
            f"{half_life:,.0f} steps: {steps / half_life:.1f} half-lives in {steps:,} steps."
        )
        if steps / half_life < 2:
            lines.append(
                "That is too few to forget the initial norm: train longer, raise lr x weight decay, or use RV optimizers."
            )
    else:
        lines.append("Without weight decay (or lr) there is no equilibrium: the norm grows without end.")
    if found.norm is None and not fixed:
        lines.append(
            "The norm in equilibrium depends on the size of the gradients: give --grad-rms to predict it."
            if optimizer == "sgdm"
            else "The norm in equilibrium depends on the weights per neuron: give --dim to predict it."
        )
    return lines


# What the demo trains: (optimizer, lr, weight decay). The first two pass two to four half-lives in 1,000 steps.
_DEMO = (("adamw", 2e-3, 0.5), ("sgdm", 0.1, 2e-3), ("rvadamw", 2e-3, 0.5))


def demo(*, run: Run) -> None:
    """Train a small network on handwritten digits with three optimizers, save checkpoints, and analyse them as a user's."""
    import numpy as np
    import torch

    from assay._core.smoke import pick

    from . import _experiments as ex
    from ._monitor import RotationMonitor

    every, count = pick(200, 15), 6
    width = pick(16, 8)
    data = ex.digits()
    run.title = "Rotation of a small network on handwritten digits"
    run.subtitle = f"Three optimizers, {count} checkpoints each, {every} steps apart"
    run.text(
        "What this shows",
        "The same network is trained with AdamW, SGD with momentum, and the rotational AdamW. Each run leaves six checkpoints, "
        "which are then read back and analysed like anybody's: how far did each layer turn, and is that what its learning rate "
        "and weight decay predict?",
    )
    for kind, lr, weight_decay in run.progress(_DEMO, desc="optimizers"):
        paths: list[Path] = []
        net = ex.make_network(data, {"width": width}, run.seed)
        optimizer = ex.make_optimizer(kind, net, lr, weight_decay)
        monitor = RotationMonitor(net, optimizer, interval=10)

        def save(
            step: int, net: Any = net, optimizer: Any = optimizer, kind: str = kind, paths: list[Path] = paths
        ) -> None:
            name = f"checkpoints/{kind}/step_{step:05d}.pt"
            with run.artefact(name) as path:
                torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)
            paths.append(run.out / "artefacts" / name)

        save(0)
        steps, done = every * (count - 1), [0]

        def after(done: list[int] = done, save: Any = save) -> None:
            done[0] += 1
            if done[0] % every == 0:
                save(done[0])

        ex.train(net, optimizer, data, steps, run.seed, batch=32, noise=1.0, monitor=monitor, after_step=after)
        score = ex.accuracy(net, data)
        run.log(f"{kind}: {score:.1f} % of the test digits right after {steps} steps")
        for row in monitor.series().groupby("step")["ratio"].median().items():
            run.metric(int(row[0]), **{f"{kind}_median_ratio": float(row[1])})
        found = _analyse(paths, every, kind, lr, weight_decay, None, None, False, "", "", "", run)
        label = {"adamw": "AdamW", "sgdm": "SGD with momentum", "rvadamw": "Rotational AdamW"}[kind]
        _present(run, found, kind, prefix=f"{kind}_", heading=f"{label} (lr {lr:g}, weight decay {weight_decay:g})")
        run.result(**{f"{kind}_test_accuracy": round(float(np.float64(score)), 2)})
