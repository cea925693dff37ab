"""Stored float64 trajectories of an independent plain reference, so that a later change of both sides cannot hide.

``python tests/parity/rotational/test_trajectories.py`` writes ``trajectories.npz`` anew from the NumPy reference below.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

FILE = Path(__file__).parent / "trajectories.npz"
STEPS = 50
CASES = [(kind, per, centre) for kind in ("adamw", "sgdm", "lion") for per in (True, False) for centre in (True, False)]


def label(kind: str, per_neuron: bool, zero_mean: bool) -> str:
    return f"{kind}-{'neuron' if per_neuron else 'tensor'}-{'centred' if zero_mean else 'raw'}"


def plain(kind: str, start: Any, grads: Any, per_neuron: bool, zero_mean: bool) -> Any:
    """The step in the order of the method, in NumPy: lr .01, weight decay .1, momentum or betas (.9, .99), mu .9."""
    lr, decay, b1, b2, mu, eps = 0.01, 0.1, 0.9, 0.99, 0.9, 1e-8
    rate = {
        "adamw": np.sqrt(2 * lr * decay * (1 - b1) / (1 + b1)),
        "sgdm": np.sqrt(2 * lr * decay / (1 + b1)),
        "lion": np.sqrt(np.pi * lr * decay * ((1 - b1) ** 2 + b1**2 * (1 - b2) / (1 + b2))),
    }[kind]
    p = start.reshape(len(start) if per_neuron else 1, -1).copy()
    if zero_mean:
        size = np.sqrt((p**2).sum(1, keepdims=True))
        p = p - p.mean(1, keepdims=True)
        p = p / np.sqrt((p**2).sum(1, keepdims=True)) * size
    norm = np.sqrt((p**2).sum(1, keepdims=True))
    m, v, s = np.zeros_like(p), np.zeros_like(p), np.zeros_like(norm)
    for t, g in enumerate(grads.reshape(len(grads), *p.shape), 1):
        if kind == "adamw":
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
            d = m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps)
        elif kind == "sgdm":
            m = b1 * m + g
            d = m.copy()
        else:
            d, m = np.sign(b1 * m + (1 - b1) * g), b2 * m + (1 - b2) * g
        if zero_mean:
            d = d - d.mean(1, keepdims=True)
        d = d - p * (d * p).sum(1, keepdims=True) / norm**2
        s = mu * s + (1 - mu) * (d * d).sum(1, keepdims=True)
        p = p - rate * norm * d / (np.sqrt(s / (1 - mu**t)) + eps)
        p = p / np.sqrt((p**2).sum(1, keepdims=True)) * norm
    return p.reshape(start.shape)


@pytest.mark.parametrize(("kind", "per_neuron", "zero_mean"), CASES)
def test_stored_trajectory(kind: str, per_neuron: bool, zero_mean: bool) -> None:
    import torch

    from assay.training.rotational import RVSGD, RVAdamW, RVLion

    stored = np.load(FILE)
    p = torch.nn.Parameter(torch.from_numpy(stored["start"].copy()))
    shared: dict[str, Any] = {"lr": 0.01, "weight_decay": 0.1, "per_neuron": per_neuron, "zero_mean": zero_mean}
    optimizer = {
        "adamw": lambda: RVAdamW([p], betas=(0.9, 0.99), **shared),
        "sgdm": lambda: RVSGD([p], momentum=0.9, **shared),
        "lion": lambda: RVLion([p], betas=(0.9, 0.99), **shared),
    }[kind]()
    for g in stored["grads"]:
        p.grad = torch.from_numpy(g.copy())
        optimizer.step()
    # The promised bound; float64 rounding over 50 steps stays a thousand times below it.
    np.testing.assert_allclose(p.detach().numpy(), stored[label(kind, per_neuron, zero_mean)], rtol=0, atol=1e-10)


def test_pinned_values() -> None:
    stored = np.load(FILE)
    # Read off once; they fix the stored file itself.
    expected = {
        "adamw-neuron-centred": -0.23463356360461204,
        "sgdm-tensor-raw": 0.34704888381638843,
        "lion-neuron-centred": -0.22128816598747836,
    }
    for name, value in expected.items():
        assert float(stored[name].ravel()[0]) == pytest.approx(value, abs=1e-12)


def write() -> None:
    rng = np.random.default_rng(20)
    start = rng.normal(size=(3, 2, 2, 2))
    grads = rng.normal(size=(STEPS, *start.shape)) * 10.0 ** rng.uniform(-2, 1, size=(STEPS, 1, 1, 1, 1))
    ends = {label(*case): plain(case[0], start, grads, *case[1:]) for case in CASES}
    np.savez_compressed(FILE, start=start, grads=grads, **ends)
    for name, value in ends.items():
        print(f'    "{name}": {value.ravel()[0]!r},')


if __name__ == "__main__":
    write()
