# SPDX-License-Identifier: Apache-2.0
"""A Docker engine, the image built from this checkout, containers and compose projects of it.

Everything that is started ends with its test; the image stays, so that the next build is quick.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
import warnings
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import docker
import yaml
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.image import DockerImage

from tests.conftest import unmet
from tests.e2e.processes import ROOT, environment
from tests.fake_nvml import FakeNvml
from tests.serving import answer_of
from tests.waiting import wait_until

# Its clean-up container is one more image to pull; containers here end with their test.
testcontainers_config.ryuk_disabled = True

DEPLOY = ROOT / "deploy"
COMPOSE_FILE = DEPLOY / "docker-compose.yml"
TAG = "roofline-exporter:test"
FOREIGN_USER = "12345:54321"
HARDENED: Mapping[str, Any] = {
    "read_only": True,
    "user": FOREIGN_USER,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
    "mem_limit": "256m",
    "pids_limit": 128,
}
PORT = 19400
DRIVER = "/usr/lib/libnvidia-ml.so.1"
SCENARIO = "/fake_nvml"
LEFT_ALONE_SECONDS = 3600
STACK_SECONDS = 90.0


def base_image() -> str:
    """The image that the Dockerfile begins with."""
    found = re.search(r"^ARG PYTHON_IMAGE=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert found
    return found[1]


def service_images() -> dict[str, str]:
    """The images of the compose file's services, but of the exporter's."""
    services = yaml.safe_load(COMPOSE_FILE.read_text())["services"]
    return {name: service["image"] for name, service in services.items() if name != "exporter"}


def _client() -> docker.DockerClient:
    """A client of the engine, which has answered once."""
    with warnings.catch_warnings():
        # Where no engine answers, docker-py leaves its socket to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            return docker.from_env()
        except (docker.errors.DockerException, OSError) as error:
            reason = f"no Docker engine answers ({error})"
        gc.collect()
    return unmet(reason)


class Engine:
    """The Docker engine that DOCKER_HOST names, or this machine's."""

    def __init__(self) -> None:
        self.client = _client()

    def has(self, image: str) -> bool:
        """Whether it has an image."""
        try:
            self.client.images.get(image)
        except docker.errors.ImageNotFound:
            return False
        return True

    def require(self, image: str) -> str:
        """The name of an image that is there or can be pulled, or of the stand-in for it."""
        name = image.partition("@")[0]
        if self.has(image):
            return image
        if self._is_standin(name):
            return name
        try:
            self.client.images.pull(image)
        except docker.errors.APIError as error:
            unmet(f"no image {image} ({error})")
        return image

    def _is_standin(self, name: str) -> bool:
        """Whether .ci/container-images made it, which cannot give it the digest of the real one."""
        return self.has(name) and "standin" in (self.client.images.get(name).labels or {})

    def size_bytes(self, image: str) -> int:
        size: int = self.client.images.get(image).attrs["Size"]
        return size

    def build(self) -> str:
        """Build the image, without BuildKit, and return its number; one test session at a time."""
        base = self.require(base_image())
        with (Path(tempfile.gettempdir()) / "roofline-exporter-image.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            arguments = {"PYTHON_IMAGE": base}
            DockerImage(path=ROOT, tag=TAG, clean_up=False, buildargs=arguments).build()
            number: str = self.client.images.get(TAG).id
            self._sweep()
        return number

    def _sweep(self) -> None:
        """Remove earlier builds that have no name any more and that no other session uses."""
        nameless = {"dangling": True, "label": "org.opencontainers.image.title=roofline-exporter"}
        for image in self.client.images.list(filters=nameless):
            created = datetime.fromisoformat(f"{image.attrs['Created'][:19]}+00:00")
            if time.time() - created.timestamp() > LEFT_ALONE_SECONDS:
                with contextlib.suppress(docker.errors.APIError):
                    self.client.images.remove(image.id)

    @contextlib.contextmanager
    def tagged(self, image: str) -> Iterator[str]:
        """A name for an image, for a while."""
        tag = uuid.uuid4().hex[:12]
        self.client.images.get(image).tag("roofline-exporter-test", tag)
        try:
            yield f"roofline-exporter-test:{tag}"
        finally:
            self.client.images.remove(f"roofline-exporter-test:{tag}", noprune=True)


def exporter(
    image: str,
    *words: str,
    user: str = FOREIGN_USER,
    driver: FakeNvml | None = None,
    **options: Any,
) -> DockerContainer:
    """The exporter, read-only, without rights and within limits, as a user that the image need
    not know, and with a fake driver if any; not started yet."""
    container = DockerContainer(image).with_exposed_ports(PORT).with_command(list(words))
    container.with_kwargs(**{**HARDENED, "user": user, **options})
    if driver is not None:
        container.with_envs(**driver_environment(driver))
        for path, mount in driver_volumes(driver).items():
            container.with_volume_mapping(path, mount["bind"], mount["mode"])
    return container


def driver_volumes(fake: FakeNvml) -> dict[str, dict[str, str]]:
    """Mounts of a fake driver: its library where NVIDIA's runtime puts the real one."""
    return {
        str(fake.library): {"bind": DRIVER, "mode": "ro"},
        str(fake.directory): {"bind": SCENARIO, "mode": "ro"},
    }


def driver_environment(fake: FakeNvml) -> dict[str, str]:
    """How the mounted library finds its scenario."""
    return {"FAKE_NVML_SCENARIO": f"{SCENARIO}/{fake.scenario_path.name}"}


def address(container: DockerContainer, port: int) -> str:
    """Where a port of a container is reached from here."""
    host = container.get_container_host_ip().replace("localhost", "127.0.0.1")
    return f"http://{host}:{container.get_exposed_port(port)}"


def logs(container: DockerContainer) -> str:
    """What a container has said."""
    return "".join(part.decode() for part in container.get_logs())


def stop(container: DockerContainer) -> tuple[int, float]:
    """`docker stop`: the exit code, and the seconds that it took."""
    wrapped = container.get_wrapped_container()
    started = time.monotonic()
    wrapped.stop()
    seconds = time.monotonic() - started
    return int(wrapped.wait()["StatusCode"]), seconds


def fetch(url: str, body: Any = None) -> bytes | None:
    """The answer to a GET, or to a POST of JSON; None while nobody answers well."""
    data = None if body is None else json.dumps(body).encode()
    try:
        return answer_of(url, data, {"Content-Type": "application/json"}, timeout=5)
    except urllib.error.HTTPError as error:
        error.close()
        return None
    except (OSError, ValueError):
        return None


def fetch_json(url: str) -> Any:
    """The JSON at a URL; None while there is none."""
    answer = fetch(url)
    return None if answer is None else json.loads(answer)


def query(prometheus: str, expression: str) -> dict[str, float]:
    """The values of an expression by the label `gpu`, or `job` where there is none."""
    words = urllib.parse.urlencode({"query": expression})
    answer = fetch_json(f"{prometheus}/api/v1/query?{words}")
    rows = answer["data"]["result"] if answer else []
    return {
        row["metric"].get("gpu", row["metric"].get("job", "")): float(row["value"][1])
        for row in rows
    }


def compose_command() -> list[str]:
    """The Compose that is here: docker-compose 1.29, or the plugin."""
    for command in (["docker-compose"], ["docker", "compose"]):
        if shutil.which(command[0]):
            asked = subprocess.run(
                [*command, "version"], capture_output=True, check=False, timeout=30
            )
            if asked.returncode == 0:
                return command
    return unmet("neither docker-compose nor docker compose answers")


def using(folder: Path, images: Mapping[str, str]) -> Path:
    """A compose file, to be added, that has services use these images."""
    path = folder / "images.yml"
    services = {name: {"image": image} for name, image in images.items()}
    path.write_text(yaml.safe_dump({"services": services}))
    return path


class Compose:
    """A project of compose files, under a name and on ports that no other has."""

    def __init__(self, engine: Engine, image: str, *files: Path) -> None:
        self._engine, self._image = engine, image
        self.project = f"roofline-{uuid.uuid4().hex[:12]}"
        self._filter = {"label": f"com.docker.compose.project={self.project}"}
        self._command = compose_command()
        self._files = [word for file in files for word in ("--file", str(file))]
        ports = ("EXPORTER_PORT", "PROMETHEUS_PORT", "ALERTMANAGER_PORT", "GRAFANA_PORT")
        self._environment = environment(dict.fromkeys(ports, "0"))

    def run(self, *words: str) -> str:
        """Run a subcommand to its end; what it printed."""
        done = subprocess.run(
            [*self._command, "--project-name", self.project, *self._files, *words],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    @contextlib.contextmanager
    def up(self, *services: str) -> Iterator[None]:
        """Start services; in the end remove the project, which leaves nothing behind."""
        client = self._engine.client
        with self._engine.tagged(self._image) as tag:
            self._environment["EXPORTER_IMAGE"] = tag
            try:
                self.run("up", "--detach", "--no-build", *services)
                yield
            except BaseException:
                print(self.run("logs", "--no-color"))
                raise
            finally:
                self.run("down", "--volumes", "--timeout", "5")
        assert self.containers() == []
        assert client.networks.list(filters=self._filter) == []
        assert client.volumes.list(filters=self._filter) == []

    def containers(self) -> list[Any]:
        """All of the project's."""
        found: list[Any] = self._engine.client.containers.list(all=True, filters=self._filter)
        return found

    def wait_until_healthy(self, *services: str) -> None:
        """Wait until these services are, and no others."""

        def healthy() -> set[str]:
            return {
                container.labels["com.docker.compose.service"]
                for container in self.containers()
                if container.attrs["State"]["Health"]["Status"] == "healthy"
            }

        wait_until(lambda: healthy() == set(services), STACK_SECONDS, f"{services} are healthy")

    def exec(self, *words: str) -> tuple[int, str]:
        """Run something in the exporter's container, as its user."""
        number = self.run("ps", "--quiet", "exporter").strip()
        done = self._engine.client.containers.get(number).exec_run(list(words))
        return done.exit_code, done.output.decode()

    def url(self, service: str, port: int) -> str:
        """Where a service is reached from here."""
        return f"http://{self.run('port', service, str(port)).strip()}"


def wait_for_json(url: str) -> Any:
    """The JSON at a URL, once somebody answers there."""
    return wait_until(lambda: fetch_json(url), 60, url)
