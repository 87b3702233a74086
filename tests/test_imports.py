# SPDX-License-Identifier: Apache-2.0
"""Data flows one way, and so do the imports."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "exporter"
CLIENT = PACKAGE.parent / "roofline_job"
ANYWHERE = {"errors", "clock", "log", "version", "yaml_lines", "__init__", "pcie", "xids"}
"""Leaves that any module may import."""
MAY_IMPORT: dict[str, set[str]] = {
    "reading": set(),
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
        "specs",
        "status",
    },
    "__main__": {"cli"},
}


def _modules(tree: ast.AST) -> Iterator[str]:
    """Yield the absolute names that a tree imports, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute, but inside roofline_job"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _imports(path: Path) -> Iterator[str]:
    """Yield the parts of the package that a file imports."""
    for name in _modules(ast.parse(path.read_text(encoding="utf-8"))):
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


def test_the_daemon_has_nothing_of_the_client_but_run() -> None:
    """What is in the job and what is on the node are two programs; they may differ in version."""
    found = {
        (_part(path), name)
        for path in FILES
        for name in _modules(ast.parse(path.read_text(encoding="utf-8")))
        if name.partition(".")[0] == "roofline_job"
    }
    assert found == {("cli", "roofline_job.launch")}


# The client

CLIENTS = sorted(CLIENT.rglob("*.py"))


def _of_client(path: Path) -> tuple[set[str], set[str]]:
    """Return the top-level modules and the modules of the client that a file of it imports.

    What only a type checker sees is left out.
    """
    outside, inside = set(), set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for parent in ast.walk(tree):
        if isinstance(parent, ast.If) and "TYPE_CHECKING" in ast.unparse(parent.test):
            parent.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            outside |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            outside.add(str(node.module).partition(".")[0])
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 1
            names = [node.module] if node.module else [alias.name for alias in node.names]
            inside |= {str(name) for name in names}
    return outside, inside


@pytest.mark.parametrize("path", CLIENTS, ids=lambda path: path.name)
def test_the_client_needs_nothing_but_python(path: Path) -> None:
    """A job's environment has none of the daemon's dependencies, and none of its modules."""
    outside, inside = _of_client(path)

    assert outside <= sys.stdlib_module_names | {"_frozen_importlib", "_frozen_importlib_external"}
    assert {name for name in inside if not (CLIENT / f"{name}.py").exists()} == set()


def test_the_clients_modules_form_no_circle() -> None:
    """Each can be read and tested with what it imports; nothing of a job imports the launcher."""
    imports = {path.stem: _of_client(path)[1] for path in CLIENTS if path.parent == CLIENT}
    assert "launch" not in set().union(*imports.values())
    while True:
        leaves = {name for name, needed in imports.items() if not needed & set(imports)}
        if not leaves:
            break
        imports = {name: needed for name, needed in imports.items() if name not in leaves}
    assert imports == {}
