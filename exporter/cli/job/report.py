# SPDX-License-Identifier: Apache-2.0
"""The report on a job's GPUs, ranks and causes, as text; what is not known is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from exporter.cli.job.seen import Seen, SeenShare
from exporter.cli.terminal.screen import Screen, safe
from exporter.cli.terminal.table import UNKNOWN, Cell, Column, laid_out
from exporter.model.snapshot import Rank
from exporter.web.wording.diagnosis import cost, sentence
from exporter.web.wording.facts import WIDEST_BAND_RATIO
from exporter.web.wording.numbers import (
    duration,
    fixed,
    gibibytes,
    iso_time,
    model_name,
    percent,
    span,
)

NOTABLE_RATIO = 0.005
TEXTS = ("GPU", "NAME", "JOB")
"""The columns that are not numbers."""
Row = TypeVar("Row")


def report(seen: Seen, job: str, node: str) -> str:
    """Return the report on what was seen of a job on a node."""
    return "".join(f"{line}\n" for line in _lines(seen, job, node))


def _lines(seen: Seen, job: str, node: str) -> Iterator[str]:
    names = ", ".join(dict.fromkeys(rank.job for rank in seen.ranks.values()))
    lasted, shares = duration(seen.ended - seen.began), seen.shares
    yield f"job   {safe(job or names or 'without a name')}"
    yield f"node  {safe(node)}"
    yield f"time  {lasted}, {iso_time(seen.began)} to {iso_time(seen.ended)}"
    yield ""
    if not shares:
        yield f"no GPU of this job was seen{'' if seen.problem is None else f': {seen.problem}'}"
    yield from _table(OF_GPUS, [*shares.values()])
    for title, said in (
        ("limited most by (share of the observed time)", _limited),
        ("causes (and for how long each was seen)", _causes),
    ):
        lines = [f"GPU {each.name}  {text}" for each in shares.values() for text in said(each)]
        yield from ("", title, *lines) if lines else ()
    yield from ("",) if seen.ranks else ()
    ranks = sorted(seen.ranks.items(), key=lambda each: each[0][:2])
    yield from _table(_of_ranks(seen), [rank for _, rank in ranks])


def _table(
    columns: Mapping[str, Callable[[Row], str | None]], rows: Sequence[Row]
) -> Iterator[str]:
    made = [
        Column(header, _cells(show), 0, 0, 60, right=header not in TEXTS)
        for header, show in columns.items()
    ]
    return laid_out(made, rows, Screen()) if rows else iter(())


def _cells(show: Callable[[Row], str | None]) -> Callable[[Row], Cell]:
    return lambda row: Cell(text) if (text := show(row)) else UNKNOWN


OF_GPUS: Mapping[str, Callable[[SeenShare], str | None]] = {
    "GPU": lambda each: each.name,
    "NAME": lambda each: model_name(each.device.name),
    "UTIL": lambda each: _part(
        each.share.totals.busy_seconds, each.share.totals.observed_seconds.get("utilization")
    ),
    "SAT": lambda each: _saturation(*each.saturated),
    "PEAK MEM GiB": lambda each: (
        f"{gibibytes(each.memory_bytes)}/{gibibytes(each.share.memory.total_bytes)}"
        if each.share.memory
        else None
    ),
    "ENERGY Wh": lambda each: _hours(each.energy_joules),
    "HELD GPU-h": lambda each: _hours(each.held_seconds),
    "USED GPU-h": lambda each: _used(each.held_seconds, each.share.totals.held_idle_seconds),
    "HELD IDLE GPU-h": lambda each: _hours(each.share.totals.held_idle_seconds),
}


def _of_ranks(seen: Seen) -> Mapping[str, Callable[[Rank], str | None]]:
    gpus = {key: each.name for key, each in seen.shares.items()}
    return {
        "JOB": lambda rank: rank.job,
        "RANK": lambda rank: str(rank.rank),
        "GPU": lambda rank: gpus.get((rank.gpu_uuid, rank.gpu_instance)),
        "STEPS": lambda rank: f"{rank.totals.steps:,.0f}",
        "LOOP": lambda rank: duration(rank.totals.step_seconds),
        "DATA WAIT": lambda rank: _part(
            rank.totals.phase_seconds.get("data"), rank.totals.step_seconds
        ),
        "GPU IDLE": lambda rank: _part(
            rank.totals.phase_gpu_idle_seconds.get("data"), rank.totals.step_seconds
        ),
    }


def _limited(seen: SeenShare) -> Iterator[str]:
    limited = seen.share.totals.limited_seconds
    whole = sum(limited.values())
    notable = {name: part for name, part in limited.items() if part > NOTABLE_RATIO * whole}
    if notable:
        parts = sorted(notable, key=lambda name: -notable[name])
        yield ", ".join(f"{name} {percent(notable[name] / whole)}" for name in parts)


def _causes(seen: SeenShare) -> Iterator[str]:
    for seconds, found in sorted(seen.causes.values(), key=lambda each: -each[0]):
        costs = cost(found)
        recoverable = f" Recoverable: {costs}." if costs else ""
        yield f"{duration(seconds)}: {found.cause}: {sentence(found)}{recoverable}"


def _saturation(seconds: float, lower: float, upper: float) -> str | None:
    is_known = seconds and upper - lower <= WIDEST_BAND_RATIO * seconds
    return span(lower / seconds, upper / seconds) if is_known else None


def _part(seconds: float | None, whole: float | None) -> str | None:
    return percent(seconds / whole) if seconds is not None and whole else None


def _used(held: float | None, idle: float | None) -> str | None:
    return None if held is None or idle is None else _hours(max(0.0, held - idle))


def _hours(seconds: float | None) -> str | None:
    """Return hours of seconds; of joules watt-hours."""
    return None if seconds is None else fixed(seconds / 3600, 2)
