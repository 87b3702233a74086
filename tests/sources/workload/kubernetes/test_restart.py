# SPDX-License-Identifier: Apache-2.0
"""A kubelet that has just started answers without its pods: what still runs is not forgotten."""

from __future__ import annotations

import pytest

from exporter.model.reading import Board, Device, Process, Reading, ShareReading, SlotReport, Vitals
from exporter.model.workload import Membership, ShareWork, Workload
from exporter.publisher.workloads import NodeWork
from exporter.sources.interface import WorkloadOptions
from exporter.sources.poller import PolledSource
from exporter.sources.workload.kubernetes.kubernetes_pods import Kubelet
from tests.clocks import ManualClock
from tests.sources.workload.kubernetes.conftest import StartKubelet
from tests.sources.workload.kubernetes.kubelet import LIST_PODS, FakeKubelet
from tests.sources.workload.kubernetes.messages import (
    Message,
    container,
    described,
    pod,
    pod_resources,
    pods,
)

GPUS = tuple(f"GPU-{number}1111111-2222-3333-4444-555555555555" for number in range(3))
UID, OTHER_UID = (f"5d3b7a3e-7b2c-4f55-9f0a-{digit * 12}" for digit in "ab")
ID = "0123456789abcdef" * 4
NOBODY = pod_resources()
TRAIN = pod("team-a", "train-0", container("main", GPUS[0], GPUS[1]))
OTHER = pod("team-b", "eval", container("main", GPUS[2]))


def _in(uid: str, pid: int = 7) -> Process:
    return Process(pid, "compute", membership=Membership(uid, ID))


class Node:
    """Three GPUs, whose pods a real gRPC server tells; with the pods API where it has one."""

    def __init__(self, listing: FakeKubelet, pods_api: FakeKubelet | None) -> None:
        self.listing, self.pods_api = listing, pods_api
        options = WorkloadOptions(
            kubernetes_socket=str(listing.path),
            kubernetes_pods_socket="/nowhere" if pods_api is None else str(pods_api.path),
        )
        environment = {
            "KUBERNETES_SERVICE_HOST": "10.0.0.1",
            "POD_NAME": "exporter-x",
            "POD_NAMESPACE": "monitoring",
        }
        kubelet = Kubelet(options, environment)
        self.source = PolledSource("kubernetes", kubelet.read, ManualClock())
        self._work = NodeWork([self.source])

    def take(self, **processes: Process) -> list[ShareWork]:
        """Ask once, list processes by g0, g1 and g2, and return whose work is on each GPU."""
        self.source.read_once()
        assert self.source.report() is not None
        devices = [Device(number, uuid, "H100") for number, uuid in enumerate(GPUS)]
        readings = [
            Reading(device, 1.0, 1.0, Vitals(), Board(), (ShareReading(processes=listed),))
            for device in devices
            for listed in [tuple(filter(None, [processes.get(f"g{device.index}")]))]
        ]
        self._work.take(
            [SlotReport(each.device.index, each.device, each, None, {}) for each in readings],
            owners=True,
        )
        return [self._work.of(uuid, None) for uuid in GPUS]

    def answers(self, listed: Message, described_pods: Message | None = None) -> None:
        self.listing.answer = listed
        if self.pods_api is not None:
            self.pods_api.answer = pods() if described_pods is None else described_pods


@pytest.fixture(params=[False, True], ids=["List alone", "with the pods API"])
def node(request: pytest.FixtureRequest, start_kubelet: StartKubelet) -> Node:
    api = start_kubelet(pods(), LIST_PODS) if request.param else None
    return Node(start_kubelet(NOBODY), api)


DESCRIBED = pods(described("team-a", "train-0", UID, main=f"containerd://{ID}"))


def _names(work: ShareWork) -> list[tuple[str, str, str]]:
    return [(each.namespace, each.pod, each.container) for each in work.workloads]


def test_what_still_runs_stays_named_and_allocated(node: Node) -> None:
    """On all GPUs of its pod; of the others it is not known whether they are free."""
    node.answers(pod_resources(TRAIN), DESCRIBED)
    before = node.take(g0=_in(UID))
    assert [each.allocated for each in before] == [True, True, False]
    assert _names(before[0]) == _names(before[1]) == [("team-a", "train-0", "main")]

    node.answers(NOBODY)
    for _ in range(3):
        after = node.take(g0=_in(UID))
        assert after[:2] == before[:2]
        assert after[2] == ShareWork()

    node.answers(pod_resources(TRAIN), DESCRIBED)
    assert node.take(g0=_in(UID)) == before


def test_a_process_that_ends_meanwhile_frees_its_gpus(node: Node) -> None:
    """At the next list of processes, not when the kubelet has its pods again."""
    node.answers(pod_resources(TRAIN), DESCRIBED)
    node.take(g0=_in(UID))
    node.answers(NOBODY)
    node.take(g0=_in(UID))

    assert node.take() == [ShareWork((), False)] * 3
    # Somebody else's process does not bring it back.
    other = node.take(g0=_in(OTHER_UID))
    assert other[0].workloads == (Workload("kubernetes", id=OTHER_UID),)
    assert [each.allocated for each in other] == [False] * 3


def test_a_pod_that_has_ended_leaves_with_its_process(node: Node) -> None:
    """The kubelet lists others: what it lists is whole, but for what still runs."""
    node.answers(pod_resources(TRAIN, OTHER), DESCRIBED)
    node.take(g0=_in(UID))
    node.answers(pod_resources(OTHER))
    for listed, allocated in ({"g0": _in(UID)}, [True, True, True]), ({}, [False, False, True]):
        work = node.take(**listed)
        assert [each.allocated for each in work] == allocated


def test_a_pod_that_was_replaced_is_the_new_one(node: Node) -> None:
    """Of a StatefulSet, with the same name and another UID, on another GPU."""
    node.answers(pod_resources(TRAIN), DESCRIBED)
    node.take(g0=_in(UID))
    node.answers(NOBODY)
    node.take(g0=_in(UID))
    new = pod("team-a", "train-0", container("main", GPUS[2]))
    node.answers(pod_resources(new), pods(described("team-a", "train-0", OTHER_UID)))

    work = node.take(g2=_in(OTHER_UID, 8))

    assert [each.allocated for each in work] == [False, False, True]
    assert [_names(each) for each in work] == [[], [], [("team-a", "train-0", "main")]]
    assert node.take()[0] == ShareWork((), False)


def test_a_kubelet_that_does_not_list_this_pod_does_not_know_its_pods(node: Node) -> None:
    """Processes are not needed: most clusters do not let the exporter see them."""
    own = pod("monitoring", "exporter-x", container("exporter"))
    node.answers(pod_resources(own, TRAIN), DESCRIBED)
    before = node.take()
    assert [each.allocated for each in before] == [True, True, False]

    node.answers(NOBODY)
    assert node.take() == before
    state = node.source.state
    assert state is not None
    assert (state.up, state.failures_total) == (False, 1)

    node.answers(pod_resources(own))
    assert [each.allocated for each in node.take()] == [False] * 3
    state = node.source.state
    assert state is not None
    assert state.up
