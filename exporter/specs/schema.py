# SPDX-License-Identifier: Apache-2.0
"""Checks an entry of a spec file, and says what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from exporter.errors import shown
from exporter.model.snapshot import PRECISIONS
from exporter.specs.gpu_model import GpuModel
from exporter.yaml_lines import KeyPath

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
    """Check one entry of ``products``; None after reporting every problem to `refuse`, by its path
    inside the entry."""
    if not isinstance(entry, dict):
        refuse((), f"expected a mapping that describes a GPU model, got {shown(entry)}")
        return None
    try:
        model = GpuModel.of(key, entry)
    except ValidationError as error:
        problems = _problems(error)
    else:
        problems = _unfounded(model)
    for path, problem in problems.items():
        refuse(path, problem)
    return None if problems else model


def _unfounded(model: GpuModel) -> dict[KeyPath, str]:
    """Return problems where an entry refers to a peak that it does not have."""
    peaks = model.peak_flops_per_second
    problems: dict[KeyPath, str] = {
        ("derived", position): f"expected a precision that peak_tflops has, got {shown(precision)}"
        for position, precision in enumerate(model.derived_precisions)
        if precision not in peaks
    }
    for name in model.achievable_ratio:
        if name not in peaks and not (name == "memory" and model.memory_bandwidth_bytes_per_second):
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
        keys = (each.alias or name for name, each in GpuModel.model_fields.items())
        return path, f"not known, expected one of {', '.join(keys)}"
    if kind == "missing":
        return path, f"missing, expected {_EXPECTED.get(field, 'text')}"
    if path[-1] == "[key]":
        return path[:-1], f"not known, expected {_EXPECTED_KEYS[field]}"
    expected = (_EXPECTED if len(path) == 1 else _EXPECTED_INSIDE).get(field, "text")
    if kind == "less_than_equal" and expected in (_NUMBER, _COUNT):
        expected = f"{expected} up to 1e9"
    return path[:2], f"expected {expected}, got {shown(value)}"
