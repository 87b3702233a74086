# SPDX-License-Identifier: Apache-2.0
"""The recorded series that dashboards at scale read: deploy/prometheus/rules/scale.yml.

A Prometheus of a thousand nodes answers these in a fraction of what the exporter's own series take.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from dashboards.model import Dashboard, Lines, Panel
from dashboards.promql import (
    DEVICE,
    GPUS,
    NODES,
    NUMBERS,
    RANKS,
    limited,
    limiter_number,
    model_flops_utilization,
    saturation,
    select,
    utilization,
)

JOBS = 'job=~"$job"'
"""Selects what is recorded of owners, over all nodes."""
POINTS = 120
"""Steps of a chart at the most: each reads what is recorded of all nodes."""
STEP = "5m"
"""What ranges are added up from."""
STEP_SECONDS = 300
LIMITER_CODE = "gpu:gpu_limiter:code_rate5m"
_OWNER = (
    "max by (instance, uuid, gpu_instance, owner) (gpu:gpu_workload_owner:info"
    '{instance=~"$instance"})'
)


def of_nodes(record: str, **labels: str) -> str:
    """Return a selector of what is recorded of GPUs or nodes."""
    return select(record, NODES, **labels)


def of_owners(record: str) -> str:
    """Return a selector of what is recorded of owners."""
    return select(record, JOBS)


def summed(selector: str) -> str:
    """Return what was recorded for each five minutes, added up over the range shown."""
    return f"sum_over_time({selector}[$__range:{STEP}])"


def whose_work(labels: str) -> str:
    """Return 1 for each GPU that has an owner, with these labels of its holder."""
    held = select("gpu_holder_info", NODES)
    rest = ", ".join(label for label in labels.split(", ") if label != "owner")
    by = f"{DEVICE}, {rest}"
    return (
        f"(max by ({by}) ({held}) * on (instance, uuid, gpu_instance) group_left (owner) {_OWNER}"
        f" or on ({DEVICE}) max by ({DEVICE}, {labels}) ({held}))"
    )


RECORDS: Mapping[str, str] = {
    utilization(): of_nodes("gpu:gpu_busy:ratio_rate5m"),
    saturation(): of_nodes("gpu:gpu_saturation:ratio_rate5m"),
    limiter_number(): of_nodes(LIMITER_CODE),
    f"({limited('clock')}) > bool 0.5": (
        f"{of_nodes(LIMITER_CODE)} == bool {NUMBERS.index('clock')}"
    ),
    model_flops_utilization(): select("rank:gpu_model_flops_utilization:ratio_rate5m", RANKS),
}
"""By the expression of another page what is recorded of it, over the last five minutes."""


def recorded(panel: Panel, own: Mapping[str, str] = MappingProxyType({})) -> Panel:
    """Return a panel that reads records, of the chosen nodes whatever their GPUs.

    `own` has the expressions of queries, by legend, of which there is no record with the same one.
    """
    queries = tuple(
        dataclasses.replace(query, expression=_recorded(own.get(query.legend, query.expression)))
        for query in panel.queries
    )
    return dataclasses.replace(panel, queries=queries)


def recorded_page(page: Dashboard) -> Dashboard:
    """Return a page of which every panel reads records where there are some, in fewer steps."""

    def read(panel: Panel) -> Panel:
        most = POINTS if isinstance(panel.chart, Lines) else panel.max_points
        return dataclasses.replace(recorded(panel), max_points=most)

    rows = tuple(dataclasses.replace(row, panels=tuple(map(read, row.panels))) for row in page.rows)
    return dataclasses.replace(page, top=tuple(map(read, page.top)), rows=rows)


def reads(panel: Panel, *expressions: str) -> Panel:
    """Return a panel of another page with these expressions in the place of its own."""
    queries = tuple(
        dataclasses.replace(query, expression=expression)
        for query, expression in zip(panel.queries, expressions, strict=True)
    )
    return dataclasses.replace(panel, queries=queries, max_points=POINTS)


def _recorded(expression: str) -> str:
    for raw, record in RECORDS.items():
        expression = expression.replace(raw, record)
    return expression.replace(GPUS, NODES)
