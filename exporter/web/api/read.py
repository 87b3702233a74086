# SPDX-License-Identifier: Apache-2.0
"""From the JSON of ``/api/v1/gpus`` back to a snapshot, without the framework: ``status`` has to
start fast.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import lru_cache
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from exporter.errors import clipped
from exporter.model.reading import XidRecord
from exporter.model.snapshot import Gpu, Rank, Snapshot, SourceState
from exporter.model.workload import Workload
from exporter.web.api.models.gpus import GpuJson, GpuRankJson, GpusAnswer
from exporter.web.api.models.json import Json, json_name, path_of

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
        {name: _made(SourceState, _tree(state)) for name, state in answer.source_states.items()},
        answer.problem,
        ranks=tuple(_rank(rank, gpu.uuid) for gpu in answer.gpus for rank in gpu.ranks),
    )


def _gpu(gpu: GpuJson) -> Gpu:
    tree = _tree(gpu)
    del tree["xids"]
    made: Gpu = _made(Gpu, tree)
    virtualized = gpu.modes.get("virtualization") == "vgpu_guest"
    celsius = None if gpu.board is None else gpu.board.temperature_celsius.get("gpu")
    return replace(
        made,
        device=replace(made.device, virtualized=virtualized),
        vitals=made.vitals and replace(made.vitals, temperature_celsius=celsius),
        xids={each.xid: XidRecord(each.count, each.last_timestamp_seconds) for each in gpu.xids},
    )


def _rank(rank: GpuRankJson, uuid: str) -> Rank:
    made: Rank = _made(Rank, _tree(rank))
    return replace(made, gpu_uuid=uuid, phase="data" if rank.waiting_for_data else None)


def _tree(value: Any, tree: dict[str, Any] | None = None) -> Any:
    """Return what is known of one of the API's types, by the names that it has in the snapshot."""
    if isinstance(value, list):
        return list(map(_tree, value))
    if isinstance(value, dict):
        return {name: _tree(each) for name, each in value.items()}
    if not is_dataclass(value):
        return value
    tree = {} if tree is None else tree
    for one in fields(value):
        found, path, at = getattr(value, one.name), path_of(one), tree
        if found is None:
            continue
        is_object = isinstance(found, Json)
        for name in path if is_object else path[:-1]:
            at = at.setdefault(name, {})
        if is_object:
            _tree(found, at)
        else:
            at[path[-1]] = _tree(found)
    return tree


def _made(kind: Any, tree: Any) -> Any:
    """Return a type of the snapshot with what is in such a tree; the rest of it is not known."""
    inner, origin = get_args(kind), get_origin(kind)
    if NoneType in inner:
        return None if tree is None else _made(inner[0], tree)
    if kind is Workload and isinstance(tree, str):
        return Workload("container", container=tree)  # only the words of a holder's are known
    if hasattr(kind, "__dataclass_fields__"):
        known = tree or {}
        return kind(
            **{
                name: _made(hint, known.get(name))
                for name, hint, required in _members(kind)
                if required or name in known
            }
        )
    if origin is tuple:
        return tuple(_made(inner[0], each) for each in tree)
    if origin is Mapping:
        return {name: _made(inner[1], each) for name, each in tree.items()}
    if tree is None:
        return kind()
    return frozenset(tree) if origin is frozenset else tree
