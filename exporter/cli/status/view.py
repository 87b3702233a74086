# SPDX-License-Identifier: Apache-2.0
"""What is shown of one answer of ``/api/v1/gpus``; text in it is harmless and short."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from exporter.cli.terminal.screen import safe
from exporter.web.api.models.gpus import (
    BoardJson,
    GpuJson,
    GpusAnswer,
    HolderJson,
    SaturationJson,
    ShareJson,
)
from exporter.web.waits import inferred_stall, measured_stall, wait_for_data
from exporter.web.wording.facts import Facts, Holder, Range, Saturation
from exporter.web.wording.numbers import profile_name
from exporter.web.wording.summary import totals, unreal

_HIGHEST = 1e100
"""A number beyond this is not a reading."""


@dataclass(frozen=True, slots=True)
class View:
    """All that is shown."""

    gpus: tuple[Facts, ...]
    """A line for each GPU and each MIG instance."""
    title: str
    driver: str | None
    notices: tuple[str, ...]


def view(answer: GpusAnswer, notices: Sequence[str] = (), *, since_start: bool = False) -> View:
    """Return what to show of one answer, with further notices above it.

    `since_start` means that nobody had looked before: then it is not known for how long a GPU has
    been idle, only that it is.
    """
    found = tuple(facts for gpu in answer.gpus for facts in _facts(gpu))
    if since_start:
        found = tuple(replace(each, idle_seconds=None, held_idle_seconds=None) for each in found)
    identities = [gpu.identity for gpu in answer.gpus]
    drivers = {_text(each.driver_version) for each in identities} - {None}
    origin = unreal({safe(each.source) for each in identities})
    problem = _text(answer.problem)
    return View(
        found,
        totals(found),
        ", ".join(sorted(map(str, drivers))) or None,
        (
            *([origin] if origin else ()),
            *notices,
            *([problem] if problem else ()),
        ),
    )


def _facts(gpu: GpuJson) -> Iterator[Facts]:
    name = _text(gpu.identity.name) or "GPU"
    if not gpu.up:
        yield Facts(gpu.index, name, down_reason=_text(gpu.down_reason) or "no answer")
        return
    board = _with_board(Facts(gpu.index, name, divided=gpu.mig), gpu.board)
    if not gpu.mig:
        yield _with_work(board, gpu, gpu.shares[0]) if gpu.shares else board
        return
    yield board
    for share in gpu.shares:
        instance = Facts(
            gpu.index, name, instance=share.gpu_instance, profile=_profile(gpu, share.gpu_instance)
        )
        yield _with_work(instance, gpu, share)


def _profile(gpu: GpuJson, instance: int | None) -> str | None:
    for each in gpu.instances:
        if each.gpu_instance == instance:
            return _text(profile_name(each.profile))
    return None


def _with_board(facts: Facts, board: BoardJson | None) -> Facts:
    if board is None:
        return facts
    return replace(
        facts,
        power_watts=_number(board.power_watts),
        power_limit_watts=_number(board.power_limit_watts),
        temperature_celsius=_number(board.temperature_celsius.get("gpu")),
        throttle_reasons=tuple(map(safe, board.throttle_reasons or ())),
    )


def _with_work(facts: Facts, gpu: GpuJson, share: ShareJson) -> Facts:
    """Return the facts with those of a share, and of the live ranks on it."""
    ranks = [
        each for each in gpu.ranks if each.processes and each.gpu_instance == share.gpu_instance
    ]
    stall = measured_stall(ranks)
    bounds = [(each.lower_ratio, each.upper_ratio) for each in share.data_stall.values()]
    idle_seconds = _number(share.idle.idle_for_seconds)
    reached = {} if share.roofline is None else share.roofline.roof_ratio
    memory = share.memory
    return replace(
        facts,
        busy_ratio=_number(share.utilization_ratio),
        saturation=None if share.saturation is None else _saturation(share.saturation),
        limiter=_text(share.limiter),
        roof_ratio={
            basis: value for basis in reached if (value := _number(reached[basis])) is not None
        },
        data_stall=_range(*_worst(inferred_stall(bounds)) if stall is None else (stall, stall)),
        data_wait_ratio=_number(wait_for_data(ranks)),
        idle=None if idle_seconds is None else idle_seconds > 0,
        idle_seconds=idle_seconds,
        held=share.held,
        held_idle_seconds=_number(share.idle.held_idle_seconds_total),
        holder=None if share.holder is None else _holder(share.holder),
        memory_used_bytes=None if memory is None else _number(memory.used_bytes),
        memory_total_bytes=None if memory is None else _number(memory.total_bytes),
    )


def _worst(bounds: Range | None) -> tuple[float | None, float | None]:
    return (None, None) if bounds is None else bounds


def _saturation(found: SaturationJson) -> Saturation | None:
    measured = found.ratio is not None
    bounds = (found.ratio, found.ratio) if measured else (found.lower_ratio, found.upper_ratio)
    ratio = _range(*bounds)
    if ratio is None:
        return None
    return Saturation(ratio, measured, _text(found.source), _text(found.unit))


def _holder(found: HolderJson) -> Holder:
    return Holder(_text(found.owner), _text(found.command), _text(found.workload))


def _range(lower: float | None, upper: float | None) -> Range | None:
    least, most = _number(lower), _number(upper)
    return None if least is None or most is None else Range(least, most)


def _text(value: str | None) -> str | None:
    return None if value is None else safe(value).strip() or None


def _number(value: float | None) -> float | None:
    """Return what a column can show; JSON has no limit to its numbers."""
    if value is None or not abs(value) < _HIGHEST:
        return None
    return float(value)
