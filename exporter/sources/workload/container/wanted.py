# SPDX-License-Identifier: Apache-2.0
"""Which containers have a process on a GPU: nobody asks for the names of others."""

from __future__ import annotations

from collections.abc import Iterable

from exporter.model.reading import SlotReport


def on_gpus(reports: Iterable[SlotReport]) -> frozenset[str]:
    """Return the ids of the containers, but of those of pods, that have a process on a GPU."""
    members = (
        process.membership
        for report in reports
        if report.reading is not None
        for share in report.reading.shares
        for process in share.processes or ()
    )
    return frozenset(
        member.container_id
        for member in members
        if member is not None and member.container_id is not None and member.pod_uid is None
    )
