# SPDX-License-Identifier: Apache-2.0
"""Asks a scheduler or runtime every few seconds, in a thread, and keeps its last word."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from exporter.clock import Clock
from exporter.model.snapshot import SourceState
from exporter.model.workload import WorkloadReport

INTERVAL_SECONDS = 10.0
FIRST_SECONDS = 1.0
"""Until the first word: a kubelet that starts together with this daemon is not waited for long."""

log = logging.getLogger(__name__)


class Unreadable(Exception):
    """It is there but could not be read; says why in one line."""


class PolledSource:
    """One source of workloads.

    `read` returns what is known now, None where this node has no such scheduler or runtime, and
    raises Unreadable. It may take seconds; whatever else it raises is a fault that is logged and
    costs this round only.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], WorkloadReport | None],
        clock: Clock,
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self.name = name
        self._read = read
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._lock = threading.Lock()
        self._report: WorkloadReport | None = None
        self._read_at = 0.0
        """Monotonic time of the last good word."""
        self._seconds: float | None = None
        self._failures = 0
        self._problem: str | None = None
        """Why it could not be read the last time."""
        self._there = False
        """Whether it ever was."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Ask no more; a question that hangs is not waited for."""
        self._stopped.set()

    def report(self) -> WorkloadReport | None:
        """Return what was known last, the same object until it changes; None if nothing was."""
        return self._report

    @property
    def state(self) -> SourceState | None:
        """How it is doing; None while it is not there and never was."""
        with self._lock:
            if not self._there:
                return None
            return SourceState(
                up=self._problem is None,
                read_seconds=self._seconds,
                failures_total=self._failures,
                age_seconds=(
                    None if self._report is None else self._clock.monotonic() - self._read_at
                ),
            )

    def read_once(self) -> None:
        """Ask once; keep the answer, or why there is none."""
        started = self._clock.monotonic()
        problem: str | None = None
        report: WorkloadReport | None = None
        try:
            report = self._read()
        except Unreadable as error:
            problem = str(error)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            log.debug("%s", self.name, exc_info=True)
        now = self._clock.monotonic()
        with self._lock:
            before = self._problem
            if report is None and problem is None:
                if not self._there:
                    return
                problem = "it is gone"
            self._there = True
            self._seconds = now - started
            self._problem = problem
            if report is None:
                self._failures += 1
            else:
                self._read_at = now
                if report != self._report:
                    self._report = report
        self._log(problem, before)

    def _log(self, problem: str | None, before: str | None) -> None:
        if problem is not None and before is None:
            log.warning("source %s: %s; its last word stays", self.name, problem)
        elif problem is None and before is not None:
            log.info("source %s can be read again", self.name)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.read_once()
            self._stopped.wait(self._interval_seconds if self._there else FIRST_SECONDS)
