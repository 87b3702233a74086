# SPDX-License-Identifier: Apache-2.0
"""How many GPUs the bus, the kernel driver and NVML count."""

from __future__ import annotations

from pathlib import Path

from exporter.sources.proc.device_counts import DeviceCounts, driver_gpus, pci_gpus
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


def test_a_function_that_goes_while_it_is_looked_at_does_not_count(tmp_path: Path) -> None:
    """What cannot be read is no GPU, and no error."""
    function(tmp_path, "0000:01:00.0", "0x10de", "0x030000")
    (tmp_path / "bus/pci/devices/0000:02:00.0").mkdir()
    function(tmp_path, "0000:03:00.0", "0x10de", "what")

    assert pci_gpus(tmp_path) == 1


def test_none_and_not_known_are_different(tmp_path: Path) -> None:
    """A bus without GPUs counts 0; without an answer there is no count."""
    assert pci_gpus(tmp_path) is None
    assert driver_gpus(tmp_path) is None
    (tmp_path / "bus/pci/devices").mkdir(parents=True)
    (tmp_path / "driver/nvidia/gpus").mkdir(parents=True)

    assert pci_gpus(tmp_path) == 0
    assert driver_gpus(tmp_path) == 0


def test_the_drivers_gpus_are_its_folders(tmp_path: Path) -> None:
    """The kernel driver lists each GPU that it has by its bus address."""
    for address in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / "driver/nvidia/gpus" / address).mkdir(parents=True)

    assert driver_gpus(tmp_path) == 2


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
