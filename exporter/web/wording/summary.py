# SPDX-License-Identifier: Apache-2.0
"""The whole node: how many GPUs are in which state, what matters most, what is not real."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from exporter.web.wording.facts import Facts
from exporter.web.wording.numbers import LONG, cut, duration
from exporter.web.wording.phrases import down_reason, label
from exporter.web.wording.state import DIVIDED, UNKNOWN, state

_COUNTED = {
    "near its roof": "near its roof",
    "busy": "busy",
    "often idle": "often idle",
    "clock-throttled": "clock-throttled",
    "underused": "underused",
    "starved": "starved for data",
    "held idle": "held idle",
    "idle": "idle",
    "free": "free",
    "suspended": "suspended",
    "lost": "lost",
    UNKNOWN: "not known",
}
"""In this order."""
_SEVERAL = {"near its roof": "near their roof"}
_UNREAL = {
    "simulate": "This data is simulated.",
    "replay": "This data is a recording, played back.",
}


@dataclass(frozen=True, slots=True)
class _Counted:
    facts: Facts
    state: str


def _counted(found: Sequence[Facts]) -> list[_Counted]:
    """Return what has a state to count: instances in place of the GPU that is divided into them."""
    divided = {each.gpu for each in found if each.instance is not None}
    states = [_Counted(each, state(each)) for each in found]
    return [
        _Counted(each.facts, "free") if each.state == DIVIDED else each
        for each in states
        if each.state != DIVIDED or each.facts.gpu not in divided
    ]


def totals(found: Sequence[Facts]) -> str:
    """Return the line that counts: 8 GPUs: 3 near their roof, 1 held idle for 2 h 10 min, 1 lost.

    `found` has every GPU, and every instance of those that are divided.
    """
    if not found:
        return "No GPUs"
    counted = _counted(found)
    numbers = Counter(each.state for each in counted)
    counts = []
    for name, text in _COUNTED.items():
        number = numbers[name]
        if not number:
            continue
        said = text if number == 1 else _SEVERAL.get(name, text)
        how_long = f" for {duration(_longest(counted, name))}" if name == "held idle" else ""
        counts.append(f"{number} {said}{how_long}")
    return f"{', '.join(_kinds(found))}: {', '.join(counts)}"


def _longest(counted: Iterable[_Counted], name: str) -> float:
    return max(each.facts.idle_seconds or 0.0 for each in counted if each.state == name)


def _kinds(found: Sequence[Facts]) -> list[str]:
    instances = sum(each.instance is not None for each in found)
    numbers = ((len(found) - instances, "GPU"), (instances, "MIG instance"))
    return [f"{count} {name}" + ("s" if count > 1 else "") for count, name in numbers if count]


def _these(found: Sequence[Facts]) -> str:
    """Return how many there are of which kind: 2 GPUs and 8 MIG instances."""
    return " and ".join(_kinds(found))


def _lost(found: Sequence[Facts]) -> str:
    if len(found) > 1:
        return f"{_these(found)} are lost"
    reason = down_reason(found[0])
    return f"{label(found[0])} is lost" + (f": {reason}" if reason else "")


def _starved(found: Sequence[Facts]) -> str:
    if len(found) > 1:
        return f"{_these(found)} wait for their data"
    return f"{label(found[0])} waits for its data"


def _held_idle(found: Sequence[Facts]) -> str:
    longest = max(found, key=lambda each: each.idle_seconds or 0.0)
    length = duration(longest.idle_seconds or 0.0)
    if len(found) > 1:
        return f"{_these(found)} are held idle, the longest for {length}"
    holder = longest.holder
    who = None if holder is None else holder.owner or holder.command
    by = f" by {cut(who)}" if who else ""
    return f"{label(longest)} is held idle{by} for {length}"


def _plain(one: str, several: str) -> Callable[[Sequence[Facts]], str]:
    return lambda found: (
        f"{label(found[0])} {one}" if len(found) == 1 else f"{_these(found)} {several}"
    )


_SENTENCES: tuple[tuple[str, Callable[[Sequence[Facts]], str]], ...] = (
    ("lost", _lost),
    ("starved", _starved),
    ("held idle", _held_idle),
    ("underused", _plain("looks busy and does little", "look busy and do little")),
    ("clock-throttled", _plain("is clock-throttled", "are clock-throttled")),
    ("near its roof", _plain("is near its roof", "are near their roof")),
    ("busy", _plain("is busy", "are busy")),
    ("often idle", _plain("is often idle", "are often idle")),
    ("idle", _plain("is idle", "are idle")),
    ("free", _plain("is free", "are free")),
    ("suspended", _plain("is suspended", "are suspended")),
    (UNKNOWN, _plain("does not report how busy it is", "do not report how busy they are")),
)
"""The most expensive state first."""


def headline(found: Sequence[Facts]) -> str:
    """Return the sentence that matters most: about the most expensive state that any GPU is in.

    Where nothing is lost, it says what goes well.
    """
    counted = _counted(found)
    for name, sentence in _SENTENCES:
        these = [each.facts for each in counted if each.state == name]
        if these:
            return sentence(these)
    return "No GPU can be read"


def unreal(sources: Collection[str]) -> str | None:
    """Return the notice that data is not of real GPUs; None where all of it is.

    `sources` are those of the GPUs' identities.
    """
    other = sorted({*sources} - {"nvml"})
    said = [_UNREAL.get(each, f"This data comes from {cut(each, LONG)}.") for each in other]
    return " ".join(("Not real GPUs.", *said)) if said else None
