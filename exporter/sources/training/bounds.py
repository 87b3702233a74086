# SPDX-License-Identifier: Apache-2.0
"""What a process can have done at most since it began: totals beyond that are not taken."""

from __future__ import annotations

from collections.abc import Mapping

from exporter.model.reading import TrainingTotals
from exporter.sources.training.refusals import Refused

FASTER_RATIO = 1.05
"""The clock of a job may run so much faster than this one's."""
AGE_SLACK_SECONDS = 5.0
"""Beyond the age of the process: its start is known in ticks, and clocks are read in turn."""
GROWTH_SLACK_SECONDS = 60.0
"""Beyond the time since the first report of an id: that one may have waited for so long in the
kernel's queue, while the exporter stood still."""
MOST_PER_SECOND: Mapping[str, float] = {
    # A loop of Python goes round some ten million times a second if it does nothing at all.
    "steps": 1e6,
    "batches": 1e6,
    # 1 TB/s of memory reads as many samples of a hundred bytes.
    "samples": 1e10,
    # A hundred times a GPU's dense FP8 peak: one process may drive all GPUs of a node.
    "model_flops": 1e18,
}
"""Rates that no process reaches on average over its life."""


def check_age(totals: TrainingTotals, age_seconds: float) -> None:
    """Refuse what a process of this age cannot have done.

    Phases are bounded by the wall time of the loop, which the datagram's form ensures.

    Raises:
        Refused: implausible.
    """
    seconds = FASTER_RATIO * max(age_seconds, 0.0) + AGE_SLACK_SECONDS
    if totals.step_seconds > seconds:
        raise _implausible("step_seconds", totals.step_seconds, f"its process has {seconds:.0f} s")
    for name, rate in MOST_PER_SECOND.items():
        count: float | None = getattr(totals, name)
        if count is not None and count > rate * seconds:
            raise _implausible(name, count, f"at most {rate:g} a second are believed")


def check_growth(grown_seconds: float, elapsed_seconds: float) -> None:
    """Refuse wall time of the loop that grew faster than time since the first report.

    Raises:
        Refused: implausible.
    """
    if grown_seconds > FASTER_RATIO * elapsed_seconds + GROWTH_SLACK_SECONDS:
        why = f"{elapsed_seconds:.0f} s after the first report"
        raise _implausible("step_seconds", grown_seconds, why)


def _implausible(key: str, value: float, why: str) -> Refused:
    return Refused("implausible", f"{key}: {value:g} is too much, {why}")
