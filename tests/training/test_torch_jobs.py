# SPDX-License-Identifier: Apache-2.0
"""Real PyTorch jobs are what they are without us, and report what they did."""

from __future__ import annotations

import json
import re
import socket
import sys
from pathlib import Path

import pytest

from tests.training.torch_jobs import JOBS, Done, Report, require_module, run_both

TIMES = re.compile(rb"^[WI]\d{4} [\d:.]+ +\d+ ", re.MULTILINE)
"""Date, time and pid with which torch begins the lines of its log."""
RUNTIME = re.compile(rb"'?[a-z_]+(_runtime|_per_second)'?: '?[\d.e-]+'?")
"""Times that the Trainer of Hugging Face prints."""


@pytest.fixture(autouse=True)
def _torch() -> None:
    require_module("torch")


def assert_the_same(plain: Done, job: Done, *, but: tuple[str, ...] = ()) -> None:
    """Exit code, both outputs and every file are equal to the byte."""
    assert plain.reports == ()
    assert TIMES.sub(b"", job.stderr).decode() == TIMES.sub(b"", plain.stderr).decode()
    assert job.stdout.decode() == plain.stdout.decode()
    assert job.returncode == plain.returncode
    assert job.files.keys() == plain.files.keys()
    assert [name for name in job.files if job.files[name] != plain.files[name]] == list(but)


def only(job: Done) -> Report:
    """Return the report of a job with one training process; the client did not fail in it."""
    (report,) = job.reports
    assert_sound(report)
    return report


def assert_sound(report: Report) -> None:
    phases = report["phase_seconds"]
    assert report.get("error") is None
    assert report["exit"]
    assert report["job"] == "tested"
    assert report["instrumentation"] == "auto"
    assert report["framework"].startswith("torch ")
    assert "phase_gpu_idle_seconds" not in report
    assert min(phases.values()) >= 0
    assert sum(phases.values()) <= report["step_seconds"]


def counts(report: Report) -> tuple[int, int, int]:
    return report["steps"], report["batches"], report["samples"]


def test_the_ways_in_which_scripts_train(tmp_path: Path) -> None:
    """Workers, persistent ones, streams, early breaks, evaluation, accumulation, two optimizers,
    mixed precision and checkpoints: all steps are counted, and nothing is changed.
    """
    plain, job = run_both(tmp_path, sys.executable, str(JOBS / "plain.py"))

    assert_the_same(plain, job, but=("counted.json",))
    assert len(job.files) == 10
    counted, report = json.loads(job.files["counted.json"]), only(job)
    assert counts(report) == (counted["steps"], counted["batches"], counted["samples"])
    phases = report["phase_seconds"]
    assert phases["data"] == pytest.approx(counted["data"], rel=0.1)
    assert phases["checkpoint"] == pytest.approx(counted["checkpoint"], rel=0.1, abs=0.005)
    assert phases["eval"] > 0
    assert report["precision"] == "bf16"
    assert report["loader"] == {
        "workers": 0,
        "prefetch_factor": None,
        "pin_memory": False,
        "persistent_workers": False,
        "ready_batches": None,
    }


def test_the_ways_in_which_jobs_fail(tmp_path: Path) -> None:
    """Tracebacks, warnings, logs and exit codes have no trace of us."""
    plain, job = run_both(tmp_path, sys.executable, str(JOBS / "failing.py"))

    assert_the_same(plain, job)
    assert job.returncode == 1
    assert job.stdout == b"in_a_worker 1\nleaves 4\ninterrupted -2\n"
    assert b"sample 3 is broken" in job.stderr
    assert b"Caught ValueError in DataLoader worker process 0" in job.stderr
    assert b"failing.py:" in job.stderr  # the place that the warning blames
    assert b"roofline" not in job.stderr
    for report in job.reports:
        assert_sound(report)


@pytest.mark.parametrize("launcher", ["torchrun", "spawn"])
def test_two_ranks(tmp_path: Path, launcher: str) -> None:
    """Each rank reports for itself, no launcher does; a traceback comes through as it was."""
    script = str(JOBS / "distributed.py")
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    words += [script, "ranks"]
    if launcher == "spawn":
        words = [sys.executable, script, "spawn", str(free_port())]
    plain, job = run_both(tmp_path, *words)

    assert_the_same(plain, job, but=("checkpoint/.metadata",))  # it holds a random id
    assert job.returncode == (launcher == "spawn")
    assert "model.pt" in job.files
    assert [report["rank"] for report in job.reports] == [0, 1]
    for report in job.reports:
        assert_sound(report)
        assert counts(report) == (8, 8, 32)
        assert report["world_size"] == 2
        assert report["phase_seconds"]["checkpoint"] > 0


def free_port() -> int:
    with socket.socket() as endpoint:
        endpoint.bind(("127.0.0.1", 0))
        return int(endpoint.getsockname()[1])


def test_lightning(tmp_path: Path) -> None:
    """The Trainer's loop is measured: its steps, its validation and its checkpoints, also where it
    trains on the last batch after it has found that there is no more.
    """
    require_module("lightning")
    plain, job = run_both(tmp_path, sys.executable, str(JOBS / "with_lightning.py"))

    assert_the_same(plain, job)
    report = only(job)
    steps = [int(found) for found in re.findall(rb"^(\d+) ", job.stdout, re.MULTILINE)]
    assert steps == [8, 16, 6]  # the Trainer's own counts
    assert counts(report) == (sum(steps), 3 * 16, 3 * 128)
    assert report["phase_seconds"].keys() == {"data", "eval", "checkpoint"}


def test_accelerate(tmp_path: Path) -> None:
    """Its loaders ask one batch ahead: the step after the end of the data counts too."""
    require_module("accelerate")
    plain, job = run_both(tmp_path, sys.executable, str(JOBS / "with_accelerate.py"))

    assert_the_same(plain, job)
    report = only(job)
    assert counts(report) == (10, 10, 80)
    assert report["phase_seconds"]["checkpoint"] > 0


def test_compiled(tmp_path: Path) -> None:
    """Dynamo compiles what it would without us: as many frames and graphs, the same breaks."""
    plain, job = run_both(tmp_path, sys.executable, str(JOBS / "compiled.py"))

    assert_the_same(plain, job)
    report = only(job)
    assert report["batches"] == 8
    assert report["precision"] == "bf16"


def test_transformers(tmp_path: Path) -> None:
    """The Trainer's steps, evaluation and checkpoints are measured; its results are the same."""
    require_module("transformers")
    plain, job = run_both(tmp_path, sys.executable, str(JOBS / "with_transformers.py"))

    told = (RUNTIME.sub(b"", done.stdout) for done in (job, plain))
    assert len(set(told)) == 1
    assert job.returncode == plain.returncode == 0
    assert job.files.keys() == plain.files.keys()
    weights = [name for name in job.files if name.endswith(".safetensors")]
    assert weights
    assert [job.files[name] for name in weights] == [plain.files[name] for name in weights]
    report = only(job)
    assert counts(report) == (8, 16, 64)
    assert report["phase_seconds"].keys() == {"data", "eval", "checkpoint"}
