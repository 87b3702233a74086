# SPDX-License-Identifier: Apache-2.0
"""Buffers activities that arrive at their own times until the next round of the fleet.

DCGM and CUPTI hand over means of their own intervals. Each is valid until the next one, for as long
as it is the mean of; a round gets the mean over the time since the round before. Totals are thereby
exact and lag by one interval of the source. What is valid for longer than it is the mean of, or
than LONGEST_AGE_SECONDS, or for a part of the round only, is shown and not integrable.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from exporter.model.reading import ACTIVITY_BYTES, ACTIVITY_RATIOS, Activity
from exporter.sources.interface import OpenedGpu

LEAST_COVERED_RATIO = 0.9
"""A round of which less is covered was not measured as a whole."""
MOST_HELD = 4096
"""Of one share; the oldest are dropped."""


class Sample(NamedTuple):
    """An activity and the monotonic times between which it is valid."""

    activity: Activity
    """Its bytes are those of its own `seconds`, its age is that at its arrival."""
    since: float
    until: float
    mean_until: float
    """From then on it is valid for more time than it is the mean of."""


class Piece(NamedTuple):
    """The part of a round in which one activity was valid."""

    activity: Activity
    seconds: float
    age_seconds: float
    """Of the activity, at the end of that part."""
    unseen_seconds: float
    """How much of that part it is not the mean of."""


class Held:
    """The buffer of one share of a GPU; one thread puts, another takes."""

    def __init__(self, look_seconds: float = 0.0) -> None:
        """`look_seconds` is how late an activity may arrive where the source is polled: it is valid
        from so long after it was made, whenever it arrived, and ages so much later."""
        self._lock = threading.RLock()
        self._look_seconds = look_seconds
        self._samples: deque[Sample] = deque(maxlen=MOST_HELD)
        self._taken_until: float | None = None

    def put(
        self,
        activity: Activity,
        now: float,
        longest_seconds: float,
        *,
        mean_seconds: float = math.inf,
        made_at: float | None = None,
    ) -> None:
        """Add `activity`, the mean of at most `mean_seconds`.

        It is valid for `longest_seconds` from now on unless another one comes; with `made_at`, and
        while another one is valid, as long after that one as it was made after it.
        """
        with self._lock:
            due = now if made_at is None else made_at + self._look_seconds
            since = max(due, now) if self.is_fresh(now) else now
            self.end(since)
            ends = since + longest_seconds, min(due, since) + mean_seconds
            self._samples.append(Sample(activity, since, *ends))

    def end(self, now: float) -> None:
        """End the validity of the last activity."""
        with self._lock:
            if self._samples:
                last = self._samples[-1]
                self._samples[-1] = last._replace(until=max(min(last.until, now), last.since))

    def is_fresh(self, now: float) -> bool:
        """Return whether an activity is valid now."""
        with self._lock:
            return bool(self._samples) and self._samples[-1].until > now

    def restart(self, now: float) -> None:
        """Let the next `take` begin now."""
        with self._lock:
            self._taken_until = now

    def take(self, now: float) -> Activity | None:
        """Return the mean since the last call; None if nothing was valid, and on the first call."""
        with self._lock:
            since, self._taken_until = self._taken_until, now
            if since is None or now <= since:
                return None
            pieces = [
                self._piece(sample, since, now)
                for sample in self._samples
                if min(sample.until, now) > max(sample.since, since)
            ]
            while len(self._samples) > 1 and self._samples[0].until <= now:
                self._samples.popleft()
        if not pieces:
            return None
        seconds = sum(piece.seconds for piece in pieces)
        unseen = sum(piece.unseen_seconds for piece in pieces) or None
        if seconds < LEAST_COVERED_RATIO * (now - since):
            unseen = now - since - seconds
        return replace(_mean(pieces, seconds), unseen_seconds=unseen)

    def _piece(self, sample: Sample, since: float, now: float) -> Piece:
        activity, arrived, ends, mean_until = sample
        until = min(ends, now)
        since = max(arrived, since)
        age = (activity.age_seconds or 0.0) + max(until - arrived - self._look_seconds, 0.0)
        return Piece(activity, until - since, age, max(until - max(mean_until, since), 0.0))


def _mean(pieces: list[Piece], seconds: float) -> Activity:
    """Return the mean over the pieces, which last so long together; what one of them lacks is not
    known. Its age is that of the oldest."""
    values: dict[str, Any] = {}
    for name in ACTIVITY_RATIOS:
        ratios = [getattr(piece.activity, name) for piece in pieces]
        values[name] = None if None in ratios else _sum(ratios, pieces) / seconds
    for name in ACTIVITY_BYTES:
        rates: list[Any] = [_rate(piece.activity, name) for piece in pieces]
        values[name] = None if None in rates else _sum(rates, pieces)
    values["age_seconds"] = max(piece.age_seconds for piece in pieces)
    return replace(pieces[-1].activity, seconds=seconds, elapsed_cycles=None, **values)


def _rate(activity: Activity, name: str) -> float | None:
    moved: float | None = getattr(activity, name)
    return None if moved is None or activity.seconds <= 0 else moved / activity.seconds


def _sum(values: list[float], pieces: list[Piece]) -> float:
    """Return the sum of these values, one for each piece, x the length of their pieces."""
    return sum(value * piece.seconds for value, piece in zip(values, pieces, strict=True))


class HeldSource:
    """The counters of one GPU, out of what one `NodeCounters` holds."""

    def __init__(
        self,
        gpu: OpenedGpu,
        held: Callable[[int | None], Held | None],
        note: Callable[[OpenedGpu], None],
    ) -> None:
        """Take from ``held(gpu_instance)``, None while nothing is known of the share; ``note`` puts
        into the GPU's journal why that is so, or that it answers."""
        self._gpu = gpu
        self._held = held
        self._note = note
        self._begun: dict[int | None, Held] = {}
        """By share: what was taken from last."""
        self._read_at: float | None = None

    def measures(self, gpu_instance: int | None) -> bool:
        """Return whether an activity of this share is valid now."""
        held = self._held(gpu_instance)
        return held is not None and held.is_fresh(self._gpu.journal.now)

    def read(self, monotonic_seconds: float) -> Mapping[int | None, Activity]:
        """Return the mean since the last read, by share."""
        self._note(self._gpu)
        found: dict[int | None, Activity] = {}
        before, self._read_at = self._read_at, monotonic_seconds
        for share in self._gpu.gpu_instances:
            held = self._held(share)
            if held is not None and self._begun.get(share) is not held:
                self._begun[share] = held
                held.restart(monotonic_seconds if before is None else before)
            activity = None if held is None else held.take(monotonic_seconds)
            if activity is not None:
                found[share] = activity
        return found

    def close(self) -> None:
        """Do nothing: the buffers belong to the node's source."""
