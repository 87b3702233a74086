# SPDX-License-Identifier: Apache-2.0
"""What a test does where something that it needs is not there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.programs import ended

ROOT = Path(__file__).parents[1]
AT_IMPORT = "from tests.conftest import unmet\nunmet('it is not installed')\ndef test(): ...\n"
IN_TEST = "from tests.conftest import unmet\ndef test(): unmet('it is not installed')\n"


@pytest.mark.parametrize(("everything", "closing"), [("", "2 skipped"), ("1", "1 failed, 1 error")])
def test_a_missing_part_skips_or_fails(tmp_path: Path, everything: str, closing: str) -> None:
    """In a test and while a module is imported: skipped, and a failure where all must be there."""
    modules = [tmp_path / f"test_{name}.py" for name in ("import", "test")]
    for module, source in zip(modules, (AT_IMPORT, IN_TEST), strict=True):
        module.write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0"]
    command += ["--continue-on-collection-errors", "--rootdir", str(tmp_path), "-c", os.devnull]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "REQUIRE_ALL": everything}
    done = ended(*command, *modules, env=environ)
    assert closing in done.stdout
    assert done.stdout.count("it has to be") >= 2 * bool(everything)
