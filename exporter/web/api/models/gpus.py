# SPDX-License-Identifier: Apache-2.0
"""``/api/v1/gpus``: the GPUs of the node, as ``status`` reads them too."""

from __future__ import annotations

from dataclasses import dataclass, field

from exporter.web.api.models.json import Answer, Json, of


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRankJson(Json):
    """A rank as its GPU shows it."""

    job: str
    """The label training_job."""
    display_name: str
    """Without the run, where that is unique on this node."""
    owner: str | None = None
    """Whose job it is, where names of users are shown."""
    rank: int
    verified: bool | None = None
    """Whether the driver lists it on its GPU; only then it counts there. Absent without a GPU."""
    gpu_instance: int | None = None
    processes: int
    """How many are alive."""
    last_report_timestamp_seconds: float
    data_wait_ratio: float | None = None
    """Share of the last seconds in which the host waited for data (W)."""
    data_stall_ratio: float | None = None
    """The part of it in which the GPU had nothing to do (S), only where measured."""
    waiting_for_data: bool = False
    """Whether its last report said that it waits for data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingJson(Json):
    """One group of readings of a GPU, or of one of its GPU instances."""

    reading: str
    """Such as power, memory, ecc or activity."""
    gpu_instance: int | None = None
    """Absent where it is of the board, or of the whole GPU."""
    state: str
    """ok, the state of roofline_exporter_reading_state, or no_answer where nobody says why."""
    source: str | None = None
    """Who gives it, or should."""
    age_seconds: float | None = None
    """How old it was at the time of the snapshot; absent where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityJson(Json):
    """What a GPU is."""

    name: str
    architecture: str | None = None
    compute_capability: str | None = of("capability")
    pci_bus_id: str | None = None
    serial: str | None = None
    board_part_number: str | None = None
    minor_number: int | None = None
    numa_node: int | None = None
    """Of its own memory, where that is a node, as on Grace Hopper."""
    numa_affinity: int | None = None
    """The NUMA node that it is attached to."""
    cpu_affinity: str | None = None
    """The online CPUs of that node, such as 0-55,112-167."""
    driver_version: str | None = None
    cuda_version: str | None = None
    vbios_version: str | None = None
    spec: str | None = None
    """Key of the GPU model in the spec file, or derived."""
    source: str
    """nvml; replay, where its data is recorded; simulate, where it is simulated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceJson(Json):
    """One MIG compute instance."""

    gpu_instance: int
    compute_instance: int
    profile: str
    mig_uuid: str
    sm_count: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerJson(Json):
    """Another GPU of the node."""

    index: int
    uuid: str
    link: str
    """How they are linked, as nvidia-smi topo -m has it: such as NV18, PIX or SYS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardJson(Json):
    """Readings of the whole board."""

    power_watts: float | None = of("vitals.power_watts")
    power_limit_watts: float | None = of("board.power_limit_watts")
    module_power_watts: float | None = of("vitals.module_power_watts")
    energy_joules_total: float | None = of("totals.energy_joules")
    temperature_celsius: dict[str, float] = of("vitals.temperatures_celsius", required=True)
    """By sensor."""
    clock_hertz: dict[str, float] = of("vitals.clock_hertz", required=True)
    """By clock."""
    clock_max_hertz: dict[str, float] = of("device.clock_max_hertz", required=True)
    """By clock."""
    throttle_reasons: list[str] | None = of("vitals.throttle_reasons")
    """Those that hold now."""
    throttle_seconds_total: dict[str, float] = of("totals.throttle_seconds", required=True)
    """By reason."""
    performance_state: int | None = of("board.performance_state")
    pcie_generation: int | None = of("board.pcie_generation")
    pcie_width: int | None = of("board.pcie_width")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryJson(Json):
    """Device memory in bytes."""

    total_bytes: int
    used_bytes: int
    free_bytes: int
    reserved_bytes: int | None = None
    unified: bool | None = None
    """True where it is the host's memory, which the GPU shares with the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityJson(Json):
    """Hardware counters averaged over the last interval."""

    source: str
    seconds: float
    age_seconds: float | None = None
    """How old it was when it was read; above 5 s it adds to no total."""
    engine_ratio: float | None = of("engine")
    sm_ratio: float | None = of("sm")
    occupancy_ratio: float | None = of("occupancy")
    dram_ratio: float | None = of("dram")
    pipe_ratio: dict[str, float] = of("pipe_ratios", required=True)
    """By pipe."""
    tensor_op_ratio: dict[str, float] = of("tensor_op_ratios", required=True)
    """By operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundsJson(Json):
    """A closed interval that holds the true ratio."""

    lower_ratio: float = of("lower", required=True)
    upper_ratio: float = of("upper", required=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaturationJson(BoundsJson):
    """How close the units that can be read are to their limit."""

    lower_ratio: float = of("bounds.lower", required=True)
    upper_ratio: float = of("bounds.upper", required=True)
    source: str
    """Name of the counter source, such as gpm, or estimate."""
    complete: bool
    ratio: float | None = None
    """Only where measured and complete."""
    unit: str | None = None
    """The unit that gives the ratio."""
    unmeasured: dict[str, BoundsJson]
    """By resource that is not measured."""
    estimated_ratio: dict[str, float] = field(default_factory=dict, metadata={"of": "estimates"})
    """The likely activity, by resource that is not measured and can be estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointJson(Json):
    """Where the last interval lies on the roofline chart."""

    flops_per_second: float | None = of("total_flops_per_second")
    flops_lower_per_second: float | None = of("flops_bounds_per_second.lower")
    flops_upper_per_second: float | None = of("flops_bounds_per_second.upper")
    flops_per_second_by_precision: dict[str, float] = of("flops_per_second", required=True)
    dram_bytes_per_second: float | None = None
    intensity_flops_per_byte: float | None = None
    dram_lower_bytes_per_second: float | None = of("dram_bounds_bytes_per_second.lower")
    """Where the traffic is not measured; the next one too."""
    dram_upper_bytes_per_second: float | None = of("dram_bounds_bytes_per_second.upper")
    intensity_lower_flops_per_byte: float | None = of("intensity_bounds_flops_per_byte.lower")
    """Where both ends of the intensity are known; the next one too."""
    intensity_upper_flops_per_byte: float | None = of("intensity_bounds_flops_per_byte.upper")
    stated_flops_per_second: float | None = None
    """What the training jobs on it say that they compute, as far as that is possible."""
    dram_estimate_bytes_per_second: float | None = None
    """The likely traffic where it is not measured."""
    tensor_flops_utilization_ratio: float | None = None
    roof_ratio: dict[str, float]
    """By basis; may exceed 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentJson(Json):
    """What states are judged by: means of the last 10 s, or of a last interval that is longer."""

    seconds: float
    """For how long it was observed."""
    busy_ratio: float | None = None
    """Engine activity, else utilization."""
    utilization_ratio: float | None = None
    memory_utilization_ratio: float | None = None
    """As the driver reports it."""
    saturation_ratio: float | None = None
    saturation_lower_ratio: float | None = of("saturation_bounds.lower")
    saturation_upper_ratio: float | None = of("saturation_bounds.upper")
    saturation_unit: str | None = None
    """The busiest unit."""
    active_ratio: dict[str, float]
    """By counter."""
    time_parts: dict[str, float]
    """Ratios that add up to 1."""
    time_bounds: dict[str, BoundsJson] = field(default_factory=dict)
    """By time part, where it is only bounded."""
    limiter: str | None = None
    """What limited it for longest; of limiters that take turns, always the same."""
    limited_ratio: dict[str, float]
    """By limiter: the share of time."""
    roof_ratio: dict[str, float]
    """By basis; may exceed 1."""
    flops_per_second: float | None = of("total_flops_per_second")
    flops_lower_per_second: float | None = of("flops_bounds_per_second.lower")
    flops_upper_per_second: float | None = of("flops_bounds_per_second.upper")
    dram_bytes_per_second: float | None = None
    intensity_flops_per_byte: float | None = None
    dram_lower_bytes_per_second: float | None = of("dram_bounds_bytes_per_second.lower")
    """Where the traffic is not measured; the next one too."""
    dram_upper_bytes_per_second: float | None = of("dram_bounds_bytes_per_second.upper")
    intensity_lower_flops_per_byte: float | None = of("intensity_bounds_flops_per_byte.lower")
    """Where both ends of the intensity are known; the next one too."""
    intensity_upper_flops_per_byte: float | None = of("intensity_bounds_flops_per_byte.upper")
    stated_flops_per_second: float | None = None
    """What the training jobs on it say that they compute, as far as that is possible."""
    estimated_ratio: dict[str, float] = field(default_factory=dict, metadata={"of": "estimates"})
    """The likely activity, by resource that is not measured and can be estimated."""
    dram_estimate_bytes_per_second: float | None = None
    """The likely traffic where it is not measured."""
    intensity_estimate_flops_per_byte: float | None = None
    """What jobs say that they compute, over the likely traffic."""
    model_flops_utilization_ratio: float | None = None
    """MFU: what jobs say that they compute, over the datasheet peak of their precision."""
    idle_ratio: float | None = None
    """The share of time that lay in idle intervals."""
    held_idle_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class XidJson(Json):
    """One of the driver's error numbers."""

    xid: int
    count: int
    """Since the exporter started."""
    last_timestamp_seconds: float
    tier: str | None = None
    """critical or warning; absent for one that raises no alert."""
    meaning: str
    """What it means, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleJson(Json):
    """Idle time since the exporter started."""

    idle_seconds_total: float | None = of("idle_seconds")
    held_idle_seconds_total: float | None = of("held_idle_seconds")
    idle_energy_joules_total: float | None = of("idle_energy_joules")
    held_idle_energy_joules_total: float | None = of("held_idle_energy_joules")
    last_busy_timestamp_seconds: float | None = None
    idle_for_seconds: float | None = None
    """How long it was seen to be idle without a break; 0 where it is not idle."""
    allocated_unopened_seconds_total: float | None = of("allocated_unopened_seconds")
    """In which a scheduler had given it to somebody and no process held it."""
    unopened_for_seconds: float | None = None
    """How long that was seen without a break; 0 where it is not so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderJson(Json):
    """The process that holds a share; of several that with the most memory."""

    owner: str | None = None
    command: str | None = None
    """The command's name, without arguments."""
    work_class: str
    """training, serving, notebook, display, system or other."""
    workload: str | None = None
    """Whose work it is, as people call it: team-a/notebook-7, or ada, job 4711."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadJson(Json):
    """One container of a pod, one step of a Slurm job, or one container."""

    scheduler: str
    """kubernetes, slurm or container."""
    namespace: str | None = None
    pod: str | None = None
    container: str | None = None
    """Its name."""
    job: str | None = None
    """Slurm's job id."""
    user: str | None = None
    """Of the Slurm job."""
    step: str | None = None
    """Of the Slurm job."""
    id: str | None = None
    """UID of the pod, SLUID of the job, or id of the container."""
    runtime: str | None = None
    """Of a container: docker, podman, containerd or cri-o."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisJson(Json):
    """A known cause that the evidence shows now."""

    cause: str
    """Its name for machines, as in gpu_diagnosis; docs/causes.md has a section of that name."""
    job: str | None = None
    """The training job that it is about."""
    evidence: dict[str, float]
    """The numbers that decided, by name."""
    recoverable_lower_seconds: float | None = None
    """What it has cost at least since the exporter knows the job or the GPU, in GPU-seconds."""
    recoverable_upper_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareJson(Json):
    """A whole GPU or, while MIG is on, one GPU instance."""

    gpu_instance: int | None = None
    held: bool | None = None
    holder: HolderJson | None = None
    """Present while held."""
    allocated: bool | None = of("work.allocated")
    """Whether a scheduler has given it to somebody; absent where none says."""
    workloads: list[WorkloadJson] = field(default_factory=list, metadata={"of": "work.workloads"})
    """Those that it is given to, and those that have a process on it."""
    diagnoses: list[DiagnosisJson] = field(default_factory=list)
    """The known causes that it shows now."""
    missing_evidence: list[str] = field(default_factory=list)
    """What would have to be known to tell why it waits for data, where no cause is shown."""
    limiter: str | None = None
    """What limited the last interval."""
    recent: RecentJson | None = None
    """What it did over the last 10 s, by which its state is judged."""
    utilization_ratio: float | None = of("utilization.ratio")
    memory: MemoryJson | None = None
    processes: dict[str, int] | None = of("process_counts")
    """Number by type."""
    activity: ActivityJson | None = None
    saturation: SaturationJson | None = None
    time_parts: dict[str, float] | None = None
    """Ratios that add up to 1."""
    time_bounds: dict[str, BoundsJson] = field(default_factory=dict)
    """By time part, where it is only bounded."""
    roofline: PointJson | None = None
    data_stall: dict[str, BoundsJson]
    """By method, where the job does not measure it: bounds of the time idle for lack of data."""
    idle: IdleJson = of("totals", required=True)
    observed_seconds_total: dict[str, float] = of("totals.observed_seconds", required=True)
    """By reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuJson(Json):
    """One physical GPU."""

    index: int = of("device.index", required=True)
    uuid: str = of("device.uuid", required=True)
    up: bool
    down_reason: str | None = None
    last_read_timestamp_seconds: float | None = None
    identity: IdentityJson = of("device", required=True)
    modes: dict[str, str] = of("device.modes", required=True)
    mig: bool = of("device.mig", required=True)
    instances: list[InstanceJson] = of("device.instances", required=True)
    board: BoardJson | None = of("")
    shares: list[ShareJson]
    peers: list[PeerJson] = field(default_factory=list)
    """The other GPUs whose link with it is known."""
    ranks: list[GpuRankJson]
    """Of training jobs that report."""
    xids: list[XidJson]
    """Also of a GPU that is down."""
    absent_readings: dict[str, str] = of("states", required=True)
    """By group of readings: why it is absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceJson(Json):
    """How one source is doing."""

    up: bool
    """Whether it can be read now."""
    age_seconds: float | None = None
    """Of what it said last, where that stays while it cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusAnswer(Answer):
    """Every GPU of the node."""

    timestamp_seconds: float | None = None
    """Of the snapshot; none before it."""
    notice: str | None = None
    """That the data is recorded or simulated; absent where it is what real GPUs do now."""
    problem: str | None = None
    source_states: dict[str, SourceJson] = field(default_factory=dict, metadata={"of": "sources"})
    """By name, those in use."""
    gpus: list[GpuJson]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAnswer(Answer):
    """One GPU of the node."""

    timestamp_seconds: float
    notice: str | None = None
    """As in the answer about all GPUs."""
    gpu: GpuJson
    readings: list[ReadingJson]
    """All that can be read of it, also what is absent."""
