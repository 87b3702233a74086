# SPDX-License-Identifier: Apache-2.0
"""Which GPUs sleep, by sysfs."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.sources.proc.suspended import gpu_addresses, is_suspended


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
        ("resuming", False),
        ("error", False),
        ("unsupported", False),
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
