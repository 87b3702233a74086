# SPDX-License-Identifier: Apache-2.0
"""The messages of the kubelet's APIs, as protobuf's own library makes them from the files here."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

HERE = Path(__file__).parent


def _compiled(*names: str) -> descriptor_pool.DescriptorPool:
    with tempfile.NamedTemporaryFile() as out:
        arguments = ["protoc", f"-I{HERE}", f"--descriptor_set_out={out.name}"]
        assert protoc.main([*arguments, *(str(HERE / name) for name in names)]) == 0
        files = descriptor_pb2.FileDescriptorSet.FromString(Path(out.name).read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool


_POOL = _compiled("pod_resources.proto", "pods.proto")


def message(name: str) -> Any:
    """The class of a message, such as v1.PodResources."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(name))


Message = Any
ListPodResources: Any = message("v1.ListPodResourcesResponse")
PodResources: Any = message("v1.PodResources")
ContainerResources: Any = message("v1.ContainerResources")
ContainerDevices: Any = message("v1.ContainerDevices")
DynamicResource: Any = message("v1.DynamicResource")
ClaimResource: Any = message("v1.ClaimResource")
CDIDevice: Any = message("v1.CDIDevice")
ListPods: Any = message("v1alpha1.ListPodsResponse")
PodMessage: Any = message("v1alpha1.Pod")


def container(
    name: str, *ids: str, resource: str = "nvidia.com/gpu", claims: Sequence[Message] = ()
) -> Message:
    """A container with these devices; each has a message of its own, as the kubelet sends them."""
    return ContainerResources(
        name=name,
        devices=[
            ContainerDevices(
                resource_name=resource, device_ids=[each], topology={"nodes": [{"ID": 1}]}
            )
            for each in ids
        ],
        cpu_ids=[1, 200, 3],
        memory=[{"memory_type": "hugepages-2Mi", "size": 1 << 40}],
        dynamic_resources=claims,
    )


def claim(
    name: str,
    *devices: str,
    cdi: Iterable[str] = (),
    driver: str = "gpu.nvidia.com",
    share: str | None = None,
) -> Message:
    """A resource claim with these devices."""
    return DynamicResource(
        claim_name=name,
        claim_namespace="team-a",
        claim_resources=[
            ClaimResource(
                cdi_devices=[CDIDevice(name=each) for each in cdi],
                driver_name=driver,
                pool_name="node-7",
                device_name=device,
                share_id=share,
            )
            for device in devices
        ],
    )


def pod(namespace: str, name: str, *containers: Message) -> Message:
    """A pod of the pod resources API."""
    return PodResources(name=name, namespace=namespace, containers=containers)


def pod_resources(*pods: Message) -> Message:
    """The answer of List."""
    return ListPodResources(pod_resources=pods)


def described(
    namespace: str,
    name: str,
    uid: str,
    *,
    phase: str = "Running",
    labels: Mapping[str, str] | None = None,
    **containers: str,
) -> Message:
    """A pod of the pods API: its containers' ids by their names."""
    return PodMessage(
        metadata={
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "generation": 3,
            "labels": labels or {},
            "annotations": {"team": "not a label"},
        },
        spec={"restartPolicy": "Never", "unread": 1.5, "unread_too": 7},
        status={
            "phase": phase,
            "message": "ok",
            "containerStatuses": [
                {"name": each, "ready": True, "image": "x", "containerID": container_id}
                for each, container_id in containers.items()
            ],
        },
    )


def pods(*each: Message) -> Message:
    """The answer of ListPods."""
    return ListPods(pods=[one.SerializeToString() for one in each])
