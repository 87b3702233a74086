# SPDX-License-Identifier: Apache-2.0
"""When each alert fires, and the nearest that it must not fire on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from exporter.model.xids import XIDS
from tests.rules.promtool import HOUR, MINUTE, Labels, Series, Value, between, piecewise, total

NODE: Labels = {"job": "roofline-exporter", "instance": "node-1:19400"}
BY_UUID: Labels = {**NODE, "uuid": "GPU-a"}
"""A GPU as alerts name it that outlive a change of its index."""
GPU: Labels = {**BY_UUID, "gpu": "0"}
RANK: Labels = {**NODE, "training_job": "resnet", "rank": "0", "uuid": "GPU-a"}
HOLDER: Labels = {"owner": "alice", "class": "training"}


@dataclass(frozen=True)
class Case:
    """Series on which an alert fires with these labels, or (without labels) does not."""

    alert: str
    about: str
    series: Sequence[Series]
    by: float
    """When it fires at the latest, or until when it is watched."""
    labels: Labels | None = None
    interruptible: bool = True
    """Whether the exporter can be away meanwhile without a change."""


def gauge(name: str, value: float | Value, labels: Labels = GPU, /, **more: str) -> Series:
    return Series(name, {**labels, **more}, value if callable(value) else piecewise((0, value)))


def counter(name: str, rate: float | Value, labels: Labels = GPU, /, **more: str) -> Series:
    """A counter that starts with the exporter."""
    value = rate if callable(rate) else total((0, rate))
    return Series(name, {**labels, **more}, value, own=True)


def driver(name: str, value: Value, labels: Labels = GPU, /, **more: str) -> Series:
    """A counter that the driver keeps."""
    return Series(name, {**labels, **more}, value)


def scraped(value: float | Value, labels: Labels = NODE) -> Series:
    """What Prometheus itself says of a target."""
    value = value if callable(value) else piecewise((0, value))
    return Series("up", labels, value, answers=False)


def observed(labels: Labels = GPU, *readings: str) -> list[Series]:
    return [
        counter("gpu_limited_seconds_total", 1, labels, limiter="unknown"),
        *(
            counter("gpu_observed_seconds_total", 1, labels, reading=reading)
            for reading in readings or ("activity", "utilization")
        ),
    ]


def held(
    idle: float | Value,
    by: Labels = HOLDER,
    labels: Labels = GPU,
    held_value: float | Value = 1,
) -> list[Series]:
    holder = {"command": "python3", **by}
    is_held = held_value if callable(held_value) else piecewise((0, held_value))
    info: Value = lambda at: 1.0 if is_held(at) else None  # noqa: E731
    return [
        *observed(labels),
        gauge("gpu_held", is_held, labels),
        gauge("gpu_holder_info", info, labels, **holder),
        counter("gpu_idle_seconds_total", idle, labels),
        counter("gpu_held_idle_seconds_total", idle, labels),
    ]


WORKLOAD: Labels = dict.fromkeys(("namespace", "pod", "container", "job", "user", "step", "id"), "")


def workload(
    scheduler: str,
    labels: Labels = GPU,
    spell: tuple[float, float] = (0, 1e9),
    /,
    **said: str,
) -> Series:
    """A workload that is on a GPU for a while; what is not said is not known."""
    there = between(*spell, lambda _: 1.0)
    names = {f"workload_{name}": said.get(name, "") for name in WORKLOAD}
    return gauge("gpu_workload_info", there, labels, scheduler=scheduler, **names)


def pod(name: str, labels: Labels = GPU, spell: tuple[float, float] = (0, 1e9)) -> Series:
    """A container of a pod, named NAMESPACE/POD."""
    namespace, _, of_pod = name.partition("/")
    return workload("kubernetes", labels, spell, namespace=namespace, pod=of_pod, container="main")


def given(
    *spells: tuple[str, float, float],
    held_value: float | Value = 0,
    labels: Labels = GPU,
) -> list[Series]:
    """A GPU that the kubelet gives to one pod after another, which somebody holds at times."""
    is_held = held_value if callable(held_value) else piecewise((0, held_value))

    def allocated(at: float) -> float:
        return float(any(start <= at < end for _, start, end in spells))

    cuts = sorted({0.0, *(at for _, *ends in spells for at in ends if at < 1e6)})
    unopened = total(*((at, allocated(at) * (1 - (is_held(at) or 0.0))) for at in cuts))
    return [
        gauge("gpu_held", is_held, labels),
        gauge("gpu_allocated", allocated, labels),
        counter("gpu_allocated_unopened_seconds_total", unopened, labels),
        *(pod(name, labels, (start, end)) for name, start, end in spells),
    ]


def asked(age: float | None, up: float = 1) -> list[Series]:
    """How the reading of the kubelet goes."""
    made = [gauge("roofline_exporter_source_up", up, NODE, source="kubernetes")]
    if age is not None:
        made.append(gauge("roofline_exporter_source_age_seconds", age, NODE, source="kubernetes"))
    return made


def held_by(
    *spells: tuple[str, float, float],
    idle: Sequence[tuple[float, float]] = ((0, 1),),
    labels: Labels = GPU,
    by: Labels = HOLDER,
) -> list[Series]:
    """A GPU that owners hold from a time to another, and whose idle share changes at some times."""
    cuts = sorted({0.0, *(at for _, *ends in spells for at in ends), *(at for at, _ in idle)})
    share = piecewise(*idle)

    def owner(at: float) -> str | None:
        return next((who for who, start, end in spells if start <= at < end), None)

    def idled(held_only: bool) -> Value:
        return total(
            *((at, share(at) or 0.0 if owner(at) or not held_only else 0.0) for at in cuts)
        )

    def info(who: str) -> Value:
        return lambda at: 1.0 if owner(at) == who else None

    return [
        *observed(labels),
        gauge("gpu_held", lambda at: 1.0 if owner(at) else 0.0, labels),
        *(
            gauge(
                "gpu_holder_info",
                info(who),
                labels,
                **{"command": "python3", **by, "owner": who},
            )
            for who in dict.fromkeys(who for who, *_ in spells)
        ),
        counter("gpu_idle_seconds_total", idled(held_only=False), labels),
        counter("gpu_held_idle_seconds_total", idled(held_only=True), labels),
    ]


def rank(
    number: int = 0,
    *,
    stall: float | None = None,
    checkpoint: float | None = None,
    waited: float | None = None,
    start: float = -1e6,
    end: float = 1e9,
    run_start: float = 0.0,
    instance: str = NODE["instance"],
    uuid: str = "",
    job: str = RANK["training_job"],
    verified: bool | None = True,
) -> list[Series]:
    """A rank whose loop runs all the time; shares of it in S of data and checkpoints, and in W.

    At `run_start` it is started anew under the same labels. Nobody says whether it is verified if
    it has no GPU or its exporter is an older one.
    """
    labels = {**rank_labels(number, instance, job), "uuid": uuid or f"GPU-{number}"}

    def rate(value: float) -> Value:
        return between(start, end, total((max(start, 0.0), value)))

    def run_seconds(at: float) -> float:
        return at - max(start, run_start if at >= run_start else 0.0, 0.0)

    made = [
        counter("gpu_training_step_seconds_total", rate(1), labels),
        counter("gpu_training_steps_total", rate(4), labels),
        gauge("gpu_training_run_seconds", between(start, end, run_seconds), labels),
    ]
    if verified is not None:
        there = between(start, end, piecewise((0, int(verified))))
        made.append(gauge("gpu_training_verified", there, labels))
    for name, phase, share in (
        ("gpu_training_phase_gpu_idle_seconds_total", "data", stall),
        ("gpu_training_phase_gpu_idle_seconds_total", "checkpoint", checkpoint),
        ("gpu_training_phase_seconds_total", "checkpoint", waited),
    ):
        if share is not None:
            made.append(counter(name, rate(share), labels, phase=phase))
    return made


def intruder(number: int = 0, **said: Any) -> list[Series]:
    """A rank that names a GPU on which the driver does not list it."""
    return rank(number, **{"uuid": "GPU-a", "job": "intruder", **said}, verified=False)


def found_to_wait(lower: float) -> list[Series]:
    """A GPU that waits for data at least so much of the time, seen from outside the job."""
    return [
        *observed(),
        counter("gpu_inferred_data_stall_lower_seconds_total", lower, method="client"),
        gauge("gpu_inferred_data_stall_lower_ratio", lower, method="client"),
    ]


def rank_labels(
    number: int = 0, instance: str = NODE["instance"], job: str = RANK["training_job"]
) -> Labels:
    named = {**RANK, "training_job": job, "rank": str(number)}
    return {**named, "uuid": f"GPU-{number}", "instance": instance}


def work(
    tensor: float, sm: float, number: int = 0, instance: str = NODE["instance"]
) -> list[Series]:
    """What the units of a rank's GPU do."""
    labels = {**GPU, "gpu": str(number), "uuid": f"GPU-{number}", "instance": instance}
    return [
        counter("gpu_pipe_active_seconds_total", tensor, labels, pipe="tensor"),
        counter("gpu_sm_active_seconds_total", sm, labels),
    ]


def until(end: float, row: Series) -> Series:
    """A series that is left out from a time on."""
    return replace(row, value=lambda at: row.value(at) if at < end else None)


def busy(engine: float, tensor: float, dram: float, link: float) -> list[Series]:
    return [
        gauge("gpu_up", 1),
        *observed(),
        counter("gpu_busy_seconds_total", engine),
        counter("gpu_engine_active_seconds_total", engine),
        counter("gpu_pipe_active_seconds_total", tensor, pipe="tensor"),
        counter("gpu_pipe_active_seconds_total", 0.001, pipe="fp32"),
        counter("gpu_dram_active_seconds_total", dram),
        counter("gpu_nvlink_transmit_bytes_total", link),
        gauge("gpu_power_watts", 120),
        gauge("gpu_power_limit_watts", 700),
    ]


def uncounted(utilization: float, watts: float) -> list[Series]:
    """A GPU without hardware counters."""
    return [
        gauge("gpu_up", 1),
        *observed(GPU, "utilization"),
        counter("gpu_busy_seconds_total", utilization),
        gauge("gpu_power_watts", watts),
        gauge("gpu_power_limit_watts", 400),
    ]


def stock(watts: float, tensor: float, dram: float) -> list[Series]:
    """A utilized GPU of which the stock list of dcgm-exporter is read."""
    return [
        *uncounted(1, watts),
        *observed(GPU, "activity"),
        counter("gpu_engine_active_seconds_total", 1),
        counter("gpu_pipe_active_seconds_total", tensor, pipe="tensor"),
        counter("gpu_dram_active_seconds_total", dram),
        gauge("gpu_saturation_source_info", 1, source="dcgm", complete="no"),
    ]


def throttled(share: float, reason: str) -> list[Series]:
    rows = [driver("gpu_throttle_seconds_total", total((0, share)), reason=reason)]
    rows.append(driver("gpu_throttle_seconds_total", total((0, 0)), reason="sw_power_cap"))
    return [*rows, gauge("gpu_up", 1)]


def orphan(used: float, compute: int = 0, graphics: int = 0) -> list[Series]:
    return [
        gauge("gpu_memory_used_bytes", used),
        gauge("gpu_processes", compute, type="compute"),
        gauge("gpu_processes", graphics, type="graphics"),
        gauge("gpu_processes", 0, type="mps"),
    ]


def xid(code: int, at: float) -> list[Series]:
    """An Xid: no time of the last one before the first."""
    return [
        gauge("gpu_xid_last_timestamp_seconds", between(at, 1e9, lambda _: at), xid=str(code)),
        counter("gpu_xid_errors_total", total((0, 0.0)), xid=str(code)),
    ]


def links(active: float | Value, gpu: int = 0, model: str = "NVIDIA H100") -> list[Series]:
    labels = {**GPU, "gpu": str(gpu), "uuid": f"GPU-{gpu}"}
    return [
        gauge("gpu_info", 1, labels, name=model),
        gauge("gpu_nvlink_links", active, labels, state="active"),
        gauge("gpu_nvlink_links", 0, labels, state="inactive"),
    ]


def ecc(value: Value, severity: str = "uncorrected") -> list[Series]:
    return [
        driver("gpu_ecc_errors_total", value, severity=severity, location="dram"),
        driver("gpu_ecc_errors_total", total((0, 0)), severity="uncorrected", location="sram"),
    ]


def pcie(width: float = 16, generation: float = 5, utilization: float = 0.9) -> list[Series]:
    return [
        gauge("gpu_pcie_link_width", width),
        gauge("gpu_pcie_link_width_max", 16),
        gauge("gpu_pcie_link_generation", generation),
        gauge("gpu_pcie_link_generation_max", 5),
        *observed(GPU, "utilization"),
        counter("gpu_busy_seconds_total", utilization),
    ]


def devices(nvml: float | Value | None, pci: float | Value = 8) -> list[Series]:
    made = [gauge("roofline_exporter_devices", pci, NODE, where="pci")]
    if nvml is not None:
        made.append(gauge("roofline_exporter_devices", nvml, NODE, where="nvml"))
    return made


def drivers(*versions: str) -> list[Series]:
    return [
        gauge(
            "gpu_info",
            1,
            {**GPU, "instance": f"node-{i}", "uuid": f"GPU-{i}"},
            driver_version=version,
        )
        for i, version in enumerate(versions)
    ]


def snapshots(stops_at: float) -> Series:
    # promtool's clock starts at 0.
    return gauge("roofline_exporter_snapshot_timestamp_seconds", lambda at: min(at, stops_at), NODE)


def wanted(nodes: float | Value) -> Series:
    """On how many nodes Kubernetes wants an exporter, as kube-state-metrics says."""
    labels = {"job": "kube-state-metrics", "instance": "10.0.0.9:8080", "namespace": "gpus"}
    value = nodes if callable(nodes) else piecewise((0, nodes))
    name = "kube_daemonset_status_desired_number_scheduled"
    return Series(name, {**labels, "daemonset": "roofline-exporter"}, value, answers=False)


EXPORTER = gauge("roofline_exporter_build_info", 1, NODE, version="0.1.0")
WARNING = {"severity": "warning"}
CRITICAL = {"severity": "critical"}
INFO = {"severity": "info"}
CRITICAL_XIDS = [code for code, row in XIDS.items() if row.tier == "critical"]
WARNING_XIDS = [code for code, row in XIDS.items() if row.tier == "warning"]
OTHER_XIDS = [code for code, row in XIDS.items() if row.tier is None]


def _board(alert: str, name: str, severity: Mapping[str, str], **more: str) -> list[Case]:
    """An alert on a gauge that is 1 when something is wrong."""
    wrong = gauge(name, piecewise((0, 0), (300, 1)), **more)
    return [
        Case(alert, f"{name} is 1", [wrong], 7 * MINUTE, {**GPU, **severity, **more}),
        Case(alert, f"{name} is 0", [gauge(name, 0, **more)], 10 * MINUTE),
    ]


CASES: Sequence[Case] = (
    Case("GpuHeldIdle", "held idle", held(1), 40 * MINUTE, {**BY_UUID, **HOLDER, **WARNING}),
    Case(
        "GpuHeldIdle",
        "held idle for hours",
        held(1),
        120 * MINUTE,
        {**BY_UUID, **HOLDER, **CRITICAL},
    ),
    Case(
        "GpuHeldIdle",
        "a notebook, for hours",
        held(1, {"owner": "carol", "class": "notebook"}),
        120 * MINUTE,
        {**BY_UUID, "owner": "carol", "class": "notebook", **WARNING},
    ),
    Case(
        "GpuHeldIdle",
        "a server, for a quarter of a day",
        held(1, {"owner": "web", "class": "serving"}),
        6 * HOUR,
        {**BY_UUID, "owner": "web", "class": "serving", **WARNING},
    ),
    Case(
        "GpuHeldIdle",
        "a MIG instance",
        held(1, HOLDER, {**GPU, "gpu_instance": "3"}),
        40 * MINUTE,
        {**BY_UUID, "gpu_instance": "3", **HOLDER, **WARNING},
    ),
    Case(
        "GpuHeldIdle",
        "nobody is named",
        [one for one in held(1) if one.name != "gpu_holder_info"],
        40 * MINUTE,
        {**BY_UUID, **WARNING},
    ),
    Case(
        "GpuHeldIdle",
        "a pod",
        [*held(1), pod("team-a/notebook-7")],
        40 * MINUTE,
        {**BY_UUID, **HOLDER, "owner": "team-a/notebook-7", **WARNING},
    ),
    Case("GpuHeldIdle", "busy for a tenth of the time", held(0.9), 60 * MINUTE),
    Case(
        "GpuHeldIdle",
        "one pod after another of the same user, without a pause",
        [
            *held(1, {**HOLDER, "owner": "root"}),
            *(pod(f"ci/run-{i}", GPU, (i * 25 * MINUTE, (i + 1) * 25 * MINUTE)) for i in range(8)),
        ],
        180 * MINUTE,
    ),
    Case("GpuHeldIdle", "free", held(0, held_value=0), 60 * MINUTE),
    Case("GpuHeldIdle", "a notebook at lunch", held(1, {"class": "notebook"}), 90 * MINUTE),
    Case("GpuHeldIdle", "a server at night", held(1, {"class": "serving"}), 5 * HOUR),
    Case("GpuHeldIdle", "a display", held(1, {"class": "display"}), 3 * HOUR),
    Case("GpuHeldIdle", "a monitoring tool", held(1, {"class": "system"}), 3 * HOUR),
    Case("GpuHeldIdle", "a job that has just begun", held(1), 25 * MINUTE),
    Case(
        "GpuHeldIdle",
        "one that works after one that did not",
        held_by(
            ("alice", 0, 25 * MINUTE),
            ("bob", 25 * MINUTE, 1e9),
            idle=((0, 1), (25 * MINUTE, 0)),
        ),
        90 * MINUTE,
    ),
    Case(
        "GpuHeldIdle",
        "one that prepares after one that did nothing",
        held_by(
            ("alice", 0, 25 * MINUTE),
            ("bob", 25 * MINUTE, 1e9),
            idle=((0, 1), (45 * MINUTE, 0)),
        ),
        90 * MINUTE,
    ),
    Case(
        "GpuHeldIdle",
        "many short ones, of which each does nothing",
        held_by(
            *((f"user{i}", i * 20 * MINUTE, (i * 20 + 15) * MINUTE) for i in range(9)),
        ),
        180 * MINUTE,
    ),
    Case(
        "GpuHeldIdle",
        "a server after another that waited",
        held_by(
            ("carol", 0, 5 * HOUR),
            ("dave", 5 * HOUR, 1e9),
            idle=((0, 1), (5 * HOUR + 20 * MINUTE, 0)),
            by={**HOLDER, "class": "serving"},
        ),
        8 * HOUR,
    ),
    Case(
        "GpuAllocatedUnopened",
        "a pod that never opens it",
        given(("team-a/notebook-7", 0, 1e9)),
        37 * MINUTE,
        {**BY_UUID, "owner": "team-a/notebook-7", **WARNING},
    ),
    Case(
        "GpuAllocatedUnopened",
        "a MIG instance",
        given(("team-a/notebook-7", 0, 1e9), labels={**GPU, "gpu_instance": "3"}),
        37 * MINUTE,
        {**BY_UUID, "gpu_instance": "3", "owner": "team-a/notebook-7", **WARNING},
    ),
    Case(
        "GpuAllocatedUnopened",
        "opened and closed long ago",
        given(("team-a/train-0", 0, 1e9), held_value=piecewise((0, 1), (3600, 0))),
        97 * MINUTE,
        {**BY_UUID, "owner": "team-a/train-0", **WARNING},
    ),
    Case(
        "GpuAllocatedUnopened",
        "after a long start",
        given(("team-a/train-0", 0, 1e9), held_value=piecewise((0, 0), (1680, 1))),
        120 * MINUTE,
    ),
    Case(
        "GpuAllocatedUnopened",
        "opened now and then",
        given(
            ("team-a/train-0", 0, 1e9),
            held_value=lambda at: float(at % (20 * MINUTE) < 2 * MINUTE),
        ),
        180 * MINUTE,
    ),
    Case(
        "GpuAllocatedUnopened",
        "one pod after another, each of which starts for a while",
        given(*((f"ci/run-{i}", i * 25 * MINUTE, (i + 1) * 25 * MINUTE) for i in range(8))),
        180 * MINUTE,
    ),
    Case("GpuAllocatedUnopened", "given to nobody", given(), 120 * MINUTE),
    Case(
        "GpuAllocatedUnopened",
        "nobody says to whom it is given",
        [gauge("gpu_held", 0), workload("container", id="0" * 64)],
        120 * MINUTE,
    ),
    Case("GpuOrphanMemory", "no process", orphan(2e9), 16 * MINUTE, {**GPU, **WARNING}),
    Case("GpuOrphanMemory", "a process", orphan(2e9, compute=1), 30 * MINUTE),
    Case("GpuOrphanMemory", "a display", orphan(2e9, graphics=1), 30 * MINUTE),
    Case("GpuOrphanMemory", "the driver's own memory", orphan(4e8), 30 * MINUTE),
    Case("GpuOrphanMemory", "graphics not known", orphan(2e9)[:2], 30 * MINUTE),
    Case(
        "GpuOrphanMemory",
        "memory shared with the CPU",
        [*orphan(2e9), counter("gpu_c2c_receive_bytes_total", 1)],
        30 * MINUTE,
    ),
    Case(
        "GpuUtilizedButUnsaturated",
        "spins on one SM",
        [*busy(1, 0, 0, 0), gauge("gpu_saturation_upper_ratio", 0.02)],
        62 * MINUTE,
        {**GPU, **INFO},
    ),
    Case(
        "GpuUtilizedButUnsaturated",
        "works",
        [*busy(1, 0.6, 0.5, 1e9), gauge("gpu_saturation_upper_ratio", 0.6)],
        80 * MINUTE,
    ),
    Case(
        "GpuUtilizedButUnsaturated",
        "without counters, nothing is certain",
        [*uncounted(1, 300), gauge("gpu_saturation_upper_ratio", 1)],
        80 * MINUTE,
    ),
    Case(
        "GpuUtilizedButUnsaturated",
        "half of the time",
        [*busy(0.5, 0, 0, 0), gauge("gpu_saturation_upper_ratio", 0.02)],
        80 * MINUTE,
    ),
    Case(
        "GpuDataStallHigh",
        "waits for its data",
        rank(stall=0.4),
        27 * MINUTE,
        {**rank_labels(), **WARNING},
    ),
    Case(
        "GpuDataStallHigh",
        "found from outside",
        found_to_wait(0.4),
        27 * MINUTE,
        {**GPU, **WARNING},
    ),
    Case(
        "GpuDataStallHigh",
        "nobody can say whether it is there",
        rank(stall=0.4, verified=None),
        27 * MINUTE,
        {**rank_labels(), **WARNING},
    ),
    Case(
        "GpuDataStallHigh",
        "found from outside, while one that is not there says that it is not so",
        [*found_to_wait(0.4), *intruder(stall=0.01)],
        27 * MINUTE,
        {**GPU, **WARNING},
    ),
    Case(
        "GpuDataStallHigh",
        "found from outside, while one that is not there has just begun",
        [*found_to_wait(0.4), *intruder(run_start=20 * MINUTE)],
        27 * MINUTE,
        {**GPU, **WARNING},
    ),
    Case(
        "GpuDataStallHigh",
        "found from outside, while one that is not there says so too",
        [*found_to_wait(0.4), *intruder(stall=0.5)],
        27 * MINUTE,
        {**GPU, **WARNING},
    ),
    Case("GpuDataStallHigh", "says so without being there", intruder(stall=0.4), 60 * MINUTE),
    Case("GpuDataStallHigh", "a little", rank(stall=0.1), 60 * MINUTE),
    Case(
        "GpuDataStallHigh",
        "another run of one name warms up",
        [
            *rank(run_start=2 * HOUR),
            counter(
                "gpu_training_phase_gpu_idle_seconds_total",
                total((0, 0.01), (2 * HOUR, 1), (2 * HOUR + 8 * MINUTE, 0.01)),
                {**RANK, "uuid": "GPU-0"},
                phase="data",
            ),
        ],
        3 * HOUR,
    ),
    Case(
        "GpuDataStallHigh",
        "another run of one name, found to wait, warms up",
        [
            *rank(run_start=2 * HOUR),
            *observed({**GPU, "uuid": "GPU-0"}),
            counter(
                "gpu_inferred_data_stall_lower_seconds_total",
                total((0, 0.01), (2 * HOUR, 1), (2 * HOUR + 8 * MINUTE, 0.01)),
                {**GPU, "uuid": "GPU-0"},
                method="client",
            ),
            gauge(
                "gpu_inferred_data_stall_lower_ratio",
                0.01,
                {**GPU, "uuid": "GPU-0"},
                method="client",
            ),
        ],
        3 * HOUR,
    ),
    Case(
        "GpuDataStallHigh",
        "a run after the one that was found to wait warms up",
        [
            *held_by(("alice", 0, 2 * HOUR - MINUTE), ("bob", 2 * HOUR, 1e9), idle=((0, 0),)),
            counter(
                "gpu_inferred_data_stall_lower_seconds_total",
                total((0, 0.01), (2 * HOUR, 1), (2 * HOUR + 8 * MINUTE, 0.01)),
                method="client",
            ),
            gauge("gpu_inferred_data_stall_lower_ratio", 0.01, method="client"),
        ],
        3 * HOUR,
    ),
    Case("GpuDataStallHigh", "warms up", rank(stall=0.4), 24 * MINUTE),
    Case(
        "GpuDataStallHigh",
        "measured, so that nothing has to be found from outside",
        [
            *rank(stall=0.1),
            *observed({**GPU, "uuid": "GPU-0"}),
            *(
                counter(
                    "gpu_inferred_data_stall_lower_seconds_total",
                    0.4,
                    {**GPU, "uuid": "GPU-0"},
                    method="client",
                ),
                gauge(
                    "gpu_inferred_data_stall_lower_ratio",
                    0.4,
                    {**GPU, "uuid": "GPU-0"},
                    method="client",
                ),
            ),
        ],
        60 * MINUTE,
    ),
    Case(
        "GpuCheckpointOverhead",
        "saves all the time",
        rank(checkpoint=0.1, waited=0.1),
        35 * MINUTE,
        {**rank_labels(), **WARNING},
    ),
    Case(
        "GpuCheckpointOverhead",
        "where only host time is known",
        rank(waited=0.1),
        35 * MINUTE,
        {**rank_labels(), **WARNING},
    ),
    Case(
        "GpuCheckpointOverhead",
        "without a GPU",
        rank(waited=0.1, verified=None),
        35 * MINUTE,
        {**rank_labels(), **WARNING},
    ),
    Case(
        "GpuCheckpointOverhead",
        "says so without being there",
        intruder(checkpoint=0.1, waited=0.1),
        90 * MINUTE,
    ),
    Case("GpuCheckpointOverhead", "seldom", rank(checkpoint=0.01), 90 * MINUTE),
    Case(
        "GpuCheckpointOverhead",
        "beside the GPU's work",
        rank(checkpoint=0.01, waited=0.2),
        90 * MINUTE,
    ),
    Case("GpuCheckpointOverhead", "at the start", rank(checkpoint=0.2), 25 * MINUTE),
    Case(
        "GpuPossibleCollectiveHang",
        "spins and nothing else",
        busy(1, 0, 0.001, 100),
        12 * MINUTE,
        {**GPU, **WARNING},
    ),
    Case(
        "GpuPossibleCollectiveHang",
        "without counters: utilized, without power",
        uncounted(1, 65),
        12 * MINUTE,
        {**GPU, **WARNING},
    ),
    Case(
        "GpuPossibleCollectiveHang",
        "a unit that is not read may work",
        stock(250, 0, 0.001),
        30 * MINUTE,
    ),
    Case(
        "GpuPossibleCollectiveHang",
        "counters of some units: utilized, without power",
        stock(65, 0, 0.001),
        12 * MINUTE,
        {**GPU, **WARNING},
    ),
    Case(
        "GpuPossibleCollectiveHang",
        "counters of some units: those work",
        stock(65, 0.3, 0.001),
        30 * MINUTE,
    ),
    Case(
        "GpuPossibleCollectiveHang",
        "counters of some units: memory works",
        stock(65, 0, 0.3),
        30 * MINUTE,
    ),
    Case("GpuPossibleCollectiveHang", "communicates", busy(1, 0, 0.001, 1e9), 30 * MINUTE),
    Case("GpuPossibleCollectiveHang", "computes", busy(1, 0.3, 0.01, 0), 30 * MINUTE),
    Case("GpuPossibleCollectiveHang", "copies", busy(1, 0, 0.3, 0), 30 * MINUTE),
    Case("GpuPossibleCollectiveHang", "idle", busy(0, 0, 0, 0), 30 * MINUTE),
    Case("GpuPossibleCollectiveHang", "works, without counters", uncounted(1, 250), 30 * MINUTE),
    Case(
        "GpuStragglerRank",
        "one waits for data",
        [
            *rank(0, stall=0.01, job="bert"),
            *rank(1, stall=0.01, job="bert"),
            *rank(2, stall=0.15, job="bert", instance="node-2:19400"),
        ],
        27 * MINUTE,
        {**rank_labels(2, "node-2:19400", "bert"), **WARNING},
    ),
    Case(
        "GpuStragglerRank",
        "the others wait for one",
        [
            *(row for i in range(4) for row in rank(i, stall=0, job="gpt")),
            *(row for i in range(3) for row in work(0.2, 0.95, i)),
            *work(0.5, 0.95, 3),
        ],
        27 * MINUTE,
        {**rank_labels(3, job="gpt"), **WARNING},
    ),
    Case(
        "GpuStragglerRank",
        "the tensor pipe of the others is no longer read",
        [
            *(row for i in range(4) for row in rank(i, stall=0, job="gpt")),
            *(until(20 * MINUTE, row) for i in range(3) for row in work(0.4, 0.95, i)[:1]),
            *(row for i in range(3) for row in work(0.4, 0.95, i)[1:]),
            *work(0.4, 0.95, 3),
        ],
        60 * MINUTE,
    ),
    Case(
        "GpuStragglerRank",
        "one waits for data, and others that are not there say that they do",
        [
            *rank(0, stall=0.01),
            *rank(1, stall=0.15),
            *(row for i in range(2, 6) for row in intruder(i, stall=0.15, job="resnet")),
        ],
        27 * MINUTE,
        {**rank_labels(1), **WARNING},
    ),
    Case(
        "GpuStragglerRank",
        "the others wait for one, on whose GPU others say that they are",
        [
            *(row for i in range(4) for row in rank(i)),
            *(row for i in range(3) for row in work(0.2, 0.95, i)),
            *work(0.5, 0.95, 3),
            *(row for i in range(4, 9) for row in intruder(i, job="resnet", uuid="GPU-3")),
        ],
        27 * MINUTE,
        {**rank_labels(3), **WARNING},
    ),
    Case(
        "GpuStragglerRank",
        "one waits for data, and one that is not there has its name",
        [
            *(row for i in range(2) for row in rank(i, stall=0.01)),
            *rank(2, stall=0.15),
            *intruder(2, stall=0.01, job="resnet", instance="node-2:19400"),
        ],
        27 * MINUTE,
        {**rank_labels(2), **WARNING},
    ),
    Case(
        "GpuStragglerRank",
        "says so without being there",
        [*(row for i in range(2) for row in rank(i)), *intruder(2, stall=0.15, job="resnet")],
        60 * MINUTE,
    ),
    Case(
        "GpuStragglerRank",
        "all wait for data",
        [row for i in range(4) for row in (*rank(i, stall=0.4), *work(0.3, 0.6, i))],
        60 * MINUTE,
    ),
    Case(
        "GpuStragglerRank",
        "unrelated runs of one name",
        [
            row
            for i, (stall, tensor) in enumerate(((0.01, 0.6), (0.12, 0.2), (0.02, 0.25)))
            for row in (
                *rank(0, stall=stall, instance=f"node-{i}:19400", uuid=f"GPU-{i}"),
                *work(tensor, 0.9, i, f"node-{i}:19400"),
            )
        ],
        120 * MINUTE,
    ),
    Case(
        "GpuStragglerRank",
        "the others, which are gone, did not wait",
        [
            *(row for i in range(1, 4) for row in rank(i, stall=0.01, end=40 * MINUTE)),
            *rank(0),
            counter(
                "gpu_training_phase_gpu_idle_seconds_total",
                total((0, 0.01), (40 * MINUTE, 0.3)),
                {**RANK, "uuid": "GPU-0"},
                phase="data",
            ),
        ],
        120 * MINUTE,
    ),
    Case(
        "GpuStragglerRank",
        "alone",
        [*rank(0, stall=0.4), *work(0.3, 0.6, 0)],
        60 * MINUTE,
    ),
    Case(
        "GpuThermalThrottling",
        "hot",
        throttled(0.3, "hw_thermal"),
        16 * MINUTE,
        {**GPU, **WARNING},
    ),
    Case("GpuThermalThrottling", "for a moment", throttled(0.05, "sw_thermal"), 60 * MINUTE),
    Case("GpuThermalThrottling", "power, not heat", throttled(0.9, "hw_power_brake"), 30 * MINUTE),
    Case("GpuPowerBrake", "on", throttled(0.5, "hw_power_brake"), 6 * MINUTE, {**GPU, **WARNING}),
    Case("GpuPowerBrake", "off", throttled(0.5, "hw_thermal"), 30 * MINUTE),
    Case(
        "GpuPowerLimitLowered",
        "lowered",
        [gauge("gpu_power_limit_watts", 238), gauge("gpu_power_default_limit_watts", 700)],
        16 * MINUTE,
        {**GPU, **INFO},
    ),
    Case(
        "GpuPowerLimitLowered",
        "as delivered",
        [gauge("gpu_power_limit_watts", 700), gauge("gpu_power_default_limit_watts", 700)],
        60 * MINUTE,
    ),
    Case(
        "GpuMemoryTemperatureHigh",
        "near its maximum",
        [
            gauge("gpu_temperature_celsius", 101, sensor="memory"),
            gauge("gpu_temperature_threshold_celsius", 105, threshold="memory_max"),
        ],
        11 * MINUTE,
        {**GPU, "sensor": "memory", **WARNING},
    ),
    Case(
        "GpuMemoryTemperatureHigh",
        "maximum not known",
        [gauge("gpu_temperature_celsius", 96, sensor="memory")],
        11 * MINUTE,
        {**GPU, "sensor": "memory", **WARNING},
    ),
    Case(
        "GpuMemoryTemperatureHigh",
        "warm for a board that may be",
        [
            gauge("gpu_temperature_celsius", 98, sensor="memory"),
            gauge("gpu_temperature_celsius", 99, sensor="gpu"),
            gauge("gpu_temperature_threshold_celsius", 105, threshold="memory_max"),
        ],
        30 * MINUTE,
    ),
    *(
        Case(
            "GpuXidCritical",
            f"Xid {code}, for the first time",
            xid(code, 300),
            6 * MINUTE,
            {**GPU, "xid": str(code), **CRITICAL},
        )
        for code in CRITICAL_XIDS
    ),
    Case("GpuXidCritical", "a warning", xid(WARNING_XIDS[0], 300), 30 * MINUTE),
    *(
        Case(
            "GpuXidWarning",
            f"Xid {code}, for the first time",
            xid(code, 300),
            6 * MINUTE,
            {**GPU, "xid": str(code), **WARNING},
        )
        for code in WARNING_XIDS
    ),
    Case(
        "GpuXidWarning",
        "critical, or of the application",
        [row for code in (*CRITICAL_XIDS, *OTHER_XIDS) for row in xid(code, 300)],
        30 * MINUTE,
    ),
    Case(
        "GpuEccUncorrected",
        "one more",
        ecc(piecewise((0, 0), (7200, 1))),
        122 * MINUTE,
        {**GPU, "severity": "warning", "location": "dram"},
    ),
    Case(
        "GpuEccUncorrected",
        "counted before the first scrape",
        ecc(piecewise((0, 2))),
        2 * MINUTE,
        {**GPU, "severity": "warning", "location": "dram"},
    ),
    Case(
        "GpuEccUncorrected",
        "one more while the exporter was away for hours",
        [*ecc(lambda at: 1.0 if at < 2 * HOUR else None if at < 5 * HOUR else 2.0)],
        5 * HOUR + 2 * MINUTE,
        {**GPU, "severity": "warning", "location": "dram"},
    ),
    Case("GpuEccUncorrected", "corrected", ecc(total((0, 1)), "corrected"), 60 * MINUTE),
    *_board("GpuSramErrorThreshold", "gpu_sram_error_threshold_exceeded", CRITICAL),
    *_board("GpuRowRemapFailure", "gpu_row_remap_failure", CRITICAL),
    *_board("GpuRowRemapFailure", "gpu_unrepairable_memory", CRITICAL),
    *_board("GpuRowRemapPending", "gpu_row_remap_pending", WARNING),
    *_board("GpuRemapBanksExhausted", "gpu_row_remap_banks", WARNING, availability="none"),
    Case(
        "GpuRemapBanksExhausted",
        "some spare rows are left",
        [gauge("gpu_row_remap_banks", 3, availability="low")],
        10 * MINUTE,
    ),
    *_board("GpuRetiredPagesPending", "gpu_retired_pages_pending", WARNING),
    *_board("GpuRecoveryActionNeeded", "gpu_recovery_action", CRITICAL),
    Case(
        "GpuNvlinkDown",
        "one link fell",
        [*links(piecewise((0, 18), (600, 17))), *links(18, 1)],
        16 * MINUTE,
        {**GPU, "uuid": "GPU-0", "state": "active", **WARNING},
    ),
    Case(
        "GpuNvlinkDown",
        "all links fell",
        links(piecewise((0, 18), (600, 0))),
        16 * MINUTE,
        {**GPU, "uuid": "GPU-0", "state": "active", **WARNING},
    ),
    Case(
        "GpuNvlinkDown",
        "down since the start",
        [*links(17), *links(18, 1)],
        6 * MINUTE,
        {**GPU, "uuid": "GPU-0", "state": "active", **WARNING},
    ),
    Case(
        "GpuNvlinkDown",
        "under another index than before",
        [
            *(
                gauge(
                    "gpu_nvlink_links",
                    between(start, end, piecewise((0, count))),
                    {**GPU, "gpu": gpu},
                    state="active",
                )
                for gpu, count, start, end in (("2", 12.0, 0, 600), ("1", 11.0, 660, 1e9))
            )
        ],
        20 * MINUTE,
        {**GPU, "gpu": "1", "state": "active", **WARNING},
    ),
    Case(
        "GpuNvlinkDown",
        "GPU models with different links",
        [*links(6, 0, "Tesla V100"), *links(12, 1, "NVIDIA A100"), *links(12, 2, "NVIDIA A100")],
        60 * MINUTE,
    ),
    Case(
        "GpuNvlinkDown",
        "links that the board does not use",
        [*links(12), *links(12, 1), gauge("gpu_nvlink_links_expected", 18)],
        30 * MINUTE,
    ),
    Case(
        "GpuFabricUnhealthy",
        "registration hangs",
        [gauge("gpu_fabric_state", 2)],
        11 * MINUTE,
        {**GPU, **CRITICAL},
    ),
    Case(
        "GpuFabricUnhealthy",
        "without its bandwidth",
        [gauge("gpu_fabric_state", 3), gauge("gpu_fabric_healthy", 0)],
        11 * MINUTE,
        {**GPU, **CRITICAL},
    ),
    Case(
        "GpuFabricUnhealthy",
        "completed",
        [gauge("gpu_fabric_state", 3), gauge("gpu_fabric_healthy", 1)],
        60 * MINUTE,
    ),
    Case(
        "GpuPcieLinkDegraded",
        "narrow",
        pcie(width=8, utilization=0),
        11 * MINUTE,
        {**GPU, "of": "lanes", **WARNING},
    ),
    Case(
        "GpuPcieLinkDegraded",
        "slow while busy",
        pcie(generation=3),
        12 * MINUTE,
        {**GPU, "of": "generation", **WARNING},
    ),
    Case(
        "GpuPcieLinkDegraded",
        "slow while idle",
        pcie(generation=1, utilization=0.02),
        60 * MINUTE,
    ),
    Case("GpuLost", "does not answer", [gauge("gpu_up", 0)], 3 * MINUTE, {**GPU, **CRITICAL}),
    Case(
        "GpuLost",
        "unknown to the exporter since its restart",
        [gauge("gpu_up", between(0, 360, piecewise((0, 1), (120, 0))))],
        10 * MINUTE,
        {**GPU, **CRITICAL},
    ),
    Case(
        "GpuLost",
        "soon after it was back under another index",
        [
            gauge("gpu_up", between(0, 600, lambda _: 1.0)),
            gauge("gpu_up", between(660, 1e9, piecewise((0, 1), (900, 0))), gpu="3"),
        ],
        19 * MINUTE,
        {**GPU, "gpu": "3", **CRITICAL},
    ),
    Case(
        "GpuLost",
        "soon after it slept",
        [
            gauge("gpu_up", piecewise((0, 0), (600, 1), (1200, 0))),
            gauge(
                "roofline_exporter_reading_state",
                between(0, 600, lambda _: 1.0),
                {**NODE, "uuid": "GPU-a"},
                group="gpu",
                state="suspended",
            ),
        ],
        23 * MINUTE,
        {**GPU, **CRITICAL},
    ),
    Case("GpuLost", "answers", [gauge("gpu_up", 1)], 30 * MINUTE),
    Case(
        "GpuLost",
        "sleeps",
        [
            gauge("gpu_up", 0),
            gauge(
                "roofline_exporter_reading_state",
                1,
                {**NODE, "uuid": "GPU-a"},
                group="gpu",
                state="suspended",
            ),
        ],
        30 * MINUTE,
    ),
    Case(
        "GpuLost",
        "exporter is down: nothing is known",
        [gauge("gpu_up", between(0, 300, piecewise((0, 1)))), scraped(0)],
        60 * MINUTE,
    ),
    Case(
        "GpuExporterStale",
        "stopped polling",
        [snapshots(300)],
        9 * MINUTE,
        {**NODE, **WARNING},
    ),
    Case("GpuExporterStale", "polls", [snapshots(1e9)], 30 * MINUTE),
    Case(
        "GpuWorkloadsStale",
        "the kubelet cannot be read any more",
        asked(700, up=0),
        3 * MINUTE,
        {**NODE, "source": "kubernetes", **WARNING},
    ),
    Case(
        "GpuWorkloadsStale",
        "the kubelet could never be read",
        asked(None, up=0),
        12 * MINUTE,
        {**NODE, "source": "kubernetes", **WARNING},
    ),
    Case("GpuWorkloadsStale", "one reading failed", asked(40, up=0), 60 * MINUTE),
    Case("GpuWorkloadsStale", "is read", asked(9), 60 * MINUTE),
    Case(
        "GpuWorkloadsStale",
        "another source cannot be read",
        [gauge("roofline_exporter_source_up", 0, NODE, source="nvml")],
        60 * MINUTE,
    ),
    Case(
        "GpuExporterDown",
        "does not answer",
        [scraped(piecewise((0, 1), (600, 0))), EXPORTER],
        13 * MINUTE,
        {**NODE, **CRITICAL},
    ),
    Case(
        "GpuExporterDown",
        "never answered",
        [scraped(0), gauge("roofline_exporter_build_info", 1, {**NODE, "instance": "node-2"})],
        3 * MINUTE,
        {**NODE, **CRITICAL},
    ),
    Case(
        "GpuExporterDown",
        "in a job of another name",
        [
            scraped(piecewise((0, 1), (600, 0)), {"job": "gpus", "instance": "node-1:19400"}),
            gauge(
                "roofline_exporter_build_info",
                between(0, 600, lambda _: 1.0),
                {"job": "gpus", "instance": "node-1:19400"},
            ),
        ],
        13 * MINUTE,
        {"job": "gpus", "instance": "node-1:19400", **CRITICAL},
    ),
    *(
        Case(
            "GpuExporterDown",
            f"never answered, in the job {job}",
            [scraped(0, {**NODE, "job": job}), EXPORTER],
            3 * MINUTE,
            {**NODE, "job": job, **CRITICAL},
        )
        for job in ("gpu-monitoring/roofline-exporter", "monitoring/a-roofline-exporter")
    ),
    Case(
        "GpuExporterDown",
        "never answered, in a job of another name with exporters only",
        [
            scraped(0, {"job": "gpus", "instance": "node-1:19400"}),
            *(
                row
                for labels in [{"job": "gpus", "instance": "node-2:19400"}]
                for row in (
                    scraped(1, labels),
                    gauge("roofline_exporter_build_info", 1, labels, version="0.1.0"),
                )
            ),
        ],
        3 * MINUTE,
        {"job": "gpus", "instance": "node-1:19400", **CRITICAL},
    ),
    Case(
        "GpuExporterDown",
        "never answered, but its job has other targets too",
        [
            scraped(0, {"job": "pods", "instance": "10.0.0.3:8080"}),
            scraped(1, {"job": "pods", "instance": "10.0.0.2:9090"}),
            scraped(1, {"job": "pods", "instance": "10.0.0.1:19400"}),
            gauge("roofline_exporter_build_info", 1, {"job": "pods", "instance": "10.0.0.1:19400"}),
        ],
        30 * MINUTE,
    ),
    Case(
        "GpuExporterMissing",
        "two of three nodes have no target",
        [wanted(3), scraped(1), EXPORTER],
        10 * MINUTE,
        WARNING,
    ),
    Case("GpuExporterMissing", "no node has a target", [wanted(3)], 10 * MINUTE, WARNING),
    Case(
        "GpuExporterMissing",
        "a node came a short time ago, or its target does not answer",
        [
            wanted(piecewise((0, 2), (40 * MINUTE, 3))),
            scraped(1),
            EXPORTER,
            scraped(0, {**NODE, "instance": "node-2:19400"}),
        ],
        55 * MINUTE,
    ),
    Case(
        "GpuExporterMissing",
        "all are scraped, in a job of another name",
        [
            wanted(1),
            gauge("roofline_exporter_build_info", 1, {"job": "pods", "instance": "10.0.0.1:19400"}),
        ],
        60 * MINUTE,
        interruptible=False,
    ),
    Case("GpuExporterDown", "there is none", [scraped(1)], 3 * MINUTE, CRITICAL),
    Case(
        "GpuExporterDown",
        "answers, and some other target is down",
        [scraped(1), EXPORTER, scraped(0, {"job": "node", "instance": "node-1:9100"})],
        30 * MINUTE,
        interruptible=False,
    ),
    Case(
        "GpuCountDropped",
        "the bus has more",
        devices(7),
        6 * MINUTE,
        {**NODE, **CRITICAL},
    ),
    Case(
        "GpuCountDropped",
        "there were more",
        devices(piecewise((0, 8), (600, 7)), 0),
        16 * MINUTE,
        {**NODE, **CRITICAL},
    ),
    Case("GpuCountDropped", "no driver", devices(None), 6 * MINUTE, {**NODE, **CRITICAL}),
    Case("GpuCountDropped", "all there", devices(8), 30 * MINUTE),
    Case("GpuCountDropped", "one came back", devices(piecewise((0, 7), (120, 8))), 90 * MINUTE),
    Case(
        "GpuDriverVersionMixed",
        "two",
        drivers("580.95.05", "570.10", "580.95.05"),
        62 * MINUTE,
        {"job": NODE["job"], **INFO},
    ),
    Case("GpuDriverVersionMixed", "one", drivers("580.95.05", "580.95.05"), 90 * MINUTE),
    Case(
        "GpuReportsRejected",
        "many",
        [counter("roofline_exporter_training_rejected_total", 0.1, NODE, reason="schema")],
        5 * MINUTE,
        {**NODE, "reason": "schema", **INFO},
    ),
    Case(
        "GpuReportsRejected",
        "few",
        [counter("roofline_exporter_training_rejected_total", 0.005, NODE, reason="schema")],
        60 * MINUTE,
    ),
)
