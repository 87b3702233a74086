# SPDX-License-Identifier: Apache-2.0
"""How long a GPU was idle because its job waited: what is known of it, and bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from exporter.model.snapshot import Bounds


@dataclass(frozen=True, slots=True)
class Stall:
    """The training jobs' reports on a share over the last seconds."""

    of_idle: float | None = None
    """The part of the recent idle time that the exposed stall covers, else its lower bound."""
    inferred: Mapping[str, Bounds] = field(default_factory=dict)
    announced: float = 0.0
    """The share of the last interval that lay in waits which the job had announced."""

    def waited(self, gap: float | None) -> float:
        """Return the part of such an interval that lay in announced waits with nothing running."""
        return min(self.announced, gap or 0.0)

    def within(self, gap: float | None) -> Stall:
        """Return it with what it explains of an interval in which nothing ran for a part `gap`: the
        announced waits as far as they can overlap, and of the rest the recent part."""
        waited = self.waited(gap)
        if not waited or not gap:
            return self
        rest = (gap - waited) * (self.of_idle or 0.0)
        return replace(self, of_idle=(waited + rest) / gap)


def stall_bounds(wait: float, idle: Bounds, seconds: float) -> Bounds:
    """Bound the time of `seconds` that is both waited and idle (Frechet), all in seconds.

    max(0, W + idle - T) <= S <= min(W, idle), with the idle time itself known by its bounds.
    """
    wait = max(wait, 0.0)
    least, most = (min(max(each, 0.0), seconds) for each in (idle.lower, idle.upper))
    upper = min(wait, most)
    # The two limits can cross by rounding, where wait or idle is all of the time.
    return Bounds(min(max(0.0, min(wait, seconds) + least - seconds), upper), upper)


def together(bounds: Iterable[Bounds]) -> Bounds | None:
    """Bound the stall of several ranks: at least that of any one, at most the sum of all."""
    known = list(bounds)
    if not known:
        return None
    return Bounds(max(b.lower for b in known), min(1.0, sum(b.upper for b in known)))
