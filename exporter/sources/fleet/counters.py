# SPDX-License-Identifier: Apache-2.0
"""The counter sources of one GPU: all are read, and each share has the activity of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from exporter.clock import Clock
from exporter.model.reading import Activity
from exporter.sources.fleet.dead_counters import DeadCounters
from exporter.sources.interface import CounterRow, CounterSource, OpenedGpu

SILENT_READS = 3
"""After so many reads without an activity a source is no longer expected to give one."""
CLOCK_MARGIN_SECONDS = 1e-3
"""How far an activity may reach back into the time that another source has counted."""


@dataclass(frozen=True, slots=True)
class CountersRead:
    """What one read of all counter sources gave."""

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
        self,
        gpu: OpenedGpu,
        enabled: Collection[str],
        rows: Iterable[CounterRow],
    ) -> None:
        """Open those of `rows` that are enabled; the rows are in order of preference.

        A source that is off by default has no reading state while it is off.
        """
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
        """Read every source, and return for each share what the chosen one gave.

        `worked_seconds` is how long the whole GPU worked since the last read by utilization and
        power: counters that read 0 nevertheless gave nothing.
        """
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
        """Return whether another source has already counted the time after `since`.

        A source that was silent may give the mean over all that time when it answers again.
        """
        source, until = self._given.get(share, (name, since))
        return source != name and since < until - CLOCK_MARGIN_SECONDS

    def close(self) -> None:
        """Close every source that was opened."""
        self._opened.close()
