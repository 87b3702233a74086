# SPDX-License-Identifier: Apache-2.0
"""One opened GPU: NVML and the counter sources, read by cadence into one `Reading`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import pynvml

from exporter.clock import Clock
from exporter.errors import DeviceSilent
from exporter.model.reading import Activity, Device, Health, Reading, ShareReading
from exporter.sources.fleet.counters import Counters, CountersRead, worked_seconds
from exporter.sources.interface import NodeCounters, OpenedGpu
from exporter.sources.nvml import NVML
from exporter.sources.nvml.board import HealthReader
from exporter.sources.nvml.probe import Probe
from exporter.sources.nvml.reader import MEDIA_ENGINES, NvmlReading, NvmlSource
from exporter.sources.reading_state import IDENTITY, Journal, Past
from exporter.sources.selection import Selection
from exporter.sources.table import COUNTER_SOURCES

STATIC_INTERVAL_SECONDS = 60.0
LOOK_RATIO = 0.02
"""The share of time that may pass in looking whether the MIG layout has changed, and in listing
processes anew."""
IDLE_LOAD_RATIO = 0.01
"""A load below it counts as 0."""
AGE_DIGITS = 3
NO_NODE_COUNTERS: Mapping[str, NodeCounters] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How a GPU is read, as it is configured."""

    slow_interval_seconds: float = 10.0
    counters: tuple[str, ...] = tuple(row.name for row in COUNTER_SOURCES if row.enabled)
    procfs: str = "/proc"
    owners: bool = True
    process_utilization: bool = False
    """Whether to read how much of the SM time each process had."""
    selection: Selection = field(default_factory=Selection)
    skip_suspended: bool = False
    """Whether a GPU that is asleep is not woken."""
    sysfs: str = "/sys"


class Session:
    """The sources of one GPU, opened through a handle of one initialisation of the library."""

    def __init__(
        self,
        handle: Any,
        index: int,
        options: SessionOptions,
        clock: Clock,
        past: Past,
        progress: Callable[[], None],
        sleep: Callable[[float], None] = time.sleep,
        node: Mapping[str, NodeCounters] = NO_NODE_COUNTERS,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._options = options
        self._journal = Journal(f"GPU {index}", past, progress)
        self._journal.now = clock.monotonic()
        self._nvml = NvmlSource(
            handle,
            index,
            options.procfs,
            self._journal,
            owners=options.owners,
            process_utilization=options.process_utilization,
            sysfs=options.sysfs,
        )
        self._index: Probe[int] = Probe(
            self._journal, IDENTITY, (lambda: pynvml.nvmlDeviceGetIndex(handle),)
        )
        device, shares = self._nvml.device, self._nvml.gpu_instances
        opened = OpenedGpu(handle, device, shares, self._journal, self._wait, node)
        self._counters = Counters(opened, options.counters, COUNTER_SOURCES)
        self._counted_engines: frozenset[str] = frozenset()
        """The media engines that the counters measured in the last round."""
        self._counts_engine = False
        """Whether the counters measure the whole GPU's engine, as of their last activity."""
        self._health_reader = HealthReader(handle, device.nvlink_count or 0, self._journal)
        self._health = Health()
        self._static_at = clock.monotonic()
        self._slow_at = float("-inf")
        self._next_look = float("-inf")
        self._next_list = float("-inf")
        self._loaded_at: dict[int | None, float] = {}

    def _wait(self, seconds: float) -> float:
        """Wait within a round; return the monotonic time after it."""
        self._sleep(seconds)
        return self._clock.monotonic()

    @property
    def device(self) -> Device:
        """The GPU's identity, as last read."""
        return self._nvml.device

    @property
    def between_seconds(self) -> float | None:
        """Seconds to wait for the next round before `read_burst`; None: without a limit."""
        reader = self._nvml.utilization
        return None if reader is None else reader.between_seconds

    def read_burst(self) -> None:
        """Read samples that would be lost before the next round."""
        if self._nvml.utilization is not None:
            self._journal.now = self._clock.monotonic()
            self._nvml.utilization.read_between(self._journal.now, self._clock.time())

    def index(self) -> int | None:
        """Return the index that the GPU has now; None if the driver does not report it."""
        self._journal.now = self._clock.monotonic()
        return self._index()

    def read(self) -> Reading:
        """Return one round of readings.

        Raises:
            DeviceGone: the GPU is lost.
            DeviceSilent: not one of the fast readings answered.
            LibraryUnavailable: the library must be initialised again.
            DeviceChanged: the GPU must be opened again.
        """
        started = self._journal.now = self._clock.monotonic()
        if started >= self._slow_at + self._options.slow_interval_seconds:
            if started >= self._static_at + STATIC_INTERVAL_SECONDS:
                self._nvml.read_static()
                self._static_at = started
            self._nvml.read_slow()
            self._health = self._health_reader.read()
            self._slow_at = started
        monotonic, unix = self._clock.monotonic(), self._clock.time()
        nvml = self._nvml.read_fast(monotonic, unix, self._counted_engines)
        nvml_seconds = self._clock.monotonic() - started
        # GPM goes last: on driver 535 a MIG sample can make later memory calls fail.
        limit = nvml.board.power_limit_watts or self._nvml.device.power_default_limit_watts
        opened = nvml.processes is None or any(nvml.processes.values())
        worked = worked_seconds(nvml.vitals, limit, opened=opened)
        counted = self._counters.read(self._clock, worked_seconds=worked)
        engines = _engine_ratios(counted.activities.get(None))
        self._counted_engines = frozenset(engines)
        self._pace_polls(nvml, counted)
        nvml = self._with_holders(nvml, counted)
        # Last: an instance may have been replaced meanwhile; then its readings are dropped.
        self._look()
        if not nvml.answered and not counted.activities:
            raise DeviceSilent(f"its driver calls fail: {self._journal.last_refusal}")
        self._journal.log_changes()
        return Reading(
            device=self._nvml.device,
            timestamp_seconds=unix,
            monotonic_seconds=monotonic,
            vitals=replace(nvml.vitals, **{f"{each}_ratio": engines[each] for each in engines}),
            board=nvml.board,
            shares=tuple(
                ShareReading(
                    gpu_instance=share,
                    memory=nvml.memory.get(share),
                    processes=None if nvml.processes is None else nvml.processes.get(share),
                    activity=counted.activities.get(share),
                    counters=counted.sources.get(share),
                )
                for share in self._nvml.gpu_instances
            ),
            health=self._health,
            states=self._journal.states,
            cadence_age_seconds={
                name: round(max(monotonic - at, 0.0), AGE_DIGITS)
                for name, at in (("slow", self._slow_at), ("static", self._static_at))
            },
            read_seconds={NVML: nvml_seconds, **counted.read_seconds},
        )

    def _pace_polls(self, nvml: NvmlReading, counted: CountersRead) -> None:
        """Say whether the utilization must be bounded by polls until the next round: not where
        hardware counters give the engine's activity, nor on an idle GPU that nobody holds."""
        reader, utilization = self._nvml.utilization, nvml.vitals.utilization
        if reader is None:
            return
        activity = counted.activities.get(None)
        if activity is not None:
            self._counts_engine = activity.engine is not None
        elif None not in counted.sources:
            self._counts_engine = False
        unheld = nvml.processes is not None and nvml.processes.get(None) == ()
        rests = utilization is not None and utilization.ratio == 0.0
        reader.needs_bounds = not (self._counts_engine or (unheld and rests))

    def _with_holders(self, nvml: NvmlReading, counted: CountersRead) -> NvmlReading:
        """Return the readings with processes listed anew from when a share's load drops to 0 until
        they are listed anyway: those of a job that ended would hold it for a slow interval."""
        now = self._clock.monotonic()
        loads = {share: _load(nvml, counted, share) for share in self._nvml.gpu_instances}
        self._loaded_at |= {share: now for share, load in loads.items() if load}
        ending = any(
            load == 0
            and (nvml.processes or {}).get(share)
            and now - self._loaded_at.get(share, float("-inf"))
            <= self._options.slow_interval_seconds
            for share, load in loads.items()
        )
        if not ending or now < self._next_list:
            return nvml
        processes = self._nvml.read_processes()
        ended = self._clock.monotonic()
        self._next_list = ended + (ended - now) / LOOK_RATIO
        return replace(nvml, processes=processes)

    def _look(self) -> None:
        """Raise DeviceChanged if the MIG layout has changed; look less often if that is slow."""
        began = self._clock.monotonic()
        if began < self._next_look:
            return
        self._nvml.look()
        ended = self._clock.monotonic()
        self._next_look = ended + (ended - began) / LOOK_RATIO

    def close(self) -> None:
        """Free the driver's resources of this GPU's counter sources."""
        self._counters.close()


def _load(nvml: NvmlReading, counted: CountersRead, share: int | None) -> float | None:
    """Return how busy a share is by its counters, else its utilization, which lags behind them by
    up to a second; None: not known."""
    activity, utilization = counted.activities.get(share), nvml.vitals.utilization
    known = [] if activity is None else [activity.engine, activity.sm]
    ratios = [ratio for ratio in known if ratio is not None]
    if share is None and utilization is not None and not ratios:
        ratios.append(utilization.ratio)
    load = max(ratios, default=None)
    return 0.0 if load is not None and load < IDLE_LOAD_RATIO else load


def _engine_ratios(activity: Activity | None) -> dict[str, Any]:
    """Return the busy ratio of each media engine that the whole GPU's counters gave."""
    if activity is None:
        return {}
    found = {engine: getattr(activity, engine) for engine in MEDIA_ENGINES}
    return {engine: min(ratio, 1.0) for engine, ratio in found.items() if ratio is not None}
