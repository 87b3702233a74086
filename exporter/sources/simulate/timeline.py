# SPDX-License-Identifier: Apache-2.0
"""The scenes of one simulated GPU over time, each of which starts a new wave."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from exporter.model.reading import XidRecord
from exporter.sources.simulate.physics import (
    IDLE_POWER_RATIO,
    Behaviour,
    Hardware,
    memory_clock_hertz,
    phase,
)
from exporter.sources.simulate.scenario import Scene
from exporter.sources.simulate.stories import STORIES, Holder
from exporter.sources.simulate.waves import NOTHING, Phase, Rates, Wave, mixed


@dataclass(frozen=True, slots=True)
class Act:
    """One scene on one board."""

    scene: Scene
    wave: Wave
    behaviour: Behaviour | None = None
    """None while the GPU is lost."""
    memory_clock_hertz: float = 0.0
    xid: int | None = None
    """Raised as the act begins."""


class Timeline:
    """Acts that are repeated in turn; all times are seconds since the timeline's start."""

    def __init__(self, board: Hardware, scenes: Sequence[Scene], key: int) -> None:
        self._acts = tuple(
            _act(board, scene, mixed(key, number)) for number, scene in enumerate(scenes)
        )
        self._length = sum(act.scene.seconds for act in self._acts)
        self._starts: list[float] = []
        self._before: list[Rates] = []
        """Integrals from the start of a turn to each act, and over a whole turn."""
        start, total = 0.0, NOTHING
        for act in self._acts:
            self._starts.append(start)
            self._before.append(total)
            start += act.scene.seconds
            if math.isfinite(act.scene.seconds):
                whole = act.wave.integral(act.scene.seconds)
                total = Rates._make(a + b for a, b in zip(total, whole, strict=True))
        self._before.append(total)
        self._idle_watts = IDLE_POWER_RATIO * board.power_watts

    def _locate(self, seconds: float) -> tuple[float, int, float]:
        """Return how many whole turns are over, the number of the act, and the time in it."""
        turns, rest = divmod(seconds, self._length)
        number = bisect(self._starts, rest) - 1
        return turns, number, rest - self._starts[number]

    def act(self, seconds: float) -> Act:
        """Return the act at this time."""
        return self._acts[self._locate(seconds)[1]]

    def started_acts(self, seconds: float) -> tuple[Act, ...]:
        """Return each act that has started by this time, in any turn."""
        turns, number, _ = self._locate(seconds)
        return self._acts if turns else self._acts[: number + 1]

    def at(self, seconds: float) -> Rates:
        """Return the rates at this time."""
        _, number, local = self._locate(seconds)
        return self._acts[number].wave.at(local)

    def integral(self, seconds: float) -> Rates:
        """Return everything that happened from the start to `seconds`."""
        turns, number, local = self._locate(seconds)
        within = self._acts[number].wave.integral(local)
        return Rates._make(
            turns * whole + before + rest
            for whole, before, rest in zip(
                self._before[-1], self._before[number], within, strict=True
            )
        )

    def mean_watts(self, since: float, until: float) -> float:
        """Return the mean power of an interval; before the start the board was idle."""
        before = self._idle_watts * max(0.0, -since)
        joules = self.integral(until).power - self.integral(max(0.0, since)).power
        return (joules + before) / (until - since)

    def xids(self, seconds: float, started_unix: float) -> dict[int, XidRecord]:
        """Return the Xids raised up to this time of a timeline that started at a Unix time."""
        found: dict[int, XidRecord] = {}
        for act, start in zip(self._acts, self._starts, strict=True):
            if act.xid is None or seconds < start:
                continue
            turns = (seconds - start) // self._length
            last = started_unix + start + (turns * self._length if turns else 0.0)
            earlier = found.get(act.xid, XidRecord(0, last))
            count = earlier.count + int(turns) + 1
            found[act.xid] = XidRecord(count, max(earlier.last_timestamp_seconds, last))
        return found


def is_training(holder: Holder | None) -> bool:
    """Return whether a GPU's holder is a training job."""
    return holder is not None and holder.work_class == "training"


def _act(board: Hardware, scene: Scene, key: int) -> Act:
    behave = STORIES[scene.story].behave
    if behave is None:
        wave = Wave((Phase(1.0, NOTHING, NOTHING),), key)
        return Act(scene, wave, xid=round(scene.parameters["xid"]))
    behaviour = behave(scene.parameters, board.sm_count)
    phases = [
        phase(board, behaviour, seconds, load, trains=is_training(scene.holder))
        for seconds, load in behaviour.beat
    ]
    memory_clock = memory_clock_hertz(board, awake=behaviour.awake)
    return Act(scene, Wave(phases, key), behaviour, memory_clock)
