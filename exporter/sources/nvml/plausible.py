# SPDX-License-Identifier: Apache-2.0
"""Physical bounds of the driver's numbers, with a wide margin for later GPU models.

A number outside is a sentinel or a fault, and left out. For a value that it does not have the
driver answers all ones (NVML_VALUE_NOT_AVAILABLE), which is above every bound here.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from exporter.model.reading import Memory
from exporter.sources.reading_state import Journal

Number = TypeVar("Number", int, float)
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class PossibleRange:
    """The lowest and highest possible value of one kind of reading; a call checks a value."""

    lowest: float
    highest: float

    def __call__(self, value: Number) -> Number | None:
        """Return `value`, or None if it is outside the range or NaN."""
        return value if self.lowest <= value <= self.highest else None


POWER_MILLIWATTS = PossibleRange(0, 20e6)  # A board takes at most a few kilowatts.
POWER_LIMIT_MILLIWATTS = PossibleRange(1, 20e6)  # A limit of 0 W is no limit.
ENERGY_MILLIJOULES = PossibleRange(0, 1e16)  # Ten kilowatts for thirty years.
TEMPERATURE_CELSIUS = PossibleRange(-50, 200)  # Silicon does not survive more.
TEMPERATURE_MARGIN_CELSIUS = PossibleRange(-200, 200)
CLOCK_MEGAHERTZ = PossibleRange(0, 50_000)  # Memory clocks of 2025 reach 15,000.
THROTTLE_MASK = PossibleRange(0, 0xFFFFFFFE)  # Twelve bits are in use; 32 ones are a sentinel.
THROTTLE_NANOSECONDS = PossibleRange(0, 1e18)  # Thirty years.
PCIE_GENERATION = PossibleRange(1, 15)
PCIE_WIDTH = PossibleRange(1, 32)  # The widest link that PCIe defines.
PERFORMANCE_STATE = PossibleRange(0, 15)  # 32 is "unknown".
ENGINE_PERCENT = PossibleRange(0, 100)
FAN_COUNT = PossibleRange(0, 32)  # Boards have at most a handful; each is a call of its own.
FAN_PERCENT = PossibleRange(0, 200)  # May exceed 100 (nvml.h); 255 is a sentinel.
LINK_COUNT = PossibleRange(0, 1024)
LINK_MEGABYTES_PER_SECOND = PossibleRange(0, 1e7)
TOTAL_BYTES = PossibleRange(0, 1e19)  # A counter of 64 bits, without its sentinel.
COUNT = PossibleRange(0, 2**53)  # Errors and the like; 2^64 - 1 is a sentinel.
SMALL_COUNT = PossibleRange(0, 0xFFFFFFFE)
CORES = PossibleRange(1, 10_000_000)
BUS_BITS = PossibleRange(1, 1_000_000)
MEMORY_BYTES = PossibleRange(1, 2**50)
USED_BYTES = PossibleRange(0, MEMORY_BYTES.highest)

GPM_PERCENT = PossibleRange(0, 200)  # An average over cycles; rounding lifts it a little above 100.
GPM_MIB_PER_SECOND = PossibleRange(0, 1e8)  # A hundred times NVLink 5.
GPM_TOTAL = PossibleRange(0, 1e19)  # As a double, the sentinel of 64 bits is 2^64.
CYCLES_PER_SECOND = PossibleRange(0, 1e14)  # Ten gigahertz on ten thousand SMs.
BYTES_PER_SECOND = PossibleRange(0, GPM_MIB_PER_SECOND.highest * 2**20)

FIELDS: Mapping[int, PossibleRange] = {
    82: TEMPERATURE_CELSIUS,
    83: ENERGY_MILLIJOULES,
    90: LINK_MEGABYTES_PER_SECOND,
    91: LINK_COUNT,
    **dict.fromkeys((*range(74, 80), 269, 270, 271), THROTTLE_NANOSECONDS),
    170: LINK_COUNT,
    172: LINK_MEGABYTES_PER_SECOND,
    185: POWER_MILLIWATTS,
    **dict.fromkeys((138, 139, 197, 198, 202, 204), TOTAL_BYTES),
}
"""By field id; every other field is a count."""


def thousandth(value: float | None) -> float | None:
    """Return `value` in a unit a thousand times as large."""
    return None if value is None else value / 1000


def memory(total: int, used: int, free: int, reserved: int | None = None) -> Memory | None:
    """Return device memory; None if a part of it is negative or above the total."""
    parts = (used, free, reserved or 0)
    if MEMORY_BYTES(total) is None or max(parts) > total or min(parts) < 0:
        return None
    return Memory(total, used, free, reserved)


BELIEVED_AFTER_SECONDS = 3.0
"""How long a total that fell must stay low until it is taken as a counter that was reset."""
MILLIJOULES_PER_SECOND = 2e7  # Twenty kilowatts: more than any module draws.
THROTTLE_SECONDS_PER_SECOND = 1.1  # Clocks of driver and host differ.
NVLINK_BYTES_PER_SECOND = 1e13  # Five times NVLink 5.
LATCHED_SECONDS = 2.0
"""For how long a driver may report an old total."""


class DriverTotals:
    """The driver's counters, without reads in which one grew by more than the hardware can do, or
    fell: until it has stayed low for two reads and three seconds, when the driver has reset it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._last: dict[Hashable, tuple[float, float]] = {}
        """The last totals that were not left out, and when they were read."""
        self._fallen_at: dict[Hashable, float] = {}

    def settled(
        self, key: Hashable, total: Number | None, most_per_second: float = math.inf
    ) -> Number | None:
        """Return `total` of the counter `key`, or None to leave it out."""
        if total is None:
            return None
        now = self._journal.now
        last, at = self._last.get(key, (total, now))
        if total < last:
            since = self._fallen_at.setdefault(key, now)
            if now - since < BELIEVED_AFTER_SECONDS:
                return None
        elif total - last > most_per_second * (now - at + LATCHED_SECONDS):
            return None
        self._fallen_at.pop(key, None)
        self._last[key] = (total, now)
        return total

    def all_settled(
        self, name: str, totals: Mapping[Key, Number], most_per_second: float = math.inf
    ) -> dict[Key, Number]:
        """Return `totals` without those to leave out; their keys are unique under `name`."""
        settled = {
            key: self.settled((name, key), total, most_per_second) for key, total in totals.items()
        }
        return {key: total for key, total in settled.items() if total is not None}
