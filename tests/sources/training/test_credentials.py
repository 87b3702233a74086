# SPDX-License-Identifier: Apache-2.0
"""The kernel says who sends; /proc says whether that fits."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.sources.training.credentials import (
    Peer,
    Processes,
    peer_of,
    sender_class,
)

MINE = Processes("/proc")
PEER = Peer(4242, 1000)


@pytest.fixture(name="tree")
def _tree(tmp_path: Path) -> Path:
    """A stand-in for /proc in this process's numbering, with one process, 4242."""
    (tmp_path / "self").symlink_to(str(os.getpid()))
    (tmp_path / "4242").mkdir()
    (tmp_path / "4242" / "status").write_text("Name:\tNSpid:\t9\nPid:\t4242\nNSpid:\t4242\t17\t1\n")
    (tmp_path / "4242" / "stat").write_text(
        "4242 (a ) b (c) R 1 " + " ".join(str(field) for field in range(5, 53)) + "\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("claimed", "fits"), [(4242, True), (17, True), (1, True), (9, False), (42, False)]
)
def test_a_process_may_be_known_by_its_pid_in_any_namespace(
    tree: Path, claimed: int, fits: bool
) -> None:
    """From the host's down to the innermost container's."""
    assert Processes(str(tree)).may_claim(4242, claimed) is fits


def test_what_cannot_be_seen_is_believed(tree: Path) -> None:
    """Outside the namespace, already ended, or on a kernel that does not say."""
    (tree / "4242" / "status").write_text("Pid:\t4242\n")
    processes = Processes(str(tree))

    assert processes.may_claim(0, 5)
    assert processes.may_claim(4243, 5)
    assert processes.may_claim(4242, 5)
    assert processes.started(0) is None
    assert processes.started(4243) is None


def test_a_proc_of_another_numbering_is_not_asked(tree: Path) -> None:
    """The host's /proc in a container: the kernel names senders as the container does."""
    (tree / "self").unlink()
    (tree / "self").symlink_to("1234567")

    assert Processes(str(tree)).may_claim(4242, 9)
    assert Processes(str(tree), "/proc").started(os.getpid()) is not None
    assert Processes(str(tree / "missing")).started(os.getpid()) is None


def test_a_process_that_was_killed_but_not_waited_for_is_gone() -> None:
    """A container without an init leaves such behind."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert MINE.started(child.pid) is not None
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{child.pid}").exists()
    assert MINE.started(child.pid) is None
    child.communicate()
    assert MINE.started(child.pid) is None


def test_the_kernel_names_the_sender() -> None:
    """What stands beside a datagram, or nothing."""
    credentials = (
        socket.SOL_SOCKET,
        socket.SCM_CREDENTIALS,
        b"\x92\x10\0\0\xe8\x03\0\0\xe8\x03\0\0",
    )

    assert peer_of([(socket.SOL_SOCKET, socket.SCM_RIGHTS, b"\0" * 12), credentials]) == PEER
    assert str(PEER) == "pid 4242 of uid 1000"
    assert str(Peer(0, 65534)) == "a process outside this pid namespace of uid 65534"
    assert peer_of([]) is None
    assert peer_of([(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, b"\0" * 4)]) is None


def _process(tree: Path, pid: int, parent: int, *numbers: int) -> None:
    (tree / str(pid)).mkdir(exist_ok=True)
    namespaces = " ".join(map(str, numbers))
    text = f"Name:\tPPid:\t9\nPid:\t{pid}\nPPid:\t{parent}\nNSpid:\t{namespaces}\n"
    (tree / str(pid) / "status").write_text(text)


def test_ancestors_are_those_in_the_same_namespace(tree: Path) -> None:
    """A container's processes end with its first one; what started the container is another's."""
    _process(tree, 1, 0, 1)
    _process(tree, 300, 1, 300)
    _process(tree, 500, 300, 500, 1)
    _process(tree, 600, 500, 600, 7)
    _process(tree, 700, 600, 700, 8)
    processes = Processes(str(tree))

    assert processes.ancestors(700) == (600, 500)
    assert processes.ancestors(500) == ()
    assert processes.ancestors(300) == (1,)
    assert processes.ancestors(0) == ()
    assert processes.ancestors(999) == ()


def test_the_age_of_a_process() -> None:
    """Since its start; what cannot be seen is no older than the machine's uptime."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    age = MINE.age_seconds(MINE.started(child.pid))
    child.communicate(b"\n")
    uptime = float(Path("/proc/uptime").read_text().split()[0])

    assert -0.1 < age < 30
    assert MINE.age_seconds(None) == pytest.approx(uptime, abs=5)


@pytest.mark.parametrize(
    ("uid", "expected"),
    [
        (0, "root"),
        (999, "system"),
        (1000, "user"),
        (65534, "unknown"),
        (2**32 - 1, "unknown"),
    ],
)
def test_senders_are_counted_by_class(uid: int, expected: str) -> None:
    """Services, people, and those of another user namespace; never by uid."""
    assert sender_class(Peer(1, uid)) == expected
    assert sender_class(None) == "unknown"
