# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from dataclasses import replace

import pytest

from exporter.model.workload import Allocation, DeviceName, Workload
from exporter.sources.workload.kubernetes.allocations import Successions, given, going_on
from exporter.sources.workload.kubernetes.pod_resources import Held
from exporter.sources.workload.kubernetes.pods import Pod

GPU = "GPU-11111111-2222-3333-4444-555555555555"
OTHER = "GPU-99999999-2222-3333-4444-555555555555"
ONE = Held("team-a", "one", "main", GPU, "nvidia.com/gpu")
TWO = replace(ONE, pod="two")
THREE = replace(ONE, pod="three")


def _who(held: tuple[Held, ...]) -> list[str]:
    return [each.pod for each in held]


def test_a_container_has_its_device() -> None:
    """With the pod's UID, where the pods API says it."""
    pods = {("team-a", "one"): Pod("team-a", "one", "uid-1")}

    assert given([ONE, TWO], pods, []).allocations == (
        Allocation(
            DeviceName(uuid=GPU), Workload("kubernetes", "team-a", "one", "main", id="uid-1")
        ),
        Allocation(DeviceName(uuid=GPU), Workload("kubernetes", "team-a", "two", "main")),
    )


def test_a_replica_and_a_claim_are_kept() -> None:
    shared = replace(ONE, device=f"{GPU}::3")
    claimed = replace(ONE, device="gpu-0", resource="", claim="team-a/gpus")

    found = given([shared, claimed], {}, []).allocations

    assert [(each.replica, each.claim) for each in found] == [("3", ""), ("", "team-a/gpus")]


def test_a_pod_that_has_ended_has_nothing() -> None:
    """As a kubelet before 1.34 lists it."""
    pods = {
        ("team-a", "one"): Pod("team-a", "one", "uid-1", ended=True),
        ("team-a", "two"): Pod("team-a", "two", "uid-2"),
    }

    assert _who(going_on([ONE, TWO, THREE], pods)) == ["two", "three"]


def test_a_pod_that_only_watches_has_nothing() -> None:
    """Its whole name, with its namespace, has to match."""
    watchers = [re.compile("team-a/one"), re.compile("gpu-operator/.*")]
    operator = replace(ONE, namespace="gpu-operator", pod="dcgm-exporter-x")

    found = given([ONE, TWO, operator, replace(ONE, pod="one-more")], {}, watchers)

    assert [each.workload.pod for each in found.allocations] == ["two", "one-more"]


def test_devices_that_cannot_be_named_are_reported() -> None:
    """Once each; those that are not on this node are none of them."""
    odd = replace(ONE, device="odd")
    vfio = replace(ONE, device="gpu-vfio-1", resource="", claim="team-a/vm")

    found = given([odd, odd, ONE, vfio], {}, [])

    assert found.unknown == ("odd",)
    assert len(found.allocations) == 1


def test_of_two_pods_with_one_exclusive_device_the_later_has_it() -> None:
    """The earlier one has ended; it stays without while it is listed."""
    seen = Successions()
    assert _who(seen.present([ONE])) == ["one"]
    assert _who(seen.present([TWO, ONE])) == ["two"]
    assert _who(seen.present([ONE, TWO])) == ["two"]
    assert _who(seen.present([ONE, TWO, THREE])) == ["three"]
    assert _who(seen.present([TWO])) == ["two"]
    assert _who(seen.present([])) == []


def test_pods_of_one_first_look_cannot_be_told_apart() -> None:
    """After a restart of the daemon: until one is gone, or a third comes."""
    seen = Successions()
    assert _who(seen.present([ONE, TWO])) == ["one", "two"]
    assert _who(seen.present([ONE, TWO])) == ["one", "two"]
    assert _who(seen.present([TWO, THREE])) == ["three"]


def test_a_pod_that_was_gone_is_new_again() -> None:
    """As one of a StatefulSet, which has the same name each time."""
    seen = Successions()
    seen.present([ONE])
    seen.present([TWO])
    assert _who(seen.present([ONE, TWO])) == ["one"]


@pytest.mark.parametrize(
    "held",
    [
        replace(ONE, device=f"{GPU}::1"),
        replace(ONE, device="nvidia0/vgpu1"),
        replace(ONE, resource="nvidia.com/gpu.shared"),
        replace(ONE, device="gpu-0", resource="", claim="team-a/shared"),
    ],
)
def test_what_several_may_have_all_have(held: Held) -> None:
    """Replicas, and the devices of one claim."""
    seen = Successions()
    seen.present([held])
    assert _who(seen.present([held, replace(held, pod="two")])) == ["one", "two"]


def test_containers_of_one_pod_have_a_device_together() -> None:
    seen = Successions()
    seen.present([ONE])
    both = [ONE, replace(ONE, container="sidecar"), replace(ONE, device=OTHER)]
    assert seen.present(both) == tuple(both)
