# SPDX-License-Identifier: Apache-2.0
"""Make the types of the API from a snapshot and the spec file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from exporter.model.reading import XidRecord, capability_text, process_counts
from exporter.model.snapshot import Ceilings, Gpu, Rank, Share, Snapshot
from exporter.model.training import TRAINING_DEGRADATIONS
from exporter.model.workload import Workload
from exporter.model.xids import XIDS, describe
from exporter.specs import GpuModel, SpecBook
from exporter.web.api.models.diagnosis import DiagnosisAnswer, NotKnownJson, SaidDiagnosisJson
from exporter.web.api.models.gpus import (
    BoardJson,
    GpuJson,
    GpuRankJson,
    GpusAnswer,
    HolderJson,
    IdentityJson,
    PointJson,
    SaturationJson,
    ShareJson,
    WorkloadJson,
    XidJson,
)
from exporter.web.api.models.json import copied
from exporter.web.api.models.roofline import (
    CeilingJson,
    GpuModelJson,
    RooflineAnswer,
    RooflineJson,
    SpecsAnswer,
)
from exporter.web.api.models.training import (
    DegradedJson,
    JobJson,
    PhaseJson,
    RankDeviceJson,
    RankJson,
    TrainingAnswer,
)
from exporter.web.facts import notice_of
from exporter.web.wording import diagnosis
from exporter.web.wording.whose import display_names, workload_words


def _share(share: Share) -> ShareJson:
    holder, processes = share.holder, share.processes
    workload = None if holder is None else holder.workload
    words = None if workload is None else workload_words(workload)
    return copied(
        ShareJson,
        share,
        holder=None if holder is None else copied(HolderJson, holder, workload=words),
        processes=None if processes is None else process_counts(processes),
        workloads=[_workload(each) for each in share.work.workloads],
    )


def _workload(workload: Workload) -> WorkloadJson:
    return WorkloadJson(**{name: value for name, value in asdict(workload).items() if value})


def _xid(code: int, record: XidRecord) -> XidJson:
    xid = XIDS.get(code)
    tier = None if xid is None else xid.tier
    return copied(XidJson, record, xid=code, tier=tier, meaning=describe(code))


def gpu_ranks(snapshot: Snapshot) -> dict[str | None, list[GpuRankJson]]:
    """Return the ranks on each physical GPU or any of its instances, by UUID."""
    names = display_names({rank.job for rank in snapshot.ranks})
    found: dict[str | None, list[GpuRankJson]] = {}
    for rank in snapshot.ranks:
        shown = copied(GpuRankJson, rank, display_name=names[rank.job])
        found.setdefault(rank.gpu_uuid, []).append(shown)
    return found


def gpu_json(gpu: Gpu, ranks: Mapping[str | None, list[GpuRankJson]]) -> GpuJson:
    """Return one GPU with its ranks of `ranks`.

    Of one that is not up there are only its identity, when it was last read, and the ranks.
    """
    device = gpu.device
    ceilings = gpu.ceilings
    identity = copied(
        IdentityJson,
        device,
        compute_capability=capability_text(device.compute_capability),
        spec=None if ceilings is None else ceilings.spec,
    )
    is_read = gpu.up and gpu.vitals is not None and gpu.board is not None
    absent: dict[str, Any] = {"modes": {}, "instances": [], "absent_readings": {}}
    return copied(
        GpuJson,
        gpu,
        identity=identity,
        board=copied(BoardJson, gpu) if is_read else None,
        shares=[_share(share) for share in gpu.shares if gpu.up],
        ranks=ranks.get(device.uuid, []),
        xids=[_xid(code, record) for code, record in sorted(gpu.xids.items())],
        **({} if gpu.up else absent),
    )


def gpus_answer(snapshot: Snapshot) -> GpusAnswer:
    """Return every GPU of the node."""
    ranks = gpu_ranks(snapshot)
    gpus = [gpu_json(gpu, ranks) for gpu in snapshot.gpus]
    return copied(GpusAnswer, snapshot, notice=notice_of(snapshot), gpus=gpus)


def diagnosis_answer(snapshot: Snapshot) -> DiagnosisAnswer:
    """Return the diagnoses of every share."""
    diagnoses: list[SaidDiagnosisJson] = []
    unknown: list[NotKnownJson] = []
    for gpu, share in _shares_up(snapshot):
        where: dict[str, Any] = {
            "gpu": gpu.device.index,
            "uuid": gpu.device.uuid,
            "gpu_instance": share.gpu_instance,
        }
        for each in share.diagnoses:
            finding, advice = diagnosis.said(each)
            said = {"finding": finding, "advice": advice}
            said["documentation"] = diagnosis.address(each.cause)
            diagnoses.append(copied(SaidDiagnosisJson, each, **where, **said))
        if missing := list(share.missing_evidence):
            reason = diagnosis.not_known(missing)
            unknown.append(NotKnownJson(**where, missing_evidence=missing, reason=reason))
    return DiagnosisAnswer(
        timestamp_seconds=snapshot.timestamp_seconds, diagnoses=diagnoses, not_known=unknown
    )


def _shares_up(snapshot: Snapshot) -> Iterator[tuple[Gpu, Share]]:
    for gpu in snapshot.gpus:
        if gpu.up:
            yield from ((gpu, share) for share in gpu.shares)


def _ceilings(ceilings: Ceilings | GpuModel) -> list[CeilingJson]:
    """Ridge point = peak FLOP/s / peak bytes/s: the intensity from which compute is the roof."""
    bandwidth = ceilings.memory_bandwidth_bytes_per_second
    reached = (bandwidth or 0.0) * ceilings.achievable_ratio.get("memory", 0.0)
    rows = []
    for precision, peak in ceilings.peak_flops_per_second.items():
        ratio = ceilings.achievable_ratio.get(precision)
        achievable = None if ratio is None else peak * ratio
        rows.append(
            CeilingJson(
                precision=precision,
                spec_flops_per_second=peak,
                spec_ridge_flops_per_byte=_over(peak, bandwidth),
                achievable_flops_per_second=achievable,
                achievable_ridge_flops_per_byte=_over(achievable, reached),
            )
        )
    return rows


def _over(value: float | None, by: float | None) -> float | None:
    return None if value is None or not by else value / by


def roofline_answer(snapshot: Snapshot) -> RooflineAnswer:
    """Return the roofline of every share of a GPU that is up and has ceilings."""
    rooflines = [
        copied(
            RooflineJson,
            ceilings,
            gpu=gpu.device.index,
            uuid=gpu.device.uuid,
            name=gpu.device.name,
            gpu_instance=share.gpu_instance,
            memory_bandwidth_bytes_per_second=ceilings.memory_bandwidth_by_basis,
            **({"link_bandwidth_bytes_per_second": {}} if gpu.device.mig else {}),
            ceilings=_ceilings(ceilings),
            point=share.roofline and copied(PointJson, share.roofline),
            saturation=share.saturation and copied(SaturationJson, share.saturation),
        )
        for gpu, share in _shares_up(snapshot)
        if (ceilings := share.ceilings) is not None
    ]
    return RooflineAnswer(timestamp_seconds=snapshot.timestamp_seconds, rooflines=rooflines)


def gpu_model_json(model: GpuModel) -> GpuModelJson:
    """Return one GPU model of the spec file."""
    return copied(
        GpuModelJson,
        model,
        pci_ids=[f"{pci_id:04X}" for pci_id in model.pci_ids],
        compute_capability=capability_text(model.compute_capability),
        ceilings=_ceilings(model),
    )


def specs_answer(models: Iterable[GpuModel], book: SpecBook) -> SpecsAnswer:
    """Return these GPU models of the spec file, and the meaning of its source codes."""
    return SpecsAnswer(
        products=[gpu_model_json(model) for model in models], sources=dict(book.sources)
    )


def _phases(rank: Rank) -> dict[str, PhaseJson]:
    totals, phases = rank.totals, {}
    for phase, wait in totals.phase_seconds.items():
        idle = totals.phase_gpu_idle_seconds.get(phase)
        phases[phase] = PhaseJson(
            wait_seconds_total=wait,
            wait_ratio=_over(wait, totals.step_seconds),
            gpu_idle_seconds_total=idle,
            gpu_idle_ratio=_over(idle, totals.step_seconds),
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


def training_answer(snapshot: Snapshot) -> TrainingAnswer:
    """Return every job with its ranks."""
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
