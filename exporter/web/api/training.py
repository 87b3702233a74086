# SPDX-License-Identifier: Apache-2.0
"""From a snapshot's ranks to the JSON about training jobs: what goes where."""

from __future__ import annotations

from collections.abc import Iterable

from exporter.model.snapshot import Rank, Snapshot
from exporter.model.training import TRAINING_DEGRADATIONS
from exporter.web.api.models.gpus import GpuRankJson
from exporter.web.api.models.json import copied
from exporter.web.api.models.training import (
    DegradedJson,
    JobJson,
    PhaseJson,
    RankDeviceJson,
    RankJson,
    TrainingAnswer,
)
from exporter.web.wording.whose import display_names


def gpu_ranks(uuid: str, ranks: Iterable[Rank]) -> list[GpuRankJson]:
    """Return the ranks on one physical GPU or any of its instances, among all of the node."""
    known = list(ranks)
    names = display_names({rank.job for rank in known})
    return [
        copied(GpuRankJson, rank, display_name=names[rank.job])
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
    uuid = rank.gpu_uuid
    return copied(
        RankJson,
        rank,
        degraded=[
            DegradedJson(reason=reason, meaning=TRAINING_DEGRADATIONS[reason])
            for reason in rank.degraded
        ],
        device=(
            None
            if uuid is None
            else RankDeviceJson(gpu=indices.get(uuid), uuid=uuid, gpu_instance=rank.gpu_instance)
        ),
        last_report_age_seconds=max(0.0, now_seconds - rank.last_report_timestamp_seconds),
        phases=_phases(rank),
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
