# SPDX-License-Identifier: Apache-2.0
"""The image and the stack in real containers: read-only, as any user, beside real servers."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import ssl
import stat
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from testcontainers.core.container import DockerContainer

from exporter import __version__
from tests.conftest import MEASURED, require_tool
from tests.e2e.containers import (
    COMPOSE_FILE,
    DEPLOY,
    PORT,
    STACK_SECONDS,
    Compose,
    Engine,
    address,
    base_image,
    driver_environment,
    driver_volumes,
    exporter,
    fetch,
    logs,
    query,
    service_images,
    stop,
    using,
    wait_for_json,
)
from tests.e2e.daemons import Page
from tests.e2e.processes import ROOT, retry_once
from tests.fake_nvml import FakeNvml
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
MOST_MEGABYTES = 130.0
FIRST_SCRAPE_SECONDS = 3.0
"""Printed beside what it took; a machine that does much else at the time may be slower."""
STOP_SECONDS = 2.0
DEMO_GPUS = 8
STOPPED = 0
SOCKETS = "/run/roofline-exporter"
JOB = """
import json, os, socket
report = {
    "version": 1, "id": "0" * 32, "sequence": 1, "pid": os.getpid(), "job": "resnet", "rank": 0,
    "steps": 10, "batches": 10, "step_seconds": 2.0, "phase_seconds": {"data": 0.5},
}
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(
    json.dumps(report).encode(), "/run/roofline-exporter/training.sock"
)
"""
"""What a job in a container says once it has the socket's directory mounted."""

Record = Callable[[str, object], None]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The Docker engine."""
    engine = Engine()
    yield engine
    engine.client.close()


@pytest.fixture(scope="module")
def image(engine: Engine) -> str:
    """The image of this checkout."""
    return engine.build()


def _gpus_up(url: str) -> Page | None:
    """The page, once all GPUs of the demo are on it."""
    body = fetch(f"{url}/metrics")
    page = Page(body.decode()) if body else None
    return page if page and len(page.rows("gpu_up")) == DEMO_GPUS else None


def test_image_is_small_and_says_what_it_is(
    engine: Engine, image: str, record_property: Record
) -> None:
    """It adds little to its base, runs as a number, and is labelled; no compiler, no pip cache."""
    added = (engine.size_bytes(image) - engine.size_bytes(engine.require(base_image()))) / 1e6
    record_property(MEASURED, f"image: {added:.1f} MB above its base (limit {MOST_MEGABYTES:g})")
    assert added < MOST_MEGABYTES

    config = engine.client.images.get(image).attrs["Config"]
    assert config["User"] == "65532:65532"
    assert config["Labels"]["org.opencontainers.image.version"] == __version__
    variables = dict(entry.split("=", 1) for entry in config["Env"])
    assert variables["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert variables["NVIDIA_DRIVER_CAPABILITIES"] == "utility"

    leftovers = engine.client.containers.run(
        image,
        [
            "-c",
            "command -v cc gcc c++ ld; ls -d /root/.cache /src /dist /tools; "
            "ls /opt/roofline-exporter/bin/pip; true",
        ],
        entrypoint="sh",
        user="0",
        remove=True,
    )
    assert leftovers == b""


def test_image_knows_its_revision(engine: Engine, image: str) -> None:
    """Built in a clone, --version names a commit although the image has no repository."""
    line = engine.client.containers.run(image, ["--version"], remove=True).decode()
    commit = "[0-9a-f]{7}" if (ROOT / ".git" / "HEAD").exists() else "unknown"
    version = re.escape(__version__)
    assert re.match(rf"roofline-exporter {version} \(revision {commit}, python 3\.", line), line


@retry_once
def test_serves_read_only_as_any_user(image: str, record_property: Record) -> None:
    """It needs no user of its own, no capability and no file to write; signals reach it."""
    with exporter(image, "--demo") as container:
        wrapped = container.get_wrapped_container()
        wrapped.kill()
        started = time.monotonic()
        wrapped.start()
        url = wait_until(lambda: _address(container), 5, "a published port")
        page = wait_until(lambda: _gpus_up(url), 15, "the first scrape")
        first = time.monotonic() - started
        assert page.rows("gpu_info", source="simulate")

        well = container.exec(["roofline-exporter", "healthcheck", "--ready"])
        assert well.exit_code == 0, well
        assert wrapped.diff() is None, "it wrote to its root"

        wrapped.kill("SIGHUP")
        wait_until(lambda: "configuration reloaded" in logs(container), 10, "a reload")
        code, seconds = stop(container)
        said = logs(container)
    assert code == 0, said
    assert said.splitlines()[-1].endswith("msg=stopped")
    assert seconds < STOP_SECONDS
    scraped = f"first scrape after {first:.2f} s (limit {FIRST_SCRAPE_SECONDS:g})"
    record_property(MEASURED, f"container: {scraped}")
    record_property(MEASURED, f"container: stopped after {seconds:.2f} s (limit {STOP_SECONDS:g})")


def _address(container: DockerContainer) -> str | None:
    """Where the exporter is reached; None while the engine has not published its port."""
    try:
        return address(container, PORT)
    except ConnectionError:
        return None


def test_compose_brings_the_stack_up_and_down(
    engine: Engine, image: str, tmp_path: Path, record_property: Record
) -> None:
    """Every service becomes healthy, Prometheus scrapes the demo, and nothing is left behind."""
    images = {}
    for name, reference in service_images().items():
        if name == "grafana" and not engine.has(reference):
            record_property(MEASURED, f"compose: grafana left out, there is no image {reference}")
            continue
        images[name] = engine.require(reference)
    services = ["exporter", *images]
    compose = Compose(engine, image, COMPOSE_FILE, using(tmp_path, images))
    with compose.up(*services):
        url = compose.url("prometheus", 9090)
        jobs = dict.fromkeys(("roofline-exporter", "prometheus", "alertmanager"), 1.0)
        wait_until(lambda: query(url, "up") == jobs, STACK_SECONDS, "three targets up")
        found = wait_for_json(f"{url}/api/v1/alertmanagers")["data"]["activeAlertmanagers"]
        assert [server["url"] for server in found] == ["http://alertmanager:9093/api/v2/alerts"]
        assert query(url, "count by (job) (gpu_up)") == {"roofline-exporter": DEMO_GPUS}
        compose.wait_until_healthy(*services)


def _said_by_a_job(engine: Engine, image: str, sockets: str, url: str) -> None:
    """Send a report from a container of another user, which may only read the directory, and wait
    until it has arrived."""
    engine.client.containers.run(
        image,
        ["-c", JOB],
        entrypoint="python",
        user="12346:54322",
        network_mode="none",
        volumes={sockets: {"bind": SOCKETS, "mode": "ro"}},
        remove=True,
    )

    def reports() -> float | None:
        page = Page((fetch(f"{url}/metrics") or b"").decode())
        return page.get("roofline_exporter_training_reports_total")

    wait_until(lambda: reports() == 1, 10, "the job's report")


@pytest.fixture
def fake(tmp_path: Path) -> FakeNvml:
    """A driver with eight GPUs, which containers mount; they are of other users than this one."""
    scenario = {"devices": {"count": 8, "template": {"utilization": 50}}}
    fake = FakeNvml(tmp_path / "fake", scenario)
    fake.directory.chmod(0o755)
    fake.scenario_path.chmod(0o644)
    return fake


@pytest.mark.parametrize("user", ["65532:65532", "12345:12345", "12345:0"])
def test_reads_the_driver_without_rights(
    engine: Engine, image: str, fake: FakeNvml, user: str
) -> None:
    """Read-only, no capability, no new privileges, 256 MiB: its own user, and those of OpenShift.

    A job in another container reports to it through a volume that it may only read. A user that
    is neither the image's own nor of group 0 cannot make the socket, and does without.
    """
    volume = engine.client.volumes.create()
    try:
        container = exporter(image, user=user, driver=fake, healthcheck={"interval": 10**9})
        container.with_envs(ROOFLINE_TRAINING_SOCKET=f"{SOCKETS}/training.sock")
        container.with_volume_mapping(volume.name, SOCKETS, "rw")
        with container:
            url = wait_until(lambda: _address(container), 5, "a published port")
            page = wait_until(lambda: _gpus_up(url), 30, "eight GPUs")
            assert page.value("roofline_exporter_source_up", source="nvml") == 1
            wait_until(lambda: _is_healthy(container), 30, "a good health check")
            status = container.exec(["cat", "/proc/1/status"]).output.decode()
            assert (
                re.findall(r"(?m)^Cap(?:Prm|Eff|Bnd|Amb):\s*([0-9a-f]+)$", status) == ["0" * 16] * 4
            )
            assert re.search(r"(?m)^NoNewPrivs:\s*1$", status)
            if user == "12345:12345":
                assert "training.sock" in logs(container), "a line says what is missing"
            else:
                _said_by_a_job(engine, image, volume.name, url)
            assert stop(container)[0] == STOPPED
    finally:
        volume.remove(force=True)


def _is_healthy(container: DockerContainer) -> bool:
    wrapped = container.get_wrapped_container()
    wrapped.reload()
    status: str = wrapped.attrs["State"]["Health"]["Status"]
    return status == "healthy"


class Node(Compose):
    """The GPU node's compose project, with overlays, on the fake driver.

    The GPUs themselves are left out: the engine would refuse them without NVIDIA's runtime.
    """

    def __init__(
        self, engine: Engine, image: str, folder: Path, fake: FakeNvml, *overlays: str
    ) -> None:
        config = yaml.safe_load((DEPLOY / "docker-compose.gpu.yml").read_text())
        service = config["services"]["exporter"]
        del service["deploy"]
        service["volumes"] += [
            f"{path}:{mount['bind']}:{mount['mode']}"
            for path, mount in driver_volumes(fake).items()
        ]
        service["environment"] |= driver_environment(fake)
        self.volume = f"roofline-exporter-test-{uuid.uuid4().hex[:12]}"
        config["volumes"]["training"]["name"] = self.volume
        override = folder / "gpu.yml"
        override.write_text(yaml.safe_dump(config))
        files = [
            overlay(name, folder, f"- {SOCKETS}:", f"- {folder / 'run'}:") for name in overlays
        ]
        super().__init__(engine, image, COMPOSE_FILE, override, *files)

    def answers_at(self) -> str:
        """Where the exporter answers, once it does."""
        url = self.url("exporter", PORT)
        wait_until(lambda: _gpus_up(url), 30, "eight GPUs")
        return url


def overlay(name: str, folder: Path, old: str, new: str) -> Path:
    """A copy of an overlay that ships, with a folder of the test for the host's."""
    path = folder / f"{name}.yml"
    path.write_text((DEPLOY / f"docker-compose.{name}.yml").read_text().replace(old, new))
    return path


@contextlib.contextmanager
def _job(engine: Engine, image: str) -> Iterator[int]:
    """A training process of another user in a container; its number on the host."""
    job = engine.client.containers.run(
        image,
        ["-c", "import time; time.sleep(600)"],
        entrypoint="python",
        user="12346:54322",
        environment={"RANK": "0"},
        detach=True,
    )
    try:
        job.reload()
        pid = int(job.attrs["State"]["Pid"])
        if not Path(f"/proc/{pid}").exists():
            pytest.skip("the Docker engine runs elsewhere: its processes cannot be seen")
        yield pid
    finally:
        job.remove(force=True)


@pytest.mark.parametrize("overlays", [(), ("other-users",)], ids=["plain", "other users"])
def test_compose_on_a_gpu_node(
    engine: Engine, image: str, tmp_path: Path, fake: FakeNvml, overlays: tuple[str, ...]
) -> None:
    """Without a right it sees who is on the GPUs, but not their variables; the overlay gives the
    class of a job by these, and costs what it says. Both take reports."""
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    secret.chmod(0o600)
    with _job(engine, image) as pid:
        fake.device(0, processes=[{"pid": pid, "bytes": 2**30}])
        node = Node(engine, image, tmp_path, fake, *overlays)
        with node.up("exporter"):
            url = node.answers_at()

            def holders() -> list[tuple[str, str, str]]:
                page = Page((fetch(f"{url}/metrics") or b"").decode())
                found = [labels for labels, _ in page.rows("gpu_holder_info")]
                return [(one["command"], one["owner"], one["class"]) for one in found]

            wanted = [("python", "12346", "training" if overlays else "other")]
            wait_until(lambda: holders() == wanted, 20, f"the holder {wanted}")
            read = node.exec("cat", f"/proc/{os.getpid()}/root{secret}")
            assert (read == (0, "of the host")) == bool(overlays), "every file, or none"
            if not overlays:
                assert node.exec("id", "-u")[1] == "65532\n"
                assert node.exec("cat", f"/proc/{pid}/environ")[0] != 0
                zero = f"import os; os.kill({os.getpid()}, 0)"
                assert node.exec("python", "-c", zero)[0] != 0
            _said_by_a_job(engine, image, node.volume, url)


def test_compose_with_jobs_of_the_host_and_the_kernel_log(
    engine: Engine, image: str, tmp_path: Path, fake: FakeNvml
) -> None:
    """The overlays give the host's directory, made as they say, and /dev/kmsg."""
    if os.geteuid() != 0:
        pytest.skip("a directory for another user takes root to make")
    node = Node(engine, image, tmp_path, fake, "host-jobs", "kernel-log")
    sockets = tmp_path / "run"
    sockets.mkdir(mode=0o775)
    sockets.chmod(0o775)
    os.chown(sockets, 65532, 0)
    with node.up("exporter"):
        url = node.answers_at()
        wait_until((sockets / "training.sock").is_socket, 10, "the training socket")
        _said_by_a_job(engine, image, str(sockets), url)
        assert "kmsg" not in node.run("logs", "--no-color", "exporter")
        opened = "import os; os.open('/dev/kmsg', os.O_RDONLY | os.O_NONBLOCK)"
        assert node.exec("python", "-c", opened) == (0, "")
        assert node.exec("ls", f"/proc/{os.getpid()}/root/")[0] != 0
        zero = f"import os; os.kill({os.getpid()}, 0)"
        assert node.exec("python", "-c", zero)[0] == 0, "root ends what is root's"


def _made_by_the_documentation(folder: Path) -> Path:
    """Run the commands of docs/deploy.md for certificate and password; the folder they fill."""
    for program in ("openssl", "htpasswd"):
        require_tool(program)
    text = (ROOT / "docs" / "deploy.md").read_text()
    (commands,) = re.findall(r"```sh\n(mkdir -p deploy/web.*?)```", text, re.DOTALL)
    sudo = folder / "bin" / "sudo"
    sudo.parent.mkdir()
    sudo.write_text('#!/bin/sh\nexec "$@"\n')
    sudo.chmod(0o755)
    path = f"{sudo.parent}:{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env={**os.environ, "PATH": path},
        check=True,
        capture_output=True,
        timeout=60,
    )
    return folder / "deploy" / "web"


def test_compose_with_tls(engine: Engine, image: str, tmp_path: Path) -> None:
    """The overlay and the commands of the documentation: HTTPS and a password for everybody;
    Prometheus and the health check have what it takes."""
    if os.geteuid() != 0:
        pytest.skip("files for other users take root to make")
    made = _made_by_the_documentation(tmp_path)
    images = {"prometheus": engine.require(service_images()["prometheus"])}
    files = overlay("tls", tmp_path, "- ./web/", f"- {made}/"), using(tmp_path, images)
    compose = Compose(engine, image, COMPOSE_FILE, *files)
    with compose.up("exporter", "prometheus"):
        prometheus = compose.url("prometheus", 9090)
        scraped = {"roofline-exporter": 1.0}
        up = 'up{job="roofline-exporter"}'
        wait_until(lambda: query(prometheus, up) == scraped, STACK_SECONDS, "a scrape over TLS")
        compose.wait_until_healthy("exporter", "prometheus")
        port = int(compose.url("exporter", PORT).rpartition(":")[2])
        trusted = ssl.create_default_context(cafile=str(made / "prometheus" / "ca.crt"))
        statuses = {}
        for path in ("/metrics", "/-/healthy"):
            connection = http.client.HTTPSConnection("localhost", port, context=trusted)
            connection.request("GET", path)
            statuses[path] = connection.getresponse().status
            connection.close()
        assert statuses == {"/metrics": 401, "/-/healthy": 200}
        assert fetch(f"http://127.0.0.1:{port}/metrics") is None, "not without TLS"


def test_directory_of_kubernetes_is_prepared(engine: Engine, image: str, tmp_path: Path) -> None:
    """The step of the overlay `training`: root without a capability opens a directory of root's to
    the exporter's group, twice, and leaves alone one that was prepared for the exporter."""
    if os.geteuid() != 0:
        pytest.skip("directories of root and of other users take root to make")
    path = DEPLOY / "kubernetes" / "overlays" / "training" / "kustomization.yml"
    patch = yaml.safe_load(yaml.safe_load(path.read_text())["patches"][0]["patch"])
    (step,) = patch["spec"]["template"]["spec"]["initContainers"]
    made, prepared = tmp_path / "made", tmp_path / "prepared"
    made.mkdir(mode=0o755)
    prepared.mkdir(mode=0o755)
    os.chown(prepared, 65532, 65532)
    for folder in (made, made, prepared):
        said = engine.client.containers.run(
            image,
            step["args"],
            entrypoint=step["command"],
            user="0:65532",
            cap_drop=["ALL"],
            read_only=True,
            security_opt=["no-new-privileges:true"],
            volumes={str(folder): {"bind": SOCKETS, "mode": "rw"}},
            remove=True,
        )
        assert said == b""
    found = [(each.stat().st_uid, each.stat().st_gid) for each in (made, prepared)]
    assert found == [(0, 65532), (65532, 65532)]
    assert stat.S_IMODE(made.stat().st_mode) == 0o775

    container = exporter(image, "--demo", user="65532:65532").with_volume_mapping(
        made, SOCKETS, "rw"
    )
    with container.with_envs(ROOFLINE_TRAINING_SOCKET=f"{SOCKETS}/training.sock"):
        wait_until((made / "training.sock").is_socket, 20, "the training socket")
