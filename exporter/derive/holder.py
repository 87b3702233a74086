# SPDX-License-Identifier: Apache-2.0
"""Who holds a share of a GPU: of the processes that hold it, the one with the most memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from exporter.derive.idle import IdleRules, holding
from exporter.model.reading import Process
from exporter.model.snapshot import Holder
from exporter.model.workload import ShareWork


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
    return Holder(largest.owner, largest.command, largest.work_class or "other", pid=largest.pid)


def with_workload(holder: Holder | None, work: ShareWork) -> Holder | None:
    """Return the holder with its workload.

    It is that of its process; where that belongs to none that is known, the only one there is.
    """
    if holder is None:
        return None
    workload = None if holder.pid is None else work.of_process.get(holder.pid)
    if workload is None and not work.of_process and len(work.workloads) == 1:
        workload = work.workloads[0]
    return holder if workload is None else replace(holder, workload=workload)
