# SPDX-License-Identifier: Apache-2.0
"""What a share did over the last ten seconds, against the mean computed beside it."""

from __future__ import annotations

import pytest

from exporter.model.reading import Utilization
from exporter.model.snapshot import LIMITERS, Bounds, Saturation, ShareTotals
from exporter.publisher.recent import RecentWindow
from tests.derive.readings import known

RAN = ("limited_seconds", "idle_seconds", "held_idle_seconds", "flops_upper")


def _totals(work: float, idle: float) -> ShareTotals:
    seconds = work + idle
    return ShareTotals(
        observed_seconds={"utilization": seconds, "activity": seconds},
        ran_seconds=dict.fromkeys(RAN, seconds),
        busy_seconds=work,
        engine_active_seconds=0.9 * work,
        saturation_seconds=0.5 * work,
        time_seconds={"idle": idle + 0.1 * work, "saturated": 0.9 * work},
        flops={"bf16_tensor": 4e14 * work},
        flops_lower=1e14 * work,
        flops_upper=8e14 * work,
        dram_bytes=1e12 * work,
        roof_seconds={"spec": 0.4 * work},
        limited_seconds=dict.fromkeys(LIMITERS, 0.0) | {"compute": work, "idle": idle},
        idle_seconds=idle,
        held_idle_seconds=idle / 2,
    )


def test_it_is_the_mean_of_the_last_ten_seconds() -> None:
    window = RecentWindow()
    assert window.recent() is None
    work = idle = 0.0
    for second in range(31):
        busy = second % 5 < 2
        work, idle = (work + 1, idle) if busy else (work, idle + 1)
        saturation = Saturation("gpm", True, Bounds(0.5 * busy, 0.6 * busy), ratio=0.5 * busy)
        window.add(float(second), float(second > 0), _totals(work, idle), saturation)
        window.add(float(second), 1.0, ShareTotals(), None)  # shown twice
        if second < 10:
            continue
        recent = known(window.recent())
        assert recent.seconds == pytest.approx(10)
        assert recent.busy_ratio == pytest.approx(0.36)
        assert recent.utilization_ratio == pytest.approx(0.4)
        assert recent.saturation_ratio == pytest.approx(0.2)
        assert known(recent.saturation_bounds).lower == pytest.approx(0.2)
        assert known(recent.saturation_bounds).upper == pytest.approx(0.24)
        assert recent.time_parts == pytest.approx({"idle": 0.64, "saturated": 0.36})
        assert recent.flops_per_second == pytest.approx({"bf16_tensor": 1.6e14})
        assert known(recent.flops_bounds_per_second).lower == pytest.approx(4e13)
        assert known(recent.flops_bounds_per_second).upper == pytest.approx(3.2e14)
        assert recent.dram_bytes_per_second == pytest.approx(4e11)
        assert recent.intensity_flops_per_byte == pytest.approx(400)
        assert recent.roof_ratio == pytest.approx({"spec": 0.16})
        assert recent.limiter == "idle"
        assert recent.limited_ratio["compute"] == pytest.approx(0.4)
        assert recent.idle_ratio == pytest.approx(0.6)
        assert recent.held_idle_ratio == pytest.approx(0.3)


def test_memory_utilization_is_the_mean_of_what_the_driver_gave() -> None:
    """Of the last ten seconds, whoever counts the DRAM; a round without it counts for nothing."""
    window = RecentWindow()
    given = [None, *(0.9,) * 10, *(0.2,) * 5, None, *(0.6,) * 4]
    for second, memory in enumerate(given):
        utilization = Utilization(1.0, 1.0, float(second > 0), memory)
        window.add(
            float(second), float(second > 0), _totals(second, 0), None, utilization=utilization
        )
    recent = known(window.recent())
    assert recent.memory_utilization_ratio == pytest.approx((5 * 0.2 + 4 * 0.6) / 9)

    window.add(60.0, 0.0, _totals(20, 0), None, utilization=Utilization(1.0, 1.0, 0.0, 0.5))
    window.add(61.0, 1.0, _totals(21, 0), None)
    recent = known(window.recent())
    assert recent.memory_utilization_ratio is None


def test_after_a_gap_it_begins_anew() -> None:
    window = RecentWindow()
    window.add(0.0, 0.0, _totals(0, 0), None)
    window.add(1.0, 1.0, _totals(1, 0), None)
    window.add(60.0, 0.0, _totals(1, 0), None)
    assert window.recent() is None
    window.add(61.0, 1.0, _totals(1, 1), None)
    recent = known(window.recent())
    assert (recent.seconds, recent.idle_ratio, recent.saturation_bounds) == (1.0, 1.0, None)


def _limiters(idle: float, work: float, seconds: int, *, first: float = 0.0) -> list[str | None]:
    """The limiter second by second, of a share that idles and computes by turns."""
    window = RecentWindow()
    period, spent = idle + work, {"idle": 0.0, "compute": 0.0}
    found = []
    for second in range(seconds):
        if second:
            spent["idle" if (second - 1 + first) % period < idle else "compute"] += 1.0
        totals = ShareTotals(
            observed_seconds={"activity": float(second)},
            ran_seconds=dict.fromkeys(RAN, float(second)),
            limited_seconds=dict.fromkeys(LIMITERS, 0.0) | spent,
        )
        window.add(float(second), float(second > 0), totals, None)
        recent = window.recent()
        if second > 30:
            assert recent is not None
            found.append(recent.limiter)
    return found


@pytest.mark.parametrize("turns", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("first", [0.0, 1.0, 3.0])
def test_what_takes_turns_keeps_one_limiter(turns: int, first: float) -> None:
    assert len(set(_limiters(turns, turns, 200, first=first))) == 1


@pytest.mark.parametrize(
    ("idle", "work", "limiter"),
    [(2, 1, "idle"), (3, 2, "idle"), (1, 2, "compute"), (1, 9, "compute")],
)
def test_the_one_that_is_it_for_longer_is_found(idle: int, work: int, limiter: str) -> None:
    for first in range(idle + work):
        assert set(_limiters(idle, work, 180, first=float(first))[60:]) == {limiter}


def test_a_limiter_that_stays_takes_over_within_the_window() -> None:
    found = _limiters(60, 60, 121)  # from second 31: it idles up to 60, then computes
    assert found[:30] == ["idle"] * 30
    assert found.index("compute") in range(34, 38)
    assert set(found[38:]) == {"compute"}


def test_counters_are_means_of_the_window() -> None:
    window = RecentWindow()
    for second in range(21):
        totals = ShareTotals(
            observed_seconds={"activity": float(second)},
            ran_seconds=dict.fromkeys(RAN, float(second)),
            saturation_seconds=0.4 * min(second, 15),
            time_seconds={"idle": 0.6 * min(second, 15), "saturated": 0.4 * min(second, 15)},
            engine_active_seconds=0.9 * second,
            sm_active_seconds=0.8 * second,
            dram_active_seconds=0.2 * second,
            pipe_active_seconds={
                "tensor": 0.3 * second,
                "fp32": 0.5 * second,
                "fp16": 0.4 * second,
            },
        )
        fma = Saturation("dcgm", True, Bounds(0.4, 0.4), ratio=0.4, unit="fma")
        window.add(float(second), float(second > 0), totals, fma if second <= 15 else None)
    recent = known(window.recent())
    assert recent.active_ratio == pytest.approx(
        {"engine": 0.9, "sm": 0.8, "dram": 0.2, "tensor": 0.3, "fp32": 0.5, "fp16": 0.4}
    )
    assert (recent.saturation_unit, recent.limiter) == ("fma", None)
    # For half of the window it was not known.
    assert recent.saturation_ratio == pytest.approx(0.4)
    assert recent.time_parts == pytest.approx({"idle": 0.6, "saturated": 0.4})


def test_a_basis_that_became_unknown_is_absent() -> None:
    """Its total is omitted, not averaged with the time before."""
    window = RecentWindow()
    for second in range(26):
        roofs = {"clock": 0.5 * second}
        if not 6 < second < 20:
            roofs["achievable"] = 0.9 * min(second, 6)
        observed = {"activity": float(second)}
        totals = ShareTotals(observed_seconds=observed, roof_seconds=roofs)
        window.add(float(second), float(second > 0), totals, None)
    recent = known(window.recent())
    assert recent.roof_ratio == pytest.approx({"clock": 0.5})


def test_work_that_is_added_up_again_is_not_all_of_the_last_seconds() -> None:
    """Its total returns at its old value a minute after the unit."""
    window = RecentWindow()
    for second in range(26):
        flops = {} if 6 < second < 20 else {"bf16_tensor": 1e14 * second, "fp32": 1e12 * second}
        seconds = ShareTotals(observed_seconds={"activity": float(second)}, flops=flops)
        window.add(float(second), float(second > 0), seconds, None)
        recent = window.recent()
        if recent is not None:
            usual = {"bf16_tensor": 1e14, "fp32": 1e12} if second < 7 else {}
            assert recent.flops_per_second == pytest.approx(usual)
    for second in range(26, 32):
        flops = {"bf16_tensor": 1e14 * second, "fp64": 1e12 * (second - 25)}
        seconds = ShareTotals(observed_seconds={"activity": float(second)}, flops=flops)
        window.add(float(second), 1.0, seconds, None)
    recent = known(window.recent())
    assert recent.flops_per_second == pytest.approx({"bf16_tensor": 1e14, "fp64": 6e11})
