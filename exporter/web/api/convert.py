# SPDX-License-Identifier: Apache-2.0
"""From snapshot and spec file to the JSON of the API: what goes where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from exporter.model.reading import (
    Activity,
    Device,
    XidRecord,
    capability_text,
    process_counts,
)
from exporter.model.snapshot import (
    Bounds,
    Ceilings,
    Gpu,
    Holder,
    Rank,
    Recent,
    Roofline,
    Saturation,
    Share,
    Snapshot,
)
from exporter.model.workload import Workload
from exporter.model.xids import XIDS, describe
from exporter.specs import GpuModel, SpecBook
from exporter.web.api.models.gpus import (
    ActivityJson,
    BoardJson,
    BoundsJson,
    GpuJson,
    GpusAnswer,
    HolderJson,
    IdentityJson,
    IdleJson,
    InstanceJson,
    MemoryJson,
    PointJson,
    RecentJson,
    SaturationJson,
    ShareJson,
    SourceJson,
    WorkloadJson,
    XidJson,
)
from exporter.web.api.models.json import copied
from exporter.web.api.models.roofline import CeilingJson, GpuModelJson, RooflineJson, SpecsAnswer
from exporter.web.api.training import gpu_ranks
from exporter.web.wording.recorded import notice
from exporter.web.wording.whose import workload_words


def _identity(device: Device, spec: str | None) -> IdentityJson:
    capability = capability_text(device.compute_capability)
    return copied(IdentityJson, device, compute_capability=capability, spec=spec)


def _board(gpu: Gpu) -> BoardJson | None:
    vitals, board = gpu.vitals, gpu.board
    if vitals is None or board is None:
        return None
    reasons = vitals.throttle_reasons
    return BoardJson(
        power_watts=vitals.power_watts,
        power_limit_watts=board.power_limit_watts,
        module_power_watts=vitals.module_power_watts,
        energy_joules_total=gpu.totals.energy_joules,
        temperature_celsius=vitals.temperatures_celsius,
        clock_hertz=dict(vitals.clock_hertz),
        clock_max_hertz=dict(gpu.device.clock_max_hertz),
        throttle_reasons=None if reasons is None else sorted(reasons),
        throttle_seconds_total=dict(gpu.totals.throttle_seconds),
        performance_state=board.performance_state,
        pcie_generation=board.pcie_generation,
        pcie_width=board.pcie_width,
    )


def _activity(activity: Activity) -> ActivityJson:
    return copied(
        ActivityJson,
        activity,
        engine_ratio=activity.engine,
        sm_ratio=activity.sm,
        occupancy_ratio=activity.occupancy,
        dram_ratio=activity.dram,
        pipe_ratio=activity.pipe_ratios,
        tensor_op_ratio=activity.tensor_op_ratios,
    )


def _bounds(bounds: Mapping[str, Bounds]) -> dict[str, BoundsJson]:
    return {
        name: BoundsJson(lower_ratio=each.lower, upper_ratio=each.upper)
        for name, each in bounds.items()
    }


def _saturation(saturation: Saturation) -> SaturationJson:
    return copied(
        SaturationJson,
        saturation,
        lower_ratio=saturation.bounds.lower,
        upper_ratio=saturation.bounds.upper,
        unmeasured=_bounds(saturation.unmeasured),
    )


def _place_bounds(now: Roofline | Recent) -> dict[str, float | None]:
    """Return what is known of a place on the roofline that is not measured."""
    dram, intensity = now.dram_bounds_bytes_per_second, now.intensity_bounds_flops_per_byte
    return {
        "dram_lower_bytes_per_second": None if dram is None else dram.lower,
        "dram_upper_bytes_per_second": None if dram is None else dram.upper,
        "intensity_lower_flops_per_byte": None if intensity is None else intensity.lower,
        "intensity_upper_flops_per_byte": None if intensity is None else intensity.upper,
    }


def _point(roofline: Roofline) -> PointJson:
    bounds = roofline.flops_bounds_per_second
    return copied(
        PointJson,
        roofline,
        flops_per_second=roofline.total_flops_per_second,
        flops_lower_per_second=None if bounds is None else bounds.lower,
        flops_upper_per_second=None if bounds is None else bounds.upper,
        flops_per_second_by_precision=dict(roofline.flops_per_second),
        **_place_bounds(roofline),
    )


def _recent(recent: Recent) -> RecentJson:
    saturation, flops = recent.saturation_bounds, recent.flops_bounds_per_second
    return copied(
        RecentJson,
        recent,
        saturation_lower_ratio=None if saturation is None else saturation.lower,
        saturation_upper_ratio=None if saturation is None else saturation.upper,
        time_bounds=_bounds(recent.time_bounds),
        flops_per_second=sum(recent.flops_per_second.values()) if recent.flops_per_second else None,
        flops_lower_per_second=None if flops is None else flops.lower,
        flops_upper_per_second=None if flops is None else flops.upper,
        **_place_bounds(recent),
    )


def _xid(code: int, record: XidRecord) -> XidJson:
    xid = XIDS.get(code)
    tier = None if xid is None else xid.tier
    return copied(XidJson, record, xid=code, tier=tier, meaning=describe(code))


def notice_of(snapshot: Snapshot) -> str | None:
    """Return that the data is recorded or simulated, as the page's banner says it."""
    return notice(
        {(gpu.device.source, gpu.device.driver_version) for gpu in snapshot.gpus},
        snapshot.problem,
    )


def _holder(holder: Holder) -> HolderJson:
    workload = holder.workload
    words = None if workload is None else workload_words(workload)
    return copied(HolderJson, holder, workload=words)


def _workload(workload: Workload) -> WorkloadJson:
    known = {name: value for name, value in asdict(workload).items() if value}
    return WorkloadJson(**known)


def _share(share: Share) -> ShareJson:
    totals = share.totals
    return ShareJson(
        gpu_instance=share.gpu_instance,
        held=share.held,
        holder=None if share.holder is None else _holder(share.holder),
        allocated=share.work.allocated,
        workloads=[_workload(each) for each in share.work.workloads],
        limiter=share.limiter,
        recent=None if share.recent is None else _recent(share.recent),
        utilization_ratio=None if share.utilization is None else share.utilization.ratio,
        memory=None if share.memory is None else MemoryJson(**asdict(share.memory)),
        processes=None if share.processes is None else process_counts(share.processes),
        activity=None if share.activity is None else _activity(share.activity),
        saturation=None if share.saturation is None else _saturation(share.saturation),
        time_parts=None if share.time_parts is None else asdict(share.time_parts),
        time_bounds=_bounds(share.time_bounds),
        roofline=None if share.roofline is None else _point(share.roofline),
        data_stall=_bounds(share.data_stall),
        idle=IdleJson(
            idle_seconds_total=totals.idle_seconds,
            held_idle_seconds_total=totals.held_idle_seconds,
            idle_energy_joules_total=totals.idle_energy_joules,
            held_idle_energy_joules_total=totals.held_idle_energy_joules,
            last_busy_timestamp_seconds=totals.last_busy_timestamp_seconds,
            idle_for_seconds=totals.idle_for_seconds,
            allocated_unopened_seconds_total=totals.allocated_unopened_seconds,
            unopened_for_seconds=totals.unopened_for_seconds,
        ),
        observed_seconds_total=dict(totals.observed_seconds),
    )


def gpu_json(gpu: Gpu, ranks: Iterable[Rank] = ()) -> GpuJson:
    """Return one GPU with the ranks of `ranks` that are on it.

    Of one that is not up there are only its identity, when it was last read, and the ranks.
    """
    device = gpu.device
    return copied(
        GpuJson,
        gpu,
        index=device.index,
        uuid=device.uuid,
        identity=_identity(device, None if gpu.ceilings is None else gpu.ceilings.spec),
        modes=dict(device.modes) if gpu.up else {},
        mig=device.mig,
        instances=[InstanceJson(**asdict(each)) for each in device.instances if gpu.up],
        board=_board(gpu) if gpu.up else None,
        shares=[_share(share) for share in gpu.shares if gpu.up],
        ranks=gpu_ranks(device.uuid, ranks),
        xids=[_xid(code, record) for code, record in sorted(gpu.xids.items())],
        absent_readings=dict(gpu.states) if gpu.up else {},
    )


def gpus_answer(snapshot: Snapshot | None) -> GpusAnswer:
    """Return every GPU of the node; none before the first snapshot."""
    if snapshot is None:
        return GpusAnswer(problem="no snapshot yet", gpus=[])
    return GpusAnswer(
        timestamp_seconds=snapshot.timestamp_seconds,
        notice=notice_of(snapshot),
        problem=snapshot.problem,
        source_states={name: copied(SourceJson, state) for name, state in snapshot.sources.items()},
        gpus=[gpu_json(gpu, snapshot.ranks) for gpu in snapshot.gpus],
    )


def _ceilings(ceilings: Ceilings | GpuModel) -> list[CeilingJson]:
    """Ridge point = peak FLOP/s / peak bytes/s: the intensity from which compute is the roof."""
    bandwidth = ceilings.memory_bandwidth_bytes_per_second
    reached = ceilings.achievable_ratio.get("memory")
    rows = []
    for precision, peak in ceilings.peak_flops_per_second.items():
        ratio = ceilings.achievable_ratio.get(precision)
        achievable = None if ratio is None else peak * ratio
        rows.append(
            CeilingJson(
                precision=precision,
                spec_flops_per_second=peak,
                spec_ridge_flops_per_byte=None if not bandwidth else peak / bandwidth,
                achievable_flops_per_second=achievable,
                achievable_ridge_flops_per_byte=(
                    achievable / (bandwidth * reached)
                    if achievable is not None and bandwidth and reached
                    else None
                ),
            )
        )
    return rows


def rooflines(snapshot: Snapshot) -> list[RooflineJson]:
    """Return the roofline of every share of a GPU that is up and has ceilings."""
    return [
        copied(
            RooflineJson,
            ceilings,
            gpu=gpu.device.index,
            uuid=gpu.device.uuid,
            name=gpu.device.name,
            gpu_instance=share.gpu_instance,
            memory_bandwidth_bytes_per_second=ceilings.memory_bandwidth_by_basis,
            link_bandwidth_bytes_per_second=(
                dict(ceilings.link_bandwidth_bytes_per_second) if not gpu.device.mig else {}
            ),
            ceilings=_ceilings(ceilings),
            point=None if share.roofline is None else _point(share.roofline),
            saturation=None if share.saturation is None else _saturation(share.saturation),
        )
        for gpu in snapshot.gpus
        if gpu.up
        for share in gpu.shares
        if (ceilings := share.ceilings) is not None
    ]


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
    """Return these GPU models of the spec file, and what the codes of its sources stand for."""
    return SpecsAnswer(
        products=[gpu_model_json(model) for model in models], sources=dict(book.sources)
    )
