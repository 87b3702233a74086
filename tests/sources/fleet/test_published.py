# SPDX-License-Identifier: Apache-2.0
"""Truths of a scripted GPU as they are published: driver, session and publisher together."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from exporter.model.readers import NO_COUNTER_STATES
from exporter.model.reading import SlotReport, XidRecord
from exporter.model.snapshot import Share, ShareTotals
from exporter.publisher import Publisher, Rules
from exporter.publisher.share import TrackedShare
from exporter.specs import load_specs
from tests.fake_nvml import fault, mean, square, steps
from tests.sources.conftest import Open

SPECS = load_specs()


class Node:
    """One GPU of the fake driver, read by a real session and published, on the rig's clock."""

    name = "nvml"
    problem: str | None = None
    failed_initialisations = 0
    counter_states = NO_COUNTER_STATES

    def __init__(self, rig: Any, interval_seconds: float = 1.0, **options: Any) -> None:
        self.rig = rig
        self.interval = interval_seconds
        self.session = rig.session(**options)
        self.publisher = Publisher(self, SPECS, Rules(interval_seconds=interval_seconds), rig)

    def xids(self) -> dict[str, dict[int, XidRecord]]:
        return {}

    def devices(self) -> dict[str, int]:
        return {"nvml": 1}

    def round(self, wait_seconds: float) -> None:
        self.reading = self.session.read()

    def reports(self) -> list[SlotReport]:
        return [SlotReport(0, self.reading.device, self.reading, None, {})]

    def tick(self, count: int = 1, seconds: float | None = None) -> Share:
        """The share after so many further polls."""
        for _ in range(count):
            due = self.rig.monotonic() + (self.interval if seconds is None else seconds)
            while True:
                wait = self.session.between_seconds
                if wait is None or self.rig.monotonic() + wait >= due:
                    break
                self.rig.advance(wait)
                self.session.read_burst()
            self.rig.advance(due - self.rig.monotonic())
            (share,) = self.publisher.tick().gpus[0].shares
        return share

    @property
    def share(self) -> TrackedShare:
        (share,) = next(iter(self.publisher._gpus.values())).shares.values()
        return share

    @property
    def totals(self) -> ShareTotals:
        return self.share.totals

    @property
    def recent_since(self) -> float:
        """When the window of the recent means began."""
        return self.share.recent._marks[0].monotonic


@pytest.mark.parametrize("product", ["a100-sxm4-80gb", "v100-sxm2", "t4", "rtx-4090", "l40s"])
def test_loading_a_model_is_not_idle_without_counters(open_gpu: Open, product: str) -> None:
    """Twenty seconds of copies without a kernel, then ten of nothing."""
    rig = open_gpu(
        after=20,
        product=product,
        utilization=0,
        memory_utilization=30,
        gpm={"supported": 0},
        processes=[{"pid": 1, "bytes": 2**30}],
    )
    node = Node(rig)
    loading = node.tick(20).totals
    rig.fake.device(0, memory_utilization=0)
    after = node.tick(10).totals

    assert loading.observed_seconds["utilization"] >= 18
    assert loading.idle_seconds == loading.held_idle_seconds == loading.idle_energy_joules == 0
    assert after.idle_seconds == pytest.approx(10, abs=1.2)
    assert after.held_idle_seconds == after.idle_seconds


def jittered(interval: float, jitter: float, seconds: float, seed: int = 1) -> Iterator[float]:
    """When each poll is made: due every `interval`, and up to `jitter` late."""
    chance = random.Random(seed)
    for number in range(1, round(seconds / interval) + 1):
        yield number * interval + chance.uniform(0, jitter)


@pytest.mark.parametrize("waits", [True, False], ids=["waiting", "skipping"])
@pytest.mark.parametrize(
    ("interval", "jitter"), [(0.1, 0.004), (0.1, 0.03), (0.25, 0.1), (1.0, 0.3)]
)
def test_idle_energy_is_that_of_the_idle_time(
    open_gpu: Open, interval: float, jitter: float, *, waits: bool
) -> None:
    """120 W for 60 s are 7200 J, also in rounds that come too early for the counters."""
    rig = open_gpu(after=20, power=120, gpm={"graphics": 0, "sm": 0, "tensor": 0, "dram": 0})
    node = Node(rig, interval, sleep=rig.advance if waits else lambda seconds: None)
    node.tick(2)
    before, began = node.totals, rig.monotonic()
    rounds = 0
    for at in jittered(interval, jitter, 60):
        seen = node.totals.observed_seconds["activity"]
        now = rig.monotonic()
        share = node.tick(seconds=max(began + at - now, 0.001))
        rounds += share.totals.observed_seconds["activity"] > seen
    after = node.totals
    observed = after.observed_seconds["activity"] - before.observed_seconds["activity"]
    energy = (after.idle_energy_joules or 0) - (before.idle_energy_joules or 0)

    assert observed == pytest.approx(60, rel=0.01)
    assert (after.idle_seconds or 0) - (before.idle_seconds or 0) == pytest.approx(observed)
    assert energy == pytest.approx(7200, rel=0.01)
    if waits:
        assert rounds >= 0.85 * 60 / interval


def start_over(rig: Any) -> None:
    """Have the driver's energy counter begin at 0 now."""
    rig.fake.device(0, energy=-130 * rig.monotonic())


def fall_for_a_round(rig: Any) -> None:
    """Have it read too little until `recover`."""
    rig.fake.device(0, energy=1000)


def hide(rig: Any) -> None:
    """Have it not answer until `recover`."""
    calls = ("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetFieldValues")
    rig.fake.update(faults=[fault(call, error=999) for call in calls])


def recover(rig: Any) -> None:
    rig.fake.device(0, energy=1e6)
    rig.fake.update(faults=[])


@pytest.mark.parametrize("gpm", [{"supported": 0}, {"graphics": 0, "sm": 0, "dram": 0}])
@pytest.mark.parametrize("interval", [0.25, 1.0, 10.0])
@pytest.mark.parametrize("happens", [start_over, fall_for_a_round, hide])
def test_idle_energy_is_whole_whatever_the_drivers_counter_does(
    open_gpu: Open, gpm: dict[str, float], interval: float, happens: Callable[[Any], None]
) -> None:
    """130 W are 130 J of each idle second, also while the driver's total cannot be believed."""
    job = {"pid": 1, "bytes": 1}
    rig = open_gpu(after=20, power=130, energy=1e6, utilization=0, gpm=gpm, processes=[job])
    node = Node(rig, interval)
    node.tick(4)
    for turn in (None, happens, recover, None):
        if turn is not None and not (turn is recover and happens is start_over):
            turn(rig)
        before = node.totals
        after = node.tick(round(10 / interval)).totals
        idle = (after.idle_seconds or 0) - (before.idle_seconds or 0)
        assert idle == pytest.approx(10, rel=0.01)
        for field in ("idle_energy_joules", "held_idle_energy_joules"):
            used = getattr(after, field) - getattr(before, field)
            assert used == pytest.approx(130 * 10, rel=0.001), (turn, field)
    assert after.idle_seconds is not None


def work(*times: tuple[float, float]) -> dict[str, Any]:
    """A utilization that is 100 % in these times, in seconds after the start, else 0."""
    return steps(
        (0, 0), *((at, level) for start, end in times for at, level in ((start, 100), (end, 0)))
    )


HELD = {"pid": 1, "bytes": 2**30}
NO_COUNTERS = {"gpm": {"supported": 0}}
DRIVERS: dict[str, dict[str, Any]] = {
    "samples of 1/6 s": {},
    "samples of 1 s": {"sample_period": 1.0},
    "polls of 1/6 s": {"samples": {"enabled": 0}},
    "polls of 1 s": {"samples": {"enabled": 0}, "sample_period": 1.0},
}


@pytest.mark.parametrize("held", [True, False], ids=["held", "unheld"])
@pytest.mark.parametrize("interval", [1.0, 10.0])
@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
def test_published_bounds_and_busy_time_are_true(
    open_gpu: Open, driver: dict[str, Any], interval: float, *, held: bool
) -> None:
    """Work of 0.1 to 8 s after quiets of 0.3 to 20 s: no bound is below the truth, also when work
    begins after a quiet; those of the last ten seconds are narrow at every interval, where somebody
    holds the GPU; and busy over observed seconds is the share of busy time."""
    chance = random.Random(4)
    at, times = 20.0, []
    while at < 130:
        at += chance.choice((0.3, 2.0, 4.7, 20.0)) * chance.uniform(0.9, 1.1)
        times.append(
            (at, at := at + chance.choice((0.1, 0.8, 3.0, 8.0)) * chance.uniform(0.9, 1.1))
        )
    load = work(*times)
    rig = open_gpu(
        after=20, product="t4", utilization=load, processes=[HELD] if held else [], **driver
    )
    node = Node(rig, interval)
    node.tick(2)
    start, before = rig.monotonic(), node.totals
    widths: list[float] = []
    for _ in range(round(110 / interval)):
        then = rig.monotonic()
        share = node.tick()
        assert share.saturation is not None
        now = rig.monotonic()
        assert mean(load, then, now) / 100 <= share.saturation.unmeasured["sm"].upper + 1e-5
        recent = share.recent
        assert recent is not None
        assert recent.saturation_bounds is not None
        truth = mean(load, node.recent_since, now) / 100
        assert truth <= recent.saturation_bounds.upper + 1e-5
        widths.append(recent.saturation_bounds.upper - truth)
    busy = (node.totals.busy_seconds or 0) - (before.busy_seconds or 0)
    observed = node.totals.observed_seconds["utilization"] - before.observed_seconds["utilization"]

    rare = not held and "samples" in driver
    # The bound on DRAM has a margin of 0.15; the rest is one period of ten seconds.
    assert rare or max(widths[round(12 / interval) :]) < 0.15 + 0.14
    assert observed == pytest.approx(rig.monotonic() - start, rel=0.01)
    truth = mean(load, start, rig.monotonic()) / 100
    assert busy / observed == pytest.approx(truth, abs=0.05 if rare else 0.01)


@pytest.mark.parametrize(
    ("polls", "state"),
    [
        pytest.param(10, {"processes": [HELD], "utilization": 50}, id="counters measure it"),
        pytest.param(10, {**NO_COUNTERS, "utilization": 0}, id="idle, and nobody holds it"),
        pytest.param(110, {**NO_COUNTERS, "utilization": 50}, id="works without a process"),
        pytest.param(
            110, {**NO_COUNTERS, "processes": [HELD], "utilization": 0}, id="idle, but held"
        ),
    ],
)
def test_polls_are_as_many_as_the_bounds_need(
    open_gpu: Open, polls: int, state: dict[str, Any]
) -> None:
    """Without a sample buffer: one a round where the utilization need not be bounded."""
    rig = open_gpu(after=20, product="h100-sxm", samples={"enabled": 0}, **state)
    node = Node(rig)
    node.tick(3)
    rig.calls()
    node.tick(10)

    assert rig.calls()["nvmlDeviceGetUtilizationRates"] == pytest.approx(polls, rel=0.1)


def jobs(seed: int, until: float) -> list[tuple[float, float]]:
    """Jobs of 20 to 60 s with pauses between them, in seconds after the start."""
    chance = random.Random(seed)
    at, found = 25.0, []
    while at < until:
        end = at + chance.uniform(20, 60)
        found.append((at, end))
        at = end + chance.uniform(15, 30)
    return found


SHARED: dict[str, dict[str, Any]] = {
    **{name: {"product": "t4", **driver} for name, driver in DRIVERS.items()},
    "counters": {"gpm": True},
    "slow samples beside counters": {"gpm": True, "sample_period": 1.0},
    "an instance": {"mig": True},
}


@pytest.mark.parametrize("interval", [pytest.param(0.25, marks=pytest.mark.slow), 1.0, 5.0])
@pytest.mark.parametrize("shared", SHARED.values(), ids=SHARED)
def test_the_end_of_a_job_is_held_idle_for_no_longer_than_an_interval(
    open_gpu: Open, shared: dict[str, Any], interval: float
) -> None:
    """Four jobs that hold the GPU only while they work, each gone with its last kernel."""
    times = jobs(3, 220)
    load = work(*times)
    counters = {"graphics": load, "sm": load, "dram": 0}
    device = {**shared, "utilization": load}
    if "gpm" in shared:
        device |= {"gpm": counters}
    if "mig" in shared:
        device |= {"mig": {"instances": [{"gi": 1, "gpm": counters}]}}
    rig = open_gpu(after=20, **device)
    node = Node(rig, interval)
    present = False
    while rig.monotonic() < times[-1][1] + 20:
        runs = any(start <= rig.monotonic() + interval < end for start, end in times)
        if runs != present:
            present = runs
            entry = HELD | ({"gi": 1} if "mig" in shared else {})
            rig.fake.device(0, processes=[entry] if runs else [])
        node.tick()
    totals = node.totals

    idle = rig.monotonic() - 20 - sum(end - start for start, end in times)
    assert totals.idle_seconds is not None
    assert totals.held_idle_seconds is not None
    assert idle - 2 * len(times) * (1.0 + interval) <= totals.idle_seconds <= idle + 0.1
    assert totals.held_idle_seconds <= len(times) * interval * 1.01


@pytest.mark.parametrize(
    ("on", "off", "interval"),
    [
        pytest.param(2.0, 1.0, 0.1, marks=pytest.mark.slow),
        *((2.0, 1.0, interval) for interval in (1.0, 5.0, 30.0)),
        *((0.5, 4.5, interval) for interval in (1.0, 5.0, 30.0)),
        (20.0, 10.0, 5.0),
    ],
)
def test_counters_that_stand_at_0_make_no_idle_time(
    open_gpu: Open, on: float, off: float, interval: float
) -> None:
    """A job whose load comes and goes: idle is what its utilization leaves, but for the first
    readings and three seconds of work."""
    duty, phase = on / (on + off), 0.3
    load = square(on + off, duty, 100, phase=phase)
    rig = open_gpu(
        after=20,
        utilization=load,
        power=square(on + off, duty, 500, 115, phase=phase),
        gpm={"graphics": 0, "sm": 0, "tensor": 0, "dram": 0},
        processes=[HELD],
    )
    node = Node(rig, interval, sleep=rig.advance)
    node.tick(round(300 / interval))
    share, totals = node.share, node.totals

    believed = 4 * interval + 3 / duty + on + off
    assert share.derived.saturation is not None
    assert share.derived.saturation.source == "estimate"
    assert totals.held_idle_seconds is not None
    assert totals.held_idle_seconds <= 300 * (1 - duty) + believed
    assert (totals.idle_for_seconds or 0.0) <= off
    if interval < off:
        assert totals.held_idle_seconds >= 300 * (1 - duty) * (1 - 2 * interval / off) - off
