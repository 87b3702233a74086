# SPDX-License-Identifier: Apache-2.0
"""Whether a driver whose sample buffer falls silent is idle meanwhile.

Some drivers take no samples while nothing runs (seen on DGX Spark), others answer late or not at
all. Which one a driver is shows in its silences: polls that read zero in the middle of them.
"""

from __future__ import annotations

SILENCES_NEEDED = 2
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
        self._zero_age: float | None = None
        """How long the present silence had lasted when a poll first read zero in it."""
        self._busy_age: float | None = None
        """The same for the first poll that did not, once polls show nothing of the time before."""
        self._suspect_until = float("-inf")

    @property
    def mean_idle(self) -> bool:
        """Whether silence means that nothing runs."""
        return self._idle_ones >= SILENCES_NEEDED and not self._refuted

    @property
    def idle_now(self) -> bool:
        """Whether it does, and no poll of the present silence says otherwise."""
        return self.mean_idle and self._busy_age is None

    def unclear(self, monotonic_seconds: float) -> bool:
        """Return whether there were silences lately whose meaning is not known yet."""
        return not (self.mean_idle or self._refuted) and monotonic_seconds < self._suspect_until

    def poll(self, ratio: float, age_seconds: float, period_seconds: float) -> None:
        """Take a poll so long after the last sample, whose period is known."""
        if ratio == 0.0:
            if self._zero_age is None and age_seconds >= 2 * period_seconds:
                self._zero_age = age_seconds
        elif self._busy_age is None and age_seconds >= SETTLED_SECONDS:
            self._busy_age = age_seconds
        if self._busy_age is not None and age_seconds - self._busy_age > RESUMES_WITHIN_SECONDS:
            self._refuted = True

    def resumed(
        self, silent_seconds: float, period_seconds: float, monotonic_seconds: float
    ) -> None:
        """Note that a sample has come; nothing was sampled for `silent_seconds` before its period.

        With 0 there was no silence: the samples were only late.
        """
        if silent_seconds > 0:
            self._suspect_until = monotonic_seconds + SUSPECT_SECONDS
            worked = self._busy_age is not None and self._busy_age <= silent_seconds
            if self._zero_age is not None and self._zero_age <= silent_seconds and not worked:
                self._idle_ones += 1
        self._zero_age = self._busy_age = None
