# SPDX-License-Identifier: Apache-2.0
"""Which revision of the source is running."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
UNKNOWN = "unknown"

_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_SHORT = 7


def revision(package: Path = PACKAGE) -> str:
    """Return the short git commit of the checkout, else the packaged REVISION, else unknown."""
    commit = _head(package.parent / ".git") or _text(package / "REVISION")
    return commit[:_SHORT] if _COMMIT.fullmatch(commit) else UNKNOWN


def _head(repository: Path) -> str:
    """Return the commit that is checked out; empty where there is no repository."""
    head = _text(repository / "HEAD")
    if not head.startswith("ref:"):
        return head
    name = head.removeprefix("ref:").strip()
    packed = (line.partition(" ") for line in _text(repository / "packed-refs").splitlines())
    commits = {packed_name: commit for commit, _, packed_name in packed}
    return _text(repository / name) or commits.get(name, "")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
