# SPDX-License-Identifier: Apache-2.0
"""The bundled demo has a lost GPU for as long as the alert about it needs."""

from __future__ import annotations

from pathlib import Path

from exporter.exposition.pages import Pages
from exporter.exposition.render import RenderOptions
from exporter.publisher import Publisher, Rules
from exporter.sources.simulate import Simulation, load_scenario
from exporter.specs import load_specs
from tests.clocks import ManualClock
from tests.rules.promtool import MINUTE, STEP_SECONDS, Expected, check, selector
from tests.rules.scrapes import Scrapes

POLL_SECONDS = 15
NAMES = ("gpu_up", "roofline_exporter_reading_state", "gpu_xid_last_timestamp_seconds")


def test_the_lost_gpu_of_the_demo_raises_its_alert(tmp_path: Path) -> None:
    """Its GPU 7, and no other, while it is lost: by the Xid with which it was lost, once."""
    clock, book, pages = ManualClock(0.0, 0.0), load_specs(), Pages(RenderOptions())
    simulation = Simulation(load_scenario("demo", book), book, "host:19400", 0, clock)
    rules = Rules(interval_seconds=POLL_SECONDS)
    publisher = Publisher(simulation, book, rules, clock, (pages.publish,))
    scrapes = Scrapes("node-1:19400", NAMES)
    lost: list[float] = []
    while clock.time() < 15 * MINUTE:
        for _ in range(STEP_SECONDS // POLL_SECONDS):
            publisher.tick()
            clock.advance(POLL_SECONDS)
        scrapes.add(pages.page("text-0.0.4", zipped=False))
        (up,) = (
            one for one in scrapes.series() if (one.name, one.labels.get("gpu")) == ("gpu_up", "7")
        )
        if up.value(scrapes.end) == 0:
            lost.append(scrapes.end)
    for alerts, first in (
        (["GpuLost"], []),
        (["GpuXidCritical", "GpuLost"], [{"alertname": "GpuXidCritical", "xid": "79"}]),
    ):
        last = first or [{"alertname": "GpuLost"}]
        critical = {"alertstate": "firing", "severity": "critical", **up.labels}
        firing, then = (
            [(selector("ALERTS", dict(sorted({**critical, **each}.items()))), 1.0) for each in some]
            for some in (first, last)
        )
        query = 'ALERTS{alertname=~"GpuLost|GpuXidCritical", alertstate="firing"}'
        expected = [Expected(query, lost[0], firing), Expected(query, lost[-1], then)]
        check(tmp_path, alerts, scrapes.series(), expected)
