# SPDX-License-Identifier: Apache-2.0
"""The part of the configuration that the publisher uses."""

from __future__ import annotations

from dataclasses import dataclass, field

from exporter.clock import GAP_INTERVALS, stale_after_seconds
from exporter.derive import IdleRules

JITTER_INTERVALS = 0.1
"""Tolerated jitter of a reading, in intervals."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings of the publisher."""

    interval_seconds: float = 1.0
    forget_after_seconds: float = 86400.0
    precision: str | None = None
    idle: IdleRules = field(default_factory=IdleRules)
    owners: bool = True
    """Whether the snapshot has the owners of processes and training jobs."""
    serials: bool = True

    @property
    def longest_interval_seconds(self) -> float:
        """The longest interval that is integrated: three polls and their jitter."""
        return (GAP_INTERVALS + JITTER_INTERVALS) * self.interval_seconds

    @property
    def stale_after_seconds(self) -> float:
        """The age at which a reading is stale: half an interval less than documented (jitter)."""
        interval = self.interval_seconds
        return stale_after_seconds(interval) - min(interval, 1.0) / 2
