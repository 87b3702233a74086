# SPDX-License-Identifier: Apache-2.0
"""The driver as a whole: missing, refusing, reloaded, or of another generation."""

from __future__ import annotations

import ctypes.util
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import MakeDriver, StartDaemon
from tests.e2e.processes import retry_once
from tests.fake_nvml import FakeNvml, fault

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


class _NoDriver:
    """A way not to have a driver, and what ends it."""

    def __init__(self, driver: FakeNvml, folder: Path) -> None:
        self.driver = driver
        self.library = folder / "libnvidia-ml.so.1"
        self.flags: tuple[str, ...] = ()
        self.env = driver.environment()

    def install(self) -> None:
        """Put the library where the daemon looks for it."""
        scratch = self.library.with_name("new")
        shutil.copy(self.driver.library, scratch)
        scratch.replace(self.library)


def _nowhere(driver: FakeNvml, folder: Path) -> _NoDriver:
    """No library on the linker's path; later the driver is installed."""
    case = _NoDriver(driver, folder)
    case.env["LD_LIBRARY_PATH"] = str(folder)
    return case


def _wrong_path(driver: FakeNvml, folder: Path) -> _NoDriver:
    """--nvml.library names a file that is not there; later it is."""
    case = _NoDriver(driver, folder)
    case.flags = (f"--nvml.library={case.library}",)
    return case


def _refuses(driver: FakeNvml, folder: Path) -> _NoDriver:
    """The library is there but nvmlInit answers 9, as without device nodes; later it works."""
    case = _NoDriver(driver, folder)
    driver.update(faults=[fault("nvmlInit*", error=9)])
    case.install = lambda: driver.update(faults=[])  # type: ignore[method-assign]
    return case


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param(_nowhere, "libnvidia-ml.so.1 cannot be loaded", marks=needs_no_driver),
        pytest.param(_wrong_path, "--nvml.library", marks=pytest.mark.slow),
        (_refuses, "the NVIDIA driver is not loaded, or its device nodes"),
    ],
    ids=["nowhere", "wrong-path", "init-refuses"],
)
@retry_once
def test_without_a_driver_it_serves_waits_and_recovers(
    make_driver: MakeDriver,
    start: StartDaemon,
    tmp_path_factory: pytest.TempPathFactory,
    case: Callable[[FakeNvml, Path], _NoDriver],
    expected: str,
) -> None:
    """It is healthy but not ready, invents no GPU, says why once, and finds the driver later."""
    missing = case(make_driver(TWO_GPUS), tmp_path_factory.mktemp("lib"))
    daemon = start(missing.env, *missing.flags)
    daemon.find_in_line("level=warning")
    with daemon.watch() as watch:
        time.sleep(OBSERVED_SECONDS)
        ready = daemon.get("/-/ready")
        assert daemon.get("/-/healthy").status == 200
        assert daemon.get("/").status == 200
        assert daemon.get("/api/v1/gpus").status == 200
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

    missing.install()
    page = daemon.wait_for_gpus(2, RECOVERY_SECONDS)
    assert page.value("roofline_exporter_source_up", source="nvml") == 1
    assert daemon.get("/-/ready").status == 200
    assert len(daemon.lines("the driver answers")) == 1


@retry_once
def test_a_reloaded_driver_is_initialised_again(
    make_driver: MakeDriver, start: StartDaemon
) -> None:
    """Codes 1, 9 and 18 from any call: back within 10 s after they end; counters go on."""
    codes = (1, 9, 18)
    drivers = {code: make_driver(TWO_GPUS) for code in codes}
    daemons = {code: start(drivers[code]) for code in codes}
    for daemon in daemons.values():
        daemon.wait_for_gpus(2)
    with daemons[1].watch() as one, daemons[9].watch() as nine, daemons[18].watch() as eighteen:
        for code in codes:
            drivers[code].update(faults=[fault("*", error=code)])
        began = time.time()
        time.sleep(3)
        for code in codes:
            drivers[code].update(faults=[])
        lifted = time.time()
        for daemon in daemons.values():
            daemon.wait_for_gpus(2, RECOVERY_SECONDS)
        time.sleep(1.5)
    for code, watch in zip(codes, (one, nine, eighteen), strict=True):
        daemon = daemons[code]
        for scrape in watch.between(began + 2, lifted):
            assert scrape.page.get("roofline_exporter_source_up", source="nvml") == 0, code
            for gpu in range(2):
                assert scrape.page.readings(gpu) == frozenset(), (code, scrape.at - began)
        assert watch.counters_fell() == [], code
        first, last = watch.scrapes[0].page, watch.scrapes[-1].page
        for key, value in last.counters(0).items():
            if key[0] == "gpu_observed_seconds_total":
                assert value > first.samples[key], code
        # The reason of the calls, that of the initialisation where it differs, and the GPUs'.
        warnings = daemon.lines("level=warning")
        assert 1 <= len(warnings) <= 2 + 2, (code, warnings)
        assert len(set(map(_message, warnings))) == len(warnings), "each is logged once"
        assert len(daemon.lines("the driver answers")) == 1, (code, daemon.lines())
        assert not daemon.lines("Traceback")


def _message(line: str) -> str:
    return line.partition(" msg=")[2]
