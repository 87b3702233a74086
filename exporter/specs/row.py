# SPDX-License-Identifier: Apache-2.0
"""Checks a row of a spec file, and brings it to base units."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from exporter.errors import shown
from exporter.model.snapshot import PRECISIONS
from exporter.specs.gpu_model import GpuModel
from exporter.yaml_lines import KeyPath

# These bounds keep every number finite and above 0 in base units too.
Positive = Annotated[float, Field(ge=1e-6, le=1e9, allow_inf_nan=False)]
Ratio = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(gt=0, le=1_000_000_000)]
Text = Annotated[str, Field(min_length=1, max_length=1000)]
PciId = Annotated[str, Field(pattern=r"^[0-9A-Fa-f]{4}$")]
CapabilityText = Annotated[str, Field(pattern=r"^[0-9]{1,2}\.[0-9]$")]
ClockUnit = Annotated[str, Field(pattern="^(?:vector|tensor|memory)$")]
Precision = Annotated[str, Field(pattern=f"^(?:{'|'.join(PRECISIONS)})$")]
PrecisionOrMemory = Annotated[str, Field(pattern=f"^(?:memory|{'|'.join(PRECISIONS)})$")]


def _scaled(value: float, *, scale: float) -> float:
    """Scale to base units without rounding errors: 494.7e12, not 494700000000000.06."""
    return float(round(value * scale))


Mega = Annotated[Positive, AfterValidator(partial(_scaled, scale=1e6))]
Giga = Annotated[Positive, AfterValidator(partial(_scaled, scale=1e9))]
Tera = Annotated[Positive, AfterValidator(partial(_scaled, scale=1e12))]


class Row(BaseModel):
    """A `GpuModel` as a file has it: an alias is the key there, whose numbers are in its unit."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    product: Text
    names: list[Text] = Field(min_length=1)
    pci_id_texts: list[PciId] = Field(default=[], alias="pci_ids")
    architecture: Text
    chip: Text | None = None
    capability_text: CapabilityText = Field(alias="compute_capability")
    sm_count: Count | None = None
    cores_per_sm: Count
    peak_clock_hertz: dict[ClockUnit, Mega] = Field(default={}, alias="clock_mhz")
    peak_flops_per_second: dict[Precision, Tera] = Field(default={}, alias="peak_tflops")
    derived_precisions: list[Precision] = Field(default=[], alias="derived")
    memory_bytes: Giga | None = Field(default=None, alias="memory_gb")
    memory_type: Text | None = None
    memory_bus_width_bits: Count | None = Field(default=None, alias="memory_bus_bits")
    memory_bandwidth_bytes_per_second: Giga | None = Field(
        default=None, alias="memory_bandwidth_gb_s"
    )
    nvlink_bandwidth_bytes_per_second: Giga | None = Field(default=None, alias="nvlink_gb_s")
    c2c_bandwidth_bytes_per_second: Giga | None = Field(default=None, alias="c2c_gb_s")
    pcie_generation: int | None = Field(default=None, ge=1, le=6)
    pcie_lanes: int | None = Field(default=None, ge=1, le=32)
    tdp_watts: Positive | None = None
    achievable_ratio: dict[PrecisionOrMemory, Ratio] = {}
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
    **dict.fromkeys(("memory_gb", "memory_bandwidth_gb_s", "tdp_watts"), _NUMBER),
    **dict.fromkeys(("nvlink_gb_s", "c2c_gb_s"), _NUMBER),
    **dict.fromkeys(("sm_count", "cores_per_sm", "memory_bus_bits"), _COUNT),
    **dict.fromkeys(("achievable_sources", "sources"), "a list of sources"),
    "names": "a list of names as NVML reports them",
    "pci_ids": "a list of quoted PCI device ids such as ['20B0']",
    "compute_capability": "a quoted compute capability such as '9.0'",
    "clock_mhz": "a mapping of unit (vector, tensor, memory) to MHz",
    "peak_tflops": "a mapping of precision to TFLOPS",
    "derived": "a list of precisions",
    "pcie_generation": "a PCIe generation from 1 to 6",
    "pcie_lanes": "a number of lanes from 1 to 32",
    "achievable_ratio": "a mapping of precision, or memory, to a ratio",
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


def parse_gpu_model(key: str, entry: Any) -> GpuModel | dict[KeyPath, str]:
    """Return the GPU model of one entry of ``products``, else its problems by their paths in it."""
    if not isinstance(entry, dict):
        return {(): f"expected a mapping that describes a GPU model, got {shown(entry)}"}
    try:
        row = Row.model_validate(entry)
    except ValidationError as error:
        return _problems(error)
    return _unfounded(row) or GpuModel(key=key, **dict(row))


def _unfounded(row: Row) -> dict[KeyPath, str]:
    """Return problems where an entry refers to a peak that it does not have."""
    peaks = row.peak_flops_per_second
    problems: dict[KeyPath, str] = {
        ("derived", position): f"expected a precision that peak_tflops has, got {shown(precision)}"
        for position, precision in enumerate(row.derived_precisions)
        if precision not in peaks
    }
    for name in row.achievable_ratio:
        if name not in peaks and not (name == "memory" and row.memory_bandwidth_bytes_per_second):
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
        keys = (each.alias or name for name, each in Row.model_fields.items())
        return path, f"not known, expected one of {', '.join(keys)}"
    if kind == "missing":
        return path, f"missing, expected {_EXPECTED.get(field, 'text')}"
    if path[-1] == "[key]":
        return path[:-1], f"not known, expected {_EXPECTED_KEYS[field]}"
    expected = (_EXPECTED if len(path) == 1 else _EXPECTED_INSIDE).get(field, "text")
    if kind == "less_than_equal" and expected in (_NUMBER, _COUNT):
        expected = f"{expected} up to 1e9"
    return path[:2], f"expected {expected}, got {shown(value)}"
