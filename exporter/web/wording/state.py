# SPDX-License-Identifier: Apache-2.0
"""The state of a GPU in one word, and its tone."""

from __future__ import annotations

from collections.abc import Callable

from exporter.web.wording.facts import Facts, Range, Saturation
from exporter.web.wording.recorded import ENDED
from exporter.web.wording.whose import is_unopened

MODERATE_STALL_RATIO = 0.05
HIGH_STALL_RATIO = 0.20
"""Below the first a data stall is fine, above the second a GPU starves. The bands are those of
TensorFlow's profiler for input-bound programs."""
STALL_LEVELS = ((HIGH_STALL_RATIO, "high"), (MODERATE_STALL_RATIO, "some"), (0.0, "fine"))
"""The lowest data stall of each level."""
NEAR_ROOF_SATURATION = 0.8
"""The saturation at which a GPU of any model is near its roof. It is not scaled by what the best
public kernels reach, which is known for few models, and of FLOP/s, not of cycles."""
MOSTLY_RATIO = 0.5
LOOKS_BUSY_RATIO = 0.8
HARDLY_USED_RATIO = 0.2
"""A GPU that looks busy and has less saturation than this is underused."""
OFTEN_IDLE_RATIO = 0.5
"""A GPU that waits for its input and is busy for less than this is often idle."""
LEAST_BUSY_RATIO = 0.01
"""A GPU that is busy for less than this is idle."""
WAITED_SECONDS = 2.0
"""A wait for data of this length is 20 % of the last 10 s."""
HELD_IDLE_SECONDS = 10.0
"""A shorter pause of a GPU that is held is not reported."""

UP, DIVIDED, MEASURING, UNKNOWN = "up", "MIG", "measuring", "unknown"
UNOPENED = "unopened"
UNUSED = ("held idle", UNOPENED)
"""States of GPUs that are held or allocated but not used."""
_DOWN = ("suspended", ENDED)
"""Reasons for being down that are states of their own; any other is "lost"."""


def condition(facts: Facts) -> str:
    """Return whether it can be read: up, suspended, ended (its recording) or lost."""
    reason = facts.down_reason
    if reason is None:
        return UP
    return next((each for each in _DOWN if reason.startswith(each)), "lost")


def _starved(one: Facts) -> bool:
    if one.data_stall is not None and one.data_stall.lower >= HIGH_STALL_RATIO:
        return True
    if one.input_ratio is not None and one.input_ratio >= HIGH_STALL_RATIO:
        return True
    if one.waiting_for_data:
        return bool(one.idle_seconds is not None and one.idle_seconds >= WAITED_SECONDS)
    return one.data_stall is None and one.limiter == "input"


def _quiet(one: Facts) -> bool:
    if one.idle or (one.idle is False and one.limiter is not None):
        return one.idle
    return (
        one.limiter in (None, "idle", "unknown")
        and one.busy_ratio is not None
        and one.busy_ratio < LEAST_BUSY_RATIO
    )


def _held_idle(one: Facts) -> bool:
    seconds = one.idle_seconds
    return bool(one.held) and seconds is not None and seconds >= HELD_IDLE_SECONDS


def _unopened(one: Facts) -> bool:
    """Return whether it is allocated and idle without a process; use need not be known for that."""
    unseen = one.idle is None and one.busy_ratio is None and one.saturation is None
    return is_unopened(one) and (unseen or _quiet(one))


def is_near_its_roof(saturation: Saturation | None) -> bool:
    """Return whether the lower bound of the saturation is near the roof."""
    return saturation is not None and saturation.ratio.lower >= NEAR_ROOF_SATURATION


def works_near_a_limit(saturation: Saturation | None) -> bool:
    """Return whether compute or memory, together, certainly limit a GPU most of the time."""
    return saturation is not None and saturation.ratio.lower > MOSTLY_RATIO


def _underused(one: Facts) -> bool:
    return (
        one.busy_ratio is not None
        and one.busy_ratio >= LOOKS_BUSY_RATIO
        and one.saturation is not None
        and one.saturation.ratio.upper < HARDLY_USED_RATIO
    )


def _often_idle(one: Facts) -> bool:
    busy = one.busy_ratio
    waits = one.limiter == "input" and busy is not None and busy < OFTEN_IDLE_RATIO
    return waits or one.limiter == "idle"


_RULES: tuple[tuple[str, Callable[[Facts], bool]], ...] = (
    ("lost", lambda one: condition(one) == "lost"),
    *((each, lambda one, each=each: condition(one) == each) for each in _DOWN),
    (DIVIDED, lambda one: one.divided),
    (MEASURING, lambda one: one.measuring),
    ("starved", _starved),
    ("held idle", _held_idle),
    (UNOPENED, _unopened),
    ("free", lambda one: _quiet(one) and one.held is False),
    ("idle", _quiet),
    # Before the roof: a pipe that is always active at half its clock reaches half of its roof.
    ("clock-throttled", lambda one: one.limiter == "clock"),
    ("near its roof", lambda one: is_near_its_roof(one.saturation)),
    ("underused", _underused),
    ("often idle", _often_idle),
    ("busy", lambda one: one.busy_ratio is not None or one.saturation is not None),
)


def state(facts: Facts) -> str:
    """Return the first word whose rule holds; all rules are of the last 10 s."""
    return next((name for name, holds in _RULES if holds(facts)), UNKNOWN)


def hides_limiter(limiter: str, state: str) -> bool:
    """Return whether to leave the limiter out: beside "starved" it is that of the rest."""
    return state == MEASURING or (state == "starved" and limiter not in ("idle", "input"))


TONES = {
    "near its roof": "good",
    "busy": "good",
    "underused": "warn",
    "starved": "warn",
    "clock-throttled": "warn",
    "held idle": "warn",
    UNOPENED: "warn",
    DIVIDED: "calm",
    MEASURING: "calm",
    "often idle": "calm",
    "idle": "calm",
    "free": "calm",
    "suspended": "calm",
    ENDED: "calm",
    "lost": "bad",
}


def tone(state: str) -> str:
    """Return the tone of a state: good, warn, calm, bad or neutral."""
    return TONES.get(state, "neutral")


def stall_level(stall: Range) -> str:
    """Return the level of a data stall: fine, some or high; "" if its bounds differ in level."""
    lower, upper = (next(word for above, word in STALL_LEVELS if ratio >= above) for ratio in stall)
    return lower if lower == upper else ""
