# SPDX-License-Identifier: Apache-2.0
"""``/api/v1/training``: the jobs that report, rank by rank."""

from __future__ import annotations

from pydantic import BaseModel, Field

from exporter.web.api import SCHEMA_VERSION
from exporter.web.api.models.ranks import DISPLAY_NAME, JOB, OWNER, PROCESSES, STALL, VERIFIED, WAIT


class RankDeviceJson(BaseModel):
    """The device that a rank uses."""

    gpu: int | None = Field(None, description="Index of the GPU, where this node shows it.")
    uuid: str = Field(description="Of the physical GPU.")
    gpu_instance: int | None = None


class PhaseJson(BaseModel):
    """What one phase took since the first report; ratios are of the wall time of the loop."""

    wait_seconds_total: float = Field(description="Host time (W).")
    wait_ratio: float | None = None
    gpu_idle_seconds_total: float | None = Field(
        None, description="The part in which the GPU had nothing to do (S), only where measured."
    )
    gpu_idle_ratio: float | None = None


class LoaderJson(BaseModel):
    """How the data loader is set up, and how many batches it has ready."""

    workers: int | None = None
    prefetch_factor: int | None = None
    pin_memory: bool | None = None
    persistent_workers: bool | None = None
    ready_batches: int | None = None


class DegradedJson(BaseModel):
    """Something of a rank that is not measured, or not believed."""

    reason: str
    meaning: str


class RankJson(BaseModel):
    """One rank on one device, over all processes that reported under it."""

    rank: int
    owner: str | None = Field(None, description=OWNER)
    verified: bool | None = Field(None, description=VERIFIED)
    degraded: list[DegradedJson] = Field(description="What of it is not measured or not believed.")
    device: RankDeviceJson | None = Field(None, description="Absent where it uses no GPU.")
    world_size: int | None = None
    framework: str | None = None
    precision: str | None = None
    instrumentation: str = Field(description="client or auto.")
    processes: int = Field(description=PROCESSES)
    last_report_timestamp_seconds: float
    last_report_age_seconds: float
    steps_total: float
    batches_total: float
    samples_total: float | None = None
    step_seconds_total: float = Field(description="Wall time of the loop.")
    run_seconds: float = Field(description="That of the present run, which a restart begins anew.")
    model_flops_total: float | None = None
    phases: dict[str, PhaseJson] = Field(
        description="By phase, only those that the job measures; they exclude each other."
    )
    data_wait_ratio: float | None = Field(None, description=WAIT)
    data_stall_ratio: float | None = Field(None, description=STALL)
    loader: LoaderJson
    memory_bytes: dict[str, int] = Field(description="Of the framework's allocator, by kind.")


class JobJson(BaseModel):
    """One training job, as far as it runs on this node."""

    job: str = Field(description=JOB)
    display_name: str = Field(description=DISPLAY_NAME)
    owner: str | None = Field(None, description=OWNER)
    ranks: list[RankJson]


class TrainingAnswer(BaseModel):
    """Every training job that reports to this node."""

    schema_version: int = SCHEMA_VERSION
    timestamp_seconds: float | None = Field(None, description="Of the snapshot; none before it.")
    enabled: bool | None = Field(
        None, description="Whether reports are taken; not known before the first snapshot."
    )
    reports_total: int | None = None
    rejected_total: dict[str, int] | None = Field(None, description="By reason.")
    jobs: list[JobJson]
