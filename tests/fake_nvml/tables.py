# SPDX-License-Identifier: Apache-2.0
"""Flatten a scenario into the tables of answers that the C library looks up.

The README describes scenarios. The first table is that of the scenario itself; each GPU and MIG
device has a small one of its own, and GPUs that say the same share the one with their answers. A
line is KEY KIND PAYLOAD:

    -                                         null: NOT_SUPPORTED
    e CODE                                    an error
    n NUMBER ...                              a number, or a list of numbers
    s TEXT
    q PERIOD PHASE DUTY HIGH LOW              a square wave
    i PERIOD PHASE MEAN AMPLITUDE             a sine
    t TIME VALUE ...                          steps
    p KEY KEY, + KEY ...                      the product or sum of other entries
    f TYPE SCALE WINDOW OF KEY [WAVE]         a field value: of the wave `now`, its integral `since`
                                              the epoch, the `total` of a key, its `mean`
    m SCALE OF KEY ACTIVE CLOCK               a GPM metric: a `share`, a `count` or `nan`

A list of objects is its length, and `list.0.member` and so on.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
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
. architecture compute_capability cores bus_width board_part_number vbios numa_node
. pci_device_id pci_subsystem_id lost handle_error generation latency_us sample_period
. utilization memory_utilization encoder_utilization decoder_utilization jpeg_utilization
. ofa_utilization power power_window module_power energy clock_event_reasons event_types
. performance_state unrepairable_memory
. nvlink_overrun profile gi ci index memory_mb memory_used
samples enabled period depth types
memory total reserved used
bar1 total used
power_limits min max default enforced management
temperature gpu margin
pcie generation width max_generation max_width tx rx replays
ecc enabled pending
remapped_rows histogram
retired_pages pending
nvlink links inactive tx rx
fabric cluster_uuid
modes persistence compute virtualization display_active display_mode
mig capable current pending
gpm supported graphics sm occupancy int tensor dfma hmma dmma imma dram fp64 fp32 fp16
gpm pcie_tx pcie_rx nvlink_tx nvlink_rx c2c_data_tx c2c_data_rx
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
    "application_clocks": _CLOCKS,
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
    "pcie.width": "pcie.max_width",
    **{f"gpm.{bus}_{way}": f"{bus}.{way}" for bus in ("pcie", "nvlink") for way in ("tx", "rx")},
}
_ECC_LOCATIONS = ("l1", "l2", "dram", "registers", "texture", "texture_shm", "cbu", "sram")
_ROWS = ("correctable", "uncorrectable", "pending", "failure")
_FABRIC = ("state", "status", "clique", "health_mask", "health_summary")
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
# GPM ids of shares of time or cycles: the reading, and the id that counts its cycles.
_GPM_SHARES = {
    1: ("graphics", None),
    2: ("sm", 249),
    3: ("occupancy", None),
    4: ("int", 257),
    5: ("tensor", 250),
    6: ("dfma", 254),
    7: ("hmma", 252),
    8: ("dmma", 251),
    9: ("imma", 253),
    10: ("dram", None),
    11: ("fp64", 258),
    12: ("fp32", 259),
    13: ("fp16", 260),
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
    shared: Any = {}
    if isinstance(devices, Mapping):
        shared = devices.get("template", {})
        overrides = devices.get("overrides", {})
        devices = [overrides.get(str(i), {}) for i in range(int(devices.get("count", 1)))]
    tables = [""]
    confidential = scenario.get("confidential_compute", {})
    top = {
        key: scenario[key] for key in ("epoch", "since", "stats", "latency_us") if key in scenario
    }
    top |= {
        "clock": scenario.get("clock", {}).get("file"),
        "driver_version": scenario.get("driver_version", "580.95.05"),
        "cuda_version": _cuda_version(scenario.get("cuda_version", "13.0")),
        "confidential_compute": [0, confidential.get("feature", 0), 0],
        "order": scenario.get("order", list(range(len(devices)))),
        "devices": [_device(i, own, shared, tables) for i, own in enumerate(devices)],
        **_listed("faults", scenario.get("faults", [])),
        **_listed("events", _events(scenario.get("xids", []))),
    }
    tables[0] = _text(top)
    return "".join(tables)


def _text(table: Mapping[str, Any]) -> str:
    return "\n".join(["table", *(f"{key} {_payload(value)}" for key, value in table.items()), ""])


def _payload(value: Any) -> str:
    """The kind and payload of an entry."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return f"s {value}"
    if isinstance(value, (int, float)):
        return f"n {value + 0!r}"
    if isinstance(value, list):
        return " ".join(["n", *(repr(number + 0) for number in value)])
    if _error(value):
        return f"e {value['error']}"
    kind, body = next(iter(value.items()))
    if kind == "steps":
        return " ".join(["t", *(repr(number + 0) for point in body for number in point)])
    if kind in ("product", "sum"):
        return " ".join(["p" if kind == "product" else "+", *body])
    if kind == "metric":
        of = "nan" if "nan" in body else "count" if "count" in body else "share"
        words = (body["key"], body.get("active", "-"), body.get("clock", "-"))
        return " ".join(["m", repr(body["scale"]), of, *words])
    names, letter = _SHAPES[kind]
    return " ".join([letter, *(repr(body.get(name, default)) for name, default in names.items())])


_SHAPES: dict[str, tuple[dict[str, float], str]] = {
    "square": ({"period": 1, "phase": 0, "duty": 0.5, "high": 1, "low": 0}, "q"),
    "sine": ({"period": 1, "phase": 0, "mean": 0, "amplitude": 0}, "i"),
}


def _listed(key: str, items: Any) -> dict[str, Any]:
    """The entries of a list of objects, or of what stands in its place."""
    if not isinstance(items, list):
        return {} if items is _ABSENT else {key: items}
    members = {f"{key}.{i}.{name}": of for i, item in enumerate(items) for name, of in item.items()}
    return {key: len(items)} | members


def _cuda_version(given: str) -> int:
    major, _, minor = given.partition(".")
    return int(major) * 1000 + int(minor) * 10


def _events(xids: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events of these Xids, by time."""
    events = [{**xid, "type": _XID_EVENT, "data": xid["xid"]} for xid in xids]
    return sorted(events, key=lambda event: event["at"])


def _device(index: int, own: Mapping[str, Any], shared: Any, tables: list[str]) -> int:
    """Add the tables of a GPU and its MIG devices; return the number of its own one."""
    readings = Readings(own, shared)
    product = _product(readings)
    answers, *instances = _tables(json.dumps(own), json.dumps(shared))

    def number_of(text: str) -> int:
        if text not in tables:
            tables.append(text)
        return tables.index(text)

    def identity(path: str, default: Any) -> Any:
        found = readings.get(path)
        return product.get(path, default) if found is _ABSENT else found

    place, tail = 0x1A2B3C00 + index, f"5f3c-4b1e-9d2a-{index + 1:012x}"
    migs = []
    pairs = zip(readings.items("mig.instances"), instances, strict=True)
    for i, (given, instance) in enumerate(pairs, 1):
        uuid = f"MIG-{0x4D494700 + index:08x}-5f3c-4b1e-9d2a-{i:012x}"
        table = {"shared": number_of(instance), "uuid": given.get("uuid", uuid)}
        migs.append(number_of(_text(table)))
    table = {
        "shared": number_of(answers),
        "uuid": identity("uuid", f"GPU-{place:08x}-{tail}"),
        "serial": identity("serial", f"165{index + 1:010d}"),
        "pci_bus_id": identity("pci_bus_id", f"0:{0x10 + 2 * index:x}:0.0"),
        "minor": identity("minor", index),
        "instances": migs,
    }
    return number_of(_text(table))


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
    fields = {f"fields.{id_}": field for id_, field in _fields(readings).items()}
    lines = [line for key, field in fields.items() for line in _field_lines(key, field)]
    texts = [_text(answers | _gpm(readings, readings)) + "".join(lines)]
    for given in instances:
        instance = Readings(given)
        clocks = {f"clocks.{i}": answers.get(f"clocks.{i}") for i in (1, 2)}
        slices = instance.number("slices", 1)
        attributes = [
            instance.number("sm_count", 16),
            *(slices, instance.number("decoders", 1), 0, 0, 0, slices),
            instance.number("compute_slices", slices),
        ]
        table = _answers(instance) | clocks | {"attributes": attributes}
        texts.append(_text(table | _gpm(instance, readings)))
    return tuple(texts)


def _answers(readings: Readings) -> dict[str, Any]:
    found = {path: readings.get(path) for path in _PATHS}
    for group, names in _NUMBERED.items():
        found |= {f"{group}.{i}": readings.get(f"{group}.{n}") for i, n in enumerate(names) if n}
    found["max_clocks.boost"] = readings.get("max_clocks.boost")
    fans = readings.get("fans")
    if isinstance(fans, list):
        found |= {"fans": len(fans), **{f"fans.{i}": speed for i, speed in enumerate(fans)}}
    remote = readings.get("nvlink.remote")
    for i in range(int(readings.number("nvlink.links"))):
        found[f"nvlink.remote.{i}"] = remote[i] if isinstance(remote, list) else remote
    for key in (f"raw_samples.{i}" for i in range(10)):
        points = readings.get(key)
        flat = isinstance(points, list)
        found[key] = [number for point in points for number in point] if flat else points
    for key in ("retired_pages.single_bit", "retired_pages.double_bit"):
        found[key] = readings.get(key)
    found["sram"] = _numbers(readings, "sram", _SRAM, whole=False)
    found["remapped_rows"] = _numbers(readings, "remapped_rows", _ROWS, whole=True)
    found["fabric"] = _numbers(readings, "fabric", _FABRIC, whole=False)
    known = {path: value for path, value in found.items() if value is not _ABSENT}
    return (
        known
        | _listed("faults", readings.get("faults"))
        | _listed("process_samples", readings.get("process_samples"))
    )


def _numbers(readings: Readings, group: str, names: Iterable[str], *, whole: bool) -> Any:
    """The numbers of a group as a list; with `whole`, only if none is missing."""
    found = readings.get(group)
    values = [readings.get(f"{group}.{name}") for name in names]
    if _missing(found) or _error(found):
        return found
    if whole:
        for value in values:
            if _missing(value) or _error(value):
                return value
    return [_or_zero(value) for value in values]


def _identity(readings: Readings) -> dict[str, Any]:
    """The name in hex, since it need not be UTF-8."""
    name, raw = readings.get("name"), readings.get("name_hex")
    if isinstance(raw, str):
        return {"name": raw}
    return {"name": name if _error(name) else "" if _missing(name) else str(name).encode().hex()}


def _health(readings: Readings) -> dict[str, Any]:
    """ECC counts by NVML's numbers of error, counter and location."""
    answers: dict[str, Any] = {}
    if not readings.number("ecc.enabled"):
        return answers
    for counter, duration in enumerate(("volatile", "aggregate")):
        for error, kind in enumerate(("corrected", "uncorrected")):
            group, key = f"ecc.{duration}.{kind}", f"ecc.{error}.{counter}"
            whole = readings.get(group)
            readable = not _missing(whole) and not _error(whole)
            parts = [i for i, name in enumerate(_ECC_LOCATIONS) if name != "texture_shm"]
            answers[key] = {"sum": [f"{key}.{i}" for i in parts]} if readable else whole
            for i, location in enumerate(_ECC_LOCATIONS):
                answers[f"{key}.{i}"] = readings.get(f"{group}.{location}")
    return {key: None if count is _ABSENT else count for key, count in answers.items()}


def _or_zero(value: Any) -> Any:
    return 0 if _missing(value) or _error(value) else value


def _processes(readings: Readings) -> dict[str, Any]:
    """The processes by kind; a plain list is the compute processes."""
    plain = readings.get("processes")
    found: dict[str, Any] = {}
    for kind in ("compute", "graphics", "mps"):
        key = f"processes.{kind}"
        in_list = plain if kind == "compute" else []
        found |= _listed(key, in_list if isinstance(plain, list) else readings.get(key))
    return found


# ---------- field values ----------


def _gauge(value: Any, kind: int = _UINT, scale: float = 1) -> Entry:
    if _missing(value):
        return None
    return dict(value) if _error(value) else {"type": kind, "of": value, "scale": scale}


def _fields(readings: Readings) -> dict[int, Entry]:
    """An entry for each supported field that is asked for; what the scenario states comes last."""

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

    energy = gauge("energy", _ULL, 1e3)
    if energy and "of" in energy:
        energy["total"] = "power"
    fields: dict[int, Entry] = {
        **{74 + i: throttle(i) for i in range(6)},
        82: gauge("temperature.memory"),
        83: energy,
        91: gauge("nvlink.links"),
        94: gauge("pcie.replays"),
        169: gauge("pcie.l0_to_recovery"),
        **{173 + i: gauge(f"pcie.errors.{name}") for i, name in enumerate(_PCIE_ERRORS)},
        185: _power(readings),
        197: total("pcie.tx", _UINT),
        198: total("pcie.rx", _UINT),
        230: gauge("recovery_action"),
        **{269 + i: throttle(12 + i) for i in range(3)},
    }
    fields |= _nvlink_fields(readings, total) | _c2c_fields(readings)
    stated = readings.get("fields")
    if isinstance(stated, Mapping):
        fields |= {int(id_): _stated(readings.get(f"fields.{id_}")) for id_ in stated}
    return fields


def _field_lines(key: str, field: Entry) -> Iterator[str]:
    """The lines of one field, and of each scope that has an entry of its own."""
    if field is None or _error(field):
        yield f"{key} {_payload(field)}\n"
    elif "scopes" in field:
        yield f"{key} s by scope\n"
        for scope, entry in {**field["scopes"], "else": field["else"]}.items():
            yield from _field_lines(f"{key}.{scope}", entry)
    else:
        of = next((of for of in ("total", "mean", "since") if of in field), "now")
        name = "-" if of in ("now", "since") else field[of]
        wave = field["since"] if of == "since" else field.get("of")
        start = f"f {field['type']} {field.get('scale', 1)!r} {field.get('window', 0)} {of} {name}"
        yield f"{key} {start}\n" if wave is None else f"{key} {start} {_payload(wave)}\n"


def _power(readings: Readings) -> Entry:
    """Power by scope: the GPU's mean over a second, and the module's."""
    scopes = [_gauge(readings.get(path), _UINT, 1e3) for path in ("power", "module_power")]
    if scopes[0] and "of" in scopes[0]:
        scopes[0] |= {"mean": "power", "window": 1}
        del scopes[0]["of"]
    return {"scopes": {str(i): entry for i, entry in enumerate(scopes)}, "else": {"error": 2}}


def _nvlink_fields(readings: Readings, total: Any) -> dict[int, Entry]:
    links = int(readings.number("nvlink.links"))
    if links < 1:
        return {}
    every = [_ALL_LINKS, *range(links)]
    family = readings.get("nvlink.family")
    errors = {name: readings.get(f"nvlink.errors.{name}") for name in _LINK_ERRORS}
    fields: dict[int, Entry] = {}

    def count(name: str, link: int) -> Entry:
        """Link 0 has all the errors, so that a sum over links is right."""
        return _gauge(errors[name], _ULL, int(link in (0, _ALL_LINKS)))

    def octets(path: str, scale: float) -> Entry:
        by_link = total(path, scale=scale / links)
        scopes = {str(_ALL_LINKS): total(path, scale=scale)}
        return {
            "scopes": {**scopes, **dict.fromkeys(map(str, range(links)), by_link)},
            "else": {"error": 2},
        }

    for kind, name in enumerate(_LINK_ERRORS):
        fields[38 + 7 * kind] = count(name, _ALL_LINKS)
    for id_, name in ((161, "replay"), (162, "recovery"), (163, "crc_flit")):
        fields[id_] = {"scopes": {str(link): count(name, link) for link in every}, "else": None}
    fields[90] = _gauge(readings.get("nvlink.speed_mbps"))
    for i, path in enumerate(("nvlink.tx", "nvlink.rx")):
        if family in (_ABSENT, "throughput", "both"):
            fields[138 + i] = octets(path, 1 / 1024)
        if family in ("count", "both"):
            fields[202 + 2 * i] = octets(path, 1)
    return fields


def _c2c_fields(readings: Readings) -> dict[int, Entry]:
    links = readings.get("c2c.links")
    if _missing(links) or _error(links):
        return {id_: _gauge(links) for id_ in (170, 172)}
    bandwidth = _gauge(readings.get("c2c.max_bandwidth_mbps"))
    scopes = dict.fromkeys(map(str, range(int(links))), bandwidth)
    return {170: _gauge(links), 172: {"scopes": scopes, "else": {"error": 2}}}


def _stated(given: Any) -> Entry:
    """A field as the scenario's own `fields` state it."""
    if not isinstance(given, Mapping) or _error(given) or any(wave in given for wave in _WAVES):
        return _gauge(given, _ULL)
    name = given.get("type")
    kind = _TYPES.index(name) if name in _TYPES else _ULL
    if "rate" in given:
        return {"type": kind, "since": given["rate"]}
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

    def rate(id_: int, key: str) -> None:
        metrics[id_] = {"key": key, "scale": 1 / 2**20}

    def count(id_: int, key: str, scale: float) -> None:
        if cumulative:
            metrics[id_] = {"key": key, "scale": scale, "count": True}

    count(248, "clocks.1", 1e6 * sms)
    for id_, (key, cycles_id) in _GPM_SHARES.items():
        metrics[id_] = {"key": f"gpm.{key}", "scale": 1}
        if key == "graphics":
            continue
        number = 2 if key == "dram" else 1
        # Percent of MHz: 1e4 cycles per second.
        waves[f"cycles.{key}"] = {"product": [f"gpm.{key}", f"clocks.{number}"]}
        if by_cycles:
            metrics[id_] |= {"active": f"cycles.{key}", "clock": f"clocks.{number}"}
        if cycles_id:
            count(cycles_id, f"cycles.{key}", 1e4 * sms)
    for first, most, engine in _GPM_ENGINES:
        given = readings.get(f"gpm.{engine}")
        for i in range(min(most, int(gpu.number(f"engines.{engine}")))):
            key = f"gpm.{engine}.{i}"
            waves[key] = _or_zero(readings.get(key) if isinstance(given, list) else given)
            metrics[first + i] = {"key": key, "scale": 1}
    for i, way in enumerate(("tx", "rx") if whole else ()):
        rate(20 + i, f"gpm.pcie_{way}")
        count(255 + i, f"gpm.pcie_{way}", 1)
        if links:
            rate(61 - i, f"gpm.nvlink_{way}")
        if gpu.number("c2c.links"):
            rate(102 + i, f"gpm.c2c_data_{way}")
    for id_ in gpu.items("gpm.unsupported_ids"):
        metrics.pop(id_, None)
    for id_ in gpu.items("gpm.nan_ids"):
        if id_ in metrics:
            metrics[id_]["nan"] = True
    return waves | {f"gpm.{id_}": {"metric": metric} for id_, metric in metrics.items()}
