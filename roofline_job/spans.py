# SPDX-License-Identifier: Apache-2.0
"""What a thread spends its time on: the phases there are, and one that is under way."""

from __future__ import annotations

from .streams import IdlePair

PHASES = (
    "data",
    "h2d",
    "forward",
    "backward",
    "optimizer",
    "checkpoint",
    "eval",
    "logging",
    "other",
)
KNOWN = {phase: phase for phase in PHASES}


class Span:
    """A phase under way."""

    __slots__ = ("begin_ns", "claimed_ns", "pair", "phase")

    def __init__(self, phase: str) -> None:
        self.phase = phase
        self.begin_ns = 0
        self.claimed_ns = 0
        self.pair: IdlePair | None = None


class Body:
    """The body of an evaluating loop: an eval phase that is accounted bit by bit."""

    __slots__ = ("begin_ns", "claimed_ns", "depth", "key")

    def __init__(self, key: int, depth: int, begin_ns: int, claimed_ns: int) -> None:
        self.key = key
        self.depth = depth
        self.begin_ns = begin_ns
        self.claimed_ns = claimed_ns
