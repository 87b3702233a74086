# SPDX-License-Identifier: Apache-2.0
"""A child's side of the pipes: it writes messages to the exporter, and reads orders.

Nothing here waits for the exporter: where the pipe is full, activities are dropped and states kept.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping
from typing import Any

from exporter.sources.counters.wire import Lines, decoded, encoded

LONGEST_ORDER_BYTES = 1 << 20
READ_BYTES = 65_536


class Port:
    """The pipes of a child, used by one thread."""

    def __init__(self, orders: int, output: int) -> None:
        """Read from the descriptor `orders` and write to `output`; neither blocks from now on."""
        self._orders = orders
        self.output = output
        """The descriptor that is written to."""
        os.set_blocking(orders, False)
        os.set_blocking(output, False)
        self._lines = Lines(LONGEST_ORDER_BYTES)
        self._messages: list[dict[str, Any]] = []
        self._partial = bytearray()
        """The rest of a line that was written in part."""
        self._states: dict[object, bytes] = {}
        """By GPU and instance: what the pipe had no room for."""
        self._beats = 0
        self.dropped_total = 0
        """Activities and beats dropped because the pipe was full."""
        self.ended = False
        """Whether the exporter is gone or wants the child to end."""

    def emit(self, message: Mapping[str, Any]) -> None:
        """Write one of the messages of `wire`.

        Raises:
            ValueError: a number is NaN or infinite.
        """
        line = encoded(message)
        if "state" in message:
            self._states[message.get("gpu"), message.get("gpu_instance")] = line
            self._send_waiting()
            return
        self._send_waiting()
        if self._partial or self._states or not self._write_line(line):
            self.dropped_total += 1

    def beat(self) -> None:
        """Write that the child is alive; to be called at least once a second."""
        self._beats += 1
        self.emit({"beat": self._beats})

    def messages(self) -> list[dict[str, Any]]:
        """Return what the exporter has sent since the last call; waits for nothing."""
        self.wait(0.0)
        found, self._messages = self._messages, []
        return found

    def wait(self, seconds: float) -> None:
        """Wait for `seconds`, or until the exporter sends something, or is gone."""
        deadline = time.monotonic() + seconds
        while not self.ended and not self._messages:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._orders], [], [], max(0.0, left))
            if ready:
                self._receive()
            if left <= 0:
                return

    def options(self) -> dict[str, Any]:
        """Return the first message, for which it waits; nothing if there is none to come."""
        while not self.ended and not self._messages:
            self.wait(60.0)
        return self._messages.pop(0) if self._messages else {}

    def _receive(self) -> None:
        try:
            data = os.read(self._orders, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.ended = True
        self._messages += map(decoded, self._lines.feed(data))

    def _send_waiting(self) -> None:
        """Send what had no room: the rest of a line, then the states."""
        if self._partial:
            del self._partial[: self._write(self._partial)]
        while self._states and not self._partial:
            key, line = next(iter(self._states.items()))
            if not self._write_line(line):
                return
            del self._states[key]

    def _write_line(self, line: bytes) -> bool:
        """Return whether the pipe took at least a part of a line; the rest is kept."""
        written = self._write(line)
        if written:
            self._partial += line[written:]
        return written > 0

    def _write(self, data: bytes | bytearray) -> int:
        try:
            return os.write(self.output, data)
        except BlockingIOError:
            return 0
        except OSError:
            self.ended = True
            return 0
