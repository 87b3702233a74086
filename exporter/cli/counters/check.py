# SPDX-License-Identifier: Apache-2.0
"""Runs ``counters check``: which of CUPTI's metrics would be sampled, of one chip or of all."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from exporter.cli import config
from exporter.cli.command import STOPPED, Invocation
from exporter.cli.config.coerce import FORMAT, Kind, matched, option
from exporter.cli.terminal.screen import Screen, encodable, safe, screen_of, wrapped
from exporter.cli.terminal.table import NOTHING, Cell, Column, laid_out
from exporter.errors import ConfigError, LibraryUnavailable
from exporter.sources.cupti.choice import Choices, Metric
from exporter.sources.cupti.errors import CuptiError
from exporter.sources.cupti.host import Host, supported_chips
from exporter.sources.cupti.library import CuptiLibrary
from exporter.sources.cupti.release import Release, fitting, installed


def _release(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)


CUDA = Kind(
    matched(r"[0-9]{1,2}\.[0-9]{1,2}", _release),
    "VERSION",
    "a version such as 12.9",
)
TAKEN_FOR = {"tensor_fp16": "tensor+FP16", "fma": "FP32+FP16", "fp32": "FP32"}
"""By field of Activity: what a signal is, where its name does not tell."""
NOT_SUPPORTED = 27


def run(invocation: Invocation) -> int:
    """Print what is sampled; return the exit code."""
    settings, given = invocation.settings(), invocation.options
    form = option("--format", FORMAT, given.format or "table")
    if given.cuda is None:
        cuda = driver_cuda(settings.nvml_library)
    else:
        cuda = option("--cuda", CUDA, given.cuda)
    release = fitting(installed(), cuda)[0]
    library = CuptiLibrary(release.library)
    screen = screen_of(sys.stdout, invocation.environ)
    answer: object
    if given.chip is None:
        every = check_all(library, release)
        lines = listing(every, release, screen)
        answer = [each.json for each in every]
    else:
        one = check(library, release, chip_of(given.chip, supported_chips(library)))
        lines, answer = sheet(one, release, screen), one.json
    for line in [json.dumps(answer, indent=2)] if form == "json" else lines:
        print(encodable(line, sys.stdout.encoding))
    return STOPPED


def driver_cuda(path: str | None) -> tuple[int, int] | None:
    """Return the version of CUDA that this machine's driver has; None without a driver."""
    import pynvml

    from exporter.sources.nvml.library import Library as NvmlLibrary

    library = NvmlLibrary(path)
    try:
        library.start()
        number = int(pynvml.nvmlSystemGetCudaDriverVersion())
    except (LibraryUnavailable, pynvml.NVMLError):
        return None
    finally:
        library.stop()
    return number // 1000, number % 1000 // 10


def chip_of(text: str, known: Sequence[str]) -> str:
    """Return the name of a chip as CUPTI writes it; raise ConfigError if it does not know it."""
    name = text.upper()
    if name in known:
        return name
    raise ConfigError(
        f"--chip: this release of CUPTI does not know {config.shown(text)}"
        f"{config.did_you_mean(name, known)} (see roofline-exporter counters check)"
    )


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
    """Return what would be sampled of a chip; raise CuptiError if it cannot be."""
    choice = Choices(library).of(chip)
    with closing(Host(library, chip)) as host:
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


def _sampled(checked: Checked) -> str:
    """Return what is measured, by unit and link."""
    named = (
        TAKEN_FOR.get(metric.field)
        or metric.signal.removesuffix("_receive").removesuffix("_transmit")
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
    Column("OF", lambda each: Cell(TAKEN_FOR.get(each.field, "")), 3),
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
