# SPDX-License-Identifier: Apache-2.0
"""The API's contract to the letter: its OpenAPI document, and what it answers about examples."""

from __future__ import annotations

import json

import pytest
from starlette.routing import Route

from exporter.specs import SpecBook
from tests.snapshots import EXAMPLES
from tests.web.api.schema import text
from tests.web.conftest import Daemon
from tests.web.golden import check_json

SHOWN = ("mixed", "mig", "boards", "bare", "cpu")
"""The example snapshots that have everything between them."""


def test_openapi(daemon: Daemon) -> None:
    """Paths, types, names and descriptions; whoever generates a client relies on each."""
    answer = daemon.client.get("/api/openapi.json")
    assert answer.text == text()  # `make docs` writes it
    document = answer.json()
    del document["info"]["version"]
    check_json(document, "openapi.json")


def test_the_document_has_every_path(daemon: Daemon) -> None:
    """What is served below the API is described, but for the document."""
    routes = {route.path for route in daemon.app.routes if isinstance(route, Route)}
    served = {path for path in routes if path.startswith("/api/")}
    described = set(json.loads(text())["paths"])
    assert served - described == {"/api/openapi.json"}
    assert described <= served


@pytest.mark.parametrize("name", SHOWN)
def test_answers(daemon: Daemon, book: SpecBook, name: str) -> None:
    """Every answer about an example node, and about one GPU model."""
    snapshot = EXAMPLES[name]
    key = "h100-sxm5-80gb"
    daemon.book = SpecBook({key: book.models[key]}, {"NV": "https://example.org"})
    daemon.publish(snapshot)
    paths = [
        "/api/v1/gpus",
        "/api/v1/roofline",
        "/api/v1/training",
        "/api/v1/diagnosis",
        "/api/v1/specs",
    ]
    paths += [f"/api/v1/gpus/{gpu.device.uuid}" for gpu in snapshot.gpus]
    check_json({path: daemon.client.get(path).json() for path in paths}, f"api-{name}.json")
