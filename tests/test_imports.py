# SPDX-License-Identifier: Apache-2.0
"""Data flows one way, and so do the imports."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "exporter"
CLIENT = PACKAGE.parent / "roofline_job"
FOLDERS = [path.parent for path in (PACKAGE / "sources").glob("*/__init__.py")]
LOOSE = {"errors", "clock", "exchange", "files", "installation", "log", "version", "yaml_lines"}
"""The only modules outside a room; any module may import them."""
ARROWS: dict[str, set[str]] = {
    "model": set(),
    "specs": {"model"},
    "derive": {"model"},
    "sources": {"model", "specs"},
    "publisher": {"model", "specs", "derive"},
    "exposition": {"model"},
    "web": {"model", "specs", "derive", "exposition"},
    "cli": {"model", "specs", "derive", "sources", "publisher", "exposition", "web"},
}
"""The rooms, and which others each may import."""


def _modules(tree: ast.AST) -> Iterator[str]:
    """Yield the absolute names that a tree imports, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute, but inside roofline_job"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _name(path: Path) -> str:
    """Return the dotted name of a file's module, without the package's own."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def _imports(module: str) -> set[str]:
    """Return the modules of the package that one of them imports."""
    found = set()
    for name in _modules(ast.parse(FILES[module].read_text(encoding="utf-8"))):
        package, _, rest = name.partition(".")
        if package == "exporter":
            found.add(rest if rest in FILES else rest.rpartition(".")[0])
    return found - {module}


def _room(module: str) -> str:
    return module.partition(".")[0]


@pytest.mark.parametrize("module", [name for name in FILES if _room(name) in ARROWS])
def test_no_import_goes_back(module: str) -> None:
    """Each room imports only itself, what is loose, and the rooms before it."""
    allowed = ARROWS[_room(module)] | {_room(module), "", *LOOSE}

    assert {name for name in _imports(module) if _room(name) not in allowed} == set()


def test_what_is_loose_imports_no_room() -> None:
    """It is what everything else stands on."""
    imported = {_room(name) for module in LOOSE for name in _imports(module)}
    assert imported <= LOOSE | {""}


def test_there_are_only_the_rooms_and_what_is_loose() -> None:
    """Whoever adds a module finds the room for it; `python -m exporter` needs its entry."""
    assert {_room(module) for module in FILES} == {*ARROWS, *LOOSE, "", "__main__"}


@pytest.mark.parametrize("room", [*ARROWS, *sorted(f"sources.{path.name}" for path in FOLDERS)])
def test_every_room_says_what_is_in_it(room: str) -> None:
    """The docstring of its package; that of a room also names what it may import."""
    text = ast.get_docstring(ast.parse(FILES[room].read_text(encoding="utf-8"))) or ""

    if room in ARROWS:
        said = re.search(r"(?:[Ii]mports?) (.*)\.$", text)
        assert said is not None
        others = ARROWS[room]
        named = {name for name in ARROWS if re.search(rf"\b{name}\b", said[1])}
        assert named == others or (said[1] in ("no other room", "every other room"))
    assert len(text) > 20


def test_no_module_imports_itself_around_a_corner() -> None:
    """Each can be read and tested with what it imports."""
    assert _circles({module: _imports(module) for module in FILES}) == {}


def _circles(imports: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the circles of a graph: what is left once every leaf is taken off, again and again."""
    while leaves := {name for name, needed in imports.items() if not needed & set(imports)}:
        imports = {name: needed for name, needed in imports.items() if name not in leaves}
    return imports


def test_the_daemon_has_nothing_of_the_client_but_run_and_causes() -> None:
    """What is in the job and what is on the node are two programs; they may differ in version. Each
    judges and says causes by its own copy of one module, which is data and pure functions."""
    found = {
        (module, name)
        for module, path in FILES.items()
        for name in _modules(ast.parse(path.read_text(encoding="utf-8")))
        if name.partition(".")[0] == "roofline_job"
    }
    others = {each for each in found if not each[1].startswith("roofline_job.causes.")}
    assert others == {("cli.main", "roofline_job.launch")}
    assert {_room(module) for module, _ in found - others} == {*("model", "derive", "web", "cli")}
    assert _of_client(CLIENT / "causes.py")[1] == set()


# The client

CLIENTS = sorted(CLIENT.rglob("*.py"))


def _of_client(path: Path) -> tuple[set[str], set[str]]:
    """Return the top-level modules and the modules of the client that a file of it imports."""
    outside, inside = set(), set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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
    if path.name == "command.py":  # runs the daemon, too
        outside -= {"exporter", "roofline_job"}

    assert outside <= sys.stdlib_module_names | {"_frozen_importlib", "_frozen_importlib_external"}
    assert {name for name in inside if not (CLIENT / f"{name}.py").exists()} == set()


def test_the_clients_modules_form_no_circle() -> None:
    """Not even for a type checker. Nothing of a job imports the launcher."""
    imports = {path.stem: _of_client(path)[1] for path in CLIENTS if path.parent == CLIENT}
    assert "launch" not in set().union(*imports.values())
    assert _circles(imports) == {}


def test_no_class_is_a_thread() -> None:
    """A thread's own attributes differ by release: Python 3.13 has `_handle`, which hid a method of
    that name, so that no GPU could be read."""
    paths = [*FILES.values(), *CLIENTS]
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in paths)
    classes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    bases = {f"{each.name}({ast.unparse(base)})" for each in classes for base in each.bases}
    assert not {each for each in bases if "Thread)" in each}
