# SPDX-License-Identifier: Apache-2.0
"""The socket of the training jobs: floods from any user, and what stands where it is made."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.abuse.conftest import StartDemo
from tests.abuse.target import Record, under_attack
from tests.conftest import unmet
from tests.e2e.processes import environment
from tests.waiting import wait_until

EVE, ALICE = 61012, 61011
FLOOD_SECONDS = 2.5
FLOOD = """
import json, os, socket, sys, time
path, uid, seconds, kind = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
if uid:
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sender.setblocking(False)
end, number, sent = time.monotonic() + seconds, 0, 0
while time.monotonic() < end:
    number += 1
    if kind == "junk":
        data = os.urandom(64)
    elif kind == "large":
        data = b"{" * 8193
    else:
        data = json.dumps({"version": 1, "id": f"{number:032x}", "sequence": 1, "pid": os.getpid(),
            "job": f"job {number}", "rank": 0, "steps": 1, "batches": 1, "step_seconds": 0.0,
            "phase_seconds": {}}).encode()
    try:
        sender.sendto(data, path)
        sent += 1
    except OSError:
        time.sleep(0.0005)
print(sent)
"""
"""It becomes another user only once it runs: the interpreter may be in a folder of root's."""


@pytest.fixture(name="socket_path")
def _socket_path() -> Iterator[Path]:
    """A path that every user can reach."""
    with tempfile.TemporaryDirectory(prefix="roofline-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder) / "t.sock"


def sender(path: Path, uid: int, seconds: float, kind: str) -> subprocess.Popen[str]:
    """Start a flood."""
    return subprocess.Popen(
        [sys.executable, "-I", "-c", FLOOD, str(path), str(uid), str(seconds), kind],
        cwd="/",
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("uid", [0, EVE], ids=["root", "a user"])
def test_a_flood_of_datagrams(
    start_demo: StartDemo, socket_path: Path, uid: int, record_property: Record
) -> None:
    """Three senders at full speed, and a job of another user whose reports arrive all the same."""
    if os.geteuid() != 0:
        unmet("two users need a test that runs as root")
    daemon = start_demo(f"--training.socket={socket_path}")
    name = f"3 floods of datagrams, uid {uid}"

    def taken() -> float:
        return daemon.metrics().value("roofline_exporter_training_reports_total")

    with under_attack(daemon, name, record_property):
        floods = [
            sender(socket_path, uid, FLOOD_SECONDS, kind) for kind in ("junk", "large", "jobs")
        ]
        before = taken()
        sent = [int(each.communicate()[0]) for each in floods]
        assert min(sent) > 100
        good = sender(socket_path, ALICE, 1.5, "jobs")
        good.communicate()
        wait_until(lambda: taken() > before, 10, "a report of another user")
    refused = daemon.metrics().rows("roofline_exporter_training_rejected_total")
    assert sum(value for _, value in refused) > 100
    uids = json.dumps([labels for labels, _ in refused])
    assert str(EVE) not in uids
    jobs = daemon.metrics().rows("gpu_training_steps_total")
    assert len(jobs) <= 2 * 64 + 16


def test_the_socket_is_swapped_while_it_serves(start_demo: StartDemo, socket_path: Path) -> None:
    """The daemon makes a new one, removes nothing that is not its own, and goes on."""
    daemon = start_demo(f"--training.socket={socket_path}")
    wait_until(socket_path.exists, what="the socket")
    victim = socket_path.with_name("victim")
    victim.write_text("kept")
    os.chmod(victim, 0o600)
    socket_path.unlink()
    socket_path.symlink_to(victim)
    deadline = time.monotonic() + 7
    while time.monotonic() < deadline:
        assert daemon.get("/-/healthy").status == 200
        time.sleep(0.2)
    code, _ = daemon.stop()
    assert code == 0
    assert victim.read_text() == "kept"
    assert victim.stat().st_mode & 0o777 == 0o600
    with contextlib.suppress(FileNotFoundError):
        assert socket_path.is_symlink()
