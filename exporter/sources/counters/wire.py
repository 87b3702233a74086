# SPDX-License-Identifier: Apache-2.0
"""JSON lines between the exporter and a child process; `Port` is the child's side.

The child writes one of these objects per line:

* ``{"beat": true}``: it is alive; at least once a second
* ``{"hello": {fact: text}}``: what it runs on (versions), once
* ``{"gpu": UUID, "gpu_instance": null | N, "seconds": S, "ratios": {name: 0..}, "bytes": {name:
  0..}, "age_seconds": null | A}``: an activity; the names are those of `Activity`
* ``{"gpu": UUID | null, "gpu_instance": null | N, "state": STATE, "message": text}``: why readings
  are absent, of one share, one GPU or (null) all; the state ``ok`` ends it

The exporter writes the options of the program first, then orders: ``{"gpus": [...]}``, ``{"pause":
true}``, ``{"resume": true}``.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Mapping
from typing import Any

OK = "ok"
UNREACHABLE = "unreachable"
PAUSED = "paused"
LONGEST_LINE_BYTES = 1 << 20
READ_BYTES = 65_536
"""As much as a pipe holds."""


def encoded(message: Mapping[str, Any]) -> bytes:
    """Return the line of a message, with its end.

    Raises:
        ValueError: a number is NaN or infinite.
    """
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"


class Lines:
    """Cuts what arrives into lines."""

    def __init__(self) -> None:
        self._partial = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now, without their ends.

        Raises:
            ValueError: one is too long.
        """
        *complete, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > LONGEST_LINE_BYTES:
            raise ValueError("a line is too long")
        return complete


class Port:
    """The pipes of a child, used by one thread."""

    def __init__(self, orders: int, output: int) -> None:
        """Read from the descriptor `orders` and write to `output`."""
        self._orders = orders
        self.output = output
        self._lines = Lines()
        self._messages: list[dict[str, Any]] = []
        self.ended = False
        """Whether the exporter is gone or wants the child to end."""

    def emit(self, message: Mapping[str, Any]) -> None:
        """Write one of the messages; waits while the exporter does not read.

        Raises:
            ValueError: a number is NaN or infinite.
        """
        line = encoded(message)
        try:
            while line:
                line = line[os.write(self.output, line) :]
        except OSError:
            self.ended = True

    def beat(self) -> None:
        """Write that the child is alive; to be called at least once a second."""
        self.emit({"beat": True})

    def messages(self) -> list[dict[str, Any]]:
        """Return the exporter's messages since the last call, without waiting."""
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
                data = os.read(self._orders, READ_BYTES)
                self.ended = not data
                self._messages += map(json.loads, self._lines.feed(data))
            if left <= 0:
                return

    def options(self) -> dict[str, Any]:
        """Wait for the first message and return it; empty if the exporter is gone."""
        while not self.ended and not self._messages:
            self.wait(60.0)
        return self._messages.pop(0) if self._messages else {}
