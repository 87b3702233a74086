# SPDX-License-Identifier: Apache-2.0
"""``/api/v1/roofline`` and ``/api/v1/specs``: ceilings of shares and of GPU models."""

from __future__ import annotations

from dataclasses import dataclass

from exporter.web.api.models.gpus import PointJson, SaturationJson
from exporter.web.api.models.json import Answer, Json


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingJson(Json):
    """The ceiling of one precision; dense, FMA = 2 operations."""

    precision: str
    spec_flops_per_second: float
    spec_ridge_flops_per_byte: float | None = None
    achievable_flops_per_second: float | None = None
    achievable_ridge_flops_per_byte: float | None = None
    """Where the achievable ceilings of compute and memory meet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineJson(Json):
    """The roofline of one share: its ceilings and where the last interval lies."""

    gpu: int
    uuid: str
    name: str
    gpu_instance: int | None = None
    spec: str
    assumed_precision: str | None = None
    memory_bandwidth_bytes_per_second: dict[str, float]
    """By basis."""
    link_bandwidth_bytes_per_second: dict[str, float]
    """By link."""
    peak_clock_hertz: dict[str, float]
    """By unit."""
    ceilings: list[CeilingJson]
    point: PointJson | None = None
    saturation: SaturationJson | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineAnswer(Answer):
    """The rooflines of every share whose ceilings are known."""

    timestamp_seconds: float | None = None
    rooflines: list[RooflineJson]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModelJson(Json):
    """One GPU model of the spec file."""

    key: str
    product: str
    names: list[str]
    pci_ids: list[str]
    """Hexadecimal device ids under vendor 10DE."""
    architecture: str
    chip: str | None = None
    compute_capability: str
    sm_count: int | None = None
    cores_per_sm: int
    core_count: int | None = None
    peak_clock_hertz: dict[str, float]
    peak_flops_per_second: dict[str, float]
    ceilings: list[CeilingJson]
    """The same peaks with their ridge points."""
    derived_precisions: list[str]
    achievable_ratio: dict[str, float]
    achievable_sources: list[str]
    memory_bytes: float | None = None
    memory_type: str | None = None
    memory_bus_width_bits: int | None = None
    memory_bandwidth_bytes_per_second: float | None = None
    nvlink_bandwidth_bytes_per_second: float | None = None
    c2c_bandwidth_bytes_per_second: float | None = None
    pcie_generation: int | None = None
    pcie_lanes: int | None = None
    tdp_watts: float | None = None
    confidence: str | None = None
    sources: list[str]
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecsAnswer(Answer):
    """Every GPU model of the spec file."""

    products: list[GpuModelJson]
    sources: dict[str, str]
    """What the codes under sources stand for."""
