# SPDX-License-Identifier: Apache-2.0
"""The peak of this process's GPU, by its datasheet.

``peaks.json`` is made from the exporter's own table (tests/specs/job_peaks.py): a job has
neither that nor the daemon's answers.
"""

from __future__ import annotations

import json
import os
from typing import cast

from . import identity

PEAKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peaks.json")
"""By GPU, as its name and number of SMs, and precision: FLOP/s."""


def peak_flops_per_second(precision: str | None) -> float | None:
    """Return the dense peak of the current device; None where GPU or precision are not known.

    A MIG instance has another name than its GPU, and not all of its SMs.
    """
    cuda = identity.cuda()
    if cuda is None:
        return None
    try:
        device = cuda.get_device_properties(cuda.current_device())
        with open(PEAKS, encoding="utf-8") as file:
            peaks = json.load(file)
        name = device.name.removeprefix("NVIDIA ")
        of_gpu = peaks.get(f"{name}, {device.multi_processor_count} SMs", {})
        return cast("float | None", of_gpu.get(precision))
    except Exception:  # a GPU that failed, or no descriptor left: the rest can be said
        return None
