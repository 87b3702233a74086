# SPDX-License-Identifier: Apache-2.0
"""Fleets on the fake driver, with real threads and real hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.clock import SystemClock
from exporter.sources.fleet.fleet import Fleet
from exporter.sources.fleet.session import SessionOptions
from exporter.sources.nvml.library import Library
from tests.fake_nvml import FakeNvml
from tests.waiting import wait_until

STALE_SECONDS = 600.0
"""No call lasts so long by itself, however slow the machine is: tests skip the time."""

Start = Callable[..., tuple[Fleet, FakeNvml]]


class SkippingClock(SystemClock):
    """The host's clocks, some time ahead."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def skip(self, seconds: float) -> None:
        self._ahead += seconds

    def time(self) -> float:
        return super().time() + self._ahead

    def monotonic(self) -> float:
        return super().monotonic() + self._ahead


@pytest.fixture(name="clock")
def _clock() -> SkippingClock:
    return SkippingClock()


@pytest.fixture(name="start")
def _start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: SkippingClock
) -> Iterator[Start]:
    """Start a fleet on a scenario, with a /sys of the test's own; afterwards nothing is stuck."""
    started: list[tuple[Fleet, FakeNvml]] = []

    def start(
        scenario: dict[str, Any], *, kernel_log: str | None = None, **options: Any
    ) -> tuple[Fleet, FakeNvml]:
        fake = FakeNvml(tmp_path, scenario)
        fake.activate(monkeypatch)
        read = SessionOptions(slow_interval_seconds=0.2, sysfs=str(tmp_path / "sys"), **options)
        library = Library(str(fake.library))
        fleet = Fleet(library, read, clock, STALE_SECONDS, kernel_log=kernel_log)
        started.append((fleet, fake))
        fleet.start()
        return fleet, fake

    yield start
    for fleet, fake in started:
        fake.write({"devices": {"count": 1}})
        fleet.stop()
    wait_until(lambda: not gpu_threads(), what="for the workers to end")


@pytest.fixture(name="often")
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the GPUs ten times a second."""
    monkeypatch.setattr("exporter.sources.fleet.fleet.ENUMERATION_INTERVAL_SECONDS", 0.1)


def gpu_threads(name: str = "gpu-") -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]
