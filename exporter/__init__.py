# SPDX-License-Identifier: Apache-2.0
"""roofline-exporter: how busy, how saturated and how idle each NVIDIA GPU of a node is."""

import time
from functools import partial


def _time_ns() -> int:
    return int(time.time() * 1e9)


# From the year 2262 on CPython's clocks raise OverflowError, and logging cannot be imported.
time.time = partial(time.clock_gettime, time.CLOCK_REALTIME)
time.time_ns = _time_ns

__version__ = "0.2.0"
