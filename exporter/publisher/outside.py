# SPDX-License-Identifier: Apache-2.0
"""Data stalls seen from outside: which processes are watched, and what their threads show."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from exporter.derive.idle import IdleRules, holding
from exporter.derive.outside import NEAR_SECONDS, host_activity, judged, wait_bounds
from exporter.derive.stall import Stall
from exporter.model.host import HostActivity, HostTotals, Seen, ThreadStates
from exporter.model.readers import HostSource
from exporter.model.reading import Place, Process, share_group
from exporter.model.snapshot import RECENT_SECONDS, Bounds
from exporter.publisher.gpu import TrackedGpu
from exporter.publisher.ranks import Claims, GapClock
from exporter.publisher.ranks.windows import BOUNDS_SECONDS, Mark, Window, between, was_observed

PROCFS = "procfs"
"""The label `method` of a stall that is inferred from the states of threads."""
GAP_RATIO = 0.05
"""A held GPU that is idle for this part of an interval has idle gaps."""
WATCHED_SECONDS = 30.0
NEVER_WAITING = frozenset({"serving", "notebook", "display", "system"})
"""Classes of work that wait for people and requests."""


class Outside:
    """The processes that are watched, one for each share; for the publisher's thread."""

    def __init__(self, source: HostSource | None) -> None:
        self._source = source
        self.watched: dict[Place, WatchedProcess] = {}
        self._gap_at: dict[Place, float] = {}
        """By share: the monotonic time of its last idle gap."""

    def claims(self, claims: Claims) -> Claims:
        """Return the stalls of the shares: reported by their ranks, else inferred from outside."""
        seen = {
            place: _stall(each.window)
            for place, each in self.watched.items()
            if each.window is not None and place not in claims.stalls
        }
        return replace(claims, stalls={**seen, **claims.stalls}) if seen else claims

    def settle(
        self, gpus: Mapping[str, TrackedGpu], claims: Claims, rules: IdleRules, now: float
    ) -> None:
        """Add the samples since the last tick to the GPUs' totals, and choose what to watch."""
        if self._source is None:
            return
        found = self._source.take()
        for gpu in gpus.values():
            gpu.host_states.clear()
        wanted = self._wanted(gpus, rules, now)
        for place, pid in wanted.items():
            gpu = gpus[place.uuid or ""]
            share = gpu.shares[place.gpu_instance]
            watched = self.watched.get(place)
            if watched is None or watched.pid != pid:
                watched = self.watched[place] = WatchedProcess(pid)
            watched.take(found.get(pid, Seen()))
            share.host = watched.host
            for group, state in watched.problems.items():
                gpu.host_states[share_group(group, place.gpu_instance)] = state
            if place in claims.stalls:
                watched.forget_stall()
                continue
            stalled = watched.settle(share.gaps)
            if stalled is not None:
                share.add_stall(PROCFS, stalled.bounds)
        for place in self.watched.keys() - wanted.keys():
            del self.watched[place]
            gone = gpus.get(place.uuid or "")
            if gone is not None and place.gpu_instance in gone.shares:
                gone.shares[place.gpu_instance].host = None
        self._source.watch(frozenset(wanted.values()))

    def _wanted(
        self, gpus: Mapping[str, TrackedGpu], rules: IdleRules, now: float
    ) -> dict[Place, int]:
        """Return the process to watch by share: its only holder, while it has idle gaps."""
        found: dict[Place, int] = {}
        for uuid, gpu in gpus.items():
            _, readings = gpu.last_shares
            for reading in readings:
                place = Place(uuid, reading.gpu_instance)
                share = gpu.shares.get(reading.gpu_instance)
                if share is None or not share.derived.held:
                    self._gap_at.pop(place, None)
                    continue
                if (share.derived.gap or 0.0) >= GAP_RATIO:
                    self._gap_at[place] = now
                pid = sole_holder(reading.processes or (), rules)
                recently = now - self._gap_at.get(place, float("-inf")) <= WATCHED_SECONDS
                if pid is not None and recently:
                    found[place] = pid
        for place in [each for each in self._gap_at if each.uuid not in gpus]:
            del self._gap_at[place]
        return found


def sole_holder(processes: tuple[Process, ...], rules: IdleRules) -> int | None:
    """Return the process that alone computes on a share; None if it may wait for people."""
    holders = holding(processes, rules)
    pids = {process.pid for process in holders}
    if len(pids) != 1 or any(process.kind == "mps" for process in processes):
        return None
    return None if holders[0].work_class in NEVER_WAITING else pids.pop()


class WatchedProcess:
    """One process on one share, and its window."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.window: Window | None = None
        self.host: HostActivity | None = None
        self.problems: Mapping[str, str] = {}
        self._states: deque[ThreadStates] = deque()
        self._totals: deque[HostTotals] = deque()
        self._ticks: deque[float] = deque()
        """Monotonic times to which the share was read, of which not all is seen yet."""
        self._begin: Mark | None = None

    def take(self, seen: Seen) -> None:
        """Take the source's samples since the last tick."""
        self._states.extend(seen.states)
        self.problems = seen.problems
        if seen.totals is not None and (
            not self._totals or seen.totals.seconds > self._totals[-1].seconds
        ):
            self._totals.append(seen.totals)
        if not self._states:
            return
        newest = self._states[-1].seconds
        oldest = min(newest, self._begin.seconds if self._begin else newest)
        while self._states[0].seconds < min(oldest - NEAR_SECONDS, newest - RECENT_SECONDS):
            self._states.popleft()
        while len(self._totals) > 2 and self._totals[1].seconds <= newest - RECENT_SECONDS:
            self._totals.popleft()
        recent = [each for each in self._states if each.seconds >= newest - RECENT_SECONDS]
        self.host = (
            host_activity(recent, self._totals[0], self._totals[-1], seen.workers)
            if len(self._totals) > 1 and seen.states
            else None
        )

    def forget_stall(self) -> None:
        """Begin anew: the job itself reports its waits."""
        self.window = None
        self._begin = None
        self._ticks.clear()

    def settle(self, gaps: GapClock) -> Window | None:
        """Return the window that is complete now."""
        end = gaps.end
        if end is None or not self._states:
            return None
        if not self._ticks or end > self._ticks[-1]:
            self._ticks.append(end)
        # Moments beside the gap decide too, and the driver's readings may lag behind.
        settled = min(end, self._states[-1].seconds) - NEAR_SECONDS
        while self._ticks and self._ticks[0] <= settled:
            at = self._ticks.popleft()
            if at < self._states[0].seconds:
                continue
            now = Mark(at, 0.0, gaps.at(at))
            if self._begin is None:
                self._begin = now
            elif at - self._begin.seconds >= BOUNDS_SECONDS:
                begin, self._begin = self._begin, now
                self.window = self._close(begin, now)
                return self.window
        return None

    def _close(self, begin: Mark, end: Mark) -> Window | None:
        """Return the complete window; None if it shows nothing."""
        states = list(self._states)
        waits = wait_bounds(states, judged(states), begin.seconds, end.seconds)
        if waits is None:
            return None
        seconds = end.seconds - begin.seconds
        least, most = (
            between(begin, end._replace(wait=each * seconds)) for each in (waits.lower, waits.upper)
        )
        window = Window(begin, end, Bounds(least.lower, most.upper), None, over=True)
        return window if was_observed(window) else None


def _stall(window: Window) -> Stall:
    """Return the stall that a window shows."""
    idle = window.end.times.idle - window.begin.times.idle
    of_idle = min(window.bounds.lower / idle, 1.0) if idle > 0.0 else None
    return Stall(of_idle, {PROCFS: window.ratios})
