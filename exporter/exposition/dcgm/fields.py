# SPDX-License-Identifier: Apache-2.0
"""Every metric of dcgm-exporter that this node's readings have, in the order of the page.

Names, types and units are those of dcgm-exporter's default-counters.csv and
dcp-metrics-included.csv (4.8), of DCGM's dcgm_fields.h (4.6), and of its list of fields (4.7),
which gave some a new number with their new unit. docs/dcgm.md says which are not here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from exporter.exposition.dcgm.field import PREFIX, Event, Field, Form, Kind, Listed, Unit
from exporter.exposition.labels import flag
from exporter.exposition.parts import (
    ACTIVITY,
    BOARD,
    DEVICE,
    GPU,
    HEALTH,
    MEMORY,
    UTILIZATION,
    VITALS,
    Part,
    Reader,
)
from exporter.model import dcgm
from exporter.model.reading import Activity, Health, Memory
from exporter.model.snapshot import Gpu
from exporter.model.xids import XIDS

MIB = 2**20
NO_ERROR = "No Error"
UNKNOWN_ERROR = "Unknown Error"

WHOLE_ACTIVITY: Part[Activity] = Part(
    "share", lambda share: share.activity if share.gpu_instance is None else None
)
"""Of a GPU without MIG: traffic over links is the whole GPU's."""


def _whole(unit: str, per_base_unit: float = 1.0) -> Unit:
    return Unit(unit, lambda value: f"{value * per_base_unit:.0f}")


def _decimal(unit: str) -> Unit:
    return Unit(unit, lambda value: f"{value:f}")


COUNT = _whole("")
CELSIUS = _whole("°C")
WATTS = _decimal("W")
RATIO = _decimal("ratio")
PERCENT = _whole("%", 100.0)
MEGAHERTZ = _whole("MHz", 1e-6)
HERTZ = _whole("Hz")
MILLIJOULES = _whole("mJ", 1e3)
JOULES = Unit("J", lambda value: f"{value // 1:.0f}")
MEBIBYTES = Unit("MiB", lambda value: f"{value // MIB:.0f}")
BYTES = _whole("bytes")
NANOSECONDS = _whole("ns", 1e9)
MEGABYTES_PER_SECOND = _whole("MB/s", 1e-6)
BYTES_PER_SECOND = _whole("bytes/s")


def _row(
    number: int,
    listed: Listed,
    kind: Kind,
    names: tuple[tuple[str, Unit], tuple[str, Unit]],
    meaning: str,
    reader: Reader,
    *,
    each: bool = False,
) -> Field:
    legacy, current = (Form(PREFIX + name, kind, unit) for name, unit in names)
    return Field(number, listed, legacy, current, meaning, reader.part, reader.read, each=each)


def _names(
    legacy: str, unit: Unit, current: str = "", current_unit: Unit | None = None
) -> tuple[tuple[str, Unit], tuple[str, Unit]]:
    """Return both generations of a name and its unit; what is not given has not changed."""
    return (legacy, unit), (current or legacy, current_unit or unit)


def _nvlink_errors(kind: str) -> Reader:
    return BOARD.one(lambda b: b.nvlink_errors_total.get(kind))


def _throttled(reason: str) -> Reader:
    """Read the driver's own total, which counts from when it was loaded."""
    return VITALS.one(lambda v: v.throttle_seconds.get(reason))


def _ecc_errors(severity: str, *, lifetime: bool = False) -> Reader:
    """Read the errors of all places together."""

    def read(health: Health) -> int | None:
        counts = health.ecc_lifetime_errors if lifetime else health.ecc_errors_total
        places = counts.get(severity)
        return sum(places.values()) if places else None

    return HEALTH.one(read)


def _used_ratio(memory: Memory) -> float | None:
    usable = memory.total_bytes - (memory.reserved_bytes or 0)
    return memory.used_bytes / usable if usable > 0 else None


def _nvlink_rate(activity: Activity) -> float | None:
    moved = activity.nvlink_transmit_bytes, activity.nvlink_receive_bytes
    known = [each for each in moved if each is not None]
    return sum(known) / activity.seconds if len(known) == 2 and activity.seconds > 0 else None


def _last_xid(gpu: Gpu) -> Iterable[Event]:
    """Return the Xid that was seen last; of several in one moment the highest."""
    seen = ((record.last_timestamp_seconds, code) for code, record in gpu.xids.items())
    _, code = max(seen, default=(0.0, 0))
    known = XIDS.get(code)
    message = known.meaning if known is not None else UNKNOWN_ERROR if code else NO_ERROR
    return (Event(code, attributes=(("err_code", str(code)), ("err_msg", message))),)


def _xid_totals(gpu: Gpu) -> Iterator[Event]:
    for code, record in sorted(gpu.xids.items()):
        yield Event(record.count, labels=(("xid", str(code)),))


def _profiling(field: dcgm.Field) -> Field:
    """Return the row of a profiling field; a rate is what moved over the time it moved in."""

    def rate(activity: Activity) -> float | None:
        moved: float | None = getattr(activity, field.activity)
        return None if moved is None or activity.seconds <= 0 else moved / activity.seconds

    def ratio(activity: Activity) -> float | None:
        value: float | None = getattr(activity, field.activity)
        return value

    unit = BYTES_PER_SECOND if field.is_rate else RATIO
    return Field(
        field.number,
        PROFILING_LISTED.get(field.number, "other"),
        Form(dcgm.PREFIX + field.legacy, "gauge", unit),
        Form(dcgm.PREFIX + field.current, "gauge", unit),
        PROFILING_MEANING[field.number],
        WHOLE_ACTIVITY if field.is_rate else ACTIVITY,
        rate if field.is_rate else ratio,
    )


PROFILING_LISTED: Mapping[int, Listed] = {
    **dict.fromkeys((1001, 1004, 1005, 1009, 1010), "default"),
    **dict.fromkeys((1002, 1003, 1006, 1007, 1008), "commented"),
}
PROFILING_MEANING: Mapping[int, str] = {
    1001: "Time in which the graphics or compute engine was active",
    1002: "Cycles with a warp on an SM, mean over the SMs",
    1003: "Warps resident on an SM, of those that fit",
    1004: "Cycles in which the tensor pipe was active",
    1005: "Cycles in which the memory interface moved data",
    1006: "Cycles in which the FP64 pipe was active",
    1007: "Cycles in which the FP32 pipe was active",
    1008: "Cycles in which the FP16 pipe was active, without tensor work",
    1009: "Sent over PCIe, with headers",
    1010: "Received over PCIe, with headers",
    1011: "Sent over NVLink",
    1012: "Received over NVLink",
    1013: "Cycles in which the tensor pipe worked on integers",
    1014: "Cycles in which the tensor pipe worked on FP16 and the like",
    1015: "Cycles in which the tensor pipe worked on FP64",
    1016: "Cycles in which the integer pipe was active",
}

_FREE = "Device memory that can be allocated"
_USED = "Device memory that is allocated"
_RESERVED = "Device memory that driver and firmware keep"

FIELDS: tuple[Field, ...] = (
    _row(
        100,
        "default",
        "gauge",
        _names("SM_CLOCK", MEGAHERTZ, "SM_CLOCK_HERTZ", HERTZ),
        "Clock of the SMs",
        VITALS.one(lambda v: v.clock_hertz.get("sm")),
        each=True,
    ),
    _row(
        101,
        "default",
        "gauge",
        _names("MEM_CLOCK", MEGAHERTZ, "MEMORY_CLOCK_HERTZ", HERTZ),
        "Clock of the memory",
        VITALS.one(lambda v: v.clock_hertz.get("memory")),
        each=True,
    ),
    _row(
        140,
        "default",
        "gauge",
        _names("MEMORY_TEMP", CELSIUS, "MEMORY_TEMP_CELSIUS"),
        "Temperature of the memory",
        VITALS.one(lambda v: v.memory_temperature_celsius),
        each=True,
    ),
    _row(
        150,
        "default",
        "gauge",
        _names("GPU_TEMP", CELSIUS, "GPU_TEMP_CELSIUS"),
        "Temperature of the GPU",
        VITALS.one(lambda v: v.temperature_celsius),
        each=True,
    ),
    _row(
        158,
        "other",
        "gauge",
        _names("SLOWDOWN_TEMP", CELSIUS, "GPU_TEMP_SLOWDOWN_CELSIUS"),
        "Temperature at which the GPU slows down",
        DEVICE.one(lambda d: d.temperature_threshold_celsius.get("slowdown")),
        each=True,
    ),
    _row(
        159,
        "other",
        "gauge",
        _names("SHUTDOWN_TEMP", CELSIUS, "GPU_TEMP_SHUTDOWN_CELSIUS"),
        "Temperature at which the GPU shuts down",
        DEVICE.one(lambda d: d.temperature_threshold_celsius.get("shutdown")),
        each=True,
    ),
    _row(
        155,
        "default",
        "gauge",
        _names("POWER_USAGE", WATTS, "BOARD_POWER_WATTS"),
        "Power drawn",
        VITALS.one(lambda v: v.power_watts),
    ),
    _row(
        164,
        "commented",
        "gauge",
        _names("ENFORCED_POWER_LIMIT", WATTS, "BOARD_POWER_LIMIT_ENFORCED_WATTS"),
        "Power limit in force, the lowest of all that apply",
        BOARD.one(lambda b: b.power_limit_watts),
    ),
    _row(
        156,
        "default",
        "counter",
        _names("TOTAL_ENERGY_CONSUMPTION", MILLIJOULES, "GPU_ENERGY_JOULES_TOTAL", JOULES),
        "Energy used since the driver was loaded",
        VITALS.one(lambda v: v.energy_joules),
    ),
    _row(
        202,
        "default",
        "counter",
        _names("PCIE_REPLAY_COUNTER", COUNT, "PCIE_REPLAY_TOTAL"),
        "PCIe packets sent again",
        BOARD.one(lambda b: b.pcie_replays_total),
    ),
    _row(
        203,
        "default",
        "gauge",
        _names("GPU_UTIL", PERCENT, "GPU_UTIL_RATIO", RATIO),
        "Time with a kernel resident",
        UTILIZATION.one(lambda u: u.ratio),
    ),
    _row(
        204,
        "default",
        "gauge",
        _names("MEM_COPY_UTIL", PERCENT, "MEMORY_UTIL_RATIO", RATIO),
        "Time in which device memory was read or written",
        UTILIZATION.one(lambda u: u.memory_ratio),
    ),
    _row(
        206,
        "default",
        "gauge",
        _names("ENC_UTIL", PERCENT, "ENC_UTIL_RATIO", RATIO),
        "Time in which the video encoder was busy",
        VITALS.one(lambda v: v.encoder_ratio),
    ),
    _row(
        207,
        "default",
        "gauge",
        _names("DEC_UTIL", PERCENT, "DEC_UTIL_RATIO", RATIO),
        "Time in which the video decoder was busy",
        VITALS.one(lambda v: v.decoder_ratio),
    ),
    Field(
        230,
        "default",
        Form("DCGM_FI_DEV_XID_ERRORS", "gauge", COUNT),
        Form("DCGM_FI_DEV_XID_ERROR", "gauge", COUNT),
        "Number of the Xid that was seen last, 0 before the first",
        GPU,
        events=_last_xid,
    ),
    Field(
        None,
        "commented",
        Form("DCGM_EXP_XID_ERRORS_TOTAL", "counter", COUNT),
        Form("DCGM_EXP_XID_ERRORS_TOTAL", "counter", COUNT),
        "Xids seen since the exporter started",
        GPU,
        events=_xid_totals,
    ),
    *(
        _row(
            number,
            "commented",
            "counter",
            _names(name, NANOSECONDS),
            f"Time in which the clocks were held down {why}",
            _throttled(reason),
        )
        for number, name, reason, why in (
            (240, "POWER_VIOLATION", "sw_power_cap", "to keep the power limit"),
            (241, "THERMAL_VIOLATION", "thermal", "by heat"),
            (242, "SYNC_BOOST_VIOLATION", "sync_boost", "to those of other GPUs"),
            (243, "BOARD_LIMIT_VIOLATION", "board_limit", "by a limit of the board"),
            (244, "LOW_UTIL_VIOLATION", "low_utilization", "for want of work"),
            (245, "RELIABILITY_VIOLATION", "reliability", "by the board's reliability limit"),
        )
    ),
    _row(
        250,
        "other",
        "gauge",
        _names("FB_TOTAL", MEBIBYTES, "FB_CAPACITY_BYTES", BYTES),
        "Device memory installed, or given to the GPU instance",
        MEMORY.one(lambda m: m.total_bytes),
    ),
    _row(
        251,
        "default",
        "gauge",
        _names("FB_FREE", MEBIBYTES, "FB_FREE_BYTES", BYTES),
        _FREE,
        MEMORY.one(lambda m: m.free_bytes),
    ),
    _row(
        252,
        "default",
        "gauge",
        _names("FB_USED", MEBIBYTES, "FB_USED_BYTES", BYTES),
        _USED,
        MEMORY.one(lambda m: m.used_bytes),
    ),
    _row(
        253,
        "default",
        "gauge",
        _names("FB_RESERVED", MEBIBYTES, "FB_RESERVED_BYTES", BYTES),
        _RESERVED,
        MEMORY.one(lambda m: m.reserved_bytes),
    ),
    _row(
        254,
        "other",
        "gauge",
        _names("FB_USED_PERCENT", RATIO, "FB_USED_RATIO"),
        "Device memory that is allocated, of what is not reserved; 0 to 1 whatever its name",
        MEMORY.one(_used_ratio),
    ),
    *(
        _row(
            number,
            "commented",
            "counter",
            _names(f"ECC_{name}_TOTAL", COUNT),
            f"{which} memory errors {since}",
            _ecc_errors(which.lower(), lifetime=name.endswith("AGG")),
        )
        for number, name, which, since in (
            (310, "SBE_VOL", "Corrected", "since the driver was loaded"),
            (311, "DBE_VOL", "Uncorrected", "since the driver was loaded"),
            (312, "SBE_AGG", "Corrected", "over the life of the board"),
            (313, "DBE_AGG", "Uncorrected", "over the life of the board"),
        )
    ),
    _row(
        390,
        "commented",
        "counter",
        _names("RETIRED_SBE", COUNT, "PAGE_RETIRED_SBE_TOTAL"),
        "Memory pages retired for corrected errors, before Ampere",
        HEALTH.one(lambda h: h.retired_pages.get("single_bit")),
    ),
    _row(
        391,
        "commented",
        "counter",
        _names("RETIRED_DBE", COUNT, "PAGE_RETIRED_DBE_TOTAL"),
        "Memory pages retired for an uncorrected error, before Ampere",
        HEALTH.one(lambda h: h.retired_pages.get("double_bit")),
    ),
    _row(
        392,
        "commented",
        "gauge",
        _names("RETIRED_PENDING", COUNT, "PAGE_RETIRED_PENDING"),
        "1 while a page waits for a reboot to be retired",
        HEALTH.one(lambda h: flag(h.retired_pages_pending)),
    ),
    _row(
        393,
        "default",
        "counter",
        _names("UNCORRECTABLE_REMAPPED_ROWS", COUNT, "ROW_REMAP_UNCORRECTABLE_TOTAL"),
        "Memory rows replaced for an uncorrectable error",
        HEALTH.one(lambda h: h.remapped_rows.get("uncorrectable")),
    ),
    _row(
        394,
        "default",
        "counter",
        _names("CORRECTABLE_REMAPPED_ROWS", COUNT, "ROW_REMAP_CORRECTABLE_TOTAL"),
        "Memory rows replaced for correctable errors",
        HEALTH.one(lambda h: h.remapped_rows.get("correctable")),
    ),
    _row(
        395,
        "default",
        "gauge",
        _names("ROW_REMAP_FAILURE", COUNT, "ROW_REMAP_FAILED"),
        "1 if a memory row could not be replaced",
        HEALTH.one(lambda h: flag(h.row_remap_failure)),
    ),
    _row(
        396,
        "other",
        "gauge",
        _names("ROW_REMAP_PENDING", COUNT),
        "1 while a memory row waits for a reset to be replaced",
        HEALTH.one(lambda h: flag(h.row_remap_pending)),
    ),
    *(
        _row(
            number,
            "commented",
            "counter",
            _names(f"NVLINK_{name}_COUNT_TOTAL", COUNT, f"NVLINK_{name}_TOTAL"),
            f"NVLink {meaning} over all links",
            _nvlink_errors(kind),
        )
        for number, name, kind, meaning in (
            (409, "CRC_FLIT_ERROR", "crc_flit", "checksum errors of flow control"),
            (419, "CRC_DATA_ERROR", "crc_data", "checksum errors of data"),
            (429, "REPLAY_ERROR", "replay", "packets sent again"),
            (439, "RECOVERY_ERROR", "recovery", "recoveries"),
        )
    ),
    Field(
        449,
        "default",
        Form("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "gauge", MEGABYTES_PER_SECOND),
        Form("DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND", "gauge", BYTES_PER_SECOND),
        "Moved over all NVLinks in both directions",
        WHOLE_ACTIVITY,
        _nvlink_rate,
    ),
    *(_profiling(field) for field in dcgm.FIELDS),
)
