# SPDX-License-Identifier: Apache-2.0
"""What is said of the driver's error numbers (Xids)."""

from __future__ import annotations

from exporter.model.xids import XIDS, describe
from exporter.web.wording.facts import Facts, XidSeen
from exporter.web.wording.numbers import duration

CRITICAL_SECONDS = 3600.0
"""For so long a critical Xid is shown with its meaning and advice, whatever the GPU does now."""


def is_critical(code: int) -> bool:
    """Return whether a GPU with this Xid cannot be relied on."""
    xid = XIDS.get(code)
    return xid is not None and xid.tier == "critical"


def critical(facts: Facts) -> tuple[XidSeen, ...]:
    """Return the critical Xids of the last hour, the newest first."""
    found = (
        each
        for each in facts.xids
        if each.ago_seconds < CRITICAL_SECONDS and is_critical(each.code)
    )
    return tuple(sorted(found, key=lambda each: each.ago_seconds))


def seen(xid: XidSeen) -> str:
    """Return an Xid and how long ago it came: Xid 79, 5 min ago."""
    return f"Xid {xid.code}, {duration(xid.ago_seconds)} ago"


def explained(xid: XidSeen) -> str:
    """Return the same with its meaning and what to do about it."""
    return f"{seen(xid)}: {describe(xid.code)}"


def notes(facts: Facts) -> list[str]:
    """Return the critical Xids of the last hour, explained; without one the last Xid there was."""
    grave = critical(facts)
    if grave:
        return [explained(each) for each in grave]
    last = min(facts.xids, key=lambda each: each.ago_seconds, default=None)
    return [] if last is None else [seen(last)]
