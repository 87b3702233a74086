# SPDX-License-Identifier: Apache-2.0
"""``pytest --bare``: a machine that has no servers and no browser, in a shell's background job.

Only the tests run that look for such a program or send SIGINT: no other finds a difference.
"""

from __future__ import annotations

import ast
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
    "munged",
    "podman",
    "prometheus*",
    "promtool",
    "slurm*",
    "systemd-analyze",
    "vmagent",
)
"""The programs that tests look for and can do without, as patterns of file names."""
NO_ENGINE = "unix:///nonexistent/docker.sock"

WORDS = frozenset(
    {"require_tool", "StartPrometheus", "StartAlertmanager", "Engine", "OpenPage", "SlurmCluster"}
    | {"SIGINT"}
)
"""What a test, or a fixture of its module, names if it looks for one of them or sends SIGINT."""
HELPERS = "tests.rules.promtool"
"""A module whose functions look for one."""


def differing(text: str) -> frozenset[str]:
    """Return the functions and classes of a module that name such a word, or one that does."""
    body, lines = ast.parse(text).body, text.splitlines()
    words = WORDS | {
        alias.name
        for node in body
        if isinstance(node, ast.ImportFrom) and node.module == HELPERS
        for alias in node.names
    }
    named: dict[str, set[str]] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            first = min(each.lineno for each in (node, *node.decorator_list))
            source = "\n".join(lines[first - 1 : node.end_lineno])
            named[node.name] = set(re.findall(r"\w+", source))
    found: set[str] = set()
    while more := {name for name, used in named.items() if used & (words | found)} - found:
        found |= more
    return frozenset(found)


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
    modules = {path: differing(path.read_text("utf-8")) for path in {each.path for each in items}}

    def differs(item: pytest.Item) -> bool:
        # FILE::function[parameters], or FILE::Class::function[parameters]
        return re.split(r"::|\[", item.nodeid)[1] in modules[item.path]

    others = [item for item in items if not differs(item)]
    items[:] = [item for item in items if differs(item)]
    return others
