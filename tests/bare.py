# SPDX-License-Identifier: Apache-2.0
"""``pytest --bare``: a machine that has no servers and no browser, in a shell's background job.

Only the tests run that look for such a program or send SIGINT: no other finds a difference.
"""

from __future__ import annotations

import os
import re
import signal
from fnmatch import fnmatch
from pathlib import Path

import pytest

ABSENT = (
    "amtool",
    "chromium*",
    "docker*",
    "google-chrome*",
    "prometheus*",
    "promtool",
    "systemd-analyze",
)
"""The programs that tests look for and can do without, as patterns of file names."""
NO_ENGINE = "unix:///nonexistent/docker.sock"

_DIFFERS = re.compile(r"\b(?:require_tool|promtool|StartPrometheus|Engine|OpenPage|SIGINT)\b")
"""The words by which a module of tests shows that it looks for one of them or sends SIGINT."""


def differs(module: Path) -> bool:
    """Whether tests of a module may meet a difference."""
    return _DIFFERS.search(module.read_text(encoding="utf-8")) is not None


def hide_programs(folder: Path) -> None:
    """Leave every program on the PATH but those, through links in a folder; and no engine."""
    for directory in os.get_exec_path():
        for program in Path(directory).glob("*"):
            link = folder / program.name
            if not link.exists() and not any(fnmatch(program.name, name) for name in ABSENT):
                link.unlink(missing_ok=True)
                link.symlink_to(program.absolute())
    os.environ |= {"PATH": str(folder), "DOCKER_HOST": NO_ENGINE}
    os.environ.pop("REQUIRE_ALL", None)


def ignore_interrupts() -> None:
    """Ignore SIGINT, as what ``nohup`` or a script starts in the background does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def only_what_differs(items: list[pytest.Item]) -> list[pytest.Item]:
    """Keep the tests that may meet a difference; return the others."""
    modules = {module: differs(module) for module in {item.path for item in items}}
    others = [item for item in items if not modules[item.path]]
    items[:] = [item for item in items if modules[item.path]]
    return others
