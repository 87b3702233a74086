# SPDX-License-Identifier: Apache-2.0
"""Containers of a real Docker and a real Podman in which a process waits, from a tiny image."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import unmet
from tests.e2e.containers import Engine
from tests.e2e.processes import environment
from tests.waiting import wait_until

WAITS = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"
DOCKER_SOCKET = "/var/run/docker.sock"
# Podman asks for more open files than a machine may let it.
LIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024")


@dataclass(frozen=True)
class Waiting:
    """A container with one process, which waits."""

    socket: str
    """Of the engine that runs it."""
    name: str
    id: str
    pid: int
    """Of its process, on the host."""


def program(folder: Path) -> bytes:
    """An archive of all that the image holds: a program that waits."""
    source, built = folder / "wait.c", folder / "wait"
    source.write_text(WAITS)
    subprocess.run(["cc", "-static", "-Os", "-o", built, source], check=True, timeout=60)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(built, "wait")
    return archive.getvalue()


@contextlib.contextmanager
def in_docker(engine: Engine, archive: bytes) -> Iterator[Waiting]:
    """A container of the Docker engine that DOCKER_HOST names, or this machine's."""
    name = f"roofline-llm-{uuid.uuid4().hex[:12]}"
    engine.client.api.import_image(src=archive, repository=name, tag="1")
    container = None
    try:
        container = engine.client.containers.run(
            f"{name}:1", ["/wait"], name=name, network_mode="none", detach=True
        )
        container.reload()
        pid = int(container.attrs["State"]["Pid"])
        if not Path(f"/proc/{pid}").exists():
            pytest.skip("the Docker engine runs elsewhere: its processes cannot be seen")
        socket = os.environ.get("DOCKER_HOST", "").removeprefix("unix://") or DOCKER_SOCKET
        yield Waiting(socket, name, container.id, pid)
    finally:
        if container is not None:
            container.remove(force=True)
        engine.client.images.remove(f"{name}:1", force=True)


@contextlib.contextmanager
def in_podman(podman: str, archive: bytes) -> Iterator[Waiting]:
    """A container of a Podman whose storage and socket are a test's own."""
    folder = Path(tempfile.mkdtemp(prefix="pod-"))  # the paths of Podman's sockets must be short
    command = [
        podman,
        f"--root={folder}/root",
        f"--runroot={folder}/run",
        f"--tmpdir={folder}/tmp",
        "--storage-driver=vfs",
        "--cgroup-manager=cgroupfs",
        "--events-backend=none",
    ]
    # crun, Podman's first choice, refuses a host with controllers in both cgroup versions.
    runc = shutil.which("runc")
    if runc is not None:
        command.append(f"--runtime={runc}")

    def run(*words: str, data: bytes = b"") -> str:
        done = subprocess.run(
            [*command, *words],
            input=data,
            capture_output=True,
            timeout=60,
            env=environment(),
            check=False,
        )
        error = done.stderr.decode()
        if "OCI runtime error" in error:
            unmet(f"Podman cannot start a container on this machine ({error.strip()})")
        assert done.returncode == 0, f"{words}: {error}"
        return done.stdout.decode().strip()

    name = f"notebook-{uuid.uuid4().hex[:12]}"
    try:
        run("import", "-", "localhost/waits:1", data=archive)
        number = run(
            "run", "--detach", f"--name={name}", "--network=none", *LIMITS,
            "localhost/waits:1", "/wait",
        )  # fmt: skip
        pid = int(run("inspect", "--format={{.State.Pid}}", name))
        socket = f"{folder}/podman.sock"
        with subprocess.Popen(
            [*command, "system", "service", "--time=0", f"unix://{socket}"], env=environment()
        ) as service:
            try:
                wait_until(Path(socket).exists, what="Podman's socket")
                yield Waiting(socket, name, number, pid)
            finally:
                service.terminate()
    finally:
        run("rm", "--all", "--force", "--time=0")
        wait_until(lambda: _removed(folder))


def _removed(folder: Path) -> bool:
    """Remove a folder in which what cleans up after a container may still write."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()
