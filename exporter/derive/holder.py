# SPDX-License-Identifier: Apache-2.0
"""Who holds a share of a GPU: of the processes that hold it, the one with the most memory."""

from __future__ import annotations

from collections.abc import Sequence

from exporter.derive.idle import IdleRules, holding
from exporter.model.reading import Process
from exporter.model.snapshot import Holder


def holder(
    processes: Sequence[Process] | None, held: bool | None, rules: IdleRules
) -> Holder | None:
    """Return the holder of a share, exactly one while it is held.

    It is the process with the most memory; unknown memory counts as 0, and of equal processes the
    one with the lowest number is taken. Where the processes are not known and used memory alone
    shows that the share is held, nothing is known of the holder.
    """
    if not held:
        return None
    largest = min(
        holding(processes or (), rules),
        key=lambda process: (-(process.used_bytes or 0), process.pid),
        default=None,
    )
    if largest is None:
        return Holder()
    return Holder(largest.owner, largest.command, largest.workload or "other")
