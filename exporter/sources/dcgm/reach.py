# SPDX-License-Identifier: Apache-2.0
"""The state of a page: up or failing, when to retry, and what is logged of it."""

from __future__ import annotations

import logging

RETRY_SECONDS = (1.0, 2.0, 4.0, 5.0)
"""After each failed scrape of a page that should be there; it is back within 10 s."""
SEARCH_SECONDS = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0)
"""Between attempts while no page was ever seen and none is configured."""

log = logging.getLogger(__name__)


class Reach:
    """The state of one page: up, failing, or neither seen nor configured."""

    def __init__(self, url: str, *, expected: bool) -> None:
        """Take the page's address, for the log; `expected` if it is configured."""
        self._url = url
        self.expected = expected
        """Whether there should be a page: one is configured, or was there."""
        self.up = False
        """Whether the last scrape had a page."""
        self.problem: str | None = None
        """Why there is none where one is expected."""
        self.failing_since: float | None = None
        """Monotonic time."""
        self.failures_total = 0
        self._failures_in_a_row = 0
        self._logged: str | None = None

    def answered(self) -> None:
        """Note that the page was read."""
        if not self.up:
            log.info("%s: DCGM's counters are read from this page", self._url)
        self.up = self.expected = True
        self.problem = self.failing_since = None
        self._failures_in_a_row = 0

    def limited(self, problem: str | None) -> None:
        """Note why a page that was read is of no use to a GPU; None where it is."""
        if problem is not None and self._logged != problem:
            log.warning("%s: no counters of DCGM: %s", self._url, problem)
        self._logged = problem

    def failed(self, problem: str, now: float, *, anything_there: bool) -> float:
        """Note why there is no page; return after how many seconds to try again.

        Where none was ever seen or configured, that is no failure; the log only has it if there is
        something else.
        """
        self.up = False
        if (self.expected or anything_there) and self._logged != problem:
            self._logged = problem
            log.warning("%s: no counters of DCGM: %s", self._url, problem)
        waits = RETRY_SECONDS if self.expected else SEARCH_SECONDS
        wait = waits[min(self._failures_in_a_row, len(waits) - 1)]
        self._failures_in_a_row += 1
        if self.expected:
            self.problem = problem
            self.failures_total += 1
            if self.failing_since is None:
                self.failing_since = now
        return wait
