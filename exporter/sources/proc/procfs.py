# SPDX-License-Identifier: Apache-2.0
"""What /proc shows of processes (identity, CPU time, libraries) and of the host's memory."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterable
from dataclasses import dataclass

from exporter.model.reading import Memory
from exporter.sources.proc.work_class import classify

LONGEST_NAME_BYTES = 32
MOST_BYTES = 64 * 1024
"""The rest of a longer file, such as a command line or an environment, is not read."""
LONGEST_LIST = 4096
"""Of CPUs, in characters; a longer one is not known, as part of it would mislead."""
STATE, START_TIME = 0, 19
"""Fields 3 and 22 of /proc/PID/stat, counted from the third, which follows the name."""
TIMES = slice(11, 13)
"""Fields 14 and 15 of /proc/PID/stat (utime, stime), counted from the third: of all threads."""
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
MOST_MAPS_BYTES = 4 * 1024 * 1024
"""A process that has loaded much has 300 kB of mappings; the rest of a longer list is not read."""
LOOK_AGAIN_SECONDS = 60.0
"""Jobs import late: a process is looked at again after this time."""
PID_NAMESPACE = "/proc/self/ns/pid"
HOSTS_PID_NAMESPACE = "pid:[4026531836]"
"""The kernel gives the first pid namespace this number (PROC_PID_INIT_INO)."""
_LIBRARY = re.compile(rb"/(?:lib)?transformer_engine[^/\n]*\.so")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a process is; None is what is not known."""

    command: str | None = None
    owner: str | None = None
    work_class: str | None = None


class Identities:
    """Who the processes on a GPU are; a process is identified once, when it is new.

    Its arguments and environment are only used to classify its work, and are not kept.
    """

    def __init__(self, procfs: str, *, owners: bool = True) -> None:
        self._procfs = procfs
        self._owners = owners
        self._known: dict[tuple[int, int | None, str | None], Identity] = {}
        """By PID, start time and name: PIDs are used again, and names can change."""

    def of(self, pids: Iterable[int]) -> dict[int, Identity]:
        """Return who these processes are, by PID; all others are forgotten."""
        known: dict[tuple[int, int | None, str | None], Identity] = {}
        found: dict[int, Identity] = {}
        for pid in set(pids):
            key = (pid, start_time(self._procfs, pid), command_name(self._procfs, pid))
            found[pid] = self._known.get(key) or self._identify(*key)
            if key[1] is not None and found[pid].command is not None:
                known[key] = found[pid]
        self._known = known
        return found

    def _identify(self, pid: int, started: int | None, command: str | None) -> Identity:
        if command is None:
            return Identity(owner=self._owner(pid))
        work_class = classify(
            arguments(self._procfs, pid), variable_names(self._procfs, pid), command
        )
        owner = self._owner(pid)
        now = start_time(self._procfs, pid)
        if now is not None and now != started:
            return Identity()  # another process has the PID now
        return Identity(command, owner, work_class)

    def _owner(self, pid: int) -> str | None:
        return owner(self._procfs, pid) if self._owners else None


def sees_the_hosts_processes() -> bool:
    """Return whether this process is in the host's pid namespace."""
    try:
        return os.readlink(PID_NAMESPACE) == HOSTS_PID_NAMESPACE
    except OSError:
        return False


def command_name(procfs: str, pid: int) -> str | None:
    """Return the command's name in at most 32 bytes of printable text, whatever the process calls
    itself; None if it cannot be seen."""
    name = read_file(procfs, pid, "comm")[:LONGEST_NAME_BYTES]
    return _shown(name.decode("utf-8", "replace").rstrip("\n")) or None


def owner(procfs: str, pid: int) -> str | None:
    """Return the name of the process's user, or the UID if it has no name; None if not visible."""
    try:
        uid = os.stat(f"{procfs}/{pid}").st_uid
    except OSError:
        return None
    return user_name(uid)


def user_name(uid: int) -> str:
    """Return a user's name, or the UID if it has no name."""
    try:
        return _shown(pwd.getpwuid(uid).pw_name) or str(uid)
    except KeyError:
        return str(uid)


def start_time(procfs: str, pid: int) -> int | None:
    """Return when the process started, in clock ticks since boot; None if it cannot be seen."""
    try:
        return int(stat_fields(procfs, pid)[START_TIME])
    except (IndexError, ValueError):
        return None


def allowed_cpus(procfs: str, pid: int) -> str | None:
    """Return the CPUs that a process may run on, as the kernel writes a list; None if not known."""
    _, _, rest = read_file(procfs, pid, "status").partition(b"\nCpus_allowed_list:")
    listed = rest.partition(b"\n")[0].decode("ascii", "replace").strip()
    return listed if 0 < len(listed) <= LONGEST_LIST else None


def stat_fields(procfs: str, pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the third on; empty if it cannot be read."""
    # The name in brackets may hold blanks and brackets itself.
    return read_file(procfs, pid, "stat").rpartition(b")")[2].split()


def arguments(procfs: str, pid: int) -> tuple[str, ...]:
    """Return the command line; empty if it cannot be read."""
    line = read_file(procfs, pid, "cmdline").rstrip(b"\0")
    return tuple(line.decode("utf-8", "replace").split("\0")) if line else ()


def variable_names(procfs: str, pid: int) -> frozenset[str]:
    """Return the names in the environment, without values; empty if it cannot be read."""
    environment = read_file(procfs, pid, "environ")
    return frozenset(
        name.decode("utf-8", "replace")
        for name, equals, _ in (entry.partition(b"=") for entry in environment.split(b"\0"))
        if equals
    )


def read_file(procfs: str, pid: int, file: str) -> bytes:
    """Return the first 64 KiB of a file in /proc/PID; empty if it cannot be read."""
    try:
        with open(f"{procfs}/{pid}/{file}", "rb") as opened:
            return opened.read(MOST_BYTES)
    except OSError:
        return b""


def _shown(name: str) -> str:
    """Return printable text of at most 32 bytes."""
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
    return printable.encode()[:LONGEST_NAME_BYTES].decode("utf-8", "ignore")


class CpuUse:
    """The CPU time of the processes on one GPU between two reads."""

    def __init__(self, procfs: str) -> None:
        self._procfs = procfs
        self._reads: dict[tuple[int, int], tuple[int, float]] = {}
        """Ticks and the time of the read, by PID and start time: PIDs are used again."""

    def of(self, pids: Iterable[int], now: float) -> dict[int, float]:
        """Return by PID how many cores were busy up to the monotonic time `now`.

        A process that is new, or cannot be seen, is left out; all others are forgotten.
        """
        found: dict[int, float] = {}
        before, self._reads = self._reads, {}
        for pid in set(pids):
            fields = stat_fields(self._procfs, pid)
            try:
                key, ticks = (pid, int(fields[START_TIME])), sum(map(int, fields[TIMES]))
            except (IndexError, ValueError):
                continue
            self._reads[key] = ticks, now
            ticks_before, at = before.get(key, (0, now))
            if now > at:
                found[pid] = max(0.0, (ticks - ticks_before) / TICKS_PER_SECOND / (now - at))
        return found


class Mapped:
    """The processes on one GPU, by whether they have mapped Transformer Engine."""

    def __init__(self, procfs: str) -> None:
        self._procfs = procfs
        self._looks: dict[tuple[int, int], tuple[bool | None, float]] = {}
        """The last answer and when it was read, by PID and start time: PIDs are used again."""

    def of(self, pids: Iterable[int], now: float) -> dict[int, bool | None]:
        """Return whether it is mapped, by PID, at the monotonic time `now`; None if unreadable. All
        other processes are forgotten."""
        found: dict[int, bool | None] = dict.fromkeys(pids)
        before, self._looks = self._looks, {}
        for pid in found:
            started = start_time(self._procfs, pid)
            if started is None:
                continue
            is_mapped, at = before.get((pid, started), (None, float("-inf")))
            if not is_mapped and now >= at + LOOK_AGAIN_SECONDS:
                is_mapped, at = maps_transformer_engine(self._procfs, pid), now
            self._looks[pid, started] = is_mapped, at
            found[pid] = is_mapped
        return found


def maps_transformer_engine(procfs: str, pid: int) -> bool | None:
    """Return whether a process has mapped a library of Transformer Engine; None where its mappings
    cannot be read: they are for its own user and for root."""
    try:
        with open(f"{procfs}/{pid}/maps", "rb") as file:
            return _LIBRARY.search(file.read(MOST_MAPS_BYTES)) is not None
    except OSError:
        return None


def host_memory(procfs: str) -> Memory | None:
    """Return the host's memory from /proc/meminfo; None where it cannot be read. In use is what is
    not available: the page cache is."""
    try:
        with open(f"{procfs}/meminfo", encoding="ascii") as file:
            sizes = dict(line.split(":", 1) for line in file)
        total, available = (
            int(sizes[name].removesuffix(" kB\n")) * 1024 for name in ("MemTotal", "MemAvailable")
        )
    except (OSError, ValueError, KeyError):
        return None
    return Memory(total, total - available, available, unified=True)
