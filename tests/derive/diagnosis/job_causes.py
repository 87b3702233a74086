# SPDX-License-Identifier: Apache-2.0
"""Writes the causes that a training job can judge itself, from the table.

``python -m tests.derive.diagnosis.job_causes roofline_job/causes.json``, or ``make docs``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from exporter.model.causes import JOB_CAUSES, THRESHOLDS


def job_causes() -> str:
    """Return the rows as JSON with a cause on each line; conditions have numbers for names."""
    rows = []
    for cause in JOB_CAUSES:
        words = [condition.split(" ") for condition in cause.when]
        when = [" ".join(str(THRESHOLDS.get(word, word)) for word in each) for each in words]
        texts = {"finding": cause.finding, "advice": cause.advice}
        rows.append({"slug": cause.slug, "when": when, **texts})
    return "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(job_causes(), encoding="utf-8")
