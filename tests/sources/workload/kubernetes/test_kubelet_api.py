# SPDX-License-Identifier: Apache-2.0
"""What the kubelet's answers say, as protobuf's own library writes them."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sources.workload.kubernetes.kubelet_api import (
    MOST_LABELS,
    ContainerDevice,
    Message,
    NotProtobuf,
    Pod,
    listed_devices,
    listed_pods,
)
from tests.sources.workload.kubernetes.messages import (
    claim,
    container,
    described,
    pod,
    pod_resources,
    pods,
)

ID = "0123456789abcdef" * 4
UID = "5d3b7a3e-7b2c-4f55-9f0a-aaaaaaaaaaaa"
LABELS = {"team": "a", "app.kubernetes.io/name": "train", "team-lead": "x"}


def listed(*described_pods: Any, labels: str | None = None) -> tuple[Pod, ...]:
    """What is read of these pods, with labels that match."""
    pattern = None if labels is None else re.compile(labels)
    return listed_pods(pods(*described_pods).SerializeToString(), pattern)


def test_a_pod_has_its_uid_its_containers_and_its_labels() -> None:
    """Labels only where their whole name matches; annotations never."""
    pod = described("team-a", "train-0", UID, labels=LABELS, main=f"containerd://{ID}", wait="")

    labels = (("app.kubernetes.io/name", "train"), ("team", "a"))
    expected = Pod("team-a", "train-0", UID, False, ((ID, "main"),), labels)
    assert listed(pod, labels="team|app.*") == (expected,)


def test_without_a_pattern_no_label_is_taken() -> None:
    assert listed(described("team-a", "train-0", UID, labels=LABELS))[0].labels == ()


@pytest.mark.parametrize(
    ("phase", "ended"),
    [("Pending", False), ("Running", False), ("Succeeded", True), ("Failed", True)],
)
def test_a_pod_ends_by_its_phase(phase: str, ended: bool) -> None:
    assert listed(described("team-a", "train-0", UID, phase=phase))[0].ended is ended


@pytest.mark.parametrize(
    "given", [ID, f"docker://{ID[:12]}", f"docker://{ID}/x", "docker://../../x"]
)
def test_what_is_no_container_id_is_none(given: str) -> None:
    assert listed(described("team-a", "train-0", UID, main=given))[0].containers == ()


def test_labels_are_bounded() -> None:
    many = {f"l{n}": "v" for n in range(100)}
    (found,) = listed(described("team-a", "t", UID, labels=many), labels=".*")
    assert len(found.labels) == MOST_LABELS


def test_a_pod_without_a_uid_is_left_out() -> None:
    assert listed(described("team-a", "train-0", ""), described("team-a", "", UID)) == ()


def test_other_vendors_devices_and_drivers_are_left_out() -> None:
    """What else a container has is not even read."""
    answer = pod_resources(
        pod(
            "team-a",
            "train-0",
            container("nic", "mlx5_0", resource="rdma/hca"),
            container("amd", claims=[claim("other", "gpu-0", driver="gpu.amd.com")]),
            container("main", "GPU-1", claims=[claim("own", "gpu-1", share="s")]),
        )
    )

    names, devices = listed_devices(
        answer.SerializeToString(), lambda name: name == "nvidia.com/gpu"
    )

    assert names == {"team-a/train-0"}
    assert devices == (
        ContainerDevice("team-a", "train-0", "main", "GPU-1", "nvidia.com/gpu"),
        ContainerDevice("team-a", "train-0", "main", "gpu-1", "", "team-a/own", (), "s"),
    )


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
    answer: Any = pod_resources(
        *(
            pod(
                namespace,
                name,
                *(
                    container(inner, *ids, claims=[claim("c", *claimed, cdi=("a=b",))])
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
