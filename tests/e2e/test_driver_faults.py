# SPDX-License-Identifier: Apache-2.0
"""The driver as a whole: missing, refusing, or reloaded."""

from __future__ import annotations

import ctypes.util
import shutil
import time
from typing import Any

import pytest

from tests.e2e.conftest import MakeDriver, StartDaemon
from tests.e2e.processes import retry_once
from tests.fake_nvml import fault

RECOVERY_SECONDS = 10.0
OBSERVED_SECONDS = 2.5
"""Three attempts of the daemon, and as many ticks."""
H100: dict[str, Any] = {
    "product": "h100-sxm",
    "utilization": 60,
    "gpm": {"graphics": 60, "sm": 50, "tensor": 30, "dram": 20, "fp64": 0, "fp32": 4, "fp16": 2},
}
TWO_GPUS = {"devices": [H100, {"product": "t4", "utilization": 40}]}

needs_no_driver = pytest.mark.skipif(
    ctypes.util.find_library("nvidia-ml") is not None, reason="this machine has a driver"
)


@pytest.mark.parametrize(
    ("installed", "expected"),
    [
        pytest.param(False, "libnvidia-ml.so.1 cannot be loaded", marks=needs_no_driver),
        (True, "the NVIDIA driver is not loaded, or its device nodes"),
    ],
    ids=["nowhere", "init-refuses"],
)
@retry_once
def test_without_a_driver_it_serves_waits_and_recovers(
    make_driver: MakeDriver,
    start: StartDaemon,
    tmp_path_factory: pytest.TempPathFactory,
    *,
    installed: bool,
    expected: str,
) -> None:
    """It is healthy but not ready, invents no GPU, says why once, and finds the driver later: no
    library is on the linker's path, or its nvmlInit answers 9, as without device nodes."""
    driver, folder = make_driver(TWO_GPUS), tmp_path_factory.mktemp("lib")
    env = driver.environment()
    if installed:
        driver.update(faults=[fault("nvmlInit*", error=9)])
    else:
        env["LD_LIBRARY_PATH"] = str(folder)
    daemon = start(env)
    daemon.find_in_line("level=warning")
    with daemon.watch() as watch:
        time.sleep(OBSERVED_SECONDS)
        ready = daemon.get("/-/ready")
        for path in ("/-/healthy", "/", "/api/v1/gpus"):
            assert daemon.get(path).status == 200
    assert ready.status == 503
    assert len(ready.text.splitlines()) == 1
    assert expected in ready.text
    for scrape in watch.scrapes:
        assert scrape.page.get("roofline_exporter_source_up", source="nvml") == 0
        assert not [name for name in scrape.page.names if name.startswith("gpu_")]
    failures = [
        scrape.page.value("roofline_exporter_source_failures_total", source="nvml")
        for scrape in watch.scrapes
    ]
    assert failures[0] < failures[-1]
    (warning,) = daemon.lines("level=warning")
    assert expected in warning.replace('\\"', '"')
    assert len(daemon.lines()) == 4, "started, listening, training socket, why no GPU"

    if installed:
        driver.update(faults=[])
    else:
        shutil.copy(driver.library, folder / "new")
        (folder / "new").replace(folder / "libnvidia-ml.so.1")
    page = daemon.wait_for_gpus(2, RECOVERY_SECONDS)
    assert page.value("roofline_exporter_source_up", source="nvml") == 1
    assert daemon.get("/-/ready").status == 200
    assert len(daemon.lines("the driver answers")) == 1


@retry_once
def test_a_reloaded_driver_is_initialised_again(
    make_driver: MakeDriver, start: StartDaemon
) -> None:
    """Codes 1, 9 and 18 from any call: back within 10 s after they end; counters go on."""
    driver = make_driver(TWO_GPUS)
    daemon = start(driver, wait_for=2)
    with daemon.watch() as watch:
        for code in (1, 9, 18):
            driver.update(faults=[fault("*", error=code)])
            began = time.time()
            time.sleep(3)
            driver.update(faults=[])
            lifted = time.time()
            daemon.wait_for_gpus(2, RECOVERY_SECONDS)
            for scrape in watch.between(began + 2, lifted):
                assert scrape.page.get("roofline_exporter_source_up", source="nvml") == 0, code
                for gpu in range(2):
                    assert scrape.page.readings(gpu) == frozenset(), (code, scrape.at - began)
        time.sleep(1.5)
    assert watch.counters_fell() == []
    first, last = watch.scrapes[0].page, watch.scrapes[-1].page
    for key, value in last.counters(0).items():
        if key[0] == "gpu_observed_seconds_total":
            assert value > first.samples[key], key
    # The reason of the calls, that of the initialisation where it differs, and the GPUs'.
    assert 3 <= len(daemon.lines("level=warning")) <= 3 * (2 + 2)
    assert len(daemon.lines("the driver answers")) == 3, daemon.lines()
    assert not daemon.lines("Traceback")
