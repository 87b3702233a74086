# SPDX-License-Identifier: Apache-2.0
"""The version, and the commit that a checkout or a package was made from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from exporter.version import revision, version

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SHORT = "0123456"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    package = tmp_path / "checkout" / "exporter"
    package.mkdir(parents=True)
    return package


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_revision_of_a_branch(package: Path) -> None:
    """HEAD names a branch, whose file holds the commit."""
    write(package.parent / ".git/HEAD", "ref: refs/heads/work/a\n")
    write(package.parent / ".git/refs/heads/work/a", f"{COMMIT}\n")
    assert revision(package) == SHORT


def test_the_revision_of_a_detached_head(package: Path) -> None:
    """HEAD holds the commit itself."""
    write(package.parent / ".git/HEAD", f"{COMMIT}\n")
    assert revision(package) == SHORT


def test_the_revision_of_a_packed_branch(package: Path) -> None:
    """After git gc the branch is a line of packed-refs."""
    write(package.parent / ".git/HEAD", "ref: refs/heads/main\n")
    packed = f"# pack-refs with: peeled\n{'f' * 40} refs/heads/other\n{COMMIT} refs/heads/main\n"
    write(package.parent / ".git/packed-refs", packed)
    assert revision(package) == SHORT


def test_the_revision_of_a_package_is_in_its_file(package: Path) -> None:
    """Where there is no repository, the build has written the commit beside the code."""
    write(package / "REVISION", f"{COMMIT}\n")
    assert revision(package) == SHORT


@pytest.mark.parametrize("head", ["", "ref: refs/heads/none", "ref:", "nonsense", "\x00", "ref: /"])
def test_an_unknown_revision_is_called_unknown(package: Path, head: str) -> None:
    """A repository without commits, or one that is damaged, is no failure."""
    assert revision(package) == "unknown"
    write(package.parent / ".git/HEAD", head)
    assert revision(package) == "unknown"


def test_the_version_is_that_of_the_package() -> None:
    """The version is a release number."""
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", version())
