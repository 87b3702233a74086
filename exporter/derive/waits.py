# SPDX-License-Identifier: Apache-2.0
"""The data stall of a GPU: measured by its training jobs, or bounded.

The data stall is the part of the last 10 s in which the GPU was idle because a job on it waited for
data; page, history and `status` show the same number. Only verified ranks count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from exporter.model.reading import Place
from exporter.model.snapshot import RECENT_SECONDS, Bounds, Rank, Recent, Share


def live_ranks(ranks: Iterable[Rank]) -> dict[Place, list[Rank]]:
    """Return the ranks that have a live process, by their place."""
    found: dict[Place, list[Rank]] = {}
    for rank in ranks:
        if rank.processes:
            found.setdefault(Place(rank.gpu_uuid, rank.gpu_instance), []).append(rank)
    return found


def idle_ratio(recent: Recent | None) -> float | None:
    """Return the part of the last seconds in which nothing ran, inside the intervals, too."""
    if recent is None:
        return None
    parts, busy = recent.time_parts, recent.busy_ratio
    if "idle" in parts:
        return parts["idle"]
    return None if busy is None else max(0.0, 1.0 - busy)


def data_stall(share: Share | None, ranks: Sequence[Rank], now: float | None) -> Bounds | None:
    """Return how much of the last 10 s a share sat idle because one of these ranks waited for data.

    It is what the worst rank measures; else what bounds it from outside the job, by every method,
    as far as that can be of the last seconds. An unfinished wait is not reported yet: it counts
    from its beginning to the Unix time `now`, while the share has been idle; without `now` it does
    not count. The stall is at most the time in which the share was idle.
    """
    bounds = () if share is None else tuple(share.data_stall.values())
    recent = None if share is None else share.recent
    idle_for = None if share is None or now is None else share.totals.idle_for_seconds
    idle, window = idle_ratio(recent), (recent and recent.seconds) or RECENT_SECONDS
    known = [rank for rank in ranks if rank.verified]
    lasting = _lasting(known, now or 0.0, idle_for, window)
    measured = _most(rank.data_stall_ratio for rank in known)
    most = 1.0 if idle is None else min(max(idle, 0.0), 1.0)
    if measured is not None:
        lower = upper = max(measured, lasting or 0.0)
    elif bounds:
        fitting = _fits(known, idle)
        most = fitting.upper
        lower = max(fitting.lower, lasting or 0.0, *(each.lower for each in bounds))
        upper = max(lower, min(each.upper for each in bounds))
    elif lasting is not None:
        lower, upper = lasting, max(lasting, idle or 0.0)
    else:
        return None
    return Bounds(min(lower, most), min(upper, most))


def _fits(ranks: Sequence[Rank], idle_ratio: float | None) -> Bounds:
    """Return the bounds of a stall in the last seconds, of which `idle_ratio` were idle.

    What is inferred from a job's reports is of the time between these, which is longer, and over,
    where waits are long. max(0, W + idle - 1) <= S <= min(W, idle) holds of the last seconds.
    """
    if idle_ratio is None:
        return Bounds(0.0, 1.0)
    idle = min(max(idle_ratio, 0.0), 1.0)
    waits = [rank.data_wait_ratio for rank in ranks]
    known = [wait for wait in waits if wait is not None]
    least = max([0.0, *(wait + idle - 1.0 for wait in known)])
    most = min(idle, sum(known)) if known and len(known) == len(waits) else idle
    return Bounds(min(least, most), most)


def _lasting(
    ranks: Iterable[Rank], now: float, idle_seconds: float | None, window_seconds: float
) -> float | None:
    """Return the part of the last seconds that a GPU was idle in a wait that still goes on."""
    since = [rank.last_report_timestamp_seconds for rank in ranks if rank.waiting_for_data]
    if not since or idle_seconds is None:
        return None
    return min(max(0.0, now - min(since)), max(0.0, idle_seconds), window_seconds) / window_seconds


def waiting(ranks: Iterable[Rank]) -> bool:
    """Return whether a job waits for data now, by its last report."""
    return any(rank.waiting_for_data for rank in ranks if rank.verified)


def worst_rank(ranks: Iterable[Rank]) -> Rank | None:
    """Return the verified rank that waits most for data, of those on a GPU; None without one."""
    return max(
        (rank for rank in ranks if rank.verified),
        key=lambda rank: (
            rank.data_stall_ratio or 0.0,
            rank.waiting_for_data,
            rank.data_wait_ratio or 0.0,
        ),
        default=None,
    )


def wait_for_data(ranks: Iterable[Rank]) -> float | None:
    """Return the part of the last seconds in which the host of the worst rank waited for data."""
    return _most(rank.data_wait_ratio for rank in ranks if rank.verified)


def _most(ratios: Iterable[float | None]) -> float | None:
    return max((ratio for ratio in ratios if ratio is not None), default=None)
