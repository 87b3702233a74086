# SPDX-License-Identifier: Apache-2.0
"""The fake NVML library answers unmodified clients, and its readings agree with each other."""

from __future__ import annotations

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
