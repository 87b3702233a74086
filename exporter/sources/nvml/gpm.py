# SPDX-License-Identifier: Apache-2.0
"""The source gpm: counters of the GPU Performance Monitor between two samples (from Hopper on)."""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Mapping
from ctypes import c_char
from functools import lru_cache
from itertools import chain
from typing import Any

import pynvml

from exporter.model.reading import Activity, share_group
from exporter.sources.interface import OpenedGpu
from exporter.sources.nvml import GPM, plausible
from exporter.sources.nvml.plausible import DriverTotals
from exporter.sources.nvml.probe import (
    GONE,
    REFUSALS,
    Outcome,
    code_of,
    note_refusal,
    outcome_of,
    raise_if_gone,
    retry_seconds,
)
from exporter.sources.reading_state import Journal

MIB = 2**20
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
ACTIVITIES = frozenset(PERCENTS.values())
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
    # nvml.h lists receive before transmit for NVLink, and the other way round for PCIe and C2C.
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
HIGHEST: Mapping[int, float] = {
    **dict.fromkeys(PERCENTS, plausible.GPM_PERCENT.highest),
    **dict.fromkeys(chain(*ENGINE_PERCENTS.values()), plausible.GPM_PERCENT.highest),
    **dict.fromkeys(MIB_PER_SECOND, plausible.GPM_MIB_PER_SECOND.highest),
    **dict.fromkeys((ELAPSED_CYCLES, *CYCLES, *CUMULATIVE_BYTES), plausible.GPM_TOTAL.highest),
}
"""By the ids that are read. A value above it is left out, as a negative one is."""
WHOLE_GPU_ONLY = frozenset({*MIB_PER_SECOND, *CUMULATIVE_BYTES})
"""Link traffic has no meaning for one MIG instance (NVIDIA/DCGM #88)."""
SHORTEST_WINDOW_SECONDS = 0.1
"""Closer samples give invalid values (nvml.h; NVIDIA/DCGM #310 calls it a hard limit)."""
CLOCK_STEP_SECONDS = 1e-6
"""What the differences of a monotonic clock are exact to."""
LONGEST_WAIT_SECONDS = 0.02
"""How long a read waits rather than skip a round: a fifth of the shortest interval."""
VALUES = "values"
"""The member of a share's group that is absent while a metric has an impossible value."""
_ENTRY = struct.Struct("=IId24x")
"""nvmlGpmMetric_t: id, return code, value, three name pointers; read in one pass."""


@lru_cache
def _metrics_get(ids: tuple[int, ...]) -> bytes:
    """Return the struct that asks for these metrics: 10 kB, one for all GPUs."""
    metrics = pynvml.c_nvmlGpmMetricsGet_t()
    metrics.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    metrics.numMetrics = len(ids)
    for position, number in enumerate(ids):
        metrics.metrics[position].metricId = number
    return bytes(metrics)


class GpmWindow:
    """Two reused samples of one share, and the metrics between them."""

    def __init__(self, handle: Any, gpu_instance: int | None, journal: Journal) -> None:
        self._handle = handle
        self._gpu_instance = gpu_instance
        self._older = pynvml.nvmlGpmSampleAlloc()
        try:
            self._newer = pynvml.nvmlGpmSampleAlloc()
        except Exception:
            pynvml.nvmlGpmSampleFree(self._older)
            raise
        self._older_at: float | None = None
        self._totals = DriverTotals(journal)
        self._last: dict[int, float] = {}
        """The cumulative metrics of the last read."""
        self.doubted = False
        """Whether a metric had an impossible value between the last two samples."""
        ids = tuple(n for n in HIGHEST if gpu_instance is None or n not in WHOLE_GPU_ONLY)
        self._highest = [HIGHEST[number] for number in ids]
        self._metrics_get = _metrics_get(ids)

    def early_seconds(self, monotonic_seconds: float) -> float:
        """Return how much later the next sample may be taken; 0 or less if now."""
        if self._older_at is None:
            return 0.0
        return self._older_at + SHORTEST_WINDOW_SECONDS - monotonic_seconds

    def read(self, monotonic_seconds: float) -> Activity | None:
        """Take a sample and return the activity since the last one, as far as there is one. Raises
        NVMLError."""
        since = self._older_at
        if self.early_seconds(monotonic_seconds) > CLOCK_STEP_SECONDS:
            return None
        if self._gpu_instance is None:
            pynvml.nvmlGpmSampleGet(self._handle, self._newer)
        else:
            pynvml.nvmlGpmMigSampleGet(self._handle, self._gpu_instance, self._newer)
        older, newer = self._older, self._newer
        self._older, self._newer, self._older_at = newer, older, monotonic_seconds
        if since is None:
            return None
        metrics = pynvml.c_nvmlGpmMetricsGet_t.from_buffer_copy(self._metrics_get)
        metrics.sample1 = older
        metrics.sample2 = newer
        pynvml.nvmlGpmMetricsGet(metrics)
        return self._activity(self._values(metrics), monotonic_seconds - since)

    def _values(self, metrics: Any) -> dict[int, float]:
        """Return the possible values of the metrics; raise NVMLError if all are refused."""
        values: dict[int, float] = {}
        refusals: list[int] = []
        self.doubted = False
        size = len(self._highest) * _ENTRY.size
        entries = _ENTRY.iter_unpack(
            (c_char * size).from_buffer(metrics, pynvml.c_nvmlGpmMetricsGet_t.metrics.offset)
        )
        for (number, code, value), highest in zip(entries, self._highest, strict=True):
            if code == pynvml.NVML_SUCCESS:
                if 0.0 <= value <= highest:
                    values[number] = value
                elif not math.isnan(value):  # NaN: the driver has no value
                    self.doubted = True
            elif code in REFUSALS:
                refusals.append(code)
        if len(refusals) == len(self._highest):
            raise pynvml.NVMLError(refusals[-1])
        return values

    def _grown(
        self, values: Mapping[int, float], number: int, fastest: plausible.PossibleRange
    ) -> float | None:
        """Return the growth of a cumulative metric since the last read; None if not of both."""
        last = self._last.pop(number, None)
        total = self._totals.settled(number, values.get(number), fastest.highest)
        if total is None:
            return None
        self._last[number] = total
        return None if last is None or total < last else total - last

    def _activity(self, values: Mapping[int, float], seconds: float) -> Activity | None:
        fields: dict[str, float] = {
            name: values[number] / 100 for number, name in PERCENTS.items() if number in values
        }
        for name, ids in ENGINE_PERCENTS.items():
            answered = [values[number] for number in ids if number in values]
            if answered:
                fields[name] = sum(answered) / len(answered) / 100
        traffic: dict[str, float] = {}
        for number, name in MIB_PER_SECOND.items():
            if number in values:
                traffic[name] = values[number] * MIB * seconds
        fastest = plausible.CYCLES_PER_SECOND
        elapsed = self._grown(values, ELAPSED_CYCLES, fastest)
        active = {name: self._grown(values, number, fastest) for number, name in CYCLES.items()}
        if elapsed:
            fields["elapsed_cycles"] = elapsed
            for name, cycles in active.items():
                if cycles is not None and cycles <= elapsed:
                    fields[name] = cycles / elapsed
        for number, name in CUMULATIVE_BYTES.items():
            moved = self._grown(values, number, plausible.BYTES_PER_SECOND)
            if moved is not None:
                traffic[name] = moved
        if not ACTIVITIES & fields.keys():
            return None  # traffic alone does not show how busy the GPU is
        return Activity(source=GPM, seconds=seconds, **fields, **traffic)

    def close(self) -> None:
        """Free the samples; the library must still be initialised."""
        for sample in (self._older, self._newer):
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlGpmSampleFree(sample)


class GpmSource:
    """Reads the activity of every share of one GPU, if the GPU has the counters."""

    def __init__(self, gpu: OpenedGpu) -> None:
        """Open the counters."""
        self._handle = gpu.handle
        self._wait = gpu.wait
        self._shares = gpu.gpu_instances
        self._journal = gpu.journal
        self._windows: dict[int | None, GpmWindow] = {}
        self._open_at = gpu.journal.now
        """When to try to make the windows that are missing."""
        self._open()

    def _open(self) -> None:
        """Make the windows that are missing, if the GPU has the counters."""
        self._open_at = math.inf
        try:
            _check_support(self._handle)
            for share in self._shares:
                if share not in self._windows:
                    self._journal.progress()
                    self._windows[share] = GpmWindow(self._handle, share, self._journal)
        except Exception as error:  # pynvml raises more than NVMLError
            worked = any(share_group(GPM, share) in self._journal.worked for share in self._shares)
            if not self._gives_up(GPM, error, worked=worked):
                self._open_at = self._journal.now

    def measures(self, gpu_instance: int | None) -> bool:
        """Return whether this share's counters are expected to answer."""
        return gpu_instance in self._windows

    def read(self, monotonic_seconds: float) -> dict[int | None, Activity]:
        """Return the activities since the last read, by share; nothing on the first."""
        if self._journal.now >= self._open_at:
            self._open()
        windows = self._windows.values()
        early = max((window.early_seconds(monotonic_seconds) for window in windows), default=0.0)
        if self._wait is not None and CLOCK_STEP_SECONDS < early <= LONGEST_WAIT_SECONDS:
            monotonic_seconds = self._wait(early)
        activities = {}
        for share, window in tuple(self._windows.items()):
            group = share_group(GPM, share)
            try:
                activity = window.read(monotonic_seconds)
            except Exception as error:  # one share must not cost the others theirs
                if share is not None and outcome_of(code_of(error)) in GONE:
                    self._journal.absent(group, "unreachable")
                elif self._gives_up(group, error, worked=group in self._journal.worked):
                    self._windows.pop(share).close()
                continue
            self._journal.answered(group)
            possible, worked = not window.doubted, group in self._journal.worked
            self._journal.judged(group, VALUES, possible=possible, worked=worked)
            if activity is not None:
                activities[share] = activity
                self._journal.worked.add(group)
        return activities

    def _gives_up(self, group: str, error: Exception, *, worked: bool) -> bool:
        """Note `error` in the journal; return whether to wait before the share is read again."""
        code = code_of(error)
        raise_if_gone(code)
        if code in REFUSALS:
            wait = retry_seconds(code, worked=worked)
            self._open_at = min(self._open_at, self._journal.now + wait)
            note_refusal(self._journal, GPM, group, [code], worked=worked)
            return True
        if outcome_of(code) is not Outcome.NOT_NOW:
            self._journal.failed(GPM, group, str(error) or type(error).__name__)
        return False

    def close(self) -> None:
        """Free the driver's resources of this source."""
        for window in self._windows.values():
            window.close()
        self._windows.clear()


def _check_support(handle: Any) -> None:
    if not pynvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
