# SPDX-License-Identifier: Apache-2.0
"""The CPU cores that a process may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from exporter.sources.proc.procfs import TICKS_PER_SECOND, allowed_cpus, read_file

_IDLE = slice(3, 5)
"""The times idle and iowait of a core in /proc/stat."""


class Cores(NamedTuple):
    """CPU cores that a process may use."""

    number: float
    busy_seconds: float | None
    """How long they were busy, with whosever work: a total; None where that is not counted."""


def cores(procfs: str, sysfs: str, pid: int) -> Cores | None:
    """Return the cores of a process: those of its affinity, or its control groups' quota if that is
    less; None if it cannot be seen."""
    allowed = allowed_cpus(procfs, pid)
    if allowed is None:
        return None
    numbers = _numbers(allowed)
    least = min(_quotas(procfs, sysfs, pid), default=None)
    if least is not None and least[0] < len(numbers):
        usage = _read(least[1]).split()
        word = usage[1] if usage[:1] == ["usage_usec"] else "".join(usage[:1])
        per_second = 1e6 if usage[:1] == ["usage_usec"] else 1e9
        return Cores(least[0], int(word) / per_second if word.isdecimal() else None)
    names = {f"cpu{number}" for number in numbers}
    rows = [row.split() for row in _read(Path(procfs) / "stat").splitlines()]
    times = [list(map(int, row[1:9])) for row in rows if row and row[0] in names]
    busy = [sum(each) - sum(each[_IDLE]) for each in times]
    ticks = sum(busy) if len(busy) == len(numbers) else None
    return Cores(len(numbers), None if ticks is None else ticks / TICKS_PER_SECOND)


def _numbers(ranges: str) -> list[int]:
    ends = [list(map(int, each.split("-"))) for each in ranges.split(",")]
    return [number for each in ends for number in range(each[0], each[-1] + 1)]


def _quotas(procfs: str, sysfs: str, pid: int) -> Iterator[tuple[float, Path]]:
    """Yield the quotas of a process's control groups and of those above, in cores, each with the
    file that counts its use, in microseconds (version 2) or nanoseconds."""
    for controllers, path in _groups(procfs, pid):
        for group in (path, *PurePosixPath(path).parents):
            if not controllers:
                said = _read(Path(f"{sysfs}/fs/cgroup{group}/cpu.max")).split()
                usage = Path(f"{sysfs}/fs/cgroup{group}/cpu.stat")
            elif "cpu" in controllers.split(","):
                folder = Path(f"{sysfs}/fs/cgroup/cpu{group}")
                names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
                said = [_read(folder / name).strip() for name in names]
                usage = Path(f"{sysfs}/fs/cgroup/cpuacct{group}/cpuacct.usage")
            else:
                break
            if len(said) == 2 and all(each.isdecimal() for each in said) and int(said[1]):
                yield int(said[0]) / int(said[1]), usage


def freezer(procfs: str, sysfs: str, pid: int) -> Path | None:
    """Return the file that says whether a process's control group of version 1 is frozen."""
    for controllers, path in _groups(procfs, pid):
        if "freezer" in controllers.split(","):
            return Path(f"{sysfs}/fs/cgroup/freezer{path}/freezer.state")
    return None


def _groups(procfs: str, pid: int) -> Iterator[tuple[str, str]]:
    """Yield controllers (none: version 2) and path of each control group of a process."""
    for line in read_file(procfs, pid, "cgroup").decode("utf-8", "replace").split("\n"):
        _, first, rest = line.partition(":")
        controllers, second, path = rest.partition(":")
        # A group outside the exporter's own root cannot be read.
        if first and second and path.startswith("/") and ".." not in path:
            yield controllers, path


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""
