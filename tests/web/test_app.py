# SPDX-License-Identifier: Apache-2.0
"""The paths that exist, and how the others are refused."""

from __future__ import annotations

from http import HTTPStatus

import pytest
from starlette.testclient import TestClient

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.parametrize("path", ["/nope", "/metrics/", "/api", "/docs", "/redoc", "/openapi.json"])
def test_unknown_path(client: TestClient, path: str) -> None:
    """An unknown path is a 404 with one line, and no redirect."""
    answer = client.get(path, follow_redirects=False)
    assert answer.status_code == 404
    assert answer.json() == {"schema_version": 1, "error": f"there is nothing at {path}"}


def test_unknown_path_in_a_browser(client: TestClient) -> None:
    """A browser gets a page that leads home, with what it asked for as text."""
    answer = client.get("/<script>alert(1)</script>", headers=BROWSER)
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert "<script>" not in answer.text
    assert '<a href="../">' in answer.text  # the path has a slash more
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.parametrize("path", ["/gpu/77", "/gpu/0?instance=x", "/gpu/0/more"])
@pytest.mark.parametrize("accept", [BROWSER["accept"], "*/*"])
def test_the_address_of_a_page_never_answers_with_json(
    client: TestClient, path: str, accept: str
) -> None:
    """What is wrong with it is said on a page with the head of all pages, which leads home."""
    answer = client.get(path, headers={"accept": accept})
    assert answer.status_code in (400, 404)
    assert answer.headers["content-type"].startswith("text/html")
    root = "../../" if "more" in path else "../"
    assert f'<header><div class="top"><a class="brand" href="{root}">' in answer.text
    assert f"<h1>{answer.status_code} {HTTPStatus(answer.status_code).phrase}</h1>" in answer.text
    assert f"<title>{answer.status_code} " in answer.text


def test_api_errors_are_json_for_browsers_too(client: TestClient) -> None:
    """Below /api an error is always JSON."""
    answer = client.get("/api/v1/gpus/77", headers=BROWSER)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "path", ["/", "/metrics", "/-/healthy", "/-/ready", "/api/v1/gpus", "/api/v1/specs"]
)
def test_method_not_allowed(client: TestClient, path: str) -> None:
    """Nothing can be changed over HTTP."""
    for method in ("POST", "PUT", "DELETE"):
        answer = client.request(method, path)
        assert answer.status_code == 405
        assert "GET" in answer.headers["allow"]
        assert answer.json()["error"] == "Method Not Allowed"
