# SPDX-License-Identifier: Apache-2.0
"""The work of SIGHUP, SIGUSR1 and SIGUSR2, each in a thread: signal handlers may not block."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence

from exporter.cli.config import Reloaded, Settings
from exporter.errors import ConfigError
from exporter.sources.interface import Lendable

PAUSE_SECONDS = 1.0
"""Between two reloads: requests that come sooner wait, and are served by one reload."""

log = logging.getLogger(__name__)


class _OnRequest:
    """Does its work once for all requests so far, in one thread."""

    name: str

    def __init__(self) -> None:
        # A bare lock and not an Event: Event.set() that is interrupted by a signal whose handler
        # calls it again would deadlock. The lock is held while there is no request.
        self._no_request = threading.Lock()
        self._no_request.acquire()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name=self.name, daemon=True).start()

    def request(self) -> None:
        """Have it done; for signal handlers, which may interrupt each other."""
        with contextlib.suppress(RuntimeError):  # there is a request already
            self._no_request.release()

    def _run(self) -> None:
        while True:
            # Out of memory: losing a log line is better than losing the thread.
            with contextlib.suppress(BaseException):
                self._no_request.acquire()
                self._once()

    def _once(self) -> None:
        raise NotImplementedError


class Lender(_OnRequest):
    """Lends the hardware counters to a profiler, and takes them back."""

    name = "lending"

    def __init__(self, counters: Sequence[Lendable]) -> None:
        super().__init__()
        self._counters = tuple(counters)
        self._paused = False

    def pause(self) -> None:
        """Hand the counters over; for signal handlers, of which the last one counts."""
        self._paused = True
        self.request()

    def resume(self) -> None:
        """Take them back; for signal handlers."""
        self._paused = False
        self.request()

    def _once(self) -> None:
        paused = self._paused
        log.info("the counters are %s", "handed to a profiler" if paused else "taken back")
        for counters in self._counters:
            try:
                (counters.pause if paused else counters.resume)()
            except Exception:  # independent of the others
                log.exception("some counters were not %s", "released" if paused else "taken back")


class Reloader(_OnRequest):
    """Re-reads configuration and specs.

    `reload` reads and raises ConfigError, `apply` makes the settings hold, `note` is told whether
    they do.
    """

    name = "reload"

    def __init__(
        self,
        reload: Callable[[], Reloaded],
        apply: Callable[[Settings], None],
        note: Callable[[bool], None],
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        super().__init__()
        self._reload = reload
        self._apply = apply
        self._note = note
        self._pause = pause

    def _once(self) -> None:
        taken = False
        try:
            reloaded = self._reload()
            self._apply(reloaded.settings)
        except ConfigError as error:
            log.warning("configuration not reloaded, the old one stays: %s", error)
        except BaseException:  # SystemExit and MemoryError too
            log.exception("configuration not reloaded, the old one stays")
        else:
            taken = True
            log.info("configuration reloaded")
            if reloaded.needs_restart:
                log.warning("a restart is needed to change %s", ", ".join(reloaded.needs_restart))
        self._note(taken)
        self._pause(PAUSE_SECONDS)
