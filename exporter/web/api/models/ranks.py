# SPDX-License-Identifier: Apache-2.0
"""The ranks of training jobs, as their GPU shows them."""

from __future__ import annotations

from pydantic import BaseModel, Field

WAIT = "Share of the last seconds in which the host waited for data (W)."
STALL = "The part of it in which the GPU had nothing to do (S), only where measured."
PROCESSES = "How many are alive."
JOB = "The label training_job."
DISPLAY_NAME = "Without the run, where that is unique on this node."
OWNER = "Whose job it is, where names of users are shown."
VERIFIED = (
    "Whether the driver lists a process of it on its GPU. If not, its report does not count for "
    "the GPU's own numbers. Absent without a GPU."
)


class GpuRankJson(BaseModel):
    """A rank as its GPU shows it."""

    job: str = Field(description=JOB)
    display_name: str = Field(description=DISPLAY_NAME)
    owner: str | None = Field(None, description=OWNER)
    rank: int
    verified: bool | None = Field(None, description=VERIFIED)
    gpu_instance: int | None = None
    processes: int = Field(description=PROCESSES)
    last_report_timestamp_seconds: float
    data_wait_ratio: float | None = Field(None, description=WAIT)
    data_stall_ratio: float | None = Field(None, description=STALL)
