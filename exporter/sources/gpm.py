# SPDX-License-Identifier: Apache-2.0
"""What the GPU Performance Monitor counted between two samples (Hopper and newer)."""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Iterable, Mapping
from ctypes import c_char
from typing import Any

import pynvml

from exporter.reading import Activity
from exporter.sources.probe import (
    OLD_DRIVER_CODES,
    Journal,
    Outcome,
    code_of,
    outcome_of,
    raise_if_gone,
)

MIB = 2**20
SHORTEST_WINDOW_SECONDS = 0.1
"""Closer samples give invalid values (nvml.h; NVIDIA/DCGM #310 calls it a hard limit)."""

PERCENTS: Mapping[int, str] = {
    1: "engine",
    2: "sm",
    3: "occupancy",
    4: "integer",
    5: "tensor",
    6: "dfma",
    7: "hmma",
    8: "dmma",
    9: "imma",
    10: "dram",
    11: "fp64",
    12: "fp32",
    13: "fp16",
}
ENGINE_PERCENTS: Mapping[str, tuple[int, ...]] = {
    "decoder": tuple(range(30, 38)),
    "jpeg": tuple(range(40, 48)),
    "ofa": (50, 51),
    "encoder": tuple(range(166, 170)),
}
"""One id per engine of that kind; the mean of those that answer is published."""
MIB_PER_SECOND: Mapping[int, str] = {
    20: "pcie_transmit_bytes",
    21: "pcie_receive_bytes",
    # NVLink lists receive before transmit, PCIe and C2C the other way round (nvml.h).
    60: "nvlink_receive_bytes",
    61: "nvlink_transmit_bytes",
    102: "c2c_transmit_bytes",
    103: "c2c_receive_bytes",
}
ELAPSED_CYCLES = 248
CYCLES: Mapping[int, str] = {
    249: "sm",
    250: "tensor",
    251: "dmma",
    252: "hmma",
    253: "imma",
    254: "dfma",
    257: "integer",
    258: "fp64",
    259: "fp32",
    260: "fp16",
}
"""Cumulative since boot; divided by the elapsed cycles they are the activities, exactly."""
CUMULATIVE_BYTES: Mapping[int, str] = {255: "pcie_transmit_bytes", 256: "pcie_receive_bytes"}
IDS = (
    *PERCENTS,
    *(number for ids in ENGINE_PERCENTS.values() for number in ids),
    *MIB_PER_SECOND,
    ELAPSED_CYCLES,
    *CYCLES,
    *CUMULATIVE_BYTES,
)
_ENTRY = struct.Struct("=IId24x")
"""nvmlGpmMetric_t: id, return code, value, three name pointers; read in one pass."""
WHOLE_GPU_ONLY = frozenset({*MIB_PER_SECOND, *CUMULATIVE_BYTES})
"""Link traffic has no meaning for one MIG instance (NVIDIA/DCGM #88)."""


class GpmWindow:
    """Two reused samples and one reused metrics struct (19 kB) of one share."""

    def __init__(self, handle: Any, gpu_instance: int | None) -> None:
        self._handle = handle
        self._gpu_instance = gpu_instance
        self._older = pynvml.nvmlGpmSampleAlloc()
        try:
            self._newer = pynvml.nvmlGpmSampleAlloc()
        except Exception:
            pynvml.nvmlGpmSampleFree(self._older)
            raise
        self._older_at: float | None = None
        self._metrics = pynvml.c_nvmlGpmMetricsGet_t()
        self._metrics.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._totals: dict[int, float] = {}
        self._last_refusal: int = pynvml.NVML_ERROR_NOT_SUPPORTED
        skipped = frozenset() if gpu_instance is None else WHOLE_GPU_ONLY
        self._ask_for(number for number in IDS if number not in skipped)

    def _ask_for(self, ids: Iterable[int]) -> None:
        self._ids = tuple(ids)
        self._metrics.numMetrics = len(self._ids)
        for position, number in enumerate(self._ids):
            self._metrics.metrics[position].metricId = number
        self._bytes = (c_char * (len(self._ids) * _ENTRY.size)).from_buffer(
            self._metrics, pynvml.c_nvmlGpmMetricsGet_t.metrics.offset
        )

    def read(self, monotonic_seconds: float) -> Activity | None:
        """Take a sample and return the activity since the last one; None on the first.

        Raises:
            pynvml.NVMLError: the driver refused.
        """
        since = self._older_at
        if since is not None and monotonic_seconds - since < SHORTEST_WINDOW_SECONDS:
            return None
        if self._gpu_instance is None:
            pynvml.nvmlGpmSampleGet(self._handle, self._newer)
        else:
            pynvml.nvmlGpmMigSampleGet(self._handle, self._gpu_instance, self._newer)
        older, newer = self._older, self._newer
        self._older, self._newer, self._older_at = newer, older, monotonic_seconds
        if since is None:
            return None
        if not self._ids:
            raise pynvml.NVMLError(self._last_refusal)
        self._metrics.sample1 = older
        self._metrics.sample2 = newer
        pynvml.nvmlGpmMetricsGet(self._metrics)
        return self._activity(self._values(), monotonic_seconds - since)

    def _values(self) -> dict[int, float]:
        values: dict[int, float] = {}
        never: set[int] = set()
        for number, code, value in _ENTRY.iter_unpack(self._bytes):
            if code == pynvml.NVML_SUCCESS:
                if math.isfinite(value) and value >= 0:
                    values[number] = value
            else:
                raise_if_gone(code)
                if outcome_of(code) in (Outcome.NEVER, Outcome.NO_PERMISSION):
                    never.add(number)
                    self._last_refusal = code
        if never:
            self._ask_for(number for number in self._ids if number not in never)
        return values

    def _grown(self, values: Mapping[int, float], number: int) -> float | None:
        """Return by how much a cumulative metric grew since it was last read."""
        value = values.get(number)
        last = self._totals.pop(number, None)
        if value is None:
            return None
        self._totals[number] = value
        return value - last if last is not None and value >= last else None

    def _activity(self, values: Mapping[int, float], seconds: float) -> Activity:
        fields: dict[str, float] = {
            name: values[number] / 100 for number, name in PERCENTS.items() if number in values
        }
        for name, ids in ENGINE_PERCENTS.items():
            answered = [values[number] for number in ids if number in values]
            if answered:
                fields[name] = sum(answered) / len(answered) / 100
        for number, name in MIB_PER_SECOND.items():
            if number in values:
                fields[name] = values[number] * MIB * seconds
        elapsed = self._grown(values, ELAPSED_CYCLES)
        active = {name: self._grown(values, number) for number, name in CYCLES.items()}
        if elapsed:
            fields["elapsed_cycles"] = elapsed
            for name, cycles in active.items():
                if cycles is not None and cycles <= elapsed:
                    fields[name] = cycles / elapsed
        for number, name in CUMULATIVE_BYTES.items():
            moved = self._grown(values, number)
            if moved is not None:
                fields[name] = moved
        return Activity(source="gpm", seconds=seconds, **fields)

    def close(self) -> None:
        """Free the samples; the library must still be initialised."""
        for sample in (self._older, self._newer):
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlGpmSampleFree(sample)


class GpmSource:
    """Reads the activity of every share of one GPU, where the GPU has the counters."""

    name = "gpm"

    def __init__(
        self, handle: Any, gpu_instances: tuple[int | None, ...], enabled: bool, journal: Journal
    ) -> None:
        self._handle = handle
        self._shares = gpu_instances
        self._journal = journal
        self._windows: dict[int | None, GpmWindow] = {}
        self._opened = not enabled
        self.counted_engines: frozenset[str] = frozenset()
        """The media engines that the whole GPU's counters told last time."""
        if enabled:
            self._open()
        else:
            journal.absent("gpm", "disabled")

    def _open(self) -> None:
        """Make the windows, where the GPU has the counters."""
        try:
            if pynvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice:
                for share in self._shares:
                    self._windows[share] = GpmWindow(self._handle, share)
            else:
                self._journal.absent("gpm", "unsupported")
            self._opened = True
        except Exception as error:  # pynvml raises more than NVMLError
            self.close()
            self._opened = self._note("gpm", error)

    def measures(self, gpu_instance: int | None) -> bool:
        """Return whether this share's counters are expected to answer."""
        return gpu_instance in self._windows

    def read(self, monotonic_seconds: float) -> dict[int | None, Activity]:
        """Return the activities since the last read, by share; nothing on the first.

        Raises:
            DeviceGone: the GPU is lost.
            LibraryUnavailable: the library must be initialised again.
        """
        if not self._opened:
            self._open()
        activities = {}
        for share, window in tuple(self._windows.items()):
            group = "gpm" if share is None else f"gpm_instance_{share}"
            try:
                activity = window.read(monotonic_seconds)
            except Exception as error:  # one share's fault must not reach another
                if self._note(group, error):
                    self._windows.pop(share).close()
                    self.counted_engines = frozenset()
                continue
            self._journal.answered(group)
            if activity is not None:
                activities[share] = activity
                if share is None:
                    self.counted_engines = frozenset(
                        name for name in ENGINE_PERCENTS if getattr(activity, name) is not None
                    )
        return activities

    def _note(self, group: str, error: Exception) -> bool:
        """Record `error`; True if asking again is pointless."""
        code = code_of(error)
        raise_if_gone(code)
        outcome = outcome_of(code)
        if outcome is Outcome.NEVER:
            old = code in OLD_DRIVER_CODES
            self._journal.absent(group, "old_driver" if old else "unsupported")
            return True
        if outcome is Outcome.NO_PERMISSION:
            self._journal.refused(self.name, group)
            return True
        if outcome is not Outcome.NOT_NOW:
            self._journal.failed(self.name, group, str(error) or type(error).__name__)
        return False

    def close(self) -> None:
        """Free what the driver holds for this source."""
        for window in self._windows.values():
            window.close()
        self._windows.clear()
