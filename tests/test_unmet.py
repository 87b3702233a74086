# SPDX-License-Identifier: Apache-2.0
"""What a test does where something that it needs is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
AT_IMPORT = "from tests.conftest import unmet\nunmet('it is not installed')\ndef test(): ...\n"
IN_TEST = "from tests.conftest import unmet\ndef test(): unmet('it is not installed')\n"


@pytest.mark.parametrize("source", [AT_IMPORT, IN_TEST], ids=["import", "test"])
@pytest.mark.parametrize(("everything", "closing"), [("", "1 skipped"), ("1", "it has to be")])
def test_a_missing_part_skips_or_fails(
    tmp_path: Path, source: str, everything: str, closing: str
) -> None:
    """In a test and while a module is imported: skipped, and a failure where all must be there."""
    module = tmp_path / "test_one.py"
    module.write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0"]
    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path), "-c", os.devnull, str(module)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "REQUIRE_ALL": everything},
        capture_output=True,
        text=True,
        check=False,
    )
    assert closing in done.stdout
    assert ("error" in done.stdout or "failed" in done.stdout) is bool(everything)
