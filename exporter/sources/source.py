# SPDX-License-Identifier: Apache-2.0
"""The table of sources: their names, what each gives, and how a counter source is opened.

The command line makes the `--source.NAME` flags from it; therefore a source is imported only when
it is opened. A new counter source is a folder beside this file and a row of COUNTER_SOURCES.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from exporter.sources.nvml import GPM, NVML

if TYPE_CHECKING:  # the command line starts faster without them
    from exporter.model.reading import Activity, Device
    from exporter.sources.journal import Journal

KMSG = "kmsg"
TRAINING = "training"
EVENT_SOURCES = frozenset({KMSG, TRAINING})
"""Sources that report only what happens from their start on; a command that reads the GPUs once
leaves them out."""


class CounterSource(Protocol):
    """The hardware counters of one GPU, opened; a share is None (whole GPU) or a GPU instance.

    A source that cannot be read notes the reason in the GPU's journal and measures nothing.
    """

    def measures(self, gpu_instance: int | None) -> bool:
        """Return whether this source is expected to give activities of this share."""

    def read(self, monotonic_seconds: float) -> Mapping[int | None, Activity]:
        """Return what was counted since the last read, by share; nothing for those not known.

        Raises:
            DeviceGone: the GPU is lost.
            LibraryUnavailable: the driver library must be initialised again.
        """

    def close(self) -> None:
        """Give back what the driver or a process holds for this source."""


@dataclass(frozen=True, slots=True)
class OpenedGpu:
    """One GPU that NVML has opened, as a counter source gets it."""

    handle: Any
    """NVML's handle, of the present initialisation of the library."""
    device: Device
    gpu_instances: tuple[int | None, ...]
    """The shares: (None,) for the whole GPU, else the numbers of its GPU instances."""
    journal: Journal
    """Where the source notes what it cannot read; its `now` is the time of the present round."""
    wait: Callable[[float], float] | None = None
    """Waits so many seconds, which are few, and returns the monotonic time then; None: no waiting
    in a round."""


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One source that can be switched on and off."""

    name: str
    """As it stands in metrics, logs and flags."""
    gives: str
    """The help of its flag, in one sentence."""
    enabled: bool = field(default=True, kw_only=True)
    """Whether it is on unless the configuration says otherwise."""

    @property
    def flag(self) -> str:
        """The flag that switches it."""
        return f"source.{self.name}"


@dataclass(frozen=True, slots=True)
class CounterRow(SourceRow):
    """One counter source."""

    open: Callable[[OpenedGpu], CounterSource]
    """Raises DeviceGone or LibraryUnavailable, as `CounterSource.read` does."""


def _open_gpm(gpu: OpenedGpu) -> CounterSource:
    from exporter.sources.nvml.gpm import GpmSource

    return GpmSource(gpu.handle, gpu.gpu_instances, gpu.journal, gpu.wait)


COUNTER_SOURCES: tuple[CounterRow, ...] = (
    CounterRow(GPM, "Read the hardware counters of Hopper and newer GPUs (GPM).", _open_gpm),
)
"""In order of preference; `exporter/sources/fleet/counters.py` chooses one for each share."""

SOURCES: tuple[SourceRow, ...] = (
    SourceRow(NVML, "Read the GPUs through the driver's library (NVML)."),
    *COUNTER_SOURCES,
    SourceRow(
        KMSG,
        "Read Xids from the kernel log (/dev/kmsg) as well, if it can be read: it also has those "
        "of a GPU that has left the bus.",
    ),
    SourceRow(
        TRAINING, "Take the reports of training jobs that carry the client, on a Unix socket."
    ),
)
"""In the order of the help."""
