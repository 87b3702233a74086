# SPDX-License-Identifier: Apache-2.0
"""Which version and which revision of the source is running."""

from __future__ import annotations

import re
from pathlib import Path

from exporter import __version__

PACKAGE = Path(__file__).resolve().parent
UNKNOWN = "unknown"

_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_SHORT = 7


def version() -> str:
    """Return the version of the package."""
    return __version__


def revision(package: Path = PACKAGE) -> str:
    """Return the short git commit of the checkout, else the packaged REVISION, else unknown."""
    commit = _head(package.parent / ".git") or _text(package / "REVISION")
    return commit[:_SHORT] if _COMMIT.fullmatch(commit) else UNKNOWN


def _head(dot_git: Path) -> str:
    """Return the commit that is checked out; empty where there is no repository."""
    folder = dot_git
    if dot_git.is_file():  # a worktree or a submodule
        folder = dot_git.parent / _text(dot_git).removeprefix("gitdir:").strip()
    head = _text(folder / "HEAD")
    if not head.startswith("ref:"):
        return head
    name = head.removeprefix("ref:").strip()
    common = folder / (_text(folder / "commondir") or ".")
    return _text(folder / name) or _text(common / name) or _packed(common, name)


def _packed(common: Path, name: str) -> str:
    for line in _text(common / "packed-refs").splitlines():
        commit, _, packed_name = line.partition(" ")
        if packed_name == name:
            return commit
    return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
