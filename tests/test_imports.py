# SPDX-License-Identifier: Apache-2.0
"""Data flows one way, and so do the imports."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "exporter"
TRAINING = PACKAGE / "training"
ANYWHERE = {"errors", "clock", "log", "version", "yaml_lines", "__init__", "pcie", "xids"}
"""Leaves that any module may import."""
MAY_IMPORT: dict[str, set[str]] = {
    "reading": set(),
    "training": set(),
    "run": set(),
    "snapshot": {"reading"},
    "recording": {"reading"},
    "sources": {"reading", "recording", "specs"},
    "specs": {"reading", "snapshot"},
    "derive": {"reading", "snapshot"},
    "session": {"reading", "sources"},
    "slots": {"reading", "sources"},
    "rounds": {"slots"},
    "worker": {"reading", "session", "slots", "sources"},
    "complaints": set(),
    "fleet": {"complaints", "reading", "rounds", "session", "slots", "sources", "worker"},
    "integrate": {"derive", "reading", "snapshot"},
    "ranks": {"derive", "reading", "snapshot"},
    "shares": {"derive", "integrate", "ranks", "reading", "snapshot"},
    "tracking": {"derive", "integrate", "ranks", "reading", "shares", "snapshot", "specs"},
    "publisher": {"ranks", "reading", "snapshot", "specs", "tracking"},
    "nodes": {
        "config",
        "fleet",
        "publisher",
        "reading",
        "recording",
        "session",
        "sources",
        "specs",
    },
    "recorder": {"config", "nodes", "publisher", "recording", "specs"},
    "waits": {"snapshot"},
    "history": {"reading", "snapshot", "waits"},
    "store": {"history", "snapshot"},
    "exposition": {"reading", "snapshot"},
    "web": {"derive", "exposition", "history", "reading", "snapshot", "specs", "store", "waits"},
    "config": {"recording", "sources", "specs"},
    "ask": {"config"},
    "healthcheck": {"ask", "config"},
    "terminal": set(),
    "table": {"terminal"},
    "status": {"ask", "config", "daemon", "table", "terminal", "web"},
    "datasheet": {"config", "specs", "table", "terminal", "web"},
    "daemon": {
        "config",
        "derive",
        "exposition",
        "fleet",
        "nodes",
        "publisher",
        "specs",
        "store",
        "tracking",
        "web",
    },
    "cli": {
        "ask",
        "config",
        "daemon",
        "datasheet",
        "healthcheck",
        "nodes",
        "recorder",
        "run",
        "specs",
        "status",
    },
    "__main__": {"cli"},
}


def _imports(path: Path) -> Iterator[str]:
    """Yield the parts of the package that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                inside = node.level == 1 and path.parent == TRAINING
                assert inside, f"{path}: imports are absolute, but inside the training client"
            names = [f"{node.module}.{alias.name}" for alias in node.names if not node.level]
        for name in names:
            package, _, rest = name.partition(".")
            part = rest.partition(".")[0]
            if package == "exporter":
                exists = (PACKAGE / f"{part}.py").exists() or (PACKAGE / part).is_dir()
                yield part if part and exists else "__init__"


def _part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_import_goes_back(path: Path) -> None:
    """Each part imports only itself, the leaves, and what comes before it."""
    part = _part(path)
    if part in ANYWHERE:
        allowed = ANYWHERE
    else:
        assert part in MAY_IMPORT, f"say in MAY_IMPORT what {part} may import"
        allowed = MAY_IMPORT[part] | ANYWHERE | {part}

    assert set(_imports(path)) <= allowed


def test_the_graph_names_only_what_exists() -> None:
    """A part that was removed must leave the table too."""
    assert set(MAY_IMPORT) | ANYWHERE == {_part(path) for path in FILES}


@pytest.mark.parametrize("path", sorted(TRAINING.rglob("*.py")), ids=lambda path: path.name)
def test_the_client_needs_nothing_but_python(path: Path) -> None:
    """A job's environment has none of the daemon's dependencies, and none of its modules."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module).partition(".")[0])

    assert found <= sys.stdlib_module_names | {"_frozen_importlib", "_frozen_importlib_external"}
