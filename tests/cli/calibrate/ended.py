# SPDX-License-Identifier: Apache-2.0
"""Whether a process has ended."""

from __future__ import annotations

from pathlib import Path


def ended(pid: int) -> bool:
    """Return whether there is no such process, or only what its parent has not looked at."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return status.rpartition(")")[2].split()[0] == "Z"
