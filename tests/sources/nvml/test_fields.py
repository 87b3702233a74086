# SPDX-License-Identifier: Apache-2.0
"""Batched field values: one call, a status of its own for each field."""

from __future__ import annotations

import ctypes
import logging
import struct
from typing import Any

import pynvml
import pytest

from exporter.sources.nvml import fields, gpm, utilization
from exporter.sources.nvml.fields import FieldBatch, decode
from tests.sources.conftest import Open

ENERGY = (83, 0)
MEMORY_TEMPERATURE = (82, 0)
POWER = (185, 0)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *(("double", 2.5), ("int", 7), ("uint", 2**32 - 2), ("ushort", 65534)),
        *(("ulong", 2**40), ("ull", 2**50), ("sll", 2**40)),
    ],
)
def test_every_value_type_is_read(open_gpu: Open, kind: str, value: float) -> None:
    """The union's member follows the entry's value type."""
    rig = open_gpu(fields={"83": {"value": value, "type": kind}})

    assert FieldBatch(rig.handle, [ENERGY], rig.journal).read() == {ENERGY: value}


def opened(open_gpu: Open, memory_temperature: Any) -> tuple[Any, FieldBatch]:
    """A GPU, and the batch of its memory's temperature, which answers so, and its energy."""
    rig = open_gpu(fields={"82": memory_temperature}, energy=3)
    return rig, FieldBatch(rig.handle, [MEMORY_TEMPERATURE, ENERGY], rig.journal)


def test_signed_values_are_read(open_gpu: Open) -> None:
    """A memory may be colder than water freezes."""
    _, batch = opened(open_gpu, {"value": -7, "type": "int"})

    assert batch.read() == {MEMORY_TEMPERATURE: -7, ENERGY: 3000}


@pytest.mark.parametrize("code", [2, 3, 4, 15, 999])
def test_field_that_answered_once_stays_whatever_it_says_later(open_gpu: Open, code: int) -> None:
    """It costs no call: when it answers again, it is read again."""
    rig, batch = opened(open_gpu, 44)
    batch.read()
    rig.fake.device(0, fields={"82": {"error": code}})
    assert batch.read() == {ENERGY: 3000}
    rig.fake.device(0, fields={"82": 45})

    assert batch.read() == {MEMORY_TEMPERATURE: 45, ENERGY: 3000}


@pytest.mark.parametrize(("code", "seconds"), [(2, 5), (3, 60), (4, 60)])
def test_field_that_never_answered_is_tried_again(
    open_gpu: Open, code: int, seconds: float
) -> None:
    """A field that was refused at first is read when it answers later."""
    rig, batch = opened(open_gpu, {"error": code})
    batch.read()
    rig.fake.device(0, fields={"82": 45})
    rig.advance(seconds - 1)
    assert MEMORY_TEMPERATURE not in batch.read()
    rig.advance(1)

    assert batch.read()[MEMORY_TEMPERATURE] == 45
    assert rig.journal.states == {}


@pytest.mark.parametrize(
    ("kind", "ones"),
    [("INT", 2**32 - 1), ("LONG", 2**64 - 1), ("LONG_LONG", 2**64 - 1), ("SHORT", 2**16 - 1)],
)
def test_all_ones_are_no_value(kind: str, ones: int) -> None:
    """NVML_VALUE_NOT_AVAILABLE of any width is absent; one less is a number."""
    number = getattr(pynvml, f"NVML_VALUE_TYPE_UNSIGNED_{kind}")
    assert decode(ones, number) is None
    assert decode(ones - 1, number) == ones - 1


@pytest.mark.parametrize(
    ("field", "value"),
    [(82, 255), (82, -274), (83, 2e16), (91, 70_000), (74, 1e19), (185, 1e9), (138, 1.8e19)],
)
def test_impossible_values_are_absent(open_gpu: Open, field: int, value: float) -> None:
    """What no hardware can mean is not published, whatever code comes with it, and the state of the
    batch says so until the field is possible again."""
    rig = open_gpu(fields={str(field): {"value": value, "type": "double"}})
    batch = FieldBatch(rig.handle, [(field, 0)], rig.journal)

    assert batch.read() == {}
    assert rig.journal.states == {"fields": "implausible"}

    rig.fake.device(0, fields={str(field): {"value": 42, "type": "double"}})
    assert batch.read() == {(field, 0): 42}
    assert rig.journal.states == {}


@pytest.mark.parametrize("code", [2, 3, 13, 25, 26])
def test_fields_that_never_answer_leave(open_gpu: Open, code: int) -> None:
    """A field that this GPU lacks is asked for once."""
    rig, batch = opened(open_gpu, {"error": code})

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
        rig.journal.log_changes()

    assert batch.fields == (ENERGY,)
    assert rig.journal.states == {"fields": "no_permission"}
    assert caplog.messages == ["GPU 0 cannot be read in part: fields (no permission)"]


@pytest.mark.parametrize("code", [6, 10, 19, 21, 27, 29])
def test_field_that_is_not_there_now_stays(open_gpu: Open, code: int) -> None:
    """A field that does not answer this round is asked again."""
    rig, batch = opened(open_gpu, {"error": code})
    assert batch.read() == {ENERGY: 3000}
    rig.fake.device(0, fields={"82": 44})

    assert batch.read() == {MEMORY_TEMPERATURE: 44, ENERGY: 3000}
    assert rig.failures == {}


def test_failing_field_is_counted_and_costs_no_other(
    open_gpu: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """An unknown code of one field is a failure: counted each read, logged once each way."""
    caplog.set_level(logging.INFO)
    rig, batch = opened(open_gpu, {"error": 999})
    for _ in range(3):
        assert batch.read() == {ENERGY: 3000}
        rig.journal.log_changes()
    rig.fake.device(0, fields={"82": 44})
    for _ in range(3):
        assert batch.read() == {MEMORY_TEMPERATURE: 44, ENERGY: 3000}
        rig.journal.log_changes()

    assert rig.failures == {"nvml": 3}
    assert caplog.messages == [
        "GPU 0 cannot be read in part: fields (field 82: Unknown Error)",
        "GPU 0: can be read again: fields",
    ]


@pytest.mark.parametrize("code", [1, 9, 15, 16, 18, 28])
def test_field_that_says_that_all_is_lost_fails_alone(open_gpu: Open, code: int) -> None:
    """Whether the GPU or the library is lost, calls say; the other fields are read."""
    rig, batch = opened(open_gpu, {"error": code})
    assert batch.read() == {ENERGY: 3000}
    rig.journal.log_changes()
    assert rig.failures == {"nvml": 1}


@pytest.mark.parametrize(
    ("layout", "entry", "members"),
    [
        (
            *(pynvml.c_nvmlFieldValue_t, fields._ENTRY),
            {"timestamp": 8, "latencyUsec": 16, "valueType": 24, "nvmlReturn": 28, "value": 32},
        ),
        (pynvml.c_nvmlGpmMetric_t, gpm._ENTRY, {"metricId": 0, "nvmlReturn": 4, "value": 8}),
        (pynvml.c_nvmlSample_t, utilization._ENTRY, {"timeStamp": 0, "sampleValue": 8}),
    ],
)
def test_layouts_are_those_of_the_binding(
    layout: Any, entry: struct.Struct, members: dict[str, int]
) -> None:
    """Entries are decoded at the offsets that pynvml's structures have."""
    assert ctypes.sizeof(layout) == entry.size
    assert {name: getattr(layout, name).offset for name in members} == members
