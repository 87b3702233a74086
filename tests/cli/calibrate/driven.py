# SPDX-License-Identifier: Apache-2.0
"""A calibration on the fake driver: the real fleet reads a board whose truth is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exporter.cli.calibrate.child import Started, Work
from exporter.cli.calibrate.loads import Load
from exporter.cli.calibrate.loop import Bench, Calibration, Times, calibrate
from exporter.cli.calibrate.measure import Meter, await_one
from exporter.derive import IdleRules
from exporter.errors import ExporterError
from exporter.model.reading import Device
from exporter.sources.fleet.fleet import Fleet
from exporter.sources.fleet.session import SessionOptions
from exporter.sources.nvml.library import Library
from tests.cli.calibrate.truth import Active, Board
from tests.clocks import ManualClock
from tests.fake_nvml import FakeNvml
from tests.recordings import SPECS
from tests.waiting import wait_until

START = 1e6
OURS = {"pid": 4242, "bytes": 1 << 30}


class Rig:
    """One GPU of the fake driver, driven by the loads; time is moved by waiting."""

    def __init__(self, folder: Path, monkeypatch: Any, board: Board, **device: Any) -> None:
        self.board = board
        self.clock = ManualClock(START)
        self.said: list[str] = []
        self.began: list[str] = []
        self.closed = 0
        self.on_load: dict[str, Any] = {}
        """By load: what else changes on the device when it begins."""
        self.fails_at: str | None = None
        self._work, self._since = Work(0.0, 0.0, 0.0), 0.0
        self._load: Load | None = None
        idle = {"power": board.idle, "clocks": {"sm": 345}, "processes": {"compute": []}}
        scenario = {"devices": [{"product": "h100-sxm", **idle, **device}]}
        self.fake = FakeNvml(folder, scenario, clock=START)
        self.fake.activate(monkeypatch)
        self.fleet = Fleet(
            Library(str(self.fake.library)),
            # A folder without processes: those here have other names for these numbers.
            SessionOptions(slow_interval_seconds=1.0, counters=(), procfs=str(folder)),
            self.clock,
            600.0,
        )

    def wait(self, seconds: float) -> None:
        """Let time pass, for the driver too."""
        self.clock.advance(seconds)
        self.fake.set_clock(self.clock.time())

    def calibrate(self) -> Calibration:
        """Run it; afterwards the fleet has ended."""
        self.fleet.start()
        try:
            wait_until(lambda: self.fleet.reports() or self.fleet.problem)
            await_one(self.fleet, self.clock, self.wait)
            meter = Meter(self.fleet, self.clock, self.wait)
            bench = Bench(meter, IdleRules(), Times(10.0, 3.0), self.said.append)
            return calibrate(bench, self._loader, SPECS)
        finally:
            self.fleet.stop()

    def _loader(self, device: Device) -> Rig:
        assert device.uuid.startswith("GPU-")
        return self

    # What a Loader does.

    def start(self) -> Started:
        return Started("2.9.0", "bf16_tensor")

    def put(self, load: Load) -> None:
        if load.name == self.fails_at:
            raise ExporterError("CUDA out of memory")
        self.began.append(load.name)
        self._work, self._since, self._load = self.work(), self.clock.monotonic(), load
        active = self.board.active(load)
        self._drive(load, active)

    def _drive(self, load: Load, active: Active) -> None:
        hertz = self.board.hertz(load)
        self.fake.device(
            0,
            **{
                "power": self.board.watts(active, hertz),
                "utilization": 100 * active.utilization,
                "memory_utilization": 100 * self.board.memory_utilization(active),
                "clocks": {"sm": hertz / 1e6},
                "processes": {"compute": [OURS]},
                **self.on_load.get(load.name, {}),
            },
        )

    def work(self) -> Work:
        if self._load is None:
            return self._work
        seconds = self.clock.monotonic() - self._since
        return Work(
            self._work.seconds + seconds,
            self._work.flops + seconds * self.board.flops_per_second(self._load),
            self._work.bytes + seconds * self.board.bytes_per_second(self._load),
        )

    def close(self) -> None:
        self.closed += 1
