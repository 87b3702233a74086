# SPDX-License-Identifier: Apache-2.0
"""A stand-in for DCGM's module of this name: a hostengine that does what a JSON file says.

The file is read at each call, so that a test can change it while the child runs.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import dcgm_structs  # type: ignore[import-not-found]

DOUBLE_BLANK = 2.0**47
INTEGER_BLANK = 0x7FFFFFFFFFFFFFF0
RATES = range(1009, 1013)
NAMES = itertools.count(7)

watched: set[int] = set()
groups: dict[int, list[tuple[int, int]]] = {}


def noted(name: str) -> Callable[..., None]:
    """A function that only notes its call, or is refused."""
    return lambda *_arguments: dcgm_structs.refuse(name)


dcgmInit = noted("dcgmInit")
dcgmDisconnect = noted("dcgmDisconnect")
dcgmFieldGroupDestroy = noted("dcgmFieldGroupDestroy")


def dcgmConnect_v2(ip_address: str, connectParams: Any) -> int:
    assert connectParams.persistAfterDisconnect == 0
    kind = "unix" if connectParams.addressIsUnixSocket else "tcp"
    dcgm_structs.refuse(f"connect {kind} {ip_address}")
    dcgm_structs.refuse("dcgmConnect_v2")
    return 1


def dcgmGetAllSupportedDevices(dcgm_handle: int) -> list[int]:
    dcgm_structs.refuse("dcgmGetAllSupportedDevices")
    return [int(number) for number in dcgm_structs.script()["gpus"]]


def dcgmGetGpuInstanceHierarchy(dcgm_handle: int) -> Any:
    dcgm_structs.refuse("dcgmGetGpuInstanceHierarchy")
    hierarchy = dcgm_structs.Hierarchy()
    for each in dcgm_structs.script().get("instances", []):
        entry = hierarchy.entityList[hierarchy.count]
        entry.entity.entityGroupId, entry.entity.entityId = each.get("kind", 4), each["entity"]
        entry.info.gpuUuid, entry.info.nvmlInstanceId = each["uuid"].encode(), each["instance"]
        hierarchy.count += 1
    return hierarchy


def dcgmProfGetSupportedMetricGroups(dcgmHandle: int, gpuId: int) -> Any:
    dcgm_structs.refuse("dcgmProfGetSupportedMetricGroups")
    gpu = dcgm_structs.script()["gpus"][str(gpuId)]
    if gpu.get("error"):
        raise dcgm_structs.DCGMError(gpu["error"])
    found = dcgm_structs.MetricGroups()
    for major, fields in gpu["groups"]:
        group = found.metricGroups[found.numMetricGroups]
        group.majorId, group.numFieldIds = major, len(fields)
        group.fieldIds[: len(fields)] = fields
        found.numMetricGroups += 1
    return found


def dcgmGroupCreate(dcgm_handle: int, type: int, groupName: str) -> int:
    dcgm_structs.refuse("dcgmGroupCreate")
    number = next(NAMES)
    groups[number] = []
    return number


def dcgmGroupAddEntity(dcgm_handle: int, group_id: int, entityGroupId: int, entityId: int) -> None:
    dcgm_structs.refuse(f"dcgmGroupAddEntity {entityGroupId} {entityId}")
    groups[group_id].append((entityGroupId, entityId))


def dcgmGroupDestroy(dcgm_handle: int, group_id: int) -> None:
    dcgm_structs.refuse("dcgmGroupDestroy")
    del groups[group_id]


def dcgmFieldGroupCreate(dcgm_handle: int, fieldIds: Sequence[int], fieldGroupName: str) -> int:
    dcgm_structs.refuse(f"dcgmFieldGroupCreate {' '.join(map(str, fieldIds))}")
    return next(NAMES)


def dcgmWatchFields(
    dcgm_handle: int,
    groupId: int,
    fieldGroupId: int,
    updateFreq: int,
    maxKeepAge: float,
    maxKeepSamples: int,
) -> None:
    dcgm_structs.refuse("dcgmWatchFields")
    assert updateFreq == 1_000_000
    for kind, number in groups[groupId]:
        error = dcgm_structs.script().get("watch_errors", {}).get(f"{kind}:{number}")
        if error:
            raise dcgm_structs.DCGMError(error)
    watched.add(groupId)


def dcgmUnwatchFields(dcgm_handle: int, groupId: int, fieldGroupId: int) -> None:
    dcgm_structs.refuse("dcgmUnwatchFields")
    watched.discard(groupId)


def dcgmEntitiesGetLatestValues(
    dcgmHandle: int, entities: Sequence[Any], fieldIds: Sequence[int], flags: int
) -> list[Any]:
    found = dcgm_structs.script()
    if flags != 1:
        dcgm_structs.refuse("dcgmEntitiesGetLatestValues")
    return [
        _value(found, int(pair.entityGroupId), int(pair.entityId), field)
        for pair in reversed(entities)  # in no order that may be relied on
        for field in fieldIds
    ]


def _value(found: dict[str, Any], kind: int, number: int, field: int) -> Any:
    value = dcgm_structs.FieldValue()
    value.entityGroupId, value.entityId, value.fieldId = kind, number, field
    if field == 54:
        value.fieldType, value.value.str = ord("s"), found["gpus"][str(number)]["uuid"].encode()
        return value
    every = found.get("every", 1.0)
    unix = found.get("stopped_at") or time.time() // every * every
    value.ts = round((unix - found.get("behind", {}).get(str(field), 0)) * 1e6)
    content = found["values"].get(f"{kind}:{number}", {}).get(str(field), "blank")
    value.fieldType = ord("i") if field in RATES else ord("d")
    if isinstance(content, str) and content.startswith("status"):
        value.status = int(content.split()[1])
    elif content == "blank":
        value.value.i64 = INTEGER_BLANK + 1
        if field not in RATES:
            value.value.dbl = DOUBLE_BLANK + 2
    elif field in RATES:
        value.value.i64 = content
    else:
        value.value.dbl = content
    return value
