# SPDX-License-Identifier: Apache-2.0
"""The fake NVML library answers unmodified clients, and its readings agree with each other."""

from __future__ import annotations

import os
import subprocess
import sys
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


@pytest.fixture(name="start")
def _start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Start a session on one GPU with the given readings."""

    def start(*, missing: tuple[str, ...] = (), top: Any = None, **gpu: Any) -> Session:
        scenario = {"devices": [gpu], **(top or {})}
        fake = FakeNvml(tmp_path, scenario, missing=missing, clock=START)
        return Session(fake, monkeypatch)

    return start


WAVES = (
    square(7, 0.3, 400, 90, phase=1.5),
    sine(11, 250, 100),
    steps((0, 100), (5, 300), (20, 50)),
    123.25,
)


def test_compiles_without_warnings() -> None:
    """The C code is clean under -Wall -Wextra -Werror."""
    assert build(extra_flags=("-Werror",)).exists()


@pytest.mark.parametrize("wave", WAVES)
def test_energy_is_the_integral_of_power(start: Any, wave: Any) -> None:
    """The energy counter and the power gauge agree, to the millijoule."""
    session = start(power=wave, power_window=0, energy=17)
    for elapsed in (3.25, 13.5, 31.0):
        session.fake.set_clock(START + elapsed)
        expected = 1e3 * (17 + integral(wave, 0, elapsed))

        energy = session.nvml.nvmlDeviceGetTotalEnergyConsumption(session.gpu)
        assert energy == pytest.approx(expected, abs=1)
        assert session.fields(83) == [(0, energy)]


def test_totals_go_on_across_a_change(start: Any) -> None:
    """A changed scenario bends a counter, it never makes it jump."""
    session = start(power=100)
    session.fake.advance(10)
    session.fake.device(0, power=300)
    session.fake.advance(2)

    assert session.nvml.nvmlDeviceGetTotalEnergyConsumption(session.gpu) == 1_600_000
    session.fake.device(0, generation=2)
    session.fake.advance(1)
    assert session.nvml.nvmlDeviceGetTotalEnergyConsumption(session.gpu) == 300_000


def test_reloads_on_the_real_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a frozen clock a change is seen too, and time passes by itself."""
    fake = FakeNvml(tmp_path, {"devices": {"count": 2, "template": {"power": 100}}})
    session = Session(fake, monkeypatch)
    other = session.nvml.nvmlDeviceGetHandleByIndex(1)
    before = session.nvml.nvmlDeviceGetTotalEnergyConsumption(session.gpu)
    fake.device(1, temperature={"gpu": 77})

    assert session.nvml.nvmlDeviceGetTemperature(other, 0) == 77
    assert session.nvml.nvmlDeviceGetTemperature(session.gpu, 0) == 35
    assert session.nvml.nvmlDeviceGetTotalEnergyConsumption(session.gpu) > before


def test_pynvml_of_another_process_finds_it(tmp_path: Path) -> None:
    """LD_LIBRARY_PATH is enough, and its calls count here."""
    fake = FakeNvml(tmp_path, {"devices": {"count": 8, "template": {"product": "b200"}}})
    code = "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetCount())"
    environment = {**os.environ, **fake.environment()}
    printed = subprocess.check_output([sys.executable, "-c", code], env=environment, timeout=60)

    assert printed.strip() == b"8"
    assert fake.calls()["nvmlDeviceGetCount_v2"] == 1
