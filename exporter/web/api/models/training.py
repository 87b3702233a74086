# SPDX-License-Identifier: Apache-2.0
"""``/api/v1/training``: the jobs that report, rank by rank."""

from __future__ import annotations

from dataclasses import dataclass

from exporter.web.api.models.json import Answer, Json, of


@dataclass(frozen=True, slots=True, kw_only=True)
class RankDeviceJson(Json):
    """The device that a rank uses."""

    gpu: int | None = None
    """Index of the GPU, where this node shows it."""
    uuid: str
    """Of the physical GPU."""
    gpu_instance: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseJson(Json):
    """What one phase took since the first report; ratios are of the wall time of the loop."""

    wait_seconds_total: float
    """Host time (W)."""
    wait_ratio: float | None = None
    gpu_idle_seconds_total: float | None = None
    """The part in which the GPU had nothing to do (S), only where measured."""
    gpu_idle_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderJson(Json):
    """How the data loader is set up, and how many batches it has ready."""

    workers: int | None = None
    prefetch_factor: int | None = None
    pin_memory: bool | None = None
    persistent_workers: bool | None = None
    ready_batches: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DegradedJson(Json):
    """Something of a rank that is not measured, or not believed."""

    reason: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankJson(Json):
    """One rank on one device, over all processes that reported under it."""

    rank: int
    owner: str | None = None
    """Whose job it is, where names of users are shown."""
    verified: bool | None = None
    """Whether the driver lists it on its GPU; only then it counts there. Absent without a GPU."""
    degraded: list[DegradedJson]
    """What of it is not measured or not believed."""
    device: RankDeviceJson | None = None
    """Absent where it uses no GPU."""
    world_size: int | None = None
    framework: str | None = None
    precision: str | None = None
    instrumentation: str
    """client or auto."""
    processes: int
    """How many are alive."""
    last_report_timestamp_seconds: float
    last_report_age_seconds: float
    steps_total: float = of("totals.steps", required=True)
    batches_total: float = of("totals.batches", required=True)
    samples_total: float | None = of("totals.samples")
    step_seconds_total: float = of("totals.step_seconds", required=True)
    """Wall time of the loop."""
    run_seconds: float
    """That of the present run, which a restart begins anew."""
    model_flops_total: float | None = of("totals.model_flops")
    phases: dict[str, PhaseJson]
    """By phase, only those that the job measures; they exclude each other."""
    data_wait_ratio: float | None = None
    """Share of the last seconds in which the host waited for data (W)."""
    data_stall_ratio: float | None = None
    """The part of it in which the GPU had nothing to do (S), only where measured."""
    loader: LoaderJson
    memory_bytes: dict[str, int]
    """Of the framework's allocator, by kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobJson(Json):
    """One training job, as far as it runs on this node."""

    job: str
    """The label training_job."""
    display_name: str
    """Without the run, where that is unique on this node."""
    owner: str | None = None
    """Whose job it is, where names of users are shown."""
    ranks: list[RankJson]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingAnswer(Answer):
    """Every training job that reports to this node."""

    timestamp_seconds: float | None = None
    """Of the snapshot; none before it."""
    enabled: bool | None = None
    """Whether reports are taken; not known before the first snapshot."""
    reports_total: int | None = None
    rejected_total: dict[str, int] | None = None
    """By reason."""
    jobs: list[JobJson]
