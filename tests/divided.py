# SPDX-License-Identifier: Apache-2.0
"""Nodes whose GPUs are divided by MIG: scenarios of the fake driver, and the real parts on them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pynvml
import pytest

from exporter.exposition.parts import Node
from exporter.exposition.render import Renderer, RenderOptions, page
from exporter.model.readers import NO_COUNTER_STATES, WorkloadSource
from exporter.model.reading import SlotReport, XidRecord
from exporter.model.snapshot import Gpu, Snapshot
from exporter.publisher import Publisher, Rules
from exporter.sources.fleet.problems import Problems
from exporter.sources.fleet.session import SessionOptions
from exporter.sources.fleet.slots import Reader, Slot, Slots
from exporter.sources.fleet.worker import Worker
from exporter.sources.nvml.library import Library
from exporter.specs import load_specs
from tests.fake_nvml import FakeNvml

START = 1_000_000.0
STALE_SECONDS = 3.0
SPECS = load_specs()
LINE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
LABEL = re.compile(r'(\w+)="([^"]*)"')

SIZES = {"1g.10gb": (16, 9728), "2g.20gb": (32, 19968), "3g.40gb": (60, 40448), "7g.80gb": (132, 1)}
"""By profile: SMs and MiB."""


def instance(gi: int, profile: str = "1g.10gb", ci: int = 0, **more: Any) -> dict[str, Any]:
    """A compute instance of a GPU instance; its UUID says which, unless `more` has another."""
    sm_count, memory_mb = SIZES[profile.partition(".")[2] if "c." in profile else profile]
    return {
        "gi": gi,
        "ci": ci,
        "profile": profile,
        "uuid": f"MIG-{profile}-{gi}-{ci}",
        "sm_count": sm_count,
        "memory_mb": memory_mb,
        "memory_used": 2**30,
        "gpm": {"graphics": 90, "sm": 80, "tensor": 50, "dram": 30},
        **more,
    }


SEVEN = [instance(number) for number in range(7, 14)]
"""An H100 in seven parts."""
MIXED = [instance(1, "3g.40gb"), instance(5, "2g.20gb"), instance(13, "1g.10gb")]
"""An A100 with mixed profiles."""
COMPUTE_INSTANCES = [
    instance(1, "1c.3g.40gb", 0),
    instance(1, "2c.3g.40gb", 1),
    instance(2, "3g.40gb"),
]
"""Two compute instances below one GPU instance."""

HEALTHY: dict[str, Any] = {
    "power": 500,
    "utilization": 60,
    "pcie": {"tx": 1e9, "rx": 2e9},
    "nvlink": {"tx": 3e9, "rx": 4e9},
    "throttle": {"power": 0.1},
    "gpm": {"graphics": 60, "sm": 50, "tensor": 40, "dram": 20},
}


class OpenSlots(Slots):
    """Lets every worker read its GPU, and keeps why workers want the library initialised again."""

    def __init__(self) -> None:
        super().__init__(Problems())
        self.lost_library: list[str] = []

    def may_read(self, worker: Reader, uuid: str) -> bool:
        return True

    def moved(self, slot: Slot, index: int) -> None:
        raise AssertionError(slot.name)

    def driver_lost(self, generation: int, slot: Slot, reason: str) -> None:
        self.lost_library.append(reason)

    def driver_answers(self, slot: Slot) -> None:
        """All is well."""


class DividedNode:
    """GPUs of the fake driver, each read by a real worker without its thread, and published.

    The clock only moves by `tick`.
    """

    name = "nvml"
    problem: str | None = None
    failed_initialisations = 0
    counter_states = NO_COUNTER_STATES

    def __init__(
        self,
        directory: Path,
        monkeypatch: pytest.MonkeyPatch,
        *devices: dict[str, Any],
        workloads: Sequence[WorkloadSource] = (),
        procfs: str = "/proc",
    ) -> None:
        self._now = START
        self.fake = FakeNvml(directory, {"devices": list(devices)}, clock=START)
        self.fake.activate(monkeypatch)
        library = Library(str(self.fake.library))
        library.start()
        shared = OpenSlots()
        self.lost_library = shared.lost_library
        self.xid_records: dict[str, dict[int, XidRecord]] = {}
        self.slots = [Slot(number, number) for number in range(len(devices))]
        options = SessionOptions(counters=("gpm",), procfs=procfs)
        self.workers = [
            Worker(slot, shared, library, 1, options, self, {}, STALE_SECONDS)
            for slot in self.slots
        ]
        for slot, worker in zip(self.slots, self.workers, strict=True):
            slot.current = worker
        self.publisher = Publisher(
            self, SPECS, Rules(interval_seconds=1.0), self, workloads=workloads
        )
        self._renderer = Renderer(RenderOptions())
        self._calls: dict[str, int] = {}

    # A clock.

    def time(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now - START

    # Readers of the publisher.

    def round(self, wait_seconds: float) -> None:
        for worker in self.workers:
            worker._work(worker._round)

    def reports(self) -> list[SlotReport]:
        return [slot.report() for slot in self.slots]

    def xids(self) -> dict[str, dict[int, XidRecord]]:
        return self.xid_records

    def devices(self) -> dict[str, int]:
        return {"nvml": len(self.slots)}

    # What tests do with it.

    def advance(self, seconds: float) -> None:
        self._now += seconds
        self.fake.set_clock(self._now)

    def tick(self, count: int = 1) -> Snapshot:
        """The snapshot after so many further seconds."""
        for _ in range(count):
            self.advance(1.0)
            self.snapshot = self.publisher.tick()
        return self.snapshot

    def gpu(self, index: int = 0) -> Gpu:
        """A GPU in the last snapshot."""
        return self.snapshot.gpus[index]

    def divide(self, instances: Sequence[dict[str, Any]], gpu: int = 0, *, on: int = 1) -> None:
        """Lay out a GPU anew; with `on=0` MIG is switched off."""
        self.fake.device(gpu, mig={"instances": list(instances), "current": on})

    def calls(self) -> dict[str, int]:
        """How often each driver function was called since this was asked last."""
        before, self._calls = self._calls, self.fake.calls()
        counts = {name: count - before.get(name, 0) for name, count in self._calls.items()}
        return {name: count for name, count in counts.items() if count}

    def page(self) -> str:
        """The page of metrics of the last snapshot."""
        return page(self._renderer.blocks(Node(self.snapshot)), "text-0.0.4").decode()

    def series(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """Each line of that page: name, labels, value."""
        for line in self.page().splitlines():
            found = LINE.match(line)
            if found is not None:
                labels = dict(LABEL.findall(found["labels"] or ""))
                yield found["name"], labels, float(found["value"])

    def instances_of(self, name: str) -> dict[str | None, float]:
        """The values of a family by GPU instance, of one without labels of its own."""
        return {
            labels.get("gpu_instance"): value
            for family, labels, value in self.series()
            if family == name
        }

    def close(self) -> None:
        """Give back what the driver holds."""
        for worker in self.workers:
            worker._close()
        pynvml._nvmlGetFunctionPointer_cache.clear()
