# SPDX-License-Identifier: Apache-2.0
"""Two users of one node: whatever one of them sends, the other's job and GPU show the truth."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conftest import unmet
from tests.e2e.conftest import MakeDriver, StartDaemon
from tests.e2e.daemons import Daemon
from tests.e2e.processes import environment
from tests.sources.training.reports import LEAST, numbered
from tests.waiting import wait_until

ALICE, EVE = 61001, 61002
SILENT_SECONDS = 10.5
"""Longer than a job has to be silent to make room for others of its own user."""
SECONDS = 20.0
MOSTLY_IDLE: dict[str, Any] = {
    "product": "h100-sxm",
    "utilization": 30,
    "gpm": {"graphics": 30, "sm": 30, "tensor": 20, "dram": 10, "fp64": 0, "fp32": 2, "fp16": 1},
}
TALKER = """
import json, os, socket, sys
uid = int(sys.argv[2])
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
for line in sys.stdin:
    report = {**json.loads(line), "pid": os.getpid()}
    sender.sendto(json.dumps(report).encode(), sys.argv[1])
    print("sent", flush=True)
"""
"""It becomes another user only once it runs: the interpreter may be in a folder of root's."""


class User:
    """A process of a user, which sends what a test asks it to."""

    def __init__(self, uid: int, socket: str) -> None:
        self.uid = uid
        self._sequence = 0
        self._talker = subprocess.Popen(
            [sys.executable, "-I", "-c", TALKER, socket, str(uid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env=environment(),
        )
        self.pid = self._talker.pid

    def say(self, **changes: Any) -> None:
        """Send a report and wait until it is on its way."""
        self._sequence += 1
        nothing = {"steps": 0, "batches": 0, "step_seconds": 0.0, "phase_seconds": {"data": 0.0}}
        own = {"id": numbered(self.uid), "sequence": self._sequence}
        report = {**LEAST, **nothing, **own, **changes}
        assert self._talker.stdin is not None
        assert self._talker.stdout is not None
        self._talker.stdin.write(json.dumps(report) + "\n")
        self._talker.stdin.flush()
        assert self._talker.stdout.readline() == "sent\n"

    def stop(self) -> None:
        self._talker.communicate()


@pytest.fixture(name="socket")
def _socket() -> Iterator[str]:
    """A path that every user can reach."""
    if os.geteuid() != 0:
        unmet("two users need a test that runs as root")
    with tempfile.TemporaryDirectory(prefix="roofline-") as folder:
        os.chmod(folder, 0o755)
        yield f"{folder}/t.sock"


@pytest.fixture(name="login")
def _login(socket: str) -> Iterator[Callable[[int], User]]:
    """Starts processes of users."""
    users: list[User] = []

    def login(uid: int) -> User:
        users.append(User(uid, socket))
        return users[-1]

    yield login
    for user in users:
        user.stop()


def refused(daemon: Daemon, reason: str) -> float:
    """How many reports were, for a reason."""
    return daemon.metrics().value("roofline_exporter_training_rejected_total", reason=reason)


def jobs(daemon: Daemon) -> dict[str, dict[str, Any]]:
    """The API's jobs by name."""
    answer = json.loads(daemon.get("/api/v1/training").text)
    return {job["job"]: job for job in answer["jobs"]}


def starved(seconds: float, device: str) -> dict[str, Any]:
    """A report that so much time was waited for data while the GPU had nothing to do."""
    return {
        "device": device,
        "step_seconds": seconds,
        "phase_seconds": {"data": seconds},
        "phase_gpu_idle_seconds": {"data": seconds},
    }


def test_no_user_can_fake_or_erase_anothers_job(
    make_driver: MakeDriver,
    start: StartDaemon,
    socket: str,
    login: Callable[[int], User],
) -> None:
    """Totals of 1e18, a borrowed name, another's GPU, and junk names: each alone, one daemon."""
    alice, eve = login(ALICE), login(EVE)
    processes = {"compute": [{"pid": alice.pid, "bytes": 10**9}]}
    driver = make_driver({"devices": [{**MOSTLY_IDLE, "processes": processes}]})
    flags = ("--poll.interval=200ms", "--poll.slow-interval=1s", f"--training.socket={socket}")
    daemon = start(driver, *flags, wait_for=1)
    ((labels, _),) = daemon.metrics().rows("gpu_info")
    device = labels["uuid"]

    def steps(job: str) -> float | None:
        return daemon.metrics().get("gpu_training_steps_total", training_job=job)

    alice.say(device=device, steps=1000, precision="bf16")
    wait_until(lambda: steps("resnet") == 1000, SECONDS, "Alice's job")

    # Totals that would freeze the counters for ever, under her name and id, and under an own one.
    eve.say(id=numbered(ALICE), device=device, steps=1e18, step_seconds=1e18)
    eve.say(device=device, steps=1e18, step_seconds=1e18)
    wait_until(lambda: refused(daemon, "implausible") == 1, SECONDS, "a refusal")
    assert refused(daemon, "credentials") == 1
    assert steps("resnet") == 1000

    # Her name, rank and GPU, while she is silent: Eve's own job, which says nothing of the GPU.
    began = time.monotonic()
    while time.monotonic() < began + SILENT_SECONDS:
        eve.say(steps=5, precision="fp8", **starved(time.monotonic() - began, device))
        time.sleep(0.1)
    shown = jobs(daemon)
    assert set(shown) == {"resnet", f"resnet (uid {EVE})"}
    assert [job["owner"] for job in shown.values()] == [str(ALICE), str(EVE)]
    assert [job["ranks"][0]["verified"] for job in shown.values()] == [True, False]
    page = daemon.metrics()
    assert page.value("roofline_exporter_training_degraded", reason="unverified") == 1
    assert page.value("gpu_training_verified", training_job="resnet") == 1
    assert page.value("gpu_training_verified", training_job=f"resnet (uid {EVE})") == 0
    assert steps("resnet") == 1000
    assert steps(f"resnet (uid {EVE})") == 5
    assert page.value("gpu_limited_seconds_total", limiter="input") == 0
    assert page.value("gpu_limited_seconds_total", limiter="idle") > 5
    precisions = {labels["precision"] for labels, _ in page.rows("gpu_flops_total")}
    assert "bf16_tensor" in precisions
    assert not {"fp8_tensor", "fp16_tensor"} & precisions

    # More names than there is room for.
    for number in range(64):
        eve.say(id=numbered(number), job=f"junk {number}", device="none")
    wait_until(lambda: refused(daemon, "jobs"), SECONDS, "a refusal")
    assert refused(daemon, "jobs") == 2
    assert steps("resnet") == 1000

    # And what Alice says of her own GPU counts, all the while.
    began = time.monotonic()

    def is_limited() -> bool:
        time.sleep(0.1)
        alice.say(steps=1001, precision="bf16", **starved(time.monotonic() - began, device))
        return daemon.metrics().value("gpu_limited_seconds_total", limiter="input") > 1

    wait_until(is_limited, SECONDS, "the limiter input")
    assert steps("resnet") == 1001
