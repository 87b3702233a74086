# SPDX-License-Identifier: Apache-2.0
"""The source kubernetes."""

from __future__ import annotations

from exporter.clock import Clock
from exporter.model.workload import WorkloadReport
from exporter.sources.source import KUBERNETES, NodeWorkloads, WorkloadOptions
from exporter.sources.workload.polled import PolledSource


def prepare(options: WorkloadOptions, clock: Clock) -> NodeWorkloads:
    """Return the source, not started."""

    def read() -> WorkloadReport | None:
        return None

    return PolledSource(KUBERNETES, read, clock)
