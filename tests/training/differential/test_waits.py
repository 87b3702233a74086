# SPDX-License-Identifier: Apache-2.0
"""The host's wait for data is what an independent clock measures, and what can be calculated.

These are agreement tests on a machine that does other things too: each may be repeated once.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.training.differential.harness import RUN, SCRIPTS, Job, require_module, start

OF_THE_CLOCK = 0.02
OF_THE_CALCULATION = 0.05
FAST = 0.01


@dataclass(frozen=True, slots=True)
class Wait:
    """One loop's wait, by three accounts."""

    loader: str
    reported_seconds: float
    clock_seconds: float
    calculated_seconds: float | None
    step_seconds: float
    whole_seconds: float

    def problems(self) -> list[str]:
        """Return what does not agree."""
        checks = [("clock", self.clock_seconds, OF_THE_CLOCK)]
        if self.calculated_seconds is not None:
            checks.append(("calculation", self.calculated_seconds, OF_THE_CALCULATION))
        found = [
            f"{self.loader}: {self.reported_seconds:.4f} s by the report, {other:.4f} by the {name}"
            for name, other, tolerance in checks
            if self.loader != "fast" and abs(self.reported_seconds - other) > tolerance * other
        ]
        if self.loader == "fast" and self.reported_seconds > FAST * self.step_seconds:
            found.append(f"{self.loader}: {self.reported_seconds:.4f} of {self.step_seconds:.4f} s")
        if not 0.9 < self.step_seconds / self.whole_seconds < 1.05:
            found.append(f"{self.loader}: {self.step_seconds:.4f} of {self.whole_seconds:.4f} s")
        return found


def measure(folder: Path) -> list[Wait]:
    """Run all loaders and join what the job says with what it reported."""
    done = start(Job([sys.executable, SCRIPTS / "waiting.py"]), RUN, folder)
    assert (done.returncode, done.stderr) == (0, "")
    reports = {report["pid"]: report for report in done.reports}
    parent, *lines = map(json.loads, done.stdout.splitlines())
    del reports[parent]
    waits = []
    for pid, loader, clock, calculated, whole in sorted(lines, key=lambda line: str(line[1])):
        report = reports.pop(pid)
        assert report.get("error") is None
        waits.append(
            Wait(
                loader,
                report["phase_seconds"]["data"],
                clock,
                calculated,
                report["step_seconds"],
                whole,
            )
        )
    assert reports == {}  # no worker of a loader ever reports
    return waits


def test_the_wait_is_what_it_is(tmp_path: Path) -> None:
    """Within 2 % of a clock around the same `next()`, and within 5 % of the calculated wait where
    a dataset sleeps, for 0, 1, 2 and 4 workers; a fast loader shows less than 1 %.
    """
    require_module("torch")
    first = measure(tmp_path / "first")
    loaders = [wait.loader for wait in first]
    assert loaders[-5:] == ["fast", *(f"sleeping {number}" for number in (0, 1, 2, 4))]
    doubtful = {wait.loader for wait in first if wait.problems()}
    again = measure(tmp_path / "again") if doubtful else []

    assert [
        problem for wait in again if wait.loader in doubtful for problem in wait.problems()
    ] == []
