# SPDX-License-Identifier: Apache-2.0
"""The fleet where a row for each of thousands of GPUs would be no answer: bands, nodes, top ten."""

from __future__ import annotations

import dataclasses

from dashboards import fleet, navigation, palette
from dashboards.fleet_tables import NOTHING, exporters, inventory, worst
from dashboards.model import Bars, Dashboard, Heat, Lines, Panel, Query, Row, Values, colored
from dashboards.promql import NODES, select, worded
from dashboards.records import POINTS, of_nodes, of_owners, reads, recorded, summed, whose_work
from dashboards.tables import Column, table
from dashboards.workload_tables import of_the_fleet

NODES_SHOWN, WORKLOADS_SHOWN, OWNERS_SHOWN = 20, 50, 20
LOST = of_nodes("node:gpu_lost_seconds:increase5m")
OF_SCALE = {
    "busy": f"sum({of_nodes('node:gpu_working:count')})",
    "starved": f"sum({of_nodes('node:gpu_starved:count')})",
    "GPU-hours lost": f"sum({summed(LOST)}) / 3600",
}


BANDS = Panel(
    "GPUs by saturation",
    "How many of the chosen GPUs lie in each fifth of saturation, named by its upper edge: the "
    "stronger the colour, the more. A strong row at the top is a fleet that is worth its price; at "
    "the bottom, GPUs that run and do little. A row that fades at once: look at what changed then. "
    "Means over five minutes of the GPUs whose saturation is measured.",
    Heat(),
    Values("none"),
    (Query(f"sum by (band) ({of_nodes('node:gpu_saturation:count')})", "{{band}}"),),
    height=12,
    max_points=POINTS,
)
_LIMITED = of_nodes("node:gpu_limited:sum_rate5m")
SHARES = reads(
    fleet.SHARES, f"sum by (limiter) ({_LIMITED}) / on () group_left () (sum({_LIMITED}) > 0)"
)
_PARTS = of_nodes("node:gpu_time:sum_rate5m")
PARTS = reads(
    fleet.PARTS,
    worded(
        f"(sum by (part) ({_PARTS}) and on () sum({_PARTS}) > 0)",
        "part",
        {"saturated": palette.AT_ITS_LIMIT},
    )
    + f" / on () group_left () (sum({_PARTS}) > 0)",
)
TWO_VIEWS = Panel(
    "Utilization beside saturation",
    "Utilization says that some kernel ran, saturation how close the busiest unit was to its "
    "limit: between the lines is work that GPUs look busy with and do not do. Each over the time "
    "in which it was read, of the GPUs of which it is, over five minutes.",
    Lines(),
    Values("percentunit", minimum=0, maximum=1),
    (
        Query(
            f"sum({of_nodes('node:gpu_busy:sum_rate5m')})"
            f" / (sum({of_nodes('node:gpu_observed:sum_rate5m')}) > 0)",
            "utilization",
        ),
        Query(
            f"sum({of_nodes('node:gpu_saturation:sum_rate5m')}) / (sum({_PARTS}) > 0)",
            "saturation",
        ),
    ),
    overrides=colored({"utilization": palette.UTILIZATION, "saturation": palette.SATURATION}),
    max_points=POINTS,
)
BY_LIMITER = reads(
    fleet.BY_LIMITER, f"sort_desc(sum by (limiter) ({summed(LOST)}) / 3600 > {NOTHING})"
)
BY_OWNER = Panel(
    "GPU-hours lost, by owner",
    f"The {OWNERS_SHOWN} owners who lost most GPU-hours in the range shown, on all nodes of the "
    "scrape jobs: the pod, Slurm job or container on the GPU where one is known, else the user. An "
    "empty name is a process that the exporter cannot see.",
    Bars(),
    Values("suffix:h", decimals=2, minimum=0, color=palette.ORANGE, no_value="nothing lost"),
    (
        Query(
            f"sort_desc(topk({OWNERS_SHOWN}, sum by (owner)"
            f" ({summed(of_owners('owner:gpu_lost_seconds:sum5m'))}) / 3600 > {NOTHING}))",
            "{{owner}}",
            instant=True,
        ),
    ),
)
POWER = reads(
    fleet.POWER,
    f"sum({of_nodes('node:gpu_power_watts:sum_rate5m')})",
    f"sum({of_nodes('node:gpu_held_idle_power_watts:sum_rate5m')})",
)


def _nodes() -> Panel:
    lost = f"sum by (instance) ({summed(LOST)}) / 3600"
    top = f"topk({NODES_SHOWN}, {lost} > {NOTHING})"

    def of_top(expression: str) -> str:
        return f"{expression} and on (instance) {top}"

    limited = f"sum by (instance) ({_LIMITED})"
    useful = of_nodes("node:gpu_limited:sum_rate5m", limiter="compute|memory")
    gpus = f"count by (instance) ({select('gpu_up', NODES)})"
    power = f"sum by (instance) ({of_nodes('node:gpu_power_watts:sum_rate5m')})"
    working = f"sum by (instance) ({of_nodes('node:gpu_working:count')})"
    chart, queries, steps, overrides = table(
        (
            Column("Node", label="instance"),
            Column("GPU-hours lost", expression=top, unit="none", decimals=2, width=145),
            Column("GPUs", expression=of_top(gpus), unit="none", width=80),
            Column("Busy", expression=of_top(working), unit="none", width=80),
            Column(
                "At their limit",
                expression=of_top(f"sum by (instance) ({useful}) / ({limited} > 0)"),
                unit="percentunit",
                bar=palette.GREEN,
                decimals=0,
            ),
            Column("Power", expression=of_top(power), unit="watt", decimals=0, width=90),
        ),
        sort_by="GPU-hours lost",
    )
    return Panel(
        f"The worst {NODES_SHOWN} nodes",
        "The nodes whose GPUs lost most GPU-hours in the range shown while somebody held them, "
        "with their GPUs now: how many there are, how many are not idle most of the time, and the "
        "share of time in which their own compute or memory was the limit. One node far above the "
        "others: look for a fault of the node, or for the one job that is only there.",
        chart,
        Values("none", no_value="nothing lost"),
        queries,
        width=24,
        height=10,
        overrides=overrides,
        transformations=steps,
    )


OF_JOB = tuple(
    dataclasses.replace(panel, title=f"{panel.title}: $job") for panel in (BANDS, SHARES)
)
PAGE = Dashboard(
    navigation.FLEET,
    "GPU fleet",
    "How many GPUs do useful work, what holds the others back, and which to look at first.",
    (navigation.DATASOURCE, navigation.JOB, navigation.INSTANCE, navigation.NAMESPACE),
    (
        recorded(fleet.COUNTS, OF_SCALE),
        BANDS,
        SHARES,
        _nodes(),
        recorded(
            dataclasses.replace(
                worst(
                    f"{summed(of_nodes('gpu:gpu_lost_seconds:increase5m'))} / 3600",
                    whose_work("owner, command"),
                ),
                max_points=None,
            )
        ),
    ),
    (
        Row("Busy or useful", (TWO_VIEWS, PARTS)),
        Row("What is lost", (BY_LIMITER, BY_OWNER)),
        Row("Whose work", (recorded(of_the_fleet(WORKLOADS_SHOWN)),)),
        Row("Power", (POWER,)),
        Row("Exporters", (exporters(NODES_SHOWN), recorded(inventory()))),
        Row("Job: $job", OF_JOB, closed=True, repeat="job"),
    ),
    time_from="now-3h",
    refresh="1m",
)
