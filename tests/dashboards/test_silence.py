# SPDX-License-Identifier: Apache-2.0
"""Counters that stand still show nothing: neither 0 of what was not seen nor a NaN."""

from __future__ import annotations

from pathlib import Path

from exporter.exposition.catalogue import CATALOGUE
from tests.dashboards.models import NAMES, targets
from tests.dashboards.test_sums import substituted
from tests.rules.cases import GPU, counter, gauge, observed
from tests.rules.promtool import MINUTE, Expected, Series, check, total
from tests.rules.rules import RECORDED
from tests.rules.scrapes import Scrapes, of_demo

SILENT_SCRAPES = 13


def _demo_that_falls_silent() -> Scrapes:
    """Four minutes of the demo, and then the same page again and again."""
    scrapes, page = of_demo(CATALOGUE, 4 * MINUTE)
    for _ in range(SILENT_SCRAPES):
        scrapes.add(page)
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
