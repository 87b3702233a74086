# SPDX-License-Identifier: Apache-2.0
"""Every metric of dcgm-exporter that this node's readings have, in the order of the page.

Names, types and units are those of dcgm-exporter's default-counters.csv and
dcp-metrics-included.csv (4.8), of DCGM's dcgm_fields.h (4.6), and of its list of fields (4.7),
which gave some a new number with their new unit. docs/dcgm.md says which are not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal, cast

from exporter.exposition.dcgm import Names
from exporter.exposition.labels import Label, flag
from exporter.exposition.parts import (
    ACTIVITY,
    BOARD,
    DEVICE,
    GPU,
    HEALTH,
    UTILIZATION,
    VITALS,
    Number,
    Part,
    Rows,
    ValueReader,
)
from exporter.model import dcgm
from exporter.model.reading import Activity, Health, Memory
from exporter.model.snapshot import Gpu
from exporter.model.xids import XIDS

Kind = Literal["counter", "gauge"]
Listed = Literal["default", "commented", "other"]
"""In dcgm-exporter's default list, commented out there, or only in DCGM."""

PREFIX = "DCGM_FI_DEV_"
MIB = 2**20
NO_ERROR = "No Error"
UNKNOWN_ERROR = "Unknown Error"

WHOLE_ACTIVITY: Part[Activity] = Part(
    "share", lambda share: share.activity if share.gpu_instance is None else None
)
"""Of a GPU without MIG: traffic over links is the whole GPU's."""
MEMORY: Part[Memory] = Part(
    "share", lambda share: None if share.memory and share.memory.unified else share.memory
)
"""Of its own: nothing marks the host's here."""


@dataclass(frozen=True, slots=True)
class WrittenUnit:
    """A unit of dcgm-exporter, and how to format a value in base units in it."""

    name: str
    write: Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Naming:
    """Name, type and unit of a metric in one generation."""

    name: str
    kind: Kind
    unit: WrittenUnit


@dataclass(frozen=True, slots=True)
class DcgmMetric:
    """One metric of dcgm-exporter."""

    number: int | None
    """DCGM's number for it; None for one of dcgm-exporter's own."""
    listed: Listed
    legacy: Naming
    current: Naming
    meaning: str
    reader: ValueReader
    each: bool = False
    """Whether a value of the board is repeated for each GPU instance while MIG is on, as
    dcgm-exporter does: a temperature is, an amount is not."""

    def form(self, names: Names) -> Naming:
        """Return name, type and unit in one generation."""
        return self.legacy if names == "legacy" else self.current

    def help(self, names: Names) -> str:
        """Return the HELP line."""
        unit = self.form(names).unit.name
        return f"{self.meaning} ({unit})." if unit else f"{self.meaning}."


def _whole(unit: str, per_base_unit: float = 1.0) -> WrittenUnit:
    return WrittenUnit(unit, lambda value: f"{value * per_base_unit:.0f}")


def _decimal(unit: str) -> WrittenUnit:
    return WrittenUnit(unit, lambda value: f"{value:f}")


UNITS: Mapping[str, WrittenUnit] = {
    unit.name or "-": unit
    for unit in (
        *(_whole(""), _whole("°C"), _decimal("W"), _decimal("ratio"), _whole("%", 100.0)),
        *(_whole("MHz", 1e-6), _whole("Hz"), _whole("ns", 1e9), _whole("bytes")),
        *(_whole("MB/s", 1e-6), _whole("bytes/s"), _whole("mJ", 1e3)),
        WrittenUnit("J", lambda value: f"{value // 1:.0f}"),
        WrittenUnit("MiB", lambda value: f"{value // MIB:.0f}"),
    )
}


def _nvlink_errors(kind: str) -> ValueReader:
    return BOARD.one(lambda b: b.nvlink_errors_total.get(kind))


def _throttled(reason: str) -> ValueReader:
    """Read the driver's own total, which counts from when it was loaded."""
    return VITALS.one(lambda v: v.throttle_seconds.get(reason))


def _ecc_errors(severity: str, *, lifetime: bool = False) -> ValueReader:

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


def _last_xid(gpu: Gpu) -> Rows:
    """Return the Xid that was seen last; of several in one moment the highest."""
    seen = ((record.last_timestamp_seconds, code) for code, record in gpu.xids.items())
    _, code = max(seen, default=(0.0, 0))
    known = XIDS.get(code)
    message = known.meaning if known is not None else UNKNOWN_ERROR if code else NO_ERROR
    return [((str(code), message), code)]


def _xid_totals(gpu: Gpu) -> dict[str, Number]:
    return {str(code): record.count for code, record in sorted(gpu.xids.items())}


def _profiling(field: dcgm.ProfilingField) -> DcgmMetric:
    """Return the row of a profiling field; a rate is what moved over the time it moved in."""

    def rate(activity: Activity) -> float | None:
        moved: float | None = getattr(activity, field.activity)
        return None if moved is None or activity.seconds <= 0 else moved / activity.seconds

    unit = UNITS["bytes/s" if field.is_rate else "ratio"]
    return DcgmMetric(
        field.number,
        PROFILING_LISTED.get(field.number, "other"),
        Naming(dcgm.PREFIX + field.legacy, "gauge", unit),
        Naming(dcgm.PREFIX + field.current, "gauge", unit),
        PROFILING_MEANING[field.number],
        WHOLE_ACTIVITY.one(rate) if field.is_rate else ACTIVITY.one(attrgetter(field.activity)),
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

# DCGM's number, whether dcgm-exporter lists it, type; name and unit of the first generation, and
# of the second where they differ; "each" where what is the board's is repeated for each instance.
_FACTS = """
100 default   gauge   SM_CLOCK                  MHz  SM_CLOCK_HERTZ            Hz each
101 default   gauge   MEM_CLOCK                 MHz  MEMORY_CLOCK_HERTZ        Hz each
140 default   gauge   MEMORY_TEMP               °C   MEMORY_TEMP_CELSIUS       = each
150 default   gauge   GPU_TEMP                  °C   GPU_TEMP_CELSIUS          = each
158 other     gauge   SLOWDOWN_TEMP             °C   GPU_TEMP_SLOWDOWN_CELSIUS = each
159 other     gauge   SHUTDOWN_TEMP             °C   GPU_TEMP_SHUTDOWN_CELSIUS = each
155 default   gauge   POWER_USAGE               W    BOARD_POWER_WATTS         =
164 commented gauge   ENFORCED_POWER_LIMIT      W    BOARD_POWER_LIMIT_ENFORCED_WATTS =
156 default   counter TOTAL_ENERGY_CONSUMPTION  mJ   GPU_ENERGY_JOULES_TOTAL   J
202 default   counter PCIE_REPLAY_COUNTER       -    PCIE_REPLAY_TOTAL         =
203 default   gauge   GPU_UTIL                  %    GPU_UTIL_RATIO            ratio
204 default   gauge   MEM_COPY_UTIL             %    MEMORY_UTIL_RATIO         ratio
206 default   gauge   ENC_UTIL                  %    ENC_UTIL_RATIO            ratio
207 default   gauge   DEC_UTIL                  %    DEC_UTIL_RATIO            ratio
230 default   gauge   XID_ERRORS                -    XID_ERROR                 =
-   commented counter DCGM_EXP_XID_ERRORS_TOTAL -    =                         =
240 commented counter POWER_VIOLATION           ns   =                         =
241 commented counter THERMAL_VIOLATION         ns   =                         =
242 commented counter SYNC_BOOST_VIOLATION      ns   =                         =
243 commented counter BOARD_LIMIT_VIOLATION     ns   =                         =
244 commented counter LOW_UTIL_VIOLATION        ns   =                         =
245 commented counter RELIABILITY_VIOLATION     ns   =                         =
250 other     gauge   FB_TOTAL                  MiB  FB_CAPACITY_BYTES         bytes
251 default   gauge   FB_FREE                   MiB  FB_FREE_BYTES             bytes
252 default   gauge   FB_USED                   MiB  FB_USED_BYTES             bytes
253 default   gauge   FB_RESERVED               MiB  FB_RESERVED_BYTES         bytes
254 other     gauge   FB_USED_PERCENT           ratio FB_USED_RATIO             =
310 commented counter ECC_SBE_VOL_TOTAL         -    =                         =
311 commented counter ECC_DBE_VOL_TOTAL         -    =                         =
312 commented counter ECC_SBE_AGG_TOTAL         -    =                         =
313 commented counter ECC_DBE_AGG_TOTAL         -    =                         =
390 commented counter RETIRED_SBE               -    PAGE_RETIRED_SBE_TOTAL    =
391 commented counter RETIRED_DBE               -    PAGE_RETIRED_DBE_TOTAL    =
392 commented gauge   RETIRED_PENDING           -    PAGE_RETIRED_PENDING      =
393 default   counter UNCORRECTABLE_REMAPPED_ROWS -    ROW_REMAP_UNCORRECTABLE_TOTAL =
394 default   counter CORRECTABLE_REMAPPED_ROWS -    ROW_REMAP_CORRECTABLE_TOTAL =
395 default   gauge   ROW_REMAP_FAILURE         -    ROW_REMAP_FAILED          =
396 other     gauge   ROW_REMAP_PENDING         -    =                         =
409 commented counter NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL -    NVLINK_CRC_FLIT_ERROR_TOTAL =
419 commented counter NVLINK_CRC_DATA_ERROR_COUNT_TOTAL -    NVLINK_CRC_DATA_ERROR_TOTAL =
429 commented counter NVLINK_REPLAY_ERROR_COUNT_TOTAL -    NVLINK_REPLAY_ERROR_TOTAL =
439 commented counter NVLINK_RECOVERY_ERROR_COUNT_TOTAL -    NVLINK_RECOVERY_ERROR_TOTAL =
449 default   gauge   NVLINK_BANDWIDTH_TOTAL    MB/s NVLINK_THROUGHPUT_BYTES_PER_SECOND bytes/s
"""

_MEANINGS = """
SM_CLOCK Clock of the SMs
MEM_CLOCK Clock of the memory
MEMORY_TEMP Temperature of the memory
GPU_TEMP Temperature of the GPU
SLOWDOWN_TEMP Temperature at which the GPU slows down
SHUTDOWN_TEMP Temperature at which the GPU shuts down
POWER_USAGE Power drawn
ENFORCED_POWER_LIMIT Power limit in force, the lowest of all that apply
TOTAL_ENERGY_CONSUMPTION Energy used since the driver was loaded
PCIE_REPLAY_COUNTER PCIe packets sent again
GPU_UTIL Time with a kernel resident
MEM_COPY_UTIL Time in which device memory was read or written
ENC_UTIL Time in which the video encoder was busy
DEC_UTIL Time in which the video decoder was busy
XID_ERRORS Number of the Xid that was seen last, 0 before the first
DCGM_EXP_XID_ERRORS_TOTAL Xids seen since the exporter started
POWER_VIOLATION Time in which the clocks were held down to keep the power limit
THERMAL_VIOLATION Time in which the clocks were held down by heat
SYNC_BOOST_VIOLATION Time in which the clocks were held down to those of other GPUs
BOARD_LIMIT_VIOLATION Time in which the clocks were held down by a limit of the board
LOW_UTIL_VIOLATION Time in which the clocks were held down for want of work
RELIABILITY_VIOLATION Time in which the clocks were held down by the board's reliability limit
FB_TOTAL Device memory installed, or given to the GPU instance
FB_FREE Device memory that can be allocated
FB_USED Device memory that is allocated
FB_RESERVED Device memory that driver and firmware keep
FB_USED_PERCENT Device memory that is allocated, of what is not reserved; 0 to 1 whatever its name
ECC_SBE_VOL_TOTAL Corrected memory errors since the driver was loaded
ECC_DBE_VOL_TOTAL Uncorrected memory errors since the driver was loaded
ECC_SBE_AGG_TOTAL Corrected memory errors over the life of the board
ECC_DBE_AGG_TOTAL Uncorrected memory errors over the life of the board
RETIRED_SBE Memory pages retired for corrected errors, before Ampere
RETIRED_DBE Memory pages retired for an uncorrected error, before Ampere
RETIRED_PENDING 1 while a page waits for a reboot to be retired
UNCORRECTABLE_REMAPPED_ROWS Memory rows replaced for an uncorrectable error
CORRECTABLE_REMAPPED_ROWS Memory rows replaced for correctable errors
ROW_REMAP_FAILURE 1 if a memory row could not be replaced
ROW_REMAP_PENDING 1 while a memory row waits for a reset to be replaced
NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL NVLink checksum errors of flow control over all links
NVLINK_CRC_DATA_ERROR_COUNT_TOTAL NVLink checksum errors of data over all links
NVLINK_REPLAY_ERROR_COUNT_TOTAL NVLink packets sent again over all links
NVLINK_RECOVERY_ERROR_COUNT_TOTAL NVLink recoveries over all links
NVLINK_BANDWIDTH_TOTAL Moved over all NVLinks in both directions
"""

_MEANING: Mapping[str, str] = {
    name: meaning
    for name, _, meaning in (line.partition(" ") for line in _MEANINGS.strip().splitlines())
}

_READERS: Mapping[str, ValueReader] = {
    "SM_CLOCK": VITALS.one(lambda v: v.clock_hertz.get("sm")),
    "MEM_CLOCK": VITALS.one(lambda v: v.clock_hertz.get("memory")),
    "MEMORY_TEMP": VITALS.one(lambda v: v.memory_temperature_celsius),
    "GPU_TEMP": VITALS.one(lambda v: v.temperature_celsius),
    "SLOWDOWN_TEMP": DEVICE.one(lambda d: d.temperature_threshold_celsius.get("slowdown")),
    "SHUTDOWN_TEMP": DEVICE.one(lambda d: d.temperature_threshold_celsius.get("shutdown")),
    "POWER_USAGE": VITALS.one(lambda v: v.power_watts),
    "ENFORCED_POWER_LIMIT": BOARD.one(lambda b: b.power_limit_watts),
    "TOTAL_ENERGY_CONSUMPTION": VITALS.one(lambda v: v.energy_joules),
    "PCIE_REPLAY_COUNTER": BOARD.one(lambda b: b.pcie_replays_total),
    "GPU_UTIL": UTILIZATION.one(lambda u: u.ratio),
    "MEM_COPY_UTIL": UTILIZATION.one(lambda u: u.memory_ratio),
    "ENC_UTIL": VITALS.one(lambda v: v.encoder_ratio),
    "DEC_UTIL": VITALS.one(lambda v: v.decoder_ratio),
    "XID_ERRORS": GPU.rows((Label("err_code"), Label("err_msg")), _last_xid),
    "DCGM_EXP_XID_ERRORS_TOTAL": GPU.by_label(Label("xid"), _xid_totals),
    "POWER_VIOLATION": _throttled("sw_power_cap"),
    "THERMAL_VIOLATION": _throttled("thermal"),
    "SYNC_BOOST_VIOLATION": _throttled("sync_boost"),
    "BOARD_LIMIT_VIOLATION": _throttled("board_limit"),
    "LOW_UTIL_VIOLATION": _throttled("low_utilization"),
    "RELIABILITY_VIOLATION": _throttled("reliability"),
    "FB_TOTAL": MEMORY.one(lambda m: m.total_bytes),
    "FB_FREE": MEMORY.one(lambda m: m.free_bytes),
    "FB_USED": MEMORY.one(lambda m: m.used_bytes),
    "FB_RESERVED": MEMORY.one(lambda m: m.reserved_bytes),
    "FB_USED_PERCENT": MEMORY.one(_used_ratio),
    "ECC_SBE_VOL_TOTAL": _ecc_errors("corrected"),
    "ECC_DBE_VOL_TOTAL": _ecc_errors("uncorrected"),
    "ECC_SBE_AGG_TOTAL": _ecc_errors("corrected", lifetime=True),
    "ECC_DBE_AGG_TOTAL": _ecc_errors("uncorrected", lifetime=True),
    "RETIRED_SBE": HEALTH.one(lambda h: h.retired_pages.get("single_bit")),
    "RETIRED_DBE": HEALTH.one(lambda h: h.retired_pages.get("double_bit")),
    "RETIRED_PENDING": HEALTH.one(lambda h: flag(h.retired_pages_pending)),
    "UNCORRECTABLE_REMAPPED_ROWS": HEALTH.one(lambda h: h.remapped_rows.get("uncorrectable")),
    "CORRECTABLE_REMAPPED_ROWS": HEALTH.one(lambda h: h.remapped_rows.get("correctable")),
    "ROW_REMAP_FAILURE": HEALTH.one(lambda h: flag(h.row_remap_failure)),
    "ROW_REMAP_PENDING": HEALTH.one(lambda h: flag(h.row_remap_pending)),
    "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": _nvlink_errors("crc_flit"),
    "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": _nvlink_errors("crc_data"),
    "NVLINK_REPLAY_ERROR_COUNT_TOTAL": _nvlink_errors("replay"),
    "NVLINK_RECOVERY_ERROR_COUNT_TOTAL": _nvlink_errors("recovery"),
    "NVLINK_BANDWIDTH_TOTAL": WHOLE_ACTIVITY.one(_nvlink_rate),
}
"""By name of the first generation: where its values are."""


def _full_name(name: str) -> str:
    return name if name.startswith("DCGM_") else PREFIX + name


def _row(line: str) -> DcgmMetric:
    number, listed, kind, legacy, unit, current, current_unit, *each = line.split()
    current = legacy if current == "=" else current
    current_unit = unit if current_unit == "=" else current_unit
    return DcgmMetric(
        None if number == "-" else int(number),
        cast("Listed", listed),
        Naming(_full_name(legacy), cast("Kind", kind), UNITS[unit]),
        Naming(_full_name(current), cast("Kind", kind), UNITS[current_unit]),
        _MEANING[legacy],
        _READERS[legacy],
        each=bool(each),
    )


FIELDS: tuple[DcgmMetric, ...] = (
    *map(_row, _FACTS.strip().splitlines()),
    *(_profiling(field) for field in dcgm.FIELDS),
)
