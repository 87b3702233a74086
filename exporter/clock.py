# SPDX-License-Identifier: Apache-2.0
"""What time it is, as a parameter, so that tests need not wait."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall clock for stamps, monotonic clock for lengths; both in seconds."""

    def time(self) -> float:
        """Return Unix time."""

    def monotonic(self) -> float:
        """Return the time of a clock that never steps."""


class SystemClock:
    """The host's clocks."""

    def time(self) -> float:
        """Return Unix time."""
        return time.time()

    def monotonic(self) -> float:
        """Return the time of a clock that never steps."""
        return time.monotonic()
