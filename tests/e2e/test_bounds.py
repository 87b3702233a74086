# SPDX-License-Identifier: Apache-2.0
"""Whether the truth ever leaves the bounds that are published for it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.e2e.conftest import MakeDriver, StartDaemon
from tests.e2e.daemons import Watch
from tests.fake_nvml import mean, square

RUN_SECONDS = 40
FAMILIES = (
    "gpu_last_read_timestamp_seconds",
    "gpu_saturation_lower_ratio",
    "gpu_saturation_upper_ratio",
)
# From 50 ms to 5 s; neither divides 250 ms, 1 s or the driver's sampling period of 1/6 s.
WAVES = tuple(
    square(period=period, duty=duty, high=100, phase=phase)
    for period, duty, phase in (
        (0.05, 0.4, 0.0),
        (0.07, 0.9, 0.01),
        (0.13, 0.2, 0.05),
        (0.31, 0.6, 0.2),
        (0.47, 0.1, 0.3),
        (0.73, 0.5, 0.1),
        (0.97, 0.5, 0.4),
        (1.03, 0.25, 0.8),
        (1.7, 0.7, 0.6),
        (2.3, 0.35, 1.9),
        (3.1, 0.9, 2.2),
        (5.0, 0.5, 3.3),
    )
)
CALL_MICROSECONDS = 1000
"""How long a call takes: the readings of one round are then many milliseconds apart."""
ROUNDING = 1e-6
"""Of the timestamps on the page, as a share of the shortest interval."""


@dataclass
class Tally:
    """What was seen of one kind of GPU."""

    intervals: int = 0
    outside: list[str] = field(default_factory=list)
    width: float = 0.0


def _devices(
    kinds: Sequence[dict[str, Any]],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[int]]:
    """One GPU for each kind and wave; their waves and kinds by index."""
    devices, waves, kind_of = [], [], []
    for number, kind in enumerate(kinds):
        for wave in WAVES:
            devices.append({**kind, "utilization": wave})
            waves.append(wave)
            kind_of.append(number)
    return devices, waves, kind_of


def _compare(
    watch: Watch,
    epoch: float,
    interval: float,
    waves: Sequence[dict[str, Any]],
    kind_of: Sequence[int],
    tallies: Sequence[Tally],
) -> None:
    """Compare each GPU's bounds with the mean of its wave from its last read to this one."""
    last_read: dict[int, float] = {}
    for scrape in watch.scrapes:
        for labels, read in scrape.page.rows("gpu_last_read_timestamp_seconds"):
            gpu = int(labels["gpu"])
            previous = last_read.get(gpu)
            if read == previous:
                continue
            last_read[gpu] = read
            # After a gap a page was missed, and with it where this interval began.
            if previous is None or read - previous > 1.5 * interval:
                continue
            lower = scrape.page.get("gpu_saturation_lower_ratio", gpu=labels["gpu"])
            upper = scrape.page.get("gpu_saturation_upper_ratio", gpu=labels["gpu"])
            assert lower is not None, labels
            assert upper is not None, labels
            truth = mean(waves[gpu], previous - epoch, read - epoch) / 100
            tally = tallies[kind_of[gpu]]
            tally.intervals += 1
            tally.width += upper - lower
            if not lower - ROUNDING <= truth <= upper + ROUNDING:
                tally.outside.append(
                    f"{waves[gpu]} from {previous - epoch:.4f} s to {read - epoch:.4f} s:"
                    f" {truth:.4f} is not in [{lower:.4f}, {upper:.4f}]"
                )


@pytest.mark.slow
def test_the_truth_stays_inside_the_bounds(make_driver: MakeDriver, start: StartDaemon) -> None:
    """With the driver's sample buffer always; without it in all but 1 % of the intervals.

    The truth is what the kernel could do at most: it keeps some unit busy whenever it runs.
    """
    kinds: list[dict[str, Any]] = [
        {"product": "t4", "latency_us": CALL_MICROSECONDS},
        {"product": "a100-sxm4-80gb", "sample_period": 1.0},
        {"product": "v100-sxm2", "samples": {"enabled": False}},
    ]
    devices, waves, kind_of = _devices(kinds)
    driver = make_driver({"devices": devices})
    intervals = {"250ms": 0.25, "1s": 1.0}
    daemons = {
        text: start(driver, f"--poll.interval={text}", wait_for=len(devices)) for text in intervals
    }
    with ExitStack() as stack:
        watches = {
            text: stack.enter_context(daemons[text].watch(FAMILIES, seconds / 3))
            for text, seconds in intervals.items()
        }
        time.sleep(RUN_SECONDS)
    for text, seconds in intervals.items():
        sampled, slowly_sampled, polled = tallies = [Tally() for _ in kinds]
        _compare(watches[text], driver.epoch, seconds, waves, kind_of, tallies)
        for tally in tallies:
            expected = len(WAVES) * RUN_SECONDS / seconds
            # A busy machine misses pages: only what it saw is judged, if it saw enough.
            assert tally.intervals > 0.3 * expected, "too few intervals to judge"
            print(text, tally.intervals, len(tally.outside), tally.width / tally.intervals)
        assert sampled.width < 0.9 * sampled.intervals, "such bounds say nothing"
        assert sampled.outside == [], text
        assert slowly_sampled.outside == [], text
        assert len(polled.outside) < 0.01 * polled.intervals, (text, polled.outside)
