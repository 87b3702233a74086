# SPDX-License-Identifier: Apache-2.0
"""The JSON about training jobs: its types, and what of a snapshot goes where."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from pydantic import BaseModel, Field

from exporter.model.reading import TRAINING_DEGRADATIONS
from exporter.model.snapshot import Rank, Snapshot
from exporter.web.job_names import display_names
from exporter.web.refusal import SCHEMA_VERSION

_WAIT = "Share of the last seconds in which the host waited for data (W)."
_STALL = "The part of it in which the GPU had nothing to do (S), only where measured."
_PROCESSES = "How many are alive."
_JOB = "The label training_job."
_DISPLAY_NAME = "Without the run, where no other job on this node would be called the same."
_OWNER = "Whose job it is, where that may be told."
_VERIFIED = (
    "Whether the driver lists a process of it on its GPU. Where not, also where it lists nobody, "
    "nothing that it says is taken for the GPU's own numbers. Absent without a GPU."
)


class GpuRankJson(BaseModel):
    """A rank as its GPU shows it."""

    job: str = Field(description=_JOB)
    display_name: str = Field(description=_DISPLAY_NAME)
    owner: str | None = Field(None, description=_OWNER)
    rank: int
    verified: bool | None = Field(None, description=_VERIFIED)
    gpu_instance: int | None = None
    processes: int = Field(description=_PROCESSES)
    last_report_timestamp_seconds: float
    data_wait_ratio: float | None = Field(None, description=_WAIT)
    data_stall_ratio: float | None = Field(None, description=_STALL)


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
    owner: str | None = Field(None, description=_OWNER)
    verified: bool | None = Field(None, description=_VERIFIED)
    degraded: list[DegradedJson] = Field(description="What of it is not measured or not believed.")
    device: RankDeviceJson | None = Field(None, description="Absent where it uses no GPU.")
    world_size: int | None = None
    framework: str | None = None
    precision: str | None = None
    instrumentation: str = Field(description="client or auto.")
    processes: int = Field(description=_PROCESSES)
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
    data_wait_ratio: float | None = Field(None, description=_WAIT)
    data_stall_ratio: float | None = Field(None, description=_STALL)
    loader: LoaderJson
    memory_bytes: dict[str, int] = Field(description="Of the framework's allocator, by kind.")


class JobJson(BaseModel):
    """One training job, as far as it runs on this node."""

    job: str = Field(description=_JOB)
    display_name: str = Field(description=_DISPLAY_NAME)
    owner: str | None = Field(None, description=_OWNER)
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


def gpu_ranks(uuid: str, ranks: Iterable[Rank]) -> list[GpuRankJson]:
    """Return the ranks on one physical GPU or any of its instances, among all of the node."""
    known = list(ranks)
    names = display_names({rank.job for rank in known})
    return [
        GpuRankJson(
            job=rank.job,
            display_name=names[rank.job],
            owner=rank.owner,
            rank=rank.rank,
            verified=rank.verified,
            gpu_instance=rank.gpu_instance,
            processes=rank.processes,
            last_report_timestamp_seconds=rank.last_report_timestamp_seconds,
            data_wait_ratio=rank.data_wait_ratio,
            data_stall_ratio=rank.data_stall_ratio,
        )
        for rank in known
        if rank.gpu_uuid == uuid
    ]


def _phases(rank: Rank) -> dict[str, PhaseJson]:
    totals = rank.totals

    def ratio(seconds: float | None) -> float | None:
        return None if seconds is None or not totals.step_seconds else seconds / totals.step_seconds

    phases = {}
    for phase, wait in totals.phase_seconds.items():
        idle = totals.phase_gpu_idle_seconds.get(phase)
        phases[phase] = PhaseJson(
            wait_seconds_total=wait,
            wait_ratio=ratio(wait),
            gpu_idle_seconds_total=idle,
            gpu_idle_ratio=ratio(idle),
        )
    return phases


def _rank(rank: Rank, now_seconds: float, indices: dict[str, int]) -> RankJson:
    totals, uuid = rank.totals, rank.gpu_uuid
    return RankJson(
        rank=rank.rank,
        owner=rank.owner,
        verified=rank.verified,
        degraded=[
            DegradedJson(reason=reason, meaning=TRAINING_DEGRADATIONS[reason])
            for reason in rank.degraded
        ],
        device=(
            None
            if uuid is None
            else RankDeviceJson(gpu=indices.get(uuid), uuid=uuid, gpu_instance=rank.gpu_instance)
        ),
        world_size=rank.world_size,
        framework=rank.framework,
        precision=rank.precision,
        instrumentation=rank.instrumentation,
        processes=rank.processes,
        last_report_timestamp_seconds=rank.last_report_timestamp_seconds,
        last_report_age_seconds=max(0.0, now_seconds - rank.last_report_timestamp_seconds),
        steps_total=totals.steps,
        batches_total=totals.batches,
        samples_total=totals.samples,
        step_seconds_total=totals.step_seconds,
        run_seconds=rank.run_seconds,
        model_flops_total=totals.model_flops,
        phases=_phases(rank),
        data_wait_ratio=rank.data_wait_ratio,
        data_stall_ratio=rank.data_stall_ratio,
        loader=LoaderJson(**asdict(rank.loader)),
        memory_bytes=dict(rank.memory_bytes),
    )


def training_answer(snapshot: Snapshot | None) -> TrainingAnswer:
    """Return every job with its ranks; none before the first snapshot."""
    if snapshot is None:
        return TrainingAnswer(jobs=[])
    now, state = snapshot.timestamp_seconds, snapshot.training
    indices = {gpu.device.uuid: gpu.device.index for gpu in snapshot.gpus}
    jobs: dict[str, list[Rank]] = {}
    for rank in snapshot.ranks:
        jobs.setdefault(rank.job, []).append(rank)
    names = display_names(jobs)
    return TrainingAnswer(
        timestamp_seconds=now,
        enabled=state is not None,
        reports_total=None if state is None else state.reports_total,
        rejected_total=None if state is None else dict(state.rejected_total),
        jobs=[
            JobJson(
                job=job,
                display_name=names[job],
                owner=ranks[0].owner,
                ranks=[_rank(rank, now, indices) for rank in ranks],
            )
            for job, ranks in jobs.items()
        ],
    )
