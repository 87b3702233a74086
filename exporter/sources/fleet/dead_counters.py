# SPDX-License-Identifier: Apache-2.0
"""Discards counters that read 0 while utilization and power show that the GPU works.

Seen after an Xid 31 on Turing: the GPU goes on computing, and the counters freeze until a restart
(NVIDIA/DCGM #303). On an idle GPU frozen and working counters both read 0: only a reading above
0 shows that they work again.
"""

from __future__ import annotations

from typing import NamedTuple

from exporter.model.reading import Activity, Vitals
from exporter.sources.reading_state import IMPLAUSIBLE, Journal

LEAST_UTILIZATION_RATIO = 0.05
"""Less may be rounding."""
DOUBTFUL_UTILIZATION_RATIO = 0.5
"""Above that, power must agree: some drivers report 99 % for an idle GPU."""
WORKING_POWER_RATIO = 0.25
"""Of the power limit: more than any GPU draws at rest while no kernel is resident."""
DEAD_RATIO = 1e-3
"""An activity below it counts as 0."""
LEAST_WORK_RATIO = 0.01
"""Work of a smaller part of the time is perhaps what the counters rounded to 0."""
LEAST_READS = 3
LEAST_SECONDS = 3.0
"""Of so much work the counters show nothing, apart from what they are too old to show: utilization
and power lag behind them by up to a second."""

_MEMBER = "dead"
_UNITS = (
    *("engine", "sm", "occupancy", "dram", "tensor", "fp64", "fp32", "fp16", "integer"),
    *("fma", "tensor_fp16"),
)


def worked_seconds(vitals: Vitals, power_limit_watts: float | None, *, opened: bool) -> float:
    """Return how long kernels ran in the last interval by utilization.

    Power must agree, or utilization be low and the GPU be `opened` by a process, as far as known.
    """
    utilization, power = vitals.utilization, vitals.power_watts
    if utilization is None or power is None or power_limit_watts is None:
        return 0.0
    draws = power >= WORKING_POWER_RATIO * power_limit_watts
    believed = draws or (opened and utilization.ratio < DOUBTFUL_UTILIZATION_RATIO)
    if not believed or utilization.ratio < LEAST_UTILIZATION_RATIO:
        return 0.0
    return utilization.ratio * utilization.seconds


def is_dead(activity: Activity) -> bool:
    """Return whether every unit reads 0, including one that every kernel uses."""
    if activity.engine is None and activity.sm is None:
        return False
    ratios = (getattr(activity, name) for name in _UNITS)
    return all(ratio is None or ratio < DEAD_RATIO for ratio in ratios)


class _Sign(NamedTuple):
    """The last reading above 0 of a source, else its first reading."""

    monotonic: float
    worked_seconds: float
    """How much the GPU had worked until then."""
    reads: int = 0
    """How many readings of 0 there were since."""


class DeadCounters:
    """Which counter sources of one GPU contradict the driver, and for how long."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._worked = 0.0
        self._signs: dict[str, _Sign] = {}
        self._refused: set[str] = set()

    def work(self, seconds: float) -> None:
        """Take how long kernels ran since the last call, whether counters are read or not."""
        self._worked += seconds

    def believed(self, source: str, activity: Activity, now: float) -> bool:
        """Return whether what a source counted of the whole GPU may be true; note if not."""
        if not is_dead(activity):
            self._signs[source] = _Sign(now, self._worked)
            if source in self._refused:
                self._refused.remove(source)
                self._journal.answered(source, _MEMBER)
            return True
        if source in self._refused:
            return False
        sign = self._signs.get(source, _Sign(now, self._worked))
        sign = self._signs[source] = sign._replace(reads=sign.reads + 1)
        least = max(
            LEAST_SECONDS + (activity.age_seconds or 0.0),
            LEAST_WORK_RATIO * (now - sign.monotonic),
        )
        if sign.reads < LEAST_READS or self._worked - sign.worked_seconds < least:
            return True
        self._refused.add(source)
        self._journal.absent(source, IMPLAUSIBLE, _MEMBER)
        reason = "it reads 0 while utilization and power say that the GPU works"
        self._journal.failed(source, source, reason, _MEMBER)
        return False
