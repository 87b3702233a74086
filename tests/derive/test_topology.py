# SPDX-License-Identifier: Apache-2.0
"""Links between GPUs on published machines, and how far a process is from its GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from exporter.derive.topology import MOST_GPUS, numa_misaligned_ratio, peers
from exporter.model.reading import NVSWITCH, Device, Process


def gpu(index: int, **facts: Any) -> Device:
    return Device(index, f"GPU-{index}", "", **{"nvlink_ends": {}, **facts})


def links(*gpus: Device) -> dict[tuple[int, int], str]:
    found = peers(gpus)
    return {
        (each.index, peer.index): peer.link for each in gpus for peer in found.get(each.uuid, ())
    }


def path(text: str) -> tuple[str, ...]:
    """From the root, as ``lspci -t`` shows it: functions without their domain."""
    return tuple(text.split())


def below(root: str, *switches: str, device: str) -> tuple[str, ...]:
    """NCCL's XML names the port of a switch that is above; each way has one below as well."""
    ways = zip(switches, (*switches[1:], device), strict=True)
    ports = [port for switch, to in ways for port in (switch, f"{switch} to {to}")]
    return (root, f"{root} to {switches[0]}", *ports, device)


DGX_A100 = {
    "GPU0": (below("00", "01", "05", "06", device="07:00.0"), 3, 12),
    "GPU1": (below("00", "01", "0a", "0d", device="0f:00.0"), 3, 12),
    "mlx5_0": (below("00", "01", "0a", device="0c:00.0"), 3, 0),
    "mlx5_4": (("60", "60 to 61", "61:00.0"), 0, 0),
    "mlx5_5": (("60", "60 to 61", "61:00.1"), 0, 0),
}
"""NCCL's XML, and topo -m on the same machine: NVIDIA/nccl#1505. The XML is nested as here; of its
ports 0a and 0d are published, and the devices' addresses."""

DGX_1 = {
    "GPU0": (below("00", "03", device="06:00.0"), 0, 0),
    "GPU1": (below("00", "03", device="07:00.0"), 0, 0),
    "GPU2": (below("00", "08", device="0a:00.0"), 0, 0),
    "GPU4": (below("80", "83", device="85:00.0"), 1, 0),
}
"""NCCL's XML (NVIDIA/nccl#671), and what topo -mp, without NVLinks, prints on a DGX-1."""


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (DGX_A100, ["NV12 PXB SYS SYS", "PXB SYS SYS", "SYS SYS", "PIX"]),
        (DGX_1, ["PIX PHB SYS", "PHB SYS", "SYS"]),
    ],
    ids=["dgx-a100", "dgx-1"],
)
def test_a_published_tree(
    machine: Mapping[str, tuple[tuple[str, ...], int, int]], expected: list[str]
) -> None:
    """Trees of which topo -m is published, too: network cards have places as GPUs do."""
    devices = [
        gpu(
            index,
            pci_path=way,
            numa_affinity=node,
            nvlink_ends={NVSWITCH: nvlinks} if nvlinks else {},
        )
        for index, (way, node, nvlinks) in enumerate(machine.values())
    ]
    found = links(*devices)
    half = [
        " ".join(found[one, other] for other in range(one + 1, len(devices)))
        for one in range(len(devices) - 1)
    ]
    assert half == expected
    assert all(found[other, one] == link for (one, other), link in found.items())


DGX_1V = {
    "00000000:06:00.0": {"07": 1, "0A": 1, "0B": 2, "85": 2},
    "00000000:07:00.0": {"06": 1, "0A": 2, "0B": 1, "86": 2},
    "00000000:0A:00.0": {"06": 1, "07": 2, "0B": 2, "89": 1},
    "00000000:0B:00.0": {"06": 2, "07": 1, "0A": 2, "8A": 1},
}
"""Half of a cube mesh of V100 (NVIDIA/nccl#671): NVLinks by the other GPU's bus."""


def test_a_published_cube_mesh() -> None:
    """NV1 and NV2, as a DGX-1's topo -m has them; links to GPUs that are not seen count nothing."""

    def ends(buses: Mapping[str, int]) -> dict[str, int]:
        return {f"00000000:{bus}:00.0": count for bus, count in buses.items()}

    half = [
        gpu(index, pci_bus_id=address, nvlink_ends=ends(buses))
        for index, (address, buses) in enumerate(DGX_1V.items())
    ]
    assert links(*half) == {
        (one, other): f"NV{count}"
        for one, row in enumerate([(0, 1, 1, 2), (1, 0, 2, 1), (1, 2, 0, 2), (2, 1, 2, 0)])
        for other, count in enumerate(row)
        if count
    }


ONE_SWITCH = path("pci0000:16 16:02.0 17:00.0 18:00.0 19:00.0")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param({NVSWITCH: 18}, {NVSWITCH: 17}, "NV17", id="fewer"),
        pytest.param({NVSWITCH: 18}, {}, "SYS", id="one without"),
        pytest.param({NVSWITCH: 18}, None, None, id="not known"),
        pytest.param({}, None, None, id="not known of the other"),
        pytest.param({"C": 4}, {NVSWITCH: 4}, "SYS", id="elsewhere"),
    ],
)
def test_nvlinks_win_where_both_ends_say_so(
    first: Mapping[str, int] | None, second: Mapping[str, int] | None, expected: str | None
) -> None:
    """Ends that are not known are no proof that there is no NVLink."""
    pair = [
        gpu(
            index,
            nvlink_ends=ends,
            pci_path=(f"pci0000:{index}0", f"{index}1:00.0"),
            numa_affinity=index,
        )
        for index, ends in enumerate((first, second))
    ]
    assert links(*pair).get((0, 1)) == links(*pair).get((1, 0)) == expected


def test_an_address_that_only_one_end_names_is_no_link() -> None:
    """A guest sees other addresses than the links of its GPUs name."""
    one = gpu(0, pci_bus_id="A", nvlink_ends={"B": 4}, pci_path=ONE_SWITCH)
    other = gpu(1, pci_bus_id="B", nvlink_ends={"C": 4}, pci_path=ONE_SWITCH)
    assert links(one, other) == {(0, 1): "PIX", (1, 0): "PIX"}


def test_what_is_not_known_is_absent() -> None:
    """Two host bridges without a NUMA node are not called NODE or SYS; nor is a GPU nowhere."""
    one = gpu(0, pci_path=path("pci0000:00 01:00.0"), numa_affinity=0)
    other = gpu(1, pci_path=path("pci0000:40 41:00.0"))
    assert links(one, other, gpu(2)) == {}


def test_how_many_gpus_have_pairs() -> None:
    """One GPU has none, 16 have 240, and more have none."""
    node = [gpu(index, pci_path=ONE_SWITCH) for index in range(MOST_GPUS + 1)]
    assert links(node[0]) == links(*node) == {}
    assert len(links(*node[:MOST_GPUS])) == MOST_GPUS * (MOST_GPUS - 1)


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        ("0-3", 0.0),
        ("8-11", 0.0),
        ("4-7", 1.0),
        ("0-7", 0.5),
        ("3-6,12", 0.8),
        ("", None),
        ("0-3,", None),
        ("3,1-", None),
        (None, None),
    ],
)
def test_the_share_of_cpus_on_other_nodes(allowed: str | None, expected: float | None) -> None:
    """Nothing is said of a list that is not one."""
    process = Process(1, "compute", cpu_list=allowed)
    assert numa_misaligned_ratio(process, Device(0, "", "", cpu_affinity="0-3,8-11")) == expected


def test_a_gpu_whose_node_is_not_known() -> None:
    """No process is misaligned there."""
    process = Process(1, "compute", cpu_list="0-63")
    assert numa_misaligned_ratio(process, Device(0, "GPU-0", "")) is None
