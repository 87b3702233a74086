# SPDX-License-Identifier: Apache-2.0
"""Reports of training jobs and of NCCL: frozen data in base units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.model.host import HostActivity

TRAINING_PHASES = (
    *("data", "h2d", "forward", "backward", "optimizer"),
    *("checkpoint", "eval", "logging", "other"),
)
"""The phases of a training loop, as ``gpu_training_phase_seconds_total`` names them."""

UNVERIFIED = "unverified"
OTHER_DEGRADATION = "other"
TRAINING_DEGRADATIONS: Mapping[str, str] = {
    "loaders": "loops over data loaders are not measured: the loader is not as the client knows it",
    "loader_details": "ready batches and workers are not known",
    "optimizers": "optimizer steps are not seen: a step is a batch",
    "checkpoints": "saving is not measured, or only in part",
    "autocast": "the precision is not known",
    "captures": "captures of CUDA graphs cannot be seen, so S is not measured",
    "cuda_events": "S is not measured although CUDA is used",
    "helper_thread": "the loader is read in a helper thread: the wait of the loop is not measured",
    "flops": "FLOPs are not counted: a compiled model, a CUDA graph, or no step that can be",
    "stated": "what the script states is no number that can be counted",
    "client": "the client failed: this process is measured in part, or no longer",
    UNVERIFIED: "the driver does not list it on this GPU, whose own numbers leave it out",
    OTHER_DEGRADATION: "a reason that this exporter does not know",
}
"""What is not measured or not verified of a training process, as
``roofline_exporter_training_degraded`` names it. The daemon finds the last two."""

TRAINING_REJECTIONS: Mapping[str, str] = {
    "too_large": "longer than 8192 bytes",
    "not_json": "not JSON in UTF-8",
    "version": "of another version of the protocol",
    "schema": "a value is missing, of the wrong type, out of range or contradicts another",
    "label": "a name is empty, too long or not printable",
    "credentials": "the sender is not the process that it claims to be",
    "rate": "too many in a short time",
    "jobs": "too many jobs",
    "ranks": "too many processes",
    "old": "not newer than what is known",
    "implausible": "more than the process can have done since it began",
}
"""Why a report is refused, as ``roofline_exporter_training_rejected_total`` names it."""
TRAINING_QUOTAS = frozenset({"rate", "jobs", "ranks"})
"""The reasons that are limits per user or of all users together."""
TRAINING_SENDERS: Mapping[str, str] = {
    "root": "uid 0",
    "system": "uids 1 to 999, of services",
    "user": "uids from 1000 on, of people",
    "unknown": "a uid that this daemon cannot see, as of another user namespace",
}
"""The sender of a report over a limit, as ``roofline_exporter_training_quota_hits_total`` names it;
never the uid, which identifies a person."""
STALL_EXCEEDS_IDLE = "stall_exceeds_idle"
FLOPS_EXCEED_PEAK = "flops_exceed_peak"
"""The reasons for minutes in which a report was accepted, and cut to what the GPU can have done."""

NO_DEVICE = ""
"""The device of a training process that is known to use no GPU."""


@dataclass(frozen=True, slots=True)
class TrainingTotals:
    """The totals of one training process, or of one rank over its processes."""

    steps: float = 0.0
    """Optimizer steps where seen, else batches."""
    batches: float = 0.0
    samples: float | None = None
    step_seconds: float = 0.0
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    """Host time by phase; phases exclude each other. A phase that is missing is not measured."""
    phase_gpu_idle_seconds: Mapping[str, float] = field(default_factory=dict)
    """The part of it in which the loop's stream was empty, by measured phase."""
    model_flops: float | None = None
    loader_start_seconds: float | None = None
    """The part of phase ``data`` in which loaders started workers that they had had before."""
    checkpoints: float | None = None
    """How often it saved; saves with no step in between are one checkpoint."""


@dataclass(frozen=True, slots=True)
class Loader:
    """Settings and state of a process's data loader."""

    workers: int | None = None
    prefetch_factor: int | None = None
    pin_memory: bool | None = None
    persistent_workers: bool | None = None
    ready_batches: int | None = None


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """The last report of one training process; only the sender's pid and uid are trusted."""

    report_id: str
    """32 hexadecimal digits, drawn by the process."""
    job: str
    """The name that the process reports; not unique."""
    rank: int
    received_monotonic_seconds: float
    received_timestamp_seconds: float
    totals: TrainingTotals
    device: str | None = None
    """UUID of a GPU or of a MIG device as the process sees it, ``NO_DEVICE``, or None: not known
    yet."""
    uid: int | None = None
    """The sender's uid by the kernel; None if there is no such user."""
    owner: str | None = None
    """The name of that user, or the number of one without a name."""
    host_pids: tuple[int, ...] = ()
    """The pid of the process, then those of its ancestors within its own pid namespace, nearest
    first, as numbered for this daemon. Empty where the process cannot be seen."""
    verified: bool = False
    """Whether it is certainly on its device, without the driver's list of processes."""
    world_size: int | None = None
    framework: str | None = None
    precision: str | None = None
    """What the model computes in: fp32, tf32, bf16, fp16, fp8 ..."""
    instrumentation: str = "client"
    loader: Loader = field(default_factory=Loader)
    host: HostActivity | None = None
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    """Of the framework's allocator, by kind: allocated, reserved, peak."""
    degraded: tuple[str, ...] = ()
    """What is not measured, by the names of ``TRAINING_DEGRADATIONS``."""
    flops_launched: bool = False
    """Whether its FLOPs are launched, and maybe not finished yet."""
    phase: str | None = None
    """The phase that it is in: it reports again when it leaves. None if it named none."""
    announces: bool = False
    """Whether it has ever named a phase: then it does so before every long one."""
    announced_wait_seconds: float = 0.0
    """Total duration of its finished announced waits for data."""
    errors: int = 0
    """Exceptions inside the client, which it suppressed."""
    alive: bool = True
    """False once the process has reported its end or is gone."""
    silent: bool = False
    """Whether it is alive but hidden, because it has not reported for long."""
    born_timestamp_seconds: float | None = None
    """Unix time at which the process started; None if that cannot be seen."""


RAS_STATES = ("responding", "missing", "unresponsive", "dead")
"""The states of a rank in NCCL's RAS, from best to worst; of one that is missing the process still
answers."""


@dataclass(frozen=True, slots=True)
class Collectives:
    """The NCCL job whose RAS answers on this node."""

    ranks: Mapping[str, int] = field(default_factory=dict)
    """By `RAS_STATES`: how many of its processes, each by its worst state in any communicator."""
    communicators: int = 0
