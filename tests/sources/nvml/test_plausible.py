# SPDX-License-Identifier: Apache-2.0
"""Which of the driver's numbers are believed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.reading import Memory
from exporter.sources.nvml import plausible
from exporter.sources.nvml.plausible import BELIEVED_AFTER_SECONDS, DriverTotals, PossibleRange
from exporter.sources.reading_state import Journal

RANGES = {name: kind for name, kind in vars(plausible).items() if isinstance(kind, PossibleRange)}


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("value", [2**64 - 1, 1e300, math.inf, -math.inf, math.nan, -(2.0**40)])
def test_no_range_holds_a_sentinel(name: str, value: float) -> None:
    """All ones of 64 bits, what no counter reaches, and no number at all are never a reading."""
    assert RANGES[name](value) is None
    assert RANGES[name](float(value)) is None


@pytest.mark.parametrize(
    ("kind", "possible", "impossible"),
    [
        (plausible.POWER_MILLIWATTS, [0, 1_400_000], [2**32 - 1, -1]),
        (plausible.TEMPERATURE_CELSIUS, [-20, 0, 110], [255, 2**31, 2**32 - 1, -274]),
        (plausible.CLOCK_MEGAHERTZ, [0, 14_001], [2**32 - 1, 9_999_999]),
        (plausible.THROTTLE_MASK, [0, 0x7FF], [2**32 - 1, 2**64 - 1]),
        (plausible.FAN_PERCENT, [0, 105], [255]),
        (plausible.GPM_PERCENT, [0.0, 100.4], [1e298, -1.0]),
        (plausible.GPM_MIB_PER_SECOND, [0.0, 900_000.0], [1e300, 1e18]),
    ],
)
def test_what_is_possible(
    kind: PossibleRange, possible: list[float], impossible: list[float]
) -> None:
    """Every reading of today's GPU models passes; sentinels and nonsense do not."""
    assert [kind(value) for value in possible] == possible
    assert [kind(value) for value in impossible] == [None] * len(impossible)


@pytest.mark.parametrize(
    ("parts", "known"),
    [
        *(((80, 10, 70), True), ((80, 10, 69, 1), True), ((80, 90, 2**64 - 10), False)),
        *(((80, 2**64 - 1, 0), False), ((2**64 - 1,) * 3, False)),
        *(((80, 10, 60, 2**64 - 1), False), ((0, 0, 0), False)),
    ],
)
def test_parts_of_memory_are_parts_of_the_whole(parts: tuple[int, ...], known: bool) -> None:
    """Otherwise none of them is published."""
    assert plausible.memory(*parts) == (Memory(*parts) if known else None)


@pytest.mark.parametrize("interval", [0.1, 1.0, 10.0])
def test_total_that_stays_low_started_over(interval: float) -> None:
    """After a reload of the driver it is believed within three seconds or two reads."""
    journal = Journal("GPU 0")
    totals = DriverTotals(journal)
    totals.settled("energy", 1000)
    found: list[int | None] = []
    while not found or found[-1] is None:
        journal.now += interval
        found.append(totals.settled("energy", 5 + len(found)))

    assert len(found) >= 2
    assert (len(found) - 2) * interval <= BELIEVED_AFTER_SECONDS
    journal.now += interval
    assert totals.settled("energy", 1001) == 1001


def test_a_total_that_leaps_is_not_known() -> None:
    """No GPU does in a second what takes it years; what it did meanwhile is counted."""
    journal = Journal("GPU 0")
    totals = DriverTotals(journal)
    for total, known in ((1000, True), (9_000_000, False), (9_000_001, False), (1300, True)):
        assert totals.settled("energy", total, 100.0) == (total if known else None)
        journal.now += 1.0


def test_counters_are_kept_apart() -> None:
    """Counters are told apart by name and key."""
    totals = DriverTotals(Journal("GPU 0"))
    assert totals.all_settled("pcie", {"lcrc": 5, "lane": 7}) == {"lcrc": 5, "lane": 7}
    assert totals.all_settled("pcie", {"lcrc": 4, "lane": 7}) == {"lane": 7}
    assert totals.all_settled("nvlink", {"lcrc": 4}) == {"lcrc": 4}


@given(st.lists(st.tuples(st.integers(0, 10), st.booleans()), max_size=40))
def test_known_totals_fall_only_after_three_seconds_below(
    reads: list[tuple[int, bool]],
) -> None:
    """Whatever a driver answers, a fall that is published lasted."""
    journal = Journal("GPU 0")
    totals = DriverTotals(journal)
    last, last_at = 0, 0.0
    for total, answered in reads:
        journal.now += 1.0
        known = totals.settled("count", total if answered else None)
        if known is not None:
            assert known >= last or journal.now - last_at > BELIEVED_AFTER_SECONDS
            last, last_at = known, journal.now


@given(st.floats(0, 1e4), st.floats(0, 1e6))
def test_what_the_hardware_can_do_is_believed(rate: float, seconds: float) -> None:
    """A counter that was not read for long may have grown as fast as the hardware allows."""
    journal = Journal("GPU 0")
    totals = DriverTotals(journal)
    totals.settled("energy", 0.0, 1e4)
    journal.now += seconds
    assert totals.settled("energy", rate * seconds, 1e4) == rate * seconds
