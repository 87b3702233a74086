# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.derive import Derived
from exporter.model.reading import Activity, Utilization, Vitals
from exporter.model.snapshot import (
    LIMITERS,
    BoardTotals,
    Bounds,
    Roofline,
    Saturation,
    ShareTotals,
    TimeParts,
)
from exporter.publisher.board import BOARD_TOTALS, BoardIntegral, Tally
from exporter.publisher.totals import SHARE_TOTALS, ShareIntegral

ratios = st.floats(0, 1)
seconds = st.floats(0.01, 3.0)
PARTS = TimeParts(idle=0.1, narrow=0.2, unsaturated=0.3, clock=0.1, saturated=0.3)


def activity(ratio: float = 0.5, length: float = 1.0, **fields: float) -> Activity:
    return Activity(
        source="gpm",
        seconds=length,
        **dict.fromkeys(("engine", "sm", "dram", "tensor", "fp64", "fp32", "fp16"), ratio) | fields,
    )


def derived(**fields: object) -> Derived:
    defaults = Derived(
        saturation=Saturation("gpm", True, Bounds(0.3, 0.3), ratio=0.3, unit="tensor"),
        time_parts=PARTS,
        roofline=Roofline(flops_per_second={"bf16_tensor": 4e14}, dram_bytes_per_second=1e12),
        idle=False,
        held=True,
        limiter="compute",
        flops_integral_bounds=Bounds(1e14, 8e14),
    )
    return dataclasses.replace(defaults, **fields)  # type: ignore[arg-type]


def test_every_total_is_in_its_table() -> None:
    """A field of the snapshot that no row adds to would stay empty unnoticed."""
    kept = {"last_busy_timestamp_seconds", "idle_for_seconds"}
    shares = [field.name for field in dataclasses.fields(ShareTotals)]
    boards = [field.name for field in dataclasses.fields(BoardTotals)]

    assert list(SHARE_TOTALS) == [name for name in shares if name not in kept]
    assert list(dict.fromkeys(counter.field for counter in BOARD_TOTALS)) == boards


def test_totals_that_were_given_out_do_not_change() -> None:
    """A snapshot is read by other threads while the next interval is added."""
    integral = ShareIntegral(0.0)
    integral.add(None, activity(), derived(), None, 1.0)
    given = integral.totals()
    before = repr(given)
    integral.add(None, activity(), derived(), None, 2.0)

    assert repr(given) == before
    assert integral.totals().observed_seconds == {"activity": 2.0}


def test_a_measured_interval_adds_ratio_times_its_own_length() -> None:
    """Each total grows by ratio x the counters' own window, not by the poll interval."""
    integral = ShareIntegral(50.0)
    integral.add(None, activity(0.5, 2.0), derived(), None, 52.0)

    totals = integral.totals()

    assert totals.sm_active_seconds == 1.0
    assert totals.pipe_active_seconds == {"tensor": 1.0, "fp64": 1.0, "fp32": 1.0, "fp16": 1.0}
    assert totals.observed_seconds == {"activity": 2.0}
    assert totals.saturation_seconds == 0.6
    assert totals.flops == {"bf16_tensor": 8e14}
    assert (totals.flops_lower, totals.flops_upper) == (2e14, 16e14)
    assert totals.dram_bytes == 2e12
    assert totals.limited_seconds["compute"] == 2.0
    assert totals.last_busy_timestamp_seconds == 52.0


@pytest.mark.parametrize("length", [0.1, 0.7, 2.5])
def test_every_total_is_its_ratio_times_the_length(length: float) -> None:
    """Two intervals that are not a second: a product, and never a quotient or a plain sum."""
    integral = ShareIntegral(0.0)
    read = Activity(
        source="gpm",
        seconds=length,
        engine=0.9,
        sm=0.8,
        dram=0.3,
        tensor=0.6,
        fp64=0.05,
        fp32=0.2,
        fp16=0.1,
        integer=0.15,
        hmma=0.4,
        imma=0.1,
        dmma=0.07,
        dfma=0.03,
    )
    found = derived(
        roofline=Roofline(
            flops_per_second={"bf16_tensor": 4e14, "fp32": 1e13},
            dram_bytes_per_second=1e12,
            roof_ratio={"spec": 0.7, "clock": 0.6, "achievable": 0.9},
        ),
        idle=True,
    )
    for end in (1, 2):
        # The utilization covers another time than the counters.
        integral.add(Utilization(0.85, 0.9, 3.0), read, found, 70.0, 10.0 * end)
    totals = integral.totals()

    def twice(**ratios: float) -> dict[str, Any]:
        return {name: pytest.approx(2 * length * ratio) for name, ratio in ratios.items()}

    assert totals.busy_seconds == pytest.approx(2 * 0.85 * 3.0)
    assert totals.observed_seconds == {"utilization": 6.0, "activity": pytest.approx(2 * length)}
    assert totals.engine_active_seconds == pytest.approx(2 * length * 0.9)
    assert totals.sm_active_seconds == pytest.approx(2 * length * 0.8)
    assert totals.dram_active_seconds == pytest.approx(2 * length * 0.3)
    assert totals.pipe_active_seconds == twice(tensor=0.6, fp64=0.05, fp32=0.2, fp16=0.1, int=0.15)
    assert totals.tensor_op_active_seconds == twice(hmma=0.4, imma=0.1, dmma=0.07, dfma=0.03)
    assert totals.saturation_seconds == pytest.approx(2 * length * 0.3)
    assert totals.time_seconds == twice(
        idle=0.1, narrow=0.2, unsaturated=0.3, clock=0.1, saturated=0.3
    )
    assert totals.flops == twice(bf16_tensor=4e14, fp32=1e13)
    assert totals.flops_lower == pytest.approx(2 * length * 1e14)
    assert totals.flops_upper == pytest.approx(2 * length * 8e14)
    assert totals.dram_bytes == pytest.approx(2 * length * 1e12)
    assert totals.roof_seconds == twice(spec=0.7, clock=0.6, achievable=0.9)
    assert totals.limited_seconds == dict.fromkeys(LIMITERS, 0.0) | twice(compute=1.0)
    assert totals.idle_seconds == pytest.approx(2 * length)
    assert totals.held_idle_seconds == pytest.approx(2 * length)
    assert totals.idle_energy_joules == 140.0
    assert totals.idle_for_seconds == pytest.approx(2 * length)
    assert totals.last_busy_timestamp_seconds == 0.0


def test_busy_intervals_add_no_idle_time_and_no_idle_energy() -> None:
    """They keep the counters at 0, where they exist from the start."""
    integral = ShareIntegral(0.0)
    integral.add(None, activity(0.5, 2.5), derived(idle=False), 70.0, 3.0)
    totals = integral.totals()
    assert (totals.idle_seconds, totals.held_idle_seconds) == (0.0, 0.0)
    assert (totals.idle_energy_joules, totals.idle_for_seconds) == (0.0, 0.0)
    assert totals.last_busy_timestamp_seconds == 3.0


def test_each_wrong_ratio_is_counted() -> None:
    """Of engine, SM, DRAM, pipes and tensor operations; up to 1 % is rounding."""
    integral = ShareIntegral(0.0)
    wrong = activity(0.5, 0.5, engine=1.011, dram=1.2, fp32=1.3, fp16=1.009)
    integral.add(None, dataclasses.replace(wrong, imma=1.4), derived(), None, 1.0)
    assert integral.cuts == {"gpm": 4}
    totals = integral.totals()
    assert totals.engine_active_seconds == totals.dram_active_seconds == 0.5
    assert totals.tensor_op_active_seconds == {"imma": 0.5}


def test_every_limiter_is_there_at_zero_from_the_first_interval() -> None:
    """A series that first appears at its first event would have no increase."""
    integral = ShareIntegral(0.0)
    integral.add(None, activity(), derived(limiter="idle"), None, 1.0)

    assert set(integral.totals().limited_seconds) == set(LIMITERS)


def test_what_was_never_measured_is_absent() -> None:
    """A share without counters has utilization totals and nothing else."""
    integral = ShareIntegral(0.0)
    plain = Derived(idle=True, held=False, limiter="idle", flops_integral_bounds=Bounds(0.0, 1e13))
    integral.add(Utilization(0.25, 0.3, 2.0), None, plain, 100.0, 2.0)

    totals = integral.totals()

    assert totals.busy_seconds == 0.5
    assert totals.observed_seconds == {"utilization": 2.0}
    assert totals.engine_active_seconds is totals.saturation_seconds is totals.dram_bytes is None
    assert totals.pipe_active_seconds == totals.flops == totals.time_seconds == {}
    assert totals.flops_upper == 2e13
    assert totals.idle_seconds == 2.0
    assert totals.held_idle_seconds == 0.0
    assert totals.idle_energy_joules == 100.0
    assert totals.last_busy_timestamp_seconds == 0.0


def test_how_long_it_is_idle_is_what_was_seen_of_it() -> None:
    """Idle time adds up over idle intervals; work ends it, and so does not looking."""
    integral = ShareIntegral(0.0)
    assert integral.totals().idle_for_seconds is None
    resting = derived(idle=True)
    integral.add(None, activity(0.0, 2.0), resting, None, 2.0)
    integral.add(None, activity(0.0), resting, None, 3.0)
    assert integral.totals().idle_for_seconds == 3.0

    integral.end_idle(60.0)
    assert integral.totals().idle_for_seconds is None
    assert integral.totals().last_busy_timestamp_seconds == 60.0
    integral.add(None, activity(0.0), resting, None, 61.0)
    assert integral.totals().idle_for_seconds == 1.0
    assert integral.totals().idle_seconds == 4.0

    integral.add(None, activity(), derived(), None, 62.0)
    assert integral.totals().idle_for_seconds == 0.0


def test_an_activity_above_one_is_cut_and_counted() -> None:
    """Rounding up to 1 % is cut silently; more is counted as a wrong value."""
    integral = ShareIntegral(0.0)
    integral.add(None, activity(sm=1.005), derived(), None, 1.0)
    assert integral.cuts == {}
    integral.add(None, activity(sm=1.5), derived(), None, 2.0)

    assert integral.cuts == {"gpm": 1}
    assert integral.totals().sm_active_seconds == 2.0


@given(st.lists(st.tuples(ratios, seconds), min_size=1, max_size=20))
def test_totals_never_fall_and_never_exceed_the_observed_time(
    intervals: list[tuple[float, float]],
) -> None:
    """For any readings, counters are monotone and bounded by the time that was observed."""
    integral = ShareIntegral(0.0)
    last = integral.totals()
    for ratio, length in intervals:
        integral.add(Utilization(ratio, 1.0, length), activity(ratio, length), derived(), None, 1.0)
        totals = integral.totals()
        assert (totals.sm_active_seconds or 0) >= (last.sm_active_seconds or 0)
        assert (totals.busy_seconds or 0) >= (last.busy_seconds or 0)
        assert (totals.flops_upper or 0) >= (last.flops_upper or 0)
        last = totals
    observed = last.observed_seconds["activity"]
    assert last.sm_active_seconds is not None
    assert last.sm_active_seconds <= observed * (1 + 1e-9)
    assert sum(last.time_seconds.values()) == pytest.approx(observed)
    assert sum(last.limited_seconds.values()) == pytest.approx(observed)


def test_a_tally_keeps_to_the_driver_once_it_counted() -> None:
    """The driver's total is never mixed with our own sum, so the counter cannot jump."""
    tally = Tally()
    tally.follow(1000.0)
    tally.add(5.0)
    assert tally.value == 1000.0

    tally.follow(None)
    tally.add(5.0)
    assert tally.value is None

    tally.follow(1010.0)
    assert tally.value == 1010.0


def test_a_tally_keeps_to_our_sum_once_it_began() -> None:
    """A driver that starts to answer later does not make the counter jump."""
    tally = Tally()
    tally.add(5.0)
    tally.follow(1e6)
    tally.add(2.0)

    assert tally.value == 7.0


def test_what_we_began_to_count_we_count_on() -> None:
    """A driver that has no totals at first and has them later stops none of our own."""
    board = BoardIntegral()
    moved = activity(nvlink_transmit_bytes=7.0)
    holds = frozenset({"hw_slowdown"})
    board.add(Vitals(power_watts=100.0, throttle_reasons=holds), moved, 1.0)
    board.add(
        Vitals(
            power_watts=100.0,
            energy_joules=1e6,
            throttle_reasons=holds,
            throttle_seconds={"hw_slowdown": 1e6},
            nvlink_transmit_bytes_total=1e12,
        ),
        moved,
        1.0,
    )
    totals = board.totals()

    assert totals.energy_joules == 200.0
    assert totals.throttle_seconds["hw_slowdown"] == 2.0
    assert totals.nvlink_transmit_bytes == 14.0


@pytest.mark.parametrize("counted", [{}, {"transmit"}, {"receive"}, {"transmit", "receive"}])
def test_each_direction_of_pcie_is_counted_once(counted: set[str]) -> None:
    """By the counters where they give it, else by the driver's own readings; never by both."""
    board = BoardIntegral()
    vitals = Vitals(pcie_transmit_bytes=50.0, pcie_receive_bytes=60.0)
    moved = {"transmit": 3.0, "receive": 4.0}
    board.add(vitals, activity(**{f"pcie_{way}_bytes": moved[way] for way in counted}), 1.0)

    totals = board.totals()

    assert totals.pcie_transmit_bytes == (3.0 if "transmit" in counted else 50.0)
    assert totals.pcie_receive_bytes == (4.0 if "receive" in counted else 60.0)


def test_throttle_reasons_come_from_the_driver_where_it_counts_else_from_the_bits() -> None:
    """Each reason has one source; all eight exist from the first read on."""
    board = BoardIntegral()
    driver = {"sw_power_cap": 12.5}
    board.add(Vitals(throttle_seconds=driver, throttle_reasons=frozenset()), None, 0.0)
    board.add(
        Vitals(
            throttle_seconds={"sw_power_cap": 13.0},
            throttle_reasons=frozenset({"hw_slowdown", "sw_power_cap"}),
        ),
        None,
        1.0,
    )

    throttle = board.totals().throttle_seconds

    assert throttle["sw_power_cap"] == 13.0
    assert throttle["hw_slowdown"] == 1.0
    assert throttle["reliability"] == 0.0
    assert len(throttle) == 8


def test_energy_is_the_drivers_or_else_power_times_time() -> None:
    """GPUs before Volta have no energy counter; their power is integrated."""
    counted, summed = BoardIntegral(), BoardIntegral()
    counted.add(Vitals(energy_joules=5000.0, power_watts=100.0), None, 0.0)
    summed.add(Vitals(power_watts=100.0), None, 0.0)

    assert counted.add(Vitals(energy_joules=5090.0, power_watts=100.0), None, 1.0) == 90.0
    assert summed.add(Vitals(power_watts=120.0), None, 1.0) == 120.0
    assert counted.totals().energy_joules == 5090.0
    assert summed.totals().energy_joules == 120.0


def test_energy_that_was_not_read_is_of_no_interval() -> None:
    """What was used while it could not be read is in the total, but in no interval's energy."""
    board = BoardIntegral()
    board.add(Vitals(energy_joules=5000.0), None, 0.0)
    assert board.add(Vitals(power_watts=700.0), None, 1.0) is None
    assert board.totals().energy_joules is None
    assert board.add(Vitals(energy_joules=19000.0), None, 1.0) is None
    assert board.add(Vitals(energy_joules=19070.0), None, 1.0) == 70.0
    assert board.totals().energy_joules == 19070.0


def test_link_bytes_prefer_the_drivers_total_and_never_count_twice() -> None:
    """NVLink bytes of the fields win over GPM's rate; PCIe bytes of GPM over the fields'."""
    board = BoardIntegral()
    moved = activity(nvlink_transmit_bytes=7.0, pcie_transmit_bytes=3.0, pcie_receive_bytes=4.0)
    board.add(Vitals(nvlink_transmit_bytes_total=1000.0), None, 0.0)
    board.add(Vitals(nvlink_transmit_bytes_total=1100.0, pcie_transmit_bytes=50.0), moved, 1.0)

    totals = board.totals()

    assert totals.nvlink_transmit_bytes == 1100.0
    assert totals.nvlink_receive_bytes is None
    assert (totals.pcie_transmit_bytes, totals.pcie_receive_bytes) == (3.0, 4.0)
