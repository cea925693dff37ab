"""Step time of the rotational optimizers against torch and other packages; the ratio is the figure.

``pytest bench/training/bench_rotational.py`` gives pytest-benchmark's table, peers side by side in one group.
``python bench/training/bench_rotational.py [THREADS]`` alternates the optimizers in short blocks, which a noisy machine
disturbs less, and prints median times and their ratio to ``torch.optim.AdamW(foreach=True)``.
"""

from __future__ import annotations

import importlib
import statistics
import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.utils.benchmark import Timer

from assay.training.rotational import RVSGD, RVAdamW, RVLion, RVWrapper

Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def conv_net() -> nn.Module:
    """Convolutions and batch norms of a ResNet-18 (11.2 million weights)."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, bias=False), nn.BatchNorm2d(64)]
    width = 64
    for out in (64, 128, 256, 512):
        for inputs in (width, out, out, out):
            layers += [nn.Conv2d(inputs, out, 3, bias=False), nn.BatchNorm2d(out)]
        if out != width:
            layers += [nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)]
        width = out
    return nn.Sequential(*layers, nn.Linear(512, 10))


def deep_mlp() -> nn.Module:
    """100 layers of 128 x 128 with biases (1.65 million weights in 200 tensors)."""
    return nn.Sequential(*(nn.Linear(128, 128) for _ in range(100)))


NETS: dict[str, Callable[[], nn.Module]] = {"conv-11M": conv_net, "mlp-100x128": deep_mlp}

OURS: dict[str, Make] = {
    "RVAdamW": lambda p: RVAdamW(p, lr=1e-3, weight_decay=0.1),
    "RVAdamW per tensor": lambda p: RVAdamW(p, lr=1e-3, weight_decay=0.1, per_neuron=False),
    "RVAdamW loop": lambda p: RVAdamW(p, lr=1e-3, weight_decay=0.1, foreach=False),
    "RVSGD": lambda p: RVSGD(p, lr=1e-3, weight_decay=0.1),
    "RVLion": lambda p: RVLion(p, lr=1e-3, weight_decay=0.1),
    "RVWrapper(AdamW)": lambda p: RVWrapper(torch.optim.AdamW(p, lr=1e-3, weight_decay=0.1, foreach=True)),
}
BASE = "torch AdamW(foreach)"
MUON = "torch Muon (matrices only)"
PEERS: dict[str, Make] = {
    BASE: lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.1, foreach=True),
    "torch SGD(foreach)": lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9, weight_decay=0.1, foreach=True),
    "torch Adam(foreach)": lambda p: torch.optim.Adam(p, lr=1e-3, weight_decay=0.1, foreach=True),
}
if hasattr(torch.optim, "Muon"):
    # It takes matrices only: biases are left out of its step, and the conv net (see `names`), which has one matrix.
    PEERS[MUON] = lambda p: torch.optim.Muon([q for q in p if q.ndim == 2], lr=1e-3, weight_decay=0.1)
# Peers of other packages, where they are installed: (module, class, options).
EXTRA = {
    "pytorch-optimizer AdamP": ("pytorch_optimizer", "AdamP", {"weight_decay": 0.1}),
    "pytorch-optimizer SGDP": ("pytorch_optimizer", "SGDP", {"weight_decay": 0.1, "momentum": 0.9}),
    "pytorch-optimizer Lion": ("pytorch_optimizer", "Lion", {"weight_decay": 0.1}),
    "lion-pytorch Lion": ("lion_pytorch", "Lion", {"weight_decay": 0.1}),
}


def makers() -> dict[str, Make]:
    found = {**PEERS, **OURS}
    for name, (module, attribute, options) in EXTRA.items():
        try:
            kind = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError:
            continue
        found[name] = lambda p, kind=kind, options=options: kind(p, lr=1e-3, **options)  # type: ignore[misc]
    return found


def names(net: str) -> list[str]:
    """Optimizers that can be compared on a net."""
    return [name for name in makers() if name != MUON or net != "conv-11M"]


def prepared(net: str, make: Make) -> torch.optim.Optimizer:
    """An optimizer over a fresh net with fixed gradients, past its first step, which makes the state."""
    torch.manual_seed(0)
    model = NETS[net]()
    parameters = list(model.parameters())
    for p in parameters:
        p.grad = torch.randn_like(p) * 1e-3
    optimizer = make(parameters)
    optimizer.step()
    return optimizer


def alternated(net: str, names: list[str], rounds: int = 15, threads: int = 1) -> dict[str, list[float]]:
    """Seconds per step, measured in turn: the lists are paired, so their ratio is taken round by round."""
    timers = {}
    for name in names:
        timers[name] = Timer("o.step()", globals={"o": prepared(net, makers()[name])}, num_threads=threads)
        timers[name].timeit(1)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            seconds[name].append(timers[name].timeit(2).median)
    return seconds


def ratio(seconds: dict[str, list[float]], name: str) -> float:
    return statistics.median(a / b for a, b in zip(seconds[name], seconds[BASE], strict=True))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("net", "name"), [(net, name) for net in NETS for name in names(net)])
def test_step(benchmark, net: str, name: str) -> None:  # type: ignore[no-untyped-def]
    benchmark.group = f"optimizer step, {net}"
    benchmark.pedantic(prepared(net, makers()[name]).step, rounds=10, warmup_rounds=2)


# The bounds that the method promises; measured figures are in the guide.
@pytest.mark.parametrize(("net", "bound"), [("conv-11M", 2.0), ("mlp-100x128", 2.5)])
def test_ratio_to_adamw(net: str, bound: float) -> None:
    assert ratio(alternated(net, [BASE, "RVAdamW"]), "RVAdamW") <= bound


def main(threads: int) -> None:
    for net in NETS:
        seconds = alternated(net, names(net), threads=threads)
        print(f"{net}, {threads} thread(s), {torch.__version__}")
        for name in seconds:
            print(f"  {name:26s} {statistics.median(seconds[name]) * 1e3:8.2f} ms  x{ratio(seconds, name):5.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
