# SPDX-License-Identifier: Apache-2.0
"""Counters that read 0 while utilization and power say that the GPU works are no reading.

Seen after an Xid 31 on Turing: the GPU computes on, and sampling stands still until a restart
(NVIDIA/DCGM #303). At rest such counters read what true ones read: only a reading above 0 shows
that they are back.
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
"""For so long the two must contradict each other, over all the work since the last reading above
0, apart from the activity's own age in each stretch of work: utilization and power lag behind the
counters by up to a second."""

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


class _Contradiction(NamedTuple):
    """What has added up since a source last read more than 0."""

    seconds: float = 0.0
    reads: int = 0
    working_since: float | None = None
    """When the present stretch of work began; None at rest."""
    read_at: float | None = None

    def after(self, now: float, age_seconds: float, *, working: bool) -> _Contradiction:
        """Return it after one more reading of 0."""
        if not working:
            return self._replace(working_since=None, read_at=now)
        before = now if self.read_at is None else self.read_at
        since = before if self.working_since is None else self.working_since
        more = max(0.0, now - max(before, since + age_seconds))
        return _Contradiction(self.seconds + more, self.reads + 1, since, now)

    @property
    def lasts(self) -> bool:
        """Whether it is long enough to be one."""
        return self.reads >= LEAST_READS and self.seconds >= LEAST_SECONDS


class DeadCounters:
    """Which counter sources of one GPU contradict the driver, and for how long."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._found: dict[str, _Contradiction] = {}
        self._refused: set[str] = set()

    def believed(self, source: str, activity: Activity, now: float, *, working: bool) -> bool:
        """Return whether what a source counted of the whole GPU may be true; note if not."""
        if not is_dead(activity):
            self._found.pop(source, None)
            if source in self._refused:
                self._refused.remove(source)
                self._journal.answered(source, _MEMBER)
            return True
        if source in self._refused:
            return False
        found = self._found.get(source, _Contradiction())
        found = found.after(now, activity.age_seconds or 0.0, working=working)
        self._found[source] = found
        if not found.lasts:
            return True
        self._refused.add(source)
        self._journal.absent(source, IMPLAUSIBLE, _MEMBER)
        reason = "it reads 0 while utilization and power say that the GPU works"
        self._journal.failed(source, source, reason, _MEMBER)
        return False
