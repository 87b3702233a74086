# SPDX-License-Identifier: Apache-2.0
"""Writes the peaks that a training job needs for its MFU, from the spec file.

``python -m exporter.specs.job_peaks roofline_job/peaks.json``, or ``make docs``. GPU models that a
job cannot tell apart, by their name and number of SMs, are left out.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from exporter.specs.book import bare_name
from exporter.specs.load import load_specs
from exporter.specs.precisions import pipe_peak

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8")
"""As jobs report them."""


def job_peaks() -> str:
    """Return the FLOP/s by name, SMs and precision, as JSON with a name on each line."""
    found: dict[str, dict[int, list[dict[str, int]]]] = {}
    for model in load_specs().models.values():
        by_pipe = model.peak_flops_per_second
        pipes = {name: pipe_peak(name) for name in PRECISIONS}
        peaks = {name: int(by_pipe[pipe]) for name, pipe in pipes.items() if pipe in by_pipe}
        for name in {bare_name(name) for name in model.names}:
            if model.sm_count is not None:
                found.setdefault(name, {}).setdefault(model.sm_count, []).append(peaks)
    certain = {
        name: {sms: each[0] for sms, each in sorted(by_sms.items()) if each == each[:1] * len(each)}
        for name, by_sms in sorted(found.items())
    }
    lines = (
        f"{json.dumps(name)}: {json.dumps(by_sms)}" for name, by_sms in certain.items() if by_sms
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(job_peaks(), encoding="utf-8")
