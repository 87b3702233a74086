# SPDX-License-Identifier: Apache-2.0
"""Whether a driver whose sample buffer falls silent is idle meanwhile.

Some drivers take no samples while nothing runs (seen on DGX Spark), others answer late or not at
all. Which one a driver is shows in its silences, by polls that read zero in them.
"""

from __future__ import annotations

SILENCES_NEEDED = 3
"""After so many silences in which nothing ran, silence means idle on this driver."""
SETTLED_SECONDS = 2.0
"""A poll may cover two of the longest averaging periods before it: of whole ones, the last."""
RESUMES_WITHIN_SECONDS = 1.5
"""How long work may show in polls before the first sample of it, at most."""
SUSPECT_SECONDS = 60.0
"""How long after a silence the driver is polled to find out what its silences mean."""


class Silences:
    """The silences of one sample buffer of one driver."""

    def __init__(self) -> None:
        self._idle_ones = 0
        self._refuted = False
        self._late = False
        self._last_poll: float | None = None
        """The last poll of the present silence; None if there was none."""
        self._rested = False
        """Whether one of them read zero."""
        self._busy_age: float | None = None
        """The same for the first poll that did not, once polls show nothing of the time before."""
        self._suspect_until = float("-inf")

    @property
    def mean_idle(self) -> bool:
        """Whether silence means that nothing runs."""
        return self._idle_ones >= SILENCES_NEEDED and not self._refuted

    @property
    def understood(self) -> bool:
        """Whether it does, and no poll of the present silence says otherwise."""
        return self.mean_idle and self._busy_age is None

    @property
    def idle_now(self) -> bool:
        """Whether it does, and the last poll agrees, which may cover what came before."""
        return self.understood and not self._last_poll

    @property
    def late(self) -> bool:
        """Whether samples of a silence have come after it."""
        return self._late

    def unclear(self, monotonic_seconds: float) -> bool:
        """Return whether there were silences lately whose meaning is not known yet."""
        return not (self.mean_idle or self._refuted) and monotonic_seconds < self._suspect_until

    def poll(self, ratio: float, age_seconds: float) -> None:
        """Take a poll in a silence, so long after the last sample."""
        self._last_poll = ratio
        if ratio == 0.0:
            self._rested = True
        elif self._busy_age is None and age_seconds >= SETTLED_SECONDS:
            self._busy_age = age_seconds
        if self._busy_age is not None and age_seconds - self._busy_age > RESUMES_WITHIN_SECONDS:
            self._refuted = True

    def resumed(self, silent_seconds: float, monotonic_seconds: float) -> None:
        """Note that a sample has come; nothing was sampled for `silent_seconds` before its period.

        With 0 there was no silence: if there were polls in it, the samples were only late.
        """
        if silent_seconds > 0:
            self._suspect_until = monotonic_seconds + SUSPECT_SECONDS
            worked = self._busy_age is not None and self._busy_age <= silent_seconds
            if self._rested and not worked:
                self._idle_ones += 1
        elif self._last_poll is not None:
            self._late = True
        self._rested = False
        self._last_poll = self._busy_age = None
