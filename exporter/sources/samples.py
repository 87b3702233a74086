# SPDX-License-Identifier: Apache-2.0
"""The driver's ring buffers of utilization and clock samples, read incrementally."""

from __future__ import annotations

from ctypes import byref, c_uint, c_ulonglong
from typing import Any

import pynvml

from exporter.sources.fields import union_value

UTILIZATION = pynvml.NVML_GPU_UTILIZATION_SAMPLES
MEMORY_UTILIZATION = pynvml.NVML_MEMORY_UTILIZATION_SAMPLES
SM_CLOCK = pynvml.NVML_PROCESSOR_CLK_SAMPLES

SPARE_ENTRIES = 32


class SampleBuffer:
    """One of the driver's sample buffers of one GPU, read into an own, reused array."""

    def __init__(self, handle: Any, sampling_type: int) -> None:
        self._handle = handle
        self._type = c_uint(sampling_type)
        self._last_stamp = c_ulonglong(0)
        self._value_type = c_uint(0)
        self._count = c_uint(0)
        self._array: Any = None
        self._capacity = 0

    def _size(self, call: Any) -> None:
        """Ask how many samples the whole buffer holds, and make room for more than that."""
        count = c_uint(0)
        code = call(
            self._handle, self._type, c_ulonglong(0), byref(self._value_type), byref(count), None
        )
        if code != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(code)
        self._capacity = count.value + SPARE_ENTRIES
        self._array = (pynvml.c_nvmlSample_t * self._capacity)()

    def read(self) -> list[tuple[float, float]]:
        """Return the samples since the last read: (driver's stamp in seconds, value), oldest first.

        Raises:
            pynvml.NVMLError: the driver has no such buffer or cannot give it now.
        """
        call = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetSamples")
        if self._array is None:
            self._size(call)
        self._count.value = self._capacity
        code = call(
            self._handle,
            self._type,
            self._last_stamp,
            byref(self._value_type),
            byref(self._count),
            self._array,
        )
        if code == pynvml.NVML_ERROR_NOT_FOUND:  # nothing new
            return []
        if code == pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
            self._array = None
        if code != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(code)
        value_type = self._value_type.value
        last = self._last_stamp.value
        samples: list[tuple[int, float]] = []
        for entry in self._array[: min(self._count.value, self._capacity)]:
            # Some drivers hand out unused entries with stamp 0.
            if entry.timeStamp > last:
                value = union_value(entry.sampleValue, value_type)
                if value is not None:
                    samples.append((entry.timeStamp, value))
        samples.sort()
        if samples:
            self._last_stamp.value = samples[-1][0]
        return [(stamp / 1e6, value) for stamp, value in samples]
