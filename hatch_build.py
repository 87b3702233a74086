# SPDX-License-Identifier: Apache-2.0
"""Writes the source's revision into wheel and sdist, where exporter.version finds it."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "SOURCE_REVISION"
"""The commit, for builds that see no repository."""


class RevisionHook(BuildHookInterface):
    """Adds exporter/REVISION; a tree unpacked from an sdist has it already."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the file where the builder takes it from."""
        package = Path(self.root) / "exporter"
        if version == "editable" or (package / "REVISION").exists():
            return
        revision = os.environ.get(VARIABLE) or _of_the_checkout(package)
        self._folder = tempfile.TemporaryDirectory()
        file = Path(self._folder.name) / "REVISION"
        file.write_text(f"{revision}\n", encoding="ascii")
        os.utime(file, (0, 0))
        build_data["force_include"][str(file)] = "exporter/REVISION"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the file."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def _of_the_checkout(package: Path) -> str:
    sys.path.insert(0, str(package.parent))
    try:
        from exporter.version import revision
    finally:
        del sys.path[0]
    return revision(package)
