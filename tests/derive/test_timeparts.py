# SPDX-License-Identifier: Apache-2.0
"""What follows for time parts and limiter where not every unit was read: bounds that hold.

A true interval is drawn, some of it is hidden, and what is left must not contradict it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from exporter.derive.clocks import Clocks, clock_ratio
from exporter.derive.limiter import estimated_limiter
from exporter.derive.saturation import DRAM_MARGIN_RATIO, estimated, measured
from exporter.derive.timeparts import Known, known_by_counters, known_by_utilization, observed
from exporter.model.reading import Activity, Utilization
from exporter.model.snapshot import TIME_PARTS, Bounds, Saturation
from tests.derive.readings import known

RATIO = st.floats(0.0, 1.0)
PIPES = ("tensor", "fp64", "fma", "int")
SLACK = 1e-9


@dataclass(frozen=True)
class Truth:
    """One interval as it was."""

    engine: float
    sm: float
    units: Mapping[str, float]
    fp32: float
    fp16: float
    memory: float
    """The driver's memory utilization."""

    @property
    def saturation(self) -> float:
        return max(self.units.values())

    def parts(self, clocks: Clocks) -> dict[str, float]:
        s = self.saturation
        unit = max(self.units, key=lambda name: (self.units[name], name == "dram"))
        r = known(clock_ratio(unit, clocks))
        m = max(self.sm, s)
        g = max(self.engine, m)
        return {
            "idle": 1 - g,
            "narrow": g - m,
            "unsaturated": m - s,
            "clock": s * (1 - r),
            "saturated": s * r,
        }


@st.composite
def truths(draw: st.DrawFn) -> Truth:
    """What hardware can do: pipe <= SM <= engine; DRAM as the driver's figures allow it."""
    engine, memory = draw(RATIO), draw(RATIO)
    sm = draw(RATIO) * engine
    fp32, fp16 = draw(RATIO) * sm, draw(RATIO) * sm
    most = min(sm, fp32 + fp16)
    fma = max(fp32, fp16) + draw(RATIO) * (most - max(fp32, fp16))
    dram = draw(RATIO) * min(1.0, max(engine, memory + DRAM_MARGIN_RATIO))
    units = {
        "tensor": draw(RATIO) * sm,
        "fp64": draw(RATIO) * sm,
        "fma": fma,
        "int": draw(RATIO) * sm,
        "dram": dram,
    }
    return Truth(engine, sm, units, fp32, fp16, memory)


@st.composite
def clocks(draw: st.DrawFn) -> Clocks:
    sm = draw(st.floats(1e8, 2e9))
    return Clocks(
        sm=sm,
        sm_busy=sm,
        sm_max=2e9,
        memory=draw(st.floats(4e8, 3e9)),
        tensor_reference=1.7e9,
        vector_reference=2e9,
        memory_reference=2.6e9,
    )


def counted(truth: Truth, hidden: set[str], *, together: bool) -> Activity:
    """The counters of a source that reads all but `hidden`."""
    units = truth.units
    values: dict[str, Any] = {
        "engine": truth.engine,
        "sm": truth.sm,
        "tensor": units["tensor"],
        "fp64": units["fp64"],
        "integer": units["int"],
        "dram": units["dram"],
    }
    values |= {"fma": units["fma"]} if together else {"fp32": truth.fp32, "fp16": truth.fp16}
    return Activity("dcgm", 1.0, **{k: v for k, v in values.items() if k not in hidden})


def polled(truth: Truth, below: float, above: float) -> Utilization:
    upper = min(1.0, truth.engine + above)
    return Utilization(
        truth.engine,
        upper,
        1.0,
        truth.memory,
        truth.memory,
        lower_ratio=max(0.0, truth.engine - below),
    )


def holds(bounds: Mapping[str, Bounds], parts: Mapping[str, float], slack: float = SLACK) -> None:
    assert tuple(bounds) == TIME_PARTS
    for part, true in parts.items():
        assert bounds[part].lower - slack <= true <= bounds[part].upper + slack, part


def judged(known: Known, busy: float, *, throttled: bool, waited: float = 0.0) -> str:
    return estimated_limiter(busy, throttled=throttled, known=known, waited=waited)


def never_wrong(name: str, truth: Truth, parts: Mapping[str, float], rest: float = 1.0) -> None:
    """A word that is certain is so by the truth: of more than half of what is judged."""
    half = rest / 2 - SLACK
    if name == "memory":
        assert truth.units["dram"] > half
    elif name == "compute":
        assert max(truth.units[pipe] for pipe in PIPES) > half
    elif name == "latency":
        assert parts["narrow"] + parts["unsaturated"] > half
    else:
        assert name in ("idle", "clock", "unknown")


partial = st.sets(
    st.sampled_from(("engine", "sm", "tensor", "fp64", "fp32", "fp16", "fma", "integer", "dram")),
    min_size=1,
)


@given(
    truth=truths(),
    clock=clocks(),
    hidden=partial,
    together=st.booleans(),
    reads_utilization=st.booleans(),
    below=RATIO,
    above=RATIO,
    throttled=st.booleans(),
)
def test_what_counters_leave_out_is_bounded(
    truth: Truth,
    clock: Clocks,
    hidden: set[str],
    together: bool,
    reads_utilization: bool,
    below: float,
    above: float,
    throttled: bool,
) -> None:
    """Whatever a source does not read: each time part lies within its bounds, and the limiter
    names nothing that it was not."""
    activity = counted(truth, hidden, together=together)
    driver = polled(truth, below, above) if reads_utilization else None
    saturation = measured(activity, (9, 0), utilization=driver)
    assume(not saturation.complete)
    known = known_by_counters(activity, saturation, clock, driver, (9, 0))
    parts = truth.parts(clock)

    holds(known.time_parts, parts)
    s = truth.saturation
    assert saturation.bounds.lower - SLACK <= s <= saturation.bounds.upper + SLACK
    for name, unit in known.units.items():
        assert unit.lower - SLACK <= truth.units[name] <= unit.upper + SLACK
    never_wrong(judged(known, truth.engine, throttled=throttled), truth, parts)


@given(
    truth=truths(),
    clock=clocks(),
    sampled=st.booleans(),
    below=RATIO,
    above=RATIO,
    by_power=st.none() | st.tuples(RATIO, RATIO),
    waited=RATIO,
    throttled=st.booleans(),
)
def test_what_the_utilization_leaves_open_is_bounded(
    truth: Truth,
    clock: Clocks,
    sampled: bool,
    below: float,
    above: float,
    by_power: tuple[float, float] | None,
    waited: float,
    throttled: bool,
) -> None:
    """With nothing but the utilization of the interval, and with a narrower estimate of the same
    interval; with a clock that was sampled while the GPU was busy, or not."""
    driver = polled(truth, below, above)
    saturation, s = estimated(driver), truth.saturation
    if by_power is not None:
        least, most = by_power
        narrower = Bounds(least * s, s + most * (saturation.bounds.upper - s))
        saturation = Saturation("estimate", False, narrower, unmeasured=saturation.unmeasured)
    parts = truth.parts(clock)
    seen = clock if sampled else replace(clock, sm_busy=None)
    known = known_by_utilization(driver, saturation, seen)

    holds(known.time_parts, parts)
    holds(known_by_utilization(driver, estimated(driver), seen).time_parts, parts)
    waited *= 1.0 - max(truth.engine, s)
    if waited < 1.0:
        name = judged(known, truth.engine, throttled=throttled, waited=waited)
        never_wrong(name, truth, parts, 1.0 - waited)


def test_the_idle_part_of_an_estimate_is_as_certain_as_its_utilization() -> None:
    """Nothing else is known of it, and of the other parts only that they are no longer."""
    clock = Clocks(sm=1e9, sm_busy=1e9, memory=2.6e9, memory_reference=2.6e9, vector_reference=2e9)
    driver = Utilization(0.6, 0.7, 1.0, 0.1, 0.1, lower_ratio=0.5)
    saturation = estimated(driver, tensor_cores=False)
    parts = known_by_utilization(driver, saturation, clock).time_parts
    assert (parts["idle"].lower, parts["idle"].upper) == pytest.approx((0.3, 0.5))
    assert [parts[part].lower for part in TIME_PARTS[1:]] == [0.0] * 4
    assert [parts[part].upper for part in TIME_PARTS[1:]] == pytest.approx([0.7, 0.7, 0.35, 0.7])
    seen = observed(driver)
    seen_parts = known_by_utilization(seen, estimated(seen), clock).time_parts
    assert (seen_parts["idle"].lower, seen_parts["idle"].upper) == pytest.approx((0.39, 0.41))


@pytest.mark.parametrize(
    ("units", "saturation", "clock", "throttled", "expected"),
    [
        ({"dram": (0.6, 0.9)}, (0.6, 0.9), (1.0, 1.0), False, "memory"),
        ({"tensor": (0.6, 0.9)}, (0.6, 0.9), (0.6, 1.0), True, "compute"),
        ({"tensor": (0.6, 0.9), "dram": (0.7, 0.7)}, (0.7, 0.9), (1.0, 1.0), False, "memory"),
        ({"tensor": (0.8, 0.9), "dram": (0.7, 0.7)}, (0.8, 0.9), (1.0, 1.0), False, "compute"),
        ({"tensor": (0.4, 0.9), "dram": (0.3, 0.9)}, (0.6, 0.9), (1.0, 1.0), False, "unknown"),
        ({"tensor": (0.6, 0.9)}, (0.6, 0.9), (0.3, 0.4), False, "clock"),
        ({"tensor": (0.6, 0.9)}, (0.6, 0.9), (0.3, 0.8), True, "clock"),
        ({"tensor": (0.6, 0.9)}, (0.6, 0.9), (0.3, 0.8), False, "compute"),
        ({}, (0.0, 0.4), (1.0, 1.0), True, "latency"),
        ({}, (0.0, 0.6), (0.3, 1.0), True, "clock"),
        ({}, (0.0, 0.6), (0.5, 1.0), True, "unknown"),
        ({}, (0.0, 0.3), (0.3, 1.0), True, "latency"),
        ({}, (0.0, 0.6), (1.0, 1.0), True, "unknown"),
        ({}, (0.0, 0.6), (1.0, 1.0), False, "unknown"),
    ],
)
def test_what_is_mostly_so_names_the_limiter(
    units: dict[str, tuple[float, float]],
    saturation: tuple[float, float],
    clock: tuple[float, float],
    throttled: bool,
    expected: str,
) -> None:
    """A unit that works for more than half of the time, whatever the others do; neither of two of
    which only one must; latency where G - s is certainly more than half."""
    each = dict.fromkeys((*PIPES, "dram"), (0.0, saturation[1])) | units
    known = Known(
        engine=Bounds(0.95, 1.0),
        sm=Bounds(0.0, 1.0),
        saturation=Bounds(*saturation),
        units={name: Bounds(*ends) for name, ends in each.items()},
        clock_ratio=Bounds(*clock),
    )
    assert estimated_limiter(0.95, throttled=throttled, known=known) == expected
    assert estimated_limiter(0.4, throttled=throttled, known=known) == "idle"
    waits = estimated_limiter(0.4, throttled=throttled, known=known, stall_of_idle=0.5)
    assert waits == "input"


def test_latency_is_not_told_from_communication_while_links_are_busy() -> None:
    """Pipes that are not read may be quiet, which makes it communication."""
    quiet = dict.fromkeys((*PIPES, "dram"), Bounds(0.0, 0.3))
    known = Known(Bounds(1, 1), Bounds(0, 1), Bounds(0.0, 0.3), quiet, Bounds(1, 1))
    assert estimated_limiter(1.0, throttled=False, known=known) == "latency"
    for throttled in (False, True):
        busy = estimated_limiter(1.0, throttled=throttled, known=known, links_busy=True)
        assert busy == "unknown"
