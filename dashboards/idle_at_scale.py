# SPDX-License-Identifier: Apache-2.0
"""Idle GPUs of a large fleet: the same questions, of those who cost most."""

from __future__ import annotations

from dashboards import idle, navigation
from dashboards.idle import NOTHING, PRICE
from dashboards.model import Dashboard, Lines, Panel, Query, Row, Values
from dashboards.promql import DEVICE, NODES, select, unopened
from dashboards.records import (
    POINTS,
    STEP_SECONDS,
    of_nodes,
    of_owners,
    reads,
    recorded,
    summed,
    whose_work,
)
from dashboards.tables import WHICH_GPU, Column, table

SHOWN = 50
LINES, NODES_SHOWN = 12, 20
_HELD = of_nodes("node:gpu_held_idle_seconds:increase5m")
_IDLE = of_nodes("node:gpu_idle_seconds:increase5m")
_UNOPENED = of_nodes("node:gpu_allocated_unopened_seconds:increase5m")
_JUDGED = of_nodes("node:gpu_judged_seconds:increase5m")
_ENERGY = of_nodes("node:gpu_held_idle_energy_joules:increase5m")
_HELD_HOURS = f"sum({summed(_HELD)}) / 3600"
_UNOPENED_HOURS = f"sum({summed(_UNOPENED)}) / 3600"
OF_HELD = {
    "GPU-hours": _HELD_HOURS,
    "cost": f"{_HELD_HOURS} * $price",
    "energy": f"sum({summed(_ENERGY)}) / {idle.JOULES_PER_KWH}",
    "of all GPU time": f"sum({summed(_HELD)}) / (sum({summed(_JUDGED)}) > 0)",
}
OF_UNOPENED = {"GPU-hours": _UNOPENED_HOURS, "cost": f"{_UNOPENED_HOURS} * $price"}


def _now() -> Panel:
    idle_for = f"topk({SHOWN}, {idle.IDLE_FOR})"
    top = f"max by (job, instance, gpu, gpu_instance, uuid) ({idle_for})"
    who = whose_work("owner, command, class")
    chart, queries, steps, overrides = table(
        (
            *WHICH_GPU,
            Column("Owner", label="owner"),
            Column("Command", label="command"),
            Column("Class", label="class", width=85),
            Column(
                "Idle for",
                width=105,
                expression=f"{top} * on ({DEVICE}) group_left (owner, command, class) {who}",
                unit="dtdurations",
                decimals=0,
            ),
        ),
        sort_by="Idle for",
    )
    return recorded(
        Panel(
            "Held idle now",
            f"The {SHOWN} GPUs that somebody has held longest without any work, of those that have "
            "done nothing for half a minute or longer. Ask the owner to end the process: a "
            "notebook's kernel runs on until it is shut down, even if the browser is closed.",
            chart,
            Values("none", no_value="nobody holds an idle GPU"),
            queries,
            width=14,
            height=9,
            overrides=overrides,
            transformations=steps,
        )
    )


def _by_owner(hours: str) -> str:
    return f"sum by (job, instance, uuid, gpu_instance, owner) ({of_nodes(hours)})"


def _with_index(value: str) -> str:
    """Return series of GPUs by UUID with the index that each has now."""
    index = f"max by (job, instance, uuid, gpu) ({select('gpu_up', NODES)})"
    return f"{value} + on (job, instance, uuid) group_left (gpu) 0 * {index}"


def _unopened() -> Panel:
    given = _by_owner("workload:gpu_allocated_unopened_seconds:hours1d")
    now = f"{given} * 3600 and on ({DEVICE}) ({unopened()} == 1)"
    chart, queries, steps, overrides = table(
        (
            *WHICH_GPU,
            Column("Given to", label="owner"),
            Column(
                "In 24 hours",
                expression=_with_index(f"topk({SHOWN}, {now})"),
                unit="dtdurations",
                decimals=0,
                width=130,
            ),
        ),
        sort_by="In 24 hours",
    )
    return recorded(
        Panel(
            "Never opened now",
            f"The {SHOWN} GPUs and MIG instances that a scheduler has given away, that no process "
            "holds, and of which that was so longest in the last 24 hours. The job still starts, "
            "waits, or does not need a GPU: ask the owner.",
            chart,
            Values("none", no_value="nothing is given away and not opened"),
            queries,
            width=10,
            height=9,
            overrides=overrides,
            transformations=steps,
        )
    )


STATES = (
    "GPU-hours in use, held idle, and given away but never opened, in the range shown, with what "
    f"the last two cost, of the {SHOWN} for whom these are most. Of all nodes of the scrape jobs, "
    "in whole five minutes."
)


def _hours(title: str, header: str, description: str, by: str) -> Panel:
    def of(record: str) -> str:
        seconds = summed(of_owners(f"owner:{record}:sum5m"))
        return f"sum by ({by}) ({_by_team(seconds) if by == 'team' else seconds}) / 3600"

    held = of("gpu_held_idle_seconds")
    never = of("gpu_allocated_unopened_seconds")
    had = of("gpu_allocated_seconds")
    lost = f"({held} + {never} or {held} or {never})"
    top = f"topk({SHOWN}, {lost} > {NOTHING})"
    used = f"({had} - ({lost} or 0 * {had}))"
    chart, queries, steps, overrides = table(
        (
            Column(header, label=by),
            *(
                Column(
                    state,
                    expression=f"{each} and on ({by}) {top}",
                    unit="suffix:h",
                    decimals=2,
                    width=width,
                )
                for state, width, each in (
                    ("In use", 85, f"clamp_min({used}, 0)"),
                    ("Held idle", 90, held),
                    ("Never opened", 120, never),
                )
            ),
            Column("Cost", expression=f"{top} * $price", unit="none", decimals=2, width=85),
        ),
        sort_by="Cost",
    )
    return Panel(
        title,
        description,
        chart,
        Values("none", no_value="nobody lost a GPU-hour"),
        queries,
        width=12,
        height=10,
        overrides=overrides,
        transformations=steps,
    )


def _by_team(owners: str) -> str:
    """Return series of owners with their namespace or user as `team`; else it is the owner."""
    named = f'label_replace({owners}, "team", "$1", "owner", "(.*)")'
    for pattern in ("(.+), job .+", r"(\\S+)/\\S+"):
        named = f'label_replace({named}, "team", "$1", "owner", "{pattern}")'
    return named


OWNERS = _hours(
    "GPU-hours by owner",
    "Owner",
    f"{STATES} An owner is a pod, a Slurm job or a container where one is known, else the user of "
    "the process; several on one GPU are a number of workloads. Owner -: a process that the "
    "exporter cannot see.",
    "owner",
)
TEAMS = _hours(
    "GPU-hours by namespace or user",
    "Namespace or user",
    f"{STATES} By the namespace of a pod, the user of a Slurm job, else as by owner.",
    "team",
)
_BY_OWNER = of_owners("owner:gpu_held_idle_seconds:sum5m")
OVER_TIME = Panel(
    "GPUs held idle, by owner",
    f"How many GPUs each owner held idle in each five minutes, of the {LINES} who held most in the "
    "range shown, on all nodes of the scrape jobs. A block that begins every evening and ends "
    "every morning is a notebook that stays open.",
    Lines(fill=60, width=0, stacked="normal"),
    Values("none", minimum=0, no_value="none up to the last step"),
    (
        Query(
            f"sum by (owner) ({_BY_OWNER}) / {STEP_SECONDS} and on (owner) topk({LINES}, "
            f"sum by (owner) (sum_over_time({_BY_OWNER}[$__range:5m] @ end())))",
            "{{owner}}",
        ),
    ),
    max_points=POINTS,
)
_FREE = f"clamp_min(sum({_IDLE}) - sum({_HELD}), 0)"
_NOT_OPENED = f"(sum({_UNOPENED}) < {_FREE} or {_FREE} and on () sum({_UNOPENED}))"
SPLIT = reads(
    idle.SPLIT,
    *(
        f"({gpu_seconds}) / {STEP_SECONDS}"
        for gpu_seconds in (
            f"sum({_JUDGED}) - sum({_IDLE})",
            f"sum({_HELD})",
            _NOT_OPENED,
            f"{_FREE} - {_NOT_OPENED} or {_FREE}",
        )
    ),
)


def _nodes() -> Panel:
    held = f"sum by (instance) ({summed(_HELD)}) / 3600"
    never = f"sum by (instance) ({summed(_UNOPENED)}) / 3600"
    energy = f"sum by (instance) ({summed(_ENERGY)}) / {idle.JOULES_PER_KWH}"
    top = f"topk({NODES_SHOWN}, ({held} + {never} or {held} or {never}) > {NOTHING})"

    def of_top(expression: str) -> str:
        return f"{expression} and on (instance) {top}"

    chart, queries, steps, overrides = table(
        (
            Column("Node", label="instance"),
            Column("Held idle", expression=of_top(held), unit="suffix:h", decimals=2, width=100),
            Column(
                "Never opened", expression=of_top(never), unit="suffix:h", decimals=2, width=120
            ),
            Column("Cost", expression=f"{top} * $price", unit="none", decimals=2, width=90),
            Column("Energy", expression=of_top(energy), unit="kwatth", decimals=2, width=110),
        ),
        sort_by="Cost",
    )
    return Panel(
        "By node",
        f"GPU-hours held idle and never opened, what they cost, and the energy drawn while held "
        f"idle, of the {NODES_SHOWN} nodes with most, in the range shown. One node far above the "
        "others: look for the one user or service that is only there.",
        chart,
        Values("none", no_value="no GPU was held idle"),
        queries,
        overrides=overrides,
        transformations=steps,
    )


def _gpus() -> Panel:
    each = _by_owner("holder:gpu_held_idle_seconds:hours1d")
    chart, queries, steps, overrides = table(
        (
            *WHICH_GPU,
            Column("Owner", label="owner"),
            Column(
                "Held idle",
                expression=_with_index(f"topk({NODES_SHOWN}, {each} > 0)"),
                unit="suffix:h",
                decimals=2,
                width=100,
            ),
        ),
        sort_by="Held idle",
    )
    return Panel(
        "By GPU, in the last 24 hours",
        f"The {NODES_SHOWN} GPUs that one owner held idle longest in the last 24 hours, whatever "
        "range is shown. Click the number of a GPU for its page.",
        chart,
        Values("none", no_value="no GPU was held idle"),
        queries,
        overrides=overrides,
        transformations=steps,
    )


PAGE = Dashboard(
    navigation.IDLE,
    "GPU idle and cost",
    "GPUs that somebody holds and does not use: who, where, for how long, at what cost.",
    (navigation.DATASOURCE, navigation.JOB, navigation.INSTANCE, PRICE),
    (
        recorded(idle.HEAD, OF_HELD),
        recorded(idle.UNOPENED_HEAD, OF_UNOPENED),
        _now(),
        _unopened(),
        OWNERS,
        TEAMS,
        OVER_TIME,
        SPLIT,
    ),
    (Row("Where", (_nodes(), _gpus())),),
    time_from="now-24h",
    refresh="5m",
)
