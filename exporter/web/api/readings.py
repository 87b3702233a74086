# SPDX-License-Identifier: Apache-2.0
"""List all readings of one GPU with state, source and age."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from exporter.model.reading import group_and_instance, share_group
from exporter.model.snapshot import Gpu, Share, Snapshot, SourceState
from exporter.model.workload import SCHEDULERS
from exporter.web.api.models.gpus import ReadingJson

OK = "ok"
NO_ANSWER = "no_answer"
"""Absent for an unknown reason."""
DOWN = "unreachable"
UNSUPPORTED = "unsupported"
COUNTER_SOURCES = ("gpm", "dcgm", "cupti")
"""Each of these is a group of its own: why it gives no activity."""
ACTIVITY = "activity"
MEDIA = ("encoder", "decoder", "jpeg", "ofa")
DIGITS = 3

Cadence = Literal["fast", "slow", "static"]


@dataclass(frozen=True, slots=True)
class Row:
    """One reading of the board."""

    name: str
    cadence: Cadence
    is_there: Callable[[Gpu], bool]
    group: str | None = None
    """The group of its state, where that is not its own: one that it shares with others."""
    otherwise: Callable[[Gpu], str] = lambda gpu: NO_ANSWER
    """Its state where it is absent and its group has none."""


def _known(path: str) -> Callable[[Gpu], bool]:
    """Return whether a GPU has a value there; no reasons to throttle are one, no clocks none."""
    read = attrgetter(path)

    def known(gpu: Gpu) -> bool:
        part = path.partition(".")[0]
        value = None if getattr(gpu, part) is None else read(gpu)
        return isinstance(value, frozenset) or (value is not None and value not in ((), {}))

    return known


def _clock(name: str) -> Callable[[Gpu], bool]:
    return lambda gpu: gpu.vitals is not None and name in gpu.vitals.clock_hertz


def _mig_or(state: str) -> Callable[[Gpu], str]:
    """What comes from the whole GPU's counters, or is of it, MIG takes away."""
    return lambda gpu: "mig" if gpu.device.mig else state


def _superseded(gpu: Gpu) -> str:
    """Pages are retired where rows are not remapped."""
    return UNSUPPORTED if gpu.health is not None and gpu.health.remapped_rows else NO_ANSWER


def _without_links(gpu: Gpu) -> str:
    """How many links there are is a field too, which may be refused with the others."""
    if gpu.device.nvlink_count:
        return NO_ANSWER
    counted = gpu.device.nvlink_count is not None
    return UNSUPPORTED if counted else gpu.states.get(_SLOW_FIELDS, UNSUPPORTED)


def _lacks(gpu: Gpu) -> str:
    """A field that a GPU model lacks has no state of its own, nor have no fans."""
    return UNSUPPORTED


_FIELDS, _SLOW_FIELDS = "fields", "slow_fields"
_apart, _of_whole = _mig_or(NO_ANSWER), _mig_or(UNSUPPORTED)
BOARD: tuple[Row, ...] = (
    Row("identity", "static", lambda gpu: True),
    Row("mig", "fast", lambda gpu: "mig" in gpu.device.modes),
    Row("utilization", "fast", _known("vitals.utilization"), otherwise=_apart),
    *(Row(engine, "fast", _known(f"vitals.{engine}_ratio"), otherwise=_apart) for engine in MEDIA),
    Row("power", "fast", _known("vitals.power_watts")),
    Row("energy", "fast", _known("vitals.energy_joules")),
    Row("temperature", "fast", _known("vitals.temperature_celsius")),
    Row("memory_temperature", "fast", _known("vitals.memory_temperature_celsius"), _FIELDS, _lacks),
    Row("sm_clock", "fast", _clock("sm")),
    Row("memory_clock", "fast", _clock("memory")),
    Row("graphics_clock", "slow", _clock("graphics")),
    Row("video_clock", "slow", _clock("video")),
    Row("throttle", "fast", _known("vitals.throttle_reasons")),
    Row("throttle_seconds", "fast", _known("vitals.throttle_seconds"), _FIELDS, _lacks),
    Row("pcie_traffic", "fast", _known("totals.pcie_transmit_bytes"), _FIELDS, _of_whole),
    Row("nvlink_traffic", "fast", _known("totals.nvlink_transmit_bytes"), _FIELDS, _without_links),
    Row("power_limit", "slow", _known("board.power_limit_watts")),
    Row("temperature_margin", "slow", _known("board.temperature_margin_celsius")),
    Row("fans", "slow", _known("board.fan_speed_ratios"), otherwise=_lacks),
    Row("performance_state", "slow", _known("board.performance_state")),
    Row("bar1", "slow", _known("board.bar1_total_bytes")),
    Row("pcie_link", "slow", _known("board.pcie_generation")),
    Row("pcie_replays", "slow", _known("board.pcie_replays_total")),
    Row("pcie_errors", "slow", _known("board.pcie_errors_total"), _SLOW_FIELDS, _lacks),
    Row("nvlink_errors", "slow", _known("board.nvlink_errors_total"), _SLOW_FIELDS, _without_links),
    Row("ecc", "slow", _known("health.ecc_errors_total")),
    Row("sram_status", "slow", _known("health.sram_error_threshold_exceeded")),
    Row("row_remap", "slow", _known("health.remapped_rows")),
    Row("retired_pages", "slow", _known("health.retired_pages"), otherwise=_superseded),
    Row("unrepairable_memory", "slow", _known("health.unrepairable_memory")),
    Row("recovery_action", "slow", _known("health.recovery_action")),
    Row("nvlink_state", "slow", _known("health.nvlink_links"), otherwise=_without_links),
    Row("fabric", "slow", _known("health.fabric_state")),
)
"""What there is of each GPU once, also while MIG is on; named like its group, where it has one."""


def readings(gpu: Gpu, snapshot: Snapshot) -> list[ReadingJson]:
    """Return every reading of a GPU: of the board, of each share, and of other groups."""
    since_read = _since(snapshot.timestamp_seconds, gpu.last_read_timestamp_seconds)
    own = gpu.device.source
    if not gpu.up:
        state = gpu.states.get("gpu", DOWN)
        return [ReadingJson(reading="gpu", state=state, source=own, age_seconds=since_read)]
    ages = {"fast": since_read or 0.0}
    for cadence, age in gpu.cadence_age_seconds.items():
        ages[cadence] = ages["fast"] + age
    found = [_of_board(gpu, row, ages) for row in BOARD]
    for share in gpu.shares:
        found += _of_share(gpu, share, ages)
        found += _training(gpu, share, snapshot)
    listed = {(each.reading, each.gpu_instance) for each in found}
    found += _others(gpu, listed)
    found += _workloads(snapshot.sources)
    return found


def _since(now: float, then: float | None) -> float | None:
    return None if then is None else round(max(now - then, 0.0), DIGITS)


def _reading(
    name: str,
    state: str | None,
    source: str | None,
    age: float | None,
    gpu_instance: int | None = None,
    *,
    there: bool,
    otherwise: str = NO_ANSWER,
) -> ReadingJson:
    """Return one entry; if only a part is known, with the state of the rest."""
    return ReadingJson(
        reading=name,
        gpu_instance=gpu_instance,
        state=state or (OK if there else otherwise),
        source=source,
        age_seconds=None if age is None or not there else round(age, DIGITS),
    )


def _of_board(gpu: Gpu, row: Row, ages: Mapping[str, float]) -> ReadingJson:
    there = row.is_there(gpu)
    in_others = there and row.group is not None  # what is denied of a batch may be another of it
    return _reading(
        row.name,
        None if in_others else gpu.states.get(row.group or row.name),
        _source(gpu, row.name),
        ages.get(row.cadence),
        there=there,
        otherwise=row.otherwise(gpu),
    )


def _source(gpu: Gpu, name: str) -> str:
    """Return who gives a reading of the board: for media engines the counters, where they do."""
    whole = gpu.shares[0].activity if gpu.shares and not gpu.device.mig else None
    counted = whole is not None and name in MEDIA and getattr(whole, name) is not None
    return whole.source if whole is not None and counted else gpu.device.source


def _of_share(gpu: Gpu, share: Share, ages: Mapping[str, float]) -> Iterator[ReadingJson]:
    instance, own, slow = share.gpu_instance, gpu.device.source, ages.get("slow")
    there = share.memory is not None
    state = gpu.states.get(share_group("memory", instance))
    yield _reading("memory", state, own, ages["fast"], instance, there=there)
    there = share.processes is not None
    state = gpu.states.get("compute_processes")
    yield _reading("processes", state, own, slow, instance, there=there)
    if share.processes:
        named = any(process.command is not None for process in share.processes)
        yield _reading("process_names", None, "proc", slow, instance, there=named)
    yield from _activity(gpu, share, ages)


def _activity(gpu: Gpu, share: Share, ages: Mapping[str, float]) -> Iterator[ReadingJson]:
    """Yield the counters of a share, and the state of each source that gives none."""
    instance, activity = share.gpu_instance, share.activity
    if activity is not None:
        age = ages["fast"] + (activity.age_seconds or 0.0)
        state = gpu.states.get(share_group(activity.source, instance))
        yield _reading(ACTIVITY, state, activity.source, age, instance, there=True)
    absent = [
        (source, state)
        for source in COUNTER_SOURCES
        if activity is None or source != activity.source
        if (state := gpu.states.get(share_group(source, instance), gpu.states.get(source)))
    ]
    for source, state in absent:
        yield _reading(ACTIVITY, state, source, None, instance, there=False)
    if activity is None and not absent:
        yield _reading(ACTIVITY, None, None, None, instance, there=False)


def _training(gpu: Gpu, share: Share, snapshot: Snapshot) -> Iterator[ReadingJson]:
    here = gpu.device.uuid, share.gpu_instance
    mine = [rank for rank in snapshot.ranks if (rank.gpu_uuid, rank.gpu_instance) == here]
    if mine:
        newest = max(rank.last_report_timestamp_seconds for rank in mine)
        age = _since(snapshot.timestamp_seconds, newest)
        yield _reading("training", None, "training", age, share.gpu_instance, there=True)


def _others(gpu: Gpu, listed: Iterable[tuple[str, int | None]]) -> Iterator[ReadingJson]:
    """Yield absent groups that have no entry yet."""
    known = {*listed, ("compute_processes", None)}
    for name, state in gpu.states.items():
        group, instance = group_and_instance(name)
        if (group, instance) not in known and group not in COUNTER_SOURCES:
            yield _reading(group, state, gpu.device.source, None, instance, there=False)


def _workloads(sources: Mapping[str, SourceState]) -> Iterator[ReadingJson]:
    for name in SCHEDULERS:
        source = sources.get(name)
        if source is not None:
            state = None if source.up else DOWN
            there = source.age_seconds is not None or source.up
            yield _reading("workloads", state, name, source.age_seconds, there=there)
