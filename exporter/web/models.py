# SPDX-License-Identifier: Apache-2.0
"""The JSON that the API answers with, as types.

What is not known is left out of the JSON; it is never null, 0 or a special value.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from exporter.web.refusal import SCHEMA_VERSION
from exporter.web.training import GpuRankJson


class Problem(BaseModel):
    """Why a request was not answered."""

    schema_version: int = SCHEMA_VERSION
    error: str


class IdentityJson(BaseModel):
    """What a GPU is."""

    name: str
    architecture: str | None = None
    compute_capability: str | None = None
    pci_bus_id: str | None = None
    serial: str | None = None
    board_part_number: str | None = None
    minor_number: int | None = None
    numa_node: int | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    vbios_version: str | None = None
    spec: str | None = Field(None, description="GPU model's key of the spec file, or derived.")
    source: str = Field(description="nvml, replay or simulate.")


class InstanceJson(BaseModel):
    """One MIG compute instance."""

    gpu_instance: int
    compute_instance: int
    profile: str
    mig_uuid: str
    sm_count: int | None = None
    memory_bytes: int | None = None


class BoardJson(BaseModel):
    """Readings of the whole board."""

    power_watts: float | None = None
    power_limit_watts: float | None = None
    module_power_watts: float | None = None
    energy_joules_total: float | None = None
    temperature_celsius: dict[str, float] = Field(description="By sensor.")
    clock_hertz: dict[str, float] = Field(description="By clock.")
    clock_max_hertz: dict[str, float] = Field(description="By clock.")
    throttle_reasons: list[str] | None = Field(None, description="Those that hold now.")
    throttle_seconds_total: dict[str, float] = Field(description="By reason.")
    performance_state: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None


class MemoryJson(BaseModel):
    """Device memory in bytes."""

    total_bytes: int
    used_bytes: int
    free_bytes: int
    reserved_bytes: int | None = None


class ActivityJson(BaseModel):
    """Hardware counters averaged over the last interval."""

    source: str
    seconds: float
    engine_ratio: float | None = None
    sm_ratio: float | None = None
    occupancy_ratio: float | None = None
    dram_ratio: float | None = None
    pipe_ratio: dict[str, float] = Field(description="By pipe.")
    tensor_op_ratio: dict[str, float] = Field(description="By operation.")


class BoundsJson(BaseModel):
    """A closed interval that holds the true ratio."""

    lower_ratio: float
    upper_ratio: float


class SaturationJson(BoundsJson):
    """How close the units that can be read are to their limit."""

    source: str = Field(description="gpm or estimate.")
    complete: bool
    ratio: float | None = Field(None, description="Only where measured and complete.")
    unit: str | None = Field(None, description="The unit that gives the ratio.")
    unmeasured: dict[str, BoundsJson] = Field(description="By resource that is not measured.")


class PointJson(BaseModel):
    """Where the last interval lies on the roofline chart."""

    flops_per_second: float | None = None
    flops_lower_per_second: float | None = None
    flops_upper_per_second: float | None = None
    flops_per_second_by_precision: dict[str, float]
    dram_bytes_per_second: float | None = None
    intensity_flops_per_byte: float | None = None
    tensor_flops_utilization_ratio: float | None = None
    roof_ratio: dict[str, float] = Field(description="By basis; may exceed 1.")


class IdleJson(BaseModel):
    """Idle time since the exporter started."""

    idle_seconds_total: float | None = None
    held_idle_seconds_total: float | None = None
    idle_energy_joules_total: float | None = None
    last_busy_timestamp_seconds: float | None = None
    idle_for_seconds: float | None = Field(
        default=None,
        description="How long it was seen to be idle without a break; 0 where it is not idle.",
    )


class HolderJson(BaseModel):
    """The process that holds a share; of several that with the most memory."""

    model_config = ConfigDict(populate_by_name=True)

    owner: str | None = None
    command: str | None = Field(None, description="The command's name, without arguments.")
    workload: str = Field(
        alias="class",
        description="training, serving, notebook, display, system or other.",
    )


class ShareJson(BaseModel):
    """A whole GPU or, while MIG is on, one GPU instance."""

    gpu_instance: int | None = None
    held: bool | None = None
    holder: HolderJson | None = Field(None, description="Present while held.")
    limiter: str | None = Field(None, description="What limited the last interval.")
    utilization_ratio: float | None = None
    memory: MemoryJson | None = None
    processes: dict[str, int] | None = Field(None, description="Number by type.")
    activity: ActivityJson | None = None
    saturation: SaturationJson | None = None
    time_parts: dict[str, float] | None = Field(None, description="Ratios that add up to 1.")
    roofline: PointJson | None = None
    data_stall: dict[str, BoundsJson] = Field(
        description="By method: bounds of the share of time in which it sat idle while its job "
        "waited for data, where the job does not measure it."
    )
    idle: IdleJson
    observed_seconds_total: dict[str, float] = Field(description="By reading.")


class GpuJson(BaseModel):
    """One physical GPU."""

    index: int
    uuid: str
    up: bool
    down_reason: str | None = None
    last_read_timestamp_seconds: float | None = None
    identity: IdentityJson
    modes: dict[str, str]
    mig: bool
    instances: list[InstanceJson]
    board: BoardJson | None = None
    shares: list[ShareJson]
    ranks: list[GpuRankJson] = Field(description="Of training jobs that report.")
    absent_readings: dict[str, str] = Field(description="By group of readings: why it is absent.")


class GpusAnswer(BaseModel):
    """Every GPU of the node."""

    schema_version: int = SCHEMA_VERSION
    timestamp_seconds: float | None = Field(None, description="Of the snapshot; none before it.")
    problem: str | None = None
    gpus: list[GpuJson]


class GpuAnswer(BaseModel):
    """One GPU of the node."""

    schema_version: int = SCHEMA_VERSION
    timestamp_seconds: float
    gpu: GpuJson


class CeilingJson(BaseModel):
    """The ceiling of one precision; dense, FMA = 2 operations."""

    precision: str
    spec_flops_per_second: float
    spec_ridge_flops_per_byte: float | None = None
    achievable_flops_per_second: float | None = None
    achievable_ridge_flops_per_byte: float | None = Field(
        None, description="Where the achievable ceilings of compute and memory meet."
    )


class RooflineJson(BaseModel):
    """The roofline of one share: its ceilings and where the last interval lies."""

    gpu: int
    uuid: str
    name: str
    gpu_instance: int | None = None
    spec: str
    assumed_precision: str | None = None
    memory_bandwidth_bytes_per_second: dict[str, float] = Field(description="By basis.")
    link_bandwidth_bytes_per_second: dict[str, float] = Field(description="By link.")
    peak_clock_hertz: dict[str, float] = Field(description="By unit.")
    ceilings: list[CeilingJson]
    point: PointJson | None = None
    saturation: SaturationJson | None = None


class RooflineAnswer(BaseModel):
    """The rooflines of every share whose ceilings are known."""

    schema_version: int = SCHEMA_VERSION
    timestamp_seconds: float | None = None
    rooflines: list[RooflineJson]


class HistoryAnswer(BaseModel):
    """The last 15 minutes of one GPU or instance, at most one point a second."""

    schema_version: int = SCHEMA_VERSION
    uuid: str = Field(description="Of the physical GPU.")
    gpu_instance: int | None = None
    throttle_reasons: list[str] = Field(
        description="What the bits of the column throttled stand for, from the lowest."
    )
    timestamps: list[float] = Field(description="Unix time of each point, rising.")
    columns: dict[str, list[float | None]] = Field(
        description="By reading, a value for each point; null where it is not known then. A "
        "column in which nothing is known is left out."
    )


class TrailJson(BaseModel):
    """Where one GPU or instance was; null where that is not known."""

    flops: list[float | None] = Field(description="FLOP/s, over all precisions.")
    bytes: list[float | None] = Field(description="Bytes/s of DRAM traffic.")


class TrailsAnswer(BaseModel):
    """The last 3 minutes of every GPU or instance in the roofline, in means of 5 s."""

    schema_version: int = SCHEMA_VERSION
    timestamps: list[float] = Field(description="Unix time of each point, rising.")
    trails: dict[str, TrailJson] = Field(description="By UUID, or UUID/instance.")


class GpuModelJson(BaseModel):
    """One GPU model of the spec file."""

    key: str
    product: str
    names: list[str]
    pci_ids: list[str] = Field(description="Hexadecimal device ids under vendor 10DE.")
    architecture: str
    chip: str | None = None
    compute_capability: str
    sm_count: int | None = None
    cores_per_sm: int
    core_count: int | None = None
    peak_clock_hertz: dict[str, float]
    peak_flops_per_second: dict[str, float]
    ceilings: list[CeilingJson] = Field(description="The same peaks with their ridge points.")
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


class SpecsAnswer(BaseModel):
    """Every GPU model of the spec file."""

    schema_version: int = SCHEMA_VERSION
    products: list[GpuModelJson]
    sources: dict[str, str] = Field(description="What the codes under sources stand for.")
