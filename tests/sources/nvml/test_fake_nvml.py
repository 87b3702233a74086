# SPDX-License-Identifier: Apache-2.0
"""The fake NVML library answers unmodified clients, and its readings agree with each other."""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.fake_nvml import (
    DRIVER_470,
    DRIVER_535,
    DRIVER_550,
    DRIVER_590,
    FakeNvml,
    build,
    fault,
    integral,
    mean,
    sine,
    square,
    steps,
)
from tests.fake_nvml.build import written_symbols

START = 1_000_000.0
ALL_LINKS = 0xFFFFFFFF


class Session:
    """A fake that pynvml in this process has initialised, with a frozen clock."""

    def __init__(self, fake: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fake = fake
        self.nvml = fake.activate(monkeypatch)
        self.nvml.nvmlInit()
        self.gpu = self.nvml.nvmlDeviceGetHandleByIndex(0)

    def fields(self, *ids: int | tuple[int, int]) -> list[tuple[int, int]]:
        """(code, value as an unsigned integer) of each field."""
        found = self.nvml.nvmlDeviceGetFieldValues(self.gpu, list(ids))
        return [(entry.nvmlReturn, entry.value.ullVal) for entry in found]

    def gpm(self, ids: list[int], seconds: float, instance: int | None = None) -> dict[int, Any]:
        """Metrics over the next `seconds`: the value, or a string with the code."""
        nvml = self.nvml
        samples = [nvml.nvmlGpmSampleAlloc() for _ in range(2)]
        for i, sample in enumerate(samples):
            if i:
                self.fake.advance(seconds)
            if instance is None:
                nvml.nvmlGpmSampleGet(self.gpu, sample)
            else:
                nvml.nvmlGpmMigSampleGet(self.gpu, instance, sample)
        get = nvml.c_nvmlGpmMetricsGet_t(
            version=1, numMetrics=len(ids), sample1=samples[0], sample2=samples[1]
        )
        for i, metric in enumerate(ids):
            get.metrics[i].metricId = metric
        nvml.nvmlGpmMetricsGet(get)
        for sample in samples:
            nvml.nvmlGpmSampleFree(sample)
        return {
            metric: get.metrics[i].value
            if get.metrics[i].nvmlReturn == 0
            else f"code {get.metrics[i].nvmlReturn}"
            for i, metric in enumerate(ids)
        }


@pytest.fixture(name="start")
def _start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Start a session on one GPU with the given readings."""

    def start(*, missing: tuple[str, ...] = (), top: Any = None, **gpu: Any) -> Session:
        scenario = {"devices": [gpu], **(top or {})}
        fake = FakeNvml(tmp_path, scenario, missing=missing, clock=START)
        return Session(fake, monkeypatch)

    return start


def code_of(call: Any, *arguments: Any) -> int:
    """The NVML code that a pynvml call raises; 0 if it returns."""
    try:
        call(*arguments)
    except pynvml.NVMLError as error:
        return int(error.value)
    return 0


class TestBuild:
    def test_compiles_without_warnings(self) -> None:
        """The C code is clean under -Wall -Wextra -Werror."""
        assert build(extra_flags=("-Werror",)).exists()

    def test_is_cached(self) -> None:
        """A second build gives the same file at once."""
        first = build()
        begun = time.monotonic()

        assert build() == first
        assert time.monotonic() - begun < 1

    def test_missing_symbols_are_function_not_found(self, start: Any) -> None:
        """An omitted symbol looks like an older driver, the others stay."""
        session = start(missing=("nvmlDeviceGetTemperatureV",))

        assert code_of(session.nvml.nvmlDeviceGetTemperatureV, session.gpu, 0) == 13
        assert session.nvml.nvmlDeviceGetTemperature(session.gpu, 0) == 35

    @pytest.mark.parametrize("missing", [DRIVER_470, DRIVER_535, DRIVER_550, DRIVER_590])
    def test_old_drivers_still_work(self, start: Any, missing: tuple[str, ...]) -> None:
        """The driver presets leave a library that initialises and answers the old calls."""
        session = start(missing=missing)

        assert session.nvml.nvmlDeviceGetMemoryInfo(session.gpu).total > 0
        assert session.nvml.nvmlDeviceGetTemperature(session.gpu, 0) == 35
        margin = code_of(session.nvml.nvmlDeviceGetMarginTemperature, session.gpu)
        assert margin == (0 if missing is DRIVER_590 else 13)

    def test_other_symbols_answer_not_supported(self, start: Any) -> None:
        """What nobody wrote by hand exists and is NOT_SUPPORTED, as in a real library."""
        session = start()

        assert "nvmlDeviceGetBoardId" not in written_symbols()
        assert code_of(session.nvml.nvmlDeviceGetBoardId, session.gpu) == 3


class TestReadings:
    def test_identity(self, start: Any) -> None:
        """A preset gives the GPU model's own strings and shape."""
        session = start(product="v100-sxm2", serial="abc", pci_bus_id="00000001:3B:00.0")
        nvml, gpu = session.nvml, session.gpu
        pci = nvml.nvmlDeviceGetPciInfo(gpu)

        assert nvml.nvmlDeviceGetName(gpu) == "Tesla V100-SXM2-16GB"
        assert nvml.nvmlDeviceGetSerial(gpu) == "abc"
        assert nvml.nvmlDeviceGetUUID(gpu).startswith("GPU-")
        assert nvml.nvmlDeviceGetCudaComputeCapability(gpu) == (7, 0)
        assert nvml.nvmlDeviceGetArchitecture(gpu) == 5
        assert nvml.nvmlDeviceGetNumGpuCores(gpu) == 5120
        assert nvml.nvmlDeviceGetMemoryBusWidth(gpu) == 4096
        assert pci.busId == "00000001:3B:00.0"
        assert pci.pciDeviceId == 0x1DB110DE
        assert nvml.nvmlSystemGetDriverVersion() == "580.95.05"
        assert nvml.nvmlSystemGetCudaDriverVersion() == 13000
        assert nvml.nvmlSystemGetConfComputeState().ccFeature == 0
        assert nvml.nvmlDeviceGetHandleByUUID(nvml.nvmlDeviceGetUUID(gpu)) is not None
        assert nvml.nvmlDeviceGetHandleByPciBusId("00000001:3B:00.0") is not None

    @pytest.mark.parametrize(
        "product",
        [
            "h100-sxm",
            "a100-sxm4-80gb",
            "v100-sxm2",
            "t4",
            "rtx-4090",
            "l40s",
            "b200",
            "unknown",
        ],
    )
    def test_every_product_answers_the_basics(self, start: Any, product: str) -> None:
        """No preset of a GPU model is broken: name, memory, power, clocks and limits all read."""
        session = start(product=product)
        nvml, gpu = session.nvml, session.gpu

        assert nvml.nvmlDeviceGetName(gpu)
        assert nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2).total > 0
        assert nvml.nvmlDeviceGetPowerUsage(gpu) > 0
        assert nvml.nvmlDeviceGetClockInfo(gpu, 1) == nvml.nvmlDeviceGetMaxClockInfo(gpu, 1)
        assert nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) > 0
        hopper = product in {"h100-sxm", "b200"}
        assert nvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice == hopper

    def test_name_need_not_be_utf8(self, start: Any) -> None:
        """A name of raw bytes reaches the client, where pynvml fails to decode it."""
        session = start(name_hex="4e56ff")

        with pytest.raises(UnicodeDecodeError):
            session.nvml.nvmlDeviceGetName(session.gpu)

    def test_memory(self, start: Any) -> None:
        """v1 counts the reserved memory as used, v2 does not and checks its version."""
        session = start(memory={"total": 1000, "reserved": 100, "used": 300})
        nvml, gpu = session.nvml, session.gpu
        v2 = nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2)

        assert nvml.nvmlDeviceGetMemoryInfo(gpu).used == 400
        assert (v2.used, v2.reserved, v2.free) == (300, 100, 600)
        assert code_of(nvml.nvmlDeviceGetMemoryInfo, gpu, 7) == 25
        assert nvml.nvmlDeviceGetBAR1MemoryInfo(gpu).bar1Total > 0

    def test_environment_readings(self, start: Any) -> None:
        """Temperatures, clocks, reasons, fans, limits and PCIe come from their keys."""
        session = start(
            temperature={"gpu": 61, "memory": 72, "margin": 20},
            clocks={"sm": 1410, "memory": 1593},
            clock_event_reasons=4,
            fans=[40, 55],
            performance_state=2,
            power_limits={"enforced": 300, "min": 100, "max": 500, "default": 400},
            pcie={"generation": 4, "width": 8, "replays": 7},
        )
        nvml, gpu = session.nvml, session.gpu

        assert nvml.nvmlDeviceGetTemperatureV(gpu, 0) == 61
        assert nvml.nvmlDeviceGetTemperature(gpu, 0) == 61
        assert nvml.nvmlDeviceGetMarginTemperature(gpu) == 20
        assert nvml.nvmlDeviceGetTemperatureThreshold(gpu, 0) == 95
        assert session.fields(82) == [(0, 72)]
        assert [nvml.nvmlDeviceGetClockInfo(gpu, i) for i in range(3)] == [1980, 1410, 1593]
        assert nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) == 4
        assert nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu) == 4
        assert nvml.nvmlDeviceGetFanSpeed_v2(gpu, 1) == 55
        assert code_of(nvml.nvmlDeviceGetFanSpeed_v2, gpu, 2) == 2
        assert nvml.nvmlDeviceGetPerformanceState(gpu) == 2
        assert nvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu) == [100000, 500000]
        assert session.fields(187, 188, 189, 190) == [
            (0, 100000),
            (0, 500000),
            (0, 400000),
            (0, 300000),
        ]
        assert nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu) == 4
        assert nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu) == 8
        assert nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu) == 5
        assert nvml.nvmlDeviceGetPcieReplayCounter(gpu) == 7

    def test_pcie_throughput_really_takes_20_ms(self, start: Any) -> None:
        """The call blocks as the real one does."""
        session = start(pcie={"tx": 5e6})
        begun = time.monotonic()

        assert session.nvml.nvmlDeviceGetPcieThroughput(session.gpu, 0) == 5000
        assert time.monotonic() - begun >= 0.02

    def test_health(self, start: Any) -> None:
        """ECC, remapped rows, SRAM status, retired pages and recovery action."""
        session = start(
            ecc={"volatile": {"corrected": {"dram": 5, "sram": 2}}},
            remapped_rows={"correctable": 3, "pending": 1, "histogram": [1, 2, 3, 4, 5]},
            sram={"volatile_unc_parity": 9, "threshold_exceeded": 1},
            retired_pages={"single_bit": [4096, [8192, 77]], "double_bit": [], "pending": 1},
            recovery_action=2,
        )
        nvml, gpu = session.nvml, session.gpu
        sram = nvml.c_nvmlEccSramErrorStatus_v1_t()
        nvml.nvmlDeviceGetSramEccErrorStatus(gpu, ctypes.byref(sram))

        assert nvml.nvmlDeviceGetEccMode(gpu) == [1, 1]
        assert nvml.nvmlDeviceGetTotalEccErrors(gpu, 0, 0) == 7
        assert nvml.nvmlDeviceGetMemoryErrorCounter(gpu, 0, 0, 2) == 5
        assert code_of(nvml.nvmlDeviceGetMemoryErrorCounter, gpu, 0, 0, 0) == 3
        assert nvml.nvmlDeviceGetRemappedRows(gpu) == (3, 0, 1, 0)
        assert nvml.nvmlDeviceGetRowRemapperHistogram(gpu).none == 5
        assert (sram.volatileUncParity, sram.bThresholdExceeded) == (9, 1)
        assert nvml.nvmlDeviceGetRetiredPages(gpu, 0) == [4096, 8192]
        assert nvml.nvmlDeviceGetRetiredPages_v2(gpu, 0)[1]["timestamp"] == 77
        assert nvml.nvmlDeviceGetRetiredPagesPendingStatus(gpu) == 1
        assert session.fields(142, 144, 230) == [(0, 3), (0, 1), (0, 2)]

    def test_processes(self, start: Any) -> None:
        """Pids and bytes arrive; unknown memory is None."""
        session = start(
            processes={
                "compute": [{"pid": 12, "bytes": 2**30}, {"pid": 13, "bytes": None}],
                "graphics": [{"pid": 14, "bytes": 5}],
            }
        )
        nvml, gpu = session.nvml, session.gpu
        compute = nvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu)

        assert [(p.pid, p.usedGpuMemory) for p in compute] == [(12, 2**30), (13, None)]
        assert [p.pid for p in nvml.nvmlDeviceGetGraphicsRunningProcesses_v3(gpu)] == [14]
        assert nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(gpu) == []

    def test_nvlink(self, start: Any) -> None:
        """Link state stops at the real count, errors sum up over links, fabric is known."""
        session = start(nvlink={"inactive": [3], "errors": {"replay": 6}})
        nvml, gpu = session.nvml, session.gpu
        fabric = nvml.c_nvmlGpuFabricInfo_v3_t()
        nvml.nvmlDeviceGetGpuFabricInfoV(gpu, ctypes.byref(fabric))

        assert [nvml.nvmlDeviceGetNvLinkState(gpu, i) for i in (0, 3, 17)] == [1, 0, 1]
        assert code_of(nvml.nvmlDeviceGetNvLinkState, gpu, 18) == 2
        assert session.fields(91, 52, (161, 0), (161, 1), (161, 18)) == [
            (0, 18),
            (0, 6),
            (0, 6),
            (0, 0),
            (3, 0),
        ]
        assert (fabric.state, fabric.healthSummary) == (3, 1)

    def test_null_and_error_readings(self, start: Any) -> None:
        """null is NOT_SUPPORTED and {"error": n} is that code, for a reading or a group."""
        session = start(power=None, clocks={"error": 4}, temperature={"memory": None})
        nvml, gpu = session.nvml, session.gpu

        assert code_of(nvml.nvmlDeviceGetPowerUsage, gpu) == 3
        assert code_of(nvml.nvmlDeviceGetClockInfo, gpu, 1) == 4
        assert session.fields(82)[0][0] == 3
        assert nvml.nvmlDeviceGetTemperature(gpu, 0) == 35


class TestTime:
    WAVES = (
        square(7, 0.3, 400, 90, phase=1.5),
        sine(11, 250, 100),
        steps((0, 100), (5, 300), (20, 50)),
        123.25,
    )

    @pytest.mark.parametrize("wave", WAVES)
    def test_energy_is_the_integral_of_power(self, start: Any, wave: Any) -> None:
        """The energy counter and the power gauge agree, to the millijoule."""
        session = start(power=wave, power_window=0, energy=17)
        for elapsed in (3.25, 13.5, 31.0):
            session.fake.set_clock(START + elapsed)
            expected = 1e3 * (17 + integral(wave, 0, elapsed))

            energy = session.nvml.nvmlDeviceGetTotalEnergyConsumption(session.gpu)
            assert energy == pytest.approx(expected, abs=1)
            assert session.fields(83) == [(0, energy)]

    def test_utilization_is_the_mean_of_the_last_period(self, start: Any) -> None:
        """Utilization is the rounded mean over the last whole sample period."""
        wave = square(1, 0.5, 100)
        session = start(utilization=wave, sample_period=0.4)
        session.fake.advance(1.9)

        rates = session.nvml.nvmlDeviceGetUtilizationRates(session.gpu)
        assert rates.gpu == round(mean(wave, 1.2, 1.6))

    def test_sample_buffer(self, start: Any) -> None:
        """Each sample is the mean of its period; only newer ones are given, at most depth."""
        wave = sine(3, 50, 40)
        session = start(utilization=wave, samples={"period": 0.25, "depth": 20})
        nvml, gpu = session.nvml, session.gpu
        session.fake.advance(10.1)
        kind, samples = nvml.nvmlDeviceGetSamples(gpu, 1, 0)

        assert (kind, len(samples)) == (1, 20)
        assert samples[-1].timeStamp == int((START + 10) * 1e6)
        assert [s.sampleValue.uiVal for s in samples] == [
            round(mean(wave, k * 0.25 - 0.25, k * 0.25)) for k in range(21, 41)
        ]
        newest = samples[-1].timeStamp
        assert code_of(nvml.nvmlDeviceGetSamples, gpu, 1, newest) == 6
        session.fake.advance(0.25)
        assert len(nvml.nvmlDeviceGetSamples(gpu, 1, newest)[1]) == 1
        assert code_of(nvml.nvmlDeviceGetSamples, gpu, 9, 0) == 3

    def test_raw_samples(self, start: Any) -> None:
        """A scripted sample list replaces the computed one, odd values included."""
        session = start(raw_samples={"1": [[1, 55], [2, 255], [9, 1]]})
        session.fake.advance(3)
        samples = session.nvml.nvmlDeviceGetSamples(session.gpu, 1, 0)[1]

        assert [s.sampleValue.uiVal for s in samples] == [55, 255]

    def test_counters_in_fields(self, start: Any) -> None:
        """Throttle time, link bytes and wrapping PCIe bytes are integrals of their rates."""
        session = start(
            throttle={"power": square(4, 0.25, 1)},
            nvlink={"tx": 18 * 1024 * 1000},
            pcie={"tx": 1e9},
        )
        session.fake.advance(10)

        assert session.fields(74, (138, ALL_LINKS), (138, 5), (138, 18), 197, 204) == [
            (0, int(3e9)),
            (0, 180000),
            (0, 10000),
            (2, 0),
            (0, 10**10 % 2**32),
            (3, 0),
        ]

    def test_totals_go_on_across_a_change(self, start: Any) -> None:
        """A changed scenario bends a counter, it never makes it jump."""
        session = start(power=100)
        session.fake.advance(10)
        session.fake.device(0, power=300)
        session.fake.advance(2)

        assert session.nvml.nvmlDeviceGetTotalEnergyConsumption(session.gpu) == 1_600_000
        session.fake.device(0, generation=2)
        session.fake.advance(1)
        assert session.nvml.nvmlDeviceGetTotalEnergyConsumption(session.gpu) == 300_000

    def test_stated_fields(self, start: Any) -> None:
        """Any field can be scripted: plain, wave, typed, by scope, refused."""
        session = start(
            fields={
                "297": 12,
                "83": {"rate": 5, "type": "ull"},
                "140": {"scope": {"0": 4, "1": steps((0, 1), (5, 8))}},
                "82": {"error": 4},
                "193": {"value": -3, "type": "int"},
            }
        )
        session.fake.advance(6)

        assert session.fields(297, 83, (140, 1), (140, 7), 82) == [
            (0, 12),
            (0, 30),
            (0, 8),
            (2, 0),
            (4, 0),
        ]
        entry = session.nvml.nvmlDeviceGetFieldValues(session.gpu, [193])[0]
        assert (entry.valueType, entry.value.siVal) == (5, -3)

    def test_field_overrun_quirk(self, start: Any) -> None:
        """With the knob on, an NVLink query writes one entry too many."""
        session = start(nvlink_overrun=True)
        entries = (session.nvml.c_nvmlFieldValue_t * 2)()
        entries[0].fieldId = 138
        session.nvml.nvmlLib.nvmlDeviceGetFieldValues(session.gpu, 1, entries)

        assert entries[1].nvmlReturn == 999


class TestGpm:
    def test_means_are_exact(self, start: Any) -> None:
        """Each metric is the exact mean between its two samples, in NVML's units."""
        sm, tensor = square(0.7, 0.4, 95, 5), sine(5, 40, 30)
        session = start(
            gpm={"sm": sm, "tensor": tensor, "nvdec": [10, 20], "pcie_tx": 1048576 * 7},
            nvlink={"rx": 18 * 1048576},
            engines={"nvdec": 2},
        )
        session.fake.advance(3.3)

        got = session.gpm([2, 5, 20, 31, 32, 60, 61, 62, 97, 98, 100, 248], 1.1)
        assert got == {
            2: pytest.approx(mean(sm, 3.3, 4.4)),
            5: pytest.approx(mean(tensor, 3.3, 4.4)),
            20: pytest.approx(7),
            31: pytest.approx(20),
            32: "code 3",
            60: pytest.approx(18),
            61: 0,
            62: pytest.approx(1),
            97: 0,
            98: "code 3",
            100: "code 3",
            248: "code 3",
        }

    def test_percentages_are_shares_of_cycles(self, start: Any) -> None:
        """Where a clock moves, its units' percentages are not those of time; engines' are."""
        busy, clock = square(1, 0.5, 100), square(1, 0.5, 1980, 345)
        memory = square(1, 0.5, 2619, 405)
        gpm = {"graphics": busy, "sm": busy, "tensor": square(1, 0.5, 40), "dram": busy}
        session = start(
            gpm={**gpm, "occupancy": 30, "nvdec": busy}, clocks={"sm": clock, "memory": memory}
        )
        session.fake.advance(3)

        got = session.gpm([1, 2, 3, 5, 10, 30], 2.0)
        assert got == pytest.approx(
            {
                1: 50,
                2: 100 * 1980 / (1980 + 345),
                3: 30,
                5: 40 * 1980 / (1980 + 345),
                10: 100 * 2619 / (2619 + 405),
                30: 50,
            }
        )
        session.fake.device(0, gpm={"semantics": "time"})
        session.fake.advance(1)
        assert session.gpm([1, 2, 5, 10], 2.0) == pytest.approx({1: 50, 2: 50, 5: 20, 10: 50})

    def test_short_window_is_nan(self, start: Any) -> None:
        """Below 100 ms there is no valid value; listed ids are NaN always."""
        session = start(gpm={"sm": 50, "nan_ids": [10], "unsupported_ids": [3]})

        assert math.isnan(session.gpm([2], 0.05)[2])
        again = session.gpm([2, 3, 10], 0.1)
        assert (again[2], again[3]) == (pytest.approx(50), "code 3")
        assert math.isnan(again[10])

    @pytest.mark.parametrize(("cycles", "sms"), [("summed", 132), ("averaged", 1)])
    def test_cumulative_cycles(self, start: Any, cycles: str, sms: int) -> None:
        """Cycle counters are activity times clock, even when both change."""
        active, clock = square(2, 0.5, 80), steps((0, 1000), (5, 2000))
        session = start(
            gpm={"sm": active, "cumulative": True, "cycles": cycles, "pcie_rx": 100},
            clocks={"sm": clock},
        )
        session.fake.advance(9)

        got = session.gpm([248, 249, 256], 1)
        assert got[248] == pytest.approx(sms * 1e6 * integral(clock, 0, 10))
        assert got[249] == pytest.approx(sms * 1e6 * 0.8 * (1000 * 3 + 2000 * 2))
        assert got[256] == 1000

    def test_versions_and_support(self, start: Any) -> None:
        """Another struct version is refused, and so is a GPU without GPM."""
        session = start(product="a100-sxm4-80gb")
        nvml = session.nvml
        sample = nvml.nvmlGpmSampleAlloc()
        get = nvml.c_nvmlGpmMetricsGet_t(version=2, numMetrics=0)

        assert nvml.nvmlGpmQueryDeviceSupport(session.gpu).isSupportedDevice == 0
        assert code_of(nvml.nvmlGpmSampleGet, session.gpu, sample) == 3
        assert code_of(nvml.nvmlGpmMetricsGet, get) == 25


class TestMig:
    INSTANCES = (
        {"gi": 7, "ci": 0, "profile": "1g.10gb", "sm_count": 16, "memory_mb": 9728,
         "memory_used": 1048576, "gpm": {"sm": 25}},
        {"gi": 2, "ci": 0, "index": 3, "profile": "3g.40gb", "uuid": "MIG-abc", "sm_count": 60,
         "slices": 3, "gpm": {"sm": square(1, 0.5, 100)}},
    )  # fmt: skip

    def test_inventory(self, start: Any) -> None:
        """Instances have ids, names, sizes and memory; the list has holes."""
        session = start(
            mig={"instances": list(self.INSTANCES)},
            processes=[{"pid": 5, "bytes": 1, "gi": 7, "ci": 0}],
        )
        nvml, gpu = session.nvml, session.gpu
        first = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)
        second = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 3)

        assert nvml.nvmlDeviceGetMigMode(gpu) == [1, 1]
        assert nvml.nvmlDeviceGetMaxMigDeviceCount(gpu) == 7
        assert code_of(nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, 1) == 6
        assert nvml.nvmlDeviceGetName(first) == "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
        assert nvml.nvmlDeviceGetUUID(second) == "MIG-abc"
        assert nvml.nvmlDeviceGetGpuInstanceId(second) == 2
        assert nvml.nvmlDeviceGetAttributes_v2(second).multiprocessorCount == 60
        assert nvml.nvmlDeviceGetMemoryInfo(first).used == 1048576
        assert nvml.nvmlDeviceIsMigDeviceHandle(first).value == 1
        assert len(nvml.nvmlDeviceGetComputeRunningProcesses_v3(first)) == 1
        assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(second) == []
        parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(first)
        assert nvml.nvmlDeviceGetIndex(parent) == 0

    def test_utilization_is_refused(self, start: Any) -> None:
        """With MIG on there is no utilization, of the GPU or of an instance."""
        session = start(mig={"instances": list(self.INSTANCES)})
        mig = session.nvml.nvmlDeviceGetMigDeviceHandleByIndex(session.gpu, 0)

        for handle in (session.gpu, mig):
            assert code_of(session.nvml.nvmlDeviceGetUtilizationRates, handle) == 3
        assert code_of(session.nvml.nvmlDeviceGetSamples, session.gpu, 1, 0) == 3

    def test_gpm_per_instance(self, start: Any) -> None:
        """GPM reads one GPU instance, without link rates."""
        session = start(mig={"instances": list(self.INSTANCES)})

        assert session.gpm([2, 20], 0.75, instance=2) == {
            2: pytest.approx(100 * 0.5 / 0.75),
            20: "code 3",
        }
        assert session.gpm([2], 0.75, instance=7) == {2: pytest.approx(25)}
        sample = session.nvml.nvmlGpmSampleAlloc()
        assert code_of(session.nvml.nvmlGpmMigSampleGet, session.gpu, 5, sample) == 2


class TestEvents:
    def test_each_xid_comes_once(self, start: Any) -> None:
        """An Xid is delivered once, in order; one from before registration is lost."""
        xids = [
            {"at": 1, "gpu": 0, "xid": 13},
            {"at": 5, "gpu": 0, "xid": 79},
            {"at": 4, "gpu": 0, "xid": 31},
        ]
        session = start(top={"xids": xids})
        nvml = session.nvml
        session.fake.advance(2)
        events = nvml.nvmlEventSetCreate()
        nvml.nvmlDeviceRegisterEvents(session.gpu, 8, events)

        assert nvml.nvmlDeviceGetSupportedEventTypes(session.gpu) & 8
        assert code_of(nvml.nvmlEventSetWait_v2, events, 1) == 10
        session.fake.advance(4)
        for expected in (31, 79):
            event = nvml.nvmlEventSetWait_v2(events, 1)
            assert (event.eventType, event.eventData) == (8, expected)
            assert nvml.nvmlDeviceGetIndex(event.device) == 0
        assert code_of(nvml.nvmlEventSetWait_v2, events, 1) == 10
        nvml.nvmlEventSetFree(events)


class TestFaults:
    def test_uninitialised(self, start: Any) -> None:
        """Before init and after the last shutdown every call answers UNINITIALIZED."""
        session = start()
        session.nvml.nvmlInit()
        session.nvml.nvmlShutdown()
        assert session.nvml.nvmlDeviceGetCount() == 1
        session.nvml.nvmlShutdown()

        assert code_of(session.nvml.nvmlDeviceGetCount) == 1
        assert code_of(session.nvml.nvmlShutdown) == 1

    def test_init_can_fail(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A fault on init gives its code until it is gone."""
        scenario = {"faults": [fault("nvmlInit*", error=9, until=5)]}
        fake = FakeNvml(tmp_path, scenario, clock=START)
        nvml = fake.activate(monkeypatch)

        assert code_of(nvml.nvmlInit) == 9
        fake.advance(5)
        assert code_of(nvml.nvmlInit) == 0

    def test_errors_and_latency(self, start: Any) -> None:
        """Faults match by function glob, GPU and time; latency really passes."""
        session = start(
            top={
                "faults": [
                    fault("nvmlGpm*", error=4),
                    fault("nvmlDeviceGetPowerUsage", gpu=1, error=999),
                    fault("*Temperature", latency_us=30000),
                ]
            }
        )
        nvml, gpu = session.nvml, session.gpu
        begun = time.monotonic()

        assert code_of(nvml.nvmlGpmQueryDeviceSupport, gpu) == 4
        assert code_of(nvml.nvmlDeviceGetPowerUsage, gpu) == 0
        assert nvml.nvmlDeviceGetTemperature(gpu, 0) == 35
        assert time.monotonic() - begun >= 0.03

    def test_lost(self, start: Any) -> None:
        """A lost GPU answers 15, but can still be counted and named."""
        session = start(lost=steps((0, 0), (10, 1), (20, 0)))
        nvml, gpu = session.nvml, session.gpu
        session.fake.advance(10)

        for refused in (nvml.nvmlDeviceGetPowerUsage, nvml.nvmlDeviceGetPciInfo):
            assert code_of(refused, gpu) == 15
        assert nvml.nvmlDeviceGetCount() == 1
        assert nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(0))
        session.fake.advance(10)
        assert code_of(nvml.nvmlDeviceGetPowerUsage, gpu) == 0

    def test_removed_gpu_is_lost(self, start: Any) -> None:
        """The handle of a GPU that left the scenario answers 15; a denied one has its code."""
        session = start()
        session.fake.update(devices=[])

        assert code_of(session.nvml.nvmlDeviceGetPowerUsage, session.gpu) == 15
        session.fake.update(devices=[{"handle_error": 4}])
        assert code_of(session.nvml.nvmlDeviceGetHandleByIndex, 0) == 4

    def test_hang_and_recover(self, start: Any) -> None:
        """A wedged call returns only after the fault is gone, with the reading of then."""
        session = start(top={"faults": [fault("nvmlDeviceGetPowerUsage", hang=True)]}, power=99)
        results: list[int] = []
        thread = threading.Thread(
            target=lambda: results.append(session.nvml.nvmlDeviceGetPowerUsage(session.gpu)),
            daemon=True,
        )
        thread.start()
        thread.join(0.1)

        assert thread.is_alive()
        assert session.nvml.nvmlDeviceGetTemperature(session.gpu, 0) == 35
        session.fake.update(faults=[])
        thread.join(5)
        assert results == [99000]

    def test_calls_are_counted(self, start: Any) -> None:
        """The statistics file says which functions were called how often."""
        session = start()
        for _ in range(3):
            session.nvml.nvmlDeviceGetPowerUsage(session.gpu)

        assert session.fake.calls()["nvmlDeviceGetPowerUsage"] == 3
        assert session.fake.calls()["nvmlInitWithFlags"] == 1

    def test_reloads_on_the_real_clock(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without a frozen clock a change is seen too, and time passes by itself."""
        fake = FakeNvml(tmp_path, {"devices": {"count": 2, "template": {"power": 100}}})
        session = Session(fake, monkeypatch)
        other = session.nvml.nvmlDeviceGetHandleByIndex(1)
        before = session.nvml.nvmlDeviceGetTotalEnergyConsumption(session.gpu)
        fake.device(1, temperature={"gpu": 77})

        assert session.nvml.nvmlDeviceGetTemperature(other, 0) == 77
        assert session.nvml.nvmlDeviceGetTemperature(session.gpu, 0) == 35
        assert session.nvml.nvmlDeviceGetTotalEnergyConsumption(session.gpu) > before

    def test_counters_never_step_back(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Threads that read while the scenario changes see counters that only rise."""
        fake = FakeNvml(tmp_path, {"devices": {"count": 2, "template": {"power": 500}}})
        session = Session(fake, monkeypatch)
        nvml = session.nvml
        stop = threading.Event()
        backwards: list[tuple[int, int]] = []

        def watch(index: int) -> None:
            gpu = nvml.nvmlDeviceGetHandleByIndex(index)
            last = 0
            while not stop.is_set():
                energy = nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
                if energy < last:
                    backwards.append((last, energy))
                last = energy

        threads = [threading.Thread(target=watch, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for power in (50, 500) * 5:
            fake.update(devices={"count": 2, "template": {"power": power}})
        stop.set()
        for thread in threads:
            thread.join()

        assert backwards == []


class TestOtherProcesses:
    def run(self, fake: FakeNvml, code: str) -> str:
        """What a fresh Python prints that finds the library by the dynamic linker."""
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **fake.environment()},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def test_pynvml_finds_it(self, tmp_path: Path) -> None:
        """LD_LIBRARY_PATH is enough for pynvml in another process, and its calls count here."""
        fake = FakeNvml(tmp_path, {"devices": {"count": 8, "template": {"product": "b200"}}})
        code = "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetCount())"

        assert self.run(fake, code).strip() == "8"
        assert fake.calls()["nvmlDeviceGetCount_v2"] == 1

    def test_nvitop_reads_it(self, tmp_path: Path) -> None:
        """nvitop, a large client with its own binding layer, sees GPUs and MIG devices."""
        pytest.importorskip("nvitop")
        mig = {"mig": {"instances": [{"gi": 1}]}}
        fake = FakeNvml(tmp_path, {"devices": [{"utilization": 60, "power": 400}, mig]})
        code = (
            "import time, nvitop; time.sleep(0.5)\n"
            "a, b = nvitop.Device.all()\n"
            "print(a.name(), a.gpu_utilization(), a.power_usage(), len(b.mig_devices()))"
        )

        assert self.run(fake, code).strip() == "NVIDIA H100 80GB HBM3 60 400000 1"

    def test_two_builds_in_one_process(self, tmp_path: Path) -> None:
        """Builds loaded by full path are separate libraries, although they share a SONAME."""
        old = FakeNvml(tmp_path / "old", {}, missing=("nvmlDeviceGetTemperatureV",))
        new = FakeNvml(tmp_path / "new", {})
        code = (
            "import ctypes\n"
            f"old, new = ctypes.CDLL({str(old.library)!r}), ctypes.CDLL({str(new.library)!r})\n"
            "name = 'nvmlDeviceGetTemperatureV'\n"
            "print(hasattr(old, name), hasattr(new, name))\n"
            "print(hasattr(ctypes.CDLL('libnvidia-ml.so.1'), name))"
        )

        assert self.run(new, code).split() == ["False", "True", "False"]
