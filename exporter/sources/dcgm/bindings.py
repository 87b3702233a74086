# SPDX-License-Identifier: Apache-2.0
"""A connection to a DCGM hostengine, through DCGM's own Python bindings, and what its errors mean.

The bindings come with the package datacenter-gpu-manager-4-core, not from PyPI. They load
libdcgm.so.4, so only a child process imports them.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

HOSTENGINE_CODES = frozenset({-10, -11, -12, -20, -21, -25, -29, -33, -54})
"""Errors of the hostengine, not of one GPU: the connection has to be replaced."""

CORE = "datacenter-gpu-manager-4-core"
PROFILING = "datacenter-gpu-manager-4-proprietary"


class DcgmError(Exception):
    """DCGM returned an error."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Refusal(NamedTuple):
    """A reading state, and what to do about it."""

    state: str
    advice: str


_NO_ROOT = Refusal(
    "no_permission",
    "the hostengine may not profile: run nv-hostengine as root, or load the driver with "
    "NVreg_RestrictProfilingToAdminUsers=0",
)
_NONE = Refusal("unsupported", "DCGM has no profiling fields for this GPU")
_TAKEN = Refusal(
    "busy", "something else has the hardware counters, such as Nsight: they come back when it ends"
)
_SILENT = Refusal("unreachable", "it does not answer: is nv-hostengine running there?")
_UNFIT = Refusal(
    "missing",
    "bindings, libdcgm and hostengine do not fit together: take all three from one release of DCGM",
)

REFUSALS: Mapping[int, Refusal] = {
    -6: _NONE,
    -10: _SILENT,
    -11: Refusal("unreachable", "it does not answer in time"),
    -12: _UNFIT,
    -17: _NO_ROOT,
    -18: Refusal("unreachable", "the GPU is lost to DCGM"),
    -20: _UNFIT,
    -21: _SILENT,
    -22: _NONE,
    -25: Refusal("missing", f"libdcgm.so.4 cannot be loaded: install {CORE}"),
    -29: _NO_ROOT,
    -33: Refusal(
        "missing",
        f"the hostengine has not loaded its profiling module: install {PROFILING} beside it and "
        "start it again",
    ),
    -34: _TAKEN,
    -36: _NONE,
    -37: _TAKEN,
    -38: Refusal(
        "busy", "what others watch cannot be counted together with these fields in one pass"
    ),
    -44: Refusal("old_driver", "the driver is too old for DCGM's profiling"),
    -54: Refusal("paused", "the hostengine is paused"),
}
"""By code: those that say what is wrong."""

BLANK = Refusal(
    "paused", "profiling is paused: all values are blank; `dcgmi profile --resume` ends that"
)
STOPPED = Refusal(
    "unreachable", "the hostengine has no new values of this GPU any more: start it again"
)
TOO_OFTEN = Refusal(
    "busy",
    "somebody else has the hostengine read these fields more often than once a second, so that the "
    "values are samples: a dcgm-exporter takes -c 1000",
)
NOT_LISTED = Refusal("unsupported", "the hostengine does not list this GPU")
INSTANCE_NOT_LISTED = Refusal(
    "unreachable",
    "the hostengine does not list all instances of this GPU: if they are newer than it, start it "
    "again",
)


def refusal(error: DcgmError) -> Refusal:
    """Return state and advice of an error; an unknown one is quoted."""
    known = REFUSALS.get(error.code, Refusal("unreachable", "it refuses"))
    return Refusal(known.state, f"{known.advice} (DCGM: {error.text}, {error.code})")


DEFAULT_FOLDER = "/usr/share/datacenter-gpu-manager-4/bindings/python3"
CONNECT_MILLISECONDS = 3000
KEPT_SECONDS = 10.0

# dcgm_fields.h and dcgm_structs.h
GPU, GPU_INSTANCE = 1, 4
EMPTY_GROUP = 1
UUID_FIELD = 54
LIVE = 1
TYPE_DOUBLE, TYPE_INTEGER = ord("d"), ord("i")
DOUBLE_BLANK = 2.0**47
INTEGER_BLANK = 0x7FFF_FFFF_FFFF_FFF0
"""Values from these on are DCGM's codes for "no value"."""


class BindingsMissing(Exception):
    """The bindings cannot be used; the message says what to do."""


class Entity(NamedTuple):
    """A GPU, or an instance of one, as the hostengine numbers them."""

    kind: int
    number: int


class MetricGroup(NamedTuple):
    """Profiling fields that are counted together; of those with one major id only one at a time
    (dcgmProfGetSupportedMetricGroups, dcgm_agent.h)."""

    major: int
    fields: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """The newest value of one field of one entity."""

    entity: Entity
    field: int
    value: float | None
    """None: blank."""
    status: int
    unix_seconds: float


class Hostengine:
    """A connection; every call but `close` raises `DcgmError`, and `BindingsMissing` where the
    bindings lack it."""

    def __init__(self, folder: str, host: str) -> None:
        """Connect to HOST:PORT, or to a Unix socket by its path."""
        self._agent, self._structs = _imported(folder)
        unix = host.startswith("/")
        parameters = self._structs.c_dcgmConnectV2Params_v2()
        parameters.persistAfterDisconnect = 0  # the watches end with this process
        parameters.timeoutMs = CONNECT_MILLISECONDS
        parameters.addressIsUnixSocket = int(unix)
        self._call(self._structs._dcgmInit)
        self._call(self._agent.dcgmInit)
        self._handle = self._call(self._agent.dcgmConnect_v2, host, parameters)

    def close(self) -> None:
        """Disconnect, which ends all watches."""
        with contextlib.suppress(DcgmError, BindingsMissing):
            self._call(self._agent.dcgmDisconnect, self._handle)

    def gpus(self) -> dict[str, int]:
        """Return the hostengine's number of each GPU, by UUID."""
        numbers = self._call(self._agent.dcgmGetAllSupportedDevices, self._handle)
        entities = [Entity(GPU, number) for number in numbers]
        found = self._latest(entities, (UUID_FIELD,), LIVE) if entities else ()
        return {_text(each.value.str): int(each.entityId) for each in found if each.status == 0}

    def instances(self) -> dict[tuple[str, int], int]:
        """Return the hostengine's number of each GPU instance, by the GPU's UUID and NVML's
        number."""
        hierarchy = self._call(self._agent.dcgmGetGpuInstanceHierarchy, self._handle)
        listed = (hierarchy.entityList[position] for position in range(hierarchy.count))
        return {
            (_text(each.info.gpuUuid), int(each.info.nvmlInstanceId)): int(each.entity.entityId)
            for each in listed
            if each.entity.entityGroupId == GPU_INSTANCE
        }

    def metric_groups(self, gpu: int) -> list[MetricGroup]:
        """Return the groups of profiling fields that a GPU has."""
        answer = self._call(self._agent.dcgmProfGetSupportedMetricGroups, self._handle, gpu)
        groups = (answer.metricGroups[position] for position in range(answer.numMetricGroups))
        return [
            MetricGroup(int(each.majorId), tuple(each.fieldIds[: each.numFieldIds]))
            for each in groups
        ]

    def watch(
        self, name: str, entities: Iterable[Entity], fields: Sequence[int], every_seconds: float
    ) -> contextlib.ExitStack:
        """Have the hostengine sample these fields, under a name that is not in use there, until
        what is returned is closed: without a watch it releases the hardware counters."""
        agent, handle = self._agent, self._handle
        with contextlib.ExitStack() as undo:
            group = self._call(agent.dcgmGroupCreate, handle, EMPTY_GROUP, name)
            undo.callback(self._forget, agent.dcgmGroupDestroy, group)
            for entity in entities:
                self._call(agent.dcgmGroupAddEntity, handle, group, entity.kind, entity.number)
            of = self._call(agent.dcgmFieldGroupCreate, handle, list(fields), name)
            undo.callback(self._forget, agent.dcgmFieldGroupDestroy, of)
            every = round(every_seconds * 1e6)
            self._call(agent.dcgmWatchFields, handle, group, of, every, KEPT_SECONDS, 0)
            undo.callback(self._forget, agent.dcgmUnwatchFields, group, of)
            return undo.pop_all()

    def _forget(self, function: Callable[..., Any], *arguments: Any) -> None:
        with contextlib.suppress(DcgmError):  # there is nothing left to destroy
            self._call(function, self._handle, *arguments)

    def latest(self, entities: Sequence[Entity], fields: Sequence[int]) -> list[Value]:
        """Return the newest value of each field of each entity."""
        return [
            Value(
                Entity(int(each.entityGroupId), int(each.entityId)),
                int(each.fieldId),
                _number(each),
                int(each.status),
                each.ts / 1e6,
            )
            for each in self._latest(entities, fields, 0)
        ]

    def _latest(self, entities: Sequence[Entity], fields: Sequence[int], flags: int) -> Any:
        pair = self._structs.c_dcgmGroupEntityPair_t
        pairs = [pair(entity.kind, entity.number) for entity in entities]
        function = self._agent.dcgmEntitiesGetLatestValues
        return self._call(function, self._handle, pairs, list(fields), flags)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except self._structs.DCGMError as error:
            raise DcgmError(int(error.value), str(error)) from error


def _text(value: str | bytes) -> str:
    """Return a text; not every release of the bindings decodes it."""
    return value if isinstance(value, str) else value.decode(errors="replace")


def _number(value: Any) -> float | None:
    if value.status != 0:
        return None
    if value.fieldType == TYPE_DOUBLE:
        double = float(value.value.dbl)
        return double if 0 <= double < DOUBLE_BLANK else None
    if value.fieldType == TYPE_INTEGER:
        integer = int(value.value.i64)
        return float(integer) if 0 <= integer < INTEGER_BLANK else None
    return None


def _imported(folder: str) -> tuple[Any, Any]:
    """Return the modules dcgm_agent and dcgm_structs; raise BindingsMissing where they lack."""
    if not os.path.isfile(os.path.join(folder, "dcgm_agent.py")):
        raise BindingsMissing(
            f"there are no Python bindings of DCGM in {folder}: install {CORE}, or name their "
            "folder with --dcgm.bindings"
        )
    sys.path.insert(0, folder)
    try:
        return importlib.import_module("dcgm_agent"), importlib.import_module("dcgm_structs")
    except Exception as error:  # whatever an import may raise
        raise BindingsMissing(
            f"the Python bindings of DCGM in {folder} (--dcgm.bindings) cannot be imported: {error}"
        ) from error
