# SPDX-License-Identifier: Apache-2.0
"""What a real Prometheus makes of a page that says since when its counters count."""

from __future__ import annotations

import time

from tests.e2e.conftest import StartDaemon, StartPrometheus
from tests.waiting import wait_until

GPUS = 8


def test_prometheus_keeps_it_as_a_series(
    start: StartDaemon, start_prometheus: StartPrometheus
) -> None:
    """2.42 knows no such thing: the page is taken whole, and the time is a series beside it."""
    before = time.time()
    daemon = start({}, "--demo", "--metrics.created", wait_for=GPUS)
    server = start_prometheus(daemon, "1s")
    ready = f"count(gpu_idle_seconds_created) == {GPUS}"
    wait_until(lambda: server.query(ready), 30, "a scrape with all GPUs")
    (up,) = server.query("min_over_time(up[1m])")
    assert up["value"][1] == "1"
    for gpu, created in server.by_gpu("gpu_idle_seconds_created", time.time()).items():
        assert before < created < time.time(), gpu
    unpaired = "gpu_idle_seconds_created unless on (instance, gpu) gpu_idle_seconds_total"
    assert server.query(unpaired) == []
    assert server.query("gpu_energy_joules_created") == []
