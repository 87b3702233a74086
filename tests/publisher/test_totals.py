# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.derive import Derived
from exporter.model.reading import Activity, Utilization, Vitals
from exporter.model.snapshot import (
    BoardTotals,
    Bounds,
    Roofline,
    Saturation,
    ShareTotals,
    TimeParts,
)
from exporter.publisher.board import BOARD_TOTALS, BoardIntegral, EnergyHistory
from exporter.publisher.shared_time import SharedTime
from exporter.publisher.skipped_rounds import CountersOrDriver
from exporter.publisher.totals import SHARE_TOTALS, ShareIntegral

ratios = st.floats(0, 1)
seconds = st.floats(0.01, 3.0)
PARTS = TimeParts(idle=0.1, narrow=0.2, unsaturated=0.3, clock=0.1, saturated=0.3)


def activity(ratio: float = 0.5, length: float = 1.0, **fields: float | None) -> Activity:
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
    """A field without a row would stay empty unnoticed."""
    kept = {
        "ran_seconds",
        "last_busy_timestamp_seconds",
        "idle_for_seconds",
        "seen_busy_timestamp_seconds",
        "allocated_unopened_seconds",
        "unopened_for_seconds",
        "since_timestamp_seconds",
        "data_stall_lower_seconds",
        "data_stall_upper_seconds",
    }
    shares = [field.name for field in dataclasses.fields(ShareTotals)]
    boards = [
        field.name for field in dataclasses.fields(BoardTotals) if field.name != "energy_is_power"
    ]

    assert list(SHARE_TOTALS) == [name for name in shares if name not in kept]
    assert list(dict.fromkeys(counter.field for counter in BOARD_TOTALS)) == boards


def test_totals_that_were_given_out_do_not_change() -> None:
    """Other threads read a snapshot while the next interval is added."""
    integral = ShareIntegral(0.0)
    integral.add(None, activity(), derived(), None, 1.0)
    given = integral.totals()
    before = repr(given)
    integral.add(None, activity(), derived(), None, 2.0)

    assert repr(given) == before
    assert integral.totals().observed_seconds == {"activity": 2.0}


lengths = st.sampled_from((0.1, 0.25, 1.0, 2.5, 10.0))
"""Poll intervals; where all are 1 s a rate, its integral and its quotient look the same."""


@given(st.lists(st.tuples(lengths, lengths, ratios, st.booleans()), min_size=1, max_size=8))
def test_every_total_is_the_sum_of_rate_times_time(
    intervals: list[tuple[float, float, float, bool]],
) -> None:
    """Whatever the lengths of the intervals; the utilization covers another time than the
    counters, and energy is no rate."""
    integral = ShareIntegral(0.0)
    for counted, polled, x, idle in intervals:
        parts = TimeParts(idle=x, narrow=(1 - x) / 2, unsaturated=(1 - x) / 2, clock=0, saturated=0)
        integral.add(
            Utilization(x / 3, 1.0, polled),
            activity(x, counted, integer=x / 2, hmma=x / 4, dram=x / 5, engine=x / 6, sm=x / 7),
            derived(
                saturation=Saturation("gpm", True, Bounds(x / 8, x), ratio=x / 8, unit="tensor"),
                time_parts=parts,
                roofline=Roofline(
                    flops_per_second={"fp32": 9 * x, "fp64": 8 * x},
                    dram_bytes_per_second=7 * x,
                    roof_ratio={"spec": 3 * x, "clock": 2 * x},
                ),
                idle=idle,
                held=x > 0.5,
                limiter="memory" if idle else "latency",
                flops_integral_bounds=Bounds(5 * x, 6 * x),
            ),
            11 * x,
            1.0,
        )

    def sums(per_second: float) -> Any:
        return pytest.approx(sum(counted * x * per_second for counted, _, x, _ in intervals))

    def when(chosen: Callable[[float, bool], bool]) -> Any:
        return pytest.approx(sum(time for time, _, x, idle in intervals if chosen(x, idle)))

    totals = integral.totals()
    assert totals.busy_seconds == pytest.approx(sum(t * x / 3 for _, t, x, _ in intervals))
    assert totals.observed_seconds == {
        "utilization": pytest.approx(sum(polled for _, polled, _, _ in intervals)),
        "activity": when(lambda x, idle: True),
    }
    assert totals.engine_active_seconds == sums(1 / 6)
    assert totals.sm_active_seconds == sums(1 / 7)
    assert totals.dram_active_seconds == sums(1 / 5)
    pipes = dict.fromkeys(("tensor", "fp64", "fp32", "fp16"), sums(1)) | {"int": sums(1 / 2)}
    assert totals.pipe_active_seconds == pipes
    assert totals.tensor_op_active_seconds == {"hmma": sums(1 / 4)}
    assert totals.saturation_seconds == sums(1 / 8)
    assert totals.time_seconds["idle"] == sums(1)
    assert sum(totals.time_seconds.values()) == when(lambda x, idle: True)
    assert totals.flops == {"fp32": sums(9), "fp64": sums(8)}
    assert (totals.flops_lower, totals.flops_upper) == (sums(5), sums(6))
    assert totals.dram_bytes == sums(7)
    assert totals.roof_seconds == {"spec": sums(3), "clock": sums(2)}
    assert totals.limited_seconds["memory"] == when(lambda x, idle: idle)
    assert totals.limited_seconds["latency"] == when(lambda x, idle: not idle)
    assert totals.idle_seconds == when(lambda x, idle: idle)
    assert totals.held_idle_seconds == when(lambda x, idle: idle and x > 0.5)
    assert totals.idle_energy_joules == pytest.approx(
        sum(11 * x for _, _, x, idle in intervals if idle)
    )
    assert totals.held_idle_energy_joules == pytest.approx(
        sum(11 * x for _, _, x, idle in intervals if idle and x > 0.5)
    )


@given(st.lists(st.tuples(lengths, ratios, st.booleans()), min_size=1, max_size=8))
def test_our_board_totals_are_the_sum_of_rate_times_time(
    intervals: list[tuple[float, float, bool]],
) -> None:
    """Where the driver has no counters; bytes are amounts already, and no rates."""
    board = BoardIntegral()
    for length, x, throttled in intervals:
        used = board.add(
            Vitals(
                power_watts=700 * x,
                throttle_reasons=frozenset({"sw_thermal"} if throttled else ()),
                pcie_receive_bytes=5 * x,
            ),
            activity(length=length, pcie_transmit_bytes=3 * x, c2c_receive_bytes=2 * x),
            length,
        )

    totals = board.totals()
    energies = [700 * x * length for length, x, _ in intervals]
    assert totals.energy_joules == pytest.approx(sum(energies))
    if len(intervals) > 1:
        assert used == pytest.approx(energies[-1])
    assert totals.throttle_seconds["sw_thermal"] == pytest.approx(
        sum(length for length, _, throttled in intervals if throttled)
    )
    assert totals.throttle_seconds["hw_thermal"] == 0
    assert totals.pcie_transmit_bytes == pytest.approx(sum(3 * x for _, x, _ in intervals))
    assert totals.pcie_receive_bytes == pytest.approx(sum(5 * x for _, x, _ in intervals))
    assert totals.c2c_receive_bytes == pytest.approx(sum(2 * x for _, x, _ in intervals))


def test_what_we_began_to_count_we_count_on() -> None:
    """Totals that the driver reports later do not replace our own sums."""
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
    assert totals.energy_is_power
    assert totals.throttle_seconds["hw_slowdown"] == 2.0
    assert totals.nvlink_transmit_bytes == 14.0


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


def test_energy_that_was_not_read_is_of_no_interval() -> None:
    """What was used while it could not be read is in the total, but in no interval's energy, unless
    the power was read."""
    board = BoardIntegral()
    board.add(Vitals(energy_joules=5000.0), None, 0.0)
    assert board.add(Vitals(), None, 1.0) is None
    assert board.totals().energy_joules is None
    assert board.add(Vitals(energy_joules=19000.0), None, 1.0) is None
    assert board.add(Vitals(energy_joules=19070.0, power_watts=80.0), None, 1.0) == 70.0
    assert board.totals().energy_joules == 19070.0
    assert not board.totals().energy_is_power
    assert board.add(Vitals(power_watts=80.0), None, 2.0) == 160.0
    assert board.add(Vitals(energy_joules=30.0, power_watts=90.0), None, 2.0) == 180.0
    assert board.add(Vitals(energy_joules=20.0, power_watts=90.0), None, 1.0) == 90.0
    assert board.add(Vitals(energy_joules=20.0, power_watts=90.0), None, 0.0) is None
    assert board.totals().energy_joules == 20.0


def pcie_round(
    board: BoardIntegral, moved: float, seconds: float, covered: float | None = None
) -> None:
    """Add a round: `moved` bytes by the driver, and 100 B/s by counters over `covered`."""
    answer = None
    if covered is not None:
        answer = activity(length=covered, pcie_transmit_bytes=100 * covered)
    board.add(Vitals(pcie_transmit_bytes=moved), answer, seconds)


@given(st.lists(st.tuples(seconds, st.booleans()), min_size=1, max_size=30))
def test_no_byte_counts_twice_or_not_at_all(rounds: list[tuple[float, bool]]) -> None:
    """Whichever rounds the counters skip, the total is complete once they answer."""
    board = BoardIntegral()
    pcie_round(board, 100, 1.0, covered=1.0)
    since, passed, waiting = 0.0, 1.0, 0
    for length, answers in rounds:
        passed += length
        since += length
        waiting = 0 if answers else waiting + 1
        if waiting > 3:
            since = 0.0  # the driver's bytes have been taken
        pcie_round(board, 100 * length, length, covered=since if answers else None)
        if answers:
            since = 0.0
            assert board.totals().pcie_transmit_bytes == pytest.approx(100 * passed)


def links(board: BoardIntegral) -> set[float | None]:
    totals = board.totals()
    return {totals.pcie_transmit_bytes, totals.nvlink_receive_bytes, totals.c2c_receive_bytes}


def moved(board: BoardIntegral, rounds: int, *, read: bool = True) -> None:
    """Add rounds of a second with or without traffic by the counters."""
    fields = ("pcie_transmit_bytes", "nvlink_receive_bytes", "c2c_receive_bytes")
    given = activity(**dict.fromkeys(fields, 100.0 if read else None))
    for _ in range(rounds):
        board.add(Vitals(), given, 1.0)


@pytest.mark.parametrize("silent", [False, True])
def test_traffic_that_is_no_longer_read_is_not_0(silent: bool) -> None:
    """A constant total would mean no traffic; it returns after a minute without gaps."""
    board = BoardIntegral()
    moved(board, 5)
    assert links(board) == {500.0}
    for _ in range(5):
        board.add(Vitals(), None, 1.0) if silent else moved(board, 1, read=False)
    assert links(board) == {None}
    moved(board, 60)
    assert links(board) == {None}
    moved(board, 2)

    assert links(board) == {6700.0}


@pytest.mark.parametrize(
    ("blank", "every", "lost"),
    [("dram", 2, 3), ("tensor", 3, 3), ("fp64", 6, 12), ("sm", 10, 60), ("engine", 30, 20)],
)
def test_a_unit_that_is_blank_again_and_again_stops_no_other(
    blank: str, every: int, lost: int
) -> None:
    """It is excluded, the others lose a few seconds; a rare gap excludes nothing."""
    integral = ShareIntegral(0.0)
    for second in range(600):
        given = activity()
        if second % every == every - 1:
            given = dataclasses.replace(given, **{blank: None})  # type: ignore[arg-type]
        integral.add(None, given, derived(), None, float(second))
    totals = integral.totals()
    left_out = {
        "dram": totals.dram_active_seconds,
        "sm": totals.sm_active_seconds,
        "engine": totals.engine_active_seconds,
        **{pipe: totals.pipe_active_seconds.get(pipe) for pipe in ("tensor", "fp64")},
    }

    assert totals.observed_seconds["activity"] == pytest.approx(600.0 - lost, abs=1.0)
    assert totals.pipe_active_seconds["fp32"] == totals.observed_seconds["activity"] / 2
    assert (left_out[blank] is None) == (every < 7)


def test_work_without_a_unit_that_is_new_is_not_that_with_it() -> None:
    """FLOPs before and after a new unit are not of the same units."""
    together = SharedTime()
    vector, tensor = Roofline(flops_per_second={"fp32": 1e12}), activity()
    found = []
    for second in range(80):
        given = tensor if second >= 10 else dataclasses.replace(tensor, tensor=None)
        work = together.without_partial_flops(vector, given).flops_per_second
        together.take({"flops": work} if work else {}, "dcgm", 1.0)
        found.append(together.members("flops", work) is not None)

    assert found == [True] * 10 + [False] * 60 + [True] * 10


def test_idle_time_is_not_free_where_nobody_knows_who_holds_the_gpu() -> None:
    """A total of 0 would say that it was."""
    integral = ShareIntegral(0.0)
    integral.add(None, activity(0.0), derived(idle=True, held=None), 100.0, 1.0)
    totals = integral.totals()
    assert (totals.idle_seconds, totals.idle_energy_joules) == (1.0, 100.0)
    assert (totals.held_idle_seconds, totals.held_idle_energy_joules) == (None, None)


def test_each_wrong_ratio_is_counted() -> None:
    """Of engine, SM, DRAM, pipes and tensor operations; up to 1 % is rounding."""
    integral = ShareIntegral(0.0)
    wrong = activity(0.5, 0.5, engine=1.011, dram=1.2, fp32=1.3, fp16=1.009)
    integral.add(None, dataclasses.replace(wrong, imma=1.4), derived(), None, 1.0)
    assert integral.cuts == {"gpm": 4}
    totals = integral.totals()
    assert totals.engine_active_seconds == totals.dram_active_seconds == 0.5
    assert totals.tensor_op_active_seconds == {"imma": 0.5}


def test_how_long_nobody_opened_it() -> None:
    """Another workload, a gap and a process reset it; unknown is not 0."""
    integral = ShareIntegral(0.0)
    seen = []
    for seconds, allocated, held, anew in (
        (0.0, True, False, False),
        (1.0, True, False, False),
        (2.0, True, False, False),
        (1.0, True, False, True),
        (1.0, True, False, False),
        (1.0, True, True, False),
        (1.0, True, False, False),
        (0.0, True, False, False),
        (1.0, False, False, False),
        (1.0, None, False, False),
        (1.0, True, None, False),
        (1.0, True, False, False),
    ):
        integral.add_allocated(seconds, allocated=allocated, held=held, anew=anew)
        totals = integral.totals()
        seen.append((totals.allocated_unopened_seconds, totals.unopened_for_seconds))
    assert seen == [
        *((0.0, 0.0), (1.0, 1.0), (3.0, 3.0), (4.0, 0.0), (5.0, 1.0), (5.0, 0.0), (6.0, 1.0)),
        *((6.0, 0.0), (6.0, 0.0), (6.0, None), (6.0, None), (7.0, 1.0)),
    ]


def test_the_drivers_increments_wait_for_three_rounds() -> None:
    """An activity that comes by then may cover them; the fourth round adds all of them."""
    counter = CountersOrDriver()
    assert counter.add(1.0, activity(), 5.0, 10.0) == 5.0
    assert [counter.add(1.0, None, None, 10.0) for _ in range(3)] == [None, None, None]
    assert counter.add(1.0, None, None, 10.0) == 40.0
    counter = CountersOrDriver()
    counter.add(1.0, activity(), 5.0, 10.0)
    assert [counter.add(1.0, None, None, 10.0) for _ in range(3)] == [None, None, None]
    assert counter.add(1.0, activity(length=4.0), 20.0, 10.0) == 20.0


def test_energy_is_of_the_time_and_not_of_the_round() -> None:
    """60 W for five seconds and 400 W after them, in rounds of a second."""
    energy = EnergyHistory()
    assert energy.between(0.0, 1.0) is None
    energy.add(10.0, 0.0, None)
    for second in range(11, 21):
        energy.add(float(second), 1.0, 60.0 if second <= 15 else 400.0)

    assert energy.between(12.0, 14.5) == pytest.approx(150.0)
    assert energy.between(14.5, 15.5) == pytest.approx(230.0)
    assert energy.between(9.5, 12.0) is None
    assert energy.between(19.0, 20.5) is None


@pytest.mark.parametrize("lost", [(0.0, 5.0), (1.0, None)])
def test_no_energy_is_known_over_a_gap(lost: tuple[float, float | None]) -> None:
    energy = EnergyHistory()
    for second in range(10):
        energy.add(float(second), 1.0, 60.0)
    energy.add(10.0, *lost)
    energy.add(11.0, 1.0, 60.0)

    assert energy.between(8.0, 9.0) is None
    assert energy.between(10.0, 11.0) == pytest.approx(60.0)
