# SPDX-License-Identifier: Apache-2.0
"""Counters that read 0 while utilization and power say that the GPU works are no reading.

Seen after an Xid 31 on Turing: the GPU computes on, and sampling stands still until a restart
(NVIDIA/DCGM #303).
"""

from __future__ import annotations

from typing import NamedTuple

from exporter.model.reading import Activity, Vitals
from exporter.sources.journal import IMPLAUSIBLE, Journal

WORKING_UTILIZATION_RATIO = 0.5
WORKING_POWER_RATIO = 0.25
"""Of the power limit: more than any GPU draws at rest while no kernel is resident."""
DEAD_RATIO = 1e-3
"""An activity below it counts as 0."""
LEAST_READS = 3
LEAST_SECONDS = 3.0
"""For so long the two must contradict each other, apart from the activity's own age: utilization
and power lag behind the counters by up to a second."""

_MEMBER = "dead"
_UNITS = (
    *("engine", "sm", "occupancy", "dram", "tensor", "fp64", "fp32", "fp16", "integer"),
    *("fma", "tensor_fp16"),
)


def works(vitals: Vitals, power_limit_watts: float | None) -> bool:
    """Return whether utilization and power both say that kernels run on the GPU."""
    utilization, power = vitals.utilization, vitals.power_watts
    if utilization is None or power is None or power_limit_watts is None:
        return False
    return (
        utilization.ratio >= WORKING_UTILIZATION_RATIO
        and power >= WORKING_POWER_RATIO * power_limit_watts
    )


def is_dead(activity: Activity) -> bool:
    """Return whether every unit reads 0, among them one that no kernel leaves at rest."""
    if activity.engine is None and activity.sm is None:
        return False
    ratios = (getattr(activity, name) for name in _UNITS)
    return all(ratio is None or ratio < DEAD_RATIO for ratio in ratios)


class _Since(NamedTuple):
    monotonic: float
    reads: int


class DeadCounters:
    """Which counter sources of one GPU contradict the driver, and since when."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._since: dict[str, _Since] = {}
        self._refused: set[str] = set()

    def believed(self, source: str, activity: Activity, now: float, *, working: bool) -> bool:
        """Return whether what a source counted of the whole GPU may be true; note if not."""
        if not (working and is_dead(activity)):
            self._since.pop(source, None)
            if source in self._refused:
                self._refused.remove(source)
                self._journal.answered(source, _MEMBER)
            return True
        since = self._since.get(source, _Since(now, 0))
        since = self._since[source] = since._replace(reads=since.reads + 1)
        lasts = now - since.monotonic - (activity.age_seconds or 0.0)
        if since.reads < LEAST_READS or lasts < LEAST_SECONDS:
            return source not in self._refused
        if source not in self._refused:
            self._refused.add(source)
            self._journal.absent(source, IMPLAUSIBLE, _MEMBER)
            reason = "it reads 0 while utilization and power say that the GPU works"
            self._journal.failed(source, source, reason, _MEMBER)
        return False
