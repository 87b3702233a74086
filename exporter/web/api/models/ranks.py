# SPDX-License-Identifier: Apache-2.0
"""The ranks of training jobs, as their GPU shows them."""

from __future__ import annotations

from dataclasses import dataclass

from exporter.web.api.models.json import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRankJson(Json):
    """A rank as its GPU shows it."""

    job: str
    """The label training_job."""
    display_name: str
    """Without the run, where that is unique on this node."""
    owner: str | None = None
    """Whose job it is, where names of users are shown."""
    rank: int
    verified: bool | None = None
    """Whether the driver lists it on its GPU; only then it counts there. Absent without a GPU."""
    gpu_instance: int | None = None
    processes: int
    """How many are alive."""
    last_report_timestamp_seconds: float
    data_wait_ratio: float | None = None
    """Share of the last seconds in which the host waited for data (W)."""
    data_stall_ratio: float | None = None
    """The part of it in which the GPU had nothing to do (S), only where measured."""
    waiting_for_data: bool = False
    """Whether its last report said that it waits for data."""
