# SPDX-License-Identifier: Apache-2.0
"""How long a share of a GPU was observed, and how long nothing ran on it, up to a recent time."""

from __future__ import annotations


class GapClock:
    """How long a share was observed, and how long nothing ran on it, as functions of time."""

    def __init__(self) -> None:
        self._from = self._to = (0.0, 0.0, 0.0)
        """Monotonic time, observed and idle seconds up to it."""

    def advance(self, monotonic: float, seconds: float, gap_ratio: float | None) -> None:
        """Add an interval that ends at `monotonic`; None if it was not observed."""
        _, observed, idle = self._from = self._to
        if gap_ratio is not None:
            observed += seconds
            idle += gap_ratio * seconds
        self._to = (monotonic, observed, idle)

    def at(self, monotonic: float) -> tuple[float, float]:
        """Return the observed and the idle seconds up to a time around the last interval."""
        start, observed, idle = self._from
        end, observed_then, idle_then = self._to
        length = end - start
        part = 1.0 if length <= 0 else min(max((monotonic - start) / length, 0.0), 1.0)
        return observed + part * (observed_then - observed), idle + part * (idle_then - idle)
