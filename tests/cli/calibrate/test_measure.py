# SPDX-License-Identifier: Apache-2.0
"""The means of a load, from whatever the driver reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.cli.calibrate.measure import Meter, await_one, means_of
from exporter.errors import ExporterError
from exporter.model.readers import NO_COUNTER_STATES
from exporter.model.reading import Board, Device, Reading, SlotReport, Utilization, Vitals
from tests.clocks import ManualClock

GPU = Device(0, "GPU-1", "NVIDIA H100 80GB HBM3")


def reading(at: float, **vitals: Any) -> Reading:
    used = Utilization(0.5, 0.51, 1.0, memory_ratio=0.25)
    shown = Vitals(**{"utilization": used, "clock_hertz": {"sm": 1500e6}, **vitals})
    return Reading(GPU, 1e6 + at, at, shown, Board(), ())


@given(st.lists(st.tuples(st.floats(0.5, 3), st.floats(0, 1000)), min_size=1, max_size=20))
def test_the_energy_counter_gives_the_mean(steps: list[tuple[float, float]]) -> None:
    """However unevenly it is read."""
    readings, at, joules = [reading(0.0, energy_joules=5e6)], 0.0, 5e6
    for seconds, watts in steps:
        at, joules = at + seconds, joules + seconds * watts
        readings.append(reading(at, energy_joules=joules, power_watts=1.0))
    means = means_of(readings)
    assert means.seconds == pytest.approx(at)
    assert means.watts == pytest.approx((joules - 5e6) / at, abs=1e-6)
    assert means.noise_watts >= 0
    assert (means.utilization, means.memory_utilization) == pytest.approx((0.5, 0.25))


def test_without_the_counter_the_polls_count() -> None:
    """Also where it stops to answer in between."""
    polls = [reading(float(n), power_watts=100.0 + 10 * n) for n in range(5)]
    assert means_of(polls).watts == 125.0
    assert means_of(polls).noise_watts == pytest.approx(11.18, abs=0.01)
    polls[0] = reading(0.0, power_watts=100.0, energy_joules=1.0)
    assert means_of(polls).watts == 125.0


@pytest.mark.parametrize(
    ("vitals", "missing"),
    [({}, "power"), ({"power_watts": 9.0, "utilization": None}, "utilization")],
)
def test_what_is_missing_is_named(vitals: dict[str, Any], missing: str) -> None:
    """Nothing can be fitted without it."""
    with pytest.raises(ExporterError, match=f"the driver does not report the {missing}"):
        means_of([reading(0.0, **vitals), reading(1.0, **vitals)])


def test_what_else_is_not_known_is_absent() -> None:
    """And the best clock that there is counts."""
    used = Utilization(1.0, 1.0, 1.0)
    plain = {"power_watts": 9.0, "utilization": used, "clock_hertz": {}}
    means = means_of([reading(0.0), reading(1.0, **plain)])
    assert means.memory_utilization is None
    assert means.sm_clock_hertz is None
    assert means.temperature_celsius is None
    busy = {**plain, "busy_sm_clock_hertz": 1e9, "mean_sm_clock_hertz": 5e8}
    hot = {"throttle_reasons": frozenset({"sw_thermal"}), "temperature_celsius": 90.0}
    means = means_of([reading(0.0), reading(1.0, **busy), reading(2.0, **busy, **hot)])
    assert means.sm_clock_hertz == 1e9
    assert means.throttled == {"sw_thermal"}
    assert means.temperature_celsius == 90.0


class Silent:
    """Readers whose only GPU does not answer."""

    name = "nvml"
    failed_initialisations = 0
    counter_states = NO_COUNTER_STATES
    problem: str | None = None

    def __init__(self, *reports: SlotReport) -> None:
        self._reports = reports

    def round(self, wait_seconds: float) -> None: ...

    def reports(self) -> tuple[SlotReport, ...]:
        return self._reports

    def xids(self) -> dict[str, Any]:
        return {}

    def devices(self) -> dict[str, int]:
        return {}


@pytest.mark.parametrize(
    ("reports", "reason"),
    [
        ((), "none answers"),
        ((SlotReport(0, None, None, "the GPU is lost", {}),), "the GPU is lost"),
    ],
)
def test_a_gpu_that_is_not_there(reports: tuple[SlotReport, ...], reason: str) -> None:
    """It is not waited for for ever."""
    clock = ManualClock()
    with pytest.raises(ExporterError, match=f"there is no GPU to calibrate: {reason}"):
        await_one(Silent(*reports), clock, clock.advance)


def test_an_old_reading_is_none() -> None:
    """A GPU whose readings stand still has stopped to answer."""
    clock = ManualClock()
    stale = SlotReport(0, GPU, replace(reading(1.0), monotonic_seconds=1.0), None, {})
    with pytest.raises(ExporterError, match="nothing can be measured: no GPU answers"):
        Meter(Silent(stale), clock, clock.advance).measure(5.0)
