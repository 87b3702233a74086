# SPDX-License-Identifier: Apache-2.0
"""The driver's memory utilization beside the DRAM activity of GPUs that measure it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from exporter.cli.terminal.screen import Screen, wrapped
from exporter.cli.terminal.table import Cell, Column, laid_out
from exporter.model.reading import share_name
from exporter.model.snapshot import DRAM_PER_MEMORY_UTILIZATION, Snapshot
from exporter.web.facts import notice_of
from exporter.web.wording.numbers import percent


class Pair(NamedTuple):
    """The means of the last 10 s of one GPU."""

    gpu: str
    memory_utilization_ratio: float
    dram_estimate_ratio: float
    """What the DRAM activity would be estimated at without counters."""
    dram_ratio: float


def pairs(snapshot: Snapshot) -> list[Pair]:
    """Return the pair of each GPU that has both numbers."""
    found = []
    for gpu in snapshot.gpus:
        for share in gpu.shares:
            recent = share.recent
            memory = None if recent is None else recent.memory_utilization_ratio
            dram = None if recent is None else recent.active_ratio.get("dram")
            if memory is not None and dram is not None:
                name = share_name(gpu.device.index, share.gpu_instance)
                found.append(Pair(name, memory, DRAM_PER_MEMORY_UTILIZATION * memory, dram))
    return found


def _percents(header: str, rank: int, of: Callable[[Pair], float]) -> Column[Pair]:
    return Column(header, lambda each: Cell(percent(of(each))), rank, right=True)


_COLUMNS: tuple[Column[Pair], ...] = (
    Column("GPU", lambda each: Cell(each.gpu), 1),
    _percents("m", 2, lambda each: each.memory_utilization_ratio),
    _percents(f"{DRAM_PER_MEMORY_UTILIZATION} m", 4, lambda each: each.dram_estimate_ratio),
    _percents("D", 3, lambda each: each.dram_ratio),
)


def compared(found: Sequence[Pair], snapshot: Snapshot, screen: Screen) -> Iterator[str]:
    """Yield one line for each GPU, and what the columns are."""
    yield from laid_out(_COLUMNS, found, screen)
    note = (
        "Means of the last 10 s. m: the driver's memory utilization; D: the DRAM activity that is "
        f"measured, where GPUs without counters have the estimate {DRAM_PER_MEMORY_UTILIZATION} m."
    )
    for text in filter(None, (note, notice_of(snapshot))):
        yield from (screen.painted(line, "faint") for line in wrapped(text, screen.columns))
