# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sources.workload.kubernetes.kubelet_api import (
    ContainerDevice,
    Message,
    NotProtobuf,
    listed_devices,
    listed_pods,
)
from tests.sources.workload.kubernetes import messages

ANY = st.binary(max_size=200)
NAMES = st.text(max_size=12)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x0a", "cut off or too long"),
        (b"\x0a\x05abc", "a field is cut off"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "cut off or too long"),
        (b"\x09\x00", "a field is cut off"),
        (b"\x0b\x0c", "the type 3"),
    ],
)
def test_what_is_no_message_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(NotProtobuf, match=why):
        Message(data)


@given(ANY)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Nothing but NotProtobuf is ever raised, whichever message they are taken for."""
    with suppress(NotProtobuf):
        listed_devices(data, lambda _: True)
    with suppress(NotProtobuf):
        listed_pods(data, None)


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
