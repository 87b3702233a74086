# SPDX-License-Identifier: Apache-2.0
"""Utilization between two reads, through the driver."""

from __future__ import annotations

import math
from typing import Any

import pytest

from exporter.model.reading import Utilization
from exporter.sources.nvml.utilization import (
    BUFFER_SECONDS,
    UTILIZATION,
    SampleBuffer,
    UtilizationReader,
)
from tests.fake_nvml import fault, mean, square
from tests.sources.conftest import START, Open

NO_BUFFER = {"enabled": 0}
about: Any = pytest.approx


def reader(rig: Any, seconds: float = 5.0) -> UtilizationReader:
    """That of a GPU after so many seconds, which has been read once."""
    rig.advance(seconds)
    found = UtilizationReader(rig.handle, rig.journal, has_memory=True)
    read(found, rig)
    return found


def read(found: UtilizationReader, rig: Any) -> Any:
    return found.read(rig.monotonic(), rig.time())


def known(found: UtilizationReader, rig: Any) -> Utilization:
    utilization: Utilization | None = read(found, rig)[0]
    assert utilization is not None
    return utilization


def polled(found: UtilizationReader, rig: Any, seconds: float = 1.0) -> Utilization:
    """The utilization of a round, with the readings before it that a worker makes."""
    due = rig.monotonic() + seconds
    while True:
        wait = found.between_seconds
        if wait is None or rig.monotonic() + wait >= due:
            break
        rig.advance(wait)
        found.read_between(rig.monotonic(), rig.time())
    rig.advance(due - rig.monotonic())
    return known(found, rig)


def test_polls_where_there_is_no_buffer(open_gpu: Open) -> None:
    """Without the buffer the polls cover the time; the states show that there is none."""
    rig = open_gpu(utilization=40, memory_utilization=10, samples=NO_BUFFER)
    found = reader(rig)
    utilization = polled(found, rig, 10)

    # The averaging period is not known: it may be as long as 1 s.
    assert utilization == Utilization(
        ratio=about(0.4),
        upper_ratio=about(0.41 + 0.1),
        seconds=about(10.0),
        memory_ratio=about(0.1),
        memory_upper_ratio=about(0.11 + 0.1),
        settled_ratio=about(0.41),
        open_ratio=about(0.1),
        memory_settled_ratio=about(0.11),
        memory_open_ratio=about(0.1),
        lower_ratio=about(0.4 - 0.01 - 0.1),
    )
    assert rig.journal.states == dict.fromkeys(
        ("utilization_samples", "memory_utilization_samples", "clock_samples"), "unsupported"
    )


def test_only_the_missing_buffer_is_polled_for(open_gpu: Open) -> None:
    """A driver that samples compute but not memory is polled for memory alone."""
    rig = open_gpu(utilization=40, memory_utilization=10, samples={"types": [1, 5]})
    found = reader(rig)
    utilization = polled(found, rig, 10)

    assert (utilization.ratio, utilization.upper_ratio) == (about(0.4), about(0.41))
    memory = utilization.memory_ratio, utilization.memory_upper_ratio
    assert memory == (about(0.1), about(0.11 + 0.1))
    assert utilization.seconds == about(10.0)
    assert found.wants_burst


def test_no_burst_with_the_buffer(open_gpu: Open) -> None:
    """The sample buffer misses nothing: polling in between would only cost."""
    rig = open_gpu(utilization=50)
    found = reader(rig)
    rig.calls()
    rig.advance(BUFFER_SECONDS)
    found.read_between(rig.monotonic(), rig.time())

    assert not found.wants_burst
    assert found.between_seconds == BUFFER_SECONDS
    assert rig.calls().keys() == {"nvmlDeviceGetSamples"}


def test_no_utilization_at_all(open_gpu: Open) -> None:
    """A GPU that reports neither is absent, with the reason, and is not asked for ever."""
    rig = open_gpu(utilization=None, samples=NO_BUFFER)
    found = reader(rig)

    assert not found.wants_burst
    assert rig.journal.states["utilization"] == "unsupported"
    rig.calls()
    assert read(found, rig) == (None, None, None)
    assert rig.calls() == {}


@pytest.mark.parametrize("buffer", [{}, NO_BUFFER])
def test_values_above_100_are_implausible(
    open_gpu: Open, caplog: pytest.LogCaptureFixture, buffer: dict[str, int]
) -> None:
    """A driver's 130 % is never published, and the state says so until it is possible again."""
    rig = open_gpu(utilization=130, memory_utilization=10, samples=buffer)
    found = reader(rig, 1)
    for _ in range(3):
        for _ in range(2):  # the second has no new sample
            assert read(found, rig) == (None, None, None)
            rig.journal.log_changes()
        rig.advance(1)
    assert caplog.records == []
    assert rig.journal.states["utilization"] == "implausible"
    rig.fake.device(0, utilization=100)
    rig.advance(1)
    assert polled(found, rig).ratio == 1.0
    rig.advance(20)
    read(found, rig)

    assert "implausible" not in rig.journal.states.values()


def test_buffer_that_falls_silent_gives_way_to_polls_and_back(open_gpu: Open) -> None:
    """When a sample is overdue the polls take over; when the samples are back they take over again,
    and no time is counted twice."""
    rig = open_gpu(utilization=60)
    found = reader(rig, 15)
    seconds, sources = 0.0, []
    for second in range(30):
        if second == 5:
            rig.fake.update(faults=[fault("nvmlDeviceGetSamples", error=6)])
        if second == 15:
            rig.fake.update(faults=[])
        utilization = polled(found, rig)
        assert 0.59 <= utilization.ratio <= 0.61
        assert utilization.upper_ratio >= 0.6
        seconds += utilization.seconds
        sources.append("nvmlDeviceGetUtilizationRates" in rig.calls())

    assert sources == [False] * 5 + [True] * 10 + [False] * 15
    assert 27 <= seconds <= 30.2


def test_sm_clock_of_the_busy_time(open_gpu: Open) -> None:
    """The clock is the mean over the busy time, not over the idle one; the first read spans the
    whole buffer."""
    busy = square(period=1, duty=0.5, high=100)
    clock = square(period=1, duty=0.5, high=1800, low=600)
    rig = open_gpu(utilization=busy, clocks={"sm": clock}, sample_period=0.1)
    found = reader(rig)
    rig.advance(2)

    assert read(found, rig)[1] == pytest.approx(1800e6)


def test_sm_clock_is_absent_without_samples(open_gpu: Open) -> None:
    """Without clock samples, or with ones that no SM runs at, there is no busy clock."""
    rig = open_gpu(utilization=50, clocks={"sm": 5}, samples={"types": [1, 2, 5]})
    assert read(reader(rig), rig)[1:] == (None, None)
    rig.fake.device(0, samples={"types": [1, 2]})

    assert read(reader(rig), rig)[1:] == (None, None)


@pytest.mark.parametrize("step", [4.0, 3600.0, -3600.0])
def test_a_clock_that_is_set_leaves_no_hole(open_gpu: Open, step: float) -> None:
    """The buffer answers by stamps: after a step back they are older than those that were read."""
    rig = open_gpu(utilization=50, memory_utilization=50)
    rig.advance(8000.0)
    found = reader(rig)
    monotonic, unix = rig.monotonic(), rig.time()
    known: list[Utilization] = []
    for _ in range(10):
        monotonic, unix = monotonic + 1.0, unix + 1.0
        if len(known) == 3:
            unix -= step
        rig.fake.set_clock(unix)
        utilization = found.read(monotonic, unix)[0]
        assert utilization is not None
        known.append(utilization)

    assert [each.ratio for each in known] == [about(0.5)] * 10
    assert max(each.upper_ratio for each in known[5:]) < 0.75
    assert min(each.lower_ratio for each in known[5:]) > 0.25
    assert sum(each.seconds for each in known) <= 10.2


def test_samples_from_before_the_clock_was_set_back_are_not_new(open_gpu: Open) -> None:
    """Their stamps are as those of samples to come."""
    rig = open_gpu(after=10)

    def fill(*seconds: float) -> None:
        rig.fake.device(0, raw_samples={str(UTILIZATION): [[at, 10 * at] for at in seconds]})

    buffer = SampleBuffer(rig.handle, UTILIZATION)
    fill(1, 2, 3, 4, 5)
    assert len(buffer.read()) == 5
    buffer.set_back(4.5)
    fill(2, 3, 4, 5, 6)
    assert buffer.read() == []
    fill(3, 4, 5, 6, 1.7, 2.7)
    assert [value for _, value in buffer.read()] == [17.0, 27.0]
    fill(4, 5, 6, 1.7, 2.7, 3.7)
    assert [value for _, value in buffer.read()] == [37.0]


def test_entries_without_a_stamp_are_ignored(open_gpu: Open) -> None:
    """Unused entries, with stamp 0, are no samples; others come in order."""
    rig = open_gpu(after=1, raw_samples={"1": [[-START, 77], [0.9, 3], [-START, 78], [0.5, 2]]})

    assert SampleBuffer(rig.handle, UTILIZATION).read() == [(START + 0.5, 2), (START + 0.9, 3)]


def test_mean_of_the_samples_between_two_reads(open_gpu: Open) -> None:
    """With the buffer, ratio times seconds is the busy time of the samples, to rounding."""
    load = square(period=3.7, duty=0.3, high=100)
    rig = open_gpu(utilization=load)
    rig.advance(20)
    found = reader(rig)
    known(found, rig)
    busy = covered = 0.0
    for seconds in (1, 0.4, 2.2, 1, 3):
        rig.advance(seconds)
        utilization = known(found, rig)
        truth = mean(load, rig.monotonic() - seconds, rig.monotonic()) / 100
        assert truth <= utilization.upper_ratio + 1e-6
        busy += utilization.ratio * utilization.seconds
        covered += utilization.seconds
    first, last = math.floor(20 * 6) / 6, math.floor(27.6 * 6) / 6

    assert covered == pytest.approx(last - first, abs=1e-5)
    assert busy == pytest.approx(mean(load, first, last) / 100 * covered, abs=0.005 * covered)
    assert "nvmlDeviceGetUtilizationRates" not in rig.calls()


@pytest.mark.parametrize("interval", [5.0, 30.0])
def test_long_intervals_lose_no_sample(open_gpu: Open, interval: float) -> None:
    """The buffer holds 17 s: it is read before it is overwritten, clocks too."""
    load = square(period=14, duty=0.5, high=100)
    clock = square(period=14, duty=0.5, high=1800, low=600)
    rig = open_gpu(utilization=load, clocks={"sm": clock})
    rig.advance(5)
    found = reader(rig)
    known(found, rig)
    for _ in range(4):
        before = rig.monotonic()
        utilization = polled(found, rig, interval)
        truth = mean(load, before, rig.monotonic()) / 100
        assert utilization.seconds == pytest.approx(interval, abs=0.2)
        assert utilization.ratio == pytest.approx(truth, abs=0.04)
        assert truth <= utilization.upper_ratio <= truth + 0.06
