# SPDX-License-Identifier: Apache-2.0
"""How much memory the host has, and how much of it is in use."""

from __future__ import annotations

from exporter.model.reading import Memory


def host_memory(procfs: str) -> Memory | None:
    """Return the host's memory from /proc/meminfo; None where it cannot be read.

    In use is what is not available: the page cache is.
    """
    try:
        with open(f"{procfs}/meminfo", encoding="ascii") as file:
            sizes = dict(line.split(":", 1) for line in file)
        total, available = (
            int(sizes[name].removesuffix(" kB\n")) * 1024 for name in ("MemTotal", "MemAvailable")
        )
    except (OSError, ValueError, KeyError):
        return None
    return Memory(total, total - available, available, unified=True)
