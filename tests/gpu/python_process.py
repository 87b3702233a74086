# SPDX-License-Identifier: Apache-2.0
"""Run Python in another process, so that CUDA is not initialised in that of the tests."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def python(*words: str, timeout_seconds: int = 120) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments in the root of the repository; return how it ended."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )


def skip_without(probe: str, reason: str) -> None:
    """Skip where torch is not installed, and for `reason` where the program `probe` fails."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    if python("-c", probe).returncode:
        pytest.skip(reason)
