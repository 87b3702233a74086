# SPDX-License-Identifier: Apache-2.0
"""How much a GPU waits for data: what the training jobs on it report, and what bounds it.

A rank that the driver does not list on the GPU is shown there, but does not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from exporter.web.wording.facts import Range

if TYPE_CHECKING:
    from exporter.model.snapshot import Rank

Place = tuple[str | None, int | None]
"""UUID of a physical GPU and the GPU instance on it."""


class Report(Protocol):
    """What a rank says of its waiting, as snapshot and API have it."""

    @property
    def verified(self) -> bool | None:
        """Whether the driver lists it on its GPU."""

    @property
    def data_stall_ratio(self) -> float | None:
        """Share of time in which its GPU was idle because it waited for data; where measured."""

    @property
    def data_wait_ratio(self) -> float | None:
        """Share of time in which its host waited for data."""


def live_ranks(ranks: Iterable[Rank]) -> dict[Place, list[Rank]]:
    """Return the ranks that have a live process, by their place."""
    found: dict[Place, list[Rank]] = {}
    for rank in ranks:
        if rank.processes:
            found.setdefault((rank.gpu_uuid, rank.gpu_instance), []).append(rank)
    return found


def measured_stall(ranks: Iterable[Report]) -> float | None:
    """Return the part of the last seconds in which the GPU of the worst rank sat idle for its data.

    None where no rank measures that.
    """
    return _most(rank.data_stall_ratio for rank in ranks if rank.verified)


def inferred_stall(bounds: Iterable[tuple[float, float]]) -> Range | None:
    """Bound the same from outside the job, by every method that could; None without any."""
    found = list(bounds)
    if not found:
        return None
    lower = max(lower for lower, _ in found)
    return Range(lower, max(lower, min(upper for _, upper in found)))


def wait_for_data(ranks: Iterable[Report]) -> float | None:
    """Return the part of the last seconds in which the host of the worst rank waited for data."""
    return _most(rank.data_wait_ratio for rank in ranks if rank.verified)


def _most(ratios: Iterable[float | None]) -> float | None:
    return max((ratio for ratio in ratios if ratio is not None), default=None)
