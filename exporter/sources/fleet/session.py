# SPDX-License-Identifier: Apache-2.0
"""One opened GPU: its device sources, read by cadence into one `Reading`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pynvml

from exporter.clock import Clock
from exporter.errors import DeviceSilent
from exporter.model.reading import Activity, Device, Health, Reading, ShareReading, Vitals
from exporter.sources.nvml.gpm import GpmSource
from exporter.sources.nvml.health import HealthReader
from exporter.sources.nvml.journal import IDENTITY, Journal, Past
from exporter.sources.nvml.probe import Probe
from exporter.sources.nvml.reader import NvmlReading, NvmlSource
from exporter.sources.selection import Selection

STATIC_INTERVAL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What the configuration says about reading a GPU."""

    slow_interval_seconds: float = 10.0
    gpm: bool = True
    procfs: str = "/proc"
    owners: bool = True
    """Whether to look up whose the processes are."""
    selection: Selection = field(default_factory=Selection)
    skip_suspended: bool = False
    """Whether a GPU that sleeps is left asleep."""
    sysfs: str = "/sys"


class Session:
    """The device sources of one GPU, opened on a handle of one library generation."""

    def __init__(
        self,
        handle: Any,
        index: int,
        options: SessionOptions,
        clock: Clock,
        past: Past,
        progress: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._options = options
        self._journal = Journal(f"GPU {index}", past, progress)
        self._journal.now = clock.monotonic()
        self._nvml = NvmlSource(handle, index, options.procfs, self._journal, owners=options.owners)
        self._index: Probe[int] = Probe(
            self._journal, "nvml", IDENTITY, (lambda: pynvml.nvmlDeviceGetIndex(handle),)
        )
        self._gpm = GpmSource(handle, self._nvml.gpu_instances, options.gpm, self._journal)
        self._health_reader = HealthReader(
            handle, self._nvml.device.nvlink_count or 0, self._journal
        )
        self._health = Health()
        self._next_static = clock.monotonic() + STATIC_INTERVAL_SECONDS
        self._next_slow = float("-inf")

    @property
    def device(self) -> Device:
        """The GPU's identity, as last read."""
        return self._nvml.device

    @property
    def wants_burst(self) -> bool:
        """True while readings between two rounds narrow the bounds."""
        reader = self._nvml.utilization
        return reader is not None and reader.wants_burst

    def read_burst(self) -> None:
        """Read what is worth reading between two rounds."""
        if self._nvml.utilization is not None:
            self._nvml.utilization.poll(self._clock.monotonic())

    def index(self) -> int | None:
        """Return the index that the GPU has by now; None where the driver does not tell.

        Raises:
            DeviceGone: the GPU is lost.
            LibraryUnavailable: the library must be initialised again.
        """
        self._journal.now = self._clock.monotonic()
        return self._index()

    def read(self) -> Reading:
        """Return one round of readings.

        Raises:
            DeviceGone: the GPU is lost.
            DeviceSilent: not one of the fast readings answered.
            LibraryUnavailable: the library must be initialised again.
            DeviceChanged: the session must be opened anew.
        """
        started = self._journal.now = self._clock.monotonic()
        if started >= self._next_slow:
            if started >= self._next_static:
                self._nvml.read_static()
                self._next_static = started + STATIC_INTERVAL_SECONDS
            self._nvml.read_slow()
            self._health = self._health_reader.read()
            self._next_slow = started + self._options.slow_interval_seconds
        monotonic, unix = self._clock.monotonic(), self._clock.time()
        nvml = self._nvml.read_fast(monotonic, unix, self._gpm.counted_engines)
        # GPM goes last: on driver 535 a MIG sample can make later memory calls fail.
        nvml_done = self._clock.monotonic()
        self._journal.progress()
        activities = self._gpm.read(nvml_done)
        done = self._clock.monotonic()
        if not nvml.answered and not activities:
            raise DeviceSilent(f"its driver calls fail: {self._journal.last_refusal}")
        self._journal.tell()
        return Reading(
            device=self._nvml.device,
            timestamp_seconds=unix,
            monotonic_seconds=monotonic,
            vitals=_with_counted_engines(nvml.vitals, activities.get(None)),
            board=nvml.board,
            shares=tuple(
                self._share(share, nvml, activities) for share in self._nvml.gpu_instances
            ),
            health=self._health,
            states=dict(self._journal.states),
            read_seconds={"nvml": nvml_done - started, "gpm": done - nvml_done},
        )

    def _share(
        self,
        gpu_instance: int | None,
        nvml: NvmlReading,
        activities: Mapping[int | None, Activity],
    ) -> ShareReading:
        return ShareReading(
            gpu_instance=gpu_instance,
            memory=nvml.memory.get(gpu_instance),
            processes=nvml.processes.get(gpu_instance) if nvml.processes is not None else None,
            activity=activities.get(gpu_instance),
            counters="gpm" if self._gpm.measures(gpu_instance) else None,
        )

    def close(self) -> None:
        """Give back what the driver holds for this GPU's sources."""
        self._gpm.close()


def _with_counted_engines(vitals: Vitals, activity: Activity | None) -> Vitals:
    """Return `vitals` with the media engines that hardware counters told."""
    if activity is None:
        return vitals
    counted = {
        f"{engine}_ratio": min(getattr(activity, engine), 1.0)
        for engine in ("encoder", "decoder", "jpeg", "ofa")
        if getattr(activity, engine) is not None
    }
    return replace(vitals, **counted) if counted else vitals
