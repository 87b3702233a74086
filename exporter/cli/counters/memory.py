# SPDX-License-Identifier: Apache-2.0
"""The driver's memory utilization beside the DRAM activity of GPUs that measure it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from exporter.cli.terminal.screen import Screen, wrapped
from exporter.cli.terminal.table import Cell, Column, laid_out
from exporter.derive.saturation import DRAM_PER_MEMORY_UTILIZATION
from exporter.model.reading import share_name
from exporter.model.snapshot import Snapshot
from exporter.web.facts import notice_of
from exporter.web.wording.numbers import percent


@dataclass(frozen=True, slots=True)
class Pair:
    """The means of the last 10 s of one GPU."""

    gpu: str
    memory_utilization: float
    dram: float

    @property
    def estimate(self) -> float:
        """What the DRAM activity would be estimated at without counters."""
        return DRAM_PER_MEMORY_UTILIZATION * self.memory_utilization

    @property
    def json(self) -> dict[str, str | float]:
        """The same as values of JSON."""
        return {
            "gpu": self.gpu,
            "memory_utilization_ratio": self.memory_utilization,
            "dram_estimate_ratio": self.estimate,
            "dram_ratio": self.dram,
        }


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
                found.append(Pair(name, memory, dram))
    return found


_COLUMNS: tuple[Column[Pair], ...] = (
    Column("GPU", lambda each: Cell(each.gpu), 1),
    Column("m", lambda each: Cell(percent(each.memory_utilization)), 2, right=True),
    Column(
        f"{DRAM_PER_MEMORY_UTILIZATION} m", lambda each: Cell(percent(each.estimate)), 3, right=True
    ),
    Column("D", lambda each: Cell(percent(each.dram)), 2, right=True),
)


def compared(found: Sequence[Pair], snapshot: Snapshot, screen: Screen) -> Iterator[str]:
    """Yield one line for each GPU, and what the columns are."""
    yield from laid_out(_COLUMNS, found, screen)
    note = (
        "Means of the last 10 s. m: the driver's memory utilization; D: the DRAM activity that is "
        f"measured, where GPUs without counters have the estimate {DRAM_PER_MEMORY_UTILIZATION} m."
    )
    for text in (note, notice_of(snapshot) or ""):
        if text:
            yield from (screen.painted(line, "faint") for line in wrapped(text, screen.columns))
