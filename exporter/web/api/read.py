# SPDX-License-Identifier: Apache-2.0
"""From the JSON of ``/api/v1/gpus`` back to a snapshot, without the framework: ``status`` has to
start fast.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, replace
from functools import lru_cache
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from exporter.errors import clipped
from exporter.model.reading import XidRecord
from exporter.model.snapshot import Gpu, Rank, Snapshot, SourceState
from exporter.model.workload import Workload
from exporter.web.api.models.gpus import GpusAnswer
from exporter.web.api.models.json import Json, json_name, path_of

HIGHEST = 1e100
"""Numbers beyond it are no readings, and neither are NaN and infinity."""


class UnexpectedError(ValueError):
    """Something in the JSON is not as expected; the text names the key and what was expected."""

    def __init__(self, key: str, expected: str, value: object) -> None:
        got = clipped(json.dumps(value))
        super().__init__(f"{key}: expected {expected}, got {got}".removeprefix(": "))


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
        return _object(kind, value, key, {})
    inner = get_args(kind)
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


def _object(kind: Any, value: object, key: str, tree: dict[str, Any]) -> dict[str, Any]:
    """Add the values of one of the API's types to a tree, under the snapshot's names."""
    members = _checked(dict, value, key)
    for one, hint, required in _members(kind):
        shown, is_optional = json_name(one.name), NoneType in get_args(hint)
        if shown not in members and required:
            raise UnexpectedError(key, f"the key {shown!r}", value)
        if shown not in members or (members[shown] is None and is_optional):
            continue
        inner = get_args(hint)[0] if is_optional else hint
        below, path, at = f"{key}.{shown}".removeprefix("."), path_of(one), tree
        is_object = isinstance(inner, type) and issubclass(inner, Json)
        for name in path if is_object else path[:-1]:
            at = at.setdefault(name, {})
        if is_object:
            _object(inner, members[shown], below, at)
        else:
            at[path[-1]] = _value(inner, members[shown], below)
    return tree


@lru_cache
def _members(kind: Any) -> list[tuple[Field[Any], Any, bool]]:
    """Return each field with its type, and whether it must be there."""
    hints = get_type_hints(kind)
    return [
        (each, hints[each.name], each.default is each.default_factory is MISSING)
        for each in fields(kind)
    ]


def snapshot_of(value: object) -> Snapshot:
    """Return the tree of a snapshot from the parsed JSON, without nulls.

    UnexpectedError says what is missing, or is of another type.
    """
    answer = _object(GpusAnswer, value, "", {})
    gpus, sources = answer["gpus"], answer.get("sources", {})
    return Snapshot(
        answer.get("timestamp_seconds", 0.0),
        tuple(map(_gpu, gpus)),
        {name: _made(SourceState, state) for name, state in sources.items()},
        answer.get("problem"),
        ranks=tuple(_rank(rank, gpu["device"]["uuid"]) for gpu in gpus for rank in gpu["ranks"]),
    )


def _gpu(tree: dict[str, Any]) -> Gpu:
    made: Gpu = _made(Gpu, {**tree, "xids": {}})
    celsius = tree.get("vitals", {}).get("temperatures_celsius", {}).get("gpu")
    return replace(
        made,
        device=replace(
            made.device, virtualized=made.device.modes.get("virtualization") == "vgpu_guest"
        ),
        vitals=made.vitals and replace(made.vitals, temperature_celsius=celsius),
        xids={
            each["xid"]: XidRecord(each["count"], each["last_timestamp_seconds"])
            for each in tree["xids"]
        },
    )


def _rank(tree: dict[str, Any], uuid: str) -> Rank:
    made: Rank = _made(Rank, tree)
    return replace(made, gpu_uuid=uuid, phase="data" if tree.get("waiting_for_data") else None)


def _made(kind: Any, tree: Any) -> Any:
    """Return a type of the snapshot from such a tree; missing values are not known."""
    inner, origin = get_args(kind), get_origin(kind)
    if NoneType in inner:
        return None if tree is None else _made(inner[0], tree)
    if kind is Workload and isinstance(tree, str):
        return Workload("container", container=tree)  # only the words of a holder's are known
    if hasattr(kind, "__dataclass_fields__"):
        known = tree or {}
        return kind(
            **{
                each.name: _made(hint, known.get(each.name))
                for each, hint, required in _members(kind)
                if required or each.name in known
            }
        )
    if origin is tuple:
        return tuple(_made(inner[0], each) for each in tree)
    if origin is Mapping:
        return {name: _made(inner[1], each) for name, each in tree.items()}
    if tree is None:
        return kind()
    return frozenset(tree) if origin is frozenset else tree
