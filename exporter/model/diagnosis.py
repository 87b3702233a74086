# SPDX-License-Identifier: Apache-2.0
"""Why a share is slow: what its job does on the host, and which known causes that shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A known cause that the evidence shows for a share."""

    cause: str
    """Its slug, as ``gpu_diagnosis`` names it."""
    job: str | None = None
    """The training job that it is about."""
    evidence: Mapping[str, float] = field(default_factory=dict)
    """The numbers that decided, by name."""
    recoverable_lower_seconds: float | None = None
    """At least so much it has cost since the exporter knows the job or the share, in GPU-seconds.
    """
    recoverable_upper_seconds: float | None = None
