# SPDX-License-Identifier: Apache-2.0
"""Writes the peaks that a training job needs for its MFU, from the spec file.

``python -m tests.specs.job_peaks roofline_job/peaks.json``, or ``make docs``. GPU models that a
job cannot tell apart, by their name and number of SMs, are left out.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from exporter.specs.book import bare_name
from exporter.specs.load import load_specs
from exporter.specs.precisions import pipe_peak

PIPES = {name: pipe_peak(name) for name in ("fp32", "tf32", "fp16", "bf16", "fp8")}
"""By the name that jobs report: the peak."""


def job_peaks() -> str:
    """Return the FLOP/s by GPU and precision, as JSON with a GPU on each line."""
    found: dict[str, list[str]] = {}
    for model in load_specs().models.values():
        by_pipe = model.peak_flops_per_second
        peaks = {name: int(by_pipe[pipe]) for name, pipe in PIPES.items() if pipe in by_pipe}
        for name in {bare_name(name) for name in model.names if model.sm_count}:
            found.setdefault(f"{name}, {model.sm_count} SMs", []).append(json.dumps(peaks))
    lines = [f"{json.dumps(gpu)}: {each[0]}" for gpu, each in found.items() if len({*each}) == 1]
    return "{\n" + ",\n".join(sorted(lines)) + "\n}\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(job_peaks(), encoding="utf-8")
