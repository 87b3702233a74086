# SPDX-License-Identifier: Apache-2.0
"""How bytes from a pipe become lines, of which none can be too long."""

from __future__ import annotations

LONGEST_LINE_BYTES = 65_536


class Lines:
    """Cuts what arrives into lines; one that is too long is dropped as it arrives."""

    def __init__(self, longest_bytes: int = LONGEST_LINE_BYTES) -> None:
        self._longest = longest_bytes
        self._begun = b""
        self._skipping = False
        """Whether the line that has begun is too long."""
        self.dropped_total = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now, without their ends."""
        *complete, rest = data.split(b"\n")
        found: list[bytes] = []
        for line in complete:
            if not self._skipping and len(self._begun) + len(line) <= self._longest:
                found.append(self._begun + line)
            else:
                self.dropped_total += 1
            self._begun, self._skipping = b"", False
        if self._skipping or len(self._begun) + len(rest) > self._longest:
            self._begun, self._skipping = b"", True
        else:
            self._begun += rest
        return found
