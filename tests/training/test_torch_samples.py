# SPDX-License-Identifier: Apache-2.0
"""A watched PyTorch loader reports its samples, precision and settings by itself."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.conftest import unmet
from tests.training.listener import Listener, run_job

SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from roofline_job import watch

data = TensorDataset(torch.randn(20, 4), torch.randn(20, 1))
model = torch.nn.Linear(4, 1).to(torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in watch(DataLoader(data, batch_size=8), job="own"STATED):
    model(x.to(torch.bfloat16)).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("stated", "samples"), [("", 20), (", samples_per_batch=5", 15)])
def test_a_watched_loader_tells_its_samples(tmp_path: Path, stated: str, samples: int) -> None:
    """The last batch is smaller, and is counted as what it is; what the job states goes first."""
    if importlib.util.find_spec("torch") is None:
        unmet("PyTorch is not installed")
    listener = Listener(tmp_path / "training.sock")
    job = run_job(tmp_path, SCRIPT.replace("STATED", stated), listener.path)
    assert (job.returncode, job.stderr) == (0, "")
    last = listener.reports()[-1]
    listener.close()
    assert last["samples"] == samples
    assert last["batches"] == last["steps"] == 3
    assert last["precision"] == "bf16"
    assert last["loader"]["workers"] == 0
    assert set(last["phase_seconds"]) == {"data", "eval"}


def test_a_batch_without_a_shape_costs_no_measurement(tmp_path: Path) -> None:
    """A nested tensor is a plain torch.Tensor, and raises where it is asked for its shape."""
    if importlib.util.find_spec("torch") is None:
        unmet("PyTorch is not installed")
    listener = Listener(tmp_path / "training.sock")
    nested = """import warnings
warnings.simplefilter("ignore")
loader = DataLoader(data, 8, collate_fn=lambda all: torch.nested.nested_tensor([x for x, _ in all]))
for batch in watch(loader, job="own"):
    model(batch.to_padded_tensor(0).to(torch.bfloat16)).sum().backward()
    optimizer.step()
"""
    script = SCRIPT.partition("for x, y")[0] + nested
    job = run_job(tmp_path, script, listener.path)
    last = listener.reports()[-1]
    listener.close()
    assert (job.returncode, job.stderr) == (0, "")
    assert (last["batches"], last["steps"], last.get("samples")) == (3, 3, None)
