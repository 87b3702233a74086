# SPDX-License-Identifier: Apache-2.0
"""A stand-in for DCGM's module of this name: own declarations, as far as they are used."""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any


def script() -> dict[str, Any]:
    """What the test wants, at present."""
    with open(os.environ["FAKE_DCGM"], encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


class DCGMError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"fake error {value}")
        self.value = value


def _dcgmInit(libDcgmPath: str | None = None) -> None:
    refuse("_dcgmInit")


def refuse(name: str) -> None:
    """Note the call, and raise the error that the test wants of it."""
    found = script()
    with open(found["calls"], "a", encoding="utf-8") as file:
        file.write(f"{name}\n")
    code = found.get("errors", {}).get(name, 0)
    if code:
        raise DCGMError(code)


class Decoding:
    """Texts of a structure are decoded when they are read."""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return found.decode() if isinstance(found, bytes) else found


class c_dcgmConnectV2Params_v2(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint),
        ("persistAfterDisconnect", ctypes.c_uint),
        ("timeoutMs", ctypes.c_uint),
        ("addressIsUnixSocket", ctypes.c_uint),
    )


class c_dcgmGroupEntityPair_t(ctypes.Structure):
    _fields_ = (("entityGroupId", ctypes.c_uint32), ("entityId", ctypes.c_uint32))


class Info(Decoding, ctypes.Structure):
    _fields_ = (("gpuUuid", ctypes.c_char * 128), ("nvmlInstanceId", ctypes.c_uint))


class HierarchyEntry(ctypes.Structure):
    _fields_ = (
        ("entity", c_dcgmGroupEntityPair_t),
        ("parent", c_dcgmGroupEntityPair_t),
        ("info", Info),
    )


class Hierarchy(ctypes.Structure):
    _fields_ = (("count", ctypes.c_uint), ("entityList", HierarchyEntry * 16))


class MetricGroup(ctypes.Structure):
    _fields_ = (
        ("majorId", ctypes.c_ushort),
        ("minorId", ctypes.c_ushort),
        ("numFieldIds", ctypes.c_uint32),
        ("fieldIds", ctypes.c_ushort * 64),
    )


class MetricGroups(ctypes.Structure):
    _fields_ = (("numMetricGroups", ctypes.c_uint32), ("metricGroups", MetricGroup * 10))


class Content(Decoding, ctypes.Union):
    _fields_ = (("i64", ctypes.c_int64), ("dbl", ctypes.c_double), ("str", ctypes.c_char * 256))


class FieldValue(ctypes.Structure):
    _fields_ = (
        ("entityGroupId", ctypes.c_uint),
        ("entityId", ctypes.c_uint),
        ("fieldId", ctypes.c_ushort),
        ("fieldType", ctypes.c_short),
        ("status", ctypes.c_int),
        ("ts", ctypes.c_int64),
        ("value", Content),
    )
