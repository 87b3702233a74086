# SPDX-License-Identifier: Apache-2.0
"""The dashboards' names, the variables that they share, and the links between them."""

from __future__ import annotations

import dataclasses

from dashboards.model import Dashboard, Link, Variable
from dashboards.promql import GPUS, NODES

FLEET = "roofline-fleet"
ROOFLINE = "roofline-chart"
ONE_GPU = "roofline-gpu"
TRAINING = "roofline-training"
IDLE = "roofline-idle"

_HERE = "${datasource:queryparam}"

DATASOURCE = Variable("datasource", "Data source", "prometheus", kind="datasource", many=False)
JOB = Variable(
    "job", "Job", "label_values(gpu_info, job)", description="The scrape job of the exporters."
)
INSTANCE = Variable("instance", "Node", 'label_values(gpu_info{job=~"$job"}, instance)')
GPU = Variable("gpu", "GPU", f"label_values(gpu_info{{{NODES}}}, gpu)", numeric=True)
SCOPE = (DATASOURCE, JOB, INSTANCE, GPU)
"""What every dashboard that shows several GPUs begins with."""

ONE = (
    DATASOURCE,
    JOB,
    Variable("instance", "Node", INSTANCE.query, many=False),
    Variable("gpu", "GPU", GPU.query, many=False, numeric=True),
)
"""The same where one GPU is looked at."""

RANK_SCOPE = (
    DATASOURCE,
    JOB,
    INSTANCE,
    Variable(
        "training_job",
        "Training job",
        f"label_values(gpu_training_steps_total{{{NODES}}}, training_job)",
    ),
    Variable(
        "rank",
        "Rank",
        f'label_values(gpu_training_steps_total{{{NODES}, training_job=~"$training_job"}}, rank)',
        numeric=True,
    ),
)

NAMESPACE = Variable(
    "namespace",
    "Namespace",
    f"label_values(gpu_workload_info{{{NODES}}}, workload_namespace)",
    description="Of the pods in the table of workloads and in the row Serving.",
)
MODEL = Variable("model", "GPU model", f"label_values(gpu_info{{{GPUS}}}, name)")


def narrowed(page: Dashboard, name: str) -> Dashboard:
    """Return a page on which exactly one value of a variable is chosen."""
    variables = tuple(
        dataclasses.replace(one, many=False) if one.name == name else one for one in page.variables
    )
    return dataclasses.replace(page, variables=variables)


def gpu_of_series() -> Link:
    """Return a link from a line or bar to its GPU."""
    labels = "__field.labels"
    return Link(
        "Open GPU ${__field.labels.gpu} of ${__field.labels.instance}",
        f"/d/{ONE_GPU}?var-instance=${{{labels}.instance}}&var-gpu=${{{labels}.gpu}}"
        f"&${{__url_time_range}}&{_HERE}",
    )


def gpu_of_row() -> Link:
    """Return a link from a row of a table to its GPU."""
    return Link(
        "Open GPU ${__data.fields.gpu} of ${__data.fields.Node}",
        f"/d/{ONE_GPU}?var-instance=${{__data.fields.Node}}&var-gpu=${{__data.fields.gpu}}"
        f"&${{__url_time_range}}&{_HERE}",
    )


def gpu_of_point() -> Link:
    """Return a link from a point of a roofline; its panel has a time range of its own."""
    return Link(
        "Open GPU ${__data.fields.gpu} of ${__data.fields.instance}",
        f"/d/{ONE_GPU}?var-instance=${{__data.fields.instance}}&var-gpu=${{__data.fields.gpu}}"
        f"&{_HERE}",
    )


def job_of_row(column: str) -> Link:
    """Return a link from a row to the training dashboard of its job."""
    return Link(
        f"Open training job ${{__data.fields.{column}}}",
        f"/d/{TRAINING}?var-training_job=${{__data.fields.{column}}}&${{__url_time_range}}&{_HERE}",
    )


CAUSE_OF_ROW = Link(
    "What to change: ${__data.fields.Cause}",
    "https://github.com/roofline-exporter/roofline-exporter/blob/main/docs/causes.md"
    "#${__data.fields.Cause}",
)
"""From a row to the section about its known cause."""
