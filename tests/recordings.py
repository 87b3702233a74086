# SPDX-License-Identifier: Apache-2.0
"""A node of fake GPUs on a clock that stands still, to be read, recorded and played.

``python -m tests.recordings FILE`` records its duty cycle; the committed sample was made so.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exporter.model.readers import Readers
from exporter.sources.fleet.fleet import Fleet
from exporter.sources.fleet.session import SessionOptions
from exporter.sources.nvml.library import Library
from exporter.sources.recording import LineFile, Recorder, header_of
from exporter.specs import load_specs
from tests.clocks import ManualClock
from tests.fake_nvml import FakeNvml, sine, square
from tests.waiting import wait_until

START = 1_000_000.0
TICKS = 30
SPECS = load_specs()
GIB = 2**30
DUTY_CYCLE: dict[str, Any] = {
    "driver_version": "580.95.05",
    "cuda_version": "13.0",
    "xids": [{"at": 12.5, "gpu": 1, "xid": 94}],
    "devices": [
        {
            "product": "h100-sxm",
            "utilization": square(period=10, duty=0.6, high=100),
            "memory_utilization": square(period=10, duty=0.6, high=40),
            "power": square(period=10, duty=0.6, high=640, low=110),
            "temperature": {"gpu": sine(30, 60, 8), "memory": sine(30, 70, 6)},
            "memory": {"used": square(period=20, duty=0.5, high=60 * GIB, low=2 * GIB)},
            "throttle": {"power": square(period=10, duty=0.3, high=0.5)},
            "nvlink": {"links": 18, "tx": sine(12, 4e10, 1e10), "rx": 3e10},
            "pcie": {"tx": 2e9, "rx": 1e9, "replays": {"steps": [[0, 0], [8, 3]]}},
            "ecc": {
                "volatile": {"corrected": {"dram": {"steps": [[0, 1], [11, 4]]}, "sram": 0}},
                "aggregate": {"corrected": {"dram": 9, "sram": 0}},
            },
            "gpm": {
                "graphics": square(period=10, duty=0.6, high=98),
                "sm": square(period=10, duty=0.6, high=88),
                "occupancy": square(period=10, duty=0.6, high=31),
                "tensor": square(period=10, duty=0.6, high=52),
                "hmma": square(period=10, duty=0.6, high=52),
                "dram": square(period=10, duty=0.6, high=37),
                "fp64": 0,
                "fp32": square(period=10, duty=0.6, high=9),
                "fp16": square(period=10, duty=0.6, high=2),
                "int": square(period=10, duty=0.6, high=14),
            },
            "processes": {"compute": [{"pid": 4242, "bytes": 60 * GIB}]},
        },
        {
            "product": "h100-sxm",
            "utilization": 3,
            "power": 90,
            "gpm": {"supported": False},
            "lost": {"steps": [[0, 0], [20, 1]]},
        },
    ],
}


class Node:
    """The driver's own readers on a fake driver; one clock for both."""

    def __init__(self, directory: Path, scenario: Mapping[str, Any] = DUTY_CYCLE) -> None:
        self.fake = FakeNvml(directory, scenario, clock=START)
        self.clock = ManualClock(START, 100.0)
        self.fleet = Fleet(
            Library(str(self.fake.library)),
            SessionOptions(slow_interval_seconds=5.0, procfs=str(directory)),
            self.clock,
            3.0,
        )

    def start(self, gpus: int) -> None:
        """Start the fleet; return once it has found its GPUs."""
        self.fleet.start()
        wait_until(lambda: len(self.fleet.reports()) == gpus, what="for the GPUs")

    def advance(self, seconds: float) -> None:
        """Move both clocks on."""
        self.clock.advance(seconds)
        self.fake.set_clock(self.clock.time())


def recorder_of(readers: Readers, clock: ManualClock, path: Path, interval: float) -> Recorder:
    """Begin a recording that starts now."""
    header = header_of(readers, SPECS, interval, clock.time())
    return Recorder(LineFile(path), header, clock, clock.monotonic())


def _main(path: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        node = Node(Path(directory))
        os.environ |= node.fake.environment()
        node.start(2)
        node.fleet.round(5.0)
        recorder = recorder_of(node.fleet, node.clock, path, 1.0)
        for _ in range(TICKS):
            node.advance(1.0)
            node.fleet.round(5.0)
            recorder.take(node.fleet)
        recorder.end()
        node.fleet.stop()


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
