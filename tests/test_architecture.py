# SPDX-License-Identifier: Apache-2.0
"""docs/architecture.md is true: its paths exist, and its arrows are those that are held."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_imports import ARROWS

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
CODE = re.compile(r"`([\w./{}*-]+)`")


def _section(title: str) -> str:
    return TEXT.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def _paths(text: str) -> list[str]:
    """Return what a text names as a path: with a folder, or a file of a known kind."""
    return [
        name
        for name in CODE.findall(text)
        if "/" in name.rstrip("/") and not name.startswith("/") and "..." not in name
    ]


@pytest.mark.parametrize("path", sorted(set(_paths(TEXT))))
def test_every_path_exists(path: str) -> None:
    """Whoever follows the page arrives."""
    assert (ROOT / path).exists()


@pytest.mark.parametrize("path", re.findall(r"(?<![\w/])`(\w+\.py)`", TEXT))
def test_every_file_that_is_named_alone_is_in_a_folder_of_its_list(path: str) -> None:
    """Within a path's list, a file is named without its folder if the folder was named before."""
    folders = {(ROOT / name) for name in _paths(TEXT)}
    folders = {folder if folder.is_dir() else folder.parent for folder in folders}
    assert any((folder / path).exists() for folder in folders)


@pytest.mark.parametrize(
    "subject",
    ["reading", "source", "metric", "alert", "dashboard panel", "GPU model", "flag", "cause"],
)
def test_the_table_says_where_to_change_everything(subject: str) -> None:
    """One row for each kind of change, with at least one path."""
    rows = [row for row in _section("To change X, open Y").splitlines() if row.startswith("| ")]
    found = [row for row in rows if re.match(rf"\| an? [^|]*{subject}\b", row)]

    assert any(_paths(row) for row in found)


@pytest.mark.parametrize(("name", "path"), re.findall(r"`(\w+)` in `([\w./]+\.py)`", TEXT))
def test_every_table_is_in_the_file_that_is_named_with_it(name: str, path: str) -> None:
    """Such as `LIMITERS` in `exporter/model/snapshot.py`."""
    assert re.search(rf"^{name}\b", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)


def test_the_arrows_are_those_of_the_code() -> None:
    """The table of rooms and the test of imports say the same."""
    said: dict[str, set[str]] = {}
    for row in _section("Rooms").splitlines():
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if len(cells) == 2 and cells[0].startswith("`"):
            for room in re.findall(r"`(\w+)/`", cells[0]):
                said[room] = set(re.findall(r"`(\w+)`", cells[1]))
                if cells[1].startswith("every room"):
                    said[room] = set(ARROWS) - {room}

    assert said == ARROWS
