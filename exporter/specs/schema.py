# SPDX-License-Identifier: Apache-2.0
"""The schema of a spec file's entry, and its conversion to a GpuModel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from exporter.errors import shown
from exporter.model.snapshot import PRECISIONS, Precision
from exporter.specs.gpu_model import GpuModel
from exporter.yaml_lines import KeyPath

MEGA, GIGA, TERA = 1e6, 1e9, 1e12

# These bounds keep every number finite and above 0 in base units too.
Positive = Annotated[float, Field(ge=1e-6, le=1e9, allow_inf_nan=False)]
Ratio = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(gt=0, le=1_000_000_000)]
Text = Annotated[str, Field(min_length=1, max_length=1000)]
PciId = Annotated[str, Field(pattern=r"^[0-9A-Fa-f]{4}$")]
CapabilityText = Annotated[str, Field(pattern=r"^[0-9]{1,2}\.[0-9]$")]


class GpuModelEntry(BaseModel):
    """One GPU model as the file has it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    product: Text
    names: list[Text] = Field(min_length=1)
    pci_ids: list[PciId] = []
    architecture: Text
    chip: Text | None = None
    compute_capability: CapabilityText
    sm_count: Count | None = None
    cores_per_sm: Count
    clock_mhz: dict[Literal["vector", "tensor", "memory"], Positive] = {}
    peak_tflops: dict[Precision, Positive] = {}
    derived: list[Precision] = []
    memory_gb: Positive | None = None
    memory_type: Text | None = None
    memory_bus_bits: Count | None = None
    memory_bandwidth_gb_s: Positive | None = None
    nvlink_gb_s: Positive | None = None
    c2c_gb_s: Positive | None = None
    pcie_generation: int | None = Field(default=None, ge=1, le=6)
    pcie_lanes: int | None = Field(default=None, ge=1, le=32)
    tdp_watts: Positive | None = None
    achievable_ratio: dict[Precision | Literal["memory"], Ratio] = {}
    achievable_sources: list[Text] = []
    sources: list[Text] = []
    confidence: Literal["A", "B", "C"] | None = None
    note: Text | None = None


_NUMBER = "a positive number"
_COUNT = "a positive whole number"
_PRECISION = f"one of {', '.join(PRECISIONS)}"
_PCI_ID = "a quoted PCI device id of four hexadecimal digits such as '20B0'"

# What each field expects; text if a field is not listed.
_EXPECTED = {
    "names": "a list of names as NVML reports them",
    "pci_ids": "a list of quoted PCI device ids such as ['20B0']",
    "compute_capability": "a quoted compute capability such as '9.0'",
    "sm_count": _COUNT,
    "cores_per_sm": _COUNT,
    "clock_mhz": "a mapping of unit (vector, tensor, memory) to MHz",
    "peak_tflops": "a mapping of precision to TFLOPS",
    "derived": "a list of precisions",
    "memory_gb": _NUMBER,
    "memory_bus_bits": _COUNT,
    "memory_bandwidth_gb_s": _NUMBER,
    "nvlink_gb_s": _NUMBER,
    "c2c_gb_s": _NUMBER,
    "pcie_generation": "a PCIe generation from 1 to 6",
    "pcie_lanes": "a number of lanes from 1 to 32",
    "tdp_watts": _NUMBER,
    "achievable_ratio": "a mapping of precision, or memory, to a ratio",
    "achievable_sources": "a list of sources",
    "sources": "a list of sources",
    "confidence": "A, B or C",
}

# What one value inside a list or mapping must be, and what its keys must be.
_EXPECTED_INSIDE = {
    "pci_ids": _PCI_ID,
    "clock_mhz": _NUMBER,
    "peak_tflops": _NUMBER,
    "derived": _PRECISION,
    "achievable_ratio": "a ratio above 0 and at most 1",
}
_EXPECTED_KEYS = {
    "clock_mhz": "vector, tensor or memory",
    "peak_tflops": _PRECISION,
    "achievable_ratio": f"memory or {_PRECISION}",
}


def parse_gpu_model(
    key: str, entry: Any, refuse: Callable[[KeyPath, str], None]
) -> GpuModel | None:
    """Check one entry of ``products`` and convert it to base units.

    Report every problem to `refuse`, by its path inside the entry, and return None then.
    """
    if not isinstance(entry, dict):
        refuse((), f"expected a mapping that describes a GPU model, got {shown(entry)}")
        return None
    try:
        row = GpuModelEntry.model_validate(entry)
    except ValidationError as error:
        problems = _problems(error)
    else:
        problems = _unfounded(row)
    if problems:
        for path, problem in problems.items():
            refuse(path, problem)
        return None
    major, minor = row.compute_capability.split(".")
    return GpuModel(
        key=key,
        product=row.product,
        names=tuple(row.names),
        pci_ids=tuple(int(pci_id, 16) for pci_id in row.pci_ids),
        architecture=row.architecture,
        chip=row.chip,
        compute_capability=(int(major), int(minor)),
        sm_count=row.sm_count,
        cores_per_sm=row.cores_per_sm,
        peak_clock_hertz={unit: value * MEGA for unit, value in row.clock_mhz.items()},
        peak_flops_per_second={
            name: _base_units(value, TERA) for name, value in row.peak_tflops.items()
        },
        derived_precisions=tuple(row.derived),
        memory_bytes=_optional_base_units(row.memory_gb, GIGA),
        memory_type=row.memory_type,
        memory_bus_width_bits=row.memory_bus_bits,
        memory_bandwidth_bytes_per_second=_optional_base_units(row.memory_bandwidth_gb_s, GIGA),
        nvlink_bandwidth_bytes_per_second=_optional_base_units(row.nvlink_gb_s, GIGA),
        c2c_bandwidth_bytes_per_second=_optional_base_units(row.c2c_gb_s, GIGA),
        pcie_generation=row.pcie_generation,
        pcie_lanes=row.pcie_lanes,
        tdp_watts=row.tdp_watts,
        achievable_ratio={name: ratio for name, ratio in row.achievable_ratio.items()},  # noqa: C416
        achievable_sources=tuple(row.achievable_sources),
        sources=tuple(row.sources),
        confidence=row.confidence,
        note=row.note,
    )


def _base_units(value: float, scale: float) -> float:
    """Scale to base units without rounding errors: 494.7e12, not 494700000000000.06."""
    return float(round(value * scale))


def _optional_base_units(value: float | None, scale: float) -> float | None:
    return None if value is None else _base_units(value, scale)


def _unfounded(row: GpuModelEntry) -> dict[KeyPath, str]:
    """Return problems where an entry refers to a peak that it does not have."""
    peaks = row.peak_tflops
    problems: dict[KeyPath, str] = {
        ("derived", position): f"expected a precision that peak_tflops has, got {shown(precision)}"
        for position, precision in enumerate(row.derived)
        if precision not in peaks
    }
    for name in row.achievable_ratio:
        if name not in peaks and not (name == "memory" and row.memory_bandwidth_gb_s):
            has = "memory_bandwidth_gb_s" if name == "memory" else f"peak_tflops.{name}"
            problem = f"expected only where {has} is given, and it is not"
            problems["achievable_ratio", name] = problem
    return problems


def _problems(error: ValidationError) -> dict[KeyPath, str]:
    """Convert errors of pydantic, the first of each key."""
    problems: dict[KeyPath, str] = {}
    for each in error.errors(include_url=False):
        path, problem = _problem(each["loc"], each["type"], each["input"])
        problems.setdefault(path, problem)
    return problems


def _problem(path: KeyPath, kind: str, value: object) -> tuple[KeyPath, str]:
    field = str(path[0])
    if kind == "extra_forbidden":
        return path, f"not known, expected one of {', '.join(GpuModelEntry.model_fields)}"
    if kind == "missing":
        return path, f"missing, expected {_EXPECTED.get(field, 'text')}"
    if path[-1] == "[key]":
        return path[:-1], f"not known, expected {_EXPECTED_KEYS[field]}"
    expected = (_EXPECTED if len(path) == 1 else _EXPECTED_INSIDE).get(field, "text")
    if kind == "less_than_equal" and expected in (_NUMBER, _COUNT):
        expected = f"{expected} up to 1e9"
    return path[:2], f"expected {expected}, got {shown(value)}"
