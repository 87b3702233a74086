# SPDX-License-Identifier: Apache-2.0
"""How old the rows of one GPU are on a page that gives no time.

dcgm-exporter samples in an interval of its own, 30 s by default, and its page has
no timestamps. It has been renewed when a row differs from the scrape before; the time between two
such scrapes is the interval. A renewal cannot have been missed where the rows were seen to stay the
same for longer than it is from one scrape to the next.
"""

from __future__ import annotations

from collections import deque

from exporter.model.reading import LONGEST_AGE_SECONDS

DEFAULT_INTERVAL_SECONDS = 30.0
"""dcgm-exporter's own: what is not known to be younger is taken to be so old."""
LOOK_SECONDS = 1.25
"""In which a renewal is seen, also by a slow scrape; an interval may look longer by as much."""
LONGEST_STANDING_SECONDS = 90.0
STANDING_INTERVALS = 3
REMEMBERED_INTERVALS = 4
"""The longest of the last ones counts: the fields of one sample may appear one after another, and a
scrape may just miss a sample."""
REMEMBERED_LOOKS = 8
"""Renewals, after which a page that was never seen to stay the same is not followed."""
REMEMBERED_RENEWALS = 64
"""From the first to the last of which the time between two is known precisely."""
LOOKS_APART = 1.2
"""For so many times as long as it is from one scrape to the next they have to stay the same."""
SLACK_RATIO = 0.25
"""Of that time, by which a renewal may come early or late."""


class Renewal:
    """When the rows of one GPU were renewed."""

    def __init__(self) -> None:
        self._signature: object = None
        self._looked = self._first = 0.0
        """When the last scrape began, and when the one ended that first had these rows."""
        self._still = self._apart = 0.0
        """For how long these rows have certainly stood, and how far apart two scrapes were."""
        self._proofs: deque[bool] = deque(maxlen=REMEMBERED_LOOKS)
        self._intervals: deque[float] = deque(maxlen=REMEMBERED_INTERVALS)
        self._renewed: deque[float] = deque(maxlen=REMEMBERED_RENEWALS)
        self.at: float | None = None
        """Monotonic time of the last renewal: where the ones before let expect it, and between two
        scrapes in any case; None before one is seen."""
        self.is_taken = False
        """Whether these rows were made use of."""

    def note(self, signature: object, now: float, began: float) -> None:
        """Take the signature of the rows of a scrape from `began` to `now`."""
        before, self._looked = self._looked, began
        if signature == self._signature:
            self._still = self._looked - self._first
            return
        if self._signature is not None:
            if self.at is not None and now - self._first <= self.longest_seconds:
                self._intervals.append(now - self._first)
            else:  # it had stopped: the new interval is not known yet
                self._intervals.clear()
                self._renewed.clear()
            self._apart = now - before
            self._proofs.append(self._is_proof)
            self.at = self._expected(before, now)
        self._signature, self._first = signature, now
        self._still, self.is_taken = 0.0, False

    def _expected(self, before: float, now: float) -> float:
        """Return when the renewal between two scrapes happened."""
        if self.at is not None and self._renewed:
            mean = (now - self._renewed[0]) / len(self._renewed)
            self._renewed.append(now)
            if before - SLACK_RATIO * mean <= self.at + mean <= now + SLACK_RATIO * mean:
                return min(max(self.at + mean, before), now)
        self._renewed = deque([now], REMEMBERED_RENEWALS)
        return now

    @property
    def _is_proof(self) -> bool:
        return self._still > LOOKS_APART * self._apart

    @property
    def follows(self) -> bool | None:
        """Whether every renewal is seen, since none can have come and gone between two scrapes;
        None while that is not known."""
        if self._is_proof or any(self._proofs):
            return True
        return False if len(self._proofs) == REMEMBERED_LOOKS else None

    @property
    def mean_interval_seconds(self) -> float | None:
        """Between two of the last renewals; None while it is not known."""
        return sum(self._intervals) / len(self._intervals) if self._intervals else None

    @property
    def interval_seconds(self) -> float | None:
        """Between two renewals; None while it is not known."""
        return max(self._intervals, default=None)

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
        # An interval is known to one scrape.
        return max(age, interval) if interval - LOOK_SECONDS > LONGEST_AGE_SECONDS else age
