# SPDX-License-Identifier: Apache-2.0
"""The daemon beside a kubelet: whose pod is on which GPU, and what nobody opened."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeDriver, StartDaemon
from tests.e2e.containers import (
    PORT,
    Engine,
    address,
    exporter,
    fetch,
)
from tests.e2e.daemons import Page
from tests.sources.workload.kubernetes.kubelet import LIST, LIST_PODS, FakeKubelet
from tests.sources.workload.kubernetes.messages import (
    container,
    described,
    pod,
    pod_resources,
    pods,
)
from tests.waiting import wait_until

UUIDS = [f"GPU-0000000{n}-1111-2222-3333-444444444444" for n in range(4)]
MIGS = [f"MIG-0000000{n}-5555-6666-7777-888888888888" for n in range(2)]
TRAIN_UID = "5d3b7a3e-7b2c-4f55-9f0a-aaaaaaaaaaaa"
MIG_UID = "5d3b7a3e-7b2c-4f55-9f0a-bbbbbbbbbbbb"
IDS = ["0123456789abcdef" * 4, "fedcba9876543210" * 4]
TRAIN_PID, MIG_PID = 4711, 4712

DEVICES = [
    {"uuid": UUIDS[0], "utilization": 50, "processes": [{"pid": TRAIN_PID, "bytes": 1 << 30}]},
    {"uuid": UUIDS[1]},
    {"uuid": UUIDS[2]},
    {
        "uuid": UUIDS[3],
        "product": "a100-sxm4-80gb",
        "processes": [{"pid": MIG_PID, "bytes": 1 << 30, "gi": 7, "ci": 0}],
        "mig": {
            "instances": [
                {"gi": 7, "ci": 0, "profile": "1g.10gb", "uuid": MIGS[0]},
                {"gi": 9, "ci": 0, "profile": "1g.10gb", "uuid": MIGS[1]},
            ]
        },
    },
]
GIVEN = pod_resources(
    pod("team-a", "train-0", container("main", UUIDS[0])),
    pod("team-a", "forgotten-0", container("shell", UUIDS[1])),
    pod("team-b", "serve-0", container("vllm", MIGS[0], resource="nvidia.com/mig-1g.10gb")),
    pod("kube-system", "dns-0", container("dns")),
)
LISTED = pods(
    described("team-a", "train-0", TRAIN_UID, labels={"team": "a"}, main=f"containerd://{IDS[0]}"),
    described("team-b", "serve-0", MIG_UID, labels={"team": "b"}, vllm=f"containerd://{IDS[1]}"),
    described("kube-system", "dns-0", "uid-3", labels={"team": "ops"}),
)


@pytest.fixture
def kubelet() -> Iterator[tuple[FakeKubelet, FakeKubelet]]:
    """Both sockets of one."""
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        both = (
            FakeKubelet(Path(folder) / "pod-resources" / "kubelet.sock", LIST, GIVEN),
            FakeKubelet(Path(folder) / "pods-api" / "pods-api.sock", LIST_PODS, LISTED),
        )
        for each in both:
            each.start()
        yield both
        for each in both:
            each.stop()


def _procfs(folder: Path) -> Path:
    """The host's /proc with the processes of two pods, as systemd and containerd group them."""
    for pid, uid, container_id in ((TRAIN_PID, TRAIN_UID, IDS[0]), (MIG_PID, MIG_UID, IDS[1])):
        process = folder / str(pid)
        process.mkdir(parents=True)
        (process / "comm").write_text("python3\n")
        slice_name = f"kubepods-burstable-pod{uid.replace('-', '_')}.slice"
        group = f"kubepods-burstable.slice/{slice_name}/cri-containerd-{container_id}.scope"
        (process / "cgroup").write_text(f"0::/kubepods.slice/{group}\n")
    return folder


def _workloads(page: Page) -> dict[tuple[str, str], list[tuple[str, str, str, str]]]:
    """Namespace, pod, container and UID by GPU and instance."""
    found: dict[tuple[str, str], list[tuple[str, str, str, str]]] = {}
    for labels, _ in page.rows("gpu_workload_info"):
        assert labels["scheduler"] == "kubernetes"
        found.setdefault((labels["gpu"], labels.get("gpu_instance", "")), []).append(
            (
                labels["workload_namespace"],
                labels["workload_pod"],
                labels["workload_container"],
                labels["workload_id"],
            )
        )
    return found


WORKLOADS = {
    ("0", ""): [("team-a", "train-0", "main", TRAIN_UID)],
    ("1", ""): [("team-a", "forgotten-0", "shell", "")],
    ("3", "7"): [("team-b", "serve-0", "vllm", MIG_UID)],
}
ALLOCATED = {("0", ""): 1, ("1", ""): 1, ("2", ""): 0, ("3", "7"): 1, ("3", "9"): 0}


def _allocated(page: Page) -> dict[tuple[str, str], float]:
    return {
        (labels["gpu"], labels.get("gpu_instance", "")): value
        for labels, value in page.rows("gpu_allocated")
    }


def test_every_gpu_has_its_pod_also_while_the_kubelet_is_gone(
    make_driver: MakeDriver,
    start: StartDaemon,
    kubelet: tuple[FakeKubelet, FakeKubelet],
    tmp_path: Path,
) -> None:
    """It distinguishes used, forgotten and free GPUs, each MIG instance by itself; what the kubelet
    said last stays, and grows old."""
    resources, listed = kubelet
    daemon = start(
        make_driver({"devices": DEVICES}),
        f"--kubernetes.socket={resources.path}",
        f"--kubernetes.pods-socket={listed.path}",
        "--kubernetes.pod-labels=team",
        f"--path.procfs={_procfs(tmp_path / 'proc')}",
    )
    page = daemon.page_when(
        lambda page: len(_allocated(page)) == len(ALLOCATED), "every GPU and the kubelet were read"
    )

    assert _workloads(page) == WORKLOADS
    assert _allocated(page) == ALLOCATED
    assert {
        (labels["workload_pod"], labels["value"])
        for labels, _ in page.rows("gpu_workload_label_info")
    } == {("train-0", "a"), ("serve-0", "b")}
    held = {labels["gpu"]: value for labels, value in page.rows("gpu_held") if labels["gpu"] != "3"}
    assert held == {"0": 1, "1": 0, "2": 0}

    resources.stop()
    listed.stop()
    page = daemon.page_when(
        lambda page: page.get("roofline_exporter_source_up", source="kubernetes") == 0,
        "the kubelet is missed",
    )

    assert _workloads(page) == WORKLOADS
    assert _allocated(page) == ALLOCATED
    age = page.value("roofline_exporter_source_age_seconds", source="kubernetes")
    unopened = "gpu_allocated_unopened_seconds_total"
    before = page.value(unopened, gpu="1")
    assert before > 0

    def grown(page: Page) -> bool:
        older = page.value("roofline_exporter_source_age_seconds", source="kubernetes") > age
        return older and page.value(unopened, gpu="1") > before

    page = daemon.page_when(grown, "the last word grows old", 10)
    assert page.value(unopened, gpu="0") == page.value(unopened, gpu="2") == 0
    (line,) = [line for line in daemon.lines() if "source kubernetes" in line]
    assert "its last word stays" in line


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """The image of this checkout."""
    engine = Engine()
    yield engine.build()
    engine.client.close()


@pytest.mark.slow
def test_the_image_asks_the_kubelet_as_the_owner_of_its_socket(
    image: str, kubelet: tuple[FakeKubelet, FakeKubelet], make_driver: MakeDriver
) -> None:
    """Without a capability, on folders that it may only read; also after the kubelet's restart,
    which makes the socket anew."""
    driver = make_driver({"devices": DEVICES})
    box = exporter(image, user=f"{os.getuid()}:{os.getgid()}", driver=driver)
    for each in kubelet:
        folder = each.path.parent
        folder.chmod(0o750)
        box.with_volume_mapping(folder, f"/var/lib/kubelet/{folder.name}", "ro")
    with box:
        url = address(box, PORT)

        def page() -> Page:
            """What it serves; an empty page while it does not answer."""
            return Page((fetch(f"{url}/metrics") or b"").decode())

        wait_until(lambda: _allocated(page()) == ALLOCATED, 30, "every GPU was read")
        resources, _ = kubelet
        resources.stop()
        resources.path.unlink(missing_ok=True)
        resources.answer = pod_resources(pod("team-c", "next-0", container("main", UUIDS[0])))
        resources.start()
        given = [("team-c", "next-0", "main", "")]
        wait_until(
            lambda: _workloads(page()).get(("0", "")) == given, 30, "the new kubelet was read"
        )
        source_up = page().value("roofline_exporter_source_up", source="kubernetes")
        assert source_up == 1
