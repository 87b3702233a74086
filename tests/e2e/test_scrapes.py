# SPDX-License-Identifier: Apache-2.0
"""A scrape never touches the driver: it costs the same whatever the driver does."""

from __future__ import annotations

import statistics
import time
from typing import Any

import pytest

from tests.e2e.conftest import MakeDriver, StartDaemon
from tests.e2e.daemons import Daemon
from tests.e2e.processes import retry_once
from tests.fake_nvml import FakeNvml

SCRAPES = 50
SCRAPE_SECONDS = 0.02
"""Generous for the median: loopback, one page of bytes that are ready."""
RUN_SECONDS = 3.0
SLOW_DRIVER: dict[str, Any] = {
    "latency_us": 5000,
    "devices": {"count": 2, "template": {"product": "t4", "utilization": 50}},
}


def _median_seconds(daemon: Daemon, count: int = SCRAPES) -> float:
    """Scrape so often; the median time that it took."""
    lengths = []
    for _ in range(count):
        started = time.monotonic()
        assert daemon.get("/metrics").status == 200
        lengths.append(time.monotonic() - started)
    return statistics.median(lengths)


def _calls(driver: FakeNvml) -> int:
    return sum(driver.calls().values())


@pytest.mark.slow
@retry_once
def test_a_slow_driver_is_not_asked_more_often_by_scrapes(
    make_driver: MakeDriver, start: StartDaemon
) -> None:
    """With 5 ms per call scrapes are fast, and hundreds of them cause no call.

    Two daemons run for the same time, one of them scraped. One call per scrape would be 200 more;
    the polls of the same time may differ by a round at either end.
    """
    scraped, quiet = make_driver(SLOW_DRIVER), make_driver(SLOW_DRIVER)
    daemon, other = start(scraped), start(quiet)
    daemon.wait_for_gpus(2)
    other.wait_for_gpus(2)
    before = {driver: _calls(driver) for driver in (scraped, quiet)}
    began, count = time.monotonic(), 0
    while time.monotonic() < began + RUN_SECONDS or count < 240:
        assert _median_seconds(daemon, 40) < SCRAPE_SECONDS
        count += 40
        time.sleep(0.2)
    used = {driver: _calls(driver) - before[driver] for driver in (scraped, quiet)}
    assert used[quiet] > 0
    assert abs(used[scraped] - used[quiet]) < count / 2, used
