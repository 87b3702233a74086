# SPDX-License-Identifier: Apache-2.0
"""The limiter to show while several alternate: change it only when another clearly leads."""

from __future__ import annotations

import math
from collections.abc import Mapping

TAKEOVER_SECONDS = 2.5
"""A limiter takes the place of another that it leads by this within the window."""
USUAL_SECONDS = 30.0
USUAL_LEAD_SECONDS = 3.0
"""Else where it leads by this over about the last half minute, what is older counting less. Bursts
and pauses of up to 5 s each lead in the window by turns, by 2 s at most, but not over the longer
time."""


class SteadyLimiter:
    """The limiter of a share, which does not change with every burst."""

    def __init__(self) -> None:
        self.limiter: str | None = None
        self._usual: dict[str, float] = {}
        """Seconds by limiter, those long ago counting less and less."""

    def add(self, interval_seconds: float, limited: Mapping[str, float]) -> None:
        """Add an interval: for how many seconds each limiter held."""
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
        held = self.limiter
        if held is None or window[longest] - window.get(held, 0.0) >= TAKEOVER_SECONDS:
            self.limiter = longest
            return
        lead = self._usual[usual] - self._usual.get(held, 0.0)
        if window.get(usual) and lead >= USUAL_LEAD_SECONDS:
            self.limiter = usual
