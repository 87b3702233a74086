# SPDX-License-Identifier: Apache-2.0
"""Identity of GPUs, and the sources of their readings."""

from __future__ import annotations

from exporter.exposition.family import Family, core_gauge, core_info, gauge, info
from exporter.exposition.labels import Label, text
from exporter.exposition.parts import DEVICE, GPU, PEERS, SATURATION, Rows
from exporter.model.reading import Device, capability_text
from exporter.model.snapshot import Gpu, Saturation

_MODES = ("persistence", "compute", "ecc", "mig", "virtualization", "confidential")


_IDENTITY = (
    Label("name", meaning="GPU model as the driver names it"),
    Label("architecture", meaning="such as Hopper"),
    Label("compute_capability", meaning="such as 9.0"),
    Label("pci_bus_id", meaning="domain:bus:device.function"),
    Label("serial", meaning="empty with --no-identity.serial"),
    Label("board_part_number"),
    Label("minor_number", meaning="the N of /dev/nvidiaN"),
    Label("numa_node", meaning="of its own memory, where that is a node, as on Grace Hopper"),
    Label("numa_affinity", meaning="the NUMA node that it is attached to"),
    Label("cpu_affinity", meaning="online CPUs of that node, such as 0-55,112-167"),
    Label("driver_version"),
    Label("cuda_version", meaning="newest CUDA version that the driver supports"),
    Label("vbios_version"),
    Label("spec", meaning="key of the GPU model in the spec file, or derived"),
    Label("source", ("nvml", "replay", "simulate")),
)
"""Labels that have the names of the fields of `Device`, but for spec."""


def _info(gpu: Gpu) -> Rows:
    device = gpu.device
    own = {
        "compute_capability": capability_text(device.compute_capability),
        "spec": None if gpu.ceilings is None else gpu.ceilings.spec,
    }
    names = (label.name for label in _IDENTITY)
    yield tuple(text(own[n] if n in own else getattr(device, n)) for n in names), 1


def _saturation_source(saturation: Saturation) -> Rows:
    yield (saturation.source, "yes" if saturation.complete else "no"), 1


def _modes(device: Device) -> Rows:
    if device.modes:
        yield tuple(device.modes.get(mode, "") for mode in _MODES), 1


def _instances(device: Device) -> Rows:
    for instance in device.instances:
        ids = (str(instance.gpu_instance), str(instance.compute_instance))
        yield (*ids, instance.profile, instance.mig_uuid), 1


FAMILIES: tuple[Family, ...] = (
    core_info(
        "gpu_info",
        "What this GPU is; labels that are not known are empty.",
        "NVML identity queries, and /sys for affinity, every minute; spec names the row of the "
        "spec file, or derived",
        GPU.rows(_IDENTITY, _info),
    ),
    core_gauge(
        "gpu_up",
        "1 while this GPU answers and its readings are fresh, else 0 and its other series are "
        "gone.",
        "outcome of the fast reads at the poll interval",
        GPU.one(lambda gpu: int(gpu.up)),
    ),
    gauge(
        "gpu_last_read_timestamp_seconds",
        "Unix time of this GPU's last successful fast read; its counters are exact at this time.",
        "host clock",
        GPU.one(lambda gpu: gpu.last_read_timestamp_seconds),
    ),
    core_info(
        "gpu_saturation_source_info",
        "Where saturation comes from, and whether every unit that it needs was read.",
        "the first source that answers for this GPU of gpm, dcgm and cupti, else an estimate",
        SATURATION.rows(
            (
                Label("source", meaning="gpm, dcgm, cupti, or estimate"),
                Label("complete", ("yes", "no")),
            ),
            _saturation_source,
        ),
    ),
    info(
        "gpu_mode_info",
        "Modes that an administrator sets; labels that are not known are empty.",
        "nvmlDeviceGetPersistenceMode, ComputeMode, EccMode, MigMode, VirtualizationMode and "
        "nvmlSystemGetConfComputeState",
        DEVICE.rows(tuple(Label(mode) for mode in _MODES), _modes),
    ),
    info(
        "gpu_mig_info",
        "One series for each MIG compute instance.",
        "nvmlDeviceGetMigDeviceHandleByIndex and the ids of each handle",
        DEVICE.rows(
            (
                Label("gpu_instance", meaning="GPU instance id"),
                Label("compute_instance", meaning="compute instance id"),
                Label("profile", meaning="such as 3g.40gb"),
                Label("mig_uuid"),
            ),
            _instances,
        ),
    ),
    info(
        "gpu_topology_info",
        "How this GPU is linked with each other GPU of a node of 2 to 16, as nvidia-smi topo -m "
        "has it: NV and the number of NVLinks, else what the way over PCIe leads through: PIX (a "
        "switch), PXB (several), PHB (a host bridge), NODE (two), SYS (two NUMA nodes). No series "
        "where that is not known, as in a vGPU guest.",
        "nvmlDeviceGetNvLinkState, RemoteDeviceType and RemotePciInfo of each link, /sys/devices "
        "and NUMA nodes, every minute",
        PEERS.rows(
            (
                Label("peer_gpu", meaning="gpu of the other one"),
                Label("peer_uuid"),
                Label("link", meaning="NV18, PIX, PXB, PHB, NODE or SYS"),
            ),
            lambda peers: [((str(each.index), each.uuid, each.link), 1) for each in peers],
        ),
    ),
)
