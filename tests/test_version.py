# SPDX-License-Identifier: Apache-2.0
"""The version, and the commit that a checkout or a package was made from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from exporter import __version__
from exporter.version import revision

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PACKED = f"# pack-refs with: peeled\n{'f' * 40} refs/heads/other\n{COMMIT} refs/heads/main\n"


@pytest.mark.parametrize(
    "files",
    [
        {".git/HEAD": "ref: refs/heads/work/a\n", ".git/refs/heads/work/a": f"{COMMIT}\n"},
        {".git/HEAD": f"{COMMIT}\n"},
        {".git/HEAD": "ref: refs/heads/main\n", ".git/packed-refs": PACKED},
        {"exporter/REVISION": f"{COMMIT}\n"},
    ],
    ids=["branch", "detached", "packed by git gc", "package"],
)
def test_the_revision_is_the_commit(tmp_path: Path, files: dict[str, str]) -> None:
    """That of the checkout; where there is none, the one that the build has written."""
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert revision(tmp_path / "exporter") == "0123456"


@pytest.mark.parametrize("head", ["", "ref: refs/heads/none", "ref:", "nonsense", "\x00", "ref: /"])
def test_an_unknown_revision_is_called_unknown(tmp_path: Path, head: str) -> None:
    """A repository without commits, or one that is damaged, is no failure."""
    assert revision(tmp_path / "exporter") == "unknown"
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text(head)
    assert revision(tmp_path / "exporter") == "unknown"


def test_the_version_is_that_of_the_package() -> None:
    """The version is a release number."""
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", __version__)
