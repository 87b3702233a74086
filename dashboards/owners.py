# SPDX-License-Identifier: Apache-2.0
"""The PromQL that names the owner of a GPU: its workload as people call it, else the process's.

The recording rules name them alike: gpu:gpu_workload_owner:info in deploy/prometheus/templates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dashboards.promql import DEVICE, hours, integral, lost, lost_so_far, select

Metric = Callable[[str], str]
"""Returns a selector of a metric, now or over the range."""

PARTS = ", ".join(
    f'"{part}"'
    for part in (
        "scheduler",
        *(f"workload_{part}" for part in ("namespace", "pod", "container", "user", "job", "id")),
    )
)
NAMED_POD = r"kubernetes\|([^|]+)\|([^|]+)\|.*"
NAMED_USER = r"slurm(?:\|[^|]*){3}\|([^|]+)\|\|?([^|]+)(?:\|.*)?"
_REST = (
    (r"kubernetes\|.*\|([^|]{1,12})(?:[^|]*)", "pod $1"),
    (r"slurm(?:\|[^|]*){3}\|\|\|?([^|]+)(?:\|.*)?", "job $1"),
    (r"container(?:\|[^|]*){2}\|([^|]+)\|.*", "$1"),
    (r"container\|.*\|([^|]{1,12})(?:[^|]*)", "$1"),
)


@dataclass(frozen=True, slots=True)
class Naming:
    """What an owner is called: patterns of what is known of a workload, and what they become."""

    patterns: Sequence[tuple[str, str]]
    several: str
    """What more than one of them are."""


WORKLOAD = Naming(
    ((NAMED_POD, "$1/$2"), (NAMED_USER, "$1, job $2"), *_REST),
    "workloads",
)
"""namespace/pod; user and job; the name of a container."""
TEAM = Naming(((NAMED_POD, "$1"), (NAMED_USER, "$1"), *_REST), "teams")
"""The namespace of a pod, the user of a job; where there is neither, as a workload."""


def _in_range(metric: str) -> str:
    return f"last_over_time({select(metric)}[$__range])"


def _each(naming: Naming, info: Metric) -> str:
    """Return the names of the workloads on each GPU, by the preferred scheduler that names any."""
    every = info("gpu_workload_info")
    of = {
        scheduler: every.replace("{", f'{{scheduler="{scheduler}", ', 1)
        for scheduler in ("kubernetes", "slurm", "container")
    }
    preferred = f" or on ({DEVICE}) ".join(of.values())
    named = f'label_join({preferred}, "owner", "|", {PARTS})'
    for pattern, name in naming.patterns:
        named = f'label_replace({named}, "owner", "{name}", "owner", `{pattern}`)'
    return f"max by ({DEVICE}, owner) ({named})"


def whose(naming: Naming = WORKLOAD) -> str:
    """Return 1 for each GPU with a workload, by its name, or by how many share it; no two for one.

    The number is put in front of the name, and then stands for it if it is not 1.
    """
    each = _each(naming, select)
    many = f'count_values by ({DEVICE}) ("count", count by ({DEVICE}) ({each}))'
    # The copy keeps apart what will have one name.
    copied = f'label_replace({each}, "each", "$1", "owner", "(.*)")'
    both = f"{copied} * on ({DEVICE}) group_left (count) {many}"
    # Not from `owner` itself: VictoriaMetrics 1.79 overwrites what it is still to read.
    owner = f'label_join({both}, "owner", "|", "count", "each")'
    for pattern, name in ((r"1\|(.*)", "$1"), (r"([0-9]+)\|.*", f"$1 {naming.several}")):
        owner = f'label_replace({owner}, "owner", "{name}", "owner", `{pattern}`)'
    return f"max by ({DEVICE}, owner) ({owner})"


def holder(labels: str) -> str:
    """Return 1 for each GPU that is held, with these labels of its holder; `owner` is one."""
    held = select("gpu_holder_info")
    rest = ", ".join((DEVICE, *(label for label in labels.split(", ") if label != "owner")))
    return (
        f"(max by ({rest}) ({held}) * on ({DEVICE}) group_left (owner) {whose()}"
        f" or on ({DEVICE}) max by ({DEVICE}, {labels}) ({held}))"
    )


def owner(naming: Naming = WORKLOAD) -> str:
    """Return 1 for each GPU that has an owner: its workload, else whose process holds it."""
    process = f"max by ({DEVICE}, owner) ({select('gpu_holder_info')})"
    return f"({whose(naming)} or on ({DEVICE}) {process})"


def of_owner(value: str, naming: Naming = WORKLOAD) -> str:
    """Return a value with the owner of its GPU; nothing for GPUs without one."""
    return f"{value} * on ({DEVICE}) group_left (owner) {owner(naming)}"


def lost_hours_by_owner() -> str:
    """Return the GPU-hours of `lost`, by who held the GPU at the time.

    What is younger than a step counts only for a GPU of which nothing older is known: its seconds
    so far are those of all who held it.
    """
    share, so_far = (f"sum without (limiter) ({each})" for each in (lost(), lost_so_far()))
    return hours(of_owner(share), of_owner(so_far), f"or on ({DEVICE})")


def divided(total: str, weight: str, naming: Naming = WORKLOAD) -> str:
    """Return each GPU's total over the range, divided among its owners by their weights.

    The weight (a rate) is taken at the steps of the range and now. Where it never was above 0, all
    goes to an owner of the range, and where none was named to nobody by name: the parts always add
    up to the total.
    """
    known = " or ".join(
        f"max by ({DEVICE}) ({select(info)})" for info in ("gpu_workload_info", "gpu_holder_info")
    )
    of_all = f"{weight} * on ({DEVICE}) group_left () ({known})"
    parts = f"sum by ({DEVICE}, owner) ({_marked(of_owner(weight, naming))})"
    shares = f"{parts} / on ({DEVICE}) group_left () (sum by ({DEVICE}) ({_marked(of_all)}) > 0)"
    anybody = (
        f"{_each(naming, _in_range)} or on ({DEVICE}) "
        f"max by ({DEVICE}, owner) ({_in_range('gpu_holder_info')})"
    )
    one = f"topk by ({DEVICE}) (1, {anybody})"
    whole = f"sum by ({DEVICE}) ({total})"
    return (
        f"({shares} or on ({DEVICE}) {one} or on ({DEVICE}) 0 * {whole} + 1)"
        f" * on ({DEVICE}) group_left () {whole}"
    )


def _marked(weight: str) -> str:
    """Return a weight over the range and the one of now as series that do not collide."""
    return " or ".join(
        f'label_replace({each}, "by", "{by}", "", "")'
        for by, each in (("range", integral(weight)), ("now", weight))
    )
