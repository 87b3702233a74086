# SPDX-License-Identifier: Apache-2.0
"""Durations as Go writes them."""

from __future__ import annotations

import re
from decimal import Decimal

LONGEST_SECONDS = 2**63 / 1e9
"""What Go can hold: 292 years."""

_UNITS = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "\u00b5s": Decimal("1e-6"),
    "\u03bcs": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
}
_PART = rf"([0-9]{{1,20}}(?:\.[0-9]{{0,20}})?|\.[0-9]{{1,20}})({'|'.join(_UNITS)})"
_DURATION = re.compile(rf"(?:{_PART}){{1,8}}")


def seconds(text: str) -> float:
    """Return the length of such as ``1s``, ``100ms`` or ``1m30s``, in seconds; ``0`` needs no unit.

    Raises:
        ValueError: it is no such duration, is negative or longer than Go can hold.
    """
    text = text.removeprefix("+")
    if text == "0":
        return 0.0
    if not _DURATION.fullmatch(text):
        raise ValueError("not a duration")
    parts = re.findall(_PART, text)
    length = float(sum(Decimal(number) * _UNITS[unit] for number, unit in parts))
    if length > LONGEST_SECONDS:
        raise ValueError("too long")
    return length
