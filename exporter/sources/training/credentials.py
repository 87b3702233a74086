# SPDX-License-Identifier: Apache-2.0
"""Who sent a datagram, as the kernel tells, and whether that process is the one it claims to be."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable
from typing import NamedTuple

MOST_BYTES = 64 * 1024
"""Of a file in /proc no more is read."""

_UCRED = struct.Struct("=iII")
ANCILLARY_BYTES = socket.CMSG_SPACE(_UCRED.size)
"""Room for the sender's credentials alone: file descriptors that it passes are not taken in."""

_STATE = 0
_START_TIME = 19
"""Field 22 of /proc/PID/stat, counted from the one behind the name, which is the third."""
_DEAD = (b"Z", b"X", b"x")


class Peer(NamedTuple):
    """The sender of a datagram; pid 0 is a process that this one cannot see."""

    pid: int
    uid: int

    def __str__(self) -> str:
        who = f"pid {self.pid}" if self.pid else "a process outside this pid namespace"
        return f"{who} of uid {self.uid}"


def peer_of(ancillary: Iterable[tuple[int, int, bytes]]) -> Peer | None:
    """Return the sender that the kernel put beside a datagram (SO_PASSCRED); None without."""
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
    """What /proc says of the processes that report; without a /proc that fits, nothing."""

    def __init__(self, *roots: str) -> None:
        """Take the mounts of /proc to look at; the first in this process's numbering is used.

        The host's /proc, mounted in a container, numbers processes as the host does, and the
        kernel names senders as the container does.
        """
        self._root = next((root for root in roots if _is_ours(root)), None)

    def may_claim(self, pid: int, claimed: int) -> bool:
        """Return False if the process is known and `claimed` is its pid in no namespace."""
        if not pid or self._root is None:
            return True
        for line in _read(f"{self._root}/{pid}/status").split(b"\n"):
            if line.startswith(b"NSpid:"):
                return str(claimed).encode() in line.split()[1:]
        return True  # it has ended, or the kernel is older than 4.1

    def started(self, pid: int) -> int | None:
        """Return when a process started, in ticks since boot; None if it ended or is not seen."""
        if not pid or self._root is None:
            return None
        # The name in brackets may hold blanks and brackets itself.
        fields = _read(f"{self._root}/{pid}/stat").rpartition(b")")[2].split()
        if len(fields) <= _START_TIME or fields[_STATE] in _DEAD:
            return None
        return int(fields[_START_TIME])


def _is_ours(root: str) -> bool:
    try:
        return os.readlink(f"{root}/self") == str(os.getpid())
    except OSError:
        return False


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(MOST_BYTES)
    except OSError:
        return b""
