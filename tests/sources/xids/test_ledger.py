# SPDX-License-Identifier: Apache-2.0
"""Each Xid counts once, whichever way reports it, and a storm of them costs nothing."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.reading import XidRecord
from exporter.sources.xids.watch import MOST_UNPAIRED, PAIRING_SECONDS, Way, XidLedger
from tests.clocks import ManualClock


def test_counts_and_time_are_by_gpu_and_code() -> None:
    """Each has its own count and the time of its last event."""
    clock = ManualClock()
    ledger = XidLedger(clock)
    ledger.note("GPU-a", 79, "nvml")
    clock.advance(10)
    ledger.note("GPU-a", 79, "nvml")
    ledger.note("GPU-b", 31, "nvml")
    records = ledger.records()

    last = XidRecord(1, 1_000_010.0)
    assert records == {"GPU-a": {79: replace(last, count=2)}, "GPU-b": {31: last}}


def test_records_do_not_change_once_they_are_handed_out() -> None:
    """Snapshots are immutable; without news the same one is handed out again."""
    ledger = XidLedger(ManualClock())
    ledger.note("GPU-a", 79, "nvml")
    before = ledger.records()
    assert ledger.records() is before
    ledger.note("GPU-a", 79, "nvml")

    assert before["GPU-a"][79].count == 1
    assert ledger.records()["GPU-a"][79].count == 2


def count(ledger: XidLedger) -> int:
    return ledger.records()["GPU-a"][79].count


@pytest.mark.parametrize(("first", "second"), [("nvml", "kmsg"), ("kmsg", "nvml")])
def test_what_both_ways_report_is_one_event(first: Way, second: Way) -> None:
    """In either order, within a few seconds."""
    clock = ManualClock()
    ledger = XidLedger(clock)
    ledger.note("GPU-a", 79, first)
    clock.advance(PAIRING_SECONDS)
    ledger.note("GPU-a", 79, second)
    assert count(ledger) == 1

    ledger.note("GPU-a", 79, second)
    assert count(ledger) == 2
    clock.advance(PAIRING_SECONDS + 0.1)  # too late to be of the same event
    ledger.note("GPU-a", 79, first)
    assert count(ledger) == 3
    ledger.note("GPU-b", 79, second)  # another GPU is no counterpart
    assert ledger.records()["GPU-b"][79].count == 1


@given(st.lists(st.sampled_from(("nvml", "kmsg"))))
def test_a_burst_counts_as_the_way_that_saw_more(order: list[Way]) -> None:
    """However the reports of both ways interleave, no event counts twice and none is lost."""
    ledger = XidLedger(ManualClock())
    for way in order:
        ledger.note("GPU-a", 79, way)
    counts = ledger.records().get("GPU-a", {})

    seen = max(order.count("nvml"), order.count("kmsg"))
    assert sum(record.count for record in counts.values()) == seen


@pytest.mark.parametrize("both", [False, True])
def test_a_storm_is_counted_without_growth_and_with_few_lines(
    both: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """10,000 in a minute: every one counts, each code is one line a minute."""
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    ledger = XidLedger(clock)
    for _ in range(10_000):
        ledger.note("GPU-a", 13, "nvml")
        if both:
            ledger.note("GPU-a", 13, "kmsg")
        clock.advance(60 / 10_000)
    clock.advance(1)
    ledger.note("GPU-a", 13, "nvml")

    assert ledger.records()["GPU-a"][13].count == 10_001
    assert len(ledger._gpus["GPU-a"][13].unpaired) <= MOST_UNPAIRED
    first, second = caplog.messages
    assert first.startswith("GPU GPU-a: Xid 13: exception in the graphics or compute engine; ")
    assert "(9999 more since the last such line)" in second


def test_alerting_xids_are_warnings_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """An application's own fault is only information."""
    caplog.set_level(logging.INFO)
    ledger = XidLedger(ManualClock())
    for code in (79, 31, 9999):
        ledger.note("GPU-a", code, "kmsg")

    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "INFO"]
