# SPDX-License-Identifier: Apache-2.0
"""The state of a GPU in one word, and how good that is."""

from __future__ import annotations

from collections.abc import Callable

from exporter.web.wording.facts import Facts, Range, Saturation
from exporter.web.wording.recorded import ENDED
from exporter.web.wording.whose import is_unopened

MODERATE_STALL_RATIO = 0.05
HIGH_STALL_RATIO = 0.20
"""Below the first an exposed data stall is fine, above the second a GPU starves. The bands are
those of TensorFlow's profiler for input-bound programs."""
STALL_LEVELS = ((HIGH_STALL_RATIO, "high"), (MODERATE_STALL_RATIO, "some"), (0.0, "fine"))
"""The stall from which on each word holds."""
NEAR_ROOF_SATURATION = 0.8
"""A GPU is near its roof from this saturation on, whatever GPU model it is. What the best public
kernels reach does not enter: it is known for few GPU models, and as a share of the datasheet's
FLOP/s, which the power limit lowers; saturation is of cycles, and means the same on each."""
MOSTLY_RATIO = 0.5
LOOKS_BUSY_RATIO = 0.8
HARDLY_USED_RATIO = 0.2
"""A GPU that looks busy and whose saturation stays below this does little with its time."""
OFTEN_IDLE_RATIO = 0.5
"""Busy for less than this, a GPU that waits for its input is idle more often than not."""
LEAST_BUSY_RATIO = 0.01
"""Less activity than this counts as idle."""
WAITED_SECONDS = 2.0
"""A GPU that is idle for so long in a wait for data has lost 20 % of the last 10 s."""
HELD_IDLE_SECONDS = 10.0
"""A shorter pause of a GPU that is held is not reported."""

UP, DIVIDED, MEASURING, UNKNOWN = "up", "MIG", "measuring", "unknown"
UNOPENED = "unopened"
UNUSED = ("held idle", UNOPENED)
"""States of GPUs that are held or allocated, and not used."""
_DOWN = ("suspended", ENDED)
"""Why a GPU is down, where that does not mean that it is lost."""


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
    """Return whether it is allocated, and no process has opened it.

    What nobody holds does nothing: that need not be seen, and is not of an instance without
    counters.
    """
    unseen = one.idle is None and one.busy_ratio is None and one.saturation is None
    return is_unopened(one) and (unseen or _quiet(one))


def is_near_its_roof(saturation: Saturation | None) -> bool:
    """Return whether a GPU is near its roof, for certain."""
    return saturation is not None and saturation.ratio.lower >= NEAR_ROOF_SATURATION


def works_near_a_limit(saturation: Saturation | None) -> bool:
    """Return whether compute or memory limits a GPU for certain, be it not known which: together
    they explain more than half of its time."""
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
    # Before the roof: a pipe that is active all the time at half its clock reaches half its roof.
    ("clock-throttled", lambda one: one.limiter == "clock"),
    ("near its roof", lambda one: is_near_its_roof(one.saturation)),
    ("underused", _underused),
    ("often idle", _often_idle),
    ("busy", lambda one: one.busy_ratio is not None or one.saturation is not None),
)


def state(facts: Facts) -> str:
    """Return the first word whose rule holds; all rules are of the last 10 s.

    lost, suspended: not readable. ended: the recording it is in has ended. MIG: divided into
    instances, which have states of their own. measuring: its first interval has not ended.
    starved: idle for its data at least 20 % of the time,
    or in a wait for data that goes on for 2 s and more. held idle: idle for 10 s and more while
    someone holds it. unopened: idle, as far as it is known, held by nobody, and a scheduler has
    given it to somebody. free: idle, held by nobody. idle: idle otherwise. clock-throttled: limited
    by its clock. near its roof: at least 80 % saturated. underused: something ran 80 % of the time
    and reached less than 20 % of any roof. often idle: it did something, and lost most by being
    idle, or waited for its input and was busy less than half of the time. busy: none of these.
    """
    return next((name for name, holds in _RULES if holds(facts)), UNKNOWN)


def belies(limiter: str, state: str) -> bool:
    """Return whether a limiter is not named beside a state: of a starved GPU, that of the rest."""
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
    """Return how good a state is: good, warn, calm, bad or neutral."""
    return TONES.get(state, "neutral")


def stall_level(stall: Range) -> str:
    """Return how bad an exposed data stall is: fine, some or high; "" where its bounds differ."""
    lower, upper = (next(word for above, word in STALL_LEVELS if ratio >= above) for ratio in stall)
    return lower if lower == upper else ""
