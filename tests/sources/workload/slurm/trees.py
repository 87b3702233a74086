# SPDX-License-Identifier: Apache-2.0
"""Control groups and processes of Slurm as files: a /sys and a /proc of a test's own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

SLUID = "s01ARZ3NDEKTSV"
SCOPE = "system.slice/slurmstepd.scope"


class Node:
    """A node that has nothing yet."""

    def __init__(self, root: Path) -> None:
        self.sysfs = root / "sys"
        self.procfs = root / "proc"
        self.groups = self.sysfs / "fs/cgroup"
        for folder in (self.groups, self.procfs):
            folder.mkdir(parents=True)

    def group(self, path: str, pids: Iterable[int] = ()) -> Path:
        """Make a control group with these processes."""
        folder = self.groups / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
        return folder

    def process(self, pid: int, arguments: str = "", environment: str = "") -> int:
        """Make a process; a | separates arguments and variables."""
        folder = self.procfs / str(pid)
        folder.mkdir(exist_ok=True)
        for name, text in (("cmdline", arguments), ("environ", environment)):
            (folder / name).write_bytes(text.replace("|", "\0").encode())
        return pid

    def booted(self, unix_seconds: int) -> None:
        """Write when the node was booted."""
        (self.procfs / "stat").write_text(f"cpu 1 2\nintr {'0 ' * 9000}\nbtime {unix_seconds}\n")
