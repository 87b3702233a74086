# SPDX-License-Identifier: Apache-2.0
"""The counter sources of one GPU: all are read, and each share has the activity of one.

What reads 0 while utilization and power show that the GPU works is left out, until it reads more:
after an Xid 31 on Turing the counters freeze until a restart (NVIDIA/DCGM #303).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from exporter.clock import Clock
from exporter.model.reading import Activity, Vitals
from exporter.sources.interface import CounterRow, CounterSource, OpenedGpu
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
    """Return how long kernels ran in the last interval by utilization, where power agrees, or the
    utilization is low and the GPU may be `opened` by a process."""
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
        """Return whether a source's activity of the whole GPU is plausible; note if not."""
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
        unseen = LEAST_SECONDS + (activity.age_seconds or 0.0)
        least = max(unseen, LEAST_WORK_RATIO * (now - sign.monotonic))
        if sign.reads < LEAST_READS or self._worked - sign.worked_seconds < least:
            return True
        self._refused.add(source)
        self._journal.absent(source, IMPLAUSIBLE, _MEMBER)
        reason = "it reads 0 while utilization and power say that the GPU works"
        self._journal.failed(source, source, reason, _MEMBER)
        return False


SILENT_READS = 3
"""After so many reads without an activity a source is no longer expected to give one."""
CLOCK_MARGIN_SECONDS = 1e-3
"""How far an activity may reach back into the time that another source has counted."""


@dataclass(frozen=True, slots=True)
class CountersRead:
    """The result of one read of all counter sources."""

    sources: Mapping[int | None, str]
    """By share: the source that is expected to measure it; absent if none is."""
    activities: Mapping[int | None, Activity]
    """By share: what that source counted; absent if it gave nothing this time."""
    read_seconds: Mapping[str, float]
    """By source: how long its read took."""


class Counters:
    """Reads the enabled counter sources of one GPU and chooses one for each share.

    It is the first in order of preference that measures the share and gave an activity in one of
    its last SILENT_READS reads; if none did, the first that measures it.
    """

    def __init__(
        self, gpu: OpenedGpu, enabled: Collection[str], rows: Iterable[CounterRow]
    ) -> None:
        """Open those of `rows` that are enabled; one that is off by default has then no state."""
        self._gpu = gpu
        self._dead = DeadCounters(gpu.journal)
        self._sources: dict[str, CounterSource] = {}
        self._silent: Counter[tuple[str, int | None]] = Counter()
        """By source and share: how many reads in a row gave nothing."""
        self._given: dict[int | None, tuple[str, float]] = {}
        """By share: which source gave the last activity, and when that read began."""
        with ExitStack() as opened:
            for row in rows:
                if row.name not in enabled:
                    if row.enabled:
                        gpu.journal.absent(row.name, "disabled")
                    continue
                begin = row.open or (gpu.node[row.name].open if row.name in gpu.node else None)
                if begin is not None:
                    better = partial(self._are_answering, tuple(self._sources))
                    source = self._sources[row.name] = begin(replace(gpu, better=better))
                    opened.callback(source.close)
            self._opened = opened.pop_all()

    def read(self, clock: Clock, *, worked_seconds: float = 0.0) -> CountersRead:
        """Read every source, and return each share's activity by the chosen one. `worked_seconds`
        is how long the GPU worked since the last read by utilization and power."""
        self._dead.work(worked_seconds)
        began = clock.monotonic()
        found: dict[str, tuple[float, Mapping[int | None, Activity]]] = {}
        seconds: dict[str, float] = {}
        for name, source in self._sources.items():
            self._gpu.journal.progress()
            now = clock.monotonic()
            given = source.read(now)
            whole = given.get(None)
            if whole is not None and not self._dead.believed(name, whole, now):
                given = {}
            found[name] = now, given
            seconds[name] = clock.monotonic() - now
        sources: dict[int | None, str] = {}
        activities: dict[int | None, Activity] = {}
        for share in self._gpu.gpu_instances:
            for name, (_, given) in found.items():
                self._count_silence(name, share, answered=share in given)
            chosen = self._choose(share)
            if chosen is None:
                continue
            sources[share] = chosen
            now, given = found[chosen]
            activity = given.get(share)
            if activity is None or self._is_counted(share, chosen, now - activity.seconds):
                continue
            activities[share] = activity
            self._given[share] = chosen, began
        return CountersRead(sources, activities, seconds)

    def _count_silence(self, name: str, share: int | None, *, answered: bool) -> None:
        if answered:
            self._silent[name, share] = 0
        elif self._sources[name].measures(share):
            self._silent[name, share] += 1
        else:  # once it measures the share again, it is preferred only when it answers
            self._silent[name, share] = SILENT_READS

    def _choose(self, share: int | None) -> str | None:
        measuring = [name for name, source in self._sources.items() if source.measures(share)]
        answering = (name for name in measuring if self._is_answering(name, share))
        return next(answering, measuring[0] if measuring else None)

    def _is_answering(self, name: str, share: int | None) -> bool:
        silent = self._silent[name, share] >= SILENT_READS
        return not silent and self._sources[name].measures(share)

    def _are_answering(self, names: Collection[str]) -> bool:
        """Return whether each share is measured by one of these sources, which is not silent."""
        shares = self._gpu.gpu_instances
        return all(any(self._is_answering(name, share) for name in names) for share in shares)

    def _is_counted(self, share: int | None, name: str, since: float) -> bool:
        """Return whether another source has already counted the time after `since`: one that was
        silent may give the mean over all that time."""
        source, until = self._given.get(share, (name, since))
        return source != name and since < until - CLOCK_MARGIN_SECONDS

    def close(self) -> None:
        """Close every source that was opened."""
        self._opened.close()
