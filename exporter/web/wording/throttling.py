# SPDX-License-Identifier: Apache-2.0
"""What holds a clock down, in words."""

from __future__ import annotations

from exporter.model.reading import THROTTLE_REASONS
from exporter.web.wording.numbers import plain

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


def throttle_words(reason: str) -> str:
    """Return a reason in words; one that is not in the table is said as it is."""
    return THROTTLE_WORDS.get(reason, plain(reason))


def throttled_by(bits: int) -> list[str]:
    """Return the reasons that a column of the history holds, a bit for each in their order."""
    return [throttle_words(each) for bit, each in enumerate(THROTTLE_REASONS) if bits >> bit & 1]
