# SPDX-License-Identifier: Apache-2.0
"""Utilization between two reads, through the driver."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import pytest

from exporter.errors import DeviceGone
from exporter.model.reading import Utilization
from exporter.sources.nvml.utilization import SmClocks, UtilizationReader
from tests.fake_nvml import fault, mean, square

Open = Callable[..., Any]
NO_BUFFER = {"enabled": 0}
about: Any = pytest.approx


def reader(rig: Any) -> UtilizationReader:
    return UtilizationReader(rig.handle, rig.journal)


def read(found: UtilizationReader, rig: Any) -> tuple[Utilization | None, SmClocks]:
    return found.read(rig.monotonic(), rig.time())


def known(found: UtilizationReader, rig: Any) -> Utilization:
    utilization = read(found, rig)[0]
    assert utilization is not None
    return utilization


def test_first_read_covers_no_time(open_gpu: Open) -> None:
    """At first there is the newest value, without an interval."""
    rig = open_gpu(utilization=40, memory_utilization=10)
    rig.advance(5)
    first = known(reader(rig), rig)

    assert (first.ratio, first.memory_ratio, first.seconds) == (0.4, 0.1, 0.0)


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


def test_polls_where_there_is_no_buffer(open_gpu: Open) -> None:
    """Without the buffer each poll stands for the time since the one before; the states show it."""
    rig = open_gpu(utilization=40, memory_utilization=10, samples=NO_BUFFER)
    rig.advance(5)
    found = reader(rig)
    known(found, rig)
    for _ in range(10):
        rig.advance(1)
        utilization = known(found, rig)

    assert utilization == Utilization(
        ratio=about(0.4),
        upper_ratio=about(0.41),
        seconds=about(1.0),
        memory_ratio=about(0.1),
        memory_upper_ratio=about(0.11),
    )
    assert rig.journal.states == dict.fromkeys(
        ("utilization_samples", "memory_utilization_samples", "clock_samples"), "unsupported"
    )


def test_only_the_missing_buffer_is_polled_for(open_gpu: Open) -> None:
    """A driver that samples compute but not memory is polled for memory alone."""
    rig = open_gpu(utilization=40, memory_utilization=10, samples={"types": [1, 5]})
    rig.advance(5)
    found = reader(rig)
    known(found, rig)
    rig.advance(1)
    utilization = known(found, rig)

    assert utilization.ratio == pytest.approx(0.4)
    assert utilization.memory_ratio == pytest.approx(0.1)
    assert utilization.seconds == pytest.approx(1.0)
    assert not found.wants_burst


def test_burst_while_the_polled_gpu_is_not_quiet(open_gpu: Open) -> None:
    """Polls between rounds are wanted until ten seconds were quiet, and when they are not."""
    rig = open_gpu(utilization=0, samples=NO_BUFFER)
    found = reader(rig)
    wanted = []
    for second in range(24):
        read(found, rig)
        wanted.append(found.wants_burst)
        if second == 12:
            rig.fake.device(0, utilization=50)
        if second == 14:
            rig.fake.device(0, utilization=0)
        rig.advance(1)

    assert wanted == [True] * 10 + [False] * 3 + [True] * 11


def test_polls_between_rounds_count(open_gpu: Open) -> None:
    """What a burst sees is part of the mean and of the bound."""
    rig = open_gpu(utilization=square(period=2, duty=0.25, high=100), samples=NO_BUFFER)
    found = reader(rig)
    for tick in range(200):
        rig.advance(0.1)
        if tick % 20 == 19:
            utilization = known(found, rig)
        else:
            found.poll(rig.monotonic())

    assert utilization.ratio == pytest.approx(0.25, abs=0.05)
    assert utilization.upper_ratio == 1.0


def test_no_burst_with_the_buffer(open_gpu: Open) -> None:
    """The sample buffer misses nothing: polling in between would only cost."""
    rig = open_gpu(utilization=50)
    rig.advance(5)
    found = reader(rig)
    read(found, rig)
    rig.calls()
    found.poll(rig.monotonic())

    assert not found.wants_burst
    assert rig.calls() == {}


def test_no_utilization_at_all(open_gpu: Open) -> None:
    """A GPU that reports neither is absent, with the reason, and is not asked for ever."""
    rig = open_gpu(utilization=None, samples=NO_BUFFER)
    found = reader(rig)

    assert read(found, rig) == (None, SmClocks())
    assert not found.wants_burst
    assert rig.journal.states["utilization"] == "unsupported"
    rig.calls()
    assert read(found, rig) == (None, SmClocks())
    assert rig.calls() == {}


def test_no_permission(open_gpu: Open, caplog: pytest.LogCaptureFixture) -> None:
    """Each refused call is one line, one failure and one state."""
    rig = open_gpu()
    rig.fake.update(
        faults=[
            fault("nvmlDeviceGetSamples", error=4),
            fault("nvmlDeviceGetUtilizationRates", error=4),
        ]
    )
    found = reader(rig)
    for _ in range(3):
        assert read(found, rig) == (None, SmClocks())
        rig.advance(1)

    assert set(rig.journal.states.values()) == {"no_permission"}
    assert "utilization" in rig.journal.states
    # Clock samples are not asked for where there is no utilization to weigh them with.
    assert len(rig.journal.states) == rig.failures["nvml"] == 3
    rig.journal.log_changes()
    assert len(caplog.records) == 1


@pytest.mark.parametrize("buffer", [{}, NO_BUFFER])
def test_values_above_100_are_refused_and_counted(
    open_gpu: Open, caplog: pytest.LogCaptureFixture, buffer: dict[str, int]
) -> None:
    """A driver's 130 % is a failure of the source, logged once, and never published."""
    caplog.set_level(logging.INFO)
    rig = open_gpu(utilization=130, memory_utilization=10, samples=buffer)
    rig.advance(1)
    found = reader(rig)
    for _ in range(3):
        assert read(found, rig) == (None, SmClocks())
        rig.journal.log_changes()
        rig.advance(1)

    assert rig.failures["nvml"] >= 3
    assert [entry.getMessage() for entry in caplog.records] == [
        "GPU 0 cannot be read in part: utilization (a value above 100 % was refused)"
    ]


def test_buffer_that_falls_silent_gives_way_to_polls_and_back(open_gpu: Open) -> None:
    """Two seconds without a new sample and the polls take over; when the samples are back they
    take over again, and no time is counted twice."""
    rig = open_gpu(utilization=60)
    rig.advance(15)
    found = reader(rig)
    read(found, rig)
    seconds, sources = 0.0, []
    for second in range(30):
        if second == 5:
            rig.fake.update(faults=[fault("nvmlDeviceGetSamples", error=6)])
        if second == 15:
            rig.fake.update(faults=[])
        rig.advance(1)
        utilization = known(found, rig)
        assert 0.59 <= utilization.ratio <= 0.61
        assert utilization.upper_ratio >= 0.6
        seconds += utilization.seconds
        sources.append("nvmlDeviceGetUtilizationRates" in rig.calls())

    assert sources == [False] * 7 + [True] * 8 + [False] * 15
    assert 24 <= seconds <= 29.2


def test_sm_clock_of_the_busy_time(open_gpu: Open) -> None:
    """The clock is the mean over the busy time, not over the idle one; the first read spans the
    whole buffer."""
    busy = square(period=1, duty=0.5, high=100)
    clock = square(period=1, duty=0.5, high=1800, low=600)
    rig = open_gpu(utilization=busy, clocks={"sm": clock}, sample_period=0.1)
    rig.advance(5)
    found = reader(rig)
    read(found, rig)
    rig.advance(2)

    assert read(found, rig)[1].busy_hertz == pytest.approx(1800e6)


def test_sm_clock_is_absent_without_samples(open_gpu: Open) -> None:
    """Without clock samples, or with ones that no SM runs at, there is no busy clock."""
    rig = open_gpu(utilization=50, clocks={"sm": 5}, samples={"types": [1, 2, 5]})
    rig.advance(2)
    assert read(reader(rig), rig)[1] == SmClocks()
    rig.fake.device(0, samples={"types": [1, 2]})

    assert read(reader(rig), rig)[1] == SmClocks()


def test_lost_gpu_is_raised(open_gpu: Open) -> None:
    """A device-gone code from the buffer ends the round."""
    rig = open_gpu()
    found = reader(rig)
    rig.fake.device(0, lost=1)

    with pytest.raises(DeviceGone):
        read(found, rig)
