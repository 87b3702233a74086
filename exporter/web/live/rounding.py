# SPDX-License-Identifier: Apache-2.0
"""Round numbers for browsers, and leave out what is not known."""

from __future__ import annotations

from typing import Any

SIGNIFICANT_DIGITS = 4
RATIO_DIGITS = 3
"""Tenths of a percent: more digits would be noise that the stream sends every second."""


def known(**values: Any) -> dict[str, Any]:
    """Return the values without those that are None or empty."""
    return {
        name: value
        for name, value in values.items()
        if value is not None and value != {} and value != []
    }


def rounded(value: float | None) -> float | int | None:
    """Return a number to 4 significant digits, as an integer where nothing follows the point."""
    if value is None:
        return None
    near = float(f"{value:.{SIGNIFICANT_DIGITS}g}")
    return int(near) if near.is_integer() else near


def ratio(value: float | None) -> float | int | None:
    """Return a ratio to tenths of a percent."""
    if value is None:
        return None
    near = round(value, RATIO_DIGITS)
    return int(near) if near.is_integer() else near


def moment(timestamp_seconds: float | None) -> float | None:
    """Return Unix time to hundredths of a second."""
    return None if timestamp_seconds is None else round(timestamp_seconds, 2)
