# SPDX-License-Identifier: Apache-2.0
"""The harness finds what differs, and lets pass only what it may."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.training.differential.harness import (
    Done,
    differences,
    misreported,
    mistimed,
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


@pytest.mark.parametrize(
    ("own", "report", "number"),
    [
        ({}, {}, 0),
        ({}, {"steps": 3}, 1),
        ({}, {"samples": None}, 1),
        ({"counted": False}, {"batches": 5}, 0),
        ({"steps": None}, {"steps": 5}, 0),
        ({}, {"error": "failed"}, 1),
        ({}, {"job": "other"}, 1),
        ({}, {"exit": None}, 1),
        ({"exit": False}, {"exit": None}, 0),
        ({}, {"degraded": ["loaders"]}, 1),
        ({"degraded": ["loaders"]}, {"degraded": ["loaders"], "error": "none"}, 0),
        ({"phases": ["data"]}, {}, 1),
        ({"precision": "bf16"}, {}, 1),
        ({"rank": 1}, {"rank": 0}, 1),
        ({"loader": {"workers": 2}}, {"loader": {"workers": 2, "pin_memory": False}}, 0),
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
