# SPDX-License-Identifier: Apache-2.0
"""The fake NVML library answers unmodified clients, and its readings agree with each other."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.fake_nvml import (
    FakeNvml,
    build,
    integral,
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

    def gpm(self, ids: list[int], seconds: float) -> dict[int, float]:
        """Metrics over the next `seconds`."""
        nvml = self.nvml
        samples = [nvml.nvmlGpmSampleAlloc() for _ in range(2)]
        for i, sample in enumerate(samples):
            if i:
                self.fake.advance(seconds)
            nvml.nvmlGpmSampleGet(self.gpu, sample)
        get = nvml.c_nvmlGpmMetricsGet_t(
            version=1, numMetrics=len(ids), sample1=samples[0], sample2=samples[1]
        )
        for i, metric in enumerate(ids):
            get.metrics[i].metricId = metric
        nvml.nvmlGpmMetricsGet(get)
        for sample in samples:
            nvml.nvmlGpmSampleFree(sample)
        return {metric: get.metrics[i].value for i, metric in enumerate(ids)}


@pytest.fixture(name="start")
def _start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Start a session on one GPU with the given readings."""

    def start(*, missing: tuple[str, ...] = (), top: Any = None, **gpu: Any) -> Session:
        scenario = {"devices": [gpu], **(top or {})}
        fake = FakeNvml(tmp_path, scenario, missing=missing, clock=START)
        return Session(fake, monkeypatch)

    return start


class TestBuild:
    def test_compiles_without_warnings(self) -> None:
        """The C code is clean under -Wall -Wextra -Werror."""
        assert build(extra_flags=("-Werror",)).exists()


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


class TestGpm:
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


class TestFaults:
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
