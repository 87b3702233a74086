# SPDX-License-Identifier: Apache-2.0
"""The API's contract to the letter: its OpenAPI document, and what it answers about examples.

``UPDATE_GOLDEN=1 .venv/bin/python -m pytest tests/web/api/test_golden.py`` writes the files.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from exporter.specs import SpecBook
from tests.snapshots import EXAMPLES
from tests.web.conftest import Daemon

GOLDEN = Path(__file__).parents[2] / "golden"
SHOWN = ("mixed", "mig", "boards", "bare", "cpu")
"""The example snapshots that have everything between them."""


def check(found: Any, name: str) -> None:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        text = json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False)
        path.write_text(f"{text}\n", encoding="utf-8")
    assert found == json.loads(path.read_text(encoding="utf-8"))


def test_openapi(daemon: Daemon) -> None:
    """Paths, types, names and descriptions; whoever generates a client relies on each."""
    document = daemon.client.get("/api/openapi.json").json()
    del document["info"]["version"]
    check(document, "openapi.json")


@pytest.mark.parametrize("name", SHOWN)
def test_answers(daemon: Daemon, book: SpecBook, name: str) -> None:
    """Every answer about an example node, and about one GPU model."""
    snapshot = EXAMPLES[name]
    key = "h100-sxm5-80gb"
    daemon.book = SpecBook({key: book.models[key]}, {"NV": "https://example.org"})
    daemon.publish(snapshot)
    paths = ["/api/v1/gpus", "/api/v1/roofline", "/api/v1/training", "/api/v1/specs"]
    paths += [f"/api/v1/gpus/{gpu.device.uuid}" for gpu in snapshot.gpus]
    check({path: daemon.client.get(path).json() for path in paths}, f"api-{name}.json")
