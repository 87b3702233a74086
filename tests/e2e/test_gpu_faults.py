# SPDX-License-Identifier: Apache-2.0
"""One sick GPU, or all of them: what is shown, and that others and scrapes never notice."""

from __future__ import annotations

import statistics
import time
from typing import Any

import pytest

from tests.e2e.conftest import MakeDriver, StartDaemon
from tests.e2e.daemons import SHOWN_WHILE_DOWN, Watch
from tests.e2e.processes import retry_once
from tests.fake_nvml import fault, square
from tests.waiting import wait_until

STALE_SECONDS = 3.0
"""Three intervals of a second."""
ALLOWANCE_SECONDS = 1.5
"""One tick, and what a busy machine adds to it."""
RECOVERY_SECONDS = 10.0
FRESH_SECONDS = 2.0
FAULT_SECONDS = 10.0

BUSY: dict[str, Any] = {
    "product": "h100-sxm",
    "utilization": square(period=0.7, duty=0.5, high=100),
    "power": 400,
    "gpm": {"graphics": 60, "sm": 50, "tensor": 30, "dram": 20, "fp64": 0, "fp32": 4, "fp16": 2},
}


def _check_fresh(watch: Watch, *gpus: int) -> None:
    """These GPUs were up and read within the last 2 s on every page."""
    for scrape in watch.scrapes:
        for gpu in map(str, gpus):
            assert scrape.page.value("gpu_up", gpu=gpu) == 1, (gpu, scrape.at)
            age = scrape.at - scrape.page.value("gpu_last_read_timestamp_seconds", gpu=gpu)
            assert age < FRESH_SECONDS, (gpu, scrape.at)


def _check_down(watch: Watch, gpu: int, start: float, end: float) -> None:
    """On every page of that time the GPU is shown as down, and nothing is read from it."""
    for scrape in watch.between(start, end):
        assert scrape.page.value("gpu_up", gpu=str(gpu)) == 0, scrape.at - start
        assert scrape.page.value("gpu_info", gpu=str(gpu)) == 1
        assert {name for name, _ in scrape.page.gpu(gpu)} <= SHOWN_WHILE_DOWN, scrape.at - start


def _back_after(watch: Watch, gpu: int, lifted: float) -> float:
    """Seconds from the end of the fault to the first page with readings of that GPU."""
    for scrape in watch.scrapes:
        page = scrape.page
        if scrape.at > lifted and page.value("gpu_up", gpu=str(gpu)) and page.readings(gpu):
            return scrape.at - lifted
    raise AssertionError(f"GPU {gpu} did not come back")


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.time()))


@retry_once
def test_a_hung_and_a_lost_gpu_disappear_alone(make_driver: MakeDriver, start: StartDaemon) -> None:
    """Their series go within 3 s, others stay fresh; both are back within 10 s of their cure.

    The fault holds for 10 s: one log line for each change, and one more thread for the hung GPU.
    """
    hung, lost, healthy = 0, 1, 2
    driver = make_driver({"devices": {"count": 3, "template": BUSY}})
    daemon = start(driver, wait_for=3)
    lines_before, threads_before = len(daemon.lines()), daemon.threads()
    with daemon.watch() as watch:
        overrides = {str(lost): {"lost": 1}}
        devices = driver.scenario["devices"]
        driver.update(
            faults=[fault("nvmlDeviceGetFieldValues", gpu=hung, hang=True)],
            devices={**devices, "overrides": overrides},
        )
        began = time.time()
        threads = []
        while time.time() < began + FAULT_SECONDS:
            time.sleep(0.5)
            threads.append(daemon.threads())
        lines_during = daemon.lines()[lines_before:]
        driver.update(faults=[], devices=devices)
        lifted = time.time()
        daemon.wait_for_gpus(3, RECOVERY_SECONDS)
        time.sleep(1.5)  # one more tick, for the counters

    _check_fresh(watch, healthy)
    gone = began + STALE_SECONDS + ALLOWANCE_SECONDS
    _check_down(watch, hung, gone, lifted)
    _check_down(watch, lost, began + ALLOWANCE_SECONDS, lifted)
    assert _back_after(watch, hung, lifted) <= RECOVERY_SECONDS
    assert _back_after(watch, lost, lifted) <= RECOVERY_SECONDS
    assert watch.counters_fell() == []
    for gpu in (hung, lost):
        _check_counts_on(watch, gpu)

    assert sorted(lines_during) == sorted(
        [*daemon.lines("GPU 0 (GPU-1a2b3c00")[:1], *daemon.lines("GPU 1 (GPU-1a2b3c01")[:1]]
    )
    assert "hung" in daemon.lines("GPU 0 ")[0]
    assert "lost" in daemon.lines("GPU 1 ")[0]
    lines_after = daemon.lines()[lines_before + len(lines_during) :]
    assert len(lines_after) == 2
    assert all("answers again" in line for line in lines_after)
    assert max(threads) <= threads_before + 1
    assert daemon.threads() <= threads_before


def _check_counts_on(watch: Watch, gpu: int) -> None:
    """Its counters grew after the fault, and no time of the fault was counted as observed."""
    first, last = watch.scrapes[0].page, watch.scrapes[-1].page
    wall = watch.scrapes[-1].at - watch.scrapes[0].at
    for reading in ("utilization", "activity"):
        labels = {"gpu": str(gpu), "reading": reading}
        name = "gpu_observed_seconds_total"
        observed = last.value(name, **labels) - first.value(name, **labels)
        assert 0 < observed < wall - FAULT_SECONDS + 1.0, (gpu, reading)
    energy = "gpu_energy_joules_total"
    grown = last.value(energy, gpu=str(gpu)) - first.value(energy, gpu=str(gpu))
    assert grown > 0.8 * 400 * FAULT_SECONDS, "the driver counts on, and so do we"


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


@pytest.mark.slow
@retry_once
def test_every_call_hung(make_driver: MakeDriver, start: StartDaemon) -> None:
    """/metrics answers at once, shows every GPU as down, and all are back within 10 s."""
    driver = make_driver({"devices": {"count": 4, "template": BUSY}})
    daemon = start(driver, wait_for=4)
    threads_before = daemon.threads()
    with daemon.watch() as watch:
        driver.update(faults=[fault("*", hang=True)])
        began = time.time()
        _sleep_until(began + STALE_SECONDS + ALLOWANCE_SECONDS + 1)
        assert daemon.threads() <= threads_before + 4
        ready = daemon.get("/-/ready")
        assert (ready.status, len(ready.text.splitlines())) == (503, 1)
        assert daemon.get("/-/healthy").status == 200
        assert daemon.get("/").status == 200
        assert daemon.get("/api/v1/gpus").status == 200
        driver.update(faults=[])
        lifted = time.time()
        daemon.wait_for_gpus(4, RECOVERY_SECONDS)
        time.sleep(1.5)
    for gpu in range(4):
        _check_down(watch, gpu, began + STALE_SECONDS + ALLOWANCE_SECONDS, lifted)
        assert _back_after(watch, gpu, lifted) <= RECOVERY_SECONDS
    assert watch.counters_fell() == []
    assert sorted(scrape.seconds for scrape in watch.scrapes)[len(watch.scrapes) // 2] < 0.1
    assert daemon.get("/-/ready").status == 200
