# SPDX-License-Identifier: Apache-2.0
"""Reads the datagrams that arrive at the first socket that can be made, on one thread."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import threading
from dataclasses import dataclass

from exporter.clock import Clock
from exporter.errors import SourceError, one_line
from exporter.sources.training.credentials import ANCILLARY_BYTES
from exporter.sources.training.decode import MOST_BYTES
from exporter.sources.training.endpoint import Access, Endpoint
from exporter.sources.training.inbox import MOST_WAITING, Inbox

READ_BYTES = MOST_BYTES + 1
"""A longer datagram is cut to this length, which is still too large to be taken."""
MANY = MOST_WAITING // 2
PAUSE_SECONDS = 0.05
"""How long nothing is received after the rate limit has refused MANY of a batch: a flood then fills
the kernel's queue instead of taking this process's time."""
STOP_SECONDS = 2.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the thread waits for what may change around it."""

    check_seconds: float = 5.0
    """Between two checks that the path still leads to the socket."""
    retry_seconds: float = 30.0
    """Until the next try, when no socket could be made."""


class Receiver:
    """The socket and its thread, which sleeps until something arrives."""

    def __init__(
        self,
        paths: tuple[str, ...],
        access: Access,
        inbox: Inbox,
        clock: Clock,
        patience: Patience,
    ) -> None:
        self._paths = paths
        self._access = access
        self._inbox = inbox
        self._clock = clock
        self._patience = patience
        self._lock = threading.Lock()
        self._endpoint: Endpoint | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="training-reports", daemon=True)
        self._problem: str | None = None

    @property
    def path(self) -> str | None:
        """Where reports are taken now; None while they are not."""
        endpoint = self._endpoint
        return None if endpoint is None else endpoint.path

    @property
    def problem(self) -> str | None:
        """Why no socket could be made, in one line; None while there is one."""
        return self._problem

    def start(self) -> None:
        """Make the socket and read from it until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, which removes the socket's file if it is still its own."""
        self._stopped.set()
        with self._lock:
            if self._endpoint is not None:
                with contextlib.suppress(OSError):
                    self._endpoint.socket.shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while not self._stopped.is_set():
            endpoint = self._bind()
            if endpoint is None:
                self._stopped.wait(self._patience.retry_seconds)
                continue
            try:
                self._read(endpoint)
            finally:
                with self._lock:
                    self._endpoint = None
                    endpoint.close()

    def _bind(self) -> Endpoint | None:
        """Return the first endpoint that can be made; log why if none can, and return None."""
        problems = []
        for path in self._paths:
            try:
                endpoint = Endpoint(path, self._access)
            except SourceError as error:
                problems.append(one_line(str(error)))
                continue
            wait = struct.pack("@ll", *_timeval(self._patience.check_seconds))
            endpoint.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, wait)
            with self._lock:
                self._endpoint = endpoint
            self._problem = None
            log.info("training reports are taken at %s", one_line(path))
            return endpoint
        problem = "; ".join(problems)
        if problem != self._problem:
            log.warning("no training reports are taken: %s", problem)
        self._problem = problem
        return None

    def _read(self, endpoint: Endpoint) -> None:
        """Take what arrives until the end, or until the path leads to another socket."""
        receive, put, now = endpoint.socket.recvmsg, self._inbox.put, self._clock.monotonic
        check_at = now() + self._patience.check_seconds
        while True:
            try:
                data, ancillary, _, _ = receive(READ_BYTES, ANCILLARY_BYTES)
            except BlockingIOError:  # nothing arrived for as long as check_seconds
                self._inbox.read()
                if not endpoint.is_reachable():
                    break
                continue
            except OSError as error:
                log.warning("reading %s failed: %s", one_line(endpoint.path), error.strerror)
                self._stopped.wait(self._patience.check_seconds)
                return
            if self._stopped.is_set():  # what ends the wait reads like an empty datagram
                return
            arrived = now()
            if put(data, ancillary, arrived) and self._inbox.read() >= MANY:
                self._stopped.wait(PAUSE_SECONDS)
            if arrived >= check_at:
                check_at = arrived + self._patience.check_seconds
                if not endpoint.is_reachable():
                    break
        log.warning("%s is gone or another's: a new socket is made", one_line(endpoint.path))


def _timeval(seconds: float) -> tuple[int, int]:
    whole = int(seconds)
    return whole, int((seconds - whole) * 1e6)
