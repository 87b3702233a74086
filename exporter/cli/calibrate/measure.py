# SPDX-License-Identifier: Apache-2.0
"""Measures one GPU for some seconds, from the readings of the fleet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean, pstdev

from exporter.clock import Clock
from exporter.errors import ConfigError, ExporterError
from exporter.model.readers import Readers
from exporter.model.reading import Reading
from exporter.sources.fleet.fleet import EVERY_GPU_LEFT_OUT

ROUND_SECONDS = 1.0
SILENT_SECONDS = 10.0
"""A GPU that gives no reading for so long has stopped to answer."""


@dataclass(frozen=True, slots=True)
class Means:
    """What one GPU did between two of its readings."""

    seconds: float
    watts: float
    noise_watts: float
    """How far the mean may be off by chance: two standard errors of its seconds."""
    utilization: float
    memory_utilization: float | None
    sm_clock_hertz: float | None
    throttled: frozenset[str] = field(default_factory=frozenset)
    """The reasons that held at any reading."""
    temperature_celsius: float | None = None
    """The highest."""


class Meter:
    """Asks for the readings of the only GPU that `readers` have, a round each second."""

    def __init__(self, readers: Readers, clock: Clock, wait: Callable[[float], object]) -> None:
        self._readers, self._clock, self._wait = readers, clock, wait

    def reading(self) -> Reading:
        """Return the next reading.

        Raises:
            ExporterError: the GPU does not answer.
        """
        deadline = self._clock.monotonic() + SILENT_SECONDS
        asked = self._clock.monotonic()
        while True:
            self._readers.round(ROUND_SECONDS / 2)
            reports = self._readers.reports()
            for report in reports:
                reading = report.reading
                if reading is not None and reading.monotonic_seconds >= asked:
                    return reading
            if self._clock.monotonic() >= deadline:
                problems = [report.problem for report in reports if report.problem is not None]
                reason = self._readers.problem or (problems[0] if problems else "no GPU answers")
                raise ExporterError(f"nothing can be measured: {reason}")
            self._wait(ROUND_SECONDS / 10)

    def rest(self, seconds: float) -> Reading:
        """Let a load settle; return the last reading."""
        return self._collect(seconds)[-1]

    def measure(self, seconds: float) -> Means:
        """Return the means of the coming seconds.

        Raises:
            ExporterError: the GPU does not answer, or reports no power or no utilization.
        """
        return means_of(self._collect(seconds))

    def _collect(self, seconds: float) -> list[Reading]:
        readings = [self.reading()]
        while readings[-1].monotonic_seconds - readings[0].monotonic_seconds < seconds:
            self._wait(ROUND_SECONDS)
            readings.append(self.reading())
        return readings


def await_one(
    readers: Readers, clock: Clock, wait: Callable[[float], object], asked: str | None = None
) -> None:
    """Wait until the only GPU of `readers` was read; `asked` is the index that was asked for.

    Raises:
        ConfigError: there are several, or there is none of that index.
        ExporterError: it does not answer, or there is none.
    """
    deadline = clock.monotonic() + SILENT_SECONDS
    while True:
        readers.round(ROUND_SECONDS / 2)
        reports = readers.reports()
        if len(reports) > 1:
            indexes = ", ".join(str(report.index) for report in reports)
            raise ConfigError(f"--gpu: expected the index of one GPU, there are {indexes}")
        if any(report.reading is not None for report in reports):
            return
        problems = [report.problem for report in reports if report.problem is not None]
        problem = readers.problem or (problems[0] if problems else None)
        if problem == EVERY_GPU_LEFT_OUT and asked is not None:
            raise ConfigError(f"--gpu: there is no GPU {asked}, or --gpu.exclude leaves it out")
        if problem is not None or clock.monotonic() >= deadline:
            raise ExporterError(f"there is no GPU to calibrate: {problem or 'none answers'}")
        wait(ROUND_SECONDS / 20)


def means_of(readings: list[Reading]) -> Means:
    """Return the means between the first and the last of at least two readings.

    The power is from the energy counter where the driver has one, else the mean of its polls.

    Raises:
        ExporterError: power or utilization is not known.
    """
    later = readings[1:]
    lengths = [
        after.monotonic_seconds - before.monotonic_seconds
        for before, after in zip(readings, later, strict=False)
    ]
    seconds = sum(lengths)
    watts = _watts(readings, lengths)
    used = [each.vitals.utilization for each in later]
    known = [(each, length) for each, length in zip(used, lengths, strict=True) if each is not None]
    if not watts or not known:
        missing = "utilization" if watts else "power"
        raise ExporterError(f"the driver does not report the {missing} of this GPU")
    total = sum(length for _, length in known)
    memory = [
        (each.memory_ratio, length) for each, length in known if each.memory_ratio is not None
    ]
    clocks = [_clock(each) for each in later]
    hertz = [each for each in clocks if each is not None]
    temperatures = [each.vitals.temperature_celsius for each in later]
    return Means(
        seconds=seconds,
        watts=sum(each * length for each, length in zip(watts, lengths, strict=True)) / seconds,
        noise_watts=2.0 * pstdev(watts) / sqrt(len(watts)),
        utilization=sum(each.ratio * length for each, length in known) / total,
        memory_utilization=(
            sum(ratio * length for ratio, length in memory) / total
            if len(memory) == len(known)
            else None
        ),
        sm_clock_hertz=fmean(hertz) if hertz else None,
        throttled=frozenset().union(*(each.vitals.throttle_reasons or () for each in later)),
        temperature_celsius=max((each for each in temperatures if each is not None), default=None),
    )


def _watts(readings: list[Reading], lengths: list[float]) -> list[float]:
    """Return the mean power between each two readings; nothing where it is not known."""
    joules = [each.vitals.energy_joules for each in readings]
    counted = [each for each in joules if each is not None]
    if len(counted) == len(readings):
        return [
            (after - before) / length
            for before, after, length in zip(counted, counted[1:], lengths, strict=False)
        ]
    polled = [each.vitals.power_watts for each in readings[1:]]
    known = [each for each in polled if each is not None]
    return known if len(known) == len(lengths) else []


def _clock(reading: Reading) -> float | None:
    """Return the SM clock while anything ran, else the mean, else that of the moment."""
    vitals = reading.vitals
    return vitals.busy_sm_clock_hertz or vitals.mean_sm_clock_hertz or vitals.clock_hertz.get("sm")
