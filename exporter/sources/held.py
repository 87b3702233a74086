# SPDX-License-Identifier: Apache-2.0
"""Activities that arrive in their own time, held until the fleet asks for them.

A dcgm-exporter, a hostengine and CUPTI hand over means of their own intervals, which neither begin
nor end with those of the fleet. Each stands from its arrival until the next one: what a round gets
is the mean of what stood since the round before. Totals are thereby exact and lag by one interval
of the source.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

from exporter.model.reading import Activity
from exporter.sources.source import OpenedGpu

LEAST_COVERED_RATIO = 0.9
"""A round of which less is covered was not measured."""
MOST_HELD = 4096
"""Activities of one share that nobody takes; the oldest are dropped."""

_RATIOS = (
    *("engine", "sm", "occupancy", "dram", "tensor", "fp64", "fp32", "fp16", "integer"),
    *("fma", "tensor_fp16"),
    *("hmma", "imma", "dmma", "dfma", "encoder", "decoder", "jpeg", "ofa"),
)
_BYTES = tuple(field.name for field in fields(Activity) if field.name.endswith("_bytes"))


class Standing(NamedTuple):
    """An activity that stands from one monotonic time until another, or until the next one."""

    activity: Activity
    """Its bytes are those of its own `seconds`."""
    since: float
    until: float


class Held:
    """What arrives of one share of a GPU; one thread puts, another takes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._standing: deque[Standing] = deque(maxlen=MOST_HELD)
        self._taken_until: float | None = None

    def put(self, activity: Activity, now: float, longest_seconds: float) -> None:
        """Let `activity` stand from now on, for `longest_seconds` unless another one comes."""
        self.end(now)
        with self._lock:
            self._standing.append(Standing(activity, now, now + longest_seconds))

    def end(self, now: float) -> None:
        """Let nothing stand from now on."""
        with self._lock:
            if self._standing:
                last = self._standing[-1]
                self._standing[-1] = last._replace(until=max(min(last.until, now), last.since))

    def is_fresh(self, now: float) -> bool:
        """Return whether an activity stands now."""
        with self._lock:
            return bool(self._standing) and self._standing[-1].until > now

    def restart(self, now: float) -> None:
        """Let the next `take` begin now."""
        with self._lock:
            self._taken_until = now

    def take(self, now: float) -> Activity | None:
        """Return the mean of what stood since the last call; None if that was for too little time,
        and on the first call.
        """
        with self._lock:
            since, self._taken_until = self._taken_until, now
            if since is None or now <= since:
                return None
            pieces = [
                (standing.activity, min(standing.until, now) - max(standing.since, since))
                for standing in self._standing
                if standing.since < now and standing.until > since
            ]
            while len(self._standing) > 1 and self._standing[0].until <= now:
                self._standing.popleft()
        seconds = sum(length for _, length in pieces)
        if not pieces or seconds < LEAST_COVERED_RATIO * (now - since):
            return None
        return _mean(pieces, seconds)


def _mean(pieces: list[tuple[Activity, float]], seconds: float) -> Activity:
    """Return the mean over pieces of (activity, seconds); what one of them lacks is not known."""
    newest = pieces[-1][0]
    if len(pieces) == 1 and not any(getattr(newest, name) is not None for name in _BYTES):
        return replace(newest, seconds=seconds, elapsed_cycles=None)
    values: dict[str, Any] = {}
    for name in _RATIOS:
        parts = [(getattr(activity, name), length) for activity, length in pieces]
        known = all(value is not None for value, _ in parts)
        values[name] = sum(value * length for value, length in parts) / seconds if known else None
    for name in _BYTES:
        rates = [(getattr(activity, name), activity.seconds, length) for activity, length in pieces]
        known = all(value is not None and own > 0 for value, own, _ in rates)
        values[name] = sum(value / own * length for value, own, length in rates) if known else None
    age = max((activity.age_seconds or 0.0 for activity, _ in pieces), default=None)
    return replace(newest, seconds=seconds, elapsed_cycles=None, age_seconds=age, **values)


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

    def measures(self, gpu_instance: int | None) -> bool:
        """Return whether this source has lately given activities of this share."""
        held = self._held(gpu_instance)
        return held is not None and held.is_fresh(self._gpu.journal.now)

    def read(self, monotonic_seconds: float) -> Mapping[int | None, Activity]:
        """Return what stood since the last read, by share."""
        self._note(self._gpu)
        found: dict[int | None, Activity] = {}
        for share in self._gpu.gpu_instances:
            held = self._held(share)
            if held is None:
                continue
            if self._begun.get(share) is not held:
                self._begun[share] = held
                held.restart(monotonic_seconds)
                continue
            activity = held.take(monotonic_seconds)
            if activity is not None:
                found[share] = activity
        return found

    def close(self) -> None:
        """Nothing is held for one GPU alone."""
