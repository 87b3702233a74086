# SPDX-License-Identifier: Apache-2.0
"""Many readings in one driver call: field values in an array that is reused."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from ctypes import byref, c_char, c_int32
from typing import Any

import pynvml

from exporter.sources.nvml import NVML
from exporter.sources.nvml.plausible import COUNT, FIELDS
from exporter.sources.nvml.probe import (
    REFUSALS,
    Outcome,
    outcome_of,
    retry_seconds,
)
from exporter.sources.reading_state import Journal

ALL_LINKS = 0xFFFFFFFF

Field = tuple[int, int]
"""A field id and its scope: a link or a part of the module; 0 without a scope."""

_U64 = struct.Struct("=Q")
_ENTRY = struct.Struct("=IIqqIIQ")
"""nvmlFieldValue_t: field, scope, timestamp, latency, value type, return code, value's 8 bytes.

Reading the array in one pass takes a tenth of the time of reading pynvml's structs.
"""
_UNSIGNED: Mapping[int, int] = {
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: 2**32 - 1,
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: 2**64 - 1,
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: 2**64 - 1,
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: 2**16 - 1,
}
"""By value type: the largest, which stands for no value (NVML_VALUE_NOT_AVAILABLE: all ones)."""
_OTHERS: Mapping[int, struct.Struct] = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: struct.Struct("=d"),
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: struct.Struct("=q"),
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: struct.Struct("=i"),
}
"""By value type, for the little-endian machines that NVIDIA has drivers for."""


def decode(raw: int, value_type: int) -> float | None:
    """Return the value of the 8 bytes of an ``nvmlValue_t``; None if the type is not known, or the
    driver has none."""
    largest = _UNSIGNED.get(value_type)
    if largest is not None:
        value = raw & largest
        return None if value == largest else value
    known = _OTHERS.get(value_type)
    return None if known is None else float(known.unpack_from(_U64.pack(raw))[0])


_COUNT_BOUNDS = (COUNT.lowest, COUNT.highest)
_BOUNDS = {field_id: (kind.lowest, kind.highest) for field_id, kind in FIELDS.items()}


class FieldBatch:
    """A set of field values of one GPU that are always read together.

    A field that is refused and has never answered leaves the batch, and is tried again after
    `retry_seconds`; one that has answered stays, since it costs no extra call.
    """

    def __init__(
        self, handle: Any, fields: Sequence[Field], journal: Journal, group: str = "fields"
    ) -> None:
        self._handle = handle
        self._journal = journal
        self._group = group
        self._all = tuple(fields)
        self._worked: set[Field] = set()
        self._denial = (self, "denied")
        """The member of the group that is absent while the driver denies a field."""
        self._doubt = (self, "implausible")
        """The member of the group that is absent while a field has an impossible value."""
        self._retry_at = math.inf
        self._refusal: int = pynvml.NVML_ERROR_NOT_SUPPORTED
        self.fields: tuple[Field, ...] = ()
        """The fields that are read: those that have answered or may answer."""
        self._set(fields)

    def _set(self, fields: Sequence[Field]) -> None:
        self.fields = tuple(fields)
        self._bounds = tuple(_BOUNDS.get(field_id, _COUNT_BOUNDS) for field_id, _ in self.fields)
        # One entry more than there are fields: some drivers touch the entry past the end in NVLink
        # queries, which corrupts the heap with an exact array (nvitop, api/libnvml.py).
        self._array = (pynvml.c_nvmlFieldValue_t * (len(self.fields) + 1))()
        self._bytes = (c_char * (len(self.fields) * _ENTRY.size)).from_buffer(self._array)
        for position, (field_id, scope) in enumerate(self.fields):
            self._array[position].fieldId = field_id
            self._array[position].scopeId = scope

    def read(self) -> dict[Field, float]:
        """Return the possible values of the fields that answered, in the driver's units.

        Raises:
            pynvml.NVMLError: the call as a whole failed. A field that answers that the GPU or the
                library is gone has failed alone: the calls say whether they are.
        """
        if self._journal.now >= self._retry_at:
            self._retry_at = math.inf
            self._set(self._all)
            self._journal.answered(self._group, self._denial)
        if not self.fields:
            return {}
        call = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetFieldValues")
        code = call(self._handle, c_int32(len(self.fields)), byref(self._array))
        if code != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(code)
        values: dict[Field, float] = {}
        refusals: dict[Field, int] = {}
        failure: str | None = None
        doubted: Field | None = None
        entries = _ENTRY.iter_unpack(self._bytes)
        for field, (lowest, highest), (_, _, _, _, kind, code, raw) in zip(
            self.fields, self._bounds, entries, strict=True
        ):
            if code == pynvml.NVML_SUCCESS:
                value = decode(raw, kind)
                if value is not None and lowest <= value <= highest:
                    values[field] = value
                elif value is not None:
                    doubted = field
            elif code in REFUSALS and field not in self._worked:
                refusals[field] = code
            elif outcome_of(code) is not Outcome.NOT_NOW:
                failure = f"field {field[0]}: {pynvml.NVMLError(code)}"
        self._worked |= values.keys()
        if failure is None:
            self._journal.answered(self._group, self)
        else:
            self._journal.failed(NVML, self._group, failure, self)
        possible, worked = doubted is None, doubted in self._worked
        self._journal.judged(self._group, self._doubt, possible=possible, worked=worked)
        if refusals:
            self._leave_out(refusals)
        return values

    def read_all(self) -> list[float]:
        """Return the values of all fields, in the order of the batch.

        Raises:
            pynvml.NVMLError: one is refused, or not all are known now.
        """
        values = self.read()
        if len(values) < len(self._all):
            whole = self.fields == self._all
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_DATA if whole else self._refusal)
        return [values[field] for field in self._all]

    def _leave_out(self, refusals: Mapping[Field, int]) -> None:
        """Take fields out of the batch; `refusals` has the code of each."""
        if pynvml.NVML_ERROR_NO_PERMISSION in refusals.values():
            self._journal.refused(NVML, self._group, self._denial)
        self._refusal = next(iter(refusals.values()))
        self._set([field for field in self.fields if field not in refusals])
        wait = min(retry_seconds(code, worked=False) for code in refusals.values())
        self._retry_at = min(self._retry_at, self._journal.now + wait)
