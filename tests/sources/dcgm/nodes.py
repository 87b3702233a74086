# SPDX-License-Identifier: Apache-2.0
"""Nodes with one GPU, as a publisher reads them, with a dcgm-exporter beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from exporter.model.readers import NO_COUNTER_STATES, CounterState
from exporter.model.reading import (
    Activity,
    Board,
    Device,
    Process,
    Reading,
    ShareReading,
    SlotReport,
    Utilization,
    Vitals,
    XidRecord,
)
from exporter.model.snapshot import Share
from exporter.publisher import Publisher, Rules
from exporter.sources.dcgm.dcgm_counters import PageSource
from exporter.sources.fleet.counters import Counters
from exporter.sources.interface import DCGM, CounterOptions, CounterRow, OpenedGpu
from exporter.sources.reading_state import Journal
from exporter.specs import load_specs
from tests.clocks import ManualClock
from tests.sources.dcgm.pages import FULL, READINGS, UUID, Rows, page
from tests.sources.dcgm.turns import Turns

SPECS = load_specs()
DEVICE = Device(
    index=0,
    uuid=UUID,
    name="NVIDIA A100-SXM4-80GB",
    compute_capability=(8, 0),
    power_default_limit_watts=400.0,
)


class OneGpu:
    """What a publisher wants of a node: a subclass's `round` sets the reading of its GPU."""

    name = "nvml"
    problem: str | None = None
    failed_initialisations = 0
    reading: Reading

    @property
    def counter_states(self) -> Mapping[str, CounterState]:
        return NO_COUNTER_STATES

    def xids(self) -> dict[str, dict[int, XidRecord]]:
        return {}

    def devices(self) -> dict[str, int]:
        return {"nvml": 1}

    def reports(self) -> list[SlotReport]:
        return [SlotReport(0, self.reading.device, self.reading, None, {})]


class Preferred:
    """A source like GPM: the mean since it last answered."""

    def __init__(self) -> None:
        self.answers = self.there = False
        self.since: float | None = None

    def measures(self, gpu_instance: int | None) -> bool:
        return self.there

    def read(self, monotonic_seconds: float) -> Mapping[int | None, Activity]:
        if not (self.there and self.answers):
            return {}
        since, self.since = self.since, monotonic_seconds
        if since is None:
            return {}
        ratios = dict.fromkeys(("engine", "sm", "tensor", "fp64", "fp32", "fp16", "dram"), 0.6)
        return {None: Activity("gpm", monotonic_seconds - since, **ratios)}

    def close(self) -> None:
        pass


class PageNode(OneGpu):
    """An A100 whose counters are on the page that `get` makes, beside a preferred source, and a
    publisher, on one clock."""

    fields: Mapping[int, float] = FULL
    working = True
    processes: Sequence[Process] = ()

    def __init__(self, clock: ManualClock, poll_seconds: float = 1.0) -> None:
        self.clock, self.poll = clock, poll_seconds
        self.preferred = Preferred()
        self.scrapes = 0
        options = CounterOptions(interval_seconds=poll_seconds, dcgm_url="http://a:1/m")
        self.source = PageSource(options, clock, lambda target: self.get(), lambda: 0.0)
        self.turns = Turns(self.source, clock)
        self.journal = Journal("GPU 0")
        gpu = OpenedGpu(None, DEVICE, (None,), self.journal, node={DCGM: self.source})
        row = CounterRow(DCGM, "", prepare=lambda options, clock: self.source)
        rows = [CounterRow("gpm", "", lambda gpu: self.preferred), row]
        self.counters = Counters(gpu, [each.name for each in rows], rows)
        self.publisher = Publisher(self, SPECS, Rules(interval_seconds=poll_seconds), clock)

    @property
    def counter_states(self) -> Mapping[str, CounterState]:
        state = self.source.state
        return {} if state is None else {DCGM: state}

    def renewal(self) -> float:
        """The number of the page that is there now."""
        return self.clock.monotonic() // 1.0

    def get(self) -> str:
        self.scrapes += 1
        return page(Rows(self.fields, READINGS | {"energy": self.renewal()}))

    def vitals(self) -> Vitals:
        """What NVML says in a round."""
        ratio = 0.95 if self.working else 0.0
        return Vitals(
            utilization=Utilization(ratio, min(ratio + 0.05, 1.0), 1.0),
            power_watts=300.0 if self.working else 60.0,
            clock_hertz={"sm": 1.4e9, "memory": 1.6e9},
        )

    def round(self, wait_seconds: float) -> None:
        now = self.journal.now = self.clock.monotonic()
        counted = self.counters.read(self.clock, worked_seconds=float(self.working))
        share = ShareReading(
            processes=tuple(self.processes),
            activity=counted.activities.get(None),
            counters=counted.sources.get(None),
        )
        self.reading = Reading(DEVICE, self.clock.time(), now, self.vitals(), Board(), (share,))

    def share(self, rounds: int = 1) -> Share:
        """After so many more rounds."""
        for _ in range(rounds):
            self.turns.advance(self.poll)
            self.snapshot = self.publisher.tick()
        return self.snapshot.gpus[0].shares[0]
