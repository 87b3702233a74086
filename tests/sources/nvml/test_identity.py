# SPDX-License-Identifier: Apache-2.0
"""Which GPU it is, and its MIG layout."""

from __future__ import annotations

from typing import Any

import pynvml
import pytest

from exporter.model.reading import NVSWITCH, Device, Instance
from exporter.sources.nvml.identity import name_of
from exporter.sources.nvml.layout import mig_devices
from tests.fake_nvml import DRIVER_470, DRIVER_535, DRIVER_550, fault
from tests.sources.conftest import Open

MIB = 2**20


def device(rig: Any) -> Device:
    found = rig.source().device
    assert isinstance(found, Device)
    return found


def test_every_fact_of_an_h100(open_gpu: Open) -> None:
    """Each identity reading is there, in base units, with the newest driver."""
    rig = open_gpu(
        top={
            "driver_version": "580.95.05",
            "cuda_version": "13.0",
            "confidential_compute": {"feature": 1},
        },
        uuid="GPU-1234",
        serial="1650",
        board_part_number="692-2G520",
        vbios="96.00.74",
        pci_bus_id="00000000:1B:00.0",
        minor=5,
        numa_node=1,
        modes={"persistence": 1, "compute": 3, "virtualization": 1},
        power_limits={"default": 650, "max": 700},
    )

    assert device(rig) == Device(
        index=0,
        uuid="GPU-1234",
        name="NVIDIA H100 80GB HBM3",
        architecture="Hopper",
        compute_capability=(9, 0),
        pci_bus_id="00000000:1B:00.0",
        pci_device_id=0x2330,
        serial="1650",
        board_part_number="692-2G520",
        minor_number=5,
        numa_node=1,
        driver_version="580.95.05",
        cuda_version="13.0",
        vbios_version="96.00.74",
        core_count=16896,
        memory_bus_width_bits=5120,
        memory_bytes=85520809984,
        clock_max_hertz={"graphics": 1980e6, "sm": 1980e6, "memory": 2619e6, "video": 1545e6},
        power_default_limit_watts=650.0,
        power_max_limit_watts=700.0,
        temperature_threshold_celsius={
            "shutdown": 95.0,
            "slowdown": 92.0,
            "memory_max": 95.0,
            "gpu_max": 87.0,
        },
        pcie_generation_max=5,
        pcie_width_max=16,
        nvlink_count=18,
        nvlink_bandwidth_bytes_per_second=18 * 26562e6,
        nvlink_ends={NVSWITCH: 18},
        modes={
            "persistence": "on",
            "compute": "exclusive_process",
            "ecc": "on",
            "mig": "off",
            "virtualization": "passthrough",
            "confidential": "on",
        },
    )
    assert (rig.journal.states, rig.failures) == ({}, {})


@pytest.mark.parametrize(
    ("missing", "absent"),
    [
        (DRIVER_470, {"core_count", "memory_bus_width_bits", "numa_node"}),
        (DRIVER_535, {"numa_node"}),
        (DRIVER_550, set()),
    ],
    ids=["470", "535", "550"],
)
def test_older_drivers_lack_facts_only(
    open_gpu: Open, missing: tuple[str, ...], absent: set[str]
) -> None:
    """On an older driver the facts that it does not report are absent, and all others there."""
    rig = open_gpu(missing=missing)
    found = device(rig)
    not_of_the_driver = {"cpu_affinity", "numa_affinity"}
    names = set(Device.__slots__) - {"c2c_bandwidth_bytes_per_second"} - not_of_the_driver

    assert {name for name in names if getattr(found, name) is None} == absent
    assert ("confidential" in found.modes) == (missing is not DRIVER_470)
    assert rig.failures == {}


def test_name_that_is_not_utf8(open_gpu: Open) -> None:
    """Bytes that are not UTF-8 are replaced; the GPU stays usable."""
    assert device(open_gpu(name_hex="4750ff55")).name == "GP�U"


def test_unknown_product(open_gpu: Open) -> None:
    """A GPU newer than this program has no architecture, and all the rest."""
    found = device(open_gpu(product="unknown"))

    assert found.architecture is None
    assert found.compute_capability == (19, 0)


def test_facts_that_a_product_lacks_are_absent(open_gpu: Open) -> None:
    """What the driver does not tell is None, without a state, and is asked for once."""
    rig = open_gpu(product="rtx-4090", board_part_number=None, numa_node=None)
    source = rig.source()
    rig.calls()
    source.read_static()

    assert source.device.serial is source.device.board_part_number is None
    assert source.device.nvlink_count == 0
    assert source.device.nvlink_bandwidth_bytes_per_second is None
    assert not {"nvmlDeviceGetSerial", "nvmlDeviceGetNumaNodeId"} & rig.calls().keys()
    assert rig.journal.states == {}


def test_node_minus_one_is_none(open_gpu: Open) -> None:
    """NUMA node -1 means that the GPU has no node."""
    assert device(open_gpu(numa_node=-1)).numa_node is None


def test_coherent_memory_by_its_links(open_gpu: Open) -> None:
    """A GPU with chip-to-chip links shares the CPU's address space."""
    found = device(open_gpu(c2c={"links": 10, "max_bandwidth_mbps": 45000}))

    assert found.coherent_memory
    assert found.c2c_bandwidth_bytes_per_second == 450e9


@pytest.mark.parametrize(
    ("name", "coherent"),
    [
        *(("NVIDIA GH200 480GB", True), ("NVIDIA GB200", True), ("NVIDIA GB10", True)),
        *(("NVIDIA H100 80GB HBM3", False), ("NVIDIA B200", False)),
    ],
)
def test_coherent_memory_by_its_name(open_gpu: Open, name: str, coherent: bool) -> None:
    """Grace modules are known by name where the driver does not count their links."""
    assert device(open_gpu(name=name)).coherent_memory is coherent


def test_vgpu_guest(open_gpu: Open) -> None:
    """In a vGPU guest utilization covers other guests too, and the device says so."""
    found = device(open_gpu(modes={"virtualization": 2}))

    assert found.virtualized
    assert found.modes["virtualization"] == "vgpu_guest"
    assert not device(open_gpu(modes={"virtualization": 3})).virtualized


def test_unknown_modes_are_absent(open_gpu: Open) -> None:
    """A mode that is newer than this program is left out."""
    modes = device(open_gpu(modes={"compute": 77, "virtualization": 77})).modes

    assert not {"compute", "virtualization"} & modes.keys()


def test_gpu_without_a_uuid_cannot_be_read(open_gpu: Open) -> None:
    """Nothing is published for a GPU that cannot be named."""
    rig = open_gpu()
    rig.fake.update(faults=[fault("nvmlDeviceGetUUID", error=999)])

    with pytest.raises(pynvml.NVMLError_Unknown):
        rig.source()


def test_minimal_identity_of_a_lost_gpu(open_gpu: Open) -> None:
    """A GPU that was lost before it was read has a name if that can be read."""
    rig = open_gpu(uuid="GPU-9", lost=1)

    assert name_of(rig.handle) == "unknown"
    rig.fake.device(0, lost=0)
    assert name_of(rig.handle) == "NVIDIA H100 80GB HBM3"


INSTANCES = [
    {"gi": 1, "ci": 0, "index": 0, "profile": "3g.40gb", "uuid": "MIG-a", "sm_count": 60},
    {"gi": 2, "ci": 0, "index": 3, "profile": "1c.2g.20gb", "uuid": "MIG-b", "sm_count": 16},
    {"gi": 2, "ci": 1, "index": 4, "profile": "1c.2g.20gb", "uuid": "MIG-c", "sm_count": 16},
]


def test_mig_layout_with_holes_and_shared_instances(open_gpu: Open) -> None:
    """Every MIG device is listed, past holes in the numbering, also several in one instance."""
    rig = open_gpu(mig={"instances": INSTANCES})
    found = device(rig)

    assert (found.mig, found.modes["mig"]) == (True, "on")
    assert found.instances == (
        Instance(1, 0, "3g.40gb", "MIG-a", 60, 9728 * MIB),
        Instance(2, 0, "1c.2g.20gb", "MIG-b", 16, 9728 * MIB),
        Instance(2, 1, "1c.2g.20gb", "MIG-c", 16, 9728 * MIB),
    )


def test_mig_instance_without_sizes(open_gpu: Open) -> None:
    """The layout holds if the driver does not report an instance's size."""
    rig = open_gpu(mig={"instances": INSTANCES})
    rig.fake.update(faults=[fault("nvmlDeviceGetAttributes_v2", error=3)])
    found = device(rig).instances

    assert [(entry.sm_count, entry.memory_bytes) for entry in found] == [(None, None)] * 3


UNDECIDED = [
    *(("nvmlDeviceGetMigMode", code) for code in (15, 18, 999, 10)),
    *(("nvmlDeviceGetMigDeviceHandleByIndex", code) for code in (15, 18, 999, 10)),
    *(("nvmlDeviceGetGpu*Id", code) for code in (999, 10)),
]


@pytest.mark.parametrize(("call", "code"), UNDECIDED)
def test_undecided_mig_layout_is_raised(open_gpu: Open, call: str, code: int) -> None:
    """A layout that is not known now must not be taken for another one."""
    rig = open_gpu(mig={"instances": INSTANCES})
    rig.fake.update(faults=[fault(call, error=code)])

    with pytest.raises(pynvml.NVMLError):
        mig_devices(rig.handle)
