# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re

import pytest

from exporter.sources.workload.kubernetes.kubelet_api import (
    MOST_LABELS,
    ContainerDevice,
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


def test_a_pod_has_its_uid_its_containers_and_its_labels() -> None:
    """Labels only where their whole name matches; annotations never."""
    answer = pods(
        described("team-a", "train-0", UID, labels=LABELS, main=f"containerd://{ID}", wait="")
    )

    found = listed_pods(answer.SerializeToString(), re.compile("team|app.*"))

    labels = (("app.kubernetes.io/name", "train"), ("team", "a"))
    assert found == (Pod("team-a", "train-0", UID, False, ((ID, "main"),), labels),)


def test_without_a_pattern_no_label_is_taken() -> None:
    answer = pods(described("team-a", "train-0", UID, labels=LABELS))

    assert listed_pods(answer.SerializeToString(), None)[0].labels == ()


@pytest.mark.parametrize(
    ("phase", "ended"),
    [("Pending", False), ("Running", False), ("Succeeded", True), ("Failed", True)],
)
def test_a_pod_ends_by_its_phase(phase: str, ended: bool) -> None:
    answer = pods(described("team-a", "train-0", UID, phase=phase))

    assert listed_pods(answer.SerializeToString(), None)[0].ended is ended


@pytest.mark.parametrize(
    "given", [ID, f"docker://{ID[:12]}", f"docker://{ID}/x", "docker://../../x"]
)
def test_what_is_no_container_id_is_none(given: str) -> None:
    answer = pods(described("team-a", "train-0", UID, main=given))

    assert listed_pods(answer.SerializeToString(), None)[0].containers == ()


def test_labels_are_bounded() -> None:
    answer = pods(described("team-a", "t", UID, labels={f"l{n}": "v" for n in range(100)}))

    (found,) = listed_pods(answer.SerializeToString(), re.compile(".*"))

    assert len(found.labels) == MOST_LABELS


def test_a_pod_without_a_uid_is_left_out() -> None:
    answer = pods(described("team-a", "train-0", ""), described("team-a", "", UID))

    assert listed_pods(answer.SerializeToString(), None) == ()


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
