# SPDX-License-Identifier: Apache-2.0
"""Many readings in one driver call: batched field values in an own, reused array."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_int32
from typing import Any

import pynvml

from exporter.sources.probe import Outcome, outcome_of, raise_if_gone

ALL_LINKS = 0xFFFFFFFF

Field = tuple[int, int]
"""A field id and its scope (a link, or which part of the module; 0 where there is none)."""

VALUE_MEMBERS = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}


def union_value(union: Any, value_type: int) -> float | None:
    """Return the member of an ``nvmlValue_t`` that `value_type` names; None for unknown types."""
    member = VALUE_MEMBERS.get(value_type)
    return None if member is None else getattr(union, member)


class FieldBatch:
    """A set of field values of one GPU that are always asked for together.

    Fields that this GPU will never answer leave the batch when they first say so.
    """

    def __init__(self, handle: Any, fields: Sequence[Field]) -> None:
        self._handle = handle
        self._fields: tuple[Field, ...] = ()
        self._set(fields)

    def _set(self, fields: Sequence[Field]) -> None:
        self._fields = tuple(fields)
        # One entry more than asked for: some drivers touch the entry past the end in NVLink
        # queries, which corrupts the heap with an exact array (nvitop, api/libnvml.py).
        self._array = (pynvml.c_nvmlFieldValue_t * (len(self._fields) + 1))()
        self._entries = [self._array[i] for i in range(len(self._fields))]
        for entry, (field_id, scope) in zip(self._entries, self._fields, strict=True):
            entry.fieldId = field_id
            entry.scopeId = scope

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields that may still answer."""
        return self._fields

    def read(self) -> dict[Field, float]:
        """Return the values of the fields that answered, in the driver's units.

        Raises:
            pynvml.NVMLError: the call as a whole failed.
            DeviceGone: a field says that the GPU is gone.
            LibraryUnavailable: a field says that the library must be initialised again.
        """
        if not self._fields:
            return {}
        call = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetFieldValues")
        code = call(self._handle, c_int32(len(self._fields)), byref(self._array))
        if code != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(code)
        values: dict[Field, float] = {}
        never: list[Field] = []
        for field, entry in zip(self._fields, self._entries, strict=True):
            code = entry.nvmlReturn
            if code == pynvml.NVML_SUCCESS:
                value = union_value(entry.value, entry.valueType)
                if value is not None:
                    values[field] = value
            else:
                raise_if_gone(code)
                if outcome_of(code) in (Outcome.NEVER, Outcome.NO_PERMISSION):
                    never.append(field)
        if never:
            self._set([field for field in self._fields if field not in never])
        return values
