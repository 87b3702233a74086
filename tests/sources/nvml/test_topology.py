# SPDX-License-Identifier: Apache-2.0
"""How GPUs are linked, as the driver and /sys have it: real pynvml on the fake driver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pynvml
import pytest

from exporter.derive.topology import peers
from exporter.model.reading import NVSWITCH, Device
from exporter.sources.nvml.links import nvlink_ends
from exporter.sources.nvml.reader import NvmlSource
from exporter.sources.proc.pci import placed
from exporter.sources.reading_state import Journal
from tests.fake_nvml import fault
from tests.fake_nvml.machines import BRIDGED_PAIRS, DGX_H100, PCIE_BOX, TWO_SOCKETS, Machine
from tests.sources.conftest import Open


class Opened:
    """A machine, with its GPUs opened by this exporter's own code."""

    def __init__(self, machine: Machine, folder: Path, open_gpu: Open) -> None:
        self._sysfs = machine.write(folder / "machine")
        self._rig = open_gpu(top={"devices": machine.devices})
        self.fake = self._rig.fake
        self._count = len(machine.devices)

    def devices(self) -> list[Device]:
        handles = map(self._rig.library.handle, range(self._count))
        return [
            NvmlSource(handle, index, "/proc", Journal(""), sysfs=self._sysfs).device
            for index, handle in enumerate(handles)
        ]


@pytest.fixture(name="open_machine")
def _open_machine(tmp_path: Path, open_gpu: Open) -> Any:
    return lambda machine: Opened(machine, tmp_path, open_gpu)


def matrix(devices: Iterable[Device]) -> list[list[str]]:
    """The links of each GPU, with X for itself and ? where one is not known."""
    gpus = tuple(devices)
    found = peers(gpus)
    links = [{peer.uuid: peer.link for peer in found.get(gpu.uuid, ())} for gpu in gpus]
    return [
        ["X" if one is other else row.get(other.uuid, "?") for other in gpus]
        for one, row in zip(gpus, links, strict=True)
    ]


@pytest.mark.parametrize("machine", [DGX_H100, PCIE_BOX, BRIDGED_PAIRS], ids=range(3))
def test_every_link_of_a_machine(open_machine: Any, machine: Machine) -> None:
    """As nvidia-smi topo -m has it, with the CPUs and the NUMA node of each GPU."""
    devices = open_machine(machine).devices()

    assert matrix(devices) == machine.rows
    assert [each.numa_affinity for each in devices] == list(machine.nodes)
    assert [each.cpu_affinity for each in devices] == [TWO_SOCKETS[each] for each in machine.nodes]


@pytest.mark.parametrize("call", ["State", "RemoteDeviceType", "RemotePciInfo_v2"])
def test_one_refusal_harms_no_other_gpu(open_machine: Any, call: str) -> None:
    """Where a GPU does not say where an NVLink leads, its links are not taken for PCIe."""
    opened = open_machine(BRIDGED_PAIRS)
    opened.fake.update(faults=[fault(f"nvmlDeviceGetNvLink{call}", gpu=0, error=3)])
    [first, *others] = matrix(opened.devices())

    assert first == ["X", "?", "?", "?"]
    assert [row[1:] for row in others] == [row[1:] for row in BRIDGED_PAIRS.rows[1:]]


def test_an_inactive_link_does_not_count(open_machine: Any) -> None:
    """A bridge of which a link is down has the others; of both ends the lower number counts."""
    opened = open_machine(BRIDGED_PAIRS)
    opened.fake.device(1, nvlink={"inactive": [0, 7]})

    assert matrix(opened.devices())[0] == ["X", "NV10", "SYS", "SYS"]


def test_an_end_that_is_not_known_yet(open_machine: Any) -> None:
    """It is asked for again, and until then no link of the GPU is known."""
    opened = open_machine(DGX_H100)
    opened.fake.device(2, nvlink={"remote": "unknown"})
    handle = pynvml.nvmlDeviceGetHandleByIndex(2)
    with pytest.raises(pynvml.NVMLError):
        nvlink_ends(handle, 18, {}, lambda: None)
    assert matrix(opened.devices())[2] == ["X" if at == 2 else "?" for at in range(8)]
    opened.fake.device(2, nvlink={"remote": "switch"})
    assert nvlink_ends(handle, 18, {}, lambda: None) == {NVSWITCH: 18}


def test_a_guest_with_a_vgpu_knows_no_link(open_machine: Any) -> None:
    """The tree that a guest sees is the hypervisor's."""
    opened = open_machine(PCIE_BOX)
    opened.fake.device(0, modes={"virtualization": 2})
    [first, second, *_] = devices = opened.devices()

    assert first.virtualized
    assert (first.pci_path, first.cpu_affinity, first.numa_affinity) == ((), None, None)
    assert second.numa_affinity == 0
    assert matrix(devices)[0] == ["X", "?", "?", "?", "?", "?"]


def place(sysfs: Path, node: str, cpus: Sequence[str]) -> tuple[int | None, str | None]:
    nodes = dict(enumerate(cpus))
    machine = Machine([], ["pci0000:00/0000:00:01.0/0000:01:00.0"], [0], nodes, "")
    machine.write(sysfs)
    (sysfs / "bus/pci/devices/0000:01:00.0/numa_node").write_text(node)
    found = placed(str(sysfs), "00000000:01:00.0")
    assert found["pci_path"] == ("pci0000:00", "0000:00:01.0", "0000:01:00.0")
    return found["numa_affinity"], found["cpu_affinity"]


def test_firmware_that_names_no_node(tmp_path: Path) -> None:
    """-1 says nothing on a machine of two nodes; on one of a single node it is that one."""
    assert place(tmp_path / "two", "-1", ["0-3", "4-7"]) == (None, None)
    assert place(tmp_path / "old", "0", []) == (0, None)
    assert place(tmp_path / "one", "-1", ["0-15"]) == (0, "0-15")
    assert place(tmp_path / "memory-only", "1", ["0-15", ""]) == (1, None)


def test_without_sysfs_nothing_is_known(tmp_path: Path) -> None:
    """Neither an absent tree nor an odd address is an error."""
    nothing = {"pci_path": (), "numa_affinity": None, "cpu_affinity": None}
    assert placed(str(tmp_path), "00000000:01:00.0") == nothing
    assert placed(str(tmp_path), "../../etc") == {}


def test_hyper_v(tmp_path: Path) -> None:
    """There a PCI root is below the VMBus; each GPU has one of its own."""
    path = "LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/47505500-0001/pci0001:00/0001:00:00.0"
    sysfs = Machine([], [path], [0], {0: "0-47", 1: "48-95"}, "").write(tmp_path / "sys")

    assert placed(sysfs, "00000001:00:00.0")["pci_path"] == ("pci0001:00", "0001:00:00.0")


def test_no_call_names_two_gpus(open_machine: Any) -> None:
    """So no GPU waits for another one, or is taken for lost with it."""
    opened = open_machine(PCIE_BOX)
    opened.devices()
    called = opened.fake.calls()

    assert not [name for name in called if "Topology" in name or "P2P" in name]
