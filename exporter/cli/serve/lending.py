# SPDX-License-Identifier: Apache-2.0
"""Lends the hardware counters to a profiler on request, and takes them back."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Sequence

from exporter.sources.interface import Lendable

log = logging.getLogger(__name__)


class Lender:
    """Pauses and resumes what holds counters, in one thread: signal handlers may not wait."""

    def __init__(self, counters: Sequence[Lendable]) -> None:
        self._counters = tuple(counters)
        self._paused = False
        # A bare lock, as in Reloader. Held means that nothing is asked for.
        self._nothing_asked = threading.Lock()
        self._nothing_asked.acquire()

    def start(self) -> None:
        """Begin to heed requests; where there can be no thread say so, and serve without."""
        try:
            threading.Thread(target=self._run, name="lending", daemon=True).start()
        except RuntimeError as error:
            log.error("SIGUSR1 is not heeded: %s", error)  # noqa: TRY400 - the reason says all

    def pause(self) -> None:
        """Ask for the counters; for signal handlers."""
        self._ask(paused=True)

    def resume(self) -> None:
        """Give them back; for signal handlers."""
        self._ask(paused=False)

    def _ask(self, *, paused: bool) -> None:
        self._paused = paused
        with contextlib.suppress(RuntimeError):  # it was asked for already: the last word holds
            self._nothing_asked.release()

    def _run(self) -> None:
        while True:
            with contextlib.suppress(BaseException):  # nothing ends it
                self._nothing_asked.acquire()
                self._once(paused=self._paused)

    def _once(self, *, paused: bool) -> None:
        log.info("the counters are %s", "handed to a profiler" if paused else "taken back")
        for counters in self._counters:
            try:
                (counters.pause if paused else counters.resume)()
            except Exception:  # it has no bearing on the others
                log.exception("some counters were not %s", "released" if paused else "taken back")
