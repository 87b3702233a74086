# SPDX-License-Identifier: Apache-2.0
"""Processes in a /proc of a test's own."""

from __future__ import annotations

from pathlib import Path


def process(
    root: Path,
    pid: int,
    command: bytes = b"python3",
    *,
    started: int | None = 100,
    times: tuple[object, object] = (0, 0),
    **files: bytes | str,
) -> None:
    """Write a process with these files; its start may be hidden."""
    folder = root / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    if started is not None:
        fields = ["S", *["0"] * 10, *map(str, times), *["0"] * 6, str(started), "0", "0"]
        stat = f"{pid} (".encode() + command + f") {' '.join(fields)}".encode()
        (folder / "stat").write_bytes(stat)
    for name, content in {"comm": command + b"\n", **files}.items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
