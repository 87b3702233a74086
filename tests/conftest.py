# SPDX-License-Identifier: Apache-2.0
"""What tests of several areas share."""

from __future__ import annotations

import os
import shutil

import pytest


def require_tool(name: str) -> str:
    """Return the path of a program that a test runs.

    Without it the test is skipped, or fails where the environment says that everything is
    installed (``REQUIRE_ALL=1``).
    """
    path = shutil.which(name)
    if path is not None:
        return path
    reason = f"{name} is not on the PATH"
    if os.environ.get("REQUIRE_ALL") == "1":
        pytest.fail(f"{reason}, and REQUIRE_ALL=1 says that it has to be")
    pytest.skip(reason)
