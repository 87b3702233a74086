# SPDX-License-Identifier: Apache-2.0
"""Every reading of one GPU through NVML, with every driver and every refusal."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from exporter.errors import DeviceGone, LibraryUnavailable
from exporter.exposition.board import FAMILIES
from exporter.model.reading import Board, Memory, Process, Utilization, Vitals
from exporter.sources.nvml.reader import NvmlReading, NvmlSource
from tests.fake_nvml import DRIVER_470, DRIVER_535, DRIVER_550, fault
from tests.sources.conftest import Open

GIB = 2**30
KIB = 1024
TOTAL, RESERVED = 85520809984, 687865856
THROTTLE = {
    "sync_boost": 0.01,
    "board_limit": 0.02,
    "reliability": 0.03,
    "thermal": 0.07,
    "low_utilization": 0.08,
    "sw_thermal": 0.04,
    "hw_thermal": 0.05,
    "hw_power_brake": 0.06,
}
BUSY: dict[str, Any] = {
    "utilization": 60,
    "memory_utilization": 20,
    "encoder_utilization": 3,
    "decoder_utilization": 4,
    "jpeg_utilization": 5,
    "ofa_utilization": 6,
    "power": 500,
    "module_power": 900,
    "energy": 1000,
    "temperature": {"gpu": 65, "memory": 71, "margin": 22},
    "clocks": {"graphics": 1700, "sm": 1710, "memory": 2619, "video": 1400},
    "clock_event_reasons": 0x1FF,
    "throttle": {"power": 0.5, **THROTTLE},
    "memory": {"used": 10 * GIB},
    "bar1": {"used": 5, "total": 9},
    "power_limits": {"enforced": 650},
    "fans": [40, 60],
    "performance_state": 2,
    "nvlink": {
        "tx": 18 * KIB,
        "rx": 36 * KIB,
        "errors": {"crc_flit": 1, "crc_data": 2, "replay": 3, "recovery": 4},
    },
    "pcie": {
        "generation": 4,
        "width": 8,
        "replays": 7,
        "l0_to_recovery": 8,
        "errors": {"correctable": 9, "fatal": 1},
    },
    "processes": [{"pid": 1, "bytes": GIB}],
}
PCIE_ERRORS = (
    *("correctable", "nak_received", "receiver", "bad_tlp", "nak_sent", "bad_dllp"),
    *("non_fatal", "fatal", "unsupported_request", "lcrc", "lane"),
)
FAST = {
    "nvmlDeviceGetMemoryInfo_v2": "memory",
    "nvmlDeviceGetFieldValues": "fields",
    "nvmlDeviceGetCurrentClocksEventReasons": "throttle",
    "nvmlDeviceGetSamples": "utilization_samples",
    "nvmlDeviceGetTemperatureV": "temperature",
    "nvmlDeviceGetClockInfo": "sm_clock",
    "nvmlDeviceGetEncoderUtilization": "encoder",
    "nvmlDeviceGetDecoderUtilization": "decoder",
    "nvmlDeviceGetJpgUtilization": "jpeg",
    "nvmlDeviceGetOfaUtilization": "ofa",
}
SLOW = {
    "nvmlDeviceGetMigMode": "mig",
    "nvmlDeviceGetEnforcedPowerLimit": "power_limit",
    "nvmlDeviceGetMarginTemperature": "temperature_margin",
    "nvmlDeviceGetFanSpeed_v2": "fans",
    "nvmlDeviceGetPerformanceState": "performance_state",
    "nvmlDeviceGetBAR1MemoryInfo": "bar1",
    "nvmlDeviceGetCurrPcieLinkGeneration": "pcie_link",
    "nvmlDeviceGetCurrPcieLinkWidth": "pcie_link",
    "nvmlDeviceGetComputeRunningProcesses_v3": "compute_processes",
    "nvmlDeviceGetGraphicsRunningProcesses_v3": "graphics_processes",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": "mps_processes",
}
OLDER = {
    "nvmlDeviceGetMemoryInfo_v2": "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetCurrentClocksEventReasons": "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetTemperatureV": "nvmlDeviceGetTemperature",
    "nvmlDeviceGetEnforcedPowerLimit": "nvmlDeviceGetPowerManagementLimit",
    "nvmlDeviceGetComputeRunningProcesses_v3": "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetGraphicsRunningProcesses_v3": "nvmlDeviceGetGraphicsRunningProcesses_v2",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": "nvmlDeviceGetMPSComputeRunningProcesses_v2",
}
NONE_COUNTED: frozenset[str] = frozenset()
LOST = [
    *((code, DeviceGone) for code in (15, 16, 28)),
    *((code, LibraryUnavailable) for code in (1, 9, 18)),
]
about: Any = pytest.approx


def read(source: NvmlSource, rig: Any, counted: frozenset[str] = NONE_COUNTED) -> NvmlReading:
    """One round with both cadences."""
    source.read_slow()
    found = source.read_fast(rig.monotonic(), rig.time(), counted)
    rig.journal.log_changes()
    return found


def vitals(source: NvmlSource, rig: Any) -> Vitals:
    return read(source, rig).vitals


def test_every_reading_of_an_h100(open_gpu: Open, tmp_path: Path) -> None:
    """With the newest driver every reading is there, in base units."""
    rig = open_gpu(after=10, **BUSY)
    source = rig.source(str(tmp_path))
    found = read(source, rig)

    assert found.vitals == Vitals(
        utilization=Utilization(0.6, about(0.61), 0.0, 0.2, about(0.21)),
        encoder_ratio=0.03,
        decoder_ratio=0.04,
        jpeg_ratio=0.05,
        ofa_ratio=0.06,
        power_watts=500.0,
        module_power_watts=900.0,
        energy_joules=6000.0,
        temperature_celsius=65.0,
        memory_temperature_celsius=71.0,
        clock_hertz={"sm": 1710e6, "memory": 2619e6, "graphics": 1700e6, "video": 1400e6},
        busy_sm_clock_hertz=about(1710e6),
        mean_sm_clock_hertz=about(1710e6),
        throttle_reasons=frozenset(
            (
                *("sw_power_cap", "hw_slowdown", "sync_boost"),
                *("sw_thermal", "hw_thermal", "hw_power_brake"),
            )
        ),
        throttle_seconds=about(
            {name: 10 * rate for name, rate in THROTTLE.items()} | {"sw_power_cap": 5.0}
        ),
        nvlink_transmit_bytes_total=180 * KIB,
        nvlink_receive_bytes_total=360 * KIB,
    )
    assert found.board == Board(
        power_limit_watts=650.0,
        temperature_margin_celsius=22,
        fan_speed_ratios=(0.4, 0.6),
        performance_state=2,
        bar1_used_bytes=5,
        bar1_total_bytes=9,
        pcie_generation=4,
        pcie_width=8,
        pcie_replays_total=7,
        pcie_errors_total=dict.fromkeys(PCIE_ERRORS, 0) | {"correctable": 9, "fatal": 1},
        pcie_link_recoveries_total=8,
        nvlink_errors_total={"crc_flit": 1, "crc_data": 2, "replay": 3, "recovery": 4},
    )
    free = TOTAL - RESERVED - 10 * GIB
    assert found.memory == {None: Memory(TOTAL, 10 * GIB, free, RESERVED)}
    assert found.processes == {None: (Process(1, "compute", GIB),)}
    assert (rig.journal.states, rig.failures) == ({}, {})


def test_steady_state_asks_each_call_once(open_gpu: Open) -> None:
    """The tables of these tests name all calls of the two cadences."""
    rig = open_gpu(after=10, **BUSY)
    source = rig.source()
    read(source, rig)
    rig.advance(1)
    rig.calls()
    source.read_fast(rig.monotonic(), rig.time(), NONE_COUNTED)
    assert rig.calls().keys() == FAST.keys()
    read(source, rig)

    assert rig.calls().keys() == FAST.keys() | SLOW.keys()


@pytest.mark.parametrize(
    ("missing", "states"),
    [
        (DRIVER_470, {"jpeg": "old_driver", "ofa": "old_driver"}),
        (DRIVER_535, {}),
        (DRIVER_550, {}),
    ],
    ids=["470", "535", "550"],
)
def test_older_drivers(open_gpu: Open, missing: tuple[str, ...], states: dict[str, str]) -> None:
    """On an older driver each reading comes from an older call, or is absent with the reason."""
    rig = open_gpu(after=10, missing=missing, **BUSY)
    source = rig.source()
    found = read(source, rig)
    # An H100's link is too fast for counters that wrap.
    lacking = {"temperature_margin_celsius", "pcie_transmit_bytes", "pcie_receive_bytes"}
    lacking |= {f"{engine}_ratio" for engine in states}

    assert rig.journal.states == {**states, "temperature_margin": "old_driver"}
    assert rig.failures == {}
    readings = asdict(found.vitals) | asdict(found.board)
    assert {name for name, value in readings.items() if value is None} == lacking
    assert found.vitals.temperature_celsius == 65.0
    assert "sw_power_cap" in (found.vitals.throttle_reasons or ())
    assert found.board.fan_speed_ratios == ((0.4,) if missing is DRIVER_470 else (0.4, 0.6))
    used, reserved = 10 * GIB, RESERVED
    free = TOTAL - used - reserved
    old = Memory(TOTAL, used + reserved, free, None)
    assert found.memory[None] == (
        old if missing is DRIVER_470 else Memory(TOTAL, used, free, reserved)
    )
    assert found.processes is not None
    assert len(found.processes[None]) == 1


def test_products_lack_what_they_lack(open_gpu: Open) -> None:
    """A T4 has neither fans nor NVLink nor a memory sensor: absent, not zero."""
    rig = open_gpu(product="t4", nvlink={"links": 0}, temperature={"margin": None})
    found = read(rig.source(), rig)

    seen, board = found.vitals, found.board
    assert (seen.memory_temperature_celsius, seen.module_power_watts) == (None, None)
    assert (seen.nvlink_transmit_bytes_total, board.temperature_margin_celsius) == (None, None)
    assert (board.fan_speed_ratios, board.nvlink_errors_total) == ((), {})
    assert rig.journal.states == {"temperature_margin": "unsupported"}


@pytest.mark.parametrize(
    ("metric", "reading", "field"),
    [
        ("gpu_power_watts", "power_watts", (185, 0)),
        ("gpu_module_power_watts", "module_power_watts", (185, 1)),
        ("gpu_energy_joules_total", "energy_joules", (83, 0)),
    ],
)
def test_help_names_the_field_that_is_read(
    open_gpu: Open, metric: str, reading: str, field: tuple[int, int]
) -> None:
    """A Grace-Hopper's module power is the 1 s average of its scope, and HELP says so."""
    number, scope = field
    values: dict[str, Any] = {"185": 500e3, "83": 6e6}
    rig = open_gpu(fields={**values, str(number): {"scope": {str(scope): 123e3}}})
    origin = next(family.origin for family in FAMILIES if family.name == metric)

    assert getattr(vitals(rig.source(), rig), reading) == 123.0
    assert f"field {number}" in origin
    assert (f"scope {scope}" in origin) == (scope != 0)


@pytest.mark.parametrize(("call", "group"), (FAST | SLOW).items())
@pytest.mark.parametrize("code", [3, 4])
def test_each_call_may_be_refused_for_good(
    open_gpu: Open, caplog: pytest.LogCaptureFixture, call: str, group: str, code: int
) -> None:
    """Where a call and its older forms are unsupported or refused, that reading is absent with
    its state, the others are there, and the driver is not asked again."""
    caplog.set_level(logging.INFO)
    rig = open_gpu(after=10, **BUSY)
    calls = [call, OLDER[call]] if call in OLDER else [call]
    rig.fake.update(faults=[fault(name, error=code) for name in calls])
    source = rig.source()
    found = read(source, rig)
    logged = len(caplog.messages)
    rig.calls()
    rig.advance(1)
    read(source, rig)
    states = {key: state for key, state in rig.journal.states.items() if key != "mig"}

    if group == "mig":
        assert states == {}  # it is not known whether MIG is on: read as a whole GPU
    else:
        assert states[group] == ("no_permission" if code == 4 else "unsupported")
        assert not set(calls) & rig.calls().keys() - {"nvmlDeviceGetFieldValues"}
    assert logged == len(caplog.messages) == len(set(caplog.messages))
    assert (logged > 0) == (code == 4)
    assert (rig.failures.get("nvml", 0) > 0) == (code == 4 and group != "mig")
    assert found.vitals.power_watts == 500.0


IMPOSSIBLE: list[tuple[dict[str, Any], str, Callable[[NvmlReading], object]]] = [
    ({"power": 4294967.295, "fields": {"185": None}}, "power", lambda r: r.vitals.power_watts),
    ({"power_limits": {"enforced": 2**32}}, "power_limit", lambda r: r.board.power_limit_watts),
    ({"temperature": {"gpu": 255}}, "temperature", lambda r: r.vitals.temperature_celsius),
    ({"clocks": {"sm": 4294967295}}, "sm_clock", lambda r: r.vitals.clock_hertz.get("sm")),
    ({"energy": 1e14, "fields": {"83": None}}, "energy", lambda r: r.vitals.energy_joules),
    ({"clock_event_reasons": 4294967295}, "throttle", lambda r: r.vitals.throttle_reasons),
    ({"encoder_utilization": 101}, "encoder", lambda r: r.vitals.encoder_ratio),
    ({"pcie": {"generation": 0}}, "pcie_link", lambda r: r.board.pcie_generation),
    ({"pcie": {"width": 255}}, "pcie_link", lambda r: r.board.pcie_width),
    ({"performance_state": 32}, "performance_state", lambda r: r.board.performance_state),
    ({"memory": {"used": 10**15}}, "memory", lambda r: r.memory[None]),
    ({"fans": [255]}, "fans", lambda r: r.board.fan_speed_ratios or None),
    ({"fans": [40] * 33}, "fans", lambda r: r.board.fan_speed_ratios or None),
]


@pytest.mark.parametrize(
    ("device", "group", "reading"),
    IMPOSSIBLE,
    ids=[f"{next(iter(device))}-{at}" for at, (device, _, _) in enumerate(IMPOSSIBLE)],
)
def test_impossible_readings_are_absent(
    open_gpu: Open, device: dict[str, Any], group: str, reading: Callable[[NvmlReading], object]
) -> None:
    """A sentinel or nonsense that comes with a success is not published, costs no other, and the
    state of its group says so."""
    sound = open_gpu(fans=[40])
    assert reading(read(sound.source(), sound)) is not None
    assert sound.journal.states == {}
    rig = open_gpu(**{"fans": [40], **device})
    found = read(rig.source(), rig)

    assert reading(found) is None
    assert found.answered
    assert rig.journal.states == {group: "implausible"}


@pytest.mark.parametrize("call", FAST | SLOW)
@pytest.mark.parametrize(("code", "kind"), LOST)
def test_each_call_may_say_that_all_is_lost(
    open_gpu: Open, call: str, code: int, kind: type[Exception]
) -> None:
    """Codes that concern the GPU or the library are raised, whichever call meets them."""
    rig = open_gpu(after=10, **BUSY)
    source = rig.source()
    read(source, rig)
    rig.fake.update(faults=[fault(call, error=code)])

    with pytest.raises(kind):
        read(source, rig)


def test_a_call_replaces_a_field_that_does_not_answer(open_gpu: Open) -> None:
    """Energy, power and PCIe replays are read with the older call."""
    rig = open_gpu(after=10, **{**BUSY, "fields": dict.fromkeys(("83", "185", "94"))})
    found = read(rig.source(), rig)

    assert (found.vitals.energy_joules, found.vitals.power_watts) == (6000.0, 500.0)
    assert found.board.pcie_replays_total == 7


def test_throttle_without_time_counters(open_gpu: Open) -> None:
    """A driver that counts no time still reports the reasons."""
    ids = (*map(str, range(74, 80)), "269", "270", "271")
    rig = open_gpu(clock_event_reasons=0x2 | 0x4, fields=dict.fromkeys(ids))
    found = vitals(rig.source(), rig)

    assert found.throttle_seconds == {}
    assert found.throttle_reasons == frozenset({"sw_power_cap"})


@pytest.mark.parametrize("reasons", [0, 0x1, 0x2, 0x100, 0x103])
def test_idle_and_requested_clocks_are_no_throttling(open_gpu: Open, reasons: int) -> None:
    """Clocks that are low because nothing runs, or because somebody asked, are not held back."""
    rig = open_gpu(clock_event_reasons=reasons)

    assert vitals(rig.source(), rig).throttle_reasons == frozenset()


@pytest.mark.parametrize(
    ("product", "family"),
    [("h100-sxm", "throughput"), ("b200", "count"), ("h100-sxm", "both"), ("h100-sxm", "none")],
)
@pytest.mark.parametrize("overrun", [False, True])
def test_nvlink_bytes_of_each_family(
    open_gpu: Open, product: str, family: str, overrun: bool
) -> None:
    """Totals in KiB, else the bytes of each link summed, else absent; the driver's habit to
    write past the array changes nothing."""
    rig = open_gpu(
        product=product,
        nvlink={"family": family, "tx": 36 * KIB, "rx": 72 * KIB},
        nvlink_overrun=overrun,
    )
    source = rig.source()
    for seconds in (1, 2, 3):
        rig.advance(1)
        found = vitals(source, rig)
        read = found.nvlink_transmit_bytes_total, found.nvlink_receive_bytes_total
        moved = 36 * KIB * seconds, 72 * KIB * seconds
        assert read == ((None, None) if family == "none" else moved)


@pytest.mark.parametrize("family", ["totals", "links"])
def test_nvlink_errors_of_each_family(open_gpu: Open, family: str) -> None:
    """Errors come from the older totals, else from each link."""
    silent = ("38", "45", "52", "59") if family == "links" else ("161", "162", "163")
    rig = open_gpu(
        nvlink={"errors": {"crc_flit": 1, "crc_data": 2, "replay": 3, "recovery": 4}},
        fields=dict.fromkeys(silent),
    )
    found = read(rig.source(), rig).board.nvlink_errors_total

    expected = {"crc_flit": 1, "replay": 3, "recovery": 4}
    assert found == (expected if family == "links" else {**expected, "crc_data": 2})


def test_pcie_bytes_of_a_slow_link(open_gpu: Open) -> None:
    """Where no wrap can be missed the wrapping counters give the bytes of each interval."""
    pcie = {"max_generation": 1, "max_width": 8, "tx": 1.5e9, "rx": 1e6}
    rig = open_gpu(pcie=pcie)
    source = rig.source()
    moved = []
    for _ in range(5):
        found = vitals(source, rig)
        moved.append((found.pcie_transmit_bytes, found.pcie_receive_bytes))
        rig.advance(1)

    assert moved == [(None, None), *[(1.5e9, 1e6)] * 4]
    rig.advance(9)
    assert vitals(source, rig).pcie_transmit_bytes is None


MIG = {
    "instances": [
        {"gi": 1, "ci": 0, "index": 0, "memory_mb": 40960, "memory_used": 5 * GIB},
        {"gi": 5, "ci": 0, "index": 2, "memory_mb": 10240, "memory_used": 1 * GIB},
        {"gi": 5, "ci": 1, "index": 3, "memory_mb": 10240, "memory_used": 1 * GIB},
    ]
}


@pytest.mark.parametrize("product", ["h100-sxm", "a100-sxm4-80gb"])
def test_mig_instances(open_gpu: Open, tmp_path: Path, product: str) -> None:
    """Under MIG memory and processes are those of each GPU instance, with any number of compute
    instances; the board stays, and nothing is said for the whole GPU."""
    processes = [
        {"pid": 1, "bytes": 10, "gi": 1, "ci": 0},
        {"pid": 2, "bytes": 20, "gi": 5, "ci": 1},
    ]
    rig = open_gpu(after=10, **{**BUSY, "product": product, "mig": MIG, "processes": processes})
    source = rig.source(str(tmp_path))
    rig.calls()
    found = read(source, rig)

    assert source.gpu_instances == (1, 5)
    assert found.memory == {
        1: Memory(40 * GIB, 5 * GIB, 35 * GIB, 0),
        5: Memory(10 * GIB, 1 * GIB, 9 * GIB, 0),
    }
    assert found.processes == {
        1: (Process(1, "compute", 10),),
        5: (Process(2, "compute", 20),),
    }
    assert (source.utilization, found.vitals.utilization) == (None, None)
    assert found.vitals.encoder_ratio is None
    assert found.vitals.power_watts == 500.0
    assert rig.journal.states == {"utilization": "mig"}
    assert rig.calls()["nvmlDeviceGetMemoryInfo_v2"] == 2
    assert "nvmlDeviceGetUtilizationRates" not in rig.calls()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [entry.getMessage() for entry in caplog.records if entry.levelno >= logging.INFO]


@pytest.mark.parametrize("call", FAST | SLOW)
def test_each_call_may_fail(open_gpu: Open, caplog: pytest.LogCaptureFixture, call: str) -> None:
    """An unknown code is counted each round, logged once, and costs that reading alone."""
    rig = open_gpu(**BUSY)
    rig.advance(10)
    source = rig.source()
    rig.fake.update(faults=[fault(call, error=999)])
    for _ in range(3):
        found = read(source, rig)
        rig.advance(1)

    assert rig.failures["nvml"] >= 3
    assert rig.failures["nvml"] % 3 == 0
    assert len(lines(caplog)) == len(set(lines(caplog))) <= 4
    celsius = None if call == "nvmlDeviceGetTemperatureV" else 65.0
    assert found.vitals.temperature_celsius == celsius


def test_static_reading_keeps_the_sources(open_gpu: Open) -> None:
    """The identity is read again without losing the running utilization."""
    rig = open_gpu(utilization=50)
    rig.advance(5)
    source = rig.source()
    read(source, rig)
    rig.advance(1)
    source.read_static()
    found = vitals(source, rig)

    assert found.utilization is not None
    assert found.utilization.seconds == pytest.approx(1.0)
