# SPDX-License-Identifier: Apache-2.0
"""A scrape never touches the driver: it costs the same whatever the driver does."""

from __future__ import annotations

import statistics
import time

from tests.e2e.conftest import MakeDriver, StartDaemon
from tests.e2e.processes import retry_once
from tests.fake_nvml import fault
from tests.waiting import wait_until

SCRAPES = 50
SCRAPE_SECONDS = 0.02
"""Generous for the median: loopback, one page of bytes that are ready."""


@retry_once
def test_scrapes_do_not_wait_for_a_driver_that_hangs(
    make_driver: MakeDriver, start: StartDaemon
) -> None:
    """With every call hung scrapes are as fast, and cause no call; only readiness is gone."""
    template = {"product": "t4", "utilization": 50}
    driver = make_driver({"devices": {"count": 2, "template": template}})
    daemon = start(driver, wait_for=2)
    driver.update(faults=[fault("*", hang=True)])
    wait_until(lambda: daemon.get("/-/ready").status == 503, 10, "a hung driver noticed")
    assert len(daemon.get("/-/ready").text.splitlines()) == 1
    before = sum(driver.calls().values())
    for path in ("/-/healthy", "/", "/api/v1/gpus"):
        assert daemon.get(path).status == 200
    lengths = []
    for _ in range(SCRAPES):
        started = time.monotonic()
        assert daemon.get("/metrics").status == 200
        lengths.append(time.monotonic() - started)
    assert statistics.median(lengths) < SCRAPE_SECONDS
    # Replacements of hung workers may make their first call meanwhile.
    assert sum(driver.calls().values()) - before <= 4
    driver.update(faults=[])
    wait_until(lambda: daemon.get("/-/ready").status == 200, 10, "all GPUs are back")
