# SPDX-License-Identifier: Apache-2.0
"""The store hands out the newest snapshot and knows its age."""

from __future__ import annotations

from dataclasses import replace

from exporter.web.store import Store
from tests import snapshots


def test_latest_wins_and_ages_by_the_clock() -> None:
    """The newest snapshot is handed out as the very object; its age follows the clock."""
    now = [100.0]
    store = Store(clock=lambda: now[0])
    store.publish(snapshots.EXAMPLES["idle"])
    now[0] = 105.0
    store.publish(snapshots.EXAMPLES["training"])
    now[0] = 107.5
    assert store.latest() is snapshots.EXAMPLES["training"]
    assert store.age_seconds() == 2.5


def _steps(store: Store, *seconds: float) -> list[float]:
    """Publish a rank whose steps are the seconds; return those of the pictures that are kept."""
    for second in seconds:
        rank = snapshots.rank_on_gpu()
        rank = replace(rank, totals=replace(rank.totals, steps=second))
        node = replace(snapshots.EXAMPLES["training"], timestamp_seconds=second)
        store.publish(snapshots.with_training(node, rank))
    return [rank.totals.steps for rank in store.earlier_ranks()]


def test_ranks_of_the_last_ten_seconds() -> None:
    """The last that is yielded is the oldest: at least 10 s old once there is such a picture."""
    store = Store()
    assert _steps(store, 0) == [0]
    assert _steps(store, *range(1, 21))[-1] == 10
    assert len(_steps(store, 21)) == 11


def test_ranks_at_other_paces() -> None:
    """At 10 readings a second about one of them a second is kept; at one in 30 s the last two."""
    assert len(_steps(Store(), *(second / 10 for second in range(300)))) <= 2 * 11
    assert _steps(Store(), 0, 30, 60) == [60, 30]


def test_ranks_that_are_gone_and_clocks_that_are_set_back() -> None:
    """Nothing is shown from another time."""
    store = Store()
    assert _steps(store, 100, 101, 50) == [50]
    store.publish(snapshots.EXAMPLES["training"])
    assert list(store.earlier_ranks()) == []
