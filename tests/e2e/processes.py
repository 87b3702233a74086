# SPDX-License-Identifier: Apache-2.0
"""Programs under test as child processes: started, waited for, and always ended."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from signal import SIGTERM, Signals
from typing import ParamSpec

from tests.waiting import PATIENCE_SECONDS, wait_until

P = ParamSpec("P")

# What a developer's shell may hold and what would change the program under test.
FOREIGN_PREFIXES = ("ROOFLINE_", "FAKE_NVML_", "COVERAGE_", "COV_CORE_")
FOREIGN_NAMES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
ROOT = Path(__file__).parents[2]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without what would configure the program under test."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(FOREIGN_PREFIXES) and name not in FOREIGN_NAMES
    }
    return {**kept, **(extra or {})}


def retry_once(test: Callable[P, None]) -> Callable[P, None]:
    """Run a test of a promised time limit again if it fails: this machine may have paused."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            test(*args, **kwargs)
        except AssertionError as failure:
            print(f"second attempt after: {failure}")
            test(*args, **kwargs)

    return run


class Process:
    """A child whose output goes to files, so that it can never block on a full pipe."""

    def __init__(
        self, command: Sequence[str], directory: Path, env: Mapping[str, str] | None = None
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.stderr_path = directory / "stderr"
        self.stdout_path = directory / "stdout"
        with self.stderr_path.open("wb") as stderr, self.stdout_path.open("wb") as stdout:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment(env), stdout=stdout, stderr=stderr
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stdout(self) -> bytes:
        """What it wrote to standard output so far."""
        return self.stdout_path.read_bytes()

    def lines(self, containing: str = "") -> list[str]:
        """The lines on standard error so far that contain a text."""
        text = self.stderr_path.read_text(encoding="utf-8", errors="replace")
        return [line for line in text.splitlines() if containing in line]

    def find_in_line(self, pattern: str, seconds: float = PATIENCE_SECONDS) -> re.Match[str]:
        """Wait for a line on standard error that matches; end the child if there is none."""

        def found() -> re.Match[str] | None:
            matches = [re.search(pattern, line) for line in self.lines()]
            assert any(matches) or self._process.poll() is None, f"it ended: {self.lines()}"
            return next(filter(None, matches), None)

        try:
            return wait_until(found, seconds, f"a line with {pattern!r} in {self.lines()}")
        except BaseException:
            self.kill()
            raise

    def signal(self, number: Signals) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Return its exit code once it has ended by itself."""
        return self._process.wait(seconds)

    def stop(self, number: Signals = SIGTERM) -> tuple[int, float]:
        """Send a signal; return the exit code and the seconds until it had ended."""
        started = time.monotonic()
        self.signal(number)
        code = self._process.wait(PATIENCE_SECONDS)
        return code, time.monotonic() - started

    def kill(self) -> None:
        """End it, whatever it is doing."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def threads(self) -> int:
        """How many threads it has."""
        return len(os.listdir(f"/proc/{self.pid}/task"))
