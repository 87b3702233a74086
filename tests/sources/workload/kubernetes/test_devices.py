# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.workload import DeviceName
from exporter.sources.workload.kubernetes.devices import gpu_resources, is_elsewhere, named
from exporter.sources.workload.kubernetes.pod_resources import Held

UUID = "11111111-2222-3333-4444-5555555555ab"
GPU, MIG = f"GPU-{UUID}", f"MIG-{UUID}"


def _plugin(device: str) -> Held:
    return Held("team-a", "train-0", "main", device, "nvidia.com/gpu")


def _claimed(device: str, *cdi: str, share: str = "") -> Held:
    return Held("team-a", "train-0", "main", device, "", "team-a/gpus", cdi, share)


@pytest.mark.parametrize(
    ("device", "expected", "replica"),
    [
        (GPU, DeviceName(uuid=GPU), ""),
        (f"GPU-{UUID.upper()}", DeviceName(uuid=GPU), ""),
        (f"{GPU}::3", DeviceName(uuid=GPU), "3"),
        (MIG, DeviceName(mig_uuid=MIG), ""),
        (f"{MIG}::7", DeviceName(mig_uuid=MIG), "7"),
        (f"MIG-{GPU}/7/0", DeviceName(uuid=GPU, gpu_instance=7), ""),
        (f"MIG-{GPU}/13/1::2", DeviceName(uuid=GPU, gpu_instance=13), "2"),
        ("nvidia0", DeviceName(minor=0), ""),
        ("nvidia12/gi3", DeviceName(minor=12, gpu_instance=3), ""),
        ("nvidia0/vgpu1", DeviceName(minor=0), "1"),
        ("nvidia0/gi3/vgpu11", DeviceName(minor=0, gpu_instance=3), "11"),
    ],
)
def test_the_ids_of_device_plugins(device: str, expected: DeviceName, replica: str) -> None:
    """NVIDIA's plugin with and without MIG and sharing, and that of GKE."""
    assert named(_plugin(device)) == (expected, replica)


@pytest.mark.parametrize(
    "device",
    [
        "",
        "0",
        "nvidia",
        "nvidiactl",
        "nvidia0/gi",
        "nvidia0/vgpu",
        "nvidia99999999",
        "GPU-1234",
        f"{GPU}-0",
        f"MIG-{GPU}",
        f"MIG-{GPU}/7",
        f"x{GPU}",
        "tegra",
    ],
)
def test_other_ids_name_no_gpu(device: str) -> None:
    """Among them HAMi's, which look alike and are not the GPU that a container gets."""
    assert named(_plugin(device)) is None


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (_claimed("gpu-0"), DeviceName(minor=0)),
        (_claimed("gpu-11", f"k8s.gpu.nvidia.com/claim={UUID}-gpu-11"), DeviceName(minor=11)),
        (_claimed(f"gpu-{UUID}"), DeviceName(uuid=GPU)),
        (_claimed("gpu-3", f"nvidia.com/gpu={GPU}"), DeviceName(uuid=GPU)),
        (_claimed("any", "other.com/x=y", f"nvidia.com/gpu={MIG}"), DeviceName(mig_uuid=MIG)),
        (_claimed("gpu-2-mig-1g10gb-19-4"), DeviceName(minor=2, profile="1g10gb")),
        (_claimed("gpu-2-mig-1g10gb-me-20-0"), DeviceName(minor=2, profile="1g10gb-me")),
        (_claimed("gpu-2-mig-19-4-1"), DeviceName(minor=2, profile="")),
    ],
)
def test_the_devices_of_claims(held: Held, expected: DeviceName) -> None:
    """By UUID where a name has one, else by what NVIDIA's driver calls its devices."""
    assert named(held) == (expected, "")


def test_a_claims_share_is_its_replica() -> None:
    """Several claims may each have a part of one device."""
    assert named(_claimed("gpu-0", share="a1")) == (DeviceName(minor=0), "a1")


@pytest.mark.parametrize("device", ["", "gpu-", "gpu-x", f"gpu-{UUID}1", "channel-0"])
def test_other_devices_of_claims_are_not_known(device: str) -> None:
    assert named(_claimed(device)) is None
    assert not is_elsewhere(_claimed(device))


def test_a_gpu_of_a_virtual_machine_is_elsewhere() -> None:
    """Handed through, it has left the driver of this node."""
    assert is_elsewhere(_claimed("gpu-vfio-0"))
    assert not is_elsewhere(_plugin("gpu-vfio-0"))


@given(st.text(max_size=60), st.text(max_size=60), st.booleans())
def test_any_id_is_known_or_not(device: str, cdi: str, claimed: bool) -> None:
    """Nothing is raised, whatever a plugin calls its devices."""
    found = named(_claimed(device, cdi) if claimed else _plugin(device))
    assert found is None or found.device != DeviceName()


def test_which_resources_are_gpus() -> None:
    """NVIDIA's, and those that the user names; of other vendors none."""
    is_gpu = gpu_resources(("example.com/a100",))
    wanted = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb")
    assert all(map(is_gpu, (*wanted, "example.com/a100")))
    assert not any(map(is_gpu, ("amd.com/gpu", "nvidia.com/gpu.x", "", "example.com/a")))
