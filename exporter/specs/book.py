# SPDX-License-Identifier: Apache-2.0
"""Finds the GPU model of a device, and its ceilings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from exporter.model.reading import Device
from exporter.model.snapshot import Ceilings
from exporter.specs.derived import (
    bus_width,
    derived_ceilings,
    implied_tensor_clock,
    positive,
    rule_for,
    sms_of,
)
from exporter.specs.gpu_class import MODULE_CAPABILITIES, is_part_of_a_gpu, memory_utilization_use
from exporter.specs.gpu_model import GpuModel, assumed_precision, pcie_bytes_per_second

MEMORY_CLOCK_TOLERANCE = 0.05
"""Vendors overclock by up to 3 %; boards of one name with other memory differ by at least 5 %."""

BUS_WIDTH_TOLERANCE = 0.1
"""Drivers have counted spare memory channels (a B200 is 7680 bits by new drivers and 8192 by older
ones); boards that differ in hardware differ by a sixth or more."""


class SpecBook:
    """All GPU models by key; several may share a name or a PCI id."""

    def __init__(self, models: Mapping[str, GpuModel], sources: Mapping[str, str]) -> None:
        self.models = models
        self.sources = sources
        """By code in ``GpuModel.sources``: its text."""
        self._by_name: dict[str, list[GpuModel]] = {}
        for model in models.values():
            for name in dict.fromkeys(map(bare_name, model.names)):
                self._by_name.setdefault(name, []).append(model)
        self._by_pci_id: dict[int, list[GpuModel]] = {}
        for model in models.values():
            for pci_id in set(model.pci_ids):
                self._by_pci_id.setdefault(pci_id, []).append(model)

    def find(self, device: Device) -> GpuModel | None:
        """Return the model of this GPU, or None where no row is certainly the right one.

        The PCI device id decides if it names one row, else the exact name; of several rows with
        this id (a laptop GPU and its Max-Q version) those with this name. A row whose compute
        capability, cores or bus width are not what NVML reports describes other hardware. If more
        than one is left (a GPU sold with two types of memory), the one with the nearest memory
        clock is meant; without a PCI id, or of one PCI id without that clock, the first.
        """
        if is_part_of_a_gpu(device):
            return None
        named = self._by_name.get(bare_name(device.name), [])
        pci_id = device.pci_device_id
        candidates = [] if pci_id is None else self._by_pci_id.get(pci_id, [])
        if len(candidates) != 1:
            keys = {model.key for model in named}
            candidates = [model for model in candidates if model.key in keys] or named
        fitting = [model for model in candidates if not _contradicts(model, device)]
        if len(fitting) > 1:
            known = "memory" in device.clock_max_hertz or pci_id not in fitting[0].pci_ids
            usual = fitting[:1] if pci_id is None or not known else []
            fitting = _nearest_memory_clock(fitting, device) or usual
        return fitting[0] if len(fitting) == 1 else None

    def ceilings(self, device: Device, precision: str | None = None) -> Ceilings | None:
        """Return the ceilings of the whole GPU; None if nothing is known of it, or for a vGPU.

        `precision` is the one to count tensor work in (bf16, fp8_tensor ...) if the GPU has it.
        """
        if is_part_of_a_gpu(device):
            return None
        model = self.find(device)
        if model is None:
            ceilings = _derived_ceilings(device, precision)
        else:
            ceilings = _listed_ceilings(model, device, precision)
        use = memory_utilization_use(device)
        return None if ceilings is None else replace(ceilings, memory_utilization_use=use)


def bare_name(name: str) -> str:
    """Return the name without the "NVIDIA " that newer drivers put before it."""
    return name.strip().removeprefix("NVIDIA ")


def _contradicts(model: GpuModel, device: Device) -> bool:
    capability = device.compute_capability
    if capability is not None and capability != model.compute_capability:
        return True
    # While MIG is on, SMs that no instance can use may be missing from the count.
    cores = None if device.mig else positive(device.core_count)
    if cores is None and model.compute_capability in MODULE_CAPABILITIES:
        return True  # One name, and one PCI id, stand for modules of several sizes.
    if cores is not None and model.core_count not in (None, cores):
        return True
    bits = positive(device.memory_bus_width_bits)
    width = model.memory_bus_width_bits
    return bits is not None and width is not None and abs(bits / width - 1) > BUS_WIDTH_TOLERANCE


def _nearest_memory_clock(models: list[GpuModel], device: Device) -> list[GpuModel]:
    """Return the GPU model whose memory clock is nearest to NVML's; none if several are as near."""
    clock = positive(device.clock_max_hertz.get("memory"))
    if clock is None:
        return []
    listed = [(model, model.peak_clock_hertz.get("memory")) for model in models]
    off = [(abs(clock / hertz - 1), model) for model, hertz in listed if hertz is not None]
    least = min((distance for distance, _ in off), default=1.0)
    nearest = [model for distance, model in off if distance == least]
    return nearest if len(nearest) == 1 and least <= MEMORY_CLOCK_TOLERANCE else []


def _peak_clocks(model: GpuModel, device: Device, sm_count: int | None) -> Mapping[str, float]:
    """Return the clocks of the row; where it has no tensor clock, the one that its peaks imply."""
    clocks = model.peak_clock_hertz
    rule = rule_for(replace(device, compute_capability=model.compute_capability))
    if "tensor" in clocks or rule is None:
        return clocks
    highest = clocks.get("vector") or positive(device.clock_max_hertz.get("sm"))
    implied = implied_tensor_clock(
        model.peak_flops_per_second, rule.flops_per_clock, sm_count, highest
    )
    return clocks if implied is None else {**clocks, "tensor": implied}


def _listed_ceilings(model: GpuModel, device: Device, precision: str | None) -> Ceilings:
    sm_count = model.sm_count or sms_of(device.core_count, model.cores_per_sm)
    return Ceilings(
        spec=model.key,
        peak_flops_per_second=model.peak_flops_per_second,
        peak_clock_hertz=_peak_clocks(model, device, sm_count),
        memory_bandwidth_bytes_per_second=model.memory_bandwidth_bytes_per_second,
        achievable_ratio=model.achievable_ratio,
        memory_bus_width_bits=model.memory_bus_width_bits or bus_width(device),
        sm_count=sm_count,
        link_bandwidth_bytes_per_second=_links(device, model),
        architecture=model.architecture,
        assumed_precision=assumed_precision(model.peak_flops_per_second, precision),
    )


def _derived_ceilings(device: Device, precision: str | None) -> Ceilings | None:
    derived, links = derived_ceilings(device, precision), _links(device, None)
    if not (derived.peak_flops_per_second or derived.peak_clock_hertz or links):
        return None
    return replace(derived, link_bandwidth_bytes_per_second=links)


def _links(device: Device, model: GpuModel | None) -> dict[str, float]:
    """Return the bandwidth per direction of each link that is known to be there; of PCIe the lesser
    of what the row and NVML say: a slot can have fewer lanes than the GPU."""
    nvlink = positive(device.nvlink_bandwidth_bytes_per_second)
    c2c = positive(device.c2c_bandwidth_bytes_per_second)
    pcie = [pcie_bytes_per_second(device.pcie_generation_max, device.pcie_width_max)]
    if model is not None:
        nvlink = model.nvlink_bandwidth_bytes_per_second or nvlink
        c2c = model.c2c_bandwidth_bytes_per_second or c2c
        pcie.append(pcie_bytes_per_second(model.pcie_generation, model.pcie_lanes))
    links = {
        "pcie": min((rate for rate in pcie if rate is not None), default=None),
        "nvlink": None if device.nvlink_count == 0 else nvlink,
        "c2c": c2c,
    }
    return {link: rate for link, rate in links.items() if rate is not None}
