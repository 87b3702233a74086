# SPDX-License-Identifier: Apache-2.0
"""How many requests are answered: a token bucket."""

from __future__ import annotations

import math

from exporter.web.access.schema import RateLimit


class Bucket:
    """Starts full, with `burst` tokens, and gains one each interval; a request takes one."""

    def __init__(self, limit: RateLimit, now: float) -> None:
        self.limit = limit
        self._tokens = float(limit.burst)
        self._at = now

    def take(self, now: float) -> bool:
        """Return whether there was a token; `now` is in seconds, of a clock that never steps."""
        gained = (now - self._at) / self.limit.interval_seconds
        self._tokens = min(float(self.limit.burst), self._tokens + gained)
        self._at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    @property
    def retry_after_seconds(self) -> int:
        """Whole seconds after which there is a token, if nobody else takes it."""
        return max(1, math.ceil((1.0 - self._tokens) * self.limit.interval_seconds))
