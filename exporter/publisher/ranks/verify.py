# SPDX-License-Identifier: Apache-2.0
"""Whether a training process is on the GPU that it names: only if the driver lists it there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from exporter.model.training import TrainingReport
from exporter.publisher.ranks.places import GpuShares, Place

Listed = Mapping[str, frozenset[int]]
"""By UUID of the physical GPU: every process on any of its shares, as far as they are listed."""


def listed_processes(gpus: Iterable[GpuShares]) -> Listed:
    """Return the processes that the driver lists, of whatever type."""
    return {
        device.uuid: frozenset(process.pid for share in shares for process in share.processes or ())
        for device, shares in gpus
    }


def verified(reports: Iterable[TrainingReport], place: Place, listed: Listed) -> bool | None:
    """Return whether any of these processes, or an ancestor of it, is on the GPU of a place.

    None for a place without a GPU; False where the driver lists no processes, or where the
    reporting ones cannot be seen.
    """
    if place.uuid is None:
        return None
    pids = listed.get(place.uuid, frozenset())
    return any(report.verified or not pids.isdisjoint(report.host_pids) for report in reports)
