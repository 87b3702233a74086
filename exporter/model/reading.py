# SPDX-License-Identifier: Apache-2.0
"""The readings of GPUs: frozen data in base units.

Ratios are 0 to 1 (a driver's value above 1 is passed on as it is: cutting belongs to the
integrals), times are seconds, sizes are bytes, clocks are hertz. ``None`` is "not known".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from exporter.model.workload import Membership

SUSPENDED = "suspended: it sleeps and is not woken"
"""The problem of a healthy GPU in runtime suspend."""

THROTTLE_REASONS = (
    "sw_power_cap",
    "hw_power_brake",
    "hw_slowdown",
    "sw_thermal",
    "hw_thermal",
    "sync_boost",
    "board_limit",
    "reliability",
)
"""The throttle reasons, as ``gpu_throttle_seconds_total`` names them."""

LONGEST_AGE_SECONDS = 5.0
"""An activity that is older than this when it is read belongs to an earlier interval."""

PROCESS_KINDS = ("compute", "graphics", "mps")
COMPUTE_KINDS = ("compute", "mps")
WORK_CLASSES = ("training", "serving", "notebook", "display", "system", "other")
COMMAND_LENGTH = 15
"""The kernel cuts a process name in /proc/PID/comm at 15 bytes (TASK_COMM_LEN)."""

RECOVERY_ACTIONS = (
    "none",
    "GPU reset",
    "node reboot",
    "drain P2P",
    "drain and reset",
    "recover IMEX domain",
    "bus reset",
    "system reboot",
)
"""The driver's recovery actions, in the order of nvml.h."""

FABRIC_STATES = ("not supported", "not started", "in progress", "completed")
"""The states of the registration with the NVSwitch fabric, in the order of nvml.h."""


NVSWITCH = "nvswitch"
"""What is at the other end of an NVLink, if it is no GPU."""

_OF_INSTANCE = "_instance_"


class Place(NamedTuple):
    """A share of a GPU by its labels; without a UUID, no GPU."""

    uuid: str | None
    gpu_instance: int | None


def share_group(group: str, gpu_instance: int | None) -> str:
    """Return the name of a group of readings of one share, unique within its GPU."""
    return group if gpu_instance is None else f"{group}{_OF_INSTANCE}{gpu_instance}"


def share_name(gpu: int | str, gpu_instance: int | None) -> str:
    """Return the name of a share, from its GPU's index, name or UUID: 2, or 2/1."""
    return str(gpu) if gpu_instance is None else f"{gpu}/{gpu_instance}"


def named_group(group: str, gpu: str) -> str:
    """Return the group for a message about a GPU: memory; of an instance, memory of GPU 2/1."""
    name, instance = group_and_instance(group)
    return name if instance is None else f"{name} of {share_name(gpu, instance)}"


def group_and_instance(group: str) -> tuple[str, int | None]:
    """Split the name from `share_group` into the group and the GPU instance, if it has one."""
    name, found, number = group.partition(_OF_INSTANCE)
    return (name, int(number)) if found and number.isdecimal() else (group, None)


def _without_none(**values: float | None) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Instance:
    """One MIG compute instance of a GPU."""

    gpu_instance: int
    compute_instance: int
    profile: str
    mig_uuid: str
    sm_count: int | None = None
    memory_bytes: int | None = None


def capability_text(capability: tuple[int, int] | None) -> str | None:
    """Return a compute capability as it is written, such as 9.0; None where it is not known."""
    return None if capability is None else f"{capability[0]}.{capability[1]}"


@dataclass(frozen=True, slots=True)
class Device:
    """The static properties of a GPU: identity, limits, modes, MIG layout."""

    index: int
    uuid: str
    name: str
    source: str = "nvml"
    architecture: str | None = None
    compute_capability: tuple[int, int] | None = None
    pci_bus_id: str | None = None
    pci_device_id: int | None = None
    """The 16-bit device id under vendor 10DE."""
    serial: str | None = None
    board_part_number: str | None = None
    minor_number: int | None = None
    numa_node: int | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    vbios_version: str | None = None
    core_count: int | None = None
    """FP32 (CUDA) cores of the whole GPU."""
    memory_bus_width_bits: int | None = None
    memory_bytes: int | None = None
    clock_max_hertz: Mapping[str, float] = field(default_factory=dict)
    """By clock: sm, memory, graphics, video."""
    power_default_limit_watts: float | None = None
    power_max_limit_watts: float | None = None
    temperature_threshold_celsius: Mapping[str, float] = field(default_factory=dict)
    """By threshold: shutdown, slowdown, memory_max, gpu_max."""
    pcie_generation_max: int | None = None
    pcie_width_max: int | None = None
    nvlink_count: int | None = None
    nvlink_bandwidth_bytes_per_second: float | None = None
    """All links together, per direction."""
    nvlink_ends: Mapping[str, int] | None = None
    """Active NVLinks by what is at the other end: the PCI address of a GPU (as `pci_bus_id`) or
    ``NVSWITCH``."""
    pci_path: tuple[str, ...] = ()
    """From the root of its PCI tree down to it, as sysfs names them; empty where not known."""
    cpu_affinity: str | None = None
    """The CPUs of its NUMA node that are online, as the kernel writes a list: 0-55,112-167."""
    numa_affinity: int | None = None
    """The NUMA node that it is attached to; `numa_node` is that of its own memory."""
    c2c_bandwidth_bytes_per_second: float | None = None
    coherent_memory: bool = False
    """True where GPU and CPU share one address space (Grace, GB10, Jetson)."""
    virtualized: bool = False
    """True in a vGPU guest: utilization covers other guests too."""
    modes: Mapping[str, str] = field(default_factory=dict)
    """By mode: persistence, compute, ecc, mig, virtualization, confidential."""
    mig: bool = False
    instances: tuple[Instance, ...] = ()


@dataclass(frozen=True, slots=True)
class Utilization:
    """Share of time with a kernel resident, as the driver reports it; it is not saturation."""

    ratio: float
    """Mean over `seconds`; on the first read the newest value with ``seconds = 0``."""
    upper_ratio: float
    """An upper bound of the true mean over the interval between the two reads."""
    seconds: float
    """The time that `ratio` is the mean of, as the driver's own samples are spaced."""
    memory_ratio: float | None = None
    """Share of time in which device memory was read or written, as the driver reports it."""
    memory_upper_ratio: float | None = None
    settled_ratio: float | None = None
    """The part of the upper bound that the next reading does not change; above 1 where the first
    sample began before the interval."""
    open_ratio: float | None = None
    """The time since the last sample, as a ratio of the interval; the next reading covers it."""
    memory_settled_ratio: float | None = None
    memory_open_ratio: float | None = None
    lower_ratio: float = 0.0
    """A lower bound of the true mean over the interval between the two reads."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Device memory of a GPU or of one MIG instance, or the host's where it is both's, in bytes."""

    total_bytes: int
    used_bytes: int
    """Without the reserved part where the driver reports both, else with it."""
    free_bytes: int
    reserved_bytes: int | None = None
    unified: bool | None = field(default=None, kw_only=True)
    """True where it is the host's memory, because the GPU has none of its own."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process that the driver lists on a GPU."""

    pid: int
    kind: str
    used_bytes: int | None = None
    command: str | None = None
    """The command's name from /proc, at most 32 bytes; never its arguments."""
    owner: str | None = None
    work_class: str | None = None
    membership: Membership | None = None
    """The workload that its control group names; None if that cannot be read."""
    sm_utilization_ratio: float | None = None
    """Its share of the GPU's SM time, as the driver samples it, if enabled."""
    cpu_cores: float | None = None
    """How many CPU cores it kept busy since the read before; None at its first."""
    cpu_list: str | None = None
    """The CPUs that its main thread may run on, online or not, as the kernel writes a list."""
    transformer_engine: bool | None = None
    """Whether it has loaded Transformer Engine; None also on a GPU without FP8."""


def share_names(device: Device, gpu_instance: int | None) -> set[str]:
    """Return what a person may call a share: its GPU's index or UUID, 2/1, a UUID of its own."""
    own = {each.mig_uuid for each in device.instances if each.gpu_instance == gpu_instance}
    return {str(device.index), device.uuid, share_name(device.index, gpu_instance), *own}


def process_counts(processes: Iterable[Process]) -> dict[str, int]:
    """Return how many processes of each kind there are; each kind is listed."""
    kinds = [process.kind for process in processes]
    return {kind: kinds.count(kind) for kind in PROCESS_KINDS}


@dataclass(frozen=True, slots=True)
class Activity:
    """Hardware counters averaged over the `seconds` that end with the reading.

    Activities are ratios of cycles; traffic is the bytes moved in that time.
    """

    source: str
    """Name of the counter source, such as gpm."""
    seconds: float
    engine: float | None = None
    sm: float | None = None
    occupancy: float | None = None
    dram: float | None = None
    tensor: float | None = None
    fp64: float | None = None
    fp32: float | None = None
    fp16: float | None = None
    integer: float | None = None
    fma: float | None = None
    """The FP32 and FP16 units together, where the source does not tell them apart."""
    tensor_fp16: float | None = None
    """The tensor and FP16 pipes together, likewise (Turing)."""
    hmma: float | None = None
    imma: float | None = None
    dmma: float | None = None
    dfma: float | None = None
    encoder: float | None = None
    decoder: float | None = None
    jpeg: float | None = None
    ofa: float | None = None
    elapsed_cycles: float | None = None
    """SM cycles that passed, as the driver counts them (of one SM or summed over all)."""
    pcie_transmit_bytes: float | None = None
    pcie_receive_bytes: float | None = None
    nvlink_transmit_bytes: float | None = None
    nvlink_receive_bytes: float | None = None
    c2c_transmit_bytes: float | None = None
    c2c_receive_bytes: float | None = None
    age_seconds: float | None = None
    unseen_seconds: float | None = None
    """Seconds of the interval that it may not cover."""
    lag_seconds: float | None = None
    """Seconds from the end of its interval to the reading, where known."""

    @property
    def integrable(self) -> bool:
        """Whether it may be integrated: not if it is too old, or does not cover its interval."""
        is_old = self.age_seconds is not None and self.age_seconds > LONGEST_AGE_SECONDS
        return not (self.unseen_seconds or is_old)

    @property
    def pipe_ratios(self) -> dict[str, float]:
        """The activity of each math pipe that is known, alone or with another: tensor, fp64, fp32,
        fp16, int, tensor_fp16, fma."""
        return _without_none(
            tensor=self.tensor,
            fp64=self.fp64,
            fp32=self.fp32,
            fp16=self.fp16,
            int=self.integer,
            tensor_fp16=self.tensor_fp16,
            fma=self.fma,
        )

    @property
    def tensor_op_ratios(self) -> dict[str, float]:
        """The activity of the tensor pipe by operation, where the source reports it."""
        return _without_none(hmma=self.hmma, imma=self.imma, dmma=self.dmma, dfma=self.dfma)


ACTIVITY_BYTES = frozenset(each.name for each in fields(Activity) if each.name.endswith("_bytes"))
"""The fields of `Activity` that are amounts."""
ACTIVITY_RATIOS = (
    frozenset(each.name for each in fields(Activity))
    - ACTIVITY_BYTES
    - {"source", "seconds", "elapsed_cycles", "age_seconds", "unseen_seconds", "lag_seconds"}
)
"""The fields of `Activity` that are means."""


@dataclass(frozen=True, slots=True)
class Vitals:
    """The board's fast readings. Totals are the driver's own counters."""

    utilization: Utilization | None = None
    encoder_ratio: float | None = None
    decoder_ratio: float | None = None
    jpeg_ratio: float | None = None
    ofa_ratio: float | None = None
    power_watts: float | None = None
    module_power_watts: float | None = None
    energy_joules: float | None = None
    temperature_celsius: float | None = None
    memory_temperature_celsius: float | None = None
    clock_hertz: Mapping[str, float] = field(default_factory=dict)
    """By clock: sm, memory; at the slow cadence also graphics and video."""
    busy_sm_clock_hertz: float | None = None
    """SM clock averaged over the busy time since the last read, where the driver samples it."""
    mean_sm_clock_hertz: float | None = None
    """SM clock averaged over all of the time since the last read, where the driver samples it."""
    throttle_reasons: frozenset[str] | None = None
    throttle_seconds: Mapping[str, float] = field(default_factory=dict)
    """The driver's totals; also ``thermal``, the sum of both thermal reasons, and
    ``low_utilization``, which is not throttling."""
    pcie_transmit_bytes: float | None = None
    """Since the last read, where the driver's counter cannot have wrapped unseen."""
    pcie_receive_bytes: float | None = None
    nvlink_transmit_bytes_total: float | None = None
    nvlink_receive_bytes_total: float | None = None

    @property
    def temperatures_celsius(self) -> dict[str, float]:
        """The temperatures that are known, by sensor: gpu, memory."""
        return _without_none(gpu=self.temperature_celsius, memory=self.memory_temperature_celsius)


@dataclass(frozen=True, slots=True)
class Board:
    """The board's slow readings, which change rarely or are expensive to read."""

    power_limit_watts: float | None = None
    temperature_margin_celsius: float | None = None
    fan_speed_ratios: tuple[float, ...] = ()
    performance_state: int | None = None
    bar1_used_bytes: int | None = None
    bar1_total_bytes: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    pcie_replays_total: int | None = None
    pcie_errors_total: Mapping[str, int] = field(default_factory=dict)
    """By kind: correctable, non_fatal, fatal, ..."""
    pcie_link_recoveries_total: int | None = None
    nvlink_errors_total: Mapping[str, int] = field(default_factory=dict)
    """By kind: crc_flit, crc_data, replay, recovery."""


@dataclass(frozen=True, slots=True)
class Health:
    """The board's health as the driver reports it, at the slow cadence. Counts are the driver's."""

    ecc_errors_total: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Since driver load, by severity (corrected, uncorrected) and location (dram, sram)."""
    ecc_lifetime_errors: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The same over the board's lifetime."""
    remapped_rows: Mapping[str, int] = field(default_factory=dict)
    """By kind: correctable, uncorrectable."""
    row_remap_pending: bool | None = None
    row_remap_failure: bool | None = None
    row_remap_banks: Mapping[str, int] = field(default_factory=dict)
    """By availability of spare rows: max, high, partial, low, none."""
    retired_pages: Mapping[str, int] = field(default_factory=dict)
    """By cause: single_bit, double_bit; before Ampere."""
    retired_pages_pending: bool | None = None
    sram_error_threshold_exceeded: bool | None = None
    unrepairable_memory: bool | None = None
    recovery_action: int | None = None
    """The number of one of ``RECOVERY_ACTIONS``, or of an action that a newer driver has."""
    nvlink_links: Mapping[str, int] = field(default_factory=dict)
    """By state: active, inactive."""
    nvlink_links_expected: int | None = None
    fabric_state: int | None = None
    """The number of one of ``FABRIC_STATES``."""
    fabric_healthy: bool | None = None
    fabric_cluster_uuid: str | None = None
    fabric_clique: int | None = None


@dataclass(frozen=True, slots=True)
class XidRecord:
    """How often one Xid was seen on a GPU since the exporter started, and when last."""

    count: int
    last_timestamp_seconds: float


@dataclass(frozen=True, slots=True)
class ShareReading:
    """The readings of a whole GPU or, while MIG is on, of one GPU instance."""

    gpu_instance: int | None = None
    memory: Memory | None = None
    processes: tuple[Process, ...] | None = None
    activity: Activity | None = None
    counters: str | None = None
    """Name of the counter source that is expected to answer for this share."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The readings of one GPU in one round."""

    device: Device
    timestamp_seconds: float
    """Unix time at which the fast readings were taken."""
    monotonic_seconds: float
    vitals: Vitals
    board: Board
    shares: tuple[ShareReading, ...]
    health: Health | None = None
    states: Mapping[str, str] = field(default_factory=dict)
    """Why a group of readings (`share_group`) is absent: unsupported, no_permission ..."""
    cadence_age_seconds: Mapping[str, float] = field(default_factory=dict)
    """By cadence (slow, static): the age of its readings, in seconds."""
    read_seconds: Mapping[str, float] = field(default_factory=dict)
    """By source: the duration of its reads in this round."""


@dataclass(frozen=True, slots=True)
class SlotReport:
    """The report on one GPU after a round."""

    index: int
    """The slot of the GPU, stable also where the driver renumbers its GPUs."""
    device: Device | None
    reading: Reading | None
    problem: str | None
    failures: Mapping[str, int]
    """Failed reads so far, by source."""
