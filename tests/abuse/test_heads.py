# SPDX-License-Identifier: Apache-2.0
"""Requests that are too long, too many, too slow, or no HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.abuse.clients import Exchange, talk
from tests.abuse.target import (
    Record,
    under_attack,
)
from tests.e2e.daemons import Daemon

LINE = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"
MEBIBYTE = b"a" * 2**20


def at_once(count: int, attack: Callable[[int], Exchange]) -> list[Exchange]:
    """Run an attack on so many connections at the same time."""
    done: list[Exchange] = []
    threads = [
        threading.Thread(target=lambda n=number: done.append(attack(n))) for number in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


def test_a_head_of_16_megabytes(daemon: Daemon, record_property: Record) -> None:
    pieces = [LINE + b"X-Long: ", *[MEBIBYTE] * 16, b"\r\n\r\n"]
    with under_attack(daemon, daemon.port, "8 heads of 16 MB", record_property):
        done = at_once(8, lambda _: talk(daemon.port, pieces, 10))
    assert all(each.closed for each in done)
    assert max(each.sent for each in done) < 16 * 2**20, "it was read to its end"
    assert not [each for each in done if 200 in each.statuses]
