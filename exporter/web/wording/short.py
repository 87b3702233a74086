# SPDX-License-Identifier: Apache-2.0
"""Short phrases for the columns of ``status``; None is "not known"."""

from __future__ import annotations

import re

from exporter.web.wording.facts import Facts, Range
from exporter.web.wording.numbers import fixed, gibibytes, percent_number
from exporter.web.wording.phrases import NOT_KNOWN, NOTABLE_IDLE_RATIO, down_reason, most_stalled
from exporter.web.wording.state import condition, hides_limiter, state, works_near_a_limit
from exporter.web.wording.whose import given, is_unopened, owner

_EN_DASH = "\N{EN DASH}"


def duration(seconds: float) -> str:
    """Return a length of time in two units at most: 12s, 5m03s, 1h02m, 3d04h."""
    whole = int(seconds)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days:
        return f"{days}d{hours % 24:02}h"
    if hours:
        return f"{hours}h{minutes % 60:02}m"
    return f"{minutes}m{whole % 60:02}s" if minutes else f"{whole}s"


def _largest_unit(seconds: float) -> str:
    """Return a length of time in one unit: 12s, 5m, 1h, 3d."""
    found = re.match(r"\d+\D", duration(seconds))
    return found[0] if found else "0s"


def _bounds(found: Range) -> str:
    lower = fixed(100 * found.lower, 0)
    if lower == "0":  # 0.4 % is not 0 %
        lower = percent_number(found.lower)
    return f"{lower}{_EN_DASH}{fixed(100 * found.upper, 0)} %"


def ratio(value: float | None) -> str | None:
    """Return a ratio in whole percents: 61 %."""
    return None if value is None else f"{fixed(100 * value, 0)} %"


def down(facts: Facts) -> str | None:
    """Return why it is down: "lost: a driver call does not return"; None while up."""
    if facts.down_reason is None:
        return None
    return ": ".join(filter(None, (condition(facts), down_reason(facts))))


def saturation(facts: Facts) -> str | None:
    """Return a measured saturation as one number, an estimate as bounds; of a GPU that is known to
    work at least "not known"."""
    found = facts.saturation
    if found is None:
        return None if facts.busy_ratio is None or facts.divided else NOT_KNOWN
    return ratio(found.ratio.lower) if found.measured else _bounds(found.ratio)


def limiter(facts: Facts) -> str | None:
    """Return the limiter; "often idle" for a GPU that worked but was limited by idle time."""
    if facts.limiter is not None and hides_limiter(facts.limiter, state(facts)):
        return None
    if facts.limiter == "unknown" and works_near_a_limit(facts.saturation):
        return "compute or memory"
    return "often idle" if facts.limiter == "idle" and facts.idle is False else facts.limiter


def data_stall(facts: Facts) -> str | None:
    """Return the data stall: 24 %, bounds, or <= 31 % where only the job's wait is known."""
    stall = facts.data_stall
    if stall is not None:
        return ratio(stall.lower) if stall.lower == stall.upper else _bounds(stall)
    wait = ratio(most_stalled(facts))
    return None if wait is None else f"<= {wait}"


def _of_limit(value: str | None, limit: str | None) -> str | None:
    return None if value is None and limit is None else f"{value or '-'}/{limit or '-'}"


def memory(facts: Facts) -> str | None:
    """Return the memory in use, of what there is, in GiB: 57/80; the host's as 57/120 unified."""
    sizes = (facts.memory_used_bytes, facts.memory_total_bytes)
    found = _of_limit(*(None if size is None else gibibytes(size) for size in sizes))
    return f"{found} unified" if found and facts.memory_unified else found


def power(facts: Facts) -> str | None:
    """Return the power drawn, of the limit, in watts: 641/700."""
    watts, limit = facts.power_watts, facts.power_limit_watts
    return _of_limit(
        None if watts is None else fixed(watts, 0), None if limit is None else fixed(limit, 0)
    )


def temperature(facts: Facts) -> str | None:
    """Return the temperature: 61 °C."""
    celsius = facts.temperature_celsius
    return None if celsius is None else f"{fixed(celsius, 0)} °C"


def idle(facts: Facts) -> str | None:
    """Return for how long it has been idle or unopened: 1h01m held, 1h given; else 40 % idle."""
    if is_unopened(facts) and facts.idle is not False:
        seconds = facts.unopened_seconds
        return "given" if seconds is None else f"{_largest_unit(seconds)} given"
    if not facts.idle:
        if facts.idle_ratio is not None and facts.idle_ratio >= NOTABLE_IDLE_RATIO:
            return f"{ratio(facts.idle_ratio)} idle"
        return None if facts.idle is None else "not idle"
    length = "idle" if facts.idle_seconds is None else duration(facts.idle_seconds)
    return length if facts.held is None else f"{length} {'held' if facts.held else 'free'}"


def held_idle(facts: Facts) -> str | None:
    """Return the total held idle time: 3d04h."""
    seconds = facts.held_idle_seconds
    return None if seconds is None else duration(max(0.0, seconds))


def holder(facts: Facts) -> str | None:
    """Return who holds it, "team-a/train-0: python3 (training)", or "given to team-b/train-1"."""
    found = facts.holder
    if found is None:
        return given(facts) or None
    who = ": ".join(filter(None, (owner(facts), found.command)))
    return " ".join(filter(None, (who, f"({found.work_class})")))
