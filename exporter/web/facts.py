# SPDX-License-Identifier: Apache-2.0
"""What one row of the page says in words: made here, for the first paint and for the stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exporter.web.standing import HIGH_STALL_RATIO, MODERATE_STALL_RATIO
from exporter.web.words import (
    bytes_rate,
    cut,
    duration,
    fixed,
    flops,
    gibibytes,
    intensity,
    percent,
    plain,
    product_name,
    span,
)

Row = dict[str, Any]
Raw = Mapping[str, Any]
"""What is known of a row, from which it is made."""

STALL_LEVELS = ((HIGH_STALL_RATIO, "high"), (MODERATE_STALL_RATIO, "some"), (0.0, "fine"))
"""Exposed data stall above which a word holds."""

TONES = {
    "saturated": "good",
    "busy": "good",
    "underused": "warn",
    "starved": "warn",
    "MIG": "calm",
    "held back": "warn",
    "held idle": "warn",
    "often idle": "calm",
    "idle": "calm",
    "free": "calm",
    "suspended": "calm",
}
"""How a word looks; any other is bad where the GPU is not up, else neutral."""
GLYPHS = {"good": "●", "warn": "▲", "calm": "○", "bad": "✕", "neutral": "◆"}
LIMITS = {
    "idle": "often idle",
    "input": "waits for its input",
    "clock": "limited by its clock",
    "unknown": "limiter not known",
}
"""What is said of a limiter; of any other that it limits."""
_IDLE_WORDS = ("held idle", "free", "idle", "often idle")
"""Words beside which it need not be said that an interval was often idle."""
BASES = ("spec", "clock", "achievable")
_REASON = 160
RATIOS = (
    *("utilization", "saturation_lower", "saturation_upper", "sm", "dram"),
    *("tensor", "fp64", "fp32", "fp16", "int"),
    *("idle", "narrow", "unsaturated", "clock", "saturated"),
    *("stall", "stall_lower", "stall_upper", "wait"),
)
AMOUNTS = ("flops", "bytes", "power", "power_limit", "sm_clock", "throttled")
COLUMNS = RATIOS + AMOUNTS
"""The numbers that scripts draw, as the history names them."""
_SHOWN = (
    *("gpu", "instance", "state", "mig", "since", "memory_ratio"),
    *("flops_bounds", "bytes_bounds", "ceilings"),
)
"""What scripts know of a row besides; the rest is only said in words."""


def values_of(row: Row) -> dict[str, float]:
    """Return the numbers of a row that are known, by column."""
    found = zip(COLUMNS, row.get("values", ()), strict=False)
    return {name: value for name, value in found if value is not None}


def title(gpu: int, instance: int | None = None, digits: str | None = None) -> str:
    """Return "GPU 3", "GPU 3, MIG 1", or with the last digits of its UUID "GPU 3 (…9f0c)"."""
    of_it = "" if instance is None else f", MIG {instance}"
    return f"GPU {gpu}{of_it}" + ("" if digits is None else f" (…{digits})")


def _saturation(values: Raw) -> str:
    if "saturation_lower" not in values:
        return "saturation not known"
    lower = values["saturation_lower"]
    return f"{span(lower, values.get('saturation_upper', lower))} saturated"


def stall_level(stall: float) -> str:
    """Return how bad an exposed data stall is, in a word."""
    return next(word for above, word in STALL_LEVELS if stall >= above)


def _stall(values: Raw) -> tuple[str, str]:
    """Return the exposed data stall and its level; of bounds the level of the lower one."""
    least = values.get("stall", values.get("stall_lower"))
    if least is None:
        return "no report", ""
    most = least if "stall" in values else values["stall_upper"]
    return span(least, most), stall_level(least)


def _of_limit(value: str, limit: str | None, unit: str) -> str:
    return f"{value} {unit}" if limit is None else f"{value}/{limit} {unit}"


def _memory(memory: Raw | None) -> str:
    if memory is None:
        return "not known"
    total = memory["total"]
    return _of_limit(gibibytes(memory["used"]), gibibytes(total) if total else None, "GiB")


def _power(row: Raw) -> str:
    values = row["values"]
    if "power" not in values:
        return "of the board" if "instance" in row else "not known"
    limit = values.get("power_limit")
    return _of_limit(fixed(values["power"], 0), fixed(limit, 0) if limit else None, "W")


def _idle(row: Raw) -> str:
    seconds = row.get("idle_seconds")
    if not seconds:
        return "idle time not known" if seconds is None else "not idle"
    since = duration(seconds) if seconds >= 1 else "just now"
    return f"{'held idle' if row.get('held') else 'idle'} {since}"


def _holder(row: Raw) -> str:
    holder = row.get("holder")
    if holder:
        who = ": ".join(cut(holder[key], 24) for key in ("owner", "command") if holder.get(key))
        return f"{who or 'somebody'} ({cut(holder.get('class', 'other'), 16)})"
    return {True: "held", False: "held by nobody"}.get(row.get("held"), "")  # type: ignore[arg-type]


def _limit(row: Raw) -> str:
    limiter = row.get("limiter")
    if limiter is None or (limiter == "idle" and row["word"] in _IDLE_WORDS):
        return ""
    return LIMITS.get(limiter, f"limited by {cut(plain(limiter), 24)}")


def _notes(row: Raw, now: float) -> str:
    notes = []
    xid = row.get("xid")
    if xid and "instance" not in row:  # of a GPU that is divided the GPU's own row says it
        notes.append(f"Xid {xid['code']}, {duration(now - xid['at'])} ago")
    if row.get("throttle"):
        notes.append("held down: " + ", ".join(cut(plain(each), 24) for each in row["throttle"]))
    return "; ".join(notes)


def _reason(row: Raw, word: str) -> str:
    """Return why a GPU is not up, without the word that is said already."""
    reason: str = row.get("reason", "no answer")
    return cut("" if reason == word else reason.removeprefix(f"{word}: "), _REASON)


def _point(row: Raw) -> Raw:
    """Return where a row stands on the chart, and how much of each roof it reaches."""
    work, traffic = (row["values"].get(name) for name in ("flops", "bytes"))
    bounds, reached = row.get("flops_bounds"), row.get("roof", {})
    point = "no work, or no memory traffic, so no place on the chart"
    if work and traffic:
        point = f"{flops(work)} at {intensity(work / traffic)}"
    elif bounds is not None and "bytes_bounds" in row:
        least = f"{flops(bounds[0])} to " if bounds[0] > 0 else "at most "
        many = row["bytes_bounds"][1]
        most = f", at most {bytes_rate(many)}" if many else ""
        point = f"{least}{flops(bounds[1])}{most} (estimated)"
    elif "ceilings" not in row:
        point = "its ceilings are not known, so no place on the chart"
    shares = [f"{percent(reached[basis])} ({basis})" for basis in BASES if basis in reached]
    return {"point": point, "roof": ", ".join(shares)}


def _words_up(row: Raw) -> Raw:
    """Return what is said of a GPU or instance that is up."""
    if row.get("mig"):
        # It is shown for its board alone; what it does is said of its instances.
        return {"limit": "divided into instances", "power": _power(row)}
    values = row["values"]
    stall, level = _stall(values)
    busy = values.get("utilization")
    return {
        "limit": _limit(row),
        "used": "use not known" if busy is None else f"{percent(busy)} used",
        "saturated": _saturation(values),
        "stall": stall,
        "level": level,
        "memory": _memory(row.get("memory")),
        "power": _power(row),
        "idle": _idle(row),
        "holder": _holder(row),
        **_point(row),
    }


def _words_down(row: Raw, word: str, now: float) -> Raw:
    since = row.get("since")
    ago = "never read" if since is None else f"last read {duration(now - since)} ago,"
    return {"reason": _reason(row, word), "ago": ago, "point": "not read"}


def told(row: Raw, now: float) -> Row:
    """Return a row as it is shown at the Unix time `now`: its words by their place, its look."""
    up, divided = row["state"] == "up", bool(row.get("mig"))
    word = "MIG" if divided else row["word"]
    tone = TONES.get(word, "neutral" if up else "bad")
    words = {
        "title": title(row["gpu"], row.get("instance"), row.get("digits")),
        "name": cut(row.get("profile") or product_name(row["name"])),
        "glyph": GLYPHS[tone],
        "word": cut(plain(word), 24),
        "note": _notes(row, now),
        **(_words_up(row) if up else _words_down(row, word, now)),
    }
    level = words.get("level")
    look = [f"tone-{tone}"]
    look += [f"level-{level}"] if level else []
    look += ["divided"] if divided else [] if up else ["down"]
    return {
        **{name: row[name] for name in _SHOWN if name in row},
        # Most of these change in each second: without their names they are half as long.
        **({"values": [row["values"].get(name) for name in COLUMNS]} if up else {}),
        "look": " ".join(look),
        "words": {place: said for place, said in words.items() if said},
    }
