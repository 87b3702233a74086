# SPDX-License-Identifier: Apache-2.0
"""The CPU cores that a process may use, and how long tasks of its control group waited (PSI)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from exporter.sources.proc.procfs import read_file

_ALLOWED = b"Cpus_allowed_list:"


def cores(procfs: str, sysfs: str, pid: int) -> float | None:
    """Return how many cores a process may use: those of its affinity, or its control groups' quota
    if that is less; None if it cannot be seen."""
    allowed = [
        line.partition(_ALLOWED)[2].decode().strip()
        for line in read_file(procfs, pid, "status").split(b"\n")
        if line.startswith(_ALLOWED)
    ]
    if not allowed:
        return None
    return min([float(_count(allowed[0])), *_quotas(procfs, sysfs, pid)])


def _count(ranges: str) -> int:
    """Return how many numbers are in ranges such as 0-3,8."""
    ends = [each.split("-") for each in ranges.split(",")]
    return sum(int(each[-1]) - int(each[0]) + 1 for each in ends)


def _quotas(procfs: str, sysfs: str, pid: int) -> Iterator[float]:
    """Yield the quotas of a process's control groups and of those above, in cores."""
    for controllers, path in _groups(procfs, pid):
        for group in (path, *PurePosixPath(path).parents):
            if not controllers:
                said = _read(Path(f"{sysfs}/fs/cgroup{group}/cpu.max")).split()
            elif "cpu" in controllers.split(","):
                folder = Path(f"{sysfs}/fs/cgroup/cpu{group}")
                names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
                said = [_read(folder / name).strip() for name in names]
            else:
                break
            if len(said) == 2 and all(each.isdecimal() for each in said) and int(said[1]):
                yield int(said[0]) / int(said[1])


def _groups(procfs: str, pid: int) -> Iterator[tuple[str, str]]:
    """Yield controllers (none: version 2) and path of each control group of a process."""
    for line in read_file(procfs, pid, "cgroup").decode("utf-8", "replace").split("\n"):
        _, first, rest = line.partition(":")
        controllers, second, path = rest.partition(":")
        # A group outside the exporter's own root cannot be read.
        if first and second and path.startswith("/") and ".." not in path:
            yield controllers, path


def pressure_seconds(procfs: str, sysfs: str, pid: int, resource: str) -> float | None:
    """Return how long some task of a process's control group, or else of the node, has waited for
    cpu or io; None where the kernel does not count it."""
    paths = [
        Path(f"{sysfs}/fs/cgroup{path}/{resource}.pressure")
        for controllers, path in _groups(procfs, pid)
        if not controllers
    ]
    for path in (*paths, Path(procfs) / "pressure" / resource):
        total = _read(path).partition("some ")[2].partition("total=")[2].partition("\n")[0]
        if total.isdecimal():
            return int(total) / 1e6
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""
