# SPDX-License-Identifier: Apache-2.0
"""Jobs of several ranks and of frameworks are what they are without us, and say what they did."""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path

import pytest

from tests.training.differential.harness import (
    RUN,
    SCRIPTS,
    Done,
    Job,
    Report,
    compare,
    require_module,
)

RUNTIME = re.compile(r"'?[a-z_]+(_runtime|_per_second)'?: '?[\d.e+-]+'?|\[[\d:]+<.*it/s\]")
"""Times that the Trainer of Hugging Face prints."""


def the_same(name: str, job: Job) -> Done:
    found, done = compare(name, job, RUN)
    assert not found, "\n".join(("", *found))
    return done


def only(done: Done) -> Report:
    """Return the report of a job with one training process; the client did not fail in it."""
    (report,) = done.reports
    assert report.get("error") is None
    assert report["exit"]
    return report


def counts(report: Report) -> tuple[int, int, int]:
    return report["steps"], report["batches"], report["samples"]


@pytest.mark.parametrize("launcher", ["torchrun", "spawn"])
def test_two_ranks(launcher: str) -> None:
    """DDP and FSDP: each rank reports for itself, no launcher does; a traceback comes through."""
    require_module("torch")
    script = SCRIPTS / "distributed.py"
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    words += [str(script)]
    if launcher == "spawn":
        words = [sys.executable, str(script), "spawn", str(free_port())]
    metadata = frozenset({"checkpoint/.metadata"})  # it holds a random id
    done = the_same(launcher, Job(words, but=metadata))

    assert done.returncode == (launcher == "spawn")
    assert "model.pt" in done.files
    trained = [report for report in done.reports if report["batches"]]
    assert [counts(report) for report in trained] == [(20, 20, 80)] * 2


def free_port() -> int:
    with socket.socket() as endpoint:
        endpoint.bind(("127.0.0.1", 0))
        return int(endpoint.getsockname()[1])


def test_lightning() -> None:
    """The Trainer's loop is measured: its steps, its validation and its checkpoints, also where it
    trains on the last batch after it has found that there is no more.
    """
    require_module("lightning")
    job = Job([sys.executable, SCRIPTS / "with_lightning.py"], own=False)
    done = the_same("lightning", job)

    report = only(done)
    steps = [int(found) for found in re.findall(r"^(\d+) ", done.stdout, re.MULTILINE)]
    assert steps == [8, 16, 6]  # the Trainer's own counts
    assert counts(report) == (sum(steps), 3 * 16, 3 * 128)
    assert report["phase_seconds"].keys() == {"data", "eval", "checkpoint"}


def test_accelerate() -> None:
    """Its loaders ask one batch ahead: the step after the end of the data counts too."""
    require_module("accelerate")
    job = Job([sys.executable, SCRIPTS / "with_accelerate.py"], own=False)
    report = only(the_same("accelerate", job))

    assert counts(report) == (10, 10, 80)
    assert report["phase_seconds"]["checkpoint"] > 0


def test_transformers() -> None:
    """The Trainer's steps, evaluation and checkpoints are measured; its results are the same."""
    require_module("transformers")
    words: list[str | Path] = [sys.executable, SCRIPTS / "with_transformers.py"]
    job = Job(words, own=False, shown=lambda text: RUNTIME.sub("", text), but=TIMED)
    done = the_same("transformers", job)

    assert any(name.endswith(".safetensors") for name in done.files)
    report = only(done)
    assert counts(report) == (8, 16, 64)
    assert report["phase_seconds"].keys() == {"data", "eval", "checkpoint"}


TIMED = frozenset(
    f"out/checkpoint-{step}/{name}" for step in (4, 8) for name in ("trainer_state.json",)
)
"""Files of the Trainer in which it writes how long it took."""
