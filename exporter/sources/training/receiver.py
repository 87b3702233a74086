# SPDX-License-Identifier: Apache-2.0
"""Receives datagrams on one thread at the first socket that can be made; limits each user."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from exporter.clock import Clock
from exporter.errors import SourceError, one_line
from exporter.sources.training.credentials import ANCILLARY_BYTES, Peer, peer_of
from exporter.sources.training.decode import MOST_BYTES
from exporter.sources.training.endpoint import Endpoint, SocketAccess
from exporter.sources.training.refusals import Refusals, Rejected

USER_PER_SECOND = 2_500.0
"""Tokens; a report costs one for each kilobyte that it begins, since long ones take longer to read.

512 ranks of one user (uid 0 in containers) need 512 to 1024 a second, and one user who sends as
much as possible does not fill the reader's time."""
BYTES_PER_TOKEN = 1024
BURST_SECONDS = 2.0
"""A user may send at once as many reports as the rate allows in this time."""
MOST_BUCKETS = 2048
"""When there are more, those that are full again are dropped."""
MOST_WAITING = 256
"""Datagrams that are read in one go."""
READ_BYTES = MOST_BYTES + 1
"""A longer datagram is cut to this length, which is still too large to be taken."""
MANY = MOST_WAITING // 2
PAUSE_SECONDS = 0.05
"""How long nothing is received after the rate limit has refused MANY of a batch: a flood then fills
the kernel's queue instead of taking this process's time."""
CHECK_SECONDS = 5.0
"""Between two checks that the path still leads to the socket."""
RETRY_SECONDS = 30.0
"""Until the next try, when no socket could be made."""
STOP_SECONDS = 2.0

log = logging.getLogger(__name__)


Ancillary = Sequence[tuple[int, int, bytes]]
"""What the kernel attached to a datagram."""


class Arrival(NamedTuple):
    """One datagram, who sent it and when it was received."""

    data: bytes
    peer: Peer
    monotonic_seconds: float
    timestamp_seconds: float


class RateLimit:
    """Limits what each user may send, by a token bucket for each.

    A bucket is kept as the time at which it will be full again: a report that would move that time
    beyond the burst is refused, and costs nothing.
    """

    def __init__(self) -> None:
        self._full_at: dict[int, float] = {}

    def allows(self, uid: int, size_bytes: int, now: float) -> bool:
        """Take the tokens for a report at monotonic time `now`, or return False."""
        tokens = 1 + max(size_bytes - 1, 0) // BYTES_PER_TOKEN
        full_at = max(self._full_at.get(uid, now), now) + tokens / USER_PER_SECOND
        if full_at > now + BURST_SECONDS:
            return False
        self._full_at[uid] = full_at
        if len(self._full_at) > MOST_BUCKETS:
            self._full_at = {uid: full for uid, full in self._full_at.items() if full > now}
        return True


class Inbox:
    """Queue of datagrams, in order of arrival, that are read many at a time; thread-safe.

    Waking up for each report to read it at once costs several times as much: in between, the jobs'
    own work drives the reader out of the processor's caches.
    """

    def __init__(self, take: Callable[[Arrival], None], refusals: Refusals, clock: Clock) -> None:
        """Call `take` for each datagram that is read; it may raise Rejected."""
        self._take = take
        self._refusals = refusals
        self._clock = clock
        self._rate = RateLimit()
        self._waiting: deque[tuple[bytes, Ancillary, float]] = deque()
        self._reading = threading.Lock()

    def put(self, data: bytes, ancillary: Ancillary, monotonic_seconds: float) -> bool:
        """Queue a datagram; return whether the queue is full enough to read it now."""
        self._waiting.append((data, ancillary, monotonic_seconds))
        return len(self._waiting) >= MOST_WAITING

    def read(self) -> int:
        """Accept or reject all queued datagrams; return how many exceeded the rate limit."""
        too_many = 0
        with self._reading:
            ahead = self._clock.time() - self._clock.monotonic()
            for _ in range(len(self._waiting)):  # what arrives meanwhile waits for the next read
                data, ancillary, now = self._waiting.popleft()
                peer = peer_of(ancillary)
                if peer is None:
                    self._refusals.note(Rejected("credentials"), None)
                elif not self._rate.allows(peer.uid, len(data), now):
                    self._refusals.note(Rejected("rate"), peer)
                    too_many += 1
                else:
                    self._read_one(Arrival(data, peer, now, now + ahead))
        return too_many

    def _read_one(self, arrival: Arrival) -> None:
        try:
            self._take(arrival)
        except Rejected as refused:
            self._refusals.note(refused, arrival.peer)
        except Exception:
            # A bug here must not let a sender stop the source, or flood the log.
            self._refusals.note(Rejected("schema", "it could not be understood"), arrival.peer)
            log.debug("a training report could not be understood", exc_info=True)


class Receiver:
    """The socket and the thread that reads it."""

    def __init__(
        self, paths: tuple[str, ...], access: SocketAccess, inbox: Inbox, clock: Clock
    ) -> None:
        self._paths = paths
        self._access = access
        self._inbox = inbox
        self._clock = clock
        self._lock = threading.Lock()
        self._endpoint: Endpoint | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="training-reports", daemon=True)
        self.problem: str | None = None
        """Why no socket could be made, in one line; None while there is one, or before the first
        try."""

    @property
    def up(self) -> bool:
        """Whether there is a socket, so that reports can arrive."""
        return self._endpoint is not None

    def start(self) -> None:
        """Bind the socket and read from it until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, which removes the socket's file."""
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
                self._stopped.wait(RETRY_SECONDS)
                continue
            try:
                self._read(endpoint)
            finally:
                with self._lock:
                    self._endpoint = None
                    endpoint.close()

    def _bind(self) -> Endpoint | None:
        """Bind the first path that works; if none does, log why and return None."""
        problems = []
        for path in self._paths:
            try:
                endpoint = Endpoint(path, self._access)
            except SourceError as error:
                problems.append(one_line(str(error)))
                continue
            whole, part = divmod(CHECK_SECONDS, 1)
            wait = struct.pack("@ll", int(whole), int(part * 1e6))
            endpoint.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, wait)
            with self._lock:
                self._endpoint = endpoint
            self.problem = None
            log.info("training reports are taken at %s", one_line(path))
            return endpoint
        problem = "; ".join(problems)
        if problem != self.problem:
            log.warning("no training reports are taken: %s", problem)
        self.problem = problem
        return None

    def _read(self, endpoint: Endpoint) -> None:
        """Receive until `stop`, or until another socket has replaced this one."""
        receive, put, now = endpoint.socket.recvmsg, self._inbox.put, self._clock.monotonic
        check_at = now() + CHECK_SECONDS
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
                self._stopped.wait(CHECK_SECONDS)
                return
            if self._stopped.is_set():  # shutting the socket down looks like an empty datagram
                return
            arrived = now()
            if put(data, ancillary, arrived) and self._inbox.read() >= MANY:
                self._stopped.wait(PAUSE_SECONDS)
            if arrived >= check_at:
                check_at = arrived + CHECK_SECONDS
                if not endpoint.is_reachable():
                    break
        log.warning("%s is gone or another's: a new socket is made", one_line(endpoint.path))
