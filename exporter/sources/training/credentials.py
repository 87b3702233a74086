# SPDX-License-Identifier: Apache-2.0
"""The sender of a datagram according to the kernel, completed from /proc."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterable
from typing import NamedTuple

from exporter.sources.proc.procfs import START_TIME, STATE, read_file, stat_fields

_UCRED = struct.Struct("=iII")
ANCILLARY_BYTES = socket.CMSG_SPACE(_UCRED.size)
"""Space for the sender's credentials alone: file descriptors that it passes are dropped."""

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_DEAD = (b"Z", b"X", b"x")
MOST_ANCESTORS = 32
NO_PROC = "/nonexistent"


class Peer(NamedTuple):
    """The sender of a datagram; pid 0 is a process that this one cannot see."""

    pid: int
    uid: int

    def __str__(self) -> str:
        who = f"pid {self.pid}" if self.pid else "a process outside this pid namespace"
        return f"{who} of uid {self.uid}"


OVERFLOW_UIDS = frozenset({65534, 2**32 - 1})
"""What the kernel puts in the place of a uid that this user namespace does not have."""
FIRST_UID_OF_PEOPLE = 1000


def sender_class(peer: Peer | None) -> str:
    """Return which of ``TRAINING_SENDERS`` sent a datagram."""
    if peer is None or peer.uid in OVERFLOW_UIDS:
        return "unknown"
    if peer.uid >= FIRST_UID_OF_PEOPLE:
        return "user"
    return "system" if peer.uid else "root"


def peer_of(ancillary: Iterable[tuple[int, int, bytes]]) -> Peer | None:
    """Return the sender that the kernel attached to a datagram (SO_PASSCRED), or None."""
    for level, kind, data in ancillary:
        if (
            level == socket.SOL_SOCKET
            and kind == socket.SCM_CREDENTIALS
            and len(data) == _UCRED.size
        ):
            pid, uid, _ = _UCRED.unpack(data)
            return Peer(max(pid, 0), uid)
    return None


class Processes:
    """Reads /proc on the processes that report, if a mount of /proc has them."""

    def __init__(self, *roots: str) -> None:
        """Use the first of these mounts of /proc that is of this process's pid namespace.

        The host's /proc, mounted in a container, numbers processes as the host does, and the
        kernel names senders as the container does.
        """
        self._root = next((root for root in roots if _is_ours(root)), NO_PROC)

    def may_claim(self, pid: int, claimed: int) -> bool:
        """Return False if the process is known and has the pid `claimed` in no namespace."""
        numbers = _status(self._root, pid).get(b"NSpid")
        # Without such a line it is not seen, has ended, or the kernel is older than 4.1.
        return numbers is None or str(claimed).encode() in numbers

    def ancestors(self, pid: int) -> tuple[int, ...]:
        """Return the ancestors of a process in its own pid namespace, nearest first."""
        found: list[int] = []
        status = _status(self._root, pid)
        depth = len(status.get(b"NSpid", ()))
        while len(found) < MOST_ANCESTORS:
            parent = int(next(iter(status.get(b"PPid", ())), 0))
            status = _status(self._root, parent) if parent else {}
            if not depth or len(status.get(b"NSpid", ())) != depth:
                break
            found.append(parent)
        return tuple(found)

    def started(self, pid: int) -> int | None:
        """Return when a process started, in ticks since boot; None if it ended or is not seen."""
        fields = stat_fields(self._root, pid)
        if len(fields) <= START_TIME or fields[STATE] in _DEAD:
            return None
        return int(fields[START_TIME])

    def age_seconds(self, started: int | None) -> float:
        """Return how long a process has run at most: since it started, else since boot."""
        since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
        return since_boot if started is None else since_boot - started / _TICKS_PER_SECOND


def _status(root: str, pid: int) -> dict[bytes, list[bytes]]:
    """Return the words behind each name in /proc/PID/status; nothing of one that ended."""
    lines = read_file(root, pid, "status").split(b"\n")
    return {name: words.split() for name, _, words in (line.partition(b":") for line in lines)}


def _is_ours(root: str) -> bool:
    try:
        return os.readlink(f"{root}/self") == str(os.getpid())
    except OSError:
        return False
