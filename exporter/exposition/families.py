# SPDX-License-Identifier: Apache-2.0
"""Which value of a snapshot each family shows: one table, from family name to reader."""

from __future__ import annotations

import platform
from dataclasses import dataclass

import exporter
from exporter.exposition.catalogue import PROCESS_MEMORY
from exporter.exposition.health import HEALTH_READERS
from exporter.exposition.parts import LabelValues, Node, Number, Part, Reader, Rows
from exporter.exposition.training import TRAINING_READERS
from exporter.model.reading import Activity, Board, Device, Memory, Process, Utilization, Vitals
from exporter.model.snapshot import (
    BoardTotals,
    Ceilings,
    Gpu,
    Holder,
    Roofline,
    Saturation,
    Share,
    ShareTotals,
    Snapshot,
)

PROCESS_KINDS = ("compute", "graphics", "mps")


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """The opt-in family of memory per process, and how many rows of it each share may have."""

    enabled: bool = False
    rows_per_share: int = 32


GPU: Part[Gpu] = Part("gpu", lambda gpu: gpu)
DEVICE: Part[Device] = Part("board", lambda gpu: gpu.device)
VITALS: Part[Vitals] = Part("board", lambda gpu: gpu.vitals)
BOARD: Part[Board] = Part("board", lambda gpu: gpu.board)
BOARD_TOTALS: Part[BoardTotals] = Part("board", lambda gpu: gpu.totals)
BOARD_CEILINGS: Part[Ceilings] = Part("board", lambda gpu: gpu.ceilings)
SHARE: Part[Share] = Part("share", lambda share: share)
TOTALS: Part[ShareTotals] = Part("share", lambda share: share.totals)
UTILIZATION: Part[Utilization] = Part("share", lambda share: share.utilization)
MEMORY: Part[Memory] = Part("share", lambda share: share.memory)
PROCESSES: Part[tuple[Process, ...]] = Part("share", lambda share: share.processes)
HOLDER: Part[Holder] = Part("share", lambda share: share.holder)
ACTIVITY: Part[Activity] = Part("share", lambda share: share.activity)
SATURATION: Part[Saturation] = Part("share", lambda share: share.saturation)
ROOFLINE: Part[Roofline] = Part("share", lambda share: share.roofline)
CEILINGS: Part[Ceilings] = Part("share", lambda share: share.ceilings)
NODE: Part[Node] = Part("node", lambda node: node)
SNAPSHOT: Part[Snapshot] = Part("node", lambda node: node.snapshot)


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _known(**values: Number | None) -> dict[str, Number]:
    return {name: value for name, value in values.items() if value is not None}


def _info(gpu: Gpu) -> Rows:
    device = gpu.device
    capability = device.compute_capability
    yield (
        (
            device.name,
            _text(device.architecture),
            "" if capability is None else f"{capability[0]}.{capability[1]}",
            _text(device.pci_bus_id),
            _text(device.serial),
            _text(device.board_part_number),
            _text(device.minor_number),
            _text(device.numa_node),
            _text(device.driver_version),
            _text(device.cuda_version),
            _text(device.vbios_version),
            "" if gpu.ceilings is None else gpu.ceilings.spec,
            device.source,
        ),
        1,
    )


_MODES = ("persistence", "compute", "ecc", "mig", "virtualization", "confidential")


def _modes(device: Device) -> Rows:
    if device.modes:
        yield tuple(device.modes.get(mode, "") for mode in _MODES), 1


def _instances(device: Device) -> Rows:
    for instance in device.instances:
        ids = (str(instance.gpu_instance), str(instance.compute_instance))
        yield (*ids, instance.profile, instance.mig_uuid), 1


def _saturation_source(saturation: Saturation) -> Rows:
    yield (saturation.source, "yes" if saturation.complete else "no"), 1


def _holder(holder: Holder) -> Rows:
    yield (_text(holder.owner), _text(holder.command), holder.workload), 1


def pipe_ratios(activity: Activity) -> dict[str, Number]:
    """Return the activity of each math pipe that is known."""
    return _known(
        tensor=activity.tensor,
        fp64=activity.fp64,
        fp32=activity.fp32,
        fp16=activity.fp16,
        int=activity.integer,
    )


def tensor_op_ratios(activity: Activity) -> dict[str, Number]:
    """Return the activity of the tensor pipe by operation, where split."""
    return _known(hmma=activity.hmma, imma=activity.imma, dmma=activity.dmma, dfma=activity.dfma)


def _peak_flops(ceilings: Ceilings) -> Rows:
    achievable = ceilings.achievable_ratio
    for precision, peak in ceilings.peak_flops_per_second.items():
        yield (precision, "spec"), peak
        if precision in achievable:
            yield (precision, "achievable"), peak * achievable[precision]


def memory_ceilings(ceilings: Ceilings) -> dict[str, Number]:
    """Return the bandwidth of device memory by basis: spec, achievable."""
    peak = ceilings.memory_bandwidth_bytes_per_second
    share = ceilings.achievable_ratio.get("memory")
    if peak is None:
        return {}
    return _known(spec=peak, achievable=None if share is None else peak * share)


def total_flops(roofline: Roofline) -> Number | None:
    """Return FLOP/s over all precisions; None where not measured."""
    by_precision = roofline.flops_per_second
    return sum(by_precision.values()) if by_precision else None


def process_counts(processes: tuple[Process, ...]) -> dict[str, int]:
    """Return how many processes of each kind there are."""
    kinds = [process.kind for process in processes]
    return {kind: kinds.count(kind) for kind in PROCESS_KINDS}


def _process_rows(processes: tuple[Process, ...]) -> list[tuple[LabelValues, int]]:
    """One row for each process whose memory is known, largest first.

    A process is listed once for each kind of context that it has; its memory is the same.
    """
    rows: dict[LabelValues, int] = {}
    for process in processes:
        if process.used_bytes is not None:
            labels = (str(process.pid), _text(process.command), _text(process.owner))
            rows[labels] = max(process.used_bytes, rows.get(labels, 0))
    return sorted(rows.items(), key=lambda row: row[1], reverse=True)


def _states(snapshot: Snapshot) -> Rows:
    for gpu in snapshot.gpus:
        for group, state in gpu.states.items():
            if gpu.up or state == "suspended":
                yield (gpu.device.uuid, group, state), 1


def _build(node: Node) -> Rows:
    yield (exporter.__version__, node.revision, platform.python_version()), 1


_READERS: dict[str, Reader] = {
    # Identity
    "gpu_info": GPU.rows(_info),
    "gpu_up": GPU.one(lambda gpu: int(gpu.up)),
    "gpu_last_read_timestamp_seconds": GPU.one(lambda gpu: gpu.last_read_timestamp_seconds),
    "gpu_saturation_source_info": SATURATION.rows(_saturation_source),
    "gpu_mode_info": DEVICE.rows(_modes),
    "gpu_mig_info": DEVICE.rows(_instances),
    # Utilization
    "gpu_utilization_ratio": UTILIZATION.one(lambda u: u.ratio),
    "gpu_memory_controller_utilization_ratio": UTILIZATION.one(lambda u: u.memory_ratio),
    "gpu_encoder_utilization_ratio": VITALS.one(lambda v: v.encoder_ratio),
    "gpu_decoder_utilization_ratio": VITALS.one(lambda v: v.decoder_ratio),
    "gpu_jpeg_utilization_ratio": VITALS.one(lambda v: v.jpeg_ratio),
    "gpu_ofa_utilization_ratio": VITALS.one(lambda v: v.ofa_ratio),
    "gpu_busy_seconds_total": TOTALS.one(lambda t: t.busy_seconds),
    "gpu_observed_seconds_total": TOTALS.by_label(lambda t: t.observed_seconds),
    "gpu_memory_total_bytes": MEMORY.one(lambda m: m.total_bytes),
    "gpu_memory_used_bytes": MEMORY.one(lambda m: m.used_bytes),
    "gpu_memory_free_bytes": MEMORY.one(lambda m: m.free_bytes),
    "gpu_memory_reserved_bytes": MEMORY.one(lambda m: m.reserved_bytes),
    "gpu_bar1_used_bytes": BOARD.one(lambda b: b.bar1_used_bytes),
    "gpu_bar1_total_bytes": BOARD.one(lambda b: b.bar1_total_bytes),
    "gpu_power_watts": VITALS.one(lambda v: v.power_watts),
    "gpu_power_limit_watts": BOARD.one(lambda b: b.power_limit_watts),
    "gpu_power_default_limit_watts": DEVICE.one(lambda d: d.power_default_limit_watts),
    "gpu_power_max_limit_watts": DEVICE.one(lambda d: d.power_max_limit_watts),
    "gpu_module_power_watts": VITALS.one(lambda v: v.module_power_watts),
    "gpu_energy_joules_total": BOARD_TOTALS.one(lambda t: t.energy_joules),
    "gpu_temperature_celsius": VITALS.by_label(
        lambda v: _known(gpu=v.temperature_celsius, memory=v.memory_temperature_celsius)
    ),
    "gpu_temperature_threshold_celsius": DEVICE.by_label(lambda d: d.temperature_threshold_celsius),
    "gpu_temperature_margin_celsius": BOARD.one(lambda b: b.temperature_margin_celsius),
    "gpu_clock_hertz": VITALS.by_label(lambda v: v.clock_hertz),
    "gpu_clock_max_hertz": DEVICE.by_label(lambda d: d.clock_max_hertz),
    "gpu_throttle_seconds_total": BOARD_TOTALS.by_label(lambda t: t.throttle_seconds),
    "gpu_fan_speed_ratio": BOARD.by_label(
        lambda b: {str(fan): ratio for fan, ratio in enumerate(b.fan_speed_ratios)}
    ),
    "gpu_performance_state": BOARD.one(lambda b: b.performance_state),
    "gpu_pcie_transmit_bytes_total": BOARD_TOTALS.one(lambda t: t.pcie_transmit_bytes),
    "gpu_pcie_receive_bytes_total": BOARD_TOTALS.one(lambda t: t.pcie_receive_bytes),
    "gpu_pcie_replays_total": BOARD.one(lambda b: b.pcie_replays_total),
    "gpu_pcie_errors_total": BOARD.by_label(lambda b: b.pcie_errors_total),
    "gpu_pcie_link_recoveries_total": BOARD.one(lambda b: b.pcie_link_recoveries_total),
    "gpu_pcie_link_generation": BOARD.one(lambda b: b.pcie_generation),
    "gpu_pcie_link_generation_max": DEVICE.one(lambda d: d.pcie_generation_max),
    "gpu_pcie_link_width": BOARD.one(lambda b: b.pcie_width),
    "gpu_pcie_link_width_max": DEVICE.one(lambda d: d.pcie_width_max),
    "gpu_nvlink_transmit_bytes_total": BOARD_TOTALS.one(lambda t: t.nvlink_transmit_bytes),
    "gpu_nvlink_receive_bytes_total": BOARD_TOTALS.one(lambda t: t.nvlink_receive_bytes),
    "gpu_nvlink_errors_total": BOARD.by_label(lambda b: b.nvlink_errors_total),
    "gpu_c2c_transmit_bytes_total": BOARD_TOTALS.one(lambda t: t.c2c_transmit_bytes),
    "gpu_c2c_receive_bytes_total": BOARD_TOTALS.one(lambda t: t.c2c_receive_bytes),
    "gpu_peak_link_bandwidth_bytes_per_second": BOARD_CEILINGS.by_label(
        lambda c: c.link_bandwidth_bytes_per_second
    ),
    "gpu_processes": PROCESSES.by_label(process_counts),
    # Health
    **HEALTH_READERS,
    # Saturation
    "gpu_engine_active_ratio": ACTIVITY.one(lambda a: a.engine),
    "gpu_sm_active_ratio": ACTIVITY.one(lambda a: a.sm),
    "gpu_sm_occupancy_ratio": ACTIVITY.one(lambda a: a.occupancy),
    "gpu_dram_active_ratio": ACTIVITY.one(lambda a: a.dram),
    "gpu_pipe_active_ratio": ACTIVITY.by_label(pipe_ratios),
    "gpu_tensor_op_active_ratio": ACTIVITY.by_label(tensor_op_ratios),
    "gpu_engine_active_seconds_total": TOTALS.one(lambda t: t.engine_active_seconds),
    "gpu_sm_active_seconds_total": TOTALS.one(lambda t: t.sm_active_seconds),
    "gpu_dram_active_seconds_total": TOTALS.one(lambda t: t.dram_active_seconds),
    "gpu_pipe_active_seconds_total": TOTALS.by_label(lambda t: t.pipe_active_seconds),
    "gpu_tensor_op_active_seconds_total": TOTALS.by_label(lambda t: t.tensor_op_active_seconds),
    "gpu_saturation_ratio": SATURATION.one(lambda s: s.ratio),
    "gpu_saturation_seconds_total": TOTALS.one(lambda t: t.saturation_seconds),
    "gpu_saturation_lower_ratio": SATURATION.one(lambda s: s.bounds.lower),
    "gpu_saturation_upper_ratio": SATURATION.one(lambda s: s.bounds.upper),
    "gpu_resource_saturation_lower_ratio": SATURATION.by_label(
        lambda s: {resource: bounds.lower for resource, bounds in s.unmeasured.items()}
    ),
    "gpu_resource_saturation_upper_ratio": SATURATION.by_label(
        lambda s: {resource: bounds.upper for resource, bounds in s.unmeasured.items()}
    ),
    "gpu_time_seconds_total": TOTALS.by_label(lambda t: t.time_seconds),
    "gpu_tensor_flops_utilization_ratio": ROOFLINE.one(lambda r: r.tensor_flops_utilization_ratio),
    # Roofline
    "gpu_peak_flops_per_second": CEILINGS.rows(_peak_flops),
    "gpu_peak_memory_bandwidth_bytes_per_second": CEILINGS.by_label(memory_ceilings),
    "gpu_peak_clock_hertz": CEILINGS.by_label(lambda c: c.peak_clock_hertz),
    "gpu_flops_total": TOTALS.by_label(lambda t: t.flops),
    "gpu_flops_lower_total": TOTALS.one(lambda t: t.flops_lower),
    "gpu_flops_upper_total": TOTALS.one(lambda t: t.flops_upper),
    "gpu_dram_bytes_total": TOTALS.one(lambda t: t.dram_bytes),
    "gpu_flops_per_second": ROOFLINE.one(total_flops),
    "gpu_flops_lower_per_second": ROOFLINE.one(
        lambda r: None if r.flops_bounds_per_second is None else r.flops_bounds_per_second.lower
    ),
    "gpu_flops_upper_per_second": ROOFLINE.one(
        lambda r: None if r.flops_bounds_per_second is None else r.flops_bounds_per_second.upper
    ),
    "gpu_dram_bytes_per_second": ROOFLINE.one(lambda r: r.dram_bytes_per_second),
    "gpu_arithmetic_intensity_flops_per_byte": ROOFLINE.one(lambda r: r.intensity_flops_per_byte),
    "gpu_roof_ratio": ROOFLINE.by_label(lambda r: r.roof_ratio),
    "gpu_limited_seconds_total": TOTALS.by_label(lambda t: t.limited_seconds),
    # Idle
    "gpu_held": SHARE.one(lambda s: None if s.held is None else int(s.held)),
    "gpu_holder_info": HOLDER.rows(_holder),
    "gpu_last_busy_timestamp_seconds": TOTALS.one(lambda t: t.last_busy_timestamp_seconds),
    "gpu_idle_seconds_total": TOTALS.one(lambda t: t.idle_seconds),
    "gpu_held_idle_seconds_total": TOTALS.one(lambda t: t.held_idle_seconds),
    "gpu_idle_energy_joules_total": TOTALS.one(lambda t: t.idle_energy_joules),
    # Training
    **TRAINING_READERS,
    # The exporter itself
    "roofline_exporter_build_info": NODE.rows(_build),
    "roofline_exporter_source_up": SNAPSHOT.by_label(
        lambda s: {name: int(source.up) for name, source in s.sources.items()}
    ),
    "roofline_exporter_source_read_seconds": SNAPSHOT.by_label(
        lambda s: _known(**{name: source.read_seconds for name, source in s.sources.items()})
    ),
    "roofline_exporter_source_failures_total": SNAPSHOT.by_label(
        lambda s: {name: source.failures_total for name, source in s.sources.items()}
    ),
    "roofline_exporter_snapshot_timestamp_seconds": SNAPSHOT.one(lambda s: s.timestamp_seconds),
    "roofline_exporter_devices": SNAPSHOT.by_label(lambda s: s.devices),
    "roofline_exporter_reading_state": SNAPSHOT.rows(_states),
    "roofline_exporter_series_dropped_total": NODE.by_label(lambda n: n.dropped),
}


def readers(memory: ProcessMemory) -> dict[str, Reader]:
    """Return the reader of each family that is served; per-process memory only if enabled."""
    if not memory.enabled:
        return _READERS
    capped = PROCESSES.rows(lambda processes: _process_rows(processes)[: memory.rows_per_share])
    return {**_READERS, PROCESS_MEMORY: capped}


def dropped_series(snapshot: Snapshot, memory: ProcessMemory) -> dict[str, int]:
    """Count the series of this snapshot that the caps cut off, by family."""
    dropped = 0
    for gpu in snapshot.gpus if memory.enabled else ():
        for share in gpu.shares if gpu.up else ():
            dropped += max(0, len(_process_rows(share.processes or ())) - memory.rows_per_share)
    return {PROCESS_MEMORY: dropped}
