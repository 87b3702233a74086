# SPDX-License-Identifier: Apache-2.0
"""A simulated node and its publisher, ticked by hand."""

from __future__ import annotations

from exporter.model.snapshot import Snapshot
from exporter.publisher import Publisher, Rules
from exporter.sources.simulate import Simulation, load_scenario
from exporter.sources.simulate.scenario import Scenario, _Reader
from exporter.specs import load_specs
from exporter.yaml_lines import loads
from tests.clocks import ManualClock

BOOK = load_specs()
H100 = "spec: h100-sxm5-80gb"


def scenario(text: str) -> Scenario:
    """Return a scenario as its file would say it."""
    return Scenario("test", _Reader(loads(text, "s.yaml"), BOOK).gpus())


class Played:
    """A node that plays a scenario: a bundled one by its name."""

    def __init__(
        self, what: Scenario | str = "demo", interval_seconds: float = 1.0, *, jobs: bool = True
    ) -> None:
        """Without `jobs` it has no client in its training jobs."""
        self.clock = ManualClock()
        self._interval = interval_seconds
        played = load_scenario(what, BOOK) if isinstance(what, str) else what
        self.simulation = Simulation(played, BOOK, "host:19400", 0, self.clock)
        self.publisher = Publisher(
            self.simulation,
            BOOK,
            Rules(interval_seconds=interval_seconds),
            self.clock,
            training=[self.simulation.jobs] if jobs else [],
            workloads=self.simulation.workloads,
        )

    def tick(self, seconds: float | None = None) -> Snapshot:
        """Return the snapshot so many seconds later."""
        self.clock.advance(self._interval if seconds is None else seconds)
        return self.publisher.tick()
