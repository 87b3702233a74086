# SPDX-License-Identifier: Apache-2.0
"""Phrases about one GPU: limiter, use, stall, memory, power, idle time, holder, Xids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from exporter.model.reading import THROTTLE_REASONS, share_name
from exporter.model.xids import XIDS, describe
from exporter.web.wording.facts import WIDEST_BAND_RATIO, Facts, XidSeen
from exporter.web.wording.numbers import (
    cut,
    duration,
    fixed,
    gibibytes,
    model_name,
    percent,
    plain,
    span,
)
from exporter.web.wording.state import condition, hides_limiter, works_near_a_limit
from exporter.web.wording.state import stall_level as level_of
from exporter.web.wording.whose import given, is_unopened, owner

_LIMITERS = {
    "idle": "often idle",
    "input": "waits for its input",
    "clock": "limited by its clock",
    "unknown": "limiter not known",
}
"""Phrases of some limiters; others are "limited by"."""
_IDLE_STATES = ("held idle", "unopened", "free", "idle", "often idle")
"""States that say already that the GPU was idle."""
_LONGEST_WINDOW = 10
NOTABLE_IDLE_RATIO = 0.05
"""Less idle time than this is not mentioned."""
BASES = ("spec", "clock", "achievable")
_REASON = 160
NOT_KNOWN = "not known"
THROTTLE_WORDS = {
    "sw_power_cap": "software power cap",
    "hw_power_brake": "hardware power brake",
    "hw_slowdown": "hardware slowdown",
    "sw_thermal": "software thermal slowdown",
    "hw_thermal": "hardware thermal slowdown",
    "sync_boost": "sync boost",
    "board_limit": "board limit",
    "reliability": "reliability limit",
}
"""By `THROTTLE_REASONS`; NVML's own names, without their abbreviations."""


def title(facts: Facts) -> str:
    """Return "GPU 3", "GPU 2/1", or with the last digits of its UUID "GPU 3 (…9f0c)"."""
    digits = "" if facts.digits is None else f" (…{facts.digits})"
    return f"GPU {share_name(facts.gpu, facts.instance)}{digits}"


def name(facts: Facts) -> str:
    """Return the GPU model, or the profile of an instance."""
    if facts.instance is None:
        return model_name(facts.name)
    return cut(facts.profile or "MIG")


def window(found: Iterable[Facts]) -> str:
    """Return the window of all means together: of the last 10 s, of the last 3 to 10 s."""
    seen = [each.window_seconds for each in found if each.window_seconds is not None]
    seconds = [max(1, round(each)) for each in seen] or [_LONGEST_WINDOW]
    least, most = min(seconds), max(seconds)
    return f"of the last {most if least == most else f'{least} to {most}'} s"


def unusual_window(found: Iterable[Facts]) -> str | None:
    """Return the window of all means if it is one, and not 10 s: means of the last 3 s."""
    said = window(found)
    return None if " to " in said or said == window(()) else f"means {said}"


def down_reason(facts: Facts) -> str:
    """Return why a GPU is down, without naming its state."""
    reason, said = facts.down_reason or "", condition(facts)
    return cut("" if reason == said else reason.removeprefix(f"{said}: "), _REASON)


def use(facts: Facts) -> str:
    """Return the utilization: 99 % used."""
    return "use not known" if facts.busy_ratio is None else f"{percent(facts.busy_ratio)} used"


def saturation(facts: Facts) -> str:
    """Return the saturation, or its bounds: 0 to 43 % saturated."""
    if facts.saturation is None:
        return ", ".join(filter(None, ("saturation not known", memory_busy(facts))))
    return f"{span(*facts.saturation.ratio)} saturated"


def mfu(facts: Facts) -> str:
    """Return the model FLOPs utilization: MFU 41 %; "" where no job states its FLOPs."""
    return "" if facts.mfu_ratio is None else f"MFU {percent(facts.mfu_ratio)}"


def memory_busy(facts: Facts) -> str:
    """Return how busy its DRAM is, measured or likely: memory 30 to 45 % busy."""
    busy = facts.memory_busy
    return "" if busy is None else f"memory {span(*busy)} busy"


def limiter(facts: Facts, state: str) -> str:
    """Return what limited it for longest; "" if `state` says so already."""
    found = facts.limiter
    if found is None or hides_limiter(found, state) or (found == "idle" and state in _IDLE_STATES):
        return ""
    if found == "unknown" and works_near_a_limit(facts.saturation):
        return "limited by compute or memory"
    return _LIMITERS.get(found, f"limited by {cut(plain(found), 24)}")


def roof(facts: Facts) -> str:
    """Return how much of each roof is reached: 54 % (spec), 67 % (achievable)."""
    reached = facts.roof_ratio
    return ", ".join(f"{percent(reached[basis])} ({basis})" for basis in BASES if basis in reached)


def data_stall(facts: Facts) -> str:
    """Return the data stall or its bounds: 24 %, 12 to 31 %, at most 31 %."""
    if facts.data_stall is not None:
        return span(*facts.data_stall)
    if (most := most_stalled(facts)) is not None:
        return f"at most {percent(most)}"
    return "no report"


def most_stalled(facts: Facts) -> float | None:
    """Return the upper bound of a data stall from the job's wait and the GPU's idle time."""
    wait, idled = facts.data_wait_ratio, facts.idle_ratio
    return wait if wait is None or idled is None else min(wait, idled)


def stall_level(facts: Facts) -> str:
    """Return the level of the data stall: high; "" if it is not known."""
    return "" if facts.data_stall is None else level_of(facts.data_stall)


def memory(facts: Facts) -> str:
    """Return the memory in use, of what there is: 57/80 GiB; the host's as 57/120 GiB unified."""
    used, total = facts.memory_used_bytes, facts.memory_total_bytes
    if used is None:
        return NOT_KNOWN
    unit = "GiB unified" if facts.memory_unified else "GiB"
    return _of_limit(gibibytes(used), gibibytes(total) if total else None, unit)


def power(facts: Facts) -> str:
    """Return the power drawn, of the limit: 641/700 W."""
    watts, limit = facts.power_watts, facts.power_limit_watts
    if watts is None:
        return NOT_KNOWN if facts.instance is None else "of the board"
    return _of_limit(fixed(watts, 0), fixed(limit, 0) if limit else None, "W")


def _of_limit(value: str, limit: str | None, unit: str) -> str:
    return f"{value} {unit}" if limit is None else f"{value}/{limit} {unit}"


def idle(facts: Facts) -> str:
    """Return for how long it has been idle or unopened, else its share of idle time."""
    if is_unopened(facts) and facts.idle is not False:
        return _lasting("unopened", facts.unopened_seconds)
    if not facts.idle:
        often = facts.idle_ratio
        if often is not None and often >= NOTABLE_IDLE_RATIO:
            return f"idle {percent(often)}"
        return "idle time not known" if facts.idle is None else "not idle"
    seconds, kind = facts.idle_seconds, "held idle" if facts.held else "idle"
    return _lasting(kind, seconds)


def _lasting(kind: str, seconds: float | None) -> str:
    if seconds is None:
        return kind
    return f"{kind} {duration(seconds) if seconds >= 1 else 'just now'}"


def holder(facts: Facts) -> str:
    """Return who holds it, "team-a/train-0: python3 (training)", else to whom it is allocated."""
    found = facts.holder
    if found is not None:
        whose = owner(facts)
        names = (whose and cut(whose), found.command and cut(found.command, 24))
        who = ": ".join(filter(None, names))
        return f"{who or 'somebody'} ({cut(found.work_class, 16)})"
    if facts.held is None:
        return ""
    return "held" if facts.held else given(facts) or "held by nobody"


def throttled(facts: Facts) -> str:
    """Return why its clocks are throttled now: throttled: software power cap."""
    said = reasons(facts)
    return f"throttled: {said}" if said else ""


def reasons(facts: Facts) -> str:
    """Return the throttle reasons: software power cap."""
    return ", ".join(cut(throttle_words(each), 32) for each in facts.throttle_reasons)


def throttle_words(reason: str) -> str:
    """Return a throttle reason in words."""
    return THROTTLE_WORDS.get(reason, plain(reason))


def throttled_by(bits: int) -> list[str]:
    """Return the throttle reasons in a sample of the history, where each is a bit."""
    return [throttle_words(each) for bit, each in enumerate(THROTTLE_REASONS) if bits >> bit & 1]


CRITICAL_SECONDS = 3600.0
"""How long a critical Xid is shown with its meaning and advice."""
_CRITICAL = frozenset(code for code, xid in XIDS.items() if xid.tier == "critical")
"""A GPU with one of them cannot be relied on."""


def critical(facts: Facts) -> tuple[XidSeen, ...]:
    """Return the critical Xids of the last hour, the newest first."""
    found = (
        each
        for each in facts.xids
        if each.ago_seconds < CRITICAL_SECONDS and each.code in _CRITICAL
    )
    return tuple(sorted(found, key=lambda each: each.ago_seconds))


def seen(xid: XidSeen) -> str:
    """Return an Xid and how long ago it came: Xid 79, 5 min ago."""
    return f"Xid {xid.code}, {duration(xid.ago_seconds)} ago"


def explained(xid: XidSeen) -> str:
    """Return an Xid with its age, meaning and advice."""
    return f"{seen(xid)}: {describe(xid.code)}"


def notes(facts: Facts) -> list[str]:
    """Return the critical Xids of the last hour, explained, else the last Xid."""
    grave = critical(facts)
    if grave:
        return [explained(each) for each in grave]
    last = min(facts.xids, key=lambda each: each.ago_seconds, default=None)
    return [] if last is None else [seen(last)]


PARTS: Mapping[str, str] = MappingProxyType(
    {
        "saturated": "at its limit",
        "clock": "lost to the clock",
        "unsaturated": "busy, below its limit",
        "narrow": "too few SMs busy",
        "idle": "idle",
    }
)
"""By part of the time, best first."""
_NOTHING, _ALL = 0.0005, 0.995
"""Ratios that are written as 0 % and 100 %."""


def bounds_sentence(bounds: Mapping[str, tuple[float, float]]) -> str | None:
    """Return the bounds of the time parts; those that are too far apart to tell are left out."""
    said = [f"{PARTS[part]} {found}" for part in PARTS if (found := _said(bounds.get(part)))]
    return f"Where the time goes: {'; '.join(said)}." if said else None


def _said(bounds: tuple[float, float] | None) -> str | None:
    if bounds is None:
        return None
    lower, upper = bounds
    if percent(lower) == percent(upper):
        return percent(lower)
    if upper - lower > WIDEST_BAND_RATIO:
        return None
    if upper >= _ALL:
        return f"at least {percent(lower)}"
    return f"at most {percent(upper)}" if lower < _NOTHING else span(lower, upper)
