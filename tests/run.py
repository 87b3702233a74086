# SPDX-License-Identifier: Apache-2.0
"""Run the tests as `make test` does: those that compute, then those that wait, on more workers.

Words that are not listed here go to pytest; with paths among them there is one run, of those.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent
WAITING = ("benchmarks", "soak", "abuse", "e2e", "dashboards", "cli", "deploy")
"""Folders whose tests mostly wait for processes that they started; those with long files first."""
WORKERS_PER_CORE = 3
"""For those. A file stays on one worker, so that what its tests share is started once."""
IN_ORDER = "--no-loadscope-reorder"
NOTHING_COLLECTED = 5
INTERRUPTED = 2
MOST_FAILURES_SHOWN = 50


@dataclass
class Total:
    """What the runs gave together."""

    counts: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)

    def add(self, code: int, tally: dict[str, Any]) -> None:
        """Add one run: pytest's exit code, and what tests/conftest.py counted."""
        self.codes.append(code)
        self.failures += tally.get("failures", [])
        for name, count in tally.get("counts", {}).items():
            self.counts[name] = self.counts.get(name, 0) + count

    @property
    def code(self) -> int:
        """The first exit code that is no success; no tests in one of two runs is none."""
        ran = [code for code in self.codes if code != NOTHING_COLLECTED]
        return next(filter(None, ran), 0) if ran else NOTHING_COLLECTED

    def lines(self, seconds: float) -> list[str]:
        """The failures, the numbers, and at last what was left out and how to run it."""
        shown = [f"FAILED {name}" for name in self.failures[:MOST_FAILURES_SHOWN]]
        said = [
            f"{self.counts[name]} {name}"
            for name in ("passed", "failed", "error", "skipped")
            if self.counts.get(name)
        ]
        minutes, rest = divmod(round(seconds), 60)
        shown.append(f"{', '.join(said) or 'no tests'} in {minutes} min {rest} s")
        if slow := self.counts.get("slow"):
            shown.append(
                f"left out: {slow} slow tests, and most random examples; `make test-all` runs them"
            )
        return shown


def run(words: Sequence[str], *, workers: int, dist: str) -> tuple[int, dict[str, Any]]:
    """Run pytest; return its exit code and what it counted."""
    with tempfile.TemporaryDirectory() as folder:
        tally = Path(folder, "tally.json")
        command = [sys.executable, "-m", "pytest", f"--numprocesses={workers}", f"--dist={dist}"]
        child = subprocess.Popen([*command, f"--tally={tally}", *words], cwd=TESTS.parent)
        while True:
            try:
                code = child.wait()
                break
            except KeyboardInterrupt:
                continue  # pytest has it, too, and ends what it started
        return code, json.loads(tally.read_text("utf-8")) if tally.exists() else {}


def is_test(word: str) -> bool:
    """Return whether a word is a path below tests/, with or without ``::test_name``."""
    path = Path(word.partition("::")[0]).resolve()
    return path.is_relative_to(TESTS) and path.exists()


def main(argv: Sequence[str]) -> int:
    """Run both parts, the second also if tests of the first fail."""
    parser = argparse.ArgumentParser(prog="tests.run", allow_abbrev=False, description=__doc__)
    parser.add_argument("--cov", action="store_true", help="measure what is covered")
    options, words = parser.parse_known_args(argv)
    cores = len(os.sched_getaffinity(0))
    # The second part adds to what the first has covered, and judges the sum.
    measured = ["--cov", "--cov-report=term"] if options.cov else []
    half = ["--cov", "--cov-report=", "--cov-fail-under=0"] if options.cov else []
    whole = [*measured, "--cov-append"] if options.cov else []
    total, started = Total(), time.monotonic()
    if any(is_test(word) for word in words):
        total.add(*run([*measured, *words], workers=cores, dist="worksteal"))
    else:
        waiting = [f"tests/{name}" for name in WAITING]
        print(f"1 of 2: tests that compute, on {cores} workers", flush=True)
        others = [f"--ignore={path}" for path in waiting]
        total.add(*run([*half, *others, *words], workers=cores, dist="worksteal"))
        if total.codes != [INTERRUPTED]:
            workers = WORKERS_PER_CORE * cores
            print(f"2 of 2: tests that wait, on {workers} workers", flush=True)
            rest = [*waiting, IN_ORDER, *whole, *words]
            total.add(*run(rest, workers=workers, dist="loadfile"))
    print(*total.lines(time.monotonic() - started), sep="\n")
    return total.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
