# SPDX-License-Identifier: Apache-2.0
"""The node in two lines: how many GPUs are in each state, and the headline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from exporter.web.wording.facts import Facts, Range
from exporter.web.wording.numbers import cut, duration, fixed, percent, span
from exporter.web.wording.phrases import down_reason, limiter, memory_busy, reasons, title, use
from exporter.web.wording.recorded import ENDED
from exporter.web.wording.state import (
    DIVIDED,
    HIGH_STALL_RATIO,
    MEASURING,
    UNKNOWN,
    UNOPENED,
    UNUSED,
    state,
    tone,
)
from exporter.web.wording.whose import given, owner

_COUNTED = (
    *("near its roof", "busy", "often idle", "clock-throttled", "underused", "starved"),
    *("held idle", UNOPENED, "idle", MEASURING, "free", "suspended", ENDED, "lost", UNKNOWN),
)
"""The states, in the order of the line."""
_SAID = {
    "starved": "starved for data",
    ENDED: "of a recording that has ended",
    UNKNOWN: "not known",
}
"""By state: its words, where they are not its name."""
_SEVERAL = {"near its roof": "near their roof"}


def _by_state(found: Sequence[Facts]) -> dict[str, list[Facts]]:
    """Return the GPUs to count by state: those of instances instead of their divided GPU."""
    divided = {each.gpu for each in found if each.instance is not None}
    states: dict[str, list[Facts]] = {}
    for each in found:
        word = state(each)
        if word != DIVIDED or each.gpu not in divided:
            states.setdefault("free" if word == DIVIDED else word, []).append(each)
    return states


def totals(found: Sequence[Facts]) -> str:
    """Return the line that counts: 8 GPUs: 3 near their roof, 1 held idle for 2 h 10 min."""
    if not found:
        return "No GPUs"
    states = _by_state(found)
    counts = []
    for name in _COUNTED:
        these = states.get(name)
        if these:
            text = _SAID.get(name, name)
            said = text if len(these) == 1 else _SEVERAL.get(name, text)
            counts.append(f"{len(these)} {said}{_longest(these) if name in UNUSED else ''}")
    return f"{', '.join(_kinds(found))}: {', '.join(counts)}"


def _longest(found: Iterable[Facts]) -> str:
    """Return the longest time that one of these was not used; "" if not known."""
    known = [seconds for each in found if (seconds := _unused_seconds(each)) is not None]
    return f" for {duration(max(known))}" if known else ""


def _unused_seconds(one: Facts) -> float | None:
    return one.unopened_seconds if state(one) == UNOPENED else one.idle_seconds or 0.0


def _kinds(found: Sequence[Facts]) -> list[str]:
    instances = sum(each.instance is not None for each in found)
    numbers = ((len(found) - instances, "GPU"), (instances, "MIG instance"))
    return [f"{count} {name}" + ("s" if count > 1 else "") for count, name in numbers if count]


@dataclass(frozen=True, slots=True)
class Headline:
    """The sentence about the most expensive state."""

    text: str
    brief: str
    """The sentence without numbers that change every second, for screen readers."""
    state: str
    about: Facts | None = field(default=None, compare=False)
    """The GPU that it names."""


@dataclass(frozen=True, slots=True)
class _Sentence:
    state: str
    detail: Callable[[Facts], str] = lambda _: ""
    """The numbers of one GPU: ": 84 % saturated"."""
    who: Callable[[Facts], str] = lambda _: ""
    """The workload: " (bob-training)"."""
    weight: Callable[[Facts], float] = lambda _: 0.0
    """Of several GPUs the one with the highest weight is named."""
    most: str = " most"
    """After its name then."""
    one: str = ""
    """After the name of a single GPU: "is near its roof"; without it, "is" and the state."""
    several: str = ""
    """After the number of several: "are near their roof"; without it, "are" and the state."""
    alone: Callable[[Facts], str] = lambda _: ""
    """What follows the name of a single GPU; "" if that is `one`, `detail` and `who`."""

    def said(self, found: Sequence[Facts]) -> Headline:
        """Return the sentence about these GPUs."""
        most = max(found, key=lambda one: (self.weight(one), one.busy_ratio or 0.0))
        if len(found) == 1:
            one = self.one or f"is {self.state}"
            brief = f"{title(most)} {one}{self.who(most)}"
            text = self.alone(most) or f" {one}{self.detail(most)}{self.who(most)}"
            return Headline(f"{title(most)}{text}", brief, self.state, most)
        number = f"{' and '.join(_kinds(found))} {self.several or f'are {self.state}'}"
        detail = self.detail(most)
        if not detail:
            return Headline(number, number, self.state)
        named = f"{title(most)}{self.most}{detail}{self.who(most)}"
        return Headline(f"{number}; {named}", number, self.state, most)


def _high_stall(one: Facts) -> Range | None:
    stall = one.data_stall
    return stall if stall is not None and stall.upper >= HIGH_STALL_RATIO else None


def _stall(one: Facts) -> str:
    """Return the data stall of a starved GPU, else its idle time."""
    stall = _high_stall(one)
    if stall is not None:
        return span(*stall)
    return "" if one.idle_ratio is None else percent(one.idle_ratio)


def _starved(one: Facts) -> str:
    stall = _stall(one)
    if not stall:
        return f" waits for its data{_whose(one)}"
    return f" idle {stall} of the time, waiting for data{_whose(one)}"


def _stalled(one: Facts) -> float:
    stall = _high_stall(one)
    return (one.idle_ratio or 0.0) if stall is None else stall.lower


def _whose(one: Facts) -> str:
    """Return its training job and workload, else who holds it."""
    holder, whose = one.holder, owner(one)
    if one.job:
        workload = whose if one.workloads or (holder and holder.workload) else None
        return f" ({'; '.join(cut(each) for each in (one.job, workload) if each)})"
    who = whose or (None if holder is None else holder.command)
    return f" ({cut(who)})" if who else ""


def _by(one: Facts) -> str:
    """Return who holds it: by team-a/notebook-7 (python3, notebook)."""
    holder, whose = one.holder, owner(one)
    if holder is None:
        return f" ({cut(one.job)})" if one.job else ""
    what = [cut(each, 24) for each in (holder.command if whose else None, one.job) if each]
    if not one.job and holder.work_class != "other":
        what.append(holder.work_class)
    who = whose or holder.command
    return (f" by {cut(who)}" if who else "") + (f" ({', '.join(what)})" if what else "")


def _for(one: Facts) -> str:
    return f" for {duration(one.idle_seconds or 0.0)}"


def _reason(one: Facts) -> str:
    reason = down_reason(one)
    return f": {reason}" if reason else ""


def _lost_to_the_clock(one: Facts) -> str:
    said = []
    if one.clock_ratio is not None:
        said.append(f"{percent(one.clock_ratio)} of its time lost to lower clocks")
    if one.throttle_reasons:
        said.append(reasons(one))
    return f": {', '.join(said)}" if said else ""


def _used(one: Facts) -> str:
    used, reached = one.busy_ratio, one.saturation
    if used is None or reached is None:
        return ""
    return f": busy {percent(used)} of the time, {span(*reached.ratio)} saturated"


def _reached(one: Facts) -> str:
    if one.saturation is None:
        return _certain(one)
    limited = limiter(one, state(one)) if one.limiter in ("memory", "compute") else ""
    return ", ".join(filter(None, (f": {span(*one.saturation.ratio)} saturated", limited)))


def _certain(one: Facts) -> str:
    """Return the certain facts about a GPU of unknown saturation, and what is not measured."""
    said = filter(None, (use(one), memory_busy(one), _power(one)))
    return f": {', '.join(said)}; what its compute units do is not measured"


def _uncounted(one: Facts) -> str:
    return _whose(one) + _certain(one) if one.saturation is None else ""


def _power(one: Facts) -> str:
    watts, limit = one.power_watts, one.power_limit_watts
    if watts is None:
        return ""
    return f"{fixed(watts, 0)} of {fixed(limit, 0)} W" if limit else f"{fixed(watts, 0)} W"


def _idling(one: Facts) -> str:
    return "" if one.idle_ratio is None else f": {percent(one.idle_ratio)} of the time"


def _saturation(one: Facts) -> float:
    return 0.0 if one.saturation is None else one.saturation.ratio.lower


_SENTENCES: tuple[_Sentence, ...] = (
    _Sentence("lost", _reason, most=""),
    _Sentence(
        "starved",
        lambda one: f": idle {_stall(one)} of the time" if _stall(one) else "",
        _whose,
        _stalled,
        one="waits for its data",
        several="wait for their data",
        alone=_starved,
    ),
    _Sentence("held idle", _for, _by, lambda one: one.idle_seconds or 0.0, " longest"),
    _Sentence(
        UNOPENED,
        lambda one: _longest([one]),
        lambda one: f" ({given(one)})",
        lambda one: one.unopened_seconds or 0.0,
        " longest",
        "is given away, and nobody has opened it",
        "are given away, and nobody has opened them",
        lambda one: f" is {given(one)}, and nobody has opened it{_longest([one])}",
    ),
    _Sentence(
        "underused",
        _used,
        _whose,
        lambda one: -_saturation(one),
        one="looks busy and does little",
        several="look busy and do little",
    ),
    _Sentence("clock-throttled", _lost_to_the_clock, _whose, lambda one: one.clock_ratio or 0.0),
    _Sentence("near its roof", _reached, _whose, _saturation, several="are near their roof"),
    _Sentence("busy", _reached, _whose, _saturation, alone=_uncounted),
    _Sentence("often idle", _idling, _whose, lambda one: one.idle_ratio or 0.0),
    _Sentence("idle"),
    _Sentence("free"),
    _Sentence(MEASURING, one="is being measured", several="are being measured"),
    _Sentence("suspended"),
    _Sentence(
        ENDED,
        one="is of a recording that has ended",
        several="are of a recording that has ended",
    ),
    _Sentence(
        UNKNOWN,
        one="does not report how busy it is",
        several="do not report how busy they are",
    ),
)
"""The most expensive state first."""
STATE_ORDER = tuple(each.state for each in _SENTENCES)
TROUBLES = tuple(each for each in STATE_ORDER if tone(each) in ("warn", "bad"))
"""The states that ask for somebody."""


def headline(found: Sequence[Facts]) -> Headline:
    """Return the sentence about the most expensive state that any GPU is in."""
    states = _by_state(found)
    for sentence in _SENTENCES:
        if sentence.state in states:
            return sentence.said(states[sentence.state])
    nothing = "No GPU can be read"
    return Headline(nothing, nothing, UNKNOWN)


DOCUMENTATION = "https://github.com/roofline-exporter/roofline-exporter"
_DOCS = f"{DOCUMENTATION}/blob/main/docs"

PAGES = {
    "lost": "live-page.md#lost",
    "starved": "causes.md",
    "held idle": "live-page.md#held-idle",
    "unopened": "live-page.md#unopened",
    "underused": "live-page.md#underused",
    "clock-throttled": "live-page.md#clock-throttled",
    "near its roof": "live-page.md#near-its-roof",
    "often idle": "live-page.md#often-idle",
    ENDED: "recordings.md",
}
"""By state, a page below docs and its section."""
OTHERWISE = "live-page.md#the-node"


def advice_address(state: str) -> str:
    """Return the address of the documentation of a state."""
    return f"{_DOCS}/{PAGES.get(state, OTHERWISE)}"
