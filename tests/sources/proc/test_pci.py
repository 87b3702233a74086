# SPDX-License-Identifier: Apache-2.0
"""How many GPUs the bus, the kernel driver and NVML count, and which are asleep."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.sources.proc.pci import (
    DeviceCounts,
    driver_gpus,
    gpu_addresses,
    is_suspended,
    pci_gpus,
)
from tests.clocks import ManualClock


def function(sysfs: Path, address: str, vendor: str, kind: str) -> None:
    """Put one PCI function into a sysfs tree."""
    folder = sysfs / "bus/pci/devices" / address
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "class").write_text(f"{kind}\n")


def test_only_gpus_of_nvidia_count(tmp_path: Path) -> None:
    """Graphics cards and 3D controllers count; their sound functions, NVSwitches and others no."""
    function(tmp_path, "0000:01:00.0", "0x10de", "0x030000")
    function(tmp_path, "0000:01:00.1", "0x10de", "0x040300")
    function(tmp_path, "0000:02:00.0", "0x10de", "0x030200")
    function(tmp_path, "0000:03:00.0", "0x10de", "0x068000")
    function(tmp_path, "0000:04:00.0", "0x1a03", "0x030000")

    assert pci_gpus(tmp_path) == 2


def test_none_and_not_known_are_different(tmp_path: Path) -> None:
    """A bus without GPUs counts 0; without an answer there is no count."""
    assert pci_gpus(tmp_path) is None
    assert driver_gpus(tmp_path) is None
    (tmp_path / "bus/pci/devices").mkdir(parents=True)
    (tmp_path / "driver/nvidia/gpus").mkdir(parents=True)

    assert pci_gpus(tmp_path) == 0
    assert driver_gpus(tmp_path) == 0


def test_the_bus_is_looked_at_once_a_minute(tmp_path: Path) -> None:
    """NVML's count is always the newest; without the library it is absent, the others stay."""
    clock = ManualClock()
    counts = DeviceCounts(str(tmp_path), str(tmp_path / "proc"), clock)
    assert counts.read() == {}
    function(tmp_path, "0000:01:00.0", "0x10de", "0x030000")
    counts.count(1)
    assert counts.read() == {"pci": 1, "nvml": 1}

    function(tmp_path, "0000:02:00.0", "0x10de", "0x030000")
    (tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0").mkdir(parents=True)
    clock.advance(59)
    counts.count(None)
    assert counts.read() == {"pci": 1}

    clock.advance(1)
    counts.count(2)
    assert counts.read() == {"pci": 2, "driver": 1, "nvml": 2}


def device(sysfs: Path, address: str, status: str) -> None:
    power = sysfs / "bus/pci/devices" / address / "power"
    power.mkdir(parents=True, exist_ok=True)
    (power / "runtime_status").write_text(f"{status}\n")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("suspended", True),
        ("suspending", True),
        ("active", False),
        ("", False),
    ],
)
def test_states(tmp_path: Path, status: str, expected: bool) -> None:
    """One that is falling asleep would be woken as well."""
    device(tmp_path, "0000:01:00.0", status)
    assert is_suspended(str(tmp_path), "0000:01:00.0") is expected


@pytest.mark.parametrize(
    ("address", "folder"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("00010000:3B:00.0", "10000:3b:00.0"),
    ],
)
def test_addresses_as_the_driver_writes_them(tmp_path: Path, address: str, folder: str) -> None:
    """NVML has eight digits of domain and capitals, sysfs four and none."""
    device(tmp_path, folder, "suspended")
    assert is_suspended(str(tmp_path), address)


@pytest.mark.parametrize("address", ["", "x", "0000:01", "../../etc:01:00.0", "0000:01:00.9", "::"])
def test_what_is_no_address_does_not_sleep(tmp_path: Path, address: str) -> None:
    """Nothing outside the devices' folder is read."""
    device(tmp_path, "0000:01:00.0", "suspended")
    assert not is_suspended(str(tmp_path), address)


def test_without_sysfs_nothing_sleeps(tmp_path: Path) -> None:
    """A container without /sys, or WSL2."""
    assert not is_suspended(str(tmp_path / "none"), "0000:01:00.0")
    assert gpu_addresses(str(tmp_path / "none")) == ()


def test_the_gpus_of_the_driver(tmp_path: Path) -> None:
    """Only devices count, not the files beside them."""
    driver = tmp_path / "bus/pci/drivers/nvidia"
    driver.mkdir(parents=True)
    for name in ("bind", "unbind", "new_id", "module", "0000:65:00.0", "0000:01:00.0"):
        (driver / name).touch()
    assert gpu_addresses(str(tmp_path)) == ("0000:01:00.0", "0000:65:00.0")
