# SPDX-License-Identifier: Apache-2.0
"""Limits on how many reports a process, a user, and all senders together may send."""

from __future__ import annotations

from exporter.sources.training.credentials import Peer

PROCESS_PER_SECOND = 1_250.0
USER_PER_SECOND = 2_500.0
ALL_PER_SECOND = 5_000.0
"""Tokens; a report costs one for each kilobyte that it begins, since long ones take longer to read.

512 ranks of one user (uid 0 in containers) need 512 to 1024 a second, and a user who sends as much
as possible leaves half to the others."""
BYTES_PER_TOKEN = 1024
BURST_SECONDS = 2.0
"""A sender may send at once as many reports as its rate allows in this time."""
MOST_BUCKETS = 2048
"""When there are more, those that are full again are dropped."""


class RateLimit:
    """Token buckets: one for each process, for each user, and for all.

    Each is kept as the time at which it will be full again: a report that would move that time
    beyond the burst is refused, and costs nothing.
    """

    def __init__(self) -> None:
        self._full_at: dict[Peer | int | None, float] = {}
        """By process, by uid, and of all under None."""

    def allows(self, peer: Peer, size_bytes: int, now: float) -> bool:
        """Take the tokens for a report at monotonic time `now`, or return False."""
        tokens = 1 + max(size_bytes - 1, 0) // BYTES_PER_TOKEN
        full_at = self._full_at
        buckets: list[tuple[Peer | int | None, float]] = [
            (peer.uid, USER_PER_SECOND),
            (None, ALL_PER_SECOND),
        ]
        if peer.pid:  # 0 stands for all processes that cannot be seen
            buckets.append((peer, PROCESS_PER_SECOND))
        then = {key: max(full_at.get(key, now), now) + tokens / rate for key, rate in buckets}
        if max(then.values()) > now + BURST_SECONDS:
            return False
        full_at.update(then)
        if len(full_at) > MOST_BUCKETS:
            self._full_at = {key: full for key, full in full_at.items() if full > now}
        return True
