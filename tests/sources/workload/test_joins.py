# SPDX-License-Identifier: Apache-2.0
"""The joins of docs/kubernetes.md and docs/slurm.md, by promtool."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import require_tool

DOCS = Path(__file__).parents[3] / "docs"


def _queries(page: str) -> list[str]:
    return re.findall(r"```promql\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)


def _workload(uuid: str, **labels: str) -> str:
    return f"gpu_workload_info{_labels({'uuid': uuid, **labels})}"


def _pod(gpu: str, pod: str, **more: str) -> str:
    names = {"workload_namespace": "team-a", "workload_pod": pod}
    return _workload(gpu, scheduler="kubernetes", **names, **more)


def _job(gpu: str, job: str, user: str, step: str = "") -> str:
    names = {"workload_job": job, "workload_user": user, "workload_step": step}
    return _workload(gpu, gpu=gpu, scheduler="slurm", **names)


def _label(pod: str, label: str, value: str) -> str:
    labels = {"workload_namespace": "team-a", "workload_pod": pod, "label": label, "value": value}
    return f"gpu_workload_label_info{_labels(labels)}"


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items()) + "}"


POD_SERIES = {
    _pod("GPU-0", "train-0"): "1x1500",
    _pod("GPU-1", "a"): "1x1500",
    _pod("GPU-1", "b"): "1x1500",
    _pod("GPU-2", "mig", gpu_instance="7"): "1x1500",
    'gpu_memory_used_bytes{uuid="GPU-0"}': "10x1500",
    'gpu_memory_used_bytes{uuid="GPU-1"}': "20x1500",
    'gpu_memory_used_bytes{uuid="GPU-2",gpu_instance="7"}': "30x1500",
    'gpu_memory_used_bytes{uuid="GPU-3"}': "40x1500",
    'gpu_allocated_unopened_seconds_total{uuid="GPU-0"}': "0+30x1500",
    'gpu_allocated_unopened_seconds_total{uuid="GPU-1"}': "0x1500",
    'kube_pod_labels{namespace="team-a",pod="train-0",label_team="red"}': "1x1500",
    'kube_pod_labels{namespace="team-a",pod="a",label_team="red"}': "1x1500",
    'kube_pod_labels{namespace="team-a",pod="mig",label_team="blue"}': "1x1500",
    _label("train-0", "team", "red"): "1x1500",
    _label("train-0", "app", "x"): "1x1500",
}
POD_RESULTS: list[dict[str, float]] = [
    {
        '{workload_namespace="team-a", workload_pod="train-0"}': 10,
        '{workload_namespace="team-a", workload_pod="a"}': 20,
        '{workload_namespace="team-a", workload_pod="b"}': 20,
        '{workload_namespace="team-a", workload_pod="mig"}': 30,
    },
    {'{label_team="red"}': 2, '{label_team="blue"}': 1},
    {'{workload_namespace="team-a"}': 12},
    {'{value="red"}': 1},
]


STEPS = {
    _job("0", "7", "ada", "0"): "1",
    _job("0", "7", "ada", "1"): "1",
    _job("1", "8", "bob"): "1",
}
SHARED = {_job("2", "9", "bob", "0"): "1", _job("2", "10", "eve", "0"): "1"}
"""A job of two steps and one without a process; two jobs on one GPU."""
GPUS = {
    f'{name}{{uuid="{gpu}",gpu="{gpu}"}}': str(value)
    for gpu, values in enumerate(((0.5, 1, 1), (0.0, 1, 0), (0.25, 1, 1), (0.0, 0, 0)))
    for name, value in zip(
        ("gpu_saturation_ratio", "gpu_allocated", "gpu_held"), values, strict=True
    )
}
JOB_RESULTS: list[tuple[dict[str, str], dict[str, float]]] = [
    (
        STEPS,
        {
            '{uuid="0", gpu="0", workload_job="7", workload_user="ada"}': 0.5,
            '{uuid="1", gpu="1", workload_job="8", workload_user="bob"}': 0.0,
        },
    ),
    (STEPS, {'{workload_user="bob"}': 1.0}),
    (
        {**STEPS, **SHARED},
        {
            '{uuid="0", workload_job="7", workload_user="ada"}': 0.5,
            '{uuid="1", workload_job="8", workload_user="bob"}': 0.0,
            '{uuid="2", workload_job="9", workload_user="bob"}': 0.25,
            '{uuid="2", workload_job="10", workload_user="eve"}': 0.25,
        },
    ),
]
CASES = [
    *(
        (query, POD_SERIES, expected, "1441m")
        for query, expected in zip(_queries("kubernetes.md"), POD_RESULTS, strict=True)
    ),
    *(
        (query, {**GPUS, **workloads}, expected, "0m")
        for query, (workloads, expected) in zip(_queries("slurm.md"), JOB_RESULTS, strict=True)
    ),
]


@pytest.mark.parametrize(
    ("query", "series", "expected", "at"),
    CASES,
    ids=("pod", "ksm", "hours", "label", "job", "unopened", "shared"),
)
def test_joins_give_what_they_say(
    query: str, series: Mapping[str, str], expected: Mapping[str, float], at: str, tmp_path: Path
) -> None:
    promtool = require_tool("promtool")
    results = [{"labels": labels, "value": value} for labels, value in expected.items()]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": query, "eval_time": at, "exp_samples": results}],
    }
    file = tmp_path / "joins.yml"
    file.write_text(json.dumps({"tests": [test]}))

    done = subprocess.run(
        [promtool, "test", "rules", str(file)], capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stdout + done.stderr
