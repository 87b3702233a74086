# SPDX-License-Identifier: Apache-2.0
"""The health of the hardware, for alerts."""

from __future__ import annotations

from collections.abc import Mapping

from exporter.exposition.family import Family, core_counter, core_gauge, gauge, info
from exporter.exposition.labels import Label, flag
from exporter.exposition.parts import GPU, HEALTH, Number, Rows
from exporter.model.reading import FABRIC_STATES, RECOVERY_ACTIONS, Health
from exporter.model.snapshot import Gpu
from exporter.model.xids import COUNTED_FROM_START

_SLOW = ", at the slow cadence"
XID = Label("xid", meaning="the driver's error number")
SEVERITY = Label("severity", ("corrected", "uncorrected"))
LOCATION = Label("location", ("dram", "sram"))
AVAILABILITY = Label("availability", ("max", "high", "partial", "low", "none"))


def _xid_counts(gpu: Gpu) -> dict[str, Number]:
    counts: dict[int, int] = dict.fromkeys(COUNTED_FROM_START, 0)
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


FAMILIES: tuple[Family, ...] = (
    core_counter(
        "gpu_xid_errors_total",
        "Driver errors (Xids) seen since the exporter started, each counted once; the common ones "
        "that alerts are made of exist at 0 from the start.",
        "NVML events and, where readable, the kernel log",
        GPU.by_label(XID, _xid_counts),
    ),
    core_gauge(
        "gpu_xid_last_timestamp_seconds",
        "Unix time at which this Xid was last seen.",
        "NVML events and, where readable, the kernel log",
        GPU.by_label(XID, _xid_times),
    ),
    core_counter(
        "gpu_ecc_errors_total",
        "Memory errors since the driver was loaded: corrected ones cost nothing, uncorrected ones "
        "cost the application.",
        "nvmlDeviceGetMemoryErrorCounter; SRAM from nvmlDeviceGetSramEccErrorStatus where the "
        "driver has it" + _SLOW,
        HEALTH.rows((SEVERITY, LOCATION), lambda h: _by_severity(h.ecc_errors_total)),
    ),
    gauge(
        "gpu_ecc_lifetime_errors",
        "Memory errors over the life of the board; a repair can set it back.",
        "as gpu_ecc_errors_total, the aggregate counters" + _SLOW,
        HEALTH.rows((SEVERITY, LOCATION), lambda h: _by_severity(h.ecc_lifetime_errors)),
    ),
    gauge(
        "gpu_remapped_rows",
        "Memory rows that were replaced by spare ones, by the kind of error that led to it.",
        "nvmlDeviceGetRemappedRows (Ampere and newer)" + _SLOW,
        HEALTH.by_label(Label("kind", ("correctable", "uncorrectable")), lambda h: h.remapped_rows),
    ),
    core_gauge(
        "gpu_row_remap_pending",
        "1 while a row waits for the next reset of the GPU to be replaced, else 0.",
        "nvmlDeviceGetRemappedRows (Ampere and newer)" + _SLOW,
        HEALTH.one(lambda h: flag(h.row_remap_pending)),
    ),
    core_gauge(
        "gpu_row_remap_failure",
        "1 if a row could not be replaced: the board has to be, else 0.",
        "nvmlDeviceGetRemappedRows (Ampere and newer)" + _SLOW,
        HEALTH.one(lambda h: flag(h.row_remap_failure)),
    ),
    gauge(
        "gpu_row_remap_banks",
        "Memory banks by how many of their spare rows are left.",
        "nvmlDeviceGetRowRemapperHistogram (Ampere and newer)" + _SLOW,
        HEALTH.by_label(AVAILABILITY, lambda h: h.row_remap_banks),
    ),
    gauge(
        "gpu_retired_pages",
        "Memory pages that are no longer used, by the kind of error that led to it.",
        "nvmlDeviceGetRetiredPages (before Ampere)" + _SLOW,
        HEALTH.by_label(Label("cause", ("single_bit", "double_bit")), lambda h: h.retired_pages),
    ),
    gauge(
        "gpu_retired_pages_pending",
        "1 while a page waits for the next reboot to be retired, else 0.",
        "nvmlDeviceGetRetiredPagesPendingStatus (before Ampere)" + _SLOW,
        HEALTH.one(lambda h: flag(h.retired_pages_pending)),
    ),
    core_gauge(
        "gpu_sram_error_threshold_exceeded",
        "1 if on-chip memory had more uncorrectable errors than a board may have, else 0.",
        "nvmlDeviceGetSramEccErrorStatus" + _SLOW,
        HEALTH.one(lambda h: flag(h.sram_error_threshold_exceeded)),
    ),
    core_gauge(
        "gpu_unrepairable_memory",
        "1 if the board has memory that cannot be repaired, else 0.",
        "nvmlDeviceGetUnrepairableMemoryFlag" + _SLOW,
        HEALTH.one(lambda h: flag(h.unrepairable_memory)),
    ),
    core_gauge(
        "gpu_recovery_action",
        "What the driver asks for to make the GPU well again: "
        + ", ".join(f"{number} {action}" for number, action in enumerate(RECOVERY_ACTIONS))
        + ".",
        "field 230" + _SLOW,
        HEALTH.one(lambda h: h.recovery_action),
    ),
    core_gauge(
        "gpu_nvlink_links",
        "NVLinks by whether they carry traffic.",
        "field 165 of each link, else nvmlDeviceGetNvLinkState" + _SLOW,
        HEALTH.by_label(Label("state", ("active", "inactive")), lambda h: h.nvlink_links),
    ),
    gauge(
        "gpu_nvlink_links_expected",
        "NVLinks that this GPU has.",
        "field 91",
        HEALTH.one(lambda h: h.nvlink_links_expected),
    ),
    core_gauge(
        "gpu_fabric_state",
        "Registration with the NVSwitch fabric: "
        + ", ".join(f"{number} {state}" for number, state in enumerate(FABRIC_STATES) if number)
        + ".",
        "nvmlDeviceGetGpuFabricInfoV, else nvmlDeviceGetGpuFabricInfo" + _SLOW,
        HEALTH.one(lambda h: h.fabric_state),
    ),
    core_gauge(
        "gpu_fabric_healthy",
        "1 if the registration with the NVSwitch fabric succeeded and the fabric has its full "
        "bandwidth and routes, else 0; absent before it is completed.",
        "health summary, else health mask, of nvmlDeviceGetGpuFabricInfoV" + _SLOW,
        HEALTH.one(lambda h: flag(h.fabric_healthy)),
    ),
    info(
        "gpu_fabric_info",
        "Which NVLink domain the GPU belongs to; GPUs with the same values reach each other.",
        "nvmlDeviceGetGpuFabricInfoV, else nvmlDeviceGetGpuFabricInfo" + _SLOW,
        HEALTH.rows((Label("cluster_uuid"), Label("clique")), _fabric),
    ),
)
