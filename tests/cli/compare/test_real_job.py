# SPDX-License-Identifier: Apache-2.0
"""What `run --summary` writes of a real PyTorch job is what `compare` reads."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from exporter.cli.compare.job_summary import JobSummary, read_summary
from tests.programs import ended

ROOT = Path(__file__).resolve().parents[3]
TRAIN = """
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(torch.zeros(80, 8), 4):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
torch.save(model.state_dict(), "model.pt")
"""


def test_the_client_and_the_reader_have_the_same_keys(tmp_path: Path) -> None:
    """What is written is read, and docs/compare.md names it, with what a daemon adds."""
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    run = [sys.executable, "-W", "ignore", "-m", "exporter", "run", "--quiet", "--count-flops"]
    done = ended(
        *(*run, "--summary", "a.json", "--", sys.executable, "-W", "ignore", "train.py"),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=100,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    written = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    job = read_summary(tmp_path / "a.json")
    keys = {field.name for field in fields(JobSummary)}
    for key in written.keys() & keys:
        assert getattr(job, key) == written[key]
    table = (ROOT / "docs/compare.md").read_text(encoding="utf-8").split("## The file", 1)[1]
    for key in written.keys() | keys:
        assert f'`"{key}"`' in table
