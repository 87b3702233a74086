# SPDX-License-Identifier: Apache-2.0
"""The image and the stack in real containers: read-only, as any user, beside real servers."""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from exporter import __version__
from tests.conftest import MEASURED
from tests.e2e.containers import (
    COMPOSE_FILE,
    DEPLOY,
    FOREIGN_USER,
    PORT,
    Compose,
    Engine,
    address,
    base_image,
    exporter,
    fetch,
    fetch_json,
    logs,
    query,
    service_images,
    stop,
    using,
    wait_for_json,
)
from tests.e2e.daemons import Page
from tests.e2e.processes import ROOT, retry_once
from tests.waiting import wait_until

MOST_MEGABYTES = 130.0
FIRST_SCRAPE_SECONDS = 3.0
"""Printed beside what it took; a machine that does much else at the time may be slower."""
STOP_SECONDS = 2.0
DEMO_GPUS = 8
STACK_SECONDS = 90.0
STOPPED, INTERRUPTED = 0, 130
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
def _serves_and_stops(image: str, record_property: Record) -> None:
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


def test_serves_read_only_as_any_user(image: str, record_property: Record) -> None:
    """It needs no user of its own, no capability and no file to write; signals reach it."""
    _serves_and_stops(image, record_property)


@retry_once
def test_stops_while_it_starts(image: str) -> None:
    """A container's first process gets no signal that it does not ask for; this one soon does."""
    with exporter(image, "--demo") as container:
        wrapped = container.get_wrapped_container()
        wrapped.reload()
        status = Path(f"/proc/{wrapped.attrs['State']['Pid']}/status")
        if not status.exists():
            pytest.skip("the Docker engine runs elsewhere: its processes cannot be seen")
        wait_until(lambda: _heeds_sigterm(status.read_text()), 10, "a handler")
        code, seconds = stop(container)
    assert code in (STOPPED, INTERRUPTED), "it was killed"
    assert seconds < STOP_SECONDS


def _heeds_sigterm(status: str) -> bool:
    """Whether a process handles SIGTERM, or will once it has started, by its /proc/PID/status."""
    sets = re.findall(r"^Sig(?:Cgt|Blk):\s*([0-9a-f]+)$", status, re.MULTILINE)
    return any(int(each, 16) >> (signal.SIGTERM - 1) & 1 for each in sets)


def test_a_wrong_flag_is_one_line(engine: Engine, image: str) -> None:
    """The container ends with code 2 and says which flag."""
    container = engine.client.containers.run(image, ["--demos"], detach=True)
    try:
        assert container.wait(timeout=30)["StatusCode"] == 2
        assert container.logs().decode().count("\n") == 1
    finally:
        container.remove(force=True)


def _server(network: Network, name: str, image: str, port: int, folder: Path) -> DockerContainer:
    """A server of the stack with its configuration, on the network under its name."""
    return (
        DockerContainer(image)
        .with_network(network)
        .with_network_aliases(name)
        .with_exposed_ports(port)
        .with_volume_mapping(folder, f"/etc/{name}")
    )


def _often(tmp_path: Path) -> Path:
    """Prometheus's folder, but scraping every second."""
    folder = tmp_path / "prometheus"
    shutil.copytree(DEPLOY / "prometheus", folder)
    config = yaml.safe_load((folder / "prometheus.yml").read_text())
    config["global"] |= {"scrape_interval": "1s", "scrape_timeout": "1s"}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    return folder


def _alert(name: str, severity: str, gpu: str) -> dict[str, Any]:
    return {"labels": {"alertname": name, "severity": severity, "instance": "n:1", "uuid": gpu}}


def test_prometheus_scrapes_it_and_knows_alertmanager(
    engine: Engine, image: str, tmp_path: Path
) -> None:
    """The configuration that ships finds all three; counters of the demo grow as they should."""
    shipped = service_images()
    images = {name: engine.require(shipped[name]) for name in ("prometheus", "alertmanager")}
    with (
        Network() as network,
        _server(
            network, "alertmanager", images["alertmanager"], 9093, DEPLOY / "alertmanager"
        ) as alertmanager,
        _server(network, "prometheus", images["prometheus"], 9090, _often(tmp_path)) as prometheus,
        exporter(image, "--demo").with_network(network).with_network_aliases("exporter"),
    ):
        url = address(prometheus, 9090)
        jobs = {"roofline-exporter": 1.0, "prometheus": 1.0, "alertmanager": 1.0}
        wait_until(lambda: query(url, "up") == jobs, STACK_SECONDS, "three targets up")
        found = wait_for_json(f"{url}/api/v1/alertmanagers")["data"]["activeAlertmanagers"]
        assert [server["url"] for server in found] == ["http://alertmanager:9093/api/v2/alerts"]

        wait_until(lambda: query(url, "min(count_over_time(up[10s])) >= 8"), STACK_SECONDS)
        share = query(
            url,
            "rate(gpu_busy_seconds_total[10s]) / ignoring (reading)"
            ' rate(gpu_observed_seconds_total{reading="utilization"}[10s])',
        )
        assert share["3"] == pytest.approx(1.0, abs=0.05), "the spinning GPU"
        assert share["5"] == pytest.approx(0.0, abs=0.05), "the free GPU"

        _check_inhibition(address(alertmanager, 9093))


def _check_inhibition(url: str) -> None:
    """A lost GPU silences its own idle alert, and not its neighbour's."""
    wait_for_json(f"{url}/api/v2/status")
    alerts = [
        _alert("GpuLost", "critical", "GPU-a"),
        _alert("GpuHeldIdle", "warning", "GPU-a"),
        _alert("GpuHeldIdle", "warning", "GPU-b"),
    ]
    assert fetch(f"{url}/api/v2/alerts", alerts) is not None

    def silenced() -> set[tuple[str, str]]:
        return {
            (alert["labels"]["alertname"], alert["labels"]["uuid"])
            for alert in fetch_json(f"{url}/api/v2/alerts") or ()
            if alert["status"]["inhibitedBy"]
        }

    wait_until(lambda: silenced() == {("GpuHeldIdle", "GPU-a")}, 30, "one inhibited alert")


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
    with engine.tagged(image) as tag:
        compose = Compose(tag, COMPOSE_FILE, using(tmp_path, images))
        with compose.up(*services):
            url = compose.url("prometheus", 9090)
            scraped = {"roofline-exporter": 1.0}
            wait_until(
                lambda: query(url, 'up{job="roofline-exporter"}') == scraped, STACK_SECONDS, "up"
            )
            assert query(url, "count by (job) (gpu_up)") == {"roofline-exporter": DEMO_GPUS}
            healthy = f"label=com.docker.compose.project={compose.project}"
            wait_until(
                lambda: _healthy(engine, compose.project) == set(services), STACK_SECONDS, healthy
            )
    assert _left(engine, compose.project) == []


def test_compose_on_a_gpu_node(engine: Engine, image: str, tmp_path: Path) -> None:
    """The second file makes it root without rights, with the host's processes and the socket.

    The GPUs themselves are left out: the engine would refuse them without NVIDIA's runtime.
    """
    config = yaml.safe_load((DEPLOY / "docker-compose.gpu.yml").read_text())
    service = config["services"]["exporter"]
    del service["deploy"]
    sockets = tmp_path / "run"
    mounted = "/run/roofline-exporter"
    assert f"{mounted}:{mounted}" in service["volumes"]
    service["volumes"] = [
        f"{sockets}:{mounted}" if volume.startswith(mounted) else volume
        for volume in service["volumes"]
    ]
    override = tmp_path / "gpu.yml"
    override.write_text(yaml.safe_dump(config))
    with engine.tagged(image) as tag:
        compose = Compose(tag, COMPOSE_FILE, override)
        with compose.up("exporter"):
            url = compose.url("exporter", PORT)
            wait_until(lambda: fetch(f"{url}/-/healthy"), 30, "an answer")
            container = engine.client.containers.get(
                compose.run("ps", "--quiet", "exporter").strip()
            )
            page = Page((fetch(f"{url}/metrics") or b"").decode())
            assert page.value("roofline_exporter_source_up", source="nvml") == 0, "no demo"
            seen = container.exec_run(["cat", "/host/proc/self/status"])
            assert seen.exit_code == 0, seen
            own = container.attrs["State"]["Pid"]
            assert container.exec_run(["ls", f"/host/proc/{own}/comm"]).exit_code == 0
            wait_until((sockets / "training.sock").is_socket, 10, "the training socket")
            engine.client.containers.run(
                image,
                ["-c", JOB],
                entrypoint="python",
                user=FOREIGN_USER,
                volumes={str(sockets): {"bind": mounted, "mode": "rw"}},
                remove=True,
            )
            wait_until(lambda: _reports(url) == 1, 10, "the job's report")
    assert _left(engine, compose.project) == []


def _reports(url: str) -> float | None:
    """How many reports of training jobs were taken."""
    page = Page((fetch(f"{url}/metrics") or b"").decode())
    return page.get("roofline_exporter_training_reports_total")


def _containers(engine: Engine, project: str) -> list[Any]:
    label = f"com.docker.compose.project={project}"
    containers: list[Any] = engine.client.containers.list(all=True, filters={"label": label})
    return containers


def _healthy(engine: Engine, project: str) -> set[str]:
    return {
        container.labels["com.docker.compose.service"]
        for container in _containers(engine, project)
        if container.attrs["State"]["Health"]["Status"] == "healthy"
    }


def _left(engine: Engine, project: str) -> list[Any]:
    """What a project left behind."""
    label = {"label": f"com.docker.compose.project={project}"}
    return [
        *_containers(engine, project),
        *engine.client.networks.list(filters=label),
        *engine.client.volumes.list(filters=label),
    ]
