# SPDX-License-Identifier: Apache-2.0
"""The counters of one GPU, held by this process from `start` to `stop`, and its samples."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from exporter.sources.cupti.errors import OVERFLOW, CuptiError
from exporter.sources.cupti.host import Host, Image, names
from exporter.sources.cupti.library import Library
from exporter.sources.cupti.samples import Samples, Window
from exporter.sources.cupti.structures import (
    COUNTER_DATA_FULL,
    KEEP_LATEST,
    KEEP_OLDEST,
    SYSTEM_CLOCK_INTERVAL,
    TIME_INTERVAL,
    PmSamplingCounterDataGetSampleInfo,
    PmSamplingCounterDataImageInitialize,
    PmSamplingDecodeData,
    PmSamplingDisable,
    PmSamplingEnable,
    PmSamplingGetCounterDataInfo,
    PmSamplingGetCounterDataSize,
    PmSamplingSetConfig,
    PmSamplingStart,
    PmSamplingStop,
)

SAMPLE_SECONDS = 0.01
"""100 Hz: what is known to work, and costs no more than 1000 Hz does."""
BUFFER_BYTES = 4 << 20
"""Of the GPU's buffer; a sample takes 4 to 7 kB of it."""
MOST_SAMPLES = 256
"""That an image holds: those of a second, and of a second that came late."""
MOST_IMAGES = 8
"""Full ones that are decoded at a time."""

NO_TIME_INTERVAL = ("TU", "GA100")
"""How the names of chips begin that only count cycles of the system clock between samples."""
NO_KEEP_LATEST = ("TU",)
FIRST_CLOCK_HERTZ = 1.2e9
"""What the system clock is taken for until samples were seen."""
OFF_RATIO = 2.0
"""Samples that are so much longer or shorter than they should be are set anew."""
FEWEST_CYCLES, MOST_CYCLES = 100_000, 1_000_000_000


@dataclass(frozen=True, slots=True)
class Counted:
    """What was sampled since the last read."""

    window: Window
    overflowed: bool
    """Whether samples were lost, and sampling has to be started again."""


class Session:
    """Samples one GPU; every method may raise CuptiError."""

    def __init__(
        self,
        library: Library,
        index: int,
        chip: str,
        host: Host,
        config: Image,
        metrics: Sequence[str],
    ) -> None:
        """Sample GPU `index` of that `chip`: `config` is the image of the `metrics` that were added
        to the `host`, which must stay open."""
        self._library = library
        self._index = index
        self._host = host
        self._metrics = tuple(metrics)
        self._config = config  # CUPTI keeps its address
        self._samples = Samples(len(metrics))
        self._append = KEEP_OLDEST if chip.startswith(NO_KEEP_LATEST) else KEEP_LATEST
        self._counts_cycles = chip.startswith(NO_TIME_INTERVAL)
        self.interval = round(
            SAMPLE_SECONDS * FIRST_CLOCK_HERTZ if self._counts_cycles else SAMPLE_SECONDS * 1e9
        )
        """Cycles or nanoseconds between two samples."""
        self._object: int | None = None
        """CUPTI's, while the counters are held."""
        self._sampling = False
        self._is_first = True
        """Whether the next sample is the first one: it may begin long before the start."""

    def start(self) -> None:
        """Take the GPU's counters and begin to sample."""
        enabled = self._library.call(PmSamplingEnable, device_index=self._index)
        self._object = enabled.p_pm_sampling_object
        try:
            self._begin()
            size = self._library.call(
                PmSamplingGetCounterDataSize,
                p_pm_sampling_object=self._object,
                p_metric_names=names(self._metrics),
                num_metrics=len(self._metrics),
                max_samples=MOST_SAMPLES,
            ).counter_data_size
            self._make_image(size)
        except CuptiError:
            self.stop()
            raise

    def stop(self) -> None:
        """Give the GPU's counters back, if they are held."""
        held, self._object = self._object, None
        if held is None:
            return
        try:
            if self._sampling:
                self._library.call(PmSamplingStop, p_pm_sampling_object=held)
        finally:
            self._sampling = False
            self._library.call(PmSamplingDisable, p_pm_sampling_object=held)

    def read(self) -> Counted:
        """Return what was sampled since the last read, or the start."""
        self._samples.clear()
        overflowed = False
        try:
            for _ in range(MOST_IMAGES):
                self._decode()
                overflowed = overflowed or bool(self._decoded.overflow)
                self._take()
                self._empty()
                if self._decoded.decode_stop_reason != COUNTER_DATA_FULL:
                    break
        except CuptiError as error:
            if error.code != OVERFLOW:
                raise
            overflowed = True
        window = self._samples.window()
        if self._counts_cycles and not overflowed:
            self._calibrate(window.sample_seconds)
        return Counted(window, overflowed)

    def _begin(self) -> None:
        self._library.call(
            PmSamplingSetConfig,
            p_pm_sampling_object=self._object,
            config_size=len(self._config),
            p_config=ctypes.addressof(self._config),
            hardware_buffer_size=BUFFER_BYTES,
            sampling_interval=self.interval,
            trigger_mode=SYSTEM_CLOCK_INTERVAL if self._counts_cycles else TIME_INTERVAL,
            hw_buffer_append_mode=self._append,
        )
        self._library.call(PmSamplingStart, p_pm_sampling_object=self._object)
        self._sampling = self._is_first = True

    def _make_image(self, size: int) -> None:
        """Make the image that samples are decoded into, and what is asked of it again and again."""
        image = (ctypes.c_uint8 * size)()
        place = {
            "p_counter_data_image": ctypes.addressof(image),
            "counter_data_image_size": size,
        }
        held = {"p_pm_sampling_object": self._object}
        prepared = self._library.prepared
        self._decode, self._decoded = prepared(PmSamplingDecodeData, **held, **place)
        self._inform, self._info = prepared(PmSamplingGetCounterDataInfo, **place)
        self._ask, self._sample = prepared(PmSamplingCounterDataGetSampleInfo, **held, **place)
        self._empty, _ = prepared(
            PmSamplingCounterDataImageInitialize,
            **held,
            counter_data_size=size,
            p_counter_data=ctypes.addressof(image),
        )
        self._evaluator = self._host.evaluator(self._metrics, image)
        self._empty()

    def _take(self) -> None:
        """Take the values of the samples in the image that can be used."""
        samples, sample = self._samples, self._sample
        self._inform()
        for index in range(self._info.num_completed_samples):
            sample.sample_index = index
            self._ask()
            if self._is_first:
                self._is_first = False
                samples.ended_nanoseconds = sample.end_timestamp
            elif samples.admits(sample.start_timestamp, sample.end_timestamp):
                samples.values.extend(self._evaluator.values(index))

    def _calibrate(self, sample_seconds: float) -> None:
        """Begin anew with as many cycles as pass in the time that a sample should take.

        The system clock moves with the load; what was sampled meanwhile is right all the same.
        """
        if not sample_seconds or 1 / OFF_RATIO <= sample_seconds / SAMPLE_SECONDS <= OFF_RATIO:
            return
        cycles = round(self.interval * SAMPLE_SECONDS / sample_seconds)
        self.interval = min(max(cycles, FEWEST_CYCLES), MOST_CYCLES)
        self._library.call(PmSamplingStop, p_pm_sampling_object=self._object)
        self._sampling = False
        self._begin()
