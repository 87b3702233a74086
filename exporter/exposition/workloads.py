# SPDX-License-Identifier: Apache-2.0
"""Who holds a GPU and how long it did nothing; whose work is on it, and how long nobody came."""

from __future__ import annotations

from exporter.exposition.family import Family, core_counter, core_gauge, core_info, counter, info
from exporter.exposition.labels import Label, flag, text
from exporter.exposition.parts import HOLDER, SHARE, SNAPSHOT, TOTALS, Rows
from exporter.model.reading import WORK_CLASSES
from exporter.model.snapshot import Holder, Share, Snapshot
from exporter.model.workload import SCHEDULERS, Workload

STEP = Label("workload_step", meaning="of the Slurm job; the last one that had a process here")
WORKLOAD_LABELS = (
    Label("scheduler", SCHEDULERS),
    Label("workload_namespace", meaning="of the pod"),
    Label("workload_pod"),
    Label("workload_container", meaning="its name, in a pod or by itself"),
    Label("workload_job", meaning="id of the Slurm job"),
    Label("workload_user", meaning="of the Slurm job; empty with --no-process.owner"),
    STEP,
    Label("workload_id", meaning="UID of the pod, SLUID of the job, or id of the container"),
)
"""No name is a target label of Prometheus, so that none is renamed to ``exported_*``."""


_FIELDS = ("scheduler", "namespace", "pod", "container", "job", "user", "step", "id")


def workload_values(workload: Workload) -> tuple[str, ...]:
    """Return the values of `WORKLOAD_LABELS`."""
    return tuple(getattr(workload, field) for field in _FIELDS)


def _workloads(share: Share) -> Rows:
    return [(workload_values(workload), 1) for workload in share.work.workloads]


def _pod_labels(snapshot: Snapshot) -> Rows:
    for pod, labels in snapshot.pod_labels.items():
        namespace, _, name = pod.partition("/")
        for label, value in labels.items():
            yield (namespace, name, label, value), 1


def _holder(holder: Holder) -> Rows:
    yield (text(holder.owner), text(holder.command), holder.work_class), 1


IDLE_FAMILIES: tuple[Family, ...] = (
    core_gauge(
        "gpu_held",
        "1 while a compute process that is not on the ignore list is on this GPU, else 0.",
        "the driver's process list at the slow cadence; only where it cannot be read, memory in "
        "use",
        SHARE.one(lambda s: flag(s.held)),
    ),
    core_info(
        "gpu_holder_info",
        "Who holds this GPU: the process with the most memory of those that do; exactly one series "
        "while gpu_held is 1. Labels that are not known are empty.",
        "the driver's process list and /proc at the slow cadence; arguments and environment are "
        "looked at for the class only and never shown",
        HOLDER.rows(
            (
                Label("owner", meaning="name or number of the user; empty with --no-process.owner"),
                Label(
                    "command", meaning="name of the command, at most 32 bytes, never its arguments"
                ),
                Label("class", WORK_CLASSES),
            ),
            _holder,
        ),
    ),
    core_gauge(
        "gpu_last_busy_timestamp_seconds",
        "Unix time at which the last interval ended in which the GPU was busy or was not "
        "observed; before there is one, the time at which observation began.",
        "derived, each poll interval",
        TOTALS.one(lambda t: t.last_busy_timestamp_seconds),
    ),
    core_counter(
        "gpu_idle_seconds_total",
        "Time in intervals that were idle as a whole: no engine, SM, DRAM or video activity, and "
        "hardly any PCIe or NVLink traffic.",
        "derived, each poll interval, since the exporter started",
        TOTALS.one(lambda t: t.idle_seconds),
    ),
    core_counter(
        "gpu_held_idle_seconds_total",
        "The part of gpu_idle_seconds_total in which a process held the GPU.",
        "derived, each poll interval, since the exporter started",
        TOTALS.one(lambda t: t.held_idle_seconds),
    ),
    counter(
        "gpu_idle_energy_joules_total",
        "Energy used in the time of gpu_idle_seconds_total.",
        "derived from gpu_energy_joules_total, else from the power, since the exporter started",
        TOTALS.one(lambda t: t.idle_energy_joules),
    ),
    counter(
        "gpu_held_idle_energy_joules_total",
        "Energy used in the time of gpu_held_idle_seconds_total.",
        "derived from gpu_energy_joules_total, else from the power, since the exporter started",
        TOTALS.one(lambda t: t.held_idle_energy_joules),
    ),
)

FAMILIES: tuple[Family, ...] = (
    core_info(
        "gpu_workload_info",
        "Whose work is on this GPU: one series for each workload that it is given to or that has a "
        "process on it. Labels that are not known are empty.",
        "the kubelet, Slurm's prolog files, and the control groups of the processes on it, every "
        "10 s",
        SHARE.rows(WORKLOAD_LABELS, _workloads),
    ),
    core_gauge(
        "gpu_allocated",
        "1 while a scheduler has given this GPU to somebody, whether it is used or not, else 0; "
        "absent where no scheduler says.",
        "the kubelet and Slurm's prolog files, every 10 s; their last word while they cannot be "
        "read",
        SHARE.one(lambda s: flag(s.work.allocated)),
    ),
    core_counter(
        "gpu_allocated_unopened_seconds_total",
        "Time in which a scheduler had given this GPU to somebody and no process held it.",
        "gpu_allocated and gpu_held, each poll interval, since the exporter started",
        TOTALS.one(lambda t: t.allocated_unopened_seconds),
    ),
    info(
        "gpu_workload_label_info",
        "One series for each label of a pod of this node that --kubernetes.pod-labels names.",
        "the kubelet's pods API, every 10 s",
        SNAPSHOT.rows(
            (
                Label("workload_namespace"),
                Label("workload_pod"),
                Label("label", meaning="name of the pod's label"),
                Label("value"),
            ),
            _pod_labels,
        ),
    ),
)
