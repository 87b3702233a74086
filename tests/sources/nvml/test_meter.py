# SPDX-License-Identifier: Apache-2.0
"""The utilization of an interval, and the bounds that the truth never leaves."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exporter.sources.nvml.meter import ROUNDING_MARGIN, UtilizationMeter, busy_mean
from exporter.sources.nvml.polls import LONGEST_PERIOD_SECONDS, PollTrack
from exporter.sources.nvml.utilization import (
    BUFFER_SECONDS,
    BURST_SPREAD_SECONDS,
    SHORTEST_BURST_SECONDS,
)

START = 1_000.0
"""The first read on the monotonic clock."""
OFFSET = 1.7e9
"""The driver's stamps minus the monotonic clock."""
HALF_PERCENT = 0.005
STAMP_SECONDS = 1e-5
"""Unix time in a float is exact to a quarter of a microsecond."""
SIXTH = 1 / 6
PERIODS = (SIXTH, 0.25, 0.5, 1.0)
INTERVALS = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0)


class Load:
    """A GPU that is busy and idle in turn, for scripted times; then it is as at the start."""

    def __init__(
        self, turns: Sequence[float], *, starts_busy: bool = False, begin: float = 0.0
    ) -> None:
        """Take how long it is idle, busy, idle and so on, in seconds, and where in that it is at
        the start."""
        self._begin = START - begin
        self._busy = [(number % 2 == 0) == starts_busy for number in range(len(turns))]
        self._ends = list(accumulate(turns))
        busy_turns = (seconds * busy for seconds, busy in zip(turns, self._busy, strict=True))
        self._busy_until = list(accumulate(busy_turns))

    def _until(self, t: float) -> float:
        length = self._ends[-1]
        whole, t = divmod(t - self._begin, length)
        at = min(bisect_right(self._ends, t), len(self._ends) - 1)
        rest = (self._ends[at] - t) if self._busy[at] else 0.0
        return whole * self._busy_until[-1] + self._busy_until[at] - rest

    def busy_seconds(self, start: float, end: float) -> float:
        """The truth."""
        return self._until(end) - self._until(start)

    def mean(self, start: float, end: float) -> float:
        return self.busy_seconds(start, end) / (end - start)


def whole_percents(ratio: float) -> float:
    return round(100 * ratio) / 100


def cut_percents(ratio: float) -> float:
    return math.floor(100 * ratio + 1e-6) / 100


@dataclass
class Driver:
    """What a driver shows of a load: means over whole periods, of which one ends at `phase`."""

    load: Load
    period: float
    phase: float = 0.0
    percents: Callable[[float], float] = whole_percents
    buffer: bool = True
    dry: bool = False
    """Whether it takes no samples while nothing runs."""
    sliding: bool = False
    """Whether a poll is the mean of the time just before it, not of the last whole period."""
    lost: Sequence[tuple[float, float]] = ()
    """Times of which the samples never come."""
    set_forward: tuple[float, float] = (math.inf, 0.0)
    """When the clock of the stamps is set forward, and by how many seconds."""
    depth: int = 100
    seen: int | None = None
    polls: int = 0

    def _number(self, t: float) -> int:
        return math.floor((t - self.phase) / self.period + 1e-9)

    def _end(self, number: int) -> float:
        return self.phase + number * self.period

    def read(self, t: float) -> list[tuple[float, float]]:
        """The new samples."""
        if not self.buffer:
            return []
        last = self._number(t)
        first = last - self.depth + 1
        first = first if self.seen is None else max(first, self.seen + 1)
        self.seen = last
        found = []
        for number in range(first, last + 1):
            end = self._end(number)
            ratio = self.load.mean(end - self.period, end)
            if any(start < end <= stop for start, stop in self.lost):
                continue
            if ratio > 1e-9 or not self.dry:
                found.append((self.stamp(end), self.percents(ratio)))
        return found

    def stamp(self, t: float) -> float:
        """What the clock of the stamps says."""
        at, seconds = self.set_forward
        return OFFSET + t + (seconds if t > at else 0.0)

    def poll(self, t: float) -> float:
        self.polls += 1
        end = t if self.sliding else self._end(self._number(t))
        return self.percents(self.load.mean(end - self.period, end))

    @property
    def covered_until(self) -> float:
        assert self.seen is not None
        return self._end(self.seen)


@dataclass(frozen=True)
class Interval:
    start: float
    end: float
    ratio: float
    upper: float
    seconds: float
    lower: float

    @property
    def busy_seconds(self) -> float:
        return self.ratio * self.seconds


def closed(meter: UtilizationMeter, start: float, end: float) -> Interval:
    taken = meter.close(end)
    assert taken is not None
    return Interval(start, end, *taken[:3], taken.lower_ratio)


def share(found: Sequence[Interval]) -> tuple[float, float]:
    """The busy share of the time that was seen, and how much of all time that is."""
    seen = sum(each.seconds for each in found)
    busy = sum(each.busy_seconds for each in found)
    return busy / seen, seen / (found[-1].end - found[0].start)


@dataclass
class Watch:
    """Reads a driver as a worker does: rounds with jitter, and what is needed in between."""

    driver: Driver
    interval: float
    seed: int = 0
    meter: UtilizationMeter = field(default_factory=UtilizationMeter)
    bursts: bool = True
    begin: float = START
    ahead: float = OFFSET
    """How far the clock of the stamps is ahead."""

    def _take(self, t: float) -> None:
        samples, ahead = self.driver.read(t), self.driver.stamp(t) - t
        if abs(ahead - self.ahead) > LONGEST_PERIOD_SECONDS:
            self.meter.follow_clock(ahead - self.ahead)
        self.ahead = ahead
        self.meter.add_samples(samples, t, self.driver.stamp(t))
        if self.meter.wants_polls:
            self.meter.add_poll(self.driver.poll(t), t)

    def _between(self, start: float, end: float, chance: random.Random) -> None:
        t = start
        while self.bursts:
            if self.meter.wants_burst:
                t += SHORTEST_BURST_SECONDS + BURST_SPREAD_SECONDS * chance.random()
            elif self.meter.sampled:
                t += BUFFER_SECONDS
            else:
                return
            if t >= end:
                return
            self._take(t)

    def intervals(self, seconds: float) -> list[Interval]:
        """Every interval of so many seconds, or of five rounds if that is more."""
        chance = random.Random(self.seed)
        start = now = self.begin
        last, found = None, []
        for number in range(1, max(6, round(seconds / self.interval)) + 1):
            if last is not None:
                now = start + self.interval * (number - 1 + chance.uniform(0, 0.05))
                self._between(last, now, chance)
            self._take(now)
            interval = closed(self.meter, last or now, now)
            if last is not None:
                found.append(interval)
            last = now
        return found


def missed(load: Load, intervals: Sequence[Interval]) -> list[tuple[Interval, float]]:
    """The intervals whose truth lies outside the bounds, with the truth."""
    truths = [(each, load.mean(each.start, each.end)) for each in intervals]
    return [
        (each, truth)
        for each, truth in truths
        if not each.lower - STAMP_SECONDS <= truth <= each.upper + STAMP_SECONDS
    ]


loads = st.one_of(
    st.builds(
        Load,
        st.lists(st.floats(0.01, 12), min_size=2, max_size=30),
        starts_busy=st.booleans(),
    ),
    st.builds(Load, st.lists(st.floats(0.02, 0.6), min_size=30, max_size=60)),
    st.builds(Load, st.just((25.0, 0.7))),
    st.builds(Load, st.just((1e6, 1.0)), starts_busy=st.booleans()),
)
drivers = st.fixed_dictionaries(
    {
        "period": st.sampled_from(PERIODS),
        "phase": st.floats(0, 1),
        "percents": st.sampled_from((whole_percents, cut_percents)),
    }
)
seeds = st.integers(0, 2**32)


@settings(max_examples=2 * settings().max_examples)
@given(
    load=loads,
    driver=drivers,
    kind=st.sampled_from(
        ({}, {"dry": True}, {"buffer": False}, {"buffer": False, "sliding": True})
    ),
    lost=st.lists(st.tuples(st.floats(0, 60), st.floats(0, 8)), max_size=4),
    interval=st.sampled_from(INTERVALS),
    seed=seeds,
)
@example(Load((20.25, 5.0)), {"period": 1.0}, {}, [], 1.0, 1)
@example(Load((4.996, 0.004), begin=4.05), {"period": 1.0}, {}, [], 0.1, 1)
@example(Load((20.5, 5.0)), {"period": 1.0}, {"buffer": False}, [], 5.0, 1)
def test_truth_is_within_the_bound(
    load: Load,
    driver: dict[str, float],
    kind: dict[str, bool],
    lost: list[tuple[float, float]],
    interval: float,
    seed: int,
) -> None:
    """No interval's true mean lies outside the bounds: whatever the load, the driver's period
    and its phase, the poll interval and its jitter; with samples, with samples of busy time only,
    and with polls alone; also when work begins after a long quiet, and where samples are lost."""
    holes = [] if kind else [(START + start, START + start + length) for start, length in lost]
    watched = Driver(load, lost=holes, **driver, **kind)  # type: ignore[arg-type]
    found = Watch(watched, interval, seed).intervals(60 if holes else 30)

    assert missed(load, found) == []
    assert all(0 <= each.lower <= each.ratio <= each.upper <= 1 for each in found)


@given(load=loads, driver=drivers, interval=st.sampled_from(INTERVALS), seed=seeds)
def test_integral_is_exact_over_the_covered_time(
    load: Load, driver: dict[str, float], interval: float, seed: int
) -> None:
    """Ratio times seconds adds up to the true busy time between the first and the last sample, at
    every poll interval: also at those that are longer than the buffer."""
    watched = Driver(load, **{**driver, "percents": whole_percents})  # type: ignore[arg-type]
    first = Driver(load, **driver)  # type: ignore[arg-type]
    first.read(START)
    found = Watch(watched, interval, seed).intervals(40)
    covered = sum(each.seconds for each in found)
    begin, end = first.covered_until, watched.covered_until

    assert watched.polls == 0
    assert covered == pytest.approx(end - begin, abs=1e-3)
    assert sum(each.busy_seconds for each in found) == pytest.approx(
        load.busy_seconds(begin, end), abs=(HALF_PERCENT + 1e-6) * covered + 1e-3
    )


def shares(
    interval: float, seconds: float, *, bursts: bool = True, **kind: Any
) -> tuple[float, float, float]:
    """The true busy share of many loads, that which was counted, and how much of them was seen."""
    chance = random.Random(11)
    busy = counted = seen = length = 0.0
    for seed in range(24):
        turns = [chance.uniform(*most) for most in [(0.2, 6), (0.05, 2)] * 40]
        load = Load(turns, begin=chance.uniform(0, 40))
        driver = Driver(load, PERIODS[seed % 4], chance.random(), buffer=False, **kind)
        found = Watch(driver, interval, seed, bursts=bursts).intervals(seconds)
        busy += load.busy_seconds(found[0].start, found[-1].end)
        length += found[-1].end - found[0].start
        counted += sum(each.busy_seconds for each in found)
        seen += sum(each.seconds for each in found)
    return busy / length, counted / seen, seen / length


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize("sliding", [False, True])
def test_polls_do_not_favour_busy_time(interval: float, sliding: bool) -> None:
    """Busy seconds over observed seconds are the true share, with all of the time observed."""
    truth, counted, seen = shares(interval, 40, sliding=sliding)

    assert counted == pytest.approx(truth, rel=0.02)
    assert seen == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("interval", [1.0, 5.0])
def test_polls_of_rounds_alone_count_for_what_they_saw(interval: float) -> None:
    """One poll a round observes a sixth of a second, of busy and of idle time alike."""
    truth, counted, seen = shares(interval, 250 * interval, bursts=False)

    assert counted == pytest.approx(truth, rel=0.05)
    assert seen == pytest.approx(SIXTH / interval, rel=0.02)


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize(("busy", "idle"), [(0.5, 1.5), (5.0, 15.0), (1.1, 3.3)])
@pytest.mark.parametrize("period", PERIODS)
def test_a_buffer_that_is_dry_while_idle_is_understood(
    interval: float, busy: float, idle: float, period: float
) -> None:
    """A quarter of the time is a quarter, though nearly all samples say 100 %; once it is known
    that silence means idle, it is polled only where the buffer is read."""
    load = Load((idle, busy))
    driver = Driver(load, period, 0.07, dry=True)
    watch = Watch(driver, interval, 3)
    learning = watch.intervals(max(100, 6 * interval))
    driver.polls = 0
    watch.begin = learning[-1].end
    understood = watch.intervals(max(100, 6 * interval))

    for found in (learning, understood):
        busy, seen = share(found)
        assert busy == pytest.approx(load.mean(found[0].start, found[-1].end), abs=0.03)
        assert seen > 0.94
        assert missed(load, found) == []
    reads = len(understood) + (understood[-1].end - understood[0].start) / BUFFER_SECONDS
    assert driver.polls <= reads + 1


def test_a_buffer_that_fails_while_busy_is_not_taken_for_idle() -> None:
    """A gap in the samples does not mean idle while polls show work."""
    load = Load((1e6, 1.0), starts_busy=True)
    holes = [(START + 10 * n, START + 10 * n + 4) for n in range(1, 12)]
    found = Watch(Driver(load, SIXTH, lost=holes), 1.0).intervals(120)

    assert missed(load, found) == []
    assert all(each.ratio == 1.0 for each in found)


def test_a_dry_driver_that_fails_once_is_not_believed_any_more() -> None:
    """Polls that show work in a gap refute what earlier gaps showed."""
    load = Load([seconds for _ in range(10) for seconds in (3.0, 1.0)] + [30.0, 60.0])
    watch = Watch(Driver(load, SIXTH, dry=True, lost=[(START + 72, START + 128)]), 1.0)
    found = watch.intervals(130)
    late = [each for each in found if 76 < each.start - START < 126]

    assert missed(load, found) == []
    assert all(each.ratio == 1.0 for each in late)


def sampled(meter: UtilizationMeter, now: float, *values: float, period: float = SIXTH) -> Interval:
    """Close an interval at `now` whose newest samples, the last one at `now`, are `values`."""
    count = len(values)
    stamps = [OFFSET + now - (count - 1 - i) * period for i in range(count)]
    meter.add_samples(list(zip(stamps, values, strict=True)), now, OFFSET + now)
    return closed(meter, now, now)


@pytest.mark.parametrize(
    ("period", "interval", "most"),
    [(SIXTH, 1.0, 0.18), (SIXTH, 10.0, 0.03), (1.0, 10.0, 0.12), (1.0, 30.0, 0.05)],
)
def test_an_idle_gpu_is_known_to_be_idle_up_to_one_period(
    period: float, interval: float, most: float
) -> None:
    """The bound of an idle GPU: the part of the interval since the last sample, and 0.01."""
    found = Watch(Driver(Load((1e6, 1.0), begin=500), period, 0.1), interval).intervals(100)

    assert max(each.upper for each in found) <= most
    assert {each.ratio for each in found} == {0.0}


@pytest.mark.parametrize(
    ("kind", "period", "interval", "least"),
    [
        ({}, SIXTH, 1.0, 0.8),
        ({}, SIXTH, 10.0, 0.96),
        ({}, 1.0, 10.0, 0.85),
        ({}, 1.0, 30.0, 0.94),
        ({"buffer": False}, 1.0, 10.0, 0.85),
        ({"dry": True}, SIXTH, 10.0, 0.96),
    ],
)
def test_a_busy_gpu_is_known_to_be_busy_up_to_one_period(
    kind: dict[str, bool], period: float, interval: float, least: float
) -> None:
    """All but the part of the interval since the last sample, what the first sample may have of
    the time before, and 0.01; once it was seen that the driver samples idle time, too."""
    load = Load((5.0, 1e6), begin=1.0)
    found = Watch(Driver(load, period, 0.1, **kind), interval).intervals(100)  # type: ignore[arg-type]

    assert min(each.lower for each in found[10:] or found[2:]) >= least
    assert missed(load, found) == []


def test_a_driver_that_may_skip_idle_samples_is_believed_for_a_sixth_of_a_second() -> None:
    """Two samples two seconds apart may be means of any time between a sixth and a second."""
    meter = UtilizationMeter()
    sampled(meter, START, 1.0)
    for second in range(1, 4):
        interval = sampled(meter, START + second, 1.0)

    assert interval.ratio == 1.0
    assert interval.lower == pytest.approx(0.99 * SIXTH)


def test_a_longer_sampling_period_is_no_hole_for_long() -> None:
    """A driver that samples more slowly from now on is believed at the second sample."""
    meter = UtilizationMeter()
    sampled(meter, START, *[1.0] * 10, period=0.1)
    for number in range(1, 5):
        interval = sampled(meter, START + number, 1.0)

    assert interval.seconds == pytest.approx(1.0)


def test_old_samples_are_not_counted_again() -> None:
    """Samples that a driver hands out twice count once."""
    meter = UtilizationMeter()
    sampled(meter, START, 0.5)
    again = [(OFFSET + START + SIXTH, 1.0)]
    meter.add_samples(again, START + SIXTH, OFFSET + START + SIXTH)
    closed(meter, START, START + SIXTH)
    meter.add_samples(again, START + 1, OFFSET + START + 1)

    assert closed(meter, START, START + 1).seconds == 0.0


@dataclass
class LateDriver(Driver):
    """A buffer that answers nothing for a while, and then has the samples of that time, too."""

    def read(self, t: float) -> list[tuple[float, float]]:
        return [] if START + 10 <= t < START + 30 else super().read(t)


@pytest.mark.parametrize("interval", [0.5, 1.0, 5.0])
def test_late_samples_do_not_count_what_polls_have_counted(interval: float) -> None:
    """The seconds of all intervals never exceed the time that passed, from samples or polls."""
    load = Load((0.2, 0.3))
    driver = LateDriver(load, SIXTH, depth=200)
    found = Watch(driver, interval).intervals(60)

    assert missed(load, found) == []
    assert 58 - 2 * interval <= sum(each.seconds for each in found) <= 60 + SIXTH
    assert share(found)[0] == pytest.approx(0.6, abs=0.02)
    assert driver.polls > 100


def test_polls_show_the_averaging_period() -> None:
    """Two changes of whole periods are a period apart, and a sliding mean changes gradually; a
    period is only as short as both readings of the polls allow."""
    whole, sliding = PollTrack(), PollTrack()
    for tenth in range(100):
        now = START + tenth / 10
        whole.add(0.5 * (tenth // 4 % 3), now)
        sliding.add(min(1.0, tenth / 50), now)

    assert whole.longest_period_seconds == pytest.approx(0.5)
    assert sliding.longest_period_seconds == 1.0


def test_poll_after_an_outage_does_not_stand_for_it() -> None:
    """Of a minute in which no poll answered, the next one has seen a sixth of a second."""
    meter = UtilizationMeter()
    meter.add_poll(1.0, START)
    closed(meter, START, START)
    for second in range(1, 60):
        meter.close(START + second)
    meter.add_poll(1.0, START + 60)
    interval = closed(meter, START + 59, START + 60)
    meter.add_poll(1.0, START + 61)

    assert interval.seconds == SIXTH
    assert interval.upper == 1.0
    assert closed(meter, START + 60, START + 61).seconds == SIXTH


@pytest.mark.parametrize(("interval", "stands"), [(0.5, 5), (1.0, 2), (2.0, 2), (10.0, 2)])
def test_what_was_read_last_stands_for_three_intervals(interval: float, stands: int) -> None:
    """At least for three seconds; then nothing is known, also not of ten seconds before."""
    meter = UtilizationMeter()
    sampled(meter, START, 0.5)
    meter.close(START)
    taken = [meter.close(START + number * interval) for number in range(1, stands + 3)]

    assert [each is not None for each in taken] == [True] * stands + [False] * 2
    assert all(each[2] == 0.0 for each in taken if each is not None)


def test_clocks_that_do_not_agree_cost_one_period() -> None:
    """Where the driver's stamps are not Unix time, the age of the last sample is not known."""
    meter = UtilizationMeter()
    meter.add_samples([(k * SIXTH, 1.0) for k in range(100)], START, OFFSET + START)
    meter.close(START)
    meter.add_samples([(k * SIXTH, 0.0) for k in range(100, 106)], START + 1, OFFSET + START + 1)

    assert closed(meter, START, START + 1).upper == pytest.approx(SIXTH + ROUNDING_MARGIN)


@pytest.mark.parametrize("dry", [True, False])
@pytest.mark.parametrize("at", [100.0, 100.4, 101.3, 104.0])
@pytest.mark.parametrize("seconds", [5.0, 3600.0])
def test_a_clock_that_is_set_forward_adds_no_time(dry: bool, at: float, seconds: float) -> None:
    """Nor does a host that slept: its clock goes on, the monotonic one does not."""
    load = Load((3.0, 3.0))
    driver = Driver(load, SIXTH, 0.07, dry=dry, set_forward=(START + at, seconds))
    found = Watch(driver, 1.0).intervals(130)

    assert sum(each.seconds for each in found if each.end > START + 90) <= 41.5
    assert share(found[-20:])[1] == pytest.approx(1.0, abs=0.1)
    assert missed(load, found) == []


def test_busy_mean_of_an_idle_time_is_the_plain_mean() -> None:
    """Without any busy sample every clock counts the same."""
    assert busy_mean([(0, 200.0), (1, 400.0)], [(0, 0.0)]) == 300.0
    assert busy_mean([(0, 200.0), (1, 400.0)], []) == 300.0


@given(
    st.lists(st.tuples(st.integers(0, 50), st.floats(1, 2000)), min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(0, 50), st.floats(0.01, 1)), min_size=1, max_size=20),
)
def test_busy_mean_finds_the_nearest(
    clocks: list[tuple[int, float]], busy: list[tuple[int, float]]
) -> None:
    """The nearest sample is found in one pass, the later one of two equally near."""
    clocks, busy = sorted(clocks), sorted(busy)
    weights = [
        min(enumerate(busy), key=lambda mark: (abs(mark[1][0] - stamp), -mark[0]))[1][1]
        for stamp, _ in clocks
    ]
    expected = sum(w * value for w, (_, value) in zip(weights, clocks, strict=True)) / sum(weights)

    assert busy_mean(clocks, busy) == pytest.approx(expected)
