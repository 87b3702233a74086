# SPDX-License-Identifier: Apache-2.0
"""Whether a sender, and all together, send no more reports than are read at ease."""

from __future__ import annotations

PEER_PER_SECOND = 2_500.0
ALL_PER_SECOND = 5_000.0
"""Tokens; a report costs one for each kilobyte that it begins, as time to read it goes by size."""
BYTES_PER_TOKEN = 1024
BURST_SECONDS = 2.0
"""How long a sender may send at an unlimited rate what it may send in that time."""
MOST_PEERS = 1024
"""More are looked through for those that are idle."""


class RateLimit:
    """Token buckets, one per sender and one for all.

    Each is kept as the time at which it will be full again: a report that would put it off beyond
    the burst is refused, and costs nothing.
    """

    def __init__(self) -> None:
        self._full_at: dict[int, float] = {}
        """By pid."""
        self._all_full_at = float("-inf")

    def allows(self, pid: int, size_bytes: int, now: float) -> bool:
        """Take the tokens for a report at monotonic time `now`, or return False."""
        latest = now + BURST_SECONDS
        tokens = 1 + max(size_bytes - 1, 0) // BYTES_PER_TOKEN
        peer = max(self._full_at.get(pid, now), now) + tokens / PEER_PER_SECOND
        everyone = max(self._all_full_at, now) + tokens / ALL_PER_SECOND
        if peer > latest or everyone > latest:
            return False
        self._full_at[pid], self._all_full_at = peer, everyone
        if len(self._full_at) > MOST_PEERS:
            self._full_at = {pid: full for pid, full in self._full_at.items() if full > now}
        return True
