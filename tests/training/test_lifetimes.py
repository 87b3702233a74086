# SPDX-License-Identifier: Apache-2.0
"""A real PyTorch job keeps its objects no longer, and sees no call more, than without us."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import unmet
from tests.training.listener import ROOT, Listener

LIFETIMES = """
import gc, itertools, json, multiprocessing, sys, time, weakref
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

watched = iter
if sys.argv[1] == "watch":
    from roofline_job import watch as watched

class Numbers(Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, index):
        return torch.tensor([float(index)])

def own_collate(samples):
    return torch.stack(samples)

def trial(persistent, collate, leave):
    data = Numbers()
    loader = DataLoader(
        data, 4, num_workers=1, persistent_workers=persistent, collate_fn=collate
    )
    for batch in watched(loader):
        optimizer.step()
        if leave:
            break
    return weakref.ref(loader), weakref.ref(data)

optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
alive = []
for persistent, collate, leave in itertools.product(
    (False, True), (default_collate, own_collate), (False, True)
):
    references = trial(persistent, collate, leave)
    gc.collect()
    if any(each() is not None for each in references) or multiprocessing.active_children():
        alive.append([persistent, collate.__name__, leave])
print(json.dumps(alive))
"""

CALLS = """
import json
from collections.abc import Mapping
import torch
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader

seen = []

class Own(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        seen.append(getattr(function, "__name__", str(function)))
        return super().__torch_function__(function, types, args, kwargs or {})

class Mode(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        seen.append(getattr(function, "__name__", str(function)))
        return function(*args, **(kwargs or {}))

class Lazy(Mapping):
    def __init__(self, x):
        self.x = x
    def __getitem__(self, key):
        seen.append("augmented")
        return self.x + torch.rand(1)
    def __iter__(self):
        return iter(("x",))
    def __len__(self):
        return 1

def own(samples):
    return torch.stack(samples).as_subclass(Own)

def lazy(samples):
    return Lazy(torch.stack(samples))

data = [torch.zeros(3) for _ in range(8)]
torch.manual_seed(0)
for collate in (own, lazy, torch.stack):
    batches = iter(DataLoader(data, 4, collate_fn=collate))
    with Mode():
        for batch in batches:
            seen.append("batch")
print(json.dumps([seen, torch.rand(1).item()]))
"""


def _result(directory: Path, source: str, *, mode: str) -> Any:
    """Run a script with this way of measuring it, and return what it prints as JSON."""
    if importlib.util.find_spec("torch") is None:
        unmet("PyTorch is not installed")
    script = directory / "job.py"
    script.write_text(source)
    listener = Listener(directory / f"{mode}.sock")
    run = [sys.executable, "-m", "exporter", "run", "--"] if mode == "run" else []
    done = subprocess.run(
        [*run, sys.executable, str(script), mode],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "ROOFLINE_TRAINING_SOCKET": str(listener.path),
        },
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    listener.close()
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("mode", ["plain", "run", "watch"])
def test_a_loader_that_is_dropped_is_gone(tmp_path: Path, mode: str) -> None:
    """With its dataset and its workers, whichever way its loop ended."""
    assert _result(tmp_path, LIFETIMES, mode=mode) == []


def test_a_job_sees_no_call_of_the_client(tmp_path: Path) -> None:
    """Neither its tensors, its modes, nor a batch that is made as it is read; same numbers."""
    plain = _result(tmp_path, CALLS, mode="plain")

    assert "batch" in plain[0]
    assert _result(tmp_path, CALLS, mode="run") == plain
