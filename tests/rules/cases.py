# SPDX-License-Identifier: Apache-2.0
"""When each alert fires, and the nearest that it must not fire on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from exporter.model.xids import XIDS
from tests.rules.promtool import (
    HOUR,
    MINUTE,
    STEP_SECONDS,
    Expected,
    Labels,
    Series,
    Value,
    between,
    piecewise,
    selector,
    total,
)

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


def driver(name: str, value: Value, /, **more: str) -> Series:
    """A counter that the driver keeps."""
    return Series(name, {**GPU, **more}, value)


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
    idle: float | Value, by: Labels = HOLDER, labels: Labels = GPU, held_value: float | Value = 1
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
    scheduler: str, labels: Labels = GPU, spell: tuple[float, float] = (0, 1e9), /, **said: str
) -> Series:
    """A workload that is on a GPU for a while; what is not said is not known."""
    there = between(*spell, lambda _: 1.0)
    names = {f"workload_{name}": said.get(name, "") for name in WORKLOAD}
    return gauge("gpu_workload_info", there, labels, scheduler=scheduler, **names)


def pod(name: str, labels: Labels = GPU, spell: tuple[float, float] = (0, 1e9)) -> Series:
    """A container of a pod, named NAMESPACE/POD."""
    namespace, _, of_pod = name.partition("/")
    return workload("kubernetes", labels, spell, namespace=namespace, pod=of_pod, container="main")


def owned(owner: str) -> Labels:
    """What an alert says of the owner of its GPU; see `gpu:gpu_workload_labels:info`."""
    found: dict[str, str] = {"owner": owner}
    if "/" in owner:
        found["workload_namespace"], found["workload_pod"] = owner.split("/")
    elif ", job " in owner:
        found["workload_user"], found["workload_job"] = owner.split(", job ")
    return found


def given(
    *spells: tuple[str, float, float], held_value: float | Value = 0, labels: Labels = GPU
) -> list[Series]:
    """A GPU that the kubelet gives to one pod after another, which somebody holds at times.

    All of it changes at multiples of `STEP_SECONDS`.
    """
    is_held = held_value if callable(held_value) else piecewise((0, held_value))

    def allocated(at: float) -> float:
        return float(any(start <= at < end for _, start, end in spells))

    def unopened(at: float) -> float:
        steps = range(0, ceil(at), STEP_SECONDS)
        unused = (step for step in steps if allocated(step) and not is_held(step))
        return float(sum(min(STEP_SECONDS, at - step) for step in unused))

    return [
        gauge("gpu_held", is_held, labels),
        gauge("gpu_allocated", allocated, labels),
        counter("gpu_allocated_unopened_seconds_total", unopened, labels),
        *(pod(name, labels, (start, end)) for name, start, end in spells),
    ]


def kubelet_reading(age: float | None, up: float = 1) -> list[Series]:
    """How the reading of the kubelet goes."""
    made = [gauge("roofline_exporter_source_up", up, NODE, source="kubernetes")]
    if age is not None:
        made.append(gauge("roofline_exporter_source_age_seconds", age, NODE, source="kubernetes"))
    return made


def held_by(
    *spells: tuple[str, float, float],
    idle: Sequence[tuple[float, float]] = ((0, 1),),
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
        *observed(),
        gauge("gpu_held", lambda at: 1.0 if owner(at) else 0.0),
        *(
            gauge("gpu_holder_info", info(who), command="python3", **{**HOLDER, "owner": who})
            for who in dict.fromkeys(who for who, *_ in spells)
        ),
        counter("gpu_idle_seconds_total", idled(held_only=False)),
        counter("gpu_held_idle_seconds_total", idled(held_only=True)),
    ]


def rank(
    number: int = 0,
    *,
    stall: float | None = None,
    checkpoint: float | None = None,
    waited: float | None = None,
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
        return between(0.0, end, total((0.0, value)))

    def run_seconds(at: float) -> float:
        return at - run_start if at >= run_start else at

    made = [
        counter("gpu_training_step_seconds_total", rate(1), labels),
        counter("gpu_training_steps_total", rate(4), labels),
        gauge("gpu_training_run_seconds", between(0.0, end, run_seconds), labels),
    ]
    if verified is not None:
        there = between(0.0, end, piecewise((0, int(verified))))
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


WARMS_UP = total((0, 0.01), (2 * HOUR, 1), (2 * HOUR + 8 * MINUTE, 0.01))
"""How a run that begins after two hours waits for data."""
OF_RANK: Labels = {**GPU, "uuid": "GPU-0"}


def found_to_wait(
    lower: float, waits: Value | None = None, labels: Labels = OF_RANK
) -> list[Series]:
    """A GPU that waits for data at least so much of the time, seen from outside the job."""
    seconds = waits or total((0, lower))
    return [
        *observed(labels),
        counter("gpu_inferred_data_stall_lower_seconds_total", seconds, labels, method="client"),
        gauge("gpu_inferred_data_stall_lower_ratio", lower, labels, method="client"),
    ]


def rank_labels(
    number: int = 0, instance: str = NODE["instance"], job: str = RANK["training_job"]
) -> Labels:
    named = {**RANK, "training_job": job, "rank": str(number)}
    return {**named, "uuid": f"GPU-{number}", "instance": instance}


def idle_phase(seconds: Value) -> Series:
    """The stall of rank 0, as it says."""
    name = "gpu_training_phase_gpu_idle_seconds_total"
    return counter(name, seconds, rank_labels(0), phase="data")


def work(
    tensor: float, sm: float, number: int = 0, instance: str = NODE["instance"]
) -> list[Series]:
    """What the units of a rank's GPU do."""
    labels = {**GPU, "gpu": str(number), "uuid": f"GPU-{number}", "instance": instance}
    return [
        counter("gpu_pipe_active_seconds_total", tensor, labels, pipe="tensor"),
        counter("gpu_sm_active_seconds_total", sm, labels),
    ]


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


def power_limits(watts: float, default: float) -> list[Series]:
    return [
        gauge("gpu_power_limit_watts", watts),
        gauge("gpu_power_default_limit_watts", default),
    ]


def throttled(share: float, reason: str) -> list[Series]:
    rows = [driver("gpu_throttle_seconds_total", total((0, share)), reason=reason)]
    rows.append(driver("gpu_throttle_seconds_total", total((0, 0)), reason="sw_power_cap"))
    return [*rows, gauge("gpu_up", 1)]


def memory_at(celsius: float, most: float | None = 105) -> list[Series]:
    made = [gauge("gpu_temperature_celsius", celsius, sensor="memory")]
    if most is not None:
        made.append(gauge("gpu_temperature_threshold_celsius", most, threshold="memory_max"))
    return made


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


def asleep(state: Value) -> Series:
    """That the driver lets a GPU sleep."""
    return gauge("roofline_exporter_reading_state", state, BY_UUID, group="gpu", state="suspended")


def links(
    active: float | Value, gpu: int = 0, model: str = "NVIDIA H100", index: str = ""
) -> list[Series]:
    labels = {**GPU, "gpu": index or str(gpu), "uuid": f"GPU-{gpu}"}
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


def rejected(rate: float) -> list[Series]:
    name = "roofline_exporter_training_rejected_total"
    return [counter(name, rate, NODE, reason="schema")]


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


def exporter(labels: Labels, value: float | Value = 1) -> Series:
    return gauge("roofline_exporter_build_info", value, labels, version="0.1.0")


EXPORTER = exporter(NODE)
OF_JOB_GPUS: Labels = {**NODE, "job": "gpus"}
POD_TARGET: Labels = {"job": "pods", "instance": "10.0.0.1:19400"}
WARNING = {"severity": "warning"}
CRITICAL = {"severity": "critical"}
INFO = {"severity": "info"}
IN_DRAM: Labels = {**GPU, "location": "dram", **WARNING}
LINK: Labels = {**GPU, "uuid": "GPU-0", "state": "active", **WARNING}
CRITICAL_XIDS = [code for code, row in XIDS.items() if row.tier == "critical"]
WARNING_XIDS = [code for code, row in XIDS.items() if row.tier == "warning"]
OTHER_XIDS = [code for code, row in XIDS.items() if row.tier is None]


def fires(about: str, minutes: float, series: Sequence[Series], labels: Labels) -> Case:
    """A case on which the alert is firing after so many minutes, with these labels."""
    return Case("", about, series, minutes * MINUTE, labels)


def quiet(
    about: str, minutes: float, series: Sequence[Series], *, interruptible: bool = True
) -> Case:
    """A case on which the alert does not fire in so many minutes."""
    return Case("", about, series, minutes * MINUTE, interruptible=interruptible)


def firing(case: Case, at: float) -> Expected:
    """The alert, and no other of its name and severity, is firing."""
    state = {"alertname": case.alert, "alertstate": "firing"}
    labels = {**state, **(case.labels or {})}
    query = selector(
        "ALERTS", {key: labels[key] for key in ("alertname", "alertstate", "severity")}
    )
    return Expected(query, at, [(selector("ALERTS", dict(sorted(labels.items()))), 1)])


def _board(name: str, severity: Labels, **more: str) -> list[Case]:
    """An alert on a gauge that is 1 when something is wrong."""
    wrong = gauge(name, piecewise((0, 0), (300, 1)), **more)
    return [
        fires(f"{name} is 1", 7, [wrong], {**GPU, **severity, **more}),
        quiet(f"{name} is 0", 10, [gauge(name, 0, **more)]),
    ]


def _xids(codes: Sequence[int], severity: Labels) -> list[Case]:
    """Each of these Xids, for the first time."""
    return [
        fires(f"Xid {code}", 6, xid(code, 300), {**GPU, "xid": str(code), **severity})
        for code in codes
    ]


BY_ALERT: Mapping[str, Sequence[Case]] = {
    "GpuHeldIdle": [
        fires("held idle", 40, held(1), {**BY_UUID, **HOLDER, **WARNING}),
        fires("held idle for hours", 120, held(1), {**BY_UUID, **HOLDER, **CRITICAL}),
        *(
            fires(
                f"{by}, for hours",
                minutes,
                held(1, {"owner": "carol", "class": by}),
                {**BY_UUID, "owner": "carol", "class": by, **WARNING},
            )
            for by, minutes in (("notebook", 120), ("serving", 360))
        ),
        fires(
            "a MIG instance",
            40,
            held(1, HOLDER, {**GPU, "gpu_instance": "3"}),
            {**BY_UUID, "gpu_instance": "3", **HOLDER, **WARNING},
        ),
        fires(
            "nobody is named",
            40,
            [one for one in held(1) if one.name != "gpu_holder_info"],
            {**BY_UUID, **WARNING},
        ),
        quiet("busy for a tenth of the time", 60, held(0.9)),
        quiet("free", 60, held(0, held_value=0)),
        quiet("a notebook at lunch", 90, held(1, {"class": "notebook"})),
        quiet("a server at night", 300, held(1, {"class": "serving"})),
        quiet("a display", 60, held(1, {"class": "display"})),
        quiet("a monitoring tool", 60, held(1, {"class": "system"})),
        quiet("a job that has just begun", 25, held(1)),
    ],
    "GpuAllocatedUnopened": [
        fires(
            "a pod that never opens it",
            37,
            given(("team-a/notebook-7", 0, 1e9)),
            {**BY_UUID, **owned("team-a/notebook-7"), **WARNING},
        ),
        fires(
            "opened and closed long ago",
            97,
            given(("team-a/train-0", 0, 1e9), held_value=piecewise((0, 1), (3600, 0))),
            {**BY_UUID, **owned("team-a/train-0"), **WARNING},
        ),
        quiet(
            "after a long start",
            60,
            given(("team-a/train-0", 0, 1e9), held_value=piecewise((0, 0), (1680, 1))),
        ),
        quiet(
            "opened now and then",
            90,
            given(
                ("team-a/train-0", 0, 1e9),
                held_value=lambda at: float(at % (20 * MINUTE) < 2 * MINUTE),
            ),
        ),
        quiet("given to nobody", 60, given()),
        quiet(
            "nobody says to whom it is given",
            60,
            [gauge("gpu_held", 0), workload("container", id="0" * 64)],
        ),
    ],
    "GpuOrphanMemory": [
        fires("no process", 16, orphan(2e9), {**GPU, **WARNING}),
        quiet("a process", 30, orphan(2e9, compute=1)),
        quiet("a display", 30, orphan(2e9, graphics=1)),
        quiet("the driver's own memory", 30, orphan(4e8)),
        quiet("graphics not known", 30, orphan(2e9)[:2]),
        quiet(
            "memory shared with the CPU",
            30,
            [*orphan(2e9), counter("gpu_c2c_receive_bytes_total", 1)],
        ),
        quiet("the host's memory", 30, [*orphan(6e10), gauge("gpu_memory_unified", 1)]),
    ],
    "GpuUtilizedButUnsaturated": [
        fires(
            "spins on one SM",
            62,
            [*busy(1, 0, 0, 0), gauge("gpu_saturation_upper_ratio", 0.02)],
            {**GPU, **INFO},
        ),
        quiet("works", 80, [*busy(1, 0.6, 0.5, 1e9), gauge("gpu_saturation_upper_ratio", 0.6)]),
        quiet(
            "without counters, nothing is certain",
            80,
            [*uncounted(1, 300), gauge("gpu_saturation_upper_ratio", 1)],
        ),
        quiet(
            "half of the time", 80, [*busy(0.5, 0, 0, 0), gauge("gpu_saturation_upper_ratio", 0.02)]
        ),
    ],
    "GpuDataStallHigh": [
        fires("waits for its data", 27, rank(stall=0.4), {**rank_labels(), **WARNING}),
        fires("found from outside", 27, found_to_wait(0.4), {**OF_RANK, **WARNING}),
        fires(
            "nobody can say whether it is there",
            27,
            rank(stall=0.4, verified=None),
            {**rank_labels(), **WARNING},
        ),
        fires(
            "found from outside, whatever those say that are not there",
            27,
            [
                *found_to_wait(0.4, labels=GPU),
                *intruder(0, stall=0.01),
                *intruder(1, stall=0.5),
                *intruder(2, run_start=20 * MINUTE),
            ],
            {**GPU, **WARNING},
        ),
        quiet("says so without being there", 40, intruder(stall=0.4)),
        quiet("a little", 40, rank(stall=0.1)),
        quiet(
            "another run of one name warms up",
            180,
            [
                *rank(run_start=2 * HOUR),
                idle_phase(WARMS_UP),
            ],
        ),
        quiet(
            "another run of one name, found to wait, warms up",
            180,
            [*rank(run_start=2 * HOUR), *found_to_wait(0.01, WARMS_UP)],
        ),
        quiet(
            "a run after the one that was found to wait warms up",
            180,
            [
                *held_by(("alice", 0, 2 * HOUR - MINUTE), ("bob", 2 * HOUR, 1e9), idle=((0, 0),)),
                *found_to_wait(0.01, WARMS_UP, GPU)[2:],
            ],
        ),
        quiet("warms up", 24, rank(stall=0.4)),
        quiet(
            "measured, so that nothing has to be found from outside",
            40,
            [*rank(stall=0.1), *found_to_wait(0.4)],
        ),
    ],
    "GpuCheckpointOverhead": [
        fires(
            "saves all the time", 35, rank(checkpoint=0.1, waited=0.1), {**rank_labels(), **WARNING}
        ),
        fires("where only host time is known", 35, rank(waited=0.1), {**rank_labels(), **WARNING}),
        fires("without a GPU", 35, rank(waited=0.1, verified=None), {**rank_labels(), **WARNING}),
        quiet("says so without being there", 50, intruder(checkpoint=0.1, waited=0.1)),
        quiet("seldom", 50, rank(checkpoint=0.01)),
        quiet("beside the GPU's work", 50, rank(checkpoint=0.01, waited=0.2)),
        quiet("at the start", 25, rank(checkpoint=0.2)),
    ],
    "GpuPossibleCollectiveHang": [
        fires("spins and nothing else", 12, busy(1, 0, 0.001, 100), {**GPU, **WARNING}),
        fires(
            "without counters: utilized, without power", 12, uncounted(1, 65), {**GPU, **WARNING}
        ),
        quiet("a unit that is not read may work", 30, stock(250, 0, 0.001)),
        fires(
            "counters of some units: utilized, without power",
            12,
            stock(65, 0, 0.001),
            {**GPU, **WARNING},
        ),
        quiet("counters of some units: those work", 30, stock(65, 0.3, 0.001)),
        quiet("communicates", 30, busy(1, 0, 0.001, 1e9)),
        quiet("computes", 30, busy(1, 0.3, 0.01, 0)),
        quiet("copies", 30, busy(1, 0, 0.3, 0)),
        quiet("idle", 30, busy(0, 0, 0, 0)),
        quiet("works, without counters", 30, uncounted(1, 250)),
    ],
    "GpuStragglerRank": [
        fires(
            "one waits for data",
            27,
            [
                *rank(0, stall=0.01, job="bert"),
                *rank(1, stall=0.01, job="bert"),
                *rank(2, stall=0.15, job="bert", instance="node-2:19400"),
            ],
            {**rank_labels(2, "node-2:19400", "bert"), **WARNING},
        ),
        fires(
            "the others wait for one",
            27,
            [
                *(row for i in range(4) for row in rank(i, stall=0, job="gpt")),
                *(row for i in range(3) for row in work(0.2, 0.95, i)),
                *work(0.5, 0.95, 3),
            ],
            {**rank_labels(3, job="gpt"), **WARNING},
        ),
        quiet(
            "the tensor pipe of the others is no longer read",
            40,
            [
                *(row for i in range(4) for row in rank(i, stall=0, job="gpt")),
                *(
                    replace(row, value=between(0, 20 * MINUTE, row.value))
                    for i in range(3)
                    for row in work(0.4, 0.95, i)[:1]
                ),
                *(row for i in range(3) for row in work(0.4, 0.95, i)[1:]),
                *work(0.4, 0.95, 3),
            ],
        ),
        fires(
            "one waits for data; others that are not there say so too, and one has its name",
            27,
            [
                *(row for i in range(2) for row in rank(i, stall=0.01)),
                *rank(2, stall=0.15),
                *(row for i in range(3, 7) for row in intruder(i, stall=0.15, job="resnet")),
                *intruder(2, stall=0.01, job="resnet", instance="node-2:19400"),
            ],
            {**rank_labels(2), **WARNING},
        ),
        fires(
            "the others wait for one, on whose GPU others say that they are",
            27,
            [
                *(row for i in range(4) for row in rank(i)),
                *(row for i in range(3) for row in work(0.2, 0.95, i)),
                *work(0.5, 0.95, 3),
                *(row for i in range(4, 9) for row in intruder(i, job="resnet", uuid="GPU-3")),
            ],
            {**rank_labels(3), **WARNING},
        ),
        quiet(
            "all wait for data",
            40,
            [row for i in range(4) for row in (*rank(i, stall=0.4), *work(0.3, 0.6, i))],
        ),
        quiet(
            "unrelated runs of one name",
            60,
            [
                row
                for i, (stall, tensor) in enumerate(((0.01, 0.6), (0.12, 0.2), (0.02, 0.25)))
                for row in (
                    *rank(0, stall=stall, instance=f"node-{i}:19400", uuid=f"GPU-{i}"),
                    *work(tensor, 0.9, i, f"node-{i}:19400"),
                )
            ],
        ),
        quiet(
            "the others, which are gone, did not wait",
            80,
            [
                *(row for i in range(1, 4) for row in rank(i, stall=0.01, end=40 * MINUTE)),
                *rank(0),
                idle_phase(total((0, 0.01), (40 * MINUTE, 0.3))),
            ],
        ),
        quiet("alone", 40, [*rank(0, stall=0.4), *work(0.3, 0.6, 0)]),
    ],
    "GpuThermalThrottling": [
        fires("hot", 16, throttled(0.3, "hw_thermal"), {**GPU, **WARNING}),
        quiet("for a moment", 60, throttled(0.05, "sw_thermal")),
        quiet("power, not heat", 30, throttled(0.9, "hw_power_brake")),
        quiet(
            "two reasons of one counter are not added",
            60,
            [*throttled(0.07, "sw_thermal"), *throttled(0.07, "hw_thermal")[:1]],
        ),
    ],
    "GpuPowerBrake": [
        fires("on", 6, throttled(0.5, "hw_power_brake"), {**GPU, **WARNING}),
        quiet("off", 30, throttled(0.5, "hw_thermal")),
    ],
    "GpuPowerLimitLowered": [
        fires("lowered", 16, power_limits(238, 700), {**GPU, **INFO}),
        quiet("as delivered", 60, power_limits(700, 700)),
        quiet("a laptop whose limit in force is above its default", 60, power_limits(95, 55)),
        quiet("no limit", 60, [gauge("gpu_power_watts", 40)]),
    ],
    "GpuMemoryTemperatureHigh": [
        fires("near its maximum", 11, memory_at(101), {**GPU, "sensor": "memory", **WARNING}),
        fires("maximum not known", 11, memory_at(96, None), {**GPU, "sensor": "memory", **WARNING}),
        quiet(
            "warm for a board that may be",
            30,
            [*memory_at(98), gauge("gpu_temperature_celsius", 99, sensor="gpu")],
        ),
    ],
    "GpuXidCritical": [
        *_xids(CRITICAL_XIDS, CRITICAL),
        quiet("a warning", 30, xid(WARNING_XIDS[0], 300)),
    ],
    "GpuXidWarning": [
        *_xids(WARNING_XIDS, WARNING),
        quiet(
            "critical, or of the application",
            30,
            [row for code in (*CRITICAL_XIDS, *OTHER_XIDS) for row in xid(code, 300)],
        ),
    ],
    "GpuEccUncorrected": [
        fires("one more", 122, ecc(piecewise((0, 0), (7200, 1))), IN_DRAM),
        fires("counted before the first scrape", 2, ecc(piecewise((0, 2))), IN_DRAM),
        fires(
            "one more while the exporter was away for hours",
            302,
            ecc(lambda at: 1.0 if at < 2 * HOUR else None if at < 5 * HOUR else 2.0),
            IN_DRAM,
        ),
        quiet("corrected", 60, ecc(total((0, 1)), "corrected")),
    ],
    "GpuSramErrorThreshold": [*_board("gpu_sram_error_threshold_exceeded", CRITICAL)],
    "GpuRowRemapFailure": [
        *_board("gpu_row_remap_failure", CRITICAL),
        *_board("gpu_unrepairable_memory", CRITICAL),
    ],
    "GpuRowRemapPending": [*_board("gpu_row_remap_pending", WARNING)],
    "GpuRemapBanksExhausted": [
        *_board("gpu_row_remap_banks", WARNING, availability="none"),
        quiet(
            "some spare rows are left", 10, [gauge("gpu_row_remap_banks", 3, availability="low")]
        ),
    ],
    "GpuRetiredPagesPending": [*_board("gpu_retired_pages_pending", WARNING)],
    "GpuRecoveryActionNeeded": [*_board("gpu_recovery_action", CRITICAL)],
    "GpuNvlinkDown": [
        fires("one link fell", 16, [*links(piecewise((0, 18), (600, 17))), *links(18, 1)], LINK),
        fires("all links fell", 16, links(piecewise((0, 18), (600, 0))), LINK),
        fires("down since the start", 6, [*links(17), *links(18, 1)], LINK),
        fires(
            "under another index than before",
            20,
            [
                links(between(0, 600, lambda _: 12.0), 0, index="2")[1],
                links(between(660, 1e9, lambda _: 11.0), 0, index="1")[1],
            ],
            {**LINK, "gpu": "1"},
        ),
        quiet(
            "GPU models with different links",
            60,
            [*links(6, 0, "Tesla V100"), *links(12, 1), *links(12, 2)],
        ),
        quiet(
            "links that the board does not use",
            30,
            [*links(12), *links(12, 1), gauge("gpu_nvlink_links_expected", 18)],
        ),
    ],
    "GpuFabricUnhealthy": [
        fires("registration hangs", 11, [gauge("gpu_fabric_state", 2)], {**GPU, **CRITICAL}),
        fires(
            "without its bandwidth",
            11,
            [gauge("gpu_fabric_state", 3), gauge("gpu_fabric_healthy", 0)],
            {**GPU, **CRITICAL},
        ),
        quiet("completed", 60, [gauge("gpu_fabric_state", 3), gauge("gpu_fabric_healthy", 1)]),
    ],
    "GpuPcieLinkDegraded": [
        fires("narrow", 11, pcie(width=8, utilization=0), {**GPU, "of": "lanes", **WARNING}),
        fires("slow while busy", 12, pcie(generation=3), {**GPU, "of": "generation", **WARNING}),
        quiet("slow while idle", 60, pcie(generation=1, utilization=0.02)),
    ],
    "GpuLost": [
        fires("does not answer", 3, [gauge("gpu_up", 0)], {**GPU, **CRITICAL}),
        fires(
            "unknown to the exporter since its restart",
            10,
            [gauge("gpu_up", between(0, 360, piecewise((0, 1), (120, 0))))],
            {**GPU, **CRITICAL},
        ),
        fires(
            "soon after it was back under another index",
            19,
            [
                gauge("gpu_up", between(0, 600, lambda _: 1.0)),
                gauge("gpu_up", between(660, 1e9, piecewise((0, 1), (900, 0))), gpu="3"),
            ],
            {**GPU, "gpu": "3", **CRITICAL},
        ),
        fires(
            "soon after it slept",
            23,
            [
                gauge("gpu_up", piecewise((0, 0), (600, 1), (1200, 0))),
                asleep(between(0, 600, lambda _: 1.0)),
            ],
            {**GPU, **CRITICAL},
        ),
        quiet("answers", 30, [gauge("gpu_up", 1)]),
        quiet("sleeps", 30, [gauge("gpu_up", 0), asleep(lambda _: 1.0)]),
        quiet(
            "exporter is down: nothing is known",
            60,
            [gauge("gpu_up", between(0, 300, piecewise((0, 1)))), scraped(0)],
        ),
    ],
    "GpuExporterStale": [
        fires("stopped polling", 9, [snapshots(300)], {**NODE, **WARNING}),
        quiet("polls", 30, [snapshots(1e9)]),
    ],
    "GpuWorkloadsStale": [
        fires(
            "the kubelet cannot be read any more",
            3,
            kubelet_reading(700, up=0),
            {**NODE, "source": "kubernetes", **WARNING},
        ),
        fires(
            "the kubelet could never be read",
            12,
            kubelet_reading(None, up=0),
            {**NODE, "source": "kubernetes", **WARNING},
        ),
        quiet("one reading failed", 60, kubelet_reading(40, up=0)),
        quiet("is read", 60, kubelet_reading(9)),
        quiet(
            "another source cannot be read",
            60,
            [gauge("roofline_exporter_source_up", 0, NODE, source="nvml")],
        ),
    ],
    "GpuExporterDown": [
        fires(
            "does not answer",
            13,
            [scraped(piecewise((0, 1), (600, 0))), EXPORTER],
            {**NODE, **CRITICAL},
        ),
        fires(
            "never answered",
            3,
            [scraped(0), exporter({**NODE, "instance": "node-2"})],
            {**NODE, **CRITICAL},
        ),
        fires(
            "in a job of another name",
            13,
            [
                scraped(piecewise((0, 1), (600, 0)), OF_JOB_GPUS),
                exporter(OF_JOB_GPUS, between(0, 600, lambda _: 1.0)),
            ],
            {**OF_JOB_GPUS, **CRITICAL},
        ),
        *(
            fires(
                f"never answered, in the job {job}",
                3,
                [scraped(0, {**NODE, "job": job}), EXPORTER],
                {**NODE, "job": job, **CRITICAL},
            )
            for job in ("gpu-monitoring/roofline-exporter", "monitoring/a-roofline-exporter")
        ),
        fires(
            "never answered, in a job of another name with exporters only",
            3,
            [
                scraped(0, OF_JOB_GPUS),
                scraped(1, {**OF_JOB_GPUS, "instance": "node-2:19400"}),
                exporter({**OF_JOB_GPUS, "instance": "node-2:19400"}),
            ],
            {**OF_JOB_GPUS, **CRITICAL},
        ),
        quiet(
            "never answered, but its job has other targets too",
            30,
            [
                scraped(0, {"job": "pods", "instance": "10.0.0.3:8080"}),
                scraped(1, {"job": "pods", "instance": "10.0.0.2:9090"}),
                scraped(1, POD_TARGET),
                exporter(POD_TARGET),
            ],
        ),
        fires("there is none", 3, [scraped(1)], CRITICAL),
        quiet(
            "answers, and some other target is down",
            30,
            [scraped(1), EXPORTER, scraped(0, {"job": "node", "instance": "node-1:9100"})],
            interruptible=False,
        ),
    ],
    "GpuExporterMissing": [
        fires("two of three nodes have no target", 10, [wanted(3), scraped(1), EXPORTER], WARNING),
        fires("no node has a target", 10, [wanted(3)], WARNING),
        quiet(
            "a node came a short time ago, or its target does not answer",
            55,
            [
                wanted(piecewise((0, 2), (40 * MINUTE, 3))),
                scraped(1),
                EXPORTER,
                scraped(0, {**NODE, "instance": "node-2:19400"}),
            ],
        ),
        quiet(
            "all are scraped, in a job of another name",
            60,
            [wanted(1), exporter(POD_TARGET)],
            interruptible=False,
        ),
    ],
    "GpuCountDropped": [
        fires("the bus has more", 6, devices(7), {**NODE, **CRITICAL}),
        fires("there were more", 16, devices(piecewise((0, 8), (600, 7)), 0), {**NODE, **CRITICAL}),
        fires("no driver", 6, devices(None), {**NODE, **CRITICAL}),
        quiet("all there", 30, devices(8)),
        quiet("one came back", 90, devices(piecewise((0, 7), (120, 8)))),
    ],
    "GpuDriverVersionMixed": [
        fires("two", 62, drivers("580.95.05", "570.10", "580.95.05"), {"job": NODE["job"], **INFO}),
        quiet("one", 90, drivers("580.95.05", "580.95.05")),
    ],
    "GpuReportsRejected": [
        fires("many", 5, rejected(0.1), {**NODE, "reason": "schema", **INFO}),
        quiet("few", 60, rejected(0.005)),
    ],
}
CASES = [replace(case, alert=alert) for alert, cases in BY_ALERT.items() for case in cases]
