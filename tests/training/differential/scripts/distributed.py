# SPDX-License-Identifier: Apache-2.0
"""Trains on two ranks over gloo, replicated and sharded.

Started by torchrun, or by itself with ``spawn PORT``: then another process fails at the end.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoints
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.training.differential.own import Own, Pairs, quiet, unknown

warnings.filterwarnings("ignore")


def epochs(own: Own, model: Any, optimizer: Any) -> None:
    sampler = DistributedSampler(Pairs(40))
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in own.each(DataLoader(Pairs(40), 4, sampler=sampler)):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            own.steps += 1


def replicated(own: Own) -> None:
    epochs(own, DistributedDataParallel(own.model), own.optimizer)
    checkpoints.save({"model": own.model.state_dict()}, checkpoint_id="checkpoint")
    if dist.get_rank() == 0:
        torch.save(own.model.state_dict(), "model.pt")


def sharded(own: Own) -> None:
    torch.manual_seed(2)
    model = fully_shard(torch.nn.Linear(4, 1), mesh=dist.init_device_mesh("cpu", (2,)))
    epochs(own, model, torch.optim.SGD(model.parameters(), lr=0.05))
    own.model = torch.nn.Linear(4, 1)
    with torch.no_grad():
        for whole, part in zip(own.model.parameters(), model.parameters(), strict=True):
            whole.copy_(part.full_tensor())


def train() -> None:
    dist.init_process_group("gloo")
    rank, own = dist.get_rank(), Own()
    replicated(own)
    sharded(own)
    if rank:  # lines of both would mix
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    expected: dict[str, Any] = {"rank": rank, "world_size": 2, "phases": ["checkpoint", "data"]}
    own.expect(clock=False, case=f"rank {rank}", **expected)
    # Models that are dropped after their group hang or abort every now and then (gloo).
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()


def spawned(rank: int, port: str) -> None:
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    train()


def failing(rank: int) -> None:
    unknown()  # it may say that it waits for the batch that never comes
    for _ in DataLoader(TensorDataset(torch.zeros(2)), collate_fn=torch.stack):
        pass


if __name__ == "__main__":
    if sys.argv[1:2] == ["spawn"]:
        quiet()
        torch.multiprocessing.spawn(spawned, (sys.argv[2],), nprocs=2)
        torch.multiprocessing.spawn(failing, nprocs=1)
    else:
        train()
