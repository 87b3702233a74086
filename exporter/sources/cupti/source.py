# SPDX-License-Identifier: Apache-2.0
"""Measured counters by CUPTI, in the exporter's own process: one child samples all GPUs."""

from __future__ import annotations

from exporter.clock import Clock
from exporter.sources.counters.child_counters import ChildCounters
from exporter.sources.source import CUPTI, CounterOptions


def prepare(options: CounterOptions, clock: Clock) -> ChildCounters:
    """Return what keeps the child, not started."""
    return ChildCounters(CUPTI, {"duty": options.cupti_duty, "procfs": options.procfs}, clock)
