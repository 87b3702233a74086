# SPDX-License-Identifier: Apache-2.0
"""Batched field values: one call, a status of its own for each field."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from exporter.errors import DeviceGone, LibraryUnavailable
from exporter.sources import fields as module
from exporter.sources.fields import ALL_LINKS, FieldBatch, decode
from tests.fake_nvml import fault

Open = Callable[..., Any]
ENERGY = (83, 0)
MEMORY_TEMPERATURE = (82, 0)
POWER = (185, 0)
NVLINK_TRANSMIT = (138, ALL_LINKS)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("double", 2.5),
        ("uint", 2**32 - 1),
        ("ulong", 2**40),
        ("ull", 2**50),
        ("sll", -(2**40)),
        ("int", -7),
        ("ushort", 65535),
    ],
)
def test_every_value_type_is_read(open_gpu: Open, kind: str, value: float) -> None:
    """The union's member follows the entry's value type."""
    rig = open_gpu(fields={"83": {"value": value, "type": kind}})

    assert FieldBatch(rig.handle, [ENERGY], rig.journal).read() == {ENERGY: value}


def test_unknown_value_type_is_absent() -> None:
    """A type that is newer than this program is not guessed."""
    assert decode(7, 99) is None


def test_layout_is_that_of_the_binding() -> None:
    """The entries are decoded at the offsets that pynvml's structure has."""
    layout = pynvml.c_nvmlFieldValue_t

    assert ctypes.sizeof(layout) == module._ENTRY.size
    offsets = [layout.fieldId, layout.scopeId, layout.timestamp, layout.latencyUsec]
    offsets += [layout.valueType, layout.nvmlReturn, layout.value]
    assert [member.offset for member in offsets] == [0, 4, 8, 16, 24, 28, 32]


def test_scope_is_asked_for(open_gpu: Open) -> None:
    """One field id may answer for several scopes."""
    rig = open_gpu(power=500, module_power=900, nvlink={"tx": 18 * 1024**2})
    rig.advance(1)
    batch = FieldBatch(rig.handle, [POWER, (185, 1), NVLINK_TRANSMIT, (138, 3)], rig.journal)

    assert batch.read() == {
        POWER: 500_000,
        (185, 1): 900_000,
        NVLINK_TRANSMIT: 18 * 1024,
        (138, 3): 1024,
    }


def test_overrun_of_nvlink_queries_hits_spare_memory(open_gpu: Open) -> None:
    """A driver that writes one entry past the count in NVLink queries harms nothing: the array
    has one entry to spare."""
    rig = open_gpu(nvlink_overrun=True, energy=3)
    fields = [ENERGY, NVLINK_TRANSMIT]
    batch = FieldBatch(rig.handle, fields, rig.journal)

    assert len(batch._array) == len(fields) + 1
    for _ in range(3):
        assert batch.read() == {ENERGY: 3000, NVLINK_TRANSMIT: 0}
    assert batch._array[len(fields)].nvmlReturn == 999
    assert batch.fields == tuple(fields)


@pytest.mark.parametrize("code", [2, 3, 13, 25, 26])
def test_fields_that_never_answer_leave(open_gpu: Open, code: int) -> None:
    """A field that this GPU lacks is asked for once."""
    rig = open_gpu(fields={"82": {"error": code}}, energy=3)
    batch = FieldBatch(rig.handle, [MEMORY_TEMPERATURE, ENERGY], rig.journal)

    assert batch.read() == {ENERGY: 3000}
    assert batch.fields == (ENERGY,)
    assert batch.read() == {ENERGY: 3000}
    assert (rig.journal.states, rig.failures) == ({}, {})


def test_refused_field_leaves_and_is_logged_once(
    open_gpu: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """A field without permission is not asked again; the group's state says so."""
    rig = open_gpu(fields={"82": {"error": 4}, "185": {"error": 4}}, energy=3)
    batch = FieldBatch(rig.handle, [MEMORY_TEMPERATURE, ENERGY, POWER], rig.journal, "fields")
    for _ in range(3):
        assert batch.read() == {ENERGY: 3000}

    assert batch.fields == (ENERGY,)
    assert rig.journal.states == {"fields": "no_permission"}
    assert [entry.getMessage() for entry in caplog.records] == [
        "GPU 0: fields cannot be read: no permission"
    ]


@pytest.mark.parametrize("code", [6, 10, 19, 21, 27, 29])
def test_field_that_is_not_there_now_stays(open_gpu: Open, code: int) -> None:
    """A field that does not answer this round is asked again."""
    rig = open_gpu(fields={"82": {"error": code}}, energy=3)
    batch = FieldBatch(rig.handle, [MEMORY_TEMPERATURE, ENERGY], rig.journal)
    assert batch.read() == {ENERGY: 3000}
    rig.fake.device(0, fields={"82": 44})

    assert batch.read() == {MEMORY_TEMPERATURE: 44, ENERGY: 3000}
    assert rig.failures == {}


def test_failing_field_is_counted_and_costs_no_other(
    open_gpu: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """An unknown code of one field is a failure: counted each read, logged once each way."""
    caplog.set_level(logging.INFO)
    rig = open_gpu(fields={"82": {"error": 999}}, energy=3)
    batch = FieldBatch(rig.handle, [MEMORY_TEMPERATURE, ENERGY], rig.journal, "fields")
    for _ in range(3):
        assert batch.read() == {ENERGY: 3000}
    rig.fake.device(0, fields={"82": 44})
    for _ in range(3):
        assert batch.read() == {MEMORY_TEMPERATURE: 44, ENERGY: 3000}

    assert rig.failures == {"nvml": 3}
    assert [entry.getMessage() for entry in caplog.records] == [
        "GPU 0: reading fields failed: field 82: Unknown Error",
        "GPU 0: reading fields works again",
    ]


@pytest.mark.parametrize("code", [15, 16, 28])
def test_field_may_say_that_the_gpu_is_gone(open_gpu: Open, code: int) -> None:
    """A device-gone code of a single field ends the round."""
    rig = open_gpu(fields={"83": {"error": code}})

    with pytest.raises(DeviceGone):
        FieldBatch(rig.handle, [POWER, ENERGY], rig.journal).read()


@pytest.mark.parametrize("code", [1, 9, 18])
def test_field_may_say_that_the_library_is_lost(open_gpu: Open, code: int) -> None:
    """A library-state code of a single field is raised as that."""
    rig = open_gpu(fields={"83": {"error": code}})

    with pytest.raises(LibraryUnavailable):
        FieldBatch(rig.handle, [POWER, ENERGY], rig.journal).read()


def test_whole_call_refused(open_gpu: Open) -> None:
    """A code of the call itself is raised, for the reading's chain to decide about."""
    rig = open_gpu()
    rig.fake.update(faults=[fault("nvmlDeviceGetFieldValues", error=4)])

    with pytest.raises(pynvml.NVMLError_NoPermission):
        FieldBatch(rig.handle, [POWER], rig.journal).read()


def test_empty_batch_asks_nothing(open_gpu: Open) -> None:
    """When every field has left, the driver is left alone."""
    rig = open_gpu(fields={"83": None})
    batch = FieldBatch(rig.handle, [ENERGY], rig.journal)
    batch.read()
    rig.calls()

    assert batch.read() == {}
    assert rig.calls() == {}
