# SPDX-License-Identifier: Apache-2.0
"""The state of a GPU in one word, of the node in one line, and the sentence that matters most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from exporter.web.words import duration

MODERATE_STALL_RATIO = 0.05
HIGH_STALL_RATIO = 0.20
"""Below the first an exposed stall is fine, above the second a GPU starves. The bands are those of
TensorFlow's profiler for input-bound programs."""
SATURATED_RATIO = 0.8
"""Of what the hardware can do; ``status`` paints it as good from here on."""
SATURATED_OF_ACHIEVABLE_RATIO = 0.75
"""Of what the best public kernels reach."""
LOOKS_BUSY_RATIO = 0.8
HARDLY_USED_RATIO = 0.2
"""A GPU that looks busy and whose saturation stays below this does little with its time."""
OFTEN_IDLE_RATIO = 0.5
"""Busy for less than this, a GPU that waits for its input is more often idle than not."""
SOMETHING_RATIO = 0.01
"""Less activity than this is none."""
HELD_IDLE_SECONDS = 10.0
"""A shorter pause of a GPU that is held is not worth a word."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What decides about the word; None is not known."""

    state: str
    """up, suspended or lost."""
    busy: float | None = None
    """Share of time in which something ran."""
    saturation_lower: float | None = None
    saturation_upper: float | None = None
    of_achievable: float | None = None
    limiter: str | None = None
    stall: float | None = None
    """Exposed data stall: measured, else what it is at least."""
    held: bool | None = None
    idle_seconds: float | None = None
    """For how long it was seen to be idle; 0 while it is not."""


def _starved(one: Standing) -> bool:
    if one.stall is None:
        return one.limiter == "input"
    return one.stall >= HIGH_STALL_RATIO


def _quiet(one: Standing) -> bool:
    if one.idle_seconds is not None:
        return one.idle_seconds > 0
    return one.limiter == "idle" and one.busy is not None and one.busy < SOMETHING_RATIO


def _held_idle(one: Standing) -> bool:
    seconds = one.idle_seconds
    return bool(one.held) and seconds is not None and seconds >= HELD_IDLE_SECONDS


def _saturated(one: Standing) -> bool:
    lower, achieved = one.saturation_lower, one.of_achievable
    return (lower is not None and lower >= SATURATED_RATIO) or (
        achieved is not None and achieved >= SATURATED_OF_ACHIEVABLE_RATIO
    )


def _underused(one: Standing) -> bool:
    busy, upper = one.busy, one.saturation_upper
    return (
        busy is not None
        and busy >= LOOKS_BUSY_RATIO
        and upper is not None
        and upper < HARDLY_USED_RATIO
    )


def _often_idle(one: Standing) -> bool:
    waits = one.limiter == "input" and one.busy is not None and one.busy < OFTEN_IDLE_RATIO
    return waits or one.limiter == "idle"


_RULES: tuple[tuple[str, Callable[[Standing], bool]], ...] = (
    ("lost", lambda one: one.state == "lost"),
    ("suspended", lambda one: one.state == "suspended"),
    ("starved", _starved),
    ("held idle", _held_idle),
    ("free", lambda one: _quiet(one) and one.held is False),
    ("idle", _quiet),
    # Before saturated: a pipe that is active all the time at half its clock reaches half its roof.
    ("held back", lambda one: one.limiter == "clock"),
    ("saturated", _saturated),
    ("underused", _underused),
    ("often idle", _often_idle),
    ("busy", lambda one: one.busy is not None or one.saturation_upper is not None),
)
UNKNOWN = "unknown"


def word(standing: Standing) -> str:
    """Return the first word whose rule holds.

    lost, suspended: not readable. starved: idle for its data at least 20 % of the time. held idle:
    idle for 10 s and more while someone holds it. free: idle, held by nobody. idle: idle otherwise.
    held back: limited by its clock. saturated: at least 80 % of the hardware's roof, or 75 % of
    what the best public kernels reach. underused: something ran 80 % of the time and reached less
    than 20 % of any roof. often idle: it did something, and lost most by being idle, or waited for
    its input and was busy less than half of the time. busy: none of these.
    """
    return next((name for name, holds in _RULES if holds(standing)), UNKNOWN)


@dataclass(frozen=True, slots=True)
class Told:
    """One GPU or instance as the sentences tell of it."""

    label: str
    """GPU 3, or GPU 2/1 for an instance."""
    word: str
    idle_seconds: float | None = None
    holder: str | None = None
    reason: str | None = None

    @property
    def is_instance(self) -> bool:
        """Whether it is a MIG instance."""
        return "/" in self.label


_COUNTED = {
    "saturated": "saturated",
    "busy": "busy",
    "often idle": "often idle",
    "held back": "held back by the clock",
    "underused": "underused",
    "starved": "starved for data",
    "held idle": "held idle",
    "idle": "idle",
    "free": "free",
    "suspended": "suspended",
    "lost": "lost",
    UNKNOWN: "not known",
}


def totals(gpus: int, told: Sequence[Told]) -> str:
    """Return the line that counts: 8 GPUs: 3 saturated, 1 held idle for 2 h 10 min, 1 lost."""
    found = Counter(each.word for each in told)
    counts = []
    for name, text in _COUNTED.items():
        if not found[name]:
            continue
        longest = max((each.idle_seconds or 0.0 for each in told if each.word == name), default=0.0)
        how_long = f" for {duration(longest)}" if name == "held idle" else ""
        counts.append(f"{found[name]} {text}{how_long}")
    what = ", ".join(_counted(gpus, sum(each.is_instance for each in told))) or "0 GPUs"
    return f"{what}: {', '.join(counts)}" if counts else what


def _counted(gpus: int, instances: int) -> list[str]:
    found = ((gpus, "GPU"), (instances, "instance"))
    return [f"{count} {name}" + ("s" if count > 1 else "") for count, name in found if count]


def _these(found: Sequence[Told]) -> str:
    """Return how many there are of which kind: 2 GPUs and 8 instances."""
    instances = sum(each.is_instance for each in found)
    return " and ".join(_counted(len(found) - instances, instances))


def _lost(found: Sequence[Told]) -> str:
    if len(found) > 1:
        return f"{_these(found)} are lost"
    reason = (found[0].reason or "lost").removeprefix("lost: ")
    return f"{found[0].label} is lost" + ("" if reason == "lost" else f": {reason}")


def _starved_for(found: Sequence[Told]) -> str:
    if len(found) > 1:
        return f"{_these(found)} wait for their data"
    return f"{found[0].label} waits for its data"


def _held_for(found: Sequence[Told]) -> str:
    longest = max(found, key=lambda each: each.idle_seconds or 0.0)
    length = duration(longest.idle_seconds or 0.0)
    if len(found) > 1:
        return f"{_these(found)} are held idle, the longest for {length}"
    by = f" by {longest.holder}" if longest.holder else ""
    return f"{longest.label} is held idle{by} for {length}"


def _plain(one: str, several: str) -> Callable[[Sequence[Told]], str]:
    return lambda found: (
        f"{found[0].label} {one}" if len(found) == 1 else f"{_these(found)} {several}"
    )


_SENTENCES: tuple[tuple[str, Callable[[Sequence[Told]], str]], ...] = (
    ("lost", _lost),
    ("starved", _starved_for),
    ("held idle", _held_for),
    ("underused", _plain("looks busy and does little", "look busy and do little")),
    ("held back", _plain("is held back by its clock", "are held back by their clocks")),
    ("saturated", _plain("is saturated", "are saturated")),
    ("busy", _plain("is busy", "are busy")),
    ("often idle", _plain("is often idle", "are often idle")),
    ("idle", _plain("is idle", "are idle")),
    ("free", _plain("is free", "are free")),
    ("suspended", _plain("is suspended", "are suspended")),
    (UNKNOWN, _plain("does not tell how busy it is", "do not tell how busy they are")),
)
"""By what costs most."""


def headline(told: Iterable[Told]) -> str:
    """Return the sentence that matters most: of the words that are there, the one that costs most.

    Where all that there is to say is good, it is said of all.
    """
    listed = list(told)
    for name, sentence in _SENTENCES:
        found = [each for each in listed if each.word == name]
        if found:
            return sentence(found)
    return "No GPU can be read"
