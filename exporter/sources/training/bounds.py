# SPDX-License-Identifier: Apache-2.0
"""The most that a process can have done since it began; totals beyond that are refused."""

from __future__ import annotations

from collections.abc import Mapping

from exporter.model.training import TrainingTotals
from exporter.sources.training.refusals import Refused

FASTER_RATIO = 1.05
"""How much faster than this process's clock a job's may run."""
AGE_SLACK_SECONDS = 5.0
"""Allowed beyond the age of the process: its start is known in ticks, and clocks are read one after
the other."""
GROWTH_SLACK_SECONDS = 60.0
"""Allowed beyond the time since the first report of an id, which may have waited this long in the
kernel's queue while the exporter was stopped."""
MOST_PER_SECOND: Mapping[str, float] = {
    # An empty loop in Python runs some ten million times a second.
    "steps": 1e6,
    "batches": 1e6,
    # That many samples of a hundred bytes are 1 TB/s of memory traffic.
    "samples": 1e10,
    # A hundred times a GPU's dense FP8 peak: one process may drive all GPUs of a node.
    "model_flops": 1e18,
}
"""Rates that no process reaches on average over its life."""


def check_age(totals: TrainingTotals, age_seconds: float) -> None:
    """Refuse what a process of this age cannot have done.

    Phases need no check: `decode` has refused those that exceed the wall time of the loop.

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
