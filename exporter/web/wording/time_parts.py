# SPDX-License-Identifier: Apache-2.0
"""Where the time of a GPU goes, in words: the names of the parts, and what their bounds say."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from exporter.web.wording.numbers import percent, span

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
"""Ratios that read 0 % and 100 %."""


def bounds_sentence(bounds: Mapping[str, tuple[float, float]]) -> str | None:
    """Return what the bounds of the parts say: Where the time goes: at its limit 55 to 99 %; …

    `bounds` are ratios by part. Parts of which they say nothing are left out.
    """
    said = [f"{PARTS[part]} {found}" for part in PARTS if (found := _said(bounds.get(part)))]
    return f"Where the time goes: {'; '.join(said)}." if said else None


def _said(bounds: tuple[float, float] | None) -> str | None:
    if bounds is None:
        return None
    lower, upper = bounds
    if percent(lower) == percent(upper):
        return percent(lower)
    if upper >= _ALL:
        return None if lower < _NOTHING else f"at least {percent(lower)}"
    return f"at most {percent(upper)}" if lower < _NOTHING else span(lower, upper)
