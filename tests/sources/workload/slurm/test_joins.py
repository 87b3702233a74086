# SPDX-License-Identifier: Apache-2.0
"""The joins of docs/slurm.md, by promtool: a job of two steps, one without a process, two jobs."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import require_tool

PAGE = Path(__file__).parents[4] / "docs" / "slurm.md"
QUERIES = re.findall(r"```promql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def _workload(gpu: int, job: int, user: str, step: str = "") -> str:
    return (
        f'gpu_workload_info{{uuid="{gpu}",gpu="{gpu}",scheduler="slurm",workload_job="{job}",'
        f'workload_user="{user}",workload_step="{step}"}}'
    )


STEPS = {
    _workload(0, 7, "ada", "0"): 1.0,
    _workload(0, 7, "ada", "1"): 1.0,
    _workload(1, 8, "bob"): 1.0,
}
SHARED = {_workload(2, 9, "bob", "0"): 1.0, _workload(2, 10, "eve", "0"): 1.0}
VALUES = {
    f'{name}{{uuid="{gpu}",gpu="{gpu}"}}': value
    for gpu, values in enumerate(((0.5, 1, 1), (0.0, 1, 0), (0.25, 1, 1), (0.0, 0, 0)))
    for name, value in zip(
        ("gpu_saturation_ratio", "gpu_allocated", "gpu_held"), values, strict=True
    )
}
CASES = (
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
)


@pytest.mark.parametrize(
    ("query", "case"), list(zip(QUERIES, CASES, strict=True)), ids=("job", "unopened", "shared")
)
def test_joins_give_what_they_say(
    query: str, case: tuple[dict[str, float], dict[str, float]], tmp_path: Path
) -> None:
    workloads, expected = case
    promtool = require_tool("promtool")
    test = {
        "input_series": [
            {"series": name, "values": str(value)}
            for name, value in {**VALUES, **workloads}.items()
        ],
        "promql_expr_test": [
            {
                "expr": query,
                "eval_time": "0m",
                "exp_samples": [
                    {"labels": labels, "value": value} for labels, value in expected.items()
                ],
            }
        ],
    }
    file = tmp_path / "joins.yml"
    file.write_text(json.dumps({"tests": [test]}))

    done = subprocess.run(
        [promtool, "test", "rules", str(file)], capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stdout + done.stderr
