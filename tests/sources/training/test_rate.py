# SPDX-License-Identifier: Apache-2.0
"""Nobody sends more than is read at ease, and no user suffers for another."""

from __future__ import annotations

from exporter.sources.training.credentials import Peer
from exporter.sources.training.rate import MOST_BUCKETS, RateLimit


def _allowed(limit: RateLimit, pid: int, now: float, attempts: int, uid: int = 1000) -> int:
    return sum(limit.allows(Peer(pid, uid), 800, now) for _ in range(attempts))


def test_a_process_has_a_burst_and_a_rate() -> None:
    """2,500 at once, then 1,250 a second."""
    limit = RateLimit()

    assert _allowed(limit, 1, 0.0, 20_000) in (2499, 2500)
    assert _allowed(limit, 1, 1.0, 20_000) in range(1249, 1252)
    assert _allowed(limit, 1, 100.0, 20_000) in (2499, 2500)


def test_a_user_has_a_burst_and_a_rate() -> None:
    """5,000 at once over all processes, then 2,500 a second; also where none can be seen."""
    for pids in (range(1, 9), [0] * 8):
        limit = RateLimit()

        assert sum(_allowed(limit, pid, 0.0, 2000) for pid in pids) in (4999, 5000)
        assert sum(_allowed(limit, pid, 1.0, 2000) for pid in pids) in range(2498, 2502)


def test_all_together_have_a_burst_and_a_rate() -> None:
    """10,000 at once, then 5,000 a second."""
    limit = RateLimit()
    users = range(8)

    assert sum(_allowed(limit, 0, 0.0, 4000, uid) for uid in users) in (9999, 10_000)
    assert sum(_allowed(limit, 0, 1.0, 4000, uid) for uid in users) in range(4998, 5002)


def test_large_reports_cost_more() -> None:
    """A kilobyte is one token, begun or full."""
    for size, tokens in ((0, 1), (1, 1), (1024, 1), (1025, 2), (8192, 8), (8193, 9)):
        limit = RateLimit()
        allowed = sum(limit.allows(Peer(1, 0), size, 0.0) for _ in range(3000))
        assert abs(allowed - 2500 // tokens) <= 1


def test_a_flood_leaves_room_for_others() -> None:
    """For other users, whatever one sends from how many processes; refusals cost nobody a token."""
    limit = RateLimit()
    for tick in range(100):
        for pid in range(666, 670):
            _allowed(limit, pid, tick / 10, 1000)
        assert _allowed(limit, 7, tick / 10, 100, uid=1001) == 100


def test_one_process_leaves_room_for_its_users_others() -> None:
    """One job that went wild does not silence the others of its user."""
    limit = RateLimit()
    for tick in range(100):
        _allowed(limit, 666, tick / 10, 1000)
        assert _allowed(limit, 7, tick / 10, 100) == 100


def test_512_ranks_of_root_have_room_to_spare() -> None:
    """Containers run as uid 0: all of a node's ranks may be one user's, with large reports."""
    limit = RateLimit()
    for second in range(60):
        for pid in range(1, 513):
            assert limit.allows(Peer(pid, 0), 4096, second + pid / 1000)


def test_senders_that_are_idle_are_forgotten() -> None:
    """Processes come and go."""
    limit = RateLimit()
    for pid in range(20_000):
        limit.allows(Peer(pid, 1000), 800, pid / 1000)

    assert len(limit._full_at) <= MOST_BUCKETS + 3
