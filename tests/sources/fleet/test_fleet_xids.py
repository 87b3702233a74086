# SPDX-License-Identifier: Apache-2.0
"""Xids and device counts through the whole fleet: real threads, the fake driver, a kernel log."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from exporter.sources.xids import events as xid_events
from tests.fake_nvml import fault
from tests.sources.fleet.conftest import Start
from tests.waiting import wait_until

BUS = "00000000:65:00.0"
UUID = "GPU-aaaaaaaa-0000-0000-0000-000000000001"
DEVICES = [{"uuid": UUID, "pci_bus_id": BUS}, {}]


class Node:
    """A fleet on a scenario, with its own /sys, /proc and /dev/kmsg."""

    def __init__(self, start: Start, folder: Path) -> None:
        self.sysfs, self.procfs = folder / "sys", folder / "proc"
        self.kmsg = folder / "kmsg"
        self.kmsg.touch()
        self._start = start

    def start(self) -> None:
        self.fleet, self.fake = self._start(
            {"devices": DEVICES}, kernel_log=str(self.kmsg), procfs=str(self.procfs)
        )
        wait_until(lambda: len(self.reads()) == 2)
        wait_until(lambda: self.reads() and self.registrations() >= 2)

    def registrations(self) -> int:
        return self.fake.calls().get("nvmlDeviceRegisterEvents", 0)

    def reads(self) -> list[int]:
        """After one more round: which GPUs have a reading."""
        self.fleet.round(0.1)
        return [r.index for r in self.fleet.reports() if r.reading is not None]

    def is_without_driver(self, failures: int) -> bool:
        """After one more round: no reading, and at least so many failed initialisations."""
        return not self.reads() and self.fleet.failed_initialisations >= failures

    def happen(self, xid: int) -> None:
        """The driver's events report an Xid of GPU 0."""
        self.fake.happen((0, xid))

    def log(self, xid: int) -> None:
        """The kernel logs an Xid of GPU 0."""
        with self.kmsg.open("a") as file:
            file.write(f"4,1,2,-;NVRM: Xid (PCI:0000:65:00): {xid}, pid=1, name=x\n")

    def counts(self) -> dict[int, int]:
        return {code: record.count for code, record in self.fleet.xids().get(UUID, {}).items()}


@pytest.fixture(name="node")
def _node(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(xid_events, "WAIT_MILLISECONDS", 100)
    monkeypatch.setattr(xid_events, "NOTHING_TO_WAIT_FOR_SECONDS", 0.02)
    return Node(start, tmp_path)


def test_an_xid_that_events_and_kernel_log_tell_counts_once(node: Node) -> None:
    """Whichever is first; one that only one of them reports counts, too."""
    node.start()
    node.happen(79)
    wait_until(lambda: node.counts() == {79: 1})
    node.log(79)
    node.log(48)
    wait_until(lambda: node.counts() == {48: 1, 79: 1})
    node.happen(48)
    node.happen(31)
    wait_until(lambda: node.counts() == {31: 1, 48: 1, 79: 1})


@pytest.mark.slow
def test_a_gpu_that_left_the_bus_is_found_by_its_place(node: Node) -> None:
    """The driver neither lists it nor has events for it; the kernel log still names it."""
    node.start()
    node.fake.update(devices=[{"lost": 1, **DEVICES[0]}, {}])
    wait_until(lambda: node.reads() == [1])
    node.log(79)
    wait_until(lambda: node.counts() == {79: 1})

    node.fake.update(devices=[DEVICES[1]])
    wait_until(lambda: node.fleet.reports()[1].problem)
    node.log(79)
    wait_until(lambda: node.counts() == {79: 2})


def test_events_go_on_after_the_library_was_initialised_again(node: Node) -> None:
    """Each generation of the library has its own set; the counts stay."""
    node.start()
    node.happen(79)
    wait_until(lambda: node.counts() == {79: 1})
    shutdowns = node.fake.calls().get("nvmlShutdown", 0)
    node.fake.update(faults=[fault("nvmlDevice*", error=9), fault("nvmlInit*", error=9)])
    wait_until(partial(node.is_without_driver, 1))
    assert "nvml" not in node.fleet.devices()
    node.fake.update(faults=[])
    registrations = node.registrations()
    wait_until(lambda: len(node.reads()) == 2 and node.registrations() >= registrations + 2)
    node.happen(62)
    wait_until(lambda: node.counts() == {62: 1, 79: 1})

    assert node.fake.calls().get("nvmlShutdown", 0) == shutdowns + 1


def test_a_wait_that_never_returns_forbids_the_shutdown(node: Node) -> None:
    """A shutdown under a call crashes; the new generation begins without it."""
    node.start()
    hang = fault("nvmlEventSetWait_v2", hang=True)
    lost = [fault("nvmlDeviceGet*", error=9), fault("nvmlInit*", error=9)]
    node.fake.update(faults=[hang])
    waits = node.fake.calls()["nvmlEventSetWait_v2"]
    wait_until(lambda: node.fake.calls()["nvmlEventSetWait_v2"] > waits)
    # The second time the stuck wait is that of an earlier generation.
    for failures in (1, 2):
        node.fake.update(faults=[hang, *lost])
        wait_until(partial(node.is_without_driver, failures))
        node.fake.update(faults=[hang])
        wait_until(lambda: len(node.reads()) == 2)

    assert node.fake.calls().get("nvmlShutdown", 0) == 0


def test_devices_are_counted_by_the_bus_the_driver_and_nvml(node: Node) -> None:
    """A GPU that NVML misses shows as a difference."""
    for address in ("0000:65:00.0", "0000:66:00.0", "0000:67:00.0"):
        folder = node.sysfs / "bus/pci/devices" / address
        folder.mkdir(parents=True)
        (folder / "vendor").write_text("0x10de\n")
        (folder / "class").write_text("0x030200\n")
        os.makedirs(node.procfs / "driver/nvidia/gpus" / address)
    node.start()

    assert node.fleet.devices() == {"pci": 3, "driver": 3, "nvml": 2}
