# SPDX-License-Identifier: Apache-2.0
"""The part of the configuration that turns readings into a snapshot."""

from __future__ import annotations

from dataclasses import dataclass, field

from exporter.clock import GAP_INTERVALS, stale_after_seconds
from exporter.derive import IdleRules

JITTER_INTERVALS = 0.1
"""How much later or earlier than due a reading may be, in intervals."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How readings are turned into a snapshot, as it is configured."""

    interval_seconds: float = 1.0
    forget_after_seconds: float = 86400.0
    precision: str | None = None
    idle: IdleRules = field(default_factory=IdleRules)
    owners: bool = True
    """Whether the snapshot shows whose the processes and the training jobs are."""
    serials: bool = True
    """Whether it shows the serial numbers of GPUs."""

    @property
    def longest_interval_seconds(self) -> float:
        """Nothing is integrated over an interval that is longer: three polls, and their jitter."""
        return (GAP_INTERVALS + JITTER_INTERVALS) * self.interval_seconds

    @property
    def stale_after_seconds(self) -> float:
        """The age from which on a reading is no longer shown.

        Half an interval less than what is promised: at the third tick without a reading it is
        stale, whatever the jitter of a few milliseconds between reading and tick.
        """
        interval = self.interval_seconds
        return stale_after_seconds(interval) - min(interval, 1.0) / 2
