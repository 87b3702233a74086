# SPDX-License-Identifier: Apache-2.0
"""Where PyTorch is not what the client knows, the job is as it was, and one line says so."""

from __future__ import annotations

import sys

import pytest

from tests.training.differential.harness import RUN, SCRIPTS, Job, compare, require_module
from tests.training.differential.scripts.next_release import CHANGES

SCRIPT = SCRIPTS / "next_release.py"


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_missing_is_said(change: str) -> None:
    """One line on stderr and one reason in the report; what is left is counted."""
    require_module("torch")
    require_module("safetensors")
    found, _ = compare(
        "next_release", Job([sys.executable, SCRIPT, change]), RUN, Job([sys.executable, SCRIPT])
    )

    assert not found, "\n".join(("", *found))
