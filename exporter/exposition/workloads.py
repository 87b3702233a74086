# SPDX-License-Identifier: Apache-2.0
"""Workloads on a GPU, as schedulers and runtimes name them, and allocated but unopened GPUs."""

from __future__ import annotations

from exporter.exposition.family import Family, core_counter, core_gauge, core_info, info
from exporter.exposition.labels import Label, flag
from exporter.exposition.parts import SHARE, SNAPSHOT, TOTALS, Rows
from exporter.model.snapshot import Share, Snapshot
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
