# SPDX-License-Identifier: Apache-2.0
"""The limiter to show while several alternate: change it only when another clearly leads."""

from __future__ import annotations

import math
from collections.abc import Mapping

TAKEOVER_SECONDS = 2.5
"""A limiter that leads by this much within the window replaces the one shown."""
USUAL_SECONDS = 30.0
USUAL_LEAD_SECONDS = 3.0
"""Or it leads by this much over an exponential average of 30 s, in which bursts and pauses of up to
5 s do not lead by turns."""


class SteadyLimiter:
    """The limiter of a share, with hysteresis."""

    def __init__(self) -> None:
        self.limiter: str | None = None
        self._usual: dict[str, float] = {}
        """Seconds by limiter, with exponential decay."""

    def add(self, interval_seconds: float, limited: Mapping[str, float]) -> None:
        """Add an interval: the seconds of each limiter in it."""
        kept = math.exp(-interval_seconds / USUAL_SECONDS)
        self._usual = {
            name: kept * self._usual.get(name, 0.0) + seconds for name, seconds in limited.items()
        }

    def judge(self, window: Mapping[str, float]) -> None:
        """Change the limiter if another clearly leads; `window` has the seconds by limiter."""
        if not any(window.values()):
            self.limiter = None
            return
        longest, usual = (max(each, key=each.__getitem__) for each in (window, self._usual))
        shown = self.limiter
        if shown is None or window[longest] - window.get(shown, 0.0) >= TAKEOVER_SECONDS:
            self.limiter = longest
            return
        lead = self._usual[usual] - self._usual.get(shown, 0.0)
        if window.get(usual) and lead >= USUAL_LEAD_SECONDS:
            self.limiter = usual
