# SPDX-License-Identifier: Apache-2.0
"""The utilization of an interval, and the bound that the truth never exceeds."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.sources.nvml.meter import (
    HISTORY_SECONDS,
    ROUNDING_MARGIN,
    SILENT_SECONDS,
    UtilizationMeter,
    busy_mean,
)

START = 1_000.0
"""The first read on the monotonic clock."""
OFFSET = 1.7e9
"""The driver's stamps minus the monotonic clock."""
HALF_PERCENT = 0.005
WHOLE_SECOND = 1.0
SIXTH = 1 / 6


@dataclass(frozen=True)
class Duty:
    """A load that is busy for the first `share` of each period."""

    period: float
    share: float
    phase: float

    def busy_seconds(self, start: float, end: float) -> float:
        return self._until(end) - self._until(start)

    def _until(self, t: float) -> float:
        turns = (t - self.phase) / self.period
        whole = math.floor(turns)
        return self.period * (whole * self.share + min(turns - whole, self.share))

    def mean(self, start: float, end: float) -> float:
        return self.busy_seconds(start, end) / (end - start)

    def is_busy(self, t: float) -> bool:
        return ((t - self.phase) / self.period) % 1.0 < self.share


def whole_percents(ratio: float) -> float:
    return round(100 * ratio) / 100


@dataclass
class Buffer:
    """The driver's ring of means over whole periods, stamped at their ends."""

    duty: Duty
    period: float
    depth: int = 100
    seen: int = 0

    def read(self, t: float) -> list[tuple[float, float]]:
        last = math.floor(t / self.period)
        first = max(self.seen + 1, last - self.depth + 1)
        self.seen = max(self.seen, last)
        return [
            (
                OFFSET + number * self.period,
                whole_percents(self.duty.mean((number - 1) * self.period, number * self.period)),
            )
            for number in range(first, last + 1)
        ]

    @property
    def covered_until(self) -> float:
        return self.seen * self.period


@dataclass(frozen=True)
class Interval:
    start: float
    end: float
    ratio: float
    upper: float
    seconds: float


def closed(meter: UtilizationMeter, start: float, end: float) -> Interval:
    taken = meter.close(end, OFFSET + end)
    assert taken is not None
    return Interval(start, end, *taken)


duties = st.builds(
    Duty,
    period=st.floats(0.05, 5.0),
    share=st.floats(0.0, 1.0),
    phase=st.floats(0.0, 5.0),
)


@settings(max_examples=150)
@given(
    duty=duties,
    sample_period=st.floats(0.02, 1.0),
    poll_interval=st.floats(0.1, 2.0),
    seed=st.integers(0, 2**32),
    latency=st.sampled_from((0.0, 0.0, 0.08)),
)
def test_truth_is_within_the_bound_of_the_samples(
    duty: Duty, sample_period: float, poll_interval: float, seed: int, latency: float
) -> None:
    """With the sample buffer no interval's true mean lies above the upper ratio, whatever the
    load's period, the driver's sampling, the poll interval, its jitter and a slow answer."""
    jitter = random.Random(seed)
    buffer = Buffer(duty, sample_period)
    meter = UtilizationMeter()
    now, last = START, None
    for _ in range(60):
        meter.add_samples(buffer.read(now + jitter.uniform(0, latency)), now)
        interval = closed(meter, last or now, now)
        assert 0.0 <= interval.ratio <= interval.upper <= 1.0
        if last is not None:
            # Unix time in a float is exact to a quarter of a microsecond.
            assert duty.mean(last, now) <= interval.upper + 1e-5
        last = now
        now += poll_interval * jitter.uniform(0.9, 1.1)


@settings(max_examples=100)
@given(
    duty=duties,
    sample_period=st.floats(0.02, 1.0),
    poll_interval=st.floats(0.1, 1.5),
    seed=st.integers(0, 2**32),
)
def test_integral_is_exact_over_the_covered_time(
    duty: Duty, sample_period: float, poll_interval: float, seed: int
) -> None:
    """Ratio times seconds adds up to the true busy time between the first and the last sample."""
    jitter = random.Random(seed)
    buffer = Buffer(duty, sample_period)
    meter = UtilizationMeter()
    meter.add_samples(buffer.read(START), START)
    closed(meter, START, START)
    begin, now = buffer.covered_until, START
    busy = covered = 0.0
    for _ in range(40):
        now += poll_interval * jitter.uniform(0.9, 1.1)
        meter.add_samples(buffer.read(now), now)
        interval = closed(meter, now, now)
        busy += interval.ratio * interval.seconds
        covered += interval.seconds
    end = buffer.covered_until

    assert covered == pytest.approx(end - begin, abs=1e-4)
    assert busy == pytest.approx(
        duty.busy_seconds(begin, end), abs=(HALF_PERCENT + 1e-6) * covered + 1e-4
    )


@pytest.mark.parametrize(
    ("instant", "poll_interval"),
    [(False, 0.1), (False, 0.5), (False, 1.0), (False, 2.0), (True, 0.1), (True, 0.5), (True, 1.0)],
)
def test_polls_bound_the_truth_in_99_of_100_intervals(instant: bool, poll_interval: float) -> None:
    """Without the buffer, polls at each round and every 100 ms while the GPU is not quiet leave
    fewer than 1 % of the intervals of all loads outside."""
    chance = random.Random(7)
    outside = intervals = 0
    for _ in range(150):
        duty = Duty(math.exp(chance.uniform(math.log(0.05), math.log(5))), chance.random(), 0.0)
        meter = UtilizationMeter()
        now, last = START + chance.uniform(0, 5), None
        while now < START + 60:
            polls = [now]
            if last is not None and not meter.quiet:
                burst = last + 0.1
                while burst < now:
                    polls.insert(-1, burst)
                    burst += 0.1 + chance.uniform(0, 0.002)
            for at in polls:
                period = math.floor(at / SIXTH)
                window = duty.mean((period - 1) * SIXTH, period * SIXTH)
                meter.add_poll(whole_percents(duty.is_busy(at) if instant else window), at)
            interval = closed(meter, last or now, now)
            if last is not None:
                intervals += 1
                outside += duty.mean(last, now) > interval.upper + 1e-9
            last = now
            now += poll_interval * chance.uniform(0.95, 1.05)

    assert outside / intervals < 0.01


def sampled(meter: UtilizationMeter, now: float, *values: float, period: float = SIXTH) -> Interval:
    """Close an interval at `now` whose newest samples, the last one at `now`, are `values`."""
    count = len(values)
    stamps = [OFFSET + now - (count - 1 - i) * period for i in range(count)]
    meter.add_samples(list(zip(stamps, values, strict=True)), now)
    return closed(meter, now, now)


def test_first_close_covers_no_time() -> None:
    """The first interval has the newest value, no seconds, and the highest value as its bound."""
    first = sampled(UtilizationMeter(), START, 0.9, 0.2, 0.4)

    assert (first.ratio, first.seconds) == (0.4, 0.0)
    assert first.upper == pytest.approx(0.9 + ROUNDING_MARGIN)


def test_nothing_read_is_unknown() -> None:
    """A meter that was given nothing says nothing."""
    assert UtilizationMeter().close(START, OFFSET + START) is None


def test_bound_is_the_mean_plus_one_percent() -> None:
    """Where samples cover the interval exactly, the bound is their mean and the margin."""
    meter = UtilizationMeter()
    sampled(meter, START, *[0.5] * 100)
    interval = sampled(meter, START + 1, *[0.3] * 6)

    assert interval.ratio == pytest.approx(0.3)
    assert interval.seconds == pytest.approx(1.0)
    assert interval.upper == pytest.approx(0.3 + ROUNDING_MARGIN)


def test_time_without_a_sample_counts_as_busy() -> None:
    """The time since the last sample may have been busy all along."""
    meter = UtilizationMeter()
    sampled(meter, START, *[0.5] * 100)
    meter.add_samples([(OFFSET + START + 0.6, 0.3)], START + 1)
    interval = closed(meter, START, START + 1)

    assert interval.upper >= 0.6 * 0.3 + 0.4


def test_time_without_a_sample_is_idle_after_ten_quiet_seconds() -> None:
    """After ten seconds of zeros an idle GPU does not look 17 % busy for want of one sample."""
    meter = UtilizationMeter()
    sampled(meter, START, *[0.0] * 100)
    meter.add_samples([(OFFSET + START + k * SIXTH, 0.0) for k in range(1, 6)], START + 1)
    interval = closed(meter, START, START + 1)

    assert meter.quiet
    assert interval.ratio == 0.0
    assert interval.upper < 0.015


def test_not_quiet_before_ten_seconds_were_seen() -> None:
    """Two seconds of zeros say nothing about the eight seconds before."""
    meter = UtilizationMeter()
    sampled(meter, START, *[0.0] * 100, period=0.02)

    assert not meter.quiet
    sampled(meter, START + HISTORY_SECONDS, *[0.0] * 100, period=0.02)
    assert meter.quiet


def test_short_intervals_carry_the_rounding_of_a_long_sample() -> None:
    """A 1 s sample that rounds to zero may hide 5 ms of work, all in one interval of 100 ms."""
    duty = Duty(5.0, 0.001, 0.95)
    buffer = Buffer(duty, WHOLE_SECOND)
    meter = UtilizationMeter()
    outside = 0
    for tick in range(300):
        now = START + tick / 10
        meter.add_samples(buffer.read(now), now)
        interval = closed(meter, now, now)
        if tick:
            outside += duty.mean(now - 0.1, now) > interval.upper

    assert outside == 0


def test_samples_that_were_overwritten_count_as_busy() -> None:
    """What happened in a hole of the buffer is not known."""
    meter = UtilizationMeter()
    sampled(meter, START, *[0.5] * 100, period=0.02)
    interval = sampled(meter, START + 4, *[0.0] * 100, period=0.02)

    assert interval.seconds == pytest.approx(2.0)
    assert interval.ratio == 0.0
    assert interval.upper >= 2 / 4


def test_a_longer_sampling_period_is_no_hole_for_long() -> None:
    """A driver that samples more slowly from now on is believed at the second sample."""
    meter = UtilizationMeter()
    sampled(meter, START, *[1.0] * 10, period=0.1)
    for number in range(1, 5):
        interval = sampled(meter, START + number, 1.0)

    assert interval.seconds == pytest.approx(1.0)


def test_values_above_one_are_refused_and_counted() -> None:
    """A driver's 101 % is no value: counted, never integrated, and its time counts as unknown."""
    meter = UtilizationMeter()
    sampled(meter, START, 0.0, 0.0)
    meter.add_samples(
        [(OFFSET + START + k * 0.2, ratio) for k, ratio in enumerate((1.01, 0.0, 0.0, 2.55), 1)],
        START + 0.8,
    )
    interval = closed(meter, START, START + 0.8)

    assert interval.ratio == 0.0
    assert interval.seconds == pytest.approx(0.4)
    assert interval.upper >= 0.5
    assert meter.take_refused() == 2
    assert meter.take_refused() == 0


def test_refused_poll_leaves_the_time_to_the_next() -> None:
    """A poll above 100 % is counted; the next one stands for its time too."""
    meter = UtilizationMeter()
    meter.add_poll(0.4, START)
    closed(meter, START, START)
    meter.add_poll(1.2, START + 1)
    meter.add_poll(0.4, START + 2)
    interval = closed(meter, START, START + 2)

    assert (interval.ratio, interval.seconds) == (0.4, 2.0)
    assert meter.take_refused() == 1


def test_old_samples_are_not_counted_again() -> None:
    """Samples that a driver hands out twice count once."""
    meter = UtilizationMeter()
    sampled(meter, START, 0.5)
    again = [(OFFSET + START + SIXTH, 1.0)]
    meter.add_samples(again, START + SIXTH)
    closed(meter, START, START + SIXTH)
    meter.add_samples(again, START + 1)

    assert closed(meter, START, START + 1).seconds == 0.0


def test_silent_buffer_gives_way_to_polls_and_back_without_counting_twice() -> None:
    """The seconds of all intervals never exceed the time that passed, from samples or polls."""
    meter = UtilizationMeter()
    buffer = Buffer(Duty(SIXTH, 0.5, 0.0), SIXTH)
    seconds, polled = 0.0, 0
    for tick in range(60):
        now = START + tick
        silent = 10 <= tick < 30
        # When it answers again it has samples of the time in between, too.
        meter.add_samples([] if silent else buffer.read(now), now)
        if meter.wants_polls:
            polled += 1
            meter.add_poll(0.5, now)
        interval = closed(meter, now, now)
        seconds += interval.seconds
        assert interval.seconds <= 1.0 + 2 * SIXTH
        assert interval.upper >= 0.5

    assert polled == 20 - SILENT_SECONDS
    assert 50 <= seconds <= 59.2
    assert not meter.wants_polls


def test_polls_before_ten_seconds_bound_nothing() -> None:
    """A load that the first polls missed shows in the bound."""
    meter = UtilizationMeter()
    meter.add_poll(0.0, START)
    assert closed(meter, START, START).upper == 1.0
    for second in range(1, 11):
        meter.add_poll(0.0, START + second)
        interval = closed(meter, START, START + second)

    assert interval.upper == ROUNDING_MARGIN


def test_poll_after_an_outage_does_not_stand_for_it() -> None:
    """A minute in which no poll answered is not integrated when one answers again."""
    meter = UtilizationMeter()
    meter.add_poll(1.0, START)
    closed(meter, START, START)
    for second in range(1, 60):
        meter.close(START + second, OFFSET + START + second)
    meter.add_poll(1.0, START + 60)
    interval = closed(meter, START + 59, START + 60)
    meter.add_poll(1.0, START + 61)

    assert interval.seconds == 0.0
    assert closed(meter, START + 60, START + 61).seconds == 1.0


@pytest.mark.parametrize(("interval", "stands"), [(0.5, 5), (1.0, 2), (2.0, 2), (10.0, 2)])
def test_what_was_read_last_stands_for_three_intervals(interval: float, stands: int) -> None:
    """At least for three seconds; then nothing is known, also not of ten seconds before."""
    meter = UtilizationMeter()
    sampled(meter, START, 0.5)
    meter.close(START, OFFSET + START)
    taken = [
        meter.close(START + number * interval, OFFSET + START + number * interval)
        for number in range(1, stands + 3)
    ]

    assert [each is not None for each in taken] == [True] * stands + [False] * 2
    assert all(each[2] == 0.0 for each in taken if each is not None)


def test_clocks_that_do_not_agree_cost_one_period() -> None:
    """Where the driver's stamps are not Unix time, the age of the last sample is not known."""
    meter = UtilizationMeter()
    sampled(meter, START, *[1.0] * 100)
    meter.add_samples([(OFFSET + START + k * SIXTH, 0.0) for k in range(1, 7)], START + 1)
    taken = meter.close(START + 1, 5.0)

    assert taken is not None
    assert taken[1] == pytest.approx(SIXTH + ROUNDING_MARGIN)


def test_busy_mean_weighs_by_the_nearest_utilization() -> None:
    """Clocks count as much as the GPU was busy at that time."""
    assert busy_mean([(0, 200.0), (1, 1800.0), (2, 1000.0)], [(0, 0.0), (1, 1.0), (2, 0.5)]) == (
        pytest.approx((1800 + 500) / 1.5)
    )


def test_busy_mean_of_an_idle_time_is_the_plain_mean() -> None:
    """Without any busy sample every clock counts the same."""
    assert busy_mean([(0, 200.0), (1, 400.0)], [(0, 0.0)]) == 300.0
    assert busy_mean([(0, 200.0), (1, 400.0)], []) == 300.0


def test_busy_mean_of_nothing_is_unknown() -> None:
    """No clock samples, no mean."""
    assert busy_mean([], [(0, 1.0)]) is None


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
