# SPDX-License-Identifier: Apache-2.0
"""Reads the configuration again on request, in one thread, however often it is asked for."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable

from exporter.cli.config import Reloaded, Settings
from exporter.errors import ConfigError

PAUSE_SECONDS = 1.0
"""Between two: a request that comes sooner waits, and stands for all that come meanwhile."""

log = logging.getLogger(__name__)


class Reloader:
    """Re-reads configuration and specs outside the event loop; nothing that happens there ends it.

    `reload` reads and raises ConfigError, `apply` makes the settings hold.
    """

    def __init__(
        self,
        reload: Callable[[], Reloaded],
        apply: Callable[[Settings], None],
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._reload = reload
        self._apply = apply
        self._pause = pause
        # A bare lock and not an Event: whoever is interrupted inside Event.set() by a signal whose
        # handler calls it again waits for itself. Held means that nothing is asked for.
        self._nothing_asked = threading.Lock()
        self._nothing_asked.acquire()

    def start(self) -> None:
        """Begin to heed requests; where there can be no thread say so, and serve without."""
        try:
            threading.Thread(target=self._run, name="reload", daemon=True).start()
        except RuntimeError as error:
            log.error("SIGHUP is not heeded: %s", error)  # noqa: TRY400 - the reason says all

    def request(self) -> None:
        """Ask for another reading; for signal handlers, which may interrupt each other."""
        with contextlib.suppress(RuntimeError):  # it was asked for already
            self._nothing_asked.release()

    def _run(self) -> None:
        while True:
            # What fails may be memory: then a line is not worth the thread either.
            with contextlib.suppress(BaseException):
                self._nothing_asked.acquire()
                self._once()
                self._pause(PAUSE_SECONDS)

    def _once(self) -> None:
        try:
            reloaded = self._reload()
            self._apply(reloaded.settings)
        except ConfigError as error:
            log.warning("configuration not reloaded, the old one stays: %s", error)
            return
        except BaseException:  # SystemExit and MemoryError too
            log.exception("configuration not reloaded, the old one stays")
            return
        log.info("configuration reloaded")
        if reloaded.needs_restart:
            log.warning("a restart is needed to change %s", ", ".join(reloaded.needs_restart))
