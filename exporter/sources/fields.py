# SPDX-License-Identifier: Apache-2.0
"""Many readings in one driver call: batched field values in an own, reused array."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_char, c_int32
from typing import Any

import pynvml

from exporter.sources.probe import Journal, Outcome, outcome_of, raise_if_gone

ALL_LINKS = 0xFFFFFFFF

Field = tuple[int, int]
"""A field id and its scope (a link, or which part of the module; 0 where there is none)."""

_U64, _F64, _I64, _I32 = (struct.Struct(code) for code in ("=Q", "=d", "=q", "=i"))
_ENTRY = struct.Struct("=IIqqIIQ")
"""nvmlFieldValue_t: field, scope, timestamp, latency, value type, return code, value's 8 bytes.

Reading the array in one pass costs a tenth of what pynvml's structs take attribute by attribute.
"""
_DECODERS: Mapping[int, Callable[[int], float]] = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: lambda raw: float(_F64.unpack(_U64.pack(raw))[0]),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: lambda raw: raw & 0xFFFFFFFF,
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: lambda raw: raw,
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: lambda raw: raw,
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: lambda raw: int(_I64.unpack(_U64.pack(raw))[0]),
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: lambda raw: int(_I32.unpack(_U64.pack(raw)[:4])[0]),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: lambda raw: raw & 0xFFFF,
}
"""By value type, for the little-endian machines that NVIDIA has drivers for."""


def decode(raw: int, value_type: int) -> float | None:
    """Return what the 8 bytes of an ``nvmlValue_t`` mean; None for a type that is not known."""
    decoder = _DECODERS.get(value_type)
    return None if decoder is None else decoder(raw)


class FieldBatch:
    """A set of field values of one GPU that are always asked for together.

    Fields that this GPU will never answer leave the batch when they first say so.
    """

    def __init__(
        self, handle: Any, fields: Sequence[Field], journal: Journal, group: str = "fields"
    ) -> None:
        self._handle = handle
        self._journal = journal
        self._group = group
        self._failing = False
        self._fields: tuple[Field, ...] = ()
        self._set(fields)

    def _set(self, fields: Sequence[Field]) -> None:
        self._fields = tuple(fields)
        # One entry more than asked for: some drivers touch the entry past the end in NVLink
        # queries, which corrupts the heap with an exact array (nvitop, api/libnvml.py).
        self._array = (pynvml.c_nvmlFieldValue_t * (len(self._fields) + 1))()
        self._bytes = (c_char * (len(self._fields) * _ENTRY.size)).from_buffer(self._array)
        for position, (field_id, scope) in enumerate(self._fields):
            self._array[position].fieldId = field_id
            self._array[position].scopeId = scope

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
        never: set[Field] = set()
        failed: tuple[Field, int] | None = None
        entries = _ENTRY.iter_unpack(self._bytes)
        for field, (_, _, _, _, kind, code, raw) in zip(self._fields, entries, strict=True):
            if code == pynvml.NVML_SUCCESS:
                value = decode(raw, kind)
                if value is not None:
                    values[field] = value
                continue
            raise_if_gone(code)
            outcome = outcome_of(code)
            if outcome is Outcome.NO_PERMISSION:
                self._journal.refused("nvml", self._group)
            if outcome in (Outcome.NEVER, Outcome.NO_PERMISSION):
                never.add(field)
            elif outcome is Outcome.FAILURE:
                failed = field, code
        self._note(failed)
        if never:
            self._set([field for field in self._fields if field not in never])
        return values

    def _note(self, failed: tuple[Field, int] | None) -> None:
        """Count a read in which a field failed; the others are not affected."""
        if failed is not None:
            self._failing = True
            (field_id, _), code = failed
            self._journal.failed("nvml", self._group, f"field {field_id}: {pynvml.NVMLError(code)}")
        elif self._failing:
            self._failing = False
            self._journal.answered(self._group)
