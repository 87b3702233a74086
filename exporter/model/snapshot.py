# SPDX-License-Identifier: Apache-2.0
"""The snapshot: one frozen state of the node per tick.

Ratios are 0 to 1 (not clamped where a ceiling can be exceeded), rates are per second, clocks are
hertz. ``None`` is "not known" and is never published.

A *share* is the part of a GPU that readings hold for: the whole GPU, or one GPU instance while
MIG is on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from exporter.model.host import HostActivity
from exporter.model.reading import (
    Activity,
    Board,
    Device,
    Health,
    Memory,
    Process,
    Utilization,
    Vitals,
    XidRecord,
)
from exporter.model.training import Collectives, Loader, TrainingTotals
from exporter.model.workload import NO_WORK, ShareWork, Workload

TIME_PARTS = ("idle", "narrow", "unsaturated", "clock", "saturated")
RECENT_SECONDS = 10.0
"""The window for what a share does now; work and waiting alternate within it."""
LIMITERS = ("idle", "input", "communication", "latency", "memory", "compute", "clock", "unknown")
PRECISIONS = (
    "fp64",
    "fp64_tensor",
    "fp32",
    "fp16",
    "bf16",
    "tf32_tensor",
    "fp16_tensor",
    "bf16_tensor",
    "fp8_tensor",
    "int8",
    "int8_tensor",
    "int4_tensor",
    "fp4_tensor",
    "fp16_tensor_fp16acc",
    "fp8_tensor_fp16acc",
)
"""As ``gpu_peak_flops_per_second`` names them. Tensor peaks are with FP32 accumulation unless the
name says fp16acc; ``int8`` is the dot product of the CUDA cores (DP4A)."""

PEAK_CLOCKS: dict[str, tuple[str, ...]] = {
    "tensor": ("tensor", "vector"),
    "fp64": ("vector",),
    "fma": ("vector",),
    "int": ("vector",),
    "dram": ("memory",),
}
"""By unit: the keys in `Ceilings.peak_clock_hertz` for its datasheet peak; the first counts."""

CLOCK_UNITS: dict[str, str] = {
    precision: "tensor" if "_tensor" in precision else "fma" for precision in PRECISIONS
} | {"fp64": "fp64", "fp64_tensor": "fp64", "int8": "int"}
"""By precision: the unit whose clock its peak holds at.

FP64 on the tensor pipe is published at the vector clock: H100 SXM 66.9 TFLOP/s = 132 SMs x 256 FLOP
x 1980 MHz, against 989.4 = 132 x 4096 x 1830 MHz for FP16."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """A closed interval that holds the true value."""

    lower: float
    upper: float


MemoryUtilizationUse = Literal["bound", "estimate"]
"""What the driver's memory utilization is good for on a GPU model: an estimate of DRAM activity, or
also its upper bound, where that was checked."""
DRAM_PER_MEMORY_UTILIZATION = 0.77
"""DRAM activity over the driver's memory utilization in published readings of V100, T4 and B300."""
DRAM_ESTIMATE_ERROR_RATIO = 0.12
"""DRAM activity was so near its estimate in nine of ten of these readings; 0.04 in the mean."""
LEAST_OF_DRAM_ESTIMATE = 1 / 3
"""DRAM activity was at least this part of its estimate in all of these readings."""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The roofline ceilings of one share: dense peaks, FMA = 2 operations, decimal units."""

    spec: str
    """The GPU model's key in the spec file, or ``derived``."""
    peak_flops_per_second: Mapping[str, float]
    """By precision, as the contract of ``gpu_peak_flops_per_second`` names them."""
    peak_clock_hertz: Mapping[str, float]
    """By unit (tensor, vector, memory): the clock at which the datasheet peak holds."""
    memory_bandwidth_bytes_per_second: float | None = None
    achievable_ratio: Mapping[str, float] = field(default_factory=dict)
    """By precision, and ``memory``: share of the spec ceiling that the best kernels reach."""
    memory_bus_width_bits: int | None = None
    """Of the whole GPU, also for a share."""
    sm_count: int | None = None
    """Of this share."""
    share_of_sms: float | None = 1.0
    """This share's SMs over the GPU's; 1 without MIG, None where a count is not known."""
    share_of_memory: float | None = 1.0
    """This share's part of bandwidth in eighths; 1 without MIG, None where not known."""
    link_bandwidth_bytes_per_second: Mapping[str, float] = field(default_factory=dict)
    """By link (pcie, nvlink, c2c), per direction."""
    architecture: str | None = None
    assumed_precision: str | None = None
    """The precision that tensor work is counted in, e.g. bf16_tensor; None without tensor cores."""
    memory_utilization_use: MemoryUtilizationUse | None = "estimate"
    """None where it says nothing: GPUs that use the memory of their host."""

    @property
    def memory_bandwidth_by_basis(self) -> dict[str, float]:
        """Bandwidth of device memory in bytes per second, by basis: spec, achievable."""
        peak = self.memory_bandwidth_bytes_per_second
        if peak is None:
            return {}
        reached = self.achievable_ratio.get("memory")
        return {"spec": peak} if reached is None else {"spec": peak, "achievable": peak * reached}


@dataclass(frozen=True, slots=True)
class Saturation:
    """How close a share is to the limit of its busiest unit."""

    source: str
    """Name of the counter source (gpm, dcgm, cupti), or estimate."""
    complete: bool
    bounds: Bounds
    ratio: float | None = None
    """Only where measured and complete."""
    unit: str | None = None
    """The unit that gives `ratio`: tensor, fp64, fma, int or dram."""
    unmeasured: Mapping[str, Bounds] = field(default_factory=dict)
    """By resource (sm, tensor, fma, fp64, int, dram): bounds of those that are not measured."""
    estimates: Mapping[str, float] = field(default_factory=dict)
    """By resource (tensor, fma, dram): the likely activity of those that are not measured: of dram
    over the last interval, of tensor and fma over the last ten seconds."""


@dataclass(frozen=True, slots=True)
class TimeParts:
    """A partition of the interval: the five ratios add up to 1."""

    idle: float
    narrow: float
    unsaturated: float
    clock: float
    saturated: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkRates:
    """Work and traffic per second over some time, against the ceilings."""

    flops_per_second: Mapping[str, float] = field(default_factory=dict)
    """By precision; tensor work under the assumed one. Empty where not measured."""
    flops_bounds_per_second: Bounds | None = None
    dram_bytes_per_second: float | None = None
    intensity_flops_per_byte: float | None = None
    roof_ratio: Mapping[str, float] = field(default_factory=dict)
    """By basis: spec, clock, achievable."""
    dram_bounds_bytes_per_second: Bounds | None = None
    """Where the traffic is not measured."""
    intensity_bounds_flops_per_byte: Bounds | None = None
    """Where the intensity is not measured and both ends are known."""
    stated_flops_per_second: float | None = None
    """What the training jobs on it report, limited to what the GPU can do."""
    dram_estimate_bytes_per_second: float | None = None
    """The likely traffic where it is not measured."""
    intensity_estimate_flops_per_byte: float | None = None
    """Stated FLOP/s over the estimated traffic."""

    @property
    def total_flops_per_second(self) -> float | None:
        """FLOP/s of all precisions together; None where not measured."""
        return sum(self.flops_per_second.values()) if self.flops_per_second else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline(WorkRates):
    """The last interval."""

    tensor_flops_utilization_ratio: float | None = None
    """OFU = tensor activity x SM clock / tensor peak clock (arXiv 2605.20799)."""


@dataclass(frozen=True, slots=True)
class ShareTotals:
    """Counters of one share since it was first seen; None (or missing) where never measured."""

    since_timestamp_seconds: float | None = None
    """Unix time from which they count; None if not known."""
    busy_seconds: float | None = None
    observed_seconds: Mapping[str, float] = field(default_factory=dict)
    """By reading: utilization, and activity while all published units are read."""
    ran_seconds: Mapping[str, float] = field(default_factory=dict)
    """By the name of another field: its observed time, if that is not in `observed_seconds`."""
    engine_active_seconds: float | None = None
    sm_active_seconds: float | None = None
    dram_active_seconds: float | None = None
    pipe_active_seconds: Mapping[str, float] = field(default_factory=dict)
    tensor_op_active_seconds: Mapping[str, float] = field(default_factory=dict)
    saturation_seconds: float | None = None
    time_seconds: Mapping[str, float] = field(default_factory=dict)
    time_lower_seconds: Mapping[str, float] = field(default_factory=dict)
    """By time part, where it is only bounded; the next one too."""
    time_upper_seconds: Mapping[str, float] = field(default_factory=dict)
    flops: Mapping[str, float] = field(default_factory=dict)
    flops_lower: float | None = None
    flops_upper: float | None = None
    dram_bytes: float | None = None
    roof_seconds: Mapping[str, float] = field(default_factory=dict)
    limited_seconds: Mapping[str, float] = field(default_factory=dict)
    idle_seconds: float | None = None
    held_idle_seconds: float | None = None
    idle_energy_joules: float | None = None
    held_idle_energy_joules: float | None = None
    allocated_unopened_seconds: float | None = None
    """Time in which a scheduler had allocated it and no process held it."""
    unopened_for_seconds: float | None = None
    """For how long that has been so without a break; 0 if it is not, None if not known."""
    last_busy_timestamp_seconds: float | None = None
    idle_for_seconds: float | None = None
    """For how long it has been idle without a break; 0 if it is not, None if not known."""
    seen_busy_timestamp_seconds: float | None = None
    """Unix time at which it was last seen busy; unlike `last_busy_timestamp_seconds` None before,
    and not moved by a gap."""
    data_stall_lower_seconds: Mapping[str, float] = field(default_factory=dict)
    """By method of inference."""
    data_stall_upper_seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent(WorkRates):
    """What a share did over the last `RECENT_SECONDS`, or over its last interval if that is longer.

    Means over the observed time; None (or missing) where that was not known for any of it.
    """

    seconds: float
    """How long it was observed by counters, else by its utilization."""
    busy_ratio: float | None = None
    """Engine activity, else utilization."""
    utilization_ratio: float | None = None
    memory_utilization_ratio: float | None = None
    """As the driver reports it."""
    saturation_ratio: float | None = None
    saturation_bounds: Bounds | None = None
    saturation_unit: str | None = None
    """The busiest unit: tensor, fp64, fma, int or dram."""
    active_ratio: Mapping[str, float] = field(default_factory=dict)
    """By counter: engine, sm, dram, tensor, fp64, fp32, fp16, int."""
    time_parts: Mapping[str, float] = field(default_factory=dict)
    time_bounds: Mapping[str, Bounds] = field(default_factory=dict)
    limited_ratio: Mapping[str, float] = field(default_factory=dict)
    limiter: str | None = None
    """The limiter of most of the time, with hysteresis."""
    estimates: Mapping[str, float] = field(default_factory=dict)
    """By resource (tensor, fma, dram): the likely activity of those that are not measured."""
    model_flops_utilization_ratio: float | None = None
    """MFU: stated FLOP/s over the datasheet peak of the precision that the jobs state."""
    idle_ratio: float | None = None
    """Share of time in idle intervals."""
    held_idle_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a share; a field is None where it is not known."""

    owner: str | None = None
    command: str | None = None
    work_class: str = "other"
    """One of ``reading.WORK_CLASSES``."""
    workload: Workload | None = None
    """The workload of its process or, if not known, the only one on the share."""
    pid: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A known cause that the evidence shows for a share."""

    cause: str
    job: str | None = None
    evidence: Mapping[str, float] = field(default_factory=dict)
    """The numbers that decided, by name."""
    recoverable_lower_seconds: float | None = None
    """What it has cost since the exporter knows the job or the share, in GPU-seconds."""
    recoverable_upper_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """One share of a GPU: readings, what is derived from them, and their totals."""

    gpu_instance: int | None
    ceilings: Ceilings | None
    totals: ShareTotals
    utilization: Utilization | None = None
    memory: Memory | None = None
    processes: tuple[Process, ...] | None = None
    same_work_since_seconds: float | None = None
    """Unix time from which on its workloads and the owners of its processes have been the same."""
    held: bool | None = None
    holder: Holder | None = None
    """Exactly one while the share is held."""
    work: ShareWork = NO_WORK
    activity: Activity | None = None
    saturation: Saturation | None = None
    time_parts: TimeParts | None = None
    time_bounds: Mapping[str, Bounds] = field(default_factory=dict)
    """By time part, where `time_parts` is not known but bounded."""
    roofline: Roofline | None = None
    limiter: str | None = None
    recent: Recent | None = None
    data_stall: Mapping[str, Bounds] = field(default_factory=dict)
    """By method of inference (client, procfs): bounds of the data stall, where that is not
    measured."""
    host: HostActivity | None = None
    orphaned_seconds: float | None = None
    """For how long all that computes on it have been workers of data loaders; None if others do."""
    diagnoses: tuple[Diagnosis, ...] = ()
    missing_evidence: tuple[str, ...] = ()
    """What would have to be known to tell the cause, where it waits for data and none is shown."""


@dataclass(frozen=True, slots=True)
class BoardTotals:
    """Counters of the board: the driver's own where it counts, else since the first read."""

    energy_joules: float | None = None
    energy_is_power: bool = False
    """Whether it is power x time, because the driver has no counter."""
    throttle_seconds: Mapping[str, float] = field(default_factory=dict)
    pcie_transmit_bytes: float | None = None
    pcie_receive_bytes: float | None = None
    nvlink_transmit_bytes: float | None = None
    nvlink_receive_bytes: float | None = None
    c2c_transmit_bytes: float | None = None
    c2c_receive_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    """Another GPU of the node, and how it is linked with this one."""

    index: int
    uuid: str
    link: str
    """As ``nvidia-smi topo -m`` names it: NV18 (so many NVLinks), PIX, PXB, PHB, NODE, SYS."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One physical GPU. When it is not `up`, only identity and the time of the last read remain."""

    device: Device
    up: bool
    down_reason: str | None = None
    """One phrase: lost, hung, vanished, driver gone ..."""
    last_read_timestamp_seconds: float | None = None
    ceilings: Ceilings | None = None
    """Of the whole board, also while MIG is on (its links are the board's)."""
    vitals: Vitals | None = None
    board: Board | None = None
    health: Health | None = None
    xids: Mapping[int, XidRecord] = field(default_factory=dict)
    """By Xid; also of a GPU that is down."""
    totals: BoardTotals = field(default_factory=BoardTotals)
    shares: tuple[Share, ...] = ()
    peers: tuple[Peer, ...] = ()
    """Those with a known link, also of a GPU that is down."""
    states: Mapping[str, str] = field(default_factory=dict)
    cadence_age_seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank of a training job on one device, over all processes that reported under it."""

    job: str
    """A name that is unique on the node."""
    rank: int
    gpu_uuid: str | None
    """None for a rank that uses none."""
    gpu_instance: int | None
    totals: TrainingTotals
    processes: int
    """How many are alive."""
    run_seconds: float
    """Wall time of the training loops of the present run; a restart resets it."""
    last_report_timestamp_seconds: float
    since_timestamp_seconds: float | None = None
    """Unix time from which the totals count; None if not known."""
    world_size: int | None = None
    framework: str | None = None
    precision: str | None = None
    instrumentation: str = "client"
    loader: Loader = field(default_factory=Loader)
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    data_wait_ratio: float | None = None
    """Share of the last `RECENT_SECONDS` in which the host waited for data."""
    data_stall_ratio: float | None = None
    """The part of it in which the GPU's stream was empty; None where not measured."""
    owner: str | None = None
    """The user; None if not known, and with --no-process.owner."""
    verified: bool | None = None
    """Whether the driver lists a process of it on the device; None for a rank without one."""
    degraded: tuple[str, ...] = ()
    """What is not measured or not verified, by the names of ``TRAINING_DEGRADATIONS``."""
    phase: str | None = None
    """The phase in its last report; None if it named none."""
    host: HostActivity | None = None

    @property
    def waiting_for_data(self) -> bool:
        """Whether its last report says that it waits for data."""
        return self.phase == "data"


@dataclass(frozen=True, slots=True)
class TrainingState:
    """How many reports of training jobs were accepted and refused."""

    reports_total: int = 0
    rejected_total: Mapping[str, int] = field(default_factory=dict)
    """By reason; every reason is listed."""
    quota_hits_total: Mapping[str, int] = field(default_factory=dict)
    """Those that reached a limit, by the names of ``TRAINING_SENDERS``; every one is listed."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """The state of one source."""

    up: bool
    read_seconds: float | None = None
    failures_total: int = 0
    age_seconds: float | None = None
    """Age of its last answer, for sources whose answer stays in use."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The node at one tick."""

    timestamp_seconds: float
    gpus: tuple[Gpu, ...] = ()
    sources: Mapping[str, SourceState] = field(default_factory=dict)
    problem: str | None = None
    """Why there is no GPU, in one line; None when at least one is up."""
    devices: Mapping[str, int] = field(default_factory=dict)
    """How many GPUs the bus (pci), the kernel driver (driver) and NVML (nvml) count."""
    ranks: tuple[Rank, ...] = ()
    training: TrainingState | None = None
    """None while no training reports are taken."""
    collectives: Collectives | None = None
    """What NCCL reports about the job on this node; None if disabled or no job answers."""
    pod_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By NAMESPACE/POD: the published labels of pods."""
