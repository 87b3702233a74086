# SPDX-License-Identifier: Apache-2.0
"""The fake NVML library answers unmodified clients, and its readings agree with each other."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
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


class TestReadings:
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


class TestFaults:
    def test_init_can_fail(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A fault on init gives its code until it is gone."""
        scenario = {"faults": [fault("nvmlInit*", error=9, until=5)]}
        fake = FakeNvml(tmp_path, scenario, clock=START)
        nvml = fake.activate(monkeypatch)

        assert code_of(nvml.nvmlInit) == 9
        fake.advance(5)
        assert code_of(nvml.nvmlInit) == 0

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
