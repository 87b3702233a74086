# SPDX-License-Identifier: Apache-2.0
"""Run a command under the seccomp filters that systemd makes of the unit: no systemd is started.

``python confined.py UNIT COMMAND …``: SystemCallFilter, RestrictAddressFamilies,
MemoryDenyWriteExecute, NoNewPrivileges, UMask and LimitNOFILE are what the unit says.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import mmap
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

LIBRARY = ctypes.util.find_library("seccomp")
ALLOW, FAIL = 0x7FFF0000, 0x00050000
EQUAL, MASKED_EQUAL = 4, 7
NO_NEW_PRIVILEGES = 38
FAMILIES = 46
"""AF_MAX: every address family has a smaller number."""
UNKNOWN = -1


class Comparison(ctypes.Structure):
    """What an argument of a system call is compared with (``struct scmp_arg_cmp``)."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


def settings(unit: Path) -> dict[str, list[str]]:
    """The values of each setting of a unit, in their order; an empty one forgets those before."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text(encoding="utf-8").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found[name] = [*found.get(name, []), value] if value else []
    return found


def system_calls(filters: list[str]) -> frozenset[str]:
    """The system calls that SystemCallFilter leaves, with systemd's groups expanded."""
    allowed: set[str] = set()
    for line in filters:
        names = {name for word in line.lstrip("~").split() for name in _expanded(word)}
        allowed = allowed - names if line.startswith("~") else allowed | names
    return frozenset(allowed)


def _expanded(word: str) -> set[str]:
    if not word.startswith("@"):
        return {word}
    listed = subprocess.check_output(["systemd-analyze", "syscall-filter", word], text=True)
    words = [line.strip() for line in listed.splitlines()[1:]]
    return {name for each in words if each and each[0] != "#" for name in _expanded(each)}


class Filter:
    """One seccomp filter; what was loaded once holds for good."""

    def __init__(self, action: int) -> None:
        self._seccomp = ctypes.CDLL(LIBRARY)
        self._seccomp.seccomp_init.restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(self._seccomp.seccomp_init(ctypes.c_uint32(action)))

    def add(self, action: int, name: str, *comparisons: Comparison) -> None:
        """Answer a call so, if its arguments compare; a name that this kernel lacks is left out."""
        number = self._seccomp.seccomp_syscall_resolve_name(name.encode())
        if number == UNKNOWN:
            return
        self._seccomp.seccomp_rule_add_array(
            self._context,
            ctypes.c_uint32(action),
            number,
            len(comparisons),
            (Comparison * len(comparisons))(*comparisons),
        )

    def load(self) -> None:
        """Put it into force."""
        if self._seccomp.seccomp_load(self._context) != 0:
            raise OSError("the kernel refused a filter")


def confine(unit: Path) -> None:
    """Put this process, and what it starts, under the restrictions of a unit."""
    given = settings(unit)
    allowed = system_calls(given["SystemCallFilter"])
    assert given["MemoryDenyWriteExecute"] == given["NoNewPrivileges"] == ["yes"]
    os.umask(int(given["UMask"][-1], 8))
    files = int(given["LimitNOFILE"][-1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    ctypes.CDLL(None).prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)

    sockets = Filter(ALLOW)
    kept = {int(getattr(socket, name)) for name in given["RestrictAddressFamilies"][-1].split()}
    for family in set(range(FAMILIES)) - kept:
        sockets.add(FAIL | errno.EAFNOSUPPORT, "socket", Comparison(0, EQUAL, family, 0))
    sockets.load()

    memory = Filter(ALLOW)
    both = mmap.PROT_WRITE | mmap.PROT_EXEC
    memory.add(FAIL | errno.EPERM, "mmap", Comparison(2, MASKED_EQUAL, both, both))
    for name in ("mprotect", "pkey_mprotect"):
        executable = Comparison(2, MASKED_EQUAL, mmap.PROT_EXEC, mmap.PROT_EXEC)
        memory.add(FAIL | errno.EPERM, name, executable)
    memory.load()

    calls = Filter(FAIL | errno.EPERM)
    for name in sorted(allowed):
        calls.add(ALLOW, name)
    calls.load()


if __name__ == "__main__":
    confine(Path(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
