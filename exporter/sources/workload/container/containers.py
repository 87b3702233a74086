# SPDX-License-Identifier: Apache-2.0
"""The source container: names of the containers on GPUs, by Docker and Podman."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping

from exporter.clock import Clock
from exporter.model.reading import SlotReport
from exporter.model.snapshot import SourceState
from exporter.model.workload import Workload, WorkloadReport
from exporter.sources.interface import (
    CONTAINER,
    CONTAINER_SOCKETS,
    NodeWorkloads,
    WorkloadOptions,
)
from exporter.sources.poller import INTERVAL_SECONDS, PolledSource, Unreadable
from exporter.sources.workload.container.engine import names

LOOK_SECONDS = 5.0
"""Between two looks at which containers are on GPUs, half the time between two lists of
processes."""
AGAIN_SECONDS = 300.0
"""After this time the names are fetched again: containers may have been renamed. Each request may
start an engine that systemd starts on demand, as it does Podman's."""

log = logging.getLogger(__name__)


def prepare(options: WorkloadOptions, clock: Clock) -> NodeWorkloads:
    """Return the source, not started."""
    return ContainerSource(options.container_sockets, options.containers, clock)


class ContainerSource(PolledSource[WorkloadReport]):
    """Fetches names only for containers on GPUs that are new, or whose names are old.

    A socket of the default list that is not there or may not be opened is no fault: then ids do
    without names. Any other socket is expected to answer, and is tried at once.
    """

    def __init__(
        self,
        sockets: Collection[str],
        wanted: Callable[[], frozenset[str]],
        clock: Clock,
    ) -> None:
        super().__init__(CONTAINER, self._ask, clock, LOOK_SECONDS)
        self._sockets = tuple(dict.fromkeys(sockets))
        self._expected = frozenset(sockets).difference(CONTAINER_SOCKETS)
        self._wanted = wanted
        self._on_gpus: frozenset[str] = frozenset()
        self._asked: frozenset[str] = frozenset()
        """The containers of the last request."""
        self._answered = False
        """Whether every expected engine answered it, and at least one."""
        self._asked_at = -math.inf
        self._names: dict[str, Mapping[str, Workload]] = {}
        """By socket: its last answer."""
        self._known: WorkloadReport | None = None
        self._refused: set[str] = set()
        """The sockets whose permission was logged."""

    def read_once(self) -> None:
        """Poll once, if any name is missing or old."""
        self._on_gpus = self._wanted()
        in_use = self._on_gpus or (self._expected and not self._answered)
        again = self._asked_at + (AGAIN_SECONDS if self._answered else INTERVAL_SECONDS)
        if not self._on_gpus <= self._asked or (in_use and self._clock.monotonic() >= again):
            super().read_once()

    def _ask(self) -> WorkloadReport | None:
        """Return all names that are known; None where no engine answers."""
        ids, problems, answered = self._on_gpus, [], False
        self._asked, self._asked_at = ids, self._clock.monotonic()
        for path in self._sockets:
            try:
                self._names[path] = names(path, ids)
                answered = True
            except Unreadable as error:
                problems.append(str(error))
            except FileNotFoundError:
                if path in self._expected:
                    problems.append(f"nothing listens at {path}")
            except PermissionError:
                problem = f"{path} may not be opened: permission denied"
                if path in self._expected:
                    problems.append(problem)
                elif path not in self._refused:
                    self._refused.add(path)
                    log.info("source %s: %s; containers have ids without names", self.name, problem)
        known = WorkloadReport(
            named={number: each for named in self._names.values() for number, each in named.items()}
        )
        if known != (self._known or WorkloadReport()):
            self._known = known
        self._answered = answered and not problems
        if problems:
            raise Unreadable("; ".join(problems))
        return known if answered else None

    def report(self) -> WorkloadReport | None:
        """Return the last report, also if only one of several sockets answered."""
        return self._known

    @property
    def state(self) -> SourceState | None:
        """Its state; None while no container is on a GPU."""
        state = super().state
        wrong = state is not None and not state.up
        return state if self._on_gpus or (wrong and self._expected) else None


def on_gpus(reports: Iterable[SlotReport]) -> frozenset[str]:
    """Return the ids of the containers, but of those of pods, that have a process on a GPU."""
    members = (
        process.membership
        for report in reports
        if report.reading is not None
        for share in report.reading.shares
        for process in share.processes or ()
    )
    return frozenset(
        member.container_id
        for member in members
        if member is not None and member.container_id is not None and member.pod_uid is None
    )
