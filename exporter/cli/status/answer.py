# SPDX-License-Identifier: Apache-2.0
"""From the JSON of ``/api/v1/gpus`` to the lines of the table.

A daemon of another version may answer otherwise than expected: what is not there, or is of another
type, is not known. Text in the result is harmless and short.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from exporter.cli.terminal.screen import safe

Json = Mapping[str, Any]

LIMITER_ORDER = ("compute", "memory", "latency", "communication", "clock", "input")
_MAKERS = re.compile(r"^(NVIDIA |GeForce |Tesla |Quadro )+")
_COMPUTE_INSTANCE = re.compile(r"^[0-9]+c\.")


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a GPU."""

    owner: str | None
    command: str | None
    kind: str | None
    """training, serving, notebook …"""


@dataclass(frozen=True, slots=True)
class DataStall:
    """The share of time in which a GPU sat idle because its job waited for data."""

    ratio: float
    measured: bool
    """False where it is only known not to be more."""


@dataclass(frozen=True, slots=True)
class Line:
    """One GPU, or one MIG instance below it; None is not known."""

    gpu: str
    name: str
    is_board: bool = True
    """Whether the line shows the board: power, temperature."""
    is_share: bool = True
    """Whether the line shows work; that of a GPU with MIG on is in its instances."""
    down: str | None = None
    """Why there is nothing to show."""
    utilization_ratio: float | None = None
    saturation_ratio: float | None = None
    saturation_bounds: tuple[float, float] | None = None
    saturation_source: str | None = None
    saturation_unit: str | None = None
    limiter: str | None = None
    roof_ratio: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None
    idle: bool | None = None
    idle_for_seconds: float | None = None
    """Without a break, where somebody looked all the while."""
    held: bool | None = None
    held_idle_seconds: float | None = None
    """Since the daemon started."""
    holder: Holder | None = None
    data_stall: DataStall | None = None
    """Of the training rank on it that loses most; None where none reports."""


@dataclass(frozen=True, slots=True)
class View:
    """All that is shown."""

    lines: tuple[Line, ...]
    title: str
    driver: str | None
    notices: tuple[str, ...]


def view(answer: object, notices: Sequence[str] = (), *, since_start: bool = False) -> View:
    """Return what to show of one answer, with further notices above it.

    `since_start` says that nobody had looked before: then how long a GPU has been idle is not
    known, only that it is.
    """
    top = _mapping(answer)
    gpus = [_mapping(gpu) for gpu in _list(top.get("gpus"))]
    lines = tuple(line for gpu in gpus for line in _lines(gpu))
    if since_start:
        lines = tuple(
            replace(line, idle_for_seconds=None, held_idle_seconds=None) for line in lines
        )
    identities = [_mapping(gpu.get("identity")) for gpu in gpus]
    sources = {_text(each.get("source")) for each in identities} - {None, "nvml"}
    drivers = {_text(each.get("driver_version")) for each in identities} - {None}
    problem = _text(top.get("problem"))
    found = [f"not real GPUs: this data comes from {name}" for name in sorted(map(str, sources))]
    return View(
        lines,
        _title(len(gpus), lines),
        ", ".join(sorted(map(str, drivers))) or None,
        (*found, *notices, *([problem] if problem else ())),
    )


def _title(gpus: int, lines: Sequence[Line]) -> str:
    """Count what limits each GPU or instance now: 8 GPUs: 3 compute, 2 idle (1 held), 1 down."""
    instances = sum(not line.is_board for line in lines)
    work = [line for line in lines if line.is_share and line.down is None]
    # A GPU that is idle because its job waits for input is counted by what it waits for.
    resting = [bool(line.idle) and line.limiter in (None, "idle") for line in work]
    idle = sum(resting)
    held = sum(rests and bool(line.held) for line, rests in zip(work, resting, strict=True))
    limiters = Counter(
        line.limiter or "unknown" for line, rests in zip(work, resting, strict=True) if not rests
    )
    often_idle = limiters.pop("idle", 0)
    unknown = limiters.pop("unknown", 0)
    down = sum(line.down is not None for line in lines)
    rank = {name: number for number, name in enumerate(LIMITER_ORDER)}
    counts = [
        *(
            f"{limiters[name]} {name}"
            for name in sorted(limiters, key=lambda name: (rank.get(name, len(rank)), name))
        ),
        *([f"{unknown} unknown"] if unknown else []),
        *([f"{often_idle} often idle"] if often_idle else []),
        *([f"{idle} idle" + (f" ({held} held)" if held else "")] if idle else []),
        *([f"{down} down"] if down else []),
    ]
    what = "1 GPU" if gpus == 1 else f"{gpus} GPUs"
    if instances:
        what += f", {instances} MIG instance" + ("s" if instances > 1 else "")
    return f"{what}: {', '.join(counts)}" if counts else what


def _lines(gpu: Json) -> Iterator[Line]:
    index = _number(gpu.get("index"))
    number = "?" if index is None else safe(f"{index:.0f}")[:8]
    name = _short_name(_text(_mapping(gpu.get("identity")).get("name")) or "GPU")
    if gpu.get("up") is not True:
        yield Line(number, name, down=_text(gpu.get("down_reason")) or "no answer")
        return
    shares = [_mapping(share) for share in _list(gpu.get("shares"))]
    if gpu.get("mig") is not True:
        share = shares[0] if shares else {}
        yield Line(number, name, **_board(gpu), **_work(gpu, share))
        return
    yield Line(number, name, is_share=False, **_board(gpu))
    for share in shares:
        instance = _number(share.get("gpu_instance"))
        label = "?" if instance is None else f"{instance:.0f}"[:8]
        yield Line(
            f"{number}/{label}",
            _profile(gpu, instance),
            is_board=False,
            **_work(gpu, share),
        )


def _short_name(name: str) -> str:
    return _MAKERS.sub("", name) or name


def _profile(gpu: Json, instance: float | None) -> str:
    """Return the GPU instance's profile: 3g.40gb, also of one divided into 1c.3g.40gb and more."""
    for each in map(_mapping, _list(gpu.get("instances"))):
        if instance is not None and _number(each.get("gpu_instance")) == instance:
            return _COMPUTE_INSTANCE.sub("", _text(each.get("profile")) or "") or "MIG"
    return "MIG"


def _board(gpu: Json) -> dict[str, Any]:
    board = _mapping(gpu.get("board"))
    return {
        "power_watts": _number(board.get("power_watts")),
        "power_limit_watts": _number(board.get("power_limit_watts")),
        "temperature_celsius": _number(_mapping(board.get("temperature_celsius")).get("gpu")),
    }


def _work(gpu: Json, share: Json) -> dict[str, Any]:
    saturation, idle = _mapping(share.get("saturation")), _mapping(share.get("idle"))
    memory = _mapping(share.get("memory"))
    bounds = _number(saturation.get("lower_ratio")), _number(saturation.get("upper_ratio"))
    held, limiter = share.get("held"), _text(share.get("limiter"))
    idle_for = _number(idle.get("idle_for_seconds"))
    return {
        "utilization_ratio": _number(share.get("utilization_ratio")),
        "saturation_ratio": _number(saturation.get("ratio")),
        "saturation_bounds": None if None in bounds else bounds,
        "saturation_source": _text(saturation.get("source")),
        "saturation_unit": _text(saturation.get("unit")),
        "limiter": limiter,
        "roof_ratio": _number(
            _mapping(_mapping(share.get("roofline")).get("roof_ratio")).get("spec")
        ),
        "memory_used_bytes": _number(memory.get("used_bytes")),
        "memory_total_bytes": _number(memory.get("total_bytes")),
        "idle": None if idle_for is None else idle_for > 0,
        "idle_for_seconds": idle_for,
        "held": held if isinstance(held, bool) else None,
        "held_idle_seconds": _number(idle.get("held_idle_seconds_total")),
        "holder": _holder(_mapping(share.get("holder"))),
        "data_stall": _data_stall(gpu, share),
    }


def _holder(holder: Json) -> Holder | None:
    owner, command, kind = (_text(holder.get(key)) for key in ("owner", "command", "class"))
    return Holder(owner, command, kind) if owner or command or kind else None


def _data_stall(gpu: Json, share: Json) -> DataStall | None:
    """Return what the worst live rank on a share loses: measured, else at most its wait.

    One that the driver does not list on the GPU says nothing about it.
    """
    found = []
    for rank in map(_mapping, _list(gpu.get("ranks"))):
        if not _number(rank.get("processes")) or not _same_place(rank, share):
            continue
        if rank.get("verified") is False:
            continue
        stall, wait = _number(rank.get("data_stall_ratio")), _number(rank.get("data_wait_ratio"))
        ratio = wait if stall is None else stall
        if ratio is not None:
            found.append(DataStall(ratio, measured=stall is not None))
    return max(found, key=lambda each: (each.ratio, each.measured), default=None)


def _same_place(rank: Json, share: Json) -> bool:
    return _number(rank.get("gpu_instance")) == _number(share.get("gpu_instance"))


def _mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str | None:
    return safe(value).strip() or None if isinstance(value, str) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
