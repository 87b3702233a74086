# SPDX-License-Identifier: Apache-2.0
"""One GPU's utilization between two reads, from the driver's sample buffers or from polls."""

from __future__ import annotations

from typing import Any, NamedTuple

import pynvml

from exporter.model.reading import Utilization
from exporter.sources.journal import Journal
from exporter.sources.nvml import NVML
from exporter.sources.nvml.meter import UtilizationMeter, busy_mean
from exporter.sources.nvml.plausible import CLOCK_MEGAHERTZ
from exporter.sources.nvml.probe import Probe
from exporter.sources.nvml.samples import MEMORY_UTILIZATION, SM_CLOCK, UTILIZATION, SampleBuffer

LOWEST_SANE_CLOCK_MHZ = 100.0


class SmClocks(NamedTuple):
    """Means of the driver's clock samples since the last read; None where it keeps none."""

    busy_hertz: float | None = None
    """Weighted by the utilization at the time of each sample."""
    mean_hertz: float | None = None


class UtilizationReader:
    """Reads compute and memory utilization, and the SM clock of the busy time."""

    def __init__(self, handle: Any, journal: Journal) -> None:
        self._journal = journal
        self.fresh = False
        """Whether the last read gave a new sample or poll."""
        self._polled = False
        self._compute = UtilizationMeter()
        self._memory = UtilizationMeter()
        self._compute_samples = self._buffer(handle, "utilization_samples", UTILIZATION)
        self._memory_samples = self._buffer(
            handle, "memory_utilization_samples", MEMORY_UTILIZATION
        )
        self._clock_samples = self._buffer(handle, "clock_samples", SM_CLOCK)
        self._rates: Probe[Any] = Probe(
            journal, "utilization", (lambda: pynvml.nvmlDeviceGetUtilizationRates(handle),)
        )

    def _buffer(self, handle: Any, group: str, kind: int) -> Probe[list[tuple[float, float]]]:
        return Probe(self._journal, group, (SampleBuffer(handle, kind).read,))

    @property
    def wants_burst(self) -> bool:
        """True while utilization is polled and the GPU was in use within the last ten seconds."""
        meter = self._compute
        return self._rates.possible and meter.wants_polls and not meter.quiet

    def poll(self, monotonic_seconds: float) -> None:
        """Poll the utilizations that have no sample buffer."""
        meters = (self._compute, self._memory)
        if not any(meter.wants_polls for meter in meters):
            return
        rates = self._rates()
        if rates is None:
            return
        self._polled = True
        for meter, percent in zip(meters, (rates.gpu, rates.memory), strict=True):
            if meter.wants_polls:
                meter.add_poll(percent / 100, monotonic_seconds)

    def read(
        self, monotonic_seconds: float, unix_seconds: float
    ) -> tuple[Utilization | None, SmClocks]:
        """Return the utilization since the last read and the SM clocks of that time."""
        samples = _ratios(self._compute_samples())
        self._compute.add_samples(samples, monotonic_seconds)
        memory_samples = _ratios(self._memory_samples())
        self._memory.add_samples(memory_samples, monotonic_seconds)
        self.poll(monotonic_seconds)
        self.fresh = bool(samples or memory_samples) or self._polled
        self._polled = False
        compute = self._compute.close(monotonic_seconds, unix_seconds)
        memory = self._memory.close(monotonic_seconds, unix_seconds)
        refused = self._compute.take_refused() + self._memory.take_refused()
        for _ in range(refused):
            self._journal.failed(NVML, "utilization", "a value above 100 % was refused", self)
        if not refused:
            self._journal.answered("utilization", self)
        if compute is None:
            return None, SmClocks()
        utilization = Utilization(
            ratio=compute[0],
            upper_ratio=compute[1],
            seconds=compute[2],
            memory_ratio=memory[0] if memory else None,
            memory_upper_ratio=memory[1] if memory else None,
        )
        clocks = [
            (stamp, megahertz)
            for stamp, megahertz in self._clock_samples() or ()
            if megahertz >= LOWEST_SANE_CLOCK_MHZ and CLOCK_MEGAHERTZ(megahertz) is not None
        ]
        return utilization, SmClocks(
            busy_hertz=_hertz(busy_mean(clocks, samples)), mean_hertz=_hertz(busy_mean(clocks, ()))
        )


def _hertz(megahertz: float | None) -> float | None:
    return None if megahertz is None else megahertz * 1e6


def _ratios(samples: list[tuple[float, float]] | None) -> list[tuple[float, float]]:
    return [(stamp, percent / 100) for stamp, percent in samples or ()]
