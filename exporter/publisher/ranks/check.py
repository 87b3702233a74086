# SPDX-License-Identifier: Apache-2.0
"""Cuts the exposed stall that a rank claims to the idle time of its GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from exporter.model.training import STALL_EXCEEDS_IDLE

CHECK_SECONDS = 60.0
TOLERATED_RATIO = 0.02
"""A stall may exceed the idle time by this share of a minute: two observers never agree exactly."""
NOTICED_SECONDS = 0.001
"""A smaller excess is a rounding error."""


class StallCheck:
    """Accepts claimed stall within windows, which end with the first report after a minute.

    An excess is withheld until then, because the GPU's readings may lag behind, and then dropped.
    The accepted total never falls.
    """

    def __init__(self, disbelieved: Counter[str]) -> None:
        self._disbelieved = disbelieved
        self.passed: Mapping[str, float] = {}
        """By phase: the accepted seconds; the same object as the claim while all is accepted."""
        self._claimed: Mapping[str, float] | None = None
        self._withheld: dict[str, float] = {}
        """By phase: the excess of this window and of all before."""
        self._dropped = 0.0
        """The part of the excess that is never accepted, of windows that have ended."""
        self._start = (0.0, 0.0, 0.0)
        """Monotonic time, observed and idle seconds at the start of the window."""
        self._passed_in_window = 0.0

    def add(self, claimed: Mapping[str, float], now: float, observed: float, idle: float) -> None:
        """Take the stall claimed up to `now`, by phase, and the GPU's observed and idle seconds."""
        before, self._claimed = self._claimed, claimed
        if before is None:
            self.passed = claimed
            self._start = (now, observed, idle)
            return
        start, observed_before, idle_before = self._start
        seconds = now - start
        unobserved = max(seconds - (observed - observed_before), 0.0)
        tolerated = TOLERATED_RATIO * max(seconds, CHECK_SECONDS)
        believable = idle - idle_before + unobserved + tolerated
        more = sum(claimed.values()) - sum(before.values())
        waiting = sum(self._withheld.values()) - self._dropped if self._withheld else 0.0
        room = max(believable - self._passed_in_window, 0.0)
        if waiting <= 0.0 and more <= room:
            self._passed_in_window += more
        else:
            self._withhold(claimed, before, more + waiting, room)
        if seconds >= CHECK_SECONDS:
            self._end_window(now, observed, idle)
        self._pass(claimed)

    def _withhold(
        self, claimed: Mapping[str, float], before: Mapping[str, float], wanted: float, room: float
    ) -> None:
        """Accept as much as there is room for, in the same proportion of each phase."""
        part = 1.0 if wanted <= room else room / wanted
        total = sum(self._withheld.values())
        for phase, seconds in claimed.items():
            withheld = self._withheld.get(phase, 0.0)
            dropped = self._dropped * withheld / total if total else 0.0
            waiting = withheld - dropped + max(seconds - before.get(phase, 0.0), 0.0)
            self._withheld[phase] = dropped + (1.0 - part) * waiting
        self._passed_in_window += part * wanted

    def _end_window(self, now: float, observed: float, idle: float) -> None:
        withheld = sum(self._withheld.values())
        if withheld - self._dropped > NOTICED_SECONDS:
            self._disbelieved[STALL_EXCEEDS_IDLE] += 1
        self._dropped = withheld
        self._start = (now, observed, idle)
        self._passed_in_window = 0.0

    def _pass(self, claimed: Mapping[str, float]) -> None:
        if not self._withheld:
            self.passed = claimed
            return
        # Rounding must not let a counter fall.
        self.passed = {
            phase: max(seconds - self._withheld.get(phase, 0.0), self.passed.get(phase, 0.0))
            for phase, seconds in claimed.items()
        }
