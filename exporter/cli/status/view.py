# SPDX-License-Identifier: Apache-2.0
"""What is shown of one answer of ``/api/v1/gpus``; text in it is harmless and short."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from exporter.cli.terminal.screen import safe
from exporter.model.reading import LONGEST_AGE_SECONDS
from exporter.model.workload import Scheduler, Workload
from exporter.web.api.models.gpus import (
    BoardJson,
    GpuJson,
    GpusAnswer,
    HolderJson,
    RecentJson,
    SaturationJson,
    ShareJson,
    WorkloadJson,
)
from exporter.web.waits import data_stall, job_of, wait_for_data, waiting
from exporter.web.wording.errors import critical, explained
from exporter.web.wording.facts import (
    Counting,
    Facts,
    Holder,
    Range,
    Saturation,
    XidSeen,
    is_idle,
)
from exporter.web.wording.measuring import relevant, sentences, uncounted
from exporter.web.wording.numbers import profile_name
from exporter.web.wording.phrases import title, unusual_window
from exporter.web.wording.recorded import down_reason, notice, recording_ended
from exporter.web.wording.summary import totals
from exporter.web.wording.whose import unread_words, words_of

ESTIMATE = "estimate"
_SCHEDULERS: dict[str, Scheduler] = {each: each for each in get_args(Scheduler)}
_HIGHEST = 1e100
"""A number beyond this is not a reading."""


@dataclass(frozen=True, slots=True)
class View:
    """All that is shown."""

    gpus: tuple[Facts, ...]
    """A line for each GPU and each MIG instance."""
    title: str
    window: str | None
    """Which seconds its means are of, where these are not the usual ones."""
    driver: str | None
    notices: tuple[str, ...]
    measure: tuple[str, ...] = ()
    """Which GPUs could be measured better, and how."""


def view(answer: GpusAnswer, notices: Sequence[str] = (), *, since_start: bool = False) -> View:
    """Return what to show of one answer, with further notices above it.

    `since_start` means that nobody had looked before: then it is not known for how long a GPU has
    been idle, only that it is.
    """
    found = tuple(facts for gpu in answer.gpus for facts in _facts(gpu, answer))
    if since_start:
        found = tuple(
            replace(each, idle_seconds=None, held_idle_seconds=None, unopened_seconds=None)
            for each in found
        )
    identities = [gpu.identity for gpu in answer.gpus]
    drivers = {_text(each.driver_version) for each in identities} - {None}
    problem = _text(answer.problem)
    origin = notice({(safe(each.source), _text(each.driver_version)) for each in identities})
    states = {
        name: (each.up, _number(each.age_seconds)) for name, each in answer.source_states.items()
    }
    unread = () if recording_ended(problem) else unread_words(states)
    grave = [f"{title(each)}: {explained(xid)}" for each in found for xid in critical(each)]
    return View(
        found,
        totals(found),
        unusual_window(found),
        ", ".join(sorted(map(str, drivers))) or None,
        (
            *([origin] if origin else ()),
            *notices,
            *unread,
            *grave,
            *([problem] if problem else ()),
        ),
        tuple(sentences(found, title)),
    )


def _facts(gpu: GpuJson, answer: GpusAnswer) -> Iterator[Facts]:
    name, now = _text(gpu.identity.name) or "GPU", answer.timestamp_seconds
    xids = tuple(
        XidSeen(each.xid, max(0.0, now - each.last_timestamp_seconds))
        for each in gpu.xids
        if now is not None
    )
    if not gpu.up:
        reason = down_reason(gpu.identity.source, _text(gpu.down_reason), _text(answer.problem))
        yield Facts(gpu.index, name, down_reason=reason, xids=xids)
        return
    board = _with_board(Facts(gpu.index, name, divided=gpu.mig, xids=xids), gpu.board)
    if not gpu.mig:
        yield _with_work(board, gpu, gpu.shares[0], now) if gpu.shares else board
        return
    yield board
    for share in gpu.shares:
        instance = Facts(
            gpu.index, name, instance=share.gpu_instance, profile=_profile(gpu, share.gpu_instance)
        )
        yield _with_work(instance, gpu, share, now)


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


def _with_work(facts: Facts, gpu: GpuJson, share: ShareJson, now: float | None) -> Facts:
    """Return the facts with those of a share, and of the live ranks on it.

    What it does is judged over the last seconds, of an older daemon over the last interval.
    """
    ranks = [
        each for each in gpu.ranks if each.processes and each.gpu_instance == share.gpu_instance
    ]
    bounds = [(each.lower_ratio, each.upper_ratio) for each in share.data_stall.values()]
    idle_seconds = _number(share.idle.idle_for_seconds)
    recent, memory = share.recent, share.memory
    counting = _counting(gpu, share)
    added = None if counting is not None and counting.old else recent
    reached = {} if share.roofline is None else share.roofline.roof_ratio
    if recent is not None:
        reached = recent.roof_ratio if share.roofline is not None else {}
        facts = _with_recent(facts, recent)
    stall = data_stall(
        ranks,
        bounds,
        now=now or 0.0,
        idle_seconds=idle_seconds,
        idle_ratio=facts.idle_ratio,
        window_seconds=facts.window_seconds,
    )
    job = job_of(ranks)
    return replace(
        facts,
        architecture=_text(gpu.identity.architecture),
        virtual=_virtual(gpu),
        counting=counting,
        measuring=recent is None and not (share.limiter and share.observed_seconds_total),
        busy_ratio=_busy_ratio(share),
        saturation=None if share.saturation is None else _saturation(share.saturation, added),
        limiter=_text(share.limiter if recent is None else recent.limiter),
        roof_ratio={
            basis: value for basis in reached if (value := _number(reached[basis])) is not None
        },
        data_stall=None if stall is None else _range(*stall),
        data_wait_ratio=_number(wait_for_data(ranks)),
        waiting_for_data=waiting(ranks),
        job=_text(job),
        idle=is_idle(idle_seconds, None if recent is None else recent.seconds),
        idle_seconds=idle_seconds,
        held=share.held,
        held_idle_seconds=_number(share.idle.held_idle_seconds_total),
        holder=None if share.holder is None else _holder(share.holder),
        workloads=_workloads(share.workloads),
        allocated=share.allocated,
        unopened_seconds=_number(share.idle.unopened_for_seconds),
        memory_used_bytes=None if memory is None else _number(memory.used_bytes),
        memory_total_bytes=None if memory is None else _number(memory.total_bytes),
    )


def _with_recent(facts: Facts, recent: RecentJson) -> Facts:
    busy = _number(recent.busy_ratio)
    return replace(
        facts,
        idle_ratio=_number(
            recent.time_parts.get("idle", None if busy is None else max(0.0, 1.0 - busy))
        ),
        clock_ratio=_number(recent.time_parts.get("clock")),
        input_ratio=_number(recent.limited_ratio.get("input")),
        window_seconds=_number(recent.seconds) or None,
    )


def _busy_ratio(share: ShareJson) -> float | None:
    recent = share.recent
    if recent is None:
        return _number(share.utilization_ratio)
    used = recent.utilization_ratio
    return _number(recent.busy_ratio if used is None else used)


def _saturation(found: SaturationJson, recent: RecentJson | None) -> Saturation | None:
    ratio, unit = found.ratio, found.unit
    lower: float | None = found.lower_ratio
    upper: float | None = found.upper_ratio
    if recent is not None:
        ratio = recent.saturation_ratio if found.source != ESTIMATE else ratio
        unit = recent.saturation_unit
        if recent.saturation_upper_ratio is not None:
            lower, upper = recent.saturation_lower_ratio, recent.saturation_upper_ratio
    known = _range(lower, upper) if ratio is None else _range(ratio, ratio)
    if known is None:
        return None
    return Saturation(known, ratio is not None, _text(found.source), _text(unit))


def _virtual(gpu: GpuJson) -> bool:
    return gpu.modes.get("virtualization") == "vgpu_guest"


def _counting(gpu: GpuJson, share: ShareJson) -> Counting | None:
    found, activity = share.saturation, share.activity
    instance = share.gpu_instance
    states = relevant(gpu.absent_readings, instance)
    if found is None:
        return uncounted(states, instance=instance, virtual=_virtual(gpu))
    age = None if activity is None else _number(activity.age_seconds)
    return Counting(
        source=None if found.source == ESTIMATE else safe(found.source),
        complete=found.complete,
        unmeasured=tuple(map(safe, found.unmeasured)),
        old=age is not None and age > LONGEST_AGE_SECONDS,
        states=states,
    )


def _holder(found: HolderJson) -> Holder:
    return Holder(
        _text(found.owner), _text(found.command), _text(found.work_class), _text(found.workload)
    )


def _workloads(found: Sequence[WorkloadJson]) -> tuple[str, ...]:
    """Return what these are called; of a scheduler that is not known here, nothing is."""
    return words_of([each for one in found if (each := _workload(one)) is not None])


def _workload(found: WorkloadJson) -> Workload | None:
    scheduler = _SCHEDULERS.get(found.scheduler)
    if scheduler is None:
        return None
    return Workload(
        scheduler,
        namespace=_text(found.namespace) or "",
        pod=_text(found.pod) or "",
        container=_text(found.container) or "",
        job=_text(found.job) or "",
        user=_text(found.user) or "",
        id=_text(found.id) or "",
    )


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
