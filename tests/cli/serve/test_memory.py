# SPDX-License-Identifier: Apache-2.0
"""What a daemon that is only scraped has in memory."""

from __future__ import annotations

import sys

from tests.programs import said

SEEN = """
import sys
from pathlib import Path
import exporter.cli.serve.server
from exporter.specs import load_specs
load_specs()
print(*sorted(name for name in sys.modules if "." not in name))
"""


def test_what_only_files_and_recordings_need_is_not_loaded() -> None:
    """Frameworks are loaded with the first file or recording that needs them."""
    loaded = set(said(sys.executable, "-c", SEEN).split())
    assert {"exporter", "starlette", "pynvml", "prometheus_client"} <= loaded
    assert not loaded & {"pydantic", "pydantic_core", "yaml", "bcrypt"}
