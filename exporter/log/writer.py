# SPDX-License-Identifier: Apache-2.0
"""Lines on their way to a descriptor: a bounded queue and a thread, so that only it waits."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

MOST_LINES = 1_000
MOST_BYTES = 2**20
"""Of the lines that wait. What is written in one go, at most `BATCH_BYTES`, comes on top."""
BATCH_BYTES = 64 * 1024
RETRY_SECONDS = 0.05
"""Between two tries where the descriptor is full and does not block."""
CHECK_SECONDS = 0.002


@dataclass(slots=True)
class _Gap:
    """Stands in the queue where lines were dropped."""

    lines: int


class LineWriter:
    """Writes lines in their order; drops those for which there is no room, and says how many.

    `put` and `flush` may be called by any thread, also by one that is within `put`, as happens when
    a collected object logs. The thread starts with the first line. It uses ``os.write`` alone: one
    that waits in a write of Python's own stream would hold the lock that the exit of the
    interpreter needs.
    """

    def __init__(self, descriptor: int, describe_gap: Callable[[int], bytes]) -> None:
        """Write to `descriptor`; `describe_gap` makes the line for so many that were dropped."""
        self.describe_gap = describe_gap
        self._descriptor = descriptor
        self._lock = threading.RLock()
        self._wake = threading.Lock()
        """Released where there is something to write; unlike an Event it can be set at any time."""
        self._wake.acquire()
        self._thread: threading.Thread | None = None
        self._queue: deque[bytes | _Gap] = deque()
        self._bytes = 0
        self._dropped = 0
        self._put = 0
        """Lines and gaps that were put into the queue; `_done` counts those that left it."""
        self._done = 0
        self._stuck_at: int | None = None
        """What `_done` was when a flush gave up."""
        self._unsaid = 0
        """Lines that could not be written, and no later one either."""
        self._torn = False
        """Whether the last write ended within a line."""

    @property
    def dropped(self) -> int:
        """How many lines were dropped or could not be written, since the start."""
        return self._dropped

    def put(self, line: bytes) -> None:
        """Take a line with its end, or drop it; never wait."""
        with self._lock:
            if len(self._queue) < MOST_LINES and self._bytes + len(line) <= MOST_BYTES:
                self._queue.append(line)
                self._bytes += len(line)
                self._put += 1
            else:
                self._drop()
            if self._thread is None:
                self._start()
            if self._wake.locked():
                self._wake.release()

    def flush(self, seconds: float) -> bool:
        """Wait until what was put is written or lost; return False if it takes longer.

        Where a flush has given up and nothing was written since, the next does not wait again.
        """
        deadline = time.monotonic() + seconds
        wanted = self._put
        while self._done < wanted:
            if self._done == self._stuck_at or time.monotonic() > deadline:
                self._stuck_at = self._done
                return False
            time.sleep(CHECK_SECONDS)
        return True

    def _drop(self) -> None:
        self._dropped += 1
        last = self._queue[-1] if self._queue else None
        if isinstance(last, _Gap):
            last.lines += 1
        else:
            self._queue.append(_Gap(1))
            self._put += 1

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="log", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads now, or the interpreter ends
            return
        self._thread = thread

    def _run(self) -> None:
        while True:
            self._wake.acquire()
            while self._queue:
                self._write_some()

    def _write_some(self) -> None:
        missing, lines, taken = self._take()
        missing += self._unsaid
        gap = self.describe_gap(missing) if missing else b""
        data = b"".join((b"\n" * self._torn, gap, *lines))
        rest = self._write(data)
        if len(rest) < len(data):
            self._torn = data[len(data) - len(rest) - 1] != ord("\n")
        lost = min(rest.count(b"\n"), len(lines))
        # The number in a gap's line is lost with that line.
        self._unsaid = lost + (missing if rest.count(b"\n") > len(lines) else 0)
        with self._lock:
            self._dropped += lost
            self._done += taken

    def _take(self) -> tuple[int, list[bytes], int]:
        """Return how many lines are missing, those that follow, and how many entries that were."""
        missing = length = taken = 0
        lines: list[bytes] = []
        with self._lock:
            while self._queue:
                head = self._queue[0]
                if isinstance(head, _Gap):
                    if lines:
                        break
                    missing += head.lines
                else:
                    if lines and length + len(head) > BATCH_BYTES:
                        break
                    lines.append(head)
                    length += len(head)
                    self._bytes -= len(head)
                self._queue.popleft()
                taken += 1
        return missing, lines, taken

    def _write(self, data: bytes) -> bytes:
        """Write, waiting as long as it takes; return what could not be written."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                time.sleep(RETRY_SECONDS)
            except OSError:  # closed, no reader, no space: it may be better for the next lines
                break
        return bytes(rest)
