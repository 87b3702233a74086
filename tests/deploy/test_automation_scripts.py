# SPDX-License-Identifier: Apache-2.0
"""The scripts of deploy/automation leave alone what is unknown, and stop nothing without notice."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import trustme
import yaml

from tests.cli.stub import Stub
from tests.deploy.automation import FOLDER, queries
from tests.programs import ended, said, write_script
from tests.serving import serving

Object = dict[str, Any]
HOURS = 3600.0
APPS = "/apis/apps/v1/namespaces/team-a"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads"
DEPLOYMENT = f"{APPS}/deployments/notebook"
EVENTS = "/api/v1/namespaces/team-a/events"
OPTED_OUT = {"gpu-idle-reclaim": "off"}


def _ago(hours: float) -> str:
    return (datetime.now(timezone.utc) - timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Server(Stub):
    """Answers with JSON by path, and keeps what it was asked; what it has not is 404."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[str, Any] = {}
        self.requests: list[tuple[str, str, Any]] = []
        self.queries: list[str] = []

    def answer(self, request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        length = int(request.headers.get("Content-Length") or 0)
        body = json.loads(request.rfile.read(length)) if length else None
        url = urlsplit(request.path)
        self.requests.append((request.command, url.path, body))
        self.queries += parse_qs(url.query).get("query", [])
        found = {} if request.command != "GET" else self.answers.get(request.path)
        found = self.answers.get(url.path) if found is None else found
        return (404 if found is None else 200), json.dumps(found).encode()

    @property
    def changes(self) -> list[tuple[str, str, Any]]:
        """What was asked that changes something."""
        return [each for each in self.requests if each[0] != "GET"]

    def idle(self, *series: tuple[Mapping[str, str], float]) -> None:
        """Let Prometheus know of these idle pods, and of no others."""
        result = [{"metric": metric, "value": [0, str(seconds)]} for metric, seconds in series]
        self.answers["/api/v1/query"] = {"status": "success", "data": {"result": result}}


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    with serving(found):
        yield found


class Cluster:
    """A namespace with a Deployment of notebooks, as the API server and Prometheus show it."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.folder = server, folder
        trustme.CA().cert_pem.write_to_path(folder / "ca.crt")
        (folder / "token").write_text("secret")
        self.deployment = self.object("notebook", DEPLOYMENT, replicas=1)
        owner = self.object("notebook-6d4", f"{APPS}/replicasets/notebook-6d4", replicas=1)
        owner["metadata"]["ownerReferences"] = [self.reference("Deployment", "notebook")]
        self.pod("notebook-6d4-1", "ReplicaSet", "notebook-6d4")

    def object(self, name: str, path: str, **spec: Any) -> Object:
        """Add an object."""
        metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "7", "labels": {}}
        found: Object = {"metadata": metadata | {"annotations": {}}, "spec": spec, "status": {}}
        self.server.answers[path] = found
        return found

    @staticmethod
    def reference(kind: str, name: str) -> Object:
        return {"kind": kind, "name": name, "controller": True}

    def pod(self, name: str, kind: str = "", owner: str = "", began: float = 9.0) -> Object:
        """Add a pod that began some hours ago."""
        found = self.object(name, f"/api/v1/namespaces/team-a/pods/{name}")
        found["metadata"]["ownerReferences"] = [self.reference(kind, owner)] if kind else []
        found["status"]["startTime"] = _ago(began)
        return found

    def idle(self, *pods: str, hours: float = 3.0) -> None:
        self.server.idle(*(({"namespace": "team-a", "pod": pod}, hours * HOURS) for pod in pods))

    def notified(self, found: Object, hours_ago: float) -> None:
        found["metadata"]["annotations"]["gpu-idle-reclaim/notified"] = _ago(hours_ago)

    def run(self, code: int = 0) -> list[tuple[str, str, Any]]:
        """Run the script once, and return what it changed."""
        settings = {"PROMETHEUS": self.server.url, "KUBERNETES": self.server.url}
        more = {"ACCOUNT": str(self.folder), "NAMESPACE": "team-a"}
        script = FOLDER / "reclaim" / "reclaim.py"
        done = ended(sys.executable, script, env={**os.environ, **settings, **more})
        assert done.returncode == code, done.stderr
        return self.server.changes


@pytest.fixture
def cluster(server: Server, tmp_path: Path) -> Cluster:
    return Cluster(server, tmp_path)


POD = "notebook-6d4-1"


def test_it_asks_what_the_page_says(cluster: Cluster) -> None:
    """The query whose situations are tested is the one that it asks."""
    cluster.idle()
    cluster.run()
    assert cluster.server.queries == [queries()["reclaim"].replace("\n", " ")]


@pytest.mark.parametrize("answer", [None, {"status": "error", "error": "timeout"}, {}])
def test_a_prometheus_that_fails_stops_nothing(cluster: Cluster, answer: Object | None) -> None:
    """And the run fails, so that somebody sees it."""
    cluster.notified(cluster.deployment, 2.0)
    if answer is not None:
        cluster.server.answers["/api/v1/query"] = answer
    assert cluster.run(code=1) == []


def test_the_first_run_only_notifies(cluster: Cluster) -> None:
    """By an annotation and an event; the replicas stay."""
    cluster.idle(POD)
    (patch, event) = cluster.run()
    assert patch[:2] == ("PATCH", DEPLOYMENT)
    assert list(patch[2]) == ["metadata"]
    assert list(patch[2]["metadata"]["annotations"]) == ["gpu-idle-reclaim/notified"]
    assert event[:2] == ("POST", EVENTS)
    assert event[2]["reason"] == "GpuIdle"
    assert event[2]["involvedObject"]["name"] == "notebook"


def test_after_the_grace_it_scales_down(cluster: Cluster) -> None:
    """To 0, only if nobody changed the object since, and remembers the number."""
    cluster.notified(cluster.deployment, 1.5)
    cluster.idle(POD)
    (patch, event) = cluster.run()
    assert patch[:2] == ("PATCH", DEPLOYMENT)
    assert patch[2]["spec"] == {"replicas": 0}
    assert patch[2]["metadata"]["resourceVersion"] == "7"
    annotations = patch[2]["metadata"]["annotations"]
    assert annotations["gpu-idle-reclaim/replicas-before"] == "1"
    assert annotations["gpu-idle-reclaim/notified"] is None
    assert event[2]["reason"] == "GpuIdleReclaimed"


def test_work_after_the_notice_begins_the_grace_anew(cluster: Cluster) -> None:
    """Idle for three hours, notified five hours ago: it worked in between."""
    cluster.notified(cluster.deployment, 5.0)
    cluster.idle(POD, hours=3.0)
    (patch, event) = cluster.run()
    assert "spec" not in patch[2]
    assert event[2]["reason"] == "GpuIdle"


def _opted_out(cluster: Cluster, path: str) -> None:
    cluster.server.answers[path]["metadata"]["labels"] = OPTED_OUT


def _replicas(cluster: Cluster, spec: int, now: int) -> None:
    cluster.deployment["spec"]["replicas"] = spec
    cluster.deployment["status"]["replicas"] = now


LEFT_ALONE: Mapping[str, Callable[[Cluster], object]] = {
    "it is not known to be idle": lambda cluster: cluster.idle(),
    "its notice is young": lambda cluster: cluster.notified(cluster.deployment, 0.5),
    "its owner opted out": lambda cluster: _opted_out(cluster, DEPLOYMENT),
    "its pod opted out": lambda cluster: _opted_out(
        cluster, f"/api/v1/namespaces/team-a/pods/{POD}"
    ),
    # A StatefulSet's pod comes back under the name that Prometheus knows for hours.
    "its pod began lately": lambda cluster: cluster.pod(
        POD, "ReplicaSet", "notebook-6d4", began=1.0
    ),
    "another pod is not known": lambda cluster: _replicas(cluster, 2, 2),
    "another pod is to go": lambda cluster: _replicas(cluster, 1, 2),
    "another pod is to come": lambda cluster: _replicas(cluster, 2, 1),
    # It would scale it up again.
    "another controller owns it": lambda cluster: cluster.deployment["metadata"].update(
        ownerReferences=[cluster.reference("LeaderWorkerSet", "x")]
    ),
}


@pytest.mark.parametrize("why", LEFT_ALONE)
def test_what_is_left_alone(cluster: Cluster, why: str) -> None:
    """Although its pod was idle since its notice, an hour and a half ago; no notice is repeated."""
    cluster.notified(cluster.deployment, 1.5)
    cluster.idle(POD)
    LEFT_ALONE[why](cluster)
    assert cluster.run() == []


def test_all_pods_of_a_stateful_set(cluster: Cluster) -> None:
    """Two of two."""
    path = f"{APPS}/statefulsets/lab"
    lab = cluster.object("lab", path, replicas=2)
    cluster.notified(lab, 1.5)
    for name in ("lab-0", "lab-1"):
        cluster.pod(name, "StatefulSet", "lab")
    cluster.idle("lab-0", "lab-1")
    (patch, _) = cluster.run()
    assert (patch[1], patch[2]["spec"]) == (path, {"replicas": 0})


def test_bare_pods_and_other_jobs_are_left_alone(cluster: Cluster) -> None:
    """There is nothing to scale."""
    job = cluster.object("train", "/apis/batch/v1/namespaces/team-a/jobs/train")
    job["status"]["active"] = 1
    cluster.notified(job, 1.5)
    cluster.pod("train-x", "Job", "train")
    cluster.pod("bare")
    cluster.pod("ray-head", "RayCluster", "ray")
    cluster.idle("train-x", "bare", "ray-head")
    assert cluster.run() == []


def test_a_job_of_kueue_is_deactivated(cluster: Cluster) -> None:
    """Its Workload, after its own notice."""
    path = "/apis/batch/v1/namespaces/team-a/jobs/train"
    job = cluster.object("train", path)
    job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "team-a"
    job["status"]["active"] = 1
    cluster.pod("train-x", "Job", "train")
    chosen = "labelSelector=kueue.x-k8s.io%2Fjob-uid%3Duid-train"
    workload = {"metadata": {"name": "job-train-1a2b3"}}
    cluster.server.answers[f"{KUEUE}?{chosen}"] = {"items": [workload]}
    cluster.idle("train-x")
    (notice, _) = cluster.run()
    assert (notice[1], "spec" in notice[2]) == (path, False)

    cluster.notified(job, 1.5)
    cluster.server.requests.clear()
    (void, patch, _) = cluster.run()
    assert void[2]["metadata"]["annotations"] == {"gpu-idle-reclaim/notified": None}
    assert patch == ("PATCH", f"{KUEUE}/job-train-1a2b3", {"spec": {"active": False}})
    assert {_right(*each[:2]) for each in cluster.server.requests} - {None} <= _allowed()


def _right(method: str, path: str) -> tuple[str, str, str] | None:
    """The verb, group and resource of a request to the API server."""
    found = re.fullmatch(r"/(?:api|apis/([^/]+))/v\w+/namespaces/team-a/(\w+)(/[^/]+)?", path)
    if found is None:
        return None
    verb = {"PATCH": "patch", "POST": "create"}.get(method, "get" if found[3] else "list")
    return verb, found[1] or "", found[2]


def _allowed() -> set[tuple[str, str, str]]:
    objects = yaml.safe_load_all((FOLDER / "reclaim" / "reclaim.yml").read_text())
    (role,) = (each for each in objects if each["kind"] == "Role")
    return {
        (verb, group, resource)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_the_role_allows_what_is_asked(cluster: Cluster) -> None:
    """In notice and reclaim; what a Job needs is checked with it."""
    cluster.idle(POD)
    cluster.run()
    cluster.notified(cluster.deployment, 1.5)
    cluster.run()
    asked = {_right(*each[:2]) for each in cluster.server.requests} - {None}
    assert len(asked) >= 5
    assert asked <= _allowed()


class Hub:
    """A JupyterHub with servers of two users, and what tells of their GPUs."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.model: Object = {
            "ready": True,
            "last_activity": _ago(3.0),
            "started": _ago(9.0),
            "state": {"pod_name": "jupyter-ada", "namespace": "jhub"},
        }
        users = [{"name": "ada", "servers": {"": self.model}}]
        others = [{"name": "b@b", "servers": {"x/y": {**self.model, "state": {}}}}]
        second = {"url": f"{server.url}/users?offset=1"}
        server.answers["/users?state=ready"] = {"items": users, "_pagination": {"next": second}}
        server.answers["/users?offset=1"] = {"items": others, "_pagination": {"next": None}}
        server.idle(({"namespace": "jhub", "pod": "jupyter-ada"}, 3 * HOURS))
        server.answers["/api/v1/idle"] = {"state": "idle"}

    def stopped(self, by: str = "PROMETHEUS") -> list[str]:
        """Let the script look once; return what it stopped."""
        code = "import jupyterhub_culler; jupyterhub_culler.cull()"
        settings = {"JUPYTERHUB_API_URL": self.server.url, "JUPYTERHUB_API_TOKEN": "t"}
        settings |= {by: self.server.url, "PYTHONDONTWRITEBYTECODE": "1"}
        said(sys.executable, "-c", code, cwd=FOLDER, env={**os.environ, **settings})
        assert {each[0] for each in self.server.changes} <= {"DELETE"}
        return [each[1] for each in self.server.changes]


@pytest.fixture
def hub(server: Server) -> Hub:
    return Hub(server)


def test_a_server_that_is_unused_and_idle_is_stopped(hub: Hub) -> None:
    """By Prometheus, which knows its pod; the other user's is not in its answer."""
    assert hub.stopped() == ["/users/ada/server"]
    (query,) = hub.server.queries
    assert query == queries()["reclaim"].replace('{namespace="team-a"}', "").replace("\n", " ")


def test_on_one_machine_the_daemon_is_asked(hub: Hub) -> None:
    """By user; it knows of all of them here."""
    assert hub.stopped("DAEMON") == ["/users/ada/server", "/users/b%40b/servers/x%2Fy"]
    for state in ("busy", "not_known"):
        hub.server.requests.clear()
        hub.server.answers["/api/v1/idle"] = {"state": state}
        assert hub.stopped("DAEMON") == []


@pytest.mark.parametrize(
    "changed",
    [
        {"last_activity": _ago(1.0)},
        {"last_activity": None},
        {"started": _ago(1.0)},
        {"ready": False},
        {"state": {"pod_name": "jupyter-ada", "namespace": "other"}},
        {"state": {}},
    ],
    ids=["active", "activity-unknown", "just-started", "not-ready", "of-another-hub", "no-pod"],
)
def test_a_server_of_which_not_both_is_known_stays(hub: Hub, changed: Object) -> None:
    """Idle GPUs are not enough, and GPUs of which Prometheus has nothing are not idle."""
    unchanged = dict(hub.model)
    hub.model |= changed
    assert hub.stopped() == []
    hub.model |= unchanged
    hub.server.idle()
    assert hub.stopped() == []


class Slurm:
    """A node of Slurm on which programs answer as they are told to."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.programs = folder, folder / "bin"
        self.programs.mkdir()
        self.said = folder / "said"
        for name in ("scontrol", "scancel"):
            self.program(name, f'echo "{name} $1 $2" >>{self.said}')
        self.idle(0)
        self.jobs("4711 1 (null)")

    def program(self, name: str, text: str) -> None:
        write_script(self.programs / name, text)

    def jobs(self, *lines: str) -> None:
        text = "\n".join(lines)
        self.program("squeue", f"echo \"$@\" >{self.folder}/asked\ncat <<'E'\n{text}\nE")

    def idle(self, code: int) -> None:
        """Let the exporter answer by this exit code."""
        log = f'echo "$@" >>{self.folder}/exporter'
        self.program("roofline-exporter", f"{log}\ncat >/dev/null\nexit {code}")

    def notice(self, job: str) -> Path:
        return self.folder / "notices" / job

    def run(self, code: int = 0) -> Sequence[str]:
        """Run the script, and return what was done to jobs since the last time."""
        path = f"{self.programs}:{os.environ['PATH']}"
        environ = {**os.environ, "PATH": path, "NOTICES": str(self.folder / "notices")}
        done = ended("sh", FOLDER / "slurm-reclaim.sh", env=environ)
        assert done.returncode == code, done.stderr
        found = self.said.read_text().splitlines() if self.said.exists() else []
        self.said.unlink(missing_ok=True)
        return found

    def wait(self, job: str, minutes: float) -> None:
        """Let a notice be as old."""
        then = datetime.now(timezone.utc).timestamp() - minutes * 60
        os.utime(self.notice(job), (then, then))


@pytest.fixture
def slurm(tmp_path: Path) -> Slurm:
    return Slurm(tmp_path)


def test_a_job_is_notified_once_and_cancelled_after_the_grace(slurm: Slurm) -> None:
    """If it stays idle."""
    assert slurm.run() == ["scontrol notify 4711"]
    assert slurm.run() == []
    slurm.wait("4711", 30)
    assert slurm.run() == []
    slurm.wait("4711", 62)
    assert slurm.run() == ["scancel 4711 "]
    assert "idle --job 4711 --for 2h" in (slurm.folder / "exporter").read_text()


@pytest.mark.parametrize("code", [1, 2, 127])
def test_busy_and_unknown_jobs_are_left_alone(slurm: Slurm, code: int) -> None:
    """And the next notice begins the grace anew."""
    assert slurm.run() == ["scontrol notify 4711"]
    slurm.wait("4711", 90)
    slurm.idle(code)
    assert slurm.run() == []
    slurm.idle(0)
    assert slurm.run() == ["scontrol notify 4711"]


def test_jobs_on_several_nodes_and_those_that_opted_out(slurm: Slurm) -> None:
    """Nobody asks about them; the others are asked about all the same."""
    slurm.jobs("1 2 (null)", "2 1 keep-idle-gpus", "3 1 my comment, keep-idle-gpus", "", "4 1 mine")
    assert slurm.run() == ["scontrol notify 4"]
    assert (slurm.folder / "exporter").read_text().splitlines() == ["idle --job 4 --for 2h"]


def test_a_job_that_cannot_be_notified_stays(slurm: Slurm) -> None:
    """The others are judged all the same."""
    slurm.jobs("4711 1 (null)", "4712 1 (null)")
    slurm.program("scontrol", f'[ "$2" = 4712 ] && echo "scontrol $1 $2" >>{slurm.said}')
    assert slurm.run() == ["scontrol notify 4712"]
    slurm.wait("4712", 90)
    assert slurm.run() == ["scancel 4712 "]
    assert not slurm.notice("4711").exists()


def test_a_slurm_that_does_not_answer(slurm: Slurm) -> None:
    """Fails the unit, and cancels nothing."""
    slurm.run()
    slurm.wait("4711", 90)
    slurm.program("squeue", "exit 1")
    assert slurm.run(code=1) == []
