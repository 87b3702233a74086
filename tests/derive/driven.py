# SPDX-License-Identifier: Apache-2.0
"""The whole way from a driver's counters to the page, on a clock that only the test moves."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from exporter.clock import Clock
from exporter.exposition.parts import Node
from exporter.exposition.render import Renderer, RenderOptions, page
from exporter.model.reading import (
    Activity,
    Board,
    Device,
    Reading,
    ShareReading,
    SlotReport,
    Vitals,
)
from exporter.model.snapshot import Share, Snapshot
from exporter.model.training import TrainingReport, TrainingTotals
from exporter.publisher import Publisher, Rules
from exporter.sources.fleet.session import Session
from exporter.specs import load_specs
from tests.clocks import ManualClock
from tests.publisher.test_tick import Script
from tests.publisher.test_training import Jobs

SPECS = load_specs()


class Page:
    """The samples of one page, by name and labels."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @cached_property
    def _samples(self) -> dict[str, list[tuple[dict[str, str], float]]]:
        text = page(Renderer(RenderOptions()).blocks(Node(self._snapshot)), "text-0.0.4").decode()
        samples: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                samples.setdefault(sample.name, []).append((sample.labels, sample.value))
        return samples

    def __call__(self, name: str, **labels: str) -> float | None:
        """Return the one sample with these labels; None where there is none."""
        found = [
            value
            for own, value in self._samples.get(name, [])
            if all(own.get(label) == text for label, text in labels.items())
        ]
        assert len(found) <= 1, (name, labels, found)
        return found[0] if found else None

    def by(self, name: str, label: str) -> dict[str, float]:
        """Return the samples of a family by one of their labels."""
        return {own[label]: value for own, value in self._samples.get(name, [])}


class _Job(Jobs):
    """One training job, which reports at every round while it has a precision."""

    def __init__(self, clock: Clock, uuid: str) -> None:
        super().__init__()
        self._clock = clock
        self._uuid = uuid
        self.precision: str | None = None

    def reports(self) -> tuple[TrainingReport, ...]:
        if self.precision is None:
            return ()
        report = TrainingReport(
            report_id="a" * 32,
            job="resnet",
            rank=0,
            received_monotonic_seconds=self._clock.monotonic(),
            received_timestamp_seconds=self._clock.time(),
            totals=TrainingTotals(step_seconds=self._clock.monotonic()),
            device=self._uuid,
            verified=True,
            precision=self.precision,
        )
        return (report,)


class Driven:
    """A publisher and what it publishes of one GPU, interval by interval."""

    def __init__(self, clock: Clock, interval: float, uuid: str = "", **rules: Any) -> None:
        self.interval = interval
        self.job = _Job(clock, uuid)
        self._readers = Script(clock)
        self._publisher = Publisher(
            self._readers,
            SPECS,
            Rules(interval_seconds=interval, **rules),
            clock,
            training=(self.job,),
        )
        self.snapshot = Snapshot(0.0)

    def publish(self, reading: Reading) -> Snapshot:
        device = reading.device
        self._readers.slots[device.index] = SlotReport(device.index, device, reading, None, {})
        self.snapshot = self._publisher.tick()
        return self.snapshot

    @property
    def share(self) -> Share:
        return self.snapshot.gpus[0].shares[0]

    @property
    def page(self) -> Page:
        return Page(self.snapshot)


class Fake(Driven):
    """The GPU of a `Rig` of the fake driver, read by this exporter's own code."""

    def __init__(self, rig: Any, interval: float, **rules: Any) -> None:
        super().__init__(rig, interval, **rules)
        self._rig = rig
        self._session: Session = rig.session()
        self.publish(self._session.read())

    def run(self, seconds: float) -> Page:
        """Let so much time go by and return the page at its end."""
        for _ in range(round(seconds / self.interval)):
            self._rig.advance(self.interval)
            self.publish(self._session.read())
        return self.page


class Scripted(Driven):
    """A GPU whose readings the test writes."""

    def __init__(self, device: Device, interval: float, **rules: Any) -> None:
        self.clock = ManualClock()
        super().__init__(self.clock, interval, device.uuid, **rules)
        self.device = device
        self.read(None)

    def read(self, activity: Activity | None, counters: str | None = "gpm", **vitals: Any) -> Page:
        """Publish the reading at the end of an interval, and return the page."""
        if activity is not None or vitals:
            self.clock.advance(self.interval)
        self.publish(
            Reading(
                device=self.device,
                timestamp_seconds=self.clock.time(),
                monotonic_seconds=self.clock.monotonic(),
                vitals=Vitals(**vitals),
                board=Board(),
                shares=(ShareReading(activity=activity, processes=(), counters=counters),),
            )
        )
        return self.page


def device_of(key: str) -> Device:
    """A GPU of this model, as NVML reports it."""
    model = SPECS.models[key]
    clocks = model.peak_clock_hertz
    return Device(
        index=0,
        uuid=f"GPU-{key}",
        name=model.names[0],
        compute_capability=model.compute_capability,
        core_count=model.core_count,
        memory_bus_width_bits=model.memory_bus_width_bits,
        clock_max_hertz={"sm": clocks.get("vector", 2e9), "memory": clocks.get("memory", 2e9)},
        pcie_generation_max=model.pcie_generation,
        pcie_width_max=model.pcie_lanes,
    )
