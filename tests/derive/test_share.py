# SPDX-License-Identifier: Apache-2.0
"""All derivations of one share together."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exporter.derive import Derived, IdleRules, derive_share
from exporter.derive.stall import Stall
from exporter.model.reading import Activity, Process, ShareReading, Utilization, Vitals
from exporter.model.snapshot import TIME_PARTS, Bounds
from tests.derive.readings import H100, H100_CEILINGS, counters, known

RULES = IdleRules()
BUSY = Vitals(
    utilization=Utilization(0.9, 0.95, 1.0, 0.4, 0.45),
    clock_hertz={"sm": 1.83e9, "memory": 2.619e9},
    throttle_reasons=frozenset({"sw_power_cap"}),
)


def test_a_measured_share() -> None:
    """Complete counters give a point, a partition, work and the limiter."""
    share = ShareReading(
        activity=counters(engine=0.95, sm=0.9, tensor=0.7, dram=0.3),
        counters="gpm",
        processes=(Process(1, "compute", command="python3"),),
    )
    derived = derive_share(H100, BUSY, share, H100_CEILINGS, RULES)
    assert (known(derived.saturation).ratio, known(derived.saturation).unit) == (0.7, "tensor")
    assert known(derived.time_parts).saturated == pytest.approx(0.7)
    assert known(derived.roofline).flops_per_second["bf16_tensor"] == pytest.approx(0.7 * 989.4e12)
    assert derived.flops_integral_bounds == known(derived.roofline).flops_bounds_per_second
    assert (derived.idle, derived.held, derived.limiter) == (False, True, "compute")


def test_counted_cycles_enter_the_work_and_bring_the_parts_to_time() -> None:
    """Half of the time at 1830 MHz and half at 345: 0.3 of 0.5 s of tensor work, no clock lost."""
    mean = (1.83e9 + 345e6) / 2
    busy = 0.5 * 1.83e9 / mean
    share = ShareReading(
        activity=counters(engine=0.5, sm=busy, tensor=0.6 * busy, elapsed_cycles=132 * mean),
        counters="gpm",
    )
    derived = derive_share(H100, BUSY, share, H100_CEILINGS, RULES)
    parts = known(derived.time_parts)
    assert (parts.idle, parts.narrow, parts.unsaturated) == pytest.approx((0.5, 0.0, 0.2))
    assert (parts.clock, parts.saturated) == pytest.approx((0.0, 0.3))
    assert known(derived.roofline).flops_per_second["bf16_tensor"] == pytest.approx(0.3 * 989.4e12)


def test_an_unmeasured_share_is_bounded() -> None:
    """Utilization gives bounds; the integral follows the mean, the gauge the upper value."""
    derived = derive_share(H100, BUSY, ShareReading(), H100_CEILINGS, RULES)
    assert derived.saturation is not None
    assert derived.saturation.source == "estimate"
    assert (derived.saturation.bounds.lower, derived.saturation.bounds.upper) == (0.0, 0.95)
    assert derived.time_parts is None
    gauge, integral = (
        known(known(derived.roofline).flops_bounds_per_second),
        known(derived.flops_integral_bounds),
    )
    assert integral.upper / gauge.upper == pytest.approx(0.91 / 0.95)
    assert derived.limiter == "clock"
    assert derived.held is None


def test_a_share_that_counters_measure_is_never_estimated() -> None:
    """The first tick of a counter source says nothing rather than flip between two methods."""
    derived = derive_share(H100, BUSY, ShareReading(counters="gpm"), H100_CEILINGS, RULES)
    assert derived == Derived(idle=False)


PARTS_OF = {
    "idle": ("idle",),
    "input": ("idle",),
    "latency": ("narrow", "unsaturated"),
    "communication": ("narrow", "unsaturated", "clock", "saturated"),
    "clock": ("clock",),
    "memory": ("saturated",),
    "compute": ("saturated",),
}
"""By limiter: the time parts that it is said of."""
MAYBE = st.none() | st.floats(0.0, 1.0)
UNREAD: dict[str, float | None] = dict.fromkeys(
    ("engine", "sm", "tensor", "fp64", "fp32", "fp16", "integer", "dram")
)


def some_parts(derived: Derived) -> dict[str, Bounds]:
    """Return bounds of the time parts, which are as narrow as can be where they are measured."""
    if derived.time_parts is None:
        return dict(derived.time_bounds)
    exact = {name: getattr(derived.time_parts, name) for name in TIME_PARTS}
    return {name: Bounds(ratio, ratio) for name, ratio in exact.items()}


@example(0.53125, 0.0, 0.0, 0.3e9, True, True, None, Stall(), None)
@example(0.0, 0.0, 0.0, 0.3e9, True, False, UNREAD | {"sm": 1.0}, Stall(), None)
@example(0.0, 0.0, 0.0, 0.3e9, True, False, UNREAD | {"dram": 0.5}, Stall(announced=1.0), None)
@example(0.5, 0.0, 0.0, 0.8e9, True, False, UNREAD | {"integer": 0.5}, Stall(announced=0.125), None)
@given(
    ratio=st.floats(0.0, 1.0),
    below=st.floats(0.0, 0.3),
    memory=st.floats(0.0, 1.0),
    hertz=st.sampled_from((0.3e9, 0.8e9, 1.2e9, 1.83e9, 1.98e9)),
    sampled=st.booleans(),
    throttled=st.booleans(),
    ratios=st.none() | st.fixed_dictionaries(dict.fromkeys(UNREAD, MAYBE)),
    stall=st.builds(Stall, of_idle=MAYBE, announced=st.floats(0.0, 1.0)),
    link_bytes=st.none() | st.floats(0.0, 50e9),
)
def test_a_limiter_may_be_the_largest_part(
    ratio: float,
    below: float,
    memory: float,
    hertz: float,
    sampled: bool,
    throttled: bool,
    ratios: dict[str, float | None] | None,
    stall: Stall,
    link_bytes: float | None,
) -> None:
    """Of the time that it is said of: its part may be a quarter, and as long as what each of the
    others is at least. That of an idle part is judged by the mean, of which the margin is open."""
    upper = min(1.0, ratio + below)
    vitals = Vitals(
        utilization=Utilization(
            ratio, upper, 1.0, memory, memory, lower_ratio=max(0.0, ratio - below)
        ),
        clock_hertz={"sm": hertz, "memory": 2.619e9},
        busy_sm_clock_hertz=hertz if sampled else None,
        throttle_reasons=frozenset({"sw_power_cap"} if throttled else ()),
        pcie_receive_bytes=link_bytes,
    )
    share = ShareReading()
    if ratios is not None:
        share = ShareReading(activity=Activity("dcgm", 1.0, **ratios), counters="dcgm")
    derived = derive_share(
        H100, vitals, share, H100_CEILINGS, RULES, previous=vitals, seconds=1.0, stall=stall
    )
    bounds = some_parts(derived)
    limiter = derived.limiter_besides or derived.limiter
    if not bounds or limiter in (None, "unknown"):
        return
    rest = 1.0 - derived.waited
    idle = bounds["idle"]
    of_rest = {
        **bounds,
        "idle": Bounds(max(0.0, idle.lower - derived.waited), idle.upper - derived.waited),
    }
    own = sum(of_rest[part].upper for part in PARTS_OF[limiter])
    assert own >= rest / 4 - 1e-9
    for parts in (("idle",), ("narrow", "unsaturated"), ("clock",), ("saturated",)):
        if not set(parts) & set(PARTS_OF[limiter]):
            assert own >= sum(of_rest[part].lower for part in parts) - 1e-9, parts


def test_a_mig_instance_takes_nothing_from_the_board_but_clocks() -> None:
    """The board's utilization, video engines and links are not the instance's."""
    mig = replace(H100, mig=True)
    board = replace(BUSY, decoder_ratio=0.9, pcie_receive_bytes=1e9)
    bare = derive_share(
        mig, board, ShareReading(gpu_instance=1, processes=()), H100_CEILINGS, RULES, seconds=1.0
    )
    assert bare == Derived(held=False)
    counted = derive_share(
        mig,
        board,
        ShareReading(gpu_instance=1, activity=counters(), counters="gpm"),
        H100_CEILINGS,
        RULES,
        previous=board,
        seconds=1.0,
    )
    assert counted.idle is True
    assert counted.limiter == "idle"


def test_a_guest_is_not_judged_by_its_neighbours() -> None:
    """In a vGPU guest utilization covers other guests: no estimate, no idle, limiter unknown."""
    guest = replace(H100, virtualized=True)
    derived = derive_share(guest, BUSY, ShareReading(), H100_CEILINGS, RULES)
    assert derived == Derived(limiter="clock")
    calm = replace(BUSY, throttle_reasons=None)
    assert derive_share(guest, calm, ShareReading(), H100_CEILINGS, RULES).limiter == "unknown"


def test_nothing_read_derives_nothing() -> None:
    """Unknown is absent."""
    assert derive_share(H100, Vitals(), ShareReading(), None, RULES) == Derived()
