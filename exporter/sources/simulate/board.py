# SPDX-License-Identifier: Apache-2.0
"""What is constant on a simulated board during an act: identity, memory, health, limits."""

from __future__ import annotations

import math
from uuid import NAMESPACE_DNS, uuid5

from exporter.model.reading import NVSWITCH, Board, Device, Health, Memory, Process
from exporter.sources.simulate.physics import Behaviour, Hardware
from exporter.sources.simulate.stories import Holder
from exporter.sources.simulate.workloads import Work, membership
from exporter.specs import GpuModel

SIMULATE = "simulate"
"""The name of this source, as its GPUs and its state show it."""
GENERATION_CHANGE = (8, 0)
"""Ampere: from here on rows are remapped; before, pages are retired."""
LINK_BYTES_PER_SECOND = 25e9
"""Of one NVLink per direction, Volta to Hopper; twice that on Blackwell."""
BLACKWELL = (10, 0)
RESERVED_RATIO = 0.007
MAX_CELSIUS = {"shutdown": 95.0, "slowdown": 92.0, "gpu_max": 87.0}
GPUS_PER_NUMA_NODE = 4
CPUS_PER_NUMA_NODE = 56
SWITCHED_LINKS = 18
"""GPUs with so many NVLinks are made for NVSwitches; those of others are not connected here."""
FIRST_PID = 100_000
CPU_CORES = {"training": 1.05, "serving": 1.4}
"""By class of work: how many CPU cores its process keeps busy; others wait."""


def simulated_device(model: GpuModel, board: Hardware, index: int, identity: str) -> Device:
    """Return the identity of GPU `index` of the node that `identity` names."""
    uuid = uuid5(NAMESPACE_DNS, f"{identity}/{index}")
    links = _links(model)
    node = index // GPUS_PER_NUMA_NODE
    address = f"{index // 16:04X}:{0x10 + index % 16 * 8:02X}:00.0"
    thresholds = dict(MAX_CELSIUS)
    if board.stacked_memory:
        thresholds["memory_max"] = 95.0
    return Device(
        index=index,
        uuid=f"GPU-{uuid}",
        name=model.names[0],
        source=SIMULATE,
        architecture=model.architecture,
        compute_capability=model.compute_capability,
        pci_bus_id=f"0000{address}",
        pci_device_id=model.pci_ids[0] if model.pci_ids else None,
        serial=f"SIM{uuid.int % 10**10:010d}",
        minor_number=index,
        numa_affinity=node,
        cpu_affinity=_cpus(node),
        pci_path=(f"pci0000:{node:02x}", f"0000:{address}"),
        driver_version="simulated",
        core_count=model.core_count,
        memory_bus_width_bits=model.memory_bus_width_bits,
        memory_bytes=board.memory_bytes,
        clock_max_hertz={
            "sm": board.clock_hertz,
            "memory": board.memory_clock_hertz,
            "graphics": board.clock_hertz,
            "video": board.clock_hertz * 0.8,
        },
        power_default_limit_watts=board.power_watts,
        power_max_limit_watts=board.power_watts,
        temperature_threshold_celsius=thresholds,
        pcie_generation_max=model.pcie_generation,
        pcie_width_max=model.pcie_lanes,
        nvlink_count=links,
        nvlink_ends={NVSWITCH: links} if links >= SWITCHED_LINKS else {},
        nvlink_bandwidth_bytes_per_second=board.nvlink_bytes_per_second or None,
        modes={
            "persistence": "on",
            "compute": "default",
            "ecc": "on" if _has_ecc(model) else "off",
            "mig": "off",
            "virtualization": "none",
        },
    )


def _cpus(node: int) -> str:
    return f"{node * CPUS_PER_NUMA_NODE}-{(node + 1) * CPUS_PER_NUMA_NODE - 1}"


def _links(model: GpuModel) -> int:
    bandwidth = model.nvlink_bandwidth_bytes_per_second or 0.0
    one = LINK_BYTES_PER_SECOND * (2 if model.compute_capability >= BLACKWELL else 1)
    return round(bandwidth / one)


def _has_ecc(model: GpuModel) -> bool:
    return "GeForce" not in model.names[0]


def healthy(model: GpuModel) -> Health:
    """Return the health of a board that never had an error."""
    none = {
        severity: {"dram": 0, "sram": 0}
        for severity in (("corrected", "uncorrected") if _has_ecc(model) else ())
    }
    links = _links(model)
    remaps = _has_ecc(model) and model.compute_capability >= GENERATION_CHANGE
    retires = _has_ecc(model) and not remaps
    return Health(
        ecc_errors_total=none,
        ecc_lifetime_errors=none,
        remapped_rows={"correctable": 0, "uncorrectable": 0} if remaps else {},
        row_remap_pending=False if remaps else None,
        row_remap_failure=False if remaps else None,
        row_remap_banks=(
            {"max": 640, "high": 0, "partial": 0, "low": 0, "none": 0} if remaps else {}
        ),
        retired_pages={"single_bit": 0, "double_bit": 0} if retires else {},
        retired_pages_pending=False if retires else None,
        recovery_action=0,
        nvlink_links={"active": links, "inactive": 0} if links else {},
        nvlink_links_expected=links or None,
    )


def memory_of(board: Hardware, behaviour: Behaviour) -> Memory:
    """Return the memory in use on a board with this behaviour."""
    reserved = round(board.memory_bytes * RESERVED_RATIO)
    used = round((board.memory_bytes - reserved) * behaviour.memory)
    return Memory(
        total_bytes=board.memory_bytes,
        used_bytes=used,
        free_bytes=board.memory_bytes - reserved - used,
        reserved_bytes=reserved,
    )


def processes_of(
    holder: Holder | None, memory: Memory, index: int, work: Work
) -> tuple[Process, ...]:
    """Return the one process that holds GPU `index`, if any; it is of the first workload."""
    if holder is None:
        return ()
    return (
        Process(
            pid=FIRST_PID + index,
            kind="compute",
            used_bytes=memory.used_bytes,
            command=holder.command,
            owner=holder.owner,
            work_class=holder.work_class,
            membership=membership(work),
            cpu_cores=CPU_CORES.get(holder.work_class, 0.0),
            cpu_list=_cpus(index // GPUS_PER_NUMA_NODE),
        ),
    )


def slow_readings(model: GpuModel, board: Hardware, behaviour: Behaviour, celsius: float) -> Board:
    """Return the board's slow readings at a temperature."""
    has_fan = not _has_ecc(model)
    bar1 = 2 ** math.ceil(math.log2(board.memory_bytes))
    generation = model.pcie_generation
    return Board(
        power_limit_watts=board.power_watts * behaviour.limit_ratio,
        temperature_margin_celsius=MAX_CELSIUS["slowdown"] - celsius,
        fan_speed_ratios=(min(1.0, max(0.3, (celsius - 25.0) / 60.0)),) if has_fan else (),
        performance_state=0 if behaviour.awake else 8,
        bar1_used_bytes=2**20,
        bar1_total_bytes=bar1,
        pcie_generation=generation if behaviour.awake or board.stacked_memory else 1,
        pcie_width=model.pcie_lanes,
        pcie_replays_total=0,
        nvlink_errors_total=(
            {"crc_flit": 0, "replay": 0, "recovery": 0} if board.nvlink_bytes_per_second else {}
        ),
    )
