# SPDX-License-Identifier: Apache-2.0
"""The one flag table: every setting's name, type, default and help, in the order of the help.

Each field of Settings is a row: a_b_c is the flag ``--a.b-c``, in YAML ``a: {b-c: …}``, and the
variable ``ROOFLINE_A_B_C``.
"""

# The defaults below are immutable values, so sharing them is safe.
# ruff: noqa: RUF009

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from exporter.cli.config import coerce
from exporter.cli.config.coerce import BOOLEAN, Address, Kind, LogLevel, Url
from exporter.sources.table import COUNTER_SOURCES, SOURCES

T = TypeVar("T")

PREFIX = "ROOFLINE_"
_UNIT = re.compile("_(?:seconds|ratio|bytes_per_second)$")


@dataclass(frozen=True, slots=True)
class Flag:
    """One row of the table."""

    name: str
    kind: Kind[Any]
    default: str
    """As a user would write it; empty where nothing is set."""
    help: str
    reloadable: bool
    attribute: str = ""
    """The field of Settings that holds its value."""
    member: str = ""
    """Of a switch among several: what it puts into the set that this field holds."""

    @property
    def variable(self) -> str:
        """The environment variable of this flag."""
        return PREFIX + re.sub(r"[.-]", "_", self.name).upper()

    @property
    def option(self) -> str:
        """The flag as it is written on a command line."""
        return f"--{self.name}"

    @property
    def is_switch(self) -> bool:
        """True for ``--NAME/--no-NAME``, which take no value."""
        return self.kind is BOOLEAN


@dataclass(frozen=True, slots=True)
class Given:
    """A value that the operator set, as written but for secrets, and its origin."""

    value: Any
    text: str
    place: str
    """The flag, the variable, or ``FILE:LINE: key``, as messages begin."""


def _flag(kind: Kind[T], default: str, help: str, *, reloadable: bool = False, name: str = "") -> T:
    """Return the field of a flag; without a `name` it is named by its field."""
    row = Flag(name, kind, default, help, reloadable)
    return field(default=kind.parse(default), metadata={"flags": (row,)})


def _unset(kind: Kind[T], help: str, *, reloadable: bool = False, name: str = "") -> T | None:
    """Return the field of a flag whose default is None."""
    return _flag(coerce.optional(kind), "", help, reloadable=reloadable, name=name)


def _switch(help: str, *, on: bool = False, reloadable: bool = False) -> bool:
    return _flag(BOOLEAN, str(on).lower(), help, reloadable=reloadable)


def _sources() -> frozenset[str]:
    """Return the field of the sources: a switch for each row of their table."""
    flags = tuple(
        Flag(row.flag, BOOLEAN, str(row.enabled).lower(), row.gives, False, member=row.name)
        for row in SOURCES
    )
    enabled = frozenset(row.name for row in SOURCES if row.enabled)
    return field(default=enabled, metadata={"flags": flags})


@dataclass(frozen=True, slots=True)
class Settings:
    """The effective values, typed; ``Settings()`` holds the defaults."""

    web_listen_address: Address = _flag(
        coerce.ADDRESS,
        ":19400",
        "Where to serve HTTP. Without a host, on every address; port 0 takes any free port.",
    )
    web_max_requests: int = _flag(
        coerce.integer(1, 10000),
        "40",
        "Scrapes whose page is made at the same time, sending it not included; one more gets 503.",
    )
    web_max_connections: int = _flag(
        coerce.integer(1, 10000),
        "512",
        "Connections open at the same time, fewer where the limit of open files asks for it. One "
        "more is closed at once.",
    )
    web_max_connections_per_address: int = _flag(
        coerce.integer(1, 10000),
        "100",
        "The same for the connections of one address: those of 127.0.0.0/8 are one, an IPv6 /64 "
        "counts as one.",
    )
    web_allowed_hosts: tuple[str, ...] = _flag(
        coerce.HOSTS,
        "",
        "Names that this node is asked by over plain HTTP, beside its own, addresses, names "
        "without dots and those in its search domains; .example.com is every name below it, * any "
        "name. Other requests get 421.",
    )
    web_config_file: Path | None = _unset(
        coerce.PATH,
        "YAML file that switches on TLS, passwords and a rate limit, as for other exporters of "
        "Prometheus; see web-config.md. It is looked at for each new connection.",
        name="web.config.file",
    )
    config_file: Path | None = _unset(
        coerce.PATH, "YAML file with any of these settings but this one."
    )
    poll_interval_seconds: float = _flag(
        coerce.duration("100ms", "60s"),
        "1s",
        "Time between two readings of every GPU, and so between two pages of /metrics.",
    )
    poll_slow_interval_seconds: float = _flag(
        coerce.duration("100ms", "1h"),
        "10s",
        "Time between two readings of what changes rarely or is expensive to read: processes, "
        "ECC, links, health. At least poll.interval, and raised to it unless set.",
    )
    sources: frozenset[str] = _sources()
    """The names of those that are switched on."""
    nvml_library: str | None = _unset(
        coerce.LIBRARY, "The driver's library, where it is not found as libnvidia-ml.so.1."
    )
    demo: bool = _switch("Serve simulated GPUs instead of this node's.")
    demo_if_no_driver: bool = _switch(
        "Serve simulated GPUs if no NVIDIA driver with a GPU answers at the start."
    )
    demo_scenario: str | Path = _flag(coerce.SCENARIO, "demo", "What is simulated.")
    demo_seed: int = _flag(
        coerce.integer(0, 999999999),
        "0",
        "Another number gives simulated GPUs other UUIDs and other small variations.",
    )
    replay: Path | None = _unset(
        coerce.PATH,
        "Recording made by roofline-exporter record, to serve instead of this node's GPUs; "
        "poll.interval is the recording's.",
    )
    replay_speed: float = _flag(
        coerce.decimal(0.1, 100),
        "1",
        "How many times as fast as it was recorded a recording plays.",
    )
    replay_loop: bool = _switch("Start over when the recording ends; counters go on growing.")
    specs: Path | None = _unset(
        coerce.PATH,
        "YAML file of GPU models that are added to the bundled ones, or replace them.",
        reloadable=True,
    )
    dcgm_url: Url | None = _unset(
        coerce.URL,
        "Page of the dcgm-exporter to read counters from; unset, http://127.0.0.1:9400/metrics if "
        "root or this user answers there.",
    )
    dcgm_host: str | None = _unset(
        coerce.ENGINE,
        "DCGM hostengine to read counters from instead, such as localhost:5555, through DCGM's own "
        "Python bindings.",
    )
    dcgm_bindings: Path | None = _unset(
        coerce.PATH,
        "Folder of these bindings; unset, where the package datacenter-gpu-manager-4-core has it.",
    )
    kubernetes_socket: Path = _flag(
        coerce.PATH,
        "/var/lib/kubelet/pod-resources/kubelet.sock",
        "Socket of the kubelet's pod resources API.",
    )
    kubernetes_pods_socket: Path = _flag(
        coerce.PATH,
        "/var/lib/kubelet/pods-api/pods-api.sock",
        "Socket of the kubelet's pods API, of Kubernetes 1.37 and newer.",
    )
    kubernetes_pod_labels: re.Pattern[str] | None = _unset(
        coerce.PATTERN,
        "Publish the labels of pods whose whole name matches; they come from the pods API.",
    )
    kubernetes_resources: tuple[str, ...] = _flag(
        coerce.NAMES,
        "",
        "Resources that are GPUs, beside nvidia.com/gpu, nvidia.com/gpu.shared and "
        "nvidia.com/mig-*.",
    )
    kubernetes_ignore_pods: re.Pattern[str] | None = _unset(
        coerce.PATTERN,
        "Pods that do not use the GPUs they are given, such as monitors with admin access to all: "
        "NAMESPACE/POD that matches as a whole.",
    )
    slurm_job_map: Path = _flag(
        coerce.PATH,
        "/var/lib/dcgm-exporter/job-mapping",
        "Folder in which a prolog keeps a file for each GPU, named by its number, of one job id a "
        "line.",
    )
    slurm_gpustat: Path = _flag(
        coerce.PATH,
        "/run/gpustat",
        "Folder in which a prolog keeps a file for each GPU, named by its UUID, of job id and "
        "user.",
    )
    slurm_numbering: Literal["index", "minor"] = _flag(
        coerce.choice("index", "minor"),
        "index",
        "What a number in the name of a prolog's file is: the driver's index of the GPU, or the N "
        "of /dev/nvidiaN.",
    )
    container_sockets: tuple[str, ...] = _flag(
        coerce.NAMES,
        "/var/run/docker.sock,/run/podman/podman.sock",
        "Unix sockets of Docker and Podman, to ask what the containers on GPUs are called; those "
        "of the default may be missing.",
    )
    nccl_ras_address: Address = _flag(
        coerce.ADDRESS, "localhost:28028", "Where NCCL's RAS answers, for the source nccl-ras."
    )
    cupti_duty: float = _flag(
        coerce.decimal(0.01, 1),
        "1",
        "Share of the time in which CUPTI samples; the rest is bounded, not measured.",
    )
    precision: str | None = _flag(
        coerce.optional(
            coerce.choice("fp64", "tf32", "fp16", "bf16", "fp8", "fp4", "int8", "int4", "none"),
            "none",
        ),
        "none",
        "Precision assumed for tensor work, which counters do not distinguish; none: fp8 where a "
        "process has loaded Transformer Engine, else fp16 on Volta and Turing, else bf16.",
        reloadable=True,
    )
    idle_threshold_ratio: float = _flag(
        coerce.RATIO,
        "0.01",
        "A GPU is idle while its busiest unit is active for less than this share of the time.",
        reloadable=True,
    )
    idle_link_rate_bytes_per_second: float = _flag(
        coerce.BYTES_PER_SECOND,
        "10MB",
        "A GPU is idle only while PCIe and NVLink together move less than this per second.",
        reloadable=True,
    )
    hold_ignore: tuple[str, ...] = _flag(
        coerce.NAMES,
        "nvidia-cuda-mps-server,Xorg,gnome-shell,nv-hostengine,dcgm-exporter,nvidia-persistenced",
        "Commands whose processes do not hold a GPU.",
        reloadable=True,
    )
    identity_serial: bool = _switch(
        "Show and record the serial number of each GPU, in the label serial; else it is empty.",
        on=True,
        reloadable=True,
    )
    process_owner: bool = _switch(
        "Publish the owner of the processes on a GPU, in the label owner; else it is empty.",
        on=True,
    )
    process_memory: bool = _switch(
        "Publish gpu_process_memory_bytes, a series for each process on a GPU.", reloadable=True
    )
    process_utilization: bool = _switch(
        "Publish gpu_process_sm_utilization_ratio, a series for each process on a GPU."
    )
    process_max: int = _flag(
        coerce.integer(1, 1024),
        "32",
        "The most series for one GPU of each family that has one for each process; the largest are "
        "kept.",
        reloadable=True,
    )
    training_socket: Path | None = _unset(
        coerce.PATH,
        "The socket that training jobs report to. Unless set, the first that can be created of "
        "/run/roofline-exporter/training.sock and "
        "$XDG_RUNTIME_DIR/roofline-exporter/training.sock.",
    )
    training_socket_mode: int = _flag(
        coerce.MODE,
        "0666",
        "Who may report: the permissions of that socket. With 0660 only its owner and its group.",
    )
    training_socket_group: str | None = _unset(
        coerce.GROUP, "The group that the socket is given to; unless set, it is the exporter's own."
    )
    training_max_jobs: int = _flag(
        coerce.integer(1, 4096),
        "64",
        "The most jobs known at a time. At this limit a user with less than a fair share takes a "
        "place of the user with the most jobs; any other user only replaces a job of their own "
        "that was silent for 10 s.",
    )
    training_max_ranks: int = _flag(
        coerce.integer(1, 8192),
        "512",
        "The most reporting processes known at a time, of all jobs together; users share them in "
        "the same way as jobs.",
    )
    gpu_include: tuple[str, ...] = _flag(
        coerce.GPUS, "", "Read only these GPUs; unset, all of them."
    )
    gpu_exclude: tuple[str, ...] = _flag(
        coerce.GPUS,
        "",
        "Leave out these GPUs, even if gpu.include names them. One named by its index is never "
        "opened, one named by its UUID only to read the UUID.",
    )
    gpu_skip_suspended: bool = _switch(
        "Do not wake a GPU that sleeps to save power, as in laptops; its gpu_up is 0."
    )
    gpu_forget_after_seconds: float = _flag(
        coerce.duration("1m", "365d"),
        "24h",
        "How long a GPU that is lost or gone stays on /metrics with gpu_up 0.",
        reloadable=True,
    )
    metrics_level: Literal["full", "core"] = _flag(
        coerce.choice("full", "core"),
        "full",
        "Publish every family, or only those marked core in the list of metrics.",
        reloadable=True,
    )
    metrics_exclude: re.Pattern[str] | None = _unset(
        coerce.PATTERN, "Leave out the families whose whole name matches.", reloadable=True
    )
    metrics_created: bool = _switch(
        "Serve OpenMetrics with _created beside each counter: since when it counts, where that is "
        "known. A Prometheus that does not read it as that keeps it as one more series.",
        reloadable=True,
    )
    path_procfs: Path = _flag(coerce.PATH, "/proc", "Where the host's /proc is mounted.")
    path_sysfs: Path = _flag(coerce.PATH, "/sys", "Where the host's /sys is mounted.")
    url: Url | None = _unset(
        coerce.URL,
        "Where the commands find the daemon, such as https://user:password@node7:19400; "
        "unset, on this node at web.listen-address.",
        reloadable=True,
    )
    url_user: str | None = _unset(
        coerce.USER, "The user that the commands are to the daemon.", reloadable=True
    )
    url_password_file: Path | None = _unset(
        coerce.PATH, "File with that user's password.", reloadable=True
    )
    url_ca_file: Path | None = _unset(
        coerce.PATH,
        "Certificates of the CAs that may sign the daemon's; unset, those of the system and, on "
        "this node, exactly the daemon's own.",
        reloadable=True,
    )
    url_cert_file: Path | None = _unset(
        coerce.PATH, "Client certificate to show to the daemon.", reloadable=True
    )
    url_key_file: Path | None = _unset(
        coerce.PATH, "Key of that certificate, where its file has none.", reloadable=True
    )
    url_insecure: bool = _switch(
        "Take any certificate: whoever answers may read the password and make up the answer.",
        reloadable=True,
    )
    log_level: LogLevel = _flag(
        coerce.LOG_LEVEL,
        "info",
        "Log messages of this level and above; warn and capital letters are taken too.",
        reloadable=True,
    )
    log_format: Literal["logfmt", "json"] = _flag(
        coerce.choice("logfmt", "json"),
        "logfmt",
        "Form of a log line, on standard error.",
        reloadable=True,
    )
    given: Mapping[str, Given] = field(default_factory=dict, compare=False, repr=False)
    """By flag name: what was set, and where; a flag that is not in here has its default."""

    @property
    def counter_sources(self) -> tuple[str, ...]:
        """The counter sources that are switched on, in order of preference."""
        return tuple(row.name for row in COUNTER_SOURCES if row.name in self.sources)

    def value(self, flag: Flag) -> Any:
        """Return the value of a flag."""
        value = getattr(self, flag.attribute)
        return flag.member in value if flag.member else value

    def describe(self) -> Mapping[str, str]:
        """Return the text and, in brackets, the origin of every setting that was made, by flag."""
        return {name: f"{item.text} ({item.place})" for name, item in self.given.items()}


def _name(attribute: str) -> str:
    """Return ``a.b-c`` for the field a_b_c, which may end in a unit."""
    return _UNIT.sub("", attribute).replace("_", ".", 1).replace("_", "-")


FLAGS: tuple[Flag, ...] = tuple(
    replace(flag, name=flag.name or _name(row.name), attribute=row.name)
    for row in fields(Settings)
    for flag in row.metadata.get("flags", ())
)
BY_NAME: Mapping[str, Flag] = {flag.name: flag for flag in FLAGS}
BY_VARIABLE: Mapping[str, Flag] = {flag.variable: flag for flag in FLAGS}


def settings_of(given: Mapping[str, Given]) -> Settings:
    """Return the settings in which these flags, by name, have these values."""
    values: dict[str, Any] = {}
    for name, item in given.items():
        flag = BY_NAME[name]
        if flag.member:
            on = values.get(flag.attribute, getattr(Settings(), flag.attribute))
            values[flag.attribute] = on | {flag.member} if item.value else on - {flag.member}
        else:
            values[flag.attribute] = item.value
    return Settings(**values, given=given)
