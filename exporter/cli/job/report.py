# SPDX-License-Identifier: Apache-2.0
"""The report on a job's GPUs, ranks and causes, as text; what is not known is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from exporter.cli.job.seen import Key, Seen, SeenShare
from exporter.cli.terminal.screen import Screen, safe
from exporter.cli.terminal.table import UNKNOWN, Cell, Column, laid_out
from exporter.model.reading import share_name
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
_TEXTS = ("GPU", "NAME", "SOURCE", "JOB", "OTHER WAITS")
WAITS = ("checkpoint", "eval", "logging")

Row = Mapping[str, str | None]
"""The texts of a table's row, by column; None is "not known"."""


def report(seen: Seen, job: str | None, node: str) -> str:
    """Return the report on what was seen of a job on a node."""
    return "".join(f"{line}\n" for line in _lines(seen, job, node))


def _lines(seen: Seen, job: str | None, node: str) -> Iterator[str]:
    names = ", ".join(dict.fromkeys(rank.job for rank in seen.ranks.values()))
    shares = {_name(each): each for each in seen.shares()}
    yield f"job   {safe(job or names or 'without a name')}"
    yield f"node  {safe(node)}"
    lasted = f"{_time(seen.ended - seen.began)}, {iso_time(seen.began)} to {iso_time(seen.ended)}"
    yield f"time  {lasted}"
    yield ""
    if not shares:
        yield f"no GPU of this job was seen{'' if seen.problem is None else f': {seen.problem}'}"
    yield from _table([_gpu(each, seen) for each in shares.values()])
    limited = [f"GPU {name}  {said}" for name, each in shares.items() if (said := _limited(each))]
    yield from ("", "limited most by (share of the observed time)", *limited) if limited else ()
    causes = [f"GPU {name}  {said}" for name, each in shares.items() for said in _causes(each)]
    yield from ("", "causes (and for how long each was seen)", *causes) if causes else ()
    yield from ("",) if seen.ranks else ()
    gpus: dict[Key, str] = {
        (each.device.uuid, each.share.gpu_instance): name for name, each in shares.items()
    }
    ranks = sorted(seen.ranks.items(), key=lambda each: each[0][:2])
    yield from _table([_rank(rank, gpus.get(at)) for (_, _, at), rank in ranks])


def _table(rows: Sequence[Row]) -> Iterator[str]:
    columns = [
        Column(header, partial(_cell, header), 0, 0, 60, right=header not in _TEXTS)
        for header in (rows[0] if rows else ())
    ]
    return laid_out(columns, rows, Screen()) if rows else iter(())


def _cell(header: str, row: Row) -> Cell:
    return Cell(text) if (text := row[header]) else UNKNOWN


def _gpu(seen: SeenShare, run: Seen) -> Row:
    totals, memory, joules = seen.share.totals, seen.share.memory, seen.energy_joules
    busy, observed = totals.busy_seconds, totals.observed_seconds.get("utilization")
    bounds, seconds = seen.saturation_bounds, run.ended - run.began
    idle, held = totals.held_idle_seconds, seen.held_seconds
    most = gibibytes(seen.memory_bytes)
    return {
        "GPU": _name(seen),
        "NAME": model_name(seen.device.name),
        "UTIL": percent(busy / observed) if busy is not None and observed else None,
        "SAT": _band(bounds.lower, bounds.upper) if bounds else None,
        "SOURCE": ", ".join(seen.sources),
        "DATA STALL": _stall(seen, run),
        "PEAK MEM GiB": f"{most}/{gibibytes(memory.total_bytes)}" if memory else None,
        "POWER W": fixed(joules / seconds, 0) if joules is not None and seconds >= 1 else None,
        "ENERGY Wh": None if joules is None else fixed(joules / 3600, 1),
        "HELD GPU-h": _hours(held),
        "USED GPU-h": _hours(None if held is None or idle is None else max(0.0, held - idle)),
        "HELD IDLE GPU-h": _hours(idle),
    }


def _rank(rank: Rank, gpu: str | None) -> Row:
    totals = rank.totals
    spent = {name: totals.phase_seconds.get(name) for name in WAITS}
    return {
        "JOB": rank.job,
        "RANK": str(rank.rank),
        "GPU": gpu,
        "STEPS": f"{totals.steps:,.0f}",
        "LOOP": _time(totals.step_seconds),
        "DATA WAIT": _part(totals.phase_seconds.get("data"), totals.step_seconds),
        "GPU IDLE": _part(totals.phase_gpu_idle_seconds.get("data"), totals.step_seconds),
        "OTHER WAITS": ", ".join(f"{each} {_time(time)}" for each, time in spent.items() if time),
    }


def _name(seen: SeenShare) -> str:
    return share_name(seen.device.index, seen.share.gpu_instance)


def _stall(seen: SeenShare, run: Seen) -> str | None:
    """Return the data stall of the worst rank that measures it; else what bounds it."""
    place, totals = (seen.device.uuid, seen.share.gpu_instance), seen.share.totals
    measured = [
        rank.totals.phase_gpu_idle_seconds["data"] / rank.totals.step_seconds
        for (_, _, at), rank in run.ranks.items()
        if at == place and rank.verified and rank.totals.step_seconds
        if "data" in rank.totals.phase_gpu_idle_seconds
    ]
    observed = totals.observed_seconds.get("utilization")
    lower, upper = totals.data_stall_lower_seconds, totals.data_stall_upper_seconds
    if measured or not (observed and lower and upper):
        return percent(max(measured)) if measured else None
    return _band(max(lower.values()) / observed, min(upper.values()) / observed)


def _limited(seen: SeenShare) -> str:
    limited = seen.share.totals.limited_seconds
    whole = sum(limited.values())
    parts = sorted(limited.items(), key=lambda each: -each[1])
    return ", ".join(
        f"{name} {percent(part / whole)}" for name, part in parts if part > NOTABLE_RATIO * whole
    )


def _causes(seen: SeenShare) -> Iterator[str]:
    for seconds, found in sorted(seen.causes.values(), key=lambda each: -each[0]):
        costs = cost(found)
        recoverable = f" Recoverable: {costs}." if costs else ""
        yield f"{_time(seconds)}: {found.cause}: {sentence(found)}{recoverable}"


def _band(lower: float, upper: float) -> str | None:
    return span(lower, upper) if upper - lower <= WIDEST_BAND_RATIO else None


def _hours(seconds: float | None) -> str | None:
    return None if seconds is None else fixed(seconds / 3600, 2 if seconds >= 3600 else 4)


def _time(seconds: float) -> str:
    return duration(seconds) if seconds >= 10 else f"{fixed(seconds, 1)} s"


def _part(seconds: float | None, whole: float) -> str | None:
    return (
        f"{_time(seconds)} ({percent(seconds / whole)})" if seconds is not None and whole else None
    )
