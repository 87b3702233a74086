# SPDX-License-Identifier: Apache-2.0
"""The report on a job's GPUs, ranks and causes, as text; what is not known is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from exporter.cli.job.seen import Seen, SeenShare
from exporter.cli.terminal.screen import Screen, safe
from exporter.cli.terminal.table import UNKNOWN, Cell, Column, laid_out
from exporter.model.snapshot import Rank
from exporter.web.wording import numbers
from exporter.web.wording.diagnosis import sentences
from exporter.web.wording.facts import WIDEST_BAND_RATIO

TEXTS = ("GPU", "NAME", "SOURCE", "JOB")
"""The columns that are not numbers."""

Row = Mapping[str, str | None]
"""The texts of a table's row, by column; None is "not known"."""


def report(seen: Seen, names: Mapping[str, str | None]) -> str:
    """Return the report on a job, which begins with the job's name."""
    return "".join(f"{line}\n" for line in _lines(seen, names))


def _lines(seen: Seen, names: Mapping[str, str | None]) -> Iterator[str]:
    shares = sorted(seen.shares.values(), key=lambda each: each.gpu.device.index)
    began, ended = seen.began, seen.last.timestamp_seconds
    yield from (f"{key:6}{safe(name)}" for key, name in names.items() if name)
    times = f"{numbers.iso_time(began)} to {numbers.iso_time(ended)}"
    yield f"time  {numbers.duration(ended - began)}, {times}"
    yield ""
    if not shares:
        yield ": ".join(filter(None, ("no GPU of this job was seen", seen.last.problem)))
    yield from _table([_gpu(each) for each in shares])
    said = [f"GPU {each.name}  {text}" for each in shares for text in _why(each)]
    yield from ("", *said) if said else ()
    yield from ("",) if seen.ranks else ()
    ranks = sorted(seen.ranks.items(), key=lambda each: each[0][:2])
    yield from _table([_rank(rank, seen.shares.get(place)) for (_, _, place), rank in ranks])


def _table(rows: Sequence[Row]) -> Iterator[str]:
    columns = [
        Column(header, partial(_cell, header), 0, most=60, right=header not in TEXTS)
        for header in (rows[0] if rows else ())
    ]
    return laid_out(columns, rows, Screen()) if rows else iter(())


def _cell(header: str, row: Row) -> Cell:
    return Cell(text) if (text := row[header]) else UNKNOWN


def _gpu(seen: SeenShare) -> Row:
    totals, memory, most = seen.share.totals, seen.share.memory, seen.memory_bytes
    held, idle, gibibytes = seen.held_seconds, totals.held_idle_seconds, numbers.gibibytes
    known, lower, upper = seen.saturated
    is_narrow = known and upper - lower <= WIDEST_BAND_RATIO * known
    return {
        "GPU": seen.name,
        "NAME": numbers.model_name(seen.gpu.device.name),
        "UTIL": _part(totals.busy_seconds, totals.observed_seconds.get("utilization")),
        "SAT": numbers.span(lower / known, upper / known) if is_narrow else None,
        "SOURCE": ", ".join(seen.sources),
        "PEAK MEM GiB": f"{gibibytes(most)}/{gibibytes(memory.total_bytes)}" if memory else None,
        "ENERGY Wh": _hours(seen.energy_joules),
        "HELD GPU-h": _hours(held),
        "USED GPU-h": None if held is None or idle is None else _hours(max(0.0, held - idle)),
        "HELD IDLE GPU-h": _hours(idle),
    }


def _rank(rank: Rank, gpu: SeenShare | None) -> Row:
    totals, loop = rank.totals, rank.totals.step_seconds
    return {
        "JOB": rank.job,
        "RANK": str(rank.rank),
        "GPU": gpu.name if gpu else None,
        "STEPS": f"{totals.steps:,.0f}",
        "LOOP": numbers.duration(loop),
        "DATA WAIT": _part(totals.phase_seconds.get("data"), loop),
        "GPU IDLE": _part(totals.phase_gpu_idle_seconds.get("data"), loop),
    }


def _why(seen: SeenShare) -> Iterator[str]:
    """Yield the limiters as shares of the observed time, and the causes."""
    limited = seen.share.totals.limited_seconds
    whole = sum(limited.values())
    parts = sorted(((part / whole, name) for name, part in limited.items() if part), reverse=True)
    if parts:
        yield f"limited by {', '.join(f'{name} {numbers.percent(part)}' for part, name in parts)}"
    for seconds, found in sorted(seen.causes.values(), key=lambda each: -each[0]):
        yield f"for {numbers.duration(seconds)} {found.cause}: {sentences(found)}"


def _part(seconds: float | None, whole: float | None) -> str | None:
    return numbers.percent(seconds / whole) if seconds is not None and whole else None


def _hours(seconds: float | None) -> str | None:
    """Return seconds in hours, or joules in watt-hours."""
    return None if seconds is None else numbers.fixed(seconds / 3600, 2)
