# SPDX-License-Identifier: Apache-2.0
"""Workload reports: written to a recording, and played from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import get_args

from exporter.model.readers import WorkloadSource
from exporter.model.snapshot import SourceState
from exporter.model.workload import Scheduler, WorkloadReport

Said = Mapping[Scheduler, WorkloadReport]
"""By source: its last report."""
States = Mapping[Scheduler, SourceState]

AGE_DIGITS = 3
"""Ages are rounded to milliseconds."""


class WorkRecorder:
    """Returns what to write of the sources of workloads in each round."""

    def __init__(
        self,
        sources: Sequence[WorkloadSource],
        kept: Callable[[WorkloadReport], WorkloadReport] | None = None,
    ) -> None:
        """Take the sources; `kept` returns the part of a report that is written."""
        names: Mapping[str, Scheduler] = {each: each for each in get_args(Scheduler)}
        self._sources = {names[each.name]: each for each in sources if each.name in names}
        self._kept = kept
        self._last: dict[Scheduler, WorkloadReport] = {}
        """The last reports, complete."""

    def said(self) -> Said | None:
        """Return the last report of every source; None if none has changed."""
        now = {
            name: report
            for name, source in self._sources.items()
            if (report := source.report()) is not None
        }
        if now == self._last:
            return None
        self._last = now
        kept = self._kept
        return now if kept is None else {name: kept(report) for name, report in now.items()}

    def states(self) -> States:
        """Return how the sources are doing that are in use."""
        return {
            name: _rounded(state)
            for name, source in self._sources.items()
            if (state := source.state) is not None
        }


def _rounded(state: SourceState) -> SourceState:
    age, length = state.age_seconds, state.read_seconds
    return replace(
        state,
        age_seconds=None if age is None else round(age, AGE_DIGITS),
        read_seconds=None if length is None else round(length, AGE_DIGITS),
    )


class PlayedWork:
    """One source of workloads of the recorded node, under the name that it had there."""

    def __init__(
        self,
        name: Scheduler,
        said: Callable[[], Said],
        states: Callable[[], States],
    ) -> None:
        """Play the reports and states that these return."""
        self.name: str = name
        self._scheduler = name
        self._said = said
        self._states = states

    def start(self) -> None:
        """Begin; there is nothing to open."""

    def stop(self) -> None:
        """End; there is nothing to close."""

    def report(self) -> WorkloadReport | None:
        """Return its report at this tick; the same object until it changes."""
        return self._said().get(self._scheduler)

    @property
    def state(self) -> SourceState | None:
        """How it was doing; None while it was not in use."""
        return self._states().get(self._scheduler)
