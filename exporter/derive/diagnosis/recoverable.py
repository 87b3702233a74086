# SPDX-License-Identifier: Apache-2.0
"""What a cause has cost, in GPU-seconds: at least, and at most."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from exporter.model.snapshot import Bounds, Rank, Share


def recoverable(kind: str | None, share: Share, ranks: Sequence[Rank]) -> Bounds | None:
    """Return what a kind of loss has cost since the job or the share is known; None if unknown.

    Without a wait a loop is faster by at least S and at most W (docs/stalls.md). Several ranks on
    one share may wait at the same time, so that the largest S counts, and the sum of all W.
    """
    count = _KINDS.get(kind or "")
    return None if count is None else count(share, ranks)


def _phase(phase: str) -> Callable[[Share, Sequence[Rank]], Bounds | None]:
    def count(share: Share, ranks: Sequence[Rank]) -> Bounds | None:
        waited = [rank.totals.phase_seconds.get(phase) for rank in ranks]
        known = [seconds for seconds in waited if seconds is not None]
        if not known:
            return _inferred(share) if phase == "data" else None
        stalled = [rank.totals.phase_gpu_idle_seconds.get(phase, 0.0) for rank in ranks]
        inferred = _inferred(share) if phase == "data" else None
        lower = max(*stalled, 0.0 if inferred is None else inferred.lower)
        return Bounds(min(lower, sum(known)), sum(known))

    return count


def _inferred(share: Share) -> Bounds | None:
    """Return the data stall as all methods together bound it."""
    lower, upper = share.totals.data_stall_lower_seconds, share.totals.data_stall_upper_seconds
    if not upper:
        return None
    return Bounds(max(lower.values(), default=0.0), max(upper.values()))


def _clock(share: Share, _: Sequence[Rank]) -> Bounds | None:
    seconds = share.totals.time_seconds.get("clock")
    return None if seconds is None else Bounds(seconds, seconds)


def _communication(share: Share, _: Sequence[Rank]) -> Bounds | None:
    """Return up to all of the time; how much of it could overlap with work is not known."""
    seconds = share.totals.limited_seconds.get("communication")
    return None if seconds is None else Bounds(0.0, seconds)


_KINDS: Mapping[str, Callable[[Share, Sequence[Rank]], Bounds | None]] = {
    **{phase: _phase(phase) for phase in ("data", "h2d", "checkpoint", "logging")},
    "clock": _clock,
    "communication": _communication,
}
