# SPDX-License-Identifier: Apache-2.0
"""The store hands out the newest snapshot and knows its age."""

from __future__ import annotations

from exporter.store import Store
from tests import snapshots


def test_empty_store_knows_nothing() -> None:
    """Before the first snapshot there is neither a snapshot nor an age."""
    store = Store()
    assert store.latest() is None
    assert store.age_seconds() is None


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
