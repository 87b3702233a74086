# SPDX-License-Identifier: Apache-2.0
"""From the JSON of ``/api/v1/gpus`` back to a snapshot, without the framework: ``status`` has to
start fast.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields
from functools import lru_cache
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from exporter.errors import clipped
from exporter.model.reading import (
    Activity,
    Board,
    Device,
    Instance,
    Memory,
    Utilization,
    Vitals,
    XidRecord,
)
from exporter.model.snapshot import (
    Bounds,
    Gpu,
    Holder,
    Rank,
    Recent,
    Roofline,
    Saturation,
    Share,
    ShareTotals,
    Snapshot,
    SourceState,
)
from exporter.model.training import TrainingTotals
from exporter.model.workload import ShareWork, Workload
from exporter.web.api.models.gpus import (
    BoundsJson,
    GpuJson,
    GpuRankJson,
    GpusAnswer,
    HolderJson,
    RecentJson,
    SaturationJson,
    ShareJson,
)
from exporter.web.api.models.json import Json, copied, json_name

HIGHEST = 1e100
"""Numbers beyond it are no readings, and neither are NaN and infinity."""

T = TypeVar("T", bound=Json)


class UnexpectedError(ValueError):
    """Something in the JSON is not as expected; the text names the key and what was expected."""

    def __init__(self, key: str, expected: str, value: object) -> None:
        got = clipped(json.dumps(value))
        super().__init__(f"{key}: expected {expected}, got {got}".removeprefix(": "))


def read(kind: type[T], value: object) -> T:
    """Return parsed JSON as one of the API's types; members that the type lacks are left out.

    Raises:
        UnexpectedError: something is missing, or is of another type.
    """
    return _object(kind, value, "")


_KINDS: dict[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "text"),
    list: ((list,), "a list"),
    dict: ((dict,), "an object"),
}
"""By type: the types of parsed JSON that it is read from, and their name."""


def _value(kind: Any, value: object, key: str) -> Any:
    if isinstance(kind, type) and issubclass(kind, Json):
        return _object(kind, value, key)
    inner = get_args(kind)
    if NoneType in inner:
        return None if value is None else _value(inner[0], value, key)
    found = _checked(get_origin(kind) or kind, value, key)
    if isinstance(found, list):
        return [_value(inner[0], each, f"{key}[{at}]") for at, each in enumerate(found)]
    if isinstance(found, dict):
        return {name: _value(inner[1], each, f"{key}.{name}") for name, each in found.items()}
    return found


def _checked(kind: type, value: Any, key: str) -> Any:
    accepted, expected = _KINDS[kind]
    wrong = not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool)
    if wrong or (kind is float and not abs(value) < HIGHEST):
        raise UnexpectedError(key, expected, value)
    return kind(value)


def _object(kind: Callable[..., T], value: object, key: str) -> T:
    members = _checked(dict, value, key)
    found = {}
    for name, inner, required in _members(kind):
        shown = json_name(name)
        if shown in members:
            found[name] = _value(inner, members[shown], f"{key}.{shown}".removeprefix("."))
        elif required:
            raise UnexpectedError(key, f"the key {shown!r}", value)
    return kind(**found)


@lru_cache
def _members(kind: Any) -> list[tuple[str, Any, bool]]:
    """Return name and type of each field, and whether it must be there."""
    hints = get_type_hints(kind)
    return [
        (each.name, hints[each.name], each.default is each.default_factory is MISSING)
        for each in fields(kind)
    ]


def snapshot_of(answer: GpusAnswer) -> Snapshot:
    """Return what an answer says of a snapshot: all that the facts about GPUs are made from."""
    return Snapshot(
        answer.timestamp_seconds or 0.0,
        tuple(map(_gpu, answer.gpus)),
        {name: copied(SourceState, state) for name, state in answer.source_states.items()},
        answer.problem,
        ranks=tuple(_rank(rank, gpu.uuid) for gpu in answer.gpus for rank in gpu.ranks),
    )


def _gpu(gpu: GpuJson) -> Gpu:
    board = gpu.board
    return copied(
        Gpu,
        gpu,
        device=copied(
            Device,
            gpu.identity,
            index=gpu.index,
            uuid=gpu.uuid,
            compute_capability=None,
            modes=gpu.modes,
            virtualized=gpu.modes.get("virtualization") == "vgpu_guest",
            mig=gpu.mig,
            instances=tuple(copied(Instance, each) for each in gpu.instances),
        ),
        vitals=None
        if board is None
        else copied(
            Vitals,
            board,
            temperature_celsius=board.temperature_celsius.get("gpu"),
            memory_temperature_celsius=board.temperature_celsius.get("memory"),
            throttle_reasons=frozenset(board.throttle_reasons or ()),
        ),
        board=None if board is None else copied(Board, board),
        shares=tuple(map(_share, gpu.shares)),
        xids={each.xid: copied(XidRecord, each) for each in gpu.xids},
        states=gpu.absent_readings,
    )


def _share(share: ShareJson) -> Share:
    used, activity = share.utilization_ratio, share.activity
    return copied(
        Share,
        share,
        ceilings=None,
        totals=copied(
            ShareTotals,
            share.idle,
            idle_seconds=share.idle.idle_seconds_total,
            held_idle_seconds=share.idle.held_idle_seconds_total,
            observed_seconds=share.observed_seconds_total,
        ),
        utilization=None if used is None else Utilization(used, used, 0.0),
        memory=None if share.memory is None else copied(Memory, share.memory),
        processes=None,
        holder=None if share.holder is None else _holder(share.holder),
        work=ShareWork(
            tuple(
                Workload(**{name: value for name, value in asdict(each).items() if value})
                for each in share.workloads
            ),
            share.allocated,
        ),
        activity=None
        if activity is None
        else copied(Activity, activity, engine=activity.engine_ratio),
        saturation=None if share.saturation is None else _saturation(share.saturation),
        time_parts=None,
        time_bounds=_bounds(share.time_bounds),
        roofline=None
        if share.roofline is None
        else copied(Roofline, share.roofline, flops_per_second={}),
        recent=None if share.recent is None else _recent(share.recent),
        data_stall=_bounds(share.data_stall),
    )


def _bounds(bounds: Mapping[str, BoundsJson]) -> dict[str, Bounds]:
    return {name: Bounds(each.lower_ratio, each.upper_ratio) for name, each in bounds.items()}


def _saturation(saturation: SaturationJson) -> Saturation:
    return copied(
        Saturation,
        saturation,
        bounds=Bounds(saturation.lower_ratio, saturation.upper_ratio),
        unmeasured=_bounds(saturation.unmeasured),
    )


def _recent(recent: RecentJson) -> Recent:
    lower, upper = recent.saturation_lower_ratio, recent.saturation_upper_ratio
    return copied(
        Recent,
        recent,
        saturation_bounds=None if lower is None or upper is None else Bounds(lower, upper),
        time_bounds=_bounds(recent.time_bounds),
        flops_per_second={},
    )


def _holder(holder: HolderJson) -> Holder:
    """Return a holder; of its workload only the words are known, which are those of a container."""
    words = holder.workload
    return copied(
        Holder, holder, workload=None if words is None else Workload("container", container=words)
    )


def _rank(rank: GpuRankJson, uuid: str) -> Rank:
    return copied(
        Rank,
        rank,
        gpu_uuid=uuid,
        totals=TrainingTotals(),
        run_seconds=0.0,
        phase="data" if rank.waiting_for_data else None,
    )
