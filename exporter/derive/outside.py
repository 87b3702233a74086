# SPDX-License-Identifier: Apache-2.0
"""Bounds of a data stall from outside the job: states of its threads against the GPU's idle time.

A moment is *waiting for data for certain* if the loop's thread is asleep, as in a wait for a batch,
while a worker is at work, unless workers were all at rest shortly before or after: a loader that
is ahead only refills its queue. It is *perhaps* one where that is not known. Workers that all rest
for a second have a full queue: then the loop waits for something else.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from math import sqrt
from operator import attrgetter
from typing import NamedTuple

from exporter.model.host import (
    ASLEEP,
    AT_REST,
    AT_WORK,
    BLOCKED,
    RUNNING,
    STOPPED,
    HostActivity,
    HostTotals,
    ThreadStates,
)
from exporter.model.snapshot import Bounds

NEAR_SECONDS = 3.0
"""So long before and after a moment at which all workers rest, no wait is certain."""
FULL_SECONDS = 1.0
"""Workers that rest for so long have a full queue."""
LONGEST_HOLE_SECONDS = 1.0
"""Of a window with a longer time without a sample nothing is said."""
DEVIATIONS = 1.96
"""The sampling error of a share of moments is within it in 95 % of windows."""

_seconds = attrgetter("seconds")


class Moment(NamedTuple):
    """The state of the loop that one moment shows."""

    certain: bool
    possible: bool


def judged(states: Sequence[ThreadStates]) -> list[Moment]:
    """Return the state that each of these moments shows, oldest first."""
    resting = [bool(each.workers) and not set(each.workers) - {AT_REST, ASLEEP} for each in states]
    rested_at = [each.seconds for each, rests in zip(states, resting, strict=True) if rests]
    asleep = [each.main in (AT_REST, ASLEEP, AT_WORK) for each in states]
    # Had the loop waited for data, the workers' first batch would have woken it before all rested.
    refilling = {n for run in _runs(asleep) if any(resting[n] for n in run) for n in run}
    idle = [bool(each.workers) and not each.workers.strip(AT_REST) for each in states]
    full = {
        n
        for run in _runs(idle)
        if states[run[-1]].seconds - states[run[0]].seconds >= FULL_SECONDS
        for n in run
    }
    found: list[Moment] = []
    for number, each in enumerate(states):
        certain, possible = _alone(each)
        at = bisect_left(rested_at, each.seconds - NEAR_SECONDS)
        ahead = at < len(rested_at) and rested_at[at] <= each.seconds + NEAR_SECONDS
        certain = certain and not ahead and number not in refilling
        found.append(Moment(certain, possible and number not in full))
    return found


def _alone(states: ThreadStates) -> Moment:
    main, workers = states.main, states.workers
    if main == STOPPED:
        return Moment(certain=False, possible=False)
    working = any(each in (RUNNING, BLOCKED, AT_WORK) for each in workers)
    if main in (AT_REST, ASLEEP):
        return Moment(certain=working, possible=True)
    # In next() it unpickles; without workers it may load.
    return Moment(certain=False, possible=working or not workers or STOPPED in workers)


def _runs(belongs: Sequence[bool]) -> Iterator[range]:
    """Yield the moments of each unbroken run of those that belong."""
    for belong, run in groupby(range(len(belongs)), key=belongs.__getitem__):
        if belong:
            found = list(run)
            yield range(found[0], found[-1] + 1)


def share_bounds(count: int, of: int) -> Bounds:
    """Bound the share of time that `count` of so many moments show (Wilson's interval).

    (p + z²/2n ± z √(p(1 - p)/n + z²/4n²)) / (1 + z²/n)
    """
    if not of:
        return Bounds(0.0, 1.0)
    p, z2 = count / of, DEVIATIONS**2
    middle = p + z2 / (2 * of)
    spread = DEVIATIONS * sqrt(p * (1 - p) / of + z2 / (4 * of * of))
    lower, upper = ((middle + each) / (1 + z2 / of) for each in (-spread, spread))
    return Bounds(max(0.0, lower) if count else 0.0, min(1.0, upper) if count < of else 1.0)


def wait_bounds(
    states: Sequence[ThreadStates], moments: Sequence[Moment], begin: float, end: float
) -> Bounds | None:
    """Bound the part of a time in which the loop waited for data, with the sampling error of what
    the moments show; None if no worker was seen, or it was not sampled throughout."""
    first = bisect_left(states, begin, key=_seconds)
    last = bisect_right(states, end, key=_seconds)
    times = [begin, *(each.seconds for each in states[first:last]), end]
    longest = max(later - earlier for earlier, later in pairwise(times))
    if longest > LONGEST_HOLE_SECONDS or not any(each.workers for each in states[first:last]):
        return None
    inside, count = moments[first:last], last - first
    return Bounds(
        share_bounds(sum(each.certain for each in inside), count).lower,
        share_bounds(sum(each.possible for each in inside), count).upper,
    )


def host_activity(
    states: Sequence[ThreadStates], first: HostTotals, last: HostTotals, workers: int | None
) -> HostActivity | None:
    """Return what a process and its workers did between two totals; None without samples."""
    seconds = last.seconds - first.seconds
    if not states or seconds <= 0.0:
        return None
    letters = "".join(each.workers for each in states).replace(STOPPED, "")

    def grown(name: str) -> float | None:
        before, now = getattr(first, name), getattr(last, name)
        return None if before is None or now is None else float(max(0.0, now - before)) / seconds

    def part(state: str) -> float | None:
        return letters.count(state) / len(letters) if letters else None

    rate, reads = grown("read_bytes"), grown("reads")
    return HostActivity(
        method="procfs",
        seconds=seconds,
        workers=workers,
        worker_running_ratio=part(RUNNING),
        worker_blocked_ratio=part(BLOCKED),
        cores=last.cores,
        cores_busy=grown("busy_seconds"),
        read_size_bytes=rate / reads if rate is not None and reads else None,
    )
