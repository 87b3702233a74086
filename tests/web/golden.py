# SPDX-License-Identifier: Apache-2.0
"""Compares what the web side says with files in ``tests/golden``.

``UPDATE_GOLDEN=1 .venv/bin/python -m pytest tests/web -k golden`` writes them; read the difference.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[1] / "golden"


def check_text(found: str, name: str) -> None:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


def check_json(found: Any, name: str) -> None:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        text = json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False)
        path.write_text(f"{text}\n", encoding="utf-8")
    assert found == json.loads(path.read_text(encoding="utf-8"))
