# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from exporter.model.workload import DeviceName
from exporter.sources.workload.kubernetes.allocations import (
    Successions,
    allocations_of,
    device_of,
    gpu_resources,
    is_elsewhere,
)
from exporter.sources.workload.kubernetes.kubelet_api import ContainerDevice

GPU = "GPU-11111111-2222-3333-4444-555555555555"
ONE = ContainerDevice("team-a", "one", "main", GPU, "nvidia.com/gpu")
TWO = replace(ONE, pod="two")
THREE = replace(ONE, pod="three")


def _who(held: tuple[ContainerDevice, ...]) -> list[str]:
    return [each.pod for each in held]


def test_a_replica_and_a_claim_are_kept() -> None:
    shared = replace(ONE, device=f"{GPU}::3")
    claimed = replace(ONE, device="gpu-0", resource="", claim="team-a/gpus")

    found, _ = allocations_of([shared, claimed], {}, [])

    assert [(each.replica, each.claim) for each in found] == [("3", ""), ("", "team-a/gpus")]


def test_devices_that_cannot_be_named_are_reported() -> None:
    """Once each; those that are not on this node are none of them."""
    odd = replace(ONE, device="odd")
    vfio = replace(ONE, device="gpu-vfio-1", resource="", claim="team-a/vm")

    found, unknown = allocations_of([odd, odd, ONE, vfio], {}, [])

    assert unknown == ("odd",)
    assert len(found) == 1


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
def test_what_several_may_have_all_have(held: ContainerDevice) -> None:
    """Replicas, and the devices of one claim."""
    seen = Successions()
    seen.present([held])
    assert _who(seen.present([held, replace(held, pod="two")])) == ["one", "two"]


UUID = "11111111-2222-3333-4444-5555555555ab"
OTHER_GPU, MIG = f"GPU-{UUID}", f"MIG-{UUID}"


def _plugin(device: str) -> ContainerDevice:
    return ContainerDevice("team-a", "train-0", "main", device, "nvidia.com/gpu")


def _claimed(device: str, *cdi: str, share: str = "") -> ContainerDevice:
    return ContainerDevice("team-a", "train-0", "main", device, "", "team-a/gpus", cdi, share)


@pytest.mark.parametrize(
    ("device", "expected", "replica"),
    [
        (OTHER_GPU, DeviceName(uuid=OTHER_GPU), ""),
        (f"GPU-{UUID.upper()}", DeviceName(uuid=OTHER_GPU), ""),
        (f"{OTHER_GPU}::3", DeviceName(uuid=OTHER_GPU), "3"),
        (MIG, DeviceName(mig_uuid=MIG), ""),
        (f"{MIG}::7", DeviceName(mig_uuid=MIG), "7"),
        (f"MIG-{OTHER_GPU}/7/0", DeviceName(uuid=OTHER_GPU, gpu_instance=7), ""),
        (f"MIG-{OTHER_GPU}/13/1::2", DeviceName(uuid=OTHER_GPU, gpu_instance=13), "2"),
        ("nvidia0", DeviceName(minor=0), ""),
        ("nvidia12/gi3", DeviceName(minor=12, gpu_instance=3), ""),
        ("nvidia0/vgpu1", DeviceName(minor=0), "1"),
        ("nvidia0/gi3/vgpu11", DeviceName(minor=0, gpu_instance=3), "11"),
    ],
)
def test_the_ids_of_device_plugins(device: str, expected: DeviceName, replica: str) -> None:
    """NVIDIA's plugin with and without MIG and sharing, and that of GKE."""
    assert device_of(_plugin(device)) == (expected, replica)


@pytest.mark.parametrize(
    "device",
    [
        "",
        "0",
        "nvidiactl",
        "nvidia0/vgpu",
        "GPU-1234",
        f"{OTHER_GPU}-0",
        f"MIG-{OTHER_GPU}/7",
        f"x{OTHER_GPU}",
    ],
)
def test_other_ids_name_no_gpu(device: str) -> None:
    """Among them HAMi's, which look alike and are not the GPU that a container gets."""
    assert device_of(_plugin(device)) is None


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (_claimed("gpu-0"), DeviceName(minor=0)),
        (_claimed("gpu-11", f"k8s.gpu.nvidia.com/claim={UUID}-gpu-11"), DeviceName(minor=11)),
        (_claimed(f"gpu-{UUID}"), DeviceName(uuid=OTHER_GPU)),
        (_claimed("gpu-3", f"nvidia.com/gpu={OTHER_GPU}"), DeviceName(uuid=OTHER_GPU)),
        (_claimed("any", "other.com/x=y", f"nvidia.com/gpu={MIG}"), DeviceName(mig_uuid=MIG)),
        (_claimed("gpu-2-mig-1g10gb-19-4"), DeviceName(minor=2, profile="1g10gb")),
        (_claimed("gpu-2-mig-1g10gb-me-20-0"), DeviceName(minor=2, profile="1g10gb-me")),
        (_claimed("gpu-2-mig-19-4-1"), DeviceName(minor=2, profile="")),
    ],
)
def test_the_devices_of_claims(held: ContainerDevice, expected: DeviceName) -> None:
    """By UUID where a name has one, else by what NVIDIA's driver calls its devices."""
    assert device_of(held) == (expected, "")


def test_a_claims_share_is_its_replica() -> None:
    """Several claims may each have a part of one device."""
    assert device_of(_claimed("gpu-0", share="a1")) == (DeviceName(minor=0), "a1")


@pytest.mark.parametrize("device", ["", "gpu-", "gpu-x", f"gpu-{UUID}1", "channel-0"])
def test_other_devices_of_claims_are_not_known(device: str) -> None:
    assert device_of(_claimed(device)) is None
    assert not is_elsewhere(_claimed(device))


def test_a_gpu_of_a_virtual_machine_is_elsewhere() -> None:
    """Handed through, it has left the driver of this node."""
    assert is_elsewhere(_claimed("gpu-vfio-0"))
    assert not is_elsewhere(_plugin("gpu-vfio-0"))


def test_which_resources_are_gpus() -> None:
    """NVIDIA's, and those that the user names; of other vendors none."""
    is_gpu = gpu_resources(("example.com/a100",))
    wanted = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb")
    assert all(map(is_gpu, (*wanted, "example.com/a100")))
    assert not any(map(is_gpu, ("amd.com/gpu", "nvidia.com/gpu.x", "", "example.com/a")))
