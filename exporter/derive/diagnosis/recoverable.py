# SPDX-License-Identifier: Apache-2.0
"""What a cause has cost, in GPU-seconds: at least, and at most."""

from __future__ import annotations

from collections.abc import Sequence

from exporter.model.snapshot import Bounds, Rank, Share


def recoverable(kind: str | None, share: Share, ranks: Sequence[Rank]) -> Bounds | None:
    """Return what a kind of loss has cost since the job or the share is known; None if unknown.

    Without a wait a loop is faster by at least S and at most W (docs/stalls.md). Several ranks on
    one share may wait at the same time, so that the largest S counts, and the sum of all W.
    """
    totals = share.totals
    if kind == "clock":
        slowed = totals.time_seconds.get("clock")
        return None if slowed is None else Bounds(slowed, slowed)
    if kind == "communication":  # how much of it could overlap with work is not known
        alone = totals.limited_seconds.get("communication")
        return None if alone is None else Bounds(0.0, alone)
    phase = kind or ""
    stalled = [rank.totals.phase_gpu_idle_seconds.get(phase, 0.0) for rank in ranks]
    most = sum(rank.totals.phase_seconds.get(phase, 0.0) for rank in ranks)
    if phase == "data":
        stalled += totals.data_stall_lower_seconds.values()
        most = most or max(totals.data_stall_upper_seconds.values(), default=0.0)
    return Bounds(min(max(stalled, default=0.0), most), most) if most else None
