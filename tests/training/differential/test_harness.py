# SPDX-License-Identifier: Apache-2.0
"""The harness finds what differs, and lets pass only what it may."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.training.differential.harness import (
    PLAIN,
    Done,
    Job,
    Mode,
    differences,
    misreported,
    mistimed,
    start,
    without_frames,
)

THEIRS = """\
Traceback (most recent call last):
  File "/job/train.py", line 3, in <module>
    for batch in loader:
{ours}  File "/torch/dataloader.py", line 725, in __next__
    data = self._next_data()
           ^^^^^^^^^^^^^^^^^
ValueError: sample 3
"""
OURS = """\
  File "/site-packages/roofline_job/torch_hooks.py", line 9, in __next__
    return original(self)
           ^^^^^^^^^^^^^^
"""
JOB = Done(0, "out\n", "", {"model.pt": b"1"}, (), ())
OWN = {
    "pid": 1,
    "case": "one",
    "steps": 4,
    "batches": 4,
    "samples": 16,
    "waited": 0.5,
    "saved": 0.1,
    "whole": 1.0,
}
REPORT = {
    "pid": 1,
    "job": "tested",
    "instrumentation": "auto",
    "steps": 4,
    "batches": 4,
    "samples": 16,
    "step_seconds": 1.0,
    "phase_seconds": {"data": 0.5, "checkpoint": 0.1},
    "exit": True,
}


@pytest.mark.parametrize("prefix", ["", "  | ", "    "])
def test_one_frame_of_ours_is_taken_out(prefix: str) -> None:
    """Also of the tracebacks of exception groups, and of those that workers hand on."""
    with_ours, without = (
        "".join(prefix + line for line in THEIRS.format(ours=ours).splitlines(keepends=True))
        for ours in (OURS, "")
    )

    assert with_ours != without
    assert without_frames(with_ours) == without
    assert without_frames(without) == without


def test_two_frames_of_ours_stay() -> None:
    """One for each call that is wrapped; `watch` and the loader's own make two."""
    text = THEIRS.format(ours=OURS * 2)

    assert without_frames(text) == text
    assert without_frames(text, 2) == THEIRS.format(ours="")
    assert without_frames(text.replace("roofline_job", "roofline_jobs")) != THEIRS.format(ours="")


@pytest.mark.parametrize(
    ("job", "number"),
    [
        (JOB, 0),
        (replace(JOB, returncode=1), 1),
        (replace(JOB, stdout="out"), 1),
        (replace(JOB, stderr=" "), 1),
        (replace(JOB, stderr="roofline_job: off\n"), 1),
        (replace(JOB, stderr="roofline_job: off\n", reports=({"degraded": ["loaders"]},)), 0),
        (replace(JOB, reports=({"degraded": ["loaders"]},)), 1),
        (replace(JOB, reports=({"degraded": ["helper_thread"]},)), 0),
        (replace(JOB, files={}), 1),
        (replace(JOB, files={"model.pt": b"2"}), 1),
        (replace(JOB, files={"model.pt": b"1", "more": b""}), 1),
        (replace(JOB, stderr=THEIRS.format(ours=OURS)), 1),
    ],
)
def test_differences(job: Done, number: int) -> None:
    """Each is found: exit code, outputs, files, and words of ours without a reason in a report."""
    assert len(differences(JOB, job)) == number


def test_a_file_of_chance() -> None:
    """Only its content may differ."""
    other = replace(JOB, files={"model.pt": b"2"})

    assert differences(JOB, other, but=["model.pt"]) == []
    assert len(differences(JOB, replace(JOB, files={}), but=["model.pt"])) == 1


@pytest.mark.parametrize(
    ("own", "report", "number"),
    [
        ({}, {}, 0),
        ({}, {"steps": 3}, 1),
        ({}, {"batches": 5}, 1),
        ({}, {"samples": None}, 1),
        ({"counted": False}, {"batches": 5}, 0),
        ({"counted": False}, {"steps": 5}, 1),
        ({"steps": None}, {"steps": 5}, 0),
        ({}, {"error": "failed"}, 1),
        ({}, {"job": "other"}, 1),
        ({}, {"exit": None}, 1),
        ({"exit": False}, {"exit": None}, 0),
        ({}, {"degraded": ["loaders"]}, 1),
        ({"degraded": ["loaders"]}, {"degraded": ["loaders"], "error": "none"}, 0),
        ({"degraded": ["loaders"]}, {}, 1),
        ({"phases": ["checkpoint", "data"]}, {}, 0),
        ({"phases": ["data"]}, {}, 1),
        ({"precision": "bf16"}, {}, 1),
        ({"rank": 1}, {"rank": 0}, 1),
        ({"loader": {"workers": 2}}, {"loader": {"workers": 2, "pin_memory": False}}, 0),
        ({"loader": {"workers": 2}}, {"loader": None}, 1),
        ({}, {"phase_gpu_idle_seconds": {}}, 1),
        ({}, {"step_seconds": 0.5}, 1),
        ({}, {"instrumentation": "client"}, 1),
        ({"pid": 2}, {}, 2),
        ({"quiet": True}, {}, 1),
        ({"unknown": True}, {"steps": 3}, 0),
    ],
)
def test_misreported(own: Mapping[str, Any], report: Mapping[str, Any], number: int) -> None:
    """Counts, phases, reasons and processes have to be those that the job states."""
    done = replace(JOB, own=({**OWN, **own},), reports=({**REPORT, **report},))

    assert len(misreported(done, "auto")) == number


def test_no_report() -> None:
    """A process that trains reports; one that says that it has nothing to say does not."""
    assert len(misreported(replace(JOB, own=(OWN,)))) == 1
    assert misreported(replace(JOB, own=({**OWN, "quiet": True},))) == []
    assert len(misreported(replace(JOB, reports=(REPORT,)))) == 1


def test_reports_of_one_process_are_added() -> None:
    """One for each thread that trains."""
    half = {
        **REPORT,
        "steps": 2,
        "batches": 2,
        "samples": 8,
        "step_seconds": 0.5,
        "phase_seconds": {"data": 0.25, "checkpoint": 0.05},
    }
    done = replace(JOB, own=(OWN,), reports=(half, half))

    assert misreported(done) == []
    assert mistimed(done) == {}


@pytest.mark.parametrize(
    ("data", "checkpoint", "step", "number"),
    [
        (0.5, 0.1, 1.0, 0),
        (0.529, 0.1, 1.0, 0),
        (0.54, 0.1, 1.0, 2),
        (0.46, 0.1, 1.0, 2),
        (0.5, 0.14, 1.0, 1),
        (0.5, 0.1, 0.8, 1),
        (0.99, 0.14, 1.0, 3),
    ],
)
def test_mistimed(data: float, checkpoint: float, step: float, number: int) -> None:
    """Three points of the wall time, for seconds and for shares."""
    phases = {"data": data, "checkpoint": checkpoint}
    done = replace(
        JOB, own=(OWN,), reports=({**REPORT, "phase_seconds": phases, "step_seconds": step},)
    )

    assert mistimed(done).keys() == ({"one"} if number else set())
    assert sum(problem.count(", not ") for problem in mistimed(done).values()) == number
    assert mistimed(replace(done, own=({**OWN, "clock": False},))) == {}


REPORTING = """
import json, os, socket
report = {"version": 1, "id": "0" * 32, "sequence": 1, "pid": os.getpid(), "job": "j", "rank": 0,
          "steps": 1, "batches": 1, "step_seconds": 1, "phase_seconds": {}, **CHANGED}
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
    sender.sendto(json.dumps(report).encode(), os.environ["ROOFLINE_TRAINING_SOCKET"])
open("file", "w").write(os.getcwd())
print(input())
"""


def test_a_job_is_run(tmp_path: Path) -> None:
    """What it prints, writes, reads and reports arrives; its folder is empty the next time."""
    job = Job([sys.executable, "-c", REPORTING.replace("CHANGED", "{}")], stdin="in\n")
    for _ in range(2):
        done = start(job, PLAIN, tmp_path / "job")

        assert (done.returncode, done.stdout, done.stderr) == (0, "in\n", "")
        assert done.files == {"file": bytes(tmp_path / "job")}
        assert [report["steps"] for report in done.reports] == [1]


def test_a_report_that_the_daemon_refuses(tmp_path: Path) -> None:
    """Its decoder says so."""
    code = REPORTING.replace("CHANGED", '{"steps": -1}')
    with pytest.raises(Exception, match="steps"):
        start(Job([sys.executable, "-c", code], stdin="in\n"), PLAIN, tmp_path / "job")


def test_a_case_alone() -> None:
    """Its name is the script's last word, unless the script has no cases."""
    job = Job(["python", Path("scripts/loops.py")])

    assert job.alone("zipped").words == ["python", Path("scripts/loops.py"), "zipped"]
    assert job.alone("loops") == job


def test_variables_of_a_mode(tmp_path: Path) -> None:
    """They come on top of the job's; nothing of ours is inherited."""
    code = "import os; print(sorted(n for n in os.environ if 'ROOFLINE' in n), os.environ['A'])"
    mode = Mode("mode", variables={"A": "mode"})
    done = start(Job([sys.executable, "-c", code], {"A": "job"}), mode, tmp_path / "job")

    assert done.stdout == "['ROOFLINE_TRAINING_SOCKET'] mode\n"
