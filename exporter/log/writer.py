# SPDX-License-Identifier: Apache-2.0
"""Writes lines to a descriptor through a bounded queue and a thread, so that callers never wait."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

MOST_LINES = 1_000
MOST_BYTES = 2**20
"""Of the lines that wait; the one that is being written comes on top."""
RETRY_SECONDS = 0.05
"""Between two tries where the descriptor is full and does not block."""
CHECK_SECONDS = 0.002


class LineWriter:
    """Writes lines in their order; drops those that find the queue full, and reports how many.

    `put` and `flush` may be called by any thread, also by one that is within `put`, as happens when
    a collected object logs. The thread starts with the first line. It uses ``os.write`` alone: one
    that waits in a write of Python's own stream would hold the lock that the exit of the
    interpreter needs.
    """

    def __init__(self, descriptor: int, describe_gap: Callable[[int], bytes]) -> None:
        """Write to `descriptor`; `describe_gap` returns the line about n dropped lines."""
        self.describe_gap = describe_gap
        self.dropped = 0
        """How many lines were dropped or could not be written, since the start."""
        self._descriptor = descriptor
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._queue: SimpleQueue[bytes] = SimpleQueue()
        self._bytes = 0
        self._put = 0
        """Lines that were put into the queue; `_done` counts those that were written or lost."""
        self._done = 0

    def put(self, line: bytes) -> None:
        """Take a line with its end, or drop it; never wait."""
        with self._lock:
            if self._queue.qsize() < MOST_LINES and self._bytes + len(line) <= MOST_BYTES:
                self._put += 1
                self._bytes += len(line)
                self._queue.put(line)
            else:
                self.dropped += 1
            if self._thread is None:
                self._start()

    def flush(self, seconds: float) -> bool:
        """Wait until what was put is written or lost; return False if it takes longer."""
        deadline = time.monotonic() + seconds
        while self._done < self._put:
            if time.monotonic() > deadline:
                return False
            time.sleep(CHECK_SECONDS)
        return True

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="log", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads now, or the interpreter ends
            return
        self._thread = thread

    def _run(self) -> None:
        reported = 0
        while True:
            line = self._queue.get()
            with self._lock:
                self._bytes -= len(line)
                missing = self.dropped - reported
            if missing and self._write(self.describe_gap(missing)):
                reported += missing
            is_lost = not self._write(line)
            with self._lock:
                self.dropped += is_lost
                self._done += 1

    def _write(self, data: bytes) -> bool:
        """Write, waiting as long as it takes; return whether all could be written."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                time.sleep(RETRY_SECONDS)
            except OSError:  # closed, no reader, no space: the next lines may succeed
                return False
        return True
