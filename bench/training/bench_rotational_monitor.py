"""A training step with and without the monitor (interval 10): the ratio must stay below 1.1.

Run with ``pytest bench/training/bench_rotational_monitor.py --benchmark-enable``. Ten steps are one round, so that every
round holds exactly one measured step.
"""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from assay.training.rotational import RotationMonitor
from assay.training.rotational._nets import ResNet8, layer_norm_mlp

NETWORKS = {
    "resnet8": (lambda: ResNet8(16), (32, 3, 32, 32)),
    "mlp20": (lambda: layer_norm_mlp(256, 256, 20), (64, 256)),
}


def _steps(name: str, monitored: bool):
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    net, x = make(), torch.randn(*shape)
    y = torch.randint(0, 10, (shape[0],))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.1)
    monitor = RotationMonitor(net, optimizer, interval=10)
    if monitored:
        monitor.attach()

    def ten_steps() -> None:
        for _ in range(10):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()

    return ten_steps


@pytest.mark.parametrize("monitored", [False, True], ids=["plain", "monitored"])
@pytest.mark.parametrize("name", list(NETWORKS))
def test_bench_monitor(benchmark, name, monitored):
    benchmark.group = f"monitor-{name}"
    benchmark.pedantic(_steps(name, monitored), rounds=8, warmup_rounds=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(NETWORKS))
def test_monitor_costs_less_than_a_tenth(name):
    plain, monitored = _steps(name, False), _steps(name, True)
    plain()
    monitored()
    ratios = []
    for _ in range(9):
        # Interleaved, and CPU time of this process, so that a busy machine hits both alike.
        start = time.process_time()
        plain()
        middle = time.process_time()
        monitored()
        ratios.append((time.process_time() - middle) / (middle - start))
    assert sorted(ratios)[len(ratios) // 2] < 1.10
