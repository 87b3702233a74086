# SPDX-License-Identifier: Apache-2.0
"""A GPU without counters, from the driver's readings to the page: what its power adds."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.model.reading import Board, Device, Reading, ShareReading, Utilization, Vitals
from exporter.model.snapshot import Bounds, Ceilings, PowerModel
from exporter.publisher.power import PowerWindow
from exporter.specs import SpecBook
from tests.derive.driven import Driven, Fake
from tests.derive.power_models import narrow, wide
from tests.fake_nvml import integral, square

Open = Callable[..., Any]
LIMIT, CLOCK = 450.0, 2.52e9
CALIBRATED = narrow(LIMIT, CLOCK, idle=0.06, busy=0.08)
WIDE = wide("geforce", (8, 9), LIMIT, CLOCK)
PEAK_BF16 = 165.2e12
ROUNDING = 1e-6


def powered(monkeypatch: pytest.MonkeyPatch, model: PowerModel | None) -> None:
    """Let every GPU have this power model."""
    ceilings = SpecBook.ceilings

    def with_power(self: SpecBook, device: Device, precision: str | None = None) -> Ceilings | None:
        found = ceilings(self, device, precision)
        return None if found is None else replace(found, power=model)

    monkeypatch.setattr(SpecBook, "ceilings", with_power)


def card(watts: Any, utilization: Any, memory: Any = 0, **more: Any) -> dict[str, Any]:
    """A GeForce RTX 4090 with this power, and utilizations in percent."""
    return {
        "product": "rtx-4090",
        "power": watts,
        "power_limits": {"default": 450, "enforced": 450, "management": 450, "max": 600},
        "utilization": utilization,
        "memory_utilization": memory,
        "clocks": {"sm": CLOCK / 1e6},
        **more,
    }


def saturation(driven: Driven) -> Bounds:
    page = driven.page
    lower, upper = page("gpu_saturation_lower_ratio"), page("gpu_saturation_upper_ratio")
    assert lower is not None
    assert upper is not None
    return Bounds(lower, upper)


def resource(driven: Driven, name: str) -> Bounds:
    page, prefix = driven.page, "gpu_resource_saturation"
    lower = page(f"{prefix}_lower_ratio", resource=name)
    upper = page(f"{prefix}_upper_ratio", resource=name)
    assert lower is not None
    assert upper is not None
    return Bounds(lower, upper)


@pytest.mark.parametrize(("model", "least"), [(WIDE, 0.04), (CALIBRATED, 0.3)])
def test_a_card_near_its_limit_is_not_perhaps_idle(
    open_gpu: Open, monkeypatch: pytest.MonkeyPatch, model: PowerModel, least: float
) -> None:
    """95 % of the limit at a utilization of 79 %: not "0 to 79 %"."""
    powered(monkeypatch, model)
    fake = Fake(open_gpu(**card(0.95 * LIMIT, square(1.0, 0.78, 100), 40)), 1.0)
    fake.run(9.0)
    assert saturation(fake).lower == 0.0
    fake.run(5.0)
    found = saturation(fake)
    assert least < found.lower < 0.78 < found.upper < 0.9
    recent = fake.share.recent
    assert recent is not None
    assert recent.saturation_bounds is not None
    assert (recent.saturation_bounds.lower, recent.saturation_bounds.upper) == pytest.approx(
        (found.lower, found.upper)
    )


def test_what_ten_seconds_show_is_not_said_of_an_interval_unlike_them(
    open_gpu: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load of 5 s and 5 s: the page knows that it works, no single interval must."""
    powered(monkeypatch, CALIBRATED)
    wave = square(10.0, 0.5, 430, 60)
    fake = Fake(open_gpu(**card(wave, square(10.0, 0.5, 100), 40)), 1.0)
    fake.run(15.0)
    lowers = set()
    for _ in range(10):
        fake.run(1.0)
        lowers.add(saturation(fake).lower)
    assert lowers == {0.0}
    recent = fake.share.recent
    assert recent is not None
    assert recent.saturation_bounds is not None
    assert recent.saturation_bounds.lower > 0.05


def test_a_spin_is_no_work(open_gpu: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """70 W at a utilization of 100 %, as in a collective that waits; or its few FP64 units are
    full, which power does not show."""
    powered(monkeypatch, CALIBRATED)
    fake = Fake(open_gpu(**card(70, 100, 1)), 1.0)
    fake.run(15.0)
    assert saturation(fake) == Bounds(0.0, 1.0)
    for name in ("tensor", "fma", "int", "dram"):
        assert resource(fake, name).upper < 0.3, name
    assert resource(fake, "sm").upper == resource(fake, "fp64").upper == 1.0
    recent = fake.share.recent
    assert recent is not None
    assert recent.dram_bounds_bytes_per_second is not None
    assert recent.dram_bounds_bytes_per_second.upper < 0.25 * 1.01e12
    assert fake.page.by("gpu_limited_seconds_total", "limiter")["latency"] == 0.0

    powered(monkeypatch, WIDE)
    fake = Fake(open_gpu(**card(70, 100, 1)), 1.0)
    fake.run(15.0)
    assert saturation(fake) == Bounds(0.0, 1.0)


def test_a_spin_is_latency_where_no_unit_can_hide(
    open_gpu: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The FP64 units of an A100 draw power like any other."""
    powered(monkeypatch, narrow(400.0, 1.41e9, idle=0.12, busy=0.06))
    spin = card(72, 100, 1) | {"product": "a100-sxm4-80gb", "clocks": {"sm": 1410}}
    limits = dict.fromkeys(("default", "enforced", "management", "max"), 400)
    fake = Fake(open_gpu(**spin | {"power_limits": limits}), 1.0)
    fake.run(15.0)
    assert saturation(fake).upper < 0.35
    assert fake.page.by("gpu_limited_seconds_total", "limiter")["latency"] >= 4.0


@pytest.mark.parametrize("model", [WIDE, CALIBRATED])
def test_an_idle_card_stays_what_its_utilization_says(
    open_gpu: Open, monkeypatch: pytest.MonkeyPatch, model: PowerModel
) -> None:
    powered(monkeypatch, model)
    fake = Fake(open_gpu(**card(25, 0)), 1.0)
    fake.run(15.0)
    assert saturation(fake).lower == 0.0
    assert saturation(fake).upper <= 0.19
    assert fake.page("gpu_flops_lower_total") == 0.0


NO_COUNTER = {"missing": ("nvmlDeviceGetTotalEnergyConsumption",), "fields": {"83": {"error": 3}}}
"""A driver that does not count the energy."""


@pytest.mark.parametrize(
    "broken",
    [NO_COUNTER | {"power": None}, {"clocks": None}, {"utilization": None}],
)
def test_without_energy_clock_or_utilization_nothing_changes(
    open_gpu: Open, monkeypatch: pytest.MonkeyPatch, broken: dict[str, Any]
) -> None:
    shares = []
    for model in (None, CALIBRATED):
        powered(monkeypatch, model)
        load = card(0.95 * LIMIT, square(1.0, 0.78, 100), 40) | broken
        fake = Fake(open_gpu(**load), 1.0)
        fake.run(15.0)
        assert fake.snapshot.gpus[0].up
        shares.append(fake.share)
    without, with_model = shares
    assert with_model.saturation == without.saturation
    assert with_model.recent == without.recent
    assert with_model.totals == without.totals


def test_without_a_model_nothing_changes(open_gpu: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    powered(monkeypatch, None)
    fake = Fake(open_gpu(**card(0.95 * LIMIT, 79, 40)), 1.0)
    fake.run(15.0)
    assert saturation(fake).lower == 0.0


def test_polled_power_is_less_certain(open_gpu: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the driver's energy counter; the load alternates, so that polls differ."""
    powered(monkeypatch, CALIBRATED)
    steady, wave = card(340, 100, 40), card(square(4.0, 0.5, 440, 240), 100, 40)
    found = []
    for load in (steady, wave):
        for driver in ({}, NO_COUNTER):
            fake = Fake(open_gpu(**load, **driver), 1.0)
            fake.run(15.0)
            vitals = fake.snapshot.gpus[0].vitals
            assert vitals is not None
            assert (vitals.energy_joules is None) == bool(driver)
            recent = fake.share.recent
            assert recent is not None
            assert recent.saturation_bounds is not None
            found.append(recent.saturation_bounds.lower)
    assert found[0] == pytest.approx(found[1], abs=0.01)
    assert found[2] == pytest.approx(found[0], abs=0.02)
    assert found[3] < found[2] - 0.05


def test_a_window_in_which_some_energy_was_polled_needs_enough_polls(
    open_gpu: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's counter starts over: for four seconds the power is polled, at its peaks."""
    powered(monkeypatch, CALIBRATED)
    wave = square(1.0, 0.1, 440, 240, phase=0.95)
    rig = open_gpu(**card(wave, 100, 40), power_window=0, fields={"185": {"error": 3}})
    fake = Fake(rig, 1.0)
    fake.run(15.0)
    counted = recent_lower(fake)
    rig.fake.device(0, energy=-260 * rig.monotonic())
    lowers = []
    for _ in range(20):
        fake.run(1.0)
        lowers.append(recent_lower(fake))
    assert counted > 0.1
    assert max(lowers) <= counted + 0.01
    assert lowers[-1] == pytest.approx(counted, abs=0.01)


def recent_lower(fake: Fake) -> float:
    """The lower bound of the saturation in the last ten seconds."""
    recent = fake.share.recent
    assert recent is not None
    assert recent.saturation_bounds is not None
    return recent.saturation_bounds.lower


def test_few_polls_of_power_show_nothing(open_gpu: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every poll is of a peak that lasts two of twelve seconds."""
    powered(monkeypatch, CALIBRATED)
    wave = square(12.0, 1 / 6, 440, 60, phase=11.0)
    fake = Fake(open_gpu(**card(wave, 100, 5), **NO_COUNTER), 12.0)
    fake.run(60.0)
    assert fake.share.recent is not None
    assert fake.share.recent.saturation_bounds == Bounds(0.0, 1.0)


def test_impossible_power_is_not_believed(open_gpu: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than the board's highest limit (600 W) for ten seconds."""
    powered(monkeypatch, CALIBRATED)
    lowers = []
    for watts in (600, 800):
        fake = Fake(open_gpu(**card(watts, 100, 40)), 1.0)
        fake.run(15.0)
        lowers.append(saturation(fake).lower)
    assert lowers[0] > 0.3
    assert lowers[1] == 0.0


def test_a_slowed_clock_is_not_believed(open_gpu: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hardware slowdown: the clock that is read is not the one that works."""
    powered(monkeypatch, CALIBRATED)
    fake = Fake(open_gpu(**card(70, 100, 1), clock_event_reasons=0x8), 1.0)
    fake.run(15.0)
    assert resource(fake, "tensor").upper == resource(fake, "fma").upper == 1.0
    assert resource(fake, "dram").upper < 0.25  # of another clock


def test_a_model_that_does_not_hold_is_said_once(
    open_gpu: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    powered(monkeypatch, narrow(100.0, CLOCK))
    with caplog.at_level(logging.DEBUG, "exporter.publisher"):
        fake = Fake(open_gpu(**card(440, 100, 40)), 1.0)
        fake.run(20.0)
    assert saturation(fake) == Bounds(0.0, 1.0)
    assert [record.levelname for record in caplog.records if "agrees" in record.message] == [
        "DEBUG"
    ]


class Work(NamedTuple):
    """What a card does for a part of each period, in shares of that time; else it is idle."""

    tensor: float
    vector: float
    dram: float

    @property
    def watts(self) -> float:
        """By the middle of the calibrated coefficients, at the reference clock."""
        units = zip(("tensor_watts", "vector_watts", "dram_watts"), self, strict=True)
        return middle("busy_watts") + sum(middle(name) * ratio for name, ratio in units)

    @property
    def saturation(self) -> float:
        return max(self)


def middle(name: str) -> float:
    bounds: Bounds = getattr(CALIBRATED, name)
    return (bounds.lower + bounds.upper) / 2


@pytest.mark.parametrize("work", [Work(0.7, 0.2, 0.2), Work(0.05, 0.9, 0.1), Work(0.0, 0.05, 0.9)])
@pytest.mark.parametrize(("period", "duty"), [(0.5, 0.6), (20.0, 0.9), (60.0, 0.5)])
@pytest.mark.parametrize("interval", [1.0, 5.0, 12.0])
def test_no_bound_is_ever_wrong(
    open_gpu: Open,
    monkeypatch: pytest.MonkeyPatch,
    work: Work,
    period: float,
    duty: float,
    interval: float,
) -> None:
    """At each reading: gauges against the truth of the interval, the page against that of the last
    ten seconds, and totals against all work so far. A load that ends leaves no contradiction."""
    powered(monkeypatch, CALIBRATED)
    idle = middle("idle_watts")
    percent = square(period, duty, 100)
    load = card(
        square(period, duty, idle + work.watts, idle),
        percent,
        square(period, duty, 100 * work.dram),
    )
    fake = Fake(open_gpu(**load), interval)
    at = 0.0
    for _ in range(round(70 / interval)):
        fake.run(interval)
        at += interval
        found = saturation(fake)
        own = work.saturation * integral(percent, at - interval, at) / 100 / interval
        assert found.lower - ROUNDING <= own <= found.upper + ROUNDING, at
        length = max(10.0, interval)
        busy = integral(percent, at - length, at) / 100 / length
        truth = work.saturation * busy
        if at < 10.0 + interval:
            continue
        recent, totals = fake.share.recent, fake.share.totals
        assert recent is not None
        shown, flops = recent.saturation_bounds, recent.flops_bounds_per_second
        assert shown is not None
        assert flops is not None
        assert shown.lower - ROUNDING <= truth <= shown.upper + ROUNDING
        assert flops.lower <= work.tensor * busy * PEAK_BF16 + 1
        assert flops.lower <= flops.upper
        done = work.tensor * integral(percent, 0, at) / 100 * PEAK_BF16
        assert totals.flops_lower is not None
        assert totals.flops_upper is not None
        assert totals.flops_lower <= done + 1
        assert totals.flops_lower <= totals.flops_upper
        # What ran was saturated, or it was narrow or unsaturated, whichever of the two.
        rest = (1 - work.saturation) * integral(percent, 0, observed_until(fake, at)) / 100
        for part in ("narrow", "unsaturated"):
            assert totals.time_upper_seconds[part] >= rest - 0.01 * at - interval


def observed_until(fake: Fake, at: float) -> float:
    """The time that the driver's samples cover, which the totals are of."""
    return min(at, fake.share.totals.observed_seconds["utilization"])


def test_certain_tensor_work_adds_up(open_gpu: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A calibrated card at its limit, whose memory does little: at least a third of its work."""
    powered(monkeypatch, narrow(LIMIT, CLOCK, idle=0.06, busy=0.04, vector=0.1, dram=0.1))
    fake = Fake(open_gpu(**card(440, 100, 5)), 1.0)
    fake.run(70.0)
    lower = fake.page("gpu_flops_lower_total")
    limited = fake.page.by("gpu_limited_seconds_total", "limiter")
    assert limited["compute"] == pytest.approx(61.0, abs=1.0)
    rest = fake.page("gpu_time_upper_seconds_total", part="unsaturated")
    assert rest is not None
    assert rest < 0.6 * 70
    recent = fake.share.recent
    assert recent is not None
    assert recent.flops_bounds_per_second is not None
    assert lower == pytest.approx(60.5 * recent.flops_bounds_per_second.lower, rel=0.02)
    assert lower is not None
    assert lower > 0.3 * 70 * 82.6e12  # TF32, the slowest


CARD = Device(index=0, uuid="GPU-0", name="card", clock_max_hertz={"sm": CLOCK})


def reading(at: float, seconds: float) -> Reading:
    return Reading(
        device=CARD,
        timestamp_seconds=at,
        monotonic_seconds=at,
        vitals=Vitals(
            utilization=Utilization(1.0, 1.0, seconds),
            clock_hertz={"sm": CLOCK},
            throttle_reasons=frozenset(),
        ),
        board=Board(),
        shares=(ShareReading(),),
    )


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.05, 6.0), st.floats(0.0, 2.0), st.sampled_from([True] * 9 + [False])),
        max_size=60,
    )
)
def test_each_moment_counts_once_at_most(
    intervals: list[tuple[float, float, bool]],
) -> None:
    """Intervals of any length, samples that cover more or less time, and gaps."""
    window, at = PowerWindow(), 0.0
    edges: list[float] = []
    parts: list[tuple[float, float, float]] = []
    window.add(reading(at, 0.0), 0.0, None)
    for seconds, covered, known in intervals:
        at += seconds
        edges.append(at)
        means = window.add(reading(at, covered * seconds), seconds, 1.0 if known else None)
        if means is not None:
            length = next(back for back in lengths(edges, at) if back >= 10 - min(seconds, 1) / 2)
            parts.append((at - length, at, means.counted_seconds / length))
    for edge in edges:
        moment = edge - 0.01
        counted = sum(part for since, until, part in parts if since < moment < until)
        assert counted <= 1 + 1e-9


def lengths(edges: list[float], at: float) -> list[float]:
    """How far back each reading is, the nearest first."""
    return [at - edge for edge in reversed([0.0, *edges]) if edge < at]


def test_steady_readings_count_each_moment_once() -> None:
    window, counted = PowerWindow(), 0.0
    for second in range(101):
        means = window.add(reading(float(second), 1.0), float(second > 0), 100.0)
        assert (means is None) == (second < 10)
        counted += 0.0 if means is None else means.counted_seconds
    # But for those at the beginning, which are in fewer windows.
    assert counted == pytest.approx(91.0)


def test_a_gap_begins_a_new_window() -> None:
    window = PowerWindow()
    for second in range(20):
        gap = second in (0, 12)
        means = window.add(reading(float(second), 1.0), 0.0 if gap else 1.0, 100.0)
        assert (means is None) == (second < 10 or second >= 12)
