"""Run by test_optimizer_distributed.py in two processes: ``distributed_worker.py RANK FOLDER``."""

from __future__ import annotations

import sys

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from assay.training.rotational import RVAdamW, RVWrapper


def net() -> nn.Sequential:
    torch.manual_seed(0)
    # 5 rows on 2 devices: the shards are unequal.
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5)).double()


def train(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, steps: int = 5) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def whole(t: Tensor) -> Tensor:
    return t.full_tensor() if isinstance(t, DTensor) else t


def main(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    x = torch.randn(8, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    single = net()
    reference = RVAdamW(single.parameters(), lr=0.1, weight_decay=0.1)
    train(single, reference, x)
    expected = [p.detach() for p in single.parameters()]

    replica = net()
    ddp = DistributedDataParallel(replica)
    train(ddp, RVAdamW(ddp.parameters(), lr=0.1, weight_decay=0.1), x[rank::2])
    for a, b in zip(expected, replica.parameters(), strict=True):
        # The mean over two halves is rounded otherwise than that over the whole, and Adam divides by small roots.
        torch.testing.assert_close(a, b.detach(), rtol=0, atol=1e-10)

    mesh = dist.init_device_mesh("cpu", (2,))
    for wrapped in (False, True):
        sharded = net()
        fully_shard(sharded, mesh=mesh)
        optimizer: torch.optim.Optimizer
        if wrapped:
            optimizer = RVWrapper(torch.optim.AdamW(sharded.parameters(), lr=0.1, weight_decay=0.1))
        else:
            optimizer = RVAdamW(sharded.parameters(), lr=0.1, weight_decay=0.1)
        train(sharded, optimizer, x[rank::2])
        for a, b in zip(expected, sharded.parameters(), strict=True):
            torch.testing.assert_close(a, whole(b.detach()), rtol=0, atol=1e-10)
        norm = optimizer.state[sharded[2].weight]["norm"]
        torch.testing.assert_close(whole(norm), reference.state[single[2].weight]["norm"])

    columns = nn.Parameter(distribute_tensor(torch.randn(4, 6), mesh, [Shard(1)]))
    with pytest.raises(ValueError, match="several devices"):
        RVAdamW([columns], weight_decay=0.1)
    dist.barrier()
    dist.destroy_process_group()
    print("done")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
