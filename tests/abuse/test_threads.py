# SPDX-License-Identifier: Apache-2.0
"""A node without a process id left: what serves goes on, and nothing counts as something else."""

from __future__ import annotations

import base64
import contextlib
import http.client
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import bcrypt

from tests.e2e.daemons import Daemon
from tests.e2e.processes import Process
from tests.waiting import wait_until

FORMATS = (
    "text/plain",
    "application/openmetrics-text; version=1.0.0",
    "application/openmetrics-text; version=0.0.1",
    "text/plain; version=0.0.4",
)
PATHS = (
    "/",
    "/gpu/0",
    "/api/v1/gpus",
    "/api/v1/roofline",
    "/api/v1/roofline/trails",
    "/metrics/dcgm",
)


PROGRAM = """
import os, sys, threading
from exporter.cli.main import main

start = threading.Thread.start

def start_if_possible(thread):
    if os.path.exists(sys.argv[1]):
        raise RuntimeError("can't start new thread")
    return start(thread)

threading.Thread.start = start_if_possible
sys.exit(main(sys.argv[2:]))
"""
"""While a file exists no thread can be started: root has no limit of its own that a test could
lower, so what the kernel answers is answered here."""


def hashed(password: str) -> str:
    """Return the text of a web configuration with one user."""
    found = bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()
    return f"basic_auth_users: {{ann: '{found}'}}\n"


def basic(password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'ann:{password}'.encode()).decode()}"}


def test_no_thread_can_be_started(
    folders: Iterator[Path], processes: list[Process], tmp_path: Path
) -> None:
    file, full = tmp_path / "web.yml", tmp_path / "full"
    file.write_text(hashed("summer"))
    program = (sys.executable, "-c", PROGRAM, str(full))
    flags = ("--demo", "--poll.interval=200ms", f"--web.config.file={file}")
    daemon = Daemon(next(folders), {}, flags, program)
    processes.append(daemon)

    def status(path: str, password: str, accept: str = "*/*") -> int:
        return daemon.get(path, {**basic(password), "Accept": accept}).status

    wait_until(lambda: status("/-/ready", "summer") == 200)
    full.touch()
    answers: list[tuple[str, int]] = []
    asking = [
        threading.Thread(
            target=lambda *asked: answers.append((asked[0], status(*asked))), args=args
        )
        for args in (
            *((path, "summer") for path in PATHS * 4),
            *(("/metrics", "summer", accept) for accept in FORMATS * 4),
            *(("/metrics?name[]=gpu_up", f"wrong {number}") for number in range(4)),
        )
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert {path for path, code in answers if code == 401} == {"/metrics?name[]=gpu_up"}
    assert {code for _, code in answers} == {200, 401}
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", daemon.port, 10)) as viewer:
        viewer.request("GET", "/api/v1/stream", headers=basic("summer"))
        stream = viewer.getresponse()
        for name in ("snapshot", "diff"):
            while stream.readline() != f"event: {name}\n".encode():
                pass

    file.write_text(hashed("winter"))
    wait_until(lambda: status("/metrics", "winter") == 200)
    assert status("/metrics", "summer") == 401
    page = daemon.get("/metrics", basic("winter")).text
    assert "\nroofline_exporter_web_config_success 1\n" in page
    daemon.signal(signal.SIGHUP)
    daemon.find_in_line("configuration reloaded")
    assert not daemon.lines("Traceback")
