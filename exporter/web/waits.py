# SPDX-License-Identifier: Apache-2.0
"""What the training jobs on a share say of its waiting: who they are, and how much is lost.

A rank that the driver does not list on the GPU is shown there, but says nothing about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from exporter.model.snapshot import Bounds, Rank, Share

Place = tuple[str | None, int | None]
"""UUID of a physical GPU and the GPU instance on it."""


def live_ranks(ranks: Iterable[Rank]) -> dict[Place, list[Rank]]:
    """Return the ranks that have a live process, by their place."""
    found: dict[Place, list[Rank]] = {}
    for rank in ranks:
        if rank.processes:
            found.setdefault((rank.gpu_uuid, rank.gpu_instance), []).append(rank)
    return found


def measured_stall(ranks: Iterable[Rank]) -> float | None:
    """Return the part of the last seconds in which the GPU of the worst rank sat idle for its data.

    None where no rank measures that.
    """
    return _most(rank.data_stall_ratio for rank in _believed(ranks))


def inferred_stall(share: Share) -> Bounds | None:
    """Bound the same from outside the job, by every method that could; None without any."""
    bounds = share.data_stall.values()
    if not bounds:
        return None
    lower = max(each.lower for each in bounds)
    return Bounds(lower, max(lower, min(each.upper for each in bounds)))


def wait_for_data(ranks: Iterable[Rank]) -> float | None:
    """Return the part of the last seconds in which the host of the worst rank waited for data."""
    return _most(rank.data_wait_ratio for rank in _believed(ranks))


def _believed(ranks: Iterable[Rank]) -> Iterator[Rank]:
    return (rank for rank in ranks if rank.verified)


def _most(ratios: Iterable[float | None]) -> float | None:
    return max((ratio for ratio in ratios if ratio is not None), default=None)
