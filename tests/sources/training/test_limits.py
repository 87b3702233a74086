# SPDX-License-Identifier: Apache-2.0
"""Users share rate and room: none suffers for another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from exporter.sources.training.ledger import IDLE_SECONDS, FullError, Quota
from exporter.sources.training.receiver import MOST_BUCKETS, RateLimit

ALICE, EVE, MALLORY = 1, 2, 3


class Table:
    """A table that follows the answers of a quota."""

    def __init__(self, size: int) -> None:
        self.quota: Quota[str] = Quota(size)
        self.now = 100.0
        self.held: dict[str, int] = {}

    def use(self, uid: int, key: str) -> bool:
        """Use a user's entry; return whether there was room for it."""
        key = f"{uid}/{key}"
        if key not in self.held:
            try:
                leaving = self.quota.makes_room(uid, self.now)
            except FullError:
                return False
            if leaving is not None:
                self.quota.remove(self.held.pop(leaving), leaving)
        self.held[key] = uid
        self.quota.use(uid, key, self.now)
        return True

    def of(self, uid: int) -> list[str]:
        return [key.partition("/")[2] for key, whose in self.held.items() if whose == uid]


def test_one_user_may_fill_the_table() -> None:
    """And has to wait for room of its own, where the one that was silent longest goes first."""
    table = Table(3)

    assert [table.use(ALICE, key) for key in "abcd"] == [True] * 3 + [False]
    table.now += IDLE_SECONDS
    assert not table.use(ALICE, "d")
    table.use(ALICE, "a")
    table.now += 0.1
    assert table.use(ALICE, "d")
    assert table.of(ALICE) == ["a", "c", "d"]


def test_a_newcomer_takes_the_room_of_who_holds_most() -> None:
    """Up to its share; the one that was silent longest goes first, also if it is not silent."""
    table = Table(8)
    for key in "abcdefgh":
        table.use(ALICE, key)
        table.now += 1
    table.use(ALICE, "a")

    assert [table.use(EVE, key) for key in "12345"] == [True] * 4 + [False]
    assert table.of(ALICE) == ["a", "f", "g", "h"]
    table.now += 1000
    assert table.use(EVE, "5")
    assert table.of(EVE) == ["2", "3", "4", "5"]
    assert [table.use(MALLORY, key) for key in "xyz"] == [True] * 2 + [False]
    assert (len(table.of(ALICE)), len(table.of(EVE))) == (3, 3)


EVENTS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 12), st.sampled_from([0.0, 3.0, 11.0])),
    max_size=80,
)


@given(EVENTS, st.integers(1, 9))
def test_the_table_is_never_too_full_and_never_wasted(
    events: list[tuple[int, int, float]], size: int
) -> None:
    """What is refused finds a full table in which nobody has two entries more."""
    table = Table(size)
    for uid, key, pause in events:
        table.now += pause
        own = len(table.of(uid))
        if not table.use(uid, str(key)):
            assert len(table.held) == size
            assert own + 1 >= max(len(table.of(other)) for other in range(5))
        assert len(table.held) <= size


# Rate


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


def test_a_flood_leaves_room_for_others() -> None:
    """Whatever one user sends; refusals cost nobody a token."""
    limit = RateLimit()
    for tick in range(100):
        _allowed(limit, 1000, tick / 10, 3000)
        assert _allowed(limit, 1001, tick / 10, 100) == 100


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
