# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exporter.sources.workload.kubernetes.kubelet_api import (
    ContainerDevice,
    listed_devices,
    listed_pods,
)
from exporter.sources.workload.kubernetes.protobuf import NotProtobuf, fields, text
from tests.sources.workload.kubernetes import messages

ANY = st.binary(max_size=200)
NAMES = st.text(max_size=12)


def _read(data: bytes) -> list[tuple[int, int | bytes]]:
    return [
        (number, value if isinstance(value, int) else bytes(value))
        for number, value in fields(memoryview(data))
    ]


def test_fields_are_read_by_number_and_those_of_fixed_length_are_passed_over() -> None:
    """All of what one message of protobuf's own library has."""
    pod = messages.PodMessage(
        metadata={"name": "n", "generation": 1 << 40},
        spec={"unread": 1.5, "unread_too": 7},
        status={"containerStatuses": [{"ready": True}]},
    )

    outer = _read(pod.SerializeToString())

    assert [number for number, _ in outer] == [1, 2, 3]
    assert [_read(value) for _, value in outer if isinstance(value, bytes)] == [
        [(1, b"n"), (7, 1 << 40)],
        [],
        [(8, b"\x20\x01")],
    ]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x0a", "cut off or too long"),
        (b"\x0a\x05abc", "a field is cut off"),
        (b"\x08", "cut off or too long"),
        (b"\x08\xff", "cut off or too long"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "cut off or too long"),
        (b"\x09\x00", "a field is cut off"),
        (b"\x0d\x00", "a field is cut off"),
        (b"\x00\x01", "no field 0"),
        (b"\x0b\x0c", "the type 3"),
        (b"\x0f", "the type 7"),
        (b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80", "cut off or too long"),
        (b"\xf8\xff\xff\xff\xff\x01\x00", "no field"),
    ],
)
def test_what_is_no_message_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(NotProtobuf, match=why):
        _read(data)


@given(ANY)
@example(b"\x0a\x02\x08\x01")
@example(b"\x0a\x04\x1a\x02\x08\x01")
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Nothing but NotProtobuf is ever raised, whichever message they are taken for."""
    for read in (
        _read,
        lambda answer: listed_devices(answer, lambda _: True),
        lambda answer: listed_pods(answer, None),
    ):
        with suppress(NotProtobuf):
            read(data)


@given(st.text(max_size=30), st.integers(0, 40))
def test_a_text_is_at_most_so_long(said: str, most: int) -> None:
    assert text(memoryview(said.encode()), most) == said[:most]


DEVICES = st.lists(st.text(min_size=1, max_size=20), max_size=4)
CONTAINERS = st.lists(st.tuples(NAMES, DEVICES, DEVICES), max_size=3)
PODS = st.lists(st.tuples(NAMES, NAMES, CONTAINERS), max_size=4)


@given(PODS)
def test_what_protobuf_writes_is_what_is_read(
    pods: list[tuple[str, str, list[tuple[str, list[str], list[str]]]]],
) -> None:
    """Round trip with the serializer that the kubelet's own comes from."""
    answer: Any = messages.pod_resources(
        *(
            messages.pod(
                namespace,
                name,
                *(
                    messages.container(
                        inner, *ids, claims=[messages.claim("c", *claimed, cdi=("a=b",))]
                    )
                    for inner, ids, claimed in containers
                ),
            )
            for namespace, name, containers in pods
        )
    )

    expected = [
        device
        for namespace, name, containers in pods
        for inner, ids, claimed in containers
        for device in (
            *(ContainerDevice(namespace, name, inner, each, "nvidia.com/gpu") for each in ids),
            *(
                ContainerDevice(namespace, name, inner, each, "", "team-a/c", ("a=b",))
                for each in claimed
            ),
        )
    ]
    names, devices = listed_devices(answer.SerializeToString(), lambda _: True)
    assert names == {f"{namespace}/{name}" for namespace, name, _ in pods}
    assert list(devices) == expected
