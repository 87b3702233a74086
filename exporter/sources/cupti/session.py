# SPDX-License-Identifier: Apache-2.0
"""Sample one GPU: from `start` to `stop` this process has its counters."""

from __future__ import annotations

import ctypes
import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import mul
from typing import NamedTuple

from exporter.sources.cupti import structures
from exporter.sources.cupti.host import Host, Image, names
from exporter.sources.cupti.library import OVERFLOW, CuptiError, CuptiLibrary

SAMPLE_SECONDS = 0.01
"""100 Hz: what is known to work, and costs no more than 1000 Hz does."""
BUFFER_BYTES = 4 << 20
"""Of the GPU's buffer; a sample takes 4 to 7 kB of it."""
MOST_SAMPLES = 256
"""In an image: those of a second, and of a second that came late."""
MOST_IMAGES = 8
"""Full ones that are decoded at a time."""

NO_TIME_INTERVAL = ("TU", "GA100")
"""How the names of chips begin that only count cycles of the system clock between samples."""
NO_KEEP_LATEST = ("TU",)
FIRST_CLOCK_HERTZ = 1.2e9
"""What the system clock is taken for until samples were seen."""
OFF_RATIO = 2.0
"""Samples that are longer or shorter by this factor are recalibrated."""
FEWEST_CYCLES, MOST_CYCLES = 100_000, 1_000_000_000
OBSTACLES = (
    ("wsl", 45, 45),
    ("v_gpu", 33, 40),
    ("confidential_compute", 41, 41),
    ("cmp", 42, 42),
    ("sli", 44, 44),
    ("architecture", 27, 27),
    ("is_supported", 27, 27),
)
"""By member of the answer: the result code that says the same, where it is unsupported and where it
is disabled."""

NANOSECONDS = 1e9
LEAST_COVERED_RATIO = 0.9
"""An interval of which the samples cover less was not measured."""
LONGEST_SAMPLE_SECONDS = 1.0
"""A longer one began before the second in which it was decoded."""


class SampledWindow(NamedTuple):
    """Means and totals of the samples of one interval."""

    covered_seconds: float
    """How much of the interval its samples cover."""
    sample_seconds: float
    """The mean length of a sample; 0 without one."""
    metrics: tuple[tuple[float, float] | None, ...]
    """By metric: the mean over the covered time, and the sum for metrics that count; None where it
    had too few values."""


@dataclass(slots=True)
class Samples:
    """The decoded samples of an interval; reused for the next one."""

    metrics: int
    """How many values a sample has."""
    weights: list[float] = field(default_factory=list)
    """By sample: its seconds."""
    values: array[float] = field(default_factory=lambda: array("d"))
    """Sample after sample, the values of its metrics."""
    ended_nanoseconds: int = 0
    """When the last one ended."""

    def clear(self) -> None:
        """Remove the samples; remember when the last one ended."""
        self.weights.clear()
        del self.values[:]

    def admits(self, start_nanoseconds: int, end_nanoseconds: int) -> bool:
        """Return whether a sample is usable; if it is, add its time.

        The caller then appends its values. Time that an earlier sample covers is not counted twice.
        """
        start = max(start_nanoseconds, self.ended_nanoseconds)
        seconds = (end_nanoseconds - start) / NANOSECONDS
        is_own = start_nanoseconds > 0 and 0 < seconds <= LONGEST_SAMPLE_SECONDS
        self.ended_nanoseconds = max(self.ended_nanoseconds, end_nanoseconds)
        if is_own:
            self.weights.append(seconds)
        return is_own

    def window(self) -> SampledWindow:
        """Return the means and totals."""
        covered = sum(self.weights)
        if not self.weights:
            return SampledWindow(0.0, 0.0, (None,) * self.metrics)
        columns = [self.values[metric :: self.metrics] for metric in range(self.metrics)]
        reduced = tuple(_reduced(column, self.weights, covered) for column in columns)
        return SampledWindow(covered, covered / len(self.weights), reduced)


def _reduced(
    column: Sequence[float], weights: Sequence[float], covered: float
) -> tuple[float, float] | None:
    """Return the time-weighted mean and the sum of one metric's values.

    A value that is none (0 / 0 where no cycle passed) leaves its time out; without at least 90 % of
    the time there is neither.
    """
    total = math.fsum(column) if all(map(math.isfinite, column)) else math.nan
    if math.isfinite(total):
        return math.fsum(map(mul, column, weights)) / covered, total
    pairs = zip(column, weights, strict=True)
    known = [(value, weight) for value, weight in pairs if math.isfinite(value)]
    seconds = math.fsum(weight for _, weight in known)
    if seconds < LEAST_COVERED_RATIO * covered:
        return None
    mean = math.fsum(value * weight for value, weight in known) / seconds
    return mean, math.fsum(value for value, _ in known) * covered / seconds


def chip_of(library: CuptiLibrary, index: int) -> str:
    """Return the name of the chip of GPU `index`.

    Raises:
        CuptiError: with CUPTI's code.
    """
    return str(library.call(structures.DeviceGetChipName, device_index=index).p_chip_name.decode())


def check_support(library: CuptiLibrary, index: int) -> None:
    """Raise CuptiError with the code of the reason why GPU `index` cannot be sampled."""
    kind = structures.ProfilerDeviceSupported
    answer = library.call(kind, cu_device=index, api=structures.PM_SAMPLING_API)
    for member, unsupported, disabled in OBSTACLES:
        codes = {structures.UNSUPPORTED: unsupported, structures.DISABLED: disabled}
        code = codes.get(getattr(answer, member))
        if code is not None:
            raise CuptiError(code, kind.FUNCTION)


def availability_of(library: CuptiLibrary, index: int) -> Image:
    """Return the image of the counters that are available on GPU `index` now.

    Raises:
        CuptiError: with CUPTI's code, as while another profiler is active.
    """
    kind = structures.PmSamplingGetCounterAvailability
    size = library.call(kind, device_index=index).counter_availability_image_size
    image: Image = (ctypes.c_uint8 * size)()
    library.call(
        kind,
        device_index=index,
        counter_availability_image_size=size,
        p_counter_availability_image=ctypes.addressof(image),
    )
    return image


class SamplingSession:
    """Samples one GPU; every method may raise CuptiError."""

    def __init__(self, host: Host, index: int, metrics: Sequence[str]) -> None:
        """Prepare to sample GPU `index`, of the `host`'s chip; `start` adds the `metrics` to it."""
        self._library = host.library
        self._index = index
        self._host = host
        self._metrics = tuple(metrics)
        self._config: Image
        """Of the metrics, from `start` on: CUPTI keeps its address."""
        self._samples = Samples(len(metrics))
        self._append = structures.KEEP_LATEST
        if host.chip.startswith(NO_KEEP_LATEST):
            self._append = structures.KEEP_OLDEST
        self._counts_cycles = host.chip.startswith(NO_TIME_INTERVAL)
        self.interval = round(
            SAMPLE_SECONDS * FIRST_CLOCK_HERTZ if self._counts_cycles else SAMPLE_SECONDS * 1e9
        )
        """Cycles or nanoseconds between two samples."""
        self._object: int | None = None
        """CUPTI's, from `start` to `stop`."""
        self._sampling = False
        self._is_first = True
        """Whether the next sample is the first one: it may begin long before the start."""

    def start(self) -> None:
        """Acquire the GPU's counters and begin to sample; after an error, `close` the session."""
        self._host.add(self._metrics)
        self._config = self._host.image()
        enabled = self._library.call(structures.PmSamplingEnable, device_index=self._index)
        self._object = enabled.p_pm_sampling_object
        self._begin()
        self._make_image()

    def stop(self) -> None:
        """Release the GPU's counters."""
        sampling, self._object = self._object, None
        if sampling is None:
            return
        try:
            if self._sampling:
                self._library.call(structures.PmSamplingStop, p_pm_sampling_object=sampling)
        finally:
            self._sampling = False
            self._library.call(structures.PmSamplingDisable, p_pm_sampling_object=sampling)

    def close(self) -> None:
        """Release the GPU's counters, and free the host."""
        try:
            self.stop()
        finally:
            self._host.close()

    def read(self) -> tuple[SampledWindow, bool]:
        """Return what was sampled since the last read, or the start, and whether samples were lost:
        then sampling has to be started again."""
        self._samples.clear()
        overflowed = False
        try:
            for _ in range(MOST_IMAGES):
                self._decode()
                overflowed = overflowed or bool(self._decoded.overflow)
                self._take()
                self._empty()
                if self._decoded.decode_stop_reason != structures.COUNTER_DATA_FULL:
                    break
        except CuptiError as error:
            if error.code != OVERFLOW:
                raise
            overflowed = True
        window = self._samples.window()
        if self._counts_cycles and not overflowed:
            self._calibrate(window.sample_seconds)
        return window, overflowed

    def _begin(self) -> None:
        mode = structures.SYSTEM_CLOCK_INTERVAL if self._counts_cycles else structures.TIME_INTERVAL
        self._library.call(
            structures.PmSamplingSetConfig,
            p_pm_sampling_object=self._object,
            config_size=len(self._config),
            p_config=ctypes.addressof(self._config),
            hardware_buffer_size=BUFFER_BYTES,
            sampling_interval=self.interval,
            trigger_mode=mode,
            hw_buffer_append_mode=self._append,
        )
        self._library.call(structures.PmSamplingStart, p_pm_sampling_object=self._object)
        self._sampling = self._is_first = True

    def _make_image(self) -> None:
        """Allocate the image for decoded samples, and prepare the calls on it."""
        prepared = self._library.prepared
        sampling = {"p_pm_sampling_object": self._object}
        size = self._library.call(
            structures.PmSamplingGetCounterDataSize,
            **sampling,
            p_metric_names=names(self._metrics),
            num_metrics=len(self._metrics),
            max_samples=MOST_SAMPLES,
        ).counter_data_size
        image = self._image = (ctypes.c_uint8 * size)()
        place = {
            "p_counter_data_image": ctypes.addressof(image),
            "counter_data_image_size": size,
        }
        self._decode, self._decoded = prepared(structures.PmSamplingDecodeData, **sampling, **place)
        self._read_info, self._info = prepared(structures.PmSamplingGetCounterDataInfo, **place)
        self._read_sample, self._sample = prepared(
            structures.PmSamplingCounterDataGetSampleInfo, **sampling, **place
        )
        self._empty, _ = prepared(
            structures.PmSamplingCounterDataImageInitialize,
            **sampling,
            counter_data_size=size,
            p_counter_data=ctypes.addressof(image),
        )
        self._values = (ctypes.c_double * len(self._metrics))()
        self._evaluate, self._evaluated = prepared(
            structures.ProfilerHostEvaluateToGpuValues,
            **place,
            p_host_object=self._host.object,
            pp_metric_names=names(self._metrics),
            num_metrics=len(self._metrics),
            p_metric_values=self._values,
        )
        self._empty()

    def _take(self) -> None:
        samples, sample = self._samples, self._sample
        self._read_info()
        for index in range(self._info.num_completed_samples):
            sample.sample_index = index
            self._read_sample()
            if self._is_first:
                self._is_first = False
                samples.ended_nanoseconds = sample.end_timestamp
            elif samples.admits(sample.start_timestamp, sample.end_timestamp):
                self._evaluated.range_index = index
                self._evaluate()
                samples.values.extend(self._values)

    def _calibrate(self, sample_seconds: float) -> None:
        """Restart with as many cycles per sample as make it SAMPLE_SECONDS long.

        The system clock follows the load; the samples so far are right all the same.
        """
        if not sample_seconds or 1 / OFF_RATIO <= sample_seconds / SAMPLE_SECONDS <= OFF_RATIO:
            return
        cycles = round(self.interval * SAMPLE_SECONDS / sample_seconds)
        self.interval = min(max(cycles, FEWEST_CYCLES), MOST_CYCLES)
        self._library.call(structures.PmSamplingStop, p_pm_sampling_object=self._object)
        self._sampling = False
        self._begin()
