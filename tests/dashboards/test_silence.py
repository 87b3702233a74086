# SPDX-License-Identifier: Apache-2.0
"""Counters that stand still show nothing: neither 0 of what was not seen nor a NaN."""

from __future__ import annotations

from pathlib import Path

from exporter.exposition.catalogue import CATALOGUE
from exporter.exposition.pages import Pages
from exporter.exposition.render import RenderOptions
from exporter.publisher import Publisher, Rules
from exporter.sources.simulate import Simulation, load_scenario
from exporter.specs import load_specs
from tests.clocks import ManualClock
from tests.dashboards.models import NAMES, targets
from tests.dashboards.test_sums import substituted
from tests.rules.cases import GPU, counter, gauge, observed
from tests.rules.promtool import MINUTE, STEP_SECONDS, Expected, Series, check, total
from tests.rules.rules import RECORDED
from tests.rules.scrapes import Scrapes

POLL_SECONDS = 15
SILENT_SCRAPES = 13


def _demo_that_falls_silent() -> Scrapes:
    """Four minutes of the demo, and then the same page again and again."""
    clock, book, pages = ManualClock(0.0, 0.0), load_specs(), Pages(RenderOptions())
    simulation = Simulation(load_scenario("demo", book), book, "host:19400", 0, clock)
    publisher = Publisher(
        simulation,
        book,
        Rules(interval_seconds=POLL_SECONDS),
        clock,
        (pages.publish,),
        training=(simulation.jobs,),
    )
    scrapes = Scrapes("node-1:19400", CATALOGUE)
    while clock.time() < 4 * MINUTE:
        for _ in range(STEP_SECONDS // POLL_SECONDS):
            publisher.tick()
            clock.advance(POLL_SECONDS)
        scrapes.add(pages.page("text-0.0.4", zipped=False))
    for _ in range(SILENT_SCRAPES):
        scrapes.add(pages.page("text-0.0.4", zipped=False))
    return scrapes


def test_nothing_is_divided_by_no_time(tmp_path: Path) -> None:
    """No panel and no recorded series is NaN, which would hide the other GPUs in every mean."""
    scrapes = _demo_that_falls_silent()
    shown = [substituted(one.expression) for name in NAMES for one in targets(name)]
    expected = [
        Expected(f"({text}) unless abs({text}) < Inf", scrapes.end, [])
        for text in (*shown, *RECORDED)
    ]
    check(tmp_path, RECORDED, scrapes.series(), expected)


def test_a_gpu_that_lost_its_counters_has_bounds_again(tmp_path: Path) -> None:
    """Its counters stay where they were, and what is known now are its bounds."""
    lost_at = 10 * MINUTE

    series: list[Series] = [
        *observed(GPU, "utilization"),
        counter("gpu_observed_seconds_total", total((0, 1), (lost_at, 0)), reading="activity"),
        counter("gpu_saturation_seconds_total", total((0, 0.5), (lost_at, 0))),
        counter("gpu_time_seconds_total", total((0, 1), (lost_at, 0)), part="saturated"),
        gauge("gpu_saturation_ratio", lambda at: 0.5 if at < lost_at else None),
        gauge("gpu_saturation_lower_ratio", lambda at: 0.5 if at < lost_at else 0.0),
        gauge("gpu_saturation_upper_ratio", lambda at: 0.5 if at < lost_at else 0.75),
    ]
    page = {one.name: substituted(one.expression) for name in NAMES for one in targets(name)}
    for at, measured, most in ((lost_at, 0.5, None), (lost_at + 5 * MINUTE, None, 0.75)):
        of_gpu = {"gpu/Now/saturation": measured, "gpu/Now/saturation, at most": most}
        mean = {"fleet/Utilization beside saturation/saturation, at most": measured or most}
        expected = [
            Expected(f"sum({page[name]})", at, [] if value is None else [("{}", value)])
            for name, value in {**of_gpu, **mean}.items()
        ]
        check(tmp_path, [], series, expected)
