# SPDX-License-Identifier: Apache-2.0
"""The joins of docs/kubernetes.md, by promtool, on a GPU that a pod has and one that two share."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import require_tool

PAGE = Path(__file__).parents[4] / "docs" / "kubernetes.md"
QUERIES = re.findall(r"```promql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def _workload(gpu: str, pod: str, **more: str) -> str:
    labels = {
        "uuid": gpu,
        "scheduler": "kubernetes",
        "workload_namespace": "team-a",
        "workload_pod": pod,
        **more,
    }
    return f"gpu_workload_info{_labels(labels)}"


def _label(pod: str, label: str, value: str) -> str:
    labels = {"workload_namespace": "team-a", "workload_pod": pod, "label": label, "value": value}
    return f"gpu_workload_label_info{_labels(labels)}"


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items()) + "}"


SERIES = {
    _workload("GPU-0", "train-0"): "1x1500",
    _workload("GPU-1", "a"): "1x1500",
    _workload("GPU-1", "b"): "1x1500",
    _workload("GPU-2", "mig", gpu_instance="7"): "1x1500",
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
EXPECTED: list[dict[str, float]] = [
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


@pytest.mark.parametrize(
    ("query", "expected"),
    list(zip(QUERIES, EXPECTED, strict=True)),
    ids=("pod", "ksm", "hours", "label"),
)
def test_joins_give_what_they_say(query: str, expected: dict[str, float], tmp_path: Path) -> None:
    promtool = require_tool("promtool")
    case = {
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": name, "values": values} for name, values in SERIES.items()
                ],
                "promql_expr_test": [
                    {
                        "expr": query,
                        "eval_time": "1441m",
                        "exp_samples": [
                            {"labels": labels, "value": value} for labels, value in expected.items()
                        ],
                    }
                ],
            }
        ]
    }
    file = tmp_path / "joins.yml"
    file.write_text(json.dumps(case))

    done = subprocess.run(
        [promtool, "test", "rules", str(file)], capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stdout + done.stderr
