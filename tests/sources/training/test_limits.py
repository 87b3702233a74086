# SPDX-License-Identifier: Apache-2.0
"""Every user has a rate of their own: none suffers for another."""

from __future__ import annotations

from exporter.sources.training.receiver import MOST_BUCKETS, RateLimit


def _allowed(limit: RateLimit, uid: int, now: float, attempts: int) -> int:
    return sum(limit.allows(uid, 800, now) for _ in range(attempts))


def test_a_user_has_a_burst_and_a_rate() -> None:
    """5,000 at once, then 2,500 a second."""
    limit = RateLimit()

    assert _allowed(limit, 1000, 0.0, 20_000) in (4999, 5000)
    assert _allowed(limit, 1000, 1.0, 20_000) in range(2498, 2502)
    assert _allowed(limit, 1000, 100.0, 20_000) in (4999, 5000)


def test_large_reports_cost_more() -> None:
    """A kilobyte is one token, begun or full."""
    for size, tokens in ((0, 1), (1, 1), (1024, 1), (1025, 2), (8192, 8), (8193, 9)):
        limit = RateLimit()
        allowed = sum(limit.allows(0, size, 0.0) for _ in range(6000))
        assert abs(allowed - 5000 // tokens) <= 1


def test_512_ranks_of_root_have_room_to_spare() -> None:
    """Containers run as uid 0: all of a node's ranks may be one user's, with large reports."""
    limit = RateLimit()
    for second in range(60):
        for rank in range(512):
            assert limit.allows(0, 4096, second + rank / 1000)


def test_users_that_are_idle_are_forgotten() -> None:
    """They come and go."""
    limit = RateLimit()
    for uid in range(20_000):
        limit.allows(uid, 800, uid / 1000)

    assert len(limit._full_at) <= MOST_BUCKETS + 1
