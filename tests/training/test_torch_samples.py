# SPDX-License-Identifier: Apache-2.0
"""What a watched data loader of the real PyTorch tells of its samples."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tests.conftest import unmet
from tests.training.listener import Listener, run_job

SCRIPT = """
import warnings
import torch
from torch.utils.data import DataLoader, TensorDataset
from roofline_job import watch

data = TensorDataset(torch.randn(20, 4), torch.randn(20, 1))
model = torch.nn.Linear(4, 1).to(torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def train(x):
    model(x.to(torch.bfloat16)).sum().backward()
    optimizer.step()

for x, y in watch(DataLoader(data, batch_size=8), job="shown"):
    train(x)
for x, y in watch(DataLoader(data, batch_size=8), job="stated", samples_per_batch=5):
    train(x)
warnings.simplefilter("ignore")
nested = DataLoader(data, 8, collate_fn=lambda all: torch.nested.nested_tensor([x for x, _ in all]))
for batch in watch(nested, job="nested"):
    train(batch.to_padded_tensor(0))
"""


def test_a_watched_loader_tells_its_samples(tmp_path: Path) -> None:
    """The last batch is smaller; what the job states goes first; nested tensors have no shape."""
    if importlib.util.find_spec("torch") is None:
        unmet("PyTorch is not installed")
    listener = Listener(tmp_path / "training.sock")
    job = run_job(tmp_path, SCRIPT, listener)
    last = {report["job"]: report for report in listener.reports()}
    listener.close()

    assert (job.returncode, job.stderr) == (0, "")
    samples = {name: report.get("samples") for name, report in last.items()}
    assert samples == {"shown": 20, "stated": 15, "nested": None}
    for report in last.values():
        assert report["batches"] == report["steps"] == 3
        assert report["precision"] == "bf16"
        assert report["loader"]["workers"] == 0
        assert set(report["phase_seconds"]) == {"data", "eval"}
