# SPDX-License-Identifier: Apache-2.0
"""How old the rows of one GPU are on a page that gives no time.

dcgm-exporter samples in an interval of its own, 30 s by default, and its page has
no timestamps. It has been renewed when a row differs from the scrape before; the time between two
such scrapes is the interval.
"""

from __future__ import annotations

from collections import deque

from exporter.model.reading import LONGEST_AGE_SECONDS

DEFAULT_INTERVAL_SECONDS = 30.0
"""dcgm-exporter's own: what is not known to be younger is taken to be so old."""
LONGEST_STANDING_SECONDS = 90.0
STANDING_INTERVALS = 3
REMEMBERED_INTERVALS = 4
"""The longest of the last ones counts: the fields of one sample may appear one after another, and a
scrape may just miss a sample."""


class Renewal:
    """When the rows of one GPU were renewed."""

    def __init__(self, look_seconds: float = 0.0) -> None:
        """Take by how much an interval may look longer than it is: that between two scrapes."""
        self._look_seconds = look_seconds
        self._signature: object = None
        self._at: float | None = None
        """Monotonic time of the last renewal; None before one is seen."""
        self._intervals: deque[float] = deque(maxlen=REMEMBERED_INTERVALS)

    def is_new(self, signature: object, now: float) -> bool:
        """Return whether this scrape has other rows than the last one; the first one has."""
        if signature == self._signature:
            return False
        if self._signature is not None:
            if self._at is not None and now - self._at <= self.longest_seconds:
                self._intervals.append(now - self._at)
            else:  # it had stopped: how often it is renewed from now on is to be seen
                self._intervals.clear()
            self._at = now
        self._signature = signature
        return True

    @property
    def interval_seconds(self) -> float | None:
        """Between two renewals; None while it is not known."""
        return max(self._intervals, default=None)

    @property
    def is_slow(self) -> bool:
        """Return whether its means are over more than LONGEST_AGE_SECONDS, so not to be added up.

        An interval is known to one scrape.
        """
        interval = self.interval_seconds
        return interval is not None and interval - self._look_seconds > LONGEST_AGE_SECONDS

    @property
    def longest_seconds(self) -> float:
        """For how long rows may be shown without being renewed."""
        interval = self.interval_seconds
        if interval is None:
            return LONGEST_STANDING_SECONDS
        return min(STANDING_INTERVALS * interval, LONGEST_STANDING_SECONDS)

    def age_seconds(self, stamped_seconds: float | None) -> float:
        """Return how old rows are that have just been seen for the first time.

        `stamped_seconds` is their age by the page's own timestamps, None where it has none. The
        mean over an interval that is itself longer than LONGEST_AGE_SECONDS is as old as that.
        """
        interval = self.interval_seconds
        if interval is None:
            return DEFAULT_INTERVAL_SECONDS if stamped_seconds is None else stamped_seconds
        age = stamped_seconds or 0.0
        return max(age, interval) if self.is_slow else age
