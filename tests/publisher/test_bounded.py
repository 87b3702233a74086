# SPDX-License-Identifier: Apache-2.0
"""Totals and means of what is only bounded, from readings through the publisher to the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.reading import Activity, Utilization
from exporter.model.snapshot import TIME_PARTS, Share
from tests.derive.driven import SPECS, Scripted, device_of
from tests.derive.readings import known

GPU = "a100-sxm4-80gb"
PEAK_CLOCKS = SPECS.models[GPU].peak_clock_hertz
SECONDS = 1.0
SLACK = 1e-9


class Work(NamedTuple):
    """One second of a GPU, at the clocks of the datasheet."""

    engine: float
    sm: float = 0.0
    tensor: float = 0.0
    dram: float = 0.0

    @property
    def parts(self) -> dict[str, float]:
        s = max(self.tensor, self.dram)
        m = max(self.sm, s)
        g = max(self.engine, m)
        return dict(zip(TIME_PARTS, (1 - g, g - m, m - s, 0.0, s), strict=True))


@st.composite
def works(draw: st.DrawFn) -> Work:
    ratio = st.floats(0.0, 1.0)
    engine = draw(ratio)
    sm = draw(ratio) * engine
    return Work(engine, sm, draw(ratio) * sm, draw(ratio) * engine)


class Bench(Scripted):
    """An A100 that is read once a second, with and without a counter source."""

    def __init__(self) -> None:
        super().__init__(device_of(GPU), SECONDS)

    def _read(self, utilization: Utilization | None, activity: Activity | None) -> Share:
        self.read(
            activity,
            counters=None,
            utilization=utilization,
            clock_hertz={"sm": PEAK_CLOCKS["vector"], "memory": PEAK_CLOCKS["memory"]},
            mean_sm_clock_hertz=PEAK_CLOCKS["vector"],
            busy_sm_clock_hertz=PEAK_CLOCKS["vector"],
        )
        return self.share

    def polled(self, work: Work, unknown: float = 0.0) -> Share:
        """A second of which only the utilization is read, its last `unknown` with the next one."""
        utilization = Utilization(
            work.engine,
            min(1.0, work.engine + unknown + 0.01),
            SECONDS,
            work.dram,
            min(1.0, work.dram + unknown + 0.01),
            lower_ratio=max(0.0, work.engine - unknown - 0.01),
        )
        return self._read(utilization, None)

    def counted(self, work: Work, *, complete: bool = False) -> Share:
        """A second of which counters are read: all, or those of dcgm-exporter's stock list."""
        more = {"sm": work.sm, "fp64": 0.0, "fma": 0.0} if complete else {}
        activity = Activity(
            "dcgm", SECONDS, engine=work.engine, tensor=work.tensor, dram=work.dram, **more
        )
        return self._read(None, activity)


def within(lower: Mapping[str, float], upper: Mapping[str, float], works: list[Work]) -> None:
    for part in TIME_PARTS:
        true = sum(work.parts[part] for work in works)
        assert lower[part] - SLACK <= true <= upper[part] + SLACK, part


@pytest.mark.parametrize("reads_counters", [False, True])
@given(intervals=st.lists(works(), min_size=1, max_size=30), begin=st.integers(0, 20))
def test_the_truth_lies_between_the_totals_over_any_window(
    intervals: list[Work], begin: int, reads_counters: bool
) -> None:
    """Whether only utilization is read or some of the counters: the growth of both totals holds
    what was, from any interval on, and the last ten seconds do."""
    bench = Bench()
    totals = [bench.share.totals]
    for work in intervals:
        share = bench.counted(work) if reads_counters else bench.polled(work, unknown=0.3)
        totals.append(share.totals)
    begin = min(begin, len(intervals) - 1)
    first, last = totals[begin], totals[-1]
    within(
        {p: last.time_lower_seconds[p] - first.time_lower_seconds.get(p, 0.0) for p in TIME_PARTS},
        {p: last.time_upper_seconds[p] - first.time_upper_seconds.get(p, 0.0) for p in TIME_PARTS},
        intervals[begin:],
    )
    recent = known(bench.share.recent)
    shown, length = recent.time_bounds, recent.seconds
    within(
        {part: bounds.lower * length for part, bounds in shown.items()},
        {part: bounds.upper * length for part, bounds in shown.items()},
        intervals[-round(length) :],
    )


def test_bounds_stand_still_while_the_parts_are_known() -> None:
    """A source that becomes complete: the counters of either kind never fall, and no second is in
    both."""
    bench = Bench()
    for _ in range(3):
        bench.counted(Work(0.9, 0.8, 0.5, 0.2))
    before = bench.share.totals
    for _ in range(3):
        bench.counted(Work(0.9, 0.8, 0.5, 0.2), complete=True)
    after = bench.share.totals
    assert after.time_upper_seconds == before.time_upper_seconds
    assert sum(after.time_seconds.values()) == pytest.approx(3.0)
    recent = known(bench.share.recent)
    assert recent.time_bounds == {}
    assert sum(recent.time_parts.values()) == pytest.approx(1.0)


def test_the_stock_list_of_dcgm_gives_a_region_on_the_roofline() -> None:
    """Tensor and DRAM are read: traffic and its point, work and intensity between bounds."""
    bench = Bench()
    for _ in range(12):
        share = bench.counted(Work(1.0, 0.9, 0.4, 0.5))
    recent = known(share.recent)
    for found in (share.roofline, recent):
        assert found is not None
        assert found.intensity_flops_per_byte is None
        assert found.dram_bounds_bytes_per_second is None
        work, bounds = (
            known(found.flops_bounds_per_second),
            known(found.intensity_bounds_flops_per_byte),
        )
        assert work.lower < 0.4 * 312e12 < work.upper
        assert bounds.lower == pytest.approx(work.lower / known(found.dram_bytes_per_second))
        assert bounds.upper == pytest.approx(work.upper / known(found.dram_bytes_per_second))
    assert share.limiter == "unknown"
    assert bench.counted(Work(1.0, 0.9, 0.4, 0.6)).limiter == "memory"
    assert bench.counted(Work(1.0, 0.9, 0.7, 0.6)).limiter == "compute"
