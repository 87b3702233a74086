# SPDX-License-Identifier: Apache-2.0
"""The tables of the fleet: the worst GPUs, the exporters, the inventory."""

from __future__ import annotations

from dashboards import palette
from dashboards.model import (
    Panel,
    Values,
)
from dashboards.owners import holder
from dashboards.promql import (
    DEVICE,
    LABELS,
    NODES,
    limiter_number,
    lost_hours,
    rate,
    saturation,
    select,
    utilization,
)
from dashboards.tables import WHICH_GPU, Column, table

WORST = 10
NOTHING = 0.001
"""GPU-hours that are not worth a row."""


def worst(
    hours: str = f"sum without (limiter) ({lost_hours()})", who: str = holder("owner, command")
) -> Panel:
    """Return the table of the GPUs to look at first, by the GPU-hours that each lost."""
    top = f"topk({WORST}, max by ({LABELS}) ({hours}) > {NOTHING})"

    def of_worst(expression: str) -> str:
        return f"max by ({LABELS}) ({expression}) and on ({DEVICE}) {top}"

    texts = {str(i): (name, color) for i, (name, color) in enumerate(palette.NUMBERED.items())}
    chart, queries, steps, overrides = table(
        (
            *WHICH_GPU,
            Column("Owner", label="owner", width=170),
            Column("Command", label="command", width=150),
            Column(
                "GPU-hours lost",
                expression=f"{top} * on ({DEVICE}) group_left (owner, command) {who} "
                f"or on ({DEVICE}) {top}",
                unit="none",
                decimals=2,
                width=145,
            ),
            Column("Limited by", expression=of_worst(limiter_number()), texts=texts, width=130),
            Column(
                "Utilization",
                expression=of_worst(utilization()),
                unit="percentunit",
                bar=palette.UTILIZATION,
                decimals=0,
            ),
            Column(
                "Saturation",
                expression=of_worst(saturation()),
                unit="percentunit",
                bar=palette.SATURATION,
                decimals=0,
            ),
            Column(
                "Power",
                expression=of_worst(rate("gpu_energy_joules_total")),
                unit="watt",
                decimals=0,
                width=90,
            ),
        ),
        sort_by="GPU-hours lost",
    )
    return Panel(
        "The worst ten",
        "The GPUs that lost most GPU-hours in the range shown while somebody held them, with who "
        "holds them now, if anybody does. High utilization beside low saturation: the GPU looks "
        "busy and is not. Click the number of a GPU for its page.",
        chart,
        Values("none", no_value="nothing lost"),
        queries,
        width=24,
        height=10,
        overrides=overrides,
        transformations=steps,
        max_points=120,
    )


def exporters(rows: int | None = None) -> Panel:
    """Return the table of the exporters, with the age of what they show.

    With `rows`, only of so many: the oldest.
    """
    age = f"time() - {select('roofline_exporter_snapshot_timestamp_seconds', NODES)}"
    age = f"max by (job, instance) ({age})"
    oldest = "each exporter" if rows is None else f"the {rows} that are furthest behind"
    shown = age if rows is None else f"topk({rows}, {age})"
    build = f"max by (job, instance, version) ({select('roofline_exporter_build_info', NODES)})"
    chart, queries, steps, overrides = table(
        (
            Column("Node", label="instance"),
            Column("Version", label="version"),
            Column(
                "Snapshot age",
                expression=f"{shown} * on (job, instance) group_left (version) {build}",
                unit="s",
                decimals=0,
                steps=((None, palette.GREEN), (30, palette.AMBER), (60, palette.RED)),
            ),
        ),
        sort_by="Snapshot age",
    )
    return Panel(
        "Exporters",
        f"How old the newest snapshot of {oldest} is, as it was scraped. Above one minute: it "
        "hangs, and what it shows is old. Missing: it is down, and its GPUs raise no alerts.",
        chart,
        Values("none"),
        queries,
        overrides=overrides,
        transformations=steps,
    )


def inventory() -> Panel:
    """Return the table of GPU models and drivers."""
    chart, queries, steps, overrides = table(
        (
            Column("GPU model", label="name"),
            Column("Driver", label="driver_version", width=110),
            Column("Readings from", label="source", width=120),
            Column(
                "GPUs",
                expression=f"count by (name, driver_version, source) ({select('gpu_info')})",
                unit="none",
                width=80,
            ),
        ),
        sort_by="GPUs",
    )
    return Panel(
        "Inventory",
        "GPU models and driver versions. Several drivers for one GPU model: expect different "
        "counters and speeds. Readings from simulate or replay are not of real GPUs.",
        chart,
        Values("none"),
        queries,
        overrides=overrides,
        transformations=steps,
    )
