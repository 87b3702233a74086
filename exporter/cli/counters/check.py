# SPDX-License-Identifier: Apache-2.0
"""Runs ``counters check``: whether this machine's counters can be read, how DRAM activity compares
with the driver's memory utilization, and which of CUPTI's metrics would be sampled."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from exporter.cli import config
from exporter.cli.command import FAILED, STOPPED, Invocation
from exporter.cli.config.coerce import FORMAT, Kind, matched, option
from exporter.cli.counters.machine import Machine, capability, restricted
from exporter.cli.daemon_address import daemon_of
from exporter.cli.snapshot_reader import ask_daemon
from exporter.cli.terminal.screen import Screen, print_lines, safe, screen_of
from exporter.cli.terminal.table import NOTHING, Cell, Column, laid_out
from exporter.errors import ConfigError, LibraryUnavailable, SourceError
from exporter.model.reading import share_name
from exporter.model.snapshot import DRAM_PER_MEMORY_UTILIZATION, Snapshot
from exporter.sources.cupti.choice import Choices, Metric
from exporter.sources.cupti.host import Host, supported_chips
from exporter.sources.cupti.library import CuptiError, CuptiLibrary
from exporter.sources.cupti.release import Release, Unfit, fitting, installed
from exporter.web.columns import ESTIMATE
from exporter.web.facts import notice_of
from exporter.web.wording.numbers import percent


def _release(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)


CUDA = Kind(matched(r"[0-9]{1,2}\.[0-9]{1,2}", _release), "VERSION", "a version such as 12.9")
TAKEN_FOR = {"tensor_fp16": "tensor+FP16", "fma": "FP32+FP16", "fp32": "FP32"}
"""By field of Activity: what a signal is, where its name does not tell."""
NOT_SUPPORTED = 27

_print = partial(print_lines, flush=True)  # what comes next takes seconds


def run(invocation: Invocation) -> int:
    """Print which counters are sampled; return the exit code."""
    settings, given = invocation.settings(), invocation.options
    form = option("--format", FORMAT, given.format or "table")
    if given.cuda is None:
        cuda = driver_cuda(settings.nvml_library)
    else:
        cuda = option("--cuda", CUDA, given.cuda)
    screen = screen_of(sys.stdout, invocation.environ)
    if given.chip is None:
        return _machine(settings, cuda, screen, as_json=form == "json")
    release = fitting(installed(), cuda)[0]
    library = CuptiLibrary(release.library)
    one = check(library, release, chip_of(given.chip, supported_chips(library)))
    _print([json.dumps(one.json, indent=2)] if form == "json" else sheet(one, release, screen))
    return STOPPED


def _machine(
    settings: config.Settings, cuda: tuple[int, int] | None, screen: Screen, *, as_json: bool
) -> int:
    """Print what CUPTI needs and finds here, and what it would sample on each chip."""
    snapshot = _read(settings)
    machine = machine_of(settings.path_procfs, cuda, snapshot)
    found = pairs(snapshot)
    if not as_json:
        _print(safe(line) for line in machine.lines())  # a command that is wrapped cannot be copied
        if found:
            _print(("", *compared(found, snapshot, screen)))
    every, release = [], machine.cupti
    if isinstance(release, Release):
        every = check_all(CuptiLibrary(release.library), release)
        if not as_json:
            _print(("", *listing(every, release, screen)))
    if as_json:
        gpus, chips = [each._asdict() for each in found], [each.json for each in every]
        _print([json.dumps({"machine": machine.json, "gpus": gpus, "chips": chips}, indent=2)])
    return STOPPED if every else FAILED


def _read(settings: config.Settings) -> Snapshot:
    """Return the readings of this machine's daemon; empty without one."""
    try:
        return ask_daemon(daemon_of(settings, "counters check")).snapshot
    except SourceError as error:
        if settings.url:
            print(f"roofline-exporter: {error}", file=sys.stderr)
        return Snapshot(0.0)


def machine_of(procfs: Path, cuda: tuple[int, int] | None, snapshot: Snapshot) -> Machine:
    """Return which of CUPTI's requirements this machine meets."""
    found = [share.saturation for gpu in snapshot.gpus for share in gpu.shares]
    try:
        cupti: Release | Unfit = fitting(installed(), cuda)[0]
    except Unfit as unfit:
        cupti = unfit
    measured = bool(found) and all(each and each.source != ESTIMATE for each in found)
    return Machine(cupti, capability(procfs), restricted(procfs), measured)


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
    """The metrics that would be sampled on one chip."""

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
    """Return the metrics that would be sampled on a chip; raise CuptiError if there are none."""
    choice = Choices(library).of(chip)
    with closing(Host(library, chip)) as host:
        host.add([metric.name for metric in choice.metrics])
        passes = host.passes(host.image())
    return Checked(release.version, chip, passes, choice.metrics, choice.missing)


def check_all(library: CuptiLibrary, release: Release) -> list[Checked]:
    """Return the metrics of each chip that CUPTI can sample: from Turing on."""
    found = []
    for chip in supported_chips(library):
        try:
            found.append(check(library, release, chip))
        except CuptiError as error:
            if error.code != NOT_SUPPORTED:
                raise
    return found


class Pair(NamedTuple):
    """The driver's memory utilization beside the DRAM activity of a GPU: means of the last 10 s."""

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


def _sampled(checked: Checked) -> str:
    """Return the measured activities, by unit and link."""
    named = (
        TAKEN_FOR.get(metric.field)
        or metric.signal.removesuffix("_receive").removesuffix("_transmit")
        for metric in checked.metrics
    )
    return ", ".join(dict.fromkeys(named))


_LIKELY = f"{DRAM_PER_MEMORY_UTILIZATION} m"
_PAIRS: tuple[Column[Pair], ...] = (
    Column("GPU", lambda each: Cell(each.gpu), 1),
    Column("m", lambda each: Cell(percent(each.memory_utilization_ratio)), 2, right=True),
    Column(_LIKELY, lambda each: Cell(percent(each.dram_estimate_ratio)), 4, right=True),
    Column("D", lambda each: Cell(percent(each.dram_ratio)), 3, right=True),
)
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


def compared(found: Sequence[Pair], snapshot: Snapshot, screen: Screen) -> Iterator[str]:
    """Yield one line for each GPU, and an explanation of the columns."""
    yield from laid_out(_PAIRS, found, screen)
    note = (
        "Means of the last 10 s. m: the driver's memory utilization; D: the DRAM activity that is "
        f"measured, where GPUs without counters have the estimate {_LIKELY}."
    )
    for text in filter(None, (note, notice_of(snapshot))):
        yield from screen.paragraph(text, "faint")


def listing(every: Sequence[Checked], release: Release, screen: Screen) -> Iterator[str]:
    """Yield one line for each chip."""
    yield from laid_out(_LISTING, every, screen)
    note = (
        f"{release}: sampled are the signals that one pass counts. --chip CHIP shows the metrics."
    )
    yield from screen.paragraph(note, "faint")


def sheet(checked: Checked, release: Release, screen: Screen) -> Iterator[str]:
    """Yield the metric of each signal of one chip."""
    passes = f"{checked.passes} pass{'' if checked.passes == 1 else 'es'}"
    yield from screen.paragraph(f"{checked.chip} by {release}, in {passes}", "strong")
    yield from laid_out(_SHEET, checked.metrics, screen)
    if checked.missing:
        yield from screen.paragraph(f"missing: {', '.join(checked.missing)}", "")
