# SPDX-License-Identifier: Apache-2.0
"""Flatten a scenario into the tables of answers that the C library looks up.

The README describes scenarios. A table maps a key, such as `memory.total`, to a number, a wave,
null (NOT_SUPPORTED) or `{"error": code}`. GPUs that say the same share one table.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Entry = dict[str, Any] | None

_DATA = json.loads(Path(__file__).with_name("products.json").read_text(encoding="utf-8"))
_ABSENT = object()
_WAVES = ("square", "sine", "steps")
_ALL_LINKS = 0xFFFFFFFF
_XID_EVENT = 8
_DOUBLE, _UINT, _ULONG, _ULL, _SLL, _INT, _USHORT = range(7)
_TYPES = ("double", "uint", "ulong", "ull", "sll", "int", "ushort")

# Readings that C asks for under the scenario's own names: a group, then its keys.
_NAMED = """
. brand architecture compute_capability cores bus_width board_part_number vbios numa_node
. pci_device_id pci_subsystem_id lost handle_error generation latency_us faults sample_period
. utilization memory_utilization encoder_utilization decoder_utilization jpeg_utilization
. ofa_utilization power power_window module_power energy clock_event_reasons fans event_types
. supported_clock_event_reasons performance_state unrepairable_memory process_samples
. nvlink_overrun profile gi ci index memory_mb memory_used slices compute_slices decoders sm_count
samples enabled period depth types
raw_samples 0 1 2 3 4 5 6 7 8 9
memory total reserved used
bar1 total used
power_limits min max default enforced management
temperature gpu margin
pcie generation width max_generation max_width device_max_generation tx rx replays
ecc enabled pending
remapped_rows correctable uncorrectable pending failure correctable_inactive
remapped_rows uncorrectable_inactive histogram
retired_pages single_bit double_bit pending
nvlink links version inactive tx rx raw_tx raw_rx remote_type
nvlink.errors replay recovery crc_flit crc_data
fabric state status clique health_mask health_summary cluster_uuid
modes persistence compute virtualization accounting display_active display_mode
mig capable current pending
gpm supported graphics sm occupancy int tensor dfma hmma dmma imma dram fp64 fp32 fp16
gpm pcie_tx pcie_rx nvlink_tx nvlink_rx c2c_tx c2c_rx c2c_data_tx c2c_data_rx
"""
_PATHS = [
    key if group == "." else f"{group}.{key}"
    for group, *keys in (line.split() for line in _NAMED.splitlines() if line)
    for key in keys
]
_CLOCKS = ("graphics", "sm", "memory", "video")
_LINK_ERRORS = ("crc_flit", "crc_data", "replay", "recovery")
# Readings that NVML numbers: C asks for `clocks.1`.
_NUMBERED: dict[str, tuple[str | None, ...]] = {
    "clocks": _CLOCKS,
    "max_clocks": _CLOCKS,
    "temperature.thresholds": ("shutdown", "slowdown", "memory_max", "gpu_max"),
    "throttle": (
        *("power", "thermal", "sync_boost", "board_limit", "low_utilization", "reliability"),
        *(None, None, None, None, "app_clocks", "base_clocks"),
        *("sw_thermal", "hw_thermal", "hw_power_brake"),
    ),
}
_FALLBACKS = {
    "power": "idle_power",
    **{f"clocks.{name}": f"max_clocks.{name}" for name in _CLOCKS},
    "max_clocks.boost": "max_clocks.graphics",
    **{f"power_limits.{name}": "power_limits.default" for name in ("min", "max")},
    **{f"power_limits.{name}": "power_limits.default" for name in ("enforced", "management")},
    "samples.period": "sample_period",
    "pcie.generation": "pcie.max_generation",
    "pcie.device_max_generation": "pcie.max_generation",
    "pcie.width": "pcie.max_width",
    **{f"nvlink.raw_{way}": f"nvlink.{way}" for way in ("tx", "rx")},
    **{f"gpm.{bus}_{way}": f"{bus}.{way}" for bus in ("pcie", "nvlink") for way in ("tx", "rx")},
    **{f"gpm.c2c_data_{way}": f"gpm.c2c_{way}" for way in ("tx", "rx")},
}
_ECC_LOCATIONS = ("l1", "l2", "dram", "registers", "texture", "texture_shm", "cbu", "sram")
_ECC_SUMMED = tuple(name for name in _ECC_LOCATIONS if name != "texture_shm")
_SRAM = (
    *("aggregate_unc_parity", "aggregate_unc_secded", "aggregate_cor"),
    *("volatile_unc_parity", "volatile_unc_secded", "volatile_cor"),
    *("bucket_l2", "bucket_sm", "bucket_pcie", "bucket_mcu", "bucket_other"),
    "threshold_exceeded",
)
_PCIE_ERRORS = (
    *("correctable", "naks_received", "receiver_error", "bad_tlp", "naks_sent", "bad_dllp"),
    *("non_fatal", "fatal", "unsupported_request", "lcrc", "lane"),
)
# GPM ids of shares of time or cycles: the reading, NVML's name, and the id that counts its cycles.
_GPM_SHARES = {
    1: ("graphics", "graphics_util", None),
    2: ("sm", "sm_util", 249),
    3: ("occupancy", "sm_occupancy", None),
    4: ("int", "integer_util", 257),
    5: ("tensor", "any_tensor_util", 250),
    6: ("dfma", "dfma_tensor_util", 254),
    7: ("hmma", "hmma_tensor_util", 252),
    8: ("dmma", "dmma_tensor_util", 251),
    9: ("imma", "imma_tensor_util", 253),
    10: ("dram", "dram_bw_util", None),
    11: ("fp64", "fp64_util", 258),
    12: ("fp32", "fp32_util", 259),
    13: ("fp16", "fp16_util", 260),
}
# First id, most engines, key and name.
_GPM_ENGINES = ((30, 8, "nvdec"), (40, 8, "nvjpg"), (50, 2, "ofa"), (166, 4, "nvenc"))


class Readings:
    """What a scenario says of one GPU or MIG device: the first layer that has a path decides."""

    def __init__(self, *layers: Any) -> None:
        self._layers = layers

    def get(self, path: str) -> Any:
        """The value at a dotted path, or that of its fallback."""
        keys = path.split(".")
        for layer in self._layers:
            found = _walk(layer, keys)
            if found is not _ABSENT:
                return found
        fallback = _FALLBACKS.get(path)
        return self.get(fallback) if fallback else _ABSENT

    def number(self, path: str, default: float = 0) -> float:
        """The value at a path if it is a plain number."""
        found = self.get(path)
        return found if isinstance(found, (int, float)) else default

    def items(self, path: str) -> list[Any]:
        """The list at a path, empty if there is none."""
        found = self.get(path)
        return found if isinstance(found, list) else []


def _walk(value: Any, keys: Iterable[str]) -> Any:
    """Stop early at null and at {"error": n}: both speak for everything below them."""
    for key in keys:
        if value is None or _error(value):
            return value
        if isinstance(value, list):
            index = int(key)
            value = value[index] if index < len(value) else _ABSENT
        else:
            value = value.get(key, _ABSENT) if isinstance(value, Mapping) else _ABSENT
        if value is _ABSENT:
            break
    return value


def _error(value: Any) -> bool:
    return isinstance(value, Mapping) and "error" in value


def _missing(value: Any) -> bool:
    return value is None or value is _ABSENT


def scenario_text(scenario: Mapping[str, Any]) -> str:
    """The file that the C library loads."""
    devices = scenario.get("devices", {"count": 1})
    shared = scenario.get("template", {})
    if isinstance(devices, Mapping):
        shared = devices.get("template", shared)
        overrides = devices.get("overrides", {})
        devices = [overrides.get(str(i), {}) for i in range(int(devices.get("count", 1)))]
    shared_text = json.dumps(shared, allow_nan=False)
    tables: dict[str, int] = {}
    listed = [_device(i, own, shared, shared_text, tables) for i, own in enumerate(devices)]
    top = {key: scenario[key] for key in _TOP if key in scenario}
    top["clock"] = scenario.get("clock", {}).get("file")
    top["cuda_version"] = _cuda_version(scenario.get("cuda_version", "13.0"))
    top["events"] = _events(scenario)
    top["order"] = scenario.get("order", list(range(len(listed))))
    top["devices"] = listed
    head = json.dumps(top, allow_nan=False)
    return f'{head[:-1]}, "tables": [\n{",".join(tables)}\n]}}'


_TOP = (
    *("epoch", "since", "stats", "latency_us", "faults", "driver_version", "nvml_version"),
    "confidential_compute",
)


def _cuda_version(given: str | float) -> int:
    if not isinstance(given, str):
        return int(given)
    major, _, minor = given.partition(".")
    return int(major) * 1000 + int(minor or 0) * 10


def _events(scenario: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All events by time, an Xid as its event."""
    xids = [{**xid, "type": _XID_EVENT, "data": xid["xid"]} for xid in scenario.get("xids", [])]
    return sorted([*xids, *scenario.get("events", [])], key=lambda event: event.get("at", 0))


def _device(
    index: int, own: Mapping[str, Any], shared: Any, shared_text: str, tables: dict[str, int]
) -> dict[str, Any]:
    """What differs from GPU to GPU, and the numbers of its tables."""
    readings = Readings(own, shared)
    text, *instances = _tables(json.dumps(own, allow_nan=False), shared_text)

    def identity(path: str, default: Any) -> Any:
        found = readings.get(path)
        return default if found is _ABSENT else found

    return {
        "table": tables.setdefault(text, len(tables)),
        "uuid": identity("uuid", f"GPU-{0x1A2B3C00 + index:08x}-5f3c-4b1e-9d2a-{index + 1:012x}"),
        "serial": identity("serial", _product(readings).get("serial", f"165{index + 1:010d}")),
        "pci_bus_id": identity("pci_bus_id", f"0:{0x10 + 2 * index:x}:0.0"),
        "minor": identity("minor", index),
        "module_id": identity("module_id", index),
        "instances": [
            {
                "table": tables.setdefault(instance, len(tables)),
                "uuid": given.get(
                    "uuid", f"MIG-{0x4D494700 + index:08x}-5f3c-4b1e-9d2a-{i + 1:012x}"
                ),
            }
            for i, (given, instance) in enumerate(
                zip(readings.items("mig.instances"), instances, strict=True)
            )
        ],
    }


def _product(readings: Readings) -> dict[str, Any]:
    name = readings.get("product")
    product: dict[str, Any] = _DATA["products"].get("h100-sxm" if name is _ABSENT else name, {})
    merged: dict[str, Any] = {}
    for part in product.get("parts", []):
        merged |= _DATA["parts"][part]
    return merged | product


@functools.lru_cache(maxsize=256)
def _tables(own_text: str, shared_text: str) -> tuple[str, ...]:
    """The table of a GPU, and one for each of its MIG devices."""
    own, shared = json.loads(own_text), json.loads(shared_text)
    product = _product(Readings(own, shared))
    readings = Readings(own, shared, product, _DATA["defaults"])
    instances = readings.items("mig.instances")
    answers = _answers(readings)
    if answers.get("mig.current") is None:
        answers["mig.current"] = int(bool(instances))
    answers |= _identity(readings) | _health(readings) | _processes(readings)
    answers |= {f"fields.{id_}": field for id_, field in _fields(readings).items() if field}
    answers |= _gpm(readings, readings)
    tables = [answers]
    for given in instances:
        instance = Readings(given)
        clocks = {f"clocks.{i}": answers.get(f"clocks.{i}") for i in (1, 2)}
        tables.append(_answers(instance) | clocks | _gpm(instance, readings))
    return tuple(json.dumps(table, allow_nan=False) for table in tables)


def _answers(readings: Readings) -> dict[str, Any]:
    found = {path: readings.get(path) for path in _PATHS}
    for group, names in _NUMBERED.items():
        found |= {f"{group}.{i}": readings.get(f"{group}.{n}") for i, n in enumerate(names) if n}
    found["max_clocks.boost"] = readings.get("max_clocks.boost")
    return {path: value for path, value in found.items() if value is not _ABSENT}


def _identity(readings: Readings) -> dict[str, Any]:
    """The name in hex, since it need not be UTF-8."""
    name, raw = readings.get("name"), readings.get("name_hex")
    if isinstance(raw, str):
        return {"name": raw}
    return {"name": name if _error(name) else "" if _missing(name) else str(name).encode().hex()}


def _health(readings: Readings) -> dict[str, Any]:
    """ECC counts by NVML's numbers of error, counter and location, and the SRAM's counts."""
    answers: dict[str, Any] = {}
    sram = readings.get("sram")
    if sram is None or _error(sram):
        answers["sram"] = sram
    elif sram is not _ABSENT:
        answers["sram"] = [_or_zero(readings.get(f"sram.{name}")) for name in _SRAM]
    if not readings.number("ecc.enabled"):
        return answers
    for counter, duration in enumerate(("volatile", "aggregate")):
        for error, kind in enumerate(("corrected", "uncorrected")):
            group, key = f"ecc.{duration}.{kind}", f"ecc.{error}.{counter}"
            whole = readings.get(group)
            answers[key] = (
                None if _missing(whole) else whole if _error(whole) else _ecc_sum(readings, group)
            )
            for i, location in enumerate(_ECC_LOCATIONS):
                count = readings.get(f"{group}.{location}")
                answers[f"{key}.{i}"] = None if count is _ABSENT else count
    return answers


def _or_zero(value: Any) -> Any:
    return 0 if _missing(value) or _error(value) else value


def _ecc_sum(readings: Readings, group: str) -> list[Any]:
    """A list of waves is their sum."""
    return [_or_zero(readings.get(f"{group}.{location}")) for location in _ECC_SUMMED]


def _processes(readings: Readings) -> dict[str, Any]:
    """The processes by kind; a plain list is the compute processes."""
    plain = readings.get("processes")
    if isinstance(plain, list):
        return {"processes.compute": plain, "processes.graphics": [], "processes.mps": []}
    return {
        f"processes.{kind}": readings.get(f"processes.{kind}")
        for kind in ("compute", "graphics", "mps")
    }


# ---------- field values ----------


def _gauge(value: Any, kind: int = _UINT, scale: float = 1) -> Entry:
    if _missing(value):
        return None
    return dict(value) if _error(value) else {"type": kind, "of": value, "scale": scale}


def _fields(readings: Readings) -> dict[int, Entry]:
    """An entry for each field that is supported; what the scenario states itself comes last."""

    def gauge(path: str, kind: int = _UINT, scale: float = 1) -> Entry:
        return _gauge(readings.get(path), kind, scale)

    def total(path: str, kind: int = _ULL, scale: float = 1, key: str = "") -> Entry:
        rate = gauge(path)
        return (
            {"type": kind, "total": key or path, "scale": scale} if rate and "of" in rate else rate
        )

    def throttle(number: int) -> Entry:
        name = _NUMBERED["throttle"][number]
        return total(f"throttle.{name}", scale=1e9, key=f"throttle.{number}")

    def length(path: str) -> Entry:
        found = readings.get(path)
        return _gauge(len(found) if isinstance(found, list) else found, _ULL)

    energy = gauge("energy", _ULL, 1e3)
    if energy and "of" in energy:
        energy["total"] = "power"
    fields: dict[int, Entry] = {
        1: gauge("ecc.enabled"),
        2: gauge("ecc.pending"),
        29: length("retired_pages.single_bit"),
        30: length("retired_pages.double_bit"),
        31: gauge("retired_pages.pending"),
        **{74 + i: throttle(i) for i in range(6)},
        80: throttle(10),
        81: throttle(11),
        82: gauge("temperature.memory"),
        83: energy,
        91: gauge("nvlink.links"),
        94: gauge("pcie.replays"),
        95: gauge("pcie.replay_rollover"),
        142: gauge("remapped_rows.correctable"),
        143: gauge("remapped_rows.uncorrectable"),
        144: gauge("remapped_rows.pending"),
        145: gauge("remapped_rows.failure"),
        169: gauge("pcie.l0_to_recovery"),
        **{173 + i: gauge(f"pcie.errors.{name}") for i, name in enumerate(_PCIE_ERRORS)},
        185: _power(readings, window_seconds=1),
        186: _power(readings, window_seconds=0),
        191: energy,
        **{193 + i: gauge(f"temperature.limits.{i}", _INT) for i in range(4)},
        197: total("pcie.tx", _UINT),
        198: total("pcie.rx", _UINT),
        230: gauge("recovery_action"),
        **{269 + i: throttle(12 + i) for i in range(3)},
        301: gauge("remapped_rows.correctable_inactive"),
        302: gauge("remapped_rows.uncorrectable_inactive"),
    }
    for i, name in enumerate(("min", "max", "default", "enforced")):
        fields[187 + i] = gauge(f"power_limits.{name}", scale=1e3)
    fields[192] = gauge("power_limits.management", scale=1e3)
    if readings.number("ecc.enabled"):
        groups = [
            f"{d}.{k}" for d in ("volatile", "aggregate") for k in ("corrected", "uncorrected")
        ]
        for i, group in enumerate(groups):
            fields[3 + i] = _gauge(_ecc_sum(readings, f"ecc.{group}"), _ULL)
    fields |= _nvlink_fields(readings, total) | _c2c_fields(readings)
    stated = readings.get("fields")
    if isinstance(stated, Mapping):
        fields |= {int(id_): _stated(readings.get(f"fields.{id_}")) for id_ in stated}
    return fields


def _power(readings: Readings, window_seconds: float) -> Entry:
    """Power by scope: the GPU, the module, its memory, and what is left."""
    scopes = [
        _gauge(readings.get(path), _UINT, 1e3)
        for path in ("power", "module_power", "memory_power", "base_power")
    ]
    if scopes[0] and "of" in scopes[0]:
        scopes[0] |= {"mean": "power", "window": window_seconds}
    return {"scopes": {str(i): entry for i, entry in enumerate(scopes)}, "else": {"error": 2}}


def _nvlink_fields(readings: Readings, total: Any) -> dict[int, Entry]:
    links = int(readings.number("nvlink.links"))
    if links < 1:
        return {}
    every = [_ALL_LINKS, *range(links)]
    inactive = readings.items("nvlink.inactive")
    family = readings.get("nvlink.family")
    errors = {name: readings.get(f"nvlink.errors.{name}") for name in _LINK_ERRORS}
    fields: dict[int, Entry] = {}

    def count(name: str, link: int) -> Entry:
        """Link 0 has all the errors, so that a sum over links is right."""
        return _gauge(errors[name], _ULL, int(link in (0, _ALL_LINKS)))

    def speed(link: int) -> Entry:
        return _gauge(0 if link in inactive else readings.get("nvlink.speed_mbps"))

    def octets(path: str, scale: float) -> Entry:
        by_link = total(path, scale=scale / links)
        scopes = {str(_ALL_LINKS): total(path, scale=scale)}
        return {
            "scopes": {**scopes, **dict.fromkeys(map(str, range(links)), by_link)},
            "else": {"error": 2},
        }

    for link in range(links):
        for kind, name in enumerate(_LINK_ERRORS):
            if link < 12:
                fields[32 + 7 * kind + link if link < 6 else 90 + 6 * kind + link] = count(
                    name, link
                )
    for kind, name in enumerate(_LINK_ERRORS):
        fields[38 + 7 * kind] = count(name, _ALL_LINKS)
    for id_, name in ((161, "replay"), (162, "recovery"), (163, "crc_flit")):
        fields[id_] = {"scopes": {str(link): count(name, link) for link in every}, "else": None}
    for link in range(12):
        id_ = 84 + link if link < 6 else 126 + link
        fields[id_] = speed(link) if link < links else {"error": 2}
    fields[90] = speed(_ALL_LINKS)
    fields[164] = {"scopes": {str(link): speed(link) for link in every}, "else": {"error": 2}}
    if family in (_ABSENT, "throughput", "both"):
        for i, path in enumerate(("tx", "rx", "raw_tx", "raw_rx")):
            fields[138 + i] = octets(f"nvlink.{path}", 1 / 1024)
    if family in ("count", "both"):
        for i, path in enumerate(("tx", "rx")):
            fields[201 + 2 * i] = octets(f"nvlink.{path}", 1 / 256)
            fields[202 + 2 * i] = octets(f"nvlink.{path}", 1)
    return fields


def _c2c_fields(readings: Readings) -> dict[int, Entry]:
    links = readings.get("c2c.links")
    if _missing(links) or _error(links):
        return {id_: _gauge(links) for id_ in (170, 171, 172)}
    inactive = readings.items("c2c.inactive")
    bandwidth = _gauge(readings.get("c2c.max_bandwidth_mbps"))
    active = {str(link): _gauge(int(link not in inactive)) for link in range(int(links))}
    return {
        170: _gauge(links),
        171: {"scopes": active, "else": {"error": 2}},
        172: {"scopes": dict.fromkeys(active, bandwidth), "else": {"error": 2}},
    }


def _stated(given: Any) -> Entry:
    """A field as the scenario's own `fields` state it."""
    if not isinstance(given, Mapping) or _error(given) or any(wave in given for wave in _WAVES):
        return _gauge(given, _ULL)
    name = given.get("type")
    kind = _TYPES.index(name) if name in _TYPES else _ULL
    if "rate" in given:
        return {"type": kind, "integral": given["rate"]}
    value = _gauge(given["value"], kind) if "value" in given else {"error": 2}
    if "scope" not in given:
        return value
    scopes = {scope: _gauge(item, kind) for scope, item in given["scope"].items()}
    return {"scopes": scopes, "else": value}


# ---------- GPM ----------


def _gpm(readings: Readings, gpu: Readings) -> dict[str, Any]:
    """GPM's metrics of a GPU or MIG device, and the waves that they are integrals of."""
    metrics: dict[int, dict[str, Any]] = {}
    waves: dict[str, Any] = {}
    whole = readings is gpu
    sms = 1 if gpu.get("gpm.cycles") == "averaged" else readings.number("sm_count", 1)
    by_cycles = gpu.get("gpm.semantics") != "time"
    cumulative = gpu.number("gpm.cumulative")
    links = int(gpu.number("nvlink.links")) if whole else 0

    def rate(id_: int, name: str, key: str, scale: float = 1 / 2**20) -> None:
        metrics[id_] = {"name": name, "unit": "MiB/s", "key": key, "scale": scale}

    def count(id_: int, name: str, key: str, scale: float, unit: str = "") -> None:
        if cumulative:
            metrics[id_] = {"name": name, "unit": unit, "key": key, "scale": scale, "count": True}

    count(248, "sm_cycles_elapsed", "clocks.1", 1e6 * sms)
    for id_, (key, name, cycles_id) in _GPM_SHARES.items():
        metrics[id_] = {"name": name, "unit": "%", "key": f"gpm.{key}", "scale": 1}
        if key == "graphics":
            continue
        number, domain = (2, "memory") if key == "dram" else (1, "sm")
        clock, share = gpu.get(f"clocks.{domain}"), readings.get(f"gpm.{key}")
        # Percent of MHz: 1e4 cycles per second.
        waves[f"cycles.{key}"] = {"product": [_or_zero(share), _or_zero(clock)]}
        if by_cycles:
            metrics[id_] |= {"active": f"cycles.{key}", "clock": f"clocks.{number}"}
        if cycles_id:
            unit = {"sm": "sm", "tensor": "mma", "int": "integer"}.get(key, key)
            count(cycles_id, f"{unit}_cycles_active", f"cycles.{key}", 1e4 * sms)
    for first, most, engine in _GPM_ENGINES:
        given = readings.get(f"gpm.{engine}")
        for i in range(min(most, int(gpu.number(f"engines.{engine}")))):
            key = f"gpm.{engine}.{i}"
            waves[key] = _or_zero(readings.get(key) if isinstance(given, list) else given)
            name = "nvofa_util" if engine == "ofa" else f"{engine}_util"
            metrics[first + i] = {"name": name, "unit": "%", "key": key, "scale": 1}
    if whole:
        for i, way in enumerate(("tx", "rx")):
            rate(20 + i, f"pcie_{way}_per_sec", f"gpm.pcie_{way}")
            count(255 + i, f"pcie_{way}", f"gpm.pcie_{way}", 1, "B")
            if links:
                rate(61 - i, f"nvlink_total_{way}_per_sec", f"gpm.nvlink_{way}")
            if gpu.number("c2c.links"):
                rate(100 + i, f"c2c_total_{way}_per_sec", f"gpm.c2c_{way}")
                rate(102 + i, f"c2c_data_{way}_per_sec", f"gpm.c2c_data_{way}")
    for link in range(links):
        for i, way in enumerate(("rx", "tx")):
            part, key = 2 * link + i, f"gpm.nvlink_{way}"
            # Links 0-17, 18-35 and from 36 on have id ranges of their own.
            id_ = part + (62 if part < 36 else 212 - 36 if part < 72 else 405 - 72)
            rate(id_, "nvlink_link", key, 1 / 2**20 / links)
            count(261 + part, "nvlink_link", key, 1 / links, "B")
    for id_ in gpu.items("gpm.unsupported_ids"):
        metrics.pop(id_, None)
    for id_ in gpu.items("gpm.nan_ids"):
        if id_ in metrics:
            metrics[id_]["nan"] = True
    return waves | {f"gpm.{id_}": metric for id_, metric in metrics.items()}
