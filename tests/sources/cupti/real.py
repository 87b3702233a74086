# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's own releases of CUPTI, as the group `cupti` installs them; each in a process of its own.

Two of them do not go together into one process, and neither belongs into that of the tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from typing import Any

from exporter.sources.cupti.release import Release, installed
from tests.conftest import unmet
from tests.terminals import REPOSITORY

RELEASES = ("nvidia-cuda-cupti-cu12", "nvidia-cuda-cupti")
"""The packages."""


def release(package: str) -> Release:
    """Return the release of a package; skip the test where it is not installed."""
    found = {each.package: each for each in installed()}
    if package not in found:
        unmet(f"{package} is not installed: pip install --group cupti")
    return found[package]


@cache
def chip_facts(package: str) -> Any:
    """Return what `chip_facts.py` prints for the release of a package; takes 5 s."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.sources.cupti.chip_facts", str(release(package).library)],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
