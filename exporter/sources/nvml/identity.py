# SPDX-License-Identifier: Apache-2.0
"""Which GPU this is: its model, limits and modes, which hardly change."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from ctypes import create_string_buffer
from functools import partial
from typing import Any

import pynvml

from exporter.model.reading import Device, Instance
from exporter.sources.nvml import plausible
from exporter.sources.nvml.fields import Field
from exporter.sources.nvml.links import nvlink_ends
from exporter.sources.nvml.plausible import PossibleRange, thousandth
from exporter.sources.nvml.probe import Probe, probe_of
from exporter.sources.proc.pci import placed
from exporter.sources.reading_state import IDENTITY, Journal
from exporter.specs.gpu_class import SYSTEM_MEMORY_CAPABILITIES

ARCHITECTURES: Mapping[int, str] = {
    pynvml.NVML_DEVICE_ARCH_KEPLER: "Kepler",
    pynvml.NVML_DEVICE_ARCH_MAXWELL: "Maxwell",
    pynvml.NVML_DEVICE_ARCH_PASCAL: "Pascal",
    pynvml.NVML_DEVICE_ARCH_VOLTA: "Volta",
    pynvml.NVML_DEVICE_ARCH_TURING: "Turing",
    pynvml.NVML_DEVICE_ARCH_AMPERE: "Ampere",
    pynvml.NVML_DEVICE_ARCH_ADA: "Ada",
    pynvml.NVML_DEVICE_ARCH_HOPPER: "Hopper",
    pynvml.NVML_DEVICE_ARCH_BLACKWELL: "Blackwell",
    13: "Rubin",
}
CLOCKS: Mapping[str, int] = {
    "graphics": pynvml.NVML_CLOCK_GRAPHICS,
    "sm": pynvml.NVML_CLOCK_SM,
    "memory": pynvml.NVML_CLOCK_MEM,
    "video": pynvml.NVML_CLOCK_VIDEO,
}
THRESHOLDS: Mapping[str, int] = {
    "shutdown": pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN,
    "slowdown": pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,
    "memory_max": pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX,
    "gpu_max": pynvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX,
}
VIRTUALIZATION = ("none", "passthrough", "vgpu_guest", "vgpu_host", "vsga_host")
COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
"""By NVML's numbers."""
STATIC_FIELDS: tuple[Field, ...] = ((91, 0), (90, 0), (170, 0), (172, 0))
"""NVLinks and the MB/s of each; chip-to-chip links and the MB/s of each."""
LONGEST_TEXT = 256
UNKNOWN_NAME = "unknown"
GRACE_MODULE = re.compile(r"\bG[BH](?:\d00|10)\b")


def text(function: str, *arguments: Any) -> str:
    """Call an NVML getter of the form ``f(..., buffer, length)``, and return the text.

    Bytes that are not UTF-8 are replaced; pynvml's own wrapper raises for them.

    Raises:
        pynvml.NVMLError: the driver refused.
    """
    buffer = create_string_buffer(LONGEST_TEXT)
    code = pynvml._nvmlGetFunctionPointer(function)(*arguments, buffer, LONGEST_TEXT)
    if code != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(code)
    return buffer.value.decode("utf-8", "replace")


def _cuda_version() -> str:
    # The _v2 call needs libcuda, which the "utility" container capability does not bring.
    number = int(pynvml.nvmlSystemGetCudaDriverVersion())
    return f"{number // 1000}.{number % 1000 // 10}"


def _named(names: Sequence[str], number: int | None) -> str | None:
    return names[number] if number is not None and 0 <= number < len(names) else None


def _on_off(value: int | None) -> str | None:
    return None if value is None else "on" if value else "off"


def _bandwidth(links: float | None, megabytes_per_second: float | None) -> float | None:
    return links * megabytes_per_second * 1e6 if links and megabytes_per_second else None


class IdentityReader:
    """Reads one GPU's static facts through `handle`."""

    def __init__(self, handle: Any, index: int, journal: Journal, sysfs: str) -> None:
        self._handle = handle
        self._sysfs = sysfs
        self._index = index
        self._ends: dict[int, str] = {}
        self._journal = journal
        self._probes: dict[str, Probe[Any]] = {}

    def _ask(
        self, fact: str, call: str | Callable[[], Any], check: PossibleRange | None = None
    ) -> Any:
        """Return the answer of a call, or of pynvml's function of that name; None if it fails or
        `check` finds it impossible."""
        if fact not in self._probes:
            self._probes[fact] = probe_of(self._journal, self._handle, IDENTITY, call, check=check)
        return self._probes[fact]()

    def read(self, fields: Mapping[Field, float], instances: tuple[Instance, ...] | None) -> Device:
        """Return the device; `fields` are its static field values.

        `instances` are its MIG devices; None while MIG is off.

        Raises:
            pynvml.NVMLError: the driver does not report its UUID.
        """
        h, ask, nv = self._handle, self._ask, pynvml
        pci = ask("pci", "nvmlDeviceGetPciInfo_v3")
        architecture = ask("architecture", "nvmlDeviceGetArchitecture")
        capability = ask("capability", "nvmlDeviceGetCudaComputeCapability")
        name = ask("name", lambda: text("nvmlDeviceGetName", h)) or UNKNOWN_NAME
        watts = plausible.POWER_LIMIT_MILLIWATTS
        limit = ask("limits", lambda: nv.nvmlDeviceGetPowerManagementLimitConstraints(h)[1], watts)
        default_limit = ask("limit", "nvmlDeviceGetPowerManagementDefaultLimit", watts)
        memory = ask("memory", lambda: nv.nvmlDeviceGetMemoryInfo(h).total, plausible.MEMORY_BYTES)
        virtualization = ask("virtualization", "nvmlDeviceGetVirtualizationMode")
        virtual = virtualization == nv.NVML_GPU_VIRTUALIZATION_MODE_VGPU
        links, speed, c2c_links, c2c_speed = (fields.get(field) for field in STATIC_FIELDS)
        return Device(
            index=self._index,
            uuid=text("nvmlDeviceGetUUID", h),
            name=name,
            architecture=ARCHITECTURES.get(architecture),
            compute_capability=capability,
            pci_bus_id=pci.busId if pci else None,
            pci_device_id=pci.pciDeviceId >> 16 if pci else None,
            serial=ask("serial", lambda: text("nvmlDeviceGetSerial", h)),
            board_part_number=ask("part", lambda: text("nvmlDeviceGetBoardPartNumber", h)),
            minor_number=ask("minor", "nvmlDeviceGetMinorNumber", plausible.SMALL_COUNT),
            numa_node=ask("numa", "nvmlDeviceGetNumaNodeId", plausible.SMALL_COUNT),
            driver_version=ask("driver", lambda: text("nvmlSystemGetDriverVersion")),
            cuda_version=ask("cuda", _cuda_version),
            vbios_version=ask("vbios", lambda: text("nvmlDeviceGetVbiosVersion", h)),
            core_count=ask("cores", "nvmlDeviceGetNumGpuCores", plausible.CORES),
            memory_bus_width_bits=ask("bus", "nvmlDeviceGetMemoryBusWidth", plausible.BUS_BITS),
            memory_bytes=memory,
            clock_max_hertz=self._by_name(
                "nvmlDeviceGetMaxClockInfo", CLOCKS, plausible.CLOCK_MEGAHERTZ, 1e6
            ),
            power_default_limit_watts=thousandth(default_limit),
            power_max_limit_watts=thousandth(limit),
            temperature_threshold_celsius=self._by_name(
                "nvmlDeviceGetTemperatureThreshold", THRESHOLDS, plausible.TEMPERATURE_CELSIUS, 1.0
            ),
            pcie_generation_max=ask(
                "pcie", "nvmlDeviceGetMaxPcieLinkGeneration", plausible.PCIE_GENERATION
            ),
            pcie_width_max=ask("width", "nvmlDeviceGetMaxPcieLinkWidth", plausible.PCIE_WIDTH),
            **({} if virtual or pci is None else placed(self._sysfs, pci.busId)),
            nvlink_count=int(links) if links is not None else None,
            nvlink_ends=ask(
                "ends",
                lambda: nvlink_ends(h, int(links or 0), self._ends, self._journal.progress),
            ),
            nvlink_bandwidth_bytes_per_second=_bandwidth(links, speed),
            c2c_bandwidth_bytes_per_second=_bandwidth(c2c_links, c2c_speed),
            coherent_memory=(
                bool(c2c_links)
                or GRACE_MODULE.search(name) is not None
                or capability in SYSTEM_MEMORY_CAPABILITIES
            ),
            virtualized=virtual,
            modes=self._modes(virtualization, mig=instances is not None),
            mig=instances is not None,
            instances=instances or (),
        )

    def _by_name(
        self, function: str, ids: Mapping[str, int], check: PossibleRange, unit: float
    ) -> dict[str, float]:
        """Return the positive values of the `ids` by name, times `unit`; 0 is not known."""
        values = {}
        for name, number in ids.items():
            call = partial(getattr(pynvml, function), self._handle, number)
            value = self._ask(f"{function} {name}", call, check)
            if value:
                values[name] = value * unit
        return values

    def _modes(self, virtualization: int | None, *, mig: bool) -> dict[str, str]:
        ask = self._ask
        ecc = ask("ecc", "nvmlDeviceGetEccMode")
        confidential = ask("confidential", lambda: pynvml.nvmlSystemGetConfComputeState())
        modes = {
            "persistence": _on_off(ask("persistence", "nvmlDeviceGetPersistenceMode")),
            "compute": _named(COMPUTE_MODES, ask("compute", "nvmlDeviceGetComputeMode")),
            "ecc": _on_off(ecc and ecc[0]),
            "mig": _on_off(mig),
            "virtualization": _named(VIRTUALIZATION, virtualization or 0),
            "confidential": _on_off(confidential and confidential.ccFeature),
        }
        return {name: mode for name, mode in modes.items() if mode is not None}


def name_of(handle: Any) -> str:
    """Return the name of a GPU, as far as it can be read."""
    try:
        return text("nvmlDeviceGetName", handle)
    except pynvml.NVMLError:
        return UNKNOWN_NAME
