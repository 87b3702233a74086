# SPDX-License-Identifier: Apache-2.0
"""The driver's ring buffers of utilization and clock samples, read incrementally."""

from __future__ import annotations

import struct
from ctypes import byref, c_char, c_uint, c_ulonglong, sizeof
from typing import Any

import pynvml

from exporter.sources.nvml.fields import decode

UTILIZATION = pynvml.NVML_GPU_UTILIZATION_SAMPLES
MEMORY_UTILIZATION = pynvml.NVML_MEMORY_UTILIZATION_SAMPLES
SM_CLOCK = pynvml.NVML_PROCESSOR_CLK_SAMPLES

CAPACITY = 1024
"""Drivers keep about a hundred samples: 17 s at the shortest sampling period."""
_ENTRY = struct.Struct("=QQ")
"""nvmlSample_t: timestamp in microseconds, value's 8 bytes."""


class SampleBuffer:
    """One of the driver's sample buffers of one GPU, read into an array that is reused."""

    def __init__(self, handle: Any, sampling_type: int) -> None:
        self._handle = handle
        self._type = c_uint(sampling_type)
        self._last_stamp = c_ulonglong(0)
        self._value_type = c_uint(0)
        self._array = (pynvml.c_nvmlSample_t * CAPACITY)()
        self._bytes = memoryview((c_char * sizeof(self._array)).from_buffer(self._array))

    def read(self) -> list[tuple[float, float]]:
        """Return the samples since the last read: (driver's stamp in seconds, value), oldest first.

        Raises:
            pynvml.NVMLError: the driver has no such buffer, or cannot read it now.
        """
        count = c_uint(CAPACITY)
        code = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetSamples")(
            self._handle,
            self._type,
            self._last_stamp,
            byref(self._value_type),
            byref(count),
            self._array,
        )
        if code == pynvml.NVML_ERROR_NOT_FOUND:  # nothing new
            return []
        if code != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(code)
        samples: list[tuple[int, float]] = []
        filled = self._bytes[: min(count.value, CAPACITY) * _ENTRY.size]
        for stamp, raw in _ENTRY.iter_unpack(filled):
            # Some drivers return unused entries with stamp 0.
            if stamp > self._last_stamp.value:
                value = decode(raw, self._value_type.value)
                if value is not None:
                    samples.append((stamp, value))
        samples.sort()
        if samples:
            self._last_stamp.value = samples[-1][0]
        return [(stamp / 1e6, value) for stamp, value in samples]


SILENCES_NEEDED = 3
"""After so many idle gaps a gap means idle on this driver."""
SETTLED_SECONDS = 2.0
"""A poll may cover two of the longest averaging periods before it: of whole ones, the last."""
RESUMES_WITHIN_SECONDS = 1.5
"""How long work may show in polls before the first sample of it, at most."""
SUSPECT_SECONDS = 60.0
"""How long after a gap the driver is polled to find out what its gaps mean."""


class Silences:
    """The gaps in one sample buffer, and whether a gap means that the GPU was idle.

    Some drivers take no samples while nothing runs (seen on DGX Spark), others answer late or not
    at all. Polls in the gaps show which: those that read zero confirm idleness.
    """

    def __init__(self) -> None:
        self._idle_ones = 0
        self._refuted = False
        self._last_poll: float | None = None
        """The last poll in the present gap; None without one."""
        self._rested = False
        """Whether one of them read zero."""
        self._busy_age: float | None = None
        """The age of the last sample at the first poll that did not, after SETTLED_SECONDS."""
        self._suspect_until = float("-inf")

    @property
    def mean_idle(self) -> bool:
        """Whether a gap means that nothing runs."""
        return self._idle_ones >= SILENCES_NEEDED and not self._refuted

    @property
    def understood(self) -> bool:
        """Whether a gap means idle, and no poll in the present one contradicts it."""
        return self.mean_idle and self._busy_age is None

    @property
    def idle_now(self) -> bool:
        """Whether a gap means idle, and the last poll read zero."""
        return self.understood and not self._last_poll

    def unclear(self, monotonic_seconds: float) -> bool:
        """Return whether there were gaps lately whose meaning is not known yet."""
        return not (self.mean_idle or self._refuted) and monotonic_seconds < self._suspect_until

    def poll(self, ratio: float, age_seconds: float) -> None:
        """Add a poll in a gap, so long after the last sample."""
        self._last_poll = ratio
        if ratio == 0.0:
            self._rested = True
        elif self._busy_age is None and age_seconds >= SETTLED_SECONDS:
            self._busy_age = age_seconds
        if self._busy_age is not None and age_seconds - self._busy_age > RESUMES_WITHIN_SECONDS:
            self._refuted = True

    def resumed(self, silent_seconds: float, monotonic_seconds: float) -> None:
        """Record the end of a gap: `silent_seconds` before this sample's period have no samples.

        With 0 there was no gap: the samples were only late.
        """
        if silent_seconds > 0:
            self._suspect_until = monotonic_seconds + SUSPECT_SECONDS
            worked = self._busy_age is not None and self._busy_age <= silent_seconds
            if self._rested and not worked:
                self._idle_ones += 1
        self._rested = False
        self._last_poll = self._busy_age = None
