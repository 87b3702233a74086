# SPDX-License-Identifier: Apache-2.0
"""The source `nccl-ras`: asks NCCL every 15 s, while a job with it runs on this node."""

from __future__ import annotations

import logging
import threading

from exporter.clock import Clock
from exporter.model.collectives import Collectives
from exporter.model.snapshot import SourceState
from exporter.sources.nccl.client import NoAnswer, Refused, ask
from exporter.sources.nccl.status import Malformed, collectives
from exporter.sources.source import NCCL_RAS

INTERVAL_SECONDS = 15.0
KEPT_SECONDS = 60.0
"""A status that is older says nothing of now."""

log = logging.getLogger(__name__)


class NcclRas:
    """What NCCL's RAS says; nothing while no job answers, which is no fault."""

    name = NCCL_RAS

    def __init__(self, host: str, port: int, clock: Clock) -> None:
        self._host = host
        self._port = port
        self._clock = clock
        self._lock = threading.Lock()
        self._collectives: Collectives | None = None
        self._read_at = 0.0
        self._seconds: float | None = None
        self._failures = 0
        self._problem: str | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Ask no more; a question that hangs is not waited for."""
        self._stopped.set()

    def collectives(self) -> Collectives | None:
        """Return what was said last, if that is of now."""
        with self._lock:
            old = self._clock.monotonic() - self._read_at > KEPT_SECONDS
            return None if old else self._collectives

    @property
    def state(self) -> SourceState:
        """How it is doing: up while a job answers."""
        with self._lock:
            answers = self._collectives is not None
            return SourceState(
                up=answers and self._problem is None,
                read_seconds=self._seconds,
                failures_total=self._failures,
                age_seconds=self._clock.monotonic() - self._read_at if answers else None,
            )

    def read_once(self) -> None:
        """Ask once; keep the answer, or why there is none."""
        started = self._clock.monotonic()
        found: Collectives | None = None
        problem: str | None = None
        gone = False
        try:
            found = collectives(ask(self._host, self._port))
        except NoAnswer:
            gone = True
        except (Refused, Malformed) as error:
            problem = str(error)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        now = self._clock.monotonic()
        with self._lock:
            before, self._problem = self._problem, problem
            self._seconds = now - started
            self._failures += problem is not None
            if found is not None or gone:
                self._collectives, self._read_at = found, now
        if problem is not None and problem != before:
            log.warning("source %s: %s", self.name, problem)
        elif problem is None and before is not None:
            log.info("source %s can be read again", self.name)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.read_once()
            self._stopped.wait(INTERVAL_SECONDS)
