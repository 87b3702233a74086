# SPDX-License-Identifier: Apache-2.0
"""The data stall of a GPU: measured by its training jobs, or bounded.

It is one number, or its bounds, for every place that shows it: the part of the last 10 s in which
the GPU was idle because a job on it waited. A rank that the driver does not list on the GPU is
shown there, but does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from exporter.model.snapshot import RECENT_SECONDS, Rank
from exporter.web.wording.facts import Range

Place = tuple[str | None, int | None]
"""UUID of a physical GPU and the GPU instance on it."""


def live_ranks(ranks: Iterable[Rank]) -> dict[Place, list[Rank]]:
    """Return the ranks that have a live process, by their place."""
    found: dict[Place, list[Rank]] = {}
    for rank in ranks:
        if rank.processes:
            found.setdefault((rank.gpu_uuid, rank.gpu_instance), []).append(rank)
    return found


def data_stall(
    ranks: Sequence[Rank],
    bounds: Iterable[tuple[float, float]],
    *,
    now: float,
    idle_seconds: float | None,
    idle_ratio: float | None,
    window_seconds: float | None = None,
) -> Range | None:
    """Return the stall of a GPU whose worst rank is among `ranks`; None where nothing is known.

    It is what a rank measures; else what `bounds` it from outside the job, by every method that
    could, as far as that can be of the last seconds. A wait that goes on at the Unix time `now` has
    not been reported yet, and counts for as long as it goes on and the GPU has been idle. A job's
    reports are not of exactly the last seconds; the stall is at most the `idle_ratio` of these.

    Args:
        ranks: those on the GPU.
        bounds: lower and upper, of each method.
        now: Unix time.
        idle_seconds: for how long the GPU has been idle without a break.
        idle_ratio: the part of the last seconds in which it was idle.
        window_seconds: how many of the last seconds were observed; None where that is not known.
    """
    known = [rank for rank in ranks if rank.verified]
    lasting = _lasting(known, now, idle_seconds, window_seconds or RECENT_SECONDS)
    measured = _most(rank.data_stall_ratio for rank in known)
    found = list(bounds)
    most = 1.0 if idle_ratio is None else min(max(idle_ratio, 0.0), 1.0)
    if measured is not None:
        lower = upper = max(measured, lasting or 0.0)
    elif found:
        least, most = _fits(known, idle_ratio)
        lower = max(least, lasting or 0.0, *(each for each, _ in found))
        upper = max(lower, min(each for _, each in found))
    elif lasting is not None:
        lower, upper = lasting, max(lasting, idle_ratio or 0.0)
    else:
        return None
    return Range(min(lower, most), min(upper, most))


def _fits(ranks: Sequence[Rank], idle_ratio: float | None) -> Range:
    """Return what a stall can be of the last seconds, in which the GPU was idle for `idle_ratio`.

    What is inferred from a job's reports is of the time between these, which is longer, and over,
    where waits are long. max(0, W + idle - 1) <= S <= min(W, idle) holds of the last seconds.
    """
    if idle_ratio is None:
        return Range(0.0, 1.0)
    idle = min(max(idle_ratio, 0.0), 1.0)
    waits = [rank.data_wait_ratio for rank in ranks]
    known = [wait for wait in waits if wait is not None]
    least = max([0.0, *(wait + idle - 1.0 for wait in known)])
    most = min(idle, sum(known)) if known and len(known) == len(waits) else idle
    return Range(min(least, most), most)


def _lasting(
    ranks: Iterable[Rank], now: float, idle_seconds: float | None, window_seconds: float
) -> float | None:
    """Return the part of the last seconds in which a GPU sat idle in a wait that still goes on."""
    since = [rank.last_report_timestamp_seconds for rank in ranks if rank.waiting_for_data]
    if not since or idle_seconds is None:
        return None
    return min(max(0.0, now - min(since)), max(0.0, idle_seconds), window_seconds) / window_seconds


def waiting(ranks: Iterable[Rank]) -> bool:
    """Return whether a job waits for data now, by its last word."""
    return any(rank.waiting_for_data for rank in ranks if rank.verified)


def job_of(ranks: Iterable[Rank]) -> str | None:
    """Return the job that waits most for data, of those on a GPU; None without one."""
    known = [rank for rank in ranks if rank.verified]
    if not known:
        return None
    worst = max(
        known,
        key=lambda rank: (
            rank.data_stall_ratio or 0.0,
            rank.waiting_for_data,
            rank.data_wait_ratio or 0.0,
        ),
    )
    return worst.job


def wait_for_data(ranks: Iterable[Rank]) -> float | None:
    """Return the part of the last seconds in which the host of the worst rank waited for data."""
    return _most(rank.data_wait_ratio for rank in ranks if rank.verified)


def _most(ratios: Iterable[float | None]) -> float | None:
    return max((ratio for ratio in ratios if ratio is not None), default=None)
