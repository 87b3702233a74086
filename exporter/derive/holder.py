# SPDX-License-Identifier: Apache-2.0
"""Who holds a share of a GPU: the largest of the processes that do."""

from __future__ import annotations

from collections.abc import Sequence

from exporter.derive.idle import IdleRules, holding
from exporter.model.reading import Process
from exporter.model.snapshot import Holder


def holder(
    processes: Sequence[Process] | None, held: bool | None, rules: IdleRules
) -> Holder | None:
    """Return the holder of a share, exactly one while it is held.

    It is the process with the most memory, one of unknown memory counting as 0; of equal ones that
    with the lowest number. Held by its memory alone, a share has a holder of whom nothing is known.
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
