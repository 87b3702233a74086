# SPDX-License-Identifier: Apache-2.0
"""What ``status`` shows of one snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from exporter.model.snapshot import Snapshot
from exporter.web.facts import lines_of
from exporter.web.wording.facts import Facts
from exporter.web.wording.measuring import sentences
from exporter.web.wording.phrases import critical, explained, title, unusual_window
from exporter.web.wording.recorded import notice, recording_ended
from exporter.web.wording.summary import totals
from exporter.web.wording.whose import unread_words


@dataclass(frozen=True, slots=True)
class View:
    """All that is shown."""

    gpus: tuple[Facts, ...]
    """A line for each GPU and each MIG instance."""
    title: str
    window: str | None
    """Which seconds its means are of, where these are not the usual ones."""
    driver: str | None
    notices: tuple[str, ...]
    measure: tuple[str, ...] = ()
    """Which GPUs could be measured better, and how."""


def view(snapshot: Snapshot, notices: Sequence[str] = (), *, since_start: bool = False) -> View:
    """Return what to show of one snapshot, with further notices above it.

    `since_start` means that nobody had looked before: then it is not known for how long a GPU has
    been idle, only that it is.
    """
    found = tuple(line.facts for line in lines_of(snapshot))
    if since_start:
        found = tuple(
            replace(each, idle_seconds=None, held_idle_seconds=None, unopened_seconds=None)
            for each in found
        )
    devices = [gpu.device for gpu in snapshot.gpus]
    drivers = {each.driver_version for each in devices if each.driver_version}
    origin = notice({(each.source, each.driver_version) for each in devices})
    states = {name: (each.up, each.age_seconds) for name, each in snapshot.sources.items()}
    unread = () if recording_ended(snapshot.problem) else unread_words(states)
    grave = [f"{title(each)}: {explained(xid)}" for each in found for xid in critical(each)]
    problem = snapshot.problem
    return View(
        found,
        totals(found),
        unusual_window(found),
        ", ".join(sorted(drivers)) or None,
        tuple(filter(None, (origin, *notices, *unread, *grave, problem))),
        tuple(sentences(found, title)),
    )
