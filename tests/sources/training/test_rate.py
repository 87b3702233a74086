# SPDX-License-Identifier: Apache-2.0
"""Nobody sends more than is read at ease, and nobody suffers for another."""

from __future__ import annotations

from exporter.sources.training.rate import MOST_PEERS, RateLimit


def _allowed(limit: RateLimit, pid: int, now: float, attempts: int) -> int:
    return sum(limit.allows(pid, 800, now) for _ in range(attempts))


def test_a_sender_has_a_burst_and_a_rate() -> None:
    """5,000 at once, then 2,500 a second."""
    limit = RateLimit()

    assert _allowed(limit, 1, 0.0, 20_000) in (4999, 5000)
    assert _allowed(limit, 1, 1.0, 20_000) in range(2499, 2502)
    assert _allowed(limit, 1, 100.0, 20_000) in (4999, 5000)


def test_all_together_have_a_burst_and_a_rate() -> None:
    """10,000 at once, then 5,000 a second."""
    limit = RateLimit()
    pids = range(1, 9)

    assert sum(_allowed(limit, pid, 0.0, 4000) for pid in pids) in (9999, 10_000)
    assert sum(_allowed(limit, pid, 1.0, 4000) for pid in pids) in range(4999, 5002)


def test_large_reports_cost_more() -> None:
    """A kilobyte is one token, begun or full."""
    for size, tokens in ((0, 1), (1, 1), (1024, 1), (1025, 2), (8192, 8), (8193, 9)):
        limit = RateLimit()
        allowed = sum(limit.allows(1, size, 0.0) for _ in range(6000))
        assert abs(allowed - 5000 // tokens) <= 1


def test_a_flood_leaves_room_for_others() -> None:
    """What is refused costs nobody a token."""
    limit = RateLimit()
    for tick in range(100):
        _allowed(limit, 666, tick / 10, 3000)
        assert _allowed(limit, 7, tick / 10, 100) == 100


def test_senders_that_are_idle_are_forgotten() -> None:
    """Processes come and go."""
    limit = RateLimit()
    for pid in range(20_000):
        limit.allows(pid, 800, pid / 1000)

    assert len(limit._full_at) <= MOST_PEERS + 1
