# SPDX-License-Identifier: Apache-2.0
"""The file of `run --summary`: what it says, and that no failure harms the job."""

from __future__ import annotations

import json
import os
import platform
import signal
import stat
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from exporter.cli.compare.job_summary import read_summary
from roofline_job import identity, phase, reporter, summary, watch
from roofline_job.process import PROCESS
from tests.training.conftest import Clock
from tests.training.test_summary import TRAIN, ran

NAME = "run.json"
STEPS = """
import os, signal, sys, time
import torch
from torch.utils.data import DataLoader

for batch in DataLoader(torch.zeros(4, 4), 1):
    time.sleep(0.01)
"""
NOT_WRITTEN = "roofline_job: --summary {} is not written: {}\n"


def read(folder: Path) -> dict[str, Any]:
    """Return what is in the only summary of a folder, which has nothing half written."""
    assert [path.name for path in folder.glob("run.json*")] == [NAME]
    found: dict[str, Any] = json.loads((folder / NAME).read_text(encoding="utf-8"))
    return found


@pytest.mark.usefixtures("unheard")
def test_it_has_what_is_known_and_nothing_else(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of 4 steps of 1 s, of which 0.25 s each wait for data and the GPU is idle 0.2 s."""
    device = SimpleNamespace(name="NVIDIA GeForce RTX 4090", multi_processor_count=128)
    cuda = SimpleNamespace(
        current_device=int,
        get_device_properties=lambda index: device,
        get_device_name=lambda: device.name,
    )
    monkeypatch.setattr(identity, "cuda", lambda: cuda)
    monkeypatch.setattr(identity, "framework", lambda: "jax 0.9")
    monkeypatch.setattr(identity, "world_size", lambda: 8)
    monkeypatch.setattr(reporter, "_allocator", str)
    monkeypatch.delenv(summary.VARIABLE, raising=False)
    monkeypatch.setenv(summary.FILE_VARIABLE, str(tmp_path / NAME))
    monkeypatch.setenv("ROOFLINE_JOB_STARTED", "1000.5")
    loop = watch(range(4), job="j", samples_per_batch=32, flops_per_step=33e12, precision="bf16")
    for _ in loop:
        with phase("data"):
            clock.wait(0.25)
        clock.wait(0.75)
    account = PROCESS.accounts[0]
    account.meter.measuring = True
    account.meter.idle_ns["data"] = 800_000_000
    account.loader = {"workers": 0, "pin_memory": False, "prefetch_factor": None} | {
        "ready_batches": 3
    }
    PROCESS.flush()

    found = read(tmp_path)
    assert read_summary(tmp_path / NAME).mfu_ratio == found["mfu_ratio"]
    assert found.pop("ended_unix_seconds") > 1.7e9
    assert found.pop("phase_seconds")["data"] == 1.0
    found["versions"].pop("cuda", None)  # of the torch that another test may have imported
    assert found.pop("versions") == {
        "roofline_exporter": metadata.version("roofline-exporter"),
        "python": platform.python_version(),
        "framework": "jax 0.9",
    }
    assert found.pop("mfu_ratio") == pytest.approx(0.2, rel=0.01)  # of 165.2 TFLOP/s
    assert found == {
        "format": "roofline-exporter-summary",
        "version": 1,
        "job": "j",
        "started_unix_seconds": 1000.5,
        "ranks": 8,
        "steps": 4,
        "samples": 128.0,
        "loop_seconds": 4.0,
        "steps_per_second": 1.0,
        "data_wait_ratio": 0.25,
        "data_stall_ratio": 0.2,
        "phase_gpu_idle_seconds": {"data": 0.8},
        "flops_per_second": 33e12,
        "precision": "bf16",
        "gpu": "NVIDIA GeForce RTX 4090",
        "loader": {"workers": 0, "pin_memory": False},
    }


def test_a_job_writes_it_where_it_was_asked_from(tmp_path: Path) -> None:
    """Beside the line, or alone; with the loader's settings; whatever folder the job goes to."""
    pytest.importorskip("torch")
    (tmp_path / NAME).write_text("of an earlier job", encoding="utf-8")
    gone = "import os; os.chdir('/')\n" + TRAIN + "raise SystemExit(3)\n"
    done = ran(tmp_path, gone, "--summary", NAME)
    assert (done.returncode, done.stdout) == (3, "done\n")
    assert done.stderr.startswith("roofline-exporter: 4 steps, waited ")
    found = read(tmp_path)
    assert (found["steps"], found["samples"], found["ranks"]) == (4, 4, 1)
    settings = {"workers": 0, "pin_memory": False, "persistent_workers": False, "batch_size": 1}
    assert found["loader"] == settings
    assert 0 < found["phase_seconds"]["data"] <= found["loop_seconds"]
    assert found["started_unix_seconds"] < found["ended_unix_seconds"]
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) & 0o600 == 0o600

    quiet = ran(tmp_path, TRAIN, "--quiet", f"--summary={NAME}")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "done\n", "")
    assert read(tmp_path)["ended_unix_seconds"] > found["ended_unix_seconds"]


@pytest.mark.parametrize(("number", "is_there"), [(signal.SIGTERM, True), (signal.SIGKILL, False)])
def test_a_job_that_a_signal_ends(number: signal.Signals, is_there: bool, tmp_path: Path) -> None:
    """SIGTERM, as of a time limit, leaves the file; and none leaves that of an earlier job."""
    pytest.importorskip("torch")
    (tmp_path / NAME).write_text("of an earlier job", encoding="utf-8")
    source = STEPS + f"    os.kill(os.getpid(), {int(number)})\n"
    done = ran(tmp_path, source, "--quiet", "--summary", NAME)
    assert (done.returncode, done.stderr) == (-number, "")
    assert (tmp_path / NAME).exists() == is_there
    assert not is_there or read(tmp_path)["steps"] == 1


def _folder(folder: Path) -> str:
    (folder / NAME).mkdir()
    return NAME


def _fifo(folder: Path) -> str:
    os.mkfifo(folder / NAME)
    return NAME


def _link(folder: Path) -> str:
    """Like /dev/stdout, or a file of the user's that must not be lost."""
    (folder / "precious").write_text("precious", encoding="utf-8")
    (folder / NAME).symlink_to("precious")
    return NAME


@pytest.mark.parametrize(
    ("place", "limit", "reason"),
    [
        (lambda folder: "missing/run.json", "", "No such file or directory"),
        (lambda folder: "train.py/run.json", "", "Not a directory"),
        (lambda folder: "/proc/run.json", "", "No such file or directory"),
        (_folder, "", "not a regular file"),
        (_fifo, "", "not a regular file"),
        (_link, "", "not a regular file"),
        (lambda folder: NAME, "resource.RLIMIT_FSIZE, (64, 64)", "File too large"),
    ],
)
def test_what_cannot_be_written_is_one_line(
    place: Any, limit: str, reason: str, tmp_path: Path
) -> None:
    """The job ends as it would have, and what is in the place stays there, with nothing beside."""
    pytest.importorskip("torch")
    name = place(tmp_path)
    before = {path.name: path.lstat().st_ino for path in tmp_path.iterdir()}
    limited = f"import resource; resource.setrlimit({limit})\n" if limit else ""
    done = ran(tmp_path, STEPS + limited + "raise SystemExit(5)", "--quiet", "--summary", name)
    assert done.returncode == 5
    assert done.stderr == NOT_WRITTEN.format(tmp_path / name, reason)
    after = {path.name: path.lstat().st_ino for path in tmp_path.iterdir()}
    assert after == before | {"train.py": after["train.py"]}
    assert not (tmp_path / "precious").exists() or (tmp_path / "precious").read_text() == "precious"


def test_of_several_trainers_the_busiest_is_kept(tmp_path: Path) -> None:
    """Whichever ends first; their ranks are not known."""
    pytest.importorskip("torch")
    steps = STEPS.replace("zeros(4, 4)", "zeros(int(sys.argv[1]), 4)")
    (tmp_path / "steps.py").write_text(steps, encoding="utf-8")
    source = "import subprocess, sys\n" + "".join(
        f"subprocess.run([sys.executable, 'steps.py', '{steps}'])\n" for steps in (3, 90, 5)
    )
    done = ran(tmp_path, source, "--quiet", "--summary", NAME)
    assert (done.returncode, done.stderr) == (0, "")
    assert read(tmp_path)["steps"] == 90


def test_a_run_inside_another_leaves_it_its_file(tmp_path: Path) -> None:
    """The inner one, of a script that has `run` in it, is asked for none."""
    pytest.importorskip("torch")
    (tmp_path / "steps.py").write_text(STEPS, encoding="utf-8")
    source = """
import subprocess, sys
run = [sys.executable, "-m", "exporter", "run", "--quiet", "--", sys.executable, "steps.py"]
raise SystemExit(subprocess.run(run).returncode)
"""
    done = ran(tmp_path, source, "--quiet", "--summary", NAME)
    assert (done.returncode, done.stderr) == (0, "")
    assert read(tmp_path)["steps"] == 4


def test_a_job_that_switches_the_client_off_has_none(tmp_path: Path) -> None:
    """Nor that of an earlier job, which would stand for this one."""
    (tmp_path / NAME).write_text("of an earlier job", encoding="utf-8")
    done = ran(tmp_path, "", "--summary", NAME, ROOFLINE_JOB_INSTRUMENT="0")
    assert done.returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
