# SPDX-License-Identifier: Apache-2.0
"""A real PyTorch job keeps its objects no longer, and sees no call more, than without us."""

from __future__ import annotations

import json
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.training.differential.harness import Report, require_module
from tests.training.listener import run_job

TRIALS = """
import gc, json, multiprocessing, os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return torch.tensor([float(index)])

watched = iter
if sys.argv[1] == "watch":
    from roofline_job import watch as watched
trials, keeps = int(sys.argv[2]), sys.argv[3] == "keeps"
seconds, kept = 0.0, []
for _ in range(trials):
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Numbers(), 4, num_workers=2, persistent_workers=True)
    begun = time.perf_counter()
    for number, batch in enumerate(watched(loader)):
        model(batch).sum().backward()
        optimizer.step()
        if number == 3:
            break
    seconds += time.perf_counter() - begun
    if keeps:
        kept.append(loader)
    del loader, batch
    gc.collect()
    time.sleep(0.1)
    torch.save({}, os.devnull)
descriptors = len(os.listdir("/proc/self/fd"))
print(json.dumps([len(multiprocessing.active_children()), descriptors, seconds]))
"""

CALLS = """
import json, sys
from collections import UserDict
from collections.abc import Mapping
import torch
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

seen = []

class Tell:
    def __getattribute__(self, name):
        seen.append(f"{type(self).__name__}.{name}")
        return super().__getattribute__(name)

class TellAll(Tell):
    def __setattr__(self, name, value):
        seen.append(f"{type(self).__name__}.{name}=")
        super().__setattr__(name, value)

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

class LazyDict(UserDict):
    __getitem__ = Lazy.__getitem__

class Batch(TellAll):
    def __init__(self, x):
        self.x = x
    @property
    def shape(self):
        return self.x.shape

class Loader(TellAll, DataLoader):
    def _get_iterator(self):
        return Iterator(self)

class Iterator(Tell, _SingleProcessDataLoaderIter):
    pass

class Sgd(TellAll, torch.optim.SGD):
    pass

class Weight(Own):
    pass

data = [torch.zeros(3) for _ in range(32)]
weight = torch.ones(3).as_subclass(Weight).requires_grad_()
optimizer = Sgd([weight], lr=0.1)
linear = torch.nn.Linear(3, 3)
torch.manual_seed(0)
collates = {
    "own": lambda samples: torch.stack(samples).as_subclass(Own),
    "lazy": lambda samples: Lazy(torch.stack(samples)),
    "lazy dict": lambda samples: LazyDict(x=torch.stack(samples)),
    "batch": lambda samples: Batch(torch.stack(samples)),
    "plain": torch.stack,
}
for name in sys.argv[2:]:
    for kind, steps in ((DataLoader, True), (Loader, True), (Loader, False)):
        loader = kind(data, 4, collate_fn=collates[name])
        with Mode():
            for batch in loader:
                seen.append("batch")
                if steps:
                    linear(weight).sum().backward()
                    optimizer.step()
        with torch.autocast("cpu"):
            seen.append("cast")
print(json.dumps([seen, torch.rand(1).item()]))
"""

LAZY = """
import json, sys
from importlib.util import LazyLoader, find_spec, module_from_spec

for name in ("torch", "jax"):
    spec = find_spec("wsgiref.util")
    spec.loader = LazyLoader(spec.loader)
    sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])

watched = iter
if sys.argv[1] == "watch":
    from roofline_job import step, watch as watched
for _ in watched(range(9)):
    if watched is not iter:
        step()
print(json.dumps([type(sys.modules[name]).__name__ for name in ("torch", "jax")]))
"""


def _result(directory: Path, source: str, *words: str, mode: str) -> Any:
    """Run a script with this way of measuring it, and return what it prints as JSON."""
    return _job(directory, source, *words, mode=mode)[0]


@cache
def _plain(source: str, *words: str) -> Any:
    """Return what a script prints without the client; once for all tests."""
    with tempfile.TemporaryDirectory() as folder:
        return _result(Path(folder), source, *words, mode="plain")


def _job(directory: Path, source: str, *words: str, mode: str) -> tuple[Any, tuple[Report, ...]]:
    """Return the JSON that it prints, and its reports."""
    require_module("torch")
    run = [sys.executable, "-m", "exporter", "run", "--"] if mode == "run" else []
    done, reports = run_job(directory, source, mode, *words, prefix=run)
    assert done.returncode == 0, done.stderr
    assert all("exit" in report for report in reports), "the last report is lost"
    return json.loads(done.stdout.splitlines()[-1]), reports


@pytest.mark.parametrize("mode", ["run", "watch"])
def test_early_stopped_trials_leave_nothing_behind(tmp_path: Path, mode: str) -> None:
    """Neither workers nor descriptors; each step counts, and no time after a loop."""
    workers, descriptors, _ = _plain(TRIALS, "10", "drops")
    measured, reports = _job(tmp_path, TRIALS, "10", "drops", mode=mode)

    assert measured[:2] == [workers, descriptors] == [0, descriptors]
    assert reports[-1]["steps"] == 40
    saved = reports[-1]["phase_seconds"].get("checkpoint", 0.0)
    assert 0 < reports[-1]["step_seconds"] - saved <= measured[2]


@pytest.mark.parametrize("mode", ["run", "watch"])
def test_a_loop_that_was_left_keeps_no_time_while_its_loader_lives(
    tmp_path: Path, mode: str
) -> None:
    """A loader with persistent workers keeps its iterator for the next loop."""
    (workers, _, seconds), reports = _job(tmp_path, TRIALS, "3", "keeps", mode=mode)

    assert workers == 6
    assert reports[-1]["steps"] == 12
    saved = reports[-1]["phase_seconds"].get("checkpoint", 0.0)
    assert 0 < reports[-1]["step_seconds"] - saved <= seconds


@pytest.mark.parametrize(
    ("counts", "collates"),
    [
        ("0", ("own", "lazy", "lazy dict", "batch", "plain")),
        ("1", ("plain", "own")),
        ("1", ("lazy",)),
        ("1", ("batch",)),
    ],
)
def test_a_job_sees_no_call_of_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: str, collates: tuple[str, ...]
) -> None:
    """Whatever its tensors, modes, batches, loaders and optimizers do; same numbers."""
    monkeypatch.setenv("ROOFLINE_JOB_COUNT_FLOPS", counts)
    plain = _result(tmp_path, CALLS, *collates, mode="plain")

    assert "batch" in plain[0]
    assert _result(tmp_path, CALLS, *collates, mode="run") == plain


def test_a_module_that_is_to_be_loaded_lazily_is_not_loaded(tmp_path: Path) -> None:
    """Reading an attribute of it would do so."""
    assert _result(tmp_path, LAZY, mode="watch") == ["_LazyModule"] * 2
