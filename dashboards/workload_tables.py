# SPDX-License-Identifier: Apache-2.0
"""The tables of workloads: all on one GPU, what each of the fleet does, and who opens nothing."""

from __future__ import annotations

from dashboards import palette
from dashboards.model import Panel, Values
from dashboards.owners import whose
from dashboards.promql import (
    DEVICE,
    LABELS,
    held_idle_for,
    increase,
    saturation,
    select,
    unopened,
    utilization,
)
from dashboards.tables import SHARE, WHICH_GPU, Column, table

_NO_WORKLOADS = "no scheduler or runtime names any"
_PARTS = ("namespace", "pod", "container", "job", "user", "step")


def of_one_gpu() -> Panel:
    """Return the table of the workloads on the GPU that is looked at."""
    names = ", ".join(f"workload_{part}" for part in _PARTS)
    known = f"max by ({LABELS}, scheduler, {names}) ({select('gpu_workload_info')})"
    held = f"max by ({DEVICE}) ({select('gpu_held')})"
    chart, queries, steps, overrides = table(
        (
            Column("GPU", label=SHARE, width=60),
            Column("Named by", label="scheduler", width=110),
            *(Column(part.capitalize(), label=f"workload_{part}") for part in _PARTS),
            Column(
                "The GPU is",
                expression=f"{known} * on ({DEVICE}) group_left () {held}",
                texts={"1": ("held", "transparent"), "0": ("not opened", palette.SAND)},
                width=110,
            ),
        )
    )
    return Panel(
        "Workloads",
        "The pods, Slurm jobs and containers on this GPU now: all that it is given to, and all "
        "that have a process on it. Several on one GPU or MIG instance share it. Not opened: it is "
        "given away, and no process holds it.",
        chart,
        Values("none", no_value=_NO_WORKLOADS),
        queries,
        width=24,
        height=6,
        overrides=overrides,
        transformations=steps,
    )


def of_the_fleet(rows: int | None = None) -> Panel:
    """Return the table of what the GPUs of each workload of the chosen namespaces do.

    With `rows`, only of so many: those with most GPUs.
    """
    names = "scheduler, workload_namespace, workload_pod, workload_job, workload_user"
    info = select("gpu_workload_info", workload_namespace="$namespace")
    known = f"max by ({DEVICE}, {names}) ({info})"
    count = f"count by ({names}) ({known})"
    largest = count if rows is None else f"topk({rows}, {count})"
    shown = "" if rows is None else f" and on ({names}) {largest}"

    def of_each(expression: str, over: str = "avg") -> str:
        value = f"max by ({DEVICE}) ({expression})"
        return f"{over} by ({names}) ({value} * on ({DEVICE}) group_right () {known}){shown}"

    chart, queries, steps, overrides = table(
        (
            Column("Named by", label="scheduler", width=110),
            Column("Namespace", label="workload_namespace"),
            Column("Pod", label="workload_pod"),
            Column("Job", label="workload_job", width=90),
            Column("User", label="workload_user", width=110),
            Column("GPUs", expression=largest, unit="none", width=70),
            Column(
                "Utilization",
                expression=of_each(utilization()),
                unit="percentunit",
                bar=palette.UTILIZATION,
                decimals=0,
            ),
            Column(
                "Saturation",
                expression=of_each(saturation()),
                unit="percentunit",
                bar=palette.SATURATION,
                decimals=0,
            ),
            Column(
                "Held idle",
                expression=of_each(f"{held_idle_for()} ^ 0", "sum"),
                unit="none",
                width=90,
            ),
            Column("Unopened", expression=of_each(unopened(), "sum"), unit="none", width=100),
        ),
        sort_by="GPUs",
    )
    return Panel(
        "Workloads",
        "The pods, Slurm jobs and containers of the chosen namespaces"
        f"{f', the {rows} with most GPUs' if rows else ''}: how many GPUs or MIG "
        "instances each has, what these do on average, how many of them it holds idle and how many "
        "it has not opened. What several workloads share counts for each of them. Low utilization "
        "on many GPUs: ask for fewer.",
        chart,
        Values("none", no_value=_NO_WORKLOADS),
        queries,
        width=24,
        height=9,
        overrides=overrides,
        transformations=steps,
    )


def unopened_now() -> Panel:
    """Return the table of the GPUs that somebody was given and that nobody opens."""
    now = f"max by ({LABELS}) ({increase('gpu_allocated_unopened_seconds_total')})"
    now = f"{now} and on ({DEVICE}) ({unopened()} == 1)"
    chart, queries, steps, overrides = table(
        (
            *WHICH_GPU,
            Column("Given to", label="owner"),
            Column(
                "In the range",
                expression=f"({now}) * on ({DEVICE}) group_left (owner) {whose()}",
                unit="dtdurations",
                decimals=0,
                width=130,
            ),
        ),
        sort_by="In the range",
    )
    return Panel(
        "Never opened now",
        "GPUs and MIG instances that a scheduler has given away and that no process holds, with "
        "the time in which that was so in the range shown. The job still starts, waits, or does "
        "not need a GPU: ask the owner.",
        chart,
        Values("none", no_value="nothing is given away and not opened"),
        queries,
        width=10,
        height=9,
        overrides=overrides,
        transformations=steps,
    )
