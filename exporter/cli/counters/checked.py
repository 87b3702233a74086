# SPDX-License-Identifier: Apache-2.0
"""What CUPTI can count of chips at the same time: as JSON, and for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from exporter.cli.terminal.screen import Screen, safe, wrapped
from exporter.cli.terminal.table import NOTHING, Cell, Column, laid_out
from exporter.sources.cupti.choice import Choices, Metric
from exporter.sources.cupti.errors import CuptiError
from exporter.sources.cupti.host import Host, supported_chips
from exporter.sources.cupti.library import CuptiLibrary
from exporter.sources.cupti.release import Release

TAKEN_FOR = {"tensor_fp16": "tensor+FP16", "fma": "FP32+FP16", "fp32": "FP32"}
"""By field of Activity."""
NOT_SUPPORTED = 27


@dataclass(frozen=True, slots=True)
class Checked:
    """What would be sampled of one chip."""

    cupti: str
    """The release's version."""
    chip: str
    passes: int
    metrics: tuple[Metric, ...]
    missing: tuple[str, ...]

    @property
    def json(self) -> dict[str, Any]:
        """The same with the metric of each signal by its name."""
        return {
            "cupti": self.cupti,
            "chip": self.chip,
            "passes": self.passes,
            "signals": {metric.signal: metric.name for metric in self.metrics},
            "missing": list(self.missing),
        }


def check(library: CuptiLibrary, release: Release, chip: str) -> Checked:
    """Return what would be sampled of a chip.

    Raises:
        CuptiError: CUPTI cannot sample it.
    """
    choice = Choices(library).of(chip)
    with Host(library, chip) as host:
        host.add([metric.name for metric in choice.metrics])
        passes = host.passes(host.image())
    return Checked(release.version, chip, passes, choice.metrics, choice.missing)


def check_all(library: CuptiLibrary, release: Release) -> list[Checked]:
    """Return what would be sampled of each chip that CUPTI can sample: from Turing on."""
    found = []
    for chip in supported_chips(library):
        try:
            found.append(check(library, release, chip))
        except CuptiError as error:
            if error.code != NOT_SUPPORTED:
                raise
    return found


def _taken_for(metric: Metric) -> str:
    """Return what a signal is, where it is not the one unit that its name says."""
    return TAKEN_FOR.get(metric.field, "")


def _sampled(checked: Checked) -> str:
    """Return what is measured, by unit and link."""
    named = (
        _taken_for(metric) or metric.signal.removesuffix("_receive").removesuffix("_transmit")
        for metric in checked.metrics
    )
    return ", ".join(dict.fromkeys(named))


_LISTING: tuple[Column[Checked], ...] = (
    Column("CHIP", lambda each: Cell(safe(each.chip)), 1),
    Column("PASSES", lambda each: Cell(str(each.passes)), 3, right=True),
    Column("MISSING", lambda each: Cell(", ".join(each.missing)) if each.missing else NOTHING, 2),
    Column("SAMPLED", lambda each: Cell(_sampled(each)), 4, least=20, most=200, shrinks=True),
)
_SHEET: tuple[Column[Metric], ...] = (
    Column("SIGNAL", lambda each: Cell(each.signal), 1),
    Column("OF", lambda each: Cell(_taken_for(each)), 3),
    Column("METRIC", lambda each: Cell(safe(each.name)), 2, least=20, most=120, shrinks=True),
)


def listing(every: Sequence[Checked], release: Release, screen: Screen) -> Iterator[str]:
    """Yield one line for each chip."""
    yield from laid_out(_LISTING, every, screen)
    note = (
        f"{release}: sampled are the signals that one pass counts. --chip CHIP shows the metrics."
    )
    yield from (screen.painted(line, "faint") for line in wrapped(note, screen.columns))


def sheet(checked: Checked, release: Release, screen: Screen) -> Iterator[str]:
    """Yield the metric of each signal of one chip."""
    passes = f"{checked.passes} pass{'' if checked.passes == 1 else 'es'}"
    title = f"{checked.chip} by {release}, in {passes}"
    yield from (screen.painted(line, "strong") for line in wrapped(title, screen.columns))
    yield from laid_out(_SHEET, checked.metrics, screen)
    if checked.missing:
        yield from wrapped(f"missing: {', '.join(checked.missing)}", screen.columns)
