# SPDX-License-Identifier: Apache-2.0
"""Who a process is, from /proc: its command's name and its owner."""

from __future__ import annotations

import os
import pwd

LONGEST_NAME_BYTES = 32


def command_name(procfs: str, pid: int) -> str | None:
    """Return the command's name, without arguments; None if the process cannot be seen."""
    try:
        with open(f"{procfs}/{pid}/comm", "rb") as file:
            name = file.read(LONGEST_NAME_BYTES)
    except OSError:
        return None
    return name.decode("utf-8", "replace").rstrip("\n") or None


def owner(procfs: str, pid: int) -> str | None:
    """Return the user's name, or the number of a user without one; None if it cannot be seen."""
    try:
        uid = os.stat(f"{procfs}/{pid}").st_uid
    except OSError:
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
