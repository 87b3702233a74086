# SPDX-License-Identifier: Apache-2.0
"""One GPU's utilization between two reads, from the driver's sample buffers or from polls."""

from __future__ import annotations

import struct
from collections import deque
from ctypes import byref, c_char, c_uint, c_ulonglong
from typing import Any

import pynvml

from exporter.model.reading import Utilization
from exporter.sources.nvml.fields import decode
from exporter.sources.nvml.meter import UtilizationMeter, busy_mean
from exporter.sources.nvml.plausible import CLOCK_MEGAHERTZ, ENGINE_PERCENT
from exporter.sources.nvml.polls import LONGEST_PERIOD_SECONDS
from exporter.sources.nvml.probe import Probe, probe_of
from exporter.sources.reading_state import Journal

UTILIZATION = pynvml.NVML_GPU_UTILIZATION_SAMPLES
MEMORY_UTILIZATION = pynvml.NVML_MEMORY_UTILIZATION_SAMPLES
SM_CLOCK = pynvml.NVML_PROCESSOR_CLK_SAMPLES

CAPACITY = 1024
"""Drivers keep about a hundred samples: 17 s at the shortest sampling period."""
_ENTRY = struct.Struct("=QQ")
"""nvmlSample_t: timestamp in microseconds, value's 8 bytes."""
LOWEST_SANE_CLOCK_MHZ = 100.0
SHORTEST_BURST_SECONDS = 0.06
BURST_SPREAD_SECONDS = 0.05
"""The longest wait for a poll leaves 50 ms of the shortest averaging period (1/6 s) for a slow
round: each period has to be seen."""
RARE_POLL_SECONDS = 1.5
"""How often a utilization that need not be bounded is polled, where rounds are not more often."""
GOLDEN_RATIO = 0.6180339887498949
"""Its multiples spread evenly over one, and never repeat."""
BUFFER_SECONDS = 5.0
"""How often a buffer is read at least: it holds 17 s at the shortest sampling period."""
MOST_SAMPLES = 4096
"""Several minutes: more come together only while no round is made."""


class SampleBuffer:
    """One of the driver's sample buffers of one GPU.

    An array for the samples is made for each read: kept, those of 64 GPUs would take 3 MB.
    """

    def __init__(self, handle: Any, sampling_type: int) -> None:
        self._handle = handle
        self._type = c_uint(sampling_type)
        self._last_stamp = 0
        self._value_type = c_uint(0)
        self._step = 0
        """How far the clock of the stamps was set back since the last read, in microseconds."""
        self._before: frozenset[int] = frozenset()
        """Stamps of samples that the driver held when it was."""

    def set_back(self, seconds: float) -> None:
        """Follow the clock of the stamps, which was set back: what is held now is not new."""
        self._step += round(seconds * 1e6)

    def read(self) -> list[tuple[float, float]]:
        """Return the samples since the last read: (driver's stamp in seconds, value), oldest first.

        Raises:
            pynvml.NVMLError: the driver has no such buffer, or cannot read it now.
        """
        if self._step:
            self._before = frozenset(stamp for stamp, _ in self._entries(0))
            self._last_stamp, self._step = max(0, self._last_stamp - self._step), 0
        kind = self._value_type
        new = [
            (stamp, decode(raw, kind.value))
            for stamp, raw in self._entries(self._last_stamp)
            if stamp not in self._before
        ]
        samples = sorted((stamp, value) for stamp, value in new if value is not None)
        if samples:
            self._last_stamp = samples[-1][0]
        return [(stamp / 1e6, value) for stamp, value in samples]

    def _entries(self, since: int) -> list[tuple[int, int]]:
        """Return stamp in microseconds and value of each sample after `since`."""
        count = c_uint(CAPACITY)
        array = (pynvml.c_nvmlSample_t * CAPACITY)()
        code = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetSamples")(
            self._handle,
            self._type,
            c_ulonglong(since),
            byref(self._value_type),
            byref(count),
            array,
        )
        if code == pynvml.NVML_ERROR_NOT_FOUND:  # nothing new
            return []
        if code != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(code)
        filled = (c_char * (min(count.value, CAPACITY) * _ENTRY.size)).from_buffer(array)
        # Some drivers return unused entries with stamp 0.
        return [(stamp, raw) for stamp, raw in _ENTRY.iter_unpack(filled) if stamp > since]


class UtilizationReader:
    """Reads compute and memory utilization, and the SM clock of the busy time."""

    def __init__(self, handle: Any, journal: Journal, *, has_memory: bool) -> None:
        """Prepare to read a GPU; without memory of its own, its memory is always reported idle."""
        self._journal = journal
        self._has_memory = has_memory
        self.fresh = False
        """Whether the last read gave a new sample or poll."""
        self._answered = False
        self._compute = _Meter(handle, journal, "utilization_samples", UTILIZATION)
        self._memory = _Meter(handle, journal, "memory_utilization_samples", MEMORY_UTILIZATION)
        self._meters = (self._compute.meter, self._memory.meter)
        clocks = SampleBuffer(handle, SM_CLOCK)
        self._clock_samples = probe_of(journal, handle, "clock_samples", clocks.read)
        self._buffers = (self._compute.buffer, self._memory.buffer, clocks)
        self._ahead_of_monotonic = float("-inf")
        """How far our clock is ahead of the monotonic one, in seconds."""
        self._clocks: deque[tuple[float, float]] = deque(maxlen=MOST_SAMPLES)
        """The clock samples since the last read: stamp in seconds, hertz."""
        self._weights: deque[tuple[float, float]] = deque(maxlen=MOST_SAMPLES)
        """The utilization samples since the last read."""
        self._rates = probe_of(
            journal, handle, "utilization", "nvmlDeviceGetUtilizationRates", check=_possible_rates
        )
        self.needs_bounds = True
        """Whether polls, where there is no buffer, must be dense enough to bound the utilization of
        the next interval."""
        self._burst = 0.0
        self._clocks_due = float("-inf")

    @property
    def wants_burst(self) -> bool:
        """True while polls between two rounds are needed."""
        return self._rates.possible and any(
            meter.wants_burst and (meter.sampled or self.needs_bounds) for meter in self._meters
        )

    @property
    def between_seconds(self) -> float | None:
        """Seconds to wait for the next round before `read_between`; None: without a limit. Polls
        come at uneven times, so that they are not in step with a periodic load."""
        if self.wants_burst:
            self._burst = (self._burst + GOLDEN_RATIO) % 1.0
            return SHORTEST_BURST_SECONDS + BURST_SPREAD_SECONDS * self._burst
        if self._compute.meter.sampled:
            return BUFFER_SECONDS
        return RARE_POLL_SECONDS if self._rates.possible else None

    def read_between(self, monotonic_seconds: float, unix_seconds: float) -> None:
        """Poll and read samples between two rounds, before these are overwritten."""
        self._follow_clock(unix_seconds - monotonic_seconds)
        self._compute.take(monotonic_seconds, unix_seconds)
        self._memory.take(monotonic_seconds, unix_seconds)
        self._weights.extend(self._compute.samples)
        if monotonic_seconds >= self._clocks_due and self._compute.meter.sampled:
            self._take_clocks(monotonic_seconds)
        self._answered |= bool(self._compute.samples or self._memory.samples)
        if not any(meter.wants_polls for meter in self._meters):
            self._journal.answered("utilization", self._rates)  # the samples suffice
            return
        rates = self._rates()
        if rates is None:
            return
        self._answered = True
        for meter, percent in zip(self._meters, (rates.gpu, rates.memory), strict=True):
            if meter.wants_polls:
                meter.add_poll(percent / 100, monotonic_seconds, rare=not self.needs_bounds)

    def _follow_clock(self, ahead_seconds: float) -> None:
        """Have buffers and meters follow our clock, if the stamps are of it."""
        step = ahead_seconds - self._ahead_of_monotonic
        self._ahead_of_monotonic = ahead_seconds
        if abs(step) <= LONGEST_PERIOD_SECONDS or not self._compute.meter.clocks_agree:
            return
        for meter in self._meters:
            meter.follow_clock(step)
        for buffer in self._buffers if step < 0 else ():
            buffer.set_back(-step)

    def _take_clocks(self, monotonic_seconds: float) -> None:
        self._clocks_due = monotonic_seconds + BUFFER_SECONDS
        self._clocks.extend(
            (stamp, megahertz * 1e6)
            for stamp, megahertz in self._clock_samples() or ()
            if megahertz >= LOWEST_SANE_CLOCK_MHZ and CLOCK_MEGAHERTZ(megahertz) is not None
        )

    def read(
        self, monotonic_seconds: float, unix_seconds: float
    ) -> tuple[Utilization | None, float | None, float | None]:
        """Return the utilization since the last read, and the means of the SM clock in that time.

        The first is weighted by the utilization at each clock sample, the second is not, both in
        hertz; None where the driver keeps no samples.
        """
        self._clocks_due = float("inf")  # read below, if at all
        self.read_between(monotonic_seconds, unix_seconds)
        self.fresh, self._answered = self._answered, False
        compute = self._compute.meter.close(monotonic_seconds)
        memory = self._memory.meter.close(monotonic_seconds) if self._has_memory else None
        if compute is not None:
            self._take_clocks(monotonic_seconds)
        means = busy_mean(self._clocks, self._weights), busy_mean(self._clocks, ())
        self._clocks.clear()
        self._weights.clear()
        if compute is None:
            return None, None, None
        utilization = Utilization(
            ratio=compute.ratio,
            upper_ratio=compute.upper_ratio,
            seconds=compute.seconds,
            memory_ratio=memory.ratio if memory else None,
            memory_upper_ratio=memory.upper_ratio if memory else None,
            settled_ratio=compute.settled_ratio,
            open_ratio=compute.open_ratio,
            memory_settled_ratio=memory.settled_ratio if memory else None,
            memory_open_ratio=memory.open_ratio if memory else None,
            lower_ratio=compute.lower_ratio,
        )
        return utilization, *means


class _Meter:
    """One utilization: its buffer, and the meter that the samples go to."""

    def __init__(self, handle: Any, journal: Journal, group: str, kind: int) -> None:
        self.meter = UtilizationMeter()
        self._journal = journal
        self._group = group
        self.buffer = SampleBuffer(handle, kind)
        self._read = Probe(journal, group, (self.buffer.read,))
        self.samples: list[tuple[float, float]] = []
        """New at the last read: stamp in seconds, ratio."""

    def take(self, monotonic_seconds: float, unix_seconds: float) -> None:
        """Read the buffer."""
        new = self._read() or ()
        self.samples = [
            (stamp, percent / 100) for stamp, percent in new if ENGINE_PERCENT(percent) is not None
        ]
        if new:
            possible = len(self.samples) == len(new)
            self._journal.judged(self._group, self, possible=possible, worked=self.meter.sampled)
        self.meter.add_samples(self.samples, monotonic_seconds, unix_seconds)


def _possible_rates(rates: Any) -> Any:
    return rates if ENGINE_PERCENT(max(rates.gpu, rates.memory)) is not None else None
