# SPDX-License-Identifier: Apache-2.0
"""The catalogue's families that hardware alerts are made of, and where their values are."""

from __future__ import annotations

from collections.abc import Mapping

from exporter.exposition.family import Family, Label, counter, gauge, info
from exporter.exposition.parts import Number, Part, Reader, Rows
from exporter.model.reading import Health
from exporter.model.snapshot import Gpu
from exporter.model.xids import ALERTING

_SLOW = ", at the slow cadence"
XID = Label("xid", meaning="the driver's error number")
SEVERITY = Label("severity", ("corrected", "uncorrected"))
LOCATION = Label("location", ("dram", "sram"))
RECOVERY_ACTIONS = (
    "none",
    "GPU reset",
    "node reboot",
    "drain P2P",
    "drain and reset",
    "recover IMEX domain",
    "bus reset",
    "system reboot",
)
"""As nvml.h numbers them."""
FABRIC_STATES = ("not supported", "not started", "in progress", "completed")

HEALTH: tuple[Family, ...] = (
    counter(
        "gpu_xid_errors_total",
        "",
        "gpu",
        "core",
        "Driver errors (Xids) seen since the exporter started, each counted once; those that "
        "alerts are made of exist at 0 from the start.",
        "NVML events and, where readable, the kernel log",
        XID,
    ),
    gauge(
        "gpu_xid_last_timestamp_seconds",
        "seconds",
        "gpu",
        "core",
        "Unix time at which this Xid was last seen.",
        "NVML events and, where readable, the kernel log",
        XID,
    ),
    counter(
        "gpu_ecc_errors_total",
        "",
        "board",
        "core",
        "Memory errors since the driver was loaded: corrected ones cost nothing, uncorrected ones "
        "cost the application.",
        "nvmlDeviceGetMemoryErrorCounter; SRAM from nvmlDeviceGetSramEccErrorStatus where the "
        "driver has it" + _SLOW,
        SEVERITY,
        LOCATION,
    ),
    gauge(
        "gpu_ecc_lifetime_errors",
        "",
        "board",
        "full",
        "Memory errors over the life of the board; a repair can set it back.",
        "as gpu_ecc_errors_total, the aggregate counters" + _SLOW,
        SEVERITY,
        LOCATION,
    ),
    gauge(
        "gpu_remapped_rows",
        "",
        "board",
        "full",
        "Memory rows that were replaced by spare ones, by the kind of error that led to it.",
        "nvmlDeviceGetRemappedRows (Ampere and newer)" + _SLOW,
        Label("kind", ("correctable", "uncorrectable")),
    ),
    gauge(
        "gpu_row_remap_pending",
        "",
        "board",
        "core",
        "1 while a row waits for the next reset of the GPU to be replaced, else 0.",
        "nvmlDeviceGetRemappedRows (Ampere and newer)" + _SLOW,
    ),
    gauge(
        "gpu_row_remap_failure",
        "",
        "board",
        "core",
        "1 if a row could not be replaced: the board has to be, else 0.",
        "nvmlDeviceGetRemappedRows (Ampere and newer)" + _SLOW,
    ),
    gauge(
        "gpu_row_remap_banks",
        "",
        "board",
        "full",
        "Memory banks by how many of their spare rows are left.",
        "nvmlDeviceGetRowRemapperHistogram (Ampere and newer)" + _SLOW,
        Label("availability", ("max", "high", "partial", "low", "none")),
    ),
    gauge(
        "gpu_retired_pages",
        "",
        "board",
        "full",
        "Memory pages that are no longer used, by the kind of error that led to it.",
        "nvmlDeviceGetRetiredPages (before Ampere)" + _SLOW,
        Label("cause", ("single_bit", "double_bit")),
    ),
    gauge(
        "gpu_retired_pages_pending",
        "",
        "board",
        "full",
        "1 while a page waits for the next reboot to be retired, else 0.",
        "nvmlDeviceGetRetiredPagesPendingStatus (before Ampere)" + _SLOW,
    ),
    gauge(
        "gpu_sram_error_threshold_exceeded",
        "",
        "board",
        "full",
        "1 if on-chip memory had more uncorrectable errors than a board may have, else 0.",
        "nvmlDeviceGetSramEccErrorStatus" + _SLOW,
    ),
    gauge(
        "gpu_unrepairable_memory",
        "",
        "board",
        "full",
        "1 if the board has memory that cannot be repaired, else 0.",
        "nvmlDeviceGetUnrepairableMemoryFlag" + _SLOW,
    ),
    gauge(
        "gpu_recovery_action",
        "",
        "board",
        "core",
        "What the driver asks for to make the GPU well again: "
        + ", ".join(f"{number} {action}" for number, action in enumerate(RECOVERY_ACTIONS))
        + ".",
        "field 230" + _SLOW,
    ),
    gauge(
        "gpu_nvlink_links",
        "",
        "board",
        "core",
        "NVLinks by whether they carry traffic.",
        "field 165 of each link, else nvmlDeviceGetNvLinkState" + _SLOW,
        Label("state", ("active", "inactive")),
    ),
    gauge(
        "gpu_nvlink_links_expected",
        "",
        "board",
        "full",
        "NVLinks that this GPU has.",
        "field 91",
    ),
    gauge(
        "gpu_fabric_state",
        "",
        "board",
        "full",
        "Registration with the NVSwitch fabric: "
        + ", ".join(f"{number} {state}" for number, state in enumerate(FABRIC_STATES) if number)
        + ".",
        "nvmlDeviceGetGpuFabricInfoV, else nvmlDeviceGetGpuFabricInfo" + _SLOW,
    ),
    gauge(
        "gpu_fabric_healthy",
        "",
        "board",
        "full",
        "1 if the registration with the NVSwitch fabric succeeded and the fabric has its full "
        "bandwidth and routes, else 0; absent before it is completed.",
        "health summary, else health mask, of nvmlDeviceGetGpuFabricInfoV" + _SLOW,
    ),
    info(
        "gpu_fabric_info",
        "board",
        "full",
        "Which NVLink domain the GPU belongs to; GPUs with the same values reach each other.",
        "nvmlDeviceGetGpuFabricInfoV, else nvmlDeviceGetGpuFabricInfo" + _SLOW,
        Label("cluster_uuid"),
        Label("clique"),
    ),
)

_GPU: Part[Gpu] = Part("gpu", lambda gpu: gpu)
_HEALTH: Part[Health] = Part("board", lambda gpu: gpu.health)


def _xid_counts(gpu: Gpu) -> dict[str, Number]:
    counts: dict[int, int] = dict.fromkeys(ALERTING, 0)
    counts.update((code, record.count) for code, record in gpu.xids.items())
    return {str(code): counts[code] for code in sorted(counts)}


def _xid_times(gpu: Gpu) -> dict[str, Number]:
    return {str(code): record.last_timestamp_seconds for code, record in gpu.xids.items()}


def _by_severity(counts: Mapping[str, Mapping[str, int]]) -> Rows:
    for severity, places in counts.items():
        for place, count in places.items():
            yield (severity, place), count


def _fabric(health: Health) -> Rows:
    if health.fabric_cluster_uuid is not None:
        yield (health.fabric_cluster_uuid, str(health.fabric_clique)), 1


def _flag(value: bool | None) -> int | None:
    return None if value is None else int(value)


HEALTH_READERS: dict[str, Reader] = {
    "gpu_xid_errors_total": _GPU.by_label(_xid_counts),
    "gpu_xid_last_timestamp_seconds": _GPU.by_label(_xid_times),
    "gpu_ecc_errors_total": _HEALTH.rows(lambda h: _by_severity(h.ecc_errors_total)),
    "gpu_ecc_lifetime_errors": _HEALTH.rows(lambda h: _by_severity(h.ecc_lifetime_errors)),
    "gpu_remapped_rows": _HEALTH.by_label(lambda h: h.remapped_rows),
    "gpu_row_remap_pending": _HEALTH.one(lambda h: _flag(h.row_remap_pending)),
    "gpu_row_remap_failure": _HEALTH.one(lambda h: _flag(h.row_remap_failure)),
    "gpu_row_remap_banks": _HEALTH.by_label(lambda h: h.row_remap_banks),
    "gpu_retired_pages": _HEALTH.by_label(lambda h: h.retired_pages),
    "gpu_retired_pages_pending": _HEALTH.one(lambda h: _flag(h.retired_pages_pending)),
    "gpu_sram_error_threshold_exceeded": _HEALTH.one(
        lambda h: _flag(h.sram_error_threshold_exceeded)
    ),
    "gpu_unrepairable_memory": _HEALTH.one(lambda h: _flag(h.unrepairable_memory)),
    "gpu_recovery_action": _HEALTH.one(lambda h: h.recovery_action),
    "gpu_nvlink_links": _HEALTH.by_label(lambda h: h.nvlink_links),
    "gpu_nvlink_links_expected": _HEALTH.one(lambda h: h.nvlink_links_expected),
    "gpu_fabric_state": _HEALTH.one(lambda h: h.fabric_state),
    "gpu_fabric_healthy": _HEALTH.one(lambda h: _flag(h.fabric_healthy)),
    "gpu_fabric_info": _HEALTH.rows(_fabric),
}
