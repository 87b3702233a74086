# SPDX-License-Identifier: Apache-2.0
"""What a share did over the last ten seconds, against the mean computed beside it."""

from __future__ import annotations

import pytest

from exporter.model.snapshot import LIMITERS, Bounds, Saturation, ShareTotals
from exporter.publisher.recent import RecentWindow


def _totals(work: float, idle: float) -> ShareTotals:
    seconds = work + idle
    return ShareTotals(
        observed_seconds={"utilization": seconds, "activity": seconds},
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
        recent = window.recent()
        assert recent is not None
        assert recent.seconds == pytest.approx(10)
        assert recent.busy_ratio == pytest.approx(0.36)
        assert recent.utilization_ratio == pytest.approx(0.4)
        assert recent.saturation_ratio == pytest.approx(0.2)
        assert recent.saturation_bounds is not None
        assert recent.saturation_bounds.lower == pytest.approx(0.2)
        assert recent.saturation_bounds.upper == pytest.approx(0.24)
        assert recent.time_parts == pytest.approx({"idle": 0.64, "saturated": 0.36})
        assert recent.flops_per_second == pytest.approx({"bf16_tensor": 1.6e14})
        assert recent.flops_bounds_per_second is not None
        assert recent.flops_bounds_per_second.lower == pytest.approx(4e13)
        assert recent.flops_bounds_per_second.upper == pytest.approx(3.2e14)
        assert recent.dram_bytes_per_second == pytest.approx(4e11)
        assert recent.intensity_flops_per_byte == pytest.approx(400)
        assert recent.roof_ratio == pytest.approx({"spec": 0.16})
        assert recent.limiter == "idle"
        assert recent.limited_ratio["compute"] == pytest.approx(0.4)
        assert recent.idle_ratio == pytest.approx(0.6)
        assert recent.held_idle_ratio == pytest.approx(0.3)


def test_after_a_gap_it_begins_anew() -> None:
    window = RecentWindow()
    window.add(0.0, 0.0, _totals(0, 0), None)
    window.add(1.0, 1.0, _totals(1, 0), None)
    window.add(60.0, 0.0, _totals(1, 0), None)
    assert window.recent() is None
    window.add(61.0, 1.0, _totals(1, 1), None)
    recent = window.recent()
    assert recent is not None
    assert (recent.seconds, recent.idle_ratio, recent.saturation_bounds) == (1.0, 1.0, None)


def test_a_longer_interval_is_the_window() -> None:
    window = RecentWindow()
    for step in range(4):
        window.add(30.0 * step, 30.0 * (step > 0), _totals(15.0 * step, 15.0 * step), None)
    recent = window.recent()
    assert recent is not None
    assert recent.seconds == pytest.approx(30)
