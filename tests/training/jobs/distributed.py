# SPDX-License-Identifier: Apache-2.0
"""Trains on two ranks over gloo: started by torchrun, or by itself with ``spawn PORT``."""

from __future__ import annotations

import os
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoints
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

warnings.filterwarnings("ignore")


def train() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = DistributedSampler(data)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=4, sampler=sampler):
            optimizer.zero_grad()
            ((model(x) - y) ** 2).mean().backward()
            optimizer.step()
    checkpoints.save({"model": model.module.state_dict()}, checkpoint_id="checkpoint")
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "model.pt")
        print(f"{sum(float(p.sum()) for p in model.parameters()):.9f}")
    dist.barrier()
    # A model that is dropped after its group hangs in its destructor every now and then (gloo).
    del model
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
    for _ in DataLoader(TensorDataset(torch.zeros(2)), collate_fn=torch.stack):
        pass


if __name__ == "__main__":
    if sys.argv[1] == "spawn":
        torch.multiprocessing.spawn(spawned, (sys.argv[2],), nprocs=2)
        torch.multiprocessing.spawn(failing, nprocs=1)
    else:
        train()
