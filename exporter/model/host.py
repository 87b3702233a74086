# SPDX-License-Identifier: Apache-2.0
"""Host activity of a job, and thread states of the processes that hold a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

WORKER = "pt_data_worker"
"""What a worker of PyTorch's DataLoader calls itself, from 2.6 on."""
RUNNING, BLOCKED, AT_REST, AT_WORK, ASLEEP, STOPPED = "RDQWST"
"""The states of a thread: running or ready to (R); in uninterruptible sleep (D); asleep in a wait
as that for orders or for a batch (Q); asleep elsewhere, as in a timer, the network or a file system
(W); asleep, not known where (S); stopped, frozen or not readable (T)."""


class ThreadStates(NamedTuple):
    """The threads of one process and of its data loaders' workers at one moment."""

    seconds: float
    """Monotonic time."""
    main: str
    """State of the thread that runs the loop."""
    workers: str
    """State of each worker, one letter for each."""


class HostTotals(NamedTuple):
    """Totals of a process and its workers since it is watched; None is "not known"."""

    seconds: float
    """Monotonic time."""
    busy_seconds: float | None = None
    """Of the cores that it may use, with whosever work."""
    read_bytes: float | None = None
    reads: float | None = None
    cores: float | None = None
    """CPU cores that it may use now."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The samples of one watched process since the last call."""

    states: tuple[ThreadStates, ...] = ()
    totals: HostTotals | None = None
    """The newest."""
    workers: int | None = None
    """How many workers it has now; None where none are seen."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """By group of readings: why it is absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostActivity:
    """What the processes of a job did on the host, over `seconds`. None is "not known".

    Ratios of workers are means over all workers of its data loaders; those of a main process or of
    workers that could not be looked at are None.
    """

    method: str
    """client, where the job reports it, or procfs, where it is seen from outside."""
    seconds: float
    workers: int | None = None
    """Processes of data loaders (``pt_data_worker``)."""
    worker_running_ratio: float | None = None
    """Share of time in which they were running or ready to run (state R)."""
    worker_blocked_ratio: float | None = None
    """Share of time in uninterruptible sleep (state D), as in reads from storage."""
    cores: float | None = None
    """CPU cores that the job may use: its affinity, or its control group's quota if less."""
    cores_busy: float | None = None
    """How many of them were busy, with whosever work."""
    read_size_bytes: float | None = None
    """Mean size of the read calls of its workers or, without any, of its main processes; files in
    the page cache count too."""
