# SPDX-License-Identifier: Apache-2.0
"""What one row of the page says, in words and bars; static/facts.js says the same.

The first paint is made here, what follows in the browser. A test reads both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exporter.web.words import cut, duration, fixed, gibibytes, percent, plain, product_name, span

Row = Mapping[str, Any]

STALL_LEVELS = ((0.20, "high"), (0.05, "some"), (0.0, "fine"))
"""Exposed data stall above which a word holds: the thresholds of the TensorFlow profiler."""

TONES = {
    "saturated": "good",
    "busy": "good",
    "underused": "warn",
    "starved": "warn",
    "MIG": "calm",
    "held back": "warn",
    "held idle": "warn",
    "idle": "calm",
    "free": "calm",
    "suspended": "calm",
}
"""How a word looks; any other is shown as bad where the GPU is not up, else as neutral."""
GLYPHS = {"good": "●", "warn": "▲", "calm": "○", "bad": "✕", "neutral": "◆"}
LIMITS = {
    "idle": "idle",
    "input": "waits for its input",
    "clock": "limited by its clock",
    "unknown": "limiter not known",
}
"""What is said of a limiter; of any other that it limits."""
_REASON = 160


@dataclass(frozen=True, slots=True)
class Facts:
    """The words of one row by the name of their place, and its bars as (from, to) ratios."""

    words: Mapping[str, str]
    bars: Mapping[str, tuple[float, float]]
    tone: str
    stall_level: str = ""
    up: bool = True
    divided: bool = False
    """A GPU with MIG on: its instances have rows of their own."""
    at: float | None = None
    """Unix time that the row speaks of."""


def title(row: Row) -> str:
    """Return "GPU 3", or "GPU 3, MIG 1"."""
    instance = row.get("instance")
    return f"GPU {row['gpu']}" + ("" if instance is None else f", MIG {instance}")


def _saturation(row: Row) -> tuple[str, tuple[float, float]]:
    if "saturation" in row:
        ratio = row["saturation"]
        return f"{percent(ratio)} saturated", (ratio, ratio)
    if "saturation_bounds" in row:
        lower, upper = row["saturation_bounds"]
        return f"{span(lower, upper)} saturated", (lower, upper)
    return "saturation not known", (0.0, 0.0)


def _stall(row: Row) -> tuple[str, str]:
    """Return the exposed data stall and its level; of bounds the level of the lower one."""
    if "stall" in row:
        text, least = percent(row["stall"]), row["stall"]
    elif "stall_bounds" in row:
        least, upper = row["stall_bounds"]
        text = span(least, upper)
    else:
        return "", ""
    return text, next(word for above, word in STALL_LEVELS if least >= above)


def _amounts(pair: list[float] | None, unit: str) -> tuple[str, tuple[float, float]]:
    if not pair:
        return "", (0.0, 0.0)
    show = gibibytes if unit == "GiB" else lambda value: fixed(value, 0)
    if len(pair) < 2 or not pair[1]:
        return f"{show(pair[0])} {unit}", (0.0, 0.0)
    return f"{show(pair[0])}/{show(pair[1])} {unit}", (0.0, pair[0] / pair[1])


def _idle(row: Row, now: float) -> str:
    if "idle_since" not in row:
        return ""
    return f"{'held idle' if row.get('held') else 'idle'} {duration(now - row['idle_since'])}"


def _holder(row: Row) -> str:
    holder = row.get("holder")
    if holder:
        who = ": ".join(cut(holder[key], 24) for key in ("owner", "command") if holder.get(key))
        return f"{who or 'somebody'} ({cut(holder.get('class', 'other'), 16)})"
    return {True: "held", False: "held by nobody"}.get(row.get("held"), "")  # type: ignore[arg-type]


def _limit(row: Row) -> str:
    limiter = row.get("limiter")
    return "" if limiter is None else LIMITS.get(limiter, f"limited by {cut(plain(limiter), 24)}")


def _notes(row: Row, now: float) -> str:
    notes = []
    xid = row.get("xid")
    if xid and "instance" not in row:  # of a GPU that is divided the GPU's own row says it
        notes.append(f"Xid {xid['code']}, {duration(now - xid['at'])} ago")
    if row.get("throttle"):
        notes.append("held down: " + ", ".join(cut(plain(each), 24) for each in row["throttle"]))
    return "; ".join(notes)


def _reason(row: Row, word: str) -> str:
    """Return why a GPU is not up, without the word that is said already."""
    reason: str = row.get("reason", "no answer")
    return cut("" if reason == word else reason.removeprefix(f"{word}: "), _REASON)


def facts(row: Row, now: float) -> Facts:
    """Return what a row says at the Unix time `now`."""
    up = row.get("state") == "up"
    # A GPU that is divided is shown for its board alone; what it does is said of its instances.
    divided = bool(row.get("mig"))
    word = "MIG" if divided else row.get("word", row.get("state", "not known"))
    at = row.get("since")
    words = {
        "title": title(row),
        "name": cut(row.get("profile") or product_name(row.get("name", ""))),
        "word": cut(plain(word), 24),
        "note": _notes(row, now),
    }
    if not up:
        since = "never read" if at is None else f"last read {duration(now - at)} ago,"
        return Facts(
            words={**words, "reason": _reason(row, word), "ago": since},
            bars={},
            tone=TONES.get(word, "bad"),
            up=False,
            at=at,
        )
    utilization = row.get("utilization")
    saturated, saturation = _saturation(row)
    stall, level = _stall(row)
    memory, in_use = _amounts(row.get("memory"), "GiB")
    power, drawn = _amounts(row.get("power"), "W")
    words |= {
        "limit": "divided into instances" if divided else _limit(row),
        "used": "use not known" if utilization is None else f"{percent(utilization)} used",
        "saturated": saturated,
        "stall": stall or "no report",
        "level": level,
        "memory": memory or "not known",
        "power": power or ("of the board" if "instance" in row else "not known"),
        "idle": _idle(row, now) or "busy",
        "holder": _holder(row),
    }
    if divided:
        words |= dict.fromkeys(("used", "saturated", "stall", "memory", "idle"), "")
    bars = {
        "used": (0.0, utilization or 0.0),
        "saturated": saturation,
        "memory": in_use,
        "power": drawn,
    }
    return Facts(words, bars, TONES.get(word, "neutral"), stall_level=level, divided=divided)
