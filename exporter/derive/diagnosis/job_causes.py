# SPDX-License-Identifier: Apache-2.0
"""Writes the causes that a training job can judge itself, from the table.

``python -m exporter.derive.diagnosis.job_causes roofline_job/causes.json``, or ``make docs``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from exporter.model.causes import JOB_CAUSES, THRESHOLDS


def job_causes() -> str:
    """Return the rows as JSON with a cause on each line; conditions have numbers for names."""
    rows = [
        {
            "slug": cause.slug,
            "when": [_plain(condition) for condition in cause.when],
            "finding": cause.finding,
            "advice": cause.advice,
        }
        for cause in JOB_CAUSES
    ]
    return "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n"


def _plain(condition: str) -> str:
    evidence, relation, limit = condition.split(" ")
    return f"{evidence} {relation} {THRESHOLDS.get(limit, limit)}"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(job_causes(), encoding="utf-8")
