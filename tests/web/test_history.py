# SPDX-License-Identifier: Apache-2.0
"""The history keeps 15 minutes of numbers, says what was not known, and stays small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.snapshot import BoardTotals, Gpu, Snapshot
from exporter.web.history import KEPT_SECONDS, POINTS, Columns, History
from tests import snapshots

NOW = snapshots.NOW
BOARD = {"power", "power_limit", "sm_clock", "temperature", "throttled"}
UUID = snapshots.h100_training().device.uuid


def at(seconds: float, *gpus: Gpu) -> Snapshot:
    """A snapshot of these GPUs so many seconds after the start."""
    return replace(snapshots.snapshot(*gpus), timestamp_seconds=NOW + seconds)


def with_power(watts: float | None) -> Gpu:
    """A GPU that draws so much power, for telling points apart."""
    gpu = snapshots.h100_training()
    assert gpu.vitals is not None
    return replace(gpu, vitals=replace(gpu.vitals, power_watts=watts))


def powers(history: History, since: float = 0.0) -> list[tuple[float, float | None]]:
    """Seconds after the start and the power of each point."""
    series = history.series(UUID, None, since)
    assert series is not None
    watts = series.columns.get("power", [None] * len(series.timestamps))
    return [
        (round(time - NOW, 3), watt) for time, watt in zip(series.timestamps, watts, strict=True)
    ]


def columns(history: History, gpu: Gpu, number: int | None = None) -> Columns:
    series = history.series(gpu.device.uuid, number)
    assert series is not None
    return series.columns


@pytest.mark.parametrize(
    ("readings", "points"),
    [
        ([0, 1.02, 1.99, 3, 4.3, 4.95], [0, 1.02, 1.99, 3, 4.3, 4.95]),
        ([number / 10 for number in range(20)], [0.9, 1.9]),
        ([10 * number for number in range(200)], [10 * number for number in range(110, 200)]),
        (range(POINTS + 250), range(250, POINTS + 250)),
        ([0, 1, 2, 3, 1.5, 2.5], [0, 1, 1.5, 2.5]),
        ([0, 1, 2, -3600], [-3600]),
    ],
    ids=["jittery", "fast", "slow", "full ring", "clock set back", "clock set back far"],
)
def test_the_points_that_are_kept(readings: Sequence[float], points: Sequence[float]) -> None:
    """One for each reading, of those within a second the newest, of 15 minutes; times never fall,
    and points in what is now the future are forgotten."""
    history = History()
    for seconds in readings:
        history.add(at(seconds, with_power(1000 + seconds)))
    times, watts = zip(*powers(history), strict=True)
    assert times == tuple(points)
    assert watts == pytest.approx([1000 + time for time in points])


def test_points_since_a_moment() -> None:
    """The newest, in order; none of the future."""
    history = History()
    for seconds in range(POINTS + 250):
        history.add(at(seconds, with_power(float(seconds))))
    assert powers(history, since=NOW + 1146.5) == [(1147, 1147), (1148, 1148), (1149, 1149)]
    assert powers(history, since=NOW + 5000) == []


def test_a_gpu_that_comes_and_goes() -> None:
    """While it is away nothing is known, and what was known before is still there."""
    history = History()
    gone = snapshots.lost(0)
    gone = replace(gone, device=replace(gone.device, uuid=UUID))
    for seconds, gpus in enumerate(
        ([with_power(1.0)], [gone], [], [with_power(4.0)], [with_power(None)])
    ):
        history.add(at(seconds, *gpus))
    assert powers(history) == [(0, 1.0), (1, None), (2, None), (3, 4.0), (4, None)]


def test_a_hole_is_a_point_at_which_nothing_is_known() -> None:
    """After more than three intervals without a reading no line is drawn across."""
    history = History()
    for seconds in (0.0, 1.0, 3.9, 60.0, 61.0):
        history.add(at(seconds, with_power(5.0)))
    assert powers(history) == [(0, 5), (1, 5), (3.9, 5), (6.8, None), (60, 5), (61, 5)]


def test_shares_of_mig() -> None:
    """Instances have series of their own, and so has the board; neither has what is the other's."""
    history = History()
    gpu = snapshots.h100_mig(2)
    history.add(snapshots.with_training(at(0, gpu), snapshots.rank_on_instance(2)))
    board, first, second = (columns(history, gpu, number) for number in (None, 1, 2))
    assert set(board) == BOARD
    assert first["wait"] == [0.5]
    assert not set(board) & set(first)
    assert second == {}
    assert history.series(gpu.device.uuid, 3) is None


def test_an_instance_made_anew_has_no_history_of_another() -> None:
    """With the number of one that was there before; one that stays keeps its own, as does one that
    is not seen for a while."""
    history = History()
    gpu = snapshots.h100_mig(2)
    uuid = gpu.device.uuid

    def points(number: int) -> list[float]:
        series = history.series(uuid, number)
        assert series is not None
        memory = series.columns.get("memory", [])
        return [at for at, value in zip(series.timestamps, memory, strict=False) if value]

    history.add(at(0, gpu))
    history.add(at(1, replace(gpu, shares=gpu.shares[1:])))
    history.add(at(2, gpu))
    assert points(1) == [NOW, NOW + 2]

    anew = tuple(
        replace(each, mig_uuid=f"{each.mig_uuid}-anew") if each.gpu_instance == 1 else each
        for each in gpu.device.instances
    )
    history.add(at(3, replace(gpu, device=replace(gpu.device, instances=anew))))
    assert points(1) == [NOW + 3]
    assert history.series(uuid, 2) is not None
    assert len(columns(history, gpu)["power"]) == 4


def test_links() -> None:
    """Bytes per second come from the counters, else from what the board's totals grew by."""
    history = History()

    def gpu(seconds: float, received: float | None, counted: float | None) -> Gpu:
        whole = snapshots.h100_training()
        [share] = whole.shares
        assert share.activity is not None
        activity = replace(
            share.activity, seconds=2.0, pcie_receive_bytes=counted, nvlink_receive_bytes=None
        )
        return replace(
            whole,
            last_read_timestamp_seconds=NOW + seconds,
            totals=BoardTotals(pcie_receive_bytes=received, nvlink_receive_bytes=received),
            shares=(replace(share, activity=activity),),
        )

    for seconds, received, counted in ((0, 1e9, None), (2, 5e9, None), (4, 4e9, 6e9), (6, None, 0)):
        history.add(at(seconds, gpu(seconds, received, counted)))
    found = columns(history, snapshots.h100_training())
    assert found["pcie_rx"] == [None, 2e9, 3e9, 0]
    assert found["nvlink_rx"] == [None, 2e9, None, None]


@pytest.mark.parametrize("seconds", [5, 600, POINTS + 250])
def test_recent(seconds: int) -> None:
    """The newest points of every share, oldest first, also where the ring begins anew."""
    history = History()
    for second in range(seconds):
        board = snapshots.h100_idle(1)
        history.add(at(second, with_power(float(second)), board))
    times, found = history.recent(("power", "fp64"), 100.0)
    since = max(0, seconds - 100)
    assert [time - NOW for time in times] == list(range(since, seconds))
    assert found[UUID, None]["power"] == list(range(since, seconds))
    assert set(found) == {(UUID, None), (snapshots.h100_idle(1).device.uuid, None)}
    assert all(set(each) == {"power", "fp64"} for each in found.values())
    assert {len(each["fp64"]) for each in found.values()} == {len(times)}


def test_what_is_long_gone_is_forgotten() -> None:
    """A GPU that was away for all of the kept time has no history any more."""
    history = History()
    history.add(at(0, with_power(1.0), snapshots.h100_idle(1)))
    history.add(at(KEPT_SECONDS - 1, snapshots.h100_idle(1)))
    assert powers(history, since=NOW)[-1] == (KEPT_SECONDS - 1, None)
    history.add(at(KEPT_SECONDS + 1, snapshots.h100_idle(1)))
    assert history.series(UUID, None) is None


@given(
    st.lists(
        st.tuples(
            st.floats(0.01, 400.0, allow_nan=False),
            st.one_of(st.none(), st.floats(0, 1000, width=32)),
        ),
        min_size=1,
        max_size=60,
    )
)
def test_points_are_in_order_and_within_what_was_read(
    readings: list[tuple[float, float | None]],
) -> None:
    """Times rise by any spacing of readings, and every point is a reading."""
    history, now = History(), 0.0
    for gap, watts in readings:
        now += gap
        history.add(at(now, with_power(watts)))
    found = powers(history)
    times = [time for time, _ in found]
    assert times == sorted(times)
    assert found[-1][0] == pytest.approx(now, abs=0.01)
    known = [watts for _, watts in readings if watts is not None]
    assert {watts for _, watts in found} <= {None, *known}


def test_one_point_for_each_reading() -> None:
    """At one reading a second, however jittery, each is a point of its own."""
    history = History()
    times = [0.0, 1.02, 1.99, 3.0, 4.3, 4.95]
    for number, seconds in enumerate(times):
        history.add(at(seconds, with_power(100.0 + number)))
    assert powers(history) == [(time, 100.0 + number) for number, time in enumerate(times)]


def test_of_fast_readings_the_newest_is_kept() -> None:
    """Ten readings a second make one point."""
    history = History()
    for number in range(20):
        history.add(at(number / 10, with_power(float(number))))
    assert powers(history) == [(0.9, 9.0), (1.9, 19.0)]


def test_slow_readings_come_as_they_are() -> None:
    """At one reading every 10 s there are 90 points in 15 minutes, and no holes."""
    history = History()
    for number in range(200):
        history.add(at(10.0 * number, with_power(float(number))))
    found = powers(history)
    assert found == [(10.0 * number, float(number)) for number in range(110, 200)]


def test_the_ring_is_full_after_15_minutes() -> None:
    """Older points make room, and the newest are in order."""
    history = History()
    for seconds in range(POINTS + 250):
        history.add(at(seconds, with_power(float(seconds))))
    found = powers(history)
    assert found == [(second, float(second)) for second in range(250, POINTS + 250)]
    assert powers(history, since=NOW + 1146.5) == [(1147, 1147), (1148, 1148), (1149, 1149)]
    assert powers(history, since=NOW + 5000) == []


def test_a_share_is_busy_as_its_counters_say() -> None:
    """An instance has no utilization of the driver's: what its engine says stands for it."""
    history = History()
    gpu = snapshots.h100_mig(2)
    history.add(at(0, gpu))
    series = history.series(gpu.device.uuid, 1)
    assert series is not None
    assert series.columns["utilization"] == series.columns["engine"] == [pytest.approx(0.985)]
