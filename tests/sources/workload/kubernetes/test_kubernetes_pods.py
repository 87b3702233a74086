# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import re
import socket
import sys
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from exporter.model.workload import Allocation, DeviceName, Workload, WorkloadReport
from exporter.sources.interface import WorkloadOptions
from exporter.sources.poller import Busy, PolledSource, Unreadable
from exporter.sources.workload.kubernetes.kubernetes_pods import Kubelet, own_pod, prepare
from tests.clocks import ManualClock
from tests.sources.workload.kubernetes.conftest import StartKubelet
from tests.sources.workload.kubernetes.kubelet import LIST_PODS, FakeKubelet, Refused
from tests.sources.workload.kubernetes.messages import (
    claim,
    container,
    described,
    pod,
    pod_resources,
    pods,
)

GPU = "GPU-11111111-2222-3333-4444-555555555555"
UID = "5d3b7a3e-7b2c-4f55-9f0a-aaaaaaaaaaaa"
ID = "0123456789abcdef" * 4

TRAIN = pod_resources(
    pod("team-a", "train-0", container("main", GPU)), pod("kube-system", "dns", container("dns"))
)


def _options(kubelet: FakeKubelet, pods_kubelet: FakeKubelet | None = None) -> WorkloadOptions:
    return WorkloadOptions(
        kubernetes_socket=str(kubelet.path),
        kubernetes_pods_socket=str(kubelet.path.parent / "pods.sock")
        if pods_kubelet is None
        else str(pods_kubelet.path),
    )


def _read(kubelet: Kubelet) -> WorkloadReport:
    report = kubelet.read()
    assert report is not None
    return report


def _allocation(uid: str = "", name: str = "train-0") -> Allocation:
    workload = Workload("kubernetes", "team-a", name, "main", id=uid)
    return Allocation(DeviceName(uuid=GPU), workload)


def test_a_node_without_a_kubelet_has_none(tmp_path: Path) -> None:
    """Neither where the folder is missing, nor where a file stands in its place."""
    (tmp_path / "file").touch()
    for path in (tmp_path / "none" / "kubelet.sock", tmp_path / "file" / "kubelet.sock"):
        assert Kubelet(WorkloadOptions(kubernetes_socket=str(path)), {}).read() is None


def test_what_cannot_be_looked_for_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    options = WorkloadOptions(kubernetes_socket=str(tmp_path / "loop" / "kubelet.sock"))

    with pytest.raises(Unreadable, match="Too many levels of symbolic links"):
        Kubelet(options, {}).read()


def test_without_the_pods_api_pods_have_only_their_names(start_kubelet: StartKubelet) -> None:
    """All that is given away is known; what is not listed is free."""
    report = _read(Kubelet(_options(start_kubelet(TRAIN)), {}))
    assert report.allocations == (_allocation(),)
    assert report.allocates
    assert report.named == {}
    assert report.pod_labels == {}


def test_resources_that_the_user_names_are_gpus_too(start_kubelet: StartKubelet) -> None:
    own = pod("team-a", "own", container("m", "nvidia3/gi2", resource="example.com/gpu"))
    options = _options(start_kubelet(pod_resources(own)))
    for resources, devices in (
        ((), []),
        (("example.com/gpu",), [DeviceName(minor=3, gpu_instance=2)]),
    ):
        report = _read(Kubelet(replace(options, kubernetes_resources=resources), {}))
        assert [each.device for each in report.allocations] == devices


def test_the_pods_api_completes_it(start_kubelet: StartKubelet) -> None:
    """UID and labels of the pod, and which process is in which container."""
    listed = pods(
        described("team-a", "train-0", UID, labels={"team": "a", "x": "y"}, main=f"crio://{ID}"),
        described("kube-system", "dns", "uid-2"),
    )
    kubelet, other = start_kubelet(TRAIN), start_kubelet(listed, LIST_PODS)
    options = replace(_options(kubelet, other), kubernetes_pod_labels=re.compile("team"))

    report = _read(Kubelet(options, {}))
    assert report.allocations == (_allocation(UID),)
    assert report.named == {
        UID: Workload("kubernetes", "team-a", "train-0", id=UID),
        ID: Workload("kubernetes", "team-a", "train-0", "main", id=UID),
        "uid-2": Workload("kubernetes", "kube-system", "dns", id="uid-2"),
    }
    assert report.pod_labels == {"team-a/train-0": {"team": "a"}}


def test_a_pod_that_has_ended_has_no_gpu(start_kubelet: StartKubelet) -> None:
    """Unless one of the same name goes on, as in a StatefulSet."""
    kubelet = start_kubelet(TRAIN)
    other = start_kubelet(pods(described("team-a", "train-0", UID, phase="Failed")), LIST_PODS)
    asked = Kubelet(_options(kubelet, other), {})
    report = _read(asked)
    assert report.allocations == ()

    old, new = described("team-a", "train-0", UID, phase="Failed"), "uid-2"
    for both in (
        [old, described("team-a", "train-0", new)],
        [described("team-a", "train-0", new), old],
    ):
        other.answer = pods(*both)
        report = _read(asked)
        assert report.allocations == (_allocation(new),)


def test_a_pods_api_that_fails_harms_nothing_else(
    start_kubelet: StartKubelet, caplog: pytest.LogCaptureFixture
) -> None:
    """What is known of pods stays, except that they have ended; one line when that begins and one
    when it ends."""
    caplog.set_level(logging.INFO)
    ended = described("team-a", "train-0", UID, phase="Succeeded", main=f"containerd://{ID}")
    kubelet, other = start_kubelet(TRAIN), start_kubelet(pods(ended), LIST_PODS)
    asked = Kubelet(_options(kubelet, other), {})
    first = asked.read()
    other.answer = Refused(grpc.StatusCode.FAILED_PRECONDITION, "not ready")
    for answer in (other.answer, b"\x0a\x05no", b"\x08"):
        other.answer = answer
        report = _read(asked)
        assert first is not None
        assert report.named == first.named != {}
        assert report.allocations == (_allocation(UID),)
    other.answer = pods(ended)
    last = asked.read()

    assert last is not None
    assert last.allocations == ()
    assert caplog.messages == [
        "source kubernetes: the pods API cannot be read: "
        f"{other.path} says FAILED_PRECONDITION: not ready",
        "source kubernetes: the pods API can be read again",
    ]


def test_what_is_known_of_pods_stays_without_their_api(start_kubelet: StartKubelet) -> None:
    """While the kubelet makes its socket anew."""
    kubelet = start_kubelet(TRAIN)
    other = start_kubelet(pods(described("team-a", "train-0", UID)), LIST_PODS)
    asked = Kubelet(_options(kubelet, other), {})
    first = asked.read()
    other.stop()
    other.path.unlink(missing_ok=True)

    assert asked.read() == first


def test_a_kubelet_that_limits_the_rate_is_busy(start_kubelet: StartKubelet) -> None:
    kubelet = start_kubelet(Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected"))

    with pytest.raises(Busy, match="RESOURCE_EXHAUSTED: rejected"):
        Kubelet(_options(kubelet), {}).read()


@pytest.mark.parametrize("answer", [b"\x0a\x05no", b"no message", b"\x08\x01\x0a\x02\x1a\x7f"])
def test_an_answer_that_is_none_is_unreadable(start_kubelet: StartKubelet, answer: bytes) -> None:
    with pytest.raises(Unreadable, match="answer of List cannot be read"):
        Kubelet(_options(start_kubelet(answer)), {}).read()


def test_a_gpu_that_cannot_be_named_leaves_open_which_are_free(
    start_kubelet: StartKubelet, caplog: pytest.LogCaptureFixture
) -> None:
    """What is named stays; one line, until others come."""
    odd = container("odd", *(f"{GPU}-{n}" for n in range(5)))
    kubelet = start_kubelet(pod_resources(pod("team-a", "train-0", container("main", GPU), odd)))
    asked = Kubelet(_options(kubelet), {})
    for _ in range(2):
        report = _read(asked)
        assert report.allocations == (_allocation(),)
        assert not report.allocates

    (line,) = caplog.messages
    assert "not known which GPUs 5 devices are" in line
    assert line.endswith(f"'{GPU}-2', …")
    kubelet.answer = TRAIN
    report = _read(asked)
    assert report.allocates


def test_our_own_pod_and_those_that_only_watch_have_no_gpu(start_kubelet: StartKubelet) -> None:
    """As with a claim of admin access to all devices."""
    kubelet = start_kubelet(
        pod_resources(
            pod("monitoring", "roofline-x", container("m", claims=[claim("all", "gpu-0")])),
            pod("gpu-operator", "dcgm-y", container("m", claims=[claim("all", "gpu-0")])),
            pod("team-a", "train-0", container("main", GPU)),
        )
    )
    options = replace(_options(kubelet), kubernetes_ignore_pods=re.compile("gpu-operator/dcgm-.*"))
    environment = {
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "POD_NAME": "roofline-x",
        "POD_NAMESPACE": "monitoring",
    }

    report = _read(Kubelet(options, environment))
    assert report.allocations == (_allocation(),)


def test_our_own_pod_is_named_as_its_host_unless_the_manifest_says_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The name of a DaemonSet's pod has a random end; outside a pod there is none."""
    monkeypatch.setattr(socket, "gethostname", lambda: "roofline-exporter-abcde")
    assert own_pod({"POD_NAME": "x"}) is None
    pattern = own_pod({"KUBERNETES_SERVICE_HOST": "10.96.0.1"})
    assert pattern is not None
    assert pattern.fullmatch("any/roofline-exporter-abcde")
    assert not pattern.fullmatch("any/other")
    named = own_pod({"KUBERNETES_SERVICE_HOST": "10.96.0.1", "POD_NAME": "roofline.x"})
    assert named is not None
    assert not named.fullmatch("any/roofline-x")


def test_a_later_pod_that_has_ended_takes_nothing_away(start_kubelet: StartKubelet) -> None:
    """It failed at once; the earlier one has its GPU still."""
    kubelet = start_kubelet(TRAIN)
    listed = [described("team-a", "train-0", UID)]
    other = start_kubelet(pods(*listed), LIST_PODS)
    asked = Kubelet(_options(kubelet, other), {})
    asked.read()
    kubelet.answer = pod_resources(
        pod("team-a", "train-0", container("main", GPU)),
        pod("team-a", "train-1", container("main", GPU)),
    )
    other.answer = pods(*listed, described("team-a", "train-1", "uid-1", phase="Failed"))

    report = _read(asked)
    assert report.allocations == (_allocation(UID),)


def test_without_its_package_the_source_is_down_and_says_what_to_install(
    start_kubelet: StartKubelet,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "h2", None)
    monkeypatch.setitem(sys.modules, "h2.exceptions", None)
    source = prepare(_options(start_kubelet(TRAIN)), ManualClock())
    assert isinstance(source, PolledSource)
    for _ in range(3):
        source.read_once()

    assert source.state is not None
    assert not source.state.up
    assert caplog.messages == [
        "source kubernetes: the package h2 is not installed: "
        "pip install 'roofline-exporter[kubernetes]'"
    ]
