# SPDX-License-Identifier: Apache-2.0
"""Nodes with one GPU, as a publisher reads them, with a dcgm-exporter beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from exporter.model.readers import NO_COUNTER_STATES, CounterState
from exporter.model.reading import (
    Board,
    Device,
    Reading,
    ShareReading,
    SlotReport,
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
from tests.sources.dcgm.pages import UUID
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


class PageNode(OneGpu):
    """An A100 whose counters are on the page that `get` makes, and a publisher, on one clock."""

    def __init__(
        self, clock: ManualClock, poll_seconds: float = 1.0, preferred: Sequence[CounterRow] = ()
    ) -> None:
        self.clock, self.poll = clock, poll_seconds
        options = CounterOptions(interval_seconds=poll_seconds, dcgm_url="http://a:1/m")
        self.source = PageSource(options, clock, lambda target: self.get(), lambda: 0.0)
        self.turns = Turns(self.source, clock)
        self.journal = Journal("GPU 0")
        gpu = OpenedGpu(None, DEVICE, (None,), self.journal, node={DCGM: self.source})
        row = CounterRow(DCGM, "", prepare=lambda options, clock: self.source)
        rows = [*preferred, row]
        self.counters = Counters(gpu, [each.name for each in rows], rows)
        self.publisher = Publisher(self, SPECS, Rules(interval_seconds=poll_seconds), clock)

    def get(self) -> str:
        raise NotImplementedError

    def vitals(self) -> Vitals:
        """What NVML says in a round."""
        raise NotImplementedError

    def worked_seconds(self) -> float:
        """How long the GPU worked in a round, as far as it is known."""
        return 0.0

    def round(self, wait_seconds: float) -> None:
        now = self.journal.now = self.clock.monotonic()
        counted = self.counters.read(self.clock, worked_seconds=self.worked_seconds())
        share = ShareReading(
            activity=counted.activities.get(None), counters=counted.sources.get(None)
        )
        self.reading = Reading(DEVICE, self.clock.time(), now, self.vitals(), Board(), (share,))

    def share(self) -> Share:
        """After one more round."""
        self.turns.advance(self.poll)
        return self.publisher.tick().gpus[0].shares[0]
